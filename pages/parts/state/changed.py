"""The effect of each changed slider alone, against the published model."""

from calc import Architecture, ConfigError
from calc.families import override
from calc.serving.comparison import Effect, effect
from pages.parts.state.session import remembered
from pages.parts.state.weighed import Answer

MOST = 64
"""Changed models that a session keeps."""


def effect_of(answer: Answer, name: str) -> Effect | None:
    """Effect of one changed config field; None where the model with only that change is not valid."""
    about, scenario = answer.model.published, answer.scenario
    after = alone(answer, name)
    if about.architecture is None or after is None:
        return None
    kv = answer.model.precision(scenario.serving).kv
    serving = scenario.serving
    return effect(about.architecture, after, serving.started(), kv, serving.workload.context)


def alone(answer: Answer, name: str) -> Architecture | None:
    """The model with one change only: what is on screen, where there is no other."""
    about, overrides = answer.model.published, answer.scenario.overrides
    if len(overrides) == 1:
        return answer.model.architecture

    def build() -> Architecture | None:
        try:
            return Architecture.from_config(override(about.config or {}, {name: overrides[name]}))
        except ConfigError:
            return None

    key = str(about.name), id(about), name, overrides[name]
    return remembered("changed", key, build, lambda built: len(built) > MOST)
