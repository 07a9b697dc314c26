"""The steps of a micro-batch, and in them its peaks. Each lists what is alive, and where llama.cpp 0c1e57098 has it.

Attention (`attended`): mask, state, queries and result; without flash attention the scores of all heads; a quantized
    cache's keys and values of one layer in 16 bits. llama-graph.cpp: build_attn_mha; fattn.cu:
    ggml_cuda_flash_attn_ext_get_alloc_size.
Feed-forward (`dense`): mask, state, gate, up and their product. llama-graph.cpp: build_ffn.
Experts (`routed`, `chosen`): gate, up and outputs of the experts of each token; what CUDA computes as one keeps them
    longer. llama-graph.cpp: build_moe_ffn; ggml-cuda.cu: ggml_cuda_topk_moe_fusion,
    ggml_cuda_match_moe_weighted_reduction.
Recurrent states (`convolved`, `scan`, `delta_net`, `short_conv`): inputs of a convolution behind its memory, and
    outputs with the last states behind them. llama-graph.cpp: build_rs; src/models/*.cpp.
Logits (`logits`): of the rows that are wanted. llama-context.cpp: graph_reserve.
Copies (`MicroBatch.add`, `MicroBatch.schedule`): weights and cache of the host that the first GPU computes with, and
    what a device is given, four times where several take turns. ggml-cuda.cu: offload_op; ggml-backend.cpp:
    ggml_backend_sched_split_graph.

How layers join them is in src/models/*.cpp.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from calc.budget import spend
from calc.formats.gguf_file import BLOCKS
from calc.model.architecture import Architecture
from calc.model.attention import GQA
from calc.model.block import Block
from calc.model.feedforward import MLP, MoE
from calc.model.linear_attention import GatedDeltaNet
from calc.model.mixers import AttentionMixer, Mixer
from calc.model.mla import LatentAttention
from calc.model.recurrent import Mamba, Mamba2, ShortConv
from calc.serving.engines.llamacpp.context import (
    CELL,
    PASS,
    SEQUENCE,
    TOKEN_AND_CELL,
    CacheTensor,
    ContextSizes,
    cache_tensors,
    widest_value,
    window_of,
)
from calc.serving.engines.llamacpp.micro_batch import MicroBatch, PassTensor, Rows
from calc.serving.engines.llamacpp.placement import COPIED, HOST, reads_factors

MOST_WEIGHTED = 15
"""Experts of a token whose outputs one kernel of CUDA adds up."""
ATTENTION, FED, STATE = range(3)
SUMS = {"falcon": (FED, ATTENTION, STATE), "phi2": (ATTENTION, FED, STATE)}
"""Order in which attention, feed-forward and the state that both read are added, where it is another than usual."""


def forward(b: MicroBatch, layers: Mapping[int, int | None]) -> None:
    """Embedding, some layers, and output; and the times that those from one to the next that has some occur."""
    whole, tokens = b.model.hidden, b.input("tokens", 4)
    b.input("embeddings given", 4 * whole * (1 + b.deep))
    state = given = b.add("embeddings", whole, tokens, on=HOST)
    if b.deep:
        given = b.add("embeddings", whole * (1 + b.deep), state)
        state = b.view(given, whole)
    if b.follows("scaled"):
        state = b.same("embeddings", state)
    b.expand(state)
    if "token_embd_norm.weight" in b.file.outside:
        state = b.same("embeddings", b.same("norm", state, over=False), by="token_embd_norm.weight")
    if "position_embd.weight" in b.file.outside:
        places = b.add("places", whole, b.positions, on=HOST)
        state = b.same("embeddings", state, places)
    for layer, times in layers.items():
        b.layer = layer
        if times is not None:
            b.repeats[state] = times
        state = layer_of(b, b.blocks[layer], state, last=layer == b.model.num_layers - 1)
        if layer < b.deep:
            state = b.same("state", state, b.view(given, whole))
    all_normed = b.follows("all_rows_normed")
    if b.follows("all_rows") and not all_normed:
        (state,) = b.wanted(state)
    state = b.same("last norm", state, over=b.model.final_norm != "layer" and not b.follows("parallel"))
    if "output_norm.weight" in b.file.outside:
        state = b.same("last norm", state, by="output_norm.weight")
    logits(b, *(b.wanted(state) if all_normed else (state,)))
    if all_normed:
        b.write(None, state)


def prediction(b: MicroBatch, layers: Iterable[int]) -> None:
    """The layer for multi-token prediction, of a token's embedding and the model's state of it (`graph_mtp`)."""
    (module,), (b.layer,) = b.model.prediction, layers
    whole, tokens = b.model.hidden, b.input("tokens", 4)
    own = b.has("nextn.embed_tokens.weight")
    place = b.placement.of_weight("nextn.embed_tokens.weight", b.layer) if own else HOST
    embedded = b.norm(b.add("embeddings", whole, tokens, on=place), "nextn.enorm")
    known = b.norm(b.input("state of the model", 4 * whole), "nextn.hnorm")
    state = b.project(b.add("concat", 2 * whole, embedded, known), "nextn.eh_proj", "state")
    state = layer_of(b, module.block, state, last=False)
    if b.has("nextn.shared_head_norm.weight"):
        state = b.norm(state, "nextn.shared_head_norm")
    else:
        state = b.same("last norm", b.same("last norm", state), by="output_norm.weight")
    logits(b, *b.wanted(state))


def logits(b: MicroBatch, state: PassTensor) -> None:
    """The head, of those tokens whose logits are wanted."""
    if b.has("nextn.shared_head_head.weight"):
        made = b.project(state, "nextn.shared_head_head", "logits")
    else:
        head = "output.weight" if "output.weight" in b.file.outside else "token_embd.weight"
        made = b.add("logits", b.file.outside[head].ne[1], state, by=head)
    b.expand(made)


def layer_of(b: MicroBatch, block: Block, state: PassTensor, *, last: bool) -> PassTensor:
    """One layer; the last goes on with those tokens alone whose logits are wanted."""
    spend()
    after = b.has("post_ffw_norm.weight")  # what attention and feed-forward make is normed before it is added
    normed = state if after and not b.has("attn_norm.weight") else b.norm(state, "attn_norm")
    if b.follows("normed_first"):
        b.expand(normed)
    if len(block.mixers) > 1:  # attention and a state space that read the same state
        (attention,), (recurrent,) = block.attentions, block.recurrences
        made = mixed(b, attention, normed)
        made = b.same("attention and state space", made, mixed(b, recurrent, b.norm(state, "attn_norm")))
    else:
        made = mixed(b, block.mixers[0], normed) if block.mixers else fed(b, block, normed)
    last = last and not b.follows("all_rows")
    if b.follows("parallel"):
        if last:
            made, state, normed = b.wanted(made, state, normed)
        parts = made, fed(b, block, b.norm(state, "ffn_norm") if b.has("ffn_norm.weight") else normed), state
        order = SUMS.get(b.model.gguf.architecture or "", (FED, STATE, ATTENTION))
        first, second, third = (parts[part] for part in order)
        return b.same("state", b.same("state", first, second), third)
    if last and len(block.mixers) < 2:
        made, state, normed = b.wanted(made, state, normed)
    if after:
        made = b.norm(made, "post_attention_norm")
    state = b.same("state", *((state, made) if b.follows("state_first") else (made, state)))
    if last and len(block.mixers) > 1:
        (state,) = b.wanted(state)
    if not block.mixers or block.ffn is None:
        return state
    out = fed_after_norm(b, block, state, normed)
    if after:
        out = b.norm(out, "post_ffw_norm")
    state = b.same("state", *((state, out) if b.follows("state_before_fed") else (out, state)))
    return b.same("state", state, by="layer_output_scale.weight") if b.has("layer_output_scale.weight") else state


def fed_after_norm(b: MicroBatch, block: Block, state: PassTensor, normed: PassTensor) -> PassTensor:
    """The feed-forward of the normed state, by what norm the file has; Gemma 4 has a dense one next to experts.
    `normed` is what attention reads."""
    moe = block.moe
    if moe is not None and moe.parallel_mlp is not None:
        scaled = b.same("norm", b.same("norm", state), by="ffn_gate_inp.scale")
        made = routed(b, moe, scaled, b.norm(state, "pre_ffw_norm_2"))
        out = b.norm(dense(b, moe.parallel_mlp, b.norm(state, "ffn_norm")), "post_ffw_norm_1")
        return b.same("feed-forward", out, b.norm(made, "post_ffw_norm_2"))
    if b.has("ffn_norm.weight"):
        return fed(b, block, b.norm(state, "ffn_norm"))
    if b.follows("reads_as_attention"):
        return fed(b, block, normed)
    return fed(b, block, state if b.has("post_ffw_norm.weight") else b.norm(state, "post_attention_norm"))


def fed(b: MicroBatch, block: Block, x: PassTensor) -> PassTensor:
    if block.moe is not None:
        return experts(b, block.moe, x)
    return x if block.dense is None else dense(b, block.dense, x)


def dense(b: MicroBatch, mlp: MLP, x: PassTensor, suffix: str = "") -> PassTensor:
    """Gate, up, their product, down."""
    gate = (
        [b.project(x, f"ffn_gate{suffix}", "gate")] if b.has(f"ffn_gate{suffix}.weight") else []
    )  # else in one with up
    up = b.project(x, f"ffn_up{suffix}", "up")
    made = b.add("gate times up", mlp.intermediate, *gate, up) if gate or mlp.gated else b.same("activated", up)
    return b.project(made, f"ffn_down{suffix}", "down")


def experts(b: MicroBatch, moe: MoE, x: PassTensor) -> PassTensor:
    """Routed experts and shared ones."""
    made = routed(b, moe, x, x if moe.latent is None else b.project(x, "ffn_latent_down", "latent"))
    if moe.latent is not None:
        made = b.project(made, "ffn_latent_up", "latent")
    if moe.shared is None:
        return made
    shared = dense(b, moe.shared, x, "_shexp")
    if b.has("ffn_gate_inp_shexp.weight"):
        shared = b.same("shared expert", shared, b.same("gate", b.project(x, "ffn_gate_inp_shexp", "gate")))
    return b.same("experts", made, shared)


def routed(b: MicroBatch, moe: MoE, router_input: PassTensor, x: PassTensor) -> PassTensor:
    """Each token through its experts, whose outputs are weighted and added up."""
    order, weights = chosen(b, moe, router_input)
    used, width = moe.top_k, x.width
    inner = used * moe.expert.intermediate

    def through(weight: str, name: str, elements: int, *reads: PassTensor) -> PassTensor:
        return b.biased(b.add(name, elements, *reads, order, by=f"{weight}.weight"), weight)

    if b.has("ffn_gate_up_exps.weight"):
        both = [through("ffn_gate_up_exps", "gate and up of experts", 2 * inner, x)]
    elif moe.expert.gated:
        both = [through("ffn_gate_exps", "gate of experts", inner, x)]
        both.append(through("ffn_up_exps", "up of experts", inner, x))
    else:
        both = [through("ffn_up_exps", "up of experts", inner, x)]
    made = b.add("gate times up of experts", inner, *both, over=not moe.expert.gated)
    out = through("ffn_down_exps", "down of experts", used * width, made)
    weighted = b.same("weighted experts", out, weights)
    total = b.add("experts", width, weighted)
    b.write(None, total, weighted, *((out, weights) if b.on_cuda and 2 <= moe.top_k <= MOST_WEIGHTED else ()))
    return total


def chosen(b: MicroBatch, moe: MoE, x: PassTensor) -> tuple[PassTensor, PassTensor]:
    """The experts of each token by the router, and their weights."""
    router = b.project(x, "ffn_gate_inp", "router")
    ranked = probabilities = b.same("probabilities of experts", router)
    if b.has("exp_probs_b.bias"):
        ranked = b.same("ranks of experts", probabilities, by="exp_probs_b.bias")
    order = b.same("order of experts", ranked, over=False)
    weights = b.add("weights of experts", moe.top_k, probabilities, order)
    if b.model.details.normed_weights:
        weights = b.same("weights of experts", weights, over=False)
    b.expand(weights)
    if b.on_cuda and not b.follows("unfused_router") and moe.n_experts.bit_count() == 1:
        b.write(None, router, probabilities, ranked, order)  # what one kernel reads and writes is kept behind it
    return order, weights


def unknown_mixers(model: Architecture) -> str | None:
    """A kind of layer whose steps are not known here; None: all are."""
    if len({bool(block.mixers) and block.ffn is not None for block in model.all_blocks}) > 1:
        return "layers without attention or feed-forward"
    for block in model.all_blocks:
        for mixer in block.mixers:
            if graph_of(mixer) is None:
                return mixer.kind
    return None


# mixers

TURN = 64
"""Side of the matrix that turns heads of keys and values before they are quantized."""
HEADS = frozenset({40, 64, 72, 80, 96, 112, 128, 256})
"""Widths of a head that CUDA's flash attention has kernels for, the same for keys and values (fattn.cu)."""
GROUPED_HEADS = {(192, 128): 8, (320, 256): 32, (512, 512): 1, (576, 512): 1}
"""Widths of keys and values that it computes only where query heads share keys, a multiple of so many at a time."""
FLASH_TYPES = frozenset({"f32", "f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0"})
STATES = (96, 128, 256)
"""Sizes of Mamba-2's state that CUDA's kernel scans (ggml_backend_cuda_device_supports_op)."""
NAMES = {"attn_q": "queries", "attn_k": "keys", "attn_v": "values"}


