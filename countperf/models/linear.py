r"""The linear model of Stevens & Klöckner (2016): time as a weighted sum of property values.

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

from dataclasses import dataclass

from countperf.errors import ParameterError
from countperf.features import FeatureSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedModel:
    """A model whose weights are fitted.

    Attributes
    ----------
    name : str
        Name on the command line and in documents.
    expression : str
        Its formula, for people who read the document of a fit.
    features : FeatureSpec
        What it charges, and what it ignores.
    """

    name: str
    expression: str
    features: FeatureSpec


LINEAR = FittedModel(
    name="linear",
    expression="time_s = sum over features of weight_s * value",
    features=FeatureSpec(
        charged=(
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
        ),
        ignored=(
            "lmem.store.*",
            "flop.minmax.*",
            "flop.compare.*",
            "flop.select.*",
            "flop.convert.*",
            "flop.neg.*",
            "iop.*",
            "barrier.global",
        ),
    ),
)

MODELS = {LINEAR.name: LINEAR}


def fitted_model(name: str) -> FittedModel:
    """Look up a model by name.

    Raises
    ------
    ParameterError
        No fitted model has this name; the message lists those there are.
    """
    if name not in MODELS:
        message = f"no fitted model is named {name!r}; there is {', '.join(sorted(MODELS))}"
        raise ParameterError(message, parameter="model")
    return MODELS[name]
