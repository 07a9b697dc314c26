from collections.abc import Iterator
from itertools import accumulate
from typing import Literal, Self

from pydantic import Field

from calc.errors import ConfigError, Message, Refusal
from calc.hardware.division import nearest
from calc.hardware.parallel import Degrees
from calc.model.architecture import Architecture
from calc.model.feedforward import MoE
from calc.training.recipe import Recipe


class TrainingLayout(Degrees):
    """How a training step is spread. Each of dp replicas sees its own sequences, each of cp ranks its part of them;
    routed experts are spread over ep of these ranks, or, cut into fewer parts than other layers, over tensor-parallel
    ranks too. Each of pp stages holds vp pieces of the model, of which the
    stages take turns (arXiv:2104.04473 section 2.2.2). ZeRO (arXiv:1910.02054) divides over the replicas the optimizer
    (1, as Megatron's distributed optimizer), the gradients too (2), the weights too (3, as FSDP)."""

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
        default=True, description="FSDP: a layer's gathered weights are let go of before its backward pass."
    )
    separate_embedding: bool = Field(
        default=False,
        description="FSDP: the embedding is a unit, and the last norm with the head another, as torchtitan has them; "
        "otherwise they are gathered together, and stay so.",
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
        return self.tp * self.pp * self.dp * self.cp

    @property
    def slices(self) -> int:
        """Parts that each routed expert is cut into: as many as other layers, fewer where more ranks share experts."""
        return self.etp or max(1, min(self.tp, self.tp * self.replicas // self.ep))

    @property
    def expert_replicas(self) -> int:
        """Ranks that hold the same routed experts, were their weights not sharded."""
        return self.tp * self.replicas // (self.slices * self.ep)

    def of_degree(self, tp: int) -> Self:
        """The same over other tensor-parallel ranks."""
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
        for count in {block.ffn.n_experts for block in architecture.blocks if isinstance(block.ffn, MoE)} or {1}:
            if count % self.ep:
                sentence = "ep is {ep:,}, which does not divide the {count:,} routed experts of this model."
                yield Refusal(Message(sentence, ep=self.ep, count=count), "ep", [1])
