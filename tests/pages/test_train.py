"""Train without a browser."""

import json
from typing import get_args

import pytest

from calc import RECIPES, TrainingWorkload, training_report
from calc.options import options
from calc.serving.engines import ENGINES
from calc.training import METHODS, PEAKS, Colocation, Objective, Phase
from cli import main
from pages.parts import labels, words
from pages.parts.state.published import published
from pages.parts.state.query import TRAIN, WEIGH, decode, encode
from pages.parts.state.scenario import DECIDED, Scenario, TrainingChoice, places
from pages.parts.state.trained_as import STARTS, start_of
from pages.parts.state.weighed import trained
from presets import gpus, models
from tests.pages.app import ask, charts, finding, metrics, newest, opened, page, question, run, script, texts


def train(**query):
    return page("train", **query)


def controls(app):
    """Keys of all controls that are drawn."""
    drawn = (*app.number_input, *app.toggle, *app.selectbox, *app.segmented_control, *app.select_slider)
    return {control.key for control in drawn} | question(app).keys()


def test_the_step_of_a_model():
    """16 bytes a weight: ZeRO section 3.1, arXiv:1910.02054; of them the gradients come with the backward pass."""
    app = train(model="Qwen/Qwen2.5-0.5B")
    shown = metrics(app)
    assert (shown["Parameters"], shown["Trainable parameters"]) == ("494.03 M", "494.03 M")
    assert shown["Weights"] == shown["Gradients"] == f"{494_032_768 * 2 / 2**20:.2f} MiB"
    assert shown["Master weights"] == f"{494_032_768 * 4 / 2**30:.2f} GiB"
    assert shown["Optimizer states"] == f"{494_032_768 * 8 / 2**30:.2f} GiB"


def test_controls_change_the_numbers_and_the_link():
    app = train(model="Qwen/Qwen2.5-0.5B")
    ask(app, method="lora")
    assert metrics(app)["Trainable parameters"] != "494.03 M"
    run(app.number_input(key="lora_rank").set_value(8))
    # rank times the sum of in and out of q, k, v, o, gate, up, down: (896+896)+2*(896+128)+(896+896)+3*(896+4864)
    assert metrics(app)["Trainable parameters"] == f"{24 * 8 * (2 * 1792 + 2 * 1024 + 3 * 5760) / 10**6:.2f} M"
    link = {"model": "Qwen/Qwen2.5-0.5B", "method": "lora", "lora_rank": "8", "recompute": "full"}
    assert dict(app.query_params) == link  # people run LoRA with full checkpointing


def test_back_to_the_path_alone_keeps_the_model():
    """The navigation leaves the path without its query string in the history: there it is not the default model."""
    app = page("weigh", model="Qwen/Qwen2.5-3B")
    run(app.switch_page(script("train")))
    app.query_params.clear()
    run(app)
    assert finding(app).startswith("Full fine-tuning of Qwen2.5-3B ")
    assert dict(app.query_params) == {"model": "Qwen/Qwen2.5-3B"}


def test_lora_of_an_8b_on_24_gb_is_one_click():
    """And the parts of the answer add up to the memory of the GPU."""
    app = train(model="Qwen/Qwen3-8B", method="lora", recompute="full", gpu="rtx-4090")
    assert finding(app) == "LoRA of Qwen3-8B does not fit RTX 4090"
    run(app.button(key="least").click())
    assert finding(app) == "LoRA of Qwen3-8B fits on RTX 4090"
    assert dict(app.query_params)["loss"] == "fused"
    report = training_report(
        models()["Qwen/Qwen3-8B"].config,
        workload=TrainingWorkload(method="lora", recompute="full", loss="fused"),
        gpus=[],
    )
    shown = metrics(app)
    for name in words.TRAINED:
        size = getattr(report.memory, name)
        assert shown.get(words.PARTS[name].template) == (words.size(size) if size else None)
    assert sum(getattr(report.memory, name) for name in words.TRAINED) == report.memory.total


@pytest.mark.slow
def test_qlora_of_a_70b_on_48_gb():
    app = opened(train(model="meta-llama/Llama-3.1-70B", gpu="l40s"), "levers_drawer")
    assert finding(app) == "Full fine-tuning of Llama-3.1-70B does not fit L40S"
    saves = {button.key for button in app.button if button.key.startswith("lever_")}
    assert {"lever_checkpointing", "lever_8_bits", "lever_QLoRA", "lever_fused_loss"} <= saves
    ask(app, method="qlora")
    run(app.button(key="least").click())
    assert finding(app) == "QLoRA of Llama-3.1-70B fits on L40S"


