"""What strangers send is forgotten: no cache of the process grows with it."""

import gc
import tracemalloc
import weakref
from collections.abc import Callable

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from calc import Architecture, ConfigError, Precision, report, training_report
from calc.families import override
from calc.options import made
from calc.serving.engines import ENGINES
from calc.text import pack, parse_config, unpack, written
from pages.parts.outputs import scripts
from pages.parts.state import published, session
from pages.parts.state.query import WEIGH, decode
from pages.parts.state.scenario import Scenario, Source
from presets import models

LAYERS = 24


def grown(work: Callable[[int], object], often: int) -> int:
    """Bytes that stay after some work was done so often, where it had been done once before."""
    work(0)
    gc.collect()
    tracemalloc.start()
    for n in range(1, often + 1):
        work(n)
    gc.collect()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return size


def unlike(number: int) -> dict[str, object]:
    """A config of a size of its own, whose layers follow no rule."""
    words = ["sliding_attention" if (i * i + number) % 3 == 0 else "full_attention" for i in range(LAYERS)]
    changes = {"vocab_size": 4096 + 64 * number, "num_hidden_layers": LAYERS, "layer_types": words}
    return override(models()["google/gemma-3-27b-it"].config, changes)


def remaining(work: Callable[[int], object], often: int) -> int:
    """Models that stay after so many were looked at."""

    def alive() -> int:
        gc.collect()
        return sum(isinstance(thing, Architecture) for thing in gc.get_objects())

    before = alive()
    for n in range(often):
        work(n)
    return alive() - before


def test_a_refused_option_keeps_nothing_of_those_who_asked():
    """pydantic's error holds that of a check, whose traceback holds every caller's variables, and the garbage collector
    does not see through it: a link with a flag that has no effect kept the last plans, about 17 kB for ever."""

    class Asker:
        error: ConfigError | None = None

    def ask() -> weakref.ref[Asker]:
        asker = Asker()
        try:
            made(ENGINES["vllm"].options_type, {"max_loras": 4})
        except ConfigError as problem:
            asker.error = problem
        return weakref.ref(asker)

    there = ask()
    gc.collect()
    assert there() is None


@pytest.mark.slow
@pytest.mark.parametrize("engine", list(ENGINES))
def test_models_of_strangers_are_forgotten(engine):
    """llama.cpp's caches kept all of 60 models, 63 MB where they had 900 layers. Now they are those of eight files."""
    kind = ENGINES[engine]
    weights = Precision(weights="Q4_K_M") if engine == "llamacpp" else Precision()
    assert remaining(lambda n: report(unlike(n), engine=kind(), precision=weights), 10) <= 8


@pytest.mark.slow
def test_steps_of_strangers_are_forgotten():
    assert remaining(lambda n: training_report(unlike(n)), 4) == 0


@pytest.mark.slow
def test_pasted_texts_are_forgotten():
    """20 of 20,000 names once held 203 MB."""

    def paste(number: int) -> None:
        names = [f"model.layers.{i}.mlp.{number}" for i in range(2000)]
        config = {"model_type": "llama", "quantization_config": {"quant_method": "fp8", "ignored_layers": names}}
        text = written(config).decode()
        assert unpack(pack(parse_config(text))) == config
        report(config)

    assert grown(paste, 5) < 5 * 10**5


@pytest.mark.slow
def test_names_of_strangers_are_forgotten():
    def ask(number: int) -> None:
        name = f"{number}{'x' * 100_000}"
        with pytest.raises(ConfigError):
            Architecture.from_config({"model_type": name})
        Architecture.from_config({"model_type": "llama", name: 1}).parameters()
        decode({name: name, "gpu": name, "model": name, "with": name}, WEIGH, Scenario(), lambda source: {})

    assert grown(ask, 5) < 4 * 10**5


@pytest.mark.sweep
def test_addresses_of_strangers_are_forgotten():
    """4,000 made-up names of 60 kB held 240 MB for ever."""
    with TestClient(Starlette(routes=[scripts.SCRIPTS.route()])) as client:

        def ask(number: int) -> None:
            assert client.get(f"/scripts/{scripts.SCRIPTS.version}/{number}{'x' * 1000}").status_code == 404

        assert grown(ask, 4000) < 2 * 10**6


@pytest.mark.filterwarnings("ignore")  # Streamlit's, of a session without a browser
def test_a_session_keeps_few_characters(monkeypatch):
    """Eight models, but of long configs only so many as have so many characters together."""
    kept: dict[str, list[tuple[object, published.Published]]] = {}
    monkeypatch.setattr(session, "state", lambda: kept)
    for number in range(6):
        config = {"model_type": "llama", "note": f"{number}{'x' * 1_500_000}"}
        assert published.published(Source(pasted=config)).config == config
    assert len(kept["published"]) == 2
    for number in range(20):
        published.published(Source(pasted={"model_type": "llama", "vocab_size": 1000 + number}))
    assert len(kept["published"]) == 8
