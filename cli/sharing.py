"""`weighbridge fits MODEL --gpu ID --share-with MODEL`: several models on the same GPUs, each with its share."""

from collections.abc import Iterator, Mapping
from typing import Any

from calc import Layout, Workload
from calc.errors import ConfigError, Message, printable, shown
from calc.formats import WEIGHT_FORMATS
from calc.hardware.gpu import GPU
from calc.options import made, options
from calc.serving.engines import ENGINES
from calc.serving.shared_gpus import GPUShare, Server, SharedGPUs, share_gpus
from calc.units import GIB
from cli.command import chosen_config, chosen_engine, draft_model, load
from cli.options import filled

WEIGHTS = "weights"
ASKED = ("context", "batch", WEIGHTS)
"""Options that may follow a model: `BAAI/bge-m3,context=512,batch=8`."""


def sharing(arguments: Any, gpus: list[GPU]) -> SharedGPUs:
    """How the models of a command line share its GPUs. Raises ConfigError."""
    given = vars(arguments)
    if len(gpus) != 1:
        raise ConfigError(Message("Several models share the GPUs of one kind: name one with --gpu."), "gpu")
    if given["train"]:
        raise ConfigError(Message("Only models that are served share GPUs here, not training steps."), "train")
    engine = chosen_engine(given, draft_model(given))
    first = Server(given["model"], chosen_config(arguments), engine, filled(Workload, given), given[WEIGHTS])
    layout = filled(Layout, given)
    if given["num_gpus"] is not None and not Layout.model_fields.keys() & given.keys():
        layout = made(Layout, {"tp": given["num_gpus"]})
    return share_gpus([first, *(neighbour(text, given["engine"]) for text in given["neighbours"])], gpus[0], layout)


def neighbour(text: str, engine: str) -> Server:
    """A model that shares the GPUs, with the engine's defaults. Raises ConfigError."""
    name, *pairs = text.split(",")
    asked = dict(map(pair, pairs))
    weights = asked.pop(WEIGHTS, None)
    return Server(name, load(name), ENGINES[engine](), made(Workload, asked), weights)


def pair(text: str) -> tuple[str, Any]:
    """Name and value of an option behind a model. Raises ConfigError."""
    name, equals, value = text.partition("=")
    if not equals or name not in ASKED or (name == WEIGHTS and value not in WEIGHT_FORMATS):
        sentence = "{pair} is none of context=N, batch=N and weights=FORMAT, which may follow a model after a comma."
        raise ConfigError(Message(sentence, pair=shown(text)), "with")
    if name == WEIGHTS:
        return name, value
    try:
        return name, options(Workload)[name].parse(value)
    except ValueError:
        message = Message("{name} is {value}; it must be a whole number.", name=name, value=shown(value))
        raise ConfigError(message, "with") from None


def lines(shared: SharedGPUs) -> Iterator[str]:
    """A line for each server, and what is left."""
    for server in shared.servers:
        yield line(server)
    left, usable = shared.left / GIB, shared.usable / GIB
    yield f"{shared.gpus} x {shared.gpu}: {left:.2f} of {usable:.2f} GiB are left on each."


def line(server: GPUShare) -> str:
    """A server's share, and what it is made of."""
    name = printable(server.model)
    if server.reason is not None:
        return f"{name}: {server.verdict}. {server.reason}"
    parts: Mapping[str, int] = {"weights": server.weights, "KV cache": server.kv_cache, "else": server.other}
    made_of = ", ".join(f"{size / GIB:.2f} {part}" for part, size in parts.items())
    return f"{name}: {server.verdict} {' '.join(server.flags)}. {server.taken / GIB:.2f} GiB: {made_of}."
