"""A user's own GPU: typed, carried as text, refused with a sentence."""

import pytest

from calc import Architecture, Workload, report
from calc.errors import ConfigError
from calc.hardware.custom_gpu import custom_gpu, custom_gpu_of, find_gpu
from calc.hardware.gpus import gpus
from calc.serving.engines import ENGINES
from presets import models

PLAIN = "My card:48GiB:960GB/s"


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        (PLAIN, PLAIN),
        ("My card:48:960", PLAIN),
        (" My card : 48.0 GiB : 960 GB/s ", PLAIN),
        (f"{PLAIN}:bf16=181", f"{PLAIN}:bf16=181"),
        (f"{PLAIN}:bf16=181, fp8=362.5TFLOPS,link=112.5GB/s", f"{PLAIN}:bf16=181,fp8=362.5,link=112.5"),
        (f"{PLAIN}:link=600,bf16=181", f"{PLAIN}:bf16=181,link=600"),
        ("显卡:24:1008", "显卡:24GiB:1008GB/s"),
    ],
)
def test_text_is_read_and_written_back(text, canonical):
    gpu = custom_gpu_of(text)
    assert gpu.id == canonical
    assert custom_gpu_of(gpu.id) == gpu
    assert find_gpu(gpu.id) == gpu


def test_figures_arrive():
    gpu = custom_gpu_of("A:48GiB:960GB/s:bf16=181,link=112.5")
    assert (gpu.memory_mib, gpu.bandwidth_gb_s, gpu.tflops) == (48 * 1024, 960, {"bf16": 181})
    assert (gpu.link_gb_s, gpu.topology, gpu.platform) == (112.5, "full mesh", None)
    assert gpu == custom_gpu("A", 48, 960, {"bf16": 181}, 112.5)
    assert str(gpu.lacks("fp8")).startswith("no fp8 units")
    assert custom_gpu("A", 48, 960).lacks("fp8") is None  # nothing is known of its units


@pytest.mark.parametrize(
    "text",
    [
        "A:48",
        "A:48GB:960",
        "A:48:960:",
        "A:48:960:bf17=1",
        "A:48:960:bf16=1,bf16=2",
        "A:48:960:link=1,link=2",
        "A:48:960:bf16=1:x",
        "A:48:960:bf16",
        "A:-1:960",
        "A:nan:960",
        "A:1e3:960",
        "A:９:960",
        "A:48:TB/s",
        "::",
    ],
)
def test_what_can_not_be_read_is_refused(text):
    with pytest.raises(ConfigError, match=r"does not describe a GPU\. Write name:48GiB:960GB/s"):
        custom_gpu_of(text)


@pytest.mark.parametrize(
    ("text", "sentence", "nearest"),
    [
        ("A:0.5:960", "The memory of a GPU must be between 1 and 4,096 GiB; 0.5 is not.", (1,)),
        ("A:5000:960", "The memory of a GPU must be between 1 and 4,096 GiB; 5000 is not.", (4096,)),
        ("A:48:0", "The bandwidth of a GPU must be between 1 and 100,000 GB/s; 0 is not.", (1,)),
        ("A:48:960:bf16=0", "The peak in bf16 of a GPU must be between 0.1 and 1,000,000 TFLOPS; 0 is not.", (0.1,)),
        ("A:48:960:link=200000", "The link of a GPU must be between 1 and 100,000 GB/s; 200000 is not.", (100_000,)),
    ],
)
def test_limits(text, sentence, nearest):
    with pytest.raises(ConfigError) as caught:
        custom_gpu_of(text)
    assert (str(caught.value), caught.value.field, caught.value.nearest) == (sentence, "gpu", nearest)


@pytest.mark.parametrize("name", ["", " ", "x" * 41, "a|b", "<b>", "_a", "a\nb", "a,b"])
def test_names(name):
    with pytest.raises(ConfigError, match="A GPU's name is"):
        custom_gpu(name, 48, 960)


def test_an_id_is_looked_up():
    assert find_gpu("h100-sxm") == gpus()["h100-sxm"]
    with pytest.raises(ConfigError, match=r"There is no GPU “h100”\. Near it: h100-sxm, h100-pcie, h100-nvl"):
        find_gpu("h100")
    with pytest.raises(ConfigError, match=r"There is no GPU “zzzzzz”\. Some are: v100-sxm2-16gb"):
        find_gpu("zzzzzz")


def test_a_report_weighs_it():
    """48 GiB of a user's own hold what 48 GiB of an A40 without ECC would."""
    config = models()["Qwen/Qwen2.5-3B"].config
    engine = ENGINES["transformers"]()
    made = report(config, engine=engine, workload=Workload(context=4096), gpus=[custom_gpu_of(PLAIN)])
    (verdict,) = made.verdicts
    weights = 2 * Architecture.from_config(config).parameters().total
    assert (verdict.gpu, verdict.verdict) == (PLAIN, "fits")
    assert weights < verdict.required < verdict.usable == int(48 * 1024 * 0.985) * 2**20
