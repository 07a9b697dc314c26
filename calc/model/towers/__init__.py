"""Every encoder for images or sound that is counted."""

from calc.model.towers.audio import OmniTowers
from calc.model.towers.encoders import EncodedVision
from calc.model.towers.image import (
    Gemma4Vision,
    Glm4Vision,
    InternVision,
    Llama4Vision,
    LlamaVision,
    MiniMaxVision,
    MoonVision,
    PixtralVision,
    Qwen2Vision,
    QwenVision,
)
from calc.model.towers.listed import ListedTower

VisionTower = (
    EncodedVision
    | QwenVision
    | Glm4Vision
    | LlamaVision
    | ListedTower
    | OmniTowers
    | Qwen2Vision
    | PixtralVision
    | Llama4Vision
    | Gemma4Vision
    | MiniMaxVision
    | MoonVision
    | InternVision
)
