"""IBM's families: Granite and Bamba."""

from dataclasses import replace

from calc.families.attention_rows import Attention, Hybrid, Listed, Sliding
from calc.families.family import GATE_UP, Family, Wrapper, made_by
from calc.families.feedforward_rows import Dense, Experts
from calc.families.fields import Fields
from calc.families.recurrent_rows import BAMBA
from calc.model.gguf_rules import GGUFRules
from calc.model.kernels import Kernels
from calc.model.names import Names

GRANITE_ATTENTION = Attention(bias="attention_bias")
SINKS_IN_WINDOWS = replace(GRANITE_ATTENTION, window=Sliding(full_every=4, full_at=0), sinks=True)
GRANITE_EXPERTS = Experts("num_local_experts", "intermediate_size", stacked="module")
SHARED_EXPERTS = replace(GRANITE_EXPERTS, shared_width="shared_intermediate_size")
GRANITE_MOE_NAMES = Names(
    router="block_sparse_moe.router.layer",
    expert="block_sparse_moe",
    shared_expert="shared_mlp",
    mlp="shared_mlp",
    recurrent="mamba",
    packed={"input_linear": GATE_UP},
    renamed={"down_proj": "output_linear"},
    expert_packed={"input_linear": GATE_UP},
    expert_renamed={"down_proj": "output_linear"},
)
SCALES = Kernels(scales_embedded=True)
FF_NORMS = ("input_layernorm", "pre_ff_layernorm")
BAMBA_NAMES = Names(recurrent="mamba", mlp="feed_forward", final_norm="model.final_layernorm")


def has_experts(c: Fields, layer: int) -> bool:
    return c.size("num_local_experts", 0) > 0


def never(c: Fields, layer: int) -> bool:
    return False


GRANITE: dict[str, Family] = made_by(
    "IBM",
    {
        "granite": Family(
            mixer=GRANITE_ATTENTION,
            ffn=Dense(),
            mixture="granitemoe",
            kernels=SCALES,
            gguf_headers="granite",
            wrappers=(Wrapper("granite_speech"), Wrapper("granite_speech_plus")),
            gguf=GGUFRules("granite"),
        ),
        "granite_swa": Family(mixer=SINKS_IN_WINDOWS, ffn=Dense(), kernels=SCALES),
        "granitemoe": Family(
            mixer=GRANITE_ATTENTION,
            ffn=GRANITE_EXPERTS,
            kernels=SCALES,
            names=GRANITE_MOE_NAMES,
            gguf=GGUFRules("granitemoe"),
        ),
        "granitemoeshared": Family(
            mixer=GRANITE_ATTENTION,
            ffn=SHARED_EXPERTS,
            kernels=SCALES,
            names=GRANITE_MOE_NAMES,
            gguf=GGUFRules("granitemoe", splits_gate_up=True),
        ),
        "granitemoe_swa": Family(
            mixer=SINKS_IN_WINDOWS,
            ffn=replace(SHARED_EXPERTS, stacked="out_in"),
            kernels=SCALES,
            names=GRANITE_MOE_NAMES.model_copy(
                update={
                    "router": "block_sparse_moe.router",
                    "expert": "block_sparse_moe.experts",
                    "expert_packed": {"gate_up_proj": GATE_UP},
                    "expert_renamed": {},
                }
            ),
        ),
        "granitemoehybrid": Family(
            mixer=Hybrid(GRANITE_ATTENTION, BAMBA, never),
            ffn=replace(SHARED_EXPERTS, sparse=has_experts, dense=Dense("shared_intermediate_size", bias=False)),
            kernels=SCALES,
            names=GRANITE_MOE_NAMES,
            gguf=GGUFRules("granitehybrid", splits_gate_up=True, heads_by_layer=True),
        ),
        "granite_docling_text": Family(
            mixer=GRANITE_ATTENTION,
            ffn=Dense(),
            kernels=SCALES,
            wrappers=(Wrapper("granite_docling"),),
        ),
        "granite4_vision_text": Family(
            mixer=GRANITE_ATTENTION,
            ffn=Dense(),
            kernels=SCALES,
            wrappers=(Wrapper("granite4_vision"),),
        ),
        "bamba": Family(
            mixer=Hybrid(GRANITE_ATTENTION, BAMBA, Listed("attn_layer_indices")),
            ffn=Dense(),
            norms=FF_NORMS,
            names=BAMBA_NAMES,
            gguf=GGUFRules("granitehybrid", heads_by_layer=True),
        ),
    },
)
