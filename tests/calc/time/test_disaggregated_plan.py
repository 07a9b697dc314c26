"""Plans whose prefill and decode run on separate GPUs."""

import pytest

from calc import Architecture, ConfigError, Precision
from calc.hardware.gpus import gpus
from calc.hardware.overhead import Overhead
from calc.serving.engines import ENGINES
from calc.serving.memory import Serving
from calc.serving.verdict import max_batch
from calc.serving.workload import Workload
from calc.time.disaggregated import disaggregated, ranked_plans
from calc.time.plan import PLANNED, Needs, Plan, Search
from calc.time.plan_report import plan_range, plan_report
from presets import models

NEEDS = Needs(users=128, prompt=8192, output=512, tpot_ms=20, ttft_ms=2000, prefill_decode="apart")
KINDS = ("h100-sxm", "h200-sxm", "b200")


def search(model="Qwen/Qwen3-32B", needs=NEEDS, engine="vllm", kinds=KINDS, **more) -> Search:
    architecture = Architecture.from_config(models()[model].config)
    precisions = [Precision(weights="fp8"), Precision()]
    return Search(architecture, ENGINES[engine](), needs, [gpus()[kind] for kind in kinds], precisions, **more)


def varied(**changes) -> Needs:
    return NEEDS.model_copy(update=changes)


def cost(plan: Plan) -> tuple[bool, float]:
    return not plan.meets, plan.usd_per_hour or 0.0


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("model", ["Qwen/Qwen3-32B", "deepseek-ai/DeepSeek-V3", "Qwen/Qwen3-Next-80B-A3B-Instruct"])
def test_prefill_keeps_up_and_both_sides_hold_what_weigh_says(model, engine):
    asked = search(model, engine=engine)
    plans = ranked_plans(asked)
    assert plans
    for plan in plans:
        assert plan.prefill is not None
        first, second = plan.prefill.layout, plan.layout
        assert plan.gpus == plan.prefill.workers * first.gpus + plan.replicas * second.gpus
        assert plan.batch * plan.replicas >= 128 > plan.batch * (plan.replicas - 1)
        (precision,) = (one for one in asked.precisions if one.weights == plan.weights)
        for layout, sequences in ((first, first.dp), (second, plan.batch)):
            serving = Serving.of(asked.architecture, asked.engine, precision, layout, Overhead())
            work = Workload(batch=sequences, context=8192 + 512, generated=512)
            assert (max_batch(serving.on(gpus()[plan.gpu], work), layout.dp) or 0) >= sequences
        both = disaggregated(asked, plan)
        answers_per_s = plan.tokens_per_s / 512
        assert answers_per_s <= 1.001 * both.prompts_per_s.item()
        if plan.meets:
            assert plan.ttft_ms <= 2000
            assert plan.tpot_ms <= 20
            assert plan.gpus <= 64


def test_a_figure_of_all_pairs_at_once_is_that_of_the_plan_alone():
    asked = search("deepseek-ai/DeepSeek-V3", varied(tpot_ms=None))
    for plan in ranked_plans(asked):
        found = plan_range(asked, plan)
        assert found.ttft_ms.expected == pytest.approx(plan.ttft_ms)
        assert found.tpot_ms.expected == pytest.approx(plan.tpot_ms)
        assert found.tokens_per_s.expected == pytest.approx(plan.tokens_per_s)
        assert found.ttft_ms.low < plan.ttft_ms < found.ttft_ms.high


@pytest.mark.parametrize(
    "load", [{"users": None, "requests_per_s": 8.0}, {"users": 500, "think_s": 30.0}], ids=["stream", "thinking"]
)
def test_requests_that_come_at_random_leave_workers_room(load):
    asked = search(needs=varied(**load))
    plans = ranked_plans(asked)
    assert sum(plan.meets for plan in plans) > len(plans) / 2
    for plan in plans:
        found = plan_range(asked, plan)
        assert found.ttft_ms.expected == pytest.approx(plan.ttft_ms)
        assert found.tpot_ms.expected == pytest.approx(plan.tpot_ms)
        assert plan.waits is not None
        assert plan.waits.ttft_ms.p50 < plan.waits.ttft_ms.p95
        if plan.meets:
            assert plan.waits.utilization < 1
            assert plan.batch <= plan.capacity


