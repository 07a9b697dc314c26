"""How a model is spread over GPUs."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calc import Architecture, ConfigError, Layout, Overhead, Precision, Workload
from calc.formats import FORMATS
from calc.hardware.parallel import divides
from calc.serving.memory import Serving
from calc.serving.weights import MIB, Parts, rounded, stored_bytes
from calc.units import GIB
from presets import models

LOGS = "github.com/vllm-project/vllm/issues"
ARCHITECTURES = {name: Architecture.from_config(preset.config) for name, preset in models().items()}


def stages(model, weights="bf16", **layout):
    return Serving(ARCHITECTURES[model], Precision(weights=weights), Layout(**layout), Overhead()).stages


def loaded(model, weights="bf16", engine="vllm", changes=(), **layout):
    architecture = Architecture.from_config(models()[model].config | dict(changes))
    return stored_bytes(architecture, Precision(weights=weights), Layout(**layout), engine)


@pytest.mark.parametrize(
    ("model", "weights", "changes", "tp", "gib"),
    [  # "Loading model weights took" of one rank, to its last digit
        pytest.param("meta-llama/Llama-3.1-8B", "bf16", {}, 1, 14.9888, id=f"Llama-3.1-8B: {LOGS}/16141"),
        pytest.param("Qwen/Qwen3-8B", "bf16", {}, 1, 15.2683, id="Qwen3-8B on an A100-40"),
        pytest.param(
            "Qwen/Qwen2.5-7B", "bf16", {"max_position_embeddings": 32_768}, 2, 7.1217, id=f"Qwen2-7B: {LOGS}/17395"
        ),
        pytest.param(
            "Qwen/Qwen2.5-32B", "bf16", {"max_position_embeddings": 32_768}, 1, 61.0374, id="Qwen2.5-32B or QwQ-32B"
        ),
        pytest.param("mistralai/Mixtral-8x22B-v0.1", "bf16", {}, 8, 32.7642, id=f"Mixtral-8x22B: {LOGS}/4344"),
        pytest.param("Qwen/Qwen3-30B-A3B", "fp8-tensor", {}, 2, 14.53, id=f"Qwen3-30B-A3B, fp8 online: {LOGS}/39682"),
        pytest.param("openai/gpt-oss-120b", "mxfp4", {}, 1, 65.9651, id=f"gpt-oss-120b on Marlin: {LOGS}/23278"),
    ],
)
def test_weights_of_a_rank_as_logged(model, weights, changes, tp, gib):
    (held,) = loaded(model, weights, changes=changes, tp=tp)
    assert held.total / GIB == pytest.approx(gib, rel=5e-4)


def test_gpt_oss_on_triton_as_logged():
    """gpt-oss-120b on an H100, vLLM 0.14.1: 64.38 GiB, github.com/vllm-project/vllm/issues/33155."""
    architecture = ARCHITECTURES["openai/gpt-oss-120b"]
    (held,) = stored_bytes(architecture, Precision(weights="mxfp4"), Layout(), "vllm", kernel="triton")
    assert held.total / GIB == pytest.approx(64.38, abs=0.005)


def test_gemma_with_its_tower_as_logged():
    """Gemma 3 27B on four GPUs, vLLM 0.8.2: 13.1665 GiB, github.com/vllm-project/vllm/issues/15676."""
    architecture, layout = ARCHITECTURES["google/gemma-3-27b-it"], Layout(tp=4)
    (held,) = stored_bytes(architecture, Precision(), layout, "vllm", tower=True)
    assert held.total / GIB == pytest.approx(13.1665, rel=0.002)
    (without,) = stored_bytes(architecture, Precision(), layout, "vllm")
    assert held.model_copy(update={"vision": 0}) == without


def test_a_draft_layer_as_logged():
    """DeepSeek-V3's own layer is listed with the draft; 13,463,426,304 parameters, of which a rank of one holds all."""
    architecture = ARCHITECTURES["deepseek-ai/DeepSeek-V3"]
    (held,) = stored_bytes(architecture, Precision(), Layout(), "transformers", draft=True)
    assert held.draft == 2 * 13_463_426_304


def test_parts_of_a_rank():
    """Llama 3.1 8B: 8,030,261,248 parameters and a table of 131,072 x 128, all of sizes that need no rounding."""
    (llama,) = loaded("meta-llama/Llama-3.1-8B")
    assert llama == Parts(weights=2 * 8_030_261_248, scales=0, rotary=2 * 131_072 * 128)
    (transformers,) = loaded("meta-llama/Llama-3.1-8B", engine="transformers")
    assert transformers == Parts(weights=2 * 8_030_261_248, scales=0)


@pytest.mark.parametrize(
    ("nbytes", "charged"),
    [  # c10/cuda/CUDACachingAllocator.cpp: kMinBlockSize 512 B, kMinLargeAlloc 10, kRoundLarge 2, kSmallSize 1 MiB
        (0, 0),
        (1, 512),
        (8192, 8192),
        (9 * MIB + 1, 9 * MIB + 512),
        (10 * MIB, 10 * MIB),
        (11 * MIB, 12 * MIB),
        (11 * MIB - 512, 11 * MIB - 512),
        (12 * MIB + 512, 12 * MIB + 512),
        (129 * MIB + 1, 130 * MIB),
    ],
)
def test_what_the_allocator_charges(nbytes, charged):
    assert rounded(nbytes) == charged


