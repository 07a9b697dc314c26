"""No number makes a config endless: whatever stands in a field, the config is read or a sentence says why not."""

import json
import signal
from contextlib import contextmanager

import pytest

from calc import Architecture, ConfigError
from calc.families import DEFAULTS
from tests import load

SECONDS = 3.0
"""Of CPU for one config: most take a few milliseconds, and what loops over its numbers takes minutes, or never ends."""


def paths(config, before=()):
    """Where a config holds a whole number, or what may be one elsewhere: nothing, or a list."""
    for name, value in config.items():
        if isinstance(value, dict):
            yield from paths(value, (*before, name))
        elif value is None or type(value) in (int, list):
            yield (*before, name)


def changed(config, path, value):
    name, *rest = path
    return config | {name: changed(config[name], rest, value) if rest else value}


def cases():
    """Every field of a sample of each family, and of each family that states nothing, with its config."""
    samples = {}
    for row in (*load("oracle.json"), *load("small.json"), *load("towers.json")):
        samples.setdefault(row["config"].get("model_type"), row["config"])
    for config in samples.values():
        yield from ((config, path) for path in paths(config))
    for name, row in DEFAULTS.items():
        fields = json.loads(row)["fields"]
        yield from (({"model_type": name}, path) for path in paths(fields) if len(path) == 1)


@contextmanager
def cpu_seconds(most):
    def stop(*_):
        raise TimeoutError

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, most)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def outcome(config):
    """None where a config is read or refused in a sentence, else what happened."""
    try:
        with cpu_seconds(SECONDS):
            Architecture.from_config(config).parameters()
    except ConfigError as error:
        return None if str(error).endswith(".") else str(error)
    except Exception as error:
        return repr(error)
    return None


@pytest.mark.slow
@pytest.mark.parametrize("value", [2**31 - 1, pytest.param(10**6, marks=pytest.mark.sweep)])
def test_no_number_is_endless(value):
    results = {(config["model_type"], path): outcome(changed(config, path, value)) for config, path in cases()}
    assert {case: result for case, result in results.items() if result is not None} == {}


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"model_type": "hrm_text", "H_cycles": 10**9}, "H_cycles is 1,000,000,000; it must lie between"),
        ({"model_type": "hrm_text", "H_cycles": 1000, "L_cycles": 1000}, "runs 16,016,000 layers"),
        ({"model_type": "qwen4_exp_text", "ple_layer_ids": [1, 2], "heads_per_ngram": 512}, "have 2,048 tables"),
        ({"model_type": "blt", "encoder_hash_byte_group_size": 7}, "must be a list of how many bytes"),
    ],
)
def test_what_would_be_right_is_said(config, sentence):
    with pytest.raises(ConfigError, match=sentence):
        Architecture.from_config(config)
