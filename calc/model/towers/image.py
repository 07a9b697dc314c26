"""Vision encoders of one wrapper each: the class in transformers, with the projector into the language model."""

from collections.abc import Iterator

from calc.model.tensor import Shape, Shapes
from calc.model.towers.tower import NamedShape as NamedShape
from calc.model.towers.tower import Tower


def weights(modules: Shapes) -> Shapes:
    """Each module's weight."""
    return {f"{name}.weight": shape for name, shape in modules.items()}


def with_biases(modules: Shapes) -> Shapes:
    """Each module's weight and bias."""
    return weights(modules) | {f"{name}.bias": shape[:1] for name, shape in modules.items()}


def placed(path: str, shapes: Shapes, copies: int = 1) -> Iterator[NamedShape]:
    """Weights under a path, each held by so many layers."""
    for name, shape in shapes.items():
        yield f"{path}.{name}", shape, copies


class Qwen2Vision(Tower):
    """The vision encoder of Qwen2-VL and Qwen2.5-VL (transformers `modeling_qwen2_vl.py`, `modeling_qwen2_5_vl.py`)."""

    hidden: int
    intermediate: int
    num_layers: int
    channels: int
    patch_size: int
    temporal_patch_size: int
    merge_size: int
    out_hidden: int
    gated: bool  # Qwen2.5-VL: a gated feed-forward, and norms without a bias

    def shapes(self, text_hidden: int) -> Iterator[NamedShape]:
        """Name, shape and number of layers that hold it, of each weight."""
        d, f, p, merged = self.hidden, self.intermediate, self.patch_size, self.hidden * self.merge_size**2
        norms: Shapes = {"norm1": (d,), "norm2": (d,)}
        layer: Shapes = {"attn.qkv": (3 * d, d), "attn.proj": (d, d)}
        if self.gated:
            layer |= {"mlp.gate_proj": (f, d), "mlp.up_proj": (f, d), "mlp.down_proj": (d, f)}
        else:
            layer |= {"mlp.fc1": (f, d), "mlp.fc2": (d, f)}
        normed = weights if self.gated else with_biases
        yield "visual.patch_embed.proj.weight", (d, self.channels, self.temporal_patch_size, p, p), 1
        yield from placed("visual.blocks.{layer}", normed(norms) | with_biases(layer), self.num_layers)
        merger: Shapes = {"mlp.0": (merged, merged), "mlp.2": (self.out_hidden, merged)}
        yield from placed("visual.merger", normed({"ln_q": (d,)}) | with_biases(merger))


class QwenVision(Tower):
    """The vision encoder of Qwen3-VL and Qwen3.5 (transformers `modeling_qwen3_vl.py`)."""

    kind: str = "qwen3_vl"
    hidden: int
    intermediate: int
    num_layers: int
    channels: int
    patch_size: int
    temporal_patch_size: int
    merge_size: int
    positions: int
    out_hidden: int
    deepstack: int

    def shapes(self, text_hidden: int) -> Iterator[NamedShape]:
        """Name, shape and number of layers that hold it, of each weight."""
        d, f, p, tower = self.hidden, self.intermediate, self.patch_size, "model.visual"
        patch: Shape = (d, self.channels, self.temporal_patch_size, p, p)
        yield f"{tower}.patch_embed.proj.weight", patch, 1
        yield f"{tower}.patch_embed.proj.bias", (d,), 1
        yield f"{tower}.pos_embed.weight", (self.positions, d), 1
        layer: dict[str, Shape] = {"norm1": (d,), "norm2": (d,), "attn.qkv": (3 * d, d), "attn.proj": (d, d)}
        layer |= {"mlp.linear_fc1": (f, d), "mlp.linear_fc2": (d, f)}
        for name, shape in layer.items():
            yield f"{tower}.blocks.{{layer}}.{name}.weight", shape, self.num_layers
            yield f"{tower}.blocks.{{layer}}.{name}.bias", shape[:1], self.num_layers
        merged = d * self.merge_size**2
        fc: dict[str, Shape] = {"linear_fc1": (merged, merged), "linear_fc2": (self.out_hidden, merged)}
        mergers = {"merger": (fc | {"norm": (d,)}, 1)}
        if self.deepstack:
            mergers["deepstack_merger_list.{layer}"] = (fc | {"norm": (merged,)}, self.deepstack)
        for merger, (weights, copies) in mergers.items():
            for name, shape in weights.items():
                yield f"{tower}.{merger}.{name}.weight", shape, copies
                yield f"{tower}.{merger}.{name}.bias", shape[:1], copies


