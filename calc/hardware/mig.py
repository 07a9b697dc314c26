"""MIG slices of NVIDIA's GPUs: each a GPU by itself, written `h100-sxm:3g.40gb`.

Profiles as the MIG user guide has them, memory and multiprocessors as `nvidia-smi mig -lgip` prints them; drivers
differ by some hundred MiB. A slice has the bandwidth of its share of the memory slices (an H200's 3g.71gb states
2,407,152 MB/s, half) and the peaks of its share of the multiprocessors. CUDA sees all the memory that the driver
prints, and in a process one slice and no other."""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from types import MappingProxyType

from calc.errors import ConfigError, Frozen, Message, shown
from calc.hardware.gpu import GPU, Slice
from calc.hardware.gpus import HERE, gpus

PROFILE = re.compile(r"[1-7]g\.[0-9]{1,3}gb")


class SliceSize(Frozen):
    """A size in which a GPU can be cut."""

    memory_mib: int
    memory_slices: int
    sms: int
    instances: int  # of this size alone, on one GPU


class Partitioning(Frozen):
    """Sizes in which equal GPUs can be cut."""

    gpus: tuple[str, ...]
    sms: int
    memory_slices: int
    compute_slices: int
    source: str  # address of the profiles
    memory: str  # where the driver's listing was read
    profiles: Mapping[str, SliceSize]


@cache
def partitionings() -> Mapping[str, Partitioning]:
    """Profiles of each GPU that can be cut, by its id."""
    rows = json.loads((HERE / "mig.json").read_text(encoding="utf-8"))
    tables = [Partitioning(**row) for row in rows.values()]
    return MappingProxyType({gpu: table for table in tables for gpu in table.gpus})


@cache
def slices() -> Mapping[str, GPU]:
    """All slices by id, in the order of the catalogue, the smallest of a GPU first."""
    known = partitionings()
    cut = (cut_of(gpu, name) for gpu in gpus().values() if gpu.id in known for name in known[gpu.id].profiles)
    return MappingProxyType({gpu.id: gpu for gpu in cut})


def cut_of(whole: GPU, name: str) -> GPU:
    table = partitionings()[whole.id]
    profile = table.profiles[name]
    part = profile.memory_slices / table.memory_slices
    return whole.model_copy(
        update={
            "id": f"{whole.id}:{name}",
            "name": f"{whole.name} MIG {name}",
            "memory_gb": float(name.partition("g.")[2].removesuffix("gb")),
            "memory_mib": profile.memory_mib,
            "usable_mib": profile.memory_mib,
            "bandwidth_gb_s": round(whole.bandwidth_gb_s * part, 3),
            "tdp_w": None,
            "clock": None,
            "tflops": {dtype: round(peak * profile.sms / table.sms, 3) for dtype, peak in whole.tflops.items()},
            "link_gb_s": None,
            "topology": "single",
            "link_gpus": None,
            "default": False,
            "sources": {"specification": table.source, "memory": table.source},
            "slice": Slice(
                gpu=whole.id,
                share=max(part, int(name[0]) / table.compute_slices),
                instances=profile.instances,
                sms=profile.sms,
                of_sms=table.sms,
                memory_slices=profile.memory_slices,
                of_memory_slices=table.memory_slices,
            ),
        }
    )


def slice_of(whole: GPU, name: str) -> GPU:
    """The slice of a GPU. Raises ConfigError for a profile that it does not have or whose memory is not known."""
    gpu = slices().get(f"{whole.id}:{name}")
    if gpu is not None:
        return gpu
    if whole.id in partitionings():
        names = list(partitionings()[whole.id].profiles)
        sentence = "No MIG slice {name} of {gpu} is known; those known are {names}."
        message = Message(sentence, name=shown(name), gpu=whole.name, names=", ".join(names))
        raise ConfigError(message, "gpu", [f"{whole.id}:{other}" for other in names])
    raise ConfigError(
        Message(
            "No MIG slices of {gpu} are known; they are of {ids}.",
            gpu=whole.name,
            ids=", ".join(sorted(partitionings())),
        ),
        "gpu",
        [whole.id],
    )


def names_slice(text: str) -> bool:
    """Whether a text has the form of a slice: `h100-sxm:3g.40gb`."""
    whole, colon, name = text.partition(":")
    return bool(colon) and (
        PROFILE.fullmatch(name.strip()) is not None or (whole.strip() in gpus() and ":" not in name)
    )


def unjoined(gpu: GPU, count: int) -> Message | None:
    """Why so many of it do not run one model together: a process sees one MIG slice, and there is neither peer access
    nor CUDA IPC from one to another (MIG user guide, "Deployment Considerations"). None where they do."""
    if gpu.slice is None or count == 1:
        return None
    return Message(
        "MIG slices reach each other neither over NVLink nor over PCIe, and a process sees one alone: a model is on "
        "one slice, and more of them are more copies."
    )


def slice_notes(gpu: GPU) -> Iterator[Message]:
    """A sentence: the GPU that a slice is cut from, and how it is chosen at start."""
    if gpu.slice is not None:
        yield Message(
            "{sms} of {of_sms} multiprocessors and {parts} of {of_parts} memory slices of {gpu}, which can be cut in "
            "{n} of these. CUDA_VISIBLE_DEVICES names the slice by its UUID (nvidia-smi -L).",
            sms=gpu.slice.sms,
            of_sms=gpu.slice.of_sms,
            parts=gpu.slice.memory_slices,
            of_parts=gpu.slice.of_memory_slices,
            gpu=gpus()[gpu.slice.gpu].name,
            n=gpu.slice.instances,
        )
