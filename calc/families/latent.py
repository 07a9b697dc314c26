"""Families with latent attention, DeepSeek's line."""

from calc.families.family import (
    GATE_UP,
    TWO_NORMS,
    Family,
    deepseek_ffn,
    deepseek_moe,
    extras,
    gated,
    head_dim,
    is_sparse,
    mla,
    moe,
    next_layers,
    shared_mlp,
)
from calc.families.fields import Fields
from calc.model.block import Extra, PredictionModule
from calc.model.feedforward import FeedForward, MoE
from calc.model.kernels import Kernels
from calc.model.mixers import Mixer
from calc.model.mla import LightningIndexer
from calc.model.names import Names
from calc.model.tensor import Shape


def deepseek_prediction(c: Fields) -> tuple[PredictionModule, ...]:
    """github.com/deepseek-ai/DeepSeek-V3, README_WEIGHTS.md: one more layer with its own embedding and head."""
    return next_layers(c, mla(c), deepseek_moe(c), own_tables=True)


def dsa(c: Fields, layer: int = 0) -> Mixer:
    """Sparse attention over tokens that an indexer picks."""
    owned = kinds[layer] == "full" if (kinds := indexer_types(c)) else True
    indexer = LightningIndexer(n_index=c.size("index_n_heads"), d_index=c.size("index_head_dim"), owned=owned)
    return mla(c, layer, indexer=indexer)


def indexer_types(c: Fields) -> list[str] | None:
    """GLM-5.2: some layers share the choice of an earlier one."""
    layers = c.size("num_hidden_layers")
    listed = c.per_layer("indexer_types", layers, ("full", "shared"))
    if listed is not None:
        return listed
    pattern = c.get("index_topk_pattern")
    if isinstance(pattern, str):
        return ["full" if letter == "F" else "shared" for letter in pattern[:layers]]
    freq, offset = c.maybe("index_topk_freq", 0) or 1, c.maybe("index_skip_topk_offset", 0)
    skip = 2 if offset is None else offset
    return ["full" if max(i - skip + 1, 0) % freq == 0 else "shared" for i in range(layers)]


def mistral4_ffn(c: Fields, layer: int) -> FeedForward:
    if not is_sparse(c, layer, c.size("first_k_dense_replace", 0)):
        return gated(c, bias=None)
    return moe(c, "n_routed_experts", "moe_intermediate_size", shared=shared_mlp(c), stacked="out_in")


def longcat_moe(c: Fields, layer: int) -> MoE:
    """LongCat-Flash, arXiv:2509.01322: experts beside two whole layers, some of which are empty: no weights.

    Active are all `moe_topk` as if none of them were empty, the most that one token passes through: 32.2 B, which the
    paper gives as 31.3 B without the embedding. On average a third of them is empty: 28.0 B, the paper's 27 B.
    """
    routed = moe(c, "n_routed_experts", "expert_ffn_hidden_size", top_k="moe_topk", router_correction="buffer")
    return routed.model_copy(
        update={"n_zero": c.maybe("zero_expert_num", 0) or 0, "router_bias": c.flag("router_bias")}
    )


def longcat_mlps(c: Fields, layer: int) -> tuple[Extra, ...]:
    """The dense feed-forward of each half of a layer."""
    shapes = gated(c, width="ffn_hidden_size", bias=None).shapes(c.size("hidden_size"))
    return extras("mlp", {f"mlps.{half}.{name}": shape for half in (0, 1) for name, shape in shapes.items()})


def axk2_mixer(c: Fields, layer: int) -> Mixer:
    indexer = LightningIndexer(n_index=c.size("index_n_heads"), d_index=c.size("index_head_dim"))
    return mla(c, indexer=indexer, query_gate=True)


def axk2_dense(c: Fields) -> int:
    return c.maybe("first_k_dense_replace", 0) or 0


def axk2_norms(c: Fields, layer: int) -> tuple[str, ...]:
    """Before experts the norm has a gate, too."""
    gated_too = is_sparse(c, layer, axk2_dense(c))
    return ("input_layernorm.norm", "post_attention_layernorm" + (".norm" if gated_too else ""))


def axk2_gates(c: Fields, layer: int) -> tuple[Extra, ...]:
    """The gate of a norm: its input through a bottleneck."""
    hidden, rank = c.size("hidden_size"), c.size("gated_norm_rank")
    norms = [name.removesuffix(".norm") for name in axk2_norms(c, layer) if name.endswith(".norm")]
    shapes: dict[str, Shape] = {f"{name}.W_down.weight": (rank, hidden) for name in norms}
    return extras("norms", shapes | {f"{name}.W_up.weight": (hidden, rank) for name in norms})