def mixed(b: MicroBatch, mixer: Mixer, x: PassTensor) -> PassTensor:
    """The output of a mixer over the normed state."""
    graph = graph_of(mixer)
    assert graph is not None  # the engine refuses others
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
    d, d_v = mixer.d_head, mixer.d_v or mixer.d_head
    packed = b.project(x, "attn_qkv", "queries, keys and values") if b.has("attn_qkv.weight") else None
    rotated = bool(b.model.rotary)
    if b.follows("rotated_in_windows") and mixer.window is None:
        rotated = rotated and not b.has_windows
    stored = (b.context.type_k, d), (b.context.type_v, d_v)
    turned_keys, turned_values = (BLOCKS[kind][0] > 1 and width % TURN == 0 for kind, width in stored)
    projected = dict[str, PassTensor]()
    factors = [b.weight(name) for name in b.file.outside if name in COPIED][: reads_factors(b.model, mixer)]

    def turned(x: PassTensor, what: str, side: int) -> PassTensor:
        return b.add("turned", x.width, b.input(what, 4 * side * side, PASS, window_of(mixer, b.model)), x)

    def of_heads(name: str) -> PassTensor:
        """Normed, rotated, and turned where they are quantized."""
        weight, elements = name if packed or b.has(f"{name}.weight") else "attn_k", widths[name]
        if weight not in projected:
            projected[weight] = packed or b.project(x, weight, NAMES[weight])
        made = b.view(projected[weight], elements if mixer.gated else None)
        turns = turned_values if name == "attn_v" else turned_keys
        if mixer.qk_norm != "none" and b.has(f"{name}_norm.weight"):
            made = b.norm(made, f"{name}_norm")
        if (rotated and name != "attn_v") or (packed and turns):
            made = b.add("rotated", elements, made, b.positions, *factors, over=True)
        if not turns:
            return made
        return turned(made, "turning of values", TURN) if name == "attn_v" else turned(made, "turning of keys", d & -d)

    widths = {"attn_q": mixer.n_q * d, "attn_v": mixer.n_kv * d_v, "attn_k": mixer.n_kv * d}
    heads = {name: of_heads(name) for name in widths}
    b.expand(*(heads[name] for name in ("attn_q", *(("attn_k", "attn_v") if b.has_windows else ("attn_v", "attn_k")))))
    attention = attended(b, mixer, heads["attn_q"], heads["attn_k"], heads["attn_v"])
    made = turned(attention, "turning of values", TURN) if turned_values else attention
    if mixer.gated:
        made = b.view(made) if b.context.flash or turned_values else made
        made = b.same("gated attention", made, b.add("gate", widths["attn_q"], projected["attn_q"]))
    return b.project(made, "attn_output", "attention")


