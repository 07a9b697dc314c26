"""Every model of the oracle: transformers 5.23 on the meta device, from published configs."""

from decimal import Decimal
from pathlib import Path

import pytest

from benchmarks.families import family_of, page
from calc import Architecture, ConfigError, Precision
from calc.families import override, with_experts
from calc.families.family_table import FAMILIES
from calc.families.vision_fields import uncounted
from calc.formats.stored import CheckpointSize
from calc.model.mixers import Recurrent
from calc.serving.kv_cache import bytes_per_token, growth, window_bytes
from presets import models
from tests import load
from tests.cases import in_one_test

NOT_AS_THE_ORACLE = {  # what we count more of
    # counted there through a class with a router bias for each of 64 experts in 27 layers, which the checkpoint lacks
    ("deepseek-ai/deepseek-moe-16b-base", "persistent_buffers"): -27 * 64,
    # its config can't be told from GLM-4.5's, whose further layer has an embedding and a head of its own
    ("zai-org/GLM-4.6", "multi_token_prediction"): 2 * 151_552 * 5120,
    # its config does not say how many further layers the checkpoint holds
    ("XiaomiMiMo/MiMo-V2-Flash", "multi_token_prediction"): -987_820_224,
}
ROOT = Path(__file__).parents[3]
ORACLE = load("oracle.json")
RESAVED = load("resaved.json")
FLIPS = [pytest.param(row, id=row["id"]) for row in load("flips.json")]
SMALL = [pytest.param(row, id=f"{row['config']['model_type']}-{i}") for i, row in enumerate(load("small.json"))]


@in_one_test("row", [pytest.param(row, id=row["id"]) for row in ORACLE])
def test_exact(row):
    architecture = Architecture.from_config(row["config"])
    parameters = architecture.parameters()
    assert parameters.total == row["total"]
    assert parameters.active == row["active"]
    assert parameters.components == row["components"]
    excluded = parameters.not_in_total
    for part in ("persistent_buffers", "multi_token_prediction", "vision"):
        assert excluded[part] == row[part] + NOT_AS_THE_ORACLE.get((row["id"], part), 0)
    assert uncounted(row["config"]) is None


def test_experts_of_whole_width_are_mixtral():
    """Mixtral 8x7B is Mistral 7B with eight feed-forwards and a router: its published total is met."""
    config = with_experts(models()["mistralai/Mistral-7B-v0.1"].config, 8, 1)
    published = models()["mistralai/Mixtral-8x7B-v0.1"].published
    assert Architecture.from_config(config).parameters().total == published.total == 46_702_792_704


def test_experts_of_whole_width_are_flex_olmo():
    """FlexOlmo 7x7B is OLMo 2 7B with seven feed-forwards and a router: "33B" parameters, arXiv:2507.07024."""
    config = with_experts(models()["allenai/OLMo-2-1124-7B"].config, 7, 1)
    assert config["model_type"] == "flex_olmo"
    assert round(Architecture.from_config(config).parameters().total / 1e9) == 33


@pytest.mark.parametrize(("stated", "tables"), [("rope", ((2048, 128),)), ("nope", ()), (None, ())])
def test_granite_hybrids_have_rotary_positions_where_they_ask_for_them(stated, tables):
    """transformers 5.24, `GraniteMoeHybridModel`: `rotary_emb` where `position_embedding_type` is "rope", by default
    None; 2,048 positions and 4,096 columns in 32 heads by default."""
    attends = {"num_hidden_layers": 2, "layer_types": ["mamba", "attention"]}
    config = {"model_type": "granitemoehybrid", "position_embedding_type": stated, **attends}
    assert Architecture.from_config(config).rotary == tables


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("Qwen/Qwen3-8B", 8),
        ("meta-llama/Llama-3.1-8B", 8),
        ("ibm-granite/granite-4.1-8b-base", 8),
        ("allenai/OLMo-2-1124-7B", 8),
        ("CohereLabs/c4ai-command-a-03-2025", 8),
        pytest.param("Qwen/Qwen2.5-3B", 9, id="a shared expert with a gate, as of Qwen1.5-MoE"),
    ],
)
def test_experts_cost_a_token_a_router(name, rows):
    config = models()[name].config
    dense = Architecture.from_config(config)
    mixture = Architecture.from_config(with_experts(config, 8, 2))
    routers = dense.num_layers * rows * dense.hidden
    assert mixture.parameters().active == dense.parameters().total + routers
    assert [block.mixers for block in mixture.blocks] == [block.mixers for block in dense.blocks]
    assert with_experts(with_experts(config, 8, 2), 8, 2) is None


