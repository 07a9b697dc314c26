"""Weigh without a browser: what it shows."""

import re

import pytest
from streamlit.proto.WidgetStates_pb2 import WidgetStates
from streamlit.testing.v1 import AppTest

from calc import families, report
from calc.design.slope import Slopes
from calc.families import override, read, read_with_settings
from calc.serving.engines import ENGINES
from pages.parts import words
from pages.parts.inputs import sidebar
from pages.parts.inputs.fields import EXPERTS, HEADS, HIDDEN, KV_HEADS, PER_TOKEN, controlled
from pages.parts.state.scenario import places
from presets import gpus, models
from tests import ROOT
from tests.pages.app import (
    DRAWERS,
    ask,
    charts,
    components,
    facts,
    finding,
    metrics,
    newest,
    opened,
    page,
    question,
    rows,
    run,
    script,
    texts,
)
from tests.structures import swept

DERIVATIONS = ("parameters", "active", "weights", "kv_cache_per_token", "kv_cache", "memory")


def test_the_answer_first():
    app = page(model="deepseek-ai/DeepSeek-V3")
    shown = metrics(app)
    assert shown["Parameters"] == "671.03 B"
    assert shown["Active parameters"] == "37.55 B"
    assert shown["KV cache per token"] == "68.62 KiB"
    assert any("671,026,404,352" in caption for caption in texts(app.caption))
    assert not app.warning
    assert finding(app) == "DeepSeek-V3 fits on none of 9 GPUs"
    assert not app.error


def test_a_slider_changes_the_numbers_and_the_link_and_can_be_put_back():
    app = page(model="Qwen/Qwen2.5-3B")
    run(app.select_slider(key="field_num_key_value_heads").set_value(4))
    assert metrics(app)["KV cache per token"] == "72.00 KiB"
    assert app.query_params["num_key_value_heads"] == "4"
    run(app.button(key="reset_num_key_value_heads").click())
    assert metrics(app)["KV cache per token"] == "36.00 KiB"
    assert "num_key_value_heads" not in app.query_params


def test_a_move_reads_the_model_once(monkeypatch):
    """The answer's; what a step of each slider costs, its help reads from a design of its own."""
    built = []
    build = families._build
    monkeypatch.setattr(Slopes, "of", lambda *_: None)
    monkeypatch.setattr(families, "_build", lambda *arguments: built.append(1) or build(*arguments))
    app = opened(page(model="deepseek-ai/DeepSeek-V3"), *(f"derive_{name}" for name in DERIVATIONS), *DRAWERS)
    built.clear()
    run(app.slider(key="field_num_hidden_layers").set_value(60))
    assert len(built) == 1
    ask(app, batch=4)
    assert len(built) == 1


def test_all_sliders_can_be_put_back_together():
    app = page(model="Qwen/Qwen2.5-3B", num_hidden_layers="12", intermediate_size="8192")
    assert metrics(app)["Parameters"] != "3.09 B"
    run(app.button(key="reset_all").click())
    assert metrics(app)["Parameters"] == "3.09 B"


def test_the_multiplier_moves_the_intermediate_size():
    app = page(model="Qwen/Qwen2.5-3B")
    slider = app.slider(key="field_intermediate_size")
    assert slider.value == 5.375
    assert "11,008" in slider.label
    run(slider.set_value(4.0))
    assert app.query_params["intermediate_size"] == "8192"
    assert "Changed: FFN multiplier: 11,008 → 8,192 wide" in texts(app.caption)


