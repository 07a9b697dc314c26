"""Each phase of a step beside torch's own accounts: whole steps of nine models, every storage tracked; and the
derivation of each part."""

import pytest
from sympy import ceiling, floor, sympify

from benchmarks.accuracy.steps import configs, load, name_of, training
from calc import Architecture, Overhead, Precision, TrainingLayout, TrainingWorkload, training_report
from calc.training import PHASES, RECIPES, TRAINERS, phase_steps
from calc.training.course import alternate_bytes
from presets import models
from tests.cases import in_one_test

MODELS = {name: Architecture.from_config(config) for name, config in configs().items()}
ROWS = load("train_steps.json")


def way_of(row):
    """How a step of another family is run, where it differs from the plainest way."""
    how = f"LoRA {row.get('quantized', '')}".strip() if row["lora"] else "full"
    told = [row["impl"], row["recipe"], how, row["checkpointing"], *(["dropout"] if row.get("dropout") else [])]
    told += [f"{name} {row[name]}" for name in ("ranks", "tensor", "accumulation") if name in row]
    return "-".join(told)


@in_one_test("row", [pytest.param(row, id=name_of(row)) for row in ROWS])
def test_every_phase_of_a_tracked_step(row):
    """torch rounds each storage up to 512 bytes, and clipping takes some 100 kB; nothing else is left out."""
    step = training(row, MODELS[row["model"]])
    ours = {phase: sum(part.bytes for part in parts) for phase, parts in step.phases().items()}
    assert ours == pytest.approx(row["phases"], rel=0.001)
    assert max(ours.values()) == pytest.approx(row["peak"], rel=0.0005)
    assert step.trained_parameters() == row.get("trained", step.trained_parameters())


def test_every_phase_is_there():
    assert {phase for row in ROWS for phase in row["phases"]} == set(PHASES) - {"reference"}  # which has rl_steps.json


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "work", "recipe", "layout"),
    [
        pytest.param("Qwen/Qwen3-8B", {}, "bf16", {}, id="full"),
        pytest.param("Qwen/Qwen3-8B", {"attention": "eager", "micro_batch": 2}, "autocast", {}, id="eager"),
        pytest.param("meta-llama/Llama-3.1-8B", {"method": "lora", "recompute": "full"}, "bf16", {}, id="lora"),
        pytest.param("meta-llama/Llama-3.1-8B", {}, "autocast", {"dp": 8, "zero": 3}, id="FSDP"),
        pytest.param("Qwen/Qwen3-30B-A3B", {"fused": True}, "megatron", {"tp": 4, "dp": 2, "ep": 2}, id="experts"),
        pytest.param("deepseek-ai/DeepSeek-V3", {"accumulation": 4}, "master", {"pp": 4, "zero": 1, "dp": 8}, id="mla"),
        pytest.param("openai/gpt-oss-20b", {"loss": "chunked"}, "bf16", {}, id="sinks"),
        pytest.param("Qwen/Qwen3.5-9B", {"loss": "fused", "sequence": 100}, "bf16", {}, id="linear attention"),
    ],
)
def test_each_part_is_its_formula(model, work, recipe, layout):
    """The values that stand in a formula give the bytes, and the lines of the peak sum to all but the overhead."""
    config = models()[model].config
    report = training_report(
        config, workload=TrainingWorkload(**work), recipe=RECIPES[recipe], layout=TrainingLayout(**layout), gpus=[]
    )
    for phase, peak in report.phases.items():
        steps, legend = phase_steps(Architecture.from_config(config), report.scenario, phase)
        assert [(str(step.what), step.result) for step in steps] == [(str(t.name), t.bytes) for t in peak.tensors]
        for step in steps:
            assert worth(step.values) == step.result
        assert sum(step.result for step in steps) == peak.memory.total - peak.memory.overhead
        assert legend
    assert max(report.phases.values(), key=lambda one: one.memory.total).memory == report.memory


def worth(values):
    """What an expression with ⌊⌋ and ⌈⌉ comes to."""
    text = str(values).replace("·", "*").replace("−", "-").replace("⌊", "floor(").replace("⌈", "ceil(")
    text = text.replace("⌋", ")").replace("⌉", ")")
    return sympify(text, locals={"floor": floor, "ceil": ceiling})


