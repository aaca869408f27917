"""Finding fits by slug and by path."""

from __future__ import annotations

from pathlib import Path

import pytest

from countperf.errors import DocumentError, ParameterError
from countperf.execution.policy import ExecutionPolicy
from countperf.models import library
from countperf.models.library import available_weights, fits_folders, load_weights, policy_of
from countperf.models.standard import from_expression
from tests.models.builders import make_device, make_weights


def _store(folder: Path, slug: str, value: float = 1e-6, *, model: str = "linear") -> Path:
    path = folder / slug / f"{model}.json"
    make_weights({"launches": value}, device=make_device(slug=slug)).write_file(path)
    return path


def test_a_slug_is_found_in_the_folders_in_order(tmp_path: Path) -> None:
    own, shipped = tmp_path / "own", tmp_path / "shipped"
    _store(own, "pocl-a", 1.0)
    _store(shipped, "pocl-a", 2.0)
    _store(shipped, "pocl-b", 3.0)

    folders = [own, shipped, tmp_path / "absent"]

    assert load_weights("pocl-a", folders=folders).weights[0].value_s == 1.0
    assert load_weights("pocl-b", folders=folders).weights[0].value_s == 3.0
    assert list(available_weights(folders=folders)) == ["pocl-a", "pocl-b"]


def test_a_path_is_a_file_or_a_folder_of_fits(tmp_path: Path) -> None:
    path = _store(tmp_path, "pocl-a")

    assert load_weights(path) == load_weights(str(path)) == load_weights(path.parent)


def test_the_chosen_model_is_the_default_and_the_others_go_by_name(tmp_path: Path) -> None:
    own, shipped = tmp_path / "own", tmp_path / "shipped"
    _store(shipped, "pocl-a", 1.0)
    _store(shipped, "pocl-a", 2.0, model="weights")
    _store(shipped, "pocl-b", 3.0)
    _store(shipped, "pocl-c", 4.0)
    _store(shipped, "pocl-c", 5.0, model="weights")
    _store(own, "pocl-c", 6.0)
    folders = [own, shipped]

    def value(slug: str, model: str | None = None) -> float:
        return load_weights(slug, model=model, folders=folders).weights[0].value_s

    assert [value(slug) for slug in ("pocl-a", "pocl-b")] == [2.0, 3.0]
    assert value("pocl-a", "linear") == 1.0
    assert value("pocl-c") == 6.0  # the user's own fit wins over one that ships
    assert load_weights(shipped / "pocl-a").weights[0].value_s == 2.0
    assert load_weights(shipped / "pocl-a", model="linear").weights[0].value_s == 1.0
    with pytest.raises(DocumentError, match=r"no overlap weights are named 'pocl-a'"):
        value("pocl-a", "overlap")


def test_an_unknown_slug_lists_what_there_is(tmp_path: Path) -> None:
    _store(tmp_path, "pocl-epyc")
    _store(tmp_path, "nvidia-h200")

    with pytest.raises(
        DocumentError, match=r"did you mean pocl-epyc\? \(available: nvidia-h200, pocl-epyc\)"
    ):
        load_weights("pocl-epic", folders=[tmp_path])


def test_without_any_fit_the_message_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="available: none: measure and fit a device first"):
        load_weights("pocl", folders=[tmp_path])


def test_a_path_that_is_not_there_is_called_a_path(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="No such file"):
        load_weights(tmp_path / "linear.json")
    with pytest.raises(DocumentError, match="No such file"):
        load_weights("nowhere/linear.json")


def test_the_users_own_folder_wins_and_a_checkout_has_its_fits(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(library, "_PACKAGE", tmp_path / "countperf")
    installed = fits_folders()
    (tmp_path / "pyproject.toml").touch()
    checkout = fits_folders()

    assert installed == (library.user_fits_folder(), tmp_path / "countperf" / "_fits")
    assert checkout == (*installed, tmp_path / "fits")


def test_a_policy_is_that_of_a_fit_or_of_a_models_document(tmp_path: Path) -> None:
    model = from_expression("launch + w_p*run_vector_passes_free", policy=ExecutionPolicy(width=4))
    model.write_file(tmp_path / "model.json")
    (tmp_path / "model.toml").write_text(
        'format = "countperf-model"\nversion = 1\nname = "mine"\n'
        'expression = "w_p*run_vector_passes_free"\n[policy]\nwidth = 4\n'
    )
    shipped = load_weights("pocl-epyc-zen5").definition.policy

    assert policy_of("pocl-epyc-zen5") == shipped != ExecutionPolicy()
    for name in ("model.json", "model.toml"):
        assert policy_of(tmp_path / name) == ExecutionPolicy(width=4)
    without = _store(tmp_path, "pocl-a")
    with pytest.raises(ParameterError, match=r"linear model of .* has no execution policy"):
        policy_of(without)
    with pytest.raises(DocumentError, match="did you mean pocl-epyc-zen5"):
        policy_of("pocl-epyc-zen55")


def test_policies_are_those_of_shipped_fits_whatever_the_user_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = library.shipped_policies()
    own = tmp_path / "own"
    _store(own, "pocl-a", model="weights")
    monkeypatch.setattr(library, "user_fits_folder", lambda: own)

    assert shipped == library.shipped_policies()
    assert len(set(shipped)) == len(shipped) >= 2
