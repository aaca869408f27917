"""Finding fits by slug and by path."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from countperf.errors import DocumentError, ParameterError
from countperf.mechanistic.predict_all import model_names
from countperf.models import library
from countperf.models.library import find_fit, fits_folders, list_fits, load_weights
from tests.models.builders import make_device, make_weights

Have = Callable[..., None]


def _store(folder: Path, slug: str, value: float = 1e-6, *, model: str = "linear") -> Path:
    path = folder / slug / f"{model}.json"
    make_weights({"launches": value}, device=make_device(slug=slug)).write_file(path)
    return path


def value(name: str | Path, model: str | None = None) -> float:
    return load_weights(name, model=model).weights[0].value_s


@pytest.fixture
def have(monkeypatch: pytest.MonkeyPatch) -> Have:
    """Set the folders of shipped fits, and that of one's own."""

    def folders(*shipped: Path, own: Path = Path("/nowhere")) -> None:
        monkeypatch.setattr(library, "fits_folders", lambda: shipped)
        monkeypatch.setattr(library, "user_fits_folder", lambda: own)

    return folders


def test_a_slug_is_found_in_the_folders_in_order(tmp_path: Path, have: Have) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    _store(first, "pocl-a", 1.0)
    _store(second, "pocl-a", 2.0)
    _store(second, "pocl-b", 3.0)
    have(first, second, tmp_path / "absent")
    assert (value("pocl-a"), value("pocl-b")) == (1.0, 3.0)
    assert list(list_fits()) == ["pocl-a", "pocl-b"]


def test_a_fit_of_ones_own_never_shadows_one_that_ships(tmp_path: Path, have: Have) -> None:
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
    have(shipped, own=own)
    assert list(list_fits()) == ["pocl-a", "mine/pocl-a", "mine/pocl-b", "mine/second-try"]
    assert [value(name) for name in list_fits()] == [1.0, 2.0, 3.0, 4.0]
    assert value("pocl-b") == 4.0  # nothing ships for it: the newest of one's own
    fit = find_fit("mine/second-try")
    assert fit is not None
    assert (fit.identity.slug, fit.is_own) == ("pocl-b", True)
    with pytest.raises(DocumentError, match="no fitted weights are named 'mine/third'"):
        value("mine/third")


def test_the_chosen_model_is_the_default_others_go_by_name(tmp_path: Path, have: Have) -> None:
    path = _store(tmp_path, "pocl-a", 1.0)
    _store(tmp_path, "pocl-a", 2.0, model="weights")
    _store(tmp_path, "pocl-b", 3.0)
    have(tmp_path)
    assert [value(slug) for slug in ("pocl-a", "pocl-b", path.parent, str(path))] == [2, 3, 2, 1]
    assert value("pocl-a", "linear") == value(path.parent, "linear") == 1.0
    with pytest.raises(ParameterError, match=r"no weights of a model 'overlap'; there are: linear"):
        value("pocl-a", "overlap")


def test_what_is_not_there_is_said_with_what_there_is(tmp_path: Path, have: Have) -> None:
    have(tmp_path)
    with pytest.raises(DocumentError, match="available: none: measure and fit a device first"):
        load_weights("pocl")
    _store(tmp_path, "pocl-epyc")
    _store(tmp_path, "nvidia-h200")
    near = r"did you mean pocl-epyc\? \(available: nvidia-h200, pocl-epyc\)"
    with pytest.raises(DocumentError, match=near):
        load_weights("pocl-epic")
    for path in (tmp_path / "linear.json", "nowhere/linear.json"):
        with pytest.raises(DocumentError, match="No such file"):
            load_weights(path)


def test_packages_and_checkouts_have_their_fits(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(library, "_PACKAGE", tmp_path / "countperf")
    installed = fits_folders()
    (tmp_path / "pyproject.toml").touch()
    assert installed == (tmp_path / "countperf" / "_fits",)
    assert fits_folders() == (*installed, tmp_path / "fits")


def test_names_of_models_are_short() -> None:
    shipped = [fit for fit in list_fits().values() if not fit.is_own]
    names = {*model_names(), *(name for fit in shipped for name in fit.models)}
    assert {"structural", "compiled", "volkov"} <= names
    assert max(map(len, names)) <= 20
