"""Finding of each page: its title, one sentence with its verb stressed; the figures that decide; and the bytes on the
scale."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import streamlit as st

from calc import ConfigError
from calc.design import checks, proportions
from calc.serving import Memory, Verdict, bytes_per_token, growth
from calc.serving.comparison import variants
from calc.serving.shared_gpus import SharedGPUs
from calc.time import MAPPED, Estimate, price_of
from calc.training import METHODS, TrainingVerdict
from pages.parts import words
from pages.parts.outputs.cards import BADGES, Color, compared_total
from pages.parts.outputs.charts import peak_of, served
from pages.parts.outputs.design_aids import published
from pages.parts.state import fitted, query
from pages.parts.state.compared import Compared, Shared, StepColumn, Stepped, compared, shared
from pages.parts.state.local import LocalAnswer, local_answer
from pages.parts.state.planned import Planned, TrainingPlanned, planned, training_planned
from pages.parts.state.query import Page
from pages.parts.state.scenario import Scenario
from pages.parts.state.weighed import Answer, Quantized, Trained, Weighed, attended, looked, quantized, trained, weighed
from pages.parts.verify.evidence import COMPUTED, accuracy, speeds, startups
from pages.parts.words import say
from presets import gpus

STRESSED = re.compile(r"\*\*(.+?)\*\*")


def name(answer: Answer) -> str:
    """The model, and that it is not as it was published."""
    return say("{name} (changed)", name=answer.model.name) if answer.scenario.overrides else answer.model.name


def verdict_in_words(
    what: str, verdicts: Sequence[Verdict] | Sequence[TrainingVerdict], focus: Verdict | TrainingVerdict
) -> str:
    """Qwen3-8B **fits on** 8 of 9 GPUs."""
    number, fits = len(verdicts), sum(verdict.verdict == "fits" for verdict in verdicts)
    gpu = words.on_gpus(focus.gpu, focus.gpus)
    if fits == number == 2:
        return say("{name} **fits on both** GPUs", name=what)
    if fits and fits == number > 1:
        return say("{name} **fits on all** {n} GPUs", name=what, n=number)
    if fits and number > 1:
        return say("{name} **fits on** {n} of {all} GPUs", name=what, n=fits, all=number)
    if fits:
        return say("{name} **fits on** {gpu}", name=what, gpu=gpu)
    if focus.verdict == "fits with":
        return say("{name} **fits, with flags, on** {gpu}", name=what, gpu=gpu)
    if focus.verdict == "tight":
        return say("{name} **is tight on** {gpu}", name=what, gpu=gpu)
    if number > 1:
        return say("{name} **fits on none** of {n} GPUs", name=what, n=number)
    if focus.verdict == "does not run":
        return say("{name} **does not run on** {gpu}", name=what, gpu=gpu)
    return say("{name} **does not fit** {gpu}", name=what, gpu=gpu)


def plain(sentence: str) -> str:
    """Text without the stress, its dollars and spaces as programs know them."""
    return STRESSED.sub(r"\1", sentence).replace("\\$", "$").replace("\N{NO-BREAK SPACE}", " ")


def draw_title(sentence: str, color: Color | None) -> None:
    """The heading of a page, its verb in the colour of the verdict."""
    st.title(STRESSED.sub(r"\1" if color is None else rf":{color}[\1]", sentence), anchor=False)


class Figure(NamedTuple):
    """A number, what it is, and its range or where it is from."""

    value: str
    label: str
    span: str = ""


def draw_figures(figures: Iterable[Figure]) -> None:
    """The numbers that decide, in one row below the title."""
    cells = [
        f"<div><b>{escape(figure.value)}</b><span>{escape(figure.label)}</span><small>{escape(figure.span)}</small></div>"
        for figure in figures
    ]
    st.html(f'<div class="weighbridge-facts{" four" if len(cells) == 4 else ""}">{"".join(cells)}</div>')


def rate(label: str, estimate: Estimate) -> Figure:
    return Figure(words.figure(estimate.expected), label, words.span(estimate))


def hourly(focus: Verdict | TrainingVerdict | SharedGPUs) -> list[Figure]:
    """Price of the GPUs per hour; empty where there is no list price."""
    usd = price_of(focus.gpu)
    if usd is None:
        return []
    each = say("{n:,} × {usd}, list price", n=focus.gpus, usd=f"${usd:,.2f}")
    return [Figure(f"${focus.gpus * usd:,.2f}", say("per hour"), each)]


def price_and_headroom(focus: Verdict | TrainingVerdict) -> list[Figure]:
    """Price, and headroom on each GPU; where it does not fit, first the memory that is missing."""
    label = say("headroom per GPU") if focus.spare >= 0 else say("short per GPU")
    room = Figure(words.gib(abs(focus.spare)), label, say("of {size} usable", size=words.gib(focus.usable)))
    return [*hourly(focus), room] if focus.spare >= 0 else [room, *hourly(focus)]


class Finding(NamedTuple):
    """A sentence with its verb stressed, and the colour of the verdict where it is one."""

    sentence: str
    color: Color | None = None


def concluded(sentence: str, color: Color | None = None, /, **values: Any) -> Finding:
    return Finding(say(sentence, **values), color)


class Load(NamedTuple):
    """Bytes on the scale: the memory of one GPU with its parts, and the GPU's own."""

    memory: Memory
    parts: tuple[str, ...]
    focus: Verdict | TrainingVerdict


