"""One kernel through every way to predict it, by the same model: the times are the same bits.

And what help, docstrings and signatures say of each default.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import countperf
from countperf.api import prediction
from countperf.api.kernels import Kernel
from countperf.api.prediction import choose_weights
from countperf.cli import main, parser
from countperf.devices.compile import compiled_kernel
from countperf.devices.device import Device
from countperf.errors import KernelBuildError
from countperf.models.weights import WeightSet
from countperf.tuning.space import SearchSpace
from measurement_kernels.catalog import entry
from tests.shipped import FITS, shipped_measurements

SLUG = "pocl-epyc-zen5"
PATH = FITS / SLUG / "weights.json"
KERNEL = "matmul-skinny/16x16/f32"


def _build(width: int) -> Any:
    assert width == 16
    return entry(KERNEL).build()


SPACE = SearchSpace(name="skinny", parameters={"width": [16]}, build=_build)


@cache
def _find_case() -> Any:
    """Return a measured size of the kernel, of which fits have seen none."""
    return next(m for m in shipped_measurements(SLUG) if m.kernel == KERNEL)


@cache
def _sizes() -> dict[str, int]:
    return dict(_find_case().parameters)


@cache
def _weights() -> WeightSet:
    return countperf.load_weights(SLUG, model="structural")


def _run_command(*arguments: str, capsys: pytest.CaptureFixture[str]) -> Any:
    sizes = [f"{name}={value}" for name, value in _sizes().items()]
    assert main([*arguments, *sizes, "--model", "structural", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def _record_launch() -> float:
    """Note a launch as Loopy's executor hands it over, and read its predicted time."""
    known = entry(KERNEL)
    unit = known.build()
    inputs = known.make_arguments(np.random.default_rng(0), _sizes())
    with countperf.recording(weights=_weights()) as log:
        executor = SimpleNamespace(t_unit=unit, entrypoint=unit.default_entrypoint.name)
        log.note(executor, None, {**_sizes(), **inputs})
    (row,) = log.rows
    return row["predicted_s"]


def _evaluate_case() -> float:
    measured = shipped_measurements(SLUG).select(lambda m: m.case == _find_case().case)
    (case,) = countperf.evaluate(measured, weights=SLUG, model="structural").cases
    return case.predicted_s


def _predict(kernel: Any = KERNEL, **options: Any) -> float:
    return float(countperf.predict(kernel, _sizes(), **options).time_s)


def _rank_variant(**options: Any) -> float:
    (best,) = countperf.rank(SPACE, _sizes(), workers=1, **options).best
    return best.time_s


def _count_kernel() -> countperf.PropertyVector:
    return Kernel.of(KERNEL, _sizes()).count_for(_weights())


def _predict_on_devices() -> float:
    answers = countperf.predict_on(KERNEL, [SLUG], _sizes(), models="structural").answers
    assert answers[0].prediction is not None
    return float(answers[0].prediction.time_s)


def _several_sizes() -> dict[str, Any]:
    return {name: np.array([value, 2 * value]) for name, value in _sizes().items()}


ROUTES: dict[str, Callable[[], float]] = {
    "name": lambda: _predict(weights=SLUG, model="structural"),
    "path": lambda: _predict(weights=PATH, model="structural"),
    "weights": lambda: _predict(weights=_weights()),
    "translation unit": lambda: _predict(entry(KERNEL).build(), weights=_weights()),
    "counts": lambda: _predict(_count_kernel(), weights=_weights()),
    "several sizes": lambda: float(
        np.ravel(countperf.predict(KERNEL, _several_sizes(), weights=_weights()).time_s)[0]
    ),
    "explain": lambda: float(
        countperf.explain(KERNEL, _sizes(), weights=SLUG, model="structural").prediction.time_s
    ),
    "choose_weights": lambda: float(
        choose_weights(SLUG, model="structural").predict(Kernel.of(KERNEL, _sizes())).time_s
    ),
    "WeightSet.predict": lambda: float(_weights().predict(_count_kernel(), _sizes()).time_s),
    "WeightSet.compile": lambda: float(_weights().compile(_count_kernel())(**_sizes())),
    "compile, several sizes": lambda: float(
        np.ravel(_weights().compile(_count_kernel())(**_several_sizes()))[0]
    ),
    "rank": lambda: _rank_variant(weights=SLUG, model="structural"),
    "rank by default": lambda: _rank_variant(weights=SLUG),
    "predict_on": _predict_on_devices,
    "recording": _record_launch,
    "evaluate": _evaluate_case,
}


