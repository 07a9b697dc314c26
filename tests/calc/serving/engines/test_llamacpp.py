"""llama.cpp 0c1e57098 against its own dry runs, which allocate everything but weights (tests/data/llamacpp.json)."""

import json

import pytest

from benchmarks.accuracy.llamacpp import ours as buffers_of
from calc import Architecture, ConfigError, Layout, Overhead, Precision, Workload, report
from calc.formats.gguf_file import model_file
from calc.serving import laid_out_report
from calc.serving.derivation import Derivations
from calc.serving.engines.llamacpp.engine import LlamaCpp
from calc.serving.engines.llamacpp.graph import forward
from calc.serving.engines.llamacpp.micro_batch import MicroBatch
from calc.serving.engines.llamacpp.options import LlamaCppOptions
from calc.serving.engines.llamacpp.placement import Placement
from calc.serving.engines.llamacpp.slots import COPIES
from calc.serving.memory import Serving
from calc.time import cheapest, smallest
from calc.time.report import time_report
from calc.units import MIB
from cli.command import parser, run
from presets import gpus, models, started
from tests import load
from tests.cases import in_one_test

CONFIGS, *ROWS = load("llamacpp.json")
PREDICTING, *PREDICTED = load("llamacpp_mtp.json")
FAMILIES = load("llamacpp_families.json")
ARCHITECTURES = {name: Architecture.from_config(config) for name, config in CONFIGS["configs"].items()}
LLAMA, EXPERTS, WIDE = (
    "meta-llama/Meta-Llama-3.1-8B",
    "Qwen/Qwen3-30B-A3B",
    "Llama with heads that no kernel attends with",
)
ARCHITECTURES[WIDE] = Architecture.from_config(CONFIGS["configs"][LLAMA] | {"head_dim": 160})
EIGHT_BITS = {"cache_type_k": "q8_0", "cache_type_v": "q8_0"}
CLOSE = 0.005
"""Share of all that is allocated on a device by which the buffer of a pass may differ."""


def off(ours, theirs):
    """By how much the buffer of a pass differs, as a share of all that the dry run allocates on the device."""
    return abs(ours["compute"] - theirs["compute"]) / max(1, sum(theirs[what] for what in SIZES))


SIZES = ("model", "context", "compute")


@in_one_test("row", ROWS, ids=lambda row: f"{row['kind']}: {row['model']} {row['weights']} {row['flags']}")
def test_every_buffer_is_that_of_the_dry_run(row):
    """Weights and cache to the byte on every device and on the host; the buffers of a pass closely."""
    for mine, dry in zip(buffers_of(row, ARCHITECTURES[row["model"]]), row["buffers"], strict=True):
        assert (mine["model"], mine["context"]) == (dry["model"], dry["context"])
        assert off(mine, dry) <= CLOSE


def test_the_buffers_of_passes_are_those_of_the_dry_run_on_nearly_all_devices():
    """To the byte."""
    exact = [
        off(mine, dry) == 0
        for row in ROWS
        for mine, dry in zip(buffers_of(row, ARCHITECTURES[row["model"]]), row["buffers"], strict=True)
    ]
    assert sum(exact) >= 0.94 * len(exact)


@pytest.mark.slow
@in_one_test("row", FAMILIES, ids=lambda row: f"{row['model']} {row['weights']} {row['flags']}")
def test_a_preset_of_every_family_on_a_cpu(row):
    """llama.cpp 0c1e57098, built for a CPU, plans files of the presets' tensors without data (`no_alloc`)."""
    options = LlamaCppOptions(device="none", **row["flags"])
    architecture = Architecture.from_config(models()[row["model"]].config)
    serving = Serving.of(architecture, LlamaCpp(options), Precision(weights=row["weights"]), Layout(), Overhead())
    one = serving.on(gpus()["a100-sxm-80gb"], Workload(context=256))
    (host,) = one.cache.buffers(one.workload.batch, one.workload.context)
    agrees(host, row["buffers"])


