"""All options of the command line, of which the parser, its help and the documentation are made."""

from __future__ import annotations

import argparse
import ast
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from os import environ
from pathlib import Path
from typing import Any

from countperf.errors import ParameterError
from countperf.sizes import parse_sizes


def assignment(text: str) -> tuple[str, str]:
    """Split ``name=value``, for argparse."""
    name, sign, value = text.partition("=")
    if not sign or not name.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form name=value")
    return name.strip(), value.strip()


def check_not_empty(text: str) -> str:
    """Refuse an empty text, for argparse."""
    if not text.strip():
        raise argparse.ArgumentTypeError(f"{text!r} names nothing; leave the option out")
    return text


def size(text: str) -> tuple[str, int]:
    """Parse ``n=1024``, for argparse."""
    name, value = assignment(text)
    if "," in value or ":" in value:
        said = f"{text!r}: one value of {name} is taken here, as in {name}=1024"
        raise argparse.ArgumentTypeError(f"{said}; give the command once for each value")
    return sizes(text)  # pyright: ignore[reportReturnType] - without commas one value


def sizes(text: str) -> tuple[str, int | tuple[int, ...]]:
    """Parse ``n=1024``, ``n=256,512``, ``n=256:4096:8`` or ``n=256:4096:8:log``, for argparse."""
    name, value = assignment(text)
    try:
        return name, parse_sizes(name, value)
    except ParameterError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def natural(text: str) -> int:
    """Parse an integer that is at least 1, for argparse."""
    if not re.fullmatch(r"0*[1-9]\d*", text.strip()):
        raise argparse.ArgumentTypeError(f"{text} is no integer of at least 1")
    return int(text)


def positive(text: str) -> float:
    """Parse a finite number above 0, for argparse."""
    with suppress(ValueError):
        if 0 < float(text) < math.inf:
            return float(text)
    raise argparse.ArgumentTypeError(f"{text} is no number above 0")


def statistic(text: str) -> tuple[str, float | str]:
    """Parse ``row_length=12.5``, ``update=0.3`` or ``x=stride1``, for argparse."""
    from countperf.counting.statistics import ACCESS_CLASSES  # start-up: it imports Loopy

    name, _, value = (part.strip() for part in text.rpartition("="))
    try:
        return name, value if value in ACCESS_CLASSES else float(value)
    except ValueError as error:
        said = f"{text!r}: {value!r} is no number, and no access pattern such as stride1"
        raise argparse.ArgumentTypeError(said) from error


