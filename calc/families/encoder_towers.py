"""vision_config -> an encoder of CLIP's line with its projector, and towers for sound beside one for images."""

from collections.abc import Mapping
from typing import Any

from calc.families.fields import Fields
from calc.families.tower_defaults import AUDIO, CLIP, LFM2_VL, PERCEIVER, SIGLIP
from calc.model.towers.audio import QwenAudio
from calc.model.towers.encoders import (
    EncodedVision,
    GemmaProjector,
    ImageEncoder,
    LinearProjector,
    MLPProjector,
    PerceiverProjector,
)


def siglip(c: Fields, path: str = "vision_tower.vision_model") -> ImageEncoder:
    """Idefics' encoders too."""
    side = c.size("image_size") // c.size("patch_size")
    return encoder(c, side * side, kind="siglip", path=path)


def encoder(c: Fields, patches: int, **extra: Any) -> ImageEncoder:
    return ImageEncoder(
        hidden=c.size("hidden_size"),
        intermediate=c.size("intermediate_size"),
        num_layers=c.size("num_hidden_layers"),
        patches=patches,
        patch_size=c.size("patch_size"),
        channels=c.size("num_channels"),
        pooling_head=c.flag("vision_use_head"),
        **extra,
    )


def gemma3(c: Fields, whole: Fields) -> EncodedVision:
    return EncodedVision(encoder=siglip(c), projector=GemmaProjector())


def paligemma(c: Fields, whole: Fields) -> EncodedVision:
    out = whole.maybe("projection_dim") or 2048
    projector = LinearProjector(name="multi_modal_projector.linear", out=out, bias=True)
    return EncodedVision(encoder=siglip(c), projector=projector)


def llava(c: Fields, whole: Fields) -> EncodedVision | None:
    """Its encoder may be CLIP or SigLIP; others are not known."""
    kind = c.stated.get("model_type", "clip_vision_model")
    if kind not in ("clip_vision_model", "siglip_vision_model"):
        return None
    c = Fields(c.stated, CLIP if kind == "clip_vision_model" else SIGLIP, {})
    side = c.size("image_size") // c.size("patch_size")
    layers = whole.get("vision_feature_layer")
    projector = MLPProjector(
        merge=len(layers) if isinstance(layers, list) and layers else 1,
        bias=whole.get("multimodal_projector_bias") is not False,
        newline=whole.get("model_type") != "llava",
    )
    return EncodedVision(
        encoder=encoder(c, side * side, kind="clip" if kind.startswith("clip") else "siglip"), projector=projector
    )


def lfm2_vl(c: Fields, whole: Fields) -> EncodedVision:
    whole = Fields(whole.stated, LFM2_VL, {})
    projector = MLPProjector(
        path="model.multi_modal_projector",
        merge=whole.size("downsample_factor") ** 2,
        middle=whole.size("projector_hidden_size"),
        bias=whole.flag("projector_bias"),
        norm=whole.flag("projector_use_layernorm"),
    )
    patches, path = c.size("num_patches"), "model.vision_tower.vision_model"
    return EncodedVision(encoder=encoder(c, patches, kind="siglip2", path=path), projector=projector)


def idefics2(c: Fields, whole: Fields) -> EncodedVision:
    p = Fields(section(whole, "perceiver_config"), PERCEIVER, {})
    projector = PerceiverProjector(
        text_intermediate=whole.within(section(whole, "text_config")).maybe("intermediate_size") or 14336,
        latents=p.size("resampler_n_latents"),
        depth=p.size("resampler_depth"),
        n_q=p.size("resampler_n_heads"),
        n_kv=p.size("num_key_value_heads"),
        d_head=p.size("resampler_head_dim"),
    )
    return EncodedVision(encoder=siglip(c, "model.vision_model"), projector=projector)


def idefics3(c: Fields, whole: Fields) -> EncodedVision:
    projector = LinearProjector(
        name="model.connector.modality_projection.proj", merge=(whole.maybe("scale_factor") or 2) ** 2, bias=False
    )
    return EncodedVision(encoder=siglip(c, "model.vision_model"), projector=projector)


def qwen_audio(whole: Fields, *, convolved: bool) -> QwenAudio:
    a = Fields(section(whole, "audio_config"), AUDIO, {})
    return QwenAudio(
        hidden=a.size("d_model"),
        intermediate=a.size("encoder_ffn_dim"),
        num_layers=a.size("encoder_layers"),
        mel_bins=a.size("num_mel_bins"),
        out_hidden=a.size("output_dim"),
        downsample=a.size("downsample_hidden_size") if convolved else None,
    )


def section(whole: Fields, name: str) -> Mapping[str, Any]:
    """A section of the config; an empty one where it is left out."""
    value = whole.get(name)
    return value if isinstance(value, Mapping) else {}
