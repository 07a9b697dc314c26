"""What weights take once an engine has loaded them: start-up logs, source code, and laws."""

from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import ValidationError

from calc import Architecture, ConfigError, Layout, Overhead, Precision, report
from calc.families.family_table import FAMILIES
from calc.formats import FORMATS
from calc.formats.format_names import MLX_FORMATS
from calc.hardware.division import divides
from calc.serving.engines import ENGINES
from calc.serving.engines.loading import cuda_bytes
from calc.serving.engines.rules import Question
from calc.serving.engines.sizes import LoadedWeights
from calc.serving.engines.vllm.options import VLLMOptions
from calc.serving.memory import Serving
from calc.units import GIB, MIB
from presets import gpus, models
from tests import CHECKPOINT_ENGINES
from tests.cases import in_one_test
from tests.structures import architectures, generating, staged

LOGS = "github.com/vllm-project/vllm/issues"
READ = [name for name in FORMATS if name not in MLX_FORMATS]
"""Formats that not MLX alone reads."""
ARCHITECTURES = architectures()


def loaded(model, weights="bf16", engine="vllm", changes=(), options=(), **layout):
    """What a rank of each stage holds; vLLM leaves the vision encoder out unless an option says otherwise."""
    config = models()[model].config | dict(changes)
    return loaded_as(config, Precision(weights=weights), engine, options, **layout)


def loaded_as(config, precision, engine="vllm", options=(), **layout):
    kind = ENGINES[engine]
    flags = ({"language_model_only": True} if engine == "vllm" else {}) | dict(options)
    one = kind(kind.options_type(**flags))
    serving = Serving.of(Architecture.from_config(config), one, precision, Layout(**layout), Overhead())
    return [stage.loaded for stage in serving.laid_out.stages]


@pytest.mark.parametrize(
    ("model", "weights", "changes", "tp", "gib"),
    [  # "Loading model weights took" of one rank, to its last digit
        pytest.param("meta-llama/Llama-3.1-8B", "bf16", {}, 1, 14.9888, id=f"Llama-3.1-8B: {LOGS}/16141"),
        pytest.param("Qwen/Qwen3-8B", "bf16", {}, 1, 15.2683, id="Qwen3-8B on an A100-40"),
        pytest.param(
            "Qwen/Qwen2.5-7B", "bf16", {"max_position_embeddings": 32_768}, 2, 7.1217, id=f"Qwen2-7B: {LOGS}/17395"
        ),
        pytest.param(
            "Qwen/Qwen2.5-32B", "bf16", {"max_position_embeddings": 32_768}, 1, 61.0374, id="Qwen2.5-32B or QwQ-32B"
        ),
        pytest.param("mistralai/Mixtral-8x22B-v0.1", "bf16", {}, 8, 32.7642, id=f"Mixtral-8x22B: {LOGS}/4344"),
        pytest.param("Qwen/Qwen3-30B-A3B", "fp8-tensor", {}, 2, 14.53, id=f"Qwen3-30B-A3B, fp8 online: {LOGS}/39682"),
        pytest.param("openai/gpt-oss-120b", "mxfp4", {}, 1, 65.9651, id=f"gpt-oss-120b on Marlin: {LOGS}/23278"),
    ],
)
def test_weights_of_a_rank_as_logged(model, weights, changes, tp, gib):
    (held,) = loaded(model, weights, changes=changes, tp=tp)
    assert held.total / GIB == pytest.approx(gib, rel=5e-4)


@pytest.mark.parametrize(
    ("version", "gib", "off"),
    [
        pytest.param("0.14.1", 64.38, 0.005, id=f"scales twice: {LOGS}/33155"),
        pytest.param("0.25.1", 61.29, 0.3, id="once, public record 68290709404 of a file index"),
    ],
)
def test_gpt_oss_on_triton_as_logged(version, gib, off):
    """gpt-oss-120b on one H100."""
    (held,) = loaded("openai/gpt-oss-120b", "mxfp4", options={"mxfp4_kernel": "triton", "version": version})
    assert held.total / GIB == pytest.approx(gib, abs=off)


