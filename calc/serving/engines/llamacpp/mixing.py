"""What mixers make of a micro-batch: attention over the cache, recurrent layers over their states.

Source: llama-graph.cpp (build_attn, build_attn_mha, build_rs), src/models/mamba-base.cpp, delta-net-base.cpp,
qwen3next.cpp, lfm2.cpp, deepseek2.cpp, and fattn.cu (ggml_cuda_flash_attn_ext_get_alloc_size); llama.cpp 0c1e57098.
"""

from collections.abc import Callable
from typing import Any

from calc.errors import ConfigError, Message
from calc.formats.gguf_file import BLOCKS
from calc.model.attention import GQA
from calc.model.linear_attention import GatedDeltaNet
from calc.model.mixers import AttentionMixer, Mixer
from calc.model.mla import LatentAttention
from calc.model.recurrent import Mamba, Mamba2, ShortConv
from calc.serving.engines.llamacpp.context import ContextSizes, cache_tensors, is_windowed
from calc.serving.engines.llamacpp.micro_batch import MicroBatch, PassTensor
from calc.serving.engines.llamacpp.placement import HOST

TURN = 64
"""Side of the matrix that turns heads of keys and values before they are quantized."""
HEADS = frozenset({40, 64, 72, 80, 96, 112, 128, 256})
"""Widths of a head that CUDA's flash attention has kernels for, the same for keys and values (fattn.cu)."""
GROUPED_HEADS = {(192, 128): 8, (320, 256): 32, (512, 512): 1, (576, 512): 1}
"""Widths of keys and values that it computes only where query heads share keys, a multiple of so many at a time."""
FLASH_TYPES = frozenset({"f32", "f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0"})
STATES = (96, 128, 256)
"""Sizes of Mamba-2's state that CUDA's kernel scans (ggml_backend_cuda_device_supports_op)."""
UNROTATED = frozenset({"bloom", "gpt2", "jamba", "mpt", "nemotron_h", "nemotron_h_moe", "starcoder"})
"""Attention without rotary positions."""
ROTATED_IN_WINDOWS = frozenset({"cohere2", "exaone4"})
"""Layers without a window have no positions where others have one."""
NAMES = {"attn_q": "queries", "attn_k": "keys", "attn_v": "values"}


def mixed(b: MicroBatch, mixer: Mixer, x: PassTensor) -> PassTensor:
    """What a mixer makes of the normed state. Raises ConfigError for one whose steps are not known here."""
    graph = graph_of(mixer)
    if graph is None:
        sentence = "What llama.cpp plans for {mixer} in {kind} is not known here."
        raise ConfigError(Message(sentence, mixer=mixer.kind, kind=b.kind), "engine")
    return graph(b, mixer, x)


def graph_of(mixer: Mixer) -> Callable[[MicroBatch, Any, PassTensor], PassTensor] | None:
    """The steps of a kind, which are this engine's own; None: they are not known here."""
    match mixer:
        case GQA(gate="none", cross=False, own_keys=True, indexer=None):
            return grouped_attention
        case LatentAttention(indexer=None):
            return latent_attention
        case Mamba():
            return mamba
        case Mamba2():
            return mamba2
        case GatedDeltaNet():
            return delta_net
        case ShortConv():
            return short_conv
        case _:
            return None


