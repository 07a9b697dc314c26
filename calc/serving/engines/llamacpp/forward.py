"""A micro-batch through the layers: embeddings, mixers, feed-forwards and experts, logits.

Source: llama-graph.cpp (build_inp_embd, build_ffn, build_moe_ffn), src/models/*.cpp, and for what CUDA computes as one
ggml-cuda.cu (ggml_cuda_topk_moe_fusion, ggml_cuda_match_moe_weighted_reduction); llama.cpp 0c1e57098.
"""

from collections.abc import Hashable, Sequence
from itertools import chain, groupby

from calc.budget import spend
from calc.formats.gguf_file import ModelFile
from calc.model.architecture import Architecture
from calc.model.block import Block
from calc.model.feedforward import MLP, MoE
from calc.serving.engines.llamacpp.context import ContextSizes
from calc.serving.engines.llamacpp.micro_batch import MicroBatch, PassTensor
from calc.serving.engines.llamacpp.mixing import graph_of, mixed
from calc.serving.engines.llamacpp.placement import HOST, Placement

REPEATS, REPEATS_OF_SEVERAL, LONGEST_PERIOD = 3, 6, 12
"""Equal stretches of layers after which no buffer grows any more, on one device and on several."""
MOST_WEIGHTED = 15
"""Experts of a token whose outputs one kernel of CUDA adds up."""
# What the graph of a family does that its tensors do not tell, by `general.architecture`
PARALLEL = frozenset({"cohere2", "command-r", "falcon", "gptj", "gptneox", "phi2"})
"""Attention and feed-forward read the same state."""
STATE_FIRST = frozenset({"jamba", "lfm2", "lfm2moe"})
"""The state is the first of the two that are added."""
STATE_BEFORE_FED = STATE_FIRST | {"phi3"}
"""The state is the first of the two that are added behind the feed-forward."""
SOFTMAX_OF_CHOSEN = ROWS_BEFORE_NORM = frozenset({"gpt-oss"})
ROWS_AFTER_NORM = frozenset({"gemma4", "nemotron_h", "nemotron_h_moe", "qwen35", "qwen35moe"})
"""The tokens whose logits are wanted are picked before or behind the last norm; elsewhere within the last layer."""
SINGLE_MIXERS = frozenset({"nemotron_h", "nemotron_h_moe", "mamba", "mamba2"})
"""Layers of a norm and one thing that it reads."""


def forward(file: ModelFile, placement: Placement, context: ContextSizes, *, cuda: bool) -> MicroBatch:
    """Embedding, some layers, which stand for all, and output."""
    b, model = MicroBatch(file, placement, context, cuda=cuda), file.architecture
    whole, deep = model.hidden * context.tokens, stacked(model)
    tokens = b.input("tokens", 4 * context.tokens)
    b.input("embeddings given", 4 * whole * (1 + deep))
    state = given = b.add("embeddings", whole, tokens, on=HOST)
    if deep:
        given = b.add("embeddings", whole * (1 + deep), state)
        state = b.view(given, whole)
    b.expand(state)
    if "token_embd_norm.weight" in file.outside:
        state = b.same("embeddings", b.same("norm", state, over=0), by="token_embd_norm.weight")
    if "position_embd.weight" in file.outside:
        places = b.add("places", whole, b.input("positions", 4 * context.tokens), on=HOST)
        state = b.summed(state, places, "embeddings")
    blocks = {layer: block for block in model.all_blocks for layer in block.runs_in}
    for b.layer in file.once(placement, lambda: representative(file, placement)):
        state = layer_of(b, blocks[b.layer], state, last=b.layer == model.num_layers - 1)
        if b.layer < deep:
            state = b.same("state", state, b.view(given, whole))
    if b.kind in ROWS_BEFORE_NORM:
        state.stays = True
        (state,) = b.wanted(state)
    mean = model.final_norm == "layer" or b.kind in PARALLEL
    state = b.same("last norm", state, over=not mean)
    if "output_norm.weight" in file.outside:
        state = b.same("last norm", state, by="output_norm.weight")
    logits(b, state, after_norm=b.kind in ROWS_AFTER_NORM)
    return b


def stacked(model: Architecture) -> int:
    """Layers behind which more of what the vision encoder sees is added."""
    return model.vision.deepstack if model.vision is not None else 0


def prediction(file: ModelFile, placement: Placement, context: ContextSizes, *, cuda: bool) -> MicroBatch:
    """The layer for multi-token prediction, of a token's embedding and the model's state of it (`graph_mtp`)."""
    b = MicroBatch(file, placement, context, cuda=cuda)
    (module,) = b.model.prediction
    (b.layer,) = module.block.layers
    whole, tokens = b.model.hidden * context.tokens, b.input("tokens", 4 * context.tokens)
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
    logits(b, state, after_norm=True)
    return b


