from pages.parts.inputs import objective, training
from pages.parts.outputs import frame, steps
from pages.parts.state.compared import Stepped, stepped
from pages.parts.state.query import STEPS

answer: Stepped = frame.page(
    STEPS, stepped, training.step, objective.loss, training.spread, training.details, training.overhead
)
steps.headings(answer)
steps.figures(answer)
