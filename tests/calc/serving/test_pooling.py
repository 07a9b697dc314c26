"""Models that make a vector or scores of a text: no cache for those that read texts whole, no logits for any."""

import pytest

from calc import Architecture, ConfigError, Layout, Workload, report, training_report
from calc.hardware.gpus import gpus
from calc.serving import laid_out_report
from calc.serving.engines import ENGINES
from calc.time.report import time_report
from calc.units import GIB
from presets import models

H100 = gpus()["h100-sxm"]
BERT = {"model_type": "bert", "architectures": ["BertModel"]}
QWEN = {"model_type": "qwen3", "hidden_size": 1024, "num_hidden_layers": 28, "intermediate_size": 3072}


def weighed(name, engine="vllm", context=512, **options):
    started = ENGINES[engine]().with_options(**options)
    return report(models()[name].config, engine=started, workload=Workload(context=context), gpus=[H100])


@pytest.mark.parametrize(
    ("config", "flash", "eager"),
    [
        pytest.param(models()["BAAI/bge-m3"].config, 11_534_336, 22_548_480, id="xlm-roberta"),
        pytest.param(
            models()["sentence-transformers/all-MiniLM-L6-v2"].config, 4_325_376, 15_077_376, id="bert of 6 layers"
        ),
        pytest.param({"model_type": "nomic_bert"}, 12_718_080, 19_537_920, id="nomic_bert"),
        pytest.param({"model_type": "gte"}, 12_718_080, 19_537_920, id="gte"),
        pytest.param({"model_type": "jina_embeddings_v3"}, 12_718_080, 22_683_648, id="jina v3"),
        pytest.param({"model_type": "distilbert"}, 8_650_752, 17_043_456, id="distilbert"),
        pytest.param({"model_type": "eurobert"}, 12_718_080, 36_839_424, id="eurobert"),
    ],
)
def test_a_pass_of_transformers(config, flash, eager):
    """Peaks above the weights of 512 tokens through the classes of transformers 5.23 in 16 bits on fake tensors, every
    storage tracked: with FlashAttention to the byte, with scores written out and a mask to 4 KiB."""
    engine, work = ENGINES["transformers"](), Workload(context=512)
    found = [
        report(config, engine=engine.with_options(attention=attention), workload=work, gpus=[]).memory.activations
        for attention in ("flash", "eager")
    ]
    assert found[0] == flash
    assert abs(found[1] - eager) <= 4096


def test_encoders_leave_no_cache():
    """vLLM asks for no memory for a cache where no layer has a specification of one (`v1/engine/core.py`:
    `has_kv_cache`), and passes as many tokens at once as a text may have (`is_chunked_prefill_supported`)."""
    found = weighed("BAAI/bge-m3", context=8192)
    assert found.kv_cache.total == found.memory.kv_cache == found.kv_cache.bytes_per_token == 0
    assert found.kv_budget == ()
    (verdict,) = found.verdicts
    assert (verdict.verdict, verdict.limits.share, verdict.limits.step_tokens) == ("fits", None, 8192)
    assert "starts only where 92% of the GPU are free" in " ".join(map(str, found.assumptions))
    assert found.memory.total < 4 * GIB


def test_a_text_passes_whole():
    found = weighed("BAAI/bge-m3", context=8192, max_num_batched_tokens=4096)
    assert found.verdicts[0].verdict == "does not fit"
    assert "do not go into steps of 4,096" in str(found.verdicts[0].reason)


def test_a_decoder_that_pools_has_a_cache_and_no_logits():
    """Qwen3-Embedding-0.6B caches what Qwen3-0.6B does, and no sampler is profiled (`gpu/model_runner.py:
    profile_run`)."""
    pooled, generating = weighed("Qwen/Qwen3-Embedding-0.6B"), weighed("Qwen/Qwen3-0.6B")
    assert pooled.kv_cache == generating.kv_cache
    assert pooled.kv_budget[0].profile < generating.kv_budget[0].profile
    assert pooled.parameters.components.keys() == {"embedding", "attention", "mlp", "norms"}


@pytest.mark.parametrize(
    ("name", "pools"),
    [
        ("Qwen3Model", True),
        ("Qwen3ForSequenceClassification", True),
        ("Qwen3ForCausalLM", False),
        ("ChatGLMModel", False),
        ("GPT2LMHeadModel", False),
        ("", False),
    ],
)
def test_the_class_says_what_is_made(name, pools):
    """As vLLM takes it (`config/model.py: _SUFFIX_TO_DEFAULTS`)."""
    assert Architecture.from_config({**QWEN, "architectures": [name]}).pooled == pools


@pytest.mark.parametrize("architectures", [None, "BertModel", [], [None], [7], {"a": 1}, ["Nonsense"]])
def test_what_says_nothing_is_the_encoder_alone(architectures):
    assert Architecture.from_config({**BERT, "architectures": architectures}).parameters().total == 109_482_240


@pytest.mark.parametrize("engine", ["sglang", "tensorrt-llm", "llamacpp"])
def test_engines_whose_pooling_nobody_has_read(engine):
    with pytest.raises(ConfigError, match="makes a vector or scores") as refused:
        weighed("BAAI/bge-m3", engine)
    assert refused.value.nearest == ("vllm", "transformers")


def test_what_makes_no_tokens_is_neither_timed_nor_trained():
    config = models()["BAAI/bge-m3"].config
    with pytest.raises(ConfigError, match="no output tokens"):
        report(config, workload=Workload(context=512, generated=8))
    with pytest.raises(ConfigError, match="losses are over texts"):
        training_report(config)
    serving, weighed = laid_out_report(config, gpus=[H100])
    with pytest.raises(ConfigError, match="The speed of models"):
        time_report(serving, H100, weighed.scenario.workload)
    assert not weighed.verdicts[0].serves


@pytest.mark.parametrize("family", ["mpnet", "deberta-v2"])
@pytest.mark.parametrize("engine", ["vllm", "transformers"])
def test_relative_positions_are_read_and_not_weighed(family, engine):
    assert Architecture.from_config({"model_type": family}).encodes
    found = [v.verdict for v in answered({"model_type": family}, engine)]
    assert found in ([], ["does not run"])


def answered(config, engine):
    try:
        return report(config, engine=ENGINES[engine](), gpus=[H100]).verdicts
    except ConfigError as error:
        assert str(error).endswith(".")
        return ()


def test_ranks_share_an_encoder():
    """Positions, norms and the pooler stand on both ranks; all else is divided."""
    config = models()["BAAI/bge-m3"].config
    whole = report(config, gpus=[H100])
    half = report(config, layout=Layout(tp=2), gpus=[H100])
    assert whole.memory.weights / 2 < half.memory.weights < 0.52 * whole.memory.weights