def logits(b: MicroBatch, state: PassTensor, *, after_norm: bool) -> None:
    """The head, of those tokens whose logits are wanted, which may be picked `after_norm`."""
    state.stays = True
    if after_norm:
        (state,) = b.wanted(state)
        state.stays = True
    if b.has("nextn.shared_head_head.weight"):
        made = b.project(state, "nextn.shared_head_head", "logits")
    else:
        head = "output.weight" if "output.weight" in b.file.outside else "token_embd.weight"
        made = b.add("logits", b.file.outside[head].ne[1] * b.rows, state, by=head)
    made.stays = True
    b.expand(made)


def layer_of(b: MicroBatch, block: Block, state: PassTensor, *, last: bool) -> PassTensor:
    """One layer; the last goes on with those tokens alone whose logits are wanted."""
    spend()
    if b.kind in PARALLEL:
        return parallel(b, block, state, last=last)
    after = b.has("post_ffw_norm.weight")  # what attention and feed-forward make is normed before it is added
    normed = state if after and not b.has("attn_norm.weight") else b.norm(state, "attn_norm")
    if b.kind.startswith("qwen35"):
        b.expand(normed)
    if len(block.mixers) > 1:  # attention and a state space that read the same state
        (attention,), (recurrent,) = block.attentions, block.recurrences
        made = mixed(b, attention, normed)
        made = b.summed(made, mixed(b, recurrent, b.norm(state, "attn_norm")), "attention and state space")
    else:
        made = mixed(b, block.mixers[0], normed) if block.mixers else fed(b, block, normed)
    if last and b.kind not in ROWS_AFTER_NORM | ROWS_BEFORE_NORM:
        made, state = b.wanted(made, state)
    if after:
        made = b.norm(made, "post_attention_norm")
    state = b.summed(state, made) if b.kind in STATE_FIRST else b.summed(made, state)
    if b.kind in SINGLE_MIXERS:
        return state
    out = fed_after_norm(b, block, state)
    if after:
        out = b.norm(out, "post_ffw_norm")
    state = b.summed(state, out) if b.kind in STATE_BEFORE_FED else b.summed(out, state)
    return b.same("state", state, by="layer_output_scale.weight") if b.has("layer_output_scale.weight") else state


def parallel(b: MicroBatch, block: Block, state: PassTensor, *, last: bool) -> PassTensor:
    """A layer whose attention and feed-forward read the same state; most project attention's result last."""
    normed = b.norm(state, "attn_norm")
    attention = mixed(b, block.mixers[0], normed)
    if b.has("ffn_norm.weight"):
        normed = b.norm(state, "ffn_norm")
    if last:
        attention, state, normed = b.wanted(attention, state, normed)
    out = fed(b, block, normed)
    return b.summed(b.summed(attention, out) if b.kind == "phi2" else b.summed(out, attention), state)


def fed_after_norm(b: MicroBatch, block: Block, state: PassTensor) -> PassTensor:
    """The feed-forward of the normed state, by what norm the file has; Gemma 4 has a dense one next to experts."""
    moe = block.moe
    if moe is not None and moe.parallel_mlp is not None:
        scaled = b.same("norm", b.same("norm", state), by="ffn_gate_inp.scale")
        made = routed(b, moe, scaled, b.norm(state, "pre_ffw_norm_2"))
        out = b.norm(dense(b, moe.parallel_mlp, b.norm(state, "ffn_norm")), "post_ffw_norm_1")
        return b.summed(out, b.norm(made, "post_ffw_norm_2"), "feed-forward")
    if b.has("ffn_norm.weight"):
        return fed(b, block, b.norm(state, "ffn_norm"))
    return fed(b, block, state if b.has("post_ffw_norm.weight") else b.norm(state, "post_attention_norm"))


def fed(b: MicroBatch, block: Block, x: PassTensor) -> PassTensor:
    if block.moe is not None:
        return experts(b, block.moe, x)
    return x if block.dense is None else dense(b, block.dense, x)


def dense(b: MicroBatch, mlp: MLP, x: PassTensor, suffix: str = "") -> PassTensor:
    """Gate, up, their product, down."""
    inner = mlp.intermediate * b.rows
    if b.has(f"ffn_gate{suffix}.weight"):
        gate = b.project(x, f"ffn_gate{suffix}", "gate")
        made = b.add("gate times up", inner, gate, b.project(x, f"ffn_up{suffix}", "up"))
    elif mlp.gated:  # both in one tensor
        made = b.add("gate times up", inner, b.project(x, f"ffn_up{suffix}", "up"))
    else:
        made = b.same("activated", b.project(x, f"ffn_up{suffix}", "up"))
    return b.project(made, f"ffn_down{suffix}", "down")


def experts(b: MicroBatch, moe: MoE, x: PassTensor) -> PassTensor:
    """Routed experts and shared ones."""
    made = routed(b, moe, x, x if moe.latent is None else b.project(x, "ffn_latent_down", "latent"))
    if moe.latent is not None:
        made = b.project(made, "ffn_latent_up", "latent")
    return made if moe.shared is None else b.summed(made, dense(b, moe.shared, x, "_shexp"), "experts")


