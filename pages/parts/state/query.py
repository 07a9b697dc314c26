"""The scenario as a query string: fields of calc's models under their own names, where they differ from the default.

A page's link carries what the page uses, so that `dp` is the layout of serving on Weigh and that of training on Train,
as on the command line. Links of the first generation carried everything and are still read:

- a name that the page does not use is looked up among what the other pages use (`/?method=lora` is kept for Train);
- `attention_dp`, `expert_ranks` and `prefill` are `dp`, `ep` and the engine's tokens of a pass;
- `dp` and `ep` on Weigh were those of training. They are those of serving where the link says its generation, `v`,
  which every link with one of them says since.

Which weights are trained and with which loss of TRL stand in one value, as on the command line: `method=grpo,lora`.
What a link with such a loss leaves out is as TRL sets it up.

A link that is copied says the generation of the defaults that its numbers depend on. A release that changes a default
opens a new generation, and notes in `FORMER` what held before: a link shows what it showed when it was copied.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Literal

from pydantic import ValidationError

from calc import ConfigError
from calc.errors import Message, Outside, Refusal, shown
from calc.serving.engines import ENGINES
from calc.training import METHODS, TrainingWorkload, named, without_effect
from pages.parts.inputs.fields import CONTROLS
from pages.parts.state.scenario import DEFAULT_ENGINE, EVERYTHING, Path, Place, Scenario, Source, TrainingChoice, places
from pages.parts.state.trained_as import usual

Settings = Callable[[Source], Mapping[str, Any]]
"""The config fields that decide the size of a model, with their values; none where it can't be read."""
FORMERLY = {"attention_dp": "dp", "expert_ranks": "ep"}
"""Names of fields of serving in links of the first generation."""
GENERATION = {"v": "3"}
FORMER: dict[str, dict[str, str]] = {"2": {"gpu": "v100-sxm2-16gb,v100-sxm2-32gb,a100-sxm-40gb,a100-sxm-80gb,h100-sxm"}}
"""Defaults of earlier generations of links, by generation."""
GENERATIONS = (*FORMER, *GENERATION.values())
FEW_WORDS = 300
"""Letters of a cause that a sentence about a link still has room for."""
LOSS = "loss_method"
"""The field that a link says as a part of its method."""
LAYOUT = ("dp", "ep")
"""Names whose meaning on Weigh depends on the link's generation."""


@dataclass(frozen=True)
class Page:
    """A page as the navigation and a link see it: its script below `pages`, its name, the parts of the scenario that it
    uses, and whether links of the first generation led to it."""

    script: str
    title: Message
    icon: str
    uses: tuple[str, ...]
    old: bool = False
    purpose: Literal["serve", "train"] | None = None
    """The purpose of its plans; None where it has none."""
    answers_at: str | None = None
    """Name below /api under which programs get what it shows."""
    unread: tuple[Path, ...] = ()
    """Fields of what it uses that change none of its figures: its link has them for other pages."""
    of_roofline: tuple[Path, ...] = ()
    """Fields that a roofline depends on, and no map."""
    answers_time: bool = False
    """Whether the answer for programs has times, which shares of peaks and nodes decide."""

    def answers(self, place: Place, scenario: Scenario | None = None) -> bool:
        """Whether what programs get may depend on a field of what it uses: in a scenario's view, or in any."""
        is_map = scenario is not None and scenario.hardware.view != "roofline"
        unread = (*self.unread, *(self.of_roofline if is_map else ()))
        is_read = not any(place.path[: len(path)] == path for path in unread)
        return is_read and (self.answers_time or place.path[0] != "efficiencies")

    @property
    def path(self) -> str:
        """Path of its address: the name of its script, and nothing of the first page."""
        name = PurePath(self.script).stem
        return "" if name == "weigh" else name

    @property
    def has_engine(self) -> bool:
        """Whether figures depend on the engine."""
        return not {"serving", "planning", "hardware"}.isdisjoint(self.uses)

    def reads_training(self, params: Mapping[str, str]) -> bool:
        """Whether dp and ep in a link are the layout of training, though the page does not use that."""
        return self.old and "training" not in self.uses and params.get("v") not in GENERATIONS


