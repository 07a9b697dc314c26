"""Which weights have adapters, as PEFT chooses them."""

from collections.abc import Iterator
from dataclasses import replace

from calc.formats import BITSANDBYTES, Precision
from calc.model.architecture import Architecture
from calc.model.tensor import Component, Tensor
from calc.training.training_workload import LoraTargets, TrainingWorkload

ADAPTED: dict[LoraTargets, frozenset[Component]] = {
    "all": frozenset({"attention", "mlp", "experts_shared", "ssm_linear", "other"}),
    "dense": frozenset({"attention", "mlp", "experts_shared", "ssm_linear", "other"}),
    "attention": frozenset({"attention"}),
    "qv": frozenset({"attention"}),
}
FEEDFORWARD = ("gate_proj", "up_proj", "down_proj")
STACKED = frozenset(
    "minimax minimax_m2 afmoe deepseek_v2 deepseek_v3 deepseek_v32 dots1 ernie4_5_moe glm4_moe glm4_moe_lite "
    "glm_moe_dsa glm4v_moe longcat_flash solar_open mellum qwen3_moe qwen3_omni_moe qwen3_next hunyuan_v1_moe "
    "flex_olmo olmoe exaone_moe cohere2_moe mixtral".split()
)
"""Families whose stacks of experts "all-linear" takes in, with the router, and with names that so no longer stand for
dense matrices beside them (PEFT 0.21.2, `utils/transformers_weight_conversion.py`)."""


def adapts_experts(model: Architecture, work: TrainingWorkload) -> bool:
    """Whether routed experts and routers have adapters."""
    return not work.trains_base and work.lora_targets == "all" and model.model_type in STACKED and has_experts(model)


def plain_experts(work: TrainingWorkload, base: Precision) -> bool:
    """Whether routed experts stay in 16 bits beside a base that bitsandbytes quantizes: it replaces `nn.Linear` only
    (transformers 5.23, `integrations/bitsandbytes.py`), and stacked experts are none."""
    return work.method == "qlora" and base.weights in BITSANDBYTES and not work.quantized_experts


def has_experts(model: Architecture) -> bool:
    return any(block.ffn is not None and block.ffn.kind == "moe" for block in model.all_blocks)


def adapted_matrices(model: Architecture, work: TrainingWorkload) -> frozenset[str]:
    """Local names of the matrices that have adapters, routed experts aside."""
    if work.lora_targets == "qv":
        return frozenset({"q_proj", "v_proj"})
    names = {name.split(".")[0] for block in model.all_blocks for mixer in block.mixers for name in mixer.shapes(1)}
    if work.lora_targets == "attention":
        return frozenset(names)
    names |= {tensor.name.split(".")[-2] for tensor in model.tensors() if is_other_matrix(tensor)}
    return frozenset(names if adapts_experts(model, work) else {*names, *FEEDFORWARD, "in_proj", "shared_expert_gate"})


def is_other_matrix(tensor: Tensor) -> bool:
    """Whether it is the weight of an `nn.Linear` outside mixers and feed-forwards."""
    return tensor.component == "other" and len(tensor.shape) == 2 and tensor.name.endswith(".weight")


def trained_of(rank: Architecture, tensor: Tensor, work: TrainingWorkload) -> Iterator[Tensor]:
    """What is trained of a weight: itself, or the two matrices that LoRA puts beside it, [rank, in] and [out, rank]
    (arXiv:2106.09685 section 4.1)."""
    if work.trains_base:
        yield tensor
    elif adapts_experts(rank, work) and tensor.component in ("experts_routed", "router"):
        yield from adapters_of_experts(tensor, work.lora_rank)
    elif has_adapter(rank, tensor, work):
        out, width = tensor.shape
        yield replace(tensor, name=f"{tensor.name}.lora_A", shape=(work.lora_rank, width))
        yield replace(tensor, name=f"{tensor.name}.lora_B", shape=(out, work.lora_rank))


def has_adapter(rank: Architecture, tensor: Tensor, work: TrainingWorkload) -> bool:
    """Whether a matrix outside the routed experts has one."""
    targets = work.lora_targets
    if len(tensor.shape) != 2 or tensor.component not in ADAPTED[targets]:
        return False
    if tensor.component == "other":
        return is_other_matrix(tensor)
    if tensor.component in ("mlp", "experts_shared"):
        return not adapts_experts(rank, work)
    return targets != "qv" or tensor.name.split(".")[-2] in queries_and_values(rank)


def adapters_of_experts(tensor: Tensor, r: int) -> Iterator[Tensor]:
    """Of a router, or of an expert's matrix: gate and up are stacked in one, whose rank is twice as large, so that each
    has an output as wide as both."""
    if len(tensor.shape) == 2:
        out, width = tensor.shape
        yield replace(tensor, name=f"{tensor.name}.lora_A", shape=(r, width))
        doubled = tensor.component == "experts_routed" and not tensor.name.endswith(("down_proj.weight", "w2.weight"))
        yield replace(tensor, name=f"{tensor.name}.lora_B", shape=(out, 2 * r if doubled else r))


def queries_and_values(rank: Architecture) -> set[str]:
    """What checkpoints call the projections of queries and values, or the one that holds both."""
    names, wanted = rank.names, ("q_proj", "v_proj")
    packed = [name for name, parts in names.packed.items() if set(wanted) & set(parts)]
    return {*packed, *(names.renamed.get(name, name) for name in wanted)}
