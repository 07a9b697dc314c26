"""What a server takes of the host's memory: a KV cache, LoRA adapters that wait, and files while they are read."""

import pytest
from pydantic import ValidationError

from calc import ConfigError, Layout, Precision, Workload, report
from calc.formats.stored import CheckpointSize
from calc.hardware.gpus import gpus
from calc.model.architecture import Architecture
from calc.serving.engines import ENGINES
from calc.serving.engines.launch import ServerStart
from presets import models

GB = 10**9


def host(model, engine="vllm", gpu="h100-sxm", layout=None, context=8192, **options):
    kind = ENGINES[engine]
    config, work = dict(models()[model].config), Workload(context=context)
    answer = report(
        config, engine=kind(kind.options_type(**options)), gpus=[gpus()[gpu]], layout=layout or Layout(), workload=work
    )
    return answer, answer.host[0]


@pytest.mark.parametrize(
    ("model", "layout", "gib", "blocks", "row"),
    [  # rows of page_size_bytes * tensors * world_size of whole pages of 4,096 bytes (vllm/v1/kv_offload/cpu/spec.py)
        # 36 layers of keys and values, 8 heads of 128, 16 tokens, 2 bytes: 2,359,296
        pytest.param("Qwen/Qwen3-8B", Layout(), 64, 64 * 2**30 // 2_359_296, 2_359_296, id="one rank"),
        pytest.param("Qwen/Qwen3-8B", Layout(tp=2), 64, 64 * 2**30 // 2_359_296, 2_359_296, id="heads divided"),
        # each of two ranks has both pairs of heads' half: 24 layers, 1 head of 64, 16 tokens: 98,304 on each
        pytest.param("Qwen/Qwen2.5-0.5B", Layout(tp=2), 1, 2**30 // 196_608, 196_608, id="two heads over two"),
        # stages of 18 layers each
        pytest.param("Qwen/Qwen3-8B", Layout(pp=2), 64, 64 * 2**30 // 2_359_296, 2_359_296, id="layers divided"),
    ],
)
def test_vllm_keeps_rows_of_a_block_of_every_rank(model, layout, gib, blocks, row):
    answer, memory = host(model, layout=layout, kv_offloading_size=gib)
    cache = memory.cache
    assert (cache.blocks, cache.block_bytes, cache.tokens) == (blocks, row, 16 * blocks)
    assert cache.bytes == blocks * row <= gib * 2**30 < (blocks + 1) * row
    assert cache.bytes_per_rank * layout.gpus == cache.bytes
    assert cache.concurrency == pytest.approx(16 * blocks / 8192, rel=1e-3)
    alone, _ = host(model, layout=layout)
    assert answer.verdicts == alone.verdicts  # GPUs hold what they held


def test_a_row_is_whole_pages():
    """15 rows of 5 * 16 * 576 * 2 bytes are 45 pages: one of a layer of MLA's 576 elements, 27 layers, is 121.5."""
    _, memory = host("deepseek-ai/DeepSeek-V2-Lite", kv_offloading_size=1)
    assert memory.cache.block_bytes == -(-27 * 16 * 576 * 2 // 4096) * 4096
    assert memory.cache.blocks == 2**30 // memory.cache.block_bytes


def test_each_copy_keeps_its_own():
    """`cpu_bytes_to_use` is of one engine: data-parallel ones have each as much."""
    layout = Layout(dp=2, ep=2)
    _, memory = host("Qwen/Qwen3-30B-A3B", layout=layout, kv_offloading_size=32)
    assert memory.cache.bytes == 2 * memory.cache.blocks * memory.cache.block_bytes


def test_lmcache_says_how_much():
    """vllm-project/vllm#42865: the size is not passed on to LMCache's server."""
    answer, memory = host("Qwen/Qwen3-8B", kv_offloading_size=64, kv_offloading_backend="lmcache")
    assert memory.cache is None
    assert any("LMCache's own server" in str(sentence) for sentence in answer.assumptions)


@pytest.mark.parametrize("tp", [1, 8])
def test_sglang_allocates_as_it_prints(tp):
    """Eight ranks of --hicache-size 32 print `Allocating 32.00 GB host memory for hierarchical KV cache` each, and 120
    print 120.00 (sgl-project/sglang#31600); to the page above (`HostKVCache`)."""
    for size in (32, 120):
        _, memory = host(
            "meta-llama/Llama-3.3-70B-Instruct",
            "sglang",
            "h200-sxm",
            Layout(tp=max(tp, 2)),
            enable_hierarchical_cache=True,
            hicache_size=size,
        )
        cache, ranks = memory.cache, max(tp, 2)
        assert f"{cache.bytes_per_rank / GB:.2f}" == f"{size}.00"
        assert cache.bytes == ranks * cache.bytes_per_rank
        # 80 layers of keys and values of 8 heads of 128 in 16 bits
        assert cache.tokens == size * GB // (80 * 2 * 8 * 128 * 2 // ranks) + 1


def test_sglangs_ratio_is_of_the_tokens_of_the_gpu():
    """`int(device_pool.size * host_to_device_ratio)`, and one page more; 2 unless it is set."""
    for options, ratio in (({}, 2.0), ({"hicache_ratio": 1.5}, 1.5)):
        answer, memory = host("Qwen/Qwen3-8B", "sglang", enable_hierarchical_cache=True, **options)
        assert memory.cache.tokens == int(answer.kv_budget[0].tokens * ratio) + 1


@pytest.mark.parametrize("model", ["openai/gpt-oss-20b", "zai-org/GLM-5.1", "Qwen/Qwen3-Next-80B-A3B-Instruct"])
def test_sglangs_pools_that_are_not_read(model):
    """A pool of windows, index keys, and states."""
    _, memory = host(model, "sglang", "b200", Layout(tp=8), enable_hierarchical_cache=True)
    assert memory.cache is None


def test_no_cache_is_kept_on_the_host_unless_a_flag_says_so():
    for engine in ENGINES:
        kind = ENGINES[engine]
        answer = report(
            dict(models()["Qwen/Qwen3-0.6B"].config),
            engine=kind(),
            gpus=[gpus()["apple-m2-max" if engine == "mlx" else "h100-sxm"]],
        )
        assert answer.host[0].cache is None
        assert answer.host[0].adapters == 0


@pytest.mark.parametrize(
    ("options", "layout", "adapters"),
    [
        ({}, Layout(), 1),  # LoRAConfig: max_cpu_loras is max_loras unless it is set
        ({"max_loras": 4}, Layout(), 4),
        ({"max_loras": 4, "max_cpu_loras": 16}, Layout(), 16),
        ({"max_loras": 4, "max_cpu_loras": 16}, Layout(tp=2), 32),  # each rank reads the whole file
    ],
)
def test_adapters_wait_whole_in_every_rank(options, layout, adapters):
    """vllm/lora/lora_model.py, `from_lora_tensors`: A [rank, in] and B [out, rank] as the file has them, pinned. Of
    rank 16 on every linear matrix of Llama 3.1 8B, 41,943,040 parameters, as PEFT prints for all-linear."""
    _, memory = host("meta-llama/Llama-3.1-8B", layout=layout, enable_lora=True, **options)
    assert memory.adapters == adapters * 2 * 41_943_040


def test_files_are_as_large_as_the_checkpoint():
    """Published: 16.4 GB in five safetensors of Qwen3-8B, 16,381,470,720 bytes of tensors (its index)."""
    for layout in (Layout(), Layout(tp=4)):
        _, memory = host("Qwen/Qwen3-8B", layout=layout)
        assert memory.reading == 16_381_470_720
    architecture = Architecture.from_config(models()["Qwen/Qwen3-8B"].config)
    assert memory.reading == CheckpointSize.of(architecture, Precision()).total


@pytest.mark.parametrize(
    ("engine", "options", "words"),
    [
        ("vllm", {"kv_offloading_backend": "lmcache"}, "kv_offloading_backend has no effect"),
        ("vllm", {"max_cpu_loras": 4}, "max_cpu_loras has no effect without enable_lora"),
        ("vllm", {"enable_lora": True, "max_loras": 4, "max_cpu_loras": 2}, "max_cpu_loras is 2, less than max_loras"),
        ("sglang", {"hicache_size": 32}, "hicache_size has no effect without enable_hierarchical_cache"),
        ("sglang", {"enable_hierarchical_cache": True, "disable_radix_cache": True}, "extends the prefix cache"),
    ],
)
def test_flags_that_do_not_go_together(engine, options, words):
    with pytest.raises((ValidationError, ConfigError), match=words):
        ENGINES[engine].options_type(**options)


@pytest.mark.parametrize(
    ("engine", "options", "words"),
    [
        ("vllm", {"kv_offloading_size": 64.0}, ("--kv-offloading-size", "64.0")),
        ("vllm", {"enable_lora": True, "max_cpu_loras": 16}, ("--enable-lora", "--max-cpu-loras", "16")),
        (
            "sglang",
            {"enable_hierarchical_cache": True, "hicache_size": 32},
            ("--enable-hierarchical-cache", "--hicache-size", "32"),
        ),
    ],
)
def test_the_command_has_the_flags(engine, options, words):
    kind = ENGINES[engine]
    launch = kind(kind.options_type(**options)).launch(ServerStart("Qwen/Qwen3-8B", Precision(), Layout(), 8192))
    assert " ".join(words) in " ".join(launch.words)
