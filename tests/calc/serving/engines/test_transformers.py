"""transformers' generate: working memory against tracked passes of its classes, and measured peaks."""

import pytest

from calc import ConfigError, Layout, Overhead, Precision, Workload, report
from calc.model.named import largest
from calc.serving.engines.transformers.engine import Transformers
from calc.serving.engines.transformers.options import TransformersOptions
from calc.serving.engines.transformers.working_memory import Pass, prefill_peaks
from calc.serving.memory import Serving
from calc.units import GIB
from presets import gpus, models
from tests import load
from tests.cases import in_one_test
from tests.structures import architectures

ARCHITECTURES = architectures()
PREFILL = load("prefill.json")


def allocation(model, workload, weights="bf16", layout=None, kv="bf16", **options):
    engine, precision = Transformers(TransformersOptions(**options)), Precision(weights=weights, kv=kv)
    serving = Serving.of(ARCHITECTURES[model], engine, precision, layout or Layout(), Overhead())
    return serving.on(gpus()["h100-sxm"], workload)


def passes(model, workload, **options):
    """Memory at the peaks of the prompts' pass, and of the last token's where one is generated."""
    found = allocation(model, workload, **options)
    return found.serving.engine.passes(found.requirements.setup, 0, found.workload)


def working_memory(model, **asked):
    """Bytes of cache and activations, as a report gives them."""
    workload = {name: asked.pop(name) for name in ("batch", "context") if name in asked}
    memory = allocation(model, Workload(**workload), **asked).memory
    return memory.kv_cache + memory.activations


def uncached(model, context, attention, batch=1, logits="last"):
    """The same of a pass that keeps nothing."""
    architecture = ARCHITECTURES[model]
    prompt = Pass(batch, context, batch * context, width=2, attention=attention, logits=logits, cached=False)
    return largest(prefill_peaks(architecture.all_blocks, architecture, prompt)).bytes


def windows(model):
    return {mixer.window for block in ARCHITECTURES[model].blocks for mixer in block.mixers}


def ours(row):
    weigh = working_memory if row["cached"] else uncached
    asked = {"batch": row["batch"], "context": row["seq"], "attention": row["attention"], "logits": row["logits"]}
    return weigh(row["model"], **asked)


def rows(exact):
    """Experts and Gemma's cached pass hold a few small tensors more."""
    return [
        pytest.param(
            row, id="-".join(str(row[key]) for key in ("model", "attention", "batch", "seq", "logits", "cached"))
        )
        for row in PREFILL
        if exact == (row["model"] in EXACT and not (row["model"].startswith("google") and row["cached"]))
    ]


EXACT = {
    "google/gemma-2-9b",
    "meta-llama/Llama-3.1-8B",
    "openai-community/gpt2-xl",
    "Qwen/Qwen2.5-14B",
    "Qwen/Qwen2.5-7B",
    "Qwen/Qwen3-8B",
}


@in_one_test("row", rows(exact=True))
def test_prefill_peak(row):
    """transformers 5.23, every storage of the full-size pass tracked."""
    assert ours(row) == row["peak"]


@in_one_test("row", rows(exact=False))
def test_prefill_peak_with_experts(row):
    assert ours(row) == pytest.approx(row["peak"], rel=0.001)


@pytest.mark.parametrize(
    ("model", "attention", "plain", "cached"),
    [  # python -m benchmarks.oracle.track MODEL ATTENTION 2048, and the same with `cached`, by transformers 5.23
        pytest.param(
            "meta-llama/Llama-4-Scout-17B-16E-Instruct", "flash", 2_589_081_600, 2_991_735_072, id="all experts run"
        ),
        pytest.param("deepseek-ai/DeepSeek-R1", "flash", 1_530_087_424, 1_674_004_480, id="weights of experts in fp32"),
        pytest.param(
            "deepseek-ai/DeepSeek-V2-Lite",
            "flash",
            337_150_464,
            400_851_456,
            id="the same without a bias that balances",
        ),
        pytest.param(
            "microsoft/Phi-3-medium-4k-instruct", "flash", 378_552_320, 797_983_040, id="gate and up in one matrix"
        ),
        pytest.param("bigcode/starcoder2-3b", "flash", 152_059_904, 214_974_704, id="no gate, gelu in one kernel"),
        pytest.param("microsoft/phi-1_5", "flash", 168_050_688, 570_703_872, id="no gate, gelu in four"),
        pytest.param("openai/gpt-oss-120b", "flash", 520_111_104, 671_106_192, id="gate and up clamped"),
        pytest.param("google/gemma-2-27b", "eager", 1_483_751_424, 2_238_726_328, id="two masks"),
        pytest.param("Qwen/Qwen1.5-MoE-A2.7B", "flash", 177_799_648, 580_452_832, id="shared expert beside"),
    ],
)
def test_peaks_of_other_families(model, attention, plain, cached):
    assert uncached(model, context=2048, attention=attention) == pytest.approx(plain, rel=0.005)
    assert working_memory(model, context=2048, attention=attention) == pytest.approx(cached, rel=0.002)


