"""The model as a drawing shows it: layers that are alike, their modules in the order of the data, and the matrices of
each, read off the list of tensors."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from calc.model.architecture import Architecture
from calc.model.block import Block
from calc.model.mixers import Mixer
from calc.model.tensor import Component, Excluded, Tensor

MIXING: tuple[Component, ...] = ("attention", "ssm_linear")
FEEDING: tuple[Component, ...] = ("router", "experts_routed", "experts_shared", "mlp", "other")
WRITES = re.compile(
    r"\.(o_proj|out_proj|down_proj|c_proj|dense|dense_4h_to_h|wo|wo_b|w2|fc2|fc_out|linear_out|output_linear)(\.weight)?$"
)
"""Names of the matrix that a module ends with."""


@dataclass(frozen=True)
class ModelPart:
    """Tensors of one component, of one layer or outside of the layers."""

    component: Component
    tensors: tuple[Tensor, ...]

    @property
    def parameters(self) -> int:
        return sum(tensor.layer_numel for tensor in self.tensors)

    def stages(self, hidden: int) -> tuple[tuple[Tensor, ...], ...]:
        """Matrices as the data meets them: those that read the hidden state, those between, the one that writes it.
        Vectors (norms, biases) are drawn nowhere."""
        matrices = [tensor for tensor in self.tensors if len(self.expert_shape(tensor)) > 1]
        if len(matrices) < 2 or self.component == "router":
            return (tuple(matrices),) if matrices else ()
        last = next((tensor for tensor in matrices if WRITES.search(tensor.name)), matrices[-1])
        others = [tensor for tensor in matrices if tensor is not last]
        first = tuple(tensor for tensor in others if hidden in self.expert_shape(tensor)) or tuple(others)
        between = tuple(tensor for tensor in others if tensor not in first)
        return tuple(stage for stage in (first, between, (last,)) if stage)

    @staticmethod
    def expert_shape(tensor: Tensor) -> tuple[int, ...]:
        """The shape of one expert's, where all are stored as one tensor."""
        return tensor.shape[1:] if tensor.stacked > 1 and tensor.shape[:1] == (tensor.experts,) else tensor.shape


@dataclass(frozen=True)
class LayerKind:
    """Layers that are alike."""

    block: Block
    mixers: tuple[ModelPart, ...]
    feeding: tuple[ModelPart, ...]
    norms: ModelPart | None
    parallel: bool
    """Whether mixer and feed-forward read the same state (GPT-J, Cohere) instead of one after the other."""

    @property
    def shared(self) -> bool:
        """Whether its weights are stored once and run in several places: Zamba."""
        return len(self.block.runs_in) > len(self.block.layers)

    @property
    def modules(self) -> Iterator[ModelPart]:
        """All of them, in the order of the data."""
        yield from (() if self.norms is None else (self.norms,))
        yield from self.mixers
        yield from self.feeding

    @property
    def norms_before(self) -> bool:
        """Whether what is added to the state is made of a normed copy of it."""
        return self.norms is not None and self.block.norms_first

    @property
    def norms_behind(self) -> bool:
        """Whether it is normed before it is added: Gemma 2, OLMo 2."""
        return self.norms is not None and (len(self.block.norms) == 4 or not self.block.norms_first)

    @property
    def cached(self) -> tuple[tuple[Mixer, int], ...]:
        """Elements that each mixer caches of a token, those that cache any."""
        return tuple((mixer, mixer.cached_elements()) for mixer in self.block.mixers if mixer.cached_elements())


@dataclass(frozen=True)
class Diagram:
    embedding: ModelPart
    kinds: tuple[LayerKind, ...]
    """Kinds in the order in which a token first meets them."""
    norm: ModelPart | None
    head: ModelPart | None
    """None where the embedding is the head (tied)."""
    others: tuple[ModelPart, ...]
    """Outside of the layers, of one family alone."""
    aside: tuple[tuple[Excluded, ModelPart], ...]
    """Stored with the model, not in its total."""


def diagram(architecture: Architecture) -> Diagram:
    """A drawing that holds every tensor of a model in one place."""
    outside: dict[Component, list[Tensor]] = {}
    aside: dict[Excluded, list[Tensor]] = {}
    for tensor in architecture.tensors():
        if tensor.excluded_as is not None:
            aside.setdefault(tensor.excluded_as, []).append(tensor)
        elif not tensor.layers:
            outside.setdefault(tensor.component, []).append(tensor)
    modules = {component: ModelPart(component, tuple(members)) for component, members in outside.items()}
    blocks = sorted(architecture.all_blocks, key=lambda block: block.runs_in[0])
    placed = ("embedding", "norms", "lm_head")
    return Diagram(
        embedding=modules["embedding"],
        kinds=tuple(layer_kind(architecture, block) for block in blocks),
        norm=modules.get("norms"),
        head=modules.get("lm_head"),
        others=tuple(module for component, module in modules.items() if component not in placed),
        aside=tuple((why, ModelPart(members[0].component, tuple(members))) for why, members in aside.items()),
    )


def layer_kind(architecture: Architecture, block: Block) -> LayerKind:
    of: dict[Component, list[Tensor]] = {}
    for tensor in architecture.tensors_of(block):
        if tensor.excluded_as is None:
            of.setdefault(tensor.component, []).append(tensor)

    def chosen(components: tuple[Component, ...]) -> tuple[ModelPart, ...]:
        return tuple(ModelPart(component, tuple(of[component])) for component in components if component in of)

    return LayerKind(
        block=block,
        mixers=chosen(MIXING),
        feeding=chosen(FEEDING),
        norms=next(iter(chosen(("norms",))), None),
        parallel=bool(block.mixers)
        and block.ffn is not None
        and (len(block.norms) == 1 or architecture.kernels.parallel),
    )
