#!/usr/bin/env python3
"""Seed faults into the functions of some packages, and count those that the tests catch.

    scripts/seed_faults.py record map.json -m "not long" tests  # options of pytest
    scripts/seed_faults.py run map.json faults.json             # draws faults if the file is new

Needs Python 3.12. All work is done in temporary copies of a commit: an interrupt leaves no fault
behind, and the same command goes on. A fault is known by the qualified name of its function, its
kind, and its statement without names, so that it is found again in code that moved.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import io
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("counting", "symbolic", "models", "machine_code")
OUTCOMES = ("killed", "timed out", "survived", "gone")
SLOWEST_S, MEMORY_BYTE = 20.0, 16 << 30
"""Time of the processor of tests that are left out; memory of a process of tests."""

_ARITHMETIC = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr, ast.BitXor: ast.BitOr, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip
_COMPARISON = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE,
    ast.LtE: ast.Gt, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_BOUNDARY = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
_SAME_EITHER_WAY = ("isinstance", "cast", "getattr", "min", "max", "zip")


class Site(NamedTuple):
    """A node that a fault may replace."""

    file: str
    function: str  # qualified name
    kind: str
    number: int  # among those of its kind in the function
    text: str  # first line of the statement
    shape: str  # the statement without names, and the node's number among its nodes
    old: str
    node: Any
    new: Any


# --- places of faults


def _changes(node: Any, returns: str) -> Iterator[tuple[str, Any]]:
    """Yield kinds of faults of a node and what replaces it."""
    match node:
        case ast.BinOp(left=ast.Constant(str())):
            return
        case ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in _ARITHMETIC:
            yield "arithmetic", _with(node, op=_ARITHMETIC[type(op)]())
            if isinstance(node, ast.AugAssign):
                yield "statement", ast.Pass()
        case ast.Compare(ops=[op]):
            for kind, others in (("comparison", _COMPARISON), ("boundary", _BOUNDARY)):
                if type(op) in others:
                    yield kind, _with(node, ops=[others[type(op)]()])
        case ast.Constant(value=bool() as value):
            yield "boolean", ast.Constant(not value)
        case ast.Constant(value=int() | float() as value):
            yield "constant", ast.Constant(value + 1)
        case ast.BoolOp(op=op):
            yield "boolean", _with(node, op=ast.Or() if isinstance(op, ast.And) else ast.And())
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            yield "condition", ast.UnaryOp(ast.Not(), test)
        case ast.Return(value=ast.expr() as value):
            if by := _other_result(value, returns):
                yield "return", ast.Return(by)
        case ast.Call(func=func, args=[one, two, *rest]):
            starred = {type(one), type(two)} & {ast.Starred} or ast.dump(one) == ast.dump(two)
            if ast.unparse(func) not in _SAME_EITHER_WAY and not starred:
                yield "argument", _with(node, args=[two, one, *rest])
        case ast.Call(func=func, keywords=[*others, ast.keyword(arg=str() as name)]):
            if name != "strict" and ast.unparse(func).rpartition(".")[2][:1].islower():
                yield "argument", _with(node, keywords=others)
        case ast.Assign(targets=[target], value=value):
            read = {n.id for n in ast.walk(value) if isinstance(n, ast.Name)}
            if isinstance(target, ast.Subscript | ast.Attribute) or ast.unparse(target) in read:
                yield "statement", ast.Pass()
        case ast.Expr(value=ast.Call()):
            yield "statement", ast.Pass()


def _with(node: Any, **fields: Any) -> Any:
    new = copy.copy(node)
    for name, value in fields.items():
        setattr(new, name, value)
    return new


def _other_result(value: ast.expr, returns: str) -> ast.expr | None:
    """Return a wrong result, of the annotated type where that is simple; `None` if none is."""
    if returns == "bool":
        return ast.UnaryOp(ast.Not(), value)
    if returns in ("int", "float"):
        return ast.BinOp(value, ast.Add(), ast.Constant(1))
    empty = re.match(r"(tuple|frozenset|list|set|dict|str)\b", returns)
    nothing = ("()", "[]", "{}", "''", "set()", "frozenset()") if empty else "None"
    if ast.unparse(value) in nothing:
        return None
    return ast.Call(ast.Name(empty[1], ast.Load()), [], []) if empty else ast.Constant(None)


def _nodes(node: Any, prefix: str, function: str, statement: Any, returns: str) -> Iterator[Any]:
    """Yield nodes in functions, with the function's name, the statement, and the annotation."""
    children: list[Any] = list(ast.iter_child_nodes(node))
    match node:
        case ast.Raise() | ast.Assert() | ast.JoinedStr() | ast.arguments() | ast.pattern():
            return
        case ast.keyword(arg="strict"):
            return
        case ast.FunctionDef():
            function, children = prefix + node.name, node.body
            prefix, returns = f"{function}.<locals>.", ast.unparse(node.returns or ast.Pass())
        case ast.ClassDef():
            prefix, children = f"{prefix}{node.name}.", node.body
        case ast.AnnAssign():
            statement, children = node, [node.value] if node.value else []
        case ast.stmt():
            statement = node
    if function and statement is not None:
        yield node, function, statement, returns
    for child in children:
        yield from _nodes(child, prefix, function, statement, returns)


