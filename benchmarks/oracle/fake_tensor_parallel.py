"""Tensor parallelism by DTensor on fake tensors, with sequence and loss parallel, as torchtitan lays Llama out.

Import this after fake_cuda."""

from typing import Any

import torch
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

from benchmarks.oracle.fake_fsdp import mesh

DECIDING: list[None] = []
"""Not empty while DTensor makes up its mind on fake tensors of full size, which take no memory."""
decide = ShardingPropagator._propagate_tensor_meta_non_cached


def deciding() -> bool:
    return bool(DECIDING)


def noted(self: Any, *args: Any) -> Any:
    DECIDING.append(None)
    try:
        return decide(self, *args)
    finally:
        DECIDING.pop()


# A method replaced, which a type checker refuses: torch has no hook where DTensor makes up its mind.
ShardingPropagator._propagate_tensor_meta_non_cached = noted  # type: ignore[method-assign]


def spread(model: Any, ranks: int) -> None:
    """Matrices by columns and by rows, norms and what stands between by tokens, the head by the vocabulary."""
    parts = {"hidden_states": Shard(1)}, {"hidden_states": Replicate()}
    layer = {
        "input_layernorm": SequenceParallel(),
        "post_attention_layernorm": SequenceParallel(),
        "self_attn": PrepareModuleInput(input_kwarg_layouts=parts[0], desired_input_kwarg_layouts=parts[1]),
        "mlp": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
        **{f"self_attn.{name}_proj": ColwiseParallel() for name in "qkv"},
        "self_attn.o_proj": RowwiseParallel(output_layouts=Shard(1)),
        "mlp.gate_proj": ColwiseParallel(),
        "mlp.up_proj": ColwiseParallel(),
        "mlp.down_proj": RowwiseParallel(output_layouts=Shard(1)),
    }
    ends = {
        "model.embed_tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "model.norm": SequenceParallel(),
        "lm_head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False),
    }
    layers = {f"model.layers.{n}.{name}": how for n in range(len(model.model.layers)) for name, how in layer.items()}
    parallelize_module(model, mesh(ranks), ends | layers)


def loss(model: Any, tokens: torch.Tensor) -> torch.Tensor:
    """Of a forward pass, by each rank's part of the logits; positions are those of all tokens."""
    positions = torch.arange(tokens.shape[1], device=tokens.device)[None]
    logits = model(input_ids=tokens, position_ids=positions).logits
    with loss_parallel():
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), tokens.flatten())
