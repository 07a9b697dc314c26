"""vLLM: its limits by GPU and version, how it divides a GPU, its layout rules and its pages."""

import pytest

from calc import Architecture, Layout, Overhead, Precision, Range, Workload
from calc.hardware.overhead import HIGH, LOW, MIDDLE
from calc.model.named import largest
from calc.serving.engines.cache import Pool
from calc.serving.engines.vllm.engine import VLLM
from calc.serving.engines.vllm.options import VLLMOptions
from calc.serving.engines.vllm.working_memory import profile_peaks, sampler
from calc.serving.memory import Serving
from calc.units import GIB
from presets import gpus, models
from tests import load

H100 = gpus()["h100-sxm"]


def serving(model, layout=None, overhead=None, precision=None, **options):
    architecture = Architecture.from_config(models()[model].config)
    engine = VLLM(VLLMOptions(**options))
    return Serving.of(architecture, engine, precision or Precision(), layout or Layout(), overhead or Overhead())


def budget(model, gpu, context=8192, **options):
    return serving(model, **options).on(gpus()[gpu], Workload(context=context)).kv_budget


@pytest.mark.parametrize(
    ("gpu", "tokens", "seqs"),
    [  # vllm/engine/arg_utils.py, get_batch_defaults, of the server
        ("l4", 2048, 256),
        ("a100-sxm-80gb", 2048, 256),
        ("h100-sxm", 8192, 1024),
        ("h200-sxm", 8192, 1024),
        ("b200", 16_384, 1024),
    ],
)
def test_defaults_by_gpu(gpu, tokens, seqs):
    found = budget("Qwen/Qwen2.5-3B", gpu)
    assert (found.max_num_batched_tokens, found.max_num_seqs) == (tokens, seqs)
    assert found.gpu_memory_utilization == 0.92
    assert found.bytes_low <= found.bytes <= found.bytes_high


STATED = Overhead(libraries=Range(low=0.01, high=0.35), cuda_graphs=Range(low=0, high=2.4))
"""GiB of what else would depend on the GPU and on flags."""
LOGGED = [record for record in load("measured.json") if record["kind"] == "vllm_startup"]
UNNAMED = "Qwen2.5-32B/QwQ-32B?"  # graphs of 3.17 GiB, of a model that the log does not name


@pytest.mark.parametrize(
    ("item", "figure", "ranks"),
    [("libraries", "non_torch_gib", 1), ("libraries", "non_torch_gib", 2), ("cuda_graphs", "cudagraph_gib", 1)],
)
def test_overhead_is_what_logs_say(item, figure, ranks):
    """Every log lies within the range, and the largest of them is its end."""
    found = VLLM().overhead(ranks)[item]
    logged = [
        record["measured"][figure]
        for record in LOGGED
        if figure in record["measured"]
        and (item == "cuda_graphs" or (record["tp"] > 1) == (ranks > 1))
        and record["model"] != UNNAMED
    ]
    assert found.low <= min(logged)
    assert max(logged) == pytest.approx(found.high, abs=0.05)
    assert max(logged) <= found.high


@pytest.mark.parametrize(
    ("version", "share", "graphs_inside"),
    [("0.8.5", 0.9, False), ("0.19.1", 0.9, False), ("0.20.0", 0.92, True), ("0.32.0", 0.92, True), (None, 0.92, True)],
)
def test_what_came_with_0_20(version, share, graphs_inside):
    """vLLM's config/cache.py, and VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS in envs.py: "0" in 0.19, "1" in 0.20. What
    lies outside of its share is a CUDA context of up to 0.6 GiB, and before 0.20 graphs, here of up to 2.4."""
    laid_out = serving("Qwen/Qwen3-8B", overhead=STATED, version=version)
    found = laid_out.on(H100, Workload(context=8192)).kv_budget
    assert found.gpu_memory_utilization == share
    inside = 2.4 if graphs_inside else 0
    assert (found.bytes_high - found.bytes_low) / GIB == pytest.approx(0.34 + inside)
    assert found.outside_high / GIB == pytest.approx(3 - inside)


