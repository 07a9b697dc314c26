"""Storage formats of one matrix: bytes of its weights and of its scales."""

from dataclasses import dataclass, replace
from math import prod
from typing import Literal, get_args

from calc.errors import Message
from calc.formats.format_names import MLX_FORMATS, MixFormat, WeightFormat
from calc.model.tensor import FixedDtype, Shape

Tool = Literal["awq", "gptq", "compressed-tensors", "modelopt"]
"""Tools whose integers with a scale for each group of inputs, or fp8 with one for a matrix, engines read by ways of
their own."""
INDEX_BITS = 32
"""Bits of GPTQ's index of the group that an input belongs to."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Format:
    """Storage of a matrix [out, in]: `bits` a weight, and a scale (and zero point) for each block of it."""

    bits: int
    block: tuple[int | None, int | None] = (1, None)  # rows x columns that share one scale; None: all of them
    scale_bits: int = 0  # of one block, with the zero point where there is one
    outer: int | None = None  # scales that share one fp32 scale of their own: double quantization
    column_bits: int = 0  # of one column: GPTQ's index of the group that it belongs to
    matrix_bits: int = 0  # once a matrix: a scale of the scales
    unread: tuple[int, int] = (0, 0)  # bits of a block and of a column that lie in files, and that no kernel reads
    tool: Tool | None = None  # whose numbers these are; None: of no such tool
    source: str
    name: str = ""  # what a reader knows it by; of one that GGUF files hold, the ggml type

    @property
    def has_zeros(self) -> bool:
        """Whether integers have a zero point beside their 16-bit scale."""
        return self.scale_bits == 16 + self.bits

    @property
    def has_index(self) -> bool:
        """Whether its files hold GPTQ's index of groups, read or not."""
        return INDEX_BITS in (self.unread[1], self.column_bits)

    @property
    def ordered(self) -> bool:
        """Whether activations decide which inputs share a scale, so that kernels read an index (GPTQ's `desc_act`)."""
        return self.column_bits == INDEX_BITS and self.block[1] is not None

    @property
    def in_file(self) -> "Format":
        """The format with what only files hold."""
        of_block, of_column = self.unread
        if not (of_block or of_column):
            return self
        scale, column = self.scale_bits + of_block, self.column_bits + of_column
        return replace(self, scale_bits=scale, column_bits=column, unread=(0, 0))

    def scale_nbytes(self, shape: Shape, matrices: int = 1) -> int:
        """Bytes of everything besides the weights; the first side of a shape of three counts the matrices. A number
        without sides is a matrix of one row and column."""
        if not (self.scale_bits or self.column_bits or self.matrix_bits or self.outer):
            return 0
        *sides, columns = shape or (1,)
        rows = prod(sides) // matrices
        down, across = self.block
        blocks = -(-rows // (down or rows)) * -(-columns // (across or columns))
        outer = 0 if self.outer is None else 32 * -(-blocks // self.outer)
        bits = blocks * self.scale_bits + outer + columns * self.column_bits + self.matrix_bits
        return -(-matrices * bits // 8)

    def nbytes(self, shape: Shape, matrices: int = 1) -> int:
        """Bytes of a matrix, or of several equal ones in one tensor, scales included."""
        return -(-prod(shape) * self.bits // 8) + self.scale_nbytes(shape, matrices)


def grouped(
    bits: int, group: int | None, *, zeros: bool, index: bool = False, tool: Tool | None = None, source: str
) -> Format:
    """Integers with a 16-bit scale for each group of inputs (None: one a row), a zero point of the same width as the
    weights unless symmetric, and GPTQ's 32-bit index of each input's group where activations decide the order."""
    scale, column = 16 + (bits if zeros else 0), INDEX_BITS if index else 0
    return Format(
        name=f"int{bits}",
        bits=bits,
        block=(1, group),
        scale_bits=scale,
        column_bits=column,
        tool=tool,
        source=source,
    )


def gptq_integers(
    bits: int, group: int | None = 128, *, zeros: bool = False, index: bool = False, has_index: bool = True
) -> Format:
    """GPTQ's integers, by GPTQModel's defaults symmetric and in the order of the inputs: its files hold zero points and
    the index of groups always, AutoRound's no index, and kernels read them only where they say something."""
    form = grouped(bits, group, zeros=zeros, index=index, tool="gptq", source="GPTQ, arXiv:2210.17323")
    return replace(form, unread=(0 if zeros else bits, INDEX_BITS if has_index and not index else 0))


def affine(bits: int, group: int = 64) -> Format:
    """MLX's integers (`mx.quantize`): a scale and a bias of 16 bits for each group of a row."""
    return Format(name=f"affine {bits} bits", bits=bits, block=(1, group), scale_bits=32, source="MLX, `mx.quantize`")


FORMATS: dict[WeightFormat, Format] = {
    "fp32": Format(bits=32, source="IEEE 754"),
    "bf16": Format(bits=16, source="brain floating point"),
    "fp16": Format(bits=16, source="IEEE 754"),
    "fp8": Format(bits=8, block=(128, 128), scale_bits=32, source="DeepSeek-V3 section 3.3, arXiv:2412.19437"),
    "fp8-channel": Format(bits=8, scale_bits=16, source="compressed-tensors FP8: a scale an output channel"),
    "fp8-tensor": Format(bits=8, matrix_bits=32, source="vLLM `--quantization fp8`: one scale a matrix"),
    "int8": Format(bits=8, scale_bits=16, source="compressed-tensors W8A8: a scale an output channel"),
    "int8-bnb": Format(bits=8, scale_bits=32, source="LLM.int8() section 3, arXiv:2208.07339: one scale a row"),
    "int8-gptq": gptq_integers(8),
    "int4": grouped(4, 128, zeros=True, tool="awq", source="AWQ, arXiv:2306.00978: fp16 scale, 4-bit zero"),
    "int4-gptq": gptq_integers(4),
    "int4-w4a16": grouped(4, 128, zeros=False, tool="compressed-tensors", source="W4A16: symmetric groups of 128"),
    "nf4": Format(bits=4, block=(1, 64), scale_bits=32, source="QLoRA section 3, arXiv:2305.14314"),
    "nf4-dq": Format(bits=4, block=(1, 64), scale_bits=8, outer=256, source="QLoRA section 3, arXiv:2305.14314"),
    "mxfp8": Format(bits=8, block=(1, 32), scale_bits=8, source="OCP Microscaling v1.0"),
    "mxfp4": Format(bits=4, block=(1, 32), scale_bits=8, source="OCP Microscaling v1.0; gpt-oss"),
    "nvfp4": Format(bits=4, block=(1, 16), scale_bits=8, matrix_bits=32, source="NVIDIA NVFP4: an fp8 scale for 16"),
    "mlx-8bit": affine(8),
    "mlx-6bit": affine(6),
    "mlx-5bit": affine(5),
    "mlx-4bit": affine(4),
    "mlx-3bit": affine(3),
    "mlx-2bit": affine(2),
    "mlx-mixed_4_6": affine(4),
    "mlx-mixed_3_6": affine(3),
    "mlx-mixed_3_4": affine(3),
    "mlx-mixed_2_6": affine(2),
    "mlx-mxfp8": Format(bits=8, block=(1, 32), scale_bits=8, source="MLX, `mx.quantize`, mode mxfp8"),
    "mlx-mxfp4": Format(bits=4, block=(1, 32), scale_bits=8, source="MLX, `mx.quantize`, mode mxfp4"),
    "mlx-nvfp4": Format(bits=4, block=(1, 16), scale_bits=8, source="MLX, `mx.quantize`, mode nvfp4, no global scale"),
}
FORMATS = {name: replace(form, name=name) for name, form in FORMATS.items()}
FIXED: dict[FixedDtype, Format] = {
    "fp32": FORMATS["fp32"],
    "int64": Format(name="int64", bits=64, source="two's complement"),
}
"""Formats of tensors that checkpoints store in one type always."""
LABELS: dict[str, Message] = {
    "fp32": Message("32-bit: single precision"),
    "bf16": Message("16-bit: as most checkpoints are stored"),
    "fp16": Message("16-bit: what V100 and T4 compute in"),
    "fp8": Message("8-bit: a scale for each block of 128 × 128, as DeepSeek-V3"),
    "fp8-channel": Message("8-bit: a scale for each output channel"),
    "fp8-tensor": Message("8-bit: a scale for each matrix, made on loading"),
    "int8": Message("8-bit: W8A8, a scale for each output channel"),
    "int8-bnb": Message("8-bit: LLM.int8() of bitsandbytes"),
    "int8-gptq": Message("8-bit: GPTQ, groups of 128"),
    "int4": Message("4-bit: AWQ, groups of 128"),
    "int4-gptq": Message("4-bit: GPTQ, groups of 128"),
    "int4-w4a16": Message("4-bit: W4A16, symmetric groups of 128"),
    "nf4": Message("4-bit: NormalFloat of bitsandbytes"),
    "nf4-dq": Message("4-bit: NormalFloat with double quantization, as QLoRA"),
    "mxfp8": Message("8-bit: microscaling, blocks of 32"),
    "mxfp4": Message("4-bit: microscaling, blocks of 32, as gpt-oss"),
    "nvfp4": Message("4-bit: NVIDIA's, blocks of 16"),
    "mlx-8bit": Message("8-bit: MLX, groups of 64"),
    "mlx-6bit": Message("6-bit: MLX, groups of 64"),
    "mlx-5bit": Message("5-bit: MLX, groups of 64"),
    "mlx-4bit": Message("4-bit: MLX, groups of 64"),
    "mlx-3bit": Message("3-bit: MLX, groups of 64"),
    "mlx-2bit": Message("2-bit: MLX, groups of 64"),
    "mlx-mixed_4_6": Message("4-bit: MLX, 6 bits for head, values and down projections of some layers"),
    "mlx-mixed_3_6": Message("3-bit: MLX, 6 bits for head, values and down projections of some layers"),
    "mlx-mixed_3_4": Message("3-bit: MLX, 4 bits for head, values and down projections of some layers"),
    "mlx-mixed_2_6": Message("2-bit: MLX, 6 bits for head, values and down projections of some layers"),
    "mlx-mxfp8": Message("8-bit: MLX, microscaling, blocks of 32"),
    "mlx-mxfp4": Message("4-bit: MLX, microscaling, blocks of 32"),
    "mlx-nvfp4": Message("4-bit: MLX, blocks of 16 as NVIDIA's"),
}
"""One line on each storage format of weights, its group first."""
GGUF = Message("GGUF: a mix of ggml types, as llama.cpp makes it")
KERNELS: dict[WeightFormat, str] = {
    "fp8": "fp8",
    "fp8-channel": "fp8",
    "fp8-tensor": "fp8",
    "int8": "int8",
    "int8-bnb": "bitsandbytes",
    "nf4": "bitsandbytes",
    "nf4-dq": "bitsandbytes",
    "int8-gptq": "gptq",
    "int4-gptq": "gptq",
    "int4": "awq",
    "int4-w4a16": "awq",  # the same kernels
    "mxfp8": "mxfp8",
    "mxfp4": "mxfp4",
    "nvfp4": "nvfp4",
    **dict.fromkeys(get_args(MixFormat), "gguf"),
    **dict.fromkeys(MLX_FORMATS, "mlx"),
}
"""Kernels of an engine that multiply with a format, by their name in its table (`engines/support.toml`)."""
