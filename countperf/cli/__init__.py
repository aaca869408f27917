"""The command line: each command parses, calls the workflow, and prints a report.

Arguments of all commands (`countperf.cli.arguments`) are cheap to import; the module of a command,
with all that it works with, is imported when the command runs.

Exit status: 0 done; 1 the work failed (one line on standard error, then the mend); 2 wrong usage.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from countperf.cli.common import in_options, only_documents
from countperf.cli.progress import shown_steps
from countperf.errors import CountperfError
from countperf.terminal import shown
from countperf.version import __version__

COMMANDS = {
    "doctor": "try every device for real; for one that fails, say why and what to do",
    "devices": "list the devices",
    "weights": "list fitted weights: shipped and your own, their models, errors, device",
    "characterize": "find out by microbenchmarks what a device can do (resumes)",
    "count": "count a kernel's properties, symbolic in its sizes",
    "compiled": "say what a compiler made of a kernel: vector, scalar, fused instructions, spills",
    "calibrate": "fit weights of a device within minutes, from what other devices say (resumes)",
    "measure": "measure the library's kernels on a device (resumes)",
    "fit": "fit weights to measurements",
    "time": "time a kernel of yours at some sizes, and compare with the predicted times",
    "predict": "predict the run time of a kernel, and where it goes",
    "occupancy": "say how many groups of a kernel are resident on a device, and what limits them",
    "sweep": "predict a kernel by mechanistic models over occupancy, intensity or parallelism",
    "application": "predict and measure a sequence of transfers and kernels",
    "evaluate": "compare predicted with measured times of test kernels and applications",
    "coverage": "say which features of a kernel the fit's measurements exercise",
    "compare": "compare all models on measured kernels: as published, scaled and fitted",
    "rank": "predict all variants of a kernel, and list those that should be fastest",
    "report": "write a page (HTML) of a fit, a kernel or a search",
    "tune": "find the fastest variant of a kernel on a device within a budget (resumes)",
}


class _PrintCompletion(argparse.Action):
    """Prints a script for a shell, and ends the program."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[object] | None,
        option_string: str | None = None,
    ) -> None:
        del namespace
        try:
            completion = import_module("countperf.cli.completion")
        except ImportError:
            parser.error(
                "completion needs shtab; install it with: pip install 'countperf[completion]'"
            )
        shell = str(values)
        if shell not in completion.SHELLS:
            shells = ", ".join(completion.SHELLS)
            parser.error(
                f"argument {option_string}: no completion for {shell}; shells are {shells}"
            )
        print(completion.script(parser, shell))
        parser.exit()


class _Once(argparse.Action):
    """Stores a value, and refuses an option that is given twice."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        given: set[str] = vars(namespace).setdefault("_given", set())
        if option_string is not None and self.dest in given:
            parser.error(f"argument {option_string} is given twice; give it once")
        given.add(self.dest)
        setattr(namespace, self.dest, values)


class _EachOnce(argparse.Action):
    """Collects the values of an option, and refuses one that is given twice."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        before: list[Any] = list(getattr(namespace, self.dest) or ())
        if values in before:
            parser.error(f"argument {option_string}: {values} is given twice; give it once")
        setattr(namespace, self.dest, [*before, values])


class _Parser(argparse.ArgumentParser):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        for name, action in ((None, _Once), ("store", _Once), ("append", _EachOnce)):
            self.register("action", name, action)