def agrees(ours, theirs):
    mine = ours.model_dump()
    assert (mine["model"], mine["context"]) == (theirs["model"], theirs["context"])
    assert off(mine, theirs) <= CLOSE


def allocation(name, weights="Q4_K_M", gpu="a100-sxm-80gb", context=32_768, batch=1, layout=None, **options):
    engine = LlamaCpp(LlamaCppOptions(**options))
    serving = Serving.of(ARCHITECTURES[name], engine, Precision(weights=weights), layout or Layout(), Overhead())
    return serving.on(gpus()[gpu], Workload(batch=batch, context=context))


@pytest.mark.parametrize("name", [LLAMA, EXPERTS, "google/gemma-3-12b-it", "ibm-granite/granite-4.0-h-micro"])
@pytest.mark.parametrize("gpus", [2, 5])
def test_what_is_certain_before_a_pass_is_planned(name, gpus):
    """The verdict asks for no plan where the cache alone does not fit."""
    one = allocation(name, layout=Layout(pp=gpus))
    found = one.cache.buffers(one.workload.batch, one.workload.context)
    for stage, buffer in enumerate(found[:-1]):
        assert one.cache.least_bytes(stage, 1, 32_768) <= buffer.context + buffer.compute


@pytest.mark.parametrize("name", [LLAMA, EXPERTS, "google/gemma-3-12b-it", "Qwen/Qwen3.5-9B"])
@pytest.mark.parametrize(
    ("options", "in_place"),
    [
        pytest.param({}, True, id="all layers on the GPU"),
        pytest.param({"n_gpu_layers": 12}, True, id="few tokens are computed where the weights are"),
        pytest.param({"n_gpu_layers": 12, "parallel": 64}, False, id="many tokens are taken over by the GPU"),
    ],
)
def test_flash_attention_is_off_where_a_layer_does_not_attend_on_its_device(name, options, in_place):
    one = allocation(name, batch=options.get("parallel", 1), **options)
    (context,) = one.cache.contexts(options.get("parallel", 1), 32_768)
    assert context.sizes.flash == in_place


@pytest.mark.parametrize(
    ("layers", "offload", "flash"),
    [(8, True, False), (9, True, True), (None, True, True), (None, False, False), (0, False, True)],
)
def test_flash_attention_next_to_states(layers, offload, flash):
    """llama.cpp 0c1e57098 with LFM2-1.2B: "layer 8 is assigned to CPU but Flash Attention to CUDA0"."""
    one = allocation("LiquidAI/LFM2-1.2B", n_gpu_layers=layers, kv_offload=offload)
    assert one.cache.contexts(1, 32_768)[0].sizes.flash == flash


@pytest.mark.parametrize(
    ("name", "change", "options"),
    [
        pytest.param("tiiuae/Falcon-H1-7B-Base", {"mamba_d_state": 64}, {}, id="a state that no kernel scans"),
        pytest.param(LLAMA, {"head_dim": 160}, {"flash_attn": "on"}, id="heads that no kernel attends with"),
    ],
)
def test_what_cuda_has_no_kernel_for_is_computed_on_the_host(name, change, options):
    """ggml-cuda.cu: ggml_backend_cuda_device_supports_op. What it reads and makes lies in the host's buffer then."""
    hosts = []
    for config in (CONFIGS["configs"][name], CONFIGS["configs"][name] | change):
        model, engine = Architecture.from_config(config), LlamaCpp(LlamaCppOptions(**options))
        one = Serving.of(model, engine, Precision(weights="Q4_K_M"), Layout(), Overhead())
        *_, host = one.on(gpus()["a100-sxm-80gb"], Workload(context=8192)).cache.buffers(1, 8192)
        hosts.append(host.compute)
    assert hosts[1] > 1.5 * hosts[0]