@pytest.mark.parametrize(
    ("trainer", "bytes_a_weight"),
    [
        pytest.param("transformers", 2 + 4, id="transformers: bf16 weights and moments"),
        pytest.param("trl", 4 + 8, id="TRL: create_model_from_path loads in float32"),
        pytest.param("axolotl", 2 + 4, id="Axolotl: torch_dtype bf16 where bf16 is auto"),
        pytest.param("torchtitan", (4 + 8) / 8, id="torchtitan: fp32 shards and moments over 8"),
        pytest.param("torchtune", 2 + 4, id="torchtune: bf16 weights and moments"),
        pytest.param("megatron", 6 + 12, id="Megatron-LM docs/source/api-guide/dist_optimizer: 18"),
        pytest.param("fsdp2", (4 + 8) / 8, id="FSDP2: fp32 shards and moments over 8"),
        pytest.param("deepspeed", 2 + 14 / 8, id="ZeRO figure 1, arXiv:1910.02054: P_os+g over 8"),
    ],
)
def test_what_a_trainer_keeps_between_steps(trainer, bytes_a_weight):
    chosen = TRAINERS[trainer]
    sharded = TrainingLayout(**chosen.layout, dp=8 if "zero" in chosen.layout else 1)
    report = training_report(
        models()["meta-llama/Llama-3.1-8B"].config,
        workload=TrainingWorkload(**chosen.workload),
        recipe=RECIPES[chosen.recipe],
        layout=sharded,
        gpus=[],
    )
    kept = report.phases["after_step"].memory
    per_weight = (kept.total - kept.overhead) / report.parameters.total
    assert per_weight == pytest.approx(bytes_a_weight, rel=1e-6)


@pytest.mark.parametrize(
    ("trainer", "base", "adapters"),
    [
        pytest.param("transformers", 2, 4, id="transformers: the checkpoint's type; PEFT's fp32 adapters"),
        pytest.param("trl", 4, 4, id="TRL: create_model_from_path loads in float32"),
        pytest.param("torchtune", 2, 2, id="torchtune: all in bf16"),
    ],
)
def test_how_a_trainer_stores_lora(trainer, base, adapters):
    """Rank 16 beside every matrix of Llama 3.1 8B: 41,943,040 (unsloth's notebooks), with two moments each."""
    chosen = TRAINERS[trainer].of("lora")
    report = training_report(
        models()["meta-llama/Llama-3.1-8B"].config,
        workload=TrainingWorkload(**chosen.workload | {"method": "lora"}),
        recipe=RECIPES[chosen.recipe],
        frozen=Precision(weights=chosen.base or "bf16"),
        gpus=[],
    )
    assert report.trained_parameters == 41_943_040
    kept = report.phases["after_step"].memory
    assert kept.total - kept.overhead == base * report.parameters.total + 3 * adapters * 41_943_040


LLAMA = {"embedding": 128_256 * 4096, "parameters": 8_030_261_248}  # Llama 3.1 8B


