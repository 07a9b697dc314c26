"""MiniMax' families."""

from calc.families.attention_rows import Attention, Every, Hybrid
from calc.families.family import Family, Weights
from calc.families.feedforward_rows import Dense, Experts
from calc.families.fields import Fields, kind
from calc.families.mistral import MIXTRAL_NAMES
from calc.families.rotary import Rotary
from calc.model.attention import BlockIndexer
from calc.model.conventions import Kernels
from calc.model.linear_attention import LightningAttention
from calc.model.mixers import Mixer

PLAIN = Attention()


def lightning(c: Fields, layer: int = 0) -> LightningAttention:
    """Linear attention with as many heads as attention, and blocks of `block_size` tokens."""
    attention = PLAIN(c)
    return LightningAttention(n_heads=attention.n_q, d_head=attention.d_head, chunk=c.maybe("block_size") or 256)


MINIMAX_MIXER = Hybrid(PLAIN, lightning, Every(2, at=0))


LIGHTNING_DECAYS = Weights(  # computed once and kept as buffers
    "ssm_linear",
    {
        "slope_rate": ("num_attention_heads", 1, 1),
        "query_decay": ("num_attention_heads", "block_size", 1),
        "key_decay": ("num_attention_heads", "block_size", 1),
        "diagonal_decay": (1, "num_attention_heads", "block_size", "block_size"),
    },
    layers=lambda c, layer: not MINIMAX_MIXER.is_attention(c, layer),
    excluded_as="persistent_buffers",
    at=("self_attn.",),
)

M3_ATTENTION = Attention(qk_norm="head")


def m3_attention(c: Fields, layer: int) -> Mixer:
    """Some layers of MiniMax-M3 attend to blocks that an indexer picks."""
    stated = c.get("sparse_attention_config")
    section = c.within(stated) if isinstance(stated, dict) else c
    word = kind(c, layer)
    picks = section.mark("sparse_attention_freq", layer)
    attention = M3_ATTENTION(c, layer)
    if not (picks if word is None else word == "minimax_m3_sparse"):
        return attention
    n_index = section.maybe("sparse_num_index_heads") or c.size("index_n_heads")
    d_index = section.maybe("sparse_index_dim") or c.size("index_head_dim")
    blocks = section.maybe("sparse_topk_blocks") or c.maybe("index_topk_blocks") or 16
    size = section.maybe("sparse_block_size") or c.maybe("index_block_size") or 128
    indexer = BlockIndexer(n_index=n_index, d_index=d_index, top_tokens=blocks * size)
    return attention.model_copy(update={"indexer": indexer})


MINIMAX: dict[str, Family] = {
    "minimax": Family(
        mixer=MINIMAX_MIXER,
        ffn=Experts("num_local_experts", "intermediate_size"),
        names=MIXTRAL_NAMES.but(recurrent="self_attn"),
        layer_extras=(LIGHTNING_DECAYS,),
        rotary=Rotary(share=0.5),
        kernels=Kernels(normed_stream=True),
    ),
    "minimax_m2": Family(
        mixer=Attention(qk_norm="full"),
        ffn=Experts("num_local_experts", "intermediate_size", correction="buffer"),
        names=MIXTRAL_NAMES,
        rotary=Rotary(share=0.5),
        kernels=Kernels(fp32_router=False),
    ),
    "minimax_m3_vl_text": Family(
        mixer=m3_attention,
        ffn=Experts(
            "num_local_experts",
            "intermediate_size",
            shared="n_shared_experts",
            shared_width="shared_intermediate_size",
            correction="buffer",
            marks="moe_layer_freq",
            first_dense=0,
            dense=Dense("dense_intermediate_size"),
        ),
        names=MIXTRAL_NAMES.but(shared_expert="block_sparse_moe.shared_experts"),
    ),
}
