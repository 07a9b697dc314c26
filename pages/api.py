"""The pages' answers for programs: an address below `/api` takes the query of a page's link and gives as JSON what it
shows: `/api/report`, `/api/train`, `/api/steps` and `/api/plan` what the command line prints for the same question.
What a link would leave out is an error here."""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from fastapi_offline import FastAPIOffline
from pydantic import BaseModel
from starlette.datastructures import QueryParams

from calc import ConfigError, Report, TrainingReport
from calc.errors import Message, shown
from calc.hardware import GPU
from calc.options import Option
from calc.quantizing import QuantizingReport
from calc.serving import MOST_TOKENS
from calc.serving.shared_gpus import SharedGPUs
from calc.time import MAPPED, OperatingPoint, PlanReport, StepComparison, TrainingPlanReport, ranked_plans, report_of
from calc.time.local import LocalRun
from pages.parts.limits import ANSWERED
from pages.parts.state import query, session
from pages.parts.state.compared import compared, shared, step_scenario, stepped
from pages.parts.state.fitted import models_on, of_scenario, points_on
from pages.parts.state.local import local_answer
from pages.parts.state.planned import is_affordable, search_of, training_planned
from pages.parts.state.published import is_preset, published
from pages.parts.state.query import Page, decode, place_of
from pages.parts.state.scenario import Scenario, Source, places
from pages.parts.state.weighed import AnswerT, Reported, looked, quantized, read, trained, weighed
from pages.parts.verify.evidence import Accuracy, accuracy
from presets import gpus

VERSION = "1"
"""Version of the contract: a release that takes a field away, or gives one another meaning, opens a new one."""
PLANS = 20
"""Plans in an answer, as on the command line."""
PRESENTATION = {"lang", "opened", "tab", "derive", "embed", "v"}
"""Query names of how a page is shown, and of its generation: no number depends on them here."""
OTHERS = {query.COMPARE: "with", query.STEPS: "steps", query.TOGETHER: "share_with"}
"""Query names of others next to the first; an answer here is of one alone."""


class LocalFiles(BaseModel):
    """The file that does best on a machine, and all of them by their names, the largest first."""

    model: str
    best: LocalRun
    files: dict[str, LocalRun]


class Fit(BaseModel):
    """A model on a GPU in one format."""

    max_context: int | None
    """Tokens of one sequence; None where memory sets no limit, nor does the model."""
    tokens_per_s: float | None
    """None where the model makes no tokens."""


class FitsWhere(BaseModel):
    """Fitting combinations, by id and format: models on a GPU, or a model on all GPUs that the engine runs on."""

    engine: str
    fits: dict[str, dict[str, Fit]]


class Roofline(BaseModel):
    """Passes of a model under the roofline of a GPU."""

    gpu: str
    passes: dict[str, OperatingPoint]


class Reports(BaseModel):
    """A report of each model, by its letter."""

    reports: dict[str, Report]


class Catalogue(BaseModel):
    """Every GPU that is known."""

    gpus: tuple[GPU, ...]


class Refusal(BaseModel):
    """Why there is no answer: a sentence for people each, and the field that the first is about, where it is one."""

    errors: list[str]
    field: str | None = None


class NotAsked(Exception):
    """A question that can't be answered."""

    def __init__(self, *sentences: str, field: str | None = None) -> None:
        super().__init__(*sentences)
        self.refusal = Refusal(errors=list(sentences), field=field)


def api() -> FastAPI:
    """The application below `/api`; its documentation is at `/api/docs`, from this server alone."""
    app: FastAPI = FastAPIOffline(title="Weighbridge", version=VERSION, description=__doc__, redoc_url=None)
    route(
        app,
        query.WEIGH,
        reported(weighed),
        Report,
        "Parameters, memory, and which GPUs a model fits when it is served.",
    )
    route(app, query.TRAIN, reported(trained), TrainingReport, "Memory of a training step, and which GPUs it fits.")
    route(app, query.STEPS, side_by_side, StepComparison, "Training steps side by side on one of the GPUs.")
    planned = PlanReport | TrainingPlanReport
    route(app, query.PLAN, planned_for, planned, "Which GPUs, laid out how, how fast, at what price.")
    conversion = "What quantizing a model takes of GPU, host memory and disk."
    route(app, query.QUANTIZE, reported(quantized), QuantizingReport, conversion)
    route(app, query.MACHINE, local_files, LocalFiles, "Files of a model on a machine: what lies where, how fast.")
    route(app, query.GPUS, fits, FitsWhere | Roofline, "What fits where, in which format, how long, how fast.")
    route(app, query.COMPARE, reports, Reports, "Models next to each other: a report each.")
    route(app, query.ACCURACY, lambda _: accuracy(), Accuracy, "Computed figures next to those that others measured.")
    everything = Catalogue(gpus=tuple(gpus().values()))
    route(app, query.HARDWARE, lambda _: everything, Catalogue, "The GPUs with their sources.")
    together = "Several models on the same GPUs, each with its share, on one of the GPUs."
    route(app, query.TOGETHER, sharing, SharedGPUs, together)
    app.add_exception_handler(NotAsked, refused)
    return app


