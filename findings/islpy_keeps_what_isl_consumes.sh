#!/usr/bin/env bash
# islpy 2026.1 (and 2025.2.5) never frees the handle of an argument that isl consumes (`__isl_take`): 32 bytes for each.
# One would expect that memory does not grow in a loop that drops all results. Sets of a few thousand kernels keep tens of
# megabytes; matrices filled element by element (Mat.set_element_val) lose 64 bytes an element. Fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet islpy==2026.1
"$folder/env/bin/python" - <<'PYTHON'
import ctypes

import islpy as isl


class Mallinfo(ctypes.Structure):
    _fields_ = [(f"field{k}", ctypes.c_size_t) for k in range(10)]


libc = ctypes.CDLL("libc.so.6")
libc.mallinfo2.restype = Mallinfo
some = isl.BasicSet("[n] -> { [i] : 0 <= i < n }")


def grown(work, times=10_000):
    for _ in range(100):
        work()
    before = libc.mallinfo2().field7  # bytes in use
    for _ in range(times):
        work()
    return (libc.mallinfo2().field7 - before) / times


for name, work, arguments in (
    ("is_empty, which consumes nothing", some.is_empty, 0),
    ("remove_redundancies, which consumes a set", some.remove_redundancies, 1),
    ("intersect, which consumes two", lambda: some.intersect(some), 2),
):
    found = grown(work)
    print(f"{name}: {found:.1f} bytes a call")
    assert round(found) == 32 * arguments, "islpy has changed"
PYTHON
