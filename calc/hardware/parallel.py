from collections.abc import Iterator
from typing import Self

from pydantic import Field

from calc.errors import ConfigError, Frozen, Message, Refusal
from calc.hardware.division import nearest, undivided
from calc.model.architecture import Architecture
from calc.model.feedforward import RankGroups


class Degrees(Frozen):
    """Spread of a model: each layer over tp GPUs (tensor parallel), the layers over pp stages (pipeline), and the
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

    def rank(
        self,
        architecture: Architecture,
        vocab: int | None = None,
        groups: RankGroups | None = None,
        head_rows: int | None = None,
    ) -> Architecture:
        """One rank's part of every layer, with so many rows of the vocabulary, and of a head that its group shares."""
        return architecture.rank(self.tp, self.tp * self.dp // self.ep, self.ep, vocab, groups, head_rows)

    @property
    def slices(self) -> int:
        return max(1, self.tp * self.dp // self.ep)

    def with_degree(self, tp: int) -> Self:
        """The layout over other tensor-parallel ranks; experts stay as spread as they are."""
        return self.model_copy(update={"tp": tp, "ep": max(1, tp * self.dp // self.slices) if self.ep > 1 else 1})

    def undivided(self, architecture: Architecture) -> Message | None:
        """Why the ranks can't share every layer evenly; None where they can."""
        return undivided(architecture, self.tp, self.slices)

    def check(self, architecture: Architecture) -> None:
        """Raise ConfigError where the model can't be divided so."""
        if (message := self.undivided(architecture)) is not None:

            def allowed(tp: int) -> bool:
                return self.with_degree(tp).undivided(architecture) is None

            raise ConfigError(message, "tp", nearest(self.tp, allowed))
        for refusal in self.unspread(architecture):
            raise ConfigError(*refusal)

    def unspread(self, architecture: Architecture) -> Iterator[Refusal]:
        """Why the layers can't be spread over the stages, or the routed experts over the ranks."""
        if self.pp > (layers := architecture.num_layers):
            sentence = Message("pp is {pp:,}, but the model has only {layers:,} layers.", pp=self.pp, layers=layers)
            yield Refusal(sentence, "pp", [layers])
        yield from self.unspread_experts(architecture)

    def unspread_experts(self, architecture: Architecture) -> Iterator[Refusal]:
        """Why the routed experts can't be spread over the ranks."""
        if self.spreads_experts(architecture):
            return
        if not architecture.experts:
            yield Refusal(Message("ep spreads routed experts, which this model does not have."), "ep", [1])
            return
        degrees = (self.model_copy(update={"ep": ep}) for ep in (1, 2, 4, 8, 16, 32, 64, 128, 256))
        possible = [other.ep for other in degrees if other.spreads_experts(architecture)]
        sentence = Message(
            "ep is {ep:,}, which does not share the routed experts over tp times dp, {ranks:,} ranks.",
            ep=self.ep,
            ranks=self.tp * self.dp,
        )
        yield Refusal(sentence, "ep", possible)

    def spreads_experts(self, architecture: Architecture) -> bool:
        """Whether its ranks can share the routed experts evenly; without any, nothing is spread."""
        ranks, experts = self.tp * self.dp, architecture.experts
        if not experts:
            return self.ep == 1
        return ranks % self.ep == 0 and all(
            self.ep <= moe.n_experts and moe.expert.divides(ranks // self.ep) for moe in experts
        )


class Layout(Degrees):
    """Spread of a model by a server; of its tensor-parallel ranks dcp may share the tokens of one cache."""

    dcp: int = Field(
        default=1,
        ge=1,
        le=1024,
        description="Decode context parallel (DCP): tensor-parallel ranks that share a sequence's cached tokens.",
    )


def shapes(architecture: Architecture, node: int = 8) -> Iterator[Layout]:
    """Ways to share every layer: tensor parallelism inside a server; where there are routed experts, also these whole
    on each rank, and copies of the attention that share them (data-parallel attention with expert parallelism)."""
    sparse = bool(architecture.experts)
    for layout in candidates(node, sparse=sparse):
        if layout.undivided(architecture) is None:
            yield layout


def candidates(node: int, *, sparse: bool) -> Iterator[Layout]:
    yield from (Layout(tp=tp) for tp in range(1, node + 1))
    if sparse:
        yield from (Layout(tp=tp, ep=tp) for tp in range(2, node + 1))
        several = ((ranks, tp) for ranks in (2, 4, 8, 16, 32, 64) for tp in (1, 2, 4) if tp < ranks)
        yield from (Layout(tp=tp, dp=ranks // tp, ep=ranks) for ranks, tp in several)
