"""The command line: each command parses, calls a function of `countperf.api`, and prints.

Exit status: 0 done; 1 the work failed (one line on standard error, then the mend); 2 wrong usage;
130 interrupted by Ctrl-C (one line on standard error).
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
from itertools import takewhile
from textwrap import fill
from typing import Any, NoReturn

from countperf import __version__
from countperf.cli.commands import COMMANDS, EXAMPLES, configure
from countperf.cli.common import Progress, only_documents, prepare_streams, say
from countperf.errors import FLAGS, CountperfError, nearest
from countperf.steps import listening, note_interrupts

_WIDTH = 79
INTERRUPTED = 130  # exit status after Ctrl-C: 128 and the number of the signal, as shells have it


class _Command(argparse.ArgumentParser):
    """Takes sizes after options, too."""

    _is_intermixed = False

    def error(self, message: str) -> NoReturn:
        """Say in a line how the command is used, then what is wrong with this use."""
        needed = [_describe_argument(action) for action in self._actions]
        usage = " ".join(["usage:", self.prog, *filter(None, needed), "[options]"])
        self.exit(2, f"{usage}\n{self.prog}: {message} (all options: {self.prog} --help)\n")

    def parse_known_args(  # pyright: ignore[reportIncompatibleMethodOverride] - overloads
        self, args: Any = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Parse options first, then what is left as a kernel and its sizes."""
        if self._is_intermixed:
            return super().parse_known_args(args, namespace)
        for text in takewhile(lambda text: text != "--", args or ()):
            flag = text.partition("=")[0]
            known = self._option_string_actions
            if flag.startswith("--") and not any(name.startswith(flag) for name in known):
                self.error(f"there is no option {flag}{nearest(flag, known)}")
        self._is_intermixed = True  # it parses by this method
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._is_intermixed = False


def _describe_argument(action: argparse.Action) -> str:
    """Write an argument that stands in a line of usage; nothing for options that may be left."""
    name = str(action.metavar or action.dest)
    if action.option_strings:
        return f"{action.option_strings[0]} {name.upper()}" if action.required else ""
    return f"[{name}]" if action.nargs == "?" else f"[{name} ...]" if action.nargs == "*" else name


def parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    root = argparse.ArgumentParser(
        prog="countperf",
        description="Predict the run time of Loopy kernels from exact symbolic counts and weights "
        "fitted to a device.",
    )
    root.add_argument("--version", action="version", version=f"countperf {__version__}")
    commands = root.add_subparsers(
        dest="command", metavar="COMMAND", required=True, parser_class=_Command
    )
    for name, described in COMMANDS.items():
        text = described.text
        examples = "\n".join(f"  countperf {use}" for use in EXAMPLES[name])
        command = commands.add_parser(
            name,
            help=text,
            description=fill(f"{text[0].upper()}{text[1:]}.", _WIDTH),
            epilog=f"examples:\n{examples}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add_argument(
            "--json", action="store_true", help="print one JSON document on standard output"
        )
        command.add_argument("--debug", action="store_true", help="show tracebacks")
        configure(command, described)
    return root


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    prepare_streams()
    try:
        return _run(parser().parse_args(arguments))
    except BrokenPipeError:
        _discard_output()
        return 1
    finally:
        FLAGS.clear()
        try:  # what is left, also of help and usage, whose program ends by itself
            sys.stdout.flush()
        except OSError as error:
            _discard_output()
            if not isinstance(error, BrokenPipeError):
                say(f"countperf: {_describe_refusal(error)}")


def _run(options: argparse.Namespace) -> int:
    """Import and run a command; say in a line what went wrong, or what Ctrl-C left."""
    module = import_module(f"countperf.cli.{COMMANDS[options.command].module}")
    run: Callable[[argparse.Namespace], None] = getattr(module, f"run_{options.command}")
    FLAGS.update(options.flags)  # messages name them
    with note_interrupts() as interrupts:
        try:
            with (
                only_documents() if options.json else contextlib.nullcontext(),
                listening(Progress().step),
                warnings.catch_warnings(),
            ):
                warnings.showwarning = lambda message, *_: say(f"countperf: {message}")
                run(options)
            sys.stdout.flush()
            return 0
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) or interrupts:
                said = str(error) if isinstance(error, KeyboardInterrupt) else ""
                kept = "nothing is kept: the same command begins anew"
                if options.command == "calibrate" or getattr(options, "store", None):
                    kept = "what is finished is kept: the same command goes on from here"
                say(f"countperf: {said or f'interrupted; {kept}'}")
                return INTERRUPTED
            if options.debug or isinstance(error, BrokenPipeError):
                raise
            if isinstance(error, CountperfError):
                say(f"countperf: {error}{_statistics(error, options)}")
            elif isinstance(error, OSError | RecursionError | MemoryError):
                _discard_output()
                say(f"countperf: {_describe_refusal(error)}")
            else:
                raise
            return 1


def _statistics(error: CountperfError, options: argparse.Namespace) -> str:
    """Say which options pass the statistics that an error asks for."""
    statistics = getattr(error, "statistics", None)
    if not statistics or not hasattr(options, "statistics"):
        return ""
    given = (f"--statistics {shlex.quote(f'{name}={v}')}" for name, v in statistics.items())
    return f"; here: {' '.join(given)}"


def _describe_refusal(error: OSError | RecursionError | MemoryError) -> str:
    """Say what the system refused, and what helps."""
    if isinstance(error, RecursionError):
        return "the input is nested too deeply; make it flatter (--debug shows where)"
    if isinstance(error, MemoryError):
        return "the memory is exhausted; take smaller sizes, or end other programs"
    path = error.filename or "standard output or another file without a name"
    return (
        f"{path}: {error.strerror or error}; see to it that the file can be used and that its disk"
        " has space (--debug shows who asked for it)"
    )


def _discard_output() -> None:
    """Drop what standard output still holds, so that the interpreter's end does not fail on it."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
