"""Weights as stored: the format of every tensor, and the bytes that each rank of an engine holds."""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal

from calc.errors import Frozen
from calc.formats import FLOATS, FORMATS, MIXES, Format, Precision, WeightFormat
from calc.formats.mixes import TYPES, Sizes, fitted, role_of, type_of
from calc.formats.scheme import is_matrix, matrices
from calc.hardware.parallel import Layout
from calc.model.architecture import Architecture
from calc.model.attention import GQA
from calc.model.feedforward import MoE
from calc.model.mla import LatentAttention
from calc.model.tensor import Tensor
from calc.serving.workload import Engine
from calc.units import MIB

Kernel = Literal["marlin", "triton"]
FUSED = {
    **dict.fromkeys(("q_proj", "k_proj", "v_proj"), "qkv_proj"),
    **dict.fromkeys(("gate_proj", "up_proj", "w1", "w3"), "gate_up_proj"),
    **dict.fromkeys(("q_a_proj", "kv_a_proj_with_mqa"), "fused_qkv_a_proj"),
    **dict.fromkeys(("in_proj_qkv", "in_proj_z"), "in_proj_qkvz"),
    **dict.fromkeys(("in_proj_b", "in_proj_a"), "in_proj_ba"),
}
"""What vLLM keeps as one tensor."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A tensor of one rank in the layers that store it in the same format."""

    tensor: Tensor
    form: Format

    @property
    def nbytes(self) -> int:
        """Bytes of one occurrence, scales included."""
        return self.form.nbytes(self.tensor.shape, matrices(self.tensor))

    @property
    def scales(self) -> int:
        """Bytes of one occurrence's scales and zero points."""
        return self.form.scale_nbytes(self.tensor.shape, matrices(self.tensor))

    @property
    def a_layer(self) -> int:
        """How many times it occurs in a layer."""
        return self.tensor.count // max(1, len(self.tensor.layers))


def stored(architecture: Architecture, precision: Precision, layout: Layout | None = None) -> list[Piece]:
    """The tensors of one rank, each with its format: that of the whole matrix, whatever the share."""
    choose, differs = chooser(architecture, precision)
    shares = (layout or Layout()).rank(architecture).tensors()
    pieces = []
    for tensor, share in zip(architecture.tensors() if precision.weights in MIXES else shares, shares, strict=True):
        if not differs or not tensor.layers:
            pieces.append(Piece(share, choose(tensor, tensor.layers[0] if tensor.layers else 0)))
            continue
        alike: dict[Format, list[int]] = {}
        for layer in tensor.layers:
            alike.setdefault(choose(tensor, layer), []).append(layer)
        pieces += [Piece(replace(share, layers=tuple(layers)), form) for form, layers in alike.items()]
    return pieces


def chooser(architecture: Architecture, precision: Precision) -> tuple[Callable[[Tensor, int], Format], bool]:
    """The format of a tensor in a layer, and whether layers differ in it."""
    weights = precision.weights
    if weights in FLOATS:
        return lambda tensor, layer: FORMATS[weights], False
    if weights in MIXES:
        return mixer(architecture, weights), True
    scheme = precision.scheme(experts=any(isinstance(block.ffn, MoE) for block in architecture.blocks))
    return scheme.form, scheme.differs_by_layer


def mixer(architecture: Architecture, mix: WeightFormat) -> Callable[[Tensor, int], Format]:
    """llama.cpp's choice for each matrix; what is no matrix, and the router, stays in 32 bits."""
    blocks = architecture.all_blocks
    attention = [m for block in blocks for m in block.mixers if isinstance(m, GQA | LatentAttention)]
    places = sorted({i for block in blocks for i in block.layers if any(m in attention for m in block.mixers)})
    first = attention[0] if attention else None
    sizes = Sizes(
        layers=architecture.num_layers,
        attention_layers=len(places),
        group=first.n_q // first.n_kv if isinstance(first, GQA) else 1,
        experts=max((block.ffn.n_experts for block in blocks if isinstance(block.ffn, MoE)), default=0),
    )

    def choose(tensor: Tensor, layer: int) -> Format:
        if not is_matrix(tensor) or tensor.component in ("router", "norms"):
            return TYPES["F32"]
        role = role_of(tensor)
        if role == "embedding" and architecture.tied:
            role = "output"
        place = places.index(layer) if role == "v" and layer in places else layer
        return fitted(type_of(mix, role, place, sizes), tensor.shape[-1])

    return choose


