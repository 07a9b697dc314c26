from collections.abc import Mapping
from typing import Any, Self

from calc.errors import Frozen
from calc.model.feedforward import Stacked
from calc.model.tensor import FixedDtype, Shapes, joined


class Names(Frozen):
    """Names of each part in a family's checkpoints. The defaults are Llama's, which most families share.

    Local names (`q_proj.weight`) come from the formulas; `packed`, `renamed` and the two flags say how the checkpoint
    writes them down.
    """

    module: str = "model"  # that embeddings, layers and last norm lie in; empty: in none
    embedding: str = "embed_tokens"
    positions: str = "embed_positions"
    layer: str = "layers.{layer}"
    attention: str = "self_attn"  # {mixer} numbers them where a layer has several
    cross: str = "cross_attn"
    recurrent: str = "linear_attn"
    mlp: str = "mlp"
    router: str = "mlp.gate"
    correction: str = "mlp.gate.e_score_correction_bias"
    expert: str = "mlp.experts.{expert}"
    latent: str | None = None  # projections around the routed experts; None: in `mlp`
    shared_expert: str = "mlp.shared_experts"
    shared_expert_gate: str = "mlp.shared_expert_gate"
    final_norm: str = "norm"
    lm_head: str = "lm_head"
    packed: Mapping[str, tuple[str, ...]] = {}  # one tensor in the file for several: qkv_proj of q_proj, k_proj, v_proj
    renamed: Mapping[str, str] = {}  # other words for the same tensor: w1 for gate_proj; {expert} numbers its rows
    expert_packed: Mapping[str, tuple[str, ...]] = {}  # the same for routed experts, often under names of their own
    expert_renamed: Mapping[str, str] = {}
    transposed: bool = False  # matrices as [in, out], as GPT-2's Conv1D has them
    fp8_scale_bits: int | None = None  # of a block of fp8, where it is not an fp32 number: DeepSeek-V4
    types: Mapping[str, FixedDtype] = {}  # last part of a name -> the type that it is always stored in

    def but(self, **names: Any) -> Self:
        return self.model_copy(update=names)

    @property
    def table(self) -> str:
        """Full name of the embedding's weight."""
        return self.full(self.embedding, "weight")

    def full(self, *path: str) -> str:
        """The full name of something in the module; empty parts of the path vanish."""
        return ".".join(filter(None, (self.module, *path)))

    def within(self, *path: str) -> str:
        """The full name of something in a layer."""
        return self.full(self.layer, *path)

    def stored(self, shapes: Shapes) -> Shapes:
        """The weights of one module as the checkpoint writes them."""
        plain = _written(shapes, self.packed, self.renamed)
        return {name: shape[::-1] for name, shape in plain.items()} if self.transposed else plain

    def stored_expert(self, shapes: Shapes) -> Shapes:
        return _written(shapes, self.expert_packed, self.expert_renamed)

    def stored_stack(self, shapes: Shapes, experts: int, how: Stacked) -> Shapes:
        stack: Shapes = {}
        for name, shape in self.stored_expert(shapes).items():
            module, _, leaf = name.rpartition(".")
            bare = module if leaf == "weight" else f"{module}_bias"
            turned = shape[::-1] if how.endswith("in_out") else shape
            stack[name if how.startswith("module") else bare] = (experts, *turned)
        return stack


def _written(shapes: Shapes, packed: Mapping[str, tuple[str, ...]], renamed: Mapping[str, str]) -> Shapes:
    for whole, parts in packed.items():
        shapes = joined(shapes, parts, whole)
    written: Shapes = {}
    for name, shape in shapes.items():
        module, _, leaf = name.rpartition(".")
        written[f"{renamed.get(module, module)}.{leaf}" if module else renamed.get(leaf, leaf)] = shape
    return written
