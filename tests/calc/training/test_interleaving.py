"""Interleaved pipeline stages: the order of torch's own schedule, run here turn by turn, and the papers' formulas."""

import json
from pathlib import Path

import pytest

from calc import Architecture, ConfigError, TrainingLayout, TrainingWorkload
from calc.hardware.gpus import gpus
from calc.time.training import step_operations, training_speed
from calc.training import TrainingScenario, dot, in_flight, unmodelled
from calc.training.layout import peak_turns, turns
from presets import models
from tests.calc.training import ARCHITECTURES, training

TORCH = json.loads(Path("tests/data/interleaved.json").read_text(encoding="utf-8"))["cases"]
CASES = [pytest.param(case, id="{stages}x{pieces}, {batches}".format(**case)) for case in TORCH]
FORWARD, BACKWARD = 1, 2  # the time of a piece; backward computes two products for each


def actions(case):
    """Of each stage: whether a piece goes backward, and which."""
    return [[(word[0] == "b", int(word[1:])) for word in order.split()] for order in case["orders"]]


def simulated(case):
    """When the last piece is done, where each waits for the one before it, and how many micro-batches of pieces each
    stage has under way at most."""
    stages, last = case["stages"], case["stages"] * case["pieces"] - 1
    orders = [list(order) for order in actions(case)]
    counts = [{} for _ in range(stages)]
    free, most, ends = [0] * stages, [0] * stages, {}
    held = [0] * stages
    while any(orders):
        for stage, order in enumerate(orders):
            while order:
                backward, piece = order[0]
                place, batch = piece * stages + stage, counts[stage].get(order[0], 0)
                if backward:
                    before = (False, place, batch) if place == last else (True, place + 1, batch)
                else:
                    before = (False, place - 1, batch) if place else None
                if before is not None and before not in ends:
                    break
                counts[stage][order.pop(0)] = batch + 1
                free[stage] = max(free[stage], ends.get(before, 0)) + (BACKWARD if backward else FORWARD)
                ends[backward, place, batch] = free[stage]
                held[stage] += -1 if backward else 1
                most[stage] = max(most[stage], held[stage])
    return max(free), most


@pytest.mark.parametrize("case", CASES)
def test_the_order_is_torch_s(case):
    kinds = tuple(range(case["pieces"]))
    for stage, order in enumerate(actions(case)):
        found = turns(case["stages"], kinds, case["batches"], stage)
        assert [(one.backward, one.piece) for one in found] == order


@pytest.mark.parametrize("case", CASES)
def test_what_is_under_way_is_what_a_run_of_the_schedule_holds(case):
    _, most = simulated(case)
    stages, pieces, batches = case["stages"], case["pieces"], case["batches"]
    assert [in_flight(stages, pieces, batches, stage) for stage in range(stages)] == most
    for stage in range(stages):
        found = peak_turns(stages, tuple(range(pieces)), batches, stage)
        assert max(sum(one.waiting) for one in found) + 1 == most[stage]


@pytest.mark.parametrize("case", CASES)
def test_the_bubble_is_that_of_a_run_of_the_schedule(case):
    """(p - 1) / (m v) of the time without it, arXiv:2104.04473 section 2.2.2."""
    stages, pieces, batches = case["stages"], case["pieces"], case["batches"]
    time, _ = simulated(case)
    alone = batches * pieces * (FORWARD + BACKWARD)
    assert (time - alone) / alone == pytest.approx((stages - 1) / (batches * pieces))
    layout = TrainingLayout(pp=stages, vp=pieces)
    work = TrainingWorkload(accumulation=batches, sequence=4096)
    architecture = Architecture.from_config(models()["Qwen/Qwen3-30B-A3B"].config)  # 48 layers
    speed = training_speed(architecture, TrainingScenario(workload=work, layout=layout), gpus()["h100-sxm"])
    rows = {row.what: row.ms for row in step_operations(speed)}
    assert rows.pop("bubble") == pytest.approx((time - alone) / alone * (sum(rows.values()) - rows["update"]))


def test_more_micro_batches_than_come_round_again_change_nothing():
    for stage in range(4):
        assert peak_turns(4, (0, 1, 2), 12, stage) == peak_turns(4, (0, 1, 2), 4000, stage)


