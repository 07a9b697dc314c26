"""KV cache on each GPU: required, allocated by the engine, and the requests that fit in it."""

from collections.abc import Iterator

import streamlit as st

from calc import Report
from calc.hardware import find_gpu
from calc.serving import KVBudget
from calc.serving.engines import ENGINES
from calc.units import GIB
from pages.parts import words
from pages.parts.outputs import tables
from pages.parts.outputs.tables import Column
from pages.parts.screen import heading, paragraph
from pages.parts.words import say

TERABYTE = 10**12


def draw(report: Report) -> None:
    """A table only for an engine that sets memory aside at start."""
    heading("KV cache: required and allocated")
    required_and_allocated(report)
    if report.kv_budget:
        shown_by_driver(report)
        label = say("KV cache: required and allocated")
        tables.draw("kv_budget", label, columns(), report.kv_budget, id=lambda budget: budget.gpu)
    if sentences := list(host_memory(report)):
        st.markdown("\n\n".join(sentences))


def required_and_allocated(report: Report) -> None:
    scenario = report.scenario
    known = {
        "n": scenario.workload.batch,
        "context": scenario.workload.context,
        "required": words.size(report.kv_cache.total),
        "engine": ENGINES[scenario.engine].title,
        "allocated": words.size(report.memory.kv_cache),
    }
    if scenario.layout.gpus == 1:
        sentence = say(
            "One sequence of {context:,} tokens requires **{required}**; {engine} allocates **{allocated}** for it.",
            plural="{n:,} sequences of {context:,} tokens require **{required}**; {engine} allocates **{allocated}** "
            "for them.",
            **known,
        )
    else:
        sentence = say(
            "One sequence of {context:,} tokens requires **{required}** in total; {engine} allocates **{allocated}** "
            "for it on the GPU with the most memory in use.",
            plural="{n:,} sequences of {context:,} tokens require **{required}** in total; {engine} allocates "
            "**{allocated}** for them on the GPU with the most memory in use.",
            **known,
        )
    st.markdown(sentence)


def host_memory(report: Report) -> Iterator[str]:
    """Sentences on the memory of the host of the first GPU: files while they are read, a cache, and LoRA adapters."""
    if not report.host:
        return
    host, options, engine = report.host[0], report.scenario.options, ENGINES[report.scenario.engine]
    context, token = report.scenario.workload.context, report.kv_cache
    yield say(
        "While the weights are loaded, up to **{size}** of files are in the page cache of each machine; the kernel "
        "reclaims it where memory is short.",
        size=words.gib(host.reading),
    )
    if host.cache is not None:
        yield say(
            "The host's memory keeps the cache of another **{tokens:,} tokens**, {requests:,.2f} requests of "
            "{context:,} tokens: **{size}** pinned, {each} for each rank.",
            tokens=host.cache.tokens,
            requests=host.cache.concurrency,
            context=context,
            size=words.gib(host.cache.bytes),
            each=words.gib(host.cache.bytes_per_rank),
        )
    elif getattr(options, "enable_hierarchical_cache", False):
        yield say("The part of this model's cache that {engine} keeps on the host is not known.", engine=engine.title)
    grows_alone = token.bytes_per_token and not token.window_bytes and not token.state_bytes
    if engine.disk_tier and grows_alone:
        tokens = TERABYTE // token.bytes_per_token
        yield say(
            "A disk of 1 TB keeps the cache of **{tokens:,} tokens** at {each} a token, {requests:,.0f} requests of "
            "{context:,} tokens ({tier}).",
            tokens=tokens,
            each=words.size(token.bytes_per_token),
            requests=tokens // context,
            context=context,
            tier=engine.disk_tier,
        )
    if host.adapters:
        size = words.gib(host.adapters)
        yield say("LoRA adapters take **{size}** of the host's memory, each whole in every rank.", size=size)


def shown_by_driver(report: Report) -> None:
    """Memory that nvidia-smi will show, which is not the memory that the model needs."""
    budget = next((budget for budget in report.kv_budget if budget.bytes > 0), None)
    if budget is None:
        return
    paragraph(
        "The driver's tools (nvidia-smi) will show up to about **{used}** in use on {gpu}, of which **{cache}** is "
        "cache that {engine} sets aside at start, whether it is full or empty.",
        used=words.gib(budget.driver_bytes),
        gpu=find_gpu(budget.gpu).name,
        cache=words.gib(budget.bytes),
        engine=ENGINES[report.scenario.engine].title,
    )


def columns() -> list[Column]:
    return [
        Column("GPU", lambda budget: find_gpu(budget.gpu).name),
        Column("Max concurrent requests", "concurrency", "two"),
        Column("Tokens", "tokens", "whole"),
        Column("Available KV cache memory, GiB", available),
        Column(
            "GPU memory budget, GiB",
            lambda budget: f"{budget.requested / GIB:,.2f} ({budget.gpu_memory_utilization:.0%})",
        ),
        Column("Weights, GiB", lambda budget: budget.weights / GIB, "two"),
        Column("Peak activation memory (profiling), GiB", lambda budget: budget.profile / GIB, "two"),
        Column("Tokens of a step", "max_num_batched_tokens", "whole"),
        Column("Max sequences", "max_num_seqs", "whole"),
    ]


def available(budget: KVBudget) -> str:
    """Available cache memory, in the middle of its range and at both ends."""
    if budget.bytes <= 0:
        return say("nothing")
    low, high = max(0, budget.bytes_low), budget.bytes_high
    return f"{budget.bytes / GIB:,.2f} ({low / GIB:,.2f}–{high / GIB:,.2f})"
