"""Statistics that a kernel needs of its data, all in one error."""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import loopy as lp
import pymbolic.primitives as p
from loopy.symbolic import get_dependencies

from countperf.counting.accesses import address_of
from countperf.counting.domains import Domains
from countperf.counting.expression_types import text_of
from countperf.counting.keys import MemoryAccess
from countperf.counting.operations.compiled_view import instruction_counter
from countperf.counting.operations.scalars import InstructionCounter
from countperf.counting.statistics import Statistics
from countperf.errors import CountingError, DataDependentControlFlowError
from countperf.symbolic.quasipolynomial import QuasiPolynomial

_TRIPS = 12.5
_PROBABILITY = 0.5


@dataclass(slots=True)
class _Needs:
    """Loops, conditions and arrays without a statistic, each with its key."""

    # from a loop to the variables that decide its trip count
    loops: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    # from a statistic's name to the text of a condition and the instructions that test it
    conditions: dict[str, tuple[str, list[str]]] = field(
        default_factory=dict[str, tuple[str, list[str]]]
    )
    # names of conditions that sizes and loop variables decide, though not as affine ones
    not_affine: set[str] = field(default_factory=set[str])
    arrays: list[str] = field(default_factory=list[str])  # arrays at addresses that data decides


@contextmanager
def stating_all_needs(domains: Domains, *, supplied: Collection[str] = ()) -> Generator[None]:
    """Have a refusal for what data decides name everything of the kernel that lacks a statistic."""
    try:
        yield
    except DataDependentControlFlowError as error:
        ids = [i.id for i in domains.kernel.instructions]
        needs = _lacking(domains, ids, supplied)
        if not needs.loops and not needs.conditions:
            raise
        raise _error(domains, needs) from error


def check_statistics(domains: Domains, *, supplied: Collection[str] = ()) -> None:
    """Refuse statistics that were not used and would not be by any count of the kernel."""
    given = domains.statistics
    if not given.unused():
        return
    given.taken.update(name for name in given.numbers if name in domains.data_loops)
    needs = _lacking(domains, list(domains.kernel.id_to_insn), supplied)
    for name in given.unused():
        decided = {
            "loops": needs.loops,
            "conditions": [text for text, _ in needs.conditions.values()],
            "addresses in": needs.arrays,
        }
        left = "; ".join(
            f"{kind} {', '.join(dict.fromkeys(names))}" for kind, names in decided.items() if names
        )
        raise given.error(
            f"the statistic for '{name}' says nothing of what data decides and no other statistic"
            f" says ({left or 'nothing is left'}); name one of these, or leave it out"
        )


# --- gathering


def _lacking(domains: Domains, ids: Collection[str], supplied: Collection[str]) -> _Needs:
    """Gather what lacks a statistic in some instructions."""
    kernel, given = domains.kernel, domains.statistics
    used = frozenset[str]().union(*(kernel.id_to_insn[i].within_inames for i in ids))
    needs = _Needs()
    for name, loop in domains.data_loops.items():
        if name in used and loop.trips is None and name not in given.numbers:
            needs.loops[name] = loop.reads
    with given.noting_what_lacks() as noted:
        counter = instruction_counter(domains)
        for i in ids:
            instruction = kernel.id_to_insn[i]
            domains.predicate_conditions(instruction)
            if i in supplied or not isinstance(instruction, lp.MultiAssignmentBase):
                continue
            _note_arrays(domains, counter, instruction, needs)
    for (text, instruction_id), condition in noted.items():
        name = _name_of(condition, text, instruction_id, given)
        _, ids_there = needs.conditions.setdefault(name, (text, []))
        ids_there.append(instruction_id)
        known = (domains.inames | domains.sizes).difference(domains.data_loops)
        if get_dependencies(condition) <= known:
            needs.not_affine.add(name)
    return needs


def _note_arrays(
    domains: Domains, counter: InstructionCounter, instruction: Any, needs: _Needs
) -> None:
    keys: list[Any] = []
    for tally in (counter.tally_predicates, counter.tally):
        try:
            keys += [key for key, _ in tally(instruction)]
        except CountingError:
            continue  # refused for what it is, whatever is known of the data
    for key in keys:
        if not isinstance(key, MemoryAccess) or key.address_space != "global":
            continue
        if (
            key.array not in needs.arrays
            and _takes_pattern(key, instruction.within_inames, domains)
            and domains.statistics.pattern_of(key.array, key.text) is None
        ):
            needs.arrays.append(key.array)


def _takes_pattern(access: MemoryAccess, within: frozenset[str], domains: Domains) -> bool:
    """Return whether an address, or the lines that strided accesses share, depend on data."""
    address = address_of(access, domains.layout_of(access), domains.to_polynomial)
    if address is None:
        return True
    flat = address.flat
    if not flat.names() & domains.data_loops.keys():
        return False
    for name in within:
        if domains.local_axes.get(name) == 0:
            step = flat.substitute({name: QuasiPolynomial.name(name) + 1}) - flat
            return not step.is_constant or abs(step.constant_term) not in (0, 1)
    return False


def _name_of(condition: Any, text: str, instruction_id: str, given: Statistics) -> str:
    """Return the name of a condition in statistics: its text, of a negated one the other's."""
    while isinstance(condition, p.LogicalNot):
        condition = condition.child
    text = text_of(condition)
    return instruction_id if text in given.inames or text == type(condition).__name__ else text


# --- the error


def _error(domains: Domains, needs: _Needs) -> DataDependentControlFlowError:
    kernel = domains.kernel
    parts: list[str] = []
    statistics: dict[str, Any] = {}
    fixed: list[str] = []
    for name, reads in needs.loops.items():
        parts.append(f"the trip count of the loop '{name}' (its bounds read {', '.join(reads)})")
        statistics[name] = _typical_trips(domains, name)
    for name, (text, ids) in needs.conditions.items():
        where = ", ".join(f"'{i}'" for i in dict.fromkeys(ids))
        kind = fixed if name in needs.not_affine else parts
        kind.append(f"whether {text} holds (in {where})")
        statistics[name] = _PROBABILITY
    for array in needs.arrays:
        parts.append(f"the addresses in '{array}' ('indirect' unless another pattern is given)")
        statistics[array] = "indirect"
    where = [*needs.loops, *(ids[0] for _, ids in needs.conditions.values())]
    reasons = [f"data decides {_join_needs(parts)}"] if parts else []
    if fixed:
        reasons.append(f"sizes decide {_join_needs(fixed)}, but by no affine condition")
    return DataDependentControlFlowError(
        f"kernel '{kernel.name}': {'; '.join(reasons)}; pass {_asked(needs)}, such as "
        f"statistics={statistics!r}",
        statistics=statistics,
    )


def _typical_trips(domains: Domains, name: str) -> float:
    low, high = domains.value_bounds(name)
    if low is None or high is None:
        return _TRIPS
    return min(_TRIPS, (high - low + 1) / 2)


def _asked(needs: _Needs) -> str:
    asked: Mapping[str, Collection[str]] = {
        "the mean trip count of each loop": needs.loops,
        "the probability of each condition": needs.conditions,
        "the access pattern of each array": needs.arrays,
    }
    return _join_needs([text for text, some in asked.items() if some])


def _join_needs(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
