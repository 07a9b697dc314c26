"""Commands and settings: llama-server and llama-cli, a Modelfile of Ollama, the fields of LM Studio.

Source: common/arg.cpp of llama.cpp 0c1e57098; docs/modelfile.mdx and docs/faq.mdx of Ollama; LM Studio's load options.
"""

from collections.abc import Iterator
from typing import NamedTuple

from calc.errors import Frozen, Message
from calc.serving.engines.launch import Launch, set_flags
from calc.serving.engines.llamacpp.options import LlamaCppOptions

ELSEWHERE = ("ctx_size", "parallel", "cache_type_k", "cache_type_v", "mmproj", "model_draft", "weights_draft")
"""Options that the context, its storage or files of their own state."""
NO_FLAGS = ("n_outputs_max", "cuda_force_cublas")


class GGUFSource(Frozen):
    """Source of the file: a repository of the Hub and a type in it, or a file at hand."""

    repository: str | None = None
    tag: str = "Q4_K_M"
    file: str = "model.gguf"

    @property
    def words(self) -> tuple[str, str]:
        return ("-m", self.file) if self.repository is None else ("-hf", f"{self.repository}:{self.tag}")

    @property
    def ollama(self) -> str:
        return f"./{self.file}" if self.repository is None else f"hf.co/{self.repository}:{self.tag}"


class OllamaSetup(Frozen):
    """A Modelfile, and the environment of `ollama serve`."""

    modelfile: str
    environment: dict[str, str]
    notes: tuple[Message, ...] = ()


class ModelStart(NamedTuple):
    """A model that is started with so many slots of so many tokens, and types of keys and of values."""

    source: GGUFSource
    options: LlamaCppOptions
    length: int
    slots: int
    types: tuple[str, str]

    def server(self) -> Launch:
        """`llama-server`. Without a number of layers it fits by itself what is not stated (`--fit`)."""
        return Launch(words=("llama-server", *self.words(), "--parallel", str(self.slots)))

    def cli(self) -> Launch:
        """`llama-cli`: one conversation."""
        return Launch(words=("llama-cli", *self._replace(slots=1).words()))

    def words(self) -> Iterator[str]:
        """The file, and flags of any program of llama.cpp."""
        options, whole = self.options, self.length if self.options.kv_unified else self.length * self.slots
        yield from (*self.source.words, "--ctx-size", str(options.ctx_size or whole))
        for flag, kind in zip(("--cache-type-k", "--cache-type-v"), self.types, strict=True):
            if kind != "f16":
                yield from (flag, kind)
        yield from set_flags(options, dict.fromkeys((*ELSEWHERE, *NO_FLAGS), ()))
        if options.guess == "draft-simple":  # a file as repositories name it
            unnamed, name = options.model_draft is None or options.weights_draft is None, options.model_draft or ""
            yield "--model-draft"
            yield "draft.gguf" if unnamed else f"{name.rpartition('/')[2]}-{options.weights_draft}.gguf"

    @property
    def on_gpus(self) -> int | None:
        """Layers that flags put on GPUs; None: as many as there are."""
        count = 0 if self.options.device == "none" else self.options.n_gpu_layers
        return count if isinstance(count, int) else None

    def ollama(self, layers: int) -> OllamaSetup:
        """Ollama starts llama-server with a context of its own for each slot."""
        options, (keys, values), notes = self.options, self.types, list[Message]()
        lines = [f"FROM {self.source.ollama}", f"PARAMETER num_ctx {self.length}"]
        if options.n_cpu_moe or options.cpu_moe or options.override_tensor:
            sentence = "Ollama has no setting for experts on the host: it decides by itself which layers go to the GPU."
            notes.append(Message(sentence))
        else:
            lines.append(f"PARAMETER num_gpu {layers + 1 if self.on_gpus is None else self.on_gpus}")
        if options.ubatch_size != 512:
            lines.append(f"PARAMETER num_batch {options.ubatch_size}")
        environment = {"OLLAMA_NUM_PARALLEL": str(self.slots)} if self.slots > 1 else {}
        if keys != values:
            notes.append(Message("Ollama stores keys and values alike: as the keys here."))
        if keys != "f16":
            environment |= {"OLLAMA_FLASH_ATTENTION": "1", "OLLAMA_KV_CACHE_TYPE": keys}
        return OllamaSetup(modelfile="\n".join(lines), environment=environment, notes=tuple(notes))

    def lm_studio(self, layers: int) -> dict[str, int | str | bool]:
        """The fields of a model's load options, under their names there."""
        options = self.options
        experts = layers if options.cpu_moe else options.n_cpu_moe
        settings: dict[str, int | str | bool] = {
            "Context Length": self.length,
            "GPU Offload": layers if self.on_gpus is None else min(layers, self.on_gpus),
            "Evaluation Batch Size": options.ubatch_size,
            "Max Concurrent Predictions": self.slots,
            "Unified KV Cache": options.kv_unified,
            "Offload KV Cache to GPU Memory": options.kv_offload,
            "Flash Attention": options.flash_attn != "off",
        }
        if experts:
            settings["Number of layers for which to force MoE weights onto CPU"] = experts
        names = "K Cache Quantization Type", "V Cache Quantization Type"
        return settings | {name: kind for name, kind in zip(names, self.types, strict=True) if kind != "f16"}
