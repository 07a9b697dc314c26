"""What a start of vLLM reserves for: by GPU (`get_batch_defaults`), by version, by what is asked."""

import pytest

from calc import Architecture, report
from calc.hardware.gpus import gpus
from calc.serving.engines.vllm.cache import limits
from calc.serving.engines.vllm.encoder import encoder_pass, largest_item, profiled_images
from calc.serving.engines.vllm.engine import VLLM
from calc.serving.engines.vllm.options import VLLMOptions
from presets import models


def reserved(model="Qwen/Qwen3-8B", gpu="h100-sxm", length=8192, pp=1, **options):
    architecture = Architecture.from_config(models()[model].config)
    return limits(VLLMOptions(**options), gpus()[gpu], architecture, length, pp=pp)


@pytest.mark.parametrize(
    ("gpu", "version", "tokens", "sequences"),
    [
        ("l4", None, 2048, 256),
        ("l40s", None, 2048, 256),
        ("a100-sxm-80gb", None, 2048, 256),
        ("h100-sxm", None, 8192, 1024),
        ("h200-sxm", None, 8192, 1024),
        ("b200", None, 16_384, 1024),
        ("mi300x", None, 16_384, 1024),
        ("b200", "0.27.0", 8192, 1024),
        ("h100-sxm", "0.7.3", 8192, 256),
    ],
)
def test_by_gpu(gpu, version, tokens, sequences):
    found = reserved(gpu=gpu, version=version)
    assert (found.step_tokens, found.sequences) == (tokens, sequences)


@pytest.mark.parametrize(
    ("version", "length", "tokens", "sequences"),
    [  # _set_default_args_v0 of 0.10.1, which has recurrent models by default; _set_default_args_v1 of 0.10.2
        ("0.10.1.1", 8192, 8192, 256),
        ("0.10.1.1", 65_536, 2048, 256),
        ("0.10.2", 65_536, 8192, 1024),
    ],
)
def test_recurrent_models_leave_the_first_engine_later(version, length, tokens, sequences):
    stated = reserved("ai21labs/AI21-Jamba-Reasoning-3B", length=length, version=version)
    assert (stated.step_tokens, stated.sequences) == (tokens, sequences)


@pytest.mark.parametrize(
    ("options", "pp", "steps"),
    [
        pytest.param({}, 1, 2, id="one runs, one is scheduled"),
        pytest.param({}, 2, 3, id="one a stage"),
        pytest.param({"async_scheduling": False}, 1, 1, id="--no-async-scheduling"),
        pytest.param({"async_scheduling": False}, 4, 4, id="--no-async-scheduling, four stages"),
        pytest.param({"version": "0.25.1"}, 1, 1, id="0.25"),
    ],
)
def test_steps_in_flight(options, pp, steps):
    found = reserved(pp=pp, **options)
    assert found.in_flight_tokens == steps * found.step_tokens


@pytest.mark.parametrize(("version", "share"), [(None, 0.92), ("0.20.0", 0.92), ("0.19.1", 0.9)])
def test_share_of_the_gpu(version, share):
    assert reserved(version=version).share == share
    assert reserved(version=version, gpu_memory_utilization=0.5).share == 0.5


@pytest.mark.parametrize(
    ("options", "length", "tokens", "sequences"),
    [
        pytest.param({"max_num_batched_tokens": 100}, 8192, 100, 100, id="no more sequences than tokens"),
        pytest.param({"max_num_seqs": 2}, 1000, 2000, 2, id="no more tokens than all sequences have"),
        pytest.param({"max_num_seqs": 2, "max_num_batched_tokens": 5000}, 1000, 5000, 2, id="what is asked is kept"),
    ],
)
def test_bounds(options, length, tokens, sequences):
    found = reserved(length=length, **options)
    assert (found.step_tokens, found.sequences) == (tokens, sequences)


@pytest.mark.parametrize(
    ("options", "gpu", "tokens"),
    [
        pytest.param({}, "a100-sxm-80gb", 2496, id="32 frames of 70 tokens and 8 around them"),
        pytest.param({}, "h100-sxm", 8192, id="a larger step"),
        pytest.param({"language_model_only": True}, "a100-sxm-80gb", 2048, id="no images"),
        pytest.param({"max_num_batched_tokens": 2048}, "a100-sxm-80gb", 2048, id="what is asked is kept"),
    ],
)
def test_a_video_passes_in_one_step(options, gpu, tokens):
    assert reserved("google/gemma-4-31B-it", gpu, **options).step_tokens == tokens


