"""Details of a config besides shapes."""

from collections.abc import Mapping
from typing import Any, get_args

from calc.families.fields import Fields
from calc.families.rotary import scaling_of
from calc.model.details import Details

ROPES = get_args(Details.model_fields["rope"].annotation)


def read_details(c: Fields) -> Details:
    scaling = scaling_of(c)
    whole_context = scaling.get("full_attention", scaling)
    scaling = whole_context if isinstance(whole_context, Mapping) else {}
    kind = scaling.get("rope_type", scaling.get("type"))
    kind = kind if isinstance(kind, str) else None
    factors = scaling.get("long_factor")
    return Details(
        rope="longrope" if kind == "su" else kind if kind in ROPES else "plain",
        rope_factors=len(factors) if isinstance(factors, list) else 0,
        expert_groups=whole(c.get("n_group")),
        groups_used=whole(c.get("topk_group")),
        normed_weights=c.get("norm_topk_prob") is not False,
        scaled_weights=changes(c.get("routed_scaling_factor")),
        scaled_residual=bool(c.get("residual_multiplier")),
        scaled_embedding=bool(c.get("embedding_multiplier")),
    )


def whole(value: Any) -> int:
    """A count, 1 where there is none."""
    return value if type(value) is int and value > 0 else 1


def changes(factor: Any) -> bool:
    """Whether a number is one that changes what it multiplies."""
    return isinstance(factor, int | float) and factor not in (0, 1)
