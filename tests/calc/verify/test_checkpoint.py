"""Tensor tables of checkpoints, and our list beside them."""

import json
import struct
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calc import Architecture, ConfigError
from calc.families.gguf import ARCHITECTURES, FIELDS, LATENT, config_of
from calc.verify.checkpoint import Checkpoint, StoredTensor, read_safetensors
from calc.verify.compare import compare
from calc.verify.gguf import GGUF, read_gguf
from presets import models
from tests import load
from tests.hub_server import safetensors
from tests.mutation import JUNK, mutated

LLAMA = Architecture.from_config(models()["meta-llama/Llama-3.1-8B"].config)
SMALL = {"a": ("BF16", (2, 3), 12), "b": ("F4", (3,), 2)}


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(safetensors(SMALL), id="the beginning of a file"),
        pytest.param(safetensors(SMALL)[8:], id="its header as JSON"),
    ],
)
def test_a_safetensors_header(data: bytes):
    table = read_safetensors(data)
    assert {name: tuple(stored) for name, stored in table.tensors.items()} == SMALL | {"b": ("F4", (3,), 2)}
    assert (table.elements, table.bytes, table.bytes_by_dtype()) == (9, 14, {"BF16": 12, "F4": 2})


@pytest.mark.parametrize("row", load("saved_names.json"), ids=lambda row: row["id"])
def test_names_as_transformers_saves_them(row):
    """Encoders lose a level of their names there, language models win one."""
    tensors = {name: StoredTensor("BF16", tuple(shape), 2 * prod(shape)) for name, shape in row["shapes"].items()}
    found = compare(Architecture.from_config(row["config"]), Checkpoint(tensors=tensors))
    assert (found.differences, found.matched + found.tied) == ((), len(tensors))


def test_an_index_has_names_and_a_total_only():
    table = read_safetensors(b'{"metadata": {"total_size": 988097824}, "weight_map": {"a": "1", "b": "1"}}')
    assert (set(table.tensors), table.bytes) == ({"a", "b"}, 988_097_824)
    assert table.unseen


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "no safetensors file"),
        (b"PK\x03\x04 a zip file", "no safetensors file"),
        (struct.pack("<Q", 10**12) + b"{", "should be 1,000,000,000,000 bytes long; 25,000,000"),
        (struct.pack("<Q", 26_000_000) + b"{" * 27_000_000, "25,000,000 are the most"),
        (b"{}", "names no tensor"),
        (b"{" * 100_000, "not JSON|nested too deep"),
        (b'{"a": 1}', "dtype, shape and data_offsets"),
        (b'{"a": {"dtype": "F99", "shape": [1], "data_offsets": [0, 1]}}', "safetensors knows"),
        (b'{"a": {"dtype": ["U8"], "shape": [1], "data_offsets": [0, 1]}}', "safetensors knows"),
        (b'{"a": {"dtype": "U8", "shape": [-1], "data_offsets": [0, 1]}}', "whole numbers"),
        (b'{"a": {"dtype": "U8", "shape": [2], "data_offsets": [0, 1]}}', "takes 1 bytes by its data_offsets, but 2"),
        (b'{"weight_map": []}', "which file holds it"),
        (b'{"weight_map": {"a": "b"}, "metadata": {"total_size": -1}}', "number of bytes"),
        (b'{"\xff": 1}', "UTF-8"),
    ],
)
def test_what_is_no_header_is_a_sentence(data: bytes, sentence: str):
    with pytest.raises(ConfigError, match=sentence):
        read_safetensors(data)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"GGML", "no GGUF file"),
        (b"GGUF\x01\0\0\0", "version 1"),
        (b"GGUF\x03\0\0\0" + struct.pack("<QQ", 2**60, 0), "damaged"),
        (b"GGUF\x03\0\0\0" + struct.pack("<QQQ", 0, 1, 2**60), "damaged"),
        (b"GGUF\x03\0\0\0" + struct.pack("<QQQ", 0, 1, 1) + b"k" + struct.pack("<I", 99), "type 99"),
        (b"GGUF\x03\0\0\0" + struct.pack("<QQQ", 1, 0, 1) + b"w" + struct.pack("<IQIQ", 1, 33, 2, 0), "Q4_0 blocks"),
        (b"GGUF\x03\0\0\0" + struct.pack("<QQQ", 1, 0, 1) + b"w" + struct.pack("<IQIQ", 1, 32, 77, 0), "type 77"),
    ],
)
def test_what_is_no_gguf_header_is_a_sentence(data: bytes, sentence: str):
    with pytest.raises(ConfigError, match=sentence):
        read_gguf(data)


