"""How long each door takes over hostile inputs, beside one plain reading of a preset in the same run.

python -m benchmarks.speed.doors
"""

import json
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from time import process_time
from typing import Any

from calc import Architecture, ConfigError, report, training_report
from calc.families.gguf import config_of
from calc.text import MAX_CHARACTERS, pack, parse_config, unpack
from calc.verify.checkpoint import MAX_HEADER_BYTES, read_safetensors
from calc.verify.gguf import MAX_ARRAY, MAX_ENTRIES, read_gguf
from calc.verify.gguf import MAX_TENSORS as MAX_GGUF_TENSORS
from calc.verify.logs import read_log
from calc.verify.logs.parse import MAX_CHARACTERS as MAX_LOG
from calc.verify.measurement import MAX_BYTES as MAX_MEASUREMENT
from calc.verify.measurement import read_measurement
from calc.verify.printed import MAX_CHARACTERS as MAX_PRINTED
from calc.verify.printed import read_printed
from pages.parts.state.query import EVERYTHING, WEIGH, decode
from pages.parts.state.scenario import Scenario, places
from presets import models

BASE = models()["meta-llama/Llama-3.1-8B"].config
WRONG = (None, True, -1, 0, 10**12, 10**400, float("nan"), "4096", [], {}, [[]], {"a": 1}, ["x"] * 5000)
PATTERNS = [f"re:(a+)+{i}$" for i in range(100_000)]
NAMES = ("hidden_size", "num_hidden_layers", "layer_types", "rope_scaling", "quantization_config", "model_type")
Inputs = Mapping[str, Any]


def nested(depth: int) -> dict[str, Any]:
    config: dict[str, Any] = {}
    for _ in range(depth):
        config = {"a": config}
    return config


