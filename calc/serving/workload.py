from pydantic import Field, model_validator

from calc.errors import ConfigError, Frozen, Message


class Workload(Frozen):
    """Load of a server: `batch` sequences at once, each of `context` tokens."""

    batch: int = Field(default=1, ge=1, le=2**24, description="Concurrent sequences.")
    context: int = Field(default=8192, ge=1, le=2**30, description="Tokens of each sequence, prompt and output.")
    generated: int = Field(
        default=0, ge=0, le=2**30, description="Output tokens: how many of the context come one by one, after a prompt."
    )

    @model_validator(mode="after")
    def _has_a_prompt(self) -> "Workload":
        if self.generated >= self.context:
            raise ConfigError(
                Message(
                    "generated is {generated:,}, which leaves no prompt of the {context:,} tokens.",
                    generated=self.generated,
                    context=self.context,
                ),
                "generated",
                [0],
            )
        return self

    @property
    def prompt(self) -> int:
        """Tokens of each sequence that are passed at once, or in chunks."""
        return max(1, self.context - self.generated)

    def of_copy(self, copies: int) -> "Workload":
        """Share of the data-parallel copy with the most sequences."""
        return self if copies == 1 else self.model_copy(update={"batch": -(-self.batch // copies)})
