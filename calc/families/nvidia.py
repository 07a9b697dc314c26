"""NVIDIA's families: Nemotron and Cosmos."""

from collections.abc import Sequence
from dataclasses import replace

from calc.errors import ConfigError, Message
from calc.families.attention_rows import Attention, Either
from calc.families.family import LOOPED, MTP, TWO_NORMS, Family, Weights, extras, looped
from calc.families.feedforward_rows import Dense, Experts
from calc.families.fields import MAX_LAYERS, Fields, LayerRule, unknown_word
from calc.families.mamba import MAMBA_NAMES
from calc.families.recurrent_rows import MAMBA2
from calc.families.rotary import Rotary
from calc.model.block import Block
from calc.model.conventions import Kernels, Names
from calc.model.feedforward import MLP, FeedForward
from calc.model.mixers import Mixer

SQUARED = Kernels(activation="squared")

# Nemotron-H and 3: each layer is a mixer or a feed-forward

NEMOTRON_KINDS = ["mamba", "moe", "attention", "mlp"]
"""The class's default."""
LETTERS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
WORDS = {"linear_attention": "mamba", "full_attention": "attention", **{word: word for word in NEMOTRON_KINDS}}
NEMOTRON_ATTENTION = Either(
    lambda c, layer: bool(c.maybe("attention_head_dim")), Attention(head_dim="attention_head_dim"), Attention()
)
NEMOTRON_MAMBA = MAMBA2.but(n_heads="mamba_num_heads", d_head="mamba_head_dim", d_state="ssm_state_size")
NEMOTRON_MLP = Dense(gated=False)
NEMOTRON_EXPERTS = Experts(
    "n_routed_experts",
    gated=False,
    shared_width="moe_shared_expert_intermediate_size",
    shared_bias="mlp_bias",
    correction="buffer",
    latent="moe_latent_size",
    latent_bias="mlp_bias",
)


def nemotron_layers(c: Fields) -> int:
    """`num_hidden_layers` is ignored where the layers are listed, and where nothing is: then there are four."""
    listed = c.get("layers_block_type")
    if isinstance(listed, list) and listed:
        return len(listed)
    letters = c.get("hybrid_override_pattern")
    if isinstance(letters, str):
        return c.maybe("num_hidden_layers") or max(1, min(len(letters), MAX_LAYERS))
    return len(NEMOTRON_KINDS)


def nemotron_kinds(c: Fields) -> list[str]:
    """Kind of each layer: letters in `hybrid_override_pattern`, or words."""
    layers, letters = nemotron_layers(c), c.get("hybrid_override_pattern")
    if isinstance(letters, str):
        if len(letters) != layers or not set(letters) <= set(LETTERS):
            sentence = "hybrid_override_pattern must have one of the letters M * - E for each of {layers:,} layers."
            raise ConfigError(Message(sentence, layers=layers), "hybrid_override_pattern")
        return [LETTERS[letter] for letter in letters]
    listed = c.per_layer("layers_block_type", layers, tuple(WORDS)) or NEMOTRON_KINDS
    return [WORDS[word] for word in listed]


def nemotron_mixer(c: Fields, layer: int) -> Mixer | None:
    """Attention or Mamba-2; None in a layer that is a feed-forward."""
    what = c.once(nemotron_kinds, lambda: nemotron_kinds(c))[layer]
    if what == "attention":
        return NEMOTRON_ATTENTION(c, layer)
    return NEMOTRON_MAMBA(c) if what == "mamba" else None


def nemotron_ffn(c: Fields, layer: int) -> FeedForward | None:
    """Feed-forward; None in a layer that is a mixer."""
    what = c.once(nemotron_kinds, lambda: nemotron_kinds(c))[layer]
    if what == "mlp":
        return NEMOTRON_MLP(c)
    return NEMOTRON_EXPERTS.experts(c) if what == "moe" else None


# Nemotron-NAS: each layer has widths of its own


