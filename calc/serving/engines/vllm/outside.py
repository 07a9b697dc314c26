"""What vLLM's logs call non-torch: libraries and buffers of communication, which no allocator of PyTorch holds.

Ranges in GiB a GPU, from public start-up logs of 2024 to 2026 that print it.
"""

from calc.errors import Message
from calc.hardware.gpu import GPU
from calc.hardware.overhead import NONE, Range, libraries
from calc.serving.engines.vllm.options import VLLMOptions
from calc.serving.engines.vllm.since import holds

PCIE = Range(low=0.02, high=0.35)
"""Several without a switch between them: 0.09 (4 x RTX 4090) and 0.25 (2 x RTX 4090) are printed, the cache of two
more starts on 4 x RTX 4090 leaves less."""
SUPERCHIPS = Range(low=0.07, high=0.63)
"""4 x GH200: seventeen starts."""
SWITCHED, EACH_SWITCHED, SWITCHED_SPREAD = 0.5, 0.075, 0.75
"""Several on NVLink's switch, more for each of up to eight, and how far it may lie from that: 1.1 is what the cache of
nine starts on 8 x H100 leaves for it, 0.7 that of three on two; all of two machines."""
OLD_SWITCHED = Range(low=0.8, high=2.3)
"""The same up to 0.11: 1.38 (2 x H200) and 1.84 (4 x H100) are printed, 2.2 is what the cache of one start on 8 x H100
leaves."""
NODE = 8
"""GPUs on one switch, of which each has a buffer for each other."""
UNIFIED = Range(low=0.02, high=8)
"""Memory that the CPU shares: the driver's difference counts its page cache too, so that 3 to 8 GiB go to nobody's
account, on six starts on a GB10."""
UNIFIED_NOTE = Message(
    "The GPU shares its memory with the CPU: what the driver says is taken counts the system's page cache too, so that "
    "up to 8 GiB of the overhead depend on what else was read."
)
ANY = Range(low=0.02, high=1.84)
"""Several GPUs, whatever joins them: 1.84 is the most that a log prints."""
AMD = Range(low=0.02, high=1.84)
"""Several of AMD: 0.73 on two, in a fork."""
PROFILED = Range(low=0, high=1)
"""What stays of capturing a few graphs to estimate the rest, which is done since 0.18 before the memory that is left is
read (`gpu_worker.py: determine_available_memory`), whether or not the estimate is then taken off: kernels that are
loaded by then. 0.46 to 0.55 on four starts, 1.3 on one, on one H100, one RTX 3090 and 8 x H100; 0.3 on two A100."""


def usual_libraries(gpus: int) -> Range:
    """GiB of non-torch memory on any GPU; several."""
    return ANY if gpus > 1 else libraries(gpus)


def non_torch(gpu: GPU, gpus: int, options: VLLMOptions) -> Range:
    """GiB of non-torch memory on this GPU, of so many. Graphs may be captured to estimate what they take."""
    communication = linked(gpu, gpus, options)
    estimates = not options.enforce_eager and holds("graphs are estimated", options)
    more = PROFILED if estimates and gpu.platform == "cuda" else NONE
    return Range(low=communication.low + more.low, high=communication.high + more.high)


def linked(gpu: GPU, gpus: int, options: VLLMOptions) -> Range:
    """GiB of libraries and of buffers between so many of this GPU."""
    if gpu.memory == "unified":
        return UNIFIED
    if gpus == 1:
        return libraries(1)
    if gpu.platform != "cuda":
        return AMD
    if gpu.form == "superchip":
        return SUPERCHIPS
    if gpu.topology not in ("switch", "full mesh", "cube mesh"):
        return PCIE
    if not holds("links take less", options):
        return OLD_SWITCHED
    middle = SWITCHED + EACH_SWITCHED * min(gpus, NODE)
    return Range(low=max(PCIE.low, middle - SWITCHED_SPREAD), high=middle + SWITCHED_SPREAD)