def filled(text: str, size: int) -> str:
    """A text repeated up to a size."""
    return (text * (size // len(text) + 1))[:size]


CONFIGS = {f"{name} is {str(value)[:20]}": BASE | {name: value} for name in NAMES for value in WRONG} | {
    "nested 10,000 deep": BASE | nested(10_000),
    "10**12 layers": BASE | {"num_hidden_layers": 10**12},
    "100,000 unknown fields": BASE | {f"x{i}": i for i in range(100_000)},
    "a million words": BASE | {"layer_types": ["full_attention"] * 1_000_000},
    "100,000 patterns": BASE | {"quantization_config": {"quant_method": "fp8", "modules_to_not_convert": PATTERNS}},
}
TEXTS = {
    "a dict of Python": "{'a': " * (MAX_CHARACTERS // 6),
    "a long dict of Python": "{" + "'a': 1, " * (MAX_CHARACTERS // 10) + "}",
    "brackets": "[" * MAX_CHARACTERS,
    "objects": '{"a":' * (MAX_CHARACTERS // 5),
    "spaces": " " * MAX_CHARACTERS,
    "digits": "9" * MAX_CHARACTERS,
    "one list": f'{{"a": [{filled("0,", MAX_CHARACTERS - 20)}0]}}',
    "escapes": f'{{"a": "{filled(chr(92) + "u00e9", MAX_CHARACTERS - 16)}"}}',
    "too long": " " * 10 * MAX_CHARACTERS,
}
PRINTED = {
    "brackets": "(" * MAX_PRINTED,
    "an open name": filled("(a): ", MAX_PRINTED),
    "modules": "M(\n" + filled("(a): Linear(in_features=1, out_features=1)\n", MAX_PRINTED - 10) + ")",
    "spaces": "M(\n(a): " + " " * (MAX_PRINTED - 10),
    "counts": "M(\n" + filled("(0-9999): 10000 x ModuleList(\n", MAX_PRINTED - 10),
}
LOGS = {
    "lines": "\n" * MAX_LOG,
    "words of a log": filled("GPU KV cache size: ", MAX_LOG),
    "settings": filled("LLM engine (v0.8.5) with config: model='", MAX_LOG),
    "starts": filled("LLM engine (v0.8.5)\nModel loading took 1 GiB\n", MAX_LOG),
    "out of memory": filled("out of memory. Tried to allocate 1.00 GiB\n", MAX_LOG),
    "sglang": filled("KV Cache is allocated. " + "x" * 199, MAX_LOG),
}
ROW = {"kind": "weights", "bytes": 1}
MEASURED = {"format": "weighbridge-measurement/1", "config": BASE, "rows": []}
MEASUREMENTS = {
    "brackets": "[" * MAX_MEASUREMENT,
    "rows": json.dumps(MEASURED | {"rows": [ROW] * 25_000}),
    "nested": json.dumps(MEASURED | {"config": nested(500)}),
    "fields": json.dumps(MEASURED | {f"x{i}": 0 for i in range(70_000)}),
}
HEADERS = {
    "brackets": b"{" * MAX_HEADER_BYTES,
    "spaces": b"{" + b" " * (MAX_HEADER_BYTES - 1),
    "rows without shape": json.dumps({f"t{i}": {"dtype": "F32"} for i in range(100_000)}).encode(),
    "names of an index": json.dumps({"weight_map": {f"t{i}": i for i in range(100_000)}}).encode(),
    "absurd length": struct.pack("<Q", 2**63) + b"{}",
}


def gguf(tensors: int, entries: int, rest: bytes) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, entries) + rest


GGUFS = {
    "tensors": gguf(MAX_GGUF_TENSORS, 0, struct.pack("<QIIQ", 0, 0, 0, 0) * MAX_GGUF_TENSORS),
    "entries": gguf(0, MAX_ENTRIES, struct.pack("<QIB", 0, 0, 0) * MAX_ENTRIES),
    "words": gguf(0, 1, struct.pack("<QIIQ", 0, 9, 8, MAX_ARRAY) + bytes(8 * MAX_ARRAY)),
    "numbers": gguf(0, 1, struct.pack("<QIIQ", 0, 9, 10, MAX_ARRAY) + bytes(8 * MAX_ARRAY)),
    "arrays of arrays": gguf(0, 1, struct.pack("<QIIQ", 0, 9, 9, MAX_ARRAY)),
    "short": gguf(MAX_GGUF_TENSORS, MAX_ENTRIES, b""),
}
KNOWN = (*places(EVERYTHING, "vllm"), "num_hidden_layers", "hidden_size")
QUERIES = {
    "digits": dict.fromkeys(KNOWN, "9" * 100_000),
    "every name": dict.fromkeys(KNOWN, "²"),
    "unknown names": {f"x{i}": "1" for i in range(10_000)},
    "commas": {"gpu": "," * 1_000_000},
    "a packed config": {"pasted": pack(BASE | {"x": "y" * 100_000})},
    "a packed bomb": {"pasted": pack(BASE | {"x": " " * 50_000_000})},
}


def gguf_config(data: bytes) -> dict[str, Any]:
    header = read_gguf(data)
    return config_of(header.metadata, header.checkpoint.shapes)


DOORS: dict[str, tuple[Callable[[Any], object], Inputs]] = {
    "calc.report": (report, CONFIGS),
    "calc.training_report": (training_report, CONFIGS),
    "text.parse_config": (parse_config, TEXTS),
    "text.unpack": (unpack, {name: query["pasted"] for name, query in QUERIES.items() if list(query) == ["pasted"]}),
    "printed.read_printed": (read_printed, PRINTED),
    "logs.read_log": (read_log, LOGS),
    "measurement.read_measurement": (read_measurement, MEASUREMENTS),
    "checkpoint.read_safetensors": (read_safetensors, HEADERS),
    "gguf.read_gguf, config_of": (gguf_config, GGUFS),
    "query.decode": (lambda query: decode(query, WEIGH, Scenario(), lambda source: BASE), QUERIES),
}


def seconds(read: Callable[[Any], object], value: object) -> float:
    """CPU time of one reading, whether it ends in a result or in a sentence."""
    start = process_time()
    with suppress(ConfigError):
        read(value)
    return process_time() - start


def main() -> None:
    plain = min(seconds(Architecture.from_config, BASE) for _ in range(50))
    print(f"One reading of a preset: {plain * 1000:.2f} ms\n")
    print(f"{'door':32}{'inputs':>8}{'slowest ms':>12}{'readings':>10}  which")
    for door, (read, inputs) in DOORS.items():
        read_once = next(iter(inputs.values()))
        seconds(read, read_once)  # tables that are loaded on first use
        times = {name: seconds(read, value) for name, value in inputs.items()}
        slowest = max(times, key=lambda name: times[name])
        print(f"{door:32}{len(inputs):>8}{times[slowest] * 1000:>12.1f}{times[slowest] / plain:>10,.0f}  {slowest}")


if __name__ == "__main__":
    main()
