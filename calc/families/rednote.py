"""rednote: dots."""

from collections.abc import Callable
from dataclasses import replace

from calc.families.attention_rows import MLA, Attention, Sliding
from calc.families.deepseek import DEEPSEEK_EXPERTS
from calc.families.family import Family, Wrapper
from calc.families.feedforward_rows import is_sparse
from calc.families.fields import PER_LAYER_CONFIG, Fields, kind
from calc.model.gguf_rules import GGUFRules
from calc.model.mixers import Mixer


def dots3_size(name: str, default: int) -> Callable[[Fields], int]:
    """A size of a sliding layer, by the name of its field."""
    return lambda c: c.maybe(f"swa_{name}", 0) or default


def dots3_window(c: Fields) -> int:
    return c.maybe("sliding_window") or c.maybe("sliding_window_size") or 512


def dots3_rope(c: Fields) -> int:
    whole = dots3_size("head_dim", 256)(c) - dots3_size("qk_nope_head_dim", 192)(c)
    return dots3_size("qk_rope_head_dim", whole)(c)


DOTS3_WINDOW = Sliding(full_every=4, full_at=1, first_full=2, when="use_sliding_window", size=dots3_window)
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
    freq = c.get("moe_layer_freq")
    if isinstance(freq, list) and layer < len(freq):
        chosen = bool(freq[layer])
    else:
        chosen = layer % (c.maybe("moe_layer_freq") or 1) == 0
    return chosen and layer >= (c.maybe("first_k_dense_replace", 0) or 0)


REDNOTE: dict[str, Family] = {
    "dots1": Family(
        maker="rednote",
        mixer=Attention(bias="attention_bias", qk_norm="head", window=Sliding(after="max_window_layers")),
        ffn=DEEPSEEK_EXPERTS,
        gguf=GGUFRules("dots1"),
    ),
    "dots3_note_text": Family(
        maker="rednote",
        mixer=dots3_mixer,
        ffn=replace(
            DEEPSEEK_EXPERTS,
            shared_width="shared_experts_intermediate_size",
            sparse=dots3_sparse,
        ),
        own={"use_sliding_window": True, "first_k_dense_replace": 1, "use_dsa": True},
        wrappers=(Wrapper("dots3_note"),),
    ),
}
