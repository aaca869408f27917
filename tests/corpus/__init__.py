"""Small kernels re-created in the style of packages that generate Loopy kernels.

Each module has the list ``UNITS`` of name, function that returns a translation unit, and sizes at
which it is evaluated. They are written anew after the shape of what the packages generate: layouts,
loops over data, temporaries, types, functions.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import loopy as lp
from loopy.kernel.data import VectorizeTag

Unit: TypeAlias = tuple[str, Callable[[], Any], Mapping[str, int]]


def all_units() -> dict[str, list[Unit]]:
    """Return the units of each module of the corpus, by its name."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    modules = {name: importlib.import_module(f"{__name__}.{name}") for name in names}
    return {name: module.UNITS for name, module in modules.items() if hasattr(module, "UNITS")}


_ADVICE = re.compile(r"(statistics|instruction_counts)=(\{.*?\}+)", re.DOTALL)
_UNROLL = re.compile(r"loop '(\w+)'; tag it 'unr'")


@dataclass(slots=True)
class Try:
    """A kernel, and how it is to be counted."""

    unit: Any
    statistics: dict[str, Any] = field(default_factory=dict[str, Any])
    instruction_counts: dict[str, Any] = field(default_factory=dict[str, Any])

    def follow(self, message: str) -> bool:
        """Do what a message advises, literally; return whether it advises anything new."""
        before = (self.unit, dict(self.statistics), dict(self.instruction_counts))
        for option, text in _ADVICE.findall(message):
            try:
                found = ast.literal_eval(text)
            except (SyntaxError, ValueError):
                continue
            getattr(self, option).update(found)
        for iname in _UNROLL.findall(message):
            kernel = lp.untag_inames(self.unit.default_entrypoint, iname, VectorizeTag)
            self.unit = self.unit.with_kernel(kernel)
            self.unit = lp.tag_inames(self.unit, {iname: "unr"})
        return before != (self.unit, self.statistics, self.instruction_counts)
