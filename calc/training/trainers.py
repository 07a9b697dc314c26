from calc.errors import Frozen

TRAINERS: dict = {}
