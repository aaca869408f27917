"""Functions and divisions, mapped over arrays and in loops of items; some not called by all.

Groups of 20 items leave some over from vectors of any usual width. Behind barriers the operand
comes from a table in local memory, so that compilers keep items side by side in loops.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from measurement_kernels.arguments import ArrayArgument, Extent, SizeParameter
from measurement_kernels.entry import CatalogEntry
from measurement_kernels.program_entries import program_entry
from measurement_kernels.programs import (
    Divided,
    Fetch,
    Formula,
    Program,
    Recurrence,
    Shape,
    Step,
)

_FUNCTIONS = {
    "sqrt": "sqrt({x})",
    "rsqrt": "rsqrt({x})",
    "exp": "exp({x})",
    "log": "log({x})",
    "sin": "sin({x})",
    "cos": "cos({x})",
    "tanh": "tanh({x})",
    "pow": "({x})**0.75",
    "div": "1.0 / ({x})",
}
_CONDITIONAL = ("sqrt", "rsqrt", "exp", "pow")
_TYPES = ("f32", "f64")
_STEP = 32
_ROUNDS = 64


def entries() -> Iterator[CatalogEntry]:
    """List both families."""
    for element_type in _TYPES:
        for function in _FUNCTIONS:
            for items in (20, 128):
                yield _map(function, items, element_type)
        for function in _FUNCTIONS:
            yield _loop(function, 20, element_type, place="free")
            yield _loop(function, 64, element_type, place="sync")
        for function in _CONDITIONAL:
            yield _loop(function, 64, element_type, place="free", is_conditional=True)
            yield _loop(function, 64, element_type, place="sync", is_conditional=True)


def _map(function: str, items: int, element_type: str) -> CatalogEntry:
    program = Program(
        name=f"map_{function}",
        loops=(("i", "n"),),
        formulas=(Formula(target="r[i]", terms=(_FUNCTIONS[function].format(x="a[i] + 1.25"),)),),
        sizes=(SizeParameter(name="n", multiple=items, base=2**17),),
        arguments=(
            ArrayArgument(name="a", shape=(Extent("n"),)),
            ArrayArgument(name="r", shape=(Extent("n"),), role="output"),
        ),
        element_type=element_type,
    )
    return program_entry(
        program,
        Shape(divided=(Divided(loop="i", axis=0, items=items),)),
        family="function-maps",
        variant=function,
        collection="extended",
        description=f"{function} of each element",
        exponent_steps=(0, 2),
    )


def _loop(
    function: str,
    items: int,
    element_type: str,
    *,
    place: Literal["free", "sync"],
    is_conditional: bool = False,
) -> CatalogEntry:
    value = _FUNCTIONS[function].format(x="a[i] * t[k] + 1.25")
    term = f"({value} if i != k else 0.0)" if is_conditional else value
    program = Program(
        name=f"sum_{function}",
        loops=(("i", "n"), ("k", "m")),
        formulas=(
            Recurrence(
                target="r[i]",
                states=(("0.0", f"s0 + {term}"),),
                loop="k",
                result="s0",
            ),
        ),
        sizes=(
            SizeParameter(name="n", multiple=items, base=2**12),
            SizeParameter(name="m", multiple=_STEP, fixed=_ROUNDS),
        ),
        arguments=(
            ArrayArgument(name="a", shape=(Extent("n"),)),
            ArrayArgument(name="t", shape=(Extent("m"),)),
            ArrayArgument(name="r", shape=(Extent("n"),), role="output"),
        ),
        element_type=element_type,
    )
    is_fetched = place == "sync"
    table = Fetch(array="t", sweep=("k_in",), within=("i_group", "k_step"), axes=(0,))
    return program_entry(
        program,
        Shape(
            divided=(Divided(loop="i", axis=0, items=items),),
            steps=(Step(loop="k", length=_STEP),) if is_fetched else (),
            fetches=(table,) if is_fetched else (),
        ),
        family="function-loops",
        variant=f"{function}-{'some' if is_conditional else 'all'}-{place}",
        collection="extended",
        description=f"sums of {function}, called by {'some' if is_conditional else 'all'} items",
        exponent_steps=(0, 2),
    )
