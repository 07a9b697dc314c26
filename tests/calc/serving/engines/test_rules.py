"""One stream of refusals: every reason at once, in the order in which they are said, of no part that is left out."""

from dataclasses import replace

import pytest

from calc import Architecture, ConfigError, Layout, Overhead, Precision, Workload, report
from calc.formats.table import FORMATS
from calc.hardware.gpus import gpus
from calc.serving.engines import ENGINES
from calc.serving.engines.rules import Question, Rules
from calc.serving.engines.sglang.engine import smallest_group as smallest_in_sglang
from calc.serving.engines.sizes import Limits
from calc.serving.engines.vllm.rules import smallest_group as smallest_in_vllm
from calc.serving.memory import Serving
from calc.time import Needs
from calc.time.plan_report import plan_report
from presets import models
from tests.cases import in_one_test


def architecture(name):
    return Architecture.from_config(models()[name].config)


def said(engine, question, **options):
    return [
        (str(refusal.message), refusal.field)
        for refusal in ENGINES[engine]().with_options(**options).refusals(question)
    ]


def starts(found, expected):
    assert [field for _, field in found] == [field for _, field in expected]
    for (sentence, _), (part, _) in zip(found, expected, strict=True):
        assert part in sentence


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
@pytest.mark.parametrize(
    ("picked", "all_read", "refused"), [(12, 128, 12), (4, 512, 512), (4, 10**9, 10**9), (128, 128, 128)]
)
def test_attention_that_compresses_at_other_rates_is_refused(engine, picked, all_read, refused):
    """vLLM `deepseek_v4/compressor.py`: assert compress_ratio in [4, 128], the first of which has an indexer; SGLang
    `deepseek_v4_memory_pool.py: get_compress_state_ring_size` and TensorRT-LLM `prepare_sparse_mla_topk_lens` alike."""
    rates = {"compressed_sparse_attention": picked, "heavily_compressed_attention": all_read}
    config = dict(models()["deepseek-ai/DeepSeek-V4-Flash"].config) | {"compress_rates": rates}
    with pytest.raises(ConfigError, match=f"{refused:,}"):
        report(config, engine=ENGINES[engine](), layout=Layout(tp=8), gpus=[gpus()["b200"]])


def test_every_reason_is_said_not_the_first_alone():
    """Each is a line of llama.cpp: `--split-mode`, the types of GGUF, those of `--cache-type-k`."""
    question = Question(architecture("Qwen/Qwen3-8B"), Precision(weights="fp8", kv="fp8"), Layout(tp=2, pp=2))
    starts(
        said("llamacpp", question, split_mode="none"),
        [
            ("--split-mode none llama.cpp uses one GPU", "tp"),
            ("layers of its own", "tp"),
            ("do not store weights in fp8", "engine"),
            ("no cache in fp8", "engine"),
        ],
    )


def test_a_part_that_is_left_out_is_not_asked_about():
    model, precision = architecture("Qwen/Qwen3-8B"), Precision(weights="fp8", kv="q8_0")
    whole = Question(model, precision, Layout(tp=3))
    starts(
        said("vllm", whole), [("32 attention heads", "tp"), ("does not divide by tp 3", "tp"), ("llama.cpp", "engine")]
    )
    starts(said("vllm", whole._replace(layout=None)), [("llama.cpp", "engine")])
    starts(said("vllm", whole._replace(precision=None)), [])


def test_a_gpu_refuses_by_platform_format_and_kernel():
    """V100 has compute capability 7.0; vLLM's fp8 takes 7.5, its attention kernels for a cache in fp8 more."""
    serving = Serving.of(
        architecture("Qwen/Qwen3-8B"), ENGINES["vllm"](), Precision(weights="fp8"), Layout(), Overhead()
    )
    volta = Question(laid_out=serving.laid_out, gpu=gpus()["v100-sxm2-16gb"])
    assert ("vLLM runs fp8 from compute capability 7.5 on; V100 SXM2 16GB has 7.0", "weights") in said("vllm", volta)
    assert said("vllm", volta._replace(gpu=gpus()["h100-sxm"])) == []


def test_requests_are_refused_by_what_is_set_up():
    limits = Limits(step_tokens=512, sequences=4, share=None, in_flight_tokens=512)
    question = Question(workload=Workload(batch=5, context=8192), limits=limits)
    starts(said("llamacpp", question, ctx_size=4096), [("4 slots", "batch"), ("--ctx-size 4,096", "context")])
    assert said("vllm", question._replace(limits=replace(limits, share=0.9))) == []


@pytest.mark.parametrize("engine", ENGINES)
@in_one_test("name", list(models())[::12])
def test_what_is_not_refused_is_laid_out(name, engine):
    """The nearest degrees of a refused one are taken."""
    model, started = architecture(name), ENGINES[engine]()
    for layout in (Layout(), Layout(tp=2), Layout(tp=3), Layout(pp=3), Layout(tp=8, dcp=4), Layout(tp=2, ep=2)):
        question = Question(model, Precision(), layout)
        refused = [*started.refusals(question)]
        try:
            serving = Serving.of(model, started, Precision(), layout, Overhead())
        except ConfigError as error:
            assert (error.message, error.field) == refused[0][:2]
            if error.field in ("tp", "dcp"):
                for degree in error.nearest:
                    others = started.refusals(question.with_degree(error.field, degree))
                    assert error.field not in [refusal.field for refusal in others]
        else:
            assert refused == []
            assert serving.accepts(layout)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("kv", ["q8_0", "q4_0"])
