"""Loopy's preprocessing and scheduling, which take longer than counting: once, or not at all."""

from __future__ import annotations

from typing import Any

import loopy as lp
import pytest
from loopy.schedule import Barrier

from countperf.counting.analysis import analyze_kernel
from countperf.counting.count_properties import count_kernel, count_loopy_kernel
from countperf.counting.programs import kernel_programs
from countperf.errors import CountingError
from tests.kernels import made

_STEPS = ("preprocess_program", "get_one_linearized_kernel")


def _reversal() -> Any:
    """Two barriers: local memory is written again in each pass of the loop."""
    return made(
        "[n] -> {[g, l, k]: 0 <= 16*g + l < n and 0 <= l < 16 and 0 <= k < 8}",
        """
        for g, l, k
            tile[l] = a[k, 16*g + l] {id=write}
            b[k, 16*g + l] = tile[15 - l] {id=read, dep=write}
        end
        """,
        "a,b f32 8,n; tile f32 16 local; n i32",
        assumptions="n mod 16 = 0 and n >= 16",
        tags={"g": "g.0", "l": "l.0"},
    )


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record which of the steps are run."""
    taken: list[str] = []
    for name in _STEPS:
        original = getattr(lp, name)

        def step(*arguments: Any, name: str = name, original: Any = original) -> Any:
            taken.append(name)
            return original(*arguments)

        monkeypatch.setattr(lp, name, step)
    return taken


def test_a_kernel_is_scheduled_once_for_all_views(steps: list[str]) -> None:
    t_unit = _reversal()
    vector = count_kernel(t_unit, view="structure", cache=False)
    kernel_programs(t_unit)
    analyze_kernel(t_unit)
    assert steps == list(_STEPS)
    assert vector.evaluate(n=32)["barrier.local"] == 2 * 8 * 32


def test_a_scheduled_kernel_is_not_scheduled_again(steps: list[str]) -> None:
    t_unit = lp.preprocess_program(_reversal())
    kernel = lp.get_one_linearized_kernel(t_unit.default_entrypoint, t_unit.callables_table)
    steps.clear()
    vector = count_kernel(t_unit.with_kernel(kernel), cache=False)
    assert steps == []
    assert vector == count_kernel(_reversal(), cache=False)


def test_the_schedule_of_the_caller_is_the_one_that_counts() -> None:
    t_unit = lp.preprocess_program(_reversal())
    kernel = lp.get_one_linearized_kernel(t_unit.default_entrypoint, t_unit.callables_table)
    items = list(kernel.linearization or ())
    barriers = [item for item in items if isinstance(item, Barrier)]
    assert barriers
    items.remove(barriers[0])
    counts = count_loopy_kernel(t_unit.with_kernel(kernel.copy(linearization=items)))
    assert counts.operations["barrier.local"].evaluate({"n": 32}) == (len(barriers) - 1) * 8 * 32


def test_a_preprocessed_kernel_counts_as_the_kernel_itself(steps: list[str]) -> None:
    t_unit = lp.preprocess_program(_reversal())
    steps.clear()
    assert count_kernel(t_unit, cache=False) == count_kernel(_reversal(), cache=False)
    assert steps.count("get_one_linearized_kernel") == 2


def test_a_kernel_that_loopy_cannot_schedule_is_refused_without_a_question(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def asked(prompt: str = "") -> str:
        raise AssertionError(f"asked {prompt!r}")

    monkeypatch.setattr("builtins.input", asked)
    t_unit = made(
        ["[n] -> { [i]: 0 <= i < 5 }", "[n] -> { [j]: 0 <= j < n + 2 }"],
        """
        y[0] = max(i, (1.0 if a[i] > a[2] else 2.0)) {id=first}
        z[j] = max(i, b[i])*2 {id=second}
        """,
        "a,b f32 6; y f32 1; z f32 n+2; n i32",
        assumptions="n >= 4",
        silenced_warnings=["v1_scheduler_fallback", "write_race(first)", "write_race(second)"],
    )
    t_unit = lp.split_iname(t_unit, "j", 2, inner_tag="ilp")
    with pytest.raises(CountingError, match="not have a schedulable iname nesting"):
        count_kernel(t_unit)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("view", ["source", "compiled", "structure"])
def test_indices_along_separate_axes_have_to_be_constants(view: Any) -> None:
    arguments = "o f64 n; u f64 3,n sep,C; n i32"
    kernel = made("d<3, i<n", "o[i] = sum(d, u[d, i])", arguments, assumptions="")
    with pytest.raises(CountingError, match=r"no code for it.*unroll the iname\(s\) 'd'"):
        count_kernel(kernel, view=view)
    # as Loopy advises
    counts = count_kernel(lp.tag_inames(kernel, {"d": "unr"}), view=view).evaluate(n=10)
    assert sum(n for name, n in counts.items() if name.startswith("gmem.load")) == 30
