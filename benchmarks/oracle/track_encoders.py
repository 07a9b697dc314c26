"""python -m benchmarks.oracle.track_encoders VLLM: elements of a patch that are alive at once in encoders of vLLM 0.33.

VLLM is the folder into which its wheel was unpacked. Nothing of it is copied: the classes of a file run on fake
tensors, with stand-ins for its kernels and divided matrices on one rank, and every storage is tracked. Needs torch,
transformers and einops. The figures are those of tests/calc/serving/engines/vllm/test_limits.py.
"""

import __future__

import ast
import builtins
import functools
import math
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import einops
import numpy as np
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import Gemma4VisionConfig
from transformers.models.gemma4.modeling_gemma4 import Gemma4VisionEncoder
from transformers.models.pixtral.modeling_pixtral import apply_rotary_pos_emb

from benchmarks.oracle.track import Storages

MODELS = "model_executor/models"
ANNOTATIONS = __future__.annotations.compiler_flag
PATCHES = 4096


class Anything(type):
    """A class of which every attribute, item and union is the class itself."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return cls

    def __getitem__(cls, name: Any) -> Any:
        return cls

    def __or__(cls, other: Any) -> Any:
        return cls

    __ror__ = __or__


class Unused(metaclass=Anything):
    """What a file imports and its encoder does not need."""

    def __init__(self, *args: Any, **more: Any) -> None:
        pass

    def __call__(self, *args: Any, **more: Any) -> Any:
        return args[0] if args else self

    def __or__(self, other: Any) -> Any:
        return self


class Matrix(nn.Module):
    """A matrix that is divided over ranks, on one of them: a result and the bias that it leaves to others."""

    def __init__(self, input_size: int, output_size: int, return_bias: bool = True, **more: Any) -> None:
        super().__init__()
        self.inner, self.return_bias = nn.Linear(input_size, output_size), return_bias

    def forward(self, x: torch.Tensor) -> Any:
        return (self.inner(x), None) if self.return_bias else self.inner(x)


class Projected(Matrix):
    def __init__(self, hidden_size: int, head_size: int, total_num_heads: int, *args: Any, **more: Any) -> None:
        super().__init__(hidden_size, 3 * head_size * total_num_heads)


class GateAndUp(Matrix):
    def __init__(self, input_size: int, output_sizes: list[int], **more: Any) -> None:
        super().__init__(input_size, sum(output_sizes))


class Kernel(nn.Module):
    """Writes a new tensor as large as its first; in attention that is the mean of values."""

    attn_backend = "FLASH_ATTN"

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__()

    def forward(self, *args: Any, query: Any = None, **more: Any) -> torch.Tensor:
        return torch.empty_like(args[0] if query is None else query, memory_format=torch.contiguous_format)


class Product(Kernel):
    def forward(self, x: torch.Tensor, *args: Any, query: Any = None, **more: Any) -> torch.Tensor:
        return torch.empty(*x.shape[:-1], x.shape[-1] // 2)


class Norm(nn.Module):
    def __init__(self, hidden_size: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight, self.variance_epsilon = nn.Parameter(torch.ones(hidden_size)), eps

    def forward(self, x: torch.Tensor, residual: torch.Tensor | None = None) -> Any:
        return torch.empty_like(x) if residual is None else (x.copy_(residual.add_(x)), residual)


class Convolution(nn.Conv2d):
    def forward_native(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x.flatten(1), self.weight.flatten(1), self.bias)


class Convolution3(nn.Module):
    """Of patches that do not overlap: a matrix."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: tuple[int, ...], **more: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_channels, in_channels, *kernel_size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x.flatten(1), self.weight.flatten(1))


def turned(x: torch.Tensor, *args: Any) -> torch.Tensor:
    return x.mul_(1)


