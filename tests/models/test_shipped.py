"""Models of what a device issues."""

from __future__ import annotations

from itertools import product
from typing import Any, get_args

import loopy as lp
import numpy as np
import pytest

import countperf
from countperf import __version__
from countperf.counting.structure import issue
from countperf.counting.structure.issue import ExecutionPolicy, Serving, Unit, apply_policy
from countperf.counting.structure.memory_hierarchy import ASSUMED, load_hierarchy
from countperf.devices.parameters import load_device
from countperf.models.function import ModelFunction, model_inputs
from countperf.models.library import list_fits, load_weights
from countperf.models.shipped import LINEAR, POLICIES, make_structural_model, policy_on
from measurement_kernels.catalog import entry
from tests.counting import test_stevens2016_table2
from tests.counting.test_stevens2016_table2 import KERNELS, paper_counts, printed_rows
from tests.kernels import made
from tests.models.builders import make_device
from write_paper_weights import paper_weights

CPU_FITS = [
    f"{runtime}-{chip}"
    for runtime in ("intel", "pocl")
    for chip in ("epyc-zen3", "epyc-zen4", "epyc-zen5", "xeon-model167")
]
COUNTS = {
    **{"launches": 1, "groups": 2, "site.free.loop.16x1.flop.add.f32": 160},
    "site.free.loop.16x1.gmem.load.32.next": 320,
    **{"site.free.loop.16x1.gmem.load.32.next.l2_reuse": 80, "bytes.group.load.dense": 40},
}


def test_all_but_the_launch_is_charged_in_whole_rounds_of_groups() -> None:
    inputs = model_inputs(
        model := make_structural_model(ExecutionPolicy(units=2)), {**COUNTS, "groups": 3}
    )
    function = ModelFunction(model=model, columns=tuple(inputs.values))
    values = np.array(list(inputs.values.values()))
    # 20 accesses of vectors and 5 that lead to other lines, of which 5 come back too late
    expected = 1 + 4 / 3 * (3 + 10 + 25 + 5 + 40)
    assert function.scale_values(values, inputs.variables).sum() == pytest.approx(expected)


def test_what_is_loaded_and_stored_counts_once_and_is_not_fetched_for_the_store() -> None:
    model, size = make_structural_model(ExecutionPolicy()), 2**30
    counts = {f"bytes.{of}": size for of in ("kernel.load", "kernel.store", "group.store.dense")}
    for updated, distinct, share in ((0, 2 * size, 1.0), (size, size, 0.5)):
        values = model_inputs(model, {**counts, "bytes.kernel.update": updated, "groups": 1}).values
        beyond = 1 - load_hierarchy(ASSUMED).caches[-1].size_bytes / distinct
        assert values["traffic", "store_beyond_llc"] == pytest.approx(size * beyond * share)


def test_everything_issued_is_charged_under_its_own_name() -> None:
    features = make_structural_model(ExecutionPolicy()).features
    kinds = [*get_args(issue.IssuedEvents), *(f"gmem.load.{way}" for way in get_args(Serving))]
    kinds += [f"lmem.load.{way}" for way in get_args(Serving)]
    names = [f"issue.{unit}.{kind}" for unit, kind in product(get_args(Unit), kinds)]
    assert [features.feature_of(name) for name in names] == names


@pytest.mark.parametrize(
    "step",
    [
        *("beyond_l2-beyond_l2", "l2_reuse-l2_reuse_conflict1", "same-data_l2_reuse"),
        *("l1_reuse-l1_reuse", "next"),
    ],
)
def test_what_is_issued_stays_as_it_is(step: str) -> None:
    policy = ExecutionPolicy(width=8, vectorized="always")
    issued = apply_policy(policy, {f"site.free.flat.16x4.gmem.load.32.{step}": 64})
    assert issued
    assert apply_policy(policy, issued) == issued


def test_the_name_is_short_and_the_description_says_the_policy() -> None:
    policy = ExecutionPolicy(width=8, units=2)
    assert make_structural_model(policy).name == "structural"
    assert policy.text in make_structural_model(policy).description


def test_values_that_wait_at_barriers_are_overhead() -> None:
    overhead = make_structural_model(ExecutionPolicy(width=8)).term_features["overhead"]
    for name in ("issue.scalar.live_across_barrier", "issue.vector.live_across_barrier"):
        assert overhead.feature_of(name) == name


@pytest.mark.parametrize(
    ("platform", "device_type", "expected"),
    [
        ("Portable Computing Language", "cpu", POLICIES["pocl"]),
        ("Intel(R) OpenCL", "cpu", POLICIES["intel"]),
        ("Another", "cpu", ExecutionPolicy()),
        ("NVIDIA CUDA", "gpu", ExecutionPolicy(width=32, along="group")),
        ("Portable Computing Language", "gpu", ExecutionPolicy(width=32, along="group")),
    ],
)
def test_a_runtime_has_the_policy_that_its_shipped_fits_mostly_have(
    platform: str, device_type: str, expected: ExecutionPolicy
) -> None:
    device = make_device(platform=platform, device_type=device_type, compute_units=12)
    assert policy_on(device) == expected.model_copy(update={"units": 12})