@pytest.mark.parametrize(
    ("model", "field", "next_value"),
    [
        pytest.param("deepseek-ai/DeepSeek-V3", "moe_intermediate_size", 2048 + 64, id="experts, in steps of 64"),
        pytest.param("deepseek-ai/DeepSeek-V3", "intermediate_size", 18_432 + 7168 // 8, id="an eighth of the width"),
        pytest.param("meta-llama/Llama-2-7b-hf", "intermediate_size", 11_008 + 4096 // 8, id="between two eighths"),
        pytest.param("openai-community/gpt2", "vocab_size", 50_304, id="50,257, up to a multiple of 64"),
    ],
)
def test_an_arrow_key_keeps_to_the_model_s_grid(model, field, next_value):
    """A browser counts steps from the slider's lower end."""
    app = opened(page(model=model), "sizes_drawer")
    slider = app.slider(key=f"field_{field}")
    steps = int((slider.value - slider.min) / slider.step + 1e-3) + 1
    run(slider.set_value(slider.min + steps * slider.step))
    assert app.query_params[field] == str(next_value)


def test_another_model_starts_from_its_own_values():
    app = page(model="Qwen/Qwen2.5-3B", num_hidden_layers="12", batch="4")
    ask(app, model="openai-community/gpt2")
    assert metrics(app)["Parameters"] == "124.44 M"
    assert dict(app.query_params) == {"model": "openai-community/gpt2", "batch": "4"}


@pytest.mark.slow
def test_each_figure_opens_its_derivation():
    closed = page(model="Qwen/Qwen2.5-3B")
    assert not any("With values" in text for text in texts(closed.markdown))  # computed when opened
    for name, line in {
        "parameters": "151936·2048",
        "active": "Sum: **3,085,938,688**",
        "weights": "| Embedding | 622,329,856 |",
        "kv_cache_per_token": "36 · (2·2·128)",
        "kv_cache": "`batch·context·bytes_per_token`",
        "memory": "| KV cache |",
        "verdict_h100-sxm": "usable − required",
    }.items():
        app = opened(page(model="Qwen/Qwen2.5-3B", gpu="h100-sxm"), f"derive_{name}")
        assert any(line in text for text in texts(app.markdown)), name


def test_the_flags_of_an_engine_are_controls_with_its_defaults():
    model = {"model": "Qwen/Qwen2.5-3B", "gpu": "h100-sxm"}
    app = opened(page(**model), *DRAWERS)
    assert app.number_input(key="max_num_batched_tokens").placeholder == "default: 8,192"
    assert app.number_input(key="gpu_memory_utilization").placeholder == "default: 0.92"
    run(app.number_input(key="max_num_batched_tokens").set_value(2048))
    run(app.toggle(key="enforce_eager").set_value(True))
    assert dict(app.query_params) == {**model, "max_num_batched_tokens": "2048", "enforce_eager": "true"}
    ask(app, engine="sglang")
    assert app.number_input(key="chunked_prefill_size").value is None
    assert dict(app.query_params) == {**model, "engine": "sglang"}


@pytest.mark.parametrize("engine", ENGINES)
def test_every_option_has_a_control(engine):
    app = opened(page(model="google/gemma-3-4b-it", engine=engine), *DRAWERS)
    controls = (*app.number_input, *app.toggle, *app.selectbox, *app.segmented_control, *app.select_slider)
    drawn = {control.key for control in (*controls, *app.text_input)}
    served = {name for name, place in places(("serving",), engine).items()}
    assert served <= drawn | question(app).keys()


FIRST = {preset.config["model_type"]: name for name, preset in reversed(models().items())}


@pytest.mark.parametrize("model", swept(FIRST.values()))
def test_every_family_of_the_presets_draws(model):
    app = page(model=model, gpu="v100-sxm2-16gb,h200-sxm")
    assert len(metrics(app)) == 6
    assert {error.icon for error in app.error} <= {":material/cancel:"}  # the verdict


def test_no_gpu_chosen():
    app = page(model="Qwen/Qwen2.5-3B")
    ask(app, gpu=[])
    assert metrics(app)["Parameters"] == "3.09 B"


def test_few_gpus_are_cards_and_more_are_rows():
    app = page(model="Qwen/Qwen2.5-3B")
    assert [row["Verdict"][0] for row in rows(app, "gpu_rows")] == ["✓ Fits"] * 9
    run(app.get("button_group")[0].set_value(["fp8", "48"]))
    assert [row["GPU"] for row in rows(app, "gpu_rows")] == ["L40S", "H100 SXM 80GB", "H200 SXM 141GB", "B200 SXM"]
    few = page(model="Qwen/Qwen3-8B", gpu="v100-sxm2-16gb,h100-sxm")
    assert not components(few, "weighbridge_rows")
    run(few.button(key="fewest_v100-sxm2-16gb").click())
    assert few.query_params["tp"] == "2"
    assert few.query_params["gpu"] == "v100-sxm2-16gb"
    assert finding(few) == "Qwen3-8B fits on 2 × V100 SXM2 16GB"
    assert any("With TP 2." in text for text in texts(few.markdown))


def test_a_row_opens_its_card_and_the_link_says_which():
    shut, app = page(model="Qwen/Qwen3-8B"), page(model="Qwen/Qwen3-8B", opened="l40s")
    for view, chosen in ((shut, []), (app, ["l40s"])):
        assert components(view, "weighbridge_rows")["gpu_rows"]["chosen"] == chosen
        assert any("Max batch size:" in text for text in texts(view.markdown)) == bool(chosen)
    assert app.query_params["opened"] == "l40s"
    assert any("opened=“h900”" in text for text in texts(page(opened="h900").warning))


@pytest.mark.parametrize("query", [{}, {"num_gpus": "2", "gpu": "l4"}, {"gpu": "v100-sxm2-16gb"}])
def test_the_scale_weighs_what_the_figures_say(query):
    app = page(model="Qwen/Qwen3-8B", **query)
    (scale,) = components(app, "weighbridge_scale").values()
    assert scale["needed"] == metrics(app)["Memory per GPU"]
    needed, usable = (float(scale[name].removesuffix(" GiB")) for name in ("needed", "usable"))
    assert sum(share for _, share in scale["parts"]) / scale["gpu"] == pytest.approx(needed / usable, rel=0.005)
    assert max(sum(share for _, share in scale["parts"]), scale["gpu"]) == pytest.approx(1, abs=0.001)
    assert scale["color"] == ("green" if needed < usable else "red")


def test_the_table_has_five_columns_and_more_by_a_switch():
    app = page(model="Qwen/Qwen3-8B", tp="2")
    decisive = ["GPU", "Verdict", "Tokens/s per user", "$/h", "Min. GPUs"]
    first = {row["GPU"]: row for row in rows(app, "gpu_rows")}
    assert all([*row] == decisive for row in first.values())
    run(app.toggle(key="gpu_columns").set_value(True))
    more = {row["GPU"]: row for row in rows(app, "gpu_rows")}
    for name, row in more.items():
        assert [*row][:5] == decisive
        assert len(row) == 14
        assert row.items() >= first[name].items()
        assert row["Verdict"][1] == pytest.approx(row["Need, GiB"] / row["Usable, GiB"], abs=1e-4)
    ask(app, context=4096)
    assert len(rows(app, "gpu_rows")[0]) == 14
    go_on(app, "train")
    go_on(app, "weigh")
    assert len(rows(app, "gpu_rows")[0]) == 14  # the switch stays


@pytest.mark.parametrize("query", [{"gpu": "h100-sxm"}, {"gpu": "h100-sxm", "tp": "2"}, {"gpu": "b200", "batch": "8"}])
def test_the_table_says_the_speed_and_the_price_of_the_title(query):
    title = facts(page(model="Qwen/Qwen3-8B", **query))
    others = "a100-sxm-80gb,l40s,h200-sxm,rtx-4090"
    table = rows(page(model="Qwen/Qwen3-8B", **query | {"gpu": f"{query['gpu']},{others}"}), "gpu_rows")
    (row,) = [row for row in table if row["GPU"] == gpus()[query["gpu"]].name]
    assert words.figure(row["Tokens/s per user"]) == title["tokens/s per user"]
    assert f"${row['$/h']:,.2f}" == title["per hour"]


def test_a_gpu_that_does_not_serve_has_no_speed_in_the_table():
    """DeepSeek-V3 is stored in FP8 blocks, which vLLM does not run on a V100; nor does it fit any one GPU."""
    table = {row["GPU"]: row for row in rows(page(model="deepseek-ai/DeepSeek-V3"), "gpu_rows")}
    assert table["V100 SXM2 16GB"]["Verdict"] == ["⊘ Does not run", None]
    assert table["H100 SXM 80GB"]["Verdict"][0] == "✗ Does not fit"
    assert {row["Tokens/s per user"] for row in table.values()} == {None}


def test_one_click_finds_the_smallest_and_the_cheapest():
    """Qwen2.5-3B, 32k tokens, 4 bits: two clicks."""
    app = page(model="Qwen/Qwen2.5-3B", context="32768")
    ask(app, weights="int4")
    run(app.button(key="find_smallest").click())
    (smallest,) = app.query_params["gpu"].split(",")
    assert gpus()[smallest].memory_gb == 8
    assert "fits on" in finding(app)
    run(app.button(key="find_cheapest").click())
    assert app.query_params["gpu"] == "t4"  # 0.50 US dollars an hour, the least of the dated sample
    assert "fits on" in finding(app)


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ({"gpu": "h100-sxm,h200-sxm"}, "Qwen3-8B fits on both GPUs"),
        ({"gpu": "l40s,h100-sxm,h200-sxm"}, "Qwen3-8B fits on all 3 GPUs"),
        ({"gpu": "t4,h100-sxm"}, "Qwen3-8B fits on 1 of 2 GPUs"),
        ({"gpu": "h100-sxm", "num_hidden_layers": "35"}, "Qwen3-8B (changed) fits on H100 SXM 80GB"),
        ({"gpu": "v100-sxm2-16gb", "weights": "int4"}, "Qwen3-8B does not run on V100 SXM2 16GB"),
        ({"gpu": "none"}, "Qwen3-8B"),
    ],
)
def test_the_finding_is_the_title(query, sentence):
    assert finding(page(**query)) == sentence


