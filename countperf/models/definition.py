"""A model whose weights are fitted: a sum of terms, as a document that users can write.

A *term* is a sum over features: each property that its patterns match, or derived feature that they
name, gets a weight of its own, in s per unit. The time is the sum of the terms, each times its
`scale`, a *derived feature*: a formula of properties, written with underscores. With an execution
policy the properties are those of what a device issues, else those of what Loopy emits.

A property that no term and no derived feature covers, and that is not ignored, is *unknown* to the
model: it is never dropped silently.

Formulas have Python's syntax, of which only this is let through: real numbers; names; ``+ - * /``,
and ``a**b`` with a base that is not negative; ``min``, ``max`` of two or more; ``floor``, ``ceil``,
``sqrt``, ``log``, ``exp`` of one.
"""

from __future__ import annotations

import ast
import contextlib
import math
import operator
import re
import warnings
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache, reduce
from types import CodeType
from typing import Annotated, Any, Literal, Self

import numpy as np
import pydantic
from numpy.typing import NDArray
from pydantic import AfterValidator, BeforeValidator, Field

from countperf.counting.structure.issue import ExecutionPolicy, apply_policy
from countperf.counting.structure.memory_hierarchy import MemoryHierarchy
from countperf.counting.structure.site_keys import SITE_ROOT
from countperf.counting.taxonomy import PROPERTY_ROOTS, is_emitted, validate_name
from countperf.counting.vector import AT_SIZES, GROUP_SHAPE, group_shape, transaction_roots
from countperf.documents import Document, Part
from countperf.errors import ExpressionError, PredictionError, PropertyNameError
from countperf.text import cut

FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "min": lambda *parts: reduce(np.minimum, parts),
    **{"max": lambda *parts: reduce(np.maximum, parts), "floor": np.floor, "ceil": np.ceil},
    **{"sqrt": np.sqrt, "log": np.log, "exp": np.exp},
}
_OPERATIONS: Mapping[type[ast.operator], str] = {
    **{ast.Add: "({} + {})", ast.Sub: "({} - {})", ast.Mult: "({} * {})"},
    **{ast.Div: "divide({}, {})", ast.Pow: "power({}, {})"},
}

NAMESPACE: Mapping[str, Any] = {
    **FUNCTIONS,
    "divide": np.divide,
    "power": lambda base, exponent: np.power(np.asarray(base, np.float64), exponent),
}
"""Functions that sources of formulas call, for arrays; infinity or NaN where there is no value."""

SCALAR_NAMESPACE: Mapping[str, Any] = {
    **{name: getattr(math, name) for name in FUNCTIONS if hasattr(math, name)},
    **{"min": min, "max": max, "divide": operator.truediv, "power": math.pow},
}
"""The same for floats, with ArithmeticError or ValueError where there is no value."""

_SHOWN = 72


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedFormula:
    """A formula that has been read."""

    text: str  # as it was written
    names: tuple[str, ...]  # each once, in the order of the text
    source: str  # the checked tree alone, in Python: values["groups"], divide(a, b)

    def __call__(self, values: Mapping[str, Any]) -> Any:
        """Return the value at numbers or arrays by name; infinity or NaN where there is none."""
        with np.errstate(all="ignore"):
            return eval(_compile(self.source), dict(NAMESPACE), {"values": values})


