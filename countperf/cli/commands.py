"""All commands: what they do, and which options they take.

With `countperf.cli.options`, this is cheap to import; the module of a command, with all that it
works with, is imported when it runs.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from countperf.cli.options import OPTIONS, choice, natural, several, size


@dataclass(frozen=True, slots=True)
class Command:
    """A command."""

    text: str  # what it does
    arguments: tuple[str, ...] = ()  # names of options
    # what differs from the table of options, by name
    changes: Mapping[str, Mapping[str, Any]] | None = None
    module: str = ""  # of `countperf.cli`; by default that of its name


_KERNEL = ("kernel", "parameters", "--statistics")
_MECHANISTIC = ("--on", "--registers")
_CODE = ("--analysis", "--sass")
_ANALYSIS = {
    "--analysis": choice(
        "mechanistic models: take instructions from Loopy (counts, the default), or from the"
        " machine code (sass) that nvcc makes of the kernel, without a GPU",
        *("counts", "sass"),
        action="store",
    )
}
_SPACE = ("space", "parameters", "--statistics", "--weights", "--force", "--model", "--longest")
_BY_COUNTS = {
    "help": "model whose weights predict variants, by counts; by default the structural one"
    " (no compiled code is read)"
}
_ONE_SIZE = {"type": size, "help": "size parameters: n=1024"}
_OPTIONAL_PLACE = {"nargs": "?"}


def _help(text: str, **more: Any) -> dict[str, Any]:
    return {"help": text, **more}


COMMANDS: Mapping[str, Command] = {
    "doctor": Command(
        "try every device and its weights for real; for one that fails, say why and what to do",
    ),
    "weights": Command(
        "list fitted weights: shipped and your own, their models, errors, device", module="doctor"
    ),
    "characterize": Command(
        "find out by microbenchmarks what a device can do",
        ("--device", "--store", "--output"),
        {
            "--store": _help(
                "the document of all findings (.json)",
                required=True,
            ),
            "--output": _help(
                "write the device document alone, which the mechanistic models read (.json)"
            ),
        },
        module="time",
    ),
    "count": Command(
        "count a kernel's properties, symbolic in its sizes",
        (*_KERNEL, "--instruction-counts", "--view", "--analysis"),
    ),
    "compiled": Command(
        "count what the machine code of a kernel executes, by class of instructions",
        (
            "kernel",
            "parameters",
            "--device",
            "--store",
            "--every-group",
            "--capability",
        ),
        {
            "kernel": _OPTIONAL_PLACE,
            "parameters": _help(
                "sizes to launch the kernel at, once, with zeros: n=1024", type=size
            ),
            "--device": _help("one of PoCL's (default: pocl:0), or of Intel's runtime"),
            "--store": _help(
                "instead of a kernel: a campaign's file of this device, in which what the code of"
                " each kernel executes is noted, for fit --model compiled"
            ),
        },
        module="time",
    ),
    "calibrate": Command(
        "fit weights of a device within minutes, from what other devices say (resumes)",
        ("--device", "--minutes", "--name", "--store", "--busy"),
        {
            "--name": _help(
                "name of the fit among your own, for --weights mine/NAME (default: the device's"
                " slug)"
            ),
            "--store": _help(
                "where measurements are kept (.jsonl; default: in the user's data folder)"
            ),
        },
        module="fit",
    ),
    "measure": Command(
        "measure the library's kernels on a device (resumes)",
        (*("--device", "--profile", "--store", "--family", "--purpose", "--collection"),),
        {"--store": {"required": True}},
        module="fit",
    ),
    "fit": Command(
        "fit weights to measurements",
        (
            *("measurements", "--kernels", "--ignore", "--device", "--model", "--nonnegative"),
            *("--name", "--replace", "--output"),
        ),
        {
            "measurements": _help(
                "a campaign's file (.jsonl); or times measured elsewhere: a table (.csv) or a cache"
                " file of Kernel Tuner (.json)"
            ),
            "--device": _help(
                "for a table: the measured device, of the catalogue or an identity (.json)",
                metavar="SLUG|FILE",
            ),
            "--model": _help(
                "linear, the paper's; structural; compiled, which reads compiled code that"
                " countperf compiled --store has noted; or a model document (.toml) (default: of"
                " a campaign's file structural, linear, and compiled if"
                " code is noted, all under one name; of a table, and for --output, linear)",
                metavar="NAME|FILE",
            ),
            "--output": _help("write the weights to this file instead, under no name"),
        },
    ),
    "time": Command(
        "time a kernel of yours at some sizes, and compare with the predicted times",
        (
            *(*_KERNEL, "--instruction-counts", "--device", "--weights", "--force", "--model"),
            *("--incomplete", "--level", "--arguments", "--unchecked", "--longest"),
            *("--output", "--figure"),
        ),
        {
            "--longest": {"default": 300.0},
            "--output": _help("keep the times as a document, for predict --anchor FILE"),
        },
    ),
    "predict": Command(
        "predict the run time of a kernel, and where it goes",
        (
            *(*_KERNEL, "--instruction-counts", "--weights", "--force", "--model", "--device"),
            *(*_MECHANISTIC, "--incomplete", "--level", "--metrics", *_CODE, "--figure"),
            *("--anchor", "--explain", "--against", "--against-kernel", "--against-size"),
        ),
        {
            "--model": _help(
                f"{OPTIONS['--model']['help']}. Or mechanistic models, such as"
                " volkov,roofline,mwp-cwp; all: all mechanistic models",
                metavar="NAME[,NAME...]",
            ),
            "--on": _help(
                f"{OPTIONS['--on']['help']}. Several, fits among them, with commas between: a table"
                " of times on each, by --model or a default",
                metavar="SLUG|FILE[,...]",
            ),
            **_ANALYSIS,
        },
    ),
    "occupancy": Command(
        "say how many groups of a kernel are resident on a device, and what limits them",
        (*_KERNEL, "--device", *_MECHANISTIC),
        module="mechanistic",
    ),
    "sweep": Command(
        "predict a kernel by mechanistic models over occupancy or group size",
        (*_KERNEL, "--over", "--model", "--device", *_MECHANISTIC, *_CODE, "--figure"),
        {
            **_ANALYSIS,
            "--device": _help(
                "time the kernel too, over occupancy, on pocl:0, cuda:0 or a part of a name: unused"
                " local memory limits the resident groups"
            ),
            "--model": _help(
                "mechanistic models (default: all)", metavar="NAME[,NAME...]", default="all"
            ),
        },
        module="mechanistic",
    ),
    "application": Command(
        "predict a sequence of transfers, kernels and work of the host",
        ("application", "parameters", "--statistics", "--on", "--model", "--registers", *_CODE),
        {
            **_ANALYSIS,
            "parameters": _help(
                "values of its variables: N=1024, N=256:4096:8 or N=1000,2000 devices=1,2; devices"
                " is the number of devices, alike if one is named"
            ),
            "--on": several(
                _help("described device, such as nvidia-gtx-970; several with commas between")
            ),
            "--model": _help("model of kernels (default: merpsys)", default="merpsys"),
        },
        module="mechanistic",
    ),
    "evaluate": Command(
        "compare predicted with measured times of test kernels and applications",
        ("measurements", "--weights", "--purpose", "--model", "--force", "--output", "--figure"),
        {
            "--weights": {"required": True},
            "--purpose": choice(
                "only kernels for this purpose (repeatable; default: all that fits have not seen)",
                *("test", "application", "variant"),
            ),
        },
        module="fit",
    ),
    "compare": Command(
        "compare all models on measured kernels: as published, scaled and fitted",
        (
            *("measurements", "--model", "--level", "--purpose", "--kernel", "--timing"),
            *("--registers", *_CODE, "--output"),
        ),
        {
            **_ANALYSIS,
            "measurements": _help(
                "devices with a shipped fit, or campaigns' files (.jsonl); by default all shipped",
                nargs="*",
                metavar="SLUG|FILE",
            ),
            "--model": several(
                _help("only these models; by default all", metavar="NAME[,NAME...]")
            ),
            "--level": several(
                choice(
                    "only these levels of calibration",
                    *("published", "scaled"),
                    type=str,
                )
            ),
            "--purpose": choice(
                "errors on kernels for this purpose (repeatable; default: test)",
                *("test", "application", "variant"),
            ),
        },
        module="fit",
    ),
    "rank": Command(
        "predict all variants of a kernel, and list those that should be fastest",
        (
            *(*_SPACE, "--device", "--incomplete", "--points"),
            *("--output",),
        ),
        {
            "parameters": _ONE_SIZE,
            "--model": _BY_COUNTS,
            "--longest": _help("end work on a variant after so long (default: 60)", default=60.0),
            "--output": _help("write each point to this file at once, as a line of JSON"),
        },
        module="tune",
    ),
    "report": Command(
        "write a page (HTML) of a fit, a kernel or a search",
        (
            *("what", "parameters", "--output", "--measurements", "--weights", "--model"),
            *("--device", "--statistics"),
        ),
        {
            "parameters": _help("sizes of a kernel: n=1024", type=size),
            "--output": _help("the page (.html); it needs no other file", required=True),
            "--measurements": _help(
                "of a fit: evaluate it on the kernels of this campaign that it has not seen; by"
                " default what was stored beside the fit is shown"
            ),
        },
    ),
    "tune": Command(
        "find the fastest variant of a kernel on a device within a budget (resumes)",
        (*(*_SPACE, "--device", "--budget", "--measurements", "--store", "--figure"),),
        {
            "parameters": _ONE_SIZE,
            "--model": _BY_COUNTS,
            "--longest": _help(
                "end work on a variant after so long (default: half of the budget, a minute"
                " at most)"
            ),
            "--measurements": _help("variants to build and run at most", metavar="N", type=natural),
        },
    ),
}
"""The commands by name, with their arguments."""


def configure(parser: argparse.ArgumentParser, command: Command) -> None:
    """Add the arguments of a command to its parser, and to what it parses how they are called.

    In `flags` are the options by the parameters of functions that they are for, for messages.
    """
    changes = command.changes or {}
    added = [
        parser.add_argument(name, **{**OPTIONS[name], **changes.get(name, {})})
        for name in command.arguments
    ]
    parser.set_defaults(flags={one.dest: name for one in added for name in one.option_strings})
