from pages.parts.inputs import trying
from pages.parts.outputs import fitted, frame
from pages.parts.state.query import GPUS
from pages.parts.words import say

scenario = frame.without_model(GPUS, say("On all GPUs"))
match trying.view():
    case "models":
        fitted.models_on_a_gpu(trying.card_and_figure(scenario))
    case "formats":
        fitted.model_on_gpus(trying.model_and_figure(scenario))
    case _:
        fitted.roofline(trying.model_and_card(scenario))
