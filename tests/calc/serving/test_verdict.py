"""Verdicts, and the largest and fewest that fit."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calc import Architecture, ConfigError, Layout, Overhead, Precision, Workload, report
from calc.serving.memory import Memory, Serving
from calc.serving.verdict import judge, largest, least, reason
from calc.units import GIB
from presets import gpus, models

ARCHITECTURES = {name: Architecture.from_config(preset.config) for name, preset in models().items()}


def verdict(model, gpu, weights="fp16", layout=None, **workload):
    architecture = ARCHITECTURES[model]
    serving = Serving(architecture, Precision(weights=weights), layout or Layout(), Overhead())
    return judge(gpus()[gpu], architecture, serving, Workload(**workload))


@pytest.mark.parametrize(
    ("model", "gpu", "weights", "word", "fewest"),
    [  # what people run, and what they ask about because it does not
        pytest.param("Qwen/Qwen2.5-3B", "v100-sxm2-16gb", "fp16", "fits", 1, id="5.7 GiB of weights on 16"),
        pytest.param("mistralai/Mistral-7B-v0.1", "v100-sxm2-16gb", "fp16", "tight", 2, id="13.5 GiB of weights on 16"),
        pytest.param("mistralai/Mistral-7B-v0.1", "v100-sxm2-32gb", "fp16", "fits", 1, id="13.5 GiB of weights on 32"),
        pytest.param("meta-llama/Llama-3.1-70B", "h100-sxm", "bf16", "does not fit", 2, id="131 GiB of weights on 80"),
        pytest.param("deepseek-ai/DeepSeek-V3", "h100-sxm", "fp8", "does not fit", 10, id="625 GiB of weights on 80"),
        pytest.param("openai/gpt-oss-120b", "h100-sxm", "mxfp4", "fits", 1, id="gpt-oss-120b: made for one of 80 GB"),
    ],
)
def test_known_answers(model, gpu, weights, word, fewest):
    found = verdict(model, gpu, weights, context=1024)
    assert (found.verdict, found.min_gpus) == (word, fewest)


SMALL = [name for name, a in ARCHITECTURES.items() if a.parameters().total < 80e9]
SCENARIOS = st.fixed_dictionaries(
    {
        "model": st.sampled_from(SMALL),
        "gpu": st.sampled_from(list(gpus())),
        "weights": st.sampled_from(["fp16", "fp8", "int4"]),
        "batch": st.sampled_from([1, 3, 16, 200]),
        "context": st.sampled_from([1, 500, 8192, 100_000]),
    }
)


@given(SCENARIOS)
@settings(max_examples=60)
def test_the_verdict_follows_from_the_range(scenario):
    found = verdict(**scenario)
    serving = Serving(ARCHITECTURES[scenario["model"]], Precision(weights=scenario["weights"]), Layout(), Overhead())
    memory = serving.memory(Workload(batch=scenario["batch"], context=scenario["context"]))
    assert found.usable == gpus()[scenario["gpu"]].usable_bytes
    assert (found.verdict == "fits") == (memory.high <= found.usable)
    assert (found.verdict == "does not fit") == (memory.low > found.usable)
    assert found.spare == found.usable - found.required
    assert found.required == memory.total


@given(SCENARIOS)
@settings(max_examples=40)
def test_what_the_solver_says_fits_and_one_more_does_not(scenario):
    found = verdict(**scenario)
    if found.max_context:
        assert verdict(**scenario | {"context": found.max_context}).verdict == "fits"
        assert verdict(**scenario | {"context": found.max_context + 1}).verdict != "fits"
    if found.max_batch:
        assert verdict(**scenario | {"batch": found.max_batch}).verdict == "fits"
        assert verdict(**scenario | {"batch": found.max_batch + 1}).verdict != "fits"
    fits = found.verdict == "fits"
    assert fits == (found.max_context is None or found.max_context >= scenario["context"])
    assert fits == (found.max_batch is None or found.max_batch >= scenario["batch"])


@given(SCENARIOS)
@settings(max_examples=40)
def test_the_fewest_gpus_fit_and_fewer_do_not(scenario):
    fewest = verdict(**scenario).min_gpus

    def fits(number):
        for tp in (tp for tp in (1, 2, 4, 8) if number % tp == 0):
            try:
                if verdict(**scenario, layout=Layout(tp=tp, pp=number // tp)).verdict == "fits":
                    return True
            except ConfigError:  # the model can't be divided so
                continue
        return False

    assert fewest is None or fits(fewest)
    assert not any(fits(number) for number in range(1, min(fewest or 9, 9)))


@given(st.integers(0, 1000), st.integers(1, 1000))
def test_solvers(limit, most):
    found = largest(lambda n: n <= limit, most)
    assert found is None if limit >= most else found == limit
    assert least(lambda n: n >= min(limit, most), most) == max(1, min(limit, most))


@pytest.mark.parametrize(
    ("weights", "sentence"),
    [
        (8, "2.00 GiB are left for overhead, which takes 1.00 to 3.00 GiB."),
        (
            11,
            "Weights, cache and activations need 17.00 GiB before any overhead, 3.00 more than there are; "
            "the largest part is the weights with 11.00.",
        ),
    ],
)
def test_the_reason_is_a_sentence(weights, sentence):
    memory = Memory(
        weights=weights * GIB,
        kv_cache=4 * GIB,
        activations=2 * GIB,
        overhead=2 * GIB,
        overhead_low=GIB,
        overhead_high=3 * GIB,
        total=(weights + 8) * GIB,
    )
    usable = 16 if weights == 8 else 14
    assert reason(memory, usable * GIB) == sentence


def test_a_larger_card_never_fits_less():
    config = models()["meta-llama/Llama-3.1-8B"].config
    cards = sorted(gpus().values(), key=lambda gpu: gpu.usable_bytes)
    found = report(config, gpus=cards).verdicts
    assert [v.gpu for v in found] == [gpu.id for gpu in cards]
    contexts = [v.max_context or 0 for v in found]
    assert contexts == sorted(contexts)
    assert len(set(contexts)) > 5


def test_a_share_of_the_gpu_is_all_that_vllm_may_take():
    """github.com/vllm-project/vllm: what is asked for is total x share; the CUDA context lies outside."""
    whole = verdict("Qwen/Qwen2.5-3B", "l4", context=1024)
    found = [verdict("Qwen/Qwen2.5-3B", "l4", context=1024, gpu_memory_utilization=s) for s in (0.2, 0.5, 0.9, 1)]
    assert [v.verdict for v in found] == ["does not fit", "fits", "fits", "fits"]
    assert [v.usable for v in found] == sorted(v.usable for v in found)
    assert found[1].usable == round(22_579 * 2**20 * 0.5) + round(0.6 * GIB)
    assert found[-1] == whole