def test_a_gpu_of_ones_own():
    app = page(model="Qwen/Qwen2.5-3B", gpu="Mine:48GiB:960GB/s:bf16=181,fp8=362")
    assert "**Mine**" in texts(app.markdown)


def go_on(app, name):
    """To another page by the navigation, which drops the query string."""
    for parameter in list(app.query_params):
        del app.query_params[parameter]
    run(app.switch_page(script(name)))


def test_a_page_keeps_what_another_page_set():
    link = {"model": "Qwen/Qwen2.5-3B", "num_hidden_layers": "12"}
    app = page(**link, batch="4", tp="2")
    go_on(app, "train")
    assert dict(app.query_params) == link
    ask(app, micro_batch=2)
    assert dict(app.query_params) == {**link, "micro_batch": "2"}
    go_on(app, "weigh")
    assert dict(app.query_params) == {**link, "batch": "4", "tp": "2"}


def test_a_slider_that_differs_says_what_it_does():
    """Qwen2.5-3B: two KV heads of 128 more for each of 36 layers: 2 x (2048 + 1) x 256 x 36 parameters."""
    app = page(model="Qwen/Qwen2.5-3B", num_key_value_heads="4")
    own = "KV heads 2 → 4: KV cache ×2, +37.77\N{NO-BREAK SPACE}M parameters"
    assert app.button(key="reset_num_key_value_heads").label == own
    assert "Changed: KV heads 2 → 4" in texts(app.caption)
    run(app.slider(key="field_num_hidden_layers").set_value(18))
    assert app.button(key="reset_num_key_value_heads").label == own  # each by itself
    layers = app.button(key="reset_num_hidden_layers").label
    assert layers.startswith("Layers 36 → 18: KV cache −50.0%, −1.39\N{NO-BREAK SPACE}B")
    # what 16 query heads share evenly, up to multi-head attention
    assert app.select_slider(key="field_num_key_value_heads").options == ["1", "2", "4", "8", "16"]
    ask(app, batch=4)
    run(app.button(key="reset_everything").click())
    assert dict(app.query_params) == {"model": "Qwen/Qwen2.5-3B"}


