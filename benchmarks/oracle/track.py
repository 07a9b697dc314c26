"""Peak of one pass above the weights, in bytes.

python -m benchmarks.oracle.track PRESET flash|eager TOKENS [cached|decode] [fp8]: of the prompt, without a cache or
with the one that it leaves; or of the next token after it, above that cache. The cache may be one in fp8.
python -m benchmarks.oracle.track logits VOCABULARY BATCH: of the choice of one token a sequence, in a narrow model.

Every storage is tracked while the class of transformers runs on fake tensors. Needs torch and transformers.
"""

import sys
import weakref
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoConfig, AutoModelForCausalLM, QuantizedCache
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from presets import models


def flash(module: Any, query: Any, key: Any, value: Any, mask: Any, scaling: Any = None, **more: Any) -> Any:
    """What CUDA runs: keys and values are not repeated; values are as wide as keys."""
    width = value.shape[-1]
    value = torch.nn.functional.pad(value, [0, query.shape[-1] - width])
    attend = torch.ops.aten._scaled_dot_product_flash_attention
    out = attend(query, key, value, 0.0, True, False, scale=scaling)[0]
    return out[..., :width].transpose(1, 2).contiguous(), None


class Storages(TorchDispatchMode):
    """Bytes of the storages that are alive, from their first operation to their end."""

    def __init__(self, known: set[int]) -> None:
        super().__init__()
        self.known, self.alive, self.peak = known, dict[int, int](), 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                if storage._cdata not in self.known and storage._cdata not in self.alive:
                    self.alive[storage._cdata] = storage.nbytes()
                    weakref.finalize(storage, self.alive.pop, storage._cdata, None)
        self.peak = max(self.peak, sum(self.alive.values()))
        return out


def peak(preset: str, attention: str, tokens: int, *modes: str) -> int:
    ALL_ATTENTION_FUNCTIONS.register("tracked", flash)
    ALL_MASK_ATTENTION_FUNCTIONS.register("tracked", lambda *args, **kwargs: None)
    attention = "tracked" if attention == "flash" else attention
    config = dict(models()[preset].config)
    text = AutoConfig.for_model(config.pop("model_type"), **config).get_text_config()
    with FakeTensorMode(allow_non_fake_inputs=True):
        model = AutoModelForCausalLM.from_config(text, dtype=torch.bfloat16, attn_implementation=attention).eval()
        prompt = torch.ones((1, tokens), dtype=torch.long)
        held = (*model.parameters(), *model.buffers(), prompt)
        storages = Storages({tensor.untyped_storage()._cdata for tensor in held})
        with torch.no_grad(), storages:
            empty = QuantizedCache("fp8", text) if "fp8" in modes else None
            cached = "cached" in modes or "decode" in modes
            cache = model(input_ids=prompt, use_cache=cached, past_key_values=empty, logits_to_keep=1).past_key_values
            if "decode" in modes:
                storages.peak = 0
                model(input_ids=prompt[:, :1], past_key_values=cache, logits_to_keep=1)
    return storages.peak - (sum(storages.alive.values()) if "decode" in modes else 0)


def choice_peak(vocab: int, batch: int) -> int:
    """Of `generate` on a model so narrow that only its logits count."""
    sizes = {"hidden_size": 64, "intermediate_size": 64, "num_attention_heads": 1, "num_hidden_layers": 1}
    settings = AutoConfig.for_model("llama", vocab_size=vocab, pad_token_id=0, eos_token_id=None, **sizes)
    model = AutoModelForCausalLM.from_config(settings).to(torch.bfloat16).eval()
    prompt = torch.ones((batch, 1), dtype=torch.long)
    mask = torch.ones_like(prompt)
    held = (*model.parameters(), *model.buffers(), prompt, mask)
    storages = Storages({tensor.untyped_storage()._cdata for tensor in held})
    with torch.no_grad(), storages:
        model.generate(prompt, attention_mask=mask, max_new_tokens=1, do_sample=False)
    return storages.peak


if __name__ == "__main__":
    first, second, third, *modes = sys.argv[1:]
    if first == "logits":
        found = choice_peak(int(second), int(third))
    else:
        found = peak(first, second, int(third), *modes)
    print(f"{found:,}")
