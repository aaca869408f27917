"""Programs against NumPy, and the kernels made from them on a device and under Oclgrind."""

from __future__ import annotations

import hashlib
import re
import zlib
from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from countperf import analyze_kernel, count_kernel
from countperf.devices.discovery import find_device
from countperf.errors import DeviceError
from countperf.measuring.runner import KernelRunner
from measurement_kernels.arguments import ArrayArgument, Extent, SizeParameter
from measurement_kernels.catalog import entries
from measurement_kernels.entry import CatalogEntry, Collection
from measurement_kernels.extended import through_data
from measurement_kernels.programs import Formula, Program, Recurrence
from tests.nightly import one_of
from tests.oracles import oclgrind

_SHARES: tuple[tuple[Collection, int], ...] = (("random", 8), ("extended", 3))
_INDIRECT = ("random-gather", "random-scatter")
_THROUGH_DATA = ("random", "rows-near", "columns-small", "uneven-12", "uneven-24-product")


def _sample() -> list[CatalogEntry]:
    """Choose one in 16 random kernels and one in 6 extended ones, of each family, by name."""
    families: defaultdict[str, list[CatalogEntry]] = defaultdict(list)
    for collection, share in _SHARES:
        for each in entries(element_type=None, collection=collection):
            if zlib.crc32(each.name.encode()) % share == 0:
                families[each.family].append(each)
    return [each for some in families.values() for each in some[::2]]


SAMPLE = _sample()
THROUGH_DATA = [each for each in through_data.entries() if each.variant in _THROUGH_DATA]


_MOST_EXECUTED = 10**6
"""Counted work that Oclgrind executes in about a second; kernels with more run at smaller sizes."""


def _counts(each: CatalogEntry, sizes: Mapping[str, int]) -> Mapping[str, Any]:
    statistics = each.statistics_at(each.check_parameters)
    return count_kernel(each.build(), statistics=statistics).evaluate(sizes)


def _integers(each: CatalogEntry) -> dict[str, list[int]]:
    """Return the contents of arrays of integers."""
    arguments = each.make_arguments(np.random.default_rng(0), each.check_parameters)
    arrays = {n: a for n, a in arguments.items() if isinstance(a, np.ndarray)}
    return {n: a.ravel().tolist() for n, a in arrays.items() if a.dtype.kind == "i"}


@pytest.fixture(scope="module")
def runner() -> KernelRunner:
    try:
        return KernelRunner.open(find_device())
    except DeviceError as error:
        pytest.skip(str(error))


@pytest.mark.device
@pytest.mark.parametrize("each", one_of(12, SAMPLE))
def test_numbers_are_right(each: CatalogEntry, runner: KernelRunner) -> None:
    runner.check(each.case(each.exponents[0] + each.exponent_steps[0]))


@pytest.mark.oclgrind
@pytest.mark.skipif(oclgrind.PROGRAM is None, reason="oclgrind-kernel is not installed")
@pytest.mark.parametrize("each", one_of(10, [*SAMPLE[::2], *THROUGH_DATA]))
def test_counts_equal_executed_instructions(each: CatalogEntry, tmp_path: Path) -> None:
    sizes = each.check_parameters
    if sum(_counts(each, sizes).values()) > _MOST_EXECUTED and each in SAMPLE:
        halves = {size: max(1, sizes[size.name] // size.multiple // 2) for size in each.sizes}
        sizes = {size.name: size.multiple * half for size, half in halves.items()}
    executed = oclgrind.run(each.build(), sizes, tmp_path, contents=_integers(each))
    assert oclgrind.disagreements(_counts(each, sizes), executed) == {}


def test_sample_is_counted_and_analyzed() -> None:
    for each in SAMPLE[1::24]:
        assert _counts(each, each.check_parameters)["launches"] == 1
        statistics = each.statistics_at(each.check_parameters)
        assert analyze_kernel(each.build(), statistics=statistics)


def test_draws_never_change() -> None:
    drawn: defaultdict[str, list[str]] = defaultdict(list)
    for each in entries(collection="random", element_type=None):
        assert isinstance(each.builder, partial)
        kind = "random" if each.family not in _INDIRECT else "indirect"
        kind = "blocked" if each.family.startswith("blocked-") else kind
        kind = "even" if each.family.endswith("-even-sizes") else kind
        text = f"{each.name} {each.exponents} {each.exponent_steps} {each.builder.args}"
        text = text.replace(", values=None", "")  # a field that is newer than the draws
        text = text.replace("<function near ", "<function _near ")  # as it was called then
        drawn[kind].append(re.sub(r"(<function \w+) at \w+>", r"\1>", text))
    digests = {
        kind: hashlib.sha256("\n".join(some).encode()).hexdigest()[:16]
        for kind, some in drawn.items()
    }
    assert digests == {
        "random": "0c0f2f3221b05565",
        "indirect": "dd718cf19b3b20a8",
        "blocked": "d677804eeaa74f83",
        "even": "60bc550d00d35322",
    }


def _program(*formulas: Formula | Recurrence, target: tuple[Extent | int, ...]) -> Program:
    return Program(
        name="program",
        loops=(("i", "n"), ("k", 3)),
        formulas=formulas,
        sizes=(SizeParameter(name="n"),),
        arguments=(
            ArrayArgument(name="a", shape=(Extent("n"), 3)),
            ArrayArgument(name="r", shape=target, role="output"),
        ),
    )


def test_a_formula_sums_each_term_on_its_own() -> None:
    formula = Formula(
        target="r[n - 1 - i]", terms=("a[i, k]", "2.0"), result="{0} - {1} * i", summed=("k",)
    )
    a = np.arange(6.0).reshape(2, 3)
    got = _program(formula, target=(Extent("n"),)).expected({"a": a}, {"n": 2})
    np.testing.assert_array_equal(got["r"], [12 - 6.0, 3.0])


def test_a_recurrence_updates_its_states_in_turn() -> None:
    recurrence = Recurrence(
        target="r[i]",
        states=(("1.0", "0.5 * s0 + a[i, k]"), ("a[i, 0]", "fmax(s1, a[i, k]) + k")),
        loop="k",
        result="s0 + 100.0 * s1",
    )
    a = np.array([[1.0, 2.0, 8.0], [4.0, 4.0, 4.0]])
    got = _program(recurrence, target=(Extent("n"),)).expected({"a": a}, {"n": 2})
    first = [((0.5 + 1) / 2 + 2) / 2 + 8, ((0.5 + 4) / 2 + 4) / 2 + 4]
    np.testing.assert_array_equal(got["r"], np.array(first) + 100 * np.array([10.0, 7.0]))


def test_a_recurrence_stores_its_parts_first_and_chooses_for_each_element() -> None:
    recurrence = Recurrence(
        target="r[i]",
        states=(("0.0", "s0 + (w if i != k else 0.0)"),),
        loop="k",
        result="s0",
        parts=(("d", "a[i, k] - i"), ("w", "d * d")),
    )
    program = _program(recurrence, target=(Extent("n"),))
    a = np.array([[1.0, 2.0, 8.0], [5.0, 4.0, 3.0]])
    got = program.expected({"a": a}, {"n": 2})
    np.testing.assert_array_equal(got["r"], [4.0 + 64, 16.0 + 4])
    reads = count_kernel(program.unit())["gmem.load.32.uniform"].quantity.evaluate({"n": 8})
    assert reads == 8 * 3  # stored, hence not read again where it is squared
