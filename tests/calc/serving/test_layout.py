"""How a model is spread over GPUs."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from calc import Architecture, ConfigError, Layout, Overhead, Precision, Workload
from calc.hardware.division import divides
from calc.hardware.overhead import HIGH
from calc.hardware.parallel import shapes
from calc.serving.engines import ENGINES
from calc.serving.engines.families import outside_rules
from calc.serving.engines.sglang.engine import SGLang
from calc.serving.engines.sglang.options import SGLangOptions
from calc.serving.engines.vllm.engine import VLLM
from calc.serving.fewest import bytes_by_stage
from calc.serving.memory import Serving
from calc.units import GIB
from presets import gpus
from tests import CHECKPOINT_ENGINES, load
from tests.cases import in_one_test
from tests.structures import architectures, generating, staged

ARCHITECTURES = architectures()
MODELS, NAMES = st.sampled_from(generating()), st.sampled_from(CHECKPOINT_ENGINES)
WIDTHS = {None: 2, "fp32": 4}
"""Bytes of an element, of tensors that a checkpoint of 16 bits holds in a type of their own too."""


def serving(model, engine="vllm", weights="bf16", **layout):
    return Serving.of(ARCHITECTURES[model], ENGINES[engine](), Precision(weights=weights), Layout(**layout), Overhead())


def stages(model, engine="vllm", weights="bf16", **layout):
    return serving(model, engine, weights, **layout).laid_out.stages


def test_what_tensor_parallel_divides():
    """vLLM: heads and columns are divided, 2 KV heads on 4 ranks are on two each, norms are on all, and the vocabulary
    is padded to a multiple of 64."""
    rank = ARCHITECTURES["Qwen/Qwen2.5-3B"].rank(4)
    shapes = {t.name.removeprefix("model.layers.{layer}."): t.shape for t in rank.tensors()}
    assert shapes["self_attn.q_proj.weight"] == (512, 2048)
    assert shapes["self_attn.k_proj.weight"] == (128, 2048)
    assert shapes["self_attn.k_proj.bias"] == (128,)
    assert shapes["self_attn.o_proj.weight"] == (2048, 512)
    assert shapes["mlp.up_proj.weight"] == (2752, 2048)
    assert shapes["mlp.down_proj.weight"] == (2048, 2752)
    assert shapes["input_layernorm.weight"] == (2048,)
    assert shapes["model.embed_tokens.weight"] == (151_936 // 4, 2048)
    gpt2 = {t.name: t.shape for t in ARCHITECTURES["openai-community/gpt2"].rank(4).tensors()}
    assert gpt2["transformer.wte.weight"] == (50_304 // 4, 768)


def test_what_a_moe_layer_divides():
    """Each expert is divided, the router is not, and nor are the low-rank matrices that lead into latent attention."""
    tensors = ARCHITECTURES["deepseek-ai/DeepSeek-V3"].rank(8).tensors()
    shapes = {t.name: t.shape for t in tensors if t.excluded_as is None}
    layer = "model.layers.{layer}."
    assert shapes[f"{layer}mlp.experts.{{expert}}.up_proj.weight"] == (256, 7168)
    assert shapes[f"{layer}mlp.shared_experts.down_proj.weight"] == (7168, 256)
    assert shapes[f"{layer}mlp.gate.weight"] == (256, 7168)
    assert shapes[f"{layer}self_attn.kv_a_proj_with_mqa.weight"] == (576, 7168)
    assert shapes[f"{layer}self_attn.q_b_proj.weight"] == (24_576 // 8, 1536)


@given(MODELS, NAMES, st.sampled_from([1, 2, 4, 8]), st.integers(1, 16))
def test_stages_hold_the_whole_model_together(model, engine, tp, pp):
    architecture = ARCHITECTURES[model]
    assume(divides(architecture, tp) and pp <= architecture.num_layers)
    pp = staged(ENGINES[engine](), architecture, Precision(), Layout(tp=tp, pp=pp)).pp
    laid_out = serving(model, engine, tp=tp, pp=pp).laid_out
    counted = [tensor for tensor in architecture.tensors() if tensor.excluded_as is None]
    assert sum(tensor.parameters for tensor in counted) == architecture.parameters().total
    whole = sum(tensor.parameters * WIDTHS[tensor.dtype] for tensor in counted)
    rules = ENGINES[engine]().outside_rules(architecture)
    every = rules.on_every_stage
    repeated = (t for t in counted if not t.layers and ("embedding" if t.before_layers else t.component) in every)
    tables = sum(tensor.parameters * WIDTHS[tensor.dtype] for tensor in repeated)
    table = 2 * architecture.tensors()[0].parameters
    if architecture.tied and (rules.own_head or (rules.own_head_on_stages and pp > 1)):
        whole += table
        tables += table * ("lm_head" in every)
    elif architecture.tied and "embedding" not in every and pp > 1:
        whole += table  # the head stands on another GPU than the embedding
    held = [stage.weights for stage in laid_out.stages]
    assert [layer for layers in laid_out.ranges for layer in layers] == list(range(architecture.num_layers))
    assert len(held) == pp
    assert whole <= tp * sum(held)
    assert max(held) <= whole
    if tp == 1:
        assert sum(held) == whole + tables * (pp - 1)
    loaded = [stage.loaded.total for stage in laid_out.stages]
    assert bytes_by_stage(serving(model, engine, tp=tp, pp=pp).weighing.loaded, laid_out.ranges) == loaded
    for stage, layers in zip(laid_out.stages, laid_out.ranges, strict=True):
        assert len({layer for block in stage.blocks for layer in block.runs_in}) == len(layers)
        assert (stage.first, stage.last) == (layers.start == 0, layers.stop == architecture.num_layers)


TABLES = load("stage_tables.json")


@in_one_test(
    ("engine", "family", "file", "embedding", "head", "norm"),
    [pytest.param(engine, *row, id=f"{engine}-{row[0]}") for engine in ("vllm", "sglang") for row in TABLES[engine]],
)
def test_weights_on_every_stage(engine, family, file, embedding, head, norm):
    made = {"embedding": embedding, "lm_head": head, "norms": norm}
    expected = {name for name, where in made.items() if where == "every"}
    assert outside_rules(engine, family).on_every_stage - {"other"} == expected, file


def test_an_engine_makes_the_tables_where_its_class_does():
    """Qwen3-30B-A3B has 12 layers on each of four stages, an embedding and a head of 151,936 rows of 2,048: vLLM's
    `qwen3_moe.py` makes both and the last norm on every stage, SGLang's the head, and its `qwen2_moe.py` the embedding
    on the first and the norm on the last."""
    model, table, norm = "Qwen/Qwen3-30B-A3B", 2 * 151_936 * 2048, 2 * 2048
    in_vllm, in_sglang = ([s.weights for s in stages(model, engine, pp=4)] for engine in ("vllm", "sglang"))
    layers = (2 * ARCHITECTURES[model].parameters().total - 2 * table - norm) // 4
    assert in_vllm == [layers + 2 * table + norm] * 4
    assert in_sglang == [layers + 2 * table, layers + table, layers + table, layers + table + norm]


EXAONE = Architecture.from_config(
    {
        "model_type": "exaone4",
        "hidden_size": 2048,
        "intermediate_size": 4096,
        "num_attention_heads": 32,
        "num_hidden_layers": 30,
        "num_key_value_heads": 8,
        "tie_word_embeddings": True,
        "vocab_size": 102_400,
    }
)
"""EXAONE 4.0 1.2B."""
GEMMA_4 = Architecture.from_config(
    {
        "model_type": "gemma4_text",
        "global_head_dim": 512,
        "head_dim": 256,
        "hidden_size": 1536,
        "hidden_size_per_layer_input": 256,
        "intermediate_size": 6144,
        "num_attention_heads": 8,
        "num_hidden_layers": 35,
        "num_key_value_heads": 1,
        "vocab_size": 262_144,
        "vocab_size_per_layer_input": 262_144,
    }
)
"""Gemma 4 with the sizes of E2B's per-layer embeddings."""


