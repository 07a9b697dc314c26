"""Bytes as formulas with their values: weights by component, and the parts of the memory of one GPU."""

from collections.abc import Iterator

from calc.formats import FLOATS, FORMATS, Precision
from calc.hardware.parallel import Layout
from calc.model.architecture import Architecture
from calc.model.derivation import Step
from calc.model.tensor import Component
from calc.serving.memory import Memory
from calc.serving.vllm import SAMPLER_BYTES, layer_elements
from calc.serving.weights import stored
from calc.serving.workload import Workload


def weight_steps(architecture: Architecture, precision: Precision) -> list[Step]:
    """Bytes by component and format, on one unshared GPU: the weights, and what stands beside them."""
    bits: dict[tuple[Component, int], tuple[int, int]] = {}  # parameters, and bits of scales and of whole bytes
    for piece in stored(architecture, precision):
        tensor = piece.tensor
        if tensor.apart is None:
            key = (tensor.component, piece.form.bits)
            parameters, beside = bits.get(key, (0, 0))
            more = (8 * piece.nbytes - piece.form.bits * tensor.numel) * tensor.count
            bits[key] = (parameters + tensor.parameters, beside + more)
    return [_weight_step(component, width, *counts) for (component, width), counts in bits.items()]


def _weight_step(component: Component, width: int, parameters: int, beside: int) -> Step:
    formula, values = "parameters·bits / 8", f"{parameters:,}·{width} / 8"
    if beside:
        formula, values = f"{formula} + scale_bits / 8", f"{values} + {beside:,} / 8"
    return Step(what=component, formula=formula, values=values, result=(parameters * width + beside) // 8, unit="bytes")


def memory_steps(
    architecture: Architecture,
    memory: Memory,
    workload: Workload,
    precision: Precision,
    layout: Layout,
    per_token: int,
    window: int,
    state: int,
) -> list[Step]:
    """Bytes on the fullest GPU."""
    batch, context = workload.batch, workload.context
    form = FORMATS.get(precision.weights)
    return [
        Step(
            what="weights",
            formula="parameters · bits / 8 + scales",
            values=f"{architecture.parameters().total:,} · {form.bits} / 8"
            if form is not None and precision.weights in FLOATS
            else f"{architecture.parameters().total:,} · bits of each matrix / 8, as listed by component",
            result=memory.weights,
            unit="bytes",
        ),
        *vision_step(memory, architecture),
        Step(
            what="kv_cache",
            formula="batch · (context · bytes a token + windows + states), as the engine holds it",
            values=f"{batch:,} · ({context:,} · {per_token:,} + {window:,} + {state:,})",
            result=memory.kv_cache,
            unit="bytes",
        ),
        activation_step(layout.rank(architecture), memory, workload, precision),
        Step(
            what="overhead",
            formula="middle of (low, high)",
            values=f"({memory.overhead_low:,} + {memory.overhead_high:,}) / 2",
            result=memory.overhead,
            unit="bytes",
        ),
    ]


def vision_step(memory: Memory, architecture: Architecture) -> Iterator[Step]:
    """The image tower, where it is loaded; on several GPUs their share of its matrices."""
    if memory.vision:
        parameters = architecture.parameters().not_in_total["vision"]
        divided = "" if memory.vision == 2 * parameters else ", divided"
        formula, values = f"parameters · 16 / 8{divided}", f"{parameters:,} · 16 / 8{divided}"
        yield Step(what="vision", formula=formula, values=values, result=memory.vision, unit="bytes")


def activation_step(rank: Architecture, memory: Memory, workload: Workload, precision: Precision) -> Step:
    """The term that decides in vLLM's profile run: its fullest layer, or its sampler."""
    w, tokens, h = precision.activation_bytes, workload.step_tokens, rank.hidden
    formula, values = "the fullest moment of a layer's pass, or the logits", f"{tokens:,} tokens at once"
    if workload.engine == "vllm":
        inner = max(layer_elements(block, h) - 3 * h for block in rank.all_blocks)
        sequences, vocab = workload.max_num_seqs or workload.batch, rank.vocab
        if memory.activations == w * tokens * (3 * h + inner):
            formula = "bytes · tokens · (3·h + elements a token in the layer)"
            values = f"{w} · {tokens:,} · (3·{h:,} + {inner:,})"
        elif memory.activations == SAMPLER_BYTES * sequences * vocab:
            formula = f"{SAMPLER_BYTES} bytes · sequences · vocabulary"
            values = f"{SAMPLER_BYTES} · {sequences:,} · {vocab:,}"
    return Step(what="activations", formula=formula, values=values, result=memory.activations, unit="bytes")
