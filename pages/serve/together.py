from pages.parts.inputs import serving
from pages.parts.outputs import frame, shared_gpus
from pages.parts.state.query import TOGETHER
from pages.parts.state.shared import Shared, shared

answer: Shared = frame.page(TOGETHER, shared, serving.engine, serving.overhead, needs_answer=False)
shared_gpus.one_gpu(answer)
shared_gpus.choose(answer)
shared_gpus.neighbours(answer)
shared_gpus.figures(answer)
