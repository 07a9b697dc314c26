"""Models on fake CUDA tensors as QLoRA and LoRA have them: bitsandbytes' matrices of 4 bits, PEFT's adapters."""

from types import SimpleNamespace
from typing import Any

from benchmarks.oracle import fake_cuda  # noqa: F401 - before torch

# isort: split
import bitsandbytes as bnb
import torch
from bitsandbytes.functional import QuantState
from peft import LoraConfig, get_peft_model
from peft.tuners.tuners_utils import BaseTunerLayer


def quantize(model: Any) -> None:
    """Every matrix but the head in NF4 with doubly quantized scales, as bitsandbytes stores it."""
    for name, module in list(model.named_modules()):
        if type(module) is not torch.nn.Linear or name in ("lm_head", "embed_out"):
            continue
        n, (out, columns) = module.weight.numel(), module.weight.shape
        second = QuantState(torch.empty(-(-n // 2**14)), code=torch.empty(256), blocksize=256, dtype=torch.float32)
        state = QuantState(
            torch.empty(n // 64, dtype=torch.uint8),
            torch.Size((out, columns)),
            torch.empty(16),
            64,
            "nf4",
            module.weight.dtype,
            torch.empty(()),
            second,
        )
        layer = bnb.nn.Linear4bit.__new__(bnb.nn.Linear4bit)  # whose weights are of a class that can't be fake
        torch.nn.Linear.__init__(layer, columns, out, module.bias is not None)
        layer.weight = torch.nn.Parameter(torch.empty((n // 2, 1), dtype=torch.uint8), requires_grad=False)
        layer.weight.quant_state, layer.weight.quant_type, layer.weight.compress_statistics = state, "nf4", True
        layer.bias, layer.compute_dtype, layer.compute_type_is_set = module.bias, torch.bfloat16, True
        layer.quant_state, layer.support_avx512bf16_for_cpu = state, False
        layer.scales = [state.absmax, second.absmax]
        model.set_submodule(name, layer)
    model.requires_grad_(False)
    model.is_loaded_in_4bit = True
    torch.ops.bitsandbytes.gemm_4bit = SimpleNamespace(default=dequantized_product)


def dequantized_product(x: Any, packed: Any, shape: Any, *more: Any, bias: Any = None, **nested: Any) -> Any:
    """What bitsandbytes runs on CUDA for many tokens, within one operation (backends/cuda/ops.py, gemm_4bit)."""
    return torch.nn.functional.linear(x, torch.empty(shape, dtype=x.dtype, device=x.device), bias)


def widen(model: Any) -> None:
    """What PEFT 0.21's prepare_model_for_kbit_training does: all that is not quantized in fp32."""
    for weight in model.parameters():
        if weight.dtype == torch.bfloat16:
            weight.data = weight.data.to(torch.float32)


def adapted(model: Any, rank: int, dropout: float) -> Any:
    """The model with PEFT's adapters on all-linear; they are made on the device, so that nothing is to be moved."""
    BaseTunerLayer._move_adapter_to_device_of_base_layer = lambda *args, **more: None
    before, torch.nn.Module.to = torch.nn.Module.to, lambda self, *args, **more: self
    try:
        how = LoraConfig(r=rank, lora_dropout=dropout, target_modules="all-linear", task_type="CAUSAL_LM")
        return get_peft_model(model, how)
    finally:
        torch.nn.Module.to = before
