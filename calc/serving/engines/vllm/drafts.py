"""What guesses tokens in vLLM: layers and models that are loaded for it, and which it is had with.

Read in the wheels of vLLM 0.11 to 0.33: `config/speculative.py`, `v1/worker/gpu/spec_decode/eagle/utils.py`,
`model_executor/models/llama_eagle3.py`.
"""

import json
from collections.abc import Iterator
from typing import Any

from calc.errors import Message, Refusal, shown
from calc.formats import Precision
from calc.formats.stored import stored
from calc.hardware.parallel import Layout
from calc.model.architecture import Architecture
from calc.model.attention import GQA
from calc.model.block import Block, Extra, PredictionModule
from calc.model.feedforward import MLP
from calc.serving.engines.engine import Engine
from calc.serving.engines.vllm.layers import compressed
from calc.serving.engines.vllm.options import Version, VLLMOptions, holds
from calc.serving.engines.vllm.rules import unserved_family

PROJECTION = "fc.weight"
SPECULATION = ("speculative", "num_speculative_tokens", "model_draft", "weights_draft")
"""Options that one flag says."""
PREDICTED_SINCE: dict[str, Version] = {
    "deepseek_v3": (0, 7),
    "deepseek_v32": (0, 11),
    "deepseek_v4": (0, 20),
    "bailing_hybrid": (0, 25),
    "ernie4_5_moe": (0, 10),
    "glm4_moe": (0, 10),
    "glm4_moe_lite": (0, 15),
    "glm_moe_dsa": (0, 16),
    "hy_v3": (0, 20),
    "mimo": (0, 9),
    "nemotron_h": (0, 17),
    "qwen3_5": (0, 17),
    "qwen3_5_moe": (0, 17),
    "qwen3_next": (0, 10),
}
"""The first version that predicts further tokens with a family's own layer (`SpeculativeConfig.hf_config_override`)."""
AUXILIARY, EXPANSION, VOCABULARY = 3, 3, 32_000
"""Layers of the model whose states an EAGLE-3 head reads; and what heads usually have: the width of an MLP over the
model's where that has experts, and tokens that they guess (`draft_vocab_size`)."""
HEAD_NOTE = Message(
    "EAGLE-3's head is taken to be a layer of Llama in 16 bits that guesses {rows:,} tokens and reads the model's "
    "embedding. Unless a flag names its config, it has the heads and the MLP of the model's last layer, and in place "
    "of experts an MLP of {n} times the model's width.",
    n=EXPANSION,
    rows=VOCABULARY,
)
NO_DRAFT_MODELS: tuple[Version, Version] = (0, 11), (0, 15)
"""From the version that took the first engine out to the one before the second got them (`v1/spec_decode`)."""


def with_own_layers(model: Architecture, options: VLLMOptions) -> Architecture:
    """The model with the layers that guess next to it: its own, which read its embedding and its head
    (`load_eagle_model`), or EAGLE's, one more like the last behind a projection of [state; embedding]."""
    if options.speculative == "mtp":
        shared = {"embedding": None} | ({"head": None} if holds("guesses share the head", options) else {})
        own = tuple(module.model_copy(update=shared) for module in model.prediction)
        return model.model_copy(update={"prediction": own}) if own != model.prediction else model
    if options.speculative != "eagle":
        return model
    after = model.num_layers
    (last,) = (block for block in model.blocks if after - 1 in block.layers)
    block = last.model_copy(update={"layers": (after,), "places": ()})
    return model.model_copy(update={"prediction": (PredictionModule(block=block, norms=(), projection=("fc",)),)})


def guesser(model: Architecture, options: VLLMOptions, named: Architecture | None) -> Architecture | None:
    """A model of its own that guesses tokens; `named` is what the flags say of it."""
    if options.speculative == "draft_model":
        return named
    return eagle3_head(model, named) if options.speculative == "eagle3" else None


def passing_layers(options: VLLMOptions, named: Architecture | None) -> int:
    """Layers of a draft that one guess passes: of a draft model all, else one (`deepseek_mtp.py`)."""
    if options.speculative in ("none", "ngram"):
        return 0
    return named.num_layers if options.speculative == "draft_model" and named is not None else 1


