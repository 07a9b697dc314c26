"""Attention kernel that vLLM 0.33 takes, and blocks it reads (`platforms/cuda.py`, `v1/attention/backends/`)."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from calc.formats import CacheFormat
from calc.hardware.generations import Platform
from calc.hardware.gpu import GPU

Capability = tuple[int, int]


class Kernel(NamedTuple):
    """A kernel reads blocks of these sizes, in tokens; a larger block is read in parts."""

    name: str
    sizes: tuple[int, ...]
    multiples: bool = True  # it also reads a multiple in one part
    packed: bool = False  # latents are in fp8_ds_mla

    def accepts(self, block: int) -> bool:
        return any(block % size == 0 for size in self.sizes)

    @property
    def least(self) -> int:
        return min(self.sizes)

    def largest_within(self, block: int) -> int:
        """The largest block of at most so many tokens, or its least."""
        if self.multiples:
            return max(self.least, block // self.least * self.least)
        return max((size for size in self.sizes if size <= block), default=self.least)


class KernelQuery(NamedTuple):
    """Needs of a layer of attention, one head of one rank."""

    capability: Capability | None  # None: not CUDA
    kv: CacheFormat
    block: int | None  # --block-size
    d_head: int = 0
    sinks: bool = False
    image_prefix: bool = False
    n_q: int = 0
    d_nope: int = 0
    platform: Platform | None = None

    @property
    def fp8(self) -> bool:
        return self.kv in ("fp8", "fp8_ds_mla")

    def first(self, kernels: Iterable[Kernel]) -> Kernel | None:
        """The first that reads blocks of the stated size."""
        return next((kernel for kernel in kernels if self.block is None or kernel.accepts(self.block)), None)


PLAIN = (16,)
FLASHINFER = (16, 32, 64)
FP8: Capability = (8, 9)
"""First GPUs with fp8, and with Triton's kernels for it."""
ROCM = Kernel("ROCm", PLAIN)
ASCEND = Kernel("ASCEND", (128,))
"""`vllm_ascend/utils.py`: blocks of 128 tokens wherever prompts are chunked or prefixes stay."""
M3_SPARSE = Kernel("MINIMAX_M3_SPARSE", (128,), multiples=False)
M3_INDEXER = Kernel("MINIMAX_M3_SPARSE_INDEXER", (128,), multiples=False)
INDEXER = Kernel("DEEPSEEK_V32_INDEXER", (64,), multiples=False)
TRITON = Kernel("TRITON_ATTN", PLAIN)
TRITON_ONLY: frozenset[CacheFormat] = frozenset(("fp32", "int8", "int4"))
"""Formats that no other kernel reads."""

SHARING = frozenset(
    "FLASH_ATTN FLASHINFER FLASH_ATTN_MLA FLASHINFER_MLA FLASHMLA CUTLASS_MLA TRITON_MLA FLASHMLA_SPARSE "
    "FLASHINFER_MLA_SPARSE DEEPSEEK_V32_INDEXER".split()
)
"""Kernels that hand out the softmax' sums, by which ranks that share a sequence's tokens add up what they attend to
(`v1/worker/cp_utils.py`, column DCP of `docs/design/attention_backends.md`)."""


def capability(gpu: GPU) -> Capability | None:
    if gpu.platform != "cuda" or gpu.capability is None:
        return None
    major, minor = gpu.capability.split(".")
    return int(major), int(minor)


def attention_kernel(query: KernelQuery) -> Kernel | None:
    """Kernel for keys and values of each head; None where there is none."""
    if query.capability is None:
        return query.first(other_kernels(query))
    return query.first([TRITON] if query.kv in TRITON_ONLY else attention_kernels(query, query.capability))


def latent_kernel(query: KernelQuery, *, sparse: bool) -> Kernel | None:
    """Kernel for latents, all of them or those that an indexer picks; None where there is none."""
    if query.capability is None:
        return query.first(other_kernels(query))
    return query.first((sparse_kernels if sparse else latent_kernels)(query, query.capability))


def other_kernels(query: KernelQuery) -> Iterator[Kernel]:
    """The kernel of a platform that is not CUDA."""
    yield ASCEND if query.platform == "cann" else ROCM


