"""Recurrent layers as llama.cpp's graph computes them.

Source: llama-graph.cpp (build_rs), src/models/mamba-base.cpp, delta-net-base.cpp, qwen35.cpp, qwen3next.cpp,
lfm2.cpp; llama.cpp 0c1e57098.
"""

from collections.abc import Callable

from calc.model.linear_attention import GatedDeltaNet
from calc.model.recurrent import Mamba, Mamba2, ShortConv
from calc.serving.engines.llamacpp.building import Building
from calc.serving.engines.llamacpp.graph import (
    GraphNode,
    concat,
    contiguous,
    copy,
    get_rows,
    like,
    matmul,
    reshape,
    transpose,
    view,
)

Rows = Callable[[GraphNode, GraphNode], GraphNode]


def copied_states(b: Building, state: GraphNode, rows: Rows = get_rows) -> GraphNode:
    """The states of the sequences of a pass: one is cleared, theirs are read, others may be moved."""
    width, sequences = state.ne[0], b.context.sequences
    states = reshape(state, width, state.ne[1])
    cleared = view(states, (width, 1), (state.nb[1],))
    b.graph.expand(GraphNode("scale", "f32", cleared.ne, (cleared,), nb=cleared.nb, root=cleared.holder))
    places = b.input("places of states", "i32", sequences)
    if "main" not in b.views:
        b.views = {"main": view(places, (sequences,)), "others": view(places, (0,))}
    out = rows(states, b.views["main"])
    b.graph.expand(out)
    others = get_rows(states, b.views["others"])
    b.graph.expand(copy(others, view(state, (width, 0), (state.nb[1],))))
    return out


def convolved(
    b: Building, mixer: Mamba | Mamba2 | GatedDeltaNet, x: GraphNode, memory: GraphNode, channels: int
) -> GraphNode:
    """The convolution's memory before the new inputs [kernel - 1 + tokens, channels, sequences]; its end is kept."""
    kernel, sequences = mixer.d_conv, b.context.sequences
    before = reshape(copied_states(b, memory), kernel - 1, channels, sequences)
    joined = concat(before, transpose(x), 0)
    for _ in range(1 + b.context.rollback):
        last = view(joined, (kernel - 1, channels, sequences), joined.nb[1:3])
        b.graph.expand(copy(last, view(memory, ((kernel - 1) * channels, sequences), (memory.nb[1],))))
    return joined


def after_convolution(b: Building, joined: GraphNode, tokens: int, name: str = "ssm_conv1d") -> GraphNode:
    sequences, channels = joined.ne[2], joined.ne[1]
    made = GraphNode("ssm_conv", "f32", (channels, tokens, sequences), (joined, b.weight(f"{name}.weight")))
    made.name = "convolution"
    return like(made, "add", b.weight(f"{name}.bias"), name="convolution") if b.has(f"{name}.bias") else made


def scanned(
    b: Building, state: GraphNode, sides: tuple[int, int, int], x: GraphNode, sources: tuple[GraphNode, ...]
) -> GraphNode:
    """The outputs of a selective state space with its last states behind them."""
    sequences = b.context.sequences

    def rows(states: GraphNode, ids: GraphNode) -> GraphNode:
        shaped = reshape(states, *sides, state.ne[1])
        size = x.elements + sides[0] * sides[1] * sides[2] * sequences
        return GraphNode("ssm_scan", "f32", (size,), (shaped, x, *sources, ids), name="scan")

    made = copied_states(b, state, rows)
    width = state.ne[0]
    b.graph.expand(copy(view(made, (width, sequences), (4 * width,)), view(state, (width, sequences), (state.nb[1],))))
    return made


