"""Conventions of a family's checkpoints and code, besides its shapes: names of weights, rules of llama.cpp's converter,
kernels of transformers' modules, and fields that engines need to plan memory."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

from calc.errors import Frozen
from calc.model.feedforward import Stacked
from calc.model.tensor import FixedDtype, Norm, Shapes, joined


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
        """The names, some of them replaced."""
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
        """The weights of one routed expert as the checkpoint writes them."""
        return _written(shapes, self.expert_packed, self.expert_renamed)

    def stored_stack(self, shapes: Shapes, experts: int, how: Stacked) -> Shapes:
        """The weights of all routed experts, stacked in one tensor each, as the checkpoint writes them."""
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


Known70B = Literal["no", "grouped", "always"]
"""Whether a model of 80 layers is known as one of 70 billion parameters: always, or where values are grouped."""


@dataclass(frozen=True)
class GGUFRules:
    """Rules of llama.cpp's converter and of llama-quantize for one family: `calc/families/gguf.toml`."""

    architecture: str | None = None  # `general.architecture`; None: llama.cpp does not read the family
    with_experts: str | None = None  # the same of a model with routed experts, where that is another
    splits_qkv: bool = False  # packed query, key and value lie apart in the file
    splits_gate_up: bool = False  # gate and up of a dense feed-forward lie apart
    packs_experts: bool = False  # gate and up of the experts lie in one tensor
    packs_beta_alpha: bool = False  # the two gates of a gated delta net lie in one tensor
    whole_latent: bool = False  # the up-projection of the latent is one, not of keys and of values
    rope_factors: bool = False  # factors of the rotary frequencies, whatever the scaling
    cut_vocab: tuple[int, ...] = ()  # rows of a padded vocabulary, and those of them that have a token
    native_mxfp4: bool = False  # experts are published in MXFP4 and stay so in every file
    known_70b: Known70B = "no"
    heads_by_layer: bool = False  # KV heads layer by layer in the header: none in layers without attention
    falcon: bool = False  # llama-quantize has rules for this architecture alone

    def is_70b(self, *, grouped: bool) -> bool:
        """Whether a model of 80 layers, with grouped values or without, is known as one of 70 billion."""
        return self.known_70b == "always" or (self.known_70b == "grouped" and grouped)


Rotation = Literal["16_bits", "fp32", "fp32_spread", "fp32_copies"]
"""Rotation of queries and keys: in 16 bits; in fp32 by tables in fp32 (OLMo 2), which ERNIE 4.5 spreads over pairs; or
in fp32 because they are copied to it first (Cohere)."""
Turn = Literal["whole", "halves", "pairs", "complex"]
"""Turn by 90 degrees: as a whole, half of it negated; half by half (gpt-oss) or by pairs of channels (DeepSeek-V3),
joined behind; or as complex numbers in fp32 (DeepSeek-V2)."""
Activation = Literal["one_kernel", "written_out", "relu", "squared", "clamped", "xielu"]
"""Between the matrices of a feed-forward: one kernel; GELU in elementary operations ("gelu_new": GPT-2); relu, which
keeps its output (OPT), or it squared (Nemotron); gate and up clamped before a gate that is written out (gpt-oss); or
xIELU, written out (Apertus)."""
RMSKind = Literal["rms", "rms32", "centred"]
"""RMSNorm as most apply it; applied in fp32 (Gemma, OLMo 2); or with the mean taken off in fp32 too (Cohere)."""
Dropout = Literal["embedding", "scores", "residual"]
"""Places of dropout in training: the first layer's input, attention's scores, or the outputs of attention and
feed-forward."""
Unweighted = Literal["values", "router", "rotated", "embedded"]
"""Inputs of norms without a weight: attention's values; the router's input; queries and keys once they are rotated, or
the first layer's input (nanochat)."""
NormKind = Literal["rms", "rms32", "centred", "layer", "none", "rms_alone"]


