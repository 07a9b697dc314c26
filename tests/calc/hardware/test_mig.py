"""MIG slices: sizes as nvidia-smi and CUDA state them, shares as NVIDIA's guide has them; no two are joined."""

import pytest

from calc import ConfigError, Layout, Workload, report
from calc.hardware import Computer, custom_gpu, find_gpu
from calc.hardware.gpus import gpus
from calc.hardware.mig import partitionings, slices
from calc.serving.engines import ENGINES
from calc.time.prices import price_of
from calc.training import TrainingLayout, training_report
from cli.manifests import Server
from presets import models
from tests.cases import in_one_test

QWEN = models()["Qwen/Qwen3-8B"].config


@pytest.mark.parametrize(
    ("gpu", "mib"),
    [  # the right-hand side of `Memory-Usage` in the table of MIG devices of nvidia-smi
        ("a30:1g.6gb", 5_952),
        ("a30:2g.12gb", 11_968),
        ("a100-sxm-40gb:1g.5gb", 4_864),
        ("a100-sxm-40gb:2g.10gb", 9_984),
        ("a100-sxm-40gb:3g.20gb", 20_096),
        ("a100-sxm-80gb:2g.20gb", 19_968),  # XuehaiPan/nvitop#8
        ("h100-sxm:3g.40gb", 40_448),  # MIG user guide, "Getting Started with MIG"
        ("h100-sxm:1g.10gb", 9_984),
        ("h100-pcie:1g.10gb", 9_984),
        ("h200-sxm:3g.71gb", 71_424),
    ],
)
def test_the_driver_prints_its_memory(gpu, mib):
    assert find_gpu(gpu).memory_bytes == mib * 2**20


@pytest.mark.parametrize(
    ("gpu", "gib"),
    [  # the column Memory of nvidia-smi mig -lgip, which cuts off after two digits
        ("a100-pcie-40gb:7g.40gb", 39.5),
        ("a100-pcie-80gb:1g.10gb", 9.5),
        ("h100-sxm:2g.20gb", 19.62),
        ("h100-sxm:7g.80gb", 79.25),
        ("h100-nvl:3g.47gb", 46.12),
        ("gh200-96gb:4g.48gb", 46.5),
        ("h200-nvl:1g.18gb", 16.0),  # NVIDIA/mig-parted#120
        ("b200:1g.45gb", 44.25),  # NVIDIA/mig-parted#187
        ("rtx-pro-6000-server:2g.48gb", 47.38),
    ],
)
def test_the_driver_lists_its_memory(gpu, gib):
    assert find_gpu(gpu).memory_bytes / 2**30 == pytest.approx(gib, abs=0.006)


@pytest.mark.parametrize(
    ("gpu", "usable"),
    [
        ("h200-sxm:3g.71gb", 74_893_492_224),  # totalMemory in a trace of Nsight Systems
        ("h100-sxm:1g.10gb", 10_468_982_784),  # torch.OutOfMemoryError: a total capacity of 9.75 GiB
    ],
)
def test_cuda_sees_all_that_the_driver_prints(gpu, usable):
    assert find_gpu(gpu).usable_bytes == usable


def test_bandwidth_is_a_share_of_the_memory_slices():
    assert find_gpu("h200-sxm:3g.71gb").bandwidth_gb_s == pytest.approx(2407.152, rel=0.004)  # Nsight Systems
    for name, part in (("1g.10gb", 1 / 8), ("2g.20gb", 2 / 8), ("3g.40gb", 4 / 8)):  # 640, 1280, 2560 of 5120 bits
        assert find_gpu(f"a100-sxm-80gb:{name}").bandwidth_gb_s == round(2039 * part, 3)


def test_peaks_are_a_share_of_the_multiprocessors():
    """`nvidia-smi mig -lgip`: 60 of an H100's 132, 46 of an RTX PRO 6000's 188."""
    assert find_gpu("h100-sxm:3g.40gb").tflops["bf16"] == pytest.approx(989.5 * 60 / 132, abs=1e-3)
    whole = gpus()["rtx-pro-6000-server"]
    assert find_gpu("rtx-pro-6000-server:1g.24gb").tflops["fp4"] == pytest.approx(
        whole.tflops["fp4"] * 46 / 188, abs=1e-3
    )


INSTANCES = {"1g": (7, 4), "2g": (3,), "3g": (2,), "4g": (1,), "7g": (1,)}
"""MIG user guide, "Number of Instances"; 1g with twice the memory: 4."""
COMPUTE_SLICES = {4: 4, 8: 7}
"""MIG user guide, "Fraction of SMs": quarters of an A30 and RTX PRO 6000, sevenths of the others; the driver rounds to
whole TPCs, and gives 3g.40gb 60 of 132, 1g.20gb 26."""


