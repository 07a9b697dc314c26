"""What llama.cpp, and Ollama that starts it, print of their buffers, in the wordings of 2023 to 2026; and `ollama ps`.

Source: llama-model.cpp (load_tensors), llama-context.cpp, llama-kv-cache.cpp, llama-memory-recurrent.cpp of llama.cpp
0c1e57098, and of versions before it; cmd/cmd.go of Ollama.
"""

import re
from collections.abc import Mapping

from calc.errors import Frozen
from calc.formats import MIXES, WeightFormat
from calc.serving.engines.device_buffers import DeviceBuffers
from calc.serving.engines.llamacpp.options import CacheType
from calc.units import MIB

DEVICE = r"(?P<device>[A-Za-z]+[A-Za-z_]*[0-9]{0,2}(?:_[A-Za-z]+)*)"
BUFFERS = {
    "model": re.compile(
        rf"load_tensors:\s{{1,20}}{DEVICE} (?:model )?buffer size\s*=\s{{1,12}}(?P<mib>[0-9.]{{1,12}}) MiB"
    ),
    "context": re.compile(
        rf"(?:kv_cache\w{{0,20}}|memory_recurrent|rs_cache):\s{{1,20}}{DEVICE} (?:KV|RS) buffer size\s*=\s{{1,12}}"
        r"(?P<mib>[0-9.]{1,12}) MiB"
    ),
    "compute": re.compile(
        rf"(?:llama_context|sched_reserve|new_context_with_model):\s{{1,20}}{DEVICE} compute buffer size\s*=\s{{1,12}}"
        r"(?P<mib>[0-9.]{1,12}) MiB"
    ),
}
HOSTS = frozenset({"CPU", "CPU_Mapped", "CPU_REPACK", "CUDA_Host", "ROCm_Host", "Vulkan_Host", "SYCL_Host", "BLAS"})
SETTINGS = {
    "ctx_size": re.compile(r"(?:llama_context|new_context_with_model): n_ctx\s*=\s*([0-9]{1,9})"),
    "parallel": re.compile(r"llama_context: n_seq_max\s*=\s*([0-9]{1,3})"),
    "batch_size": re.compile(r"(?:llama_context|new_context_with_model): n_batch\s*=\s*([0-9]{1,7})"),
    "ubatch_size": re.compile(r"(?:llama_context|new_context_with_model): n_ubatch\s*=\s*([0-9]{1,7})"),
    "n_gpu_layers": re.compile(r"offloaded ([0-9]{1,4})/[0-9]{1,4} layers to GPU"),
}
FLASH = re.compile(r"(?:llama_context|new_context_with_model): flash_attn\s*=\s*(\w{1,10})")
UNIFIED = re.compile(r"llama_context: kv_unified\s*=\s*(true|false)")
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
    """What `ollama ps` says of a model that runs."""

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
    """Whether a text is such a log."""
    return any(pattern.search(text) for pattern in BUFFERS.values()) or PS.search(text) is not None


def read_buffers(text: str) -> BufferLog:
    """The last start in a text: of a model and of what is loaded beside it, the first one."""
    starts = [match.start() for match in re.finditer(r"load_tensors: loading model tensors", text)]
    last = text[starts[-1] :] if starts else text
    return BufferLog(
        buffers=tuple(devices(last)), flags=flags(last), weights=weights_of(text), share=share_of_gpus(text)
    )


def devices(text: str) -> list[DeviceBuffers]:
    """GPUs in their order, and the host with all its kinds of memory."""
    sizes: dict[str, dict[str, float]] = {}
    for what, pattern in BUFFERS.items():
        seen: dict[str, float] = {}
        for match in pattern.finditer(text):
            device = match["device"]
            # a compute buffer is planned again; caches and files of several parts add up
            seen[device] = float(match["mib"]) if what == "compute" else seen.get(device, 0) + float(match["mib"])
        for device, mib in seen.items():
            place = sizes.setdefault("host" if device in HOSTS else device, {})
            place[what] = place.get(what, 0) + mib
    gpus = sorted(name for name in sizes if name != "host")
    names = {name: f"gpu{index}" for index, name in enumerate(gpus)} | {"host": "host"}
    return [
        DeviceBuffers(device=names[name], **{what: round(sizes[name].get(what, 0) * MIB) for what in BUFFERS})
        for name in (*gpus, *(["host"] if "host" in sizes else []))
    ]


def flags(text: str) -> dict[str, int | str | bool]:
    settings: dict[str, int | str | bool] = {}
    for name, pattern in SETTINGS.items():
        if match := pattern.search(text):
            settings[name] = int(match[1])
    if match := FLASH.search(text):
        word = match[1].lower()
        settings["flash_attn"] = {"0": "off", "disabled": "off", "1": "on", "enabled": "on"}.get(word, "auto")
    if match := UNIFIED.search(text):
        settings["kv_unified"] = match[1] == "true"
    if match := TYPES.search(text):
        kinds: tuple[CacheType, ...] = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")
        for name, kind in zip(("cache_type_k", "cache_type_v"), (match[1], match[2]), strict=True):
            if kind in kinds:
                settings[name] = kind
    return settings


SIZES = {"Small": "_S", "Medium": "_M", "Large": "_L"}


def weights_of(text: str) -> WeightFormat | None:
    """The mix of the file, as the log names it: Q4_K - Medium."""
    match = FILE_TYPE.search(text)
    if match is None:
        return None
    plain: Mapping[str, WeightFormat] = {"F16": "fp16", "BF16": "bf16", "F32": "fp32", "MXFP4": "mxfp4"}
    name = f"{match['type']}{SIZES.get(match['size'] or '', '')}"
    return plain.get(name) or next((mix for mix in MIXES if mix == name), None)


def share_of_gpus(text: str) -> OllamaShare | None:
    match = PS.search(text)
    if match is None:
        return None
    on_gpus = (match["where"] == "GPU") if match["all"] else int(match["gpu"]) / 100
    size = round(float(match["size"]) * UNITS[match["unit"]])
    return OllamaShare(bytes=size, on_gpus=on_gpus, context=int(match["context"]) if match["context"] else None)
