"""Formulas of executed instructions against following the code at sizes that they never saw.

``python scripts/check_code_formulas.py [--device DEVICE] [--kernels N] [--sizes N] [--seed N]``

Of kernels of the catalogue, each of another class where there are enough, formulas are found
(`countperf.harness.compile.code_formulas`), and the code is followed at other sizes for which they
say that they hold. Every class of instructions has to be equal; cycles and misses may differ by
rounding, and by blocks that take less than 0.02 %. Prints a line for each kernel and a summary.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Mapping
from typing import Any

from countperf.errors import CountperfError
from countperf.harness.compile.code_formulas import CodeFormulas, code_formulas
from countperf.harness.compile.compiled_kernel import CompiledKernel, read_compiled
from countperf.harness.devices import find_device
from countperf.properties.count_properties import count_kernel
from measurement_kernels.catalog import entries
from measurement_kernels.entry import CatalogEntry

_TRIES = 400


def chosen(number: int, seed: int) -> list[CatalogEntry]:
    """Return kernels at random, one of each class before a second one of any."""
    draw = random.Random(seed)
    classes: dict[str, list[CatalogEntry]] = {}
    for each in entries(element_type=None, purpose=None, collection=None):
        classes.setdefault(each.name.split("/")[0], []).append(each)
    order = [draw.sample(some, len(some)) for _, some in sorted(classes.items())]
    draw.shuffle(order)
    found: list[CatalogEntry] = []
    for rank in range(max(map(len, order))):
        found += [some[rank] for some in order if rank < len(some)]
    return found[:number]


def unseen(found: CodeFormulas, number: int, seed: int) -> list[dict[str, int]]:
    """Return sizes for which formulas hold, drawn from their domain."""
    formulas, draw = found.formulas, random.Random(seed)
    sizes: list[dict[str, int]] = []
    for _ in range(_TRIES):
        drawn = {
            name: low + modulus * draw.randint(0, (high - low) // modulus) if modulus else low
            for name, modulus, low, high in zip(
                formulas.names, formulas.moduli, formulas.low, formulas.high, strict=True
            )
        }
        try:
            found.vector.checked_parameters(drawn, {})
        except CountperfError:
            continue
        if drawn not in sizes:
            sizes.append(drawn)
        if len(sizes) == number:
            break
    return sizes


def differences(
    found: CodeFormulas, compiled: CompiledKernel, sizes: Mapping[str, int], statistics: Any
) -> tuple[list[str], float]:
    """Return classes of instructions that differ, and the largest share by which cycles do."""
    values = found.vector.evaluate(sizes)
    followed = compiled.counts(found.vector.checked_parameters(sizes, {}), statistics)
    said = {name: number for name, number in values.items() if name.startswith("code.")}
    wrong, share = [], 0.0
    for name in sorted({*said, *(n for n in followed if n.startswith("code."))}):
        one, other = said.get(name, 0), followed.get(name, 0)
        if name.startswith("code.cycles"):
            share = max(share, abs(float(one) - other) / max(other, followed["code.cycles"] / 100))
        elif one != other:
            wrong.append(f"{name} {one} instead of {other}")
    return wrong, share


def checked(each: CatalogEntry, options: argparse.Namespace) -> tuple[str, bool, int, float]:
    """Return what is printed, whether there is a formula, differing sizes, and cycles' share."""
    unit = each.build()
    case = each.case(each.exponents[len(each.exponents) // 2] + each.exponent_steps[0])
    example = dict(case.parameters)
    statistics = each.statistics_at(example)
    (compiled,) = read_compiled([(unit, example)], find_device(options.device))
    began_s = time.process_time()
    try:
        if not isinstance(compiled, CompiledKernel):
            raise compiled
        vector = count_kernel(unit, view="structure", statistics=statistics)
        found = code_formulas(compiled, vector, example, statistics)
    except CountperfError as error:
        spent_s = time.process_time() - began_s
        return f"no formula, {spent_s:.1f} s: {' '.join(str(error).split())[:150]}", False, 0, 0.0
    spent_s = time.process_time() - began_s
    wrong_sizes, largest = 0, 0.0
    said = ""
    for sizes in unseen(found, options.sizes, options.seed):
        try:
            wrong, share = differences(found, compiled, sizes, statistics)
        except CountperfError as error:
            wrong, share = [str(error)[:80]], 0.0
        largest = max(largest, share)
        if wrong:
            wrong_sizes += 1
            said = f"; wrong at {sizes}: {', '.join(wrong[:3])}"
    formulas = found.formulas
    text = f"{formulas.followed} sizes, {spent_s:.1f} s, {formulas.domain()}"
    return f"{text}; cycles within {100 * largest:.3f} %{said}", True, wrong_sizes, largest


def main() -> None:
    """Check, print each kernel and a summary."""
    command = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    command.add_argument("--device", default="pocl:0")
    command.add_argument("--kernels", type=int, default=60)
    command.add_argument("--sizes", type=int, default=4, help="unseen, of each kernel")
    command.add_argument("--seed", type=int, default=1)
    options = command.parse_args()
    with_formula = wrong = 0
    largest = 0.0
    kernels = chosen(options.kernels, options.seed)
    for each in kernels:
        text, is_found, wrong_sizes, share = checked(each, options)
        with_formula += is_found
        wrong += wrong_sizes
        largest = max(largest, share)
        print(f"{each.name}: {text}", flush=True)
    print(
        f"{with_formula} of {len(kernels)} kernels have formulas; {wrong} of"
        f" {with_formula * options.sizes} unseen sizes differ; cycles within {100 * largest:.2f} %"
    )


if __name__ == "__main__":
    main()