def test_a_cache_format_of_llama_cpp_is_no_others(engine, kv):
    """SGLang's are fp8_e5m2, fp8_e4m3 and fp4_e2m1 (docs/advanced_features/quantized_kv_cache.md). A plan was a
    traceback."""
    config, stated, sentence = models()["Qwen/Qwen3-8B"].config, Precision(kv=kv), "cache format of llama"
    with pytest.raises(ConfigError, match=sentence):
        report(config, engine=ENGINES[engine](), precision=stated)
    with pytest.raises(ConfigError, match=sentence):
        plan_report(config, Needs(users=1), engine=ENGINES[engine](), precisions=[stated])


@pytest.mark.parametrize(
    ("engine", "kv", "weights"),
    [
        ("sglang", "int8", "bf16"),
        ("sglang", "int4", "bf16"),
        ("sglang", "fp32", "bf16"),
        ("vllm", "fp32", "fp16"),
        ("transformers", "fp32", "bf16"),
    ],
)
def test_a_cache_that_no_flag_asks_for_is_refused(engine, kv, weights):
    """`--kv-cache-dtype` of SGLang is auto, fp8_e5m2, fp8_e4m3, bf16 or fp4_e2m1 (docs/advanced_features/
    server_arguments.md), vLLM's has no fp32 (`config/cache.py`); `auto` is the model's type."""
    config = models()["Qwen/Qwen3-8B"].config
    with pytest.raises(ConfigError, match=f"has no cache in {kv}"):
        report(config, engine=ENGINES[engine](), precision=Precision(weights=weights, kv=kv))
    report(config, engine=ENGINES[engine](), precision=Precision(weights="fp32", kv="fp32"), gpus=[])


@pytest.mark.parametrize("engine", ["sglang", "transformers"])
def test_latents_in_656_bytes_are_vllms_alone(engine):
    """`fp8_ds_mla` of vLLM's `config/cache.py`."""
    config, stated = models()["deepseek-ai/DeepSeek-V2-Lite"].config, Precision(kv="fp8_ds_mla")
    with pytest.raises(ConfigError, match="has no cache in fp8_ds_mla"):
        report(config, engine=ENGINES[engine](), precision=stated)


REFUSING = [name for name, engine in ENGINES.items() if engine.request_refusals is not Rules.request_refusals]
"""Engines that refuse requests by their limits."""


@pytest.mark.parametrize("engine", REFUSING)
@pytest.mark.parametrize(
    "name", ["Qwen/Qwen3-8B", "google/gemma-3-27b-it", "nvidia/Nemotron-H-8B-Base-8K", "BAAI/bge-m3"]
)
def test_stages_change_no_limit_of_a_request(name, engine):
    """Where one is refused on one stage, it is on several: the fewest GPUs need not be looked for."""
    engine, model, workload = ENGINES[engine](), architecture(name), Workload(batch=300)
    for gpu in ("rtx-4090", "h100-sxm", "b200"):
        limits = {
            (of.step_tokens, of.sequences, of.share)
            for of in (engine.limits(workload, gpus()[gpu], model, Layout(pp=pp)) for pp in (1, 2, 8))
        }
        assert len(limits) == 1


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
@pytest.mark.parametrize("name", ["Qwen/Qwen3-8B", "deepseek-ai/DeepSeek-V3", "google/gemma-3-27b-it"])
@pytest.mark.parametrize("shape", [Layout(), Layout(tp=8), Layout(tp=2, dp=4)])
def test_more_stages_of_a_pipeline_have_no_larger_share(name, engine, shape):
    """SGLang sets 128 MiB more aside for each GPU (`server_args.py`); one stage may have graphs of prompts, which a
    pipeline goes without."""
    for gpu in ("rtx-4090", "h100-sxm", "b200"):
        layouts = [shape.model_copy(update={"pp": pp}) for pp in (2, 16, 61, 128)]
        shares = [ENGINES[engine]().limits(Workload(), gpus()[gpu], architecture(name), each).share for each in layouts]
        assert shares == sorted(shares, reverse=True)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize(
    ("model", "weights", "tp", "why"),
    [
        pytest.param("Qwen/Qwen2.5-72B", "int4", 4, "29,568 columns over 4 GPUs are 7392 each", id="57.75 groups"),
        pytest.param("Qwen/Qwen2.5-72B", "int4-gptq", 2, "are 14784 each, not whole groups of 128", id="115.5 groups"),
        pytest.param("Qwen/Qwen2.5-72B", "int8-gptq", 8, "are 3696 each", id="8 bits"),
        pytest.param("Qwen/Qwen2.5-72B", "bf16", 4, None, id="16 bits have no groups"),
        pytest.param("meta-llama/Llama-3.1-70B", "int4", 8, None, id="28,672 columns: 28 groups"),
        pytest.param("Qwen/Qwen3-32B", "int4", 8, None, id="25,600 columns: 25 groups"),
        pytest.param("Qwen/Qwen3-30B-A3B", "int4", 8, None, id="experts have smaller groups"),
        pytest.param("Qwen/Qwen2.5-0.5B", "int4", 2, "896 columns over 2 GPUs are 448 each", id="heads of attention"),
        pytest.param("google/gemma-4-26B-A4B", "int4", 2, "2,112 columns over 2 GPUs are 1056", id="shared experts"),
        pytest.param("microsoft/Phi-3.5-MoE-instruct", "int4", 8, None, id="experts of 800 columns: 25 groups of 32"),
        pytest.param("openai-community/gpt2", "int4", 2, None, id="[in, out]: 3 groups of outputs are cut"),
        pytest.param(
            "google/gemma-4-26B-A4B", "nvfp4", 8, "264 each, not whole groups of 16", id="16.5 groups of NVFP4"
        ),
        pytest.param("google/gemma-4-26B-A4B", "nvfp4", 4, None, id="NVFP4: 33 groups"),
    ],
)
def test_groups_of_inputs_stay_whole(engine, model, weights, tp, why):
    """vLLM 0.33 `kernels/linear/mixed_precision/marlin.py`: a group that straddles ranks cannot be fixed by padding;
    SGLang 0.5.23 `marlin_utils.py`, `verify_marlin_supports_shape`. NVFP4: "Unsupported model when in features size is
    not multiple of 16" (vLLM `modelopt.py`, SGLang `modelopt_quant.py`). Qwen's documentation pads its 72B files."""
    question = Question(architecture(model), Precision(weights=weights), Layout(tp=tp))
    refused = [str(refusal.message) for refusal in ENGINES[engine]().refusals(question) if refusal.field == "tp"]
    assert bool(refused) == (why is not None)
    assert why is None or why in refused[0]


