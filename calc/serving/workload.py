from typing import Literal

from pydantic import Field, model_validator

from calc.errors import Frozen

Attention = Literal["flash", "eager"]
Engine = Literal["vllm", "transformers"]
Logits = Literal["last", "all", "all_fp32"]
Speculative = Literal["none", "mtp", "eagle"]
MAX_TOKENS = 2**40


class Workload(Frozen):
    """What the GPU is asked to do, and by which engine: serve `batch` sequences at once, each of `context` tokens."""

    batch: int = Field(default=1, ge=1, le=2**24)
    context: int = Field(default=8192, ge=1, le=2**30)
    generated: int = Field(default=0, ge=0, le=2**30)
    """How many of the context's tokens come one by one, after a prompt of the rest."""
    prefill_tokens: int | None = Field(default=None, ge=1, le=MAX_TOKENS)
    """Prompt tokens in one forward pass; None: the engine's own habit."""
    attention: Attention = "flash"
    engine: Engine = "vllm"
    logits: Logits | None = None
    """Rows of logits that transformers makes of a prompt: of the last token, of all, or of all with an fp32 copy; None:
    the version's own habit, which was the latter before 4.45."""
    max_num_seqs: int | None = Field(default=None, ge=1, le=2**24)
    """Sequences that vLLM samples for at once; None: the batch, and for its cache budget its own default."""
    gpu_memory_utilization: float | None = Field(default=None, gt=0, le=1)
    """Share of a GPU that vLLM takes; None: its default."""
    engine_version: str | None = Field(default=None, pattern=r"^[0-9]{1,4}\.[0-9]{1,4}(\.\w{1,20})*$")
    """For instance 0.8.5; None: the newest that was read."""
    speculative: Speculative = "none"
    """Draft layer that is loaded beside and has a cache of its own: the model's own for multi-token prediction, or one
    more of its layers (EAGLE, arXiv:2401.15077)."""

    language_model_only: bool = False
    """Whether an image tower is left out, as vLLM's option of this name does."""

    @model_validator(mode="after")
    def _makes_sense(self) -> "Workload":
        if self.generated >= self.context:
            raise ValueError(f"generated is {self.generated:,}, which leaves no prompt of {self.context:,} tokens")
        foreign = ("logits",) if self.engine == "vllm" else ("max_num_seqs", "gpu_memory_utilization", "speculative")
        for name in foreign:
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name} has no effect with {self.engine}")
        return self

    def older(self, *version: int) -> bool:
        """Whether the engine is stated to be of a version before this one."""
        if self.engine_version is None:
            return False
        return tuple(int(part) for part in self.engine_version.split(".")[: len(version)]) < version

    @property
    def rows_of_logits(self) -> Logits:
        """What is stated, or the habit of the engine."""
        old = self.engine == "transformers" and self.older(4, 45)
        return self.logits or ("all_fp32" if old else "last")

    @property
    def prompt(self) -> int:
        """Tokens of each sequence that are passed at once, or in chunks."""
        return max(1, self.context - self.generated)

    @property
    def step_tokens(self) -> int:
        """Tokens in the largest forward pass. vLLM cuts prefill into chunks of 8,192 (`max_num_batched_tokens` of its
        server on large GPUs); transformers passes the whole prompts at once."""
        whole = self.batch * self.prompt
        if self.prefill_tokens is not None:
            return min(whole, self.prefill_tokens)
        return min(whole, 8192) if self.engine == "vllm" else whole
