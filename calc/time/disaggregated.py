"""How long requests take where some GPUs prefill and others decode (DistServe, arXiv:2401.09670): the cache of a prompt
is sent from a prefill worker to a decode worker, whose steps hold no prompts."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import ceil, exp, log, sqrt
from typing import Any

import numpy as np

from calc.errors import Frozen
from calc.hardware.parallel import Layout
from calc.time.arrivals import Percentiles, Waits, number
from calc.time.estimate import ENDS, End, Estimate
from calc.time.forward import PassPart
from calc.time.serving_time import FullServer, Speed

NEWTON = 30
"""Steps in which a root is exact."""
MOST_BUSY = 0.99
"""Share of its time that a prefill worker works at most: beyond, waits grow without bound."""


class PrefillWorkers(Frozen):
    """Servers of a plan that prefill alone."""

    workers: int
    layout: Layout
    headroom_gib: float  # of the most loaded GPU, with a request on each data-parallel copy


@dataclass(frozen=True)
class Disaggregated:
    """Equal prefill workers and equal decode workers, all of them full: where an answer ends a prompt comes. Figures
    may be numbers or arrays."""

    prefill: FullServer  # one worker
    decode: FullServer
    prefill_workers: Any
    decode_workers: Any
    link: Any  # bytes/s from a GPU that prefills to one that decodes

    @cached_property
    def prompt(self) -> Any:
        """Seconds from one prompt to the next on a data-parallel copy that is never idle."""
        return sum(part.seconds for part in self.prefill.launched_parts)

    @property
    def copies(self) -> Any:
        """Prompts that are prefilled at once."""
        layout = self.prefill.speed.layout
        return self.prefill_workers * layout.dp * layout.pp

    @property
    def prompts_per_s(self) -> Any:
        """The most that all prefill workers take."""
        return self.copies / self.prompt

    @cached_property
    def transfer(self) -> Any:
        """Seconds in which a prompt's cache reaches a decode worker, each GPU over its own link."""
        return cached_bytes(self.decode.speed, self.decode.prompt) / self.link

    def token(self, batch: Any) -> Any:
        """Seconds of a step of a decode worker with so many sequences (TPOT)."""
        return sum(part.seconds for part in self.decode.decode_parts(batch))

    def running(self, users: Any) -> Any:
        """Sequences of one decode worker: its share of the users, of each of whom a request is decoded for this part of
        its time (Little's law); where prefill limits, as many as are sent."""
        running = np.ceil(np.asarray(users / self.decode_workers))
        while True:
            answer = self.decode.output * self.token(running)
            decoded = answer / (self.before_decode(users, self.token(running)) + answer)
            fewer = np.maximum(np.ceil(users / self.decode_workers * decoded), 1)
            if (fewer >= running).all():
                return running
            running = np.minimum(fewer, running)

    def first_token(self, users: Any) -> Any:
        """Seconds until a prompt's first token (TTFT), which a decode step brings."""
        token = self.token(self.running(users))
        return self.before_decode(users, token) + token

    def before_decode(self, users: Any, token: Any) -> Any:
        """Seconds until a request is decoded: both servers receive it, and admit it where there are others; its prompt
        waits for those of others and is prefilled, and its cache is sent."""
        others = np.maximum(users / self.copies - 1, 0)
        return self.alone + np.where(others > 0, self.admission + self.waiting(users, others, token), 0.0)

    @cached_property
    def alone(self) -> Any:
        """Seconds until a request that meets no other is decoded."""
        received = sum(side.speed.machines(side.end).request for side in (self.prefill, self.decode))
        return received + sum(part.seconds for part in self.prefill.prompt_parts) + self.transfer

    @property
    def admission(self) -> Any:
        """Seconds until both servers, busy, admit a request."""
        return sum(side.speed.machines(side.end).admission for side in (self.prefill, self.decode))

    def tokens_per_s(self, users: Any) -> Any:
        """Output tokens a second of all users."""
        token, output = self.token(self.running(users)), self.decode.output
        return users * output / (self.before_decode(users, token) + output * token)

    def waiting(self, users: Any, others: Any, token: Any) -> Any:
        """Seconds behind the prompts of others: a share of them, as on a server that does both; where prefill limits,
        all that answers leave of a cycle in which each user gets one."""
        queue = self.prefill.speed.machines(self.prefill.end).queue
        cycle = users / self.prompts_per_s
        return np.maximum(queue * others / 2 * self.prompt, cycle - self.decode.output * token - self.prompt)

    def busy(self, per_s: Any) -> Any:
        """Share of the time in which a prefill worker works, where so many requests come in a second."""
        return np.minimum(per_s / self.prompts_per_s, MOST_BUSY)

    def waiting_by_chance(self, per_s: Any) -> Any:
        """Mean seconds behind the prompts of others, where requests come at random: each copy is a queue with equal
        times of service (M/D/1, Pollaczek and Khinchine)."""
        busy = self.busy(per_s)
        return busy / (1 - busy) * self.prompt / 2

    def first_token_by_chance(self, per_s: Any, batch: Any) -> Any:
        """Mean seconds until the first token of requests that come at random, with so many on each decode worker."""
        return self.alone + self.admission + self.waiting_by_chance(per_s) + self.token(batch)

    def waits(self, per_s: float, batch: int, most: int) -> Waits:
        """What they meet. The number on a decode worker is Poisson, about `batch` and at most `most`."""
        busy, output, prompt = number(self.busy(per_s)), self.decode.output, number(self.prompt)
        least = number(self.first_token_by_chance(per_s, batch) - self.waiting_by_chance(per_s))
        p50, p95 = (1000 * (least + prompt * waiting_at_most(busy, share)) for share in (0.5, 0.95))
        many = min(most, batch + ceil(1.645 * sqrt(batch)))  # 95 of 100 times fewer
        token, token_late = (1000 * number(self.token(n)) for n in (batch, many))
        at_most = min(number(self.prompts_per_s), self.decode_workers * most / (output * number(self.token(most))))
        return Waits(
            ttft_ms=Percentiles(p50=p50, p95=p95),
            tpot_ms=Percentiles(p50=token, p95=token_late),
            utilization=per_s / at_most,
            most_requests_per_s=at_most,
        )


def cached_bytes(speed: Speed, tokens: int) -> Any:
    """Bytes of cache and state of a sequence that one rank holds on its stage."""
    nbytes = sum(
        stage.bits_read(PassPart(1, 1, tokens - 1)) / 8 / stage.dcp + stage.state / 2 for stage in speed.demands
    )
    return nbytes / speed.layout.pp


def waiting_at_most(busy: float, share: float) -> float:
    """Times of service that a share of the requests wait at most in an M/D/1 queue: its tail is
    (1 - r) / (r e^x - 1) e^(-x t), where r (e^x - 1) = x (Cramér and Lundberg)."""
    if busy <= 1 - share:
        return 0.0
    rate = min(2 * (1 - busy) / busy, 2 - 2 * log(busy))  # above the root
    for _ in range(NEWTON):
        rate -= (busy * (exp(rate) - 1) - rate) / (busy * exp(rate) - 1)
    late = (1 - busy) / (busy * exp(rate) - 1)
    return max(0.0, log(late / (1 - share)) / rate)


def between(figure: Callable[[End, End], float]) -> Estimate:
    """The range of a figure, given an end for either side: it is at its ends where one side is fast and the other
    slow, for requests wait longest for slow prefill workers before fast decode workers."""
    figures = [figure(*ends) for ends in product(ENDS, repeat=2)]
    return Estimate(low=min(figures), expected=figure("expected", "expected"), high=max(figures))