def test_a_slider_of_other_limits_shows_the_model_s_value():
    """Both have 8 KV heads; the slider reaches as far as the query heads, 32 and 64."""
    app = page(model="Qwen/Qwen3-8B")
    ask(app, model="openai/gpt-oss-120b")
    assert newest(app.select_slider, "field_num_key_value_heads").value == 8


@pytest.mark.slow
def test_each_arrow_key_on_heads_experts_and_hidden_size_leads_to_a_model():
    """An override that the model does not allow is refused by `read`."""
    seen = set()
    for preset in models().values():
        _, settings = read_with_settings(preset.config)
        shared = sidebar.shares_hidden_size(preset.config, settings)
        for name, control in controlled(settings).items():
            own = settings[name]
            if control not in (EXPERTS, HEADS, HIDDEN, KV_HEADS, PER_TOKEN) or not own or "moe_topk" in settings:
                continue  # zero experts: a dense one of such a family; moe_topk may be a list and has no slider
            offered = sidebar.choices(control, settings, own, own, shared)
            if not offered:
                grid = sidebar.on_grid(control, settings, own, shared)
                low, high = grid.span(own)
                assert (own - low) % grid.step == 0, (preset.name, name)
                offered = range(low, high + 1, grid.step)[:: max(1, (high - low) // grid.step // 4)]
            for value in offered:
                read(override(preset.config, {name: value}))
                seen.add(name)
    assert {"num_attention_heads", "num_key_value_heads", "hidden_size", "n_head", "n_embd"} <= seen


@pytest.mark.parametrize(
    ("model", "heads"),
    [("meta-llama/Llama-3.1-8B", ["8", "16", "32", "64", "128"]), ("openai-community/gpt2", ["1", "2", "3", "4"])],
)
def test_query_heads_that_share_the_hidden_size_divide_it(model, heads):
    """Llama: 8 KV heads, 4,096 wide. GPT-2: 768 wide."""
    name = "num_attention_heads" if "Llama" in model else "n_head"
    assert newest(page(model=model).select_slider, f"field_{name}").options[: len(heads)] == heads


def said(*sliders):
    """What a browser says of sliders, each with its value."""
    states = WidgetStates()
    for slider, value in sliders:
        states.widgets.add(id=slider.id).double_array_value.data.append(value)
    return states


def test_the_first_key_after_a_restart_is_heard():
    """A browser whose server was started again sends its widgets as they were left, one of them moved."""
    app = page(model="Qwen/Qwen2.5-3B")
    run(app.slider(key="field_num_hidden_layers").set_value(20))
    run(app.button(key="reset_all").click())
    slider = app.slider(key="field_num_hidden_layers~1")
    app = AppTest.from_file(ROOT / "pages" / "router.py", default_timeout=60)
    app.query_params.update(model="Qwen/Qwen2.5-3B", batch="4")
    app._run(said((slider, 35)))
    assert dict(app.query_params) == {"model": "Qwen/Qwen2.5-3B", "batch": "4", "num_hidden_layers": "35"}
    assert app.slider(key="field_num_hidden_layers~1").value == 35


WIDTH, FFN, HEAD = "field_hidden_size", "field_intermediate_size", "field_head_dim"


def test_a_key_held_down_moves_one_slider():
    """Where a wider model moves two others, new ones take their places, and a browser that has not heard of it says the
    old ones as they were: the reader moved neither."""
    app = page(model="Qwen/Qwen2.5-3B")
    old = [(slider, slider.value) for slider in (app.slider(key=key) for key in (FFN, HEAD))]
    hidden = app.slider(key=WIDTH)
    for width in (2112, 2176, 2240):
        app._run(said(*old, (hidden, width)))
        assert dict(app.query_params) == {"model": "Qwen/Qwen2.5-3B", "hidden_size": str(width)}
    assert app.slider(key=WIDTH).value == 2240
    assert [newest(app.slider, name).value for name in (FFN, HEAD)] == [round(11_008 / 2240, 4), 2240 // 16]


def test_a_slider_goes_back_to_where_the_server_took_it_from():
    app = page(model="Qwen/Qwen2.5-3B")
    before = app.slider(key=FFN).value
    run(app.slider(key=WIDTH).set_value(2112))
    run(newest(app.slider, FFN).set_value(before))
    assert app.query_params["intermediate_size"] == str(round(before * 2112))


def test_an_address_from_before_a_click_is_not_gone_back_to():
    """The browser says the address that it has with what its reader did next."""
    app = page(model="Qwen/Qwen2.5-3B")
    old = dict(app.query_params)
    run(app.slider(key=WIDTH).set_value(2112))
    app.query_params.clear()
    app.query_params.update(old)
    run(newest(app.slider, HEAD).set_value(64))
    assert {"hidden_size", "head_dim"} <= app.query_params.keys()


def test_eight_h200_for_64_users_at_32k():
    """With TP 8 each GPU holds the whole cache; DP 8 + EP 8 is one click away."""
    link = {"gpu": "h200-sxm", "batch": "64", "context": "32768"}
    app = page(model="deepseek-ai/DeepSeek-V3", tp="8", **link)
    assert finding(app) == "DeepSeek-V3 does not fit 8 × H200 SXM 141GB"
    assert any("With TP 8." in text for text in texts(app.markdown))
    run(app.button(key="lever_0").click())
    assert finding(app) == "DeepSeek-V3 fits on 8 × H200 SXM 141GB"
    assert any("With DP 8, EP 8." in text for text in texts(app.markdown))


@pytest.mark.parametrize(
    "link",
    [
        pytest.param(
            {"model": "meta-llama/Llama-3.3-70B-Instruct", "gpu": "a100-sxm-40gb", "batch": "4", "num_gpus": "3"},
            id="more GPUs",
        ),
        pytest.param(
            {"model": "Qwen/Qwen2-57B-A14B", "gpu": "rtx-4080", "batch": "64", "context": "4096", "num_gpus": "8"},
            id="more GPUs in another layout",
        ),
        pytest.param(
            {"model": "Qwen/Qwen3-30B-A3B", "gpu": "rx-7900-gre", "batch": "4", "context": "1", "num_gpus": "4"},
            id="other formats",
        ),
    ],
)
def test_levers_of_a_number_of_gpus_lead_to_what_they_promise(link):
    """The layout is found for the number; a click keeps it where the search would find another one, and its other
    degrees where a lever changes some."""
    app = page(engine="transformers", **link)
    offered = [text for text in texts(app.markdown) if text.endswith("headroom per GPU")]
    assert offered
    for number, text in enumerate(offered):
        after = page(engine="transformers", **link)
        run(after.button(key=f"lever_{number}").click())
        assert " fits on " in finding(after)
        assert facts(after)["headroom per GPU"] == re.search("fits, (.*) headroom per GPU", text)[1]


def test_a_gpu_on_which_the_engine_does_not_run_is_not_the_nearest():
    """SGLang loads no GGUF on AMD's GPUs, however much memory they have."""
    link = {"model": "allenai/OLMo-2-1124-7B", "engine": "sglang", "weights": "Q4_0", "context": "131072"}
    app = page(gpu="mi355x,mtt-s5000", **link)
    assert finding(app) == "OLMo-2-1124-7B fits, with flags, on MTT S5000"
    assert "does not run" not in " ".join(texts(app.error))


def test_a_format_in_which_the_engine_does_not_compute_is_said():
    app = page(model="Qwen/Qwen2.5-3B", engine="transformers", weights="Q4_K_M")
    assert any("does not compute in Q4_K_M" in text for text in texts(app.warning))


def test_only_the_open_section_is_computed_and_the_link_says_which():
    assert set(charts(page())) == {"shares", "gpus"}
    app = page(tab="length")
    assert set(charts(app)) == {"contexts"}
    assert dict(app.query_params) == {"tab": "length"}


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_tokens_whose_cache_a_disk_keeps(lang):
    """Qwen3-8B: 36 layers of keys and values of 8 heads of 128 in 2 bytes, 147,456 a token. Windows stop growing."""
    app = page(model="Qwen/Qwen3-8B", gpu="h100-sxm", tab="length", lang=lang)
    assert any("**6,781,684" in text and "144.00 KiB" in text and " 827 " in text for text in texts(app.markdown))
    for name in ("google/gemma-3-27b-it", "state-spaces/mamba-2.8b-hf", "BAAI/bge-m3"):  # the last has no cache
        other = page(model=name, gpu="h100-sxm", tab="length", lang=lang)
        assert not any("max_local_disk_size" in text for text in texts(other.markdown))


@pytest.mark.slow
def test_what_nvidia_smi_will_show():
    """Of an H100 vLLM takes 92 %, and a context lies outside; what it does not work with is cache."""
    app = page(model="Qwen/Qwen3-8B", gpu="h100-sxm", tab="length")
    (sentence,) = [text for text in texts(app.markdown) if "nvidia-smi" in text]
    used, cache = (float(part.removesuffix(" GiB")) for part in sentence.split("**")[1::2])
    budget = report(dict(models()["Qwen/Qwen3-8B"].config), gpus=[gpus()["h100-sxm"]]).kv_budget[0]
    assert used == pytest.approx((budget.requested + (budget.outside_low + budget.outside_high) / 2) / 2**30, abs=0.01)
    assert cache == pytest.approx(budget.bytes / 2**30, abs=0.01)
    other = page(model="Qwen/Qwen3-8B", gpu="h100-sxm", tab="length", engine="transformers")
    assert not [text for text in texts(other.markdown) if "nvidia-smi" in text]
