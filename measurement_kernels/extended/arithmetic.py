"""Arithmetic: chains of operations, special functions, numbers other than f32."""

from __future__ import annotations

from collections.abc import Iterator

from measurement_kernels.arguments import SizeParameter, arrays
from measurement_kernels.entry import CatalogEntry
from measurement_kernels.programs import (
    Fetch,
    Formula,
    Program,
    Recurrence,
    Shape,
    Step,
    along,
    program_entry,
)

_ITEMS = 128
_STEP = 32
TABLE = Fetch("t", ("k_in",), ("i_group", "k_step"), (0,))
"""Fetch of a table that all items of a group read in steps of a loop."""

# --- chains: one is bound by latency, several run side by side
#
# Each item starts from its own element and applies one operation repeatedly. The chains of an item
# do not depend on each other. Behind barriers the operand comes from a table in local memory.

UPDATES = {
    "add": "{s} + {x}",
    "mul": "{s} * 1.0009765625",
    "fma": "0.9375 * {s} + {x}",
    "rsqrt": "rsqrt({s} + 1.5)",
    "exp": "exp(0.0 - {s})",
}
"""Updates of a chain's state ``{s}`` by its operand ``{x}``."""

_TABLE_UPDATES = {"add": UPDATES["add"], "fma": UPDATES["fma"], "rsqrt": "rsqrt({s} + {x} + 1.5)"}
_BASES = {"add": 2**16, "mul": 2**16, "fma": 2**16, "rsqrt": 2**14, "exp": 2**13}


def chains() -> Iterator[CatalogEntry]:
    """List ``independent-chains`` and ``chains-behind-barriers``."""
    for kind, update in UPDATES.items():
        for number in (1, 2, 4, 8) if kind in ("add", "fma", "rsqrt") else (1, 4):
            yield _chains(kind, update, number)
    for kind, number in (("add", 1), ("fma", 1), ("fma", 4), ("rsqrt", 2)):
        yield _chains(kind, UPDATES[kind], number, "f64")
    for kind, update in _TABLE_UPDATES.items():
        for number in (1, 4):
            yield _chains(kind, update, number, behind_barriers=True)


def _chains(
    kind: str, update: str, number: int, element_type: str = "f32", *, behind_barriers: bool = False
) -> CatalogEntry:
    program, shape = chains_program(
        f"chains_{kind}",
        number,
        update,
        element_type,
        items=_ITEMS,
        base=_BASES[kind] // number,
        step=_STEP,
        behind_barriers=behind_barriers,
    )
    family = "chains-behind-barriers" if behind_barriers else "independent-chains"
    return program_entry(program, shape, family, f"{kind}-{number}", (0, 2))


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
    """Return a program of chains that each item updates 128 times, and its shape."""
    operand, table = ("t[k]", "t[m], ") if behind_barriers else ("a[i]", "")
    states = tuple(
        (f"{0.5 + q / 16} * a[i] * a[i]", update.format(s=f"s{q}", x=operand))
        for q in range(chains)
    )
    program = Program(
        name,
        (("i", "n"), ("k", "m")),
        (Recurrence("r[i]", states, "k", " + ".join(f"s{q}" for q in range(chains))),),
        (SizeParameter("n", items, base=base), SizeParameter("m", step, fixed=128)),
        arrays(f"a[n], {table}output r[n]"),
        element_type,
    )
    if behind_barriers:
        return program, Shape(along("i", (items,)), steps=(Step("k", step),), fetches=(TABLE,))
    return program, Shape(along("i", (items,)))


# --- functions and divisions of each element, and sums of them in loops of items
#
# In groups of 20 items, some are left over from vectors of any usual width. With the operand from a
# table in local memory, compilers keep items side by side in loops.

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


def function_maps() -> Iterator[CatalogEntry]:
    """List ``function-maps`` and ``function-loops``."""
    for element_type in ("f32", "f64"):
        for function, value in _FUNCTIONS.items():
            for items in (20, 128):
                program = Program(
                    f"map_{function}",
                    (("i", "n"),),
                    (Formula("r[i]", (value.format(x="a[i] + 1.25"),)),),
                    (SizeParameter("n", items, base=2**17),),
                    arrays("a[n], output r[n]"),
                    element_type,
                )
                shape = Shape(along("i", (items,)))
                yield program_entry(program, shape, "function-maps", function, (0, 2))
        for function in _FUNCTIONS:
            yield _function_loop(function, 20, element_type, "all", "free")
            yield _function_loop(function, 64, element_type, "all", "sync")
        for function in ("sqrt", "rsqrt", "exp", "pow"):
            yield _function_loop(function, 64, element_type, "some", "free")
            yield _function_loop(function, 64, element_type, "some", "sync")


