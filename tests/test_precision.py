"""Weights as the published checkpoints store them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calc import Architecture, Precision
from calc.precision import FLOATS, FORMATS, WEIGHT_FORMATS
from presets import models


def stored(model, weights):
    """Elements in 16 bits, quantised elements, and bytes of their scales, of all that the checkpoint holds."""
    precision, plain, quantised, scales = Precision(weights=weights), 0, 0, 0
    for tensor in Architecture.from_config(models()[model].config).tensors():
        if tensor.name.endswith("e_score_correction_bias"):
            continue  # fp32 in the file
        nbytes = precision.tensor_bytes(tensor) * tensor.count
        if nbytes == 2 * tensor.parameters:
            plain += tensor.parameters
        else:
            quantised += tensor.parameters
            scales += nbytes - tensor.parameters * FORMATS[weights].bits // 8
    return plain, quantised, scales


def test_deepseek_v3_as_its_checkpoint():
    """huggingface.co/api/models/deepseek-ai/DeepSeek-V3, safetensors.parameters:
    {"BF16": 3918786560, "F8_E4M3": 680571043840, "F32": 41555600}"""
    plain, quantised, scales = stored("deepseek-ai/DeepSeek-V3", "fp8")
    assert (plain, quantised) == (3_918_786_560, 680_571_043_840)
    assert scales // 4 + 59 * 256 == 41_555_600  # beside the scales, the router biases of 59 layers
    assert plain + quantised + 59 * 256 == 684_489_845_504


@pytest.mark.parametrize(
    ("model", "plain", "u8"),
    [  # huggingface.co/api/models, safetensors.parameters: BF16; U8 counts 4-bit weights and one byte a scale
        pytest.param("openai/gpt-oss-20b", 1_804_459_584, 19_707_494_400, id="gpt-oss-20b"),
        pytest.param("openai/gpt-oss-120b", 2_167_371_072, 118_244_966_400, id="gpt-oss-120b"),
    ],
)
def test_gpt_oss_as_its_checkpoint(model, plain, u8):
    ours, quantised, scales = stored(model, "mxfp4")
    assert ours == plain
    assert quantised + scales == u8


def test_gpt_oss_20b_as_its_files():
    """The three shards on huggingface.co have 13,761,316,904 bytes, of which their headers are some 50 kB."""
    plain, quantised, scales = stored("openai/gpt-oss-20b", "mxfp4")
    assert 0 < 13_761_316_904 - (2 * plain + quantised // 2 + scales) < 60_000


@pytest.mark.parametrize(
    ("name", "shape", "nbytes"),
    [
        pytest.param("fp8", (7168, 1536), 7168 * 1536 + 56 * 12 * 4, id="fp8: 128 x 128 blocks, DeepSeek-V3 q_a"),
        pytest.param("fp8", (1, 1), 1 + 4, id="fp8: a block that is not full"),
        pytest.param("int8", (4096, 4096), 4096 * 4096 + 4096 * 4, id="int8: a scale for each output channel"),
        pytest.param("int4", (4096, 14336), 4096 * 14336 // 2 + 4096 * 112 * 5 // 2, id="int4: 2.5 bytes for each 128"),
        pytest.param("mxfp4", (32, 5760, 2880), 32 * 5760 * (1440 + 90), id="mxfp4: gpt-oss-20b gate_up_proj"),
        pytest.param("nvfp4", (128, 64), 128 * (32 + 4), id="nvfp4: a byte for each 16"),
        pytest.param("nf4", (128, 64), 128 * (32 + 4), id="nf4: four bytes for each 64"),
        pytest.param("fp16", (3, 5), 30, id="fp16"),
        pytest.param("fp32", (3, 5), 60, id="fp32"),
    ],
)
def test_bytes_of_a_matrix(name, shape, nbytes):
    assert FORMATS[name].nbytes(shape) == nbytes


@given(st.sampled_from([f for f in WEIGHT_FORMATS if f not in FLOATS]), st.integers(1, 5000), st.integers(64, 5000))
def test_quantised_is_less_than_16_bits_and_more_than_its_bits(name, rows, columns):
    form, bf16 = FORMATS[name], FORMATS["bf16"]
    assert rows * columns * form.bits <= 8 * form.nbytes((rows, columns))
    assert form.nbytes((rows, columns)) < bf16.nbytes((rows, columns))


@given(st.sampled_from(WEIGHT_FORMATS), st.integers(1, 3000), st.integers(1, 3000))
def test_a_larger_matrix_is_never_smaller(name, rows, columns):
    form = FORMATS[name]
    assert form.nbytes((rows, columns)) <= min(form.nbytes((rows + 1, columns)), form.nbytes((rows, columns + 1)))
