"""python -m benchmarks.accuracy.served [SERVED.json]: time per output token and time to first token of servers under a
steady load, measured and predicted.

By engine and GPU: median error, how many lie within 25 %, how many inside the range, and how wide that is. Then each
model, and each GPU, is left out in turn: one factor an engine is fitted on all others and judged on it. The constants
themselves are fitted to all rows: this does not say how right they are for what none of them has.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.accuracy.judged import Judged, grouped, left_out_in_turn, rows_of, summary
from benchmarks.accuracy.records import LeftOut
from benchmarks.accuracy.speed_cases import divided
from calc import Architecture, Layout, Precision
from calc.formats import CacheFormat, WeightFormat, native
from calc.hardware.gpu import GPU
from calc.hardware.gpus import gpus
from calc.time.estimate import ENDS, Estimate
from calc.time.serving import FullServer, Speed

ROWS = Path(__file__).parents[3] / "shared" / "truth" / "served.json"
DRAWN = {"uniform 0.8-1": 0.9}
"""Mean of the lengths that a benchmark draws, as a share of those that it is given; others are as stated."""
IN_STEP = 1.1
"""Prompts of others that come with one where all have the same lengths, so that clients who start together stay in
step: fitted to the 499 rows of such runs."""
CHUNK = 8192
"""Tokens of a pass: vLLM's and TensorRT-LLM's default, and SGLang's on large GPUs."""
FORMATS: dict[str, WeightFormat] = {
    "bf16": "bf16",
    "fp8": "fp8-channel",
    "nvfp4": "nvfp4",
    "mxfp4": "mxfp4",
    "int4": "int4",
}
"""Of weights whose checkpoint has no `quantization_config`."""


class Server(NamedTuple):
    """A server that was measured, and what is predicted for it, in milliseconds."""

    row: Mapping[str, Any]
    tpot_ms: Estimate
    ttft_ms: Estimate

    def judged(self, what: str) -> Judged:
        """One of its two times."""
        return Judged(self.row, getattr(self, what), float(self.row[what]))


def why_not(row: Mapping[str, Any], configs: Mapping[str, Any]) -> str | None:
    """Why a row says nothing about a steady load of a server that we know."""
    if row["mode"] != "aggregated":
        return "prefill and decode on separate GPUs"
    if row["load"] != "closed loop" or not row["concurrency"]:
        return "all requests at once"
    if row["doubt"]:
        return str(row["doubt"])
    if row["speculation"] != "no":
        return "speculation unknown"
    if row["gpu"] not in gpus():
        return f"no such GPU in the catalogue: {row['gpu']}"
    return None if name_of(row) in configs else f"no config of {row['model']}"


def impossible(row: Mapping[str, Any], run: Speed, gpu: GPU) -> str | None:
    """Why a row's load or format is not as it says: the printed bandwidth is too small for its time per token."""
    prompt, output = lengths_of(row)
    step = run.decoding(row["concurrency"], prompt + output // 2)
    read = float(sum(operation.bytes for stage in run.demands for operation in stage.operations(step)))
    return "read faster than the printed bandwidth" if read > row["tpot_ms"] * gpu.bandwidth_gb_s * 1e6 else None


def without_copies(rows: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any] | LeftOut]:
    """Rows whose figures no row before has: a page of another model that repeats them to the last digit did not measure
    them."""
    models = dict[tuple[Any, ...], str]()
    for row in rows:
        figures = tuple(row[name] for name in ("isl", "osl", "concurrency", "ttft_ms", "tpot_ms"))
        first = models.setdefault(figures, row["model"])
        yield row if first == row["model"] else LeftOut(row, f"the figures are those of {first}")


def lengths_of(row: Mapping[str, Any]) -> tuple[int, int]:
    """Tokens of a prompt and of an answer, on average."""
    share = DRAWN.get(row["lengths"], 1.0)
    return round(share * row["isl"]), round(share * row["osl"])


def name_of(row: Mapping[str, Any]) -> str:
    return f"{row['model']} | {row['weights']}"


def precision_of(row: Mapping[str, Any], config: Mapping[str, Any]) -> Precision:
    """As the checkpoint is stored; TensorRT-LLM's checkpoints of quantized weights ask for a cache in fp8."""
    quantized = native(config).name != "bf16" or row["weights"] == "bf16"
    kv: CacheFormat | None = row["kv"]
    if kv is None and row["engine"] == "tensorrt-llm" and row["weights"] in ("fp8", "nvfp4"):
        kv = "fp8"
    return Precision.of(config, None if quantized else FORMATS[row["weights"]], kv)


def speed(
    row: Mapping[str, Any],
    architecture: Architecture,
    precision: Precision,
    gpu: GPU,
    flags: Mapping[str, Any] | None = None,
) -> Speed:
    """As it ran."""
    layout = Layout(tp=row["tp"], pp=row["pp"], dp=row["dp"], ep=row["ep"])
    return divided(row["engine"], architecture, precision, layout, gpu, flags=flags)


def predicted(rows: Iterable[Mapping[str, Any]], configs: Mapping[str, Any]) -> Iterator[Server | LeftOut]:
    """Every row with its prediction, or why it is left out."""
    architecture = cache(lambda name: Architecture.from_config(configs[name]))
    for row in without_copies(rows):
        if isinstance(row, LeftOut):
            yield row
            continue
        reason = why_not(row, configs)
        if reason is None:
            name, gpu = name_of(row), gpus()[row["gpu"]]
            run = speed(row, architecture(name), precision_of(row, configs[name]), gpu)
            reason = impossible(row, run, gpu)
        yield serve(row, run) if reason is None else LeftOut(row, reason)


def polled(row: Mapping[str, Any]) -> int:
    """Steps after which SGLang looks for requests (`--scheduler-recv-interval`) in InferenceX's scripts for B200
    (benchmarks/single_node/fixed_seq_len at 843c625); it is InferenceX that draws lengths."""
    if row["engine"] != "sglang" or row["gpu"] != "b200" or row["lengths"] not in DRAWN:
        return 1
    few = 4 if "Qwen3.5" in row["model"] and row["weights"] != "bf16" else 15
    return 10 if row["concurrency"] <= few else 30


def serve(row: Mapping[str, Any], run: Speed) -> Server:
    (prompt, output), batch = lengths_of(row), row["concurrency"]
    chunk, poll = min(CHUNK, prompt), polled(row)
    together = IN_STEP if row["lengths"] == "stated" else 0
    servers = {end: FullServer(run, prompt, output, chunk, end=end, poll=poll, together=together) for end in ENDS}
    return Server(
        row,
        Estimate.over(lambda end: 1000 * servers[end].token(batch).item()),
        Estimate.over(lambda end: 1000 * servers[end].first_token(batch).item()),
    )


def main() -> None:
    rows, configs = rows_of(Path(sys.argv[1]) if len(sys.argv) > 1 else ROWS)
    every = list(predicted(rows, configs))
    servers = [server for server in every if isinstance(server, Server)]
    for what in ("tpot_ms", "ttft_ms"):
        runs = [server.judged(what) for server in servers]
        print(f"{what:8s} {'all':36s} {summary(runs)}")
        for column in ("engine", "gpu", "weights", "model"):
            for name, group in grouped(runs, column).items():
                print(f"{what:8s} {name:36s} {summary(group)}")
        for column in ("model", "gpu"):
            print(f"{what:8s} {f'each {column} left out':36s} {left_out_in_turn(runs, column, 'engine')}")
    for reason, count in Counter(left.reason for left in every if isinstance(left, LeftOut)).most_common():
        print("left out", count, reason)


if __name__ == "__main__":
    main()
