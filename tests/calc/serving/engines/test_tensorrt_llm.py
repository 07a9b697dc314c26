"""TensorRT-LLM 1.3, whose source is cited by its files below `tensorrt_llm`; logs as servers printed them."""

import json

import pytest

from calc import Architecture, ConfigError, Layout, Overhead, Precision, Workload, report
from calc.formats import native
from calc.hardware.overhead import MIDDLE
from calc.serving.engines.cache import Pool
from calc.serving.engines.launch import ServerStart
from calc.serving.engines.rules import Question
from calc.serving.engines.tensorrt_llm.engine import TensorRTLLM
from calc.serving.engines.tensorrt_llm.options import TensorRTLLMOptions
from calc.serving.memory import Serving
from calc.serving.verdict import judge
from calc.units import GIB
from presets import gpus, models
from tests import load

KIMI, GPT_OSS = "moonshotai/Kimi-K2.5", "openai/gpt-oss-120b"
SMOLLM2 = {  # huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct
    "model_type": "llama",
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "vocab_size": 49_152,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
}


def allocation(config, gpu="h100-sxm", layout=None, weights=None, kv=None, context=8192, **options):
    config = models()[config].config if isinstance(config, str) else config
    engine = TensorRTLLM(TensorRTLLMOptions(**options))
    precision = engine.precision(native(config), weights, kv)
    serving = Serving.of(Architecture.from_config(config), engine, precision, layout or Layout(), Overhead())
    return serving.on(gpus()[gpu], Workload(context=context))


@pytest.mark.parametrize(
    ("asked", "bytes_per_token", "gib", "tokens"),
    [
        # "[MemUsageChange] Allocated 166.02 GiB for max tokens in paged KV cache (5073376)", 1.3.0rc7 on 8 x B300
        pytest.param(
            {"config": KIMI, "gpu": "b300", "layout": Layout(tp=8), "weights": "nvfp4", "kv": "fp8"},
            *(61 * 576, 166.02, 5_073_376),
            id="Kimi-K2.5",
        ),
        # "Allocated 9.06 GiB ... (422048)", 1.2.1, --max_seq_len 2049 (github.com/lmontigny/lm7)
        pytest.param(
            {"config": SMOLLM2, "gpu": "rtx-4070-super", "context": 2049},
            *(30 * 2 * 3 * 64 * 2, 9.06, 422_048),
            id="SmolLM2-135M",
        ),
    ],
)
def test_the_cache_of_public_logs(asked, bytes_per_token, gib, tokens):
    """Tokens by the logged bytes, and bytes by the settings alone, within the range of the overhead."""
    found = allocation(**asked)
    assert isinstance(found.cache, Pool)
    assert found.cache.block_bytes == (32 * bytes_per_token,)
    assert found.cache.tokens(found.cache.blocks([round(gib * GIB)]), 2048) == pytest.approx(tokens, rel=0.001)
    assert found.kv_budget.bytes_low <= gib * GIB <= found.kv_budget.bytes_high


def test_weights_as_logged():
    """gpt-oss-120b: "Use 63.32 GB for model weights", "kv size is 73728" of all layers (1.1.0rc3): experts are padded
    to 128 rows and columns."""
    found = allocation(GPT_OSS, "gb10")
    assert found.serving.laid_out.stages[0].loaded.total / GIB == pytest.approx(63.32, rel=0.002)
    assert 2 * found.cache.block_bytes[0] == 32 * 73_728


