"""Encoders for images of Llama 3.2 Vision and Llama 4."""

from collections.abc import Iterator

from calc.families.fields import Fields
from calc.families.tower_parts import listed, patches
from calc.model.tensor import Shapes
from calc.model.towers.listed import TEXT, Layer, ListedTower
from calc.model.towers.named_shapes import NamedShape, placed, weights, with_biases

TOWER, PROJECTOR = "vision_model", "multi_modal_projector"
LLAMA_LAYER = Layer(out="self_attn.o_proj", norms=("input_layernorm", "post_attention_layernorm"))
MLLAMA_LAYER = Layer(
    out="self_attn.o_proj", norms=("input_layernorm", "post_attention_layernorm"), qkv_bias=False, out_bias=False
)


def llama4(c: Fields, whole: Fields) -> ListedTower:
    """Llama 4: an adapter that shuffles patches (transformers `modeling_llama4.py`)."""
    d, f, p, n = c.size("hidden_size"), c.size("intermediate_size"), c.size("patch_size"), c.size("num_hidden_layers")
    given, out = c.size("projector_input_dim"), c.size("projector_output_dim")
    adapter = weights({"mlp.fc1": (given, f), "mlp.fc2": (out, out)})
    alone: Shapes = {"class_embedding": (d,), "positional_embedding_vlm": (patches(c) + 1, d)}
    alone |= {"patch_embedding.linear.weight": (d, c.size("num_channels") * p**2)}
    return listed(
        c,
        placed(TOWER, alone | with_biases({"layernorm_pre": (d,), "layernorm_post": (d,)})),
        placed(f"{TOWER}.model.layers.{{layer}}", LLAMA_LAYER.shapes(d, f), n),
        placed(f"{TOWER}.vision_adapter", adapter),
        [(f"{PROJECTOR}.linear_1.weight", (TEXT, c.size("vision_output_dim")), 1)],
    )


def mllama(c: Fields, whole: Fields) -> ListedTower:
    """Llama 3.2 Vision: an encoder of tiles, and layers over all of them (transformers `modeling_mllama.py`)."""
    d, n, deep = c.size("hidden_size"), c.size("num_hidden_layers"), c.size("num_global_layers")
    layer = MLLAMA_LAYER.shapes(d, c.size("intermediate_size"))
    gates: Shapes = {"gate_attn": (1,), "gate_ffn": (1,)}
    return listed(
        c,
        tiles(c),
        placed(TOWER, with_biases({"layernorm_pre": (d,), "layernorm_post": (d,)})),
        placed(f"{TOWER}.transformer.layers.{{layer}}", layer, n),
        placed(f"{TOWER}.global_transformer.layers.{{layer}}", layer | gates, deep),
        placed(PROJECTOR, {"weight": (TEXT, c.size("vision_output_dim")), "bias": (TEXT,)}),
    )


def tiles(c: Fields) -> Iterator[NamedShape]:
    """Patches, and positions of patches and of tiles for each shape that an image may be cut into."""
    d, p, count, rows = c.size("hidden_size"), c.size("patch_size"), c.size("max_num_tiles"), patches(c) + 1
    stated = c.get("supported_aspect_ratios")
    ratios = 1 + (len(stated) if isinstance(stated, list) else 8)
    inner = f"{TOWER}.gated_positional_embedding"
    yield f"{TOWER}.class_embedding", (d,), 1
    yield f"{TOWER}.patch_embedding.weight", (d, c.size("num_channels"), p, p), 1
    yield from placed(
        inner, {"embedding": (rows, d), "gate": (1,), "tile_embedding.weight": (ratios, count * rows * d)}
    )
    for when in ("pre", "post"):
        positions: Shapes = {"embedding.weight": (ratios, count * d), "gate": (1,)}
        yield from placed(f"{TOWER}.{when}_tile_positional_embedding", positions)
