"""What to type: llama-server and llama-cli. Source: common/arg.cpp of llama.cpp 0c1e57098."""

from collections.abc import Iterator

from calc.errors import Frozen
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
