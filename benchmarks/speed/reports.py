"""What a report costs over all presets, what the command line takes, and how soon the app answers.

python -m benchmarks.speed.reports
"""

import gc
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from benchmarks.speed.moves import ROOT, high, server
from calc import Architecture, ConfigError, report, training_report
from presets import models


def each(calculate: Callable[..., object]) -> dict[str, float]:
    """Milliseconds of CPU by preset, the better of two; reading the config is not part of it."""
    found = {}
    for name, preset in models().items():
        times = []
        for _ in range(2):
            try:
                architecture = Architecture.from_config(preset.config)  # nothing is known from the time before
                start = time.process_time()
                calculate(preset.config, architecture=architecture)
                times.append(1000 * (time.process_time() - start))
            except ConfigError:
                break
        if times:
            found[name] = min(times)
    return found


def timed(act: Callable[[], Any], times: int = 5) -> float:
    """Seconds, the best of some."""
    found = []
    for _ in range(times):
        start = time.perf_counter()
        act()
        found.append(time.perf_counter() - start)
    return min(found)


def start() -> None:
    with server(ROOT / "app.py"):
        pass


def main() -> None:
    gc.freeze()
    for what, calculate in (("report", report), ("training_report", training_report)):
        times = each(calculate)
        values, (slowest, worst) = list(times.values()), max(times.items(), key=lambda item: item[1])
        print(
            f"{what:16} {len(times)} presets, ms: median {median(values):.1f}, p95 {high(values):.1f}, "
            f"worst {worst:.1f} ({slowest})"
        )
    command = [sys.executable, "-m", "calc", "Qwen/Qwen3-8B"]
    seconds = timed(lambda: subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL))
    print(f"python -m calc Qwen/Qwen3-8B: {seconds:.2f} s")
    print(f"app.py answers after {timed(start, 2):.1f} s")


if __name__ == "__main__":
    main()
