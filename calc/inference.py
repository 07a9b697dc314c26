"""Memory to serve, on one GPU: weights, KV cache, activations, overhead."""

from typing import Literal

from pydantic import Field, model_validator

from calc.activations import forward_bytes
from calc.architecture import Architecture, Block
from calc.cache import cache_bytes, growth, state_bytes
from calc.frozen import Frozen
from calc.layout import Layout
from calc.precision import Precision
from calc.workload import Engine, Workload

GIB = 2**30


class Range(Frozen):
    """From the least to the most that was measured."""

    low: float = Field(ge=0, le=1024, allow_inf_nan=False)
    high: float = Field(ge=0, le=1024, allow_inf_nan=False)

    @model_validator(mode="after")
    def _ordered(self) -> "Range":
        if self.low > self.high:
            raise ValueError(f"a range runs from low to high; {self.low:g} is above {self.high:g}")
        return self


class Overhead(Frozen):
    """What the formulas do not close, itemised: ranges as measured, in GiB a GPU; None: the usual range."""

    cuda_context: Range = Range(low=0.25, high=0.6)
    """vLLM start-up logs, "free / total" before loading: L4 0.23, A100-40 0.49, H100 0.53 to 0.60 GiB."""
    libraries: Range | None = None
    """cuBLAS and NCCL, "non-torch" in vLLM logs: one GPU 0.01 to 0.35; several 0.2 (PCIe) to 1.84 GiB (4 x H100)."""
    cuda_graphs: Range | None = None
    """vLLM logs: 0.04 to 0.7 GiB with small models, 0.5 to 2.4 with two sets of graphs; none when switched off."""
    fragmentation: Range = Range(low=0.4, high=2)
    """Percent of weights, cache and activations. The allocator rounds to 2 MiB: 57 MiB of 14.2 GiB measured; the high
    end is an assumption for what is freed and not reused."""

    def ranges(self, engine: Engine, gpus: int) -> dict["OverheadItem", Range]:
        """The range of each item: GiB, and percent for fragmentation."""
        several = Range(low=0.2, high=1.84) if gpus > 1 else Range(low=0.01, high=0.35)
        graphs = Range(low=0, high=2) if engine == "vllm" else Range(low=0, high=0)
        return {
            "cuda_context": self.cuda_context,
            "libraries": self.libraries or several,
            "cuda_graphs": self.cuda_graphs or graphs,
            "fragmentation": self.fragmentation,
        }

    def items(self, engine: Engine, gpus: int, held: int) -> dict["OverheadItem", tuple[int, int]]:
        """Bytes from low to high of each item, on a GPU that holds `held` bytes beside."""
        ranges = self.ranges(engine, gpus)
        unit = {name: held / 100 if name == "fragmentation" else GIB for name in ranges}
        return {name: (round(r.low * unit[name]), round(r.high * unit[name])) for name, r in ranges.items()}


OverheadItem = Literal["cuda_context", "libraries", "cuda_graphs", "fragmentation"]


class Memory(Frozen):
    """Bytes on one GPU, the fullest. `overhead` is the middle of its range; `total` counts that middle."""

    weights: int
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


class Stage:
    """One pipeline stage of one tensor-parallel rank: its weights, and how its cache grows."""

    def __init__(self, weights: int, blocks: list[Block]) -> None:
        self.weights, self.growth, self.state = weights, growth(blocks), state_bytes(blocks)


class Serving:
    """A model laid out on GPUs, ready to be weighed at any batch and context; its weights are weighed once."""

    def __init__(self, architecture: Architecture, precision: Precision, layout: Layout, overhead: Overhead) -> None:
        layout.check(architecture)
        self.precision, self.layout, self.overhead = precision, layout, overhead
        self.rank = architecture.rank(layout.tp)
        first, last, layers = weights_by_layer(self.rank, precision)
        self.stages = []
        for stage in layout.stages(architecture.num_layers):
            weights = sum(layers[stage.start : stage.stop])
            weights += first if stage.start == 0 else 0
            weights += last if stage.stop == architecture.num_layers else 0
            if architecture.tied and layout.pp > 1 and stage.stop == architecture.num_layers:
                weights += precision.tensor_bytes(self.rank.tensors()[0])  # the head is the embedding, on another GPU
            self.stages.append(Stage(weights, blocks_within(self.rank, stage)))

    def memory(self, workload: Workload) -> Memory:
        """Bytes on the fullest GPU."""
        activations = forward_bytes(self.rank, workload, self.precision)
        return max((self._stage(stage, activations, workload) for stage in self.stages), key=lambda m: m.total)

    def _stage(self, stage: Stage, activations: int, workload: Workload) -> Memory:
        cache = cache_bytes(stage.growth, stage.state, self.precision.kv, workload.batch, workload.context)
        held = stage.weights + cache + activations
        items = self.overhead.items(workload.engine, self.layout.gpus, held).values()
        low, high = sum(low for low, _ in items), sum(high for _, high in items)
        return Memory(
            weights=stage.weights,
            kv_cache=cache,
            activations=activations,
            overhead=(low + high) // 2,
            overhead_low=low,
            overhead_high=high,
            total=held + (low + high) // 2,
        )


def blocks_within(architecture: Architecture, stage: range) -> list[Block]:
    """The part of each block that runs in a stage."""
    found = []
    for block in (*architecture.blocks, *architecture.shared):
        where = tuple(i for i in block.places or block.layers if i in stage)
        if where:
            found.append(block.model_copy(update={"layers": where, "places": ()}))
    return found


def weights_by_layer(architecture: Architecture, precision: Precision) -> tuple[int, int, list[int]]:
    """Bytes of what stands before the first layer, after the last, and in each layer; scales included."""
    first, last, layers = 0, 0, [0] * architecture.num_layers
    for tensor in architecture.tensors():
        if tensor.apart is not None:
            continue
        one = precision.tensor_bytes(tensor)
        if tensor.layers:
            for i in tensor.layers:
                layers[i] += one * tensor.count // len(tensor.layers)
        elif tensor.component == "embedding":
            first += one
        else:
            last += one
    return first, last, layers
