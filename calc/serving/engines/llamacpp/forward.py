"""The graph of the largest pass of a model, in the order that llama.cpp builds it.

Source: llama-graph.cpp (build_inp_embd), src/models/*.cpp; llama.cpp 0c1e57098.
"""

from collections.abc import Hashable, Sequence

from calc.model.architecture import Architecture
from calc.model.attention import GQA
from calc.model.block import Block
from calc.model.feedforward import MoE
from calc.model.linear_attention import GatedDeltaNet
from calc.model.mixers import Mixer
from calc.model.mla import LatentAttention
from calc.model.recurrent import Mamba, Mamba2, ShortConv
from calc.serving.engines.llamacpp.attention_graph import grouped_attention, latent_attention
from calc.serving.engines.llamacpp.building import Building
from calc.serving.engines.llamacpp.context import ContextSizes
from calc.serving.engines.llamacpp.experts_graph import dense, mixture, routed
from calc.serving.engines.llamacpp.file import ModelFile
from calc.serving.engines.llamacpp.graph import Graph, GraphNode, concat, get_rows, like, matmul, view
from calc.serving.engines.llamacpp.habits import (
    CAPPED_LOGITS,
    DEEPSTACK,
    NORM_ON_OUTPUT,
    PARALLEL,
    RESIDUAL_LAST,
    ROTATED_BUT_FOURTH,
    ROWS_AFTER_NORM,
    ROWS_BEFORE_NORM,
    SCALED_EMBEDDING,
    SCALED_LOGITS,
    SINGLE_MIXERS,
    STATE_FIRST,
)
from calc.serving.engines.llamacpp.placement import HOST, Placement
from calc.serving.engines.llamacpp.recurrent_graph import delta_net, mamba, mamba2, short_conv

REPEATS, REPEATS_OF_SEVERAL, LONGEST_PERIOD = 3, 6, 12
"""Equal stretches of layers after which no buffer grows any more, on one device and on several."""


def forward(file: ModelFile, placement: Placement, context: ContextSizes, layers: Sequence[int] | None = None) -> Graph:
    """Embedding, layers, output; of all layers, or of some that stand for them."""
    b = Building(file, placement, context)
    tokens = b.input("tokens", "i32", context.tokens)
    deep = stacked(b.model)
    vectors = b.input("embeddings given", "f32", b.model.hidden * (1 + deep), context.tokens)
    state = get_rows(b.outer("token_embd.weight", HOST), tokens, name="embeddings")
    if deep:
        state = GraphNode("pad", "f32", vectors.ne, (state,), name="embeddings")
    b.graph.expand(state, vectors)
    if deep:
        state = view(state, (b.model.hidden, context.tokens), (state.nb[1],))
    given = state
    if "token_embd_norm.weight" in file.outside:
        state = like(b.bare_norm(state, mean=True), "mul", b.outer("token_embd_norm.weight", HOST), name="embeddings")
        state = like(state, "add", b.outer("token_embd_norm.bias", HOST), name="embeddings")
    if b.kind in SCALED_EMBEDDING or b.model.details.scaled_embedding:
        state = like(state, "scale", name="embeddings")
    if "position_embd.weight" in file.outside:
        places = get_rows(b.outer("position_embd.weight", HOST), b.positions(), name="places")
        state = like(state, "add", places, name="embeddings")
    blocks = {layer: block for block in b.model.all_blocks for layer in block.runs_in}
    for layer in range(b.model.num_layers) if layers is None else layers:
        b.layer = layer
        state = layer_of(b, blocks[layer], state, last=layer == b.model.num_layers - 1)
        if layer < deep:
            state = like(state, "add", view(given, given.ne[:2], given.nb[1:2]), name="state")
    b.graph.expand(output(b, state))
    return b.graph


def stacked(model: Architecture) -> int:
    """Layers behind which more of what the vision encoder sees is added."""
    deep = model.vision.deepstack if model.vision is not None else 0
    return deep if model.gguf.architecture in DEEPSTACK else 0


def prediction(file: ModelFile, placement: Placement, context: ContextSizes) -> Graph:
    """The layer for multi-token prediction: a token's embedding and the model's state of it become a state, which goes
    through a layer and the head (`graph_mtp` of a family)."""
    b = Building(file, placement, context)
    (module,) = b.model.prediction
    (b.layer,) = module.block.layers
    tokens = b.input("tokens", "i32", context.tokens)
    own = b.has("nextn.embed_tokens.weight")
    table = b.weight("nextn.embed_tokens.weight") if own else b.outer("token_embd.weight", HOST)
    embedded = b.norm(get_rows(table, tokens, name="embeddings"), "nextn.enorm")
    known = b.norm(b.input("state of the model", "f32", b.model.hidden, context.tokens), "nextn.hnorm")
    state = b.project(concat(embedded, known, 0), "nextn.eh_proj", "state")
    state = layer_of(b, module.block, state, last=False)
    if b.has("nextn.shared_head_norm.weight"):
        state = b.norm(state, "nextn.shared_head_norm")
    else:
        state = like(b.bare_norm(state), "mul", b.outer("output_norm.weight", placement.output), name="last norm")
    state.is_output = True
    head = b.weight("nextn.shared_head_head.weight") if b.has("nextn.shared_head_head.weight") else head_of(b)
    logits = matmul(head, picked(b, state), name="logits")
    logits.is_output = True
    b.graph.expand(logits)
    return b.graph


