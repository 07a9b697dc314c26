"""Cache of each layer in vLLM 0.33 (`*.get_kv_cache_spec`): bytes of a token or a state, and what kernel reads it."""

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
from calc.model.mixers import CompressedAttention, Mixer, Recurrent
from calc.model.mla import LatentAttention
from calc.model.recurrent import Mamba, Mamba2, SideConvs
from calc.serving.engines.vllm.kernels import (
    INDEXER,
    M3_INDEXER,
    M3_SPARSE,
    Kernel,
    KernelQuery,
    attention_kernel,
    capability,
    latent_kernel,
)
from calc.serving.engines.vllm.options import VLLMOptions, holds


class Habits(NamedTuple):
    """Habits with a family; by default those with any."""

    own_format: bool = False  # attention is not told of the cache's format and stays in 16 bits
    expanded: bool = False  # latents are expanded: each head's key and value is cached, both as wide as the key
    fp8_on_blackwell: bool = False  # in fp8 on SM10x unless another format is asked for
    window_shift: int = 0  # tokens that vLLM's window counts more than the model's
    chunks: bool = False  # a window is a chunk of the context that ends where the next begins
    attention_free: bool = False  # nothing but states: prefixes are cached only when asked
    fp32_state: bool = False  # where neither config nor option says anything
    triton_experts: bool = False  # experts in MXFP4 run by Triton where it does (oracle/mxfp4.py)
    delta_checkpoint: bool = False  # FlashInfer's prefill of a delta net hands out a state inside a prompt


HABITS: dict[str, Habits] = {
    **dict.fromkeys(
        ("falcon", "RefinedWeb", "RefinedWebModel"), Habits(own_format=True)
    ),  # model_executor/models/falcon.py
    "minicpm3": Habits(expanded=True),  # model_executor/models/minicpm3.py
    "glm_moe_dsa": Habits(fp8_on_blackwell=True),  # model_executor/models/config.py
    "cohere2": Habits(window_shift=1),  # model_executor/models/commandr.py
    "mimo_v2_flash": Habits(window_shift=-1),  # model_executor/models/mimo_v2.py
    "llama4": Habits(chunks=True),  # model_executor/layers/attention/chunked_local_attention.py
    "gpt_oss": Habits(triton_experts=True),  # quantization/mxfp4.py: GptOssMxfp4Config
    # model_executor/models/mamba.py, mamba2.py
    **dict.fromkeys(("mamba", "mamba2", "falcon_mamba"), Habits(attention_free=True)),
    "nemotron_h": Habits(fp32_state=True),  # model_executor/models/config.py
    # model_executor/layers/mamba/gdn/qwen_gdn_linear_attn.py
    **dict.fromkeys(("qwen3_next", "qwen3_5", "qwen3_5_moe"), Habits(delta_checkpoint=True)),
}
PLAIN = Habits()


def habits(architecture: Architecture) -> Habits:
    """Habits of vLLM with this model's family, be it in a wrapper or not."""
    return HABITS.get(architecture.model_type.removesuffix("_text"), PLAIN)


def sees_images_whole(architecture: Architecture, options: VLLMOptions) -> bool:
    """Whether images are served whose tokens see each other, for which not every attention kernel will do."""
    loaded = architecture.vision is not None and not options.language_model_only
    return loaded and architecture.image_prefix


Kind = Literal["full", "mla", "window", "chunk", "state"]
PADDED = 256
"""Bytes of which a latent is a multiple in old versions."""
DELTA_CHECKPOINT = 64
"""Tokens of which FlashInfer's delta net hands out its state at a multiple."""


class Cached(NamedTuple):
    """One thing that a layer keeps, before its blocks are sized."""

    kind: Kind
    nbytes: int  # of a token, or of a state
    shape: tuple[int, ...]  # what tells two layers apart: KV heads, widths of key and value; elements of states
    reach: int = 0  # tokens of a window or a chunk
    kernel: Kernel | None = None  # None: no kernel fits; a state has none
    checkpoint: int | None = None  # tokens of which a state can be handed out at a multiple, inside a prompt
    block: int = 0  # tokens of a block where the layer decides that itself


Layers = dict[Cached, list[int]]
"""Layers by what they keep; draft layers count on behind the last."""


