"""Kernels of the papers on GPU models: Hong & Kim, Ma et al., Gajger & Czarnul.

Hong & Kim's (2009, Table 5) are those of Merge (Linderman et al. 2008): an image has three
interleaved channels, so that its filters access memory with stride 3. Of the support vector machine
only the numbers of instructions are printed; here are a linear and a radial one. Their matrix
products are ``published-matmul``.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from measurement_kernels.arguments import arrays
from measurement_kernels.loopy_kernels import (
    ONE_PER_ITEM,
    LoopyKernel,
    Results,
    any_sizes,
    computed_from,
    mapped,
    sizes_along,
)
from measurement_kernels.paper import tiled_product
from measurement_kernels.published.rodinia import in_single

_kernel = partial(LoopyKernel, collection="published", exponents=range(9, 25))


def _merge(instructions: str, **attributes: Any) -> LoopyKernel:
    return _kernel(family="published-merge", instructions=in_single(instructions), **attributes)


# --- Hong & Kim: filters, support vectors, options

_SEPIA = np.array([[0.393, 0.769, 0.189], [0.349, 0.686, 0.168], [0.272, 0.534, 0.131]])
_NORMAL = (0.31938153, -0.356563782, 1.781477937, -1.821255978, 1.330274429)
_RATE, _VOLATILITY, _GAMMA = 0.02, 0.3, 0.25


def bright(random: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return values of pixels, of which a sepia filter caps some."""
    return 255 * random.random(shape)