class Kernels(Frozen):
    """Details of transformers' modules of one family that change their memory. No shape depends on them, and engines
    with kernels of their own do as they please."""

    norm: RMSKind = "rms"
    rms_alone: bool = False  # a norm without a weight is an RMSNorm, not a LayerNorm: nanochat
    norms_inside: bool = False  # what the last matrices of attention and feed-forward read is normed: BitNet
    fp32_gated_norm: bool = False  # a recurrent layer's norm is multiplied by its weight in fp32: Lara 4 Mini
    rotation: Rotation = "16_bits"
    turn: Turn = "whole"
    joins_rotated: bool = False  # rotated channels are made apart and joined to the rest, and both are held: StableLM
    fp32_softmax: bool = True  # False: eager attention keeps its scores in 16 bits, GPT-2
    activation: Activation = "one_kernel"
    fp32_weights: bool | None = None
    """Whether the router's weights stay in fp32, and so do the outputs that they multiply; None: where a buffer
    balances the experts' load."""
    fp32_router: bool | None = None
    """Whether the router reads an fp32 copy of the states and of its weights; None: where a buffer balances the
    experts' load."""
    casts_router: bool = True  # False: autocast is off as the router scores its states: ERNIE 4.5
    scores_chosen_only: bool = False  # the router's softmax is over the experts that are chosen: gpt-oss
    packs: tuple[tuple[str, ...], ...] | None = None
    """Matrices that the class has as one module; None: those that the checkpoint packs. GTE has gate and up apart,
    Sarvam queries, keys and values."""
    shared_first: bool = False  # what every token passes through is computed before the routed experts: Qwen2-MoE
    passes_all: bool = False  # each token goes through every expert, most weighted by zero: Llama 4
    fp32_logits: bool = False  # the class itself casts the logits to 32 bits, and lets go of them as they were: Mamba
    capped_logits: bool = False  # c·tanh(logits / c) next to the logits, Gemma 2
    residual_states: int = 0  # that a feed-forward which follows attention holds on to without a need: StableLM
    holds_attended: bool = False  # the layer holds what attention gave by a name while the feed-forward runs: GPT-2
    cuts_rotated: bool = False  # rotated channels are cut out and joined to the rest, even where they are all: Phi-3
    slices: bool = False  # queries, keys and values are slices of what one matrix makes, not a split: Phi-3
    positions_by_sequence: bool = False  # learned positions are looked up for each sequence: OPT
    normed_stream: bool = False  # what is added to is the normed state, and both are multiplied: MiniMax-Text
    norms_sums: bool = False  # a norm stands behind the sum with the residual stream: OPT-350m
    fp32_stream: bool = False  # the residual stream is in 32 bits: Mamba
    multiplied: bool = False  # numbers multiply what enters and leaves each block: Falcon-H1
    scales_embedded: bool = False  # the model multiplies what the embedding gives: Granite
    capped_scores: bool = False  # c·tanh(scores / c) in eager attention, Gemma 2
    differential: bool = False  # attention runs twice, on each half of the values: DiffLlama
    parallel: bool = False  # attention and feed-forward read the same state, each by a norm of its own: GPT-NeoX
    norms_unweighted: frozenset[Unweighted] = frozenset()  # what passes a norm that has no weight: Gemma 4
    scaled_layers: bool = False  # a layer's output is multiplied in place by a number of its own: Gemma 4
    dropout: frozenset[Dropout] = frozenset()  # where the class drops elements as it trains by default: GPT-2

    def norm_kind(self, norm: Norm) -> NormKind:
        """Kind of a norm as the family applies it."""
        return self.norm if norm == "rms" else "rms_alone" if norm == "none" and self.rms_alone else norm


class Details(Frozen):
    """Fields of a config that are no shapes and that engines need to plan memory."""

    rope: Literal["plain", "llama3", "longrope", "yarn"] = "plain"
    """Scaling of positions."""
    rope_factors: int = 0
    """Numbers in each of longrope's two lists."""
    normed_weights: bool = True
    """Whether the weights of the chosen experts are divided by their sum."""
