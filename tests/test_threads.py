"""Threads at every door of calc: each is told what it would be told alone."""

import gc
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import _lru_cache_wrapper
from threading import Barrier

import pytest

from calc import Architecture, Overhead, Precision, Workload, report, training_report
from calc.design.checks import checks
from calc.design.slope import Slopes
from calc.design.standing import proportions
from calc.families import override
from calc.families.gguf import config_of
from calc.hardware.computer import Computer
from calc.hardware.parallel import Layout
from calc.serving import laid_out_report
from calc.serving.derivation import Derivations
from calc.serving.engines import ENGINES
from calc.serving.engines.llamacpp.options import LlamaCppOptions
from calc.serving.engines.llamacpp.slots import set_up
from calc.serving.engines.rules import Question
from calc.serving.engines.vllm.engine import VLLM
from calc.serving.memory import Serving
from calc.time.fitting import fitting, in_formats
from calc.time.local import best_file
from calc.time.plan import Needs
from calc.time.plan_report import plan_report
from calc.time.report import time_report
from calc.time.training_plan import TrainingNeeds, training_plan_report
from calc.verify.checkpoint import read_safetensors
from calc.verify.compare import compare
from calc.verify.logs import read_log
from calc.verify.measurement import read_measurement, with_predictions
from calc.verify.printed import read_printed
from presets import gpus, models, started
from presets.search import label, newest
from tests import EXAMPLES

OFTEN = 1e-4
"""Seconds after which another thread has its turn; Python's 5 ms hide what happens in between."""
MODELS = (
    "meta-llama/Llama-3.1-8B",
    "google/gemma-3-4b-it",
    "openai/gpt-oss-20b",
    "deepseek-ai/DeepSeek-V2-Lite",
    "Qwen/Qwen3.5-9B",
)
"""Layers of each kind."""
CARD = "rtx-4090"
SIZES = 12
"""Models that llama.cpp starts in turn: more than are remembered."""


