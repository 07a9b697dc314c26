"""How long requests take where some GPUs prefill and others decode (DistServe, arXiv:2401.09670): the cache of a prompt
is sent from a prefill worker to a decode worker, whose steps hold no prompts."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from calc.errors import Frozen
from calc.hardware.parallel import Layout
from calc.time.estimate import ENDS, End, Estimate
from calc.time.forward import PassPart
from calc.time.serving_time import FullServer, Speed


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
        sides = [side.speed.machines(side.end) for side in (self.prefill, self.decode)]
        others = np.maximum(users / self.copies - 1, 0)
        alone = sum(on.request for on in sides) + sum(part.seconds for part in self.prefill.prompt_parts)
        admitted = sum(on.admission for on in sides)
        waiting = np.where(others > 0, admitted + self.waiting(users, others, token), 0.0)
        return alone + waiting + self.transfer

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


def cached_bytes(speed: Speed, tokens: int) -> Any:
    """Bytes of cache and state of a sequence that one rank holds on its stage."""
    held = sum(stage.bits_read(PassPart(1, 1, tokens - 1)) / 8 / stage.dcp + stage.state / 2 for stage in speed.demands)
    return held / speed.layout.pp


def between(figure: Callable[[End, End], float]) -> Estimate:
    """The range of a figure, given an end for either side: it is at its ends where one side is fast and the other
    slow, for requests wait longest for slow prefill workers before fast decode workers."""
    figures = [figure(*ends) for ends in product(ENDS, repeat=2)]
    return Estimate(low=min(figures), expected=figure("expected", "expected"), high=max(figures))