class _Command(_Parser):
    """Takes sizes after options, too."""

    _is_intermixed = False

    def parse_known_args(  # pyright: ignore[reportIncompatibleMethodOverride] - overloads
        self, args: Any = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Parse options first, then what is left as a kernel and its sizes."""
        if self._is_intermixed:
            return super().parse_known_args(args, namespace)
        self._is_intermixed = True
        return self.parse_known_intermixed_args(args, namespace)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    root = _Parser(
        prog="countperf",
        description="Predict the run time of Loopy kernels from exact symbolic counts and weights "
        "fitted to a device.",
    )
    root.add_argument(
        "--print-completion",
        action=_PrintCompletion,
        metavar="SHELL",
        help="print the completion script for bash, zsh, tcsh or fish (needs shtab)",
    )
    root.add_argument("--version", action="version", version=f"countperf {__version__}")
    commands = root.add_subparsers(
        dest="command", metavar="COMMAND", required=True, parser_class=_Command
    )
    for name, text in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        command.add_argument(
            "--json", action="store_true", help="print one JSON document on standard output"
        )
        command.add_argument("--debug", action="store_true", help="show tracebacks")
        import_module(f"countperf.cli.arguments.{name}").configure(command)
    return root


_RESUMES = ("calibrate", "characterize", "measure")
"""Commands that keep what they have done when they are interrupted, and go on from there."""
_READ_ONLY = ("doctor", "devices", "weights", "count", "predict", "occupancy", "sweep", "coverage")
"""Commands of which there is nothing to keep."""


def _kept(options: argparse.Namespace) -> str:
    """Say what an interrupted command keeps of its work."""
    if options.command in _RESUMES:
        return "what is finished is kept: the same command goes on from here"
    if options.command == "compiled" and options.store is not None:
        return f"{options.store} keeps what was last written: the same command goes on from there"
    if options.command == "rank" and options.output is not None:
        return f"{options.output} has the variants predicted so far; the same command begins anew"
    if options.command in _READ_ONLY:
        return "there was nothing to keep"
    return "nothing is kept: the same command begins anew"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    with shown():
        try:
            return _run(parser().parse_args(arguments))
        except BrokenPipeError:
            _discard_output()
            return 1
        finally:
            _flush()


def _run(options: argparse.Namespace) -> int:
    """Run a command; say in a line what went wrong."""
    try:
        run: Callable[[argparse.Namespace], None] = import_module(
            f"countperf.cli.{options.command}"
        ).run
        with (
            only_documents() if options.json else contextlib.nullcontext(),
            shown_steps(),
            warnings.catch_warnings(),
        ):
            warnings.showwarning = _show_warning
            run(options)
        sys.stdout.flush()
    except CountperfError as error:
        if options.debug:
            raise
        said = in_options(str(error), options)
        print(f"countperf: {said}{_statistics(error, options)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as error:
        said = in_options(str(error), options) or f"interrupted; {_kept(options)}"
        print(f"countperf: {said}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        raise
    except (OSError, RecursionError, MemoryError) as error:
        if options.debug:
            raise
        _discard_output()
        print(f"countperf: {_said(error)}", file=sys.stderr)
        return 1
    return 0


def _show_warning(message: Warning | str, *_: object) -> None:
    print(f"countperf: {message}", file=sys.stderr)


def _statistics(error: CountperfError, options: argparse.Namespace) -> str:
    """Say which options pass the statistics that an error asks for."""
    statistics = getattr(error, "statistics", None)
    if not statistics or not hasattr(options, "statistics"):
        return ""
    given = (f"--statistics {shlex.quote(f'{name}={v}')}" for name, v in statistics.items())
    return f"; here: {' '.join(given)}"


def _said(error: OSError | RecursionError | MemoryError) -> str:
    """Say what the system refused, and what helps."""
    if isinstance(error, RecursionError):
        return "the input is nested too deeply; make it flatter (--debug shows where)"
    if isinstance(error, MemoryError):
        return "the memory is exhausted; take smaller sizes, or end other programs"
    place = error.filename or "standard output or another file without a name"
    return (
        f"{place}: {error.strerror or error}; see to it that the file can be used and that its disk"
        " has space (--debug shows who asked for it)"
    )


def _flush() -> None:
    """Write what is left, also of help and usage, whose program ends by itself."""
    try:
        sys.stdout.flush()
    except OSError as error:
        _discard_output()
        if not isinstance(error, BrokenPipeError):
            print(f"countperf: {_said(error)}", file=sys.stderr)


def _discard_output() -> None:
    """Drop what standard output still holds, so that the interpreter's end does not fail on it."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
