"""Count, analyze and predict kernels of many projects, and say what becomes of each.

    python scripts/survey_kernels.py                      # the corpus of the tests, and packages
    python scripts/survey_kernels.py FOLDER --no-corpus   # all functions of the files of a folder

Units are those of ``tests/corpus``, those that pytato generates where it is installed, and what the
functions without required arguments in the Python files of folders return. A kernel that is refused
is counted again with the advice of the message followed literally: what stands after
``statistics=`` and ``instruction_counts=`` in it, and tags.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import inspect
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

import loopy as lp
import numpy as np
from loopy.kernel.data import VectorizeTag

import countperf
from countperf.counting.frontend import schedule
from countperf.counting.frontend.loopy_patches import unattended
from countperf.counting.frontend.producers import known_unit
from countperf.counting.vector import PropertyVector
from countperf.errors import CountperfError
from countperf.models.weights import WeightSet
from tests.corpus import all_units

Outcome = Literal[
    "counted", "with advice", "refused by Loopy", "advice fails", "not built", "fault"
]
OUTCOMES: tuple[Outcome, ...] = (
    "counted",
    "with advice",
    "refused by Loopy",
    "advice fails",
    "not built",
    "fault",
)
"""Outcomes: it counts; it counts with what the message advises; Loopy generates no code for it; it
is refused with advice that does not help; its builder fails; an error that is none of ours.
"""

_ADVICE = re.compile(r"(statistics|instruction_counts)=(\{.*?\}+)", re.DOTALL)
_UNROLL = re.compile(r"loop '(\w+)'; tag it 'unr'")
_SIZES = (64, 96, 1024, 8, 1)
_MOST_TRIES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Surveyed:
    """Outcome of one kernel."""

    source: str  # where it comes from
    name: str  # where it comes from
    outcome: Outcome  # of counting
    said: str = ""  # the last error; empty if it counts
    # processor and wall-clock time of counting beyond Loopy's preprocessing, scheduling and
    # checks, s; the slowest of the tries
    own_s: float = 0.0
    # processor and wall-clock time of counting beyond Loopy's preprocessing, scheduling and
    # checks, s; the slowest of the tries
    own_wall_s: float = 0.0
    # why it has no analysis or prediction; empty if it has, None if it does not count
    unanalyzed: str | None = None
    # why it has no analysis or prediction; empty if it has, None if it does not count
    unpredicted: str | None = None


class Times(NamedTuple):
    """Processor and wall-clock time, s."""

    processor_s: float
    wall_s: float

    @classmethod
    def now(cls) -> Times:
        """Return the time of this process."""
        return cls(time.process_time(), time.perf_counter())

    def since(self, before: Times) -> Times:
        """Return the time between."""
        return Times(self.processor_s - before.processor_s, self.wall_s - before.wall_s)


class LoopyTime:
    """Time that Loopy takes to preprocess and schedule kernels, and to check and generate code."""

    def __init__(self) -> None:
        self.spent = Times(0.0, 0.0)
        for name in ("preprocessed", "linearized", "inlined", "_check_for_code"):
            setattr(schedule, name, self._timed(getattr(schedule, name)))

    def _timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **options: Any) -> Any:
            began = Times.now()
            try:
                return function(*arguments, **options)
            finally:
                took = Times.now().since(began)
                self.spent = Times(
                    self.spent.processor_s + took.processor_s, self.spent.wall_s + took.wall_s
                )

        return timed


@dataclass(slots=True)
class Try:
    """A kernel, and how it is to be counted."""

    unit: Any
    statistics: dict[str, Any] = field(default_factory=dict[str, Any])
    instruction_counts: dict[str, Any] = field(default_factory=dict[str, Any])

    def follow(self, message: str) -> bool:
        """Do what a message advises, literally; return whether it advises anything new."""
        before = (self.unit, dict(self.statistics), dict(self.instruction_counts))
        for option, text in _ADVICE.findall(message):
            try:
                found = ast.literal_eval(text)
            except (SyntaxError, ValueError):
                continue
            getattr(self, option).update(found)
        for iname in _UNROLL.findall(message):
            kernel = lp.untag_inames(self.unit.default_entrypoint, iname, VectorizeTag)
            self.unit = self.unit.with_kernel(kernel)
            self.unit = lp.tag_inames(self.unit, {iname: "unr"})
        return before != (self.unit, self.statistics, self.instruction_counts)


def survey(
    source: str,
    name: str,
    build: Callable[[], Any],
    sizes: Mapping[str, int] | None,
    weights: WeightSet,
    loopy: LoopyTime,
) -> Surveyed | None:
    """Count, analyze and predict one kernel; None if it is no kernel."""
    try:
        with unattended():
            unit = known_unit(build())
    except Exception as error:  # noqa: BLE001  of others' code
        return Surveyed(source=source, name=name, outcome="not built", said=str(error))
    if unit is None:
        return None
    way = Try(unit)
    slowest = Times(0.0, 0.0)
    said = ""
    for turn in range(_MOST_TRIES):
        loopy.spent = Times(0.0, 0.0)
        began = Times.now()
        vector = None
        try:
            vector = countperf.count_kernel(
                way.unit,
                statistics=way.statistics,
                instruction_counts=way.instruction_counts,
                cache=False,
            )
        except CountperfError as error:
            said = str(error)
        except Exception as error:  # noqa: BLE001  a fault of ours, to be told
            said = f"{type(error).__name__}: {error}"
            return Surveyed(source=source, name=name, outcome="fault", said=said)
        slowest = Times(*map(max, slowest, Times.now().since(began).since(loopy.spent)))
        if vector is not None:
            return Surveyed(
                source=source,
                name=name,
                outcome="with advice" if turn else "counted",
                own_s=slowest.processor_s,
                own_wall_s=slowest.wall_s,
                unanalyzed=_unanalyzed(way),
                unpredicted=_unpredicted(way, vector, sizes, weights),
            )
        if not way.follow(said):
            break
    return Surveyed(
        source=source,
        name=name,
        outcome="advice fails" if _generates(unit) else "refused by Loopy",
        said=said,
        own_s=slowest.processor_s,
        own_wall_s=slowest.wall_s,
    )


def _generates(unit: Any) -> bool:
    """Return whether Loopy generates code for a kernel."""
    try:
        with unattended():
            lp.generate_code_v2(unit)
    except Exception:  # noqa: BLE001  Loopy fails in many ways
        return False
    return True


def _unanalyzed(way: Try) -> str:
    """Return why a kernel that counts is not analyzed; nothing if it is."""
    try:
        countperf.analyze_kernel(way.unit, statistics=way.statistics)
    except Exception as error:  # noqa: BLE001  ours or not, it is to be told
        return f"{type(error).__name__}: {error}"
    return ""


def _unpredicted(
    way: Try, vector: PropertyVector, sizes: Mapping[str, int] | None, weights: WeightSet
) -> str:
    """Return why a kernel that counts has no prediction; nothing if it has one."""
    choices = [sizes] if sizes else [dict.fromkeys(vector.parameters, size) for size in _SIZES]
    said = ""
    for chosen in choices:
        known = {name: chosen.get(name, _SIZES[0]) for name in vector.parameters}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                countperf.predict(
                    way.unit,
                    known,
                    weights=weights,
                    statistics=way.statistics or None,
                    instruction_counts=way.instruction_counts or None,
                )
            return ""
        except Exception as error:  # noqa: BLE001  ours or not, it is to be told
            said = said or f"{type(error).__name__}: {error}"
    return said


# --- where kernels come from


def corpus() -> Iterator[tuple[str, str, Callable[[], Any], Mapping[str, int] | None]]:
    """Yield the units of the corpus of the tests."""
    for source, units in all_units().items():
        for name, build, sizes in units:
            yield source, name, build, sizes


def packages() -> Iterator[tuple[str, str, Callable[[], Any], Mapping[str, int] | None]]:
    """Yield programs that installed packages generate; say which cannot."""
    try:
        import pytato as pt

        pt.generate_loopy({"out": 2 * pt.make_placeholder("x", (4,), np.float64)})
    except Exception as error:  # noqa: BLE001  not installed, or for another Loopy
        print(f"pytato generates nothing here: {type(error).__name__}: {error}")
        return
    x = pt.make_placeholder("x", (40, 60), np.float64)
    y = pt.make_placeholder("y", (60, 30), np.float64)
    z = pt.make_placeholder("z", (40, 60), np.complex128)
    rows = pt.make_placeholder("rows", (10,), np.int64)
    graphs = {
        "axpy": lambda: 2 * x + 1,
        "matmul": lambda: x @ y,
        "roll": lambda: pt.roll(x, 3, axis=1),
        "reshape": lambda: pt.reshape(x, (24, 100)),
        "concatenate": lambda: pt.concatenate((x, x), axis=0),
        "stack": lambda: pt.stack((x, 2 * x), axis=0),
        "transpose": lambda: pt.transpose(x),
        "einsum": lambda: pt.einsum("ij,jk,ij->ik", x, y, x),
        "sum": lambda: pt.sum(x, axis=1),
        "maximum of all": lambda: pt.amax(x),
        "where": lambda: pt.where(pt.greater(x, 0), x, 0.5 * x),
        "slice": lambda: x[::2, 3:50:4],
        "index by an array": lambda: x[rows],
        "functions": lambda: pt.sin(x) * pt.exp(x) + pt.sqrt(x),
        "atan2": lambda: pt.arctan2(x, x + 1),
        "pad": lambda: pt.pad(x, 2),
        "complex": lambda: z * z + 2 * z,
        "parts": lambda: pt.real(z) * pt.imag(z),
    }
    for name, make in graphs.items():
        yield "pytato, installed", name, lambda make=make: pt.generate_loopy({"out": make()}), {}


def folder(path: Path) -> Iterator[tuple[str, str, Callable[[], Any], Mapping[str, int] | None]]:
    """Yield the functions without required arguments of the Python files of a folder."""
    for file in sorted(path.glob("*.py")):
        specification = importlib.util.spec_from_file_location(f"surveyed_{file.stem}", file)
        assert specification is not None
        assert specification.loader is not None
        module = importlib.util.module_from_spec(specification)
        sys.modules[specification.name] = module
        try:
            specification.loader.exec_module(module)
        except Exception as error:  # noqa: BLE001  of others' code
            print(f"{file} cannot be imported: {type(error).__name__}: {error}")
            continue
        for name, value in vars(module).items():
            if inspect.isfunction(value) and value.__module__ == module.__name__ and name[0] != "_":
                required = [
                    each
                    for each in inspect.signature(value).parameters.values()
                    if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, 4)
                ]
                if not required:
                    yield file.name, name, value, None


def table(found: list[Surveyed]) -> str:
    """Write how many kernels of each source came to which end."""
    titles = "".join(f"{each:>18}" for each in OUTCOMES)
    lines = [f"{'':24}{'units':>6}{titles}  analyzed, predicted"]
    for source in [*dict.fromkeys(each.source for each in found), ""]:
        some = [each for each in found if source in ("", each.source)]
        outcomes = Counter(each.outcome for each in some)
        counts = [each for each in some if each.unpredicted is not None]
        analyzed = sum(not each.unanalyzed for each in counts)
        predicted = sum(not each.unpredicted for each in counts)
        lines.append(
            f"{source or 'all':24}{len(some):>6}"
            + "".join(f"{outcomes[each]:>18}" for each in OUTCOMES)
            + f"  {analyzed}, {predicted} of {len(counts)}"
        )
    return "\n".join(lines)


def main() -> int:
    """Survey kernels; the exit status tells whether any ended in a fault of ours."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--no-corpus", action="store_true", help="only folders and packages")
    parser.add_argument("--weights", default="pocl-epyc-zen5")
    parser.add_argument("--model", default="structural")
    parser.add_argument("--only", default="", help="names that match this regular expression")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    weights = countperf.load_weights(options.weights, model=options.model)
    loopy = LoopyTime()
    found: list[Surveyed] = []
    for kernels in (
        () if options.no_corpus else corpus(),
        packages(),
        *(folder(each) for each in options.folders),
    ):
        for source, name, build, sizes in kernels:
            if not re.search(options.only, name):
                continue
            each = survey(source, name, build, sizes, weights, loopy)
            if each is None:
                continue
            found.append(each)
            if each.said:
                print(f"{each.outcome}: {source}: {name}: {each.said[:300]}", flush=True)
            for what, why in (("analyzed", each.unanalyzed), ("predicted", each.unpredicted)):
                if why:
                    print(f"not {what}: {source}: {name}: {why[:300]}", flush=True)
    print(table(found))
    for each in sorted(found, key=lambda one: -one.own_s)[:5]:
        print(
            f"{each.own_s:.2f} s of processor time ({each.own_wall_s:.2f} s by the clock) beyond"
            f" Loopy's own: {each.source}: {each.name}"
        )
    return 1 if any(each.outcome in ("advice fails", "fault") for each in found) else 0


if __name__ == "__main__":
    sys.exit(main())
