"""Finding fitted weights by name: those that ship, and the user's own.

A fit of the user's own, ``mine/NAME``, never takes the place of one that ships. The slug of a
device without a shipped fit means the newest of the user's own for it.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from platformdirs import user_data_path

from countperf.devices.identity import DeviceIdentity
from countperf.errors import DocumentError, ParameterError, nearest
from countperf.models.shipped import STRUCTURAL
from countperf.models.weights import WeightSet
from countperf.sizes import checks_keywords
from countperf.store import lock_file
from countperf.text import short_name

DEFAULT_STEMS = ("weights", STRUCTURAL, "linear")
"""Names of the documents that are meant where no model is asked for, the first that there is."""

OWN = "mine/"  # first part of the names of the user's own fits

_HEAD_BYTES = 400  # of a document: its format and model come first
_HEAD = re.compile(r'\s*{\s*"format": "countperf-weights",\s*"version": \d+,\s*"model": "([^"]*)"')
_PACKAGE = Path(__file__).resolve().parent.parent


def user_fits_folder() -> Path:
    """Return where a user's own fits are kept, in the platform's place for data."""
    return user_data_path("countperf", appauthor=False) / "fits"


def fits_folders() -> tuple[Path, ...]:
    """Return the folders of the fits that ship: of an installed package, and of a checkout."""
    checkout = _PACKAGE.parent
    is_checkout = (checkout / "pyproject.toml").is_file()
    return _PACKAGE / "_fits", *([checkout / "fits"] if is_checkout else [])


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedFit:
    """A folder of fits of one device."""

    name: str  # by which weights are asked for
    folder: Path  # where the documents are
    is_own: bool = False  # whether it is the user's, not one that ships

    @property
    def identity(self) -> DeviceIdentity:
        """The device; fits of the user's that older versions wrote have it in the weights only."""
        path = self.folder / "identity.json"
        if path.is_file():
            return DeviceIdentity.read_file(path)
        return WeightSet.read_file(self.path_of(None)).device

    def find_identity(self) -> DeviceIdentity | None:
        """Return the device; None if a damaged document does not say it, which others outlive."""
        try:
            return self.identity
        except DocumentError:
            return None

    def is_of(self, device: DeviceIdentity) -> bool:
        """Tell whether the fit is of a device."""
        identity = self.find_identity()
        return identity is not None and identity.matches(device)

    @property
    def models(self) -> dict[str, Path]:
        """The documents by the short names of their models, sorted."""
        models: dict[str, Path] = {}
        for path in sorted(self.folder.glob("*.json"), key=lambda path: path.stem != "weights"):
            model = model_in(path)
            if model and ((name := short_name(model)) not in models or path.stem == name):
                models[name] = path
        return dict(sorted(models.items()))

    @property
    def default(self) -> Path | None:
        """The document that is meant where no model is named; None if there is none."""
        for stem in DEFAULT_STEMS:
            if (self.folder / f"{stem}.json").is_file():
                return self.folder / f"{stem}.json"
        return max(self.models.values(), key=_find_modification, default=None)

    @property
    def modified(self) -> float:
        """When the document was written that is meant where no model is named."""
        return -1.0 if (path := self.default) is None else _find_modification(path)

    def path_of(self, model: str | None) -> Path:
        """Return the document of a model."""
        models = self.models
        path = self.default if model is None else models.get(model)
        if path is None:
            there = ", ".join(models) or "none"
            raise ParameterError(
                f"{self.name} has no weights of a model {model!r}; there are: {there}"
                f"{nearest(model or '', models)}",
                parameter="model",
            )
        return path


@dataclass(frozen=True, slots=True, kw_only=True)
class AvailableFit:
    """Fitted weights of a device that can be asked for by name."""

    name: str  # for ``load_weights`` and ``--weights``: the device's slug, or ``mine/NAME``
    device: str  # slug of the device
    models: tuple[str, ...]  # what ``model=`` and ``--model`` take
    model: str  # which of them predicts here where none is named
    date: str  # when the device was measured, ISO 8601
    held_out_error: float | None  # of that model
    is_here: bool  # whether a device of this machine matches that of the weights
    is_default: bool = False  # whether they predict for that device where no weights are named
    problem: str = ""  # why the default document cannot be read


def model_in(path: Path) -> str:
    """Return the name of the model that a document of weights has; empty if it is another."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            head = _HEAD.match(file.read(_HEAD_BYTES))
    except OSError:  # removed in the meantime, or of somebody else
        return ""
    return head[1] if head else ""


def list_fits() -> dict[str, NamedFit]:
    """List all fits by name: those that ship first, then the user's own."""
    shipped: dict[str, NamedFit] = {}
    for folder in reversed(fits_folders()):
        for path in folder.glob("*/"):
            if (fit := NamedFit(name=path.name, folder=path)).default is not None:
                shipped[fit.name] = fit
    folders = user_fits_folder().glob("*/")
    mine = [NamedFit(name=f"{OWN}{p.name}", folder=p, is_own=True) for p in folders]
    own = {fit.name: fit for fit in mine if fit.default is not None}
    return dict(sorted(shipped.items())) | dict(sorted(own.items()))


