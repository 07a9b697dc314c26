"""The scenario, all that the reader has chosen: one value, made of calc's own models."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache, reduce
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, SerializeAsAny

from calc import GPU, Layout, Objective, Overhead, TrainingLayout, TrainingWorkload, Workload
from calc.errors import ConfigError, Frozen, Message, shown
from calc.formats import CacheFormat, WeightFormat
from calc.hardware import Computer, find_gpu
from calc.model.paper import Anchor
from calc.options import OneOf, Option, checked, options
from calc.quantizing import Quantizing
from calc.serving.engines import ENGINES, Engine
from calc.serving.shared_gpus import MOST_MODELS, Neighbour
from calc.text import pack, unpack
from calc.time import USUAL, Cluster, Needs, TrainingNeeds, stated_price, stated_share, written_share
from calc.training import METHODS, Colocation, MethodName, Optimizer, RecipeName, Rollout
from calc.units import decimal
from pages.parts.inputs.fields import CONTROLS
from presets import architecture_of, gpus, models, preset_id, started
from presets.hub import is_id

DEFAULT_MODEL = "Qwen/Qwen3-8B"
DEFAULT_ENGINE = "vllm"
MOST_OTHERS = 5
"""Configurations compared with the model: six in all."""


@cache
def usual_gpus() -> tuple[str, ...]:
    return tuple(gpu.id for gpu in gpus().values() if gpu.default)


def known_gpus(chosen: tuple[str, ...]) -> tuple[str, ...]:
    """Ids of the catalogue, or GPUs of the reader's own as text; each once. Raises ValueError."""
    return once(tuple(map(known_gpu, chosen)))


def known_gpu(chosen: str) -> str:
    """Id of a GPU of the catalogue, or one of the reader's own as text. Raises ValueError."""
    return find_gpu(chosen).id


def separate(text: str) -> list[str]:
    """GPUs of a list. One of the reader's own may have commas in it: own:48GiB:960GB/s:bf16=181,fp8=362."""
    parts: list[str] = []
    for part in text.split(","):
        if parts and "=" in part and ":" not in part:
            parts[-1] += f",{part}"
        else:
            parts.append(part)
    return parts


NOTHING = "none"
"""Word of links for no GPU."""


def priced(chosen: tuple[str, ...]) -> tuple[str, ...]:
    """Each GPU once, its last price. Raises ValueError."""
    return tuple(f"{name}={decimal(usd)}" for name, usd in dict(map(stated_price, chosen)).items())


def model_id(model: str) -> str:
    """Id of a preset, however its letters are cased, or what has the form of an id. Raises ValueError."""
    model = preset_id(model)
    if model not in models() and not is_id(model):
        raise ValueError(model)
    return model


def once(chosen: tuple[Any, ...]) -> tuple[Any, ...]:
    """Each choice once."""
    return tuple(dict.fromkeys(chosen))


class Source(Frozen):
    """Source of the model: a preset, the Hub, or a config of the reader's own."""

    model: Annotated[str, AfterValidator(model_id)] = Field(
        default=DEFAULT_MODEL, examples=["Qwen/Qwen2.5-3B"], description="Preset, or model of the Hub."
    )
    revision: Annotated[str, Field(min_length=1, max_length=100)] | None = Field(
        default=None, examples=["main"], description="A branch, a tag or a commit."
    )
    file: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        default=None, examples=["model-Q4_K_M.gguf"], description="One of several GGUF files."
    )
    assume: Literal["llama"] | None = Field(default=None, description="Reading of an unknown family.")
    pasted: dict[str, Any] | None = Field(
        default=None, examples=["eJyr…"], description="A config.json, in place of the model."
    )


