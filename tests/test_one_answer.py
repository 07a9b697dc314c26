"""One answer whatever page, door or language asks: drawn from the engines' own tables of options, and laid next to each
other to the last digit. A few examples in every run, hundreds by night."""

import io
import json
import re
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout
from contextvars import copy_context
from functools import cache
from urllib.parse import urlencode

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from calc import ConfigError, Layout, Workload, report
from calc.formats import native
from calc.hardware import find_gpu
from calc.options import options
from calc.serving.engines import ENGINES
from calc.serving.levers import levers
from calc.serving.shared_gpus import HUNDREDTHS, Server, share_gpus
from calc.serving.verdict import MOST_BATCH
from calc.time.plan import PLANNED, Needs
from cli import command, fits, main
from cli.options import flag
from pages.api import api
from pages.parts import words
from pages.parts.outputs import cards, findings
from pages.parts.outputs.preview import headline
from pages.parts.state import session
from pages.parts.state.planned import planned, weigh
from pages.parts.state.published import published
from pages.parts.state.query import PLAN, WEIGH, decode, encode
from pages.parts.state.scenario import PlanChoice, Scenario
from pages.parts.state.weighed import weighed
from presets import gpus, models
from tests.drawn import flags, served
from tests.structures import architectures, generating

CLIENT = TestClient(api())
NUMBERS = re.compile(r"\d[\d,.]*\d|\d")
TINY = 64
"""Tokens of a pass below which the sum over a prompt's passes is of too many to be equal to the last digit."""


def drawn(few, many, *strategies):
    """Decorator of a check of one drawn question: a test of a few, and one of many by night."""

    def decorate(check):
        @pytest.mark.slow
        @pytest.mark.parametrize("draws", [few, pytest.param(many, marks=pytest.mark.sweep)])
        def test(draws):
            copy_context().run(without_session, settings(max_examples=draws)(given(*strategies)(check)))

        return test

    return decorate


def without_session(check):
    """Run a check as programs ask: nothing is remembered. What it sets of languages and sessions is its context's."""
    session.PROGRAM.set(session.Program({}))
    check()


def decoded(params, page):
    return decode(params, page, Scenario(), lambda source: published(source).settings or {})


def words_of(fields, usual):
    """Fields as the command line spells them, without those at their defaults."""
    for name, value in fields:
        if value == usual[name].default:
            continue
        if isinstance(value, bool):
            yield flag(name) if value else flag(name).replace("--", "--no-", 1)
        else:
            yield f"{flag(name)}={value}"


def command_line(scenario):
    """The question of a link as words of the command line."""
    choice = scenario.serving
    formats = {"weights": choice.weights, "kv": choice.kv}
    return [
        *(scenario.source.model, "--engine", choice.engine, "--gpu", *scenario.gpu),
        *(f"--{name}={form}" for name, form in formats.items() if form is not None),
        *words_of(choice.options, options(type(choice.options))),
    ]


def of_load(scenario):
    choice = scenario.serving
    return [*words_of(choice.workload, options(Workload)), *words_of(choice.layout, options(Layout))]


