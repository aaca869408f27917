"""Model definitions by name or file."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

from countperf.errors import ParameterError
from countperf.models.definition import ModelDefinition
from countperf.models.linear import LINEAR


def fitted_model(name: str) -> ModelDefinition:
    """Return the linear model by its name, or read a model document, TOML or JSON."""
    if name == LINEAR.name:
        return LINEAR
    if name.endswith(".toml"):
        return ModelDefinition.read_toml(name)
    if name.endswith(".json") or len(Path(name).parts) > 1:
        return ModelDefinition.read_file(name)
    near = get_close_matches(name, _NAMES, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    message = f"no fitted model is named {name!r}; there is {', '.join(_NAMES)}{hint}"
    raise ParameterError(message, parameter="model")


_NAMES = ("linear", "structural", "compiled")
