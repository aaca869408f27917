"""Kernels as code generators write them: long chains of statements in many loop nests."""

from __future__ import annotations

from typing import Any

import loopy as lp

_INNER_LOOPS = (
    "{{[{i}, {j}]: 0 <= {i} < {order} and 0 <= {j} < {order}}}",
    "{{[{i}, {j}]: 0 <= {i} < {order} and 0 <= {j} <= {i}}}",
    "[m] -> {{[{i}, {j}]: 1 <= {i} < m - 1 and 0 <= {j} < {order}}}",
    "[m] -> {{[{i}, {j}]: 0 <= {i} < m and {i} <= {j} < m}}",
)
"""Nodes of an element, half of them, a stencil's interior, a triangle of the whole size."""

_STATEMENTS = (
    "<> {t} = {a}[{i}, {j}, {e}]*2.0 + {b}[{j}, {i}, {e}]",
    "<> {t} = {last}*w[{i}] + d[{i}, {j}]*{c}[{i}, {j}, {e}]",
    "<> {t} = {last} - {a}[{i} + 1, {j}, {e}]/{last}",
    "<> {t} = sqrt({last}) + v[{e}, {i}]",
    "<> {t} = {last}*{last} + w[2*{j}]*w[2*{j} + 1]",
    "<> {t} = {last} + g[{e} + n*{i}]*3.5",
    "{tile}[{l}] = {last}",
    "<> {t} = {before} + {tile}[31 - {l}]",
    "<> {t} = {last}*(w[{i}] - d[{j}, {i}])",
    "<> {t} = {last} + h[3*{e} + {part}]*h[3*{e} + 2]",
    "<> {t} = {last}*0.25 + exp(-{last})",
    "{result}[{i}, {j}, {e}] = {last} + {b}[{i}, {j}, {e}]",
)
"""Unit, constant and symbolic strides, uniform loads, local memory with barriers, divisions and
special functions, one result."""

_NEST = 2 * len(_STATEMENTS)


def generated_kernel(instructions: int) -> Any:
    """Return a kernel of double-precision statements in nests of 24, one after the other.

    Parameters
    ----------
    instructions : int
        Statements, at least 1. Work groups have 32 items; the sizes are n (divisible by 32) and m.
    """
    domains: list[str] = []
    lines: list[str] = []
    tags: dict[str, str] = {}
    results: list[str] = []
    tiles: list[str] = []
    for number in range(instructions):
        nest, place = divmod(number, _NEST)
        part, kind = divmod(place, len(_STATEMENTS))
        names = {x: f"{x}{nest}" for x in "glij"}
        if not place:
            order = (4, 8, 10)[nest % 3]
            domains.append(
                "[n] -> {{[{g}, {l}]: 0 <= {l} < 32 and 0 <= 32*{g} + {l} < n}}".format(**names)
            )
            domains.append(_INNER_LOOPS[nest % 4].format(order=order, **names))
            lines += (["end"] if nest else []) + ["for {g}, {l}, {i}, {j}".format(**names)]
            tags |= {names["g"]: "g.0", names["l"]: "l.0"}
        tile, result = f"tile{nest}_{part}", f"r{nest}_{part}"
        tiles += [tile] if "tile" in _STATEMENTS[kind] and tile not in tiles else []
        results += [result] if "result" in _STATEMENTS[kind] else []
        arrays = {x: f"u{(nest + kind + k) % 6}" for k, x in enumerate("abc")}
        lines.append(
            _STATEMENTS[kind].format(
                t=f"t{nest}_{place}",
                last=f"t{nest}_{place - 1}",
                before=f"t{nest}_{place - 2}",
                e="(32*{g} + {l})".format(**names),
                part=part,
                tile=tile,
                result=result,
                **names,
                **arrays,
            )
        )
    t_unit = lp.make_kernel(
        domains,
        "\n".join([*lines, "end"]),
        [
            lp.ValueArg("n,m", "int32"),
            *(
                lp.GlobalArg(name, "float64", shape=("m + 12", "m + 12", "n"))
                for name in (*(f"u{k}" for k in range(6)), *results)
            ),
            lp.GlobalArg("v", "float64", shape=("n", "m + 12")),
            lp.GlobalArg("w", "float64", shape=("2*m + 24",)),
            lp.GlobalArg("d", "float64", shape=("m + 12", "m + 12")),
            lp.GlobalArg("g", "float64", shape=("n*(m + 12)",)),
            lp.GlobalArg("h", "float64", shape=("3*n",)),
            *(
                lp.TemporaryVariable(
                    name, "float64", shape=(32,), address_space=lp.AddressSpace.LOCAL
                )
                for name in tiles
            ),
        ],
        seq_dependencies=True,
        name=f"generated_{instructions}",
        lang_version=(2018, 2),
        assumptions="n >= 32 and m >= 12 and n mod 32 = 0",
    )
    return lp.tag_inames(t_unit, tags)