def laid_out(model, engine, **layout):
    return Serving.of(model, engine, Precision(weights="bf16"), Layout(**layout), Overhead()).laid_out.stages


def test_a_tied_head_is_a_table_of_its_own_where_the_class_makes_one():
    """vLLM's `jamba.py` makes a head and ties nothing: Jamba Reasoning 3B holds all that its checkpoint stores, the
    head too (huggingface.co/ai21labs/AI21-Jamba-Reasoning-3B: 3,197,109,632). SGLang's `lfm2.py` copies the embedding
    into one, 65,536 rows of 2,048. Its `exaone4.py` shares the embedding on one stage alone."""
    (jamba,) = stages("ai21labs/AI21-Jamba-Reasoning-3B")
    assert jamba.weights == 2 * 3_197_109_632
    for model in ("LiquidAI/LFM2-1.2B", "LiquidAI/LFM2-8B-A1B"):
        (in_vllm,), (in_sglang,) = (stages(model, engine) for engine in ("vllm", "sglang"))
        assert in_sglang.weights - in_vllm.weights == 2 * 65_536 * 2048
    table, norm = 2 * 102_400 * 2048, 2 * 2048
    layers = (2 * EXAONE.parameters().total - table - norm) // 3
    assert [s.weights for s in laid_out(EXAONE, SGLang())] == [3 * layers + table + norm]
    over_three = [s.weights for s in laid_out(EXAONE, SGLang(), pp=3)]
    assert over_three == [layers + 2 * table, layers + table, layers + table + norm]


