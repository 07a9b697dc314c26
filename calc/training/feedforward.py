"""Feed-forwards as transformers' classes compute them in training: matrices, gates and activation functions
(`activations.py`), and mixtures of experts, for which copies of tokens are sorted by expert (`integrations/moe.py`)."""

from calc.model.feedforward import MLP, MoE
from calc.training.modules import Modules
from calc.training.tape import CountedBy, Name, Tracked, scoped


@scoped
def mlp(t: Modules, ffn: MLP, x: Tracked) -> Tracked:
    """down(act(gate(x))·up(x)), or down(act(up(x)))."""
    columns, f = x.columns, ffn.intermediate
    if ffn.gated:
        y = gated(t, x, f, bias=ffn.bias)
    else:
        y = activated(t, t.matrix(x, "up_proj", f, "states of the feed-forward", bias=ffn.bias))
    if t.kernels.norms_inside:
        with t.alive(y):
            y = t.norm(y, "rms", "normed gated states")
    return t.matrix(
        t.local(y), "down_proj", columns, "output of the feed-forward", bias=ffn.bias, unit=CountedBy.STREAM
    )


@scoped
def activated(t: Modules, x: Tracked, label: Name = "activated") -> Tracked:
    if t.kernels.activation == "written_out" and not t.settings.fused:
        return written_out_gelu(t, x, label)
    if t.kernels.activation == "squared":
        return t.power(t.result_saved(x, "relu"), "relu, squared")
    if t.kernels.activation == "relu":
        return t.result_saved(x, label)
    if t.kernels.activation == "xielu" and not t.settings.fused:
        return xielu(t, x, label)
    return t.activation(x, label)


@scoped
def written_out_gelu(t: Modules, x: Tracked, name: Name) -> Tracked:
    """0.5·x·(1 + tanh(√(2/π)·(x + 0.044715·x³))), operation by operation."""
    label: Name = "steps of GELU"
    half = t.scale(x, label)
    inner = t.scale(t.add(x, t.scale(t.power(x, label), label), label), label)
    return t.multiply(half, t.copied(t.result_saved(inner, label), label), name)


@scoped
def xielu(t: Modules, x: Tracked, name: Name) -> Tracked:
    """xIELU, arXiv:2411.13010, by two trained numbers: α₊·x² + β·x above zero and (eˣ - 1 - x)·α₋ + β·x below, both
    for all of x (`XIELUActivation._xielu_python`)."""
    label: Name = "steps of xIELU"
    width = 4 if t.autocast else x.width  # softplus of the two runs in 32 bits
    above, below = (t.parameter(1, width) for _ in range(2))
    mask = t.local(t.new("masks of xIELU", x.columns, 1, x.unit))
    square = t.multiply(t.multiply(above, x, label), x, label)
    first = t.add(square, t.scale(x, label), label)
    inner = t.subtract(t.expm1(t.clamped_below(x, label), label), x, label)
    second = t.add(t.multiply(inner, below, label), t.scale(x, label), label)
    return t.where(mask, first, second, name)


@scoped
def gated(t: Modules, x: Tracked, columns: int, *, bias: bool) -> Tracked:
    """act(gate(x))·up(x), by two matrices or one."""
    if t.kernels.multiplied:
        return multiplied_gate(t, x, columns, bias=bias)
    if t.packs("gate_proj", "up_proj"):
        gate, up = t.split(t.matrix(x, "gate_proj", 2 * columns, "gate and up", bias=bias), columns, columns)
        if t.settings.fused:
            return t.fused_gate(gate, up, "gated")
        return gated_copies(t, gate, up)
    gate = t.matrix(x, "gate_proj", columns, "gate", bias=bias)
    if t.settings.fused:
        return t.fused_gate(t.local(gate), t.matrix(x, "up_proj", columns, "up", bias=bias), "gated")
    gate = t.local(activated(t, gate, "activated gate"))
    return t.multiply(gate, t.matrix(x, "up_proj", columns, "up", bias=bias), "gated")


