"""What mixers make of a micro-batch: attention over the cache, recurrent layers over their states.

Source: llama-graph.cpp (build_attn, build_attn_mha, build_rs), src/models/mamba-base.cpp, delta-net-base.cpp,
qwen3next.cpp, lfm2.cpp, deepseek2.cpp, and fattn.cu (ggml_cuda_flash_attn_ext_get_alloc_size); llama.cpp 0c1e57098.
"""

from collections.abc import Callable
from typing import NamedTuple

from calc.errors import ConfigError, Message
from calc.model.attention import GQA
from calc.model.linear_attention import GatedDeltaNet
from calc.model.mixers import Mixer
from calc.model.mla import LatentAttention
from calc.model.recurrent import Mamba, Mamba2, ShortConv
from calc.serving.engines.llamacpp import habits
from calc.serving.engines.llamacpp.context import CacheTensor, ContextSizes, cache_tensors, is_windowed, state_widths
from calc.serving.engines.llamacpp.micro_batch import MicroBatch
from calc.serving.engines.llamacpp.placement import BLOCKS
from calc.serving.engines.llamacpp.tape import PassTensor

TURN = 64
"""Side of the matrix that turns heads of keys and values before they are quantized."""
READ_AS_CACHED = frozenset({"f16", "bf16", "q4_0", "q8_0"})
"""Types of keys and values that CUDA's kernel for few tokens reads."""
HEADS = frozenset({40, 64, 72, 80, 96, 112, 128, 256})
"""Widths of a head that CUDA's flash attention has kernels for, the same for keys and values (fattn.cu)."""
GROUPED_HEADS = {(192, 128): 8, (320, 256): 32, (512, 512): 1, (576, 512): 1}
"""Widths of keys and values that it computes only where query heads share keys, a multiple of so many at a time."""
FLASH_TYPES = frozenset({"f32", "f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0"})
STATES = (96, 128, 256)
"""Sizes of Mamba-2's state that CUDA's kernel scans (ggml_backend_cuda_device_supports_op)."""
NAMES = {"attn_q": "queries", "attn_k": "keys", "attn_v": "values"}

Rest = Callable[[], PassTensor]
"""What of a mixer the graph has only where its result is read."""


class CacheInputs(NamedTuple):
    """Names of what a pass gets for the cells of a cache: which of them attention sees, and where it writes."""

    mask: str
    keys: str
    values: str


OF_ALL = CacheInputs("mask", "places of keys", "places of values")
OF_WINDOWS = CacheInputs("mask of windows", "places of keys of windows", "places of values of windows")


def mixed(b: MicroBatch, mixer: Mixer, x: PassTensor) -> PassTensor:
    """What a mixer makes of the normed state. Raises ConfigError for one whose steps are not known here."""
    if isinstance(mixer, GQA):
        return grouped_attention(b, mixer, x)()
    if isinstance(mixer, LatentAttention):
        return latent_attention(b, mixer, x)
    if isinstance(mixer, Mamba):
        return mamba(b, mixer, x)
    if isinstance(mixer, Mamba2):
        return mamba2(b, mixer, x)()
    if isinstance(mixer, GatedDeltaNet):
        return delta_net(b, mixer, x)
    if isinstance(mixer, ShortConv):
        return short_conv(b, mixer, x)
    sentence = Message("What llama.cpp plans for {mixer} in {kind} is not known here.", mixer=mixer.kind, kind=b.kind)
    raise ConfigError(sentence, "engine")


