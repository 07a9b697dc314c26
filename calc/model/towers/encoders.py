"""Image encoders of CLIP's line, which many models share, each with its own projector into the language model."""

from collections.abc import Iterator
from typing import Literal

from calc.errors import Frozen
from calc.model.tensor import Shape, Shapes
from calc.model.towers.image import NamedShape, placed, weights, with_biases
from calc.model.towers.tower import Tower


class ImageEncoder(Frozen):
    """CLIP, arXiv:2103.00020, SigLIP, arXiv:2303.15343, and SigLIP 2, arXiv:2502.14786 (transformers
    `modeling_clip.py`, `modeling_siglip.py`, `modeling_siglip2.py`)."""

    kind: Literal["clip", "siglip", "siglip2"]
    path: str = "vision_tower.vision_model"
    hidden: int
    intermediate: int
    num_layers: int
    patches: int
    patch_size: int
    channels: int
    pooling_head: bool

    def shapes(self) -> Iterator[NamedShape]:
        """Name, shape and number of layers that hold it, of each weight."""
        d, f, p, clip = self.hidden, self.intermediate, self.patch_size, self.kind == "clip"
        patch: Shape = (d, self.channels * p * p) if self.kind == "siglip2" else (d, self.channels, p, p)
        yield from placed(f"{self.path}.embeddings", (weights if clip else with_biases)({"patch_embedding": patch}))
        positions = self.patches + 1 if clip else self.patches
        yield f"{self.path}.embeddings.position_embedding.weight", (positions, d), 1
        if clip:
            yield f"{self.path}.embeddings.class_embedding", (d,), 1
            yield from placed(self.path, with_biases({"pre_layrnorm": (d,)}))
        mlp: Shapes = {"mlp.fc1": (f, d), "mlp.fc2": (d, f)}
        layer: Shapes = {f"self_attn.{x}_proj": (d, d) for x in ("q", "k", "v", "out")}
        layer |= mlp | {"layer_norm1": (d,), "layer_norm2": (d,)}
        yield from placed(f"{self.path}.encoder.layers.{{layer}}", with_biases(layer), self.num_layers)
        yield from placed(self.path, with_biases({"post_layernorm": (d,)}))
        if self.pooling_head:
            head = with_biases(mlp | {"attention.out_proj": (d, d), "layernorm": (d,)})
            head |= {"probe": (1, 1, d), "attention.in_proj_weight": (3 * d, d), "attention.in_proj_bias": (3 * d,)}
            yield from placed(f"{self.path}.head", head)


class GemmaProjector(Frozen):
    """Gemma 3's, after an average over patches (transformers `modeling_gemma3.py`)."""

    def shapes(self, hidden: int, text_hidden: int) -> Iterator[NamedShape]:
        """One matrix, laid [in, out], behind a norm."""
        yield "multi_modal_projector.mm_input_projection_weight", (hidden, text_hidden), 1
        yield "multi_modal_projector.mm_soft_emb_norm.weight", (hidden,), 1


class LinearProjector(Frozen):
    """One matrix, for several patches at once: PaliGemma, Idefics3, SmolVLM."""

    name: str
    merge: int = 1  # patches that one token stands for
    out: int | None = None  # width where it is stated apart from the language model's
    bias: bool

    def shapes(self, hidden: int, text_hidden: int) -> Iterator[NamedShape]:
        """Its weight, and its bias."""
        rows = self.out or text_hidden
        yield f"{self.name}.weight", (rows, self.merge * hidden), 1
        if self.bias:
            yield f"{self.name}.bias", (rows,), 1


class MLPProjector(Frozen):
    """Two matrices, LLaVA-1.5, arXiv:2310.03744; LFM2-VL's has a norm and a width of its own."""

    path: str = "multi_modal_projector"
    merge: int = 1  # patches, or layers of the encoder, that it sees at once
    middle: int | None = None  # None: the language model's width
    bias: bool
    norm: bool = False
    newline: bool = False  # an embedding that ends each row of the image: LLaVA-NeXT

    def shapes(self, hidden: int, text_hidden: int) -> Iterator[NamedShape]:
        """Two matrices, and the norm before them."""
        wide, middle = self.merge * hidden, self.middle or text_hidden
        if self.norm:
            yield from placed(self.path, with_biases({"layer_norm": (wide,)}))
        matrices: Shapes = {"linear_1": (middle, wide), "linear_2": (text_hidden, middle)}
        yield from placed(self.path, (with_biases if self.bias else weights)(matrices))
        if self.newline:
            yield "image_newline", (text_hidden,), 1


class PerceiverProjector(Frozen):
    """Idefics2, arXiv:2405.02246: a gated feed-forward, then learned latents that attend to the patches."""

    text_intermediate: int
    latents: int
    depth: int
    n_q: int
    n_kv: int
    d_head: int

    def shapes(self, hidden: int, text_hidden: int) -> Iterator[NamedShape]:
        """The projection, the latents and the layers."""
        f, t, path = self.text_intermediate, text_hidden, "model.connector"
        gated: Shapes = {"gate_proj": (f, hidden), "up_proj": (f, hidden), "down_proj": (t, f)}
        yield from placed(f"{path}.modality_projection", weights(gated))
        q, kv = self.n_q * self.d_head, self.n_kv * self.d_head
        layer: Shapes = {f"self_attn.{x}_proj": (wide, t) for x, wide in (("q", q), ("k", kv), ("v", kv))}
        layer |= {"self_attn.o_proj": (t, q), "mlp.gate_proj": (4 * t, t), "mlp.up_proj": (4 * t, t)}
        layer |= {"mlp.down_proj": (t, 4 * t)}
        norms = ("input_latents_norm", "input_context_norm", "post_attention_layernorm")
        layer |= dict.fromkeys(norms, (t,))
        yield f"{path}.perceiver_resampler.latents", (self.latents, t), 1
        yield from placed(f"{path}.perceiver_resampler.layers.{{layer}}", weights(layer), self.depth)
        yield f"{path}.perceiver_resampler.norm.weight", (t,), 1


class EncodedVision(Tower):
    """An encoder and a projector."""

    encoder: ImageEncoder
    projector: GemmaProjector | LinearProjector | MLPProjector | PerceiverProjector

    def shapes(self, text_hidden: int) -> Iterator[NamedShape]:
        """Name, shape and number of layers that hold it, of each weight."""
        yield from self.encoder.shapes()
        yield from self.projector.shapes(self.encoder.hidden, text_hidden)