def attention_kernels(query: KernelQuery, cuda: Capability) -> Iterator[Kernel]:
    """Kernels for the layer, in vLLM's order."""
    composed = query.image_prefix and query.d_head in (256, 512) and not query.sinks
    flash = flash_attention(query, cuda)
    # FlashInfer has four widths; sinks need the kernels of TensorRT-LLM
    flashinfer = query.d_head in (64, 128, 256, 512) and (8, 0) <= cuda <= (12, 1)
    flashinfer = flashinfer and (not query.sinks or cuda[0] in (9, 10, 12))
    if cuda[0] == 10:
        if composed and flashinfer:
            yield Kernel("TRITON_FLASHINFER", (64,), multiples=False)
        if flashinfer and not query.image_prefix:
            yield Kernel("FLASHINFER", FLASHINFER, multiples=False)
    elif cuda[0] == 9 and composed and flash is not None:
        yield flash._replace(name="TRITON_FLASH_ATTN")
    # of FlashAttention, version 4 alone can let the tokens of an image see each other
    sees_images = flash_version(query.d_head, cuda) == 4 and not (query.fp8 and cuda == (9, 0))
    if flash is not None and (not query.image_prefix or sees_images):
        yield flash
    if flashinfer and not query.image_prefix:
        yield Kernel("FLASHINFER", FLASHINFER, multiples=False)
    if query.d_head >= 32 and (not query.fp8 or cuda >= FP8):
        yield TRITON
    if not query.sinks and not query.fp8:
        yield Kernel("FLEX_ATTENTION", PLAIN)


def flash_version(d_head: int, cuda: Capability) -> int:
    """Version of FlashAttention for heads of this width: 3 on Hopper up to 256, 4 beyond and, up to 128, on SM10x."""
    if cuda[0] == 9:
        return 3 if d_head <= 256 else 4
    return 4 if cuda[0] == 10 and d_head <= 128 else 2


def flash_attention(query: KernelQuery, cuda: Capability) -> Kernel | None:
    """FlashAttention, where it serves the layer: fp8 by version 3, by version 4 on SM10x, and by version 4 on Hopper
    for heads of 512, in pages of 64 tokens; sinks by versions 3 and 4."""
    version, widest = flash_version(query.d_head, cuda), 512 if cuda[0] in (9, 10, 11) else 256
    if cuda < (8, 0) or query.d_head % 8 or query.d_head > widest:
        return None
    if query.sinks and cuda[0] not in (9, 10):
        return None
    if not query.fp8:
        return Kernel("FLASH_ATTN", PLAIN)
    if cuda[0] == 9 and query.d_head == 512:
        return Kernel("FLASH_ATTN", (64,), multiples=False)
    return Kernel("FLASH_ATTN", PLAIN) if version == 3 or (version, cuda[0]) == (4, 10) else None


def latent_kernels(query: KernelQuery, cuda: Capability) -> Iterator[Kernel]:
    """Kernels for whole latents, in vLLM's order. `d_head` is the width of a latent with its rotary key."""
    packed = query.kv == "fp8_ds_mla"
    known = query.d_head in (320, 512, 576) and not packed
    if cuda[0] == 10 and known:
        if query.d_nope in (64, 128, 192):
            yield Kernel("FLASHINFER_MLA", (32, 64), multiples=False)
        yield Kernel("CUTLASS_MLA", (128,), multiples=False)
    if cuda[0] == 9 and known and not query.fp8:
        yield Kernel("FLASH_ATTN_MLA", PLAIN)
    if cuda[0] == 9 and known:
        yield Kernel("FLASHMLA", (64,), multiples=False)
    if packed:
        yield Kernel("FLASHMLA", (64,), multiples=False, packed=True)
    elif not query.fp8 or cuda >= FP8:
        yield Kernel("TRITON_MLA", PLAIN)


def sparse_kernels(query: KernelQuery, cuda: Capability) -> Iterator[Kernel]:
    """Kernels for the latents that an indexer picks, in vLLM's order."""
    flash_mla = Kernel("FLASHMLA_SPARSE", (64,), multiples=not (query.fp8 and cuda[0] == 10), packed=query.fp8)
    flashinfer = Kernel("FLASHINFER_MLA_SPARSE", (32,))
    if cuda[0] == 10:
        serves = query.d_nope in (128, 192) and query.kv != "fp8_ds_mla"
        flash_four = not query.fp8 and query.n_q in (8, 16) and query.d_head == 576
        few = [Kernel("FLASH_ATTN_MLA_SPARSE_FA4", (64,))] if flash_four else []
        trtllm = [flashinfer] if serves else []
        yield from ([*few, *trtllm, flash_mla] if query.fp8 or query.n_q <= 16 else [flash_mla, *trtllm])
    elif cuda[0] == 12:
        yield Kernel("FLASHINFER_MLA_SPARSE_SM120", (64,), packed=True)
    elif cuda[0] == 9:
        if not query.fp8:
            yield Kernel("FLASH_ATTN_MLA_SPARSE", (64,))
        yield flash_mla