class Parts(Frozen):
    """Bytes of weights on one rank, as the engine holds them."""

    weights: int  # quantised or not, without what follows
    scales: int  # scales, zero points, indices of groups
    draft: int = 0  # layers that only speculate, with their scales
    vision: int = 0  # the image tower, in 16 bits
    absorbed: int = 0  # vLLM keeps latent attention's up-projection once more in 16 bits where it is quantised
    rotary: int = 0  # table of sines and cosines
    padding: int = 0  # rows and columns that kernels add
    rounding: int = 0  # what PyTorch's allocator adds to a tensor

    @property
    def total(self) -> int:
        return sum(value for _, value in self)


def stored_bytes(
    architecture: Architecture,
    precision: Precision,
    layout: Layout,
    engine: Engine,
    *,
    draft: bool = False,
    tower: bool = False,
    kernel: Kernel = "marlin",
) -> tuple[Parts, ...]:
    """What one rank of each pipeline stage holds once the model is loaded, before any request; with its
    draft layers and its image tower where these are loaded, too."""
    taken = {None, "multi_token_prediction" if draft else None, "vision" if tower else None}
    pieces = [piece for piece in stored(architecture, precision, layout) if piece.tensor.apart in taken]
    if engine == "vllm":
        pieces = [resident(piece) for piece in pieces]
    return tuple(
        stage_parts(architecture, pieces, stage, layout, engine, kernel)
        for stage in layout.stages(architecture.num_layers)
    )


def resident(piece: Piece) -> Piece:
    """What vLLM makes of a tensor on loading: it undoes double quantisation (`bitsandbytes_loader.py`)."""
    return Piece(piece.tensor, FORMATS["nf4"]) if piece.form == FORMATS["nf4-dq"] else piece


def stage_parts(
    architecture: Architecture, pieces: Iterable[Piece], stage: range, layout: Layout, engine: Engine, kernel: Kernel
) -> Parts:
    """One stage: its layers; the embedding stands on the first, the head on the last."""
    rank = layout.rank(architecture)
    held: dict[tuple[str, tuple[int, ...]], list[int]] = {}  # allocation -> bytes of weights and of scales, in a layer
    parts = dict.fromkeys(Parts.model_fields, 0)
    vllm = engine == "vllm"
    for piece in pieces:
        tensor = piece.tensor
        count = placed(architecture, tensor, stage)
        if not count:
            continue
        if tensor.apart == "vision":
            parts["vision"] += tower_share(tensor, layout)
            continue
        scales = piece.scales
        one = piece.nbytes - scales
        extra = padded(piece, rank, layout.tp, kernel) if vllm else 0
        if vllm and tensor.name.endswith("kv_b_proj.weight") and piece.form.scale_bits + piece.form.matrix_bits:
            parts["absorbed"] += count * 2 * tensor.numel
        if tensor.apart == "multi_token_prediction":
            parts["draft"] += count * piece.a_layer * piece.nbytes
        else:
            parts["weights"] += count * piece.a_layer * one
            parts["scales"] += count * piece.a_layer * scales
        parts["padding"] += count * piece.a_layer * extra
        name = allocation(tensor.name) if vllm else tensor.name
        sizes = held.setdefault((name, tensor.layers), [0, 0, count])
        sizes[0] += piece.a_layer * (one + extra)
        sizes[1] += piece.a_layer * scales
    for weights, scales, count in held.values():
        parts["rounding"] += count * (rounded(weights) - weights + rounded(scales) - scales)
    if vllm:
        parts["rotary"] = sum(2 * rows * width for rows, width in architecture.rotary)
    return Parts(**parts)


