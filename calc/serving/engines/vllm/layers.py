"""Cache of each layer in vLLM 0.33: bytes of a token or a state (`*.get_kv_cache_spec`), which attention kernel reads
it, and in blocks of which sizes (`platforms/cuda.py`, `v1/attention/backends/`)."""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Literal, NamedTuple

from calc.errors import ConfigError, Message
from calc.formats import CACHE_BITS, HEAD_SCALE_BITS, CacheFormat
from calc.hardware.gpu import GPU
from calc.model.architecture import Architecture
from calc.model.attention import GQA
from calc.model.block import Block
from calc.model.linear_attention import GatedDeltaNet
from calc.model.mixers import Mixer, Recurrent
from calc.model.mla import LatentAttention, fp8_vector_bytes
from calc.model.recurrent import Mamba, Mamba2, SideConvs
from calc.serving.engines.families import families
from calc.serving.engines.rules import compressing
from calc.serving.engines.vllm.options import VLLMOptions, holds

OWN_FORMAT = families("vllm", "own_cache_format")
EXPANDED = families("vllm", "expanded")
FP8_ON_BLACKWELL = families("vllm", "fp8_on_blackwell")
LONGER_WINDOW = families("vllm", "longer_window")
SHORTER_WINDOW = families("vllm", "shorter_window")
CHUNKED = families("vllm", "chunked")
ATTENTION_FREE = families("vllm", "attention_free")
FP32_STATE = families("vllm", "fp32_state")
TRITON_EXPERTS = families("vllm", "triton_experts")
DELTA_CHECKPOINT_IN = families("vllm", "delta_checkpoint")


def family_of(architecture: Architecture) -> str:
    """Family of a model, be it in a wrapper or not."""
    return architecture.model_type.removesuffix("_text")


def sees_images_whole(architecture: Architecture, options: VLLMOptions) -> bool:
    """Whether images are served whose tokens see each other, for which not every attention kernel will do."""
    loaded = architecture.vision is not None and not options.language_model_only
    return loaded and architecture.image_prefix


Capability = tuple[int, int]


def capability(gpu: GPU) -> Capability | None:
    if gpu.platform != "cuda" or gpu.capability is None:
        return None
    major, minor = gpu.capability.split(".")
    return int(major), int(minor)


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


BY_SIXTEEN = (16,)
FLASHINFER = (16, 32, 64)
FP8: Capability = (8, 9)
"""First GPUs with fp8, and with Triton's kernels for it."""
ROCM = Kernel("ROCm", BY_SIXTEEN)
ASCEND = Kernel("ASCEND", (128,))
"""`vllm_ascend/utils.py`: blocks of 128 tokens wherever prompts are chunked or prefixes stay."""
M3_SPARSE = Kernel("MINIMAX_M3_SPARSE", (128,), multiples=False)
M3_INDEXER = Kernel("MINIMAX_M3_SPARSE_INDEXER", (128,), multiples=False)
INDEXER = Kernel("DEEPSEEK_V32_INDEXER", (64,), multiples=False)
TRITON = Kernel("TRITON_ATTN", BY_SIXTEEN)
TRITON_ONLY: frozenset[CacheFormat] = frozenset(("fp32", "int8", "int4"))
"""Formats that no other kernel reads."""

SHARING = frozenset(
    "FLASH_ATTN FLASHINFER FLASH_ATTN_MLA FLASHINFER_MLA FLASHMLA CUTLASS_MLA TRITON_MLA FLASHMLA_SPARSE "
    "FLASHINFER_MLA_SPARSE DEEPSEEK_V32_INDEXER".split()
)
"""Kernels that hand out the softmax' sums, by which ranks that share a sequence's tokens add up what they attend to
(`v1/worker/cp_utils.py`, column DCP of `docs/design/attention_backends.md`)."""
Kind = Literal["full", "mla", "window", "chunk", "state"]
PADDED = 256
"""Bytes of which a latent is a multiple in old versions."""
DELTA_CHECKPOINT = 64
"""Tokens of which FlashInfer's delta net hands out its state at a multiple."""


