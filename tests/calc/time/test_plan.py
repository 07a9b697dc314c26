"""Layouts that exist, and plans."""

from dataclasses import replace

import numpy as np
import pytest

from calc import Architecture, ConfigError, Layout, Precision, Workload, report
from calc.hardware.gpus import gpus
from calc.hardware.overhead import MIDDLE, Overhead
from calc.serving.engines import ENGINES
from calc.serving.engines.rules import Question
from calc.serving.engines.sglang.engine import SGLang
from calc.serving.engines.sglang.options import SGLangOptions
from calc.serving.engines.vllm.engine import VLLM
from calc.serving.memory import MOST_TOKENS, Serving
from calc.time.arrivals import Arrivals
from calc.time.cluster import Cluster
from calc.time.fitting import fitting, in_formats
from calc.time.plan import BATCHES, Needs, Search
from calc.time.plan_report import cannot_keep_up, frontier, plan_report, sensitivity
from calc.time.prices import price_of, prices
from calc.time.report import reply, time_report
from calc.time.room import layouts_by_format
from calc.time.serving import speed_on
from presets import models
from tests.structures import generating, mark

SOME = list(models())[::8]
"""Presets on which slow checks are run."""


def architecture(model: str) -> Architecture:
    return Architecture.from_config(models()[model].config)


def accepted_tokens(model: str, engine: str, most: int) -> list[Layout]:
    by_format = layouts_by_format(architecture(model), ENGINES[engine](), (Precision(),), most, 8)
    return [layout for layout, _ in by_format]


def search(
    model="meta-llama/Llama-3.1-70B", needs=None, kinds=("h100-sxm", "l4", "b200"), formats=("bf16", "fp8"), **more
):
    needs = needs or Needs(users=16, prompt=2000, output=200)
    precisions = [Precision(weights=form) for form in formats]
    return Search(architecture(model), ENGINES["vllm"](), needs, [gpus()[k] for k in kinds], precisions, **more)


@pytest.mark.parametrize(
    ("model", "weights", "layout", "rule", "nearest"),
    [
        pytest.param("Qwen/Qwen3-235B-A22B", "fp8", Layout(tp=8), "fp8 tiles", (4,), id="block-fp8"),
        pytest.param("Qwen/Qwen2.5-0.5B", "bf16", Layout(tp=8), "14 attention heads", (2,), id="heads"),
        pytest.param("Qwen/Qwen2.5-0.5B", "bf16", Layout(tp=7), "2 KV heads", (2,), id="kv-heads"),
        pytest.param("meta-llama/Llama-3.1-8B", "bf16", Layout(pp=64), "32 layers", (32,), id="stages"),
        pytest.param(
            "meta-llama/Llama-3.1-8B", "bf16", Layout(tp=2, ep=2), "routed experts, which", (1,), id="no-experts"
        ),
        pytest.param(
            "Qwen/Qwen3-235B-A22B",
            "bf16",
            Layout(tp=8, dcp=4),
            "more than tp 8 over 4 KV heads",
            (2,),
            id="cached-tokens",
        ),
        pytest.param(  # of 16 ranks some would have no group: 8 is o_groups of its class
            "deepseek-ai/DeepSeek-V4-Flash", "fp8", Layout(tp=16), "8 groups of attention heads", (8,), id="groups"
        ),
    ],
)
def test_refusals_name_the_rule_and_the_nearest(model, weights, layout, rule, nearest):
    question = Question(architecture(model), Precision(weights=weights), layout)
    with pytest.raises(ConfigError, match=rule) as caught:
        ENGINES["vllm"]().check(question)
    assert caught.value.nearest == nearest


def test_a_report_refuses_what_the_engine_does():
    with pytest.raises(ConfigError, match="not whole fp8 tiles") as caught:
        report(models()["Qwen/Qwen3-235B-A22B"].config, precision=Precision(weights="fp8"), layout=Layout(tp=8))
    assert (caught.value.field, caught.value.nearest) == ("tp", (4,))


def test_ranks_share_the_copies_of_a_cache():
    """vLLM's docs/serving/context_parallel_deployment.md: with tp 8, DeepSeek-R1 keeps 8 copies, Qwen3-235B 2."""
    for model, copies in {"deepseek-ai/DeepSeek-V3": 8, "Qwen/Qwen3-235B-A22B": 2}.items():
        found = accepted_tokens(model, "vllm", most=8)
        assert max(layout.dcp for layout in found if layout.tp == 8) == copies
        held = [
            Serving.of(architecture(model), ENGINES["vllm"](), Precision(), Layout(tp=8, dcp=dcp), Overhead())
            .on(gpus()["h200-sxm"], Workload(context=65_536))
            .memory.kv_cache
            for dcp in (1, copies)
        ]
        assert held[0] == copies * held[1]
    assert all(layout.dcp == 1 for layout in accepted_tokens(model, "sglang", most=8))


