"""Files of the model on screen, and presets, on the reader's own machine."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from calc import ConfigError, Precision, Workload
from calc.errors import Message
from calc.formats import MIXES, CacheFormat, WeightFormat
from calc.hardware import Computer, note, runs
from calc.options import checked
from calc.serving import within_positions
from calc.serving.engines.llamacpp.engine import LlamaCpp
from calc.serving.engines.llamacpp.options import LlamaCppOptions
from calc.serving.engines.rules import Question
from calc.time.local import COMMON, LEAST_SPEED, LocalRun, MLXRun, best_file, file_of, mlx_runs, run, supports
from pages.parts.state.published import of_preset
from pages.parts.state.scenario import Scenario
from pages.parts.state.session import remembered
from pages.parts.state.weighed import Answer, Model, answering
from presets import models

OPTIONS = LlamaCppOptions()
FEW = 12
"""Presets in sight."""
FOUR_BITS, HOST_SHARE = 0.6, 0.55
"""Bytes of a weight in four bits, with scales and what stays wider; the share of its bandwidth that a host reaches."""
TAG = re.compile(r"(?i)(?<![a-z0-9])(UD-)?(I?Q[1-8]_(?:K_)?[A-Z0-9]+(?:_[SMLX]{1,2})?|BF16|F16|MXFP4)(?![a-z0-9])")
"""The part of a GGUF file's name that states its types."""
HEADER, HEADER_OF_TOKEN = 200_000, 66
"""Most bytes of a GGUF file's header: lines of its tensors, chat template; a token with merges. Published files have
24 to 61 for a token (tests/data/gguf_sizes.json)."""
PLAIN: dict[str, WeightFormat] = {"BF16": "bf16", "F16": "fp16", "MXFP4": "mxfp4"}


@dataclass(frozen=True)
class FileRow:
    """A file to download: one of a GGUF repository, or one that llama.cpp would make."""

    name: str
    bytes: int
    run: LocalRun
    is_exact: bool  # its types are those of a mix of llama.cpp
    tag: str = ""  # what its name says of them


@dataclass(frozen=True)
class LocalAnswer(Answer):
    """The answer of the page of the reader's machine."""

    @property
    def computer(self) -> Computer:
        return self.scenario.machine

    @cached_property
    def workload(self) -> Workload:
        return within_positions(self.scenario.serving.workload, self.architecture)

    @property
    def kv(self) -> CacheFormat:
        return self.scenario.serving.kv or "bf16"

    @cached_property
    def known(self) -> dict[Precision, LocalRun]:
        return {}

    def on(self, weights: WeightFormat, *, imatrix: bool = False) -> LocalRun:
        precision = Precision(weights=weights, kv=self.kv, imatrix=imatrix)
        if precision not in self.known:
            self.known[precision] = run(self.architecture, precision, self.computer, self.workload, OPTIONS)
        return self.known[precision]

    @cached_property
    def best(self) -> LocalRun:
        return best_file(self.architecture, self.computer, self.workload, OPTIONS, Precision(kv=self.kv))

    @cached_property
    def mlx(self) -> list[MLXRun]:
        """The model in each format of MLX, on a Mac."""
        return mlx_runs(self.architecture, self.computer, self.workload)

    @cached_property
    def files(self) -> tuple[FileRow, ...]:
        """The largest first."""
        hub = self.model.published.hub
        rows = list(self.of_repository()) if hub is not None and hub.gguf_files else list(self.of_mixes())
        return tuple(sorted(rows, key=lambda row: -row.bytes))

    def of_mixes(self) -> Iterator[FileRow]:
        stem = self.model.name.rpartition("/")[2]
        for weights in COMMON:
            answer = self.on(weights)
            yield FileRow(f"{stem}-{weights}.gguf", answer.file.bytes, answer, is_exact=True, tag=weights)

    def of_repository(self) -> Iterator[FileRow]:
        """Every file of a type that llama.cpp makes and of that mix's size; of others the mix that is nearest in it."""
        hub = self.model.published.hub
        assert hub is not None
        for name, size in series(hub.files):
            tag, mix, plain = mix_of(name)
            if mix is None or not plain:
                yield FileRow(name, size, self.on(self.nearest(size)), is_exact=False, tag=tag)
                continue
            weighed = next((weighed for weighed in (False, True) if self.is_of_size(mix, size, imatrix=weighed)), None)
            yield FileRow(name, size, self.on(mix, imatrix=bool(weighed)), is_exact=weighed is not None, tag=tag)

    def is_of_size(self, weights: WeightFormat, size: int, *, imatrix: bool) -> bool:
        """Whether a file has a mix's tensors and a header, most of which is the vocabulary."""
        header = size - file_of(self.architecture, weights, imatrix=imatrix).bytes
        return 0 <= header <= HEADER + HEADER_OF_TOKEN * self.architecture.vocab

    def nearest(self, size: int) -> WeightFormat:
        """The mix whose file is nearest in size."""
        return min(COMMON, key=lambda mix: abs(file_of(self.architecture, mix).bytes - size))


