"""Chains of operations of each item, one or several of them, that a loop along k continues."""

from __future__ import annotations

from collections.abc import Sequence

from measurement_kernels.arguments import ArrayArgument, Extent, SizeParameter
from measurement_kernels.programs import Divided, Fetch, Program, Recurrence, Shape, Step

_SIZES = {"i": "n", "j": "l", "k": "m"}


def extents(loops: Sequence[str]) -> tuple[Extent, ...]:
    """Return the extents of arrays with an element for each item."""
    return tuple(Extent(_SIZES[loop]) for loop in loops)


def chains(
    name: str,
    loops: tuple[str, ...],
    items: tuple[int, ...],
    states: tuple[tuple[str, str], ...],
    sizes: tuple[SizeParameter, ...],
    *,
    first_axis: int,
    inputs: tuple[ArrayArgument, ...] = (),
    state_type: str = "",
    steps: tuple[Step, ...] = (),
    fetches: tuple[Fetch, ...] = (),
) -> tuple[Program, Shape]:
    """Make a kernel whose items sum the states in which their chains end, in array r.

    Parameters
    ----------
    name : str
        A C identifier.
    loops, items : tuple of str, tuple of int
        Loops ``i``, or ``i`` and ``j``, with the items of a group along each.
    states : tuple of (str, str)
        As in `Recurrence`.
    sizes : tuple of SizeParameter
        Those of the loops, n and l, and m along k.
    first_axis : int
        Local axis of i; j has the other one.
    inputs : tuple of ArrayArgument, optional
        What is read.
    state_type : str, optional
        As in `Recurrence`.
    steps, fetches : tuple of Step, tuple of Fetch, optional
        As in `Shape`.
    """
    program = Program(
        name=name,
        loops=tuple((loop, _SIZES[loop]) for loop in (*loops, "k")),
        formulas=(
            Recurrence(
                target=f"r[{', '.join(loops)}]",
                states=states,
                loop="k",
                result=" + ".join(f"s{q}" for q in range(len(states))),
                state_type=state_type,
            ),
        ),
        sizes=sizes,
        arguments=(*inputs, ArrayArgument(name="r", shape=extents(loops), role="output")),
    )
    shape = Shape(
        divided=tuple(
            Divided(loop=loop, axis=axis, items=length)
            for loop, axis, length in zip(loops, (first_axis, 1 - first_axis), items, strict=False)
        ),
        steps=steps,
        fetches=fetches,
    )
    return program, shape