def test_what_it_divides():
    """Qwen3-8B on an H100 at 0.33's defaults: ceil(0.92 x total), less weights, activations, libraries and graphs, of
    which the ranges are stated here."""
    found = serving("Qwen/Qwen3-8B", overhead=STATED).on(H100, Workload(context=8192)).kv_budget
    total = H100.usable_bytes
    assert found.requested == -(-total * 92 // 100)
    assert found.profile == (14 + 4.25) * 1024 * 151_936
    own = found.weights + found.profile
    assert found.requested - found.bytes_low - own == round(0.35 * GIB) + round(2.4 * GIB)
    assert found.requested - found.bytes_high - own == round(0.01 * GIB)
    assert found.block_size == 16
    assert found.blocks == found.bytes // (16 * 36 * 2 * 8 * 128 * 2)
    assert found.tokens == 16 * found.blocks
    assert found.concurrency == pytest.approx(found.tokens / 8192)


@pytest.mark.parametrize(
    ("options", "change"),
    [  # bytes that are left for the cache, Qwen3-8B on an H100
        # 51 + 51 graphs of 36 layers by the V2 runner, half of 3.2 + 0.085 x 36 MiB each, and 0.5 GiB of their estimate
        pytest.param({"enforce_eager": True}, round((102 * 3.13 / 1024 + 0.5) * GIB), id="no graphs"),
        pytest.param({"max_num_seqs": 512}, 18.25 * 512 * 151_936, id="sampling for 512 sequences fewer"),
        pytest.param({"gpu_memory_utilization": 0.95}, H100.usable_bytes * 3 // 100, id="3 % of the GPU more"),
    ],
)
def test_what_flags_leave_for_the_cache(options, change):
    usual, found = (budget("Qwen/Qwen3-8B", "h100-sxm", **flags) for flags in ({}, options))
    assert found.bytes - usual.bytes == pytest.approx(change, abs=2)


@pytest.mark.parametrize(
    ("version", "tp", "each"),
    [
        ("0.10.2", 1, 39),
        ("0.16", 1, 39),
        ("0.17", 1, 14),
        ("0.28", 1, 14),
        pytest.param("0.33", 1, 2 + 4 + 4 + 4 + 4 + 1 / 8 + 1 / 8, id="the second runner with all parameters"),
        pytest.param("0.33", 8, 2 + 4 + 4 + 4 + 4 + 1 / 8 + 1 / 8, id="the second runner with all parameters, 8 ranks"),
    ],
)
def test_bytes_of_a_logit(version, tp, each):
    """sample/ops/topk_topp_sampler.py: from 0.17 on a kernel of Triton's masks without sorting. H100, 1,024 x 151,936:
    5.65 GiB in a log of 0.10.2. From 0.29 on gpu/sample/penalties.py keeps int32 counts and a bit of each prompt's
    words, gpu/structured_outputs.py a bit of each grammar's; from 0.33 on gpu/model_runner.py: _dummy_sampler_run
    passes all parameters, for which logits are copied in 32 bits, masked and made probabilities of."""
    options = {"version": version, "max_num_seqs": 1024}
    found = serving("Qwen/Qwen3-8B", Layout(tp=tp), **options).on(H100, Workload(context=8192)).kv_budget
    assert found.profile == each * 1024 * 151_936


@pytest.mark.parametrize(("version", "filtered"), [("0.29", False), ("0.32", False), ("0.33", True)])
def test_the_second_runner_samples_without_parameters_at_first(version, filtered):
    """gpu/model_runner.py of 0.29, 0.31 and 0.32 passes none: logits stay in 16 bits, of which ranks hold what they
    gathered and a copy in order (base_device_communicator.py: gather)."""
    vocab, tokens, sequences = 256_000, 512, 1024
    options = VLLMOptions(version=version)
    alone, several = (
        largest(profile_peaks([], 2048, vocab, tokens=tokens, sequences=sequences, sampler=sampler(options, several=n)))
        for n in (False, True)
    )
    kept = (4 + 1 / 4) * sequences * vocab
    assert alone.bytes - kept == (14 if filtered else 2) * sequences * vocab
    assert several.bytes - kept == (14 if filtered else 4) * sequences * vocab


def test_only_the_last_stage_keeps_what_sampling_needs():
    """gpu/model_runner.py: `if self.is_last_pp_rank and not self.is_pooling_model: self.sampler = ...`. The first one
    passes 8,192 tokens through a feed-forward: three states, gate, up and product in 16 bits."""
    laid_out = serving("meta-llama/Llama-3.1-70B", Layout(tp=8, pp=2), max_num_seqs=1024, max_num_batched_tokens=8192)
    first, last = laid_out.on(H100, Workload(context=8192)).requirements.at_start
    assert int(last.working.bytes) == 18.25 * 1024 * 128_256
    assert int(first.working.bytes) == 2 * 8192 * (3 * 8192 + 3 * 28_672 // 8)


def test_a_cache_of_stated_bytes():
    """--kv-cache-memory-bytes: as many blocks as they hold, wherever the weights are; it starts where there is room."""
    found = serving("deepseek-ai/DeepSeek-V3", kv_cache_memory_bytes=4 * GIB).on(gpus()["b200"], Workload())
    blocks = 4 * GIB // (32 * 70_272)  # of FlashInfer's kernel of latents
    assert (found.kv_budget.bytes, found.kv_budget.blocks) == (4 * GIB, blocks)
    assert found.kv_budget.max_model_len == (blocks - 1) * 32
    assert not found.starts(LOW)
    small = serving("Qwen/Qwen3-8B", kv_cache_memory_bytes=4 * GIB).on(H100, Workload())
    assert small.starts(HIGH)
    assert small.kv_budget.tokens == 4 * GIB // (16 * 147_456) * 16


@pytest.mark.parametrize(
    ("share", "context", "starts"),
    [  # of 22.05 GiB: "Free memory on device (...) is less than desired GPU memory utilization"
        (0.9, 0.6, True),
        (0.98, 0.6, False),
        (0.98, 0.1, True),
    ],
)
def test_it_starts_only_where_its_share_is_free(share, context, starts):
    overhead = Overhead(cuda_context=Range(low=context, high=context))
    one = serving("Qwen/Qwen2.5-3B", overhead=overhead, gpu_memory_utilization=share)
    found = one.on(gpus()["l4"], Workload(context=1024))
    assert found.starts(MIDDLE) == starts
    assert (found.spare >= 0) == starts
    assert (found.kv_budget.max_model_len > 0) == starts


def test_a_share_of_the_gpu_is_all_that_it_may_take():
    """What is asked for is total x share; a CUDA context of 0.25 to 0.6 GiB lies outside."""
    gpu = gpus()["l4"]
    found = [
        serving("Qwen/Qwen2.5-3B", gpu_memory_utilization=share).on(gpu, Workload(context=1024)) for share in (0.5, 0.9)
    ]
    assert [one.usable for one in found] == [
        -(-gpu.usable_bytes * share // 100) + (round(0.25 * GIB) + round(0.6 * GIB)) // 2 for share in (50, 90)
    ]


@pytest.mark.parametrize(
    ("layers", "pp", "stages"),
    [
        (61, 1, [61]),
        (61, 2, [31, 30]),
        (61, 16, [3, 3, *[4] * 13, 3]),
        (22, 4, [5, 6, 6, 5]),
        (36, 4, [9, 9, 9, 9]),
        (5, 5, [1] * 5),
    ],
)
def test_layers_of_each_stage(layers, pp, stages):
    """`get_pp_indices`."""
    ranges = list(VLLM().stages(layers, pp))
    assert [len(stage) for stage in ranges] == stages
    assert [layer for stage in ranges for layer in stage] == list(range(layers))


@pytest.mark.parametrize(
    ("rows", "tp", "share"),
    [(50_257, 1, 50_257), (50_257, 4, 50_304 // 4), (151_936, 4, 151_936 // 4), (32_001, 8, 32_064 // 8)],
)
def test_rows_of_the_vocabulary_on_a_rank(rows, tp, share):
    """Padded to a multiple of 64 (`vocab_parallel_embedding.py`); of one GPU the padding is listed apart."""
    assert VLLM().vocabulary(rows, tp) == share


@pytest.mark.parametrize(
    ("model", "tp", "length", "tokens", "concurrency", "version"),
    [  # "GPU KV cache size" and "Maximum concurrency" of github.com/vllm-project/vllm/issues
        pytest.param("meta-llama/Llama-3.1-8B", 1, 32_768, 158_656, 4.84, "0.8.4", id="17122"),
        pytest.param("Qwen/Qwen2.5-7B", 2, 32_768, 473_184, 14.44, "0.8.5", id="17395"),
        pytest.param("meta-llama/Llama-3.1-8B", 1, 131_072, 442_160, 3.37, "0.8.5", id="18322"),
        pytest.param("Qwen/Qwen3.5-27B", 1, 32_768, 290_864, 33.04, "0.19.0", id="40691: 16 layers of 64 attend"),
    ],
)
def test_tokens_are_concurrency_times_length(model, tp, length, tokens, concurrency, version):
    """The budget is not printed: the smallest that gives the tokens also gives the requests, or one block more does."""
    cache = serving(model, Layout(tp=tp), version=version).on(H100, Workload(context=length)).cache
    assert isinstance(cache, Pool)
    groups = next(count for count in range(1, 9) if cache.tokens(count, length) > 0)  # blocks of one token
    blocks = tokens // cache.block_size(length) * groups
    assert tokens % cache.block_size(length) == 0
    assert [cache.tokens(blocks + more, length) for more in range(groups)] == [tokens] * groups
    assert cache.concurrency(blocks, length) <= concurrency + 0.005
    assert cache.concurrency(blocks + groups - 1, length) >= concurrency - 0.005


@pytest.mark.parametrize("model", ["meta-llama/Llama-3.1-8B", "openai/gpt-oss-20b", "Qwen/Qwen3.5-9B"])
def test_more_memory_never_holds_fewer_tokens(model):
    found = [budget(model, "h100-sxm", gpu_memory_utilization=share / 10) for share in range(2, 11)]
    assert [b.tokens for b in found] == sorted(b.tokens for b in found)
    assert [b.concurrency for b in found] == sorted(b.concurrency for b in found)
    assert found[-2].tokens > found[-4].tokens > 0


@pytest.mark.parametrize(
    ("model", "stated", "message"),
    [
        ("Qwen/Qwen3-8B", {"kv_cache_memory_bytes": 1, "num_gpu_blocks_override": 1}, "both set the size"),
        ("Qwen/Qwen3-8B", {"speculative": "mtp"}, "no multi-token prediction"),
        ("Qwen/Qwen3-8B", {"num_speculative_tokens": 2}, "no effect without speculative"),
        ("Qwen/Qwen3-8B", {"version": "²"}, "pattern"),
        ("Qwen/Qwen3-8B", {"gpu_memory_utilization": 1.1}, "less than or equal to 1"),
    ],
)
def test_what_is_refused(model, stated, message):
    with pytest.raises(ValueError, match=message):
        serving(model, **stated)


def test_a_draft_layer_has_weights_and_a_cache_of_its_own():
    """EAGLE's is one more layer of Llama 3.1 8B and a projection of 8,192 to 4,096; its cache 4,096 bytes a token."""
    plain, eagle = (
        serving("meta-llama/Llama-3.1-8B", speculative=name).on(H100, Workload(context=1024))
        for name in ("none", "eagle")
    )
    layer = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14_336 + 2 * 4096
    assert eagle.memory.weights - plain.memory.weights == 2 * (layer + 2 * 4096 * 4096)
    assert eagle.memory.kv_cache - plain.memory.kv_cache == 1024 * 4096
