"""What goes on the GPUs of a machine: laws that hold for any model, by the plans that are held against dry runs."""

import pytest

from calc import Architecture, ConfigError, Layout, Overhead, Precision, Workload, report
from calc.formats import Native
from calc.serving.engines.llamacpp.engine import LlamaCpp
from calc.serving.engines.llamacpp.fit import MachineRoom, Offloading
from calc.serving.engines.llamacpp.launch import GGUFSource, ModelStart
from calc.serving.engines.llamacpp.options import LlamaCppOptions
from calc.serving.levers import levers
from calc.serving.memory import Serving
from calc.serving.verdict import ON_HOST, judge
from calc.time.report import reply, time_report
from calc.units import GIB, MIB
from presets import gpus, models

LLAMA, EXPERTS, LARGE = "meta-llama/Llama-3.1-8B", "Qwen/Qwen3-30B-A3B", "meta-llama/Llama-3.1-70B"
ARCHITECTURES = {name: Architecture.from_config(models()[name].config) for name in (LLAMA, EXPERTS, LARGE)}
OPTIONS = LlamaCppOptions()


def fitting(name, *rooms, host=64, weights="Q4_K_M", whole=None):
    room = MachineRoom(tuple(size * GIB for size in rooms), host * GIB, whole)
    return Offloading(ARCHITECTURES[name], Precision(weights=weights), OPTIONS, room)


def more(options, layers):
    """The next step towards the GPU."""
    if options.n_cpu_moe:
        return options.model_copy(update={"n_cpu_moe": options.n_cpu_moe - 1})
    return options.model_copy(update={"n_gpu_layers": options.n_gpu_layers + 1})


@pytest.mark.parametrize(
    ("name", "rooms", "context"),
    [
        pytest.param(LLAMA, (11,), 8192, id="all of it"),
        pytest.param(LLAMA, (3,), 8192, id="layers"),
        pytest.param(EXPERTS, (11,), 32_768, id="experts on the host"),
        pytest.param(EXPERTS, (2,), 8192, id="experts of all layers, and more"),
        pytest.param(LARGE, (22, 11), 8192, id="unequal GPUs"),
        pytest.param(LARGE, (11, 22, 22), 8192, id="three"),
        pytest.param(LLAMA, (), 8192, id="no GPU"),
    ],
)
def test_what_fits_has_room_and_one_step_more_has_none(name, rooms, context):
    one = fitting(name, *rooms)
    found = one.fit(context)
    totals = [buffer.total for buffer in one.started(found).buffers(1, context)]
    assert all(total <= size * GIB for total, size in zip(totals, (*rooms, 64), strict=True))
    offloads = found.n_cpu_moe or found.n_gpu_layers is not None
    if offloads and len(rooms) == 1:
        assert not one.has_room(more(found, one.layers), context)


def test_unequal_gpus_are_filled_to_like_shares():
    one = fitting(LARGE, 22, 11)
    found = one.fit(8192)
    first, second, _ = one.started(found).buffers(1, 8192)
    assert 0.85 < (first.model + first.context) / (22 * GIB) <= 1
    assert 0.85 < (second.model + second.context) / (11 * GIB) <= 1
    assert sum(map(int, found.tensor_split.split(","))) == found.n_gpu_layers


def test_a_machine_without_room_holds_nothing():
    assert fitting(LARGE, 22, host=8).fit(8192) is None
    assert fitting(LLAMA, 11, whole=4 * GIB).fit(8192) is None


def test_the_longest_context_fits_and_the_next_block_does_not():
    one = fitting(EXPERTS, 11)
    options = one.fit(8192)
    longest = one.longest(options, 2**20)
    assert longest >= 8192
    assert one.has_room(options, longest)
    assert not one.has_room(options, longest + 256)


@pytest.mark.parametrize("name", [LLAMA, EXPERTS])
def test_auto_is_what_the_verdict_proposes_and_weighs_anew(name):
    def serving(**options):
        return Serving.of(
            ARCHITECTURES[name], LlamaCpp(LlamaCppOptions(**options)), Precision(weights="Q8_0"), Layout(), Overhead()
        )

    card, workload = gpus()["rtx-3070"], Workload(context=8192)

    def judged(**options):
        laid_out = serving(**options)
        return judge(laid_out.on(card, workload), laid_out, workload)

    verdict = judged()
    assert verdict.verdict == "fits with"
    decided = serving(n_gpu_layers="auto").on(card, workload)
    assert verdict.flags == decided.serving.engine.flags(
        {name: value for name, value in decided.serving.engine.options if value != getattr(OPTIONS, name)}
    )
    assert decided.memory.weights < serving().on(card, workload).memory.weights
    assert judged(n_gpu_layers="auto").verdict == "fits"
    (first, *_) = levers(card, serving(), workload, Native("bf16"))
    assert set(first.changes) <= {"n_gpu_layers", "n_cpu_moe", "tensor_split"}


