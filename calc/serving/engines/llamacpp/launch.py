"""Commands and settings: llama-server and llama-cli, a Modelfile of Ollama, the fields of LM Studio.

Source: common/arg.cpp of llama.cpp 0c1e57098; docs/modelfile.mdx and docs/faq.mdx of Ollama; LM Studio's load options.
"""

from collections.abc import Iterator

from calc.errors import Frozen, Message
from calc.serving.engines.launch import Launch, stated
from calc.serving.engines.llamacpp.options import LlamaCppOptions

SPELLING = {
    "n_outputs_max": (),  # what the program plans for, no flag
    "ctx_size": (),  # said by the context
    "parallel": (),
    "cache_type_k": (),
    "cache_type_v": (),
    "mmproj": (),
    "model_draft": (),  # a file of its own
    "weights_draft": (),
    "cuda_force_cublas": (),
}


class GGUFSource(Frozen):
    """Where the file comes from: a repository of the Hub and a type in it, or a file at hand."""

    repository: str | None = None
    tag: str = "Q4_K_M"
    file: str = "model.gguf"

    @property
    def words(self) -> tuple[str, str]:
        return ("-m", self.file) if self.repository is None else ("-hf", f"{self.repository}:{self.tag}")

    @property
    def ollama(self) -> str:
        return f"./{self.file}" if self.repository is None else f"hf.co/{self.repository}:{self.tag}"


def flags(options: LlamaCppOptions, length: int, slots: int, types: tuple[str, str]) -> Iterator[str]:
    """Flags of any program of llama.cpp."""
    whole = length if options.kv_unified else length * slots
    yield from ("--ctx-size", str(options.ctx_size or whole))
    for flag, kind in zip(("--cache-type-k", "--cache-type-v"), types, strict=True):
        if kind != "f16":
            yield from (flag, kind)
    yield from stated(options, SPELLING)
    if options.guess == "draft-simple":
        yield from ("--model-draft", draft_file(options))


def draft_file(options: LlamaCppOptions) -> str:
    """The file of the draft model, as repositories name it."""
    if options.model_draft is None or options.weights_draft is None:
        return "draft.gguf"
    return f"{options.model_draft.rpartition('/')[2]}-{options.weights_draft}.gguf"


def server(source: GGUFSource, options: LlamaCppOptions, length: int, slots: int, types: tuple[str, str]) -> Launch:
    """`llama-server`. Without a number of layers it fits by itself what is not stated (`--fit`)."""
    words = ("llama-server", *source.words, *flags(options, length, slots, types), "--parallel", str(slots))
    return Launch(words=words)


def cli(source: GGUFSource, options: LlamaCppOptions, length: int, types: tuple[str, str]) -> Launch:
    """`llama-cli`: one conversation."""
    return Launch(words=("llama-cli", *source.words, *flags(options, length, 1, types)))


class OllamaSetup(Frozen):
    """A Modelfile, and the environment of `ollama serve`."""

    modelfile: str
    environment: dict[str, str]
    notes: tuple[Message, ...] = ()


def ollama(
    source: GGUFSource, options: LlamaCppOptions, length: int, slots: int, types: tuple[str, str], layers: int
) -> OllamaSetup:
    """Ollama starts llama-server with a context of its own for each slot."""
    lines = [f"FROM {source.ollama}", f"PARAMETER num_ctx {length}"]
    notes: list[Message] = []
    if options.n_cpu_moe or options.cpu_moe or options.override_tensor:
        notes.append(
            Message("Ollama has no setting for experts on the host: it decides by itself which layers go to the GPU.")
        )
    elif isinstance(options.n_gpu_layers, int):
        lines.append(f"PARAMETER num_gpu {options.n_gpu_layers}")
    elif options.device == "none":
        lines.append("PARAMETER num_gpu 0")
    else:
        lines.append(f"PARAMETER num_gpu {layers + 1}")
    if options.ubatch_size != 512:
        lines.append(f"PARAMETER num_batch {options.ubatch_size}")
    environment = {"OLLAMA_NUM_PARALLEL": str(slots)} if slots > 1 else {}
    if types[0] != types[1]:
        notes.append(Message("Ollama stores keys and values alike: as the keys here."))
    if types[0] != "f16":
        environment |= {"OLLAMA_FLASH_ATTENTION": "1", "OLLAMA_KV_CACHE_TYPE": types[0]}
    return OllamaSetup(modelfile="\n".join(lines), environment=environment, notes=tuple(notes))


def lm_studio(
    options: LlamaCppOptions, length: int, slots: int, types: tuple[str, str], layers: int
) -> dict[str, int | str | bool]:
    """The fields of a model's load options, under their names there."""
    on_gpus = 0 if options.device == "none" else options.n_gpu_layers
    settings: dict[str, int | str | bool] = {
        "Context Length": length,
        "GPU Offload": min(layers, on_gpus) if isinstance(on_gpus, int) else layers,
        "Evaluation Batch Size": options.ubatch_size,
        "Max Concurrent Predictions": slots,
        "Unified KV Cache": options.kv_unified,
        "Offload KV Cache to GPU Memory": options.kv_offload,
        "Flash Attention": options.flash_attn != "off",
    }
    experts = layers if options.cpu_moe else options.n_cpu_moe
    if experts:
        settings["Number of layers for which to force MoE weights onto CPU"] = experts
    for name, kind in zip(("K Cache Quantization Type", "V Cache Quantization Type"), types, strict=True):
        if kind != "f16":
            settings[name] = kind
    return settings
