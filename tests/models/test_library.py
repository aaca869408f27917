"""Finding fits by slug and by path."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from countperf.errors import DocumentError, ParameterError
from countperf.mechanistic.predict_all import model_names
from countperf.models import library
from countperf.models.library import find_fit, fits_folders, load_weights, named_fits
from tests.models.builders import make_device, make_weights


def _store(folder: Path, slug: str, value: float = 1e-6, *, model: str = "linear") -> Path:
    path = folder / slug / f"{model}.json"
    make_weights({"launches": value}, device=make_device(slug=slug)).write_file(path)
    return path


def _have(monkeypatch: pytest.MonkeyPatch, *shipped: Path, own: Path = Path("/nowhere")) -> None:
    monkeypatch.setattr(library, "fits_folders", lambda: shipped)
    monkeypatch.setattr(library, "user_fits_folder", lambda: own)


def test_a_slug_is_found_in_the_folders_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, shipped = tmp_path / "own", tmp_path / "shipped"
    _store(own, "pocl-a", 1.0)
    _store(shipped, "pocl-a", 2.0)
    _store(shipped, "pocl-b", 3.0)

    _have(monkeypatch, own, shipped, tmp_path / "absent")

    assert load_weights("pocl-a").weights[0].value_s == 1.0
    assert load_weights("pocl-b").weights[0].value_s == 3.0
    assert list(named_fits()) == ["pocl-a", "pocl-b"]


def test_a_fit_of_ones_own_never_shadows_one_that_ships(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, shipped = tmp_path / "own", tmp_path / "shipped"
    _store(shipped, "pocl-a", 1.0)
    _store(own, "pocl-a", 2.0)  # as older versions wrote them: the folder is the slug
    _store(own, "pocl-b", 3.0)
    newer = own / "second-try"
    make_weights({"launches": 4.0}, device=make_device(slug="pocl-b")).write_file(
        newer / "overlap.json"
    )
    make_device(slug="pocl-b").write_file(newer / "identity.json")
    os.utime(newer / "overlap.json", (2e9, 2e9))

    _have(monkeypatch, shipped, own=own)

    def value(name: str) -> float:
        return load_weights(name).weights[0].value_s

    assert list(named_fits()) == [
        "pocl-a",
        "mine/pocl-a",
        "mine/pocl-b",
        "mine/second-try",
    ]
    assert (value("pocl-a"), value("mine/pocl-a")) == (1.0, 2.0)
    assert (value("mine/pocl-b"), value("mine/second-try")) == (3.0, 4.0)
    assert value("pocl-b") == 4.0  # nothing ships for it: the newest of one's own
    found = find_fit("mine/second-try")
    assert found is not None
    assert (found.identity.slug, found.is_own) == ("pocl-b", True)
    with pytest.raises(DocumentError, match="no fitted weights are named 'mine/third'"):
        value("mine/third")


def test_a_path_is_a_file_or_a_folder_of_fits(tmp_path: Path) -> None:
    path = _store(tmp_path, "pocl-a")

    assert load_weights(path) == load_weights(str(path)) == load_weights(path.parent)


def test_the_chosen_model_is_the_default_and_the_others_go_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = tmp_path / "shipped"
    _store(shipped, "pocl-a", 1.0)
    _store(shipped, "pocl-a", 2.0, model="weights")
    _store(shipped, "pocl-b", 3.0)
    _have(monkeypatch, shipped)

    def value(slug: str, model: str | None = None) -> float:
        return load_weights(slug, model=model).weights[0].value_s

    assert [value(slug) for slug in ("pocl-a", "pocl-b")] == [2.0, 3.0]
    assert value("pocl-a", "linear") == 1.0
    assert load_weights(shipped / "pocl-a").weights[0].value_s == 2.0
    assert load_weights(shipped / "pocl-a", model="linear").weights[0].value_s == 1.0
    with pytest.raises(ParameterError, match=r"no weights of a model 'overlap'; there are: linear"):
        value("pocl-a", "overlap")


def test_an_unknown_slug_lists_what_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _store(tmp_path, "pocl-epyc")
    _store(tmp_path, "nvidia-h200")
    _have(monkeypatch, tmp_path)

    with pytest.raises(
        DocumentError, match=r"did you mean pocl-epyc\? \(available: nvidia-h200, pocl-epyc\)"
    ):
        load_weights("pocl-epic")


def test_without_any_fit_the_message_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _have(monkeypatch, tmp_path)
    with pytest.raises(DocumentError, match="available: none: measure and fit a device first"):
        load_weights("pocl")


def test_a_path_that_is_not_there_is_called_a_path(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="No such file"):
        load_weights(tmp_path / "linear.json")
    with pytest.raises(DocumentError, match="No such file"):
        load_weights("nowhere/linear.json")


def test_an_installed_package_and_a_checkout_have_their_fits(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(library, "_PACKAGE", tmp_path / "countperf")
    installed = fits_folders()
    (tmp_path / "pyproject.toml").touch()
    checkout = fits_folders()

    assert installed == (tmp_path / "countperf" / "_fits",)
    assert checkout == (*installed, tmp_path / "fits")


def test_names_of_models_are_short() -> None:
    shipped = [fit for fit in named_fits().values() if not fit.is_own]
    names = {
        *model_names(),
        *(name for fit in shipped for name in fit.models),
    }

    assert {"structural", "compiled", "volkov"} <= names
    assert max(map(len, names)) <= 20
