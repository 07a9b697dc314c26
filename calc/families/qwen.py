"""Alibaba's families: Qwen."""

from dataclasses import replace
from itertools import chain, count, islice
from math import isqrt

from calc.errors import ConfigError, Message
from calc.families.attention_rows import Attention, Every, Hybrid, Sliding, Window
from calc.families.family import GPT_NAMES, MTP, PACKED_QKV, STACKED_EXPERTS, Family, Weights, extras
from calc.families.feedforward_rows import Dense, Experts, FeedForwardOf, Half
from calc.families.fields import Fields, ShapeOf, number, stated_or
from calc.families.recurrent_rows import DELTA_NET
from calc.families.rotary import Rotary
from calc.model.attention import GQA, BlockIndexer
from calc.model.block import Extra
from calc.model.conventions import Kernels, Names
from calc.model.linear_attention import GatedDeltaNet
from calc.model.tensor import Shape

THREE_AXES = Rotary(axes=3)
QWEN2_ATTENTION = Attention(qkv_bias=True, window=Sliding(after="max_window_layers", when="use_sliding_window"))
QWEN3_ATTENTION = Attention(bias="attention_bias", qk_norm="head")


def qwen_sparse(c: Fields, layer: int) -> bool:
    """Experts in every `decoder_sparse_step`-th layer but those listed as dense."""
    step = c.size("decoder_sparse_step")
    return layer not in c.indices("mlp_only_layers") and c.size("num_experts", 0) > 0 and (layer + 1) % step == 0


def has_bias(c: Fields) -> bool:
    return not c.flag("no_bias")


QWEN2_EXPERTS = Experts(shared_width="shared_expert_intermediate_size", shared_gate=True, sparse=qwen_sparse)
QWEN3_EXPERTS = Experts(sparse=qwen_sparse)
QWEN35_EXPERTS = replace(QWEN2_EXPERTS, sparse=None)
GATED_ATTENTION = Attention(bias="attention_bias", qk_norm="head", gated=True)
CONVS = ("q_conv1d", "k_conv1d", "v_conv1d")
QWEN35_NAMES = Names(
    shared_expert="mlp.shared_expert",
    packed={"in_proj_qkv": ("in_q", "in_k", "in_v"), "conv1d": CONVS},
    renamed={"in_z": "in_proj_z", "in_b": "in_proj_b", "in_a": "in_proj_a"},
)


def qwen_mtp(ffn: FeedForwardOf) -> MTP:
    """Further layers with full attention, under names of their own."""
    return MTP(
        GATED_ATTENTION,
        ffn,
        "mtp_num_hidden_layers",
        norms=("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"),
        projection=("fc",),
        layer="mtp.layers.{layer}",
        path="mtp",
    )


QWEN35 = Family(  # the published configs ask for an fp32 state (`mamba_ssm_dtype`)
    mixer=Hybrid(GATED_ATTENTION, DELTA_NET.but(fp32_state=True), Every("full_attention_interval")),
    names=QWEN35_NAMES,
    rotary=Rotary(share=0.25, axes=3),
    kernels=Kernels(norm="rms32"),
    prediction=qwen_mtp(Dense()),
)

# Qwen4-Exp: hyper-connections, and hashed n-grams embedded in some layers


def qwen4_attention(c: Fields, layer: int) -> GQA:
    """Attends to blocks that an indexer picks."""
    n_index = c.maybe("indexer_n_heads")
    if n_index is None:
        return GATED_ATTENTION(c, layer)
    d_index, pool = c.size("indexer_head_dim"), c.size("indexer_compress_ratio")
    return c.once(
        "qwen4 attention",
        lambda: GATED_ATTENTION(c).model_copy(
            update={"indexer": BlockIndexer(n_index=n_index, d_index=d_index, pool=pool, position_axes=3)}
        ),
    )


def embeds_ngrams(c: Fields, layer: int) -> bool:
    """Whether a layer embeds n-grams; layers are counted from 1."""
    return layer + 1 in c.indices("ple_layer_ids")


