"""Memory of a training step, on one GPU: weights and what belongs to them, activations, logits, overhead."""

from collections.abc import Iterable, Iterator
from typing import Literal

from calc.architecture import Architecture
from calc.frozen import Frozen
from calc.inference import Memory, Overhead, blocks_within
from calc.layout import TrainingLayout
from calc.optimizer import state_bytes, step_bytes
from calc.precision import Precision
from calc.recipe import WIDTH, Recipe
from calc.saved import kept_bytes, layer_bytes, norm_bytes, returning_bytes
from calc.tensor import Component, Tensor
from calc.weights import stored
from calc.workload import LoraTargets, TrainingWorkload

Moment = Literal["loss", "backward", "end of backward", "step"]
ADAPTED: dict[LoraTargets, frozenset[Component]] = {
    "all": frozenset({"attention", "mlp", "experts_shared", "ssm_linear"}),
    "attention": frozenset({"attention"}),
    "qv": frozenset({"attention"}),
}


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


class States(Frozen):
    """Bytes that a rank of one pipeline stage holds of its weights."""

    frozen: int  # weights that are not trained
    weights: int  # trained weights
    master: int
    gradients: int
    largest_gradient: int
    optimizer: int
    gathered: int  # weights of the layer at work and of the next, where they are sharded; or casts of them
    dequantised: int  # the largest matrix in 16 bits, where weights are quantised
    head_gradient: int
    update: int  # what the optimizer needs beside for the largest tensor
    copies: int  # of the gradients, at the optimizer's step


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
        self.states = [self._states(stage) for stage in self.stages]

    def laid_out(self, layout: TrainingLayout) -> "Training":
        """The same step on other GPUs."""
        return Training(self.architecture, self.work, self.recipe, layout, self.overhead, self.frozen)

    def trained_parameters(self) -> int:
        """Weights that the step updates, on however many GPUs."""
        tensors = [tensor for tensor in self.architecture.tensors() if tensor.apart is None]
        return sum(one.parameters for tensor in tensors for one in self._trained(tensor))

    def largest_gradients(self) -> int:
        """Bytes of all gradients of a rank, of the stage that has most."""
        return max(states.gradients for states in self.states)

    def memory(self, **change: int) -> TrainingMemory:
        """Bytes on the fullest GPU, with another `micro_batch` or `sequence` where they are given."""
        work = self.work.model_copy(update=change)
        return max((self._stage(i, work) for i in range(len(self.stages))), key=lambda memory: memory.total)

    def _stage(self, index: int, work: TrainingWorkload) -> TrainingMemory:
        """The fullest moment of one stage. With 1F1B, stage i holds min(micro-batches, p - i) of them in flight
        (arXiv:2104.04473 section 2.2)."""
        states, stage, pp, hidden = self.states[index], self.stages[index], self.layout.pp, self.rank.hidden
        w, shards = WIDTH[self.recipe.compute], self.layout.tp if self.layout.sequence_parallel else 1
        tokens = work.micro_batch * -(-work.sequence // self.layout.cp)
        blocks = blocks_within(self.rank, stage)
        flight = min(work.accumulation, pp - index)
        each = sum(len(block.layers) * kept_bytes(block, hidden, work, tokens, w, shards) for block in blocks)
        fullest = max(layer_bytes(block, hidden, work, tokens, w, shards) for block in blocks)
        returning = max(returning_bytes(block, hidden, work, tokens, w, shards) for block in blocks)
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
            read = (norm_bytes(hidden, self.rank.final_norm, work, w) + w * hidden) * tokens // shards
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
        items = self.overhead.items("transformers", self.layout.gpus, held).values()
        low, high = sum(low for low, _ in items), sum(high for _, high in items)
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

    def _states(self, stage: range) -> States:
        """Each part divided over as many ranks as ZeRO's stage says."""
        zero, recipe, compute = self.layout.zero, self.recipe, WIDTH[self.recipe.compute]
        totals = dict.fromkeys(("frozen", "weights", "master", "gradients", "optimizer", "copies"), 0)
        units: dict[int | str, int] = {}  # elements of each layer, of the embedding and of the head
        largest = dequantised = matrices = 0
        for piece in stored(self.rank, self.frozen):
            tensor = piece.tensor
            if tensor.apart is not None or not (copies := self._copies(tensor, stage)):
                continue
            ep = self.layout.ep if tensor.component == "experts_routed" else 1
            replicas = self.layout.replicas // ep
            for layer in tensor.layers or (tensor.name,):
                units[layer] = units.get(layer, 0) + tensor.parameters // max(1, len(tensor.layers)) // ep

            def share(nbytes: int, least_stage: int, ep: int = ep, replicas: int = replicas) -> int:
                return -(-nbytes // (ep * replicas if zero >= least_stage else ep))

            if not self.work.trains_base:
                quantised = piece.nbytes < compute * tensor.numel
                wide = self.work.fp32_rest and not quantised
                totals["frozen"] += share(copies * (4 * tensor.numel if wide else piece.nbytes), 3)
                dequantised = max(dequantised, compute * tensor.numel if quantised else 0)
            elif len(tensor.shape) > 1 and tensor.component != "embedding":
                matrices += share(copies * tensor.numel, 4)
            for one in self._trained(tensor):
                totals["weights"] += share(copies * one.numel * WIDTH[recipe.weights], 3)
                totals["master"] += share(copies * one.numel * 4 * recipe.master, 1)
                totals["gradients"] += share(copies * one.numel * WIDTH[recipe.gradients], 2)
                totals["copies"] += recipe.copies_gradients * share(
                    copies * one.numel * (WIDTH[recipe.gradients] + 4), 1
                )
                states = state_bytes(self.work.optimizer, one, WIDTH[recipe.states])
                totals["optimizer"] += share(copies * states, 1)
                largest = max(largest, share(one.numel, 2))
        here = [size for place, size in units.items() if isinstance(place, str) or place in stage]
        sharded = zero == 3 and self.layout.replicas > 1
        gathered = 2 * compute * max(here) if sharded else compute * matrices if recipe.casts else 0
        head = compute * self.rank.vocab * self.rank.hidden if self.work.trains_base else 0
        return States(
            **totals,
            largest_gradient=largest * WIDTH[recipe.gradients],
            update=step_bytes(self.work.optimizer, largest),
            gathered=gathered,
            dequantised=dequantised,
            head_gradient=head,
        )

    def _copies(self, tensor: Tensor, stage: range) -> int:
        """How often a stage holds a tensor: in its layers; the embedding in the first, what follows the layers in the
        last, and a tied head there too."""
        if tensor.layers:
            return tensor.count * sum(layer in stage for layer in tensor.layers) // len(tensor.layers)
        first, last = stage.start == 0, stage.stop == self.rank.num_layers
        if tensor.component == "embedding":
            return int(first or (last and self.rank.tied))
        return int(last)

    def _trained(self, tensor: Tensor) -> Iterator[Tensor]:
        """What is trained of a weight, or beside it."""
        if self.work.trains_base:
            yield tensor
        else:
            yield from self._adapters(tensor)

    def _adapters(self, tensor: Tensor) -> Iterator[Tensor]:
        """The two matrices that LoRA puts beside a matrix, [rank, in] and [out, rank]: arXiv:2106.09685 section 4.1."""
        targets = self.work.lora_targets
        chosen = len(tensor.shape) == 2 and tensor.component in ADAPTED[targets]
        if chosen and (targets != "qv" or tensor.name.split(".")[-2] in self._queries_and_values()):
            out, width = tensor.shape
            yield Tensor(f"{tensor.name}.lora_A", (self.work.lora_rank, width), tensor.component, tensor.layers)
            yield Tensor(f"{tensor.name}.lora_B", (out, self.work.lora_rank), tensor.component, tensor.layers)

    def _queries_and_values(self) -> Iterable[str]:
        """What checkpoints call the projections of queries and values, or the one that holds both."""
        names, wanted = self.rank.names, ("q_proj", "v_proj")
        packed = [name for name, parts in names.packed.items() if set(wanted) & set(parts)]
        return {*packed, *(names.renamed.get(name, name) for name in wanted)}


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
            return [(at_loss, 0), (max(0, tokens - 2 * chunk) * vocab * w, 3)]
        case "fused":
            return [(tokens * hidden * (w + 4 + w), 2)]
