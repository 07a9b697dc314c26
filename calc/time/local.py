"""A model in llama.cpp, or MLX on a Mac, on a reader's machine: its file, what goes where, how fast.

In llama.cpp a token goes through the layers one after the other, each computed where its weights lie: the time of a
step is the sum of what each device reads at its own bandwidth, and of the states that cross the bus. In a prompt the
first GPU computes what lies on the host too: weights are copied there once a pass (ggml-backend.cpp: op_offload, from
32 tokens on).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Literal

from calc.errors import Frozen
from calc.formats import Precision, WeightFormat
from calc.formats.gguf_file import model_file
from calc.formats.stored import stored_gguf
from calc.hardware.computer import Computer
from calc.hardware.engine_rules import runs as runs_on
from calc.hardware.gpu import GPU
from calc.hardware.overhead import Overhead
from calc.hardware.parallel import Layout
from calc.model.architecture import Architecture
from calc.serving.engines.llamacpp.engine import CUDA_CONTEXT, LlamaCpp
from calc.serving.engines.llamacpp.fit import MachineRoom, Offloading
from calc.serving.engines.llamacpp.options import LlamaCppOptions
from calc.serving.engines.llamacpp.placement import HOST, Placement
from calc.serving.engines.mlx.engine import MLX
from calc.serving.engines.rules import Question
from calc.serving.engines.sizes import DeviceBuffers
from calc.serving.memory import MOST_TOKENS, Serving
from calc.serving.verdict import max_context
from calc.serving.workload import Workload
from calc.time.efficiency import Conditions, row
from calc.time.estimate import End, Estimate
from calc.time.operations import Demand, Forward, decode, demand
from calc.time.origin import COMPUTED, Origin, origin
from calc.time.roofline import Machine, Timed, bus_gb_s, machine, timed
from calc.time.serving import Speed, chunked, halfway, speed_on, total_parts, windows_of
from calc.units import GIB, MIB

WhereRun = Literal["gpu", "experts", "layers", "host", "nowhere"]
"""All of it on GPUs; with experts, or with whole layers, on the host; all on the host."""
LADDER: tuple[WeightFormat, ...] = ("Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q3_K_M", "Q2_K")
"""Files that most repositories have, the best first."""
COMMON: tuple[WeightFormat, ...] = (
    *("bf16", "Q8_0", "Q6_K", "Q5_K_M", "Q5_K_S", "Q4_K_M", "Q4_K_S", "IQ4_XS", "Q3_K_L", "Q3_K_M"),
    *("IQ3_XXS", "Q2_K", "IQ2_XXS", "IQ1_M"),
)
"""Formats that people choose between."""
MLX_FOLDERS: tuple[WeightFormat, ...] = ("mlx-8bit", "mlx-6bit", "mlx-5bit", "mlx-4bit", "mlx-mixed_3_6", "mlx-3bit")
"""Formats of MLX that people choose between, most of which mlx-community publishes, the largest first."""
PROMPT = 2048
"""Tokens of the prompt whose speed is said, where it is not shorter."""
LEAST_SPEED = 4.0
"""Tokens a second below which nobody reads along."""
ENGINE = "llamacpp"
BUS = Conditions(ENGINE, None, 2, "pcie")
"""Bus from host to GPU."""


class LocalFile(Frozen):
    """One file of a model."""

    weights: WeightFormat
    bytes: int  # of its tensors
    bits_per_weight: float
    types: dict[str, float]  # share of the bytes in each type, the largest first


class LocalRun(Frozen):
    """One file on the machine. Without `options` there is no room for it."""

    file: LocalFile
    where: WhereRun
    options: LlamaCppOptions | None = None
    buffers: tuple[DeviceBuffers, ...] = ()
    tokens_per_s: Estimate | None = None
    prompt_tokens_per_s: Estimate | None = None
    longest: int | None = 0  # tokens of a sequence that this offload has room for; None: memory sets no limit
    origin: Origin | None = None  # of its speeds

    @property
    def on_gpus(self) -> int:
        return sum(b.total for b in self.buffers if b.device != "host")

    @property
    def on_host(self) -> int:
        return sum(b.total for b in self.buffers if b.device == "host")


class MLXRun(Frozen):
    """A model on a Mac as mlx-lm runs it in one format."""

    weights: WeightFormat
    bytes: int  # of its tensors
    bits_per_weight: float
    required: int  # with its cache, a pass and the middle of the overhead
    fits: bool
    tokens_per_s: Estimate
    prompt_tokens_per_s: Estimate
    longest: int | None  # tokens of a sequence; None: memory sets no limit


def mlx_runs(architecture: Architecture, computer: Computer, workload: Workload) -> list[MLXRun]:
    """A model on the first card in each format of MLX; none where that is no Mac, or mlx-lm does not read the model."""
    gpu = next(iter(computer.gpus), None)
    if gpu is None or not runs_on(gpu, MLX.support):
        return []
    precisions = [Precision(weights=weights) for weights in MLX_FOLDERS]
    read = [precision for precision in precisions if not any(MLX().refusals(Question(architecture, precision)))]
    shared = gpu.model_copy(update={"usable_mib": min(gpu.usable_bytes, computer.host_bytes) // MIB})
    return [mlx_run(architecture, precision, shared, workload) for precision in read]


def mlx_run(architecture: Architecture, precision: Precision, gpu: GPU, workload: Workload) -> MLXRun:
    serving = Serving.of(architecture, MLX(), precision, Layout(), Overhead())
    allocation, speed = serving.on(gpu, workload), speed_on(gpu, serving)
    pieces = serving.weighing.file
    nbytes = sum(piece.nbytes * piece.tensor.count for piece in pieces)
    batch, prompt = workload.batch, min(workload.prompt, PROMPT)
    return MLXRun(
        weights=precision.weights,
        bytes=nbytes,
        bits_per_weight=8 * nbytes / sum(piece.tensor.parameters for piece in pieces),
        required=allocation.memory.total,
        fits=allocation.surely_fits,
        tokens_per_s=Estimate.over(lambda end: batch / speed.step(batch, halfway(workload), end)),
        prompt_tokens_per_s=Estimate.over(lambda end: prompt / speed.prompt(1, prompt, end)),
        longest=longest_of(architecture, lambda most: max_context(allocation, most)),
    )


def longest_of(architecture: Architecture, search: Callable[[int], int | None]) -> int | None:
    """Tokens of the longest sequence of a model; None where neither memory nor the model sets a limit. `search` looks
    up to a number of tokens, and finds none where memory sets no limit below it."""
    most = architecture.max_positions
    return search(MOST_TOKENS) if most is None else most if (longest := search(most)) is None else longest


def supports(architecture: Architecture) -> bool:
    """Whether llama.cpp is known to run a model of this kind."""
    return not any(LlamaCpp().refusals(Question(architecture, Precision(weights="Q4_K_M"))))


def room(computer: Computer) -> MachineRoom:
    """Bytes for buffers, without the most of a CUDA context and the operating system."""
    overhead = int(CUDA_CONTEXT.high * GIB)
    rooms = tuple(max(0, gpu.usable_bytes - overhead) for gpu in computer.gpus)
    return MachineRoom(rooms, computer.host_bytes, computer.host_bytes if computer.is_unified else None)


def file_of(architecture: Architecture, weights: WeightFormat, *, imatrix: bool = False) -> LocalFile:
    """Sizes of a file; `imatrix`: made with an importance matrix."""
    read = model_file(architecture, Precision(weights=weights, imatrix=imatrix))
    tensors = [*read.outside.values(), *(tensor for layer in read.layers for tensor in layer.values())]
    total, types = sum(tensor.nbytes for tensor in tensors), dict[str, int]()
    for tensor in tensors:
        types[tensor.type] = types.get(tensor.type, 0) + tensor.nbytes
    elements = sum(tensor.elements for tensor in tensors)
    shares = {name: size / total for name, size in sorted(types.items(), key=lambda item: -item[1])}
    return LocalFile(weights=weights, bytes=total, bits_per_weight=8 * total / elements, types=shares)


def run(
    architecture: Architecture,
    precision: Precision,
    computer: Computer,
    workload: Workload,
    options: LlamaCppOptions,
    *,
    longest: bool = True,
) -> LocalRun:
    """A file on the machine, as much of it on GPUs as goes; `longest`: whether the longest sequences are sought too.
    Raises ConfigError where llama.cpp does not run the model."""
    LlamaCpp(options).check(Question(architecture, precision))
    file = file_of(architecture, precision.weights, imatrix=precision.imatrix)
    rooms, gpus = room(computer), computer.gpus
    if file.bytes > sum(rooms.gpus) + computer.host_bytes:
        return LocalRun(file=file, where="nowhere")
    offloading = Offloading(architecture, precision, options, rooms, workload.batch)
    flags = offloading.fit(workload.context)
    if flags is None:
        return LocalRun(file=file, where="nowhere")
    cache, lengths = offloading.started(flags), (workload.batch, workload.context)
    engine, place = LlamaCpp(flags), placement_kind(flags, bool(gpus))
    speed: Speed | OffloadSpeed
    if place == "gpu" and len({gpu.id for gpu in gpus}) == 1:
        # as Weigh has it: what is measured there has the lookup of tokens on the host in it
        speed = speed_on(gpus[0], Serving.of(architecture, engine, precision, Layout(pp=len(gpus)), Overhead()))
    else:
        speed = OffloadSpeed(architecture, precision, cache.model.placement, gpus, computer.host, engine.kernels)
    batch, prompt = workload.batch, min(workload.prompt, PROMPT)
    chunk = min(options.ubatch_size, options.batch_size)

    def unless_all(most: int) -> int | None:
        """Tokens of the longest sequences with these flags; None where `most` have room."""
        tokens = offloading.longest(engine.options, most, workload.context)
        return None if tokens >= most else tokens

    return LocalRun(
        file=file,
        where=place,
        options=flags,
        buffers=(*cache.buffers(*lengths), *cache.draft_buffers(*lengths)),
        tokens_per_s=Estimate.over(lambda end: batch / float(speed.step(batch, halfway(workload), end))),
        prompt_tokens_per_s=Estimate.over(lambda end: prompt / float(speed.prompt(1, prompt, end, chunk))),
        longest=longest_of(architecture, unless_all) if longest else 0,
        origin=origin(architecture, gpus[0], ENGINE) if place == "gpu" else COMPUTED,
    )


def placement_kind(options: LlamaCppOptions, has_gpus: bool) -> WhereRun:
    if not has_gpus or options.n_gpu_layers == 0:
        return "host"
    if options.n_gpu_layers is not None:
        return "layers"
    return "experts" if options.n_cpu_moe else "gpu"


def best_file(
    architecture: Architecture,
    computer: Computer,
    workload: Workload,
    options: LlamaCppOptions,
    kv: Precision,
    *,
    longest: bool = True,
) -> LocalRun:
    """The best file that GPUs hold whole; else the usual one that is fast enough, else what runs at all."""

    @cache
    def of(weights: WeightFormat, *, longest: bool = False) -> LocalRun:
        precision = kv.model_copy(update={"weights": weights})
        return run(architecture, precision, computer, workload, options, longest=longest)

    weights = best_weights(architecture, computer, of)
    if weights is None:
        return LocalRun(file=file_of(architecture, LADDER[-1]), where="nowhere")
    return of(weights, longest=True) if longest else of(weights)


def best_weights(
    architecture: Architecture, computer: Computer, of: Callable[[WeightFormat], LocalRun]
) -> WeightFormat | None:
    usual: WeightFormat | None = None
    for weights in LADDER:
        if computer.my_gpus and file_of(architecture, weights).bytes > sum(room(computer).gpus):
            continue
        if of(weights).where == "gpu":
            return weights
    for weights in LADDER[LADDER.index("Q4_K_M") :]:
        answer = of(weights)
        if answer.tokens_per_s is not None:
            usual = usual or weights
            if answer.tokens_per_s.expected >= LEAST_SPEED:
                return weights
    return usual


# How fast


@dataclass(frozen=True)
class LayerRun:
    """Layers one after the other on one device; of some, routed experts are elsewhere."""

    demand: Demand
    device: int
    experts: int


class OffloadSpeed:
    """A model on GPUs, which may be unequal, and a host."""

    def __init__(
        self,
        architecture: Architecture,
        precision: Precision,
        placement: Placement,
        gpus: Sequence[GPU],
        host: GPU,
        engine: str = ENGINE,
    ) -> None:
        """`engine` is the name under which its kernels are measured."""
        self.gpus, self.host, self.precision, self.engine = gpus, host, precision, engine
        states = partial(LlamaCpp().state_bytes, architecture)
        of = partial(demand, architecture, architecture, precision, Layout(), file=stored_gguf, states=states)
        self.runs = [LayerRun(of(layers), *where) for layers, where in runs(placement)]

    def on(self, device: int, end: End) -> Machine:
        return machine(self.device(device), self.engine, self.precision.weights, 1, end)

    def device(self, number: int) -> GPU:
        return self.host if number == HOST else self.gpus[number]

    def bus(self, end: End) -> float:
        """Bytes a second from the host to the first GPU."""
        if self.gpus[0].memory == "unified":
            return self.gpus[0].bandwidth_gb_s * 1e9
        return bus_gb_s(self.gpus[0], "pcie") * 1e9 * row("link", BUS).value.share(end)

    def step(self, batch: int, context: int, end: End) -> float:
        """Seconds of a step in which every sequence gets one more token."""
        forward = decode(batch, context)
        return float(sum(part.seconds for part in self.parts(forward, end, decodes=True)))

    def prompt(self, sequences: int, tokens: int, end: End, chunk: int = 512) -> float:
        """Seconds of prompts that come together, in passes of at most so many tokens."""
        windows = windows_of(run.demand for run in self.runs)
        parts = partial(self.parts, end=end, decodes=False)
        passes = chunked(sequences, tokens, chunk, windows=windows)
        return float(sum(part.seconds for each in passes for part in total_parts(parts, each)))

    def parts(self, forward: Forward, end: End, *, decodes: bool) -> Iterator[Timed]:
        """Parts of a pass's time: operations where they are computed, copies, and the host."""
        before = self.runs[0].device  # what is measured has the copy of looked up tokens in it
        for run in self.runs:
            yield from self.operations(run, forward, end, decodes=decodes)
            crossings = (run.device != before) + (2 * run.demand.moe_layers if run.experts != run.device else 0)
            if crossings and self.gpus:
                row_bytes = run.demand.hidden * LlamaCpp.state_width * forward.tokens
                latency = row("all_reduce_us", BUS).value.duration(end) * 1e-6
                yield Timed("communication", crossings * (latency + row_bytes / self.bus(end)))
            yield Timed("host", self.on(run.device, end).host(run.demand, decodes=decodes))
            before = run.device

    def operations(self, run: LayerRun, forward: Forward, end: End, *, decodes: bool) -> Iterator[Timed]:
        """Operations of a pass; in a prompt weights on the host are copied to the first GPU and computed there, but for
        short ones."""
        borrowed = not decodes and bool(self.gpus) and forward.tokens >= 32
        for operation in run.demand.operations(forward):
            device = run.experts if operation.what == "experts_routed" else run.device
            if device == HOST and borrowed and operation.weights:
                yield Timed("communication", operation.weights / self.bus(end))
                device = 0
            on = self.on(device, end)
            yield timed(operation, on)
            if not decodes:
                yield from on.prompt_kernels(run.demand, (operation,))


def runs(placement: Placement) -> Iterator[tuple[range, tuple[int, int]]]:
    """Layers that follow one another on the same device, with that of their experts."""
    places = [(device, placement.of_weight("ffn_up_exps.weight", i)) for i, device in enumerate(placement.layers)]
    start = 0
    for layer in range(1, len(places) + 1):
        if layer == len(places) or places[layer] != places[start]:
            yield range(start, layer), places[start]
            start = layer
