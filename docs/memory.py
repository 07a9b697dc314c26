"""python -m docs.memory > docs/memory.md: how each term of the memory to serve is computed, on one worked example."""

from collections.abc import Iterable, Iterator

from calc import Architecture, Layout, Overhead, Precision, Workload
from calc.model.derivation import Step, Symbols
from calc.model.mixers import Mixer
from calc.serving.derivation import Derivations, cache_steps
from calc.serving.engines import ENGINES
from calc.serving.memory import Serving
from presets import gpus, models

MODEL, GPU, BATCH, CONTEXT = "Qwen/Qwen3-8B", "h100-sxm", 4, 8192
KINDS = (
    ("grouped-query attention, arXiv:2305.13245", "gqa", "Qwen/Qwen3-8B"),
    ("latent attention, arXiv:2405.04434 section 2.1", "mla", "deepseek-ai/DeepSeek-V3"),
    ("latent attention with an indexer, arXiv:2512.02556", "mla", "zai-org/GLM-5.2"),
    ("compressed attention, DeepSeek-V4", "compressed", "deepseek-ai/DeepSeek-V4-Flash"),
    ("Mamba-2, arXiv:2405.21060", "mamba2", "nvidia/NVIDIA-Nemotron-Nano-9B-v2"),
    ("gated delta rule, arXiv:2412.06464", "gated_delta", "Qwen/Qwen3-Next-80B-A3B-Instruct"),
)
"""Kinds of mixers, each with its source, its name in the code, and a preset that has it."""

INTRODUCTION = f"""# How the memory to serve is computed

Written by `python -m docs.memory > docs/memory.md`: the formulas are those that the code runs, on symbols instead of
numbers. The example is {MODEL} in bf16 on one H100 under vLLM, {BATCH} sequences of {CONTEXT:,} tokens; the page
Derive writes the same for any model, engine and GPU. GiB is 2^30 bytes.
"""
WEIGHTS = """## Weights

`Architecture.tensors()` lists every tensor of the checkpoint by name and shape (`calc/families`); a rank's list is that
of `Layout.rank`: columns or heads divided by tp, experts by ep, layers by pp, and what can't be divided whole on each.
Copies of the attention hold what is not routed experts each for itself; SGLang's share dense feed-forwards, shared
experts and the head, unless flags leave them whole (`Engine.groups`).
A tensor in a format takes

    elements x bits / 8 + scales        scales: one for each block of the matrix (calc/formats/table.py)

Embedding, head, norms and router stay in 16 bits unless the checkpoint's own `quantization_config` says otherwise.
MLX's formats hold embedding and head too, with 32 bits for each group of 64 weights: a scale and a bias
(`calc/serving/engines/mlx/loading.py`).
"""
LOADED = """What the engine holds differs from the file: rows and columns that kernels pad, tables of sines and cosines,
latent up-projections kept once more, and what PyTorch's allocator rounds up to (512 bytes; from 10 MiB on whole
segments of 2 MiB, `c10/cuda/CUDACachingAllocator.cpp`). `calc/serving/engines/loading.py` has each with its source.
"""
CACHE = """## KV cache and states

Elements that one token adds to the cache of a layer, as each kind of mixer says (`cached_elements` in `calc/model`), or
that a sequence keeps whatever its length (`state_elements`, `conv_elements`):
"""
CACHE_NOTES = """Bits an element are those of the cache's format (`CACHE_BITS`). KV heads are divided over tp ranks
until each has one; a latent is whole on every rank, unless dcp shares the tokens. A layer with a sliding window stops
growing there, a state never grows. Engines keep whole blocks: a request takes

    blocks of a request = ceil(tokens / block size), by group of layers     (calc/serving/engines/NAME/cache.py)

MLX's cache of a layer grows by 256 tokens, a rotating one up to its window; while a prompt passes, that one holds the
tokens of the pass next to the window before them.
"""
ACTIVATIONS = """## Activations

The largest moment of a forward pass, written as the tensors that are alive in it, in each layer, in the vision encoder
and at the logits (`peaks` of each engine: `vllm/working_memory.py`, `sglang`, `transformers/working_memory.py`,
`llamacpp/graph.py`, `mlx/working_memory.py`). vLLM finds it at start with a full step of `max_num_batched_tokens`,
`max_num_seqs` of them sampled. MLX's were measured on its CPU build, where scores of attention are in memory; on Metal,
where it is one kernel for most widths of heads, they are computed. What operations hold that the CPU has handed to the
GPU and that have not run yet is in the range of the overhead.
"""
OVERHEAD = """## Overhead

What no formula closes is a range, from public start-up logs: the CUDA context, libraries and buffers between GPUs
("non-torch" in vLLM's logs), CUDA graphs by the sizes that are captured, and what loading leaves. The middle counts; a
verdict that holds only below the middle is "tight".
"""
BUDGET = """## The budget, and the verdict

vLLM and SGLang set their cache aside at start. vLLM takes its share of the GPU (`gpu_memory_utilization`) less what it
holds; what is left is cut into blocks (`gpu_worker.py: determine_available_memory`):
"""
VERDICT = """It fits where the engine starts at the high end of the overhead and the blocks hold every sequence in its
middle. `calc/serving/memory.py: Allocation` is the one model that pages, plans, the map, levers and commands ask.
How close such figures came to what servers print stands on the page Accuracy.
"""
HOST = """## The host's memory

Files of weights are mapped while they are loaded: vLLM and SGLang by `safe_open` (`safetensors_weights_iterator`, its
strategy lazy), transformers shard by shard, llama.cpp and MLX by mmap. So up to all of them lie in the page cache of
each machine, once for all its ranks; nothing is pinned, and the kernel takes the pages back where memory is short.
vLLM's strategy eager holds a whole file in each rank besides; how large the largest file is, a config does not say.

vLLM's `--kv-offloading-size` is of all ranks of a copy: rows of one block of every rank, padded to pages of 4,096 bytes
(`v1/kv_offload/cpu/spec.py`). Versions that keep one copy of a latent for all ranks hold more; with LMCache its own
server says how much. SGLang's `--enable-hierarchical-cache` keeps `--hicache-ratio` times the tokens of the GPU, or
`--hicache-size` GB of each rank, to the page above (`mem_cache/pool_host/base.py`); models with pools of windows,
states or index keys are left out. llama-server keeps earlier prompts in up to 8 GiB (`--cache-ram`), as they come. On
disk a tier takes the bytes of a token for each, up to LMCache's `max_local_disk_size`. LoRA adapters wait whole in
every rank, `--max-cpu-loras` of them (`lora/lora_model.py`). Qwen3-8B with 2 adapters of rank 16 at once, 8 on the
host, and 64 GiB of cache there, on two ranks:
"""
TRAINING = """## Training

A step is computed operation by operation: what each module saves for its backward pass, when it is freed, gradients,
the optimizer's states and what sharding gathers (`calc/training`). [training.md](training.md) lays 207 whole steps
beside torch's own account of them.
"""


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    cells = [list(head), *map(list, rows)]
    lines = ["| " + " | ".join(row) + " |" for row in cells]
    return "\n".join([lines[0], "| " + " | ".join("---" for _ in cells[0]) + " |", *lines[1:]]) + "\n"