@scoped
def multiplied_gate(t: Modules, x: Tracked, columns: int, *, bias: bool) -> Tracked:
    """up(x)·act(gate(x)·m): Falcon-H1."""
    up = t.local(t.matrix(x, "up_proj", columns, "up", bias=bias))
    gate = t.scale(t.matrix(x, "gate_proj", columns, "gate", bias=bias), "gate")
    if t.settings.fused:
        return t.fused_gate(gate, up, "gated")
    return t.multiply(up, activated(t, gate, "activated gate"), "gated")


# Mixtures of experts as transformers computes them: copies of tokens sorted by expert, and grouped products
# (`integrations/moe.py`).


WEIGHTS = "weights of experts"


@scoped
def mixture(t: Modules, moe: MoE, x: Tracked) -> Tracked:
    """Routed experts, and those that every token passes through."""
    if t.kernels.passes_all and t.settings.ep == 1:  # a dispatcher sends copies to chosen experts alone
        return every_expert(t, moe, x)
    shared = t.local(mlp(t, moe.shared, x)) if moe.shared is not None and t.kernels.shared_first else None
    weights, indices = routed(t, moe, x)
    y = t.local(experts(t, moe, x, weights, indices))
    if moe.shared is not None:
        shared = mlp(t, moe.shared, x) if shared is None else shared
        if moe.shared_gate:
            gate = t.local(t.matrix(x, "shared_expert_gate", 1, "gate of shared experts"))
            whole, label = shared, "gated shared experts"
            shared = t.multiply(t.result_saved(gate, "gate of shared experts"), whole, label)
            t.free(whole)
        y = t.add(y, shared, "output of the feed-forward")
    return y


@scoped
def parallel_with_dense(t: Modules, moe: MoE, dense: MLP, x: Tracked, state: Tracked) -> Tracked:
    """A dense feed-forward on normed states, and experts on the state by norms of their own: Gemma 4."""
    kind = t.kernels.norm_kind(t.block.norm)
    first = t.local(t.norm(mlp(t, dense, x), kind, "normed output"))
    weights, indices = map(t.local, routed(t, moe, state))
    second = t.local(experts(t, moe, t.norm(state, kind, "normed states"), weights, indices))
    return t.add(first, t.norm(second, kind, "normed output"), "output of the feed-forward")


@scoped
def every_expert(t: Modules, moe: MoE, x: Tracked) -> Tracked:
    """Each token through all experts, weighted before, mostly by zero: Llama 4."""
    n, columns, expert = moe.n_experts, x.columns, moe.expert
    label = "scores of the router"
    chosen, indices = t.topk(router_logits(t, moe, x, x.width), moe.choices)
    scores = t.gather(chosen, indices, n, label)  # put among others that are minus infinity
    with t.alive(scores):
        scores = t.local(t.cast(t.result_saved(t.cast(scores, 4, label), label), x.width, label))
    y = t.multiply(t.repeat(x, n, "copies of tokens"), t.copied(scores, WEIGHTS), "weighted copies of tokens")
    wide = n * expert.intermediate
    y = t.linear(y, expert_matrices(t, 2 * wide * columns, None), 2 * wide, "gate and up")
    y = gated_copies(t, *t.split(y, wide, wide))
    y = t.local(t.linear(y, expert_matrices(t, wide * columns, None), n * columns, "outputs of experts"))
    if moe.shared is None:
        return t.resized(y, columns, "output of experts")
    return t.add_in_place(mlp(t, moe.shared, x), t.resized(y, columns, "output of experts"))


