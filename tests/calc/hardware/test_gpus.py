"""The table of GPUs: laws over all of them, figures of some against their makers' documents."""

import re
from pathlib import Path
from urllib.parse import quote

import pytest

from calc.hardware.gpus import generations, gpus
from docs.gpu_table import page
from tests.cases import in_one_test

EACH = [pytest.param(gpu, id=name) for name, gpu in gpus().items()]
DEDICATED = [pytest.param(gpu, id=name) for name, gpu in gpus().items() if gpu.memory == "dedicated"]
LAPTOPS = {  # laptop: desktop card of the same name; RTX 5050 has GDDR7 in laptops only
    f"rtx-{n}-laptop": f"rtx-{card}"
    for n, card in [(n, n) for n in "3050 3070 3070-ti 3080 3080-ti 4060 4070 4080 4090".split()]
    + [(n, n) for n in "5060 5070 5070-ti 5080 5090".split()]
    + [("3060", "3060-12gb")]
}
IN_LINKS = """
    v100-sxm2-16gb v100-sxm2-32gb v100-pcie-16gb v100-pcie-32gb t4 a10 a10g a30 a40 a100-sxm-40gb a100-pcie-40gb
    a100-sxm-80gb a100-pcie-80gb rtx-a6000 rtx-3060-12gb rtx-3090 l4 l40s rtx-6000-ada rtx-4060-ti-16gb rtx-4080
    rtx-4090 h100-sxm h100-pcie h100-nvl h20 h200-sxm h200-nvl gh200-96gb b200 gb200 rtx-pro-6000-ws rtx-pro-6000-server
    rtx-5070-ti rtx-5080 rtx-5090 mi210 mi300x mi350x mi355x
"""


@in_one_test("gpu", EACH)
def test_gpu_is_physical(gpu):
    assert 4 <= gpu.memory_gb <= 512
    assert 60 < gpu.bandwidth_gb_s <= 8000
    assert 1 < gpu.bandwidth_gb_s / gpu.memory_gb < 80  # how often a second all of it can be read
    assert gpu.tflops
    assert all(0 < peak < 20_000 for peak in gpu.tflops.values())
    assert set(gpu.tflops) <= set(gpu.formats)
    assert gpu.year in range(2016, 2027)


@in_one_test("gpu", DEDICATED)
def test_a_driver_reports_the_label_or_somewhat_less(gpu):
    """ECC takes 1/16 of GDDR6 (T4, L4, A10); 288 GB of B300 are decimal, 0.933 of 288 GiB. Ascend's runtime keeps 2.7
    of 64 GiB, the driver of a 310P 3 of 24 and 4.8 of 48."""
    least = 0.87 if gpu.capability == "310P" else 0.93
    assert gpu.memory_mib is None or least < gpu.memory_mib / (gpu.memory_gb * 1024) <= 1
    assert (0.95 if gpu.platform == "cann" else 0.97) < gpu.usable_bytes / gpu.memory_bytes <= 1
    assert gpu.usable_bytes % 2**20 == 0


@in_one_test("gpu", EACH)
def test_unified_memory_is_shared(gpu):
    assert gpu.usable_share is None or gpu.memory == "unified"
    assert (gpu.memory == "unified") == (gpu.form in ("soc", "module"))
    assert 0.45 < gpu.usable_bytes / gpu.memory_bytes <= 1


@in_one_test("gpu", EACH)
def test_eight_bits_run_twice_as_fast_as_sixteen(gpu):
    """As NVIDIA, AMD and Google make them; Gaudi 3 runs both at one rate, Trainium 2 at 1,299 and 667."""
    if "fp8" in gpu.tflops and "bf16" in gpu.tflops and gpu.id not in ("gaudi3", "trainium2"):
        assert gpu.tflops["fp8"] / gpu.tflops["bf16"] == pytest.approx(2, rel=0.015)  # L40S: 733 and 362
    if "fp4" in gpu.tflops and "fp8" in gpu.tflops and gpu.generation != "blackwell-ultra":
        assert gpu.tflops["fp4"] / gpu.tflops["fp8"] == pytest.approx(
            2 if "geforce" not in gpu.generation else 4, rel=0.01
        )
    if "tf32" in gpu.tflops and gpu.vendor == "NVIDIA":
        assert gpu.tflops["tf32"] / gpu.tflops["fp16"] == pytest.approx(0.5, rel=0.02)


