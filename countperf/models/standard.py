"""Terms that come with countperf, and models made of a formula of them."""

from __future__ import annotations

from collections.abc import Mapping

from countperf.errors import DocumentError, ExpressionError
from countperf.models.definition import FittedModel, is_implied, property_of
from countperf.models.expressions import parse

NOT_WORK = (
    "gmem.min.*.*",
    "flop.compare.*",
    "flop.select.*",
    "flop.convert.*",
    "flop.neg.*",
    "iop.*",
    "barrier.global",
)
"""Properties that the models with an overlap leave out: what compiles to nothing or to part of
other work, and the paper's minimum of loads and stores, which is no work of its own."""

STANDARD_TERMS: Mapping[str, tuple[str, ...]] = {
    "launch": ("launches",),
    "work_groups": ("groups",),
    "overhead": ("launches", "groups"),
    "global_memory": ("gmem.load.*.*", "gmem.store.*.*"),
    "global_loads": ("gmem.load.*.*",),
    "global_stores": ("gmem.store.*.*",),
    "arithmetic": (
        *("flop.add.*", "flop.mul.*", "flop.div.*", "flop.pow.*", "flop.special.*"),
        *("flop.fma.*", "flop.minmax.*"),
    ),
    "local_memory": ("lmem.load.*", "lmem.store.*"),
    "barriers": ("barrier.local",),
    "on_chip": (
        *("flop.add.*", "flop.mul.*", "flop.div.*", "flop.pow.*", "flop.special.*"),
        *("flop.fma.*", "flop.minmax.*", "lmem.load.*", "lmem.store.*", "barrier.local"),
    ),
}
"""Terms that an expression on the command line can name."""


def from_expression(expression: str, *, name: str = "custom") -> FittedModel:
    """Make a model of an expression and the terms that come with countperf.

    Parameters
    ----------
    expression : str
        A formula of `STANDARD_TERMS`, properties, and parameters (``w_...``, ``sharpness``).
    name : str, optional
        Its name in documents.

    Raises
    ------
    ExpressionError
        The formula cannot be read, or has names that are not known, or cannot be fitted.

    Examples
    --------
    >>> from_expression("launch + w_group*groups + overlap(global_memory, on_chip)").variables
    ('groups',)
    """
    formula = parse(expression)
    terms = {term: list(STANDARD_TERMS[term]) for term in formula.names if term in STANDARD_TERMS}
    implied = [n for n in formula.names if property_of(n) or is_implied(n, formula)]
    formula.refuse_unknown([*STANDARD_TERMS, *implied])
    try:
        return FittedModel.from_object(
            {
                "format": "countperf-model",
                "version": 1,
                "name": name,
                "expression": expression,
                "terms": terms,
                "ignored": list(NOT_WORK),
            }
        )
    except DocumentError as error:
        raise ExpressionError(str(error), text=expression) from error
