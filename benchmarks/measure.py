"""python measure.py CONFIG [--batch 1 4] [--context 512 4096] [--attention flash eager] [--layers N] [--train]

What a language model really takes on your GPU. Copy this one file there: it needs torch and transformers 4.56 or newer,
and nothing else. CONFIG is a config.json or a Hub id. The model is built with random weights, so nothing is downloaded
but that config. Every combination asked for is measured; one that runs out of memory is recorded as such. Run it on a
GPU that nothing else uses: what others hold would count as context.

It writes JSON (--out FILE, else standard output), which Weighbridge lays beside what it predicts. Sizes are in bytes:
    weights  bytes: of the parameters, each storage once; buffers: likewise; allocated, reserved: by the CUDA allocator
    prefill  bytes: peak above `floor` (weights and cuBLAS's workspace) while `context` tokens go through at once
    decode   bytes: peak above `floor` while one more token goes through; like a prefill's it includes the cache
    cache    bytes: storages of the cache after either (`generated` 0 or 1); views: what of them is visible
    train    bytes: peak above `floor` of forward pass, backward pass and AdamW step; gradients, optimizer: kept by them
    context  bytes: what the driver has given out beyond `reserved`; workspace: of cuBLAS, inside `reserved`
Without a GPU a small model is measured on the CPU: peaks are then of tensors alive, without kernels' own buffers.
"""

import argparse
import contextlib
import functools
import gc
import inspect
import itertools
import json
import platform
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

try:
    import torch
    import transformers
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils._python_dispatch import TorchDispatchMode
except ImportError:  # what it makes of its arguments and of a config can be tested without them
    torch, TorchDispatchMode = None, object

FORMAT = "weighbridge-measurement/1"
DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
PEAKS = {"cuda": "torch.cuda.max_memory_allocated", "cpu": "storages of tensors alive, without kernels' own buffers"}
ASKED = ("attention", "batch", "context", "generated", "logits", "checkpointing")
LAYER_COUNTS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
LAYERS_FROM_0 = ("attn_layer_indices", "full_attn_idxs", "mlp_only_layers", "moe_layers")
LAYERS_FROM_1 = ("full_attn_layers", "kda_layers")

Config = dict[str, Any]
Row = dict[str, Any]
Run = Callable[[Any, Any], Iterator[Row]]  # of token ids and a ruler


def language_model(config: Config) -> Config:
    """The language model alone, as its class takes it: no vision encoder, and weights that are not quantized."""
    text = config.get("text_config")
    if isinstance(text, dict):
        config = text | {name: config[name] for name in ("tie_word_embeddings",) if name in config}
    return {name: value for name, value in config.items() if name != "quantization_config" and name[0] != "_"}


def cut_layers(config: Config, layers: int) -> Config:
    """The same model with its first `layers` layers only, and every list of layers cut likewise."""
    count = next((name for name in LAYER_COUNTS if name in config), None)
    if count is None:
        raise ValueError(f"the config says none of {', '.join(LAYER_COUNTS)}, so its layers can't be cut")
    whole = config[count]
    if not 1 <= layers <= whole:
        raise ValueError(f"--layers is {layers}; this model has {whole} layers")
    lengths = {whole, whole + (config.get("num_nextn_predict_layers") or 0)}

    def cut(name: str, value: Any) -> Any:
        if name == count:
            return layers
        if name in LAYERS_FROM_0 + LAYERS_FROM_1:
            return [index for index in value or () if index < layers + (name in LAYERS_FROM_1)]
        if isinstance(value, dict):
            return {name: cut(name, inner) for name, inner in value.items()}
        if (isinstance(value, list) or name == "hybrid_override_pattern") and len(value) in lengths:
            return value[:layers] + value[whole:]
        return value

    return {name: cut(name, value) for name, value in config.items()}


def read_config(source: str) -> Config:
    """A config.json, or that of a Hub id."""
    if Path(source).is_file() or source.endswith(".json"):
        config = json.loads(Path(source).read_text(encoding="utf-8"))
    else:
        config, _ = transformers.PretrainedConfig.get_config_dict(source)
    if not isinstance(config, dict) or "model_type" not in language_model(config):
        raise ValueError(f"{source} does not say the model_type of its language model")
    return language_model(config)