def test_mla_counts_as_one_kv_head():
    question = Question(architecture("deepseek-ai/DeepSeek-V3"), Precision(weights="fp8"), Layout(tp=8))
    assert not any(ENGINES["vllm"]().refusals(question))


def test_sglang_pads_the_vocabulary_for_each_rank():
    odd = architecture("bigscience/bloom").model_copy(update={"vocab": 64 * 3921})
    seven = Question(odd, Precision(), Layout(tp=7))
    assert "vocabulary" in str(next(ENGINES["vllm"]().refusals(seven)).message)
    assert not any(ENGINES["sglang"]().refusals(seven))


@pytest.mark.parametrize("model", ["Qwen/Qwen3-235B-A22B", "meta-llama/Llama-3.1-70B", "openai/gpt-oss-120b"])
@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
def test_every_layout_that_is_enumerated_can_be_weighed(model, engine):
    whole = architecture(model)
    for layout in accepted_tokens(model, engine, most=16):
        Serving.of(whole, ENGINES[engine](), Precision(), layout, Overhead())


@pytest.mark.parametrize(
    ("model", "gpu", "weights", "kv", "layout"),
    [
        pytest.param("meta-llama/Llama-3.1-70B", "h100-sxm", "fp8", "bf16", Layout(tp=4), id="dense-tp"),
        pytest.param("meta-llama/Llama-3.1-8B", "l4", "int4", "fp8", Layout(), id="one-gpu"),
        pytest.param("deepseek-ai/DeepSeek-V3", "h200-sxm", "fp8", "bf16", Layout(tp=8), id="mla"),
        pytest.param("deepseek-ai/DeepSeek-V3", "h200-sxm", "fp8", "bf16", Layout(dp=16, ep=16), id="copies"),
        pytest.param("deepseek-ai/DeepSeek-V3", "h200-sxm", "fp8", "bf16", Layout(tp=8, dcp=8), id="shared-tokens"),
        pytest.param("Qwen/Qwen3-235B-A22B", "h100-sxm", "fp8", "fp8", Layout(tp=4, pp=2), id="stages"),
        pytest.param("google/gemma-3-27b-it", "h100-sxm", "bf16", "bf16", Layout(tp=2), id="windows"),
        pytest.param("Qwen/Qwen3-8B", "h100-sxm", "Q4_K_M", "bf16", Layout(tp=2), id="gguf"),
        pytest.param("zai-org/GLM-5.1", "h200-sxm", "fp8", "bf16", Layout(tp=8, pp=2), id="indexer"),
    ],
)
def test_memory_as_arrays_is_that_of_the_report(model, gpu, weights, kv, layout):
    precision, context = Precision(weights=weights, kv=kv), 8000
    found = Search(architecture(model), ENGINES["vllm"](), Needs(prompt=7000, output=1000), [gpus()[gpu]], [precision])
    serving = Serving.of(architecture(model), found.engine, precision, layout, Overhead())
    allocation = serving.on(gpus()[gpu], Workload(context=context))
    shard = found.shards.shard(layout, (0,))
    stages = [stage.weights + stage.vision for stage in serving.laid_out.stages]
    assert shard.stage_bytes[:, 0] == pytest.approx(stages, abs=1)
    room, started = found.room, found.room.on(layout)
    free, usable = room.free(started, shard, states_cache=False)[0][:, 0, 0], gpus()[gpu].usable_bytes
    assert free == pytest.approx(
        np.array([budget.cache for budget in allocation.room(MIDDLE).budgets]), abs=0.03 * usable
    )
    held = allocation.cache.required_bytes(0, 1, context)
    for_all, each, stated = room.sequence(started, shard, kv)[:, 0, 0]
    assert for_all + each == pytest.approx(held, rel=0.01)
    assert np.isinf(stated)


