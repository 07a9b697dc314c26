"""Families of makers that have a few, by maker: what their rows need first, and then the rows."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import isqrt, prod

from calc.errors import ConfigError, Message
from calc.families.attention_rows import LISTED_ONLY, MLA, Attention, Every, Hybrid, Sliding, Window, shared_width
from calc.families.deepseek import DEEPSEEK_EXPERTS
from calc.families.family import (
    GATE_UP,
    GEMMA_NORMS,
    GPT_NAMES,
    LOOPED,
    MTP,
    PACKED_QKV,
    POST_NORMS,
    QK_LAYERNORM,
    QUERY_LAYERNORM,
    TWO_NORMS,
    W123,
    Family,
    Weights,
    extras,
)
from calc.families.feedforward_rows import Dense, Experts, Times, is_sparse
from calc.families.fields import PER_LAYER_CONFIG, Fields, If, kind
from calc.families.gpt import BLOOM_NAMES
from calc.families.granite import FF_NORMS, GRANITE_MOE_NAMES
from calc.families.moonshot import LING_NAMES
from calc.families.qwen import CONVS, QWEN2_ATTENTION
from calc.families.recurrent_rows import DELTA_NET, PREFIXED_MAMBA
from calc.families.rotary import Rotary
from calc.model.attention import GQA
from calc.model.block import Block, Extra
from calc.model.conventions import Kernels, Names
from calc.model.feedforward import MLP
from calc.model.mixers import Mixer
from calc.model.tensor import Component, Shape

LLAMA_LIKE = Family(ffn=Dense(bias=False))
"""Families whose remote code is Llama's with other words."""
QK_NORMED = Attention(bias="attention_bias", qk_norm="head")

# AI21: Jamba


def jamba_sparse(c: Fields, layer: int) -> bool:
    return c.size("num_experts") > 1 and Every("expert_layer_period", "expert_layer_offset")(c, layer)


# Apple: OpenELM, arXiv:2404.14619, whose heads and widths differ from layer to layer


def list_item(c: Fields, name: str, layer: int) -> Fields:
    """A config with one number of a list with one for each layer."""
    values = c.get(name)
    if not isinstance(values, list) or layer >= len(values):
        raise ConfigError(Message("{name} must list a number for each layer.", name=name), name)
    return c.within({name: values[layer]})


def openelm_attention(c: Fields, layer: int) -> GQA:
    n_q, n_kv = (list_item(c, name, layer).size(name) for name in ("num_query_heads", "num_kv_heads"))
    qk_norm = "head" if c.flag("normalize_qk_projections") else "none"
    return GQA(n_q=n_q, n_kv=n_kv, d_head=c.size("head_dim"), qk_norm=qk_norm)


