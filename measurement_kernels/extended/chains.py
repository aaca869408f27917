"""Chains of arithmetic: one is bound by latency, several run side by side.

Each item starts from its own element and applies one operation again and again. The chains of an
item don't depend on each other. Behind barriers the operand comes from a table in local memory.
"""

from __future__ import annotations

from collections.abc import Iterator

from measurement_kernels.arguments import ArrayArgument, Extent, SizeParameter
from measurement_kernels.entry import CatalogEntry
from measurement_kernels.program_entries import program_entry
from measurement_kernels.programs import Divided, Fetch, Program, Recurrence, Shape, Step

_ITEMS = 128
_STEP = 32
_CHAINS = (1, 2, 4, 8)
_UPDATES = {
    "add": "{s} + {x}",
    "mul": "{s} * 1.0009765625",
    "fma": "0.9375 * {s} + {x}",
    "rsqrt": "rsqrt({s} + 1.5)",
    "exp": "exp(0.0 - {s})",
}
_TABLE_UPDATES = {
    "add": "{s} + {x}",
    "fma": "0.9375 * {s} + {x}",
    "rsqrt": "rsqrt({s} + {x} + 1.5)",
}
_BASES = {"add": 2**16, "mul": 2**16, "fma": 2**16, "rsqrt": 2**14, "exp": 2**13}
_ROUNDS = 128


def entries() -> Iterator[CatalogEntry]:
    """List both families."""
    for kind, update in _UPDATES.items():
        for chains in _CHAINS if kind in ("add", "fma", "rsqrt") else (1, 4):
            yield _entry(kind, update, chains, "f32", behind_barriers=False)
    for kind, chains in (("add", 1), ("fma", 1), ("fma", 4), ("rsqrt", 2)):
        yield _entry(kind, _UPDATES[kind], chains, "f64", behind_barriers=False)
    for kind, update in _TABLE_UPDATES.items():
        for chains in (1, 4):
            yield _entry(kind, update, chains, "f32", behind_barriers=True)


def _entry(
    kind: str, update: str, chains: int, element_type: str, *, behind_barriers: bool
) -> CatalogEntry:
    program, shape = chains_program(
        f"chains_{kind}",
        chains,
        update,
        element_type,
        items=_ITEMS,
        base=_BASES[kind] // chains,
        step=_STEP,
        behind_barriers=behind_barriers,
    )
    return program_entry(
        program,
        shape,
        family="chains-behind-barriers" if behind_barriers else "independent-chains",
        variant=f"{kind}-{chains}",
        collection="extended",
        description=f"{chains} chains of {kind} per item",
        exponent_steps=(0, 2),
    )


def chains_program(
    name: str,
    chains: int,
    update: str,
    element_type: str,
    *,
    items: int,
    base: int,
    step: int,
    behind_barriers: bool,
) -> tuple[Program, Shape]:
    """Return chains that each item updates 128 times, and which items do it.

    Parameters
    ----------
    name : str
        Name of the program.
    chains : int
        How many each item has.
    update : str
        What a state becomes, in terms of ``{s}``, itself, and ``{x}``, the operand.
    element_type : str
        Such as ``f32``.
    items : int
        Of a group.
    base : int
        Of all groups, at exponent 0.
    step : int
        Updates between barriers; it divides 128.
    behind_barriers : bool
        Whether the operand comes from a table, through local memory, or is the item's own.
    """
    operand = "t[k]" if behind_barriers else "a[i]"
    program = Program(
        name=name,
        loops=(("i", "n"), ("k", "m")),
        formulas=(
            Recurrence(
                target="r[i]",
                states=tuple(
                    (f"{0.5 + q / 16} * a[i] * a[i]", update.format(s=f"s{q}", x=operand))
                    for q in range(chains)
                ),
                loop="k",
                result=" + ".join(f"s{q}" for q in range(chains)),
            ),
        ),
        sizes=(
            SizeParameter(name="n", multiple=items, base=base),
            SizeParameter(name="m", multiple=step, fixed=_ROUNDS),
        ),
        arguments=(
            ArrayArgument(name="a", shape=(Extent("n"),)),
            *((ArrayArgument(name="t", shape=(Extent("m"),)),) if behind_barriers else ()),
            ArrayArgument(name="r", shape=(Extent("n"),), role="output"),
        ),
        element_type=element_type,
    )
    table = Fetch(array="t", sweep=("k_in",), within=("i_group", "k_step"), axes=(0,))
    shape = Shape(
        divided=(Divided(loop="i", axis=0, items=items),),
        steps=(Step(loop="k", length=step),) if behind_barriers else (),
        fetches=(table,) if behind_barriers else (),
    )
    return program, shape
