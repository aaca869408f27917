from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import loopy as lp
import pytest

from countperf.caches import COUNTS
from countperf.errors import CacheWarning, DataDependentControlFlowError
from countperf.properties import cache, count_properties, taxonomy
from countperf.properties.count_properties import count_kernel
from countperf.properties.vector import PropertyVector


def _scaling(factor: float = 2.0, name: str = "scaling", dtype: str = "float32") -> Any:
    return lp.make_kernel(
        "[n] -> {[i]: 0 <= i < n}",
        f"b[i] = {factor}*a[i]**2",
        [lp.GlobalArg("a,b", dtype, shape="n"), lp.ValueArg("n", "int32")],
        name=name,
        lang_version=(2018, 2),
    )


def _gated() -> Any:
    return lp.make_kernel(
        "[n] -> {[i]: 0 <= i < n}",
        "b[i] = b[i] + 1 {if=a[i] > 0, id=gated}",
        [lp.GlobalArg("a,b", "float32", shape="n"), lp.ValueArg("n", "int32")],
        lang_version=(2018, 2),
    )


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the kernels that are really counted, in order."""
    names: list[str] = []
    original = count_properties.count_loopy_kernel

    def counting(t_unit: Any, **options: Any) -> Any:
        result = original(t_unit, **options)
        names.append(result.kernel)
        return result

    monkeypatch.setattr(count_properties, "count_loopy_kernel", counting)
    cache.forget()
    return names


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """An entry for `_scaling` on disk, nothing in memory."""
    count_kernel(_scaling(), cache=tmp_path)
    cache.forget()
    return tmp_path / "counts.sqlite3"


def _execute(database: Path, statement: str) -> list[Any]:
    with closing(sqlite3.connect(database)) as connection, connection:
        return connection.execute(statement).fetchall()


def test_an_equal_kernel_is_not_counted_again(tmp_path: Path, counted: list[str]) -> None:
    first = count_kernel(_scaling(), cache=tmp_path)
    assert count_kernel(_scaling(), cache=tmp_path) is first
    assert counted == ["scaling"]


def test_another_process_finds_the_same_vector(tmp_path: Path, counted: list[str]) -> None:
    script = (
        "import sys\n"
        "from tests.properties.test_cache import _scaling\n"
        "from countperf import count_kernel\n"
        "count_kernel(_scaling(), cache=sys.argv[1])\n"
    )
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, str(tmp_path)],
        check=True,
        cwd=Path(__file__).parents[2],
    )
    found = count_kernel(_scaling(), cache=tmp_path)
    assert counted == []
    assert found == count_kernel(_scaling(), cache=False)
    assert found.evaluate(n=5) == count_kernel(_scaling(), cache=False).evaluate(n=5)


@pytest.mark.parametrize(
    "change",
    [
        lambda: (_scaling(3.0), {}),
        lambda: (_scaling(name="other"), {}),
        lambda: (lp.assume(_scaling(), "n >= 16"), {}),
        lambda: (lp.tag_inames(_scaling(), "i:unr"), {}),
        lambda: (_scaling(dtype="float64"), {}),
        lambda: (_scaling(), {"powers": "written"}),
        lambda: (_gated(), {"statistics": {"gated": 1}}),
        lambda: (_gated(), {"statistics": {"gated": 1.0}}),
        lambda: (_gated(), {"statistics": {"gated": Fraction(1, 2)}}),
    ],
)
def test_every_difference_is_another_key(
    change: Callable[[], tuple[Any, dict[str, Any]]], tmp_path: Path, counted: list[str]
) -> None:
    count_kernel(_scaling(), cache=tmp_path)
    t_unit, options = change()
    assert count_kernel(t_unit, cache=tmp_path, **options) == count_kernel(
        t_unit, cache=False, **options
    )
    assert len(counted) == 3


def test_another_version_is_another_key(
    database: Path, counted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = cache._versions()  # pyright: ignore[reportPrivateUsage]
    assert taxonomy.COUNTING_RULES_VERSION in versions
    for k in range(len(versions)):
        changed = (*versions[:k], "another", *versions[k + 1 :])
        monkeypatch.setattr(cache, "_versions", lambda changed=changed: changed)
        count_kernel(_scaling(), cache=database.parent)
        assert len(counted) == k + 1


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE counts SET document = replace(document, '\"n\"', '\"2*n\"')",
        "UPDATE counts SET document = 'x'",
        "UPDATE counts SET document = NULL || ''",
        "UPDATE counts SET checksum = 'x'",
        "UPDATE counts SET document = x'00ff', checksum = 7",
        "DROP TABLE counts",
        "ALTER TABLE counts RENAME COLUMN document TO pickle",
    ],
)
def test_damaged_entries_are_counted_again(damage: str, database: Path, counted: list[str]) -> None:
    expected = count_kernel(_scaling(), cache=False)
    try:
        _execute(database, damage)
    except sqlite3.IntegrityError:  # the table refuses it itself
        _execute(database, "DELETE FROM counts")
    assert count_kernel(_scaling(), cache=database.parent) == expected
    assert counted == ["scaling", "scaling"]


def test_an_entry_under_a_foreign_key_is_not_believed(database: Path, counted: list[str]) -> None:
    other = _scaling(name="other")
    key = cache.content_key(other, {"statistics": {}, "powers": "emitted"})
    _execute(database, f"UPDATE counts SET key = '{key}'")
    assert count_kernel(other, cache=database.parent).kernel == "other"
    assert counted == ["other"]


def test_a_damaged_database_is_named_and_left_alone(database: Path, counted: list[str]) -> None:
    database.write_bytes(b"something else" * 100)
    with pytest.warns(CacheWarning, match=r"counts\.sqlite3 cannot be used.*delete what"):
        count_kernel(_scaling(), cache=database.parent)
    assert counted == ["scaling"]
    assert database.read_bytes().startswith(b"something else")


def test_a_folder_that_cannot_be_made_only_means_counting(
    tmp_path: Path, counted: list[str]
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.warns(CacheWarning, match="the cache of counts .*file/cache.* cannot be used"):
        count_kernel(_scaling(), cache=tmp_path / "file" / "cache")
    assert counted == ["scaling"]


def test_a_database_that_is_locked_only_means_counting(
    database: Path, counted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "_READ_PATIENCE_S", 0.0)
    monkeypatch.setattr(cache, "_WRITE_PATIENCE_S", 0.0)
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        count_kernel(_scaling(), cache=database.parent)
    assert counted == ["scaling"]


def test_writers_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    t_unit, vector = _scaling(), count_kernel(_scaling(), cache=False)
    options = [{"statistics": {"i": k}} for k in range(24)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda o: cache.remembered(t_unit, o, lambda: vector, tmp_path), options))
    stored = dict(_execute(tmp_path / "counts.sqlite3", "SELECT key, document FROM counts"))
    assert set(stored) == {cache.content_key(t_unit, each) for each in options}
    for document in stored.values():
        assert PropertyVector.from_document(json.loads(document)) == vector


def test_refusals_are_not_remembered(tmp_path: Path, counted: list[str]) -> None:
    for _ in range(2):
        with pytest.raises(DataDependentControlFlowError):
            count_kernel(_gated(), cache=tmp_path)
    count_kernel(_gated(), statistics={"gated": 0.5}, cache=tmp_path)
    assert len(counted) == 1
    assert len(_execute(tmp_path / "counts.sqlite3", "SELECT * FROM counts")) == 1


def test_what_loopy_leaves_out_of_its_hash_has_no_key() -> None:
    kernel = _scaling().default_entrypoint
    sizes = kernel.get_grid_sizes_for_insn_ids
    other = _scaling().with_kernel(kernel.copy(overridden_get_grid_sizes_for_insn_ids=sizes))
    assert cache.content_key(_scaling(), {}) is not None
    assert cache.content_key(other, {}) is None
    assert cache.content_key(_scaling(), {"statistics": {"i": object()}}) is None


def test_vectors_of_one_size_are_told_apart(tmp_path: Path) -> None:
    # Loopy's own hash names all structured types of 16 bytes alike
    cltypes = pytest.importorskip("pyopencl.cltypes")
    expected = {"float4": {"flop.add.f32": 40}, "double2": {"flop.add.f64": 20}}
    expected["int4"] = {"iop.add.i32": 40}
    for name, counts in expected.items():
        kernel = lp.make_kernel(
            "{[i]: 0 <= i < n}",
            "b[i] = a[i] + a[i]",
            [lp.GlobalArg("a,b", getattr(cltypes, name), shape="n"), lp.ValueArg("n", "int32")],
            lang_version=(2018, 2),
        )
        found = count_kernel(kernel, cache=tmp_path).evaluate(n=10)
        assert {key: found[key] for key in found if key[:4] in ("flop", "iop.")} == counts


def test_what_is_no_kernel_is_refused_as_without_a_cache(tmp_path: Path) -> None:
    for place in (tmp_path, False):
        with pytest.raises(Exception, match=r"a loopy\.TranslationUnit.* was expected"):
            count_kernel("kernel", cache=place)


def test_old_entries_make_room(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_MAXIMUM_ENTRIES", 2)
    for k in range(4):
        count_kernel(_scaling(name=f"kernel_{k}"), cache=database.parent)
    found = _execute(database, "SELECT document FROM counts")
    assert sorted(text.count("kernel_3") + 2 * text.count("kernel_2") for (text,) in found) == [
        1,
        2,
    ]


def test_little_is_kept_in_memory(
    tmp_path: Path, counted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "_MAXIMUM_IN_MEMORY", 1)
    vectors = [count_kernel(_scaling(name=name), cache=tmp_path) for name in ("one", "two", "one")]
    assert counted == ["one", "two"]
    assert vectors[2] == vectors[0]
    assert vectors[2] is not vectors[0]


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(COUNTS, str(tmp_path))
    assert cache.directory(True) == tmp_path
    assert cache.directory(tmp_path / "other") == tmp_path / "other"
    assert cache.directory(False) is None
    monkeypatch.setenv(COUNTS, "")
    assert cache.directory(True) is None
    monkeypatch.delenv(COUNTS)
    standard = cache.directory(True)
    assert standard is not None
    assert standard.name == "countperf"


def test_a_vector_with_pieces_comes_back_equal(tmp_path: Path) -> None:
    t_unit = lp.make_kernel(
        "[n, m] -> {[i, j]: 0 <= i < n and i <= j < m}",
        "b[i, j] = a[j, i] + 1",
        [
            lp.GlobalArg("a,b", "float64", shape=("n + m", "n + m")),
            lp.ValueArg("n,m", "int64"),
        ],
        lang_version=(2018, 2),
    )
    t_unit = lp.split_iname(t_unit, "i", 16, inner_tag="l.0", outer_tag="g.0")
    first = count_kernel(t_unit, cache=tmp_path)
    cache.forget()
    found = count_kernel(t_unit, cache=tmp_path)
    assert isinstance(found, PropertyVector)
    assert found is not first
    assert found == first
