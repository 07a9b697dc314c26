"""Several models on the same GPUs, without a browser: the page shows what calc says, the link has the list."""

import pytest

from calc import Workload
from calc.serving.engines import ENGINES
from calc.serving.shared_gpus import Server, share_gpus
from pages.parts.outputs.preview import headline
from pages.parts.state.query import TOGETHER
from presets import gpus, models
from tests.pages.app import facts, finding, page, rows, run, texts

CHAT = {"model": "Qwen/Qwen3-8B", "gpu": "l4,rtx-4090,h100-sxm", "context": "8192", "batch": "4"}
NEIGHBOURS = "BAAI/bge-m3,context=512,batch=8;Qwen/Qwen3-Reranker-0.6B"


def found(gpu, *asked):
    engine = ENGINES["vllm"]()
    return share_gpus([Server(name, models()[name].config, engine, work) for name, work in asked], gpus()[gpu])


def test_the_page_is_the_calculation():
    """Of several GPUs the smallest on which all start."""
    app = page("together", **CHAT, share_with=NEIGHBOURS)
    works = Workload(context=8192, batch=4), Workload(context=512, batch=8), Workload()
    shared = found("h100-sxm", *zip((CHAT["model"], "BAAI/bge-m3", "Qwen/Qwen3-Reranker-0.6B"), works, strict=True))
    assert finding(app) == "3 models fit together on H100 SXM 80GB"
    assert facts(app)["left per GPU"] == f"{shared.left / 2**30:,.2f} GiB"
    shown = rows(app, "shared_servers")
    assert [row["Share"] for row in shown] == [each.share for each in shared.servers]
    assert [row["Taken, GiB"] for row in shown] == [round(each.taken / 2**30, 4) for each in shared.servers]
    assert [row["All start"] for row in rows(app, "shared_each")] == [False, False, True]
    assert [code.value for code in app.code] == [each.launch.text for each in shared.servers]


def test_where_no_model_starts_the_bar_is_empty():
    app = page("together", model="deepseek-ai/DeepSeek-V3", gpu="l4,t4")
    assert finding(app).startswith("0 of 1 models fit on")
    assert app.error


def test_a_list_is_made_and_unmade():
    app = page("together", **CHAT)
    assert finding(app).startswith("Qwen3-8B alone leaves")
    run(app.button(key="add_BAAI/bge-m3").click())
    assert app.query_params["share_with"] == "BAAI/bge-m3"
    run(app.number_input(key="neighbour_0_batch").set_value(8))
    run(app.selectbox(key="neighbour_0_context").set_value(512))
    run(app.selectbox(key="neighbour_0_weights").set_value("fp8"))
    assert app.query_params["share_with"] == "BAAI/bge-m3,context=512,batch=8,weights=fp8"
    run(app.selectbox(key="add_neighbour").set_value("Qwen/Qwen3-0.6B"))
    assert app.query_params["share_with"].endswith(";Qwen/Qwen3-0.6B")
    run(app.button(key="remove_neighbour_0").click())
    assert app.query_params["share_with"] == "Qwen/Qwen3-0.6B"
    run(app.button(key="remove_neighbour_0").click())
    assert "share_with" not in app.query_params


def test_servers_take_turns():
    app = page("together", **CHAT | {"gpu": "rtx-4090", "batch": "1"}, share_with="Qwen/Qwen3-4B")
    run(app.segmented_control(key="sleep_level").set_value(1))
    assert app.query_params["sleep_level"] == "1"
    assert finding(app) == "2 models fit in turn on RTX 4090"
    assert "host memory" in facts(app)
    assert all("--enable-sleep-mode" in code.value for code in app.code)


def test_who_does_not_start_is_said():
    app = page("together", **CHAT | {"gpu": "rtx-4090"}, share_with="Qwen/Qwen3-4B")
    assert finding(app) == "1 of 2 models fit on RTX 4090"
    assert "Qwen/Qwen3-4B: It needs" in app.error[0].value


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ({"share_with": "BAAI/bge-m3,contxt=5"}, "is not context=N"),
        ({"share_with": "no name"}, "The link says share_with="),
        ({"share_with": ";".join(["BAAI/bge-m3"] * 16)}, "The link says share_with="),
    ],
)
def test_a_link_without_sense_is_a_sentence(query, sentence):
    app = page("together", **CHAT, **query)
    assert any(sentence in text for text in texts(app.warning))
    assert finding(app).startswith("Qwen3-8B alone")


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ({"engine": "sglang"}, "under vLLM"),
        ({"gpu_memory_utilization": "0.5"}, "leave it out"),
        ({"pp": "2"}, "tensor parallelism"),
    ],
)
def test_what_is_not_covered_is_refused_and_the_list_stays(query, sentence):
    app = page("together", **CHAT, share_with="BAAI/bge-m3", **query)
    assert any(sentence in text for text in texts(app.error))
    assert app.button(key="remove_neighbour_0")


def test_no_gpu_no_answer():
    app = page("together", **CHAT | {"gpu": "none"})
    assert "No GPU is chosen" in app.info[0].value


def test_a_link_that_is_handed_on_says_what_was_found():
    query = {**CHAT, "share_with": NEIGHBOURS}
    assert headline(TOGETHER, query).startswith("3 models fit together on H100 SXM 80GB")
    assert headline(TOGETHER, query | {"share_with": "someone/else"}) == "Weighbridge"
