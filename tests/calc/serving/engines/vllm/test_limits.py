"""What a start of vLLM reserves for: by GPU (`get_batch_defaults`), by version, by what is asked."""

import pytest

from calc import Architecture, report
from calc.hardware.gpus import gpus
from calc.serving.engines.vllm.encoder import Images, encoder_pass, image_bytes, profiled_images
from calc.serving.engines.vllm.engine import VLLM
from calc.serving.engines.vllm.limits import limits
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


@pytest.mark.parametrize(
    ("model", "version", "images"),
    [  # "Encoder cache will be initialized with a budget of 153600 tokens, and profiled with 1 video items", 0.12: its
        # encoder makes 12,288 of them; "of 16384 tokens, and profiled with 1 image items", 0.19
        ("Qwen/Qwen3-VL-30B-A3B-Instruct", "0.12.0", (153_600, 4 * 12_288)),
        ("Qwen/Qwen3-VL-30B-A3B-Instruct", "0.14.1", (16_384, 4 * 16_384)),
        ("Qwen/Qwen3.5-27B", "0.19.0", (16_384, 4 * 16_384)),
        ("google/gemma-4-26B-A4B", "0.25.1", (2496, 0)),
        # mm_tokens_per_image 256, of 896 x 896 pixels in patches of 14 x 14: eight in a step of 2,048 tokens
        ("google/gemma-3-12b-it", None, (2048, 8 * 64 * 64)),
        ("Qwen/Qwen3-8B", None, (0, 0)),
    ],
)
def test_images_of_profiling(model, version, images):
    architecture = Architecture.from_config(models()[model].config)
    assert profiled_images(architecture, VLLMOptions(version=version), 2048, 65_536) == images


def test_a_pass_of_siglip():
    """models/siglip.py: embeddings, residual and its norm, then what goes into gelu and what comes out, in 16 bits; the
    feed-forward of 4,304 is divided by ranks."""
    tower = Architecture.from_config(models()["google/gemma-3-27b-it"].config).vision
    for tp in (1, 2):
        found = encoder_pass(tower, 4096, tp)
        assert sum(found.values()) == 2 * 4096 * (3 * 14 * 14 + 3 * 1152 + 2 * 4304 // tp)


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
    architecture = Architecture.from_config(models()["Qwen/Qwen3.5-27B"].config)
    embeddings, pixels = 2 * 16_384 * 5120, 2 * 65_536 * 1536
    for version, nbytes in (("0.20.0", embeddings + pixels), ("0.33", embeddings)):
        options = VLLMOptions(version=version)
        assert image_bytes(architecture, options, Images(16_384, 65_536)) == nbytes


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
    architecture = Architecture.from_config(QWEN2_5_VL)
    assert profiled_images(architecture, VLLMOptions(version="0.23.0"), 2048, length) == (tokens, 4 * tokens)


def test_a_pass_of_qwen2_5_vl_as_logged():
    """0.22 of 79.25 GiB less 15.67 of weights, 0.53 of graphs and -14.28 for the cache: 15.5 GiB for the pass and what
    lies outside of PyTorch, on an A100 (the same record)."""
    tower = Architecture.from_config(QWEN2_5_VL).vision
    assert sum(encoder_pass(tower, 4 * 114_688, 1).values()) / 2**30 == pytest.approx(15.5 - 0.5, rel=0.06)
