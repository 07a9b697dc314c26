"""Memory of a conversion: GPUs with a verdict, then each phase with its parts as formulas."""

from calc.hardware import find_gpu
from calc.quantizing import HeldPart, QuantizingPhase
from pages.parts import words
from pages.parts.outputs.cards import badge
from pages.parts.outputs.derivations import legend, table
from pages.parts.screen import heading, paragraph, small_table
from pages.parts.state.weighed import Quantized
from pages.parts.words import say


def verdicts(answer: Quantized) -> None:
    """One GPU of each kind, and why."""
    rows = [
        [find_gpu(row.gpu).name, badge(row.verdict), words.gib(row.usable), say(row.reason)]
        for row in answer.report.verdicts
    ]
    if rows:
        small_table([say("One GPU"), say("Verdict"), say("Usable"), say("Reason")], rows, numbers=0)


def phases(answer: Quantized) -> None:
    """Tensors at the peak of each phase, on the GPU and in host memory."""
    report = answer.report
    for phase in report.phases:
        heading(phase.name)
        stage(phase)
    heading("Disk")
    parts(report.disk, report.disk_bytes)
    legend(report.legend)


def stage(phase: QuantizingPhase) -> None:
    if phase.gpu:
        paragraph("**GPU**: {size}", size=words.gib(phase.gpu_bytes))
        parts(phase.gpu, phase.gpu_bytes)
    if phase.ram:
        paragraph("**Host memory**: {size}", size=words.gib(phase.ram_bytes))
        parts(phase.ram, phase.ram_bytes)


def parts(held_parts: tuple[HeldPart, ...], total: int) -> None:
    table((part.step for part in held_parts), say("Bytes"))
    paragraph("Sum: **{total:,}**", total=total)
