"""What a plan trades: tokens a second for each user against tokens a second of each GPU."""

import numpy as np

from calc.errors import Frozen
from calc.formats import CacheFormat, WeightFormat
from calc.hardware.parallel import Layout
from calc.time.arrays import Array, Indices
from calc.time.plan import Search


class Point(Frozen):
    """A layout with so many sequences on each replica: what one user gets, and what a GPU yields."""

    gpu: str
    layout: Layout
    weights: WeightFormat
    kv: CacheFormat
    batch: int
    tokens_per_s_per_user: float
    tokens_per_s_per_gpu: float


def frontier(search: Search) -> list[Point]:
    """The points than which none of those tried is better in both, the most for a user first. Targets do not count."""
    rows = search.rows
    if not rows.shard.size:
        return []
    batches, server = search.batches(rows), search.server(rows)
    token, step = (
        np.concatenate([of(batch[:, None]) for batch in batches.T], axis=1) for of in (server.token, server.step)
    )
    users, yields = (1 / token).ravel(), (batches / step / rows.gpus[:, None]).ravel()
    tried = np.arange(users.size)
    while True:
        best = tried[best_in_both(users[tried], yields[tried])]
        chosen = [(index // batches.shape[1], int(batches.flat[index])) for index in best.tolist()]
        fitting = np.array([search.allocation(rows, *row).surely_fits for row in chosen])
        if fitting.all():
            break
        tried = np.setdiff1d(tried, best[~fitting])
    return [point(search, *row, users[index], yields[index]) for row, index in zip(chosen, best.tolist(), strict=True)]


def best_in_both(users: Array, yields: Array) -> Indices:
    """Places of those than which none is better in both, the most for a user first."""
    order = np.lexsort((-yields, -users))
    best = np.maximum.accumulate(yields[order])
    return np.asarray(order[np.concatenate([[True], best[1:] > best[:-1]])])


def point(search: Search, row: int, batch: int, user: float, of_gpu: float) -> Point:
    rows = search.rows
    precision = search.precisions[rows.form[row]]
    return Point(
        gpu=search.gpus[rows.kind[row]].id,
        layout=rows.layout_of(row),
        weights=precision.weights,
        kv=precision.kv,
        batch=batch,
        tokens_per_s_per_user=float(user),
        tokens_per_s_per_gpu=float(of_gpu),
    )
