"""Text that people read: whole sentences in their language, numbers, and the label and colour of everything that has
one. `say` is the one way to the screen. The English templates are the keys of the catalogues."""

import re
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from gettext import GNUTranslations, NullTranslations
from io import BytesIO
from math import ceil
from pathlib import Path
from typing import Any

import streamlit as st
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po

from calc import Layout
from calc.errors import Message, Outside
from calc.hardware import OWN, find_gpu
from calc.model.formula import SUPERSCRIPTS
from calc.time import Estimate
from calc.training import Objective, Phase, RolloutPhaseName
from calc.units import GIB, TIB
from calc.units import size as size
from calc.units import unit as unit
from pages.parts.labels import CHOICES, FIELDS
from presets import Part

SIGNS = re.compile(r"[\\`*\[\]<$&|]")
"""Characters that begin code, emphasis, links, pictures, formulas, entities and cells in Markdown."""
ADDRESS = re.compile(r"(?i)(https?:|www|@)(?=[/.\w])")
"""Text that Markdown turns into a link by itself, even where its characters are escaped."""


def catalogue(locale: str) -> GNUTranslations:
    """The translations of a locale, compiled in memory from the file that is edited."""
    file, compiled = Path(__file__).parents[1] / "locale" / locale / "LC_MESSAGES" / "weighbridge.po", BytesIO()
    with file.open("rb") as text:
        write_mo(compiled, read_po(text))
    compiled.seek(0)
    return GNUTranslations(compiled)


CATALOGUES: dict[str, NullTranslations] = {"en": NullTranslations(), "zh": catalogue("zh_CN")}
"""Catalogues by language. English needs none: its templates are what is said."""
LANGUAGES = {"en": "English", "zh": "中文"}
"""Names of the languages in themselves."""


def say(text: str | Message, /, *, plural: str | None = None, **values: Any) -> str:
    """A whole sentence in the reader's language: a template with its values, or a Message, with those in it.

    `plural` is the template where `n` is not one.
    """
    return say_in(language(), text, plural=plural, **values)


def say_in(spoken: str, text: str | Message, /, *, plural: str | None = None, **values: Any) -> str:
    """A sentence in a language that is known."""
    if isinstance(text, Message):
        return say_in(spoken, text.template, plural=text.plural, **text.values | values)
    translated = CATALOGUES[spoken]
    template = translated.gettext(text) if plural is None else translated.ngettext(text, plural, values["n"])
    texts = {name: say_in(spoken, value) if isinstance(value, Message) else value for name, value in values.items()}
    return set_close(template.format(**{name: escaped(value) for name, value in texts.items()}))


GAP = re.compile(r"(?<=[\u4e00-\u9fff]) (?=[\u4e00-\u9fff])|(?<=[，。；：！？）]) (?=\S)")


UNIT = r"(?:[KMGT]?i?B|[kMT]|ms|s|min|[KMGTP]?FLOPS?)(?:/s)?(?![\w/])"
BEFORE_UNIT = re.compile(rf" (?:(?<=\d )(?={UNIT}|×)|(?<=\d × )(?=[A-Z]))", re.ASCII)


def set_close(text: str) -> str:
    """Text without the spaces that Chinese has not: between two of its characters, and after a mark as wide as they
    are. No line begins with a unit: 26.2 ms; nor with the GPU that there are so many of: 8 × H200."""
    return BEFORE_UNIT.sub("\N{NO-BREAK SPACE}", GAP.sub("", text))


def together(sentences: Iterable[str]) -> str:
    """Sentences one after the other, as their language sets them."""
    return set_close(" ".join(sentences))


SPOKEN: ContextVar[str | None] = ContextVar("language", default=None)
"""The language of this run, once it is known."""


def language() -> str:
    """The language of this session: that of the link or the switch, else the browser's, else English."""
    return SPOKEN.get() or understood()


def begin() -> None:
    """A run keeps to one language. For the router."""
    SPOKEN.set(understood())