OF_A_SERVER: tuple[Path, ...] = (("serving", "workload"), ("serving", "layout"))
"""Sequences and layout of one server, which plans and maps choose by themselves."""
WEIGH = Page(
    "serve/weigh.py",
    Message("Weigh"),
    "scale",
    ("source", "gpu", "serving", "overhead", "efficiencies", "opened", "tab", "comparison"),
    old=True,
    answers_at="report",
)
PLAN = Page(
    "serve/plan.py",
    Message("Plan"),
    "route",
    ("source", "gpu", "serving", "planning", "efficiencies", "comparison"),
    purpose="serve",
    answers_at="plan",
    answers_time=True,
    unread=OF_A_SERVER,
)
GPUS = Page(
    "serve/gpus.py",
    Message("On all GPUs"),
    "grid_on",
    ("source", "gpu", "serving", "hardware", "comparison"),
    answers_at="gpus",
    unread=(*OF_A_SERVER, ("serving", "options"), ("serving", "num_gpus")),
    of_roofline=(("serving", "weights"), ("serving", "kv")),
)
TOGETHER = Page(
    "serve/together.py",
    Message("Several models"),
    "stacks",
    ("source", "gpu", "serving", "overhead", "sharing", "comparison"),
    answers_at="together",
)
TRAIN = Page(
    "train/train.py",
    Message("Training step"),
    "model_training",
    ("source", "gpu", "training", "overhead", "efficiencies", "opened", "tab", "comparison"),
    old=True,
    answers_at="train",
)
TRAIN_PLAN = Page(
    "train/train_plan.py",
    Message("Training plan"),
    "route",
    PLAN.uses,
    purpose="train",
    answers_at="plan",
    answers_time=True,
)
STEPS = Page(
    "train/steps.py",
    Message("Side by side"),
    "compare_arrows",
    ("source", "gpu", "training", "overhead", "efficiencies", "comparison"),
    answers_at="steps",
    answers_time=True,
)
MACHINE = Page(
    "machine.py",
    Message("My machine"),
    "computer",
    ("source", "serving", "machine", "comparison"),
    answers_at="machine",
)
DESIGN = Page(
    "model/design.py",
    Message("Design"),
    "architecture",
    ("source", "gpu", "serving", "overhead", "comparison"),
    answers_at="report",
)
ATTENTION = Page("model/attention.py", Message("Attention"), "hub", (*DESIGN.uses, "efficiencies"), answers_at="report")
QUANTIZE = Page(
    "model/quantize.py",
    Message("Quantize"),
    "compress",
    ("source", "gpu", "quantizing", "comparison"),
    answers_at="quantize",
)
DERIVE = Page(
    "model/derive.py",
    Message("Derive"),
    "function",
    ("source", "gpu", "serving", "overhead", "efficiencies", "derive", "comparison"),
    answers_at="report",
)
VERIFY = Page(
    "evidence/verify.py", Message("Verify"), "fact_check", ("source", "comparison"), old=True, answers_at="report"
)
ACCURACY = Page(
    "evidence/accuracy.py", Message("Accuracy"), "target", (*VERIFY.uses, "tab"), old=True, answers_at="accuracy"
)
HARDWARE = Page(
    "evidence/hardware.py", Message("Hardware"), "memory", ("source", "gpu", "comparison"), answers_at="hardware"
)
KEPT_STEP = Page("", Message("Training step"), "model_training", ("source", "training"))
"""Query names of a training step: its model and how it is trained, as in a link of Train."""
COMPARE = Page("compare.py", Message("Compare"), "compare_arrows", ATTENTION.uses, answers_at="compare")
GLOSSARY = Page("glossary.py", Message("Glossary"), "menu_book", VERIFY.uses)