@pytest.mark.parametrize(
    ("engine", "weights", "layout", "why"),
    [
        pytest.param("vllm", "int4", Layout(tp=8), None, id="AWQ: 96 columns are 3 groups of 32"),
        pytest.param("vllm", "int4", Layout(tp=16, pp=1), "48 each, not whole groups of 32", id="AWQ: 48 are not"),
        pytest.param("vllm", "int4-w4a16", Layout(tp=4), "192 each, not whole groups of 128", id="compressed-tensors"),
        pytest.param("vllm", "int4-w4a16", Layout(tp=4, ep=4), None, id="whole experts"),
        pytest.param("sglang", "int4", Layout(tp=16), "48 each, not whole groups of 32", id="SGLang: AWQ the same"),
        pytest.param("sglang", "int4-w4a16", Layout(tp=4), None, id="SGLang: compressed-tensors unchecked"),
    ],
)
def test_groups_of_experts_stay_whole(engine, weights, layout, why):
    """Qwen3-30B-A3B's experts have 768 columns. vLLM 0.33 `moe_wna16.py`: groups are halved while they do not divide,
    `assert group_size >= 32`; `compressed_tensors_moe_wna16.py`: "Scale groups would otherwise cross TP shard
    boundaries". SGLang 0.5.23 has the first alone, of AWQ."""
    question = Question(architecture("Qwen/Qwen3-30B-A3B"), Precision(weights=weights), layout)
    refused = [sentence for sentence, field in said(engine, question) if "experts'" in sentence and field == "tp"]
    assert bool(refused) == (why is not None)
    assert why is None or why in refused[0]


@pytest.mark.parametrize(
    ("engine", "weights", "layout", "group"),
    [
        pytest.param("vllm", "int4", Layout(tp=2), 128, id="384 columns"),
        pytest.param("vllm", "int4", Layout(tp=4), 64, id="192"),
        pytest.param("vllm", "int4", Layout(tp=8), 32, id="96"),
        pytest.param("vllm", "int4", Layout(tp=8, ep=8), 128, id="whole experts"),
        pytest.param("vllm", "int4-gptq", Layout(tp=8), 32, id="GPTQ"),
        pytest.param("sglang", "int4", Layout(tp=8), 32, id="SGLang: AWQ"),
        pytest.param("sglang", "int4-gptq", Layout(tp=8), 128, id="SGLang: GPTQ has Marlin alone"),
    ],
)
def test_scales_of_experts_in_smaller_groups(engine, weights, layout, group):
    """Qwen3-30B-A3B's experts, [768, 2048] and [2048, 768]: `moe_wna16.py` of both makes w13_scales and w2_scales of
    the halved groups, with zero points of 4 bits (`has_zp`), and repeats those of the file."""
    layers, hidden, columns = 48, 2048, 768 // layout.slices
    model = architecture("Qwen/Qwen3-30B-A3B")
    found = Serving.of(model, ENGINES[engine](), Precision(weights=weights), layout, Overhead())
    bits = 20 if weights == "int4" else 16
    experts = layers * 128 // layout.ep * (2 * columns * (hidden // group) + hidden * -(-columns // group))
    q, kv = 32 * 128 // layout.tp, max(1, 4 // layout.tp) * 128
    attention = layers * ((q + 2 * kv) * hidden + hidden * q) // 128
    assert found.laid_out.stages[0].loaded.scales == (experts + attention) * bits // 8


