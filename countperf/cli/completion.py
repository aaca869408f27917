"""Completion of commands, options, files and names of fits in shells, by shtab."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import shtab

from countperf.models.library import named_fits

SHELLS: tuple[str, ...] = tuple(shtab.SUPPORTED_SHELLS)

_FILES = ("kernel", "application", "measurements")
"""Positional arguments that are files, or kernels in files; options say so themselves."""


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return the script of a shell that completes a command line.

    Names of fits are those that there are when the script is made.
    """
    names = " ".join(sorted(named_fits()))
    fits = {**shtab.FILE, "bash": "_countperf_fits", "zsh": f"({names})"}
    preamble: Any = {
        "bash": f'_countperf_fits() {{ compgen -W "{names}" -- "$1"; compgen -f -- "$1"; }}',
    }
    for action in _actions(parser):
        if action.choices is not None or action.nargs == 0:
            continue
        if action.dest == "what" or "SLUG" in str(action.metavar):
            action.complete = fits  # pyright: ignore[reportAttributeAccessIssue] - read by shtab
        elif action.dest in _FILES or "FILE" in str(action.metavar):
            action.complete = shtab.FILE  # pyright: ignore[reportAttributeAccessIssue] - read by shtab
    return str(shtab.complete(parser, shell=shell, preamble=preamble))


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:  # as shtab walks them
        yield action
        if isinstance(action, argparse._SubParsersAction):  # pyright: ignore[reportPrivateUsage]
            for command in action.choices.values():
                yield from _actions(command)
