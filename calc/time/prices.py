"""Prices of a GPU-hour: a dated sample of list prices, each with its source; a reader states their own instead."""

import json
from datetime import date
from functools import cache
from pathlib import Path
from statistics import median

from calc.errors import ConfigError, Frozen, Message, shown
from calc.hardware import find_gpu
from calc.hardware.mig import slices

FILE = Path(__file__).with_name("prices.json")


class Price(Frozen):
    """A list price, before tax, storage and traffic."""

    gpu: str
    provider: str
    usd_per_gpu_hour: float
    min_gpus: int = 1
    read_on: date
    source: str


@cache
def prices() -> tuple[Price, ...]:
    return tuple(Price(**row) for row in json.loads(FILE.read_text(encoding="utf-8")))


def price_of(gpu: str) -> float | None:
    """The median of a GPU's list prices; None where there is none. The same GPU spans a factor of 4. Of a MIG slice the
    GPU's, times the larger of its shares of compute and memory: so much of the GPU nobody else can have."""
    if (cut := slices().get(gpu)) is not None and cut.slice is not None:
        whole = price_of(cut.slice.gpu)
        return None if whole is None else whole * cut.slice.share
    usd = [row.usd_per_gpu_hour for row in prices() if row.gpu == gpu]
    return median(usd) if usd else None


def usd_per_million(tokens_per_s: float, gpus: int, usd_per_gpu_hour: float) -> float:
    """US dollars of a million output tokens on GPUs that are kept busy so."""
    return gpus * usd_per_gpu_hour / (3600 * tokens_per_s) * 1e6


def stated_price(text: str) -> tuple[str, float]:
    """Id of a GPU and its USD an hour, of GPU=USD; the name of a reader's own GPU may have an equals sign in it."""
    name, _, usd = text.rpartition("=")
    try:
        price = float(usd)
    except ValueError:
        price = -1.0
    if not 0 <= price < 1e6:
        raise ConfigError(
            Message("A price is GPU=USD, for instance h100-sxm=2.5, not {text}.", text=shown(text)), "price"
        )
    return find_gpu(name).id, price