@pytest.mark.parametrize(
    ("model", "experts"),
    [  # bytes in 16 bits: layers, experts, matrices, hidden_size and moe_intermediate_size of config.json
        pytest.param("Qwen/Qwen3-30B-A3B", 48 * 128 * 3 * 2048 * 768 * 2, id="Qwen3-30B-A3B"),
        pytest.param("deepseek-ai/DeepSeek-V3", 58 * 256 * 3 * 7168 * 2048 * 2, id="DeepSeek-V3"),
    ],
)
@pytest.mark.parametrize(
    ("layout", "ranks"),
    [
        pytest.param(Layout(tp=2, dp=2), 4, id="a group of DP x TP ranks"),
        pytest.param(Layout(dp=4), 4, id="copies alone"),
        pytest.param(Layout(tp=2, dp=8, ep=4), 16, id="slices of spread experts"),
        pytest.param(Layout(dp=8, ep=8), 8, id="whole experts"),
    ],
)
def test_copies_of_the_attention_share_every_expert(model, experts, layout, ranks):
    """ "By default, expert layers form a tensor parallel group of size DP x TP"
    (docs.vllm.ai/en/latest/serving/data_parallel_deployment/); `FusedMoEParallelConfig.make` of vLLM's
    `fused_moe/config.py`, and `moe_tp_size` of SGLang's `distributed/parallel_state.py`."""
    needs, precision = Needs(prompt=7000, output=1000), Precision()
    found = Search(architecture(model), ENGINES["sglang"](), needs, [gpus()["h200-sxm"]], [precision])
    shard = found.shards.shard(layout, (0,))
    assert shard.demand.weights["experts_routed"] == experts / ranks
    # a row of an expert passes one slice of its three matrices, on each copy's ranks as often as there are slices
    routed = shard.demand.routing
    assert shard.demand.flops["experts_routed"] * routed.experts * layout.slices == experts
    assert routed.rows(1) == routed.top_k * layout.slices / layout.tp
    (stage,) = Serving.of(architecture(model), found.engine, precision, layout, Overhead()).laid_out.stages
    assert shard.stage_bytes == stage.weights + stage.vision


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize(
    ("model", "layout"),
    [
        pytest.param("Qwen/Qwen3-32B", Layout(pp=2), id="two stages"),
        pytest.param("deepseek-ai/DeepSeek-V3", Layout(tp=8, pp=2), id="uneven stages of ranks"),
        pytest.param("deepseek-ai/DeepSeek-V3", Layout(dp=8, ep=8), id="copies"),
    ],
)
def test_a_plan_times_a_layout_as_the_report_does(engine, model, layout):
    gpu, precision = gpus()["h200-sxm"], Precision()
    found = Search(architecture(model), ENGINES[engine](), Needs(prompt=2000, output=500), [gpu], [precision])
    by_stage = speed_on(gpu, Serving.of(architecture(model), found.engine, precision, layout, Overhead()))
    together = replace(by_stage, demands=(found.shards.shard(layout, (0,)).demand,))
    for end in ("low", "expected", "high"):
        assert together.step(16, 2250, end) == pytest.approx(by_stage.step(16, 2250, end), rel=1e-12)
        assert together.prompt(1, 2000, end) == pytest.approx(by_stage.prompt(1, 2000, end), rel=1e-12)


@pytest.mark.parametrize(
    ("flags", "ranks"),
    [
        pytest.param({}, [16], id="divided"),
        pytest.param({"moe_dense_tp_size": 1, "moe_a2a_backend": "deepep"}, [16, 32, 64], id="whole"),
    ],
)
def test_sglang_s_flags_decide_which_layouts_a_plan_has(flags, ranks):
    """DeepSeek-V3's dense layers and shared experts are no whole tiles of fp8 on 32 ranks unless flags leave them
    whole: a plan weighs and times such ranks as the report does."""
    model, gpu, needs = architecture("deepseek-ai/DeepSeek-V3"), gpus()["h200-sxm"], Needs(prompt=2000, output=500)
    engine = SGLang(SGLangOptions(**flags, mem_fraction_static=0.8))
    found = Search(model, engine, needs, [gpu], [Precision(weights="fp8")])
    rows = {found.rows.layout_of(row): row for row in range(found.rows.form.size)}
    assert [layout.dp for layout in rows if layout.dp >= 16 and layout.tp == 1] == ranks
    for layout in (Layout(dp=degree, ep=degree) for degree in ranks):
        row = found.rows.selected(np.array([rows[layout]]))
        serving = Serving.of(model, found.engine, Precision(weights="fp8"), layout, Overhead())
        weighed = serving.laid_out.stages[0].weights
        assert row.shards[row.shard[0]].stage_bytes[0, 0] == pytest.approx(weighed, abs=1)
        by_report = speed_on(gpu, serving).step(256, 2250, "expected")
        assert found.speed(row).step(256, 2250, "expected").item() == pytest.approx(by_report, rel=1e-12)


def test_a_plan_weighs_and_times_vllm_s_whole_shared_experts_as_the_report_does():
    """Where copies of several ranks spread experts, GLM-5.1's dense feed-forwards are whole too, on one stage
    (vLLM 0.33 `models/deepseek_v32/nvidia/model.py`)."""
    config = models()["zai-org/GLM-5.1"].config
    model, gpu, needs = Architecture.from_config(config), gpus()["h200-sxm"], Needs(prompt=2000, output=500)
    precision = Precision.of(config)
    found = Search(model, VLLM(), needs, [gpu], [precision])
    layouts = (Layout(tp=8, dp=2, ep=16), Layout(tp=4, dp=2, pp=2, ep=8), Layout(tp=8, dp=2), Layout(tp=8, ep=8))
    for layout in layouts:
        shard, serving = (
            found.shards.shard(layout, (0,)),
            Serving.of(model, found.engine, precision, layout, Overhead()),
        )
        assert shard.stage_bytes[:, 0] == pytest.approx([stage.weights for stage in serving.laid_out.stages], abs=1)
        by_report = speed_on(gpu, serving)
        together = replace(by_report, demands=(shard.demand,))
        assert together.step(256, 2250, "expected") == pytest.approx(by_report.step(256, 2250, "expected"), rel=1e-12)


