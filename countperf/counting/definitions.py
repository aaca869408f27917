"""Private integers that are other names for expressions in loop variables and sizes.

Loads whose subscripts have such names (``<> k = (i + 3) % n``, then ``a[k]``) read no data to find
their addresses.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import loopy as lp
from loopy.symbolic import get_dependencies


def definitions_in(kernel: Any, known: Container[str]) -> dict[str, Any]:
    """Return the private integers of a kernel whose value is known wherever they are read."""
    candidates: dict[str, Any] = {}
    readers, writers = kernel.reader_map(), kernel.writer_map()
    for name, variable in kernel.temporary_variables.items():
        if variable.shape or variable.address_space != lp.AddressSpace.PRIVATE:
            continue
        if variable.dtype.numpy_dtype.kind not in "iu" or len(writers.get(name, ())) != 1:
            continue
        (writer,) = (kernel.id_to_insn[each] for each in writers[name])
        if not isinstance(writer, lp.Assignment) or writer.predicates or writer.atomicity:
            continue
        around = [kernel.id_to_insn[each].within_inames for each in readers.get(name, ())]
        if all(writer.within_inames <= within for within in around):
            candidates[name] = writer.expression
    found: dict[str, Any] = {}
    while True:
        more = {
            name: expression
            for name, expression in candidates.items()
            if name not in found
            and all(part in known or part in found for part in names_in(expression))
        }
        if not more:
            return found
        found |= more


def names_in(expression: Any) -> frozenset[str]:
    """Return the names of loop variables, sizes and data that an expression depends on."""
    return frozenset(get_dependencies(expression))