@pytest.mark.parametrize(
    ("model", "attention", "plain", "cached"),
    [  # python -m benchmarks.oracle.track MODEL ATTENTION 2048, and the same with `cached`, by transformers 5.23
        pytest.param(
            "allenai/OLMo-2-1124-7B", "flash", 220_217_344, 1_261_453_312, id="norms behind, rotated in fp32, flash"
        ),
        pytest.param(
            "allenai/OLMo-2-1124-7B", "eager", 1_436_565_504, 2_476_752_896, id="norms behind, rotated in fp32, eager"
        ),
        pytest.param("allenai/Olmo-3-1025-7B", "flash", 222_314_496, 1_263_550_656, id="a table for windows, flash"),
        pytest.param("allenai/Olmo-3-1025-7B", "eager", 1_447_051_264, 2_487_238_848, id="a table for windows, eager"),
        pytest.param(
            "CohereLabs/c4ai-command-r7b-12-2024", "flash", 244_334_592, 512_770_240, id="windows of Cohere 2, flash"
        ),
        pytest.param(
            "CohereLabs/c4ai-command-r7b-12-2024",
            "eager",
            1_469_071_360,
            1_729_118_400,
            id="windows of Cohere 2, eager",
        ),
        pytest.param(
            "stabilityai/stablelm-2-1_6b", "flash", 119_685_120, 522_338_304, id="one residual after the other, flash"
        ),
        pytest.param(
            "stabilityai/stablelm-2-1_6b",
            "eager",
            1_422_016_512,
            1_807_892_480,
            id="one residual after the other, eager",
        ),
        pytest.param(
            "stabilityai/stablelm-2-12b", "flash", 254_099_456, 673_529_856, id="a quarter of each head rotated, flash"
        ),
        pytest.param(
            "stabilityai/stablelm-2-12b",
            "eager",
            1_519_992_832,
            1_928_937_472,
            id="a quarter of each head rotated, eager",
        ),
        pytest.param("baidu/ERNIE-4.5-0.3B-PT", "flash", 77_611_008, 113_262_592, id="tables spread over pairs, flash"),
        pytest.param(
            "baidu/ERNIE-4.5-0.3B-PT", "eager", 721_436_672, 757_088_256, id="tables spread over pairs, eager"
        ),
        pytest.param(
            "allenai/OLMo-2-0325-32B", "flash", 404_766_720, 941_637_632, id="norms behind the feed-forward, flash"
        ),
        pytest.param(
            "allenai/OLMo-2-0325-32B", "eager", 1_801_469_952, 2_329_952_256, id="norms behind the feed-forward, eager"
        ),
        pytest.param("CohereLabs/aya-23-8B", "flash", 244_334_592, 512_770_048, id="the same with fewer keys, flash"),
        pytest.param(
            "CohereLabs/aya-23-8B", "eager", 1_460_682_752, 1_720_729_600, id="the same with fewer keys, eager"
        ),
        pytest.param(
            "CohereLabs/c4ai-command-r-v01",
            "flash",
            605_044_736,
            3_222_290_432,
            id="copies in fp32 before rotation, flash",
        ),
        pytest.param(
            "CohereLabs/c4ai-command-r-v01",
            "eager",
            2_895_134_720,
            5_512_380_416,
            id="copies in fp32 before rotation, eager",
        ),
        pytest.param("google/gemma-3-4b-it", "flash", 171_982_848, 457_195_752, id="tables of two bases, flash"),
        pytest.param("google/gemma-3-4b-it", "eager", 421_543_936, 698_368_232, id="tables of two bases, eager"),
        pytest.param("allenai/OLMo-1B-hf", "flash", 136_331_264, 404_766_720, id="tables in fp32, flash"),
        pytest.param("allenai/OLMo-1B-hf", "eager", 731_922_432, 983_580_672, id="tables in fp32, eager"),
    ],
)
def test_peaks_of_other_dense_families(model, attention, plain, cached):
    """A cache with windows holds a few numbers beside."""
    assert uncached(model, context=2048, attention=attention) == plain
    few = 256 if None in windows(model) and len(windows(model)) > 1 else 0
    assert 0 <= cached - working_memory(model, context=2048, attention=attention) <= few


