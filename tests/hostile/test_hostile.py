"""A few of the inputs that `python -m tests.hostile` draws, and those that did harm before."""

from contextlib import suppress
from time import process_time

import pytest

from calc import ConfigError, Workload, report
from calc.formats.scheme import MAX_PATTERNS
from calc.text import MAX_CHARACTERS, pack
from presets import models
from tests import load
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
LLAMA = {"model_type": "llama"}
FP8 = {"quant_method": "fp8"}


def filled(piece: str) -> str:
    """A config of one list, as long as any that is read."""
    return '{"model_type":"llama","a":[' + ",".join([piece] * (MAX_CHARACTERS // (len(piece) + 1) - 9)) + "]}"


def skipping(*patterns: str) -> dict[str, str]:
    """A link to a deep model of which some modules are not quantized."""
    config = LLAMA | {"num_hidden_layers": 1024, "quantization_config": FP8 | {"ignored_layers": [*patterns]}}
    return {"pasted": pack(config)}


CORPUS = {
    "a pattern that is tried for ever": ("link", ("", {"engine": "llamacpp", "override_tensor": "(.+)+x9=CPU"})),
    "optional letters": ("link", ("", {"engine": "llamacpp", "override_tensor": ".?" * 80 + "x9=CPU"})),
    "optional letters of a checkpoint": ("link", ("", skipping("re:" + ".?" * 80 + "x9"))),
    "stars": ("link", ("", skipping(*(f"*a*b*c*{n}" for n in range(500))))),
    "stars of patterns": ("link", ("", skipping(*(f"re:.*.*.*x{n}" for n in range(500))))),
    "as many stars as are read": ("link", ("", skipping(*(f"*a*b*c*{n}" for n in range(MAX_PATTERNS))))),  # 500: 5 s
    "as many patterns": ("link", ("", skipping(*(f"re:.*.*.*x{n}" for n in range(MAX_PATTERNS))))),
    "empty objects": ("paste", filled("{}")),  # 224 MB
    "lists in lists": ("paste", filled("[[]]")),  # 282 MB
    "unknown fields": ("paste", "{" + ",".join(f'"{n:06d}":{{}}' for n in range(600_000)) + "}"),  # 6.6 s
    "spaces": ("paste", " " * 10 * MAX_CHARACTERS),  # 1.8 s
    "objects of a header": ("upload", ("safetensors", b'{"a":[' + b"{}," * 8_000_000 + b"0]}")),  # 600 MB
    "an escape": ("command", ["Qwen/Qwen3-8B", "--products", "\x1b]0;title\x07"]),
    "an endless loop": ("link", ("", {"pasted": pack({"model_type": "hrm_text", "H_cycles": 10**9})})),
    "lists of a grid": ("grid", "models = " + "[" * 200),
    "experts over ranks of a Mac": ("link", ("", {"engine": "mlx", "model": "Qwen/Qwen3.5-35B-A3B", "ep": "7"})),
    "bytes of no text": ("address", ("/api/report", b"model=Qwen/Qwen3-8B&\xff=\xfe")),
    "sequences of a step": ("address", ("/train_plan", b"global_batch=16000000")),  # 30 s and more, each a size to try
    "three thousand models": ("tool", ("compare", {"models": ["Qwen/Qwen3-8B"] * 3000})),
    "a long name": ("link", ("", {"x" * 5000: "1"})),
}
"""What did harm once, with what it took."""
CORPUS |= {row["what"]: (row["door"], row["value"]) for row in load("hostile.json")}
"""And what was drawn."""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Streamlit's, of a session without a browser
@pytest.mark.parametrize("name", CORPUS)
def test_what_did_harm_does_no_more(name):
    door, value = CORPUS[name]
    assert harm_of(READ[door], value) is None


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Streamlit's, of a session without a browser
@pytest.mark.parametrize("door", FEW)
def test_no_input_does_harm(door, tmp_path):
    with reading_hub(tmp_path) as read_hub:
        read = READ | {"hub": read_hub}
        harms = {n: harm_of(read[door], drawn(door, 0, n)) for n in range(FEW[door])}
    assert {n: harm for n, harm in harms.items() if harm is not None} == {}


PATTERNS = {"quant_method": "fp8", "ignored_layers": [f"re:.*layers.{n}.mlp.*" for n in range(30_000)]}
NARROW = {"hidden_size": 1}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "context"),
    [
        pytest.param(LLAMA | {"quantization_config": PATTERNS}, 8192, id="30,000 patterns"),  # 23.6 s once
        *(
            pytest.param(dict(models()[name].config) | NARROW, 16_000_000, id=name)  # 8 s once
            for name in ("MiniMaxAI/MiniMax-M2.7", "MiniMaxAI/MiniMax-Text-01-hf")
        ),
    ],
)
def test_a_report_takes_a_second_at_most(config, context):
    start = process_time()
    with suppress(ConfigError):
        report(config, workload=Workload(context=context))
    assert process_time() - start < 1


def test_inputs_follow_from_their_number():
    for door in DOORS:
        assert repr(drawn(door, 1, 7)) == repr(drawn(door, 1, 7)) != repr(drawn(door, 1, 8))
