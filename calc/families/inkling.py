"""Thinking Machines' families: Inkling, with learned relative positions and short convolutions next to attention."""

from dataclasses import replace

from calc.errors import ConfigError, Message
from calc.families.attention_rows import Attention, Either, Window
from calc.families.deepseek import DEEPSEEK_V1_EXPERTS
from calc.families.family import GATE_UP, LOOPED, STACKED_EXPERTS, Family, Weights, extras, looped
from calc.families.feedforward_rows import Dense, Experts
from calc.families.fields import Fields, unknown_word
from calc.model.attention import GQA
from calc.model.block import Block, Extra
from calc.model.conventions import Kernels, Names
from calc.model.mixers import Mixer
from calc.model.recurrent import SideConvs
from calc.model.tensor import Shape

INKLING_KINDS = ("hybrid", "hybrid_sliding")
INKLING_FULL = Attention(qk_norm="head")
INKLING_SLIDING = Attention(
    heads="swa_num_attention_heads",
    kv="swa_num_key_value_heads",
    head_dim="swa_head_dim",
    qk_norm="head",
    window=Window("sliding_window_size"),
)


def inkling_slides(c: Fields, layer: int) -> bool:
    """Whether a layer slides: by `layer_types`, the list of local layers, or five of six."""
    kinds = c.per_layer("layer_types", c.size("num_hidden_layers"), INKLING_KINDS)
    if kinds:
        return kinds[layer] == "hybrid_sliding"
    local = c.get("local_layer_ids")
    return bool((layer + 1) % 6) if local is None else layer in c.indices("local_layer_ids")


INKLING_ATTENTION = Either(inkling_slides, INKLING_SLIDING, INKLING_FULL)


def with_convs(c: Fields, attention: GQA) -> tuple[Mixer, ...]:
    """Attention, and the short convolutions over its keys, values and outputs."""
    kv = attention.n_kv * attention.d_head
    return attention, SideConvs(hidden=c.size("hidden_size"), kv=kv, d_conv=c.size("conv_kernel_size"))


INKLING_CLASS = replace(DEEPSEEK_V1_EXPERTS, stacked="out_in", first_dense="dense_mlp_idx")
INKLING_STATED = replace(INKLING_CLASS, width="intermediate_size", dense=Dense("dense_intermediate_size", False))
INKLING_FFN = Either(  # where a width is stated for dense layers, `intermediate_size` is the experts'
    lambda c, layer: c.maybe("dense_intermediate_size") is not None, INKLING_STATED, INKLING_CLASS
)
"""Shared experts stand in the router, too."""


def relative(c: Fields, attention: GQA, vectors: str, table: str) -> dict[str, Shape]:
    """Relative positions: a vector for each head and token, and a table over distances."""
    d_rel = c.size("d_rel")
    shape = (attention.n_q * d_rel, c.size("hidden_size"))
    return {vectors: shape, table: (d_rel, attention.window or c.size("rel_extent"))}


def inkling_relative(c: Fields, layer: int) -> tuple[Extra, ...]:
    names = ("self_attn.r_proj.weight", "self_attn.rel_logits_proj.proj")
    return extras("attention", relative(c, INKLING_ATTENTION(c, layer), *names))


HAS_EXPERTS = INKLING_CLASS.is_sparse
INKLING_LAYER = (  # scales of the feed-forward, the router's rows for shared experts, and its correction
    Weights("mlp", {"mlp.global_scale": (1,)}, layers=lambda c, layer: not HAS_EXPERTS(c, layer)),
    Weights("router", {"mlp.gate.shared.weight": ("n_shared_experts", "hidden_size")}, layers=HAS_EXPERTS),
    Weights("router", {"mlp.gate.global_scale": (1,)}, layers=HAS_EXPERTS),
    Weights(
        "router",
        {"mlp.gate.e_score_correction_bias": ("n_routed_experts",)},
        layers=HAS_EXPERTS,
        excluded_as="persistent_buffers",
    ),
)
GATED_FULL, GATED_SLIDING = (
    replace(attention, qk_norm="none", gate="channels") for attention in (INKLING_FULL, INKLING_SLIDING)
)
INKLING2_ATTENTION = Either(inkling_slides, GATED_SLIDING, GATED_FULL)
INKLING2_EXPERTS = Experts("n_routed_experts", correction="buffer", stacked="out_in")