@pytest.mark.parametrize(
    "name", ["google/gemma-3-4b-it", "microsoft/Phi-3-medium-4k-instruct", "deepseek-ai/DeepSeek-V3"]
)
def test_a_family_without_such_a_mixture_has_none(name):
    assert with_experts(models()[name].config, 8, 2) is None


@in_one_test("row", [pytest.param(row, id=row["id"]) for row in ORACLE])
def test_cache(row):
    architecture = Architecture.from_config(row["config"])
    blocks = (*architecture.blocks, *architecture.shared)
    elements = {window: bits // 8 for window, bits in growth(blocks, "fp8").items()}
    assert elements.pop(None, 0) == row["cached_full"]
    assert sum(elements.values()) == row["cached_sliding"]
    assert sorted(elements) == row["windows"]
    recurrent = [(b, m) for b in blocks for m in b.mixers if isinstance(m, Recurrent)]
    assert sum(len(b.layers) * (m.state_elements() + m.conv_elements()) for b, m in recurrent) == row["state"]


@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in RESAVED])
def test_as_transformers_saves_it(row):
    """Fine-tuned models come with what `save_pretrained` writes, not with what was published."""
    assert Architecture.from_config(row["config"]).parameters().total == row["total"]


@pytest.mark.parametrize(
    ("rates", "total"),
    [  # of the class, on the meta device
        ({"compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 12}}, 453_409),
        ({"compress_rates": None, "compress_rate_hca": 16}, 453_601),
        ({"compress_rates": None}, 458_977),
    ],
)
def test_rates_of_compression(rates, total):
    """DeepSeek-V4 learns a bias for each token of an entry."""
    config = next(row["config"] for row in load("caches.json") if row["config"]["model_type"] == "deepseek_v4")
    assert Architecture.from_config(config | rates).parameters().total == total


@in_one_test("row", FLIPS)
def test_every_field(row):
    """A class's default config with one field changed, of fields that were once read otherwise than by the class: its
    count, or, where fields of the config contradict each other, a sentence that names one."""
    if "refused" not in row:
        assert Architecture.from_config(row["config"]).parameters().total == row["total"]
        return
    with pytest.raises(ConfigError) as caught:
        Architecture.from_config(row["config"])
    assert caught.value.field == row["refused"]


def test_saved_again_keeps_its_cache():
    published, saved = (
        Architecture.from_config(row["config"]) for row in RESAVED if row["id"].startswith("gemma4-31b")
    )
    assert growth(published.all_blocks, "bf16") == growth(saved.all_blocks, "bf16")


@pytest.mark.parametrize("value", [["05"], {"x": {}}, {"5": 3}])
def test_fields_of_single_layers_are_checked(value):
    (row,) = (row for row in RESAVED if row["id"] == "gemma4_text")
    with pytest.raises(ConfigError, match="per_layer_config"):
        Architecture.from_config(row["config"] | {"per_layer_config": value})


DORY = {"model_type": "dory", "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "sliding_window": 16}
DORY |= {"num_hidden_layers": 8, "n_input_layers": 2, "n_output_layers": 2, "max_position_embeddings": 256}


@pytest.mark.parametrize(("mode", "passes", "nbytes"), [("per_loop", 3, 24_576), ("last_loop", 3, 12_288)])
def test_which_passes_of_a_loop_keep_a_cache(mode, passes, nbytes):
    """Bytes that `DynamicCache` holds in bf16 once 12 tokens passed, in transformers 5.24 run on such a model."""
    config = DORY | {"n_recurrent_loops": passes, "recurrent_kv_cache_mode": mode}
    bits = growth(Architecture.from_config(config).all_blocks, "bf16")
    assert 12 * bytes_per_token(bits) + window_bytes(bits, 12) == nbytes


PUBLISHED = load("published.json")


@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in PUBLISHED if "total" in row])
def test_published_totals(row):
    """Families whose class transformers does not have, and checkpoints that no preset is of, beside what their page or
    one that cites it states."""
    parameters = Architecture.from_config(row["config"]).parameters()
    ours = parameters.total + parameters.not_in_total["persistent_buffers"]
    ours += sum(parameters.not_in_total[part] for part in row.get("plus", ()))
    assert ours + row.get("tied_head", 0) + row.get("rotary_frequencies", 0) == row["total"]
    assert uncounted(row["config"]) is None


@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in PUBLISHED if "files" in row])
def test_sizes_of_published_files(row):
    """In GB; each file was rounded to the last digit that the model's page shows of it."""
    precision = Precision(weights=row.get("weights", "bf16"))
    ours = CheckpointSize.of(Architecture.from_config(row["config"]), precision).total
    sizes = [Decimal(size) for size in row["files"]]
    rounding = sum(Decimal(5).scaleb(size.as_tuple().exponent - 1) for size in sizes)
    assert abs(Decimal(ours).scaleb(-9) - sum(sizes)) <= rounding


