from pages.parts.outputs import catalogue, frame
from pages.parts.screen import caption, heading
from pages.parts.state.query import HARDWARE

scenario = frame.without_model(HARDWARE)
catalogue.draw()
heading("A GPU of your own")
caption("It is part of the link, has a verdict on Weigh, and is among the GPUs of plans.")
catalogue.own_gpus(scenario)
