"""Mutations of every kind of document, and what must become of each: read or refused.

A mutation is nonsense if no reader may accept it: text that is no JSON or TOML, numbers that are
not finite or larger than any count, fields that are given twice, unknown fields, values of another
type, and negative values where there is no such time, size or number. Other mutations, such as
another letter of a text, may be accepted. Neither may end in anything but an error of countperf.
"""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from countperf.errors import CountperfError

Outcome = Literal["accepted", "refused", "nonsense", "traceback"]
Path_ = tuple[str | int, ...]

_FREE_SIGN = re.compile(
    r"covariance|relations|value|constant|intercept|residual|relative|bias|factor|offset"
    r"|coefficient|lower|upper|start|center|weights|inputs|targets|logs|remainder|errors|change"
    r"|at_most|low|high|anchor|shift|solution|alpha|best\.\d+\.5|smallest|largest|predicted_s|interval_s|mean_share|largest_share|profiles|host_overhead",
    re.IGNORECASE,
)
"""Fields whose numbers may be negative; of all others a negative number is nonsense."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of document."""

    name: str  # of the kind
    suffix: str  # of its files
    content: bytes  # A valid document
    read: Callable[[Path], object]  # reads a file of it, and uses what it holds
    lines: bool = False  # whether it is a file of lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A mutated document."""

    kind: Kind  # of what
    content: bytes  # the document
    change: str  # what was done
    is_nonsense: bool  # whether no reader may accept it


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Outcome of reading a mutated document."""

    mutant: Mutant  # the document
    outcome: Outcome  # what became of it; ``nonsense`` is what was accepted and must not be
    said: str = ""  # the error, if there was one


def read_mutant(mutant: Mutant, folder: Path) -> Result:
    """Have a mutated document read."""
    path = folder / f"mutant{mutant.kind.suffix}"
    path.write_bytes(mutant.content)
    try:
        mutant.kind.read(path)
    except CountperfError as error:
        return Result(mutant=mutant, outcome="refused", said=str(error))
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        said = f"{type(error).__name__}: {error}"[:300]
        return Result(mutant=mutant, outcome="traceback", said=said)
    return Result(mutant=mutant, outcome="nonsense" if mutant.is_nonsense else "accepted")


def mutants(kind: Kind, rng: random.Random) -> Iterator[Mutant]:
    """Mutate a document without end."""
    changes = (_bytes, _truncated, _number, _type, _unknown, _twice, _missing, _text, _nested)
    while True:
        change = rng.choice(changes)
        made = change(kind, rng)
        if made is not None and made.content != kind.content:
            yield made


# {{{ bytes


def _bytes(kind: Kind, rng: random.Random) -> Mutant:
    place = rng.randrange(len(kind.content))
    byte = rng.choice([0, 0xFF, 0x0D, 0x22, 0x2D, 0x39, rng.randrange(256)])
    content = bytearray(kind.content)
    content[place] = byte
    return Mutant(
        kind=kind,
        content=bytes(content),
        change=f"byte {place} is {byte:#x}",
        is_nonsense=byte >= 0x80,  # all documents are in ASCII
    )


def _truncated(kind: Kind, rng: random.Random) -> Mutant:
    end = rng.randrange(len(kind.content.rstrip()))
    content = kind.content[:end]
    return Mutant(
        kind=kind,
        content=content,
        change=f"cut at byte {end}",
        is_nonsense=not kind.lines and kind.suffix == ".json",
    )


# }}}

# {{{ values


_MARK = "\ue000mark\ue000"


def _numbers(value: object, path: Path_ = ()) -> Iterator[Path_]:
    match value:
        case bool():
            return
        case int() | float():
            yield path
        case dict():
            for name, each in value.items():
                yield from _numbers(each, (*path, name))
        case list():
            for number, each in enumerate(value):
                yield from _numbers(each, (*path, number))
        case _:
            return


def _all(value: object, path: Path_ = ()) -> Iterator[Path_]:
    if path:
        yield path
    match value:
        case dict():
            for name, each in value.items():
                yield from _all(each, (*path, name))
        case list():
            for number, each in enumerate(value):
                yield from _all(each, (*path, number))
        case _:
            return


def _at(value: Any, path: Path_) -> Any:
    for step in path:
        value = value[step]
    return value


def _put(value: Any, path: Path_, new: object) -> None:
    _at(value, path[:-1])[path[-1]] = new


def _parsed(kind: Kind, rng: random.Random) -> tuple[Any, Callable[[Any], str]]:
    """Parse a document, or a line of it; and return what makes its text again."""
    text = kind.content.decode()
    if kind.suffix == ".toml":
        import tomllib

        return tomllib.loads(text), _toml
    if not kind.lines:
        return json.loads(text), json.dumps
    lines = text.splitlines()
    number = rng.randrange(len(lines))

    def joined(value: Any) -> str:
        return "\n".join([*lines[:number], json.dumps(value), *lines[number + 1 :], ""])

    return json.loads(lines[number]), joined


def _toml(value: Any) -> str:
    """Write TOML in one line per key; tables inline."""

    def text(each: Any) -> str:
        match each:
            case bool():
                return str(each).lower()
            case dict():
                return (
                    "{ " + ", ".join(f"{json.dumps(k)} = {text(v)}" for k, v in each.items()) + " }"
                )
            case list():
                return "[" + ", ".join(map(text, each)) + "]"
            case str():
                return json.dumps(each)
            case None:
                return '"null"'
            case _:
                return repr(each)

    return "".join(f"{json.dumps(name)} = {text(each)}\n" for name, each in value.items())


def _replaced(
    kind: Kind,
    rng: random.Random,
    choose: Callable[[Any], list[Path_]],
    new: Callable[[Any], tuple[str, bool]],
) -> Mutant | None:
    """Put literal text in place of a value; `new` gives it, and whether that is nonsense."""
    value, write = _parsed(kind, rng)
    paths = choose(value)
    if not paths:
        return None
    path = rng.choice(paths)
    literal, is_nonsense = new(_at(value, path))
    value = copy.deepcopy(value)
    _put(value, path, _MARK)
    marked = write(value)
    where = ".".join(map(str, path))
    return Mutant(
        kind=kind,
        content=marked.replace(json.dumps(_MARK), literal).encode(),
        change=f"{where} is {literal[:40]}",
        is_nonsense=is_nonsense,
    )


def _number(kind: Kind, rng: random.Random) -> Mutant | None:
    toml = kind.suffix == ".toml"
    never = ["nan", "inf", "-inf"] if toml else ["NaN", "Infinity", "-Infinity"]
    never += ["1e999", "-1e999", "1" * 400, "1" * 5000, f"-{'9' * 5000}"]
    literal = rng.choice([*never, "negative", "negative", "negative", "1e308", "1e-320", "0"])
    if literal != "negative":
        return _replaced(
            kind, rng, lambda v: list(_numbers(v)), lambda _: (literal, literal in never)
        )

    def signed(value: Any) -> list[Path_]:
        return [
            path
            for path in _numbers(value)
            if _at(value, path) > 0 and not _FREE_SIGN.search(".".join(map(str, path)))
        ]

    return _replaced(kind, rng, signed, lambda old: (repr(-old), True))


def _type(kind: Kind, rng: random.Random) -> Mutant | None:
    def other(old: Any) -> tuple[str, bool]:
        literals = {
            "number": "-17.25" if isinstance(old, str | list | dict) else "0.5",
            "text": '"nonsense"',
            "list": "[[]]",
            "object": '{"nonsense": {}}' if kind.suffix != ".toml" else '{ "nonsense" = {} }',
            "boolean": "true",
            "null": "null",
            "date": "1979-05-27T07:32:00Z",
        }
        if kind.suffix == ".toml":
            del literals["null"]
        else:
            del literals["date"]
        own: dict[type, str] = {
            bool: "boolean",
            int: "number",
            float: "number",
            str: "text",
            list: "list",
        }
        literals.pop(own.get(type(old), "object"), None)
        if old is None:
            return literals["list"], True
        chosen = rng.choice(sorted(literals))
        return literals[chosen], chosen != "null"

    return _replaced(kind, rng, lambda v: list(_all(v)), other)


def _nested(kind: Kind, rng: random.Random) -> Mutant | None:
    depth = rng.choice([300, 5000, 100_000])
    literal = rng.choice(["[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth])
    if kind.suffix == ".toml":
        literal = "[" * depth + "]" * depth
    return _replaced(kind, rng, lambda v: list(_all(v)), lambda _: (literal, True))


def _text(kind: Kind, rng: random.Random) -> Mutant | None:
    def texts(value: Any) -> list[Path_]:
        return [path for path in _all(value) if isinstance(_at(value, path), str)]

    def other(old: str) -> tuple[str, bool]:
        place = rng.randrange(len(old) + 1)
        odd = rng.choice(
            ["", "(", "**", "[n] -> {", "\\u0000", "999", "é", "n", " ", "\\n", "9" * 5000]
        )
        inside = json.dumps(old[:place])[1:-1] + odd + json.dumps(old[place + 1 :])[1:-1]
        return f'"{inside}"', False

    return _replaced(kind, rng, texts, other)


# }}}

# {{{ fields


def _objects(value: Any) -> list[Path_]:
    return [p for p in ((), *_all(value)) if isinstance(_at(value, p), dict) and _at(value, p)]


def _unknown(kind: Kind, rng: random.Random) -> Mutant | None:
    value, write = _parsed(kind, rng)
    path = rng.choice(_objects(value))
    value = copy.deepcopy(value)
    _at(value, path)["nonsense"] = [[]]
    return Mutant(
        kind=kind,
        content=write(value).encode(),
        change=f"{'.'.join(map(str, path))} has an unknown field",
        is_nonsense=True,
    )


def _missing(kind: Kind, rng: random.Random) -> Mutant | None:
    value, write = _parsed(kind, rng)
    path = rng.choice(_objects(value))
    value = copy.deepcopy(value)
    name = rng.choice(list(_at(value, path)))
    del _at(value, path)[name]
    return Mutant(
        kind=kind,
        content=write(value).encode(),
        change=f"{'.'.join(map(str, (*path, name)))} is missing",
        is_nonsense=False,
    )


def _twice(kind: Kind, rng: random.Random) -> Mutant | None:
    value, write = _parsed(kind, rng)
    path = rng.choice(_objects(value))
    value = copy.deepcopy(value)
    inside = _at(value, path)
    name = rng.choice(list(inside))
    inside[_MARK] = inside[name]
    return Mutant(
        kind=kind,
        content=write(value).replace(json.dumps(_MARK), json.dumps(name)).encode(),
        change=f"{'.'.join(map(str, (*path, name)))} is there twice",
        is_nonsense=True,
    )


# }}}


def tally(results: Mapping[str, list[Result]]) -> str:
    """Write a table of outcomes, a row for each kind of document."""
    outcomes = ("accepted", "refused", "nonsense", "traceback")
    rows = [f"{'':24}" + "".join(f"{name:>11}" for name in outcomes)]
    for kind, found in results.items():
        counts = [sum(each.outcome == name for each in found) for name in outcomes]
        rows.append(f"{kind:24}" + "".join(f"{count:11}" for count in counts))
    total = [sum(e.outcome == o for found in results.values() for e in found) for o in outcomes]
    rows.append(f"{'all':24}" + "".join(f"{count:11}" for count in total))
    return "\n".join(rows)
