"""Servers on the same GPUs: each has the least share that does; what earlier ones take is not free for later ones."""

import pytest

from calc import ConfigError, Layout, Workload, report
from calc.hardware.gpus import gpus
from calc.serving.engines import ENGINES
from calc.serving.shared_gpus import MOST_MODELS, Neighbour, Server, share_gpus
from presets import models

H100, RTX_4090 = gpus()["h100-sxm"], gpus()["rtx-4090"]
CHAT, EMBEDDER, RERANKER = "Qwen/Qwen3-8B", "BAAI/bge-m3", "Qwen/Qwen3-Reranker-0.6B"


def server(name, batch=1, context=8192, engine="vllm", **options):
    started = ENGINES[engine]().with_options(**options)
    return Server(name, models()[name].config, started, Workload(batch=batch, context=context))


def verdict(name, gpu, share, batch=1, context=8192, layout=None):
    """What Weigh says of the model alone with that share."""
    engine = ENGINES["vllm"]().with_options(gpu_memory_utilization=share)
    workload = Workload(batch=batch, context=context)
    found = report(models()[name].config, engine=engine, workload=workload, layout=layout or Layout(), gpus=[gpu])
    return found.verdicts[0]


@pytest.mark.parametrize("gpu", [H100, RTX_4090], ids=lambda gpu: gpu.id)
@pytest.mark.parametrize(("name", "batch"), [(CHAT, 1), (CHAT, 4), (RERANKER, 8)])
def test_the_least_share_does_and_a_hundredth_less_does_not(gpu, name, batch):
    (share,) = share_gpus([server(name, batch)], gpu).servers
    assert verdict(name, gpu, share.share, batch).verdict == "fits"
    assert verdict(name, gpu, round(share.share - 0.01, 2), batch).verdict != "fits"
    assert share.flags == (f"--gpu-memory-utilization {share.share}",)
    assert share.kv_cache >= verdict(name, gpu, share.share, batch).memory.kv_cache


@pytest.mark.parametrize("tp", [1, 2])
def test_parts_add_up_and_what_is_taken_is_not_free(tp):
    """A GPU's bytes are those of all servers and what is left, and each flag's share was free (`request_memory`)."""
    asked = [server(CHAT, 4), server(EMBEDDER), server(RERANKER, 4, 2048)]
    found = share_gpus(asked, H100, Layout(tp=tp))
    assert found.fits
    assert found.usable == sum(each.taken for each in found.servers) + found.left == H100.usable_bytes
    free = found.usable
    for each in found.servers:
        assert each.free == free
        assert each.share * found.usable <= free
        assert each.taken == each.weights + each.kv_cache + each.other
        free -= each.taken


def test_each_is_started_with_its_share_at_a_port_of_its_own():
    found = share_gpus([server(CHAT, 4), server(EMBEDDER, context=512)], H100, Layout(tp=2))
    chat, embedder = (each.launch.words for each in found.servers)
    assert chat[:5] == ("vllm", "serve", CHAT, "--tensor-parallel-size", "2")
    assert "--port" not in chat
    assert embedder[-4:] == ("--gpu-memory-utilization", str(found.servers[1].share), "--port", "8001")


@pytest.mark.parametrize("level", [1, 2])
def test_servers_that_take_turns(level):
    """One is awake, and the others keep graphs, libraries and their context: two of 15.3 GiB of weights go on 24 GB.
    At level 1 host memory has the weights of all but the smallest, which is awake when most of them wait."""
    asked = [server(CHAT), server("Qwen/Qwen3-4B")]
    found = share_gpus(asked, RTX_4090, sleep_level=level)
    assert found.fits
    assert not share_gpus(asked, RTX_4090).fits
    kept = [each.asleep for each in found.servers]
    for each in found.servers:
        assert each.free == RTX_4090.usable_bytes - sum(kept) + each.asleep
        assert each.share * found.usable <= each.free
        assert 0 < each.asleep < each.taken - each.weights
        assert "--enable-sleep-mode" in each.launch.words
    assert found.left == min(each.free - each.taken for each in found.servers)
    weights = sorted(each.weights for each in found.servers)
    assert found.host == (sum(weights[1:]) if level == 1 else 0)


def test_a_stated_cache_format_counts():
    both = (
        Server(CHAT, models()[CHAT].config, ENGINES["vllm"](), Workload(context=32768), None, kv)
        for kv in (None, "fp8")
    )
    whole, half = (share_gpus([one], H100).servers[0].share for one in both)
    assert half < whole


@pytest.mark.parametrize("text", ["BAAI/bge-m3", "BAAI/bge-m3,context=512,batch=8,weights=fp8"])
def test_what_is_written_is_read(text):
    assert Neighbour.read(text).written == text


def test_an_encoder_sets_nothing_aside():
    (share,) = share_gpus([server(EMBEDDER)], H100).servers
    assert (share.kv_cache, share.taken) == (0, verdict(EMBEDDER, H100, share.share).memory.high)


def test_who_comes_too_late_does_not_start():
    """Two of 15.3 GiB of weights do not go on 24 GB; the order says which one starts."""
    first, second = share_gpus([server(CHAT), server("Qwen/Qwen3-4B")], RTX_4090).servers
    assert (first.verdict, second.verdict, second.taken, second.share) == ("fits", "does not fit", 0, None)
    assert f"{second.free / 2**30:.2f} GiB are free" in str(second.reason)
    turned = share_gpus([server("Qwen/Qwen3-4B"), server(CHAT)], RTX_4090)
    assert [each.verdict for each in turned.servers] == ["fits", "does not fit"]
    assert not turned.fits


def test_what_no_share_holds_says_why():
    (share,) = share_gpus([server("Qwen/Qwen3-32B")], RTX_4090).servers
    assert (share.verdict, share.share) == ("does not fit", None)
    assert "needed before there is any cache" in str(share.reason)


@pytest.mark.parametrize(
    ("servers", "layout", "sentence"),
    [
        ([server(CHAT, engine="transformers")], Layout(), "under vLLM"),
        ([server(CHAT, engine="sglang")], Layout(), "under vLLM"),
        ([server(CHAT, version="0.7")], Layout(), "under vLLM"),
        ([server(CHAT, gpu_memory_utilization=0.5)], Layout(), "leave it out"),
        ([server(CHAT, kv_cache_memory_bytes=2**30)], Layout(), "fixed size"),
        ([server(CHAT)], Layout(pp=2), "tensor parallelism"),
        ([server(CHAT)], Layout(tp=5), "divide"),
        ([server(EMBEDDER)] * (MOST_MODELS + 1), Layout(), "models are more than"),
        ([server(EMBEDDER, context=9000)], Layout(), "learned positions"),
    ],
)
def test_what_is_not_covered_is_refused(servers, layout, sentence):
    with pytest.raises(ConfigError, match=sentence):
        share_gpus(servers, H100, layout)