def series(files: dict[str, int | None]) -> Iterator[tuple[str, int]]:
    """The GGUF files of a repository, each series of parts as its first one with the bytes of all."""
    sizes: dict[str, tuple[str, int]] = {}
    for name, size in sorted(files.items()):
        if name.endswith(".gguf") and size is not None and "mmproj" not in name:
            stem = re.sub(r"-\d{5}-of-\d{5}\.gguf$", "", name)
            first, before = sizes.get(stem, (name, 0))
            sizes[stem] = first, before + size
    yield from sizes.values()


def mix_of(name: str) -> tuple[str, WeightFormat | None, bool]:
    """The types that a file's name says, the mix of llama.cpp of that name, and whether nothing stands before it."""
    match = TAG.search(name.rpartition("/")[2])
    if match is None:
        return "", None, False
    tag = match[2].upper()
    known: dict[str, WeightFormat] = {mix.upper(): mix for mix in MIXES} | PLAIN
    return match[0], known.get(tag), match[1] is None and tag in known


def local_answer(scenario: Scenario) -> LocalAnswer:
    """The answer, kept for the session while nothing that it depends on changes."""
    serving = scenario.serving
    key = (scenario.source, scenario.overrides, scenario.machine, serving.workload, serving.kv)
    return remembered("local", key, lambda: computed(scenario), is_kept=lambda answer: answer.error is None)


@answering(LocalAnswer)
def computed(scenario: Scenario, model: Model) -> Mapping[str, Any]:
    """The answer, where llama.cpp runs the model on the machine."""
    serving = scenario.serving
    assert model.architecture is not None
    work = within_positions(checked(serving.workload), model.architecture)
    checked(scenario.machine)
    for gpu in scenario.machine.gpus:
        if not runs(gpu, LlamaCpp.support) and (why := note(gpu, LlamaCpp.support)) is not None:
            raise ConfigError(Message("{why}.", why=why), "my_gpus")
    LlamaCpp().check(Question(model.architecture, workload=work))
    question = Question(model.architecture, Precision(weights="Q4_K_M", kv=serving.kv or "bf16"))
    for refusal in LlamaCpp().refusals(question):
        raise ConfigError(refusal.message, "kv" if supports(model.architecture) else "model", ["q8_0"])
    return {}


@lru_cache(maxsize=256)
def of_preset_on(
    name: str, computer: Computer, workload: Workload, kv: CacheFormat, *, longest: bool = True
) -> LocalRun:
    """The best file of a preset."""
    architecture = of_preset(name, None).architecture
    assert architecture is not None
    return best_file(architecture, computer, workload, OPTIONS, Precision(kv=kv), longest=longest)


@lru_cache(maxsize=1)
def readable() -> tuple[tuple[str, int, int], ...]:
    """Presets that llama.cpp reads, with all and the active parameters, the largest first."""
    sizes = []
    for name in models():
        architecture = of_preset(name, None).architecture
        if architecture is not None and supports(architecture):
            parameters = architecture.parameters()
            sizes.append((name, parameters.total, parameters.active))
    return tuple(sorted(sizes, key=lambda row: -row[1]))


def candidates(computer: Computer, most: int) -> list[str]:
    """The largest presets that roughly have room in four bits and answer fast enough to read along, one of each size
    and maker: what lies on the host is read at its bandwidth."""
    on_gpus = sum(gpu.usable_bytes for gpu in computer.gpus)
    memory = computer.host_bytes + (0 if computer.is_unified else on_gpus)
    rate = HOST_SHARE * computer.host.bandwidth_gb_s * 1e9
    names: dict[tuple[str, int], str] = {}
    for name, parameters, active in readable():
        size = FOUR_BITS * parameters
        on_host = max(0.0, 1 - on_gpus / size)
        if size <= memory and FOUR_BITS * active * on_host / rate <= 1 / LEAST_SPEED:
            names.setdefault((name.partition("/")[0], round(parameters / 1e9)), name)
    return list(names.values())[:most]
