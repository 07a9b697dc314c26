"""`weighbridge fits MODEL --gpu ID ...`: a report whose answer is the exit status, for pipelines."""

import json
import sys
from collections.abc import Sequence

from calc import Report, TrainingReport
from calc.errors import ConfigError, Message
from calc.serving.shared_gpus import SharedGPUs
from calc.serving.verdict import Verdict
from calc.training.verdict import TrainingVerdict
from cli import sharing
from cli.command import chosen_gpus, parser, run_one

FITS, FITS_NOT, BAD_QUESTION, FITS_IF = 0, 1, 2, 3
STATUS = {"fits": FITS, "fits with": FITS_IF, "tight": FITS_IF, "does not fit": FITS_NOT, "does not run": FITS_NOT}
"""Exit status of a verdict's word."""
SEVERITY = (FITS, FITS_IF, FITS_NOT)
"""Exit statuses from best to worst; the worst of several GPUs decides."""


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 where the model fits on every GPU that is named, 3 where it does with the flags that are printed
    or is tight, 1 where it does not fit or run, 2 for a question that can't be read."""
    asked = parser("weighbridge fits")
    asked.add_argument(
        "--share-with",
        dest="neighbours",
        action="append",
        default=[],
        metavar="MODEL[,context=N,batch=N,weights=FORMAT]",
        help="another model on the same GPUs, started after those before it; may be given several times",
    )
    arguments = asked.parse_args(argv)
    try:
        if not arguments.gpu:
            raise ConfigError(Message("Say on which GPU: --gpu h100-sxm, or several."), "gpu")
        if arguments.beside:
            raise ConfigError(Message("weighbridge fits judges one step: --with is for reports."), "with")
        if arguments.neighbours:
            return printed_shares(sharing.sharing(arguments, chosen_gpus(arguments.gpu) or []), as_json=arguments.json)
        result, _, _ = run_one(arguments)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return BAD_QUESTION
    print(json.dumps(result.model_dump(mode="json"), indent=1, ensure_ascii=False) if arguments.json else lines(result))
    return max((STATUS[verdict.verdict] for verdict in result.verdicts), key=SEVERITY.index)


def printed_shares(shared: SharedGPUs, *, as_json: bool) -> int:
    """Prints how models share GPUs; exit status 0 where all of them start, else 1."""
    if as_json:
        print(json.dumps(shared.model_dump(mode="json"), indent=1, ensure_ascii=False))
    else:
        print("\n".join(sharing.lines(shared)))
    return FITS if shared.fits else FITS_NOT


def lines(result: Report | TrainingReport) -> str:
    """A line for each GPU: how many, the verdict's word, the flags that it needs, and why."""
    return "\n".join(map(line, result.verdicts))


def line(verdict: Verdict | TrainingVerdict) -> str:
    flags = verdict.flags if isinstance(verdict, Verdict) else ()
    return f"{verdict.gpus} x {verdict.gpu}: {' '.join((verdict.verdict, *flags))}. {verdict.reason}"
