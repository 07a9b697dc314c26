"""python -m benchmarks.oracle.write_counts: counts by the classes of transformers 5.23, for tests/data.

Of small configs of every family with its flags drawn at random, of every vision encoder, and of the presets that the
oracle's collection lacks, by component. Needs torch and transformers.
"""

import json
import random
from collections import Counter
from math import prod
from typing import Any

from benchmarks.oracle import oracle
from benchmarks.oracle.random_configs import random_config
from benchmarks.oracle.write_test_data import DATA, write
from calc.families.family_table import FAMILIES, WRAPPED
from presets import models


def small(each: int = 3) -> None:
    """Counts of the classes themselves, on the meta device."""
    rows = []
    for name in (name for name in FAMILIES if oracle.has_class(name)):
        chance, found = random.Random(name), 0
        for _ in range(20 * each):
            config = oracle.alone(random_config(name, chance))
            try:
                shapes, total = oracle.theirs(config, tower=False)
            except Exception:  # the class itself refuses this draw, with whatever it raises
                continue
            stored = sum(prod(shape) for shape in shapes.values())
            rows.append({"config": config, "total": total, "stored": stored})
            found += 1
            if found == each:
                break
    write("small.json", rows)


def towers() -> None:
    """Parameters of vision encoders and projectors, by the classes on the meta device, over a small language model."""
    text = {"num_hidden_layers": 2, "hidden_size": 128, "vocab_size": 300, "pad_token_id": 0}
    text |= {"num_attention_heads": 4, "num_key_value_heads": 2}
    rows = []
    for name, visions in TOWER_CONFIGS.items():
        for vision in visions:
            config = {
                "model_type": name,
                "text_config": {"model_type": WRAPPED[name], **text},
                "vision_config": vision,
                **SOUND.get(name, {}),
            }
            counts = [oracle.theirs(config, tower=tower)[1] for tower in (True, False)]
            rows.append({"config": config, "vision": counts[0] - counts[1]})
    write("towers.json", rows)


WHERE = (
    ("embed_tokens", "embedding"),
    ("lm_head", "lm_head"),
    (".self_attn.", "attention"),
    (".mlp.experts.", "experts_routed"),
    (".mlp.shared_experts.", "experts_shared"),
    (".mlp.gate.weight", "router"),
    (".mlp.", "mlp"),
    ("norm", "norms"),
)
"""What a name holds -> where its parameters are counted; the first that fits. For plain decoders and DeepSeek-V3."""


def components() -> None:
    """Parameters of the language model by component, of presets that are not in oracle.json."""
    known = {row["id"] for row in json.loads((DATA / "oracle.json").read_text(encoding="utf-8"))}
    rows = []
    for name, preset in models().items():
        if name in known:
            continue
        shapes, total = oracle.theirs(preset.config, tower=False)
        counts: Counter[str] = Counter()
        for tensor, shape in shapes.items():
            if not tensor.endswith("e_score_correction_bias"):  # a buffer
                counts[next(where for part, where in WHERE if part in tensor)] += prod(shape)
        assert counts.total() == total, name
        rows.append({"id": name, "total": total, "components": dict(counts)})
    write("components.json", rows)


SMALL_SOUND = {
    "d_model": 64,
    "encoder_attention_heads": 4,
    "encoder_layers": 2,
    "encoder_ffn_dim": 96,
    "num_mel_bins": 40,
    "output_dim": 128,
}
SOUND: dict[str, dict[str, Any]] = {
    "qwen2_5_omni_thinker": {"audio_config": SMALL_SOUND},
    "qwen3_omni_moe_thinker": {"audio_config": SMALL_SOUND | {"downsample_hidden_size": 24}},
}
"""Towers for sound, beside those for images."""
SMALL_TOWER = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4}
QWEN_TOWER = {"depth": 3, "hidden_size": 64, "intermediate_size": 96, "num_heads": 4, "out_hidden_size": 128}
TOWER_CONFIGS: dict[str, list[dict[str, Any]]] = {
    "gemma3": [SMALL_TOWER | {"image_size": 56, "patch_size": 14}],
    "gemma4": [SMALL_TOWER | {"num_key_value_heads": 4, "head_dim": 16, "position_embedding_size": 100}],
    "glm4v": [{}, SMALL_TOWER | {"depth": 3, "out_hidden_size": 112, "attention_bias": True, "num_heads": 4}],
    "idefics2": [{}, SMALL_TOWER | {"patch_size": 16}],
    "idefics3": [{}, SMALL_TOWER | {"patch_size": 16}],
    "internvl": [
        {},
        SMALL_TOWER | {"attention_bias": True, "use_qk_norm": True, "norm_type": "rms_norm", "image_size": [56, 56]},
    ],
    "lfm2_vl": [{}, SMALL_TOWER | {"vision_use_head": False, "num_patches": 64}],
    "llava": [
        {"model_type": "clip_vision_model"},
        SMALL_TOWER | {"model_type": "siglip_vision_model", "vision_use_head": False},
        SMALL_TOWER | {"model_type": "clip_vision_model", "image_size": 56, "patch_size": 14},
    ],
    "llava_next": [SMALL_TOWER | {"model_type": "clip_vision_model", "image_size": 56, "patch_size": 14}],
    "llava_onevision": [SMALL_TOWER | {"model_type": "siglip_vision_model"}],
    "mllama": [{}, SMALL_TOWER | {"num_global_layers": 2, "attention_heads": 4, "image_size": 56}],
    "paligemma": [{"model_type": "siglip_vision_model"}, SMALL_TOWER | {"vision_use_head": False}],
    "smolvlm": [{}, SMALL_TOWER],
    "llama4": [SMALL_TOWER | {"intermediate_size": 256, "projector_input_dim": 80, "projector_output_dim": 72}],
    "minimax_m3_vl": [{}, SMALL_TOWER | {"temporal_patch_size": 1, "spatial_merge_size": 3}],
    "mistral3": [{}, SMALL_TOWER | {"head_dim": 16, "patch_size": 8}],
    "qwen2_5_omni_thinker": [{}, QWEN_TOWER],
    "qwen3_omni_moe_thinker": [{}, QWEN_TOWER],
    "qwen2_vl": [{}, {"depth": 3, "embed_dim": 64, "hidden_size": 128, "num_heads": 4, "mlp_ratio": 2}],
    "qwen2_5_vl": [{}, QWEN_TOWER],
    "qwen3_vl": [{}, QWEN_TOWER],
    "qwen3_5": [{}, QWEN_TOWER],
}


if __name__ == "__main__":
    small()
    towers()
    components()
