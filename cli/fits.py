"""`weighbridge fits MODEL --gpu ID ...`: a report whose answer is the exit status, for pipelines."""

from collections.abc import Sequence

from calc import Report, TrainingReport
from calc.errors import ConfigError, Message
from calc.serving.verdict import Verdict
from calc.training import TrainingVerdict
from cli import sharing
from cli.command import chosen_gpus, parser, run_one
from cli.options import answered, as_json

FITS, FITS_NOT, FITS_IF = 0, 1, 3
STATUS = {"fits": FITS, "fits with": FITS_IF, "tight": FITS_IF, "does not fit": FITS_NOT, "does not run": FITS_NOT}
"""Exit status of a verdict's word."""
SEVERITY = (FITS, FITS_IF, FITS_NOT)
"""Exit statuses from best to worst; the worst of several GPUs decides."""


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 where the model fits on every GPU that is named, 3 where it does with the flags that are printed
    or is tight, 1 where it does not fit or run, 2 for a question that can't be read."""
    command = parser("weighbridge fits")
    command.add_argument(
        "--share-with",
        dest="neighbours",
        action="append",
        default=[],
        metavar="MODEL[,context=N,batch=N,weights=FORMAT]",
        help="another model on the same GPUs, started after those before it; may be given several times; with "
        "--sleep-level 1 or 2 all but one sleep",
    )
    arguments = command.parse_args(argv)

    def compute() -> tuple[str, int]:
        if not arguments.gpu:
            raise ConfigError(Message("Say on which GPU: --gpu h100-sxm, or several."), "gpu")
        if arguments.other_steps:
            raise ConfigError(Message("weighbridge fits judges one step: --with is for reports."), "with")
        if arguments.neighbours:
            shared = sharing.sharing(arguments, chosen_gpus(arguments.gpu) or [])
            text = as_json(shared) if arguments.json else "\n".join(sharing.lines(shared))
            return text, FITS if shared.fits else FITS_NOT
        result, _, _ = run_one(arguments)
        status = max((STATUS[verdict.verdict] for verdict in result.verdicts), key=SEVERITY.index)
        return as_json(result) if arguments.json else lines(result), status

    return answered(compute)


def lines(result: Report | TrainingReport) -> str:
    """A line for each GPU: how many, the verdict's word, the flags that it needs, and why."""
    return "\n".join(map(line, result.verdicts))


def line(verdict: Verdict | TrainingVerdict) -> str:
    flags = verdict.flags if isinstance(verdict, Verdict) else ()
    return f"{verdict.gpus} x {verdict.gpu}: {' '.join((verdict.verdict, *flags))}. {verdict.reason}"