def test_auto_is_decided_anew_for_every_question():
    """llama-server decides at each start (common/fit.cpp): what stays on the host for 4 sequences is not what does for
    60, and both fit; where flags say where tensors lie, it changes nothing."""
    card, workload = gpus()["rtx-4090"], Workload(batch=4, context=8192)

    def judged(workload, **options):
        engine = LlamaCpp(LlamaCppOptions(**options))
        laid_out = Serving.of(ARCHITECTURES[LLAMA], engine, Precision(weights="Q8_0"), Layout(), Overhead())
        return judge(laid_out.on(card, workload), laid_out, workload)

    verdict, fixed = judged(workload, n_gpu_layers="auto"), judged(workload)
    assert verdict.max_batch > fixed.max_batch
    assert verdict.max_context_memory > fixed.max_context_memory
    for change in ({"batch": verdict.max_batch}, {"context": verdict.max_context_memory}):
        assert judged(workload.model_copy(update=change), n_gpu_layers="auto").verdict == "fits"
    stated = judged(Workload(batch=64, context=8192), n_gpu_layers="auto", override_tensor="ffn=CPU")
    assert stated.memory == judged(Workload(batch=64, context=8192), override_tensor="ffn=CPU").memory


def test_a_remedy_takes_no_flag_back():
    """`--override-tensor None` is no flag; all layers, where fewer were stated, is their number and the output's."""
    card, workload = gpus()["rtx-3070"], Workload(context=8192)

    def flags(**options):
        engine = LlamaCpp(LlamaCppOptions(**options))
        laid_out = Serving.of(ARCHITECTURES[EXPERTS], engine, Precision(weights="Q8_0"), Layout(), Overhead())
        return judge(laid_out.on(card, workload), laid_out, workload).flags

    assert flags(n_gpu_layers=40) == ("--n-gpu-layers 49", *flags())
    assert flags(override_tensor=r"attn_q\.=CPU") == flags(cpu_moe=True, ubatch_size=2**14) == ()


@pytest.mark.parametrize(
    ("name", "options", "on_host"),
    [
        pytest.param(LLAMA, {}, False, id="all"),
        pytest.param(LLAMA, {"n_gpu_layers": 33}, False, id="the output too"),
        pytest.param(LLAMA, {"n_gpu_layers": "auto"}, False, id="all have room"),
        pytest.param(LLAMA, {"n_cpu_moe": 4}, False, id="there are no experts"),
        pytest.param(LLAMA, {"n_gpu_layers": 20}, True, id="layers"),
        pytest.param(LLAMA, {"n_gpu_layers": 0}, True, id="all layers"),
        pytest.param(LLAMA, {"kv_offload": False}, True, id="the cache"),
        pytest.param(EXPERTS, {"n_cpu_moe": 4}, True, id="experts"),
    ],
)
def test_no_speed_of_gpus_is_told_where_the_host_computes(name, options, on_host):
    """What lay on the host took no time: a step of 20 layers of 33 took less than one of all."""
    architecture, card, workload = ARCHITECTURES[name], gpus()["rtx-4090"], Workload()
    engine = LlamaCpp(LlamaCppOptions(**options))
    laid_out = Serving.of(architecture, engine, Precision(weights="Q4_K_M"), Layout(), Overhead())
    verdict = judge(laid_out.on(card, workload), laid_out, workload)
    assert (verdict.on_host, verdict.serves, ON_HOST in verdict.notes) == (on_host, not on_host, on_host)
    for told in (reply, time_report):
        if on_host:
            with pytest.raises(ConfigError, match="My machine"):
                told(laid_out, card, workload)
        else:
            assert told(laid_out, card, workload)