def eagle3_head(model: Architecture, named: Architecture | None) -> Architecture | None:
    """EAGLE-3's head, arXiv:2503.01840: one layer of Llama that reads [embedding; state], behind a projection of three
    of the model's states, and a vocabulary of its own. None where neither a name nor the model says how many heads
    attend in it: as many as in the model's last layer of grouped queries."""
    blocks = reversed(model.blocks) if named is None else named.blocks[:1]
    grouped = ((block, block.mixers[0].as_grouped()) for block in blocks if block.mixers[0].head_width is not None)
    block, heads = next(grouped, (None, None))
    if block is None or heads is None:
        return None
    wide = block.dense.intermediate if block.dense is not None else EXPANSION * model.hidden
    hidden = model.hidden if named is None else named.hidden
    layer = Block(
        layers=(0,),
        mixers=(GQA(n_q=heads.n_q, n_kv=heads.n_kv, d_head=heads.d_head, d_in=2 * hidden),),
        ffn=MLP(intermediate=wide),
        norms=("input_layernorm", "hidden_norm", "post_attention_layernorm"),
    )
    projection = Extra(name=PROJECTION, shape=(hidden, AUXILIARY * model.hidden), component="other")
    llama = {"model_type": "llama", "hidden_size": hidden, "num_hidden_layers": 1, "num_attention_heads": heads.n_q}
    rows = {"vocab_size": min(VOCABULARY, model.vocab), "tie_word_embeddings": False}
    head = Architecture.from_config(llama | rows | {"head_dim": heads.d_head, "intermediate_size": wide})
    return head.model_copy(update={"blocks": (layer,), "extras": (projection,)})


def draft_precision(options: VLLMOptions) -> Precision:
    """How the file of a draft stores it."""
    return Precision(weights=options.weights_draft or "bf16")


def draft_bytes(draft: Architecture, engine: Engine, precision: Precision, tp: int) -> int:
    """Bytes of a draft on one of tp ranks as an engine loads it; a head reads the model's embedding."""
    layout = Layout(tp=tp)
    rank = layout.rank(draft, engine.vocabulary(draft.vocab, tp))
    pieces = stored(draft, precision, rank)
    if any(extra.name == PROJECTION for extra in draft.extras):
        pieces = [piece for piece in pieces if piece.tensor.component != "embedding"]
    return engine.loaded(rank, pieces, range(draft.num_layers), layout).total


def undivided_draft(draft: Architecture | None, layout: Layout) -> Iterator[Refusal]:
    """Why ranks can't share a draft."""
    if draft is not None and Layout(tp=layout.tp).undivided(draft) is not None:
        sentence = "{tp:,} tensor-parallel ranks can't share what guesses tokens evenly."
        yield Refusal(Message(sentence, tp=layout.tp), "tp")


def assumed(options: VLLMOptions) -> Iterator[Message]:
    """What is taken for granted of a draft."""
    if options.speculative == "eagle":
        yield Message("EAGLE's draft layer is taken to be one more like the model's last, with a cache of its own.")
    if options.speculative == "eagle3":
        yield HEAD_NOTE


def draft_refusals(model: Architecture, options: VLLMOptions, draft: Architecture | None) -> Iterator[Refusal]:
    """Why what guesses tokens can't be had with this model."""
    kind, named = options.speculative, options.model_draft
    if kind == "mtp":
        yield from unpredicted(model, options)
    if named is not None and kind not in ("draft_model", "eagle3"):
        yield Refusal(Message("With speculative {kind} no draft model guesses tokens.", kind=kind), "model_draft")
    elif named is not None and draft is None:
        sentence = Message("{name} is no model that is known here; presets are.", name=shown(named))
        yield Refusal(sentence, "model_draft")
    if kind == "draft_model":
        yield from unfit_draft(model, options, draft)
    if kind == "eagle3" and (named is None or draft is not None):
        yield from unfit_head(model, draft)