@pytest.mark.parametrize(
    ("capability", "formats"),
    [
        ("6.0", {"fp32", "fp16"}),
        ("6.1", {"fp32", "int8"}),
        ("7.0", {"fp32", "fp16"}),
        ("7.5", {"fp32", "fp16", "int8"}),
        ("8.0", {"fp32", "tf32", "fp16", "bf16", "int8"}),
        ("8.6", {"fp32", "tf32", "fp16", "bf16", "int8"}),
        ("8.9", {"fp32", "tf32", "fp16", "bf16", "int8", "fp8"}),
        ("9.0", {"fp32", "tf32", "fp16", "bf16", "int8", "fp8"}),
        ("10.0", {"fp32", "tf32", "fp16", "bf16", "int8", "fp8", "fp4"}),
        ("12.0", {"fp32", "tf32", "fp16", "bf16", "int8", "fp8", "fp4"}),
        ("gfx90a", {"fp32", "fp16", "bf16", "int8"}),
        ("gfx1100", {"fp32", "fp16", "bf16", "int8"}),
        ("gfx1201", {"fp32", "fp16", "bf16", "int8", "fp8"}),
    ],
)
def test_a_capability_has_its_units(capability, formats):
    found = [set(gpu.formats) for gpu in gpus().values() if gpu.capability == capability]
    assert found
    assert all(each == formats for each in found)


@in_one_test("gpu", EACH)
def test_every_figure_has_an_address(gpu):
    addresses = {fact: source for fact, source in gpu.sources.items() if source.startswith("https://")}
    assert "specification" in addresses
    assert (gpu.memory_mib is not None) == ("memory" in gpu.sources)
    assert ("usable" in addresses) == (gpu.usable_mib is not None or gpu.usable_share is not None)
    for fact, source in gpu.sources.items() - addresses.items():
        assert fact == "memory"
        same = gpus()[source.removeprefix("as ")]
        assert same.memory_mib == gpu.memory_mib
        assert same.memory_gb == gpu.memory_gb


@in_one_test("gpu", EACH)
def test_links_and_slots_are_well_formed(gpu):
    assert re.fullmatch(r"[a-z0-9]+(?:[.-][a-z0-9]+)*", gpu.id)
    assert quote(gpu.id) == gpu.id
    assert gpu.pcie is None or re.fullmatch(r"[3-6]\.0 x(?:8|16)", gpu.pcie)
    if gpu.topology in ("pcie only", "single"):
        assert gpu.link_gb_s is None
        assert gpu.link_gpus is None
    if gpu.link_gb_s is not None:
        assert 100 <= gpu.link_gb_s <= 2000
        assert gpu.link_gb_s < gpu.bandwidth_gb_s
    assert gpu.link_gpus is None or gpu.link_gpus in (2, 4, 8, 72)
    assert (gpu.topology == "pairs") == (gpu.link_gpus == 2)


def test_generations_are_used_and_sourced():
    assert {gpu.generation for gpu in gpus().values()} == set(generations())
    assert all(generation.source.startswith("https://") for generation in generations().values())
    assert all(bool(g.flop_per_clock) != bool(g.formats) for g in generations().values())


@pytest.mark.parametrize(("laptop", "desktop"), LAPTOPS.items(), ids=LAPTOPS)
def test_a_laptop_is_no_faster_than_its_desktop(laptop, desktop):
    ids = (desktop, f"{desktop}-10gb")
    mobile, card = gpus()[laptop], next(gpus()[name] for name in ids if name in gpus())
    assert mobile.bandwidth_gb_s <= card.bandwidth_gb_s
    assert all(peak <= card.tflops[dtype] for dtype, peak in mobile.tflops.items())


def test_names_differ():
    names = [gpu.name for gpu in gpus().values()]
    assert len(set(names)) == len(names)


def test_ids_in_shared_links_stay():
    assert set(IN_LINKS.split()) <= set(gpus())