GIVEN: dict[str, Any] = {
    "torch": torch,
    "nn": nn,
    "F": nn.functional,
    "np": np,
    "math": math,
    "partial": functools.partial,
    "cached_property": functools.cached_property,
    "einops": einops,
    "rearrange": einops.rearrange,
    "repeat": einops.repeat,
    "Sequence": tuple,
    "ColumnParallelLinear": Matrix,
    "RowParallelLinear": Matrix,
    "ReplicatedLinear": Matrix,
    "QKVParallelLinear": Projected,
    "MergedColumnParallelLinear": GateAndUp,
    "MMEncoderAttention": Kernel,
    "ApplyRotaryEmb": Kernel,
    "RMSNorm": Norm,
    "LayerNorm": nn.LayerNorm,
    "QuickGELU": nn.GELU,
    "GELUActivation": nn.GELU,
    "SiluAndMul": Product,
    "SiluAndMulWithClamp": Product,
    "Conv2dLayer": Convolution,
    "Conv3dLayer": Convolution3,
    "IdentityInputNorm": Kernel,
    "PreTrainedModel": nn.Module,
    "get_act_fn": lambda name: nn.GELU(),
    "get_act_and_mul_fn": lambda name: Product(),
    "maybe_fused_act_quant": lambda act, x, matrix: act(x),
    "is_vit_use_data_parallel": lambda *args: False,
    "get_tensor_model_parallel_world_size": lambda: 1,
    "get_tensor_model_parallel_rank": lambda: 0,
    "divide": lambda whole, parts: whole // parts,
    "dist_utils": SimpleNamespace(divide=lambda whole, parts: whole // parts),
    "parallel_state": SimpleNamespace(
        get_tensor_model_parallel_world_size=lambda: 1, get_tensor_model_parallel_rank=lambda: 0
    ),
    "maybe_prefix": lambda prefix, name: name,
    "deepcopy": lambda x: x,
    "HAS_TRITON": True,
    "packed_qk_rope_": turned,
    "triton_mrope": lambda q, k, *args, **more: (turned(q), turned(k)),
    "fused_q_kv_rmsnorm": lambda q, k, *args: (torch.empty_like(q), torch.empty_like(k)),
    "support_torch_compile": lambda *args, **more: lambda cls: cls,
    "resolve_visual_encoder_outputs": lambda out, *args, **more: out,
    "NORM2FN": {"layer_norm": nn.LayerNorm},
    "ACT2FN": {"gelu_pytorch_tanh": nn.GELU()},
}


def classes(path: Path, given: Mapping[str, Any] = GIVEN) -> dict[str, Any]:
    """What a file of vLLM defines, by name. What does not run without the rest of vLLM is left out."""
    tree = ast.parse(path.read_text())
    body = [node for node in tree.body if not isinstance(node, ast.Import | ast.ImportFrom | ast.Try)]
    defined = {node.name for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    read = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    space = {name: Unused for name in read - defined if not hasattr(builtins, name)} | dict(given)
    for node in body:
        try:
            exec(compile(ast.Module([node], []), str(path), "exec", flags=ANNOTATIONS), space)
        except Exception:
            if isinstance(node, ast.ClassDef):
                space[node.name] = Unused
    return space


def elements(make: Callable[[], nn.Module], run: Callable[[nn.Module, torch.Tensor], Any], *pixels: int) -> int:
    """Elements of 16 bits a patch at the peak of a pass of PATCHES patches, beside its pixels."""
    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        torch.set_default_dtype(torch.bfloat16)
        module, images = make().eval(), torch.empty(pixels)
        known = {t.untyped_storage()._cdata for t in (*module.parameters(), *module.buffers(), images)}
        with Storages(known) as storages:
            run(module, images)
    return storages.peak // PATCHES // 2


def sizes(hidden: int, intermediate: int, heads: int = 16, **more: Any) -> SimpleNamespace:
    """A vision_config of three layers."""
    usual = {"patch_size": 14, "num_channels": 3, "in_channels": 3, "hidden_act": "gelu", "layer_norm_eps": 1e-6}
    counts = {"num_hidden_layers": 3, "depth": 3, "num_attention_heads": heads, "num_heads": heads}
    return SimpleNamespace(
        hidden_size=hidden, intermediate_size=intermediate, **(usual | counts | {"attention_dropout": 0.0} | more)
    )


def layers(block: Callable[[], nn.Module], *shape: int, **more: Any) -> int:
    """Of three layers alone, of which the first gets what nothing else keeps."""

    def run(stack: nn.Module, x: torch.Tensor) -> None:
        x = x.clone()
        for layer in stack.children():
            x = layer(x, **more)

    return elements(lambda: nn.ModuleList(block() for _ in range(3)), run, *shape)


ROTARY: dict[str, Any] = {
    "cu_seqlens": torch.empty(0),
    "rotary_pos_emb_cos": torch.empty(0),
    "rotary_pos_emb_sin": torch.empty(0),
    "max_seqlen": None,
}
COMPLEX = torch.empty(PATCHES, 36, dtype=torch.complex64)


def siglip(root: Path) -> int:
    config = sizes(1152, 4304, image_size=896)
    given = GIVEN | {"VocabParallelEmbedding": nn.Embedding, "EncoderOnlyAttention": Unused}
    make = classes(root / MODELS / "siglip.py", given)["SiglipVisionTransformer"]
    return elements(lambda: make(config), lambda tower, x: tower(x), 1, 3, 896, 896)


def idefics(root: Path) -> int:
    make = classes(root / MODELS / "idefics2_vision_model.py")["Idefics2EncoderLayer"]
    return layers(lambda: make(sizes(1152, 4304)), 1, PATCHES, 1152, attention_mask=None)


def intern(root: Path) -> int:
    """Four tiles, each with a state for the whole."""
    more = {"qkv_bias": True, "qk_normalization": False, "norm_type": "layer_norm", "initializer_factor": 1.0}
    make = classes(root / MODELS / "intern_vit.py")["InternVisionModel"]
    found = elements(lambda: make(sizes(1024, 4096, image_size=448, **more)), lambda tower, x: tower(x), 4, 3, 448, 448)
    return found * 1024 // 1025


def kimi_k25(root: Path, hidden: int = 1152, inner: int = 4304, heads: int = 16, qkv: int | None = None) -> int:
    more = {"merge_kernel_size": (2, 2), "activation_func": None, "qkv_hidden_size": qkv}
    positions = {f"init_pos_emb_{side}": size for side, size in (("height", 64), ("width", 64), ("time", 4))}
    config = sizes(hidden, inner, heads, **(more | positions | {"patch_size": (14, 14)}))
    space = classes(root / MODELS / "kimi_k25_vit.py")
    metadata = {"rope_freqs_cis": COMPLEX, "cu_seqlens": torch.empty(0), "max_seqlen": torch.empty(())}
    space["MoonViT3dEncoder"].prepare_encoder_metadata = lambda *args, **more: metadata
    make = space["MoonViT3dPretrainedModel"]
    return elements(lambda: make(config), lambda tower, x: tower(x, [[1, 64, 64]]), PATCHES, 3, 14, 14)


def kimi_vl(root: Path) -> int:
    given = GIVEN | {"MLP2": classes(root / MODELS / "kimi_k25_vit.py")["MLP2"], "PytorchGELUTanh": nn.GELU}
    make = classes(root / MODELS / "moonvit.py", given)["MoonVitEncoderLayer"]
    more = {"cu_seqlens": torch.empty(0), "rope_freqs_cis": COMPLEX, "max_seqlen": torch.empty(())}
    found = layers(lambda: make(16, 1152, 4304, activation=nn.GELU(), attn_bias=True), PATCHES, 1152, **more)
    return found + 1152  # embeddings


def llama4(root: Path) -> int:
    """Seven tiles, each with a state for the whole."""
    rotary = classes(
        root / "model_executor/layers/rotary_embedding/llama4_vision_rope.py",
        GIVEN | {"RotaryEmbeddingBase": nn.Module},
    )

    class Rotary(nn.Module):
        cos_sin_cache = torch.empty(577, 1, 44, dtype=torch.complex64)

        def forward(self, query: torch.Tensor, key: torch.Tensor) -> Any:
            return rotary["Llama4VisionRotaryEmbedding"].forward_native(self, query, key)

    config = sizes(1408, 5632, image_size=336, rope_parameters={"rope_theta": 10_000}, pixel_shuffle_ratio=0.5)
    config.projector_input_dim = config.projector_output_dim = 4096
    config.multi_modal_projector_bias = False
    make = classes(root / MODELS / "mllama4.py", GIVEN | {"get_rope": lambda **more: Rotary()})["Llama4VisionModel"]
    return elements(lambda: make(config), lambda tower, x: tower(x), 7, 3, 336, 336) * PATCHES // (7 * 577)


def minimax_m3(root: Path) -> int:
    config = sizes(1280, 5120, img_token_compression_config={"spatial_merge_size": 2, "temporal_patch_size": 2})
    make = classes(root / "models/minimax_m3/common/vision_tower.py")["MiniMaxVLVisionModel"]
    names = ("rotary_cos", "rotary_sin", "cu_seqlens", "max_seqlen")
    metadata = dict.fromkeys(names, torch.empty(0))
    return elements(
        lambda: make(config, 6144, 6144), lambda tower, x: tower(x, encoder_metadata=metadata), PATCHES, 2 * 3 * 14 * 14
    )


def pixtral(root: Path) -> int:
    class Rotary(Kernel):
        def forward(self, *args: Any, query: Any = None, **more: Any) -> Any:
            return torch.empty(PATCHES, 64), torch.empty(PATCHES, 64)

    space = classes(root / MODELS / "pixtral.py")
    space |= {
        "PixtralVisionRotaryEmbedding": Rotary,
        "apply_rotary_pos_emb": apply_rotary_pos_emb,
        "position_ids_in_meshgrid": lambda *args, **more: torch.empty(PATCHES),
        "_make_packed_sequence_metadata": lambda *args: (torch.empty(0), torch.empty(()), None),
    }
    make = space["PixtralHFVisionModel"]
    return elements(lambda: make(sizes(1024, 4096, image_size=896)), lambda tower, x: tower([x]), 3, 896, 896)


def qwen2(root: Path) -> int:
    make = classes(root / MODELS / "qwen2_vl.py")["Qwen2VisionBlock"]
    return layers(lambda: make(1280, 16, 4.0), PATCHES, 1, 1280, **ROTARY)


def qwen3(root: Path, out: int = 5120, deepstack: int = 0) -> int:
    attention = classes(root / MODELS / "qwen2_5_vl.py")["Qwen2_5_VisionAttention"]
    acts = {"gelu": nn.GELU()}
    given = GIVEN | {"Qwen2_5_VisionAttention": attention, "_ACTIVATION_REGISTRY": acts, "get_rope": Unused}
    kinds = {"FLASH_ATTN": "FLASH_ATTN", "TORCH_SDPA": 1, "ROCM_AITER_FA": 2, "FLASHINFER": 3, "TRITON_ATTN": 4}
    given |= {"get_vit_attn_backend": lambda **more: "FLASH_ATTN", "AttentionBackendEnum": SimpleNamespace(**kinds)}
    config = sizes(1152, 4304, depth=deepstack + 2, patch_size=16, temporal_patch_size=2, spatial_merge_size=2)
    config.out_hidden_size, config.num_position_embeddings = out, 2304
    config.deepstack_visual_indexes = list(range(deepstack))
    make = classes(root / MODELS / "qwen3_vl.py", given)["Qwen3_VisionTransformer"]

    def run(tower: nn.Module, x: torch.Tensor) -> None:
        tower(x, [[1, 64, 64]], encoder_metadata=ROTARY | {"pos_embeds": torch.empty(PATCHES, 1152)})

    return elements(lambda: make(config), run, PATCHES, 2 * 3 * 16 * 16)


def glm4(root: Path) -> int:
    make = classes(root / MODELS / "glm4_1v.py")["Glm4vVisionBlock"]
    return layers(lambda: make(1536, 12, 4096, norm_layer=Norm), PATCHES, 1, 1536, **ROTARY) + 1536  # positions


def glm5(root: Path) -> int:
    make = classes(root / "models/glm5next/common/multimodal.py")["Glm5NextVisionBlock"]
    return layers(lambda: make(1024, 16, 4096, 7.0, norm_layer=Norm), PATCHES, 1, 1024, **ROTARY)


def gemma4(root: Path) -> int:
    """By transformers, eager but for attention."""
    heads = {"num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 72, "global_head_dim": 72}
    config = Gemma4VisionConfig(hidden_size=1152, intermediate_size=4304, num_hidden_layers=3, **heads)
    config._attn_implementation = "sdpa"

    def run(encoder: nn.Module, x: torch.Tensor) -> None:
        at = torch.zeros(*x.shape[:2], 2, dtype=torch.long)
        embedded = x.clone()
        encoder(inputs_embeds=embedded, attention_mask=None, pixel_position_ids=at)

    return elements(lambda: Gemma4VisionEncoder(config), run, 1, PATCHES, 1152)


def gemma4_unified(root: Path) -> int:
    """A patch is a token of 48 x 48 pixels."""
    make = classes(root / MODELS / "gemma4_unified.py")["Gemma4UnifiedVisionEmbedder"]
    config = SimpleNamespace(model_patch_size=48, mm_embed_dim=3840, mm_posemb_size=1120)

    def run(embedder: nn.Module, x: torch.Tensor) -> None:
        embedder(x, torch.zeros(PATCHES, 2, dtype=torch.long))

    return elements(lambda: make(config), run, PATCHES, 3 * 48 * 48)


TRACKED: dict[str, Callable[[Path], int]] = {
    "SigLIP": siglip,
    "Idefics 2, in MiniCPM-V": idefics,
    "InternViT": intern,
    "Kimi K2.5": kimi_k25,
    "Kimi K3": lambda root: kimi_k25(root, 1024, 4096, 12, 1536),
    "Kimi-VL": kimi_vl,
    "Llama 4": llama4,
    "MiniMax-M3": minimax_m3,
    "Pixtral": pixtral,
    "Qwen2-VL": qwen2,
    "Qwen3.5-27B": qwen3,
    "Qwen3-VL-30B": lambda root: qwen3(root, 2048, 3),
    "Qwen3-VL-32B": lambda root: qwen3(root, 5120, 3),
    "GLM-4.1V": glm4,
    "GLM-5-Next": glm5,
    "Gemma 4": gemma4,
    "Gemma 4 12B": gemma4_unified,
}

if __name__ == "__main__":
    for name, track in TRACKED.items():
        print(f"{name:<24} {track(Path(sys.argv[1])):>8,}")
