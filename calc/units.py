"""Binary units of bytes (GB is 10^9 and is not used inside), and numbers as text."""

from decimal import Decimal

KIB, MIB, GIB, TIB = 2**10, 2**20, 2**30, 2**40
UNITS = (("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB))


def unit(nbytes: int) -> tuple[str, int]:
    """The largest binary unit that leaves a whole part, and its bytes."""
    return next(((unit, base) for unit, base in UNITS if abs(nbytes) >= base), ("B", 1))


def size(nbytes: int) -> str:
    """Bytes in that unit."""
    name, base = unit(nbytes)
    return f"{nbytes / base:,.2f} {name}" if base > 1 else f"{nbytes:,} B"


def four_digits(value: float) -> str:
    """A number with four digits that count and no exponent: 40,040; 0.3505."""
    return f"{float(f'{value:.4g}'):,.12g}"


def decimal(value: float) -> str:
    """A number without an exponent: 0.000001, 2."""
    return format(Decimal(repr(value)), "f").removesuffix(".0")


def hundredths(share: float) -> float:
    """A share to a hundredth of a percent, for a table: 0 and not -0."""
    return round(share, 4) + 0.0
