"""Mutations of every kind of document, read or refused; nonsense is what no reader may accept."""

from __future__ import annotations

import copy
import json
import random
import re
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from countperf.errors import CountperfError

Path_ = tuple[str | int, ...]

_FREE_SIGN = re.compile(
    r"covariance|relations|value|constant|intercept|residual|relative|bias|factor|offset"
    r"|coefficient|lower|upper|start|center|weights|inputs|targets|logs|remainder|errors|change"
    r"|at_most|low|high|anchor|shift|solution|alpha|best\.\d+\.5|smallest|largest|predicted_s|interval_s|mean_share|largest_share|profiles|host_overhead",
    re.IGNORECASE,
)
"""Fields whose numbers may be negative; of all others a negative number is nonsense."""

_MARK = "\ue000mark\ue000"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of document: its name, a valid document, and what reads and uses a file of it."""

    name: str
    content: bytes
    read: Callable[[Path], object]
    suffix: str = ".json"


@dataclass(frozen=True, slots=True)
class Mutant:
    """A mutated document; if it is nonsense, no reader may accept it."""

    kind: Kind
    content: bytes
    change: str
    is_nonsense: bool


def outcome_of(mutant: Mutant, folder: Path) -> tuple[str, str]:
    """Have a document read; return accepted, refused, nonsense (accepted) or traceback, and why."""
    path = folder / f"mutant{mutant.kind.suffix}"
    path.write_bytes(mutant.content)
    try:
        mutant.kind.read(path)
    except CountperfError as error:
        return "refused", str(error)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return "traceback", f"{type(error).__name__}: {error}"[:300]
    return ("nonsense" if mutant.is_nonsense else "accepted"), ""


def mutants(kind: Kind, rng: random.Random) -> Iterator[Mutant]:
    """Mutate a document without end."""
    changes = (_byte, _truncated, _number, _type, _nested, _text, *[_field] * 3)
    while True:
        mutated = rng.choice(changes)(kind, rng)
        if mutated is not None and mutated.content != kind.content:
            yield mutated


def _byte(kind: Kind, rng: random.Random) -> Mutant:
    index = rng.randrange(len(kind.content))
    byte = rng.choice([0, 0xFF, 0x0D, 0x22, 0x2D, 0x39, rng.randrange(256)])
    content = kind.content[:index] + bytes([byte]) + kind.content[index + 1 :]
    # all documents are in ASCII
    return Mutant(kind, content, f"byte {index} is {byte:#x}", is_nonsense=byte >= 0x80)


def _truncated(kind: Kind, rng: random.Random) -> Mutant:
    end = rng.randrange(len(kind.content.rstrip()))
    return Mutant(kind, kind.content[:end], f"cut at byte {end}", kind.suffix == ".json")


def _parsed(kind: Kind, rng: random.Random) -> tuple[Any, Callable[[Any], str]]:
    """Parse a document, or a line of it; and return what makes its text again."""
    text = kind.content.decode()
    if kind.suffix == ".toml":
        return tomllib.loads(text), lambda value: "".join(
            f"{json.dumps(name)} = {_toml(item)}\n" for name, item in value.items()
        )
    if kind.suffix == ".json":
        return json.loads(text), json.dumps
    lines = text.splitlines()
    number = rng.randrange(len(lines))
    before, after = lines[:number], lines[number + 1 :]
    write = lambda value: "\n".join([*before, json.dumps(value), *after, ""])  # noqa: E731
    return json.loads(lines[number]), write


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        items = (f"{json.dumps(name)} = {_toml(item)}" for name, item in value.items())
        return "{ " + ", ".join(items) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value) if isinstance(value, bool | str) else repr(value)


def _all(value: Any, path: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    """Give all that a document holds, itself first, with where it stands."""
    yield path, value
    children = value if isinstance(value, list) else []
    for name, item in value.items() if isinstance(value, dict) else enumerate(children):
        yield from _all(item, (*path, name))


def _at(value: Any, path: Path_) -> Any:
    for step in path:
        value = value[step]
    return value


def _where(path: Path_) -> str:
    return ".".join(map(str, path))


def _replaced(
    kind: Kind,
    rng: random.Random,
    chosen: Callable[[Path_, Any], bool],
    new: Callable[[Any], tuple[str, bool]],
) -> Mutant | None:
    """Put literal text in place of a value; `new` gives it, and whether that is nonsense."""
    value, write = _parsed(kind, rng)
    paths = [path for path, item in _all(value) if path and chosen(path, item)]
    if not paths:
        return None
    path = rng.choice(paths)
    literal, is_nonsense = new(_at(value, path))
    _at(value, path[:-1])[path[-1]] = _MARK
    content = write(value).replace(json.dumps(_MARK), literal).encode()
    return Mutant(kind, content, f"{_where(path)} is {literal[:40]}", is_nonsense)


def _is_number(_: Path_, item: Any) -> bool:
    return isinstance(item, int | float) and not isinstance(item, bool)


def _is_positive(path: Path_, item: Any) -> bool:
    return _is_number(path, item) and item > 0 and not _FREE_SIGN.search(_where(path))


def _number(kind: Kind, rng: random.Random) -> Mutant | None:
    toml = kind.suffix == ".toml"
    never = ["nan", "inf", "-inf"] if toml else ["NaN", "Infinity", "-Infinity"]
    never += ["1e999", "-1e999", "1" * 400, "1" * 5000, f"-{'9' * 5000}"]
    literal = rng.choice([*never, *["negative"] * 3, "1e308", "1e-320", "0"])
    if literal == "negative":
        return _replaced(kind, rng, _is_positive, lambda old: (repr(-old), True))
    return _replaced(kind, rng, _is_number, lambda _: (literal, literal in never))


def _type(kind: Kind, rng: random.Random) -> Mutant | None:
    toml = kind.suffix == ".toml"
    literals = {
        dict: '{ "nonsense" = {} }' if toml else '{"nonsense": {}}',
        list: "[[]]",
        str: '"nonsense"',
        bool: "true",
        float: "0.5",
        type(None): "1979-05-27T07:32:00Z" if toml else "null",
    }

    def other(old: Any) -> tuple[str, bool]:
        if old is None:
            return literals[list], True
        kinds = [kind for kind in literals if not isinstance(old, kind)]
        chosen = rng.choice([kind for kind in kinds if kind is not float or type(old) is not int])
        if chosen is float and not isinstance(old, bool):
            return "-17.25", True
        return literals[chosen], literals[chosen] != "null"

    return _replaced(kind, rng, lambda *_: True, other)


def _nested(kind: Kind, rng: random.Random) -> Mutant | None:
    depth = rng.choice([300, 5000, 100_000])
    literals = ["[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth]
    literal = literals[0] if kind.suffix == ".toml" else rng.choice(literals)
    return _replaced(kind, rng, lambda *_: True, lambda _: (literal, True))


def _text(kind: Kind, rng: random.Random) -> Mutant | None:
    odd = ["", "(", "**", "[n] -> {", "\\u0000", "999", "é", "n", " ", "\\n", "9" * 5000]

    def other(old: str) -> tuple[str, bool]:
        index = rng.randrange(len(old) + 1)
        before, after = (json.dumps(part)[1:-1] for part in (old[:index], old[index + 1 :]))
        return f'"{before}{rng.choice(odd)}{after}"', False

    return _replaced(kind, rng, lambda _, item: isinstance(item, str), other)


def _field(kind: Kind, rng: random.Random) -> Mutant:
    """Add an unknown field, leave one out, or give one twice."""
    value, write = _parsed(kind, rng)
    path = rng.choice([path for path, item in _all(value) if isinstance(item, dict) and item])
    fields = _at(value, path)
    name = rng.choice(list(fields))
    what = rng.choice(["unknown", "missing", "twice"])
    if what == "missing":
        del fields[name]
    else:
        fields[_MARK] = [[]] if what == "unknown" else copy.deepcopy(fields[name])
    named = json.dumps("nonsense" if what == "unknown" else name)
    content = write(value).replace(json.dumps(_MARK), named).encode()
    return Mutant(kind, content, f"{_where((*path, name))}: {what}", is_nonsense=what != "missing")