@lru_cache(maxsize=512)
def parse(text: str) -> CheckedFormula:
    """Read a formula; raise `ExpressionError` for what is none.

    >>> parse("groups*max(0, 1 - size/all_bytes)").names
    ('groups', 'size', 'all_bytes')
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # on one line, and without comments
            raw = ast.parse(" ".join(text.replace("#", "?").split()), mode="eval")
        source = _write(raw.body)
        _compile(source)
    except (RecursionError, MemoryError) as error:
        raise _error("nested too deeply", text) from error
    except SyntaxError as error:
        where = error.offset or len(text) + 1
        raise _error(f"not a formula ({error.msg} at column {where})", text) from error
    except ValueError as error:
        raise _error(f"not a formula ({error})", text) from error
    names = [node for node in ast.walk(raw) if isinstance(node, ast.Name)]
    names.sort(key=lambda name: name.col_offset)
    called = dict.fromkeys(name.id for name in names if name.id not in FUNCTIONS)
    return CheckedFormula(text=text, names=tuple(called), source=source)


@lru_cache(maxsize=512)
def _compile(source: str) -> CodeType:
    return compile(source, "<formula>", "eval")


def _write(node: ast.expr) -> str:
    """Write what formulas may have in Python; everything else is refused."""
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            with contextlib.suppress(OverflowError):
                if math.isfinite(value := float(number)):
                    return repr(value)
            raise ValueError("a number beyond what floating point holds")
        case ast.Name(id=name) if name not in FUNCTIONS:
            return f"values[{name!r}]"
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
            return f"({'-' if isinstance(sign, ast.USub) else '+'}{_write(operand)})"
        case ast.BinOp() if (template := _OPERATIONS.get(type(node.op))) is not None:
            return template.format(_write(node.left), _write(node.right))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in FUNCTIONS:
            is_of_many = name in ("min", "max")
            if len(args) < 2 if is_of_many else len(args) != 1:
                wanted = "at least 2 arguments" if is_of_many else "1 argument"
                raise ValueError(f"{name} takes {wanted}, not {len(args)}")
            return f"{name}({', '.join(map(_write, args))})"
        case _:
            raise ValueError(
                f"{cut(ast.unparse(node), _SHOWN)} is no number, name, sum, product or power, nor"
                f" one of the functions {', '.join(FUNCTIONS)} of such; dots of property names are"
                " written as underscores: flop_add_f32"
            )


def _error(message: str, text: str, *, names: tuple[str, ...] = ()) -> ExpressionError:
    return ExpressionError(f"formula {cut(text, _SHOWN)!r}: {message}", text=text, names=names)


Objective = Literal["paper", "noise"]
"""Objective of a fit: that of the paper, or the model's own, where noisy cases count for less."""

Residual = Literal["relative", "log"]
Loss = Literal["linear", "soft_l1"]

CODE, MISS, SPILL = "code.", "miss.", "spill."
"""Prefixes of the names of properties of compiled code, and of its accesses that miss a cache."""

OVERLAPPED = f"{CODE}cycles_overlapped"
"""Cycles of compiled code in which short loops overlap what follows them."""

_NO_FORMULA = (CODE, MISS, SPILL, *(f"{root}." for root in AT_SIZES))

Unread = Annotated[tuple[()], BeforeValidator(lambda _: ())]
"""Field of documents of earlier versions that nothing reads; it is not written."""

CountValue = int | float | Fraction | NDArray[Any]
"""Value of a property: exact where parameters are numbers, an array where they are arrays."""

FeatureValue = float | NDArray[np.float64]


class FeatureSpec(Part):
    """Patterns of the properties that a model charges, and of those that it ignores.

    In a pattern ``*`` stands for any one component. It charges properties whose first components
    match it together under these: ``flop.special.*`` is of features such as ``flop.special.f32``.
    """

    charged: tuple[str, ...]  # in the order in which features are listed
    ignored: tuple[str, ...] = ()  # of properties that have no term in the model
    negligible: tuple[str, ...] = ()  # features that are ignored, though a pattern charges them

    def feature_of(self, name: str) -> str | None:
        """Return the feature that charges a property, or None if none does."""
        feature = self._find_covering_feature(name)
        return None if feature in self.negligible else feature

    def _find_covering_feature(self, name: str) -> str | None:
        """Return the feature of the first pattern that covers a property, be it negligible."""
        place = first_cover(self.charged, name)
        if place is None:
            return None
        return ".".join(name.split(".")[: self.charged[place].count(".") + 1])

    def ignores(self, name: str) -> bool:
        """Return whether the model leaves a property out by its definition."""
        feature = self._find_covering_feature(name)
        if feature is not None:
            return feature in self.negligible
        return first_cover(self.ignored, name) is not None

    def apply(self, counts: Mapping[str, CountValue]) -> dict[str, FeatureValue]:
        """Return each feature of a kernel's counts that is not zero, in the order of the spec."""
        sums: dict[str, Any] = {}
        for name, count in counts.items():
            feature = self.feature_of(name)
            if feature is not None and np.any(count != 0):
                sums[feature] = sums[feature] + count if feature in sums else count
        return {name: to_float(sums[name]) for name in sorted(sums, key=self.position)}

    def position(self, feature: str) -> tuple[int, str]:
        """Return the sorting key of a feature: by pattern, then by name."""
        rank = first_cover(self.charged, feature)
        return len(self.charged) if rank is None else rank, feature


