"""Layouts that an engine accepts: rules of vLLM 0.33 and SGLang 0.5.23, each refusal a sentence with the nearest that
is allowed."""

from collections.abc import Iterator

from calc.errors import ConfigError, Frozen, Message
from calc.formats import Precision
from calc.hardware.parallel import Layout
from calc.model.architecture import Architecture
from calc.model.attention import GQA
from calc.model.feedforward import MLP, MoE
from calc.serving.engines.engine import Engine

TILE = 128
"""Columns that one scale of block fp8 stands for; a rank's share of a feed-forward must be whole tiles."""


class Refusal(Frozen):
    """Why an engine does not accept a layout, and what is nearest to it."""

    message: Message
    field: str
    nearest: tuple[int, ...] = ()

    def error(self) -> ConfigError:
        return ConfigError(self.message, self.field, self.nearest)


def refusal(
    architecture: Architecture, engine: Engine, precision: Precision, layout: Layout, node: int = 8
) -> Refusal | None:
    """Why an engine does not accept a layout; None where it does."""
    if layout.tp > node:
        return Refusal(
            message=Message(
                "Tensor parallelism over {tp:,} GPUs leaves the node, which has {node:,}: use pipeline stages.",
                tp=layout.tp,
                node=node,
            ),
            field="tp",
            nearest=(node,),
        )
    if (message := divided(architecture, engine, precision, layout)) is not None:
        return Refusal(message=message, field="tp", nearest=nearest(architecture, engine, precision, layout, node))
    if layout.pp > architecture.num_layers:
        return Refusal(
            message=Message(
                "{pp:,} pipeline stages are more than the {layers:,} layers.",
                pp=layout.pp,
                layers=architecture.num_layers,
            ),
            field="pp",
            nearest=(architecture.num_layers,),
        )
    return experts(architecture, engine, layout)


def divided(architecture: Architecture, engine: Engine, precision: Precision, layout: Layout) -> Message | None:
    """Why tensor parallelism can't divide the model so."""
    rules = (heads, kv_heads, columns, tiles, vocabulary)
    messages = (rule(architecture, engine, precision, layout) for rule in rules)
    return next((message for message in messages if message is not None), None)


def nearest(
    architecture: Architecture, engine: Engine, precision: Precision, layout: Layout, node: int
) -> tuple[int, ...]:
    """The tensor-parallel degrees around the one asked for that are allowed."""

    def allowed(tp: int) -> bool:
        other = layout.model_copy(update={"tp": tp, "ep": tp * layout.dp if layout.ep > 1 else 1})
        return divided(architecture, engine, precision, other) is None

    degrees = [tp for tp in range(1, node + 1) if tp != layout.tp and allowed(tp)]
    below, above = [tp for tp in degrees if tp < layout.tp], [tp for tp in degrees if tp > layout.tp]
    return (*below[-1:], *above[:1])


def heads(architecture: Architecture, engine: Engine, precision: Precision, layout: Layout) -> Message | None:
    """Query heads are divided (vLLM `config/model.py`, `verify_with_parallel_config`)."""
    for block in architecture.all_blocks:
        for mixer in block.mixers:
            count = getattr(mixer, "n_q", None)
            if count is not None and count % layout.tp:
                return Message("tp {tp:,} does not divide the {n:,} attention heads.", tp=layout.tp, n=count)
            if count is None and not mixer.divides(layout.tp):
                return Message("tp {tp:,} does not divide the heads of the recurrent layers.", tp=layout.tp)
    return None


def kv_heads(architecture: Architecture, engine: Engine, precision: Precision, layout: Layout) -> Message | None:
    """KV heads are divided, or each is held by several ranks (vLLM `linear.py`, QKVParallelLinear)."""
    for block in architecture.all_blocks:
        for mixer in block.mixers:
            if isinstance(mixer, GQA) and mixer.n_kv % layout.tp and layout.tp % mixer.n_kv:
                return Message(
                    "tp {tp:,} neither divides the {n:,} KV heads nor is a multiple of them.",
                    tp=layout.tp,
                    n=mixer.n_kv,
                )
    return None


