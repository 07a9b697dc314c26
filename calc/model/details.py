"""Fields of a config that are no shapes and that engines need to plan memory."""

from typing import Literal

from calc.errors import Frozen


class Details(Frozen):
    rope: Literal["plain", "llama3", "longrope", "yarn"] = "plain"
    """Scaling of positions."""
    rope_factors: int = 0
    """Numbers in each of longrope's two lists."""
    expert_groups: int = 1
    """Groups of experts, of which the router first picks some: DeepSeek-V3 section 2.1.2."""
    groups_used: int = 1
    normed_weights: bool = True
    """Whether the weights of the chosen experts are divided by their sum."""
    scaled_weights: bool = False
    """Whether they are multiplied by a factor."""
    scaled_residual: bool = False
    """Whether what a layer adds to the state is multiplied by a factor: Granite."""
    scaled_embedding: bool = False