@lru_cache(maxsize=4096)
def first_cover(patterns: tuple[str, ...], name: str) -> int | None:
    """Return the position of the first pattern that covers a property."""
    parts = name.split(".")
    for position, pattern in enumerate(patterns):
        wanted = pattern.split(".")
        matches = (one in ("*", part) for one, part in zip(wanted, parts, strict=False))
        if len(parts) >= len(wanted) and all(matches):
            return position
    return None


def covers(feature: str, name: str) -> bool:
    """Return whether a property belongs to a feature: the same, or one that begins with it."""
    return name == feature or name.startswith(feature + ".")


def to_float(count: CountValue) -> FeatureValue:
    """Return a count as a float, or as an array of them."""
    return np.asarray(count, np.float64) if isinstance(count, np.ndarray) else float(count)


def _check_pattern(text: str) -> str:
    if not re.fullmatch(r"(\*|\w+)(\.(\*|\w+))*", text):
        raise ValueError(f"{text!r} is no pattern of property names, such as gmem.load.*.stride1")
    return text


def as_term(content: Any) -> Any:
    """Return the content of a term, of which patterns alone may be given."""
    fields = {"charged": content} if isinstance(content, list | tuple) else content
    if isinstance(fields, dict) and isinstance(fields.get("charged"), list):
        return {**fields, "charged": tuple(fields["charged"])}  # strict, and no longer JSON here
    return fields


Pattern = Annotated[str, AfterValidator(_check_pattern)]
FormulaText = Annotated[str, AfterValidator(lambda text: parse(text).text)]

_Depth = Literal["memory: local", "memory: global", "memory: L1", "memory: L2", "memory: beyond L2"]
_Work = Literal["compute", "latency chains", "memory", "memory: pages", "overhead", "launch"]
Resource = _Work | _Depth
"""Part of a device, or of the work on it, that a feature's cost is for."""


class Term(Part):
    """A sum over features, each with a weight of its own."""

    charged: tuple[Pattern, ...] = Field(min_length=1)  # properties, or names of derived features
    lower: float | None = 0.0  # of each weight, s per unit
    upper: None = None  # which documents of version 0.2.0 have
    scale: str = ""  # derived feature that the sum is multiplied by; empty for none
    # resource of the features that each pattern covers, the first that does; one word means all
    resource: Annotated[
        dict[Pattern, Resource],
        BeforeValidator(lambda given: {"*": given} if isinstance(given, str) else given),
    ] = Field(default_factory=dict[Pattern, Resource])


_SEVERAL = re.compile("_(live_across_barrier|set_conflict|l1_reuse|l2_reuse|beyond_l[12])(?=_|$)")
"""Components of names of properties that are not one word."""


def property_of(name: str) -> str | None:
    """Return the property that a name of a formula stands for, or None."""
    parts: list[str] = []
    for number, piece in enumerate(_SEVERAL.split(name)):
        parts += [piece] if number % 2 else filter(None, piece.split("_"))
    for pieces in (parts, [*parts[:3], "_".join(parts[3:])], [parts[0], "_".join(parts[1:])]):
        try:
            return validate_name(".".join(piece for piece in pieces if piece))
        except PropertyNameError:
            continue
    return None


