"""The phase in which a trainer ran out of memory, by the frames of public tracebacks: their files and functions, in
their order; numbers of lines and what stands between are ours."""

import pytest

from calc.errors import ConfigError
from calc.verify.logs import read_log
from calc.verify.logs.out_of_memory import POINTS, training_failure

OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.42 GiB. GPU 4 has a total capacity of 39.56 GiB "
    "of which 1.05 GiB is free."
)
TRAINER = [("transformers/trainer.py", "train"), ("transformers/trainer.py", "_inner_training_loop")]
STEP = [*TRAINER, ("transformers/trainer.py", "training_step")]
GRPO = "trl/trainer/grpo_trainer.py"


def traceback(frames, end=OOM, prefix=""):
    """As Python prints it, with the prefix that a launcher puts before each line."""
    lines = ["Traceback (most recent call last):"]
    for path, name in frames:
        lines += [f'  File "/usr/lib/python3.12/site-packages/{path}", line 10, in {name}', "    call()", "    ^^^^^^"]
    return "\n".join(f"{prefix}{line}" for line in [*lines, end])


@pytest.mark.parametrize(
    ("phase", "frames"),
    [
        pytest.param(
            "forward",
            [*STEP, (GRPO, "compute_loss"), (GRPO, "_compute_loss"), (GRPO, "_get_per_token_logps_and_entropies")],
            id="github.com/huggingface/trl/issues/3678",
        ),
        pytest.param(
            "optimizer",
            [
                *TRAINER,
                ("accelerate/optimizer.py", "step"),
                ("torch/optim/optimizer.py", "wrapper"),
                ("torch/optim/adamw.py", "step"),
                ("torch/optim/adamw.py", "_multi_tensor_adamw"),
            ],
            id="github.com/huggingface/trl/pull/2776",
        ),
        pytest.param(
            "reference",
            [
                *STEP,
                (GRPO, "_prepare_inputs"),
                (GRPO, "_generate_and_score_completions"),
                (GRPO, "_get_per_token_logps"),
            ],
            id="old log-probabilities",
        ),
        pytest.param(
            "rollout",
            [
                *STEP,
                (GRPO, "_generate_and_score_completions"),
                (GRPO, "_generate"),
                (GRPO, "_generate_single_turn"),
                ("transformers/generation/utils.py", "generate"),
                ("transformers/models/qwen2/modeling_qwen2.py", "forward"),
            ],
            id="generation",
        ),
        pytest.param(
            "weight_sync",
            [
                ("verl/single_controller/ray/base.py", "func"),
                ("verl/workers/fsdp_workers.py", "generate_sequences"),
                ("verl/workers/sharding_manager/fsdp_vllm.py", "__enter__"),
                ("vllm/entrypoints/llm.py", "wake_up"),
                ("vllm/device_allocator/cumem.py", "create_and_map"),
            ],
            id="github.com/verl-project/verl/issues/302",
        ),
        pytest.param(
            "backward",
            [*STEP, ("accelerate/accelerator.py", "backward"), ("torch/_tensor.py", "backward")],
            id="backward",
        ),
        pytest.param(
            "loading",
            [("trl/trainer/sft_trainer.py", "__init__"), ("transformers/modeling_utils.py", "from_pretrained")],
            id="loading",
        ),
        pytest.param(
            "engine",
            [
                (GRPO, "__init__"),
                ("vllm/entrypoints/llm.py", "__init__"),
                ("vllm/v1/worker/gpu_worker.py", "load_model"),
            ],
            id="the engine's weights",
        ),
        pytest.param(
            "reference",
            [("verl/workers/fsdp_workers.py", "compute_ref_log_prob"), ("verl/workers/actor/dp_actor.py", "forward")],
            id="verl's reference",
        ),
    ],
)
@pytest.mark.parametrize("prefix", ["", "[rank0]: ", "(main_task pid=1748945) "])
def test_the_innermost_frame_says_the_phase(phase, frames, prefix):
    log = read_log(traceback(frames, prefix=prefix))
    assert log.training.phase == phase
    assert str(POINTS[phase].said) in str(log.training.message)
    assert "1.42 GiB" in str(log.training.message)
    assert log.training.advice == POINTS[phase].advice


def test_an_allocator_that_says_no_sizes():
    """vLLM's own, as in github.com/verl-project/verl/issues/302."""
    frames = [("verl/workers/fsdp_workers.py", "generate_sequences"), ("vllm/device_allocator/cumem.py", "wake_up")]
    log = read_log(
        traceback(frames, "RuntimeError: CUDA Error: out of memory at /workspace/csrc/cumem_allocator.cpp:62")
    )
    assert log.training.phase == "weight_sync"
    assert log.out_of_memory is None


def test_a_server_is_no_trainer():
    frames = [("vllm/v1/engine/core.py", "__init__"), ("vllm/v1/worker/gpu_worker.py", "load_model")]
    assert read_log(traceback(frames)).training is None


def test_a_trainer_that_ran_is_not_read():
    frames = [*STEP, (GRPO, "compute_loss")]
    assert training_failure(traceback(frames, "KeyboardInterrupt"), None) is None
    with pytest.raises(ConfigError):
        read_log(traceback(frames, "KeyboardInterrupt"))