def wrapped(model_type, text, vision=None, **fields):
    """A narrow decoder with an encoder as its class assumes."""
    decoder = {"model_type": text, "hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 4} | fields
    return Architecture.from_config({"model_type": model_type, "vision_config": vision or {}, "text_config": decoder})


def preset(name):
    return Architecture.from_config(models()[name].config)


GEMMA4_12B = wrapped("gemma4_unified", "gemma4_unified_text", hidden_size=3840)


def images(architecture, step_tokens=2048, sequences=256, length=65_536, gpu="h100-sxm", **options):
    return profiled_images(architecture, VLLMOptions(**options), gpus()[gpu], step_tokens, sequences, length)


@pytest.mark.parametrize(
    ("model", "version", "tokens", "patches"),
    [  # "Encoder cache will be initialized with a budget of 153600 tokens, and profiled with 1 video items", 0.12: its
        # encoder makes 12,288 of them; "of 16384 tokens, and profiled with 1 image items", 0.19
        ("Qwen/Qwen3-VL-30B-A3B-Instruct", "0.12.0", 153_600, 4 * 12_288),
        ("Qwen/Qwen3-VL-30B-A3B-Instruct", "0.14.1", 16_384, 4 * 16_384),
        ("Qwen/Qwen3.5-27B", "0.19.0", 16_384, 4 * 16_384),
        # "of 2496 tokens, and profiled with 1 video items": 32 frames of at most 70 tokens of 3 x 3 patches
        ("google/gemma-4-26B-A4B", "0.25.1", 2496, 32 * 630),
        ("google/gemma-4-26B-A4B", "0.20.0", 2496, 630),  # one after the other
        # mm_tokens_per_image 256, of 896 x 896 pixels in patches of 14 x 14: eight in a step of 2,048 tokens
        ("google/gemma-3-12b-it", None, 2048, 8 * 64 * 64),
        ("Qwen/Qwen3-8B", None, 0, 0),
    ],
)
def test_images_of_profiling(model, version, tokens, patches):
    found = images(preset(model), version=version)
    assert (found.tokens, found.patches) == (tokens, patches)


@pytest.mark.parametrize(
    ("architecture", "step_tokens", "size", "items"),
    [
        pytest.param(preset("moonshotai/Kimi-K2.6"), 32_768, 4225, 7, id="32768 tokens, 7 vision_chunk items"),
        pytest.param(preset("moonshotai/Kimi-K3"), 16_384, 16_817, 1, id="16817 tokens, 1 image items"),
        pytest.param(
            preset("meta-llama/Llama-4-Scout-17B-16E-Instruct"), 8192, 2448, 3, id="8192 tokens, 3 image items"
        ),
        pytest.param(GEMMA4_12B, 4096, 2496, 1, id="4096 tokens, 1 video items"),
        pytest.param(wrapped("mistral3", "ministral3"), 8192, 3025, 2, id="8192 tokens, 2 image items: Ministral 3 8B"),
        pytest.param(
            wrapped("glm5_next", "glm5_next_text", qk_rope_head_dim=0),
            8192,
            32_242,
            1,
            id="32242 tokens, 1 video items",
        ),
    ],
)
def test_images_as_logged(architecture, step_tokens, size, items):
    """What "Encoder cache will be initialized with a budget of .. and profiled with .." says in public logs: records
    57827867872, 69589171148, 14030680623, 69725896812 and 70887864586 of a file index, and start-up log p047."""
    found = images(architecture, step_tokens)
    assert (found.largest, found.tokens) == (size, items * size)


@pytest.mark.parametrize(
    ("architecture", "length", "tokens"),
    [  # by hand, from the image and video processors of transformers and of the checkpoints
        pytest.param(preset("moonshotai/Kimi-K2.5"), 8192, (1820 // 28) ** 2, id="3000 to 1794, padded to 65 x 28"),
        pytest.param(preset("MiniMaxAI/MiniMax-M3"), 8192, 10 * 768, id="20 frames of 896 x 672"),
        pytest.param(preset("MiniMaxAI/MiniMax-M3"), 1_048_576, 192_000, id="500 frames"),
        pytest.param(preset("meta-llama/Llama-4-Scout-17B-16E-Instruct"), 8192, 17 * 12 * 12, id="17 tiles"),
        pytest.param(wrapped("mistral3", "mistral"), 8192, (1540 // 28) ** 2, id="1540 x 1540"),
        pytest.param(wrapped("kimi_vl", "deepseek_v3"), 8192, (924 // 28) ** 2, id="1024 to 897, padded to 33 x 28"),
        pytest.param(wrapped("internvl", "qwen2"), 4096, 13 * 256, id="13 tiles"),
        pytest.param(wrapped("internvl", "qwen2"), 32_768, 115 * 256, id="115 frames, and 3,328 tokens for an image"),
        pytest.param(wrapped("minicpmv4_6", "qwen3_5_text"), 1024, (168 * 1344 + 9 * 448**2) // 56**2, id="10 slices"),
        pytest.param(wrapped("minicpmv4_6", "qwen3_5_text"), 8192, 11 * 648, id="11 frames, and 648 for an image"),
        pytest.param(wrapped("qwen2_vl", "qwen2_vl_text"), 32_768, 32_768, id="four frames of 12,845,056 pixels"),
        pytest.param(wrapped("glm4v", "glm4v_text"), 8192, (2184 // 28) ** 2, id="2 x 2184 x 2184 of 9,633,792 pixels"),
        pytest.param(wrapped("glm4v", "glm4v_text"), 32_768, 136 * 14**2, id="271 frames of 392 x 392"),
        pytest.param(wrapped("glm4v", "glm4v_text"), 65_536, 6 * 73**2, id="11 frames of 2044 x 2044"),
    ],
)
def test_the_largest_image_or_video(architecture, length, tokens):
    assert largest_item(architecture, VLLMOptions(), length) == tokens


def test_few_requests_hold_few_images():
    """`MultiModalBudget._get_max_items`: one request of 1,024 tokens has room for four images of 256."""
    assert images(preset("google/gemma-3-12b-it"), 8192, sequences=1, length=1024).tokens == 4 * 256


def test_frames_pass_as_a_tenth_of_the_gpu_has_room():
    """gemma4_mm.py, `_encoder_chunk`: 630 patches are reckoned at 630 x 4 x 10,240 x 8 bytes, of which a tenth of an L4
    of 22.5 GiB holds eleven."""
    assert images(preset("google/gemma-4-26B-A4B"), gpu="l4").patches == 11 * 630


@pytest.mark.parametrize(
    ("architecture", "elements"),
    [  # of a patch, beside its pixels, by `python -m benchmarks.oracle.track_encoders` on vLLM 0.33
        pytest.param(preset("google/gemma-3-27b-it"), 13_216, id="siglip.py"),
        pytest.param(preset("Qwen/Qwen3.5-27B"), 13_824, id="qwen3_vl.py"),
        pytest.param(preset("Qwen/Qwen3-VL-30B-A3B-Instruct"), 15_360, id="qwen3_vl.py, three layers put out 2,048"),
        pytest.param(preset("Qwen/Qwen3-VL-32B-Instruct"), 17_664, id="qwen3_vl.py, three layers put out 5,120"),
        pytest.param(preset("meta-llama/Llama-4-Scout-17B-16E-Instruct"), 22_552, id="mllama4.py"),
        pytest.param(preset("moonshotai/Kimi-K2.5"), 13_216, id="kimi_k25_vit.py"),
        pytest.param(preset("moonshotai/Kimi-K3"), 12_288, id="kimi_k25_vit.py, of K3"),
        pytest.param(preset("MiniMaxAI/MiniMax-M3"), 14_080, id="minimax_m3/common/vision_tower.py"),
        pytest.param(preset("google/gemma-4-26B-A4B"), 17_672, id="transformers 5.23"),
        pytest.param(GEMMA4_12B, 19_210, id="gemma4_unified.py"),
        pytest.param(wrapped("kimi_vl", "deepseek_v3"), 18_576, id="moonvit.py"),
        pytest.param(wrapped("mistral3", "mistral"), 18_561, id="pixtral.py"),
        pytest.param(wrapped("internvl", "qwen2"), 12_288, id="intern_vit.py"),
        pytest.param(
            wrapped("minicpmv4_6", "qwen3_5_text", {"hidden_size": 1152, "intermediate_size": 4304}),
            12_064,
            id="idefics2_vision_model.py",
        ),
        pytest.param(wrapped("qwen2_vl", "qwen2_vl_text"), 14_080, id="qwen2_vl.py"),
        pytest.param(wrapped("glm4v", "glm4v_text"), 19_968, id="glm4_1v.py"),
        pytest.param(wrapped("glm5_next", "glm5_next_text", qk_rope_head_dim=0), 14_336, id="glm5next/multimodal.py"),
    ],
)
def test_a_pass_as_tracked(architecture, elements):
    """Tables of rotary positions, 1 % at most, are not counted."""
    tensors = encoder_pass(architecture, 1000, 1)
    del tensors["pixels of the images"]
    assert 0.985 * elements < sum(tensors.values()) / 2000 <= elements


def test_a_projector_before_patches_are_merged():
    """minimax_m3/common/vision_tower.py: 1,280 go in, an eighth of 6,144 is inside, 6,144 are summed over ranks."""
    tensors = encoder_pass(preset("MiniMaxAI/MiniMax-M3"), 1000, 8)
    assert sum(tensors.values()) == 2000 * (2 * 3 * 14 * 14 + 1280 + 6144 // 8 + 2 * 6144)


def test_a_pass_of_siglip():
    """models/siglip.py: embeddings, input, sum behind attention and its norm, then what goes into gelu and what comes
    out, in 16 bits; the feed-forward of 4,304 is divided by ranks."""
    for tp in (1, 2):
        found = encoder_pass(preset("google/gemma-3-27b-it"), 4096, tp)
        assert sum(found.values()) == 2 * 4096 * (3 * 14 * 14 + 4 * 1152 + 2 * 4304 // tp)


@pytest.mark.parametrize(
    ("model", "options", "tokens"),
    [
        ("google/gemma-3-12b-it", {}, 256),
        ("google/gemma-4-26B-A4B", {}, 2496),  # 32 frames of 70 tokens and 8 around them
        ("Qwen/Qwen3.5-27B", {}, 16_384),
        ("Qwen/Qwen3.5-27B", {"language_model_only": True}, 0),
        ("Qwen/Qwen3-8B", {}, 0),
    ],
)
def test_what_an_image_costs_is_said(model, options, tokens):
    config = models()[model].config
    found = report(config, engine=VLLM(VLLMOptions(**options)), gpus=[gpus()["b200"]])
    said = [str(line) for line in found.assumptions if "largest image or video is" in str(line)]
    assert len(said) == bool(tokens)
    assert all(f" {tokens:,} tokens" in line for line in said)


def test_pixels_stay_with_the_first_runner():
    """`batched_dummy_mm_inputs` of 0.20 lives as long as `profile_run`; 65,536 patches of 2 x 3 x 16 x 16."""
    embeddings, pixels = 2 * 16_384 * 5120, 2 * 65_536 * 1536
    for version, nbytes in (("0.20.0", embeddings + pixels), ("0.33", embeddings)):
        assert images(preset("Qwen/Qwen3.5-27B"), version=version).resident_bytes == nbytes


QWEN2_5_VL = {
    "model_type": "qwen2_5_vl",
    "hidden_size": 3584,
    "intermediate_size": 18_944,
    "num_attention_heads": 28,
    "num_hidden_layers": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152_064,
    "vision_config": {
        "depth": 32,
        "hidden_size": 1280,
        "intermediate_size": 3420,
        "num_heads": 16,
        "out_hidden_size": 3584,
        "patch_size": 14,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
    },
}


@pytest.mark.parametrize(("length", "tokens"), [(8192, 16_384), (32_768, 32_768), (128_000, 114_688)])
def test_the_largest_video_of_qwen2_5_vl(length, tokens):
    """The log of Qwen2.5-VL-7B-Instruct at its own length has an encoder budget of 114,688 tokens and a video: public
    record 55021192520 of a file index. Others have 32,768 at 32,768."""
    found = images(Architecture.from_config(QWEN2_5_VL), length=length, version="0.23.0")
    assert (found.tokens, found.patches) == (tokens, 4 * tokens)


def test_a_pass_of_qwen2_5_vl_as_logged():
    """0.22 of 79.25 GiB less 15.67 of weights, 0.53 of graphs and -14.28 for the cache: 15.5 GiB for the pass and what
    lies outside of PyTorch, on an A100 (the same record)."""
    architecture = Architecture.from_config(QWEN2_5_VL)
    assert sum(encoder_pass(architecture, 4 * 114_688, 1).values()) / 2**30 == pytest.approx(15.5 - 0.5, rel=0.06)
