"""Charts say what they were given: the numbers in a figure are the numbers that went in, and parts add up."""

from itertools import combinations
from typing import get_args

import pytest
from plotly.graph_objects import Figure

from calc import Architecture, Workload, report, training_report
from calc.model.tensor import Component, Tensor
from pages.parts import words
from pages.parts.outputs import charts, parameter_shares
from presets import gpus, models
from tests.cases import in_one_test

GIB = 2**30
MODELS = ["deepseek-ai/DeepSeek-V3", "Qwen/Qwen2.5-3B", "mistralai/Mistral-7B-v0.1", "openai/gpt-oss-20b"]


def weighed(model, **workload):
    return report(models()[model].config, workload=Workload(**workload))


def each(result):
    """The memory of one GPU of each kind."""
    return [verdict.memory for verdict in result.verdicts]


def drawn(figure):
    """A figure that Plotly has checked."""
    return Figure(data=figure["data"], layout=figure["layout"])


def bars(figure):
    return [trace for trace in figure.data if trace.type == "bar"]


@in_one_test("model", models())
def test_slices_are_every_tensor_of_the_total_once(model):
    architecture = Architecture.from_config(models()[model].config)
    rows = parameter_shares.share_rows(architecture.tensors())
    assert sum(row.parameters for row in rows) == architecture.parameters().total
    assert len({row[:3] for row in rows}) == len(rows)
    assert {row.component for row in rows} <= words.PARTS.keys()


def test_what_is_listed_apart_is_in_no_slice():
    rows = parameter_shares.share_rows(
        [Tensor("a.weight", (2, 3), "mlp"), Tensor("b", (5,), "router", excluded_as="vision")]
    )
    assert rows == [("mlp", "", "a", 6)]


def test_slices_are_named_after_layers_and_tensors():
    tensors = Architecture.from_config(models()["deepseek-ai/DeepSeek-V3"].config).tensors()
    rows = {row[:3]: row.parameters for row in parameter_shares.share_rows(tensors)}
    assert rows["attention", "layers 3 to 60", "q_a_proj"] == 58 * 7168 * 1536
    assert rows["experts_routed", "layers 3 to 60", "down_proj"] == 58 * 256 * 7168 * 2048
    assert rows["embedding", "", "embed_tokens"] == 129280 * 7168


@pytest.mark.parametrize("model", MODELS)
def test_children_add_up_to_their_parents(model):
    architecture = Architecture.from_config(models()[model].config)
    parameters = architecture.parameters()
    root = parameter_shares.tree(parameters.total, parameter_shares.share_rows(architecture.tensors()))
    assert root[1] == parameters.total

    def whole(node):
        name, size, _, _, below = node
        assert isinstance(size, int)
        assert len({inner[0] for inner in below}) == len(below), name
        assert not below or sum(whole(inner) for inner in below) == size, name
        return size

    whole(root)
    colors = {words.color(name): size for name, size in parameters.components.items()}
    assert {node[2]: node[1] for node in root[4]} == colors


@pytest.mark.parametrize("model", MODELS)
def test_gpu_bars_are_the_memory_and_the_lines_the_capacity(model):
    result = weighed(model)
    figure = drawn(charts.gpu_bars(result.verdicts, result.memories))
    *parts, hatched = bars(figure)
    for name, bar in zip(words.SERVED, parts, strict=True):
        assert bar.x == tuple(getattr(verdict.memory, name) / GIB for verdict in result.verdicts)
        assert bar.marker.color == words.COLORS[name]
        assert bar.y == tuple(gpus()[verdict.gpu].name for verdict in result.verdicts)
    for i, verdict in enumerate(result.verdicts):
        assert hatched.x[i] == (verdict.memory.overhead_high - verdict.memory.overhead) / GIB
        assert sum(bar.x[i] for bar in bars(figure)) == pytest.approx(verdict.memory.high / GIB)
    assert figure.data[-1].x == tuple(verdict.usable / GIB for verdict in result.verdicts)
    for text, verdict in zip(figure.layout.yaxis.ticktext, result.verdicts, strict=True):
        assert f"{verdict.usable / GIB:,.2f} GiB" in text


@pytest.mark.parametrize("model", MODELS)
def test_context_bars_are_the_memory_at_each_context(model):
    result = weighed(model, batch=4)
    figure = drawn(charts.context_bars(result))
    for name, bar in zip(words.SERVED, bars(figure), strict=False):
        assert bar.x == ("1k", "2k", "4k", "8k", "16k", "32k", "64k", "128k")
        assert bar.y == tuple(getattr(memory, name) / GIB for memory in result.by_context.values())


@pytest.mark.parametrize(
    ("batch", "first"),
    [
        pytest.param(1, None, id="never"),  # 128k tokens x 36,864 bytes = 4.5 GiB < 5.75 GiB of weights
        pytest.param(2, "128k", id="at-the-end"),
        pytest.param(8, "32k", id="between"),
        pytest.param(256, "1k", id="at-once"),
    ],
)
def test_overtaking_is_marked_where_it_first_happens(batch, first):
    figure = drawn(charts.context_bars(weighed("Qwen/Qwen2.5-3B", batch=batch)))
    texts = [note.text for note in figure.layout.annotations if note.xref != "paper"]
    assert texts == ([f"KV cache outweighs the weights from {first}"] if first else [])
    dotted = [line for line in figure.layout.shapes if line.line.dash == "dot"]
    assert [bars(figure)[0].x[line.x0] for line in dotted] == ([first] if first else [])


