"""Predict the run time of Loopy kernels from exact symbolic counts and weights fitted to a device.

Each name is imported from its home when it is first used. For ``python -m countperf``, the current
folder goes last on the path of modules, where a file such as ``random.py`` takes the place of no
installed one. Ctrl-C ends the command line at once as long as no command runs, since modules that
are half imported turn an interrupt into errors of their own.
"""

from __future__ import annotations

import _signal  # pyright: ignore[reportMissingImports] - of `signal`, without its imports
import os
import sys


def _end_at_once(_number: int, _frame: object) -> None:
    """End the process, in which nothing has begun."""
    os.write(2, b"countperf: interrupted; nothing has begun\n")
    os._exit(130)


_module = ""
if sys.argv[:1] == ["-m"]:  # a module that Python is looking for
    _module = sys.orig_argv[sys.orig_argv.index("-m") + 1]
    if not sys.flags.safe_path and _module.partition(".")[0] == "countperf":
        sys.path.append(sys.path.pop(0))
_is_program = _module == "countperf" or os.path.basename(sys.argv[0]) == "countperf"  # noqa: PTH119
if _is_program and _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, _end_at_once)

import re
from importlib import import_module
from pathlib import Path
from typing import Any

from countperf.caches import LOOPYS, give_a_cache

__version__ = "0.2.0"

_HOMES = {
    name: (module, attribute)
    for module, attribute, name in re.findall(
        r"^from (\S+) import (\w+) as (\w+)$",
        Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
}
"""Module of each public name, and its name there, as the stub file states them for checkers too."""

__all__ = ["__version__", *_HOMES]  # pyright: ignore[reportUnsupportedDunderAll] - of the stub

give_a_cache(LOOPYS)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'countperf' has no attribute {name!r}")
    module, attribute = _HOMES[name]
    value = globals()[name] = getattr(import_module(module), attribute)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
