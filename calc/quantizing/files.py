"""Conversions that read weights alone: file by file, tensor by tensor.

Read in llm-compressor ab1ba3ef (`entrypoints/model_free`), llama.cpp 007dbbf3 (`src/llama-quant.cpp`,
`convert_hf_to_gguf.py`, `gguf-py/gguf/lazy.py`), transformers 5.23 (`core_model_loading.py`, `quantizers`), mlx-lm
d78bf58e (`convert.py`, `save_model` of `utils.py`) and mlx 846d1762 (`MAX_ACTIVE_TASKS` of `transforms.cpp`).
"""

from collections.abc import Iterator
from math import prod

from calc.errors import Message
from calc.formats.gguf_tensors import gguf_tensors
from calc.formats.mixes import MIXES, OF_EIGHT_TINY
from calc.formats.precision import Precision
from calc.model.architecture import Architecture
from calc.quantizing.task import Conversion, Draft
from calc.serving.engines.mlx.loading import mlx_file

RESERVED = 3
"""Times a file that model_free_ptq reckons with on the GPU (`_MEMORY_MULTIPLIER` of `scheduler.py`)."""
IN_FLIGHT = 10
"""Operations that MLX has begun and not finished at most."""
SHARD = 5 * 2**30
"""Most bytes of a file that mlx-lm writes (`make_shards`)."""
NEEDS_IMATRIX = frozenset(name for name, mix in MIXES.items() if mix.of_eight == OF_EIGHT_TINY) | {
    "IQ3_XXS",
    "IQ3_XS",
    "Q2_K_S",
}
"""Mixes that llama-quantize refuses without an importance matrix (`tensor_requires_imatrix`)."""


def model_free(task: Conversion) -> Iterator[Draft]:
    """llm-compressor's model_free_ptq, one worker: a file of the checkpoint on the GPU, its results in host memory."""
    file = task.named("F", task.file_bytes, Message("bytes of the largest file of the checkpoint"))
    share = task.named("Q", task.result_bytes, Message("bytes of the result")) * file // task.checkpoint
    gpu = {Message("a file, its scales and results, as the tool counts them"): RESERVED * file}
    yield Draft(Message("A file of the checkpoint"), gpu, {Message("the file's results"): share})


def bitsandbytes(task: Conversion) -> Iterator[Draft]:
    """Quantized as it is loaded: what is done, and one matrix in 16 bits."""
    numel = max(tensor.numel for tensor in task.model.tensors() if tensor.layers)
    largest = 2 * task.named("n", numel, Message("weights of the largest matrix"))
    done = task.named("Q", task.result_bytes, Message("bytes of the result"))
    gpu = {Message("the quantized model"): 1 * done, Message("a matrix in 16 bits"): largest}
    yield Draft(Message("Loading"), gpu, {Message("a matrix in 16 bits"): largest})


def llama_cpp(task: Conversion) -> Iterator[Draft]:
    """convert_hf_to_gguf.py, llama-imatrix where the mix needs it, llama-quantize: a tensor at a time; what is read is
    mapped and holds no memory of its own."""
    sizes = [prod(tensor.shape) for tensor in gguf_tensors(task.model) if tensor.excluded_as is None]
    largest = task.named("n", max(sizes), Message("weights of the largest tensor, the experts of a layer together"))
    yield Draft(
        Message("convert_hf_to_gguf.py"), {}, {Message("the tensor as it was, in 32 and in 16 bits"): 8 * largest}
    )
    if task.to in NEEDS_IMATRIX:
        yield Draft(Message("llama-imatrix"), {}, {Message("the 16-bit file that runs"): 1 * task.checkpoint})
    yield Draft(Message("llama-quantize"), {}, {Message("the tensor in 32 bits, and room for its result"): 8 * largest})


def mlx(task: Conversion) -> Iterator[Draft]:
    """mlx_lm.convert: one file of the result after another, whose sources are read shortly before they are needed."""
    pieces = mlx_file(task.model, Precision(weights=task.to))
    numels = sorted(
        (piece.tensor.numel for piece in pieces for _ in range(min(IN_FLIGHT, piece.tensor.count))),
        reverse=True,
    )
    sources = 2 * task.named("n", sum(numels[:IN_FLIGHT]), Message("weights of the ten largest tensors"))
    written = task.named("F", min(SHARD, task.result_bytes), Message("bytes of the largest file of the result"))
    gpu = {Message("the file that is written"): 1 * written, Message("sources of what is computed"): sources}
    yield Draft(Message("mlx_lm.convert"), gpu, {})


def mlx_bytes(model: Architecture, precision: Precision) -> int:
    pieces = mlx_file(model, precision)
    return sum(piece.nbytes * piece.tensor.count for piece in pieces)
