"""The start-up log of SGLang, in the wordings of public logs of 2024 to 2026."""

import re
from typing import ClassVar

from calc.errors import Message
from calc.hardware.parallel import Layout
from calc.options import made
from calc.serving.engines.engine import Engine
from calc.serving.engines.sglang.engine import SGLang
from calc.serving.engines.sglang.options import SGLangOptions
from calc.serving.engines.startup_log import LogSettings, StartupLog, line


class SGLangLog(StartupLog):
    engine = SGLang
    openings = ("ServerArgs(",)
    closings = ("max_total_num_tokens=",)  # the last line before it serves
    fields: ClassVar = {
        "model_path": "model",
        "context_length": "max_model_len",
        "context_len": "max_model_len",
        "tp_size": "tensor_parallel_size",
        "pp_size": "pipeline_parallel_size",
        "dp_size": "data_parallel_size",
        "mem_fraction_static": "mem_fraction_static",
        "chunked_prefill_size": "max_num_batched_tokens",
        "max_running_requests": "max_num_seqs",
        "dtype": "dtype",
        "quantization": "quantization",
        "kv_cache_dtype": "kv_cache_dtype",
        "disable_cuda_graph": "enforce_eager",
        "enable_lora": "enable_lora",
        "speculative_algorithm": "speculative",
    }
    lines = (
        line("free", "Load weight begin. ", "avail mem=SIZE"),
        line("weights", "Load weight end. ", "GAPmem usage=SIZE"),
        line("kv_tokens", "Use sliding window memory pool. ", "full_layer_tokens=COUNT"),
        line("kv_tokens", "KV Cache is allocated. ", "GAP#tokens: COUNT"),
        line("kv_bytes", "KV Cache is allocated. ", "GAPK size: SIZE, V size: SIZE"),
        line("kv_bytes", "KV Cache is allocated. ", "GAPKV size: SIZE"),  # latent attention
        line("cuda_graphs", "Capture ", "GAP(?i:cuda graph) end.GAPmem usage=SIZE"),
        line("kv_tokens", "max_total_num_tokens=", "COUNT"),
    )
    rank = re.compile(r"(?<=[0-9] )(?:(?:DP|PP|TP|EP|CP)[0-9]{1,5} ?){1,5}(?=\])", re.ASCII)
    # [2025-05-09 15:00:14 DP2 TP2]
    repeats = True
    cache_sizes = 2  # keys and values

    def started(self, settings: LogSettings, version: str | None) -> Engine:
        return SGLang(
            made(
                SGLangOptions,
                {
                    "mem_fraction_static": settings.mem_fraction_static,
                    "chunked_prefill_size": settings.max_num_batched_tokens,
                    "max_running_requests": settings.max_num_seqs,
                    "disable_cuda_graph": bool(settings.enforce_eager),
                },
            )
        )

    def layout(self, settings: LogSettings) -> Layout:
        """Copies of the attention lie within its tp."""
        return super().layout(settings.model_copy(update={"data_parallel_size": 1}))

    def why_heavier(self, settings: LogSettings, more: int, libraries: int) -> Message | None:
        """It reads what is gone from the GPU's free memory."""
        if more > libraries:
            return None
        return Message(
            "SGLang reads what is gone from the GPU's free memory, of which libraries take a part while it loads"
        )
