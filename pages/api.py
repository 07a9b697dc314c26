"""The pages' answers for programs: `/api/report`, `/api/train`, `/api/steps` and `/api/plan` take the query of a page's
link and give the JSON that the command line prints for the same question. What a link would leave out is an error
here."""

from collections.abc import Callable, Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from fastapi_offline import FastAPIOffline
from pydantic import BaseModel
from starlette.datastructures import QueryParams

from calc import ConfigError, Report, TrainingReport
from calc.errors import Message, shown
from calc.options import Option
from calc.time.disaggregated_plan import ranked_plans
from calc.time.plan_report import PlanReport, report_of
from calc.time.step_comparison import StepComparison
from calc.time.training_plan import TrainingPlanReport
from pages.parts.limits import ANSWERED
from pages.parts.state.planned import is_affordable, search_of
from pages.parts.state.published import Published, fetched, is_preset
from pages.parts.state.query import PLAN, STEPS, TRAIN, WEIGH, Page, decode
from pages.parts.state.scenario import Scenario, Source, places
from pages.parts.state.stepped import beside
from pages.parts.state.training_planned import planned_training
from pages.parts.state.weighed import Model, changed, trained, weighed

VERSION = "1"
"""Of the contract: a release that takes a field away, or gives one another meaning, opens a new one."""
PLANS = 20
"""That an answer lists, as on the command line."""
PRESENTATION = {"lang", "opened", "tab", "derive", "embed", "v", "with", "steps"}
"""What a link says of how a page is shown, and its generation: no number depends on it here, but for steps side by
side."""


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
    route(app, WEIGH, served, Report, "Parameters, memory, and which GPUs a model fits when it is served.")
    route(app, TRAIN, stepped, TrainingReport, "Memory of a training step, and which GPUs it fits.")
    route(app, STEPS, side_by_side, StepComparison, "Training steps side by side on one of the GPUs.")
    planned = PlanReport | TrainingPlanReport
    route(app, PLAN, planned_for, planned, "Which GPUs, laid out how, how fast, at what price.")
    app.add_exception_handler(NotAsked, refused)
    return app


def route(
    app: FastAPI,
    page: Page,
    answer: Callable[[Scenario, Model], BaseModel],
    kind: Any,
    summary: str,
) -> None:
    def answered(request: Request) -> Response:
        if not ANSWERED.allows(address(request)):
            sentence = f"{ANSWERED.most} answers a minute are the most that one address gets; wait a minute."
            return JSONResponse(Refusal(errors=[sentence]).model_dump(), 429)
        scenario, model = question(page, request)
        try:
            result = answer(scenario, model)
        except ConfigError as error:
            raise NotAsked(str(error), field=error.field) from None
        return Response(result.model_dump_json(indent=1) + "\n", media_type="application/json")

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
    """What the page's link may say; flags of an engine are those of the default one."""
    return [place.option for name, place in places(page.uses).items() if name not in presentation(page)]


def presentation(page: Page) -> set[str]:
    """What no number of a page depends on."""
    return PRESENTATION - {"steps"} if page == STEPS else PRESENTATION


def parameter(option: Option) -> Mapping[str, Any]:
    """As OpenAPI describes it."""
    kind = (
        "boolean" if option.is_switch else "integer" if option.is_whole else "number" if option.is_number else "string"
    )
    schema: dict[str, Any] = {"type": kind}
    if option.choices and not option.is_number:
        schema["enum"] = list(option.choices)
    return {
        "name": option.name,
        "in": "query",
        "required": False,
        "description": f"{option.description or ''} {option.expected}.".strip(),
        "schema": schema,
    }


def question(page: Page, request: Request) -> tuple[Scenario, Model]:
    """The scenario that a query means, and its model. Raises NotAsked where it would leave something out."""
    query = QueryParams(request.url.query)
    params = dict(query)
    for name in params:
        if (times := len(query.getlist(name))) > 1:
            raise NotAsked(f"The query says {shown(name)} {times:,} times.", field=name)
    known: dict[str, Published] = {}

    def settings(source: Source) -> Mapping[str, Any]:
        known["about"] = fetched(source, None, address(request))
        return known["about"].settings or {}

    asked_for = {name: text for name, text in params.items() if name == "v" or name not in presentation(page)}
    scenario, problems = decode(asked_for, page, Scenario(), settings)
    model = changed(scenario, known["about"])
    if model.error is not None:
        raise NotAsked(str(model.error), field=model.error.field)
    if problems:
        raise NotAsked(*map(wrong, problems))
    return scenario, model


def address(request: Request) -> str | None:
    """The IP address that asks."""
    return None if request.client is None else request.client.host


def wrong(problem: Message) -> str:
    """In English, what a page says that it left out, where nothing is."""
    if problem.values.keys() != {"name", "value", "why"}:
        return str(problem)
    return "The query says {name}={value}: {why}.".format(**problem.values).replace("..", ".")


async def refused(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, NotAsked)
    return JSONResponse(error.refusal.model_dump(), 422)


def served(scenario: Scenario, model: Model) -> Report:
    answer = weighed(scenario, model)
    if answer.error is not None:
        raise answer.error
    return answer.report


def stepped(scenario: Scenario, model: Model) -> TrainingReport:
    answer = trained(scenario, model)
    if answer.error is not None:
        raise answer.error
    return answer.report


def side_by_side(scenario: Scenario, model: Model) -> StepComparison:
    """The step of the query first, then those of its `steps`."""

    def known(source: Source) -> Published:
        """The model of the query, a preset, or a config within the link: the Hub is asked for no further model."""
        if source == scenario.source:
            return model.published
        if not is_preset(source) and source.pasted is None:
            sentence = "A step beside the first has its model, or a preset: {name} is none."
            raise ConfigError(Message(sentence, name=shown(source.model)), "steps")
        return fetched(source, None, None)

    answer = beside(scenario, trained(scenario, model), known)
    for _, step in answer.lettered:
        if step.error is not None:
            raise step.error
    if answer.comparison is None:
        raise ConfigError(Message("Steps are compared on a GPU: gpu names none."), "gpu")
    return answer.comparison


def planned_for(scenario: Scenario, model: Model) -> PlanReport | TrainingPlanReport:
    """Plans of a server, or with `purpose=train` of a training run."""
    planning = scenario.planning
    if planning.purpose == "train":
        return planned_training(scenario, model)
    search = search_of(scenario, model)
    plans = [plan for plan in ranked_plans(search, PLANS) if is_affordable(plan, planning.budget)]
    return report_of(search, plans, model.identifier(scenario), planning.prices)