def next_token(model, batch=1, **asked):
    """Memory at the peaks of the pass over one more token."""
    workload = Workload(batch=batch, context=asked.pop("context"), generated=1)
    return passes(model, workload, **asked)[1]


@pytest.mark.parametrize(
    "row", [pytest.param(row, id="{model} {attention} {batch} {past}".format(**row)) for row in load("decode.json")]
)
def test_decode_peak(row):
    """Every storage of the full-size pass tracked; beside what is counted lie the states of one token."""
    peaks = next_token(row["model"], row["batch"], context=row["past"] + 1, attention=row["attention"])
    assert {peak.cache for peak in peaks} == {row["kv"]}
    assert max(peak.bytes for peak in peaks) == pytest.approx(row["peak"], rel=0.002)


@pytest.mark.parametrize(
    ("model", "attention", "peak"),
    [  # python -m benchmarks.oracle.track MODEL ATTENTION 2048 decode, by transformers 5.23
        ("deepseek-ai/DeepSeek-V2", "flash", 335_936_904),
        ("deepseek-ai/DeepSeek-V2", "eager", 237_769_354),
        ("deepseek-ai/DeepSeek-V2-Lite", "flash", 42_001_800),
        ("deepseek-ai/DeepSeek-V2-Lite", "eager", 29_734_442),
    ],
)
def test_decode_expands_latents(model, attention, peak):
    """Beside keys and values of every head lie a few states of one token."""
    peaks = next_token(model, context=2049, attention=attention)
    assert largest(peak.working for peak in peaks).bytes == pytest.approx(peak, rel=0.002)


@pytest.mark.parametrize(
    ("model", "attention", "past", "peak"),
    [  # python -m benchmarks.oracle.track MODEL ATTENTION PAST decode fp8, by transformers 5.23
        ("Qwen/Qwen3-8B", "flash", 2048, 25_215_496),
        ("Qwen/Qwen3-8B", "flash", 8192, 100_712_968),
        ("meta-llama/Llama-2-7b-hf", "flash", 2048, 100_762_120),
        ("deepseek-ai/DeepSeek-V2-Lite", "flash", 2048, 44_362_248),
        pytest.param("Qwen/Qwen3-8B", "eager", 2048, 42_656_586, id="and scores of one token, 0.7 MB"),
    ],
)
def test_a_cache_in_fp8_is_read_back_whole(model, attention, past, peak):
    """`Fp8QuantizedLayer.update` of transformers 5.23: a byte an element, read back for each token by way of fp32; the
    tracked pass makes no choice of a token."""
    peaks = next_token(model, context=past + 1, attention=attention, kv="fp8")
    layers = [peak.working.tensors for peak in peaks if str(peak.working.what) != "the logits of a token"]
    without_choice = [sum(size for name, size in tensors.items() if "logits" not in name) for tensors in layers]
    assert max(without_choice) == pytest.approx(peak, rel=0.002, abs=7e5 if attention == "eager" else 0)


@pytest.mark.parametrize(
    ("model", "kv", "sentence"),
    [
        pytest.param("Qwen/Qwen3-8B", "q8_0", "q8_0 is a cache format of llama.cpp", id="llama.cpp's"),
        pytest.param("Qwen/Qwen3-8B", "q4_0", "q4_0 is a cache format of llama.cpp", id="llama.cpp's, of 4 bits"),
        pytest.param("Qwen/Qwen3-8B", "int4", "by HQQ or quanto", id="quanto's"),
        pytest.param("Qwen/Qwen3-8B", "int8", "by HQQ or quanto", id="HQQ's"),
        pytest.param("google/gemma-3-27b-it", "fp8", "full attention", id="windows"),
        pytest.param("Qwen/Qwen3-Next-80B-A3B-Instruct", "fp8", "full attention", id="states"),
    ],
)
def test_caches_that_it_does_not_keep(model, kv, sentence):
    """`QuantizedCache` of transformers 5.23: backends quanto, hqq and fp8, for layers of full attention alone."""
    with pytest.raises(ConfigError, match=sentence):
        report(models()[model].config, engine=Transformers(), precision=Precision(kv=kv), gpus=[])


def test_a_cache_in_fp8_is_known_since_a_version():
    """5.19 has no class for it."""
    engine = Transformers(TransformersOptions(version="5.19"))
    with pytest.raises(ConfigError, match=r"since 5\.23"):
        report(models()["Qwen/Qwen3-8B"].config, engine=engine, precision=Precision(kv="fp8"), gpus=[])