def test_every_family_was_checked():
    """docs/families.md says against what. Write it with `python -m benchmarks.families > docs/families.md`."""
    checked = {family_of(row["config"]) for row in (*ORACLE, *PUBLISHED, *load("small.json"))}
    assert set(FAMILIES) <= checked
    assert (ROOT / "docs" / "families.md").read_text(encoding="utf-8") == page()


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


@in_one_test("row", SMALL)
def test_every_flag(row):
    """Small configs of every family, with its flags drawn at random, as the classes of transformers 5.23 count them."""
    parameters = Architecture.from_config(row["config"]).parameters()
    assert parameters.total == row["total"]
    assert parameters.total + parameters.not_in_total["persistent_buffers"] == row["stored"]


@pytest.mark.parametrize(
    ("model_type", "total"),
    [  # each class of transformers 5.23 on the meta device, its language model alone
        ("fun_asr_nano", 596_049_920),
        ("got_ocr2", 463_909_888),
        ("idefics2", 7_241_732_096),
        ("mistral3", 22_901_314_560),
        ("nemo_speechlm", 31_577_937_344),
        ("paligemma", 2_508_531_712),
        ("qwen3_asr", 1_720_574_976),
        ("voxtral", 4_014_136_320),
        ("voxtral_realtime", 3_434_118_144),
    ],
)
def test_an_absent_section_means_the_wrappers_default(model_type, total):
    assert Architecture.from_config({"model_type": model_type}).parameters().total == total


@pytest.mark.parametrize(
    ("config", "total"),
    [
        pytest.param({"model_type": "deepseek_v2"}, 38_612_307_968, id="deepseek_v2"),
        pytest.param(
            {"model_type": "deepseek_ocr2", "text_config": {"mlp_layer_types": ["dense"] + ["sparse"] * 31}},
            38_503_739_392,
            id="deepseek_ocr2",
        ),
    ],
)
def test_a_class_without_a_number_of_chosen_experts(config, total):
    architecture = Architecture.from_config(config)
    assert architecture.parameters().total == total
    assert any("does not say num_experts_per_tok" in str(sentence) for sentence in architecture.assumptions)


def test_an_activation_with_weights_is_named():
    said = [
        str(sentence)
        for config in (
            {"model_type": "llama", "hidden_size": 64, "hidden_act": "xielu"},
            {"model_type": "llava", "text_config": {"hidden_size": 64}, "vision_config": {"hidden_act": "prelu"}},
            {"model_type": "apertus", "hidden_size": 64, "hidden_act": "xielu"},
        )
        for sentence in Architecture.from_config(config).assumptions
    ]
    assert [sentence.split(" is ")[0] for sentence in said] == ["“hidden_act”", "“vision_config.hidden_act”"]


@pytest.mark.parametrize(
    ("config", "total"),
    [  # each class of transformers 5.23 on the meta device, with no argument at all but where its name says
        pytest.param({"model_type": "llama"}, 6_738_415_616, id="llama"),
        pytest.param({"model_type": "mistral"}, 7_241_732_096, id="mistral"),
        pytest.param(
            {"model_type": "xlstm", "hidden_size": 128, "num_hidden_layers": 6, "num_heads": 4, "vocab_size": 333}
            | {"tie_word_embeddings": True},
            1_371_824,
            id="xlstm, whose class never ties",
        ),
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