def inkling2_mixers(c: Fields, layer: int) -> tuple[Mixer, ...]:
    """The convolutions of full layers are dynamic."""
    attention, convs = with_convs(c, INKLING2_ATTENTION(c, layer))
    if not inkling_slides(c, layer):
        convs = convs.model_copy(update={"dynamic": c.size("num_key_value_heads")})
    return attention, convs


def inkling2_norms(c: Fields, layer: int) -> tuple[str, ...]:
    """Full layers have a norm each for queries, keys and values."""
    before = ("attn_norm",) if inkling_slides(c, layer) else ("q_input_norm", "k_input_norm", "v_input_norm")
    return (*before, "mlp_norm")


def inkling2_extras(c: Fields, layer: int) -> tuple[Extra, ...]:
    """Relative positions as in Inkling, limits of queries and of these, and sinks that follow from the token."""
    attention = INKLING2_ATTENTION(c, layer)
    shapes = relative(c, attention, "attn.wr_du.weight", "attn.rel_logits_proj.proj")
    shapes |= {"attn.q_l2_clip.scale": (attention.n_q, attention.d_head)}
    shapes |= {"attn.rel_l2_clip.scale": (attention.n_q, c.size("d_rel"))}
    shapes |= {"attn.attn_sink_proj.weight": (attention.n_q, c.size("hidden_size"))}
    return extras("attention", shapes)


LOOP = {"core_start": "loop_layer_index_start", "core_end": "loop_layer_index_end"}
LOOP |= {"num_passes": "loop_num_passes", "gate_rank": "loop_gate_rank"}
"""Fields of `loop_config`, which the maker's files have -> the class's own, which they go before."""


def with_loop(c: Fields) -> Fields:
    """The config with what `loop_config` states under the class's own names. Raises ConfigError for a field that the
    class reads nothing of."""
    stated = c.section("loop_config").stated
    for name in stated:
        if name not in LOOP:
            raise unknown_word(name, tuple(LOOP), "loop_config")
    return c.once("loop", lambda: c.with_all_stated({LOOP[name]: value for name, value in stated.items()}))


