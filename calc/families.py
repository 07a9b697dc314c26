"""config -> Architecture: the one table keyed by model_type.

Defaults and shapes follow each class in Hugging Face transformers 5.23 (`configuration_*.py`, `modeling_*.py`): a field
that a config leaves out means that class's default.
"""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, Literal

from calc.architecture import Architecture, Block, PredictionModule
from calc.attention import GQA, LatentAttention, Mixer
from calc.errors import ConfigError
from calc.feedforward import MLP, FeedForward, MoE
from calc.fields import Fields, shown
from calc.frozen import Frozen
from calc.names import Names
from calc.vision import VisionTower

Projection = Literal["q_proj", "k_proj", "v_proj", "o_proj"]
QKV: frozenset[Projection] = frozenset({"q_proj", "k_proj", "v_proj"})
QKVO: frozenset[Projection] = QKV | {"o_proj"}
NO_BIAS: frozenset[Projection] = frozenset()
KINDS = ("full_attention", "sliding_attention")


class Family(Frozen):
    """How one model_type is read."""

    defaults: dict[str, Any]  # every field that decides a size, with its class's default
    mixer: Callable[[Fields, int], Mixer]  # of layer i
    ffn: Callable[[Fields, int], FeedForward]
    norms: tuple[str, ...] = ("input_layernorm", "post_attention_layernorm")
    norm_bias: bool = False
    names: Names = Names()
    aliases: dict[str, str] = {}  # other spellings that the class accepts -> its own
    layers: str = "num_hidden_layers"
    hidden: str = "hidden_size"
    positions: str | None = None  # field with the rows of a learned position table
    max_positions: str = "max_position_embeddings"
    prediction: Callable[[Fields], tuple[PredictionModule, ...]] = lambda c: ()


# Mixers


def head_dim(c: Fields) -> int:
    """head_dim where it is stated, else hidden_size / num_attention_heads, which must then come out whole."""
    stated = c.maybe("head_dim")
    if stated is not None:
        return stated
    return heads_share_hidden(c, "hidden_size", "num_attention_heads")


def heads_share_hidden(c: Fields, hidden_field: str, heads_field: str) -> int:
    hidden, heads = c.size(hidden_field), c.size(heads_field)
    if hidden % heads:
        raise ConfigError(
            f"{heads_field} is {heads:,}, which does not divide {hidden_field} {hidden:,}.",
            heads_field,
            near_divisors(hidden, heads),
        )
    return hidden // heads


def gqa(c: Fields, *, bias: frozenset[Projection] = NO_BIAS, window: int | None = None, **extra: bool) -> GQA:
    n_q = c.size("num_attention_heads")
    n_kv = c.maybe("num_key_value_heads") or n_q
    if n_q % n_kv:
        raise ConfigError(
            f"num_key_value_heads is {n_kv:,}, which does not divide num_attention_heads {n_q:,}: "
            f"every key-value head serves the same number of query heads.",
            "num_key_value_heads",
            near_divisors(n_q, n_kv),
        )
    return GQA(n_q=n_q, n_kv=n_kv, d_head=head_dim(c), bias=bias, window=window, **extra)


def gpt2_attention(c: Fields, layer: int) -> GQA:
    n_q = c.size("n_head")
    return GQA(n_q=n_q, n_kv=n_q, d_head=heads_share_hidden(c, "n_embd", "n_head"), bias=QKVO)


def mla(c: Fields, layer: int) -> LatentAttention:
    return LatentAttention(
        n_q=c.size("num_attention_heads"),
        q_rank=c.maybe("q_lora_rank"),
        kv_rank=c.size("kv_lora_rank"),
        d_nope=c.size("qk_nope_head_dim"),
        d_rope=c.size("qk_rope_head_dim"),
        d_v=c.size("v_head_dim"),
        bias=c.flag("attention_bias"),
    )


def attention_bias(c: Fields) -> frozenset[Projection]:
    return QKVO if c.flag("attention_bias") else NO_BIAS


# Windows: None where layer i keeps the whole context


def one_window(c: Fields, layer: int) -> int | None:
    """Mistral, Phi-3: `sliding_window` holds for all layers."""
    return c.maybe("sliding_window")


def qwen_window(c: Fields, layer: int) -> int | None:
    """Qwen2, Qwen3: off unless `use_sliding_window`; then from layer `max_window_layers` on."""
    if not c.flag("use_sliding_window"):
        return None
    return listed_window(c, layer, "sliding_attention" if layer >= c.size("max_window_layers", 0) else "full_attention")


