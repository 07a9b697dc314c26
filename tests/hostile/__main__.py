"""python -m tests.hostile [INPUTS] [--seed N] [--door NAME] [--number N]: what strangers' inputs do."""

import argparse
import faulthandler
import logging
import warnings
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, process_time

from tests.hostile.harm import READ, Harm, drawn, harm_of
from tests.hostile.hub import reading_hub
from tests.hostile.inputs import DOORS

SHARES = {"link": 0.25, "paste": 0.35, "upload": 0.2, "command": 0.1, "hub": 0.1}
"""Of the inputs for each door."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("inputs", type=int, nargs="?", default=1000, help="how many (default 1000)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--door", choices=tuple(DOORS), help="one door alone")
    parser.add_argument("--number", type=int, help="one input alone, which is printed")
    parser.add_argument("--first", type=int, default=0, help="the number of the first")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    shares = SHARES if given.door is None else {given.door: 1.0}
    with ExitStack() as stack:
        read = READ | {"hub": stack.enter_context(reading_hub(Path(stack.enter_context(TemporaryDirectory()))))}
        if given.number is not None:
            value = drawn(given.door, given.seed, given.number)
            print(repr(value)[:5000])
            print(harm_of(read[given.door], value) or "no harm")
            return
        harms, start, cpu, number = list[Harm](), monotonic(), process_time(), Counter[str]()
        for door, share in shares.items():
            for n in range(given.first, given.first + round(given.inputs * share)):
                faulthandler.dump_traceback_later(120, exit=True)
                what = harm_of(read[door], drawn(door, given.seed, n))
                number[door] += 1
                if what is not None:
                    harms.append(Harm(door, n, what))
                    print(*harms[-1], flush=True)
        faulthandler.cancel_dump_traceback_later()
    print(f"{dict(number)}: {len(harms)} did harm; {monotonic() - start:.0f} s, {process_time() - cpu:.0f} s of CPU.")


if __name__ == "__main__":
    main()