def _shape(statement: Any) -> str:
    """Write a statement, but not those in it, without names."""
    if isinstance(statement, ast.Try | ast.Match):
        return type(statement).__name__
    is_compound = hasattr(statement, "body")
    bare = _with(statement, body=[ast.Pass()], orelse=[]) if is_compound else statement
    bare = copy.deepcopy(bare)
    for inner in ast.walk(bare):
        for field in ("id", "arg", "attr"):
            if isinstance(getattr(inner, field, None), str):
                setattr(inner, field, "_")
    return ast.unparse(bare)


@cache
def sites(tree: Path, file: str) -> list[Site]:
    """Return where faults can be in a file."""
    result: list[Site] = []
    source, counted, of, order, shape = (tree / file).read_text(), Counter[str](), None, 0, ""
    for node, function, statement, returns in _nodes(ast.parse(source), "", "", None, ""):
        if statement is not of:
            of, order, shape = statement, 0, _shape(statement)
        order += 1
        for kind, new in _changes(node, returns):
            at = node.test if kind == "condition" else node
            text = source.splitlines()[statement.lineno - 1].strip()
            number = counted[f"{function} {kind}"]
            counted[f"{function} {kind}"] += 1
            old = ast.get_source_segment(source, at) or ""
            new = ast.fix_missing_locations(new)
            known = (file, function, kind, number, text, f"{shape} @{order}", old)
            result.append(Site(*known, at, new))
    return result


def _files(tree: Path, *packages: str) -> list[str]:
    paths = [path for name in packages for path in (tree / "countperf" / name).rglob("*.py")]
    return sorted(str(path.relative_to(tree)) for path in paths)


# --- faults


def draw(tree: Path, number: int, seed: int) -> list[dict[str, Any]]:
    """Draw faults, as many of each kind."""
    every = [site for file in _files(tree, *PACKAGES) for site in sites(tree, file)]
    random.Random(seed).shuffle(every)
    by_kind: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for site in every:
        fields = dict(zip(Site._fields[:-2], site, strict=False))
        by_kind[site.kind].append({**fields, "by": ast.unparse(site.new), "runs": {}})
    kinds = sorted(by_kind)
    return [by_kind[kinds[k % len(kinds)]].pop() for k in range(number)]


def locate(fault: dict[str, Any], tree: Path) -> Site | None:
    """Find where to seed a fault: its statement in its function, wherever that stands now."""

    def unlikeness(site: Site) -> tuple[float, ...] | None:
        differences = [getattr(site, n) != fault[n] for n in ("function", "shape", "file")]
        if site.kind != fault["kind"]:
            return None
        if differences[0] and (differences[1] or site.text != fault["text"]):
            return None  # neither the function nor one with another name
        if differences[1] and site.old != fault["old"]:
            return None
        unlike = 1 - SequenceMatcher(None, site.text, fault["text"]).ratio()
        return (*differences[:2], unlike, differences[2], abs(site.number - fault["number"]))

    its_own = [fault["file"]] if (tree / fault["file"]).exists() else []
    for files in (its_own, _files(tree, "")):
        every = [(unlikeness(site), site) for file in files for site in sites(tree, file)]
        likely = [(rank, site) for rank, site in every if rank is not None]
        if likely and (files != its_own or not min(rank for rank, _ in likely)[1]):
            return min(likely, key=lambda pair: pair[0])[1]
    return None


def seeded(source: str, site: Site) -> str:
    """Write a module with a fault."""
    lines, by = source.encode().splitlines(keepends=True), ast.unparse(site.new)
    begin = sum(map(len, lines[: site.node.lineno - 1])) + site.node.col_offset
    end = sum(map(len, lines[: site.node.end_lineno - 1])) + site.node.end_col_offset
    by = f"({by})" if isinstance(site.node, ast.expr) else by
    code = source.encode()
    return (code[:begin] + by.encode() + code[end:]).decode()