def test_plans_meet_their_targets_or_say_so():
    found = search(needs=Needs(users=16, prompt=2000, output=200, tpot_ms=40, ttft_ms=1500))
    plans = found.plans()
    assert plans[0].meets
    for plan in plans:
        assert plan.meets == (plan.tpot_ms <= 40 and plan.ttft_ms <= 1500 and plan.gpus <= 64)
        assert plan.replicas * plan.batch >= 16
        assert plan.batch <= plan.capacity
        assert plan.gpus == plan.replicas * plan.layout.gpus


def plans_of_all(found):
    """Plans of every layout in every format on every GPU, best first, each row with what it holds and with as many more
    replicas as its requests need to be in time."""
    rows = found.rows
    while True:
        candidates = found.candidates(rows)
        plans, corrected = zip(*(found.plan(candidates, row) for row in range(rows.form.size)), strict=True)
        more = {}
        if found.needs.by_chance and not any(corrected):
            plans = [plan.with_waits(found.waits(candidates, row, plan)) for row, plan in enumerate(plans)]
            in_time = [found.needs.in_time(plan.ttft_ms, plan.tpot_ms) for plan in plans]
            late = [row for row, plan in enumerate(plans) if plan.meets and not in_time[row]]
            more = {rows.number[row]: plans[row].replicas + 1 for row in late}
            meets = [is_in_time and plan.gpus <= found.most for plan, is_in_time in zip(plans, in_time, strict=True)]
            plans = [plan.model_copy(update={"meets": each}) for plan, each in zip(plans, meets, strict=True)]
        if not any(corrected) and not more:
            break
        rows = rows.corrected({number: room for fewer in corrected for number, room in fewer.items()}, more)
    keys = found.order(found.price[rows.kind], candidates.gpus, candidates.tpot, candidates.meets)
    return [plans[row] for row in np.lexsort(keys[::-1]).tolist()]


@pytest.mark.parametrize(
    "needs",
    [
        pytest.param(Needs(users=48, prompt=2000, output=200), id="users"),
        pytest.param(Needs(users=48, prompt=2000, output=200, tpot_ms=20, ttft_ms=600), id="targets"),
        pytest.param(Needs(requests_per_s=8, prompt=2000, output=200, tpot_ms=30), id="requests"),
        pytest.param(Needs(users=4000, prompt=2000, output=200), id="out-of-reach"),
    ],
)
def test_layouts_that_are_not_timed_are_none_of_the_best(needs):
    found = search(needs=needs)
    best = {}
    for plan in plans_of_all(found):
        best.setdefault((plan.gpu, plan.weights), plan)
    expected = sorted(best.values(), key=found.place) if needs.by_chance else list(best.values())
    assert found.plans(10**6) == expected
    assert found.contenders(found.rows).rows.form.size < found.rows.form.size


def test_the_batch_is_the_largest_in_time():
    needs = Needs(users=256, prompt=2000, output=200, tpot_ms=40)
    found = search(needs=needs)
    batches = found.batches(found.rows, 256)
    server = found.server(found.rows)
    in_time = 1000 * server.token(batches) <= 40
    largest = found.largest_batch(server, found.rows)
    assert largest.tolist() == np.where(in_time, batches, batches[:, :1]).max(axis=1).tolist()
    assert len(set(largest)) > 3


def test_the_cheapest_comes_first():
    plans = [plan for plan in search(kinds=("h100-sxm", "h200-sxm", "b200")).plans() if plan.meets]
    assert [plan.usd_per_hour for plan in plans] == sorted(plan.usd_per_hour for plan in plans)


def test_a_stated_price_decides():
    dear = search(cluster=Cluster(prices={"b200": 100.0, "h100-sxm": 1.0}), kinds=("h100-sxm", "b200")).plans(1)
    cheap = search(cluster=Cluster(prices={"b200": 0.01, "h100-sxm": 1.0}), kinds=("h100-sxm", "b200")).plans(1)
    assert (dear[0].gpu, cheap[0].gpu) == ("h100-sxm", "b200")


def test_a_plan_is_timed_as_a_step_with_its_prompts_is():
    found = search(kinds=("h100-sxm",), formats=("fp8",))
    plan = found.plans(1)[0]
    alone = found.candidates(found.fitting([(plan.layout, (0,))]))
    assert plan.tpot_ms == pytest.approx(float(alone.tpot[0]))
    serving = Serving.of(
        architecture("meta-llama/Llama-3.1-70B"), ENGINES["vllm"](), Precision(weights="fp8"), plan.layout, Overhead()
    )
    step = time_report(
        serving, gpus()["h100-sxm"], Workload(batch=plan.batch, context=2200, generated=200)
    ).decode.step_ms
    assert step.expected < plan.tpot_ms < 2 * step.high


