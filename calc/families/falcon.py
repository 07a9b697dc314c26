"""The Technology Innovation Institute's families: Falcon."""

from dataclasses import replace

from calc.families.attention_rows import Attention, Either
from calc.families.family import LLAMA_ATTENTION, TWO_NORMS, Family
from calc.families.feedforward_rows import Dense, Times
from calc.families.fields import Fields, stated_or
from calc.families.gpt import BLOOM_NAMES
from calc.families.granite import BAMBA_NAMES, FF_NORMS
from calc.families.mamba import STATE_SPACES
from calc.families.recurrent_rows import BAMBA
from calc.model.conventions import Kernels

MANY = Attention(kv=None, head_dim=None, bias="bias")
FALCON_ATTENTION = Either(  # 40B and 180B group their heads; 7B has one KV head; the earliest have one for each
    "new_decoder_architecture", replace(MANY, kv="num_kv_heads"), Either("multi_query", replace(MANY, kv=1), MANY)
)


def falcon_norms(c: Fields, layer: int) -> tuple[str, ...]:
    """Norms of a layer: one, or one each for attention and feed-forward where these run in parallel."""
    if not c.flag("parallel_attn"):
        return TWO_NORMS
    number = c.maybe("num_ln_in_parallel_attn") or (2 if c.flag("new_decoder_architecture") else 1)
    return ("ln_attn", "ln_mlp") if number == 2 else ("input_layernorm",)


FALCON_7B_AND_40B = Family(
    mixer=FALCON_ATTENTION,
    ffn=Dense(stated_or("ffn_hidden_size", Times(4)), "bias", gated=False),
    norms=falcon_norms,
    norm="layer",
    names=BLOOM_NAMES,
    kernels=lambda c: Kernels(fp32_softmax=False, parallel=c.flag("new_decoder_architecture")),
)

H1_MAMBA = BAMBA.but(norm="mamba_rms_norm", out_bias="projectors_bias")

FALCON: dict[str, Family] = {
    "falcon": FALCON_7B_AND_40B,
    "RefinedWeb": FALCON_7B_AND_40B,
    "RefinedWebModel": FALCON_7B_AND_40B,
    "falcon_mamba": STATE_SPACES,
    "falcon_h1": Family(
        mixer=lambda c, layer: (LLAMA_ATTENTION(c, layer), H1_MAMBA(c)),
        norms=FF_NORMS,
        names=BAMBA_NAMES,
        kernels=Kernels(multiplied=True),
    ),
}
