"""Parameters of encoders with the head of each task, next to transformers 5.23's own classes on the meta device."""

import pytest

from calc import Architecture

MPNET = {
    "model_type": "mpnet",
    "vocab_size": 30_527,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 514,
}
DEBERTA = {
    "model_type": "deberta-v2",
    "vocab_size": 128_100,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "relative_attention": True,
    "position_buckets": 256,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": ["p2c", "c2p"],
    "position_biased_input": False,
    "type_vocab_size": 0,
}
CONVOLVED = DEBERTA | {"conv_kernel_size": 3, "conv_act": "gelu"}


@pytest.mark.parametrize(
    ("config", "name", "parameters"),
    [
        pytest.param(MPNET, "MPNetModel", 109_486_464, id="all-mpnet-base-v2"),
        pytest.param(MPNET, "MPNetForMaskedLM", 109_518_527, id="mpnet-words"),
        pytest.param(MPNET, "MPNetForSequenceClassification", 109_488_002, id="mpnet-scores"),
        pytest.param(MPNET, "MPNetForTokenClassification", 108_897_410, id="mpnet-token-scores"),
        pytest.param(DEBERTA, "DebertaV2Model", 183_831_552, id="deberta-v3-base"),
        pytest.param(DEBERTA, "DebertaV2ForMaskedLM", 184_551_780, id="deberta-words"),
        pytest.param(DEBERTA, "DebertaV2ForSequenceClassification", 184_423_682, id="deberta-scores"),
        pytest.param(DEBERTA, "DebertaV2ForTokenClassification", 183_833_090, id="deberta-token-scores"),
        pytest.param(CONVOLVED, "DebertaV2Model", 185_603_328, id="deberta-v2-with-convolution"),
        pytest.param(CONVOLVED, "DebertaV2ForMaskedLM", 186_323_556, id="deberta-v2-words"),
        pytest.param(CONVOLVED, "DebertaV2ForSequenceClassification", 186_195_458, id="deberta-v2-scores"),
    ],
)
def test_each_head_is_counted(config, name, parameters):
    architecture = Architecture.from_config(config | {"architectures": [name]})
    assert architecture.parameters().total == parameters
    assert architecture.pooled
