"""How the memory of a step comes about: the same step, run on numbers that remember their formulas."""

from calc.model.architecture import Architecture
from calc.model.derivation import Legend, Step
from calc.model.traced import TracedSymbols
from calc.training.moments import Phase, TrainingComponent
from calc.training.scenario import TrainingScenario
from calc.training.step import Training


def phase_steps(
    architecture: Architecture, scenario: TrainingScenario, phase: Phase, of: TrainingComponent | None = None
) -> tuple[list[Step], Legend]:
    """One line for each part of what is alive in a phase, or of one component of it, and what the symbols mean."""
    symbols, work = TracedSymbols(), scenario.workload
    work = work.model_copy(update={"lora_rank": symbols.of("lora_rank", work.lora_rank)})
    model = symbols.apply(architecture)
    training = Training(model, work, scenario.recipe, scenario.layout, scenario.overhead, scenario.frozen)
    alone, positions, tokens, stream, pairs, *scanned = training.units(work.micro_batch, work.sequence)
    sequence, t = symbols.of("sequence", positions), symbols.of("tokens", tokens)
    shared = t if stream == tokens else symbols.of("stream_tokens", stream)
    scores = t * sequence if pairs == tokens * positions else pairs
    names = ("chunks", "followed_chunks", "micro_batch")
    by_chunks = (symbols.of(name, count) for name, count in zip(names, scanned, strict=True))
    parts = training.phases((alone, sequence, t, shared, scores, *by_chunks))[phase]
    lines = [symbols.step(part.name, part.bytes) for part in parts if of in (None, part.component)]
    return lines, symbols.occurring()
