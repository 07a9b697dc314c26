"""The controls of a conversion: tool and calibration."""

from calc.errors import ConfigError
from calc.options import checked
from calc.quantizing import RECIPES, recipe_of
from pages.parts.inputs.control import control
from pages.parts.screen import paragraph
from pages.parts.state.scenario import places
from pages.parts.state.weighed import Quantized

CALIBRATION = ("calibration_samples", "calibration_tokens", "calibration_batch")


def conversion(answer: Quantized) -> None:
    """Controls that have an effect with the recipe; with none that is known, all of them."""
    known, chosen = places(("quantizing",)), answer.scenario.quantizing
    try:
        recipes = [recipe_of(checked(chosen))]
    except ConfigError:
        recipes = list(RECIPES)
    paragraph("**Conversion**")
    control(known["tool"], answer.error)
    if any(recipe.samples for recipe in recipes):
        for name, usual in zip(CALIBRATION, (recipes[0].samples, recipes[0].tokens, None), strict=True):
            control(known[name], answer.error, usual)
    if any(recipe.keeps_inputs for recipe in recipes):
        control(known["keep_inputs_on"], answer.error)
    if any(recipe.reads_files for recipe in recipes):
        control(known["file_gb"], answer.error)


SECTIONS = (conversion,)