def hy4_mixer(c: Fields, layer: int) -> Mixer:
    """The first layer picks its tokens, then every fourth; the others share the choice."""
    listed = c.per_layer("indexer_types", c.size("num_hidden_layers"), ("full", "shared"))
    owned = listed[layer] == "full" if listed else layer == 0 or layer % 4 == 1
    indexer = LightningIndexer(n_index=c.size("index_n_heads"), d_index=c.size("index_head_dim"), owned=owned)
    return mla(c, indexer=indexer, gate="channels", sinks=True)


def hy4_ffn(c: Fields, layer: int) -> FeedForward:
    if not is_sparse(c, layer, 1):
        return gated(c, bias=None)
    return deepseek_moe(c).model_copy(update={"stacked": "out_in"})


def hy4_connections(c: Fields, layer: int) -> tuple[Extra, ...]:
    """Hyper-connections, arXiv:2409.19606, round attention and feed-forward: no mixing between streams."""
    streams, hidden = c.size("hc_mult"), c.size("hidden_size")
    shapes: dict[str, Shape] = {}
    for path in ("hc_pre.hc_attn_layer", "hc_pre.hc_mlp_layer"):
        shapes |= {f"{path}.hc_fn": (2 * streams, streams * hidden), f"{path}.hc_base": (2 * streams,)}
        shapes |= {f"{path}.hc_scale": (2,)}
    return extras("other", shapes)


def hy4_head(c: Fields) -> tuple[Extra, ...]:
    streams, path = c.size("hc_mult"), "model.hc_pre.hc_head.hc_head"
    shapes: dict[str, Shape] = {f"{path}_fn": (streams, streams * c.size("hidden_size"))}
    return extras("other", shapes | {f"{path}_base": (streams,), f"{path}_scale": (1,)})


LATENT: dict[str, Family] = {
    "minicpm3": Family(
        mixer=lambda c, i: mla(c if c.maybe("v_head_dim") else c.with_stated("v_head_dim", head_dim(c))), ffn=gated
    ),
    "youtu": Family(mixer=mla, ffn=gated),
    "axk1": Family(
        mixer=mla,
        ffn=lambda c, i: deepseek_ffn(c, i, first_dense=c.maybe("first_k_dense_replace", 0) or 0),
        own={"first_k_dense_replace": 1},
        layer_extras=lambda c, i: (
            extras("norms", {"post_mlp_layernorm.weight": (c.size("hidden_size"),)})
            if is_sparse(c, i, c.maybe("first_k_dense_replace", 0) or 0)
            else ()
        ),
    ),
    "mistral4": Family(
        mixer=mla,
        ffn=mistral4_ffn,
        names=Names(expert="mlp.experts", expert_packed={"gate_up_proj": GATE_UP}),
    ),
    "longcat_flash": Family(
        mixer=lambda c, i: (mla(c), mla(c)),
        ffn=longcat_moe,
        norms=tuple(f"{norm}.{half}" for norm in TWO_NORMS for half in (0, 1)),
        names=Names(
            attention="self_attn.{mixer}",
            router="mlp.router.classifier",
            correction="mlp.router.e_score_correction_bias",
        ),
        layers="num_layers",
        layer_extras=longcat_mlps,
    ),
    "deepseek_v2": Family(
        mixer=mla,
        ffn=lambda c, i: deepseek_ffn(c, i, correction="none", bias="mlp_bias"),
        kernels=Kernels(fp32_weights=True, fp32_router=True, turn="complex"),
    ),
    "deepseek_v3": Family(mixer=mla, ffn=deepseek_ffn, prediction=deepseek_prediction, kernels=Kernels(turn="pairs")),
    "deepseek_v32": Family(
        mixer=dsa,
        ffn=deepseek_ffn,
        own={"num_nextn_predict_layers": 0},
        prediction=lambda c: next_layers(c, dsa(c), deepseek_moe(c), own_tables=True),
    ),
    "glm_moe_dsa": Family(
        mixer=dsa,
        ffn=deepseek_ffn,
        own={"num_nextn_predict_layers": 0},
        prediction=lambda c: next_layers(c, dsa(c), deepseek_moe(c), own_tables=False),
    ),
    "glm4_moe_lite": Family(
        mixer=mla,
        ffn=lambda c, i: deepseek_ffn(c, i, first_dense=1),
        own={"num_nextn_predict_layers": 0},
        prediction=lambda c: next_layers(c, mla(c), deepseek_moe(c), own_tables=True),
    ),
    "axk2": Family(
        mixer=axk2_mixer,
        ffn=lambda c, i: deepseek_ffn(c, i, first_dense=axk2_dense(c)),
        norms=axk2_norms,
        own={"first_k_dense_replace": 1},
        layer_extras=axk2_gates,
    ),
    "hy_v4": Family(
        mixer=hy4_mixer,
        ffn=hy4_ffn,
        extras=hy4_head,
        layer_extras=hy4_connections,
        names=Names(
            expert="mlp.experts",
            expert_packed={"gate_up_proj": GATE_UP},
            renamed={"gate_proj": "linear_gate", "g_proj": "linear_gate", "sinks": "learnable_sink_param"},
        ),
    ),
}
