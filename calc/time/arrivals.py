"""Waits of requests that come by chance: as a Poisson stream, or from users who think between two of them.

Answers share a server: with n running each goes on as fast as a step of n allows. This is the queue with generalized
processor sharing (J. W. Cohen, Acta Informatica 12, 1979), whose number of requests depends on their mean length alone:
probabilities of neighbours are as arrivals to departures. More than the server runs at once wait in line. A prompt
waits for the rest of the step that runs, and is computed in the next with all that came in the meantime (a gated queue:
the number of prompts in a step is a Markov chain).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from calc.errors import Frozen
from calc.time.arrays import Array, Indices, number
from calc.time.roofline import Timed
from calc.time.serving_time import FullServer

UTILIZATION = 0.95
"""Share of the most that a server can do up to which it is planned: beyond, waits grow without bound."""
KNOTS, BINS, SHARES = 64, 8, 10
"""Numbers of requests whose times are computed, and whose waits are; parts of the step in which a request comes."""
COME, SETTLES = 32, 60
"""Prompts of a step that are looked at, and steps until their number has settled."""
LONGEST = 20_000
"""Requests in line that are looked at, at most."""
LEAST_LIKELY = 1e-16
"""Next to the likeliest, what is less likely is not looked at: no percentile knows of it."""
UNFELT = 1e-9
"""Next to the likeliest time, what is less likely moves no percentile, of tens of thousands together."""


class Percentiles(Frozen):
    """Milliseconds that half of the requests, and 95 of 100, take at most."""

    p50: float
    p95: float


class Waits(Frozen):
    """Latencies and load, requests by chance."""

    ttft_ms: Percentiles
    tpot_ms: Percentiles
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
    def running(self) -> Array:
        """Sequences that may run: 1, 2, ... [most]"""
        return np.arange(1.0, self.most + 1)

    @cached_property
    def knots(self) -> Array:
        """Numbers of sequences whose steps are computed, [1, knots]."""
        return np.unique(np.geomspace(1, self.most, KNOTS).round())[None]

    @cached_property
    def decoded(self) -> tuple[Timed, ...]:
        """Parts of a decode step's time, [1, knots]."""
        return tuple(self.server.decode_parts(self.knots))

    def of_running(self, seconds: Any) -> Array:
        """Something for each number of sequences that runs, [most], from the same at the knots."""
        return np.asarray(np.interp(self.running, self.knots[0], np.ravel(seconds)))

    @cached_property
    def steps(self) -> Array:
        """Seconds of a step with the prompts that it has, [most]."""
        return self.of_running(self.server.step(self.knots, self.decoded))

    @cached_property
    def departures(self) -> Array:
        """Requests answered in a second, [most]."""
        return self.running / (self.server.output * self.steps)

    @cached_property
    def most_per_s(self) -> float:
        return float(self.departures.max())

    def arriving(self, there: Array) -> Array:
        """Requests a second that come while so many are there."""
        if self.per_s is not None:
            return np.full(len(there), self.per_s)
        return np.maximum(self.users - there, 0.0) / max(self.think_s, 1e-9)

    @property
    def longest(self) -> int:
        """Requests in line that are looked at: each makes it as much less likely as fewer come than leave."""
        more = float(self.arriving(np.array([self.most]))[0] / self.departures[-1])
        return min(LONGEST, 1 + int(np.log(LEAST_LIKELY) / np.log(more))) if 0 < more < 1 else LONGEST

    @cached_property
    def probabilities(self) -> Array:
        """Probability of so many requests, 0, 1, ..., running or in line."""
        longest = self.longest
        there = np.arange(float(self.most + longest))
        leave = np.append(self.departures, np.full(longest - 1, self.departures[-1]))
        with np.errstate(divide="ignore"):
            logs = np.append(0.0, np.cumsum(np.log(self.arriving(there[:-1])) - np.log(leave)))
        weights = np.exp(logs - logs.max())
        return np.asarray(weights / weights.sum())

    @cached_property
    def seen(self) -> Array:
        """Probabilities of what a request finds when it comes: of users who think, without itself."""
        there = np.arange(float(len(self.probabilities)))
        weights = self.probabilities * self.arriving(there)
        return np.asarray(weights / weights.sum())

    @cached_property
    def per_s_mean(self) -> float:
        """Requests a second."""
        if self.per_s is not None:
            return self.per_s
        there = np.arange(float(len(self.probabilities)))
        return float(np.sum(self.probabilities * self.arriving(there)))  # BLAS would wake its threads for it

    def first_tokens(self) -> Percentiles:
        """Median and 95th percentile of the time to first token."""
        running = np.flatnonzero(self.seen > 1e-7)
        bins = np.array_split(running, min(BINS, len(running)))  # of numbers of requests
        times, weights = zip(*(self.first_tokens_of(few, self.seen[few]) for few in bins), strict=True)
        return percentiles(np.concatenate(times), np.concatenate(weights))

    def first_tokens_of(self, running: Indices, seen: Array) -> tuple[Array, Array]:
        """Seconds to the first token of requests that find about so many, and how likely they are."""
        there = round(float(running @ seen / seen.sum()))
        if there == 0:
            return np.array([self.alone]), np.array([seen.sum()])
        decode = self.decodes[min(there, self.most) - 1]
        line = max(0, there + 1 - self.most) / self.departures[-1]
        prompts, chances = prompts_of_a_step(self.per_s_mean, decode, self.prompt)
        own = decode + prompts * self.prompt  # its own step, by what comes with it
        steps = number(self.server.poll) * own  # which run when it comes
        met = (chances * steps)[:, None] * poisson(self.per_s_mean * steps)
        met *= seen.sum() / (SHARES * met.sum())
        before, along = np.nonzero(met > UNFELT * met.max())
        parts = (np.arange(SHARES)[:, None] + 0.5) / SHARES
        admission = number(self.server.speed.machines(self.server.end).admission)
        times = self.alone + admission + line + parts * steps[before] + own[along]
        return np.ravel(times), np.tile(met[before, along], SHARES)

    @cached_property
    def alone(self) -> float:
        """Seconds to the first token of one that meets no other."""
        return number(self.server.first_token(np.ones((1, 1))))

    @cached_property
    def prompt(self) -> float:
        """Seconds that a prompt adds to a step."""
        return number(self.server.launched)

    @cached_property
    def decodes(self) -> Array:
        """Seconds of a step without prompts, [most]."""
        return self.of_running(sum(part.seconds for part in self.decoded))

    def tokens(self) -> Percentiles:
        """Median and 95th percentile of the time per output token."""
        of_running = self.of_running(self.server.token(self.knots, self.decoded))
        running = np.flatnonzero(self.seen > 1e-7)
        return percentiles(of_running[np.minimum(running + 1, self.most) - 1], self.seen[running])

    def waits(self, replicas: int) -> Waits:
        """Latencies and load on one of so many replicas that share requests."""
        return Waits(
            ttft_ms=self.first_tokens(),
            tpot_ms=self.tokens(),
            utilization=self.per_s_mean / self.most_per_s,
            most_requests_per_s=replicas * self.most_per_s,
        )


