"""A language that is none: every template in brackets, its letters accented. What is not so on a page was not said.

What stays as it is in every language: numbers, units, names of models, GPUs, formats, engines, fields, flags and
symbols, and what is written as code.
"""

import json
import re
from functools import cache
from gettext import NullTranslations
from html import unescape
from itertools import groupby

from calc.families.family_table import FAMILIES
from calc.formats import CACHE_FORMATS, WEIGHT_FORMATS
from calc.formats.table import FIXED
from calc.hardware.custom_gpu import DTYPES
from calc.model.derivation import SYMBOLS
from calc.serving.engines import ENGINES
from calc.time.efficiency import SHARES
from calc.time.prices import prices
from calc.training import RECIPES, TRAINERS
from calc.verify.checkpoint import BITS
from pages.parts.inputs.fields import CONTROLS
from pages.parts.inputs.lists import short_name
from pages.parts.outputs.parameter_shares import share_rows
from pages.parts.state.query import EVERYTHING
from pages.parts.state.scenario import places
from pages.parts.verify.evidence import accuracy, servers, speeds, startups, why
from pages.parts.verify.log import LOG
from pages.parts.verify.sources import PRINTED
from pages.parts.verify.speeds import REASONS
from pages.parts.words import LANGUAGES
from presets import gpus, models
from tests.structures import architectures

LETTERS = str.maketrans(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", "áƀćđéƒĝĥíĵķĺɱñóƥɋŕšŧúṽŵẋýžÁƁĆĐÉƑĜĤÍĴĶĹṀÑÓƤɊŔŠŦÚṼŴẊÝŽ"
)
KEPT = re.compile(r"\{\{.*?\}\}|\{[^{}]*\}|`[^`]*`|:[a-z]+/[a-z_]+:|:[a-z]+-badge\[|https?://\S+|</?[a-z]+>|\\n")
"""Placeholders, code, icons, badges, addresses and tags in a template."""


class Pseudo(NullTranslations):
    def __init__(self):
        super().__init__()
        self.templates = set()

    def gettext(self, message):
        self.templates.add(message)
        parts, end = [], 0
        for kept in KEPT.finditer(message):
            parts += [message[end : kept.start()].translate(LETTERS), kept[0]]
            end = kept.end()
        return f"⟦{''.join(parts)}{message[end:].translate(LETTERS)}⟧"

    def ngettext(self, message, plural, n):
        self.templates |= {message, plural}
        return self.gettext(message if n == 1 else plural)


def tensor_names():
    """As the chart of parameters writes them."""
    return {row.tensor for architecture in architectures().values() for row in share_rows(architecture.tensors())}


OPAQUE = re.compile(
    r"(?s:<style>.*?</style>)|/\w*\?\w+=\S+|`[^`]*`|\$\$[^$]*\$\$|\$[^$]*\$|https?://[^\s)]+|:material/\w+:|:[a-z]+-badge\[|:(?:green|orange|red)\[|%\{[^}]*\}|<[^>]*>|\b[0-9a-f]{8,}\b"
)


def measured_names():
    """Models, engines, formats and GPUs of measured speeds and start-ups, as their sources call them."""
    for row in speeds().records():
        yield from (row[name] for name in ("model", "engine", "format", "gpu"))
        yield OPAQUE.sub(" ", row["model"].rpartition("/")[2])
    yield from (why(REASONS, row.reason).values["name"] for row in speeds().left_out)
    for row in servers().servers():
        yield from (row.model, row.weights, row.engine, row.generation)
    yield from (cell.engine for cell in startups().court)
    yield from (row.model for row in (*startups().logs, *startups().misses))


UNITS = ("TiB", "GiB", "MiB", "KiB", "GB", "MB", "GB/s", "TFLOPS", "ms", "min", "tokens/s/GPU")
DEGREES = ("TP", "PP", "DP", "EP", "CP", "ZeRO")
GIVEN = (
    *("nonesuch", "frobnicate", "Mine", "strange", "org/own", "one-Q4_K_M.gguf", "two.gguf", "x.gguf"),
    *("Model", "Odd", "Strange", "Other", "Linear", "Linear4bit", "e.weight", "h.weight"),
    "meetkai/functionary-small-v2.2",
)
"""What the tests call their own."""
EXAMPLES = (
    "main",
    '{"model_type": "llama", ...}',
    "config.json",
    "hf_quant_config.json",
    "hf_…",
    "null",
    "true",
    "false",
    "eJyr…",
    LOG,
    PRINTED,
)
PRODUCTS = (
    "Weighbridge",
    "Hub",
    "vLLM",
    "SGLang",
    "transformers",
    "llama.cpp",
    "torch",
    "PyTorch",
    "AdamW",
    "vllm-gguf-plugin",
    "aiconfigurator",
    "docs/training_speed.md",
    "--n-cpu-moe",
)