def steps(lines: Iterable[Step]) -> str:
    """A line each: what it is, its formula with symbols and with values, and the result."""
    rows = (
        (str(line.what), f"`{line.formula}`" * bool(line.formula), f"`{line.values}`" * bool(line.values), number(line))
        for line in lines
    )
    return table(("", "Formula", "With values", "Result"), rows)


def number(line: Step) -> str:
    return f"{line.result:,} {line.unit}"


def of_kinds() -> Iterator[tuple[str, str, str]]:
    """What each kind of mixer keeps, as its own method yields on symbols and on numbers."""
    for title, kind, preset in KINDS:
        architecture, symbols = Architecture.from_config(models()[preset].config), Symbols()
        mixers, formulas = of_blocks(architecture), of_blocks(symbols.apply(architecture))
        mixer, formula = [pair for pair in zip(mixers, formulas, strict=True) if pair[0].kind == kind][-1]
        for name in kept(mixer):
            text, _ = symbols.written(getattr(formula, name)())
            yield f"{title} ({preset})", f"`{name}` = `{text}`", f"{getattr(mixer, name)():,}"


def of_blocks(architecture: Architecture) -> list[Mixer]:
    return [mixer for block in architecture.blocks for mixer in block.mixers]


def kept(mixer: Mixer) -> tuple[str, ...]:
    """The methods that say what it keeps."""
    if hasattr(mixer, "state_elements"):
        return "state_elements", "conv_elements"
    return ("cached_elements", "compressed_elements") if mixer.compressed_elements() else ("cached_elements",)


def on_host() -> list[Step]:
    """What vLLM takes of the host's memory with adapters and a cache there."""
    kind = ENGINES["vllm"]
    options = kind.options_type(enable_lora=True, max_loras=2, max_cpu_loras=8, kv_offloading_size=64)
    model = Architecture.from_config(models()[MODEL].config)
    serving = Serving.of(model, kind(options), Precision(), Layout(tp=2), Overhead())
    return Derivations(serving.on(gpus()[GPU], Workload(batch=BATCH, context=CONTEXT))).host_memory()


def page() -> str:
    model = Architecture.from_config(models()[MODEL].config)
    serving = Serving.of(model, ENGINES["vllm"](), Precision(), Layout(), Overhead())
    worked = Derivations(serving.on(gpus()[GPU], Workload(batch=BATCH, context=CONTEXT)))
    parts = (
        INTRODUCTION,
        WEIGHTS,
        steps(worked.weights()),
        LOADED,
        steps(worked.loaded()),
        CACHE,
        table(("Kind", "Elements a layer", "There"), of_kinds()),
        CACHE_NOTES,
        steps([*cache_steps(model, "bf16"), *worked.kv_cache()]),
        ACTIVATIONS,
        steps(worked.activations()),
        OVERHEAD,
        steps(worked.overhead()),
        BUDGET,
        steps([*worked.kv_budget(), *worked.spare()]),
        VERDICT,
        HOST,
        steps(on_host()),
        TRAINING,
    )
    return "\n".join(parts)


if __name__ == "__main__":
    print(page(), end="")
