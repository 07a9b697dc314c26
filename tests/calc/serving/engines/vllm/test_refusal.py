"""What vLLM refuses to start."""

import pytest

from calc import Architecture, ConfigError, Layout, Overhead, Precision, Workload
from calc.hardware.gpus import gpus
from calc.serving.engines.launch import ServerStart
from calc.serving.engines.vllm.engine import VLLM
from calc.serving.engines.vllm.options import VLLMOptions
from calc.serving.engines.vllm.rules import unserved_family, unshared_tokens
from calc.serving.memory import Serving
from presets import models


def refused(model, kv="bf16", gpu="h100-sxm", tp=1, dcp=1, weights="bf16", **options):
    architecture, layout = Architecture.from_config(models()[model].config), Layout(tp=tp, dcp=dcp)
    try:
        serving = Serving.of(
            architecture, VLLM(VLLMOptions(**options)), Precision(weights=weights, kv=kv), layout, Overhead()
        )
    except ConfigError as error:
        return error.message
    return serving.on(gpus()[gpu], Workload()).refusal


@pytest.mark.parametrize(
    ("model", "asked", "sentence"),
    [
        pytest.param("zai-org/GLM-5.1", {"block_size": 32}, "reads blocks of 32 tokens", id="sparse kernels read 64"),
        pytest.param("zai-org/GLM-5.1", {"gpu": "a100-sxm-80gb"}, "no attention kernel", id="none before Hopper"),
        pytest.param("deepseek-ai/DeepSeek-V3", {"kv": "fp8", "gpu": "a100-sxm-80gb"}, "cache in fp8", id="fp8"),
        pytest.param("deepseek-ai/DeepSeek-V4-Flash", {"block_size": 32}, "multiple of 256", id="compressed entries"),
        pytest.param("Qwen/Qwen3-8B", {"kv": "fp8_ds_mla"}, "latent of MLA", id="a format of latents"),
        pytest.param("Qwen/Qwen3-8B", {"kv": "q8_0"}, "llama.cpp", id="a format of another engine"),
        pytest.param("Qwen/Qwen3-8B", {"block_size": 24}, "blocks of 24", id="no kernel reads 24"),
        pytest.param("mosaicml/mpt-7b", {}, "up to version 0.28", id="a family that was dropped"),
        pytest.param("Zyphra/Zamba-7B-v1", {}, "does not serve", id="a family that never was"),
        pytest.param(
            "Qwen/Qwen3-8B", {"kv_offloading_size": 8, "version": "0.13.0"}, "from version 0.14 on", id="host, native"
        ),
        pytest.param(
            "Qwen/Qwen3-8B",
            {"kv_offloading_size": 8, "kv_offloading_backend": "lmcache", "version": "0.11.0"},
            "from version 0.11.1 on",
            id="host, LMCache",
        ),
        pytest.param("LiquidAI/LFM2-1.2B", {"disable_hybrid_kv_cache_manager": True}, "hybrid KV cache", id="states"),
        pytest.param(
            "Qwen/Qwen3-235B-A22B", {"tp": 8, "dcp": 4}, "more than tp 8 over 4 KV heads", id="copies, vLLM's docs"
        ),
        pytest.param("Qwen/Qwen3-235B-A22B", {"tp": 4, "dcp": 2}, "more than tp 4 over 4 KV heads", id="no copies"),
        pytest.param("deepseek-ai/DeepSeek-V3", {"tp": 8, "dcp": 3}, "does not divide tp 8", id="ranks"),
        pytest.param("openai/gpt-oss-20b", {"tp": 16, "dcp": 2}, "layers with a window", id="windows are not shared"),
        pytest.param(
            "deepseek-ai/DeepSeek-V3", {"tp": 8, "dcp": 8, "kv": "fp8"}, "does not share tokens", id="sums in fp8"
        ),
        pytest.param("Qwen/Qwen3-8B", {"tp": 16, "dcp": 2, "gpu": "mi300x"}, "does not share tokens", id="AMD"),
        # "If tensor parallel world size does not divide num_groups, then num_groups must equal 1" (`mamba_mixer2.py`)
        pytest.param("mistralai/Mamba-Codestral-7B-v0.1", {"tp": 16}, "8 groups of Mamba-2", id="groups of Mamba-2"),
        # `_FLOAT16_NOT_SUPPORTED_MODELS` of `config/model.py`; no bf16 before Ampere by `platforms/cuda.py`
        pytest.param("google/gemma-3-4b-it", {"gpu": "t4"}, "bf16 or fp32, not in fp16", id="Gemma 3 on Turing"),
        pytest.param("google/gemma-3-1b-it", {"gpu": "rtx-2080-ti"}, "bf16 or fp32", id="its language model"),
        pytest.param("google/gemma-2-2b", {"gpu": "t4"}, "bf16 or fp32, not in fp16", id="Gemma 2 on Turing"),
        pytest.param("zai-org/GLM-4-9B-0414", {"gpu": "t4", "tp": 2}, "bf16 or fp32", id="GLM-4 on Turing"),
        # classes that are no SupportsEagle3
        pytest.param("google/gemma-3-27b-it", {"speculative": "eagle3"}, "head of EAGLE-3", id="heads, Gemma 3"),
        pytest.param("zai-org/GLM-4.5", {"speculative": "eagle3", "tp": 8}, "head of EAGLE-3", id="heads, GLM-4.5"),
        pytest.param("mistralai/Mixtral-8x7B-v0.1", {"speculative": "eagle3"}, "head of EAGLE-3", id="heads, Mixtral"),
    ],
)
def test_refused(model, asked, sentence):
    found = refused(model, **asked)
    assert found is not None
    assert sentence in str(found)


