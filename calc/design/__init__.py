"""Aids for those who design a model: what its sizes are good for, where it stands among published ones, and which size
meets a budget."""

from calc.design.checks import checks
from calc.design.scale import Design, Measure, scaled, token_flops
from calc.design.slope import Slopes
from calc.design.standing import Proportions, proportions