@pytest.mark.parametrize("batch", [1, 2, 96])
def test_a_pipeline_is_timed_as_on_weigh(batch):
    """80 layers in three stages, which wait for the longest."""
    found, layout = search(kinds=("h100-sxm",), formats=("fp8",)), Layout(pp=3)
    server = found.server(found.fitting([(layout, (0,))]))
    step = sum(part.seconds for part in server.decode_parts(np.array([[batch]])))
    model, engine = architecture("meta-llama/Llama-3.1-70B"), ENGINES["vllm"]()
    serving = Serving.of(model, engine, Precision(weights="fp8"), layout, Overhead())
    weighed = time_report(serving, gpus()["h100-sxm"], Workload(batch=batch, context=2200, generated=200))
    assert 1000 * step.item() == pytest.approx(weighed.decode.step_ms.expected, rel=1e-4)


def test_requests_a_second_are_served():
    plan = search(needs=Needs(requests_per_s=4, prompt=2000, output=200)).plans(1)[0]
    assert plan.tokens_per_s >= 4 * 200 * 0.98


@pytest.mark.parametrize(
    "needs",
    [
        pytest.param(Needs(requests_per_s=4, prompt=2000, output=200), id="stream"),
        pytest.param(Needs(users=300, think_s=60, prompt=2000, output=200), id="users who think"),
    ],
)
def test_requests_that_come_by_chance_wait(needs):
    """Users send as many requests as there are in the time of a thought and an answer (Little's law)."""
    plan = search(needs=needs).plans(1)[0]
    waits = plan.waits
    assert waits is not None
    assert waits.ttft_ms.p50 < waits.ttft_ms.p95
    assert waits.tpot_ms.p50 <= waits.tpot_ms.p95
    assert waits.ttft_ms.p50 * 0.8 < plan.ttft_ms < waits.ttft_ms.p95
    answer = (waits.ttft_ms.p50 + 200 * waits.tpot_ms.p50) / 1000
    expected = needs.requests_per_s or needs.users / (needs.think_s + answer)
    assert waits.utilization * waits.most_requests_per_s == pytest.approx(expected, rel=0.02)
    assert search().plans(1)[0].waits is None


@pytest.mark.slow
def test_waits_are_computed_of_the_plans_that_are_given_alone(monkeypatch):
    """Rows that hold fewer sequences than they say are corrected: 297 plans were timed to the end for 100."""
    timed, compute = [], Arrivals.waits
    monkeypatch.setattr(Arrivals, "waits", lambda self, replicas: timed.append(replicas) or compute(self, replicas))
    given = search("Qwen/Qwen3.6-35B-A3B", Needs(requests_per_s=1e6, prompt=8187, output=5), tuple(gpus())).plans()
    assert [plan.waits is None for plan in given] == [False] * len(timed)


def test_users_who_do_not_think_are_those_who_always_wait():
    """An infinitely short thought is none: as many requests run as there are users."""
    always, hardly = Needs(users=16, prompt=2000, output=200), Needs(users=16, think_s=0.001, prompt=2000, output=200)
    (first, *_), (second, *_) = (search(needs=needs, kinds=("h100-sxm",)).plans(1) for needs in (always, hardly))
    assert (first.gpus, first.batch) == (second.gpus, second.batch)
    assert second.waits is not None
    assert second.waits.tpot_ms.p50 == pytest.approx(first.tpot_ms, rel=0.02)


@pytest.mark.parametrize("users", [1, 4])
def test_answers_of_one_token_wait_for_all_others(users):
    """Every prompt shares its step with those of all others: 95 of 100 first tokens take what one takes."""
    found = plan_report(
        models()["Qwen/Qwen3-8B"].config, Needs(users=users, prompt=128, output=1), gpus=[gpus()["h100-sxm"]]
    )
    assert found.ttft_p95_ms == found.plans[0].ttft_ms


@pytest.mark.parametrize("per_s", [0.05, 0.5, 2.0])
def test_requests_by_chance_yield_the_tokens_that_are_asked_for(per_s):
    """A server that is idle most of the time makes no more, and its hour is paid for by those."""
    (first, *_) = search(needs=Needs(requests_per_s=per_s, prompt=2000, output=200), kinds=("h100-sxm",)).plans(1)
    assert first.tokens_per_s == pytest.approx(200 * per_s)
    assert first.usd_per_million_tokens == pytest.approx(first.usd_per_hour / 3600 / (200 * per_s) * 1e6)


def test_targets_hold_with_the_wait_for_a_place():
    """A cache with room for two long prompts lets a third wait for seconds, which is of its time to first token."""
    asked = {"requests_per_s": 0.1, "prompt": 7680, "output": 512}
    without, within = (
        search(needs=Needs(**asked, ttft_ms=target), kinds=("h100-sxm",), formats=("bf16",)).plans(1)[0]
        for target in (None, 2000)
    )
    assert without.ttft_ms == without.waits.ttft_ms.mean > 2000
    assert within.meets
    assert within.ttft_ms == within.waits.ttft_ms.mean <= 2000
    assert within.gpus > without.gpus


