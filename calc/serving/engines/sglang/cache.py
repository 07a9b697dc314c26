"""SGLang's cache: a pool of tokens, one of tokens in layers with a window, and one of recurrent states; its pages, and
the bits of a token, by the attention kernel.

Read in SGLang 0.5.23: `model_executor/pool_configurator.py` (`HybridSWAPoolConfigurator`: the window pool has its share
of the tokens; `SWARequestCapPoolConfigurator`: or room for a number of requests; `_compute_dsa_indexer_cell_size`) and
`mem_cache/kv_cache_configurator.py` (`_handle_max_mamba_cache`: states get a share of the memory, or as many as flags
say; `_calculate_mamba_ratio`: states of a request; `calculate_mla_kv_cache_dim`). Kernels:
`arg_groups/model_override_base.py` (`get_default_attn_backend`), `arg_groups/overrides.py`
(`_mla_backend_page_constraints`, `_fa4_page_constraint`), `arg_groups/model_overrides/`, `mem_cache/memory_pool.py`
(`get_minimax_sparse_index_dtype`). DeepSeek-V4's pools of tokens in the window, of compressed entries and of tokens
that wait, of which `--kv-cache-dtype` changes nothing: `DSV4PoolConfigurator` (`_get_bytes_per_swa_token`,
`_compressed_bytes_per_full_token`, `_get_c128_state_fixed_bytes`), `mem_cache/deepseek_v4_memory_pool.py`
(`get_compress_state_ring_size`) and `arg_groups/deepseek_v4_hook.py`.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from math import inf
from typing import NamedTuple

from calc.formats import CACHE_BITS, CacheFormat
from calc.hardware.gpu import GPU
from calc.hardware.parallel import Layout
from calc.model.architecture import Architecture
from calc.model.attention import GQA
from calc.model.block import Block
from calc.model.mixers import Mixer
from calc.model.mla import LatentAttention, fp8_vector_bytes
from calc.serving.engines.cache import Pool
from calc.serving.engines.families import families
from calc.serving.engines.loading import round_up
from calc.serving.engines.rules import compressing
from calc.serving.engines.sglang.options import SPECULATIVE_REQUESTS, SGLangOptions, StateStrategy, draft_length
from calc.serving.engines.sizes import LaidOut, Limits
from calc.serving.engines.vllm.layers import capability
from calc.serving.kv_cache import growth, token_bits

COMPRESSED_REQUESTS = 256
"""Requests at once where no flag says how many."""
ROTARY, SCALES, ALIGNED = 64, 8, 576
"""Elements of a key that stay in 16 bits, bytes of its scales, and a page's bytes are a multiple of this (FlashMLA)."""
RING, LONG_RING = 8, 128
"""Tokens that wait: of a page of the window where entries overlap, of a request where they do not."""
FP32 = 4


class CompressedCache(NamedTuple):
    """Bytes of the layers of a stage that compress tokens."""

    entries: float  # a token of the context, by its share of entries and their index keys
    window: float  # a token of the window pool, with its share of those that wait there
    waiting: int  # a request's tokens that wait elsewhere, for each row of their ring


