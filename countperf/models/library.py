"""Finding fitted weights: the user's own, those shipped with the package, those of a checkout."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from countperf.documents import read_file_text
from countperf.documents.files import parse_json
from countperf.errors import DocumentError, ParameterError
from countperf.execution.policy import ExecutionPolicy
from countperf.models.correction import PLAIN
from countperf.models.definition import FittedModel
from countperf.models.weights import WeightSet

DEFAULT_STEMS = ("weights", "linear")
"""Names of the documents that a device's folder gives where no model is asked for: that of the
model chosen for it, else that of the paper's model."""

_MODEL_FORMAT = FittedModel.model_fields["format"].default
_PACKAGE = Path(__file__).resolve().parent.parent


def user_fits_folder() -> Path:
    """Return where a user's own fits are kept, in the platform's place for data."""
    from platformdirs import user_data_path

    return user_data_path("countperf", appauthor=False) / "fits"


def fits_folders() -> tuple[Path, ...]:
    """Return the folders in which fits are looked for, the one that wins first.

    They are the user's own, what an installed package ships (``countperf/_fits``), and ``fits/``
    of a checkout.
    """
    checkout = _PACKAGE.parent
    folders = [user_fits_folder(), _PACKAGE / "_fits"]
    if (checkout / "pyproject.toml").is_file():
        folders.append(checkout / "fits")
    return tuple(folders)


def available_weights(
    *, model: str | None = None, folders: Sequence[Path | str] | None = None
) -> dict[str, Path]:
    """List fits: device slug to file, sorted by slug.

    Parameters
    ----------
    model : str, optional
        Of which model; by default of the one chosen for each device (``weights.json``), else of the
        paper's (``linear.json``).
    folders : sequence of Path or str, optional
        Where to look, the one that wins first; by default `fits_folders`.
    """
    found: dict[str, Path] = {}
    for folder in reversed(fits_folders() if folders is None else folders):
        for stem in reversed(_stems(model)):
            for path in Path(folder).glob(f"*/{stem}.json"):
                found[path.parent.name] = path
    return dict(sorted(found.items()))


def shipped_policies() -> tuple[ExecutionPolicy, ...]:
    """Return the execution policies of the fits that ship with the package, sorted by device."""
    _, *shipped = fits_folders()
    chosen = available_weights(model="weights", folders=shipped).values()
    policies = (WeightSet.read_file(path).definition.policy for path in chosen)
    return tuple(dict.fromkeys(policy for policy in policies if policy is not None))


def policy_of(name: Path | str) -> ExecutionPolicy:
    """Return the execution policy of a fit, by its slug or path, or of a model document.

    Raises
    ------
    DocumentError
        There is no such fit or file, or it is bad.
    ParameterError
        Its model has no policy.
    """
    path = Path(name)
    if path.suffix == ".toml":
        model = FittedModel.read_toml(path)
    elif path.is_file() and _format_of(path) == _MODEL_FORMAT:
        model = FittedModel.read_file(path)
    else:
        model = load_weights(name).definition
    if model.policy is None:
        raise ParameterError(
            f"the {model.name} model of {name} has no execution policy: name a fit or a model that"
            " has one, such as pocl-epyc-zen5",
            parameter="policy",
        )
    return model.policy


def _format_of(path: Path) -> object:
    content = parse_json(read_file_text(path), path=path)
    return content.get("format") if isinstance(content, dict) else None


def _stems(model: str | None) -> tuple[str, ...]:
    return DEFAULT_STEMS if model in (None, PLAIN) else (model,)


def load_weights(
    name: Path | str, *, model: str | None = None, folders: Sequence[Path | str] | None = None
) -> WeightSet:
    """Load fitted weights by device slug or from a path.

    Parameters
    ----------
    name : Path or str
        A slug, such as ``pocl-epyc-zen5``; or the path of a weights document, or of the folder of a
        device's fits.
    model : str, optional
        Which model's weights, where a slug or a folder is given; by default those of the model
        chosen for the device (``weights.json``), else of the paper's (``linear.json``); ``plain``
        for the same without a correction by similar kernels (`WeightSet.plain`), also of a file.
    folders : sequence of Path or str, optional
        Where to look for slugs, the one that wins first; by default `fits_folders`.

    Raises
    ------
    DocumentError
        There is no such fit (the message lists those there are), or its document is bad.
    """
    found = WeightSet.read_file(_path_of(name, model, folders))
    return found.plain if model == PLAIN else found


def _path_of(name: Path | str, model: str | None, folders: Sequence[Path | str] | None) -> Path:
    path = Path(name)
    if path.is_dir():
        for stem in _stems(model):
            if (path / f"{stem}.json").is_file():
                return path / f"{stem}.json"
    if path.is_file() or isinstance(name, Path) or path.suffix == ".json" or len(path.parts) > 1:
        return path
    known = available_weights(model=model, folders=folders)
    if name in known:
        return known[name]
    near = get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    there = ", ".join(known) or "none: measure and fit a device first"
    raise DocumentError(
        f"no {model or 'fitted'} weights are named {name!r}{hint} (available: {there})",
        path=str(name),
    )
