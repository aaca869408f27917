"""``python -m countperf`` is the command line."""

from countperf.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
