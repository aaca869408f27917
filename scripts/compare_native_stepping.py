"""Compare what following compiled code counts with single steps of the processor, for many kernels.

Kernels of the catalogue, one of each family and variant in an order that the seed decides, are
compiled with PoCL; of each launch at the sizes for checks and at twice these, a group in the middle
and the last one are stepped through (``tests/oracles/native_stepping.py``). A table with a row for
each group is written: instructions executed, how many of them are counted otherwise, and the first
of these, or why there is no comparison. Kernels that are in the table already are left out, so that
a run may be stopped and continued. Exits with 1 if anything differs.
"""

from __future__ import annotations

import argparse
import csv
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from countperf.errors import CountperfError
from countperf.harness.devices import find_device
from measurement_kernels.catalog import entries
from measurement_kernels.entry import CatalogEntry
from tests.oracles.native_stepping import Steppable, SteppingError, compiled_for_stepping

BATCH = 10
COLUMNS = ("kernel", "sizes", "launch", "group", "verdict", "executed", "differing", "detail")
EQUAL, DIFFERENT, REFUSED, NOT_STEPPED = "equal", "different", "refused", "not stepped"


def chosen(number: int, seed: int) -> list[CatalogEntry]:
    """Return one entry of each family and variant, so many of them."""
    first: dict[tuple[str, str], CatalogEntry] = {}
    for each in entries(purpose=None, collection=None, element_type=None):
        first.setdefault((each.family, each.variant), each)
    found = [*first.values(), *entries(purpose="variant", collection=None, element_type=None)]
    random.Random(seed).shuffle(found)
    return found[:number]


def rows_of(
    name: str, kernel: Steppable, sizes: Mapping[str, int], most: int
) -> Iterator[list[str]]:
    """Compare groups at some sizes; yield a row for each."""
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
        except SteppingError as error:
            yield [*row, NOT_STEPPED, "", "", str(error)]
        else:
            detail = "; ".join(
                f"{each.address:#x} {each.text}: {each.native}, followed {each.followed}"
                for each in differences[:3]
            )
            verdict = DIFFERENT if differences else EQUAL
            yield [*row, verdict, str(executed), str(len(differences)), detail]


def main() -> int:
    """Compare; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernels", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="pocl:0")
    parser.add_argument("--most-steps", type=int, default=300_000, help="of a group")
    parser.add_argument("--out", type=Path, default=Path("native-stepping.csv"))
    options = parser.parse_args()
    device = find_device(options.device)
    rows: list[list[str]] = []
    if options.out.exists():
        with options.out.open(encoding="utf-8") as file:
            rows = list(csv.reader(file))[1:]
    done = {row[0] for row in rows}
    waiting = [e for e in chosen(options.kernels, options.seed) if e.name not in done]
    for start in range(0, len(waiting), BATCH):
        some = waiting[start : start + BATCH]
        with tempfile.TemporaryDirectory() as folder:
            units = [(each.build(), each.check_parameters) for each in some]
            for each, kernel in zip(
                some, compiled_for_stepping(units, device, Path(folder)), strict=True
            ):
                if isinstance(kernel, str):
                    rows.append([each.name, "", "", "", NOT_STEPPED, "", "", kernel])
                    continue
                for factor in (1, 2):
                    sizes = {n: factor * size for n, size in each.check_parameters.items()}
                    rows += rows_of(each.name, kernel, sizes, options.most_steps)
        with options.out.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([COLUMNS, *rows])
        print(f"{start + len(some)} of {len(waiting)} kernels", file=sys.stderr, flush=True)
    verdicts = Counter(row[4] for row in rows)
    print(", ".join(f"{count} groups {verdict}" for verdict, count in sorted(verdicts.items())))
    print(f"kernels with a difference: {len({row[0] for row in rows if row[4] == DIFFERENT})}")
    return 1 if verdicts[DIFFERENT] else 0


if __name__ == "__main__":
    sys.exit(main())
