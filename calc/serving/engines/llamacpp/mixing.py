"""What mixers make of a micro-batch: attention over the cache, recurrent layers over their states.

Source: llama-graph.cpp (build_attn, build_attn_mha, build_rs), src/models/mamba-base.cpp, delta-net-base.cpp,
qwen3next.cpp, lfm2.cpp, deepseek2.cpp, and fattn.cu (ggml_cuda_flash_attn_ext_get_alloc_size); llama.cpp 0c1e57098.
"""

from collections.abc import Callable
from typing import NamedTuple

from calc.model.attention import GQA
from calc.model.linear_attention import GatedDeltaNet
from calc.model.mixers import Mixer
from calc.model.mla import LatentAttention
from calc.model.recurrent import Mamba, Mamba2, ShortConv
from calc.serving.engines.llamacpp.context import CacheTensor, cache_tensors, is_windowed, state_widths
from calc.serving.engines.llamacpp.file import BLOCKS
from calc.serving.engines.llamacpp.habits import (
    CAPPED_SCORES,
    FOUR_POSITIONS,
    NO_ROTATION,
    NO_ROTATION_BESIDE_STATES,
    NORMED_VALUES,
    ROTATED_BUT_FOURTH,
    ROTATED_IN_WINDOWS,
    SCALED_QUERY,
)
from calc.serving.engines.llamacpp.micro_batch import MicroBatch
from calc.serving.engines.llamacpp.tape import PassTensor

TURN = 64
"""Side of the matrix that turns heads of keys and values before they are quantized."""
READ_AS_CACHED = frozenset({"f16", "bf16", "q4_0", "q8_0"})
"""Types of keys and values that CUDA's kernel for few tokens reads."""
NAMES = {"attn_qkv": "queries, keys and values", "attn_q": "queries", "attn_k": "keys", "attn_v": "values"}


class Inputs(NamedTuple):
    """Names of what is written before a pass for all layers that keep the same of the context."""

    mask: str
    keys: str
    values: str
    turning_keys: str
    turning_values: str


WHOLE = Inputs("mask", "places of keys", "places of values", "turning of keys", "turning of values")
WINDOWS = Inputs(
    "mask of windows",
    "places of keys of windows",
    "places of values of windows",
    "turning of keys of windows",
    "turning of values of windows",
)

Rest = Callable[[], PassTensor]
"""What of a mixer the graph has only where its result is read."""


def mixed(b: MicroBatch, mixer: Mixer, x: PassTensor) -> PassTensor:
    match mixer:
        case GQA():
            return grouped_attention(b, mixer, x)()
        case LatentAttention():
            return latent_attention(b, mixer, x)
        case Mamba():
            return mamba(b, mixer, x)
        case Mamba2():
            return mamba2(b, mixer, x)()
        case GatedDeltaNet():
            return delta_net(b, mixer, x)
        case ShortConv():
            return short_conv(b, mixer, x)
        case _:
            raise NotImplementedError(mixer.kind)


