"""A user's own GPU, and the text in which it travels in a URL and on the command line:
`name:48GiB:960GB/s:bf16=181,fp8=362,link=112.5`. The peaks and the link may be left out."""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import get_args

from calc.errors import ConfigError, Message, shown
from calc.hardware.generations import Dtype
from calc.hardware.gpu import GPU
from calc.hardware.gpus import gpus, usual_gpus
from calc.hardware.mig import names_slice, slice_of

DTYPES: tuple[Dtype, ...] = get_args(Dtype)
NAME = re.compile(r"[^\W_](?:[\w .+()-]{0,38}[\w.+)-])?")
NUMBER = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,6})?")
LIMITS = {"memory": (1, 4096, "GiB"), "bandwidth": (1, 100_000, "GB/s"), "link": (1, 100_000, "GB/s")}
PEAK = (0.1, 1_000_000, "TFLOPS")
OWN = "your own"
"""The vendor of a GPU that the user describes."""


def custom_gpu(
    name: str,
    memory_gib: float,
    bandwidth_gb_s: float,
    tflops: Mapping[Dtype, float] | None = None,
    link_gb_s: float | None = None,
) -> GPU:
    """A GPU that is not in the catalogue. Without peaks it is taken to have units for every format."""
    if not NAME.fullmatch(name):
        raise ConfigError(
            Message(
                "A GPU's name is 1 to 40 letters, digits, spaces and . + - ( ), and begins with a letter or digit, "
                "not {name}.",
                name=shown(name),
            ),
            field="gpu",
        )
    within("memory", memory_gib, *LIMITS["memory"])
    within("bandwidth", bandwidth_gb_s, *LIMITS["bandwidth"])
    for dtype, peak in (tflops or {}).items():
        within(f"peak in {dtype}", peak, *PEAK)
    if link_gb_s is not None:
        within("link", link_gb_s, *LIMITS["link"])
    peaks = dict(tflops or {})
    gpu = GPU(
        id="",
        name=name,
        vendor=OWN,
        platform=None,
        memory_gb=memory_gib,
        memory_mib=round(memory_gib * 1024),
        bandwidth_gb_s=bandwidth_gb_s,
        tflops=peaks,
        formats=tuple(peaks) or DTYPES,
        link_gb_s=link_gb_s,
        topology="pcie only" if link_gb_s is None else "full mesh",
    )
    return gpu.model_copy(update={"id": gpu_text(gpu)})


def within(what: str, value: float, least: float, most: float, unit: str) -> None:
    """Refuse a figure that no GPU has; the limits are the nearest that is allowed."""
    if not least <= value <= most:
        raise ConfigError(
            Message(
                "The {what} of a GPU must be between {least:g} and {most:,} {unit}; {value} is not.",
                what=what,
                least=least,
                most=most,
                unit=unit,
                value=shown(value),
            ),
            field="gpu",
            nearest=[least if value < least else most],
        )


def gpu_text(gpu: GPU) -> str:
    """A user's GPU as text; `custom_gpu_of` reads it back."""
    rest = [f"{dtype}={_plain(peak)}" for dtype, peak in gpu.tflops.items()]
    if gpu.link_gb_s is not None:
        rest.append(f"link={_plain(gpu.link_gb_s)}")
    parts = [gpu.name, f"{_plain(gpu.memory_gb)}GiB", f"{_plain(gpu.bandwidth_gb_s)}GB/s", ",".join(rest)]
    return ":".join(parts if rest else parts[:-1])


def custom_gpu_of(text: str) -> GPU:
    name, *fields = (part.strip() for part in text.split(":"))
    if len(fields) not in (2, 3):
        raise _unreadable(text)
    memory, bandwidth = _quantity(text, fields[0], "GiB"), _quantity(text, fields[1], "GB/s")
    tflops: dict[Dtype, float] = {}
    link = None
    for pair in fields[2].split(",") if len(fields) == 3 else ():
        key, _, value = (part.strip() for part in pair.partition("="))
        if key == "link" and link is None:
            link = _quantity(text, value, "GB/s")
        elif (dtype := next((d for d in DTYPES if d == key), None)) and dtype not in tflops:
            tflops[dtype] = _quantity(text, value, "TFLOPS")
        else:
            raise _unreadable(text)
    return custom_gpu(name, memory, bandwidth, tflops, link)


def find_gpu(text: str) -> GPU:
    """The GPU of the catalogue with this id, a MIG slice of one (`h100-sxm:3g.40gb`), or the user's own that the text
    describes."""
    if names_slice(text):
        whole, _, name = (part.strip() for part in text.partition(":"))
        return slice_of(find_gpu(whole), name)
    if ":" in text:
        return custom_gpu_of(text)
    if text in gpus():
        return gpus()[text]
    near = [name for name in gpus() if text and text.lower() in name][:5]
    near = near or get_close_matches(text.lower(), gpus(), n=5, cutoff=0.5)
    usual = ", ".join(gpu.id for gpu in usual_gpus())
    known = Message("Near it: {ids}.", ids=", ".join(near)) if near else Message("Some are: {ids}.", ids=usual)
    raise ConfigError(
        Message(
            "There is no GPU {id}. {known} Your own is written {example}.",
            id=shown(text),
            known=known,
            example="name:48GiB:960GB/s:bf16=181",
        ),
        field="gpu",
        nearest=near,
    )


def _quantity(text: str, part: str, unit: str) -> float:
    number = part.removesuffix(unit).strip()
    if not NUMBER.fullmatch(number):
        raise _unreadable(text)
    return float(number)


def _plain(value: float) -> str:
    return f"{value:.6f}".rstrip("0").rstrip(".")


def _unreadable(text: str) -> ConfigError:
    return ConfigError(
        Message(
            "{text} does not describe a GPU. Write name:48GiB:960GB/s:bf16=181,fp8=362,link=112.5; what may stand "
            "after the bandwidth, each once: {dtypes} (TFLOPS, dense) and link (GB/s, both directions).",
            text=shown(text),
            dtypes=", ".join(DTYPES),
        ),
        field="gpu",
    )
