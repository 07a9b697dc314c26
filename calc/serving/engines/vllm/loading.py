"""Weights in vLLM: what it fuses, and how its kernels pad routed experts in MXFP4 (`oracle/mxfp4.py`)."""

from calc.hardware.gpu import GPU
from calc.model.architecture import Architecture
from calc.serving.engines.loading import ExpertPadding
from calc.serving.engines.vllm.kernels import capability
from calc.serving.engines.vllm.layers import habits
from calc.serving.engines.vllm.options import VLLMOptions, holds

FUSED = {
    **dict.fromkeys(("q_proj", "k_proj", "v_proj", "query", "key", "value"), "qkv_proj"),
    **dict.fromkeys(("gate_proj", "up_proj", "w1", "w3"), "gate_up_proj"),
    **dict.fromkeys(("q_a_proj", "kv_a_proj_with_mqa"), "fused_qkv_a_proj"),
    **dict.fromkeys(("in_proj_qkv", "in_proj_z"), "in_proj_qkvz"),
    **dict.fromkeys(("in_proj_b", "in_proj_a"), "in_proj_ba"),
}
"""Modules fused in vLLM -> the whole."""
MARLIN = ExpertPadding(hidden=256, inner=128)
TRITON = ExpertPadding(inner=64, scale_rows=256, fp32_bias=True)
"""`triton_kernels`, which come with vLLM: `hopper_value.py`, `hopper_scale.py` with eight warps."""
PADDED_ROW = 64
"""Bytes of which a row of values is a multiple in the `triton_kernels` of 0.17 to 0.21."""


def expert_padding(options: VLLMOptions) -> ExpertPadding:
    """Padding of experts by the kernel in the options."""
    if options.mxfp4_kernel != "triton":
        return MARLIN
    padded = holds("rows of experts are padded", options) and not holds("rows of experts are as they are", options)
    return TRITON._replace(
        row_bytes=PADDED_ROW if padded else 1,
        keeps_scales=not holds("scales of experts are freed", options),
    )


def runs_triton(options: VLLMOptions, architecture: Architecture, gpu: GPU) -> bool:
    """Whether Triton runs where no option says so: with gpt-oss on Hopper, whose adapters Marlin serves."""
    hopper = capability(gpu) == (9, 0) and holds("Triton comes with it", options)
    return hopper and habits(architecture).triton_experts and not options.enable_lora
