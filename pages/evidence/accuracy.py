from pages.parts.outputs import frame
from pages.parts.screen import paragraph
from pages.parts.state.query import ACCURACY
from pages.parts.verify import accuracy as shown
from pages.parts.verify import evidence, speeds, startups
from pages.parts.words import say


def memory() -> None:
    figures = evidence.accuracy()
    paragraph(
        "Computed figures beside **{n}** that people published from their own GPUs: start-up logs of engines, "
        "benchmarks, training runs; and beside **{tracked}** training steps that torch itself computed, where no "
        "setting is left to be guessed. Each is computed from the settings that its source states, with the "
        "formulas of the other pages.",
        n=len(figures.rows) - figures.tracked,
        tracked=figures.tracked,
    )
    shown.kinds(figures)
    shown.scatter(figures)
    shown.table(figures)
    shown.left_out(figures)


def speed() -> None:
    speeds.draw(evidence.speeds())
    speeds.draw_servers(evidence.servers())
    speeds.draw_offloaded()


frame.without_model(ACCURACY)
frame.open_section(
    {
        "memory": (say("Memory"), memory),
        "starts": (say("Start-ups"), lambda: startups.draw(evidence.startups())),
        "speed": (say("Speed"), speed),
    }
)