def test_the_chosen_context_and_each_capacity_are_marked():
    """From 2k, since 262,144 tokens end it, and with the context between two powers of two that is asked for."""
    result = weighed("Qwen/Qwen3-8B", context=200_000)
    figure = drawn(charts.context_bars(result))
    columns = bars(figure)[0].x
    assert columns == ("2k", "4k", "8k", "16k", "32k", "64k", "128k", "200,000", "256k")
    assert figure.layout.xaxis.ticktext[7] == "<b>200,000</b>"
    (band,) = [shape for shape in figure.layout.shapes if shape.type == "rect"]
    assert (band.x0 + band.x1) / 2 == 7
    ends = [line.y0 for line in figure.layout.shapes if line.line.dash == "dash"]
    usable = sorted(verdict.usable / GIB for verdict in result.verdicts)
    assert ends[0] == usable[0]
    assert set(ends) <= set(usable)
    tallest = max(memory.high for memory in result.by_context.values()) / GIB
    assert ends[-1] >= tallest  # the first GPU on which the longest context would fit
    near = [any(0 <= size - end < charts.CLOSE * ends[-1] for end in ends) for size in usable if size <= ends[-1]]
    assert all(near)


@pytest.mark.parametrize("theme", [charts.LIGHT, charts.DARK], ids=["light", "dark"])
def test_figures_are_small_and_bring_their_own_looks(theme, monkeypatch):
    monkeypatch.setattr(charts, "theme", lambda: theme)
    result = weighed("deepseek-ai/DeepSeek-V3")
    step = training_report(models()["deepseek-ai/DeepSeek-V3"].config)
    tensors = Architecture.from_config(models()["deepseek-ai/DeepSeek-V3"].config).tensors()
    for figure in (
        parameter_shares.pie_frame(result.parameters.total, parameter_shares.share_rows(tensors)),
        charts.gpu_bars(result.verdicts, result.memories),
        charts.context_bars(result),
        charts.gpu_bars(step.verdicts, step.memories, words.TRAINED),
        charts.step_bars({str(tokens): memory for tokens, memory in step.by_sequence.items()}, ""),
    ):
        figure = drawn(figure)
        assert len(figure.to_json()) < 60_000
        assert figure.layout.font.color == theme.text
        assert figure.layout.paper_bgcolor == figure.layout.plot_bgcolor == "rgba(0,0,0,0)"
        assert figure.layout.uirevision


def test_every_part_has_one_colour_and_a_label():
    assert set(get_args(Component)) <= words.COLORS.keys()
    assert words.COLORS.keys() <= words.PARTS.keys()
    assert len(set(words.COLORS.values())) == len(words.COLORS)


# Machado, Oliveira and Fernandes 2009, table 1, severity 1.0: linear RGB as each kind of eye sees it.
SIGHT = {
    "usual": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.1523, 1.0526, -0.2049), (0.1145, 0.7863, 0.0992), (-0.0039, -0.0481, 1.052)),
    "deuteranopia": ((0.3673, 0.8606, -0.228), (0.2801, 0.6725, 0.0474), (-0.0118, 0.0429, 0.9689)),
}


def lab(color, sight):
    """CIE L*a*b* of an sRGB colour, under D65."""
    values = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in values]
    r, g, b = (min(1, max(0, sum(m * v for m, v in zip(row, linear, strict=True)))) for row in sight)
    xyz = (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505, 0.2126 * r + 0.7152 * g + 0.0722 * b, 0.0193 * r
    xyz = (xyz[0], xyz[1], (xyz[2] + 0.1192 * g + 0.9505 * b) / 1.089)
    x, y, z = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in xyz)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("sight", SIGHT)
def test_colours_of_one_figure_can_be_told_apart(sight):
    memory = {*words.SEEING, *words.GENERATED}
    for figure in (words.SEEING, words.GENERATED, words.COLORS.keys() - memory):
        for one, other in combinations([words.COLORS[part] for part in figure], 2):
            pairs = zip(lab(one, SIGHT[sight]), lab(other, SIGHT[sight]), strict=True)
            assert sum((a - b) ** 2 for a, b in pairs) ** 0.5 > 12, (one, other)


def test_a_vision_encoder_is_a_part_of_every_figure_of_memory():
    """google/gemma-3-4b-it: 419,816,304 parameters of tower and projector, by transformers on the meta device."""
    result = weighed("google/gemma-3-4b-it")
    for figure in (
        charts.gpu_bars(result.verdicts, result.memories),
        charts.context_bars(result),
        charts.stage_bars(result.stages),
    ):
        (tower,) = [bar for bar in bars(drawn(figure)) if bar.name == "Vision encoder"]
        sizes = tower.x if tower.orientation == "h" else tower.y
        assert set(sizes) == {2 * 419_816_304 / 2**30}


def test_short_names_of_gpus_are_short_and_differ():
    names = [gpu.name for gpu in gpus().values()]
    short = list(map(charts.shortened, names))
    assert len(set(short)) == len(set(names))
    assert max(map(len, short)) <= 25
    assert charts.shortened("RTX PRO 6000 Blackwell Max-Q") == "RTX PRO 6000 …Max-Q"
