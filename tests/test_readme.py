from __future__ import annotations

import contextlib
import io
import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def test_the_ten_lines_run_and_say_what_they_say() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    lines = [line for line in block.splitlines() if line.strip()]
    assert len(lines) <= 11
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(block, "README.md", "exec"), {})
    first, second = printed.getvalue().splitlines()
    assert first == "[n] -> { 2 * n }"
    assert float(second.split()[0]) > 0


@pytest.mark.parametrize("page", ["docs/accuracy.md", "fits/README.md"])
def test_tables_are_those_of_what_is_committed(page: str) -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "update_readme"))
    text = (ROOT / page).read_text(encoding="utf-8")
    assert script["updated"](text, script["TABLES"][page]) == text
