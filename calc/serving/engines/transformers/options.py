"""Arguments of transformers' `generate`."""

from typing import Literal

from pydantic import Field

from calc.errors import Frozen

Attention = Literal["flash", "eager"]
Logits = Literal["last", "all", "all_fp32"]


class TransformersOptions(Frozen):
    """None: the habit of the version."""

    attention: Attention = Field(default="flash", description="Kernel of attention.")
    prefill_chunk_size: int | None = Field(
        default=None, ge=1, le=2**40, description="Prompt tokens of all sequences in one forward pass."
    )
    logits: Logits | None = Field(
        default=None,
        description="Rows of logits that a prompt makes: of the last token, of all, or of all with an fp32 copy.",
    )
    version: str | None = Field(
        default=None,
        pattern=r"^[0-9]{1,4}\.[0-9]{1,4}(\.\w{1,20})*$",
        description="Version of transformers, 5.23 unless it is set.",
        examples=["5.23"],
    )

    def is_older_than(self, *version: int) -> bool:
        """Whether transformers is stated to be of a version before this one."""
        if self.version is None:
            return False
        return tuple(int(part) for part in self.version.split(".")[: len(version)]) < version

    @property
    def rows_of_logits(self) -> Logits:
        """Rows stated, or the version's habit: before 4.45 of all tokens, with an fp32 copy."""
        return self.logits or ("all_fp32" if self.is_older_than(4, 45) else "last")