@scoped
def routed(t: Modules, moe: MoE, x: Tracked) -> tuple[Tracked, Tracked]:
    """Weights and numbers of the experts that each token is sent to. Megatron-LM's ranks route their own tokens, S / TP
    (`core/transformer/moe/token_dispatcher.py`); torch's DTensor has gathered those of all."""
    label = "scores of the router"
    if "router" in t.kernels.norms_unweighted:
        normed, scale = "normed states of the router", t.parameter(x.columns)
        x = t.local(t.scale(t.multiply(scale, t.unweighted_norm(x, normed), normed), normed))
    if t.kernels.scores_chosen_only:  # a softmax over those that are chosen
        weights, indices = map(t.local, t.topk(router_logits(t, moe, x, x.width), moe.choices))
        return t.result_saved(weights, WEIGHTS), indices
    width = 4 if in_fp32(t.kernels.fp32_router, moe) else x.width
    logits = t.local(router_logits(t, moe, t.cast(x, width, "inputs of the router in 32 bits"), width))
    scores = t.local(t.result_saved(t.cast(logits, 4, label), label))
    if moe.router_correction == "none":
        weights, indices = map(t.local, t.topk(scores, moe.choices))
        return t.cast(
            t.divide_by_sum(weights, WEIGHTS), 4 if in_fp32(t.kernels.fp32_weights, moe) else x.width, WEIGHTS
        ), indices
    corrected = t.local(t.new(label, scores.columns, 4, x.unit))  # no gradient passes the choice
    _, indices = map(t.local, t.topk(corrected, moe.choices))
    weights = t.local(t.scale(t.divide_by_sum(t.gather(scores, indices, moe.choices, WEIGHTS), WEIGHTS), WEIGHTS))
    return t.cast(weights, 4 if in_fp32(t.kernels.fp32_weights, moe) else x.width, WEIGHTS), indices


@scoped
def router_logits(t: Modules, moe: MoE, x: Tracked, width: int) -> Tracked:
    """A row for each expert; in 32 bits by a copy of the router."""
    rows = moe.n_experts + moe.n_zero
    size = rows * x.columns + (rows if moe.router_bias else 0)
    weight = t.parameter(size)
    if t.settings.adapters is not None and t.settings.adapters.experts:
        weight = t.local(folded(t, fold_factors(t, moe.model_copy(update={"n_experts": 1}), x.columns, rows, 1), size))
    wide = t.local(t.cast(weight, width, "weights of the router in 32 bits"))
    if t.kernels.casts_router:
        return t.linear(x, wide, rows, "logits of the router", x.unit)
    return t.without_autocast(x, wide, rows, "logits of the router", x.unit)


