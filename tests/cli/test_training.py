"""python -m calc MODEL --train, as other programs rely on it."""

import json

import pytest

from cli import main

PARTS = ("weights", "master_weights", "gradients", "optimizer", "activations", "logits", "temporaries", "overhead")


def run(capsys, *argv):
    try:
        status = main(argv)
    except SystemExit as stop:
        status = stop.code
    out = capsys.readouterr()
    return status, out.out, out.err


def test_json_keeps_the_contract(capsys):
    status, out, err = run(capsys, "Qwen/Qwen2.5-3B", "--train", "--gpu", "h100-sxm", "--json")
    report = json.loads(out)
    memory = report["memory"]
    assert (status, err) == (0, "")
    assert report["parameters"]["total"] == report["trained_parameters"] == 3_085_938_688
    states = ("weights", "master_weights", "gradients", "optimizer")
    assert [memory[part] / 3_085_938_688 for part in states] == [2, 4, 2, 8]  # ZeRO, arXiv:1910.02054 section 3.1
    assert memory["total"] == sum(memory[part] for part in PARTS)
    assert memory["overhead_low"] <= memory["overhead"] <= memory["overhead_high"]
    (verdict,) = report["verdicts"]
    assert (verdict["gpu"], verdict["gpus"], verdict["required"]) == ("h100-sxm", 1, memory["total"])
    assert verdict["verdict"] in ("fits", "tight", "does not fit")


@pytest.mark.parametrize(
    ("options", "part", "nbytes"),
    [  # of 3,085,938,688 weights; adapters of rank 8: 36 layers, 7 matrices
        pytest.param(["--master", "none"], "optimizer", 4 * 3_085_938_688, id="bf16 states"),
        pytest.param(["--recipe", "megatron"], "gradients", 4 * 3_085_938_688, id="fp32 gradients"),
        pytest.param(["--zero", "1", "--dp", "8"], "optimizer", 3_085_938_688, id="ZeRO-1 on eight"),
        pytest.param(["--optimizer", "sgd"], "optimizer", 0, id="SGD"),
        pytest.param(["--states", "bf16"], "optimizer", 4 * 3_085_938_688, id="states alone"),
        pytest.param(["--lora-rank", "8"], "optimizer", 8 * 14_966_784, id="LoRA"),
    ],
)
def test_options_reach_the_memory(capsys, options, part, nbytes):
    status, out, _ = run(
        capsys, "Qwen/Qwen2.5-3B", "--train", "--recompute", "full", "--sequence", "512", "--json", *options
    )
    assert status == 0
    assert json.loads(out)["memory"][part] == pytest.approx(nbytes, rel=1e-6)


@pytest.mark.parametrize("flag", ["--vp", "--num-virtual-stages-per-pipeline-rank"])
def test_interleaved_stages_by_megatron_s_flag(capsys, flag):
    status, out, _ = run(
        capsys, "Qwen/Qwen2.5-3B", "--train", "--pp", "4", flag, "3", "--accumulation", "8", "--time", "--json"
    )
    found = json.loads(out)
    assert (status, found["scenario"]["layout"]["vp"]) == (0, 3)
    plain = json.loads(
        run(capsys, "Qwen/Qwen2.5-3B", "--train", "--pp", "4", "--accumulation", "8", "--time", "--json")[1]
    )
    assert found["time"]["step_s"]["expected"] < plain["time"]["step_s"]["expected"]
    assert found["memory"]["activations"] > plain["memory"]["activations"]


