"""Sizes and other arguments: what they name, and what is refused by each route it comes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import loopy as lp
import numpy as np
import pytest

import countperf
from countperf.api.catalogue import measure_catalogue, measure_variants
from countperf.api.kernels import Kernel
from countperf.cli import main
from countperf.counting.count_properties import count_kernel
from countperf.devices.description import as_scalar, describe_kernel
from countperf.errors import KernelBuildError, ParameterError
from countperf.measuring import KernelCase
from countperf.measuring.campaign import measure
from countperf.measuring.runner import ApartRunner
from countperf.models.library import load_weights
from countperf.sizes import combine_sizes, parse_sizes, size_arrays
from countperf.tuning.result import Budget
from countperf.tuning.space import SearchSpace
from tests.devices.fakes import PROTOCOL, FakeRunner, make_case, make_device

SLUG = "pocl-epyc-zen5"
N_BODY = "n-body/256x1/f32"
MATMUL = "matmul-naive/16x16/f32"


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1024", 1024),
        *(("2**20", 1048576), ("1M", 10**6), ("1Mi", 2**20), ("3k", 3000), ("1e6", 10**6)),
        ("2**4,1k,1Ki", (16, 1000, 1024)),
        ("2**4:2**8:3:log", (16, 64, 256)),
        ("256,512,1024", (256, 512, 1024)),
        ("1024:1030:4", (1024, 1026, 1028, 1030)),
        ("0:10:3", (0, 5, 10)),
        ("1:1024:11:log", tuple(2**power for power in range(11))),
        ("100:10000:3:log", (100, 1000, 10000)),
        ("1,2,16:64:4", (1, 2, 16, 32, 48, 64)),
        ("4,4,8", (4, 4, 8)),
        # 256 * 16^(i/7): 256, 380.4, 565.3, 840.1, 1248.3, 1854.9, 2756.4, 4096
        ("256:4096:8:log", (256, 380, 565, 840, 1248, 1855, 2756, 4096)),
        # steps of 3840 / 7 = 548.57
        ("256:4096:8", (256, 805, 1353, 1902, 2450, 2999, 3547, 4096)),
    ],
)
def test_texts_name_values(text: str, values: int | tuple[int, ...]) -> None:
    assert parse_sizes("n", text) == values


@pytest.mark.parametrize(
    ("text", "said"),
    [
        *((text, "no integer and no range") for text in ("x", "1.5", "", "1,", "1:2", "1:2:3:lin")),
        *((text, "no integer and no range") for text in ("1K", "1m", "M", "2**", "2**-1", "1e")),
        *((text, "too large") for text in ("9**99", "1e20", "99999999999T")),
        ("8:4:2", "a start below the stop"),
        ("1:9:1", "a count of at least 2"),
        ("0:9:3:log", "of at least 1 before :log"),
        ("1:1000000:1000000", "at most 10000 values"),
        (f"1,{10**30}", "the size is too large"),
        ("1:4:9", "only 4 of the 9 values differ"),
        ("1:8:8:log", "only 6 of the 8"),  # 1, 1.35, 1.81, 2.44, 3.28, 4.42, 5.94, 8
    ],
)
def test_other_texts_are_refused(text: str, said: str) -> None:
    with pytest.raises(ParameterError, match=said) as caught:
        parse_sizes("n", text)
    assert caught.value.parameter == "n"


def test_lists_go_together_value_by_value() -> None:
    assert combine_sizes({"n": (1, 2), "m": np.array([3, 4]), "q": 5}) == [
        {"n": 1, "m": 3, "q": 5},
        {"n": 2, "m": 4, "q": 5},
    ]
    assert combine_sizes({"n": np.int64(7)}) == [{"n": 7}]
    assert combine_sizes({}) == [{}]
    arrays = size_arrays({"n": (1, 2), "m": 3})
    assert arrays["m"] == 3
    assert np.array_equal(arrays["n"], [1, 2])


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ({"n": (1, 2), "m": (3, 4, 5)}, r"n \(2\) and m \(3\) have different numbers of values"),
        ({"n": ()}, "n has no value"),
        ({"n": (1, 2, 1)}, "the point n=1 is there twice"),
        ({"n": 1.5}, "n is 1.5; pass an integer"),
        ({"n": "many"}, "n is 'many'; pass an integer"),
    ],
)
def test_what_is_no_list_of_points_is_refused(sizes: Any, said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        combine_sizes(sizes)


def test_commands_take_several_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["count", "n-body", "n=256,512"]) == 0
    (line,) = [x for x in capsys.readouterr().out.splitlines() if "f32.rsqrt" in x]
    assert line.split()[1:3] == [str(n * (n - 1)) for n in (256, 512)]
    command = ["predict", "n-body", "n=256,512", "--model", "linear", "--weights", SLUG]
    assert main(command) == 0
    rows = [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:4]]
    assert rows == ["n", "256", "512"]


@pytest.mark.parametrize(
    ("command", "said", "status"),
    [
        ("count n-body n=256,512 --analysis", "256, 512", 1),
        (f"predict n-body n=256,512 --against-size n=5 --weights {SLUG}", "256, 512", 1),
        ("rank matmul n=256:512:2", "one value of n is taken here", 2),
        ("tune matmul n=256:512:2", "one value of n is taken here", 2),
        (f"count {N_BODY} n=16 --json m=3", "has no parameter m; its sizes are: n", 1),
        (f"count {N_BODY} n=16 n=32", "n is given twice: n=16 and n=32; give it once", 1),
        (f"predict {N_BODY} level=16 level=32", "level=16 and level=32; give it once", 1),
        (f"count {N_BODY} n={'9' * 400}", "the size is too large (at most 20 digits)", 2),
        (f"count {N_BODY} n={'9' * 5000}", "the size is too large (at most 20 digits)", 2),
        (f"count {N_BODY} n=8589934592", "n = 8589934592 is beyond 2147483647", 1),
        (f"count {N_BODY} n=16 --vieww source", "no option --vieww; did you mean --view?", 2),
        (f"predict --wieghts w {N_BODY} n=4", "no option --wieghts; did you mean --weights?", 2),
        (f"count {N_BODY} n=16 --view sorce", "invalid choice: 'sorce' (choose from", 2),
        ("predct k n=4", "invalid choice: 'predct' (choose from", 2),
        ("count n-bdy n=4", "no kernel is called 'n-bdy'; did you mean n-body", 1),
        (f"predict {N_BODY} n=4 --weights pocl-epyc-zen", f"; did you mean {SLUG}?", 1),
        (f"predict {N_BODY} n=4 --weights {SLUG} --model linaer", "; did you mean linear?", 1),
        (f"predict {N_BODY} n=4 --model volkv --on nvidia-k620", "; did you mean volkov?", 1),
        (f"predict {N_BODY} n=4 --on nvidia-k62", "; did you mean nvidia-k620?", 1),
        (f"count {N_BODY} N=16", "has no parameter N; its sizes are: n", 1),
        (f"count {MATMUL} n=16 m=16 ll=16", "its sizes are: l, m, n; did you mean l?", 1),
        ("rank matmull n=64", "countperf.SearchSpace; did you mean matmul?", 1),
        *((f"rank matmul --longest {s}", f"{s} is no number above 0", 2) for s in ("inf", "nan")),
        *((f"time k --longest {s}", f"{s} is no number above 0", 2) for s in ("0", "-1")),
        *((f"tune matmul --budget {s}", f"{s} is no number above 0", 2) for s in ("inf", "-1")),
        ("tune matmul --measurements 0", "0 is no integer of at least 1", 2),
        ("predict k n=4 --anchor n=4,n=5:0.1", "gives a size twice", 2),
        ("predict k n=4 --anchor n=4:inf", "inf is no number above 0", 2),
        *((f"predict k n=5 --anchor {text}", "--anchor", 2) for text in ("n=5", "n=x:1", "n=5:x")),
    ],
)
def test_bad_values_on_the_command_line_are_named(
    command: str, said: str, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        returned: Any = main(command.split())
    except SystemExit as error:
        returned = error.code
    assert returned == status
    assert said in capsys.readouterr().err


# --- types of arguments


def _double(kind: type[np.integer] | None) -> lp.TranslationUnit:
    arguments = [lp.GlobalArg("z,y", np.float32, shape="n"), lp.ValueArg("n", kind)]
    unit = lp.make_kernel(
        "{ [i] : 0 <= i < n }", "z[i] = 2*y[i]", arguments, lang_version=(2018, 2)
    )
    return lp.tag_inames(unit, "i:g.0")


@pytest.mark.parametrize(
    ("kind", "largest", "name"),
    [(np.int32, 2**31 - 1, "int32"), (np.int64, 2**63 - 1, "int64"), (None, 2**31 - 1, "int32")],
)
def test_a_size_beyond_the_type_of_its_argument_is_refused(
    kind: type[np.integer] | None, largest: int, name: str
) -> None:
    vector = count_kernel(_double(kind))
    assert vector.evaluate(n=largest)["groups"] == largest
    arrays = [] if name == "int64" else [np.array([16, largest + 1])]  # NumPy has no larger type
    for size in (largest + 1, *arrays):
        with pytest.raises(ParameterError, match=f"the largest value of its type {name}") as caught:
            vector.evaluate(n=size)
        assert caught.value.parameter == "n"


def test_predictions_and_launches_refuse_a_size_beyond_its_type_with_advice_that_works() -> None:
    unit = _double(np.int32)
    for size in (2**31, 2**33):
        with pytest.raises(ParameterError, match=r'such as lp.ValueArg\("n", np.int64\)'):
            countperf.predict(unit, weights=SLUG, model="linear", n=size)
    assert count_kernel(_double(np.int64)).evaluate(n=2**33)["groups"] == 2**33
    scalar = describe_kernel(unit).scalars["n"]
    assert as_scalar(scalar, 2**31 - 1) == 2**31 - 1
    with pytest.raises(KernelBuildError, match="2147483647"):
        as_scalar(scalar, 2**31)


def test_a_negative_integer_scalar_is_timed(tmp_path: Path) -> None:
    case = make_case(parameters={"n": 16, "shift": -2})
    (entry,) = measure([case], store=tmp_path / "m.jsonl", runner=FakeRunner(), protocol=PROTOCOL)
    assert entry.parameters == {"n": 16, "shift": -2}


def test_integers_of_numpy_are_kept_as_those_of_python() -> None:
    sizes: Any = {"n": np.int64(64), "m": np.uint8(3), "k": np.float32(5.0)}
    values: Any = {"a": np.array([1, 2])}
    space = SearchSpace(name="s", parameters=values, build=dict, sizes=sizes)
    case = KernelCase(name="c", build=dict, parameters=sizes, check_parameters=sizes)
    kept = [*case.parameters.values(), *case.check_parameters.values(), *space.sizes.values()]
    assert [*kept, *space.parameters["a"]] == [64, 3, 5] * 3 + [1, 2]
    assert {*map(type, kept)} == {int}
    text: Any = {"n": "64"}
    with pytest.raises(ParameterError, match="n is '64'"):
        KernelCase(name="c", build=dict, parameters=text)


# --- arguments of functions


def _matmul() -> countperf.PropertyVector:
    return Kernel.of(MATMUL).count_for(load_weights(SLUG))


def _words(text: str) -> list[list[str]]:
    return [row.split() for row in text.replace("\n", ";").split(";") if row.strip()]


SIZED: Mapping[str, Callable[[Any], object]] = {
    "predict": lambda sizes: countperf.predict(MATMUL, sizes, weights=SLUG),
    "weights.predict": lambda sizes: load_weights(SLUG).predict(_matmul(), sizes),
    "explain": lambda sizes: countperf.explain(MATMUL, sizes, weights=SLUG),
    "time_kernel": lambda sizes: countperf.time_kernel(countperf.load_kernel(MATMUL), sizes),
    "predict_all": lambda sizes: countperf.predict_all(MATMUL, "nvidia-gtx-970", sizes),
    "occupancy": lambda sizes: countperf.occupancy(MATMUL, "nvidia-gtx-970", sizes),
    "rank": lambda sizes: countperf.rank("matmul", sizes, weights=SLUG),
}
_MISSPELT = """
rank weight weights; rank models model; predict incomplete incomplete_ok; sweep model models
time_kernel wieghts weights; predict_all model models; occupancy profile_option profile_options
predict_application models model; with_compiled_code statistic statistics; fit modle model
count_kernel statistic statistics; analyze_kernel statistic statistics; load_weights modle model
measure stor store; measure_catalogue stor store; evaluate weight weights; recording weight weights
"""
_NONE_NEAR = {
    "tune": ("budget", "its options are seconds, measurements"),
    "step_formulas": ("models", "its options are profile_options"),
    "predict_on": ("weights", "its options are models"),
    "doctor": ("x", ""),
}
# a function, a keyword that it does not have, and the one that is meant
MISSPELT = [
    *((f, keyword, f"did you mean {meant}") for f, keyword, meant in _words(_MISSPELT)),
    *((f, keyword, said) for f, (keyword, said) in _NONE_NEAR.items()),
]
HAND = {"launches": 1, "groups": 64}
WRONG: Any = 3
DEVICE = make_device("fake:0", "Abacus")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        *(
            (lambda call=call: call(1024), "sizes are given by name, and 1024 has none")
            for call in SIZED.values()
        ),
        *(
            (lambda call=call: call({"n": "1024"}), "parameter n is '1024'; pass an integer")
            for call in SIZED.values()
        ),
        *(
            (
                lambda call=call, name=name: getattr(countperf, call)("matmul", **{name: "x"}),
                f"no option {name}.*{said}",
            )
            for call, name, said in MISSPELT
        ),
        (lambda: countperf.rank("matmul", point=3, weights=SLUG), "no size point.*mean points"),
        *(
            (
                lambda measure=measure: measure(store="m.jsonl", profile=WRONG),
                "no profile 3; pass one of 'quick'",
            )
            for measure in (measure_catalogue, measure_variants)
        ),
        (
            lambda: measure_catalogue(store="m.jsonl", protocol="papers"),
            "no protocol 'papers'; pass one of 'broad', 'quick', 'paper'",
        ),
        (
            lambda: countperf.count_kernel(countperf.load_kernel(MATMUL), view=WRONG),
            "no view 3; pass one of 'source', ",
        ),
        (lambda: countperf.predict(HAND, weights=WRONG), "weights are a name, a path or"),
        (
            lambda: load_weights(SLUG).predict(HAND, incomplete_ok=True).against(WRONG),
            "3 is none such",
        ),
        (lambda: countperf.predict(N_BODY, {"n": 512}, n=1024, weights=SLUG), "twice"),
        *(
            (lambda limit=limit: ApartRunner(DEVICE, longest_s=limit), "longest_s is")
            for limit in (0.0, -1.0, math.inf, math.nan)
        ),
        (lambda: PROTOCOL.with_values(rounds=0), "no protocol has"),
        (lambda: Budget(seconds=math.inf), "is none"),
        (
            lambda: (
                load_weights(SLUG).predict(HAND, incomplete_ok=True).anchor(({}, 1.0), ({}, 2.0))
            ),
            "same sizes",
        ),
    ],
)
def test_arguments_that_are_none_are_refused(call: Callable[[], object], said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        call()
