"""Linear least squares problems of the NIST Statistical Reference Datasets, certified values.

Source: https://www.itl.nist.gov/div898/strd/lls/lls.shtml (Norris, Longley, Wampler1 to Wampler5).
Certified values carry 15 digits. ``test_solve.py`` recomputes them in rational arithmetic, so that
a slip in a number here cannot pass.
"""

from __future__ import annotations

from dataclasses import dataclass

_NORRIS = """
0.1 0.2; 338.8 337.4; 118.1 118.2; 888.0 884.6; 9.2 10.1; 228.1 226.5; 668.5 666.3; 998.5 996.3;
449.1 448.6; 778.9 777.0; 559.2 558.2; 0.3 0.4; 0.1 0.6; 778.1 775.5; 668.8 666.9; 339.3 338.0;
448.9 447.5; 10.8 11.6; 557.7 556.0; 228.3 228.1; 998.0 995.8; 888.8 887.6; 119.6 120.2; 0.3 0.3;
0.6 0.3; 557.6 556.8; 339.3 339.1; 888.0 887.2; 998.5 999.0; 778.9 779.0; 10.2 11.1; 117.6 118.3;
228.9 229.2; 668.4 669.1; 449.2 448.9; 0.2 0.5
"""
_LONGLEY = """
60323  83.0 234289 2356 1590 107608 1947; 61122  88.5 259426 2325 1456 108632 1948;
60171  88.2 258054 3682 1616 109773 1949; 61187  89.5 284599 3351 1650 110929 1950;
63221  96.2 328975 2099 3099 112075 1951; 63639  98.1 346999 1932 3594 113270 1952;
64989  99.0 365385 1870 3547 115094 1953; 63761 100.0 363112 3578 3350 116219 1954;
66019 101.2 397469 2904 3048 117388 1955; 67857 104.6 419180 2822 2857 118734 1956;
68169 108.4 442769 2936 2798 120445 1957; 66513 110.8 444546 4681 2637 121950 1958;
68655 112.6 482704 3813 2552 123366 1959; 69564 114.2 502601 3931 2514 125368 1960;
69331 115.7 518173 4806 2572 127852 1961; 70551 116.9 554894 4007 2827 130081 1962
"""
_WAMPLER_NOISE = (
    *(759, -2048, 2048, -2048, 2523, -2048, 2048, -2048, 1838, -2048, 2048),
    *(-2048, 1838, -2048, 2048, -2048, 2523, -2048, 2048, -2048, 759),
)
_WAMPLER_3_DEVIATIONS = (
    *(2152.32624678170, 2363.55173469681, 779.343524331583),
    *(101.475507550350, 5.64566512170752, 0.112324854679312),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Rows and targets as decimal text, exactly as published, and what NIST certifies."""

    name: str
    rows: tuple[tuple[str, ...], ...]
    target: tuple[str, ...]
    coefficients: tuple[float, ...]
    standard_errors: tuple[float, ...]
    residual_deviation: float


def _from_table(
    name: str,
    table: str,
    coefficients: tuple[float, ...],
    standard_errors: tuple[float, ...],
    residual_deviation: float,
) -> Problem:
    lines = [line.split() for line in table.split(";")]
    return Problem(
        name=name,
        rows=tuple(("1", *line[1:]) for line in lines),
        target=tuple(line[0] for line in lines),
        coefficients=coefficients,
        standard_errors=standard_errors,
        residual_deviation=residual_deviation,
    )


def _wampler(name: str, *, noise: int, decimals: bool = False) -> Problem:
    values = [sum(x**k * 10 ** (5 - k) for k in range(6)) for x in range(21)]
    if decimals:
        target = tuple(f"{value}e-5" for value in values)
    else:
        target = tuple(
            str(sum(x**k for k in range(6)) + noise * _WAMPLER_NOISE[x]) for x in range(21)
        )
    return Problem(
        name=name,
        rows=tuple(tuple(str(x**k) for k in range(6)) for x in range(21)),
        target=target,
        coefficients=tuple(10.0**-k if decimals else 1.0 for k in range(6)),
        standard_errors=tuple(noise * deviation for deviation in _WAMPLER_3_DEVIATIONS),
        residual_deviation=noise * 2360.14502379268,
    )


PROBLEMS = (
    _from_table(
        "Norris",
        _NORRIS,
        (-0.262323073774029, 1.00211681802045),
        (0.232818234301152, 0.429796848199937e-03),
        0.884796396144373,
    ),
    _from_table(
        "Longley",
        _LONGLEY,
        (
            *(-3482258.63459582, 15.0618722713733, -0.358191792925910e-01, -2.02022980381683),
            *(-1.03322686717359, -0.511041056535807e-01, 1829.15146461355),
        ),
        (
            *(890420.383607373, 84.9149257747669, 0.334910077722432e-01, 0.488399681651699),
            *(0.214274163161675, 0.226073200069370, 455.478499142212),
        ),
        304.854073561965,
    ),
    _wampler("Wampler1", noise=0),
    _wampler("Wampler2", noise=0, decimals=True),
    _wampler("Wampler3", noise=1),
    _wampler("Wampler4", noise=100),
    _wampler("Wampler5", noise=10000),
)