# --- recording, as a plug-in of pytest

_file = os.environ.get("SEED_FAULTS")
_reached: set[str] = set()
_outcomes: list[bool] = []
_begun_s = [0.0]


def pytest_configure() -> None:
    """Have the first call of each function in a test be told."""
    package, events = str(Path.cwd() / "countperf") + os.sep, sys.monitoring

    def started(code: Any, _offset: int) -> object:
        if code.co_filename.startswith(package):
            _reached.add(f"{code.co_filename[len(package) - 10 :]} {code.co_qualname}")
        return events.DISABLE

    if _file:
        events.use_tool_id(4, "seed_faults")
        events.register_callback(4, events.events.PY_START, started)
        events.set_events(4, events.events.PY_START)
        _begun_s[0] = sum(os.times()[:4])


def pytest_runtest_logreport(report: Any) -> None:
    """Write the functions and the time of a test that passes."""
    if not _file or hasattr(report, "node"):  # told again by a worker
        return
    _outcomes.append(report.passed)
    if report.when == "teardown":
        now_s = sum(os.times()[:4])  # of the processor, as the machine may be busy
        seconds, _begun_s[0] = now_s - _begun_s[0], now_s
        if all(_outcomes) and seconds < SLOWEST_S:
            with Path(f"{_file}.{os.getpid()}").open("a") as file:
                file.write(json.dumps([report.nodeid, round(seconds, 2), sorted(_reached)]) + "\n")
        _outcomes.clear()
        _reached.clear()
        sys.monitoring.restart_events()


def record(tree: Path, map_file: Path, arguments: list[str]) -> None:
    """Write which tests execute which functions, and how long they take."""
    (tree / "scripts" / "seed_faults.py").write_bytes(Path(__file__).read_bytes())
    with tempfile.TemporaryDirectory() as folder:
        path = f"{tree}:{tree / 'scripts'}"
        environment = {**os.environ, "PYTHONPATH": path, "SEED_FAULTS": f"{folder}/lines"}
        command = [sys.executable, "-m", "pytest", "-p", "seed_faults", "--tb=no", "-q", *arguments]
        subprocess.run(command, cwd=tree, env=environment, check=False)
        tests = [json.loads(t) for f in Path(folder).iterdir() for t in f.read_text().splitlines()]
    functions = sorted({name for _, _, names in tests for name in names})
    numbers = {name: number for number, name in enumerate(functions)}
    rows = {test: [s, [numbers[name] for name in names]] for test, s, names in tests}
    map_file.write_text(json.dumps({"functions": functions, "tests": rows}))


# --- running


def chosen(known: Any, name: str, most: list[float]) -> tuple[list[str], float]:
    """Choose tests that execute a function, the fastest of each file first; add their seconds."""
    number = known["functions"].index(name) if name in known["functions"] else -1
    of_files: dict[str, dict[str, float]] = defaultdict(dict)
    for test, (s, _) in known["tests"].items():
        of_files[test.split("::")[0]][test] = s
    ranked: list[tuple[int, float, str]] = []
    for of_file in of_files.values():  # whose first test pays for the fixtures
        first = max(next(iter(of_file.values())) - statistics.median(of_file.values()), 0)
        executing = [test for test in of_file if number in known["tests"][test][1]]
        for turn, test in enumerate(sorted(executing, key=lambda test: of_file[test])):
            ranked.append((turn, of_file[test] + (0 if turn else first), test))
    tests, total = list[str](), 0.0
    for _, s, test in sorted(ranked):
        if len(tests) < most[0] and total + s <= most[1]:
            tests.append(test)
            total += s
    return tests, total


def examine(fault: dict[str, Any], known: Any, most: list[float]) -> dict[str, Any]:
    """Seed a fault, and run tests until one fails; first those that caught it before."""
    site = locate(fault, _trees[0])
    if site is None:
        return {"outcome": "gone"}
    tests, seconds = chosen(known, f"{site.file} {site.function}", most)
    killers = [run.get("killer", "").split(" - ")[0] for run in fault["runs"].values()]
    tests = list(dict.fromkeys([*(k for k in killers if k in known["tests"]), *tests]))
    path, begin, limit_s = _trees[1] / site.file, time.time(), 40 + int(3 * seconds)
    result = {"outcome": "survived", "at": f"{site.file}:{site.node.lineno}", "tests": len(tests)}
    source = path.read_text()
    try:
        path.write_text(seeded(source, site))
        os.utime(path, (begin, begin))  # of no compiled file
        for some in filter(None, (tests[:6], tests[6:])):
            outcome, killer, missing = _first_failure(_trees[1], some, limit_s)
            if missing:  # whose names the fault changed
                some = [test for test in some if test not in missing]
                outcome, killer, missing = _first_failure(_trees[1], some, limit_s)
            if outcome != "survived":
                return {**result, "outcome": outcome, "killer": killer}
        return result
    finally:
        path.write_text(source)
        os.utime(path, (begin - 1e6, begin - 1e6))


