"""Memory of a training step: outside numbers first, then laws."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import expand, sympify

from benchmarks.accuracy.training import ladder
from calc import (
    RECIPES,
    Architecture,
    ConfigError,
    TrainingLayout,
    TrainingWorkload,
    training_report,
)
from calc.hardware.division import divides
from calc.model.tensor import Tensor
from calc.model.traced import TracedSymbols, formula_of
from calc.training import CountedBy, Training, TrainingScenario, dot, unmodelled
from calc.training.course import Moment, Tensors
from calc.training.states import state_bytes
from presets import models
from tests import load
from tests.calc.training import ARCHITECTURES, training
from tests.cases import in_one_test

SAVED, SMALL = (load(f"{name}.json") for name in ("saved", "saved_small"))


def kept(architecture, work, layout=None, recipe="bf16"):
    """What one layer keeps for its backward pass, all in 16 bits; the last kind of layer that the model has."""
    step = Training(
        architecture, TrainingScenario(workload=work, recipe=RECIPES[recipe], layout=layout or TrainingLayout())
    )
    block = step.rank.blocks[-1]
    saved = step.stage(0, single=work.micro_batch == 1).course.passes.layer(block, first=False).saved
    return dot(saved.bytes, step.units(work.micro_batch, work.sequence))


@in_one_test(
    "row",
    [
        pytest.param(row, id="{model}-{attention}-{micro_batch}x{sequence}-{recompute}-{fused}".format(**row))
        for row in {json.dumps(row): row for row in SAVED}.values()
    ],
)
def test_saved_by_one_layer(row):
    """What autograd saved in the classes of transformers 5.23; DeepSeek's layer is one with experts. GPT-2 was tracked
    on a CPU, where the mask of a dropped element takes two bytes; CUDA's kernel keeps one (native_dropout)."""
    architecture = ARCHITECTURES[row["model"]]
    fields = ("micro_batch", "sequence", "attention", "recompute", "fused")
    work = TrainingWorkload(**{field: row[field] for field in fields})
    ours = kept(architecture, work)
    if "gpt2" in row["model"] and work.recompute == "none":
        scores = 12 * work.sequence if work.attention == "eager" else 0
        ours += (2 * 768 + scores) * work.micro_batch * work.sequence
    assert ours == pytest.approx(row["bytes"], rel=0.001)


@pytest.mark.parametrize(
    "row", [pytest.param(row, id=f"{row['config']['model_type']}-{row['lora_targets'] or 'full'}") for row in SMALL]
)
def test_saved_by_a_layer_of_many_families(row):
    """benchmarks/oracle/track_saved.py: norms in fp32 or without weights, sinks, clamped experts, parallel branches;
    matrices that are trained alone stand there for adapters, whose inner states are narrow with a rank of 1. Ours
    leaves out what shows in small layers only: slices of the rotary table, copies of norms' weights."""
    architecture = Architecture.from_config(row["config"])
    targets = row["lora_targets"]
    method = {"method": "full"} if targets is None else {"method": "lora", "lora_targets": targets, "lora_rank": 1}
    work = TrainingWorkload(sequence=row["sequence"], attention="eager", **method)
    assert kept(architecture, work) == pytest.approx(row["bytes"], rel=0.004)


@pytest.mark.parametrize(
    ("model", "work", "formula"),
    [  # h hidden, S sequence, f intermediate
        ("meta-llama/Llama-3.1-8B", {}, "16*h + 4*n_q*d_head + 4*n_kv*d_head + 4*n_q + 8*f + 8"),
        ("meta-llama/Llama-3.1-8B", {"fused": True}, "8*h + 4*n_q*d_head + 4*n_kv*d_head + 4*n_q + 6*f + 8"),
        (
            "meta-llama/Llama-3.1-8B",
            {"attention": "eager", "sequence": 512},
            "16*h + 8*n_q*d_head + 6*n_q*512 + 8*f + 8",
        ),
        (
            "Qwen/Qwen3-8B",
            {},
            "16*h + 4*n_q*d_head + 4*n_kv*d_head + 4*n_q + 8*f + 8 + 6*(n_q + n_kv)*d_head + 4*(n_q + n_kv)",
        ),
        (
            "Qwen/Qwen3-8B",
            {"fused": True},
            "8*h + 4*n_q*d_head + 4*n_kv*d_head + 4*n_q + 6*f + 8 + 2*(n_q + n_kv)*d_head + 4*(n_q + n_kv)",
        ),
    ],
)
def test_a_layer_keeps_what_a_reader_adds_up(model, work, formula):
    """Bytes a token and layer, as a reader adds them up from the list of saved tensors."""
    symbols, work = TracedSymbols(), TrainingWorkload(**work)
    whole = symbols.apply(ARCHITECTURES[model])
    step = Training(whole, TrainingScenario(workload=work, recipe=RECIPES["bf16"]))
    profile = step.stage(0, single=True).course.passes.layer(step.rank.blocks[-1], first=False)
    saved = Tensors(profile.saved.bytes, profile=profile, event=profile.saved.event)
    units = [*step.units(1, 1)]
    units[CountedBy.SCORE] = work.sequence
    ours = sum(formula_of(dot(nbytes, units)) for nbytes in Moment((), (saved,)).lines.values())
    sizes = {str(one): one for one in ours.free_symbols}
    assert expand(ours - sympify(formula, locals=sizes)) == 0