@pytest.mark.parametrize(
    ("name", "options"),
    [(EXPERTS, {"n_cpu_moe": 7}), (EXPERTS, {"cpu_moe": True}), (LLAMA, {"n_gpu_layers": 12})],
)
def test_what_the_gpu_takes_over_is_in_its_buffer(name, options):
    """ggml-cuda.cu: offload_op. A pass of many tokens copies matrices of the host, one of few tokens none."""
    (many,), (few,) = (allocation(name, **options, ubatch_size=n).cache.contexts(1, 4096) for n in (512, 16))
    downs = {
        weight.nbytes for layer in many.model.file.layers for weight in layer.values() if "ffn_down" in weight.name
    }
    assert many.passes[0].size > max(downs)
    assert few.passes[0].size < many.passes[0].size / 8


@pytest.mark.parametrize(
    "name",
    [
        *(LLAMA, EXPERTS, WIDE, "google/gemma-3-12b-it", "Qwen/Qwen3.5-9B", "CohereLabs/c4ai-command-r-v01"),
        *("nvidia/Nemotron-H-8B-Base-8K", "ibm-granite/granite-4.0-h-micro", "mistralai/Mamba-Codestral-7B-v0.1"),
    ],
)
@pytest.mark.parametrize(
    ("gpus", "options"),
    [
        *((1, {}), (4, {}), (7, {}), (1, {"n_gpu_layers": 13}), (2, {"n_cpu_moe": 30})),
        *((3, {"flash_attn": "off"}), (6, {"flash_attn": "on"})),
    ],
)
def test_layers_that_stand_for_all_take_as_much_as_all_of_them(name, gpus, options):
    """A pass through every layer on every GPU, placed step by step (ggml-alloc.c has no layers); what is certain before
    it is planned is no more."""
    one = allocation(name, layout=Layout(pp=gpus), **options)
    (context,) = one.cache.contexts(1, 32_768)
    placed, count = context.model, ARCHITECTURES[name].num_layers
    batch = MicroBatch(placed.file, placed.placement, context.sizes, cuda=True)
    forward(batch, dict.fromkeys(range(count)))
    every = batch.schedule(COPIES if gpus > 1 and placed.placement.all_on_devices else 1).buffers(context.sizes)
    assert list(context.passes) == list(every)
    least, most = (one.cache.totals(1, 32_768, passes=passes) for passes in (False, True))
    assert all(low <= high for low, high in zip(least, most, strict=True))


def test_a_weight_that_a_file_lacks_is_named():
    """Gemma 3's layers have a norm behind the feed-forward, Llama's have none."""
    file = model_file(ARCHITECTURES[LLAMA], Precision(weights="Q8_0"))
    sizes = allocation(LLAMA).cache.contexts(1, 4096)[0].sizes
    batch = MicroBatch(file, Placement.of(32, None, [1.0]), sizes, cuda=True)
    with pytest.raises(ConfigError, match=r"post_ffw_norm\.weight, which a file of this model does not have"):
        batch.weight("post_ffw_norm.weight")


def compute(name, **options):
    one = allocation(name, **options)
    return one.memory.activations / MIB


