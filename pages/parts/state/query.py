"""The scenario as a query string: fields of calc's models under their own names, where they differ from the default.

A page's link carries what the page uses, so that `dp` is the layout of serving on Weigh and that of training on Train,
as on the command line. Links of the first generation carried everything and are still read:

- a name that the page does not use is looked up among what the other pages use (`/?method=lora` is kept for Train);
- `attention_dp`, `expert_ranks` and `prefill` are `dp`, `ep` and the engine's tokens of a pass;
- `dp` and `ep` on Weigh were those of training. They are those of serving where the link says `v=2`, which every link
  with one of them says since.
"""

from collections.abc import Callable, Mapping
from typing import Any

from calc.errors import Frozen, Message, shown
from calc.serving.engines import ENGINES
from pages.parts.inputs.fields import CONTROLS
from pages.parts.state.scenario import DEFAULT_ENGINE, Place, Scenario, Source, Uses, places

Published = Callable[[Source], Mapping[str, Any]]
"""The config fields that decide the size of a model, with their values; none where it can't be read."""
EVERYTHING: tuple[Uses, ...] = ("source", "gpu", "planning", "training", "serving", "overhead", "comparison", "derive")
FORMERLY = {"attention_dp": "dp", "expert_ranks": "ep"}
"""Names of fields of serving in links of the first generation."""
GENERATION = {"v": "2"}
LAYOUT = ("dp", "ep")
"""What these names mean on Weigh hangs on the generation."""


class Page(Frozen):
    """A page as a link sees it: its path, the parts of the scenario that it uses, and whether links of the first
    generation led to it."""

    path: str
    uses: tuple[Uses, ...]
    old: bool = False

    @property
    def has_engine(self) -> bool:
        """Whether figures hang on the engine."""
        return not {"serving", "planning"}.isdisjoint(self.uses)

    def reads_training(self, params: Mapping[str, str]) -> bool:
        """Whether dp and ep in a link are the layout of training, though the page does not use that."""
        return self.old and "training" not in self.uses and params.get("v") != GENERATION["v"]


WEIGH = Page(path="", uses=("source", "gpu", "serving", "overhead"), old=True)
TRAIN = Page(path="train", uses=("source", "gpu", "training", "overhead"), old=True)
PLAN = Page(path="plan", uses=("source", "gpu", "planning"))
HARDWARE = Page(path="hardware", uses=("source", "gpu"))
VERIFY = Page(path="verify", uses=("source",), old=True)
ACCURACY = Page(path="accuracy", uses=("source",), old=True)
ATTENTION = Page(path="attention", uses=("source", "gpu", "serving", "overhead"))
DERIVE = Page(path="derive", uses=("source", "gpu", "serving", "overhead", "derive"))
COMPARE = Page(path="compare", uses=("source", "gpu", "serving", "overhead", "comparison"))
PAGES = (WEIGH, TRAIN, PLAN, DERIVE, ATTENTION, COMPARE, HARDWARE, VERIFY, ACCURACY)


def decode(
    params: Mapping[str, str], page: Page, now: Scenario, published: Published
) -> tuple[Scenario, list[Message]]:
    """The scenario that a page's link means, and a sentence for each part of it that makes no sense. What other pages
    use stays as it is in `now`."""
    scenario = now.model_copy(update={name: getattr(Scenario(), name) for name in (*page.uses, "overrides")})
    problems: list[Message] = []
    engine = params.get("engine", DEFAULT_ENGINE if page.has_engine else scenario.serving.engine)
    if engine in ENGINES:
        scenario = scenario.model_copy(update={"serving": scenario.serving.with_engine(engine)})
    overrides: dict[str, str] = {}
    for name, text in params.items():
        place = found(name, page, params, scenario.serving.engine)
        if name in GENERATION and text == GENERATION[name]:
            continue
        if place is None:
            overrides[name] = text
            continue
        try:
            scenario = place.put(scenario, place.parse(text))
        except ValueError:  # pydantic's ValidationError and ConfigError are ones
            problems.append(left_out(name, text, place.option.expected))
            continue
        if name in LAYOUT and page == WEIGH and page.reads_training(params):
            problems.append(
                Message(
                    "The link says {name}={value} without v=2, as links once did: it is taken for the layout of "
                    "training.",
                    name=name,
                    value=shown(text),
                )
            )
    base = published(scenario.source)
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


def found(name: str, page: Page, params: Mapping[str, str], engine: str) -> Place | None:
    """The field that a name means on a page."""
    own, all_others = places(page.uses, engine), places(EVERYTHING, engine)
    if name == "prefill":
        return all_others.get(ENGINES[engine].step_option)
    if name in FORMERLY:
        return places(("serving",), engine)[FORMERLY[name]]
    if name in LAYOUT and page.reads_training(params):
        return places(("training",))[name]
    return own.get(name) or all_others.get(name)


def left_out(name: str, text: str, why: Message) -> Message:
    return Message("The link says {name}={value}, which is left out: {why}.", name=name, value=shown(text), why=why)


def unknown(name: str, engine: str) -> Message:
    """Why a name means nothing here."""
    if any(name in kind.options_type.model_fields for kind in ENGINES.values()):
        return Message("{name} has no effect with {engine}", name=name, engine=ENGINES[engine].title)
    return Message("this model has no such setting")


def encode(scenario: Scenario, page: Page) -> dict[str, str]:
    """The query string of a page."""
    default = Scenario(serving=Scenario().serving.with_engine(scenario.serving.engine))
    known = places(page.uses, scenario.serving.engine)
    differing = {name: place for name, place in known.items() if place.of(scenario) != place.of(default)}
    params = {name: place.written(place.of(scenario)) for name, place in differing.items()}
    if page.has_engine and scenario.serving.engine != DEFAULT_ENGINE:
        params["engine"] = scenario.serving.engine
    params |= {name: str(value).lower() for name, value in scenario.overrides.items()}
    return params | (GENERATION if page.reads_training(params) and not params.keys().isdisjoint(LAYOUT) else {})


LONGEST = 6000
"""Characters of a query string that browsers, proxies and chat programs carry without cutting it."""


def shareable(params: Mapping[str, str]) -> bool:
    """Whether the address is short enough to hand on."""
    return sum(len(name) + len(text) + 2 for name, text in params.items()) <= LONGEST
