"""Attention as llama.cpp's graph computes it, over its cache.

Source: llama-graph.cpp (build_qkv, build_attn, build_attn_mha), llama-kv-cache.cpp (cpy_k, cpy_v, get_k, get_v),
src/models/deepseek2.cpp; llama.cpp 0c1e57098.
"""

from typing import NamedTuple

from calc.model.attention import GQA
from calc.model.mla import LatentAttention
from calc.serving.engines.llamacpp.building import Building
from calc.serving.engines.llamacpp.context import WINDOWED
from calc.serving.engines.llamacpp.graph import (
    BLOCKS,
    GraphNode,
    concat,
    contiguous,
    like,
    matmul,
    permute,
    reshape,
    set_rows,
    transpose,
    view,
)
from calc.serving.engines.llamacpp.habits import (
    CAPPED_SCORES,
    FOUR_POSITIONS,
    LAYER_NORM,
    NO_ROTATION,
    NO_ROTATION_BESIDE_STATES,
    NORMED_AFTER_ROTATION,
    NORMED_VALUES,
    ROTATED_BUT_FOURTH,
    ROTATED_FIRST,
    ROTATED_IN_WINDOWS,
    SCALED_QUERY,
)

TURN = 64
"""Side of the smallest matrix that turns keys and values before they are quantized."""


class Inputs(NamedTuple):
    """Names of what is written before a pass, once for all layers that keep the same of the context."""

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


def grouped_attention(b: Building, mixer: GQA, x: GraphNode) -> GraphNode:
    """Queries, keys and values of each head, attention, and the projection of its result."""
    q, k, v, gate = projected(b, mixer, x)
    if b.kind in NORMED_VALUES:
        v = b.bare_norm(v)
    turned = rotates(b, mixer)
    if b.kind in ROTATED_FIRST:
        q, k = normed(b, "attn_q_norm", rotated(b, mixer, q)), normed(b, "attn_k_norm", rotated(b, mixer, k))
    else:
        q, k = normed(b, "attn_q_norm", q), normed(b, "attn_k_norm", k)
        if turned:
            q, k = rotated(b, mixer, q), rotated(b, mixer, k)
        elif b.kind == "llama4":
            q = like(q, "mul", b.input("scale of attention", "f32", 1, 1, b.context.tokens))
    if b.kind in NORMED_AFTER_ROTATION and turned:
        q, k = b.bare_norm(q), b.bare_norm(k)
    if b.kind in SCALED_QUERY:
        q = like(q, "scale", name="queries")
    made = cached_attention(b, mixer, q, k, v)
    if gate is not None:
        made = like(made, "mul", like(gate, "sigmoid"), name="gated attention")
    return b.project(made, "attn_output", "attention")


def projected(b: Building, mixer: GQA, x: GraphNode) -> tuple[GraphNode, GraphNode, GraphNode, GraphNode | None]:
    """Queries, keys and values as [d, heads, tokens], and the gate of the output."""
    tokens, d, d_v = x.ne[1], mixer.d_head, mixer.d_v or mixer.d_head
    if b.has("attn_qkv.weight"):
        packed = b.project(x, "attn_qkv", "queries, keys and values")
        step = packed.nb[1]
        q = view(packed, (d, mixer.n_q, tokens), (4 * d, step))
        k = view(packed, (d, mixer.n_kv, tokens), (4 * d, step))
        return q, k, view(packed, (d_v, mixer.n_kv, tokens), (4 * d_v, step)), None
    q = b.project(x, "attn_q", "queries")
    gate = None
    if mixer.gated:
        whole = q
        steps = (8 * d, 8 * d * mixer.n_q)
        q = view(whole, (d, mixer.n_q, tokens), steps)
        gate = contiguous(view(whole, (d, mixer.n_q, tokens), steps), d * mixer.n_q, tokens, name="gate")
    k = b.project(x, "attn_k", "keys")
    v = b.project(x, "attn_v", "values") if b.has("attn_v.weight") else k
    if mixer.qk_norm == "full":
        q, k = b.norm(q, "attn_q_norm"), b.norm(k, "attn_k_norm")
    if gate is None:
        q = reshape(q, d, mixer.n_q, tokens)
    return q, reshape(k, d, mixer.n_kv, tokens), reshape(v, d_v, mixer.n_kv, tokens), gate


def normed(b: Building, name: str, x: GraphNode) -> GraphNode:
    """The norm of each head, where there is one and it was not applied to all at once."""
    if not b.has(f"{name}.weight") or b.weight(f"{name}.weight").ne[0] != x.ne[0]:
        return x
    mean = b.kind in LAYER_NORM or b.has(f"{name}.bias") or b.kind == "stablelm"
    return b.norm(x, name, "layer" if mean else "rms")


def rotates(b: Building, mixer: GQA) -> bool:
    if b.kind in ROTATED_IN_WINDOWS:
        mixers = (one for block in b.model.blocks for one in block.mixers)
        return mixer.window is not None or all(one.window is None for one in mixers)
    if b.model.model_type in NO_ROTATION_BESIDE_STATES:
        return all(isinstance(one, GQA) for block in b.model.blocks for one in block.mixers)
    return b.kind not in NO_ROTATION and not (b.kind in ROTATED_BUT_FOURTH and b.layer % 4 == 3)


