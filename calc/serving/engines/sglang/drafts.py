"""Drafts in SGLang: numbers of tokens, what they reserve of the cache, and models that allow them.

Read in SGLang 0.5.23: `arg_groups/speculative_hook.py` (defaults), `arg_groups/validation_hook.py` (pipelines),
`model_executor/model_runner_components/spec_aux_hidden_state.py` (layers that are counted), `configs/model_config.py`.
"""

from collections.abc import Iterator
from typing import ClassVar, NamedTuple

from calc.errors import Message, Refusal
from calc.hardware.parallel import Layout
from calc.model.architecture import Architecture
from calc.serving.engines.drafts import DraftingEngine
from calc.serving.engines.sglang.options import SGLangOptions, SpeculativeAlgorithm

DRAFTERS: dict[SpeculativeAlgorithm | None, str] = {
    None: "none",
    "NEXTN": "mtp",  # another name of EAGLE
    "EAGLE": "mtp",
    "EAGLE3": "eagle3",
    "STANDALONE": "draft_model",
    "NGRAM": "ngram",
}
GUESSING_REQUESTS = 48
"""Sequences at once where something guesses and no flag says how many."""
NGRAM_TOKENS = 12
PREDICTED = frozenset(
    "deepseek_v3 deepseek_v32 deepseek_v4 ernie4_5_moe glm4_moe glm4_moe_lite glm_moe_dsa hy_v3 kimi_k2 mimo "
    "nemotron_h qwen3_5 qwen3_5_moe qwen3_next".split()
)
"""Families whose own layers for it guess tokens."""
UNCOUNTED = frozenset("qwen3_5_text qwen3_5_moe_text qwen3_next".split())
"""Model types whose config states no `num_nextn_predict_layers`: the cache of their layer is left out of the plan."""


class Guesses(NamedTuple):
    """Tokens that a step guesses for a sequence."""

    tokens: int  # that are verified at once
    allocated: int  # tokens that a step may write


def attention_copies(architecture: Architecture, layout: Layout) -> int:
    """Copies of the attention that share the other layers (`--attn-dp-size`); those of a model without experts are
    servers of their own, with all flags for each (`--dp-size`)."""
    return layout.dp if architecture.experts else 1


def guesses(options: SGLangOptions, model_type: str) -> Guesses | None:
    """The flags, or SGLang's own choice (`_auto_choose_speculative_params`); a chain has a token more than steps."""
    steps, width, tokens = (
        options.speculative_num_steps,
        options.speculative_eagle_topk or 1,
        options.speculative_num_draft_tokens,
    )
    if options.speculative_algorithm is None:
        return None
    if options.speculative_algorithm == "NGRAM":
        return Guesses(tokens or NGRAM_TOKENS, tokens or NGRAM_TOKENS)
    if steps is None:
        tree = model_type == "llama" and options.speculative_algorithm != "STANDALONE"
        steps, width, tokens = (5, 4, 8) if tree else (3, 1, 4)
    if width == 1 or tokens is None:
        tokens = steps + 1
    return Guesses(tokens, max(steps * width, tokens))


class SGLangDrafts(DraftingEngine):
    """Drafts in SGLang."""

    method_option: ClassVar[str] = "speculative_algorithm"
    draft_option: ClassVar[str] = "speculative_draft_model_path"
    options: SGLangOptions

    @property
    def drafter(self) -> str:
        return DRAFTERS[self.options.speculative_algorithm]

    @property
    def guessed(self) -> int:
        guess = guesses(self.options, "")
        return 0 if guess is None else guess.tokens - 1

    def with_draft(self, architecture: Architecture) -> Architecture:
        """The model with its layers that guess. They have an embedding and a head of their own until the cache is
        planned, and the model's after (`EagleDraftWorker.init_lm_head`)."""
        if not self.loads_draft:
            return architecture
        tables = {"embedding": "embed_tokens", "head": None if architecture.tied else "shared_head.head"}
        own = tuple(module.model_copy(update=tables) for module in architecture.prediction)
        return architecture.model_copy(update={"prediction": own})

    def draft_tables(self, architecture: Architecture, tp: int, stages: int) -> int:
        """A head has an embedding of its own until the cache is planned."""
        rows = self.vocabulary(architecture.vocab, tp)
        return 2 * rows * architecture.hidden if self.drafter == "eagle3" else 0

    def left_out(self) -> Iterator[Message]:
        yield from super().left_out()
        if self.loads_draft:
            yield Message(
                "SGLang plans its cache while the layers that guess have an embedding and a head of their own, which "
                "are counted with them; later they share the model's."
            )

    def unpredicted(self, model: Architecture, family: str) -> Iterator[Refusal]:
        if not model.prediction:
            sentence = (
                "This model has no multi-token prediction (MTP) layer; EAGLE3 and STANDALONE guess with another model."
            )
            yield Refusal(Message(sentence), "speculative_algorithm", ["EAGLE3", "STANDALONE", "NGRAM"])
        elif family not in PREDICTED:
            sentence = "{engine} has no multi-token prediction (MTP) for models of the family {family}."
            yield Refusal(Message(sentence, engine="SGLang", family=family), "speculative_algorithm", ["NGRAM"])

    def unspread_draft(self, model: Architecture, layout: Layout) -> Iterator[Refusal]:
        """Why what guesses tokens does not go with a layout (`check_pipeline_parallel_compat`)."""
        kind = self.options.speculative_algorithm
        if kind is not None and layout.pp > 1:
            sentence = "SGLang has drafts on pipeline stages (pp) where a server reads prompts alone."
            yield Refusal(Message(sentence), "pp", [1])
        if kind in ("STANDALONE", "NGRAM") and attention_copies(model, layout) > 1:
            sentence = "SGLang's {kind} does not go with copies of the attention (dp)."
            yield Refusal(Message(sentence, kind=str(kind)), "dp", [1])

    @property
    def unnamed_head(self) -> tuple[str, ...]:
        """The flag of a head that is not named."""
        unnamed = self.drafter == "eagle3" and self.options.speculative_draft_model_path is None
        return ("--speculative-draft-model-path", "org/draft") if unnamed else ()