class LayerSetting(NamedTuple):
    """Settings besides the layer itself that decide its cache."""

    kv: CacheFormat
    options: VLLMOptions
    gpu: GPU
    tp: int
    drafts: int  # tokens that are guessed at once
    family: Habits
    image_prefix: bool

    def kernel_query(self, d_head: int, *, sinks: bool = False, n_q: int = 0, d_nope: int = 0) -> KernelQuery:
        """Needs of a layer with such heads."""
        cuda, block = capability(self.gpu), self.options.block_size
        return KernelQuery(cuda, self.kv, block, d_head, sinks, self.image_prefix, n_q, d_nope, self.gpu.platform)

    def stored(self, elements: int, n_kv: int = 1) -> int:
        """Bytes of a token's elements, with the scales of each head."""
        scales = 2 * n_kv * HEAD_SCALE_BITS.get(self.kv, 0) // 8  # of a key and a value
        return int(elements * CACHE_BITS[self.kv]) // 8 + scales


def setting(architecture: Architecture, kv: CacheFormat, options: VLLMOptions, gpu: GPU, tp: int) -> LayerSetting:
    """The cache's format as this family takes it, and all else."""
    family, cuda = habits(architecture), capability(gpu)
    if family.own_format:
        kv = "bf16"
    if family.fp8_on_blackwell and kv in ("bf16", "fp16") and cuda is not None and cuda[0] == 10:
        kv = "fp8"
    return LayerSetting(kv, options, gpu, tp, options.guessed, family, sees_images_whole(architecture, options))


def cached_layers(rank: Architecture, setting: LayerSetting) -> Layers:
    """Everything that the layers of one rank keep, with the layers that keep it, in ascending order."""
    by_spec: Layers = {}
    for block, places in blocks_with_drafts(rank, setting.options):
        for cached in chain.from_iterable(cached_by(mixer, block, setting) for mixer in block.mixers):
            by_spec.setdefault(cached, []).extend(places)
    for places in by_spec.values():
        places.sort()
    return by_spec


def blocks_with_drafts(rank: Architecture, options: VLLMOptions) -> Iterator[tuple[Block, Iterable[int]]]:
    for block in rank.all_blocks:
        yield block, block.runs_in
    if options.speculative in ("mtp", "eagle"):
        for i, module in enumerate(rank.prediction):
            first = rank.num_layers + i * len(module.block.layers)
            yield module.block, range(first, first + len(module.block.layers))


def cached_by(mixer: Mixer, block: Block, setting: LayerSetting) -> Iterator[Cached]:
    if isinstance(mixer, GQA):
        yield from of_attention(mixer, setting)
    elif isinstance(mixer, LatentAttention):
        yield from of_latents(mixer, setting)
    elif isinstance(mixer, SideConvs):
        yield of_side_convs(mixer, block, setting)
    elif isinstance(mixer, Recurrent):
        size = state_size(mixer, setting.family, setting.options, setting.drafts)
        yield Cached("state", size.nbytes, size, checkpoint=checkpoint_step(mixer, setting))
    else:
        sentence = Message("What vLLM caches for {mixer} is not known here.", mixer=mixer.kind)
        raise ConfigError(sentence, "engine")


def of_attention(mixer: GQA, setting: LayerSetting) -> Iterator[Cached]:
    """Keys and values, and the index keys of MiniMax-M3, which stay in 16 bits."""
    if not mixer.caches:
        return
    d_v = mixer.d_v or mixer.d_head
    if mixer.indexer is not None:
        yield Cached("mla", 2 * mixer.indexer.d_index, (1, mixer.indexer.d_index, 0), 0, M3_INDEXER)
        kernel: Kernel | None = M3_SPARSE
    else:
        kernel = attention_kernel(setting.kernel_query(mixer.d_head, sinks=mixer.sinks))
    yield of_heads(mixer.n_kv, mixer.d_head, d_v, mixer.window, kernel, setting)


def of_heads(n_kv: int, d_k: int, d_v: int, window: int | None, kernel: Kernel | None, setting: LayerSetting) -> Cached:
    kind: Kind = "full" if window is None else "chunk" if setting.family.chunks else "window"
    reach = 0 if window is None else window + setting.family.window_shift
    return Cached(kind, setting.stored(n_kv * (d_k + d_v), n_kv), (n_kv, d_k, d_v), reach, kernel)


