"""What optimizers remember of each weight."""

from math import prod
from typing import Literal

from calc.model.tensor import Tensor

Optimizer = Literal["adamw", "adamw-8bit", "adamw-8bit-ao", "adafactor", "muon", "sgd", "sgd-momentum"]
BLOCK = 256  # weights that share a scale of their 8-bit state
LEAST_QUANTISED = 4096  # elements; smaller tensors keep 32-bit states


def state_bytes(optimizer: Optimizer, tensor: Tensor, width: int) -> int:
    """Bytes of state of one occurrence of a tensor, an element of a moment taking `width`."""
    shape, n = tensor.shape, tensor.numel
    matters = matrix_dimensions(tensor)
    match optimizer:
        case "sgd":
            return 0
        case "sgd-momentum":
            return n * width
        case "adamw":  # both moments: arXiv:1711.05101
            return 2 * n * width
        case "adamw-8bit" | "adamw-8bit-ao":  # block-wise, with an fp32 scale a block: arXiv:2110.02861 section 2
            return 2 * (n + 4 * -(-n // BLOCK)) if n >= LEAST_QUANTISED else 8 * n
        case "adafactor":  # sums of rows and of columns, in fp32: arXiv:1804.04235 section 3
            return 4 * (prod(shape[:-1]) + prod(shape[:-2]) * shape[-1] if matters else n)
        case "muon":  # one momentum for the layers' matrices, Adam for all else: arXiv:2502.16982 section 2
            hidden = matters and tensor.layers
            return n * width if hidden else 2 * n * width


def step_bytes(optimizer: Optimizer, elements: int) -> int:
    """Bytes beside while one tensor is updated: torchao computes on fp32 copies (`single_param_adam`), assumed to be
    those of the weight and both moments; bitsandbytes and fused kernels in registers."""
    return 12 * elements if optimizer == "adamw-8bit-ao" else 0


def matrix_dimensions(tensor: Tensor) -> bool:
    """Whether it is a matrix, or a stack of them."""
    return len(tensor.shape) >= 2
