"""Moments of a step on one rank of a pipeline stage: what is in memory, in bytes by units, so that they stand for any
batch and length; and by name: the parts whose sum is the number. A `Course` is a micro-batch on its way through one
piece of the stage, a `TrainingStage` that and all that is there besides."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial, reduce
from itertools import accumulate, chain, groupby
from operator import add, mul
from typing import Literal, NamedTuple, TypeVar, get_args

from calc.errors import Message
from calc.hardware.shards import blocks_within
from calc.model.attention import GQA
from calc.model.block import Block
from calc.model.feedforward import MLP
from calc.model.mixers import Mixer
from calc.model.mla import LatentAttention
from calc.model.tensor import Shape
from calc.training.decoder import Passes, Shared
from calc.training.layout import TrainingLayout, peak_turns
from calc.training.losses import LOGIT_GRADIENTS
from calc.training.operations import WEIGHT_GRADIENTS
from calc.training.states import EMBEDDING, OUTSIDE, StageWeights, States, widths
from calc.training.tape import NOTHING, Bytes, CountedBy, Name, Profile, Snapshot, alive_after
from calc.training.workload import WIDTH, Recipe, TrainingWorkload

Phase = Literal["after_init", "reference", "forward", "loss", "backward", "optimizer", "after_step"]
TrainingComponent = Literal[
    "weights", "master_weights", "gradients", "optimizer", "activations", "logits", "temporaries"
]
TRAINING_COMPONENTS: tuple[TrainingComponent, ...] = get_args(TrainingComponent)
UPDATE = "what the optimizer needs for its update"


class Tensors(NamedTuple):
    """Tensors that are in memory: bytes by units under a name, or so many times what a part of the model holds after
    an event of its tape."""

    bytes: Bytes
    name: str = ""
    component: TrainingComponent = "activations"
    profile: Profile | None = None
    event: int = 0
    times: int = 1

    def lines(self) -> Iterable[tuple["Label", Bytes]]:
        """Bytes by name; of a part of the model those of each tensor that it holds."""
        if self.profile is None:
            return (((self.name, self.component, self.name == UPDATE), self.bytes),)
        labels = contents(self.profile, self.event)
        return ((label, repeated_bytes(self.times, nbytes)) for label, nbytes in labels.items())


@dataclass(eq=False)
class Moment:
    """Tensors that are in memory at once, and their bytes."""

    bytes: Bytes = NOTHING
    tensors: tuple[Tensors, ...] = ()

    def plus(self, more: Iterable[Tensors]) -> "Moment":
        """This moment with more tensors."""
        nbytes, there = self.bytes, []
        for tensors in more:
            if any(tensors.bytes):
                nbytes = tuple(map(add, nbytes, tensors.bytes))
                there.append(tensors)
        return Moment(nbytes, (*self.tensors, *there))

    def merged_with(self, other: "Moment") -> "Moment":
        """Another moment, at which all of this is there too."""
        return Moment(tuple(map(add, self.bytes, other.bytes)), (*self.tensors, *other.tensors))

    def counted(self) -> Iterable[Tensors]:
        """Tensors, those of equal parts of the model together: layers of a kind are in many runs."""
        parts: dict[object, Tensors] = {}
        for place, tensors in enumerate(self.tensors):
            key = place if tensors.profile is None else (tensors.profile, tensors.event)
            if (known := parts.get(key)) is not None:
                nbytes = tuple(map(add, known.bytes, tensors.bytes))
                tensors = known._replace(bytes=nbytes, times=known.times + tensors.times)
            parts[key] = tensors
        return parts.values()

    @cached_property
    def lines(self) -> dict["Label", Bytes]:
        """Bytes by label, those of equal labels together."""
        lines: dict[Label, Bytes] = {}
        for tensors in self.counted():
            for label, nbytes in tensors.lines():
                lines[label] = tuple(map(add, lines[label], nbytes)) if label in lines else nbytes
        return lines

    def by_component(self, units: Bytes) -> dict[TrainingComponent, int]:
        """Bytes of each component for a batch and a length."""
        sizes = dict.fromkeys(TRAINING_COMPONENTS, 0)
        for tensors in self.counted():
            if tensors.profile is None:
                sizes[tensors.component] += dot(tensors.bytes, units)
                continue
            for component, nbytes in components(tensors.profile, tensors.event):
                sizes[component] += tensors.times * dot(nbytes, units)
        return sizes


IDLE = Snapshot(NOTHING, 0)
"""No part of the model is at work."""


class Surroundings(NamedTuple):
    """A part of the model at work in a phase, with all that is in memory around it; None: no part is at work."""

    phase: Phase
    alive: Moment
    profile: Profile | None = None
    snapshots: tuple[Snapshot, ...] = (IDLE,)

    def at(self, top: Snapshot) -> Moment:
        """The moment at which the part holds so much."""
        return self.alive.plus([Tensors(top.bytes, profile=self.profile, event=top.event)])


class StepPeak(NamedTuple):
    """The most bytes of a phase for a batch and a length, and moments that are in memory together then."""

    size: int
    phase: Phase
    alive: tuple[Moment, ...]

    def joined_by(self, size: int, alive: Moment) -> "StepPeak":
        """The peak with all that is there at another moment, of so many bytes."""
        return StepPeak(self.size + size, self.phase, (alive, *self.alive))

    @property
    def moment(self) -> Moment:
        """All that is in memory at the peak."""
        return reduce(Moment.merged_with, self.alive)


AnyMoment = TypeVar("AnyMoment", Moment, Snapshot)


def largest(candidates: Sequence[AnyMoment], units: Bytes) -> AnyMoment:
    """The first moment with most bytes for a batch and a length."""
    if len(candidates) == 1:
        return candidates[0]
    sizes = [dot(moment.bytes, units) for moment in candidates]
    return candidates[sizes.index(max(sizes))]


PartAtWork = tuple[Phase, Profile | None, tuple[Snapshot, ...]]
"""A phase, a part of the model that is at work in it, and the moments at which that may peak."""


def by_part(course: Iterable[Surroundings]) -> dict[PartAtWork, list[Moment]]:
    """All that is in memory around each part of the model, at every depth at which it stands."""
    parts: dict[PartAtWork, list[Moment]] = {}
    for phase, alive, profile, snapshots in course:
        if snapshots:
            parts.setdefault((phase, profile, snapshots), []).append(alive)
    return parts


@dataclass(frozen=True, eq=False)
class Run:
    """Equal layers in a row, or an end of the model."""

    profile: Profile
    layers: int
    first: int  # index of the first; OUTSIDE or EMBEDDING, below 0, for what is no layer
    saved: Bytes  # by each, for its backward pass
    forward: Bytes  # by each, from its forward pass until autocast ends
    alternate_outputs: Bytes  # by each, where part of it is not computed again
    gradients: int  # bytes that each leaves behind
    gathered: int  # bytes of its weights as FSDP gathers them
    unreduced: int  # bytes of its gradients as autograd makes them
    reduced: int  # bytes of its gradients as FSDP reduces them
    shards: int  # bytes of this rank's part of them as it arrives, and of its cast to what stays

    def waiting(self, layers: int) -> list[Tensors]:
        """Tensors that so many of these layers keep for their backward pass."""
        return self._tensors(self.saved, self.profile.saved.event, layers)

    def holding(self, layers: int) -> list[Tensors]:
        """Tensors that so many of these layers hold on the way forward."""
        return self._tensors(self.forward, self.profile.after_forward.event, layers)

    def _tensors(self, nbytes: Bytes, event: int, count: int) -> list[Tensors]:
        whole = Tensors(repeated_bytes(count, nbytes), profile=self.profile, event=event, times=count)
        if not any(self.alternate_outputs):
            return [whole]
        return [whole, Tensors(repeated_bytes(count, self.alternate_outputs), "outputs kept of every other matrix")]


def by(unit: CountedBy, nbytes: int) -> Bytes:
    """Bytes of each of a unit."""
    return (*NOTHING[:unit], nbytes, *NOTHING[unit + 1 :])


def repeated_bytes(count: int, nbytes: Bytes) -> Bytes:
    return nbytes if count == 1 else tuple([count * size for size in nbytes])


def fixed(nbytes: int) -> Bytes:
    """Bytes by units that do not depend on the batch."""
    return (nbytes, *NOTHING[1:])


LOGITS = (
    "logits",
    "logits in 32 bits",
    "logits after tanh",
    "log-softmax of the logits",
    "logits of a chunk",
    "logits of a tile",
    "logits over the temperature",
    "logits of the reference",
    "logits of the teacher",
    "log-softmax of the teacher's logits",
    "log-probabilities of the mixture",
    "distributions of both models",
    "probabilities of the vocabulary",
    "differences of log-probabilities",
    "divergences",
    "gradients of a tile of logits",
    "copy of the logits",
    "exponentials of the logits",
    "entropies",
    "gradients of the states that the head reads",
    "loss",
    LOGIT_GRADIENTS,
)
WEIGHTS = (
    "weights in 16 bits",
    "weights in 32 bits",
    "weights of the router in 32 bits",
    "dequantized matrix",
    "adapters of experts in 16 bits",
    "experts with their adapters",
)
COMPONENTS: dict[Name, TrainingComponent] = {
    **dict.fromkeys(LOGITS, "logits"),
    **dict.fromkeys(WEIGHTS, "weights"),
}
"""Components of the tensors of a pass, by name; of all others activations."""


@dataclass(frozen=True, slots=True)
class Part:
    """Tensors of one name that are alive at a moment."""

    name: Message
    component: TrainingComponent
    bytes: int
    temporary: bool  # made at this moment and gone soon after it; all else was there or waits


Label = tuple[Name, TrainingComponent, bool]
"""A name, its component, and whether it is temporary."""


def contents(profile: Profile, event: int) -> dict[Label, Bytes]:
    """Bytes of what a part of the model holds after an event; a gradient of a weight that is added to one held
    elsewhere is soon gone."""
    if event not in profile.contents:
        labels: dict[Label, list[int]] = {}
        gradients: TrainingComponent = "gradients" if profile.keeps_gradients else "temporaries"
        for number in alive_after(profile.events, event):
            name, unit, size = profile.sizes[number]
            component = gradients if name == WEIGHT_GRADIENTS else COMPONENTS.get(name, "activations")
            labels.setdefault((name, component, number not in profile.waiting), [*NOTHING])[unit] += size
        profile.contents[event] = {label: tuple(nbytes) for label, nbytes in labels.items() if any(nbytes)}
    contents: dict[Label, Bytes] = profile.contents[event]
    return contents


def components(profile: Profile, event: int) -> list[tuple[TrainingComponent, Bytes]]:
    """Bytes of what a part of the model holds after an event, by component."""
    if event not in profile.components:
        sums: dict[TrainingComponent, Bytes] = {}
        for (_, component, _), nbytes in contents(profile, event).items():
            sums[component] = tuple(map(add, sums.get(component, NOTHING), nbytes))
        profile.components[event] = [*sums.items()]
    components: list[tuple[TrainingComponent, Bytes]] = profile.components[event]
    return components


@lru_cache(maxsize=1024)
def message(name: Name) -> Message:
    """The words of a name, which are those of this package alone."""
    return Message(name) if isinstance(name, str) else Message(name[0], tensor=Message(name[1]))


def parts_of(moment: Moment, units: Bytes) -> tuple[Part, ...]:
    """The parts of a moment for a batch and a length, the largest first."""
    parts = [
        Part(message(name), component, dot(nbytes, units), temporary)
        for (name, component, temporary), nbytes in moment.lines.items()
    ]
    return tuple(sorted((part for part in parts if part.bytes), key=lambda part: -part.bytes))


def dot(nbytes: Bytes, units: Bytes) -> int:
    """Bytes for a batch and a length: the dot product of bytes by unit and numbers of units."""
    return sum(map(mul, nbytes, units))


def peak_of(moment: Moment, phase: Phase, units: Bytes) -> StepPeak:
    """A moment as the peak of a phase."""
    return StepPeak(dot(moment.bytes, units), phase, (moment,))


# What a micro-batch holds on its way through one rank of one piece of a pipeline stage, besides what is there all the
# time; whatever the batch and the length.


# What FSDP2 holds besides the shards (torch 2.13, `distributed/fsdp/_fully_shard`): each layer is a unit, and all that
# stands outside of them another, the root, which stays gathered from its first use to the end of the backward pass.
# Where the embedding is a unit of its own, it is gathered as a layer is, and the rest of the root for the head and its
# backward.


GATHERED = "gathered weights"
BUFFER = "buffers of all-gather"


class FSDPUnits:
    """The units of a stage that FSDP2 gathers and reduces, run by run. `root_stays`: the root is gathered all the time,
    and counted there."""

    def __init__(self, runs: Sequence[Run], layout: TrainingLayout, *, root_stays: bool = False) -> None:
        self.runs, self.layout = runs, layout
        self.layers = [index for index, run in enumerate(runs) if run.first >= 0]
        self.root = 0 if root_stays else next((run.gathered for run in runs if run.first == OUTSIDE), 0)
        self.embedding = next((run.gathered for run in runs if run.first == EMBEDDING), 0)

    @property
    def separate_embedding(self) -> bool:
        return self.embedding > 0

    def is_norm_of_head(self, index: int) -> bool:
        """Whether the last norm, where it stands here, is one of the unit of the head, whose backward ends with it."""
        return self.separate_embedding and self.layers[-1] + 1 == index < len(self.runs)

    def previous_unit_bytes(self, index: int, layers: int) -> int:
        """Bytes of the gathered weights of the unit before layer number `layers` of a run: those of a layer, or of the
        embedding; 0 where that is part of the root."""
        if layers:
            return self.runs[index].gathered
        return self.runs[index - 1].gathered if index - 1 in self.layers else self.embedding

    def next_unit(self, index: int, layers: int) -> Run | None:
        """The run of the unit after layer number `layers` of a run; None after the last."""
        if layers < self.runs[index].layers - 1:
            return self.runs[index]
        return self.runs[index + 1] if index + 1 in self.layers or self.is_norm_of_head(index + 1) else None

    def unsharded(self, index: int, layers: int) -> int:
        """Bytes of weights that stay gathered between the passes: the root's, and without resharding those of all
        layers up to this one."""
        root = self.root if not self.separate_embedding or index > self.layers[-1] else 0
        if self.layout.reshard_after_forward:
            return root
        earlier = sum(self.runs[i].layers * self.runs[i].gathered for i in self.layers if i < index)
        return root + earlier + (layers * self.runs[index].gathered if index in self.layers else 0)

    def tensors_gathering(self, index: int, layers: int) -> list[Tensors]:
        """Tensors as a layer is gathered: its weights, the buffer that they come in, and still that of the unit
        before it."""
        run = self.runs[index]
        buffers = (self.previous_unit_bytes(index, layers) or self.root) + run.gathered
        return [weights(self.unsharded(index, layers) + run.gathered), buffer(buffers)]

    def tensors_computing(self, index: int) -> list[Tensors]:
        """Tensors while a layer computes: its weights, and still the buffer that they came in."""
        run = self.runs[index]
        return [weights(self.unsharded(index, run.layers - 1) + run.gathered), buffer(run.gathered)]

    def tensors_gathering_head(self) -> list[Tensors]:
        """Tensors as norm and head are gathered, where they are a unit of their own."""
        buffers = self.runs[self.layers[-1]].gathered + self.root
        return [weights(self.unsharded(len(self.runs), 0)), buffer(buffers)]

    def tensors_after_layers(self) -> list[Tensors]:
        """Tensors after the last layer: weights that stay, and the buffer of what was gathered last."""
        last = self.root if self.separate_embedding else self.runs[self.layers[-1]].gathered
        return [weights(self.unsharded(len(self.runs), 0)), buffer(last)]

    def backward_tensors(self, index: int, layers: int) -> list[Tensors]:
        """Tensors in a layer's backward pass: its weights, the buffer in which those of the layer before it arrive, and
        the gradients of the layer after it that are being reduced."""
        run = self.runs[index]
        inner = index in self.layers
        after = self.next_unit(index, layers) if inner else self.runs[self.layers[0]] if not index else None
        early = (
            self.previous_unit_bytes(index, layers) if inner else self.runs[self.layers[-1]].gathered if index else 0
        )
        own = run.gathered if inner or (self.separate_embedding and not index) else 0
        return [
            weights(self.unsharded(index, layers) + own),
            buffer(early if self.layout.reshard_after_forward else 0),
            reducing(0 if after is None else after.reduced),
        ]

    def tensors_reducing(self, index: int, layers: int) -> list[Tensors]:
        """Tensors as a unit's gradients are copied into the buffer that is reduced: its weights are gone. The last of
        them is held until its shard is there (`foreach_reduce`), which shows where there is but one table."""
        run = self.runs[index]
        if index in self.layers:
            early = self.previous_unit_bytes(index, layers) if self.layout.reshard_after_forward else 0
            made = Tensors(fixed(run.unreduced), "gradients of a layer", "gradients")
            return [weights(self.unsharded(index, layers)), buffer(early), made, reducing(run.reduced)]
        if not self.separate_embedding:
            return [outside(run.profile.gradients[0]), reducing(run.reduced)]
        arriving = buffer(self.runs[self.layers[-1]].gathered if index else 0)
        of_head = self.runs[-1].profile.gradients[0] if index else 0  # which are counted with what went back already
        return [arriving, outside(run.unreduced - of_head), reducing(run.reduced + run.shards)]


def weights(nbytes: int) -> Tensors:
    return Tensors(fixed(nbytes), GATHERED, "weights")


def buffer(nbytes: int) -> Tensors:
    return Tensors(fixed(nbytes), BUFFER, "weights")


def outside(nbytes: int) -> Tensors:
    return Tensors(fixed(nbytes), "gradients outside the layers", "gradients")


def reducing(nbytes: int) -> Tensors:
    return Tensors(fixed(nbytes), "buffers of reduce-scatter", "gradients")


# What torchtitan's selective checkpointing keeps of a layer.


def alternate_bytes(block: Block, hidden: int, w: int, *, compiled: bool, sends: bool) -> int:
    """Bytes per token that a layer keeps for its backward pass: outputs of attention and of every other matrix product
    from the first on, the router's and those of routed experts aside; the choice of experts; and where tokens are sent
    to their experts, what arrives there and back (torchtitan b5bcd76, `distributed/activation_checkpoint.py`,
    `SelectiveAC`; grouped products are none of the operations that torch 2.13's `get_default_op_list` names). Compiled,
    what is only added to the residual stream is not saved, for nothing reads it going back (torch 2.13,
    `_functorch/partitioners.py`, `solve_min_cut`)."""
    saved = sum(w * matrices(mixer, hidden)[-1][1] + 4 * mixer.n_q for mixer in block.attentions)
    rows: list[int] = []  # of each matrix
    added: set[int] = set()  # places of those whose product is only added
    moe = block.moe
    dense = [block.dense] if moe is None else [moe.shared, moe.parallel_mlp]
    for part in (*block.mixers, *dense):
        if part is not None:
            rows += [shape[0] for shape in matrices(part, hidden)]
            added.add(len(rows) - 1)
    if moe is not None:
        saved += moe.top_k * (4 + 8)  # scores in fp32, and their places
        saved += 2 * moe.top_k * w * (moe.latent or hidden) if sends else 0
    unread = added if compiled and block.norms_first and len(block.norms) < 4 else set()
    return saved + w * sum(columns for place, columns in enumerate(rows) if place % 2 == 0 and place not in unread)


def matrices(part: Mixer | MLP, hidden: int) -> list[Shape]:
    """Shapes of the matrices that a part multiplies with, each [out, in]."""
    return [shape for shape in part.shapes(hidden).values() if len(shape) == 2]


class Course:
    """The course of one micro-batch. How weights are divided over replicas is nothing to it, unless FSDP gathers
    them."""

    def __init__(
        self,
        passes: Passes,
        weights: StageWeights,
        piece: range,
        work: TrainingWorkload,
        recipe: Recipe,
        layout: TrainingLayout,
        *,
        root_stays: bool = False,
    ) -> None:
        self.rank, self.passes = passes.rank, passes
        self.work, self.recipe, self.layout = work, recipe, layout
        self.by_fsdp, self.widths = layout.gathered_by_fsdp(recipe), widths(work, recipe)
        self.units = weights.units(layout.replicas if self.by_fsdp else 1)
        self.first, self.last = piece.start == 0, piece.stop == self.rank.num_layers
        self.runs = list(self._runs(blocks_within(self.rank, piece)))
        self.fsdp_units = FSDPUnits(self.runs, layout, root_stays=root_stays) if self.by_fsdp else None
        self.largest_unit = max(map(self.gathered, self.units), default=0)
        """Bytes of the largest unit's weights as they are multiplied."""
        rest, compute = passes.settings.rest_width, passes.settings.compute_width
        mixers = [mixer for block in self.rank.all_blocks for mixer in block.mixers]
        windows = {mixer.window for mixer in mixers if isinstance(mixer, GQA | LatentAttention)}
        eager = 0 if passes.settings.flash else len(windows)
        self.masks = Tensors(by(CountedBy.SCORE, eager * rest), "masks of attention")
        """Masks of eager attention: one for each window."""
        columns = self.shared_columns(self.rank.num_layers) if self.recomputed else 0
        self.shared_keys = Tensors(by(CountedBy.TOKEN, columns * compute), "keys and values that layers share")
        """Keys and values that the last layers share, where no layer saves them."""
        trained = passes.settings.trains_base or passes.settings.adapters is not None
        columns = passes.per_layer_columns if trained else 0
        self.per_layer_gradients = Tensors(by(CountedBy.TOKEN, columns * rest), "gradients of activations")
        """Gradients of the inputs of single layers, which are one tensor for all of them."""
        self.stream = Tensors(by(CountedBy.STREAM, self.rank.hidden * rest), "residual stream")
        """Output of a layer on its way to the next, or its gradient."""

    @property
    def recomputed(self) -> bool:
        return self.work.recompute in ("full", "alternate")

    @property
    def reduced_width(self) -> int:
        """Bytes of an element of a gradient that FSDP has reduced, with those of its cast."""
        reduced, stays = WIDTH[self.layout.reduce], self.widths.gradient
        return reduced if reduced == stays else reduced + stays

    def gathered(self, layer: int) -> int:
        """Bytes of a unit's weights as they are multiplied."""
        unit = self.units.get(layer)
        return 0 if unit is None else WIDTH[self.recipe.compute] * unit.gathered

    # The parts of the model in this piece

    def _runs(self, blocks: list[Block]) -> Iterator[Run]:
        """Equal layers that follow each other, between the ends that stand here."""
        profiles = [self.passes.layer(block, first=False) for block in blocks]
        order = sorted((place, number) for number, block in enumerate(blocks) for place in block.runs_in)
        if self.first:
            yield self._run(self.passes.front, None, [EMBEDDING if EMBEDDING in self.units else OUTSIDE])
        if self.first and order[0][0] == 0:
            (place, number), *order = order
            yield self._run(self.passes.layer(blocks[number], first=True), blocks[number], [place])
        for profile, group in groupby(order, key=lambda pair: profiles[pair[1]]):
            places = list(group)
            yield self._run(profile, blocks[places[0][1]], [place for place, _ in places])
        if self.last:
            yield self._run(self.passes.norm, None, [OUTSIDE])
            yield self._run(self.passes.tail, None, [OUTSIDE])

    def _run(self, profile: Profile, block: Block | None, places: list[int]) -> Run:
        unit, work = self.units.get(places[0]), self.work
        trained, filled = (0, 0) if unit is None else (unit.trained, unit.filled)
        gradients, unreduced = profile.gradients[CountedBy.ONCE], WIDTH[self.recipe.compute] * trained
        if block is not None:
            width = self.widths.gradient
            shards = -(-filled * width // self.layout.replicas) if self.by_fsdp else trained * width
            gradients = shards if self.by_fsdp or self.passes.settings.keeps_gradients else 0
            if self.by_fsdp and (work.accumulation > 1 or self.layout.cpu_offload):
                gradients = 0  # they are added to those of earlier micro-batches, or go to CPU memory
        elif profile is self.passes.norm and self.by_fsdp and EMBEDDING in self.units:
            stays = work.accumulation == 1 and not self.layout.cpu_offload
            shards = -(-filled * self.widths.gradient // self.layout.replicas) if stays else 0
            gradients = shards - self.passes.tail.gradients[CountedBy.ONCE]  # the head's are reduced with them
        saved, forward, repeated = profile.saved.bytes, profile.after_forward.bytes, NOTHING
        if block is not None and work.offload_activations:
            saved = forward = NOTHING
        elif block is not None and work.recompute == "alternate":
            width, sends = WIDTH[self.recipe.compute], self.layout.ep > 1
            outputs = alternate_bytes(block, self.rank.hidden, width, compiled=work.fused, sends=sends)
            repeated = by(CountedBy.TOKEN, outputs)
        return Run(
            profile=profile,
            layers=len(places),
            first=places[0],
            saved=saved,
            forward=forward,
            alternate_outputs=repeated,
            gradients=gradients,
            gathered=self.gathered(places[0]),
            unreduced=unreduced,
            reduced=WIDTH[self.layout.reduce] * filled,
            shards=-(-filled * self.reduced_width // self.layout.replicas),
        )

    # Forward

    def forward(self) -> Iterator[Surroundings]:
        """The embedding, each run of layers at its last one, when most is held, and the head."""
        runs = (run.holding(run.layers) for run in self.runs)
        alive_before = [*accumulate(runs, Moment.plus, initial=Moment())]
        for index, run in enumerate(self.runs):
            earlier = alive_before[index]
            here = earlier.plus(run.holding(run.layers - 1))
            if run.first >= 0:
                here = here.plus([self.masks, self.shared_keys, *self.embedded(index, run)])
                if self.fsdp_units is not None:
                    for alive, layers in ((earlier, 0), (here, run.layers - 1)):
                        gathering = [*self.fsdp_units.tensors_gathering(index, layers), self.stream]
                        yield Surroundings("forward", alive.plus(gathering))
                    here = here.plus(self.fsdp_units.tensors_computing(index))
            elif index:
                norm = run.profile is self.passes.norm
                here = here.plus([self.masks, *self.embedded(index, run)] if norm else self.persisting())
                if self.fsdp_units is not None and self.fsdp_units.is_norm_of_head(index):
                    yield Surroundings("forward", here.plus([*self.fsdp_units.tensors_gathering_head(), self.stream]))
                here = here.plus([] if self.fsdp_units is None else self.fsdp_units.tensors_after_layers())
                yield Surroundings("loss", here, run.profile, run.profile.loss)
                if run.profile.after_autocast:
                    waiting = self.waiting_for_loss()
                    waiting = waiting.plus([] if self.fsdp_units is None else self.fsdp_units.tensors_after_layers())
                    yield Surroundings("loss", waiting, run.profile, run.profile.after_autocast)
            yield Surroundings("forward", here, run.profile, run.profile.forward)

    def waiting_for_loss(self) -> Moment:
        """Tensors that all but the head keeps for the backward pass, once the model's forward pass is over."""
        waiting = Moment().plus(self.persisting())
        for run in self.runs[:-1]:
            waiting = waiting.plus(run.waiting(run.layers))
        return waiting

    def under_reference(self, *, root_stays: bool) -> Moment:
        """Tensors of a policy's forward pass that are in memory while its reference runs; FSDP's root where it stays
        gathered."""
        profile = self.runs[-1].profile
        top = profile.reference or profile.saved
        waiting = self.waiting_for_loss().plus([Tensors(top.bytes, profile=profile, event=top.event)])
        if self.fsdp_units is None or not root_stays:
            return waiting
        return waiting.plus([weights(self.fsdp_units.unsharded(len(self.runs), 0))])

    def persisting(self) -> list[Tensors]:
        """Masks, and keys and values that layers share, which checkpoints hold on to."""
        return [self.masks, self.shared_keys] if self.recomputed else []

    def embedded(self, index: int, run: Run) -> list[Tensors]:
        """Tensors that the model's forward pass holds besides the stream: the embedded positions, and the embedding's
        output, where the first layer does not save it."""
        if not self.first:
            return []
        kernels, width = self.rank.kernels, self.passes.settings.rest_width
        tokens = Tensors(by(CountedBy.TOKEN, width * (self.rank.d_embedding or self.rank.hidden)), "embedded tokens")
        if self.rank.positions:
            unit = CountedBy.TOKEN if kernels.positions_by_sequence else CountedBy.POSITION
            return [tokens, Tensors(by(unit, width * self.rank.hidden), "embedded positions")]
        alone = index == 1 and run.layers == 1
        normed = "embedded" in kernels.norms_unweighted  # which saves a copy in 32 bits
        projected = self.passes.per_layer_columns > 0 and self.passes.settings.trains_base
        saved = projected or (width == 4 if normed else self.runs[1].profile.keeps_input)
        return [] if alone or saved else [tokens]

    # Backward

    def backward(self) -> Iterator[Surroundings]:
        """The loss and the head, each run of layers at its last and at its first one, the embedding."""
        base, later_gradients = Moment().plus(self.persisting()), 0
        waiting = [*accumulate((run.waiting(run.layers) for run in self.runs), Moment.plus, initial=base)]
        stay = self.by_fsdp or self.passes.settings.keeps_gradients
        component: TrainingComponent = "gradients" if stay else "temporaries"
        for index in reversed(range(len(self.runs))):
            run, outputs = self.runs[index], self.runs[-1].profile.outputs if index < len(self.runs) - 1 else NOTHING
            for layers in self.layers_at_peaks(run):
                gradients = fixed(later_gradients + (run.layers - 1 - layers) * run.gradients)
                more = [Tensors(outputs, "logits that the training loop holds", "logits"), *run.waiting(layers)]
                more.append(Tensors(gradients, "gradients", component))
                if 0 <= run.first + layers < self.rank.num_layers - 1:
                    # those of the shared keys and values wait for the layers that made them
                    columns = self.shared_columns(run.first + layers) * self.passes.settings.compute_width
                    shared = Tensors(by(CountedBy.TOKEN, columns), "gradients of activations")
                    more += [self.per_layer_gradients, shared]
                more.append(Tensors(run.alternate_outputs, "outputs kept of every other matrix"))
                here = waiting[index].plus(more)
                if self.fsdp_units is not None:
                    yield from self.units_backward(self.fsdp_units, index, run, layers, here)
                else:
                    yield Surroundings("backward", here, run.profile, run.profile.backward)
            later_gradients += run.layers * run.gradients

    def units_backward(
        self, fsdp_units: FSDPUnits, index: int, run: Run, layers: int, here: Moment
    ) -> Iterator[Surroundings]:
        """A part going back with all that FSDP holds; and the moment when its gradients are reduced."""
        resident = here.plus(fsdp_units.backward_tensors(index, layers))
        yield Surroundings("backward", resident, run.profile, run.profile.backward)
        if run.first >= 0:
            yield Surroundings("backward", here.plus([*fsdp_units.tensors_reducing(index, layers), self.stream]))
        elif not index or fsdp_units.is_norm_of_head(index):
            yield Surroundings("backward", here.plus(fsdp_units.tensors_reducing(index, layers)))

    def shared_columns(self, layer: int) -> int:
        """Columns of the keys and values that the last layers share, as seen from one of these."""
        return sum(
            heads.n_kv * heads.exchanged_width for heads in {heads for first, heads in self.sharing if first <= layer}
        )

    @cached_property
    def sharing(self) -> list[tuple[int, GQA]]:
        """Attentions that read the keys and values of an earlier layer, each with its first layer."""
        grouped = [(min(block.layers), mixer.as_grouped()) for block in self.rank.blocks for mixer in block.attentions]
        return [(first, heads) for first, heads in grouped if heads is not None and not heads.own_keys]

    def layers_at_peaks(self, run: Run) -> list[int]:
        """Numbers of the layers of a run, from 0, at which its backward pass may peak, the last first: its ends; and
        their neighbours where other units are gathered and reduced."""
        ends = {0, run.layers - 1}
        neighbours = {1, run.layers - 2} if self.fsdp_units is not None else set()
        return sorted(ends | {layer for layer in neighbours if 0 <= layer < run.layers}, reverse=True)

    # The peak

    @cached_property
    def forward_depths(self) -> dict[PartAtWork, list[Moment]]:
        return by_part(self.forward())

    @cached_property
    def backward_depths(self) -> dict[PartAtWork, list[Moment]]:
        return by_part(self.backward())

    def peaks(self, units: Bytes, *, backward: bool) -> list[StepPeak]:
        """The peak of each phase on the way forward or back, for a batch and a length."""
        peaks: dict[Phase, tuple[int, Surroundings, Snapshot]] = {}
        for (phase, profile, snapshots), depths in (self.backward_depths if backward else self.forward_depths).items():
            alive, top = largest(depths, units), largest(snapshots, units)
            size = dot(alive.bytes, units) + dot(top.bytes, units)
            if phase not in peaks or size > peaks[phase][0]:
                peaks[phase] = size, Surroundings(phase, alive, profile), top
        return [StepPeak(size, phase, (here.at(top),)) for phase, (size, here, top) in peaks.items()]


# One rank of a pipeline stage: the courses of its pieces, and all that is there besides.


class QuietCourse(NamedTuple):
    """A pass without gradients, and when it runs. `gathered` are bytes of weights that FSDP gathers for it at once, and
    `ahead` of those that DeepSpeed's ZeRO-3 has gathered of a model of its own: its head, and what comes ahead."""

    course: Course
    when: Literal["generation", "before", "after"]
    gathered: int = 0
    ahead: int = 0


class TrainingStage:
    """One rank of a pipeline stage: what is there all the time, round the course of a micro-batch through a piece of
    it. `courses` are those of its pieces; alike pieces have one. `quiet` are passes without gradients, and `reference`
    the weights that only they read."""

    def __init__(
        self,
        courses: tuple[Course, ...],
        states: States,
        work: TrainingWorkload,
        layout: TrainingLayout,
        number: int,
        shared: Shared,
        quiet: tuple[QuietCourse, ...] = (),
        reference: Sequence[Tensors] = (),
        value: "TrainingStage | None" = None,
    ) -> None:
        self.courses, self.states, self.work, self.layout, self.number = courses, states, work, layout, number
        self.shared, self.quiet, self.reference, self.value = shared, quiet, reference, value
        self.course = courses[0]
        self.rank, self.recipe = self.course.rank, self.course.recipe
        self.during = Moment().plus(self.running())
        """Tensors in memory all through a micro-batch, other micro-batches aside."""
        schedule = layout.pp, tuple(courses.index(course) for course in courses), work.accumulation, number
        self.at_work = [
            (courses[turn.piece], turn.backward, self.during.plus(self.waiting(turn.waiting)))
            for turn in shared.once(("turns", *schedule), lambda: peak_turns(*schedule))
        ]
        """The turns of its schedule at which most waits: a piece at work, whether backward, and all else there. Not
        counted: the gradients last received and last sent, each as large as the stream, which Megatron-LM's schedule
        holds until the next are there (d98e8a64, `core/pipeline_parallel/schedules.py`)."""

    def waiting(self, pieces: tuple[int, ...]) -> list[Tensors]:
        """Tensors that so many micro-batches in each piece keep for their backward pass."""
        several = zip(self.courses, pieces, strict=True)
        return list(
            chain.from_iterable(run.waiting(n * run.layers) for course, n in several if n for run in course.runs)
        )

    @property
    def by_deepspeed(self) -> bool:
        """Whether DeepSpeed's ZeRO-3 runs; on one GPU too, where it gathers nothing."""
        return self.layout.zero == 3 and self.recipe.reuse > 0

    # What is there all the time

    def constant(self) -> list[Tensors]:
        """Weights and what belongs to them, between steps; with gradients that are held all the time."""
        gradients = [Tensors(fixed(self.states.gradients), "gradients", "gradients")] if self.recipe.buffers else []
        return [*self.standing, *gradients]

    @cached_property
    def standing(self) -> list[Tensors]:
        """Weights and what belongs to them, between steps, but for gradients."""
        states = self.states
        tensors = [
            Tensors(fixed(states.frozen), "frozen weights", "weights"),
            Tensors(fixed(states.weights), "trained weights", "weights"),
            Tensors(fixed(states.master), "fp32 copies of the weights", "master_weights"),
            Tensors(fixed(states.optimizer), "states of the optimizer", "optimizer"),
            *self.reference,
        ]
        if self.layout.fully_sharded and not (self.course.by_fsdp or self.by_deepspeed):
            largest = Tensors(fixed(2 * self.course.largest_unit), "gathered weights of two layers", "weights")
            tensors.append(largest)
        return tensors

    def running(self) -> list[Tensors]:
        """Tensors in memory all through a micro-batch: weights, gradients of earlier ones, and tables. DeepSpeed's
        ZeRO-2 gathers the gradients of each micro-batch in a buffer of its own before they are added (0.19.8,
        stage_1_and_2.py, `copy_grads_in_partition`); on one GPU its ZeRO-3 computes on views of what it holds
        (partition_parameters.py, `_no_gather_coalesced`)."""
        recipe, states, work = self.recipe, self.states, self.work
        tensors = self.constant()
        if work.accumulation > 1 and not recipe.buffers:
            tensors.append(Tensors(fixed(states.gradients), "gradients of earlier micro-batches", "gradients"))
        if work.accumulation > 1 and recipe.flattened and self.layout.zero == 2:
            tensors.append(Tensors(fixed(states.gradients), "gradients of this micro-batch", "gradients"))
        if recipe.bucket:
            size = WIDTH[recipe.gradients] * self.bucketed()
            tensors.append(Tensors(fixed(size), "buckets that gradients are reduced in", "gradients"))
        if self.by_deepspeed and self.layout.fully_sharded:
            tensors.append(Tensors(fixed(self.live()), "gathered weights", "weights"))
        return [*tensors, self.rotary()]

    def rotary(self) -> Tensors:
        """Tables of cosines and sines, for each position."""
        columns = 2 * sum(columns for _, columns in self.rank.rotary)
        return Tensors(by(CountedBy.POSITION, self.course.passes.rotary_width * columns), "rotary tables")

    def bucketed(self) -> int:
        """Elements of gradients on their way. Stage 3 has one bucket, and lays what is in it end to end for
        reduce-scatter (DeepSpeed 0.19.8, runtime/comm/coalesced_collectives.py)."""
        bucket = self.recipe.bucket
        if self.by_deepspeed:
            return bucket + min(bucket, sum(unit.trained for unit in self.course.units.values()))
        return 2 * bucket if self.recipe.overlap else bucket

    def live(self) -> int:
        """Bytes of what DeepSpeed's ZeRO-3 has gathered at the loss (0.19.8, partitioned_param_coordinator.py,
        `__params_to_release`): the head, and the last weights that are needed again before so many elements have
        passed, each going forward and back, and once more where a layer runs again; and what comes ahead."""
        reused = self.recipe.reuse // (3 if self.course.recomputed else 2)
        head = self.rank.vocab * (self.rank.d_embedding or self.rank.hidden)
        elements = max(head, reused) + self.recipe.prefetch
        return WIDTH[self.recipe.compute] * min(elements, sum(unit.gathered for unit in self.course.units.values()))

    # The step

    @cached_property
    def steps(self) -> dict[Phase, Moment]:
        """Points before and after the step, and the optimizer's update."""
        size = 0 if self.work.optimizer_in_backward else self.states.casts or self.states.gradients
        between = Moment().plus(self.constant())
        updated = [*self.standing, Tensors(fixed(size), "gradients", "gradients"), self.updating()]
        return {"after_init": between, "optimizer": Moment().plus(updated), "after_step": between}

    def updating(self) -> Tensors:
        """Temporaries of the optimizer's update."""
        return Tensors(fixed(self.states.update), UPDATE, "temporaries")

    def stepping(self) -> Moment:
        """The optimizer's update inside the backward pass."""
        gradient = Tensors(fixed(self.states.largest_gradient), "gradients", "gradients")
        return self.during.plus([*self.course.persisting(), gradient, self.updating(), self.course.stream])

    def without_gradients(self, units: Bytes) -> Iterator[StepPeak]:
        """The peaks of the passes without gradients."""
        for course, when, gathered, ahead in self.quiet:
            resident = Moment().plus([*self.constant(), self.rotary()]) if when == "generation" else self.during
            if when == "after":
                resident = resident.plus(self.course.under_reference(root_stays=not gathered).tensors)
            whole = fixed(gathered)
            resident = resident.plus([Tensors(whole, GATHERED, "weights"), Tensors(whole, BUFFER, "weights")])
            resident = resident.plus([Tensors(fixed(ahead), GATHERED, "weights")])
            size = dot(resident.bytes, units)
            for peak in course.peaks(units, backward=False):
                yield peak.joined_by(size, resident)._replace(phase="reference")

    def passes(self, units: Bytes) -> Iterator[StepPeak]:
        """The peaks of a micro-batch's pass, the course of which other numbers of replicas may have too."""
        for course, backward, alive in self.at_work:
            key, peaks = ("peaks", course, units, backward), partial(course.peaks, units, backward=backward)
            size = dot(alive.bytes, units)
            yield from (peak.joined_by(size, alive) for peak in self.shared.once(key, peaks))
        if self.work.optimizer_in_backward:
            yield peak_of(self.stepping(), "backward", units)

    def peaks(self, units: Bytes) -> list[StepPeak]:
        """Possible peaks of each phase, for a batch and a length."""
        steps = [peak_of(moment, phase, units) for phase, moment in self.steps.items()]
        candidates = [*steps, *self.without_gradients(units), *self.passes(units)]
        return candidates if self.value is None else list(self.with_value(candidates, self.value, units))

    @property
    def divided(self) -> int:
        """Bytes of weights, and of what belongs to them, that are there all the time."""
        return self.states.standing + (self.states.gradients if self.recipe.buffers else 0)

    def with_value(self, candidates: list[StepPeak], value: "TrainingStage", units: Bytes) -> Iterator[StepPeak]:
        """The peaks of a policy and a value model that are trained together: the latter runs first, waits, and goes
        back last, when all of the policy's gradients are there. What the training loop holds of the policy's outputs it
        holds through the update."""
        standing = Moment().plus(value.constant())
        waiting = standing.plus([tensors for run in value.course.runs for tensors in run.waiting(run.layers)])
        outputs = Tensors(self.course.runs[-1].profile.outputs, "outputs that the training loop holds", "logits")
        gradients = Tensors(fixed(value.states.gradients), "gradients", "gradients")
        updating = standing.plus([outputs, gradients, value.updating()])
        resident = {"forward": waiting, "loss": waiting, "backward": waiting, "optimizer": updating}
        there = [(resident.get(peak.phase, standing), peak) for peak in candidates]
        own = Moment().plus(
            [*self.constant(), outputs, Tensors(fixed(self.states.gradients), "gradients", "gradients")]
        )
        there += [(own, peak) for peak in value.peaks(units) if peak.phase == "backward"]
        yield from (peak.joined_by(dot(alive.bytes, units), alive) for alive, peak in there)