def test_ranks_share_the_query_heads_of_a_kv_head():
    llama = Architecture.from_config(models()["meta-llama/Llama-3.2-3B"].config)
    (refusal,) = unshared_tokens(llama, Layout(tp=24, dcp=2))
    assert "3 query heads" in str(refusal.message)
    assert not any(unshared_tokens(llama, Layout(tp=24, dcp=3)))


@pytest.mark.parametrize(
    ("model", "asked"),
    [
        pytest.param("mosaicml/mpt-7b", {"version": "0.28.0"}, id="while it was served"),
        pytest.param("Qwen/Qwen3-8B", {"kv_offloading_size": 8, "version": "0.14.0"}, id="host, native"),
        pytest.param(
            "Qwen/Qwen3-8B",
            {"kv_offloading_size": 8, "kv_offloading_backend": "lmcache", "version": "0.11.1"},
            id="host, LMCache",
        ),
        pytest.param("zai-org/GLM-5.1", {"block_size": 64}, id="blocks that sparse kernels read"),
        pytest.param("zai-org/GLM-5.1", {"block_size": 128, "kv": "fp8_ds_mla"}, id="latents in fp8_ds_mla"),
        pytest.param("Qwen/Qwen3-8B", {"kv": "int8", "gpu": "rtx-3090"}, id="int8 by Triton"),
        pytest.param("Qwen/Qwen3-8B", {"kv": "int4", "gpu": "rtx-3090"}, id="int4 by Triton"),
        pytest.param("google/gemma-3-27b-it", {"disable_hybrid_kv_cache_manager": True}, id="windows"),
        pytest.param("state-spaces/mamba-2.8b-hf", {"block_size": 24}, id="states have no kernel of attention"),
        pytest.param("deepseek-ai/DeepSeek-V3", {"tp": 8, "dcp": 8}, id="8 copies, vLLM's docs"),
        pytest.param("Qwen/Qwen3-235B-A22B", {"tp": 8, "dcp": 2}, id="2 copies, vLLM's docs"),
        pytest.param(
            "zai-org/GLM-5.1", {"tp": 8, "dcp": 8, "kv": "fp8_ds_mla"}, id="picked latents are shared, vLLM #46514"
        ),
        pytest.param("mistralai/Mamba-Codestral-7B-v0.1", {"tp": 8}, id="a group of Mamba-2 on each rank"),
        pytest.param("ibm-granite/granite-4.0-h-small", {"tp": 4}, id="copies of one group of Mamba-2"),
        pytest.param("google/gemma-3-4b-it", {"gpu": "t4", "weights": "fp32"}, id="Gemma 3 in fp32 on Turing"),
        pytest.param("google/gemma-2b", {"gpu": "t4"}, id="the first Gemma in fp16"),
        pytest.param("google/gemma-3-4b-it", {"gpu": "rtx-3090"}, id="Gemma 3 in bf16"),
        pytest.param("meta-llama/Llama-3.1-8B", {"speculative": "eagle3"}, id="heads, Llama"),
        pytest.param("openai/gpt-oss-20b", {"speculative": "eagle3"}, id="heads, gpt-oss"),
        pytest.param("Qwen/Qwen3-30B-A3B", {"speculative": "eagle3", "enable_lora": True}, id="heads and LoRA, Qwen3"),
    ],
)
def test_accepted(model, asked):
    assert refused(model, **asked) is None