def closed_loop_spread(server: FullServer, users: int) -> float:
    """The 95th percentile of the time to first token over its mean where users never think: each sends a request as an
    answer ends. Answers end with steps, so that a prompt shares its step with those of the others that ended in the
    same one, each with a chance of one in the tokens of an answer: a binomial number. Answers of one token all end
    with each step."""
    if server.output == 1:
        return 1.0
    loop = Arrivals(server, users)
    decode = number(server.decode_step(np.full((1, 1), float(users))))
    waited = loop.alone + number(server.speed.machines(server.end).admission) + decode
    others, chance = np.arange(1.0, users), 1 / server.output
    odds = np.cumsum(np.log((users - others) / others * chance / (1 - chance)))
    chances = np.exp(np.append(0.0, odds) + (users - 1) * np.log1p(-chance))
    most = int(np.searchsorted(np.cumsum(chances), 0.95))
    return (waited + most * loop.prompt) / (waited + (users - 1) * chance * loop.prompt)


def poisson(means: Array) -> Array:
    """Probabilities of 0, 1, ... that come, for each mean, [means, COME]."""
    come = np.arange(1.0, COME)
    logs = np.cumsum(np.log(np.maximum(means[:, None], 1e-300)) - np.log(come), axis=1)
    chances = np.concatenate([np.ones((len(means), 1)), np.exp(logs)], axis=1)
    return np.asarray(chances / chances.sum(axis=1, keepdims=True))


def prompts_of_a_step(per_s: float, decode: float, prompt: float) -> tuple[Array, Array]:
    """Numbers of prompts in a step, and how often steps have so many: those that came during the step before."""
    prompts = np.arange(float(COME))
    following = poisson(per_s * (decode + prompts * prompt))
    chances = np.full(COME, 1 / COME)
    for _ in range(SETTLES):
        chances = chances @ following
    return prompts, chances


def percentiles(seconds: Array, weights: Array) -> Percentiles:
    """Milliseconds that half, and 95 of 100, do not exceed."""
    likely = weights > UNFELT * weights.max()
    reached = np.quantile(seconds[likely], (0.5, 0.95), weights=weights[likely], method="inverted_cdf")
    return Percentiles(p50=1000 * float(reached[0]), p95=1000 * float(reached[1]))
