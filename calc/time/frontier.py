"""What a plan trades: tokens a second for each user against tokens a second of each GPU."""

import numpy as np

from calc.errors import Frozen
from calc.formats import CacheFormat, WeightFormat
from calc.hardware.parallel import Layout
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
    where, users, yields = [], [], []
    for number, rows in enumerate(search.rows):
        batches = search.batches(rows)
        seconds = search.step(search.speed(rows), batches) / 1000
        row = np.broadcast_to(np.arange(len(batches))[:, None], batches.shape)
        where.append(np.stack([np.full(row.size, number), row.ravel(), batches.ravel().astype(int)], axis=1))
        users.append((1 / seconds).ravel())
        yields.append((batches / seconds / rows.gpus[:, None]).ravel())
    if not where:
        return []
    places, user, of_gpu = np.concatenate(where), np.concatenate(users), np.concatenate(yields)
    order = np.lexsort((-of_gpu, -user))
    best = np.maximum.accumulate(of_gpu[order])
    better = np.concatenate([[True], best[1:] > best[:-1]])
    return [point(search, places[index].tolist(), user[index], of_gpu[index]) for index in order[better]]


def point(search: Search, place: list[int], user: float, of_gpu: float) -> Point:
    number, row, batch = place
    rows = search.rows[number]
    precision = search.precisions[rows.form[row]]
    return Point(
        gpu=search.gpus[rows.kind[row]].id,
        layout=rows.fits[rows.fit[row]].layout,
        weights=precision.weights,
        kv=precision.kv,
        batch=batch,
        tokens_per_s_per_user=float(user),
        tokens_per_s_per_gpu=float(of_gpu),
    )
