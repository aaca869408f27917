"""Rows of numbers as text inside documents."""

from __future__ import annotations

import base64
import math
import zlib

import numpy as np
import pytest

from countperf.models.packing import (
    pack,
    pack_names,
    pack_square,
    unpack,
    unpack_names,
    unpack_square,
)


@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        ([], "0:0:u1"),
        ([[]], "1:0:u1"),
        ([[1, 2], [], [255]], "3:0:u1"),
        ([[256]], "1:0:u2"),
        ([[0.12, 0.5]], "1:2:u1"),
        ([[0.125, 25.5]], "1:3:u2"),
        ([[-1.0]], "1::f4"),
        ([[2.0**-90, 0.0]], "1::f4"),
        ([[math.pi]], "1::f8"),
        ([[1e-60]], "1::f8"),
    ],
)
def test_numbers_come_back_as_they_were(rows: list[list[float]], kind: str) -> None:
    text = pack(rows)

    assert text.startswith(kind + ":")
    assert [list(row) for row in unpack(text)] == rows


def test_random_rows_come_back() -> None:
    draw = np.random.default_rng(7)
    for digits in range(6):
        rows = [np.round(draw.random(draw.integers(0, 9)), digits).tolist() for _ in range(20)]
        assert [list(row) for row in unpack(pack(rows))] == rows


def test_a_symmetric_matrix_takes_its_lower_half() -> None:
    matrix = ((2.0, -1.0), (-1.0, 3.0))

    assert unpack(pack_square(matrix)) == ((2.0,), (-1.0, 3.0))
    assert unpack_square(pack_square(matrix)) == matrix
    assert unpack_square(pack_square(((1.0, 2.0), (3.0, 4.0)))) == ((1.0, 2.0), (3.0, 4.0))
    assert unpack_square(pack_square(((5.0,),))) == ((5.0,),)


def _packed(content: bytes) -> str:
    return base64.b64encode(zlib.compress(content)).decode()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("numbers", "no packed rows"),
        ("1:0:u1:!!", "no packed rows"),
        ("1:0:u1:AAAA", "damaged"),
        (f"2:0:u1:{_packed(b'1234')}", "not of 2 rows"),
        (f"1:0:u1:{_packed(bytes([9, 0, 0, 0, 1]))}", "not of 1 rows"),
        (f"1:0:u1:{_packed(bytes(100))[:8]}", "cut off|damaged"),
        (f"1::f4:{_packed(bytes([1, 0, 0, 0, 0, 0, 192, 127]))}", "not finite"),
    ],
)
def test_damaged_text_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        unpack(text)


def test_names_come_back_and_damaged_ones_are_refused() -> None:
    names = ("copy/64x1/f32", "größe", "a")

    assert unpack_names(pack_names(names)) == names
    with pytest.raises(ValueError, match="not 4"):
        unpack_names("4" + pack_names(names)[1:])
