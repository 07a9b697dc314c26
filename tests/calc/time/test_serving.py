"""Laws of serving times: what more work costs, and what a faster machine saves."""

from collections.abc import Iterator

import numpy as np
import pytest

from benchmarks.accuracy.full_server import mixed
from benchmarks.accuracy.speed_cases import speed_of
from calc import Architecture, Layout, Precision, Workload
from calc.hardware.custom_gpu import custom_gpu
from calc.hardware.gpus import gpus
from calc.hardware.overhead import Overhead
from calc.serving.engines import ENGINES
from calc.serving.engines.sglang.engine import SGLang
from calc.serving.engines.sglang.options import SGLangOptions
from calc.serving.engines.tensorrt_llm.engine import TensorRTLLM
from calc.serving.engines.vllm.engine import VLLM
from calc.serving.memory import Serving
from calc.time.cluster import USUAL
from calc.time.efficiency import Conditions, efficiency, rows
from calc.time.estimate import ENDS, Estimate
from calc.time.operations import Forward, PassPart, decode, prefill
from calc.time.report import time_report
from calc.time.roofline import product_dtype
from calc.time.serving import FullServer, Speed, accepted_tokens, speed_on
from presets import models


def speed(model="meta-llama/Llama-3.1-8B", gpu="h100-sxm", layout=None, weights="bf16", engine="vllm", **more) -> Speed:
    architecture, layout = Architecture.from_config(models()[model].config), layout or Layout()
    found = gpus()[gpu] if isinstance(gpu, str) else gpu
    rank = layout.rank(architecture)
    stages = tuple(ENGINES["vllm"]().stages(architecture.num_layers, layout.pp))
    return speed_of(architecture, rank, stages, Precision(weights=weights), layout, found, engine, **more)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("model", ["meta-llama/Llama-3.1-8B", "Qwen/Qwen3-30B-A3B", "google/gemma-3-27b-it"])
def test_more_never_takes_less(model, end):
    run = speed(model)
    by_batch = [run.step(batch, 4096, end) for batch in (1, 2, 8, 64, 512)]
    by_context = [run.step(8, context, end) for context in (128, 1024, 8192, 65_536)]
    by_prompt = [run.prompt(1, prompt, end) for prompt in (64, 512, 4096, 32_768)]
    for times in (by_batch, by_context, by_prompt):
        assert times == sorted(times)


def test_the_ends_stand_in_order():
    run = speed()
    fast, expected, slow = (run.step(4, 4096, end) for end in ENDS)
    assert fast < expected < slow


def test_decode_at_batch_1_is_bound_by_bandwidth_and_a_prompt_by_compute():
    run = speed()
    step = {part.what: part for part in run.parts(decode(1, 4096), "expected", decodes=True)}
    prompt = {part.what: part for part in run.parts(prefill(1, 8192), "expected", decodes=False)}
    assert step["mlp"].bound == "bandwidth"
    assert prompt["mlp"].bound == "compute"
    assert step["host"].bound == "host"


def test_fp8_takes_less_time_where_there_are_units_for_it():
    assert speed(weights="fp8").prompt(1, 8192, "expected") < 0.8 * speed().prompt(1, 8192, "expected")
    ampere = [speed(gpu="a100-sxm-80gb", weights=form).prompt(1, 8192, "expected") for form in ("fp8", "bf16")]
    assert ampere[0] == pytest.approx(ampere[1], rel=0.02)


@pytest.mark.parametrize(
    ("weights", "gpu", "dtype"),
    [
        ("fp8", "h100-sxm", "fp8"),
        ("fp8", "a100-sxm-80gb", "bf16"),
        ("int4", "h100-sxm", "bf16"),
        ("nvfp4", "b200", "fp4"),
        ("nvfp4", "h100-sxm", "bf16"),
        ("bf16", "v100-sxm2-32gb", "fp16"),
        ("bf16", "p40", "fp32"),
        ("int8", "rtx-4090", "int8"),
    ],
)
def test_what_a_format_is_computed_in(weights, gpu, dtype):
    assert product_dtype(weights, gpus()[gpu]) == dtype


@pytest.mark.parametrize(
    ("gpu", "ranks", "over"),
    [
        ("h100-sxm", 8, "link"),
        ("h100-sxm", 16, "network"),
        ("gb200", 64, "link"),
        ("rtx-4090", 4, "pcie"),
        ("rtx-4090", 16, "network"),
    ],
)
def test_what_connects_gpus(gpu, ranks, over):
    assert USUAL.path(gpus()[gpu], ranks) == over


