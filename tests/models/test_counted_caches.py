"""Weights predict kernels counted for the caches that theirs were counted for, and no others."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import countperf
from countperf.counting.count_properties import content_key, count_kernel
from countperf.counting.structure.memory_hierarchy import DEFAULT_CACHES, load_hierarchy
from countperf.counting.vector import PropertyVector
from countperf.errors import FitError, MismatchError
from countperf.measuring import KernelCase, Measurement, Timing
from countperf.measuring.measurement_sets import counts_digest
from countperf.models.fitting.design import common_caches
from countperf.models.weights import WeightSet
from tests.kernels import made

OLD = Path(__file__).resolve().parents[1] / "golden" / "documents" / "weights-without-caches.json"
ZEN3, ZEN4 = (load_hierarchy(name).counted for name in ("amd-zen3", "amd-zen4"))


@pytest.fixture(scope="module")
def columns() -> Any:
    """Sums of the columns of an array, which walk down lines."""
    arguments = "a f32 m,n; out f32 n; n,m i32"
    return made("i<n, j<m", "out[i] = sum(j, a[j, i])", arguments, split="i:16")


def counted(columns: Any, caches: Any = None, **options: Any) -> PropertyVector:
    caches = {} if caches is None else {"caches": caches}
    return count_kernel(columns, view="structure", **caches, **options)


def _of_zen4() -> WeightSet:
    """Return weights that were fitted to kernels counted for Zen 4."""
    return WeightSet.read_file(OLD).model_copy(update={"counted_caches": ZEN4})


# what release 0.1.0 and all versions before vectors stated their caches predicted
@pytest.mark.parametrize(
    ("n", "m", "time_s"),
    [
        (1040, 600, "0x1.0f59812f855dbp-12"),
        (1024, 12, "0x1.6085f433dd184p-18"),
        (1024, 40, "0x1.6f0869c1af79bp-15"),
        (4096, 700, "0x1.14f390cfb31f2p-8"),
    ],
)
def test_old_weights_predict_what_they_did(columns: Any, n: int, m: int, time_s: str) -> None:
    weights = WeightSet.read_file(OLD)

    assert weights.counted_caches == DEFAULT_CACHES
    assert countperf.predict(columns, n=n, m=m, weights=weights).time_s == pytest.approx(
        float.fromhex(time_s), rel=1e-14
    )


def test_weights_count_kernels_for_their_caches(columns: Any) -> None:
    old, new = WeightSet.read_file(OLD), _of_zen4()
    at = {"n": 1040, "m": 740}  # 740 lines, where Zen 4 keeps 512 and Zen 5 768
    misses = "issue.scalar.gmem.load.l2_reuse"  # loops are scalar under PoCL

    assert new.count(columns).evaluate(at)[misses] == 1040 * 740
    assert not old.count(columns).evaluate(at)[misses]
    crowded = {"n": 1024, "m": 12}  # 12 lines 4096 bytes apart: four more than Zen 4 has ways
    conflicts = "issue.scalar.gmem.load.set_conflict"
    assert new.count(columns).evaluate(crowded)[conflicts] == 1024 * 12 / 4
    assert not old.count(columns).evaluate(crowded)[conflicts]
    cost_s = new.by_feature[conflicts].value_s
    new_s, old_s = (countperf.predict(columns, crowded, weights=w).time_s for w in (new, old))
    assert new_s - old_s == pytest.approx(cost_s * 1024 * 12 / 4, rel=1e-9)


def test_a_vector_for_other_caches_is_refused(columns: Any) -> None:
    weights, at = _of_zen4(), {"n": 1040, "m": 740}
    vector = counted(columns)

    with pytest.raises(MismatchError, match="48 KiB of 12 ways") as caught:
        weights.predict(vector, at)

    assert "are for 32 KiB of 8 ways and 1024 KiB of 8 ways" in str(caught.value)
    # the advice, followed literally
    assert "caches=weights.counted_caches" in str(caught.value)
    mended = count_kernel(columns, view="structure", caches=weights.counted_caches)
    direct = countperf.predict(columns, at, weights=weights)
    assert weights.predict(mended, at).time_s == direct.time_s
    with pytest.raises(MismatchError):
        countperf.predict(vector, at, weights=weights)
    with pytest.raises(MismatchError):
        weights.compile(vector)


def test_code_read_for_another_cache_is_refused(columns: Any) -> None:
    weights = countperf.load_weights("pocl-epyc-zen4", model="compiled")
    own = weights.counted_caches
    other = own.model_copy(update={"code": load_hierarchy("amd-zen5").counted.first})
    code = {"code.all": 100, "miss.conflict.store": 10, "code.cycles_operations": 50}
    right, wrong = (
        counted(columns, caches).with_counts_at(lambda _: code, "code") for caches in (own, other)
    )

    assert weights.predict_counts(right, {"n": 1024, "m": 16}).time_s > 0
    with pytest.raises(MismatchError, match="caches of 48 KiB of 12 ways, and"):
        weights.predict_counts(wrong, {"n": 1024, "m": 16})
    structural = _of_zen4().model_copy(update={"counted_caches": own})
    assert structural.predict_counts(wrong, {"n": 1024, "m": 16}).time_s > 0  # reads no code


def test_a_vector_says_what_it_was_counted_for(columns: Any) -> None:
    for caches in (DEFAULT_CACHES, ZEN3):
        vector = counted(columns, caches)
        document = vector.to_document()

        assert vector.caches == caches
        assert PropertyVector.from_document(document) == vector
        del document["caches"]  # as documents were before
        assert PropertyVector.from_document(document).caches == DEFAULT_CACHES
        assert vector.emitted().caches is None
    assert count_kernel(columns).caches is None
    assert "caches" not in count_kernel(columns).to_document()


def test_counts_for_other_caches_are_not_taken_from_the_cache(columns: Any) -> None:
    caches = (ZEN3, ZEN4, DEFAULT_CACHES, ZEN3)
    vectors = [counted(columns, c) for c in caches]
    assert vectors == [counted(columns, c, cache=False) for c in caches]
    assert len({json.dumps(vector.to_document()) for vector in vectors}) == 3
    keys = {content_key(columns, {"caches": c.model_dump_json()}) for c in (ZEN3, ZEN4)}
    assert len(keys) == 2


def test_sorting_is_no_fact_of_the_program(columns: Any) -> None:
    vector = counted(columns, ZEN3)
    (name,) = (name for name in vector if name.endswith("gmem.load.32.next.beyond_l2"))

    assert vector.caveat(name) == "assumes caches of 32 KiB of 8 ways and 512 KiB of 8 ways"
    assert not vector.caveat("bytes.kernel.load")


def _measured(vector: PropertyVector, name: str, **more: Any) -> Measurement:
    case = KernelCase(name=name, kernel="a", build=lambda: None, parameters={"n": 16, "m": 16})
    return Measurement.from_samples(
        case, [[1e-3]], dropped=0, properties=vector.to_document(), **more
    )


def test_a_fit_needs_one_hierarchy(columns: Any) -> None:
    one, other = (
        _measured(counted(columns, caches), name)
        for caches, name in ((ZEN3, "a/n=16"), (ZEN4, "b/n=16"))
    )

    assert common_caches([one]) == ZEN3
    assert common_caches([]) == DEFAULT_CACHES
    with pytest.raises(FitError, match=r"'a/n=16' for 32 KiB of 8 ways and 512 KiB.*recount"):
        common_caches([other, one])


def test_a_fit_needs_code_that_was_read_for_one_cache(columns: Any) -> None:
    zen5 = load_hierarchy("amd-zen5").counted
    old, new, unread = (
        _measured(counted(columns, caches), name, code=code)
        for caches, name, code in (
            (DEFAULT_CACHES, "a/n=16", {"code.all": 1}),
            (zen5, "b/n=16", {"code.all": 1}),
            (zen5, "c/n=16", None),
        )
    )

    assert common_caches([unread, old]) == DEFAULT_CACHES
    assert common_caches([unread, new]) == zen5
    with pytest.raises(
        FitError, match=r"compiled code was not read.*'b/n=16' for 48 KiB of 12 ways"
    ):
        common_caches([old, new])


def test_a_timing_knows_its_kernel_whatever_the_caches(columns: Any) -> None:
    usual = counted(columns)
    digests = {"structure": counts_digest(usual), "source": counts_digest(usual.emitted())}
    size = SimpleNamespace(counts=digests, measurement="run")
    timing = Timing.model_construct(kernel="columns", counting_rules=10, sizes=[size])

    assert timing.runs_of(usual) == ["run"]
    assert timing.runs_of(counted(columns, ZEN3)) == ["run"]