class Allocator(contextlib.AbstractContextManager["Allocator"]):
    """Peaks by torch's CUDA allocator, above what it held when the ruler was laid."""

    def __init__(self) -> None:
        torch.cuda.synchronize()
        self.floor = torch.cuda.memory_allocated()

    def __exit__(self, *_: object) -> None: ...

    def reset(self) -> None:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()

    def peak(self) -> Row:
        torch.cuda.synchronize()
        above = torch.cuda.max_memory_allocated() - self.floor
        return {"bytes": above, "floor": self.floor, "reserved": torch.cuda.max_memory_reserved()}


class Alive(TorchDispatchMode):
    """The same on a CPU: the sizes of all storages that operations have made and that are still there. What is `held`
    from before does not count."""

    def __init__(self, held: Iterable[Any]) -> None:
        super().__init__()
        self.sizes = {tensor.untyped_storage()._cdata: 0 for tensor in held}

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = operation(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, tuple | list) else (made,):
            if isinstance(tensor, torch.Tensor):
                self.see(tensor.untyped_storage())
        return made

    def see(self, storage: Any) -> None:
        if storage._cdata not in self.sizes:
            self.sizes[storage._cdata] = storage.nbytes()
            weakref.finalize(storage, self.sizes.pop, storage._cdata)
            self.most = max(self.most, sum(self.sizes.values()))

    def reset(self) -> None:
        self.most = sum(self.sizes.values())

    def peak(self) -> Row:
        return {"bytes": self.most, "floor": None, "reserved": None}


def storage_bytes(tensors: Iterable[Any]) -> int:
    """Bytes of the storages behind tensors, each storage once."""
    storages = [tensor.untyped_storage() for tensor in tensors]
    return sum({storage._cdata: storage.nbytes() for storage in storages}.values())


def tensors_in(held: Any, seen: set[int]) -> Iterator[Any]:
    """Every floating-point tensor that a cache holds, however it is built; `seen` are the objects already entered."""
    if isinstance(held, torch.Tensor):
        if held.is_floating_point():
            yield held
    elif id(held) not in seen:
        seen.add(id(held))
        parts = vars(held) if type(held).__module__.startswith("transformers") else held
        if isinstance(parts, dict | list | tuple):
            for part in parts.values() if isinstance(parts, dict) else parts:
                yield from tensors_in(part, seen)


def free() -> None:
    """Give back all that is no longer held."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


def reason(error: Exception) -> str:
    """Why something failed, in a line; out of memory in the same words whoever ran out of it."""
    text = str(error)
    if isinstance(error, torch.cuda.OutOfMemoryError) or "out of memory" in text or "ALLOC_FAILED" in text:
        return "out of memory"
    return f"{type(error).__name__}: {text.splitlines()[0] if text else ''}"[:300]


def build(config: Config, dtype: str, device: str) -> Any:
    torch.manual_seed(0)
    settings = transformers.AutoConfig.for_model(**config)
    with torch.device(device):
        model = transformers.AutoModelForCausalLM.from_config(
            settings, dtype=DTYPES[dtype], attn_implementation="eager"
        )
    return model.eval()


def weigh(model: Any, device: str) -> Row:
    free()
    return {
        "kind": "weights",
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "bytes": storage_bytes(model.parameters()),
        "buffers": storage_bytes(model.buffers()),
        "allocated": torch.cuda.memory_allocated() if device == "cuda" else None,
        "reserved": torch.cuda.memory_reserved() if device == "cuda" else None,
    }


def implementation(attention: str, device: str) -> str:
    """What transformers calls it; flash is FlashAttention's own package where it is installed, else torch's kernel."""
    if attention == "eager":
        return "eager"
    return "flash_attention_2" if device == "cuda" and transformers.utils.is_flash_attn_2_available() else "sdpa"


@contextlib.contextmanager
def attending(model: Any, name: str) -> Iterator[None]:
    """The model with this attention; torch's own never falls back to scores written out in full."""
    model.set_attn_implementation(name)
    if model.config._attn_implementation != name:
        raise ValueError(f"{type(model).__name__} has no {name} attention")
    kernels = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]
    with sdpa_kernel(kernels) if name == "sdpa" else contextlib.nullcontext():
        yield


