"""Weights of a training step on one rank of one pipeline stage, with all that belongs to them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from calc.formats import FORMATS, Precision
from calc.formats.stored import stored
from calc.hardware.shards import copies_within, layers_within
from calc.model.architecture import Architecture
from calc.model.tensor import Tensor
from calc.training.optimizer import OptimizerKernel, state_bytes, update_bytes
from calc.training.peft import plain_experts, trained_of
from calc.training.recipe import WIDTH, Recipe
from calc.training.sharding import TrainingLayout
from calc.training.training_workload import TrainingWorkload

OUTSIDE, EMBEDDING = -1, -2
"""Places that are no layer: what stands outside of them all, and an embedding that is gathered by itself."""


@dataclass(frozen=True)
class RankWeight:
    """A tensor of a tensor-parallel rank, and how often a stage holds it."""

    tensor: Tensor
    copies: int
    nbytes: int  # of one copy, stored as LoRA's base is
    ep: int  # ranks that share its experts

    @property
    def numel(self) -> int:
        return self.tensor.numel

    @property
    def places(self) -> tuple[int, ...]:
        """The layers that hold it, or `OUTSIDE`."""
        return self.tensor.layers or (OUTSIDE,)

    @property
    def rows(self) -> int:
        """What FSDP2 deals out over the replicas, each as many as the first: the experts of a stack, or the rows of a
        matrix (torch 2.13, `distributed/fsdp/_fully_shard/_fsdp_param.py`)."""
        if "{expert}" in self.tensor.name:
            return max(1, self.copies // len(self.places) // self.ep)
        return self.tensor.shape[0]

    def padded(self, elements: int, replicas: int) -> int:
        """Elements with the rows that fill up the last replicas."""
        return elements * -(-self.rows // replicas) * replicas // self.rows


@dataclass
class GatheredUnit:
    """Elements of what FSDP gathers at once, a layer or all that stands outside of them, on one rank."""

    gathered: int = 0
    trained: int = 0
    filled: int = 0  # the trained ones with what fills up the shards


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


@dataclass(frozen=True, eq=False)
class StageWeights:
    """The weights of a stage, however many replicas there are."""

    pieces: tuple[range, ...]
    weights: list[RankWeight]
    trained: list[RankWeight]
    separate_embedding: bool

    def units(self, replicas: int = 1) -> dict[int, GatheredUnit]:
        """Elements of each layer and of what stands outside of them, as so many replicas gather them."""
        return units_of(self.weights, self.trained, replicas, separate_embedding=self.separate_embedding)


def stage_weights(
    rank: Architecture, pieces: tuple[range, ...], layout: TrainingLayout, frozen: Precision, work: TrainingWorkload
) -> StageWeights:
    """All that a stage holds, and what of it is trained."""
    weights = list(weights_of(rank, pieces, layout, frozen, plain=plain_experts(work, frozen)))
    trained = [
        weight if tensor is weight.tensor else replace(weight, tensor=tensor)
        for weight in weights
        for tensor in trained_of(rank, weight.tensor, work)
    ]
    return StageWeights(pieces, weights, trained, layout.separate_embedding and not rank.tied)


def states_of(stage: StageWeights, work: TrainingWorkload, recipe: Recipe, layout: TrainingLayout) -> States:
    """Each part divided over as many ranks as the stage of ZeRO says (arXiv:1910.02054 section 5)."""
    trained = stage.trained
    width, gradient, state = trained_width(work, recipe), gradient_width(work, recipe), state_width(work, recipe)
    elements = [(weight, weight.copies * weight.numel) for weight in trained]
    by_fsdp = layout.gathered_by_fsdp(recipe)

    def copies(weight: RankWeight) -> int:
        return layout.replicas if weight.ep == 1 else layout.expert_replicas

    def divided(sizes: Iterable[tuple[RankWeight, int]], zero: int) -> list[int]:
        """Each size on one rank: over those that share its experts, and from this stage of ZeRO on over all that hold
        the same."""
        if layout.zero < zero:
            return [-(-size // weight.ep) for weight, size in sizes]
        if by_fsdp:
            sizes = [(weight, weight.padded(size, copies(weight))) for weight, size in sizes]
        return [-(-size // (weight.ep * copies(weight))) for weight, size in sizes]

    def total(width: int, zero: int) -> int:
        return sum(divided([(weight, width * size) for weight, size in elements], zero))

    def base(weight: RankWeight) -> int:
        return 4 * weight.numel if work.fp32_rest and not quantized(weight, recipe) else weight.nbytes

    largest = max(divided(parameters_of(trained), 2), default=0)
    frozen = [] if work.trains_base else [(weight, weight.copies * base(weight)) for weight in stage.weights]
    optimizer = [(weight, weight.copies * state_bytes(work.optimizer, weight.tensor, state)) for weight in trained]
    return States(
        frozen=sum(divided(frozen, 3)),
        weights=total(width, 3),
        master=total(4, 1) if recipe.master else 0,
        gradients=total(gradient, 2),
        optimizer=sum(divided(optimizer, 1)),
        update=update_bytes(work.optimizer, kernel_of(work, recipe), total(1, 1), largest, width, state),
        casts=casts_of(
            divided(elements, 2),
            last_matrix(trained),
            gradient,
            recipe,
            recipe.sub_group if layout.zero == 3 else 0,
        ),
        largest_gradient=gradient * largest,
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


def trained_width(work: TrainingWorkload, recipe: Recipe) -> int:
    """Bytes of an element of a trained weight."""
    return 4 if work.fp32_adapters and not work.trains_base else WIDTH[recipe.weights]


def gradient_width(work: TrainingWorkload, recipe: Recipe) -> int:
    """Bytes of an element of a gradient."""
    width = WIDTH[recipe.gradients]
    return max(width, trained_width(work, recipe)) if work.fp32_adapters else width


def state_width(work: TrainingWorkload, recipe: Recipe) -> int:
    """Bytes of an element of a moment."""
    return max(WIDTH[recipe.states], trained_width(work, recipe)) if work.fp32_adapters else WIDTH[recipe.states]


def kernel_of(work: TrainingWorkload, recipe: Recipe) -> OptimizerKernel:
    """How the optimizer runs: as asked, or as the framework has it by default."""
    return work.optimizer_kernel or ("fused" if recipe.fused else "foreach")


def quantized(weight: RankWeight, recipe: Recipe) -> bool:
    """Whether a frozen weight takes less than what is multiplied."""
    return weight.nbytes < WIDTH[recipe.compute] * weight.numel


def casts_of(sizes: list[int], last: int, gradient: int, recipe: Recipe, at_once: int) -> int:
    """Bytes of gradients while the optimizer casts them to fp32: one after the other, of which each is let go of, until
    the last matrix, or kept; or flattened, all or so many elements at once, and that cast."""
    if recipe.flattened:
        elements = sum(sizes)
        return elements * gradient + min(elements, at_once or elements) * (gradient + 4)
    if recipe.casts == "none":
        return 0
    if recipe.casts == "all":
        return sum(sizes) * (gradient + 4)
    return 4 * sum(sizes) + gradient * last


def last_matrix(trained: list[RankWeight]) -> int:
    """Elements of the last matrix of the model, experts as transformers stacks them: of the head, or of a layer."""
    matrices = [weight for weight in trained if len(weight.tensor.shape) > 1]
    if not matrices:
        return 0
    heads = [weight for weight in matrices if weight.tensor.component == "lm_head"]
    weight = heads[-1] if heads else matrices[-1]
    return weight.copies * weight.numel // len(weight.places)


def weights_of(
    rank: Architecture, pieces: tuple[range, ...], layout: TrainingLayout, frozen: Precision, *, plain: bool
) -> Iterator[RankWeight]:
    """The weights that a stage holds: those of its layers; the embedding in the first, what follows the layers in the
    last, and there a tied head too."""
    for piece in stored(rank, frozen):
        tensor = piece.tensor
        copies = copies_within(rank, tensor, *pieces) if tensor.excluded_as is None else 0
        if copies:
            layers = layers_within(tensor, *pieces)
            here = tensor if layers == tensor.layers else replace(tensor, layers=layers)
            a_layer = tensor.count // len(tensor.layers) if tensor.layers else 1
            routed = tensor.component == "experts_routed"
            nbytes = FORMATS["bf16"].nbytes(tensor.shape) if routed and plain else piece.nbytes
            yield RankWeight(here, copies * a_layer, nbytes, layout.ep if routed else 1)


def units_of(
    weights: Iterable[RankWeight], trained: Iterable[RankWeight], replicas: int, *, separate_embedding: bool
) -> dict[int, GatheredUnit]:
    """Elements of each layer, of what stands outside of them, and of an embedding that is a unit of its own."""

    def elements(weights: Iterable[RankWeight], replicas: int) -> dict[tuple[int, ...], int]:
        """Elements in each of the places that hold the same, with what fills up the shards of so many replicas."""
        sizes: dict[tuple[int, ...], int] = {}
        for weight in weights:
            alone = separate_embedding and weight.tensor.component == "embedding"
            places = (EMBEDDING,) if alone else weight.places
            each = weight.copies * weight.numel // len(places) // weight.ep
            filled = each if replicas == 1 else weight.padded(each, replicas // weight.ep or 1)
            sizes[places] = sizes.get(places, 0) + filled
        return sizes

    own = elements(trained, 1)
    units: dict[int, GatheredUnit] = {}
    for places, size in elements(weights, replicas).items():
        for place in places:
            units.setdefault(place, GatheredUnit()).gathered += size
    for places, size in own.items():
        for place in places:
            units.setdefault(place, GatheredUnit()).trained += size
    for places, size in (own if replicas == 1 else elements(trained, replicas)).items():
        for place in places:
            units[place].filled += size
    return units