@pytest.mark.parametrize(
    ("name", "options", "mib"),
    [
        pytest.param(LLAMA, {}, 140.01, id="logits of one slot: llama-server, 32k, ubatch 512"),
        pytest.param(LLAMA, {"n_outputs_max": 0}, 258.50, id="logits of every token: llama-bench"),
        pytest.param(LLAMA, {"context": 131_072}, 236.01, id="f16, 131,072 tokens"),
        pytest.param(
            LLAMA, {"context": 131_072, "cache_type_k": "q8_0", "cache_type_v": "q8_0"}, 672, id="a 16-bit copy"
        ),
        pytest.param(EXPERTS, {}, 116.01, id="all on the GPU"),
        pytest.param(EXPERTS, {"cpu_moe": True}, 250, id="experts on the host, computed on the GPU"),
    ],
)
def test_the_traps_of_compute_buffers(name, options, mib):
    """shared figures of the dry runs, in MiB."""
    assert compute(name, **options) == pytest.approx(mib, rel=0.01)


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        pytest.param({"spec_type": "draft-simple"}, 4, id="three tokens of a draft model and one more"),
        pytest.param({"spec_type": "draft-simple", "spec_draft_n_max": 16, "parallel": 8, "batch": 8}, 136, id="slots"),
        pytest.param({"spec_type": "ngram-mod"}, 65, id="repeats of the text"),
        pytest.param({"spec_draft_n_max": 16}, 1, id="nothing guesses"),
    ],
)
def test_each_guessed_token_has_a_row_of_logits(options, rows):
    """llama-server: n_parallel x (1 + common_speculative_n_max), at most a batch."""
    others = {name: value for name, value in options.items() if not name.startswith("spec")}
    assert compute("google/gemma-3-12b-it", **options) == compute("google/gemma-3-12b-it", **others, n_outputs_max=rows)


def test_a_draft_model_that_is_not_said_is_said_to_be_left_out():
    said = report(models()[EXPERTS].config, engine=LlamaCpp(LlamaCppOptions(spec_type="draft-simple")), gpus=[])
    assert any("The draft model is not known" in str(sentence) for sentence in said.assumptions)


def weighed(name, weights="Q4_K_M", layout=None, batch=1, context=8192, **options):
    config = PREDICTING["configs"].get(name) or models()[name].config
    return report(
        config,
        engine=started("llamacpp", LlamaCppOptions(**options)),
        precision=Precision(weights=weights),
        layout=layout or Layout(),
        workload=Workload(batch=batch, context=context),
        gpus=[gpus()["a100-sxm-80gb"]],
    )


@pytest.mark.parametrize("row", PREDICTED, ids=lambda row: f"{row['model']} {row['weights']} {row['flags']}")
def test_layers_that_guess_tokens_have_a_context_of_their_own(row):
    """Dry runs on a CPU (`load_mtp`, LLAMA_CONTEXT_TYPE_MTP) of files with the config's tensors and no data."""
    found = weighed(row["model"], row["weights"], device="none", spec_type="draft-mtp", **row["flags"])
    agrees(found.buffers[-1], row["buffers"])
    agrees(found.draft_buffers[-1], row["draft"])


@pytest.mark.parametrize(
    ("options", "alone"),
    [
        pytest.param({}, {}, id="as it is"),
        pytest.param({"weights_draft": "Q8_0"}, {"weights": "Q8_0"}, id="a file of its own"),
        pytest.param({"n_gpu_layers_draft": 9}, {"n_gpu_layers": 9}, id="in part on the GPU"),
        pytest.param(
            {"cache_type_k_draft": "q8_0", "cache_type_v_draft": "q8_0", "parallel": 4, "batch": 4},
            {"cache_type_k": "q8_0", "cache_type_v": "q8_0", "parallel": 4, "batch": 4},
            id="a quantized cache, four slots",
        ),
        pytest.param({"ubatch_size": 1024, "layout": Layout(pp=2)}, {"ubatch_size": 1024, "layout": Layout(pp=2)}),
    ],
)
def test_a_draft_model_takes_what_it_takes_alone(options, alone):
    """llama.cpp gives it the model's context, slots and passes (common_base_params_to_speculative)."""
    small = weighed("Qwen/Qwen3-0.6B", **alone)
    plain = weighed("Qwen/Qwen3-8B", **{name: value for name, value in options.items() if "draft" not in name})
    both = weighed("Qwen/Qwen3-8B", model_draft="Qwen/Qwen3-0.6B", **options)
    assert both.draft_buffers == small.buffers
    for stage, its in enumerate(small.buffers[:-1]):
        with_it, without = both.buffers[stage], plain.buffers[stage]
        assert (with_it.model, with_it.context) == (without.model, without.context)
        rows = with_it.compute - without.compute
        assert rows in (0, 3 * 4 * 151_936 * options.get("parallel", 1)), "three more rows of logits a slot, in fp32"
        more = both.stages[stage].total - plain.stages[stage].total
        assert more == its.model + its.context + its.compute + rows


