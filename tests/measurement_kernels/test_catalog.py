from __future__ import annotations

import subprocess
import sys
from collections import Counter
from typing import Any

import pytest

from countperf.errors import KernelSpecificationError
from measurement_kernels.catalog import entries, entry, families
from measurement_kernels.entry import Collection

MEASURED = {
    "matmul-tiled": 4 * 5,
    "matmul-naive": 5,
    "vector-scale-add": 3 * 6,
    "transpose": 3 * 5,
    "stride1": 3 * 6,
    "stride2-filled": 2 * 6,
    "stride3-filled": 2 * 6,
    "arithmetic": 5 * 3 * 5,
    "empty": 5,
}
APPLICATIONS = (
    *("gemm", "2mm", "syrk", "trmm", "covariance", "batched-gemm", "atax", "mvt", "gesummv"),
    *("jacobi-2d", "heat-3d", "fdtd-2d", "conv2d", "dg-derivative", "spmv"),
)
TESTS = ("finite-differences", "matmul-skinny", "convolution", "n-body")


def test_listings_are_those_of_the_paper() -> None:
    listed = entries()
    assert Counter(e.family for e in listed) == MEASURED
    assert {(e.element_type, e.purpose) for e in listed} == {("f32", "measurement")}
    groups = ("16x16", "16x16", "16x16", "256x1")
    assert [e.name for e in entries(purpose="test")] == [
        f"{family}/{group}/f32" for family, group in zip(TESTS, groups, strict=True)
    ]
    assert families() == tuple(MEASURED)
    assert families(purpose="test") == TESTS
    assert families(purpose="application") == APPLICATIONS
    assert families(purpose=None) == (*MEASURED, *TESTS, *APPLICATIONS)


APART: list[tuple[dict[str, Any], dict[str, int]]] = [
    ({"collection": "downstream"}, {"downstream-one-group": 18, "downstream-groups": 16}),
    (
        {"collection": "published"},
        {
            "published-matmul": 24,
            "published-matrix-sum": 8,
            "published-vector-add": 3,
            "published-dot-product": 3,
            "published-coulomb": 10,
            "published-rodinia": 14,
            "published-merge": 8,
            "published-apsp": 2,
            "published-saxpy2": 2,
        },
    ),
    (
        {"purpose": "variant"},
        {
            "variants-matmul": 40,
            "variants-stencil": 24,
            "variants-dg-differentiation": 16,
            "variants-transpose": 12,
            "variants-convolution": 12,
        },
    ),
]


def test_names_are_unique_and_resolve_to_themselves_and_collections_are_listed_apart() -> None:
    every: dict[str, Any] = {"element_type": None, "purpose": None, "collection": None}
    everything = entries(**every)
    for asked, numbers in APART:
        found = entries(**{**every, **asked})
        assert Counter(e.family for e in found) == numbers
        assert {*families(**{"purpose": None, **asked})} == {*numbers}
        assert not {*numbers} & {e.family for e in everything}
        everything += found
    assert len({e.name for e in everything}) == len(everything)
    assert all(entry(e.name) is e for e in everything)
    assert entries(collection="downstream") == ()  # none is measured for fits
    assert {e.collection for e in entries(purpose=None)} == {"paper"}


@pytest.mark.parametrize(("collection", "least"), [("random", 1300), ("extended", 500)])
def test_collections_have_both_types_and_no_tests(collection: Collection, least: int) -> None:
    found = entries(collection=collection, element_type=None)
    assert len(found) >= least
    assert {entry.element_type for entry in found} == {"f32", "f64"}
    assert {*families(collection=collection)} == {entry.family for entry in found}
    assert entries(collection=collection, purpose="test") == ()


def test_filters_combine() -> None:
    (tiled,) = entries(family="transpose", variant="tiled", group_shape=(16, 12))
    assert tiled.name == "transpose/tiled/16x12/f32"
    assert entries(family="transpose", group_shape=(256, 1)) == ()
    one = entries(collection="published", family="published-matmul", group_shape=(12, 12))
    assert {each.variant for each in one} == {"tiled", "tiled-swapped"}
    with pytest.raises(KernelSpecificationError, match="did you mean transpose"):
        entries(family="transposed")


@pytest.mark.parametrize(
    ("shorthand", "name"),
    [
        ("n-body", "n-body/256x1/f32"),
        ("transpose/tiled/16x12", "transpose/tiled/16x12/f32"),
        ("matmul-naive/24x16", "matmul-naive/24x16/f32"),
        ("matmul-naive/24x16/f64", "matmul-naive/24x16/f64"),
        ("add-k256/16x12", "arithmetic/add-k256/16x12/f32"),
    ],
)
def test_shorthands(shorthand: str, name: str) -> None:
    assert entry(shorthand).name == name


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nbody", "no kernel is called 'nbody'; did you mean n-body"),
        ("transpose/tild/16x12/f32", "did you mean transpose/tiled/16x12/f32"),
        ("published-matmull/tiled/16x16/f32", "did you mean published-"),
        ("zzz", "there are the families matmul-tiled, matmul-naive, "),
        ("transpose/tiled", "could be any of 5 kernels; add parts of its name: transpose/tiled/16"),
        ("matmul-naive", "could be any of 5 kernels"),
    ],
)
def test_unknown_and_ambiguous_names(name: str, message: str) -> None:
    with pytest.raises(KernelSpecificationError, match=message):
        entry(name)


@pytest.mark.parametrize(
    "code", ["import countperf", "import countperf.cli as c; c.parser().format_help()"]
)
def test_the_catalogue_is_imported_only_when_it_is_used(code: str) -> None:
    code = f"{code}; import sys; assert not {{'measurement_kernels', 'loopy'}} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
