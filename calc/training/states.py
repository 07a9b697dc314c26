"""Weights of a training step on one rank of one pipeline stage, with all that belongs to them."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from calc.errors import Frozen
from calc.formats import Precision
from calc.formats.stored import stored
from calc.model.architecture import Architecture
from calc.model.tensor import Component, Tensor
from calc.training.optimizer import state_bytes, step_bytes
from calc.training.recipe import WIDTH, Recipe
from calc.training.sharding import TrainingLayout
from calc.training.training_workload import LoraTargets, TrainingWorkload

ADAPTED: dict[LoraTargets, frozenset[Component]] = {
    "all": frozenset({"attention", "mlp", "experts_shared", "ssm_linear"}),
    "attention": frozenset({"attention"}),
    "qv": frozenset({"attention"}),
}
CAST = 4
"""A stage of ZeRO beyond the last: what no stage divides."""


class States(Frozen):
    """Bytes that a rank holds."""

    frozen: int  # weights that are not trained
    weights: int  # trained weights
    master: int
    gradients: int
    optimizer: int
    copies: int  # of the gradients, at the optimizer's step
    gathered: int  # weights of the layer at work and of the next, where they are sharded; or casts of all
    dequantised: int  # the largest matrix in 16 bits, where weights are quantised
    largest_gradient: int
    head_gradient: int
    update: int  # what the optimizer needs beside for the largest tensor


@dataclass(frozen=True)
class Weight:
    """A tensor of a tensor-parallel rank, and how often a stage holds it."""

    tensor: Tensor
    copies: int
    nbytes: int  # of one copy, stored as LoRA's base is
    ep: int  # ranks that share its experts

    @property
    def numel(self) -> int:
        return self.tensor.numel

    @property
    def is_table(self) -> bool:
        """Whether it is looked up instead of multiplied with, or no matrix at all."""
        return self.tensor.component == "embedding" or len(self.tensor.shape) < 2


def states_of(
    rank: Architecture,
    stage: range,
    work: TrainingWorkload,
    recipe: Recipe,
    layout: TrainingLayout,
    frozen: Precision,
) -> States:
    """Each part divided over as many ranks as the stage of ZeRO says (arXiv:1910.02054 section 5)."""
    weights = list(weights_of(rank, stage, layout, frozen))
    trained = [replace(weight, tensor=one) for weight in weights for one in trained_of(rank, weight.tensor, work)]
    compute, gradient = WIDTH[recipe.compute], WIDTH[recipe.gradients]

    def share(weight: Weight, nbytes: int, least_stage: int) -> int:
        ranks = layout.replicas // weight.ep if layout.zero >= least_stage else 1
        return -(-nbytes // (weight.ep * ranks))

    def total(of: Iterable[Weight], nbytes: Callable[[Weight], int], least_stage: int) -> int:
        return sum(share(weight, weight.copies * nbytes(weight), least_stage) for weight in of)

    def base(weight: Weight) -> int:
        return 4 * weight.numel if work.fp32_rest and not quantised(weight) else weight.nbytes

    def quantised(weight: Weight) -> bool:
        return not work.trains_base and weight.nbytes < compute * weight.numel

    largest = max((share(one, one.numel, 2) for one in trained), default=0)
    if layout.zero == 3 and layout.replicas > 1:
        gathered = 2 * compute * largest_unit(weights)
    else:
        matrices = [one for one in trained if work.trains_base and recipe.casts and not one.is_table]
        gathered = total(matrices, lambda one: compute * one.numel, CAST)
    return States(
        frozen=0 if work.trains_base else total(weights, base, 3),
        weights=total(trained, lambda one: one.numel * WIDTH[recipe.weights], 3),
        master=total(trained, lambda one: one.numel * 4, 1) if recipe.master else 0,
        gradients=total(trained, lambda one: one.numel * gradient, 2),
        optimizer=total(trained, lambda one: state_bytes(work.optimizer, one.tensor, WIDTH[recipe.states]), 1),
        copies=total(trained, lambda one: one.numel * (gradient + 4), 1) if recipe.copies_gradients else 0,
        gathered=gathered,
        dequantised=max((compute * weight.numel for weight in weights if quantised(weight)), default=0),
        largest_gradient=gradient * largest,
        head_gradient=compute * rank.vocab * rank.hidden if work.trains_base else 0,
        update=step_bytes(work.optimizer, largest),
    )


def weights_of(rank: Architecture, stage: range, layout: TrainingLayout, frozen: Precision) -> Iterator[Weight]:
    """The weights that a stage holds: those of its layers; the embedding in the first, what follows the layers in the
    last, and there a tied head too."""
    first, last = stage.start == 0, stage.stop == rank.num_layers
    for piece in stored(rank, frozen):
        tensor = piece.tensor
        if tensor.layers:
            copies = tensor.count * sum(layer in stage for layer in tensor.layers) // len(tensor.layers)
        elif tensor.component == "embedding":
            tied = rank.tied and tensor.name == f"{rank.names.embedding}.weight"
            copies = int(first or (last and tied))
        else:
            copies = int(last)
        if copies and tensor.apart is None:
            here = replace(tensor, layers=tuple(layer for layer in tensor.layers if layer in stage))
            yield Weight(here, copies, piece.nbytes, layout.ep if tensor.component == "experts_routed" else 1)


def largest_unit(weights: Iterable[Weight]) -> int:
    """Elements of what is gathered at once: a layer, the embedding or the head."""
    units: dict[int | str, int] = {}
    for weight in weights:
        for place in weight.tensor.layers or (weight.tensor.name,):
            each = weight.copies * weight.numel // max(1, len(weight.tensor.layers)) // weight.ep
            units[place] = units.get(place, 0) + each
    return max(units.values())


def trained_of(rank: Architecture, tensor: Tensor, work: TrainingWorkload) -> Iterator[Tensor]:
    """What is trained of a weight: itself, or the two matrices that LoRA puts beside it, [rank, in] and [out, rank]
    (arXiv:2106.09685 section 4.1)."""
    if work.trains_base:
        yield tensor
        return
    targets, r = work.lora_targets, work.lora_rank
    chosen = len(tensor.shape) == 2 and tensor.component in ADAPTED[targets]
    if chosen and (targets != "qv" or tensor.name.split(".")[-2] in queries_and_values(rank)):
        out, width = tensor.shape
        yield replace(tensor, name=f"{tensor.name}.lora_A", shape=(r, width))
        yield replace(tensor, name=f"{tensor.name}.lora_B", shape=(out, r))


def queries_and_values(rank: Architecture) -> set[str]:
    """What checkpoints call the projections of queries and values, or the one that holds both."""
    names, wanted = rank.names, ("q_proj", "v_proj")
    packed = [name for name, parts in names.packed.items() if set(wanted) & set(parts)]
    return {*packed, *(names.renamed.get(name, name) for name in wanted)}