def tower_bytes(architecture: Architecture, layout: Layout) -> int:
    """Bytes of the image tower on a rank of the first stage."""
    return sum(tower_share(tensor, layout) for tensor in architecture.tensors() if tensor.apart == "vision")


def tower_share(tensor: Tensor, layout: Layout) -> int:
    """Bytes of one of its tensors on a rank, in 16 bits: the matrices of its layers are divided, all else is there on
    every rank."""
    divided = layout.tp if len(tensor.layers) > 1 and len(tensor.shape) == 2 else 1
    return 2 * tensor.parameters // divided


def placed(architecture: Architecture, tensor: Tensor, stage: range) -> int:
    """In how many layers of a stage a tensor occurs; outside the layers, 1 where it stands."""
    if tensor.apart == "vision":
        return int(stage.start == 0)
    if tensor.apart == "multi_token_prediction":
        return max(1, len(tensor.layers)) * (stage.stop == architecture.num_layers)
    if tensor.layers:
        return bisect_left(tensor.layers, stage.stop) - bisect_left(tensor.layers, stage.start)  # in ascending order
    first, last = stage.start == 0, stage.stop == architecture.num_layers
    if tensor.component == "embedding":
        return int(first or (last and architecture.tied and tensor.name == f"{architecture.names.embedding}.weight"))
    return int(last)


def allocation(name: str) -> str:
    """The tensor of vLLM's that a tensor of the checkpoint goes into; all experts of a layer share one."""
    module, dot, leaf = name.rpartition(".")
    path, _, last = module.rpartition(".")
    return f"{path}.{FUSED.get(last, last)}{dot}{leaf}"


def rounded(nbytes: int) -> int:
    """Bytes that PyTorch's CUDA allocator charges (c10/cuda/CUDACachingAllocator.cpp): 512 at a time; from 10 MiB on a
    segment of its own in steps of 2 MiB, whose rest is charged too unless it is more than 1 MiB and hence reusable."""
    nbytes = -(-nbytes // 512) * 512
    if nbytes < 10 * MIB:
        return nbytes
    segment = -(-nbytes // (2 * MIB)) * 2 * MIB
    return segment if segment - nbytes <= MIB else nbytes


def padded(piece: Piece, rank: Architecture, tp: int, kernel: Kernel) -> int:
    """Bytes that vLLM adds to one occurrence: the vocabulary comes in multiples of 64, also on one GPU, and experts in
    MXFP4 in those that their kernel takes."""
    tensor = piece.tensor
    if tensor.component in ("embedding", "lm_head") and tp == 1 and tensor.shape[0] == rank.vocab:
        return piece.form.nbytes((up_to(rank.vocab, 64), *tensor.shape[1:])) - piece.nbytes
    if tensor.component == "experts_routed" and piece.form == FORMATS["mxfp4"]:
        return padded_experts(piece, rank, kernel)
    return 0


def padded_experts(piece: Piece, rank: Architecture, kernel: Kernel) -> int:
    """Marlin (`oracle/mxfp4.py`): the hidden width in multiples of 256, a rank's inner width of 128. Triton on Hopper
    (triton_kernels, `hopper_value.py`): the packed bytes of a row in multiples of 128, the scales as they are."""
    tensor = piece.tensor
    blocks = (*rank.blocks, *(module.block for module in rank.prediction))
    moe = next(block.ffn for block in blocks if isinstance(block.ffn, MoE) and tensor.layers[0] in block.layers)
    hidden, inner = moe.latent or rank.hidden, moe.expert.intermediate
    matrices = tensor.numel // (hidden * inner)
    if kernel == "marlin":
        return piece.form.nbytes((matrices * up_to(inner, 128), up_to(hidden, 256))) - piece.nbytes
    columns, rows = (inner, hidden) if role_of(tensor) == "down" else (hidden, inner)
    return matrices * rows * (up_to(columns, 256) - columns) // 2


def up_to(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple
