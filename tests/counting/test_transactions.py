"""Transactions and instructions of sub-groups as properties: at sizes, in vectors, by name."""

from __future__ import annotations

import pickle
from itertools import product

import loopy as lp
import numpy as np
import pytest

from countperf.counting.analysis import TransactionCounts, with_transactions
from countperf.counting.count_properties import count_kernel
from countperf.counting.taxonomy import is_emitted, property_unit
from countperf.counting.vector import PropertyVector, transaction_roots
from countperf.errors import CountingError, ParameterError, PropertyNameError
from measurement_kernels.catalog import entry
from tests.kernels import made

ROOTS = ("transactions.16x32", "transactions.32x128")


def _copy_of_columns() -> lp.TranslationUnit:
    """Rows of 32 items that read along columns and write along rows, in groups of 32 x 2."""
    return made("i<n, j<n", "z[j, i] = x[i, j]", "x,z f32 n,n; n i32", split="i:32 j:2:1")


def _by_enumeration(n: int, items: int, line_bytes: int) -> dict[str, int]:
    """The same, item by item."""
    lines = {"load": 0, "store": 0}
    for i0, j0 in product(range(0, n, 32), range(0, n, 2)):
        lanes = [(i0 + i, j0 + j) for j in range(2) for i in range(32)]
        for first in range(0, 64, items):
            active = [(i, j) for i, j in lanes[first : first + items] if i < n and j < n]
            lines["load"] += len({4 * (i * n + j) // line_bytes for i, j in active})
            lines["store"] += len({4 * (j * n + i) // line_bytes for i, j in active})
    return lines


@pytest.mark.parametrize("view", ["source", "structure"])
@pytest.mark.parametrize("n", [1, 7, 32, 50, 65])
def test_they_are_those_of_enumerated_items(view: str, n: int) -> None:
    unit = _copy_of_columns()
    plain = count_kernel(unit, view=view)  # pyright: ignore[reportArgumentType]
    counts = with_transactions(plain, unit, ROOTS).evaluate(n=n)
    for items, line_bytes in ((16, 32), (32, 128)):
        expected = _by_enumeration(n, items, line_bytes)
        root = f"transactions.{items}x{line_bytes}"
        assert {way: counts[f"{root}.{way}"] for way in expected} == expected
    assert {name: count for name, count in counts.items() if not name.startswith("tr")} == (
        plain.evaluate(n=n)
    )


def test_arrays_of_sizes_have_arrays_of_them_and_pickling_keeps_them() -> None:
    unit = _copy_of_columns()
    vector = with_transactions(count_kernel(unit), unit, ROOTS)
    sizes = np.array([[7, 32], [33, 64]])
    counts = pickle.loads(pickle.dumps(vector)).evaluate(n=sizes)
    one_by_one = [vector.evaluate(n=int(n))["transactions.32x128.load"] for n in sizes.ravel()]
    assert counts["transactions.32x128.load"].tolist() == np.reshape(one_by_one, (2, 2)).tolist()
    with pytest.raises(ParameterError, match="n"):
        vector.evaluate(n=0)


def test_what_is_known_is_not_counts_again() -> None:
    unit = _copy_of_columns()
    vector = with_transactions(count_kernel(unit), unit, ROOTS[:1])
    assert [vector.knows(root) for root in ROOTS] == [True, False]
    assert with_transactions(vector, unit, ROOTS[:1]) is vector
    by_hand = PropertyVector.from_mapping({"transactions.32x128.load": "[n] -> { n }"})
    assert by_hand.knows("transactions.32x128")
    assert not by_hand.knows("transactions.32x12")
    assert by_hand["transactions.32x128"].exact


def test_data_that_leads_accesses_is_refused() -> None:
    unit = made("i<n", "z[i] = x[index[i]]", "x,z f32 n; index i32 n; n i32", split="i:32")
    with pytest.raises(CountingError, match=r"x\[index\[i.*data"):
        with_transactions(count_kernel(unit), unit, ROOTS).evaluate(n=64)


def test_names_say_which_sub_groups_and_lines_are_meant() -> None:
    names = ["groups", "transactions.32x128.*", "transactions.8x64", "transactions.*.load"]
    assert transaction_roots(names) == ("transactions.32x128", "transactions.8x64")
    of_sub_groups = ["subgroups.32.barrier", "subgroups.32.*", "subgroups.load", "distinctly.load"]
    assert transaction_roots(of_sub_groups) == ("subgroups.32",)
    assert transaction_roots(["distinct.load"]) == ("distinct",)
    assert property_unit("transactions.32x128.load") == "transaction"
    assert not is_emitted("transactions.32x128.load")
    for wrong in ("transactions.0x128.load", "transactions.32.load", "transactions.32x128.copy"):
        with pytest.raises(PropertyNameError):
            property_unit(wrong)


# --- Instructions of sub-groups against numbers worked out by hand


def _count_sub_groups(kernel: str, **sizes: int) -> dict[str, int]:
    counts = TransactionCounts(
        kernel=entry(kernel).build(), roots=("subgroups.32", "distinct"), statistics={}
    )
    return counts(sizes)


def test_a_partial_sub_group_counts_as_one() -> None:
    # 3 x 3 groups of 144 items, 4.5 sub-groups each, which are 5; three tiles of 12
    assert _count_sub_groups("published-matmul/tiled/12x12", n=36) == {
        "subgroups.32.launched": 45,
        "subgroups.32.arithmetic": 45 * 36,  # a product and its addition are one
        "subgroups.32.load": 45 * 2 * 3,
        "subgroups.32.store": 45,
        "subgroups.32.local": 45 * 3 * (2 + 2 * 12),
        "subgroups.32.passes": 45 * 3 * (2 + 2 * 12),
        "subgroups.32.barrier": 45 * 3 * 2,
        "distinct.load": 2 * 4 * 36**2,
        "distinct.store": 4 * 36**2,
    }


def test_lanes_along_columns_of_tiles_meet_in_banks() -> None:
    # 16 x 16 items, row pitch 16 words: lanes x = 0..15 with two y lie in banks 0 and 16 (+y):
    # 8 words of one bank. Elements of the first tile, read along k, and both stores; the second
    # tile is read at two words
    found = _count_sub_groups("published-matmul/tiled-swapped/16x16", n=16)
    assert found["subgroups.32.local"] == 8 * (2 + 2 * 16)
    assert found["subgroups.32.passes"] == 8 * (2 * 8 + 16 * 8 + 16)


def test_a_tree_occupies_fewer_sub_groups_with_each_level() -> None:
    # 256 items: levels of 128, 64 and 32 lanes, 4, 2 and 1 sub-groups, then five levels of one
    found = _count_sub_groups("published-dot-product/256x1", rows=2, groups=3)
    assert found["subgroups.32.arithmetic"] == 3 * (2 * 8 + 12)
    assert found["subgroups.32.local"] == 3 * (8 + 3 * 12 + 1)
    assert found["subgroups.32.barrier"] == 3 * 8 * 9
    assert (found["distinct.load"], found["distinct.store"]) == (2 * 4 * 2 * 3 * 256, 4 * 3)