def latent_attention(b: MicroBatch, mixer: LatentAttention, x: PassTensor) -> PassTensor:
    """Attention over the latent, with keys' and values' up-projections taken into queries and result."""
    rank, rope, heads = mixer.kv_rank, mixer.d_rope, mixer.n_q
    positions, q = b.positions, x
    if mixer.q_rank is not None:
        q = b.norm(b.project(q, "attn_q_a", "compressed queries"), "attn_q_a_norm")
    q = b.project(q, "attn_q_b" if mixer.q_rank is not None else "attn_q", "queries")
    absorbed = b.add("absorbed queries", heads * rank, q, by="attn_k_b.weight")
    q = b.add("queries", heads * (rank + rope), absorbed, b.add("rotated", heads * rope, q, positions))
    both = b.project(x, "attn_kv_a_mqa", "latent")
    latent = b.norm(b.view(both, rank), "attn_kv_a_norm")
    key = b.add("keys", rank + rope, latent, b.add("rotated", rope, both, positions))
    b.expand(q, key)
    made = b.add("values of latents", heads * mixer.d_v, attended(b, mixer, q, key, latent), by="attn_v_b.weight")
    return b.project(b.same("attention", made, over=False), "attn_output", "attention")


def attended(b: MicroBatch, mixer: AttentionMixer, q: PassTensor, k: PassTensor, v: PassTensor) -> PassTensor:
    """Keys and values written into the cache, and attention to all of it."""
    context, window, width = b.context, window_of(mixer, b.model), mixer.attended_widths[1]
    stored = list(cache_tensors(b.model, mixer, context))
    keys, values = b.cached("cached keys", stored[0]), b.cached("cached values", stored[-1])
    b.write(keys.device, k, b.input("places of keys", 8, window=window))
    if len(stored) > 1:
        places = 8 * (widest_value(b.model) if context.transposed else 1)
        b.write(keys.device, v, b.input("places of values", places, window=window))
    mask = b.input("mask", 2 if context.flash else 4, TOKEN_AND_CELL, window)
    if context.flash:
        made = b.add("attention of each head", mixer.n_q * width, q, keys, values, mask)
        if b.on_cuda and has_flash_kernel(mixer, context):  # it reads keys and values of 16 bits
            scratch = sum(2 * tensor.width for tensor in stored if tensor.type != "f16")
            name = "attention of each head and 16-bit copies of keys and values" if scratch else made.rows.name
            made.rows = made.rows._replace(name=name, window=window, scratch=scratch)
        elif b.on_cuda:
            made.device = HOST
    else:
        if len(stored) == 1 or not context.transposed:
            each = stored[-1]._replace(width=mixer.cached_heads * width).each
            values = PassTensor(Rows("transposed values", each, CELL, window), (values,))
        scores = PassTensor(Rows("scores", 4 * mixer.n_q, TOKEN_AND_CELL, window), (keys, q))
        made = b.add("attention of each head", mixer.n_q * width, values, b.same("scores", scores, mask))
        if len(stored) > 1:
            made = b.same("attention", made, over=False)
    b.expand(made)
    return made