def compressed_cache(blocks: Iterable[Block], page: int) -> CompressedCache:
    """Cache of a stage with pages of so many tokens: keys in fp8 but for their rotary elements."""
    entries, window, waiting = 0.0, 0.0, 0
    for layers, mixer in compressing(blocks):
        key = mixer.d_head + ROTARY + SCALES
        window += layers * round_up(page * key, ALIGNED) / page
        if mixer.rate is None:
            continue
        in_page = page // mixer.rate
        index = 0 if mixer.d_index is None else mixer.d_index + FP32 * (mixer.d_index // 128)
        entries += layers * (round_up(in_page * key, ALIGNED) / in_page + index) / mixer.rate
        of_token = FP32 * mixer.waiting_elements()  # with its gate, for one entry or two
        if mixer.overlap > 1:
            window += layers * RING / page * of_token
        else:
            waiting += layers * of_token
    return CompressedCache(entries, window, waiting)


HOPPER, BLACKWELL = "9.0", ("10.0", "10.3")
"""Compute capabilities; the second run TensorRT-LLM's attention kernels (`is_sm100`)."""
SPARSE, COMPRESSED, BLOCKS, ASYMMETRIC = 64, 256, 128, 128
"""Tokens of a page: sparse attention of DeepSeek, of DeepSeek-V4, of MiniMax-M3, and attention whose values are of
another width than its keys on Blackwell."""
GENERAL = families("sglang", "general_kernels")
DELTA = families("sglang", "delta_kernels")
LATENT = families("sglang", "latent_kernels")


def page_size(architecture: Architecture, gpu: GPU, options: SGLangOptions) -> int:
    """Tokens of a page of the cache: what `--page-size` states, as far as the kernels take it."""
    model_type, stated = architecture.model_type, options.page_size
    mixers = [mixer for block in architecture.blocks for mixer in block.mixers]
    latents = [mixer for mixer in mixers if isinstance(mixer, LatentAttention)]
    if any(mixer.indexer is not None for mixer in latents):
        return SPARSE
    if model_type == "deepseek_v4":
        return COMPRESSED
    if model_type == "minimax_m3_vl_text" and gpu.capability == HOPPER:
        return stated or BLOCKS
    if gpu.capability not in BLACKWELL:
        return stated or 1
    if latents:
        return stated or 1 if model_type not in LATENT else stated if stated in (32, 64) else 64
    if options.speculative_algorithm is not None and options.speculative_eagle_topk != 1:
        return stated or 1  # FlashInfer's kernels, since TensorRT-LLM's verify no tree
    if any(len(set(mixer.attended_widths)) > 1 for block in architecture.blocks for mixer in block.attentions):
        return ASYMMETRIC
    if model_type == "minimax_m3_vl_text":
        return BLOCKS
    if model_type in DELTA:
        buffers = options.mamba_radix_cache_strategy not in (None, "no_buffer")
        return 64 if options.disable_radix_cache or buffers else 1
    if model_type in GENERAL:
        return stated or 1
    return stated if stated in (16, 32, 64, 128) else 64


FP8_ON_BLACKWELL = families("sglang", "fp8_on_blackwell")


def stored_cache(architecture: Architecture, kv: CacheFormat, gpu: GPU) -> CacheFormat:
    """Format of the cache where a flag states `kv`, or none does, which 16 bits stand for: fp8 of sparse attention from
    compute capability 10.0 on (`arg_groups/overrides.py: _dsa_kv_cache_dtype_default`)."""
    cuda = capability(gpu)
    usual = architecture.model_type not in FP8_ON_BLACKWELL or kv not in ("bf16", "fp16")
    return kv if usual or cuda is None or cuda < (10, 0) else "fp8"


def bits_with_index(mixer: Mixer, kv: CacheFormat) -> int:
    """Bits cached per token and layer. DeepSeek's index keys are in fp8 with an fp32 scale for each 128, whatever the
    cache is in (TensorRT-LLM has the same: `DSACacheManager`)."""
    if isinstance(mixer, LatentAttention) and mixer.indexer is not None:
        index = mixer.indexer.cached_elements()
        return int((mixer.cached_elements() - index) * CACHE_BITS[kv]) + 8 * fp8_vector_bytes(index)
    return token_bits(mixer, kv)


def cached_bits(mixer: Mixer, kv: CacheFormat, gpu: GPU) -> int:
    """Bits cached per token and layer. DeepSeek's latent in fp8 has scales as its index keys have, and a rotary key in
    16 bits, except on Blackwell. MiniMax's index keys stay in 16 bits except on Hopper and Blackwell."""
    in_fp8 = kv == "fp8" and gpu.capability not in BLACKWELL
    if isinstance(mixer, LatentAttention) and mixer.indexer is not None and in_fp8:
        return sum(mixer.packed_bits().values())
    if isinstance(mixer, GQA) and mixer.indexer is not None and gpu.capability not in (HOPPER, *BLACKWELL):
        index = mixer.indexer.cached_elements()
        return int((mixer.cached_elements() - index) * CACHE_BITS[kv]) + 16 * index
    return bits_with_index(mixer, kv)


WINDOWED = families("sglang", "windowed")
FEW = families("sglang", "few_in_windows")
UNCOUNTED = families("sglang", "uncounted")
STATES: dict[StateStrategy, int] = {"no_buffer": 3, "extra_buffer_lazy": 4, "extra_buffer": 5}
"""States of a request: three, and those that follow it for the prefix cache."""
UNBUFFERED = families("sglang", "unbuffered")
EVICTION, CHUNKS = 128, 2
"""Tokens that a request keeps behind its window until they are freed, and chunks of a prompt in flight."""


def slot_bytes(blocks: Iterable[Block]) -> int:
    """Bytes of a recurrent state, in fp32, and of the columns that its convolution looks back on, in 16 bits
    (`configs/mamba_utils.py`)."""
    mixers = [(len(block.runs_in), mixer) for block in blocks for mixer in block.recurrences]
    return sum(layers * (4 * mixer.state_elements() + 2 * mixer.past_elements()) for layers, mixer in mixers)


def attention_copies(architecture: Architecture, layout: Layout) -> int:
    """Copies of the attention that share the other layers (`--attn-dp-size`); those of a model without experts are
    servers of their own, with all flags for each (`--dp-size`)."""
    return layout.dp if architecture.experts else 1


def states_of_request(model_type: str, stages: int, options: SGLangOptions) -> int:
    """States that a request takes. Without the overlapped schedule, which pipeline stages rule out, one follows it
    instead of two."""
    if options.disable_radix_cache:
        return 1
    usual: StateStrategy = "no_buffer" if model_type in UNBUFFERED else "extra_buffer"
    strategy = options.mamba_radix_cache_strategy or usual
    return STATES[strategy] - (strategy == "extra_buffer" and stages > 1)


def int_if_whole(nbytes: float) -> float:
    """An int where there is no fraction."""
    return int(nbytes) if nbytes == int(nbytes) else nbytes


def reserved(laid_out: LaidOut, layers: int, cell: float, full: float, *, pooled: bool) -> int:
    """Bytes of a token in the layers of a draft: as many as in layers of this one that keep the whole context
    (`DefaultPoolConfigurator`). `pooled`: windows have a pool of their own."""
    blocks = laid_out.stages[-1].blocks
    keeping = [
        len(block.runs_in)
        for block in blocks
        for mixer in block.mixers
        if mixer.cached_elements() and not (pooled and mixer.window)
    ]
    return int((full if pooled else cell) * layers / sum(keeping)) if layers and keeping else 0


class TokenPool(Pool):
    """All pools grow together: a block is a page of tokens with its shares of the window pool and of the states, as far
    as flags do not say how large those are. `budgets` are the bytes of all of them on each stage."""

    def __init__(
        self, laid_out: LaidOut, gpu: GPU, options: SGLangOptions, limits: Limits, draft_layers: int = 0
    ) -> None:
        """`draft_layers`: number of layers of the draft."""
        dp = attention_copies(laid_out.whole, laid_out.layout)
        model_type, layers = laid_out.whole.model_type, laid_out.whole.num_layers
        stages = [
            [block for block in stage.blocks if model_type not in UNCOUNTED or block.layers[0] < layers]
            for stage in laid_out.stages
        ]
        self.page = page_size(laid_out.whole, gpu, options)
        self.window_share = options.swa_full_tokens_ratio or (0.1 if model_type in FEW else 0.8)
        kv = stored_cache(laid_out.whole, laid_out.precision.kv, gpu)
        bits = [growth(blocks, kv, partial(cached_bits, gpu=gpu)) for blocks in stages]
        windows = {window for stage in bits for window in stage if window is not None and stage[window]}
        self.window = max(windows, default=None) if model_type in WINDOWED else None
        full = [stage.get(None, 0) / 8 for stage in bits]
        length = draft_length(options, model_type)
        self.draft_tokens = 0 if length is None else length.tokens
        windowed = [sum(stage.values()) / 8 - full_bytes for stage, full_bytes in zip(bits, full, strict=True)]
        self.only_windows = not any(full)
        running = options.max_running_requests or (None if length is None else SPECULATIVE_REQUESTS)
        requests = max(1, running // dp) if running else None
        self.running = requests or 0
        compresses = any(compressing(stages[0]))
        if not options.disable_radix_cache or compresses:
            requests = None
        pooled = self.window is not None
        share, self.window_bytes = 1.0, [0] * len(stages)
        if compresses:
            full_bytes = [compressed_cache(blocks, self.page) for blocks in stages]
            full, windowed = [stage.entries for stage in full_bytes], [stage.window for stage in full_bytes]
            # rings of so many requests, of one for padding and of one more
            rows = round_up((max(1, limits.sequences // dp) + 2) * LONG_RING + 1, LONG_RING)
            self.window_bytes = [rows * stage.waiting for stage in full_bytes]
        if self.window is not None and not self.only_windows:
            share = self.window_share
            if requests is not None:  # the window pool is made for so many requests
                steps, written = (1, self.page) if length is None else (length.tokens, 2 * length.allocated)
                each = self.window - 1 + EVICTION * steps + self.page + written
                cap = requests * each + CHUNKS * limits.step_tokens + self.page
                share, self.window = 0.0, None
                self.window_bytes = [round(round_up(cap, self.page) * passing) for passing in windowed]
        self.cells = [full_bytes + share * passing for full_bytes, passing in zip(full, windowed, strict=True)]
        self.cells[-1] += reserved(laid_out, draft_layers, self.cells[-1], full[-1], pooled=pooled)
        self.states = [slot_bytes(blocks) for blocks in stages]
        self.state = max(self.states)
        mixers = (mixer for blocks in stages for block in blocks for mixer in block.mixers)
        indexed = any(getattr(mixer, "indexer", None) is not None for mixer in mixers)
        self.keeps_tokens_alone = not (compresses or pooled or self.state or draft_layers or indexed)
        self.state_share = options.mamba_full_memory_ratio
        self.of_request = states_of_request(model_type, len(stages), options)
        self.least_states = states_of_request(model_type, 2, options)
        self.stated_slots = options.max_mamba_cache_size // dp if options.max_mamba_cache_size else requests
        shared = self.state and self.stated_slots is None
        self.states_per_token = (
            self.state_share * max(self.cells) / (self.state * self.verified_share) if shared else 0.0
        )
        self.block_bytes = tuple(map(self.page_bytes, self.cells, self.states))

    @property
    def is_additive(self) -> bool:
        """A slot of states is as large as that of the stage with the most."""
        return not self.state and not any(self.window_bytes)

    @property
    def verified_share(self) -> float:
        """States for each that a request has, with those that it writes while drafted tokens are verified."""
        return 1 + self.draft_tokens / self.of_request

    def verified_bytes(self, slots: int) -> int:
        """Bytes of the states of tokens that are verified, one for padding, in so many states of requests."""
        verified = min(self.running, slots // self.of_request) + 1
        return self.state * verified * self.draft_tokens if self.draft_tokens else 0

    def block_size(self, length: int) -> int:
        return self.page

    def fixed_bytes(self, stage: int) -> int:
        if self.stated_slots is None or not any(self.cells):
            return self.window_bytes[stage]
        states = (self.stated_slots + 1) * self.state + self.verified_bytes(self.stated_slots)
        return self.window_bytes[stage] + states

    def page_bytes(self, cell: float, state: int) -> int:
        """Bytes of a block on a stage, by those of a token and of a state."""
        if not any(self.cells):  # states alone; the share of the tokens stays empty
            return round(self.of_request * state * (1 + self.state_share) / self.state_share)
        return round(self.page * (cell + self.states_per_token * state * self.verified_share))

    def slots(self, budget: int) -> int:
        """States of requests that a stage makes of its bytes, without the one for padding."""
        if self.stated_slots is not None or not self.state:
            return self.stated_slots or 0
        shared = budget * self.state_share / (1 + self.state_share)
        return int((shared - self.state * (1 + self.draft_tokens)) // int_if_whole(self.state * self.verified_share))

    def shares(self, budgets: Sequence[int]) -> list[tuple[int, float]]:
        """Bytes for pages, less a whole number of states, and bytes of a page: by stage."""
        if not any(self.cells):
            return super().shares(budgets)
        return [
            (
                budget - windows - (self.slots(budget) + 1) * self.state - self.verified_bytes(self.slots(budget)),
                int_if_whole(self.page * cell),
            )
            for budget, windows, cell in zip(budgets, self.window_bytes, self.cells, strict=True)
        ]

    def request_tokens(self, length: int) -> float:
        """Tokens of a request in the pools of tokens. That of windows keeps a page besides the window of each."""
        if self.window is None:
            return length
        passing = min(length, self.window) + self.page
        return passing if self.only_windows else max(length, passing / self.window_share)

    def request_blocks(self, length: int) -> int:
        """Blocks that every pool needs."""
        if not any(self.cells):
            return 1
        tokens = self.request_tokens(length)
        if self.states_per_token:
            tokens = max(tokens, self.of_request / self.states_per_token)
        return -int(-tokens // self.page)

    def least_bytes(self, stage: int, batch: int, length: int) -> int:
        """Each of several stages divides its bytes between tokens and states as its own layers need them."""
        tokens = -int(-self.request_tokens(length) // self.page) * self.page
        states = 0 if self.stated_slots is not None else self.least_states * self.states[stage]
        return int(batch * (tokens * self.cells[stage] + states)) + self.fixed_bytes(stage)

    def most_requests(self, budgets: Sequence[int]) -> float:
        return max(0, min(map(self.slots, budgets))) / self.of_request if self.state else inf

    def tokens(self, blocks: int, length: int) -> int:
        """A model of states alone counts one request's: nothing is kept of them."""
        return blocks * self.page if any(self.cells) else min(blocks, 1) * length

    def tokens_of(self, nbytes: int, length: int) -> int:
        """Tokens in so many bytes; those of states are stated apart."""
        pages = [nbytes // (self.page * cell) for cell in self.cells if cell]
        return int(min(pages, default=0)) * self.page

    def states_bytes(self, stage: int, states: int) -> int | None:
        """Bytes of states, with the one for padding."""
        return (states + 1) * self.states[stage] if self.states[stage] else None
