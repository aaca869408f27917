"""``python -m countperf`` is the command line."""

import sys

if not sys.flags.safe_path:
    sys.path.append(sys.path.pop(0))  # what lies in the current folder replaces nothing installed

from countperf.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
