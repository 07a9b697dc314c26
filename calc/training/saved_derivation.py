"""What each layer keeps for its backward pass, as formulas: the same functions, run on symbols."""

from calc.errors import Message
from calc.model.architecture import Architecture
from calc.model.derivation import Step, Symbols
from calc.training.recipe import WIDTH
from calc.training.saved import kept_bytes
from calc.training.training_report import TrainingScenario

Legend = dict[str, tuple[str, int]]


def kept_steps(architecture: Architecture, asked: TrainingScenario) -> tuple[list[Step], Legend]:
    """Bytes of one micro-batch that one GPU keeps of each layer of a kind, and what the symbols mean."""
    work, layout, symbols = asked.workload, asked.layout, Symbols()
    rank = layout.rank(architecture)
    w, shards = WIDTH[asked.recipe.compute], layout.tp if layout.sequence_parallel else 1
    tokens = work.micro_batch * -(-work.sequence // layout.cp)
    h, t = symbols.of("hidden", rank.hidden), symbols.of("tokens", tokens)
    symbolic_work = work.model_copy(update={"sequence": symbols.of("sequence", work.sequence)})
    layers: dict[tuple[str, str, int], int] = {}
    for block in rank.all_blocks:
        formula = kept_bytes(symbols.apply(block), rank.kernels, h, symbolic_work, t, w, shards)
        kept = kept_bytes(block, rank.kernels, rank.hidden, work, tokens, w, shards)
        step = (*symbols.written(formula), kept)
        layers[step] = layers.get(step, 0) + len(block.layers)
    steps = [
        Step(what=Message("{n:,} layers, each", n=count), formula=formula, values=values, result=result, unit="bytes")
        for (formula, values, result), count in layers.items()
    ]
    return steps, symbols.occurring()