def _function_loop(
    function: str, items: int, element_type: str, callers: str, place: str
) -> CatalogEntry:
    value = _FUNCTIONS[function].format(x="a[i] * t[k] + 1.25")
    term = f"({value} if i != k else 0.0)" if callers == "some" else value
    program = Program(
        f"sum_{function}",
        (("i", "n"), ("k", "m")),
        (Recurrence("r[i]", (("0.0", f"s0 + {term}"),), "k", "s0"),),
        (SizeParameter("n", items, base=2**12), SizeParameter("m", _STEP, fixed=64)),
        arrays("a[n], t[m], output r[n]"),
        element_type,
    )
    shape = Shape(along("i", (items,)))
    if place == "sync":
        shape = Shape(along("i", (items,)), steps=(Step("k", _STEP),), fetches=(TABLE,))
    variant = f"{function}-{callers}-{place}"
    return program_entry(program, shape, "function-loops", variant, (0, 2))


# --- double precision, f64 sums of f32 numbers, integers

_MAPS = {
    "copy": "a[i]",
    "axpy": "0.75 * a[i] + b[i]",
    "divide": "a[i] / (b[i] * b[i] + 1.5)",
    "square-root": "sqrt(a[i] * a[i] + b[i] * b[i] + 1.0)",
}
_INTEGERS = {
    # states begin at i mod 1021 and stay below 2**24, which f32 holds exactly
    "multiply-add": "(5 * {s} + k) % 1024",
    "mod": "({s} + 7) % 1021",
    "div": "{s} // 3 + 1000",
    "div-mod": "({s} // 7 + 13 * {s}) % 1021",
}
_LINE = Shape(along("i", (_ITEMS,)))


def precision() -> Iterator[CatalogEntry]:
    """List the family."""
    for variant, value in _MAPS.items():
        program = Program(
            "map",
            (("i", "n"),),
            (Formula("r[i]", (value,)),),
            (SizeParameter("n", _ITEMS, base=1_000_000),),
            arrays("a[n], b[n], output r[n]" if "b[" in value else "a[n], output r[n]"),
            "f64",
        )
        yield program_entry(program, _LINE, "precision", variant, (0, 2))
    for variant, element_type, state_type in (("f64", "f64", ""), ("mixed", "f32", "float64")):
        for number in (1, 4):
            states = tuple((f"{q / 2}", f"s{q} + a[k, {q}, i]") for q in range(number))
            program = Program(
                "sum",
                (("i", "n"), ("k", "m")),
                (_sum_of_states(states, state_type),),
                (SizeParameter("n", _ITEMS, base=2048), SizeParameter("m", fixed=512 // number)),
                arrays(f"a[m, {number}, n], output r[n]"),
                element_type,
            )
            name = f"sum-{variant}-{number}"
            yield program_entry(program, _LINE, "precision", name, (0, 2))


def integers() -> Iterator[CatalogEntry]:
    """List the family ``integer``."""
    for variant, update in _INTEGERS.items():
        for number in (1, 4):
            states = tuple(
                (f"(i + {17 * q}) % 1021", update.format(s=f"s{q}")) for q in range(number)
            )
            program = Program(
                "integers",
                (("i", "n"), ("k", "m")),
                (_sum_of_states(states, "int32"),),
                (SizeParameter("n", _ITEMS, base=2**14 // number), SizeParameter("m", fixed=64)),
                arrays("output r[n]"),
            )
            yield program_entry(program, _LINE, "integer", f"{variant}-{number}", (0, 2))


def _sum_of_states(states: tuple[tuple[str, str], ...], state_type: str) -> Recurrence:
    result = " + ".join(f"s{q}" for q in range(len(states)))
    return Recurrence("r[i]", states, "k", result, state_type=state_type)
