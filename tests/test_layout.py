"""How a model is spread over GPUs."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calc import Architecture, ConfigError, Layout, Overhead, Precision, Workload
from calc.inference import GIB, Serving
from presets import models

LOGS = "github.com/vllm-project/vllm/issues"
ARCHITECTURES = {name: Architecture.from_config(preset.config) for name, preset in models().items()}


def stages(model, weights="bf16", **layout):
    return Serving(ARCHITECTURES[model], Precision(weights=weights), Layout(**layout), Overhead()).stages


@pytest.mark.parametrize(
    ("model", "weights", "tp", "gib"),
    [  # "Loading model weights took" of one rank; vLLM adds its rotary table and the allocator rounds up
        pytest.param("meta-llama/Llama-3.1-8B", "bf16", 1, 14.9888, id="Llama-3.1-8B: 14.9576 and a table of 0.0313"),
        pytest.param("Qwen/Qwen2.5-7B", "bf16", 2, 7.1217, id=f"Qwen2-7B: {LOGS}/17395"),
        pytest.param("mistralai/Mixtral-8x22B-v0.1", "bf16", 8, 32.7642, id=f"Mixtral-8x22B: {LOGS}/4344"),
        pytest.param("Qwen/Qwen3-30B-A3B", "fp8", 2, 14.53, id=f"Qwen3-30B-A3B in fp8: {LOGS}/39682"),
    ],
)
def test_weights_of_a_rank_as_logged(model, weights, tp, gib):
    (stage,) = stages(model, weights, tp=tp)
    assert -0.005 * gib < stage.weights / GIB - gib <= 0


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
    [(61, 1, [61]), (61, 2, [31, 30]), (61, 16, [4] * 13 + [3] * 3), (36, 4, [9, 9, 9, 9]), (5, 5, [1] * 5)],
)
def test_layers_of_each_stage(layers, pp, stages):
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
