"""Each line of the calculations by hand, and where the hand went wrong."""

import pytest

from calc import Architecture
from presets import models
from presets.studies import STUDIES, hand_section

ARCHITECTURES = {name: Architecture.from_config(models()[name].config) for name in STUDIES}
WRONG = {
    "study/Qwen3-8B": {"Norms of queries and keys, one layer": 7936},
    "study/Qwen3-8B-MHA": {"Norms of queries and keys, one layer": 7936},
    "mistralai/Mistral-7B-v0.1": {
        "Matrices of attention, one layer": 25_165_824,
        "Norms before attention and feed-forward, one layer": -8192,
        "Final norm": -4096,
    },
    "Qwen/Qwen2.5-3B": {"Output head": 311_164_928},
    "Qwen/Qwen3-0.6B": {},
    "deepseek-ai/DeepSeek-V3": {"Attention, one layer": 18_413_568},
}
"""The lines that are wrong, by study, and by how much."""


def value(text):
    return eval(text.replace("·", "*").replace("²", "**2"))


@pytest.mark.parametrize("name", STUDIES)
def test_each_line_by_hand_comes_to_its_figure(name):
    for line in STUDIES[name].lines:
        assert value(str(line.written)) == line.hand, line.what


@pytest.mark.parametrize("name", STUDIES)
def test_where_the_hand_went_wrong(name):
    lines = STUDIES[name].lines
    off = {str(line.what): line.hand - line.exact(ARCHITECTURES[name]) for line in lines}
    assert {what: difference for what, difference in off.items() if difference} == WRONG[name]
    assert {str(line.what) for line in lines if line.why is not None} == set(WRONG[name])


@pytest.mark.parametrize(
    ("name", "hand", "exact"),
    [
        pytest.param("study/Qwen3-8B", 6_916_935_680, 6_916_681_728, id="8 KV heads"),
        pytest.param("study/Qwen3-8B-MHA", 7_722_242_048, 7_721_988_096, id="32 KV heads, as measured"),
        pytest.param("mistralai/Mistral-7B-v0.1", 8_046_772_224, 7_241_732_096, id="Mistral 7B"),
        pytest.param("Qwen/Qwen2.5-3B", 3_397_103_616, 3_085_938_688, id="the tied head counted twice"),
        pytest.param("Qwen/Qwen3-0.6B", 596_049_920, 596_049_920, id="Qwen3 0.6B"),
        pytest.param("deepseek-ai/DeepSeek-V3", 672_149_632_000, 671_026_404_352, id="square attention"),
    ],
)
def test_totals(name, hand, exact):
    study = STUDIES[name]
    assert study.hand_total == hand
    assert study.exact_total(ARCHITECTURES[name]) == exact == ARCHITECTURES[name].parameters().total


@pytest.mark.parametrize("name", STUDIES)
def test_on_paper(name):
    section = hand_section(STUDIES[name], ARCHITECTURES[name])
    assert len(section.items[2].rows) == len(STUDIES[name].lines)
    assert f"{STUDIES[name].hand_total:,}" in str(section.items[3])
