"""What a micro-batch holds on its way through one rank of one pipeline stage, beside what is there all the time;
whatever the batch and the length."""

from collections.abc import Iterator
from functools import cached_property
from itertools import accumulate, chain, groupby

from calc.model.architecture import Architecture
from calc.model.attention import GQA
from calc.model.block import Block
from calc.model.mla import LatentAttention
from calc.training.autograd import NOTHING, Bytes, CountedBy
from calc.training.fsdp import Sharded
from calc.training.moments import Alive, Held, Phase, Run, StepMoment, TrainingComponent, by, once, undominated
from calc.training.parts import dot
from calc.training.passes import Passes
from calc.training.profile import Profile
from calc.training.recipe import WIDTH, Recipe
from calc.training.saved import alternate_bytes
from calc.training.sharding import TrainingLayout
from calc.training.states import EMBEDDING, OUTSIDE, GatheredUnit
from calc.training.training_workload import TrainingWorkload


class Course:
    """The course of one micro-batch. How weights are divided over replicas is nothing to it, unless FSDP gathers
    them."""

    def __init__(
        self,
        rank: Architecture,
        passes: Passes,
        blocks: list[Block],
        units: dict[int, GatheredUnit],
        gradient_width: int,
        work: TrainingWorkload,
        recipe: Recipe,
        layout: TrainingLayout,
        *,
        first: bool,
        last: bool,
    ) -> None:
        self.rank, self.passes, self.units, self.gradient_width = rank, passes, units, gradient_width
        self.work, self.recipe, self.layout = work, recipe, layout
        self.by_fsdp = layout.gathered_by_fsdp(recipe)
        self.first, self.last = first, last
        self.runs = list(self._runs(blocks))
        self.sharded = Sharded(self.runs, layout) if self.by_fsdp else None
        self.found = dict[Bytes, int]()

    @property
    def recomputed(self) -> bool:
        return self.work.recompute in ("full", "alternate")

    @property
    def arriving(self) -> int:
        """Bytes of an element of a gradient that FSDP has reduced, with those of its cast."""
        reduced, kept = WIDTH[self.layout.reduce], self.gradient_width
        return reduced if reduced == kept else reduced + kept

    def gathered(self, layer: int) -> int:
        """Bytes of a unit's weights as they are multiplied."""
        unit = self.units.get(layer)
        return 0 if unit is None else WIDTH[self.recipe.compute] * unit.gathered

    # The parts of the model in this stage

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
            width = self.gradient_width
            kept = self.by_fsdp or self.passes.settings.keeps_gradients
            shared = -(-filled * width // self.layout.replicas) if self.by_fsdp else trained * width
            gradients = shared if kept else 0
            if self.by_fsdp and work.accumulation > 1:
                gradients = 0  # they are added to those of earlier micro-batches
        elif profile is self.passes.norm and self.by_fsdp and EMBEDDING in self.units:
            shards = -(-filled * self.gradient_width // self.layout.replicas) if work.accumulation == 1 else 0
            gradients = shards - self.passes.tail.gradients[CountedBy.ONCE]  # the head's are reduced with them
        saved, held, beside = profile.saved.bytes, profile.held.bytes, NOTHING
        if block is not None and work.offload_activations:
            saved = held = NOTHING
        elif block is not None and work.recompute == "alternate":
            beside = by(
                CountedBy.TOKEN,
                alternate_bytes(block, self.rank.hidden, WIDTH[self.recipe.compute], compiled=work.fused),
            )
        return Run(
            profile=profile,
            layers=len(places),
            first=places[0],
            saved=saved,
            held=held,
            beside=beside,
            gradients=gradients,
            gathered=self.gathered(places[0]),
            unreduced=unreduced,
            reduced=WIDTH[self.layout.reduce] * filled,
            shards=-(-filled * self.arriving // self.layout.replicas),
        )

    def masks(self) -> Held:
        """Masks of eager attention: one for each window."""
        mixers = [mixer for block in self.rank.all_blocks for mixer in block.mixers]
        windows = {mixer.window for mixer in mixers if isinstance(mixer, GQA | LatentAttention)}
        eager = 0 if self.passes.settings.flash else len(windows)
        return Held(by(CountedBy.SCORE, eager * self.passes.settings.rest), "masks of attention")

    # Forward

    def forward(self) -> Iterator[StepMoment]:
        """The embedding, each run of layers at its last one, when most is held, and the head."""
        masks, runs = self.masks(), (run.holding(run.layers) for run in self.runs)
        before = [*accumulate(runs, Alive.plus, initial=Alive())]
        for index, run in enumerate(self.runs):
            earlier = before[index]
            here = earlier.plus(run.holding(run.layers - 1))
            if run.first >= 0:
                here = here.plus([masks, *self.embedded(index, run)])
                if self.sharded is not None:
                    for held, layers in ((earlier, 0), (here, run.layers - 1)):
                        entering = [*self.sharded.entering(index, layers), self.stream]
                        yield held.plus(entering).moment("forward")
                    here = here.plus(self.sharded.computing(index))
            elif index:
                norm = run.profile is self.passes.norm
                here = here.plus([masks, *self.embedded(index, run)] if norm else self.persisting())
                if self.sharded is not None and self.sharded.ends(index):
                    yield here.plus([*self.sharded.entering_head(), self.stream]).moment("forward")
                here = here.plus([] if self.sharded is None else self.sharded.after_layers())
                yield from here.tops("loss", run.profile, run.profile.loss)
            yield from here.tops("forward", run.profile, run.profile.forward)

    def persisting(self) -> list[Held]:
        """Masks that checkpoints hold on to."""
        return [self.masks()] if self.recomputed else []

    def embedded(self, index: int, run: Run) -> list[Held]:
        """What the model's forward pass holds on to beside the stream: the embedded positions, and the embedding's
        output, where the first layer does not save it."""
        size = self.rank.hidden * self.passes.settings.rest
        positions = self.first and self.rank.positions > 0
        held = [Held(by(CountedBy.POSITION, size), "embedded positions")] if positions else []
        alone = index == 1 and run.layers == 1
        if not self.first or alone or self.rank.kernels.scaled_embedding or self.runs[1].profile.keeps_input:
            return held
        return [*held, Held(by(CountedBy.TOKEN, size), "embedded tokens")]

    # Backward

    def backward(self) -> Iterator[StepMoment]:
        """The loss and the head, each run of layers at its last and at its first one, the embedding."""
        base, after = Alive().plus(self.persisting()), 0
        waiting = [*accumulate((run.waiting(run.layers) for run in self.runs), Alive.plus, initial=base)]
        kept: TrainingComponent = "gradients" if self.by_fsdp or self.passes.settings.keeps_gradients else "temporaries"
        for index in reversed(range(len(self.runs))):
            run, outputs = self.runs[index], self.runs[-1].profile.outputs
            before = waiting[index]
            if index < len(self.runs) - 1:
                before = before.plus([Held(outputs, "logits that the training loop holds", "logits")])
            for layers in self.turning(run):
                done = after + (run.layers - 1 - layers) * run.gradients
                here = before.plus([*run.waiting(layers), Held(once(done), "gradients", kept)])
                here = here.plus([Held(run.beside, "outputs kept of every other matrix")])
                if self.sharded is not None:
                    yield from self.sharded_backward(self.sharded, index, run, layers, here)
                else:
                    yield from here.tops("backward", run.profile, run.profile.backward)
            after += run.layers * run.gradients

    def sharded_backward(
        self, sharded: Sharded, index: int, run: Run, layers: int, here: Alive
    ) -> Iterator[StepMoment]:
        """The same with what FSDP holds; and when the gradients of a part are reduced."""
        around = here.plus(sharded.going_back(index, layers))
        yield from around.tops("backward", run.profile, run.profile.backward)
        if run.first >= 0:
            yield here.plus([*sharded.reducing(index, layers), self.stream]).moment("backward")
        elif not index or sharded.ends(index):
            yield here.plus(sharded.reducing(index, layers)).moment("backward")

    def turning(self, run: Run) -> list[int]:
        """Layers of a run at which its backward pass may peak, by how many stand before them: its ends; and
        beside them where other units are gathered and reduced."""
        ends = {0, run.layers - 1}
        beside = {1, run.layers - 2} if self.sharded is not None else set()
        return sorted(ends | {layer for layer in beside if 0 <= layer < run.layers}, reverse=True)

    @cached_property
    def stream(self) -> Held:
        """What one layer hands to the next, or its gradient."""
        return Held(by(CountedBy.STREAM, self.rank.hidden * self.passes.settings.rest), "residual stream")

    # Sums

    def peak_bytes(self, units: Bytes) -> int:
        """Bytes at the peak, for a batch and a length."""
        if units not in self.found:
            moments = chain.from_iterable(self.moments.values())
            self.found[units] = max(dot(moment.bytes, units) for moment in moments)
        return self.found[units]

    @cached_property
    def moments(self) -> dict[Phase, list[StepMoment]]:
        """The moments of each phase that are the peak for some batch and length."""
        phases: dict[Phase, list[StepMoment]] = {}
        for moment in (*self.forward(), *self.backward()):
            phases.setdefault(moment.phase, []).append(moment)
        return {phase: undominated(found) for phase, found in phases.items()}
