"""For all tests and doctests: no cache of the user is used, and long tests begin first."""

from __future__ import annotations

import signal
import sys
import tomllib
from collections.abc import Generator
from functools import cache
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path

import hypothesis
import pytest
from packaging.requirements import Requirement

hypothesis.settings.register_profile("patient", deadline=None)  # machines may be busy
hypothesis.settings.load_profile("patient")
_NEEDED = {"countperf/integrations/optuna.py": "optuna"}
collect_ignore = [path for path, package in _NEEDED.items() if find_spec(package) is None]
"""Modules whose package is not installed cannot be imported by the collection of doctests."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put long tests first, so that no core is idle; skip those whose extra is not installed."""
    for item in items:
        names = [name for mark in item.iter_markers("extra") for name in mark.args]
        if missing := [name for name in names if not _is_installed(name)]:
            item.add_marker(pytest.mark.skip(reason=f"needs the extra '{missing[0]}'"))
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.fixture(autouse=True)
def _counted_anew() -> None:
    """Let no test find what another one counted."""
    if (module := sys.modules.get("countperf.counting.count_properties")) is not None:
        module.forget()


@cache
def _is_installed(extra: str) -> bool:
    text = Path(__file__).with_name("pyproject.toml").read_text(encoding="utf-8")
    for each in map(Requirement, tomllib.loads(text)["project"]["optional-dependencies"][extra]):
        if each.name == "countperf":
            if not all(map(_is_installed, each.extras)):
                return False
        elif not any(distributions(name=each.name)):
            return False
    return True


@pytest.fixture(autouse=True)
def _interrupts_are_handled() -> Generator[None]:
    """Have this process handle Ctrl-C, which a shell's & or tests of workers ignore."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