def layer_of(b: Building, block: Block, state: GraphNode, *, last: bool) -> GraphNode:
    """One layer on the state of all tokens; the last goes on with those alone whose logits are wanted."""
    narrow = last and b.kind not in ROWS_AFTER_NORM | ROWS_BEFORE_NORM

    def wanted(*nodes: GraphNode) -> list[GraphNode]:
        return [picked(b, node) for node in nodes] if narrow else list(nodes)

    if b.kind in SINGLE_MIXERS:
        normed = b.layer_norm(state, "attn_norm", block)
        if b.kind.startswith("qwen35"):
            b.graph.expand(normed)
        made = mixed(b, block, normed) if block.mixers else fed(b, block, normed)
        made, state = wanted(made, state)
        return like(made, "add", state, name="state")
    if b.kind in NORM_ON_OUTPUT and not b.has("attn_norm.weight"):
        normed = state
    else:
        normed = b.layer_norm(state, "attn_norm", block)
    if b.kind.startswith("qwen35"):
        b.graph.expand(normed)
    if b.kind in PARALLEL:
        return beside(b, block, state, normed, last=narrow)
    made = mixed(b, block, normed)
    if len(block.mixers) > 1:
        state = like(made, "add", state, name="state")
        made, state = wanted(made, state)
    else:
        made, state = wanted(made, state)
        if b.model.details.scaled_residual:
            made = like(made, "scale", name="attention")
        if b.kind in NORM_ON_OUTPUT:
            made = b.norm(made, "post_attention_norm")
        first, second = (state, made) if b.kind in STATE_FIRST else (made, state)
        state = like(first, "add", second, name="state")
    out = fed_after_norm(b, block, state)
    if b.kind in NORM_ON_OUTPUT:
        out = b.norm(out, "post_ffw_norm")
    if b.model.details.scaled_residual:
        out = like(out, "scale", name="feed-forward")
    first, second = (state, out) if b.kind in STATE_FIRST | {"phi3"} else (out, state)
    state = like(first, "add", second, name="state")
    return like(state, "mul", b.weight("layer_output_scale.weight")) if b.has("layer_output_scale.weight") else state


def beside(b: Building, block: Block, state: GraphNode, normed: GraphNode, *, last: bool) -> GraphNode:
    """Attention and feed-forward of the same state."""
    made = mixed(b, block, normed)
    if b.kind in RESIDUAL_LAST and b.has("ffn_norm.weight"):
        normed = b.norm(state, "ffn_norm", b.norm_kind(block))
    if last:
        made, state = picked(b, made), picked(b, state)
    if b.has("ffn_norm.weight") and b.kind not in RESIDUAL_LAST:
        out = fed(b, block, b.norm(state, "ffn_norm", b.norm_kind(block)))
    else:
        out = fed(b, block, picked(b, normed) if last else normed)
    if b.kind in RESIDUAL_LAST:
        return like(like(out, "add", made), "add", state, name="state")
    if b.kind == "phi2":
        return like(like(made, "add", out), "add", state, name="state")
    return like(like(out, "add", state), "add", made, name="state")


def picked(b: Building, node: GraphNode) -> GraphNode:
    """The rows of the tokens whose logits are wanted."""
    return get_rows(node, b.input("wanted rows", "i32", b.context.outputs), name="wanted rows")


def mixed(b: Building, block: Block, x: GraphNode) -> GraphNode:
    """What the mixers of a layer make of it; two are added up."""
    if len(block.mixers) == 1:
        return through_mixer(b, block.mixers[0], x)
    attention = next(mixer for mixer in block.mixers if isinstance(mixer, GQA))
    recurrent = next(mixer for mixer in block.mixers if not isinstance(mixer, GQA))
    made = through_mixer(b, attention, x)
    again = b.layer_norm(x.srcs[0].srcs[0], "attn_norm", block)
    return like(made, "add", through_mixer(b, recurrent, again), name="attention and state space")


def through_mixer(b: Building, mixer: Mixer, x: GraphNode) -> GraphNode:
    match mixer:
        case GQA():
            return grouped_attention(b, mixer, x)
        case LatentAttention():
            return latent_attention(b, mixer, x)
        case Mamba():
            return mamba(b, mixer, x)
        case Mamba2():
            return mamba2(b, mixer, x)
        case GatedDeltaNet():
            return delta_net(b, mixer, x)
        case ShortConv():
            return short_conv(b, mixer, x)
        case _:
            raise NotImplementedError(mixer.kind)


