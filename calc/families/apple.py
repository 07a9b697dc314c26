"""Apple's family: OpenELM, arXiv:2404.14619, whose heads and widths differ from layer to layer."""

from calc.errors import ConfigError, Message
from calc.families.family import GATE_UP, PACKED_QKV, Family
from calc.families.fields import Fields
from calc.model.attention import GQA
from calc.model.feedforward import MLP
from calc.model.gguf_rules import GGUFRules
from calc.model.names import Names


def listed(c: Fields, name: str, layer: int) -> int:
    """One number of a list with one for each layer."""
    return list_item(c, name, layer).size(name)


def list_item(c: Fields, name: str, layer: int) -> Fields:
    values = c.get(name)
    if not isinstance(values, list) or layer >= len(values):
        raise ConfigError(Message("{name} must list a number for each layer.", name=name), name)
    return c.within({name: values[layer]})


def openelm_attention(c: Fields, layer: int) -> GQA:
    return GQA(
        n_q=listed(c, "num_query_heads", layer),
        n_kv=listed(c, "num_kv_heads", layer),
        d_head=c.size("head_dim"),
        qk_norm="head" if c.flag("normalize_qk_projections") else "none",
    )


def openelm_mlp(c: Fields, layer: int) -> MLP:
    multiple, divisor = list_item(c, "ffn_multipliers", layer).real("ffn_multipliers"), c.size("ffn_dim_divisor")
    wanted = multiple * c.size("model_dim")
    near = max(divisor, int(wanted + divisor / 2) // divisor * divisor)
    return MLP(intermediate=near if near >= 0.9 * wanted else near + divisor, gated=c.flag("ffn_with_glu"))


APPLE: dict[str, Family] = {
    "openelm": Family(
        maker="Apple",
        mixer=openelm_attention,
        ffn=openelm_mlp,
        norms=("attn_norm", "ffn_norm"),
        names=Names(
            embedding="transformer.token_embeddings",
            layer="transformer.layers.{layer}",
            attention="attn",
            mlp="ffn",
            final_norm="transformer.norm",
            packed={"qkv_proj": PACKED_QKV, "proj_1": GATE_UP},
            renamed={"o_proj": "out_proj", "down_proj": "proj_2"},
        ),
        defaults="none",
        own={
            "vocab_size": 32000,
            "model_dim": None,
            "num_transformer_layers": None,
            "num_query_heads": None,
            "num_kv_heads": None,
            "ffn_multipliers": None,
            "ffn_dim_divisor": 256,
            "ffn_with_glu": True,
            "head_dim": 64,
            "normalize_qk_projections": True,
            "tie_word_embeddings": True,
            "max_context_length": 2048,
        },
        aliases={"share_input_output_layers": "tie_word_embeddings"},
        layers="num_transformer_layers",
        hidden="model_dim",
        max_positions="max_context_length",
        gguf=GGUFRules("openelm"),
    ),
}
