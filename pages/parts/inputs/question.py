"""The question on top of a page: one sentence whose parts are the controls, each the one way to set its field; and the
place to paste an error."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from string import Formatter
from typing import Any, Literal, NamedTuple

import streamlit as st

from calc.errors import ConfigError
from calc.hardware import find_gpu, slices
from calc.serving.engines import ENGINES
from calc.training import METHODS
from calc.verify.logs import read_log
from pages.parts.inputs import lists, model_picker
from pages.parts.inputs.control import help_of
from pages.parts.outputs import scripts
from pages.parts.state.published import published
from pages.parts.state.query import VERIFY, Page
from pages.parts.state.scenario import Place, Scenario, places, usual_gpus
from pages.parts.state.trained_as import by_loss, by_method
from pages.parts.state.url import change, choose, lead
from pages.parts.state.weighed import Answer
from pages.parts.state.widgets import show
from pages.parts.words import choice, field, language, objective, say, size, tokens
from presets import gpus, named_preset

QUESTION = scripts.element("weighbridge_question", "question.js")
CONTEXTS = [2**power for power in range(7, 21)]
MANY = 10**6
"""More users or GPUs than anybody types."""
LONGEST_SEARCH = 200
COMMAS = (",", "，")
NEXT_TOKEN = "next-token"
"""Name of transformers' own in the list of losses."""


@dataclass(frozen=True)
class Blank:
    """A part of the sentence that is a control: how it is drawn, its value, and what sets it, which raises ValueError
    where that makes no sense."""

    kind: Literal["search", "number", "list"]
    value: Callable[[Scenario], Any]
    put: Callable[[Any], None]


def of_place(kind: Literal["number", "list"], part: str, name: str) -> Blank:
    """The control of one field."""
    place = places((part,))[name]
    return Blank(kind, place.of, lambda chosen: change({place: place.option.checked(chosen)}))


def model(scenario: Scenario) -> str | None:
    """The id of the model; a pasted config has none."""
    return scenario.source.model if scenario.source.pasted is None else None


def put_model(chosen: str) -> None:
    choose(places(("source",))["model"].option.parse(chosen))
    st.session_state.pop("hub_words", None)


def context(scenario: Scenario) -> int:
    """Tokens of a sequence: the usual ones, or all that a model with learned positions has."""
    architecture, chosen = published(scenario.source).architecture, scenario.serving.workload.context
    most = None if architecture is None else architecture.learned_positions
    usual = Scenario().serving.workload.context
    return most if most is not None and chosen == usual and most < chosen else chosen


def put_count(chosen: int) -> None:
    """So many GPUs, in the layout that does best."""
    place = places(("serving",))["num_gpus"]
    count = place.option.checked(chosen)
    change({place: None if count == 1 else count} | {other: other.option.default for other in degrees("serving")})


def put_replicas(chosen: int) -> None:
    """So many GPUs that train, each on data of its own."""
    known = places(("training",))
    count = known["dp"].option.checked(chosen)
    others = {other: other.option.default for other in degrees("training") if other.name != "zero"}
    change(others | {known["dp"]: count})


def degrees(part: Literal["serving", "training"]) -> list[Place]:
    return [place for place in places((part,)).values() if "layout" in place.path]


def put_users(chosen: int) -> None:
    """So many users, instead of requests a second."""
    known = places(("planning",))
    change({known["users"]: known["users"].option.checked(chosen), known["requests_per_s"]: None})


def put_engine(chosen: str) -> None:
    engine = places(("serving",))["engine"].option.checked(chosen)
    change(serving=st.session_state.scenario.serving.with_engine(engine))


def put_method(chosen: str) -> None:
    method = places(("training",))["method"].option.checked(chosen)
    change(training=by_method(st.session_state.scenario.training, method))


def put_loss(chosen: str) -> None:
    loss = None if chosen == NEXT_TOKEN else places(("training",))["loss_method"].option.checked(chosen)
    change(training=by_loss(st.session_state.scenario.training, loss))


