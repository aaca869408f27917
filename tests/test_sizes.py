"""Sizes that no kernel takes: beyond a type, given twice, of hundreds of digits; repeated cases."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import loopy as lp
import numpy as np
import pytest

from countperf.cli import main
from countperf.errors import DocumentError, KernelBuildError, ParameterError
from countperf.harness.arrays import as_scalar
from countperf.harness.campaign import measure
from countperf.harness.description import describe_kernel
from countperf.measurements import MeasurementSet
from countperf.models.library import load_weights
from countperf.properties.count_properties import count_kernel
from countperf.tuning.result import Budget
from countperf.workflow import prediction
from tests.harness.fakes import PROTOCOL, FakeRunner, make_case

KERNEL = "n-body/256x1/f32"


def _double(kind: type[np.integer] | None) -> lp.TranslationUnit:
    arguments = [lp.GlobalArg("z,y", np.float32, shape="n"), lp.ValueArg("n", kind)]
    unit = lp.make_kernel(
        "{ [i] : 0 <= i < n }", "z[i] = 2*y[i]", arguments, lang_version=(2018, 2)
    )
    return lp.split_iname(unit, "i", 256, outer_tag="g.0", inner_tag="l.0")


@pytest.mark.parametrize(
    ("kind", "largest", "name"),
    [
        (np.int32, 2**31 - 1, "int32"),
        (np.uint32, 2**32 - 1, "uint32"),
        (np.int64, 2**63 - 1, "int64"),
        (None, 2**31 - 1, "int32"),
    ],
)
def test_a_size_beyond_the_type_of_its_argument_is_refused(
    kind: type[np.integer] | None, largest: int, name: str
) -> None:
    vector = count_kernel(_double(kind))

    assert vector.evaluate(n=largest)["groups"] == (largest + 255) // 256
    for given in (
        largest + 1,
        np.array([16, largest + 1], dtype=object if largest > 2**62 else None),
    ):
        if isinstance(given, np.ndarray) and given.dtype == object:
            continue  # no array of NumPy's integers has it
        with pytest.raises(ParameterError, match=f"the largest value of its type {name}") as caught:
            vector.evaluate(n=given)
        assert caught.value.parameter == "n"


def test_the_advice_for_a_size_beyond_its_type_works() -> None:
    with pytest.raises(ParameterError, match=r'such as lp.ValueArg\("n", np.int64\)'):
        count_kernel(_double(np.int32)).evaluate(n=2**33)

    assert count_kernel(_double(np.int64)).evaluate(n=2**33)["groups"] == 2**25


def test_predictions_refuse_a_size_beyond_its_type() -> None:
    for size in (2**31, 2**33):
        with pytest.raises(ParameterError, match="the largest value of its type int32"):
            prediction.predict(_double(np.int32), weights="pocl-epyc-zen5", model="linear", n=size)


def test_launches_refuse_a_size_beyond_its_type() -> None:
    kernel = describe_kernel(_double(np.int32), lambda _: [])

    assert as_scalar(kernel.scalars["n"], 2**31 - 1) == 2**31 - 1
    with pytest.raises(KernelBuildError, match="2147483647"):
        as_scalar(kernel.scalars["n"], 2**31)


@pytest.mark.parametrize(
    ("arguments", "said", "status"),
    [
        (["n=16", "--json", "m=3"], "has no parameter m; its sizes are: n", 1),
        (["n=16", "n=32"], "n is given twice: n=16 and n=32; give it once", 1),
        (["n=" + "9" * 400], "400 digits are more than any size has", 2),
        (["n=" + "9" * 5000], "5000 digits are more than any size has", 2),
        (["n=8589934592"], "n = 8589934592 is beyond 2147483647", 1),
    ],
)
def test_bad_sizes_on_the_command_line_are_named(
    arguments: list[str], said: str, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        found = main(["count", KERNEL, *arguments])
    except SystemExit as error:
        found = error.code

    assert found == status
    assert said in capsys.readouterr().err


def test_a_case_that_is_measured_twice_is_refused(tmp_path: Path) -> None:
    store = tmp_path / "store.jsonl"
    cases = [make_case("a", n) for n in (16, 32)]
    measure(cases, store=store, runner=FakeRunner(), protocol=PROTOCOL)
    lines = store.read_text().splitlines(keepends=True)
    store.write_text("".join([*lines, lines[1]]))
    before = store.read_bytes()

    with pytest.raises(DocumentError, match=r"line 4: .*is measured in an earlier line") as caught:
        measure(cases, store=store, runner=FakeRunner(), protocol=PROTOCOL)

    assert (caught.value.line, caught.value.offset) == (4, len("".join(lines).encode()))
    assert "sed -i.damaged 4d" in str(caught.value)
    assert store.read_bytes() == before
    store.write_text("".join(lines))
    assert len(MeasurementSet.read_file(store)) == 2


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("predict k n=4 --weights a --weights b", "--weights is given twice"),
        ("measure --store a --family x --family x", "x is given twice"),
        ("rank matmul --longest inf", "inf is no number above 0"),
        ("rank matmul --longest nan", "nan is no number above 0"),
        ("tune matmul --budget inf", "inf is no number above 0"),
        ("tune matmul --measurements 0", "0 is less than 1"),
        ("predict k n=4 --anchor n=4,n=5:0.1", "gives a size twice"),
        ("predict k n=4 --anchor n=4:inf", "'inf' is no time"),
    ],
)
def test_options_are_given_once_and_are_finite(
    capsys: pytest.CaptureFixture[str], command: str, said: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(command.split())

    assert ended.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "refused",
    [
        lambda: prediction.predict(KERNEL, {"n": 512}, n=1024, weights="pocl-epyc-zen5"),
        lambda: PROTOCOL.changed(rounds=0),
        lambda: Budget(seconds=math.inf),
        lambda: load_weights("pocl-epyc-zen5").anchored({"launches": 1}, ({}, 1.0), ({}, 2.0)),
    ],
)
def test_values_are_given_once_and_are_finite(refused: Callable[[], object]) -> None:
    with pytest.raises(ParameterError, match=r"twice|no protocol has|is none|same sizes"):
        refused()


def test_a_negative_integer_scalar_is_timed(tmp_path: Path) -> None:
    case = make_case(parameters={"n": 16, "shift": -2})

    (found,) = measure([case], store=tmp_path / "m.jsonl", runner=FakeRunner(), protocol=PROTOCOL)

    assert found.parameters == {"n": 16, "shift": -2}