class CacheEntry(NamedTuple):
    """Cache entry of a layer, per token or per state, before its blocks are sized."""

    kind: Kind
    nbytes: int  # of a token, or of a state
    shape: tuple[int, ...]  # what tells two layers apart: KV heads, widths of key and value; elements of states
    reach: int = 0  # tokens of a window or a chunk
    kernel: Kernel | None = None  # None: no kernel fits; a state has none
    checkpoint: int | None = None  # tokens of which a state can be handed out at a multiple, inside a prompt
    block: int = 0  # tokens of a block where the layer decides that itself


Layers = dict[CacheEntry, list[int]]
"""Layers by what they keep; draft layers count on behind the last."""


class LayerSetting(NamedTuple):
    """Settings besides the layer itself that decide its cache."""

    kv: CacheFormat
    options: VLLMOptions
    gpu: GPU
    tp: int
    drafts: int  # tokens drafted at once
    family: str
    image_prefix: bool

    @property
    def cuda(self) -> Capability:
        """Compute capability, of GPUs that have one."""
        cuda = capability(self.gpu)
        assert cuda is not None
        return cuda

    @property
    def fp8(self) -> bool:
        return self.kv in ("fp8", "fp8_ds_mla")

    def first(self, of_cuda: Iterable[Kernel]) -> Kernel | None:
        """The first kernel that reads blocks of the stated size (--block-size): of these, or the platform's own where
        it is not CUDA; None where there is none."""
        block = self.options.block_size
        kernels = [ASCEND if self.gpu.platform == "cann" else ROCM] if capability(self.gpu) is None else of_cuda
        return next((kernel for kernel in kernels if block is None or kernel.accepts(block)), None)

    def stored(self, elements: int, n_kv: int = 1) -> int:
        """Bytes of a token's elements, with the scales of each head."""
        scales = 2 * n_kv * HEAD_SCALE_BITS.get(self.kv, 0) // 8  # of a key and a value
        return int(elements * CACHE_BITS[self.kv]) // 8 + scales


def setting(architecture: Architecture, kv: CacheFormat, options: VLLMOptions, gpu: GPU, tp: int) -> LayerSetting:
    """The cache's format as this family takes it, and all else."""
    family, cuda = family_of(architecture), capability(gpu)
    if family in OWN_FORMAT:
        kv = "bf16"
    if family in FP8_ON_BLACKWELL and kv in ("bf16", "fp16") and cuda is not None and cuda[0] == 10:
        kv = "fp8"
    return LayerSetting(kv, options, gpu, tp, options.draft_tokens, family, sees_images_whole(architecture, options))


def cached_layers(rank: Architecture, setting: LayerSetting) -> Layers:
    """Everything that the layers of one rank keep, with the layers that keep it, in ascending order."""
    by_spec: Layers = {}
    for block, places in blocks_with_drafts(rank, setting.options):
        for cached in chain.from_iterable(cache_entries(mixer, block, setting) for mixer in block.mixers):
            by_spec.setdefault(cached, []).extend(places)
    for places in by_spec.values():
        places.sort()
    return by_spec


def blocks_with_drafts(rank: Architecture, options: VLLMOptions) -> Iterator[tuple[Block, Iterable[int]]]:
    for block in rank.all_blocks:
        yield block, block.cached_in
    if options.speculative in ("mtp", "eagle"):
        for i, module in enumerate(rank.prediction):
            first = rank.num_layers + i * len(module.block.layers)
            yield module.block, range(first, first + len(module.block.layers))


