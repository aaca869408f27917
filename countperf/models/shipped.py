r"""Models by their names, or from a document.

The linear model of Stevens & Klöckner (2016) is a weighted sum of property values:

.. math:: T(n) \approx \sum_i \alpha_i p_i(n)

=============  ======================  =======================================================
letter         name                    unit
=============  ======================  =======================================================
:math:`n`      parameters              sizes of the kernel
:math:`p_i`    value of a feature      operations, accesses, barriers x items, groups, launches
:math:`\alpha` weight                  s per unit of the feature; may come out negative
=============  ======================  =======================================================

It charges every operation at its typical cost on the device. It knows no occupancy, no latency
hiding, no overlap, no caches, and nothing about the shape of the work group or how the device's
compiler runs it. By definition it has no term for stores to local memory, integer and index
arithmetic, minima and maxima, comparisons, selections, conversions and negations. A global barrier
ends a launch, and is paid for as the launch that follows it.

Beyond the paper it charges ``f16`` operations, accesses of any size, and, where a kernel is counted
with them, fused multiply-adds and indirect accesses; each needs a weight of its own.
"""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

from countperf.errors import ParameterError
from countperf.execution.memory_hierarchy import MemoryHierarchy
from countperf.hardware.identity import DeviceIdentity, memory_hierarchy_of
from countperf.models.compiled import COMPILED, compiled, order_on
from countperf.models.definition import ModelDefinition, Term
from countperf.models.structural import STRUCTURAL, policy_on, structural

COST = "cost"
"""The term of models that are one sum."""

CHARGED_BY_PAPER = (
    "flop.add.*",
    "flop.mul.*",
    "flop.div.*",
    "flop.pow.*",
    "flop.special.*",
    "flop.fma.*",
    "gmem.load.*.*",
    "gmem.store.*.*",
    "gmem.min.*.*",
    "lmem.load.*",
    "barrier.local",
    "groups",
    "launches",
)
IGNORED_BY_PAPER = (
    "lmem.store.*",
    "flop.minmax.*",
    "flop.compare.*",
    "flop.select.*",
    "flop.convert.*",
    "flop.neg.*",
    "iop.*",
    "barrier.global",
)
LINEAR = ModelDefinition(
    name="linear",
    description="The paper's: a sum over properties, weights free",
    ignored=IGNORED_BY_PAPER,
    terms={COST: Term(charged=CHARGED_BY_PAPER, lower=None)},
)


def fitted_model(
    name: str, device: DeviceIdentity | None = None, memory: MemoryHierarchy | None = None
) -> ModelDefinition:
    """Return a model by its name, as it is for a device, or read its document, TOML or JSON."""
    if name == LINEAR.name:
        return LINEAR
    if name in (STRUCTURAL, COMPILED) and device is not None:
        memory = memory or memory_hierarchy_of(device)
        if name == STRUCTURAL:
            return structural(policy_on(device), memory=memory)
        return compiled(order_on(device), units=device.compute_units, memory=memory)
    if name.endswith(".toml"):
        return ModelDefinition.read_toml(name)
    if name.endswith(".json") or len(Path(name).parts) > 1:
        return ModelDefinition.read_file(name)
    near = get_close_matches(name, _NAMES, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    message = f"no fitted model is named {name!r}; there is {', '.join(_NAMES)}{hint}"
    raise ParameterError(message, parameter="model")


_NAMES = ("linear", "structural", "compiled")
