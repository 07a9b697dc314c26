"""What is wrong with a link, a paste or a combination of choices is said, and nothing ends in an exception."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from calc.serving.engines import ENGINES
from calc.text import pack
from pages.parts.inputs.fields import CONTROLS
from pages.parts.state.query import EVERYTHING, FORMERLY
from pages.parts.state.scenario import places
from presets import models
from tests.pages.app import DRAWERS, ask, components, finding, metrics, opened, page, question, run, texts


def test_an_impossible_combination_offers_the_nearest():
    app = page(model="meta-llama/Llama-3.1-8B", num_key_value_heads="7")
    assert "does not divide" in app.sidebar.error[0].value
    run(app.button(key="near_4").click())
    assert not app.error
    assert app.query_params["num_key_value_heads"] == "4"


def test_nonsense_in_the_link_is_named():
    app = page(model="meta-llama/Llama-3.1-8B", batch="many", context="4096")
    assert "batch is a whole number" in app.warning[0].value
    assert question(app)["context"] == 4096
    assert metrics(app)["Parameters"] == "8.03 B"


def test_an_old_link_is_one_box_and_its_numbers():
    """Six parts that mean nothing today; the others are read as the first version wrote them: 128 KiB a token, which is
    2 x 32 layers x 8 heads x 128 x 2 bytes, times 8 x 32,768 tokens; two data-parallel ranks are two GPUs."""
    gone = {"zero": "9", "tp": "one", "pages": "2", "spare": "0.1", "attention": "dense", "master": "yes"}
    read = {"model": "meta-llama/Llama-3.1-8B", "gpu": "h100-sxm", "batch": "8", "context": "32768"}
    app = page(**read, attention_dp="2", prefill="2048", **gone)
    (box,) = app.warning
    assert [name for name in gone if f" {name}=" not in box.value] == []
    assert len(box.value.splitlines()) == len(gone)
    shown = metrics(app)
    assert (shown["Parameters"], shown["KV cache per token"], shown["KV cache, total"]) == (
        "8.03 B",
        "128.00 KiB",
        "32.00 GiB",
    )
    assert finding(app) == "Llama-3.1-8B fits on 2 × H100 SXM 80GB"


def test_a_layout_that_does_not_divide_says_so_beside_its_control():
    app = page(model="Qwen/Qwen2.5-3B", tp="3")
    assert "tp is 3" in app.sidebar.error[0].value
    assert app.number_input(key="tp").value == 3  # its drawer is open
    run(app.button(key="near_2").click())
    assert not app.error


@pytest.mark.parametrize(
    ("query", "sentence", "button"),
    [
        ({"generated": "9000"}, "leaves no prompt", "near_0"),
        ({"kv": "fp8_ds_mla"}, "latent of MLA", "near_fp8"),
        ({"kv_cache_memory_bytes": "9", "num_gpu_blocks_override": "9"}, "both set the size", None),
        ({"speculative": "mtp"}, "no multi-token prediction", None),
    ],
)
def test_choices_that_exclude_each_other_end_in_a_sentence(query, sentence, button):
    app = page(model="Qwen/Qwen2.5-3B", **query)
    assert sentence in app.sidebar.error[0].value
    assert "Memory per GPU" not in metrics(app)
    if button is not None:
        run(app.button(key=button).click())
        assert not app.error


def test_a_text_that_an_option_does_not_take_is_named():
    app = opened(page(model="Qwen/Qwen2.5-3B"), *DRAWERS)
    run(app.text_input(key="version").set_value("newest"))
    assert "version is a text such as 0.33" in app.sidebar.error[0].value
    run(app.text_input(key="version").set_value(""))
    assert not app.error


def test_a_pasted_config_travels_in_the_link():
    app = opened(page(), "own_drawer")
    app.text_area(key="own_text").set_value('{"model_type": "llama", "num_key_value_heads": 8}')
    run(app.button(key="own_weigh").click())
    # the class's defaults, with 8 KV heads: Llama-2-7B's 6,738,415,616 less 32 layers of 2 x 4096 x 3072
    assert any("5,933,109,248" in caption for caption in texts(app.caption))
    again = page(pasted=app.query_params["pasted"])
    assert metrics(again) == metrics(app)
    ask(again, model="Qwen/Qwen2.5-3B")
    assert dict(again.query_params) == {"model": "Qwen/Qwen2.5-3B"}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "There is no text"),
        ("[1]", "object of fields"),
        ('{"model_type": "nonesuch"}', "is not known"),
        ('{"model_type": "llama", "hidden_size": "4096"}', "must be a whole number"),
        ("[" * 100_000, "nested too deep"),
    ],
)
def test_a_paste_that_can_not_be_read_says_why(text, sentence):
    app = opened(page(), "own_drawer")
    app.text_area(key="own_text").set_value(text)
    run(app.button(key="own_weigh").click())
    assert sentence in app.sidebar.error[0].value
    assert metrics(app)["Parameters"] == "8.19 B"


@pytest.mark.parametrize("name", ["a/.", "-x/y", "a/b.git", "模型/名"])
def test_what_the_hub_could_not_call_a_model(name):
    """Its client refuses such a name before it asks; from its cache that was an exception."""
    app = page(model=name)
    assert name in app.warning[0].value
    assert metrics(app)
    app = page("compare", **{"with": name})
    assert name in app.warning[0].value


@pytest.mark.parametrize("name", ["weigh", "train", "plan"])
def test_a_storage_with_too_many_patterns(name):
    stored = {"quant_method": "fp8", "ignored_layers": [f"re:.*layers.{n}.*" for n in range(501)]}
    app = page(name, pasted=pack({"model_type": "llama", "quantization_config": stored}))
    assert "501 patterns" in app.error[0].value


def test_a_damaged_link_to_a_pasted_config():
    app = page(pasted="AAAA", batch="2")
    assert "pasted" in app.warning[0].value
    assert question(app)["batch"] == 2


def test_an_unknown_family_can_be_read_as_llama_and_says_so_everywhere():
    app = opened(page(), "own_drawer")
    app.text_area(key="own_text").set_value('{"model_type": "nonesuch", "num_hidden_layers": 2}')
    run(app.button(key="own_weigh").click())
    run(app.button(key="own_assume").click())
    assert not app.error
    assert "nonesuch" in app.title[0].value
    assert "read as a Llama-like decoder" in app.warning[0].value
    again = page(pasted=app.query_params["pasted"])
    assert "read as a Llama-like decoder" in again.warning[0].value


@pytest.mark.parametrize(
    ("query", "button", "parameter"),
    [
        ({"model": "meta-llama/Llama-3.1-8B", "num_key_value_heads": "7"}, "main_4", "num_key_value_heads"),
        ({"model": "Qwen/Qwen3-30B-A3B", "expert_ranks": "3"}, "main_1", "ep"),
        ({"model": "Qwen/Qwen3-30B-A3B", "ep": "3", "v": "2"}, "main_1", "ep"),
        ({"model": "Qwen/Qwen3-8B", "tp": "3"}, "main_2", "tp"),
    ],
)
def test_what_is_wrong_can_be_put_right_in_the_main_area_too(query, button, parameter):
    app = page(**query)
    assert "Memory per GPU" not in metrics(app)
    run(app.button(key=button).click())
    assert metrics(app)["Memory per GPU"].endswith("GiB")
    assert app.query_params.get(parameter) != query.get(parameter, "3")


def test_the_link_of_what_is_refused_is_its_own():
    """And not that of the last answer, which stands below it."""
    app = page(model="Qwen/Qwen3-8B", num_hidden_layers="16")
    run(app.slider(key="field_num_attention_heads").set_value(30))
    assert "Memory per GPU" in metrics(app)
    assert "num_hidden_layers=16&num_attention_heads=30" in components(app, "weighbridge_copy")["copy"]["text"]


ENGINE_FIELDS = [name for engine in ENGINES for name in places(EVERYTHING, engine)]
HOSTILE = {
    **dict.fromkeys(
        (*ENGINE_FIELDS, *CONTROLS, *FORMERLY, "prefill"),
        ("", "0", "1", "-1", "3", "512", "1024", "65536", "9" * 5000, "nan", "²", "true"),
    ),
    "model": tuple(models()),
    "pasted": ("AAAA", "=", pack({"model_type": "llama", "num_hidden_layers": 1}), pack({"x": 1})),
    "assume": ("llama", "x"),
    "gpu": ("", ",", "h100-sxm", "h900", "own:48GiB:960GB/s"),
    "method": ("lora", "qlora", "pretrain", "x"),
    "weights": ("Q4_K_M", "int4", "mxfp4", "fp3"),
    "kv": ("fp8_ds_mla", "int4", "x"),
    "engine": (*ENGINES, "x"),
    "attention": ("eager", "x"),
    "speculative": ("mtp", "eagle", "eagle3", "draft_model", "ngram"),
    "model_draft": ("Qwen/Qwen3-0.6B", "x"),
    "speculative_algorithm": ("NEXTN", "EAGLE3", "STANDALONE", "NGRAM"),
    "speculative_draft_model_path": ("Qwen/Qwen3-0.6B", "x"),
    "v": ("2", "x"),
    **dict.fromkeys(places(("overhead",)), ("0-0", "1024-1024", "2-1", "nan-nan", "-")),
}


@given(
    st.sampled_from(["weigh", "train", "plan", "hardware", "verify", "accuracy"]),
    st.sampled_from(list(models())),
    st.lists(st.sampled_from(list(HOSTILE)), max_size=5, unique=True).flatmap(
        lambda names: st.fixed_dictionaries({name: st.sampled_from(HOSTILE[name]) for name in names})
    ),
    st.sampled_from(["", *DRAWERS]),
)
@settings(max_examples=settings.default.max_examples // 3)
@example("verify", "google/recurrentgemma-2b", {"num_hidden_layers": "1"}, "")  # no layer left that has a cache
@example("weigh", "meta-llama/Llama-3.1-8B", {"num_hidden_layers": "9" * 5000}, "")
@example("train", "mistralai/Mistral-7B-v0.1", {"num_hidden_layers": "512", "pp": "512", "gpu": ""}, "")
@example("weigh", "Qwen/Qwen3-8B", {"kv_cache_memory_bytes": str(2**60)}, "engine_drawer")
@pytest.mark.slow
@pytest.mark.drawn
def test_no_link_ends_in_an_exception(name, model, query, drawer):
    app = page(name, **{"model": model, **query})
    if drawer:
        opened(app, drawer)


def test_a_refused_value_keeps_the_last_answer():
    app = page(model="Qwen/Qwen3-8B")
    run(app.slider(key="field_num_attention_heads").set_value(36))
    assert "does not divide" in app.sidebar.error[0].value
    assert metrics(app)["KV cache per token"] == "144.00 KiB"
    assert "Below, dimmed: the last answer there was." in texts(app.caption)
    run(app.button(key="near_9").click())
    assert metrics(app)["KV cache per token"] == "162.00 KiB"
    assert not app.error


@pytest.mark.parametrize(
    ("context", "sentence"), [("4096", "learned positions for 1,024 tokens"), (None, None), ("512", None)]
)
def test_learned_positions_end_somewhere(context, sentence):
    """GPT-2 has a row of `wpe` for each of 1,024 tokens."""
    app = page(model="openai-community/gpt2", **({} if context is None else {"context": context}))
    assert question(app)["context"] == int(context or 1024)
    if sentence is None:
        assert "fits on" in finding(app)
    else:
        assert sentence in app.error[0].value
        run(app.button(key="main_1024").click())
        assert "fits on" in finding(app)
