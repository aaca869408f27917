"""Imported first, by programs: their path of modules, and Ctrl-C as long as no command runs.

``python -m countperf`` puts the current folder first on the path. There a file of the user's, such
as ``random.py``, would take the place of an installed module.

Ctrl-C ends the command line at once, since modules that are half imported and libraries turn an
interrupt into errors of their own; `countperf.cli` says how it ends a command that runs.
"""

import _signal  # pyright: ignore[reportMissingImports] - of `signal`, without its imports
import os
import sys


def end_at_once(_number: int, _frame: object) -> None:
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
    _signal.signal(_signal.SIGINT, end_at_once)
