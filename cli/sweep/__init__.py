"""`weighbridge sweep GRID.toml --out rows.parquet`: models x GPUs x engines x formats x layouts x workloads as rows."""

import gc
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from calc import ConfigError
from cli.options import Parser, bad_question
from cli.sweep.grid import Part, read_grid
from cli.sweep.rows import table
from cli.sweep.store import Store

CUT = 130
"""Exit status of a sweep that was interrupted, as of a shell's command."""
SECONDS = 10.0
"""Seconds that a Dask cluster may take to answer."""


def parser(prog: str = "weighbridge sweep") -> Parser:
    about = "Weigh every combination of a grid. The same command resumes where it was cut off."
    p = Parser(prog=prog, description=about, allow_abbrev=False)
    p.add_argument("grid", metavar="GRID.toml", help="models, gpus, engines, weights, kv, layouts, context, batch")
    p.add_argument("--out", type=Path, required=True, metavar="ROWS.parquet", help="where the rows go")
    p.add_argument("--jobs", type=int, default=-1, metavar="N", help="processes (default: all cores)")
    p.add_argument("--dask", metavar="ADDRESS", help="scheduler of a Dask cluster whose workers have weighbridge")
    return p


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    missing = [name for name in ("pyarrow", "joblib", "tqdm") if find_spec(name) is None]
    if arguments.dask is not None and find_spec("distributed") is None:
        missing.append("distributed")
    if missing:
        print(f"A sweep needs {', '.join(missing)}: pip install 'weighbridge[sweep]' adds it.", file=sys.stderr)
        return 2
    try:
        parts = read_grid(arguments.grid)
        store = Store(arguments.out, parts)
        if store.is_finished:
            print(f"{arguments.out} has all rows already.")
            return 0
        store.open()
        sweep(store, parts, arguments.jobs, arguments.dask)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    except OSError as error:
        print(f"{error.filename or arguments.out} can't be written: {error.strerror}.", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("Cut off: the same command goes on from here.", file=sys.stderr)
        return CUT
    return 0


def sweep(store: Store, parts: Sequence[Part], jobs: int, dask: str | None) -> None:
    """Weighs the parts that are not there yet, then joins all. Raises ConfigError where workers can't be had."""
    from tqdm import tqdm

    missing = [part for part in parts if not store.file(part).exists()]
    rows = sum(part.rows for part in parts)
    done = rows - sum(part.rows for part in missing)
    start = time.perf_counter()
    with tqdm(total=rows, initial=done, unit=" rows", disable=None) as bar:
        for part, weighed in every(missing, jobs, dask):
            store.write(part, weighed)
            bar.update(part.rows)
    store.finish(parts)
    seconds = time.perf_counter() - start
    print(f"{store.out}: {rows:,} rows, {rows - done:,} of them new in {seconds:,.1f} s.")


def every(parts: Sequence[Part], jobs: int, dask: str | None) -> Iterator[tuple[Part, Any]]:
    """Each part with its table, as soon as a worker has it."""
    from joblib import Parallel, delayed, parallel_config
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    engine: dict[str, Any] = {"backend": "loky", "n_jobs": jobs}
    with ExitStack() as stack:
        if dask is not None:
            engine = {"backend": "dask", "n_jobs": -1, "client": stack.enter_context(connected(dask))}
        stack.enter_context(parallel_config(**engine))
        try:
            yield from Parallel(return_as="generator_unordered", batch_size=1)(delayed(weigh)(part) for part in parts)
        except TerminatedWorkerError:
            raise bad_question(
                "A worker was killed, perhaps for lack of memory. Run the same command with fewer --jobs: it resumes."
            ) from None


def connected(address: str) -> Any:
    """A client of a Dask cluster that has a worker. Raises ConfigError."""
    from distributed import Client

    try:
        client = Client(address, timeout=SECONDS)  # type: ignore[no-untyped-call]
        client.wait_for_workers(1, timeout=SECONDS)
    except (OSError, ValueError) as error:
        raise bad_question("No Dask workers at {address}: {why}.", address=address, why=str(error)) from None
    return client


def weigh(part: Part) -> tuple[Part, Any]:
    """The work of one worker. The objects of its libraries stay: the garbage collector need not go through them."""
    if not gc.get_freeze_count():
        gc.freeze()
    return part, table(part)
