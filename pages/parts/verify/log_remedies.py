"""The least changes with which a server that died would have started, each one click into Weigh; from a trainer's
message the way to Train."""

import streamlit as st

from calc import Report
from calc.errors import Message
from calc.serving.engines import LOGS
from calc.verify.logs import Log, Remedy, engine_for, gpus_of, remedies
from pages.parts.state.query import TRAIN, WEIGH
from pages.parts.state.scenario import ServingChoice
from pages.parts.state.url import change, lead
from pages.parts.state.weighed import Answer
from pages.parts.words import say
from presets import gpus

AS_IT_RAN = Remedy(what=Message("Weigh as it ran, to see what would make it fit"), changes={})


def draw(answer: Answer, log: Log, ours: Report) -> None:
    if log.refusal is None:
        return
    if log.engine not in LOGS:
        trainer(log)
        return
    least = remedies(log, ours.memory.weights, ours.memory.kv_cache)
    near = {gpu.id: gpu for gpu in gpus_of(log, gpus().values())} or {
        answer.scenario.first_gpu().id: answer.scenario.first_gpu()
    }
    if least:
        st.markdown(say("**The least change, by the log's own figures**"))
    if len(near) > 1:
        gpu = st.selectbox(
            say("GPU of the log"), list(near), format_func=lambda name: gpus()[name].name, key="log_gpu", width=300
        )
    else:
        (gpu,) = near
    for number, remedy in enumerate((*least, AS_IT_RAN)):
        if st.button(
            say("Weigh with {change}", change=remedy.what) if remedy.changes else say(remedy.what),
            key=f"remedy_{number}",
            icon=":material/arrow_forward:",
            help=say("With the log's own settings: GPU, layout, formats and flags."),
            on_click=use,
            args=(answer, log, ours, gpu, remedy),
        ):
            lead(WEIGH)


def trainer(log: Log) -> None:
    """PyTorch's message alone names no program: what makes a training step fit on that GPU is a click away."""
    near = tuple(gpu.id for gpu in gpus_of(log, gpus().values()))
    if st.button(
        say("It was training: what makes it fit"),
        key="log_train",
        icon=":material/arrow_forward:",
        help=say("Train with the GPU of the message, and every change that makes a step smaller."),
        on_click=change,
        kwargs={"gpu": near[:1]} if near else {},
    ):
        lead(TRAIN)


def use(answer: Answer, log: Log, ours: Report, gpu: str, remedy: Remedy) -> None:
    """Make the log's run, with a change, the scenario of Weigh."""
    settings = log.settings.model_copy(update=remedy.changes)
    ran = ours.scenario
    changed = log.model_copy(update={"settings": settings})
    engine = engine_for(changed, answer.architecture, ran.precision, ran.layout)
    context = settings.max_model_len or ran.workload.context
    serving = ServingChoice(
        workload=ran.workload.model_copy(update={"context": context}),
        engine=engine.name,
        options=engine.options,
        weights=None if ran.precision.weights == answer.model.native else ran.precision.weights,
        kv=None if ran.precision.kv == answer.model.native_cache(engine.name) else ran.precision.kv,
        layout=ran.layout,
    )
    change(gpu=(gpu,), serving=serving)
