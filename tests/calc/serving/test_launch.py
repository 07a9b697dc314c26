"""Launch commands: every flag is one that the engine's own parser of its arguments has."""

import json
import shlex
from pathlib import Path

import pytest

from calc import Layout, Precision, Workload
from calc.serving.engines import ENGINES
from calc.serving.engines.launch import ServerStart
from calc.serving.engines.llamacpp.options import LlamaCppOptions
from calc.serving.engines.sglang.options import SGLangOptions
from calc.serving.engines.vllm.options import VLLMOptions
from presets import gpus, models
from tests.structures import architectures

FLAGS = json.loads(Path("tests/data/engine_flags.json").read_text(encoding="utf-8"))
ALL_VLLM = VLLMOptions(
    max_num_batched_tokens=4096,
    max_num_seqs=64,
    gpu_memory_utilization=0.95,
    num_gpu_blocks_override=1000,
    block_size=32,
    enable_prefix_caching=False,
    mamba_ssm_cache_dtype="float32",
    gdn_prefill_backend="triton",
    async_scheduling=True,
    disable_hybrid_kv_cache_manager=True,
    enforce_eager=True,
    language_model_only=True,
    speculative="mtp",
    num_speculative_tokens=2,
    mxfp4_kernel="triton",
    version="0.30",
)
ALL_SGLANG = SGLangOptions(
    mem_fraction_static=0.8,
    chunked_prefill_size=4096,
    cuda_graph_max_bs=64,
    max_running_requests=128,
    page_size=64,
    swa_full_tokens_ratio=0.5,
    mamba_full_memory_ratio=0.5,
    moe_dense_tp_size=1,
    enable_dp_lm_head=True,
    moe_a2a_backend="deepep",
    disable_cuda_graph=True,
    language_model_only=True,
    speculative_algorithm="EAGLE3",
    speculative_num_steps=4,
    speculative_eagle_topk=2,
    speculative_num_draft_tokens=6,
    speculative_draft_model_path="org/draft",
)


ALL_LLAMACPP = LlamaCppOptions(
    ctx_size=65_536,
    parallel=4,
    kv_unified=True,
    batch_size=1024,
    ubatch_size=256,
    cache_type_k="q8_0",
    cache_type_v="q4_0",
    flash_attn="on",
    n_gpu_layers=20,
    cpu_moe=True,
    n_cpu_moe=3,
    override_tensor=r"exps\.=CPU",
    tensor_split="3,1",
    split_mode="none",
    kv_offload=False,
    swa_full=True,
    device="none",
    rpc="host:50052",
    spec_type="draft-simple",
    spec_draft_n_max=5,
)


def words(engine, options=None, layout=None, **precision):
    launch = ENGINES[engine](options).launch(ServerStart("org/model", Precision(**precision), layout or Layout(), 8192))
    assert shlex.split(launch.text.replace("\\\n", "")) == list(launch.words)
    return launch


@pytest.mark.parametrize(
    ("engine", "options"), [("vllm", ALL_VLLM), ("sglang", ALL_SGLANG), ("llamacpp", ALL_LLAMACPP)]
)
def test_every_flag_is_one_that_the_engine_has(engine, options):
    formats = {"weights": "Q4_K_M"} if engine == "llamacpp" else {"weights": "fp8", "kv": "fp8"}
    launch = words(engine, options, Layout(tp=4, pp=2, dp=2, ep=8), **formats)
    given = {word.partition("=")[0] for word in launch.words if word.startswith("--")}
    assert len(given) > 12
    assert {word for word in given if word not in FLAGS[engine]} <= {f"--no-{word[2:]}" for word in FLAGS[engine]}


@pytest.mark.parametrize("engine", sorted(ENGINES.keys() & FLAGS.keys()))
def test_every_remedy_is_spelled_as_the_engine_does(engine):
    """vLLM's --max-num-seqs, TensorRT-LLM's --max_batch_size."""
    engine, workload = ENGINES[engine](), Workload(batch=4)
    limits = engine.limits(workload, gpus()["h100-sxm"], architectures()["Qwen/Qwen3-8B"], Layout())
    remedies = list(engine.remedies(limits, workload))
    words = {flag.split(" ")[0].split("=")[0] for changes in remedies for flag in engine.flags(changes)}
    assert words
    assert words <= set(FLAGS[engine.name])


def test_defaults_say_no_more_than_the_model_and_its_length():
    assert words("vllm").words == ("vllm", "serve", "org/model", "--max-model-len", "8192")
    start = ("python", "-m", "sglang.launch_server", "--model-path", "org/model", "--context-length", "8192")
    assert words("sglang").words == start
    assert ENGINES["transformers"]().launch(ServerStart("org/model", Precision(), Layout(), 8192)) is None