def title(answer: Answer, page: Page) -> str:
    """Title of the browser's tab, of its history and of a link that is handed on."""
    result = heading(answer, page) if answer.error is not None else finding(answer, page)
    if result is None:
        return f"{answer.model.name} · {say(page.title)} · Weighbridge"
    return f"{plain(result.sentence)} · Weighbridge"


def heading(answer: Answer, page: Page) -> Finding:
    """Title of a page: its finding, that it has no answer, or the model's name."""
    if answer.error is not None:
        return concluded("{name}: **no answer**", "red", name=name(answer))
    return finding(answer, page) or Finding(name(answer))


def alone(scenario: Scenario, page: Page) -> Finding:
    """Title of a page that is about no model; its name where it has no finding."""
    return ALONE[page](scenario) or Finding(say(page.title))


def finding(answer: Answer, page: Page) -> Finding | None:
    """Finding of a page; None where there is no answer, or nothing to find."""
    return SHOWN[page].find(answer) if answer.error is None else None


def figures(answer: Answer, page: Page) -> list[Figure]:
    """The figures that decide on a page."""
    return list(SHOWN[page].decide(answer)) if answer.error is None else []


def load(answer: Answer, page: Page) -> Load | None:
    """Bytes on the scale of a page; None where it has no scale."""
    if answer.error is not None or page not in (query.WEIGH, query.TRAIN):
        return None
    if isinstance(answer, Weighed) and answer.focus is not None:
        return Load(answer.focus.memory, served([answer.focus.memory]), answer.focus)
    if isinstance(answer, Trained) and answer.focus is not None:
        if answer.rollout is not None:
            return Load(peak_of(answer.rollout), words.GENERATED, answer.focus)
        return Load(answer.report.memory, words.TRAINED, answer.focus)
    return None


def judged(answer: Weighed | Trained) -> Finding | None:
    """Whether it fits, and on what."""
    if answer.focus is None:
        return None
    _, color, _ = BADGES[answer.focus.verdict]
    what = trained_name(answer) if isinstance(answer, Trained) else name(answer)
    return Finding(verdict_in_words(what, answer.report.verdicts, answer.focus), color)


def trained_name(answer: Trained) -> str:
    """The model and how it is trained."""
    step, objective = answer.report.scenario, answer.report.scenario.objective
    method = words.choice("method", step.workload.method)
    if objective is None:
        return say("{method} of {name}", method=method, name=name(answer))
    loss = words.choice("loss_method", objective.method)
    if not step.workload.trains_base:
        loss = say("{loss} with {method}", loss=loss, method=method)
    if not METHODS[objective.method].generates or not METHODS[objective.method].groups:
        return say("{method} of {name}", method=loss, name=name(answer))
    return say(
        "{loss} of {name} with {n:,} completions of {tokens} tokens",
        loss=loss,
        name=name(answer),
        n=objective.num_generations,
        tokens=words.tokens(objective.completion),
    )