def rotated(b: Building, mixer: GQA, x: GraphNode) -> GraphNode:
    sources = [b.positions(4 if b.kind in FOUR_POSITIONS else 1)]
    device = b.placement.layers[b.layer]
    if "rope_freqs.weight" in b.file.outside and (mixer.window is None or b.kind != "gemma4"):
        sources.append(b.outer("rope_freqs.weight", device))
    elif "rope_factors_long.weight" in b.file.outside:
        sources.append(b.outer("rope_factors_long.weight", device))
    return like(x, "rope", *sources, name="rotated")


def cached_attention(b: Building, mixer: GQA, q: GraphNode, k: GraphNode, v: GraphNode) -> GraphNode:
    """Write keys and values into the cache, and attend to all of it. Result [d_v heads, tokens]."""
    context, cache = b.context, b.cached(mixer)
    windowed = mixer.window is not None and b.model.model_type in WINDOWED
    inputs = WINDOWS if windowed else WHOLE
    iswa = any(isinstance(m, GQA) and m.window for block in b.model.blocks for m in block.mixers)
    iswa = iswa and b.model.model_type in WINDOWED
    d_v = v.ne[0]
    turn_v = block_size(context.type_v) > 1 and d_v % TURN == 0 and even_heads(b, windowed)
    if block_size(context.type_k) > 1 and k.ne[0] % TURN == 0 and even_heads(b, windowed):
        side = TURN
        while k.ne[0] % (2 * side) == 0:
            side *= 2
        turning = b.input(inputs.turning_keys, "f32", side, side)
        q, k = turned_by(turning, q), turned_by(turning, k)
    if turn_v:
        v = turned_by(b.input(inputs.turning_values, "f32", TURN, TURN), v)
    b.graph.expand(q, k, v) if iswa else b.graph.expand(q, v, k)
    b.graph.expand(write_keys(b, cache["k"], k, inputs))
    b.graph.expand(write_values(b, cache["v"], v, inputs))
    keys = rows_of(cache["k"], k.ne[0], mixer.n_kv)
    shaped = columns_of if context.transposed else rows_of
    values = shaped(cache["v"], d_v, mixer.n_kv)
    sinks = [b.weight("attn_sinks.weight")] if mixer.sinks else []
    made = attended(b, q, keys, values, mask(b, cache["k"], inputs), sinks)
    if turn_v:
        made = turned_by(b.input(inputs.turning_values, "f32", TURN, TURN), made)
    return made


def latent_attention(b: Building, mixer: LatentAttention, x: GraphNode) -> GraphNode:
    """Attention over the latent, with keys' and values' up-projections taken into queries and result."""
    tokens, rank, rope = x.ne[1], mixer.kv_rank, mixer.d_rope
    q = x
    if mixer.q_rank is not None:
        q = b.norm(b.project(q, "attn_q_a", "compressed queries"), "attn_q_a_norm")
    q = b.project(q, "attn_q_b" if mixer.q_rank is not None else "attn_q", "queries")
    q = reshape(q, mixer.d_nope + rope, mixer.n_q, tokens)
    both = b.project(x, "attn_kv_a_mqa", "latent")
    step = 4 * (rank + rope)
    latent = b.norm(view(both, (rank, tokens), (step,)), "attn_kv_a_norm")
    k_rope = like(view(both, (rope, 1, tokens), (step, step)), "rope", b.positions(), name="rotated")
    q_nope = permute(view(q, (mixer.d_nope, mixer.n_q, tokens), q.nb[1:3]), 0, 2, 1, 3)
    absorbed = permute(matmul(b.weight("attn_k_b.weight"), q_nope, name="absorbed queries"), 0, 2, 1, 3)
    q_rope = like(view(q, (rope, mixer.n_q, tokens), q.nb[1:3]), "rope", b.positions(), name="rotated")
    queries = concat(absorbed, q_rope, 0)
    value = reshape(latent, rank, 1, tokens)
    key = concat(value, k_rope, 0)
    b.graph.expand(queries, value, key)
    cache = b.cached(mixer)["k"]
    b.graph.expand(write_keys(b, cache, key, WHOLE))
    keys = rows_of(cache, rank + rope, 1)
    values = view(keys, (rank, *keys.ne[1:]), keys.nb[1:])
    return b.project(
        attended(b, queries, keys, values, mask(b, cache, WHOLE), [], b.weight("attn_v_b.weight")),
        "attn_output",
        "attention",
    )


def block_size(kind: str) -> int:
    return BLOCKS[kind][0]


def even_heads(b: Building, windowed: bool) -> bool:
    """Whether all layers of a cache have heads of the same width."""
    widths = {
        mixer.d_head
        for block in b.model.blocks
        for mixer in block.mixers
        if isinstance(mixer, GQA) and (mixer.window is not None and b.model.model_type in WINDOWED) == windowed
    }
    return len(widths) == 1


