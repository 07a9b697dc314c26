from pages.parts.inputs import training
from pages.parts.outputs import frame, steps
from pages.parts.state.compared import Stepped, stepped
from pages.parts.state.query import STEPS

answer: Stepped = frame.page(STEPS, stepped, *training.SECTIONS)
steps.headings(answer)
steps.figures(answer)
