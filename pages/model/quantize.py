from pages.parts.inputs import quantizing as inputs
from pages.parts.outputs import frame, quantizing
from pages.parts.screen import caption
from pages.parts.state.query import QUANTIZE
from pages.parts.state.weighed import quantized

answer = frame.page(QUANTIZE, quantized, *inputs.SECTIONS)
caption("Memory and disk of the conversion itself, by the tool's own code; formulas below.")
quantizing.verdicts(answer)
quantizing.phases(answer)
frame.assumptions(answer.report.assumptions)