def test_what_it_divides():
    """_torch/pyexecutor/_util.py, _cal_max_memory: (total - peak) x fraction, the peak with weights, a pass and all
    that lies outside of PyTorch."""
    found = allocation("Qwen/Qwen3-8B", free_gpu_memory_fraction=0.8)
    budget, room = found.kv_budget, found.room(MIDDLE).budgets[0]
    peak = budget.weights + budget.profile + room.outside
    assert budget.bytes == int((gpus()["h100-sxm"].usable_bytes - peak) * 0.8)
    assert budget.tokens == 32 * (budget.bytes // (32 * 147_456))


@pytest.mark.parametrize(
    ("layers", "pp", "stages"), [(61, 2, [31, 30]), (61, 16, [*[4] * 13, *[3] * 3]), (22, 4, [6, 6, 5, 5])]
)
def test_layers_of_each_stage(layers, pp, stages):
    """mapping.py, pp_layers: "If num_layers % pp_size = n != 0, first n ranks get one extra layer"."""
    ranges = list(TensorRTLLM().stages(layers, pp))
    assert [len(stage) for stage in ranges] == stages
    assert [layer for stage in ranges for layer in stage] == list(range(layers))


@pytest.mark.parametrize(
    ("model", "length", "blocks"),
    [
        pytest.param(
            "openai/gpt-oss-20b", 32_768, 1024 + 5, id="half the layers keep 128 tokens, in up to five blocks"
        ),
        pytest.param("openai/gpt-oss-20b", 64, 2 + 2, id="shorter than the window"),
        pytest.param(
            "CohereLabs/c4ai-command-a-03-2025", 32_768, 1024, id="windows are for models of the second manager"
        ),
    ],
)
def test_layers_with_a_window(model, length, blocks):
    layout = Layout(tp=8)
    assert allocation(model, "h200-sxm", layout).cache.request_blocks(length) == blocks


def test_states_of_all_sequences_are_there_from_the_start():
    """mamba_cache_manager_v2.py: "The V2 Mamba GPU cache quota is too small for live recurrent states": on each stage
    max_batch_size times pp_size and one that pads CUDA graphs, each with an fp32 state of 32 heads of 128 x 128 and
    three columns of its convolution, of 2 x 16 + 32 heads, in each of the 24 layers of Qwen3.5-9B that have one."""
    layer = 4 * 32 * 128 * 128 + 2 * 3 * (2 * 16 + 32) * 128
    found = allocation("Qwen/Qwen3.5-9B")
    verdict = judge(found, found.serving, found.workload)
    assert (verdict.verdict, verdict.flags) == ("fits with", ("--max_batch_size 512",))
    assert f"{2049 * 24 * layer / GIB:.2f} GiB aside for up to 2,048 sequences" in str(verdict.reason)
    assert found.cache.fixed_bytes(0) == 2049 * 24 * layer
    three, alone = (allocation("Qwen/Qwen3.5-9B", layout=Layout(pp=pp), max_batch_size=64) for pp in (3, 32))
    assert [three.cache.fixed_bytes(stage) for stage in range(3)] == [193 * n * layer for n in (9, 8, 7)]
    assert {alone.cache.fixed_bytes(stage) for stage in range(32)} == {0, (64 * 32 + 1) * layer}
    assert TensorRTLLM().sized_for(100, found.serving.architecture).options.max_batch_size == 128


def test_experts_take_the_tokens_of_all_copies():
    """DeepSeek-R1 with attention data parallelism: eight passes of 8,192 tokens meet in the experts, with room for the
    8 that each token chooses (`getWorkspaceDeviceBufferSizes`)."""
    alone, copies = (
        allocation("deepseek-ai/DeepSeek-R1", "b200", layout) for layout in (Layout(tp=8, ep=8), Layout(dp=8, ep=8))
    )
    assert copies.kv_budget.profile - alone.kv_budget.profile == 7 * 2 * 8192 * 8 * (7168 + 2048)


@pytest.mark.parametrize(
    ("question", "sentence", "field"),
    [
        pytest.param({"model": "openai-community/gpt2-large"}, "the family gpt2", "engine", id="no such class"),
        pytest.param({"model": "allenai/Olmo-3-1025-7B"}, "the family olmo3", "engine", id="AutoDeploy's"),
        pytest.param({"weights": "Q4_K_M"}, "weights in Q4_K_M", "weights", id="files of llama.cpp"),
        pytest.param({"weights": "nf4"}, "weights in nf4", "weights", id="bitsandbytes"),
        pytest.param({"kv": "q8_0"}, "no cache in q8_0", "kv", id="cache"),
        pytest.param(
            {"layout": Layout(tp=2, dp=4)}, "tp 2 with dp 4 is neither", "dp", id="attention data parallelism"
        ),
        pytest.param({"gpu": "t4"}, "needs compute capability 8.0; T4 has 7.5", "gpu", id="Turing"),
        pytest.param({"gpu": "v100-sxm2-16gb"}, "needs compute capability 8.0", "gpu", id="Volta"),
        pytest.param({"gpu": "mi300x"}, "does not run on", "gpu", id="AMD"),
        pytest.param({"gpu": "a100-sxm-80gb", "weights": "fp8"}, "from compute capability 8.9 on", "weights", id="fp8"),
        pytest.param({"gpu": "h100-sxm", "weights": "nvfp4"}, "from compute capability 10.0 on", "weights", id="nvfp4"),
        pytest.param(
            {"gpu": "b200", "weights": "int4"}, "does not list int4 for B200", "weights", id="AWQ on Blackwell"
        ),
    ],
)
def test_what_it_refuses(question, sentence, field):
    """features/quantization.md, models/supported-models.md, supported-hardware.md of its documentation."""
    question = dict(question)
    model = Architecture.from_config(models()[question.pop("model", "Qwen/Qwen3-8B")].config)
    gpu, layout = gpus().get(question.pop("gpu", "")), question.pop("layout", Layout())
    engine, precision = TensorRTLLM(), Precision(**question)
    if gpu is None:
        found = list(engine.refusals(Question(model, precision, layout)))
        with pytest.raises(ConfigError):
            Serving.of(model, engine, precision, layout, Overhead())
    else:
        laid_out = Serving.of(model, engine, precision, layout, Overhead()).laid_out
        found = list(engine.refusals(Question(laid_out=laid_out, gpu=gpu)))
    assert [(refusal.field, sentence in str(refusal.message)) for refusal in found] == [(field, True)]


def test_a_language_model_within_a_foreign_one():
    """_torch/models/_arch_index.py has LlavaNextForConditionalGeneration and no LlavaForConditionalGeneration."""
    vision = {"vision_config": {"model_type": "clip_vision_model"}, "text_config": SMOLLM2}
    old, new = (Architecture.from_config({"model_type": name, **vision}) for name in ("llava", "llava_next"))
    (refusal,) = TensorRTLLM().refusals(Question(old, Precision()))
    assert "the family llava." in str(refusal.message)
    assert not list(TensorRTLLM().refusals(Question(new, Precision())))


def test_long_prompts_without_chunks():
    """PyExecutor: "prompt length 16384 should not exceed max_num_tokens 8192"."""
    whole = allocation("Qwen/Qwen3-8B", context=16_384, enable_chunked_prefill=False)
    verdict = judge(whole, whole.serving, whole.workload)
    assert (verdict.verdict, verdict.flags, verdict.max_batch) == ("fits with", ("--enable_chunked_prefill",), 0)
    assert "more than max_num_tokens, 8,192" in str(verdict.reason)


def test_its_command():
    engine = TensorRTLLM(TensorRTLLMOptions(max_batch_size=64, max_num_tokens=4096, cuda_graph_config=False))
    launch = engine.launch(
        ServerStart("org/model", Precision(weights="nvfp4", kv="fp8"), Layout(dp=4, ep=4, pp=2), 8192)
    )
    assert launch.text.replace(" \\\n ", "") == (
        "trtllm-serve org/model --tp_size 4 --pp_size 2 --ep_size 4 --max_seq_len 8192 --max_batch_size 64 "
        "--max_num_tokens 4096 --enable_chunked_prefill --config config.yaml"
    )
    assert {word for word in launch.words if word.startswith("--")} <= set(load("engine_flags.json")["tensorrt-llm"])
    checkpoint, file, sent = map(str, launch.notes)
    assert "stored in nvfp4" in checkpoint
    assert "sent over NVLink" in sent
    assert json.loads(file[file.index("{") :]) == {
        "enable_attention_dp": True,
        "kv_cache_config": {"dtype": "fp8", "free_gpu_memory_fraction": 0.9},
        "cuda_graph_config": None,
    }


def test_defaults_say_no_more_than_the_model_and_its_length():
    plain = TensorRTLLM().launch(ServerStart("org/model", Precision(), Layout(), 8192))
    assert (plain.words, plain.notes) == (("trtllm-serve", "org/model", "--max_seq_len", "8192"), ())


@pytest.mark.parametrize("gpu", ["mi300x", "ascend-910b-64gb"])
def test_a_target_that_is_no_compute_capability_is_not_compared(gpu):
    engine, config = TensorRTLLM(), models()["Qwen/Qwen3-8B"].config
    precision = engine.precision(native(config), "int4-gptq", None)
    serving = Serving.of(Architecture.from_config(config), engine, precision, Layout(), Overhead())
    whole = serving.on(gpus()[gpu], Workload(context=1024)).serving.laid_out
    assert "does not run on" in str(next(iter(engine.gpu_refusals(gpus()[gpu], whole))).message)
    assert list(engine.gpu_refusals(gpus()[gpu], whole))


@pytest.mark.parametrize(("gpu", "verdict"), [("h200-sxm", "does not run"), ("b200", "fits")])
def test_deepseek_v4_runs_on_blackwell_alone(gpu, verdict):
    """docs/source/models/supported-models.md of 1.3, footnote 11: only supported on Blackwell GPUs (SM100+)."""
    config, layout = models()["deepseek-ai/DeepSeek-V4-Flash"].config, Layout(tp=8, ep=8)
    precision = Precision.of(config)
    found = report(config, engine=TensorRTLLM(), precision=precision, layout=layout, gpus=[gpus()[gpu]])
    assert [row.verdict for row in found.verdicts] == [verdict]
