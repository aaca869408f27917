from __future__ import annotations

import pkgutil
import subprocess
import sys

import pytest

import countperf

MODULES = {module.name for module in pkgutil.iter_modules(countperf.__path__)}


def test_no_public_name_is_the_name_of_a_module() -> None:
    assert "hardware" in MODULES  # the modules are found at all
    assert not MODULES & set(countperf.__all__)


# in processes of their own: other tests have imported every module already
@pytest.mark.parametrize(
    "code",
    [
        "import countperf\n"
        "for name in ('available_weights', 'devices', 'doctor'):\n"
        "    first, second = (getattr(countperf, name)() for _ in range(2))\n"
        "    assert type(first) is type(second)\n",
        "import importlib, pkgutil, countperf\n"
        "before = {name: getattr(countperf, name) for name in countperf.__all__}\n"
        "for module in pkgutil.iter_modules(countperf.__path__):\n"
        "    if module.name != '__main__':\n"
        "        importlib.import_module(f'countperf.{module.name}')\n"
        "assert before == {name: getattr(countperf, name) for name in countperf.__all__}\n",
        "import sys, countperf\nfrom countperf.cli import parser\nparser()\n"
        "slow = {'numpy', 'pydantic', 'loopy', 'islpy', 'pymbolic', 'scipy', 'pandas', 'pyopencl',"
        " 'matplotlib'} & set(sys.modules)\n"
        "assert not slow, slow\n",
    ],
    ids=["functions are called twice", "names are kept", "imports are lazy"],
)
def test_the_package_in_a_new_process(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