@pytest.mark.parametrize("route", ROUTES)
def test_every_way_gives_the_same_bits(route: str) -> None:
    assert ROUTES[route]() == ROUTES["name"]()


def test_the_command_gives_the_same_bits(capsys: pytest.CaptureFixture[str]) -> None:
    made = _run_command("predict", KERNEL, "--weights", SLUG, capsys=capsys)
    assert made["time_s"] == ROUTES["name"]()
    table = _run_command("predict", KERNEL, "--on", f"{SLUG},pocl-epyc-zen4", capsys=capsys)
    assert ROUTES["name"]() in _list_numbers(table)


def _list_numbers(content: Any) -> set[float]:
    """Return all numbers in a document."""
    if isinstance(content, dict):
        content = [*content.values()]
    if isinstance(content, list):
        return {number for part in content for number in _list_numbers(part)}
    return {content} if isinstance(content, float) else set()


@pytest.mark.device
def test_a_timing_predicts_the_same_bits(device: Device) -> None:
    timing = countperf.time_kernel(
        KERNEL, _sizes(), device=device, weights=SLUG, model="structural", force=True
    )
    assert timing.sizes[0].predicted_s == ROUTES["name"]()


# --- defaults

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "predict": countperf.predict,
    "time": countperf.time_kernel,
    "evaluate": countperf.evaluate,
    "rank": countperf.rank,
    "tune": countperf.tune,
    "fit": countperf.fit,
    "calibrate": countperf.calibrate,
    "measure": countperf.measure_catalogue,
    "compiled": countperf.with_compiled_code,
    "sweep": countperf.sweep,
    "application": countperf.predict_application,
}
CALLED = {"incomplete": "incomplete_ok", "longest": "longest_s", "budget": "seconds"}
"""Parameters of functions whose options are called otherwise."""

OTHERS = {("fit", "model")}
"""Options that mean more than the parameter: the command fits several models."""


@cache
def _list_options(command: str) -> dict[str, argparse.Action]:
    """Return the options of a command by the parameters of its function."""
    actions: Any = parser()._actions
    (commands,) = (a.choices for a in actions if isinstance(a.choices, dict))
    known = inspect.signature(FUNCTIONS[command]).parameters
    taken: Any = commands[command]._actions
    named = {str(CALLED.get(a.dest, a.dest)): a for a in taken}
    return {name: a for name, a in named.items() if name in known}


ROWS = [(c, name) for c in FUNCTIONS for name in _list_options(c) if (c, name) not in OTHERS]


@pytest.mark.parametrize(("command", "name"), ROWS)
def test_help_documentation_and_code_state_the_same_default(command: str, name: str) -> None:
    option, function = _list_options(command)[name], FUNCTIONS[command]
    default = inspect.signature(function).parameters[name].default
    if default is not inspect.Parameter.empty:
        assert option.default == default
    if isinstance(default, float | str):
        for said in re.findall(r"default: ([\w.]+)", option.help or ""):
            assert type(default)(said) == default
        for said in re.findall(r"by default (\d+)", _find_documentation(function, name)):
            assert float(said) == default


def _find_documentation(function: Callable[..., Any], name: str) -> str:
    """Return what the docstring of a function says of a parameter, on one line."""
    entries = re.split(r"\n(?=\w)", inspect.getdoc(function) or "")
    (said,) = [e for e in entries if re.match(rf"([\w*]+, )*{name}\b.*(:|\n    )", e)]
    return " ".join(said.split())


