"""What the reader has chosen, and how it is written in the URL: readable names, only what differs from the default."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, InstanceOf, ValidationError, field_validator

from calc import Architecture, ConfigError, Layout, Overhead, Precision, Range, Workload
from calc.errors import Frozen, shown
from calc.families import ASSUMED, as_llama, override, settings
from calc.formats import CACHE_FORMATS, WEIGHT_FORMATS, CacheFormat, WeightFormat, native_weights
from calc.serving.engines import ENGINES, Engine
from calc.serving.engines.transformers.options import Attention, Logits
from calc.serving.engines.vllm.options import Speculative
from calc.text import pack, unpack
from calc.training.optimizer import Optimizer
from calc.training.recipe import RECIPES, Recipe, RecipeName
from calc.training.sharding import TrainingLayout
from calc.training.training_workload import LoraTargets, Loss, Method, Recompute, TrainingWorkload
from pages.parts.inputs.fields import CONTROLS
from presets import Preset, gpus, models
from presets.hub import HubModel, is_id

DEFAULT_MODEL = "Qwen/Qwen3-8B"
Fetch = Callable[[str, str | None, str | None], HubModel]
"""Model id, revision and GGUF file -> the model; raises ConfigError."""
Tokens = Annotated[int, Field(ge=1, le=2**30)]


@cache
def usual_gpus() -> tuple[str, ...]:
    return tuple(gpu.id for gpu in gpus().values() if gpu.default)


class Scenario(Frozen):
    """One screen. Every field but `overrides` has the name that the URL gives it."""

    model: str = DEFAULT_MODEL  # a preset, or any model of the Hub
    revision: Annotated[str, Field(min_length=1, max_length=100)] | None = None
    file: Annotated[str, Field(min_length=1, max_length=200)] | None = None  # one of several GGUF files
    assume: Literal["llama"] | None = None  # how to read a family that we do not know
    pasted: dict[str, Any] | None = None  # a config of the reader's own, in place of the model
    hub: HubModel | None = None  # what the Hub gave; found again from the model's id, so not in the URL
    unread: InstanceOf[ConfigError] | None = None  # why it gave nothing
    overrides: dict[str, int | bool] = {}  # config fields that differ from the preset
    batch: Annotated[int, Field(ge=1, le=65_536)] = 1
    context: Annotated[int, Field(ge=1, le=16_777_216)] = 8192
    weights: WeightFormat | None = None  # None: as the checkpoint stores them
    kv: CacheFormat = "bf16"
    engine: Literal["vllm", "transformers", "sglang", "llamacpp"] = "vllm"
    attention: Attention = "flash"
    prefill: Tokens | None = None
    generated: Annotated[int, Field(ge=0, le=2**30)] = 0
    logits: Logits | None = None
    speculative: Speculative = "none"
    language_model_only: bool = False
    gpu_memory_utilization: Annotated[float, Field(ge=0.01, le=1)] | None = None
    max_num_seqs: Annotated[int, Field(ge=1, le=2**24)] | None = None
    attention_dp: Annotated[int, Field(ge=1, le=1024)] = 1  # copies of the attention, in serving
    expert_ranks: Annotated[int, Field(ge=1, le=4096)] = 1  # over which routed experts are spread, in serving
    tp: Annotated[int, Field(ge=1, le=1024)] = 1
    pp: Annotated[int, Field(ge=1, le=1024)] = 1
    gpu: tuple[str, ...] = Field(default_factory=usual_gpus)
    micro_batch: Annotated[int, Field(ge=1, le=65_536)] = 1  # a training step, from here
    sequence: Annotated[int, Field(ge=1, le=16_777_216)] = 4096
    accumulation: Annotated[int, Field(ge=1, le=65_536)] = 1
    method: Method = "full"
    lora_rank: Annotated[int, Field(ge=1, le=65_536)] = 16
    lora_targets: LoraTargets = "all"
    optimizer: Optimizer = "adamw"
    optimizer_in_backward: bool = False
    recipe: RecipeName = "master"
    recompute: Recompute = "none"
    fused: bool = False
    loss: Loss = "whole"
    offload_activations: bool = False
    zero: Literal[0, 1, 2, 3] = 0
    dp: Annotated[int, Field(ge=1, le=65_536)] = 1
    cp: Annotated[int, Field(ge=1, le=1024)] = 1
    ep: Annotated[int, Field(ge=1, le=4096)] = 1
    cuda_context: Range | None = None  # GiB; None: the usual range, here and below
    libraries: Range | None = None  # GiB
    cuda_graphs: Range | None = None  # GiB
    fragmentation: Range | None = None  # percent

    @field_validator("model")
    @classmethod
    def _has_the_form_of_an_id(cls, model: str) -> str:
        if model not in models() and not is_id(model):
            raise ValueError(model)
        return model

    @field_validator("pasted")
    @classmethod
    def _can_be_read(cls, pasted: dict[str, Any] | None) -> dict[str, Any] | None:
        if pasted is not None:
            Architecture.from_config(pasted)
        return pasted

    @field_validator("gpu")
    @classmethod
    def _are_known(cls, chosen: tuple[str, ...]) -> tuple[str, ...]:
        if not set(chosen) <= set(gpus()):
            raise ValueError(chosen)
        return chosen

    def base(self) -> dict[str, Any]:
        """The config as published, or as the reader pasted it. Raises ConfigError when the Hub gave none."""
        if self.pasted is not None:
            return dict(self.pasted)
        if self.hub is None and self.unread is not None:
            raise self.unread
        config = dict(models()[self.model].config if self.hub is None else self.hub.config)
        return config if self.assume is None else as_llama(config)

    def settings(self) -> dict[str, Any]:
        """The fields of the base that decide a size; none where it can't be read."""
        try:
            return settings(self.base())
        except ConfigError:
            return {}

    def preset(self) -> Preset | None:
        """The preset that is on screen; None for a model of the Hub or a pasted config."""
        return models().get(self.model) if self.pasted is None and self.hub is None else None

    def name(self) -> str:
        preset = self.preset()
        if preset is not None:
            return preset.name
        if self.pasted is None:
            return self.model + (f" at {self.revision}" if self.revision else "")
        assumed = self.pasted.get(ASSUMED)
        return f"Pasted config ({self.pasted['model_type']}" + (f", assumed for {assumed})" if assumed else ")")

    def config(self) -> dict[str, Any]:
        """The config with the reader's changes. Raises ConfigError."""
        return override(self.base(), self.overrides)

    def workload(self) -> Workload:
        """Raises ConfigError where two choices exclude each other."""
        try:
            return Workload(**self._same(Workload))
        except ValidationError as error:
            raise ConfigError(_said(error), "generated", [0]) from None

    def serving_engine(self) -> Engine:
        """The engine with the flags that are its own."""
        kind = ENGINES[self.engine]
        stated = {name: getattr(self, name) for name in kind.options_type.model_fields if name in EXPECTED}
        if self.prefill is not None:
            stated[kind.step_option] = self.prefill
        return kind(kind.options_type.model_validate(stated))

    def training(self) -> TrainingWorkload:
        """Raises ConfigError where two choices exclude each other."""
        try:
            return TrainingWorkload(**self._same(TrainingWorkload))
        except ValidationError as error:
            raise ConfigError(_said(error), "accumulation", [1]) from None

    def training_layout(self) -> TrainingLayout:
        return TrainingLayout(**self._same(TrainingLayout))

    def training_recipe(self) -> Recipe:
        return RECIPES[self.recipe]

    def frozen(self) -> Precision | None:
        """How weights that are not trained are stored; None: as the method usually has them."""
        return None if self.weights is None else Precision(weights=self.weights)

    def _same(self, model: type[Frozen]) -> dict[str, Any]:
        """What differs from the default in the fields that a model of calc has under the same names."""
        shared = {name: getattr(self, name) for name in model.model_fields if name in Scenario.model_fields}
        return {name: value for name, value in shared.items() if value != Scenario.model_fields[name].default}

    def precision(self) -> Precision:
        try:
            return Precision.of(self.base(), self.weights, self.kv)
        except ConfigError:
            return Precision(weights=self.weights or "bf16", kv=self.kv)

    def native(self) -> WeightFormat:
        """The format in which the checkpoint stores its weights."""
        try:
            return native_weights(self.base())
        except ConfigError:
            return "bf16"

    def layout(self) -> Layout:
        return Layout(tp=self.tp, pp=self.pp, dp=self.attention_dp, ep=self.expert_ranks)

    def overhead(self) -> Overhead:
        stated = {
            "cuda_context": self.cuda_context,
            "libraries": self.libraries,
            "cuda_graphs": self.cuda_graphs,
            "fragmentation": self.fragmentation,
        }
        return Overhead(**{name: item for name, item in stated.items() if item is not None})


