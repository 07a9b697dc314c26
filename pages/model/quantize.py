"""Memory of a conversion: GPUs with a verdict, then each phase with its parts as formulas."""

from calc import ConfigError
from calc.hardware import find_gpu
from calc.options import checked
from calc.quantizing import RECIPES, HeldPart, recipe_of
from pages.parts import words
from pages.parts.inputs.control import control
from pages.parts.outputs import frame
from pages.parts.outputs.cards import badge
from pages.parts.outputs.derivations import legend, table
from pages.parts.screen import caption, heading, paragraph, small_table
from pages.parts.state.query import QUANTIZE
from pages.parts.state.scenario import places
from pages.parts.state.weighed import Quantized, quantized
from pages.parts.words import say


def conversion(answer: Quantized) -> None:
    """Tool and calibration: the controls that have an effect with the recipe; with none that is known, all of them."""
    known, chosen = places(("quantizing",)), answer.scenario.quantizing
    try:
        recipes = [recipe_of(checked(chosen))]
    except ConfigError:
        recipes = list(RECIPES)
    paragraph("**Conversion**")
    control(known["tool"], answer.error)
    if any(recipe.samples for recipe in recipes):
        control(known["calibration_samples"], answer.error, recipes[0].samples)
        control(known["calibration_tokens"], answer.error, recipes[0].tokens)
        control(known["calibration_batch"], answer.error)
    if any(recipe.keeps_inputs for recipe in recipes):
        control(known["keep_inputs_on"], answer.error)
    if any(recipe.reads_files for recipe in recipes):
        control(known["file_gb"], answer.error)


def parts(held_parts: tuple[HeldPart, ...], total: int) -> None:
    """Tensors as formulas, and their sum."""
    table((part.step for part in held_parts), say("Bytes"))
    paragraph("Sum: **{total:,} bytes**.", total=total)


answer = frame.page(QUANTIZE, quantized, conversion)
report = answer.report
caption("Memory and disk of the conversion itself, by the tool's own code; formulas below.")
if report.verdicts:
    small_table(
        [say("One GPU"), say("Verdict"), say("Usable"), say("Reason")],
        (
            [find_gpu(row.gpu).name, badge(row.verdict), words.gib(row.usable), say(row.reason)]
            for row in report.verdicts
        ),
        numbers=0,
    )
for phase in report.phases:
    heading(phase.name)
    if phase.gpu:
        paragraph("**GPU**: {size}", size=words.gib(phase.gpu_bytes))
        parts(phase.gpu, phase.gpu_bytes)
    if phase.ram:
        paragraph("**Host memory**: {size}", size=words.gib(phase.ram_bytes))
        parts(phase.ram, phase.ram_bytes)
heading("Disk")
parts(report.disk, report.disk_bytes)
legend(report.legend)
frame.assumptions(report.assumptions)