def unknown_mixers(model: Architecture) -> str | None:
    """A kind of layer whose graph is not built here; None: all are."""
    known = (GQA, LatentAttention, Mamba, Mamba2, GatedDeltaNet, ShortConv)
    single = model.gguf.architecture in SINGLE_MIXERS
    for block in model.all_blocks:
        if not single and (not block.mixers or block.ffn is None):
            return "layers without attention or feed-forward"
        for mixer in block.mixers:
            odd = isinstance(mixer, GQA) and (mixer.gate != "none" or mixer.cross or mixer.indexer is not None)
            odd = odd or (isinstance(mixer, GQA) and not mixer.own_keys) or getattr(mixer, "indexer", None) is not None
            if odd or not isinstance(mixer, known):
                return mixer.kind
    return None


def fed_after_norm(b: Building, block: Block, state: GraphNode) -> GraphNode:
    """The feed-forward of the normed state, by what norm the file has."""
    if isinstance(block.ffn, MoE) and block.ffn.beside is not None:
        return dense_and_experts(b, block.ffn, state)
    if b.kind in ("olmo2", "exaone4"):
        return fed(b, block, state)
    name = "ffn_norm" if b.has("ffn_norm.weight") else "post_attention_norm"
    return fed(b, block, b.layer_norm(state, name, block))


def fed(b: Building, block: Block, x: GraphNode) -> GraphNode:
    if block.ffn is None:
        return x
    return mixture(b, block.ffn, x) if isinstance(block.ffn, MoE) else dense(b, block.ffn, x)


def dense_and_experts(b: Building, moe: MoE, state: GraphNode) -> GraphNode:
    """A dense feed-forward and experts, each with norms of its own (Gemma 4)."""
    if moe.beside is None:
        raise NotImplementedError
    out = b.norm(dense(b, moe.beside, b.norm(state, "ffn_norm")), "post_ffw_norm_1")
    normed = b.norm(state, "pre_ffw_norm_2")
    scaled = like(like(b.bare_norm(state), "scale"), "mul", b.weight("ffn_gate_inp.scale"))
    logits = matmul(b.weight("ffn_gate_inp.weight"), scaled, name="router")
    experts = b.norm(routed(b, moe, normed, state, logits), "post_ffw_norm_2")
    return like(out, "add", experts, name="feed-forward")


def output(b: Building, state: GraphNode) -> GraphNode:
    """The last norm and the head."""
    device = b.placement.output
    if b.kind in ROWS_BEFORE_NORM:
        state.is_output = True
        state = picked(b, state)
    state = b.bare_norm(state, mean=b.model.final_norm == "layer" or b.kind in ("command-r", "cohere2"))
    if "output_norm.weight" in b.file.outside:
        state = like(state, "mul", b.outer("output_norm.weight", device), name="last norm")
        if "output_norm.bias" in b.file.outside:
            state = like(state, "add", b.outer("output_norm.bias", device), name="last norm")
    state.is_output = True
    if b.kind in ROWS_AFTER_NORM:
        state = picked(b, state)
        state.is_output = True
    logits = matmul(head_of(b), state, name="logits")
    if "output.bias" in b.file.outside:
        logits = like(logits, "add", b.outer("output.bias", device), name="logits")
    if b.kind in SCALED_LOGITS:
        logits = like(logits, "scale", name="logits")
    if b.kind in CAPPED_LOGITS:
        for op in ("scale", "tanh", "scale"):
            logits = like(logits, op, name="logits")
    logits.is_output = True
    return logits


def head_of(b: Building) -> GraphNode:
    name = "output.weight" if "output.weight" in b.file.outside else "token_embd.weight"
    return b.outer(name, b.placement.output)


def representative(file: ModelFile, placement: Placement, repeats: int | None = None) -> list[int]:
    """Layers that stand for all: of those that repeat one after the other `repeats`, or so many that the buffers have
    grown to their size."""
    blocks = {layer: i for i, block in enumerate(file.architecture.all_blocks) for layer in block.runs_in}
    deep = stacked(file.architecture)
    period = 4 if file.architecture.gguf.architecture in ROTATED_BUT_FOURTH else 1

    def kind(layer: int) -> Hashable:
        weights = file.layers[layer].items()
        on_host = [(name, w.type) for name, w in weights if placement.of_weight(name, layer) == HOST]
        alike = blocks[layer], placement.layers[layer], layer % period == period - 1, layer < deep
        return *alike, tuple(on_host)

    kinds = [kind(layer) for layer in range(file.architecture.num_layers)]
    most = repeats or (REPEATS if placement.devices < 2 else REPEATS_OF_SEVERAL)
    kept: list[int] = []
    at = 0
    while at < len(kinds) - 1:
        period, times = longest_repetition(kinds[:-1], at)
        kept += range(at, at + period * min(times, most))
        at += period * times
    return [*kept, len(kinds) - 1]


def longest_repetition(kinds: Sequence[Hashable], at: int) -> tuple[int, int]:
    """Length and number of the equal stretches that follow one another from a place on."""
    best = 1, 1
    for period in range(1, LONGEST_PERIOD + 1):
        times = 1
        while kinds[at + (times - 1) * period : at + times * period] == kinds[at + times * period :][:period]:
            times += 1
        if period * times > best[0] * best[1] and times > 1:
            best = period, times
    return best
