"""Ten questions, each answered by one command on four GPUs: the words against own arithmetic.

Expected values follow from the numbers of the devices' documents, read as TOML, and from what the
kernel does: each work item reads 4 bytes, multiplies, and writes 4 bytes.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.mechanistic.builders import time_as

SLUGS = ("nvidia-h100", "nvidia-a100", "nvidia-rtx-4090", "amd-mi300x")
N = 2**24
GROUP, REGISTERS = 256, "--registers 16"
# CUDA C++ Programming Guide, technical specifications per compute capability
LIMITS = {
    capability: {"sub_group_size": 32, "max_work_items_per_compute_unit": items}
    for capability, items in (("8.0", 2048), ("8.9", 1536), ("9.0", 2048))
}
KERNELS = """
from tests.kernels import made

SIZES = "n i32; m i32"
stream = made("{ [i] : 0 <= i < n }", "z[i] = 2*x[i]", "x,z f32 n; n i32", split="i:256")
grows = made("{ [i] : 0 <= i < n }", "z[i] = x[i] + y[i]", f"x,y,z f32 n; {SIZES}", split="i:256")
stays = made("{ [i] : 0 <= i < m }", "z[i] = 2*x[i]", f"x,z f32 m; {SIZES}", split="i:256")
"""


@dataclass(frozen=True)
class Gpu:
    """A document, and what follows from it."""

    slug: str

    @property
    def document(self) -> dict[str, Any]:
        path = files("countperf.devices") / "catalog" / f"{self.slug}.toml"
        return tomllib.loads(path.read_text(encoding="utf-8"))

    def value(self, name: str) -> float:
        stated = self.document.get(name)
        return (
            LIMITS[self.document["compute_capability"]][name] if stated is None else stated["value"]
        )

    @property
    def bandwidth(self) -> float:
        share = self.document.get("achievable_bandwidth_share", {"value": 1.0})["value"]
        return share * self.value("bandwidth_byte_per_s")

    @property
    def group(self) -> int:
        """Sub-groups of a group, of which there are as many as a compute unit holds items for."""
        return math.ceil(GROUP / self.value("sub_group_size"))

    @property
    def resident(self) -> int:
        return self.group * int(self.value("max_work_items_per_compute_unit") // GROUP)

    @property
    def latencies(self) -> tuple[float, float]:
        """Cycles of an access, and of a multiplication."""
        classes: Mapping[str, Any] = self.document["classes"]
        product = classes.get("mul.f32", classes.get("fma.f32"))
        return classes["ld.global.s32"]["latency"], product["latency"]

    @property
    def access_cycles(self) -> float:
        """Cycles in which a compute unit's part of the bandwidth moves 4 bytes per work item."""
        per_unit = self.bandwidth / self.value("num_compute_units") / self.value("clock_hz")
        return 4 * self.value("sub_group_size") / per_unit

    @property
    def hiding(self) -> float:
        """Sub-groups that fill the time of one alone, two accesses and a product (Little's law)."""
        memory, product = self.latencies
        return (2 * memory + product) / (2 * self.access_cycles)

    def stream_s(self, n: int) -> float:
        return 8 * n / self.bandwidth


GPUS = [pytest.param(Gpu(slug), id=slug) for slug in SLUGS]


def quantity(text: str, unit: str) -> float:
    """Return a number with an SI prefix."""
    match = re.fullmatch(rf"([\d.]+) ([pnµmkMGT]?){unit}", text.strip())
    assert match is not None, text
    return float(match[1]) * 1000.0 ** ("pnµm kMGT".replace(" ", " ").index(match[2] or " ") - 4)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(KERNELS)
    return tmp_path / "mine.py"


