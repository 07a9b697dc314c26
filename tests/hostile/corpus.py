"""Inputs that did harm once: a test reads each, and `python -m tests.hostile --corpus` times them."""

from typing import Any

from calc.formats.scheme import MAX_PATTERNS
from calc.serving.engines import ENGINES
from calc.text import MAX_CHARACTERS, pack
from presets import models
from tests import load

LLAMA = {"model_type": "llama"}
V4 = ("compressed_sparse_attention", "heavily_compressed_attention")
FP8 = {"quant_method": "fp8"}


def filled(piece: str) -> str:
    """A config of one list, as long as any that is read."""
    return '{"model_type":"llama","a":[' + ",".join([piece] * (MAX_CHARACTERS // (len(piece) + 1) - 9)) + "]}"


def skipping(*patterns: str) -> dict[str, str]:
    """A link to a deep model of which some modules are not quantized."""
    config = LLAMA | {"num_hidden_layers": 1024, "quantization_config": FP8 | {"ignored_layers": [*patterns]}}
    return {"pasted": pack(config)}


PATTERNS = {"quant_method": "fp8", "ignored_layers": [f"re:.*layers.{n}.mlp.*" for n in range(30_000)]}


def changed(name: str, **fields: Any) -> str:
    """A preset's config with other fields, as a link carries it."""
    return pack(dict(models()[name].config) | fields)


CORPUS: dict[str, tuple[str, Any]] = {
    "a pattern that is tried for ever": ("link", ("", {"engine": "llamacpp", "override_tensor": "(.+)+x9=CPU"})),
    "optional letters": ("link", ("", {"engine": "llamacpp", "override_tensor": ".?" * 80 + "x9=CPU"})),
    "optional letters of a checkpoint": ("link", ("", skipping("re:" + ".?" * 80 + "x9"))),
    "stars": ("link", ("", skipping(*(f"*a*b*c*{n}" for n in range(500))))),
    "stars of patterns": ("link", ("", skipping(*(f"re:.*.*.*x{n}" for n in range(500))))),
    "as many stars as are read": ("link", ("", skipping(*(f"*a*b*c*{n}" for n in range(MAX_PATTERNS))))),  # 500: 5 s
    "as many patterns": ("link", ("", skipping(*(f"re:.*.*.*x{n}" for n in range(MAX_PATTERNS))))),
    "a list for a format": ("link", ("", {"pasted": changed("deepseek-ai/DeepSeek-V4-Flash", expert_dtype=["fp4"])})),
    "empty objects": ("paste", filled("{}")),  # 224 MB
    "lists in lists": ("paste", filled("[[]]")),  # 282 MB
    "unknown fields": ("paste", "{" + ",".join(f'"{n:06d}":{{}}' for n in range(600_000)) + "}"),  # 6.6 s
    "spaces": ("paste", " " * 10 * MAX_CHARACTERS),  # 1.8 s
    "objects of a header": ("upload", ("safetensors", b'{"a":[' + b"{}," * 8_000_000 + b"0]}")),  # 600 MB
    "an escape": ("command", ["Qwen/Qwen3-8B", "--products", "\x1b]0;title\x07"]),
    "an endless loop": ("link", ("", {"pasted": pack({"model_type": "hrm_text", "H_cycles": 10**9})})),
    "lists of a grid": ("grid", "models = " + "[" * 200),
    "experts over ranks of a Mac": ("link", ("", {"engine": "mlx", "model": "Qwen/Qwen3.5-35B-A3B", "ep": "7"})),
    "bytes of no text": ("address", ("/api/report", b"model=Qwen/Qwen3-8B&\xff=\xfe")),
    "sequences of a step": ("address", ("/train_plan", b"global_batch=16000000")),  # 30 s and more, each a size to try
    "30,000 patterns": ("link", ("", {"pasted": pack(LLAMA | {"quantization_config": PATTERNS})})),  # 23.6 s
    **{
        f"{name} of hidden size 1": ("link", ("", {"pasted": changed(name, hidden_size=1), "context": "16000000"}))
        for name in ("MiniMaxAI/MiniMax-M2.7", "MiniMaxAI/MiniMax-Text-01-hf")  # 8 s
    },
    **{
        f"as many layers as are read under {engine}": (
            "link",
            ("", {"pasted": changed("deepseek-ai/DeepSeek-V3", num_hidden_layers=1024), "engine": engine}),
        )
        for engine in ENGINES  # SGLang 28 s, llama.cpp 34 s
    },
    **{
        f"an entry of {rate:,} tokens under {engine}": (
            "link",
            (
                "",
                {
                    "pasted": changed("deepseek-ai/DeepSeek-V4-Flash", compress_rates=dict.fromkeys(V4, rate)),
                    "engine": engine,
                },
            ),
        )
        for rate, engine in ((12, "vllm"), (512, "sglang"))  # a KeyError, a division by zero
    },
    "three thousand models": ("tool", ("compare", {"models": ["Qwen/Qwen3-8B"] * 3000})),
    "a long name": ("link", ("", {"x" * 5000: "1"})),
}
"""What did harm once, with what it took."""
CORPUS |= {row["what"]: (row["door"], row["value"]) for row in load("hostile.json")}
"""And what was drawn."""