class Configuration(Frozen):
    """A model with changes, as a link says it: Qwen/Qwen3-8B:num_key_value_heads=4:weights=fp8. A format that it does
    not state is that of the scenario."""

    source: Source = Source()
    overrides: tuple[tuple[str, int | bool], ...] = ()
    weights: WeightFormat | None = None
    kv: CacheFormat | None = None

    @property
    def written(self) -> str:
        return ":".join([self.source.model, *(f"{name}={value}" for name, value in self.changes().items())])

    def changes(self) -> dict[str, str]:
        """All but the model's name, as text."""
        source = {name: value for name, value in self.source if name != "model" and value is not None}
        if self.source.pasted is not None:
            source["pasted"] = pack(self.source.pasted)
        changes = source | dict(self.overrides) | {"weights": self.weights, "kv": self.kv}
        return {
            name: str(value) if not isinstance(value, bool) else str(value).lower()
            for name, value in changes.items()
            if value is not None
        }

    def within(self, scenario: "Scenario") -> "Scenario":
        """The scenario with this configuration in place of its model."""
        formats = {name: value for name, value in (("weights", self.weights), ("kv", self.kv)) if value is not None}
        return scenario.model_copy(
            update={
                "source": self.source,
                "overrides": dict(self.overrides),
                "serving": scenario.serving.model_copy(update=formats),
            }
        )


def configuration(text: str) -> Configuration:
    """The configuration that `Configuration.written` wrote. Raises ValueError."""
    model, *parts = text.split(":")
    source: dict[str, Any] = {"model": model}
    rest: dict[str, Any] = {}
    overrides: dict[str, int | bool] = {}
    for part in parts:
        name, _, value = part.partition("=")
        if name == "pasted":
            source[name] = unpack(value)
        elif name in Source.model_fields:
            source[name] = value
        elif name in ("weights", "kv"):
            rest[name] = value
        else:
            known = CONTROLS[name].parse(value) if name in CONTROLS else None
            if known is None:
                raise ValueError(part)
            overrides[name] = known
    return Configuration.model_validate({"source": source, "overrides": tuple(overrides.items()), **rest})


class ServingChoice(Frozen):
    """Serving: workload, engine, formats, layout."""

    workload: Workload = Workload()
    engine: Annotated[str, OneOf(ENGINES)] = Field(
        default=DEFAULT_ENGINE, description="The engine that serves the model; each has flags of its own."
    )
    options: SerializeAsAny[Frozen] = Field(default_factory=lambda: ENGINES[DEFAULT_ENGINE].options_type())
    weights: WeightFormat | None = Field(
        default=None,
        description="Storage of the weights; quantized formats hold the large matrices, and embeddings, output head, "
        "norms and router stay in 16 bits.",
    )
    kv: CacheFormat | None = Field(
        default=None, description="Storage of the KV cache; as the checkpoint asks, or in 16 bits, unless chosen."
    )
    num_gpus: int | None = Field(
        default=None, ge=1, le=1024, description="GPUs of one kind; the best layout over them is found."
    )
    layout: Layout = Layout()

    @property
    def by_hand(self) -> Layout | None:
        """The layout where the reader chose one."""
        return None if self.layout == Layout() and self.num_gpus is not None else checked(self.layout)

    def started(self) -> Engine:
        """The engine with its flags. Raises ConfigError where two of them exclude each other."""
        return started(self.engine, checked(self.options))

    def with_engine(self, engine: str) -> "ServingChoice":
        """Choice under another engine; flags that both have stay as they are."""
        kind = ENGINES[engine].options_type
        known = {name: value for name, value in self.options if name in kind.model_fields}
        return self.model_copy(update={"engine": engine, "options": kind.model_construct(**known)})