def _first_failure(tree: Path, tests: list[str], limit_s: int) -> tuple[str, str, list[str]]:
    """Run tests; return the outcome, the test that failed, and tests that do not exist."""
    limits = ["prlimit", f"--cpu={limit_s}", f"--as={MEMORY_BYTE}"]
    quiet = ["-p", "no:cacheprovider", "-p", "no:xdist", "-q", "-x", "--tb=line"]
    process = subprocess.Popen(
        [*limits, sys.executable, "-m", "pytest", *quiet, *tests],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=8 * limit_s)
    except subprocess.TimeoutExpired:
        return "timed out", "", []
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    code = process.returncode
    missing = re.findall(r"^ERROR: not found: \S*?/((?:tests|countperf)/.*)$", output, re.M)
    if code == 4 and missing and "ERROR collecting" not in output:
        return "", "", missing
    if -code in (signal.SIGXCPU, signal.SIGKILL):
        return "timed out", "", []
    failed = re.findall(r"^(?:FAILED|ERROR) (.*)$", output, re.M)
    return ("killed", (failed or [output])[0][-300:], []) if code else ("survived", "", [])


_trees: list[Path] = []


def _begin(commit: str, folder: Path) -> None:
    """Make two copies of a commit, of which one stays as it is."""
    archive = subprocess.run(["git", "-C", ROOT, "archive", commit], stdout=-1, check=True).stdout
    for name in ("whole", "seeded"):
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            tar.extractall(folder / name, filter="data")
        _trees.append(folder / name)


def table(faults: list[dict[str, Any]], label: str) -> str:
    """Write the outcomes of each package, and what was caught before."""
    rows = [f"{label:16}" + "".join(f"{name:>12}" for name in OUTCOMES)]
    for package in (*PACKAGES, ""):
        inside = [f["runs"] for f in faults if f["file"].startswith(f"countperf/{package}")]
        counted = Counter(runs[label]["outcome"] for runs in inside if label in runs)
        rows.append(f"{package or 'all':16}" + "".join(f"{counted[name]:12}" for name in OUTCOMES))
    for fault in faults:
        ends = [run["outcome"] for run in fault["runs"].values()]
        if ends[-1:] == ["survived"] and set(ends) & set(OUTCOMES[:2]):
            rows.append(f"no longer caught: {fault['file']} {fault['function']}: {fault['text']}")
    return "\n".join(rows)


def main() -> None:
    """Record, or run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=["record", "run"])
    parser.add_argument("map", type=Path, help="file: which tests execute which functions")
    parser.add_argument("faults", type=Path, nargs="?", help="file of faults and outcomes")
    parser.add_argument("--commit", default="HEAD", help="whose code and tests run")
    parser.add_argument("--label", default="before", help="of this run's outcomes")
    parser.add_argument("--caught", metavar="LABEL", help="only faults that this run caught")
    parser.add_argument("--number", type=int, default=200, help="of faults to draw")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--most", type=float, nargs=2, default=[40, 30], help="tests and seconds")
    given, arguments = parser.parse_known_args()
    with tempfile.TemporaryDirectory(prefix="seed-faults-") as temporary:
        _begin(given.commit, Path(temporary))
        if given.action == "record":
            record(_trees[0], given.map, arguments)
        else:
            run(given)


def run(given: argparse.Namespace) -> None:
    """Examine those faults of a file that have no outcome yet, and keep each."""
    if given.faults.exists():
        faults = json.loads(given.faults.read_text())
    else:
        faults = draw(_trees[0], given.number, given.seed)
    known = json.loads(given.map.read_text())
    left = [f for f in faults if given.label not in f["runs"]]
    if given.caught:
        left = [f for f in left if f["runs"][given.caught]["outcome"] in OUTCOMES[:2]]
    for fault in left:
        fault["runs"][given.label] = result = examine(fault, known, given.most)
        given.faults.write_text(json.dumps(faults, indent=1))
        print(result["outcome"], fault["function"], fault["text"], result, flush=True)
    print(table(faults, given.label))


if __name__ == "__main__":
    main()