def grouped_attention(b: MicroBatch, mixer: GQA, x: PassTensor) -> Rest:
    """Queries, keys and values of each head, and attention to the cache; the rest projects its result."""
    d, d_v, tokens = mixer.d_head, mixer.d_v or mixer.d_head, b.rows
    packed = b.project(x, "attn_qkv", "queries, keys and values") if b.has("attn_qkv.weight") else None
    windows = any(is_windowed(layer_mixer, b.model) for block in b.model.blocks for layer_mixer in block.mixers)
    rotated = b.kind not in habits.UNROTATED and not (
        b.kind in habits.ROTATED_IN_WINDOWS and windows and mixer.window is None
    )
    turned_keys, turned_values = turns(b, b.context.type_k, d, mixer), turns(b, b.context.type_v, d_v, mixer)
    places, projected = [b.input("positions", 4 * tokens)], dict[str, PassTensor]()
    if "rope_freqs.weight" in b.file.outside and (mixer.window is None or b.kind != "gemma4"):
        places.append(b.weight("rope_freqs.weight"))

    def turned(x: PassTensor, what: str, side: int) -> PassTensor:
        return b.add("turned", x.nbytes // 4, b.input(what, 4 * side * side), x)

    def of_heads(name: str) -> PassTensor:
        """Normed, rotated, and turned where they are quantized."""
        weight, elements = name if packed or b.has(f"{name}.weight") else "attn_k", widths[name] * tokens
        if weight not in projected:
            projected[weight] = packed or b.project(x, weight, NAMES[weight])
        made = b.view(projected[weight], elements if mixer.gated else None)
        turns = turned_values if name == "attn_v" else turned_keys
        if mixer.qk_norm != "none" and b.has(f"{name}_norm.weight"):
            made = b.norm(made, f"{name}_norm")
        if (rotated and name != "attn_v") or (packed and turns):
            made = b.add("rotated", elements, made, *places, over=1)
        if not turns:
            return made
        return turned(made, "turning of values", TURN) if name == "attn_v" else turned(made, "turning of keys", d & -d)

    widths = {"attn_q": mixer.n_q * d, "attn_v": mixer.n_kv * d_v, "attn_k": mixer.n_kv * d}
    heads = {name: of_heads(name) for name in (sorted(widths, key=list(NAMES).index) if windows else widths)}
    attention = attended(b, mixer, heads["attn_q"], heads["attn_k"], heads["attn_v"])

    def rest() -> PassTensor:
        made = turned(attention, "turning of values", TURN) if turned_values else attention
        if mixer.gated:
            made = b.summed(made, b.add("gate", widths["attn_q"] * tokens, projected["attn_q"]), "gated attention")
        return b.project(made, "attn_output", "attention")

    return rest


def turns(b: MicroBatch, kind: str, width: int, mixer: GQA) -> bool:
    """Whether heads are turned before they are quantized: where all layers of a cache have the same."""
    mixers = (attention for block in b.model.blocks for attention in block.mixers if isinstance(attention, GQA))
    windowed = is_windowed(mixer, b.model)
    widths = {attention.d_head for attention in mixers if is_windowed(attention, b.model) == windowed}
    return BLOCKS[kind][0] > 1 and width % TURN == 0 and len(widths) == 1


def latent_attention(b: MicroBatch, mixer: LatentAttention, x: PassTensor) -> PassTensor:
    """Attention over the latent, with keys' and values' up-projections taken into queries and result."""
    tokens, rank, rope, heads = b.rows, mixer.kv_rank, mixer.d_rope, mixer.n_q
    positions, q = b.input("positions", 4 * tokens), x
    if mixer.q_rank is not None:
        q = b.norm(b.project(q, "attn_q_a", "compressed queries"), "attn_q_a_norm")
    q = b.project(q, "attn_q_b" if mixer.q_rank is not None else "attn_q", "queries")
    absorbed = b.add("absorbed queries", heads * rank * tokens, q, by="attn_k_b.weight")
    q = b.add(
        "queries", heads * (rank + rope) * tokens, absorbed, b.add("rotated", heads * rope * tokens, q, positions)
    )
    both = b.project(x, "attn_kv_a_mqa", "latent")
    latent = b.norm(b.view(both, rank * tokens), "attn_kv_a_norm")
    key = b.add("keys", (rank + rope) * tokens, latent, b.add("rotated", rope * tokens, both, positions))
    made = b.add(
        "values of latents", heads * mixer.d_v * tokens, attended(b, mixer, q, key, latent), by="attn_v_b.weight"
    )
    return b.project(b.same("attention", made, over=0), "attn_output", "attention")


def attended(b: MicroBatch, mixer: GQA | LatentAttention, q: PassTensor, k: PassTensor, v: PassTensor) -> PassTensor:
    """Keys and values written into the cache, and attention to all of it."""
    context, tokens, home = b.context, b.rows, b.cache_device
    inputs = OF_WINDOWS if is_windowed(mixer, b.model) else OF_ALL
    cached = list(cache_tensors(b.model, mixer, context, b.widest_value))
    width = mixer.d_v or mixer.d_head if isinstance(mixer, GQA) else mixer.kv_rank
    n_kv = mixer.n_kv if isinstance(mixer, GQA) else 1
    keys = PassTensor("cached keys", cached[0].nbytes, home, fixed=True)
    values = PassTensor("cached values", cached[-1].nbytes, home, fixed=True)
    b.write(home, k, b.input(inputs.keys, 8 * tokens))
    if len(cached) > 1:
        if context.transposed and (b.has("attn_qkv.weight") or n_kv * width < cached[1].width):
            v = b.add("padded values", cached[1].width * tokens, v)
        places = 8 * tokens * (b.widest_value if context.transposed else 1)
        b.write(home, v, b.input(inputs.values, places))
    cells = context.cells_of(mixer, b.model)
    mask = b.input(inputs.mask, (2 if context.flash else 4) * cells * tokens)
    if context.flash:
        made = b.add("attention of each head", mixer.n_q * width * tokens, q, keys, values, mask)
        if has_flash_kernel(mixer, context):
            made.scratch = copies_in_16_bits(b, cached, n_kv) if b.on_cuda else 0
        else:
            b.on_host()
    else:
        if len(cached) == 1 or not context.transposed:
            block, size = BLOCKS[cached[-1].type]
            values = b.add("transposed values", n_kv * width * cells * context.streams // block * size // 4, values)
        scores = b.add("scores", mixer.n_q * cells * tokens, keys, q)
        if b.kind in habits.CAPPED_SCORES:
            scores = b.same("scores", scores)
        made = b.add("attention of each head", mixer.n_q * width * tokens, values, b.same("scores", scores, mask))
        if isinstance(mixer, GQA):
            made = b.same("attention", made, over=0)
    b.needed = len(b.steps)
    return made


def has_flash_kernel(mixer: GQA | LatentAttention, context: ContextSizes) -> bool:
    """Whether CUDA has a kernel of flash attention for these heads and this cache (fattn.cu)."""
    if isinstance(mixer, GQA):
        widths, group = (mixer.d_head, mixer.d_v or mixer.d_head), mixer.n_q // mixer.n_kv
    else:
        widths, group = (mixer.kv_rank + mixer.d_rope, mixer.kv_rank), mixer.n_q
    least = GROUPED_HEADS.get(widths)
    fits = widths[0] == widths[1] and widths[0] in HEADS if least is None else group > 1 and group % least == 0
    return fits and {context.type_k, context.type_v} <= FLASH_TYPES


def copies_in_16_bits(b: MicroBatch, cached: list[CacheTensor], n_kv: int) -> int:
    """Bytes of keys and values in 16 bits, where the kernel does not read them as they are cached."""
    types, capability = {copied.type for copied in cached}, b.capability or 0
    quantized = any(BLOCKS[kind][0] > 1 for kind in types)
    few = 2 if quantized and (capability >= 890 or capability < 700) else 1
    fast = len(types) == 1 and types <= READ_AS_CACHED and cached[0].width // n_kv in (64, 128, 256)
    if fast and b.rows // b.context.streams <= few:
        return 0
    return sum(2 * copied.width * copied.rows for copied in cached if copied.type != "f16")


def states(b: MicroBatch, mixer: Mixer, which: int) -> PassTensor:
    """What a recurrent layer keeps of all sequences: its convolution's memory, or its state."""
    nbytes = 4 * state_widths(mixer)[which] * b.context.sequences
    return PassTensor("cached states", nbytes, b.cache_device, fixed=True)


def read_states(b: MicroBatch, mixer: Mixer, which: int) -> PassTensor:
    """States of the sequences of a pass; the graph has this before what nothing needed yet."""
    cached, later = states(b, mixer, which), b.steps[b.needed :]
    del b.steps[b.needed :]
    b.write(cached.device, cached)
    made = b.add("states", cached.nbytes // 4, cached, places_of_states(b), on=cached.device)
    b.write(cached.device, made)
    b.steps += later
    return made


def places_of_states(b: MicroBatch) -> PassTensor:
    return b.input("places of states", 4 * b.context.sequences)


def convolved(b: MicroBatch, memory: PassTensor, channels: int, x: PassTensor) -> PassTensor:
    """What the convolution reads: its memory before the new inputs, the last of which stay in it."""
    made = b.add("concat", memory.nbytes // 4 + channels * b.rows, memory, x)
    for _ in range(1 + b.context.rollback):
        b.write(b.cache_device, made)
    return made


def convolution(b: MicroBatch, x: PassTensor, channels: int) -> PassTensor:
    made = b.add("convolution", channels * b.rows, x, by="ssm_conv1d.weight")
    return b.same("convolution", b.biased(made, "ssm_conv1d"))


def scan(b: MicroBatch, mixer: Mamba | Mamba2, elements: int, *reads: PassTensor) -> PassTensor:
    """The outputs of a selective state space with its last states behind them."""
    state = states(b, mixer, 1)
    made = b.add("scan", elements + state.nbytes // 4, state, *reads, places_of_states(b), by="ssm_a", rows=1)
    if isinstance(mixer, Mamba2):
        computed = mixer.d_state in STATES and mixer.d_head % 16 == 0
    else:
        computed = mixer.d_state == 16 and mixer.d_inner % 128 == 0
    if not computed:
        b.on_host()
    b.write(b.cache_device, made)
    return b.view(made, elements)


def mamba(b: MicroBatch, mixer: Mamba, x: PassTensor) -> PassTensor:
    inner, memory = mixer.d_inner * b.rows, read_states(b, mixer, 0)
    both = b.project(x, "ssm_in", "input of the state space")
    x = convolved(b, memory, mixer.d_inner, both)
    b.write(b.cache_device, states(b, mixer, 1))
    x = convolution(b, x, mixer.d_inner)
    made = b.project(x, "ssm_x", "dt, B and C")
    dt = b.project(b.add("dt", mixer.dt_rank * b.rows, made), "ssm_dt", "dt")
    keys = [b.view(made, mixer.d_state * b.rows) for _ in range(2)]
    if b.has("ssm_dt_norm.weight"):
        keys = [b.same("norm", key) for key in keys]
    out = scan(b, mixer, inner, b.view(x), dt, *keys)
    gate = b.add("gate", inner, both)
    out = b.same("scan", out, b.same("product", x, by="ssm_d"), over=2)
    return b.view(b.project(b.add("gated", inner, gate, out), "ssm_out", "recurrent layer"))


def mamba2(b: MicroBatch, mixer: Mamba2, x: PassTensor) -> Rest:
    inner, memory = mixer.n_heads * mixer.d_head * b.rows, read_states(b, mixer, 0)
    both = b.project(x, "ssm_in", "input of the state space")
    x = convolved(b, memory, mixer.channels(), both)
    b.write(b.cache_device, states(b, mixer, 1))
    x = convolution(b, x, mixer.channels())
    dt = b.add("dt", mixer.n_heads * b.rows, both)
    dt = b.same("dt", dt, by="ssm_dt.bias")
    out = scan(b, mixer, inner, *(b.view(x) for _ in range(3)), dt)

    def rest() -> PassTensor:
        gate = b.add("gate", inner, both)
        skipped = b.add("product", inner, b.view(x), by="ssm_d")
        made = b.add("gated", inner, gate, b.same("scan", out, skipped, over=2))
        if b.has("ssm_norm.weight"):
            made = b.same("norm", b.same("norm", b.view(made)), by="ssm_norm.weight")
        return b.project(made, "ssm_out", "recurrent layer")

    return rest


def delta_net(b: MicroBatch, mixer: GatedDeltaNet, x: PassTensor) -> PassTensor:
    heads, inner = mixer.n_v * b.rows, mixer.d_v * mixer.n_v * b.rows
    channels, memory = 2 * mixer.n_k * mixer.d_k + mixer.n_v * mixer.d_v, read_states(b, mixer, 0)
    out = convolved(b, memory, channels, b.project(x, "attn_qkv", "queries, keys and values"))
    state = read_states(b, mixer, 1)
    out = convolution(b, out, channels)
    q, k = (b.add(name, mixer.d_k * mixer.n_k * b.rows, out) for name in ("queries", "keys"))
    both = b.project(x, "ssm_ba", "beta and alpha") if b.has("ssm_ba.weight") else None
    decay = b.add("decay", heads, both or b.project(x, "ssm_alpha", "alpha"), by="ssm_dt.bias")
    decay = b.same("decay", b.same("decay", decay), by="ssm_a")
    beta = b.add("beta", heads, both or b.project(x, "ssm_beta", "beta"))
    snapshots = (1 + b.context.rollback) * state.nbytes // 4
    made = b.add("delta rule", inner + snapshots, q, k, out, decay, beta, state)
    b.write(b.cache_device, made)
    y = b.same("norm", b.add("norm", inner, made), by="ssm_norm.weight")
    gate = b.add("gate", inner, b.project(x, "attn_gate", "gate"))
    return b.view(b.project(b.summed(y, gate, "gated"), "ssm_out", "recurrent layer"))


def short_conv(b: MicroBatch, mixer: ShortConv, x: PassTensor) -> PassTensor:
    elements, memory = mixer.d_inner * b.rows, read_states(b, mixer, 0)
    parts = b.project(x, "shortconv.in_proj", "input of the convolution")
    out = convolved(b, memory, mixer.d_inner, b.add("gated", elements, parts))
    out = b.add("convolution", elements, out, by="shortconv.conv.weight")
    return b.view(b.project(b.same("gated", out, parts), "shortconv.out_proj", "recurrent layer"))
