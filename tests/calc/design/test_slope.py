"""What a step costs: the difference of two whole designs."""

import pytest

from calc import Architecture, Precision, Workload
from calc.design.slope import Slopes
from calc.families import override
from calc.serving.engines.vllm.engine import VLLM
from presets import models

QWEN = models()["Qwen/Qwen3-8B"].config


def slopes(config=QWEN, **precision):
    return Slopes(
        config, Architecture.from_config(config), VLLM(), Precision(**precision), Workload(batch=1, context=8192)
    )


@pytest.mark.parametrize(
    ("field", "now", "step", "taken", "parameters", "nbytes"),
    [
        # a layer: 2·4096² + 2·1024·4096 + 3·4096·12288 + 2·4096 + 2·128, and 2·8·128·2 bytes a token
        pytest.param("num_hidden_layers", 36, 1, 1, 192_946_432, 2 * 192_946_432 + 8192 * 4096, id="layer"),
        # 32 query heads are shared by 16 KV heads next: twice 36 times keys and values of 8 heads
        pytest.param(
            "num_key_value_heads", 8, 1, 8, 36 * 2 * 1024 * 4096, 36 * (4 * 1024 * 4096 + 8192 * 4096), id="kv-heads"
        ),
        pytest.param("vocab_size", 151_936, 64, 64, 2 * 64 * 4096, 4 * 64 * 4096, id="vocabulary"),
    ],
)
def test_a_step(field, now, step, taken, parameters, nbytes):
    found = slopes().of(field, now, step)
    assert (found.step, found.parameters, found.nbytes) == (taken, parameters, nbytes)


def test_fewer_bits_make_it_less_steep():
    wide, narrow = (slopes(weights=weights).of("num_hidden_layers", 36, 1).nbytes for weights in ("bf16", "int4"))
    assert narrow < wide / 2


def test_no_value_is_near():
    config = override(QWEN, {"num_key_value_heads": 32})
    assert slopes(config).of("num_key_value_heads", 32, 1) is None


def test_a_sequence_and_a_thousand_tokens():
    """Qwen3-8B caches 147,456 bytes a token: 36 layers of 2·8·128 in 16 bits."""
    assert slopes().cache_of(batch=2) == 147_456 * 8192
    assert slopes().cache_of(context=8192 + 1024) == 147_456 * 1024