@pytest.mark.parametrize(
    ("engine", "layout", "runs"),
    [
        pytest.param("vllm", Layout(tp=2, dp=4, ep=4), False, id="four of eight ranks"),
        pytest.param("vllm", Layout(tp=2, dp=4, ep=8), True, id="all"),
        pytest.param("vllm", Layout(tp=2, dp=4), True, id="none"),
        pytest.param("sglang", Layout(tp=2, dp=4, ep=4), True, id="SGLang has --ep-size"),
    ],
)
def test_ranks_that_experts_are_spread_over(engine, layout, runs):
    """vLLM 0.33 `FusedMoEParallelConfig.make`: with --enable-expert-parallel ep_size is tp_size * dp_size."""
    found = said(engine, Question(architecture("deepseek-ai/DeepSeek-V3"), Precision(weights="fp8"), layout))
    assert [field for _, field in found] == ([] if runs else ["ep"])


@pytest.mark.parametrize(
    ("form", "vllm", "sglang"),
    [
        pytest.param(FORMATS["int4"], 32, 32, id="AWQ"),
        pytest.param(FORMATS["int4-gptq"], 32, None, id="GPTQ"),
        pytest.param(FORMATS["int4-w4a16"], 128, None, id="compressed-tensors"),
        pytest.param(FORMATS["mxfp4"], None, None, id="a format of no such tool"),
    ],
)
def test_smallest_groups_follow_the_tool_and_no_words(form, vllm, sglang):
    """`moe_wna16.py` and `compressed_tensors_moe_wna16.py` of vLLM 0.33; SGLang 0.5.23 halves AWQ's alone. What a
    format's source is called decides nothing."""
    form = replace(form, source="a paper")
    assert (smallest_in_vllm(form), smallest_in_sglang(form)) == (vllm, sglang)


GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True}
PACKED = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True}
COMPRESSED = {
    "quant_method": "compressed-tensors",
    "config_groups": {"group_0": {"targets": ["Linear"], "weights": PACKED | {"actorder": "group"}}},
}


@pytest.mark.parametrize(
    ("engine", "version", "stated", "why"),
    [  # AutoGPTQConfig.TYPE_MAP of vLLM has (4, True) and (8, True) since 0.22, MARLIN_SUPPORTED_GROUP_SIZES -1, 32, 64
        # and 128; since 0.30 `normalize_and_validate_gptq_desc_act` refuses an order. SGLang has gptq_marlin on CUDA.
        pytest.param("vllm", None, GPTQ, None, id="as GPTQModel writes"),
        pytest.param("vllm", None, GPTQ | {"bits": 8, "group_size": -1}, None, id="8 bits, a scale a row"),
        pytest.param("vllm", None, GPTQ | {"sym": False}, "symmetric", id="asymmetric"),
        pytest.param("vllm", None, GPTQ | {"bits": 3}, "4 or 8 bits", id="3 bits"),
        pytest.param("vllm", None, GPTQ | {"group_size": 1024}, "32, 64 or 128 inputs", id="groups of 1,024"),
        pytest.param("vllm", None, GPTQ | {"dynamic": {"+:.*mlp.*": {"bits": 2}}}, "4 or 8 bits", id="some of 2 bits"),
        pytest.param("vllm", "0.21", GPTQ | {"sym": False, "bits": 3}, None, id="other kernels, until 0.21"),
        pytest.param("vllm", None, GPTQ | {"desc_act": True}, "up to version 0.29", id="in an order"),
        pytest.param("vllm", None, GPTQ | {"desc_act": True, "group_size": -1}, None, id="one group has no order"),
        pytest.param("vllm", "0.29", GPTQ | {"desc_act": True}, None, id="in an order, until 0.29"),
        pytest.param("vllm", None, COMPRESSED, "up to version 0.29", id="in an order, by llm-compressor"),
        pytest.param("vllm", None, {**GPTQ, "quant_method": "auto-round", "sym": False}, None, id="AutoRound's own"),
        pytest.param("sglang", None, GPTQ | {"desc_act": True}, None, id="SGLang: in an order"),
        pytest.param("sglang", None, GPTQ | {"sym": False}, "symmetric", id="SGLang: asymmetric"),
    ],
)
def test_files_of_gptq_that_kernels_read(engine, version, stated, why):
    config = {**models()["Qwen/Qwen3-8B"].config, "quantization_config": stated}
    started = ENGINES[engine]()
    started = started.with_options(version=version) if version else started
    model, precision = Architecture.from_config(config), Precision.of(config)
    laid_out = Serving.of(model, ENGINES["transformers"](), precision, Layout(), Overhead()).laid_out
    found = [str(refusal.message) for refusal in started.refusals(Question(model, precision))]
    found += [str(refusal.message) for refusal in started.gpu_refusals(gpus()["h100-sxm"], laid_out)]
    assert bool(found) == (why is not None)
    assert why is None or why in found[0]


