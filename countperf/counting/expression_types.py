"""Types and constants of expressions, as the generated C has them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache, reduce
from itertools import chain, takewhile
from operator import add
from typing import Any, ClassVar

import numpy as np
import pymbolic.primitives as p
from loopy.symbolic import WalkMapper, get_dependencies
from pymbolic import evaluate

DType = np.dtype[Any]
LIMITS = {  # constants of C that Loopy writes, such as for the initial value of a minimum
    "INFINITY": np.dtype(np.float32),
    "HUGE_VAL": np.dtype(np.float64),
    "INT_MIN": np.dtype(np.int32),
    "INT_MAX": np.dtype(np.int32),
    "LONG_MIN": np.dtype(np.int64),
    "LONG_MAX": np.dtype(np.int64),
    "UINT_MAX": np.dtype(np.uint32),
    "ULONG_MAX": np.dtype(np.uint64),
}


def name_of(function: Any) -> str:
    """Return the name of a called function, without the number that Loopy adds for its types."""
    name = getattr(function, "name", function)
    return re.sub(r"_[0-9]+$", "", str(getattr(name, "name", name)))


def signature_of(callable_: Any) -> dict[int | str, Any]:
    """Return NumPy's types of a function's arguments by position, at -1 that of its result."""
    return {
        key: getattr(dtype, "numpy_dtype", dtype)
        for key, dtype in (callable_.arg_id_to_dtype or {}).items()
    }


def type_of(kernel: Any, name: str) -> DType:
    """Return the type of a loop variable, an argument, or a private variable."""
    if name in kernel.all_inames():
        return np.dtype(kernel.index_dtype.numpy_dtype)
    variable = kernel.arg_dict.get(name) or kernel.temporary_variables.get(name)
    return np.dtype(getattr(getattr(variable, "dtype", None), "numpy_dtype", np.int32))


CONTEXT_TYPES = {"f": np.dtype(np.float32), "d": np.dtype(np.float64)}


@lru_cache(256)
def join_types(left: DType, right: DType) -> DType:
    """Return the type that C's usual arithmetic conversions give (C11, section 6.3.1.8)."""
    # vectors and complex numbers have rules of their own; none applies here
    kind = next((kind for kind in "Vcf" if kind in (left.kind, right.kind)), None)
    if kind is not None and (kind != "f" or left.kind != right.kind):
        return left if left.kind == kind else right
    if left.kind == "b" or right.kind == "b":
        return right if left.kind == "b" else left
    return max(left, right, key=lambda t: (t.itemsize, t.kind == "u"))


def context_of(dtype: DType | None) -> str | None:
    """Return the code generator's type context for a type."""
    if dtype is None:
        return None
    if dtype.kind in "fc":
        return {8: "d", 4: "f"}.get(dtype.itemsize // (1 + (dtype.kind == "c")))
    if dtype.fields:  # a vector
        return context_of(np.dtype(next(iter(dtype.fields.values()))[0]))
    return "i" if dtype.kind in "iub" else None


@p.expr_dataclass()
class UnrolledVariable(p.Variable):
    """A loop variable of an unrolled loop, which stands as a number in each copy of the body."""

    mapper_method: ClassVar[str] = "map_variable"


def is_literal(expr: Any) -> bool:
    """Return whether an expression is a number, or stands for one."""
    if type(expr) is p.Variable:
        return expr.name in LIMITS
    return not isinstance(expr, p.ExpressionNode) or type(expr) is UnrolledVariable


def is_constant(expr: Any) -> bool:
    """Return whether an expression is a number, or sums, products and small powers of numbers."""
    match expr:
        case p.Sum() | p.Product():
            return all(map(is_constant, expr.children))
        case p.Quotient() | p.FloorDiv() | p.Remainder():
            return is_constant(expr.numerator) and is_constant(expr.denominator)
        case p.Power():
            small = is_literal(expr.exponent) and expr.exponent in (0, 1, 2)
            return small and is_constant(expr.base)
        case _:
            return is_literal(expr)


def number_of(expr: Any) -> Any:
    """Return the number that a constant is; None for what is none, or stands for several."""
    if isinstance(expr, p.Sum):  # pymbolic begins with 0, and 0 + -0.0 is 0.0
        numbers = [number_of(child) for child in expr.children]
        return None if None in numbers else reduce(add, numbers)
    if isinstance(expr, p.ExpressionNode):
        if not is_constant(expr) or get_dependencies(expr):
            return None
        try:
            return evaluate(expr)
        except ArithmeticError:
            return None
    is_number = isinstance(expr, int | float | np.number) and not isinstance(expr, bool)
    return expr if is_number else None


def flatten_operands(expr: Any, cls: type) -> tuple[Any, ...]:
    """Return the operands of nested sums or products, as they are emitted: unparenthesized."""
    parts = (flatten_operands(c, cls) if type(c) is cls else (c,) for c in expr.children)
    return tuple(chain.from_iterable(parts))


def leading_constants(children: Sequence[Any]) -> int:
    """Return how many operands come before the first that is no constant: they fold."""
    return sum(1 for _ in takewhile(is_constant, children))


def list_nodes(expr: Any, *kinds: type) -> list[Any]:
    """Return the nodes of some classes in an expression, each before those inside it."""
    nodes: list[Any] = []
    walker: Any = WalkMapper()
    walker.visit = lambda node: nodes.append(node) or True
    walker(expr)
    return [node for node in nodes if isinstance(node, kinds)]


def text_of(expr: Any) -> str:
    """Return the text of an expression; of one that cannot be written, the name of its class."""
    try:  # without the characters by which Loopy underlines the names of functions
        return str(expr).replace("\N{COMBINING LOW LINE}", "")
    except (ValueError, TypeError, AttributeError, NotImplementedError, AssertionError, Warning):
        return type(expr).__name__
