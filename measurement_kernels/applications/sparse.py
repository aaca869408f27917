"""Sparse matrix times vector in compressed rows (CSR), a row for each item.

Trip counts and addresses depend on data, so counts rest on statistics: mean nonzeros of a row, and
how lanes use what they load. Rows lie one behind the other, so that lanes read values and columns
at strides of about a row's length and, over the loop, all of them: ``4ofn``.

``random``
    Rows of 1 to 31 nonzeros, 16 on average, columns anywhere: reads of x are ``indirect``.
``banded``
    All columns no farther than 8 from the diagonal: 17 nonzeros in a row, fewer at both ends; lanes
    read neighbors of x.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

from measurement_kernels.applications.common import Application, in_f64, mapped
from measurement_kernels.arguments import ArrayArgument, Extent, SizeParameter, Sizes
from measurement_kernels.rows import DOMAIN, row_starts, row_sums, uneven_lengths

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from measurement_kernels.entry import StatisticBySize

_MEAN = 16
_HALF_WIDTH = 8
_N = Extent("n")


def _random_columns(random: np.random.Generator, sizes: Sizes) -> NDArray[np.int32]:
    n = sizes["n"]
    return random.integers(n, size=_MEAN * n, dtype="int32")


def _banded_ends(sizes: Sizes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first column and the number of nonzeros by row."""
    import numpy as np

    row = np.arange(sizes["n"])
    first = np.maximum(row - _HALF_WIDTH, 0)
    return first, np.minimum(row + _HALF_WIDTH, sizes["n"] - 1) + 1 - first


def _banded_lengths(sizes: Sizes) -> NDArray[np.int64]:
    return _banded_ends(sizes)[1]


def _banded_columns(random: np.random.Generator, sizes: Sizes) -> NDArray[np.int32]:
    import numpy as np

    del random
    first, lengths = _banded_ends(sizes)
    begins = np.cumsum(lengths) - lengths
    columns = np.zeros((2 * _HALF_WIDTH + 1) * sizes["n"], "int32")
    used = int(lengths.sum())
    columns[:used] = np.arange(used) + np.repeat(first - begins, lengths)
    return columns


def _banded_mean(sizes: Sizes) -> Fraction:
    n = sizes["n"]
    missing = 2 * sum(_HALF_WIDTH - row for row in range(min(_HALF_WIDTH, n)))  # at both ends
    return 2 * _HALF_WIDTH + 1 - Fraction(missing, n)


def _expected(arguments: Mapping[str, Any], parameters: Sizes) -> dict[str, NDArray[Any]]:
    import numpy as np

    del parameters
    starts, columns = arguments["starts"], arguments["columns"]
    values, x = in_f64(arguments, "values", "x")
    used = slice(int(starts[-1]))
    products = values[used] * x[columns[used]]
    return {"y": np.add.reduceat(products, starts[:-1])}


def _spmv(
    variant: str,
    description: str,
    *,
    capacity: int,
    multiple: int,
    lengths: Callable[[Sizes], NDArray[np.int64]],
    columns: Callable[[np.random.Generator, Sizes], NDArray[np.int32]],
    statistics: Mapping[str, StatisticBySize],
) -> Application:
    room = Extent("n", factor=capacity)
    return Application(
        family="spmv",
        variant=variant,
        group_shape=(128, 1),
        description=description,
        exponents=range(8, 22),
        exponent_steps=(0, 1, 3, 5),
        sizes=lambda _: (SizeParameter(name="n", multiple=multiple),),
        arguments=(
            row_starts(lengths),
            ArrayArgument(name="columns", shape=(room,), indices=columns),
            ArrayArgument(name="values", shape=(room,)),
            ArrayArgument(name="x", shape=(_N,)),
            ArrayArgument(name="y", shape=(_N,), role="output"),
        ),
        check_parameters={"n": 1000},
        domain=DOMAIN,
        instructions=row_sums("y", "values[start + j]*x[columns[start + j]]"),
        transform=mapped(i=0),
        expected=_expected,
        statistics={"values": "4ofn", "columns": "4ofn", **statistics},
    )


APPLICATIONS = (
    _spmv(
        "random",
        "sparse matrix times vector, uneven rows with random columns",
        capacity=_MEAN,
        multiple=2,  # pairs of rows
        lengths=partial(uneven_lengths, _MEAN, 12),
        columns=_random_columns,
        statistics={"j": _MEAN, "x": "indirect"},
    ),
    _spmv(
        "banded",
        "sparse matrix times vector, 17 columns around the diagonal",
        capacity=2 * _HALF_WIDTH + 1,
        multiple=1,
        lengths=_banded_lengths,
        columns=_banded_columns,
        statistics={"j": _banded_mean, "x": "stride1"},
    ),
)
