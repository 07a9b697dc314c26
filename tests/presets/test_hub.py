"""The real Hub client against a small local server, faults included."""

import gzip
import json
import resource
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from time import sleep

import huggingface_hub
import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFWriter, LlamaFileType
from huggingface_hub import constants

from calc import Architecture, ConfigError
from calc.families.gguf import FILE_TYPES
from calc.formats import native, native_weights
from cli import main
from presets import hub, models
from presets.replies import RecentAnswers
from tests.hub_server import COMMIT, TOKEN, Hub, Odd, safetensors
from tests.hub_server import hub as serve

QWEN3 = json.dumps(models()["Qwen/Qwen3-0.6B"].config).encode()
CAUSAL = json.dumps(models()["Qwen/Qwen3-0.6B"].config | {"architectures": ["Qwen3ForCausalLM"]}).encode()
MODULES_JSON = b"""[{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
 {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}]"""
MODELOPT = json.dumps(
    {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}}
).encode()


def tiny_gguf(path, vocabulary: int = 320) -> bytes:
    """A GGUF file of a Llama-like model, written by llama.cpp's own package."""
    writer = GGUFWriter(path, "llama")
    writer.add_embedding_length(64)
    writer.add_block_count(1)
    writer.add_feed_forward_length(96)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_context_length(512)
    writer.add_file_type(LlamaFileType.MOSTLY_Q4_0)
    writer.add_token_list([f"word {i}" for i in range(vocabulary)])
    shapes = {
        "token_embd": (vocabulary, 64),
        "blk.0.attn_q": (64, 64),
        "blk.0.attn_k": (32, 64),
        "blk.0.attn_v": (32, 64),
        "blk.0.attn_output": (64, 64),
        "blk.0.ffn_gate": (96, 64),
        "blk.0.ffn_up": (96, 64),
        "blk.0.ffn_down": (64, 96),
    }
    for name, (rows, columns) in shapes.items():
        packed = np.zeros((rows, columns // 32 * 18), dtype=np.uint8)
        writer.add_tensor(f"{name}.weight", packed, raw_dtype=GGMLQuantizationType.Q4_0)
    for name in ("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"):
        writer.add_tensor(f"{name}.weight", np.zeros(64, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()


@pytest.fixture
def server(monkeypatch, tmp_path):
    repositories = {
        "org/model": {
            "config.json": QWEN3,
            "model.safetensors.index.json": json.dumps(
                {"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}
            ).encode(),
            "1.safetensors": safetensors({"a": ("BF16", (2, 3), 12)}),
            "2.safetensors": safetensors({"b": ("F8_E4M3", (4,), 4)}),
        },
        "org/nvfp4": {"config.json": QWEN3, "hf_quant_config.json": MODELOPT},
        "org/embedder": {"config.json": CAUSAL, "modules.json": MODULES_JSON},
        "org/opens-with-token": {"config.json": QWEN3},
        "org/slow": {"config.json": QWEN3},
        "org/huge": {"config.json": b"{}"},
        "org/list": {"config.json": b"[1]"},
        "org/bytes": {"config.json": b"\xff\xfe"},
        "org/pickle": {"pytorch_model.bin": b""},
        "org/empty": {"README.md": b""},
        "org/loose": {"config.json": QWEN3, "consolidated.safetensors": safetensors({"w": ("F32", (2,), 8)})},
        "org/quants": {
            "tiny-Q4_0.gguf": tiny_gguf(tmp_path / "tiny.gguf"),
            "mmproj-f16.gguf": b"",
            "more-00002-of-00002.gguf": b"",
        },
        "org/torn": {"torn.gguf": b"GGUF\x03\0\0\0"},
    }
    with serve(repositories) as running:
        running.sizes["org/huge/config.json"] = 100_000_000
        point_at(monkeypatch, running.endpoint)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(hub, "MISSING", RecentAnswers(60.0, 10))
        yield running


def point_at(monkeypatch, endpoint: str) -> None:
    """What HF_ENDPOINT does when the client is imported."""
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", endpoint + "/{repo_id}/resolve/{revision}/{filename}")


def test_a_model_of_the_hub(server: Hub):
    model = hub.fetch("org/model", "v1")
    assert (model.revision, model.config) == (COMMIT, json.loads(QWEN3))
    table = hub.checkpoint(model)
    assert {name: tuple(stored) for name, stored in table.tensors.items()} == {
        "a": ("BF16", (2, 3), 12),
        "b": ("F8_E4M3", (4,), 4),
    }
    assert table.bytes_by_dtype() == {"BF16": 12, "F8_E4M3": 4}
    assert hub.search("ORG/MOD") == ["org/model"]
    assert set(server.tokens_seen) == {None}


def test_what_sentence_transformers_pools_has_no_head(server: Hub, monkeypatch):
    """Qwen3-Embedding's config.json names Qwen3ForCausalLM; its modules.json says that a vector is made (vLLM takes it
    for a pooling model by the same file). From the Hub, with a token, and from the copy of before."""
    model = hub.fetch("org/embedder")
    assert model.config == {**json.loads(CAUSAL), "architectures": ["Qwen3Model"]}
    assert "embedding model" in str(model.note)
    architecture = Architecture.from_config(model.config)
    assert architecture.pooled
    assert not any("lm_head" in tensor.name for tensor in architecture.tensors())
    assert hub.fetch("org/embedder", token=TOKEN).config == model.config
    point_at(monkeypatch, "http://127.0.0.1:1")
    assert hub.fetch("org/embedder").config == model.config


def test_what_modelopt_wrote_is_read_with_the_config(server: Hub, monkeypatch):
    """hf_quant_config.json, from the Hub, with a token, and from the copy of before."""
    for token in (None, TOKEN):
        stored = native(hub.fetch("org/nvfp4", token=token).config)
        assert (stored.name, stored.cache.format) == ("nvfp4", "fp8")
    point_at(monkeypatch, "http://127.0.0.1:1")
    assert native(hub.fetch("org/nvfp4").config).name == "nvfp4"


def test_the_hub_is_asked_once_for_all_who_ask_at_once(server: Hub, monkeypatch):
    asked, come = [], Barrier(8)
    info = huggingface_hub.HfApi.model_info

    def slowly(*args, **options):
        asked.append(args)
        sleep(0.3)
        return info(*args, **options)

    def reader(name):
        come.wait()
        try:
            return hub.fetch(name).config
        except ConfigError as problem:
            return str(problem)

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", slowly)
    with ThreadPoolExecutor(8) as readers:
        found = list(readers.map(reader, ["org/model", "org/missing"] * 4))
    assert found == [json.loads(QWEN3), found[1]] * 4
    assert len(asked) == 2


def test_safetensors_without_an_index(server: Hub):
    assert hub.checkpoint(hub.fetch("org/loose")).bytes == 8


@pytest.mark.parametrize(
    ("model", "sentence", "wants_token"),
    [
        ("x/gated", "is gated", True),
        ("x/private", "or it is private", True),
        ("x/missing", "The Hub knows no x/missing", True),
        ("x/busy", "no more requests", True),
        ("x/broken", "a fault of its own (500)", False),
        ("x/away", "a fault of its own (503)", False),
        ("org/slow", "did not answer within 1 seconds", False),
        ("org/huge", "100,000,000 bytes", False),
        ("org/pickle", "only pickle files such as pytorch_model.bin", False),
        ("org/empty", "neither a config.json nor GGUF files", False),
        ("no-slash", "is no model id", False),
        ("../etc", "is no model id", False),
        ("org/" + "x" * 200, "is no model id", False),
        ("a/.", "is no model id", False),
        ("-x/y", "is no model id", False),
        ("a/b.git", "is no model id", False),
        ("a--b/c", "is no model id", False),
        ("模型/名", "is no model id", False),
    ],
)
def test_each_fault_has_its_sentence(monkeypatch, server: Hub, model: str, sentence: str, wants_token: bool):
    monkeypatch.setattr(hub, "SECONDS", 1.0)
    with pytest.raises(hub.HubError) as caught:
        hub.fetch(model)
    assert sentence in str(caught.value)
    assert caught.value.wants_token == wants_token


@pytest.mark.parametrize(
    ("model", "sentence"),
    [("org/list", "an object of fields"), ("org/bytes", "UTF-8"), ("org/torn", "goes on after the 8 bytes")],
)
def test_files_that_are_no_config(server: Hub, model: str, sentence: str):
    with pytest.raises(ConfigError, match=sentence):
        hub.fetch(model)


def listed(**fields: object) -> Odd:
    return Odd(json.dumps({"id": "org/model", "sha": COMMIT, "siblings": []} | fields).encode())


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        pytest.param(Odd(b"<html>Sign in</html>"), "can't be read", id="no JSON"),
        pytest.param(Odd(), "can't be read", id="nothing"),
        pytest.param(Odd(b"\xff\xfe"), "can't be read", id="no text"),
        pytest.param(Odd(b"[]"), "can't be read", id="a list"),
        pytest.param(Odd(b"{}"), "can't be read", id="no fields"),
        pytest.param(Odd(b"[" * 100_000), "can't be read", id="nested"),
        pytest.param(listed(siblings=3), "can't be read", id="a number for the files"),
        pytest.param(listed(siblings=[{}]), "can't be read", id="a file without a name"),
        pytest.param(listed(siblings=[{"rfilename": 3}]), "can't be read", id="a number for a name"),
        pytest.param(listed(siblings=[{"rfilename": "a", "size": "x"}]), "can't be read", id="a word for a size"),
        pytest.param(listed(sha=3), "can't be read", id="a number for the commit"),
        pytest.param(listed(siblings=None), "neither a config.json nor GGUF", id="no files"),
        pytest.param(Odd(b'{"id"', length="1000"), "broke off or garbled", id="cut short"),
        pytest.param(Odd(b"{}", length="many"), "broke off or garbled", id="no length"),
        pytest.param(Odd(drops=True), "broke off or garbled", id="closed at once"),
        pytest.param(Odd(status=418), "can't be read", id="a teapot"),
        pytest.param(Odd(status=302, headers={"Location": "/api/models/org/model"}), "in a circle", id="circle"),
        pytest.param(Odd(status=302, headers={"Location": "file:///etc/passwd"}), "can't be reached", id="a file"),
    ],
)
def test_each_odd_answer_has_its_sentence(server: Hub, answer: Odd, sentence: str):
    server.odd["/api/models/org/model"] = answer
    with pytest.raises(hub.HubError) as caught:
        hub.fetch("org/model")
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        pytest.param(Odd(b"<html>", 206), "no safetensors file", id="no length"),
        pytest.param(Odd((2**63).to_bytes(8, "little") + b"{}", 206), "9,223,372,.* bytes", id="absurd length"),
        pytest.param(Odd(safetensors({})[:8], 206), "no safetensors file", id="only a length"),
        pytest.param(Odd((2).to_bytes(8, "little") + b"[]", 206), "no safetensors file", id="a list"),
        pytest.param(Odd((2).to_bytes(8, "little") + b"{}", 206), "names no tensor", id="no tensors"),
        pytest.param(Odd(safetensors({"a": ("BF16", (2,), 5)}), 206), "takes 5 bytes", id="wrong size"),
        pytest.param(Odd(safetensors({"a": ("Q9", (2,), 4)}), 206), "safetensors knows", id="unknown type"),
        pytest.param(Odd(safetensors({"a": ("BF16", (-2,), 4)}), 206), "whole numbers", id="negative"),
        pytest.param(Odd(safetensors({"a": (["BF16"], (2,), 4)}), 206), "safetensors knows", id="a list for a type"),
        pytest.param(Odd(safetensors({"a": ("BF16", ("2",), 4)}), 206), "whole numbers", id="words for a shape"),
        pytest.param(Odd(b"\0", 206, length="500"), "broke off or garbled", id="cut short"),
        pytest.param(Odd(drops=True), "broke off or garbled", id="closed at once"),
    ],
)
def test_each_odd_table_has_its_sentence(server: Hub, answer: Odd, sentence: str):
    model = hub.fetch("org/loose")
    server.odd[f"/org/loose/resolve/{COMMIT}/consolidated.safetensors"] = answer
    with pytest.raises(ConfigError, match=sentence):
        hub.checkpoint(model)


@pytest.mark.parametrize(
    "path",
    [
        "/api/models/org/model",
        "/org/model/resolve/main/config.json",
        f"/org/model/resolve/{COMMIT}/model.safetensors.index.json",
        f"/org/model/resolve/{COMMIT}/1.safetensors",
    ],
)
@pytest.mark.parametrize("compressed", [False, True])
def test_no_answer_is_read_beyond_what_is_read_of_any(server: Hub, path: str, compressed: bool):
    """Of 500 MB, whatever their length is said to be; a compressed one of 500 kB is 500 MB, too."""
    data, headers = (gzip.compress(bytes(2**20)), {"Content-Encoding": "gzip"}) if compressed else (bytes(2**20), {})
    server.odd[path] = Odd(data, 200, {"ETag": '"a"', "X-Repo-Commit": COMMIT} | headers, repeats=500)
    before = peak()
    with pytest.raises(ConfigError):
        hub.checkpoint(hub.fetch("org/model"))
    assert server.bytes_sent < 50 * 2**20
    assert peak() - before < 100 * 2**20


def test_files_come_over_the_client_whose_answers_have_bounds(server: Hub):
    """hf_xet would load them past it, from where an answer says."""
    config = server.repositories["org/model"]["config.json"]
    xet = {"X-Xet-Hash": "0" * 64, "X-Xet-Refresh-Route": f"{server.endpoint}/xet"}
    headers = {"ETag": '"a"', "X-Repo-Commit": COMMIT} | xet
    server.odd = {"/org/model/resolve/main/config.json": Odd(config, 200, headers), "/xet": Odd(bytes(1000))}
    assert hub.fetch("org/model").config == json.loads(config)


def peak() -> int:
    """The most bytes that this process ever had in memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def test_a_checkpoint_of_more_files_than_are_read_is_refused(server: Hub):
    server.repositories["org/many"] = {f"{n}.safetensors": b"" for n in range(1001)} | {"config.json": QWEN3}
    with pytest.raises(ConfigError, match="1,001 safetensors files"):
        hub.checkpoint(hub.fetch("org/many"))


def test_what_the_hub_does_not_have_is_asked_once_a_minute(monkeypatch, server: Hub):
    now = [0.0]
    monkeypatch.setattr(hub, "MISSING", RecentAnswers(60.0, 2, lambda: now[0]))

    def requests(name):
        before = len(server.tokens_seen)
        with pytest.raises(hub.HubError, match="The Hub") as caught:
            hub.fetch(name)
        assert caught.value.wants_token or name == "x/broken"
        return len(server.tokens_seen) - before

    assert [requests(name) for name in ("x/missing", "x/missing", "x/private", "x/missing")] == [1, 0, 1, 0]
    assert requests("x/broken") == requests("x/broken") == 1
    now[0] = 61.0
    assert requests("x/missing") == 1


def test_no_more_refusals_are_remembered_than_so_many():
    refusals = RecentAnswers[int](60.0, 100)
    for n in range(10_000):
        refusals.put(n, n)
    assert (len(refusals.answers), refusals.get(9_999), refusals.get(0)) == (100, 9_999, None)


def test_a_gguf_answer_without_end_is_not_read_to_its_end(server: Hub):
    server.odd[f"/org/quants/resolve/{COMMIT}/tiny-Q4_0.gguf"] = Odd(bytes(2**20), 206, repeats=500)
    with pytest.raises(ConfigError, match="no GGUF file"):
        hub.fetch("org/quants")
    assert server.bytes_sent < 50 * 2**20


def test_a_series_of_more_files_than_are_read_is_refused(server: Hub):
    server.repositories["org/quants"] = {"many-00001-of-00999.gguf": b"GGUF"}
    with pytest.raises(ConfigError, match="one of 999 files"):
        hub.fetch("org/quants")


def test_an_unknown_revision_is_named(server: Hub):
    with pytest.raises(hub.HubError, match="no revision “v9”"):
        hub.fetch("org/model", "v9")


def test_a_token_opens_a_gated_model_and_is_kept_nowhere(server: Hub, tmp_path):
    with pytest.raises(hub.HubError, match="gated"):
        hub.fetch("org/opens-with-token")
    model = hub.fetch("org/opens-with-token", token=TOKEN)
    assert model.config["model_type"] == "qwen3"
    assert TOKEN not in repr(model)
    kept = [path for path in (tmp_path / "cache").rglob("*") if "opens-with-token" in str(path)]
    assert kept == []
    with pytest.raises(hub.HubError) as caught:
        hub.fetch("x/broken", token=TOKEN)
    assert TOKEN not in repr(caught.value)


def test_without_a_network_the_copy_of_before_is_used_and_said_so(monkeypatch, server: Hub):
    hub.fetch("org/model")
    server.server_close()
    point_at(monkeypatch, "http://127.0.0.1:9")
    assert "can't be reached" in str(hub.fetch("org/model").note)
    with pytest.raises(hub.HubError, match="can't be reached"):
        hub.fetch("org/never-read")


def test_a_gguf_repository_is_read_from_its_header(server: Hub):
    model = hub.fetch("org/quants")
    assert model.gguf_files == ("tiny-Q4_0.gguf",)
    table = hub.checkpoint(model)
    weights = 320 * 64 + 64 * 64 * 2 + 2 * 32 * 64 + 3 * 64 * 96
    assert table.bytes_by_dtype() == {"Q4_0": weights // 32 * 18, "F32": 3 * 64 * 4}
    assert Architecture.from_config(model.config).parameters().total == table.elements == weights + 3 * 64
    assert native_weights(model.config) == "Q4_0"
    assert all(wanted.startswith("bytes=") for wanted in server.ranges_seen)


def test_a_series_of_gguf_files_is_read_together(server: Hub, tmp_path):
    whole = server.repositories["org/quants"]["tiny-Q4_0.gguf"]
    second = GGUFWriter(tmp_path / "second.gguf", "llama")
    second.add_tensor("output.weight", np.zeros((320, 64), dtype=np.float16))
    second.write_header_to_file()
    second.write_kv_data_to_file()
    second.write_tensors_to_file()
    second.close()
    files = {"big-00001-of-00002.gguf": whole, "big-00002-of-00002.gguf": (tmp_path / "second.gguf").read_bytes()}
    server.repositories["org/series"] = files
    model = hub.fetch("org/series")
    assert (model.gguf_files, model.config["tie_word_embeddings"]) == (("big-00001-of-00002.gguf",), False)
    assert hub.checkpoint(model).bytes_by_dtype()["F16"] == 320 * 64 * 2


def test_a_long_gguf_header_is_read_in_pieces(monkeypatch, server: Hub):
    monkeypatch.setattr(hub, "FIRST_BYTES", 1024)
    assert hub.fetch("org/quants").config["vocab_size"] == 320
    assert server.ranges_seen[:3] == ["bytes=0-1023", "bytes=1024-2047", "bytes=2048-4095"]


def test_a_mirror_without_range_requests_is_not_read_whole(server: Hub):
    server.ignores_ranges = True
    with pytest.raises(hub.HubError, match="can't give parts"):
        hub.fetch("org/quants")


def test_the_command_line_takes_a_model_of_the_hub(server: Hub, capsys):
    assert main(["org/model", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["parameters"]["total"] == 596_049_920
    assert main(["org/pickle"]) == 2
    assert "only pickle files" in capsys.readouterr().err


def test_file_types_are_those_of_llama_cpp():
    for number, name in FILE_TYPES.items():
        assert LlamaFileType(number).name == f"MOSTLY_{name}"
