"""What optimizers remember of each weight, and what they need for a moment to update it."""

from math import prod
from typing import Literal

from calc.model.tensor import Tensor

Optimizer = Literal["adamw", "adamw-8bit", "adamw-8bit-ao", "adafactor", "muon", "sgd", "sgd-momentum"]
OptimizerKernel = Literal["foreach", "for-loop", "fused"]
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
        case "adamw-8bit" if tensor.component == "embedding":  # transformers' Trainer overrides it (create_optimizer)
            return 8 * n
        case "adamw-8bit" | "adamw-8bit-ao":  # block-wise, with an fp32 scale a block: arXiv:2110.02861 section 2
            return 2 * (n + 4 * -(-n // BLOCK)) if n >= LEAST_QUANTISED else 8 * n
        case "adafactor":  # sums of rows and of columns, in fp32: arXiv:1804.04235 section 3
            return 4 * (prod(shape[:-1]) + prod(shape[:-2]) * shape[-1] if matters else n)
        case "muon":  # one momentum for the layers' matrices, Adam for all else: arXiv:2502.16982 section 2
            hidden = matters and tensor.layers
            return n * width if hidden else 2 * n * width


def update_bytes(
    optimizer: Optimizer, kernel: OptimizerKernel, elements: int, largest: int, weight: int, state: int
) -> int:
    """Bytes that the update needs for a moment: `elements` are all that are trained, `largest` those of the largest
    tensor; an element of a weight takes `weight`, of a moment `state`.

    AdamW foreach holds the square roots of all second moments at once, for-loop that of one tensor and its quotient
    (`torch/optim/adam.py`). transformers' Adafactor holds two fp32 tensors, and of 16-bit weights copies of weight and
    gradient (`optimization.py`). torchao computes on fp32 copies (`single_param_adam`), assumed to be those of the
    weight and both moments; bitsandbytes and fused kernels in registers.
    """
    match optimizer, kernel:
        case "adamw", "foreach":
            return elements * state
        case "adamw", "for-loop":
            return 2 * largest * state
        case "adafactor", _:
            return (16 if weight < 4 else 8) * largest
        case "adamw-8bit-ao", _:
            return 12 * largest
        case _:
            return 0


def matrix_dimensions(tensor: Tensor) -> bool:
    """Whether it is a matrix, or a stack of them."""
    return len(tensor.shape) >= 2