@pytest.mark.parametrize("target", [{"tpot_ms": 12}, {"tpot_ms": 25, "ttft_ms": 300}])
def test_plans_of_requests_by_chance_meet_their_targets_or_say_so(target):
    """By the times that they show, in the order of these."""
    found = search(needs=Needs(requests_per_s=4, prompt=2000, output=200, **target))
    plans = found.plans()
    for plan in plans:
        assert plan.meets == (found.needs.in_time(plan.ttft_ms, plan.tpot_ms) and plan.gpus <= 64)
    assert [plan.meets for plan in plans] == sorted((plan.meets for plan in plans), reverse=True)


@pytest.mark.parametrize("users", [2, 4, 16, 64])
def test_most_first_tokens_take_no_less_than_the_average(users):
    """The mean of public runs contains their start, where all requests come at once."""
    found = plan_report(models()["openai/gpt-oss-120b"].config, Needs(users=users), gpus=[gpus()["h100-sxm"]])
    assert found.ttft_p95_ms >= found.plans[0].ttft_ms


def test_too_many_requests_are_a_sentence():
    found = search(needs=Needs(requests_per_s=500, prompt=2000, output=200), kinds=("h100-sxm",), most=8)
    plan = found.plans(1)[0]
    assert not plan.meets
    assert "8 × H100 SXM 80GB cannot keep up: most is" in str(cannot_keep_up(found, plan))
    few = search(needs=Needs(requests_per_s=1, prompt=2000, output=200), kinds=("h100-sxm",), most=8)
    assert cannot_keep_up(few, few.plans(1)[0]) is None


def test_who_thinks_is_counted():
    with pytest.raises(ValueError, match="say how many"):
        Needs(think_s=3)


def test_a_shared_prefix_is_not_computed_again():
    plain, shared = (
        search(needs=Needs(users=16, prompt=4000, output=200, prefix_share=s)).plans(1)[0] for s in (0.0, 0.9)
    )
    assert shared.ttft_ms < plain.ttft_ms
    assert shared.tpot_ms < plain.tpot_ms


OTHER = {
    "a GPU": {"gpus": [gpus()["l4"]]},
    "more users": {"needs": Needs(users=700, prompt=2000, output=200)},
    "longer prompts": {"needs": Needs(users=16, prompt=4000, output=200)},
    "a format": {"precisions": [Precision(weights="fp8"), Precision(weights="fp8", kv="fp8")]},
    "a node": {"cluster": Cluster(gpus_per_node=4)},
}


@pytest.mark.parametrize("what", OTHER)
@pytest.mark.parametrize("model", ["meta-llama/Llama-3.1-8B", "Qwen/Qwen3-Next-80B-A3B-Instruct"])
def test_a_varied_search_finds_what_it_finds_by_itself(model, what):
    """Rows, rooms and budgets that it takes from the search before change nothing."""
    before = search(model)
    before.plans()
    varied = before.with_changes(**OTHER[what])
    alone = Search(
        varied.architecture,
        before.requested_engine,
        varied.needs,
        varied.gpus,
        varied.precisions,
        cluster=varied.cluster,
    )
    assert varied.plans() == alone.plans()
    assert frontier(varied) == frontier(alone)


def test_sensitivity_says_what_less_would_take():
    found = search(needs=Needs(users=64, prompt=8000, output=200, tpot_ms=40), formats=("bf16",))
    rows = {str(row.what): row for row in sensitivity(found)}
    best = found.plans(1)[0]
    less = rows["Prompts of 4,000 instead of 8,000 tokens"]
    more = rows["128 instead of 64 concurrent users"]
    assert less.usd_per_hour <= best.usd_per_hour <= more.usd_per_hour
    assert f"{more.gpus} × " in str(more.sentence)
    fp8 = search(needs=found.needs, formats=("bf16", "fp8")).plans(1)[0]
    assert rows["Weights in fp8 too"].usd_per_hour == fp8.usd_per_hour


def test_a_gpu_that_costs_nothing_comes_first():
    assert search(cluster=Cluster(prices={"l4": 0.0})).plans(1)[0].gpu == "l4"


def test_nothing_fits_is_no_error():
    assert search("deepseek-ai/DeepSeek-V3", kinds=("l4",), most=1).plans() == []


def test_gpus_that_the_engine_does_not_run_on_are_a_sentence():
    with pytest.raises(ConfigError, match="vLLM runs on none of these: Tesla P40"):
        search(kinds=("p40",))


def test_one_load_is_asked_for():
    with pytest.raises(ValueError, match="give one of them"):
        Needs(users=1, requests_per_s=1)


def test_prices_are_dated_rows_of_gpus_that_are_known():
    for price in prices():
        assert price.gpu in gpus()
        assert price.source.startswith("https://")
        assert price.read_on.year >= 2025
    assert price_of("h100-sxm") == 3.99
    assert price_of("p40") is None


