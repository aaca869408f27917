"""Parametric sets as they are typical of Loopy kernels, by hand."""

from __future__ import annotations

# (id, set, assumptions or None)
SETS: list[tuple[str, str, str | None]] = [
    ("interval", "[n] -> { [i] : 0 <= i < n }", None),
    ("point", "{ [i] : i = 3 }", None),
    ("empty", "[n] -> { [i] : 0 <= i < n and i < 0 }", None),
    ("triangle", "[n] -> { [i, j] : 0 <= i < n and 0 <= j <= i }", None),
    ("tetrahedron", "[n] -> { [i, j, k] : 0 <= i < n and 0 <= j <= i and 0 <= k <= j }", None),
    ("box of two sizes", "[n, m] -> { [i, j, k] : 0 <= i, k < n and 0 <= j < m }", None),
    ("tile that need not divide", "[n] -> { [o, t] : 0 <= t < 5 and 0 <= o and 5o + t < n }", None),
    (
        "tile that divides",
        "[n] -> { [o, t] : 0 <= t < 4 and 0 <= o and 4o + t < n }",
        "[n] -> { : n mod 4 = 0 and n >= 4 }",
    ),
    (
        "two levels of tiles",
        "[n] -> { [o, m, t] : 0 <= t < 3 and 0 <= m < 2 and 0 <= o and 6o + 3m + t < n }",
        None,
    ),
    ("tiles that are touched", "[n] -> { [o] : exists t : 0 <= t < 5 and 0 <= 5o + t < n }", None),
    ("checkerboard", "[n] -> { [i, j] : 0 <= i, j < n and (i + j) mod 2 = 0 }", None),
    ("coupled residues", "[n] -> { [i, j] : 0 <= i, j < n and (3i + 5j) mod 7 = 2 }", None),
    ("rational slope", "[n, m] -> { [i, j] : 0 <= i < n and 0 <= j < m and 2i <= 3j }", None),
    ("stride and offset", "[n] -> { [i] : 0 <= i < n and i mod 3 = 1 }", None),
    ("numerical semigroup", "[n] -> { [i] : exists a, b : i = 3a + 5b and 0 <= a, b < n }", None),
    ("sum of parameters", "[n, m] -> { [i] : 2i = n + m and 0 <= i < n }", None),
    ("diophantine", "[n] -> { [x, y] : 6x - 10y = 4 and 0 <= x < n }", None),
    ("overlap", "[n] -> { [i, j] : 0 <= i, j < n; [i, j] : 3 <= i < n + 3 and 2 <= j < n }", None),
    ("halo", "[n] -> { [i] : -1 <= i <= n; [i] : 4 <= i <= n + 4 }", None),
    (
        "triangle of tiles",
        "[n] -> { [a, b, c, d] : 0 <= b < 3 and 0 <= a and 3a + b < n and 0 <= d < 4 and 0 <= c "
        "and 4c + d <= 3a + b }",
        None,
    ),
    ("floor as bound", "[n] -> { [i, j] : 0 <= i < n and 0 <= j < floor(i/4) }", None),
    (
        "band with floors",
        "[n] -> { [i, j, k] : 0 <= i < n and i <= j < n and j < i + 4 "
        "and 0 <= k <= floor((i + j)/3) }",
        None,
    ),
    (
        # a piece of it fixes the parameter, which must stay a guard
        "shifted tiles whose last one fixes the size",
        "[n] -> { [a, b] : 0 <= b <= 2 and a >= 5 and a <= n + 2 - b "
        "and 4*floor((3 - a - b)/4) >= -n }",
        "[n] -> { : n mod 4 = 0 and n >= 4 }",
    ),
    ("wrapped", "[n] -> { [i, j] : 0 <= i < n and 0 <= j < n and (i - j) mod 5 <= 1 }", None),
    (
        "skewed wavefront",
        "[n, m] -> { [w, i] : exists t : w = t + i and 0 <= t < m and 0 <= i < n }",
        None,
    ),
    (
        "time tiles, skewed",
        "[n, m] -> { [T, S, t, i] : 0 <= t < m and 0 <= i < n and 4T <= t < 4T + 4 "
        "and 3S <= i + t < 3S + 3 }",
        None,
    ),
    (
        "hexagonal tiles",
        "[n, m] -> { [u, v] : exists t, i : 6u - 3 <= t - i < 6u + 3 and 4v <= t + i < 4v + 4 "
        "and 0 <= i < n and 0 <= t < m }",
        None,
    ),
    (
        "remainder of a sum of tiled loops",
        "[n, m] -> { [a, b, c, d] : 0 <= b < 16 and 0 <= a and 16a + b < n and 0 <= d < 32 "
        "and 0 <= c and 32c + d < m and (16a + b + 32c + d) mod 3 = 0 }",
        None,
    ),
    ("knapsack", "[n] -> { [i, j, k] : i, j, k >= 0 and 2i + 3j + 5k <= n }", None),
    (
        "diagonal band of three sizes",
        "[n, m, p] -> { [i, j] : 0 <= i < n and 0 <= j < m and -p <= i - j <= p }",
        None,
    ),
    (
        "nested floors",
        "[n] -> { [i, j] : 0 <= i < n and 0 <= j <= floor((i + 2*floor(i/3))/4) }",
        None,
    ),
    (
        "halo of a tile",
        "[n] -> { [o, x] : exists t, h : 0 <= t < 8 and -1 <= h <= 1 and x = 8o + t + h and o >= 0 "
        "and 8o + t < n }",
        None,
    ),
]
