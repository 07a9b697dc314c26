"""GPTQ and AWQ: one block after another on the GPU, while samples pass through it.

Read in llm-compressor ab1ba3ef (`pipelines/sequential/pipeline.py`, `pipelines/cache.py`, `modifiers/gptq`,
`modifiers/transform/awq/base.py`), GPTQModel f4c327a1 (`quantization/gptq.py`, `looper`) and AutoAWQ 88e4c76b
(`awq/quantize/quantizer.py`); `cholesky_inverse` in torch 2.13 (`aten/src/ATen/native/BatchLinearAlgebra.cpp`).
"""

from collections.abc import Iterable, Iterator, Sequence

from calc.errors import Message
from calc.model.block import Block
from calc.model.traced import Traced
from calc.quantizing.matrices import Matrix, matrices, scale_searches
from calc.quantizing.task import Conversion, Draft, peak_of

Holdings = dict[Message, int]
BLOCK = Message("weights of the block")
CHECKPOINT = Message("checkpoint in 16 bits")
STATES = Message("hidden states of all samples")
COPIES = 4
"""Copies of a Hessian while it is inverted: itself, its Cholesky factor, and the factor's copy and result in
`cholesky_inverse`."""
ONE_AFTER_ANOTHER = (("o_proj", "out_proj"), ("gate_proj", "up_proj"), ("down_proj",))
"""Matrices for which GPTQModel runs a block anew (`module_tree` of `models/definitions`); the others come first."""


def hessian(task: Conversion, matrix: Matrix) -> Traced:
    """Bytes of one: fp32 of [in, in] (`make_empty_hessian`, `create_H`)."""
    width = task.width(matrix.columns)
    return 4 * width * width


def hessians(task: Conversion, linears: Iterable[Matrix]) -> int:
    return sum(matrix.copies * hessian(task, matrix) for matrix in linears)


def calibration(task: Conversion, resident: Holdings, linears: Sequence[Matrix], ram: Holdings) -> Draft:
    """A sample passes the block, and the products of its inputs are added to the Hessians (`accumulate_hessian`)."""
    widest = max(linears, key=lambda matrix: matrix.columns)
    inputs = task.pass_tokens * task.width(widest.columns)
    gpu = resident | {
        Message("Hessians of the block"): hessians(task, linears),
        Message("product of the widest input with itself"): hessian(task, widest),
        Message("the widest input in 16 and in 32 bits"): 6 * inputs,
        Message("state, input and output of the block"): 6 * task.pass_tokens * task.hidden,
    }
    return Draft(Message("Calibration of a block"), gpu, ram)


def inversion(task: Conversion, resident: Holdings, linears: Sequence[Matrix], ram: Holdings) -> Draft:
    """The matrix whose Hessian takes most to invert, while those of later ones wait (`quantize_weight`)."""
    drafts = []
    for place, matrix in enumerate(linears):
        waiting = hessians(task, linears[place + 1 :]) + (matrix.copies - 1) * hessian(task, matrix)
        gpu = resident | {
            Message("Hessians of the matrices that wait"): waiting,
            Message("Hessian, its factor, the factor's copy, the inverse"): COPIES * hessian(task, matrix),
            Message("the matrix in 32 bits"): 4 * task.width(matrix.rows) * task.width(matrix.columns),
        }
        drafts.append(Draft(Message("Quantizing a matrix"), gpu, ram))
    return peak_of(drafts)


def gptq_sequential(task: Conversion) -> Iterator[Draft]:
    """llm-compressor's GPTQModifier in its sequential pipeline: all Hessians of a block at once."""
    ram: Holdings = {CHECKPOINT: task.checkpoint, STATES: 2 * task.sample_count * task.sample_tokens * task.hidden}
    for phase in (calibration, inversion):
        yield peak_of(
            phase(task, {BLOCK: task.block(block), **task.head}, linears, ram) for block, linears in quantized(task)
        )