def _said(error: ValidationError) -> str:
    """The sentence of calc's own check."""
    said = str(error.errors()[0]["ctx"]["error"])
    return f"{said[:1].upper()}{said[1:]}."


EXPECTED = {
    "pasted": "a config.json, packed by this page",
    "model": "the id of a model, such as Qwen/Qwen2.5-3B",
    "revision": "a branch, a tag or a commit of the model",
    "file": "the name of a GGUF file of the model",
    "assume": "llama, to read an unknown family as a Llama-like decoder",
    "batch": "a whole number from 1 to 65,536",
    "context": "a whole number from 1 to 16,777,216",
    "weights": f"a format such as {', '.join(WEIGHT_FORMATS[1:4])}, int4 or Q4_K_M",
    "kv": f"one of {', '.join(CACHE_FORMATS)}",
    "engine": "vllm, transformers, sglang or llamacpp",
    "attention": "flash or eager",
    "prefill": "a whole number of tokens from 1 on",
    "generated": "a whole number of tokens from 0 on",
    "logits": f"one of {', '.join(get_args(Logits))}",
    "speculative": f"one of {', '.join(get_args(Speculative))}",
    "language_model_only": "true or false",
    "gpu_memory_utilization": "a share from 0.01 to 1",
    "max_num_seqs": "a whole number from 1 on",
    "attention_dp": "a whole number from 1 to 1,024",
    "expert_ranks": "a whole number from 1 to 4,096",
    "tp": "a whole number from 1 to 1,024",
    "pp": "a whole number from 1 to 1,024",
    "micro_batch": "a whole number from 1 to 65,536",
    "sequence": "a whole number from 1 to 16,777,216",
    "accumulation": "a whole number from 1 to 65,536",
    "method": f"one of {', '.join(get_args(Method))}",
    "lora_rank": "a whole number from 1 to 65,536",
    "lora_targets": f"one of {', '.join(get_args(LoraTargets))}",
    "optimizer": f"one of {', '.join(get_args(Optimizer))}",
    "optimizer_in_backward": "true or false",
    "recipe": f"one of {', '.join(RECIPES)}",
    "recompute": f"one of {', '.join(get_args(Recompute))}",
    "fused": "true or false",
    "loss": f"one of {', '.join(get_args(Loss))}",
    "offload_activations": "true or false",
    "zero": "0, 1, 2 or 3",
    "dp": "a whole number from 1 to 65,536",
    "cp": "a whole number from 1 to 1,024",
    "ep": "a whole number from 1 to 4,096",
    "gpu": "ids of GPUs, separated by commas, such as h100-sxm,a100-sxm-80gb",
    "cuda_context": "a range of GiB such as 0.25-0.6",
    "libraries": "a range of GiB such as 0.01-0.35",
    "cuda_graphs": "a range of GiB such as 0-2",
    "fragmentation": "a range of percent such as 0.4-2",
}
SWITCHES = ("language_model_only", "optimizer_in_backward", "fused", "offload_activations")
RANGES = ("cuda_context", "libraries", "cuda_graphs", "fragmentation")


