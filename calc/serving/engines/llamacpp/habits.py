"""What llama.cpp's graph of a family does that its tensors do not tell, by `general.architecture`.

Source: src/models/*.cpp of llama.cpp 0c1e57098.
"""

PARALLEL = frozenset({"cohere2", "command-r", "falcon", "gptj", "gptneox", "phi2"})
"""Attention and feed-forward read the same state."""
STATE_FIRST = frozenset({"jamba", "lfm2", "lfm2moe"})
"""The state is the first of the two that are added."""
STATE_BEFORE_FED = STATE_FIRST | {"phi3"}
"""The state is the first of the two that are added behind the feed-forward."""
NORM_ON_OUTPUT = frozenset({"exaone4", "gemma2", "gemma3", "gemma4", "glm4", "olmo2"})
"""What attention and feed-forward make is normed before it is added."""
LAYER_NORM = frozenset({"cohere2", "command-r"})
"""Norms that take the mean off though they hold no bias."""
UNROTATED = frozenset({"bloom", "gpt2", "jamba", "mpt", "nemotron_h", "nemotron_h_moe", "starcoder"})
"""Attention without rotary positions."""
ROTATED_IN_WINDOWS = frozenset({"cohere2", "exaone4"})
"""Layers without a window have no positions where others have one."""
DEEPSTACK = frozenset({"qwen3vl", "qwen3vlmoe"})
"""What several layers of the vision encoder see is added behind the first layers: a token's row of the input has room
for all of it."""
SOFTMAX_OF_CHOSEN = frozenset({"gpt-oss"})
ROWS_AFTER_NORM = frozenset({"gemma4", "nemotron_h", "nemotron_h_moe", "qwen35", "qwen35moe"})
"""The tokens whose logits are wanted are picked behind the last norm; elsewhere within the last layer."""
ROWS_BEFORE_NORM = frozenset({"gpt-oss"})
"""The tokens whose logits are wanted are picked before the last norm."""
SINGLE_MIXERS = frozenset({"nemotron_h", "nemotron_h_moe", "mamba", "mamba2"})
"""Layers of a norm and one thing that it reads."""
