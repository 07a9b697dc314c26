"""Families with latent attention, DeepSeek's line."""

from calc.architecture import PredictionModule
from calc.attention import LightningIndexer
from calc.families.reading import Family, deepseek_ffn, deepseek_moe, gated, head_dim, mla, next_layers
from calc.fields import Fields
from calc.mixers import Mixer


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


LATENT: dict[str, Family] = {
    "minicpm3": Family(
        mixer=lambda c, i: mla(c if c.maybe("v_head_dim") else c.with_stated("v_head_dim", head_dim(c))), ffn=gated
    ),
    "youtu": Family(mixer=mla, ffn=gated),
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