@pytest.mark.parametrize(
    ("layers", "pp", "vp", "first", "second"),
    [
        # Megatron-Core 0.16.1, transformer_block.py, get_num_layers_to_build
        pytest.param(8, 2, 4, [0, 2, 4, 6], [1, 3, 5, 7], id="8 layers, 2 stages, 4 chunks"),
        pytest.param(8, 2, 2, [0, 1, 4, 5], [2, 3, 6, 7], id="8 layers, 2 stages, 2 chunks"),
        pytest.param(8, 2, 1, [0, 1, 2, 3], [4, 5, 6, 7], id="8 layers, 2 stages"),
    ],
)
def test_stages_take_turns_in_the_pieces(layers, pp, vp, first, second):
    stages = TrainingLayout(pp=pp, vp=vp).stages(layers)
    assert [[layer for piece in stage for layer in piece] for stage in stages] == [first, second]


def test_llama_405b_leaves_a_layer_s_room_for_the_embedding_and_for_the_loss():
    """126 layers in 64 pieces, with both of account_for_embedding_in_pipeline_split and
    account_for_loss_in_pipeline_split (Megatron-Bridge, llama31_405b)."""
    sizes = [len(piece) for piece in TrainingLayout(pp=8, vp=8).pieces(126)]
    assert sizes == [1, *[2] * 62, 1]


def test_the_embedding_and_the_loss_may_be_pieces_alone():
    """126 layers in 128 pieces (Megatron-Bridge, llama31_405b on GB200 in MXFP8): a layer a piece, the first and the
    last stage one less."""
    layout = TrainingLayout(pp=16, vp=8)
    layout.check(Architecture.from_config(models()["meta-llama/Llama-3.1-405B"].config))
    assert [sum(map(len, stage)) for stage in layout.stages(126)] == [7, *[8] * 14, 7]


def test_three_layers_less_than_divide_are_cut_as_for_kimi_k2():
    """61 layers in 32 pieces: `Et|(tt|)*30L` (Megatron-Bridge, perf_recipes/kimi/h100/kimi_k2.py)."""
    layout = TrainingLayout(pp=16, vp=2, tp=8, dp=8, ep=64)
    layout.check(Architecture.from_config(models()["moonshotai/Kimi-K2.5"].config))
    assert sum(len(piece) == 2 for piece in layout.pieces(61)) == 29


def waiting_layers(step, stage):
    """Layers whose input waits for the backward pass, in micro-batches, at the peak: of 2 bytes an element
    with everything else computed again."""
    built = step.stage(stage, single=True)
    units = step.units(step.work.micro_batch, step.work.sequence)
    most = max(dot(alive.bytes, units) for _, _, alive in built.at_work) - dot(built.during.bytes, units)
    return most / (2 * step.architecture.hidden * step.work.sequence)


@pytest.mark.parametrize(
    ("pp", "vp", "batches"), [(4, 2, 8), (8, 2, 16), (4, 4, 32), (2, 10, 2), (8, 5, 64), (4, 1, 8), (8, 1, 4)]
)
def test_the_first_stage_holds_more_by_the_papers_factor(pp, vp, batches):
    """L (1 + (p - 1) / (p v)) layers' activations, arXiv:2205.05198 section 4.2.3, one of whose pieces is at work; with
    1F1B those of p micro-batches, but not of more than there are. The embedding's input is in no layer."""
    layers = 80
    step = training(
        "meta-llama/Llama-3.1-70B",
        layout=TrainingLayout(pp=pp, vp=vp),
        accumulation=batches,
        recompute="full",
        sequence=4096,
    )
    piece = layers / (pp * vp)
    held = layers * (1 + (pp - 1) / (pp * vp)) if vp > 1 else layers
    assert waiting_layers(step, 0) == pytest.approx(min(held, batches * vp * piece) - piece, rel=1e-3)


def test_pieces_move_layers_and_hold_all_of_them():
    """As many weights on all stages together; and on each, where every piece is as large, as without."""
    plain, interleaved = (
        training("meta-llama/Llama-3.1-70B", layout=TrainingLayout(pp=4, vp=vp), accumulation=8) for vp in (1, 5)
    )
    assert [m.weights for m in plain.by_stage] == [m.weights for m in interleaved.by_stage]
    dense, sparse = (
        training("deepseek-ai/DeepSeek-V3", layout=TrainingLayout(pp=4, vp=vp), accumulation=8) for vp in (1, 4)
    )
    held = [[step.stage(stage, single=True).states.weights for stage in range(4)] for step in (dense, sparse)]
    assert sum(held[0]) == sum(held[1])


PIECES = TrainingLayout(pp=2, vp=2)
MODELLED = {name: one for name, one in ARCHITECTURES.items() if not any(unmodelled(one))}
UNLIKE = [name for name, one in MODELLED.items() if len(one.all_blocks) > 1 and PIECES.cuts_evenly(one)]