def mamba(b: Building, mixer: Mamba, x: GraphNode) -> GraphNode:
    sequences = b.context.sequences
    tokens, inner, cache = x.ne[1] // sequences, mixer.d_inner, b.cached(mixer)
    both = matmul(b.weight("ssm_in.weight"), reshape(x, x.ne[0], tokens, sequences), name="input of the state space")
    half = view(both, (inner, tokens, sequences), both.nb[1:3])
    joined = convolved(b, mixer, half, cache["r"], inner)
    x = like(after_convolution(b, joined, tokens), "silu", name="convolution")
    made = matmul(b.weight("ssm_x.weight"), x, name="dt, B and C")
    dt = view(made, (mixer.dt_rank, tokens, sequences), made.nb[1:3])
    state = mixer.d_state
    steps = (4 * state, made.nb[1], made.nb[2])
    keys = [view(made, (state, 1, tokens, sequences), steps) for _ in range(2)]
    if b.has("ssm_dt_norm.weight"):
        dt = b.norm(dt, "ssm_dt_norm")
        keys = [b.norm(key, name) for key, name in zip(keys, ("ssm_b_norm", "ssm_c_norm"), strict=True)]
    else:
        dt = contiguous(dt)
    dt = b.project(dt, "ssm_dt", "dt")
    shaped = reshape(x, 1, inner, tokens, sequences)
    y = scanned(b, cache["s"], (state, 1, inner), shaped, (dt, b.weight("ssm_a"), *keys))
    out = view(y, (inner, tokens, sequences), (4 * inner, 4 * inner * tokens))
    out = like(out, "add", like(x, "mul", b.weight("ssm_d")), name="scan")
    gate = contiguous(view(both, (inner, tokens, sequences), both.nb[1:3]), name="gate")
    made = matmul(b.weight("ssm_out.weight"), like(gate, "swiglu", out, name="gated"), name="recurrent layer")
    return reshape(made, made.ne[0], tokens * sequences)


