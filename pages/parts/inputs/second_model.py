"""A second model next to the one on screen: what guesses tokens for it, or whose distribution it learns."""

from collections.abc import Callable, Iterable
from functools import lru_cache

from calc import Architecture
from calc.serving.engines import ENGINES
from pages.parts.inputs.control import choose, faults, labelled
from pages.parts.state.published import of_preset
from pages.parts.state.scenario import Place
from pages.parts.state.weighed import Answer
from presets import models
from presets.search import label


def second_model(place: Place, answer: Answer, known: Iterable[str], placeholder: str) -> None:
    """A list of presets and the one that is chosen, which may be none of them."""
    names, chosen = list(known), place.of(answer.scenario)
    listed = names if chosen is None or chosen in names else [*names, chosen]
    choose(place, listed, labelled(place), lambda name: label(name) if name in models() else name, placeholder)
    faults(answer.error, place)


@lru_cache(maxsize=64)
def drafts(engine: str, vocab: int, parameters: int) -> tuple[str, ...]:
    """Presets that an engine takes as drafts for a vocabulary, with at most half as many parameters; smallest first."""
    sizes = sizes_of(lambda model: ENGINES[engine].may_draft(model, vocab))
    return tuple(name for name, size in sizes.items() if 2 * size <= parameters)


@lru_cache(maxsize=64)
def teachers(vocab: int) -> tuple[str, ...]:
    """Presets of a vocabulary, largest first."""
    sizes = sizes_of(lambda model: model.vocab == vocab)
    return tuple(sorted(sizes, key=sizes.__getitem__, reverse=True))


def sizes_of(takes: Callable[[Architecture], bool]) -> dict[str, int]:
    """Parameters of the presets that are taken, by id, smallest first."""
    known = {name: of_preset(name, None).architecture for name in models()}
    sizes = {name: model.parameters().total for name, model in known.items() if model is not None and takes(model)}
    return dict(sorted(sizes.items(), key=lambda row: row[1]))