def tokens(model: Any, batch: int, context: int) -> Any:
    most = getattr(model.config, "max_position_embeddings", None)
    if most is not None and context >= most:  # beyond a table of positions the GPU would refuse all that follows too
        raise ValueError(
            f"context and a decode step must fit max_position_embeddings, {most:,}; raise it in the config"
        )
    return torch.randint(model.get_input_embeddings().num_embeddings, (batch, context), device=model.device)


def serve(model: Any, logits: str, decode: bool, ids: Any, ruler: Any) -> Iterator[Row]:
    """A prefill, and where asked for the cache that it leaves and a decode step."""
    keep = {"logits_to_keep": 1} if logits == "last" else {}
    ruler.reset()
    with torch.no_grad():
        out = model(input_ids=ids, use_cache=True, **keep)
    yield ruler.peak()
    if not decode:
        return
    name = "past_key_values" if out.get("past_key_values") is not None else "cache_params"
    cache = out[name]
    del out
    yield cached(cache, 0)
    ruler.reset()
    with torch.no_grad():
        model(input_ids=ids[:, :1], use_cache=True, **keep, **{name: cache})
    yield {"kind": "decode", "generated": 1} | ruler.peak()
    yield cached(cache, 1)


def cached(cache: Any, generated: int) -> Row:
    parts = list(tensors_in(cache, set()))
    views = sum(part.numel() * part.element_size() for part in parts)
    return {"kind": "cache", "generated": generated, "bytes": storage_bytes(parts), "views": views}


def train(model: Any, checkpointing: bool, ids: Any, ruler: Any) -> Iterator[Row]:
    """The second of two steps: the first makes the optimizer's states, and all later ones are like the second."""
    model.train()
    if checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    try:
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        for _ in range(2):
            optimizer.zero_grad()
            ruler.reset()
            model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
            optimizer.step()
        gradients = storage_bytes(p.grad for p in model.parameters() if p.grad is not None)
        states = storage_bytes(tensors_in(list(optimizer.state.values()), set()))
        yield {"kind": "train", "gradients": gradients, "optimizer": states} | ruler.peak()
    finally:
        model.zero_grad()
        if checkpointing:
            model.gradient_checkpointing_disable()
        model.eval()


def attempt(model: Any, asked: Row, device: str, run: Run) -> list[Row]:
    """The rows of one combination. `asked` is what they have in common, and its kind what is measured first. Where it
    fails, the last row says why: a kernel or a class may refuse in any way, and the other combinations go on."""
    free()
    rows: list[Row] = []
    try:
        with attending(model, implementation(asked["attention"], device)):
            ids = tokens(model, asked["batch"], asked["context"])
            with Allocator() if device == "cuda" else Alive([*model.parameters(), *model.buffers(), ids]) as ruler:
                for row in run(ids, ruler):
                    rows.append(asked | row)
    except Exception as error:  # out of memory, or a shape that a kernel refuses: the row says so
        failed = {"kind": "decode", "generated": 1} if rows else {}
        rows.append(asked | failed | {"bytes": None, "error": reason(error)})
    return rows


def combinations(model: Any, a: argparse.Namespace) -> Iterator[tuple[Row, Run]]:
    """What the rows of each have in common, and what measures them."""
    variants = ("last", "all") if "logits_to_keep" in inspect.signature(model.forward).parameters else ("all",)
    for attention, batch, context in itertools.product(a.attention, a.batch, a.context):
        asked = {"batch": batch, "context": context, "attention": attention}
        for logits in variants:
            passes = functools.partial(serve, model, logits, logits == variants[0])
            yield {"kind": "prefill", **asked, "generated": 0, "logits": logits}, passes
        for checkpointing in [False] * a.train + [True] * a.gradient_checkpointing:
            step = functools.partial(train, model, checkpointing)
            yield {"kind": "train", **asked, "checkpointing": checkpointing}, step


def measure(config: Config, a: argparse.Namespace) -> Iterator[Row]:
    """All rows, in the order asked for."""
    try:
        model = build(config, a.dtype, a.device)
    except Exception as error:  # no class for it, or no room
        yield {"kind": "weights", "bytes": None, "error": reason(error)}
        return
    yield (weights := weigh(model, a.device))
    if a.device == "cuda":  # first passes load kernels and make cuBLAS's workspace, which later ones find there
        for asked, run in combinations(model, argparse.Namespace(**{**vars(a), "batch": [1], "context": [16]})):
            attempt(model, asked, a.device, run)
    for asked, run in combinations(model, a):
        yield from attempt(model, asked, a.device, run)
    free()
    if a.device == "cuda":
        unused, total = torch.cuda.mem_get_info()
        workspace = torch.cuda.memory_allocated() - weights["allocated"]
        yield {"kind": "context", "bytes": total - unused - torch.cuda.memory_reserved(), "workspace": workspace}


