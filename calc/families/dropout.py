"""What a config says about dropout, which no size hangs on."""

from calc.families.fields import Fields
from calc.model.kernels import Dropout, Kernels

FIELDS: dict[str, Dropout] = {
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


def with_dropout(kernels: Kernels, c: Fields) -> Kernels:
    """The family's habits, with dropout where the config states a rate other than zero, and without where it is."""
    stated = {place: c.stated[field] for field, place in FIELDS.items() if field in c.stated}
    on = {place for place, rate in stated.items() if isinstance(rate, int | float) and rate}
    dropout = frozenset(on | (kernels.dropout - stated.keys()))
    return kernels if dropout == kernels.dropout else kernels.model_copy(update={"dropout": dropout})
