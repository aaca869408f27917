from __future__ import annotations

import numpy as np
import pytest

from countperf.errors import KernelSpecificationError, ParameterError
from measurement_kernels.arguments import ArrayArgument, Extent, arrays
from measurement_kernels.catalog import entries, entry
from measurement_kernels.entry import INDEX_LIMIT

EVERYTHING = entries(element_type=None, purpose=None, collection=None)


@pytest.mark.parametrize(
    ("name", "exponent", "sizes"),
    [
        ("matmul-tiled/square/16x16", 7, {"n": 128, "m": 128, "l": 128}),
        ("matmul-tiled/half-n/16x12", 7, {"n": 72, "m": 128, "l": 128}),
        ("matmul-tiled/half-m/24x16", 7, {"n": 128, "m": 72, "l": 144}),
        ("matmul-tiled/half-l/16x14", 7, {"n": 140, "m": 128, "l": 64}),
        ("matmul-naive/24x16", 6, {"n": 64, "m": 64, "l": 72}),
        ("vector-scale-add/stride3/384x1", 12, {"n": 4224}),
        ("transpose/tiled/16x12", 10, {"n": 1032, "m": 1024}),
        ("transpose/stride1-reads/16x12", 10, {"n": 1024, "m": 1032}),
        ("stride1/copy/224x1", 17, {"n": 131264}),
        ("stride2-filled/direct/192x1", 15, {"n": 32832}),
        ("arithmetic/pow-k768/32x16", 7, {"n": 128, "m": 128, "k": 768}),
        ("empty/16x14", 8, {"n": 266, "m": 256}),
        ("finite-differences", 10, {"n": 1024}),
        ("matmul-skinny", 9, {"n": 64, "m": 512, "l": 64}),
        ("convolution", 6, {"n": 64, "images": 3}),
        ("n-body", 10, {"n": 1024}),
    ],
)
def test_sizes_are_rounded_up_to_the_group(name: str, exponent: int, sizes: dict[str, int]) -> None:
    assert entry(name).parameters(exponent) == sizes


def test_every_offered_size_is_one_that_the_kernel_takes() -> None:
    for each in EVERYTHING:
        largest = each.parameters(each.exponents[-1] + each.exponent_steps[-1])
        arrays = [a for a in each.arguments if isinstance(a, ArrayArgument)]
        assert all(array.elements(largest) < INDEX_LIMIT for array in arrays)
        assert each.case_at(**largest).parameters == largest
        smallest = each.case(each.exponents[0])
        assert smallest.parameters == each.parameters(each.exponents[0])
        assert each.case_at(**each.check_parameters).parameters == each.check_parameters


@pytest.mark.parametrize(
    ("name", "sizes", "message", "parameter"),
    [
        ("matmul-naive/16x16", {"n": 32, "m": 5}, "no value for l; its sizes are n, m, l", "l"),
        ("n-body", {"n": 256, "m": 1}, "no size is called m; its sizes are n", "m"),
        *(
            ("matmul-naive/16x16", {"exponent": e}, f"exponent {e} is outside 4 to 15", "exponent")
            for e in (3, 16)
        ),
        ("n-body", {"n": 300}, "n = 300 is no positive multiple of 256; pass 512, say", "n"),
        ("n-body", {"n": 0}, "n = 0 is no positive multiple of 256; pass 256, say", "n"),
        ("n-body", {"n": 2**30}, "array x would have 3221225472 elements", "n"),
    ],
)
def test_impossible_sizes(name: str, sizes: dict[str, int], message: str, parameter: str) -> None:
    make = entry(name).parameters if "exponent" in sizes else entry(name).case_at
    with pytest.raises(ParameterError, match=message) as error:
        make(**sizes)
    assert error.value.parameter == parameter


def test_case_describes_the_kernel() -> None:
    case = entry("transpose/tiled/16x12").case(6)
    assert (case.name, case.kernel) == (f"{case.kernel}/n=72,m=64", "transpose/tiled/16x12/f32")
    assert (case.family, case.variant) == ("transpose", "tiled")
    assert (case.group_shape, case.element_type, case.purpose) == ((16, 12), "f32", "measurement")
    assert case.global_memory_bytes == 2 * 72 * 64 * 4
    assert case.build() is case.build()
    convolution = entry("convolution")  # sizes that do not scale may be left out or given
    assert convolution.case_at(n=64).parameters == {"n": 64, "images": 3}
    assert convolution.case_at(n=64, images=4).parameters == {"n": 64, "images": 4}


def test_memory_counts_gaps_and_halos_and_doubles() -> None:
    assert entry("vector-scale-add/stride3/256x1").memory_bytes({"n": 256}) == 3 * 3 * 256 * 4
    assert entry("stride3-filled/direct/256x1").memory_bytes({"n": 256}) == (3 * 511 + 256) * 4
    assert entry("stride1/add-four/256x1/f64").memory_bytes({"n": 256}) == 5 * 256 * 8
    assert entry("empty/16x16").memory_bytes({"n": 16, "m": 16}) == 0


def test_inputs_have_the_kernels_type_and_order() -> None:
    random = np.random.default_rng(0)
    x = entry("n-body").make_arguments(random, {"n": 256})["x"]
    assert (x.shape, x.dtype, x.flags.f_contiguous) == ((3, 256), np.dtype("f4"), True)
    product = entry("matmul-naive/16x16/f64").make_arguments(random, {"n": 16, "m": 3, "l": 32})
    assert {name: (v.shape, str(v.dtype)) for name, v in product.items()} == {
        "a": ((16, 3), "float64"),
        "b": ((3, 32), "float64"),
    }


def test_partly_written_output_comes_in_and_keeps_its_gaps() -> None:
    each = entry("vector-scale-add/stride3/256x1")
    made = each.make_arguments(np.random.default_rng(0), {"n": 256})
    z = each.reference(made, {"n": 256})["z"]
    np.testing.assert_array_equal(z[:, 1:], made["z"][:, 1:])
    assert not np.any(z[:, 0] == made["z"][:, 0])


def test_arrays_are_read_from_a_text() -> None:
    assert arrays("a[n, 3], column-major b[2*n + 1, m + 2], updated x[4*n], output r1[n]") == (
        ArrayArgument(name="a", shape=(Extent("n"), 3)),
        ArrayArgument(name="b", shape=(Extent("n", 1, 2), Extent("m", 2)), order="F"),
        ArrayArgument(name="x", shape=(Extent("n", 0, 4),), role="updated"),
        ArrayArgument(name="r1", shape=(Extent("n"),), role="output"),
    )
    assert arrays("") == ()


@pytest.mark.parametrize(
    ("text", "part"),
    [("a[n], b", "'b'"), ("a[n - 1]", "'n - 1'"), ("read a[n]", "'read a"), ("a[]", "''")],
)
def test_malformed_arrays_are_refused(text: str, part: str) -> None:
    with pytest.raises(KernelSpecificationError, match=f"{part}.* cannot be read; write arrays"):
        arrays(text)
