"""DeepSeek's families."""

from dataclasses import replace

from calc.errors import ConfigError, Message, shown
from calc.families.attention_rows import MLA, Attention
from calc.families.family import MTP, W123, Family, Weights
from calc.families.feedforward_rows import Dense, Experts
from calc.families.fields import Fields, kind, nearest_divisors
from calc.model.compressed_attention import CompressedAttention
from calc.model.conventions import Kernels, Names
from calc.model.feedforward import MLP, MoE
from calc.model.mixers import Mixer

DEEPSEEK_EXPERTS = Experts(
    "n_routed_experts",
    shared="n_shared_experts",
    correction="buffer",
    first_dense="first_k_dense_replace",
    dense=Dense(bias=False),
)
DEEPSEEK_V1_EXPERTS = replace(DEEPSEEK_EXPERTS, correction="none")
DEEPSEEK_V2_EXPERTS = replace(DEEPSEEK_V1_EXPERTS, shared_bias="mlp_bias", dense=Dense())  # only V2 can have biases
DEEPSEEK_MTP = MTP(MLA(), DEEPSEEK_EXPERTS, own_tables=True)  # README_WEIGHTS.md of github.com/deepseek-ai/DeepSeek-V3
DSA = MLA(indexer=True)


def owns_indexer(c: Fields, layer: int) -> bool:
    """GLM-5.2: some layers share the choice of an earlier one."""
    layers = c.size("num_hidden_layers")
    if layer >= layers:
        return True
    listed = c.per_layer("indexer_types", layers, ("full", "shared"))
    if listed is not None:
        return listed[layer] == "full"
    pattern = c.get("index_topk_pattern")
    if isinstance(pattern, str) and layer < len(pattern):
        return pattern[layer] == "F"
    freq, skip = c.maybe("index_topk_freq", 0) or 1, c.maybe("index_skip_topk_offset", 0)
    return max(layer - (2 if skip is None else skip) + 1, 0) % freq == 0


OCR = Family(
    mixer=Attention(bias="attention_bias", head_dim=None), ffn=DEEPSEEK_V2_EXPERTS, kernels=Kernels(fp32_weights=True)
)

# DeepSeek-V4

V4_NORMS = ("attn_norm", "ffn_norm")
IN_FP32 = (
    "attn_sink",
    "ape",
    *(f"hc_{at}_{leaf}" for at in ("attn", "ffn", "head") for leaf in ("fn", "base", "scale")),
)
V4_NAMES = Names(
    module="",
    embedding="embed",
    attention="attn",
    mlp="ffn",
    router="ffn.gate",
    correction="ffn.gate.bias",
    expert="ffn.experts.{expert}",
    shared_expert="ffn.shared_experts",
    lm_head="head",
    renamed=W123,
    expert_renamed=W123,
    fp8_scale_bits=8,  # powers of two: float8_e8m0
    types=dict.fromkeys(IN_FP32, "fp32") | {"tid2eid": "int64"},
)
V4_KINDS = ("sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention")
V4_RATES = {V4_KINDS[1]: ("compress_rate_csa", 4), V4_KINDS[2]: ("compress_rate_hca", 128)}
"""Kind of layer -> the field that states its rate alone, and what it is where nothing does."""
V4_RATIOS = {0: V4_KINDS[0], 4: V4_KINDS[1], 128: V4_KINDS[2]}


def v4_mixer(c: Fields, layer: int) -> Mixer:
    """Mixer by `layer_types`, by the ratios that checkpoints list, or by the class's pattern."""
    listed = c.get("layer_types")
    if isinstance(listed, list) and len(listed) == c.size("num_hidden_layers") and (word := kind(c, layer, V4_KINDS)):
        return v4_attention(c, word)
    ratios = c.get("compress_ratios")
    if isinstance(ratios, list) and layer < len(ratios):
        if type(ratios[layer]) is not int or ratios[layer] not in V4_RATIOS:
            message = Message("compress_ratios holds {ratio}; it must be 0, 4 or 128.", ratio=shown(ratios[layer]))
            raise ConfigError(message, "compress_ratios")
        return v4_attention(c, V4_RATIOS[ratios[layer]])
    return v4_attention(c, V4_KINDS[1] if layer >= 2 and layer % 2 else V4_KINDS[2])


def v4_rate(c: Fields, what: str) -> int | None:
    """Tokens of an entry, by the rate of this kind of layer, or by a table of all."""
    if what not in V4_RATES:
        return None
    field, usual = V4_RATES[what]
    return c.maybe(field) or c.section("compress_rates").maybe(what) or usual