@pytest.mark.parametrize(
    ("engine", "name"),
    [pytest.param("vllm", name, marks=mark(name)) for name in generating()]
    + [
        pytest.param(engine, name, marks=[pytest.mark.sweep] * ((number - turn) % 3 != 0))
        for turn, engine in enumerate(("sglang", "tensorrt-llm", "llamacpp"))
        for number, name in enumerate(SOME)
    ],
)
def test_a_cell_of_the_map_says_what_weigh_says(engine, name):
    """The reports' own verdicts and times, in two formats on three GPUs, one of them of 16 GB. In every run each model
    has vLLM and one other engine in turn."""
    kinds = [gpus()[kind] for kind in ("v100-sxm2-16gb", "rtx-4090", "h100-sxm")]
    precisions = [Precision(weights=form) for form in (("Q4_K_M",) if engine == "llamacpp" else ("bf16", "fp8"))]
    formats = in_formats(architecture(name), ENGINES[engine](), precisions)
    found = fitting(((gpu.id, formats, gpu) for gpu in kinds), 4096)
    for column, precision in enumerate(precisions):
        if formats[precision.weights] is None:
            assert not found.max_context[:, column].any()
            continue
        asked = {"engine": ENGINES[engine](), "precision": precision, "layout": found.layouts[0][column]}
        told = report(models()[name].config, workload=Workload(), gpus=kinds, **asked)
        most = architecture(name).max_positions or MOST_TOKENS
        for row, verdict in enumerate(told.verdicts):
            assert found.max_context[row, column] == (most if verdict.max_context is None else verdict.max_context)
            rate = found.tokens_per_s[row, column]
            if verdict.max_context == 0:
                assert rate == 0
            elif name in SOME:
                seen = min(4096, verdict.max_context or 4096)
                serving = Serving.of(
                    architecture(name), ENGINES[engine](), precision, found.layouts[0][column], Overhead()
                )
                assert rate == reply(serving, kinds[row], Workload(context=seen)).tokens_per_s_per_user.expected


def test_what_llamacpp_does_not_read_is_on_no_map():
    formats = in_formats(architecture("google/recurrentgemma-2b"), ENGINES["llamacpp"](), [Precision()])
    found = fitting([("rtx-4090", formats, gpus()["rtx-4090"])])
    assert found.layouts == ((None,),)
    assert found.max_context[0, 0] == 0


def test_on_the_frontier_no_point_is_better_in_both():
    found = search()
    points = frontier(found)
    users = [point.tokens_per_s_per_user for point in points]
    gpus_ = [point.tokens_per_s_per_gpu for point in points]
    assert len(points) > 5
    assert users == sorted(users, reverse=True)
    assert gpus_ == sorted(gpus_)
    pairs = list(zip(users, gpus_, strict=True))
    tried = [
        plan for plan in plans_of_all(found) if plan.batch in [b * plan.layout.dp * plan.layout.pp for b in BATCHES]
    ]
    assert len(tried) > 5
    for plan in tried:
        most = plan.tokens_per_s_per_gpu * (1 - 1e-9)
        assert any(user >= plan.tokens_per_s_per_user * (1 - 1e-9) and gpu >= most for user, gpu in pairs)


def test_a_point_of_the_frontier_is_what_the_layout_does():
    found = search(kinds=("h100-sxm",), formats=("fp8",))
    point = frontier(found)[-1]
    ranked = plans_of_all(found)
    assert max(plan.tokens_per_s_per_gpu for plan in ranked) <= point.tokens_per_s_per_gpu * (1 + 1e-9)
    server = found.server(found.fitting([(point.layout, (0,))]))
    assert point.tokens_per_s_per_user == pytest.approx(1 / server.token(point.batch).item(), rel=1e-9)
    rate = point.batch / server.step(point.batch).item()
    assert point.tokens_per_s_per_gpu == pytest.approx(rate / point.layout.gpus, rel=1e-9)


def test_the_report_starts_its_first_plan():
    needs = Needs(users=16, prompt=2000, output=200)
    found = plan_report(models()["meta-llama/Llama-3.1-70B"].config, needs, gpus=[gpus()["h100-sxm"]], limit=1)
    best = found.plans[0].layout
    assert found.launch is not None
    assert found.launch.words[-4:] == ("--max-model-len", "2200", "--max-num-seqs", "16")
    assert found.plans[0].flags == ("--max-num-seqs 16",)
    flags = {"--tensor-parallel-size": best.tp, "--pipeline-parallel-size": best.pp}
    for flag, size in flags.items():
        assert size == 1 or found.launch.words[found.launch.words.index(flag) + 1] == str(size)


@pytest.mark.parametrize("model", ["Qwen/Qwen3-8B", "openai/gpt-oss-120b"])
def test_a_plan_depends_on_no_other_gpu_or_format_of_the_search(model):
    needs = Needs(users=8, prompt=12_000, output=400)
    together = search(model, needs, ("t4", "h100-sxm", "h200-sxm", "l40s"), ("bf16", "fp8")).plans()
    for plan in together:
        (alone,) = search(model, needs, (plan.gpu,), (plan.weights,)).plans()
        assert alone == plan


