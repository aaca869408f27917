"""Terms and parameters of a model's formula, as parts of its document."""

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


class _Bounded(Part):
    lower: float | None = 0.0
    upper: float | None = None

    @model_validator(mode="after")
    def _bounds_are_in_order(self) -> Self:
        if self.lower is not None and self.upper is not None and self.lower >= self.upper:
            raise ValueError(f"the lower bound {self.lower} is not below the upper {self.upper}")
        return self


class Term(_Bounded):
    """A sum over features, each with a weight of its own.

    Attributes
    ----------
    charged : tuple of str
        Patterns of properties, as in `FeatureSpec`, or names of derived features.
    lower, upper : float or None
        Bounds of each weight, s per unit; None for none.
    """

    charged: tuple[Pattern, ...] = Field(min_length=1)


class Parameter(_Bounded):
    """A fitted number.

    Attributes
    ----------
    start : float or None
        Where the fit begins; None to find it. A shape needs one.
    lower, upper : float or None
        Bounds; None for none.
    shape : bool
        Whether it is a pure number, such as a sharpness, and no cost in seconds per unit.
    unit : str
        For tables.
    """

    start: float | None = None
    shape: bool = False
    unit: str = ""

    @model_validator(mode="after")
    def _start_is_within_bounds(self) -> Self:
        if self.start is None:
            if self.shape:
                raise ValueError("a shape parameter needs a start")
            return self
        low = self.lower is not None and self.start < self.lower
        high = self.upper is not None and self.start > self.upper
        if low or high:
            raise ValueError(f"the start {self.start} is not between the bounds")
        return self
