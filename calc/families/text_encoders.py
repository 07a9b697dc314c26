"""Encoders of texts, behind embedding models and rerankers: BERT (arXiv:1810.04805) and its line; and the decoder of
ModernBERT.

Each token sees the whole text. Layers norm the sum with the residual stream, but for ModernBERT and EuroBERT. What
stands around the layers follows the class that `architectures` names: an encoder alone (of which a vector is pooled),
with words in place of masks, or with scores.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from calc.errors import ConfigError, Message
from calc.families.attention_rows import Attention, Sliding
from calc.families.family import GATE_UP, LOOPED, PACKED_QKV, Family, Weights, extras, extras_of
from calc.families.feedforward_rows import Dense
from calc.families.fields import Fields, Flag, If, Size, number, true
from calc.families.rotary import Rotary
from calc.families.tasks import Task, labels, task
from calc.model.block import Block, Extra
from calc.model.conventions import Kernels, Names
from calc.model.tensor import Component, Norm, Shape, Shapes, biased, with_biases

BIDIRECTIONAL = Attention(kv=None, head_dim=None, bias=True, bidirectional=True)
PLAIN_MLP = Dense(bias=True, gated=False)
POST_NORM = Kernels(norms_sums=True, fp32_softmax=False)


@dataclass(frozen=True, kw_only=True, eq=False)
class OutsideEncoderLayers:
    """Weights of an encoder outside its layers, as its checkpoint names them: embeddings, pooler, head of its task."""

    module: str  # that the encoder lies in where something stands behind it
    hidden: str = "hidden_size"
    width: Size = "hidden_size"  # of an embedding
    norm: str = "embeddings.LayerNorm"  # behind the embeddings
    norm_width: Size | None = None  # None: an embedding's
    norm_bias: Flag = True
    types: str | None = "type_vocab_size"  # rows of the table of token types
    projection: str | None = None  # from an embedding's width to the layers', where they differ
    projection_bias: bool = True
    projected: bool = False  # even where they do not
    pooler: frozenset[Task] = frozenset()  # tasks with a matrix that the first token's state passes
    pooler_name: str = "pooler.dense"
    pooler_outside: bool = False  # next to the encoder's module, not in it
    transform: str = "lm_head.dense"  # before words are scored
    transform_width: Size | None = None  # None: an embedding's
    transform_bias: Flag = True
    transform_norm: str = "lm_head.layer_norm"
    words: str = "lm_head"  # that holds the bias of each word
    words_bias: Flag = True
    head: str = "lm_head.decoder"  # that scores words where it is not tied
    scores: tuple[str, ...] = ("classifier.dense", "classifier.out_proj")
    scored_by_transform: bool = False  # before texts are scored, too
    further_weights: Callable[[Fields], Shapes] = lambda c: {}  # what only this one has in the encoder, of attention

    def module_of(self, c: Fields) -> str:
        """The module that the encoder lies in; empty where it stands alone."""
        return "" if task(c) == "base" else self.module

    def __call__(self, c: Fields) -> tuple[Extra, ...]:
        return extras_of(self.parts(c))

    def parts(self, c: Fields) -> Iterator[tuple[Component, Shapes]]:
        """Weights before the layers (token types, the norm behind the embeddings, the projection to the layers' width)
        and behind them (the pooler, and the head of the checkpoint's task)."""
        hidden, width, what = c.size(self.hidden), number(c, self.width), task(c)
        norm_bias, within = true(c, self.norm_bias), Names(module=self.module_of(c)).full
        if self.types is not None and (kinds := c.maybe(self.types, 0)):
            yield "embedding", {within("embeddings.token_type_embeddings.weight"): (kinds, width)}
        normed = width if self.norm_width is None else number(c, self.norm_width)
        yield "norms", biased(norm_bias, {within(self.norm): (normed,)})
        if self.projection is not None and (self.projected or width != hidden):
            yield "embedding", biased(self.projection_bias, {within(self.projection): (hidden, width)})
        yield "attention", {within(name): shape for name, shape in self.further_weights(c).items()}
        if what in self.pooler:
            pooler = self.pooler_name if self.pooler_outside else within(self.pooler_name)
            yield "other", with_biases({pooler: (hidden, hidden)})
        if what == "words" or (what != "base" and self.scored_by_transform):
            out = width if self.transform_width is None else number(c, self.transform_width)
            yield "other", biased(true(c, self.transform_bias), {self.transform: (out, hidden)})
            yield "norms", biased(norm_bias, {self.transform_norm: (out,)})
        if what == "words" and true(c, self.words_bias):
            yield "other", {f"{self.words}.bias": (c.size("vocab_size"),)}
        if what == "words" and not c.flag("tie_word_embeddings"):
            yield "lm_head", biased(self.head != self.words, {self.head: (c.size("vocab_size"), width)})
        if what == "scores":
            *dense, last = self.scores
            yield from (("other", with_biases({name: (hidden, hidden)})) for name in dense)
            yield "other", with_biases({last: (labels(c), hidden)})
        if what == "token_scores":
            yield "other", with_biases({"classifier": (labels(c), hidden)})


def named(outside: OutsideEncoderLayers, names: Names) -> Callable[[Fields], Names]:
    """The names of an encoder that stands alone, within its module where something stands behind it."""
    return lambda c: names.but(module=outside.module_of(c))


def offset_positions(c: Fields) -> int:
    """Tokens for which RoBERTa has positions: they are counted on from behind that of padding."""
    padding = c.get("pad_token_id")
    return max(1, c.size("max_position_embeddings") - (padding if type(padding) is int and padding >= 0 else 1) - 1)


BERT_NAMES = Names(
    embedding="embeddings.word_embeddings",
    positions="embeddings.position_embeddings",
    layer="encoder.layer.{layer}",
    attention="attention",
    mlp="",
    renamed={"q_proj": "self.query", "k_proj": "self.key", "v_proj": "self.value", "o_proj": "output.dense"}
    | {"up_proj": "intermediate.dense", "down_proj": "output.dense"},
)
BERT_NORMS = ("attention.output.LayerNorm", "output.LayerNorm")
BERT_OUTSIDE = OutsideEncoderLayers(
    module="bert",
    pooler=frozenset({"base", "scores"}),
    transform="cls.predictions.transform.dense",
    transform_norm="cls.predictions.transform.LayerNorm",
    words="cls.predictions",
    head="cls.predictions.decoder",
    scores=("classifier",),
)
ROBERTA_OUTSIDE = OutsideEncoderLayers(module="roberta", pooler=frozenset({"base"}))


def encoder(outside: OutsideEncoderLayers, names: Names, **other: object) -> Family:
    """A row: BERT's, but for what is given."""
    row = Family(
        mixer=BIDIRECTIONAL,
        ffn=PLAIN_MLP,
        norms=BERT_NORMS,
        norm="layer",
        final_norm="none",
        kernels=POST_NORM,
        names=named(outside, names),
        rotary=None,
        positions="max_position_embeddings",
        extras=(outside,),
        pools=True,
        ties=False,
    )
    return replace(row, **other)  # type: ignore[arg-type]


# XLM-RoBERTa in Jina's code, with rotary positions and adapters for tasks in the checkpoint

FLASH_NAMES = BERT_NAMES.but(
    layer="encoder.layers.{layer}",
    mlp="mlp",
    attention="mixer",
    packed={"Wqkv": PACKED_QKV},
    renamed={"o_proj": "out_proj", "up_proj": "fc1", "down_proj": "fc2"},
)
FLASH_OUTSIDE = replace(ROBERTA_OUTSIDE, norm="emb_ln")
FLASH_NORMS = ("norm1", "norm2")


def has_rotary_positions(c: Fields) -> bool:
    """Whether positions are rotary: `position_embedding_type` of jinaai/xlm-roberta-flash-implementation."""
    return str(c.get("position_embedding_type")) == "rotary"


def xlm_names(c: Fields) -> Names:
    return named(FLASH_OUTSIDE, FLASH_NAMES)(c) if has_rotary_positions(c) else named(ROBERTA_OUTSIDE, BERT_NAMES)(c)


def adapter_rank(c: Fields) -> tuple[int, int]:
    """Tasks that have adapters, and the rank of one (`modeling_lora.py` of the same)."""
    tasks = c.get("lora_adaptations")
    return (len(tasks), c.size("lora_rank")) if isinstance(tasks, list) and tasks else (0, 0)


def adapters_of(c: Fields, shapes: Shapes) -> tuple[Extra, ...]:
    """The adapters of some matrices, for all tasks at once; those of a table lie turned, since a token picks its row
    (`LoRAParametrization` of the same, and vLLM's `JinaRobertaModel.jina_merge_lora_weights`)."""
    n, rank = adapter_rank(c)
    adapters: Shapes = {}
    for name, (out, inputs) in shapes.items() if n else ():
        a, b = ((inputs, rank), (rank, out)) if "embeddings." in name else ((rank, inputs), (out, rank))
        where = f"{name}.parametrizations.weight.0"
        adapters |= {f"{where}.lora_A": (n, *a), f"{where}.lora_B": (n, *b)}
    return extras("other", adapters)


def xlm_outside(c: Fields) -> tuple[Extra, ...]:
    if not has_rotary_positions(c):
        return ROBERTA_OUTSIDE(c)
    hidden, names = c.size("hidden_size"), xlm_names(c)
    matrices: Shapes = {"embeddings.word_embeddings": (hidden, c.size("vocab_size"))}
    if kinds := c.size("type_vocab_size", 0):
        matrices["embeddings.token_type_embeddings"] = (hidden, kinds)
    if task(c) in FLASH_OUTSIDE.pooler:
        matrices["pooler.dense"] = (hidden, hidden)
    return FLASH_OUTSIDE(c) + adapters_of(c, {names.full(name): shape for name, shape in matrices.items()})


def xlm_layer(c: Fields, layer: int) -> tuple[Extra, ...]:
    """Adapters of a layer's matrices, where the checkpoint has them."""
    if not has_rotary_positions(c):
        return ()
    hidden, wide = c.size("hidden_size"), c.size("intermediate_size")
    matrices: Shapes = {"mixer.Wqkv": (3 * hidden, hidden), "mixer.out_proj": (hidden, hidden)}
    matrices |= {"mlp.fc1": (wide, hidden), "mlp.fc2": (hidden, wide)}
    return c.once("adapters", lambda: adapters_of(c, matrices))


# ALBERT, arXiv:1909.11942: layers share weights

ALBERT_OUTSIDE = OutsideEncoderLayers(
    module="albert",
    width="embedding_size",
    projection="encoder.embedding_hidden_mapping_in",
    projected=True,
    pooler=frozenset({"base", "scores"}),
    pooler_name="pooler",
    transform="predictions.dense",
    transform_norm="predictions.LayerNorm",
    words="predictions",
    head="predictions.decoder",
    scores=("classifier",),
)
ALBERT_NAMES = BERT_NAMES.but(
    layer="layers.{layer}",
    renamed={"q_proj": "query", "k_proj": "key", "v_proj": "value", "o_proj": "dense"}
    | {"up_proj": "ffn", "down_proj": "ffn_output"},
)


def albert_layers(c: Fields) -> tuple[Block, ...]:
    """The layers of each group, which run one after another, as often as the group does."""
    layers, groups, inner = c.sizes("num_hidden_layers", "num_hidden_groups", "inner_group_num")
    if groups > layers:
        sentence = "num_hidden_groups is {groups:,}, more than the {layers:,} layers that share them."
        raise ConfigError(Message(sentence, groups=groups, layers=layers), "num_hidden_groups", [layers])
    names = ALBERT_NAMES.but(module=ALBERT_OUTSIDE.module_of(c))
    return tuple(
        Block(
            layers=(group,),
            mixers=(BIDIRECTIONAL(c),),
            ffn=PLAIN_MLP(c),
            norms=("attention.LayerNorm", "full_layer_layer_norm"),
            norm="layer",
            stack=names.full(f"encoder.albert_layer_groups.{{layer}}.albert_layers.{number}"),
            places=tuple(i for i in range(layers) if i * groups // layers == group),
        )
        for group in range(groups)
        for number in range(inner)
    )


# DeBERTa v2 and v3, arXiv:2006.03654, arXiv:2111.09543


def relative_positions(c: Fields) -> Shapes:
    """The table of distances, its norm, and a convolution next to the first layer."""
    hidden, shapes = c.size("hidden_size"), dict[str, Shape]()
    if c.flag("relative_attention"):
        buckets, most = c.get("position_buckets"), c.get("max_relative_positions")
        distances = next((n for n in (buckets, most) if type(n) is int and n > 0), None)
        shapes["encoder.rel_embeddings.weight"] = (2 * (distances or c.size("max_position_embeddings")), hidden)
    if "layer_norm" in str(c.get("norm_rel_ebd")):
        shapes |= with_biases({"encoder.LayerNorm": (hidden,)})
    if kernel := c.maybe("conv_kernel_size", 0):
        groups = c.maybe("conv_groups") or 1
        shapes |= with_biases({"encoder.conv.conv": (hidden, hidden // groups, kernel)})
        shapes |= with_biases({"encoder.conv.LayerNorm": (hidden,)})
    return shapes


DEBERTA_OUTSIDE = replace(
    BERT_OUTSIDE,
    module="deberta",
    width=lambda c: c.maybe("embedding_size") or c.size("hidden_size"),
    norm_width="hidden_size",
    projection="embeddings.embed_proj",
    projection_bias=False,
    pooler=frozenset({"scores"}),
    pooler_outside=True,
    transform_width="hidden_size",
    further_weights=relative_positions,
)
DEBERTA_NAMES = BERT_NAMES.but(
    renamed={**BERT_NAMES.renamed, "q_proj": "self.query_proj", "k_proj": "self.key_proj"}
    | {"v_proj": "self.value_proj"}
)


def deberta_layer(c: Fields, layer: int) -> tuple[Extra, ...]:
    """Projections of distances that are not those of keys and queries."""
    kinds, hidden = c.get("pos_att_type"), c.size("hidden_size")
    if not c.flag("relative_attention") or c.flag("share_att_key"):
        return ()
    words = kinds if isinstance(kinds, list | str) else []
    projections = {"c2p": "pos_key_proj", "p2c": "pos_query_proj"}
    names = [f"attention.self.{name}" for word, name in projections.items() if word in words]
    return extras_of(("attention", with_biases({name: (hidden, hidden)})) for name in names)


# Those with gates and rotary positions

GTE_OUTSIDE = OutsideEncoderLayers(
    module="new",
    pooler=frozenset({"scores"}),
    transform_norm="lm_head.norm",
    words="lm_head.decoder",
    scores=("classifier",),
)
NOMIC_OUTSIDE = replace(
    BERT_OUTSIDE, norm="emb_ln", transform_norm="cls.predictions.transform.layer_norm", pooler=frozenset({"scores"})
)
MODERNBERT_OUTSIDE = OutsideEncoderLayers(
    module="model",
    norm="embeddings.norm",
    norm_bias="norm_bias",
    types=None,
    transform="head.dense",
    transform_bias="classifier_bias",
    transform_norm="head.norm",
    words="decoder",
    words_bias="decoder_bias",
    head="decoder",
    scores=("classifier",),
    scored_by_transform=True,
)
MODERNBERT_WINDOW = Sliding(full_every="global_attn_every_n_layers", full_at=0, size="local_attention")
MODERNBERT_NORM: If[Norm] = If("norm_bias", "layer", "rms")


def modernbert_norms(c: Fields, layer: int) -> tuple[str, ...]:
    return ("attn_norm", "mlp_norm") if layer else ("mlp_norm",)


MODERNBERT_DECODER = Family(  # Ettin, arXiv:2507.11412
    mixer=Attention(
        head_dim=None,
        bias="attention_bias",
        window=replace(  # of published configs half of what they state
            MODERNBERT_WINDOW, size=lambda c: c.maybe("sliding_window") or c.size("local_attention") // 2
        ),
    ),
    norms=modernbert_norms,
    norm=MODERNBERT_NORM,
    names=Names(
        embedding="embeddings.tok_embeddings",
        attention="attn",
        final_norm="final_norm",
        lm_head="decoder",
        packed={"Wi": GATE_UP},
        renamed={"o_proj": "Wo", "down_proj": "Wo"},
    ),
    extras=(  # a norm behind the embedding, and a matrix with a norm before the head
        Weights("norms", {f"{path}.norm.weight": ("hidden_size",) for path in ("model.embeddings", "lm_head")}),
        Weights(
            "norms", {f"{path}.norm.bias": ("hidden_size",) for path in ("model.embeddings", "lm_head")}, "norm_bias"
        ),
        Weights("other", {"lm_head.dense.weight": ("hidden_size", "hidden_size")}),
        Weights("other", {"lm_head.dense.bias": ("hidden_size",)}, "classifier_bias"),
    ),
    head_bias="decoder_bias",
)


def eurobert_behind(c: Fields) -> tuple[Extra, ...]:
    """Words are scored by a matrix alone; texts by two, tokens by one."""
    hidden, what = c.size("hidden_size"), task(c)
    if what == "words":
        scored = biased(c.flag("mlp_bias"), {"lm_head": (c.size("vocab_size"), hidden)})
        tied = {"lm_head.weight"} if c.flag("tie_word_embeddings") else set()
        return extras("lm_head", {name: shape for name, shape in scored.items() if name not in tied})
    dense = extras("other", with_biases({"dense": (hidden, hidden)})) if what == "scores" else ()
    return dense if what == "base" else dense + extras("other", with_biases({"classifier": (labels(c), hidden)}))


BERT = encoder(BERT_OUTSIDE, BERT_NAMES)
ROBERTA = encoder(ROBERTA_OUTSIDE, BERT_NAMES, max_positions=offset_positions)

GTE = encoder(
    GTE_OUTSIDE,
    Names(
        embedding="embeddings.word_embeddings",
        layer="encoder.layer.{layer}",
        attention="attention",
        packed={"qkv_proj": PACKED_QKV, "up_gate_proj": ("up_proj", "gate_proj")},
    ),
    kernels=POST_NORM.model_copy(update={"packs": (PACKED_QKV,)}),
    ffn=Dense(bias=False),
    norms=("attn_ln", "mlp_ln"),
    layer_extras=(lambda c, layer: extras("mlp", {"mlp.down_proj.bias": (c.size("hidden_size"),)}),),
    rotary=Rotary(),
    positions=None,
)
TEXT_ENCODERS: dict[str, Family] = {
    "bert": BERT,
    "roberta": ROBERTA,
    "camembert": ROBERTA,
    "xlm-roberta": replace(
        ROBERTA,
        names=xlm_names,
        norms=If(has_rotary_positions, FLASH_NORMS, BERT_NORMS),
        extras=(xlm_outside,),
        layer_extras=(xlm_layer,),
        rotary=If(has_rotary_positions, Rotary(), None),
        positions=lambda c: 0 if has_rotary_positions(c) else c.size("max_position_embeddings"),
    ),
    "jina_embeddings_v3": encoder(FLASH_OUTSIDE, FLASH_NAMES, norms=FLASH_NORMS, rotary=Rotary(), positions=None),
    "distilbert": encoder(
        OutsideEncoderLayers(
            module="distilbert",
            hidden="dim",
            width="dim",
            types=None,
            transform="vocab_transform",
            transform_norm="vocab_layer_norm",
            words="vocab_projector",
            head="vocab_projector",
            scores=("pre_classifier", "classifier"),
        ),
        BERT_NAMES.but(
            layer="transformer.layer.{layer}",
            mlp="ffn",
            renamed={"q_proj": "q_lin", "k_proj": "k_lin", "v_proj": "v_lin", "o_proj": "out_lin"}
            | {"up_proj": "lin1", "down_proj": "lin2"},
        ),
        mixer=replace(BIDIRECTIONAL, heads="n_heads", hidden="dim"),
        ffn=Dense("hidden_dim", True, gated=False),
        norms=("sa_layer_norm", "output_layer_norm"),
        hidden="dim",
        layers="n_layers",
    ),
    "mpnet": encoder(
        replace(
            ROBERTA_OUTSIDE,
            module="mpnet",
            types=None,
            further_weights=lambda c: {
                "encoder.relative_attention_bias.weight": (
                    c.size("relative_attention_num_buckets"),
                    c.size("num_attention_heads"),
                )
            },
        ),
        BERT_NAMES.but(
            renamed={**BERT_NAMES.renamed, "q_proj": "attn.q", "k_proj": "attn.k", "v_proj": "attn.v"}
            | {"o_proj": "attn.o"}
        ),
        norms=("attention.LayerNorm", "output.LayerNorm"),
        max_positions=offset_positions,
    ),
    "electra": encoder(
        OutsideEncoderLayers(
            module="electra",
            width="embedding_size",
            projection="embeddings_project",
            transform="generator_predictions.dense",
            transform_norm="generator_predictions.LayerNorm",
            words="generator_lm_head",
            head="generator_lm_head",
        ),
        BERT_NAMES,
        d_embedding="embedding_size",
        d_positions="embedding_size",
    ),
    "albert": encoder(
        ALBERT_OUTSIDE,
        ALBERT_NAMES,
        mixer=LOOPED.mixer,
        ffn=LOOPED.ffn,
        norms=(),
        shared=albert_layers,
        d_embedding="embedding_size",
        d_positions="embedding_size",
    ),
    "deberta-v2": encoder(
        DEBERTA_OUTSIDE,
        DEBERTA_NAMES,
        mixer=replace(BIDIRECTIONAL, head_dim="attention_head_size"),
        layer_extras=(deberta_layer,),
        positions=lambda c: 0 if c.get("position_biased_input") is False else c.size("max_position_embeddings"),
        d_embedding=DEBERTA_OUTSIDE.width,
        d_positions=DEBERTA_OUTSIDE.width,
    ),
    "modernbert": encoder(
        MODERNBERT_OUTSIDE,
        Names(
            embedding="embeddings.tok_embeddings",
            layer="layers.{layer}",
            attention="attn",
            final_norm="final_norm",
            packed={"Wqkv": PACKED_QKV, "Wi": GATE_UP},
            renamed={"o_proj": "Wo", "down_proj": "Wo"},
        ),
        mixer=replace(BIDIRECTIONAL, bias="attention_bias", window=MODERNBERT_WINDOW),
        ffn=Dense(),
        norms=modernbert_norms,
        norm=MODERNBERT_NORM,
        final_norm=None,
        kernels=Kernels(),
        rotary=Rotary(own_within_windows=True),
        positions=None,
    ),
    "modernbert-decoder": MODERNBERT_DECODER,
    "nomic_bert": encoder(
        NOMIC_OUTSIDE,
        FLASH_NAMES.but(
            attention="attn",
            packed={"Wqkv": PACKED_QKV},
            renamed={"o_proj": "out_proj", "up_proj": "fc11", "gate_proj": "fc12", "down_proj": "fc2"},
        ),
        mixer=replace(BIDIRECTIONAL, bias="qkv_proj_bias", head_dim="head_dim"),
        ffn=Dense(bias="mlp_fc1_bias"),
        norms=FLASH_NORMS,
        rotary=Rotary(),
        positions=None,
    ),
    "gte": GTE,
    "new": GTE,
    "eurobert": Family(
        mixer=Attention(bias="attention_bias", bidirectional=True),
        names=named(MODERNBERT_OUTSIDE, Names()),
        extras=(eurobert_behind,),
        pools=True,
        ties=False,
    ),
}
