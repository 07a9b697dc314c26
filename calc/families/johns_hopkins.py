"""Johns Hopkins University: The decoder of ModernBERT (Ettin, arXiv:2507.11412)."""

from calc.families.attention_rows import Attention, Sliding
from calc.families.family import GATE_UP, Family, If, extras
from calc.families.feedforward_rows import Dense
from calc.families.fields import Fields
from calc.model.block import Extra
from calc.model.names import Names
from calc.model.tensor import Norm, Shape

MODERNBERT_NORM: If[Norm] = If("norm_bias", "layer", "rms")


def half_window(c: Fields) -> int:
    """Window that saved configs state, or half of published ones'."""
    return c.maybe("sliding_window") or c.size("local_attention") // 2


def modernbert_norms(c: Fields, layer: int) -> tuple[str, ...]:
    return ("attn_norm", "mlp_norm") if layer else ("mlp_norm",)


def modernbert_extras(c: Fields) -> tuple[Extra, ...]:
    """A norm behind the embedding, and a matrix with a norm before the head."""
    hidden = c.size("hidden_size")
    norms: dict[str, Shape] = {"model.embeddings.norm.weight": (hidden,), "lm_head.norm.weight": (hidden,)}
    if c.flag("norm_bias"):
        norms |= {"model.embeddings.norm.bias": (hidden,), "lm_head.norm.bias": (hidden,)}
    dense: dict[str, Shape] = {"lm_head.dense.weight": (hidden, hidden)}
    if c.flag("classifier_bias"):
        dense |= {"lm_head.dense.bias": (hidden,)}
    return extras("norms", norms) + extras("other", dense)


JOHNS_HOPKINS: dict[str, Family] = {
    "modernbert-decoder": Family(
        maker="Johns Hopkins University",
        mixer=Attention(
            head_dim=None,
            bias="attention_bias",
            window=Sliding(full_every="global_attn_every_n_layers", full_at=0, size=half_window),
        ),
        ffn=Dense(),
        norms=modernbert_norms,
        norm=MODERNBERT_NORM,
        names=Names(
            embedding="model.embeddings.tok_embeddings",
            attention="attn",
            final_norm="model.final_norm",
            lm_head="decoder",
            packed={"Wi": GATE_UP},
            renamed={"o_proj": "Wo", "down_proj": "Wo"},
        ),
        own={"global_attn_every_n_layers": 3},
        extras=modernbert_extras,
        head_bias="decoder_bias",
    ),
}
