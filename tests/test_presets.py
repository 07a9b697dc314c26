import pytest

from calc import Architecture
from calc.families import settings
from presets import HERE, gpus, models


@pytest.mark.parametrize("preset", [pytest.param(preset, id=name) for name, preset in models().items()])
def test_exact_against_the_published_total(preset):
    ours = Architecture.from_config(preset.config).parameters().total
    assert ours + sum(part.count for part in preset.published.plus) == preset.published.total


@pytest.mark.parametrize("preset", [pytest.param(preset, id=name) for name, preset in models().items()])
def test_file_and_source(preset):
    assert (HERE / "models" / f"{preset.id.replace('/', '--')}.json").is_file()
    assert preset.source.startswith("https://")
    assert settings(preset.config)


def test_the_models_that_people_ask_for():
    wanted = """
        deepseek-ai/DeepSeek-V3 deepseek-ai/DeepSeek-R1 Qwen/Qwen2.5-0.5B Qwen/Qwen2.5-72B Qwen/Qwen3-0.6B
        Qwen/Qwen3-235B-A22B mistralai/Mistral-7B-v0.1 mistralai/Mixtral-8x7B-v0.1 meta-llama/Llama-3.1-8B
        meta-llama/Llama-3.1-70B meta-llama/Llama-3.1-405B meta-llama/Llama-2-7b-hf google/gemma-2-9b
        google/gemma-3-27b-it openai/gpt-oss-20b openai/gpt-oss-120b microsoft/phi-4 openai-community/gpt2
    """
    assert set(wanted.split()) <= set(models())
    assert len(models()) >= 30


@pytest.mark.parametrize("gpu", [pytest.param(gpu, id=name) for name, gpu in gpus().items()])
def test_gpu_is_physical(gpu):
    assert 8_000 < gpu.memory_mib < 600_000
    assert 0.95 < gpu.usable_bytes / (gpu.memory_mib * 2**20) <= 1
    assert 200 < gpu.bandwidth_gb_s < 20_000
    assert all(0 < peak < 50_000 for peak in gpu.tflops.values())
    assert gpu.tflops.get("fp8", 0) <= 2.05 * gpu.tflops["fp16"]  # L40S: 733 and 362 by its datasheet
    assert 2017 <= gpu.year <= 2026


def test_the_usual_five():
    usual = {name: gpu.memory_mib for name, gpu in gpus().items() if gpu.default}
    # totals that nvidia-smi prints in public logs
    assert usual == {
        "v100-sxm2-16gb": 16_384,
        "v100-sxm2-32gb": 32_768,
        "a100-sxm-40gb": 40_960,
        "a100-sxm-80gb": 81_920,
        "h100-sxm": 81_559,
    }


@pytest.mark.parametrize(
    ("gpu", "storage", "lacks"),
    [
        ("v100-sxm2-16gb", "bf16", "no native bf16: run fp16"),
        ("v100-sxm2-16gb", "fp16", None),
        ("v100-sxm2-16gb", "fp8", "no fp8 units: fp8 saves memory only, arithmetic is in 16 bits"),
        ("a100-sxm-80gb", "bf16", None),
        ("a100-sxm-80gb", "fp8", "no fp8 units: fp8 saves memory only, arithmetic is in 16 bits"),
        ("h100-sxm", "fp8", None),
        ("h100-sxm", "mxfp4", "no fp4 units: mxfp4 saves memory only, arithmetic is in 16 bits"),
        ("b200", "mxfp4", None),
    ],
)
def test_what_a_card_can_not_do(gpu, storage, lacks):
    assert gpus()[gpu].lacks(storage) == lacks


@pytest.mark.parametrize(
    ("model", "has", "lacks"),
    [
        ("deepseek-ai/DeepSeek-V3", {"kv_lora_rank", "first_k_dense_replace"}, {"num_key_value_heads", "head_dim"}),
        ("openai-community/gpt2", {"n_embd", "n_inner"}, {"num_key_value_heads", "head_dim"}),
        ("Qwen/Qwen3-30B-A3B", {"moe_intermediate_size"}, {"intermediate_size"}),
        ("mistralai/Mixtral-8x7B-v0.1", {"intermediate_size", "head_dim"}, {"moe_intermediate_size"}),
        ("meta-llama/Llama-3.1-8B", {"head_dim", "num_key_value_heads"}, {"sliding_window"}),
    ],
)
def test_settings_are_what_the_size_hangs_on(model, has, lacks):
    found = settings(models()[model].config)
    assert has <= set(found)
    assert not lacks & set(found)