@pytest.mark.parametrize(("draft", "said"), [("Qwen/Qwen3-0.6B", "which pays from"), ("Qwen/Qwen3-8B", "does not pay")])
def test_a_draft_model_pays_where_it_is_faster(draft, said):
    """One that is the model itself takes a step for each token, and one more to look at them."""
    config, gpu = models()["Qwen/Qwen3-8B"].config, gpus()["rtx-4090"]
    engine = started("llamacpp", LlamaCppOptions(model_draft=draft))
    serving, weighed = laid_out_report(config, engine=engine, precision=Precision(weights="Q4_K_M"), gpus=[gpu])
    assert any("The draft's memory is included" in str(sentence) for sentence in weighed.assumptions)
    assert said in str(time_report(serving, gpu, weighed.scenario.workload).assumptions[-1])


@pytest.mark.parametrize(
    ("name", "options", "field", "sentence"),
    [
        ("Qwen/Qwen3-8B", {"model_draft": "no/model"}, "model_draft", "not a known model"),
        ("Qwen/Qwen3-8B", {"model_draft": "meta-llama/Llama-3.2-1B"}, "model_draft", "differ by at most 128"),
        ("Qwen/Qwen3-8B", {"spec_type": "draft-mtp"}, "spec_type", "no multi-token prediction"),
        ("deepseek-ai/DeepSeek-V3", {"spec_type": "draft-mtp"}, "spec_type", "no multi-token prediction"),
        (
            "Qwen/Qwen3-8B",
            {"spec_type": "ngram-simple", "model_draft": "Qwen/Qwen3-0.6B"},
            "model_draft",
            "ngram-simple",
        ),
        ("Qwen/Qwen3.5-9B", {"spec_type": "draft-mtp", "model_draft": "Qwen/Qwen3.5-0.8B"}, "model_draft", "draft-mtp"),
        (
            "Qwen/Qwen3-8B",
            {"flash_attn": "off", "model_draft": "Qwen/Qwen3-0.6B", "cache_type_v_draft": "q8_0"},
            "cache_type_v_draft",
            "flash attention",
        ),
        ("bigscience/bloom-3b", {"cache_type_k": "q8_0"}, "cache_type_k", "80 elements"),
        ("deepseek-ai/DeepSeek-V3", {"cache_type_k": "q8_0"}, "cache_type_v", "in one type"),
        ("Qwen/Qwen3-8B", {"model_draft": "Qwen/Qwen3-0.6B", "weights_draft": "fp8"}, "weights_draft", "do not store"),
    ],
)
def test_what_llama_cpp_does_not_start_with(name, options, field, sentence):
    with pytest.raises(ConfigError, match=sentence) as refused:
        weighed(name, **options)
    assert refused.value.field == field


def test_what_stays_on_the_host_is_not_moved_where_it_has_no_room():
    found = weighed("Qwen/Qwen3-8B", device="none", ctx_size=4096)
    assert found.verdicts[0].verdict == "does not fit"


def test_layers_that_guess_are_layers_to_place():
    """One behind the last: 32 layers, the one for multi-token prediction and the output."""
    assert list(LlamaCpp(LlamaCppOptions(spec_type="draft-mtp", n_gpu_layers=2)).stages(32, 1)) == [range(32, 32)]
    assert list(LlamaCpp(LlamaCppOptions(spec_type="draft-mtp", n_gpu_layers=3)).stages(32, 1)) == [range(31, 32)]
    plain, predicting = weighed("Qwen/Qwen3.5-9B"), weighed("Qwen/Qwen3.5-9B", spec_type="draft-mtp")
    assert predicting.buffers[0].context - plain.buffers[0].context == 3 * 24 * (3 * 8192 + 128 * 128 * 32) * 4
    assert predicting.loaded.draft == predicting.buffers[0].model - plain.buffers[0].model


