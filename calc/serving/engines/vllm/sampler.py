"""What vLLM's sampler takes for each logit: a word of the vocabulary, for a sequence that may run."""

from typing import NamedTuple

from calc.serving.engines.vllm.options import VLLMOptions
from calc.serving.engines.vllm.since import holds

SORTED, FILTERED, PLAIN, GATHERED = 39, 14, 2, 4
"""Bytes at the peak of profiling. Filtered: logits in 16 and in 32 bits, those that top-k leaves and probabilities in
32 (FlashInfer's `top_k_top_p_sampling_from_logits`). Sorted: also values and their 64-bit indices, sums and masks; of
ten start-up logs, off by 1.3 % at the median and 5.4 % at most, whose addresses are the sources of the rows “KV budget”
of `python -m benchmarks.accuracy`. Plain: the logits alone, of which ranks gather each other's and then put them in
order."""
GUESSED = 4
"""More at the peak where guesses are checked: 16-bit logits of a token that is guessed and of the next, of which the
sampler gets a copy (`v1/sample/rejection_sampler.py`; the first runner's dummy run has a guess for each sequence)."""
COUNTS, MASKS = 4, 4
"""Bytes that the second runner keeps for penalties (`gpu/sample/penalties.py: output_bin_counts`), and how many logits
a byte is kept for, of a prompt's words (`prompt_bin_mask`) and of a grammar's (`gpu/structured_outputs.py`)."""


class Sampler(NamedTuple):
    """Bytes for each logit."""

    peak: int  # while it samples for the first time, in profiling
    counts: int  # as long as the server runs


UNUSED = Sampler(0, 0)


def sampler(options: VLLMOptions, *, several: bool) -> Sampler:
    """The sampler of a version; `several`: tensor-parallel ranks share the vocabulary. The second runner samples with
    no parameters at first (`gpu/model_runner.py: _dummy_sampler_run`), later with all as the first one always has."""
    if not holds("the second runner", options):
        checked = GUESSED if options.guessed and holds("guesses pass the sampler", options) else 0
        return Sampler(checked + (FILTERED if holds("sampling does not sort", options) else SORTED), 0)
    if holds("the second runner filters", options):
        return Sampler(FILTERED, COUNTS)
    return Sampler(GATHERED if several else PLAIN, COUNTS)