def test_a_corrected_row_has_its_gpu_and_format_looked_at_anew_alone(monkeypatch):
    """Three rounds correct a row each of gpt-oss: the second look at 49,360 rows was 0.1 s each."""
    looked, contenders = [], Search.contenders

    def look(found, rows):
        looked.append(len(set(found.gpu_and_format(rows).tolist())))
        return contenders(found, rows)

    monkeypatch.setattr(Search, "contenders", look)
    formats = ("bf16", "fp8", "int8", "int4", "nvfp4", "mxfp4")
    plans = search("openai/gpt-oss-120b", Needs(users=32), tuple(gpus()), formats).plans()
    first, *others = looked
    assert first > 500
    assert others
    assert max(others) < 10
    assert all(plan.capacity >= plan.batch for plan in plans)


def test_a_format_that_is_asked_for_twice_is_tried_once():
    plans = search(formats=("fp8", "bf16", "fp8")).plans()
    assert len(plans) == len({(plan.gpu, plan.weights) for plan in plans})


@pytest.mark.parametrize("engine", ["transformers", "llamacpp"])
def test_an_engine_that_no_search_knows_is_a_sentence(engine):
    with pytest.raises(ConfigError, match="sets no memory aside") as caught:
        plan_report(models()["Qwen/Qwen3-8B"].config, Needs(), engine=ENGINES[engine]())
    assert (caught.value.field, caught.value.nearest) == ("engine", ("vllm", "sglang", "tensorrt-llm"))


@pytest.mark.parametrize(
    "model", ["google/recurrentgemma-2b", "Zyphra/Zamba-7B-v1", "mosaicml/mpt-7b", "ibm-ai-platform/Bamba-9B-v1"]
)
def test_a_family_that_the_engine_does_not_serve_has_no_plan(model):
    kinds = ("h100-sxm", "a100-sxm-80gb", "rtx-4090", "l40s")
    found = search(model, Needs(users=4, prompt=7680, output=512), kinds, ("bf16",))
    allocations = [
        Serving.of(found.architecture, found.engine, found.precisions[0], Layout(), Overhead()).on(gpu, Workload())
        for gpu in found.gpus
    ]
    assert all(allocation.refusal is not None for allocation in allocations)
    assert found.plans() == []


def test_what_does_not_run_is_no_plan():
    """docs.vllm.ai, Quantization: FP8 and AWQ from compute capability 7.5 on, GPTQ from 7.0; a V100 has 7.0."""
    found = search("Qwen/Qwen3-8B", Needs(), ("v100-sxm2-32gb",), ("bf16", "fp8", "int4", "int4-gptq"))
    assert {plan.weights for plan in found.plans()} == {"bf16", "int4-gptq"}


@pytest.mark.parametrize(
    "model", ["Qwen/Qwen3-30B-A3B", "Qwen/Qwen3-8B", "openai/gpt-oss-20b", "google/gemma-3-27b-it"]
)
@pytest.mark.parametrize("gpu", ["a100-sxm-80gb", "h100-sxm"])
def test_one_user_waits_for_no_other_prompt(model, gpu):
    """With one user a step of the plan is the decode step that Weigh shows."""
    needs = Needs(users=1, prompt=16_000, output=512)
    found = search(model, needs, (gpu,), ("bf16",))
    plan = found.plans(1)[0]
    serving = Serving.of(found.architecture, found.engine, found.precisions[0], plan.layout, Overhead())
    told = reply(serving, gpus()[gpu], Workload(context=16_512, generated=512))
    assert plan.tokens_per_s_per_user == pytest.approx(told.tokens_per_s_per_user.expected, rel=0.01)
    assert plan.ttft_ms == pytest.approx(told.ttft_ms.expected, rel=0.01)
    assert plan.tokens_per_s == pytest.approx(512_000 / (plan.ttft_ms + 512 * plan.tpot_ms), rel=0.2)


def test_a_plan_has_the_flags_that_it_needs():
    """gpt-oss-120b and 1,024 sequences do not go on one H100 together; hybrids need a state for each sequence."""
    needs = Needs(users=4, prompt=7680, output=512)
    found = search("openai/gpt-oss-120b", needs, ("h100-sxm",), ("mxfp4",))
    plan = found.plans(1)[0]
    assert (plan.gpus, plan.flags) == (1, ("--max-num-seqs 16",))
    told = {"engine": found.engine, "layout": plan.layout, "gpus": [gpus()["h100-sxm"]]}
    asked = Workload(batch=plan.batch, context=needs.context, generated=needs.output)
    (verdict,) = report(models()["openai/gpt-oss-120b"].config, workload=asked, **told).verdicts
    assert (verdict.verdict, verdict.max_batch) == ("fits", plan.capacity)
