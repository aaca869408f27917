"""Running code of the user's: what it prints goes to standard error, how it ends is an error.

Its folder is on the path of modules while it runs: last, so that a file such as ``statistics.py``
takes the place of no installed module.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path
from types import ModuleType

from countperf.errors import CountperfError, nearest

MakeError = Callable[[str], CountperfError]  # from a message to the error that is raised with it


def find_in_user_code(
    specification: str,
    kind: type,
    *,
    kind_name: str,
    error: MakeError,
    convert: Callable[[object], object] = lambda value: value,
) -> object:
    """Return the object that a text names, or what a function of that name returns."""
    path, _, name = specification.rpartition(":")
    file = Path(path) if path.endswith(".py") else None
    if file is not None and not file.is_file():
        raise error(f"there is no file {path}")
    mend = f"it has to be a {kind_name}, or a function without arguments that returns one"
    with _on_module_path(Path.cwd() if file is None else file.resolve().parent):
        with guard_user_code(f"{path} cannot be imported", error):
            module = importlib.import_module(path) if file is None else _execute(file)
        value = convert(getattr(module, name, None))
        if isinstance(value, kind):
            return value
        if not inspect.isroutine(value) and not isinstance(value, type | partial):
            there = ", ".join(named := _list_named(module, kind)) or "none"
            said = f"{path} has no {kind_name} and no function of the name {name!r}"
            raise error(f"{specification}: {said} (there: {there}){nearest(name, named)}")
        with guard_user_code(f"{specification} failed", error):
            given = inspect.signature(value).parameters.values()
            if any(it.default is it.empty and it.kind < it.VAR_POSITIONAL for it in given):
                raise error(f"{specification} takes arguments; {mend}")
            made: object = convert(value())
    if not isinstance(made, kind):
        raise error(f"{specification} returned a {type(made).__name__}; {mend}")
    return made


@contextlib.contextmanager
def guard_user_code(what: str, error: MakeError) -> Generator[None]:
    """Turn however code of the user's ends into an error; let it print to standard error only."""
    try:
        with stdout_to_stderr():
            yield
    except (KeyboardInterrupt, CountperfError):
        raise
    except SystemExit as exited:
        mend = 'put what is to run as a script under if __name__ == "__main__":'
        raise error(f"{what}: it ends the program ({exited!r}); {mend}") from exited
    except BaseException as raised:
        raise error(f"{what}: {describe_failure(raised)}") from raised


def describe_failure(raised: BaseException) -> str:
    """Say what code of the user's raised, and at which line of which of its files."""
    said = f"{type(raised).__name__}: {raised}".removesuffix(": ")
    installed = [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")]
    own = [
        frame
        for frame in traceback.extract_tb(raised.__traceback__)
        if (file := Path(frame.filename).resolve()).is_file()
        and not any(map(file.is_relative_to, (*installed, Path(__file__).parent)))
    ]
    if not own or isinstance(raised, SyntaxError):  # which says where
        return said
    return f"{said} ({own[-1].filename}, line {own[-1].lineno})"


def path_of_children() -> list[str]:
    """Return the path of modules for processes that this one starts, the user's folders last."""
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    folders = {Path.cwd(), *([Path(script).resolve().parent] if script else [])}
    own = [entry for entry in sys.path if Path(entry or ".").resolve() in folders]
    others = [entry for entry in sys.path if entry not in own]
    return [*others, *dict.fromkeys(str(Path(entry or ".").resolve()) for entry in own)]


@contextlib.contextmanager
def stdout_to_stderr() -> Generator[None]:
    """Send to standard error what is printed meanwhile, by Python, compiled code or processes."""
    with contextlib.redirect_stdout(sys.stderr), contextlib.ExitStack() as later:
        with contextlib.suppress(OSError):  # one of the two is closed
            if sys.__stdout__ is not None:
                sys.__stdout__.flush()
            saved = os.dup(1)
            later.callback(os.close, saved)
            os.dup2(2, 1)
            later.callback(os.dup2, saved, 1)
        yield


def _execute(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"_countperf_user_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # as dataclasses in the file demand
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[spec.name]
    return module


def _list_named(module: ModuleType, kind: type) -> list[str]:
    """List what a module has of a kind, and the functions that it defines."""
    return [
        name
        for name, value in vars(module).items()
        if isinstance(value, kind)
        or (callable(value) and getattr(value, "__module__", None) == module.__name__)
    ]


@contextlib.contextmanager
def _on_module_path(folder: Path) -> Generator[None]:
    """Put a folder last on the path of modules; forget afterwards what was imported from it."""
    if folder in {Path(entry or ".").resolve() for entry in sys.path}:
        yield
        return
    before = set(sys.modules)
    sys.path.append(str(folder))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(str(folder))
        for name in set(sys.modules) - before:
            top = folder / name.partition(".")[0]
            file = Path(getattr(sys.modules[name], "__file__", None) or "").resolve()
            if file == top.with_suffix(".py") or top in file.parents:
                del sys.modules[name]