@pytest.mark.parametrize("name", STARTS)
def test_a_start_sets_the_step_and_its_gpus(name):
    """Model, batch and lengths stay; activations are checkpointed whole; the pill says which it still is."""
    app = train(model="Qwen/Qwen2.5-0.5B", sequence="1024", micro_batch="2", lora_rank="8", loss="fused")
    assert newest(app.button_group, "start").value is None
    run(newest(app.button_group, "start").set_value(name))
    start, link = STARTS[name], dict(app.query_params)
    assert newest(app.button_group, "start").value == name
    assert link.items() >= {"sequence": "1024", "micro_batch": "2", "recompute": "full"}.items()
    assert (link.get("method", "full"), link.get("dp", "1")) == (start.method, str(start.count))
    assert set(link.get("gpu", "").split(",")) <= {*start.gpus, ""}
    assert set(start.gpus) <= set(gpus())
    scenario, problems = decode(link, TRAIN, Scenario(), published)
    assert (problems, start_of(scenario.training)) == ([], name)
    assert start_of(TrainingChoice()) is None


def test_a_70b_on_two_24_gb_cards_has_more_than_one_way():
    """QLoRA of 70B with FSDP's offloading on two 24 GB cards: github.com/AnswerDotAI/fsdp_qlora."""
    app = train(model="meta-llama/Llama-3.1-70B", gpu="rtx-4090", method="qlora", recompute="full", dp="2")
    assert finding(app) == "QLoRA of Llama-3.1-70B does not fit 2 × RTX 4090"
    ways = {button.key for button in app.button if button.key == "least" or button.key.startswith("over_")}
    assert {"least", "over_4", "over_8"} <= ways
    on_four = run(app.button(key="over_4").click())
    assert finding(on_four) == "QLoRA of Llama-3.1-70B fits on 4 × RTX 4090"
    assert dict(on_four.query_params).items() >= {"offload_activations": "true", "zero": "3", "dp": "4"}.items()
    app = train(model="meta-llama/Llama-3.1-70B", gpu="rtx-4090", method="qlora", recompute="full", dp="2")
    run(app.button(key="least").click())
    assert finding(app) == "QLoRA of Llama-3.1-70B fits on 2 × RTX 4090"
    assert dict(app.query_params).items() >= {"cpu_offload": "true", "zero": "3"}.items()
    (waits,) = [text for text in texts(app.markdown) if "wait in CPU memory" in text]
    assert "GiB of all GPUs together" in waits


def test_the_smallest_and_the_cheapest_gpu_are_one_click():
    app = train(model="Qwen/Qwen3-8B", method="qlora", recompute="full", gpu="b200")
    for key in ("smallest", "cheapest"):
        chosen = run(app.button(key=key).click())
        (gpu,) = chosen.query_params["gpu"].split(",")
        assert finding(chosen) == f"QLoRA of Qwen3-8B fits on {gpus()[gpu].name}"
        assert gpus()[gpu].name in chosen.button(key=key).label


def test_by_number_of_gpus():
    """One cell a GPU and number; what fits alone fits on more."""
    app = train(
        model="meta-llama/Llama-3.1-70B", gpu="rtx-4090,h100-sxm", method="qlora", recompute="full", tab="number"
    )
    (table,) = [text for text in texts(app.markdown) if text.startswith("| GPU | 1")]
    cells = {line.split(" | ")[0][2:]: line.rstrip(" |").split(" | ")[1:] for line in table.splitlines()[2:]}
    assert cells["H100 SXM 80GB"] == ["✓"] * 4
    assert [cell[0] for cell in cells["RTX 4090"]] == ["✗", "✓", "✓", "✓"]
    assert "Weights and optimizer in CPU memory" in cells["RTX 4090"][1]


def test_no_part_is_said_twice():
    """The figures below the bar are its key."""
    app = train(model="Qwen/Qwen2.5-0.5B", gpu="h100-sxm")
    (bar,) = [html.proto.body for html in app.get("html") if html.proto.body.startswith('<div class="weighbridge-bar')]
    assert "weighbridge-keys" not in bar
    assert {"Weights", "Gradients", "Overhead"} <= metrics(app).keys()


