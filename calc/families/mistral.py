"""Mistral AI's families."""

from calc.families.attention import MLA, Attention, Sliding, Window
from calc.families.family import STACKED_EXPERTS, Family, Weights, Wrapper, made_by
from calc.families.feedforward import Dense, Experts
from calc.families.tower_readers import IDEFICS2, PIXTRAL
from calc.model.names import Names

WINDOWED = Attention(window=Window())
MIXTRAL_NAMES = Names(
    router="block_sparse_moe.gate",
    correction="block_sparse_moe.e_score_correction_bias",
    expert="block_sparse_moe.experts.{expert}",
    expert_renamed={"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"},
)
VOXTRAL = {
    "vocab_size": 131072,
    "hidden_size": 3072,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "sliding_window": 8192,
}
"""What its wrapper puts where a config leaves it out."""

MISTRAL: dict[str, Family] = made_by(
    "Mistral AI",
    {
        "mistral": Family(
            mixer=WINDOWED,
            ffn=Dense(),
            gguf="mistral3",
            wrappers=(Wrapper("idefics2", tower=IDEFICS2), Wrapper("mistral3", tower=PIXTRAL)),
        ),
        "ministral": Family(mixer=Attention(window=Sliding()), ffn=Dense()),
        "ministral3": Family(mixer=WINDOWED, ffn=Dense()),
        "mixtral": Family(mixer=WINDOWED, ffn=Experts("num_local_experts", "intermediate_size"), names=MIXTRAL_NAMES),
        "mistral4": Family(
            mixer=MLA(),
            ffn=Experts(
                "n_routed_experts",
                shared="n_shared_experts",
                stacked="out_in",
                first_dense="first_k_dense_replace",
                dense=Dense(bias=False),
            ),
            names=STACKED_EXPERTS,
        ),
        "voxtral_realtime_text": Family(  # scales the feed-forward's input by how far the text lags behind the sound
            mixer=WINDOWED,
            ffn=Dense(bias=False),
            layer_extras=Weights(
                {
                    "norms": {
                        "ada_rms_norm.linear1.weight": (32, "hidden_size"),
                        "ada_rms_norm.linear2.weight": ("hidden_size", 32),
                    }
                }
            ),
            own=VOXTRAL,
            wrappers=(Wrapper("voxtral_realtime", tied=True),),
        ),
    },
)
