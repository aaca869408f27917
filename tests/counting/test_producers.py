"""Kernels as packages hand them out; stand-ins have the attributes that the packages document."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import loopy as lp
import numpy as np
import pytest

import countperf
from countperf.counting.frontend.producers import take_unit
from countperf.errors import CountingError, KernelSpecificationError
from countperf.measuring import KernelCase
from tests.kernels import made
from tests.models.builders import make_weights


def _double(name: str = "double") -> Any:
    return made("i<n", "z[i] = 2*x[i]", "x,z f32 n; n i32", name=name, split="i:32")


def _bound_program(program: Any) -> Any:
    """Stand for `pytato.target.BoundProgram`: what `pytato.generate_loopy` returns."""
    return SimpleNamespace(
        program=program, bound_arguments={}, target=None, kernel="of the entry point"
    )


def _compiled(program: Any) -> Any:
    """Stand for `arraycontext.impl.pytato.compile.CompiledFunction`."""
    return SimpleNamespace(pytato_program=_bound_program(program), actx=None)


def heat(u: Any) -> Any:
    """Stand for a function that arraycontext compiles."""
    return u


def _objects() -> dict[str, Any]:
    unit = _double()
    executor = SimpleNamespace(t_unit=unit, entrypoint="double")  # as `loopy.ExecutorBase`
    return {
        "a translation unit": unit,
        "a kernel of Loopy": unit.default_entrypoint,
        "an executor": executor,
        "pytato's program": _bound_program(unit),
        "pytato's executable": _bound_program(executor),
        "arraycontext's compiled function": _compiled(executor),
    }


OBJECTS = _objects()


@pytest.mark.parametrize("handed_out", OBJECTS.values(), ids=OBJECTS.keys())
def test_counts_are_those_of_the_kernel_inside(handed_out: Any) -> None:
    vector = countperf.count_kernel(handed_out)
    # one multiplication, one load and one store for each of 64 elements
    counts = vector.evaluate(n=64)
    assert (counts["flop.mul.f32"], counts["gmem.load.32.stride1"]) == (64, 64)
    assert (counts["gmem.store.32.stride1"], counts["groups"]) == (64, 2)


def test_every_entry_point_takes_them(tmp_path: Path) -> None:
    program = _bound_program(_double())
    weights = make_weights({"launches": 1e-5, "gmem.load.32.stride1": 1e-10})
    prediction = countperf.predict(program, n=64, incomplete_ok=True, weights=weights)
    analysis = countperf.analyze_kernel(program)
    case = KernelCase(name="double", kernel=program)
    inside = countperf.predict(program.program, n=64, incomplete_ok=True, weights=weights)
    assert prediction.time_s == inside.time_s > 1e-5
    assert len(analysis.accesses) == 2
    assert case.build() is program.program
    file = tmp_path / "program.py"
    file.write_text(
        "from tests.counting.test_producers import _bound_program, _double\n"
        "program = _bound_program(_double())\n"
        "def make():\n    return _bound_program(_double('made'))\n"
    )
    assert isinstance(countperf.load_kernel(f"{file}:program"), lp.TranslationUnit)
    made: Any = countperf.load_kernel(f"{file}:make")
    assert made.default_entrypoint.name == "made"


REFUSED: tuple[tuple[Any, str], ...] = (
    (SimpleNamespace(code=_double()), "was expected, not SimpleNamespace; pass the one"),
    (heat, "was expected, not function"),
    (3.5, "was expected, not float"),
    ((), "was expected, not tuple"),
)


@pytest.mark.parametrize(("handed_out", "said"), REFUSED, ids=[said for _, said in REFUSED])
def test_what_has_no_single_kernel_is_refused(handed_out: Any, said: str) -> None:
    with pytest.raises(CountingError, match=said):
        countperf.count_kernel(handed_out)


def test_others_are_not_known_and_stay_what_they_are(tmp_path: Path) -> None:
    assert all(take_unit(other) is None for other in (None, 3, "x", {}, heat, object, np.zeros(3)))
    file = tmp_path / "kernels.py"
    file.write_text("number = 3\n")
    with pytest.raises(KernelSpecificationError, match=r"no loopy\.TranslationUnit"):
        countperf.load_kernel(f"{file}:number")


_WARNINGS = pytest.mark.filterwarnings("ignore")


@_WARNINGS
def test_released_pytato_generates_a_program_that_counts() -> None:
    pytato: Any = pytest.importorskip(
        "pytato", reason="pytato is not installed: extra [producers]", exc_type=ImportError
    )
    x = pytato.make_placeholder(name="x", shape=(20, 30), dtype=np.float64)
    try:
        program = pytato.generate_loopy({"out": 2 * x + 1})
    except TypeError as error:
        pytest.skip(f"pytato {getattr(pytato, '__version__', '')} is for an older Loopy: {error}")
    counts = countperf.count_kernel(program).evaluate()
    assert (counts["flop.mul.f64"], counts["flop.add.f64"]) == (600, 600)


@_WARNINGS
def test_released_arraycontext_compiles_a_function_that_counts() -> None:
    arraycontext: Any = pytest.importorskip(
        "arraycontext",
        reason="arraycontext is not installed: extra [producers]",
        exc_type=ImportError,
    )
    if not hasattr(arraycontext, "PytatoPyOpenCLArrayContext"):
        pytest.skip("this release of arraycontext has no context that compiles")
    cl: Any = pytest.importorskip("pyopencl")
    try:
        opencl_context = cl.create_some_context(interactive=False)
        queue = cl.CommandQueue(opencl_context)
    except (cl.Error, RuntimeError) as error:
        pytest.skip(f"no OpenCL device: {error}")
    context = arraycontext.PytatoPyOpenCLArrayContext(queue)
    caller = context.compile(lambda x: 2 * x + 1)
    try:
        caller(context.from_numpy(np.ones(600)))
    except TypeError as error:
        pytest.skip(f"this release is for an older Loopy: {error}")
    counts = countperf.count_kernel(*caller.program_cache.values()).evaluate()
    assert (counts["flop.mul.f64"], counts["flop.add.f64"]) == (600, 600)
