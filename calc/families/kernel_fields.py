"""Fields of a config that say how its class computes and change no size: dropout, caps, the activation function, and
how positions are scaled."""

from collections.abc import Mapping
from typing import Any, get_args

from calc.families.fields import Fields
from calc.families.rotary import scaling_of
from calc.model.conventions import Activation, Details, Dropout, Kernels

DROPOUT: dict[str, Dropout] = {
    "embd_pdrop": "embedding",
    "embedding_dropout": "embedding",
    "attn_pdrop": "scores",
    "attention_dropout": "scores",
    "resid_pdrop": "residual",
    "residual_dropout": "residual",
    "hidden_dropout": "residual",
    "dropout": "residual",
}
"""Fields of transformers' classes -> what they drop."""
CAPS = {
    "final_logit_softcapping": "capped_logits",
    "logits_soft_cap": "capped_logits",
    "attn_logit_softcapping": "capped_scores",
}
"""Fields that hold a cap, or null for none."""
ACTIVATION_FIELDS = ("hidden_act", "hidden_activation", "activation_function", "mlp_hidden_act")
ACTIVATIONS: dict[str, Activation] = {
    "silu": "one_kernel",
    "gelu": "one_kernel",
    "gelu_pytorch_tanh": "one_kernel",
    "relu": "relu",
    "relu2": "squared",
    "gelu_new": "written_out",
    "xielu": "xielu",
}
"""Names in transformers' `activations.py` -> how they are computed."""


def configured_kernels(kernels: Kernels, c: Fields) -> Kernels:
    """The family's habits, but for what the config states otherwise."""
    changed: dict[str, Any] = {"dropout": dropout(kernels, c)}
    changed |= {name: c.stated[field] is not None for field, name in CAPS.items() if field in c.stated}
    stated = [name for name in map(c.stated.get, ACTIVATION_FIELDS) if isinstance(name, str) and name in ACTIVATIONS]
    if stated and kernels.activation != "clamped":  # what gpt-oss computes has no name
        changed["activation"] = ACTIVATIONS[stated[-1]]
    differs = any(getattr(kernels, name) != value for name, value in changed.items())
    return kernels.model_copy(update=changed) if differs else kernels


def dropout(kernels: Kernels, c: Fields) -> frozenset[Dropout]:
    """Places with dropout: those of a stated rate other than zero, and the kernels' own where none is stated."""
    stated = {place: c.stated[field] for field, place in DROPOUT.items() if field in c.stated}
    on = {place for place, rate in stated.items() if isinstance(rate, int | float) and rate}
    return frozenset(on | (kernels.dropout - stated.keys()))


ROPES = get_args(Details.model_fields["rope"].annotation)


def read_details(c: Fields) -> Details:
    """Scaling of positions and of experts' weights, as a config states them."""
    scaling = scaling_of(c)
    whole_context = scaling.get("full_attention", scaling)
    scaling = whole_context if isinstance(whole_context, Mapping) else {}
    kind = scaling.get("rope_type", scaling.get("type"))
    kind = kind if isinstance(kind, str) else None
    factors = scaling.get("long_factor")
    return Details(
        rope="longrope" if kind == "su" else kind if kind in ROPES else "plain",
        rope_factors=len(factors) if isinstance(factors, list) else 0,
        normed_weights=c.get("norm_topk_prob") is not False,
    )
