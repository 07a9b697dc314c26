"""What guesses tokens in SGLang: its numbers, what they reserve of the cache, and which models it is had with.

Read in SGLang 0.5.23: `arg_groups/speculative_hook.py` (defaults), `arg_groups/validation_hook.py` (pipelines),
`model_executor/model_runner_components/spec_aux_hidden_state.py` (layers that are counted), `configs/model_config.py`.
"""

from collections.abc import Iterator
from typing import NamedTuple

from calc.errors import Message, Refusal, shown
from calc.hardware.parallel import Layout
from calc.model.architecture import Architecture
from calc.serving.engines.sglang.options import SGLangOptions
from calc.serving.engines.vllm.drafts import HEAD_NOTE, eagle3_head

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
    """What a step guesses for a sequence."""

    tokens: int  # that are verified at once
    allocated: int  # tokens that a step may write


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


def own_tables(model: Architecture) -> Architecture:
    """The model with its layers that guess. They have an embedding and a head of their own until the cache is planned,
    and the model's after (`EagleDraftWorker.init_lm_head`)."""
    tables = {"embedding": "embed_tokens", "head": None if model.tied else "shared_head.head"}
    own = tuple(module.model_copy(update=tables) for module in model.prediction)
    return model.model_copy(update={"prediction": own})


def guesser(model: Architecture, options: SGLangOptions, named: Architecture | None) -> Architecture | None:
    """A model of its own that guesses tokens; `named` is what the flags say of it."""
    if options.speculative_algorithm == "STANDALONE":
        return named
    return eagle3_head(model, named) if options.speculative_algorithm == "EAGLE3" else None


def speculation_refusals(model: Architecture, options: SGLangOptions, named: Architecture | None) -> Iterator[Refusal]:
    """Why what guesses tokens can't be had with this model."""
    kind, path = options.speculative_algorithm, options.speculative_draft_model_path
    family = model.model_type.removesuffix("_text")
    if options.predicts and not model.prediction:
        sentence = (
            "This model has no multi-token prediction (MTP) layer; EAGLE3 and STANDALONE guess with another model."
        )
        yield Refusal(Message(sentence), "speculative_algorithm", ["EAGLE3", "STANDALONE", "NGRAM"])
    elif options.predicts and family not in PREDICTED:
        sentence = "{engine} has no multi-token prediction (MTP) for models of the family {family}."
        yield Refusal(Message(sentence, engine="SGLang", family=family), "speculative_algorithm", ["NGRAM"])
    if path is not None and kind not in ("EAGLE3", "STANDALONE"):
        why = Message("With speculative {kind} no draft model guesses tokens.", kind=str(kind))
    elif path is not None and named is None:
        why = Message("{name} is no model that is known here; presets are.", name=shown(path))
    elif kind == "STANDALONE" and named is None:
        why = Message("No draft model given (--speculative-draft-model-path).")
    elif kind == "EAGLE3" and eagle3_head(model, named) is None:
        why = Message("How many heads an EAGLE-3 head for this model has is not known: name its config.")
    else:
        return
    yield Refusal(why, "speculative_draft_model_path")


def unspread(options: SGLangOptions, layout: Layout) -> Iterator[Refusal]:
    """Why what guesses tokens does not go with a layout (`check_pipeline_parallel_compat`)."""
    kind = options.speculative_algorithm
    if kind is not None and layout.pp > 1:
        yield Refusal(
            Message("SGLang has drafts on pipeline stages (pp) where a server reads prompts alone."), "pp", [1]
        )
    if kind in ("STANDALONE", "NGRAM") and layout.dp > 1:
        sentence = "SGLang's {kind} does not go with copies of the attention (dp)."
        yield Refusal(Message(sentence, kind=str(kind)), "dp", [1])


def unnamed_head(options: SGLangOptions) -> tuple[str, ...]:
    """The flag of a head that is not named."""
    named = options.speculative_algorithm != "EAGLE3" or options.speculative_draft_model_path is not None
    return () if named else ("--speculative-draft-model-path", "org/draft")


def assumed(options: SGLangOptions) -> Iterator[Message]:
    """What is taken for granted of what guesses."""
    if options.speculative_algorithm == "EAGLE3":
        yield HEAD_NOTE
    if options.predicts:
        yield Message(
            "SGLang plans its cache while the layers that guess have an embedding and a head of their own, which are "
            "counted with them; later they share the model's."
        )
