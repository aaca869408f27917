"""Classes of accesses whose subscripts divide, choose, or lead into unusual layouts.

The right values come from listing all points and addresses of each kernel at small sizes.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import loopy as lp
import numpy as np
import pymbolic.primitives as p
import pytest
from loopy.symbolic import parse

from countperf.counting import domains
from countperf.counting.access_analysis import transactions
from countperf.counting.analysis import analyze_kernel
from countperf.counting.count_properties import count_kernel
from countperf.counting.taxonomy import View
from countperf.counting.vector import PropertyVector
from tests.kernels import made

SIZES = ((5, 21), (7, 16), (12, 33), (3, 40), (1, 9))
WIDTH = 8
VIEWS: tuple[View, ...] = ("source", "compiled", "structure")


def _kernel(
    expression: Any,
    shape: str = "n,m",
    *,
    lane: str = "j",
    more: str = "",
    body: str = "o[i,j] = {}",
    loops: str = "i<n, j<m",
) -> Any:
    """Make a kernel that loads from an array ``a``, by a text or an expression of pymbolic."""
    assignee = p.Subscript(p.Variable("o"), (p.Variable("i"), p.Variable("j")))
    is_text = isinstance(expression, str)
    return made(
        loops,
        body.format(expression) if is_text else [lp.Assignment(assignee, expression)],
        f"a f32 {shape}; o f32 n,m; n,m i32; {more}",
        split=f"{lane}:{WIDTH}",
    )


def _loads(counted: Any, **sizes: int) -> dict[str, int]:
    """Return the loads from global memory of a kernel or its counts by their class."""
    vector = counted if isinstance(counted, PropertyVector) else count_kernel(counted)
    return {
        name.removeprefix("gmem.load.32."): number
        for name, number in vector.evaluate(**sizes).items()
        if name.startswith("gmem.load.") and number
    }


def _class_of(stride: int, cells: set[int], *, is_symbolic: bool) -> str:
    """Class an access by the definition: the share of used cells, rounded up."""
    if not is_symbolic and abs(stride) < 2:
        return ("uniform", "stride1")[abs(stride)]
    small = not is_symbolic and abs(stride) <= 4
    parts = abs(stride) if small else 4
    widened = {cell + k for cell in cells for k in range(abs(stride))}
    return f"{math.ceil(parts * len(cells) / len(widened))}of{parts if small else 'n'}"


class _Subscript:
    def __getitem__(self, index: Any) -> tuple[int, ...]:
        return index if isinstance(index, tuple) else (index,)


def _address(expression: str, shape: str, **names: int) -> int:
    """Evaluate the address that a text accesses."""
    flat = 0
    extents = (eval(extent, {}, names) for extent in shape.split(","))
    index = eval(expression, {"a": _Subscript()}, names)
    for part, extent in zip(index, extents, strict=True):
        flat = flat * extent + part
    return flat


def _expected_loads(expression: str, shape: str, lane: str, n: int, m: int) -> dict[str, int]:
    """Class the lanes by the steps that each of them makes to the next one, all listed."""

    def find_steps(more: int) -> Counter[int]:
        sizes = {"n": n + more, "m": m + more, "k": 100}
        points = [dict(zip("ij", at, strict=True)) for at in itertools.product(range(n), range(m))]
        moved = [{**at, lane: at[lane] + 1} for at in points]
        pairs = zip(points, moved, strict=True)
        at = partial(_address, expression, shape, **sizes)
        return Counter(abs(at(**there) - at(**here)) for here, there in pairs)

    steps = find_steps(0)
    if set(steps) <= {0, 1} and set(find_steps(1)) <= {0, 1}:
        found = {"uniform": steps[0], "stride1": steps[1]}
        return {name: number for name, number in found.items() if number}
    stride, other = (some.most_common(1)[0][0] for some in (steps, find_steps(1)))
    points = itertools.product(range(n), range(m))
    cells = {_address(expression, shape, i=i, j=j, n=n, m=m, k=100) for i, j in points}
    return {_class_of(stride, cells, is_symbolic=stride != other): n * m}


@pytest.mark.parametrize(
    ("expression", "shape", "lane"),
    [
        ("a[(i + 3) % n, j]", "n,m", "j"),  # lanes do not see the remainder
        ("a[(i + 3) % 24, j]", "24,m", "j"),
        ("a[i, (j + 2) % m]", "n,m", "j"),  # one lane of a row goes back to its start
        ("a[i, (m - 1 - j + 3) % m]", "n,m", "j"),
        ("a[i, (j + 2) % 40]", "n,40", "j"),  # one lane in forty
        ("a[(j // 12), j % 12]", "m,12", "j"),  # the flattened address is j
        ("a[(i*m + j) // m, (i*m + j) % m]", "n,m", "j"),
        ("a[(i*m + j) // 12, (i*m + j) % 12]", "k,12", "j"),
        ("a[i, j % 8]", "n,8", "j"),  # the end of a row is the end of a group
        ("a[i, j & 7]", "n,8", "j"),
        ("a[i, (2*j) // 2]", "n,m", "j"),
        ("a[i, j // 2 + (j + 1) // 2]", "n,m", "j"),  # is j
        ("a[i, (j << 1) >> 1]", "n,m", "j"),
        ("a[(i + j // m) % n, j]", "n,m", "j"),
        # lanes that stay or go on
        ("a[i, j // 2]", "n,m+5", "j"),
        ("a[i, (j + 5) // 3]", "n,m+5", "j"),
        ("a[i, (2*j) // 3]", "n,m+5", "j"),
        ("a[i, (j // 2) // 3]", "n,m+5", "j"),
        ("a[i, j >> 2]", "n,m+5", "j"),
        # strides by sizes
        ("a[(i + 3) % n, j]", "n,m", "i"),
        ("a[(i - 1) % n, j]", "n,m", "i"),
        ("a[(i + n // 2) % n, j]", "n,m", "i"),
        ("a[i // 4, j]", "n,m", "i"),  # three of four lanes stay where they are
        ("a[(j*n + i) // m, (j*n + i) % m]", "n,m", "j"),
        ("a[j*n + i]", "n*m", "j"),
        ("a[i*m + m - 1 - j]", "n*m", "i"),
        ("a[i*m + m + j]", "n*m+m", "i"),
        ("a[2*i*m + j]", "2*n*m", "i"),
    ],
)
def test_lanes_are_classed_by_their_steps(expression: str, shape: str, lane: str) -> None:
    more = "k i32" if "k" in shape else ""
    vector = count_kernel(_kernel(expression, shape, lane=lane, more=more))
    for n, m in SIZES:
        if lane == "i" and n < 4 and ("%" in expression or "//" in expression):
            continue
        sizes = {"n": n, "m": m, **({"k": 100} if "k" in vector.parameters else {})}
        expected = _expected_loads(expression, shape, lane, n, m)
        assert _loads(vector, **sizes) == expected
        assert all(vector[f"gmem.load.32.{name}"].exact for name in expected)


def test_floors_decided_within_a_group_are_no_steps() -> None:
    assert _loads(_kernel("a[i, j // 8]"), n=5, m=21) == {"uniform": 5 * 21}


_J, _M = p.Variable("j"), p.Variable("m")


@pytest.mark.parametrize(
    ("column", "chooses_a_moving_part"),
    [
        (p.Min((_J + 1, _M - 1)), lambda j, m: j + 1 <= m - 1),
        (p.Max((_J - 3, 0)), lambda j, _: j - 3 >= 0),
        (p.Min((p.Max((_J - 2, 0)), _M - 4, 100)), lambda j, m: 2 <= j <= min(m - 2, 102)),
        (p.If(p.Comparison(_J, "<", _M - 1), _J + 1, 0), lambda j, m: j < m - 1),
        (parse("abs(j - 4)"), lambda *_: True),
        (parse("2 + (j if j > 2 and j != 5 else 0)"), lambda j, _: j > 2 and j != 5),
    ],
)
def test_subscripts_that_choose_count_on_their_parts(
    column: Any, chooses_a_moving_part: Callable[[int, int], bool]
) -> None:
    source = p.Subscript(p.Variable("a"), (p.Variable("i"), column))
    views: tuple[View, ...] = ("source", "structure")
    for view in views:
        vector = count_kernel(_kernel(source, "n,m+9"), view=view)
        for n, m in SIZES:
            moving = sum(chooses_a_moving_part(j, m) for j in range(m))
            expected = {"uniform": n * (m - moving), "stride1": n * moving}
            values = vector.evaluate(n=n, m=m)
            for name, number in expected.items():
                assert values.get(f"gmem.load.32.{name}", 0) == number
            assert not values.get("gmem.load.32.indirect")


def test_names_for_expressions_read_no_data() -> None:
    body = """
        for i, j
            <> row = (i + 3) % n {{id=row}}
            <> same = row*1 {{id=same,dep=row}}
            o[i, j] = {} {{dep=same}}
        end
        """
    assert _loads(_kernel("a[same, j]", body=body), n=5, m=21) == {"stride1": 105}


def test_a_name_that_loops_change_is_data() -> None:
    body = """
        for i
            <> row = 0 {{id=zero}}
            for j
                o[i, j] = {} {{id=use,dep=zero}}
                row = row + i {{id=next,dep=use}}
            end
        end
        """
    assert _loads(_kernel("a[row, j]", body=body, lane="i"), n=5, m=21) == {"indirect": 105}


@pytest.mark.parametrize(
    "expression", ["a[i, (i*j) % m]", "a[i, (j*j) % m]", "a[i, j ^ 1]", "a[i, (j*m) // 2]"]
)
def test_uneven_lanes_have_the_coarsest_class_and_a_way_out(expression: str) -> None:
    kernel = _kernel(expression)
    for view in VIEWS:
        vector = count_kernel(kernel, view=view)
        load = vector["gmem.load.32.1ofn"]
        assert load.quantity.evaluate({"n": 5, "m": 21}) == 105
        assert not load.exact
        assert "statistics={'a': 'stride1'}" in load.reason
        assert vector["gmem.store.32.stride1"].exact or view == "structure"
        stated = count_kernel(kernel, view=view, statistics={"a": "stride1"})
        load = stated["gmem.load.32.stride1"]
        assert load.quantity.evaluate({"n": 5, "m": 21}) == 105
        assert not load.exact
        assert "the caller's access pattern for 'a'" in load.reason


def test_a_footprint_with_many_residues_does_not_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """The elimination of this one made 159,000 terms, and its function was too deep for Python.

    It needs about as many operations of isl as are allowed; here it needs more.
    """
    monkeypatch.setattr(domains, "_OPERATIONS", 300_000)
    vector = count_kernel(_kernel("a[i, (5*j) % 7]", "n,7"), view="structure", cache=False)
    counts = vector.evaluate(n=5, m=21)
    assert counts["gmem.load.32.1of2"] == 105  # of five lanes in seven, as if none lay between
    assert counts["bytes.kernel.load"] == 5 * 7 * 4
    for name in ("gmem.load.32.1of2", "bytes.group.load.dense"):
        assert not vector[name].exact
        assert "footprint" in vector[name].reason or "elimination" in vector[name].reason
    assert "gmem.load.32.1of2" in repr(vector)  # isl adds up the pieces of its counts for minutes


def test_a_footprint_that_is_not_countable_gives_a_coarser_class() -> None:
    vector = count_kernel(_kernel("a[2*(i + n*j)]", "2*n*m"))
    load = vector["gmem.load.32.1ofn"]
    assert load.quantity.evaluate({"n": 5, "m": 21}) == 105
    assert not load.exact


@pytest.mark.parametrize(
    "expression",
    [
        *("a[i, (j + 2) % m]", "a[(i + 3) % n, j]", "a[i, j // 2]", "a[i, (i*j) % m]"),
        "a[(j*n + i) // m, (j*n + i) % m]",
    ],
)
def test_transactions_follow_subscripts_that_divide(expression: str) -> None:
    accesses = analyze_kernel(_kernel(expression)).accesses
    (load,) = (access for access in accesses if access.access.array == "a")
    for n, m in ((5, 21), (7, 33)):
        at = partial(_address, expression, "n,m", n=n, m=m)
        moved = transactions(load, {"n": n, "m": m}, line_bytes=32, sub_group_size=WIDTH)
        lanes = (range(first, min(first + WIDTH, m)) for first in range(0, m, WIDTH))
        groups = itertools.product(range(n), list(lanes))
        assert moved.total == sum(len({at(i=i, j=j) * 4 // 32 for j in js}) for i, js in groups)


def test_lanes_count_apart_in_loops_of_which_the_mean_is_known() -> None:
    kernel = made(
        ["i<n", "j<length"],
        """
        for i
            <> length = lengths[i] {id=length}
            o[i] = sum(j, a[i // 2 + j]) {dep=length}
        end
        """,
        "a,o f32 n; lengths i32 n; n i32",
        split=f"i:{WIDTH}",
    )
    vector = count_kernel(kernel, statistics={"j": 12})
    assert vector.parameters == ("n",)
    values = vector.evaluate(n=101)
    assert values["gmem.load.32.uniform"] == 12 * 51
    assert values["gmem.load.32.stride1"] == 12 * 50 + 101  # and the lengths


def test_padded_rows_use_their_share_of_what_they_step_over() -> None:
    padded = lp.GlobalArg("a", np.float32, shape="n,m", strides=("lda", 1))
    kernel = made("i<n, j<m", "o[i,j] = 2*a[i,j]", "o f32 n,m; n,m,lda i32", padded, split="i:8")
    vector = count_kernel(kernel)
    for n, m, lda in [(5, 21, 21), (5, 21, 30), (5, 21, 60), (9, 4, 17), (3, 8, 8), (1, 1, 5)]:
        cells = {i * lda + j for i in range(n) for j in range(m)}
        assert _loads(vector, n=n, m=m, lda=lda) == {_class_of(lda, cells, is_symbolic=True): n * m}
    used = next(c for name, c in vector.items() if name.startswith("gmem.load"))
    assert not used.exact
    assert "rows do not overlap" in used.reason


def test_automatic_strides_are_those_of_c_order_and_say_so() -> None:
    by_lane = {lane: _kernel("2*a[i,j]", "n,m stride:auto,stride:auto", lane=lane) for lane in "ij"}
    by_row, by_column = count_kernel(by_lane["j"]), count_kernel(by_lane["i"])
    assert by_row.parameters == ("m", "n")
    load = by_row["gmem.load.32.stride1"]
    assert load.quantity.evaluate({"n": 5, "m": 21}) == 105
    assert not load.exact
    assert "loopy.tag_array_axes(t_unit, 'a', 'C,C')" in load.reason
    assert by_column["gmem.load.32.4ofn"].quantity.evaluate({"n": 5, "m": 21}) == 105
    stated = count_kernel(lp.tag_array_axes(by_lane["j"], "a", "C,C"))
    assert stated["gmem.load.32.stride1"].exact
    assert by_row["gmem.store.32.stride1"].exact
    structure = count_kernel(by_lane["j"], view="structure")
    executed = next(c for name, c in structure.items() if name.startswith("site."))
    assert "loopy.tag_array_axes(t_unit, 'a', 'C,C')" in executed.reason


def test_arrays_of_unknown_shape_have_one_axis() -> None:
    kernel = _kernel("2*a[2*j]", "-")
    expected: dict[View, int] = {"source": 5 * 21, "compiled": 21, "structure": 5 * 21}
    for view, executions in expected.items():
        vector = count_kernel(kernel, view=view)
        assert vector["gmem.load.32.1of2"].quantity.evaluate({"n": 5, "m": 21}) == executions


def test_separate_arrays_are_widened_each_for_itself() -> None:
    text = "o[i] = a[0,3*i] + a[1,3*i+1] + a[1,3*i] + a[0,3*i+1] + a[0,3*i+2]"
    vector = count_kernel(made("i<n", text, "a f32 2,3*n sep,C; o f32 n; n i32", split="i:8"))
    for n in (1, 2, 7, 100):
        first = {3 * i + k for i in range(n) for k in range(3)}
        second = {3 * i + k for i in range(n) for k in range(2)}
        used = len(first) + len(second)
        widened = sum(len({c + k for c in part for k in range(3)}) for part in (first, second))
        assert _loads(vector, n=n) == {f"{math.ceil(3 * used / widened)}of3": 5 * n}


def test_separate_axes_in_unrolled_loops() -> None:
    arguments = "a,b f32 3,n sep,C; n i32"
    kernel = made("i<n, d<3", "b[d,i] = 2*a[d,i]", arguments, tags="d:unr", split="i:8")
    for view in VIEWS:
        vector = count_kernel(kernel, view=view)
        assert vector["gmem.load.32.stride1"].quantity.evaluate({"n": 50}) == 150
        assert vector["gmem.store.32.stride1"].quantity.evaluate({"n": 50}) == 150


@pytest.mark.parametrize("step", [1, 2, -1])
def test_rows_of_three_axes_are_classed_by_closed_forms(step: int) -> None:
    row = {1: "i", 2: "2*i", -1: "n - 1 - i"}[step]
    arguments = "a f32 2*n,l,m; c f32 n,l,m; n,l,m i32"
    kernel = made("i<n, j<l, k<m", f"c[i,j,k] = 2*a[{row},j,k]", arguments, split="i:8")
    vector = count_kernel(kernel)
    assert all(count.exact for count in vector.values())
    for n, depth, m in [(1, 1, 1), (2, 3, 4), (3, 2, 5), (9, 4, 3), (4, 1, 7), (2, 1, 1)]:
        rows = {1: range(n), 2: range(0, 2 * n, 2), -1: range(n)}[step]
        cells = {(i * depth + j) * m + k for i in rows for j in range(depth) for k in range(m)}
        expected = _class_of(step * depth * m, cells, is_symbolic=True)
        assert _loads(vector, n=n, l=depth, m=m) == {expected: n * depth * m}


def test_the_analysis_has_no_stride_where_some_items_step_otherwise() -> None:
    for expression, stride in (("a[i, (j + 2) % 40]", None), ("a[(i + 3) % n, j]", "1")):
        analysis = analyze_kernel(_kernel(expression, "n,m+40"))
        (load,) = (access for access in analysis.accesses if access.access.array == "a")
        lanes = next(s.stride for s in load.strides if (s.kind, s.axis) == ("local", 0))
        assert (None if lanes is None else str(lanes)) == stride


@pytest.mark.parametrize(
    ("domain", "sources", "shape"),
    [
        (
            "1 <= i < n - 1 and 1 <= j < l - 1 and 1 <= k < m - 1",
            [(-1, 0, 0), (1, 0, 0), (0, -1, 0), (0, 1, 0), (0, 0, -1), (0, 0, 1)],
            "n,l,m",
        ),
        (
            "0 <= i < n and 0 <= j < l and 0 <= k < m",
            [(0, 0, 0), (1, 0, 1), (2, 1, 0)],
            "n+2,l+1,m+1",
        ),
    ],
)
def test_stencils_along_the_slowest_axis(
    domain: str, sources: list[tuple[int, int, int]], shape: str
) -> None:
    loads = " + ".join(f"a[i + {x}, j + {y}, k + {z}]" for x, y, z in sources)
    kernel = made(
        f"{{ [i,j,k] : {domain} }}",
        f"c[i,j,k] = {loads}",
        f"a f32 {shape}; c f32 n,l,m; n,l,m i32",
        assumptions="n >= 3 and m >= 3 and l >= 3",
    )
    vector = count_kernel(lp.split_iname(kernel, "i", 16, outer_tag="g.0", inner_tag="l.0"))
    assert all(count.exact for count in vector.values())
    border = 1 if domain.startswith("1") else 0
    more = [int(extent[2:] or 0) for extent in shape.replace("+", " ").split(",")]
    for sizes in [(3, 3, 3), (3, 4, 5), (4, 3, 6), (6, 5, 4), (9, 3, 3), (5, 9, 11)]:
        n, depth, m = sizes
        ranges = (range(border, extent - border) for extent in sizes)
        points = list(itertools.product(*ranges))
        rows, columns = depth + more[1], m + more[2]
        read = {
            ((i + x) * rows + j + y) * columns + k + z for i, j, k in points for x, y, z in sources
        }
        written = {(i * depth + j) * m + k for i, j, k in points}
        load = _class_of(rows * columns, read, is_symbolic=True)
        store = _class_of(depth * m, written, is_symbolic=True)
        expected = Counter({f"load.32.{load}": len(points) * len(sources)})
        expected[f"store.32.{store}"] = len(points)
        if load == store:
            expected[f"min.32.{load}"] = len(points)
        values = vector.evaluate(n=n, l=depth, m=m)
        assert {k[5:]: v for k, v in values.items() if k.startswith("gmem.") and v} == expected
