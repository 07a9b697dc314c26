"""The cost of one step of a control at the present design, for the control's help."""

from dataclasses import dataclass

from calc.design import Slopes
from pages.parts.words import count, say, size


@dataclass(frozen=True)
class Costs:
    """Costs of a step; none are said of a design that makes no sense."""

    slopes: Slopes | None

    def of_field(self, help_text: str, name: str, now: int, step: int) -> str:
        """A help with what a step costs behind it."""
        slope = None if self.slopes is None else self.slopes.of(name, now, step)
        if slope is None:
            return help_text
        cost = say(
            "**+{step:,}**: **{parameters}** parameters, **{size}** of weights and KV cache.",
            step=slope.step,
            parameters=signed(slope.parameters, count(abs(slope.parameters))),
            size=signed(slope.nbytes, size(abs(slope.nbytes))),
        )
        return f"{help_text}\n\n{cost}"

    def of_batch(self, help_text: str, batch: int) -> str:
        if self.slopes is None:
            return help_text
        more = size(self.slopes.cache_of(batch=batch + 1))
        return f"{help_text}\n\n{say('**+1 sequence**: **+{size}** of KV cache.', size=more)}"

    def of_context(self, help_text: str, context: int) -> str:
        if self.slopes is None:
            return help_text
        more = size(self.slopes.cache_of(context=context + 1024))
        return f"{help_text}\n\n{say('**+1,024 tokens**: **+{size}** of KV cache.', size=more)}"


def signed(number: int, written: str) -> str:
    return f"+{written}" if number >= 0 else f"−{written}"
