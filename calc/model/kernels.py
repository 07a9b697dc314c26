from typing import Literal

from calc.errors import Frozen
from calc.model.tensor import Norm

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
    parts_gate: bool = False  # gate and up are two modules, though the checkpoint packs them: GTE
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