def priced(random: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return prices, strikes or years of options."""
    return 1 + 9 * random.random(shape)


def _linear(image: NDArray[Any]) -> Results:
    n, m, _ = image.shape
    around = [image[y : n - 2 + y, x : m - 2 + x] for y in range(3) for x in range(3)]
    return {"out": np.mean(around, axis=0)}


def _distribution(d: NDArray[Any]) -> NDArray[Any]:
    """Return the normal distribution by the polynomial that the kernel evaluates."""
    k = 1 / (1 + 0.2316419 * np.abs(d))
    tail = np.exp(-0.5 * d * d) * 0.39894228 * k * np.polyval(_NORMAL[::-1], k)
    return np.where(d > 0, 1 - tail, tail)


def _black_scholes(price: NDArray[Any], strike: NDArray[Any], years: NDArray[Any]) -> Results:
    root = np.sqrt(years)
    d = np.log(price / strike) + (_RATE + 0.5 * _VOLATILITY**2) * years
    d = d / (_VOLATILITY * root)
    first, second = _distribution(d), _distribution(d - _VOLATILITY * root)
    discounted = strike * np.exp(-_RATE * years)
    return {
        "call": price * first - discounted * second,
        "put": discounted * (1 - second) - price * (1 - first),
    }


def _tail(index: int) -> str:
    d, k = f"d{index}", f"k{index}"
    polynomial = f"{_NORMAL[-1]}"
    for coefficient in reversed(_NORMAL[:-1]):
        polynomial = f"({coefficient} + {k}*{polynomial})"
    return f"""
        <> {k} = 1.0/(1.0 + 0.2316419*fabs({d}))
        <> tail{index} = 0.39894228*exp(-0.5*{d}*{d})*({k}*{polynomial})
        <> cnd{index} = 1.0 - tail{index} if {d} > 0 else tail{index}
    """


_SUPPORT = "{ [i, j, k] : 0 <= i < n and 0 <= j < s and 0 <= k < f }"
_SUPPORT_ARGUMENTS = arrays("x[f, n], vectors[s, f], alpha[s], output value[n]")

_MERGE = (
    _merge(
        variant="sepia",
        groups=((16, 4), (16, 16)),
        sizes=any_sizes("n", "m"),
        arguments=arrays("image[n, m, 3], output out[n, m, 3]", values=bright),
        check={"n": 45, "m": 75},
        domain="{ [i, j] : 0 <= i < n and 0 <= j < m }",
        instructions="\n".join(
            [
                *(f"<> {color} = image[i, j, {c}]" for c, color in enumerate("rgb")),
                *(
                    f"out[i, j, {c}] = fmin({x}*r + {y}*g + {z}*b, 255.0f)"
                    for c, (x, y, z) in enumerate(_SEPIA)
                ),
            ]
        ),
        transform=ONE_PER_ITEM,
        expected=computed_from("image", lambda a: {"out": np.minimum(a @ _SEPIA.T, 255)}),
    ),
    _merge(
        variant="linear",
        groups=((16, 4), (16, 16)),
        sizes=any_sizes("n", "m"),
        arguments=arrays("image[n + 2, m + 2, 3], output out[n, m, 3]"),
        check={"n": 45, "m": 75},
        domain="{ [i, j, c, k, l] : 0 <= i < n and 0 <= j < m and 0 <= c, k, l < 3 }",
        instructions="out[i, j, c] = sum([k, l], image[i + k, j + l, c])/9",
        transform=mapped(i=1, j=0, unrolled="c k l"),
        expected=computed_from("image", _linear),
    ),
    _merge(
        variant="svm-linear",
        groups=((64, 1),),
        sizes=any_sizes("n", "s", "f"),
        arguments=_SUPPORT_ARGUMENTS,
        check={"n": 300, "s": 21, "f": 11},
        domain=_SUPPORT,
        instructions="value[i] = sum(j, alpha[j]*sum(k, x[k, i]*vectors[j, k]))",
        transform=mapped(i=0),
        expected=computed_from(
            "x vectors alpha", lambda x, vectors, alpha: {"value": alpha @ (vectors @ x)}
        ),
    ),
    _merge(
        variant="svm-radial",
        groups=((64, 1),),
        sizes=any_sizes("n", "s", "f"),
        arguments=_SUPPORT_ARGUMENTS,
        check={"n": 300, "s": 21, "f": 11},
        domain=_SUPPORT,
        instructions=f"""
            for i
                <real> total = 0 {{id=total}}
                for j
                    <real> square = 0 {{id=square}}
                    for k
                        <> difference = x[k, i] - vectors[j, k] {{id=difference}}
                        square = square + difference**2 {{id=squares, dep=square:difference}}
                    end
                    total = total + alpha[j]*exp(-{_GAMMA}*square) {{id=totals, dep=total:squares}}
                end
                value[i] = total {{dep=totals}}
            end
        """,
        transform=mapped(i=0),
        expected=computed_from(
            "x vectors alpha",
            lambda x, vectors, alpha: {
                "value": alpha
                @ np.exp(-_GAMMA * ((x[None] - vectors[:, :, None]) ** 2).sum(axis=1))
            },
        ),
    ),
    _merge(
        variant="black-scholes",
        groups=((64, 1), (256, 1)),
        sizes=any_sizes("n"),
        arguments=(
            *arrays("price[n], strike[n], years[n]", values=priced),
            *arrays("output call[n], output put[n]"),
        ),
        check={"n": 1000},
        domain="{ [i] : 0 <= i < n }",
        instructions=f"""
            for i
                <> p = price[i]
                <> x = strike[i]
                <> t = years[i]
                <> root = sqrt(t)
                <> drift = {_RATE + 0.5 * _VOLATILITY**2:.3f}*t
                <> d1 = (log(p/x) + drift)/({_VOLATILITY}*root)
                <> d2 = d1 - {_VOLATILITY}*root
                {_tail(1)}
                {_tail(2)}
                <> discounted = x*exp(-{_RATE}*t)
                call[i] = p*cnd1 - discounted*cnd2
                put[i] = discounted*(1.0 - cnd2) - p*(1.0 - cnd1)
            end
        """,
        transform=mapped(i=0),
        expected=computed_from("price strike years", _black_scholes),
        statistics={"d1 > 0": 0.5, "d2 > 0": 0.5},
    ),
)


def _shortest(a: NDArray[Any], b: NDArray[Any]) -> Results:
    return {"c": (a[:, :, None] + b[None]).min(axis=1)}


GPU_MODELS = (
    *_MERGE,
    _kernel(
        family="published-apsp",
        groups=((16, 16), (32, 32)),
        sizes=sizes_along(n=0),
        arguments=arrays("a[n, n], b[n, n], output c[n, n]"),
        check={"n": 3},
        domain="{ [i, j, k] : 0 <= i, j, k < n }",
        instructions="c[i, j] = reduce(min, k, a[i, k] + b[k, j])",
        transform=tiled_product(),
        expected=computed_from("a b", _shortest),
    ),
    _kernel(
        family="published-saxpy2",
        groups=((128, 1), (256, 1)),
        sizes=any_sizes("n", "a"),
        arguments=arrays("x[n], updated y[n]"),
        check={"n": 1000, "a": 7},
        domain="{ [i, k] : 0 <= i < n and 0 <= k < a }",
        instructions="""
            <> value = x[i] {id=value}
            y[i] = y[i] + sum(k, value)
        """,
        transform=mapped(i=0),
        expected=lambda arguments, sizes: {
            "y": arguments["y"].astype("f8") + sizes["a"] * arguments["x"].astype("f8")
        },
    ),
)
