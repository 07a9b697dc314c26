"""Weights of a training step on one rank of one pipeline stage, with all that belongs to them: which of them have
adapters, and what optimizers remember of each."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import NamedTuple

from calc.formats import BITSANDBYTES, FORMATS, Precision
from calc.formats.stored import stored
from calc.hardware.shards import copies_within, layers_within
from calc.model.architecture import Architecture
from calc.model.tensor import Component, Tensor
from calc.training.layout import TrainingLayout, TrainingScenario
from calc.training.workload import WIDTH, LoraTargets, Optimizer, OptimizerKernel, Recipe, TrainingWorkload

OUTSIDE, EMBEDDING = -1, -2
"""Places that are no layer: what stands outside of them all, and an embedding that is gathered by itself."""


@dataclass(frozen=True)
class RankWeight:
    """A tensor of a tensor-parallel rank, and how often a stage holds it."""

    tensor: Tensor
    copies: int
    nbytes: int  # of one copy, stored as LoRA's base is
    ep: int  # ranks that share its experts

    @cached_property
    def numel(self) -> int:
        return self.tensor.numel

    @property
    def places(self) -> tuple[int, ...]:
        """The layers that hold it, or `OUTSIDE`."""
        return self.tensor.layers or (OUTSIDE,)

    @cached_property
    def rows(self) -> int:
        """Rows that FSDP2 deals out over the replicas, each as many as the first: the experts of a stack, or the rows
        of a matrix (torch 2.13, `distributed/fsdp/_fully_shard/_fsdp_param.py`)."""
        if "{expert}" in self.tensor.name:
            return max(1, self.copies // len(self.places) // self.ep)
        return self.tensor.shape[0]

    def padded(self, elements: int, replicas: int) -> int:
        """Elements with the rows that fill up the last replicas."""
        return elements * -(-self.rows // replicas) * replicas // self.rows


class GatheredUnit(NamedTuple):
    """Elements of what FSDP gathers at once, a layer or all that stands outside of them, on one rank."""

    gathered: int
    trained: int
    filled: int  # the trained ones with what fills up the shards


@dataclass(frozen=True)
class States:
    """Bytes that a rank holds."""

    frozen: int  # weights that are not trained
    weights: int  # trained weights
    master: int
    gradients: int  # all of them, as they stay
    optimizer: int
    update: int  # what the optimizer needs for a moment
    casts: int  # of gradients at the optimizer's step, with those that are still there
    largest_gradient: int

    @property
    def standing(self) -> int:
        """Bytes of weights and of what belongs to them, between steps, but for gradients."""
        return self.frozen + self.weights + self.master + self.optimizer

    def offloaded(self, recipe: Recipe) -> "States":
        """Bytes that stay on the GPU where shards wait in CPU memory: gradients alone, where they are added into
        buffers."""
        buffers = self.gradients if recipe.buffers else 0
        return States(0, 0, 0, buffers, 0, 0, 0, self.largest_gradient)


@dataclass(frozen=True, eq=False)
class StageWeights:
    """The weights of a stage, however many replicas there are."""

    pieces: tuple[range, ...]
    weights: list[RankWeight]
    trained: list[RankWeight]
    separate_embedding: bool

    def units(self, replicas: int = 1) -> dict[int, GatheredUnit]:
        """Elements of each layer, of what stands outside of them, and of an embedding that is a unit of its own, as so
        many replicas gather them."""
        gathered, trained = self.elements(self.weights, replicas), self.elements(self.trained, 1)
        filled = trained if replicas == 1 else self.elements(self.trained, replicas)
        return {
            place: GatheredUnit(gathered.get(place, 0), trained.get(place, 0), filled.get(place, 0))
            for place in gathered | trained
        }

    def elements(self, weights: list[RankWeight], replicas: int) -> dict[int, int]:
        """Elements by place, with what fills up the shards of so many replicas."""
        alike: dict[tuple[int, ...], int] = {}  # of places that hold the same
        for weight in weights:
            alone = self.separate_embedding and weight.tensor.component == "embedding"
            places = (EMBEDDING,) if alone else weight.places
            each = weight.copies * weight.numel // len(places) // weight.ep
            filled = each if replicas == 1 else weight.padded(each, replicas // weight.ep or 1)
            alike[places] = alike.get(places, 0) + filled
        sizes: dict[int, int] = {}
        for places, size in alike.items():
            for place in places:
                sizes[place] = sizes.get(place, 0) + size
        return sizes

    def gathered(self, recipe: Recipe) -> int:
        return WIDTH[recipe.compute] * sum(unit.gathered for unit in self.units().values())


def stage_weights(
    rank: Architecture, pieces: tuple[range, ...], layout: TrainingLayout, frozen: Precision, work: TrainingWorkload
) -> StageWeights:
    """The weights that a stage holds: those of its layers; the embedding in the first, what follows the layers in the
    last, and there a tied head too."""
    weights, plain = list[RankWeight](), plain_experts(work, frozen)
    for piece in stored(rank, frozen):
        tensor = piece.tensor
        copies = copies_within(rank, tensor, *pieces) if tensor.excluded_as is None else 0
        if copies:
            layers = layers_within(tensor, *pieces)
            here = tensor if layers == tensor.layers else replace(tensor, layers=layers)
            a_layer = tensor.count // len(tensor.layers) if tensor.layers else 1
            routed = tensor.component == "experts_routed"
            nbytes = FORMATS["bf16"].nbytes(tensor.shape) if routed and plain else piece.nbytes
            weights.append(RankWeight(here, copies * a_layer, nbytes, layout.ep if routed else 1))
    trained = [
        weight if tensor is weight.tensor else replace(weight, tensor=tensor)
        for weight in weights
        for tensor in trained_of(rank, weight.tensor, work)
    ]
    return StageWeights(pieces, weights, trained, layout.separate_embedding and not rank.tied)


def states_of(stage: StageWeights, scenario: TrainingScenario) -> States:
    """Each part divided over as many ranks as the stage of ZeRO says (arXiv:1910.02054 section 5)."""
    work, recipe, layout = scenario.workload, scenario.recipe, scenario.layout
    trained, elements = stage.trained, [(weight, weight.copies * weight.numel) for weight in stage.trained]
    width, gradient, state = widths(work, recipe)
    kernel = work.optimizer_kernel or ("fused" if recipe.fused else "foreach")
    # ranks over which a weight is divided in any case, by those that share its experts; and from a stage of ZeRO on
    apart = {ep: ep for ep in (1, layout.ep)}
    together = {ep: ep * (layout.replicas if ep == 1 else layout.expert_replicas) for ep in apart}
    by_fsdp = layout.gathered_by_fsdp(recipe)

    def divided(sizes: Iterable[tuple[RankWeight, int]], zero: int, width: int = 1) -> list[int]:
        """Bytes on one rank of sizes that are each so wide."""
        ranks = together if layout.zero >= zero else apart
        if by_fsdp and layout.zero >= zero:
            sizes = [(weight, weight.padded(width * size, ranks[weight.ep] // weight.ep)) for weight, size in sizes]
            width = 1
        return [-(-width * size // ranks[weight.ep]) for weight, size in sizes]

    def total(width: int, zero: int) -> int:
        return sum(divided(elements, zero, width))

    def base(weight: RankWeight) -> int:
        quantized = weight.nbytes < WIDTH[recipe.compute] * weight.numel
        return 4 * weight.numel if work.fp32_rest and not quantized else weight.nbytes

    def largest() -> int:
        """Elements of the largest tensor that is trained as one, on one rank."""
        return max(divided(parameters_of(trained), 2), default=0)

    frozen = [] if work.trains_base else [(weight, weight.copies * base(weight)) for weight in stage.weights]
    optimizer = [(weight, weight.copies * state_bytes(work.optimizer, weight.tensor, state)) for weight in trained]
    return States(
        frozen=sum(divided(frozen, 3)),
        weights=total(width, 3),
        master=total(4, 1) if recipe.master else 0,
        gradients=total(gradient, 2),
        optimizer=sum(divided(optimizer, 1)),
        update=update_bytes(work.optimizer, kernel, lambda: total(1, 1), largest, width, state),
        casts=casts_of(divided(elements, 2), trained, gradient, recipe, zero_3=layout.zero == 3)
        if recipe.flattened or recipe.casts != "none"
        else 0,
        largest_gradient=gradient * largest() if work.optimizer_in_backward else 0,
    )


def parameters_of(trained: Iterable[RankWeight]) -> Iterator[tuple[RankWeight, int]]:
    """Elements of what is trained as one, of which transformers has two for the experts of a layer: gate with up, and
    down."""
    stacks: dict[tuple[tuple[int, ...], bool, str], tuple[RankWeight, int]] = {}
    for weight in trained:
        name = weight.tensor.name
        if "{expert}" not in name:
            yield weight, weight.numel
            continue
        key = weight.places, "down_proj" in name or ".w2." in name, name.rpartition(".")[2]
        so_far = stacks.get(key, (weight, 0))[1]
        stacks[key] = weight, so_far + weight.copies * weight.numel // len(weight.places)
    yield from stacks.values()


class Widths(NamedTuple):
    """Bytes of an element of a trained weight, of its gradient, and of a moment of the optimizer."""

    weight: int
    gradient: int
    state: int


def widths(work: TrainingWorkload, recipe: Recipe) -> Widths:
    """Widths by the recipe; adapters may be in fp32 next to 16-bit weights, with all that belongs to them."""
    weight, gradient, state = WIDTH[recipe.weights], WIDTH[recipe.gradients], WIDTH[recipe.states]
    if not work.fp32_adapters:
        return Widths(weight, gradient, state)
    weight = weight if work.trains_base else 4
    return Widths(weight, max(gradient, weight), max(state, weight))


def casts_of(sizes: list[int], trained: list[RankWeight], gradient: int, recipe: Recipe, *, zero_3: bool) -> int:
    """Bytes of gradients while the optimizer casts them to fp32: one after the other, of which each is let go of, until
    the last matrix, or kept; or flattened, all or so many elements at once, and that cast."""
    if recipe.flattened:
        elements, at_once = sum(sizes), recipe.sub_group if zero_3 else 0
        return elements * gradient + min(elements, at_once or elements) * (gradient + 4)
    if recipe.casts == "all":
        return sum(sizes) * (gradient + 4)
    return 4 * sum(sizes) + gradient * last_matrix(trained)


def last_matrix(trained: list[RankWeight]) -> int:
    """Elements of the last matrix of the model, experts as transformers stacks them: of the head, or of a layer."""
    matrices = [weight for weight in trained if len(weight.tensor.shape) > 1]
    if not matrices:
        return 0
    heads = [weight for weight in matrices if weight.tensor.component == "lm_head"]
    weight = heads[-1] if heads else matrices[-1]
    return weight.copies * weight.numel // len(weight.places)


BLOCK = 256  # weights that share a scale of their 8-bit state
LEAST_QUANTISED = 4096  # elements; smaller tensors keep 32-bit states


def state_bytes(optimizer: Optimizer, tensor: Tensor, width: int) -> int:
    """Bytes of state of one occurrence of a tensor, an element of a moment taking `width`."""
    shape, n = tensor.shape, tensor.numel
    is_matrix = len(shape) >= 2  # or a stack of them
    match optimizer:
        case "sgd":
            return 0
        case "sgd-momentum":
            return n * width
        case "adamw":  # both moments: arXiv:1711.05101
            return 2 * n * width
        case "adamw-8bit" if tensor.component == "embedding":  # transformers' Trainer overrides it (create_optimizer)
            return 8 * n
        case "adamw-8bit" | "adamw-8bit-ao":  # block-wise, with an fp32 scale a block: arXiv:2110.02861 section 2
            return 2 * (n + 4 * -(-n // BLOCK)) if n >= LEAST_QUANTISED else 8 * n
        case "adafactor":  # sums of rows and of columns, in fp32: arXiv:1804.04235 section 3
            return 4 * (prod(shape[:-1]) + prod(shape[:-2]) * shape[-1] if is_matrix else n)
        case "muon":  # one momentum for the layers' matrices, Adam for all else: arXiv:2502.16982 section 2
            hidden = is_matrix and tensor.layers
            return n * width if hidden else 2 * n * width


def update_bytes(
    optimizer: Optimizer,
    kernel: OptimizerKernel,
    elements: Callable[[], int],
    largest: Callable[[], int],
    weight: int,
    state: int,
) -> int:
    """Bytes that the update needs for a moment: `elements` are all that are trained, `largest` those of the largest
    tensor, counted where they are read; an element of a weight takes `weight`, of a moment `state`.

    AdamW foreach holds the square roots of all second moments at once, for-loop that of one tensor and its quotient
    (`torch/optim/adam.py`). transformers' Adafactor holds two fp32 tensors, and of 16-bit weights copies of weight and
    gradient (`optimization.py`). torchao computes on fp32 copies (`single_param_adam`), assumed to be those of the
    weight and both moments; bitsandbytes and fused kernels in registers.
    """
    match optimizer, kernel:
        case "adamw", "foreach":
            return elements() * state
        case "adamw", "for-loop":
            return 2 * largest() * state
        case "adafactor", _:
            return (16 if weight < 4 else 8) * largest()
        case "adamw-8bit-ao", _:
            return 12 * largest()
        case _:
            return 0


DENSE: frozenset[Component] = frozenset({"attention", "mlp", "experts_shared", "ssm_linear", "other"})
ADAPTED: dict[LoraTargets, frozenset[Component]] = {
    "all": DENSE,
    "dense": DENSE,
    "attention": frozenset({"attention"}),
    "qv": frozenset({"attention"}),
}
SCORE = "score.weight"
"""The head of a reward or value model, which PEFT trains whole (`modules_to_save` of SEQ_CLS)."""
FEEDFORWARD = ("gate_proj", "up_proj", "down_proj")
STACKED = frozenset(
    "minimax minimax_m2 afmoe deepseek_v2 deepseek_v3 deepseek_v32 dots1 ernie4_5_moe glm4_moe glm4_moe_lite "
    "glm_moe_dsa glm4v_moe longcat_flash solar_open mellum qwen3_moe qwen3_omni_moe qwen3_next hunyuan_v1_moe "
    "flex_olmo olmoe exaone_moe cohere2_moe mixtral sarvam_mla".split()
)
"""Families whose stacks of experts "all-linear" takes in, with the router, and with names that so no longer stand for
dense matrices next to them (PEFT 0.21.2, `utils/transformers_weight_conversion.py`)."""


def adapts_experts(model: Architecture, work: TrainingWorkload) -> bool:
    """Whether routed experts and routers have adapters."""
    return not work.trains_base and work.lora_targets == "all" and model.model_type in STACKED and bool(model.experts)


def plain_experts(work: TrainingWorkload, base: Precision) -> bool:
    """Whether routed experts stay in 16 bits in a base that bitsandbytes quantizes: it replaces `nn.Linear` only
    (transformers 5.23, `integrations/bitsandbytes.py`), and stacked experts are none."""
    return work.method == "qlora" and base.weights in BITSANDBYTES and not work.quantized_experts


def adapted_matrices(model: Architecture, work: TrainingWorkload) -> frozenset[str]:
    """Local names of the matrices that have adapters, routed experts aside."""
    if work.lora_targets == "qv":
        return frozenset({"q_proj", "v_proj"})
    names = {name.split(".")[0] for block in model.all_blocks for mixer in block.mixers for name in mixer.shapes(1)}
    if work.lora_targets == "attention":
        return frozenset(names)
    names |= {tensor.name.split(".")[-2] for tensor in model.tensors() if is_other_matrix(tensor)}
    return frozenset(names if adapts_experts(model, work) else {*names, *FEEDFORWARD, "in_proj", "shared_expert_gate"})


def is_other_matrix(tensor: Tensor) -> bool:
    """Whether it is the weight of an `nn.Linear` outside mixers and feed-forwards."""
    return tensor.component == "other" and len(tensor.shape) == 2 and tensor.name.endswith(".weight")


def trained_of(rank: Architecture, tensor: Tensor, work: TrainingWorkload) -> Iterator[Tensor]:
    """Trained tensors of a weight: itself, or the two matrices that LoRA adds, [rank, in] and [out, rank]
    (arXiv:2106.09685 section 4.1)."""
    if work.trains_base or tensor.name == SCORE:
        yield tensor
    elif adapts_experts(rank, work) and tensor.component in ("experts_routed", "router"):
        yield from adapters_of_experts(tensor, work.lora_rank)
    elif has_adapter(rank, tensor, work):
        width = tensor.shape[1]
        for number, rows in enumerate(rows_of_modules(rank, tensor, work.lora_targets)):
            yield replace(tensor, name=f"{tensor.name}.{number}.lora_A", shape=(work.lora_rank, width))
            yield replace(tensor, name=f"{tensor.name}.{number}.lora_B", shape=(rows, work.lora_rank))


def rows_of_modules(rank: Architecture, tensor: Tensor, targets: LoraTargets) -> list[int]:
    """Rows of the matrices that transformers' class makes of one of the checkpoint and that have adapters: itself, or
    of packed ones those that the class has apart."""
    parts = rank.names.packed.get(tensor.name.split(".")[-2], ())
    if rank.kernels.packs is None or not parts or parts in rank.kernels.packs:
        return [tensor.shape[0]]
    mixers = [mixer for block in rank.all_blocks if tensor.layers[0] in block.runs_in for mixer in block.mixers]
    shapes = next(shapes for mixer in mixers if f"{parts[0]}.weight" in (shapes := mixer.shapes(1)))
    together = [pack for pack in rank.kernels.packs if set(pack) <= set(parts)]
    alone = [(part,) for part in parts if not any(part in pack for pack in together)]
    adapted = (pack for pack in (*together, *alone) if targets != "qv" or set(pack) & {"q_proj", "v_proj"})
    return [sum(shapes[f"{part}.weight"][0] for part in pack) for pack in adapted]


def has_adapter(rank: Architecture, tensor: Tensor, work: TrainingWorkload) -> bool:
    """Whether a matrix outside the routed experts has one."""
    targets = work.lora_targets
    if len(tensor.shape) != 2 or tensor.component not in ADAPTED[targets]:
        return False
    if tensor.component == "other":
        return is_other_matrix(tensor)
    if tensor.component in ("mlp", "experts_shared"):
        return not adapts_experts(rank, work)
    return targets != "qv" or tensor.name.split(".")[-2] in queries_and_values(rank)


def adapters_of_experts(tensor: Tensor, r: int) -> Iterator[Tensor]:
    """Adapters of a router, or of an expert's matrix: gate and up are stacked in one, whose rank is twice as large, so
    that each has an output as wide as both."""
    if len(tensor.shape) == 2:
        out, width = tensor.shape
        yield replace(tensor, name=f"{tensor.name}.lora_A", shape=(r, width))
        doubled = tensor.component == "experts_routed" and not tensor.name.endswith(("down_proj.weight", "w2.weight"))
        yield replace(tensor, name=f"{tensor.name}.lora_B", shape=(out, 2 * r if doubled else r))


def queries_and_values(rank: Architecture) -> set[str]:
    """Checkpoints' names of the projections of queries and values, or of the one that holds both."""
    names, wanted = rank.names, ("q_proj", "v_proj")
    packed = [name for name, parts in names.packed.items() if set(wanted) & set(parts)]
    return {*packed, *(names.renamed.get(name, name) for name in wanted)}