def cheapest(answer: Planned) -> Finding:
    """The plan that comes first, for so many users or requests."""
    plans, needs, what = answer.plans, answer.scenario.planning.needs, name(answer)
    if needs.requests_per_s is not None:
        what = say("{name} for {n:,g} requests/s", name=what, n=needs.requests_per_s)
    else:
        what = say("{name} for one user", plural="{name} for {n:,} users", name=what, n=needs.users or 1)
    if not plans.plans and plans.beyond:
        return concluded("{what}: **no plan** within the budget", "red", what=what)
    if not plans.plans:
        return concluded("{what}: **no plan** on these GPUs", "red", what=what)
    plan = plans.best.plan
    on = words.on_gpus(plan.gpu, plan.gpus)
    if not plan.meets:
        return concluded("{what}: **no plan meets every target**, {gpus} comes closest", "red", what=what, gpus=on)
    if plan.usd_per_hour is None:
        return concluded("{what}: **{gpus}**, whose price is not known", "green", what=what, gpus=on)
    usd = words.dollars(plan.usd_per_hour)
    return concluded("{what}: **{gpus}** at {usd}/h is the cheapest", "green", what=what, gpus=on, usd=usd)


def run_planned(answer: TrainingPlanned) -> Finding:
    """The fastest way to train."""
    plans = answer.report.plans
    if not plans:
        return concluded("{what}: **no plan** on these GPUs", "red", what=name(answer))
    first = plans[0]
    values = {
        "name": name(answer),
        "days": words.figure(first.campaign.days.expected),
        "gpus": words.on_gpus(first.gpu, first.layout.gpus),
    }
    cost = first.campaign.cost
    if cost is None:
        return concluded("{name} is trained **in {days} days** on {gpus}", **values)
    usd = words.dollars(cost.expected, exact=False)
    return concluded("{name} is trained **in {days} days** on {gpus}, for {usd}", **values, usd=usd)


def machine(answer: LocalAnswer) -> Finding:
    """The file to take on the reader's machine."""
    run = answer.best
    if run.tokens_per_s is None:
        return concluded("{name} **does not run** on this machine", "red", name=name(answer))
    where: Color = "green" if run.where == "gpu" else "orange"
    return concluded("{name} **runs in {file}** on this machine", where, name=name(answer), file=run.file.weights)


def on_all_gpus(scenario: Scenario) -> Finding | None:
    """Finding of the open view."""
    choice = scenario.hardware
    engine, on = scenario.serving.engine, words.on_gpus(choice.card, choice.cards)
    if engine not in MAPPED:
        return None
    if choice.view == "models":
        longest = fitted.longest_on(choice.card, choice.cards, engine).max(axis=1)
        fits, number = int(np.count_nonzero(longest)), len(longest)
        return concluded("{n:,} of {all:,} models **fit on** {gpus}", n=fits, all=number, gpus=on)
    answer = looked(scenario)
    if answer.error is not None:
        return None
    if choice.view == "formats":
        kinds, fitting = fitted.of_scenario(answer, engine)
        fits = int(np.count_nonzero(fitting.max_context.max(axis=1)))
        return concluded("{name} **fits on** {n} of {all} GPUs", name=name(answer), n=fits, all=len(kinds))
    try:
        _, points = fitted.points_on(answer, engine)
    except ConfigError:
        return None
    bound = words.BOUNDS[points[0].bound]
    return concluded("{name} on {gpus}: decoding is **limited by {bound}**", name=name(answer), gpus=on, bound=bound)


