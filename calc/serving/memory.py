"""Memory to serve, on one GPU: weights, KV cache, activations, overhead."""

from pydantic import Field

from calc.errors import ConfigError, Frozen
from calc.formats import CacheFormat, Precision
from calc.hardware.overhead import Overhead
from calc.hardware.parallel import Layout
from calc.hardware.shards import blocks_within, layer_kinds
from calc.model.architecture import Architecture
from calc.model.block import Block, PredictionModule
from calc.model.mla import LatentAttention
from calc.serving.activations import decode_bytes, layer_bytes, logits_bytes
from calc.serving.kv_cache import growth, reserved_bytes, state_bytes
from calc.serving.vllm import profile_bytes
from calc.serving.weights import stored, stored_bytes, tower_bytes
from calc.serving.workload import Engine, Speculative, Workload


class Memory(Frozen):
    """Bytes on one GPU, the fullest. `overhead` is the middle of its range; `total` counts that middle."""

    weights: int
    vision: int = Field(default=0, exclude_if=lambda size: size == 0)  # the image tower's weights, where it is loaded
    kv_cache: int
    activations: int
    overhead: int
    overhead_low: int
    overhead_high: int
    total: int

    @property
    def low(self) -> int:
        return self.total - self.overhead + self.overhead_low

    @property
    def high(self) -> int:
        return self.total - self.overhead + self.overhead_high

    @property
    def parts(self) -> dict[str, int]:
        """What fills it beside overhead, by the words of sentences."""
        return {"weights": self.weights + self.vision, "KV cache": self.kv_cache, "activations": self.activations}


class Stage:
    """One pipeline stage of one tensor-parallel rank: its weights, its layers, and how their cache grows."""

    def __init__(
        self, weights: int, vision: int, blocks: list[Block], kv: CacheFormat, *, first: bool, last: bool
    ) -> None:
        self.weights, self.vision, self.blocks, self.first, self.last = weights, vision, blocks, first, last
        self.growth, self.state = growth(blocks, kv), state_bytes(blocks)

    def cache(self, workload: Workload, in_flight: int) -> int:
        """Bytes that the engine holds while so many tokens pass."""
        return reserved_bytes(self.growth, self.state, workload, in_flight)