@scoped
def experts(t: Modules, moe: MoE, x: Tracked, weights: Tracked, indices: Tracked) -> Tracked:
    """Copies of each token through gate and up, activation, down; then weighted and put back in order."""
    (k, unit), columns, expert = copies_of(t, moe), x.columns, moe.expert
    parts = 2 if expert.gated else 1
    down, up = adapters(t, moe, columns, parts)
    for factor in (*(down or ()), *(up or ())):
        t.local(factor)
    sort = "order of copies"
    numbers, order = t.local(t.new(sort, k, 8, unit)), t.local(t.new(sort, k, 8, unit))
    copies = t.local(t.gather(x, t.new(sort, k, 8, unit), k * columns, "copies of tokens"))
    weights = t.local(t.gather(weights, order, k, WEIGHTS))
    counts = t.local(t.new(sort, k, 4, unit))
    wide = parts * expert.intermediate
    first_bias = expert_bias(t, moe, k, wide, unit)
    widening = t.local(expert_matrices(t, moe.n_experts // t.settings.ep * columns * wide, up))
    y = grouped(t, copies, widening, k * wide, "gate and up", first_bias)
    with t.alive(first_bias):
        y = activated_copies(t, expert, y, k)
        second_bias = expert_bias(t, moe, k, columns, unit)
    second_bias = second_bias and t.local(second_bias)
    narrowing = t.local(expert_matrices(t, moe.n_experts // t.settings.ep * expert.intermediate * columns, down))
    y = grouped(t, y, narrowing, k * columns, "outputs of experts", second_bias)
    weighted = t.multiply(t.local(y), weights, "weighted outputs of experts")
    weighted = t.local(t.gather(weighted, t.new(sort, k, 8, unit), k * columns, "weighted outputs in order"))
    t.free(numbers, counts)
    return t.cast(t.resized(weighted, columns, "output of experts", unit=x.unit), x.width, "output of experts")


def copies_of(t: Modules, moe: MoE) -> tuple[int, CountedBy]:
    """Copies of a token that the experts of a rank take, and the tokens that they are counted by. Where experts are cut
    into fewer parts than there are ranks, a token of one rank goes to all parts of each expert that it chooses
    (Megatron-LM `MoEAlltoAllTokenDispatcher`: all-to-all over EP, then all-gather over ETP)."""
    if t.settings.slices:
        return moe.choices * t.settings.slices, CountedBy.STREAM
    return moe.top_k, CountedBy.TOKEN


def adapters(t: Modules, moe: MoE, hidden: int, parts: int) -> tuple[list[Tracked] | None, list[Tracked] | None]:
    """The factors of the experts' adapters; each product is made once as they are put in place."""
    if t.settings.adapters is None or not t.settings.adapters.experts:
        return None, None
    f, wide = moe.expert.intermediate, parts * moe.expert.intermediate
    down = fold_factors(t, moe, f, hidden, 1)
    folded(t, down, moe.n_experts * f * hidden)
    up = fold_factors(t, moe, hidden, wide, parts)
    folded(t, up, moe.n_experts * wide * hidden)
    return down, up


@scoped
def activated_copies(t: Modules, expert: MLP, y: Tracked, k: int) -> Tracked:
    """act(gate)·up of what one product made."""
    f = k * expert.intermediate
    if not expert.gated:
        return activated(t, y)
    if t.kernels.activation == "clamped":
        return clamped(t, y, f)
    return gated_copies(t, *t.split(y, f, f))


@scoped
def gated_copies(t: Modules, gate: Tracked, up: Tracked) -> Tracked:
    """act(gate)·up, in two kernels also where dense feed-forwards have one (Liger)."""
    return t.multiply(activated(t, gate, "activated gate"), up, "gated")


@scoped
def clamped(t: Modules, y: Tracked, f: int) -> Tracked:
    """(up + 1)·gate·sigmoid(α·gate), gate and up clamped first: gpt-oss."""
    gate, up = t.slice(y, f), t.slice(y, f)
    gate = t.local(t.activation(gate, "clamped gate"))
    up = t.local(t.activation(up, "clamped up"))
    glu = t.multiply(
        gate, t.result_saved(t.scale(gate, "sigmoid of the gate"), "sigmoid of the gate"), "activated gate"
    )
    return t.multiply(t.copied(up, "clamped up"), glu, "gated")


def in_fp32(stated: bool | None, moe: MoE) -> bool:
    """Whether the router's input, or its weights of experts, are in 32 bits, as the family states or by the router."""
    return moe.router_correction == "buffer" if stated is None else stated


def expert_bias(t: Modules, moe: MoE, copies: int, columns: int, unit: CountedBy) -> Tracked | None:
    """The bias of its expert for each copy of a token; its gradient is put into zeros."""
    if not moe.expert.bias:
        return None
    bias = t.parameter(moe.n_experts // t.settings.ep * columns, t.settings.expert_width)
    return t.gather(bias, t.new("order of copies", 0, 8, unit), copies * columns, "biases of experts")


def fold_factors(t: Modules, moe: MoE, inputs: int, columns: int, parts: int) -> list[Tracked]:
    """The two factors of the experts' adapters in the type of the experts; of gate and up together the rank is
    twice as large."""
    adapters = t.settings.adapters
    assert adapters is not None
    label, rank = "adapters of experts in 16 bits", moe.n_experts * adapters.rank * parts
    sizes = (rank * columns, rank * inputs)
    weights = [t.weight(size, adapters.width, trained=True) for size in sizes]
    return [t.cast(weight, t.settings.expert_width, label) for weight in weights]


def folded(t: Modules, factors: list[Tracked], size: int) -> Tracked:
    """torch.baddbmm(W, B, A): as large as all experts."""
    out = t.new("experts with their adapters", size, t.settings.expert_width, CountedBy.ONCE)
    return t.record(out, factors, t.gradients_of_all(*factors), [factor.storage for factor in factors])


def expert_matrices(t: Modules, size: int, factors: list[Tracked] | None) -> Tracked:
    """The stack of the experts' matrices, with their adapters folded in."""
    if factors is None:
        return t.parameter(size, t.settings.expert_width)
    return folded(t, factors, size)


@scoped
def grouped(t: Modules, x: Tracked, matrices: Tracked, columns: int, name: Name, bias: Tracked | None) -> Tracked:
    """torch.nn.functional.grouped_mm, which autocast leaves alone: each copy of a token by its expert's matrix."""
    out = t.without_autocast(t.cast(x, matrices.width, "inputs of experts"), matrices, columns, name, x.unit)
    return out if bias is None else t.add_in_place(out, bias)