def unfit_draft(model: Architecture, options: VLLMOptions, draft: Architecture | None) -> Iterator[Refusal]:
    """Why no draft model guesses tokens, or not this one (`verify_equal_vocab_size_if_draft_model`)."""
    missing, back = NO_DRAFT_MODELS
    if not options.older(*missing) and options.older(*back):
        yield Refusal(Message("vLLM {least} to {most} take no draft model.", least="0.11", most="0.14"), "version")
    if options.model_draft is None:
        yield Refusal(Message("No draft model given (--model-draft)."), "model_draft")
    if draft is None:
        return
    if draft.vocab != model.vocab:
        sentence = "The draft model's vocabulary has {other:,} tokens, the model's {own:,}: {engine} takes equal ones."
        yield Refusal(Message(sentence, other=draft.vocab, own=model.vocab, engine="vLLM"), "model_draft")
    yield from unserved_family(draft, options)


def unfit_head(model: Architecture, named: Architecture | None) -> Iterator[Refusal]:
    """Why EAGLE-3's head is not known, or not one."""
    if named is not None and named.num_layers != 1:
        sentence = "EAGLE-3's head has one layer, the draft model {n:,}: draft_model serves whole models."
        yield Refusal(Message(sentence, n=named.num_layers), "speculative", ["draft_model"])
    elif compressed(model):
        sentence = "There is no EAGLE-3 head for attention that compresses tokens; mtp guesses with a layer of its own."
        yield Refusal(Message(sentence), "speculative", ["mtp"])
    elif eagle3_head(model, named) is None:
        sentence = "How many heads an EAGLE-3 head for this model has is not known: name its config."
        yield Refusal(Message(sentence), "model_draft")


def unpredicted(model: Architecture, options: VLLMOptions) -> Iterator[Refusal]:
    """Why a model's own layer guesses nothing."""
    layers, family = len(model.prediction), model.model_type.removesuffix("_text")
    if not layers:
        sentence = "This model has no multi-token prediction (MTP) layer; eagle adds one of its layers."
        yield Refusal(Message(sentence), "speculative", ["eagle"])
    elif family not in PREDICTED_SINCE:
        sentence = "{engine} has no multi-token prediction (MTP) for models of the family {family}."
        yield Refusal(Message(sentence, engine="vLLM", family=family), "speculative", ["none", "ngram"])
    elif options.older(*PREDICTED_SINCE[family]):
        sentence = "vLLM has multi-token prediction (MTP) for models of the family {family} from version {version} on."
        version = ".".join(map(str, PREDICTED_SINCE[family]))
        yield Refusal(Message(sentence, family=family, version=version), "version", [version])
    if layers and options.guessed > layers and options.guessed % layers:
        sentence = "{n} tokens guessed at once are no multiple of the {layers} layers that guess them."
        below = options.guessed - options.guessed % layers
        near = [below, below + layers]
        yield Refusal(Message(sentence, n=options.guessed, layers=layers), "num_speculative_tokens", near)


def unstaged(model: Architecture, options: VLLMOptions, layout: Layout) -> Iterator[Refusal]:
    """Why drafts do not go with pipeline stages. Those that have no embedding of their own read the model's, which lies
    on the first stage (`maybe_share_target_embed`)."""
    if layout.pp == 1 or options.speculative in ("none", "ngram"):
        return
    if not holds("drafts on pipeline stages", options):
        yield Refusal(Message("vLLM has drafts on pipeline stages (pp) from version 0.30 on."), "pp", [1])
    elif options.speculative in ("eagle", "eagle3") or model.model_type == "nemotron_h":
        sentence = "This draft reads the model's embedding, which only the first of {pp} pipeline stages has."
        yield Refusal(Message(sentence, pp=layout.pp), "pp", [1])


def speculation(options: VLLMOptions) -> tuple[str, ...]:
    """The flag that says what guesses tokens."""
    if options.speculative == "none":
        return ()
    stated: dict[str, Any] = {"method": options.speculative}
    if options.speculative not in ("mtp", "ngram"):
        stated["model"] = options.model_draft or "org/draft"
    return "--speculative-config", json.dumps(stated | {"num_speculative_tokens": options.guessed})
