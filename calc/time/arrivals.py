"""Waits of requests that come by chance: as a Poisson stream, or from users who think between two of them.

Answers share a server: with n running each goes on as fast as a step of n allows. This is the queue with generalized
processor sharing (J. W. Cohen, Acta Informatica 12, 1979), whose number of requests depends on their mean length alone:
probabilities of neighbours are as arrivals to departures. More than the server runs at once wait in line. A prompt
waits for the rest of the step that runs, and is computed in the next with all that came in the meantime (a gated queue:
the number of prompts in a step is a Markov chain).
"""

from dataclasses import dataclass
from functools import cached_property
from math import ceil, sqrt
from typing import Any

import numpy as np

from calc.errors import Frozen
from calc.time.arrays import Array, Indices, number
from calc.time.roofline import Timed
from calc.time.serving import FullServer

UTILIZATION = 0.95
"""Share of the most that a server can do up to which it is planned: beyond, waits grow without bound."""
KNOTS, BINS, SHARES = 64, 8, 10
"""Numbers of requests whose times are computed, and whose waits are; parts of the step in which a request comes."""
DEVIATIONS, MOST_ARRIVALS, ITERATIONS = 8, 512, 60
"""Standard deviations beyond the mean up to which numbers of prompts are looked at, the most of them, and steps until
their number has settled."""
LONGEST_QUEUE = 20_000
"""Requests in line that are looked at, at most."""
LEAST_LIKELY = 1e-16
"""Next to the likeliest, what is less likely is not looked at: no percentile knows of it."""
NEGLIGIBLE = 1e-9
"""Next to the likeliest time, what is less likely moves no percentile, of tens of thousands together."""


class Latency(Frozen):
    """Milliseconds that requests take on average, and that half of them, and 95 of 100, take at most."""

    mean: float
    p50: float
    p95: float


class Waits(Frozen):
    """Latencies and load, requests by chance."""

    ttft_ms: Latency
    tpot_ms: Latency
    utilization: float  # requests that come, as a share of the most
    most_requests_per_s: float  # of all replicas


