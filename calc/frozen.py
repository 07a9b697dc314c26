from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """A value: never changed after it is made, and nothing in it that was not asked for."""

    model_config = ConfigDict(frozen=True, extra="forbid")