@pytest.mark.parametrize(
    ("model", "gpu", "options", "kernel"),
    [  # get_mxfp4_backend of 0.12, select_gpt_oss_mxfp4_moe_backend of 0.25
        ("openai/gpt-oss-120b", "h100-sxm", {}, "triton"),
        ("openai/gpt-oss-20b", "h200-sxm", {}, "triton"),
        ("openai/gpt-oss-120b", "h100-sxm", {"version": "0.11.0"}, None),
        ("openai/gpt-oss-120b", "h100-sxm", {"enable_lora": True}, None),
        ("openai/gpt-oss-120b", "a100-sxm-80gb", {}, None),
        ("openai/gpt-oss-120b", "h100-sxm", {"mxfp4_kernel": "marlin"}, "marlin"),
        ("deepseek-ai/DeepSeek-V4-Flash", "h200-sxm", {}, None),
    ],
)
def test_the_kernel_of_experts_on_a_gpu(model, gpu, options, kernel):
    engine = ENGINES["vllm"](VLLMOptions(**options))
    assert engine.for_gpu(gpus()[gpu], ARCHITECTURES[model]).options.mxfp4_kernel == kernel


def test_gemma_with_its_vision_encoder_as_logged():
    """Gemma 3 27B on four GPUs, vLLM 0.8.2: 13.1665 GiB, github.com/vllm-project/vllm/issues/15676."""
    (held,) = loaded("google/gemma-3-27b-it", options={"language_model_only": False}, tp=4)
    assert held.total / GIB == pytest.approx(13.1665, rel=0.002)
    (without,) = loaded("google/gemma-3-27b-it", tp=4)
    assert replace(held, vision=0) == without


def test_gemma_4_as_logged():
    """Keys that are values have both places in `QKVParallelLinear`. vLLM 0.20 of 26B-A4B (github.com/jethac/
    dgx-spark-hijinks), and of NVIDIA's 31B in NVFP4 (robotmunki.com/pages/vllm-startup-log-annotated.html), whose
    attention is in 16 bits (huggingface.co/LilaRest/gemma-4-31B-it-NVFP4-turbo); there the whole in 16 bits is 58.9."""
    for model, gib in (("google/gemma-4-26B-A4B", 48.50), ("google/gemma-4-31B-it", 58.9)):
        (rank,) = loaded(model, options={"language_model_only": False})
        assert rank.total / GIB == pytest.approx(gib, abs=0.012)
    quantization = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head", "*.self_attn*"]}
    config = models()["google/gemma-4-31B-it"].config | {"quantization_config": quantization}
    (rank,) = loaded_as(config, Precision.of(config), options={"language_model_only": False})
    assert rank.total / GIB == pytest.approx(31.18, rel=0.005)


def test_parts_of_a_rank():
    """Llama 3.1 8B: 8,030,261,248 parameters and a table of 131,072 x 128, all of sizes that need no rounding."""
    llama = "meta-llama/Llama-3.1-8B"
    assert loaded(llama) == [LoadedWeights(weights=2 * 8_030_261_248, rotary=2 * 131_072 * 128)]
    assert loaded(llama, engine="sglang") == loaded(llama)
    assert loaded(llama, engine="transformers") == [LoadedWeights(weights=2 * 8_030_261_248)]


@pytest.mark.parametrize(
    ("nbytes", "charged"),
    [  # c10/cuda/CUDACachingAllocator.cpp: kMinBlockSize 512 B, kMinLargeAlloc 10, kRoundLarge 2, kSmallSize 1 MiB
        (0, 0),
        (1, 512),
        (8192, 8192),
        (9 * MIB + 1, 9 * MIB + 512),
        (10 * MIB, 10 * MIB),
        (11 * MIB, 12 * MIB),
        (11 * MIB - 512, 11 * MIB - 512),
        (12 * MIB + 512, 12 * MIB + 512),
        (129 * MIB + 1, 130 * MIB),
    ],
)
def test_what_the_allocator_charges(nbytes, charged):
    assert cuda_bytes(nbytes) == charged