MODEL = Blank("search", model, put_model)
GPUS = Blank("search", lambda scenario: list(scenario.gpu), of_place("list", "gpu", "gpu").put)
WORKLOAD = {
    "batch": of_place("number", "serving", "batch"),
    "context": Blank("list", context, of_place("list", "serving", "context").put),
}
SERVING = {
    "model": MODEL,
    "weights": of_place("list", "serving", "weights"),
    "num_gpus": Blank("number", lambda now: now.serving.num_gpus or now.serving.layout.gpus, put_count),
    "gpu": GPUS,
    **WORKLOAD,
    "engine": Blank("list", lambda now: now.serving.engine, put_engine),
}
TRAINING = {
    "model": MODEL,
    "loss_method": Blank("list", lambda now: now.training.loss_method or NEXT_TOKEN, put_loss),
    "method": Blank("list", lambda now: now.training.workload.method, put_method),
    "num_gpus": Blank("number", lambda now: now.training.layout.gpus, put_replicas),
    "gpu": GPUS,
    "micro_batch": of_place("number", "training", "micro_batch"),
    "sequence": of_place("list", "training", "sequence"),
    "prompt": of_place("number", "training", "prompt"),
    "completion": of_place("number", "training", "completion"),
}

SERVER = {
    "model": MODEL,
    "users": Blank("number", lambda now: now.planning.needs.users or 1, put_users),
    "prompt": of_place("number", "planning", "prompt"),
    "output": of_place("number", "planning", "output"),
}
EACH_GPU = {
    "model": MODEL,
    "cards": of_place("number", "hardware", "cards"),
    "length": of_place("list", "hardware", "length"),
}
TRAINING_RUN = {
    "model": MODEL,
    "gpus": of_place("number", "planning", "gpus"),
    "global_batch": of_place("number", "planning", "global_batch"),
    "sequence": of_place("list", "planning", "sequence"),
}


CONVERSION = {"model": MODEL, "to": of_place("list", "quantizing", "to"), "gpu": GPUS}


class Question(NamedTuple):
    """A page's question with the names of its controls where they stand, and the controls: {model} in {weights}."""

    sentence: str
    blanks: Mapping[str, Blank]


def sentence_with(blanks: Mapping[str, Blank], text: str, **how: Any) -> Question:
    return Question(say(text, **{name: f"{{{name}}}" for name in blanks}, **how), blanks)


def question(scenario: Scenario, here: Page) -> Question:
    """The question of a page."""
    n, needs = scenario.serving.workload.batch, scenario.planning.needs
    if "training" in here.uses and scenario.training.loss_method is not None:
        return sentence_with(
            TRAINING,
            "Train {model} by {loss_method}, {method}, on {num_gpus} × {gpu}, micro-batch {micro_batch}, {prompt} "
            "+ {completion} tokens",
        )
    if "training" in here.uses:
        return sentence_with(
            TRAINING,
            "Train {model} by {loss_method}, {method}, on {num_gpus} × {gpu}, micro-batch {micro_batch} × {sequence} "
            "tokens",
        )
    if "machine" in here.uses:
        return sentence_with(
            {"model": MODEL, **WORKLOAD},
            "{model} for {batch} user of {context} tokens",
            plural="{model} for {batch} users of {context} tokens",
            n=n,
        )
    if "quantizing" in here.uses:
        return sentence_with(CONVERSION, "Quantize {model} to {to} on {gpu}")
    if "overhead" in here.uses:
        return sentence_with(
            SERVING,
            "{model} in {weights} on {num_gpus} × {gpu} for {batch} user of {context} tokens with {engine}",
            plural="{model} in {weights} on {num_gpus} × {gpu} for {batch} users of {context} tokens with {engine}",
            n=n,
        )
    if "hardware" in here.uses and scenario.hardware.view == "roofline":
        return sentence_with(EACH_GPU, "{model} on {cards} × the GPU below at {length} tokens")
    if "hardware" in here.uses:
        return sentence_with(EACH_GPU, "{model} on {cards} of each GPU at {length} tokens")
    if here.purpose == "train":
        return sentence_with(
            TRAINING_RUN, "Train {model} on {gpus} GPUs in steps of {global_batch} × {sequence} tokens"
        )
    if here.purpose == "serve" and needs.requests_per_s is not None:
        return sentence_with(SERVER, "{model} for requests of {prompt} tokens with answers of {output}")
    if here.purpose == "serve":
        return sentence_with(
            SERVER,
            "{model} for {users} user with prompts of {prompt} tokens and answers of {output}",
            plural="{model} for {users} users with prompts of {prompt} tokens and answers of {output}",
            n=needs.users or 1,
        )
    return Question("{model}", {"model": MODEL})


