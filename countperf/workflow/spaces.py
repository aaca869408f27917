"""Search spaces by name: those of the library, and those of users' code."""

from __future__ import annotations

from countperf.errors import SearchSpaceError
from countperf.tuning.points import user_space
from countperf.tuning.space import SearchSpace
from measurement_kernels.variants import spaces


def load_space(specification: str) -> SearchSpace:
    """Return the search space that a text names."""
    if ":" in specification:
        return user_space(specification)
    known = spaces()
    if specification not in known:
        raise SearchSpaceError(
            f"no search space is called {specification!r}; there are {', '.join(known)}, and"
            " path/file.py:name"
        )
    return known[specification]


def named_in_processes(space: SearchSpace | str) -> SearchSpace | str:
    """Return a space as processes get it: a space of users' code by its text, others themselves.

    Functions of a user's file cannot be sent to other processes, so each reads the file.
    """
    return load_space(space) if isinstance(space, str) and ":" not in space else space
