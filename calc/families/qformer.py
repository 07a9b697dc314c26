"""Q-Former, BLIP-2, arXiv:2301.12597: learned queries that attend to what an encoder puts out."""

from collections.abc import Iterator

from calc.families.fields import Fields
from calc.model.tensor import Shapes
from calc.model.towers.named_shapes import NamedShape, placed, with_biases

QFORMER = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "cross_attention_frequency": 2,
    "encoder_hidden_size": 1408,
    "use_qformer_text_input": False,
}
"""Defaults of its class in transformers (`configuration_blip_2.py`)."""


def qformer(c: Fields, path: str) -> Iterator[NamedShape]:
    """Layers, every so many of which attend to the encoder as well (transformers `modeling_blip_2.py`)."""
    d, n, every = c.size("hidden_size"), c.size("num_hidden_layers"), c.size("cross_attention_frequency")
    f, layer = c.size("intermediate_size"), f"{path}.encoder.layer"
    yield from placed(path, with_biases({"layernorm": (d,)}))
    parts = attention("attention", d, d) | feed_forward("intermediate_query", "output_query", d, f)
    if c.flag("use_qformer_text_input"):
        parts |= feed_forward("intermediate", "output", d, f)
    yield from placed(f"{layer}.{{layer}}", with_biases(parts), n)
    for i in range(0, n, every):
        cross = attention("crossattention", d, c.size("encoder_hidden_size"))
        yield from placed(f"{layer}.{i}", with_biases(cross))


def attention(name: str, d: int, seen: int) -> Shapes:
    """Queries d wide and what they see, as BERT names them."""
    inner: Shapes = {"attention.query": (d, d), "attention.key": (d, seen), "attention.value": (d, seen)}
    inner |= {"output.dense": (d, d), "output.LayerNorm": (d,)}
    return {f"{name}.{part}": shape for part, shape in inner.items()}


def feed_forward(wide: str, out: str, d: int, f: int) -> Shapes:
    """Two matrices and a norm."""
    return {f"{wide}.dense": (f, d), f"{out}.dense": (d, f), f"{out}.LayerNorm": (d,)}
