"""The moments of a training step on one rank of one pipeline stage, whatever the batch and the length."""

from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import accumulate, groupby

from calc.model.architecture import Architecture
from calc.model.attention import GQA
from calc.model.block import Block
from calc.model.mla import LatentAttention
from calc.training.autograd import NOTHING, Bytes, CountedBy
from calc.training.fsdp import Sharded
from calc.training.moments import UPDATE, Held, Phase, Run, StepMoment, TrainingComponent, by, once, plus, undominated
from calc.training.passes import Passes
from calc.training.profile import Profile, Top
from calc.training.recipe import WIDTH, Recipe
from calc.training.saved import alternate_bytes
from calc.training.sharding import TrainingLayout
from calc.training.states import States
from calc.training.training_workload import TrainingWorkload


class TrainingStage:
    """One rank of a pipeline stage."""

    def __init__(
        self,
        rank: Architecture,
        passes: Passes,
        blocks: list[Block],
        states: States,
        work: TrainingWorkload,
        recipe: Recipe,
        layout: TrainingLayout,
        *,
        first: bool,
        last: bool,
        flight: int,
    ) -> None:
        self.rank, self.passes, self.states = rank, passes, states
        self.work, self.recipe, self.layout = work, recipe, layout
        self.first, self.last, self.flight = first, last, flight
        self.runs = list(self._runs(blocks))
        self.sharded = Sharded(self.runs, layout) if self.by_fsdp else None

    @property
    def recomputed(self) -> bool:
        return self.work.recompute in ("full", "alternate")

    @property
    def by_fsdp(self) -> bool:
        """Whether PyTorch's FSDP2 gathers the weights."""
        return self.layout.fully_sharded and not self.recipe.buffers

    @property
    def by_deepspeed(self) -> bool:
        """Whether DeepSpeed's ZeRO-3 runs; on one GPU too, where it gathers nothing."""
        return self.layout.zero == 3 and self.recipe.reuse > 0

    @property
    def arriving(self) -> int:
        """Bytes of an element of a gradient that FSDP has reduced, with those of its cast."""
        reduced, kept = WIDTH[self.layout.reduce], self.states.gradient_width
        return reduced if reduced == kept else reduced + kept

    def gathered(self, layer: int) -> int:
        """Bytes of a unit's weights as they are multiplied."""
        unit = self.states.units.get(layer)
        return 0 if unit is None else WIDTH[self.recipe.compute] * unit.gathered

    # The parts of the model in this stage

    def _runs(self, blocks: list[Block]) -> Iterator[Run]:
        """Equal layers that follow each other, between the ends that stand here."""
        profiles = [self.passes.layer(block, first=False) for block in blocks]
        order = sorted((place, number) for number, block in enumerate(blocks) for place in block.runs_in)
        if self.first:
            yield self._run(self.passes.front, None, [-2 if -2 in self.states.units else -1])
        if self.first and order[0][0] == 0:
            (place, number), *order = order
            yield self._run(self.passes.layer(blocks[number], first=True), blocks[number], [place])
        for profile, group in groupby(order, key=lambda pair: profiles[pair[1]]):
            places = list(group)
            yield self._run(profile, blocks[places[0][1]], [place for place, _ in places])
        if self.last:
            yield self._run(self.passes.norm, None, [-1])
            yield self._run(self.passes.tail, None, [-1])

    def _run(self, profile: Profile, block: Block | None, places: list[int]) -> Run:
        unit, work = self.states.units.get(places[0]), self.work
        trained = 0 if unit is None else unit.trained
        gradients, unreduced = profile.gradients[CountedBy.ONCE], WIDTH[self.recipe.compute] * trained
        if block is not None:
            width = self.states.gradient_width
            kept = self.by_fsdp or self.passes.settings.keeps_gradients
            gradients = -(-trained * width // (self.layout.replicas if self.by_fsdp else 1)) if kept else 0
            if self.by_fsdp and work.accumulation > 1:
                gradients = 0  # they are added to those of earlier micro-batches
        elif profile is self.passes.norm and self.by_fsdp and -2 in self.states.units:
            shards = -(-trained * self.states.gradient_width // self.layout.replicas) if work.accumulation == 1 else 0
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
            reduced=WIDTH[self.layout.reduce] * trained,
            shards=-(-trained * self.arriving // self.layout.replicas),
        )

    # What is there all the time

    def constant(self, *, gradients: bool = True) -> list[Held]:
        """Weights and what belongs to them, between steps; with gradients that are held all the time."""
        states, recipe = self.states, self.recipe
        held = [
            Held(once(states.frozen), "frozen weights", "weights"),
            Held(once(states.weights), "trained weights", "weights"),
            Held(once(states.master), "fp32 copies of the weights", "master_weights"),
            Held(once(states.optimizer), "states of the optimizer", "optimizer"),
        ]
        if self.layout.fully_sharded and not (self.by_fsdp or self.by_deepspeed):
            largest = max(map(self.gathered, states.units))
            held.append(Held(once(2 * largest), "gathered weights of two layers", "weights"))
        if gradients and recipe.buffers:
            held.append(Held(once(states.gradients), "gradients", "gradients"))
        return held

    def running(self) -> list[Held]:
        """The same during a micro-batch: what belongs to earlier ones, and tables. DeepSpeed's ZeRO-2 gathers the
        gradients of each micro-batch in a buffer of its own before they are added (0.19.8, stage_1_and_2.py,
        `copy_grads_in_partition`); on one GPU its ZeRO-3 computes on views of what it holds (partition_parameters.py,
        `_no_gather_coalesced`)."""
        recipe, states, work = self.recipe, self.states, self.work
        held = self.constant()
        if work.accumulation > 1 and not recipe.buffers:
            held.append(Held(once(states.gradients), "gradients of earlier micro-batches", "gradients"))
        if work.accumulation > 1 and recipe.flattened and self.layout.zero == 2:
            held.append(Held(once(states.gradients), "gradients of this micro-batch", "gradients"))
        if recipe.bucket:
            size = WIDTH[recipe.gradients] * self.bucketed()
            held.append(Held(once(size), "buckets that gradients are reduced in", "gradients"))
        if self.by_deepspeed and self.layout.fully_sharded:
            held.append(Held(once(self.live()), "gathered weights", "weights"))
        columns = sum(columns for _, columns in self.rank.rotary)
        fp32 = self.rank.kernels.rotation in ("fp32", "fp32_spread")
        width = 4 if fp32 else self.passes.settings.rest
        held.append(Held(by(CountedBy.POSITION, 2 * width * columns), "rotary tables"))
        for run in self.runs if self.flight > 1 else ():
            held += run.waiting((self.flight - 1) * run.layers)
        return held

    def bucketed(self) -> int:
        """Elements of gradients on their way. Stage 3 has one bucket, and lays what is in it end to end for
        reduce-scatter (DeepSpeed 0.19.8, runtime/comm/coalesced_collectives.py)."""
        bucket = self.recipe.bucket
        if self.by_deepspeed:
            return bucket + min(bucket, sum(unit.trained for unit in self.states.units.values()))
        return 2 * bucket if self.recipe.overlap else bucket

    def live(self) -> int:
        """Bytes of what DeepSpeed's ZeRO-3 has gathered at the loss (0.19.8, partitioned_param_coordinator.py,
        `__params_to_release`): the head, and the last weights that are needed again before so many elements have
        passed, each going forward and back, and once more where a layer runs again; and what comes ahead."""
        kept = self.recipe.reuse // (3 if self.recomputed else 2)
        head = self.rank.vocab * (self.rank.d_embedding or self.rank.hidden)
        elements = max(head, kept) + self.recipe.prefetch
        return WIDTH[self.recipe.compute] * min(elements, sum(unit.gathered for unit in self.states.units.values()))

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
        before = [*accumulate(runs, initial=self.running())]
        for index, run in enumerate(self.runs):
            earlier = before[index]
            here = earlier + run.holding(run.layers - 1)
            if run.first >= 0:
                here += [masks, *self.embedded(index, run)]
                if self.sharded is not None:
                    for held, layers in ((earlier, 0), (here, run.layers - 1)):
                        yield self.moment("forward", [*held, *self.sharded.entering(index, layers), self.stream])
                    here += self.sharded.computing(index)
            elif index:
                norm = run.profile is self.passes.norm
                here += [masks, *self.embedded(index, run)] if norm else self.persisting()
                if self.sharded is not None and self.sharded.ends(index):
                    yield self.moment("forward", [*here, *self.sharded.entering_head(), self.stream])
                here += [] if self.sharded is None else self.sharded.after_layers()
                yield from self.tops("loss", here, run.profile, run.profile.loss)
            yield from self.tops("forward", here, run.profile, run.profile.forward)

    def persisting(self) -> list[Held]:
        """Masks that checkpoints hold on to."""
        return [self.masks()] if self.recomputed else []

    def embedded(self, index: int, run: Run) -> list[Held]:
        """What the model's forward pass holds on to beside the stream: the embedding's output, where the first layer
        does not save it."""
        alone = index == 1 and run.layers == 1
        if not self.first or alone or self.rank.kernels.scaled_embedding or self.runs[1].profile.keeps_input:
            return []
        return [Held(by(CountedBy.TOKEN, self.rank.hidden * self.passes.settings.rest), "embedded tokens")]

    # Backward

    def backward(self) -> Iterator[StepMoment]:
        """The loss and the head, each run of layers at its last and at its first one, the embedding."""
        base, after = [*self.running(), *self.persisting()], 0
        waiting = [*accumulate((run.waiting(run.layers) for run in self.runs), initial=base)]
        kept: TrainingComponent = "gradients" if self.by_fsdp or self.passes.settings.keeps_gradients else "temporaries"
        for index in reversed(range(len(self.runs))):
            run, outputs = self.runs[index], self.runs[-1].profile.outputs
            before = waiting[index].copy()
            if index < len(self.runs) - 1:
                before.append(Held(outputs, "logits that the training loop holds", "logits"))
            for layers in self.turning(run):
                done = after + (run.layers - 1 - layers) * run.gradients
                here = [*before, *run.waiting(layers), Held(once(done), "gradients", kept)]
                here.append(Held(run.beside, "outputs kept of every other matrix"))
                if self.sharded is not None:
                    yield from self.sharded_backward(self.sharded, index, run, layers, here)
                else:
                    yield from self.tops("backward", here, run.profile, run.profile.backward)
            after += run.layers * run.gradients
        if self.work.optimizer_in_backward:
            states = self.states
            used = [Held(once(states.largest_gradient), "gradients", "gradients"), self.updating()]
            yield self.moment("backward", [*base, *used, self.stream])

    def sharded_backward(
        self, sharded: Sharded, index: int, run: Run, layers: int, here: list[Held]
    ) -> Iterator[StepMoment]:
        """The same with what FSDP holds; and when the gradients of a part are reduced."""
        around = here + sharded.going_back(index, layers)
        yield from self.tops("backward", around, run.profile, run.profile.backward)
        if run.first >= 0:
            yield self.moment("backward", [*here, *sharded.reducing(index, layers), self.stream])
        elif not index or sharded.ends(index):
            yield self.moment("backward", [*here, *sharded.reducing(index, layers)])

    def turning(self, run: Run) -> list[int]:
        """Layers of a run at which its backward pass may be fullest, by how many stand before them: its ends; and
        beside them where other units are gathered and reduced."""
        ends = {0, run.layers - 1}
        beside = {1, run.layers - 2} if self.sharded is not None else set()
        return sorted(ends | {layer for layer in beside if 0 <= layer < run.layers}, reverse=True)

    # The step

    def steps(self) -> Iterator[StepMoment]:
        """Before and after the step, and the optimizer's update."""
        yield StepMoment("after_init", *self.total(self.constant()))
        held, states = self.constant(gradients=False), self.states
        if not self.work.optimizer_in_backward:
            size = states.casts or states.gradients
            held.append(Held(once(size), "gradients", "gradients"))
        yield StepMoment("optimizer", *self.total([*held, self.updating()]))
        yield StepMoment("after_step", *self.total(self.constant()))

    def updating(self) -> Held:
        return Held(once(self.states.update), UPDATE, "temporaries")

    # Sums

    @cached_property
    def moments(self) -> dict[Phase, tuple[StepMoment, ...]]:
        """The moments of each phase that are fullest for some batch and length."""
        phases: dict[Phase, list[StepMoment]] = {}
        for moment in (*self.steps(), *self.forward(), *self.backward()):
            phases.setdefault(moment.phase, []).append(moment)
        return {phase: tuple(undominated(found)) for phase, found in phases.items()}

    def total(self, held: list[Held]) -> tuple[Bytes, tuple[Held, ...]]:
        return plus(NOTHING, *(one.bytes for one in held)), tuple(held)

    def moment(self, phase: Phase, held: list[Held]) -> StepMoment:
        return StepMoment(phase, *self.total(held))

    def tops(self, phase: Phase, held: list[Held], profile: Profile, tops: Iterable[Top]) -> Iterator[StepMoment]:
        """Each moment of a part, with what is held round it."""
        nbytes, held_there = self.total(held)
        for top in tops:
            here = Held(top.bytes, profile=profile, event=top.event)
            yield StepMoment(phase, plus(nbytes, top.bytes), (*held_there, here))

    @cached_property
    def stream(self) -> Held:
        """What one layer hands to the next, or its gradient."""
        return Held(by(CountedBy.STREAM, self.rank.hidden * self.passes.settings.rest), "residual stream")