def test_per_layer_embeddings_stand_with_the_embedding():
    """35 layers' inputs of 256 are read from a table of 262,144 rows and projected from 1,536: vLLM's `gemma4.py` makes
    all of it on every stage, divided over the ranks (`VocabParallelEmbedding`, `ColumnParallelLinear`), SGLang's
    `gemma4_causal.py` on the first, whole on each rank."""
    table, projection, norm = 2 * 262_144 * 35 * 256, 2 * 35 * 256 * 1536, 2 * 256
    embedding, last = 2 * 262_144 * 1536, 2 * 1536
    tables = table + projection + norm + embedding
    layers = 2 * GEMMA_4.parameters().total - tables - last
    on_stages = [s.weights for s in laid_out(GEMMA_4, VLLM(), pp=5)]
    assert sum(on_stages) == layers + 5 * (tables + last)
    (alone,), (half,) = laid_out(GEMMA_4, VLLM()), laid_out(GEMMA_4, VLLM(), tp=2)
    whole = SGLang(SGLangOptions(disable_cuda_graph=True))
    (of_two,) = laid_out(GEMMA_4, whole, tp=2)
    assert alone.weights == layers + tables + last
    assert of_two.weights - half.weights == (table + projection + embedding) // 2
    first, *between, final = (stage - tables - last for stage in on_stages)
    assert [s.weights for s in laid_out(GEMMA_4, whole, pp=5)] == [first + tables, *between, final + embedding + last]


def test_a_wrapper_by_transformers_has_tables_at_the_ends():
    """vLLM 0.33 has no class of Aya Vision: `models/transformers/base.py` embeds on the first stage and on the last,
    where `commandr.py`, by which Cohere's own wrapper runs, embeds on each."""
    text = {"model_type": "cohere2", "vocab_size": 256_000}
    encoder = {"model_type": "siglip_vision_model"}
    stages_of = {
        wrapper: laid_out(
            Architecture.from_config({"model_type": wrapper, "text_config": text, "vision_config": encoder}),
            VLLM(),
            pp=4,
        )
        for wrapper in ("aya_vision", "cohere2_vision")
    }
    pairs = zip(stages_of["cohere2_vision"], stages_of["aya_vision"], strict=True)
    embedding, norm = 2 * 256_000 * 8192, 2 * 8192
    assert [own.weights - plain.weights for own, plain in pairs] == [norm, *[embedding + norm] * 2, 0]