class ModelDefinition(Document):
    """A model whose weights are fitted."""

    format: Literal["countperf-model"] = "countperf-model"
    version: Literal[3] = 3
    remade_by = "write it as a sum of terms, docs/guides/fitting.md"
    name: str = Field(pattern=r"^[a-z][a-z0-9_-]*$")  # name on the command line and in documents
    description: str = ""  # one line for people
    policy: ExecutionPolicy | None = None
    # caches of the device, whose sizes stand in the formulas of derived features
    memory: MemoryHierarchy | None = None
    # what a fit makes small: ``1 - predicted/measured``, or ``log(predicted/measured)``
    residual: Residual = "relative"
    # how residuals are summed: squares, or less for those far beyond `loss_scale`
    loss: Loss = "linear"
    # size of the residuals from which on a robust loss counts them for less
    loss_scale: float = Field(default=0.1, gt=0)
    ignored: tuple[Pattern, ...] = ()  # patterns of properties that have no term, by definition
    most_weights: Unread = Field(default=(), exclude=True)
    negligible: tuple[Pattern, ...] = ()
    # derived features: formulas of properties, and of those above them
    derived: dict[str, FormulaText] = Field(default_factory=dict)
    # the terms, whose sum is the time, s
    terms: dict[str, Annotated[Term, BeforeValidator(as_term)]] = Field(min_length=1)

    @pydantic.field_validator("derived")
    @classmethod
    def _check_derived_features(cls, derived: dict[str, str]) -> dict[str, str]:
        above: list[str] = []
        for name, text in derived.items():
            _check_name(name, "derived feature")
            names = parse(text).names
            known = [*above, *(n for n in names if property_of(n) is not None)]
            if unknown := tuple(n for n in names if n not in known):
                message = (
                    f"unknown name{'s' if len(unknown) > 1 else ''} {', '.join(map(repr, unknown))}"
                    f" (known here: {', '.join(known) or 'none'}; properties are written with"
                    " underscores: gmem_load_32_stride1)"
                )
                raise _error(message, text, names=unknown)
            above.append(name)
        return derived

    @pydantic.field_validator("terms")
    @classmethod
    def _check_terms(cls, terms: dict[str, Term], info: pydantic.ValidationInfo) -> dict[str, Term]:
        derived = info.data.get("derived", {})
        there = ", ".join(derived) or "none"
        for name, term in terms.items():
            _check_name(name, "term", *derived)
            for pattern in term.charged:
                if pattern not in derived and pattern.split(".")[0] not in PROPERTY_ROOTS:
                    roots = ", ".join([*sorted(PROPERTY_ROOTS), *derived])
                    raise ValueError(
                        f"term {name}: no property or derived feature begins with"
                        f" {pattern.split('.')[0]!r} (there are: {roots})"
                    )
            if term.scale and term.scale not in derived:
                raise ValueError(
                    f"term {name}: its scale {term.scale!r} is no derived feature (there are:"
                    f" {there})"
                )
        used = {name for term in terms.values() for name in (*term.charged, term.scale)}
        used.update(name for text in derived.values() for name in parse(text).names)
        if idle := [name for name in derived if name not in used]:
            raise ValueError(f"defined and never used: {', '.join(idle)}")
        return terms

    @pydantic.model_validator(mode="after")
    def _check_properties(self) -> Self:
        charged = (p for spec in self.term_features.values() for p in spec.charged)
        for name in (*self.base_properties.values(), *charged):
            if not self._may_have(name):
                does = "what a kernel does: flop.add.f32, gmem.load.32.stride1"
                if self.policy is not None:
                    does = "what a device issues: issue.vector.arithmetic.f32.add"
                does += ", transactions.32x128 (work items of a sub-group, bytes of a line)"
                raise ValueError(
                    f"{name} is never there: a model with{'' if self.policy else 'out'} an"
                    f" execution policy ([policy], width = 8 below it) is made of {does}"
                )
        return self

    def _may_have(self, name: str) -> bool:
        if (root := name.split(".")[0]) in AT_SIZES:
            return bool(transaction_roots([name]))
        if self.policy is None or root == SITE_ROOT or f"{root}." == SPILL:
            return is_emitted(name)
        return not is_emitted(name) or name in (*GROUP_SHAPE, *apply_policy(self.policy, {name: 1}))

    @cached_property
    def _read(self) -> tuple[str, ...]:
        """Prefixes of the names of properties without a formula that the model uses."""
        charged = self.features.charged
        code = tuple(root for root in (CODE, MISS) if any(n.startswith(root) for n in charged))
        return (*code, *(f"{root}." for root in self.named_transactions))

    @cached_property
    def named_transactions(self) -> tuple[str, ...]:
        """Transactions of sub-groups that the model names, such as ``transactions.32x128``."""
        return transaction_roots(self.features.charged)

    @cached_property
    def reads_code(self) -> bool:
        """True if a term charges instructions of compiled code."""
        return CODE in self._read

    def count_model_inputs(self, counts: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the counts that the model is made of, with the shape of groups if named."""
        as_they_are = {n: count for n, count in counts.items() if n.startswith(_NO_FORMULA)}
        read = {n: c for n, c in as_they_are.items() if f"{n}.".startswith(self._read)}
        if self.policy is None:
            made = {name: count for name, count in counts.items() if is_emitted(name)}
        else:
            rest = {name: count for name, count in counts.items() if name not in as_they_are}
            made = apply_policy(self.policy, rest)
        made = {n: count for n, count in (made | read).items() if n not in GROUP_SHAPE}
        wanted = self.named_shape
        known = counts if all(name in counts for name in wanted) else group_shape(counts)
        return made | {name: known[name] for name in wanted if name in known}

    @cached_property
    def named_shape(self) -> tuple[str, ...]:
        """Members of `GROUP_SHAPE` that the model names, which the structure view has."""
        return tuple(name for name in GROUP_SHAPE if self.features.feature_of(name) is not None)

    @property
    def expression(self) -> str:
        """The time as a formula of the terms, for people."""
        sums: dict[str, list[str]] = {}
        for name, term in self.terms.items():
            sums.setdefault(term.scale, []).append(name)
        parts = ((scale, " + ".join(names)) for scale, names in sums.items())
        return " + ".join(f"{scale}*({names})" if scale else names for scale, names in parts)

    @cached_property
    def scales(self) -> tuple[str, ...]:
        """The derived features that terms are multiplied by."""
        return tuple(dict.fromkeys(term.scale for term in self.terms.values() if term.scale))

    @cached_property
    def formulas(self) -> dict[str, CheckedFormula]:
        """The derived features, read, in their order."""
        return {name: parse(text) for name, text in self.derived.items()}

    @cached_property
    def base_properties(self) -> dict[str, str]:
        """Properties by the names that they have in formulas: ``groups``, ``lmem_load_32``."""
        names = [n for formula in self.formulas.values() for n in formula.names]
        properties = {name: property_of(name) for name in names if name not in self.derived}
        return {name: known for name, known in properties.items() if known is not None}

    def check_code(self, counts: Container[str], what: str = "the kernel") -> None:
        """Refuse counts of code without the cycles that the model charges; 0.2.0 read none."""
        is_old = OVERLAPPED not in counts and f"{CODE}cycles" in counts
        if is_old and self.features.feature_of(OVERLAPPED) is not None:
            raise PredictionError(
                f"the code of {what} was read by an earlier version, without the cycles of loops"
                " that overlap, which the model charges: read it again (countperf compiled"
                " --store FILE, where the device is; or countperf.with_compiled_code)"
            )

    @cached_property
    def term_features(self) -> dict[str, FeatureSpec]:
        """The patterns of each term that are of properties."""
        terms = self.terms.items()
        charged = {n: tuple(p for p in t.charged if p not in self.derived) for n, t in terms}
        return {n: FeatureSpec(charged=p, negligible=self.negligible) for n, p in charged.items()}

    @cached_property
    def features(self) -> FeatureSpec:
        """Features that the model charges, and those that it ignores."""
        charged = [p for spec in self.term_features.values() for p in spec.charged]
        names = tuple(dict.fromkeys([*charged, *self.base_properties.values()]))
        return FeatureSpec(charged=names, ignored=self.ignored, negligible=self.negligible)


def _check_name(name: str, kind: str, *taken: str) -> None:
    if not (name.isidentifier() and name.isascii()):
        raise ValueError(f"{name!r} cannot be written in an expression: use letters, digits and _")
    meanings = {"a function": name in FUNCTIONS, "defined twice": name in taken}
    meanings[f"a property ({property_of(name)})"] = property_of(name) is not None
    for meaning, has_it in meanings.items():
        if has_it:
            raise ValueError(f"{name} is {meaning}, and cannot be a {kind}")