@pytest.mark.parametrize("runtime", list(POLICIES))
def test_options_of_a_policy_are_those_of_most_shipped_fits(runtime: str) -> None:
    shipped = [load_weights(n).definition.policy for n in list_fits() if n.startswith(runtime)]
    assert len(shipped) >= 4
    for option in set(ExecutionPolicy.model_fields) - {"units"}:
        values = [getattr(policy, option) for policy in shipped]
        assert values.count(getattr(POLICIES[runtime], option)) >= 3, option


def prefetched() -> Any:
    """Sum three neighbors in tiles that groups fetch together, with the edges of the tile."""
    unit = made("i<n, j<3", "y[i] = sum(j, x[i+j])", "x f32 n+2; y f32 n; n i32", split="i:64")
    return lp.add_prefetch(unit, "x", ["i_inner", "j"], default_tag="l.auto")


@pytest.mark.parametrize("slug", CPU_FITS)
def test_masked_loads_of_local_memory_are_charged_as_others_and_said(slug: str) -> None:
    weights, masked = load_weights(slug), "issue.vector.lmem.load.masked"
    counts = model_inputs(weights.definition, weights.count(prefetched()).evaluate({"n": 1000}))
    column = next(column for column in counts.values if column[1] == masked)
    plain = (column[0], "issue.vector.lmem.load.shifted")
    both = counts.values[column] + counts.values.get(plain, 0.0)
    found = countperf.predict(prefetched(), n=1000, weights=weights)
    assert masked not in weights.by_feature
    assert found.complete
    charged = found.breakdown[plain[1]]
    scale = weights.definition.terms[plain[0]].scale
    times = counts.variables[scale] if scale else 1.0
    assert charged == pytest.approx(both * times * weights.by_feature[plain[1]].value_s)
    (said,) = (verdict for verdict in found.caveats if verdict.name == "masked")
    assert f"{masked} as {plain[1]}" in said.message
    assert weights.compile(prefetched())(n=1000) == pytest.approx(found.time_s)


def test_masked_accesses_are_charged_as_the_likeliest_others_that_have_a_weight() -> None:
    names = [f"issue.vector.lmem.store.{kind}" for kind in ("next", "same", "shifted", "masked")]
    columns = [("work", name) for name in names]
    masked, expected = columns[3], (columns[3], columns[2], columns[0], columns[3])
    for known, other in zip((4, 3, 1, 0), expected, strict=True):
        function = ModelFunction(model=LINEAR, columns=tuple(columns[:known]))
        assert function.find_column(masked) == other
    of_global = ("work", "issue.vector.gmem.load.masked")
    function = ModelFunction(model=LINEAR, columns=(("work", "issue.vector.gmem.load.next"),))
    assert function.find_column(of_global) == of_global


NAME = "amd-r9-fury-stevens2016"


def test_what_ships_is_what_the_paper_printed() -> None:
    weights, known = load_weights(NAME), load_device("amd-r9-fury")
    assert weights.model_copy(update={"written_by": __version__, "name": ""}) == paper_weights()
    assert len(weights.weights) == 16
    assert (weights.device.slug, weights.device.compute_units) == (known.slug, 56)
    assert weights.quality is None


@pytest.mark.parametrize(
    ("kernel", "n", "predicted_ms"),
    [
        (row["kernel"], int(row["n"]), float(row["predicted_ms"]))
        for row in printed_rows("stevens2016_table1_r9fury.csv")
    ],
)
def test_they_predict_the_papers_column(kernel: str, n: int, predicted_ms: float) -> None:
    name, sizes = KERNELS[kernel]
    unit = entry(name).build()
    counts: dict[str, Any] = paper_counts(
        test_stevens2016_table2.count_powers_as_written(unit), unit, sizes(n)
    )
    weights = load_weights(NAME)
    named = tuple(weight.feature for weight in weights.weights)
    prediction = weights.predict({n: count for n, count in counts.items() if n.startswith(named)})
    # weights and times have two or three digits
    assert prediction.time_s * 1e3 == pytest.approx(predicted_ms, rel=0.02, abs=0.006)


def test_kernels_are_predicted_by_what_a_device_executes() -> None:
    # the skinny product's tiles are whole work groups: both conventions agree but for fetches
    prediction = countperf.predict(
        "matmul-skinny/16x16/f32", {"n": 512, "m": 4096, "l": 512}, weights=load_weights(NAME)
    )
    assert prediction.time_s == pytest.approx(sum(prediction.breakdown.values()))
    assert prediction.breakdown["launches"] == pytest.approx(1.29e-4)
    # 2 n m l loads from local memory
    assert prediction.breakdown["lmem.load.32"] == pytest.approx(-1.76e-12 * 2 * 512 * 4096 * 512)