@dataclass(frozen=True)
class Area:
    """One of the five places of the app: its name, and its views; a reader comes to the first."""

    title: Message
    icon: str
    pages: tuple[Page, ...]


AREAS = (
    Area(Message("Serve"), "scale", (WEIGH, PLAN, GPUS, TOGETHER)),
    Area(Message("Train"), "model_training", (TRAIN, STEPS, TRAIN_PLAN)),
    Area(Message("My machine"), "computer", (MACHINE,)),
    Area(Message("Model"), "account_tree", (DESIGN, ATTENTION, DERIVE, QUANTIZE)),
    Area(Message("Evidence"), "fact_check", (VERIFY, ACCURACY, HARDWARE)),
)
PAGES = (*(page for area in AREAS for page in area.pages), COMPARE, GLOSSARY)


def page_at(path: str) -> Page | None:
    """The page at a path of an address, whatever stands before its last part; None where there is none."""
    name = path.rstrip("/").rpartition("/")[2]
    return next((page for page in PAGES if page.path == name), None)


def moved(page: Page, params: Mapping[str, str]) -> Page | None:
    """The page that shows what a link to another meant, before that was divided in two; None where it still does."""
    if page == PLAN and params.get("purpose") == TRAIN_PLAN.purpose:
        return TRAIN_PLAN
    return GPUS if page == HARDWARE and "view" in params else None


def decode(params: Mapping[str, str], page: Page, now: Scenario, settings: Settings) -> tuple[Scenario, list[Message]]:
    """The scenario that a page's link means, and a sentence for each part of it that makes no sense. What other pages
    use stays as it is in `now`."""
    former = FORMER.get(params.get("v", ""), {})
    params = {name: text for name, text in former.items() if name in places(page.uses)} | dict(params)
    scenario = now.model_copy(update={name: getattr(Scenario(), name) for name in (*page.uses, "overrides")})
    problems: list[Message] = []
    engine = params.get("engine", DEFAULT_ENGINE if page.has_engine else scenario.serving.engine)
    if engine in ENGINES:
        scenario = scenario.model_copy(update={"serving": scenario.serving.with_engine(engine)})
    if (training := with_loss(params.get("method", ""))) is not None:
        scenario = scenario.model_copy(update={"training": training})
        del params["method"]
    overrides: dict[str, str] = {}
    read: list[str] = []
    for name, text in params.items():
        place = place_of(name, page, params, scenario.serving.engine)
        if name in GENERATION and text in GENERATIONS:
            continue
        if place is None:
            overrides[name] = text
            continue
        try:
            scenario = place.put(scenario, place.parse(text))
        except ValueError as error:  # pydantic's ValidationError and ConfigError are ones
            problems.append(left_out(name, text, expected(place), stated_cause(error)))
            continue
        read.append(name)
        if name in LAYOUT and page == WEIGH and page.reads_training(params):
            problems.append(
                Message(
                    "The link says {name}={value} without v=2, as links once did: it is taken for the layout of "
                    "training.",
                    name=Outside(name),
                    value=shown(text),
                )
            )
    for refusal in unused(read, page, scenario.training):
        unused_place = places(page.uses)[refusal.field or ""]
        scenario = unused_place.put(scenario, unused_place.of(Scenario()))
        name, why = unused_place.name, refusal.message
        problems.append(left_out(name, params[name], why, why))
    base = settings(scenario.source)
    changed: dict[str, int | bool] = {}
    for name, text in overrides.items():
        control = CONTROLS.get(name)
        if control is None or (base and name not in base):
            problems.append(left_out(name, text, unknown(name, scenario.serving.engine)))
        elif (value := control.parse(text)) is None:
            problems.append(left_out(name, text, control.expected(name)))
        elif value != base.get(name):
            changed[name] = value
    return scenario.model_copy(update={"overrides": changed}), problems


def with_loss(text: str) -> TrainingChoice | None:
    """The step with a loss of TRL that a link's method means; None where it names none."""
    try:
        weights, loss = named(text)
    except ValueError:
        return None
    if loss is None:
        return None
    return usual(TrainingChoice(loss_method=loss, workload=TrainingWorkload(method=weights or "full")))


