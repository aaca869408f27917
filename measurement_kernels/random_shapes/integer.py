"""Random integer arithmetic: each item runs chains of it, with divisions by constants among them.

States stay below :math:`2^{24}`, which ``f32`` holds exactly.
"""

from __future__ import annotations

from collections.abc import Iterator

from measurement_kernels.arguments import SizeParameter
from measurement_kernels.entry import CatalogEntry
from measurement_kernels.programs import Program, Shape, Step
from measurement_kernels.random_shapes.chains import chains
from measurement_kernels.random_shapes.draws import Draw, random_entries

_NUMBER = 35
_REGULAR = 20

_UPDATES = {
    # with seconds per update, about; b is drawn from _POWERS, d from _DIVISORS
    "({s} * 5 + k) % {b}": 0.8e-9,
    "({s} + 7 * k) % {d}": 1.5e-9,
    "{s} // {d} + 1000": 1.5e-9,
    "{s} // {b} + 3 * k": 0.8e-9,
    "({s} // {d} + 13 * {s}) % {b}": 2.0e-9,
    "({s} * 3 + i) % {b}": 0.8e-9,
    "{s} // 2 + i % {b}": 1.0e-9,
    "({s} + k) % {d} + {s} // {b}": 2.5e-9,
}
_POWERS = (8, 64, 256, 1024, 4096)
_DIVISORS = (3, 7, 10, 100, 509, 1021)


def entries() -> Iterator[CatalogEntry]:
    """List the family."""
    yield from random_entries(
        "random-integer", "random chains of integer arithmetic", _NUMBER, _REGULAR, drawn
    )


def drawn(draw: Draw) -> tuple[Program, Shape] | None:
    """Draw a kernel; None where the choices do not fit together."""
    planar = draw.chance(0.4)
    loops = ("i", "j") if planar else ("i",)
    items = draw.planar_group() if planar else (draw.linear_group(),)
    number = draw.pick((1, 1, 2, 2, 3, 4))
    step = draw.length((2, 4, 6, 8, 16))
    unrolled = draw.chance(0.35) and step * number <= 32
    kinds = draw.some(tuple(_UPDATES), draw.pick((1, 1, 2, 3)))
    chosen = [kinds[q % len(kinds)] for q in range(number)]
    terms = -(-draw.integer(1, 4) * 24 // step) * step
    states = tuple(
        (
            f"(i + {17 * q}) % 1021",
            kind.format(s=f"s{q}", b=draw.pick(_POWERS), d=draw.pick(_DIVISORS)),
        )
        for q, kind in enumerate(chosen)
    )
    work_s = terms * sum(_UPDATES[kind] for kind in chosen)
    sizes = (
        *draw.sizes(
            dict(zip("nl", items, strict=False)), lambda s: s["n"] * s.get("l", 1) * work_s
        ),
        SizeParameter(name="m", multiple=step, base=1, fixed=terms),
    )
    return chains(
        "integers",
        loops,
        items,
        states,
        sizes,
        first_axis=draw.pick((1, 0)) if planar else 0,
        state_type="int32",
        steps=(Step(loop="k", length=step, unrolled=unrolled),) if unrolled else (),
    )
