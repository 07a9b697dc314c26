"""Laws of a training step, and the FLOPs of its MFU."""

import pytest

from calc import Architecture
from calc.hardware.gpus import gpus
from calc.time.training import TrainingSpeed, step_operations, training_speed
from calc.training import TrainingLayout, TrainingScenario, TrainingWorkload
from presets import models


def run(layout=None, model="meta-llama/Llama-3.1-8B", gpu="h100-sxm", **work) -> TrainingSpeed:
    asked = TrainingWorkload(**{"micro_batch": 1, "sequence": 4096, **work})
    layout = layout or TrainingLayout(dp=8, zero=3)
    architecture = Architecture.from_config(models()[model].config)
    return training_speed(architecture, TrainingScenario(workload=asked, layout=layout), gpus()[gpu])


def test_model_flops_are_six_a_weight_and_all_pairs():
    found = run().model_flops()
    weights = 8_030_261_248 - 128_256 * 4096 - 65 * 4096  # without embedding and norms
    assert found == 6 * weights + 3 * 4 * 32 * 32 * 128 * 4096
    assert run(method="lora").model_flops() == 4 * weights + 3 * 4 * 32 * 32 * 128 * 4096  # frozen: no gradient


@pytest.mark.parametrize("more", [{"recompute": "full"}, {"recompute": "alternate"}])
def test_recomputation_takes_time_and_leaves_model_flops(more):
    assert run(**more).seconds("expected") > run().seconds("expected")
    assert run(**more).model_flops() == run().model_flops()


def test_a_pipeline_bubble_shrinks_with_more_micro_batches():
    pipeline = TrainingLayout(pp=4)
    few, many = (run(pipeline, accumulation=n) for n in (4, 32))
    passes = [speed.seconds("expected") - speed.optimizer("expected") for speed in (few, many)]
    assert passes[1] / passes[0] == pytest.approx((32 + 3) / (4 + 3))
    assert many.rate(many.seconds("expected")) > few.rate(few.seconds("expected"))


@pytest.mark.parametrize(
    ("layout", "work"),
    [
        pytest.param(TrainingLayout(), {}, id="one"),
        pytest.param(TrainingLayout(dp=256, zero=3), {"recompute": "full"}, id="fsdp"),
        pytest.param(TrainingLayout(tp=2, pp=4, dp=4, zero=1), {"accumulation": 8, "recompute": "selective"}, id="3d"),
        pytest.param(TrainingLayout(pp=4, vp=4, dp=4, zero=3), {"accumulation": 8}, id="interleaved"),
    ],
)
def test_the_kinds_of_work_add_up_to_the_step(layout, work):
    speed = run(layout, **work)
    rows = step_operations(speed)
    assert sum(row.ms for row in rows) == pytest.approx(1000 * speed.seconds("expected"), rel=1e-12)
    for row in rows:
        parts = row.forward_ms + row.backward_ms + row.recomputed_ms
        assert row.what in ("bubble", "exchange", "sends", "update") or parts == pytest.approx(row.ms)
        assert max(row.compute_ms, row.memory_ms) <= row.ms * (1 + 1e-12)


def test_the_bubble_is_its_published_share_of_the_ideal_time():
    """(p - 1) / m, arXiv:2104.04473 section 2.2.1: 3 / 8."""
    speed = run(TrainingLayout(pp=4), accumulation=8)
    rows = {row.what: row.ms for row in step_operations(speed)}
    assert rows.pop("bubble") == pytest.approx(3 / 8 * (sum(rows.values()) - rows["update"]))


def test_backward_is_two_products_and_full_recomputation_one_more_forward_pass():
    (products,) = (row for row in step_operations(run(recompute="full")) if row.what == "mlp")
    assert products.backward_ms == pytest.approx(2 * products.forward_ms)
    assert products.recomputed_ms == pytest.approx(products.forward_ms)


def test_frozen_weights_send_as_much_within_layers():
    """Two all-reduces a layer forward and two backward, arXiv:1909.08053 section 3, whatever is trained."""
    sent = [
        next(row.ms for row in step_operations(run(TrainingLayout(tp=2), method=method)) if row.what == "communication")
        for method in ("full", "lora")
    ]
    assert sent[0] == pytest.approx(sent[1])


def test_replicas_over_a_network_are_slower():
    node, network = (run(TrainingLayout(dp=dp, zero=3)) for dp in (8, 256))
    assert network.rate(network.seconds("slow")) < node.rate(node.seconds("slow"))


def test_lora_computes_no_gradients_of_frozen_weights():
    assert run(method="lora").seconds("expected") < run().seconds("expected")


def test_tokens_money_and_energy_of_a_campaign():
    speed = run()
    found = speed.campaign(1e12, watts=700, usd_per_hour=2.5)
    days = found.days.expected
    assert days == pytest.approx(1e12 / (8 * speed.rate(speed.seconds("expected"))) / 86_400)
    assert found.cost is not None
    assert found.cost.expected == pytest.approx(days * 24 * 8 * 2.5)
    assert found.energy_mwh is not None
    assert found.energy_mwh.expected == pytest.approx(days * 24 * 8 * 700 / 1e6)
    assert speed.campaign(1e12).cost is None


def test_mfu_lies_between_nothing_and_all():
    mfu = run().time().mfu
    assert 0.1 < mfu.low < mfu.expected < mfu.high < 1


def test_replicas_of_an_expert_have_an_adapter_each():
    """36 layers x 128 experts x 3 x 2880 x 2880 weights and 3 biases, over 8 ranks; 8 replicas, one a node, pass on 7/8
    of gradients and weights in 16 bits at 40 GB/s (400 Gb/s less 20 %, DGX B200's adapters)."""
    speed = run(TrainingLayout(dp=64, ep=8, zero=1), "openai/gpt-oss-120b", "b200")
    routed, rest = speed.weights(speed.demands[0])
    assert routed.elements == pytest.approx(36 * 128 * (3 * 2880 * 2880 + 3 * 2880) / 8)
    each, once = speed.between_replicas("expected")
    assert each == 0
    others = 4 * 63 / 64 * rest.elements / (8 * 40e9)  # on all 64 GPUs: the 8 of a node pass on an eighth each
    assert once == pytest.approx(4 * 7 / 8 * routed.elements / 40e9 + others)
    assert rest.elements + 8 * routed.elements == pytest.approx(116.83e9, rel=0.01)


def test_expert_parallel_ranks_read_their_own_experts_only():
    """Of so few tokens the weights are what takes time."""
    few = {"model": "deepseek-ai/DeepSeek-V3", "gpu": "gb300", "sequence": 256}
    whole, spread = (
        next(row.memory_ms for row in step_operations(run(layout, **few)) if row.what == "experts_routed")
        for layout in (TrainingLayout(dp=64, zero=1), TrainingLayout(dp=64, ep=64, zero=1))
    )
    assert whole / spread > 16


def test_short_micro_batches_wait_for_the_host():
    """Megatron-Bridge's 25.11 records: Qwen3-30B-A3B takes 0.44 s for 4,096 tokens on a B200, 0.69 s for 16,384 on a
    GB200, which is no faster by its peaks."""
    layout = TrainingLayout(dp=8, ep=8, zero=1)
    one, two = (
        run(layout, "Qwen/Qwen3-30B-A3B", "b200", sequence=length).seconds("expected") for length in (1024, 2048)
    )
    assert two < 1.1 * one
    kinds = {row.what: row for row in step_operations(run(layout, "Qwen/Qwen3-30B-A3B", "b200", sequence=1024))}
    assert kinds["host"].bound == "host"
