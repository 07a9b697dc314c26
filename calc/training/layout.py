"""Layout of a training step, the order in which pipeline stages work, and how it is started."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import accumulate
from operator import ge
from typing import Literal, NamedTuple, Self

from pydantic import Field

from calc.budget import spent
from calc.errors import ConfigError, Frozen, Message, Refusal
from calc.formats import Precision
from calc.hardware.division import nearest
from calc.hardware.overhead import Overhead
from calc.hardware.parallel import Degrees
from calc.model.architecture import Architecture
from calc.training.workload import RECIPES, Colocation, Method, Objective, Recipe, TrainingWorkload


class TrainingLayout(Degrees):
    """Spread of a training step. Each of dp replicas sees its own sequences, each of cp ranks its part of them; routed
    experts are spread over ep of these ranks, or, cut into fewer parts than other layers, over tensor-parallel ranks
    too. Each of pp stages holds vp pieces of the model, of which the stages take turns (arXiv:2104.04473 section
    2.2.2). ZeRO (arXiv:1910.02054) divides over the replicas the optimizer (1, as Megatron's distributed optimizer),
    the gradients too (2), the weights too (3, as FSDP)."""

    vp: int = Field(
        default=1,
        ge=1,
        le=512,
        description="Virtual pipeline stages (VP), Megatron-LM's --num-virtual-stages-per-pipeline-rank: pieces of the "
        "model on each pipeline stage; more than 1 is the interleaved schedule.",
    )
    cp: int = Field(
        default=1, ge=1, le=1024, description="Context parallel (CP): ranks that share each sequence's tokens."
    )
    etp: int = Field(
        default=0,
        ge=0,
        le=1024,
        description="Expert tensor parallel (ETP), Megatron-LM's --expert-tensor-parallel-size: parts that each routed "
        "expert is cut into; 0: as many as other layers (TP), or as few as EP leaves. With fewer, EP counts "
        "tensor-parallel ranks too.",
    )
    zero: Literal[0, 1, 2, 3] = Field(
        default=0,
        description="ZeRO / FSDP sharding over the data-parallel ranks: 1 the optimizer states, 2 the gradients too, "
        "3 the weights too, as FSDP does.",
    )
    reduce: Literal["bf16", "fp32"] = Field(
        default="fp32", description="FSDP: the type in which gradients are reduced, torchtitan's default."
    )
    reshard_after_forward: bool = Field(
        default=True, description="FSDP: a layer's gathered weights are freed before its backward pass."
    )
    separate_embedding: bool = Field(
        default=False,
        description="FSDP: the embedding is a unit, and the last norm with the head another, as torchtitan has them; "
        "otherwise they are gathered together, and stay so.",
    )
    cpu_offload: bool = Field(
        default=False,
        description="FSDP's CPUOffload: sharded weights, their gradients and optimizer states wait in CPU memory, and "
        "the update runs there; with ZeRO-3 over several GPUs.",
    )
    sequence_parallel: bool = Field(
        default=True, description="Norms and what they read are divided over the tensor-parallel ranks too."
    )

    def pieces(self, layers: int) -> list[range]:
        """The layers of each piece of the model: what does not divide goes one each to the last pieces but the very
        last, which holds the head. Where the embedding or the loss counts as a layer and is a piece alone, a stage
        that has it holds one layer less, here in another of its pieces."""
        count = self.pp * self.vp
        each, more = divmod(layers, count)
        sizes = [each + (count - 1 - more <= piece < count - 1) for piece in range(count)]
        if not each:
            alone = (count - 1 - self.pp, self.pp)[: count - layers]
            sizes = [int(piece not in alone) for piece in range(count)]
        return [range(stop - size, stop) for size, stop in zip(sizes, accumulate(sizes), strict=True)]

    def stages(self, layers: int) -> list[tuple[range, ...]]:
        """The pieces of each stage, which take turns in them."""
        pieces = self.pieces(layers)
        return [tuple(pieces[stage :: self.pp]) for stage in range(self.pp)]

    @property
    def gpus(self) -> int:
        return self.of_replica * self.dp

    @property
    def of_replica(self) -> int:
        """GPUs of a data-parallel replica."""
        return self.tp * self.pp * self.cp

    @property
    def slices(self) -> int:
        """Parts that each routed expert is cut into: as many as other layers, fewer where more ranks share experts."""
        return self.etp or max(1, min(self.tp, self.tp * self.replicas // self.ep))

    @property
    def expert_replicas(self) -> int:
        """Ranks that hold the same routed experts, were their weights not sharded."""
        return self.tp * self.replicas // (self.slices * self.ep)

    def with_degree(self, tp: int) -> Self:
        return self.model_copy(update={"tp": tp})

    @property
    def replicas(self) -> int:
        """Ranks that hold the same weights, were they not sharded."""
        return self.dp * self.cp

    @property
    def fully_sharded(self) -> bool:
        """Whether weights are sharded, and gathered part by part."""
        return self.zero == 3 and self.replicas > 1

    def gathered_by_fsdp(self, recipe: Recipe) -> bool:
        """Whether PyTorch's FSDP2 gathers the weights."""
        return self.fully_sharded and not recipe.buffers

    def check(self, architecture: Architecture) -> None:
        super().check(architecture)
        if self.cpu_offload and not self.fully_sharded:
            sentence = "cpu_offload moves sharded weights: it needs zero 3 over two data-parallel ranks or more."
            raise ConfigError(Message(sentence), "cpu_offload", [False])
        if self.vp == 1:
            return
        if self.pp == 1:
            sentence = "vp is {vp:,}, but there is one pipeline stage: an interleaved schedule needs two."
            raise ConfigError(Message(sentence, vp=self.vp), "vp", [1])
        if not self.cuts_evenly(architecture):

            def allowed(vp: int) -> bool:
                return self.model_copy(update={"vp": vp}).cuts_evenly(architecture)

            sentence = (
                "pp times vp is {pieces:,}, which does not divide the {layers:,} layers, with or without the "
                "embedding, the loss and multi-token prediction (MTP) counted as layers."
                if architecture.prediction
                else "pp times vp is {pieces:,}, which does not divide the {layers:,} layers, with or without the "
                "embedding and the loss counted as layers."
            )
            raise ConfigError(
                Message(sentence, pieces=self.pp * self.vp, layers=architecture.num_layers),
                "vp",
                nearest(self.vp, allowed),
            )

    def cuts_evenly(self, architecture: Architecture) -> bool:
        """Whether the pieces are of as many layers, where the embedding, the loss and the layers of multi-token
        prediction may count as some: Megatron-LM's account_for_embedding_in_pipeline_split and
        account_for_loss_in_pipeline_split (Megatron-Core 0.16.1, transformer_config.py), and the layouts that
        Megatron-Bridge writes out for DeepSeek-V3 and Kimi-K2, whose pieces are short of 3 layers in all."""
        layers, count = architecture.num_layers, self.pp * self.vp
        ends = 2 + max(1, sum(len(module.block.layers) for module in architecture.prediction))
        return count <= layers + 2 and -layers % count <= ends

    def unspread_experts(self, architecture: Architecture) -> Iterator[Refusal]:
        if self.tp % self.slices:
            sentence = "etp is {etp:,}, which does not divide tp, {tp:,}."
            yield Refusal(Message(sentence, etp=self.slices, tp=self.tp), "etp", [1, self.tp])
            return
        ranks = self.tp // self.slices * self.replicas
        if ranks % self.ep:
            fit = [ep for ep in (1, 2, 4, 8, 16, 32, 64) if ranks % ep == 0]
            if self.slices < self.tp:
                sentence = "ep is {ep:,}, which does not divide the {ranks:,} ranks of a stage over etp."
                yield Refusal(Message(sentence, ep=self.ep, ranks=ranks), "ep", fit)
            else:
                sentence = "ep is {ep:,}, which does not divide dp times cp, {replicas:,}."
                yield Refusal(Message(sentence, ep=self.ep, replicas=self.replicas), "ep", fit)
        for count in {moe.n_experts for moe in architecture.experts} or {1}:
            if count % self.ep:
                sentence = "ep is {ep:,}, which does not divide the {count:,} routed experts of this model."
                yield Refusal(Message(sentence, ep=self.ep, count=count), "ep", [1])


# The order in which a pipeline stage works: one forward pass, one backward pass (1F1B); interleaved where a stage
# holds several pieces of the model (arXiv:2104.04473 section 2.2).


ROUNDS = 3
"""Micro-batches for each stage behind which the order of an interleaved schedule begins again."""


class PieceAtWork(NamedTuple):
    """Piece of the model that a stage computes in a turn, and the micro-batches that wait in each piece [pieces]."""

    piece: int
    backward: bool
    waiting: tuple[int, ...]


def warm_up(stages: int, pieces: int, batches: int, stage: int) -> int:
    """Forward passes of a piece before the first backward pass: until the first micro-batch is back from the stages
    behind. With several pieces a stage goes through all but the last of them first, and twice as far ahead of the next
    stage (Megatron-Core 0.16.1, pipeline_parallel/schedules.py, `get_pp_rank_microbatches`)."""
    behind = stages - stage - 1
    ahead = behind if pieces == 1 else 2 * behind + (pieces - 1) * stages
    return min(ahead, pieces * batches)


def in_flight(stages: int, pieces: int, batches: int, stage: int) -> int:
    """Pieces under way at once, each for one micro-batch."""
    return min(warm_up(stages, pieces, batches, stage) + 1, pieces * batches)


def piece_of(turn: int, stages: int, pieces: int) -> int:
    """The piece of a turn forward: as many micro-batches as there are stages, then the next piece; backward it is as
    far from the last."""
    return turn // stages % pieces


def turns(stages: int, kinds: tuple[int, ...], batches: int, stage: int) -> Iterator[PieceAtWork]:
    """A stage at work, turn by turn. `kinds` says of each piece which one it is like."""
    pieces = len(kinds)
    ahead, total = warm_up(stages, pieces, batches, stage), pieces * batches
    waiting = [0] * pieces
    for turn in range(total + ahead):
        if turn < total:
            kind = kinds[piece_of(turn, stages, pieces)]
            yield PieceAtWork(kind, False, tuple(waiting))
            waiting[kind] += 1
        if turn >= ahead:
            kind = kinds[pieces - 1 - piece_of(turn - ahead, stages, pieces)]
            waiting[kind] -= 1
            yield PieceAtWork(kind, True, tuple(waiting))


def peak_turns(stages: int, kinds: tuple[int, ...], batches: int, stage: int) -> tuple[PieceAtWork, ...]:
    """The turns at which most waits, of each kind of piece forward and backward."""
    distinct = dict.fromkeys(spent(turns(stages, kinds, min(batches, ROUNDS * stages), stage)))
    of_piece = defaultdict[tuple[int, bool], list[PieceAtWork]](list)
    for turn in distinct:
        of_piece[turn[:2]].append(turn)

    def holds_more(other: PieceAtWork, turn: PieceAtWork) -> bool:
        return other.waiting != turn.waiting and all(map(ge, other.waiting, turn.waiting))

    return tuple(turn for turn in distinct if not any(holds_more(other, turn) for other in of_piece[turn[:2]]))


def interleaves(recipe: Recipe) -> bool:
    """Whether the framework of a recipe has an interleaved schedule: DeepSpeed has none (its issue 4035)."""
    return recipe != RECIPES["deepspeed"]


def usual_base(method: Method) -> Precision:
    """Storage of the frozen weights by default: for QLoRA NF4 with double quantization, else 16 bits."""
    return Precision(weights="nf4-dq" if method == "qlora" else "bf16")


class TrainingScenario(Frozen):
    """A training step as it is weighed, by default of all weights on one GPU."""

    workload: TrainingWorkload = TrainingWorkload()
    recipe: Recipe = RECIPES["master"]
    frozen: Precision = Precision()
    """Format of LoRA's base."""
    layout: TrainingLayout = TrainingLayout()
    overhead: Overhead = Overhead()
    objective: Objective | None = Field(default=None, exclude_if=lambda objective: objective is None)
    """None: supervised, as transformers computes the loss."""
    colocation: Colocation | None = Field(default=None, exclude_if=lambda colocation: colocation is None)

    def check_schedule(self) -> None:
        """Raise ConfigError where pieces can't be interleaved so."""
        work, layout = self.workload, self.layout
        if layout.vp == 1:
            return
        if not interleaves(self.recipe):
            raise ConfigError(
                Message("DeepSpeed has no interleaved pipeline schedule; Megatron-LM and torchtitan have."), "vp", [1]
            )
        over = work.accumulation % layout.pp
        if over:
            sentence = "accumulation is {n:,}: an interleaved schedule needs a multiple of the {pp:,} pipeline stages."
            message = Message(sentence, n=work.accumulation, pp=layout.pp)
            if work.optimizer_in_backward:  # which leaves none to accumulate
                raise ConfigError(message, "vp", [1])
            nearest = work.accumulation - over
            raise ConfigError(message, "accumulation", [n for n in (nearest, nearest + layout.pp) if n])
