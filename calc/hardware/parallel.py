from collections.abc import Iterator

from pydantic import Field

from calc.errors import ConfigError, Frozen, Message
from calc.model.architecture import Architecture
from calc.model.feedforward import MoE


class Layout(Frozen):
    """How a model is spread: each layer over tp GPUs (tensor parallel), the layers over pp stages (pipeline), and the
    sequences over dp copies of all but the routed experts (data-parallel attention), which these copies share: whole
    ones over ep of the tp times dp ranks, each cut into slices for the rest."""

    tp: int = Field(default=1, ge=1, le=1024, description="Tensor parallel (TP): GPUs that share each layer.")
    pp: int = Field(default=1, ge=1, le=4096, description="Pipeline parallel (PP): stages that share the layers.")
    dp: int = Field(
        default=1, ge=1, le=65_536, description="Data parallel (DP): copies, each with sequences of its own."
    )
    ep: int = Field(default=1, ge=1, le=4096, description="Expert parallel (EP): ranks that share the routed experts.")

    @property
    def gpus(self) -> int:
        return self.tp * self.pp * self.dp

    def rank(self, architecture: Architecture, vocab: int | None = None) -> Architecture:
        """What one rank holds of every layer, and so many rows of the vocabulary."""
        return architecture.rank(self.tp, self.tp * self.dp // self.ep, self.ep, vocab)

    def check(self, architecture: Architecture) -> None:
        """Raise ConfigError where the model can't be divided so."""
        if not divides(architecture, self.tp):
            nearest = [tp for tp in (1, 2, 4, 8, 16, 32, 64) if divides(architecture, tp)]
            raise ConfigError(
                Message(
                    "tp is {tp:,}, which does not divide this model's heads and feed-forward columns evenly.",
                    tp=self.tp,
                ),
                "tp",
                nearest,
            )
        if self.pp > architecture.num_layers:
            layers = architecture.num_layers
            raise ConfigError(
                Message("pp is {pp:,}, but the model has only {layers:,} layers.", pp=self.pp, layers=layers),
                "pp",
                [layers],
            )
        self.check_experts(architecture)

    def check_experts(self, architecture: Architecture) -> None:
        """The same for the routed experts."""
        experts, ranks = [b.ffn for b in architecture.blocks if isinstance(b.ffn, MoE)], self.tp * self.dp
        if self.ep > 1 and not experts:
            raise ConfigError(Message("ep spreads routed experts, which this model does not have."), "ep", [1])

        def fits(ep: int) -> bool:
            return ranks % ep == 0 and all(ep <= moe.n_experts and moe.expert.divides(ranks // ep) for moe in experts)

        if not fits(self.ep):
            nearest = [ep for ep in (1, 2, 4, 8, 16, 32, 64, 128, 256) if fits(ep)]
            raise ConfigError(
                Message(
                    "ep is {ep:,}, which does not share the routed experts over tp times dp, {ranks:,} ranks.",
                    ep=self.ep,
                    ranks=ranks,
                ),
                "ep",
                nearest,
            )


def divides(architecture: Architecture, tp: int) -> bool:
    """Whether tp ranks can share every layer evenly."""
    return all(
        part.divides(tp) for block in architecture.all_blocks for part in (*block.mixers, block.ffn) if part is not None
    )


def shapes(architecture: Architecture) -> Iterator[Layout]:
    """Ways to share every layer: tensor parallelism inside a server of eight; where there are routed experts, also
    copies of the attention that share these (data-parallel attention with expert parallelism)."""
    for tp in (1, 2, 4, 8):
        if divides(architecture, tp):
            yield Layout(tp=tp)
    sparse = any(isinstance(block.ffn, MoE) for block in architecture.blocks)
    for ranks in (2, 4, 8, 16, 32, 64) if sparse else ():
        for tp in (1, 2, 4):
            if tp < ranks and divides(architecture, tp):
                yield Layout(tp=tp, dp=ranks // tp, ep=ranks)
