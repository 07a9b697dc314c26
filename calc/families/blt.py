"""Meta's Byte Latent Transformer, arXiv:2412.09871: a wide stack reads patches of bytes, narrow ones the bytes.

Its config has a section for each stack. What runs once for each patch is read as the decoder; the stacks that read
bytes (encoder, decoder, and the one that cuts patches) and their tables are weights of their own.
"""

from collections.abc import Mapping
from typing import Any

from calc.errors import ConfigError, Message, shown
from calc.families.attention_rows import Attention
from calc.families.family import TWO_NORMS, Family, extras
from calc.families.feedforward_rows import Dense
from calc.families.fields import Fields
from calc.model.block import Extra
from calc.model.names import Names
from calc.model.tensor import Component, Shape

ATTENTION = Attention(head_dim=None)
GROUPS = "encoder_hash_byte_group_size"
LOCAL = {"vocab_size": 260, "hidden_size": 1024, "num_attention_heads": 16, "hidden_size_global": 2048}
SECTIONS: dict[str, Mapping[str, Any]] = {
    "encoder_config": LOCAL | {"num_hidden_layers": 1, "cross_attn_all_layers": False, "cross_attn_k": 2},
    "decoder_config": LOCAL
    | {"num_hidden_layers": 9, "intermediate_size": 2816, "cross_attn_all_layers": True, "cross_attn_k": 2},
    "patcher_config": {"vocab_size": 260, "hidden_size": 768, "num_hidden_layers": 14, "num_attention_heads": 12}
    | {"intermediate_size": 2048},
}
"""Defaults of the sections' classes, transformers 5.23 `configuration_blt.py`."""


def section(c: Fields, name: str) -> Fields:
    stated = c.get(name)
    return c.once(name, lambda: Fields(stated if isinstance(stated, Mapping) else {}, SECTIONS[name], {}))


def width(c: Fields) -> int:
    """Width of the state of a byte: what the encoder gives is what the decoder reads."""
    encoder, decoder = (section(c, f"{name}_config").size("hidden_size") for name in ("encoder", "decoder"))
    if encoder != decoder:
        sentence = (
            "hidden_size is {encoder:,} in encoder_config and {decoder:,} in decoder_config; both must be the same."
        )
        raise ConfigError(Message(sentence, encoder=encoder, decoder=decoder), "hidden_size")
    return encoder


def more_words(c: Fields) -> int:
    """Rows of the embedding beyond those of the head."""
    return section(c, "encoder_config").size("vocab_size") - c.size("vocab_size")


def intermediate(c: Fields) -> int:
    return c.maybe("intermediate_size") or 8 * c.size("hidden_size") // 3


FFN = Dense(intermediate, False)


def stack(c: Fields, path: str) -> tuple[Extra, ...]:
    """The layers of one section; the encoder's and the decoder's also attend to patches, in all or in one of them."""
    hidden, layers = c.size("hidden_size"), c.size("num_hidden_layers")
    attention = ATTENTION(c).shapes(hidden)
    parts: dict[Component, dict[str, Shape]] = {
        "attention": {f"layers.{i}.self_attn.{name}": s for i in range(layers) for name, s in attention.items()},
        "mlp": {f"layers.{i}.mlp.{name}": s for i in range(layers) for name, s in FFN(c).shapes(hidden).items()},
        "norms": {f"layers.{i}.{norm}.weight": (hidden,) for i in range(layers) for norm in TWO_NORMS},
    }
    if c.maybe("cross_attn_k") is not None:
        crossing = range(layers if c.flag("cross_attn_all_layers") else 1)
        norms: dict[str, Shape] = {"q_norm.weight": (hidden,), "k_norm.weight": (hidden,)}
        parts["attention"] |= {
            f"cross_attn_layers.{i}.{name}": s for i in crossing for name, s in (attention | norms).items()
        }
    return tuple(
        extra
        for component, shapes in parts.items()
        for extra in extras(component, {f"model.{path}.{name}": shape for name, shape in shapes.items()})
    )


def local_models(c: Fields) -> tuple[Extra, ...]:
    """All that reads bytes."""
    encoder, decoder, patcher = (section(c, name) for name in SECTIONS)
    joined = width(c) * c.size("cross_attn_k")
    sizes = c.get(GROUPS) or range(3, 9)
    if not isinstance(sizes, list | range):
        sentence = "{name} is {value}; it must be a list of how many bytes each group has, such as [3, 4, 5]."
        raise ConfigError(Message(sentence, name=GROUPS, value=shown(sizes)), GROUPS)
    hashes = len(sizes) * c.size("encoder_hash_byte_group_nb_functions")
    tables: dict[str, Shape] = {
        "model.encoder_hash_tok_embedding.weight": (hashes * c.size("encoder_hash_byte_group_vocab"), width(c))
    }
    hidden = decoder.size("hidden_size")
    projections: dict[str, Shape] = {
        "model.local_encoder.patch_embedding_projection.weight": (encoder.size("cross_attn_k") * width(c), width(c)),
        "model.local_decoder.patch_embedding_projection.weight": (
            decoder.size("cross_attn_k") * hidden,
            decoder.size("hidden_size_global"),
        ),
    }
    if joined != c.size("hidden_size"):
        name = "model.global_transformer.token_embedding_projection.weight"
        projections[name] = (c.size("hidden_size"), joined)
    norms: dict[str, Shape] = {"model.local_decoder.norm.weight": (hidden,)}
    tensors = stack(encoder, "local_encoder") + stack(decoder, "local_decoder")
    if c.flag("patch_in_forward"):
        words: Shape = (patcher.size("vocab_size"), patcher.size("hidden_size"))
        tables |= {"model.patcher.embed_tokens.weight": words, "model.patcher.lm_head.weight": words}
        norms["model.patcher.norm.weight"] = (patcher.size("hidden_size"),)
        tensors += stack(patcher, "patcher")
    return tensors + extras("embedding", tables) + extras("other", projections) + extras("norms", norms)


BLT: dict[str, Family] = {
    "blt": Family(
        maker="Meta",
        section="global_config",
        mixer=ATTENTION,
        ffn=FFN,
        names=Names(embedding="model.local_encoder.embed_tokens", layer="model.global_transformer.layers.{layer}"),
        d_embedding=width,
        extra_rows=more_words,
        final_norm="none",
        extras=local_models,
        own={"hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": None, "num_hidden_layers": 25}
        | {"intermediate_size": 5632},
        assumption=Message(
            "Context and batch count patches of bytes, which the wide stack keeps; what the narrow stacks keep of the "
            "last bytes is not counted."
        ),
    )
}
