"""Benchmark of predictions for work in the core: kernels whose data fits the first cache.

Times them on a device and prints measured over predicted times, by machine code and by the default
model: throughput of operations, dependent chains, mixed widths, divisions and roots, gathers,
masked and scalar remainders, short loops, triangles. No measurement kernel has their bodies.

    python scripts/core_benchmark.py --device pocl:0 --weights pocl-epyc-zen3 --output table.json
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import loopy as lp
import numpy as np

import countperf
from countperf.errors import CountperfError
from countperf.measuring.runner import QUICK

MODELS = ("compiled", "structural")
_ITEMS = 1024
_TABLE = 1024
_TYPES = {"f32": np.float32, "f64": np.float64, "i32": np.int32}


class Core(NamedTuple):
    """A kernel: statements of an item i, which may use loops over j and k."""

    family: str
    name: str
    body: str
    kind: str = "f32"  # type of x and out
    group: int = 64
    domains: tuple[str, ...] = ("{[j]: 0<=j<m}",)
    trips: int = 1024  # m
    other: str = "f32"  # type of w


def _chains() -> Iterator[Core]:
    steps = {
        "add": "s*0.5 + x[i]",
        "horner": "x[i]*s + 0.25",
        "divide": "1.5 / (s + x[i])",
        "root": "sqrt(s + x[i])",
        "minimum": "fmin(s + 0.5, x[i])",
        "horner-2": "(x[i]*s + 0.25)*s + 0.5",
    }
    for kind in ("f32", "f64"):
        for name, step in steps.items():
            trips = 256 if name in ("divide", "root") else 1024
            body = f"<> s = x[i] {{id=a}}\nfor j\n  s = {step} {{id=b,dep=a}}\nend\n"
            yield Core("chain", f"{name}-{kind}", body + "out[i] = s {dep=b}", kind, trips=trips)
    hashes = {
        "xor-shift": "(s ^ (s << 13)) ^ ((s ^ (s << 13)) >> 17)",
        "multiply": "s*1103515245 + 12345",
    }
    for name, step in hashes.items():
        body = f"<> s = x[i] {{id=a}}\nfor j\n  s = {step} {{id=b,dep=a}}\nend\n"
        yield Core("hash", name, body + "out[i] = s {dep=b}", "i32")


def _throughput() -> Iterator[Core]:
    terms = {
        "sum": "w[j]",
        "product": "x[i]*w[j]",
        "square": "(x[i] - w[j])**2",
        "quotient": "x[i] / (w[j] + 1.5)",
        "root": "sqrt(x[i] + w[j])",
        "inverse-root": "rsqrt(x[i] + w[j] + 1)",
        "polynomial-4": "(((w[j]*x[i] + 0.5)*x[i] + 0.25)*x[i] + 0.125)*x[i]",
        "rational": "(x[i]*w[j] + 1) / (w[j]*w[j] + x[i])",
        "absolute": "fabs(x[i] - w[j])",
        "largest": "fmax(x[i], w[j])*w[j]",
    }
    for kind in ("f32", "f64"):
        for name, term in terms.items():
            trips = 256 if name in ("quotient", "root", "rational", "inverse-root") else 512
            body = f"out[i] = sum(j, {term})"
            yield Core("throughput", f"{name}-{kind}", body, kind, trips=trips, other=kind)
    for count in (2, 4, 8):
        lines = [f"<> s{c} = sum(j, x[i]*w[j] + {c + 1}*w[j]*w[j])" for c in range(count)]
        body = "\n".join([*lines, "out[i] = " + " + ".join(f"s{c}" for c in range(count))])
        yield Core("throughput", f"sums-{count}", body, trips=256)


def _mixed() -> Iterator[Core]:
    pairs = (("f64", "f32"), ("f32", "i32"), ("f64", "i32"), ("f32", "f64"))
    for kind, other in pairs:
        body = "out[i] = sum(j, x[i]*w[j])"
        yield Core("mixed", f"{kind}-by-{other}", body, kind, trips=512, other=other)


def _gathers() -> Iterator[Core]:
    for kind in ("f32", "f64"):
        yield Core(
            "gather", f"walk-{kind}", "out[i] = sum(j, w[t[j]])", kind, other=kind, trips=512
        )
        body = "out[i] = sum(j, w[(t[j] + i) % 512])"
        yield Core("gather", f"items-{kind}", body, kind, other=kind, trips=256)
    yield Core("gather", "product-f32", "out[i] = sum(j, x[i]*w[t[j]] + w[j])", trips=512)


def _remainders() -> Iterator[Core]:
    for group in (60, 24, 7, 1):
        yield Core(
            "remainder", f"group-{group}", "out[i] = sum(j, x[i]*w[j])", group=group, trips=512
        )
    body = "out[i] = sum(j, if(i % 3 == 0, x[i]*w[j], w[j] + x[i]))"
    yield Core("mask", "thirds", body, trips=512)
    body = "out[i] = sum(j, if(w[j] > x[i], x[i]*w[j], w[j]))"
    yield Core("mask", "by-data", body, trips=512)


def _short() -> Iterator[Core]:
    for columns in (3, 5, 7, 12, 20):
        domains = ("{[j]: 0<=j<m}", f"{{[k]: 0<=k<{columns}}}")
        body = "out[i] = sum(j, sum(k, w[k]*x[i])*w[j])"
        trips = 2048 // columns
        yield Core("short", f"columns-{columns}", body, domains=domains, trips=min(trips, 512))
    for name, term, trips in (
        ("sum", "w[k]*w[j]", 96),
        ("root", "sqrt(w[k] + w[j])", 48),
        ("square", "(w[k] - w[j])**2", 96),
    ):
        domains = ("{[j]: 0<=j<m}", "{[k]: 0<=k<=j}")
        body = f"out[i] = x[i]*sum(j, sum(k, {term}))"
        yield Core("triangle", name, body, domains=domains, trips=trips)


def _stencils() -> Iterator[Core]:
    for points in (3, 13):
        parts = " + ".join(f"{p + 1}*w[j + {p}]" for p in range(points))
        yield Core("stencil", f"points-{points}", f"out[i] = x[i]*sum(j, {parts})", trips=256)


def kernels() -> list[Core]:
    """Return all kernels of the benchmark."""
    parts = (_chains, _throughput, _mixed, _gathers, _remainders, _short, _stencils)
    return [kernel for part in parts for kernel in part()]


def build(core: Core) -> Any:
    """Make the kernel of a row."""
    arguments: list[Any] = [
        lp.GlobalArg("out,x", _TYPES[core.kind], shape="n"),
        lp.ValueArg("n,m", np.int32),
    ]
    if "w[" in core.body:
        arguments.append(lp.GlobalArg("w", _TYPES[core.other], shape=(_TABLE + 16,)))
    if "t[" in core.body:
        arguments.append(lp.GlobalArg("t", np.int32, shape=(_TABLE,)))
    unit = lp.make_kernel(
        ["{[i]: 0<=i<n}", *core.domains],
        f"for i\n{core.body}\nend",
        arguments,
        lang_version=(2018, 2),
        assumptions=f"n>={core.group} and n mod {core.group} = 0 and 1<=m<={_TABLE}",
        name="core_" + core.name.replace("-", "_"),
    )
    return lp.split_iname(unit, "i", core.group, outer_tag="g.0", inner_tag="l.0")


def inputs(core: Core, random: np.random.Generator, sizes: Any) -> dict[str, Any]:
    """Draw inputs between one and two, and places in the table."""
    drawn: dict[str, Any] = {"x": 1 + random.random(sizes["n"])}
    if "w[" in core.body:
        drawn["w"] = 1 + random.random(_TABLE + 16)
    kinds = {"x": core.kind, "w": core.other}
    cast = {name: values.astype(_TYPES[kinds[name]]) for name, values in drawn.items()}
    if "t[" in core.body:
        cast["t"] = random.integers(0, _TABLE, _TABLE, dtype=np.int32)
    return cast


def timed(core: Core, device: str, weights: str) -> dict[str, Any]:
    """Time a kernel and predict it by each model; a refusal is a text."""
    unit = build(core)
    sizes = {"n": 4 * _ITEMS // core.group * core.group, "m": core.trips}
    shares = {"*": 0.5} if core.name == "by-data" else None
    row: dict[str, Any] = {"family": core.family, "kernel": core.name, "measured_s": None}
    timing = countperf.time_kernel(
        unit,
        sizes,
        device=device,
        make_arguments=lambda random, at: inputs(core, random, at),
        weights=weights,
        model="structural",
        statistics=shares,
        protocol=QUICK.changed(name="core", separation_s=0.5),
    )
    row["measured_s"] = timing.sizes[0].measurement.time_s
    for model in MODELS:
        try:
            row[model] = countperf.predict(
                unit, sizes, weights=weights, model=model, statistics=shares
            ).time_s
        except CountperfError as error:
            row[model] = str(error)
    return row


def summary(rows: list[dict[str, Any]], model: str) -> dict[str, Any]:
    """Return the median, mean and worst factor that a model is off by."""
    off = [
        abs(math.log(row[model] / row["measured_s"]))
        for row in rows
        if isinstance(row.get(model), float)
    ]
    return {
        "kernels": len(off),
        "refused": sum(isinstance(row.get(model), str) for row in rows),
        "median": round(math.exp(statistics.median(off)), 3),
        "mean": round(math.exp(statistics.fmean(off)), 3),
        "worst": round(math.exp(max(off)), 2),
    }


def main() -> None:
    """Time all kernels and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", required=True)
    parser.add_argument("--weights", required=True, help="name of a fit")
    parser.add_argument("--output", type=Path, help="JSON with all rows")
    parser.add_argument("--family", help="only these kernels")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for core in kernels():
        if options.family not in (None, core.family):
            continue
        try:
            row = timed(core, options.device, options.weights)
        except CountperfError as error:
            print(f"{core.family:12}{core.name:24}{str(error)[:120]}", flush=True)
            continue
        rows.append(row)
        factors = [
            f"{row['measured_s'] / row[model]:10.2f}"
            if isinstance(row[model], float)
            else " refused"
            for model in MODELS
        ]
        print(f"{core.family:12}{core.name:24}{row['measured_s']:10.3g}", *factors, flush=True)
    result = {model: summary(rows, model) for model in MODELS}
    print(json.dumps(result, indent=2))
    if options.output:
        options.output.write_text(json.dumps({"summary": result, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
