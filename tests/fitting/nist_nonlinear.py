"""Nonlinear least squares problems of the NIST Statistical Reference Datasets, certified values.

Source: https://www.itl.nist.gov/div898/strd/nls/nls_main.shtml. Certified values carry 11 digits.
A test recomputes the certified residual sum of squares from data and certified parameters, so that
a slip in a number here cannot pass.
"""

from __future__ import annotations

from dataclasses import dataclass

_MISRA = (
    *((77.6, 10.07), (114.9, 14.73), (141.1, 17.94), (190.8, 23.93), (239.9, 29.61)),
    *((289.0, 35.18), (332.8, 40.02), (378.4, 44.82), (434.8, 50.76), (477.3, 55.05)),
    *((536.8, 61.01), (593.1, 66.40), (689.1, 75.47), (760.0, 81.78)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NonlinearProblem:
    """Points (x, y), a formula of x and b1, b2, ..., starts, and what NIST certifies."""

    name: str
    points: tuple[tuple[float, float], ...]
    formula: str
    starts: tuple[tuple[float, ...], ...]
    parameters: tuple[float, ...]
    standard_errors: tuple[float, ...]
    squares: float


NONLINEAR_PROBLEMS = (
    NonlinearProblem(
        name="Misra1a",
        points=_MISRA,
        formula="b1*(1 - exp(-b2*x))",
        starts=((500.0, 0.0001), (250.0, 0.0005)),
        parameters=(2.3894212918e02, 5.5015643181e-04),
        standard_errors=(2.7070075241e00, 7.2668688436e-06),
        squares=1.2455138894e-01,
    ),
    NonlinearProblem(
        name="Misra1b",
        points=_MISRA,
        formula="b1*(1 - (1 + b2*x/2)**(-2))",
        starts=((500.0, 0.0001), (300.0, 0.0002)),
        parameters=(3.3799746163e02, 3.9039091287e-04),
        standard_errors=(3.1643950207e00, 4.2547321834e-06),
        squares=7.5464681533e-02,
    ),
    NonlinearProblem(
        name="Misra1c",
        points=_MISRA,
        formula="b1*(1 - 1/sqrt(1 + 2*b2*x))",
        starts=((500.0, 0.0001), (600.0, 0.0002)),
        parameters=(6.3642725809e02, 2.0813627256e-04),
        standard_errors=(4.6638326572e00, 1.7728423155e-06),
        squares=4.0966836971e-02,
    ),
    NonlinearProblem(
        name="Misra1d",
        points=_MISRA,
        formula="b1*b2*x/(1 + b2*x)",
        starts=((500.0, 0.0001), (450.0, 0.0003)),
        parameters=(4.3736970754e02, 3.0227324449e-04),
        standard_errors=(3.6489174345e00, 2.9334354479e-06),
        squares=5.6419295283e-02,
    ),
    NonlinearProblem(
        name="DanWood",
        points=(
            *((1.309, 2.138), (1.471, 3.421), (1.490, 3.597)),
            *((1.565, 4.340), (1.611, 4.882), (1.680, 5.660)),
        ),
        formula="b1*x**b2",
        starts=((1.0, 5.0), (0.7, 4.0)),
        parameters=(7.6886226176e-01, 3.8604055871e00),
        standard_errors=(1.8281973860e-02, 5.1726610913e-02),
        squares=4.3173084083e-03,
    ),
    NonlinearProblem(
        name="BoxBOD",
        points=((1, 109), (2, 149), (3, 149), (5, 191), (7, 213), (10, 224)),
        formula="b1*(1 - exp(-b2*x))",
        starts=((100.0, 0.75),),
        parameters=(2.1380940889e02, 5.4723748542e-01),
        standard_errors=(1.2354515176e01, 1.0455993237e-01),
        squares=1.1680088766e03,
    ),
    NonlinearProblem(
        name="Rat42",
        points=(
            *((9, 8.93), (14, 10.8), (21, 18.59), (28, 22.33), (42, 39.35)),
            *((57, 56.11), (63, 61.73), (70, 64.62), (79, 67.08)),
        ),
        formula="b1/(1 + exp(b2 - b3*x))",
        starts=((100.0, 1.0, 0.1), (75.0, 2.5, 0.07)),
        parameters=(7.2462237576e01, 2.6180768402e00, 6.7359200066e-02),
        standard_errors=(1.7340283401e00, 8.8295217536e-02, 3.4465663377e-03),
        squares=8.0565229338e00,
    ),
    NonlinearProblem(
        name="MGH09",
        points=(
            *((4, 0.1957), (2, 0.1947), (1, 0.1735), (0.5, 0.16), (0.25, 0.0844)),
            *((0.167, 0.0627), (0.125, 0.0456), (0.1, 0.0342), (0.0833, 0.0323)),
            *((0.0714, 0.0235), (0.0625, 0.0246)),
        ),
        formula="b1*(x**2 + x*b2)/(x**2 + x*b3 + b4)",
        starts=((0.25, 0.39, 0.415, 0.39),),
        parameters=(1.9280693458e-01, 1.9128232873e-01, 1.2305650693e-01, 1.3606233068e-01),
        standard_errors=(1.1435312227e-02, 1.9633220911e-01, 8.0842031232e-02, 9.0025542308e-02),
        squares=3.0750560385e-04,
    ),
    NonlinearProblem(
        name="MGH10",
        points=tuple(
            zip(
                range(50, 130, 5),
                (
                    *(34780, 28610, 23650, 19630, 16370, 13720, 11540, 9744),
                    *(8261, 7030, 6005, 5147, 4427, 3820, 3307, 2872),
                ),
                strict=True,
            )
        ),
        formula="b1*exp(b2/(x + b3))",
        starts=((0.02, 4000.0, 250.0),),
        parameters=(5.6096364710e-03, 6.1813463463e03, 3.4522363462e02),
        standard_errors=(1.5687892471e-04, 2.3309021107e01, 7.8486103508e-01),
        squares=8.7945855171e01,
    ),
)
