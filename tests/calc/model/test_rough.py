"""Rules of thumb: what they give, and that their terms explain the whole difference."""

from math import floor

import pytest

from calc import report
from calc.model.rough import cache_rule, gated_rule, square_rule
from presets import models
from tests.cases import in_one_test
from tests.structures import architectures

PRESETS = architectures()


def value(text):
    """What a line of values comes to."""
    return eval(text.replace("·", "*").replace("²", "**2"))


@in_one_test("name", PRESETS)
def test_terms_sum_to_the_rule_and_to_the_exact_figure(name):
    architecture = PRESETS[name]
    for rule in (gated_rule(architecture), square_rule(architecture)):
        if rule is not None:
            assert rule.exact == architecture.parameters().total
            assert rule.rough == pytest.approx(value(str(rule.values)), abs=0.5)
            assert all((term.why is None) == (term.rough == term.exact) for term in rule.terms)


@in_one_test("name", PRESETS)
def test_the_rule_for_the_cache(name):
    rule = cache_rule(PRESETS[name], 16)
    if rule is None:
        return
    assert rule.exact == report(models()[name].config, gpus=[]).kv_cache.bytes_per_token
    assert rule.rough == floor(value(str(rule.values)))
    assert all((term.why is None) == (term.rough == term.exact) for term in rule.terms)


@pytest.mark.parametrize(
    ("name", "rough", "exact"),
    [
        pytest.param("mistralai/Mistral-7B-v0.1", 8_046_772_224, 7_241_732_096, id="its hand count"),
        pytest.param("Qwen/Qwen2.5-3B", 3_661_103_104, 3_085_938_688, id="tied, 2 of 16 KV heads"),
    ],
)
def test_known_rules(name, rough, exact):
    rule = gated_rule(PRESETS[name])
    assert (rule.rough, rule.exact) == (rough, exact)


def test_latent_attention_beside_a_key_and_a_value_for_every_head():
    """DeepSeek-V2, table 1: MHA caches 2·n_h·d_h·l elements, MLA (d_c + d_h^R)·l."""
    rule = cache_rule(PRESETS["deepseek-ai/DeepSeek-V3"], 16)
    assert rule.rough == 2 * 61 * 128 * 128 * 2
    assert rule.exact == 61 * (512 + 64) * 2
    assert gated_rule(PRESETS["deepseek-ai/DeepSeek-V3"]) is None
