"""Bytes: formats, cache, activations, layouts. Outside numbers first, then laws."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calc import Architecture, ConfigError, Layout, Overhead, Precision, Range, Workload, report
from calc.formats import FORMATS, WEIGHT_FORMATS, native_weights
from calc.model.tensor import Tensor
from calc.serving.activations import prefill_bytes
from calc.serving.memory import Serving, weights_by_layer
from calc.units import GIB
from presets import gpus, models

ARCHITECTURES = {name: Architecture.from_config(preset.config) for name, preset in models().items()}
SOME = ["Qwen/Qwen2.5-3B", "deepseek-ai/DeepSeek-V2-Lite", "openai/gpt-oss-20b", "openai-community/gpt2"]


@pytest.mark.parametrize(
    ("name", "bytes_a_weight"),
    [
        pytest.param("fp8", 1 + 4 / 16384, id="fp8 128x128: DeepSeek-V3 weight_scale_inv"),
        pytest.param("int4", 0.51953125, id="GPTQ/AWQ group 128: (2 + 0.5) / 128 beside half a byte"),
        pytest.param("nf4", 0.5625, id="QLoRA without double quantisation: 4 / 64"),
        pytest.param("mxfp4", 0.53125, id="OCP MX: 1 / 32"),
    ],
)
def test_bytes_a_weight(name, bytes_a_weight):
    assert FORMATS[name].nbytes((4096, 4096)) == bytes_a_weight * 4096 * 4096


def test_blocks_are_padded_up():
    assert FORMATS["fp8"].nbytes((576, 7168)) == 576 * 7168 + 5 * 56 * 4


@pytest.mark.parametrize(
    ("component", "shape", "nbytes"),
    [
        ("embedding", (1000, 256), 512_000),
        ("lm_head", (1000, 256), 512_000),
        ("norms", (256,), 512),
        ("router", (8, 256), 4096),
        ("attention", (256, 256), 65_536 + 16),
        ("attention", (256,), 512),
    ],
)
def test_what_fp8_leaves_in_16_bits(component, shape, nbytes):
    tensor = Tensor("x.weight", shape, component)
    assert Precision(weights="fp8").scheme(experts=True).form(tensor, 0).nbytes(shape) == nbytes


def test_mxfp4_quantises_experts_only():
    experts = 19_116_933_120 - 6_635_520  # gpt-oss-20b, without their biases
    other = 20_914_757_184 - experts
    first, last, layers = weights_by_layer(ARCHITECTURES["openai/gpt-oss-20b"], Precision(weights="mxfp4"))
    assert first + last + sum(layers) == experts * 17 // 32 + 2 * other


@pytest.mark.parametrize(
    ("model", "fmt"),
    [
        ("deepseek-ai/DeepSeek-V3", "fp8"),
        ("openai/gpt-oss-120b", "mxfp4"),
        ("moonshotai/Kimi-K2.5", "int4"),
        ("Qwen/Qwen2.5-3B", "bf16"),
    ],
)
def test_native_format(model, fmt):
    assert native_weights(models()[model].config) == fmt


@pytest.mark.parametrize(
    ("model", "bytes_a_token"),
    [
        pytest.param("deepseek-ai/DeepSeek-V3", 70_272, id="DeepSeek-V3: 61 x 576 x 2"),
        pytest.param("Qwen/Qwen2.5-3B", 36_864, id="Qwen2.5-3B: 2 x 36 x 2 x 128 x 2"),
        pytest.param("meta-llama/Llama-3.1-8B", 131_072, id="Llama-3.1-8B: 128 KiB"),
        pytest.param("deepseek-ai/DeepSeek-V2-Lite", 31_104, id="V2-Lite: 27 x 576 x 2"),
    ],
)
def test_cache_of_a_token(model, bytes_a_token):
    assert report(models()[model].config, gpus=[]).kv_cache.bytes_per_token == bytes_a_token


def test_windows_stop_growing():
    cache = report(models()["mistralai/Mistral-7B-v0.1"].config, workload=Workload(context=32_768), gpus=[]).kv_cache
    assert (cache.bytes_per_token, cache.window_bytes) == (0, 4096 * 131_072)
    gemma = report(models()["google/gemma-3-27b-it"].config, workload=Workload(context=100), gpus=[]).kv_cache
    assert gemma.window_bytes == 100 * 52 * 2 * 16 * 128 * 2  # 52 of 62 layers slide, and the window is not full


@pytest.mark.parametrize(
    ("model", "tokens", "peak"),
    [  # transformers 5.23, every storage of a flash prefill tracked; above weights, without cache
        pytest.param("meta-llama/Llama-3.1-8B", 100, 11_930_400, id="llama-100"),
        pytest.param("meta-llama/Llama-3.1-8B", 2048, 244_334_592, id="llama-2048"),
    ],
)
def test_prefill_peak(model, tokens, peak):
    workload = Workload(batch=1, context=tokens, engine="transformers")
    assert prefill_bytes(ARCHITECTURES[model], workload, Precision()) == pytest.approx(peak, rel=0.005)


@pytest.mark.parametrize("model", SOME)
@given(batch=st.integers(1, 200), context=st.integers(1, 200_000))
@settings(max_examples=20)
def test_more_never_costs_less(model, batch, context):
    serving = Serving(ARCHITECTURES[model], Precision(), Layout(), Overhead())
    here = serving.memory(Workload(batch=batch, context=context)).total
    assert serving.memory(Workload(batch=batch + 1, context=context)).total >= here
    assert serving.memory(Workload(batch=batch, context=context + 1)).total >= here


@pytest.mark.parametrize("model", list(ARCHITECTURES))
def test_tensor_parallel_never_makes_a_rank_heavier(model):
    weights = []
    for tp in (1, 2, 4, 8):
        try:
            serving = Serving(ARCHITECTURES[model], Precision(), Layout(tp=tp), Overhead())
        except ConfigError as error:
            assert error.field == "tp"
            assert tp not in error.nearest
        else:
            weights.append((tp, serving.memory(Workload()).weights))
    assert weights == sorted(weights, key=lambda row: -row[1])
    whole = weights[0][1]
    assert all(tp * rank >= whole for tp, rank in weights)


@pytest.mark.parametrize("model", SOME)
def test_stages_hold_every_layer_once(model):
    architecture = ARCHITECTURES[model]
    for pp in (1, 2, 3, 5, architecture.num_layers):
        stages = list(Layout(pp=pp).stages(architecture.num_layers))
        assert [i for stage in stages for i in stage] == list(range(architecture.num_layers))
        assert max(map(len, stages)) - min(map(len, stages)) <= 1


@pytest.mark.parametrize("weights", WEIGHT_FORMATS)
def test_16_bits_are_the_most_but_fp32(weights):
    architecture = ARCHITECTURES["Qwen/Qwen2.5-3B"]
    nbytes = sum(
        map(sum, ([a, b, *rest] for a, b, rest in [weights_by_layer(architecture, Precision(weights=weights))]))
    )
    plain = 2 * architecture.parameters().total
    assert nbytes == 2 * plain if weights == "fp32" else nbytes <= plain


@pytest.mark.parametrize("model", [*SOME, "mistralai/Mistral-7B-v0.1", "meta-llama/Llama-3.1-70B"])
def test_what_the_solver_says_fits_fits_and_one_more_does_not(model):
    config = models()[model].config
    for verdict in report(config).verdicts:
        gpu = [gpus()[verdict.gpu]]

        def word(gpu=gpu, **workload):
            return report(config, workload=Workload(**workload), gpus=gpu).verdicts[0].verdict

        assert (verdict.verdict == "fits") == (verdict.min_gpus == 1)
        if verdict.max_context:
            assert word(context=verdict.max_context) == "fits"
            assert word(context=verdict.max_context + 1) != "fits"
        elif verdict.max_context == 0:
            assert word(context=1) != "fits"
        if verdict.max_batch:
            assert word(batch=verdict.max_batch) == "fits"
            assert word(batch=verdict.max_batch + 1) != "fits"
        else:
            assert verdict.verdict != "fits"


def test_fewest_gpus_is_the_fewest():
    config, gpu = models()["meta-llama/Llama-3.1-70B"].config, gpus()["a100-sxm-40gb"]
    fewest = report(config, gpus=[gpu]).verdicts[0].min_gpus

    def fits(gpus_):
        layouts = [Layout(tp=tp, pp=gpus_ // tp) for tp in (1, 2, 4, 8) if gpus_ % tp == 0]
        return any(report(config, layout=layout, gpus=[gpu]).verdicts[0].verdict == "fits" for layout in layouts)

    assert fits(fewest)
    assert not any(fits(n) for n in range(1, fewest))


def test_mistral_on_a_v100_hangs_on_the_overhead():
    config, gpu = models()["mistralai/Mistral-7B-v0.1"].config, gpus()["v100-sxm2-16gb"]
    precision = Precision(weights="fp16")
    (verdict,) = report(config, precision=precision, gpus=[gpu]).verdicts
    assert verdict.verdict == "tight"
    little = Overhead(cuda_graphs=Range(low=0, high=0.1))
    (verdict,) = report(
        config, precision=precision, overhead=little, gpus=[gpu], workload=Workload(context=1024)
    ).verdicts
    assert verdict.verdict == "fits"


def test_memory_adds_up():
    memory = report(models()["Qwen/Qwen2.5-3B"].config, gpus=[]).memory
    assert memory.total == memory.weights + memory.kv_cache + memory.activations + memory.overhead
    assert memory.low <= memory.total <= memory.high
    assert memory.weights / GIB == pytest.approx(5.748, abs=0.001)
