"""Memory of a training step, on one GPU: weights and what belongs to them, activations, logits, overhead."""

from typing import Literal

from calc.errors import Message
from calc.formats import Precision
from calc.formats.stored import stored
from calc.hardware.overhead import CUDA_CONTEXT, FRAGMENTATION, Overhead, OverheadItem, Range, bounds, libraries
from calc.hardware.shards import blocks_within, layer_kinds
from calc.model.architecture import Architecture
from calc.model.block import Block
from calc.serving.memory import Memory
from calc.training.recipe import WIDTH, Recipe
from calc.training.saved import kept_bytes, layer_bytes, norm_bytes, returning_bytes
from calc.training.sharding import TrainingLayout
from calc.training.states import States, states_of, trained_of
from calc.training.training_workload import TrainingWorkload

Moment = Literal["loss", "backward", "end of backward", "step"]


def usual_overhead(gpus: int) -> dict[OverheadItem, Range]:
    """GiB of what no formula closes, and per cent for fragmentation."""
    return {"cuda_context": CUDA_CONTEXT, "libraries": libraries(gpus), "fragmentation": FRAGMENTATION}


class TrainingMemory(Memory):
    """Bytes on one GPU, the fullest, at the fullest moment of a step, whose parts add up to `total`."""

    kv_cache: int = 0
    master_weights: int
    gradients: int
    optimizer: int
    logits: int  # with the loss, their gradients, and those of the head that stand beside them
    moment: Moment
    """The loss, when every layer still waits for its backward pass; the backward pass of the last layer; or its end,
    when all gradients are there; or the optimizer's step."""

    @property
    def parts(self) -> dict[Message, int]:
        """The same of a step."""
        return {
            Message("weights"): self.weights,
            Message("master weights"): self.master_weights,
            Message("gradients"): self.gradients,
            Message("optimizer states"): self.optimizer,
            Message("activations"): self.activations,
            Message("logits"): self.logits,
        }


