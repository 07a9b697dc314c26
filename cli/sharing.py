"""`weighbridge fits MODEL --gpu ID --share-with MODEL`: several models on the same GPUs, each with its share."""

from collections.abc import Iterator, Mapping
from typing import Any

from calc import Layout, Workload
from calc.errors import ConfigError, Message, printable
from calc.hardware.gpu import GPU
from calc.options import made
from calc.serving.engines import ENGINES
from calc.serving.shared_gpus import GPUShare, Neighbour, Server, SharedGPUs, share_gpus
from calc.units import GIB
from cli.command import chosen_config, chosen_engine, draft_model, load
from cli.options import filled


def sharing(arguments: Any, gpus: list[GPU]) -> SharedGPUs:
    """Share of each model of a command line in its GPUs. Raises ConfigError."""
    given = vars(arguments)
    if len(gpus) != 1:
        raise ConfigError(Message("Several models share the GPUs of one kind: name one with --gpu."), "gpu")
    if given["train"]:
        raise ConfigError(Message("Only models that are served share GPUs here, not training steps."), "train")
    engine = chosen_engine(given, draft_model(given))
    kv = None if given["kv"] == "auto" else given["kv"]
    first = Server(given["model"], chosen_config(arguments), engine, filled(Workload, given), given["weights"], kv)
    others = (
        Server(other.model, load(other.model), ENGINES[given["engine"]](), other.workload, other.weights)
        for other in map(Neighbour.read, given["neighbours"])
    )
    layout = filled(Layout, given)
    if given["num_gpus"] is not None and not Layout.model_fields.keys() & given.keys():
        layout = made(Layout, {"tp": given["num_gpus"]})
    return share_gpus([first, *others], gpus[0], layout, sleep_level=given.get("sleep_level", 0))


def lines(shared: SharedGPUs) -> Iterator[str]:
    """A line for each server, and what is left."""
    for server in shared.servers:
        yield line(server)
    left, usable = shared.left / GIB, shared.usable / GIB
    yield f"{shared.gpus} x {shared.gpu}: {left:.2f} of {usable:.2f} GiB are left on each."
    if shared.host:
        yield f"Weights of those that sleep take {shared.host / GIB:.2f} GiB of host memory."


def line(server: GPUShare) -> str:
    """A server's share, and what it is made of."""
    name = printable(server.model)
    if server.reason is not None:
        return f"{name}: {server.verdict}. {server.reason}"
    parts: Mapping[str, int] = {"weights": server.weights, "KV cache": server.kv_cache, "else": server.other}
    made_of = ", ".join(f"{size / GIB:.2f} {part}" for part, size in parts.items())
    asleep = "" if server.asleep is None else f"; {server.asleep / GIB:.2f} asleep"
    return f"{name}: {server.verdict} {' '.join(server.flags)}. {server.taken / GIB:.2f} GiB: {made_of}{asleep}."