class TrainingChoice(Frozen):
    """A training step."""

    workload: TrainingWorkload = TrainingWorkload()
    recipe: RecipeName = Field(
        default="master", description="Storage of the trained weights, their gradients and the optimizer states."
    )
    weights: WeightFormat | None = Field(default=None, description="Storage of the frozen weights of LoRA and QLoRA.")
    layout: TrainingLayout = TrainingLayout()
    loss_method: MethodName | None = Field(
        default=None,
        description="The loss: of the next token, as in transformers, or one of TRL's: supervised, preference, reward "
        "model or reinforcement learning.",
    )
    objective: Objective = Objective(method="sft")
    teacher: str | None = Field(
        default=None,
        description="Distillation: the model whose distribution is learned, of the same vocabulary; none chosen: a "
        "frozen copy of the model itself.",
    )
    rollout: Rollout | None = Field(
        default=None,
        description="An engine generates the completions: on the GPUs that train, or on others; none is counted unless "
        "chosen.",
    )
    colocation: Colocation = Colocation()

    @property
    def generates(self) -> bool:
        """Whether completions are generated."""
        return self.loss_method is not None and METHODS[self.loss_method].generates

    @property
    def scored(self) -> Objective | None:
        """TRL's loss with its settings; None: transformers' own. Raises ConfigError."""
        if self.loss_method is None:
            return None
        teacher = None
        if METHODS[self.loss_method].teacher and self.teacher is not None:
            if self.teacher not in models():
                raise ConfigError(Message("The teacher {name} is no preset.", name=shown(self.teacher)), "teacher")
            teacher = architecture_of(self.teacher)
        return checked(self.objective.model_copy(update={"method": self.loss_method, "teacher": teacher}))

    @property
    def generating(self) -> Colocation | None:
        """The engine that generates completions; None where none is counted. Raises ConfigError."""
        if self.rollout is None or not self.generates:
            return None
        return checked(self.colocation.model_copy(update={"rollout": self.rollout}))


LONGEST_STEP = 2000
"""Letters of a training step that is kept."""


class Comparison(Frozen):
    """Configurations next to the model on Compare, and steps next to a training step."""

    others: Annotated[tuple[Configuration, ...], Field(max_length=MOST_OTHERS)] = Field(
        default=(),
        serialization_alias="with",
        examples=["deepseek-ai/DeepSeek-V3,Qwen/Qwen3-8B:num_key_value_heads=32"],
        description="Models side by side with this one, each with its changes.",
    )
    steps: Annotated[
        tuple[Annotated[str, Field(pattern="^[^;]+$", max_length=LONGEST_STEP)], ...], Field(max_length=MOST_OTHERS)
    ] = Field(
        default=(),
        examples=["method=dpo&micro_batch=2;method=grpo,lora"],
        description="Training steps side by side with this one, each as the query of its own link.",
    )


def neighbour(text: str) -> Neighbour:
    """A model on the same GPUs, by its id. Raises ValueError."""
    read = Neighbour.read(text)
    return read.model_copy(update={"model": model_id(read.model)})


class SharingChoice(Frozen):
    """Models on the same GPUs as the one on screen."""

    share_with: Annotated[tuple[Neighbour, ...], Field(max_length=MOST_MODELS - 1)] = Field(
        default=(),
        examples=["BAAI/bge-m3,context=512,batch=8;Qwen/Qwen3-0.6B"],
        description="Models on the same GPUs, each with a server of its own, in the order of their start.",
    )
    sleep_level: Literal[0, 1, 2] = Field(
        default=0,
        description="All but one of the servers sleep, with their weights in host memory (1) or read anew (2); 0: all "
        "are awake.",
    )


class PlanChoice(Frozen):
    """Load of a server, and limits on what it may take. Empty choices are the usual ones: all GPUs of the catalogue,
    weights and cache as the checkpoint has them."""

    purpose: Literal["serve", "train"] = Field(default="serve", description="The use of the GPUs.")
    needs: Needs = Needs()
    run: TrainingNeeds = TrainingNeeds()
    sequence: int = Field(default=4096, ge=1, le=2**24, description="Tokens of each sequence.")
    optimizer: Optimizer = Field(default="adamw", description="The optimizer.")
    recipe: RecipeName = Field(
        default="master", description="Storage of the trained weights, their gradients and the optimizer states."
    )
    plan_gpus: Annotated[tuple[str, ...], AfterValidator(known_gpus)] = Field(
        default=(), examples=["h100-sxm,l40s"], description="GPUs that may be used; all, where none is chosen."
    )
    weight_formats: Annotated[tuple[WeightFormat, ...], AfterValidator(once)] = Field(
        default=(), examples=["bf16,fp8"], description="Acceptable storage of the weights."
    )
    kv_formats: Annotated[tuple[CacheFormat, ...], AfterValidator(once)] = Field(
        default=(), examples=["bf16,fp8"], description="Acceptable storage of the KV cache."
    )
    max_gpus: int = Field(default=64, ge=1, le=1024, description="Most GPUs in all.")
    budget: float | None = Field(default=None, gt=0, le=1e6, description="Most US dollars an hour.")
    price: Annotated[tuple[str, ...], AfterValidator(priced)] = Field(
        default=(), examples=["h100-sxm=2.5;l40s=0.8"], description="Your prices of a GPU-hour, in US dollars."
    )


