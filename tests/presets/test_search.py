"""Presets as a list has them. How words find them: tests/pages/browser/test_question.py."""

from presets import models
from presets.search import label, newest


def test_the_newest_come_first():
    months = [preset.month for preset in newest()]
    assert months == sorted(months, reverse=True)
    assert {preset.id for preset in newest()} == models().keys()


def test_a_label_says_size_kind_month_and_maker():
    assert (
        label("deepseek-ai/DeepSeek-V3") == "DeepSeek-V3 · 685B MoE · 2024-12 · deepseek-ai"
    )  # as published, with its MTP layer