def gptqmodel(task: Conversion) -> Iterator[Draft]:
    """GPTQModel: a block runs anew for each group of matrices, and blocks that are done lie on disk
    (`offload_to_disk`)."""
    states = 2 * task.sample_count * task.sample_tokens * task.hidden
    largest = max((task.block(block) for block, _ in quantized(task)), key=int, default=0)
    ram: Holdings = {
        Message("a block that comes, and one that is done"): 2 * largest,
        Message("embedding and output head"): task.outside,
        Message("hidden states of all samples before and after a block"): 2 * states,
    }
    for phase in (calibration, inversion):
        yield peak_of(
            phase(task, {BLOCK: task.block(block)}, group, ram)
            for block, linears in quantized(task)
            for group in groups(linears)
        )


def groups(linears: Sequence[Matrix]) -> Iterator[tuple[Matrix, ...]]:
    """Matrices whose Hessians GPTQModel makes in one run of a block."""
    leaves = {leaf: place for place, names in enumerate(ONE_AFTER_ANOTHER, 1) for leaf in names}
    by_run: dict[int, list[Matrix]] = {}
    for matrix in linears:
        by_run.setdefault(leaves.get(matrix.name, 0), []).append(matrix)
    yield from (tuple(by_run[run]) for run in sorted(by_run))


def quantized(task: Conversion) -> list[tuple[Block, tuple[Matrix, ...]]]:
    """The blocks that have something to quantize."""
    pairs = ((block, matrices(task.model, block)) for block in task.model.all_blocks)
    return [(block, linears) for block, linears in pairs if linears]


def awq_sequential(task: Conversion) -> Iterator[Draft]:
    """llm-compressor's AWQModifier: the inputs of each module that is scaled are kept of every sample, on the GPU or,
    of a model with experts, in host memory; a module's outputs of every sample stand twice, as they are and quantized
    (`_apply_smoothing`, `_run_samples`)."""
    tokens = task.sample_count * task.sample_tokens
    ram: Holdings = {CHECKPOINT: task.checkpoint, STATES: 2 * tokens * task.hidden}
    drafts = []
    for block, _ in quantized(task):
        scaled = [(width, linears) for width, linears in scale_searches(task.model, block) if linears]
        for place, (_, linears) in enumerate(scaled):
            saved = sum(2 * tokens * task.width(width) for width, _ in scaled[place:])
            inputs: Holdings = {Message("kept inputs of all samples"): saved}
            widest = task.width(max(max(m.rows, m.columns) for m in linears))
            gpu: Holdings = {BLOCK: task.block(block), **task.head, **({} if task.offload else inputs)}
            gpu |= {
                Message("outputs of all samples, twice"): 4 * tokens * task.hidden,
                Message("the scaled matrices as they were"): sum(
                    2 * m.copies * task.width(m.rows) * task.width(m.columns) for m in linears
                ),
                Message("inside the module, one pass"): 6 * task.pass_tokens * widest,
            }
            drafts.append(Draft(Message("Search for scales"), gpu, ram | (inputs if task.offload else {})))
    yield peak_of(drafts)


def autoawq(task: Conversion) -> Iterator[Draft]:
    """AutoAWQ: all samples pass a block at once; the inputs of every matrix wait in host memory (`_get_input_feat`)."""
    tokens = task.sample_count * task.sample_tokens
    drafts = []
    for block, linears in quantized(task):
        inner = task.width(max(max(matrix.rows, matrix.columns) for matrix in linears))
        share = tokens
        if (moe := block.moe) is not None:
            chosen = task.named("K", moe.top_k, Message("experts of a token"))
            share = tokens * chosen // task.named("E", moe.n_experts, Message("experts"))
        gpu = {
            BLOCK: task.block(block),
            Message("state, residual, input and output of all samples"): 8 * tokens * task.hidden,
            Message("gate, up and their product of all samples"): 6 * share * inner,
        }
        inputs = sum(
            2 * (share * matrix.copies if matrix.copies > 1 else tokens) * task.width(matrix.columns)
            for matrix in linears
        )
        ram = {CHECKPOINT: task.checkpoint, Message("inputs of every matrix of a block"): inputs}
        drafts.append(Draft(Message("A block with all samples"), gpu, ram))
    yield peak_of(drafts)
