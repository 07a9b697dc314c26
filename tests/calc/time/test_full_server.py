"""A server under a steady load: laws of its times, and how near they come to servers that were measured."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random

import numpy as np
import pytest

from benchmarks.accuracy.judged import rows_of, summary
from benchmarks.accuracy.records import LeftOut
from benchmarks.accuracy.served import Server, predicted
from benchmarks.accuracy.speed_cases import speed_of
from calc import Architecture, Layout, Precision
from calc.hardware.gpus import gpus
from calc.time.estimate import ENDS
from calc.time.serving import FullServer
from presets import models

SAMPLE = Path(__file__).parents[2] / "data" / "served.json"
USERS = (1, 2, 4, 16, 64, 256)


def server(model="Qwen/Qwen3-30B-A3B", engine="vllm", end="expected", chunk=8192) -> FullServer:
    architecture = Architecture.from_config(models()[model].config)
    stages = (range(architecture.num_layers),)
    run = speed_of(architecture, architecture, stages, Precision(), Layout(), gpus()["h100-sxm"], engine)
    return FullServer(run, 8192, 1024, chunk, end=end)


def seconds(parts) -> float:
    return float(np.ravel(sum(part.seconds for part in parts))[0])


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
@pytest.mark.parametrize("model", ["meta-llama/Llama-3.1-8B", "Qwen/Qwen3-30B-A3B"])
def test_more_users_wait_longer(model, engine, end):
    full = server(model, engine, end)
    for figure in (full.token, full.first_token):
        times = [figure(users).item() for users in USERS]
        assert all(few < many for few, many in pairwise(times))


def test_no_prompt_runs_next_to_the_steps_of_one_user():
    full = server()
    step = float(full.speed.step(1, 8192 + 512, "expected"))
    assert full.token(1).item() == pytest.approx(step)


def test_the_first_token_of_one_user_is_that_of_its_prompt():
    full = server(chunk=2048)
    prompt = float(full.speed.prompt(1, 8192, "expected", chunk=2048))
    assert full.first_token(1).item() == pytest.approx(prompt)


def test_a_server_that_looks_for_requests_every_30_steps_lets_them_wait_for_15():
    """SGLang's `--scheduler-recv-interval`; one that looks after every step, for half of one."""
    often, seldom = server("meta-llama/Llama-3.1-8B", "sglang"), server("meta-llama/Llama-3.1-8B", "sglang")
    seldom = replace(seldom, poll=30)
    step = seconds(often.decode_parts(16))
    assert (seldom.first_token(16) - often.first_token(16)).item() == pytest.approx((15 - 0.5) * step)
    assert seldom.first_token(1).item() == often.first_token(1).item()


def test_layers_that_launch_more_kernels_take_longer():
    """In a step of one sequence, what layers of a kind take more is added for each of them."""
    times = {}
    for model in ("meta-llama/Llama-3.1-8B", "deepseek-ai/DeepSeek-V2-Lite", "Qwen/Qwen3-Next-80B-A3B-Instruct"):
        speed = server(model).speed
        (stage,), on = speed.demands, speed.machines("expected")
        times[model] = on.host(stage, decodes=True) / stage.layers
    plain, latent, linear = times.values()
    assert plain == pytest.approx(58e-6)
    assert latent == pytest.approx((58 + 35 + 10 * 26 / 27) * 1e-6)  # the first of 27 layers has no routed experts
    assert linear == pytest.approx((58 + 10 + 50 * 3 / 4) * 1e-6)  # three of four layers


def test_a_token_takes_a_step_of_decoding_and_whole_prompts_of_the_others():
    """Not the step of the mean work, in which a few tokens of a prompt would read most experts each time."""
    full = server()
    prompt = seconds(part for part in full.prompt_parts if part.what != "host")
    for users in USERS:
        step = float(full.speed.step(users, 8192 + 512, "expected"))
        assert full.token(users).item() == pytest.approx(step + (users - 1) / 1024 * prompt)


