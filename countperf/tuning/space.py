"""The set of variants that a search goes through.

Constraints are functions, or expressions of the parameters, ``min``, ``max`` and ``abs`` alone.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import CodeType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args, get_origin, get_type_hints

from countperf.counting.frontend.producers import translation_unit
from countperf.errors import ParameterError, SearchSpaceError, UnknownSizeError, nearest
from countperf.measuring import KernelCase
from countperf.sizes import merge_sizes
from countperf.text import ShortRepr
from countperf.user_code import find_in_user_code

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from countperf.measuring import Statistic

    MakeArguments: TypeAlias = Callable[[np.random.Generator, Mapping[str, int]], dict[str, Any]]
    Reference: TypeAlias = Callable[[Mapping[str, Any], Mapping[str, int]], dict[str, NDArray[Any]]]


_HOW = (
    "annotate it with its values, tile: Literal[8, 16, 32], or with bool, or give the values as its"
    " default, tile=(8, 16, 32) or unroll=range(1, 9)"
)


def parameters_of(function: Callable[..., Any]) -> dict[str, Sequence[Any]]:
    """Return the values of each argument of a function, as `SearchSpace.from_function` has them."""
    name = getattr(function, "__name__", repr(function))
    try:
        hints = get_type_hints(function)
        signature = inspect.signature(function)
    except (NameError, TypeError, AttributeError, ValueError) as error:
        raise SearchSpaceError(
            f"the signature of '{name}' cannot be read: {error}; pass a function of Python, and"
            " import what its annotations name"
        ) from error
    parameters: dict[str, Sequence[Any]] = {}
    for argument in signature.parameters.values():
        hint, default = hints.get(argument.name), argument.default
        if argument.kind in (argument.VAR_POSITIONAL, argument.VAR_KEYWORD):
            continue
        if get_origin(hint) is Literal:
            parameters[argument.name] = get_args(hint)
        elif isinstance(default, list | tuple | range):
            parameters[argument.name] = default
        elif hint is bool:
            parameters[argument.name] = (False, True)
        elif default is argument.empty:
            raise SearchSpaceError(f"argument {argument.name} of '{name}' has no values: {_HOW}")
    if not parameters:
        raise SearchSpaceError(f"'{name}' has no argument with values: {_HOW}")
    return parameters


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {"min": min, "max": max, "abs": abs}


@lru_cache(maxsize=1024)
def compile_constraint(text: str, names: tuple[str, ...]) -> CodeType:
    """Compile a constraint: an expression of the parameters, `min`, `max` and `abs` alone."""

    def refuse(what: str) -> SearchSpaceError:
        return SearchSpaceError(f'constraint "{text}": {what}')

    try:
        code = compile(text, "<constraint>", "eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise refuse(f"no expression: {error}") from error
    for name in code.co_names:  # attributes among them
        if name not in names and name not in _FUNCTIONS:
            raise refuse(
                f"no parameter is called {name}; there are {', '.join(names)}, and the functions"
                f" {', '.join(_FUNCTIONS)}"
            )
    if any(isinstance(part, CodeType) for part in code.co_consts):
        raise refuse("a function or loop is not allowed; or pass a function instead")
    return code


def holds(text: str, choice: Mapping[str, Any]) -> bool:
    """Evaluate a constraint at a choice."""
    code = compile_constraint(text, tuple(choice))
    try:
        made = eval(code, {"__builtins__": {}, **_FUNCTIONS}, dict(choice))
    except Exception as error:
        raise SearchSpaceError(f'constraint "{text}" fails at {dict(choice)}: {error}') from error
    if not isinstance(made, bool | int | float):
        raise SearchSpaceError(f'constraint "{text}" is {made!r} at {dict(choice)}: no truth value')
    return bool(made)


Value: TypeAlias = bool | int | float | str  # value of a parameter; it has to survive JSON

Choice: TypeAlias = Mapping[str, Value]  # a value for each parameter

Constraint: TypeAlias = str | Callable[[Choice], bool]
"""Constraint on every choice: an expression of the parameters, or a function."""

Statistics: TypeAlias = "Mapping[str, Statistic] | Callable[[Choice], Mapping[str, Statistic]]"
"""Facts of the data, as for `count_kernel`: for all choices, or a function of the choice."""

_GOLDEN_RATIO = (math.sqrt(5) - 1) / 2
_COUNTED = 20_000  # choices that are looked at to say how many there are, in a second or so


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SearchSpace(ShortRepr):
    """Variants of a kernel, one for each choice of parameters that satisfies the constraints.

    It goes to other processes to be ranked: its functions have to be importable there (functions
    of modules, not lambdas).

    Attributes
    ----------
    name, element_type : str
        Of the family of kernels; type of their numbers.
    parameters : Mapping from str to sequence
        Values of each parameter: a list, or a ``range``.
    build : callable
        From a choice, as keyword arguments, to the ``loopy.TranslationUnit``, symbolic in its
        sizes. Whatever it raises is the reason why there is no such variant.
    constraints : tuple of str or callable
        What a choice has to satisfy; see `countperf.tuning.space` for texts.
    sizes, check_sizes
        Sizes for which variants are compared unless others are given; a function from a choice to
        small ones at which its numbers are checked, by default `sizes`.
    make_arguments, reference, tolerance, unchecked
        As for `KernelCase`: by default inputs are made from the kernel's arguments, and without a
        reference numbers of variants are not checked, which results then say.
    statistics : Mapping from str to number or str, or callable
        What counting has to know of the data, as for `count_kernel`; or a function of the choice.

    Examples
    --------
    >>> space = SearchSpace(
    ...     name="toy",
    ...     parameters={"tile": [8, 16, 32], "unroll": range(1, 5)},
    ...     constraints=("tile % unroll == 0", "tile * unroll <= 64"),
    ...     build=dict,
    ... )
    >>> space.cardinality, sum(1 for _ in space.choices())
    (12, 8)
    >>> {"tile": 8, "unroll": 3} in space
    False
    """

    name: str
    parameters: Mapping[str, Sequence[Value]]
    build: Callable[..., Any]
    constraints: tuple[Constraint, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    check_sizes: Callable[[Choice], Mapping[str, int]] | None = None
    make_arguments: MakeArguments | None = None
    reference: Reference | None = None
    tolerance: float = 1e-4
    unchecked: bool = False
    element_type: str = "f32"
    statistics: Statistics = field(default_factory=dict[str, "Statistic"])
    specification: str = field(default="", init=False, repr=False)  # that `find_space` found it by

    def __post_init__(self) -> None:
        given: Mapping[str, Sequence[Any]] = self.parameters
        plain = {
            name: [value.item() if hasattr(value, "item") else value for value in values]
            if any(hasattr(value, "item") for value in values)
            else values
            for name, values in given.items()
        }
        object.__setattr__(self, "parameters", plain)  # without numbers of NumPy
        object.__setattr__(self, "sizes", merge_sizes(self.sizes, {}))
        if not self.parameters:
            raise SearchSpaceError(f"space '{self.name}' has no parameters; pass at least one")
        for name, values in self.parameters.items():
            wrong = ""
            if not name.isidentifier():
                wrong = f"{name!r} is no name of a parameter"
            elif not len(values):
                wrong = f"parameter {name} has no values"
            elif any(type(value) not in (bool, int, float, str) for value in values):
                wrong = f"a value of {name} is no number, text or truth value of Python"
            elif not isinstance(values, range) and len({*map(repr, values)}) < len(values):
                wrong = f"{name} lists a value twice"
            if wrong:
                raise SearchSpaceError(f"space '{self.name}': {wrong}")
        for constraint in self.constraints:
            if isinstance(constraint, str):
                compile_constraint(constraint, tuple(self.parameters))

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Send a space of a user's file to other processes by its text, by which they find it."""
        if self.specification:
            return find_space, (self.specification,)
        return object.__reduce_ex__(self, protocol)

    @classmethod
    def from_function(
        cls,
        build: Callable[..., Any],
        *,
        constraints: Sequence[Constraint] = (),
        sizes: Mapping[str, int] | None = None,
        name: str = "",
        **more: Any,
    ) -> SearchSpace:
        """Make a space from the function that builds a variant; its signature says the values.

        Values of an argument are those of its annotation (``Literal[8, 16]``, ``bool``) or of its
        default (a list, tuple or ``range``); an argument with neither is a `SearchSpaceError`, and
        any other default is left to the function. More keywords are attributes of the space.

        Examples
        --------
        >>> def variant(tile=(8, 16, 32), unroll=range(1, 5)): ...
        >>> space = SearchSpace.from_function(variant, constraints=["tile % unroll == 0"])
        >>> space.name, sum(1 for _ in space.choices())
        ('variant', 9)
        """
        name = name or getattr(build, "__name__", "space")
        more |= {"constraints": tuple(constraints), "sizes": dict(sizes or {})}
        return cls(name=name, parameters=parameters_of(build), build=build, **more)

    @property
    def cardinality(self) -> int:
        """Number of choices, those that the constraints rule out included."""
        return math.prod(len(values) for values in self.parameters.values())

    def at(self, index: int) -> dict[str, Value]:
        """Return the choice with a number below `cardinality`; the last parameter runs fastest."""
        lengths = [len(values) for values in self.parameters.values()]
        positions: list[int] = []
        for length in reversed(lengths):
            index, position = divmod(index, length)
            positions.insert(0, position)
        pairs = zip(self.parameters.items(), positions, strict=True)
        return {name: values[position] for (name, values), position in pairs}

    def satisfies(self, choice: Choice) -> bool:
        """Tell whether a choice satisfies all constraints."""
        return all(holds(r, choice) if isinstance(r, str) else r(choice) for r in self.constraints)

    def __contains__(self, choice: object) -> bool:
        if not isinstance(choice, Mapping) or set(choice) != set(self.parameters):
            return False
        pairs = ((choice[name], values) for name, values in self.parameters.items())
        is_there = (any(one == v and type(one) is type(v) for v in values) for one, values in pairs)
        return all(is_there) and self.satisfies(choice)

    def choices(self) -> Iterator[dict[str, Value]]:
        """Go through the choices that satisfy the constraints, any beginning spread evenly."""
        count, stride = self.cardinality, self._stride
        places = (number * stride % count for number in range(count))
        return filter(self.satisfies, map(self.at, places))

    def number_of_choices(self) -> int:
        """Return how many `choices` there are, an estimate where it is many."""
        count, stride = self.cardinality, self._stride
        looked = min(count, _COUNTED)
        places = (self.at(number * stride % count) for number in range(looked))
        return round(sum(map(self.satisfies, places)) * count / looked)

    @property
    def _stride(self) -> int:
        """Stride of the order of `choices`, without a common divisor with the number of points."""
        count = self.cardinality
        stride = max(1, round(count * _GOLDEN_RATIO))
        while math.gcd(stride, count) != 1:
            stride += 1
        return stride

    def label(self, choice: Choice) -> str:
        """Write a choice as text: ``tile=8,unroll=2``."""
        return ",".join(f"{name}={choice[name]}" for name in self.parameters)

    def sizes_with(self, others: Mapping[str, int]) -> dict[str, int]:
        """Return the sizes with others in the place of some; a space without sizes takes any."""
        for name, value in others.items():
            if self.sizes and name not in self.sizes:
                raise UnknownSizeError(
                    f"space '{self.name}' has no size {name}; there are"
                    f" {', '.join(sorted(self.sizes))}{nearest(name, self.sizes)}; another one of"
                    " its kernels has to be listed in its sizes",
                    parameter=name,
                )
            if value <= 0:
                message = f"space '{self.name}': {name} = {value}; sizes are positive"
                raise ParameterError(message, parameter=name)
        return {**self.sizes, **others}

    def statistics_at(self, choice: Choice, more: Statistics | None = None) -> dict[str, Statistic]:
        """Return the statistics of a choice; more take the place of the space's."""
        found: dict[str, Statistic] = {}
        for given in (self.statistics, more or {}):
            if not callable(given):
                found |= given
                continue
            try:
                found |= given(dict(choice))
            except Exception as error:  # of anybody's code
                raise SearchSpaceError(
                    f"space '{self.name}': the function of its statistics fails at"
                    f" {self.label(choice)}: {type(error).__name__}: {error}"
                ) from error
        return found

    def case(
        self,
        choice: Choice,
        sizes: Mapping[str, int] | None = None,
        statistics: Statistics | None = None,
    ) -> KernelCase:
        """Make the measurement case of a choice; sizes and statistics replace the space's."""
        wanted = self.sizes_with(sizes or {})
        kernel = f"{self.name}/{self.label(choice)}"
        built: list[Any] = []

        def build() -> Any:
            if not built:
                built.append(translation_unit(self.build(**choice)))
            return built[0]

        return KernelCase(
            name=f"{kernel}/{','.join(f'{name}={value}' for name, value in wanted.items())}",
            kernel=kernel,
            family=self.name,
            variant=self.label(choice),
            group_shape=(1, 1),
            element_type=self.element_type,
            build=build,
            parameters=wanted,
            make_arguments=self.make_arguments,
            reference=self.reference,
            tolerance=self.tolerance,
            unchecked=self.unchecked,
            purpose="test",
            global_memory_bytes=0,
            check_parameters=wanted if self.check_sizes is None else self.check_sizes(choice),
            statistics=self.statistics_at(choice, statistics),
            inputs="" if self.make_arguments is None else self.name,
        )


@lru_cache(maxsize=32)
def find_space(specification: str) -> SearchSpace:
    """Find the search space of a user's code that a text names."""
    space = find_in_user_code(
        specification, SearchSpace, kind_name="countperf.SearchSpace", error=SearchSpaceError
    )
    assert isinstance(space, SearchSpace)
    found = replace(space)
    object.__setattr__(found, "specification", specification)
    return found
