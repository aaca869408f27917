"""The models that come with countperf, by name."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

from countperf.errors import ParameterError
from countperf.models.definition import ModelDefinition
from countperf.models.linear import CHARGED_BY_PAPER, COST, IGNORED_BY_PAPER, LINEAR
from countperf.models.standard import NOT_WORK, STANDARD_TERMS
from countperf.models.terms import Term

BOUNDED = ModelDefinition(
    name="bounded",
    description="The paper's properties, no weight below zero",
    ignored=IGNORED_BY_PAPER,
    terms={COST: Term(charged=CHARGED_BY_PAPER)},
    expression=COST,
)

BOUNDED_LOG = ModelDefinition(
    name="bounded-log",
    description="Stores to local memory charged too, no weight below zero, logarithms of ratios",
    residual="log",
    ignored=NOT_WORK,
    terms={
        COST: Term(
            charged=(
                *STANDARD_TERMS["overhead"],
                *STANDARD_TERMS["barriers"],
                *STANDARD_TERMS["global_memory"],
                *STANDARD_TERMS["arithmetic"],
                *STANDARD_TERMS["local_memory"],
            )
        )
    },
    expression=COST,
)

OVERLAP = ModelDefinition(
    name="overlap",
    description="Launches, groups and barriers, and global memory overlapped with work on chip",
    ignored=NOT_WORK,
    terms={
        "overhead": Term(charged=(*STANDARD_TERMS["overhead"], *STANDARD_TERMS["barriers"])),
        "global_memory": Term(charged=STANDARD_TERMS["global_memory"]),
        "on_chip": Term(charged=(*STANDARD_TERMS["arithmetic"], *STANDARD_TERMS["local_memory"])),
    },
    expression="overhead + overlap(global_memory, on_chip)",
)

OVERLAP3 = ModelDefinition(
    name="overlap3",
    description="Launches and groups, and global memory, arithmetic, and local memory with barriers"
    " overlapped",
    ignored=NOT_WORK,
    terms={
        "overhead": Term(charged=STANDARD_TERMS["overhead"]),
        "global_memory": Term(charged=STANDARD_TERMS["global_memory"]),
        "arithmetic": Term(charged=STANDARD_TERMS["arithmetic"]),
        "local_memory": Term(
            charged=(*STANDARD_TERMS["local_memory"], *STANDARD_TERMS["barriers"])
        ),
    },
    expression="overhead + overlap(global_memory, arithmetic, local_memory)",
)

MODELS = {model.name: model for model in (LINEAR, BOUNDED, BOUNDED_LOG, OVERLAP, OVERLAP3)}
"""The models by name, the paper's first."""


def fitted_model(name: str) -> ModelDefinition:
    """Look up a model by name, or read it from a file.

    Parameters
    ----------
    name : str
        A name of `MODELS`, or the path of a model document, TOML or JSON.

    Raises
    ------
    ParameterError
        No fitted model has this name; the message lists those there are.
    DocumentError
        The file is missing, or no model document.
    """
    if name in MODELS:
        return MODELS[name]
    if name.endswith(".toml"):
        return ModelDefinition.read_toml(name)
    if name.endswith(".json") or len(Path(name).parts) > 1:
        return ModelDefinition.read_file(name)
    near = get_close_matches(name, MODELS, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    message = f"no fitted model is named {name!r}; there is {', '.join(MODELS)}{hint}"
    raise ParameterError(message, parameter="model")
