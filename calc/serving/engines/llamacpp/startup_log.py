"""Buffers that llama.cpp, and Ollama that starts it, print, in the wordings of 2023 to 2026; and `ollama ps`.

Source: llama-model.cpp (load_tensors), llama-context.cpp, llama-kv-cache.cpp, llama-memory-recurrent.cpp of llama.cpp
0c1e57098, and of versions before it; cmd/cmd.go of Ollama.
"""

import re
from collections import defaultdict
from collections.abc import Mapping
from typing import get_args

from calc.errors import Frozen
from calc.formats import MIXES, WeightFormat
from calc.serving.engines.llamacpp.options import CacheType
from calc.serving.engines.sizes import DeviceBuffers
from calc.units import MIB

DEVICE = r"(?P<device>[A-Za-z]+[A-Za-z_]*[0-9]{0,2}(?:_[A-Za-z]+)*)"
SIZE = r"buffer size\s*=\s{1,12}(?P<mib>[0-9.]{1,12}) MiB"
BUFFERS = {
    "model": re.compile(rf"load_tensors:\s{{1,20}}{DEVICE} (?:model )?{SIZE}"),
    "context": re.compile(rf"(?:kv_cache\w{{0,20}}|memory_recurrent|rs_cache):\s{{1,20}}{DEVICE} (?:KV|RS) {SIZE}"),
    "compute": re.compile(rf"(?:llama_context|sched_reserve|new_context_with_model):\s{{1,20}}{DEVICE} compute {SIZE}"),
}
HOSTS = frozenset({"CPU", "CPU_Mapped", "CPU_REPACK", "CUDA_Host", "ROCm_Host", "Vulkan_Host", "SYCL_Host", "BLAS"})
CONTEXT = r"(?:llama_context|new_context_with_model): "
SETTINGS = {
    "ctx_size": re.compile(CONTEXT + r"n_ctx\s*=\s*([0-9]{1,9})"),
    "parallel": re.compile(CONTEXT + r"n_seq_max\s*=\s*([0-9]{1,3})"),
    "batch_size": re.compile(CONTEXT + r"n_batch\s*=\s*([0-9]{1,7})"),
    "ubatch_size": re.compile(CONTEXT + r"n_ubatch\s*=\s*([0-9]{1,7})"),
    "n_gpu_layers": re.compile(r"offloaded ([0-9]{1,4})/[0-9]{1,4} layers to GPU"),
}
FLASH = re.compile(CONTEXT + r"flash_attn\s*=\s*(\w{1,10})")
SWITCHES = {"0": "off", "disabled": "off", "1": "on", "enabled": "on"}
UNIFIED = re.compile(CONTEXT + r"kv_unified\s*=\s*(true|false)")
TYPES = re.compile(r"K \((\w{2,6})\):.{0,40}?V \((\w{2,6})\):")
FILE_TYPE = re.compile(r"(?:file type|model ftype)\s*=\s*(?P<type>[A-Z0-9_]{2,8})(?: - (?P<size>Small|Medium|Large))?")
PS = re.compile(
    r"^\S{1,200}\s+[0-9a-f]{12}\s+(?P<size>[0-9.]{1,8}) (?P<unit>[KMG]B)\s+"
    r"(?:(?P<all>100%) (?P<where>CPU|GPU)|(?P<cpu>[0-9]{1,3})%/(?P<gpu>[0-9]{1,3})% CPU/GPU)"
    r"(?:\s+(?P<context>[0-9]{1,8}))?",
    re.M,
)
"""NAME ID SIZE PROCESSOR CONTEXT; the context since 2025."""
UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9}


class OllamaShare(Frozen):
    """Size and place of a running model, as `ollama ps` prints them."""

    bytes: int
    on_gpus: float  # share
    context: int | None = None


class BufferLog(Frozen):
    """Bytes of each buffer by device, with the flags that the log states."""

    buffers: tuple[DeviceBuffers, ...] = ()
    flags: dict[str, int | str | bool] = {}
    weights: WeightFormat | None = None
    share: OllamaShare | None = None


def states_buffers(text: str) -> bool:
    return any(pattern.search(text) for pattern in BUFFERS.values()) or PS.search(text) is not None


def read_buffers(text: str) -> BufferLog:
    """The last start in a text: of a model and of what is loaded beside it, the first one."""
    starts = [match.start() for match in re.finditer(r"load_tensors: loading model tensors", text)]
    last = text[starts[-1] :] if starts else text
    weights, share = weights_of(text), share_of_gpus(text)
    return BufferLog(buffers=tuple(devices(last)), flags=flags(last), weights=weights, share=share)


def devices(text: str) -> list[DeviceBuffers]:
    """GPUs in their order, and the host with all its kinds of memory."""
    sizes = defaultdict[str, dict[str, float]](lambda: dict.fromkeys(BUFFERS, 0.0))
    for what, pattern in BUFFERS.items():
        seen = defaultdict[str, float](float)
        for match in pattern.finditer(text):
            # a compute buffer is planned again; caches and files of several parts add up
            before = 0.0 if what == "compute" else seen[match["device"]]
            seen[match["device"]] = before + float(match["mib"])
        for device, mib in seen.items():
            sizes["host" if device in HOSTS else device][what] += mib
    gpus = sorted(name for name in sizes if name != "host")
    names = {name: f"gpu{index}" for index, name in enumerate(gpus)} | ({"host": "host"} if "host" in sizes else {})
    return [
        DeviceBuffers(device=name, **{what: round(sizes[place][what] * MIB) for what in BUFFERS})
        for place, name in names.items()
    ]


def flags(text: str) -> dict[str, int | str | bool]:
    settings: dict[str, int | str | bool] = {
        name: int(match[1]) for name, pattern in SETTINGS.items() if (match := pattern.search(text))
    }
    if match := FLASH.search(text):
        settings["flash_attn"] = SWITCHES.get(match[1].lower(), "auto")
    if match := UNIFIED.search(text):
        settings["kv_unified"] = match[1] == "true"
    if match := TYPES.search(text):
        kinds = zip(("cache_type_k", "cache_type_v"), match.groups(), strict=True)
        settings |= {name: kind for name, kind in kinds if kind in get_args(CacheType)}
    return settings


def weights_of(text: str) -> WeightFormat | None:
    """The mix of the file, as the log names it: Q4_K - Medium."""
    match = FILE_TYPE.search(text)
    if match is None:
        return None
    plain: Mapping[str, WeightFormat] = {"F16": "fp16", "BF16": "bf16", "F32": "fp32", "MXFP4": "mxfp4"}
    name = match["type"] + (f"_{match['size'][0]}" if match["size"] else "")
    return plain.get(name) or next((mix for mix in MIXES if mix == name), None)


def share_of_gpus(text: str) -> OllamaShare | None:
    match = PS.search(text)
    if match is None:
        return None
    on_gpus = (match["where"] == "GPU") if match["all"] else int(match["gpu"]) / 100
    size = round(float(match["size"]) * UNITS[match["unit"]])
    return OllamaShare(bytes=size, on_gpus=on_gpus, context=int(match["context"]) if match["context"] else None)
