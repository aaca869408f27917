"""Tests of `countperf.mechanistic.traffic`, against simulated caches and arithmetic by hand."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import Any

import loopy as lp
import numpy as np
import pytest

from countperf.devices.parameters import declare_device, load_device
from countperf.mechanistic.compiled_profile import with_graph
from countperf.mechanistic.from_kernel import profile_kernel
from countperf.mechanistic.predict_all import answers_of
from countperf.mechanistic.profile import (
    InstructionGraph,
    KernelProfile,
    LaunchConfiguration,
    ProfiledKernel,
)
from countperf.mechanistic.roofline import ByteRooflineModel
from countperf.mechanistic.traffic import Traffic
from tests.counting.structure_kernels import tiled_matmul
from tests.kernels import made
from tests.oracles.gpu_caches import Steps, simulate
from tests.printing import object_of

GOLDEN = Path(__file__).parents[1] / "golden"

_A, _B, _C = (number << 30 for number in (1, 2, 3))  # where arrays begin


def _make(domain: str, body: str, arrays: dict[str, str], **split: tuple[int, str]) -> Any:
    """Return a kernel whose loops are split over groups and work items."""
    arguments: list[Any] = [
        lp.GlobalArg(name, np.float32, shape=shape) for name, shape in arrays.items()
    ]
    sizes = [size for size in "mn" if f" {size}" in domain]
    arguments.append(lp.ValueArg(",".join(sizes), np.int32))
    assumed = " and ".join(f"{size} >= 64 and {size} mod 64 = 0" for size in sizes)
    options: Any = {"assumptions": assumed, "lang_version": (2018, 2), "name": "kernel"}
    unit = lp.make_kernel(domain, body, arguments, **options)
    for name, (size, axis) in split.items():
        unit = lp.split_iname(unit, name, size, outer_tag=f"g.{axis}", inner_tag=f"l.{axis}")
    return unit


def _product() -> Any:
    return tiled_matmul(16)


def _block(at: int, pitch: int, rows: Iterable[int], columns: range) -> list[int]:
    """Return the addresses of a block of elements in rows a pitch apart."""
    return [at + 4 * (row * pitch + column) for row in rows for column in columns]


def _product_steps(n: int, group: int) -> Any:
    row, column = (16 * place for place in divmod(group, n // 16))
    pairs = [(pair, pair + 1) for pair in range(0, 16, 2)]
    for k in range(0, n, 16):
        yield [
            ("load", _block(at, n, [first + y for y in pair], range(left, left + 16)))
            for at, first, left in ((_A, row, k), (_B, k, column))
            for pair in pairs
        ]
    columns = range(column, column + 16)
    yield [("store", _block(_C, n, [row + y for y in pair], columns)) for pair in pairs]


def _transposition(width: int, height: int) -> Any:
    return _make(
        "{[i, j]: 0 <= i, j < n}",
        "b[j, i] = a[i, j]",
        dict.fromkeys("ab", "n, n"),
        i=(height, "1"),
        j=(width, "0"),
    )


def _transposition_steps(width: int, height: int, n: int, group: int) -> Any:
    row, column = divmod(group, n // width)
    items = [(height * row + y, width * column + x) for y in range(height) for x in range(width)]
    subs = [items[at : at + 32] for at in range(0, len(items), 32)]
    yield [("load", [_A + 4 * (i * n + j) for i, j in sub]) for sub in subs]
    yield [("store", [_B + 4 * (j * n + i) for i, j in sub]) for sub in subs]


def _rows() -> Any:
    unit = _make(
        "{[i, j, k]: 0 <= i < n and 0 <= j, k < m}",
        """
        <> top = sum(j, a[i, j]) {id=top}
        b[i, k] = a[i, k] * top {dep=top}
        """,
        dict.fromkeys("ab", "n, m"),
    )
    unit = lp.split_iname(unit, "k", 64, inner_tag="l.0")
    unit = lp.tag_inames(unit, {"i": "g.0"})
    return lp.add_inames_for_unused_hw_axes(unit)


def _rows_steps(m: int, group: int) -> Any:
    for j in range(m):
        yield [("load", [_A + 4 * (group * m + j)])] * 2
    for k in range(0, m, 64):
        subs = [range(k, k + 32), range(k + 32, k + 64)]
        yield [("load", [_A + 4 * (group * m + x) for x in sub]) for sub in subs]
        yield [("store", [_B + 4 * (group * m + x) for x in sub]) for sub in subs]


def _stencil() -> Any:
    places = [(y, x) for y in range(3) for x in range(3)]
    body = "b[i, j] = " + " + ".join(f"a[i + {y}, j + {x}]" for y, x in places)
    arrays = {"a": "n + 2, n + 2", "b": "n, n"}
    return _make("{[i, j]: 0 <= i, j < n}", body, arrays, i=(4, "1"), j=(32, "0"))


def _stencil_steps(n: int, group: int) -> Any:
    row, column = divmod(group, n // 32)
    row, column = 4 * row, 32 * column
    yield [
        ("load", _block(_A, n + 2, [row + w + y], range(column + x, column + x + 32)))
        for w in range(4)
        for y in range(3)
        for x in range(3)
    ]
    columns = range(column, column + 32)
    yield [("store", _block(_B, n, [row + w], columns)) for w in range(4)]


def _rows_by_items() -> Any:
    arrays = {"a": "n, m", "b": "m", "c": "n"}
    body = "c[i] = sum(k, a[i, k] * b[k])"
    return _make("{[i, k]: 0 <= i < n and 0 <= k < m}", body, arrays, i=(64, "0"))


def _convolution() -> Any:
    arrays = {"a": "n + m", "b": "m", "c": "n"}
    body = "c[i] = sum(k, a[i + k] * b[k])"
    return _make("{[i, k]: 0 <= i < n and 0 <= k < m}", body, arrays, i=(64, "0"))


def _sum_steps(step: int, m: int, group: int) -> Any:
    """Read m elements from places a step apart, with b[k] beside, and store a result."""
    subs = [range(first, first + 32) for first in (64 * group, 64 * group + 32)]
    for k in range(m):
        yield [("load", [_A + 4 * (step * i + k) for i in sub]) for sub in subs]
        yield [("load", [_B + 4 * k])] * 2
    yield [("store", [_C + 4 * i for i in sub]) for sub in subs]


def _plain_product() -> Any:
    arrays = dict.fromkeys("abc", "n, n")
    body = "c[i, j] = sum(k, a[i, k] * b[k, j])"
    return _make("{[i, j, k]: 0 <= i, j, k < n}", body, arrays, i=(8, "1"), j=(32, "0"))


def _plain_product_steps(n: int, group: int) -> Any:
    row, column = divmod(group, n // 32)
    rows, columns = range(8 * row, 8 * row + 8), range(32 * column, 32 * column + 32)
    for k in range(n):
        yield [("load", [_A + 4 * (i * n + k)]) for i in rows]
        yield [("load", _block(_B, n, [k], columns))] * 8
    yield [("store", _block(_C, n, [i], columns)) for i in rows]


_CASES: dict[str, tuple[Any, Steps, dict[str, int], int, int, int]] = {
    # kernel, steps, sizes, groups, bytes of L1 and of L2
    "product": (_product(), partial(_product_steps, 256), {"n": 256}, 256, 0, 1 << 14),
    "product that fits": (
        *(_product(), partial(_product_steps, 128), {"n": 128}, 64, 1 << 13, 1 << 18),
    ),
    "transposition 16x16": (
        *(_transposition(16, 16), partial(_transposition_steps, 16, 16, 512)),
        *({"n": 512}, 1024, 1 << 13, 1 << 15),
    ),
    "transposition 64x1": (
        *(_transposition(64, 1), partial(_transposition_steps, 64, 1, 512)),
        *({"n": 512}, 4096, 1 << 13, 1 << 15),
    ),
    "rows of 64 KiB": (_rows(), partial(_rows_steps, 2048), {"n": 64, "m": 2048}, 64, 0, 50 << 10),
    "rows of 8 KiB": (_rows(), partial(_rows_steps, 256), {"n": 64, "m": 256}, 64, 0, 50 << 10),
    "rows in L1": (_rows(), partial(_rows_steps, 256), {"n": 64, "m": 256}, 64, 1 << 12, 1 << 14),
    "row for each item": (
        *(_rows_by_items(), partial(_sum_steps, 256, 256), {"n": 1024, "m": 256}),
        *(16, 1 << 13, 1 << 16),
    ),
    "convolution": (
        *(_convolution(), partial(_sum_steps, 1, 64), {"n": 4096, "m": 64}, 64, 1 << 12, 1 << 14),
    ),
    "product without local memory": (
        *(_plain_product(), partial(_plain_product_steps, 128), {"n": 128}),
        *(64, 1 << 13, 1 << 16),
    ),
    "stencil": (_stencil(), partial(_stencil_steps, 256), {"n": 256}, 512, 1 << 13, 1 << 15),
}


def _find_traffic(unit: Any, sizes: dict[str, int], l1: int, l2: int, active: int = 2) -> Traffic:
    device = declare_device(
        sub_group_size=32,
        cache_line_bytes=32,
        num_compute_units=4,
        max_groups_per_compute_unit=active,
        max_work_items_per_compute_unit=2048,
        local_bytes_per_compute_unit=1 << 16,
        l1_bytes_per_compute_unit=l1,
        l2_bytes=l2,
    )
    profiled = profile_kernel(unit, device, active_groups=active).at(sizes)
    assert profiled.profile.traffic is not None
    return profiled.profile.traffic


@pytest.mark.parametrize("case", _CASES)
def test_traffic_is_that_of_simulated_caches(case: str) -> None:
    unit, steps, sizes, groups, l1, l2 = _CASES[case]
    simulated = simulate(steps, groups, units=4, resident=2, l1=l1, l2=l2)
    traffic = _find_traffic(unit, sizes, l1, l2)
    assert traffic.asked == pytest.approx(simulated["asked"], rel=1e-6)
    assert traffic.l2 == pytest.approx(simulated["l2"], rel=0.15)
    assert traffic.memory == pytest.approx(simulated["memory"], rel=0.15)


def _horner() -> Any:
    value = "1"
    for number in range(8):
        value = f"({value} * x[i] + {number + 2})"
    return _make("{[i]: 0 <= i < n}", f"y[i] = {value}", dict.fromkeys("xy", "n"), i=(256, "0"))


def _loop() -> Any:
    body, arrays = "y[i] = y[i] + 3 * x[i]", dict.fromkeys("xy", "n")
    return _make("{[i, k]: 0 <= i < n and 0 <= k < m}", body, arrays, i=(256, "0"))


@pytest.mark.parametrize(
    ("unit", "sizes", "loads", "memory"),
    [
        (_horner(), {"n": 2**24}, 1, 2 * 4 * 2**24),
        (_stencil(), {"n": 8192}, 9, 2 * 4 * 8192**2),
        # in a loop, x and y are loaded before and y is stored after
        (_loop(), {"n": 2**24, "m": 64}, 2, 3 * 4 * 2**24),
    ],
)
def test_roofline_takes_the_time_of_distinct_bytes(
    unit: Any, sizes: dict[str, int], loads: int, memory: int
) -> None:
    device = load_device("nvidia-h100")
    profiler = profile_kernel(unit, device, registers_per_work_item=32)
    profile = profiler.at(sizes).profile
    loaded = sum(n for name, n in profile.alpha.items() if name.startswith("load.global"))
    assert loaded == loads
    assert profile.traffic is not None
    assert profile.traffic.memory == pytest.approx(memory, rel=1e-3)
    times = answers_of(profiler, sizes, ["roofline", "roofline-bytes"]).predictions.values()
    for prediction in times:
        assert float(prediction.time_s) == pytest.approx(memory / 3.352e12, rel=0.01)


def test_answers_say_what_was_assumed() -> None:
    profiler = profile_kernel(_stencil(), load_device("nvidia-h100"), registers_per_work_item=32)
    answers = answers_of(profiler, {"n": 8192}, ["roofline"])
    said = (
        "memory bytes: 537 MB compulsory, 3.19 GB asked for, L1 262 kB, L2 52.4 MB,"
        " 537 MB from memory, groups resident on a compute unit: 16"
    )
    assert said in " ".join(str(answers).split())
    traffic = object_of(answers)["traffic"]["kernel"]
    assert traffic["text"] == said
    assert traffic["ratio"] == pytest.approx(traffic["memory"] / traffic["asked"])
    assert (traffic["l2_bytes"], traffic["resident"], traffic["assumptions"]) == (52428800, 16, [])


@pytest.mark.parametrize(
    ("slug", "said"),
    [
        ("nvidia-8800-gtx", "L1 none, L2 none"),
        ("amd-r9-380", "nothing is taken to be cached: the device states no l2_bytes"),
    ],
)
def test_nothing_is_cached_without_caches(slug: str, said: str) -> None:
    device = load_device(slug)
    profile = profile_kernel(_stencil(), device, active_groups=2).at({"n": 256}).profile
    assert profile.traffic is not None
    assert profile.traffic.memory == profile.traffic.asked == profile.total_bytes
    assert said in profile.traffic.text


_GATHER = made("i<n", "b[i] = a[at[i]]", "a f32 n; b f32 n; at i32 n; n i32", split="i:64")


@pytest.mark.parametrize(
    ("unit", "changes", "options", "resident", "said"),
    [
        # 2048 work items of a unit in groups of 128
        (_stencil(), {}, {}, 16, "as many as fit, as if registers limited none"),
        (_stencil(), {}, {"registers_per_work_item": 128}, 4, ""),  # 65536 / (128 * 128)
        (_stencil(), {}, {"active_groups": 3}, 3, ""),
        (
            *(_stencil(), {"max_groups_per_compute_unit": None}, {}, 1),
            "one group is taken to be resident: device 'nvidia-h100': no value for"
            " max_groups_per_compute_unit, which occupancy needs",
        ),
        (
            *(_stencil(), {"num_compute_units": None}, {}, None),
            "nothing is taken to be cached: the device states no num_compute_units",
        ),
        # two tiles of 16 by 16 of each of 8 groups
        (_product(), {}, {"active_groups": 8}, 8, "local memory takes 16.4 kB of L1"),
        (
            *(_GATHER, {}, {"active_groups": 1, "statistics": {"a": "indirect"}}, 1),
            "no two accesses touch the same bytes of a",
        ),
    ],
)
def test_traffic_says_what_it_assumes(
    unit: Any, changes: dict[str, None], options: dict[str, Any], resident: int | None, said: str
) -> None:
    device = load_device("nvidia-h100").with_values(**changes)
    (profiled, _), *_ = profile_kernel(unit, device, **options).launches_at({"n": 8192})
    traffic = profiled.profile.traffic
    assert traffic is not None
    assert traffic.resident == resident
    assert " ".join(traffic.assumptions).startswith(said)
    assert bool(traffic.assumptions) == bool(said)
    assert traffic.text.endswith("; ".join(["", *traffic.assumptions])[0 if said else 2 :])


def test_machine_code_that_asks_for_less_has_less_traffic() -> None:
    traffic = Traffic(asked=100, compulsory=20, l2=60, memory=30, charged=200, l2_bytes=1)
    assert traffic.ratio == 0.3
    assert traffic.charge_ratios == (0.15, 0.3)
    assert traffic.scale_requests(0.5).ratio == 0.6
    assert traffic.scale_requests(0.25).memory == 25


_Times = dict[tuple[str, str], list[tuple[float, float]]]  # byte and s by device and operation


def _read_elementwise() -> _Times:
    """Return element-wise operations above 200 MB (NeuSight, see the README of the folder)."""
    times: _Times = {}
    with gzip.open(GOLDEN / "elementwise.csv.gz", "rt", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            arrays = 3 if row["operation"] in ("add", "mul", "div", "pow") else 2
            measured = 4.0 * arrays * int(row["elements"]), 1e-6 * int(row["us"])
            times.setdefault((row["device"], row["operation"]), []).append(measured)
    return times


def _find_error(times: _Times, shares: Mapping[str, float | None]) -> float:
    """Return the mean error of roofline on operations but add, with a share for each device."""
    errors: list[float] = []
    launch = LaunchConfiguration(work_items_per_group=128, num_groups=1)
    for (slug, operation), measured in times.items():
        device = load_device(slug).with_values(achievable_bandwidth_share=shares[slug])
        profile = KernelProfile(name="each", total_flops=1.0, total_bytes=1e9)
        one = ByteRooflineModel(device=device).estimate(ProfiledKernel(profile, launch))
        if operation != "add":
            errors += [abs(size * one.time_s / 1e9 / time_s - 1) for size, time_s in measured]
    return mean(errors)


def test_share_of_the_bandwidth_predicts_other_operations_and_other_devices() -> None:
    times = _read_elementwise()
    own: dict[str, float] = {}
    for slug in dict.fromkeys(slug for slug, _ in times):
        device = load_device(slug)
        peak = device.require("bandwidth_byte_per_s")
        own[slug] = median(size / time_s / peak for size, time_s in times[slug, "add"])
        assert device.achievable_bandwidth_share == pytest.approx(own[slug], abs=5e-4), slug
    left_out = {slug: mean(own[other] for other in own if other != slug) for slug in own}
    assert _find_error(times, dict.fromkeys(own)) == pytest.approx(0.206, abs=5e-4)
    assert _find_error(times, own) == pytest.approx(0.023, abs=5e-4)  # at most 4 %
    assert _find_error(times, left_out) == pytest.approx(0.087, abs=5e-4)  # at most 10 %


def _make_rows(body: str, loops: str, width: int, private: int = 0, **tags: str) -> Any:
    """Return a kernel on n rows of m columns, with a result of each item in local memory."""
    starts = " and ".join(f"0 <= {k} and {width}*{k} + t < m" for k in loops)
    rows = "0 <= i < 4 and 0 <= o and 4*o + i < n" if private else "0 <= i < n"
    items = f"{'o, ' if private else ''}i, t, u, v"
    domain = f"{{[{items}, {', '.join(loops)}]: {rows} and 0 <= t, u, v < {width} and {starts}}}"
    arrays = {"x": "n, m", "y": "n, m", "g": "m", "h": "m"}
    shape = (4, width) if private else (width,)
    local: Any = {"shape": shape, "address_space": lp.AddressSpace.LOCAL}
    arguments: list[Any] = [
        *(lp.GlobalArg(n, np.float32, shape=of) for n, of in arrays.items() if f"{n}[" in body),
        *(lp.TemporaryVariable(name, np.float32, **local) for name in "ab"),
        *([lp.TemporaryVariable("r", np.float32, shape=(private,))] if private else []),
        lp.ValueArg("n, m", np.int32),
    ]
    most = private * width if private else 16384
    options: Any = {"assumptions": f"n >= 1 and m >= 512 and m <= {most}"}
    options |= {"lang_version": (2018, 2), "name": "rows"}
    return lp.tag_inames(lp.make_kernel(domain, body, arguments, **options), tags)


def _softmax(width: int) -> Any:
    """Return softmax as a group has a row: the greatest, the sum, and the quotients."""
    body = f"""
    for i, t
      a[t] = max(k, x[i, {width}*k + t]) {{id=a}}
      <> top = max(u, a[u]) {{id=top, dep=a}}
      b[t] = sum(l, exp(x[i, {width}*l + t] - top)) {{id=b, dep=top}}
      <> total = sum(v, b[v]) {{id=total, dep=b}}
      y[i, {width}*q + t] = exp(x[i, {width}*q + t] - top) / total {{dep=total:top}}
    end
    """
    return _make_rows(body, "klq", width, i="g.0", t="l.0")


def _softmax_in_registers() -> Any:
    """Return softmax as a sub-group has a row in registers, four rows a group."""
    body = """
    for o, i, t
      for k
        r[k] = x[4*o + i, 32*k + t] {id=r}
      end
      a[i, t] = max(l, r[l]) {id=a, dep=r}
      <> top = max(u, a[i, u]) {id=top, dep=a}
      b[i, t] = sum(w, exp(r[w] - top)) {id=b, dep=top:r}
      <> total = sum(v, b[i, v]) {id=total, dep=b}
      for q
        y[4*o + i, 32*q + t] = exp(r[q] - top) / total {dep=total:top:r}
      end
    end
    """
    return _make_rows(body, "klwq", 32, 32, o="g.0", i="l.1", t="l.0")


def _layer_norm() -> Any:
    """Return a layer norm as a group has a row: sums of elements and squares, then the result."""
    body = """
    for i, t
      <> s = 0 {id=s}
      <> w = 0 {id=w}
      for k
        <> e = x[i, 128*k + t] {id=e, dep=s:w}
        s = s + e {id=sum, dep=e:s}
        w = w + e*e {id=squares, dep=e:w}
      end
      a[t] = s {id=a, dep=sum}
      b[t] = w {id=b, dep=squares}
      <> mean = sum(u, a[u]) / m {id=mean, dep=a}
      <> scale = 1 / sqrt(sum(v, b[v]) / m - mean*mean) {id=scale, dep=b:mean}
      for q
        y[i, 128*q + t] = (x[i, 128*q + t] - mean)*scale*g[128*q + t] + h[128*q + t] \
          {dep=mean:scale}
      end
    end
    """
    return _make_rows(body, "kq", 128, i="g.0", t="l.0")


@pytest.mark.long
@pytest.mark.parametrize(
    ("operation", "error", "once"), [("softmax", 0.250, 0.262), ("layer_norm", 0.147, 0.373)]
)
def test_rows_that_caches_do_not_hold_are_read_again(
    operation: str, error: float, once: float
) -> None:
    # of five GPUs every 40th of those beyond 50 MB (NeuSight, see the README of the folder)
    with gzip.open(GOLDEN / "rows.csv.gz", "rt", encoding="utf-8") as file:
        timed = [row for row in csv.DictReader(file) if row["operation"] == operation]
    units = {"group 128": _layer_norm()}
    if operation == "softmax":
        units = {f"group {width}": _softmax(width) for width in (256, 512)}
        units["warp 128"] = _softmax_in_registers()
    five = {"nvidia-a100", "nvidia-p100-pcie", "nvidia-p4", "nvidia-t4", "nvidia-v100"}
    errors: list[float] = []
    of_once: list[float] = []
    for row in [row for row in timed if row["device"] in five][::40]:
        device = load_device(row["device"])
        unit, time_s = units[f"{row['kernel']} {row['items']}"], 1e-6 * int(row["us"])
        sizes = {"n": int(row["rows"]), "m": int(row["columns"])}
        (profiled, _), *_ = profile_kernel(unit, device, max_instructions=50).launches_at(sizes)
        predicted_s = ByteRooflineModel(device=device).predict(profiled).time_s
        errors.append(abs(float(predicted_s) / time_s - 1))
        peak = device.require("bandwidth_byte_per_s") * (device.achievable_bandwidth_share or 1.0)
        of_once.append(abs(8 * sizes["n"] * sizes["m"] / peak / time_s - 1))
    assert (mean(errors), mean(of_once)) == pytest.approx((error, once), abs=5e-4)


def test_bytes_follow_the_accesses_of_machine_code() -> None:
    profiler = profile_kernel(_stencil(), load_device("nvidia-h100"), registers_per_work_item=32)
    counted = profiler.at({"n": 8192})
    graph = InstructionGraph(["load.global.32"] * 5 + ["store.global.32"])
    before, after = counted.profile, with_graph(counted, graph, 100).profile
    assert before.traffic is not None
    assert after.traffic is not None
    # three loads and six of 1.25 times the bytes are five of their mean
    share = (5 * 10.5 / 9 + 1) / (10.5 + 1)
    assert after.traffic.asked == pytest.approx(share * before.traffic.asked, rel=3e-3)
    assert after.total_bytes == after.traffic.memory == before.traffic.memory
    assert after.gmem_bytes == before.gmem_bytes
    assert after.dram_ratio == pytest.approx((before.dram_ratio or 0) / share, rel=3e-3)