def has_flash_kernel(mixer: AttentionMixer, context: ContextSizes) -> bool:
    """Whether CUDA has a kernel of flash attention for these heads and this cache (fattn.cu)."""
    widths, group = mixer.attended_widths, mixer.n_q // mixer.cached_heads
    least = GROUPED_HEADS.get(widths)
    fits = widths[0] == widths[1] and widths[0] in HEADS if least is None else group > 1 and group % least == 0
    return fits and {context.type_k, context.type_v} <= FLASH_TYPES


def states(b: MicroBatch, mixer: Mixer, which: int) -> PassTensor:
    """A recurrent layer's cache for all sequences: its convolution's memory, or its state."""
    return b.cached("cached states", CacheTensor("f32", mixer.state_widths()[which], SEQUENCE))


def read_states(b: MicroBatch, mixer: Mixer, which: int) -> PassTensor:
    """States of the sequences of a pass."""
    cached, places = states(b, mixer, which), b.input("places of states", 4, SEQUENCE)
    made = b.same("states", cached, places, over=False, on=cached.device)
    b.expand(made)
    b.write(cached.device, b.further_places)
    return made


def convolved(b: MicroBatch, memory: PassTensor, channels: int, x: PassTensor) -> PassTensor:
    """The convolution's source: its memory before the new inputs, the last of which stay in it."""
    made = b.add("concat", channels, memory, x, states=memory.rows.each)
    b.write(b.cache_device, made)
    return made


