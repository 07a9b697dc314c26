"""Requests that come by chance, against a server that is simulated step by step."""

from bisect import bisect_right
from dataclasses import dataclass
from random import Random

import numpy as np
import pytest

from benchmarks.accuracy.speed_cases import speed_of
from calc import Architecture, Layout, Precision
from calc.hardware.gpus import gpus
from calc.time.arrivals import Arrivals, closed_loop_spread
from calc.time.serving import FullServer
from presets import models

PROMPT, OUTPUT, MOST = 1024, 256, 64


def server(model="Qwen/Qwen3-32B", dp=1) -> FullServer:
    architecture = Architecture.from_config(models()[model].config)
    stages = (range(architecture.num_layers),)
    run = speed_of(architecture, architecture, stages, Precision(), Layout(dp=dp), gpus()["h200-sxm"], "vllm")
    return FullServer(run, PROMPT, OUTPUT, PROMPT)


def seconds(parts) -> float:
    return float(np.ravel(sum(part.seconds for part in parts))[0])


@dataclass
class Request:
    came: float
    first: float = 0.0
    left: int = OUTPUT
    user: bool = False


def simulated(full: FullServer, *, per_s: float = 0.0, users: int = 0, think_s: float = 0.0, count: int = 12_000):
    """Milliseconds to the first token and per token after it. Steps follow one another: one takes the decode step of
    what runs and the prompts that have come, whose first token is out when it ends."""
    random = Random(5)
    decode = [0.0, *(seconds(full.decode_parts(n)) for n in range(1, MOST + 1))]
    prompt = seconds(full.launched_parts)
    start = full.first_token(1).item() - prompt + full.speed.machines("expected").admission  # next to the steps
    if users:
        coming = sorted(random.expovariate(1 / think_s) for _ in range(users))
    else:
        coming, now = [], 0.0
        for _ in range(count):
            now += random.expovariate(per_s)
            coming.append(now)
    running, done, now = [], [], 0.0
    while len(done) < count and (coming or running):
        if not running and coming[0] > now:
            now = coming[0]
        new = []
        while coming and coming[0] <= now and len(running) + len(new) < MOST:
            new.append(Request(coming.pop(0)))
        now += decode[len(running)] + prompt * len(new)
        for request in new:
            request.first = now + start
        for request in running:
            request.left -= 1
        over = [request for request in running if request.left == 1]
        done += [(1000 * (r.first - r.came), 1000 * (now - r.first + start) / (OUTPUT - 1)) for r in over]
        if users:
            for _ in over:
                back = now + random.expovariate(1 / think_s)
                coming.insert(bisect_right(coming, back), back)
        running = [request for request in running if request.left > 1] + new
    return [sorted(column) for column in zip(*done[count // 10 :], strict=True)]


def at(column: list[float], share: float) -> float:
    return column[int(share * len(column))]


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_percentiles_of_a_poisson_stream_are_those_of_a_simulated_server(load):
    full = server()
    per_s = load * Arrivals(full, MOST, per_s=1).max_rate
    found = Arrivals(full, MOST, per_s=per_s).waits(1)
    first, token = simulated(full, per_s=per_s)
    assert found.utilization == pytest.approx(load)
    assert found.tpot_ms.p50 == pytest.approx(at(token, 0.5), rel=0.05)
    assert found.tpot_ms.p95 == pytest.approx(at(token, 0.95), rel=0.05)
    assert found.ttft_ms.mean == pytest.approx(sum(first) / len(first), rel=0.1)
    assert found.tpot_ms.mean == pytest.approx(sum(token) / len(token), rel=0.05)
    assert found.ttft_ms.p50 == pytest.approx(at(first, 0.5), rel=0.15)
    assert found.ttft_ms.p95 == pytest.approx(at(first, 0.95), rel=0.2)


@pytest.mark.parametrize("think_s", [5.0, 20.0])
def test_users_who_think_are_served_as_by_a_simulated_server(think_s):
    full = server()
    found = Arrivals(full, MOST, users=60, think_s=think_s).waits(1)
    first, token = simulated(full, users=60, think_s=think_s)
    assert found.tpot_ms.p50 == pytest.approx(at(token, 0.5), rel=0.05)
    assert found.tpot_ms.p95 == pytest.approx(at(token, 0.95), rel=0.05)
    assert found.ttft_ms.mean == pytest.approx(sum(first) / len(first), rel=0.1)
    assert found.tpot_ms.mean == pytest.approx(sum(token) / len(token), rel=0.05)
    assert found.ttft_ms.p50 == pytest.approx(at(first, 0.5), rel=0.15)
    assert found.ttft_ms.p95 == pytest.approx(at(first, 0.95), rel=0.2)


@pytest.mark.parametrize("load", [0.3, 0.6])
def test_a_prompt_waits_for_those_of_its_own_copy(load):
    """Two copies of a dense model with twice the requests are two servers with their own each."""
    one, both = server(), server(dp=2)
    per_s = load * Arrivals(one, MOST, per_s=1).max_rate
    alone, shared = Arrivals(one, MOST, per_s=per_s).ttft(), Arrivals(both, 2 * MOST, per_s=2 * per_s).ttft()
    assert shared.mean == pytest.approx(alone.mean, rel=0.05)
    assert shared.p95 == pytest.approx(alone.p95, rel=0.1)


def closed_loop(full: FullServer, users: int, count: int = 8_000) -> list[float]:
    """Milliseconds to the first token where each user sends a request as an answer ends; answers differ in length."""
    random = Random(5)
    decode = [0.0, *(seconds(full.decode_parts(n)) for n in range(1, users + 1))]
    prompt = seconds(full.launched_parts)
    start = full.first_token(1).item() - prompt + full.speed.machines("expected").admission  # next to the steps
    left, coming, first, now = [], sorted(random.random() * OUTPUT * decode[-1] for _ in range(users)), [], 0.0
    while len(first) < count:
        now = now if left else max(now, coming[0])
        new = [came for came in coming if came <= now]
        coming = coming[len(new) :]
        now += decode[len(left)] + prompt * len(new)
        first += [1000 * (now + start - came) for came in new]
        left = [tokens - 1 for tokens in left if tokens > 1]
        left += [random.randint(OUTPUT // 2, 3 * OUTPUT // 2) for _ in new]
        coming = [*[now] * (users - len(left) - len(coming)), *coming]
    return sorted(first[count // 10 :])


@pytest.mark.slow
@pytest.mark.parametrize("users", [2, 16, 60])
def test_first_tokens_of_users_who_never_think_spread_as_on_a_simulated_server(users):
    full = server()
    first = closed_loop(full, users)
    assert closed_loop_spread(full, users) == pytest.approx(at(first, 0.95) * len(first) / sum(first), rel=0.03)


def test_what_comes_is_served():
    assert Arrivals(server(), MOST, per_s=0.7).mean_rate == 0.7
