from functools import partial

from pages.parts import words
from pages.parts.inputs import training
from pages.parts.outputs import charts, frame, from_other_pages, paper, plot, training_answer, training_time
from pages.parts.state.query import TRAIN
from pages.parts.state.scenario import Tab
from pages.parts.state.weighed import Trained, trained
from pages.parts.words import say


def train(answer: Trained) -> None:
    report = answer.report
    training.starts(answer)
    from_other_pages.on_train(answer)
    training_answer.draw(answer)
    training_answer.parts(answer)
    training_answer.gpus(answer)
    training_answer.levers(answer)
    training_time.draw(answer)
    training_answer.totals(answer)
    paper.link(answer, "training")

    def against_each_gpu() -> None:
        memories = [charts.peak_of(rollout) for rollout in report.rollouts] or report.memories
        bars = charts.gpu_bars(report.verdicts, memories, charts.trained(memories))
        plot.draw("gpus", say("Memory vs. GPU capacity"), bars)
        if len(report.stages) > 1:
            by_stage = charts.stage_bars(report.stages, charts.trained(report.stages))
            plot.draw("stages", say("Memory per pipeline stage"), by_stage, titled=True)

    def over_the_sequence() -> None:
        by_length = {words.tokens(tokens): memory for tokens, memory in report.by_sequence.items()}
        bars = charts.step_bars(by_length, say("Sequence length, tokens"))
        plot.draw("sequences", say("Memory vs. sequence length"), bars)

    drawn: dict[Tab, frame.Section] = {
        "gpus": (say("Memory vs. GPU capacity"), against_each_gpu),
        "number": (say("By number of GPUs"), partial(training_answer.by_number, answer)),
        "step": (say("Memory vs. phase of the step"), partial(training_answer.timeline, answer)),
        "length": (say("Memory vs. sequence length"), over_the_sequence),
    }
    with_engine: tuple[Tab, ...] = ("step", "gpus", "length")
    frame.open_section({tab: drawn[tab] for tab in with_engine} if report.rollouts else drawn)
    frame.assumptions(report.assumptions)


frame.quick_page(TRAIN, trained, train, *training.SECTIONS)
