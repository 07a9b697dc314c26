"""python -m benchmarks.accuracy.disaggregated [SERVED.json]: time per output token and time to first token of servers
whose prefill and decode run on separate GPUs, measured and predicted.

By engine and GPU, and with each model and GPU left out, as benchmarks.accuracy.served. Only the latency of a collective
over more than 8 GPUs is fitted to these rows; all else is that of servers that do both.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.accuracy.judged import grouped, left_out_in_turn, rows_of, summary
from benchmarks.accuracy.served import CHUNK, DRAWN, ROWS, Server, name_of, precision_of, speed
from calc import Architecture
from calc.hardware.gpus import gpus
from calc.time.disaggregated import Disaggregated, both_ends
from calc.time.estimate import End
from calc.time.roofline import machine
from calc.time.serving import FullServer, Speed

WHOLE_EXPERTS = "0.5.5.post2"
"""The release of SGLang whose runs are all listed with "tp 1, ep 1": by the list's own comments "DEP4" and "DEP32",
data and expert parallel (SemiAnalysisAI/InferenceX@c4cde03, .github/configs/nvidia-master.yaml)."""

LOCAL = {"moe_dense_tp_size": 1, "enable_dp_lm_head": True}


def workers(row: Mapping[str, Any], side: str) -> Mapping[str, Any]:
    """One side's workers, each laid out as it ran."""
    listed = row[side]
    spread = row["engine_version"] == WHOLE_EXPERTS and listed["dp"] > 1
    return {**row, **listed, "ep": listed["tp"] * listed["dp"] if spread else listed["ep"]}


def flags_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """Flags of SGLang by which copies of the attention share experts, as the recipes of these runs have them
    (github.com/ishandhanani/srt-slurm, recipes: gb200-fp8/8k1k/mid-curve.yaml, gb200-fp4/1k1k/mid-curve.yaml,
    b200-fp8/8k1k/stp/max-tpt-dep8-1p1d.yaml): on GB200 tokens are sent to experts, of FP4's on 32 GPUs alone."""
    if row["engine"] != "sglang" or row["dp"] == 1 or row["ep"] == 1 or row["gpu"] not in ("b200", "gb200"):
        return {}
    if row["gpu"] == "b200":
        return LOCAL
    sends = row["weights"] == "fp8" or row["dp"] == 32
    return LOCAL | {"moe_a2a_backend": "deepep"} if sends else {}


def predicted(rows: Iterable[Mapping[str, Any]], configs: Mapping[str, Any]) -> Iterator[Server]:
    """Every row whose prefill and decode are apart, with its prediction."""
    architecture = cache(lambda name: Architecture.from_config(configs[name]))

    def worker(row: Mapping[str, Any], side: str) -> Speed:
        name = name_of(row)
        model, laid_out = (architecture(name), precision_of(row, configs[name])), workers(row, side)
        return speed(laid_out, *model, gpus()[row["gpu"]], flags_of(laid_out))

    for row in rows:
        if row["mode"] == "disaggregated" and name_of(row) in configs:
            yield serve(row, worker(row, "prefill"), worker(row, "decode"))


def serve(row: Mapping[str, Any], prefill: Speed, decode: Speed) -> Server:
    share, users = DRAWN.get(row["lengths"], 1.0), row["concurrency"]
    prompt, output = round(share * row["isl"]), round(share * row["osl"])

    chunk = min(CHUNK, prompt)

    @cache
    def deployment(first: End, second: End) -> Disaggregated:
        ends = ((prefill, first), (decode, second))
        sides = (FullServer(side, prompt, output, chunk, end=end) for side, end in ends)
        link = machine(gpus()[row["gpu"]], row["engine"], row["weights"], row["n_gpus"], first).link
        return Disaggregated(*sides, row["prefill"]["workers"], row["decode"]["workers"], link)

    def token(*ends: End) -> float:
        apart = deployment(*ends)
        return 1000 * apart.token(apart.running(users)).item()

    return Server(row, both_ends(token), both_ends(lambda *ends: 1000 * deployment(*ends).first_token(users).item()))


def main() -> None:
    servers = list(predicted(*rows_of(Path(sys.argv[1]) if len(sys.argv) > 1 else ROWS)))
    for what in ("tpot_ms", "ttft_ms"):
        runs = [server.judged(what) for server in servers]
        print(f"{what:8s} {'all':36s} {summary(runs)}")
        for column in ("engine", "gpu", "weights", "model"):
            for name, group in grouped(runs, column).items():
                print(f"{what:8s} {name:36s} {summary(group)}")
        for column in ("model", "gpu"):
            print(f"{what:8s} {f'each {column} left out':36s} {left_out_in_turn(runs, column, 'engine')}")


if __name__ == "__main__":
    main()
