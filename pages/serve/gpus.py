from pages.parts.inputs import trying
from pages.parts.outputs import fitted, frame
from pages.parts.state.query import GPUS

scenario = frame.without_model(GPUS)
match trying.view():
    case "models":
        fitted.models_on_a_gpu(trying.card_and_figure(scenario))
    case "formats":
        fitted.model_on_gpus(trying.model_and_figure(scenario))
    case _:
        fitted.roofline(trying.model_and_card(scenario))