def nas_part(c: Fields, layer: int, part: str) -> Fields:
    """The attention or the ffn of one layer in `block_configs`."""
    blocks, layers = c.get("block_configs"), c.size("num_hidden_layers")
    if not isinstance(blocks, list) or len(blocks) != layers:
        message = Message("block_configs must list the {layers:,} layers of the model.", layers=layers)
        raise ConfigError(message, "block_configs")
    fields = blocks[layer].get(part) if isinstance(blocks[layer], dict) else None
    if not isinstance(fields, dict):
        message = Message("block_configs does not say the {part} of layer {layer:,}.", part=part, layer=layer)
        raise ConfigError(message, "block_configs")
    return c.within(fields)


def nas_mixer(c: Fields, layer: int) -> Mixer | None:
    """Attention with its own number of KV heads; None where a layer has none. Raises ConfigError."""
    part = nas_part(c, layer, "attention")
    if part.flag("no_op") or part.flag("replace_with_linear"):
        return None
    n_q, group = c.size("num_attention_heads"), part.size("n_heads_in_group")
    if n_q % group:
        message = Message("n_heads_in_group is {group:,}, which does not divide {n_q:,} heads.", group=group, n_q=n_q)
        raise ConfigError(message, "block_configs")
    return Attention(bias="attention_bias")(c.with_stated("num_key_value_heads", n_q // group), layer)


def nas_ffn(c: Fields, layer: int) -> FeedForward | None:
    """Feed-forward of its own width, in steps of 256; None where a layer has none."""
    part = nas_part(c, layer, "ffn")
    if part.flag("no_op") or part.flag("replace_with_linear"):
        return None
    width = int(2 * part.real("ffn_mult") * c.size("hidden_size") / 3)
    return MLP(intermediate=-(-width // 256) * 256, bias=c.flag("mlp_bias"))


def nas_norms(c: Fields, layer: int) -> tuple[str, ...]:
    parts = zip(("attention", "ffn"), TWO_NORMS, strict=True)
    return tuple(norm for part, norm in parts if not nas_part(c, layer, part).flag("no_op"))


def is_linear(part: str) -> LayerRule:
    """Whether one matrix stands for a part of the layer."""
    return lambda c, layer: nas_part(c, layer, part).flag("replace_with_linear")


# Dory: nGPT, arXiv:2410.01131, whose middle layers run several times; in checkpoints a layer is attention or a
# feed-forward, of which transformers takes two for one

DORY_CACHES = ("per_loop", "last_loop")
"""Passes that keep a cache: each its own; or the last, which the others read and do not write."""
DORY_ATTENTION = Attention(bias="attention_bias", gate="channels")


def dory_kinds(c: Fields) -> Sequence[str]:
    """Kind of each layer of a checkpoint."""
    layers = c.size("num_hidden_layers")
    listed = c.per_layer("layer_types", layers, ("full_attention", "sliding_attention", "mlp"))
    if listed and "mlp" in listed:
        return listed
    pairs = listed or ["sliding_attention" if (i + 1) % 4 else "full_attention" for i in range(layers)]
    return [kind for attention in pairs for kind in (attention, "mlp")]


def dory_loop(c: Fields) -> tuple[int, int, int, int]:
    """Layers of the checkpoint, the first that runs several times, the one behind the last, and how often they run."""
    layers, stated = len(c.once(dory_kinds, lambda: dory_kinds(c))), c.size("num_hidden_layers")
    first, behind = (c.size(f"n_{name}_layers", 0) for name in ("input", "output"))
    if first + behind > stated:
        sentence = (
            "n_input_layers {first:,} and n_output_layers {behind:,} together are more than num_hidden_layers "
            "{stated:,}; they must be at most as many."
        )
        message = Message(sentence, first=first, behind=behind, stated=stated)
        raise ConfigError(message, "n_output_layers", [max(0, stated - first)])
    halves = layers // stated
    return layers, halves * first, layers - halves * behind, c.size("n_recurrent_loops")


def dory_runs(c: Fields) -> int:
    layers, first, end, loops = dory_loop(c)
    return layers + (loops - 1) * (end - first)


def dory_recurrent(c: Fields) -> int:
    """Layers that run several times, as a config counts them."""
    return c.size("num_hidden_layers") - c.size("n_input_layers", 0) - c.size("n_output_layers", 0)


def dory_shared(c: Fields) -> tuple[Block, ...]:
    """Every layer of a checkpoint, with the places where it runs. Raises ConfigError."""
    mode = c.get("recurrent_kv_cache_mode")
    if mode not in DORY_CACHES:
        raise unknown_word(mode, DORY_CACHES, "recurrent_kv_cache_mode")
    kinds, hidden = c.once(dory_kinds, lambda: dory_kinds(c)), c.size("hidden_size")

    def block(i: int) -> Block:
        attends = kinds[i] != "mlp"
        if attends:
            attention = DORY_ATTENTION(c, i)
            window = c.maybe("sliding_window") if kinds[i] == "sliding_attention" else None
            scales = {f"mixer.{name}": (attention.n_q * attention.d_head,) for name in ("sqk", "s_gate")}
            own = extras("attention", scales) + extras("other", {"attn_alpha": (hidden,)})
        else:
            scales = {f"mixer.{name}": (c.size("intermediate_size"),) for name in ("suv_gate", "suv_up")}
            own = extras("mlp", scales) + extras("other", {"mlp_alpha": (hidden,)})
        return Block(
            layers=(i,),
            mixers=(attention.model_copy(update={"window": window}),) if attends else (),
            ffn=None if attends else Dense()(c, i),
            norms=(),
            norm="none",
            extras=own,
            stack="backbone.layers.{layer}",
        )

    layers, first, end, loops = dory_loop(c)
    return looped(layers, first, end, loops, block, last_cached=mode == "last_loop")


SQUARE = ("hidden_size", "hidden_size")
NVIDIA: dict[str, Family] = {
    "nemotron": Family(ffn=Dense(gated=False), norm="layer", kernels=SQUARED, rotary=Rotary(share=0.5)),
    "nemotron_h": Family(
        mixer=nemotron_mixer,
        ffn=nemotron_ffn,
        count=nemotron_layers,
        ties=False,
        norms=("norm",),
        names=MAMBA_NAMES,
        rotary=None,
        prediction=MTP(  # an attention layer and one with experts for each further token
            NEMOTRON_ATTENTION,
            NEMOTRON_EXPERTS,
            layer_norms=("norm", "moe_norm"),
            norms=("enorm", "hnorm", "final_layernorm"),
            layer="mtp.layers.{layer}",
            after=nemotron_layers,
        ),
        kernels=Kernels(norm="rms32", activation="squared", fp32_logits=True),
    ),
    "nemotron-nas": Family(
        mixer=nas_mixer,
        ffn=nas_ffn,
        norms=nas_norms,
        layer_extras=(
            Weights("attention", {"self_attn.linear_attn.weight": SQUARE}, layers=is_linear("attention")),
            Weights("mlp", {"mlp.linear_mlp.weight": SQUARE}, layers=is_linear("ffn")),
        ),
    ),
    "dory": replace(
        LOOPED,
        norm="none",
        final_norm="none",
        count=dory_runs,
        shared=dory_shared,
        names=Names(module="backbone", embedding="embeddings", attention="mixer", mlp="mixer"),
        extras=(Weights("lm_head", {"lm_head.logit_scale": ("vocab_size",)}),),
        follows={"n_recurrent_layers": dory_recurrent},
    ),
    "cosmos3_edge_text": Family(
        ffn=Dense(gated=False),
        ties=False,
        kernels=SQUARED,
        names=Names(module="", renamed={"q_proj": "to_q", "k_proj": "to_k", "v_proj": "to_v", "o_proj": "to_out"}),
    ),
}
