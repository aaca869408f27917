"""Fits of the user's own: under names of their own, never in place of what ships."""

from __future__ import annotations

import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from countperf.api import fits as available_fits
from countperf.api.fits import available_weights
from countperf.api.prediction import default_weights
from countperf.errors import DeviceMismatchError
from countperf.models import library
from countperf.models.fitting.fit_model import fit
from countperf.models.library import find_fit, load_weights, store_own_fit
from countperf.models.shipped import LINEAR
from tests.cli.conftest import Run
from tests.models.builders import make_device, make_weights
from tests.models.fitting.builders import KERNELS, TEST_KERNEL, measure

DEVICE = measure((KERNELS[0],)).device


@pytest.fixture
def store(tmp_path: Path) -> str:
    path = tmp_path / "campaign.jsonl"
    measure((*KERNELS, TEST_KERNEL)).write_file(path)
    return str(path)


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Return where fits ship and where the user's own are; both are empty."""
    shipped, own = tmp_path / "shipped", tmp_path / "own"
    monkeypatch.setattr(library, "fits_folders", lambda: (shipped,))
    monkeypatch.setattr(library, "user_fits_folder", lambda: own)
    return shipped, own


def _ship(folder: Path) -> None:
    weights = fit(measure(KERNELS)).weights
    weights.write_file(folder / DEVICE.slug / "linear.json")
    DEVICE.write_file(folder / DEVICE.slug / "identity.json")


def test_a_fit_has_a_name_of_its_own_and_says_how_it_compares(
    store: str, folders: tuple[Path, Path], run: Run
) -> None:
    shipped, own = folders
    _ship(shipped)
    before = (shipped / DEVICE.slug / "linear.json").read_bytes()
    printed = run(f"fit {store} --name first").out
    assert f"written to {own / 'first' / 'linear.json'}; to use it: --weights mine/first" in printed
    default = f"default for {DEVICE.slug}, where no weights are named: "
    assert printed.splitlines()[-1].endswith(f"{default}{DEVICE.slug} (it ships)")
    assert (shipped / DEVICE.slug / "linear.json").read_bytes() == before
    fit_of_device = find_fit(DEVICE.slug)
    assert fit_of_device is not None
    assert not fit_of_device.is_own
    assert run(f"evaluate {store} --weights mine/first --json").json["device"] == DEVICE.slug
    judged = run(f"evaluate {store} --weights mine/first").out.splitlines()
    assert judged[-2].startswith(f"{DEVICE.slug}, by default: predicted ")
    said = rf"mine/first a factor of [\d.]+ and {DEVICE.slug} a factor of [\d.]+ in the mean; "
    better = rf"better on these kernels: --weights (mine/first|{DEVICE.slug})"
    assert re.fullmatch(said + better, judged[-1])


def test_a_name_that_is_taken_gets_a_number_unless_it_is_to_be_replaced(
    store: str, folders: tuple[Path, Path], run: Run
) -> None:
    _, own = folders
    other_model = Path(store).with_name("other.json")
    LINEAR.model_copy(update={"name": "other"}).write_file(other_model)
    for options, name in (
        ("--model linear", "mine/first"),
        ("--model linear", "mine/first-2"),
        (f"--model {other_model}", "mine/first"),  # another model of the same fit
    ):
        assert run(f"fit {store} --name first --json {options}").json["name"] == name
    assert sorted(path.name for path in own.iterdir()) == ["first", "first-2"]
    other = make_weights({"launches": 1.0}, device=make_device(slug="pocl-other", name="Other"))
    assert store_own_fit(other, name="first", replace=True)[0] == "mine/first-3"
    for model in ("linear", "other"):
        assert load_weights("mine/first", model=model).model == model


def test_fits_are_shown_and_only_those_of_the_user_are_removed(
    store: str, folders: tuple[Path, Path], run: Run
) -> None:
    _ship(folders[0])
    run(f"fit {store} --name first")
    by_name = {row["name"]: row for row in run("weights --json").json}
    assert by_name.keys() == {DEVICE.slug, "mine/first"}
    shown = run("weights show mine/first").out
    assert shown.startswith(f"linear model of {DEVICE.slug}")
    assert run("weights show mine/first --model linear").out == shown
    assert "there are: linear" in run("weights show mine/first --model other", status=1).err
    for name, said in ((DEVICE.slug, "ships, and stays"), ("mine/frst", "did you mean mine/first")):
        assert said in run(f"weights remove {name}", status=1).err
    assert "takes the name of a fit" in run("weights remove", status=1).err
    assert run("weights remove mine/first").out.startswith("mine/first is removed")
    assert not (folders[1] / "first").exists()
    assert find_fit("mine/first") is None