@pytest.mark.parametrize(
    ("model", "tables"),
    [  # vLLM `rotary_embedding/`: a row a position, a cosine and a sine for each pair of rotated columns
        pytest.param("meta-llama/Llama-3.1-8B", [(131_072, 128)], id="whole heads"),
        pytest.param("deepseek-ai/DeepSeek-V3", [(163_840, 64)], id="the rotary part of latent attention"),
        pytest.param(
            "google/gemma-3-27b-it", [(8 * 131_072, 128), (131_072, 128)], id="stretched 8 times, and windows"
        ),
        pytest.param("Qwen/Qwen3.5-27B", [(4 * 262_144, 64)], id="a quarter of heads of 256, in three axes"),
        pytest.param("zai-org/GLM-4-9B-0414", [(32_768, 64)], id="half of a head"),
        pytest.param("openai-community/gpt2", [], id="learned positions"),
        pytest.param("bigscience/bloom", [], id="alibi"),
        pytest.param("nvidia/Nemotron-H-8B-Base-8K", [], id="no positions"),
        pytest.param("ibm-granite/granite-4.0-h-small", [], id="nope"),  # "position_embedding_type": "nope"
    ],
)
def test_rotary_tables(model, tables):
    """In 16 bits, whole on each stage."""
    assert list(ARCHITECTURES[model].rotary) == tables
    nbytes = sum(2 * rows * columns for rows, columns in tables)
    assert [stage.rotary for stage in loaded(model, pp=2)] == [nbytes, nbytes]


