from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter

import pytest

from countperf.errors import KernelSpecificationError, ParameterError
from measurement_kernels import extended
from measurement_kernels.catalog import entries, entry, families

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
RANDOM = {
    "random-matmul": 150,
    "random-stencil": 140,
    "random-elementwise": 70,
    "random-item-loop": 70,
    "random-channel-filter": 80,
    "random-arithmetic": 55,
    "random-transpose": 70,
    "random-small-operator": 70,
    "random-interaction": 80,
    "random-integer": 55,
    "random-guarded": 80,
    "random-even-sizes": 64,
    "random-gather": 48,
    "random-scatter": 48,
}
BLOCKED = {
    "blocked-matmul": 50,
    "blocked-stencil": 50,
    "blocked-filter": 50,
    "blocked-transpose": 40,
    "blocked-operator": 40,
    "blocked-even-sizes": 44,
}
APPLICATIONS = (
    "gemm",
    "2mm",
    "syrk",
    "trmm",
    "covariance",
    "batched-gemm",
    "atax",
    "mvt",
    "gesummv",
    "jacobi-2d",
    "heat-3d",
    "fdtd-2d",
    "conv2d",
    "dg-derivative",
    "spmv",
)
EXTENDED = {
    "independent-chains": 20,
    "chains-behind-barriers": 6,
    "kept-results": 49,
    "results-in-loops": 42,
    "short-launches": 15,
    "halo-tile": 22,
    "group-shapes": 20,
    "guards": 36,
    "item-loops": 14,
    "working-set": 8,
    "walks-in-loops": 14,
    "rows-in-loops": 20,
    "walks-of-lanes": 14,
    "shared-lines": 84,
    "gathers": 6,
    "gathers-in-loops": 8,
    "scatters": 4,
    "scatters-in-loops": 8,
    "uneven-rows": 12,
    "strided-access": 10,
    "local-access": 13,
    "precision": 8,
    "integer": 8,
    "group-reduction": 8,
    "function-maps": 36,
    "function-loops": 52,
    "one-group": 24,
    "element-einsums": 14,
    "register-blocks": 12,
    "around-caches": 4,
}
TESTS = ("finite-differences", "matmul-skinny", "convolution", "n-body")


def test_default_listing_is_the_papers_measurement_kernels() -> None:
    listed = entries()
    assert Counter(e.family for e in listed) == MEASURED
    assert {(e.element_type, e.purpose) for e in listed} == {("f32", "measurement")}


def test_test_kernels_are_listed_apart() -> None:
    names = [e.name for e in entries(purpose="test")]
    assert names == [
        "finite-differences/16x16/f32",
        "matmul-skinny/16x16/f32",
        "convolution/16x16/f32",
        "n-body/256x1/f32",
    ]


def test_double_precision_only_on_request() -> None:
    doubles = Counter(e.family for e in entries(element_type="f64", purpose=None))
    wanted = {"matmul-tiled", "matmul-naive", "stride1", "arithmetic"}
    applications = {"syrk": 1, "heat-3d": 1}
    assert doubles == {family: MEASURED[family] for family in wanted} | applications


def test_names_are_unique_and_resolve_to_themselves() -> None:
    everything = entries(element_type=None, purpose=None, collection=None)
    assert len({e.name for e in everything}) == len(everything)
    assert all(entry(e.name) is e for e in everything)


def test_families_in_the_papers_order() -> None:
    assert families() == tuple(MEASURED)
    assert families(purpose="test") == TESTS
    assert families(purpose="application") == APPLICATIONS
    assert families(purpose=None) == (*MEASURED, *TESTS, *APPLICATIONS)


def test_applications_are_apart_in_any_element_type() -> None:
    found = entries(purpose="application", element_type=None)
    assert {e.family for e in found} == set(APPLICATIONS)
    assert {e.purpose for e in found} == {"application"}
    assert all(len(e.exponent_steps) == 4 for e in found)


def test_collections_are_listed_apart() -> None:
    random = entries(collection="random")
    assert Counter(e.family for e in random) == RANDOM | BLOCKED
    doubles = Counter(e.family for e in entries(collection="random", element_type="f64"))
    assert set(doubles) == {*RANDOM} - {"random-integer"}
    assert min(doubles.values()) >= 8
    assert set(families(collection="random")) == {*RANDOM, *BLOCKED}
    listed = families(collection="random")
    assert tuple(family for family in listed if family in RANDOM) == tuple(RANDOM)
    extended = entries(collection="extended", element_type=None)
    assert Counter(e.family for e in extended) == EXTENDED
    assert set(families(collection="extended")) == set(EXTENDED)
    assert entries(collection="random", purpose="test") == ()
    assert {e.collection for e in entries(purpose=None)} == {"paper"}


def test_the_table_of_the_extended_collection_has_all_its_families() -> None:
    table = extended.__doc__ or ""
    listed = re.findall(r"^``([a-z0-9-]+)``", table, re.MULTILINE)

    found = {each.family for each in entries(element_type=None, collection="extended")}

    assert sorted(listed) == sorted(found)


def test_filters_combine() -> None:
    found = entries(family="transpose", variant="tiled", group_shape=(16, 12))
    assert [e.name for e in found] == ["transpose/tiled/16x12/f32"]
    assert entries(family="transpose", group_shape=(256, 1)) == ()


def test_size_class_selects_its_three_shapes() -> None:
    shapes = {e.group_shape for e in entries(size_class="medium")}
    assert shapes == {(128, 1), (256, 1), (384, 1), (16, 12), (16, 16), (32, 16)}
    assert len(entries(family="matmul-naive", size_class="small")) == 3


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
        ("zzz", "there are the families matmul-tiled, matmul-naive, "),
        ("transpose/tiled", "could be any of 5 kernels; add parts of its name: transpose/tiled/16"),
        ("matmul-naive", "could be any of 5 kernels"),
    ],
)
def test_unknown_and_ambiguous_names(name: str, message: str) -> None:
    with pytest.raises(KernelSpecificationError, match=message) as error:
        entry(name)
    assert error.value.specification == name


def test_unknown_filter_values() -> None:
    with pytest.raises(KernelSpecificationError, match="did you mean transpose"):
        entries(family="transposed")
    with pytest.raises(ParameterError, match="there are small, medium, large"):
        entries(size_class="tiny")  # pyright: ignore[reportArgumentType] - what a user may type


@pytest.mark.parametrize(
    "code", ["import countperf", "import countperf.cli as c; c.parser().format_help()"]
)
def test_the_catalogue_is_imported_only_when_it_is_used(code: str) -> None:
    code = f"{code}; import sys; assert not {{'measurement_kernels', 'loopy'}} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