@pytest.mark.parametrize("model", UNLIKE)
def test_pieces_of_unlike_layers_hold_the_whole_model(model):
    """Hybrids and shared blocks too: as many weights on both stages together, wherever the layers stand."""
    plain, interleaved = (
        training(model, layout=TrainingLayout(pp=2, vp=vp), accumulation=4, recompute="full") for vp in (1, 2)
    )
    weights, moved = (
        [step.stage(stage, single=True).states.weights for stage in range(2)] for step in (plain, interleaved)
    )
    assert sum(weights) == sum(moved)


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_no_turn_is_above_the_peak(recompute):
    """Of all turns of a schedule only those at which most waits are looked at; in DeepSeek-V3's first pieces stand
    dense layers, in its last the head."""
    step = training("deepseek-ai/DeepSeek-V3", layout=TrainingLayout(pp=4, vp=4), accumulation=16, recompute=recompute)
    units = step.units(1, step.work.sequence)
    for number in range(4):
        stage = step.stage(number, single=True)
        everywhere = []
        for one in turns(4, (0, 1, 2, 3), 16, number):
            beside = dot(stage.during.plus(stage.waiting(one.waiting)).bytes, units)
            here = stage.courses[one.piece]
            ways = here.backward() if one.backward else here.forward()
            everywhere += [
                beside + dot(alive.bytes, units) + dot(top.bytes, units) for _, alive, _, tops in ways for top in tops
            ]
        assert max(peak.size for peak in stage.passes(units)) == max(everywhere)


def test_further_pieces_send_as_often_again():
    """Forward and back a sequence of 4096 in 16 bits over an adapter of 400 Gb/s less 20 % (DGX H100), of which
    tensor-parallel ranks send half each; four fifths hide behind compute."""
    architecture = ARCHITECTURES["meta-llama/Llama-3.1-70B"]
    work = TrainingWorkload(accumulation=16, sequence=4096)

    def sends(vp):
        layout = TrainingLayout(tp=2, pp=8, vp=vp)
        speed = training_speed(architecture, TrainingScenario(workload=work, layout=layout), gpus()["h100-sxm"])
        return {row.what: row.ms for row in step_operations(speed)}.get("sends", 0.0)

    once = 1000 * 2 * 4096 * 8192 * 2 / 2 / 40e9
    assert sends(1) == 0
    assert sends(2) == pytest.approx(16 * 0.2 * once)
    assert sends(5) == pytest.approx(4 * sends(2))


@pytest.mark.parametrize(
    ("model", "layout", "work", "recipe", "field", "nearest"),
    [
        ("Qwen/Qwen3-8B", {"vp": 2}, {}, "master", "vp", [1]),
        ("Qwen/Qwen3-8B", {"pp": 4, "vp": 4}, {"accumulation": 8}, "master", "vp", [3, 9]),  # 36 layers
        ("Qwen/Qwen3-8B", {"pp": 4, "vp": 3}, {"accumulation": 10}, "master", "accumulation", [8, 12]),
        ("Qwen/Qwen3-8B", {"pp": 4, "vp": 3}, {}, "master", "accumulation", [4]),
        ("Qwen/Qwen3-8B", {"pp": 4, "vp": 3}, {"accumulation": 8}, "deepspeed", "vp", [1]),
        ("Qwen/Qwen3-8B", {"pp": 4, "vp": 20}, {"accumulation": 8}, "master", "vp", [9]),
        ("Qwen/Qwen3-8B", {"pp": 4, "vp": 3}, {"optimizer_in_backward": True}, "bf16", "vp", [1]),
        ("deepseek-ai/DeepSeek-V3", {"pp": 4, "vp": 3}, {"accumulation": 8}, "master", "vp", [2, 4]),  # 61 and MTP's
    ],
)
def test_what_an_interleaved_schedule_does_not_take(model, layout, work, recipe, field, nearest):
    """Megatron-LM, arguments.py and schedules.py: more than one stage, pieces of as many layers, micro-batches that the
    stages divide. Each way out is taken."""
    with pytest.raises(ConfigError) as error:
        training(model, recipe, layout=TrainingLayout(**layout), **work)
    assert error.value.field == field
    assert list(error.value.nearest) == nearest
    for value in nearest:
        changed, other = (layout | {field: value}, work) if field == "vp" else (layout, work | {field: value})
        training(model, recipe, layout=TrainingLayout(**changed), **other)