def routed(b: MicroBatch, moe: MoE, router_input: PassTensor, x: PassTensor) -> PassTensor:
    """Each token through its experts, whose outputs are weighted and added up."""
    order, weights, fused = chosen(b, moe, router_input)
    used, width = moe.top_k * b.rows, x.nbytes // 4 // b.rows
    inner = used * moe.expert.intermediate

    def through(weight: str, name: str, elements: int, *reads: PassTensor) -> PassTensor:
        return b.biased(b.add(name, elements, *reads, order, by=f"{weight}.weight"), weight)

    if b.has("ffn_gate_up_exps.weight"):
        both = [through("ffn_gate_up_exps", "gate and up of experts", 2 * inner, x, *fused)]
    elif moe.expert.gated:
        both = [through("ffn_gate_exps", "gate of experts", inner, x, *fused)]
        both.append(through("ffn_up_exps", "up of experts", inner, x))
    else:
        both = [through("ffn_up_exps", "up of experts", inner, x, *fused)]
    made = b.add("gate times up of experts", inner, *both, over=not moe.expert.gated)
    out = through("ffn_down_exps", "down of experts", used * width, made)
    added = [out, weights]
    if b.has("ffn_down_exps.scale"):
        scales = b.add("scales of experts", moe.n_experts * b.rows, b.view(b.weight("ffn_down_exps.scale")))
        added.append(b.add("scales of experts", used, scales, order))
        out = b.same("scaled experts", out, added[-1])
    out = b.same("weighted experts", out, weights)
    total = b.add("experts", width * b.rows, out)
    b.write(None, total, out, *(added if b.on_cuda and 2 <= moe.top_k <= MOST_WEIGHTED else ()))
    return total


def chosen(b: MicroBatch, moe: MoE, x: PassTensor) -> tuple[PassTensor, PassTensor, Sequence[PassTensor]]:
    """The experts of each token by the router, what they weigh, and what CUDA's kernel that chooses keeps."""
    late = b.kind in SOFTMAX_OF_CHOSEN
    router = b.project(x, "ffn_gate_inp", "router")
    ranked = probabilities = router if late else b.same("probabilities of experts", router)
    if b.has("exp_probs_b.bias"):
        ranked = b.same("ranks of experts", probabilities, by="exp_probs_b.bias")
    order = b.same("order of experts", ranked, over=0)
    weights = b.add("weights of experts", moe.top_k * b.rows, probabilities, order)
    if late or b.model.details.normed_weights:
        weights = b.same("weights of experts", weights, over=0)
    b.expand(weights)
    fused = b.on_cuda and not late and b.model.details.expert_groups < 2
    return order, weights, (router, probabilities, ranked) if fused else ()


def unknown_mixers(model: Architecture) -> str | None:
    """A kind of layer whose steps are not known here; None: all are."""
    single = model.gguf.architecture in SINGLE_MIXERS
    for block in model.all_blocks:
        if not single and (not block.mixers or block.ffn is None):
            return "layers without attention or feed-forward"
        for mixer in block.mixers:
            if graph_of(mixer) is None:
                return mixer.kind
    return None


def representative(file: ModelFile, placement: Placement) -> tuple[int, ...]:
    """Layers that stand for all: of those that repeat one after the other, so many that no buffer grows any more; of
    devices between others, none that has the same layers as the one before it."""
    blocks = {layer: i for i, block in enumerate(file.architecture.all_blocks) for layer in block.runs_in}
    deep = stacked(file.architecture)

    def kind(layer: int) -> Hashable:
        weights = () if placement.all_on_devices else file.layers[layer].items()
        on_host = tuple((name, w.type) for name, w in weights if placement.of_weight(name, layer) == HOST)
        return blocks[layer], layer < deep, on_host

    def times(period: int) -> int:
        """How often the layers from `at` on follow one another."""
        ends = range(at + period, len(kinds), period)
        return next((i for i, end in enumerate(ends, 1) if kinds[end:][:period] != kinds[at:][:period]), len(ends) + 1)

    *kinds, last = [(placement.layers[layer], kind(layer)) for layer in range(file.architecture.num_layers)]
    most = REPEATS if placement.devices < 2 else REPEATS_OF_SEVERAL
    chosen, at = list[int](), 0
    while at < len(kinds):
        period = max(range(1, LONGEST_PERIOD + 1), key=lambda period: (times(period) > 1) * period * times(period))
        chosen += range(at, at + period * min(times(period), most))
        at += period * times(period)
    stretches = {device: list(layers) for device, layers in groupby(chosen, key=lambda layer: kinds[layer][0])}
    before = dict[int, list[Hashable]]()
    for device, layers in stretches.items():
        before[device] = [kinds[layer][1] for layer in layers]
        if device > 1 and device != last[0] and before[device] == before.get(device - 1):
            stretches[device] = []
    return *chain.from_iterable(stretches.values()), len(kinds)