def test_flags_of_a_trainer():
    """TRL 1.16 checkpoints, takes the loss with the head, and loads in fp32; for QLoRA only what is not quantized."""
    app = train(model="Qwen/Qwen2.5-0.5B")
    assert app.selectbox(key="trainer").value is None
    run(app.selectbox(key="trainer").set_value("trl"))
    link = {"model": "Qwen/Qwen2.5-0.5B", "optimizer_kernel": "fused", "recompute": "full", "loss": "tiled"}
    assert dict(app.query_params) == link | {"recipe": "autocast"}
    ask(app, method="qlora")
    assert dict(app.query_params) == link | {"method": "qlora", "fp32_rest": "true", "recipe": "bf16-autocast"}
    assert app.selectbox(key="trainer").value == "trl"
    run(app.selectbox(key="trainer").set_value(None))
    assert dict(app.query_params) == {"model": "Qwen/Qwen2.5-0.5B", "method": "qlora"}


def test_the_derivation_of_a_verdict_tries_one_more():
    app = opened(train(model="Qwen/Qwen2.5-0.5B", gpu="rtx-4090", accumulation="2"), "derive_verdict_rtx-4090")
    report = training_report(
        models()["Qwen/Qwen2.5-0.5B"].config, workload=TrainingWorkload(accumulation=2), gpus=[gpus()["rtx-4090"]]
    )
    n = report.verdicts[0].max_micro_batch
    (table,) = (text for text in texts(app.markdown) if "How many" in text)
    fits, more = (line for line in table.splitlines() if line.startswith("| Micro-batch size"))
    assert (f"| {n:,} |" in fits, fits.endswith("✓ |")) == (True, True)
    assert (f"| {n + 1:,} |" in more, more.endswith("✗ |")) == (True, True)


def test_a_weight_format_of_serving_is_not_that_of_the_base():
    scenario = Scenario()
    serving = scenario.serving.model_copy(update={"weights": "fp8"})
    here = scenario.model_copy(update={"serving": serving})
    assert "weights" in encode(here, WEIGH)
    assert "weights" not in encode(here, TRAIN)
    assert here.training.weights is None


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ({"accumulation": "4", "optimizer_in_backward": "true"}, "accumulation must be 1"),
        ({"tp": "3"}, "does not divide"),
        ({"ep": "2"}, "does not divide"),
        ({"pp": "100"}, "only 24 layers"),
        ({"fp32_rest": "true"}, "fp32_rest is about"),
        ({"method": "grpo", "num_generations": "1"}, "group of one"),
        ({"method": "dpo", "reference": "none"}, "none is given"),
        ({"method": "dpo", "reference": "adapter-off"}, "only where there are adapters"),
        ({"method": "grpo", "rollout": "server", "sleep_level": "1"}, "nothing to give back"),
        ({"method": "grpo", "rollout": "colocated", "rollout_tp": "2"}, "does not divide"),
        ({"method": "kto", "pp": "2"}, "must be 1"),
        ({"method": "grpo", "rollout": "colocated", "shared_weights": "true"}, "goes with LoRA"),
        ({"method": "grpo", "completion": "64", "mean_completion": "65"}, "are not 65 tokens long on average"),
    ],
)
def test_what_does_not_go_together_is_a_sentence_beside_its_control(query, sentence):
    app = train(model="Qwen/Qwen2.5-0.5B", **query)
    assert any(sentence in error.value for error in app.error)
    run(next(button for button in app.button if button.key.startswith("main_")).click())
    assert not app.error


@pytest.mark.slow
def test_every_option_has_a_control():
    drawers = ("spread_drawer", "details_drawer", "rollout_drawer")
    queries = (
        {"method": "qlora", "pp": "2"},
        {"method": "grpo", "trl": "1.12", "rollout": "colocated"},
        {"method": "grpo", "beta": "0.1", "dp": "2", "zero": "3"},
        {"method": "grpo,lora", "rollout": "colocated"},
        {"method": "grpo", "rollout": "server"},
        {"method": "gkd"},
        {"method": "sft", "trl": "1.12"},
        {"method": "sft"},
    )
    apps = [opened(train(model="Qwen/Qwen2.5-0.5B", gpu="h100-sxm", **query), *drawers) for query in queries]
    known = places(("training",)).keys() - {"weights"} | {"frozen"}
    assert known <= set().union(*map(controls, apps))


