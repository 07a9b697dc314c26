"""FSDP2 on fake tensors: a process group that sends nothing, streams and events that do nothing.

Import this after fake_cuda. A unit's weights come and go with the size of their storages, which `resized` is told of.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.distributed import init_process_group
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore

LAYERS = ("model.layers", "transformer.h", "gpt_neox.layers")


class Nothing:
    """A stream or an event."""

    stream_id, device_index, device_type, device = 0, 0, 1, torch.device("cuda", 0)

    def __init__(self, *args: Any, **more: Any) -> None:
        pass

    def nothing(self, *args: Any) -> None:
        pass

    record = wait = wait_stream = wait_event = synchronize = nothing

    def record_event(self, event: Any = None) -> "Nothing":
        return Nothing()

    def query(self) -> bool:
        return True


@contextmanager
def machine() -> Iterator[None]:
    """Of one GPU, as far as torch asks."""
    known = {name: getattr(torch.cuda, name) for name in ("is_available", "is_initialized", "_lazy_init")}
    torch.cuda.is_available = torch.cuda.is_initialized = lambda: True
    torch.cuda._lazy_init = lambda: None
    try:
        yield
    finally:
        for name, function in known.items():
            setattr(torch.cuda, name, function)


def mesh(ranks: int) -> DeviceMesh:
    """So many GPUs, of which this is the first."""
    replaced: dict[str, Any] = {
        "Stream": Nothing,
        "Event": Nothing,
        "current_stream": lambda *args: Nothing(),
        "default_stream": lambda *args: Nothing(),
        "stream": lambda stream: nullcontext(),
        "current_device": lambda: 0,
        "device_count": lambda: 1,
        "set_device": lambda *args: None,
        "synchronize": lambda *args: None,
        "is_current_stream_capturing": lambda: False,
    }
    for name, value in replaced.items():
        setattr(torch.cuda, name, value)
    # replaced, which a type checker refuses
    torch.Stream = torch.Event = Nothing  # type: ignore[misc,assignment]
    with machine(), unset_fake_temporarily():
        if not torch.distributed.is_initialized():
            init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
        return init_device_mesh("cuda", (ranks,))


def shard(model: Any, ranks: int, reduce: str, *, reshard: bool, separate_embedding: bool) -> None:
    """Each layer a unit, and the rest another; or the embedding one, and the last norm with the head one."""
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=getattr(torch, reduce))
    how: dict[str, Any] = {"mesh": mesh(ranks), "mp_policy": policy}
    if separate_embedding:
        fully_shard(model.get_input_embeddings(), **how, reshard_after_forward=reshard)
        fully_shard([model.model.norm, model.lm_head], **how, reshard_after_forward=False)
    modules = dict(model.named_modules())
    for layer in next(modules[name] for name in LAYERS if name in modules):
        fully_shard(layer, **how, reshard_after_forward=reshard)
    fully_shard(model, **how, reshard_after_forward=reshard)


@contextmanager
def resized(tell: Callable[[Any], None]) -> Iterator[None]:
    """Say when a storage has changed its size."""
    resize = torch.UntypedStorage.resize_

    def told(storage: Any, size: int) -> Any:
        result = resize(storage, size)
        tell(storage)
        return result

    # a method replaced for a while, which a type checker refuses
    torch.UntypedStorage.resize_ = told  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        torch.UntypedStorage.resize_ = resize  # type: ignore[method-assign]


def local(tensor: Any) -> Any:
    """This rank's part."""
    return getattr(tensor, "_local_tensor", tensor)
