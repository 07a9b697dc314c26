"""What the conversion of a model takes: parts by hand from the tools' code, and figures that others state."""

from statistics import median

import pytest

from benchmarks.accuracy import quantizing
from calc import ConfigError
from calc.formats import MIXES, WEIGHT_FORMATS
from calc.hardware.custom_gpu import find_gpu
from calc.quantizing import RECIPES, Quantizing, quantizing_report
from presets import models

LLAMA, MOE = "meta-llama/Llama-3.1-8B", "Qwen/Qwen3-30B-A3B"


def report(model=LLAMA, gpus=(), **options):
    return quantizing_report(
        models()[model].config, Quantizing(**options), gpus=[find_gpu(gpu) for gpu in gpus], model=model
    )


def parts(phase, where="gpu"):
    return {str(part.what): part.bytes for part in getattr(phase, where)}


def test_gptq_holds_a_block_its_hessians_and_what_inverts_the_largest():
    """Llama 3.1 8B: 4 matrices read 4096 columns in attention and 2 in the feed-forward, down_proj 14,336; fp32 of
    [in, in] each. 2,048 tokens pass in bf16."""
    calibration, quantizing = report().phases
    assert parts(calibration) == {
        "weights of the block": 2 * (2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 14336 * 4096 + 2 * 4096),
        "output head": 2 * 128_256 * 4096,
        "Hessians of the block": 4 * (6 * 4096**2 + 14336**2),
        "product of the widest input with itself": 4 * 14336**2,
        "the widest input in 16 and in 32 bits": 2048 * 14336 * (2 + 4),
        "state, input and output of the block": 3 * 2048 * 4096 * 2,
    }
    assert parts(quantizing)["Hessian, its factor, the factor's copy, the inverse"] == 4 * 4 * 14336**2
    assert parts(quantizing)["the matrix in 32 bits"] == 4 * 4096 * 14336
    assert parts(quantizing, "ram") == {
        "checkpoint in 16 bits": 2 * 8_030_261_248,
        "hidden states of all samples": 512 * 2048 * 4096 * 2,
    }


def test_experts_have_hessians_of_their_own():
    """128 experts: gate and up read 2,048 columns, down 768; q, k and v read 2,048, o 4,096."""
    calibration, quantizing = report(MOE).phases
    experts = 128 * (2 * 2048**2 + 768**2)
    assert parts(calibration)["Hessians of the block"] == 4 * (3 * 2048**2 + 4096**2 + experts)
    assert (
        parts(quantizing)["Hessians of the matrices that wait"] == 4 * experts
    )  # o_proj is inverted while all of them wait


def test_gptqmodel_makes_the_hessians_of_one_group_at_a_time():
    calibration, _ = report(to="int4-gptq").phases
    assert parts(calibration)["Hessians of the block"] == 4 * 14336**2


def test_awq_keeps_the_inputs_of_each_scaled_module():
    """Of 256 texts of 512 tokens: into attention and into the feed-forward 4,096, into down_proj 14,336; o_proj is left
    out, for its values are narrower than what it reads."""
    (search,) = report(to="int4").phases
    tokens = 256 * 512
    assert parts(search)["kept inputs of all samples"] == 2 * tokens * (4096 + 4096 + 14336)
    assert parts(search)["outputs of all samples, twice"] == 2 * 2 * tokens * 4096
    (search,) = report(to="int4", keep_inputs_on="host").phases
    assert "kept inputs of all samples" not in parts(search)


def test_awq_of_attention_that_reads_state_and_embedding():
    """Zamba 7B: 7,424 columns into attention, as many out of its values, then 3,712 and 14,848."""
    (search,) = report("Zyphra/Zamba-7B-v1", to="int4").phases
    assert parts(search)["kept inputs of all samples"] == 2 * 256 * 512 * (7424 + 7424 + 3712 + 14848)