def test_table(capsys):
    status, out, _ = run(capsys, "Qwen/Qwen2.5-3B", "--train", "--tp", "2", "--cp", "2", "--gpu", "h100-sxm")
    assert status == 0
    for text in ("optimizer states", "GiB", "h100-sxm", "micro-batch", "The step peaks"):
        assert text in out


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--micro-batch", "2"], "--micro-batch takes effect only with --train."),
        (["--train", "--batch", "2"], "--batch has no effect with --train; use --micro-batch."),
        (["--train", "--weights", "fp8"], "--weights is how LoRA's frozen weights are stored"),
        (["--train", "--lora-rank", "8", "--method", "full"], "--lora-rank concerns adapters: it needs --method lora"),
        (["--train", "--micro-batch", "0"], "0 can't be taken: micro_batch is a whole number from 1 to 16,777,216."),
        (["--train", "--optimizer", "magic"], "invalid choice"),
        (["--train", "--tp", "3"], "tp is 3"),
        (["--train", "--fp32-rest"], "fp32_rest is about what QLoRA leaves unquantized; the method is full"),
        (["--train", "--optimizer-in-backward", "--accumulation", "4"], "optimizer"),
    ],
)
def test_errors_are_a_sentence(capsys, options, text):
    status, out, err = run(capsys, "Qwen/Qwen2.5-3B", *options)
    assert (status, out) == (2, "")
    assert text in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "option",
    [("--kv", "fp8"), ("--engine", "sglang"), ("--max-gpus", "4"), ("--limit", "3"), ("--users", "4")],
    ids=lambda option: option[0],
)
def test_what_is_of_a_server_has_no_part_in_a_training_plan(capsys, option):
    assert main(["plan", "Qwen/Qwen2.5-3B", "--train", "--gpus", "8", *option]) == 2
    assert f"{option[0]} has no effect with --train" in capsys.readouterr().err


def test_a_loss_of_trl_and_its_engine(capsys):
    """TRL's defaults: fp32 weights, checkpointing, a fused AdamW, no reference with GRPO's beta of 0."""
    lengths = ("--prompt", "512", "--completion", "2048")
    status, out, err = run(
        capsys,
        *("Qwen/Qwen2.5-3B", "--train", "--method", "grpo", "--num-generations", "8", *lengths, "--micro-batch", "4"),
        *("--dp", "2", "--zero", "3", "--rollout", "colocated", "--vllm-gpu-memory-utilization", "0.4"),
        *("--sleep-level", "1", "--gpu", "h100-sxm", "--json"),
    )
    report = json.loads(out)
    assert (status, err) == (0, "")
    scenario = report["scenario"]
    assert scenario["objective"]["method"] == "grpo"
    assert scenario["objective"]["reference"] == "none"
    assert scenario["workload"]["sequence"] == 2560
    assert scenario["recipe"]["weights"] == "fp32"
    (rollout,) = report["rollouts"]
    assert [phase["name"] for phase in rollout["phases"]] == ["rollout", "weight_sync", "reference", "update"]
    assert rollout["engine_share"] == 0.4
    assert rollout["host_bytes"] >= 2 * 3_085_938_688
    assert rollout["share_low"] <= rollout["share_all"] <= 1
    assert report["verdicts"][0]["required"] == max(phase["total"] for phase in rollout["phases"])


@pytest.mark.parametrize(
    ("micro_batch", "told"), [pytest.param(1, "for one sequence 0."), pytest.param(2, "for 2 sequences at once 0.")]
)
def test_shares_are_told_for_one_sequence_or_several(capsys, micro_batch, told):
    """Of a step on one GPU."""
    argv = ("--train", "--method", "grpo", "--num-generations", "2", "--micro-batch", str(micro_batch))
    _, out, _ = run(capsys, "Qwen/Qwen2.5-0.5B", *argv, "--rollout", "colocated", "--gpu", "h100-sxm")
    assert told in out


