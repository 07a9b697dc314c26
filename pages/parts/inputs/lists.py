"""Entries of the question's lists, by language: a browser fetches them once, for they are the same for everyone."""

from contextvars import copy_context
from functools import lru_cache
from json import dumps
from typing import Any

from calc import GPU
from calc.formats import WEIGHT_FORMATS
from calc.hardware import find_gpu, slices
from pages.parts import words
from pages.parts.inputs.serving import format_label
from pages.parts.outputs import scripts
from presets import gpus
from presets.search import haystack, label, newest


def contents(language: str) -> dict[str, Any]:
    """Models, the newest first, GPUs, then their MIG slices, and formats of weights; each with its label and the words
    that find it."""
    words.SPOKEN.set(language)
    models = [
        {
            "id": preset.id,
            "name": preset.name,
            "label": label(preset.id),
            "words": haystack(preset.id),
            "month": preset.month,
        }
        for preset in newest()
    ]
    formats = [[name, format_label(name)] for name in WEIGHT_FORMATS]
    return {"model": models, "gpu": [*map(gpu_row, (*gpus().values(), *slices().values()))], "weights": formats}


@lru_cache(maxsize=512)
def gpu_label(name: str) -> str:
    """A GPU in a list: its name, and its memory where that does not say it."""
    gpu = find_gpu(name)
    memory = f"{gpu.memory_gb:g}"
    return gpu.name if f"{memory}GB" in gpu.name else f"{gpu.name} · {memory} GB"


def gpu_row(gpu: GPU) -> dict[str, str | bool]:
    """A GPU in a list: 24 finds the cards of 24 GB, and mig or a profile its slices."""
    shown = gpu_label(gpu.id)
    sought = f"{shown} {gpu.id} {gpu.memory_gb:g}gb {gpu.vendor}".lower()
    return {
        "id": gpu.id,
        "name": gpu.name,
        "label": shown,
        "short": short_name(gpu),
        "words": sought,
        "month": "",
        "slice": gpu.slice is not None,
    }


def short_name(gpu: GPU) -> str:
    """The name without a memory by which no other GPU is told from it: H200 SXM."""
    name, others = without_memory(gpu.name), (other.name for other in gpus().values() if other.id != gpu.id)
    return gpu.name if name in map(without_memory, others) else name


def without_memory(name: str) -> str:
    first, _, last = name.rpartition(" ")
    return first if last.endswith("GB") and last[:-2].isdecimal() else name


def every_language() -> dict[str, bytes]:
    """The lists as JSON, by the name of their file: that of the language."""
    return {f"{name}.json": dumps(copy_context().run(contents, name)).encode() for name in words.CATALOGUES}


LISTS = scripts.Files("lists", "application/json", every_language)