def route(app: FastAPI, page: Page, answer: Callable[[Scenario], BaseModel], kind: Any, summary: str) -> None:
    def answered(request: Request) -> Response:
        if not ANSWERED.allows(address(request)):
            sentence = f"{ANSWERED.most} answers a minute are the most that one address gets; wait a minute."
            return JSONResponse(Refusal(errors=[sentence]).model_dump(), 429)
        scenario = question(page, request)
        try:
            result = answer(scenario)
        except ConfigError as error:
            raise NotAsked(str(error), field=error.field) from None
        text = json.dumps(result.model_dump(mode="json"), indent=1, ensure_ascii=False)
        return Response(f"{text}\n", media_type="application/json")

    app.add_api_route(
        f"/{page.answers_at}",
        answered,
        name=page.answers_at,
        summary=summary,
        response_class=Response,
        responses={
            200: {"model": kind, "description": "As --json prints it."},
            422: {"model": Refusal, "description": "The question can't be answered: sentences that say why."},
            429: {"model": Refusal, "description": "This address asks too often."},
        },
        openapi_extra={"parameters": list(map(parameter, parameters(page)))},
    )


def parameters(page: Page) -> list[Option]:
    """Query names that the page's link may have; flags of an engine are those of the default one."""
    known = places(page.uses).items()
    return [place.option for name, place in known if name not in ignored(page) and page.answers(place)]


def ignored(page: Page) -> set[str]:
    """Names of a link that change nothing of a page's answer."""
    return PRESENTATION | {name for of, name in OTHERS.items() if of != page}


def parameter(option: Option) -> Mapping[str, Any]:
    """Parameter in OpenAPI."""
    kinds = {"boolean": option.is_switch, "integer": option.is_whole, "number": option.is_number, "string": True}
    schema: dict[str, Any] = {"type": next(kind for kind, is_so in kinds.items() if is_so)}
    if option.choices and not option.is_number:
        schema["enum"] = list(option.choices)
    return {
        "name": option.name,
        "in": "query",
        "required": False,
        "description": f"{option.description or ''} {option.expected}.".strip(),
        "schema": schema,
    }


def question(page: Page, request: Request) -> Scenario:
    """The scenario that a query means. Raises NotAsked where it would leave something out."""
    session.PROGRAM.set(session.Program({}, address(request)))
    link = QueryParams(request.scope["query_string"])
    params = dict(link)
    for name in params:
        if (times := len(link.getlist(name))) > 1:
            raise NotAsked(f"The query says {shown(name)} {times:,} times.", field=name)
    asked_for = {name: text for name, text in params.items() if name == "v" or name not in ignored(page)}
    scenario, problems = decode(asked_for, page, Scenario(), lambda source: published(source).settings or {})
    if (error := read(scenario).error) is not None:
        raise NotAsked(str(error), field=error.field)
    if problems:
        raise NotAsked(*map(wrong, problems))
    for name in asked_for:
        if not is_of(page, name, asked_for, scenario):
            sentence = f"The query says {name}={shown(params[name])}: it changes nothing of this answer."
            raise NotAsked(sentence, field=name)
    return scenario


def is_of(page: Page, name: str, params: Mapping[str, str], scenario: Scenario) -> bool:
    """Whether a name of a query is one that the page's answer depends on, and not another page's."""
    place = place_of(name, page, params, scenario.serving.engine)
    if place is None or (name == "engine" and page.has_engine):
        return True
    return place.path[0] in page.uses and page.answers(place, scenario)


def address(request: Request) -> str | None:
    """The IP address that asks."""
    return None if request.client is None else request.client.host