def grouped_attention(b: MicroBatch, mixer: GQA, x: PassTensor) -> Rest:
    """Queries, keys and values of each head, and attention; the rest projects its result."""
    d, d_v, tokens = mixer.d_head, mixer.d_v or mixer.d_head, b.rows
    inputs, rotated, packed = inputs_of(b, mixer), rotates(b, mixer), b.has("attn_qkv.weight")
    turned_keys, turned_values = turns(b, b.context.type_k, d, mixer), turns(b, b.context.type_v, d_v, mixer)
    places = 4 * tokens * (4 if b.kind in FOUR_POSITIONS else 1)
    positions = [b.input("positions", places), *frequencies(b, mixer)] if rotated else []
    projections: dict[str, PassTensor] = {}

    def projected(weight: str) -> PassTensor:
        own = "attn_qkv" if packed else weight if b.has(f"{weight}.weight") else "attn_k"
        if own not in projections:
            made = b.project(x, own, NAMES[own])
            normed = mixer.qk_norm == "full" and b.has(f"{own}_norm.weight")
            projections[own] = b.norm(made, f"{own}_norm") if normed else made
        return projections[own]

    def turned(name: str, side: int, x: PassTensor) -> PassTensor:
        return b.add("turned", x.nbytes // 4, b.input(name, 4 * side * side), x)

    def part(weight: str, heads: int, width: int, *, changed: bool, turns: bool) -> PassTensor:
        """Normed, rotated or scaled, and turned."""
        elements = heads * width * tokens
        made = b.view(projected(weight), elements if mixer.gated else None)
        if mixer.qk_norm != "full" and b.has(f"{weight}_norm.weight"):
            made = b.norm(made, f"{weight}_norm")
        if changed or (packed and turns):
            made = b.add("rotated", elements, made, *(positions if weight != "attn_v" else []), over=1)
        if not turns:
            return made
        values = weight == "attn_v"
        return turned(inputs.turning_values if values else inputs.turning_keys, TURN if values else d & -d, made)

    def keys() -> PassTensor:
        return part("attn_k", mixer.n_kv, d, changed=rotated, turns=turned_keys)

    scaled = rotated or b.kind in SCALED_QUERY or b.kind == "llama4"
    q = part("attn_q", mixer.n_q, d, changed=scaled, turns=turned_keys)
    k = keys() if any(is_windowed(one, b.model) for block in b.model.blocks for one in block.mixers) else None
    v = part("attn_v", mixer.n_kv, d_v, changed=b.kind in NORMED_VALUES, turns=turned_values)
    attention = attended(b, mixer, q, k or keys(), v)

    def rest() -> PassTensor:
        made = turned(inputs.turning_values, TURN, attention) if turned_values else attention
        if mixer.gated:
            gate = b.same("gate", b.add("gate", mixer.n_q * d * tokens, projected("attn_q")))
            made = b.summed(made, gate, "gated attention")
        return b.project(made, "attn_output", "attention")

    return rest


def inputs_of(b: MicroBatch, mixer: Mixer) -> Inputs:
    return WINDOWS if is_windowed(mixer, b.model) else WHOLE


def rotates(b: MicroBatch, mixer: GQA) -> bool:
    mixers = [one for block in b.model.blocks for one in block.mixers]
    if b.kind in ROTATED_IN_WINDOWS:
        return mixer.window is not None or all(one.window is None for one in mixers)
    if b.model.model_type in NO_ROTATION_BESIDE_STATES:
        return all(isinstance(one, GQA) for one in mixers)
    return b.kind not in NO_ROTATION and not (b.kind in ROTATED_BUT_FOURTH and b.layer % 4 == 3)


def frequencies(b: MicroBatch, mixer: GQA) -> list[PassTensor]:
    """Factors of the rotary frequencies, where the file has them."""
    names = ["rope_freqs.weight"] if mixer.window is None or b.kind != "gemma4" else []
    stored = [b.file.outside.get(name) for name in (*names, "rope_factors_long.weight")]
    return [b.stored(one, b.placement.layers[b.layer]) for one in stored if one is not None]


def turns(b: MicroBatch, kind: str, width: int, mixer: GQA) -> bool:
    """Whether heads are turned before they are quantized: where all layers of a cache have the same."""
    mixers = (one for block in b.model.blocks for one in block.mixers if isinstance(one, GQA))
    windowed = is_windowed(mixer, b.model)
    widths = {one.d_head for one in mixers if is_windowed(one, b.model) == windowed}
    return BLOCKS[kind][0] > 1 and width % TURN == 0 and len(widths) == 1


def latent_attention(b: MicroBatch, mixer: LatentAttention, x: PassTensor) -> PassTensor:
    """Attention over the latent, with keys' and values' up-projections taken into queries and result."""
    tokens, rank, rope, heads = b.rows, mixer.kv_rank, mixer.d_rope, mixer.n_q
    positions, q = b.input("positions", 4 * tokens), x
    if mixer.q_rank is not None:
        q = b.norm(b.project(q, "attn_q_a", "compressed queries"), "attn_q_a_norm")
    q = b.project(q, "attn_q_b" if mixer.q_rank is not None else "attn_q", "queries")
    absorbed = b.by("attn_k_b.weight", "absorbed queries", heads * rank * tokens, q)
    rotated = b.add("rotated", heads * rope * tokens, q, positions)
    q = b.add("queries", heads * (rank + rope) * tokens, absorbed, rotated)
    both = b.project(x, "attn_kv_a_mqa", "latent")
    latent = b.norm(b.view(both, rank * tokens), "attn_kv_a_norm")
    key = b.add("keys", (rank + rope) * tokens, latent, b.add("rotated", rope * tokens, both, positions))
    made = b.by("attn_v_b.weight", "values of latents", heads * mixer.d_v * tokens, attended(b, mixer, q, key, latent))
    return b.project(b.same("attention", made, over=0), "attn_output", "attention")


def attended(b: MicroBatch, mixer: GQA | LatentAttention, q: PassTensor, k: PassTensor, v: PassTensor) -> PassTensor:
    """Keys and values written into the cache, and attention to all of it."""
    context, tokens, inputs = b.context, b.rows, inputs_of(b, mixer)
    cached = {one.name: one for one in cache_tensors(b.model, mixer, context, b.widest_value)}
    kept_values, home = cached.get("v"), b.cache_device
    width = mixer.d_v or mixer.d_head if isinstance(mixer, GQA) else mixer.kv_rank
    n_kv = mixer.n_kv if isinstance(mixer, GQA) else 1
    b.write(home, k, b.input(inputs.keys, 8 * tokens))
    keys = PassTensor("cached keys", cached["k"].nbytes, home, fixed=True)
    values = PassTensor("cached values", (kept_values or cached["k"]).nbytes, home, fixed=True)
    if kept_values is not None:
        if context.transposed and b.has("attn_qkv.weight"):
            v = b.add("values", n_kv * width * tokens, v)
        if context.transposed and n_kv * width < kept_values.width:
            v = b.add("padded values", kept_values.width * tokens, v)
        places = 8 * tokens * (b.widest_value if context.transposed else 1)
        b.write(home, v, b.input(inputs.values, places))
    cells = context.cells_of(mixer, b.model)
    seen = [b.input(inputs.mask, (2 if context.flash else 4) * cells * tokens)]
    if isinstance(mixer, GQA) and mixer.sinks:
        seen.append(b.own("attn_sinks.weight"))
    if context.flash:
        made = b.add("attention of each head", mixer.n_q * width * tokens, q, keys, values, *seen)
        made.scratch = copies_in_16_bits(b, list(cached.values()), n_kv) if b.on_cuda else 0
    else:
        if kept_values is None or not context.transposed:
            block, size = BLOCKS[(kept_values or cached["k"]).type]
            rows = n_kv * width * cells * context.streams
            values = b.add("transposed values", rows // block * size // 4, values)
        scores = b.add("scores", mixer.n_q * cells * tokens, keys, q)
        for _ in range(3 if b.kind in CAPPED_SCORES else 0):
            scores = b.same("scores", scores)
        made = b.add("attention of each head", mixer.n_q * width * tokens, values, b.same("scores", scores, *seen))
        if isinstance(mixer, GQA):
            made = b.same("attention", made, over=0)
    b.needed = len(b.steps)
    return made


def copies_in_16_bits(b: MicroBatch, cached: list[CacheTensor], n_kv: int) -> int:
    """Bytes of keys and values in 16 bits, where the kernel does not read them as they are cached."""
    types, capability = {one.type for one in cached}, b.capability or 0
    quantized = any(BLOCKS[kind][0] > 1 for kind in types)
    few = 2 if quantized and (capability >= 890 or capability < 700) else 1
    fast = len(types) == 1 and types <= READ_AS_CACHED and cached[0].width // n_kv in (64, 128, 256)
    if fast and b.rows // b.context.streams <= few:
        return 0
    return sum(2 * one.width * one.rows for one in cached if one.type != "f16")


def states(b: MicroBatch, mixer: Mixer, which: int) -> PassTensor:
    """What a recurrent layer keeps of all sequences: its convolution's memory, or its state."""
    nbytes = 4 * state_widths(mixer)[which] * b.context.sequences
    return PassTensor("cached states", nbytes, b.cache_device, fixed=True)


def read_states(b: MicroBatch, mixer: Mixer, which: int) -> PassTensor:
    """Those of the sequences of a pass; the graph has this before what nothing needed yet."""
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
    made = b.by("ssm_conv1d.weight", "convolution", channels * b.rows, x)
    return b.same("convolution", b.biased(made, "ssm_conv1d"))


def scan(b: MicroBatch, mixer: Mixer, elements: int, *reads: PassTensor) -> PassTensor:
    """The outputs of a selective state space with its last states behind them."""
    state = states(b, mixer, 1)
    reads = (state, *reads, places_of_states(b))
    made = b.by("ssm_a", "scan", elements + state.nbytes // 4, *reads, rows=1)
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
    out = b.same("scan", out, b.by("ssm_d", "product", inner, x, over=1), over=2)
    return b.view(b.project(b.add("gated", inner, gate, out), "ssm_out", "recurrent layer"))


def mamba2(b: MicroBatch, mixer: Mamba2, x: PassTensor) -> Rest:
    inner, memory = mixer.n_heads * mixer.d_head * b.rows, read_states(b, mixer, 0)
    both = b.project(x, "ssm_in", "input of the state space")
    x = convolved(b, memory, mixer.channels(), both)
    b.write(b.cache_device, states(b, mixer, 1))
    x = convolution(b, x, mixer.channels())
    dt = b.add("dt", mixer.n_heads * b.rows, both)
    dt = b.by("ssm_dt.bias", "dt", mixer.n_heads * b.rows, dt, over=1)
    out = scan(b, mixer, inner, *(b.view(x) for _ in range(3)), dt)

    def rest() -> PassTensor:
        gate = b.add("gate", inner, both)
        skipped = b.by("ssm_d", "product", inner, b.view(x))
        made = b.add("gated", inner, gate, b.same("scan", out, skipped, over=2))
        if b.has("ssm_norm.weight"):
            made = b.by("ssm_norm.weight", "norm", inner, b.same("norm", b.view(made)), over=1)
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
    decay = b.by("ssm_dt.bias", "decay", heads, both or b.project(x, "ssm_alpha", "alpha"))
    decay = b.by("ssm_a", "decay", heads, b.same("decay", decay), over=1)
    beta = b.add("beta", heads, both or b.project(x, "ssm_beta", "beta"))
    snapshots = (1 + b.context.rollback) * state.nbytes // 4
    made = b.add("delta rule", inner + snapshots, q, k, out, decay, beta, state)
    b.write(b.cache_device, made)
    y = b.by("ssm_norm.weight", "norm", inner, b.add("norm", inner, made), over=1)
    gate = b.add("gate", inner, b.project(x, "attn_gate", "gate"))
    return b.view(b.project(b.summed(y, gate, "gated"), "ssm_out", "recurrent layer"))


def short_conv(b: MicroBatch, mixer: ShortConv, x: PassTensor) -> PassTensor:
    elements, memory = mixer.d_inner * b.rows, read_states(b, mixer, 0)
    parts = b.project(x, "shortconv.in_proj", "input of the convolution")
    out = convolved(b, memory, mixer.d_inner, b.add("gated", elements, parts))
    out = b.by("shortconv.conv.weight", "convolution", elements, out)
    return b.view(b.project(b.same("gated", out, parts), "shortconv.out_proj", "recurrent layer"))
