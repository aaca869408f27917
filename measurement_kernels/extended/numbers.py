"""Numbers other than f32: double precision, f64 sums of f32 numbers, integers."""

from __future__ import annotations

from collections.abc import Iterator

from measurement_kernels.arguments import ArrayArgument, Extent, SizeParameter
from measurement_kernels.entry import CatalogEntry
from measurement_kernels.program_entries import program_entry
from measurement_kernels.programs import Divided, Formula, Program, Recurrence, Shape

_ITEMS = 128

_MAPS = {
    "copy": "a[i]",
    "axpy": "0.75 * a[i] + b[i]",
    "divide": "a[i] / (b[i] * b[i] + 1.5)",
    "square-root": "sqrt(a[i] * a[i] + b[i] * b[i] + 1.0)",
}
_SUMS = {"f64": ("f64", ""), "mixed": ("f32", "float64")}
_INTEGERS = {
    # states begin at i mod 1021 and stay below 2**24, which f32 holds exactly
    "multiply-add": "(5 * {s} + k) % 1024",
    "mod": "({s} + 7) % 1021",
    "div": "{s} // 3 + 1000",
    "div-mod": "({s} // 7 + 13 * {s}) % 1021",
}


def entries() -> Iterator[CatalogEntry]:
    """List both families."""
    for variant, value in _MAPS.items():
        yield _map(variant, value)
    for variant in _SUMS:
        for chains in (1, 4):
            yield _sum(variant, chains)
    for variant, update in _INTEGERS.items():
        for chains in (1, 4):
            yield _integers(variant, update, chains)


def _map(variant: str, value: str) -> CatalogEntry:
    program = Program(
        name="map",
        loops=(("i", "n"),),
        formulas=(Formula(target="r[i]", terms=(value,)),),
        sizes=(SizeParameter(name="n", multiple=_ITEMS, base=1_000_000),),
        arguments=(
            ArrayArgument(name="a", shape=(Extent("n"),)),
            *((ArrayArgument(name="b", shape=(Extent("n"),)),) if "b[" in value else ()),
            ArrayArgument(name="r", shape=(Extent("n"),), role="output"),
        ),
        element_type="f64",
    )
    return _entry(program, "precision", variant, value)


def _sum(variant: str, chains: int) -> CatalogEntry:
    element_type, state_type = _SUMS[variant]
    program = Program(
        name="sum",
        loops=(("i", "n"), ("k", "m")),
        formulas=(
            Recurrence(
                target="r[i]",
                states=tuple((f"{q / 2}", f"s{q} + a[k, {q}, i]") for q in range(chains)),
                loop="k",
                result=" + ".join(f"s{q}" for q in range(chains)),
                state_type=state_type,
            ),
        ),
        sizes=(
            SizeParameter(name="n", multiple=_ITEMS, base=2048),
            SizeParameter(name="m", fixed=512 // chains),
        ),
        arguments=(
            ArrayArgument(name="a", shape=(Extent("m"), chains, Extent("n"))),
            ArrayArgument(name="r", shape=(Extent("n"),), role="output"),
        ),
        element_type=element_type,
    )
    return _entry(program, "precision", f"sum-{variant}-{chains}", "sums along columns in f64")


def _integers(variant: str, update: str, chains: int) -> CatalogEntry:
    program = Program(
        name="integers",
        loops=(("i", "n"), ("k", "m")),
        formulas=(
            Recurrence(
                target="r[i]",
                states=tuple(
                    (f"(i + {17 * q}) % 1021", update.format(s=f"s{q}")) for q in range(chains)
                ),
                loop="k",
                result=" + ".join(f"s{q}" for q in range(chains)),
                state_type="int32",
            ),
        ),
        sizes=(
            SizeParameter(name="n", multiple=_ITEMS, base=2**14 // chains),
            SizeParameter(name="m", fixed=64),
        ),
        arguments=(ArrayArgument(name="r", shape=(Extent("n"),), role="output"),),
    )
    return _entry(program, "integer", f"{variant}-{chains}", f"{chains} chains of {update}")


def _entry(program: Program, family: str, variant: str, description: str) -> CatalogEntry:
    return program_entry(
        program,
        Shape(divided=(Divided(loop="i", axis=0, items=_ITEMS),)),
        family=family,
        variant=variant,
        collection="extended",
        description=description,
        exponent_steps=(0, 2),
    )