def pipeline(model="Qwen/Qwen3-32B", pp=3) -> FullServer:
    """Stages one after the other, as Weigh knows them."""
    architecture = Architecture.from_config(models()[model].config)
    bounds = [stage * architecture.num_layers // pp for stage in range(pp + 1)]
    stages = tuple(range(first, last) for first, last in pairwise(bounds))
    run = speed_of(architecture, architecture, stages, Precision(), Layout(pp=pp), gpus()["h100-sxm"], "vllm")
    return FullServer(run, 2048, 512, 2048)


def laps(pp: int, decode: float, prompt: float, chance: float, turns: int) -> float:
    """Seconds of a lap of a micro-batch around a pipeline: a stage has one at a time, in their order, and each begins
    anew when it has left the last stage; of some passes, at random, a prompt is part."""
    random, free, ready = Random(7), [0.0] * pp, [0.0] * pp
    for _ in range(turns):
        for batch in range(pp):
            here = decode + (prompt if random.random() < chance else 0.0)
            for stage in range(pp):
                ready[batch] = free[stage] = max(ready[batch], free[stage]) + here
    return ready[0] / turns


@pytest.mark.parametrize("pp", [2, 3, 8])
@pytest.mark.parametrize("users", [24, 96, 384])
def test_a_pipeline_waits_for_prompts_as_a_simulated_one_does(pp, users):
    """As if all set out together: of eight, some laps begin before the last prompt is through, and are shorter."""
    full = pipeline(pp=pp)
    full = replace(full, speed=replace(full.speed, demands=(full.speed.demands[0],) * pp))  # stages of one length
    decode, prompt = seconds(full.decode_parts(users)), seconds(full.launched_parts)
    chance = full.running(users) / full.output
    simulated = laps(pp, decode / pp, prompt / pp, chance, turns=20_000)
    assert 0.99 * simulated < full.step(users).item() < (1.05 if pp < 8 else 1.12) * simulated


def test_all_wait_for_the_longest_stage():
    """64 layers in three stages: 21, 21 and 22. One user goes through all of them; with more, a step takes three times
    the longest."""
    speed = pipeline().speed
    assert [speed.pace(users) for users in (1, 2, 3, 300)] == pytest.approx([1, 1, 66 / 64, 66 / 64])
    alone = float(speed.seconds(speed.decoding(300, 2048), "expected", decodes=True))
    assert speed.step(300, 2048, "expected") == pytest.approx(alone * 66 / 64)


def measured() -> list[Server]:
    rows, configs = rows_of(SAMPLE)
    return [server for server in predicted(rows, configs) if isinstance(server, Server)]


def test_a_page_that_repeats_another_models_figures_measured_nothing():
    """sgl-cookbook@7b5bd9c's page of Kimi-K2.6 has those of Kimi-K2.5 to the last digit, under another SGLang."""
    (row, *_), configs = rows_of(SAMPLE)
    copied = {**row, "model": "another"}
    left = [run.reason for run in predicted([row, copied], configs) if isinstance(run, LeftOut)]
    assert left == [f"the figures are those of {row['model']}"]


def test_no_server_reads_faster_than_its_memory():
    """Two B200 read 8 TB/s each: no 416 sequences of 15,000 tokens of Qwen3-32B get a token each 13.7 ms."""
    rows, configs = rows_of(SAMPLE)
    row = next(row for row in rows if row["engine"] == "vllm")
    left = list(predicted([{**row, "tpot_ms": row["tpot_ms"] / 100}], configs))
    assert [run.reason for run in left if isinstance(run, LeftOut)] == ["read faster than the printed bandwidth"]


def test_times_are_near_those_of_measured_servers():
    """Of all 939: 8 % and 18 % at the median, 92 % and 81 % inside the range; a sample of 33 spreads about that."""
    servers = measured()
    assert len(servers) > 25
    for what, most, inside in (("tpot_ms", 0.1, 0.8), ("ttft_ms", 0.3, 0.7)):
        found = summary([server.judged(what) for server in servers])
        assert found["median_error"] < most
        assert found["inside"] > inside
