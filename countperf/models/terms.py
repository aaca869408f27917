"""Terms of a model, as parts of its document."""

from __future__ import annotations

import re
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    Field,
    model_validator,
)

from countperf.documents import Part
from countperf.models.expressions import parse

_PATTERN = re.compile(r"(\*|\w+)(\.(\*|\w+))*")


def _formula_text(text: str) -> str:
    return parse(text).text


def _pattern(text: str) -> str:
    if not _PATTERN.fullmatch(text):
        raise ValueError(f"{text!r} is no pattern of property names, such as gmem.load.*.stride1")
    return text


def as_term(content: Any) -> Any:
    """Return the content of a term, of which patterns alone may be given."""
    fields = {"charged": content} if isinstance(content, list | tuple) else content
    if isinstance(fields, dict) and isinstance(fields.get("charged"), list):
        return {**fields, "charged": tuple(fields["charged"])}  # strict, and no longer JSON here
    return fields


Pattern = Annotated[str, AfterValidator(_pattern)]
FormulaText = Annotated[str, AfterValidator(_formula_text)]


class Term(Part):
    """A sum over features, each with a weight of its own."""

    charged: tuple[Pattern, ...] = Field(min_length=1)  # properties, or names of derived features
    lower: float | None = 0.0  # of each weight, s per unit
    upper: float | None = None
    scale: str = ""  # derived feature that the sum is multiplied by; empty for none

    @model_validator(mode="after")
    def _bounds_are_in_order(self) -> Self:
        if self.lower is not None and self.upper is not None and self.lower >= self.upper:
            raise ValueError(f"the lower bound {self.lower} is not below the upper {self.upper}")
        return self