def printed(argv):
    """Status, output and error of a command."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = main(argv)
    return status, out.getvalue(), err.getvalue()


def in_each_language(show):
    """What is shown, in each language."""

    def shown(language):
        words.SPOKEN.set(language)
        return show()

    return [copy_context().run(shown, language) for language in words.LANGUAGES]


def numbers(text):
    return Counter(NUMBERS.findall(str(text)))


@drawn(4, 300, served())
def test_every_door_gives_the_same_report(scenario):
    """Link, address for programs, command line and page."""
    params, page = encode(scenario, WEIGH), weighed(scenario)
    assert decoded(params, WEIGH) == (scenario, [])
    status, out, err = printed([*command_line(scenario), *of_load(scenario), "--json"])
    response = CLIENT.get(f"/report?{urlencode(params)}")
    if page.error is not None:
        assert (status, err) == (2, f"{page.error}\n")
        assert (response.status_code, response.json()["errors"]) == (422, [str(page.error)])
        return
    assert (status, response.status_code, response.text) == (0, 200, out)
    assert json.loads(out) == page.report.model_dump(mode="json")
    status, lines, _ = printed(["fits", *command_line(scenario), *of_load(scenario)])
    verdicts = page.report.verdicts
    assert status == fits.worst(verdict.verdict for verdict in verdicts)
    assert lines.splitlines() == [fits.line(verdict) for verdict in verdicts]


VERBS = {
    "fits": ("fits on",),
    "fits with": ("fits, with flags, on",),
    "tight": ("is tight on",),
    "does not fit": ("does not fit", "fits on none of"),
    "does not run": ("does not run on", "fits on none of"),
}
"""Verbs of a title by the verdict on the GPU in focus."""


@drawn(4, 120, served())
def test_a_page_says_the_verdict_in_every_language(scenario):
    """Title, preview of the link, figures and cards."""
    page = weighed(scenario)
    titles = in_each_language(lambda: findings.title(page, WEIGH))
    for language, title in zip(words.LANGUAGES, titles, strict=True):
        assert headline(WEIGH, encode(scenario, WEIGH) | {"lang": language}) == title
    assume(page.error is None)
    focus, verdicts = page.focus, page.report.verdicts
    assert any(f" {verb} " in titles[0] for verb in VERBS[focus.verdict])
    fitting = sum(verdict.verdict == "fits" for verdict in verdicts)
    assert (focus.verdict == "fits") == (fitting > 0)
    for shown in (
        titles,
        in_each_language(lambda: findings.figures(page, WEIGH)),
        in_each_language(lambda: [cards.headroom(verdict) for verdict in verdicts]),
    ):
        assert len({frozenset(numbers(each).items()) for each in shown}) == 1
    if page.speed is not None:
        assert page.user_rate(focus) == pytest.approx(page.speed.tokens_per_s_per_user.expected, rel=1e-12)


@drawn(3, 200, served())
def test_a_verdict_keeps_its_promises(scenario):
    """The largest batch and context fit, and one more does not; its flags, its layout of the fewest GPUs and each lever
    lead to a model that fits, with the headroom that was promised."""
    page = weighed(scenario)
    assume(page.error is None)
    choice, stored = scenario.serving, page.model.published.stored
    engine, work, verdict = choice.started(), page.report.scenario.workload, page.report.verdicts[0]
    gpu = find_gpu(verdict.gpu)
    now = {"engine": engine, "precision": page.model.precision(choice), "layout": choice.layout, "workload": work}

    def asked(**changes):
        return report(models()[scenario.source.model].config, gpus=[gpu], **(now | changes)).verdicts[0]

    assert asked() == verdict
    fits_now = verdict.verdict == "fits"
    assert fits_now == (verdict.max_batch is None or verdict.max_batch >= work.batch)
    assert fits_now == (verdict.max_context_memory is None or verdict.max_context_memory >= work.context)
    if most := verdict.max_batch:
        assert asked(workload=work.model_copy(update={"batch": most})).verdict == "fits"
        assert most >= MOST_BATCH or asked(workload=work.model_copy(update={"batch": most + 1})).verdict != "fits"
    positions = page.architecture.learned_positions
    longest = verdict.max_context_memory or 0
    for tokens in (longest, longest + 1):
        if work.generated < tokens and longest and (positions is None or tokens <= positions):
            after = asked(workload=work.model_copy(update={"context": tokens}))
            assert (after.verdict == "fits") == (tokens == longest)
    if verdict.flags and ENGINES["tensorrt-llm"].name != engine.name:
        given = vars(command.parser().parse_args(["x", *(word for text in verdict.flags for word in text.split(" "))]))
        options_given = {name: given[name] for name in type(engine.options).model_fields if name in given}
        assert asked(engine=engine.with_options(**options_given)).verdict == "fits"
    if verdict.layout is not None:
        there = asked(layout=verdict.layout)
        assert (there.verdict, there.gpus, there.min_gpus) == ("fits", verdict.min_gpus, verdict.min_gpus)
    for lever in () if fits_now else levers(gpu, page.serving, work, stored):
        changes = dict(lever.changes)
        layout, workload = (
            part.model_copy(update={name: changes.pop(name) for name in type(part).model_fields if name in changes})
            for part in (choice.layout, work)
        )
        precision = engine.precision(stored, changes.pop("weights", choice.weights), changes.pop("kv", choice.kv))
        started = engine.with_options(**changes)
        after = asked(engine=started, precision=precision, layout=layout, workload=workload)
        assert (after.verdict, after.spare, after.gpus) == ("fits", lever.spare, lever.gpus)
        assert lever.saves == after.spare - verdict.spare


LOADS = st.builds(
    Needs,
    users=st.sampled_from([1, 4, 64]),
    prompt=st.sampled_from([768, 7680, 32_000]),
    output=st.just(256),
    tpot_ms=st.none() | st.sampled_from([10.0, 50.0]),
    prefix_share=st.sampled_from([0.0, 0.0, 0.5]),
)


@drawn(3, 100, served(PLANNED), LOADS)
def test_a_plan_is_what_weigh_says_of_it(scenario, needs):
    """By the command line, the address for programs and the page; and opened in Weigh, where it fits with the headroom
    and the sequences that it says, and answers one user as fast."""
    assume(scenario.source.model in generating())
    choice = scenario.serving.model_copy(update={"workload": Workload(), "layout": Layout()})
    update = {"serving": choice, "planning": PlanChoice(needs=needs, plan_gpus=scenario.gpu)}
    scenario = scenario.model_copy(update=update)
    params = encode(scenario, PLAN)
    argv = [*command_line(scenario), *words_of(needs, options(Needs)), "--json"]
    status, out, err = printed(["plan", *argv])
    response = CLIENT.get(f"/plan?{urlencode(params)}")
    if status:
        assert (response.status_code, response.json()["errors"]) == (422, [err.rstrip()])
        return
    assert (response.status_code, response.text) == (200, out)
    page = planned(scenario)
    plans = page.plans.plans
    assert json.loads(out)["plans"] == [each.model_dump(mode="json") for each in plans][:20]
    titles = in_each_language(lambda: findings.title(page, PLAN))
    for language, title in zip(words.LANGUAGES, titles, strict=True):
        assert headline(PLAN, params | {"lang": language}) == title
    for first in plans[:2]:
        opened = weigh(page, first)
        assert decoded(encode(opened, WEIGH), WEIGH)[0].serving == opened.serving
        there = weighed(opened)
        (verdict,) = there.report.verdicts
        assert (verdict.verdict, verdict.flags, verdict.max_batch) == ("fits", (), first.capacity)
        assert verdict.spare / 2**30 == first.headroom_gib
        if needs.users == 1 and not needs.prefix_share and verdict.limits.step_tokens >= TINY:
            told = there.speed
            assert first.tokens_per_s_per_user == pytest.approx(told.tokens_per_s_per_user.expected, rel=1e-12)
            assert first.ttft_ms == pytest.approx(told.ttft_ms.expected, rel=1e-12)


@cache
def small():
    """Presets of which several have room on a GPU."""
    return [name for name, architecture in architectures().items() if architecture.parameters().total < 9e9]


SERVERS = st.lists(
    st.tuples(st.sampled_from(small()), flags("vllm"), st.sampled_from([1, 4, 16]), st.sampled_from([512, 4096])),
    min_size=1,
    max_size=3,
)


@drawn(4, 150, SERVERS, st.sampled_from(list(gpus())))
def test_a_share_of_a_gpu_is_what_weigh_asks_for(asked, name):
    """Each server fits with its share by Weigh, with the same weights and cache, and with a hundredth less it does not;
    one that no share would do fits with none."""
    gpu = find_gpu(name)
    servers = [
        Server(model, models()[model].config, ENGINES["vllm"](flags), Workload(batch=batch, context=context))
        for model, flags, batch, context in asked
    ]
    try:
        shared = share_gpus(servers, gpu)
    except ConfigError:
        assume(False)
    for server, got in zip(servers, shared.servers, strict=True):
        precision = server.engine.precision(native(server.config))
        now = {"workload": server.workload, "precision": precision, "gpus": [gpu]}

        def with_share(share, server=server, now=now):
            return report(server.config, engine=server.engine.with_options(gpu_memory_utilization=share), **now)

        if got.share is None:
            assert got.free < gpu.usable_bytes or with_share(None).verdicts[0].verdict != "fits"
            continue
        found = with_share(got.share)
        assert found.verdicts[0].verdict == "fits"
        assert found.memory.weights + found.memory.vision == got.weights
        assert [budget.bytes for budget in found.kv_budget] in ([got.kv_cache], [])
        if found.kv_budget and got.share * HUNDREDTHS > 1.5:
            assert with_share(round(got.share - 1 / HUNDREDTHS, 2)).verdicts[0].verdict != "fits"
