"""Numbers for people: SI prefixes, rounding to significant digits and to an uncertainty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Any

# SI Brochure (9th edition, 2019, with the prefixes of 2022), Table 7
_PREFIXES = dict(zip(range(-30, 31, 3), [*"qryzafpnµm", "", *"kMGTPEZYRQ"], strict=True))

_LEAST_SHARE = 1e-3
_WHOLE = 10  # factors from which on decimals are left out

PURPOSES = {"test": "test kernels", "application": "applications", "variant": "variants"}
"""Plural names of the purposes of kernels that judge fits."""

# enough digits for any two floats side by side
_WIDE = Context(prec=800, rounding=ROUND_HALF_EVEN)


def si_prefix(exponent: int) -> str:
    """Return the SI prefix of a power of ten."""
    return _PREFIXES[exponent]


def format_quantity(value: float, unit: str, *, digits: int = 3) -> str:
    """Write a number with an SI prefix, rounded to significant digits."""
    number = Decimal(value)
    if not number.is_finite() or number == 0:
        return f"{value:g} {unit}"
    rounded = round_to_digits(number, digits)
    exponent = _prefix_exponent(rounded)
    return f"{rounded.scaleb(-exponent):f} {si_prefix(exponent)}{unit}"


def format_percent(fraction: float) -> str:
    """Write a fraction in percent: two significant digits below 100 %, whole percents above."""
    percent = Decimal(fraction) * 100
    if not percent.is_finite() or percent == 0:
        return f"{fraction:g} %"
    rounded = (
        round_to_digits(percent, 2)
        if abs(percent) < 100
        else percent.quantize(Decimal(1), context=_WIDE)
    )
    return f"{rounded:f} %"


def format_share(fraction: float) -> str:
    """Write a part of a whole in percent; what is less than a thousandth as just that."""
    return "< 0.1 %" if 0 < abs(fraction) < _LEAST_SHARE else format_percent(fraction)


def round_to_digits(number: Decimal, digits: int) -> Decimal:
    """Round a number that is not zero to significant digits, keeping trailing zeros."""
    rounded = number.quantize(Decimal(1).scaleb(number.adjusted() - digits + 1), context=_WIDE)
    # 999.6 to three digits is 1000: one digit too many
    return rounded.quantize(Decimal(1).scaleb(rounded.adjusted() - digits + 1), context=_WIDE)


def format_table(
    rows: Sequence[Sequence[str]], *, header: Sequence[str] = (), right: Sequence[int] = ()
) -> str:
    """Align the columns of a table."""
    lines = [list(header), *map(list, rows)] if header else [list(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _prefix_exponent(number: Decimal) -> int:
    """Return the multiple of 3 that leaves one to three digits before the point."""
    return max(min(number.adjusted() // 3 * 3, max(_PREFIXES)), min(_PREFIXES))


def width_text(factor: float) -> str:
    """Write the factor between the middle and the ends of an interval: ``×2.1``."""
    return f"×{factor:.1f}" if factor < _WHOLE else f"×{factor:.0f}"


def point_text(point: Mapping[str, Any]) -> str:
    """Write values of parameters: ``n = 256, m = 16``."""
    return ", ".join(f"{name} = {value_text(value)}" for name, value in point.items())


def choice_text(choice: Mapping[str, Any]) -> str:
    """Write the parameters of a variant: ``tile=16 unroll=yes``."""
    return " ".join(f"{name}={value_text(value)}" for name, value in choice.items())


def value_text(value: Any) -> str:
    """Write the value of a parameter; a switch as yes or no."""
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def interval_text(interval_s: Sequence[Any]) -> str:
    """Write both ends of an interval of times."""
    return " to ".join(format_quantity(float(end), "s") for end in interval_s)