def mamba2(b: Building, mixer: Mamba2, x: GraphNode) -> GraphNode:
    sequences = b.context.sequences
    tokens, channels, cache = x.ne[1] // sequences, mixer.channels(), b.cached(mixer)
    heads, width, state, groups = mixer.n_heads, mixer.d_head, mixer.d_state, mixer.n_groups
    made = matmul(b.weight("ssm_in.weight"), x, name="input of the state space")
    made = reshape(made, made.ne[0], tokens, sequences)
    steps = (4 * width, *made.nb[1:3])
    mixed = view(made, (channels, tokens, sequences), made.nb[1:3])
    joined = convolved(b, mixer, mixed, cache["r"], channels)
    both = like(after_convolution(b, joined, tokens), "silu", name="convolution")
    shaped = view(both, (width, heads, tokens, sequences), (4 * width, *both.nb[1:3]))
    keys = [view(both, (state, groups, tokens, sequences), (4 * state, *both.nb[1:3])) for _ in range(2)]
    dt = contiguous(view(made, (heads, tokens, sequences), made.nb[1:3]))
    dt = like(dt, "add", b.weight("ssm_dt.bias"), name="dt")
    y = scanned(b, cache["s"], (state, width, heads), shaped, (dt, b.weight("ssm_a"), *keys))
    out = view(y, (width, heads, tokens, sequences), (4 * width, 4 * width * heads, 4 * width * heads * tokens))
    out = like(out, "add", like(shaped, "mul", b.weight("ssm_d")), name="scan")
    gate = contiguous(view(made, (width, heads, tokens, sequences), steps), name="gate")
    out = like(gate, "swiglu", out, name="gated")
    inner = width * heads
    if b.has("ssm_norm.weight"):
        out = b.norm(reshape(out, inner // groups, groups, tokens, sequences), "ssm_norm")
    return b.project(reshape(out, inner, tokens * sequences), "ssm_out", "recurrent layer")


def delta_net(b: Building, mixer: GatedDeltaNet, x: GraphNode) -> GraphNode:
    sequences = b.context.sequences
    tokens, cache = x.ne[1] // sequences, b.cached(mixer)
    channels = 2 * mixer.n_k * mixer.d_k + mixer.n_v * mixer.d_v
    mixed = matmul(b.weight("attn_qkv.weight"), x, name="queries, keys and values")
    gate = matmul(b.weight("attn_gate.weight"), x, name="gate")
    beta, alpha = delta_gates(b, mixer, x, tokens)
    beta = like(beta, "sigmoid", name="beta")
    alpha = like(like(alpha, "add", b.weight("ssm_dt.bias")), "softplus")
    decay = reshape(like(alpha, "mul", b.weight("ssm_a"), name="decay"), 1, mixer.n_v, tokens, sequences)
    joined = convolved(b, mixer, reshape(mixed, channels, tokens, sequences), cache["r"], channels)
    state = reshape(copied_states(b, cache["s"]), mixer.d_v, mixer.d_v, mixer.n_v, sequences)
    out = like(after_convolution(b, joined, tokens), "silu", name="convolution")
    row = 4 * channels

    def part(width: int, heads: int) -> GraphNode:
        return view(out, (width, heads, tokens, sequences), (4 * width, row, row * tokens))

    q, k = (like(b.bare_norm(part(mixer.d_k, mixer.n_k)), "scale") for _ in range(2))
    v = part(mixer.d_v, mixer.n_v)
    inner = mixer.d_v * mixer.n_v
    snapshots, width, state_row = 1 + b.context.rollback, cache["s"].ne[0], cache["s"].nb[1]
    rows = tokens * sequences + snapshots * mixer.d_v * sequences
    made = GraphNode("gated_delta_net", "f32", (inner, rows), (q, k, v, decay, beta, state), name="delta rule")
    if snapshots == 1:
        steps = (4 * mixer.d_v, 4 * mixer.d_v**2, 4 * mixer.d_v * inner)
        kept = view(made, (mixer.d_v, mixer.d_v, mixer.n_v, sequences), steps)
        into = view(cache["s"], (width, sequences), (state_row,))
    else:
        written = min(tokens, snapshots)
        kept = view(made, (width, sequences, written), (4 * width, 4 * width * sequences))
        into = view(cache["s"], (width, sequences, written), (state_row, state_row * sequences))
    b.graph.expand(copy(kept, into))
    y = view(made, (mixer.d_v, mixer.n_v, tokens, sequences), (4 * mixer.d_v, 4 * inner, 4 * inner * tokens))
    y = b.norm(y, "ssm_norm")
    shaped = reshape(gate, mixer.d_v, mixer.n_v, tokens, sequences)
    y = like(y, "mul", like(shaped, "silu", name="gate"), name="gated")
    out = matmul(b.weight("ssm_out.weight"), reshape(y, inner, tokens, sequences), name="recurrent layer")
    return reshape(out, out.ne[0], tokens * sequences)


def delta_gates(b: Building, mixer: GatedDeltaNet, x: GraphNode, tokens: int) -> tuple[GraphNode, GraphNode]:
    """Beta [1, heads, tokens, sequences] and alpha [heads, tokens, sequences]: by a matrix each, or, in Qwen3-Next's
    files, by one for both, a key head's after the other's (qwen3next.cpp)."""
    sequences = b.context.sequences
    if not b.has("ssm_ba.weight"):
        beta = reshape(matmul(b.weight("ssm_beta.weight"), x, name="beta"), 1, mixer.n_v, tokens, sequences)
        return beta, reshape(matmul(b.weight("ssm_alpha.weight"), x, name="alpha"), mixer.n_v, tokens, sequences)
    each = mixer.n_v // mixer.n_k
    both = matmul(b.weight("ssm_ba.weight"), x, name="beta and alpha")
    both = reshape(both, 2 * each, mixer.n_k, tokens, sequences)
    beta, alpha = (view(both, (each, mixer.n_k, tokens, sequences), both.nb[1:]) for _ in range(2))
    beta = contiguous(beta, 1, mixer.n_v, tokens, sequences, name="beta")
    return beta, contiguous(alpha, mixer.n_v, tokens, sequences, name="alpha")


def short_conv(b: Building, mixer: ShortConv, x: GraphNode) -> GraphNode:
    sequences = b.context.sequences
    tokens, width, cache = x.ne[1] // sequences, mixer.d_inner, b.cached(mixer)
    shaped = reshape(x, x.ne[0], tokens, sequences)
    made = matmul(b.weight("shortconv.in_proj.weight"), shaped, name="input of the convolution")
    parts = [view(made, (width, tokens, sequences), made.nb[1:3]) for _ in range(3)]
    gated = GraphNode("mul", "f32", parts[0].ne, (parts[0], parts[2]), name="gated")
    kernel, memory = mixer.d_conv, cache["r"]
    before = reshape(copied_states(b, memory), kernel - 1, width, sequences)
    joined = concat(before, transpose(gated), 0)
    last = view(joined, (kernel - 1, width, sequences), joined.nb[1:3])
    b.graph.expand(copy(last, view(memory, ((kernel - 1) * width, sequences), (memory.nb[1],))))
    out = after_convolution(b, joined, tokens, "shortconv.conv")
    y = GraphNode("mul", "f32", parts[1].ne, (parts[1], out), name="gated")
    made = matmul(b.weight("shortconv.out_proj.weight"), y, name="recurrent layer")
    return reshape(made, made.ne[0], tokens * sequences)