def understood() -> str:
    """The language that the session says now."""
    chosen: str | None = st.session_state.get("language")
    of_browser = (st.context.locale or "").partition("-")[0]
    return chosen or (of_browser if of_browser in CATALOGUES else "en")


def listed(items: Iterable[str | Message]) -> str:
    """Several things in one sentence: a; b; c."""
    first, *rest = items
    together = say(first) if isinstance(first, Message) else first
    for item in rest:
        together = say("{list}; {item}", list=together, item=item)
    return together


def evidence(basis: str | Message, rows: int | None) -> str:
    """Evidence for a time, in parentheses: what it is based on, and the number of measured runs where there are any."""
    return say("({origin}; n = {n:,})", origin=basis, n=rows) if rows else say("({origin})", origin=basis)


def table(head: Iterable[str], rows: Iterable[Iterable[str]], numbers: int = 1) -> str:
    """A table in Markdown, for a few rows: it comes with the page's text and needs no script. The `numbers` columns
    after the first are aligned to the right."""
    titles = list(head)
    lines = ["---:" if 0 < column <= numbers else "---" for column in range(len(titles))]
    return "\n".join(set_close("| " + " | ".join(cells) + " |") for cells in [titles, lines, *rows])


# numbers: B of parameters is 10^9; GiB and MiB are powers of two, as GPUs count


def count(n: int) -> str:
    """Parameters: 671.03 B, 494.03 M."""
    for letter, base in (("T", 10**12), ("B", 10**9), ("M", 10**6), ("k", 10**3)):
        if n >= base:
            return f"{n / base:,.2f} {letter}"
    return f"{n}"


def more(n: int, written: Callable[[int], str] = count) -> str:
    """Parameters, or bytes, more or fewer: +75.50 M, −1.20 GiB."""
    return f"{'−' if n < 0 else '+'}{written(abs(n))}"


def gib(nbytes: int) -> str:
    """Bytes of a GPU, to be compared with others: in GiB, and from 1,024 of them in TiB."""
    return size(nbytes) if abs(nbytes) >= TIB else f"{nbytes / GIB:,.2f} GiB"


def tokens(n: int) -> str:
    """A power-of-two context as people say it: 8k, 128k, 1M; otherwise in full."""
    if n >= 2**20 and n % 2**20 == 0:
        return f"{n // 2**20}M"
    return f"{n // 1024}k" if n >= 1024 and n % 1024 == 0 else f"{n:,}"


def figure(number: float) -> str:
    """A figure that is not exact, with two or three digits that count: 1,230; 45.1; 0.38."""
    if number >= 1000:
        return f"{float(f'{number:.3g}'):,.0f}"
    return f"{number:.0f}" if number >= 100 else f"{number:.1f}" if number >= 10 else f"{number:.2f}"


def vendor(name: str) -> str:
    """Maker of a GPU; the reader's own have none."""
    return say("your own") if name == OWN else name


def on_gpus(gpu: str, n: int) -> str:
    """GPUs of one kind: 8 × H200 SXM."""
    return find_gpu(gpu).name if n == 1 else f"{n:,} × {find_gpu(gpu).name}"


def span(estimate: Estimate) -> str:
    """Low and high end; the figure alone where it has no range."""
    ends = figure(estimate.low), figure(estimate.high)
    return "–".join(dict.fromkeys(ends))


def ranged(estimate: Estimate) -> str:
    """The expected figure, and its low and high end where they differ: 49.9 (41.4–56.9)."""
    usual, ends = figure(estimate.expected), span(estimate)
    return usual if ends == usual else f"{usual} ({ends})"


def scientific(value: float) -> str:
    """A large figure as a power of ten: 8.05 × 10²¹."""
    digits, exponent = f"{value:.2e}".split("e")
    return f"{digits} × 10{str(int(exponent)).translate(SUPERSCRIPTS)}"


