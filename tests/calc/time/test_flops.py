"""FLOPs beside torch's FlopCounterMode on the classes of transformers 5.23 (tests/data/flops.json)."""

import json
from pathlib import Path

import pytest

from calc import Architecture, Layout, Precision
from calc.time.operations import Demand, Forward, PassPart, decode, demand, prefill, unrolled
from presets import models
from tests import load

COUNTED = json.loads((Path(__file__).parents[2] / "data" / "flops.json").read_text(encoding="utf-8"))
RECURRENT = {"Qwen/Qwen3.5-9B", "ibm-granite/granite-4.0-h-micro", "LiquidAI/LFM2-1.2B"}
"""Torch computes a recurrence in chunks, by other products than the recurrence itself, and counts the backward pass of
a convolution for each channel as one over all."""


def of(model: str, layout: Layout | None = None) -> Demand:
    architecture, layout = Architecture.from_config(models()[model].config), layout or Layout()
    return demand(architecture, layout.rank(architecture), Precision(), layout, range(architecture.num_layers))


def whole_pass(row: dict[str, object]) -> dict[str, int]:
    tokens = int(str(row["tokens"]))
    every = Forward((PassPart(1, tokens, causal=False),), logits=tokens)
    return {operation.what: operation.flops for operation in of(str(row["model"])).operations(every)}


@pytest.mark.parametrize("row", [row for row in COUNTED if row["model"] not in RECURRENT], ids=lambda row: row["model"])
def test_a_pass_has_the_flops_that_torch_counts(row):
    flops = sum(whole_pass(row).values())
    assert flops == sum(row["forward"].values())
    assert 2 * flops == sum(row["backward"].values())


def test_text_passes_no_experts_of_images():
    """ERNIE 4.5 VL (modeling_ernie4_5_vl_moe.py): each set has its own experts, of which a token meets one set's."""
    (config,) = [row["config"] for row in load("small.json") if row["config"]["model_type"] == "ernie4_5_vl_moe"][:1]
    architecture, layout = Architecture.from_config(config), Layout()
    work = demand(architecture, layout.rank(architecture), Precision(), layout, range(architecture.num_layers))
    (routed,) = [part for part in work.operations(decode(1, 64)) if part.what == "experts_routed"]
    own = config["text_config"]
    matrices = 3 * own["hidden_size"] * own["moe_intermediate_size"][0] * own["moe_k"]
    assert routed.flops == 2 * matrices * (own["num_hidden_layers"] - 1)


@pytest.mark.parametrize("row", [row for row in COUNTED if row["model"] in RECURRENT], ids=lambda row: row["model"])
def test_the_products_of_a_hybrid_are_those_that_torch_counts(row):
    flops = whole_pass(row)
    products = sum(count for what, count in flops.items() if what not in ("scores", "scan"))
    assert products == pytest.approx(row["forward"]["mm"] + row["forward"]["convolution"], rel=1e-3)


def test_twenty_families_are_counted():
    assert len({models()[row["model"]].config["model_type"] for row in COUNTED}) >= 20


@pytest.mark.parametrize("window", [None, 1, 5, 64])
def test_causal_pairs_are_those_of_a_mask(window):
    past, new = 7, 20
    mask = [sum(1 for key in range(i + 1) if window is None or i - key < window) for i in range(past, past + new)]
    assert PassPart(3, new, past).pairs(window) == 3 * sum(mask)


def test_a_prompt_in_chunks_has_the_flops_of_the_whole():
    model = of("google/gemma-3-4b-it")
    chunks = [prefill(2, 512, past) for past in range(0, 4096, 512)]
    (whole,) = [o.flops for o in model.operations(prefill(2, 4096)) if o.what == "scores"]
    assert sum(o.flops for chunk in chunks for o in model.operations(chunk) if o.what == "scores") == whole


def test_absorbed_latents_cost_more_pairs_and_no_new_keys():
    model = of("deepseek-ai/DeepSeek-V3")
    step = {o.what: o for o in model.operations(decode(1, 4096))}
    chunk = {o.what: o for o in model.operations(prefill(1, 1, 4095))}
    assert step["scores"].flops == chunk["scores"].flops * (2 * 512 + 64) / (128 + 64 + 128)
    assert chunk["latents"].flops == 4096 * step["latents"].flops


def test_tensor_parallel_ranks_share_the_flops():
    whole = sum(o.flops for o in of("meta-llama/Llama-3.1-70B").operations(prefill(1, 2048)))
    ranks = [
        sum(o.flops for o in of("meta-llama/Llama-3.1-70B", Layout(tp=tp)).operations(prefill(1, 2048)))
        for tp in (2, 8)
    ]
    assert [tp * flops for tp, flops in zip((2, 8), ranks, strict=True)] == pytest.approx([whole, whole], rel=1e-4)


def test_spread_experts_share_the_flops():
    model = "Qwen/Qwen3-235B-A22B"
    whole = {o.what: o.flops for o in of(model).operations(prefill(8, 512))}
    rank = {o.what: o.flops for o in of(model, Layout(dp=8, ep=8)).operations(prefill(1, 512))}
    assert 8 * rank["experts_routed"] == whole["experts_routed"]
    assert 8 * rank["attention"] == whole["attention"]


def test_a_shared_block_runs_in_every_layer_that_names_it():
    architecture = Architecture.from_config(models()["Zyphra/Zamba2-2.7B"].config)
    (stored,) = {block.runs_in for block in unrolled(architecture).shared[:1]}
    assert len(stored) > 1


def test_a_window_that_is_not_there_has_every_pair():
    (mixer,) = Architecture.from_config(models()["Qwen/Qwen3-8B"].config).blocks[0].mixers
    assert mixer.pair_flops() == {None: 4 * 32 * 128}
