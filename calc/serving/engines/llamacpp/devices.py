"""What GPUs compute of a graph, and the bytes that a tensor takes there.

Source: ggml-cuda.cu (ggml_backend_cuda_device_supports_op, ggml_backend_cuda_buffer_type_get_alloc_size), fattn.cu
(ggml_cuda_get_best_fattn_kernel, ggml_cuda_flash_attn_ext_get_alloc_size); ggml 0.25.3.
"""

from collections.abc import Iterable

from calc.serving.engines.llamacpp.graph import BLOCKS, UNARY, GraphNode
from calc.serving.engines.llamacpp.planner import PlannedDevice
from calc.serving.engines.loading import up_to

CUDA_ALIGNMENT, HOST_ALIGNMENT = 128, 32
ROW = 512
"""Elements to which CUDA pads the end of a quantized tensor (MATRIX_ROW_PADDING)."""
HEADS = frozenset({40, 64, 72, 80, 96, 112, 128, 256})
"""Widths of a head that flash attention has kernels for, the same for keys and values."""
GROUPED_HEADS = {(192, 128): 8, (320, 256): 32, (512, 512): 1, (576, 512): 1}
"""Widths of keys and values that it computes only where query heads share keys, a multiple of so many at a time."""
CACHE_TYPES = frozenset({"f32", "f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0"})
VECTOR_TYPES = frozenset({"f16", "bf16", "q4_0", "q8_0"})
"""Types of keys that the kernel for few tokens reads as they are, where values have the same."""
CELLS = 256
"""Cells of the cache that a block of the fast kernels reads."""
STATES = frozenset({96, 128, 256})
"""Sizes of state of Mamba 2."""


def cuda(index: int, count: int, capability: int) -> PlannedDevice:
    """One of so many GPUs, by its compute capability, such as 890. It reads nothing that lies on another one."""
    others = set(range(count)) - {index}

    def supports(node: GraphNode) -> bool:
        return not any(one.home in others for one in node.srcs) and supported(node)

    def size(node: GraphNode) -> int:
        if node.op == "flash_attn_ext":
            return flash_bytes(node, capability)
        return stored_bytes(node.type, node.ne[0], node.nbytes)

    return PlannedDevice(CUDA_ALIGNMENT, supports, size, fuses=True, takes_over=True)


def remote() -> PlannedDevice:
    """A GPU of another machine, reached over RPC, where a CPU computes: it adds nothing to what tensors take."""
    return PlannedDevice(HOST_ALIGNMENT, lambda node: True, lambda node: node.nbytes)


def host() -> PlannedDevice:
    return PlannedDevice(HOST_ALIGNMENT, lambda node: True, lambda node: node.nbytes)


def stored_bytes(kind: str, width: int, nbytes: int) -> int:
    """Bytes of a tensor on a GPU: a quantized one is followed by what its last row lacks of 512 elements."""
    block, size = BLOCKS[kind]
    lacking = -width % ROW
    return nbytes + lacking // block * size if block > 1 and lacking else nbytes


def supported(node: GraphNode) -> bool:
    """Whether a GPU computes an operation."""
    op, srcs = node.op, node.srcs
    if op in UNARY:
        return srcs[0].contiguous
    if op in ("swiglu", "geglu", "reglu", "swiglu_oai"):
        return contiguous_from(srcs[0], 1)
    if op in ("mul_mat", "mul_mat_id"):
        return all(one.nb[0] == BLOCKS[one.type][1] for one in srcs[:2])
    if op == "get_rows":
        return srcs[0].type not in ("mxfp4", "iq4_nl") or srcs[0].ne[0] % 256 == 0
    if op in ("norm", "rms_norm", "l2_norm", "sum_rows"):
        return srcs[0].nb[0] == BLOCKS[srcs[0].type][1]
    if op == "rope":
        return srcs[0].nb[0] == BLOCKS[srcs[0].type][1] and contiguous_from(srcs[0], 2)
    if op == "ssm_scan":
        state, decay, groups = srcs[0].ne, srcs[3].ne[0], srcs[4].ne[1]
        if decay == 1:
            return state[0] in STATES and state[1] % 16 == 0
        return state[0] == 16 and state[1] == 1 and state[2] % 128 == 0 and groups == 1
    if op == "ssm_conv":
        return srcs[0].ne[1] % 128 == 0
    if op == "flash_attn_ext":
        return has_flash_kernel(node)
    return True


def contiguous_from(node: GraphNode, axis: int) -> bool:
    """Whether the sides from `axis` on, and what lies in them, have no gaps."""
    inner = node.ne[0] * node.nb[0] // BLOCKS[node.type][0]
    steps = [inner, *(side * step for side, step in zip(node.ne[1:], node.nb[1:], strict=True))]
    if axis == 0 and node.nb[1] != inner:
        return False
    return all(node.ne[i] == 1 or node.nb[i] == steps[i - 1] for i in range(axis + 1, 4))


def shared_keys(node: GraphNode) -> int:
    """Query heads to a key where the kernels that gain from it apply; 0: they don't."""
    q, k, v, mask = node.srcs[:4]
    aligned = all(step % 16 == 0 for one in (q, k, v, mask) if BLOCKS[one.type][0] == 1 for step in one.nb[1:])
    group = q.ne[2] // k.ne[2]
    return group if group >= 2 and k.ne[1] % CELLS == 0 and aligned else 0


def has_flash_kernel(node: GraphNode) -> bool:
    """Whether a GPU has a kernel of flash attention for these heads and this cache."""
    k, v = node.srcs[1], node.srcs[2]
    widths = k.ne[0], v.ne[0]
    if widths in GROUPED_HEADS:
        group = shared_keys(node)
        fits = group > 0 and group % GROUPED_HEADS[widths] == 0
    else:
        fits = widths[0] == widths[1] and widths[0] in HEADS
    return fits and k.type in CACHE_TYPES and v.type in CACHE_TYPES


def flash_bytes(node: GraphNode, capability: int) -> int:
    """The result of attention, and behind it keys and values in 16 bits where the kernel does not read the cache."""
    k, v = node.srcs[1], node.srcs[2]
    size = node.nbytes
    if reads_cache(node, capability) or not has_flash_kernel(node):
        return size
    if k.type != "f16":
        size = up_to(size, CUDA_ALIGNMENT) + 2 * k.elements
    if v.type != "f16" and v.holder is not k.holder:
        size = up_to(size, CUDA_ALIGNMENT) + 2 * v.elements
    return size


def reads_cache(node: GraphNode, capability: int) -> bool:
    """Whether the kernel for few tokens is taken, and reads keys and values as they are."""
    q, k, v = node.srcs[:3]
    quantized = any(BLOCKS[one.type][0] > 1 for one in (k, v))
    if q.ne[0] not in (64, 128, 256) or k.ne[1] % CELLS or k.type != v.type or k.type not in VECTOR_TYPES:
        return False
    return q.ne[1] <= few_tokens(capability) if quantized else q.ne[1] == 1


def few_tokens(capability: int) -> int:
    """Tokens up to which the kernel for few is taken with a quantized cache."""
    return 2 if capability >= 890 or capability < 700 else 1


def kernels_of(capability: int, types: Iterable[str]) -> int:
    """A capability that stands for all with the same kernels for a cache of such types."""
    quantized = any(BLOCKS[one][0] > 1 for one in types)
    return 890 if quantized and few_tokens(capability) == 2 else 800
