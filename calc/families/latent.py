"""Families with latent attention, DeepSeek's line."""

from calc.architecture import Extra, PredictionModule
from calc.attention import LightningIndexer
from calc.families.reading import (
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
from calc.feedforward import FeedForward, MoE
from calc.fields import Fields
from calc.mixers import Mixer
from calc.names import Names


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
    """LongCat-Flash, arXiv:2509.01322: experts beside two whole layers, some of which compute nothing."""
    routed = moe(c, "n_routed_experts", "expert_ffn_hidden_size", top_k="moe_topk", router_correction="buffer")
    return routed.model_copy(
        update={"n_zero": c.maybe("zero_expert_num", 0) or 0, "router_bias": c.flag("router_bias")}
    )


def longcat_mlps(c: Fields, layer: int) -> tuple[Extra, ...]:
    """The dense feed-forward of each half of a layer."""
    shapes = gated(c, width="ffn_hidden_size", bias=None).shapes(c.size("hidden_size"))
    return extras("mlp", {f"mlps.{half}.{name}": shape for half in (0, 1) for name, shape in shapes.items()})


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
    "deepseek_v2": Family(mixer=mla, ffn=lambda c, i: deepseek_ffn(c, i, correction="none", bias="mlp_bias")),
    "deepseek_v3": Family(mixer=mla, ffn=deepseek_ffn, prediction=deepseek_prediction),
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
}