@pytest.mark.parametrize(
    ("model", "weights", "gpu", "runs"),
    [
        pytest.param("Qwen/Qwen3-8B", "int4", "t4", True, id="AWQ: 7.5"),
        pytest.param("Qwen/Qwen3-8B", "int4-w4a16", "t4", False, id="compressed-tensors: 8.0"),
        pytest.param("Qwen/Qwen3-30B-A3B", "int4", "t4", False, id="experts have no method without Marlin"),
        pytest.param("Qwen/Qwen3-30B-A3B", "int4", "rtx-4090", True, id="experts by Marlin"),
        pytest.param("Qwen/Qwen3-30B-A3B", "int4", "mi300x", False, id="AMD has no Marlin"),
        pytest.param("Qwen/Qwen3-30B-A3B", "int4-w4a16", "mi300x", True, id="AMD: Triton's experts"),
    ],
)
def test_integers_in_groups_by_marlin(model, weights, gpu, runs):
    """SGLang 0.5.23, `layers/quantization`: get_min_capability is 75 in AWQConfig, which has no method for FusedMoE, 80
    in AWQMarlinConfig and CompressedTensorsWNA16; AMD runs CompressedTensorsWNA16TritonMoE."""
    laid_out = Serving.of(
        architecture(model), ENGINES["sglang"](), Precision(weights=weights), Layout(), Overhead()
    ).laid_out
    fields = [refusal.field for refusal in ENGINES["sglang"]().gpu_refusals(gpus()[gpu], laid_out)]
    assert ("weights" in fields) != runs


@pytest.mark.parametrize(
    ("engine", "stated", "gpu", "runs"),
    [
        ("sglang", {"quant_method": "modelopt", "quant_algo": "FP8"}, "a100-sxm-80gb", False),
        ("sglang", {"quant_method": "modelopt", "quant_algo": "FP8"}, "rtx-4090", True),
        ("sglang", {"quant_method": "fp8", "activation_scheme": "static"}, "a100-sxm-80gb", True),
        ("vllm", {"quant_method": "modelopt", "quant_algo": "FP8"}, "a100-sxm-80gb", True),
    ],
)
def test_fp8_of_modelopt_by_generation(engine, stated, gpu, runs):
    """get_min_capability is 89 in ModelOptFp8Config of SGLang 0.5.23 and 80 in its Fp8Config, and 80 in vLLM 0.33's
    ModelOptFp8Config."""
    config = {**models()["Qwen/Qwen3-8B"].config, "quantization_config": stated}
    model, precision, started = Architecture.from_config(config), Precision.of(config), ENGINES[engine]()
    laid_out = Serving.of(model, started, precision, Layout(), Overhead()).laid_out
    fields = [refusal.field for refusal in started.gpu_refusals(gpus()[gpu], laid_out)]
    assert ("weights" in fields) != runs


@pytest.mark.parametrize(("engine", "runs"), [("vllm", False), ("sglang", True)])
def test_scales_of_an_order_stand_on_every_rank(engine, runs):
    """SGLang 0.5.23 `marlin_repeat_scales_on_all_ranks`: act_order. vLLM's kernels up to 0.29 want whole groups too."""
    config = {**models()["Qwen/Qwen2.5-72B"].config, "quantization_config": GPTQ | {"desc_act": True}}
    question = Question(Architecture.from_config(config), Precision.of(config), Layout(tp=4))
    started = ENGINES[engine]()
    started = started.with_options(version="0.29") if engine == "vllm" else started
    assert (not any(started.refusals(question))) == runs


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_scalars_have_no_groups(engine):
    """Those of xIELU in Apertus (arXiv:2411.13010), beside its matrices."""
    question = Question(Architecture.from_config({"model_type": "apertus"}), Precision(weights="int4"), Layout(tp=2))
    assert not any(ENGINES[engine]().refusals(question))


@pytest.mark.parametrize(
    ("model", "serves"),
    [
        pytest.param("tiiuae/falcon-40b", False, id="FalconForCausalLM(nn.Module, SupportsPP)"),
        pytest.param("tiiuae/falcon-mamba-7b", False, id="MambaForCausalLM"),
        pytest.param("stabilityai/stablelm-2-1_6b", False, id="StablelmForCausalLM"),
        pytest.param("moonshotai/Kimi-K2.5", False, id="KimiK25ForConditionalGeneration"),
        pytest.param("moonshotai/Kimi-Linear-48B-A3B-Instruct", False, id="KimiLinearForCausalLM"),
        pytest.param("MiniMaxAI/MiniMax-M3", False, id="MiniMaxM3SparseForConditionalGeneration"),
        pytest.param("openai-community/gpt2", False, id="GPT2LMHeadModel"),
        pytest.param("Qwen/Qwen3-8B", True, id="Qwen3ForCausalLM"),
        pytest.param("openai/gpt-oss-20b", True, id="GptOssForCausalLM"),
        pytest.param("google/gemma-3-27b-it", True, id="Gemma3ForConditionalGeneration"),
        pytest.param("deepseek-ai/DeepSeek-V3", True, id="DeepseekV3ForCausalLM"),
    ],
)
def test_families_without_adapters(model, serves):
    """vLLM 0.33 `v1/worker/lora_model_runner_mixin.py`: a class that is no SupportsLoRA "does not support LoRA yet"."""
    question = Question(architecture(model), Precision())
    fields = [field for _, field in said("vllm", question, enable_lora=True)]
    assert ("enable_lora" in fields) != serves
    assert "enable_lora" not in [field for _, field in said("vllm", question)]