@pytest.mark.parametrize(
    ("engine", "layout", "said"),
    [
        ("vllm", Layout(tp=8), "--tensor-parallel-size 8"),
        ("vllm", Layout(tp=8, dcp=2), "--decode-context-parallel-size 2"),
        ("vllm", Layout(tp=2, dp=4, ep=8), "--data-parallel-size 4 --enable-expert-parallel"),
        ("sglang", Layout(tp=2, dp=4, ep=8), "--tp-size 8 --attn-dp-size 4 --ep-size 8"),
        ("sglang", Layout(pp=2), "--pp-size 2"),
    ],
)
def test_a_layout_in_the_engine_s_own_terms(engine, layout, said):
    assert said in " ".join(words(engine, layout=layout).words)


def test_flags_that_divide_a_model_with_experts():
    options = SGLangOptions(moe_dense_tp_size=1, enable_dp_lm_head=True, moe_a2a_backend="deepep")
    launch = " ".join(words("sglang", options, Layout(dp=32, ep=32)).words)
    assert "--tp-size 32 --attn-dp-size 32 --ep-size 32" in launch
    assert launch.endswith("--moe-dense-tp-size 1 --enable-dp-lm-head --moe-a2a-backend deepep")


@pytest.mark.parametrize(
    ("sparse", "said"),
    [(True, "--tp-size 8 --attn-dp-size 4"), (False, "--tp-size 2 --dp-size 4")],
)
def test_copies_of_a_dense_model_are_servers_of_their_own(sparse, said):
    """SGLang: `--attn-dp-size` divides `--tp-size`, and layers without experts over all of its ranks; with `--dp-size`
    each copy has as many ranks as `--tp-size` says, which is what is weighed."""
    engine, layout = ENGINES["sglang"](), Layout(tp=2, dp=4)
    launch = engine.launch(ServerStart("org/model", Precision(), layout, 8192, sparse=sparse))
    assert said in " ".join(launch.words)


def test_what_a_command_can_not_say_is_said_beside_it():
    assert "int4" in str(words("vllm", weights="int4").notes[0])
    assert not words("vllm", weights="fp8").notes


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_weights_in_another_type_are_loaded_so(engine):
    """`--dtype`: `config/model.py` of vLLM; docs/advanced_features/server_arguments.md of SGLang. A cache in 16 bits is
    stated where `auto` would be the model's 32."""
    assert "--dtype float16" in " ".join(words(engine, weights="fp16").words)
    wide = " ".join(words(engine, weights="fp32").words)
    assert "--dtype float32" in wide
    assert "--kv-cache-dtype b" in wide
    assert "--kv-cache-dtype" not in words(engine, weights="fp32", kv="fp32").words


@pytest.mark.parametrize("weights", ["bf16", "fp16", "fp8"])
@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
def test_no_flag_makes_other_weights_of_a_quantized_checkpoint(engine, weights):
    """gpt-oss's files are in MXFP4 (its quantization_config)."""
    chosen = Precision.of(models()["openai/gpt-oss-20b"].config, weights)
    launch = ENGINES[engine]().launch(ServerStart("openai/gpt-oss-20b", chosen, Layout(), 8192))
    assert [str(note) for note in launch.notes] == [f"Name a checkpoint whose weights are stored in {weights}."]
    assert {"--dtype", "--quantization"}.isdisjoint(launch.words)


def test_a_command_of_llamacpp_has_a_slot_for_each_sequence():
    launch = ENGINES["llamacpp"]().launch(ServerStart("org/model", Precision(weights="Q8_0"), Layout(), 4096, 8))
    assert " ".join(launch.words).endswith("--ctx-size 32768 --parallel 8")


def test_flags_with_which_it_fits_stand_for_those_of_the_same_names():
    options = LlamaCppOptions(n_gpu_layers=99, kv_offload=False)
    started = ENGINES["llamacpp"](options).launch(ServerStart("org/model", Precision(weights="Q8_0"), Layout(), 4096))
    changed = started.with_flags(["--n-gpu-layers 24", "--tensor-split 8,8,8"]).words
    assert changed[-4:] == ("--n-gpu-layers", "24", "--tensor-split", "8,8,8")
    assert changed.count("--n-gpu-layers") == 1
    assert "99" not in changed
    assert "--no-kv-offload" in changed


@pytest.mark.parametrize(
    ("engine", "kv", "flag"),
    [
        ("vllm", "fp8", "--kv-cache-dtype fp8"),
        ("vllm", "bf16", "--kv-cache-dtype bfloat16"),
        ("sglang", "fp8", "--kv-cache-dtype fp8_e4m3"),
        ("sglang", "bf16", "--kv-cache-dtype bf16"),
    ],
)
def test_the_cache_is_named_where_the_checkpoint_asks_for_a_format(engine, kv, flag):
    launch = ENGINES[engine]().launch(ServerStart("org/model", Precision(kv=kv, cache_stated="fp8"), Layout(), 8192))
    assert flag in " ".join(launch.words)
