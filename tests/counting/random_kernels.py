"""Generated kernels: the counting engine against the interpreter, and a campaign over many."""

from __future__ import annotations

import os
import re
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal
from unittest import mock

import loopy as lp

from countperf.counting.accesses import UtilizationClass
from countperf.counting.count_properties import count_kernel
from countperf.counting.vector import PropertyVector
from countperf.errors import CountperfError
from tests.oracles.interpreter import Interpreter, NotInterpretedError, utilization_classes
from tests.strategies import LOOPY_REFUSALS, KernelCase

DISTINCT = int(os.environ.get("COUNTPERF_GENERATED_KERNELS", "40"))
"""Number of generated kernels that a test compares; ``scripts/nightly`` takes more."""

_CLASSED = re.compile(r"(gmem\.(?:load|store)\.\d+)\..*")

Verdict = Literal[
    "equal", "different", "refused by Loopy", "refused by countperf", "not interpreted"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """The verdict on one kernel."""

    verdict: Verdict  # whether counted and executed numbers agree, or who refused the kernel
    details: str = ""  # differences as (counted, executed), or the refusal
    is_classed: bool = False  # whether utilization classes were compared too


def _without_classes(counted: dict[str, Any]) -> dict[str, Any]:
    result: Counter[str] = Counter()
    for name, number in counted.items():
        if not name.startswith("gmem.min."):
            match = _CLASSED.fullmatch(name)
            result[match[1] if match else name] += number
    return result


def _count(case: KernelCase, t_unit: Any) -> PropertyVector:
    """Count a kernel; where footprints are not simple, without finding utilization classes.

    Nothing is remembered: what is counted without classes would be found by other kernels.
    """
    if case.is_simple:
        return count_kernel(t_unit, cache=False)
    classes = (UtilizationClass(name="stride1"),)
    with mock.patch("countperf.counting.access_classes.Footprints.classes", return_value=classes):
        return count_kernel(t_unit, cache=False)


def _refuse(verdict: Verdict, error: Exception) -> Examination:
    return Examination(verdict=verdict, details=f"{type(error).__name__}: {error}")


def examine(case: KernelCase) -> Examination:
    """Count and interpret a kernel at all its sizes, and compare.

    Anything that countperf raises outside its own hierarchy passes through.
    """
    with lp.CacheMode(False):
        try:
            t_unit = lp.preprocess_program(case.build())  # once for both
            interpreter = Interpreter(t_unit)
        except LOOPY_REFUSALS as error:
            return _refuse("refused by Loopy", error)
        sizes = case.parameters(t_unit)
        try:
            runs = [interpreter.run(p, with_cells=case.is_simple) for p in sizes]
        except NotInterpretedError as error:
            return Examination(verdict="not interpreted", details=str(error))
        except lp.LoopyError as error:  # found late: no joint domain of loops
            with suppress(CountperfError):
                _count(case, t_unit)
            return _refuse("refused by Loopy", error)
        try:
            vector = _count(case, t_unit)
        except CountperfError as error:
            return _refuse("refused by countperf", error)
    classes = utilization_classes(runs) if case.is_simple else None
    for number, (parameters, run) in enumerate(zip(sizes, runs, strict=True)):
        counted = vector.evaluate(parameters)
        if classes is None:
            executed, counted = run.properties(), _without_classes(counted)
        else:
            executed = run.properties(classes[number])
        names = sorted({*counted, *executed})
        differences = {
            name: (counted.get(name, 0), executed.get(name, 0))
            for name in names
            if counted.get(name, 0) != executed.get(name, 0)
        }
        if differences:
            return Examination(verdict="different", details=f"at {parameters}: {differences}")
    return Examination(verdict="equal", is_classed=classes is not None)


@dataclass(slots=True)
class Campaign:
    """The verdicts on many kernels."""

    distinct: set[KernelCase] = field(default_factory=set[KernelCase])  # all that were examined
    verdicts: Counter[str] = field(default_factory=Counter[str])  # by verdict
    classed: int = 0  # kernels of which utilization classes were compared
    refusals: Counter[str] = field(default_factory=Counter[str])  # refusals by their first words

    def add(self, case: KernelCase) -> str:
        """Examine a kernel unless it was before; return what is wrong, empty if nothing is."""
        if case in self.distinct:
            return ""
        found = examine(case)
        self.verdicts[found.verdict] += 1
        self.classed += found.is_classed
        if found.verdict == "different":
            return found.details
        self.distinct.add(case)
        if found.details:
            self.refusals[f"{found.verdict}: {re.sub(r'[0-9]+', '#', found.details)[:150]}"] += 1
        return ""