@pytest.mark.parametrize(
    ("model", "batch", "peak"),
    [  # python -m benchmarks.oracle.track logits VOCABULARY BATCH, by transformers 5.23
        pytest.param("meta-llama/Llama-3.1-8B", 16, 12_317_728, id="128,256 rows"),
        pytest.param("google/gemma-3-27b-it", 8, 12_588_568, id="262,208 rows"),
    ],
)
def test_logits(model, batch, peak):
    """Beside them lie a few states of the narrow model."""
    peaks = passes(model, Workload(batch=batch))[0]
    (logits,) = (peak.working for peak in peaks if str(peak.working.what) == "the logits of a token")
    assert logits.bytes == pytest.approx(peak, rel=0.0005)


@pytest.mark.parametrize(
    ("workload", "chunk", "tokens"),
    [  # the prompts pass whole, or in chunks
        (Workload(batch=4, context=32_768), None, 131_072),
        (Workload(batch=4, context=32_768, generated=768), None, 128_000),
        (Workload(batch=4, context=32_768), 2048, 2048),
        (Workload(batch=1, context=100), 2048, 100),
    ],
)
def test_tokens_of_the_largest_pass(workload, chunk, tokens):
    assert allocation("Qwen/Qwen2.5-3B", workload, prefill_chunk_size=chunk).limits.step_tokens == tokens


def test_it_captures_no_graphs():
    """What else is beside PyTorch has the ranges that logs of vLLM show: test_vllm.py."""
    found = allocation("Qwen/Qwen2.5-3B", Workload()).stages[0].sizes
    assert found.keys() == {"cuda_context", "libraries", "fragmentation"}
    assert 0 < found["cuda_context"][0] < found["cuda_context"][1]


def test_fragmentation_is_a_share_of_what_is_held():
    """0.4 to 2 %."""
    found = allocation("Qwen/Qwen2.5-3B", Workload())
    memory, (least, most) = found.memory, found.stages[0].sizes["fragmentation"]
    held = memory.weights + memory.kv_cache + memory.activations
    assert (least, most) == (round(held * 0.004), round(held * 0.02))


def test_qwen3_study_at_a_hundred_tokens():
    """Measured on a V100-32GB: 14.88 GiB with the weights loaded, 14.95 at most with 100 tokens, where the peak that
    PyTorch reports leaves the CUDA context out."""
    memory = allocation("study/Qwen3-8B-MHA", Workload(context=100)).memory
    assert (memory.weights + memory.kv_cache + memory.activations) / GIB == pytest.approx(14.45, abs=0.01)
    assert memory.low / GIB < 14.95 < memory.high / GIB


@pytest.mark.parametrize(
    ("version", "tables", "logits"),
    [  # https://github.com/huggingface/transformers/releases: v4.45, v4.46
        pytest.param(None, 0, "last", id="5.23"),
        pytest.param("4.45.2", 32 * 4 * 131_072 * 128, "last", id="tables of each layer, in fp32"),
        pytest.param("4.44.2", 32 * 4 * 131_072 * 128, "all_fp32", id="logits of all tokens, with an fp32 copy"),
    ],
)
def test_habits_of_versions(version, tables, logits):
    """Llama 3.1 8B: 32 layers, 131,072 positions, 128 columns a head."""
    old = passes("meta-llama/Llama-3.1-8B", Workload(context=4096), version=version, logits="last")
    new = passes("meta-llama/Llama-3.1-8B", Workload(context=4096), logits="last")
    assert [a.bytes - b.bytes for a, b in zip(old[0], new[0], strict=True)] == [tables] * len(new[0])
    assert TransformersOptions(version=version).rows_of_logits == logits


@pytest.mark.parametrize(
    ("layers", "pp", "stages"),
    [(61, 1, [61]), (61, 2, [30, 31]), (22, 4, [5, 6, 5, 6]), (5, 5, [1] * 5)],
)
def test_layers_of_each_gpu(layers, pp, stages):
    """Consecutive layers, as equal as can be: none more than one longer than another."""
    ranges = list(Transformers().stages(layers, pp))
    assert [len(stage) for stage in ranges] == stages
    assert [layer for stage in ranges for layer in stage] == list(range(layers))


@pytest.mark.parametrize(("rows", "tp", "share"), [(151_936, 1, 151_936), (151_936, 4, 37_984), (50_257, 4, 12_565)])
def test_the_vocabulary_is_divided_without_padding(rows, tp, share):
    """torch.distributed.tensor, `Shard`: chunks of ceil(rows / tp), of which the first rank has a whole one."""
    assert Transformers().vocabulary(rows, tp) == share
