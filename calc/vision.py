from collections.abc import Iterator

from calc.frozen import Frozen
from calc.tensor import Shape
from calc.towers import (
    Gemma4Vision,
    InternVision,
    Llama4Vision,
    MiniMaxVision,
    MoonVision,
    PixtralVision,
    Qwen2Vision,
)


class SiglipVision(Frozen):
    """SigLIP, arXiv:2303.15343, with Gemma 3's projector (transformers `modeling_siglip.py`, `modeling_gemma3.py`)."""

    hidden: int
    intermediate: int
    num_layers: int
    image_size: int
    patch_size: int
    channels: int
    pooling_head: bool

    def shapes(self, text_hidden: int) -> Iterator[tuple[str, Shape, int]]:
        """Name, shape and number of layers that hold it, of each weight."""
        d, f, tower = self.hidden, self.intermediate, "vision_tower.vision_model"
        patches = (self.image_size // self.patch_size) ** 2
        yield f"{tower}.embeddings.patch_embedding.weight", (d, self.channels, self.patch_size, self.patch_size), 1
        yield f"{tower}.embeddings.patch_embedding.bias", (d,), 1
        yield f"{tower}.embeddings.position_embedding.weight", (patches, d), 1
        layer = f"{tower}.encoder.layers.{{layer}}"
        matrices: dict[str, Shape] = {f"self_attn.{x}_proj": (d, d) for x in ("q", "k", "v", "out")}
        matrices |= {"mlp.fc1": (f, d), "mlp.fc2": (d, f)}
        for name, shape in (matrices | {"layer_norm1": (d,), "layer_norm2": (d,)}).items():
            yield f"{layer}.{name}.weight", shape, self.num_layers
            yield f"{layer}.{name}.bias", shape[:1], self.num_layers
        if self.pooling_head:
            head: dict[str, Shape] = {"attention.in_proj": (3 * d, d), "attention.out_proj": (d, d), "layernorm": (d,)}
            head |= {"mlp.fc1": (f, d), "mlp.fc2": (d, f)}
            yield f"{tower}.head.probe", (1, 1, d), 1
            for name, shape in head.items():
                separator = "_" if name.endswith("in_proj") else "."
                yield f"{tower}.head.{name}{separator}weight", shape, 1
                yield f"{tower}.head.{name}{separator}bias", shape[:1], 1
        yield f"{tower}.post_layernorm.weight", (d,), 1
        yield f"{tower}.post_layernorm.bias", (d,), 1
        yield "multi_modal_projector.mm_input_projection_weight", (d, text_hidden), 1
        yield "multi_modal_projector.mm_soft_emb_norm.weight", (d,), 1


class QwenVision(Frozen):
    """The image tower of Qwen3-VL and Qwen3.5 (transformers `modeling_qwen3_vl.py`)."""

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

    def shapes(self, text_hidden: int) -> Iterator[tuple[str, Shape, int]]:
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


VisionTower = (
    SiglipVision
    | QwenVision
    | Qwen2Vision
    | PixtralVision
    | Llama4Vision
    | Gemma4Vision
    | MiniMaxVision
    | MoonVision
    | InternVision
)
