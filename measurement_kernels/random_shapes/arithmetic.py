"""Random arithmetic: each item runs chains of operations, with little access to memory."""

from __future__ import annotations

from collections.abc import Iterator

from measurement_kernels.arguments import ArrayArgument, Extent, SizeParameter
from measurement_kernels.entry import CatalogEntry
from measurement_kernels.programs import Fetch, Program, Shape, Step
from measurement_kernels.random_shapes.chains import chains, extents
from measurement_kernels.random_shapes.draws import Draw, random_entries

_NUMBER = 40
_REGULAR = 15
_DOUBLE = 10
_UPDATES = {
    # seconds per update, about; states stay between -2 and 6 for inputs of at most 1/2
    "{s} * {x} + {c}": 1.0e-9,
    "0.5 * {s} + {x}": 1.0e-9,
    "{s} + {x}": 0.8e-9,
    "{s} - {x} * {x}": 1.0e-9,
    "0.5 * ({s} + {x}) * ({s} - {x}) - 0.25": 1.5e-9,
    "{x} - 0.75 * {s}": 1.0e-9,
    "rsqrt({s} * {s} + {c})": 2.0e-9,
    "sqrt({s} * {s} + {c}) - 1.0": 2.0e-9,
    "{c} / ({s} * {s} + 1.5)": 2.0e-9,
    "exp(-{s} * {s}) + {x}": 6.0e-9,
    "fmax({x} - {s}, 0.25 * {s})": 1.0e-9,
}


def entries() -> Iterator[CatalogEntry]:
    """List the family."""
    yield from random_entries(
        "random-arithmetic",
        "random chains of arithmetic, of random shape",
        _NUMBER,
        _REGULAR,
        drawn,
        double=_DOUBLE,
    )


def drawn(draw: Draw) -> tuple[Program, Shape] | None:
    """Draw a kernel; None where the choices do not fit together."""
    planar = draw.chance(0.3)
    loops = ("i", "j") if planar else ("i",)
    items = draw.planar_group() if planar else (draw.linear_group(),)
    table = draw.pick(("", "", "global", *(("local",) * 3 if not planar else ())))
    step = draw.length((4, 6, 8, 16, 24, 32, 64))
    number = draw.pick((1, 1, 2, 2, 3, 4, 5, 6))
    kinds = draw.some(tuple(_UPDATES), draw.pick((1, 1, 2, 3)))
    own = f"a[{', '.join(loops)}]"
    other = "t[k]" if table else own
    if table and not any("{x}" in kind for kind in kinds):
        return None
    chosen = [kinds[q % len(kinds)] for q in range(number)]
    states = tuple(
        (
            f"{draw.coefficient()} * {own}",
            kind.format(s=f"s{q}", x=other, c=str(draw.integer(2, 12) / 16)),
        )
        for q, kind in enumerate(chosen)
    )
    terms = draw.integer(1, 5) * 48
    unrolled = draw.chance(0.3) and step * number <= 48
    work = terms * sum(_UPDATES[kind] for kind in chosen) * (0.4 if table == "local" else 0.8)
    sizes = (
        *draw.sizes(dict(zip("nl", items, strict=False)), lambda s: s["n"] * s.get("l", 1) * work),
        SizeParameter(name="m", multiple=step, base=1, fixed=-(-terms // step) * step),
    )
    if not any(other in update for _, update in states):
        table = ""
    first_axis = draw.pick((1, 0)) if planar else 0
    fetch = Fetch(
        array="t",
        sweep=("k_in",),
        within=(*(f"{loop}_group" for loop in loops), "k_step"),
        axes=(0,),
    )
    return chains(
        "chains",
        loops,
        items,
        states,
        sizes,
        first_axis=first_axis,
        inputs=(
            ArrayArgument(name="a", shape=extents(loops)),
            *((ArrayArgument(name="t", shape=(Extent("m"),)),) if table else ()),
        ),
        steps=(Step(loop="k", length=step, unrolled=unrolled),)
        if unrolled or table == "local"
        else (),
        fetches=(fetch,) if table == "local" else (),
    )
