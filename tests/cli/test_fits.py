"""`weighbridge fits`: the exit status says whether a model fits."""

import pytest

from cli import main

LLAMA_70B = ("meta-llama/Llama-3.3-70B-Instruct", "--context", "8192")


@pytest.mark.parametrize(
    ("argv", "status", "says"),
    [
        # 16.4 GB of weights on 80 GB; 141 GB of weights on one card of 80 GB
        pytest.param(["qwen/qwen3-8b", "--gpu", "h100-sxm"], 0, "1 x h100-sxm: fits", id="fits"),
        pytest.param([*LLAMA_70B, "--gpu", "h100-sxm"], 1, "does not fit", id="does-not-fit"),
        pytest.param([*LLAMA_70B, "--gpu", "h100-sxm", "--num-gpus", "4"], 0, "4 x h100-sxm: fits", id="four-gpus"),
        pytest.param([*LLAMA_70B, "--gpu", "h200-sxm", "h100-sxm"], 1, "does not fit", id="every-gpu-that-is-named"),
        # vLLM's fp8 kernels start at compute capability 7.5, docs/features/quantization
        pytest.param(
            ["Qwen/Qwen3-8B", "--weights", "fp8", "--gpu", "v100-sxm2-16gb"], 1, "does not run", id="does-not-run"
        ),
        # 8.19 B weights with gradients, two AdamW moments and a master copy: 16 bytes each
        pytest.param(["Qwen/Qwen3-8B", "--train", "--gpu", "h100-sxm"], 1, "does not fit", id="training"),
    ],
)
def test_the_status_is_the_verdict(capsys, argv, status, says):
    assert main(["fits", *argv]) == status
    assert says in capsys.readouterr().out


def test_a_verdict_with_flags_prints_them(capsys):
    """A server of this model refused to start on an H100 with vLLM's default of 1,024 sequences: more than it had
    blocks of state (github.com/vllm-project/vllm: "exceeds available Mamba cache blocks")."""
    argv = ["fits", "Qwen/Qwen3.6-27B", "--weights", "fp8", "--gpu", "h100-sxm"]
    assert main(argv) == 3
    assert "fits with --max-num-seqs" in capsys.readouterr().out
    assert main([*argv, "--max-num-seqs", "256"]) == 0


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        pytest.param(["Qwen/Qwen3-8B"], "No GPU is named", id="no-gpu"),
        pytest.param(["no such model", "--gpu", "h100-sxm"], "neither a preset nor a file", id="no-model"),
        pytest.param(["Qwen/Qwen3-8B", "--gpu", "h1000"], "h1000", id="no-such-gpu"),
    ],
)
def test_a_bad_question_is_a_sentence(capsys, argv, says):
    assert main(["fits", *argv]) == 2
    out = capsys.readouterr()
    assert says in out.err
    assert out.out == ""
