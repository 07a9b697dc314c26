"""Sizes of published GGUF files: a header plus the tensors' bytes (tests/data/gguf_sizes.json, with what was left out).

A header has the metadata, most of it the vocabulary with its merges, and a line for each tensor. Models of one
vocabulary differ in the metadata by the chat template and a few strings; files of one repository not at all.
"""

import pytest

from calc import Architecture, Precision, report
from calc.formats.gguf_tensors import gguf_tensors
from presets import models
from tests import load

REPOSITORIES = load("gguf_sizes.json")["repositories"]
LINE = 8 + 4 + 4 + 8
"""Bytes of a tensor's line beside its name and its sides: length of the name, number of sides, type and offset."""
ALIGNED = 32
TEMPLATES = 10_000
"""Bytes by which chat templates and other strings may differ."""


def lines_of_tensors(name):
    """Bytes of the lines that the header has for a model's tensors."""
    tensors = [t for t in gguf_tensors(Architecture.from_config(models()[name].config)) if t.excluded_as is None]
    return sum(
        LINE + len(tensor.name.replace("{layer}", str(layer))) + 8 * len(tensor.shape)
        for tensor in tensors
        for layer in (tensor.layers if "{layer}" in tensor.name else (0,))
    )


def header(name, weights, size):
    """What a file has beside our bytes of its tensors. All that need it were made with an importance matrix."""
    precision = Precision(weights=weights, imatrix=True)
    return size - report(models()[name].config, precision=precision, gpus=[]).memory.weights


@pytest.mark.parametrize("row", REPOSITORIES, ids=lambda row: row["repository"])
def test_files_of_a_repository_have_one_header(row):
    """To the byte, and between 20 and 65 bytes of it for a token."""
    headers = {header(row["model"], weights, size) for weights, size in row["files"].items()}
    assert len(headers) == 1
    assert headers.pop() % ALIGNED == 0
    vocab = models()[row["model"]].config.get("vocab_size", 262_208)
    assert all(20 * vocab < header(row["model"], *file) < 65 * vocab for file in row["files"].items())


@pytest.mark.parametrize("vocabulary", sorted({row["vocabulary"] for row in REPOSITORIES}))
def test_models_of_a_vocabulary_have_the_same_metadata(vocabulary):
    metadata = {
        row["repository"]: header(row["model"], *next(iter(row["files"].items()))) - lines_of_tensors(row["model"])
        for row in REPOSITORIES
        if row["vocabulary"] == vocabulary
    }
    metadata.pop("unsloth/gemma-3-4b-it-GGUF", None)  # holds 136 kB more than the three others
    assert max(metadata.values()) - min(metadata.values()) < TEMPLATES


def test_there_are_enough_of_them():
    assert sum(len(row["files"]) for row in REPOSITORIES) >= 40
    assert len(REPOSITORIES) >= 20