def openelm_mlp(c: Fields, layer: int) -> MLP:
    """Feed-forward of a layer: its multiple of `model_dim`, rounded to `ffn_dim_divisor`."""
    multiple, divisor = list_item(c, "ffn_multipliers", layer).real("ffn_multipliers"), c.size("ffn_dim_divisor")
    wanted = multiple * c.size("model_dim")
    near = max(divisor, int(wanted + divisor / 2) // divisor * divisor)
    return MLP(intermediate=near if near >= 0.9 * wanted else near + divisor, gated=c.flag("ffn_with_glu"))


# Databricks: MPT and DBRX


MPT_NAMES = Names(
    module="transformer",
    embedding="wte",
    layer="blocks.{layer}",
    attention="attn",
    mlp="ffn",
    final_norm="norm_f",
    packed={"Wqkv": PACKED_QKV},
    renamed={"o_proj": "out_proj"},
)
DBRX_ATTENTION = Attention(heads="n_heads", hidden="d_model", head_dim=None)
DBRX_EXPERTS = Experts("moe_num_experts", "ffn_hidden_size", "moe_top_k", stacked="out_in")


def dbrx_attention(c: Fields, layer: int) -> Mixer:
    n_kv = c.section("attn_config").size("kv_n_heads")
    return DBRX_ATTENTION(c.with_stated("num_key_value_heads", n_kv))


# Hugging Face: Idefics of 2023; between the layers of a Llama others read images, each held back by two scalars

IDEFICS_ATTENTION, IDEFICS_FFN = Attention(kv=None, head_dim=None), Dense(bias=False)


def idefics_extras(c: Fields) -> tuple[Extra, ...]:
    """Layers that read images, one after so many of the Llama's."""
    hidden = c.size("hidden_size")
    image = c.section("vision_config").maybe("embed_dim") or 768  # of a patch, as the tower yields it
    attention: dict[str, Shape] = {**IDEFICS_ATTENTION(c).shapes(hidden)}
    attention |= {f"{name}_proj.weight": (hidden, image) for name in "kv"}
    if c.flag("qk_layer_norms"):
        attention |= {f"{name}_layer_norm.weight": (hidden // c.size("num_attention_heads"),) for name in "qk"}
    alpha: Shape = (1, 1, hidden) if c.get("alpha_type") == "vector" else (1,)
    parts: dict[Component, Mapping[str, Shape]] = {
        "attention": {f"cross_attn.{name}": shape for name, shape in attention.items()} | {"alpha_cross_attn": alpha},
        "mlp": {f"mlp.{name}": shape for name, shape in IDEFICS_FFN(c).shapes(hidden).items()} | {"alpha_dense": alpha},
        "norms": {f"{name}.weight": (hidden,) for name in TWO_NORMS},
    }
    tensors: tuple[Extra, ...] = ()
    for component, shapes in parts.items():
        for i in range(c.size("num_hidden_layers") // c.size("cross_layer_interval")):
            tensors += extras(component, {f"model.gated_cross_attn_layers.{i}.{name}": s for name, s in shapes.items()})
    words: Shape = (c.maybe("additional_vocab_size", 0) or 0, hidden)
    if words[0]:
        tensors += extras("embedding", {"model.embed_tokens.additional_embedding.weight": words})
        tensors += () if c.flag("tie_word_embeddings") else extras("lm_head", {"lm_head.additional_fc.weight": words})
    return tensors


# Meituan: LongCat-Flash, with two attentions and two dense feed-forwards a layer

LONGCAT_MLA = MLA()


def longcat_mlps(c: Fields, layer: int) -> tuple[Extra, ...]:
    """The dense feed-forward of each half of a layer."""
    shapes = Dense("ffn_hidden_size", False)(c).shapes(c.size("hidden_size"))
    return extras("mlp", {f"mlps.{half}.{name}": shape for half in (0, 1) for name, shape in shapes.items()})


# MyShell: JetMoE, arXiv:2404.07413; an expert of attention is a query and an output projection of all heads


def jetmoe_attention(c: Fields, layer: int) -> Mixer:
    n_kv = c.size("num_key_value_heads")
    return GQA(n_q=n_kv * c.size("num_experts_per_tok"), n_kv=n_kv, d_head=c.size("kv_channels"), routed=True)


def jetmoe_extras(c: Fields, layer: int) -> tuple[Extra, ...]:
    """The experts of attention, and a bias behind each set of experts."""
    hidden, wide = c.size("hidden_size"), c.size("num_key_value_heads") * c.size("kv_channels")
    experts, top_k, path = c.size("num_local_experts"), c.size("num_experts_per_tok"), "self_attention.experts"
    pairs: dict[str, Shape] = {f"{path}.input_linear.weight": (experts, wide, hidden)}
    pairs |= {f"{path}.output_linear.weight": (experts, hidden, wide)}
    return (
        *extras("attention", pairs, experts=experts, top_k=top_k),
        *extras("attention", {f"{path}.bias": (hidden,)}),
        *extras("router", {f"{path}.router.layer.weight": (experts, hidden)}),
        *extras("experts_shared", {"mlp.bias": (hidden,)}),
    )


# OpenBMB: MiniCPM and CPM-Ant


def square_d_head(c: Fields) -> int:
    """Width of a head where the output projection is square."""
    return shared_width(c, "hidden_size", "num_attention_heads")


def cpmant_buckets(c: Fields) -> int:
    """One for each pair of segments and each range of distances."""
    return c.size("segment_types") ** 2 + c.size("position_bias_num_buckets")


# Poolside: Laguna, whose heads may differ from layer to layer

GATED = replace(QK_NORMED, gate=If(lambda c: c.get("gating") in (True, "per-head"), "heads", "channels"))
LAGUNA_ATTENTION = replace(GATED, window=LISTED_ONLY)


def laguna_attention(c: Fields, layer: int) -> Mixer:
    heads = c.get("num_attention_heads_per_layer")
    if isinstance(heads, list):
        c = c.with_stated("num_attention_heads", heads[layer] if layer < len(heads) else None)
    return LAGUNA_ATTENTION(c, layer)


# Recursive: Flint


def flint_sparse(c: Fields, layer: int) -> bool:
    dense = c.indices("mlp_only_layers") if c.get("mlp_only_layers") is not None else frozenset({0, 1})
    return layer not in dense and (layer + 1) % c.size("decoder_sparse_step") == 0


# rednote: dots


def dots3_size(name: str, default: int) -> Callable[[Fields], int]:
    """A size of a sliding layer, by the name of its field."""
    return lambda c: c.maybe(f"swa_{name}", 0) or default


def dots3_rope(c: Fields) -> int:
    whole = dots3_size("head_dim", 256)(c) - dots3_size("qk_nope_head_dim", 192)(c)
    return dots3_size("qk_rope_head_dim", whole)(c)


DOTS3_WINDOW = Sliding(
    full_every=4,
    full_at=1,
    first_full=2,
    when="use_sliding_window",
    size=lambda c: c.maybe("sliding_window") or c.maybe("sliding_window_size") or 512,
)
DOTS3_FULL = MLA(gate="heads", rope_norm=True)
DOTS3_INDEXED = replace(DOTS3_FULL, indexer=True, fp32_index=True)
DOTS3_SLIDING_SAVED = replace(DOTS3_FULL, window=DOTS3_WINDOW)
DOTS3_SLIDING = replace(
    DOTS3_SLIDING_SAVED,
    heads=dots3_size("num_attention_heads", 64),
    q_rank=dots3_size("q_lora_rank", 1024),
    kv_rank=dots3_size("kv_lora_rank", 1024),
    d_nope=dots3_size("qk_nope_head_dim", 192),
    d_rope=dots3_rope,
    d_v=dots3_size("v_head_dim", 128),
)


def dots3_mixer(c: Fields, layer: int) -> Mixer:
    """Checkpoints call layers that pick their tokens “full_attention”, and state two sizes by `swa_`; saved again, each
    sliding layer states its own."""
    saved = c.states(PER_LAYER_CONFIG)
    if DOTS3_WINDOW(c, layer) is not None:
        return (DOTS3_SLIDING_SAVED if saved else DOTS3_SLIDING)(c, layer)
    says = c.get("use_dsa") is not False and (c.states("use_dsa") or not saved)
    return (DOTS3_INDEXED if says or kind(c, layer) == "indexed_attention" else DOTS3_FULL)(c, layer)


def dots3_sparse(c: Fields, layer: int) -> bool:
    if c.get("mlp_layer_types") is not None:
        return is_sparse(c, layer, 0)
    chosen = c.mark("moe_layer_freq", layer)
    if chosen is None:
        chosen = layer % (c.maybe("moe_layer_freq") or 1) == 0
    return chosen and layer >= (c.maybe("first_k_dense_replace", 0) or 0)


# Sapient: HRM, arXiv:2506.21734; two stacks run by turns, the low one `L_cycles` times for each run of the high one,
# and each run has a cache of its own

HRM_ATTENTION = Attention(kv=None, bias="attention_bias", gate="channels", gate_bias="attention_bias")


def hrm_layers(c: Fields) -> tuple[int, int, int]:
    """Layers of one stack, high cycles, and runs in each of them."""
    high, runs = c.size("H_cycles"), c.size("L_cycles") + 1
    return c.maybe("num_layers_per_stack") or c.size("num_hidden_layers"), high, runs


def hrm_shared(c: Fields) -> tuple[Block, ...]:
    """Each layer of each stack, with all its runs."""
    layers, high, runs = hrm_layers(c)
    low = [run for run in range(high * runs) if (run + 1) % runs]
    turns = {"L_module": low, "H_module": range(runs - 1, high * runs, runs)}
    return tuple(
        Block(
            layers=(first := runs_of[0] * layers + i,),
            places=tuple(run * layers + i for run in runs_of),
            mixers=(HRM_ATTENTION(c),),
            ffn=Dense()(c),
            norms=(),
            norm="none",
            stack=f"model.{name}.layers.{{layer}}",
            begins=first - i,
        )
        for name, runs_of in turns.items()
        for i in range(layers)
    )


# SK Telecom: A.X, with a norm behind experts (K1), or norms with a gate before attention and before experts (K2)


def axk2_norms(c: Fields, layer: int) -> tuple[str, ...]:
    gated_too = DEEPSEEK_EXPERTS.is_sparse(c, layer)
    return ("input_layernorm.norm", "post_attention_layernorm" + (".norm" if gated_too else ""))


def axk2_gates(c: Fields, layer: int) -> tuple[Extra, ...]:
    """The gate of a norm: its input through a bottleneck."""
    hidden, rank = c.size("hidden_size"), c.size("gated_norm_rank")
    norms = [name.removesuffix(".norm") for name in axk2_norms(c, layer) if name.endswith(".norm")]
    shapes: dict[str, Shape] = {f"{name}.W_down.weight": (rank, hidden) for name in norms}
    return extras("norms", shapes | {f"{name}.W_up.weight": (hidden, rank) for name in norms})


# SmallDoge: Doge, with a mask made of the values, scales of the residual, and experts of one row in each direction

DOGE_ATTENTION = replace(QK_NORMED, window=Window())


def doge_extras(c: Fields, layer: int) -> tuple[Extra, ...]:
    """Mask of the values, scales of the residual stream, and experts of one row."""
    hidden, attention = c.size("hidden_size"), DOGE_ATTENTION(c, layer)
    step: dict[str, Shape] = {"self_attn.A": (attention.n_kv,)}
    step |= {"self_attn.dt_proj.weight": (attention.n_kv, attention.n_kv * attention.d_head)}
    if c.flag("attention_bias"):
        step |= {"self_attn.dt_proj.bias": (attention.n_kv,)}
    tensors = extras("attention", step)
    tensors += extras("other", {"input_residual": (hidden,), "post_attention_residual": (hidden,)})
    if c.flag("is_moe"):
        experts = c.size("num_experts")
        rows: dict[str, Shape] = {f"mlp.{way}_embed.weight": (experts, hidden) for way in ("down", "up")}
        tensors += extras("experts_routed", rows, experts=experts, top_k=c.size("num_experts_per_tok"))
        tensors += extras("router", {"mlp.router_gate.weight": (2 * isqrt(experts), hidden)})
    return tensors


# Translated: Lara 4 Mini, which has rotary positions in sliding layers alone

LARA_PATTERN = ("linear_attention", "sliding_attention", "linear_attention", "full_attention", "sliding_attention")


def lara_kind(c: Fields, layer: int) -> str:
    return kind(c, layer, LARA_PATTERN) or LARA_PATTERN[layer % len(LARA_PATTERN)]


LARA_ATTENTION = replace(
    QK_NORMED, window=lambda c, layer: c.maybe("sliding_window") if lara_kind(c, layer) == "sliding_attention" else None
)


# StepFun: Step 3.5


def own_layers(c: Fields) -> Fields:
    """Fields without the layers of multi-token prediction in lists."""
    layers, further = c.size("num_hidden_layers"), c.maybe("num_nextn_predict_layers", 0) or 0
    for name in ("layer_types", "mlp_layer_types"):
        words = c.get(name)
        if isinstance(words, list) and further and len(words) == layers + further:
            c = c.with_stated(name, words[:layers])
    return c


def step_sliding_heads(c: Fields) -> int:
    other = c.section("attention_other_setting").maybe("num_attention_heads")
    return c.maybe("num_sliding_attention_heads") or other or c.size("num_attention_heads")


STEP_SLIDING_SAVED = replace(GATED, window=LISTED_ONLY)
STEP_SLIDING = replace(STEP_SLIDING_SAVED, heads=step_sliding_heads)


def step_attention(c: Fields, layer: int) -> GQA:
    own = c.once("own layers", lambda: own_layers(c))
    if kind(own, layer) != "sliding_attention":
        return GATED(own, layer)
    return (STEP_SLIDING_SAVED if c.states(PER_LAYER_CONFIG) else STEP_SLIDING)(own, layer)


def step_sparse(c: Fields, layer: int) -> bool:
    """Whether a layer has experts, by `moe_layers_enum` or `mlp_layer_types`."""
    listed = c.get("moe_layers_enum")
    if listed is None or c.get("mlp_layer_types") is not None:
        return is_sparse(c.once("own layers", lambda: own_layers(c)), layer, 3)
    return str(layer) in str(listed).replace(" ", "").strip("[]").split(",")


# Swiss AI: Apertus, with xIELU, arXiv:2411.13010: two learned slopes and two constants


def has_xielu(c: Fields) -> bool:
    return c.get("hidden_act") in (None, "xielu")


def head_rows(c: Fields) -> int:
    """Tokens that the head makes: Apertus 1.5 drops those of images and sound."""
    return c.maybe("output_vocab_size") or c.size("vocab_size")


APERTUS = Family(
    mixer=QK_NORMED,
    ffn=Dense(gated=False, bias=False),
    norms=("attention_layernorm", "feedforward_layernorm"),
    layer_extras=(
        Weights("mlp", {"mlp.act_fn.alpha_p": (1,), "mlp.act_fn.alpha_n": (1,)}, has_xielu),
        Weights("mlp", {"mlp.act_fn.beta": (), "mlp.act_fn.eps": ()}, has_xielu, excluded_as="persistent_buffers"),
    ),
    kernels=Kernels(activation="xielu"),
)

# Xiaomi: MiMo; the sliding layers of MiMo-V2 have more KV heads, and sinks


def mimo_v2_reach(c: Fields) -> int:
    stated = c.maybe("sliding_window_size")
    return stated + 1 if stated is not None else c.size("sliding_window")


MIMO_V2_WINDOW = Sliding(full_every=6, first_full=1, marks="hybrid_layer_pattern", size=mimo_v2_reach)
MIMO_V2_FULL = Attention(d_v="v_head_dim", qkv_bias="attention_bias")
MIMO_V2_SLIDING = replace(MIMO_V2_FULL, kv="swa_num_key_value_heads", sinks=True, window=MIMO_V2_WINDOW)


def mimo_v2_attention(c: Fields, layer: int) -> GQA:
    if MIMO_V2_WINDOW(c, layer) is None:
        return MIMO_V2_FULL(c, layer)
    if c.maybe("swa_num_key_value_heads") is None:
        twice = {"swa_num_key_value_heads": 2 * c.size("num_key_value_heads")}
        c = c.once("mimo_v2 sliding", lambda: c.with_all_stated(twice))
    return MIMO_V2_SLIDING(c, layer)


EXAONE4 = Family(mixer=Attention(qk_norm="head", window=Sliding(full_every="sliding_window_pattern")), norms=POST_NORMS)
STABLELM = Family(mixer=Attention(qkv_bias="use_qkv_bias"), ffn=Dense(bias=False), norm="layer")
AXK1 = Family(
    mixer=MLA(),
    ffn=DEEPSEEK_EXPERTS,
    layer_extras=(
        Weights("norms", {"post_mlp_layernorm.weight": ("hidden_size",)}, layers=DEEPSEEK_EXPERTS.is_sparse),
    ),
)

OTHER_MAKERS: dict[str, Family] = {
    "Yi": replace(LLAMA_LIKE, norms=("ln1", "ln2")),
    "persimmon": Family(
        mixer=Attention(
            kv=None, head_dim=None, bias=True, qk_norm=If("qk_layernorm", "head", "none"), qk_norm_bias=True
        ),
        ffn=Dense(gated=False, bias=True),
        norm="layer",
        names=Names(
            packed={"query_key_value": PACKED_QKV},
            renamed={"o_proj": "dense", "up_proj": "dense_h_to_4h", "down_proj": "dense_4h_to_h"} | QK_LAYERNORM,
            final_norm="final_layernorm",
        ),
    ),
    "jamba": Family(
        mixer=Hybrid(
            Attention(), PREFIXED_MAMBA.but(inner_norms=True), Every("attn_layer_period", "attn_layer_offset")
        ),
        ffn=Experts("num_experts", "intermediate_size", sparse=jamba_sparse),
        norms=FF_NORMS,
        names=Names(
            recurrent="mamba",
            mlp="feed_forward",
            router="feed_forward.router",
            expert="feed_forward.experts.{expert}",
            final_norm="final_layernorm",
        ),
        rotary=None,
    ),
    "kolibri1": Family(
        mixer=Attention(qk_norm="head", window=Sliding(full_every=5)),
        ffn=Experts(shared_width="shared_expert_intermediate_size", correction="buffer"),
        norms=(*TWO_NORMS, "post_attn_norm", "post_ffn_norm"),
        names=Names(correction="moe.router.expert_bias"),
    ),
    "openelm": Family(
        mixer=openelm_attention,
        ffn=openelm_mlp,
        norms=("attn_norm", "ffn_norm"),
        names=Names(
            module="transformer",
            embedding="token_embeddings",
            attention="attn",
            mlp="ffn",
            packed={"qkv_proj": PACKED_QKV, "proj_1": GATE_UP},
            renamed={"o_proj": "out_proj", "down_proj": "proj_2"},
        ),
        layers="num_transformer_layers",
        hidden="model_dim",
        max_positions="max_context_length",
    ),
    "arcee": Family(ffn=Dense(gated=False), kernels=Kernels(activation="squared")),
    "afmoe": Family(
        mixer=replace(QK_NORMED, gate="channels", window=Sliding(full_every="global_attn_every_n_layers")),
        ffn=Experts(shared="num_shared_experts", correction="parameter", first_dense="num_dense_layers"),
        norms=(*TWO_NORMS, "pre_mlp_layernorm", "post_mlp_layernorm"),
        names=Names(router="mlp.router.gate", correction="mlp.expert_bias", renamed={"g_proj": "gate_proj"}),
        kernels=Kernels(fp32_weights=True, fp32_router=False, shared_first=True),
    ),
    "aquila": LLAMA_LIKE,
    "emu3_text_model": Family(names=Names(module="text_model.model", lm_head="text_model.lm_head")),
    "baichuan": Family(mixer=Attention(kv=None, head_dim=None), names=Names(packed={"W_pack": PACKED_QKV})),
    "seed_oss": Family(
        mixer=Attention(qkv_bias="attention_bias", out_bias="attention_out_bias"),
        kernels=Kernels(dropout=frozenset({"scores", "residual"})),
    ),
    "telechat": Family(
        mixer=Attention(out_bias=True),
        ffn=Dense(bias=False),
        names=BLOOM_NAMES.but(
            packed={"key_value": ("k_proj", "v_proj")}, renamed={"q_proj": "query", "o_proj": "dense"}
        ),
        layer_extras=(Weights("mlp", {"mlp.down_proj.bias": ("hidden_size",)}),),  # and none on the other two
    ),
    "mpt": Family(
        mixer=Attention(heads="n_heads", kv=None, head_dim=None, hidden="d_model"),
        ffn=Dense(Times("expansion_ratio", "d_model"), False, gated=False),
        norms=("norm_1", "norm_2"),
        names=MPT_NAMES,
        rotary=None,
        layers="n_layers",
        hidden="d_model",
        max_positions="max_seq_len",
    ),
    "dbrx": Family(
        mixer=dbrx_attention,
        ffn=lambda c, layer: DBRX_EXPERTS.experts(c.section("ffn_config")),
        norms=("norm_attn_norm.norm_1", "norm_attn_norm.norm_2"),
        names=MPT_NAMES.but(
            attention="norm_attn_norm.attn",
            mlp="mlp",
            router="ffn.router.layer",
            expert="ffn.experts.mlp",
            expert_renamed={"gate_proj": "w1", "up_proj": "v1", "down_proj": "w2"},
        ),
        layers="n_layers",
        hidden="d_model",
        max_positions="max_seq_len",
    ),
    "idefics": Family(mixer=IDEFICS_ATTENTION, ffn=IDEFICS_FFN, extras=(idefics_extras,)),
    "smollm3": Family(
        mixer=Attention(
            bias="attention_bias", window=Sliding(slides_every="no_rope_layer_interval", when="use_sliding_window")
        )
    ),
    "jais2": Family(ffn=Dense(gated=False), norm="layer", kernels=Kernels(activation="squared")),
    "iquestcoder": Family(),
    "mellum": Family(mixer=replace(QK_NORMED, window=LISTED_ONLY), ffn=Experts(first_dense=0, dense=Dense(bias=False))),
    "nanochat": Family(
        ffn=Dense(gated=False, bias=False),
        norms=(),
        norm="none",
        names=Names(renamed={"up_proj": "fc1", "down_proj": "fc2"}),
        kernels=Kernels(
            rms_alone=True,
            norms_unweighted=frozenset({"rotated", "embedded"}),
            activation="squared",
            capped_logits=True,
        ),
    ),
    "skywork": LLAMA_LIKE,
    "helium": Family(mixer=Attention(qkv_bias="attention_bias"), follows={"head_dim": square_d_head}),
    "exaone": Family(
        mixer=Attention(),
        ffn=Dense(bias=False),
        norms=("ln_1", "ln_2"),
        names=GPT_NAMES.but(
            attention="attn.attention",
            renamed={"o_proj": "out_proj", "gate_proj": "c_fc_0", "up_proj": "c_fc_1", "down_proj": "c_proj"},
        ),
    ),
    "exaone4": EXAONE4,
    "exaone_moe": Family(
        mixer=EXAONE4.mixer,
        ffn=replace(
            DEEPSEEK_EXPERTS, n="num_experts", shared="num_shared_experts", shared_bias="mlp_bias", dense=Dense()
        ),
        names=Names(correction="mlp.e_score_correction_bias"),
    ),
    "longcat_flash": Family(
        mixer=lambda c, layer: (LONGCAT_MLA(c), LONGCAT_MLA(c)),
        ffn=Experts(
            "n_routed_experts",
            "expert_ffn_hidden_size",
            "moe_topk",
            correction="buffer",
            router_bias="router_bias",
            n_zero="zero_expert_num",
        ),
        norms=tuple(f"{norm}.{half}" for norm in TWO_NORMS for half in (0, 1)),
        names=Names(
            attention="self_attn.{mixer}",
            router="mlp.router.classifier",
            correction="mlp.router.e_score_correction_bias",
        ),
        layers="num_layers",
        layer_extras=(longcat_mlps,),
        follows={"qk_head_dim": lambda c: c.size("qk_nope_head_dim") + c.size("qk_rope_head_dim")},
    ),
    "jetmoe": Family(
        mixer=jetmoe_attention,
        ffn=Experts("num_local_experts", "intermediate_size", stacked="module"),
        layer_extras=(jetmoe_extras,),
        names=GRANITE_MOE_NAMES.but(
            attention="self_attention",
            router="mlp.router.layer",
            expert="mlp",
            packed={"kv_proj": ("k_proj", "v_proj")},
        ),
    ),
    "hyperclovax": Family(norms=If("use_post_norm", (*TWO_NORMS, "post_norm1", "post_norm2"), TWO_NORMS)),
    "minicpm": LLAMA_LIKE,
    "minicpm3": Family(mixer=MLA(d_v=lambda c: c.maybe("v_head_dim") or square_d_head(c))),
    "cpmant": Family(
        mixer=Attention(kv=None, head_dim="dim_head"),
        ffn=Dense("dim_ff", False),
        norms=("self_att.layernorm_before_attention", "ffn.layernorm_before_ffn"),
        names=Names(
            module="cpmant",
            embedding="input_embedding",
            layer="encoder.layers.{layer}",
            attention="self_att.self_attention",
            mlp="ffn.ffn",
            final_norm="encoder.output_layernorm",
            renamed={"q_proj": "project_q", "k_proj": "project_k", "v_proj": "project_v", "o_proj": "attention_out"}
            | {"gate_proj": "w_in.w_0", "up_proj": "w_in.w_1", "down_proj": "w_out"},
        ),
        rotary=None,
        extra_rows=lambda c: c.size("prompt_types") * c.size("prompt_length"),  # learned prompts
        ties=False,
        extras=(
            Weights("embedding", {"cpmant.segment_embedding.weight": ("segment_types", "hidden_size")}),
            Weights("other", {"cpmant.position_bias.relative_attention_bias": (cpmant_buckets, "num_attention_heads")}),
        ),
    ),
    "orion": replace(LLAMA_LIKE, norm="layer"),
    "laguna": Family(
        mixer=laguna_attention,
        ffn=Experts(
            shared_width="shared_expert_intermediate_size",
            correction="parameter",
            first_dense=1,
            dense=Dense(bias=False),
        ),
        names=Names(correction="mlp.experts.e_score_correction_bias", shared_expert="mlp.shared_expert"),
    ),
    "flint": Family(
        mixer=replace(QK_NORMED, sinks=True, window=Sliding(full_every=4, full_at=1, first_full=2, last_full=True)),
        ffn=Experts(shared_width="shared_expert_intermediate_size", sparse=flint_sparse, dense=Dense(bias=False)),
        names=Names(shared_expert="mlp.shared_expert", renamed={"sinks": "softmax_offset"}),
    ),
    "dots1": Family(mixer=replace(QK_NORMED, window=Sliding(after="max_window_layers")), ffn=DEEPSEEK_EXPERTS),
    "dots3_note_text": Family(
        mixer=dots3_mixer,
        ffn=replace(DEEPSEEK_EXPERTS, shared_width="shared_experts_intermediate_size", sparse=dots3_sparse),
    ),
    "beam": Family(
        mixer=replace(QK_NORMED, gate="channels", window=Sliding(full_every=6, last_full=True)),
        ffn=Experts(correction="buffer", first_dense=3, dense=Dense(bias=False)),
        norms=GEMMA_NORMS,
        names=Names(renamed={"g_proj": "gate_proj"}),
        layer_extras=(Weights("attention", {"self_attn.gate_bias": ("num_attention_heads",)}),),
        kernels=Kernels(capped_logits=True),
    ),
    "aria_text": Family(
        ffn=Experts(
            "moe_num_experts",
            "intermediate_size",
            "moe_topk",
            shared="moe_num_shared_experts",
            shared_bias="mlp_bias",
            stacked="module_in_out",
        ),
        names=Names(
            router="mlp.router",
            expert="mlp.experts",
            expert_packed={"fc1": GATE_UP},
            expert_renamed={"down_proj": "fc2"},
        ),
    ),
    "hrm_text": replace(
        LOOPED,
        norm="none",
        count=lambda c: prod(hrm_layers(c)),
        shared=hrm_shared,
        names=Names(attention="attn", packed={"gqkv_proj": ("g_proj", *PACKED_QKV), "gate_up_proj": GATE_UP}),
        extras=(Weights("other", {"model.z_L_init": ("hidden_size",)}),),
    ),
    "internlm": replace(LLAMA_LIKE, mixer=Attention(bias="bias")),
    "internlm2": Family(
        mixer=Attention(bias="bias"),
        norms=("attention_norm", "ffn_norm"),
        names=Names(
            embedding="tok_embeddings",
            attention="attention",
            mlp="feed_forward",
            lm_head="output",
            packed={"wqkv": PACKED_QKV},
            renamed={"o_proj": "wo"} | W123,
        ),
    ),
    "sarvam_moe": Family(
        mixer=Attention(qkv_bias="attention_bias", qk_norm=If("use_qk_norm", "head", "none")),
        ffn=DEEPSEEK_EXPERTS,
        names=LING_NAMES.but(packed={"query_key_value": PACKED_QKV}, renamed={"o_proj": "dense"} | QUERY_LAYERNORM),
        kernels=Kernels(packs=(), cuts_rotated=True),  # the class is GLM-4.5's
    ),
    "sarvam_mla": Family(mixer=MLA(), ffn=DEEPSEEK_EXPERTS, kernels=Kernels(turn="pairs")),
    "internlm3": Family(mixer=Attention(qkv_bias="qkv_bias", out_bias="bias"), ffn=Dense(bias="bias")),
    "axk1": AXK1,
    "axk2": replace(AXK1, mixer=MLA(indexer=True, query_gate=True), norms=axk2_norms, layer_extras=(axk2_gates,)),
    "doge": Family(mixer=DOGE_ATTENTION, layer_extras=(doge_extras,)),
    "stablelm_epoch": STABLELM,
    "stablelm": replace(
        STABLELM,
        mixer=Attention(qkv_bias="use_qkv_bias", qk_norm=If("qk_layernorm", "heads", "none")),
        ffn=Dense(),
        norms=If("use_parallel_residual", TWO_NORMS[:1], TWO_NORMS),
        kernels=Kernels(joins_rotated=True, residual_states=2),
        names=Names(renamed={"q_norm": "q_layernorm.norms.{expert}", "k_norm": "k_layernorm.norms.{expert}"}),
        rotary=Rotary(share=0.25),
    ),
    "step3p5": Family(
        mixer=step_attention,
        ffn=Experts(
            "n_routed_experts",
            shared_width="share_expert_dim",
            shared_bias="mlp_bias",
            correction="buffer",
            stacked="module",
            sparse=step_sparse,
        ),
        names=Names(router="moe.gate", correction="moe.router_bias", expert="moe", shared_expert="share_expert"),
    ),
    "apertus": APERTUS,
    "apertus1p5_text": replace(APERTUS, vocab=head_rows, extra_rows=lambda c: c.size("vocab_size") - head_rows(c)),
    "solar_open": Family(mixer=Attention(qkv_bias="attention_bias"), ffn=replace(DEEPSEEK_EXPERTS, first_dense=None)),
    "mimo": Family(
        mixer=QWEN2_ATTENTION,
        prediction=MTP(
            Attention(qkv_bias=True),
            Dense(),
            norms=("token_layernorm", "hidden_layernorm", "final_layernorm"),
            projection=("input_proj",),
            layer="model.mtp_layers.{layer}",
        ),
    ),
    "mimo_v2_flash": Family(
        mixer=mimo_v2_attention,
        ffn=replace(DEEPSEEK_EXPERTS, marks="moe_layer_freq", first_dense=1, dense=Dense()),
        names=Names(renamed={"sinks": "attention_sink_bias"}),
    ),
    "lara_mini": Family(
        mixer=Hybrid(
            LARA_ATTENTION, DELTA_NET, lambda c, layer: lara_kind(c, layer) != "linear_attention", words=LARA_PATTERN
        ),
        ffn=Experts(shared_width="shared_expert_intermediate_size"),
        names=Names(
            shared_expert="mlp.shared_expert",
            packed={"in_proj": ("in_q", "in_k", "in_v", "in_z", "in_b", "in_a"), "conv1d": CONVS},
            renamed={"norm": "out_norm"},
        ),
        kernels=Kernels(norm="rms32", fp32_gated_norm=True, fp32_router=True, packs=(("in_q", "in_k", "in_v"),)),
    ),
    "xverse": LLAMA_LIKE,
}
