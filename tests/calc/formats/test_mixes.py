"""Weights as llama.cpp quantizes them."""

import pytest

from calc import Precision, report
from calc.formats.mixes import MIX_TYPES, ModelSizes, fitted, types_of
from presets import models

GGML_QUANT_SIZES = {  # gguf-py `constants.py`: weights and bytes of a block
    "F32": (1, 4),
    "F16": (1, 2),
    "Q4_0": (32, 18),
    "Q4_1": (32, 20),
    "Q5_0": (32, 22),
    "Q5_1": (32, 24),
    "Q8_0": (32, 34),
    "Q2_K": (256, 84),
    "Q3_K": (256, 110),
    "Q4_K": (256, 144),
    "Q5_K": (256, 176),
    "Q6_K": (256, 210),
    "IQ2_XXS": (256, 66),
    "IQ2_XS": (256, 74),
    "IQ3_XXS": (256, 98),
    "IQ1_S": (256, 50),
    "IQ4_NL": (32, 18),
    "IQ3_S": (256, 110),
    "IQ2_S": (256, 82),
    "IQ4_XS": (256, 136),
    "IQ1_M": (256, 56),
}


@pytest.mark.parametrize("name", GGML_QUANT_SIZES)
def test_blocks_of_gguf(name):
    weights, nbytes = GGML_QUANT_SIZES[name]
    assert MIX_TYPES[name].nbytes((7, 3 * weights)) == 7 * 3 * nbytes


@pytest.mark.parametrize(
    ("mix", "bits"),
    [  # llama.cpp tools/quantize/README.md: bits a weight of Llama 3.1 8B
        ("IQ1_S", 2.0042),
        ("IQ1_M", 2.1460),
        ("IQ2_XXS", 2.3824),
        ("IQ2_XS", 2.5882),
        ("IQ2_S", 2.7403),
        ("IQ2_M", 2.9294),
        ("IQ3_XXS", 3.2548),
        ("IQ3_XS", 3.4977),
        ("IQ3_S", 3.6606),
        ("IQ3_M", 3.7628),
        ("Q2_K_S", 2.9697),
        ("Q2_K", 3.1593),
        ("Q3_K_S", 3.6429),
        ("Q3_K_L", 4.2979),
        ("Q4_K_S", 4.6672),
        ("Q4_K_M", 4.8944),
        ("Q5_K_S", 5.5704),
        ("Q5_K_M", 5.7036),
        ("Q6_K", 6.5633),
        ("Q8_0", 8.5008),
    ],
)
def test_mixes_of_llama_cpp(mix, bits):
    llama = models()["meta-llama/Llama-3.1-8B"].config
    weighed = report(llama, precision=Precision(weights=mix), gpus=[])
    assert 8 * weighed.memory.weights / weighed.parameters.total == pytest.approx(bits, abs=5.5e-5)


@pytest.mark.parametrize(
    ("mix", "gb"),
    [  # huggingface.co/bartowski/Llama-3.1-Nemotron-70B-Instruct-HF-GGUF, sizes of the files
        ("Q8_0", 74.98),
        ("Q6_K", 57.89),
        ("Q5_K_M", 49.95),
        ("Q5_K_S", 48.66),
        ("Q4_K_M", 42.52),
        ("Q4_K_S", 40.35),
        ("IQ4_XS", 37.90),
        ("Q3_K_L", 37.14),
        ("Q3_K_M", 34.27),
        ("IQ3_M", 31.94),
        ("Q3_K_S", 30.91),
    ],
)
def test_files_of_a_70b_model(mix, gb):
    """A file also holds the vocabulary, 8 MB. These were made with an importance matrix."""
    precision = Precision(weights=mix, imatrix=True)
    weighed = report(models()["meta-llama/Llama-3.1-70B"].config, precision=precision, gpus=[])
    assert gb - 0.014 <= weighed.memory.weights / 1e9 <= gb


@pytest.mark.parametrize(
    ("mix", "role", "layer", "sizes", "chosen"),
    [  # llama.cpp src/llama-quant.cpp
        ("Q4_K_M", "down", 0, ModelSizes(layers=32, values=32, group=4), "Q6_K"),
        ("Q4_K_M", "down", 4, ModelSizes(layers=32, values=32, group=4), "Q4_K"),
        ("Q4_K_M", "down", 6, ModelSizes(layers=32, values=32, group=4), "Q6_K"),
        ("Q4_K_M", "v", 4, ModelSizes(layers=80, values=80, group=8, of_70b=True), "Q6_K"),
        ("Q4_K_M", "v", 10, ModelSizes(layers=80, values=80, group=8, of_70b=True), "Q5_K"),
        ("Q4_K_M", "o", 9, ModelSizes(layers=32, values=32, group=4, experts=8), "Q5_K"),
        ("Q4_K_M", "k", 9, ModelSizes(layers=32, values=32, group=4, experts=8), "Q8_0"),
        ("Q3_K_M", "v", 1, ModelSizes(layers=32, values=32, group=1), "Q5_K"),
        ("Q3_K_M", "v", 2, ModelSizes(layers=32, values=32, group=1), "Q4_K"),
        ("IQ2_XS", "v", 2, ModelSizes(layers=32, values=32, group=1, experts=128), "Q4_K"),
        ("IQ2_XS", "v", 2, ModelSizes(layers=32, values=32, group=1), "Q2_K"),
    ],
)
def test_choices_of_llama_cpp(mix, role, layer, sizes, chosen):
    assert types_of(mix, role, [layer], sizes) == [chosen]


@pytest.mark.parametrize(
    ("name", "columns", "instead"),
    [  # `tensor_type_fallback`: gpt-oss has rows of 2,880, Qwen2.5-0.5B of 896
        ("Q4_K", 4096, "Q4_K"),
        ("Q4_K", 2880, "Q5_0"),
        ("Q6_K", 896, "Q8_0"),
        ("IQ3_S", 896, "IQ4_NL"),
        ("Q3_K", 896, "Q4_0"),
        ("Q4_K", 900, "F16"),
    ],
)
def test_rows_that_do_not_divide(name, columns, instead):
    assert fitted(name, columns) == MIX_TYPES[instead]