def v4_attention(c: Fields, what: str) -> CompressedAttention:
    """Attention of a kind of layer, one object for all of them."""
    return c.once(("v4", what), lambda: v4_kind(c, what))


def v4_kind(c: Fields, what: str) -> CompressedAttention:
    """Attention of a kind of layer, by DeepSeek-V4's fields. Raises ConfigError."""
    n_q, groups = c.size("num_attention_heads"), c.size("o_groups")
    if n_q % groups:
        sentence = "o_groups is {groups:,}, which does not divide num_attention_heads {n_q:,}."
        raise ConfigError(Message(sentence, groups=groups, n_q=n_q), "o_groups", nearest_divisors(n_q, groups))
    sparse = what == "compressed_sparse_attention"
    return CompressedAttention(
        o_groups=groups,
        group_heads=n_q // groups,
        d_head=c.size("head_dim"),
        q_rank=c.size("q_lora_rank"),
        o_rank=c.size("o_lora_rank"),
        window=c.size("sliding_window"),
        rate=v4_rate(c, what),
        overlap=2 if sparse else 1,
        n_index=c.size("index_n_heads") if sparse else None,
        top_entries=c.maybe("index_topk") or CompressedAttention.model_fields["top_entries"].default,
        d_index=c.size("index_head_dim") if sparse else None,
    )


def v4_hashes(c: Fields, layer: int) -> bool:
    """The first layers choose experts by a table over the vocabulary."""
    listed = c.get("mlp_layer_types")
    if isinstance(listed, list) and layer < len(listed):
        return bool(listed[layer] == "hash_moe")
    return layer < c.size("num_hash_layers", 0)


def v4_moe(c: Fields, layer: int) -> MoE:
    """One shared expert, whatever `n_shared_experts` says."""
    width = c.size("moe_intermediate_size")
    return MoE(
        n_experts=c.size("n_routed_experts"),
        top_k=c.size("num_experts_per_tok"),
        expert=MLP(intermediate=width),
        shared=MLP(intermediate=width, bias=c.flag("mlp_bias")),
        router_correction="none" if v4_hashes(c, layer) else "buffer",
    )


def all_streams(c: Fields) -> int:
    """Width of the residual streams, joined."""
    return c.size("hc_mult") * c.size("hidden_size")


def stream_mixes(c: Fields) -> int:
    """Weights that mix the streams of one token, into the layer's input and back."""
    return c.size("hc_mult") ** 2 + 2 * c.size("hc_mult")


HYPER_CONNECTIONS = Weights(
    "other", {"fn": (stream_mixes, all_streams), "base": (stream_mixes,), "scale": (3,)}, at=("hc_attn_", "hc_ffn_")
)
"""Around attention and feed-forward, arXiv:2409.19606."""
HYPER_HEAD = Weights("other", {"fn": ("hc_mult", all_streams), "base": ("hc_mult",), "scale": (1,)}, at=("hc_head_",))
HASHES = Weights(
    "router",
    {"ffn.gate.tid2eid": ("vocab_size", "num_experts_per_tok")},
    layers=v4_hashes,
    excluded_as="persistent_buffers",
)


DEEPSEEK: dict[str, Family] = {
    "deepseek": Family(ffn=DEEPSEEK_V1_EXPERTS, kernels=Kernels(fp32_weights=True)),
    "deepseek_v2": Family(
        mixer=MLA(), ffn=DEEPSEEK_V2_EXPERTS, kernels=Kernels(fp32_weights=True, fp32_router=True, turn="complex")
    ),
    "deepseek_v3": Family(mixer=MLA(), ffn=DEEPSEEK_EXPERTS, prediction=DEEPSEEK_MTP, kernels=Kernels(turn="pairs")),
    "deepseek_v32": Family(mixer=DSA, ffn=DEEPSEEK_EXPERTS, prediction=replace(DEEPSEEK_MTP, attention=DSA)),
    "deepseek_v4": Family(
        mixer=v4_mixer,
        ffn=v4_moe,
        kernels=Kernels(fp32_weights=False),
        norms=V4_NORMS,
        names=V4_NAMES,
        extras=(HYPER_HEAD,),
        layer_extras=(HYPER_CONNECTIONS, HASHES),
        prediction=MTP(
            lambda c, layer: v4_attention(c, "sliding_attention"),
            v4_moe,
            layer_norms=V4_NORMS,
            norms=("enorm", "hnorm", "norm"),
            projection=("e_proj", "h_proj"),
            linear=True,
            layer="mtp.{layer}",
            extras=(HYPER_CONNECTIONS, HYPER_HEAD),
        ),
    ),
    "deepseek_ocr2_text": OCR,
    "unlimited_ocr_text": OCR,  # what is generated slides, the prompt stays whole
}