def device_facts(device: str) -> Row:
    """Memory and driver as nvidia-smi prints them, where it can be asked."""
    facts = {"torch": torch.__version__, "transformers": transformers.__version__}
    if device == "cpu":
        return {"name": f"CPU ({platform.machine()})", "total_mib": None, "driver": None, "cuda": None} | facts
    gpu = torch.cuda.get_device_properties(0)
    total, driver = gpu.total_memory // 2**20, None
    query = ["nvidia-smi", "--query-gpu=uuid,memory.total,driver_version", "--format=csv,noheader,nounits"]
    with contextlib.suppress(OSError, subprocess.SubprocessError, ValueError):
        for line in subprocess.check_output(query, text=True, timeout=60).splitlines():
            uuid, memory, version = (cell.strip() for cell in line.split(","))
            if uuid.endswith(str(getattr(gpu, "uuid", None))):
                total, driver = int(memory) if memory.isdigit() else total, version
    cuda = torch.version.cuda or f"ROCm {torch.version.hip}"
    return {"name": gpu.name, "total_mib": total, "driver": driver, "cuda": cuda} | facts


def shown(row: Row) -> str:
    """A row as the terminal shows it."""
    what = ", ".join([row["kind"], *(f"{name} {row[name]}" for name in ASKED if name in row)])
    return f"{what}: {row['error'] if row['bytes'] is None else format(row['bytes'], ',') + ' bytes'}"


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(description="What a language model really takes on your GPU, by measuring it.")
    p.add_argument("config", metavar="CONFIG", help="a config.json, or a Hub id; weights are random")
    p.add_argument("--batch", type=int, nargs="+", default=[1], metavar="N", help="sequences at once")
    p.add_argument("--context", type=int, nargs="+", default=[512, 4096], metavar="N", help="tokens a sequence")
    p.add_argument("--attention", nargs="+", choices=("flash", "eager"), default=["flash"])
    p.add_argument("--layers", type=int, metavar="N", help="only the first N layers, so that a large model fits")
    p.add_argument("--train", action="store_true", help="also a training step")
    p.add_argument("--gradient-checkpointing", action="store_true", help="also one that recomputes")
    p.add_argument("--dtype", choices=DTYPES, default="bf16")
    p.add_argument("--device", choices=("cuda", "cpu"), help="by default the GPU where there is one")
    p.add_argument("--out", type=Path, metavar="FILE", help="where the JSON goes; else to standard output")
    return p


def main() -> None:
    p = parser()
    a = p.parse_args()
    if torch is None:
        p.error("this needs torch and transformers: pip install torch transformers")
    if min(*a.batch, *a.context) < 1:
        p.error("--batch and --context are numbers from 1 on")
    a.device = a.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if a.device == "cuda" and not torch.cuda.is_available():
        p.error("this torch sees no GPU; --device cpu measures a small model without one")
    try:
        config = read_config(a.config)
        config = config if a.layers is None else cut_layers(config, a.layers)
    except (OSError, ValueError) as error:
        p.error(str(error))
    settings = {
        "device": a.device,
        "dtype": a.dtype,
        "layers": a.layers,
        "implementations": {attention: implementation(attention, a.device) for attention in a.attention},
        "optimizer": "torch.optim.AdamW, fused, states in the type of the weights",
        "peaks": PEAKS[a.device],
    }
    measured = {"format": FORMAT, "config": config, "device": device_facts(a.device), "settings": settings, "rows": []}
    try:
        for row in measure(config, a):
            measured["rows"].append(row)
            print(shown(row), file=sys.stderr, flush=True)
    finally:  # what was measured is kept when someone interrupts
        text = json.dumps(measured, indent=1) + "\n"
        a.out.write_text(text, encoding="utf-8") if a.out else print(text, end="")


if __name__ == "__main__":
    main()