def qwen2_moe_window(c: Fields, layer: int) -> int | None:
    if not c.flag("use_sliding_window"):
        return None
    slides = layer % 2 == 0 and layer < c.size("max_window_layers", 0)
    return listed_window(c, layer, "sliding_attention" if slides else "full_attention")


def qwen3_moe_window(c: Fields, layer: int) -> int | None:
    return c.maybe("sliding_window") if c.flag("use_sliding_window") else None


def alternating_window(c: Fields, layer: int) -> int | None:
    """Gemma 2, gpt-oss: every second layer slides, from the first on."""
    return listed_window(c, layer, "full_attention" if layer % 2 else "sliding_attention")


def gemma3_window(c: Fields, layer: int) -> int | None:
    """Gemma 3: five sliding layers, then a full one. Looking both ways, a window has half on each side."""
    slides = (layer + 1) % c.size("sliding_window_pattern")
    window = listed_window(c, layer, "sliding_attention" if slides else "full_attention")
    return window // 2 + 1 if window is not None and c.flag("use_bidirectional_attention") else window


def listed_window(c: Fields, layer: int, default: str) -> int | None:
    """The window of a layer by `layer_types` where the config lists them, else by the class's default pattern."""
    kinds = c.per_layer("layer_types", c.size("num_hidden_layers"), KINDS)
    return c.maybe("sliding_window") if (kinds[layer] if kinds else default) == "sliding_attention" else None


# Feed-forwards


def gated(c: Fields, layer: int) -> MLP:
    return MLP(intermediate=c.size("intermediate_size"), bias=c.flag("mlp_bias"))


def gpt2_mlp(c: Fields, layer: int) -> MLP:
    return MLP(intermediate=c.maybe("n_inner") or 4 * c.size("n_embd"), gated=False, bias=True)


def moe(c: Fields, experts: str, width: str, *, bias: bool = False, **extra: Any) -> MoE:
    n_experts, top_k = c.size(experts), c.size("num_experts_per_tok")
    if top_k > n_experts:
        raise ConfigError(
            f"num_experts_per_tok is {top_k:,}, but there are only {n_experts:,} experts ({experts}).",
            "num_experts_per_tok",
            [n_experts],
        )
    return MoE(n_experts=n_experts, top_k=top_k, expert=MLP(intermediate=c.size(width), bias=bias), **extra)


def mixtral_moe(c: Fields, layer: int) -> MoE:
    return moe(c, "num_local_experts", "intermediate_size")


def gpt_oss_moe(c: Fields, layer: int) -> MoE:
    return moe(c, "num_local_experts", "intermediate_size", bias=True, router_bias=True, stacked=True)


def qwen_is_sparse(c: Fields, layer: int) -> bool:
    step = c.size("decoder_sparse_step")
    return layer not in c.indices("mlp_only_layers") and c.size("num_experts", 0) > 0 and (layer + 1) % step == 0


def qwen3_moe_ffn(c: Fields, layer: int) -> FeedForward:
    return moe(c, "num_experts", "moe_intermediate_size") if qwen_is_sparse(c, layer) else gated(c, layer)


def qwen2_moe_ffn(c: Fields, layer: int) -> FeedForward:
    if not qwen_is_sparse(c, layer):
        return gated(c, layer)
    shared = MLP(intermediate=c.size("shared_expert_intermediate_size"))
    return moe(c, "num_experts", "moe_intermediate_size", shared=shared, shared_gate=True)


def deepseek_ffn(c: Fields, layer: int, *, router_correction: bool) -> FeedForward:
    if layer < c.size("first_k_dense_replace", 0):
        return gated(c, layer)
    n_shared = c.maybe("n_shared_experts", 0) or 0
    width = c.size("moe_intermediate_size")
    shared = MLP(intermediate=n_shared * width) if n_shared else None
    return moe(c, "n_routed_experts", "moe_intermediate_size", shared=shared, router_correction=router_correction)


def deepseek_v3_prediction(c: Fields) -> tuple[PredictionModule, ...]:
    """The layers after the last one in DeepSeek-V3's checkpoint, github.com/deepseek-ai/DeepSeek-V3 README_WEIGHTS."""
    after = c.size("num_hidden_layers")
    sparse = max(after, c.size("first_k_dense_replace", 0))
    return tuple(
        PredictionModule(
            block=Block(
                layers=(after + i,),
                mixer=mla(c, after + i),
                ffn=deepseek_ffn(c, sparse, router_correction=True),
                norms=FAMILIES["deepseek_v3"].norms,
            ),
            norms=("enorm", "hnorm", "shared_head.norm"),
            projection="eh_proj",
            embedding="embed_tokens",
            head="shared_head.head",
        )
        for i in range(c.maybe("num_nextn_predict_layers", 0) or 0)
    )