def turned_by(turning: GraphNode, x: GraphNode) -> GraphNode:
    """x, in stretches of the side of a matrix, times it."""
    side = turning.ne[0]
    rows = x.elements // side
    flat = reshape(x, side, rows) if x.contiguous else contiguous(x, side, rows)
    return reshape(matmul(turning, flat, name="turned"), *x.ne)


def mask(b: Building, cache: GraphNode, inputs: Inputs) -> GraphNode:
    """Which token sees which cell."""
    cells, streams = cache.ne[1], b.context.streams
    kind = "f16" if b.context.flash else "f32"
    return b.input(inputs.mask, kind, cells, b.context.tokens // streams, 1, streams)


def write_keys(b: Building, cache: GraphNode, k: GraphNode, inputs: Inputs) -> GraphNode:
    width, tokens = k.ne[0] * k.ne[1], k.ne[2]
    rows = view(k, (width, tokens), (k.nb[2],))
    merged = reshape(cache, width, cache.ne[1] * cache.ne[2]) if cache.ne[2] > 1 else cache
    return set_rows(merged, rows, b.input(inputs.keys, "i64", tokens))


def write_values(b: Building, cache: GraphNode, v: GraphNode, inputs: Inputs) -> GraphNode:
    """Values as rows, or one by one where the cache holds them transposed."""
    width, tokens = v.ne[0] * v.ne[1], v.ne[2]
    if not b.context.transposed:
        rows = view(v, (width, tokens), (v.nb[2],))
        merged = reshape(cache, width, cache.ne[1] * cache.ne[2]) if cache.ne[2] > 1 else cache
        return set_rows(merged, rows, b.input(inputs.values, "i64", tokens))
    flat = reshape(v, width, tokens) if 4 * width == v.nb[2] else contiguous(v, width, tokens)
    if width < cache.ne[0]:
        flat = GraphNode("pad", "f32", (cache.ne[0], tokens), (flat,), name="padded values")
    places = b.input(inputs.values, "i64", tokens * b.widest_value)
    return set_rows(reshape(cache, 1, cache.elements), reshape(flat, 1, flat.elements), places)


def row_bytes(kind: str, width: int) -> int:
    block, size = BLOCKS[kind]
    return width // block * size


def rows_of(cache: GraphNode, d: int, heads: int) -> GraphNode:
    """The cache as [d, heads, cells, streams]."""
    steps = (row_bytes(cache.type, d), row_bytes(cache.type, cache.ne[0]))
    return view(cache, (d, heads, cache.ne[1], cache.ne[2]), (*steps, steps[1] * cache.ne[1]))


def columns_of(cache: GraphNode, d: int, heads: int) -> GraphNode:
    """Transposed values as [cells, heads, d, streams]."""
    cells = cache.ne[1]
    steps = row_bytes(cache.type, cells * d), row_bytes(cache.type, cells)
    return view(cache, (cells, heads, d, cache.ne[2]), (*steps, row_bytes(cache.type, cells * cache.ne[0])))


def attended(
    b: Building,
    q: GraphNode,
    k: GraphNode,
    v: GraphNode,
    seen: GraphNode,
    sinks: list[GraphNode],
    unfold: GraphNode | None = None,
) -> GraphNode:
    """Attention of [d, heads, tokens] to the cache: [d_v heads, tokens]. `unfold` makes values of latents."""
    streams, context = k.ne[3], b.context
    crossed = v.nb[1] > v.nb[2]
    tokens = q.ne[2] // streams
    q = view(q, (q.ne[0], q.ne[1], tokens, streams), (q.nb[1], q.nb[2], q.nb[2] * tokens))
    q, k, v = (permute(one, 0, 2, 1, 3) for one in (q, k, v))
    if context.flash:
        k, v = (GraphNode("cast", "f16", one.ne, (one,), name=one.name) if one.type == "f32" else one for one in (k, v))
        made = GraphNode("flash_attn_ext", "f32", (v.ne[0], q.ne[2], q.ne[1], q.ne[3]), (q, k, v, seen, *sinks))
        made.name, made.layer = "attention of each head", b.home(b.placement.layers[b.layer])
        if unfold is not None:
            made = permute(matmul(unfold, permute(made, 0, 2, 1, 3), name="values of latents"), 0, 2, 1, 3)
            made = contiguous(made)
        made = reshape(made, made.ne[0] * made.ne[1], made.ne[2] * made.ne[3])
    else:
        scores = matmul(k, q, name="scores")
        if b.kind in CAPPED_SCORES:
            for op in ("scale", "tanh", "scale"):
                scores = like(scores, op, name="scores")
        scores = like(scores, "soft_max", seen, *sinks, name="probabilities")
        if not crossed:
            v = contiguous(transpose(v), name="transposed values")
        result = matmul(v, scores, name="attention of each head")
        if unfold is not None:
            result = matmul(unfold, result, name="values of latents")
        result = permute(result, 0, 2, 1, 3)
        made = contiguous(result, result.ne[0] * result.ne[1], result.ne[2] * result.ne[3], name="attention")
    b.graph.expand(made)
    return made
