"""Wordings of the lines that are read, one row a wording: the term, the words that announce it, and what follows.

Collected from public logs of 2024 to 2026. Patterns begin with fixed words and
every gap is bounded, so that reading takes time in proportion to the text, whatever it is.
"""

import re
from typing import Literal, NamedTuple

from calc.units import GIB, MIB
from calc.verify.logs.log import Engine

Term = Literal[
    "weights",
    "kv_bytes",
    "kv_tokens",
    "kv_needed",
    "blocks",
    "concurrency",
    "concurrency_length",
    "estimated_max_model_len",
    "max_model_len",
    "max_num_batched_tokens",
    "gpu_memory_utilization",
    "activations",
    "torch_peak",
    "non_torch",
    "cuda_graphs",
    "total",
    "free",
]
BYTES = {"bytes": 1, "KiB": 2**10, "MiB": MIB, "GiB": GIB, "KB": 2**10, "MB": MIB, "GB": GIB}
DECIMAL = r"[0-9]{1,15}(?:\.[0-9]{1,9})?"
SIZE = r"(?P<NAME>-?DECIMAL) ?(?P<NAME_unit>bytes|[KMG]i?B)".replace("DECIMAL", DECIMAL)
COUNT = r"(?P<count>[0-9][0-9,]{0,18})"
NUMBER = rf"(?P<number>{DECIMAL})"
GAP = r".{0,200}?"


class Line(NamedTuple):
    """A wording. The term is the sum of the sizes that the pattern names, or its count, or its number."""

    engine: Engine
    term: Term
    words: str
    pattern: re.Pattern[str]


def line(engine: Engine, term: Term, words: str, rest: str) -> Line:
    names = iter("abc")
    rest = re.sub("SIZE", lambda _: SIZE.replace("NAME", next(names)), rest)
    for word, pattern in {"COUNT": COUNT, "NUMBER": NUMBER, "DECIMAL": DECIMAL, "GAP": GAP}.items():
        rest = rest.replace(word, pattern)
    return Line(engine, term, words, re.compile(re.escape(words) + rest, re.ASCII))


LINES = (
    line("vllm", "weights", "Model loading took ", "SIZE"),  # from March 2025 on
    line("vllm", "weights", "Loading model weights took ", "SIZE"),
    line("vllm", "weights", "model weights take ", "SIZE"),  # V0 from 0.7 on, one line with the next three
    line("vllm", "non_torch", "non_torch_memory takes ", "SIZE"),
    line("vllm", "activations", "PyTorch activation peak memory takes ", "SIZE"),
    line("vllm", "kv_bytes", "memory reserved for KV Cache is ", "SIZE"),
    line("vllm", "total", "total_gpu_memory (", "SIZE"),
    line("vllm", "gpu_memory_utilization", "x gpu_memory_utilization (", "NUMBER"),
    line("vllm", "total", "total_gpu_memory=", "SIZE"),  # 0.6, one line with the next four
    line("vllm", "torch_peak", "peak_torch_memory=", "SIZE"),
    line("vllm", "non_torch", "non_torch_memory=", "SIZE"),
    line("vllm", "kv_bytes", "kv_cache_size=", "SIZE"),
    line("vllm", "gpu_memory_utilization", " gpu_memory_utilization=", "NUMBER"),
    line("vllm", "kv_bytes", "Available KV cache memory: ", "SIZE"),  # V1
    line("vllm", "kv_tokens", "GPU KV cache size: ", "COUNT tokens"),
    line("vllm", "blocks", "GPU blocks: ", "COUNT"),
    line("vllm", "blocks", "CUDA blocks: ", "COUNT"),
    line("vllm", "blocks", "cuda blocks: ", "COUNT"),
    line("vllm", "concurrency", "Maximum concurrency for ", r"[0-9,]{1,15} tokens per request: NUMBERx"),
    line("vllm", "concurrency_length", "Maximum concurrency for ", "COUNT tokens per request"),
    line("vllm", "cuda_graphs", "Graph capturing finished in ", r".{0,20}? secs?, took SIZE"),
    line("vllm", "free", "Free memory on device", r"(?: cuda:[0-9]{1,4})? \((?P<a>DECIMAL)/DECIMAL (?P<a_unit>GiB)"),
    line("vllm", "total", "Free memory on device", r"(?: cuda:[0-9]{1,4})? \(DECIMAL/(?P<a>DECIMAL) (?P<a_unit>GiB)"),
    line("vllm", "gpu_memory_utilization", "GPU memory utilization ", r"(?:is )?\(NUMBER, "),
    line("vllm", "weights", "Actual usage is ", "SIZE for weight"),
    line("vllm", "activations", "Actual usage is ", "GAP, SIZE for peak activation"),
    line("vllm", "non_torch", "Actual usage is ", "GAP, SIZE for non-torch memory"),
    line("vllm", "cuda_graphs", "Actual usage is ", "GAP SIZE for CUDAGraph memory"),
    line("vllm", "max_model_len", "Using max model len ", "COUNT"),
    line("vllm", "max_num_batched_tokens", "Chunked prefill is enabled with max_num_batched_tokens=", "COUNT"),
    line("vllm", "max_model_len", "max seq len (", "COUNT"),  # what it says when it refuses to start
    line("vllm", "kv_tokens", "can be stored in KV cache (", "COUNT"),
    line("vllm", "kv_needed", "max seq len (", r"[0-9,]{1,15}\),? \(?SIZE KV cache is needed"),
    line("vllm", "kv_bytes", "larger than the available KV cache memory (", "SIZE"),
    line("vllm", "estimated_max_model_len", "estimated maximum model length is ", "COUNT"),
    line("sglang", "free", "Load weight begin. ", "avail mem=SIZE"),
    line("sglang", "weights", "Load weight end. ", "GAPmem usage=SIZE"),
    line("sglang", "kv_tokens", "Use sliding window memory pool. ", "full_layer_tokens=COUNT"),
    line("sglang", "kv_tokens", "KV Cache is allocated. ", "GAP#tokens: COUNT"),
    line("sglang", "kv_bytes", "KV Cache is allocated. ", "GAPK size: SIZE, V size: SIZE"),
    line("sglang", "kv_bytes", "KV Cache is allocated. ", "GAPKV size: SIZE"),  # latent attention
    line("sglang", "cuda_graphs", "Capture ", "GAP(?i:cuda graph) end.GAPmem usage=SIZE"),
    line("sglang", "kv_tokens", "max_total_num_tokens=", "COUNT"),
)