def test_where_nothing_fits_there_is_no_plan():
    assert ranked_plans(search("deepseek-ai/DeepSeek-V3", kinds=("t4",), most=2)) == []


def test_either_is_the_better_of_both():
    together, separate, either = (
        ranked_plans(search(needs=varied(prefill_decode=word))) for word in ("together", "apart", "either")
    )
    assert all(plan.prefill is None for plan in together)
    assert cost(either[0]) == min(cost(together[0]), cost(separate[0]))
    assert sorted(map(cost, either)) == list(map(cost, either))
    assert {plan.prefill is None for plan in either} == {True, False}


def test_states_pass_between_equal_ranks_only():
    """vLLM docs/features/nixl_connector_compatibility.md, note 5; the cache of attention passes between others too."""
    hybrid = ranked_plans(search("Qwen/Qwen3-Next-80B-A3B-Instruct"))
    assert all(plan.prefill and plan.prefill.layout.tp == plan.layout.tp for plan in hybrid)
    assert any(plan.prefill and plan.prefill.layout.tp != plan.layout.tp for plan in ranked_plans(search()))


@pytest.mark.parametrize(
    ("engine", "most", "words", "nearest"),
    [
        pytest.param("vllm", 1, "at least two", (2,), id="one GPU"),
        pytest.param("llamacpp", 64, "No plan for llama.cpp", PLANNED, id="llamacpp"),
        pytest.param("transformers", 64, "No plan for transformers", PLANNED, id="transformers"),
    ],
)
def test_what_cannot_be_separated_is_said(engine, most, words, nearest):
    with pytest.raises(ConfigError, match=words) as caught:
        ranked_plans(search(engine=engine, most=most))
    assert caught.value.nearest == nearest


@pytest.mark.parametrize(
    ("engine", "flags", "router"),
    [
        # docs/features/nixl_connector_usage.md; README of vllm-project/router
        pytest.param(
            "vllm",
            {
                "prefill": """--kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"kv_producer"}'""",
                "decode": """--kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"kv_consumer"}'""",
            },
            ("vllm-router --vllm-pd-disaggregation", "http://{}:8000"),
            id="vllm",
        ),
        # docs/advanced_features/pd_disaggregation.md
        pytest.param(
            "sglang",
            {
                "prefill": "--disaggregation-mode prefill --disaggregation-transfer-backend nixl",
                "decode": "--disaggregation-mode decode --disaggregation-transfer-backend nixl",
            },
            ("python -m sglang_router.launch_router --pd-disaggregation", "http://{}:30000"),
            id="sglang",
        ),
    ],
)
def test_both_sides_and_their_router_are_started(engine, flags, router):
    config = models()["Qwen/Qwen3-32B"].config
    found = plan_report(config, NEEDS, model="Qwen/Qwen3-32B", engine=ENGINES[engine](), gpus=[gpus()["h100-sxm"]])
    first, (plan, *_) = found.separate, found.plans
    assert first is not None
    assert plan.prefill is not None
    for side, words in flags.items():
        assert words in getattr(first, side).text.replace(" \\\n ", "")
    head, address = router
    text = first.router.text.replace(" \\\n ", "")
    assert text.startswith(head)
    for side, count in (("prefill", plan.prefill.workers), ("decode", plan.replicas)):
        assert [f"--{side} {address.format(f'{side}-{n}')}" in text for n in (1, count, count + 1)] == [
            True,
            True,
            False,
        ]


def test_sglang_separates_no_servers_without_their_encoder():
    """ValueError: "--language-model-only is incompatible with --disaggregation-mode prefill/decode" (SGLang 0.5.23,
    `arg_groups/model_hook.py: handle_language_model_only`)."""
    asked = search(engine="sglang")
    asked.engine = asked.engine.with_options(language_model_only=True)
    with pytest.raises(ConfigError, match="language_model_only") as caught:
        ranked_plans(asked)
    assert caught.value.field == "language_model_only"
