"""A few of the inputs that `python -m tests.hostile` draws, and those that did harm before."""

import pytest

from tests.hostile.corpus import CORPUS
from tests.hostile.harm import READ, drawn, harm_of
from tests.hostile.hub import reading_hub
from tests.hostile.inputs import DOORS

FEW = {
    "link": 25,
    "paste": 120,
    "upload": 300,
    "command": 40,
    "hub": 25,
    "address": 40,
    "sharing": 25,
    "tool": 25,
    "grid": 25,
    "conversion": 25,
    "host": 25,
    "doctor": 40,
}
"""Inputs of each door: some seconds."""
NIGHTLY = {
    *("as many patterns", "as many stars as are read", "as many layers as are read under sglang"),
    *("a plan with arrivals: 4.3 s", "a plan whose requests come by chance, on every GPU: 2.1 s"),
}
"""As many as are read of what others of the corpus have 500 of, the layers that other engines are asked as well, and
plans with arrivals of fewer GPUs than another one has: a second or more each."""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Streamlit's, of a session without a browser
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.sweep] * (name in NIGHTLY)) for name in CORPUS])
def test_what_did_harm_does_no_more(name):
    door, value = CORPUS[name]
    assert harm_of(READ[door], value, timed=False) is None


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Streamlit's, of a session without a browser
@pytest.mark.parametrize("door", FEW)
def test_no_input_does_harm(door, tmp_path):
    with reading_hub(tmp_path) as read_hub:
        read = READ | {"hub": read_hub}
        harms = {n: harm_of(read[door], drawn(door, 0, n), timed=False) for n in range(FEW[door])}
    assert {n: harm for n, harm in harms.items() if harm is not None} == {}


def test_inputs_follow_from_their_number():
    for door in DOORS:
        assert repr(drawn(door, 1, 7)) == repr(drawn(door, 1, 7)) != repr(drawn(door, 1, 8))
