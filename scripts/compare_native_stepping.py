"""Compare what following compiled code counts with single steps of the processor, for many kernels.

Kernels of the catalogue, one of each family and variant in an order that the seed decides, are
compiled with PoCL; of each launch at two sizes, a group in the middle and the last one are stepped
through (``tests/oracles/native_stepping.py``). The sizes are those for checks and twice these.
Where a group executes more than ``--most-steps`` instructions at them, smaller sizes stand in, odd
multiples of what the kernel assumes, so that loops keep remainders; and where these are too large,
too, four times as many steps are allowed. A table with a row for each group is written:
instructions executed, how many of them are counted otherwise, and the first of these, or why there
is no comparison. Kernels that are in the table already are left out, so that a run may be stopped
and continued. ``--summary`` writes a row for each kernel and size. Exits with 1 if anything
differs.
"""

from __future__ import annotations

import argparse
import csv
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from countperf.devices.discovery import find_device
from countperf.errors import CountperfError
from countperf.symbolic.coverage import contains_values
from measurement_kernels.catalog import entries
from measurement_kernels.entry import CatalogEntry
from tests.oracles.native_stepping import (
    Steppable,
    SteppingError,
    TooManyStepsError,
    compiled_for_stepping,
)

BATCH = 10
COLUMNS = ("kernel", "sizes", "launch", "group", "verdict", "executed", "differing", "detail")
EQUAL, DIFFERENT, REFUSED, NOT_STEPPED = "equal", "different", "refused", "not stepped"
TOO_LARGE = "too many steps"
SIZES = 2
SMALL = ((1, 1), (7, 1), (1, 2), (13, 3), (25, 5))
"""Least sizes and multiples of what the kernel assumes, tried in this order."""

Row = list[str]


def chosen(number: int, seed: int) -> list[CatalogEntry]:
    """Return one entry of each family and variant, so many of them."""
    first: dict[tuple[str, str], CatalogEntry] = {}
    for each in entries(purpose=None, collection=None, element_type=None):
        first.setdefault((each.family, each.variant), each)
    found = [*first.values(), *entries(purpose="variant", collection=None, element_type=None)]
    random.Random(seed).shuffle(found)
    return found[:number]


def sizes_to_try(entry: CatalogEntry) -> Iterator[dict[str, int]]:
    """Yield the sizes for checks, twice these, and small ones with remainders."""
    found = [
        {name: factor * size for name, size in entry.check_parameters.items()} for factor in (1, 2)
    ]
    yield from found
    assumed = entry.build().default_entrypoint.assumptions
    for least, odd in SMALL:
        small = {
            size.name: size.multiple * max(odd, -(-least // size.multiple))
            for size in entry.sizes
            if size.fixed is None
        }
        sizes = {**entry.check_parameters, **small}
        if sizes not in found and contains_values(assumed, sizes):
            found.append(sizes)
            yield sizes


def rows_of_kernel(entry: CatalogEntry, kernel: Steppable, most: int) -> list[Row]:
    """Compare groups at the first two sizes that do not take too many steps."""
    tried: list[list[Row]] = []
    for limit in (most, 4 * most):
        tried = []
        for sizes in sizes_to_try(entry):
            rows = list(rows_of(entry.name, kernel, sizes, limit))
            if all(row[-1] != TOO_LARGE for row in rows):
                tried.append(rows)
            if len(tried) == SIZES:
                return [row for rows in tried for row in rows]
    return [row for rows in tried for row in rows] or [
        [entry.name, "", "", "", NOT_STEPPED, "", "", TOO_LARGE]
    ]


def rows_of(name: str, kernel: Steppable, sizes: Mapping[str, int], most: int) -> Iterator[Row]:
    """Compare groups at some sizes; yield a row for each, up to one that takes too many steps."""
    at = " ".join(f"{key}={value}" for key, value in sizes.items())
    try:
        groups = kernel.groups(sizes)
    except CountperfError as error:
        yield [name, at, "", "", REFUSED, "", "", str(error)]
        return
    for launch, number in groups:
        row = [name, at, launch.kernel, " ".join(map(str, number))]
        try:
            executed, differences = kernel.compare(launch, number, most)
        except CountperfError as error:
            yield [*row, REFUSED, "", "", str(error)]
        except TooManyStepsError:
            yield [*row, NOT_STEPPED, "", "", TOO_LARGE]
            return
        except SteppingError as error:
            yield [*row, NOT_STEPPED, "", "", str(error)]
        else:
            detail = "; ".join(
                f"{each.address:#x} {each.text}: {each.native}, followed {each.followed}"
                for each in differences[:3]
            )
            verdict = DIFFERENT if differences else EQUAL
            yield [*row, verdict, str(executed), str(len(differences)), detail]


def summary(rows: Sequence[Row]) -> list[Row]:
    """Return a row for each kernel and size: groups, instructions, and the worst verdict."""
    worst = (DIFFERENT, REFUSED, NOT_STEPPED, EQUAL)
    found: list[Row] = [["kernel", "sizes", "groups", "executed", "verdict"]]
    for (name, sizes), some in groupby(rows, key=lambda row: (row[0], row[1])):
        groups = list(some)
        verdict = min((row[4] for row in groups), key=worst.index)
        reason = next((row[7] for row in groups if row[4] == verdict and row[7]), "")
        executed = sum(int(row[5] or 0) for row in groups)
        text = f"{verdict}: {reason}" if reason else verdict
        found.append([name, sizes, str(len(groups)), str(executed), text])
    return found


def write(path: Path, rows: Sequence[Sequence[str]]) -> None:
    """Write a table."""
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


def read(path: Path) -> list[Row]:
    """Read a table without its heading; an empty one if there is no file."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))[1:]


def main() -> int:
    """Compare; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernels", type=int, default=340)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="pocl:0")
    parser.add_argument("--most-steps", type=int, default=300_000, help="of a group")
    parser.add_argument("--out", type=Path, default=Path("native-stepping.csv"))
    parser.add_argument("--summary", type=Path, help="table by kernel and size")
    options = parser.parse_args()
    device = find_device(options.device)
    rows = read(options.out)
    done = {row[0] for row in rows}
    waiting = [e for e in chosen(options.kernels, options.seed) if e.name not in done]
    for start in range(0, len(waiting), BATCH):
        some = waiting[start : start + BATCH]
        with tempfile.TemporaryDirectory() as folder:
            units = [(each.build(), each.check_parameters) for each in some]
            made = compiled_for_stepping(units, device, Path(folder))
            for each, kernel in zip(some, made, strict=True):
                if isinstance(kernel, str):
                    rows.append([each.name, "", "", "", NOT_STEPPED, "", "", kernel])
                else:
                    rows += rows_of_kernel(each, kernel, options.most_steps)
        write(options.out, [COLUMNS, *rows])
        print(f"{start + len(some)} of {len(waiting)} kernels", file=sys.stderr, flush=True)
    if options.summary:
        write(options.summary, summary(rows))
    verdicts = Counter(row[4] for row in rows)
    print(", ".join(f"{count} groups {verdict}" for verdict, count in sorted(verdicts.items())))
    cases = [row for row in summary(rows)[1:] if row[4] == EQUAL]
    both = sum(count == SIZES for count in Counter(row[0] for row in cases).values())
    print(f"kernels equal at {SIZES} sizes: {both}")
    print(f"kernels with a difference: {len({row[0] for row in rows if row[4] == DIFFERENT})}")
    return 1 if verdicts[DIFFERENT] else 0


if __name__ == "__main__":
    sys.exit(main())