def test_flags_that_leave_layers_on_the_host_have_no_speed():
    """GPUs alone have no room, so that their speed is no answer."""
    card, workload = gpus()["rtx-3070"], Workload()
    laid_out = Serving.of(ARCHITECTURES[LLAMA], LlamaCpp(), Precision(weights="Q8_0"), Layout(), Overhead())
    verdict = judge(laid_out.on(card, workload), laid_out, workload)
    assert (verdict.verdict, verdict.on_host, verdict.serves) == ("fits with", True, False)


def test_a_stated_number_of_layers_is_replaced_by_a_number():
    """`--n-gpu-layers 30`, where experts on the host make room for all layers: None is no number of them."""
    engine, config = LlamaCpp(LlamaCppOptions(n_gpu_layers=30)), models()[EXPERTS].config
    card = gpus()["rtx-3070"]
    (verdict,) = report(config, engine=engine, precision=Precision(weights="Q4_K_M"), gpus=[card]).verdicts
    layers, experts = verdict.flags
    assert (layers, experts.split()[0]) == ("--n-gpu-layers 49", "--n-cpu-moe")


@pytest.mark.parametrize("batch", [12, 13, 14, 15])
def test_the_most_sequences_agree_with_the_verdict(batch):
    """Falcon-40B with 12 layers on a GPU: ggml-alloc.c lays out a pass of 14 slots with 64 MB less than one of 13, so
    that on a GPU of a size between 12 and 14 slots fit, and 13 do not."""
    serving = Serving.of(
        Architecture.from_config(models()["tiiuae/falcon-40b"].config),
        LlamaCpp(LlamaCppOptions(n_gpu_layers=12)),
        Precision(weights="Q4_K_M"),
        Layout(),
        Overhead(),
    )

    def totals(sequences):
        return serving.on(gpus()["h100-sxm"], Workload(batch=sequences, context=4096)).memory.high

    room = (totals(13) + totals(14)) // 2
    card = gpus()["h100-sxm"].model_copy(update={"usable_mib": room // MIB})
    workload = Workload(batch=batch, context=4096)
    verdict = judge(serving.on(card, workload), serving, workload)
    assert (verdict.verdict == "fits") == (batch in (12, 14))
    assert (verdict.max_batch >= batch) == (verdict.verdict == "fits")


SOURCE = GGUFSource(repository="Qwen/Qwen3-8B-GGUF", tag="Q4_K_M")


def test_what_to_type():
    options = LlamaCppOptions(n_gpu_layers=20, ubatch_size=256)
    start = ModelStart(SOURCE, options, 8192, 2, ("q8_0", "q8_0"))
    assert start.server().text.split(" \\\n  ") == [
        "llama-server -hf Qwen/Qwen3-8B-GGUF:Q4_K_M",
        "--ctx-size 16384",
        "--cache-type-k q8_0",
        "--cache-type-v q8_0",
        "--ubatch-size 256",
        "--n-gpu-layers 20",
        "--parallel 2",
    ]
    setup = start.ollama(36)
    assert setup.modelfile.splitlines() == [
        "FROM hf.co/Qwen/Qwen3-8B-GGUF:Q4_K_M",
        "PARAMETER num_ctx 8192",
        "PARAMETER num_gpu 20",
        "PARAMETER num_batch 256",
    ]
    assert setup.environment["OLLAMA_KV_CACHE_TYPE"] == "q8_0"
    assert start.lm_studio(36)["GPU Offload"] == 20


def test_ollama_can_not_keep_experts_on_the_host():
    setup = ModelStart(SOURCE, LlamaCppOptions(n_cpu_moe=3), 8192, 1, ("f16", "f16")).ollama(48)
    assert "num_gpu" not in setup.modelfile
    assert setup.notes


@pytest.mark.parametrize("model", ["MiniMaxAI/MiniMax-M2.7", "Qwen/Qwen3-Next-80B-A3B-Instruct"])
def test_no_fewer_gpus_do(model):
    """A stage that was too large among fewer is not laid out again among more, unless it holds the last layer."""
    card, workload = gpus()["v100-sxm2-16gb"], Workload(context=8192)
    architecture = Architecture.from_config(models()[model].config)
    laid_out = Serving.of(architecture, LlamaCpp(), Precision(weights="bf16"), Layout(), Overhead())
    fewest = judge(laid_out.on(card, workload), laid_out, workload).min_gpus
    assert fewest > 8
    fit = [n for n in range(2, fewest + 1) if laid_out.with_layout(Layout(pp=n)).on(card, workload).surely_fits]
    assert fit == [fewest]
