"""One prediction: the function, the method of weights, and the command line."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import loopy as lp
import numpy as np
import pytest

import countperf
from countperf import errors
from countperf.api import prediction as choosing
from countperf.api.kernels import Kernel
from countperf.cli import main
from countperf.devices.device import Findings
from countperf.devices.discovery import Discovery
from countperf.models.library import list_fits, load_weights

SLUG = "pocl-epyc-zen5"


def _axpy(kernel_file: Path) -> lp.TranslationUnit:
    return countperf.load_kernel(f"{kernel_file}:axpy")


@pytest.fixture
def no_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = Discovery((Findings(problem="none", advice="get one"),))
    monkeypatch.setattr("countperf.devices.discovery.discover", lambda: nothing)


@pytest.mark.usefixtures("no_devices")
def test_function_method_and_command_line_agree(
    kernel_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    by_function = countperf.predict(_axpy(kernel_file), n=2**20, weights=SLUG)
    by_name = countperf.predict(f"{kernel_file}:axpy", n=2**20, weights=load_weights(SLUG))
    assert main(["predict", f"{kernel_file}:axpy", "n=1048576", "--weights", SLUG, "--json"]) == 0
    printed = capsys.readouterr()
    assert by_function.time_s == by_name.time_s == json.loads(printed.out)["time_s"]
    assert by_function.interval_s == by_name.interval_s
    assert "model structural: the device of the weights" in by_function.model_choice
    assert printed.err.splitlines() == [f"countperf: {by_function.model_choice}"]
    assert by_name.model_choice == ""  # the weights were the choice


@pytest.mark.usefixtures("no_devices")
def test_the_method_takes_statistics_and_anchors(kernel_file: Path) -> None:
    weights = load_weights(SLUG)
    given: dict[str, Any] = {"statistics": {"j": 12, "x": "stride1"}, "incomplete_ok": True}
    method = countperf.predict(f"{kernel_file}:rows", m=4096, k=50000, weights=weights, **given)
    function = countperf.predict(
        f"{kernel_file}:rows", m=4096, k=50000, weights=SLUG, model="structural", **given
    )
    assert method.time_s == function.time_s > 0
    plain = countperf.predict(_axpy(kernel_file), n=2**20, weights=weights)
    anchored = countperf.predict(
        _axpy(kernel_file),
        n=2**20,
        anchors=[({"n": 2**20}, 2 * float(plain.time_s))],
        weights=weights,
    )
    assert float(plain.time_s) < float(anchored.time_s) < 2.001 * float(plain.time_s)


def test_an_unknown_size_is_named_with_those_of_the_kernel(kernel_file: Path) -> None:
    kernel = _axpy(kernel_file)
    weights = load_weights(SLUG, model="linear")
    function: Any = partial(countperf.predict, kernel, weights=weights)
    method: Any = partial(weights.predict, countperf.count_kernel(kernel))
    for predict, unknown in ((function, "modell"), (method, "modell"), (method, "weights")):
        with pytest.raises(
            errors.ParameterError, match=f"no parameter {unknown}; its sizes"
        ) as caught:
            predict(n=64, **{unknown: 5})
        assert caught.value.parameter == unknown


def test_weights_predict_counts_and_refuse_kernels(kernel_file: Path) -> None:
    weights: Any = load_weights(SLUG, model="linear")
    with pytest.raises(
        errors.ParameterError, match=r"countperf.predict\(kernel, sizes, weights=weights"
    ):
        weights.predict(_axpy(kernel_file), n=64)


@pytest.mark.device
def test_compiled_code_is_read_where_its_device_is(kernel_file: Path, slug_here: str) -> None:
    kernel = _axpy(kernel_file)
    sizes = np.array([2**19, 2**20])  # of the same code
    chosen = [countperf.predict(kernel, n=int(n), weights=slug_here) for n in sizes]
    several = countperf.predict(kernel, n=sizes, weights=slug_here)
    method = countperf.predict(kernel, n=2**20, weights=load_weights(slug_here, model="compiled"))
    times = np.asarray(several.time_s).tolist()
    assert times == pytest.approx([each.time_s for each in chosen], rel=1e-12)
    assert method.time_s == pytest.approx(times[1], rel=1e-12)
    for prediction in (*chosen, several):
        assert prediction.model.startswith("compiled")
        start = "model compiled: the device of the weights is here"
        assert prediction.model_choice.startswith(start)


@pytest.mark.parametrize(
    ("error", "stays"),
    [
        (errors.CountingError("a loop depends on data"), True),
        (errors.KernelBuildError("no", stage="run"), True),
        (errors.KernelBuildError("does not build on pocl:0: no such type"), False),
    ],
)
def test_code_that_cannot_be_followed_leaves_the_structural_model_but_what_builds_not_has_none(
    kernel_file: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, stays: bool
) -> None:
    def fails(*_: object) -> None:
        raise error

    reading = load_weights(SLUG, model="compiled")
    monkeypatch.setattr(choosing, "reading_weights", lambda *_: reading)
    monkeypatch.setattr(Kernel, "add_code", fails)
    if stays:
        prediction = countperf.predict(_axpy(kernel_file), n=2**20, weights=SLUG)
        said = f"model structural: the one that reads compiled code fails: {error}"
        assert (prediction.model[:10], prediction.model_choice) == ("structural", said)
    # asked for by name, it is not replaced
    for model in ("compiled",) if stays else ("compiled", None):
        with pytest.raises(type(error), match=str(error)):
            countperf.predict(_axpy(kernel_file), n=2**20, weights=SLUG, model=model)


@pytest.mark.usefixtures("no_devices")
def test_counts_by_hand_have_no_code() -> None:
    counts = {"launches": 1, "groups": 64}
    prediction = countperf.predict(counts, weights=SLUG, incomplete_ok=True)
    said = "model structural: counts without a kernel have no code to compile"
    assert prediction.model_choice == said


@pytest.mark.parametrize("model", ["nosuch", "*", "evaluation", "../pocl-epyc-zen4/linear"])
def test_models_are_looked_up_among_those_there_are(kernel_file: Path, model: str) -> None:
    said = f"{SLUG} has no weights of a model {model!r}; there are: compiled, linear, structural"
    with pytest.raises(errors.CountperfError, match=f"{re.escape(said)}$"):
        countperf.predict(_axpy(kernel_file), n=64, weights=SLUG, model=model)


def test_the_models_that_are_listed_can_be_loaded_and_a_file_has_one_model() -> None:
    models = list_fits()[SLUG].models
    for model in models:
        assert model in load_weights(SLUG, model=model).model
    path = models["linear"]
    assert load_weights(path, model="linear").model == "linear"
    with pytest.raises(errors.ParameterError, match="are of the model linear, not 'structural'"):
        load_weights(path, model="structural")
    with pytest.raises(errors.DocumentError):
        load_weights(path.parent / "evaluation.json")


def test_a_cost_function_reads_no_code(kernel_file: Path) -> None:
    weights = load_weights(SLUG, model="compiled")
    with pytest.raises(errors.PredictionError, match="such as the structural"):
        weights.compile(countperf.load_kernel(f"{kernel_file}:axpy"))