@pytest.mark.parametrize(
    ("gpu", "peaks"),
    [
        # maker's own tables of dense peaks with fp32 accumulate
        pytest.param("rtx-2080-ti", {"fp16": 53.8, "int8": 215.2}, id="2080-ti-turing-whitepaper"),
        pytest.param("rtx-3090", {"fp32": 35.6, "tf32": 35.6, "bf16": 71, "int8": 284}, id="3090-ga102-whitepaper"),
        pytest.param(
            "rtx-a6000", {"fp32": 38.7, "tf32": 77.4, "bf16": 154.8, "int8": 309.7}, id="a6000-ga102-whitepaper"
        ),
        pytest.param("rtx-4090", {"fp32": 82.6, "bf16": 165.2, "fp8": 330.3, "int8": 660.6}, id="4090-ada-whitepaper"),
        pytest.param("rtx-6000-ada", {"fp32": 91.1, "bf16": 364.2, "fp8": 728.5}, id="6000-ada-whitepaper"),
        pytest.param("rtx-5090", {"fp32": 104.8, "bf16": 209.5, "fp8": 419, "int8": 838, "fp4": 1676}, id="5090"),
        pytest.param("rtx-pro-2000", {"fp4": 545 / 2}, id="pro-2000-ai-tops-sparse"),
        pytest.param("v100s-pcie-32gb", {"fp32": 16.4, "fp16": 130}, id="v100s-datasheet"),
        pytest.param("p40", {"fp32": 12, "int8": 47}, id="p40-datasheet"),
        pytest.param("a2", {"fp32": 4.5, "bf16": 18, "int8": 36}, id="a2-datasheet"),
        pytest.param("jetson-agx-orin-64gb", {"fp32": 5.3, "int8": 170 / 2}, id="orin-brief-sparse"),
        pytest.param("mi100", {"fp32": 23.1, "fp16": 184.6, "bf16": 92.3}, id="mi100-datasheet"),
        pytest.param("mi60", {"fp32": 14.7, "fp16": 29.5}, id="mi60-datasheet"),
        pytest.param("rx-9070-xt", {"fp16": 195, "fp8": 389, "int8": 389}, id="9070-xt-product-page"),
        pytest.param("rx-7900-xtx", {"fp32": 61.4, "fp16": 122.8}, id="7900-xtx-product-page"),
        pytest.param("arc-pro-b60", {"fp32": 12.28, "int8": 197}, id="b60-product-page"),
        pytest.param("arc-pro-b70", {"fp32": 22.94, "int8": 367}, id="b70-product-page"),
        pytest.param("mlu370-x8", {"fp32": 24 / 2, "bf16": 96 / 2, "int8": 256 / 2}, id="mlu370-x8-two-chips"),
        pytest.param("atlas-300i-duo-96gb", {"fp16": 140 / 2, "int8": 280 / 2}, id="300i-duo-two-chips"),
    ],
)
def test_peaks_are_the_makers(gpu, peaks):
    assert {dtype: gpus()[gpu].tflops[dtype] for dtype in peaks} == pytest.approx(peaks, rel=0.025)


@pytest.mark.parametrize(
    ("gpu", "gib"),
    [
        # recommendedMaxWorkingSetSize on these sizes, in public issues
        ("apple-m1-pro-16gb", 11.84),
        ("apple-m2", 17.76),  # 24 GB
        ("apple-m1-max", 48.0),  # 64 GB
        ("apple-m2-max", 72.0),  # 96 GB
        ("apple-m5-max", 107.52),  # 128 GB
        ("strix-halo-395", 63968 / 1024),
        ("gb10", 121.69),
    ],
)
def test_unified_memory_as_delivered(gpu, gib):
    assert gpus()[gpu].usable_bytes / 2**30 == pytest.approx(gib, rel=0.003)


def test_a_chip_is_sold_with_several_memories():
    sizes = {name: gpu.memory_gb for name, gpu in gpus().items() if name.startswith("apple-m3-ultra")}
    assert sizes == {"apple-m3-ultra": 512, "apple-m3-ultra-96gb": 96, "apple-m3-ultra-256gb": 256}


def test_the_page_is_current():
    """Write it with `python -m docs.gpu_table > docs/gpus.md`."""
    assert Path("docs/gpus.md").read_text(encoding="utf-8") == page()


def test_what_is_shown_first():
    """The five that the page was ordered for, and four of today's."""
    usual = {name: gpu.memory_mib for name, gpu in gpus().items() if gpu.default}
    # totals that nvidia-smi prints in public logs
    assert usual == {
        "v100-sxm2-16gb": 16_384,
        "v100-sxm2-32gb": 32_768,
        "a100-sxm-40gb": 40_960,
        "a100-sxm-80gb": 81_920,
        "h100-sxm": 81_559,
        "l40s": 46_068,
        "h200-sxm": 143_771,
        "b200": 183_359,
        "rtx-4090": 24_564,
    }


@pytest.mark.parametrize(
    ("gpu", "storage", "lacks"),
    [
        ("v100-sxm2-16gb", "bf16", "no native bf16: run fp16"),
        ("v100-sxm2-16gb", "fp16", None),
        ("v100-sxm2-16gb", "fp8", "no fp8 units: fp8 saves memory only, arithmetic is in 16 bits"),
        ("p40", "bf16", "no fast bf16 or fp16: what is not quantized runs in fp32"),
        ("a100-sxm-80gb", "bf16", None),
        ("a100-sxm-80gb", "fp8", "no fp8 units: fp8 saves memory only, arithmetic is in 16 bits"),
        ("h100-sxm", "fp8", None),
        ("h100-sxm", "mxfp4", "no fp4 units: mxfp4 saves memory only, arithmetic is in 16 bits"),
        ("b200", "mxfp4", None),
        ("gb10", "bf16", None),
        ("h100-sxm", "int4", None),
    ],
)
def test_what_a_card_can_not_do(gpu, storage, lacks):
    sentence = gpus()[gpu].lacks(storage)
    assert (None if sentence is None else str(sentence)) == lacks