def one_line(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("gpu", GPUS)
def test_what_bounds_and_when_latency_is_hidden(gpu: Gpu, file: Path, run: Run) -> None:
    lines = run(f"predict {file}:stream n={N} --model all --on {gpu.slug} {REGISTERS}").out
    head = one_line(lines.partition("\n  model ")[0])
    is_hidden = gpu.hiding <= gpu.resident  # not on the H100, whose bandwidth outgrew it
    assert f"n = {N} {'memory' if is_hidden else 'latency'} bounds it, by " in head
    (moved, at, taken) = re.findall(r": ([\d.]+ MB) at ([\d.]+ TB/s),.*? take ([\d.]+ µs)", head)[0]
    assert quantity(moved, "B") == pytest.approx(8 * N, rel=5e-3)
    assert quantity(at, "B/s") == pytest.approx(gpu.bandwidth, rel=5e-3)
    assert quantity(taken, "s") == pytest.approx(gpu.stream_s(N), rel=5e-3)
    said = "latency is hidden" if is_hidden else "latency is not hidden: it would be"
    assert head.endswith(
        f"{said} from {math.ceil(gpu.hiding)} sub-groups on (volkov, at best); {gpu.resident} are"
        " resident on a compute unit"
    )


@pytest.mark.parametrize("gpu", GPUS)
def test_throughput_over_occupancy_and_where_more_stops_helping(
    gpu: Gpu, file: Path, run: Run
) -> None:
    asked = f"sweep {file}:stream n={N} --on {gpu.slug} {REGISTERS}"
    lines = run(f"{asked} --model volkov").out.splitlines()
    # whole groups; the throughput is in proportion until it is within 2 % of that at the roof
    stays = gpu.group * math.ceil(0.98 * gpu.hiding / gpu.group)
    grown = min(gpu.resident, gpu.hiding) / gpu.group
    assert lines[1] == (
        f"throughput grows {grown:.3g} times from {gpu.group} to {gpu.resident} sub-groups, by"
        " volkov"
    )
    said = f"times stay from {stays} sub-groups on, by volkov"
    if stays > gpu.resident:
        said = f"times still fall up to {gpu.resident} sub-groups, by volkov"
    assert said in lines
    every = run(asked).out.splitlines()
    said = [line for line in every if line.startswith("times ")]
    assert len(said) == 1
    kind = "(stay|still fall)"
    assert re.fullmatch(rf"times {kind} .*, by pipeline-rr \(others: from .* on\)", said[0])


@pytest.mark.parametrize("gpu", GPUS)
def test_from_which_size_on_another_variant_is_faster(gpu: Gpu, file: Path, run: Run) -> None:
    # 12 bytes for each of n work items against 8 for each of 2**24: from 2/3 of these on; later
    # where latency is not hidden with two accesses, but is with three (of which two overlap)
    step, m = 2**20, 2**24
    exposed = max(1.0, gpu.hiding / gpu.resident)
    assert exposed < 3 / 2
    asked = f"predict {file}:grows --against-kernel {file}:stays --on {gpu.slug} {REGISTERS}"
    sizes = f"n={8 * step},{23 * step} m={m},{m}"
    for model, factor in (("roofline-bytes", 1.0), ("volkov", exposed)):
        cross = math.ceil(factor * 2 / 3 * m / step) * step
        head = one_line(run(f"{asked} {sizes} --model {model}").out.partition("\n  model ")[0])
        assert head.startswith(
            f"faster: grows from n = {8 * step} on, stays from n = {cross} on, by {model}"
        )
    first, last = 2 / 3 * 16 / 8, 2 / 3 * 16 / 23
    printed = run(f"{asked} {sizes} --model roofline-bytes --json").json["models"][0]
    ratios = printed["first_ratio"], printed["last_ratio"]
    assert ratios == pytest.approx((first, last), rel=1e-3)
    said = run(f"{asked} n={N} m={N} --model volkov", status=1).err
    assert "a crossing is looked for between sizes: give two or more" in said
    said = run(f"{asked} {sizes} --model mwp-cwp", status=1).err
    assert "no value for issue_cycles, which mwp-cwp needs" in said


def test_which_gpu_and_why(file: Path, run: Run) -> None:
    out = run(f"predict {file}:stream n={N} --on {','.join(SLUGS)} {REGISTERS}").out
    head = one_line(out.partition("\n  device ")[0])
    fastest = sorted(map(Gpu, SLUGS), key=lambda gpu: gpu.stream_s(N))
    first, second = fastest[:2]
    ratio = second.stream_s(N) / first.stream_s(N)
    said = f"{first.slug} is the fastest: {second.slug} takes {ratio:.3g} times as long by roofline"
    assert said in head
    for gpu in (first, second):
        (at,) = re.findall(rf"- {gpu.slug}: 134 MB at ([\d.]+ TB/s), the peak, take", head)
        assert quantity(at, "B/s") == pytest.approx(gpu.bandwidth, rel=5e-3)
    rows = [line.split()[0] for line in out.splitlines() if " roofline " in line][-4:]
    assert rows == [gpu.slug for gpu in fastest]


@pytest.mark.parametrize("gpu", GPUS)
def test_how_long_an_application_takes_over_its_size(gpu: Gpu, file: Path, run: Run) -> None:
    steps = file.with_name("steps.txt")
    steps.write_text(f"h2d 4*N name=there\nkernel {file}:stream n=N after=there\nd2h 4*N\n")
    out = run(f"application {steps} N={N},{4 * N} --on {gpu.slug} {REGISTERS}").out
    head = one_line(out.partition("\n         ")[0])
    links = gpu.document["links"]
    ways = [links[way] for way in ("h2d", "d2h")]
    for n in (N, 4 * N):
        copies_s = sum(
            way["startup_s"] + 4 * n / way["bandwidth_byte_per_s"] / way.get("lambda_c", 1.0)
            for way in ways
        )
        said = rf"([\d.]+ [µm]?s) at N = {n} \(transfers take (\d+) % of all steps"
        ((at, share),) = re.findall(said, head)
        whole_s = copies_s + gpu.stream_s(n)
        assert quantity(at, "s") == pytest.approx(whole_s, rel=6e-3)
        assert float(share) == pytest.approx(100 * copies_s / whole_s, abs=0.6)


@pytest.mark.parametrize("gpu", GPUS)
def test_mwp_and_cwp(gpu: Gpu, file: Path, run: Run) -> None:
    asked = f"predict {file}:stream n={N} --model mwp-cwp-corrected --on {gpu.slug} {REGISTERS}"
    head = one_line(run(asked).out.partition("\n  model ")[0])
    memory, _ = gpu.latencies
    mwp = memory / gpu.access_cycles
    is_hidden = gpu.hiding <= gpu.resident
    advice = (
        "memory bounds: fewer" if is_hidden else "too few sub-groups are resident to hide memory"
    )
    assert advice in head
    assert f"; MWP {mwp:.3g}, CWP " in head
    (cwp, resident) = re.findall(r"CWP ([\d.e+]+), (\d+) sub-groups resident", head)[0]
    classes = gpu.document["classes"]
    product = classes.get("mul.f32", classes.get("fma.f32"))["cpi"]
    assert float(cwp) == pytest.approx(1 + memory / (product / 2), rel=5e-3)
    assert int(resident) == gpu.resident


@pytest.mark.parametrize("gpu", GPUS)
def test_which_model_is_to_be_trusted(gpu: Gpu, file: Path, tmp_path: Path, run: Run) -> None:
    factors = {N: 1.1, 2 * N: 0.9, 4 * N: 1.05}
    timing = tmp_path / "timing.json"
    time_as(gpu.slug, {n: f * gpu.stream_s(n) for n, f in factors.items()}).write_file(timing)
    asked = f"compare --kernel {file}:stream --timing {timing} {REGISTERS}"
    error = math.prod(abs(1 / factor - 1) for factor in factors.values()) ** (1 / 3)
    lines = run(f"{asked} --model roofline-bytes,wfg-original").out.splitlines()
    assert lines[0] == (
        f"trust roofline-bytes as published, off by {100 * error:.1f} % over 3 of 3 sizes of mine"
        f" on {gpu.slug}"
    )
    assert run(asked).out.startswith("trust ")
    # the linear model: nothing was measured on these four with its kernels
    said = run(f"{asked} --model linear", status=1).err
    assert f"there is no fit for {gpu.slug}" in said