def test_tensor_parallelism_over_pcie_saves_less_than_over_nvlink():
    four = {gpu: speed(gpu=gpu, layout=Layout(tp=4)).step(1, 1024, "expected") for gpu in ("h100-sxm", "l40s")}
    one = {gpu: speed(gpu=gpu).step(1, 1024, "expected") for gpu in four}
    assert one["h100-sxm"] / four["h100-sxm"] < 4
    link = {
        gpu: sum(
            part.seconds
            for part in speed(gpu=gpu, layout=Layout(tp=4)).parts(decode(1, 1024), "expected", decodes=True)
            if part.what == "communication"
        )
        for gpu in four
    }
    assert link["l40s"] > 2 * link["h100-sxm"]


def link_seconds(layout, model="Qwen/Qwen3-30B-A3B", gpu="h100-sxm", batch=64):
    parts = speed(model, gpu, layout).parts(decode(batch, 4096), "expected", decodes=True)
    return sum(part.seconds for part in parts if part.what == "communication")


@pytest.mark.parametrize(("tp", "dp"), [(1, 2), (1, 8), (2, 4)])
def test_copies_that_share_experts_in_slices_gather_and_scatter_every_token(tp, dp):
    on = speed("Qwen/Qwen3-30B-A3B", layout=Layout(tp=tp, dp=dp)).machines("expected")
    tokens, row, layers = 64, 2 * 2048, 48
    bytes_sent = layers * 2 * (dp - 1) * tokens * row + layers * 2 * 2 * (tp - 1) / tp * tokens * row
    calls = layers * 2 * (1 if tp == 1 else 2)
    assert link_seconds(Layout(tp=tp, dp=dp)) == pytest.approx(calls * on.all_reduce + bytes_sent / on.link)


V3_LAYERS, V3_DENSE, V3_ROW = 61, 3, 2 * 7168
"""DeepSeek-V3's config.json: num_hidden_layers, first_k_dense_replace, hidden_size in 16 bits."""


@pytest.mark.parametrize(
    ("tp", "dp", "options", "gathering", "sending", "reductions"),
    [  # layers that gather the tokens of all copies, that send them to experts, and all-reduces over a copy's ranks
        pytest.param(1, 8, {}, 61, 0, 0, id="none: all gather"),
        pytest.param(2, 4, {}, 61, 0, 2 * 61, id="of two ranks each"),
        pytest.param(2, 4, {"moe_dense_tp_size": 1}, 58, 0, 2 * 58 + 3, id="dense layers of own tokens"),
        pytest.param(1, 8, {"moe_a2a_backend": "deepep"}, 3, 58, 0, id="DeepEP: dense layers gather"),
        pytest.param(2, 4, {"moe_a2a_backend": "deepep", "moe_dense_tp_size": 1}, 0, 58, 61, id="none gathers"),
        pytest.param(8, 1, {"moe_a2a_backend": "deepep"}, 0, 58, 2 * 61 - 58, id="one copy"),
    ],
)
def test_tokens_that_sglang_s_ranks_send(tp, dp, options, gathering, sending, reductions):
    """SGLang 0.5.23, `layers/layer_boundary`: a feed-forward that ranks of several copies share takes the rows of all
    of them, whether experts are spread or not, unless `moe_a2a_backend` sends them (`is_moe_input_scattered_across_
    dp_ranks`); one that is whole on a rank takes the rank's part of its copy's rows."""
    architecture, layout = (
        Architecture.from_config(models()["deepseek-ai/DeepSeek-V3"].config),
        Layout(tp=tp, dp=dp, ep=8),
    )
    engine = SGLang(SGLangOptions(**options))
    serving = Serving.of(architecture, engine, Precision(weights="fp8"), layout, Overhead())
    run, tokens = speed_on(gpus()["h200-sxm"], serving), 64
    on = run.machines("expected")
    gathered = gathering * 2 * (dp - 1) * tokens
    sent = sending * 2 * 7 / 8 * 8 * tokens / tp
    reduced = reductions * 2 * (tp - 1) / tp * tokens
    calls = (2 * gathering if dp > 1 else 0) + 2 * sending + (reductions if tp > 1 else 0)
    link = sum(
        p.seconds for p in run.parts(decode(tokens, 4096), "expected", decodes=True) if p.what == "communication"
    )
    assert link == pytest.approx(calls * on.all_reduce + (gathered + sent + reduced) * V3_ROW / on.link)