def instruction_counts(text: str) -> dict[str, dict[str, float]]:
    """Parse ``{'raw': {'flop.add.f32': 1}}``, as messages print it, for argparse."""
    from pydantic import TypeAdapter  # start-up

    try:
        counts = ast.literal_eval(text)
        return TypeAdapter(dict[str, dict[str, float]]).validate_python(counts, strict=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        said = "is no dictionary of numbers by property name by instruction, such as"
        example = "{'raw': {'flop.add.f32': 1}}"
        raise argparse.ArgumentTypeError(f"{text!r} {said} {example}") from error


def anchor_run(text: str) -> tuple[dict[str, int], float] | Path:
    """Parse ``n=1024,m=64:0.0021``, or a file of ``countperf time --output``, for argparse."""
    if "=" not in text or Path(text).is_file():
        return Path(text)
    sizes, sign, seconds = text.rpartition(":")
    if not sign:
        said = "is not of the form n=1024:0.0021, and no file of countperf time --output"
        raise argparse.ArgumentTypeError(f"{text!r} {said}")
    pairs = [size(part) for part in sizes.split(",") if part]
    if len(dict(pairs)) < len(pairs):
        raise argparse.ArgumentTypeError(f"{text!r} gives a size twice; give it once")
    return dict(pairs), positive(seconds)


def value(metavar: str | None, text: str, **more: Any) -> dict[str, Any]:
    """Describe an option that takes a value, which is not empty."""
    return {"metavar": metavar, "type": check_not_empty, "help": text, **more}


def several(metavar: str | None, text: str, **more: Any) -> dict[str, Any]:
    """Describe an option that may be given several times."""
    return value(metavar, f"{text} (repeatable)", **{"default": [], "action": "append", **more})


def flag(text: str, **more: Any) -> dict[str, Any]:
    """Describe an option that is given or not."""
    return {"action": "store_true", "help": text, **more}


PROFILES = ("quick", "broad", "trial")
_PROFILE = environ.get("COUNTPERF_PROFILE", "")
OPTIONS: Mapping[str, dict[str, Any]] = {
    # what is asked about
    "kernel": {
        "help": "path/file.py:function, package.module:function, a catalogue name, or a"
        " property-vector document (.json)"
    },
    "parameters": value(
        "name=value",
        "sizes: n=1024, n=2**20, n=1M (a million) or n=1Mi; several values: n=256,512,1024,"
        " n=256:4096:8 (evenly spaced, both ends) or n=256:4096:8:log; those of several"
        " parameters go together value by value",
        nargs="*",
        type=sizes,
    ),
    "space": {
        "help": "matmul, stencil, dg-differentiation, transpose, convolution, path/file.py:name or"
        " package.module:name of a SearchSpace"
    },
    "measurements": {"help": "a campaign's file (.jsonl)"},
    "action": {
        "help": "show: print the weights of a fit; remove: delete a fit of your own",
        "nargs": "?",
        "choices": ("show", "remove"),
    },
    "fit": {"help": "name of the fit, such as mine/run", "nargs": "?", "metavar": "NAME"},
    "application": {
        "help": "file with a step in each line: h2d BYTES, d2h BYTES, d2d BYTES to=NUMBER, host"
        " SECONDS, kernel KERNEL n=4*N; each may have stream=NAME, device=NUMBER (or all),"
        " name=NAME, after=NAME,NAME; numbers are formulas of variables and of devices"
    },
    "what": {
        "metavar": "FIT|KERNEL|SEARCH",
        "help": "a fit by name or its file (.json), a kernel as for countperf predict, or the file"
        " of a search (.jsonl)",
    },
    "--statistics": several(
        "NAME=VALUE",
        "what depends on data: mean trip count of a loop, probability of a condition, or access"
        " pattern of an array (such as x=stride1)",
        type=statistic,
        default=None,
    ),
    "--instruction-counts": value(
        "DICT",
        "counts for one execution of each instruction without a counting rule (C code, atomic"
        " updates), such as \"{'raw': {'flop.add.f32': 1, 'gmem.load.32.stride1': 1}}\"",
        type=instruction_counts,
    ),
    # what predicts
    "--weights": value(
        "SLUG|PATH", "fitted weights: a device's slug or a file; by default those of --device"
    ),
    "--model": value(
        "NAME",
        "model whose weights predict, such as linear (the paper's); by default compiled where"
        " device and compiler are here, else structural",
    ),
    "--device": value(
        "NAME",
        "the device that runs kernels: pocl:0, intel:0, cuda:0, or a part of its name (countperf"
        " doctor lists them); by default the first GPU that works, else the first device. Without"
        " --weights, those of this device predict",
    ),
    "--force": flag("use weights that do not match the device"),
    "--incomplete": flag(
        "leave out properties without a weight; guess shares of those that the fit cannot tell"
        " apart",
        dest="incomplete_ok",
    ),
    "--level": value(
        None,
        "share of cases in which the interval holds the measured time (default: 0.95)",
        choices=(0.9, 0.95),
        type=float,
        default=0.95,
    ),
    "--on": value(
        "SLUG|FILE",
        "described device for mechanistic models: a slug, such as nvidia-gtx-970, a TOML file, or"
        " the output of characterize --output",
        dest="document",
    ),
    "--registers": value(
        "N",
        "mechanistic models: registers of a work item (default: from nvcc, if it is installed)",
        type=natural,
        dest="registers_per_work_item",
    ),
    "--metrics": value(
        "FILE",
        "mechanistic models: metrics of this kernel at these sizes from ncu --csv, for counts",
    ),
    "--sass": value(
        "FILE", "mechanistic models: machine code of the kernel, listed by cuobjdump or nvdisasm"
    ),
    "--anchor": several(
        "FILE|SIZES:SECONDS",
        "correct by measured runs of this kernel: a file of countperf time --output FILE, or one"
        " run as in n=1024,m=64:0.0021",
        type=anchor_run,
    ),
    # what is shown
    "--explain": flag(
        "also print the time of each part, the rate that its weight implies, and whether the device"
        " can reach it; in comparisons, all parts that differ. With --model tmm: formulas of work,"
        " span and transactions, and with --against-kernel, from which size on it takes fewer steps"
    ),
    "--against": value("SLUG|PATH", "compare part by part with other weights"),
    "--against-kernel": value("KERNEL", "compare part by part with another kernel"),
    "--against-size": several(
        "NAME=VALUE", "compare part by part at another size, or this one of the other", type=size
    ),
    "--view": value(
        None,
        "count what Loopy emits (source, the default), or what an optimizing compiler leaves",
        choices=("source", "compiled"),
    ),
    "--analysis": flag(
        "print the structure of the kernel instead: barrier regions, loops, chains, strides; at"
        " given sizes also transactions and passes over banks of sub-groups of 32 work items"
    ),
    "--figure": value("FILE", "also draw it (.svg, .png, .pdf; needs matplotlib)"),
    "--output": value("FILE", "also write the result as a document"),
    # how much work is done
    "--points": value(
        "N", "predict only N points, scattered over the space (default: all)", type=natural
    ),
    "--longest": value(
        "SECONDS",
        "end a kernel that takes longer to build, count or run; by default 300 for time, 60 for"
        " rank, and for tune half of the budget, a minute at most",
        type=positive,
        dest="longest_s",
    ),
    "--budget": value(
        "SECONDS",
        "time to spend, predictions included (default: 60, unless --measurements is given)",
        type=positive,
    ),
    "--measurements": value("FILE", "a campaign's file (.jsonl)"),
    "--store": value("FILE", "a file (.jsonl); the same command goes on where it stopped"),
    "--minutes": value(
        "NUMBER",
        "time for all of it; 1 to 60 (default: 3). The same command again measures further kernels",
        type=positive,
        default=3.0,
    ),
    "--busy": flag(
        "go on although other programs use the machine: unsettled times count, intervals are wider"
    ),
    # which kernels
    "--profile": value(
        None,
        "quick: the paper's kernels, two minutes; broad: extended classes and random shapes as"
        " well (default); trial: half a minute, to see that all works. The environment variable"
        " COUNTPERF_PROFILE can name the default",
        choices=PROFILES,
        default=_PROFILE if _PROFILE in PROFILES else "broad",
    ),
    "--family": several(None, "only this family of kernels"),
    "--purpose": several(
        None,
        "only kernels for this purpose (default: measurement and test, or the named families)",
        choices=("measurement", "test", "application", "variant"),
    ),
    "--collection": several(
        None,
        "only these kernels (default: the named families, or those of the profile); kernels of"
        " other projects, downstream, judge fits with --purpose application",
        choices=("paper", "extended", "random", "published", "downstream"),
    ),
    "--kernels": value(
        "FILE.py[:NAME]",
        "for a table: the file of the kernels that its column kernel names (default: the"
        " catalogue); with a name, that kernel, also of a table without that column",
    ),
    "--kernel": value(
        "KERNEL",
        "errors on a kernel of yours instead, from its times alone: which model to trust for it",
    ),
    "--timing": value("FILE", "times of --kernel, of countperf time KERNEL n=... --output FILE"),
    "--arguments": value(
        "FILE:FUNCTION",
        "a function from a random generator and a dictionary of the sizes to the inputs by name;"
        " by default they are made from the kernel's arguments",
        dest="make_arguments",
    ),
    "--unchecked": flag(
        "run the kernel also where a subscript that data decide may leave its array"
    ),
    "--objective": value(
        None,
        "what is made small: squares of relative errors, all cases alike (paper; default of"
        " linear), or the model's own sum, noisy cases for less (noise; default of others)",
        choices=("paper", "noise"),
    ),
    "--protocol": value(
        None,
        "how each kernel is timed: by default as the profile has it; paper: 30 runs, of which the"
        " first 4 do not count, and the smallest of the others is the time",
        choices=("broad", "quick", "paper"),
    ),
    "--nonnegative": flag("keep weights at least zero (the paper's may be negative)"),
    # mechanistic axes, machine code
    "--over": value(
        None,
        "the axis: groups resident on a compute unit (default), or work items of a group",
        choices=("occupancy", "group_size"),
        default="occupancy",
    ),
    "--every-group": flag(
        "follow each group; by default one of each kind stands for all of that kind"
    ),
    "--capability": value(
        "CAPABILITY", "follow the machine code for an NVIDIA GPU, such as 9.0; no GPU is needed"
    ),
    "--name": value(
        "NAME",
        "name of the fit, for --weights mine/NAME; by default device and date, for calibrate the"
        " device; fit never replaces another fit",
    ),
}
"""Options and positional arguments by name, as `argparse` takes them."""