def pieces(template: str) -> list[dict[str, str]]:
    """A sentence taken apart: texts, and names of controls, each with the comma that no line begins with."""
    parts: list[dict[str, str]] = []
    for text, name, _, _ in Formatter().parse(template):
        if parts and text[:1] in COMMAS:
            parts[-1]["comma"], text = text[:1], text[1:]
        if text.strip():
            parts.append({"text": text.strip()})
        if name is not None:
            parts.append({"id": name})
    return parts


def draw(answer: Answer, here: Page) -> None:
    """The sentence, and what the Hub has of the words that were looked for."""
    scenario = answer.scenario
    sentence, blanks = question(scenario, here)
    values = {name: blank.value(scenario) for name, blank in blanks.items()}
    widget = show("question", {"sentence": values}, take, here, given="default")
    hear = partial(widget["on_change"], *widget["args"])
    with st.container(key="question_bar"):
        QUESTION(
            key=widget["key"],
            default=widget["default"],
            data={
                "values": values,
                "pieces": pieces(sentence),
                "controls": {
                    name: {"kind": blank.kind, **about(answer, name, blank, here)} for name, blank in blanks.items()
                },
                "text": texts(),
                "lists": lists.LISTS.address(f"{language()}.json"),
            },
            on_sentence_change=hear,
            on_hub_change=partial(search_hub, widget["key"]),
            on_log_change=partial(take_log, widget["key"]),
        )
    lead_there(here)
    if (words := st.session_state.get("hub_words")) is not None:
        model_picker.suggest(words)


def take(changes: Any, here: Page) -> None:
    """Take over the reader's changes of the sentence; values that make no sense are left out."""
    chosen = changes.get("sentence")
    for name, blank in question(st.session_state.scenario, here).blanks.items():
        if isinstance(chosen, dict) and name in chosen and chosen[name] != blank.value(st.session_state.scenario):
            with suppress(ValueError):
                blank.put(chosen[name])


def search_hub(key: str) -> None:
    """Words that no preset has are looked for on the Hub."""
    words = st.session_state[key].get("hub")
    if isinstance(words, str) and words.strip():
        st.session_state.hub_words = words.strip()[:LONGEST_SEARCH]