def widths(architecture: Architecture, layout: Layout) -> Iterator[tuple[int, int]]:
    """Columns of each feed-forward, and over how many ranks they are cut."""
    slices = layout.tp * layout.dp // layout.ep
    for block in architecture.all_blocks:
        if isinstance(block.ffn, MLP):
            yield block.ffn.intermediate, layout.tp
        elif isinstance(block.ffn, MoE):
            yield block.ffn.expert.intermediate, slices
            for part in (block.ffn.shared, block.ffn.beside):
                if part is not None:
                    yield part.intermediate, layout.tp


def columns(architecture: Architecture, engine: Engine, precision: Precision, layout: Layout) -> Message | None:
    """Columns of the feed-forward are divided."""
    for wide, ranks in widths(architecture, layout):
        if wide % ranks:
            return Message("{n:,} columns of the feed-forward do not divide by {ranks:,}.", n=wide, ranks=ranks)
    return None


def tiles(architecture: Architecture, engine: Engine, precision: Precision, layout: Layout) -> Message | None:
    """With block fp8 each rank holds whole tiles (vLLM `fp8.py`, `create_weights`): Qwen3-235B's 1,536 columns fail at
    tp 8."""
    if precision.weights != "fp8":
        return None
    for wide, ranks in widths(architecture, layout):
        if ranks > 1 and wide % (ranks * TILE):
            return Message(
                "{n:,} columns over {ranks:,} GPUs are {each:g} each, not whole fp8 tiles of {tile:,}: "
                "spread experts (ep) or use pipeline stages.",
                n=wide,
                ranks=ranks,
                each=wide / ranks,
                tile=TILE,
            )
    return None


def vocabulary(architecture: Architecture, engine: Engine, precision: Precision, layout: Layout) -> Message | None:
    """The vocabulary is padded to 64 rows, which are then divided (vLLM `vocab_parallel_embedding.py`); SGLang pads it
    to 64 for each rank."""
    padded = -(-architecture.vocab // 64) * 64
    if engine.name == "vllm" and padded % layout.tp:
        return Message("The vocabulary, padded to {n:,} rows, does not divide by tp {tp:,}.", n=padded, tp=layout.tp)
    return None


def experts(architecture: Architecture, engine: Engine, layout: Layout) -> Refusal | None:
    """Copies of the attention share routed experts; SGLang spreads each expert over all ranks or none."""
    sparse = [block.ffn for block in architecture.blocks if isinstance(block.ffn, MoE)]
    ranks = layout.tp * layout.dp
    if layout.ep > 1 and not sparse:
        return Refusal(message=Message("This model has no routed experts for ep to spread."), field="ep", nearest=(1,))
    if layout.dp > 1 and layout.ep == 1:
        return Refusal(
            message=Message(
                "Copies of the attention share experts: dp {dp:,} takes ep {ranks:,}.", dp=layout.dp, ranks=ranks
            ),
            field="ep",
            nearest=(ranks,),
        )
    least = min((moe.n_experts for moe in sparse), default=1)
    if layout.ep > least or ranks % layout.ep or (engine.name == "sglang" and layout.ep not in (1, ranks)):
        allowed = [ep for ep in range(1, ranks + 1) if ranks % ep == 0 and ep <= least]
        allowed = [ep for ep in allowed if engine.name != "sglang" or ep in (1, ranks)]
        return Refusal(
            message=Message(
                "ep {ep:,} does not share {n:,} experts over {ranks:,} ranks.", ep=layout.ep, n=least, ranks=ranks
            ),
            field="ep",
            nearest=tuple(allowed[-2:]),
        )
    return None


def layouts(
    architecture: Architecture, engine: Engine, precision: Precision, most: int = 64, node: int = 8
) -> Iterator[Layout]:
    """What the engine accepts on up to `most` GPUs: tensor parallelism inside a node, pipeline stages over it and
    beyond; with routed experts, these whole on each rank, and copies of the attention."""
    degrees = [tp for tp in (1, 2, 4, 8, 16) if tp <= node]
    candidates = [Layout(tp=tp, pp=pp) for tp in degrees for pp in (1, 2, 3, 4, 6, 8, 16)]
    if any(isinstance(block.ffn, MoE) for block in architecture.blocks):
        candidates += [Layout(tp=tp, ep=tp) for tp in degrees if tp > 1]
        candidates += [
            Layout(tp=tp, dp=ranks // tp, ep=ranks) for ranks in (2, 4, 8, 16, 32, 64) for tp in (1, 2, 4) if tp < ranks
        ]
    for layout in candidates:
        if layout.gpus <= most and refusal(architecture, engine, precision, layout, node) is None:
            yield layout
