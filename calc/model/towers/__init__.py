"""Every encoder for images or sound that is counted."""

from calc.model.towers.image import Llama4Vision, LlamaVision, MiniMaxVision, MoonVision, Qwen2Vision, QwenVision
from calc.model.towers.listed import ListedTower

VisionTower = QwenVision | LlamaVision | ListedTower | Qwen2Vision | Llama4Vision | MiniMaxVision | MoonVision
