from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import loopy as lp
import pytest

from countperf.counting import count_properties
from countperf.counting.count_properties import count_kernel
from countperf.counting.taxonomy import VIEWS, View
from countperf.errors import CountingError, DataDependentControlFlowError
from tests.kernels import made


def _kernel(instruction: str, name: str = "scaling", dtype: Any = "float32") -> Any:
    return made("i<n", instruction, "n i32", lp.GlobalArg("a,b", dtype, shape="n"), name=name)


def _scaling(factor: float = 2.0, **named: Any) -> Any:
    return _kernel(f"b[i] = {factor}*a[i]**2", **named)


def _gated() -> Any:
    return _kernel("b[i] = b[i] + 1 {if=a[i] > 0, id=gated}")


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the kernels that are really counted, in order."""
    names: list[str] = []
    original = count_properties.count_loopy_kernel

    def counting(t_unit: Any, **options: Any) -> Any:
        result = original(t_unit, **options)
        names.append(result.kernel)
        return result

    monkeypatch.setattr(count_properties, "count_loopy_kernel", counting)
    count_properties.forget()
    return names


@pytest.mark.parametrize("view", VIEWS)
def test_an_equal_kernel_is_not_counted_again(counted: list[str], view: View) -> None:
    first = count_kernel(_scaling(), view=view)
    assert count_kernel(_scaling(), view=view) is first
    assert counted == ["scaling"]
    assert count_kernel(_scaling(), view=view, cache=False) == first
    assert counted == ["scaling"] * 2


@pytest.mark.parametrize(
    "change",
    [
        lambda: (_scaling(3.0), {}),
        lambda: (_scaling(name="other"), {}),
        lambda: (lp.assume(_scaling(), "n >= 16"), {}),
        lambda: (lp.tag_inames(_scaling(), "i:unr"), {}),
        lambda: (_scaling(dtype="float64"), {}),
        lambda: (_gated(), {"statistics": {"gated": 1}}),
        lambda: (_gated(), {"statistics": {"gated": 1.0}}),
        lambda: (_gated(), {"statistics": {"gated": Fraction(1, 2)}}),
    ],
)
def test_every_difference_is_another_key(
    change: Callable[[], tuple[Any, dict[str, Any]]], counted: list[str]
) -> None:
    count_kernel(_scaling())
    t_unit, options = change()
    assert count_kernel(t_unit, **options) == count_kernel(t_unit, cache=False, **options)
    assert len(counted) == 3


def test_refusals_are_not_remembered(counted: list[str]) -> None:
    for _ in range(2):
        with pytest.raises(DataDependentControlFlowError):
            count_kernel(_gated())
    count_kernel(_gated(), statistics={"gated": 0.5})
    assert len(counted) == 1


def test_what_loopy_leaves_out_of_its_hash_has_no_key() -> None:
    kernel = _scaling().default_entrypoint
    sizes = kernel.get_grid_sizes_for_insn_ids
    other = _scaling().with_kernel(kernel.copy(overridden_get_grid_sizes_for_insn_ids=sizes))
    assert count_properties.content_key(_scaling(), {}) is not None
    assert count_properties.content_key(other, {}) is None
    assert count_properties.content_key(_scaling(), {"statistics": {"i": object()}}) is None


def test_vectors_of_one_size_are_told_apart() -> None:
    # Loopy's own hash names all structured types of 16 bytes alike
    cltypes = pytest.importorskip("pyopencl.cltypes")
    expected = {"float4": {"flop.add.f32": 40}, "double2": {"flop.add.f64": 20}}
    expected["int4"] = {"iop.add.i32": 40}
    for name, counts in expected.items():
        kernel = _kernel("b[i] = a[i] + a[i]", dtype=getattr(cltypes, name))
        vector = count_kernel(kernel).evaluate(n=10)
        assert {n: c for n, c in vector.items() if n[:4] in ("flop", "iop.")} == counts


@pytest.mark.parametrize("remembering", [True, False])
def test_what_is_no_kernel_is_refused(remembering: bool) -> None:
    with pytest.raises(CountingError, match=r"a loopy\.TranslationUnit.* was expected"):
        count_kernel("kernel", cache=remembering)


def test_little_is_kept_in_memory(counted: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(count_properties, "_MAXIMUM_IN_MEMORY", 1)
    vectors = [count_kernel(_scaling(name=name)) for name in ("one", "two", "one")]
    assert counted == ["one", "two", "one"]
    assert vectors[2] == vectors[0]
    assert vectors[2] is not vectors[0]
