"""Every cache of the whole process, and the bytes that strangers can make it hold."""

import gc
import inspect
import pkgutil
from functools import _lru_cache_wrapper
from importlib import import_module

import pytest

import calc
import cli
import presets
from calc import Architecture, Precision, Workload
from calc.errors import Message
from calc.formats.gguf_file import model_file
from calc.formats.gguf_types import mix_inputs
from calc.formats.scheme import ModuleNames
from calc.hardware.computer import Computer
from calc.serving.engines.vllm.options import changes
from calc.time.efficiency import Conditions, efficiency, row
from calc.training.layout import PieceAtWork, peak_turns, turns
from pages import parts
from pages.parts.inputs.lists import gpu_label
from pages.parts.inputs.second_model import drafts, teachers
from pages.parts.limits import MOST_ADDRESSES, PerMinute
from pages.parts.state.fitted import longest_on, models_on
from pages.parts.state.local import of_preset_on
from presets.hub import MISSING
from presets.replies import RecentAnswers
from tests.test_growth import grown, unlike

MEGABYTES = 20
"""That one cache may hold."""
OWN = {
    "calc.options.options": "classes of ours",
    "calc.formats.precision.scheme_of_components": "names of formats and components",
    "calc.training.course.message": "names of the tensors of a pass",
    "pages.parts.state.published.of_preset": "ids of presets",
    "pages.parts.state.scenario.places": "parts of the scenario, by engine",
    "presets.architecture_of": "ids of presets",
    "presets.search.haystack": "ids of presets",
    "presets.search.label": "ids of presets",
    "presets.search.size": "ids of presets",
}
"""Caches whose questions are of ours alone, and what these are."""


def card(number: int) -> str:
    """A GPU of a stranger's own, with as long a text as any."""
    peaks = ",".join(f"{dtype}=181.123456" for dtype in ("fp32", "tf32", "bf16", "fp16", "fp8", "int8"))
    return f"{'x' * 34}{number:06d}:48.123456GiB:960.123456GB/s:{peaks},link=112.123456"


def computer(number: int) -> Computer:
    return Computer(my_gpus=tuple(card(number + 1000 * i) for i in range(4)))


ASKED = {
    row: lambda n: row("matmul", Conditions("vllm", "hopper", n + 1), "bf16"),
    efficiency: lambda n: efficiency(Conditions("vllm", "hopper", n + 1), "bf16", "fp8"),
    changes: lambda n: changes(f"0.{n}.{'1' * 20}"),
    gpu_label: lambda n: gpu_label(card(n)),
    drafts: lambda n: drafts("vllm", 151_936, 10**9 + n),
    teachers: lambda n: teachers(151_936 + n),
    of_preset_on: lambda n: of_preset_on("Qwen/Qwen3-8B", computer(n), Workload(), "fp16"),
    model_file: lambda n: model_file(Architecture.from_config(unlike(n)), Precision(weights="Q4_K_M")),
    mix_inputs: lambda n: mix_inputs(Architecture.from_config(unlike(n))),
    longest_on: lambda n: longest_on(card(n), 1, "vllm"),
    models_on: lambda n: models_on(card(0), 1, 4096 + n, "vllm"),
}
"""Caches whose questions strangers make, with one of them by number, and how often it is asked."""


def caches() -> set[_lru_cache_wrapper]:
    """All of ours but those that a call makes and that die with what it returns."""
    for package in (calc, cli, parts, presets):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                import_module(module.name)
    ours = ("calc.", "cli.", "pages.", "presets")
    gc.unfreeze()  # what tests/conftest.py froze is not listed
    wrappers = {each for each in gc.get_objects() if isinstance(each, _lru_cache_wrapper)}
    gc.freeze()
    return {
        each for each in wrappers if (each.__module__ or "").startswith(ours) and "<locals>" not in each.__qualname__
    }


def test_every_cache_is_known_and_none_that_is_asked_is_without_bound():
    asked = {cache for cache in caches() if inspect.signature(cache).parameters}
    assert {f"{cache.__module__}.{cache.__qualname__}" for cache in asked - set(ASKED)} == set(OWN)
    assert [cache for cache in asked if cache.cache_parameters()["maxsize"] is None] == []


@pytest.mark.parametrize("cache", [pytest.param(c, id=c.__qualname__) for c in list(ASKED)[:3]])
def test_what_strangers_ask_takes_few_bytes(cache):
    assert bytes_at_most(cache, 8) < MEGABYTES * 10**6


@pytest.mark.sweep
@pytest.mark.parametrize("cache", [pytest.param(c, id=c.__qualname__) for c in list(ASKED)[3:]])
def test_what_strangers_ask_of_models_takes_few_bytes(cache):
    assert bytes_at_most(cache, 2) < MEGABYTES * 10**6


def bytes_at_most(cache: _lru_cache_wrapper, often: int) -> float:
    """Bytes of a full cache, by what so many new questions leave in it."""
    cache.cache_clear()  # other tests may have asked the same
    size = grown(ASKED[cache], often)
    assert cache.cache_info().misses == often + 1
    return size / often * cache.cache_parameters()["maxsize"]


def test_a_long_schedule_is_not_remembered():
    """One of 128 different pieces took 2.3 MB, and 4,096 were kept."""
    assert grown(lambda n: peak_turns(8, tuple(range(128)), 24 + n, 0), 2) < 10**5


def test_turns_at_which_as_much_or_more_waits_are_left_out():
    """By the definition, of all pairs of turns."""

    def more(other: PieceAtWork, turn: PieceAtWork) -> bool:
        same = other[:2] == turn[:2] and other.waiting != turn.waiting
        return same and all(a >= b for a, b in zip(other.waiting, turn.waiting, strict=True))

    for stages, kinds in ((1, (0,)), (4, (0,)), (4, (0, 1)), (4, (0, 1, 0)), (8, (0, 1, 2, 1))):
        distinct = list(dict.fromkeys(turns(stages, kinds, 3 * stages, 0)))
        expected = [turn for turn in distinct if not any(more(other, turn) for other in distinct)]
        assert list(peak_turns(stages, kinds, 3 * stages, 0)) == expected


def test_patterns_of_strangers_are_forgotten():
    """fnmatch keeps 32,768 of them, 76 MB: 2.7 MB of these 800, where re keeps 512."""

    def match(number: int) -> None:
        names = tuple(f"model.layers.*.{number}{'x' * 150}{i}*.mlp" for i in range(400))
        assert not ModuleNames(names=names).hold("model.layers.0.self_attn.q_proj.weight")

    assert grown(match, 2) < 2.3 * 10**6


def test_refusals_of_the_hub_take_few_bytes():
    refusals = RecentAnswers[tuple[Message, bool]](seconds=60.0, most=MISSING.most)

    def refuse(number: int) -> None:
        question = f"{number:06d}/{'m' * 89}", "r" * 94 + f"{number:06d}", "f" * 194 + f"{number:06d}"
        refusals.put(question, (Message("{model}", model=f"{number}{'x' * 3000}"), True))

    assert grown(refuse, 2 * MISSING.most) < MEGABYTES * 10**6


def test_counts_of_addresses_take_few_bytes():
    limit = PerMinute(10)
    size = grown(lambda n: limit.allows(f"2600:{n:04x}::1"), 2000)
    assert len(limit.counts) == 2001
    assert size / 2000 * MOST_ADDRESSES < MEGABYTES * 10**6
