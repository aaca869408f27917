"""Polynomials of sizes from numbers that are known at single sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction

import pytest

from countperf.errors import CountingError
from countperf.machine_code.formula_search import find_formulas
from countperf.machine_code.size_formulas import Key, Number, SizeFormulas, SizePolynomial

ONLY: Key = ("line", 0, 7, "")
Sizes = Mapping[str, int]


def found_for(
    count: Callable[..., Number], example: Sizes, **options: object
) -> tuple[SizeFormulas, list[Sizes]]:
    seen: list[Sizes] = []

    def follow(sizes: Sizes) -> dict[Key, Number]:
        seen.append(dict(sizes))
        return {ONLY: count(**sizes)}

    return find_formulas(follow, example, **options), seen  # pyright: ignore[reportArgumentType]


def vectors_and_rest(n: int) -> int:
    """Return iterations of a loop in vectors of 16, and those of its remainder, for each row."""
    return n * (n // 16 + n % 16)


def test_a_formula_holds_for_one_remainder() -> None:
    found, seen = found_for(vectors_and_rest, {"n": 1003})
    assert found.moduli == (16,)
    assert 1003 % 16 == 11
    for n in (11, 27, 1003, 5003):
        assert found.covers({"n": n})
        assert found.at({"n": n}) == {ONLY: vectors_and_rest(n)}
    assert not found.covers({"n": 1004})
    assert {"n": 5003} not in seen
    assert found.domain().startswith("11 <= n <= ")
    assert "n mod 16 = 11" in found.domain()


def test_formulas_of_several_sizes() -> None:
    found, _ = found_for(lambda n, m, k: n * m * (k // 4) + 3 * m, {"n": 64, "m": 80, "k": 40})
    assert found.moduli == (1, 1, 4)
    sizes = {"n": 101, "m": 77, "k": 44}
    assert found.at(sizes) == {ONLY: 101 * 77 * 11 + 3 * 77}
    assert all(found.covers(each) for each in ({"n": 64, "m": 80, "k": 40}, sizes))
    nonnegative, zero = found.guards()
    assert all(guard.evaluate(sizes) >= 0 for guard in nonnegative)
    assert [guard.evaluate(sizes) for guard in zero] == [0]
    assert [guard.evaluate({**sizes, "k": 45}) for guard in zero] == [1]


def test_the_smallest_sizes_are_those_that_were_checked() -> None:
    found, _ = found_for(lambda n: n // 8 if n >= 96 else 5 * n, {"n": 1024})
    assert found.low[0] >= 96
    assert found.at({"n": 1024}) == {ONLY: 128}


def test_what_is_no_polynomial_is_refused() -> None:
    with pytest.raises(CountingError, match="are no polynomial of the sizes"):
        found_for(lambda n: n.bit_length(), {"n": 500})


def test_what_changes_at_large_sizes_is_refused() -> None:
    with pytest.raises(CountingError, match="are no polynomial of the sizes"):
        found_for(lambda n: n if n < 3000 else 2 * n, {"n": 500})


def test_remainders_by_1024_can_be_kept() -> None:
    def crowded(n: int) -> Number:
        return n * Fraction(1, 3) if n % 1024 == 0 else 0

    found, _ = found_for(crowded, {"n": 2048}, for_pages=True)
    assert found.moduli == (1024,)
    assert found.at({"n": 5120}) == {ONLY: Fraction(5120, 3)}
    with pytest.raises(CountingError, match="fails at another one"):
        found_for(crowded, {"n": 64})


def test_sizes_that_a_kernel_takes_are_kept_to() -> None:
    found, seen = found_for(
        lambda n, m: n + m,
        {"n": 36, "m": 5},
        extents=(12,),
        is_allowed=lambda sizes: sizes["n"] % 12 == 0 and sizes["m"] == 5,
    )
    assert all(each["n"] % 12 == 0 and each["m"] == 5 for each in seen)
    assert found.moduli == (12, 0)
    assert "m = 5" in found.domain()


def test_a_polynomial_and_its_symbols_say_the_same() -> None:
    polynomial = SizePolynomial((3, 10), (2, 5), {(0, 0): 4, (2, 0): 3, (1, 1): Fraction(1, 2)})
    symbolic = polynomial.symbolic(("n", "m"))
    for n, m in ((3, 10), (7, 20), (9, 35), (4, 11)):
        assert symbolic.evaluate({"n": n, "m": m}) == polynomial.at((n, m))
    assert polynomial.at((7, 20)) == 4 + 3 * 1 + Fraction(1, 2) * 2 * 2
