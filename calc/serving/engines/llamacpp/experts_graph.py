"""Feed-forwards as llama.cpp's graph computes them: dense ones, and experts that a router chooses.

Source: llama-graph.cpp (build_ffn, build_moe_ffn), src/models/*.cpp; llama.cpp 0c1e57098.
"""

from calc.model.feedforward import MLP, MoE
from calc.serving.engines.llamacpp.building import Building
from calc.serving.engines.llamacpp.graph import (
    GraphNode,
    contiguous,
    get_rows,
    like,
    matmul,
    matmul_experts,
    reshape,
    set_rows,
    view,
)
from calc.serving.engines.llamacpp.habits import (
    GELU,
    SIGMOID_ROUTER,
    SOFTMAX_OF_CHOSEN,
    SQUARED_RELU,
    UNNORMED_ROUTER,
    WEIGHTED_BEFORE,
)


def dense(b: Building, mlp: MLP, x: GraphNode, suffix: str = "") -> GraphNode:
    """Up, an activation, down; gated ones multiply it with a second projection."""
    up = b.project(x, f"ffn_up{suffix}", "up")
    if b.has(f"ffn_gate{suffix}.weight"):
        gate = b.project(x, f"ffn_gate{suffix}", "gate")
        inner = like(gate, "geglu" if b.kind in GELU else "swiglu", up, name="gate times up")
    elif mlp.gated:  # both in one tensor
        inner = GraphNode("swiglu", "f32", (up.ne[0] // 2, *up.ne[1:]), (up,), name="gate times up")
    elif b.kind in SQUARED_RELU:
        inner = like(like(up, "relu", name="activated"), "sqr", name="activated")
    else:
        inner = like(up, "gelu", name="activated")
    return b.project(inner, f"ffn_down{suffix}", "down")


def mixture(b: Building, moe: MoE, x: GraphNode) -> GraphNode:
    """Routed experts and shared ones."""
    if moe.latent is None:
        made = routed(b, moe, x, x)
    else:
        made = routed(b, moe, b.project(x, "ffn_latent_down", "latent"), x, b.project(x, "ffn_gate_inp", "router"))
        made = b.project(made, "ffn_latent_up", "latent")
    if moe.shared is None:
        return made
    shared = dense(b, moe.shared, x, "_shexp")
    if moe.shared_gate:
        gate = matmul(b.weight("ffn_gate_inp_shexp.weight"), x, name="gate of the shared expert")
        if b.kind == "qwen2moe":
            gate = like(like(gate, "silu"), "div", gate, name="gate of the shared expert")
        else:
            gate = like(gate, "sigmoid", name="gate of the shared expert")
        shared = like(shared, "mul", gate, name="shared expert")
    return like(made, "add", shared, name="experts")


def chosen(b: Building, moe: MoE, logits: GraphNode) -> tuple[GraphNode, GraphNode]:
    """Numbers of the experts of each token [k, tokens], and what they weigh [1, k, tokens]."""
    details, tokens, used = b.model.details, logits.ne[1], moe.top_k
    experts = logits.ne[0]
    if b.kind in SOFTMAX_OF_CHOSEN:
        probabilities = logits
    else:
        sigmoid = b.kind in SIGMOID_ROUTER or (b.kind == "deepseek2" and moe.router_correction != "none")
        probabilities = like(logits, "sigmoid" if sigmoid else "soft_max", name="probabilities of experts")
    ranked = logits if b.kind in WEIGHTED_BEFORE else probabilities
    if b.has("exp_probs_b.bias"):
        ranked = like(probabilities, "add", b.weight("exp_probs_b.bias"), name="ranks of experts")
    if details.expert_groups > 1:
        ranked = within_groups(ranked, details.expert_groups, details.groups_used)
    ids = top(ranked, used)
    weights = get_rows(reshape(probabilities, 1, experts, tokens), ids, name="weights of experts")
    if b.kind in SOFTMAX_OF_CHOSEN:
        weights = reshape(like(reshape(weights, used, tokens), "soft_max"), 1, used, tokens)
    if b.kind not in UNNORMED_ROUTER | SOFTMAX_OF_CHOSEN and details.normed_weights:
        flat = reshape(weights, used, tokens)
        total = like(GraphNode("sum_rows", "f32", (1, tokens), (flat,)), "clamp")
        weights = reshape(like(flat, "div", total, name="weights of experts"), 1, used, tokens)
    if details.scaled_weights:
        weights = like(weights, "scale", name="weights of experts")
    return ids, weights


def top(ranked: GraphNode, count: int) -> GraphNode:
    """The numbers of the highest, of each row."""
    order = GraphNode("argsort", "i32", ranked.ne, (ranked,), name="order of experts")
    return view(order, (count, *ranked.ne[1:]), order.nb[1:])


def within_groups(ranked: GraphNode, groups: int, used: int) -> GraphNode:
    """Ranks of the experts of the best groups; the others' are put out of reach (DeepSeek-V3)."""
    experts, tokens = ranked.ne[:2]
    each = experts // groups
    grouped = reshape(ranked, each, groups, tokens)
    best = top(grouped, 2)
    scores = get_rows(reshape(grouped, 1, each, groups, tokens), best)
    scores = GraphNode("sum_rows", "f32", (1, groups, tokens), (reshape(scores, 2, groups, tokens),))
    found = top(reshape(scores, groups, tokens), used)
    kept = get_rows(grouped, found)
    nothing = GraphNode("fill", "f32", grouped.ne, (grouped,))
    return reshape(set_rows(nothing, kept, found), experts, tokens)


def routed(b: Building, moe: MoE, x: GraphNode, router_input: GraphNode, logits: GraphNode | None = None) -> GraphNode:
    """Each token through its experts, whose outputs are weighted and added up."""
    tokens, used = x.ne[1], moe.top_k
    if logits is None:
        logits = matmul(b.weight("ffn_gate_inp.weight"), router_input, name="router")
        if b.has("ffn_gate_inp.bias"):
            logits = like(logits, "add", b.weight("ffn_gate_inp.bias"), name="router")
    ids, weights = chosen(b, moe, logits)
    b.graph.expand(weights)
    width = x.ne[0]
    x = reshape(x, width, 1, tokens)
    if b.kind in WEIGHTED_BEFORE:
        x = like(GraphNode("repeat", "f32", (width, used, tokens), (x,)), "mul", weights, name="weighted")
    inner = expert_inner(b, moe, x, ids)
    out = through(b, "ffn_down_exps", inner, ids, "down of experts")
    if b.has("ffn_down_exps.scale"):
        scales = reshape(b.weight("ffn_down_exps.scale"), 1, moe.n_experts)
        each = GraphNode("repeat", "f32", (1, moe.n_experts, tokens), (scales,))
        out = like(out, "mul", get_rows(each, ids), name="scaled experts")
    if b.kind not in WEIGHTED_BEFORE:
        out = like(out, "mul", weights, name="weighted experts")
    b.graph.expand(out)
    parts = [view(out, (out.ne[0], tokens), (out.nb[2],)) for _ in range(used)]
    b.graph.expand(*parts)
    total = parts[0]
    for part in parts[1:]:
        total = GraphNode("add", "f32", total.ne, (total, part), name="experts")
        b.graph.expand(total)
    return contiguous(total, name="experts") if used == 1 else total


def expert_inner(b: Building, moe: MoE, x: GraphNode, ids: GraphNode) -> GraphNode:
    """Up and gate of each token's experts, and their activation."""
    glu = "geglu" if b.kind in GELU else "swiglu_oai" if b.kind == "gpt-oss" else "swiglu"
    if b.has("ffn_gate_up_exps.weight"):
        both = through(b, "ffn_gate_up_exps", x, ids, "gate and up of experts")
        half = (both.ne[0] // 2, *both.ne[1:3])
        gate, up = view(both, half, both.nb[1:3]), view(both, half, both.nb[1:3])
        return GraphNode(glu, "f32", half, (gate, up), name="gate times up of experts")
    up = through(b, "ffn_up_exps", x, ids, "up of experts")
    if moe.expert.gated:
        gate = through(b, "ffn_gate_exps", x, ids, "gate of experts")
        return like(gate, glu, up, name="gate times up of experts")
    if b.kind in SQUARED_RELU:
        return like(like(up, "relu"), "sqr", name="activated experts")
    return like(up, "gelu", name="activated experts")


def through(b: Building, name: str, x: GraphNode, ids: GraphNode, label: str) -> GraphNode:
    made = matmul_experts(b.weight(f"{name}.weight"), x, ids, name=label)
    return like(made, "add_id", b.weight(f"{name}.bias"), ids, name=label) if b.has(f"{name}.bias") else made