# The table

DENSE = {
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": None,
    "head_dim": None,
    "tie_word_embeddings": False,
    "max_position_embeddings": 2048,
}
MISTRAL = DENSE | {"intermediate_size": 14336, "num_key_value_heads": 8, "max_position_embeddings": 131072}
QWEN = DENSE | {
    "vocab_size": 151936,
    "intermediate_size": 22016,
    "num_key_value_heads": 32,
    "max_position_embeddings": 32768,
    "use_sliding_window": False,
    "sliding_window": None,
    "max_window_layers": 28,
    "layer_types": None,
}
QWEN_MOE = QWEN | {
    "hidden_size": 2048,
    "num_hidden_layers": 24,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "decoder_sparse_step": 1,
    "mlp_only_layers": None,
}
GEMMA = DENSE | {
    "vocab_size": 256000,
    "hidden_size": 3072,
    "intermediate_size": 24576,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "head_dim": 256,
    "tie_word_embeddings": True,
    "max_position_embeddings": 8192,
    "attention_bias": False,
}
GEMMA2 = GEMMA | {
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "sliding_window": 4096,
    "layer_types": None,
}
GEMMA3 = GEMMA2 | {
    "vocab_size": 262208,
    "max_position_embeddings": 131072,
    "sliding_window_pattern": 6,
    "use_bidirectional_attention": False,
}
DEEPSEEK = {
    "vocab_size": 102400,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "first_k_dense_replace": 0,
    "n_routed_experts": 64,
    "num_experts_per_tok": None,
    "n_shared_experts": 2,
    "moe_intermediate_size": 1407,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "max_position_embeddings": 2048,
}
GEMMA_NORMS = (
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
)
FAMILIES: dict[str, Family] = {
    "llama": Family(
        defaults=DENSE | {"attention_bias": False, "mlp_bias": False},
        mixer=lambda c, i: gqa(c, bias=attention_bias(c)),
        ffn=gated,
    ),
    "mistral": Family(
        defaults=MISTRAL | {"sliding_window": 4096},
        mixer=lambda c, i: gqa(c, window=one_window(c, i)),
        ffn=gated,
    ),
    "mixtral": Family(
        defaults=MISTRAL | {"sliding_window": None, "num_local_experts": 8, "num_experts_per_tok": 2},
        mixer=lambda c, i: gqa(c, window=one_window(c, i)),
        ffn=mixtral_moe,
        names=Names(
            router="block_sparse_moe.gate",
            expert="block_sparse_moe.experts.{expert}",
            renamed={"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"},
        ),
        aliases={"num_experts": "num_local_experts"},
    ),
    "qwen2": Family(
        defaults=QWEN,
        mixer=lambda c, i: gqa(c, bias=QKV, window=qwen_window(c, i)),
        ffn=gated,
    ),
    "qwen3": Family(
        defaults=QWEN | {"head_dim": 128, "attention_bias": False},
        mixer=lambda c, i: gqa(c, bias=attention_bias(c), window=qwen_window(c, i), qk_norm=True),
        ffn=gated,
    ),
    "qwen2_moe": Family(
        defaults=QWEN_MOE
        | {
            "intermediate_size": 5632,
            "num_attention_heads": 16,
            "num_key_value_heads": 16,
            "moe_intermediate_size": 1408,
            "num_experts": 60,
            "num_experts_per_tok": 4,
            "shared_expert_intermediate_size": 5632,
            "qkv_bias": True,
        },
        mixer=lambda c, i: gqa(c, bias=QKV if c.flag("qkv_bias") else NO_BIAS, window=qwen2_moe_window(c, i)),
        ffn=qwen2_moe_ffn,
        names=Names(shared_expert="mlp.shared_expert"),
    ),
    "qwen3_moe": Family(
        defaults=QWEN_MOE | {"intermediate_size": 6144, "num_key_value_heads": 4, "attention_bias": False},
        mixer=lambda c, i: gqa(c, bias=attention_bias(c), window=qwen3_moe_window(c, i), qk_norm=True),
        ffn=qwen3_moe_ffn,
        aliases={"num_local_experts": "num_experts"},
    ),
    "gemma": Family(
        defaults=GEMMA,
        mixer=lambda c, i: gqa(c, bias=attention_bias(c)),
        ffn=gated,
    ),
    "gemma2": Family(
        defaults=GEMMA2,
        mixer=lambda c, i: gqa(c, bias=attention_bias(c), window=alternating_window(c, i)),
        ffn=gated,
        norms=GEMMA_NORMS,
    ),
    "gemma3_text": Family(
        defaults=GEMMA3,
        mixer=lambda c, i: gqa(c, bias=attention_bias(c), window=gemma3_window(c, i), qk_norm=True),
        ffn=gated,
        norms=GEMMA_NORMS,
    ),
    "phi3": Family(
        defaults=DENSE
        | {
            "vocab_size": 32064,
            "hidden_size": 3072,
            "intermediate_size": 8192,
            "sliding_window": None,
            "max_position_embeddings": 4096,
        },
        mixer=lambda c, i: gqa(c, window=one_window(c, i)),
        ffn=gated,
        names=Names(packed={"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}),
    ),
    "gpt2": Family(
        defaults={
            "vocab_size": 50257,
            "n_embd": 768,
            "n_layer": 12,
            "n_head": 12,
            "n_inner": None,
            "n_positions": 1024,
            "tie_word_embeddings": True,
        },
        mixer=gpt2_attention,
        ffn=gpt2_mlp,
        norms=("ln_1", "ln_2"),
        norm_bias=True,
        names=Names(
            embedding="transformer.wte",
            positions="transformer.wpe",
            layer="transformer.h.{layer}",
            attention="attn",
            final_norm="transformer.ln_f",
            packed={"c_attn": ("q_proj", "k_proj", "v_proj")},
            renamed={"o_proj": "c_proj", "up_proj": "c_fc", "down_proj": "c_proj"},
            transposed=True,
        ),
        aliases={
            "hidden_size": "n_embd",
            "num_hidden_layers": "n_layer",
            "num_attention_heads": "n_head",
            "max_position_embeddings": "n_positions",
        },
        layers="n_layer",
        hidden="n_embd",
        positions="n_positions",
        max_positions="n_positions",
    ),
    "deepseek_v2": Family(
        defaults=DEEPSEEK | {"mlp_bias": False},
        mixer=mla,
        ffn=lambda c, i: deepseek_ffn(c, i, router_correction=False),
        aliases={"num_experts": "n_routed_experts"},
    ),
    "deepseek_v3": Family(
        defaults=DEEPSEEK
        | {
            "vocab_size": 129280,
            "hidden_size": 7168,
            "intermediate_size": 18432,
            "num_hidden_layers": 61,
            "num_attention_heads": 128,
            "first_k_dense_replace": 3,
            "n_routed_experts": 256,
            "num_experts_per_tok": 8,
            "n_shared_experts": 1,
            "moe_intermediate_size": 2048,
            "num_nextn_predict_layers": 1,
            "max_position_embeddings": 4096,
        },
        mixer=mla,
        ffn=lambda c, i: deepseek_ffn(c, i, router_correction=True),
        aliases={"num_local_experts": "n_routed_experts", "num_mtp_layers": "num_nextn_predict_layers"},
        prediction=deepseek_v3_prediction,
    ),
    "gpt_oss": Family(
        defaults={
            "vocab_size": 201088,
            "hidden_size": 2880,
            "intermediate_size": 2880,
            "num_hidden_layers": 36,
            "num_attention_heads": 64,
            "num_key_value_heads": 8,
            "head_dim": 64,
            "num_local_experts": 128,
            "num_experts_per_tok": 4,
            "sliding_window": 128,
            "layer_types": None,
            "tie_word_embeddings": False,
            "attention_bias": True,
            "max_position_embeddings": 131072,
        },
        mixer=lambda c, i: gqa(c, bias=attention_bias(c), window=alternating_window(c, i), sinks=True),
        ffn=gpt_oss_moe,
        names=Names(router="mlp.router", expert="mlp.experts", packed={"gate_up_proj": ("gate_proj", "up_proj")}),
        aliases={"num_experts": "num_local_experts"},
    ),
}
WRAPPERS = {"gemma3": "gemma3_text"}
"""model_type of a model that wraps a language model in `text_config` -> that language model's own model_type."""


# The door


def read(config: Mapping[str, Any]) -> Architecture:
    """The Architecture that a `config.json`-shaped dict describes. Raises ConfigError."""
    family, c, model_type = _open(config)
    layers = c.size(family.layers)
    parts = [(family.mixer(c, i), family.ffn(c, i)) for i in range(layers)]
    alike: dict[tuple[Mixer, FeedForward], list[int]] = {}
    for i, part in enumerate(parts):
        alike.setdefault(part, []).append(i)
    return Architecture(
        model_type=model_type,
        hidden=c.size(family.hidden),
        vocab=c.size("vocab_size"),
        tied=c.flag("tie_word_embeddings"),
        blocks=tuple(
            Block(layers=tuple(where), mixer=mixer, ffn=ffn, norms=family.norms, norm_bias=family.norm_bias)
            for (mixer, ffn), where in alike.items()
        ),
        names=family.names,
        positions=c.size(family.positions) if family.positions else 0,
        max_positions=c.maybe(family.max_positions),
        prediction=family.prediction(c),
        vision=_vision(config.get("vision_config")),
    )


def settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Every field that decides a size for this family, under the config's own names, as the class sees it."""
    family, c, _ = _open(config)
    values = {name: c.get(name) for name in family.defaults}
    if "head_dim" in values and values["head_dim"] is None:
        values["head_dim"] = c.size("hidden_size") // c.size("num_attention_heads")
    if "num_key_value_heads" in values and values["num_key_value_heads"] is None:
        values["num_key_value_heads"] = values["num_attention_heads"]
    if "n_inner" in values and values["n_inner"] is None:
        values["n_inner"] = 4 * c.size("n_embd")
    return values


def override(config: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The config with some fields changed; a list with one word for each layer continues its pattern.

    Raises ConfigError for a field that this family does not read.
    """
    family, c, _ = _open(config)
    own = {family.aliases.get(name, name): value for name, value in changes.items()}
    for name in own:
        if name not in family.defaults and name not in c.stated:
            close = get_close_matches(name, family.defaults, n=3, cutoff=0.5)
            known = ", ".join(close or list(family.defaults))
            raise ConfigError(f"{shown(name)} is not a field that decides this model's size. Try {known}.", name, close)
    merged = {**c.stated, **own}
    layers = merged.get(family.layers)
    kinds = c.stated.get("layer_types")
    if "layer_types" not in own and isinstance(kinds, list) and kinds and type(layers) is int and 0 < layers <= 4096:
        merged["layer_types"] = continued(kinds, layers)
    return {**config, "text_config": merged} if "text_config" in config else merged


def continued(words: list[Any], length: int) -> list[Any]:
    """The list cut or prolonged to `length` by its shortest repeating pattern."""
    period = next(p for p in range(1, len(words) + 1) if all(words[i] == words[i % p] for i in range(len(words))))
    return [words[i % period] for i in range(length)]


def near_divisors(of: int, near: int) -> list[int]:
    """The closest divisor of a number on each side of a value that does not divide it."""
    divisors = [d for d in range(1, min(of, 65536) + 1) if of % d == 0]
    below, above = [d for d in divisors if d < near], [d for d in divisors if d > near]
    return below[-1:] + above[:1]


def _open(config: Mapping[str, Any]) -> tuple[Family, Fields, str]:
    if not isinstance(config, Mapping):
        raise ConfigError(f"A config must be an object of fields, as config.json is; this is {shown(config)}.")
    model_type, text = config.get("model_type"), config
    if isinstance(model_type, str) and model_type in WRAPPERS:
        text, model_type = config.get("text_config") or {}, WRAPPERS[model_type]
        if not isinstance(text, Mapping):
            raise ConfigError(f"text_config is {shown(text)}; it must be an object of fields.", "text_config")
    if not isinstance(model_type, str):
        raise ConfigError("The config does not say its model_type, for instance “llama” or “qwen3”.", "model_type")
    if model_type not in FAMILIES:
        close = get_close_matches(model_type, FAMILIES, n=3)
        known = ", ".join(sorted({*FAMILIES, *WRAPPERS}))
        raise ConfigError(f"The family {shown(model_type)} is not one we know. We know {known}.", "model_type", close)
    family = FAMILIES[model_type]
    return family, Fields(text, family.defaults, family.aliases), model_type


def _vision(config: Any) -> VisionTower | None:
    """The image tower of a wrapper, with the defaults of transformers' SiglipVisionConfig."""
    if config is None:
        return None
    if not isinstance(config, Mapping):
        raise ConfigError(f"vision_config is {shown(config)}; it must be an object of fields.", "vision_config")
    siglip = {
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_hidden_layers": 12,
        "image_size": 224,
        "patch_size": 16,
        "num_channels": 3,
        "vision_use_head": True,
    }
    c = Fields(config, siglip, {})
    return VisionTower(
        hidden=c.size("hidden_size"),
        intermediate=c.size("intermediate_size"),
        num_layers=c.size("num_hidden_layers"),
        image_size=c.size("image_size"),
        patch_size=c.size("patch_size"),
        channels=c.size("num_channels"),
        pooling_head=c.flag("vision_use_head"),
    )
