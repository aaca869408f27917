"""Functions of higher layers that methods of results call, such as ``weights.predict(...)``.

Results are made in lower layers, and some of their methods need the workflow or reports.
`countperf` registers where these functions are, and each is imported when it is first called.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

_HOMES: dict[str, str] = {}


def register(homes: Mapping[str, str]) -> None:
    """Make functions known."""
    _HOMES.update(homes)


def function(name: str) -> Any:
    """Import a registered function or class."""
    module, _, attribute = _HOMES[name].partition(":")
    return getattr(import_module(module), attribute or name)