def shares(chosen: tuple[str, ...]) -> tuple[str, ...]:
    """Each once, the last. Raises ValueError."""
    return tuple(written_share(name, share) for name, share in dict(map(stated_share, chosen)).items())


class HardwareChoice(Frozen):
    """Choices on the page of models on GPUs."""

    view: Literal["formats", "models", "roofline"] = Field(default="formats", description="The view.")
    card: Annotated[str, AfterValidator(known_gpu)] = Field(
        default="h100-sxm", examples=["h100-sxm"], description="The GPU that models are tried on."
    )
    cards: int = Field(default=1, ge=1, le=64, description="GPUs that share each model.")
    length: int = Field(default=8192, ge=1, le=2**24, description="Tokens of context at which the speed is shown.")
    figure: Literal["context", "speed"] = Field(
        default="context", description="The longest context that fits, or tokens/s of one user."
    )


class EfficiencyChoice(Frozen):
    """A reader's own efficiencies in place of the usual ones, on every GPU, and how many GPUs a node has."""

    share: Annotated[tuple[str, ...], AfterValidator(shares)] = Field(
        default=(),
        examples=["bandwidth=0.7/0.8/0.9;layer_us=20/40/90"],
        description="Your shares of the printed peaks, low, expected and high.",
    )
    node: int = Field(
        default=USUAL.gpus_per_node, ge=1, le=72, description="GPUs of a node; tensor parallelism stays inside one."
    )


Tab = Literal["gpus", "length", "step", "tensors", "number", "memory", "starts", "speed"]
"""Sections below an answer: against each GPU, over the length, over the step, weight by weight, by number of GPUs; and
of Accuracy."""


class Scenario(Frozen):
    """Everything that changes a number. A control sets one field at a time, so that two may exclude each other for a
    while: `calc.options.checked` says so when it is computed."""

    source: Source = Source()
    overrides: dict[str, int | bool] = {}  # config fields that differ from the model's own
    gpu: Annotated[tuple[str, ...], AfterValidator(known_gpus)] = Field(
        default_factory=usual_gpus, examples=["h100-sxm,a100-sxm-80gb"], description="Each gets a verdict."
    )
    planning: PlanChoice = PlanChoice()
    hardware: HardwareChoice = HardwareChoice()
    efficiencies: EfficiencyChoice = EfficiencyChoice()
    training: TrainingChoice = TrainingChoice()
    serving: ServingChoice = ServingChoice()
    overhead: Overhead = Overhead()
    machine: Computer = Computer()
    quantizing: Quantizing = Quantizing()
    comparison: Comparison = Comparison()
    sharing: SharingChoice = SharingChoice()
    derive: Anchor | None = Field(default=None, description="The section of the derivation that a link opens.")
    opened: Annotated[str, AfterValidator(known_gpu)] | None = Field(
        default=None, examples=["h100-sxm"], description="The GPU whose card is open below the table."
    )
    tab: Tab | None = Field(default=None, description="The section below the answer that is open, if not the first.")

    @property
    def usual(self) -> "Scenario":
        """This model with nothing chosen. What is next to it, what is open and the page's own purpose stay."""
        planning = PlanChoice(purpose=self.planning.purpose)
        same = {name: getattr(self, name) for name in ("source", "comparison", "opened", "tab")}
        return Scenario().model_copy(update={"planning": planning, **same})

    @property
    def cluster(self) -> Cluster:
        """The reader's nodes, shares and prices."""
        shares, prices = map(stated_share, self.efficiencies.share), map(stated_price, self.planning.price)
        return Cluster(self.efficiencies.node, dict(shares), dict(prices))

    def chosen_gpus(self) -> list[GPU]:
        return [find_gpu(name) for name in self.gpu]

    def first_gpu(self) -> GPU:
        """The GPU whose figures stand above the others; the first of the usual ones where none is chosen."""
        return find_gpu((self.gpu or usual_gpus())[0])


