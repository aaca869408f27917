"""Properties that names of formulas stand for: ``gmem_load_32_stride1``."""

from __future__ import annotations

import re

from countperf.errors import PropertyNameError
from countperf.properties.taxonomy import validate_name

_WORDS_OF_SEVERAL = re.compile(
    "_(live_across_barrier|set_conflict|l1_reuse|l2_reuse|beyond_l[12])(?=_|$)"
)
"""Components of names of properties that are not one word."""


def _components(name: str) -> list[str]:
    """Return the components of a property's name that a name of a formula may stand for."""
    components: list[str] = []
    for number, piece in enumerate(_WORDS_OF_SEVERAL.split(name)):
        components += [piece] if number % 2 else piece.strip("_").split("_")
    return [component for component in components if component]


def property_of(name: str) -> str | None:
    """Return the property that a name of a formula stands for, or None."""
    parts = _components(name)
    for pieces in (parts, [*parts[:3], "_".join(parts[3:])], [parts[0], "_".join(parts[1:])]):
        try:
            return validate_name(".".join(piece for piece in pieces if piece))
        except PropertyNameError:
            continue
    return None