@pytest.mark.parametrize(
    ("engine", "layout", "gathering", "sending"),
    [
        pytest.param(VLLM, Layout(dp=16, ep=16), 58, 0, id="vLLM: all gather"),
        pytest.param(VLLM, Layout(dp=16), 58, 0, id="vLLM: experts in slices"),
        pytest.param(TensorRTLLM, Layout(dp=16, ep=16), 0, 58, id="TensorRT-LLM: over NVLink"),
        pytest.param(TensorRTLLM, Layout(dp=16, ep=8), 58, 0, id="TensorRT-LLM: experts in slices"),
        pytest.param(TensorRTLLM, Layout(tp=1, ep=1), 0, 0, id="one rank"),
    ],
)
def test_tokens_that_copies_gather_or_send(engine, layout, gathering, sending):
    """vLLM 0.33: `all2all_backend` is allgather_reducescatter (`config/parallel.py`), and each rank's experts take the
    rows of all copies (`AgRsAll2AllManager`). TensorRT-LLM 1.3: `CommunicationFactory.create_strategy` tries
    `NVLinkOneSided` first, and with `moe_tp_size` above 1 takes `AllGatherReduceScatter`."""
    architecture = Architecture.from_config(models()["deepseek-ai/DeepSeek-V3"].config)
    serving, tokens = Serving.of(architecture, engine(), Precision(weights="fp8"), layout, Overhead()), 64
    run = speed_on(gpus()["gb200"], serving)
    on = run.machines("expected")
    gathered = gathering * 2 * (layout.dp - 1) * tokens
    sent = sending * 2 * (layout.ep - 1) / layout.ep * 8 * tokens
    link = sum(
        p.seconds for p in run.parts(decode(tokens, 4096), "expected", decodes=True) if p.what == "communication"
    )
    assert link == pytest.approx(2 * (gathering + sending) * on.all_reduce + (gathered + sent) * V3_ROW / on.link)


def test_ranks_of_vllm_s_copies_start_from_a_part_of_their_tokens():
    """vLLM 0.33, `models/qwen3_moe.py`: all-reduce after attention, `sequence_parallel_chunk`, gathered over all ranks
    and handed out (`AgRsAll2AllManager._get_comm_group`), `tensor_model_parallel_all_gather`."""
    tp, dp, tokens, row, layers = 4, 2, 64, 2 * 2048, 48
    architecture = Architecture.from_config(models()["Qwen/Qwen3-30B-A3B"].config)
    run = speed_on(
        gpus()["h100-sxm"],
        Serving.of(architecture, VLLM(), Precision(), Layout(tp=tp, dp=dp, ep=tp * dp), Overhead()),
    )
    on, outside = run.machines("expected"), (tp - 1) / tp
    sent = layers * tokens * row * (2 * outside + 2 * (tp * dp - 1) / (tp * dp) * dp + outside)
    link = sum(
        p.seconds for p in run.parts(decode(tokens, 4096), "expected", decodes=True) if p.what == "communication"
    )
    assert link == pytest.approx(layers * 4 * on.all_reduce + sent / on.link)


def test_ranks_that_share_tokens_read_less_and_tell_each_other_more():
    def parts(dcp, context):
        on = speed("deepseek-ai/DeepSeek-V3", "h200-sxm", Layout(tp=8, dcp=dcp), weights="fp8")
        return {part.what: part.seconds for part in on.parts(decode(64, context), "expected", decodes=True)}

    alone, shared = parts(1, 100_000), parts(8, 100_000)
    assert shared["communication"] > alone["communication"]
    assert sum(parts(8, 100_000).values()) < sum(alone.values())
    assert sum(parts(8, 1000).values()) > sum(parts(1, 1000).values())


def test_copies_without_experts_have_nothing_to_tell_each_other():
    assert link_seconds(Layout(dp=8), "meta-llama/Llama-3.1-8B") == 0
    assert link_seconds(Layout(dp=8, ep=8)) > 0


def test_a_gpu_without_peaks_is_bound_by_bandwidth():
    mine = custom_gpu("mine", 48, 960)
    parts = speed(gpu=mine).parts(prefill(1, 8192), "expected", decodes=False)
    assert {part.bound for part in parts if part.what in ("mlp", "scores")} == {"bandwidth"}


def test_prefill_beside_decode_costs_less_than_both_apart():
    run = speed()
    both = run.seconds(mixed(decode(32, 4096), prefill(1, 512)), "expected", decodes=True)
    separate = run.step(32, 4096, "expected") + run.seconds(prefill(1, 512), "expected", decodes=True)
    assert run.step(32, 4096, "expected") < both < separate


