"""The cache as mlx-lm keeps it (`models/cache.py` and `make_cache` of each family's file in mlx-lm 0.32.2)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from calc.formats import CACHE_BITS, Precision
from calc.model.architecture import Architecture
from calc.model.block import Block
from calc.model.mixers import Mixer
from calc.serving.engines.cache import Cache
from calc.serving.engines.families import families
from calc.serving.engines.loading import round_up
from calc.serving.engines.mlx.options import STEP, MLXOptions

ROTATING = families("mlx", "rotating")
CHUNKED = families("mlx", "chunked")
"""Families whose layers with a window have a rotating cache, or one that grows on by a step beyond its window."""
OWN_CACHES = ROTATING | CHUNKED | families("mlx", "other_caches")
"""Families whose files make caches of their own (`make_cache`), which --max-kv-size does not change."""
EXPANDED_LATENTS = families("mlx", "expanded")
"""Families with latent attention whose cache holds keys and values of every head."""
TOKEN_LOOPS = {"falcon_mamba": 1, "jamba": 5, "mamba": 1}
"""Families whose recurrence is a loop over tokens, with a state as wide as the activations -> arrays as large as the
states of all tokens."""
CACHE_LISTS = families("mlx", "in_lists")
"""Families whose layers keep a list of caches, which is never quantized."""


@dataclass(frozen=True)
class LayerCache:
    """Cache of equal layers, in bits of a token."""

    layers: int
    bits: int
    quantized_bits: int | None = None  # once the cache is quantized; None: it never is
    window: int | None = None  # tokens that a rotating cache keeps
    chunk: int | None = None  # tokens that a cache keeps beyond which it grows by a step

    def bytes(self, length: int, prompt: int, start: int) -> int:
        """Bytes of a sequence of so many tokens, of which its prompt was so many; quantized from `start` on."""
        is_quantized = self.quantized_bits is not None and length >= start
        bits = self.quantized_bits if is_quantized and self.quantized_bits is not None else self.bits
        return self.layers * self.tokens(length, prompt) * bits // 8

    def tokens(self, length: int, prompt: int) -> int:
        """Tokens for which there is room: whole steps, or behind the prompt so many steps, up to a window."""
        if self.chunk is not None and length > self.chunk:
            return self.chunk + STEP
        if self.window is None:
            return round_up(length, STEP)
        passed = prompt - 1
        return min(self.window, passed + round_up(length - passed, STEP))

    def prompt_bytes(self, last: "PromptPass", start: int) -> int:
        """Bytes of a sequence at the end of a pass over its prompt: a rotating cache then holds what the pass brought
        next to the window before it."""
        if self.window is None:
            return self.bytes(last.length, last.length + 1, start)
        before = min(last.length - last.tokens, self.window - 1)
        return self.layers * (before + last.tokens) * self.bits // 8


class PromptPass(NamedTuple):
    """A pass over a prompt."""

    length: int  # tokens that have passed with it
    tokens: int  # tokens of a sequence in this pass


class PromptCache(Cache):
    """One cache a layer. What a pass of the prompt adds to a rotating one is gone with the first token that follows."""

    def __init__(self, model: Architecture, precision: Precision, options: MLXOptions) -> None:
        self.options, self.step = options, options.prefill_step_size
        self.layers = list(layer_caches(model, precision, options))
        self.state = sum(len(block.runs_in) * state_bytes(model, block) for block in model.blocks)

    def required_bytes(self, stage: int, batch: int, length: int) -> int:
        return self.generating_bytes(batch, length, length)

    def generating_bytes(self, batch: int, length: int, prompt: int) -> int:
        """Bytes once sequences have so many tokens, of which their prompts were so many."""
        start = self.options.quantized_kv_start
        return batch * (sum(layer.bytes(length, prompt, start) for layer in self.layers) + self.state)

    def last_passes(self, prompt: int) -> list[PromptPass]:
        """The last whole step of a prompt, and what is left then but for one token, which the next pass gets."""
        passed = max(1, prompt - 1)
        rest = passed % self.step
        whole = [PromptPass(passed - rest, self.step)] if passed >= self.step else []
        return [*whole, PromptPass(passed, rest)] if rest else whole

    def prompt_bytes(self, batch: int, last: PromptPass) -> int:
        """Bytes at the end of a pass over the prompts."""
        start = self.options.quantized_kv_start
        return batch * (sum(layer.prompt_bytes(last, start) for layer in self.layers) + self.state)


def layer_caches(model: Architecture, precision: Precision, options: MLXOptions) -> Iterator[LayerCache]:
    """Caches of the layers with attention, equal ones together."""
    family, kv = model.model_type, CACHE_BITS[precision.kv]
    for block in model.blocks:
        for mixer in block.attentions:
            elements = cached_elements(mixer, family)
            if not elements:
                continue
            window = options.max_kv_size if family not in OWN_CACHES else None
            if family in ROTATING:
                window = mixer.window
            chunk = mixer.window if family in CHUNKED else None
            quantized = None
            if options.kv_bits is not None and family not in CACHE_LISTS:
                quantized = elements * options.kv_bits + elements // options.kv_group_size * 32
            yield LayerCache(len(block.runs_in), int(elements * kv), quantized, window, chunk)


def cached_elements(mixer: Mixer, family: str) -> int:
    """Elements that a token leaves in the cache of a layer."""
    grouped = mixer.as_grouped() if family in EXPANDED_LATENTS else None
    return int((mixer if grouped is None else grouped).cached_elements())


def state_bytes(model: Architecture, block: Block) -> int:
    """Bytes of a sequence's states in one layer: what a convolution looks back on in 16 bits, and what a kernel updates
    in 32."""
    width = 2 if model.model_type in TOKEN_LOOPS else 4
    return sum(2 * mixer.past_elements() + width * mixer.state_elements() for mixer in block.recurrences)
