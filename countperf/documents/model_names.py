"""Names of models in documents and options, and what old ones are called now."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator

UNCORRECTED = "uncorrected"
"""Name of the model chosen for a device without its correction by similar kernels."""

_PLAIN = "plain"
"""Its name before version 0.2.0, or the first part of it: ``plain-structural``."""


def current_model_name(name: str) -> str:
    """Return what a model is called now."""
    return UNCORRECTED if name == _PLAIN or name.startswith(f"{_PLAIN}-") else name


def _current(content: object) -> object:
    return current_model_name(content) if isinstance(content, str) else content


ModelName = Annotated[str, BeforeValidator(_current)]
"""Name of a model, read from documents of any version."""
