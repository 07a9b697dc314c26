from collections.abc import Iterator
from typing import Literal, Self

from pydantic import Field

from calc.errors import ConfigError, Message
from calc.hardware.parallel import Degrees
from calc.model.architecture import Architecture
from calc.model.feedforward import MoE
from calc.training.recipe import Recipe


class TrainingLayout(Degrees):
    """How a training step is spread. Each of dp replicas sees its own sequences, each of cp ranks its part of them;
    routed experts are spread over ep of these ranks. ZeRO (arXiv:1910.02054) divides over the replicas the optimizer
    (1, as Megatron's distributed optimizer), the gradients too (2), the weights too (3, as FSDP)."""

    cp: int = Field(
        default=1, ge=1, le=1024, description="Context parallel (CP): ranks that share each sequence's tokens."
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

    def stages(self, layers: int) -> Iterator[range]:
        """The layers of each stage: what does not divide goes one each to the last stages but the very last, which
        holds the head."""
        each, more = divmod(layers, self.pp)
        start = 0
        for stage in range(self.pp):
            stop = start + each + (self.pp - 1 - more <= stage < self.pp - 1)
            yield range(start, stop)
            start = stop

    @property
    def gpus(self) -> int:
        return self.tp * self.pp * self.dp * self.cp

    @property
    def slices(self) -> int:
        """Parts that each routed expert is cut into: like every other layer. Replicas hold whole ones."""
        return self.tp

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

    def check_experts(self, architecture: Architecture) -> None:
        if self.replicas % self.ep:
            fit = [ep for ep in (1, 2, 4, 8, 16, 32, 64) if self.replicas % ep == 0]
            raise ConfigError(
                Message(
                    "ep is {ep:,}, which does not divide dp times cp, {replicas:,}.", ep=self.ep, replicas=self.replicas
                ),
                "ep",
                fit,
            )
        for count in {block.ffn.n_experts for block in architecture.blocks if isinstance(block.ffn, MoE)} or {1}:
            if count % self.ep:
                raise ConfigError(
                    Message(
                        "ep is {ep:,}, which does not divide the {count:,} routed experts of this model.",
                        ep=self.ep,
                        count=count,
                    ),
                    "ep",
                    [1],
                )
