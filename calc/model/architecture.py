from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, Self

from calc.budget import spent
from calc.errors import Frozen, Message
from calc.model.block import Block, Extra, PredictionModule
from calc.model.conventions import Details, GGUFRules, Kernels, Names
from calc.model.feedforward import MoE, RankGroups
from calc.model.tensor import Component, Excluded, Norm, Shape, Shapes, Tensor, norm_shapes
from calc.model.vision import ListedTower


class Parameters(Frozen):
    """Counts of unique parameters."""

    total: int
    active: int
    components: Mapping[Component, int]
    not_in_total: Mapping[Excluded, int]


class Architecture(Frozen):
    """A language model: embedding, blocks, head. `tensors()` is the one list that every number is read off."""

    model_type: str
    hidden: int
    vocab: int
    extra_rows: int = 0  # of the embedding, beyond the vocabulary: Llama 3.2 Vision's image token
    tied: bool
    blocks: tuple[Block, ...]
    shared: tuple[Block, ...] = ()  # stored once and run in several places, with those layers' own blocks
    names: Names = Names()
    groups: RankGroups | None = None  # of a rank, where not all are its tensor-parallel ranks
    head_rows: int | None = None  # of a rank's head where that is divided otherwise than the embedding
    pooled: bool = False  # makes one vector or scores of a text, and no logits of a next token: embedders, rerankers
    positions: int = 0  # rows of a learned position table
    d_positions: int | None = None  # width of that table where it is not hidden_size: ALBERT
    d_embedding: int | None = None  # width of the embedding where it is not hidden_size: OPT-350m
    final_norm: Norm = "rms"
    head_bias: bool = False
    kernels: Kernels = Kernels()
    gguf: GGUFRules = GGUFRules()
    extras: tuple[Extra, ...] = ()
    max_positions: int | None = None  # tokens that the model was made for
    details: Details = Details()
    rotary: tuple[tuple[int, int], ...] = ()  # rows x width of each table of sines and cosines that an engine may keep
    prediction: tuple[PredictionModule, ...] = ()
    vision: ListedTower | None = None
    image_prefix: bool = False  # the tokens of an image see each other, later ones too: Gemma 3 and 4
    assumptions: tuple[Message, ...] = ()

    @staticmethod
    def from_config(config: Mapping[str, Any]) -> "Architecture":
        """The model that a `config.json`-shaped dict describes. Raises ConfigError with a sentence when it can't be
        read."""
        from calc.families import read  # which builds Architectures: the one import that can't stand at the top

        return read(config)

    def __hash__(self) -> int:
        return hash((self.model_type, self.hidden, self.vocab, self.num_layers))

    @property
    def learned_positions(self) -> int | None:
        """Tokens for which there is a learned position; None where positions are computed for any number."""
        return self.max_positions if self.positions else None

    @cached_property
    def num_layers(self) -> int:
        """Layers that run, each time that they do."""
        return sum(len(block.layers) for block in self.blocks)

    @property
    def all_blocks(self) -> tuple[Block, ...]:
        """Blocks of single layers, and those that several layers share."""
        return (*self.blocks, *self.shared)

    @cached_property
    def recurrent(self) -> bool:
        """Whether any layer has a state instead of a cache."""
        return any(block.recurrences for block in self.all_blocks)

    @property
    def attends(self) -> bool:
        """Whether any layer attends to a cache."""
        return any(block.attentions for block in self.all_blocks)

    @cached_property
    def encodes(self) -> bool:
        """Whether tokens see those behind them too: a text passes whole and nothing is kept of it."""
        return any(mixer.sees_ahead for block in self.all_blocks for mixer in block.mixers)

    @property
    def packed_modules(self) -> Collection[tuple[str, ...]]:
        """Matrices that transformers' class has as one module, by local names."""
        return self.names.packed.values() if self.kernels.packs is None else self.kernels.packs

    @property
    def experts(self) -> tuple[MoE, ...]:
        """The feed-forwards with routed experts, of each kind of layer."""
        return tuple(block.moe for block in self.all_blocks if block.moe is not None)

    @property
    def chunk(self) -> int:
        """Tokens that the scan of its recurrent layers takes at once."""
        return max((mixer.chunk for block in self.all_blocks for mixer in block.recurrences), default=1)

    def tensors(self) -> tuple[Tensor, ...]:
        """Every weight of the checkpoint by name and shape; those listed apart say why in `apart`."""
        return self.listed

    @cached_property
    def listed(self) -> tuple[Tensor, ...]:
        types = self.names.types
        if not types:
            return tuple(spent(self._all_tensors()))
        kinds = ((tensor, types.get(tensor.name.rpartition(".")[2])) for tensor in spent(self._all_tensors()))
        return tuple(tensor if kind is None else replace(tensor, dtype=kind) for tensor, kind in kinds)

    def tensors_of(self, block: Block) -> tuple[Tensor, ...]:
        """Weights of one kind of layer."""
        return tuple(spent(self._block(block)))

    def parameters(self) -> Parameters:
        """Counts of unique parameters, by component."""
        return self.counted

    @cached_property
    def counted(self) -> Parameters:
        components: dict[Component, int] = {}
        excluded: dict[Excluded, int] = {"persistent_buffers": 0, "multi_token_prediction": 0, "vision": 0}
        active = 0
        for tensor in self.tensors():
            if tensor.excluded_as is None:
                components[tensor.component] = components.get(tensor.component, 0) + tensor.parameters
                active += tensor.active
            else:
                excluded[tensor.excluded_as] += tensor.parameters
        return Parameters(total=sum(components.values()), active=active, components=components, not_in_total=excluded)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        copied = super().model_copy(update=update, deep=deep)
        for known in ("num_layers", "recurrent", "encodes", "listed", "counted"):
            copied.__dict__.pop(known, None)
        return copied

    def rank(
        self,
        tp: int,
        slices: int | None = None,
        spread: int = 1,
        vocab: int | None = None,
        groups: RankGroups | None = None,
        head_rows: int | None = None,
    ) -> Self:
        """One of tp tensor-parallel ranks; `vocab` rows of the vocabulary, by default an even share of it padded to
        64. Other `groups` of ranks may share dense feed-forwards, shared experts, and the head, of which a rank then
        has so many rows."""
        if tp == spread == 1 and slices in (None, 1):
            return self
        return self.model_copy(
            update={
                "blocks": tuple(block.rank(tp, slices, spread, groups) for block in self.blocks),
                "shared": tuple(block.rank(tp, slices, spread, groups) for block in self.shared),
                "prediction": tuple(
                    module.model_copy(update={"block": module.block.rank(tp, slices, spread, groups)})
                    for module in self.prediction
                ),
                "vocab": vocab or (self.vocab if tp == 1 else -(-(-(-self.vocab // 64) * 64) // tp)),
                "groups": groups,
                "head_rows": head_rows,
            }
        )

    def _all_tensors(self) -> Iterator[Tensor]:
        names, hidden, head_rows = self.names, self.hidden, self.head_rows or self.vocab
        table: Shape = (self.vocab, self.d_embedding or hidden)
        yield Tensor(names.table, (self.vocab + self.extra_rows, table[1]), "embedding")
        if self.positions:
            rows: Shape = (self.positions, self.d_positions or hidden)
            yield Tensor(names.full(names.positions, "weight"), rows, "embedding")
        for block in self.all_blocks:
            yield from self._block(block)
        for name, shape in norm_shapes(names.full(names.final_norm), self.final_norm, hidden).items():
            yield Tensor(name, shape, "norms")
        for extra in self.extras:
            why, before = extra.excluded_as, extra.before_layers
            yield Tensor(extra.name, extra.shape, extra.component, excluded_as=why, before_layers=before)
        if not self.tied and not self.pooled:
            yield Tensor(f"{names.lm_head}.weight", (head_rows, table[1]), "lm_head")
        if self.head_bias and not self.pooled:
            yield Tensor(f"{names.lm_head}.bias", (head_rows,), "lm_head")
        for module in self.prediction:
            block = module.block
            yield from self._block(block, "multi_token_prediction")
            path = module.path or block.stack or names.within()
            for name, shape in module.own_shapes(hidden, self.vocab, head_rows).items():
                yield Tensor(
                    f"{path}.{name}",
                    shape,
                    "mlp" if module.linear and len(shape) == 2 else "other",
                    block.layers,
                    excluded_as="multi_token_prediction",
                    begins=block.begins,
                )
        if self.vision is not None:
            for name, shape, copies in self.vision.shapes(hidden):
                yield Tensor(name, shape, "vision", tuple(range(copies)), excluded_as="vision")
            for name, shape, copies in self.vision.buffers:
                yield Tensor(name, shape, "vision", tuple(range(copies)), excluded_as="persistent_buffers")

    def _block(self, block: Block, excluded_as: Excluded | None = None) -> Iterator[Tensor]:
        names, hidden, layers = self.names, self.hidden, block.layers
        if block.stack:
            within = self.model_copy(update={"names": names.but(module="", layer=block.stack)})
            alone = block.model_copy(update={"stack": ""})
            yield from (replace(tensor, begins=block.begins) for tensor in within._block(alone, excluded_as))
            return
        for name in block.norms:
            for key, shape in norm_shapes(name, block.norm, hidden).items():
                yield Tensor(names.within(block.path, key), shape, "norms", layers, excluded_as=excluded_as)
        for i, mixer in enumerate(block.mixers):
            path = mixer.path(names, i)
            for name, shape in names.stored(mixer.shapes(hidden)).items():
                rows, shape = (shape[0], shape[1:]) if "{expert}" in name else (1, shape)
                where = names.within(block.path, path, name)
                yield Tensor(where, shape, mixer.component, layers, rows, rows, excluded_as)
        if block.moe is not None:
            yield from self._experts(block.moe, layers, excluded_as)
        elif block.dense is not None:
            for name, shape in names.stored(block.dense.shapes(hidden)).items():
                yield Tensor(names.within(names.mlp, name), shape, "mlp", layers, excluded_as=excluded_as)
        for extra in block.extras:
            where, why = names.within(extra.name), excluded_as or extra.excluded_as
            yield Tensor(where, extra.shape, extra.component, layers, extra.experts, extra.top_k, why)

    def _experts(self, moe: MoE, layers: tuple[int, ...], excluded_as: Excluded | None) -> Iterator[Tensor]:
        names, hidden, local_experts = self.names, self.hidden, moe.local_experts or moe.n_experts

        def module(path: str, shapes: Shapes, component: Component) -> Iterator[Tensor]:
            for name, shape in shapes.items():
                yield Tensor(names.within(path, name), shape, component, layers, excluded_as=excluded_as)

        yield from module(names.router, moe.router_shapes(hidden), "router")
        if moe.router_correction != "none":
            why = excluded_as or ("persistent_buffers" if moe.router_correction == "buffer" else None)
            where = names.within(names.correction)
            yield Tensor(where, moe.correction_shape(), "router", layers, excluded_as=why, dtype="fp32")
        expert = moe.expert_shapes(hidden)
        if moe.stacked == "no":
            routed = names.stored_expert(expert)
        else:
            routed = names.stored_stack(expert, local_experts, moe.stacked)
        for name, shape in routed.items():
            where = names.within(names.expert, name)
            yield Tensor(where, shape, "experts_routed", layers, local_experts, moe.top_k, excluded_as)
        if moe.image_expert is not None:
            for name, shape in names.stored_expert(moe.image_expert.shapes(hidden)).items():
                where = names.within(names.expert, name)
                yield Tensor(where, shape, "experts_routed", layers, local_experts, 0, excluded_as, first=moe.n_experts)
        yield from module(names.latent or names.mlp, names.stored(moe.latent_shapes(hidden)), "other")
        if moe.shared is not None:
            yield from module(names.shared_expert, names.stored(moe.shared.shapes(hidden)), "experts_shared")
        if moe.shared_gate:
            yield from module(names.shared_expert_gate, {"weight": (1, hidden)}, "router")
        if moe.parallel_mlp is not None:
            yield from module(names.mlp, names.stored(moe.parallel_mlp.shapes(hidden)), "mlp")
