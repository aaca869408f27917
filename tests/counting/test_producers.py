"""Kernels as packages hand them out; stand-ins have the attributes that the packages document."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import loopy as lp
import numpy as np
import pytest

import countperf
from countperf.counting.producers import known_unit, translation_unit
from countperf.errors import CountingError, KernelSpecificationError
from countperf.measurements import KernelCase
from tests.models.builders import make_weights


def _double(name: str = "double") -> Any:
    kernel = lp.make_kernel(
        "{ [i] : 0 <= i < n }",
        "z[i] = 2*x[i]",
        [lp.GlobalArg("x,z", np.float32, shape="n"), lp.ValueArg("n", np.int32)],
        name=name,
        assumptions="n >= 1",
        lang_version=(2018, 2),
    )
    return lp.split_iname(kernel, "i", 32, outer_tag="g.0", inner_tag="l.0")


@dataclass
class BoundProgram:
    """As `pytato.target.BoundProgram`: what `pytato.generate_loopy` returns."""

    program: Any
    bound_arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    target: Any = None

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("counting runs nothing")

    @property
    def kernel(self) -> Any:
        return self.program.default_entrypoint


@dataclass
class Executor:
    """As `loopy.ExecutorBase`, which pytato's executables hold."""

    t_unit: Any
    entrypoint: str = "double"


@dataclass
class CompiledFunction:
    """As `arraycontext.impl.pytato.compile.CompiledFunction`."""

    pytato_program: BoundProgram
    actx: Any = None


@dataclass
class CompilingCaller:
    """As what ``actx.compile(f)`` returns."""

    f: Callable[..., Any]
    actx: Any = None
    program_cache: dict[Any, CompiledFunction] = field(default_factory=dict[Any, CompiledFunction])


@dataclass
class LocalKernel:
    """As `pyop2.local_kernel.LocalKernel`."""

    code: Any
    name: str = "form_cell_integral"
    accesses: Any = None


@dataclass
class TsfcKernel:
    """As `tsfc.kernel_interface.common.Kernel`."""

    ast: Any
    name: str = "form_cell_integral"


class KernelInfo(NamedTuple):
    """As `firedrake.tsfc_interface.KernelInfo`."""

    kernel: Any
    integral_type: str


class SplitKernel(NamedTuple):
    """As `firedrake.tsfc_interface.SplitKernel`."""

    indices: tuple[Any, ...]
    kinfo: KernelInfo


@dataclass
class GlobalKernel:
    """As `pyop2.global_kernel.GlobalKernel`."""

    local_kernel: LocalKernel


def heat(u: Any) -> Any:
    """Stand for a function that arraycontext compiles."""
    return u


def _objects() -> dict[str, Any]:
    unit = _double()
    compiled = CompiledFunction(BoundProgram(Executor(unit)))
    split = SplitKernel((None,), KernelInfo(LocalKernel(unit), "cell"))
    return {
        "a translation unit": unit,
        "a kernel of Loopy": unit.default_entrypoint,
        "an executor": Executor(unit),
        "pytato's program": BoundProgram(unit),
        "pytato's executable": BoundProgram(Executor(unit)),
        "arraycontext's compiled function": compiled,
        "arraycontext's compiling caller": CompilingCaller(heat, program_cache={"f64": compiled}),
        "PyOP2's local kernel": LocalKernel(unit),
        "PyOP2's global kernel": GlobalKernel(LocalKernel(unit)),
        "TSFC's kernel": TsfcKernel(unit),
        "Firedrake's split kernel": split,
        "a form with one integral": (split,),
    }


OBJECTS = _objects()


@pytest.mark.parametrize("handed_out", OBJECTS.values(), ids=OBJECTS.keys())
def test_counts_are_those_of_the_kernel_inside(handed_out: Any) -> None:
    vector = countperf.count_kernel(handed_out)

    # one multiplication, one load and one store for each of 64 elements
    found = vector.evaluate(n=64)
    assert (found["flop.mul.f32"], found["gmem.load.32.stride1"]) == (64, 64)
    assert (found["gmem.store.32.stride1"], found["groups"]) == (64, 2)


def test_every_entry_point_takes_them(tmp_path: Path) -> None:
    program = BoundProgram(_double())
    weights = make_weights({"launches": 1e-5, "gmem.load.32.stride1": 1e-10})

    prediction = weights.predict(program, n=64, incomplete_ok=True)
    analysis = countperf.analyze_kernel(program)
    case = KernelCase(name="double", kernel=program)

    inside = weights.predict(program.program, n=64, incomplete_ok=True)
    assert prediction.time_s == inside.time_s > 1e-5
    assert len(analysis.accesses) == 2
    assert case.build() is program.program

    file = tmp_path / "program.py"
    file.write_text(
        "from tests.counting.test_producers import BoundProgram, _double\n"
        "program = BoundProgram(_double())\n"
        "def make():\n    return BoundProgram(_double('made'))\n"
    )
    assert isinstance(countperf.load_kernel(f"{file}:program"), lp.TranslationUnit)
    made: Any = countperf.load_kernel(f"{file}:make")
    assert made.default_entrypoint.name == "made"


REFUSED: tuple[tuple[Any, str], ...] = (
    (CompilingCaller(heat), "heat has not been compiled yet"),
    (
        CompilingCaller(
            heat,
            program_cache={
                kind: CompiledFunction(BoundProgram(_double())) for kind in ("f32", "f64")
            },
        ),
        "heat was compiled for 2 sets of argument types",
    ),
    (LocalKernel("void f(double *x) {}"), "'form_cell_integral' is C code"),
    (
        (TsfcKernel(_double(), "first"), TsfcKernel(_double(), "second")),
        r"2 kernels were given; pass them one by one, kernels\[0\] first",
    ),
    (heat, "was expected, not function"),
    (3.5, "was expected, not float"),
    ((), "was expected, not tuple"),
)


@pytest.mark.parametrize(("handed_out", "said"), REFUSED, ids=[said for _, said in REFUSED])
def test_what_has_no_single_kernel_is_refused(handed_out: Any, said: str) -> None:
    with pytest.raises(CountingError, match=said):
        countperf.count_kernel(handed_out)


def test_advice_on_several_compiled_kernels_works() -> None:
    caller = REFUSED[1][0]

    for each in list(caller.program_cache.values()):
        assert translation_unit(each).default_entrypoint.name == "double"


def test_others_are_not_known_and_stay_what_they_are(tmp_path: Path) -> None:
    assert all(known_unit(each) is None for each in (None, 3, "x", {}, heat, object, np.zeros(3)))
    file = tmp_path / "kernels.py"
    file.write_text("number = 3\n")
    with pytest.raises(KernelSpecificationError, match=r"no loopy\.TranslationUnit"):
        countperf.load_kernel(f"{file}:number")


# {{{ the released packages, which warn of what they use of their dependencies

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

    found = countperf.count_kernel(program).evaluate()

    assert (found["flop.mul.f64"], found["flop.add.f64"]) == (600, 600)


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

    found = countperf.count_kernel(caller).evaluate()

    assert (found["flop.mul.f64"], found["flop.add.f64"]) == (600, 600)


# }}}