def wrong(problem: Message) -> str:
    """Sentence in English on what a page would have left out."""
    if problem.values.keys() != {"name", "value", "why"}:
        return str(problem)
    return "The query says {name}={value}: {why}.".format(**problem.values).replace("..", ".")


async def refused(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, NotAsked)
    return JSONResponse(error.refusal.model_dump(), 422)


def sound(answer: AnswerT) -> AnswerT:
    """The answer. Raises ConfigError where an error stands in its place."""
    if answer.error is not None:
        raise answer.error
    return answer


def reported(calculate: Callable[[Scenario], Reported[Any]]) -> Callable[[Scenario], BaseModel]:
    """The report of a calculation. Raises ConfigError where there is none."""
    return lambda scenario: sound(calculate(scenario)).report


def side_by_side(scenario: Scenario) -> StepComparison:
    """The step of the query first, then those of its `steps`, whose models are that of the query, presets, or configs
    within the link: the Hub is asked for no further model."""
    for text in scenario.comparison.steps:
        source = step_scenario(text, scenario, lambda source: {})[0].source
        if source != scenario.source and source.pasted is None and not is_preset(source):
            sentence = "Further training steps have the model of the first, or a preset: {name} is neither."
            raise ConfigError(Message(sentence, name=shown(source.model)), "steps")
    answer = stepped(scenario)
    for _, step in answer.lettered:
        sound(step)
    if answer.comparison is None:
        raise ConfigError(Message("No GPU is named: gpu=… says on which one the steps are compared."), "gpu")
    return answer.comparison


def sharing(scenario: Scenario) -> SharedGPUs:
    """Shares of a GPU; for a stranger's question the Hub is asked about the first model alone."""
    only_presets((Source(model=other.model) for other in scenario.sharing.share_with), "share_with")
    answer = sound(shared(scenario))
    if answer.focus is None:
        raise ConfigError(Message("No GPU is named: gpu=… says which kind the models share."), "gpu")
    return answer.focus


def planned_for(scenario: Scenario) -> PlanReport | TrainingPlanReport:
    """Plans of a server, or with `purpose=train` of a training run."""
    planning = scenario.planning
    if planning.purpose == "train":
        return sound(training_planned(scenario)).report
    model = read(scenario)
    search = search_of(scenario, model)
    plans = [plan for plan in ranked_plans(search, PLANS) if is_affordable(plan, planning.budget)]
    return report_of(search, plans, model.identifier(scenario), model.served(scenario))


def local_files(scenario: Scenario) -> LocalFiles:
    answer = sound(local_answer(scenario))
    files = {row.name: row.run for row in answer.files}
    return LocalFiles(model=answer.model.identifier(scenario), best=answer.best, files=files)


def fits(scenario: Scenario) -> FitsWhere | Roofline:
    """Figures of the link's view."""
    choice, name, answer = scenario.hardware, scenario.serving.engine, looked(scenario)
    if name not in MAPPED:
        some = ", ".join(MAPPED)
        raise ConfigError(Message("engine is one of {some} here.", some=some), "engine", MAPPED)
    if choice.view == "roofline":
        _, points = points_on(answer, name)
        return Roofline(gpu=choice.card, passes={str(point.what): point for point in points})
    if choice.view == "models":
        fitting = models_on(choice.card, choice.cards, choice.length, name)
    else:
        _, fitting = of_scenario(answer, name)
    rows = {
        row: {
            form: Fit(max_context=int(longest) if longest < MOST_TOKENS else None, tokens_per_s=float(rate) or None)
            for form, longest, rate in zip(fitting.formats, lengths, rates, strict=True)
            if longest > 0
        }
        for row, lengths, rates in zip(fitting.names, fitting.max_context, fitting.tokens_per_s, strict=True)
    }
    return FitsWhere(engine=name, fits={row: formats for row, formats in rows.items() if formats})


def reports(scenario: Scenario) -> Reports:
    """Reports; for a stranger's question the Hub is asked about the first model alone."""
    only_presets((other.source for other in scenario.comparison.others), "with")
    return Reports(reports={column.letter: sound(column.answer).report for column in compared(scenario).columns})


def only_presets(sources: Iterable[Source], field: str) -> None:
    """Raise ConfigError for a model that is no preset."""
    for source in sources:
        if not is_preset(source):
            raise ConfigError(
                Message("Further models must be presets: {name} is not one.", name=shown(source.model)), field
            )
