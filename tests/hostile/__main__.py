"""python -m tests.hostile [INPUTS] [--seed N] [--door NAME] [--number N] [--corpus]: what strangers' inputs do."""

import argparse
import faulthandler
import logging
import warnings
from collections import Counter
from contextlib import ExitStack
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, process_time

from tests.hostile.corpus import CORPUS
from tests.hostile.harm import READ, Harm, drawn, harm_of
from tests.hostile.hub import reading_hub
from tests.hostile.inputs import DOORS

TURNS = (
    *("link", "paste", "upload", "address", "command", "link", "paste", "upload", "hub", "paste"),
    *("address", "tool", "sharing", "grid", "host", "doctor", "conversion", "host", "doctor"),
)
"""Whose input is next, over and over."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("inputs", type=int, nargs="?", default=1000, help="how many (default 1000)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--door", choices=tuple(DOORS), help="one door alone")
    parser.add_argument("--number", type=int, help="one input alone, which is printed")
    parser.add_argument("--corpus", action="store_true", help="what did harm once, instead")
    parser.add_argument("--minutes", type=float, default=1e9, help="after which it ends")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    turns = TURNS if given.door is None else (given.door,)
    with ExitStack() as stack:
        read = READ | {"hub": stack.enter_context(reading_hub(Path(stack.enter_context(TemporaryDirectory()))))}
        if given.number is not None:
            value = drawn(given.door, given.seed, given.number)
            print(repr(value)[:5000])
            print(harm_of(read[given.door], value) or "no harm")
            return
        if given.corpus:
            harms_of = {name: harm_of(read[door], value) for name, (door, value) in CORPUS.items()}
            print(*(f"{name}: {harm}" for name, harm in harms_of.items() if harm is not None), sep="\n")
            print(f"{len(CORPUS)} inputs of the corpus were read.")
            return
        harms, start, cpu, number = list[Harm](), monotonic(), process_time(), Counter[str]()
        for door in islice(cycle(turns), given.inputs):
            if monotonic() - start > 60 * given.minutes:
                break
            faulthandler.dump_traceback_later(120, exit=True)
            what = harm_of(read[door], drawn(door, given.seed, number[door]))
            if what is not None:
                harms.append(Harm(door, number[door], what))
                print(*harms[-1], flush=True)
            number[door] += 1
        faulthandler.cancel_dump_traceback_later()
    print(f"{dict(number)}: {len(harms)} did harm; {monotonic() - start:.0f} s, {process_time() - cpu:.0f} s of CPU.")


if __name__ == "__main__":
    main()
