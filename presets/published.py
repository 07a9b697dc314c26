"""The total that others state for a checkpoint, and what it holds besides the unique parameters that we count.

The totals are those of the safetensors files as the Hub's pages show them, of which llmfit 1.1.17 (PyPI, October 2026)
ships a collection, or mteb (embeddings-benchmark/mteb, `models/model_implementations`) and model cards that cite them;
`date` is the month by which a total stood there. Each part is a name: how large it is follows from
the model alone, so that no number here can make a sum come out right.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from calc import Architecture, Precision
from calc.errors import Frozen
from calc.families import override
from calc.formats import WeightFormat
from calc.formats.stored import stored

Part = Literal[
    "tied_head",
    "multi_token_prediction",
    "tables_of_prediction",
    "persistent_buffers",
    "vision",
    "causal_masks",
    "rotary_frequencies",
    "rotary_frequencies_once",
    "scales",
    "sibling",
    "position_numbers",
    "no_score",
]


class Published(Frozen):
    """A published total, with its address and date."""

    total: int
    source: Annotated[str, Field(pattern=r"^https://huggingface\.co/[\w.-]+/[\w.-]+$")]
    date: Annotated[str, Field(pattern=r"^\d{4}-\d{2}$")]
    format: WeightFormat
    """Storage of the checkpoint's matrices, by its config.json or the recipe of vLLM (vllm-project/recipes)."""
    plus: tuple[Part, ...] = ()
    sibling: Mapping[str, int] = {}
    """Fields in which the config of the page's model differs from ours, where it is not the same model."""


class Model(NamedTuple):
    """A published model, and fields in which the sibling differs whose total it is."""

    config: Mapping[str, Any]
    architecture: Architecture
    sibling: Mapping[str, int]


def parts(config: Mapping[str, Any], published: Published) -> dict[Part, int]:
    """Elements of each part."""
    model = Model(config, Architecture.from_config(config), published.sibling)
    return {part: SIZES[part](model) for part in published.plus}


def tied_head(model: Model) -> int:
    """The head that is the embedding, stored a second time."""
    name = model.architecture.names.table
    return next(tensor.parameters for tensor in model.architecture.tensors() if tensor.name == name)


def tables_of_prediction(model: Model) -> int:
    """Below zero: the embedding and the head that the family gives a further layer and this checkpoint leaves out."""
    modules = model.architecture.prediction
    tables = sum((module.embedding is not None) + (module.head is not None) for module in modules)
    return -tables * model.architecture.vocab * model.architecture.hidden


def causal_masks(model: Model) -> int:
    """A mask of positions x positions, which old checkpoints hold in every layer."""
    return model.architecture.num_layers * (model.architecture.max_positions or 0) ** 2


def rotary_frequencies(model: Model) -> int:
    """A frequency for each pair of rotated channels, which old checkpoints hold in every layer."""
    return model.architecture.num_layers * rotary_frequencies_once(model)


def rotary_frequencies_once(model: Model) -> int:
    """Rotary frequencies outside the layers. A table has a sine and a cosine for each."""
    ((_, columns),) = model.architecture.rotary
    return columns // 2


def scales(model: Model) -> int:
    """Scales of quantized weights, each of 32 bits."""
    pieces = stored(model.architecture, Precision.of(model.config))
    return sum(piece.scales * piece.tensor.count for piece in pieces) // 4


def position_numbers(model: Model) -> int:
    """The numbers of the positions, which old checkpoints of encoders hold as a tensor."""
    return model.architecture.positions


def no_score(model: Model) -> int:
    """Below zero: the row that scores texts, which engines make of two rows of the head (vLLM `adapters.py`)."""
    return -sum(tensor.parameters for tensor in model.architecture.tensors() if tensor.name == "score.weight")


def sibling(model: Model) -> int:
    """Parameters that the sibling has more than the page's model."""
    other = Architecture.from_config(override(model.config, model.sibling))
    return other.parameters().total - model.architecture.parameters().total


SIZES: dict[Part, Callable[[Model], int]] = {
    "tied_head": tied_head,
    "multi_token_prediction": lambda model: model.architecture.parameters().not_in_total["multi_token_prediction"],
    "tables_of_prediction": tables_of_prediction,
    "persistent_buffers": lambda model: model.architecture.parameters().not_in_total["persistent_buffers"],
    "vision": lambda model: model.architecture.parameters().not_in_total["vision"],
    "causal_masks": causal_masks,
    "rotary_frequencies": rotary_frequencies,
    "rotary_frequencies_once": rotary_frequencies_once,
    "scales": scales,
    "sibling": sibling,
    "position_numbers": position_numbers,
    "no_score": no_score,
}
