"""All kernels: list them, filter them, find one by name."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from countperf.errors import KernelSpecificationError, nearest
from countperf.measuring import Purpose
from measurement_kernels import paper, paper_tests
from measurement_kernels.entry import VARIANTS_PREFIX, CatalogEntry, Collection
from measurement_kernels.groups import GroupShape

__all__ = ["APART", "CatalogEntry", "entries", "entry", "families"]

APART: tuple[Collection, ...] = ("published", "downstream")
"""Collections that are listed only by their names; families begin with these."""


def _by_name(listed: Iterable[CatalogEntry]) -> dict[str, CatalogEntry]:
    return {each.name: each for each in listed}


@cache
def _paper() -> dict[str, CatalogEntry]:
    """Return the paper's kernels, which are looked up without importing the others."""
    return _by_name(e for k in (*paper.KERNELS, *paper_tests.KERNELS) for e in k.entries())


@cache
def _measured() -> dict[str, CatalogEntry]:
    """Return the measurement kernels that somebody wrote, without thousands that were drawn."""
    from measurement_kernels import extended

    return _paper() | _by_name(extended.entries())


@cache
def _everything() -> dict[str, CatalogEntry]:
    from measurement_kernels import applications, random_shapes

    return _measured() | _by_name([*random_shapes.entries(), *applications.entries()])


@cache
def _variants() -> dict[str, CatalogEntry]:
    from measurement_kernels.variants import sets

    return _by_name(e for family in sets.variant_sets() for e in sets.variant_entries(family))


@cache
def _apart(collection: Collection) -> dict[str, CatalogEntry]:
    from measurement_kernels import downstream, published

    return _by_name((published if collection == "published" else downstream).entries())


def _kernels(purpose: Purpose | None, collection: Collection | None) -> dict[str, CatalogEntry]:
    if collection in APART:
        return _apart(collection)
    return _variants() if purpose == "variant" else _everything()


def _named(name: str) -> dict[str, CatalogEntry]:
    """Return the kernels among which a name is looked up: the fewest that have its family."""
    family = name.partition("/")[0]
    for some in (_paper, _measured):
        if any(each.family == family for each in some().values()):
            return some()
    if name.startswith(VARIANTS_PREFIX):
        return _variants()
    apart = next((each for each in APART if name.startswith(f"{each}-")), None)
    return _apart(apart) if apart else _everything()


def families(
    *, purpose: Purpose | None = "measurement", collection: Collection | None = "paper"
) -> tuple[str, ...]:
    """List the families of kernels, the paper's first and in its order."""
    kernels = _kernels(purpose, collection).values()
    found = (e for e in kernels if purpose in (None, e.purpose))
    return tuple(dict.fromkeys(e.family for e in found if collection in (None, e.collection)))


def entries(
    *,
    family: str | None = None,
    variant: str | None = None,
    group_shape: GroupShape | None = None,
    element_type: str | None = "f32",
    purpose: Purpose | None = "measurement",
    collection: Collection | None = "paper",
) -> tuple[CatalogEntry, ...]:
    """List entries; by default the paper's measurement kernels in all shapes of work groups."""
    listed = collection if collection in APART else None
    known = families(purpose="variant" if purpose == "variant" else None, collection=listed)
    if family is not None and family not in known:
        raise _unknown("family of kernels", family, known)
    return tuple(
        each
        for each in _kernels(purpose, collection).values()
        if family in (None, each.family)
        and variant in (None, each.variant)
        and group_shape in (None, each.group_shape)
        and element_type in (None, each.element_type)
        and purpose in (None, each.purpose)
        and collection in (None, each.collection)
    )


def entry(name: str) -> CatalogEntry:
    """Find a kernel by its name."""
    everything = _named(name)
    if name in everything:
        return everything[name]
    parts = name.split("/")
    meant = [full for full in everything if _is_subsequence(parts, full.split("/"))]
    if len(meant) > 1:
        meant = [full for full in meant if everything[full].element_type == "f32"] or meant
    if not meant:
        raise _unknown("kernel", name, [*families(purpose=None, collection=None), *everything])
    if len(meant) > 1:
        some = ", ".join([*meant[:5], *(["..."] if len(meant) > 5 else [])])
        said = f"{name!r} could be any of {len(meant)} kernels; add parts of its name: {some}"
        raise KernelSpecificationError(said)
    return everything[meant[0]]


def _is_subsequence(parts: list[str], full: list[str]) -> bool:
    remaining = iter(full)
    return all(part in remaining for part in parts)


def _unknown(what: str, name: str, known: Iterable[str]) -> KernelSpecificationError:
    there = f"; there are the families {', '.join(families(purpose=None, collection=None))}"
    mend = nearest(name, known, most=3) or there
    return KernelSpecificationError(f"no {what} is called {name!r}{mend}")
