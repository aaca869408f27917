"""Every function that Loopy's target for OpenCL knows has a cost: a weight, or a loan that is told.

The list is Loopy's own, so that a release with more functions fails here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import loopy as lp
import numpy as np
import pytest
from loopy.library.random123 import FUNC_NAMES_TO_RNG
from loopy.target.opencl import VECTOR_LITERAL_FUNCS

from countperf.models.library import load_weights
from countperf.properties.count_properties import count_kernel

pytestmark = pytest.mark.filterwarnings("ignore")  # Loopy and pymbolic warn of what is written

KNOWN = frozenset(lp.PyOpenCLTarget().get_device_ast_builder().known_callables)
ARITIES = {"atan2": 2, "clamp": 3, "fmax": 2, "fmin": 2}
NOT_GENERATED = {
    **dict.fromkeys(("acosh", "asinh", "atanh"), "Loopy knows the name, and finds no types"),
    **dict.fromkeys(("max", "min"), "read as reductions in texts; see `EXPRESSIONS`"),
    "pow": "Loopy fails on its types; written as **, see `EXPRESSIONS`",
    "dot": "of vectors, see `VECTORS`",
}
"""Functions for which Loopy generates no code from a call of numbers."""

TYPES = (np.float32, np.float64, np.int32, np.int64, np.uint8, np.uint32, np.complex64,
         np.complex128)  # fmt: skip
EXPRESSIONS = ("a[i]**b[i]", "a[i]**k", "a[i] // b[i]", "a[i] % b[i]")
VECTORS = ("dot(a[i], b[i])", "sqrt(a[i])", "fmax(a[i], b[i])", "a[i]*b[i]")
WEIGHTS = load_weights("pocl-epyc-zen5", model="structural")


def _kernel(text: str, dtype: Any) -> Any:
    unit = lp.make_kernel(
        "{[i]: 0<=i<n}",
        f"z[i] = {text}",
        [
            lp.GlobalArg("a,b,c", dtype, shape="n"),
            lp.GlobalArg("z", None, shape="n"),
            lp.ValueArg("n,k", np.int32),
        ],
        assumptions="n >= 1",
        lang_version=(2018, 2),
        silenced_warnings=["*"],
    )
    return _launched(unit)


def _launched(unit: Any) -> Any:
    unit = lp.split_iname(unit, "i", 16, outer_tag="g.0", inner_tag="l.0")
    lp.generate_code_v2(unit)  # or an error of Loopy
    return unit


def _calls() -> Iterator[tuple[str, str]]:
    for name in sorted(KNOWN - VECTOR_LITERAL_FUNCS.keys() - FUNC_NAMES_TO_RNG.keys()):
        if name not in NOT_GENERATED:
            arguments = [f"{array}[i]" for array in "abc"[: ARITIES.get(name, 1)]]
            yield name, f"{name}({', '.join(arguments)})"


def _costs(unit: Any) -> None:
    """Predict a kernel; whatever has no weight is borrowed, and the interval says so."""
    sizes = dict.fromkeys(count_kernel(unit).parameters, 1000)
    found = WEIGHTS.predict(unit, sizes)
    assert 0 < found.time_s < 1e-3
    assert found.complete
    assert found.interval_s is not None
    borrowed = [each for each in found.verdicts if each.name == "loans" and not each.passed]
    if borrowed:
        assert "at the cost of" in borrowed[0].message
        assert found.interval_s[1] > 1.5 * found.time_s


@pytest.mark.parametrize(("name", "text"), list(_calls()))
def test_functions_of_numbers_have_a_cost(name: str, text: str) -> None:
    generated = 0
    for dtype in TYPES:
        try:
            unit = _kernel(text, dtype)
        except Exception:  # noqa: BLE001  types that Loopy refuses
            continue
        generated += 1
        _costs(unit)
    assert generated >= 2, name


@pytest.mark.parametrize("name", NOT_GENERATED)
def test_loopy_generates_no_code_for_calls_that_are_left_out(name: str) -> None:
    for dtype in (np.float32, np.float64, np.int32):
        with pytest.raises(Exception, match=r".*"):
            _kernel(f"{name}(a[i], b[i])" if name in ("max", "min", "pow", "dot") else
                    f"{name}(a[i])", dtype)  # fmt: skip


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_powers_divisions_and_remainders_have_a_cost(text: str) -> None:
    for dtype in TYPES[: 4 if "**" in text else 0] or (np.int32, np.int64, np.uint32):
        _costs(_kernel(text, dtype))


@pytest.mark.parametrize("name", ["float4", "double2", "float16", "double8"])
@pytest.mark.parametrize("text", VECTORS)
def test_functions_of_vectors_have_a_cost(name: str, text: str) -> None:
    cltypes = pytest.importorskip("pyopencl.cltypes")
    _costs(_kernel(text, getattr(cltypes, name)))


@pytest.mark.parametrize("name", FUNC_NAMES_TO_RNG)
def test_random_numbers_cost_a_call_for_each_vector(name: str) -> None:
    assert name in KNOWN
    found = re.fullmatch(r"(philox|threefry)(\d)x(\d+)(?:_f(\d+))?", name)
    assert found is not None
    kind, width, bits, real = found.groups()
    word, keys = {"32": "uint", "64": "ulong"}[bits], {"philox": 2, "threefry": 4}[kind]
    counter = f"make_{word}{width}({', '.join(['i'] + ['k'] * (int(width) - 1))})"
    unit = lp.make_kernel(
        "{[i]: 0<=i<n}",
        f"""
        for i
            <> key = make_{word}{keys}({", ".join(["k"] * keys)})
            <> counter = {counter}
            <> random, counter = {name}(counter, key)
            z[i] = random.s0
        end
        """,
        [
            lp.GlobalArg("z", None, shape="n"),
            lp.ValueArg("n", np.int32),
            lp.ValueArg("k", np.uint32 if bits == "32" else np.uint64),
        ],
        assumptions="n >= 1",
        seq_dependencies=True,
        lang_version=(2018, 2),
    )
    unit = _launched(unit)
    kind_of_number = f"flop.special.f{real}" if real else f"iop.special.u{bits}"
    assert count_kernel(unit).evaluate(n=100)[f"{kind_of_number}.{name}"] == 100
    _costs(unit)