def of_latents(mixer: LatentAttention, setting: LayerSetting) -> Iterator[Cached]:
    """A latent with its rotary key on every rank, and an index key in fp8 with its scale."""
    if setting.family.expanded:
        d_head = mixer.d_nope + mixer.d_rope
        yield of_heads(mixer.n_q, d_head, d_head, None, attention_kernel(setting.kernel_query(d_head)), setting)
        return
    width = mixer.kv_rank + mixer.d_rope
    query = setting.kernel_query(width, n_q=mixer.n_q, d_nope=mixer.d_nope)
    kernel = latent_kernel(query, sparse=mixer.indexer is not None)
    packed = setting.kv == "fp8_ds_mla" or (kernel is not None and kernel.packed)
    # packed: in fp8 with its scales, and the rotary key in 16 bits (`flashmla_sparse.py`)
    nbytes = with_scales(mixer.kv_rank) + 2 * mixer.d_rope if packed else setting.stored(width)
    if not holds("latents are not padded", setting.options):
        nbytes = -(-nbytes // PADDED) * PADDED
    yield Cached("mla", nbytes, (1, width, 0), 0, kernel)
    shared_too = not holds("shared choices cache no index keys", setting.options)
    if mixer.indexer is not None and (mixer.indexer.owned or shared_too):
        index = with_scales(mixer.indexer.d_index)
        yield Cached("mla", index, (1, index, 0), 0, INDEXER if query.capability is not None else kernel)


def with_scales(width: int) -> int:
    """Bytes of a vector in fp8 with an fp32 scale for each 128."""
    return width + 4 * -(-width // 128)


def of_side_convs(mixer: SideConvs, block: Block, setting: LayerSetting) -> Cached:
    """Inputs that Inkling's convolutions look back on, in 16 bits and blocks of as many tokens; for each KV head its
    key, its value and its part of both outputs, rounded up to a power of two
    (`models/inkling/nvidia/sconv_swa_attn.py`)."""
    n_kv = sum(attention.cached_heads for attention in block.attentions)
    width = 2 * mixer.kv // n_kv + 2 * (mixer.hidden // (n_kv * setting.tp))
    wide = 1 << (width - 1).bit_length()
    return Cached("window", 2 * n_kv * wide, (n_kv, wide, 0), mixer.d_conv, block=mixer.d_conv)


class StateSize(NamedTuple):
    """A recurrent state and the memory of its convolution."""

    conv: int  # elements, in 16 bits
    state: int
    width: int  # bytes of an element of the state

    @property
    def nbytes(self) -> int:
        return 2 * self.conv + self.width * self.state


def state_size(mixer: Recurrent, family: Habits, options: VLLMOptions, drafts: int) -> StateSize:
    """A state of one layer: in 16 bits unless the family or a flag says fp32; of the convolution one column fewer than
    the kernel has, and but for Mamba-1 one more for each token that is guessed (`mamba_utils.py`)."""
    requested = options.mamba_ssm_cache_dtype
    fp32 = requested == "float32" or (requested == "auto" and (mixer.fp32_state or family.fp32_state))
    columns = getattr(mixer, "d_conv", 1)
    guessed = 0 if isinstance(mixer, Mamba) else drafts
    conv = mixer.conv_elements() // columns * (columns - 1 + guessed)
    return StateSize(conv, mixer.state_elements(), 4 if fp32 else 2)


def state_bytes(architecture: Architecture, blocks: Iterable[Block], options: VLLMOptions) -> int:
    """Bytes of the states of a sequence in some layers of a model, without those of tokens that are guessed."""
    family = habits(architecture)
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
    if not setting.family.delta_checkpoint or not holds("delta nets keep a checkpoint", setting.options):
        return None
    cuda = capability(setting.gpu)
    flashinfer = cuda == (9, 0) or (cuda is not None and cuda[0] in (10, 12) and mixer.d_k == 128)
    return DELTA_CHECKPOINT if flashinfer and setting.options.gdn_prefill_backend != "triton" else None


def compressed(rank: Architecture) -> bool:
    """Whether the layers are DeepSeek-V4's."""
    return any(isinstance(mixer, CompressedAttention) for block in rank.blocks for mixer in block.mixers)
