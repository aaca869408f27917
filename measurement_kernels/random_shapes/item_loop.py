"""Random loops of single items: sums over rows and columns, with several accumulators; recurrences.

Each item makes one element, or one of a plane, of all that it reads along k.
"""

from __future__ import annotations

from collections.abc import Iterator

from measurement_kernels.arguments import ArrayArgument, Extent
from measurement_kernels.entry import CatalogEntry
from measurement_kernels.programs import (
    Divided,
    Fetch,
    Formula,
    Program,
    Recurrence,
    Shape,
    Step,
)
from measurement_kernels.random_shapes.draws import LOCAL_BYTES, Draw, random_entries

_NUMBER = 45
_REGULAR = 25
_DOUBLE = 10
_TERM_S = 0.5e-9

_TERMS = (
    "{a}",
    "{a} * {t}",
    "{a} * {t}",
    "{a} * {a}",
    "fabs({a} - {t})",
    "{a} * {b}",
    "({a} - {b}) * {t}",
    "{c} * {a} + {t} * {t}",
)
_UPDATES = (
    "{s} * {t} + {a}",
    "{s} * {a} + {t}",
    "fmax({s}, {a} * {t})",
    "fmin({s}, {a} - {t})",
    "0.5 * {s} + {a} * {t}",
    "{a} - 0.75 * {s}",
)


def entries() -> Iterator[CatalogEntry]:
    """List the family."""
    yield from random_entries(
        "random-item-loop",
        "random sums and recurrences of single items",
        _NUMBER,
        _REGULAR,
        drawn,
        double=_DOUBLE,
    )


def drawn(draw: Draw) -> tuple[Program, Shape] | None:
    """Draw a kernel; None where the choices do not fit together."""
    planar = draw.chance(0.25)
    loops = ("i", "j") if planar else ("i",)
    items = draw.planar_group() if planar else (draw.linear_group(), 1)
    each = draw.length((1, 1, 1, 2, 3))
    step = draw.length((3, 4, 6, 8, 12, 16, 20, 32))
    recurrent = draw.chance(0.35)
    fetched = "t" if not planar and draw.chance(0.45) else ""
    width = items[0] * each
    if not planar and draw.chance(0.2) and 4 * width * (step + 1) <= LOCAL_BYTES:
        fetched = "a"
    unrolled = draw.chance(0.3) and step * each <= 48
    if fetched and each > 1 and recurrent:
        return None  # the states of all iterations would have to be kept over the barriers
    axis_order = draw.pick((("i", "k"), ("k", "i")))
    index = dict(zip("ab", (", ".join((*loops[1:], *axis_order)),) * 2, strict=True))
    if draw.chance(0.4):  # the second array lies the other way round
        index["b"] = ", ".join((*loops[1:], *reversed(axis_order)))
    reads = {array: f"{array}[{where}]" for array, where in index.items()} | {"t": "t[k]"}
    chains = draw.pick((1, 1, 2, 2, 3, 4))
    target = f"r[{', '.join(loops)}]"
    formula: Formula | Recurrence
    if recurrent:
        updates = [draw.pick(_UPDATES).format(s=f"s{q}", **reads) for q in range(chains)]
        formula = Recurrence(
            target=target,
            states=tuple((draw.coefficient(), update) for update in updates),
            loop="k",
            result=" + ".join(f"s{q}" for q in range(chains)),
        )
        text = " ".join(updates)
    else:
        terms = tuple(
            draw.pick(_TERMS).format(c=draw.coefficient(), **reads) for _ in range(chains)
        )
        result = "".join(
            draw.pick((" + ", " - ")) * bool(q) + f"{draw.coefficient()} * {{{q}}}"
            for q in range(chains)
        )
        formula = Formula(target=target, terms=terms, result=result, summed=("k",))
        text = " ".join(terms)
    arrays = [array for array in "abt" if f"{array}[" in text]
    if (fetched and fetched not in arrays) or not ({"a", "b"} & {*arrays}):
        return None
    multiples = {"n": width, "m": step}
    if planar:
        multiples["l"] = items[1]
    sizes = draw.sizes(
        multiples,
        lambda s: s["n"] * s["m"] * s.get("l", 1) * chains * _TERM_S,
        skew=1.0,
    )
    names = {"i": "n", "j": "l", "k": "m"}
    program = Program(
        name="item_loop",
        loops=tuple((loop, names[loop]) for loop in (*loops, "k")),
        formulas=(formula,),
        sizes=sizes,
        arguments=(
            *(
                ArrayArgument(
                    name=array,
                    shape=tuple(Extent(names[axis]) for axis in index[array].split(", ")),
                )
                for array in arrays
                if array != "t"
            ),
            *((ArrayArgument(name="t", shape=(Extent("m"),)),) if "t" in arrays else ()),
            ArrayArgument(name="r", shape=tuple(Extent(names[x]) for x in loops), role="output"),
        ),
    )
    first_axis = draw.pick((0, 0, 1)) if planar else 0
    fetch = Fetch(
        array=fetched,
        sweep=("k_in",) if fetched == "t" else ("k_in", "i_each", "i_item"),
        within=(*(f"{loop}_group" for loop in loops), "k_step"),
        axes=(0,) if fetched == "t" else (None, 0),
    )
    pieces = bool(fetched) or unrolled
    shape = Shape(
        divided=(
            Divided(loop="i", axis=first_axis, items=items[0], each=each),
            *((Divided(loop="j", axis=1 - first_axis, items=items[1]),) if planar else ()),
        ),
        block="ilp" if each > 1 and fetched else draw.pick(("for", "unr")) if each > 1 else "for",
        steps=(Step(loop="k", length=step, unrolled=unrolled),) if pieces else (),
        fetches=(fetch,) if fetched else (),
    )
    return program, shape
