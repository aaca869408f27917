"""Simulations per second of the pipeline simulator, beside the rate that its paper states.

The mix: the example kernel, the instruction mix (beta = 4, 256 repetitions, with and without an
issue limit) and the barrier kernel, each at occupancies 1 to 64, round robin. The barrier kernel is
one group of that many sub-groups; the others are groups of one. Compilation is excluded. Every
result is compared between the engines, and at some occupancies, start by start, with the plain
reference of the tests, which takes minutes at the high ones.
"""

from __future__ import annotations

import time
from dataclasses import replace

from countperf.hardware.parameters import InstructionClass, InstructionKind
from countperf.mechanistic.profile import InstructionGraph
from countperf.mechanistic.simulation import Engine, Simulation, Workload, simulate
from countperf.mechanistic.simulation_core import compiled_core
from tests.oracles.pipeline import reference

PAPER = 678 / 180  # "678 experiments in about 3 minutes", Lemeire et al.
WANTED = 25 * PAPER
CHECKED = (1, 2, 7, 12)


def cost(
    name: str, subsystem: str, cpi: float, latency: float, kind: InstructionKind
) -> InstructionClass:
    """Return the costs of a class."""
    return InstructionClass(name=name, subsystem=subsystem, cpi=cpi, latency=latency, kind=kind)


EXAMPLE = Workload(
    programs=(InstructionGraph("CCMCCM", [(0, 1), (1, 2), (2, 3), (2, 4), (3, 5), (4, 5)]),),
    classes={
        "C": cost("C", "compute", 1, 4, "compute"),
        "M": cost("M", "memory", 2, 6, "memory"),
    },
)
MIX = Workload(
    programs=(InstructionGraph.chain((["1"] * 4 + ["2"]) * 256),),
    classes={"1": cost("1", "alu", 1, 4, "compute"), "2": cost("2", "sfu", 4, 8, "compute")},
)
BARRIER = Workload(
    programs=(InstructionGraph.chain(["I", "B"] * 30),),
    classes={
        "I": cost("I", "alu", 1, 18, "compute"),
        "B": cost("B", "barrier", 2, 40, "barrier"),
    },
)


def workloads() -> dict[str, list[Workload]]:
    """Return what is simulated: by kernel, at occupancies 1 to 64."""
    occupancies = range(1, 65)
    return {
        "example": [replace(EXAMPLE, concurrent_groups=n) for n in occupancies],
        "mix": [replace(MIX, concurrent_groups=n) for n in occupancies],
        "mix, issue limit": [replace(MIX, concurrent_groups=n, issue_limit=1) for n in occupancies],
        "barrier": [replace(BARRIER, sub_groups_per_group=n) for n in occupancies],
    }


def timed(engine: Engine) -> dict[str, list[Simulation]]:
    """Simulate all with one engine, print the rates and return the results."""
    found: dict[str, list[Simulation]] = {}
    seconds = 0.0
    print(f"engine {engine}:")
    for name, cases in workloads().items():
        start = time.perf_counter()
        found[name] = [simulate(case, engine=engine) for case in cases]
        passed = time.perf_counter() - start
        seconds += passed
        print(f"  {name:18s}{len(cases) / passed:10.1f} simulations/s")
    rate = sum(map(len, found.values())) / seconds
    print(
        f"  {'all':18s}{rate:10.1f} simulations/s, {rate / PAPER:.0f} times the paper's"
        f" {PAPER:.2f} (aim: {WANTED:.1f})"
    )
    return found


def check_against_reference(engine: Engine) -> int:
    """Compare every start at some occupancies; return the number of starts compared."""
    compared = 0
    for name, cases in workloads().items():
        for occupancy in CHECKED:
            case = cases[occupancy - 1]
            end, starts = reference(case)
            found = simulate(case, record=True, engine=engine)
            same = found.cycles == float(end) and [issue[:5] for issue in found.issues] == [
                (float(at), *rest) for at, *rest in starts
            ]
            if not same:
                raise SystemExit(f"{engine}, {name} at {occupancy}: not what the reference says")
            compared += len(starts)
    return compared


def main() -> None:
    """Print rates and comparisons."""
    engines: list[Engine] = ["python"]
    if compiled_core() is None:
        print("Numba is not installed (countperf[fast]): no compiled engine")
    else:
        engines.append("compiled")
        start = time.perf_counter()
        simulate(EXAMPLE, engine="compiled")
        print(f"compiling, or loading what was compiled: {time.perf_counter() - start:.2f} s")
    results = [timed(engine) for engine in engines]
    if any(result != results[0] for result in results):
        raise SystemExit("the engines differ")
    print(f"engines agree on all {sum(map(len, results[0].values()))} simulations")
    for engine in engines:
        compared = check_against_reference(engine)
        print(f"{engine}: {compared} starts at occupancies {CHECKED} are those of the reference")


if __name__ == "__main__":
    main()
