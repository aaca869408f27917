from __future__ import annotations

import inspect
import pkgutil
import subprocess
import sys
from collections.abc import Callable

import pytest

import countperf

MODULES = {module.name for module in pkgutil.iter_modules(countperf.__path__)}


def _functions_without_arguments() -> dict[str, Callable[[], object]]:
    """Return the public functions that can be called without an argument, by name."""
    functions = {
        name: value
        for name in countperf.__all__
        if callable(value := getattr(countperf, name)) and not inspect.isclass(value)
    }
    return {
        name: function
        for name, function in functions.items()
        if all(
            parameter.default is not inspect.Parameter.empty
            or parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
            for parameter in inspect.signature(function).parameters.values()
        )
    }


CALLABLE = _functions_without_arguments()


def test_no_public_name_is_the_name_of_a_module() -> None:
    assert "hardware" in MODULES  # the modules are found at all
    assert not MODULES & set(countperf.__all__)


def test_the_functions_called_without_an_argument_are_those_known_here() -> None:
    # others need a kernel; a new name here is tested below from now on
    assert {"available_weights", "devices", "doctor"} <= set(CALLABLE)


@pytest.mark.parametrize("name", sorted(CALLABLE))
def test_functions_without_an_argument_can_be_called_twice(name: str) -> None:
    # in a process of its own: other tests have imported every module already
    code = (
        "import countperf\n"
        f"first = countperf.{name}()\n"
        f"second = countperf.{name}()\n"
        "assert type(first) is type(second)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_public_name_is_kept_when_all_modules_are_imported() -> None:
    code = (
        "import importlib, pkgutil, countperf\n"
        "before = {name: getattr(countperf, name) for name in countperf.__all__}\n"
        "for module in pkgutil.iter_modules(countperf.__path__):\n"
        "    if module.name != '__main__':\n"
        "        importlib.import_module(f'countperf.{module.name}')\n"
        "assert before == {name: getattr(countperf, name) for name in countperf.__all__}\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_help_is_printed_without_numpy_and_pydantic() -> None:
    code = (
        "import sys\nfrom countperf.cli import parser\nparser()\n"
        "slow = {'numpy', 'pydantic', 'loopy', 'islpy', 'pymbolic'} & set(sys.modules)\n"
        "assert not slow, slow\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
