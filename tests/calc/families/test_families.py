"""Every model of the oracle: transformers 5.23 on the meta device, from published configs."""

import pytest

from calc import Architecture
from calc.families import override
from calc.families.towers import uncounted
from calc.model.mixers import Recurrent
from calc.serving.kv_cache import growth
from tests import load

NOT_AS_THE_ORACLE = {  # what we count more of
    # counted there through a class with a router bias for each of 64 experts in 27 layers, which the checkpoint lacks
    ("deepseek-ai/deepseek-moe-16b-base", "persistent_buffers"): -27 * 64,
    # its config can't be told from GLM-4.5's, whose further layer has an embedding and a head of its own
    ("zai-org/GLM-4.6", "multi_token_prediction"): 2 * 151_552 * 5120,
    # its config does not say how many further layers the checkpoint holds
    ("XiaomiMiMo/MiMo-V2-Flash", "multi_token_prediction"): -987_820_224,
}
ORACLE = load("oracle.json")
TOWERS = load("towers.json")
SMALL = [pytest.param(row, id=f"{row['config']['model_type']}-{i}") for i, row in enumerate(load("small.json"))]


@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in ORACLE])
def test_exact(row):
    architecture = Architecture.from_config(row["config"])
    parameters = architecture.parameters()
    assert parameters.total == row["total"]
    assert parameters.active == row["active"]
    assert parameters.components == row["components"]
    apart = parameters.not_in_total
    for part in ("persistent_buffers", "multi_token_prediction", "vision"):
        assert apart[part] == row[part] + NOT_AS_THE_ORACLE.get((row["id"], part), 0)
    assert uncounted(row["config"]) is None


@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in ORACLE])
def test_cache(row):
    architecture = Architecture.from_config(row["config"])
    blocks = (*architecture.blocks, *architecture.shared)
    elements = {window: bits // 8 for window, bits in growth(blocks, "int8").items()}
    assert elements.pop(None, 0) == row["cached_full"]
    assert sum(elements.values()) == row["cached_sliding"]
    assert sorted(elements) == row["windows"]
    recurrent = [(b, m) for b in blocks for m in b.mixers if isinstance(m, Recurrent)]
    assert sum(len(b.layers) * (m.state_elements() + m.conv_elements()) for b, m in recurrent) == row["state"]


@pytest.mark.parametrize("row", [pytest.param(row, id=row["config"]["model_type"]) for row in TOWERS])
def test_image_towers(row):
    assert Architecture.from_config(row["config"]).parameters().not_in_total["vision"] == row["vision"]


OPENELM = {
    "model_type": "openelm",
    "vocab_size": 32000,
    "model_dim": 1280,
    "num_transformer_layers": 16,
    "num_query_heads": [12] * 5 + [16] * 7 + [20] * 4,
    "num_kv_heads": [3] * 5 + [4] * 7 + [5] * 4,
    "ffn_multipliers": [0.5, 0.73, 0.97, 1.2, 1.43, 1.67, 1.9, 2.13, 2.37, 2.6, 2.83, 3.07, 3.3, 3.53, 3.77, 4.0],
}
LING_MINI = {
    "model_type": "bailing_moe",
    "vocab_size": 157184,
    "hidden_size": 2048,
    "intermediate_size": 5120,
    "num_hidden_layers": 20,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 256,
    "num_experts_per_tok": 8,
    "num_shared_experts": 1,
    "moe_intermediate_size": 512,
    "first_k_dense_replace": 1,
    "use_qk_norm": True,
    "moe_router_enable_expert_bias": True,
}
EXAONE = {
    "model_type": "exaone",
    "vocab_size": 102400,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
}


@pytest.mark.parametrize(
    ("config", "published"),
    [  # totals of the safetensors files, as the model pages show them
        pytest.param({"model_type": "qwen"}, 7_721_324_544, id="Qwen/Qwen-7B"),
        pytest.param({"model_type": "phi3small"}, 7_392_272_384, id="microsoft/Phi-3-small-8k-instruct"),
        pytest.param(OPENELM, 271_527_168, id="apple/OpenELM-270M"),
        pytest.param(LING_MINI, 16_255_643_392, id="inclusionAI/Ling-mini-2.0"),
        pytest.param(EXAONE, 7_818_448_896, id="LGAI-EXAONE/EXAONE-3.0-7.8B-Instruct"),
    ],
)
def test_families_of_remote_code(config, published):
    parameters = Architecture.from_config(config).parameters()
    assert parameters.total + parameters.not_in_total["persistent_buffers"] == published


QWEN2 = {
    "model_type": "qwen2",
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_attention_heads": 14,
    "num_hidden_layers": 2,
}


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "internvl", "text_config": QWEN2},
        {"model_type": "internvl_chat", "llm_config": QWEN2},
        {"model_type": "llava", "text_config": QWEN2},
        {"model_type": "qwen2_vl", **{name: value for name, value in QWEN2.items() if name != "model_type"}},
        {"model_type": "qwen2_5_omni", "thinker_config": {"text_config": QWEN2}},
    ],
)
def test_the_language_model_is_found_wherever_it_lies(config):
    wrapped = override(config, {"vocab_size": 1000, "num_key_value_heads": 2, "tie_word_embeddings": False})
    alone = QWEN2 | {"vocab_size": 1000, "num_key_value_heads": 2}
    assert Architecture.from_config(wrapped).parameters() == Architecture.from_config(alone).parameters()


@pytest.mark.parametrize("row", SMALL)
def test_every_flag(row):
    """Small configs of every family, with its flags drawn at random, as the classes of transformers 5.23 count them."""
    parameters = Architecture.from_config(row["config"]).parameters()
    assert parameters.total == row["total"]
    assert parameters.total + parameters.not_in_total["persistent_buffers"] == row["stored"]


@pytest.mark.parametrize(
    ("config", "total"),
    [  # each class of transformers 5.23 with no argument at all, on the meta device
        pytest.param({"model_type": "llama"}, 6_738_415_616, id="llama"),
        pytest.param({"model_type": "mistral"}, 7_241_732_096, id="mistral"),
    ],
)
def test_absent_fields_mean_the_class_default(config, total):
    assert Architecture.from_config(config).parameters().total == total


def test_names_are_unique_and_complete():
    architecture = Architecture.from_config(next(row["config"] for row in ORACLE if row["id"].endswith("DeepSeek-V3")))
    names = [name for tensor in architecture.tensors() for name in tensor.names()]
    assert len(names) == len(set(names))
    assert "model.layers.60.mlp.experts.255.down_proj.weight" in names
    assert "model.layers.2.mlp.gate_proj.weight" in names
    assert "model.layers.3.mlp.gate.e_score_correction_bias" in names
    assert "model.layers.61.shared_head.head.weight" in names
