"""Copies of structures: what Clang makes of them, and what Oclgrind tells of that."""

from __future__ import annotations

import re
from pathlib import Path

import loopy as lp
import numpy as np
import pytest

from countperf.properties.count_properties import count_kernel
from tests.oracles import llvm_ir, oclgrind

pytestmark = [
    pytest.mark.oclgrind,
    pytest.mark.skipif(oclgrind.PROGRAM is None, reason="oclgrind-kernel is not installed"),
]
N = 24


def _copies(folder: Path, dtype: type) -> oclgrind.DynamicCounts:
    return oclgrind.run(_kernel(dtype), {"n": N}, folder)


def _kernel(dtype: type) -> lp.TranslationUnit:
    return lp.make_kernel(
        "{ [i] : 0 <= i < n }",
        "z[i] = a[i]",
        [lp.GlobalArg("a,z", dtype, shape="n"), lp.ValueArg("n", np.int32)],
        assumptions="n >= 1",
        lang_version=(2018, 2),
    )


def test_structures_are_copied_by_an_intrinsic_of_which_no_bytes_are_told(tmp_path: Path) -> None:
    plain = _copies(tmp_path, np.float64)
    assert (plain.of("load global"), plain.bytes["load global"]) == (N, 8 * N)
    assert plain.copied(1, 1) == 0

    complex_ = _copies(tmp_path, np.complex128)
    assert complex_.of("load global", "store global") == 0
    assert complex_.bytes.get("load global", 0) == complex_.bytes.get("store global", 0) == 0
    assert complex_.copied(1, 1) == N

    counts = count_kernel(_kernel(np.complex128)).evaluate(n=N)
    assert counts["gmem.load.128.uniform"] == counts["gmem.store.128.uniform"] == N


@pytest.mark.skipif(not llvm_ir.is_available(), reason="there is no opt of LLVM 14")
def test_the_code_that_oclgrind_interprets_copies_16_bytes(tmp_path: Path) -> None:
    # the passes leave LLVM code of the kernel behind, which is what is interpreted
    oclgrind.run(_kernel(np.complex128), {"n": N}, tmp_path, passes=("-passes=verify",))
    code = (tmp_path / "kernel.ll").read_text()
    copies = re.findall(r"call void @llvm\.memcpy\.p1i8\.p1i8\.i64\(.*, i64 (\d+), i1", code)
    assert copies == ["16"]
    assert re.findall(r"(?:load|store) .*addrspace\(1\)\* %", code) != []  # of pointers alone
    assert re.findall(r"load double, double addrspace\(1\)", code) == []
