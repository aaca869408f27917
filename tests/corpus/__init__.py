"""Small kernels re-created in the style of packages that generate Loopy kernels.

Each module has the list ``UNITS`` of name, function that returns a translation unit, and sizes at
which it is evaluated. They are written anew after the shape of what the packages generate: layouts,
loops over data, temporaries, types, functions.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

Unit: TypeAlias = tuple[str, Callable[[], Any], Mapping[str, int]]


def all_units() -> dict[str, list[Unit]]:
    """Return the units of each module of the corpus, by its name."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    modules = {name: importlib.import_module(f"{__name__}.{name}") for name in names}
    return {name: module.UNITS for name, module in modules.items() if hasattr(module, "UNITS")}