def unused(names: Collection[str], page: Page, training: TrainingChoice) -> list[Refusal]:
    """Refusals of fields of a training step that a page's link states and that change none of its numbers."""
    if "training" not in page.uses:
        return []
    return list(without_effect(names, training.workload.method, training.loss_method))


def expected(place: Place) -> Message:
    """The values that a field takes, as a sentence."""
    if place.name != "method":
        return place.option.expected
    some, losses = ", ".join(place.option.choices), ", ".join(METHODS)
    return Message("method is one of {some}, one of {losses}, or both with a comma", some=some, losses=losses)


def place_of(name: str, page: Page, params: Mapping[str, str], engine: str) -> Place | None:
    """The field that a name means on a page."""
    own, all_others = places(page.uses, engine), places(EVERYTHING, engine)
    if name == "prefill":
        return all_others.get(ENGINES[engine].step_option)
    if name == LOSS:
        return None
    if name in FORMERLY:
        return places(("serving",), engine)[FORMERLY[name]]
    if name in LAYOUT and page.reads_training(params):
        return places(("training",))[name]
    return own.get(name) or all_others.get(name)


def stated_cause(error: ValueError) -> Message | None:
    """The reason that a field's own check gives, where it is short."""
    causes = (
        [row.get("ctx", {}).get("error") for row in error.errors()] if isinstance(error, ValidationError) else [error]
    )
    return next((c.message for c in causes if isinstance(c, ConfigError) and len(str(c)) <= FEW_WORDS), None)


def left_out(name: str, text: str, why: Message, cause: Message | None = None) -> Message:
    """A sentence for a part of a link that makes no sense: what the field takes, or its own sentence on the value."""
    known: dict[str, Any] = {"name": Outside(name[:100]), "value": shown(text)}
    if cause is not None:
        return Message("The link says {name}={value}, which is left out. {why}", **known, why=cause)
    return Message("The link says {name}={value}, which is left out: {why}.", **known, why=why)


def unknown(name: str, engine: str) -> Message:
    """Why a name means nothing here."""
    if any(name in kind.options_type.model_fields for kind in ENGINES.values()):
        return Message("{name} has no effect with {engine}", name=name, engine=ENGINES[engine].title)
    if name in CONTROLS:
        return Message("this model has no such setting")
    return Message("no page has a parameter of this name")


def encode(scenario: Scenario, page: Page, *, for_programs: bool = False) -> dict[str, str]:
    """The query string of a page; `for_programs`: with what their answer depends on alone."""
    training = scenario.training
    default = Scenario(serving=Scenario().serving.with_engine(scenario.serving.engine), training=usual(training))
    known = places(page.uses, scenario.serving.engine)
    if for_programs:
        known = {name: place for name, place in known.items() if page.answers(place, scenario)}
    differing = {name: place for name, place in known.items() if place.of(scenario) != place.of(default)}
    params = {name: place.written(place.of(scenario)) for name, place in differing.items()}
    for refusal in unused(params.keys(), page, training):
        del params[refusal.field or ""]
    if "training" in page.uses and training.loss_method is not None:
        weights = training.workload.method
        params = {"method": training.loss_method if weights == "full" else f"{training.loss_method},{weights}"} | params
    if page.has_engine and scenario.serving.engine != DEFAULT_ENGINE:
        params["engine"] = scenario.serving.engine
    params |= {name: str(value).lower() for name, value in scenario.overrides.items()}
    return params | (GENERATION if page.reads_training(params) and not params.keys().isdisjoint(LAYOUT) else {})


LONGEST = 6000
"""Characters of a query string that browsers, proxies and chat programs carry without cutting it."""


def shareable(params: Mapping[str, str]) -> bool:
    """Whether the address is short enough to hand on."""
    return sum(len(name) + len(text) + 2 for name, text in params.items()) <= LONGEST
