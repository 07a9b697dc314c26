from pages.parts.inputs import planning
from pages.parts.outputs import fitted, frame, from_other_pages
from pages.parts.state.query import GPUS
from pages.parts.state.weighed import looked

scenario = frame.without_model(GPUS)
planning.map_controls(scenario)
from_other_pages.on_gpus(scenario)
match scenario.hardware.view:
    case "models":
        fitted.models_on_a_gpu(scenario)
    case "formats":
        fitted.model_on_gpus(looked(scenario))
    case "roofline":
        fitted.roofline(looked(scenario))