def compared_out(answer: Compared) -> Finding | None:
    """The model with more memory, and how much; of one alone whether it fits."""
    memories = {column.letter: answer.memory(column.answer.report).total for column in answer.complete}
    if len(memories) < 2:
        return judged(answer)
    return more_memory(memories, {column.letter: name(column.answer) for column in answer.columns})


def stepped(answer: Trained) -> Finding | None:
    """The step with more memory, and how much; of one alone whether it fits."""
    columns = answer.complete if isinstance(answer, Stepped) else []
    if len(columns) < 2:
        return judged(answer)
    return more_memory({column.letter: column.step.verdict.required for column in columns}, told_apart(columns))


def told_apart(columns: Sequence[StepColumn]) -> dict[str, str]:
    """Settings in which steps differ, by letter: QLoRA · micro-batch 2; the model where they are alike."""
    names = []
    for _, answer, step in columns:
        work, objective = step.scenario.workload, step.scenario.objective
        length = work.sequence if objective is None else objective.prompt + objective.completion
        loss, method = words.objective(objective), words.choice("method", work.method)
        micro_batch = say("micro-batch {n:,}", n=work.micro_batch)
        names.append((answer.model.name, loss, method, micro_batch, say("{n} tokens", n=words.tokens(length))))
    differing = [place for place, name in enumerate(zip(*names, strict=True)) if len(set(name)) > 1] or [0]
    return {column.letter: " · ".join(name[i] for i in differing) for column, name in zip(columns, names, strict=True)}


def more_memory(memories: Mapping[str, int], names: Mapping[str, str]) -> Finding:
    """Excess of the largest over the smallest; memories and names by letter."""
    most, *_, least = sorted(memories, key=memories.__getitem__, reverse=True)
    ratio = memories[most] / memories[least]
    larger, smaller = (say("{letter} · {name}", letter=letter, name=names[letter]) for letter in (most, least))
    if ratio < 1.005:
        return concluded("{larger} and {smaller} need **the same memory**", larger=larger, smaller=smaller)
    if ratio < 2:
        more = f"{ratio - 1:.0%}"
        return concluded(
            "{larger} needs **{more} more memory** than {smaller}", larger=larger, smaller=smaller, more=more
        )
    times = words.figure(ratio)
    return concluded(
        "{larger} needs **{times} × the memory** of {smaller}", larger=larger, smaller=smaller, times=times
    )


def shared_out(answer: Shared) -> Finding | None:
    """Whether all models start on one GPU, or how many of them do."""
    focus = answer.focus
    if focus is None:
        return None
    gpu, number = words.on_gpus(focus.gpu, focus.gpus), len(focus.servers)
    if focus.fits and number == 1:
        return concluded(
            "{name} alone **leaves** {left} of {gpu}", "green", name=name(answer), gpu=gpu, left=words.gib(focus.left)
        )
    if focus.fits and focus.sleep_level:
        return concluded("{n:,} models **fit in turn on** {gpu}", "green", n=number, gpu=gpu)
    if focus.fits:
        return concluded("{n:,} models **fit together on** {gpu}", "green", n=number, gpu=gpu)
    return concluded("{n:,} of {all:,} models **fit on** {gpu}", "red", n=focus.started, all=number, gpu=gpu)


def decide_sharing(answer: Shared) -> Iterator[Figure]:
    """Memory taken and left of a GPU, and the price of all."""
    focus = answer.focus
    if focus is None:
        return
    taken = words.gib(focus.usable - focus.left)
    yield Figure(taken, say("taken per GPU"), say("of {size} usable", size=words.gib(focus.usable)))
    yield Figure(words.gib(focus.left), say("left per GPU"))
    if focus.host:
        yield Figure(words.gib(focus.host), say("host memory"), say("weights of those that sleep"))
    yield from hourly(focus)


def verified(answer: Answer) -> Finding:
    """The number of parameters, and whether others published the same."""
    preset, total, difference = compared_total(answer)
    values: dict[str, Any] = {"name": name(answer), "total": total}
    if preset is None:
        return concluded("{name} has **{total:,} parameters**", **values)
    if difference:
        values["n"] = difference
        return concluded("{name}: the published total **differs by {n:+,} parameters**", **values)
    return concluded("{name} has **{total:,} parameters, as published**", "green", **values)