def grouped_attention(b: MicroBatch, mixer: GQA, x: PassTensor) -> PassTensor:
    """Queries, keys and values of each head, and attention to the cache; the rest projects its result."""
    d, d_v, tokens = mixer.d_head, mixer.d_v or mixer.d_head, b.rows
    packed = b.project(x, "attn_qkv", "queries, keys and values") if b.has("attn_qkv.weight") else None
    windows = any(is_windowed(layer_mixer, b.model) for block in b.model.blocks for layer_mixer in block.mixers)
    rotated = b.kind not in UNROTATED and not (b.kind in ROTATED_IN_WINDOWS and windows and mixer.window is None)
    turned_keys, turned_values = turns(b, b.context.type_k, d, mixer), turns(b, b.context.type_v, d_v, mixer)
    places, projected = [b.input("positions", 4 * tokens)], dict[str, PassTensor]()
    if "rope_freqs.weight" in b.file.outside and (mixer.window is None or b.kind != "gemma4"):
        places.append(b.weight("rope_freqs.weight"))

    def turned(x: PassTensor, what: str, side: int) -> PassTensor:
        return b.add("turned", x.nbytes // 4, b.input(what, 4 * side * side, windowed=is_windowed(mixer, b.model)), x)

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
    heads = {name: of_heads(name) for name in widths}
    b.expand(*heads.values())
    attention = attended(b, mixer, heads["attn_q"], heads["attn_k"], heads["attn_v"])
    made = turned(attention, "turning of values", TURN) if turned_values else attention
    if mixer.gated:
        made = b.summed(made, b.add("gate", widths["attn_q"] * tokens, projected["attn_q"]), "gated attention")
    return b.project(made, "attn_output", "attention")


def turns(b: MicroBatch, kind: str, width: int, mixer: GQA) -> bool:
    """Whether heads are turned before they are quantized: where all layers of a cache have the same."""
    attentions = (attention for block in b.model.blocks for attention in block.attentions)
    windowed = is_windowed(mixer, b.model)
    widths = {attention.attended_widths[0] for attention in attentions if is_windowed(attention, b.model) == windowed}
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
    b.expand(q, key)
    made = b.add(
        "values of latents", heads * mixer.d_v * tokens, attended(b, mixer, q, key, latent), by="attn_v_b.weight"
    )
    return b.project(b.same("attention", made, over=0), "attn_output", "attention")


def attended(b: MicroBatch, mixer: AttentionMixer, q: PassTensor, k: PassTensor, v: PassTensor) -> PassTensor:
    """Keys and values written into the cache, and attention to all of it."""
    context, tokens, windowed = b.context, b.rows, is_windowed(mixer, b.model)
    cached = list(cache_tensors(b.model, mixer, context, b.widest_value))
    cells, heads = context.cells_of(mixer, b.model), mixer.n_q * mixer.attended_widths[1] * tokens
    keys, values = b.cached("cached keys", cached[0].nbytes), b.cached("cached values", cached[-1].nbytes)
    b.write(keys.device, k, b.input("places of keys", 8 * tokens, windowed=windowed))
    if len(cached) > 1:
        places = 8 * tokens * (b.widest_value if context.transposed else 1)
        b.write(keys.device, v, b.input("places of values", places, windowed=windowed))
    mask = b.input("mask", (2 if context.flash else 4) * cells * tokens, windowed=windowed)
    if context.flash:
        made = b.add("attention of each head", heads, q, keys, values, mask)
        if b.on_cuda and has_flash_kernel(mixer, context):  # it reads keys and values of 16 bits
            made.scratch = sum(2 * tensor.width * tensor.rows for tensor in cached if tensor.type != "f16")
        elif b.on_cuda:
            made.device = HOST
    else:
        if len(cached) == 1 or not context.transposed:
            block, size = BLOCKS[cached[-1].type]
            width = mixer.cached_heads * mixer.attended_widths[1]
            values = b.add("transposed values", width * cells * context.streams // block * size // 4, values)
        scores = b.add("scores", mixer.n_q * cells * tokens, keys, q)
        made = b.add("attention of each head", heads, values, b.same("scores", scores, mask))
        if len(cached) > 1:
            made = b.same("attention", made, over=0)
    b.expand(made)
    return made


def has_flash_kernel(mixer: AttentionMixer, context: ContextSizes) -> bool:
    """Whether CUDA has a kernel of flash attention for these heads and this cache (fattn.cu)."""
    widths, group = mixer.attended_widths, mixer.n_q // mixer.cached_heads
    least = GROUPED_HEADS.get(widths)
    fits = widths[0] == widths[1] and widths[0] in HEADS if least is None else group > 1 and group % least == 0
    return fits and {context.type_k, context.type_v} <= FLASH_TYPES


def states(b: MicroBatch, mixer: Mixer, which: int) -> PassTensor:
    """What a recurrent layer keeps of all sequences: its convolution's memory, or its state."""
    return b.cached("cached states", 4 * mixer.state_widths()[which] * b.context.sequences)


def read_states(b: MicroBatch, mixer: Mixer, which: int) -> PassTensor:
    """States of the sequences of a pass."""
    cached = states(b, mixer, which)
    b.write(cached.device, cached)
    made = b.add("states", cached.nbytes // 4, cached, places_of_states(b), on=cached.device)
    b.write(cached.device, made)
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


def scan(b: MicroBatch, mixer: Mixer, elements: int, *reads: PassTensor, computed: bool) -> PassTensor:
    """The outputs of a selective state space with its last states behind them; CUDA has `computed` them or not."""
    state = states(b, mixer, 1)
    decay = b.weight("ssm_a")
    on = decay.device if computed or not b.on_cuda else HOST
    made = b.add("scan", elements + state.nbytes // 4, decay, state, *reads, places_of_states(b), on=on)
    b.write(b.cache_device, made)
    return b.view(made, elements)


def state_space_input(b: MicroBatch, mixer: Mixer, channels: int, x: PassTensor) -> tuple[PassTensor, PassTensor]:
    """What goes into a selective state space, and the convolution of its first channels."""
    memory, both = read_states(b, mixer, 0), b.project(x, "ssm_in", "input of the state space")
    out = convolved(b, memory, channels, both)
    b.write(b.cache_device, states(b, mixer, 1))
    return both, convolution(b, out, channels)


def mamba(b: MicroBatch, mixer: Mamba, x: PassTensor) -> PassTensor:
    inner, (both, x) = mixer.d_inner * b.rows, state_space_input(b, mixer, mixer.d_inner, x)
    made = b.project(x, "ssm_x", "dt, B and C")
    dt = b.project(b.add("dt", mixer.dt_rank * b.rows, made), "ssm_dt", "dt")
    keys = [b.view(made, mixer.d_state * b.rows) for _ in range(2)]
    if b.has("ssm_dt_norm.weight"):
        keys = [b.same("norm", key) for key in keys]
    computed = mixer.d_state == 16 and mixer.d_inner % 128 == 0
    out = scan(b, mixer, inner, b.view(x), dt, *keys, computed=computed)
    gate = b.add("gate", inner, both)
    out = b.same("scan", out, b.same("product", x, by="ssm_d"), over=2)
    return b.view(b.project(b.add("gated", inner, gate, out), "ssm_out", "recurrent layer"))


def mamba2(b: MicroBatch, mixer: Mamba2, x: PassTensor) -> PassTensor:
    inner, (both, x) = mixer.n_heads * mixer.d_head * b.rows, state_space_input(b, mixer, mixer.channels(), x)
    dt = b.same("dt", b.add("dt", mixer.n_heads * b.rows, both), by="ssm_dt.bias")
    computed = mixer.d_state in STATES and mixer.d_head % 16 == 0
    out = scan(b, mixer, inner, *(b.view(x) for _ in range(3)), dt, computed=computed)
    gate = b.add("gate", inner, both)
    skipped = b.add("product", inner, b.view(x), by="ssm_d")
    made = b.add("gated", inner, gate, b.same("scan", out, skipped, over=2))
    if b.has("ssm_norm.weight"):
        made = b.same("norm", b.same("norm", b.view(made)), by="ssm_norm.weight")
    return b.project(made, "ssm_out", "recurrent layer")


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
