"""Generated kernels against an interpreter that runs their loops, and what they once showed."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from countperf.counting.count_properties import count_kernel
from countperf.errors import CountingError
from tests.counting.random_kernels import DISTINCT, Campaign
from tests.kernels import made
from tests.oracles.interpreter import Interpreter
from tests.strategies import KernelCase, kernels

_UNEVEN = "refused by countperf: UnsupportedExpressionError: kernel 'loopy_kernel': the address of "
"""Floors in subscripts along the lanes, drawn on purpose: they have no stride, by definition."""


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Loopy on newer islpy
def test_counts_equal_what_the_interpreter_executes() -> None:
    campaign = Campaign()

    @settings(
        max_examples=DISTINCT * 9 // 5,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=[
            HealthCheck.too_slow,
            HealthCheck.filter_too_much,
            HealthCheck.data_too_large,
            HealthCheck.large_base_example,
        ],
    )
    @given(kernels())
    def check(case: KernelCase) -> None:
        if campaign.verdicts["equal"] < DISTINCT:
            wrong = campaign.add(case)
            assert not wrong, wrong

    check()
    compared = campaign.verdicts["equal"]
    assert compared >= DISTINCT, (campaign.verdicts, campaign.refusals)
    assert not any("LoopyIndexError" in text for text in campaign.refusals), campaign.refusals
    assert campaign.classed >= compared // 5
    refused = campaign.verdicts["refused by countperf"] - sum(
        times for text, times in campaign.refusals.items() if text.startswith(_UNEVEN)
    )
    assert refused <= compared // 20, campaign.refusals


# --- the smallest kernels with counts that were wrong or missing


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        # in the type reached so far
        ("x[i] + y[i] + d[i]", {"flop.add.f32": 10, "flop.add.f64": 10}),
        ("x[i]*y[i]*d[i]", {"flop.mul.f32": 10, "flop.mul.f64": 10}),
        ("x[i] if i < 4 else d[i]", {"flop.convert.f64": 4}),  # only where it is taken
    ],
)
def test_mixed_types(expression: str, expected: dict[str, int]) -> None:
    kernel = made("i<n", f"z[i] = {expression}", "x,y f32 n; z,d f64 n; n i32")
    counts = count_kernel(kernel).evaluate(n=10)
    assert {name: counts[name] for name in expected} == expected


@pytest.mark.parametrize("operation", ["max", "min"])
@pytest.mark.parametrize("kind", ["f32", "f64", "i32"])
def test_the_initial_value_of_an_extremum_is_free(operation: str, kind: str) -> None:
    arguments = f"a {kind} n,n; z {kind} n; n i32"
    counts = count_kernel(made("i<n, j<n", f"z[i] = {operation}(j, a[i, j])", arguments))
    (extrema,) = (v for k, v in counts.evaluate(n=10).items() if k.startswith(("flop", "iop")))
    assert extrema == 100


_PRODUCTS = ("z[i, j] = 1.5*a[i]", "a f32 n; z f32 n,n; n i32")


def test_equal_group_axes_of_separate_domains_both_count() -> None:
    kernel = made(["i<n", "j<n"], *_PRODUCTS, split="i:3 j:3:1")
    assert count_kernel(kernel).evaluate(n=7)["groups"] == 9


def test_groups_are_those_that_loopy_launches() -> None:
    domain = "{ [i, j] : 0 <= i < n and i < 5 and 0 <= j < n }"
    kernel = made(domain, *_PRODUCTS, tags={"i": "g.0"})
    vector = count_kernel(kernel)
    for n in (3, 8):
        launched = Interpreter(kernel).run({"n": n}).work_groups
        assert vector.evaluate(n=n)["groups"] == launched


def test_groups_without_work_skip_the_barriers_of_a_loop() -> None:
    kernel = made(
        "{ [g, h, l, k] : 0 <= h <= g and g < n and 0 <= l < 4 and 0 <= k < 3 }",
        """
        for g, h, l, k
            tile[l] = a[g, l + k] {id=fill}
            b[g, h, k, l] = tile[3 - l] {id=use, dep=fill}
        end
        """,
        "a f32 n,8; b f32 n,n,3,4; tile f32 4 local; n i32",
        tags={"g": "g.0", "h": "g.1", "l": "l.0"},
    )
    executed = Interpreter(kernel).run({"n": 5}).local_barriers
    assert executed % 15 == 0  # pairs of groups that work
    assert count_kernel(kernel).evaluate(n=5)["barrier.local"] == executed


@pytest.mark.parametrize(
    ("expression", "multiplications"),
    [
        ("((3.25*0.5)**2)**2", 0),
        ("2.0*(1.0 + 3.0)*x[i]", 10),
        ("(1.0 + 3.0)*(2.0/7.0 + 1.0)*x[i]", 10),
        ("x[i]*2.0*(1.0 + 3.0)", 20),
    ],
)
def test_operations_on_numbers_alone_are_free(expression: str, multiplications: int) -> None:
    kernel = made("i<n", f"z[i] = {expression}", "x,z f32 n; n i32")
    counted = count_kernel(kernel).evaluate(n=10)
    executed = Interpreter(kernel).run({"n": 10}).properties()
    assert counted.get("flop.mul.f32", 0) == executed.get("flop.mul.f32", 0) == multiplications
    for name in ("flop.add.f32", "flop.div.f32"):
        assert counted.get(name, 0) == executed.get(name, 0) == 0


def test_a_footprint_beyond_the_limit_is_marked_wherever_the_limit_is_reached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel = made(
        "i<n, j<n", "y[j, 3*i + 1] = a[i, 2*j]", "a f64 n,2*n; y f64 n,3*n; n i32", split="i:4"
    )
    for operations in range(1, 400, 7):
        monkeypatch.setattr("countperf.counting.domains._OPERATIONS", operations)
        vector = count_kernel(kernel)
        counts = {name: count for name, count in vector.items() if name.startswith("gmem.")}
        assert set(counts) == {"gmem.load.64.1ofn", "gmem.store.64.1of3"}  # as if by itself
        assert not any(count.exact for count in counts.values())
        assert all("too complicated" in count.reason for count in counts.values())


def test_loops_without_a_joint_domain_are_refused() -> None:
    kernel = made(
        ["i<n", "[i] -> { [j] : 0 <= j <= i }", "[i] -> { [k] : 0 <= k <= i }"],
        "z[i, j, k] = 1.5*a[i]",
        "a f32 n; z f32 n,n,n; n i32",
    )
    with pytest.raises(CountingError):
        count_kernel(kernel)
