"""Bytes: formats, cache, what a GPU holds. Outside numbers first, then laws."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calc import ConfigError, Layout, Overhead, Precision, Workload, report
from calc.formats import FORMATS, WEIGHT_FORMATS, native_weights
from calc.formats.format_names import MLX_FORMATS
from calc.hardware.division import divides
from calc.model.tensor import Tensor
from calc.serving.engines import ENGINES
from calc.serving.engines.vllm.engine import VLLM
from calc.serving.engines.vllm.options import VLLMOptions
from calc.serving.memory import Serving
from presets import gpus, models
from tests import CHECKPOINT_ENGINES
from tests.cases import in_one_test
from tests.structures import architectures, generating, served_by, staged

ARCHITECTURES = architectures()
SMALL = st.sampled_from([name for name in generating() if ARCHITECTURES[name].parameters().total < 40e9])
NAMES = st.sampled_from(CHECKPOINT_ENGINES)


def serving(model, engine="vllm", weights="bf16", options=(), **layout):
    """On one stage where the engine's class of the model takes no more."""
    kind = ENGINES[engine]
    one, precision = kind(kind.options_type(**dict(options))), Precision(weights=weights)
    taken = staged(one, ARCHITECTURES[model], precision, Layout(**layout))
    return Serving.of(ARCHITECTURES[model], one, precision, taken, Overhead())


@pytest.mark.parametrize(
    ("name", "bytes_a_weight"),
    [
        pytest.param("fp8", 1 + 4 / 16384, id="fp8 128x128: DeepSeek-V3 weight_scale_inv"),
        pytest.param("int4", 0.51953125, id="GPTQ/AWQ group 128: (2 + 0.5) / 128 beside half a byte"),
        pytest.param("nf4", 0.5625, id="QLoRA without double quantization: 4 / 64"),
        pytest.param("mxfp4", 0.53125, id="OCP MX: 1 / 32"),
    ],
)
def test_bytes_a_weight(name, bytes_a_weight):
    assert FORMATS[name].nbytes((4096, 4096)) == bytes_a_weight * 4096 * 4096


def test_blocks_are_padded_up():
    """kv_a_proj_with_mqa of DeepSeek-V3's checkpoint: its scales are [5, 56]."""
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


def test_mxfp4_quantizes_experts_only():
    experts = 19_116_933_120 - 6_635_520  # gpt-oss-20b, without their biases
    other = 20_914_757_184 - experts
    assert serving("openai/gpt-oss-20b", weights="mxfp4").weights == experts * 17 // 32 + 2 * other


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


@given(SMALL, NAMES, st.integers(1, 500), st.integers(1, 200_000), st.integers(1, 8))
def test_the_parts_add_up_on_the_most_loaded_gpu(model, engine, batch, context, pp):
    one = serving(model, engine, pp=min(pp, ARCHITECTURES[model].num_layers))
    found = one.on(gpus()["h100-sxm"], Workload(batch=batch, context=context))
    for stage in found.stages:
        memory, sizes = stage.memory, stage.sizes.values()
        assert memory.total == memory.weights + memory.vision + memory.kv_cache + memory.activations + memory.overhead
        assert (memory.overhead_low, memory.overhead_high) == (sum(low for low, _ in sizes), sum(h for _, h in sizes))
        assert memory.low <= memory.total <= memory.high
        assert memory.activations == sum(stage.working.tensors.values())
    assert found.spare == min(map(found.spare_on_stage, range(len(found.stages))))
    assert found.usable == found.memory.total + found.spare <= found.gpu.usable_bytes


@given(SMALL, NAMES, st.integers(1, 500), st.integers(1, 200_000))
def test_more_never_costs_less(model, engine, batch, context):
    one, gpu = serving(model, engine), gpus()["h100-sxm"]

    def total(**change):
        return one.on(gpu, Workload(**{"batch": batch, "context": context} | change)).memory.total

    assert total() <= min(total(batch=batch + 1), total(context=context + 1))


@given(SMALL, st.integers(1, 100), st.integers(1024, 20_000), st.integers(1, 5000))
def test_transformers_flags_that_never_cost_more(model, batch, context, chunk):
    """At a handful of tokens, where scores are small, the copies that flash attention takes weigh more than they."""

    def total(**options):
        one = serving(model, "transformers", options=options)
        return one.on(gpus()["h100-sxm"], Workload(batch=batch, context=context)).memory.total

    assert total(attention="flash") <= total(attention="eager")
    assert total(prefill_chunk_size=chunk) <= total(prefill_chunk_size=2 * chunk) <= total()
    assert max(total(logits="last"), total(logits="all")) <= total(logits="all_fp32")


@in_one_test(("model", "engine"), served_by(CHECKPOINT_ENGINES))
def test_tensor_parallel_never_makes_a_rank_heavier(model, engine):
    one = serving(model, engine)
    layout_verdicts = [tp for tp in (1, 2, 4, 8) if divides(ARCHITECTURES[model], tp) and one.accepts(Layout(tp=tp))]
    weights = [one.with_layout(Layout(tp=tp)).weights for tp in layout_verdicts]
    assert weights == sorted(weights, reverse=True)
    assert all(tp * rank >= weights[0] for tp, rank in zip(layout_verdicts, weights, strict=True))


@pytest.mark.parametrize(("tp", "nearest"), [(3, (2, 4)), (5, (4, 8)), (48, (16,))])
def test_what_does_not_divide_is_refused_with_what_does(tp, nearest):
    """Qwen2.5-3B: 16 query heads, 11,008 columns."""
    with pytest.raises(ConfigError, match=f"tp is {tp}, which does not divide") as error:
        serving("Qwen/Qwen2.5-3B", tp=tp)
    assert (error.value.field, error.value.nearest) == ("tp", nearest)


@in_one_test("weights", [name for name in WEIGHT_FORMATS if name not in MLX_FORMATS])
def test_16_bits_are_the_most_but_fp32(weights):
    nbytes, plain = (serving("Qwen/Qwen2.5-3B", weights=name).weights for name in (weights, "bf16"))
    assert plain == 2 * ARCHITECTURES["Qwen/Qwen2.5-3B"].parameters().total
    assert nbytes == 2 * plain if weights == "fp32" else nbytes <= plain


def test_a_vision_encoder_is_loaded_unless_one_leaves_it_out():
    """google/gemma-3-4b-it: 419,816,304 parameters of encoder and projector, by transformers on the meta device."""
    config = models()["google/gemma-3-4b-it"].config
    whole = report(config, gpus=[])
    text = report(config, engine=VLLM(VLLMOptions(language_model_only=True)), gpus=[])
    assert (whole.memory.vision, text.memory.vision) == (2 * 419_816_304, 0)
    assert whole.memory.weights == text.memory.weights == 2 * whole.parameters.total
    assert "vision" not in text.memory.model_dump()
    assert any("left out" in str(sentence) for sentence in text.assumptions)


def test_a_cache_in_another_format_is_refused_where_there_is_nothing_for_it():
    with pytest.raises(ConfigError, match="stores the latent of MLA") as error:
        report(models()["Qwen/Qwen2.5-3B"].config, precision=Precision(kv="fp8_ds_mla"), gpus=[])
    assert (error.value.field, error.value.nearest) == ("kv", ("fp8",))
