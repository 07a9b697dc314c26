"""One GPU type against one training step: does it fit, what still would, and how many GPUs would do."""

from calc.errors import ConfigError, Frozen, Message
from calc.hardware.gpu import GPU
from calc.serving.verdict import MOST_GPUS, Word, largest, least, reason, word
from calc.training.step import Training


class TrainingVerdict(Frozen):
    """Bytes are those of one GPU; words as in calc.fit.Verdict."""

    gpu: str
    gpus: int
    verdict: Word
    required: int
    usable: int
    spare: int
    max_micro_batch: int | None  # sequences of a micro-batch at this length; None: memory sets no limit
    max_sequence: int | None  # tokens a sequence at this micro-batch; None: memory sets no limit
    min_gpus: int | None  # with weights, gradients and optimizer sharded over them all (ZeRO-3); None: not even 1,024
    reason: str
    notes: tuple[Message, ...]


def judge_training(gpu: GPU, training: Training) -> TrainingVerdict:
    """The verdict on this many GPUs as laid out; what still fits, fits even at the high end of the overhead."""
    memory, usable = training.memory(), gpu.usable_bytes
    native = gpu.lacks(training.recipe.compute) if training.recipe.compute != "fp32" else None
    return TrainingVerdict(
        gpu=gpu.id,
        gpus=training.layout.gpus,
        verdict=word(memory, usable),
        required=memory.total,
        usable=usable,
        spare=usable - memory.total,
        max_micro_batch=largest(lambda n: training.memory(micro_batch=n).high <= usable),
        max_sequence=largest(lambda n: training.memory(sequence=n).high <= usable),
        min_gpus=fewest_replicas(training, usable),
        reason=reason(memory, usable, "The step needs"),
        notes=() if native is None else (native,),
    )


def fewest_replicas(training: Training, usable: int) -> int | None:
    """The fewest GPUs on which it fits as laid out, but with as many data-parallel replicas as it takes, and ZeRO-3."""
    one = training.layout.gpus // training.layout.dp

    def fits(dp: int) -> bool:
        layout = training.layout.model_copy(update={"dp": dp, "zero": 3})
        try:
            return training.laid_out(layout).memory().high <= usable
        except ConfigError:  # fewer replicas than the experts are spread over
            return False

    most = MOST_GPUS // one
    if fits(1):
        return one
    return one * least(fits, most) if most and fits(most) else None
