"""All commands: what they do, and which options they take; cheap to import."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from countperf.cli.options import OPTIONS, natural, several, size, value


@dataclass(frozen=True, slots=True)
class Command:
    """A command."""

    module: str  # of `countperf.cli`, which has the function that runs it
    text: str  # what it does
    arguments: str = ""  # names of options
    # what differs from the table of options, by name; of a text the help
    changes: Mapping[str, str | Mapping[str, Any]] = field(default_factory=dict[str, Any])


_KERNEL = "kernel parameters --statistics"
_CODE = "--analysis --sass"
_ANALYSIS = {
    "--analysis": value(
        None,
        "mechanistic models: instructions from Loopy (counts, the default), or from machine code"
        " that nvcc makes without a GPU (sass)",
        choices=("counts", "sass"),
        action="store",
    )
}
_SPACE = "space parameters --statistics --weights --force --model --longest --device"
_ONE_SIZE = {"type": size, "help": "size parameters: n=1024"}
_OF_SPACE = {
    "parameters": _ONE_SIZE,
    "--model": "model whose weights predict all variants; by default compiled where device and"
    " compiler are here, for the 64 most promising by counts, else structural",
}
_JUDGING = {"choices": ("test", "application", "variant")}
_OF_CATALOGUE = {
    "help": "only kernels of this collection of the catalogue, such as the paper's (repeatable)"
}

COMMANDS: Mapping[str, Command] = {
    "doctor": Command(
        "doctor",
        "try every device and its weights for real; for one that fails, say why and what to do",
    ),
    "weights": Command(
        "doctor",
        "list fitted weights, those that ship and your own; show those of a fit, or remove a fit",
        "action fit --model",
        {"--model": "show only this model's weights"},
    ),
    "characterize": Command(
        "time",
        "find out by microbenchmarks what a device can do",
        "--device --store --output",
        {
            "--store": {"help": "the document of all findings (.json)", "required": True},
            "--output": "write the device document, which mechanistic models read (.json)",
        },
    ),
    "count": Command(
        "predict",
        "count a kernel's properties, symbolic in its sizes",
        f"{_KERNEL} --instruction-counts --view --analysis",
    ),
    "compiled": Command(
        "time",
        "count what the machine code of a kernel executes, by class of instructions",
        "kernel parameters --device --store --every-group --capability",
        {
            "kernel": {"nargs": "?"},
            "parameters": _ONE_SIZE,
            "--device": "one of PoCL's (default: pocl:0), or of Intel's runtime",
            "--store": "instead of a kernel: a campaign's file of this device, in which is noted"
            " what the code of each kernel executes, for fit --model compiled",
        },
    ),
    "calibrate": Command(
        "fit",
        "fit weights of a device within minutes, from what other devices say (resumes)",
        "--device --minutes --name --store --busy",
        {"--store": "where measurements are kept (.jsonl); by default in the user's data folder"},
    ),
    "measure": Command(
        "fit",
        "measure the library's kernels on a device (resumes)",
        "--device --profile --protocol --store --family --purpose --collection",
        {"--store": {"required": True}},
    ),
    "fit": Command(
        "fit",
        "fit weights to measurements",
        "measurements --kernels --device --model --collection --objective --nonnegative --name"
        " --output",
        {
            "measurements": "a campaign's file (.jsonl), a table of times (.csv), or a cache file"
            " of Kernel Tuner (.json)",
            "--device": {
                "help": "for a table: the measured device, of the catalogue or an identity (.json)",
                "metavar": "SLUG|FILE",
            },
            "--model": {
                "help": "linear, structural, compiled (by code that countperf compiled --store"
                " noted) or a model document (.toml); default: of a campaign's file all that it"
                " suffices for; of a table, and with other options, linear",
                "metavar": "NAME|FILE",
            },
            "--collection": {**_OF_CATALOGUE, "choices": ("paper", "extended", "random")},
            "--output": "write the weights to this file instead, under no name",
        },
    ),
    "time": Command(
        "time",
        "time a kernel of yours at some sizes, and compare with the predicted times",
        f"{_KERNEL} --instruction-counts --device --weights --force --model --incomplete --level"
        " --arguments --unchecked --longest --output --figure",
        {
            "--longest": {"default": 300.0},
            "--output": "keep the times as a document, for predict --anchor FILE",
        },
    ),
    "predict": Command(
        "predict",
        "predict the run time of a kernel, and where it goes",
        f"{_KERNEL} --instruction-counts --weights --force --model --device --on --registers"
        f" --incomplete --level --metrics {_CODE} --figure --anchor --explain --against"
        " --against-kernel --against-size",
        {
            "--model": {
                "help": f"{OPTIONS['--model']['help']}. Or mechanistic models, such as"
                " volkov,roofline,mwp-cwp; all: all mechanistic models",
                "metavar": "NAME[,NAME...]",
            },
            "--on": {
                "help": f"{OPTIONS['--on']['help']}. Several, fits among them, with commas between:"
                " a table of times on each",
                "metavar": "SLUG|FILE[,...]",
            },
            **_ANALYSIS,
        },
    ),
    "occupancy": Command(
        "mechanistic",
        "say how many groups of a kernel are resident on a device, and what limits them",
        f"{_KERNEL} --device --on --registers",
    ),
    "sweep": Command(
        "mechanistic",
        "predict a kernel by mechanistic models over occupancy or group size",
        f"{_KERNEL} --over --model --device --on --registers {_CODE} --figure",
        {
            **_ANALYSIS,
            "--device": "time the kernel over occupancy, too, on pocl:0, cuda:0 or part of a name",
            "--model": value("NAME[,NAME...]", "mechanistic models (default: all)", default="all"),
        },
    ),
    "application": Command(
        "mechanistic",
        "predict a sequence of transfers, kernels and work of the host",
        f"application parameters --statistics --on --model --registers {_CODE}",
        {
            **_ANALYSIS,
            "parameters": "its variables: N=1024, or N=1000,2000 devices=1,2; devices is the number"
            " of devices, alike if one is named",
            "--on": several(
                "SLUG|FILE",
                "described device, such as nvidia-gtx-970; several with commas between",
                dest="document",
                required=True,
            ),
            "--model": {"help": "model of kernels (default: merpsys)", "default": "merpsys"},
        },
    ),
    "evaluate": Command(
        "fit",
        "compare predicted with measured times of test kernels and applications",
        "measurements --weights --purpose --collection --model --force --output --figure",
        {
            "--weights": {"required": True},
            "--collection": {**_OF_CATALOGUE, "choices": ("paper", "published", "downstream")},
            "--purpose": {
                **_JUDGING,
                "help": "only kernels for this purpose (repeatable; default: all but those fitted)",
            },
        },
    ),
    "compare": Command(
        "fit",
        "compare all models on measured kernels: as published, scaled and fitted",
        "measurements --model --level --purpose --kernel --timing --statistics --on --registers"
        f" {_CODE} --output",
        {
            **_ANALYSIS,
            "--on": "described device in the place of that of the measurements or of --timing",
            "measurements": {
                "help": "devices with a shipped fit (default: all), or campaigns' files (.jsonl)",
                "nargs": "*",
                "metavar": "SLUG|FILE",
            },
            "--model": several("NAME[,NAME...]", "only these models; by default all"),
            "--level": several(
                None, "only these levels of calibration", choices=("published", "scaled"), type=str
            ),
            "--purpose": {
                **_JUDGING,
                "help": "errors on kernels for this purpose (repeatable; default: test)",
            },
        },
    ),
    "rank": Command(
        "time",
        "predict all variants of a kernel, and list those that should be fastest",
        f"{_SPACE} --incomplete --points --output",
        {
            **_OF_SPACE,
            "--longest": {"default": 60.0},
            "--output": "write each point to this file at once, as a line of JSON",
        },
    ),
    "report": Command(
        "report",
        "write a page (HTML) of a fit, a kernel or a search",
        "what parameters --output --measurements --weights --model --device --statistics",
        {
            "parameters": _ONE_SIZE,
            "--output": {"help": "the page (.html); it needs no other file", "required": True},
            "--measurements": "of a fit: a campaign, to evaluate it on kernels that are new to it",
        },
    ),
    "tune": Command(
        "time",
        "find the fastest variant of a kernel on a device within a budget (resumes)",
        f"{_SPACE} --budget --measurements --store --figure",
        {
            **_OF_SPACE,
            "--measurements": value("N", "variants to build and run at most", type=natural),
        },
    ),
}
"""The commands by name, with their arguments."""

_EXAMPLES = """
doctor
doctor --json
weights show pocl-epyc-zen5 --model structural
weights remove mine/run
characterize --device pocl:0 --store found.json
characterize --device cuda:0 --store found.json --output my-gpu.json
count kernel.py:axpy
count kernel.py:axpy n=16777216 --analysis
compiled kernel.py:axpy n=16777216 --device pocl:0
compiled kernel.py:axpy n=4096 --capability 9.0
calibrate
calibrate --device intel:0 --minutes 10 --name evening
measure --profile broad --store runs/mine.jsonl
measure --profile quick --purpose test --store runs/test.jsonl
fit runs/mine.jsonl --name first
fit times.csv --kernels kernels.py --device nvidia-titan-x --model structural
time kernel.py:axpy n=65536:4194304:4:log
time kernel.py:axpy n=65536,1048576 --weights mine/first --output times.json
predict kernel.py:axpy n=16777216 --weights pocl-epyc-zen5
predict kernel.py:axpy n=16777216 --model all --on nvidia-h100 --registers 20
occupancy kernel.py:axpy n=16777216 --on nvidia-h100 --registers 20
occupancy kernel.py:axpy n=16777216 --device cuda:0
sweep kernel.py:axpy n=16777216 --on nvidia-h100 --registers 20
sweep kernel.py:axpy n=16777216 --over group_size --on nvidia-h100 --registers 20
application steps.txt N=1000000 --on nvidia-h100
application steps.txt N=1000000,2000000 devices=1,2 --on nvidia-h100
evaluate runs/test.jsonl --weights mine/first
evaluate runs/test.jsonl --weights mine/first --figure accuracy.png
compare pocl-epyc-zen5 --model roofline,linear
compare --kernel kernel.py:axpy --timing times.json
rank matmul n=1024 m=1024 l=1024 --weights pocl-epyc-zen5 --incomplete --points 50
rank space.py:tiles n=4096 --output points.jsonl
report mine/first --measurements runs/test.jsonl --output fit.html
report kernel.py:axpy n=16777216 --weights pocl-epyc-zen5 --output axpy.html
tune matmul n=1024 m=1024 l=1024 --budget 30 --store search.jsonl
tune space.py:tiles n=4096 --measurements 20
"""
EXAMPLES = {
    name: [line for line in _EXAMPLES.splitlines() if line.split()[:1] == [name]]
    for name in COMMANDS
}
"""Two uses of each command, for its help."""


def configure(parser: argparse.ArgumentParser, command: Command) -> None:
    """Add a command's arguments to its parser, and `flags`: options by parameters of functions."""
    flags: dict[str, str] = {}
    for name in command.arguments.split():
        change = command.changes.get(name, {})
        change = {"help": change} if isinstance(change, str) else change
        action = parser.add_argument(name, **{**OPTIONS[name], **change})
        flags |= {action.dest: name} if action.option_strings else {}
    parser.set_defaults(flags=flags)
