"""Pages of fits and kernels: complete, and without a network."""

from __future__ import annotations

import re
import sys
from html import unescape
from pathlib import Path

import pytest

from countperf.cli import main
from tests.cli.conftest import Run

pytest.importorskip("matplotlib", reason="figures need the extra 'plot'")

SLUG = "pocl-epyc-zen5"


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
                "bound by memory: scalar global loads that miss L1",
                "operational intensity",
                "issue.scalar.gmem.load.set_conflict",
            ],
        ),
    ],
)
def test_pages_say_what_they_are_for(pages: dict[str, Path], name: str, texts: list[str]) -> None:
    page = _text(pages[name])
    assert [text for text in texts if text not in page] == []
    assert pages["fit"].read_text().count("<svg") == 1


@pytest.mark.parametrize(
    ("name", "text"), [("s.jsonl", ""), ("t.json", '{"format": "countperf-timing"}')]
)
def test_of_searches_and_timings_there_is_no_page(
    tmp_path: Path, run: Run, name: str, text: str
) -> None:
    (tmp_path / name).write_text(text)
    said = run(f"report {tmp_path / name} --output {tmp_path / 'page.html'}", status=1).err
    assert "a search is drawn by countperf tune --figure FILE" in said
    assert not (tmp_path / "page.html").exists()