def test_the_pages_of_the_reference_are_made_of_these_texts() -> None:
    pages = FITS.parent / "docs" / "reference"
    assert ":module: countperf.cli\n:func: parser\n" in (pages / "commands.md").read_text("utf-8")
    assert ".. automodule:: countperf\n   :members:" in (pages / "api.md").read_text("utf-8")
    assert {function.__name__ for function in FUNCTIONS.values()} <= {*countperf.__all__}


@pytest.mark.device
@pytest.mark.parametrize("model", [None, pytest.param("compiled", marks=pytest.mark.nightly)])
def test_variants_are_predicted_by_code_as_kernels_are(slug_here: str, model: str | None) -> None:
    named: dict[str, Any] = {"weights": slug_here, "model": model}
    predicted = countperf.predict(KERNEL, _sizes(), **named)
    ranking = countperf.rank(SPACE, _sizes(), workers=1, **named)
    search: dict[str, Any] = {"device": slug_here, "measurements": 1, "workers": 1}
    result = countperf.tune(SPACE, _sizes(), **search, **named)
    assert (ranking.best[0].time_s, ranking.best[0].model) == (predicted.time_s, "compiled")
    assert (result.winner.predicted_s, result.winner.model) == (predicted.time_s, "compiled")
    chosen = predicted.model, predicted.model_choice
    assert chosen == (ranking.model, ranking.model_choice) == (result.model, result.model_choice)


@pytest.mark.parametrize("error", ["a loop depends on data", ""])
def test_variants_whose_code_is_not_followed_are_predicted_by_counts_as_kernels_are(
    monkeypatch: pytest.MonkeyPatch, error: str
) -> None:
    """Where the compiler refuses, there is no time, by any model; a model that is named stays."""
    built = KernelBuildError(error, stage="run" if error else "build")
    reading = countperf.load_weights(SLUG, model="compiled")
    monkeypatch.setattr(prediction, "reading_weights", lambda *_: reading)
    monkeypatch.setattr(compiled_kernel, "find_device", lambda _: None)
    monkeypatch.setattr(compiled_kernel, "read_compiled", lambda units, _: [built] * len(units))
    with ThreadPoolExecutor(1) as pool:
        ranking = countperf.rank(SPACE, _sizes(), weights=SLUG, executor=pool)
        named = countperf.rank(SPACE, _sizes(), weights=SLUG, model="compiled", executor=pool)
    assert ranking.model_choice.startswith("model compiled: the device of the weights is here")
    times = [(point.time_s, point.model) for point in ranking.best]
    assert times == ([(ROUTES["name"](), "structural")] if error else [])
    (stage,) = named.refusals
    assert (stage, named.model_choice) == ("count" if error else "compile", "")
    assert [*ranking.unread, *ranking.refusals] == [stage]


@pytest.mark.parametrize("command", ["predict", "time", "evaluate", "rank", "tune"])
def test_the_model_that_reads_code_is_the_default_where_it_can_be_read(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for said in (
        _list_options(command)["model"].help,
        _find_documentation(countperf.predict, "model"),
    ):
        assert re.search("by default (the one that reads )?compiled .*structural", said or "", re.I)
    reading = countperf.load_weights(SLUG, model="compiled")
    monkeypatch.setattr(prediction, "reading_weights", lambda *_: reading)
    assert choose_weights(SLUG).weights.model == reading.model
    monkeypatch.setattr(prediction, "reading_weights", lambda *_: "it is not here")
    chosen = choose_weights(SLUG)
    assert chosen.weights.model == _weights().model
    assert chosen.why == "model structural: it is not here"


def test_the_first_of_the_levels_is_the_default() -> None:
    (levels,) = re.findall(r"level : \{(.*)\}", inspect.getdoc(countperf.predict) or "")
    default = inspect.signature(countperf.predict).parameters["level"].default
    assert float(levels.split(",")[0]) == default
    assert (
        countperf.predict(_count_kernel(), _sizes(), weights=_weights()).interval_level == default
    )
