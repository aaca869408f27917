"""Spaces of scripts without a guard, of texts, and of notebooks, whose functions go along."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from countperf.harness.device import Device

HELPER = "FACTOR = 2\n"
SCRIPT = """
print("run", flush=True)
import loopy as lp, numpy as np
import countperf
from helper_beside_the_script import FACTOR

def doubled(group):
    unit = lp.make_kernel(
        "{[i]: 0<=i<n}",
        f"out[i] = {FACTOR}*a[i]",
        [lp.GlobalArg("a,out", np.float32, shape="n"), lp.ValueArg("n", np.int32)],
        assumptions="n >= 1",
        lang_version=(2018, 2),
    )
    return lp.split_iname(unit, "i", group, outer_tag="g.0", inner_tag="l.0")

space = countperf.SearchSpace(
    name="mine",
    parameters={"group": [16, 32, 64]},
    build=lambda group: doubled(group),
    sizes={"n": 4096},
    make_arguments=lambda random, sizes: {"a": random.random(sizes["n"], dtype=np.float32)},
    reference=lambda arguments, sizes: {"out": 2 * arguments["a"]},
)
ranking = countperf.rank(space, weights="pocl-epyc-zen4")
print(ranking.predicted, ranking.refused)
"""
SEARCH = """
found = countperf.tune(space, measurements=2, device={label!r}, force=True)
print(len(found.tried), len(found.failed))
"""


@pytest.mark.device
@pytest.mark.parametrize("way", ["script", "text", "input"])
def test_spaces_of_the_main_module_are_ranked_and_searched(
    way: str, tmp_path: Path, device: Device
) -> None:
    (tmp_path / "helper_beside_the_script.py").write_text(HELPER)
    code = SCRIPT + SEARCH.format(label=device.label)
    (tmp_path / "script.py").write_text(code)
    given = {"script": ["script.py"], "text": ["-c", code], "input": ["-"]}[way]

    done = subprocess.run(
        [sys.executable, *given],
        input=code if way == "input" else None,
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n") == ["run", "3 0", "2 0", ""]


@pytest.mark.extra("docs")
def test_spaces_of_notebooks_are_ranked(tmp_path: Path) -> None:
    import nbclient
    import nbformat

    (tmp_path / "helper_beside_the_script.py").write_text(HELPER)
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_code_cell(SCRIPT)]

    nbclient.NotebookClient(
        notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}
    ).execute()

    said = "".join(output["text"] for output in notebook.cells[0].outputs if "text" in output)
    assert said.split("\n") == ["run", "3 0", ""]
