from collections.abc import Iterator, Mapping
from typing import Any, Self

from calc.attention import Mixer
from calc.feedforward import FeedForward, MoE
from calc.frozen import Frozen
from calc.names import Names
from calc.tensor import Apart, Component, Shape, Shapes, Tensor
from calc.vision import VisionTower


class Block(Frozen):
    """Equal decoder layers: one mixer and one feed-forward, with their norms."""

    layers: tuple[int, ...]  # indices
    mixer: Mixer
    ffn: FeedForward
    norms: tuple[str, ...]  # names; each holds hidden_size weights
    norm_bias: bool = False


class PredictionModule(Frozen):
    """Multi-token prediction, DeepSeek-V3 section 2.2: one more layer, with its own embedding and head.

    The model answers without it; it is listed apart.
    """

    block: Block
    norms: tuple[str, ...]
    projection: str
    embedding: str
    head: str

    def own_shapes(self, hidden: int, vocab: int) -> Shapes:
        """What it holds beside the layer: norms, the projection of [state; next embedding], embedding and head."""
        norms: Shapes = {f"{name}.weight": (hidden,) for name in self.norms}
        return norms | {
            f"{self.projection}.weight": (hidden, 2 * hidden),
            f"{self.embedding}.weight": (vocab, hidden),
            f"{self.head}.weight": (vocab, hidden),
        }


class Parameters(Frozen):
    """Counts of unique parameters."""

    total: int
    active: int
    components: dict[Component, int]
    not_in_total: dict[Apart, int]


class Architecture(Frozen):
    """A decoder language model: embedding, blocks, head. `tensors()` is the one list that every number is read off."""

    model_type: str
    hidden: int
    vocab: int
    tied: bool
    blocks: tuple[Block, ...]
    names: Names = Names()
    positions: int = 0  # rows of a learned position table
    max_positions: int | None = None  # tokens that the model was made for
    prediction: tuple[PredictionModule, ...] = ()
    vision: VisionTower | None = None
    assumptions: tuple[str, ...] = ()

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "Architecture":
        """Read a `config.json`-shaped dict. Raises ConfigError with a sentence when it can't be read."""
        from calc.families import read  # the table of families builds Architectures

        return read(config)

    @property
    def num_layers(self) -> int:
        return sum(len(block.layers) for block in self.blocks)

    def tensors(self) -> tuple[Tensor, ...]:
        """Every weight of the checkpoint by name and shape; those listed apart say why in `apart`."""
        return tuple(self._all_tensors())

    def parameters(self) -> Parameters:
        components: dict[Component, int] = {}
        apart: dict[Apart, int] = {"persistent_buffers": 0, "multi_token_prediction": 0, "vision": 0}
        active = 0
        for tensor in self.tensors():
            if tensor.apart is None:
                components[tensor.component] = components.get(tensor.component, 0) + tensor.parameters
                active += tensor.active
            else:
                apart[tensor.apart] += tensor.parameters
        return Parameters(total=sum(components.values()), active=active, components=components, not_in_total=apart)

    def rank(self, tp: int) -> Self:
        """What one of tp tensor-parallel ranks holds. The vocabulary is divided too, padded to 64 rows as vLLM does."""
        if tp == 1:
            return self
        blocks = tuple(
            block.model_copy(update={"mixer": block.mixer.rank(tp), "ffn": block.ffn.rank(tp)}) for block in self.blocks
        )
        return self.model_copy(update={"blocks": blocks, "vocab": -(-(-(-self.vocab // 64) * 64) // tp)})

    def _all_tensors(self) -> Iterator[Tensor]:
        names, hidden = self.names, self.hidden
        table: Shape = (self.vocab, hidden)
        yield Tensor(f"{names.embedding}.weight", table, "embedding")
        if self.positions:
            yield Tensor(f"{names.positions}.weight", (self.positions, hidden), "embedding")
        for block in self.blocks:
            yield from self._block(block)
        for name, shape in self._norm(names.final_norm, self.blocks[0].norm_bias).items():
            yield Tensor(name, shape, "norms")
        if not self.tied:
            yield Tensor(f"{names.lm_head}.weight", table, "lm_head")
        for module in self.prediction:
            yield from self._block(module.block, "multi_token_prediction")
            prefix, where = names.layer, module.block.layers
            for name, shape in module.own_shapes(hidden, self.vocab).items():
                yield Tensor(f"{prefix}.{name}", shape, "other", where, apart="multi_token_prediction")
        if self.vision is not None:
            for name, shape, copies in self.vision.shapes(hidden):
                yield Tensor(name, shape, "vision", tuple(range(copies)), apart="vision")

    def _norm(self, name: str, bias: bool) -> Shapes:
        weights: Shapes = {f"{name}.weight": (self.hidden,)}
        return weights | {f"{name}.bias": (self.hidden,)} if bias else weights

    def _block(self, block: Block, apart: Apart | None = None) -> Iterator[Tensor]:
        names, hidden, layers = self.names, self.hidden, block.layers
        prefix = names.layer
        for name in block.norms:
            for key, shape in self._norm(name, block.norm_bias).items():
                yield Tensor(f"{prefix}.{key}", shape, "norms", layers, apart=apart)
        for name, shape in names.stored(block.mixer.shapes(hidden)).items():
            yield Tensor(f"{prefix}.{names.attention}.{name}", shape, "attention", layers, apart=apart)
        if isinstance(block.ffn, MoE):
            yield from self._experts(block.ffn, layers, apart)
        else:
            for name, shape in names.stored(block.ffn.shapes(hidden)).items():
                yield Tensor(f"{prefix}.{names.mlp}.{name}", shape, "mlp", layers, apart=apart)

    def _experts(self, moe: MoE, layers: tuple[int, ...], apart: Apart | None) -> Iterator[Tensor]:
        names, hidden = self.names, self.hidden
        prefix = names.layer
        for name, shape in moe.router_shapes(hidden).items():
            yield Tensor(f"{prefix}.{names.router}.{name}", shape, "router", layers, apart=apart)
        if moe.router_correction:
            name = f"{prefix}.{names.router}.e_score_correction_bias"
            yield Tensor(name, (moe.n_experts,), "router", layers, apart=apart or "persistent_buffers")
        one = moe.expert.shapes(hidden)
        routed = names.stored_stack(one, moe.n_experts) if moe.stacked else names.stored(one)
        for name, shape in routed.items():
            where = f"{prefix}.{names.expert}.{name}"
            yield Tensor(where, shape, "experts_routed", layers, moe.n_experts, moe.top_k, apart)
        if moe.shared is not None:
            for name, shape in names.stored(moe.shared.shapes(hidden)).items():
                yield Tensor(f"{prefix}.{names.shared_expert}.{name}", shape, "experts_shared", layers, apart=apart)
            if moe.shared_gate:
                yield Tensor(f"{prefix}.{names.shared_expert_gate}.weight", (1, hidden), "router", layers, apart=apart)