class Doors:
    """Every way to ask, about models that all threads share, as those of a server's sessions are."""

    def __init__(self):
        self.configs = [override(models()[name].config, {"num_hidden_layers": 4}) for name in MODELS]
        self.models = [Architecture.from_config(config) for config in self.configs]
        small = override(self.configs[0], {"num_hidden_layers": 1})
        self.sizes = [Architecture.from_config({**small, "vocab_size": 4096 + 64 * n}) for n in range(SIZES)]
        self.gpus = [gpus()[CARD]]

    def reports(self):
        for engine in ENGINES:
            for config, model in zip(self.configs, self.models, strict=True):
                weights = Precision(weights="Q4_K_M") if engine == "llamacpp" else Precision.of(config)
                if any(ENGINES[engine]().refusals(Question(model, weights))):
                    continue
                asked = {"architecture": model, "engine": ENGINES[engine](), "precision": weights, "gpus": self.gpus}
                yield report(config, workload=Workload(context=2048, batch=2), **asked).model_dump()

    def training_reports(self):
        for config, model in zip(self.configs, self.models, strict=True):
            yield training_report(config, architecture=model, gpus=self.gpus).model_dump()

    def plans(self):
        yield plan_report(self.configs[0], Needs(users=2), gpus=self.gpus, most=2).model_dump()
        needs = TrainingNeeds(gpus=2, global_batch=8)
        yield training_plan_report(self.configs[0], needs, gpus=self.gpus).model_dump()

    def maps(self):
        named = dict(zip(MODELS, self.models, strict=True))
        for engine, form in (("vllm", "bf16"), ("llamacpp", "Q8_0")):
            made = ENGINES[engine]()
            found = fitting((n, in_formats(m, made, [Precision(weights=form)]), self.gpus[0]) for n, m in named.items())
            yield found.max_context.tolist(), found.tokens_per_s.tolist(), found.layouts

    def files(self):
        yield best_file(self.models[2], Computer(my_gpus=(CARD,)), Workload(), LlamaCppOptions(), Precision())

    def drafts(self):
        engine = started("llamacpp", LlamaCppOptions(model_draft="Qwen/Qwen3-0.6B"))
        config, asked = models()["Qwen/Qwen3-8B"].config, Precision(weights="Q4_K_M")
        serving, found = laid_out_report(
            config, engine=engine, precision=asked, workload=Workload(context=512), gpus=self.gpus
        )
        yield found.model_dump()
        yield time_report(serving, *self.gpus, found.scenario.workload).model_dump()

    def llamacpp(self):
        options = LlamaCppOptions()
        for model in self.sizes * 20:
            yield set_up(model, Precision(weights="Q8_0"), options, 1).totals(1, 512, passes=True)

    def derivations(self):
        serving = Serving.of(self.models[0], ENGINES["vllm"](), Precision(), Layout(), Overhead())
        derived = Derivations(serving.on(*self.gpus, Workload(context=2048)))
        yield [str(lines()) for lines in (derived.weights, derived.kv_cache, derived.activations, derived.total)]

    def verified(self):
        printed = read_printed((EXAMPLES / "printed.txt").read_text(encoding="utf-8"))
        yield printed.shapes, [str(sentence) for sentence in printed.unseen]
        index = read_safetensors((EXAMPLES / "model.safetensors.index.json").read_bytes())
        yield compare(Architecture.from_config(models()["google/gemma-2b"].config), index).model_dump()
        yield read_log((EXAMPLES / "startup.log").read_text(encoding="utf-8")).model_dump()
        measured = read_measurement((EXAMPLES / "measurement.json").read_text(encoding="utf-8"))
        yield [row.model_dump() for row in with_predictions(measured)]

    def designs(self):
        for config, model in zip(self.configs, self.models, strict=True):
            own = proportions("own", model)
            yield [check.model_dump() for check in checks(model, Layout(), [own], own)]
            yield Slopes(config, model, VLLM(), Precision(), Workload()).here

    def gguf(self):
        metadata = {"general.architecture": "llama", "llama.block_count": 2, "llama.embedding_length": 64}
        metadata |= {"llama.feed_forward_length": 128, "llama.attention.head_count": 4, "llama.vocab_size": 320}
        yield config_of(metadata, {"token_embd.weight": (320, 64)})

    def presets(self):
        yield [label(preset.id) for preset in newest()]
        yield {name: dict(preset.config) for name, preset in models().items()}

    def told(self, first=0):
        """All answers, those of one door after those of another, from a door on."""
        ways = [self.reports, self.training_reports, self.plans, self.maps, self.files, self.drafts]
        ways += [self.llamacpp, self.derivations, self.verified, self.designs, self.gguf, self.presets]
        order = [*ways[first:], *ways[:first]]
        return {way.__name__: list(way()) for way in order}


def forget():
    """What is remembered process-wide."""
    gc.unfreeze()  # what tests/conftest.py froze is not listed
    for found in gc.get_objects():
        if isinstance(found, _lru_cache_wrapper) and found.__module__.startswith(("calc.", "presets")):
            found.cache_clear()
    gc.freeze()


@pytest.fixture
def impatient():
    before = sys.getswitchinterval()
    sys.setswitchinterval(OFTEN)
    yield
    sys.setswitchinterval(before)


@pytest.mark.slow
@pytest.mark.parametrize("number_of_threads", [4, pytest.param(16, marks=pytest.mark.sweep)])
def test_threads_are_told_what_one_is(impatient, number_of_threads):
    forget()
    doors, together = Doors(), Barrier(number_of_threads)

    def ask(number):
        together.wait()
        return doors.told(first=number % 12)

    with ThreadPoolExecutor(number_of_threads) as threads:
        found = list(threads.map(ask, range(number_of_threads)))
    forget()
    alone = Doors().told()
    for answers in found:
        for door, told in alone.items():
            assert answers[door] == told, door