def duration(ms: float) -> str:
    """38 ms; 1.2 s; 4.1 min."""
    if ms < 1000:
        return f"{ms:.3g} ms"
    return f"{ms / 1000:.3g} s" if ms < 120_000 else f"{ms / 60_000:,.3g} min"


def milliseconds(ms: float) -> str:
    """Milliseconds in a column of them: nothing at all, or hardly anything, is said so."""
    return figure(ms) if ms >= 0.01 else "<\N{NO-BREAK SPACE}0.01" if ms else "–"


def durations(estimate: Estimate) -> str:
    """Low and high end."""
    return f"{duration(estimate.low)} – {duration(estimate.high)}"


def dollars(usd: float, *, exact: bool = True) -> str:
    """Dollars in Markdown, where a bare dollar sign begins a formula; of an estimate the digits that count."""
    return f"\\${usd:,.2f}" if exact else f"\\${figure(usd)}"


def percent(share: float) -> str:
    """A share that is not nothing never reads as nothing."""
    return "<\N{NO-BREAK SPACE}0.01%" if 0 < share < 0.0001 else f"{share:.2%}"


def within(share: float) -> str:
    """The least bound, in hundredths of a per cent, that a share stays below."""
    return f"{ceil(share * 10_000) / 10_000:.2%}"


def difference(share: float) -> str:
    """A share more or less; no minus before nothing."""
    return f"{share:+.2%}" if round(share, 4) else "0.00%"


def times(ratio: float) -> str:
    """A ratio to another figure: ×2.05, ÷18.7, in between in per cent."""
    if ratio == 1:
        return "="
    if ratio >= 2:
        return f"×{ratio:,.3g}" if ratio < 1000 else f"×{ratio:,.0f}"
    return f"÷{1 / ratio:,.3g}" if ratio <= 0.1 else f"{ratio - 1:+.1%}".replace("-", "−")


def shape(sides: Iterable[int]) -> str:
    """Rows × columns; a scalar has neither."""
    return " × ".join(f"{side:,}" for side in sides) or say("scalar")


def layout(degrees: Layout) -> str:
    """A layout in the terms of engines' flags: TP 4, PP 2."""
    return ", ".join(f"{name.upper()} {n:,}" for name, n in degrees if n > 1)


def copies(degrees: Layout, number: int) -> str:
    """Replicas of a layout: 2 × (TP 4)."""
    if number == 1:
        return layout(degrees) or "–"
    return f"{number:,} × ({layout(degrees)})" if degrees.gpus > 1 else say("{n:,} copies", n=number)


def capitalized(sentence: str) -> str:
    """A sentence with a capital at its beginning, unless a name that has its own, as vLLM does, begins it."""
    return f"{sentence[:1].upper()}{sentence[1:]}" if sentence.partition(" ")[0].islower() else sentence


def layers(indices: tuple[int, ...]) -> str:
    """Layer numbers as people write them: layers 3 to 60; 12 layers from 0 in steps of 2; else how many."""
    first, last, number = indices[0], indices[-1], len(indices)
    if number == 1:
        return say("layer {first}", first=first)
    step = indices[1] - first
    if indices == tuple(range(first, last + 1, step)):
        if step == 1:
            return say("layers {first} to {last}", first=first, last=last)
        return say("layers {first}, {second}, … {last}", first=first, second=first + step, last=last)
    return say("{number} layers from {first} to {last}", number=number, first=first, last=last)


def switched(value: bool) -> str:
    return say("on") if value else say("off")


def value(number: Any) -> str:
    """A value of a field in a sentence or on a button."""
    if isinstance(number, bool):
        return switched(number)
    return f"{number:,}" if isinstance(number, int) else f"{number:,.12g}" if isinstance(number, float) else str(number)


# parts of a model and of memory

