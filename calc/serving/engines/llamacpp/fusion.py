"""Operations that CUDA computes as one: what goes into them must stay until they are done.

Two patterns of experts are worth more memory to it: the router's choice, and the weighted sum of the experts' outputs.
Source: ggml-cuda.cu (ggml_backend_cuda_graph_optimize, ggml_cuda_topk_moe_fusion,
ggml_cuda_match_moe_weighted_reduction), topk-moe.cu (ggml_cuda_should_use_topk_moe); ggml 0.25.3.
"""

from collections.abc import Iterator, Mapping, Sequence

from calc.serving.engines.llamacpp.graph import VIEWS, GraphNode

MOST_WEIGHTED = 15
"""Experts of a token whose outputs are summed by one kernel."""
ODD_COUNTS = (288, 576)
"""Numbers of experts beside the powers of 2 up to 512 that the router's kernel is made for."""
Kept = tuple[list[GraphNode], GraphNode]
Sources = Mapping[int, tuple[GraphNode, ...]]


def kept_by_fusions(run: Sequence[GraphNode], sources: Sources, uses: Mapping[int, int]) -> Iterator[Kept]:
    """Tensors that must stay, and the operation until which."""
    index = 0
    while index < len(run):
        summed = weighted_sum(run, index, sources)
        if summed is not None:
            kept, length = summed
            yield kept, run[index + length - 1]
            index += length - 1
        chosen = router_choice(run, index, sources, uses)
        if chosen:
            last = min(index + chosen, len(run) - 1)
            inside = run[index:last]
            yield [one for node in inside for one in (node, *sources.get(id(node), node.srcs))], run[last]
            index += chosen - 1
        index += 1


def weighted_sum(run: Sequence[GraphNode], index: int, sources: Sources) -> tuple[list[GraphNode], int] | None:
    """Outputs of experts [h, K, T] times weights [1, K, T], once or twice, seen expert by expert and added up."""
    first = run[index]
    if first.op != "mul" or first.type != "f32":
        return None
    factors = first
    kept = broadcast(first, sources)
    if index + 1 < len(run) and run[index + 1].op == "mul":
        second = broadcast(run[index + 1], sources)
        if second is not None and second[0] is first and kept is not None:
            factors, kept = run[index + 1], [*kept, second[1]]
    if kept is None:
        return None
    experts, muls = factors.ne[1], 1 + (factors is not first)
    length = 2 * experts + muls - 1
    if not 2 <= experts <= MOST_WEIGHTED or index + length > len(run):
        return None
    body = run[index + muls : index + length]
    views = [node for node in body if node.op == "view" and node.root is factors]
    adds = [node for node in body if node.op == "add"]
    if len(views) != experts or len(adds) != experts - 1:
        return None
    return kept, length


def broadcast(node: GraphNode, sources: Sources) -> list[GraphNode] | None:
    """The outputs and the weights of a product, where it is one of these."""
    a, b = sources.get(id(node), node.srcs)[:2]
    for full, weights in ((a, b), (b, a)):
        same = full.ne == node.ne and full.contiguous and full.type == "f32"
        if same and weights.contiguous and weights.ne == (1, *node.ne[1:]) and weights.type == "f32":
            return [full, weights]
    return None


def router_choice(run: Sequence[GraphNode], index: int, sources: Sources, uses: Mapping[int, int]) -> int:
    """How many operations from here on choose the experts of each token by softmax or sigmoid; 0: none do."""
    start = run[index]
    if start.op not in ("soft_max", "sigmoid"):
        return 0
    at = index + 1

    def follows(op: str, source: GraphNode, place: int = 0) -> bool:
        if at >= len(run) or run[at].op != op:
            return False
        srcs = sources.get(id(run[at]), run[at].srcs)
        return len(srcs) > place and srcs[place] is source

    if not follows("reshape", start):
        return 0
    probabilities = run[at]
    at += 1
    ranked = start
    if follows("add", start):
        ranked = run[at]
        at += 1
    if not follows("argsort", ranked) or not kernel_counts(run[at].ne[0]):
        return 0
    at += 1
    if not follows("view", run[at - 1]):
        return 0
    ids = run[at]
    at += 1
    if not follows("get_rows", probabilities) or not follows("get_rows", ids, 1):
        return 0
    at += 1
    normed = at
    for op in ("reshape", "sum_rows", "clamp"):
        if not follows(op, run[at - 1]):
            break
        at += 1
    else:
        if follows("div", run[at - 3]) and follows("div", run[at - 1], 1):
            at += 1
            if follows("reshape", run[at - 1]):
                at += 1
                normed = at
    at = normed
    if follows("scale", run[at - 1]):
        at += 1
    inside = run[index:at]
    last = inside[-1]
    if any(node is not ids and node is not last and not within(node, inside, sources, uses) for node in inside):
        return 0
    return len(inside)


def within(node: GraphNode, inside: Sequence[GraphNode], sources: Sources, uses: Mapping[int, int]) -> bool:
    """Whether nothing else reads a tensor, nor what it is a view of."""
    readers = sum(one is node for other in inside for one in sources.get(id(other), other.srcs))
    if readers != uses.get(id(node), 0) or node.is_output:
        return False
    return node.op not in VIEWS or node.root is None or any(node.root is other for other in inside)


def kernel_counts(experts: int) -> bool:
    return experts in ODD_COUNTS or (experts <= 512 and experts & (experts - 1) == 0)