def test_windows_that_llama_cpp_ignores_keep_the_whole_context():
    """Mistral 7B v0.1: 32 layers x 2 x 1,024 x 2 bytes a token, though its window is 4,096."""
    assert allocation("mistralai/Mistral-7B-v0.1").memory.kv_cache == 32_768 * 131_072


def test_the_output_goes_to_the_gpu_first_and_layers_from_the_last_on():
    assert list(LlamaCpp(LlamaCppOptions(n_gpu_layers=1)).stages(32, 1)) == [range(32, 32)]
    assert list(LlamaCpp(LlamaCppOptions(n_gpu_layers=32)).stages(32, 1)) == [range(1, 32)]
    assert list(LlamaCpp(LlamaCppOptions(tensor_split="3,1")).stages(32, 2)) == [range(25), range(25, 32)]
    assert list(LlamaCpp(LlamaCppOptions(n_gpu_layers=0)).stages(32, 1)) == [range(0)]


@pytest.mark.parametrize("options", [{}, {"n_gpu_layers": 9}, {"n_cpu_moe": 20}, {"override_tensor": r"exps\.=CPU"}])
def test_the_weights_of_a_gpu_are_those_of_its_buffer(options):
    """Rows of Qwen3-30B-A3B are multiples of 512 elements but for experts of 768 columns, which get a rest."""
    one = allocation(EXPERTS, **options)
    (gpu, _) = one.cache.buffers(one.workload.batch, one.workload.context)
    assert 0 <= gpu.model - one.memory.weights < 200_000
    assert (gpu.context, gpu.compute) == (one.memory.kv_cache, one.memory.activations)


def test_the_lines_of_a_pass_are_tensors_that_come_to_it():
    one = allocation(LLAMA)
    lines = {line.what: line.result for line in Derivations(one).activations()}
    assert sum(lines.values()) == one.memory.activations
    assert lines["mask"] == 32_768 * 512 * 2
    assert lines["gate"] == lines["up"] == lines["gate times up"] == 14_336 * 512 * 4


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        pytest.param({"batch": 5, "parallel": 4}, "4 slots", id="more sequences than slots"),
        pytest.param({"context": 8192, "ctx_size": 4096}, "4,096 tokens", id="longer than the cache"),
        pytest.param({"context": 2048, "ctx_size": 4096, "parallel": 4}, "1,024 tokens", id="slots share it"),
        pytest.param({"context": 1281, "ctx_size": 5000, "parallel": 4}, "1,280 tokens", id="rounded up to blocks"),
    ],
)
def test_what_is_set_up_takes_no_more(options, sentence):
    one = allocation(LLAMA, **options)
    assert sentence in str(one.request_refusal)
    assert not one.fits(0)


@pytest.mark.parametrize(
    ("model", "precision", "layout", "options", "sentence"),
    [
        (LLAMA, Precision(weights="fp8"), Layout(), {}, "do not store weights in fp8"),
        (LLAMA, Precision(kv="fp8"), Layout(), {}, "no cache in fp8"),
        (LLAMA, Precision(), Layout(tp=2), {}, "layers of its own"),
        (LLAMA, Precision(), Layout(pp=2), {"tensor_split": "1"}, "each of 2 GPUs"),
        (LLAMA, Precision(), Layout(pp=2), {"tensor_split": "nan,1"}, "each of 2 GPUs"),
        (LLAMA, Precision(), Layout(pp=2), {"tensor_split": "inf,1"}, "each of 2 GPUs"),
        (LLAMA, Precision(), Layout(pp=2), {"split_mode": "row"}, "on SYCL and Hexagon"),
        (LLAMA, Precision(), Layout(pp=2), {"split_mode": "tensor"}, "not known here"),
        (LLAMA, Precision(), Layout(), {"override_tensor": "x=CUDA0"}, "PATTERN=CPU"),
        (LLAMA, Precision(), Layout(), {"flash_attn": "off", "cache_type_v": "q8_0"}, "need flash attention"),
    ],
)
def test_what_is_refused(model, precision, layout, options, sentence):
    with pytest.raises(ConfigError, match=sentence):
        Serving.of(ARCHITECTURES[model], LlamaCpp(LlamaCppOptions(**options)), precision, layout, Overhead())