def derived(answer: Weighed) -> Finding:
    total = words.count(answer.report.parameters.total)
    memory = answer.report.memory if answer.focus is None else answer.focus.memory
    size = words.gib(memory.total)
    return concluded(
        "{name} has **{total} parameters** and needs {size} per GPU", name=name(answer), total=total, size=size
    )


def converted(answer: Quantized) -> Finding:
    report, known = answer.report, {"method": say(answer.report.method), "name": name(answer)}
    gpu, ram = words.gib(report.gpu), words.gib(report.ram)
    if not report.gpu:
        return concluded("{method} of {name} **takes** {ram} of host memory and no GPU", **known, ram=ram)
    if not report.ram:
        return concluded("{method} of {name} **takes** {gpu} of a Mac's memory", **known, gpu=gpu)
    return concluded(
        "{method} of {name} **takes** {gpu} on one GPU and {ram} of host memory", **known, gpu=gpu, ram=ram
    )


def decide_conversion(answer: Quantized) -> Iterator[Figure]:
    """Memory of GPU and host, disk, and the result."""
    report = answer.report
    if report.gpu:
        low, high = words.gib(report.gpu + report.overhead_low), words.gib(report.gpu + report.overhead_high)
        yield Figure(words.gib(report.gpu), say("GPU memory"), say("{low} to {high} with overhead", low=low, high=high))
    if report.ram:
        yield Figure(words.gib(report.ram), say("host memory"))
    yield Figure(words.gib(report.disk_bytes), say("disk"), say("with the checkpoint"))
    if report.samples:
        texts = say("{n:,} texts of {tokens:,} tokens", n=report.samples, tokens=report.tokens)
        yield Figure(report.tool, say("tool"), texts)
    else:
        yield Figure(report.tool, say("tool"))


def saved(answer: Answer) -> Finding:
    """Cache bytes of a token, and the share of multi-head attention's that is saved."""
    choice, what = answer.scenario.serving, name(answer)
    kv = answer.model.precision(choice).kv
    size = bytes_per_token(growth(answer.architecture.blocks, kv))
    if answer.architecture.encodes:
        return concluded("{name} sees **whole texts** and caches nothing", name=what)
    if not size:
        return concluded("{name} caches **nothing more for a longer context**", name=what)
    kinds = variants(answer.architecture, choice.started(), kv, choice.workload)
    share = next((kind.saved for kind in kinds if kind.own), 0.0)
    if not share:
        return concluded("{name} caches **{size} per token**", name=what, size=words.size(size))
    return concluded(
        "{name} caches **{size} per token**, {saved} less than with multi-head attention",
        name=what,
        size=words.size(size),
        saved=f"{share:.0%}",
    )


def designed(answer: Weighed) -> Finding:
    """Number of checks that it passes."""
    own = proportions(answer.model.name, answer.architecture)
    rows = checks(answer.architecture, answer.report.scenario.layout, published(), own)
    good = sum(check.good for check in rows)
    color: Color = "green" if good == len(rows) else "orange"
    return concluded("{name} **passes {n} of {all} checks**", color, name=name(answer), n=good, all=len(rows))


def accurate(scenario: Scenario) -> Finding:
    """Error of computed figures of the open section against those that others measured."""
    if scenario.tab == "starts":
        court = startups()
        agreeing = sum(court.judged(starts=starts, fits=starts) for starts in (True, False))
        total = sum(cell.count for cell in court.court)
        return concluded("{n:,} of {all:,} configurations start or fail **as predicted**", n=agreeing, all=total)
    if scenario.tab == "speed":
        errors = [abs(row["error"]) for row in speeds().records()]
        error = words.within(median(errors))
        return concluded("Half of {n:,} measured speeds are met **within {error}**", n=len(errors), error=error)
    evidence = accuracy()
    errors = [abs(row.error) for row in evidence.rows if row.kind != COMPUTED]
    return concluded(
        "Half of {n:,} measured figures are met **within {error}**", n=len(errors), error=words.within(median(errors))
    )