def cache_entries(mixer: Mixer, block: Block, setting: LayerSetting) -> Iterator[CacheEntry]:
    if isinstance(mixer, GQA):
        yield from attention_entries(mixer, setting)
    elif isinstance(mixer, LatentAttention):
        yield from latent_entries(mixer, setting)
    elif isinstance(mixer, SideConvs):
        yield convolution_entries(mixer, block, setting)
    elif isinstance(mixer, Recurrent):
        size = state_size(mixer, setting.family, setting.options, setting.drafts)
        yield CacheEntry("state", size.nbytes, size, checkpoint=checkpoint_step(mixer, setting))
    else:
        sentence = Message("The memory that vLLM caches for {mixer} is not known here.", mixer=mixer.kind)
        raise ConfigError(sentence, "engine")


def attention_entries(mixer: GQA, setting: LayerSetting) -> Iterator[CacheEntry]:
    """Entries of attention: keys and values, and the index keys of MiniMax-M3, which stay in 16 bits."""
    if not mixer.caches:
        return
    d_v = mixer.d_v or mixer.d_head
    if mixer.indexer is not None:
        yield CacheEntry("mla", 2 * mixer.indexer.d_index, (1, mixer.indexer.d_index, 0), 0, M3_INDEXER)
        kernel: Kernel | None = M3_SPARSE
    else:
        kernel = setting.first(attention_kernels(setting, mixer.d_head, sinks=mixer.sinks))
    yield head_entries(mixer.n_kv, mixer.d_head, d_v, mixer.window, kernel, setting)


def head_entries(
    n_kv: int, d_k: int, d_v: int, window: int | None, kernel: Kernel | None, setting: LayerSetting
) -> CacheEntry:
    kind: Kind = "full" if window is None else "chunk" if setting.family in CHUNKED else "window"
    shift = (setting.family in LONGER_WINDOW) - (setting.family in SHORTER_WINDOW)
    reach = 0 if window is None else window + shift
    return CacheEntry(kind, setting.stored(n_kv * (d_k + d_v), n_kv), (n_kv, d_k, d_v), reach, kernel)


