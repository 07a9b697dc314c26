"""The drawing's parts: every tensor of every preset in one place, and the shapes that papers show."""

import pytest

from calc import Architecture
from calc.model.diagram import diagram
from presets import models
from tests.cases import in_one_test


def parts(name):
    return diagram(Architecture.from_config(models()[name].config))


@in_one_test("name", models())
def test_every_tensor_stands_in_one_place(name):
    architecture = Architecture.from_config(models()[name].config)
    found = diagram(architecture)
    modules = [found.embedding, *(module for kind in found.kinds for module in kind.modules), *found.others]
    modules += [module for module in (found.norm, found.head) if module is not None]
    drawn = [tensor for module in modules for tensor in module.tensors]
    assert sum(tensor.parameters for tensor in drawn) == architecture.parameters().total
    assert len(drawn) == len({id(tensor) for tensor in drawn})
    beside = sum(tensor.parameters for _, module in found.aside for tensor in module.tensors)
    assert beside == sum(architecture.parameters().not_in_total.values())


def test_deepseek_v3_has_three_dense_layers_and_58_with_experts():
    """DeepSeek-V3 section 4.2, arXiv:2412.19437."""
    dense, sparse = parts("deepseek-ai/DeepSeek-V3").kinds
    assert [len(kind.block.runs_in) for kind in (dense, sparse)] == [3, 58]
    assert [module.component for module in dense.feeding] == ["mlp"]
    assert [module.component for module in sparse.feeding] == ["router", "experts_routed", "experts_shared"]
    stages = [[tensor.name.rpartition("proj")[0].rpartition(".")[2] for tensor in stage] for stage in
              sparse.mixers[0].stages(7168)]  # fmt: skip
    assert stages == [["q_a_", "kv_a_"], ["q_b_", "kv_b_"], ["o_"]]
    assert sparse.cached[0][1] == 512 + 64


@pytest.mark.parametrize(
    ("name", "last"),
    [
        ("openai-community/gpt2", ["attn.c_proj", "mlp.c_proj"]),
        ("openai/gpt-oss-20b", ["self_attn.o_proj", "mlp.experts.down_proj"]),
        ("EleutherAI/gpt-neox-20b", ["attention.dense", "mlp.dense_4h_to_h"]),
        ("Zyphra/Zamba-7B-v1", ["mamba.out_proj"]),
    ],
)
def test_what_a_module_ends_with(name, last):
    found = parts(name)
    kind = found.kinds[0]
    ends = [module.stages(1)[-1] for module in (*kind.mixers, *kind.feeding) if len(module.stages(1)) > 1]
    names = [tensor.name.partition("{layer}.")[2].removesuffix(".weight") for (tensor,) in ends]
    assert names == last


@pytest.mark.parametrize(
    ("name", "parallel", "behind"),
    [
        ("EleutherAI/gpt-j-6b", True, False),
        ("EleutherAI/gpt-neox-20b", True, False),
        ("meta-llama/Llama-3.1-8B", False, False),
        ("google/gemma-2-27b", False, True),
        ("allenai/OLMo-2-0325-32B", False, True),
    ],
)
def test_how_a_layer_reads_the_state(name, parallel, behind):
    (kind, *_) = parts(name).kinds
    assert (kind.parallel, kind.norms_behind) == (parallel, behind)


def test_a_tied_head_is_the_embedding():
    assert parts("Qwen/Qwen2.5-3B").head is None
    assert parts("Qwen/Qwen3-8B").head is not None
