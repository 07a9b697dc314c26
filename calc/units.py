"""Binary units of bytes (GB is 10^9 and is not used inside), and numbers as text."""

from decimal import Decimal

KIB, MIB, GIB, TIB = 2**10, 2**20, 2**30, 2**40


def decimal(value: float) -> str:
    """A number without an exponent: 0.000001, 2."""
    return format(Decimal(repr(value)), "f").removesuffix(".0")
