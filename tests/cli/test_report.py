"""Pages of fits, kernels and searches: complete, without a network, right in a browser."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import Counter
from dataclasses import asdict
from html import escape, unescape
from pathlib import Path

import pytest

from countperf.cli import main
from countperf.models.library import load_weights
from countperf.tuning.journal import written
from countperf.tuning.result import Plan, Trial
from tests.patience import LONGEST_S

pytest.importorskip("matplotlib", reason="figures need the extra 'plot'")

CHROMIUM = shutil.which("chromium")
SIZES = ("n=512", "m=512", "l=512")


def _search(folder: Path) -> Path:
    """Write the file of a search in which three variants ran."""
    header = {
        "format": "countperf-tuning",
        "version": 3,
        "space": "toy",
        "parameters": ["tile"],
        "space_digest": "0",
        "sizes": {"n": 64},
        "device": load_weights("pocl-epyc-zen5", model="linear").device.to_object(),
        "timer": "events",
        "weights": "linear for pocl-epyc-zen5",
        "weights_digest": "0",
        "plan": asdict(Plan()),
    }
    tried = [
        Trial(choice={"tile": tile}, predicted_s=1e-3, samples_s=(time_s, time_s), at_s=float(tile))
        for tile, time_s in ((4, 3e-3), (8, 2e-3), (16, 5e-3))
    ]
    path = folder / "search.jsonl"
    lines = [header, *({**written(each), "spent_s": each.at_s} for each in tried)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    what = {
        "fit": ["pocl-epyc-zen5", "--model", "linear"],
        "kernel": ["matmul-naive/16x16/f32", *SIZES, "--weights", "pocl-epyc-zen5", "--model",
                   "structural"],
        "search": [str(_search(folder))],
    }  # fmt: skip
    for name, arguments in what.items():
        assert main(["report", *arguments, "--output", str(folder / f"{name}.html")]) == 0
    return {name: folder / f"{name}.html" for name in what}


def _text(path: Path) -> str:
    text = re.sub(r"<style.*?</style>", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", text)).split())


def test_pages_need_nothing_else_and_no_name_is_there_twice(pages: dict[str, Path]) -> None:
    for path in pages.values():
        text = path.read_text(encoding="utf-8")
        assert "<script" not in text
        references = re.findall(r'(?:src|href|url)\s*[=(]\s*"?([^")\s>]+)', text)
        assert {found for found in references if not found.startswith(("#", "data:"))} == set()
        assert [
            n for n, times in Counter(re.findall(r'\bid="([^"]+)"', text)).items() if times > 1
        ] == []


def test_the_page_of_a_fit_has_accuracy_and_weights(
    pages: dict[str, Path],
) -> None:
    text = _text(pages["fit"])

    assert "Fit of pocl-epyc-zen5" in text
    for title in ("Accuracy", "Weights as rates"):
        assert f" {title} " in text
    assert "per launch" in text
    assert pages["fit"].read_text().count("<svg") == 1


def test_the_page_of_a_kernel_says_what_bounds_it(pages: dict[str, Path]) -> None:
    text = _text(pages["kernel"])

    assert "bound by memory: scalar global loads that miss L1" in text
    assert "operational intensity" in text
    assert "issue.scalar.gmem.load.set_conflict" in text


def test_the_page_of_a_search_names_the_winner(pages: dict[str, Path]) -> None:
    text = _text(pages["search"])

    assert "2.00 ms: tile = 8" in text
    assert "3 variants ran on pocl-epyc-zen5" in text


def test_a_search_in_which_nothing_ran_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = _search(tmp_path)
    path.write_text(path.read_text().splitlines()[0] + "\n")

    assert main(["report", str(path), "--output", str(tmp_path / "page.html")]) == 1
    assert "no variant of toy has run" in capsys.readouterr().err
    assert not (tmp_path / "page.html").exists()


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
@pytest.mark.parametrize("width", [390, 1400])
def test_a_browser_shows_pages_without_an_error_and_nothing_sticks_out(
    pages: dict[str, Path], width: int, tmp_path: Path
) -> None:
    assert CHROMIUM is not None
    told = "parent.document.title = document.documentElement.scrollWidth + '/' + innerWidth;"
    for path in pages.values():
        page = tmp_path / path.name
        text = path.read_text(encoding="utf-8")
        inner = text.replace("</body>", f"<script>{told}</script></body>")
        # windows are 500 pixels wide at least; a frame is as wide as a telephone
        page.write_text(
            f'<!DOCTYPE html><title>-</title><iframe srcdoc="{escape(inner)}"'
            f' style="width: {width}px; height: 1000px; border: 0"></iframe>',
            encoding="utf-8",
        )
        done = subprocess.run(
            [
                CHROMIUM,
                *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
                *("--disable-background-networking", "--enable-logging=stderr"),
                f"--user-data-dir={tmp_path / 'profile'}",
                "--window-size=1500,1000",
                "--dump-dom",
                page.as_uri(),
            ],
            capture_output=True,
            text=True,
            timeout=LONGEST_S,
            check=True,
        )
        assert "CONSOLE" not in done.stderr
        (found,) = re.findall(r"<title>(\d+)/(\d+)</title>", done.stdout)
        assert int(found[0]) <= int(found[1]) == width