@pytest.mark.parametrize("asked", [{"layout": Layout(pp=2)}, {"num_gpus": 2}], ids=["a layout", "a number of GPUs"])
def test_shares_are_of_as_many_gpus(asked):
    """`--tensor-split 3,1` on two GPUs is weighed, and the fewest of such are two."""
    card, engine = gpus()["rtx-4090"], LlamaCpp(LlamaCppOptions(tensor_split="3,1"))
    (verdict,) = report(CONFIGS["configs"][LLAMA], engine=engine, gpus=[card], **asked).verdicts
    assert (verdict.verdict, verdict.gpus, verdict.min_gpus, verdict.layout) == ("fits", 2, 2, Layout(pp=2))
    serving = Serving.of(ARCHITECTURES[LLAMA], engine, Precision(), Layout(pp=2), Overhead())
    for find in (smallest, cheapest):
        assert find([card], serving, Workload()).layout == Layout(pp=2)


@pytest.mark.parametrize("name", [LLAMA, "google/gemma-3-12b-it", "Qwen/Qwen3.5-9B"])
def test_the_longest_context_fits_and_one_more_token_does_not(name):
    config = CONFIGS["configs"][name]
    engine, precision, card = LlamaCpp(), Precision(weights="Q8_0"), gpus()["rtx-4090"]
    (verdict,) = report(config, engine=engine, precision=precision, gpus=[card]).verdicts
    longest = verdict.max_context_memory
    for context, word in ((longest, "fits"), (longest + 1, "tight")):
        (again,) = report(
            config, engine=engine, precision=precision, gpus=[card], workload=Workload(context=context)
        ).verdicts
        assert again.verdict in (word, "fits with" if word == "tight" else word)


@pytest.mark.parametrize("name", [LLAMA, EXPERTS, "google/gemma-2-9b"])
@pytest.mark.parametrize("options", [{}, {"n_gpu_layers": 12}, {"kv_unified": True}])
def test_more_never_costs_less(name, options):
    sizes = [
        allocation(name, batch=batch, context=context, **options).memory.total
        for batch, context in ((1, 300), (1, 4096), (2, 4096), (2, 20_000), (4, 65_536))
    ]
    assert sizes == sorted(sizes)


def test_a_family_that_it_does_not_read_is_refused():
    with pytest.raises(ConfigError, match="does not read"):
        report(models()["openai-community/gpt2"].config | {"model_type": "opt"}, engine=LlamaCpp(), gpus=[])


def test_a_dry_run_asked_on_the_command_line(tmp_path):
    """Its flags are llama-server's, and the report has its buffers."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIGS["configs"][EXPERTS]))
    words = "--engine llamacpp --weights Q4_K_M --ctx-size 32768 --parallel 1 --cpu-moe --gpu a100-sxm-80gb --json"
    found, *_ = run(parser().parse_args([str(path), *words.split()]))
    flags = {"ctx_size": 32_768, "parallel": 1, "n_outputs_max": 1}
    row = next(row for row in ROWS if (row["model"], row["weights"], row["flags"]) == (EXPERTS, "Q4_K_M", flags))
    assert [buffer.device for buffer in found.buffers] == ["gpu0", "host"]
    everything, *_ = run(parser().parse_args([str(path), *words.replace("--cpu-moe ", "").split()]))
    for ours, theirs in zip(everything.buffers, row["buffers"], strict=True):
        agrees(ours, theirs)
    assert found.buffers[0].model < everything.buffers[0].model