def qwen4_delta(c: Fields, layer: int) -> GatedDeltaNet:
    """Layers that embed n-grams remember them too."""
    delta = DELTA_NET(c, layer)
    if not embeds_ngrams(c, layer):
        return delta
    back = c.size("ngram_size")
    memory = {"ngram_columns": (c.size("ple_conv_kernel_size") - 1) * back, "ngram_tokens": back - 1}
    return delta.model_copy(update={"ngram_channels": all_streams(c), **memory})


def all_streams(c: Fields) -> int:
    """Width of the residual streams, joined."""
    return c.size("hc_count") * c.size("hidden_size")


def mixing(path: str) -> dict[str, ShapeOf]:
    """Low-rank matrices that mix the residual streams into a layer's input."""
    return {
        f"{path}.input_mix_weight_down.weight": ("hc_lowrank", all_streams),
        f"{path}.input_mix_weight_up.weight": (all_streams, "hc_lowrank"),
    }


PLE_WIDTH = stated_or("ple_embed_dim", "hidden_size")
MAX_PRIMES = 256  # the class takes 16 in each layer that has tables, and those are few


def primes(least: int, number: int) -> tuple[int, ...]:
    """The first primes from `least` on."""
    odd = (n for n in count(max(least, 3) | 1, 2) if all(n % d for d in range(3, isqrt(n) + 1, 2)))
    return tuple(islice(chain((2,) if least <= 2 else (), odd), number))


HYPER = ("attn_hyper_connection", "mlp_hyper_connection")
QWEN4_LAYER = (
    Weights("other", {name: shape for path in HYPER for name, shape in mixing(path).items()}),
    Weights("other", {f"{path}.block_inject_weight.weight": ("hc_count", all_streams) for path in HYPER}),
    Weights("norms", {f"{path}.hc_norm.weight": (all_streams,) for path in HYPER}),
    Weights(
        "other",
        {
            "ple.key_proj.weight": (all_streams, PLE_WIDTH),
            "ple.value_proj.weight": ("hidden_size", PLE_WIDTH),
            "ple.conv1d.weight": (all_streams, 1, "ple_conv_kernel_size"),
        },
        layers=embeds_ngrams,
    ),
    Weights(
        "norms",
        {f"ple.norm_{name}.weight": (all_streams,) for name in ("query", "key", "conv")},
        layers=embeds_ngrams,
    ),
)


