"""MiniMax' families."""

from calc.families.attention_rows import Attention, Every, Hybrid
from calc.families.family import Family, Wrapper, extras, made_by
from calc.families.feedforward_rows import Dense, Experts, is_sparse
from calc.families.fields import Fields, kind
from calc.families.mistral import MIXTRAL_NAMES
from calc.families.rotary import Rotary
from calc.model.attention import BlockIndexer
from calc.model.block import Extra
from calc.model.gguf_rules import GGUFRules
from calc.model.kernels import Kernels
from calc.model.linear_attention import LightningAttention
from calc.model.mixers import Mixer

PLAIN = Attention()


def lightning(c: Fields, layer: int = 0) -> LightningAttention:
    attention = PLAIN(c)
    return LightningAttention(n_heads=attention.n_q, d_head=attention.d_head, chunk=c.maybe("block_size") or 256)


MINIMAX_MIXER = Hybrid(PLAIN, lightning, Every(2, at=0))


def lightning_decays(c: Fields, layer: int) -> tuple[Extra, ...]:
    """The decays of lightning attention, computed once and kept as buffers."""
    if MINIMAX_MIXER.is_attention(c, layer):
        return ()
    n, block = c.size("num_attention_heads"), c.size("block_size")
    shapes = {
        "self_attn.slope_rate": (n, 1, 1),
        "self_attn.query_decay": (n, block, 1),
        "self_attn.key_decay": (n, block, 1),
        "self_attn.diagonal_decay": (1, n, block, block),
    }
    return extras("ssm_linear", shapes, excluded_as="persistent_buffers")


M3_ATTENTION = Attention(qk_norm="head")


def m3_attention(c: Fields, layer: int) -> Mixer:
    """Some layers of MiniMax-M3 attend to blocks that an indexer picks."""
    stated = c.get("sparse_attention_config")
    section = c.within(stated) if isinstance(stated, dict) else c
    word = kind(c, layer)
    freq = section.get("sparse_attention_freq")
    picks = isinstance(freq, list) and layer < len(freq) and bool(freq[layer])
    attention = M3_ATTENTION(c, layer)
    if not (picks if word is None else word == "minimax_m3_sparse"):
        return attention
    n_index = section.maybe("sparse_num_index_heads") or c.size("index_n_heads")
    d_index = section.maybe("sparse_index_dim") or c.size("index_head_dim")
    blocks = section.maybe("sparse_topk_blocks") or c.maybe("index_topk_blocks") or 16
    size = section.maybe("sparse_block_size") or c.maybe("index_block_size") or 128
    indexer = BlockIndexer(n_index=n_index, d_index=d_index, top_tokens=blocks * size)
    return attention.model_copy(update={"indexer": indexer})


def m3_sparse(c: Fields, layer: int) -> bool:
    freq = c.get("moe_layer_freq")
    if isinstance(freq, list) and layer < len(freq):
        return bool(freq[layer])
    return is_sparse(c, layer, 0)


MINIMAX: dict[str, Family] = made_by(
    "MiniMax",
    {
        "minimax": Family(
            mixer=MINIMAX_MIXER,
            ffn=Experts("num_local_experts", "intermediate_size"),
            names=MIXTRAL_NAMES.model_copy(update={"recurrent": "self_attn"}),
            layer_extras=lightning_decays,
            rotary=Rotary(share=0.5),
            kernels=Kernels(normed_stream=True),
        ),
        "minimax_m2": Family(
            mixer=Attention(qk_norm="full"),
            ffn=Experts("num_local_experts", "intermediate_size", correction="buffer"),
            names=MIXTRAL_NAMES,
            rotary=Rotary(share=0.5),
            kernels=Kernels(fp32_router=False),
            gguf=GGUFRules("minimax-m2"),
        ),
        "minimax_m3_vl_text": Family(
            mixer=m3_attention,
            ffn=Experts(
                "num_local_experts",
                "intermediate_size",
                shared="n_shared_experts",
                shared_width="shared_intermediate_size",
                correction="buffer",
                sparse=m3_sparse,
                dense=Dense("dense_intermediate_size"),
            ),
            own={"n_shared_experts": 1},
            names=MIXTRAL_NAMES.model_copy(update={"shared_expert": "block_sparse_moe.shared_experts"}),
            wrappers=(Wrapper("minimax_m3_vl"), Wrapper("minimax_m3")),
        ),
    },
)