def test_llama_cpp_takes_a_tensor_at_a_time():
    """The largest of Llama 3.1 8B is its table of tokens: 8 bytes of each weight, and nothing on a GPU."""
    convert, quantize = report(to="Q4_K_M", gpus=["t4"]).phases
    assert (convert.gpu_bytes, convert.ram_bytes, quantize.ram_bytes) == (0, 8 * 128_256 * 4096, 8 * 128_256 * 4096)
    assert report(to="Q4_K_M", gpus=["t4"]).verdicts[0].verdict == "fits"
    assert len(report(to="IQ2_XS").phases) == 3  # an importance matrix first


@pytest.mark.parametrize(
    "row", quantizing.rows(), ids=lambda row: f"{row['model'].partition('/')[2]}-{row['what'][:24]}"
)
def test_what_others_state_is_of_the_same_size(row):
    """Each with its address: within a third, but for what docs/quantizing.md says is of another release."""
    off = quantizing.error(row)
    if "AutoAWQ" in row["what"]:
        assert not quantizing.within(row)
    elif off is None:
        assert quantizing.within(row)
    else:
        assert abs(off) < 1 / 3


def test_half_of_what_others_state_is_met_to_four_per_cent():
    errors = [abs(off) for off in map(quantizing.error, quantizing.rows()) if off is not None]
    assert len(errors) >= 18
    assert median(errors) < 0.04


def test_the_page_of_the_docs_is_current():
    path = quantizing.DATA.parents[1] / "docs" / "quantizing.md"
    assert path.read_text(encoding="utf-8") == quantizing.page(), "python -m benchmarks.accuracy.quantizing"


@pytest.mark.parametrize(
    ("gpu", "word"), [("rtx-4090", "fits"), ("rtx-4060", "does not fit"), ("apple-m4-max", "does not run")]
)
def test_a_gpu_has_a_verdict(gpu, word):
    """GPTQ of a model of 70 B: 17.9 GB of 24, of 8, and no CUDA."""
    (verdict,) = report("meta-llama/Llama-3.3-70B-Instruct", gpus=[gpu]).verdicts
    assert verdict.verdict == word


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: f"{recipe.tool}-{recipe.method}")
@pytest.mark.parametrize(
    "model", [LLAMA, MOE, "openai-community/gpt2", "state-spaces/mamba-2.8b-hf", "deepseek-ai/DeepSeek-V2-Lite"]
)
def test_every_recipe_weighs_every_kind_of_model(model, recipe):
    """Totals are the sums of their parts; more texts never take less."""
    if "mamba" in model and recipe.method.template == "AWQ" and recipe.tool == "llm-compressor":
        with pytest.raises(ConfigError, match="finds no matrix"):  # it knows no mapping of a recurrent mixer
            report(model, to="int4", tool=recipe.tool)
        return
    for to in sorted(recipe.formats)[:2]:
        answer = report(model, to=to, tool=recipe.tool)
        assert answer.gpu == max(sum(part.bytes for part in phase.gpu) for phase in answer.phases)
        assert answer.ram == max(sum(part.bytes for part in phase.ram) for phase in answer.phases)
        more = report(model, to=to, tool=recipe.tool, calibration_samples=2 * answer.samples or 1)
        assert more.gpu >= answer.gpu
        assert more.ram >= answer.ram


def test_every_format_that_is_not_a_float_has_a_recipe():
    made = {form for recipe in RECIPES for form in recipe.formats}
    assert made == set(WEIGHT_FORMATS) - {"fp32", "bf16", "fp16"}
    assert set(MIXES) <= made


@pytest.mark.parametrize(
    ("model", "options", "says"),
    [
        pytest.param(LLAMA, {"to": "Q4_K_M", "tool": "autoawq"}, "llama.cpp does", id="other-tool"),
        pytest.param("openai/gpt-oss-20b", {}, "quantized already, in mxfp4", id="quantized-already"),
    ],
)
def test_what_no_tool_does_is_a_sentence(model, options, says):
    with pytest.raises(ConfigError, match=says):
        report(model, **options)
