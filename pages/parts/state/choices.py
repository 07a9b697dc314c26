"""Choices on the page of GPUs, and the efficiencies that a reader states."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from calc.errors import Frozen
from calc.hardware import find_gpu
from calc.time import Estimate, stated_share, written_share


def shares(chosen: tuple[str, ...]) -> tuple[str, ...]:
    """Each once, the last. Raises ValueError."""
    return tuple(written_share(name, share) for name, share in dict(map(stated_share, chosen)).items())


class HardwareChoice(Frozen):
    """Choices on the page of models on GPUs."""

    view: Literal["formats", "models", "roofline"] = Field(default="formats", description="What is shown.")
    card: Annotated[str, AfterValidator(lambda text: find_gpu(text).id)] = Field(
        default="h100-sxm", examples=["h100-sxm"], description="The GPU that models are tried on."
    )
    cards: int = Field(default=1, ge=1, le=64, description="GPUs that share each model.")
    length: int = Field(default=8192, ge=1, le=2**24, description="Tokens of context at which the speed is shown.")
    figure: Literal["context", "speed"] = Field(
        default="context", description="The longest context that fits, or tokens/s of one user."
    )


class EfficiencyChoice(Frozen):
    """A reader's own efficiencies in place of the usual ones, on every GPU."""

    share: Annotated[tuple[str, ...], AfterValidator(shares)] = Field(
        default=(),
        examples=["bandwidth=0.7/0.8/0.9;layer_us=20/40/90"],
        description="Your shares of the printed peaks, low, expected and high.",
    )

    @property
    def edits(self) -> dict[str, Estimate]:
        return dict(map(stated_share, self.share))
