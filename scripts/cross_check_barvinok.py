"""Count sets with barvinok and write its numbers where the tests compare them with ours.

Run it in an environment that has islpy-barvinok (scripts/cross_check_barvinok makes one). The sets:
all that countperf counts in the library's kernels and in the applications of the tests, and those
that stand in the other files. Each line holds a set, assumptions, its parameters, and rows of their
values and the count there. Arguments, if any, name the files to write.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import re
import sys
from collections.abc import Iterable, Iterator
from math import lcm
from pathlib import Path
from typing import Any
from unittest import mock

import islpy as isl

from countperf.counting.count_properties import count_loopy_kernel
from countperf.symbolic import isl_sets
from countperf.symbolic.cardinality import Counter
from countperf.symbolic.quasipolynomial import QuasiPolynomial
from countperf.symbolic.sets import contains_values
from measurement_kernels.catalog import entries
from tests.counting.applications import APPLICATIONS

TARGET = Path("tests/golden/barvinok")
POINTS = 12
SECONDS = 3
FORKING = multiprocessing.get_context("fork")
Case = tuple[str, str | None]


def counted_sets(t_unit: Any, statistics: Any = None) -> list[Case]:
    """Return all sets that are counted when a kernel is."""
    found: list[Case] = []
    count, product = Counter.count, Counter.count_product

    def note(counter: Counter, integer_set: Any) -> None:
        assumptions = counter.context.assumptions
        found.append((str(integer_set), None if assumptions is None else str(assumptions)))

    def noting_count(self: Counter, integer_set: Any, *weight: QuasiPolynomial) -> Any:
        note(self, integer_set)
        return count(self, integer_set, *weight)

    def noting_product(self: Counter, factors: Any) -> Any:
        for factor in factors:
            note(self, isl_sets.to_isl(factor))
        return product(self, factors)

    with (
        mock.patch.object(Counter, "count", noting_count),
        mock.patch.object(Counter, "count_product", noting_product),
    ):
        count_loopy_kernel(t_unit, statistics=statistics)
    return found


def collections() -> Iterator[tuple[str, Iterable[Case]]]:
    """Return the sets of each file."""
    library = [e for e in entries(element_type="f32", purpose=None) if not e.statistics]
    yield "library", (case for e in library for case in counted_sets(e.build()))
    small = ((a.build(), a.statistics(a.sizes[0])) for a in APPLICATIONS.values())
    yield "applications", (case for unit, known in small for case in counted_sets(unit, known))
    for name in ("typical", "adversarial", "nests"):
        documents = map(json.loads, (TARGET / f"{name}.jsonl").read_text().splitlines())
        yield name, [(document["set"], document.get("assumptions")) for document in documents]


def sample(names: tuple[str, ...], assumptions: str | None, seed: str) -> list[dict[str, int]]:
    """Return different values of the parameters, small to large."""
    rng = random.Random(seed)
    found: list[dict[str, int]] = []
    allowed = isl.Set(assumptions or "{ : }")
    known = {*names, *isl_sets.names_of(allowed, parameters=True)}
    moduli = [int(m) for m in re.findall(r"mod (\d+)", assumptions or "")]
    for _ in range(400):
        largest = rng.choice([5, 12, 40, 300, 10**5])
        step = lcm(*moduli) if moduli else rng.choice([1, 1, 4, 16, 48, 64])
        first = rng.choice([0, 0, 1]) if moduli else 0
        most = max(largest // step, 3)
        values = {name: first + step * rng.randint(-1, most) for name in sorted(known)}
        is_new = len(found) < POINTS and values not in found
        if is_new and contains_values(allowed, values):
            found.append(values)
    return found if known else [{}]


def cardinality(text: str, rows: list[dict[str, int]]) -> list[int]:
    """Count a set with barvinok."""
    function: Any = isl.Set(text).card()
    space = function.get_domain_space()
    result: list[int] = []
    for values in rows:
        point: Any = isl.Point.zero(space)
        for position in range(space.dim(isl.dim_type.param)):
            name = space.get_dim_name(isl.dim_type.param, position)
            point = point.set_coordinate_val(isl.dim_type.param, position, isl.Val(values[name]))
        value = function.eval(point)
        assert value.is_int(), (text, values, value)
        result.append(int(str(value)))
    return result


def cardinality_in_time(text: str, rows: list[dict[str, int]]) -> list[int] | None:
    """Count a set with barvinok, in a process that is ended when it takes too long."""
    receiving, sending = FORKING.Pipe(duplex=False)
    process = FORKING.Process(target=lambda: sending.send(cardinality(text, rows)))
    process.start()
    sending.close()
    try:
        return receiving.recv() if receiving.poll(SECONDS) else None
    except EOFError:
        sys.exit(f"barvinok fails at {text}")
    finally:
        process.kill()
        process.join()


def write(name: str, cases: Iterable[Case]) -> None:
    """Count the sets of one file, each once."""
    lines: list[str] = []
    late = 0
    for text, assumptions in dict.fromkeys(cases):
        parsed = isl.Set(text)
        rows = sample(isl_sets.names_of(parsed, parameters=True), assumptions, text)
        if not rows:
            sys.exit(f"no parameters satisfy {assumptions}")
        counts = cardinality_in_time(text, rows)
        if counts is None:
            late += 1
            continue
        names = sorted(rows[0])
        values = [[*(row[n] for n in names), c] for row, c in zip(rows, counts, strict=True)]
        document: dict[str, Any] = {"set": text, "parameters": names, "counts": values}
        if assumptions is not None:
            document["assumptions"] = assumptions
        lines.append(json.dumps(document, separators=(",", ":")))
    (TARGET / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines))
    print(f"{name}: {len(lines)} sets; {late} left out that take over {SECONDS} s", flush=True)


def main() -> None:
    """Write all files."""
    if not hasattr(isl.Set, "card"):
        sys.exit("islpy has no barvinok here; run scripts/cross_check_barvinok")
    wanted = sys.argv[1:]
    for name, cases in collections():
        if not wanted or name in wanted:
            write(name, cases)


if __name__ == "__main__":
    main()