def convolution(b: MicroBatch, x: PassTensor, channels: int) -> PassTensor:
    made = b.add("convolution", channels, x, by="ssm_conv1d.weight")
    return b.same("convolution", b.biased(made, "ssm_conv1d"))


def scan(b: MicroBatch, mixer: Mixer, width: int, *reads: PassTensor, has_kernel: bool) -> PassTensor:
    """The outputs of a selective state space with its last states behind them (ggml_ssm_scan), made by the host where
    CUDA has no kernel for them."""
    state, decay = states(b, mixer, 1), b.weight("ssm_a")
    on = decay.device if has_kernel or not b.on_cuda else HOST
    places = b.input("places of states", 4, SEQUENCE)
    made = b.add("scan", width, decay, state, *reads, places, on=on, states=state.rows.each)
    b.expand(made)
    b.write(state.device, b.further_places)
    b.write(b.cache_device, made)
    return b.view(made, width)


def state_space_input(b: MicroBatch, mixer: Mixer, channels: int, x: PassTensor) -> tuple[PassTensor, PassTensor]:
    """The input of a selective state space, and the convolution of its first channels."""
    memory, both = read_states(b, mixer, 0), b.project(x, "ssm_in", "input of the state space")
    out = convolved(b, memory, channels, b.part(both, channels))
    return both, convolution(b, out, channels)