LISTS: dict[str, Callable[[str], list[str]]] = {
    "gpu": lambda text: [] if text == NOTHING else separate(text),
    "my_gpus": lambda text: [] if text == NOTHING else separate(text),
    "plan_gpus": separate,
    "weight_formats": lambda text: text.split(","),
    "kv_formats": lambda text: text.split(","),
    "price": lambda text: text.split(";"),
    "share": lambda text: text.split(";"),
    "steps": lambda text: [part for part in text.split(";") if part],
}
"""Parsers of the lists in a link, by field."""
UNSET = "default"
"""Word of links where nobody has chosen, and leaving it out would mean a choice."""
Path = tuple[str, ...]
"""Place of a field in the scenario: ("serving", "workload", "batch")."""
EVERYTHING = tuple(name for name in Scenario.model_fields if name != "overrides")
"""Parts of the scenario. Of fields of the same name in several, a link of another page means that of the last."""


@dataclass(frozen=True)
class Place:
    """A field of the scenario that a link and a control may set."""

    path: Path
    option: Option

    @property
    def name(self) -> str:
        return self.option.name

    def of(self, scenario: Scenario) -> Any:
        return reduce(getattr, self.path, scenario)

    def put(self, scenario: Scenario, value: Any) -> Scenario:
        changed: Scenario = replaced(scenario, self.path, value)
        return changed

    def parse(self, text: str) -> Any:
        """The value that a link means. Raises ValueError."""
        if text == UNSET and self.option.optional and self.option.choices:
            return None
        if self.name == "pasted":
            return unpack(text)
        if self.name == "with":
            return self.option.checked([configuration(part) for part in text.split(",") if part])
        if self.name == "share_with":
            return self.option.checked([neighbour(part) for part in text.split(";") if part])
        return self.option.checked(LISTS[self.name](text)) if self.name in LISTS else self.option.parse(text)

    def written(self, value: Any) -> str:
        """The value as a link spells it."""
        if value is None:
            return UNSET
        if self.name == "pasted":
            return pack(value)
        if self.name == "with":
            return ",".join(other.written for other in value)
        if self.name == "share_with":
            return ";".join(other.written for other in value)
        if self.name in LISTS:
            return (";" if self.name in ("price", "share", "steps") else ",").join(value) or NOTHING
        return self.option.written(value)


DECIDED: dict[Any, tuple[str, ...]] = {Objective: ("method", "teacher"), Colocation: ("rollout",)}
"""Fields that the choice of a training step has itself, for there may be no such loss and no engine."""


def replaced(model: Any, path: Path, value: Any) -> Any:
    """A model with one field of it, or of a model in it, set otherwise. Nothing is checked."""
    first, *rest = path
    inner = replaced(getattr(model, first), tuple(rest), value) if rest else value
    return model.model_copy(update={first: inner})


@lru_cache(maxsize=256)
def places(parts: tuple[str, ...], engine: str = DEFAULT_ENGINE) -> Mapping[str, Place]:
    """The fields of some parts of the scenario, by name."""
    return MappingProxyType({place.name: place for part in parts for place in _within(Scenario, (part,), engine)})


def _within(model: type[Frozen], path: Path, engine: str) -> Iterator[Place]:
    option = options(model)[path[-1]]
    kind = ENGINES[engine].options_type if path[-1] == "options" else option.kinds[0]
    if isinstance(kind, type) and issubclass(kind, Frozen) and not option.is_range:
        for name in (name for name in kind.model_fields if name not in DECIDED.get(kind, ())):
            yield from _within(kind, (*path, name), engine)
    else:
        yield Place(path, option)