@pytest.mark.parametrize(
    ("loss", "recompute", "zero", "phase", "name", "nbytes"),
    [
        pytest.param("tiled", "full", 0, "loss", "logits of a tile", 4096 * 32_768 * 2, id="TRL: TOKEN_CHUNK_SIZE"),
        pytest.param("stepwise", "none", 0, "loss", "logits", 2048 // 8 * 128_256 * 2, id="torchtitan: num_chunks 8"),
        pytest.param("whole", "none", 2, "loss", "buckets that gradients are reduced in", 2 * 5 * 10**8, id="ZeRO-2"),
        pytest.param("whole", "none", 3, "loss", "buckets that gradients are reduced in", 4 * 5 * 10**8, id="ZeRO-3"),
        pytest.param(
            "whole",
            "none",
            2,
            "loss",
            "gradients of this micro-batch",
            2 * LLAMA["parameters"] // 8,
            id="ZeRO-2: copy_grads_in_partition",
        ),
        pytest.param(
            "whole", "none", 3, "loss", "gathered weights", 2 * (LLAMA["embedding"] + 5 * 10**7), id="head and prefetch"
        ),
        pytest.param(
            "whole",
            "none",
            3,
            "optimizer",
            "gradients",
            2 * LLAMA["parameters"] // 8 + 6 * 10**9,
            id="ZeRO-3: sub_group_size",
        ),
    ],
)
def test_buffers_that_a_trainers_source_states(loss, recompute, zero, phase, name, nbytes):
    """TRL 1.16, torchtitan 0.3 and DeepSpeed 0.19.8, as calc/training names the files."""
    report = training_report(
        models()["meta-llama/Llama-3.1-8B"].config,
        workload=TrainingWorkload(sequence=2048, recompute=recompute, loss=loss, accumulation=2 if zero == 2 else 1),
        recipe=RECIPES["deepspeed" if zero else "bf16"],
        layout=TrainingLayout(dp=8 if zero else 1, zero=zero),
        gpus=[],
    )
    sizes = {str(tensor.name): tensor.bytes for tensor in report.phases[phase].tensors}
    assert sizes[name] == nbytes


def test_deepspeed_gathers_nothing_on_one_gpu():
    """DeepSpeed 0.19.8, partition_parameters.py, _no_gather_coalesced: views of what it holds."""
    report = training_report(
        models()["meta-llama/Llama-3.1-8B"].config,
        workload=TrainingWorkload(sequence=2048),
        recipe=RECIPES["deepspeed"],
        layout=TrainingLayout(zero=3),
        gpus=[],
    )
    names = {str(tensor.name) for phase in report.phases.values() for tensor in phase.tensors}
    assert "gathered weights" not in names


SHORT = {"sequence": 64, "checkpointing": "nonreentrant", "recipe": "autocast", "optimizer": "adamw-foreach"}
TRACKED = (
    pytest.param(
        "Qwen/Qwen3-8B",
        SHORT | {"ranks": 8},
        {
            "after_init": 12_286_201_344,
            "forward": 15_180_861_952,
            "loss": 14_893_783_552,
            "backward": 20_115_563_008,
            "optimizer": 20_476_982_784,
            "after_step": 12_286_201_344,
        },
        id="FSDP2, the embedding its own unit",
    ),
    pytest.param(
        "microsoft/phi-4",
        SHORT | {"sequence": 512, "ranks": 8, "reduce": "bfloat16", "accumulation": 2},
        {
            "after_init": 21_989_265_920,
            "forward": 32_271_068_160,
            "loss": 32_119_011_840,
            "backward": 32_669_558_784,
            "optimizer": 36_648_773_120,
            "after_step": 21_989_265_920,
        },
        id="FSDP2, the embedding its own unit, reduced in bf16, two micro-batches",
    ),
    pytest.param(
        "mistralai/Mixtral-8x7B-v0.1",
        SHORT | {"sequence": 2048, "recipe": "bf16", "optimizer": "adafactor"},
        {
            "after_init": 93_463_482_880,
            "forward": 94_538_470_912,
            "loss": 94_723_913_728,
            "backward": 187_036_212_224,
            "optimizer": 201_902_648_832,
            "after_step": 93_463_482_880,
        },
        id="Adafactor on stacked experts",
    ),
)


@pytest.mark.parametrize(("model", "how", "tracked"), TRACKED)
def test_every_phase_of_other_models(model, how, tracked):
    """python -m benchmarks.oracle.track_steps with these options, separate_embedding=true."""
    row = {"micro_batch": 1, "accumulation": 1, "impl": "flash", "loss": "hf", "keep_outputs": False} | how
    row |= {"reduce": "float32", "reshard": True, "separate_embedding": True} | how
    step = training(row, Architecture.from_config(models()[model].config))
    ours = {phase: sum(part.bytes for part in parts) for phase, parts in step.phases().items()}
    assert ours == pytest.approx(tracked, rel=0.001)


@pytest.mark.parametrize(
    ("recompute", "tracked"),
    [
        pytest.param(
            "none", {"forward": 2_271_529_472, "loss": 3_055_389_184, "backward": 3_186_794_496}, id="all is kept"
        ),
        pytest.param("full", {"forward": 1_642_101_248, "loss": 2_425_960_960}, id="checkpointing"),
    ],
)
def test_tensor_parallelism_by_dtensor(recompute, tracked):
    """python -m benchmarks.oracle.track_steps with four layers of Llama 3.1 8B, tensor=8 micro_batch=2 sequence=2048
    [checkpointing=nonreentrant]. The checkpointed step peaks as the embedding goes back, where DTensor makes a gradient
    of the whole table on each rank, which is not counted."""
    config = models()["meta-llama/Llama-3.1-8B"].config | {"num_hidden_layers": 4}
    work = TrainingWorkload(micro_batch=2, sequence=2048, recompute=recompute, optimizer_kernel="fused")
    report = training_report(
        config, workload=work, recipe=RECIPES["bf16"], layout=TrainingLayout(tp=8), overhead=Overhead(), gpus=[]
    )
    ours = {phase: sum(part.bytes for part in report.phases[phase].tensors) for phase in tracked}
    assert ours == pytest.approx(tracked, rel=0.002)


@pytest.mark.parametrize(("compiled", "columns"), [(False, 27_648), (True, 23_552)])
def test_what_torchtitan_keeps_of_a_layer(compiled, columns):
    """Of Llama 3.1 8B's seven products in order the first, third, fifth and seventh, and attention's output with an
    fp32 log-sum-exp for each of 32 heads. torch 2.13, asked what it saves of a compiled gated feed-forward so
    checkpointed (saved_tensors_hooks), leaves out the last, which is only added."""
    (block,) = MODELS["Llama-3.1-8B"].blocks
    assert alternate_bytes(block, 4096, 2, compiled=compiled, sends=False) == 2 * columns + 4 * 32


@pytest.mark.parametrize(
    ("model", "shared", "hidden", "heads", "attention"),
    [
        pytest.param("Qwen/Qwen3-30B-A3B", 0, 2048, 32, 4096 + 4096 + 512, id="no shared expert"),
        # the shared expert goes on after four of attention: its gate is the fifth, its down the seventh
        pytest.param(
            "meta-llama/Llama-4-Scout-17B-16E-Instruct", 8192 + 5120, 5120, 40, 5120 + 5120 + 1024, id="a shared expert"
        ),
    ],
)
def test_what_torchtitan_keeps_of_experts(model, shared, hidden, heads, attention):
    """`SelectiveAC` of torchtitan b5bcd76: of mm every other, the router's aside; `topk` whole, fp32 scores and 64-bit
    places; all-to-all twice with expert parallelism; no `_grouped_mm`, which torch's list of operations lacks."""
    architecture = Architecture.from_config(models()[model].config)
    block = architecture.all_blocks[0]
    kept = 2 * (attention + shared) + 4 * heads + 12 * block.moe.top_k
    assert alternate_bytes(block, hidden, 2, compiled=False, sends=False) == kept
    sent = kept + 2 * 2 * block.moe.top_k * hidden
    assert alternate_bytes(block, hidden, 2, compiled=False, sends=True) == sent


@pytest.mark.slow
@in_one_test(
    ("config", "row"),
    [
        pytest.param(family["config"], row, id=f"{family['config']['model_type']}-{way_of(row)}")
        for family in load("family_steps.json")
        for row in family["steps"]
    ],
)
def test_every_phase_in_other_families(config, row):
    """benchmarks/oracle/track_steps.py: four layers of a preset of each family. What comes beside weights and states is
    compared too, for in few layers these would hide it."""
    tracked = row["phases"]
    asked = {"accumulation": 1, "loss": "hf", "keep_outputs": False} | row
    lora = {"r": row["lora"], "targets": "all", "fp32_adapters": True}
    lora |= {name: row[name] for name in ("dropout", "quantized") if row.get(name)}
    step = training(asked | {"lora": lora if row["lora"] else None}, Architecture.from_config(config))
    phases = step.phases()
    ours = {phase: sum(part.bytes for part in phases[phase]) for phase in tracked}
    assert ours == pytest.approx(tracked, rel=0.005)
    for phase in ("forward", "loss", "backward"):
        beside = ours[phase] - ours["after_init"]
        assert beside == pytest.approx(tracked[phase] - tracked["after_init"], rel=0.01), phase