@pytest.mark.parametrize(
    ("model", "tables"),
    [  # vLLM `rotary_embedding/`: a row a position, a cosine and a sine for each pair of rotated columns
        pytest.param("meta-llama/Llama-3.1-8B", [(131_072, 128)], id="whole heads"),
        pytest.param("deepseek-ai/DeepSeek-V3", [(163_840, 64)], id="the rotary part of latent attention"),
        pytest.param(
            "google/gemma-3-27b-it", [(8 * 131_072, 128), (131_072, 128)], id="stretched 8 times, and windows"
        ),
        pytest.param("Qwen/Qwen3.5-27B", [(4 * 262_144, 64)], id="a quarter of heads of 256, in three axes"),
        pytest.param("zai-org/GLM-4-9B-0414", [(32_768, 64)], id="half of a head"),
        pytest.param("openai-community/gpt2", [], id="learned positions"),
        pytest.param("bigscience/bloom", [], id="alibi"),
        pytest.param("nvidia/Nemotron-H-8B-Base-8K", [], id="no positions"),
    ],
)
def test_rotary_tables(model, tables):
    assert list(ARCHITECTURES[model].rotary) == tables


def test_latent_attention_is_kept_twice():
    """vLLM's MLA: `kv_b_proj` once more in 16 bits where it is quantised, 512 x 32,768 in each of 61 layers."""
    (fp8,), (bf16,) = loaded("deepseek-ai/DeepSeek-V3", "fp8", tp=8), loaded("deepseek-ai/DeepSeek-V3", tp=8)
    assert (fp8.absorbed, bf16.absorbed) == (61 * 512 * 32_768 * 2 // 8, 0)


@pytest.mark.parametrize(
    ("model", "tp", "padding"),
    [
        ("openai-community/gpt2", 1, 47 * 768 * 2),  # 50,257 rows of the vocabulary become 50,304
        ("Qwen/Qwen2.5-3B", 1, 0),
    ],
)
def test_rows_that_vllm_adds(model, tp, padding):
    assert loaded(model, tp=tp)[0].padding == padding
    assert loaded(model, tp=tp, engine="transformers")[0].padding == 0


@pytest.mark.parametrize(("tp", "inner"), [(1, 2944), (2, 1536), (4, 768)])
def test_what_marlin_adds_to_gpt_oss(tp, inner):
    """Experts of 2,880 x 2,880 become 3,072 by the next multiple of 128 of a rank's share, 32 weights in 17 bytes."""
    (held,) = loaded("openai/gpt-oss-20b", "mxfp4", tp=tp)
    assert held.padding == 24 * 32 * 3 * (3072 * inner - 2880 * 2880 // tp) * 17 // 32


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
    shapes = {t.name: t.shape for t in tensors if t.apart is None}
    layer = "model.layers.{layer}."
    assert shapes[f"{layer}mlp.experts.{{expert}}.up_proj.weight"] == (256, 7168)
    assert shapes[f"{layer}mlp.shared_experts.down_proj.weight"] == (7168, 256)
    assert shapes[f"{layer}mlp.gate.weight"] == (256, 7168)
    assert shapes[f"{layer}self_attn.kv_a_proj_with_mqa.weight"] == (576, 7168)
    assert shapes[f"{layer}self_attn.q_b_proj.weight"] == (24_576 // 8, 1536)


@pytest.mark.parametrize(
    ("layers", "pp", "stages"),
    [
        (61, 1, [61]),
        (61, 2, [31, 30]),
        (61, 16, [3, 3, *[4] * 13, 3]),
        (22, 4, [5, 6, 6, 5]),
        (36, 4, [9, 9, 9, 9]),
        (5, 5, [1] * 5),
    ],
)
def test_layers_of_each_stage(layers, pp, stages):
    """vLLM's `get_pp_indices`."""
    assert [len(stage) for stage in Layout(pp=pp).stages(layers)] == stages


@given(st.sampled_from(list(ARCHITECTURES)), st.sampled_from([1, 2, 4, 8]), st.integers(1, 16))
@settings(deadline=None)
def test_stages_hold_the_whole_model_together(model, tp, pp):
    architecture, layout = ARCHITECTURES[model], {"tp": tp, "pp": pp}
    try:
        held = stages(model, **layout)
    except ConfigError as error:
        assert error.field in layout
        assert layout[error.field] not in error.nearest
        return
    whole = 2 * architecture.parameters().total
    table = architecture.tensors()[0].parameters
    head = 2 * table if architecture.tied and pp > 1 else 0  # a tied head stands on another GPU than the embedding
    assert len(held) == pp
    assert whole + head <= tp * sum(stage.weights for stage in held)
    assert max(stage.weights for stage in held) <= whole
    if tp == 1:
        assert sum(stage.weights for stage in held) == whole + head


@given(st.sampled_from(list(ARCHITECTURES)), st.sampled_from([1, 2, 4]), st.integers(1, 64), st.integers(1, 100_000))
def test_more_ranks_never_make_one_heavier(model, tp, batch, context):
    workload = Workload(batch=batch, context=context)
    try:
        few, more = (
            Serving(ARCHITECTURES[model], Precision(), Layout(tp=ranks), Overhead()).memory(workload)
            for ranks in (tp, 2 * tp)
        )
    except ConfigError as error:
        assert error.field == "tp"
        return
    assert more.weights <= few.weights
    assert more.kv_cache <= few.kv_cache
    assert more.activations <= few.activations


@pytest.mark.parametrize(
    ("model", "layout", "field", "nearest"),
    [
        ("Qwen/Qwen2.5-3B", {"tp": 3}, "tp", (1, 2, 4, 8, 16)),
        ("openai-community/gpt2", {"tp": 8}, "tp", (1, 2, 4)),
        ("Qwen/Qwen2.5-3B", {"pp": 37}, "pp", (36,)),
    ],
)
def test_what_can_not_be_divided(model, layout, field, nearest):
    with pytest.raises(ConfigError) as caught:
        stages(model, **layout)
    assert (caught.value.field, caught.value.nearest) == (field, nearest)
    for value in nearest:
        assert stages(model, **{field: value})


@given(
    st.sampled_from(list(ARCHITECTURES)), st.sampled_from([*FORMATS, "Q4_K_M", "IQ2_XS"]), st.sampled_from([1, 2, 4])
)
def test_more_ranks_never_make_one_heavier_in_any_format(model, weights, tp):
    architecture = ARCHITECTURES[model]
    if not divides(architecture, 2 * tp):
        return
    few, more = (
        stored_bytes(architecture, Precision(weights=weights), Layout(tp=ranks), "vllm")[0] for ranks in (tp, 2 * tp)
    )
    assert more.weights <= few.weights
    assert more.scales <= few.scales
    assert more.total <= few.total
    assert few.weights + few.scales <= 2 * (more.weights + more.scales)


@given(st.sampled_from(list(ARCHITECTURES)), st.sampled_from([*FORMATS, "Q4_K_M"]), st.integers(1, 5))
def test_stages_are_loaded_as_they_are_weighed(model, weights, pp):
    architecture = ARCHITECTURES[model]
    layout, precision = Layout(pp=min(pp, architecture.num_layers)), Precision(weights=weights)
    weighed = [stage.weights for stage in Serving(architecture, precision, layout, Overhead()).stages]
    held = stored_bytes(architecture, precision, layout, "transformers")
    assert [parts.weights + parts.scales for parts in held] == weighed


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
    shapes = {t.name: t for t in layout.rank(ARCHITECTURES["deepseek-ai/DeepSeek-V3"]).tensors() if t.apart is None}
    layer = "model.layers.{layer}."
    assert shapes[f"{layer}mlp.experts.{{expert}}.up_proj.weight"].experts == held
    assert shapes[f"{layer}mlp.experts.{{expert}}.up_proj.weight"].shape == (width, 7168)
    assert shapes[f"{layer}mlp.gate.weight"].shape == (256, 7168)
    assert shapes[f"{layer}self_attn.q_b_proj.weight"].shape == (heads * 192, 1536)


@pytest.mark.parametrize("model", ["deepseek-ai/DeepSeek-V3", "openai/gpt-oss-120b", "Qwen/Qwen3-30B-A3B"])
@pytest.mark.parametrize("dp", [2, 4, 8])
def test_copies_share_the_experts_and_nothing_else(model, dp):
    architecture = ARCHITECTURES[model]

    def rank(ep):
        return Serving(architecture, Precision(), Layout(dp=dp, ep=ep), Overhead()).stages[0].weights

    experts = 2 * architecture.parameters().components["experts_routed"]
    rest = 2 * architecture.parameters().total - experts
    assert rank(ep=dp) == rest + experts // dp
    assert rest <= rank(ep=1) <= rank(ep=dp) + experts // 100  # biases of slices are not cut


@given(st.sampled_from(list(ARCHITECTURES)), st.sampled_from([1, 2, 4]), st.integers(1, 64), st.integers(1, 100_000))
@settings(deadline=None)
def test_each_copy_caches_its_share(model, dp, batch, context):
    workload = Workload(batch=batch, context=context, engine="transformers")
    (whole,), (share,) = (
        Serving(ARCHITECTURES[model], Precision(), Layout(dp=copies), Overhead()).by_stage(workload)
        for copies in (1, dp)
    )
    one = Serving(ARCHITECTURES[model], Precision(), Layout(), Overhead()).by_stage(
        workload.model_copy(update={"batch": -(-batch // dp)})
    )[0]
    assert share.kv_cache == one.kv_cache
    assert share.kv_cache * dp >= whole.kv_cache


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