@pytest.mark.parametrize(
    ("engine", "model", "runs"),
    [  # vLLM 0.33: classes that are no SupportsPP
        pytest.param("vllm", "mistralai/Mamba-Codestral-7B-v0.1", False, id="Mamba2ForCausalLM"),
        pytest.param("vllm", "BAAI/bge-m3", False, id="RobertaEmbeddingModel"),
        pytest.param("vllm", "answerdotai/ModernBERT-base", False, id="ModernBertModel"),
        pytest.param("vllm", "google/gemma-3-27b-it", True, id="Gemma3ForConditionalGeneration"),
        pytest.param("vllm", "Qwen/Qwen3-8B", True, id="Qwen3ForCausalLM"),
        # `tie_weights(self.model.embed_tokens)`, a PPMissingLayer on the last stage: 21B is tied, 300B is not
        pytest.param("vllm", "baidu/ERNIE-4.5-21B-A3B-PT", False, id="Ernie4_5_MoeForCausalLM: tied"),
        pytest.param("vllm", "baidu/ERNIE-4.5-300B-A47B-Base-PT", True, id="Ernie4_5_MoeForCausalLM"),
        # SGLang 0.5.23: classes whose `forward` has no pp_proxy_tensors
        pytest.param("sglang", "google/gemma-3-27b-it", False, id="SGLang's Gemma3ForConditionalGeneration"),
        pytest.param("sglang", "Qwen/Qwen3-Next-80B-A3B-Instruct", False, id="SGLang's Qwen3NextForCausalLM"),
        pytest.param("sglang", "CohereLabs/c4ai-command-r-v01", False, id="SGLang's CohereForCausalLM"),
        pytest.param("sglang", "Qwen/Qwen3-8B", True, id="SGLang's Qwen3ForCausalLM"),
        pytest.param("sglang", "deepseek-ai/DeepSeek-V3", True, id="SGLang's DeepseekV3ForCausalLM"),
    ],
)
def test_families_on_pipeline_stages(engine, model, runs):
    """vLLM: "Pipeline parallelism is not supported for this model" (`config/model.py`); SGLang: "Pipeline Parallel is
    not compatible with this model" (`model_executor/model_runner.py`)."""
    fields = [field for _, field in said(engine, Question(architecture(model), Precision(), Layout(pp=2)))]
    assert ("pp" in fields) != runs
    assert "pp" not in [field for _, field in said(engine, Question(architecture(model), Precision(), Layout(tp=2)))]


@pytest.mark.parametrize(("layers", "fields"), [([2, 10], ["pp"]), ([], [])])
def test_layers_that_embed_ngrams_are_on_one_stage(layers, fields):
    """ "Qwen4Exp N-gram PLE embedding requires pipeline_parallel_size=1" where `ple_layer_ids` names layers (vLLM 0.33,
    `model_executor/models/config.py: Qwen4ExpForConditionalGenerationConfig`)."""
    model = Architecture.from_config({"model_type": "qwen4_exp_text", "ple_layer_ids": layers})
    assert [field for _, field in said("vllm", Question(model, Precision(), Layout(pp=2)))] == fields
    assert [field for _, field in said("vllm", Question(model, Precision(), Layout(tp=2)))] == []


@pytest.mark.parametrize(("engine", "family"), [("vllm", "dory"), ("sglang", "jetmoe"), ("sglang", "nemotron")])
def test_a_family_on_one_rank(engine, family):
    """vLLM 0.33: "Dory currently supports tensor_parallel_size=1 only" (`model_executor/models/dory.py`); SGLang runs
    JetMoE and Nemotron by transformers' code, which "does not support tensor parallel yet" (`models/transformers.py`).
    """
    model = Architecture.from_config({"model_type": family})
    assert "tp" in [field for _, field in said(engine, Question(model, Precision(), Layout(tp=2)))]
    assert "tp" not in [field for _, field in said(engine, Question(model, Precision(), Layout()))]


