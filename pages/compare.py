from pages.parts.inputs import serving
from pages.parts.outputs import comparison, frame, paper
from pages.parts.state.compared import Compared, compared
from pages.parts.state.query import COMPARE

answer: Compared = frame.page(COMPARE, compared, *serving.SECTIONS)
comparison.configurations(answer)
comparison.numbers(answer)
paper.link(answer, "memory")
comparison.bars(answer)
comparison.growth(answer)
comparison.settings(answer)
