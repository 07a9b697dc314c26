"""What changed in vLLM's planning, and with which version. The other modules say how the newest does it."""

from functools import lru_cache
from typing import Literal

from calc.serving.engines.vllm.options import Version, VLLMOptions

Change = Literal[
    "latents are not padded",
    "prompts are cut into chunks",
    "windows free their blocks",
    "states stand in blocks",
    "sampling does not sort",
    "graphs of whole decode steps",
    "links take less",
    "graphs up to twice the sequences",
    "guesses widen graphs",
    "guesses pass the sampler",
    "guesses share the head",
    "drafts on pipeline stages",
    "videos count without timestamps",
    "frames pass together",
    "Triton comes with it",
    "rows of experts are padded",
    "rows of experts are as they are",
    "scales of experts are freed",
    "groups half as large again",
    "states have a block each",
    "graphs are estimated",
    "0.92 of the GPU",
    "its share must be free",
    "graphs are of its share",
    "tokens are concurrency times length",
    "windows choose their blocks",
    "steps in flight",
    "hybrids cache prefixes",
    "shared choices cache no index keys",
    "latents beside states in blocks of 128",
    "16,384 tokens from 160 GiB on",
    "the null block is reserved",
    "the second runner",
    "the second runner filters",
    "Mamba-2 keeps a checkpoint",
    "delta nets keep a checkpoint",
]
SINCE: dict[Change, Version] = {
    "latents are not padded": (0, 8),  # before, each is rounded up to 256 bytes
    "prompts are cut into chunks": (0, 8),  # before, a step takes a whole prompt
    "windows free their blocks": (0, 10),  # before, layers with a window keep the whole context
    "states stand in blocks": (0, 10, 2),  # before, the first engine sets those of all sequences aside (mamba_cache.py)
    "graphs of whole decode steps": (0, 11),  # before, in pieces alone (cudagraph_mode)
    "graphs up to twice the sequences": (0, 12),  # before, up to 512
    "Triton comes with it": (0, 12),  # before, experts in MXFP4 run by Marlin on Hopper too
    "links take less": (0, 12),  # outside of PyTorch, by start-up logs
    "videos count without timestamps": (0, 13),
    "guesses widen graphs": (0, 13),  # before, twice the sequences, each with one token
    "guesses pass the sampler": (0, 12),  # of the first runner, when it is profiled
    "guesses share the head": (0, 16),  # before, each layer of multi-token prediction has its own
    "drafts on pipeline stages": (0, 30),
    "rows of experts are padded": (0, 17),  # by its Triton kernels, until
    "rows of experts are as they are": (0, 22),
    "frames pass together": (0, 22),  # of Gemma 4's videos; before, one at a time (gemma4_mm.py)
    "shared choices cache no index keys": (0, 24),  # before, each layer of GLM-5.2 does (deepseek_v2.py)
    "scales of experts are freed": (0, 25),  # once its Triton kernels have their own; before, both are held
    "groups half as large again": (0, 18),  # before, a quarter
    "graphs are estimated": (0, 18),  # of which some memory stays, see PROFILED
    "sampling does not sort": (0, 17),  # before, profiling sorts all logits (sample/ops/topk_topp_sampler.py)
    "states have a block each": (0, 20),  # or it does not start; before, graphs are cut to as many sequences
    "its share must be free": (0, 8),  # before, it does not look
    "0.92 of the GPU": (0, 20),  # before, 0.9
    "graphs are of its share": (0, 20),  # before, CUDA graphs lie outside
    "tokens are concurrency times length": (0, 21),  # before, one group's share of the blocks
    "windows choose their blocks": (0, 25),  # before, those of all layers
    "steps in flight": (0, 26),  # before, windows reserve for one step
    "hybrids cache prefixes": (0, 26),  # by default; before, only when asked
    "latents beside states in blocks of 128": (0, 27),
    "16,384 tokens from 160 GiB on": (0, 28),
    "the null block is reserved": (0, 29),  # in the check at start
    "the second runner": (0, 29),  # by default; its graphs take half as much
    "the second runner filters": (0, 33),  # while profiling; before, it samples with no parameters
    "Mamba-2 keeps a checkpoint": (0, 32),
    "delta nets keep a checkpoint": (0, 33),
}
"""First version that does so: read in the wheels of 0.16 to 0.33; what is older, in start-up logs."""


@lru_cache(maxsize=64)
def changes(version: str | None) -> frozenset[Change]:
    """What a version of vLLM already does."""
    options = VLLMOptions(version=version)
    return frozenset(change for change, since in SINCE.items() if not options.older(*since))


def holds(change: Change, options: VLLMOptions) -> bool:
    """Whether the version of vLLM in the options already does so."""
    return change in changes(options.version)