TABLE = {
    "__metadata__": {"format": "pt"},
    "a": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]},
    "b": {"dtype": "F4", "shape": [], "data_offsets": [12, 13]},
}
INDEX = {"metadata": {"total_size": 13}, "weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}


@given(mutated([TABLE, INDEX]))
@settings(max_examples=200)
def test_a_mutated_table_is_a_table_or_a_sentence(table):
    try:
        compare(LLAMA, read_safetensors(json.dumps(table).encode()))
    except ConfigError as error:
        assert str(error).endswith(".")


@pytest.mark.parametrize("size", [0x7B20, 0x7B09, 123])
def test_a_length_that_looks_like_the_beginning_of_json(size: int):
    text = json.dumps({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}).encode().ljust(size)
    assert read_safetensors(size.to_bytes(8, "little") + text).bytes == 1


METADATA = {f"llama.{key}": 64 for key in [*FIELDS, *LATENT, "attention.key_length_mla", "attention.value_length"]}


@given(
    st.sampled_from([*ARCHITECTURES, *JUNK]),
    st.dictionaries(st.sampled_from(list(METADATA)), st.sampled_from([*JUNK, 1, 2, 64, 128]), max_size=8),
)
@settings(max_examples=200)
def test_any_metadata_is_a_model_or_a_sentence(name, changes):
    found = {key.replace("llama", str(name)): value for key, value in (METADATA | changes).items()}
    checkpoint = Checkpoint(tensors={"token_embd.weight": StoredTensor("F16", (320, 64), 40_960)})
    header = GGUF.model_construct(metadata=found | {"general.architecture": name}, checkpoint=checkpoint)
    try:
        assert Architecture.from_config(config_of(header.metadata, header.checkpoint.shapes)).parameters().total > 0
    except ConfigError as error:
        assert str(error).endswith(".")


@given(st.binary(max_size=300))
def test_random_bytes_are_a_table_or_a_sentence(data: bytes):
    for read in (read_safetensors, read_gguf, lambda tail: read_gguf(b"GGUF\x03\0\0\0" + tail)):
        try:
            read(data)
        except ConfigError as error:
            assert str(error)


def stored(model: str, dtype: str = "BF16", bits: int = 16) -> dict[str, StoredTensor]:
    """A checkpoint that holds exactly what we list."""
    tensors = Architecture.from_config(models()[model].config).tensors()
    return {name: StoredTensor(dtype, t.shape, t.numel * bits // 8) for t in tensors for name in t.names()}


def auxiliary(model: str, tensors: dict[str, StoredTensor]):
    return compare(Architecture.from_config(models()[model].config), Checkpoint(tensors=tensors))


def test_equal_lists():
    found = auxiliary("Qwen/Qwen2.5-0.5B", stored("Qwen/Qwen2.5-0.5B"))
    assert (found.ours, found.theirs, found.difference, found.matched) == (494_032_768, 494_032_768, 0, 290)
    assert found.differences == ()


def test_missing_extra_and_other_shapes_are_named_and_gathered():
    tensors = stored("Qwen/Qwen2.5-0.5B")
    for layer in range(24):
        del tensors[f"model.layers.{layer}.self_attn.q_proj.bias"]
    tensors["model.norm.weight"] = StoredTensor("BF16", (900,), 1800)
    tensors["visual.7.weight"] = StoredTensor("BF16", (3, 5), 30)
    found = auxiliary("Qwen/Qwen2.5-0.5B", tensors)
    assert {(d.status, d.name, d.count, d.parameters) for d in found.differences} == {
        ("missing", "model.layers.*.self_attn.q_proj.bias", 24, -24 * 896),
        ("other shape", "model.norm.weight", 1, 4),
        ("extra", "visual.*.weight", 1, 15),
    }
    assert found.difference == -24 * 896 + 4 + 15


def test_a_tied_head_that_is_stored_counts_once():
    tensors = stored("Qwen/Qwen2.5-0.5B")
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    found = auxiliary("Qwen/Qwen2.5-0.5B", tensors)
    assert (found.difference, found.tied, found.differences) == (0, 1, ())


@pytest.mark.parametrize("prefix", ["language_model.", "base_model.model.", "model.language_model."])
def test_a_prefix_of_a_wrapper_does_not_hide_a_match(prefix: str):
    own = "model." if prefix == "model.language_model." else ""
    tensors = {prefix + name.removeprefix(own): t for name, t in stored("Qwen/Qwen2.5-0.5B").items()}
    assert auxiliary("Qwen/Qwen2.5-0.5B", tensors).differences == ()


PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def gptq(rows: int, columns: int) -> dict[str, StoredTensor]:
    """AutoGPTQ's tensors of one linear layer in four bits, groups of 128."""
    groups = columns // 128
    return {
        ".qweight": StoredTensor("I32", (columns // 8, rows), columns * rows // 2),
        ".qzeros": StoredTensor("I32", (groups, rows // 8), groups * rows // 2),
        ".scales": StoredTensor("F16", (groups, rows), groups * rows * 2),
        ".g_idx": StoredTensor("I32", (columns,), columns * 4),
    }


def packed(rows: int, columns: int) -> dict[str, StoredTensor]:
    """compressed-tensors' of the same."""
    return {
        ".weight_packed": StoredTensor("I32", (rows, columns // 8), rows * columns // 2),
        ".weight_scale": StoredTensor("BF16", (rows, columns // 128), rows * columns // 64),
        ".weight_shape": StoredTensor("I64", (2,), 16),
    }


def nf4(rows: int, columns: int) -> dict[str, StoredTensor]:
    """bitsandbytes' of the same, with double quantization."""
    half = rows * columns // 2
    return {
        ".weight": StoredTensor("U8", (half, 1), half),
        ".weight.absmax": StoredTensor("U8", (half // 32,), half // 32),
        ".weight.quant_map": StoredTensor("F32", (16,), 64),
        ".weight.nested_absmax": StoredTensor("F32", (half // 8192,), half // 2048),
        ".weight.nested_quant_map": StoredTensor("F32", (256,), 1024),
        ".weight.quant_state.bitsandbytes__nf4": StoredTensor("U8", (100,), 100),
    }


def fp8(rows: int, columns: int) -> dict[str, StoredTensor]:
    """DeepSeek's, with a scale for each 128 x 128 block."""
    return {
        ".weight": StoredTensor("F8_E4M3", (rows, columns), rows * columns),
        ".weight_scale_inv": StoredTensor("F32", (rows // 128, columns // 128), rows * columns // 4096),
    }


@pytest.mark.parametrize("form", [gptq, packed, nf4, fp8], ids=lambda form: form.__name__)
def test_quantized_checkpoints_match_with_their_scales_aside(form):
    tensors = stored("Qwen/Qwen2.5-3B")
    for name in [name for name in tensors if name.endswith(tuple(f"{p}.weight" for p in PROJECTIONS))]:
        for ending, part in form(*tensors.pop(name).shape).items():
            tensors[name.removesuffix(".weight") + ending] = part
    found = auxiliary("Qwen/Qwen2.5-3B", tensors)
    assert (found.difference, found.differences) == (0, ())
    assert found.packed == (0 if form is fp8 else 36 * 7)
    assert found.auxiliary == 36 * 7 * (len(form(128, 128)) - 1)


def test_gpt_oss_as_it_is_published():
    """MXFP4: sixteen bytes hold 32 weights, one more byte their scale."""
    tensors = stored("openai/gpt-oss-20b")
    for name in [name for name in tensors if name.endswith(("gate_up_proj", "down_proj"))]:
        experts, rows, columns = tensors.pop(name).shape
        weights = experts * rows * columns
        tensors[f"{name}_blocks"] = StoredTensor("U8", (experts, columns, rows // 32, 16), weights // 2)
        tensors[f"{name}_scales"] = StoredTensor("U8", (experts, columns, rows // 32), weights // 32)
    found = auxiliary("openai/gpt-oss-20b", tensors)
    assert (found.difference, found.packed, found.auxiliary, found.differences) == (0, 48, 48, ())


def test_an_index_is_compared_by_its_names():
    names = dict.fromkeys(stored("Qwen/Qwen2.5-0.5B"), "model.safetensors")
    table = read_safetensors(json.dumps({"metadata": {"total_size": 988_065_536}, "weight_map": names}).encode())
    found = compare(Architecture.from_config(models()["Qwen/Qwen2.5-0.5B"].config), table)
    assert (found.matched, found.differences) == (290, ())
