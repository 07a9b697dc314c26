from pages.parts.inputs import trying
from pages.parts.outputs import carried, fitted, frame
from pages.parts.state.query import GPUS
from pages.parts.state.weighed import looked

scenario = frame.without_model(GPUS)
trying.controls(scenario)
carried.on_gpus(scenario)
match scenario.hardware.view:
    case "models":
        fitted.models_on_a_gpu(scenario)
    case "formats":
        fitted.model_on_gpus(looked(scenario))
    case "roofline":
        fitted.roofline(looked(scenario))