@dataclass(frozen=True)
class Arrivals:
    """One replica and the requests that it gets: `per_s` of them a second, or those of `users`, each of whom thinks for
    so many seconds after an answer."""

    server: FullServer
    most: int  # sequences that it runs at once
    per_s: float | None = None
    users: float = 0.0
    think_s: float = 0.0

    @cached_property
    def batch_sizes(self) -> Array:
        """Sequences that may run: 1, 2, ... [most]"""
        return np.arange(1.0, self.most + 1)

    @cached_property
    def knots(self) -> Array:
        """Numbers of sequences whose steps are computed, [1, knots]."""
        return np.unique(np.geomspace(1, self.most, KNOTS).round())[None]

    @cached_property
    def decode_parts(self) -> tuple[Timed, ...]:
        """Parts of a decode step's time, [1, knots]."""
        return tuple(self.server.decode_parts(self.knots))

    def interpolated(self, seconds: Any) -> Array:
        """Values for each number of running sequences, [most], interpolated between those at the knots."""
        return np.asarray(np.interp(self.batch_sizes, self.knots[0], np.ravel(seconds)))

    @cached_property
    def steps(self) -> Array:
        """Seconds of a step with the prompts that it has, [most]."""
        return self.interpolated(self.server.step(self.knots, self.decode_parts))

    @cached_property
    def departure_rates(self) -> Array:
        """Requests answered in a second, [most]."""
        return self.batch_sizes / (self.server.output * self.steps)

    @cached_property
    def max_rate(self) -> float:
        return float(self.departure_rates.max())

    def arrival_rate(self, there: Array) -> Array:
        """Requests a second that arrive while so many are running or queued."""
        if self.per_s is not None:
            return np.full(len(there), self.per_s)
        return np.maximum(self.users - there, 0.0) / max(self.think_s, 1e-9)

    @property
    def max_queue(self) -> int:
        """Longest queue whose probability is computed; each further one is less likely by arrivals over departures."""
        more = float(self.arrival_rate(np.array([self.most]))[0] / self.departure_rates[-1])
        return min(LONGEST_QUEUE, 1 + int(np.log(LEAST_LIKELY) / np.log(more))) if 0 < more < 1 else LONGEST_QUEUE

    @cached_property
    def probabilities(self) -> Array:
        """Probabilities of 0, 1, ... requests running or queued."""
        queue = self.max_queue
        there = np.arange(float(self.most + queue))
        leave = np.append(self.departure_rates, np.full(queue - 1, self.departure_rates[-1]))
        with np.errstate(divide="ignore"):
            logs = np.append(0.0, np.cumsum(np.log(self.arrival_rate(there[:-1])) - np.log(leave)))
        weights = np.exp(logs - logs.max())
        return np.asarray(weights / weights.sum())

    @cached_property
    def probabilities_on_arrival(self) -> Array:
        """Probabilities of 0, 1, ... other requests when one arrives; of users who think, without itself."""
        there = np.arange(float(len(self.probabilities)))
        weights = self.probabilities * self.arrival_rate(there)
        return np.asarray(weights / weights.sum())

    @cached_property
    def mean_rate(self) -> float:
        """Requests a second."""
        if self.per_s is not None:
            return self.per_s
        there = np.arange(float(len(self.probabilities)))
        return float(np.sum(self.probabilities * self.arrival_rate(there)))  # BLAS would wake its threads for it

    def ttft(self) -> Latency:
        """Time to first token."""
        running = np.flatnonzero(self.probabilities_on_arrival > 1e-7)
        bins = np.array_split(running, min(BINS, len(running)))  # of numbers of requests
        times, weights = zip(*(self.ttft_near(few, self.probabilities_on_arrival[few]) for few in bins), strict=True)
        return latency(np.concatenate(times), np.concatenate(weights))

    def ttft_near(self, running: Indices, seen: Array) -> tuple[Array, Array]:
        """Seconds to the first token of requests that find about so many others, and their probabilities."""
        there = round(float(running @ seen / seen.sum()))
        if there == 0:
            return np.array([self.unqueued_ttft]), np.array([seen.sum()])
        decode = self.decode_s[min(there, self.most) - 1]
        line = max(0, there + 1 - self.most) / self.departure_rates[-1]
        per_s = self.mean_rate / copies(self.server)
        prompts, chances = prompts_of_a_step(per_s, decode, self.prompt_s)
        steps = number(self.server.poll) * (decode + prompts * self.prompt_s)  # which run when it comes
        met = (chances * steps)[:, None] * poisson(per_s * steps, arrivals(per_s * steps[-1]))
        met *= seen.sum() / (SHARES * met.sum())
        before, along = np.nonzero(met > NEGLIGIBLE * met.max())
        parts = (np.arange(SHARES)[:, None] + 0.5) / SHARES
        admission = number(self.server.speed.machines(self.server.end).admission)
        times = self.unqueued_ttft + admission + line + parts * steps[before] + decode + along * self.prompt_s
        return np.ravel(times), np.tile(met[before, along], SHARES)

    @cached_property
    def unqueued_ttft(self) -> float:
        """Seconds to the first token of a request that meets no other."""
        return number(self.server.first_token(np.ones((1, 1))))

    @cached_property
    def prompt_s(self) -> float:
        """Seconds that a prompt adds to a step."""
        return number(self.server.launched)

    @cached_property
    def decode_s(self) -> Array:
        """Seconds of a step without prompts, [most]."""
        return self.interpolated(sum(part.seconds for part in self.decode_parts))

    def tpot(self) -> Latency:
        """Time per output token."""
        of_running = self.interpolated(self.server.token(self.knots, self.decode_parts))
        running = np.flatnonzero(self.probabilities_on_arrival > 1e-7)
        return latency(of_running[np.minimum(running + 1, self.most) - 1], self.probabilities_on_arrival[running])

    def waits(self, replicas: int) -> Waits:
        """Latencies and load on one of so many replicas that share requests."""
        return Waits(
            ttft_ms=self.ttft(),
            tpot_ms=self.tpot(),
            utilization=self.mean_rate / self.max_rate,
            most_requests_per_s=replicas * self.max_rate,
        )