class Training:
    """A model, a step and how both are laid out, ready to be weighed at any micro-batch and sequence."""

    def __init__(
        self,
        architecture: Architecture,
        work: TrainingWorkload,
        recipe: Recipe,
        layout: TrainingLayout,
        overhead: Overhead,
        frozen: Precision,
    ) -> None:
        layout.check(architecture)
        self.architecture = architecture
        self.work, self.recipe, self.layout, self.overhead, self.frozen = work, recipe, layout, overhead, frozen
        self.rank = architecture.rank(layout.tp)
        self.stages = list(layout.stages(architecture.num_layers))
        self.layouts = dict[TrainingLayout, Training]()
        kinds, alike = self._kinds(), dict[tuple[object, ...], tuple[States, list[Block]]]()
        for kind, stage in zip(kinds, self.stages, strict=True):
            if kind not in alike:
                states = states_of(self.rank, stage, work, recipe, layout, frozen)
                alike[kind] = states, blocks_within(self.rank, stage)
        self.states, self.blocks = [alike[kind][0] for kind in kinds], [alike[kind][1] for kind in kinds]
        self.firsts = [kinds.index(kind) for kind in alike]

    def _kinds(self) -> list[tuple[object, ...]]:
        """What stands in each stage; equal where stages weigh the same but for the micro-batches in flight."""
        layers, weights = self.rank.num_layers, (piece.tensor for piece in stored(self.rank, self.frozen))
        places = [block.runs_in for block in self.rank.all_blocks]
        places += [tensor.layers for tensor in weights if tensor.apart is None]
        kinds = layer_kinds(layers, places)
        return [
            (stage.start == 0, stage.stop == layers, *sorted(kinds[stage.start : stage.stop])) for stage in self.stages
        ]

    def laid_out(self, layout: TrainingLayout) -> "Training":
        """The same step on other GPUs; laid out once for all that are asked about."""
        if layout not in self.layouts:
            whole = self.architecture, self.work, self.recipe, layout, self.overhead, self.frozen
            self.layouts[layout] = Training(*whole)
        return self.layouts[layout]

    def trained_parameters(self) -> int:
        """Weights that the step updates, on however many GPUs."""
        tensors = [tensor for tensor in self.architecture.tensors() if tensor.apart is None]
        return sum(one.parameters for tensor in tensors for one in trained_of(self.architecture, tensor, self.work))

    def largest_gradients(self) -> int:
        """Bytes of all gradients of a rank, of the stage that has most."""
        return max(states.gradients for states in self.states)

    def memory(self, **change: int) -> TrainingMemory:
        """Bytes on the fullest GPU, with another `micro_batch` or `sequence` where they are given. Of equal stages the
        first is the fullest, for it holds most micro-batches."""
        work = self.work.model_copy(update=change)
        return max((self._stage(i, work) for i in self.firsts), key=lambda memory: memory.total)

    def by_stage(self) -> list[TrainingMemory]:
        """The same on a GPU of each pipeline stage."""
        return [self._stage(i, self.work) for i in range(len(self.stages))]

    def _stage(self, index: int, work: TrainingWorkload) -> TrainingMemory:
        """The fullest moment of one stage. With 1F1B, stage i holds min(micro-batches, p - i) of them in flight
        (arXiv:2104.04473 section 2.2)."""
        states, stage, pp, hidden = self.states[index], self.stages[index], self.layout.pp, self.rank.hidden
        w, shards = WIDTH[self.recipe.compute], self.layout.tp if self.layout.sequence_parallel else 1
        tokens = work.micro_batch * -(-work.sequence // self.layout.cp)
        blocks, flight, kernels = self.blocks[index], min(work.accumulation, pp - index), self.rank.kernels
        each = sum(len(block.layers) * kept_bytes(block, kernels, hidden, work, tokens, w, shards) for block in blocks)
        fullest = max(layer_bytes(block, kernels, hidden, work, tokens, w, shards) for block in blocks)
        returning = max(returning_bytes(block, kernels, hidden, work, tokens, w, shards) for block in blocks)
        held = self._held(states, work)
        moments = [
            self._moment("backward", states, held, activations=flight * each + returning + states.dequantised),
            self._moment(
                "end of backward",
                states,
                states.largest_gradient if work.optimizer_in_backward else states.gradients,
                activations=(flight - 1) * each
                + max(fullest + states.dequantised, states.head_gradient if self.rank.tied else 0, states.update),
            ),
        ]
        if states.copies:
            moments.append(self._moment("step", states, states.gradients, states.copies))
        if stage.stop == self.rank.num_layers:
            norm = norm_bytes(hidden, kernels.norm_kind(self.rank.final_norm), work, w)
            read = (norm + w * hidden) * tokens // shards
            for logits, heads in loss_moments(work, tokens, self.rank.vocab, hidden, w):
                logits += heads * states.head_gradient
                moments.append(self._moment("loss", states, held, flight * each + read, logits))
        return max(moments, key=lambda memory: memory.total)

    def _held(self, states: States, work: TrainingWorkload) -> int:
        """Bytes of gradients through the whole step: where micro-batches add up in them, or where they are buffers that
        a master copy is updated from; else they come as the activations go."""
        if work.optimizer_in_backward:
            return 0
        return states.gradients if work.accumulation > 1 or self.recipe.master else 0

    def _moment(
        self, moment: Moment, states: States, gradients: int, activations: int, logits: int = 0
    ) -> TrainingMemory:
        """What is there at a moment; gradients with the buckets that they are reduced in."""
        weights = states.frozen + states.weights + states.gathered
        if moment != "step":
            gradients += 2 * WIDTH[self.recipe.gradients] * self.recipe.bucket
        held = weights + states.master + gradients + states.optimizer + activations + logits
        low, high = bounds(self.overhead.sizes(usual_overhead(self.layout.gpus), held))
        return TrainingMemory(
            weights=weights,
            master_weights=states.master,
            gradients=gradients,
            optimizer=states.optimizer,
            activations=activations,
            logits=logits,
            overhead=(low + high) // 2,
            overhead_low=low,
            overhead_high=high,
            total=held + (low + high) // 2,
            moment=moment,
        )


def loss_moments(work: TrainingWorkload, tokens: int, vocab: int, hidden: int, w: int) -> list[tuple[int, int]]:
    """Bytes of logits, and how many gradients of the head stand beside them, at the moments round the loss.

    Whole: the logits, and in fp32 (native: as they are) their log-softmax, its gradient and theirs; compiled: the
    logits and their gradient; then, each time, their gradient alone.
    Chunked: the logits, and in fp32 the log-softmax of all chunks and two gradients of one; nothing of that where the
    loss is one kernel, which overwrites the logits with their gradients. Then these gradients without those of the two
    chunks whose gradients of the head are being added into a third.
    Fused: chunks of so many tokens that a chunk is as large as the hidden states, in 16 bits and in fp32, the gradient
    of the hidden states, and those of the head so far and of the chunk (Liger Kernel, arXiv:2410.10989 section 3.2).
    """
    match work.loss:
        case "whole" | "native":
            wide = 4 if work.loss == "whole" else w
            return [(tokens * vocab * (w + 3 * wide), 0), (tokens * vocab * w, 1)]
        case "compiled":
            return [(tokens * vocab * 2 * w, 0), (tokens * vocab * w, 1)]
        case "chunked":
            chunk = -(-tokens // work.loss_chunks)
            kept = tokens * vocab * 4 + chunk * vocab * 2 * 4
            at_loss = tokens * vocab * w + (0 if work.fused else kept)
            waiting = -(-tokens * max(0, work.loss_chunks - 2) // work.loss_chunks)
            return [(at_loss, 0), (waiting * vocab * w, 3)]
        case "fused":
            return [(tokens * hidden * (w + 4 + w), 2)]