def latent_entries(mixer: LatentAttention, setting: LayerSetting) -> Iterator[CacheEntry]:
    """Entries of latent attention: a latent with its rotary key on every rank, and an fp8 index key with its scale."""
    if setting.family in EXPANDED:
        d_head = mixer.d_nope + mixer.d_rope
        kernel = setting.first(attention_kernels(setting, d_head))
        yield head_entries(mixer.n_q, d_head, d_head, None, kernel, setting)
        return
    width = mixer.kv_rank + mixer.d_rope
    kernel = setting.first((latent_kernels if mixer.indexer is None else sparse_kernels)(setting, mixer))
    packed = setting.kv == "fp8_ds_mla" or (kernel is not None and kernel.packed)
    # packed: in fp8 with its scales, and the rotary key in 16 bits (`flashmla_sparse.py`)
    nbytes = fp8_vector_bytes(mixer.kv_rank) + 2 * mixer.d_rope if packed else setting.stored(width)
    if not holds("latents are not padded", setting.options):
        nbytes = -(-nbytes // PADDED) * PADDED
    yield CacheEntry("mla", nbytes, (1, width, 0), 0, kernel)
    shared_too = not holds("shared choices cache no index keys", setting.options)
    if mixer.indexer is not None and (mixer.indexer.owned or shared_too):
        index = fp8_vector_bytes(mixer.indexer.d_index)
        yield CacheEntry("mla", index, (1, index, 0), 0, INDEXER if capability(setting.gpu) is not None else kernel)


def convolution_entries(mixer: SideConvs, block: Block, setting: LayerSetting) -> CacheEntry:
    """Inputs that Inkling's convolutions look back on, in 16 bits and blocks of as many tokens; for each KV head its
    key, its value and its part of both outputs, rounded up to a power of two
    (`models/inkling/nvidia/sconv_swa_attn.py`)."""
    n_kv = sum(attention.cached_heads for attention in block.attentions)
    width = 2 * mixer.kv // n_kv + 2 * (mixer.hidden // (n_kv * setting.tp))
    wide = 1 << (width - 1).bit_length()
    return CacheEntry("window", 2 * n_kv * wide, (n_kv, wide, 0), mixer.d_conv, block=mixer.d_conv)


class StateSize(NamedTuple):
    """A recurrent state and the memory of its convolution."""

    conv: int  # elements, in 16 bits
    state: int
    width: int  # bytes of an element of the state

    @property
    def nbytes(self) -> int:
        return 2 * self.conv + self.width * self.state


def state_size(mixer: Recurrent, family: str, options: VLLMOptions, drafts: int) -> StateSize:
    """A state of one layer: in 16 bits unless the family or a flag says fp32; of the convolution one column fewer than
    the kernel has, and but for Mamba-1 one more for each drafted token (`mamba_utils.py`)."""
    requested = options.mamba_ssm_cache_dtype
    fp32 = requested == "float32" or (requested == "auto" and (mixer.fp32_state or family in FP32_STATE))
    columns = getattr(mixer, "d_conv", 1)
    drafted = 0 if isinstance(mixer, Mamba) else drafts
    conv = mixer.conv_elements() // columns * (columns - 1 + drafted)
    return StateSize(conv, mixer.state_elements(), 4 if fp32 else 2)


def state_bytes(architecture: Architecture, blocks: Iterable[Block], options: VLLMOptions) -> int:
    """Bytes of the states of a sequence in some layers of a model, without those of drafted tokens."""
    family = family_of(architecture)
    return sum(
        len(block.runs_in) * state_size(mixer, family, options, 0).nbytes
        for block in blocks
        for mixer in block.recurrences
    )


def checkpoint_step(mixer: Recurrent, setting: LayerSetting) -> int | None:
    """Tokens at whose multiples the kernel hands out a state inside a prompt; None where it does not."""
    if isinstance(mixer, Mamba2) and holds("Mamba-2 keeps a checkpoint", setting.options):
        return 1
    if not isinstance(mixer, GatedDeltaNet):
        return None
    if setting.family not in DELTA_CHECKPOINT_IN or not holds("delta nets keep a checkpoint", setting.options):
        return None
    cuda = capability(setting.gpu)
    flashinfer = cuda == (9, 0) or (cuda is not None and cuda[0] in (10, 12) and mixer.d_k == 128)
    return DELTA_CHECKPOINT if flashinfer and setting.options.gdn_prefill_backend != "triton" else None


def compresses(rank: Architecture) -> bool:
    """Whether the layers are DeepSeek-V4's."""
    return any(compressing(rank.blocks))


def attention_kernels(setting: LayerSetting, d_head: int, *, sinks: bool = False) -> Iterator[Kernel]:
    """CUDA's kernels for keys and values of heads of this width, in vLLM's order."""
    if setting.kv in TRITON_ONLY:
        yield TRITON
        return
    cuda = setting.cuda
    composed = setting.image_prefix and d_head in (256, 512) and not sinks
    flash = flash_attention(setting, d_head, sinks=sinks)
    # FlashInfer has four widths; sinks need the kernels of TensorRT-LLM
    flashinfer = d_head in (64, 128, 256, 512) and (8, 0) <= cuda <= (12, 1)
    flashinfer = flashinfer and (not sinks or cuda[0] in (9, 10, 12))
    if cuda[0] == 10:
        if composed and flashinfer:
            yield Kernel("TRITON_FLASHINFER", (64,), multiples=False)
        if flashinfer and not setting.image_prefix:
            yield Kernel("FLASHINFER", FLASHINFER, multiples=False)
    elif cuda[0] == 9 and composed and flash is not None:
        yield flash._replace(name="TRITON_FLASH_ATTN")
    # of FlashAttention, version 4 alone can let the tokens of an image see each other
    sees_images = flash_version(d_head, cuda) == 4 and not (setting.fp8 and cuda == (9, 0))
    if flash is not None and (not setting.image_prefix or sees_images):
        yield flash
    if flashinfer and not setting.image_prefix:
        yield Kernel("FLASHINFER", FLASHINFER, multiples=False)
    if d_head >= 32 and (not setting.fp8 or cuda >= FP8):
        yield TRITON
    if not sinks and not setting.fp8:
        yield Kernel("FLEX_ATTENTION", BY_SIXTEEN)


def flash_version(d_head: int, cuda: Capability) -> int:
    """Version of FlashAttention for heads of this width: 3 on Hopper up to 256, 4 beyond and, up to 128, on SM10x."""
    if cuda[0] == 9:
        return 3 if d_head <= 256 else 4
    return 4 if cuda[0] == 10 and d_head <= 128 else 2


def flash_attention(setting: LayerSetting, d_head: int, *, sinks: bool) -> Kernel | None:
    """FlashAttention, where it serves the layer: fp8 by version 3, by version 4 on SM10x, and by version 4 on Hopper
    for heads of 512, in pages of 64 tokens; sinks by versions 3 and 4."""
    cuda = setting.cuda
    version, widest = flash_version(d_head, cuda), 512 if cuda[0] in (9, 10, 11) else 256
    if cuda < (8, 0) or d_head % 8 or d_head > widest:
        return None
    if sinks and cuda[0] not in (9, 10):
        return None
    if not setting.fp8:
        return Kernel("FLASH_ATTN", BY_SIXTEEN)
    if cuda[0] == 9 and d_head == 512:
        return Kernel("FLASH_ATTN", (64,), multiples=False)
    return Kernel("FLASH_ATTN", BY_SIXTEEN) if version == 3 or (version, cuda[0]) == (4, 10) else None


def latent_kernels(setting: LayerSetting, mixer: LatentAttention) -> Iterator[Kernel]:
    """CUDA's kernels for whole latents, in vLLM's order."""
    cuda, packed = setting.cuda, setting.kv == "fp8_ds_mla"
    known = mixer.kv_rank + mixer.d_rope in (320, 512, 576) and not packed
    if cuda[0] == 10 and known:
        if mixer.d_nope in (64, 128, 192):
            yield Kernel("FLASHINFER_MLA", (32, 64), multiples=False)
        yield Kernel("CUTLASS_MLA", (128,), multiples=False)
    if cuda[0] == 9 and known and not setting.fp8:
        yield Kernel("FLASH_ATTN_MLA", BY_SIXTEEN)
    if cuda[0] == 9 and known:
        yield Kernel("FLASHMLA", (64,), multiples=False)
    if packed:
        yield Kernel("FLASHMLA", (64,), multiples=False, packed=True)
    elif not setting.fp8 or cuda >= FP8:
        yield Kernel("TRITON_MLA", BY_SIXTEEN)


def sparse_kernels(setting: LayerSetting, mixer: LatentAttention) -> Iterator[Kernel]:
    """CUDA's kernels for the latents that an indexer picks, in vLLM's order."""
    cuda = setting.cuda
    flash_mla = Kernel("FLASHMLA_SPARSE", (64,), multiples=not (setting.fp8 and cuda[0] == 10), packed=setting.fp8)
    flashinfer = Kernel("FLASHINFER_MLA_SPARSE", (32,))
    if cuda[0] == 10:
        serves = mixer.d_nope in (128, 192) and setting.kv != "fp8_ds_mla"
        flash_four = not setting.fp8 and mixer.n_q in (8, 16) and mixer.kv_rank + mixer.d_rope == 576
        few = [Kernel("FLASH_ATTN_MLA_SPARSE_FA4", (64,))] if flash_four else []
        trtllm = [flashinfer] if serves else []
        yield from ([*few, *trtllm, flash_mla] if setting.fp8 or mixer.n_q <= 16 else [flash_mla, *trtllm])
    elif cuda[0] == 12:
        yield Kernel("FLASHINFER_MLA_SPARSE_SM120", (64,), packed=True)
    elif cuda[0] == 9:
        if not setting.fp8:
            yield Kernel("FLASH_ATTN_MLA_SPARSE", (64,))
        yield flash_mla