def test_latent_attention_is_kept_twice():
    """vLLM's MLA: `kv_b_proj` once more in 16 bits where it is quantized, 512 x 32,768 in each of 61 layers."""
    (fp8,), (bf16,) = loaded("deepseek-ai/DeepSeek-V3", "fp8", tp=8), loaded("deepseek-ai/DeepSeek-V3", tp=8)
    assert (fp8.absorbed, bf16.absorbed) == (61 * 512 * 32_768 * 2 // 8, 0)


def test_double_quantization_is_undone():
    """vLLM's `bitsandbytes_loader.py`: an fp32 scale for 64 weights, where the checkpoint has 8 bits and one of fp32
    for 256 of them. Qwen2.5-3B: 2,774,532,096 quantized weights, all matrices of the layers."""
    matrices = 36 * (2048 * (2048 + 256 + 256 + 2048) + 3 * 2048 * 11_008)
    (vllm,), (transformers,) = (loaded("Qwen/Qwen2.5-3B", "nf4-dq", engine) for engine in ("vllm", "transformers"))
    assert vllm.scales == matrices // 64 * 4
    assert transformers.scales == matrices // 64 + matrices // 64 // 256 * 4


@pytest.mark.parametrize(
    ("model", "tp", "padding"),
    [
        ("openai-community/gpt2", 1, 47 * 768 * 2),  # 50,257 rows of the vocabulary become 50,304
        ("Qwen/Qwen2.5-3B", 1, 0),
    ],
)
def test_rows_that_vllm_adds(model, tp, padding):
    assert loaded(model, tp=tp)[0].padding == padding
    assert loaded(model, tp=tp, engine="transformers")[0].padding == 0


@pytest.mark.parametrize(("tp", "inner"), [(1, 2944), (2, 1536), (4, 768)])
def test_what_marlin_adds_to_gpt_oss(tp, inner):
    """Experts of 2,880 x 2,880 become 3,072 by the next multiple of 128 of a rank's share, 32 weights in 17 bytes."""
    (held,) = loaded("openai/gpt-oss-20b", "mxfp4", tp=tp)
    assert held.padding == 24 * 32 * 3 * (3072 * inner - 2880 * 2880 // tp) * 17 // 32


@given(
    st.sampled_from(generating()),
    st.sampled_from([*READ, "Q4_K_M", "IQ2_XS"]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from(CHECKPOINT_ENGINES),
)
def test_more_ranks_never_make_one_heavier_in_any_format(model, weights, tp, engine):
    architecture, precision = ARCHITECTURES[model], Precision(weights=weights)
    refused = (ENGINES[engine]().refusals(Question(architecture, precision, Layout(tp=n))) for n in (tp, 2 * tp))
    assume(divides(architecture, 2 * tp) and not any(map(any, refused)))
    (few,), (more,) = (loaded(model, weights, engine, tp=ranks) for ranks in (tp, 2 * tp))
    assert more.weights <= few.weights
    assert more.scales <= few.scales
    assert more.total <= few.total
    assert few.weights + few.scales <= 2 * (more.weights + more.scales)


@given(
    st.sampled_from(generating()),
    st.sampled_from([*READ, "Q4_K_M"]),
    st.integers(1, 5),
    st.sampled_from(CHECKPOINT_ENGINES),
)
def test_stages_are_loaded_as_they_are_weighed(model, weights, pp, engine):
    """Layer by layer or kind by kind, weights and scales are those that are stored; vLLM undoes double quantization."""
    architecture, kind = ARCHITECTURES[model], ENGINES[engine]
    precision, layout = Precision(weights=weights), Layout(pp=min(pp, architecture.num_layers))
    layout = staged(kind(), architecture, precision, layout)
    serving = Serving.of(architecture, kind(), precision, layout, Overhead())
    for stage, layers in zip(serving.laid_out.stages, serving.laid_out.ranges, strict=True):
        pieces = serving.ranks.of(layout).pieces
        whole = kind().loaded(serving.laid_out.rank, pieces, layers, layout)
        tables = kind().tables(serving.laid_out.rank)
        assert stage.loaded == LoadedWeights.sum([(1, whole), (1, tables)])
        if weights != "nf4-dq":
            assert stage.loaded.weights + stage.loaded.scales == stage.weights
        assert stage.loaded.vision == stage.vision


@pytest.mark.parametrize(
    ("model", "options", "tp", "elements"),
    [  # vllm/lora/layers/base_linear.py, `create_lora_weights`: of each matrix zeros in the model's type,
        # `lora_a_stacked` [max_loras, 1, max_lora_rank, input_size] and `lora_b_stacked` [max_loras, 1, output_size,
        # max_lora_rank]
        ("meta-llama/Llama-3.1-8B", {}, 1, 0),
        # 8,192 of q and o, 5,120 of k and v, 18,432 of gate, up and down, in 32 layers
        ("meta-llama/Llama-3.1-8B", {"enable_lora": True}, 1, 16 * 32 * (2 * 8192 + 2 * 5120 + 3 * 18_432)),
        (
            "meta-llama/Llama-3.1-8B",
            {"enable_lora": True, "max_loras": 4, "max_lora_rank": 64},
            1,
            4 * 64 * 32 * (2 * 8192 + 2 * 5120 + 3 * 18_432),
        ),
        # output_size is a rank's of ColumnParallelLinear and whole of RowParallelLinear, input_size the other way about
        # (without fully_sharded_loras)
        (
            "meta-llama/Llama-3.1-8B",
            {"enable_lora": True},
            2,
            16 * 32 * (2 * (4096 + 2048) + 2 * (4096 + 512) + 3 * (4096 + 7168)),
        ),
    ],
)
def test_slots_for_adapters(model, options, tp, elements):
    (stage,) = loaded(model, options=options.items(), tp=tp)
    assert stage.adapters == 2 * elements


def test_slots_for_adapters_as_logged():
    """Llama 3.1 8B with adapters of rank 32, vLLM 0.8.3: 15.1749 GiB, of which 0.016 are those of embedding and head,
    that later versions have on demand."""
    options = {"version": "0.8.3", "enable_lora": True, "max_lora_rank": 32}
    (stage,) = loaded("meta-llama/Llama-3.1-8B", options=options.items())
    assert stage.total / GIB == pytest.approx(15.1749, rel=0.003)


def test_adapters_that_are_not_enabled():
    with pytest.raises(ValidationError, match="max_loras has no effect without enable_lora"):
        ENGINES["vllm"].options_type(max_loras=4)


@in_one_test("family", sorted(FAMILIES))
def test_every_family_is_weighed(family):
    """By the defaults of its class, in 4 bits, where these make a model that transformers runs so: no parameter takes
    less than 4 bits, nor more than 32."""
    for weights in ("int4", "mxfp4"):
        with suppress(ConfigError):
            config, precision = {"model_type": family}, Precision(weights=weights)
            weighed = report(config, engine=ENGINES["transformers"](), precision=precision, gpus=[gpus()["h100-sxm"]])
            total = weighed.parameters.total
            assert total / 2 <= weighed.verdicts[0].memory.weights <= 4 * total
