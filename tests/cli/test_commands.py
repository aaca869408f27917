"""Counts, predictions, fits and campaigns on the command line."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from countperf.cli import parser
from countperf.cli.commands import COMMANDS, EXAMPLES
from countperf.counting.vector import PropertyVector
from countperf.devices.discovery import find_device
from countperf.devices.parameters import available_devices
from countperf.errors import DeviceError
from countperf.machine_code.tools import find_objdump
from countperf.models.fitting.fit_model import fit
from countperf.models.library import list_fits
from tests.cli.conftest import Run
from tests.models.fitting.builders import KERNELS, SIZES, TEST_KERNEL, MadeUpKernel, measure

pytestmark = pytest.mark.filterwarnings("ignore")  # Loopy and pymbolic warn of what is written

SLUG = "pocl-epyc-zen5"
MODEL = """
format = "countperf-model"
version = 3
name = "mine"
ignored = ["flop.special.*"]

[terms]
launch = ["launches"]
work = { charged = ["gmem.*.*.*", "flop.add.f32"], scale = "once" }

[derived]
once = "launches"
"""


def _counts(path: Path, vector: PropertyVector) -> Path:
    path.write_text(json.dumps(vector.to_document()))
    return path


@pytest.fixture
def counts(tmp_path: Path) -> Path:
    return _counts(tmp_path / "vector.json", PropertyVector.from_mapping({"groups": 7}))


# --- counts


def test_count_prints_symbols_and_values(file: Path, counts: Path, run: Run) -> None:
    printed = run(f"count {file}:scale n=128 --json").json
    assert printed["kernel"] == "scale"
    product = {"symbolic": "[n] -> { n }", "exact": True, "value": 128}
    assert printed["properties"]["flop.mul.f32"] == product
    without = run(f"count {file}:scale --json").json
    assert "value" not in without["properties"]["flop.mul.f32"]
    assert run(f"count {counts} --json").json["properties"]["groups"]["value"] == 7


def test_count_prints_the_structure_of_a_kernel(file: Path, run: Run) -> None:
    rows = run(f"count {file}:scale n=128 --analysis --json").json["rows"]
    assert [row["value"] for row in rows if row["kind"] == "instruction"] == [128]
    details = [row["detail"] for row in rows if row["kind"] == "access"]
    assert "; 16 transactions of 32 bytes" in details[0]
    text = run(f"count {file}:scale n=128 --analysis").out
    assert "local 0 i_inner: 1; group 0 i_outer:" in text
    assert "transactions" not in run(f"count {file}:scale --analysis").out


def test_count_in_the_view_of_the_compiler(file: Path, run: Run) -> None:
    printed = run(f"count {file}:scale --view compiled --json").json
    assert printed["view"] == "compiled"
    assert printed["properties"]["flop.mul.f32"]["symbolic"] == "[n] -> { n }"
    assert "compiled view" in run(f"count {file}:scale --view compiled").out


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("count FILE:scal", "(there: made, scale, gated, raw, wrong, broken)"),
        ("count FILE:wrong", "it has to be a loopy.TranslationUnit"),
        ("count FILE:broken", "RuntimeError: no luck"),
        ("count COUNTS --analysis", "no structure"),
        ("compiled COUNTS", "no code to compile"),
        (
            "count FILE:raw --analysis --instruction-counts {'raw':{}}",
            "leave --instruction-counts out",
        ),
        (f"predict FILE:scale --weights {SLUG}", "add n=1024"),
        ("fit FOREIGN", "$.format"),
        ("fit STORE --model cubic", "there is linear, structural"),
        ("fit STORE --model no/such.toml", "cannot be read"),
        ("fit STORE --collection random", "cases is of random: name other collections"),
    ],
)
def test_what_cannot_be_done_is_an_error_in_one_line(
    command: str, said: str, file: Path, counts: Path, store: Path, tmp_path: Path, run: Run
) -> None:
    foreign = tmp_path / "other.jsonl"
    foreign.write_text('{"format": "something-else", "version": 1}\n')
    paths = {"FILE": file, "COUNTS": counts, "FOREIGN": foreign, "STORE": store}
    for name, path in paths.items():
        command = command.replace(name, str(path))
    printed = run(command, status=1)
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert said in line


@pytest.mark.parametrize(
    ("command", "more"),
    [
        *(("count", []), ("count n-body n", []), ("fly", []), ("", [])),
        *(
            ("count n-body --instruction-counts", [text])
            for text in ("", "[1]", "{'raw': 1}", "{'raw': {'flop.add.f32': 'x'}}", "{")
        ),
    ],
)
def test_wrong_usage_exits_with_2(command: str, more: list[str], run: Run) -> None:
    assert "usage" in run(command, *more, status=2).err


def test_help_has_two_uses_of_each_command_that_parse() -> None:
    assert {name: len(uses) for name, uses in EXAMPLES.items()} == dict.fromkeys(COMMANDS, 2)
    known = {*available_devices(), *list_fits()}
    for command, uses in EXAMPLES.items():
        for use in uses:
            words = shlex.split(use)
            options = parser().parse_args(words)
            assert options.command == command
            slugs = {w for w in words if re.match(r"(nvidia|amd|pocl|intel)-", w)}
            assert slugs <= known


@pytest.mark.parametrize(
    "command", ["count FILE:raw n=100", f"predict FILE:raw n=100 --weights {SLUG}"]
)
def test_counts_of_instructions_are_taken_as_messages_print_them(
    command: str, file: Path, run: Run
) -> None:
    command = command.replace("FILE", str(file))
    advice = re.search(r"instruction_counts=({.*}})", run(command, status=1).err)
    assert advice is not None
    printed = run(command, "--instruction-counts", advice[1], "--json").json
    if "time_s" in printed:
        assert printed["time_s"] > 0
    else:
        assert printed["properties"]["flop.add.f32"]["value"] == 100


def test_statistics_are_said_as_options_that_work(file: Path, run: Run) -> None:
    said = run(f"count {file}:gated n=100", status=1).err
    options = shlex.split(said.rpartition("; here: ")[2])
    assert options == ["--statistics", "x[i] > 0=0.5"]
    printed = run(f"count {file}:gated n=100 --json", *options).json
    assert printed["properties"]["flop.mul.f32"]["value"] == 50


@pytest.mark.skipif(find_objdump() is None, reason="objdump is not installed")
def test_compiled_prints_what_pocl_made_of_a_kernel(file: Path, run: Run) -> None:
    try:
        find_device("pocl:0")
    except DeviceError as error:
        pytest.skip(str(error))
    printed = run(f"compiled {file}:scale n=128 --json").json
    assert {name.partition(".")[0] for name in printed} == {"code"}
    assert printed["code.store_vector"] >= 1


# --- predictions and fits


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "measured.jsonl"
    twins = tuple(
        MadeUpKernel(name=f"{k.name}-b", family=f"{k.family}-b", counts=k.counts, sizes=k.sizes)
        for k in KERNELS
    )
    measure((*KERNELS, *twins), noise=np.random.default_rng(8)).write_file(path)
    return path


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    return _counts(tmp_path / "copy.json", KERNELS[0].vector)


def test_a_model_file_is_fitted_and_predicts(
    store: Path, kernel: Path, tmp_path: Path, run: Run
) -> None:
    model, weights = tmp_path / "mine.toml", tmp_path / "mine.json"
    model.write_text(MODEL)
    fitted = run(f"fit {store} --model {model} --output {weights}").out
    assert "mine model on pocl-testchip" in fitted
    assert "time_s = launch + once*(work)" in fitted
    assert "f32 additions" in fitted
    printed = run(f"predict {kernel} n=4096 --weights {weights} --json").json
    # 4 us, and 4096 loads and stores of 10 and 15 ps
    assert printed["time_s"] == pytest.approx(4e-6 + 4096 * 25e-12, rel=0.1)
    shares = list(printed["breakdown_s"].values())
    assert sum(shares) == pytest.approx(printed["time_s"])
    assert shares == sorted(shares, reverse=True)


def test_anchors_levels_and_comparisons(
    store: Path, kernel: Path, tmp_path: Path, run: Run
) -> None:
    weights = tmp_path / "w.json"
    run(f"fit {store} --model linear --nonnegative --output {weights}")
    common = f"predict {kernel} n=262144 --weights {weights}"
    plain = run(f"{common} --json").json
    narrower = run(f"{common} --level 0.9 --json").json["interval_s"]
    assert plain["interval_s"][0] <= narrower[0] < narrower[1] <= plain["interval_s"][1]
    anchored = run(f"{common} --anchor n=262144:{2 * plain['time_s']} --json").json
    assert plain["time_s"] < anchored["time_s"] <= 2 * plain["time_s"]
    other = _counts(tmp_path / "sum-four.json", KERNELS[1].vector)
    compared = run(f"{common} --against-kernel {other}").out
    assert compared.splitlines()[0].startswith("sum-four: ")
    assert "difference" in compared
    against = run(f"{common} --against {weights} --json").json["against"]
    assert against["time_s"] == plain["time_s"]


def test_a_property_without_a_weight_says_what_to_measure(tmp_path: Path, run: Run) -> None:
    store, weights = tmp_path / "some.jsonl", tmp_path / "weights.json"
    measure(KERNELS).write_file(store)
    run(f"fit {store} --output {weights}")
    vector = _counts(tmp_path / "v.json", PropertyVector.from_mapping({"flop.div.f64": 9}))
    error = run(f"predict {vector} --weights {weights}", status=1).err
    assert "flop.div.f64" in error
    assert "countperf measure --profile broad" in error
    incomplete = run(f"predict {vector} --weights {weights} --incomplete").out
    assert "without the cost of f64 divisions" in incomplete


def test_fit_and_evaluate_take_a_collection_out_of_a_campaign(tmp_path: Path, run: Run) -> None:
    store, weights = tmp_path / "campaign.jsonl", tmp_path / "w.json"
    of_paper = replace(TEST_KERNEL, name="bodies", family="n-body")
    measure((*KERNELS, TEST_KERNEL, of_paper)).write_file(store)
    fitted = run(f"fit {store} --collection paper --output {weights} --json").json
    everything = run(f"fit {store} --model linear --output {tmp_path / 'all.json'} --json").json
    assert (everything["cases"], fitted["cases"]) == (17, 14)  # "pairs" is none of the paper's
    assert fitted["objective"] == everything["objective"]
    assert fitted["objective"].endswith("all cases alike; weights of any sign, as in the paper")
    assert json.loads(weights.read_text())["quality"]["objective"] == fitted["objective"]
    noise = run(f"fit {store} --model linear --objective noise --output {weights} --json").json
    assert noise["model"] == "linear"
    options = ("", " --collection paper")
    judged = [f"evaluate {store} --weights {weights}{more} --json" for more in options]
    whole, chosen = ({case["kernel"] for case in run(each).json["cases"]} for each in judged)
    assert (whole, chosen) == ({TEST_KERNEL.name, "bodies"}, {"bodies"})


def test_evaluate_also_ranks_variants(tmp_path: Path, run: Run) -> None:
    variants = [
        MadeUpKernel(
            name=f"variant{adds}",
            family="variants-toy",
            purpose="variant",
            counts={"flop.add.f32": f"[n] -> {{ {adds}n }}"},
        )
        for adds in (500, 900)
    ]
    measured = measure((*KERNELS, TEST_KERNEL, *variants))
    store, weights = tmp_path / "campaign.jsonl", tmp_path / "weights.json"
    measured.write_file(store)
    fit(measured).weights.write_file(weights)
    command = f"evaluate {store} --weights {weights}"
    ranking = run(f"{command} --json").json["ranking"]
    assert [ranked["parameters"]["n"] for ranked in ranking["sets"]] == list(SIZES)
    assert ranking["mean"]["kendall_tau"] == 1.0
    assert "ranking of variants" not in run(f"{command} --purpose test").out
    assert "ranking of variants" in run(command).out


@pytest.mark.device
def test_a_small_campaign_from_the_command_line(tmp_path: Path, run: Run) -> None:
    try:
        find_device()
    except DeviceError as error:
        pytest.skip(str(error))
    doctor = run("doctor --json").json
    label = doctor["default"]
    assert label in [device["label"] for device in doctor["devices"] if device["works"]]
    store, weights = tmp_path / "campaign.jsonl", tmp_path / "weights.json"
    measured = run(
        f"measure --profile quick --family empty --device {label} --store {store} --json"
    )
    assert measured.json["measured"] > 0
    assert run(f"fit {store} --output {weights} --json").json["written"] == str(weights)
    first = run(f"predict empty/16x16 n=512 m=512 --weights {weights}").out.splitlines()[0]
    assert first.split()[1] in ("ns", "µs", "ms")
    assert "measure test kernels" in run(f"evaluate {store} --weights {weights}", status=1).err