def copies(server: FullServer) -> float:
    """Data-parallel copies of a server, each of which has its share of the requests."""
    return number(server.speed.layout.dp)


def closed_loop_spread(server: FullServer, users: int) -> float:
    """The 95th percentile of the time to first token over its mean where users never think: each sends a request as an
    answer ends. Answers end with steps, so that a prompt shares its step with those of the others that ended in the
    same one, each with a chance of one in the tokens of an answer: a binomial number. Answers of one token all end
    with each step. At least 1: the means of public runs, which `first_token` is fitted to, contain their start, where
    all requests come at once."""
    if server.output == 1:
        return 1.0
    loop = Arrivals(server, users)
    decode = number(server.decode_step(np.full((1, 1), float(users))))
    waited = loop.unqueued_ttft + number(server.speed.machines(server.end).admission) + decode
    users, chance = ceil(users / copies(server)), 1 / server.output  # prompts of other copies pass next to these
    others = np.arange(1.0, users)
    odds = np.cumsum(np.log((users - others) / others * chance / (1 - chance)))
    chances = np.exp(np.append(0.0, odds) + (users - 1) * np.log1p(-chance))
    most = int(np.searchsorted(np.cumsum(chances), 0.95))
    return max(1.0, (waited + most * loop.prompt_s) / (waited + (users - 1) * chance * loop.prompt_s))


def arrivals(mean: float, variance: float | None = None) -> int:
    """Numbers of arrivals that are looked at, from 0 on, where they are Poisson or vary more."""
    spread = DEVIATIONS * sqrt(mean if variance is None else variance)
    return int(min(mean + spread + DEVIATIONS, MOST_ARRIVALS))


def poisson(means: Array, count: int) -> Array:
    """Probabilities of 0, 1, ... arrivals, for each mean, [means, count]."""
    come = np.arange(1.0, count)
    logs = np.cumsum(np.log(np.maximum(means[:, None], 1e-300)) - np.log(come), axis=1)
    logs = np.concatenate([np.zeros((len(means), 1)), logs], axis=1)
    chances = np.exp(logs - logs.max(axis=1, keepdims=True))
    return np.asarray(chances / chances.sum(axis=1, keepdims=True))


def prompts_of_a_step(per_s: float, decode: float, prompt: float) -> tuple[Array, Array]:
    """Numbers of prompts in a step and their probabilities: those that arrived during the step before. Their mean is
    rate x decode / (1 - load), and their variance that / (1 - load²), with the load by prompts alone."""
    load = min(per_s * prompt, UTILIZATION)
    mean = per_s * decode / (1 - load)
    prompts = np.arange(float(arrivals(mean, mean / (1 - load**2))))
    following = poisson(per_s * (decode + prompts * prompt), len(prompts))
    chances = np.full(len(prompts), 1 / len(prompts))
    for _ in range(ITERATIONS):
        chances = chances @ following
    return prompts, chances


def latency(seconds: Array, weights: Array) -> Latency:
    """Latency of requests that take so many seconds, by how likely each is."""
    likely = weights > NEGLIGIBLE * weights.max()
    seconds, weights = 1000 * seconds[likely], weights[likely]
    p50, p95 = np.quantile(seconds, (0.5, 0.95), weights=weights, method="inverted_cdf")
    return Latency(mean=float(np.average(seconds, weights=weights)), p50=float(p50), p95=float(p95))