def decode(params: Mapping[str, str], fetch: Fetch) -> tuple[Scenario, list[str]]:
    """The scenario that a query string means, and a sentence for each part of it that makes no sense."""
    values: dict[str, Any] = {}
    problems: list[str] = []
    for name, text in params.items():
        if name in EXPECTED:
            try:
                values[name] = _option(name, text)
            except ValueError:  # pydantic's ValidationError is one
                problems.append(f"The link says {name}={shown(text)}, which is left out: {name} is {EXPECTED[name]}.")
    scenario = _found(Scenario(**values), fetch)
    base = scenario.settings()
    overrides: dict[str, int | bool] = {}
    for name, text in params.items():
        if name in EXPECTED:
            continue
        control = CONTROLS.get(name)
        if control is None or (base and name not in base):
            problems.append(f"The link says {name}={shown(text)}, which is left out: this model has no such setting.")
        elif (value := control.parse(text)) is None:
            problems.append(f"The link says {name}={shown(text)}, which is left out: {name} is {control.expected}.")
        elif value != base.get(name):
            overrides[name] = value
    return scenario.model_copy(update={"overrides": overrides}), problems


def _found(scenario: Scenario, fetch: Fetch) -> Scenario:
    """The scenario with what the Hub gives for its model, where it takes the Hub."""
    if scenario.pasted is not None or (scenario.model in models() and scenario.revision is None):
        return scenario
    try:
        return scenario.model_copy(update={"hub": fetch(scenario.model, scenario.revision, scenario.file)})
    except ConfigError as problem:
        return scenario.model_copy(update={"unread": problem})


def encode(scenario: Scenario) -> dict[str, str]:
    """The query string of a scenario."""
    default = Scenario()
    options = {name: getattr(scenario, name) for name in EXPECTED}
    changed = {name: value for name, value in options.items() if value != getattr(default, name)}
    return {name: _text(value) for name, value in (changed | scenario.overrides).items()}


LONGEST = 6000
"""Characters of a query string that browsers, proxies and chat programs carry without cutting it."""


def shareable(scenario: Scenario) -> bool:
    """Whether the address is short enough to hand on."""
    return sum(len(name) + len(text) + 2 for name, text in encode(scenario).items()) <= LONGEST


def _option(name: str, text: str) -> Any:
    """The value that an option of the link means. Raises ValueError."""
    value: Any = text
    if name == "pasted":
        value = unpack(text)
    elif name == "gpu":
        value = text.split(",")
    elif name in SWITCHES:
        value = {"true": True, "false": False}.get(text)
    elif name == "zero":
        value = int(text)
    elif name in RANGES:
        low, _, high = text.partition("-")
        value = Range(low=float(low), high=float(high))
    return getattr(Scenario.model_validate({name: value}), name)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Range):
        return f"{value.low:g}-{value.high:g}"
    if isinstance(value, dict):
        return pack(value)
    return ",".join(value) if isinstance(value, tuple) else str(value)
