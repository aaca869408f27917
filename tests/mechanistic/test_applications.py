"""Schedules of transfers and kernels, by hand; the application of Gajger & Czarnul."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from countperf.api.applications import parse_application, predict_application, schedule
from countperf.api.mechanistic_models import predict_all
from countperf.cli import main
from countperf.devices.parameters import LinkParameters, load_device
from countperf.errors import CountperfError, KernelSpecificationError, ParameterError
from countperf.mechanistic.merpsys import transfer_time

KERNEL = "vector-scale-add/stride1/256x1"
PIPELINE = """
# two halves
h2d 40e6 stream=a
h2d 40e6 stream=b name=second
kernel k n=1024 stream=a   # of the first
kernel k n=1024 stream=b
d2h 20e6 stream=a
d2h 20e6 stream=b after=second
"""


PARTS = """
host N/8 name=made
h2d 4*N/devices device=all after=made
kernel k n=(N+1-device)*2**3 device=all name=done
d2d 1 device=1 to=0 after=done
h2d 1 stream=b after=done
host 2 device=1 stream=b
"""


ONE_STREAM = PIPELINE.replace("stream=b", "stream=a")


@pytest.mark.parametrize(
    ("text", "durations", "starts"),
    [
        # copies in at 0 and 4; kernels at 4 and 8 (its copy), not before the first kernel is done
        # at 9; copies out at 9 and 14
        pytest.param(PIPELINE, [4, 4, 5, 5, 2, 2], [0, 4, 4, 9, 9, 14], id="streams overlap"),
        pytest.param(ONE_STREAM, [4, 4, 5, 5, 2, 2], [0, 4, 8, 13, 18, 20], id="one stream"),
        pytest.param(
            "kernel k name=first\nkernel k device=1\nkernel k device=1 after=first",
            [10, 1, 1],
            [0, 0, 10],
            id="devices",
        ),
        # both devices wait for the host, and the copy between them for both kernels, done at 10 and
        # 12; then it keeps the engine into device 0 busy. The host has one step at a time
        pytest.param(
            PARTS, [3, 2, 4, 5, 5, 6, 1, 2], [0, 3, 3, 5, 7, 12, 18, 3], id="a host and two devices"
        ),
        # the second kernel waits for its copy; the third, in a stream of its own, does not
        pytest.param(
            "h2d 1 stream=a\nkernel k stream=a\nkernel k stream=b",
            [10, 1, 3],
            [0, 10, 0],
            id="a later step goes ahead of one that waits",
        ),
    ],
)
def test_when_steps_start(text: str, durations: list[float], starts: list[float]) -> None:
    variables = {"devices": 2} | ({"N": 1000} if "N" in text else {})
    scheduled = schedule(parse_application(text, variables), durations)
    assert [step.start_s for step in scheduled.steps] == starts
    assert scheduled.serial_s == sum(durations)
    assert scheduled.time_s == max(map(sum, zip(starts, durations, strict=True)))


def test_numbers_are_formulas_of_variables_and_devices() -> None:
    made, *copies, first, second, last, _, _ = parse_application(PARTS, {"N": 1000, "devices": 2})
    assert (made.amount, [copy.amount for copy in copies]) == (125, [2000, 2000])
    assert [first.sizes, second.sizes] == [{"n": 8008}, {"n": 8000}]
    assert (last.device, last.to, last.after) == (1, 0, ("done.0", "done.1"))


@pytest.mark.parametrize("devices", [1, 3])
def test_copies_of_all_devices_leave_out_the_one_they_go_to(devices: int) -> None:
    text = "d2d 8 device=all to=0 name=collected\nd2h 8 after=collected"
    *copies, last = parse_application(text, {"devices": devices})
    others = range(1, devices)
    assert [(copy.device, copy.to) for copy in copies] == [(number, 0) for number in others]
    assert last.after == tuple(f"collected.{number}" for number in others)


@pytest.mark.parametrize(
    ("devices", "said"),
    [(0, "devices must be at least 1, not 0"), (1.5, "devices, and a size is an integer, not 1.5")],
)
def test_wrong_numbers_of_devices_are_refused(devices: Any, said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        predict_application("h2d 1 device=1", "nvidia-gtx-970", devices=devices)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no step"),
        ("h2d 4*N", r"line 1 .*'4\*N': no value for N; add N=1024"),
        ("kernel k n=devices/2", r"'devices/2' is 0.5, which is not whole; write floor"),
        ("kernel k n=4*(", "line 1 .*not a formula"),
        ("kernel k n=__import__('os')", "line 1 .*one of the functions"),
        ("d2d 5 to=0", "names another device"),
        ("d2d 5 to=-1", "'-1' must be finite and not negative"),
        ("h2d 5 to=1", "names another device"),
        ("h2d", "line 1"),
        ("h2d 1\nsend 5", "line 2.*a line is"),
        ("h2d 1 n=5", "a h2d step has no sizes, but n"),
        ("kernel k n=many", "line 1"),
        ("kernel k n", "options and sizes, name=value, each once"),
        ("h2d 1 after=x", "waits for 'x', which is no earlier step"),
        ("h2d 1 name=x\nd2h 1 name=x", "two steps are called 'x'"),
        ("h2d -1", "line 1"),
    ],
)
def test_wrong_texts_are_refused_with_their_line(text: str, said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        parse_application(text)


def test_an_application_is_the_sum_of_its_transfers_and_kernels() -> None:
    device = load_device("nvidia-gtx-970")
    n = 2**20
    text = f"h2d {4 * n}\nh2d {4 * n}\nkernel {KERNEL} n={n}\nd2h {4 * n}"
    options = {"registers_per_work_item": 16}
    application = predict_application(text, device, profile_options=options)
    answers = predict_all(KERNEL, device, n=n, models="merpsys", profile_options=options)
    kernel_s = float(answers.predictions["merpsys"].time_s)
    copies = [transfer_time(device.links[way], 4 * n) for way in ("h2d", "h2d", "d2h")]
    assert application.time_s == pytest.approx(sum(copies) + kernel_s)
    assert list(application.to_frame()["step"]) == ["h2d 1", "h2d 2", "kernel 3", "d2h 4"]
    assert "merpsys on nvidia-gtx-970" in repr(application)


def test_copies_between_devices_go_through_the_host_unless_a_link_is_stated() -> None:
    device = load_device("nvidia-gtx-970")
    through = transfer_time(device.links["d2h"], 1e6) + transfer_time(device.links["h2d"], 1e6)
    direct = device.with_values(
        links={**device.links, "d2d": LinkParameters(startup_s=1e-6, bandwidth_byte_per_s=1e9)}
    )
    times = [
        predict_application("host 1\nd2d 1e6 to=1", found, devices=2).time_s
        for found in (device, direct)
    ]
    assert times == pytest.approx([1 + through, 1 + 1e-6 + 1e-3], rel=1e-12)


def test_the_command_line_sweeps_over_variables_and_devices(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "app.txt"
    path.write_text(f"h2d 8*N/devices device=all\nkernel {KERNEL} n=N/devices device=all\n")
    asked = ["application", str(path), "--registers", "16", "--on", "nvidia-gtx-970", "--json"]
    assert main([*asked, "N=131072,131072,262144", "devices=1,2,2"]) == 0
    one, half, same = json.loads(capsys.readouterr().out)["points"]
    startup = load_device("nvidia-gtx-970").links["h2d"].startup_s
    assert half["time_s"] < one["time_s"] < 2 * half["time_s"]
    assert half["transfers_s"] == pytest.approx(one["transfers_s"] + startup)
    assert same["time_s"] == pytest.approx(one["time_s"])
    assert main([*asked[:-1], "N=131072", "devices=1"]) == 0
    assert "merpsys on nvidia-gtx-970" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        (
            "h2d 5 device=1",
            ParameterError,
            "no device has number 1, counted from 0; pass devices=2",
        ),
        ("h2d 5 stream=a\nkernel nothing n=5 stream=b", KernelSpecificationError, "nothing"),
        (f"h2d 5\nkernel {KERNEL} stream=b", CountperfError, "n"),
    ],
)
def test_devices_kernels_and_sizes_that_lack_are_refused(
    text: str, error: type[CountperfError], said: str
) -> None:
    with pytest.raises(error, match=said):
        predict_application(text, "nvidia-gtx-970")
