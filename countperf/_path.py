"""Imported first: ``python -m countperf`` puts the current folder first on the path of modules.

There a file of the user's, such as ``random.py``, would take the place of an installed module.
"""

import sys

if sys.argv[:1] == ["-m"] and not sys.flags.safe_path:  # a module that Python is looking for
    _module = sys.orig_argv[sys.orig_argv.index("-m") + 1]
    if _module.partition(".")[0] == "countperf":
        sys.path.append(sys.path.pop(0))
