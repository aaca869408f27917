"""Numbers for people: every prefix, rounding, uncertainties, tables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countperf.report.rows import format_percent, format_quantity, format_table, si_prefix

SYMBOLS = ("q", "r", "y", "z", "a", "f", "p", "n", "µ", "m", "", *"kMGTPEZYRQ")
PREFIXES = {symbol: float(f"1e{3 * power}") for power, symbol in enumerate(SYMBOLS, start=-10)}


@pytest.mark.parametrize(("prefix", "factor"), PREFIXES.items())
def test_every_prefix_stands_for_its_power_of_ten(prefix: str, factor: float) -> None:
    assert format_quantity(2.5 * factor, "s") == f"2.50 {prefix}s"
    assert format_quantity(-250 * factor, "s") == f"-250 {prefix}s"


def test_prefixes_by_exponent() -> None:
    assert [si_prefix(e) for e in (-30, -3, 0, 15, 30)] == ["q", "m", "", "P", "Q"]
    with pytest.raises(KeyError):
        si_prefix(-2)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0 s"),
        (999.4, "999 s"),
        (999.6, "1.00 ks"),  # rounding reaches the next prefix
        (0.9996, "1.00 s"),
        (12345.0, "12.3 ks"),
        (float("inf"), "inf s"),
        (5e35, "500000 Qs"),
        (1e-33, "0.00100 qs"),
    ],
)
def test_rounding_to_three_digits(value: float, text: str) -> None:
    assert format_quantity(value, "s") == text


@given(st.floats(1e-29, 1e29))
def test_what_is_written_is_within_half_a_digit(value: float) -> None:
    number, unit = format_quantity(value, "s").split(" ")

    assert float(number) * PREFIXES[unit.removesuffix("s")] == pytest.approx(value, rel=0.0051)
    assert 1 <= float(number) < 1000
    assert len(number.replace(".", "")) == 3


@pytest.mark.parametrize(
    ("fraction", "text"),
    [
        *((0.0, "0 %"), (0.000123, "0.012 %"), (0.0937, "9.4 %"), (0.3049, "30 %")),
        *((0.996, "100 %"), (2.5713, "257 %"), (-0.125, "-12 %"), (float("inf"), "inf %")),
    ],
)
def test_percentages(fraction: float, text: str) -> None:
    assert format_percent(fraction) == text


def test_tables_align_and_have_no_blanks_at_line_ends() -> None:
    table = format_table([["a", "1"], ["bcd", "1000"]], header=["name", "n"], right=[1])

    assert table == "name     n\na        1\nbcd   1000"
    assert format_table([["a", ""], ["b", ""]]) == "a\nb"
