"""python -m benchmarks.oracle.track_divergence GKD_TRAINER.py > tests/data/divergences.json: bytes for each token and
word of the vocabulary that TRL's `generalized_jsd_loss` has in memory: at its peak, once its frame is gone, and on the
way back.

The function alone is taken out of TRL's file and run on the CPU under torch's dispatch; both models' logits are counted
while it runs. Needs torch.
"""

import ast
import json
import sys
import weakref
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

TOKENS, VOCABULARY = 256, 5_000
TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


class Storages(TorchDispatchMode):
    """Bytes of all storages that are alive, and the most of them."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: dict[int, int] = {}
        self.peak = 0

    @property
    def now(self) -> int:
        return sum(self.sizes.values())

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage()._cdata not in self.sizes:
                storage = tensor.untyped_storage()
                self.sizes[storage._cdata] = storage.nbytes()
                weakref.finalize(storage, self.sizes.pop, storage._cdata, None)
        self.peak = max(self.peak, self.now)
        return out


def loss_of(path: Path) -> Callable[..., torch.Tensor]:
    """TRL's function, which knows nothing of its class."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    (function,) = (node for node in functions if node.name == "generalized_jsd_loss")
    function.decorator_list = []
    names: dict[str, Any] = {"torch": torch, "F": F}
    exec(compile(ast.Module([function], []), str(path), "exec"), names)
    loss: Callable[..., torch.Tensor] = names["generalized_jsd_loss"]
    return loss


def tracked(loss: Callable[..., torch.Tensor], dtype: torch.dtype, beta: float, scored: int) -> dict[str, float]:
    """One row of so many tokens, of which the last are scored."""
    with Storages() as storages:
        leaf = torch.zeros(1, TOKENS, VOCABULARY, dtype=dtype, requires_grad=True)
        outside = leaf.untyped_storage().nbytes()
        student, teacher = leaf * 1, torch.zeros(1, TOKENS, VOCABULARY, dtype=dtype)
        labels = torch.full((1, TOKENS), -100)
        labels[:, TOKENS - scored :] = 1
        value = loss(student[:, :-1], teacher[:, :-1], labels[:, 1:], beta)
        forward = storages.peak
        del student, teacher, labels
        saved = storages.peak = storages.now
        value.backward()
        sizes = {"forward": forward, "saved": saved, "backward": storages.peak}
    return {name: (size - outside) / (TOKENS * VOCABULARY) for name, size in sizes.items()}


def main() -> None:
    loss = loss_of(Path(sys.argv[1]))
    rows = [
        {"type": name, "beta": beta, "tokens": TOKENS, "scored": scored} | tracked(loss, dtype, beta, scored)
        for (name, dtype), beta, scored in product(TYPES.items(), (0.0, 0.5, 1.0), (TOKENS // 2, TOKENS))
    ]
    print("[\n" + ",\n".join(f" {json.dumps(row)}" for row in rows) + "\n]")


if __name__ == "__main__":
    main()