STARTS: tuple[tuple[Engine, str], ...] = (
    ("vllm", "vLLM API server version "),
    ("vllm", "LLM engine ("),
    ("vllm", "LLM engine with config"),
    ("vllm", "non-default args: "),
    ("vllm", "args: Namespace("),
    ("sglang", "ServerArgs("),
)
"""Lines that open a start, or continue one of which no figure is read yet; all of them list settings."""

SETTINGS_TOO = ("max_total_num_tokens=",)  # SGLang's last line before it serves

FIELDS = {
    "model": "model",
    "model_path": "model",
    "max_model_len": "max_model_len",
    "max_seq_len": "max_model_len",
    "context_length": "max_model_len",
    "context_len": "max_model_len",
    "tensor_parallel_size": "tensor_parallel_size",
    "tp_size": "tensor_parallel_size",
    "pipeline_parallel_size": "pipeline_parallel_size",
    "pp_size": "pipeline_parallel_size",
    "data_parallel_size": "data_parallel_size",
    "dp_size": "data_parallel_size",
    "gpu_memory_utilization": "gpu_memory_utilization",
    "mem_fraction_static": "mem_fraction_static",
    "max_num_batched_tokens": "max_num_batched_tokens",
    "chunked_prefill_size": "max_num_batched_tokens",
    "max_num_seqs": "max_num_seqs",
    "max_running_requests": "max_num_seqs",
    "block_size": "block_size",
    "dtype": "dtype",
    "quantization": "quantization",
    "kv_cache_dtype": "kv_cache_dtype",
    "enforce_eager": "enforce_eager",
    "disable_cuda_graph": "enforce_eager",
    "enable_lora": "enable_lora",
    "speculative_config": "speculative",
    "speculative_algorithm": "speculative",
}
"""A setting by the engine's name -> the field of Settings."""
SETTING = re.compile(
    rf"(?<![\w-])'?({'|'.join(FIELDS)})'?(?:=|: )(?:'([^']{{1,300}})'|([^\s,'\"}})]{{1,300}}))", re.ASCII
)
VERSION = re.compile(r"(?:LLM engine \(v|API server version )([0-9][0-9A-Za-z.+-]{0,60})", re.ASCII)
RANK = re.compile(
    r"\(\w{1,40} (?:rank=[0-9]{1,6} )?pid=[0-9]{1,10}|(?<=[0-9] )(?:(?:DP|PP|TP|EP|CP)[0-9]{1,5} ?){1,5}(?=\])",
    re.ASCII,
)
"""(VllmWorker rank=0 pid=5), (Worker_TP0 pid=5) and, of SGLang, [2025-05-09 15:00:14 DP2 TP2]; the last is the rank."""
ANSI = re.compile(r"\x1b\[[0-9;]{0,20}[A-Za-z]")

OOM_WORDS = "out of memory. Tried to allocate "
OOM = {
    "tried": (r"Tried to allocate SIZE",),
    "total": (r"has a total capac(?:i)?ty of SIZE", r"; SIZE total capacity"),
    "free": (r"of which SIZE is free", r"; SIZE free"),
    "allocated": (r"allocated memory SIZE is allocated by PyTorch", r"; SIZE already allocated"),
    "reserved": (r"SIZE is reserved by PyTorch but unallocated",),
    "in_use": (r"this process has SIZE memory in use",),
    "others": (r"Process [0-9]{1,10} has SIZE memory in use",),
    "pool": (r"; SIZE reserved in total by PyTorch", r"; SIZE cached"),
}
"""PyTorch's message from 2.1 on, and before it. Its sizes are binary (c10/cuda/CUDACachingAllocator.cpp)."""
OOM_PATTERNS = {
    name: tuple(re.compile(wording.replace("SIZE", SIZE.replace("NAME", "a")), re.ASCII) for wording in wordings)
    for name, wordings in OOM.items()
}