def test_a_tied_head_is_divided_where_it_stands_alone():
    """Gemma 4 31B has 262,144 rows of 5,376: SGLang's embedding is whole on each rank, its head on another stage in
    halves (`gemma4_causal.py: Gemma4TextScaledWordEmbedding`, `ParallelLMHead`)."""
    (alone,) = stages("google/gemma-4-31B-it", "sglang", tp=2)
    first, last = stages("google/gemma-4-31B-it", "sglang", tp=2, pp=2)
    assert first.weights + last.weights - alone.weights == 2 * 262_144 * 5_376 // 2


def test_a_log_has_both_tables_on_a_stage():
    """vLLM 0.15.2, Qwen3-Coder-30B in fp8 on a stage of 16 layers and one of 32 (github.com/vllm-project/vllm/issues/
    34076): an RTX 5070 Ti has 3.18 GiB for the cache, 0.58 less than if another stage had the embedding or the head."""
    found = serving("Qwen/Qwen3-30B-A3B", weights="fp8", pp=2)
    found = found.with_engine(found.engine.with_options(version="0.15.2", gpu_memory_utilization=0.9))
    first, _ = found.weighing.stages([range(16), range(16, 48)])
    budget = found.on(gpus()["rtx-5070-ti"], Workload(context=34_736)).room(HIGH).budgets[0]
    taken = sum(budget.allocated.values()) - budget.allocated["weights"] + first.loaded.total
    assert (budget.requested - taken) / GIB == pytest.approx(3.18, abs=0.02)


@given(MODELS, NAMES, st.sampled_from([1, 2, 4]), st.integers(1, 64), st.integers(1, 100_000))
def test_more_ranks_never_make_one_heavier(model, engine, tp, batch, context):
    assume(divides(ARCHITECTURES[model], 2 * tp))
    workload = Workload(batch=batch, context=context)
    few, more = (serving(model, engine, tp=ranks).on(gpus()["h100-sxm"], workload).memory for ranks in (tp, 2 * tp))
    assert more.weights <= few.weights
    assert more.kv_cache <= few.kv_cache
    assert more.activations <= few.activations


@pytest.mark.parametrize(
    ("model", "layout", "field", "nearest"),
    [
        ("Qwen/Qwen2.5-3B", {"tp": 3}, "tp", (2, 4)),
        ("openai-community/gpt2", {"tp": 8}, "tp", (6, 12)),
        ("Qwen/Qwen2.5-3B", {"pp": 37}, "pp", (36,)),
    ],
)
def test_what_can_not_be_divided(model, layout, field, nearest):
    with pytest.raises(ConfigError) as caught:
        stages(model, **layout)
    assert (caught.value.field, caught.value.nearest) == (field, nearest)
    for value in nearest:
        assert stages(model, **{field: value})