COLORED: dict[str, tuple[Message, str]] = {
    "embedding": (Message("Embedding"), "#E69F00"),
    "attention": (Message("Attention"), "#0072B2"),
    "mlp": (Message("Feed-forward"), "#009E73"),
    "experts_routed": (Message("Routed experts"), "#56B4E9"),
    "experts_shared": (Message("Shared experts"), "#CC79A7"),
    "router": (Message("Router"), "#EADB45"),
    "ssm_linear": (Message("Recurrent"), "#8A6350"),
    "norms": (Message("Norms"), "#C2B8AE"),
    "lm_head": (Message("Output head"), "#D55E00"),
    "other": (Message("Other"), "#6B6B6B"),
    "weights": (Message("Weights"), "#6F63C0"),
    "kv_cache": (Message("KV cache"), "#E57373"),
    "activations": (Message("Activations"), "#A9B93B"),
    "overhead": (Message("Overhead"), "#9EA3AC"),
    "vision": (Message("Vision encoder"), "#326A85"),
    "master_weights": (Message("Master weights"), "#5BC0EB"),
    "gradients": (Message("Gradients"), "#FFD9A0"),
    "optimizer": (Message("Optimizer states"), "#AA4141"),
    "logits": (Message("Logits and loss"), "#974984"),
    "temporaries": (Message("Temporaries of the update"), "#B4904E"),
    "engine_weights": (Message("Engine weights"), "#3A5BE0"),
    "engine_rest": (Message("Engine, other"), "#F2C4D8"),
}
"""Parts with a colour in charts: label and colour. Okabe and Ito's palette for those of a model, its yellow a little
darker, and a grey; other hues for memory, so that no colour means two things."""
COLORS = {name: color for name, (_, color) in COLORED.items()}
PARTS: dict[str, Message] = {
    **{name: label for name, (label, _) in COLORED.items()},
    "cuda_context": Message("CUDA context"),
    "libraries": Message("Libraries, NCCL"),
    "cuda_graphs": Message("CUDA graphs"),
    "peak_gap": Message("Activation peak beyond ours"),
    "fragmentation": Message("Fragmentation"),
    "loading": Message("Tables, padding, rounding"),
    "scales": Message("Scales of quantized weights"),
    "draft": Message("Draft layers or model"),
    "absorbed": Message("Up-projection of latents, in 16 bits"),
    "adapters": Message("Slots for LoRA adapters"),
    "rotary": Message("Table of cosines and sines"),
    "padding": Message("Padding"),
    "rounding": Message("Rounding by the allocator"),
    "multi_token_prediction": Message("Multi-token prediction (MTP) layers"),
    "persistent_buffers": Message("Persistent buffers"),
}
IN_FILES: dict[Part, Message] = {
    "tied_head": Message("tied head, stored a second time"),
    "multi_token_prediction": Message("multi-token prediction (MTP) layers"),
    "tables_of_prediction": Message("embedding and head of the MTP layers, not stored"),
    "persistent_buffers": Message("persistent buffers"),
    "vision": Message("vision encoder and projector"),
    "causal_masks": Message("causal masks of every layer, saved by an old version"),
    "no_score": Message("row that scores texts, not stored"),
    "position_numbers": Message("numbers of positions, saved by an old version"),
    "rotary_frequencies": Message("rotary frequencies of every layer, saved by an old version"),
    "rotary_frequencies_once": Message("rotary frequencies, saved by an old version"),
    "scales": Message("scales of quantized weights"),
    "sibling": Message("larger vocabulary of the published sibling"),
}
"""Parts of a published total that ours leaves out."""
SERVED = ("weights", "kv_cache", "activations", "overhead")
SEEING = ("weights", "vision", "kv_cache", "activations", "overhead")
TRAINED = ("weights", "master_weights", "gradients", "optimizer", "activations", "logits", "temporaries", "overhead")
GENERATED = (*TRAINED[:-1], "engine_weights", "kv_cache", "engine_rest", "overhead")
"""Parts of a step whose completions an engine generates."""


