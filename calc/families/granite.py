"""IBM's families: Granite and Bamba."""

from dataclasses import replace

from calc.families.attention_rows import Hybrid, Listed, Sliding
from calc.families.family import GATE_UP, LLAMA_ATTENTION, Family
from calc.families.feedforward_rows import Dense, Experts
from calc.families.fields import Fields
from calc.families.recurrent_rows import BAMBA
from calc.families.rotary import WHOLE_HEAD, Rotary
from calc.model.conventions import Kernels, Names

SINKS_IN_WINDOWS = replace(LLAMA_ATTENTION, window=Sliding(full_every=4, full_at=0), sinks=True)
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
BAMBA_NAMES = Names(recurrent="mamba", mlp="feed_forward", final_norm="final_layernorm")


def stated_rotary(c: Fields) -> Rotary | None:
    """Rotary positions where a config asks for them; Granite 4.0's hybrids have none ("nope"): transformers 5.24
    `GraniteMoeHybridModel`, vLLM 0.33 and SGLang 0.5.23 `granitemoehybrid.py`, llama.cpp `GraniteHybridModel`."""
    return WHOLE_HEAD if c.get("position_embedding_type") == "rope" else None


GRANITE_MOE = Family(ffn=GRANITE_EXPERTS, kernels=SCALES, names=GRANITE_MOE_NAMES)

GRANITE: dict[str, Family] = {
    "granite": Family(mixture="granitemoe", kernels=SCALES),
    "granite_swa": Family(mixer=SINKS_IN_WINDOWS, kernels=SCALES),
    "granitemoe": GRANITE_MOE,
    "granitemoeshared": replace(GRANITE_MOE, ffn=SHARED_EXPERTS),
    "granitemoe_swa": Family(
        mixer=SINKS_IN_WINDOWS,
        ffn=replace(SHARED_EXPERTS, stacked="out_in"),
        kernels=SCALES,
        names=GRANITE_MOE_NAMES.but(
            router="block_sparse_moe.router",
            expert="block_sparse_moe.experts",
            expert_packed={"gate_up_proj": GATE_UP},
            expert_renamed={},
        ),
    ),
    "granitemoehybrid": replace(
        GRANITE_MOE,
        mixer=Hybrid(LLAMA_ATTENTION, BAMBA, lambda c, layer: False),
        ffn=replace(
            SHARED_EXPERTS,
            sparse=lambda c, layer: c.size("num_local_experts", 0) > 0,
            dense=Dense("shared_intermediate_size", bias=False),
        ),
        rotary=stated_rotary,
    ),
    "granite_docling_text": Family(kernels=SCALES),
    "granite4_vision_text": Family(kernels=SCALES),
    "bamba": Family(
        mixer=Hybrid(LLAMA_ATTENTION, BAMBA, Listed("attn_layer_indices")), norms=FF_NORMS, names=BAMBA_NAMES
    ),
}