def test_a_loss_and_adapters_are_named_together(capsys):
    status, out, _ = run(capsys, "Qwen/Qwen2.5-3B", "--train", "--method", "dpo,lora", "--gpu", "h100-sxm", "--json")
    report = json.loads(out)
    assert status == 0
    assert report["scenario"]["objective"]["reference"] == "adapter-off"
    assert report["scenario"]["workload"]["method"] == "lora"
    assert report["trained_parameters"] < 10**8


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        pytest.param(["--method", "grpo", "--sleep-level", "1"], "--rollout colocated", id="sleep without an engine"),
        pytest.param(
            ["--method", "grpo", "--rollout", "server", "--sleep-level", "1"], "GPUs of its own", id="a server's sleep"
        ),
        pytest.param(["--method", "dpo", "--rollout", "colocated"], "generates completions", id="nothing to generate"),
        pytest.param(["--rollout", "colocated"], "generates completions", id="no loss"),
        pytest.param(["--method", "grpo", "--num-generations", "1"], "group of one", id="group of one"),
        pytest.param(["--method", "dpo", "--sequence", "4096"], "--prompt", id="two lengths"),
        pytest.param(["--prompt", "100"], "loss of TRL", id="prompt without a loss"),
        pytest.param(["--method", "lora,qlora"], "not lora,qlora", id="two kinds of adapters"),
        pytest.param(["--method", "gspo"], "not gspo", id="unknown"),
        pytest.param(["--method", "dpo", "--teacher", "Qwen/Qwen2.5-7B"], "has no teacher", id="no distillation"),
        pytest.param(["--method", "gkd", "--teacher", "Qwen/Qwen2.5-7B"], "must be the same", id="another vocabulary"),
    ],
)
def test_a_loss_that_makes_no_sense_gets_a_sentence(capsys, options, sentence):
    status, out, err = run(capsys, "Qwen/Qwen2.5-3B", "--train", "--gpu", "h100-sxm", *options)
    assert (status, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1


def test_the_table_says_which_share_to_give(capsys):
    options = ["--method", "grpo", "--rollout", "colocated", "--gpu", "h100-sxm", "--dp", "4", "--zero", "3"]
    status, out, _ = run(capsys, "Qwen/Qwen2.5-3B", "--train", *options)
    assert status == 0
    assert "share of the GPU" in out
    assert "longest completion" in out


def test_a_step_of_a_loss_is_timed(capsys):
    """Phases that come to the step; in JSON, the same and how it is started."""
    options = ["--train", "--method", "grpo", "--dp", "4", "--zero", "3", "--rollout", "colocated", "--gpu", "h100-sxm"]
    status, out, _ = run(capsys, "Qwen/Qwen2.5-3B", *options, "--time")
    assert status == 0
    for line in ("  rollout", "  weight sync", "  update", "tokens an hour", "engine on all", "2 for the engine alone"):
        assert line in out
    report = json.loads(run(capsys, "Qwen/Qwen2.5-3B", *options, "--time", "--json")[1])
    time = report["time"]
    parts = [phase["seconds"]["expected"] for phase in time["phases"]]
    assert sum(parts) == pytest.approx(time["step_s"]["expected"])
    assert time["longest"] in {phase["name"] for phase in time["phases"]}
    assert set(report["launches"]) == {"TRL", "verl", "OpenRLHF"}


def test_a_trainer_of_its_own(capsys):
    """verl 0.9.1: rollout.yaml's share, free_cache_engine and buckets, and its way to log-probabilities."""
    options = [
        "--train",
        "--method",
        "grpo",
        "--trainer",
        "verl",
        "--rollout",
        "colocated",
        "--gpu",
        "h100-sxm",
        "--json",
    ]
    scenario = json.loads(run(capsys, "Qwen/Qwen2.5-3B", *options)[1])["scenario"]
    assert scenario["objective"]["log_probs"] == "in-place"
    engine = scenario["colocation"]
    assert (engine["engine_share"], engine["sleep_level"], engine["bucket_mib"]) == (0.5, 2, 2048)
    assert scenario["layout"]["zero"] == 3
    options[5:5] = ["--sleep-level", "1"]
    assert json.loads(run(capsys, "Qwen/Qwen2.5-3B", *options)[1])["scenario"]["colocation"]["sleep_level"] == 1


def test_a_teacher_is_a_preset_or_a_file(capsys):
    """Of Qwen2.5-14B's 14,770,033,664 weights, in 16 bits, next to Qwen2.5-7B's."""
    options = ["--train", "--method", "gkd,lora", "--gpu", "h200-sxm", "--json"]
    own = json.loads(run(capsys, "Qwen/Qwen2.5-7B", *options)[1])
    other = json.loads(run(capsys, "Qwen/Qwen2.5-7B", *options, "--teacher", "Qwen/Qwen2.5-14B")[1])
    weights = [report["memory"]["weights"] for report in (own, other)]
    assert weights[1] - weights[0] == 2 * (14_770_033_664 - 7_615_616_512)
    assert other["scenario"]["objective"]["teacher"]["parameters"] == 14_770_033_664
    assert "--teacher_model_name_or_path" in other["launches"]["TRL"]["words"]
