"""Pages of fits, kernels and searches: complete, and without a network."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import asdict
from html import unescape
from pathlib import Path

import pytest

from countperf.cli import main
from countperf.models.library import load_weights
from countperf.tuning.result import Plan, Trial
from tests.cli.conftest import Run

pytest.importorskip("matplotlib", reason="figures need the extra 'plot'")

SLUG = "pocl-epyc-zen5"


def _search(folder: Path) -> Path:
    """Write the file of a search in which three variants ran, and the fastest again, slower."""
    header = {
        "format": "countperf-tuning",
        "version": 3,
        "space": "toy",
        "parameters": ["tile"],
        "space_digest": "0",
        "sizes": {"n": 64},
        "statistics": {"j": 12.5},
        "device": load_weights(SLUG, model="linear").device.to_object(),
        "timer": "events",
        "weights": f"linear for {SLUG}",
        "weights_digest": "0",
        "plan": asdict(Plan()),
    }
    tried = [
        Trial(choice={"tile": tile}, predicted_s=1e-3, samples_s=(time_s, time_s), at_s=float(tile))
        for tile, time_s in ((4, 3e-3), (8, 2e-3), (16, 5e-3))
    ]
    tried.append(tried[1].again((6e-3, 6e-3), cut_short=False))
    path = folder / "search.jsonl"
    lines = [header, *({"kind": "tried", **asdict(each), "spent_s": each.at_s} for each in tried)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_a_page_is_refused_before_the_work_where_nothing_can_be_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    monkeypatch.setattr("countperf.cli.report.explain", None)  # the work
    refused = run(f"report copy n=64 --output {tmp_path}/page.html", status=1)
    assert "pip install 'countperf[plot]'" in refused.err


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    commands = {
        "fit": f"{SLUG} --model linear",
        "kernel": f"matmul-naive/16x16/f32 n=512 m=512 l=512 --weights {SLUG} --model structural",
        "search": str(_search(folder)),
    }
    for name, command in commands.items():
        assert main(["report", *command.split(), "--output", str(folder / f"{name}.html")]) == 0
    return {name: folder / f"{name}.html" for name in commands}


def _text(path: Path) -> str:
    text = re.sub(r"<style.*?</style>", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", text)).split())


def test_pages_need_nothing_else_and_no_name_is_there_twice(pages: dict[str, Path]) -> None:
    for path in pages.values():
        text = path.read_text(encoding="utf-8")
        assert "<script" not in text
        references = re.findall(r'(?:src|href|url)\s*[=(]\s*"?([^")\s>]+)', text)
        assert [name for name in references if not name.startswith(("#", "data:"))] == []
        names = re.findall(r'\bid="([^"]+)"', text)
        assert len(names) == len({*names})


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("fit", [f"Fit of {SLUG}", " Accuracy ", " Weights as rates ", "per launch"]),
        (
            "kernel",
            [
                "bound by memory: scalar loads from global memory that miss L1",
                "operational intensity",
                "scalar loads from global memory that miss L1 by set conflicts",
                " Words ",
                "too many lines share its set",
            ],
        ),
        ("search", ["3.00 ms: tile = 4", f"3 variants ran on {SLUG}, with statistics j = 12.5"]),
    ],
)
def test_pages_say_what_they_are_for(pages: dict[str, Path], name: str, texts: list[str]) -> None:
    page = _text(pages[name])
    assert [text for text in texts if text not in page] == []
    assert pages["fit"].read_text().count("<svg") == 1


def test_a_search_in_which_nothing_ran_is_refused(tmp_path: Path, run: Run) -> None:
    path = _search(tmp_path)
    path.write_text(path.read_text().splitlines()[0] + "\n")
    said = run(f"report {path} --output {tmp_path / 'page.html'}", status=1).err
    assert "no variant of toy has run" in said
    assert not (tmp_path / "page.html").exists()
