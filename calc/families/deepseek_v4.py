"""DeepSeek-V4: compressed attention and hyper-connections."""

from calc.errors import ConfigError, shown
from calc.families.family import Family, extras, near_divisors
from calc.families.fields import Fields
from calc.model.block import Block, Extra, PredictionModule
from calc.model.compressed_attention import CompressedAttention
from calc.model.feedforward import MLP, MoE
from calc.model.kernels import Kernels
from calc.model.mixers import Mixer
from calc.model.names import Names
from calc.model.tensor import Shape

V4_NORMS = ("attn_norm", "ffn_norm")
V4_NAMES = Names(
    embedding="embed",
    layer="layers.{layer}",
    attention="attn",
    mlp="ffn",
    router="ffn.gate",
    correction="ffn.gate.bias",
    expert="ffn.experts.{expert}",
    shared_expert="ffn.shared_experts",
    final_norm="norm",
    lm_head="head",
    renamed={"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"},
    expert_renamed={"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"},
)
V4_KINDS = ("sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention")


V4_RATIOS = {0: V4_KINDS[0], 4: V4_KINDS[1], 128: V4_KINDS[2]}


def v4_kind(c: Fields, layer: int) -> str:
    """By `layer_types`, by the ratios that the checkpoints list, or the class's pattern."""
    listed = c.get("layer_types")
    if isinstance(listed, list) and len(listed) == c.size("num_hidden_layers"):
        words = c.per_layer("layer_types", len(listed), V4_KINDS)
        if words:
            return words[layer]
    ratios = c.get("compress_ratios")
    if isinstance(ratios, list) and layer < len(ratios):
        if type(ratios[layer]) is not int or ratios[layer] not in V4_RATIOS:
            raise ConfigError(
                f"compress_ratios holds {shown(ratios[layer])}; it must be 0, 4 or 128.", "compress_ratios"
            )
        return V4_RATIOS[ratios[layer]]
    return V4_KINDS[1] if layer >= 2 and layer % 2 else V4_KINDS[2]


def v4_mixer(c: Fields, layer: int) -> Mixer:
    return v4_attention(c, v4_kind(c, layer))


def v4_attention(c: Fields, what: str) -> CompressedAttention:
    n_q, groups = c.size("num_attention_heads"), c.size("o_groups")
    if n_q % groups:
        raise ConfigError(
            f"o_groups is {groups:,}, which does not divide num_attention_heads {n_q:,}.",
            "o_groups",
            near_divisors(n_q, groups),
        )
    sparse = what == "compressed_sparse_attention"
    return CompressedAttention(
        o_groups=groups,
        group_heads=n_q // groups,
        d_head=c.size("head_dim"),
        q_rank=c.size("q_lora_rank"),
        o_rank=c.size("o_lora_rank"),
        window=c.size("sliding_window"),
        rate=None if what == "sliding_attention" else 4 if sparse else 128,
        overlap=2 if sparse else 1,
        n_index=c.size("index_n_heads") if sparse else None,
        d_index=c.size("index_head_dim") if sparse else None,
        top_entries=c.maybe("index_topk") or CompressedAttention.model_fields["top_entries"].default,
    )


def v4_hashes(c: Fields, layer: int) -> bool:
    """The first layers choose experts by a table over the vocabulary."""
    listed = c.get("mlp_layer_types")
    if isinstance(listed, list) and layer < len(listed):
        return bool(listed[layer] == "hash_moe")
    return layer < c.size("num_hash_layers", 0)


def v4_moe(c: Fields, layer: int) -> MoE:
    """One shared expert, whatever `n_shared_experts` says."""
    return MoE(
        n_experts=c.size("n_routed_experts"),
        top_k=c.size("num_experts_per_tok"),
        expert=MLP(intermediate=c.size("moe_intermediate_size")),
        shared=MLP(intermediate=c.size("moe_intermediate_size"), bias=c.flag("mlp_bias")),
        router_correction="none" if v4_hashes(c, layer) else "buffer",
    )


def v4_layer_extras(c: Fields, layer: int) -> tuple[Extra, ...]:
    """Hyper-connections, arXiv:2409.19606, around attention and feed-forward; and the table of hashed layers."""
    hyper = hyper_connections(c)
    if not v4_hashes(c, layer):
        return hyper
    table = (c.size("vocab_size"), c.size("num_experts_per_tok"))
    hashed = Extra(name="ffn.gate.tid2eid", shape=table, component="router", apart="persistent_buffers")
    return (*hyper, hashed)


def hyper_connections(c: Fields) -> tuple[Extra, ...]:
    streams = c.size("hc_mult")
    rows = streams * streams + 2 * streams
    shapes: dict[str, Shape] = {}
    for around in ("hc_attn", "hc_ffn"):
        shapes |= {f"{around}_fn": (rows, streams * c.size("hidden_size")), f"{around}_base": (rows,)}
        shapes |= {f"{around}_scale": (3,)}
    return extras("other", shapes)


def v4_extras(c: Fields) -> tuple[Extra, ...]:
    streams = c.size("hc_mult")
    shapes = {"fn": (streams, streams * c.size("hidden_size")), "base": (streams,), "scale": (1,)}
    return extras("other", {f"hc_head_{name}": shape for name, shape in shapes.items()})


def v4_prediction(c: Fields) -> tuple[PredictionModule, ...]:
    after, streams, hidden = c.size("num_hidden_layers"), c.size("hc_mult"), c.size("hidden_size")
    head: dict[str, Shape] = {
        "hc_head_fn": (streams, streams * hidden),
        "hc_head_base": (streams,),
        "hc_head_scale": (1,),
    }
    own = (*hyper_connections(c), *extras("other", head))
    return tuple(
        PredictionModule(
            block=Block(
                layers=(after + i,),
                mixers=(v4_attention(c, "sliding_attention"),),
                ffn=v4_moe(c, after),
                norms=V4_NORMS,
                extras=own,
            )
        )
        for i in range(c.maybe("num_nextn_predict_layers", 0) or 0)
    )


DEEPSEEK_V4: dict[str, Family] = {
    "deepseek_v4": Family(
        mixer=v4_mixer,
        ffn=v4_moe,
        kernels=Kernels(fp32_weights=False),
        norms=V4_NORMS,
        names=V4_NAMES,
        own={"num_hash_layers": 3, "compress_ratios": None},
        extras=v4_extras,
        layer_extras=v4_layer_extras,
        prediction=v4_prediction,
    ),
}