@pytest.mark.parametrize(
    ("layout", "held", "width", "heads"),
    [  # DeepSeek-V3: 256 experts 2,048 wide, 128 heads
        pytest.param(Layout(tp=8), 256, 256, 16, id="each expert cut into eight"),
        pytest.param(Layout(tp=8, ep=8), 32, 2048, 16, id="whole experts, attention cut"),
        pytest.param(Layout(dp=8, ep=8), 32, 2048, 128, id="whole experts, attention whole"),
        pytest.param(Layout(tp=2, dp=4, ep=4), 64, 1024, 64, id="experts halved between two ranks"),
        pytest.param(Layout(dp=3, ep=3), 86, 2048, 128, id="86, 85 and 85 experts"),
    ],
)
def test_where_routed_experts_are(layout, held, width, heads):
    shapes = {
        t.name: t for t in layout.rank(ARCHITECTURES["deepseek-ai/DeepSeek-V3"]).tensors() if t.excluded_as is None
    }
    layer = "model.layers.{layer}."
    assert shapes[f"{layer}mlp.experts.{{expert}}.up_proj.weight"].experts == held
    assert shapes[f"{layer}mlp.experts.{{expert}}.up_proj.weight"].shape == (width, 7168)
    assert shapes[f"{layer}mlp.gate.weight"].shape == (256, 7168)
    assert shapes[f"{layer}self_attn.q_b_proj.weight"].shape == (heads * 192, 1536)


@pytest.mark.parametrize("model", ["deepseek-ai/DeepSeek-V3", "openai/gpt-oss-120b", "Qwen/Qwen3-30B-A3B"])
@pytest.mark.parametrize("dp", [2, 4, 8])
def test_copies_share_the_experts_and_nothing_else(model, dp):
    experts = 2 * ARCHITECTURES[model].parameters().components["experts_routed"]
    rest = 2 * ARCHITECTURES[model].parameters().total - experts
    spread, cut = (stages(model, dp=dp, ep=ep)[0].weights for ep in (dp, 1))
    assert spread == rest + experts // dp
    assert rest <= cut <= spread + experts // 100  # biases of slices are not cut


@given(MODELS, NAMES, st.sampled_from([1, 2, 4]), st.integers(1, 64), st.integers(1, 100_000))
def test_each_copy_caches_its_share(model, engine, dp, batch, context):
    gpu = gpus()["h100-sxm"]
    whole, one = (
        serving(model, engine).on(gpu, Workload(batch=sequences, context=context)).memory.kv_cache
        for sequences in (batch, -(-batch // dp))
    )
    share = serving(model, engine, dp=dp).on(gpu, Workload(batch=batch, context=context)).memory.kv_cache
    assert share == one
    assert share * dp >= whole


@pytest.mark.parametrize(
    ("model", "found"),
    [
        pytest.param("Qwen/Qwen2.5-3B", [(1, 1), (2, 1), (4, 1), (8, 1)], id="tensor parallel inside a server"),
        pytest.param("openai-community/gpt2", [(1, 1), (2, 1), (3, 1), (4, 1), (6, 1)], id="12 heads"),
    ],
)
def test_ways_to_share_every_layer(model, found):
    assert [(shape.tp, shape.dp) for shape in shapes(ARCHITECTURES[model])] == found


def test_ways_to_share_experts():
    """Data-parallel attention with the experts of all ranks: DP 8 + EP 8 of DeepSeek-V3 among them."""
    found = list(shapes(ARCHITECTURES["deepseek-ai/DeepSeek-V3"]))
    assert Layout(dp=8, ep=8) in found
    assert Layout(tp=4, dp=2, ep=8) in found
    assert all(shape.ep in (1, shape.tp * shape.dp) for shape in found)
    assert len(set(found)) == len(found)


@pytest.mark.parametrize(
    ("model", "layout", "nearest"),
    [
        ("Qwen/Qwen2.5-3B", {"tp": 2, "ep": 2}, (1,)),
        ("Qwen/Qwen3-30B-A3B", {"tp": 2, "ep": 4}, (1, 2)),
        ("Qwen/Qwen3-30B-A3B", {"dp": 256, "ep": 256}, (1, 2, 4, 8, 16, 32, 64, 128)),
    ],
)
def test_experts_that_can_not_be_shared_so(model, layout, nearest):
    with pytest.raises(ConfigError) as caught:
        Layout(**layout).check(ARCHITECTURES[model])
    assert (caught.value.field, caught.value.nearest) == ("ep", nearest)