def test_fits_stored_at_once_all_remain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "user_fits_folder", lambda: tmp_path)
    fits = [make_weights({"launches": float(n)}, device=DEVICE) for n in range(6)]
    with ThreadPoolExecutor(6) as pool:
        stored = list(pool.map(lambda weights: store_own_fit(weights, name="a"), fits))
    assert sorted(name for name, _ in stored) == ["mine/a", *(f"mine/a-{n}" for n in range(2, 7))]
    assert [load_weights(name).weights for name, _ in stored] == [fit.weights for fit in fits]


def test_a_fit_that_is_removed_while_fits_are_listed_is_left_out(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("gone", "kept"):
        store_own_fit(make_weights({"launches": 1.0}, device=DEVICE), name=name)

    def listed_before() -> dict[str, library.NamedFit]:
        listed = library.list_fits()
        shutil.rmtree(folders[1] / "gone", ignore_errors=True)
        return listed

    monkeypatch.setattr(available_fits, "list_fits", listed_before)
    assert [fit.name for fit in available_weights()] == ["mine/kept"]


def test_without_a_name_it_is_device_and_date(
    store: str, folders: tuple[Path, Path], run: Run
) -> None:
    printed = run(f"fit {store}").out
    (folder,) = folders[1].iterdir()
    assert folder.name.startswith(f"{DEVICE.slug}-20")
    assert f"mine/{folder.name} (the newest of your own)" in printed


@pytest.mark.parametrize(
    ("options", "said"),
    [
        *(
            (["--name", name], "cannot name a fit")
            for name in ("../elsewhere", "mine/", "a b", "/tmp/x", ".hidden", "a/b")
        ),
        (["--name", "first", "--output", "w.json"], "--output or --name, not both"),
    ],
)
def test_what_cannot_name_a_fit_is_refused_before_the_work(
    folders: tuple[Path, Path], run: Run, options: list[str], said: str
) -> None:
    assert said in run("fit no-such-file.jsonl", *options, status=1).err
    assert not folders[1].exists()


def test_the_default_is_what_ships_while_it_matches_the_device(folders: tuple[Path, Path]) -> None:
    shipped, own = folders
    old = make_weights({"launches": 2.0}, device=DEVICE)
    old.write_file(own / DEVICE.slug / "linear.json")  # as older versions wrote fits
    assert default_weights(DEVICE).weights == old.weights  # nothing ships
    _ship(shipped)
    assert default_weights(DEVICE) == load_weights(DEVICE.slug)
    assert load_weights(DEVICE.slug).weights != old.weights
    assert load_weights(f"mine/{DEVICE.slug}").weights == old.weights
    more_units = DEVICE.model_copy(update={"compute_units": DEVICE.compute_units + 1})
    with pytest.raises(DeviceMismatchError):
        default_weights(more_units)
    mine = make_weights({"launches": 3.0}, device=more_units)
    store_own_fit(mine, name="more-units")
    assert default_weights(more_units).weights == mine.weights  # what ships is of another device


def test_the_table_lists_shipped_and_own_fits(folders: tuple[Path, Path], run: Run) -> None:
    shipped, own = folders
    assert len(available_weights()) == 0
    _ship(shipped)
    store_own_fit(make_weights({"launches": 3.0}, device=DEVICE), name="quiet-night")
    (own / "damaged").mkdir()
    (own / "damaged" / "linear.json").write_text('{"format": "countperf-weights", "device": 3}')
    assert default_weights(DEVICE) == load_weights(DEVICE.slug)  # the damaged one does not matter
    table = available_weights()
    by_name = {fit.name: fit for fit in table}
    assert set(by_name) == {DEVICE.slug, "mine/quiet-night", "mine/damaged"}
    first = next(iter(table))
    assert (first.name, first.device, first.models) == (DEVICE.slug, DEVICE.slug, ("linear",))
    assert first.held_out_error is not None
    assert by_name["mine/quiet-night"].held_out_error == 0.1  # as the builder says
    assert "$" in by_name["mine/damaged"].problem
    assert list(table.to_frame()["name"]) == list(by_name)
    assert "mine/quiet-night" in repr(table)
    assert run("weights --json").json == table.lay_out().object()["fits"]
    assert run("weights").out.splitlines()[0].split()[:3] == ["name", "device", "models"]