def part(name: str | Message) -> str:
    """The label of a part of a model, of memory or of the overhead; what calc calls by a name of its own (a tensor of
    the working memory) is its own template."""
    if isinstance(name, str) and name not in PARTS and "_" in name:
        return f"`{name}`"  # a tensor, by its name in the file
    return say(PARTS.get(name, name) if isinstance(name, str) else name)


def color(name: str) -> str:
    return COLORS.get(name, COLORS["other"])


# names of what is chosen and of what bounds

BOUNDS: dict[str, Message] = {
    "compute": Message("compute"),
    "bandwidth": Message("memory bandwidth"),
    "link": Message("links between GPUs"),
    "host": Message("the host CPU"),
}
"""Names of the resources that bound a step."""


WORK: dict[str, Message] = {
    "scores": Message("Attention over the cache"),
    "scan": Message("Recurrence"),
    "latents": Message("Keys and values of latents"),
    "communication": Message("Communication"),
    "host": Message("Host"),
    "unpacking": Message("Unpacking of quantized weights"),
    "softmax": Message("Scores passed through memory"),
}
"""Kinds of work of a pass that are no part of the model."""
FORMS: dict[str, Message] = {
    "sxm": Message("SXM module"),
    "oam": Message("OAM module"),
    "superchip": Message("superchip"),
    "pcie": Message("PCIe card"),
    "laptop": Message("laptop"),
    "module": Message("module"),
    "soc": Message("system on a chip"),
    "chip": Message("cloud chip"),
}
TOPOLOGIES: dict[str, Message] = {
    "switch": Message("switch"),
    "full mesh": Message("full mesh"),
    "cube mesh": Message("cube mesh"),
    "torus": Message("torus"),
    "pairs": Message("pairs"),
    "pcie only": Message("PCIe only"),
    "single": Message("single"),
}


PHASES: dict[Phase, Message] = {
    "after_init": Message("Before the step"),
    "reference": Message("Passes without gradients"),
    "forward": Message("Forward"),
    "loss": Message("Loss"),
    "backward": Message("Backward"),
    "optimizer": Message("Optimizer"),
    "after_step": Message("After the step"),
}


ROLLOUT_PHASES: dict[RolloutPhaseName, Message] = {
    "rollout": Message("Generation"),
    "weight_sync": Message("Weights handed to the engine"),
    "reference": Message("Passes without gradients"),
    "update": Message("Update"),
}
TIMED_PHASES: Mapping[str, Message] = ROLLOUT_PHASES | {"remainder": Message("Rewards, packing, waiting")}
EVERY_PHASE: dict[str, Message] = {
    phase: label for labels in (PHASES, ROLLOUT_PHASES) for phase, label in labels.items()
}


def phase(name: Phase | RolloutPhaseName, peak: str) -> str:
    """A phase of a training step, or of one with generation; where it is the peak, that is said."""
    label = EVERY_PHASE[name]
    return say("{phase} (peak)", phase=label) if name == peak else say(label)


def field(name: str) -> str:
    """The label of a field; one without a label of its own is called as its flag is spelled."""
    return say(FIELDS[name]) if name in FIELDS else f"`--{name.replace('_', '-')}`"


def choice(name: str, chosen: Any) -> str:
    """A choice of a field; names of formats and products stand for themselves."""
    if isinstance(chosen, bool):
        return switched(chosen)
    message = CHOICES.get(name, {}).get(chosen)
    return str(chosen) if message is None else say(message)


def objective(chosen: Objective | None) -> str:
    """The loss of a training step; none is transformers' own."""
    return say("next token") if chosen is None else choice("loss_method", chosen.method)


def plain(text: str) -> str:
    """Markdown that reads as the text does and is neither link, picture nor formula."""
    return ADDRESS.sub("\\1\N{WORD JOINER}", SIGNS.sub(r"\\\g<0>", " ".join(text.split())))


def escaped(value: Any) -> Any:
    """A value of a sentence in Markdown: our own may hold links, what is from outside none."""
    return plain(value) if isinstance(value, Outside) else value
