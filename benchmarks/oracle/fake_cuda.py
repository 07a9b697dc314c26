"""torch that takes a machine without a GPU for one with it, for fake tensors only: import this before torch.

A small library with a device guard and CUDA hooks that do nothing is compiled beside this file once (needs a C++
compiler), so that operations, autocast's lists and fused kernels are those of CUDA.
"""

import ctypes
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_suffix(".cpp")
LIBRARY = Path(__file__).with_name("libfake_cuda.so")


def load() -> None:
    """Compile the library where it is missing, and load it after those of torch that it needs."""
    spec = find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    torch = Path(spec.origin).parent
    if not LIBRARY.exists():
        include = [f"-I{torch / 'include'}", f"-I{torch / 'include' / 'torch' / 'csrc' / 'api' / 'include'}"]
        subprocess.run(["c++", "-std=c++20", "-O1", "-shared", "-fPIC", *include, SOURCE, "-o", LIBRARY], check=True)
    for name in ("libgomp.so.1", "libc10.so", "libtorch_cpu.so"):
        ctypes.CDLL(str(torch / "lib" / name), mode=ctypes.RTLD_GLOBAL)
    ctypes.CDLL(str(LIBRARY), mode=ctypes.RTLD_GLOBAL)


load()

# Below load(), for torch looks for the drivers' library once, when it is imported.
import torch  # noqa: E402
from torch import _meta_registrations as meta  # noqa: E402

# Functions of torch are replaced below, which a type checker refuses.
torch.cuda.amp.common.amp_definitely_not_available = lambda: False  # type: ignore[attr-defined]
torch.cuda.is_bf16_supported = lambda *args, **more: True
torch.cuda.get_device_capability = lambda *args: (9, 0)
torch.autograd.set_multithreading_enabled(False)

LIKE = torch.library.Library("aten", "IMPL")
for name in ("silu_backward", "mish_backward"):  # else written out in five tensors, for want of CUDA's kernel
    LIKE.impl(name, lambda gradient, x: torch.empty_like(x), "CUDA")


def fused_rms_norm(x: Any, shape: Any, weight: Any, eps: Any) -> tuple[Any, Any]:
    """torch's RMSNorm is one kernel on CUDA: its output, and 1 / rms in 32 bits."""
    sides = (*x.shape[: -len(shape)], *[1] * len(shape))
    return torch.empty_like(x), torch.empty(sides, dtype=torch.float32, device=x.device)


def fused_rms_norm_backward(gradient: Any, x: Any, shape: Any, rms: Any, weight: Any, wanted: Any) -> tuple[Any, Any]:
    return torch.empty_like(x), None if weight is None else torch.empty_like(weight)


LIKE.impl("_fused_rms_norm", fused_rms_norm, "CUDA")
LIKE.impl("_fused_rms_norm_backward", fused_rms_norm_backward, "CUDA")


def grouped(mat_a: Any, mat_b: Any, *args: Any, offs: Any = None, out_dtype: Any = None, **more: Any) -> Any:
    """grouped_mm takes fp32 on CUDA too."""
    return meta._create_grouped_mm_output_tensor(mat_a, mat_b, offs, out_dtype or mat_a.dtype)


meta._meta_grouped_mm_common = grouped