def about(answer: Answer, name: str, blank: Blank, here: Page) -> dict[str, Any]:
    """Label, help and value of a control."""
    scenario, slopes = answer.scenario, answer.slopes
    if name == "model":
        help_text = say("Name, maker, size, date or words in any order: deepseek v3, 70b, qwen moe, 2025-04.")
        return {"label": say("Model"), "help": help_text, "shown": answer.model.name}
    if name == "gpu":
        own = [lists.gpu_row(find_gpu(gpu)) for gpu in scenario.gpu if gpu not in (*gpus(), *slices())]
        help_text = say(
            "Each gets a verdict. Search by name or memory: 24 finds the RTX 3090 and 4090, A10, A30 and L4; MIG finds "
            "slices."
        )
        shown = say("{n} GPU types", n=len(scenario.gpu)) if scenario.gpu else say("no GPU")
        if len(scenario.gpu) == 1:
            shown = lists.short_name(scenario.first_gpu())
        return {"label": field(name), "help": help_text, "shown": shown, "own": own, "usual": list(usual_gpus())}
    place = places(here.uses, scenario.serving.engine).get(name)
    known: dict[str, Any] = {"label": field(name), "help": "" if place is None else help_of(place.option) or ""}
    if blank.kind == "number":
        option = None if place is None else place.option
        most = MANY if option is None or option.most is None else int(option.most)
        least = 1 if option is None or option.least is None else int(option.least)
        if name == "batch":
            n = scenario.serving.workload.batch
            known["help"] = say("Requests that are answered at the same time; each has its own KV cache.")
            if slopes is not None:
                more = size(slopes.cache_of(batch=n + 1))
                known["help"] += f"\n\n{say('**+1 sequence**: **+{size}** of KV cache.', size=more)}"
        return known | {"least": least, "most": most}
    if name == "weights":
        return known | {"usual": answer.model.native}
    if name == "context":
        if slopes is not None:
            more = size(slopes.cache_of(context=context(scenario) + 1024))
            known["help"] += f"\n\n{say('**+1,024 tokens**: **+{size}** of KV cache.', size=more)}"
        return known | {"options": context_options(answer)}
    if name in ("sequence", "length"):
        stops = sorted({*CONTEXTS, blank.value(scenario)})
        return known | {"options": [[n, tokens(n), tokens(n)] for n in stops]}
    if name == "engine":
        return known | {"options": [[engine, kind.title, kind.title] for engine, kind in ENGINES.items()]}
    if name == "loss_method":
        label, short = say("Next token (transformers)"), objective(None)
        losses = [[loss, say(method.title), choice(name, loss)] for loss, method in METHODS.items()]
        return known | {"options": [[NEXT_TOKEN, label, short], *losses]}
    choices = () if place is None else place.option.choices
    return known | {"options": [[chosen, choice(name, chosen), choice(name, chosen)] for chosen in choices]}


def context_options(answer: Answer) -> list[list[Any]]:
    """Lengths to choose from: powers of two, the one that the model was made for, and none beyond learned positions."""
    architecture = answer.model.architecture or answer.model.published.architecture
    made_for, chosen = architecture and architecture.max_positions, context(answer.scenario)
    most = architecture and architecture.learned_positions
    stops = {stop for stop in {*CONTEXTS, made_for or chosen} if most is None or stop <= most}

    def label(n: int) -> str:
        return say("{n}, as trained", n=tokens(n)) if n == made_for else tokens(n)

    return [[n, label(n), tokens(n)] for n in sorted({*stops, chosen})]


def texts() -> dict[str, str]:
    """Sentences of the script; {n} stands for the number that it fills in."""
    return {
        "label": say("The question"),
        "search": say("Words in any order"),
        "compare": say("{n} in the comparison too", n="{n}"),
        "several": say("{n} GPU types", n="{n}"),
        "none": say("no GPU"),
        "all": say("The usual {n} GPUs", n="{n}"),
        "from_hub": say("{n}, from the Hub", n="{n}"),
        "look": say("Look for “{n}” on the Hub", n="{n}"),
        "usual": say("{format} (default)", format="{n}"),
        "paste": say("Paste an error"),
        "pasted": say("A start-up log or an out-of-memory message of vLLM, SGLang, llama.cpp, Ollama or a trainer"),
        "read": say("Read it"),
    }


def take_log(key: str) -> None:
    """Put the text into the log reader, with the model that it names; for a callback of the element of this key."""
    text = st.session_state[key].get("log")
    if not isinstance(text, str) or not text.strip():
        return
    st.session_state.log, st.session_state.beside, st.session_state.is_pasted = text, "log", True
    with suppress(ConfigError):
        preset = named_preset(read_log(text).settings.model or "")
        if preset is not None and preset != st.session_state.scenario.source.model:
            choose(preset)


def lead_there(here: Page) -> None:
    """Take the reader to the log reader, once, where something was pasted elsewhere."""
    if st.session_state.pop("is_pasted", False) and here != VERIFY:
        lead(VERIFY)