def single_passes(sequences: int, tokens: int, chunk: int, past: int = 0) -> Iterator[Forward]:
    """Every pass by itself: whole prompts while they fit, or the chunks of each; the head computes the last row."""
    together = max(1, chunk // tokens)
    for first in range(0, sequences, together):
        count = min(together, sequences - first)
        for start in range(0, tokens, chunk):
            part = PassPart(count, min(chunk, tokens - start), past + start)
            yield Forward((part,), logits=count if start + chunk >= tokens else 0)


@pytest.mark.parametrize(
    ("sequences", "tokens", "chunk", "past"),
    [
        (5, 1000, 1536, 0),
        (50, 40, 1000, 0),
        (2, 5000, 2048, 0),
        (1, 60_000, 64, 0),
        (2, 5000, 100, 777),
        (1, 900, 1, 0),
    ],
)
@pytest.mark.parametrize(
    ("model", "gpu"),
    [
        ("Qwen/Qwen3-8B", "h100-sxm"),
        ("google/gemma-3-27b-it", "l4"),
        ("openai/gpt-oss-20b", "h100-sxm"),
        ("deepseek-ai/DeepSeek-V4-Flash", "l4"),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", "rtx-4090"),
    ],
)
def test_a_prompt_takes_the_sum_of_its_passes(model, gpu, sequences, tokens, chunk, past):
    """In windows, in attention to all and to compressed tokens; where bandwidth binds first and arithmetic later."""
    run = speed(model, gpu=gpu)
    passes = single_passes(sequences, tokens, chunk, past)
    summed = run.machines("expected").request + sum(run.seconds(each, "expected", decodes=False) for each in passes)
    assert run.prompt(sequences, tokens, "expected", chunk, past) == pytest.approx(summed, rel=1e-12)


def test_a_long_prompt_takes_as_long_on_paper_and_in_a_plan():
    """Of 2^30 tokens, whose FLOPs are beyond 64 bits, in chunks of a token and of all."""
    run, tokens = speed("deepseek-ai/DeepSeek-V3"), 2**30
    chunks = (1, 8192, tokens)
    planned = FullServer(run, tokens, 1, np.array(chunks)[:, None]).unqueued_ttft
    weighed = [run.prompt(1, tokens, "expected", chunk) for chunk in chunks]
    assert planned[:, 0] == pytest.approx(weighed, rel=1e-12)


def test_speculation_pays_by_its_rate_of_acceptance():
    run = speed("meta-llama/Llama-3.1-70B", layout=Layout(tp=4))
    draft = speed("meta-llama/Llama-3.2-1B")
    plain = run.step(1, 4096, "expected")

    def per_token(rate: float) -> float:
        return run.speculative(1, 4096, "expected", 4, draft) / accepted_tokens(rate, 4)

    assert accepted_tokens(0.0, 4) == 1
    assert accepted_tokens(1.0, 4) == 5
    assert per_token(0.9) < plain < per_token(0.0)


def test_arrays_are_timed_as_numbers_are():
    run = speed("Qwen/Qwen3-30B-A3B", weights="fp8")
    batches = np.array([1.0, 7.0, 300.0])
    assert run.step(batches, 4096, "expected") == pytest.approx([run.step(b, 4096, "expected") for b in (1, 7, 300)])


def test_every_efficiency_has_a_source_and_an_order():
    assert len(rows()) > 40
    for row in rows():
        assert row.source.startswith("https://")
        assert row.value.low <= row.value.expected <= row.value.high


@pytest.mark.parametrize("engine", [*ENGINES, "llamacpp"])
def test_every_gpu_has_efficiencies(engine):
    for gpu in gpus().values():
        for weights in ("bf16", "fp8", "int8", "nvfp4"):
            for ranks in (1, 4, 16):
                plain, narrow = product_dtype("bf16", gpu), product_dtype(weights, gpu)
                found = efficiency(Conditions(engine, gpu.generation, ranks, USUAL.path(gpu, ranks)), plain, narrow)
                assert found.bandwidth.expected > 0


def test_an_estimate_keeps_its_order():
    with pytest.raises(ValueError, match="must rise"):
        Estimate(low=2, expected=1, high=3)
    assert Estimate.over({"fast": 1.0, "expected": 2.0, "slow": 4.0}.__getitem__) == Estimate(low=1, expected=2, high=4)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "transformers", "tensorrt-llm"])
def test_a_report_says_how_fast_with_its_range(engine):
    architecture = Architecture.from_config(models()["meta-llama/Llama-3.1-8B"].config)
    serving = Serving.of(architecture, ENGINES[engine](), Precision(), Layout(), Overhead())
    work = Workload(batch=8, context=4096, generated=512)
    found = time_report(serving, gpus()["h100-sxm"], work)
    step, rate = found.decode.step_ms, found.decode.tokens_per_s
    assert rate.expected == pytest.approx(8000 / step.expected)
    assert rate.low == pytest.approx(8000 / step.high)
    assert found.prefill.tokens_per_s.expected == pytest.approx(8 * 3584 * 1000 / found.prefill.ttft_ms.expected)
    assert step.high / step.low <= 2
    assert sum(row.ms for row in found.decode.operations) == pytest.approx(step.expected)
