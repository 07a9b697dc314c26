"""Drafts next to a model in vLLM and SGLang: layers of its own, EAGLE-3's head, or a draft model."""

from abc import abstractmethod
from collections.abc import Iterator
from typing import ClassVar

from calc.errors import Message, Refusal, shown
from calc.formats import Precision
from calc.formats.stored import stored
from calc.hardware.parallel import Layout
from calc.model.architecture import Architecture
from calc.model.attention import GQA
from calc.model.block import Block, Extra
from calc.model.feedforward import MLP
from calc.serving.engines.engine import Engine
from calc.serving.engines.families import class_family, families

PROJECTION = "fc.weight"
AUXILIARY, EXPANSION, VOCABULARY = 3, 3, 32_000
"""Layers of the model whose states an EAGLE-3 head reads; and what heads usually have: the width of an MLP over the
model's where that has experts, and tokens that they draft (`draft_vocab_size`)."""


def eagle3_head(model: Architecture, named: Architecture | None) -> Architecture | None:
    """EAGLE-3's head, arXiv:2503.01840: one layer of Llama that reads [embedding; state], behind a projection of three
    of the model's states, and a vocabulary of its own. None where neither a name nor the model says how many heads
    attend in it: as many as in the model's last layer of grouped queries."""
    blocks = reversed(model.blocks) if named is None else named.blocks[:1]
    firsts = ((block, mixer) for block in blocks for mixer in block.mixers[:1])
    grouped = ((block, mixer.as_grouped()) for block, mixer in firsts if mixer.head_width is not None)
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


class DraftingEngine(Engine):
    """An engine with flags for speculative decoding."""

    method_option: ClassVar[str]
    """The flag that names the method of speculative decoding."""
    draft_option: ClassVar[str]
    """The flag that names a draft model, or the config of a head."""
    without_draft: ClassVar[tuple[str, ...]]
    """Methods by which no layers or models draft tokens."""

    @property
    @abstractmethod
    def drafter(self) -> str:
        """Kind of draft, by vLLM's words: none, mtp (the model's own layers), eagle (one more like its last), eagle3 (a
        head), draft_model, ngram."""

    @property
    @abstractmethod
    def draft_tokens(self) -> int:
        """Tokens that a draft proposes at once."""

    @property
    def draft_precision(self) -> Precision:
        """Precision of a draft's file."""
        return Precision()

    @property
    def auxiliary(self) -> int:
        """Number of the model's layers whose hidden states are saved for an EAGLE-3 head."""
        return AUXILIARY if self.drafter == "eagle3" else 0

    @property
    def loads_draft(self) -> bool:
        return self.drafter in ("mtp", "eagle")

    def draft_architecture(self, model: Architecture) -> Architecture | None:
        """The draft model, or EAGLE-3 head, of a model; None where no separate model drafts tokens."""
        if self.drafter == "draft_model":
            return self.draft_model
        return eagle3_head(model, self.draft_model) if self.drafter == "eagle3" else None

    def draft(self, precision: Precision) -> tuple[Architecture, Precision, int] | None:
        if self.drafter != "draft_model" or self.draft_model is None:
            return None
        return self.draft_model, self.draft_precision, self.draft_tokens

    def draft_weights_per_stage(
        self, architecture: Architecture, precision: Precision, tp: int, stages: int
    ) -> tuple[int, ...]:
        """Bytes of the draft on a rank by stage [stages], all on the last; a head reads the model's embedding."""
        nbytes, draft = self.draft_tables(architecture, tp, stages), self.draft_architecture(architecture)
        if draft is not None:
            layout = Layout(tp=tp)
            rank = self.rank(draft, layout)
            pieces = stored(draft, self.draft_precision, rank)
            if any(extra.name == PROJECTION for extra in draft.extras):
                pieces = [piece for piece in pieces if piece.tensor.component != "embedding"]
            nbytes += self.loaded(rank, pieces, range(draft.num_layers), layout).total
        return (*(0,) * (stages - 1), nbytes)

    @abstractmethod
    def draft_tables(self, architecture: Architecture, tp: int, stages: int) -> int:
        """Bytes of the draft's own embedding on one of tp ranks."""

    def left_out(self) -> Iterator[Message]:
        if self.drafter == "eagle":
            yield Message("EAGLE's draft layer is taken to be one more like the model's last, with a cache of its own.")
        if self.drafter == "eagle3":
            yield Message(
                "EAGLE-3's head is taken to be a layer of Llama in 16 bits that guesses {rows:,} tokens and reads the "
                "model's embedding. Unless a flag names its config, it has the heads and the MLP of the model's last "
                "layer, and in place of experts an MLP of {n} times the model's width.",
                n=EXPANSION,
                rows=VOCABULARY,
            )

    def draft_layout_refusals(self, model: Architecture, layout: Layout) -> Iterator[Refusal]:
        draft = self.draft_architecture(model)
        if draft is not None and Layout(tp=layout.tp).undivided(draft) is not None:
            sentence = "{tp:,} tensor-parallel ranks can't share the draft evenly."
            yield Refusal(Message(sentence, tp=layout.tp), "tp")

    def draft_refusals(self, model: Architecture) -> Iterator[Refusal]:
        """Refusals of the speculative method with this model."""
        stated, path = getattr(self.options, self.method_option), getattr(self.options, self.draft_option)
        why = None
        if self.drafter == "mtp":
            family = model.model_type.removesuffix("_text")
            unread = {family, class_family(model)} & families(self.name, "unread_prediction")
            if unread and not model.prediction:
                sentence = (
                    "{engine} has multi-token prediction (MTP) for models of the family {family} by layers that are "
                    "not counted here."
                )
                yield Refusal(Message(sentence, engine=self.title, family=unread.pop()), self.method_option)
            else:
                yield from self.mtp_refusals(model, family)
        if path is not None and self.drafter not in ("draft_model", "eagle3"):
            why = Message("With speculative {kind} no draft model guesses tokens.", kind=str(stated))
        elif path is not None and self.draft_model is None:
            why = Message("{name} is not a known model; presets are.", name=shown(path))
        else:
            if self.drafter == "eagle3" and not self.hands_states(family := class_family(model)):
                sentence = "{engine}'s class of {family} hands no states to a head of EAGLE-3."
                message = Message(sentence, engine=self.title, family=family)
                yield Refusal(message, self.method_option, self.without_draft)
            yield from self.draft_model_refusals(model)
            if self.drafter == "draft_model" and self.draft_model is None:
                why = Message("No draft model given ({flag}).", flag=f"--{self.draft_option.replace('_', '-')}")
            elif self.drafter == "eagle3" and eagle3_head(model, self.draft_model) is None:
                why = Message("The number of heads of an EAGLE-3 head for this model is not known: name its config.")
        if why is not None:
            yield Refusal(why, self.draft_option)

    @abstractmethod
    def mtp_refusals(self, model: Architecture, family: str) -> Iterator[Refusal]:
        """Refusals of drafts by the model's own layers for multi-token prediction."""

    @abstractmethod
    def hands_states(self, family: str) -> bool:
        """Whether the engine's class of a family hands its states to a head of EAGLE-3."""

    def draft_model_refusals(self, model: Architecture) -> Iterator[Refusal]:
        """Refusals of a draft model or head for this model."""
        yield from ()
