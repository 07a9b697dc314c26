"""`weighbridge quantize`: what a conversion takes, as a table, as JSON and as an exit status."""

import json

import pytest

from cli import main

LLAMA_70B = "meta-llama/Llama-3.3-70B-Instruct"


@pytest.mark.parametrize(
    ("argv", "status", "says"),
    [
        # down_proj reads 28,672 columns: 16 * 28672^2 bytes of Hessian and its copies
        pytest.param([LLAMA_70B, "--gpu", "rtx-4090"], 0, "16·w_28672² = 16·28672²", id="gptq"),
        pytest.param([LLAMA_70B, "--gpu", "rtx-4060"], 1, "does not fit", id="too-small"),
        pytest.param([LLAMA_70B, "--to", "gptq-int4", "--gpu", "h100-sxm"], 0, "with gptqmodel (GPTQ)", id="alias"),
        pytest.param(
            [LLAMA_70B, "--to", "mlx-4bit", "--gpu", "h100-sxm"], 1, "does not run on it", id="other-platform"
        ),
        pytest.param(["Qwen/Qwen3-8B", "--to", "Q4_K_M"], 0, "needs no GPU", id="no-gpu"),
    ],
)
def test_the_status_is_the_verdict(capsys, argv, status, says):
    assert main(["quantize", *argv]) == status
    assert says in capsys.readouterr().out


def test_json_has_every_part_with_its_formula(capsys):
    assert main(["quantize", LLAMA_70B, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    phase = answer["phases"][1]
    assert phase["gpu_bytes"] == sum(part["bytes"] for part in phase["gpu"]) == answer["gpu"]
    assert {"what", "bytes", "formula", "values"} == phase["gpu"][0].keys()
    assert answer["disk_bytes"] == sum(part["bytes"] for part in answer["disk"])


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        pytest.param(["Qwen/Qwen3-8B", "--to", "int3"], "int3", id="no-such-format"),
        pytest.param(["Qwen/Qwen3-8B", "--to", "nf4", "--tool", "autoawq"], "bitsandbytes does", id="no-such-recipe"),
        pytest.param(["Qwen/Qwen3-8B", "--calibration-samples", "0"], "from 1 to", id="no-samples"),
        pytest.param(["openai/gpt-oss-20b"], "quantized already", id="quantized"),
    ],
)
def test_a_bad_question_is_a_sentence(capsys, argv, says):
    try:
        status = main(["quantize", *argv])
    except SystemExit as end:
        status = end.code
    out = capsys.readouterr()
    assert status == 2
    assert says in out.err
    assert "Traceback" not in out.err
