"""What the controls of all screens share."""

from collections.abc import Callable

import streamlit as st

from calc import ConfigError, Range
from calc.hardware.overhead import FRAGMENTATION, NONE
from pages.parts.state.scenario import Scenario
from pages.parts.state.url import bind, change, show


def explain(error: ConfigError, take: Callable[[int | str], None], place: str = "near") -> None:
    """What is wrong and what would be right, to click."""
    st.error(str(error), icon=":material/error:")
    if error.nearest:
        with st.container(horizontal=True, gap="xsmall"):
            for value in error.nearest:
                st.button(
                    f"Use {value:,}" if isinstance(value, int) else f"Use {value}",
                    key=f"{place}_{value}",
                    on_click=take,
                    args=(value,),
                )


def taker(scenario: Scenario, field: str) -> Callable[[int | str], None] | None:
    """What puts a value into the field that a sentence is about; None where no control has it."""
    published = scenario.settings()
    if field in published:
        return lambda value: put(field, value, published[field])
    return (lambda value: change(**{field: value})) if field in Scenario.model_fields else None


def put(name: str, value: int | bool, original: int | bool) -> None:
    """Change one field of the config; the preset's own value is no change."""
    others = {field: kept for field, kept in st.session_state.scenario.overrides.items() if field != name}
    change(overrides=others if value == original else others | {name: value})


def optional(name: str, label: str, most: int, placeholder: str, help: str | None = None) -> None:
    """A whole number that may be left to the engine."""
    st.number_input(
        label, min_value=1, max_value=most, value=None, placeholder=placeholder, help=help, **bind(name, name)
    )


def whole_number(
    name: str,
    label: str,
    error: ConfigError | None,
    most: int = 1024,
    help: str | None = None,
) -> None:
    """A field of the scenario, with what is wrong with it beside it."""
    st.number_input(label, min_value=1, max_value=most, step=1, help=help, **bind(name, name))
    if error is not None and error.field == name:
        explain(error, lambda value: change(**{name: value}))


def overhead(scenario: Scenario) -> None:
    """A slider with two ends for each item of the overhead."""
    st.markdown("**Overhead, from low to high**")
    usual = {
        "cuda_graphs": NONE,
        "fragmentation": FRAGMENTATION,
        **scenario.serving_engine().overhead(scenario.tp * scenario.pp * scenario.attention_dp),
    }
    items = (
        ("cuda_context", "CUDA context (GiB)", 4.0),
        ("libraries", "Libraries, NCCL (GiB)", 6.0),
        ("cuda_graphs", "CUDA graphs (GiB)", 8.0),
        ("fragmentation", "Fragmentation (% of the rest)", 20.0),
    )
    for name, label, most in items:
        now = getattr(scenario, name) or usual[name]
        key = f"overhead_{name}"
        show(key, (now.low, now.high))
        st.slider(
            label,
            0.0,
            max(most, now.high),
            step=0.01,
            format="%.2f",
            key=key,
            on_change=_take_range,
            args=(key, name, usual[name]),
        )


def _take_range(key: str, name: str, usual: Range) -> None:
    low, high = st.session_state[key]
    chosen = Range(low=low, high=high)
    change(**{name: None if chosen == usual else chosen})
