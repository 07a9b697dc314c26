"""The start-up log of vLLM, in the wordings of public logs of 2024 to 2026."""

import re
from collections.abc import Iterator
from itertools import product
from typing import ClassVar

from calc.errors import Message
from calc.formats import Precision
from calc.options import made
from calc.serving.engines.engine import Engine
from calc.serving.engines.startup_log import Ending, LogSettings, StartupLog, line, own_names
from calc.serving.engines.vllm.engine import VLLM
from calc.serving.engines.vllm.options import Speculative, VLLMOptions


def speculative_method(settings: LogSettings) -> Speculative:
    """Speculative method by vLLM's words, from the log; `none` where it does not say what is loaded for that: a draft
    model or a head of its own."""
    method = settings.speculative_method or ""
    if method.endswith("mtp"):  # deepseek_mtp and others of older versions
        return "mtp"
    return "ngram" if method == "ngram" else "none"


class VLLMLog(StartupLog):
    engine = VLLM
    openings = (
        "vLLM API server version ",
        "LLM engine (",
        "LLM engine with config",
        "non-default args: ",
        "args: Namespace(",
    )
    fields: ClassVar = {
        **own_names(
            (
                "model max_model_len tensor_parallel_size pipeline_parallel_size data_parallel_size dtype quantization "
                "gpu_memory_utilization max_num_batched_tokens max_num_seqs block_size kv_cache_dtype enforce_eager "
                "enable_lora num_speculative_tokens"
            ).split()
        ),
        "max_seq_len": "max_model_len",
        "speculative_config": "speculative",
        "method": "speculative_method",
        "num_spec_tokens": "num_speculative_tokens",
    }
    lines = (
        line("weights", "Model loading took ", "SIZE"),  # from March 2025 on
        line("weights", "Loading model weights took ", "SIZE"),
        line("weights", "model weights take ", "SIZE"),  # V0 from 0.7 on, one line with the next three
        line("non_torch", "non_torch_memory takes ", "SIZE"),
        line("activations", "PyTorch activation peak memory takes ", "SIZE"),
        line("kv_bytes", "memory reserved for KV Cache is ", "SIZE"),
        line("total", "total_gpu_memory (", "SIZE"),
        line("gpu_memory_utilization", "x gpu_memory_utilization (", "NUMBER"),
        line("total", "total_gpu_memory=", "SIZE"),  # 0.6, one line with the next four
        line("torch_peak", "peak_torch_memory=", "SIZE"),
        line("non_torch", "non_torch_memory=", "SIZE"),
        line("kv_bytes", "kv_cache_size=", "SIZE"),
        line("gpu_memory_utilization", " gpu_memory_utilization=", "NUMBER"),
        line("kv_bytes", "Available KV cache memory: ", "SIZE"),  # V1
        line("kv_tokens", "GPU KV cache size: ", "COUNT tokens"),
        line("blocks", "GPU blocks: ", "COUNT"),
        line("blocks", "CUDA blocks: ", "COUNT"),
        line("blocks", "cuda blocks: ", "COUNT"),
        line("concurrency", "Maximum concurrency for ", r"[0-9,]{1,15} tokens per request: NUMBERx"),
        line("concurrency_length", "Maximum concurrency for ", "COUNT tokens per request"),
        line("cuda_graphs", "Graph capturing finished in ", r".{0,20}? secs?, took SIZE"),
        line("free", "Free memory on device", r"(?: [a-z]{2,8}:[0-9]{1,4})? \((?P<a>DECIMAL)/DECIMAL (?P<a_unit>GiB)"),
        line("total", "Free memory on device", r"(?: [a-z]{2,8}:[0-9]{1,4})? \(DECIMAL/(?P<a>DECIMAL) (?P<a_unit>GiB)"),
        line("gpu_memory_utilization", "GPU memory utilization ", r"(?:is )?\(NUMBER, "),
        line("weights", "Actual usage is ", "SIZE for weight"),
        line("consumed", "Actual usage is ", "SIZE for consumed memory"),  # 2026: weights and non-torch memory together
        line("activations", "Actual usage is ", "GAP, SIZE for peak activation"),
        line("non_torch", "Actual usage is ", "GAP, SIZE for non-torch memory"),
        line("cuda_graphs", "Actual usage is ", "GAP SIZE for CUDAGraph memory"),
        line("checkpoint", "Checkpoint size: ", "SIZE"),
        line("graphs_estimated", "Estimated CUDA graph memory: ", "SIZE"),
        line("graphs_estimated", "CUDA graph pool memory: ", r"-?DECIMAL GiB \(actual\), SIZE \(estimated\)"),
        line("graphs_charged", "CUDA graph memory profiling is disabled ", r"\(VLLM_MEMORY_PROFILER_\w{1,40}=COUNT\)"),
        line("cuda_graphs", "CUDA graph pool memory: ", r"(?P<a>DECIMAL) (?P<a_unit>GiB) \(actual\)"),
        line("encoder_tokens", "Encoder cache will be initialized with a budget of ", "COUNT tokens"),
        line("attention_block", "Setting attention block size to ", "COUNT tokens"),
        line("max_num_seqs", "max_num_seqs (", r"COUNT\) exceeds available Mamba cache blocks"),
        line("state_blocks", "exceeds available Mamba cache blocks (", "COUNT"),
        line("max_model_len", "Using max model len ", "COUNT"),
        line("max_num_batched_tokens", "Chunked prefill is enabled with max_num_batched_tokens=", "COUNT"),
        line("max_model_len", "max seq len (", "COUNT"),  # what it says when it refuses to start
        line("kv_tokens", "can be stored in KV cache (", "COUNT"),
        line("kv_needed", "max seq len (", r"[0-9,]{1,15}\),? \(?SIZE KV cache is needed"),
        line("kv_bytes", "larger than the available KV cache memory (", "SIZE"),
        line("estimated_max_model_len", "estimated maximum model length is ", "COUNT"),
    )
    refusals = (
        Ending("free-memory", "on startup is less than desired GPU memory utilization"),
        Ending("state-blocks", "exceeds available Mamba cache blocks"),
        Ending("length", "larger than the available KV cache memory"),
        Ending("length", "larger than the maximum number of tokens that can be stored in KV cache"),
        Ending("no-cache", "No available memory for the cache blocks"),
        Ending("out-of-memory", "CUDA out of memory occurred when warming up"),
        Ending("unknown", "EngineCore failed to start"),
        Ending("unknown", "Engine core initialization failed"),
    )
    version = re.compile(r"(?:LLM engine \(v|API server version )([0-9][0-9A-Za-z.+-]{0,60})", re.ASCII)
    rank = re.compile(r"\(\w{1,40} (?:rank=[0-9]{1,6} )?pid=[0-9]{1,10}", re.ASCII)
    # (VllmWorker rank=0 pid=5), (Worker_TP0 pid=5); the last is the rank
    block_size = 16
    states_version_rules = True

    def started(self, settings: LogSettings, version: str | None) -> Engine:
        stated = re.match(r"[0-9]{1,4}\.[0-9]{1,4}(\.[0-9]{1,4})?", version or "")  # 0.10.2 of 0.10.2.dev378+g4d7fe40fc
        speculative = speculative_method(settings)
        return VLLM(
            made(
                VLLMOptions,
                {
                    "max_num_batched_tokens": settings.max_num_batched_tokens,
                    "max_num_seqs": settings.max_num_seqs,
                    "gpu_memory_utilization": settings.gpu_memory_utilization,
                    "enforce_eager": bool(settings.enforce_eager),
                    "speculative": speculative,
                    "num_speculative_tokens": None if speculative == "none" else settings.num_speculative_tokens,
                    "version": stated[0] if stated else None,
                },
            )
        )

    def loader(self, started: Engine) -> Engine:
        """ "Model loading took" counts draft layers (`gpu_model_runner.py: load_model`)."""
        assert isinstance(started.options, VLLMOptions)
        if started.options.speculative != "mtp":
            return super().loader(started)
        return VLLM(VLLMOptions(speculative="mtp", version=started.options.version))

    def alternatives(self, engine: Engine) -> Iterator[Engine]:
        """Engines with prefix caching and without, with two steps in flight and with one."""
        assert isinstance(engine.options, VLLMOptions)
        caching, scheduling = engine.options.enable_prefix_caching, engine.options.async_scheduling
        caches = (None, True, False) if caching is None else (caching,)
        for cached, ahead in product(caches, (None, False) if scheduling is None else (scheduling,)):
            yield engine.with_options(enable_prefix_caching=cached, async_scheduling=ahead)

    def loadings(self, started: Engine, precision: Precision, vision: bool) -> Iterator[tuple[Message, Engine]]:
        """Experts in MXFP4 are padded by either kernel."""
        if precision.weights != "mxfp4":
            yield from super().loadings(started, precision, vision)
            return
        assert isinstance(started.options, VLLMOptions)
        version = started.options.version
        marlin, triton = (VLLM(VLLMOptions(mxfp4_kernel=name, version=version)) for name in ("marlin", "triton"))
        if vision:
            yield Message("The weights with the vision encoder, experts padded for Marlin,"), marlin
            yield Message("The weights with the vision encoder, experts padded for Triton,"), triton
        text = {"language_model_only": vision}
        yield Message("The weights, experts padded for Marlin,"), marlin.with_options(**text)
        yield Message("The weights, experts padded for Triton,"), triton.with_options(**text)

    def why_heavier(self, settings: LogSettings, more: int, libraries: int) -> Message | None:
        unknown = settings.speculative and speculative_method(settings) == "none"
        return Message("a draft model sits in the log's") if unknown else None