def inkling2_loop(c: Fields) -> tuple[int, int, int]:
    """First layer of the loop, the layer behind it, and its passes. Raises ConfigError for what the class refuses, by
    the names that the config states it under."""
    within, c = c.section("loop_config").stated, with_loop(c)
    start_name, end_name = (f"loop_config.{own}" if own in within else LOOP[own] for own in ("core_start", "core_end"))
    layers, step = c.sizes("num_hidden_layers", "n_layers_per_attn_res_block")
    first, end, passes = c.sizes("loop_layer_index_start", "loop_layer_index_end", "loop_num_passes")
    for name, value in ((start_name, first), (end_name, end)):
        if value % step:
            sentence = "{name} is {value:,}; it must be a multiple of n_layers_per_attn_res_block, {step:,}."
            near = [n for n in (value // step * step, -(-value // step) * step) if 0 < n <= layers]
            raise ConfigError(Message(sentence, name=name, value=value, step=step), name, near)
    if not first < end <= layers:
        sentence = (
            "{start} is {first:,} and {name} {end:,}; the loop must end behind its first layer and within "
            "num_hidden_layers, {layers:,}."
        )
        near = [layers // step * step] if layers // step * step > first else []
        message = Message(sentence, start=start_name, first=first, name=end_name, end=end, layers=layers)
        raise ConfigError(message, end_name, near)
    return first, end, passes


def inkling2_runs(c: Fields) -> int:
    """Layers that run, each time that they do."""
    first, end, passes = inkling2_loop(c)
    return c.size("num_hidden_layers") + (passes - 1) * (end - first)


def inkling2_looped(c: Fields) -> tuple[Block, ...]:
    """Layers, with the gates of those that run again, for what the pass before left."""
    first, end, passes = inkling2_loop(c)
    hidden = c.size("hidden_size")
    rank = with_loop(c).size("loop_gate_rank")
    gate: dict[str, Shape] = {"down": (rank, 2 * hidden), "forget": (hidden, rank), "gain": (hidden, rank)}
    gates = {
        f"controllers.{to}.{name}_weight": shape for to in ("attn", "k", "v", "mlp") for name, shape in gate.items()
    }

    def block(i: int) -> Block:
        repeats = extras("other", gates) if first <= i < end else ()
        return Block(
            layers=(i,),
            mixers=inkling2_mixers(c, i),
            ffn=INKLING2_EXPERTS(c, i),
            norms=inkling2_norms(c, i),
            extras=inkling2_extras(c, i) + repeats,
            stack="model.llm.layers.{layer}",
        )

    return looped(c.size("num_hidden_layers"), first, end, passes, block)


def inkling2_messages(c: Fields) -> tuple[Extra, ...]:
    """Queries with which a layer of the loop reads the pass before: for queries and the feed-forward, for keys and
    values."""
    first, end, _ = inkling2_loop(c)
    shape = 2 * (end - first), c.size("hidden_size")
    names = ("middle_cycle_cross_pass_queries", "middle_cycle_cross_pass_kv_queries")
    return extras("other", {f"model.llm.{name}": shape for name in names})


def inkling2_residuals(c: Fields) -> tuple[Extra, ...]:
    """Attention over the outputs of earlier layers: a query before each part but the very first, three before the
    attention of full layers, and one at the end."""
    layers, hidden, path = c.size("num_hidden_layers"), c.size("hidden_size"), "model.llm.attn_res"
    queries: dict[str, Shape] = {f"{path}.mlp_queries.{i}": (hidden,) for i in range(layers)}
    for i in range(1, layers):
        queries |= {f"{path}.attn_queries.{i - 1}": (hidden,) if inkling_slides(c, i) else (3, hidden)}
    queries |= {f"{path}.output_query": (hidden,)}
    return extras("other", queries) + extras("norms", {"model.llm.embed_norm.weight": (hidden,)}, before_layers=True)


INKLING2 = Family(
    mixer=inkling2_mixers,
    ffn=INKLING2_EXPERTS,
    norms=inkling2_norms,
    layer_extras=(inkling2_extras,),
    extras=(inkling2_residuals,),
    rotary=None,
    ties=False,
    kernels=Kernels(activation="clamped", capped_logits=True),
    names=Names(
        module="model.llm",
        embedding="embed",
        attention="attn",
        recurrent="",
        correction="mlp.gate.bias",
        expert="mlp.experts",
        expert_packed={"w13_weight": GATE_UP},
        expert_renamed={"down_proj": "w2_weight"},
        lm_head="model.llm.unembed",
        renamed={"q_proj": "wq_du", "k_proj": "wk_dv", "v_proj": "wv_dv", "o_proj": "wo_ud"}
        | {"g_proj": "gate_attn"}
        | {f"self_attn.{letter}_sconv{leaf}": f"attn.{letter}_sconv" for letter in "kv" for leaf in ("", ".conv1d")}
        | {f"{part}_sconv.conv1d": f"{part}_sconv" for part in ("attn", "mlp")},
    ),
)

INKLING: dict[str, Family] = {
    "inkling_text": Family(
        mixer=lambda c, layer: with_convs(c, INKLING_ATTENTION(c, layer)),
        ffn=INKLING_FFN,
        layer_extras=(inkling_relative, *INKLING_LAYER),
        extras=(Weights("norms", {"model.embed_tokens.embed_norm.weight": ("hidden_size",)}, before_layers=True),),
        ties=False,
        kernels=Kernels(fp32_weights=True),
        names=STACKED_EXPERTS.but(recurrent=""),
    ),
    "inkling2_text": INKLING2,
    "inkling2_loop_text": replace(
        INKLING2,
        mixer=LOOPED.mixer,
        ffn=LOOPED.ffn,
        norms=(),
        layer_extras=(),
        count=inkling2_runs,
        shared=inkling2_looped,
        extras=(inkling2_residuals, inkling2_messages),
    ),
}
