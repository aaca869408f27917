"""Floating-point operations of kernels that other packages generate, counted and as they are known.

`scripts/count_producers` calls it where the packages are installed. Those of TSFC are what its own
``flop_count`` says (a multiplication by -1 is none there), those of pytato and arraycontext follow
from the sizes. It ends with status 1 if a count differs.

=============  ==========  ==================================  ==========
package        commit      Loopy                               islpy
=============  ==========  ==================================  ==========
TSFC           9fc3266cd   f4d773c4, with sets of namedisl     2026.2.2
pytato         70d844be    94a3a3f9, the last with islpy's     2026.2.2
arraycontext   d74503b     94a3a3f9                            2026.2.2
=============  ==========  ==================================  ==========

pytato 70d844be makes its domains by islpy, which Loopy no longer takes after 94a3a3f9.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np

import countperf

Row = tuple[str, Any, float]
"""A kernel's name, what the package hands out, and its floating-point operations."""


def from_tsfc() -> Iterator[Row]:
    """Compile forms for one cell; PETSc, which only caches and citations need, is left out."""
    caching: Any = ModuleType("pyop2.caching")
    caching.serial_cache = lambda **_: lambda function: function
    citations: Any = ModuleType("petsctools")
    citations.add_citation = citations.cite = lambda *_: None
    sys.modules |= {"pyop2": caching, "pyop2.caching": caching, "petsctools": citations}
    import finat.ufl
    import ufl
    from tsfc import compile_form

    for cell, degree in ((ufl.triangle, 1), (ufl.triangle, 2), (ufl.tetrahedron, 3)):
        mesh = ufl.Mesh(finat.ufl.VectorElement("P", cell, 1))
        space = ufl.FunctionSpace(mesh, finat.ufl.FiniteElement("P", cell, degree))
        trial, test = ufl.TrialFunction(space), ufl.TestFunction(space)
        field = ufl.Coefficient(space)
        forms = {
            "mass": trial * test * ufl.dx,
            "stiffness": ufl.inner(ufl.grad(trial), ufl.grad(test)) * ufl.dx,
            "reaction": field * field * test * ufl.dx,
        }
        for name, form in forms.items():
            (kernel,) = compile_form(form)
            yield f"TSFC: {name}, P{degree}, {cell.cellname}", kernel, kernel.flop_count


def from_pytato() -> Iterator[Row]:
    """Generate kernels of array expressions, and have arraycontext compile a function."""
    import pytato

    n = 1000
    x, y = (pytato.make_placeholder(name, (n,), np.float64) for name in "xy")
    a, b = (pytato.make_placeholder(*of, np.float64) for of in (("a", (60, 50)), ("b", (50, 40))))
    expressions = {
        "2*x + y": (2 * x + y, 2 * n),
        "a @ b": (a @ b, 2 * 60 * 50 * 40),
        "sum(x*x)": (pytato.sum(x * x), 2 * n),
        "x - roll(x, 1)": (x - pytato.roll(x, 1), n),
        "einsum(ij,j->i)": (pytato.einsum("ij,j->i", a, b[:, 0]), 2 * 60 * 50),
    }
    for name, (expression, operations) in expressions.items():
        yield f"pytato: {name}", pytato.generate_loopy(expression), operations
    if importlib.util.find_spec("arraycontext"):
        import arraycontext
        import pyopencl as cl

        queue = cl.CommandQueue(cl.create_some_context(interactive=False))
        context = arraycontext.PytatoPyOpenCLArrayContext(queue)
        function = context.compile(lambda u, v: 2 * u + v * v)
        array = context.from_numpy(np.arange(float(n)))
        function(array, array)
        yield "arraycontext: 2*u + v*v", function, 3 * n


def operations_of(handed_out: Any) -> float:
    """Return the counted operations on f64, a change of sign left out."""
    counts = countperf.count_kernel(handed_out).evaluate({})
    return sum(n for name, n in counts.items() if "f64" in name and name.startswith("flop.")) - (
        counts.get("flop.neg.f64", 0)
    )


def main() -> int:
    """Print a row for each kernel."""
    wrong = 0
    for name, handed_out, known in (
        from_tsfc() if importlib.util.find_spec("tsfc") else from_pytato()
    ):
        counted = operations_of(handed_out)
        wrong += counted != known
        print(f"{name:<40} counted {counted:>10g}   known {known:>10g}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