def names():
    """Everything that stays as it is in every language."""
    return {
        *(UNITS + DEGREES + EXAMPLES + GIVEN + PRODUCTS),
        *FAMILIES,
        *tensor_names(),
        *LANGUAGES.values(),
        *(preset.published.source for preset in models().values() if preset.published is not None),
        *(gpu.name for gpu in gpus().values()),
        *(short_name(gpu) for gpu in gpus().values()),
        *(gpu.vendor for gpu in gpus().values()),
        *DTYPES,
        *gpus(),
        *models(),
        *(name.split("/")[0] for name in models()),
        *(".csv", ".json"),
        *(price.provider for price in prices()),
        *(price.source for price in prices()),
        "MoE",
        *(preset.name for preset in models().values()),
        *(preset.source for preset in models().values()),
        *(engine.title for engine in ENGINES.values()),
        *ENGINES,
        *(needs.plugin for engine in ENGINES.values() for needs in engine.support.formats.values() if needs.plugin),
        *WEIGHT_FORMATS,
        "name:48GiB:960GB/s:bf16=181",
        *gpus(),
        *FIXED,
        *CACHE_FORMATS,
        *RECIPES,
        *(trainer.title for trainer in TRAINERS.values()),
        *SHARES,
        *CONTROLS,
        *BITS,
        *(row.name for row in accuracy().rows),
        *measured_names(),
        *(symbol for symbol, _ in SYMBOLS.values()),
        *(meaning for _, meaning in SYMBOLS.values() if "_" in meaning),
        *(name for engine in ENGINES for name in places(EVERYTHING, engine)),
        *(
            str(choice)
            for engine in ENGINES
            for place in places(EVERYTHING, engine).values()
            for choice in place.option.choices
        ),
    }


@cache  # reads every preset
def allowed():
    """Pattern of those names, by their first letter: what begins with another is passed over at once."""
    longest_first = sorted(filter(None, names()), key=lambda name: (name[0], -len(name)))
    by_letter = [
        f"{re.escape(letter)}(?:{'|'.join(re.escape(name[1:]) for name in group)})"
        for letter, group in groupby(longest_first, key=lambda name: name[0])
    ]
    return re.compile(rf"(?<![\w.])(?:{'|'.join(by_letter)})(?!\w)")


WORD = re.compile(r"[A-Za-z]{2,}")


@cache  # pages share most of their texts
def escaped(text):
    """What of a text was not said: words of plain letters that are no name."""
    return WORD.findall(allowed().sub(" ", unescape(OPAQUE.sub(" ", text))))


SILENT = set(
    """
    accept allowed autocomplete color column_order config data data_id default_value element_id file_type form_id
    format gap_config help_mode icon id js_number key label_visibility language link media_id mime min_column_width
    query_string raw_data raw_values selection_mode set_value shortcut step tag theme type upload_url upload_urls url
    user_key widget_id page
    """.split()
)
"""Fields of Streamlit's messages that nobody reads."""


def texts(app):
    """Everything on a page that somebody may read, with where it is."""
    for node in nodes(app._tree):
        message = getattr(node, "proto", None)
        if hasattr(message, "DESCRIPTOR"):
            kind = message.DESCRIPTOR.name
            if kind == "Code":
                continue
            if kind == "BidiComponent":
                (data,) = json.loads(message.json)
                yield from ((f"chart {path}", text) for path, text in plotted(translated(data)))
            elif kind == "PlotlyChart":
                yield from ((f"chart {path}", text) for path, text in plotted(json.loads(message.spec)))
            elif kind in ("Arrow", "Dataframe"):
                yield from ((f"table {message.columns[:40]}", text) for text in tabled(node, message))
            else:
                yield from ((f"{kind} {getattr(node, 'key', None) or ''}", text) for text in written(message))


def nodes(node):
    yield node
    for child in getattr(node, "children", {}).values():
        yield from nodes(child)


def written(message):
    """Texts of a message."""
    for field, value in message.ListFields():
        if field.name in SILENT:
            continue
        values = [value] if isinstance(value, str) or hasattr(value, "DESCRIPTOR") else value
        if isinstance(values, (int, float, bool, bytes)):
            continue
        for item in values:
            if isinstance(item, str):
                yield item
            elif hasattr(item, "DESCRIPTOR"):
                yield from written(item)


READ = {
    "text",
    "name",
    "hovertemplate",
    "hovertext",
    "ticktext",
    "label",
    "all",
    "value",
    "derivation",
    "help",
    "cells",
    "shown",
    "search",
    "compare",
    "several",
    "none",
    "from_hub",
    "look",
}


def plotted(part, path="", read=False):
    """Texts of a figure."""
    if isinstance(part, dict):
        for key, inner in part.items():
            yield from plotted(inner, f"{path}.{key}", key in READ)
    elif isinstance(part, list):
        for inner in part:
            yield from plotted(inner, path, read)
    elif isinstance(part, str) and read:
        yield path, part


def translated(data):
    """What a component is given; of a table without names and addresses."""
    if not isinstance(data, dict) or "rows" not in data:
        return data
    shown = [at for at, column in enumerate(data["columns"]) if column["kind"] not in ("name", "link")]
    rows = [row | {"cells": [row["cells"][at] for at in shown]} for row in data["rows"]]
    return data | {"rows": rows}


def tabled(node, message):
    """Headings and words of a table."""
    configured = json.loads(message.columns)
    for name in node.value.columns:
        label = configured.get(name, {}).get("label", name)
        yield label
        yield from {cell for cell in node.value[name] if isinstance(cell, str)}