def ngram_tables(c: Fields, layer: int) -> tuple[Extra, ...]:
    """Each table has rows for the next primes, one a head."""
    if not embeds_ngrams(c, layer):
        return ()
    ids = sorted(c.indices("ple_layer_ids"))
    heads, parts = (c.size("ngram_size") - 1) * c.size("heads_per_ngram"), c.size("split_ngram_parts")
    if len(ids) * heads > MAX_PRIMES:
        sentence = (
            "The n-grams of this config have {tables:,} tables, one a head and layer; {most:,} are the most we read."
        )
        raise ConfigError(Message(sentence, tables=len(ids) * heads, most=MAX_PRIMES), "heads_per_ngram")
    first, base = ids.index(layer + 1) * heads, c.size("ngram_vocab_size_base")
    rows = sum(c.once((primes, base), lambda: primes(base, len(ids) * heads))[first : first + heads])
    divisor, path = c.size("make_ngram_vocab_size_divisible_by"), "ple.ple_embedding"
    part = -(-(-(-rows // divisor) * divisor) // parts)
    shard: Shape = (part, number(c, PLE_WIDTH) // heads)
    buffers: dict[str, Shape] = {f"{path}.layer_multipliers": (c.size("ngram_size"),)}
    buffers |= {f"{path}.ngram_heads_{name}": (heads,) for name in ("offsets", "vocab_sizes")}
    return (
        *extras("embedding", {f"{path}.ngram_embedding.shard_{i}.weight": shard for i in range(parts)}),
        *extras("other", buffers, excluded_as="persistent_buffers"),
    )


QWEN2_VL = Family(mixer=QWEN2_ATTENTION, rotary=THREE_AXES)
QWEN: dict[str, Family] = {
    "qwen": Family(
        mixer=Attention(kv=None, head_dim="kv_channels", qkv_bias=True, out_bias=has_bias),
        ffn=Dense(Half(), has_bias),
        norms=("ln_1", "ln_2"),
        names=GPT_NAMES.but(
            packed={"c_attn": PACKED_QKV},
            renamed={"o_proj": "c_proj", "gate_proj": "w2", "up_proj": "w1", "down_proj": "c_proj"},
        ),
    ),
    "qwen2": Family(mixer=QWEN2_ATTENTION, mixture="qwen2_moe"),
    "qwen2_moe": Family(
        mixer=Attention(
            qkv_bias="qkv_bias", window=Sliding(full_every=2, before="max_window_layers", when="use_sliding_window")
        ),
        ffn=QWEN2_EXPERTS,
        names=Names(shared_expert="mlp.shared_expert"),
        kernels=Kernels(shared_first=True),
    ),
    "qwen2_vl_text": QWEN2_VL,
    "qwen2_5_vl_text": QWEN2_VL,
    "qwen2_5_omni_text": Family(mixer=QWEN2_ATTENTION),
    "qwen3": Family(mixer=replace(QWEN3_ATTENTION, window=QWEN2_ATTENTION.window), mixture="qwen3_moe"),
    "qwen3_moe": Family(mixer=replace(QWEN3_ATTENTION, window=Window(when="use_sliding_window")), ffn=QWEN3_EXPERTS),
    "qwen3_vl_text": Family(mixer=QWEN3_ATTENTION, rotary=THREE_AXES),
    "qwen3_vl_moe_text": Family(
        mixer=replace(QWEN3_ATTENTION, window=Window()),
        ffn=replace(QWEN3_EXPERTS, stacked="in_out"),
        rotary=THREE_AXES,
        names=STACKED_EXPERTS,
    ),
    "qwen3_omni_moe_text": Family(mixer=replace(QWEN3_ATTENTION, window=Window()), ffn=QWEN3_EXPERTS),
    "qwen3_next": Family(
        mixer=Hybrid(GATED_ATTENTION, DELTA_NET, Every("full_attention_interval")),
        ffn=QWEN2_EXPERTS,
        names=Names(
            shared_expert="mlp.shared_expert",
            packed={"in_proj_qkvz": ("in_q", "in_k", "in_v", "in_z"), "in_proj_ba": ("in_b", "in_a"), "conv1d": CONVS},
        ),
        rotary=Rotary(share=0.25),
        kernels=Kernels(norm="rms32", shared_first=True),
        prediction=qwen_mtp(QWEN2_EXPERTS),
    ),
    "qwen3_5_text": QWEN35,
    "qwen4_exp_text": Family(
        mixer=Hybrid(
            qwen4_attention,
            qwen4_delta,
            Every("full_attention_interval"),
            words=("full_attention", "indexed_attention", "linear_attention"),
        ),
        ffn=QWEN35_EXPERTS,
        norms=(),
        final_norm="none",
        names=QWEN35_NAMES.but(
            packed={**QWEN35_NAMES.packed, "indexer.index_qk_proj": ("index_q_proj", "index_k_proj")},
            renamed={**QWEN35_NAMES.renamed}
            | {f"index_{letter}_norm": f"indexer.{letter}_layernorm" for letter in "qk"},
        ),
        kernels=Kernels(norm="rms32"),
        layer_extras=(*QWEN4_LAYER, ngram_tables),
        extras=(
            Weights("other", mixing("model.hyper_connection_mixer")),
            Weights("norms", {"model.hyper_connection_mixer.hc_norm.weight": (all_streams,)}),
        ),
    ),
    "qwen3_5_moe_text": replace(
        QWEN35,
        ffn=QWEN35_EXPERTS,
        prediction=qwen_mtp(QWEN35_EXPERTS),
        kernels=Kernels(norm="rms32", shared_first=True),
    ),
}