@pytest.mark.slow
def test_pieces_are_asked_for_where_there_are_stages():
    """A way out of each rule that is broken is one click; the address carries the pieces."""
    app = opened(train(model="Qwen/Qwen3-8B", gpu="h100-sxm"), "spread_drawer")
    assert "vp" not in {control.key for control in app.number_input}
    app = opened(train(model="Qwen/Qwen3-8B", gpu="h100-sxm", pp="4", accumulation="8"), "spread_drawer")
    run(app.number_input(key="vp").set_value(4))
    assert "36 layers" in app.error[0].value
    run(app.button(key="near_3").click())
    assert dict(app.query_params) == {"gpu": "h100-sxm", "pp": "4", "vp": "3", "accumulation": "8"}
    assert not app.error
    said = texts(opened(app, "derive_activations").caption)
    # 2 (p - i - 1) + (v - 1) p and one more, Megatron-LM's get_pp_rank_microbatches on the first of four stages
    assert any("+ 1, 3 · 8) = **15** pieces under way" in text for text in said)


def test_every_choice_has_its_words():
    assert set(PEAKS) == set(words.PHASES) == set(get_args(Phase))
    for model in (TrainingWorkload, Objective, Colocation, *(engine.options_type for engine in ENGINES.values())):
        for name, option in options(model).items():
            if name in labels.CHOICES and name not in DECIDED.get(model, ()):
                assert set(labels.CHOICES[name]) == set(option.choices), name
    assert set(labels.CHOICES["recipe"]) == set(RECIPES)
    assert set(labels.CHOICES["loss_method"]) == set(METHODS)


def test_each_figure_opens_its_derivation():
    figures = ("trained", "weights", "master_weights", "gradients", "optimizer", "activations", "logits", "memory")
    figures += ("tokens", "on_disk", "overhead", "phase_optimizer")
    app = opened(train(model="Qwen/Qwen2.5-0.5B"), *(f"derive_{name}" for name in figures))
    said = texts(app.markdown)
    for line in (
        "Every weight is trained: **494,032,768**.",
        "988,065,536",
        "3,952,262,144",
        "Sum with the overhead: **",
        "**4,096** tokens",
        "Sum: **6,916,458,752 bytes**.",
        "**Weights** · computed",
        "**Overhead** · measured: a range of public logs",
    ):
        assert any(line in text for text in said), line


@pytest.mark.parametrize(
    "query",
    [
        {
            "model": "deepseek-ai/DeepSeek-V3",
            "tp": "8",
            "pp": "4",
            "dp": "16",
            "ep": "16",
            "zero": "1",
            "accumulation": "32",
        },
        {"model": "Qwen/Qwen3-8B", "method": "qlora", "recompute": "full", "loss": "fused", "fused": "true"},
        {"model": "state-spaces/mamba-130m-hf", "optimizer": "muon", "recipe": "fp32"},
        {"micro_batch": "none", "zero": "7", "fused": "maybe", "loss": "big"},
    ],
)
def test_every_kind_of_step_draws(query):
    app = train(**query)
    assert metrics(app)["Memory per GPU"].endswith("GiB")


LOSSES = [
    pytest.param({"method": "sft", "trl": "1.12", "log_probs": "whole", "packed": "4"}, id="sft"),
    pytest.param({"method": "dpo,lora", "micro_batch": "2", "prompt": "256", "completion": "1024"}, id="dpo,lora"),
    pytest.param({"method": "kto,qlora", "reference": "precomputed"}, id="kto,qlora"),
    pytest.param({"method": "grpo", "beta": "0.04", "iterations": "2", "dp": "2", "zero": "3"}, id="grpo"),
    pytest.param(
        {"method": "grpo", "rollout": "colocated", "sleep_level": "1", "engine_share": "0.4", "micro_batch": "8"},
        id="grpo with an engine",
    ),
]