@in_one_test("gpu", [pytest.param(gpu, id=name) for name, gpu in slices().items()])
def test_a_slice_is_a_part_of_its_gpu(gpu):
    cut, whole, name = gpu.slice, gpus()[gpu.slice.gpu], gpu.id.partition(":")[2]
    assert find_gpu(gpu.id) == gpu
    assert whole.capability == gpu.capability
    assert 0.86 < gpu.memory_bytes / (whole.memory_bytes * cut.memory_slices / cut.of_memory_slices) <= 1
    assert 0.84 < cut.sms / cut.of_sms / (int(name[0]) / COMPUTE_SLICES[cut.of_memory_slices]) < 1.45
    assert cut.instances * cut.memory_slices <= cut.of_memory_slices
    assert cut.instances * cut.sms <= cut.of_sms
    assert (gpu.default, gpu.link_gb_s, gpu.tdp_w) == (False, None, None)
    if cut.of_memory_slices == 8:
        assert cut.instances in INSTANCES[name[:2]]


def test_every_gpu_that_is_cut_is_in_the_catalogue():
    assert set(partitionings()) <= set(gpus())


@pytest.mark.parametrize(
    ("text", "words", "near"),
    [
        (
            "h100-sxm:3g.80gb",
            "those known are 1g.10gb, 1g.20gb, 2g.20gb, 3g.40gb, 4g.40gb, 7g.80gb",
            "h100-sxm:3g.40gb",
        ),
        ("h100-sxm:x", "No MIG slice", "h100-sxm:1g.10gb"),
        ("rtx-4090:1g.5gb", "No MIG slices of RTX 4090 are known", "rtx-4090"),
        ("h100:1g.10gb", "There is no GPU", "h100-sxm"),
    ],
)
def test_an_unknown_slice_is_a_sentence_with_the_right_ones(text, words, near):
    with pytest.raises(ConfigError) as raised:
        find_gpu(text)
    assert words in str(raised.value)
    assert raised.value.field == "gpu"
    assert near in raised.value.nearest


def test_a_gpu_of_ones_own_is_still_read():
    assert find_gpu("h100-sxm:48GiB:960GB/s") == custom_gpu("h100-sxm", 48, 960)


def test_a_slice_is_weighed_as_a_gpu_of_its_memory():
    cut, same = (
        find_gpu("h100-sxm:3g.40gb"),
        gpus()["h100-sxm"].model_copy(update={"memory_mib": 40_448, "usable_mib": 40_448}),
    )
    mine, other = report(dict(QWEN), gpus=[cut, same]).verdicts
    assert (mine.required, mine.usable, mine.verdict) == (other.required, other.usable, "fits")
    assert any("60 of 132 multiprocessors and 4 of 8 memory slices" in str(note) for note in mine.notes)
    assert mine.min_gpus == 1


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm", "transformers", "llamacpp"])
def test_no_engine_joins_slices(engine):
    layout = Layout(pp=2) if engine in ("transformers", "llamacpp") else Layout(tp=2)
    (verdict,) = report(
        dict(QWEN), engine=ENGINES[engine](), gpus=[find_gpu("h100-sxm:3g.40gb")], layout=layout
    ).verdicts
    assert verdict.verdict == "does not run"
    assert "MIG slices reach each other neither over NVLink nor over PCIe" in str(verdict.reason)


def test_a_model_that_does_not_fit_a_slice_fits_no_number_of_them():
    (verdict,) = report(dict(QWEN), workload=Workload(context=8192), gpus=[find_gpu("h100-sxm:1g.10gb")]).verdicts
    assert (verdict.verdict, verdict.min_gpus) == ("does not fit", None)


def test_training_does_not_join_slices_either():
    config, cut = models()["Qwen/Qwen2.5-0.5B"].config, find_gpu("h200-sxm:3g.71gb")
    (alone,) = training_report(config, gpus=[cut]).verdicts
    (two,) = training_report(config, gpus=[cut], layout=TrainingLayout(dp=2, zero=1)).verdicts
    assert (alone.verdict, alone.min_gpus) == ("fits", 1)
    assert (two.verdict, two.min_gpus) == ("does not run", None)


def test_a_machine_has_one_slice():
    assert Computer(my_gpus=("a30:2g.12gb",)).gpus[0].memory_mib == 11_968
    with pytest.raises(ValueError, match="MIG slices reach each other"):
        Computer(my_gpus=("a30:2g.12gb", "a30:2g.12gb"))


def test_its_price_is_the_larger_of_its_shares():
    whole = price_of("h100-sxm")
    assert price_of("h100-sxm:3g.40gb") == whole / 2  # 3 of 7 compute slices, 4 of 8 memory slices
    assert price_of("h100-sxm:1g.10gb") == pytest.approx(whole / 7)
    assert price_of("h100-sxm:4g.40gb") == pytest.approx(whole * 4 / 7)
    # of a B200 the table ends at 2g, of its seven compute slices two
    assert price_of("b200:2g.45gb") == pytest.approx(price_of("b200") * 2 / 7)


def test_kubernetes_asks_for_it_by_its_profile():
    """NVIDIA/k8s-device-plugin, `MIG_STRATEGY=mixed`: nvidia.com/mig-<slices>g.<memory>gb."""
    cut = find_gpu("a100-sxm-40gb:3g.20gb")
    server = Server.model_construct(model="a/b", words=(), gpu=cut, gpus=1)
    assert server.resource == "nvidia.com/mig-3g.20gb"


def test_it_runs_where_its_gpu_does():
    for gpu in slices().values():
        assert gpu.formats == gpus()[gpu.slice.gpu].formats