def test_the_command_says_where_the_context_goes_beyond_the_model_s():
    """`_get_and_verify_max_len` of `config/model.py`: "User-specified max_model_len (40961) is greater than the derived
    max_model_len (max_position_embeddings=40960" and "To allow overriding this maximum, set the env var"."""
    start = ServerStart("Qwen/Qwen3-8B", Precision(), Layout(), 40_960, positions=40_960)
    assert VLLM().launch(start).notes == ()
    (note,) = VLLM().launch(start._replace(length=40_961)).notes
    assert "40,960 tokens" in str(note)
    assert "VLLM_ALLOW_LONG_MAX_MODEL_LEN=1" in str(note)


@pytest.mark.parametrize("gpu", ["t4", "a100-sxm-80gb", "l40s", "h100-sxm", "b200", "rtx-5090", "mi300x"])
@pytest.mark.parametrize("model", ["Qwen/Qwen3-8B", "google/gemma-2b", "openai/gpt-oss-20b", "Qwen/Qwen3.5-9B"])
def test_what_every_gpu_serves(model, gpu):
    assert refused(model, gpu=gpu) is None


@pytest.mark.parametrize(
    ("family", "version", "served"),
    [  # classes in `model_executor/models/registry.py` of the source of each version
        ("baichuan", "0.24", True),
        ("baichuan", "0.25", False),
        ("xverse", "0.23", True),
        ("xverse", "0.24", False),
        ("RefinedWeb", "0.28", True),
        ("RefinedWeb", "0.29", False),
        ("mllama_text_model", "0.11.1", False),  # until 0.10.2, by the sentence of the registry
        ("rwkv", None, False),  # RwkvSelfAttention of transformers asks for no `ALL_ATTENTION_FUNCTIONS`
        ("cpmant", None, False),
        ("xlstm", None, False),  # states, which the class for transformers' code does not keep
        ("zaya", None, False),
        ("lfm3", None, False),
        ("inkling2_text", None, False),
        ("skywork", None, False),  # SkyworkForCausalLM is in no registry, nor in transformers
        ("helium", None, True),  # by the code of transformers
    ],
)
def test_families(family, version, served):
    architecture = Architecture.from_config({"model_type": family})
    assert served != any(unserved_family(architecture, VLLMOptions(version=version)))


@pytest.mark.parametrize(
    ("model", "asked", "why"),
    [
        pytest.param("Qwen/Qwen3-8B", {"max_num_seqs": 4096}, "(max_num_seqs, 4,096)", id="2,048 tokens by default"),
        pytest.param(
            "Qwen/Qwen3-8B", {"max_num_seqs": 512, "max_num_batched_tokens": 256}, "tokens of a step", id="256"
        ),
        pytest.param("Qwen/Qwen3-8B", {"max_num_batched_tokens": 64}, None, id="as many sequences, unless stated"),
        pytest.param("google/gemma-4-26B-A4B", {}, None, id="2,496 by default: 32 frames of 78"),
        pytest.param("google/gemma-4-26B-A4B", {"max_num_batched_tokens": 2048}, "up to 2,496 tokens", id="a video"),
        pytest.param(
            "google/gemma-4-26B-A4B",
            {"max_num_batched_tokens": 2048, "language_model_only": True},
            None,
            id="text alone",
        ),
        pytest.param("google/gemma-3-27b-it", {"max_num_batched_tokens": 256}, None, id="256 of an image of Gemma 3"),
        pytest.param("Qwen/Qwen3-VL-30B-A3B-Instruct", {"max_num_batched_tokens": 512}, None, id="images that are cut"),
    ],
)
def test_steps_that_are_too_short(model, asked, why):
    """vLLM 0.33 `SchedulerConfig.verify_max_model_len`: "max_num_batched_tokens must be greater than or equal to
    max_num_seqs"; `compute_mm_encoder_budget`: "Chunked MM input disabled but max_tokens_per_mm_item ... is larger than
    max_num_batched_tokens" (`platforms/cuda.py` forces it where attention is both ways within images). No lever is
    offered that is refused so."""
    architecture, engine = Architecture.from_config(models()[model].config), VLLM(VLLMOptions(**asked))
    serving = Serving.of(architecture, engine, Precision(weights="int4"), Layout(), Overhead())
    found = serving.on(gpus()["rtx-4090"], Workload(context=8192))
    assert (found.request_refusal is None) == (why is None)
    assert why is None or why in str(found.request_refusal)
    for changes in engine.remedies(found.limits, found.workload):
        changed = found.with_engine(engine.with_options(**changes))
        assert changed.request_refusal is None or why is not None
