"""Loopy's preprocessing and scheduling, which take longer than counting: once, or not at all."""

from __future__ import annotations

from typing import Any

import loopy as lp
import pytest
from loopy.schedule import Barrier

from countperf.counting.analysis import analyze_kernel
from countperf.counting.kernel import count_loopy_kernel
from countperf.counting.programs import kernel_programs
from countperf.errors import CountingError
from countperf.properties.count_properties import count_kernel

_STEPS = ("preprocess_program", "get_one_linearized_kernel")


def _reversal() -> Any:
    """Two barriers: local memory is written again in each pass of the loop."""
    t_unit = lp.make_kernel(
        "[n] -> {[g, l, k]: 0 <= 16*g + l < n and 0 <= l < 16 and 0 <= k < 8}",
        """
        for g, l, k
            tile[l] = a[k, 16*g + l] {id=write}
            b[k, 16*g + l] = tile[15 - l] {id=read, dep=write}
        end
        """,
        [
            lp.GlobalArg("a,b", "float32", shape=("8", "n")),
            lp.TemporaryVariable(
                "tile", "float32", shape=(16,), address_space=lp.AddressSpace.LOCAL
            ),
            lp.ValueArg("n", "int32"),
        ],
        lang_version=(2018, 2),
        assumptions="n mod 16 = 0 and n >= 16",
    )
    return lp.tag_inames(t_unit, {"g": "g.0", "l": "l.0"})


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
    found = count_kernel(t_unit.with_kernel(kernel), cache=False)
    assert steps == []
    assert found == count_kernel(_reversal(), cache=False)


def test_the_schedule_of_the_caller_is_the_one_that_counts() -> None:
    t_unit = lp.preprocess_program(_reversal())
    kernel = lp.get_one_linearized_kernel(t_unit.default_entrypoint, t_unit.callables_table)
    items = list(kernel.linearization or ())
    barriers = [item for item in items if isinstance(item, Barrier)]
    assert barriers
    items.remove(barriers[0])
    counts = count_loopy_kernel(t_unit.with_kernel(kernel.copy(linearization=items)))
    assert counts.local_barriers.evaluate({"n": 32}) == (len(barriers) - 1) * 8 * 32


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
    t_unit = lp.make_kernel(
        ["[n] -> { [i]: 0 <= i < 5 }", "[n] -> { [j]: 0 <= j < n + 2 }"],
        """
        y[0] = max(i, (1.0 if a[i] > a[2] else 2.0)) {id=first}
        z[j] = max(i, b[i])*2 {id=second}
        """,
        [
            lp.GlobalArg("a,b", "float32", shape=6),
            lp.GlobalArg("y", "float32", shape=1),
            lp.GlobalArg("z", "float32", shape="n + 2"),
            lp.ValueArg("n", "int32"),
        ],
        assumptions="n >= 4",
        lang_version=(2018, 2),
        silenced_warnings=["v1_scheduler_fallback", "write_race(first)", "write_race(second)"],
    )
    t_unit = lp.split_iname(t_unit, "j", 2, inner_tag="ilp")
    with pytest.raises(CountingError, match="no valid schedules found"):
        count_kernel(t_unit)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("view", ["source", "compiled", "structure"])
def test_places_along_separate_axes_have_to_be_constants(view: Any) -> None:
    kernel = lp.make_kernel(
        "{[d, i]: 0 <= d < 3 and 0 <= i < n}",
        "o[i] = sum(d, u[d, i])",
        [
            lp.GlobalArg("o", "float64", shape="n"),
            lp.GlobalArg("u", "float64", shape="3,n", dim_tags="sep,C"),
            lp.ValueArg("n", "int32"),
        ],
        lang_version=(2018, 2),
    )
    with pytest.raises(CountingError, match=r"no code for it.*unroll the iname\(s\) 'd'"):
        count_kernel(kernel, view=view)
    # as Loopy advises
    counts = count_kernel(lp.tag_inames(kernel, {"d": "unr"}), view=view).evaluate(n=10)
    assert sum(n for name, n in counts.items() if name.startswith("gmem.load")) == 30