def _find_modification(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # removed in the meantime
        return -1.0


def fits_for(device: DeviceIdentity) -> tuple[NamedFit, ...]:
    """Return the fits whose device matches: one that ships first, then the user's, newest first."""
    fits = [fit for fit in list_fits().values() if fit.is_of(device)]
    return tuple(sorted(fits, key=lambda fit: (fit.is_own, -fit.modified)))


def store_own_fit(
    weights: WeightSet,
    *others: WeightSet,
    name: str,
    replace: bool | Callable[[Path], bool] = False,
) -> tuple[str, Path]:
    """Store weights among the user's own; no other fit is overwritten unless that is asked for."""
    plain = check_own_name(name)
    parent = user_fits_folder()
    every = {short_name(fitted.model): fitted for fitted in (weights, *others)}
    with lock_file(parent, wait=True):
        for number in count(1):
            folder = parent / (plain if number == 1 else f"{plain}-{number}")
            fit = NamedFit(name=f"{OWN}{folder.name}", folder=folder, is_own=True)
            paths = {model: fit.models.get(model, folder / f"{model}.json") for model in every}
            there = [path for path in paths.values() if path.exists()]
            if not all(replace(path) if callable(replace) else replace for path in there):
                continue
            if fit.default is not None and not fit.is_of(weights.device):
                continue
            for model, path in paths.items():
                every[model].write_file(path)
            weights.device.write_file(folder / "identity.json")
            return fit.name, paths[short_name(weights.model)]
    raise AssertionError("numbers never end")


def remove_own_fit(name: str) -> NamedFit:
    """Remove a fit of the user's own, and return what it was; fits that ship are refused."""
    fits = list_fits()
    own = [name for name, fit in fits.items() if fit.is_own]
    with lock_file(user_fits_folder(), wait=True):
        if name not in own:
            said = "ships, and stays" if name in fits else "is no fit"
            message = f"{name!r} {said}; fits of your own: {', '.join(own) or 'none'}"
            raise ParameterError(f"{message}{nearest(name, own)}", parameter="fit")
        shutil.rmtree(fits[name].folder)
    return fits[name]


def check_own_name(name: str) -> str:
    """Return the name of a fit of the user's without ``mine/``."""
    plain = name.removeprefix(OWN)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", plain):
        raise ParameterError(
            f"{name!r} cannot name a fit: use letters, digits, dots, hyphens and underscores,"
            " such as quiet-night",
            parameter="name",
        )
    return plain


def find_fit(name: str) -> NamedFit | None:
    """Return the fit of a name, or the user's newest of the device of that slug; else None."""
    known = list_fits()
    if name in known:
        return known[name]
    own = [(fit, fit.find_identity()) for fit in known.values() if fit.is_own]
    if mine := [fit for fit, device in own if device is not None and device.slug == name]:
        return max(mine, key=lambda fit: fit.modified)
    stored = NamedFit(name=name, folder=Path(name))
    return stored if stored.folder.is_dir() and stored.default is not None else None


@checks_keywords
def load_weights(name: Path | str, *, model: str | None = None) -> WeightSet:
    """Load fitted weights by name or from a path.

    Parameters
    ----------
    name : Path or str
        The slug of a device, such as ``pocl-epyc-zen5``; ``mine/NAME`` for a fit of one's own; or
        the path of a weights document, or of the folder of a device's fits.
    model : str, optional
        Which model's weights; by default those of the model chosen for the device
        (``weights.json``), else structural ones, else of the paper's, else the newest.

    Raises
    ------
    DocumentError
        There is no such fit (the message lists those there are), or its document is bad.
    ParameterError
        The fit has no weights of that model; the message lists those it has.
    """
    fit = find_fit(str(name))
    path = Path(name) if fit is None else fit.path_of(model)
    is_path = len(path.parts) > 1 and not str(name).startswith(OWN)
    is_path = is_path or isinstance(name, Path) or path.suffix == ".json" or path.is_file()
    if fit is None and not is_path:
        known = list_fits()
        there = ", ".join(known) or "none: measure and fit a device first"
        near = nearest(str(name), known)
        message = f"no fitted weights are named {name!r}{near} (available: {there})"
        raise DocumentError(message, path=str(name))
    weights = WeightSet.read_file(path)
    if model is not None and model not in (weights.model, short_name(weights.model)):
        raise ParameterError(
            f"the weights in {path} are of the model {short_name(weights.model)}, not {model!r}:"
            " leave the model out, or name another file",
            parameter="model",
        )
    return weights.model_copy(update={"name": str(name) if fit is None else fit.name})
