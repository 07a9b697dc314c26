"""State spaces and the like without attention, by several makers."""

from dataclasses import replace

from calc.families.family import Family, Weights
from calc.families.feedforward_rows import Dense, Times, no_feedforward
from calc.families.fields import Fields, If, Size, stated_or
from calc.families.recurrent_rows import MAMBA1, MAMBA2, Recurrence
from calc.model.conventions import Kernels, Names
from calc.model.linear_attention import MLSTM
from calc.model.recurrent import RWKV
from calc.model.tensor import Norm

MAMBA_NAMES = Names(
    module="backbone",
    embedding="embeddings",
    recurrent="mixer",
    attention="mixer",
    mlp="mixer",
    router="mixer.gate",
    correction="mixer.gate.e_score_correction_bias",
    expert="mixer.experts.{expert}",
    shared_expert="mixer.shared_experts",
    final_norm="norm_f",
)


RWKV_MIXES = ("feed_forward.time_mix_key", "feed_forward.time_mix_receptance")


def mlstm_head(factor: str) -> Size:
    """Width of a head, all of them together a share of the hidden size."""
    return lambda c: int(c.size("hidden_size") * c.real(factor)) // c.size("num_heads")


def mlstm_width(c: Fields) -> int:
    """Width of xLSTM's feed-forward, rounded up to a multiple."""
    step = c.size("ffn_round_up_to_multiple_of")
    return int((c.size("hidden_size") * c.real("ffn_proj_factor") + step - 1) // step) * step


def mamba_kernels(c: Fields) -> Kernels:
    stated = c.stated.get("residual_in_fp32")
    return Kernels(fp32_stream=stated is None or bool(stated), fp32_logits=True)


BIASED_NORM: If[Norm] = If("use_bias", "layer", "rms")

STATE_SPACES = Family(mixer=MAMBA1, ffn=no_feedforward, norms=("norm",), names=MAMBA_NAMES, kernels=mamba_kernels)

MAMBA: dict[str, Family] = {
    "mamba": STATE_SPACES,
    "mamba2": replace(STATE_SPACES, mixer=MAMBA2),
    "rwkv": Family(
        mixer=Recurrence(RWKV, {"hidden": "hidden_size", "d_inner": stated_or("attention_hidden_size", "hidden_size")}),
        ffn=Dense(stated_or("intermediate_size", Times(4)), False, gated=False),
        norms=lambda c, layer: ("ln1", "ln2") if layer else ("pre_ln", "ln1", "ln2"),
        norm="layer",
        names=Names(
            module="rwkv",
            embedding="embeddings",
            layer="blocks.{layer}",
            recurrent="attention",
            mlp="feed_forward",
            final_norm="ln_out",
            lm_head="head",
            renamed={"up_proj": "key", "down_proj": "value"},
        ),
        rotary=None,
        layer_extras=(
            Weights("mlp", dict.fromkeys(RWKV_MIXES, (1, 1, "hidden_size"))),
            Weights("mlp", {"feed_forward.receptance.weight": ("hidden_size", "hidden_size")}),
        ),
        max_positions="context_length",
    ),
    "xlstm": Family(
        mixer=Recurrence(
            MLSTM,
            {"n_heads": "num_heads", "d_k": mlstm_head("qk_dim_factor"), "d_v": mlstm_head("v_dim_factor")}
            | {"bias": "use_bias"},
        ),
        ffn=Dense(mlstm_width, "use_bias"),
        norms=("norm_mlstm", "norm_ffn"),
        norm=BIASED_NORM,
        final_norm="rms",
        follows={"embedding_dim": "hidden_size", "num_blocks": "num_hidden_layers"},
        ties=False,
        names=Names(
            module="backbone",
            embedding="embeddings",
            layer="blocks.{layer}",
            recurrent="mlstm_layer",
            mlp="ffn",
            final_norm="out_norm",
            renamed={"gate_proj": "proj_up_gate", "up_proj": "proj_up", "down_proj": "proj_down"},
        ),
    ),
}