class Serving:
    """A model laid out on GPUs, ready to be weighed at any batch and context; its weights are weighed once."""

    def __init__(
        self,
        architecture: Architecture,
        precision: Precision,
        layout: Layout,
        overhead: Overhead,
        speculative: Speculative = "none",
        *,
        tower: bool = True,
    ) -> None:
        layout.check(architecture)
        check_cache(architecture, precision.kv)
        self.precision, self.layout, self.overhead, self.speculative = precision, layout, overhead, speculative
        self.architecture, self.tower, self.layouts = architecture, tower, dict[tuple[int, int], Serving]()
        vision = tower_bytes(architecture, layout) if tower else 0
        self.whole = with_draft(architecture, speculative)
        self.rank = layout.rank(self.whole)
        first, last, layers = weights_by_layer(self.whole, precision, layout)
        if speculative != "none":
            last += draft_bytes(self.whole, precision, layout)
        kinds = layer_kinds(architecture.num_layers, (block.runs_in for block in self.rank.all_blocks))
        alike: dict[tuple[object, ...], Stage] = {}
        self.stages = []  # those that weigh the same are one object
        for stage in layout.stages(architecture.num_layers):
            starts, ends = stage.start == 0, stage.stop == architecture.num_layers
            weights = sum(layers[stage.start : stage.stop])
            weights += first if starts else 0
            weights += last if ends else 0
            if architecture.tied and layout.pp > 1 and ends:
                weights += stored(architecture, precision, layout)[0].nbytes  # the head: its embedding, elsewhere
            key = weights, starts, ends, *sorted(kinds[stage.start : stage.stop])
            if key not in alike:
                blocks = blocks_within(self.rank, stage)
                if ends and speculative != "none":
                    blocks += [module.block for module in self.rank.prediction]
                held = weights, vision if starts else 0
                alike[key] = Stage(*held, blocks, precision.kv, first=starts, last=ends)
            self.stages.append(alike[key])

    def at(self, tp: int, pp: int) -> "Serving":
        """The same model on other ranks; laid out once for all GPUs that are asked about."""
        if (tp, pp) not in self.layouts:
            whole = self.architecture, self.precision, Layout(tp=tp, pp=pp), self.overhead, self.speculative
            self.layouts[tp, pp] = Serving(*whole, tower=self.tower)
        return self.layouts[tp, pp]

    def loaded(self, engine: Engine) -> list[int]:
        """Bytes that weights take on each stage once the engine has loaded them: with its tables and padding, and what
        the allocator adds."""
        drafts = self.speculative != "none"
        stages = stored_bytes(self.whole, self.precision, self.layout, engine, draft=drafts, tower=self.tower)
        return [parts.total for parts in stages]

    def memory(self, workload: Workload) -> Memory:
        """Bytes on the fullest GPU."""
        return max(self.by_stage(workload), key=lambda memory: memory.total)

    def by_stage(self, workload: Workload) -> list[Memory]:
        """Bytes on each GPU of every stage, of the data-parallel copy with the most sequences."""
        share = workload.model_copy(update={"batch": -(-workload.batch // self.layout.dp)})
        weighed = {stage: self.stage_memory(stage, share) for stage in dict.fromkeys(self.stages)}
        return [weighed[stage] for stage in self.stages]

    def stage_memory(self, stage: Stage, workload: Workload) -> Memory:
        """Bytes on each GPU of a stage, at its fullest moment."""
        cache, activations = max(self.moments(stage, workload), key=sum)
        held = stage.weights + stage.vision + cache + activations
        low, high = self.overhead.bounds(workload.engine, self.layout.gpus, held)
        return Memory(
            weights=stage.weights,
            vision=stage.vision,
            kv_cache=cache,
            activations=activations,
            overhead=(low + high) // 2,
            overhead_low=low,
            overhead_high=high,
            total=held + (low + high) // 2,
        )

    def moments(self, stage: Stage, workload: Workload) -> list[tuple[int, int]]:
        """Bytes of cache and of activations when they may be most. vLLM sets both aside from the start; transformers
        holds the prompts' cache while it passes them, and the whole context's for the last token. Its logits return to
        the first stage; before 4.46 each layer has tables of cosines and sines of its own."""
        step, width = workload.step_tokens, self.precision.activation_bytes
        if workload.engine == "vllm":
            seqs, vocab = workload.max_num_seqs or workload.batch, self.whole.vocab if stage.last else 0
            profile = profile_bytes(stage.blocks, self.rank.hidden, vocab, tokens=step, seqs=seqs, width=width)
            return [(stage.cache(workload, step), profile)]
        prompt = workload.model_copy(update={"context": workload.prompt, "generated": 0})
        logits = logits_bytes(self.rank, workload, self.precision) if stage.last or stage.first else 0
        passing = max([logits, *(layer_bytes(b, self.rank, workload, self.precision) for b in stage.blocks)])
        found = [(stage.cache(prompt, step), passing)]
        if workload.generated:
            decoding = decode_bytes(stage.blocks, self.rank, workload, self.precision, stage.last)
            found.append((stage.cache(workload, workload.batch), decoding))
        tables = sum(len(block.layers) for block in stage.blocks) if workload.older(4, 46) else 0
        tables *= 4 * sum(rows * width for rows, width in self.rank.rotary)
        return [(cache, working + tables) for cache, working in found]


def check_cache(architecture: Architecture, kv: CacheFormat) -> None:
    """Raise ConfigError where the model has nothing that the format is for."""
    mixers = [mixer for block in architecture.blocks for mixer in block.mixers]
    if kv == "fp8_ds_mla" and not any(isinstance(mixer, LatentAttention) for mixer in mixers):
        raise ConfigError(
            "fp8_ds_mla stores the latent of MLA, which this model does not have; fp8 does.", "kv", ["fp8"]
        )


def with_draft(architecture: Architecture, speculative: Speculative) -> Architecture:
    """The model with the draft layer that is to be loaded. EAGLE's is one more like the last, behind a projection of
    [state; embedding]."""
    if speculative == "mtp" and not architecture.prediction:
        raise ConfigError(
            "This model has no multi-token-prediction layer; eagle adds one of its layers.", "speculative"
        )
    if speculative != "eagle":
        return architecture
    after = architecture.num_layers
    (last,) = (block for block in architecture.blocks if after - 1 in block.layers)
    block = last.model_copy(update={"layers": (after,), "places": ()})
    return architecture.model_copy(update={"prediction": (PredictionModule(block=block, norms=(), projection="fc"),)})


def draft_bytes(architecture: Architecture, precision: Precision, layout: Layout) -> int:
    """Bytes of the layers of multi-token prediction on one rank."""
    pieces = (
        piece for piece in stored(architecture, precision, layout) if piece.tensor.apart == "multi_token_prediction"
    )
    return sum(piece.nbytes * piece.tensor.count for piece in pieces)


def weights_by_layer(
    architecture: Architecture, precision: Precision, layout: Layout | None = None
) -> tuple[int, int, list[int]]:
    """Bytes of one rank: what stands before the first layer, after the last, and in each layer; scales
    included."""
    first, last, layers = 0, 0, [0] * architecture.num_layers
    for piece in stored(architecture, precision, layout):
        tensor, one = piece.tensor, piece.nbytes
        if tensor.apart is not None:
            continue
        if tensor.layers:
            each = one * piece.a_layer
            for i in tensor.layers:
                layers[i] += each
        elif tensor.component == "embedding":
            first += one
        else:
            last += one
    return first, last, layers