@pytest.mark.parametrize("query", LOSSES)
def test_a_link_with_a_loss_is_the_command_with_its_flags(capsys, query):
    link = {"model": "Qwen/Qwen2.5-0.5B", "gpu": "h100-sxm", **query}
    scenario, problems = decode(link, TRAIN, Scenario(), published)
    flags = [word for name, text in query.items() for word in (f"--{name.replace('_', '-')}", text)]
    assert (problems, encode(scenario, TRAIN)) == ([], link)
    main(["Qwen/Qwen2.5-0.5B", "--train", "--gpu", "h100-sxm", "--json", *flags])
    assert json.loads(trained(scenario).report.model_dump_json()) == json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("query", "has", "lacks"),
    [
        pytest.param({}, {"accumulation"}, {"trl", "reference", "num_generations", "rollout"}, id="no loss"),
        pytest.param({"method": "dpo"}, {"reference", "trl"}, {"num_generations", "beta", "rollout"}, id="dpo"),
        pytest.param({"method": "orpo"}, {"optimizer"}, {"reference", "trl", "packed"}, id="orpo"),
        pytest.param({"method": "sft"}, {"completion_only", "packed"}, {"reference", "log_probs"}, id="sft"),
        pytest.param({"method": "sft", "trl": "1.12"}, {"log_probs", "packed"}, {"completion_only"}, id="sft 1.12"),
        pytest.param(
            {"method": "grpo"},
            {"num_generations", "iterations", "beta", "rollout"},
            {"engine_share", "sleep_level", "entropy_bonus", "shards_reference"},
            id="grpo",
        ),
        pytest.param(
            {"method": "grpo", "rollout": "server"}, {"engine_share"}, {"sleep_level", "iterations"}, id="server"
        ),
        pytest.param({"method": "ppo", "rollout": "colocated"}, {"sleep_level"}, {"num_generations"}, id="ppo"),
    ],
)
def test_controls_of_a_loss_are_shown_where_they_have_an_effect(query, has, lacks):
    shown = controls(opened(train(model="Qwen/Qwen2.5-0.5B", gpu="h100-sxm", **query), "details_drawer"))
    assert has <= shown
    assert not lacks & shown
    assert {"loss", "loss_chunks"} & shown == (set() if query else {"loss", "loss_chunks"})


def test_a_loss_is_chosen_in_the_question():
    """TRL's flags come with it, and are not in the link, as on the command line."""
    app = train(model="Qwen/Qwen2.5-0.5B", gpu="h100-sxm")
    ask(app, loss_method="grpo")
    assert dict(app.query_params) == {"model": "Qwen/Qwen2.5-0.5B", "gpu": "h100-sxm", "method": "grpo"}
    assert newest(app.selectbox, "trainer").value == "trl"
    assert finding(app) == "GRPO of Qwen2.5-0.5B with 8 completions of 512 tokens fits on H100 SXM 80GB"
    ask(app, completion=4096, method="lora")
    assert finding(app) == "GRPO with LoRA of Qwen2.5-0.5B with 8 completions of 4k tokens fits on H100 SXM 80GB"
    ask(app, loss_method="next-token")
    assert app.query_params["method"] == "lora"
    assert finding(app) == "LoRA of Qwen2.5-0.5B fits on H100 SXM 80GB"


COLOCATED = {
    **{"model": "Qwen/Qwen2.5-7B", "gpu": "h100-sxm", "method": "grpo", "completion": "4096", "micro_batch": "8"},
    **{"dp": "2", "zero": "3", "rollout": "colocated", "engine_share": "0.4", "sleep_level": "1"},
}


def test_an_engine_on_the_same_gpus_is_in_the_answer():
    """TRL's sleep level 1 gives weights and cache back: no part of the engine but graphs is there at the update."""
    app = train(**COLOCATED)
    assert finding(app) == "GRPO of Qwen2.5-7B with 8 completions of 4k tokens fits on 2 × H100 SXM 80GB"
    report = trained(decode(COLOCATED, TRAIN, Scenario(), published)[0]).report
    (rollout,), (verdict,) = report.rollouts, report.verdicts
    said = " ".join(texts(app.markdown))
    assert str(rollout.reason) in said
    assert f"may take {rollout.share_low:.2f} to {rollout.share_high:.2f} of the GPU" in said
    assert f"{words.gib(rollout.host_bytes)} of one GPU wait in host memory" in said
    figure = charts(app)["rollout_phases"]
    sizes = {bar["name"]: bar["y"] for bar in figure["data"] if bar["name"] != "Overhead at its highest"}
    totals = [round(sum(column) * 2**30) for column in zip(*sizes.values(), strict=True)]
    assert totals == [phase.total for phase in rollout.phases]
    names = ["Generation", "Weights handed to the engine", "Passes without gradients", "Update"]
    names[totals.index(max(totals))] += " (peak)"
    assert figure["data"][0]["x"] == names
    assert max(totals) == verdict.required
    assert sizes["KV cache"][-1] == sizes["Engine weights"][-1] == 0 < sizes["KV cache"][0]