def decide_serving(answer: Weighed) -> Iterator[Figure]:
    """Speed, price and headroom."""
    focus = answer.focus
    if focus is None:
        return
    if (speed := answer.speed) is not None:
        first = speed.ttft_ms
        yield rate(say("tokens/s per user"), speed.tokens_per_s_per_user)
        yield Figure(words.duration(first.expected), say("to the first token"), words.durations(first))
    yield from price_and_headroom(focus)


def decide_training(answer: Trained) -> Iterator[Figure]:
    """Speed of a step, price and headroom."""
    focus = answer.focus
    if focus is None:
        return
    pace = answer.pace if answer.passes is None else answer.passes.time(divided=False)
    if pace is not None:
        step = pace.step_s.scaled(1000)
        yield rate(say("tokens/s per GPU"), pace.tokens_per_s_per_gpu)
        yield Figure(words.duration(step.expected), say("per step"), words.durations(step))
    yield from price_and_headroom(focus)


def decide_planning(answer: Planned) -> Iterator[Figure]:
    """Figures of the first plan."""
    if not answer.plans.plans:
        return
    ranked = answer.plans.best
    plan, spans = ranked.plan, ranked.range
    yield rate(say("tokens/s per user"), spans.tokens_per_s_per_user)
    yield Figure(words.duration(plan.ttft_ms), say("to the first token, mean"), words.durations(spans.ttft_ms))
    if plan.usd_per_hour is not None:
        each = say("{n:,} × {usd}", n=plan.gpus, usd=f"${plan.usd_per_hour / plan.gpus:,.2f}")
        yield Figure(f"${plan.usd_per_hour:,.2f}", say("per hour"), each)
    yield Figure(words.gib(round(max(0.0, plan.headroom_gib) * 2**30)), say("headroom per GPU"))


def decide_locally(answer: LocalAnswer) -> Iterator[Figure]:
    """Speed of the best file, and its size."""
    run = answer.best
    if run.tokens_per_s is None:
        return
    yield rate(say("tokens/s"), run.tokens_per_s)
    if run.prompt_tokens_per_s is not None:
        yield rate(say("prompt tokens/s"), run.prompt_tokens_per_s)
    yield Figure(words.gib(run.file.bytes), say("to download"), run.file.weights)
    if run.longest:
        yield Figure(words.tokens(run.longest), say("tokens of context at most"))


class Shown(NamedTuple):
    """Calculation of a page for the model on screen, its finding, and its figures that decide."""

    calculate: Callable[[Scenario], Answer]
    find: Callable[[Any], Finding | None]
    decide: Callable[[Any], Iterable[Figure]] = lambda _: ()


SHOWN: Mapping[Page, Shown] = {
    query.WEIGH: Shown(weighed, judged, decide_serving),
    query.TRAIN: Shown(trained, judged, decide_training),
    query.TRAIN_PLAN: Shown(training_planned, run_planned),
    query.PLAN: Shown(planned, cheapest, decide_planning),
    query.MACHINE: Shown(local_answer, machine, decide_locally),
    query.COMPARE: Shown(compared, compared_out),
    query.STEPS: Shown(trained, stepped),
    query.TOGETHER: Shown(shared, shared_out, decide_sharing),
    query.VERIFY: Shown(looked, verified),
    query.DERIVE: Shown(weighed, derived),
    query.QUANTIZE: Shown(quantized, converted, decide_conversion),
    query.ATTENTION: Shown(attended, saved),
    query.DESIGN: Shown(weighed, designed),
}
ALONE: Mapping[Page, Callable[[Scenario], Finding | None]] = {
    query.GPUS: on_all_gpus,
    query.HARDWARE: lambda _: concluded("{n:,} GPUs, each figure **with its source**", n=len(gpus())),
    query.ACCURACY: accurate,
    query.GLOSSARY: lambda _: None,
}
"""Pages that are drawn for no model."""