def measured(memory):
    """What PyTorch's allocator would report: all but the overhead."""
    return memory.total - memory.overhead


def test_korthikanti_sums_up_a_gelu_layer():
    """arXiv:2205.05198 equations 1 and 4: 34 s b h bytes beside the scores, all of it divided by t with sequence
    parallelism; without it (equation 2) 10 + 24 / t."""
    architecture, work = ARCHITECTURES["openai-community/gpt2-xl"], TrainingWorkload(fused=True, sequence=1000)
    hidden, tokens = architecture.hidden, 1000
    small = 4 * 25 + 16  # log-sum-exps of 25 heads, and the statistics of two norms
    assert kept(architecture, work) == tokens * (34 * hidden + small)
    for t in (5, 25):
        parts = kept(architecture, work, TrainingLayout(tp=t), recipe="megatron")
        assert parts == tokens * (34 * hidden // t + 100 // t) + tokens * 16 // t
        unsplit = TrainingLayout(tp=t, sequence_parallel=False)
        assert kept(architecture, work, unsplit) == tokens * (10 * hidden + 24 * hidden // t + 100 // t + 16)


@pytest.mark.parametrize("case", [pytest.param(case, id=case.record["method"]) for case in ladder()])
def test_torchtune_ladder(case):
    assert case.predicted() == pytest.approx(case.measured, rel=0.05)


@pytest.mark.parametrize(
    ("recipe", "zero", "dp", "bytes_a_weight"),
    [
        pytest.param("master", 0, 1, 16, id="ZeRO, arXiv:1910.02054 section 3.1"),
        pytest.param("master", 1, 8, 4 + 12 / 8, id="ZeRO figure 1: P_os"),
        pytest.param("master", 2, 8, 2 + 14 / 8, id="ZeRO figure 1: P_os+g"),
        pytest.param("master", 3, 8, 16 / 8, id="ZeRO figure 1: P_os+g+p"),
        pytest.param("megatron", 0, 1, 18, id="Megatron-LM docs/source/api-guide/dist_optimizer: 18"),
        pytest.param("megatron", 1, 8, 6 + 12 / 8, id="Megatron-LM distributed optimizer: 6 + 12 / d"),
        pytest.param("autocast", 3, 8, 16 / 8, id="FSDP with fp32 shards"),
        pytest.param("bf16", 0, 1, 8, id="all in bf16, torchtune"),
        pytest.param("fp32", 0, 1, 16, id="all in fp32"),
    ],
)
def test_bytes_of_a_weight_and_what_belongs_to_it(recipe, zero, dp, bytes_a_weight):
    """At the end of the backward pass; with ZeRO-3 without the layers that are gathered."""
    model = "meta-llama/Llama-3.1-8B"
    states = training(model, recipe, layout=TrainingLayout(dp=dp, zero=zero)).stage(0, single=True).states
    nbytes = states.weights + states.master + states.gradients + states.optimizer
    assert nbytes / ARCHITECTURES[model].parameters().total == pytest.approx(bytes_a_weight, rel=1e-6)


def test_deepspeed_copies_all_gradients_at_its_step():
    """runtime/zero/stage_1_and_2.py: they are flattened in 16 bits, then cast: 16 bytes a weight, 2 and 4 more."""
    model = "meta-llama/Llama-3.1-8B"
    memory = training(model, "deepspeed", recompute="full", sequence=128).memory()
    assert memory.moment == "optimizer"
    assert measured(memory) == 22 * ARCHITECTURES[model].parameters().total


@pytest.mark.parametrize(
    ("optimizer", "nbytes"),
    [
        ("adamw", 2 * 4 * 1024 * 4096),
        ("adamw-8bit", 2 * 1024 * 4096 * (1 + 4 / 256)),  # arXiv:2110.02861: blocks, here of 256, share an fp32 scale
        ("adafactor", 4 * (1024 + 4096)),  # arXiv:1804.04235: n + m instead of n m
        ("muon", 4 * 1024 * 4096),
        ("sgd-momentum", 4 * 1024 * 4096),
        ("sgd", 0),
    ],
)
def test_state_of_a_matrix(optimizer, nbytes):
    assert state_bytes(optimizer, Tensor("x.weight", (1024, 4096), "mlp", (0,)), 4) == nbytes


def test_bitsandbytes_leaves_the_embedding_in_32_bits():
    """transformers 5.23, trainer.py, create_optimizer: every nn.Embedding gets optim_bits 32; torchao knows no such."""
    table = Tensor("embed_tokens.weight", (32_000, 4096), "embedding", ())
    assert state_bytes("adamw-8bit", table, 2) == 8 * table.numel
    assert state_bytes("adamw-8bit-ao", table, 2) == 2 * table.numel * (1 + 4 / 256)


@pytest.mark.parametrize("optimizer", ["adamw", "adamw-8bit", "adafactor", "muon"])
def test_small_tensors_have_full_states(optimizer):
    one = 1 if optimizer == "adafactor" else 2
    assert state_bytes(optimizer, Tensor("norm.weight", (1024,), "norms", (0,)), 4) == one * 4 * 1024


@pytest.mark.parametrize(
    ("model", "rank", "targets", "trained"),
    [
        pytest.param("meta-llama/Llama-2-7b-hf", 8, "qv", 4_194_304, id="litgpt tutorials/resource-tables.md"),
        pytest.param("microsoft/phi-1_5", 8, "qv", 1_572_864, id="litgpt tutorials/resource-tables.md, phi"),
        pytest.param("meta-llama/Llama-3.2-1B", 16, "all", 11_272_192, id="unsloth notebook Llama3.2 (1B) RAFT"),
        pytest.param("Qwen/Qwen2.5-7B", 16, "all", 40_370_176, id="unsloth notebook CodeForces-cot"),
        pytest.param("Qwen/Qwen3-14B", 16, "all", 64_225_280, id="unsloth notebook Qwen3 (14B) Alpaca"),
        pytest.param("Qwen/Qwen3-32B", 32, "all", 268_435_456, id="unsloth notebook Qwen3 (32B)"),
    ],
)
def test_adapters(model, rank, targets, trained):
    assert training(model, method="lora", lora_rank=rank, lora_targets=targets).trained_parameters() == trained


def test_first_stage_holds_as_many_micro_batches_as_there_are_stages():
    """1F1B, arXiv:2104.04473 section 2.2: with p stages the first holds activations of p, that is of all L layers."""
    model = "meta-llama/Llama-3.1-8B"
    step = training(model, layout=TrainingLayout(pp=4), accumulation=8)
    whole = ARCHITECTURES[model]
    assert step.memory().moment == "backward"
    assert step.memory().activations >= 32 * kept(whole, step.work)
    alone = training(model, layout=TrainingLayout(pp=4)).memory()  # a single micro-batch is in one stage at a time
    assert alone.activations < step.memory().activations // 3


STEPS = st.fixed_dictionaries(
    {
        "model": st.sampled_from([name for name, model in ARCHITECTURES.items() if not any(unmodelled(model))]),
        "recipe": st.sampled_from(list(RECIPES)),
        "micro_batch": st.integers(1, 64),
        "sequence": st.integers(1, 100_000),
        "accumulation": st.integers(1, 8),
        "method": st.sampled_from(["full", "lora", "qlora", "pretrain"]),
        "optimizer": st.sampled_from(["adamw", "adamw-8bit", "adamw-8bit-ao", "adafactor", "muon", "sgd"]),
        "recompute": st.sampled_from(["none", "selective", "full"]),
        "attention": st.sampled_from(["flash", "eager"]),
        "loss": st.sampled_from(["whole", "chunked", "fused"]),
        "fused": st.booleans(),
        "offload_activations": st.booleans(),
    }
)
LAYOUTS = st.builds(
    TrainingLayout,
    tp=st.sampled_from([1, 2, 4]),
    pp=st.integers(1, 6),
    dp=st.sampled_from([1, 2, 8]),
    cp=st.sampled_from([1, 2]),
    zero=st.sampled_from([0, 1, 2, 3]),
)


@pytest.mark.slow
@given(STEPS, LAYOUTS)
@settings(deadline=None)
def test_parts_add_up_and_more_never_costs_less(step, layout):
    layout = layout.model_copy(update={"pp": min(layout.pp, ARCHITECTURES[step["model"]].num_layers)})
    try:
        here = training(**step, layout=layout)
    except ConfigError as error:
        assert error.field == "tp"
        assert not divides(ARCHITECTURES[step["model"]], layout.tp)
        return
    m = here.memory()
    assert (
        measured(m)
        == m.weights + m.master_weights + m.gradients + m.optimizer + m.activations + m.logits + m.temporaries
    )
    assert 0 < m.overhead_low <= m.overhead <= m.overhead_high
    more = [{"micro_batch": step["micro_batch"] + 1}, {"sequence": step["sequence"] + 1}]
    assert all(here.memory(**change).total >= m.total for change in more)
    if not step["offload_activations"]:
        less = training(**step | {"offload_activations": True}, layout=layout).memory()
        assert less.total <= m.total


@pytest.mark.slow
@given(STEPS, LAYOUTS, st.sampled_from([("zero", 1), ("zero", 2), ("dp", 16), ("accumulation", 1)]))
@settings(deadline=None)
def test_what_is_meant_to_save_memory_saves_memory(step, layout, change):
    layout = layout.model_copy(
        update={"pp": min(layout.pp, ARCHITECTURES[step["model"]].num_layers), "zero": 0, "tp": 1}
    )
    field, value = change
    before = training(**step, layout=layout).memory()
    if field == "accumulation":
        after = training(**step | {field: value}, layout=layout).memory()
    else:
        after = training(**step, layout=layout.model_copy(update={field: value})).memory()
    assert after.total <= before.total + (before.overhead_high if field == "dp" else 0)


def test_the_first_stage_holds_most_micro_batches():
    """1F1B, arXiv:2104.04473 section 2.2: stage i keeps p - i of them; the most loaded stage is the answer."""
    layout, work = TrainingLayout(pp=4), TrainingWorkload(accumulation=8)
    whole = training_report(models()["meta-llama/Llama-3.1-8B"].config, workload=work, layout=layout, gpus=[])
    kept = [stage.activations for stage in whole.stages]
    assert len(kept) == 4
    assert kept == sorted(kept, reverse=True)
    assert whole.memory == max(whole.stages, key=lambda memory: memory.total)


@pytest.mark.parametrize(
    ("model", "work", "recipe", "weights", "total"),
    [
        pytest.param(
            "meta-llama/Llama-3.1-8B",
            {},
            "bf16",
            16_060_522_496,
            3 * 16_060_522_496,
            id="model.safetensors.index.json, total_size; both moments in bf16",
        ),
        pytest.param("Qwen/Qwen3-8B", {}, "master", 16_381_470_720, 7 * 16_381_470_720, id="ZeRO: 14 bytes a weight"),
        pytest.param(
            "meta-llama/Llama-3.2-1B",
            {"method": "lora", "fp32_adapters": True},
            "bf16-autocast",
            4 * 11_272_192,
            12 * 11_272_192,
            id="adapters alone, as PEFT has them",
        ),
    ],
)
def test_a_checkpoint_on_disk(model, work, recipe, weights, total):
    report = training_report(models()[model].config, workload=TrainingWorkload(**work), recipe=RECIPES[recipe], gpus=[])
    assert (report.on_disk.weights, report.on_disk.total) == (weights, total)


def test_a_step_is_of_all_micro_batches_and_replicas():
    """2 sequences a micro-batch, 4 of them, on 8 replicas: the number of tokens that Megatron's --global-batch-size of
    64 stands for."""
    report = training_report(
        models()["Qwen/Qwen2.5-0.5B"].config,
        workload=TrainingWorkload(micro_batch=2, accumulation=4, sequence=1000),
        layout=TrainingLayout(dp=8, cp=2),
        gpus=[],
    )
    assert (report.global_batch, report.tokens) == (64, 64_000)
