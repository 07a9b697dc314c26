"""python -m benchmarks.oracle.interleaved > tests/data/interleaved.json: in which order torch's interleaved 1F1B runs
the pieces of each pipeline stage (torch/distributed/pipelining/schedules.py, `ScheduleInterleaved1F1B`)."""

import json
from typing import Any

from torch import __version__
from torch.distributed.pipelining.schedules import ScheduleInterleaved1F1B

CASES = ((2, 2, 2), (2, 2, 4), (2, 3, 8), (3, 2, 6), (4, 2, 4), (4, 2, 8), (4, 4, 16), (8, 2, 24), (8, 3, 8))
"""Stages, pieces of each, micro-batches."""


def orders(stages: int, pieces: int, batches: int) -> list[str]:
    """One text a stage: f3 is the fourth piece forward, b0 the first one backward."""
    schedule: Any = object.__new__(ScheduleInterleaved1F1B)
    schedule.pp_group_size, schedule.n_local_stages, schedule._n_microbatches = stages, pieces, batches
    schedule.number_of_rounds = max(1, batches // stages)
    schedule.microbatches_per_round = batches // schedule.number_of_rounds
    ranks = ([one for one in schedule._calculate_single_rank_operations(rank) if one] for rank in range(stages))
    return [
        " ".join(
            f"{'f' if one.computation_type.name == 'FORWARD' else 'b'}{one.stage_index // stages}" for one in actions
        )
        for actions in ranks
    ]


def main() -> None:
    cases = [
        dict(zip(("stages", "pieces", "batches"), case, strict=True)) | {"orders": orders(*case)} for case in CASES
    ]
    print(json.dumps({"source": f"torch {__version__}, ScheduleInterleaved1F1B", "cases": cases}, indent=1))


if __name__ == "__main__":
    main()
