"""The start-up log of SGLang, in the wordings of public logs of 2024 to 2026."""

import re
from typing import ClassVar

from calc.errors import Message
from calc.hardware.parallel import Layout
from calc.options import made
from calc.serving.engines.sglang.engine import SGLang, batches, request_table
from calc.serving.engines.sglang.options import SGLangOptions
from calc.serving.engines.startup_log import Ending, LogSettings, StartupLog, line, own_names
from calc.units import GIB

BATCHES = r"\[(?:[0-9]{1,6}, ){0,600}COUNT\]"
FLAGS = SGLangOptions.model_fields.keys() - {"speculative_algorithm"}
"""Options that a log states; of speculative decoding only that it is on."""
RATIO: float = SGLangOptions.model_fields["mamba_full_memory_ratio"].default


class SGLangLog(StartupLog):
    engine = SGLang
    openings = ("ServerArgs(",)
    closings = ("max_total_num_tokens=",)  # the last line before it serves
    fields: ClassVar = {
        **own_names(
            (
                "mem_fraction_static dtype quantization kv_cache_dtype swa_full_tokens_ratio mamba_full_memory_ratio "
                "mamba_radix_cache_strategy max_mamba_cache_size disable_radix_cache cuda_graph_max_bs enable_lora"
            ).split()
        ),
        "model_path": "model",
        "context_length": "max_model_len",
        "context_len": "max_model_len",
        "tp_size": "tensor_parallel_size",
        "pp_size": "pipeline_parallel_size",
        "dp_size": "data_parallel_size",
        "chunked_prefill_size": "max_num_batched_tokens",
        "max_running_requests": "max_num_seqs",
        "disable_cuda_graph": "enforce_eager",
        "page_size": "block_size",
        "speculative_algorithm": "speculative",
    }
    lines = (
        line("free", "Load weight begin. ", "avail mem=SIZE"),
        line("weights", "Load weight end. ", "GAPmem usage=SIZE"),
        line("kv_tokens", "Use sliding window memory pool. ", "full_layer_tokens=COUNT"),
        line("kv_tokens", "KV Cache is allocated. ", "GAP#tokens: COUNT"),
        line("kv_bytes", "KV Cache is allocated. ", "GAPK size: SIZE, V size: SIZE"),
        line("kv_bytes", "KV Cache is allocated. ", "GAPKV size: SIZE"),  # latent attention
        line("states", "Mamba Cache is allocated. ", "max_mamba_cache_size: COUNT"),
        line("state_bytes", "Mamba Cache is allocated. ", "GAPconv_state size: SIZE, ssm_state size: SIZE"),
        line("left", "Memory pool end. ", "avail mem=SIZE"),
        line("graph_batch", "Capture cuda graph bs ", BATCHES),
        line("graph_batch", "Capture target decode CUDA graph begin. ", f"GAPbs={BATCHES}"),
        line("cuda_graphs", "Capture ", "GAP(?i:cuda graph) end.GAPmem usage=SIZE"),
        line("kv_tokens", "max_total_num_tokens=", "COUNT"),
    )
    refusals = (Ending("no-cache", "Not enough memory. Please try to increase --mem-fraction-static"),)
    rank = re.compile(r"(?<=[0-9] )(?:(?:DP|PP|TP|EP|CP)[0-9]{1,5} ?){1,5}(?=\])", re.ASCII)
    # [2025-05-09 15:00:14 DP2 TP2]
    repeats = True
    cache_sizes = 2  # keys and values
    share_of_free = True
    loading_libraries = round(0.2 * GIB)  # 0.03 to 0.15 GiB in nine public logs

    def started(self, settings: LogSettings, version: str | None) -> SGLang:
        stated = {flag: getattr(settings, self.fields[flag]) for flag in FLAGS & self.fields.keys()}
        options = {flag: value for flag, value in stated.items() if value not in (None, "auto")}
        ratio = settings.mamba_full_memory_ratio or RATIO
        more = {"page_size": settings.block_size or 1, "mamba_full_memory_ratio": ratio}
        return SGLang(made(SGLangOptions, options | more))

    def layout(self, settings: LogSettings) -> Layout:
        """Copies of the attention lie within its tp."""
        return super().layout(settings.model_copy(update={"data_parallel_size": 1}))

    def tables(self, settings: LogSettings, context: int) -> int:
        return 0 if settings.max_num_seqs is None else request_table(settings.max_num_seqs, context)

    def graph_batches(self, settings: LogSettings, free: int, ranks: int) -> list[int]:
        return batches(self.started(settings, None).largest_batch(free, ranks))

    def why_heavier(self, settings: LogSettings, more: int, libraries: int) -> Message | None:
        """Reason: it reads what is gone from the GPU's free memory."""
        if more > libraries:
            return None
        return Message(
            "SGLang reads what is gone from the GPU's free memory, of which libraries take a part while it loads"
        )
