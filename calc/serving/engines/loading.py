"""Weights as an engine holds them: fused, padded, rounded, with its tables."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, NamedTuple, Self

from calc.errors import Message
from calc.formats import FORMATS, Precision
from calc.formats.scheme import is_matrix
from calc.formats.stored import Piece, stored
from calc.formats.table import Format
from calc.hardware.gpu import GPU
from calc.hardware.parallel import Layout
from calc.hardware.shards import OutsideRules, copies_within_piece
from calc.model.architecture import Architecture
from calc.model.feedforward import MoE
from calc.model.tensor import Tensor
from calc.serving.engines.families import outside_rules
from calc.serving.engines.sizes import LoadedWeights, Stage
from calc.serving.engines.started import StartedEngine
from calc.units import MIB

ADAPTED = frozenset({"attention", "mlp", "experts_routed", "experts_shared", "ssm_linear"})
"""Components whose matrices may have adapters."""
PADDED = frozenset({"embedding", "lm_head", "experts_routed"})
"""Components that may get rows or columns."""
FUSED = {
    **dict.fromkeys(("q_proj", "k_proj", "v_proj", "query", "key", "value"), "qkv_proj"),
    **dict.fromkeys(("gate_proj", "up_proj", "w1", "w3"), "gate_up_proj"),
    **dict.fromkeys(("q_a_proj", "kv_a_proj_with_mqa"), "fused_qkv_a_proj"),
    **dict.fromkeys(("in_proj_qkv", "in_proj_z"), "in_proj_qkvz"),
    **dict.fromkeys(("in_proj_b", "in_proj_a"), "in_proj_ba"),
}
"""Modules of checkpoints that vLLM, and others after it, fuse -> the whole."""


class ExpertPadding(NamedTuple):
    """Padding of routed experts in MXFP4 by a kernel that loads them; a row is one output of an expert."""

    hidden: int = 1  # the model's width is rounded up to a multiple of it
    inner: int = 1  # so is the width of an expert on a rank
    row_bytes: int = 1  # so are the bytes of a row's packed values
    scale_rows: int = 1  # so are the rows of an expert's scales
    keeps_scales: bool = False  # the file's scales stay next to those that the kernel reads
    fp32_bias: bool = False


def quantized(piece: Piece) -> bool:
    """Whether it has scales."""
    return bool(piece.form.scale_bits + piece.form.matrix_bits)


def vision_share(tensor: Tensor, layout: Layout) -> int:
    """Bytes of one of its tensors on a rank, in 16 bits. The matrices of its layers are divided, and those of a merger
    behind them (`Glm4vPatchMerger`, `Qwen2_5_VisionPatchMerger`, `Qwen3_VisionPatchMerger`); all else is on each."""
    inside = len(tensor.layers) > 1 or ".merger." in tensor.name
    return 2 * tensor.parameters // (layout.tp if inside and len(tensor.shape) == 2 else 1)


def cuda_bytes(nbytes: int) -> int:
    """Bytes that PyTorch's CUDA allocator charges (c10/cuda/CUDACachingAllocator.cpp): 512 at a time; from 10 MiB on a
    segment of its own in steps of 2 MiB, whose rest is charged too unless it is more than 1 MiB and hence reusable."""
    nbytes = round_up(nbytes, 512)
    if nbytes < 10 * MIB:
        return nbytes
    segment = round_up(nbytes, 2 * MIB)
    return segment if segment - nbytes <= MIB else nbytes


def moe_of(tensor: Tensor, rank: Architecture) -> MoE:
    """The feed-forward that a tensor of routed experts belongs to."""
    blocks = (*rank.all_blocks, *(module.block for module in rank.prediction))
    return next(block.moe for block in blocks if block.moe is not None and tensor.layers[0] in block.layers)


def padded_experts(piece: Piece, rank: Architecture, padding: ExpertPadding) -> int:
    """Bytes that a kernel adds to an occurrence of a rank's experts."""
    tensor = piece.tensor
    moe = moe_of(tensor, rank)
    hidden, inner = moe.latent or rank.hidden, moe.expert.intermediate
    experts = tensor.stacked
    width, depth = round_up(hidden, padding.hidden), round_up(inner, padding.inner)
    together = tensor.numel // (experts * hidden * inner)  # 2 where gate and up are one matrix
    rows, columns = (width, depth) if "down" in tensor.name else (together * depth, width)
    values = experts * rows * round_up(columns // 2, padding.row_bytes)
    scales = experts * round_up(rows, padding.scale_rows) * (columns // 32)
    return values + scales + padding.keeps_scales * piece.scales - piece.nbytes


def keys_are_values(tensor: Tensor, rank: Architecture) -> bool:
    """Whether it projects keys that are the values too."""
    if not tensor.name.endswith("k_proj.weight") or not tensor.layers:
        return False
    blocks = (block for block in rank.all_blocks if tensor.layers[0] in block.layers)
    return any(getattr(mixer, "keys_are_values", False) for block in blocks for mixer in block.attentions)


def round_up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


class Loader(StartedEngine):
    """Weights that an engine loads, and their bytes on a rank: fused, padded, rounded, with tables."""

    fused: ClassVar[Mapping[str, str]] = {}
    """Module of the checkpoint -> the one that it becomes a part of."""
    vocabulary_multiple: ClassVar[int] = 1
    """Rows of embedding and head come in multiples of it."""
    undoes_double_quantization: ClassVar[bool] = False
    """Done by vLLM (`bitsandbytes_loader.py`)."""
    absorbs_latents: ClassVar[bool] = False
    """Keeps latent attention's up-projection once more in 16 bits where it is quantized."""

    repeats_keys: ClassVar[bool] = False
    """Has a projection for values that are the keys, too: `QKVParallelLinear`, as Gemma 4 uses it
    (`models/gemma4.py` of vLLM, `gemma4_causal.py` of SGLang: K is loaded into both)."""

    @property
    def experts(self) -> ExpertPadding | None:
        """Padding of experts in MXFP4."""
        return None

    @staticmethod
    def least_group(form: Format) -> int | None:
        """Inputs of the smallest groups that a kernel makes of a format's, where a rank's experts are not whole groups;
        None: none makes any."""
        return None

    @property
    def adapter_rows(self) -> int:
        """Ranks of all slots for LoRA adapters together: each matrix [out, in] gets so many rows of A [in] and columns
        of B [out]."""
        return 0

    @property
    def loads_vision(self) -> bool:
        """Whether a vision encoder is loaded with the language model."""
        return True

    @property
    def loads_draft(self) -> bool:
        """Whether a draft layer is loaded too."""
        return False

    def with_draft(self, architecture: Architecture) -> Architecture:
        """The model with the draft layer that is to be loaded. Raises ConfigError where there is none."""
        return architecture

    def for_gpu(self, gpu: GPU, architecture: Architecture) -> Self:
        """The engine with what it decides by the kind of GPU that changes the weights it holds."""
        return self

    @property
    def adapters(self) -> tuple[int, int]:
        """LoRA adapters that a batch may use, each with a slot on the GPU, and those that every rank keeps whole in the
        host's memory."""
        return 0, 0

    def left_out(self) -> Iterator[Message]:
        """Uncounted things that its options start."""
        return iter(())

    weight_options: ClassVar[tuple[str, ...]] = ()
    """Options that say which weights GPUs hold, and how."""

    def loads_same_weights(self, other: Self) -> bool:
        """Whether GPUs hold the same weights under the flags of another."""
        return all(getattr(self.options, name) == getattr(other.options, name) for name in self.weight_options)

    def file(self, architecture: Architecture, precision: Precision, rank: Architecture) -> list[Piece]:
        """The tensors of a rank, each with the format of the file that it is read from."""
        return stored(architecture, precision, rank)

    def on_gpus(self, architecture: Architecture, file: list[Piece]) -> list[Piece]:
        """The tensors of a rank that GPUs hold, as the file has them."""
        return file

    def outside_rules(self, model: Architecture) -> OutsideRules:
        """Weights outside the layers that pipeline stages hold."""
        return outside_rules(self.name, model.model_type)

    def loaded(self, rank: Architecture, pieces: Sequence[Piece], stage: range, layout: Layout) -> LoadedWeights:
        """Bytes of some tensors on one rank of a pipeline stage once loaded."""
        padding, adapter_rows, outside = self.experts, self.adapter_rows, self.outside_rules(rank)
        allocations: dict[tuple[str, tuple[int, ...]], list[int]] = {}  # name, first layer -> weights, scales, copies
        parts: dict[str, int] = defaultdict(int)
        in_weights = in_scales = padded = 0
        for read in pieces:
            if not (copies := copies_within_piece(rank, read.tensor, stage, outside)):
                continue
            doubled = read.form.outer is not None and self.undoes_double_quantization and read.form == FORMATS["nf4-dq"]
            piece = Piece.of(read.tensor, FORMATS["nf4"]) if doubled else read
            if piece.tensor.component == "experts_routed":
                piece = self.regrouped(piece, rank)
            tensor, _, a_layer, nbytes, scales = piece
            component, excluded_as, name = tensor.component, tensor.excluded_as, tensor.name
            if excluded_as == "vision":
                parts["vision"] += vision_share(tensor, layout)
                continue
            count, weights = copies * a_layer, nbytes - scales
            more = self.padding(piece, rank, layout.tp, padding) if component in PADDED else 0
            if self.repeats_keys and keys_are_values(tensor, rank):
                more += nbytes
            if self.absorbs_latents and name.endswith("kv_b_proj.weight") and quantized(piece):
                parts["absorbed"] += copies * 2 * tensor.numel
            if excluded_as == "multi_token_prediction":
                parts["draft"] += count * nbytes
            else:
                in_weights += count * weights
                in_scales += count * scales
            padded += count * more
            if adapter_rows and excluded_as is None and component in ADAPTED and is_matrix(tensor):
                matrix = tensor.stacked * (tensor.shape[-2] + tensor.shape[-1])
                parts["adapters"] += copies * 2 * adapter_rows * tensor.experts // tensor.stacked * matrix
            allocated = allocations.setdefault((self.allocation(name), tensor.layers[:1]), [0, 0, copies])
            allocated[0] += a_layer * (weights + more)
            allocated[1] += a_layer * scales
        rounding = 0
        for weights, scales, copies in allocations.values():
            rounding += copies * (cuda_bytes(weights) - weights + (cuda_bytes(scales) - scales if scales else 0))
        return LoadedWeights(weights=in_weights, scales=in_scales, padding=padded, rounding=rounding, **parts)

    def regrouped(self, piece: Piece, rank: Architecture) -> Piece:
        """A matrix of routed experts with the groups in which a kernel reads them: they are halved while they divide
        neither side of a rank's experts (`moe_wna16.py` of vLLM and SGLang)."""
        group, least = piece.form.block[1], self.least_group(piece.form)
        if group is None or least is None or not is_matrix(piece.tensor):
            return piece
        moe = moe_of(piece.tensor, rank)
        while group > least and (moe.expert.intermediate % group or (moe.latent or rank.hidden) % group):
            group //= 2
        return Piece.of(piece.tensor, replace(piece.form, block=(1, group))) if group != piece.form.block[1] else piece

    def allocation(self, name: str) -> str:
        """The tensor that a tensor of the checkpoint goes into; all experts of a layer share one."""
        module, _, leaf = name.rpartition(".")
        path, _, last = module.rpartition(".")
        return f"{path}.{self.fused[last]}.{leaf}" if last in self.fused else name

    def padding(self, piece: Piece, rank: Architecture, tp: int, experts: ExpertPadding | None) -> int:
        """Bytes that are added to one occurrence: to the vocabulary of one GPU (that of a rank is padded already), and
        to experts in MXFP4."""
        tensor = piece.tensor
        if tensor.component in ("embedding", "lm_head") and tp == 1 and tensor.shape[:1] == (rank.vocab,):
            rows = round_up(rank.vocab, self.vocabulary_multiple)
            return piece.form.nbytes((rows, *tensor.shape[1:])) - piece.nbytes
        if experts is None or tensor.component != "experts_routed":
            return 0
        if piece.form == FORMATS["mxfp4"]:
            return padded_experts(piece, rank, experts)
        return piece.nbytes if experts.fp32_bias and tensor.name.endswith("_bias") else 0

    def draft(self, precision: Precision) -> tuple[Architecture, Precision, int] | None:
        """The draft model of a model of some precision, how the draft is stored, and the tokens that it drafts at
        once."""
        return None

    def draft_weights_per_stage(
        self, architecture: Architecture, precision: Precision, tp: int, stages: int
    ) -> tuple[int, ...]:
        """Bytes of a draft model's weights on one of tp ranks, by pipeline stage [stages]."""
        return (0,) * stages

    rotary_width: ClassVar[int] = 0
    """Bytes of a sine or cosine in tables that each stage keeps; 0 where there are none."""

    def tables(self, rank: Architecture) -> LoadedWeights:
        """Bytes of the tables of sines and cosines on each stage, which the checkpoint does not have."""
        return LoadedWeights(rotary=self.rotary_width * sum(rows * columns for rows, columns in rank.rotary))

    def loading(self, stage: Stage) -> int:
        """Bytes that it adds to the stored weights: tables, padding, rounding, what it keeps twice or unpacks."""
        return stage.loaded.total - stage.weights - stage.vision