@pytest.mark.parametrize(
    ("engine", "model", "experts", "layout", "refused"),
    [
        pytest.param("vllm", "Qwen/Qwen3-30B-A3B", 8, Layout(tp=16), "tp", id="Qwen3MoeSparseMoeBlock"),
        pytest.param("vllm", "Qwen/Qwen3-30B-A3B", 8, Layout(tp=16, ep=16), "tp", id="spread alike"),
        pytest.param("vllm", "Qwen/Qwen3-30B-A3B", 16, Layout(tp=16), None, id="one each"),
        pytest.param("vllm", "Qwen/Qwen3-30B-A3B", 8, Layout(tp=8, dp=2), None, id="vLLM's copies count for none"),
        pytest.param("vllm", "mistralai/Mixtral-8x7B-v0.1", 8, Layout(tp=16), None, id="MixtralMoE has no check"),
        pytest.param("sglang", "deepseek-ai/DeepSeek-V2-Lite", 64, Layout(tp=2, dp=64, ep=64), "dp", id="SGLang's do"),
        pytest.param("sglang", "deepseek-ai/DeepSeek-V2-Lite", 64, Layout(tp=2, dp=32, ep=64), None, id="64 ranks"),
    ],
)
def test_ranks_for_which_there_are_experts(engine, model, experts, layout, refused):
    """vLLM 0.33 `models/qwen3_moe.py` and SGLang 0.5.23 `models/deepseek_v2.py`: "Tensor parallel size ... is greater
    than the number of experts", of vLLM's `get_tensor_model_parallel_world_size` and SGLang's `get_parallel().tp_size`,
    which has the copies of the attention within."""
    field = {"qwen3_moe": "num_experts", "mixtral": "num_local_experts", "deepseek_v2": "n_routed_experts"}
    config = dict(models()[model].config)
    question = Question(Architecture.from_config(config | {field[config["model_type"]]: experts}), Precision(), layout)
    found = [of for sentence, of in said(engine, question) if "as many routed experts as" in sentence]
    assert found == ([] if refused is None else [refused])


@pytest.mark.parametrize(
    ("engine", "layout", "options", "tokens", "choices"),
    [
        pytest.param("vllm", Layout(tp=8), {}, 8192, 8, id="slices of all experts"),
        pytest.param("vllm", Layout(tp=8, ep=8), {}, 8192, 8, id="whole ones"),
        pytest.param("vllm", Layout(dp=8, ep=8), {}, 8 * 8192, 8, id="tokens of eight copies"),
        pytest.param("vllm", Layout(dp=8, ep=8), {"version": "0.17.0"}, 16_384, 8, id="in chunks until 0.17"),
        pytest.param("sglang", Layout(tp=8, ep=8), {}, 8192, 8, id="SGLang"),
        pytest.param("sglang", Layout(tp=2, dp=4, ep=8), {}, 8192, 8, id="a chunk is that of all copies"),
        pytest.param("sglang", Layout(tp=8, ep=8), {"moe_a2a_backend": "deepep"}, 8192, 1, id="sent by DeepEP"),
        pytest.param("tensorrt-llm", Layout(tp=8, ep=8), {}, 8192, 8, id="TensorRT-LLM"),
    ],
)
def test_experts_make_room_for_all_that_tokens_choose(engine, layout, options, tokens, choices):
    """DeepSeek-V3 on H200: 8 experts of 2,048 columns for a token of 7,168. SGLang 0.5.23 `_fused_moe_kernel_sequence`:
    intermediate_cache3 [tokens, topk, hidden] next to intermediate_cache2 [tokens * topk, N // 2], whatever experts the
    rank has; vLLM 0.33 `workspace_shapes`: M * topk rows, M of all copies (`naive_dp_ep.py: prepare`), and until 0.17
    VLLM_FUSED_MOE_CHUNK_SIZE at once, 16,384; TensorRT-LLM `getWorkspaceDeviceBufferSizes`: experts_per_token *
    num_rows."""
    started, model = ENGINES[engine]().with_options(**options), architecture("deepseek-ai/DeepSeek-V3")
    laid_out = Serving.of(model, started, Precision(weights="fp8"), layout, Overhead()).laid_out
    limits = started.limits(Workload(), gpus()["h200-sxm"], model, layout)
    (last,) = {
        peak.tensors["output of each expert"] + peak.tensors["product of each expert"]
        for peak in started.peaks(laid_out, 0, limits)
        if str(peak.what) == "the output of the routed experts"
    }
    assert last == 2 * tokens * choices * (7168 + 2048 // layout.slices)


NEMOTRON, SPARSE_MLA = "nvidia/Nemotron-H-8B-Base-8K", "zai-org/GLM-5.1"


@pytest.mark.parametrize(
    ("model", "options", "gpu", "layout", "refused"),
    [
        # LANGUAGE_MODEL_ONLY_ARCHITECTURES: "--language-model-only does not support ..."
        pytest.param("Qwen/Qwen3.5-0.8B", {"language_model_only": True}, "h100-sxm", {}, "few families", id="Qwen3.5"),
        pytest.param("Qwen/Qwen3-8B", {"language_model_only": True}, "h100-sxm", {}, "few families", id="no encoder"),
        pytest.param(
            *("deepseek-ai/DeepSeek-V4-Flash", {"language_model_only": True}, "b200", {"tp": 4}, None),
            id="DeepseekV4ForCausalLM",
        ),
        # "needs mamba state, got ...": overrides.py leaves uses_mamba_radix_cache unset, and with no prefix cache
        pytest.param(
            *("Qwen/Qwen3-8B", {"mamba_radix_cache_strategy": "extra_buffer"}, "h100-sxm", {}, "does not have"),
            id="no states",
        ),
        pytest.param(
            *(NEMOTRON, {"mamba_radix_cache_strategy": "extra_buffer", "disable_radix_cache": True}, "h100-sxm", {}),
            "turns off",
            id="no prefix cache",
        ),
        pytest.param(NEMOTRON, {"mamba_radix_cache_strategy": "extra_buffer"}, "h100-sxm", {}, None, id="_ARCHS"),
        # "extra_buffer is not supported for ...; use no_buffer"; "no_buffer only supports page_size=1"
        pytest.param(
            *("LiquidAI/LFM2-1.2B", {"mamba_radix_cache_strategy": "extra_buffer_lazy"}, "h100-sxm", {}),
            "for models of the family lfm2",
            id="LFM2",
        ),
        pytest.param("LiquidAI/LFM2-1.2B", {"page_size": 16}, "h100-sxm", {}, "pages of one token", id="its pages"),
        pytest.param(NEMOTRON, {"page_size": 16}, "h100-sxm", {}, None, id="pages with buffers"),
        # "chunked_prefill_size must be divisible by page_size", after handle_data_parallelism has divided it
        pytest.param("Qwen/Qwen3-8B", {"page_size": 48}, "h100-sxm", {}, "8,192 tokens", id="48 in 8,192"),
        pytest.param("Qwen/Qwen3-8B", {"chunked_prefill_size": 1000}, "b200", {}, "pages of 64", id="64 on Blackwell"),
        pytest.param("Qwen/Qwen3-8B", {"chunked_prefill_size": 1000}, "h100-sxm", {}, None, id="pages of one"),
        pytest.param(
            *("deepseek-ai/DeepSeek-V4-Flash", {"chunked_prefill_size": 1024}, "b200", {"dp": 8, "ep": 8}),
            "128 tokens on each",
            id="of eight copies",
        ),
        # "speculative_eagle_topk > 1 with page_size > 1 is unstable ..." of NGRAM but with FlashInfer's kernels
        pytest.param(
            *("Qwen/Qwen3-8B", {"speculative_algorithm": "NGRAM", "page_size": 16}, "h100-sxm", {}, "no tree"), id="FA3"
        ),
        pytest.param(
            *("Qwen/Qwen3-8B", {"speculative_algorithm": "NGRAM", "page_size": 16}, "l40s", {}, None), id="FlashInfer"
        ),
        pytest.param(
            SPARSE_MLA, {"speculative_algorithm": "NGRAM"}, "h200-sxm", {"tp": 8}, "no tree", id="pages of 64"
        ),
    ],
)
def test_flags_of_sglang_that_do_not_go_together(model, options, gpu, layout, refused):
    """SGLang 0.5.23 `arg_groups`: model_hook, overrides, mamba_hook, validation_hook, speculative_hook."""
    started, model, layout = ENGINES["sglang"]().with_options(**options), architecture(model), Layout(**layout)
    precision = Precision(weights="fp8") if model.experts else Precision()
    laid_out = Serving.of(model, ENGINES["sglang"](), precision, layout, Overhead()).laid_out
    question = Question(model, precision, layout, laid_out, gpus()[gpu])
    found = [str(refusal.message) for refusal in started.refusals(question)]
    assert bool(found) == (refused is not None), found
    assert refused is None or refused in found[0]


@pytest.mark.parametrize(
    ("engine", "flags", "near"),
    [
        ("vllm", {"speculative": "mtp"}, "not counted here"),
        ("sglang", {"speculative_algorithm": "EAGLE"}, "not counted here"),
    ],
)
def test_layers_that_guess_and_are_not_read(engine, flags, near):
    """vLLM 0.33 `hf_config_override` has longcat_flash_mtp, SGLang 0.5.23 LongcatFlashForCausalLMNextN; that a model
    "has no multi-token prediction (MTP) layer" would be wrong. SGLang's BailingMoeForCausalLMNextN is of Ling too."""
    longcat = Architecture.from_config({"model_type": "longcat_flash"})
    assert near in said(engine, Question(longcat, Precision()), **flags)[0][0]
    assert not said(engine, Question(architecture("inclusionAI/Ling-3.0-flash"), Precision()), **flags)


@pytest.mark.parametrize(
    ("layout", "runs"),
    [
        pytest.param(Layout(tp=2, dp=4, ep=8), False, id="is_sequence_parallel"),
        pytest.param(Layout(dp=8, ep=8), True, id="copies of one rank"),
        pytest.param(Layout(tp=8, ep=8), True, id="one copy"),
        pytest.param(Layout(tp=2, dp=4), True, id="slices of all experts"),
    ],
)
def test_adapters_of_experts_that_copies_spread(layout, runs):
    """vLLM 0.33 `lora/layers/fused_moe.py: _ep_check`: assert not is_sequence_parallel, which
    `ParallelConfig.use_sequence_parallel_moe` is with expert parallelism, tp and dp."""
    question = Question(architecture("Qwen/Qwen3-30B-A3B"), Precision(), layout)
    assert ("enable_lora" not in [field for _, field in said("vllm", question, enable_lora=True)]) == runs
