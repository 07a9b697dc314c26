"""The hand-made analyses that the project began from: each number that they gave."""

import pytest

from calc import Architecture, Precision, report
from calc.families import override
from calc.model.rough import gated_rule
from presets import models


def architecture(model, **overrides):
    return Architecture.from_config(override(models()[model].config, overrides))


def per_layer(model, component, layer=0):
    tensors = architecture(model).tensors()
    return sum(t.parameters // len(t.layers) for t in tensors if t.component == component and layer in t.layers)


@pytest.mark.parametrize(
    ("kv_heads", "total", "hand_count"),
    [
        pytest.param(8, 6_916_681_728, 6_916_935_680, id="8 KV heads"),
        pytest.param(32, 7_721_988_096, 7_722_242_048, id="32 KV heads, as measured"),
    ],
)
def test_qwen3_study_total(kv_heads, total, hand_count):
    study = architecture("study/Qwen3-8B", num_key_value_heads=kv_heads)
    assert study.parameters().total == total
    norms = sum(t.parameters for t in study.tensors() if t.name.endswith(("q_norm.weight", "k_norm.weight")))
    assert norms == 32 * 256
    # the hand count took a q norm and a k norm of 4096 a layer where the class has 128 and 128
    assert study.parameters().total - norms + 32 * 8192 == hand_count


def test_qwen3_study_parts():
    parameters = architecture("study/Qwen3-8B").parameters()
    assert parameters.components["embedding"] == 622_854_144
    assert per_layer("study/Qwen3-8B", "mlp") == 135_266_304
    assert per_layer("study/Qwen3-8B-MHA", "attention") == 67_108_864 + 256


def test_qwen3_study_memory():
    mha = models()["study/Qwen3-8B-MHA"].config
    weights = report(mha, precision=Precision(weights="bf16"), gpus=[]).memory.weights
    assert weights == 15_443_976_192
    gqa = models()["study/Qwen3-8B"].config
    assert report(gqa, gpus=[]).kv_cache.bytes_per_token * 100 == 13_107_200


def test_mistral_rough_formula():
    mistral = architecture("mistralai/Mistral-7B-v0.1")
    assert gated_rule(mistral).rough == 8_046_772_224
    assert mistral.parameters().total == 7_241_732_096
    assert per_layer("mistralai/Mistral-7B-v0.1", "attention") == 41_943_040
    # what the rough formula misses: 24 of 32 KV heads that are not there, and the norms that it leaves out
    attention = 4 * 4096**2 - per_layer("mistralai/Mistral-7B-v0.1", "attention")
    norms = mistral.parameters().components["norms"]
    assert gated_rule(mistral).rough - mistral.parameters().total == 32 * attention - norms


def test_qwen25_3b():
    config = models()["Qwen/Qwen2.5-3B"].config
    assert architecture("Qwen/Qwen2.5-3B").parameters().total == 3_085_938_688
    assert config["intermediate_size"] / config["hidden_size"] == 5.375
    assert config["num_attention_heads"] // config["num_key_value_heads"] == 8
    assert config["tie_word_embeddings"] is True


def test_qwen3_06b():
    small = architecture("Qwen/Qwen3-0.6B")
    assert small.parameters().total == 596_049_920
    shapes = {t.name: t.shape for t in small.tensors()}
    assert shapes["model.layers.{layer}.self_attn.q_proj.weight"] == (2048, 1024)
    assert per_layer("Qwen/Qwen3-0.6B", "attention") == 6_291_456 + 256
    assert per_layer("Qwen/Qwen3-0.6B", "mlp") == 9_437_184


def test_deepseek_v3_total():
    v3 = architecture("deepseek-ai/DeepSeek-V3")
    parameters = v3.parameters()
    assert parameters.total == 671_026_404_352
    assert parameters.active == 37_552_282_624
    assert parameters.not_in_total["multi_token_prediction"] == 13_463_426_304
    assert parameters.not_in_total["persistent_buffers"] == 14_848
    assert parameters.total + sum(parameters.not_in_total.values()) == 684_489_845_504
    assert [len(block.layers) for block in v3.blocks] == [3, 58]
    assert report(models()["deepseek-ai/DeepSeek-V3"].config, gpus=[]).scenario.precision.weights == "fp8"


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("model.embed_tokens.weight", (129280, 7168)),
        ("model.layers.{layer}.self_attn.q_a_proj.weight", (1536, 7168)),
        ("model.layers.{layer}.self_attn.q_b_proj.weight", (24576, 1536)),
        ("model.layers.{layer}.self_attn.kv_a_proj_with_mqa.weight", (576, 7168)),
        ("model.layers.{layer}.self_attn.kv_b_proj.weight", (32768, 512)),
        ("model.layers.{layer}.self_attn.o_proj.weight", (7168, 16384)),
        ("model.layers.{layer}.mlp.gate_proj.weight", (18432, 7168)),
        ("model.layers.{layer}.mlp.up_proj.weight", (18432, 7168)),
        ("model.layers.{layer}.mlp.down_proj.weight", (7168, 18432)),
        ("model.layers.{layer}.mlp.experts.{expert}.gate_proj.weight", (2048, 7168)),
        ("model.layers.{layer}.mlp.experts.{expert}.up_proj.weight", (2048, 7168)),
        ("model.layers.{layer}.mlp.experts.{expert}.down_proj.weight", (7168, 2048)),
        ("model.layers.{layer}.mlp.shared_experts.gate_proj.weight", (2048, 7168)),
        ("model.layers.{layer}.mlp.gate.weight", (256, 7168)),
        ("model.layers.{layer}.mlp.gate.e_score_correction_bias", (256,)),
    ],
)
def test_deepseek_v3_shapes(name, shape):
    assert {t.name: t.shape for t in architecture("deepseek-ai/DeepSeek-V3").tensors()}[name] == shape