@pytest.mark.parametrize(
    ("query", "word", "sentence"),
    [
        pytest.param({"engine_share": "0.9"}, "does not fit", "more than there are", id="too much"),
        pytest.param({"engine_share": "0.1"}, "does not fit", "does not start", id="too little"),
        pytest.param({"engine_share": "0.6", "sleep_level": "0"}, "does not fit", "more than there are", id="awake"),
        pytest.param({"rollout": "server", "sleep_level": "0"}, "fits on", "engine on other GPUs", id="server"),
    ],
)
def test_the_share_of_the_engine_decides(query, word, sentence):
    app = train(**COLOCATED | query)
    assert word in finding(app)
    assert any(sentence in text for text in (*texts(app.markdown), *texts(app.error)))
    assert not [button for button in app.button if button.key.startswith("over_")]


def test_the_least_that_fits_next_to_an_engine_is_one_click():
    app = train(**COLOCATED | {"engine_share": "0.9", "micro_batch": "64"})
    assert "does not fit" in finding(app)
    run(app.button(key="least").click())
    assert "fits on 2 × H100" in finding(app)
    assert "rollout" in app.query_params


def test_a_step_with_an_engine_says_how_long_it_takes():
    app = opened(train(**COLOCATED), "objective_time", "by_method")
    said = " ".join(texts(app.markdown))
    assert "tokens per hour" in said
    for phase in ("Generation", "Weights handed to the engine", "Update", "1 GPU of its own"):
        assert phase in said
    assert all(loss in said for loss in ("DPO", "KTO", "ORPO", "PPO", "**GRPO**"))


def test_verl_s_flags_are_one_choice():
    """verl 0.9.1, trainer/config: FSDP, in-place log-probabilities, rollout.yaml's share, sleep and buckets."""
    app = train(**{name: COLOCATED[name] for name in ("model", "gpu", "method", "rollout")} | {"dp": "8"})
    run(app.selectbox(key="trainer").set_value("verl"))
    flags = {"zero": "3", "log_probs": "in-place", "engine_share": "0.5", "sleep_level": "2", "bucket_mib": "2048"}
    assert flags.items() <= dict(app.query_params).items()
    app = train(**dict(app.query_params) | {"engine_share": "0.6"})
    assert app.selectbox(key="trainer").value == "verl"  # the share is the reader's


def test_a_teacher_is_chosen():
    app = train(model="Qwen/Qwen2.5-7B", gpu="h200-sxm", method="gkd,lora", teacher="Qwen/Qwen2.5-14B")
    assert "Distillation (GKD) with LoRA of Qwen2.5-7B" in finding(app)
    options = app.selectbox(key="teacher").options
    assert any("14B" in option for option in options)
    assert not any("Llama" in option for option in options)
    app = train(model="Qwen/Qwen2.5-7B", gpu="h200-sxm", method="gkd", teacher="nobody/knows")
    assert "nobody/knows" in app.error[0].value


def test_another_share_is_one_click():
    app = train(**COLOCATED | {"engine_share": "0.6"})
    assert "does not fit" in finding(app)
    run(app.button(key="engine_share_high").click())
    assert "fits on 2 × H100" in finding(app)
    assert "engine_share_high" not in {button.key for button in app.button}
    app = train(**COLOCATED | {"engine_share": "0.3", "completion": "32768"})
    assert "does not fit" in finding(app)
    assert "engine_share_high" not in {button.key for button in app.button}


def test_a_pair_is_two_sequences():
    app = opened(train(model="Qwen/Qwen2.5-0.5B", gpu="h100-sxm", method="dpo", micro_batch="3"), "derive_tokens")
    said = " ".join(texts(app.markdown))
    assert ("**6** sequences" in said, "6 × 1,024 = **6,144** tokens" in said) == (True, True)
    assert metrics(app)["Tokens per step"] == "6,144"
    assert "The step peaks" in said