class Llama4Vision(Tower):
    """The vision encoder of Llama 4 (transformers `modeling_llama4.py`)."""

    hidden: int
    intermediate: int
    num_layers: int
    channels: int
    image_size: int
    patch_size: int
    projector_in: int
    projector_out: int
    out_hidden: int

    def shapes(self, text_hidden: int) -> Iterator[NamedShape]:
        """Name, shape and number of layers that hold it, of each weight."""
        d, f, tower = self.hidden, self.intermediate, "vision_model"
        layer: Shapes = {f"self_attn.{x}_proj": (d, d) for x in "qkvo"}
        layer |= {"mlp.fc1": (f, d), "mlp.fc2": (d, f), "input_layernorm": (d,), "post_attention_layernorm": (d,)}
        yield f"{tower}.class_embedding", (d,), 1
        yield f"{tower}.positional_embedding_vlm", ((self.image_size // self.patch_size) ** 2 + 1, d), 1
        yield f"{tower}.patch_embedding.linear.weight", (d, self.channels * self.patch_size**2), 1
        yield from placed(tower, with_biases({"layernorm_pre": (d,), "layernorm_post": (d,)}))
        yield from placed(f"{tower}.model.layers.{{layer}}", with_biases(layer), self.num_layers)
        yield f"{tower}.vision_adapter.mlp.fc1.weight", (self.projector_in, f), 1
        yield f"{tower}.vision_adapter.mlp.fc2.weight", (self.projector_out, self.projector_out), 1
        yield "multi_modal_projector.linear_1.weight", (text_hidden, self.out_hidden), 1


class MiniMaxVision(Tower):
    """The vision encoder of MiniMax-M3 (transformers `modeling_minimax_m3_vl.py`)."""

    hidden: int
    intermediate: int
    num_layers: int
    channels: int
    patch_size: int
    temporal_patch_size: int
    merge_size: int
    projector_hidden: int

    def shapes(self, text_hidden: int) -> Iterator[NamedShape]:
        """Name, shape and number of layers that hold it, of each weight."""
        d, f, p, tower = self.hidden, self.intermediate, self.patch_size, "vision_tower.vision_model"
        layer: Shapes = {f"self_attn.{x}_proj": (d, d) for x in ("q", "k", "v", "out")}
        layer |= {"mlp.fc1": (f, d), "mlp.fc2": (d, f), "layer_norm1": (d,), "layer_norm2": (d,)}
        patch: Shape = (d, self.channels, self.temporal_patch_size, p, p)
        yield f"{tower}.embeddings.patch_embedding.weight", patch, 1
        yield from placed(tower, with_biases({"pre_layrnorm": (d,)}))
        yield from placed(f"{tower}.encoder.layers.{{layer}}", with_biases(layer), self.num_layers)
        wide = self.projector_hidden
        for path, width in (("multi_modal_projector", d), ("patch_merge_mlp", text_hidden * self.merge_size**2)):
            yield from placed(path, with_biases({"linear_1": (wide, width), "linear_2": (text_hidden, wide)}))


class MoonVision(Tower):
    """MoonViT, arXiv:2504.07491, with the projector of Kimi K2.5 (transformers `modeling_kimi_k25.py`)."""

    hidden: int
    intermediate: int
    num_layers: int
    patch_size: int
    positions: tuple[int, int]
    merge: int  # patches that one token stands for
    projected: int  # width that the projector's norm takes, which a config states a second time

    def shapes(self, text_hidden: int) -> Iterator[NamedShape]:
        """Name, shape and number of layers that hold it, of each weight."""
        d, f, p, merged = self.hidden, self.intermediate, self.patch_size, self.hidden * self.merge
        layer: Shapes = {"wqkv": (3 * d, d), "wo": (d, d), "mlp.fc0": (f, d), "mlp.fc1": (d, f)}
        layer |= {"norm0": (d,), "norm1": (d,)}
        yield from placed("vision_tower.patch_embed", with_biases({"proj": (d, 3, p, p)}))
        yield "vision_tower.patch_embed.pos_emb.weight", (*self.positions, d), 1
        yield from placed("vision_tower.encoder.blocks.{layer}", with_biases(layer), self.num_layers)
        yield from placed("vision_tower.encoder", with_biases({"final_layernorm": (d,)}))
        projector: Shapes = {"pre_norm": (self.projected,)}
        projector |= {"proj.0": (merged, merged), "proj.2": (text_hidden, merged)}
        yield from placed("mm_projector", with_biases(projector))


class LlamaVision(Tower):
    """Llama 3.2 Vision (transformers `modeling_mllama.py`): an encoder of tiles, and layers over all of them."""

    hidden: int
    intermediate: int
    num_layers: int
    num_global_layers: int
    channels: int
    patches: int
    patch_size: int
    tiles: int
    ratios: int  # shapes that an image may be cut into
    out_hidden: int

    def shapes(self, text_hidden: int) -> Iterator[NamedShape]:
        """Name, shape and number of layers that hold it, of each weight."""
        d, f, p, rows, tower = self.hidden, self.intermediate, self.patch_size, self.patches + 1, "vision_model"
        yield f"{tower}.class_embedding", (d,), 1
        yield f"{tower}.patch_embedding.weight", (d, self.channels, p, p), 1
        yield f"{tower}.gated_positional_embedding.embedding", (rows, d), 1
        yield f"{tower}.gated_positional_embedding.gate", (1,), 1
        tiles: Shape = (self.ratios + 1, self.tiles * rows * d)
        yield f"{tower}.gated_positional_embedding.tile_embedding.weight", tiles, 1
        for when in ("pre", "post"):
            yield f"{tower}.{when}_tile_positional_embedding.embedding.weight", (self.ratios + 1, self.tiles * d), 1
            yield f"{tower}.{when}_tile_positional_embedding.gate", (1,), 1
        yield from placed(tower, with_biases({"layernorm_pre": (d,), "layernorm_post": (d,)}))
        layer = weights({f"self_attn.{x}_proj": (d, d) for x in "qkvo"})
        layer |= with_biases({"mlp.fc1": (f, d), "mlp.fc2": (d, f)})
        layer |= with_biases({"input_layernorm": (d,), "post_attention_layernorm": (d,)})
        gates: Shapes = {"gate_attn": (1,), "gate_ffn": (1,)}
        yield from placed(f"{tower}.transformer.layers.{{layer}}", layer, self.num_layers)
        yield from placed(f"{tower}.global_transformer.layers.{{layer}}", layer | gates, self.num_global_layers)
        yield from placed("multi_modal_projector", {"weight": (text_hidden, self.out_hidden), "bias": (text_hidden,)})