def mamba(b: MicroBatch, mixer: Mamba, x: PassTensor) -> PassTensor:
    inner, (both, x) = mixer.d_inner, state_space_input(b, mixer, mixer.d_inner, x)
    made = b.project(x, "ssm_x", "dt, B and C")
    if b.has("ssm_dt_norm.weight"):
        dt = b.norm(b.view(made, mixer.dt_rank), "ssm_dt_norm")
        keys = [b.norm(b.view(made, mixer.d_state), f"ssm_{name}_norm") for name in "bc"]
    else:
        dt = b.add("dt", mixer.dt_rank, b.part(made, mixer.dt_rank))
        keys = [b.part(made, mixer.d_state) for _ in range(2)]
    dt = b.project(dt, "ssm_dt", "dt")
    out = scan(b, mixer, inner, b.view(x), dt, *keys, has_kernel=mixer.d_state == 16 and inner % 128 == 0)
    gate = b.add("gate", inner, b.part(both, inner))
    out = b.same("scan", out, b.same("product", x, by="ssm_d"))
    return b.view(b.project(b.add("gated", inner, gate, out), "ssm_out", "recurrent layer"))


def mamba2(b: MicroBatch, mixer: Mamba2, x: PassTensor) -> PassTensor:
    inner, (both, x) = mixer.n_heads * mixer.d_head, state_space_input(b, mixer, mixer.channels(), x)
    dt = b.same("dt", b.add("dt", mixer.n_heads, b.part(both, mixer.n_heads)), by="ssm_dt.bias")
    keys = mixer.d_state * mixer.n_groups
    parts = [b.part(x, width) for width in (inner, keys, keys)]
    has_kernel = mixer.d_state in STATES and mixer.d_head % 16 == 0
    out = scan(b, mixer, inner, *parts, dt, has_kernel=has_kernel)
    gate = b.add("gate", inner, b.part(both, inner))
    skipped = b.add("product", inner, b.view(x), by="ssm_d")
    made = b.add("gated", inner, gate, b.same("scan", out, skipped))
    if b.has("ssm_norm.weight"):
        made = b.same("norm", b.same("norm", b.view(made)), by="ssm_norm.weight")
    return b.project(made, "ssm_out", "recurrent layer")


def delta_net(b: MicroBatch, mixer: GatedDeltaNet, x: PassTensor) -> PassTensor:
    heads, inner = mixer.n_v, mixer.d_v * mixer.n_v
    channels, memory = 2 * mixer.n_k * mixer.d_k + mixer.n_v * mixer.d_v, read_states(b, mixer, 0)
    out = convolved(b, memory, channels, b.project(x, "attn_qkv", "queries, keys and values"))
    state = read_states(b, mixer, 1)
    out = convolution(b, out, channels)
    q, k = (b.add(name, mixer.d_k * mixer.n_k, out) for name in ("queries", "keys"))
    both = b.project(x, "ssm_ba", "beta and alpha") if b.has("ssm_ba.weight") else None
    decay = b.add("decay", heads, both or b.project(x, "ssm_alpha", "alpha"), by="ssm_dt.bias")
    decay = b.same("decay", b.same("decay", decay), by="ssm_a")
    beta = b.add("beta", heads, both or b.project(x, "ssm_beta", "beta"))
    snapshots = state.rows.each * (1 + b.context.rollback)
    made = b.add("delta rule", inner, q, k, out, decay, beta, state, states=snapshots)
    b.write(b.cache_device, made)
    y = b.same("norm", b.add("norm", inner, made), by="ssm_norm.weight")
    gate = b.add("gate", inner, b.project(x, "attn_gate", "gate"))
    return b.view(b.project(b.same("gated", y, gate), "ssm_out", "recurrent layer"))


def short_conv(b: MicroBatch, mixer: ShortConv, x: PassTensor) -> PassTensor:
    elements, memory = mixer.d_inner, read_states(b, mixer, 0)
    parts = b.project(x, "shortconv.in_proj", "input of the convolution")
    out = convolved(b, memory, mixer.d_inner, b.add("gated", elements, parts))
    out = b.add("convolution", elements, out, by="shortconv.conv.weight")
    return b.view(b.project(b.same("gated", out, parts), "shortconv.out_proj", "recurrent layer"))
