"""Schedules of transfers and kernels, by hand; the application of Gajger & Czarnul."""

from __future__ import annotations

from pathlib import Path

import pytest

from countperf.cli import main
from countperf.errors import CountperfError, KernelSpecificationError, ParameterError
from countperf.hardware.library import load_device
from countperf.mechanistic.applications import parse_application, schedule
from countperf.mechanistic.merpsys import transfer_time
from countperf.workflow.mechanistic import predict_all, predict_application

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


def starts(text: str, durations: list[float]) -> list[float]:
    return [each.start_s for each in schedule(parse_application(text), durations).steps]


def test_streams_overlap_and_engines_do_not() -> None:
    # copies in at 0 and 4; kernels at 4 and 8 (its copy), not before the first kernel is done at 9;
    # copies out at 9 and 14
    assert starts(PIPELINE, [4, 4, 5, 5, 2, 2]) == [0, 4, 4, 9, 9, 14]


def test_one_stream_is_one_step_after_the_other() -> None:
    text = PIPELINE.replace("stream=b", "stream=a")

    assert starts(text, [4, 4, 5, 5, 2, 2]) == [0, 4, 8, 13, 18, 20]
    found = schedule(parse_application(text), [4, 4, 5, 5, 2, 2])
    assert found.time_s == found.serial_s == 22


def test_devices_do_not_wait_for_each_other_but_where_they_say_so() -> None:
    text = "kernel k name=first\nkernel k device=1\nkernel k device=1 after=first"

    assert starts(text, [10, 1, 1]) == [0, 0, 10]


def test_a_later_step_of_another_stream_goes_ahead_of_one_that_waits() -> None:
    # the second kernel waits for its copy; the third, in a stream of its own, does not
    text = "h2d 1 stream=a\nkernel k stream=a\nkernel k stream=b"

    assert starts(text, [10, 1, 3]) == [0, 10, 0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no step"),
        ("h2d", "line 1"),
        ("h2d 1\nsend 5", "line 2.*a line is"),
        ("h2d 1 n=5", "a transfer has no sizes, but n"),
        ("kernel k n=many", "line 1"),
        ("kernel k n", "not of the form name=value"),
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

    found = predict_application(text, device, profile_options=options)

    answers = predict_all(KERNEL, device, n=n, models="merpsys", profile_options=options)
    kernel_s = float(answers.predictions["merpsys"].time_s)
    copies = [transfer_time(device.links[way], 4 * n) for way in ("h2d", "h2d", "d2h")]
    assert found.time_s == pytest.approx(sum(copies) + kernel_s)
    assert list(found.to_frame()["step"]) == ["h2d 1", "h2d 2", "kernel 3", "d2h 4"]
    assert "merpsys on nvidia-gtx-970" in repr(found)


def test_a_device_that_is_not_given_is_refused() -> None:
    with pytest.raises(ParameterError, match="on device 1, but there are 1"):
        predict_application("h2d 5 device=1", "nvidia-gtx-970")


def test_the_command_line_predicts_an_application(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "app.txt"
    path.write_text(f"h2d 400000\nkernel {KERNEL} n=131072\nd2h 400000 stream=b\n")

    assert main(["application", str(path), "--registers", "16", "--on", "nvidia-gtx-970"]) == 0

    assert "merpsys on nvidia-gtx-970" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("h2d 5 stream=a\nkernel nothing n=5 stream=b", KernelSpecificationError, "nothing"),
        (f"h2d 5\nkernel {KERNEL} stream=b", CountperfError, "n"),
    ],
)
def test_kernels_that_do_not_exist_and_sizes_that_lack_are_refused(
    text: str, error: type[CountperfError], said: str
) -> None:
    with pytest.raises(error, match=said):
        predict_application(text, "nvidia-gtx-970")
