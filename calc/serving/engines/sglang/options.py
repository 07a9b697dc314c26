"""SGLang's flags under their own names."""

from typing import Literal, NamedTuple, Self

from pydantic import Field, model_validator

from calc.errors import ConfigError, Frozen, Message
from calc.serving.engines.started import check_effect

SpeculativeAlgorithm = Literal["NEXTN", "EAGLE", "EAGLE3", "STANDALONE", "NGRAM"]
SPECULATION: tuple[str, ...] = (
    "speculative_num_steps",
    "speculative_eagle_topk",
    "speculative_num_draft_tokens",
    "speculative_draft_model_path",
)
"""Flags that go with `speculative_algorithm`."""
StateStrategy = Literal["no_buffer", "extra_buffer", "extra_buffer_lazy"]
AllToAll = Literal["none", "deepep"]


class SGLangOptions(Frozen):
    """Flags of `sglang.launch_server`; None: SGLang's own default, which depends on the GPU and the model."""

    mem_fraction_static: float | None = Field(
        default=None, gt=0, le=1, description="Share of the GPU's free memory for weights and cache."
    )
    chunked_prefill_size: int | None = Field(default=None, ge=1, le=2**30, description="Tokens of one prefill pass.")
    cuda_graph_max_bs: int | None = Field(
        default=None, ge=1, le=2**20, description="Largest batch that CUDA graphs are captured for."
    )
    max_running_requests: int | None = Field(default=None, ge=1, le=2**24, description="Sequences that run at once.")
    page_size: int | None = Field(default=None, ge=1, le=4096, description="Tokens of one page of the cache.")
    swa_full_tokens_ratio: float | None = Field(
        default=None, ge=0.001, le=1, description="Tokens in layers with a window, per token in layers that keep all."
    )
    mamba_full_memory_ratio: float = Field(
        default=0.9, ge=0.001, le=100, description="Memory of recurrent states, per memory of the KV cache."
    )
    max_mamba_cache_size: int | None = Field(
        default=None, ge=1, le=2**24, description="Recurrent states, instead of a share of the memory."
    )
    mamba_radix_cache_strategy: StateStrategy | None = Field(
        default=None, description="Recurrent states in the prefix cache: copies that a request keeps."
    )
    disable_radix_cache: bool = Field(default=False, description="No prefix cache.")
    enable_hierarchical_cache: bool = Field(
        default=False, description="Keep the prefix cache in the host's memory too (HiCache)."
    )
    hicache_ratio: float = Field(
        default=2.0,
        gt=0,
        le=1000,
        description="Tokens of the host's cache, per token of the GPU's, with enable_hierarchical_cache.",
    )
    hicache_size: int = Field(
        default=0, ge=0, le=2**20, description="GB of the host's cache of each rank, instead of the ratio."
    )
    moe_dense_tp_size: Literal[1] | None = Field(
        default=None,
        description="Dense feed-forwards of a model with experts: whole on each rank (1), not divided over all ranks.",
    )
    enable_dp_lm_head: bool = Field(
        default=False, description="Divide the LM head over the ranks of a copy of the attention, not over all ranks."
    )
    moe_a2a_backend: AllToAll = Field(
        default="none",
        description="Tokens to routed experts: gathered on all ranks (none), or sent where they are routed (deepep).",
    )
    disable_cuda_graph: bool = Field(default=False, description="No CUDA graphs.")
    scheduler_recv_interval: int = Field(
        default=1, ge=1, le=2**20, description="Decode steps between looks for new requests."
    )
    language_model_only: bool = Field(default=False, description="Leave the vision encoder out.")
    speculative_algorithm: SpeculativeAlgorithm | None = Field(
        default=None,
        description="Speculative decoding: by the model's own layers (NEXTN, EAGLE), a head (EAGLE3), a draft model "
        "(STANDALONE), or repeats of the text (NGRAM).",
    )
    speculative_num_steps: int | None = Field(default=None, ge=1, le=128, description="Draft passes in each step.")
    speculative_eagle_topk: int | None = Field(
        default=None, ge=1, le=128, description="Tokens that each pass proposes."
    )
    speculative_num_draft_tokens: int | None = Field(
        default=None, ge=1, le=1024, description="Draft tokens that are verified at once."
    )
    speculative_draft_model_path: str | None = Field(
        default=None,
        max_length=1000,
        examples=["Qwen/Qwen3-0.6B"],
        description="The draft model of speculative decoding, loaded beside this one.",
    )

    @model_validator(mode="after")
    def _steps_come_first(self) -> Self:
        if self.speculative_algorithm is None:
            check_effect(self, "speculative_algorithm", SPECULATION)
        elif self.speculative_algorithm != "NGRAM" and self.speculative_num_steps is None:
            check_effect(self, "speculative_num_steps", ("speculative_eagle_topk", "speculative_num_draft_tokens"))
        if not self.enable_hierarchical_cache:
            check_effect(self, "enable_hierarchical_cache", ("hicache_ratio", "hicache_size"))
        elif self.disable_radix_cache:
            sentence = "{name} extends the prefix cache, which disable_radix_cache turns off."
            why = Message(sentence, name="enable_hierarchical_cache")
            raise ConfigError(why, "disable_radix_cache", ["false"])
        return self


SPECULATIVE_REQUESTS = 48
"""Sequences at once with speculative decoding, where no flag says how many."""
NGRAM_TOKENS = 12


class DraftLength(NamedTuple):
    """Tokens that a step drafts for a sequence."""

    tokens: int  # that are verified at once
    allocated: int  # tokens that a step may write


def draft_length(options: SGLangOptions, model_type: str) -> DraftLength | None:
    """The flags, or SGLang's own choice (`_auto_choose_speculative_params`); a chain has a token more than steps."""
    steps, width, tokens = (
        options.speculative_num_steps,
        options.speculative_eagle_topk or 1,
        options.speculative_num_draft_tokens,
    )
    if options.speculative_algorithm is None:
        return None
    if options.speculative_algorithm == "NGRAM":
        return DraftLength(tokens or NGRAM_TOKENS, tokens or NGRAM_TOKENS)
    if steps is None:
        tree = model_type == "llama" and options.speculative_algorithm != "STANDALONE"
        steps, width, tokens = (5, 4, 8) if tree else (3, 1, 4)
    if width == 1 or tokens is None:
        tokens = steps + 1
    return DraftLength(tokens, max(steps * width, tokens))
