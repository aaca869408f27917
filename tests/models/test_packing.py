"""Numbers and names as text inside documents."""

from __future__ import annotations

import base64
import math
import zlib

import pytest

from countperf.models.correction import pack, unpack


@pytest.mark.parametrize(
    "content",
    [(), ((),), ((1.0, -2.5), (), (255.0,)), ((math.pi, 1e-60, 2.0**-90),), ("copy", "größe")],
)
def test_content_comes_back_as_it_was(content: object) -> None:
    assert unpack(pack(content)) == content


def test_plain_lists_are_read_as_tuples() -> None:
    assert unpack([[1.0, 2.0], []]) == ((1.0, 2.0), ())


def _packed(content: bytes) -> str:
    return base64.b64encode(zlib.compress(content)).decode()


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("numbers!", id="no base64"),
        pytest.param("AAAA", id="no zlib"),
        pytest.param(_packed(b"[1, 2"), id="no JSON"),
        pytest.param(_packed(bytes(range(200)))[:80], id="cut off"),
        pytest.param(_packed(b"[NaN]"), id="not finite"),
    ],
)
def test_damaged_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="damaged"):
        unpack(text)
