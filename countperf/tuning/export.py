"""Searches in the formats of others: Kernel Tuner's cache, T4 results, pandas, a Python script.

Kernel Tuner writes times in ms, a variant that failed as the name of one of its error classes, and
a configuration as the values of its parameters in order. A cache holds what was measured: to open
it in simulation mode, restrict the space to that (``restrictions``). Times that countperf does not
measure apart (compiling, verifying) are left out.

Sources: Kernel Tuner 1.5, ``process_cache``; T4 results schema 1.0.0 of the autotuning community,
as shipped with Kernel Tuner (``schema/T4``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from countperf.tuning.points import Refused
from countperf.tuning.result import Trial, TuningResult
from countperf.tuning.space import Choice, SearchSpace

if TYPE_CHECKING:
    import pandas as pd

_MS = 1e3
_ERRORS = {"compile": "CompilationFailedConfig", "run": "RuntimeFailedConfig"}
_INVALIDITY = {"compile": "compile", "results": "correctness", "run": "runtime"}


def kernel_tuner_cache(result: TuningResult, space: SearchSpace) -> dict[str, Any]:
    """Return the content of a Kernel Tuner cache file, without indentation valid for its reader."""
    cache: dict[str, Any] = {}
    for tried in result.tried:
        cache[_key(space, tried.choice)] = {
            **tried.choice,
            "time": tried.time_s * _MS,
            "times": [sample * _MS for sample in tried.samples_s],
            "benchmark_time": sum(tried.samples_s) * _MS,
        }
    for refused in result.failed:
        error = _ERRORS.get(refused.stage, "InvalidConfig")
        cache[_key(space, refused.choice)] = {
            **refused.choice,
            "time": error,
            "__error__": error,
        }
    return {
        "device_name": result.device,
        "kernel_name": result.space,
        "problem_size": list(result.sizes.values()),
        "tune_params_keys": list(space.parameters),
        "tune_params": {name: list(values) for name, values in space.parameters.items()},
        "objective": "time",
        "cache": cache,  # last, since Kernel Tuner looks for the brackets that close it
    }


def _key(space: SearchSpace, choice: Choice) -> str:
    return ",".join(str(choice[name]) for name in space.parameters)


def t4_results(result: TuningResult) -> dict[str, Any]:
    """Return what ran and what failed on the device in the T4 results format, times in ms."""
    return {
        "schema_version": "1.0.0",
        "metadata": {"timeunit": "milliseconds"},
        "results": [
            *(_t4_tried(tried) for tried in result.tried),
            *(_t4_failed(refused) for refused in result.failed),
        ],
    }


def _t4_tried(tried: Trial) -> dict[str, Any]:
    return {
        "configuration": dict(tried.choice),
        "times": {"runtimes": [sample * _MS for sample in tried.samples_s]},
        "invalidity": "correct",
        "correctness": 1,
        "measurements": [
            {"name": "time", "value": tried.time_s * _MS, "unit": "ms"},
            {"name": "predicted", "value": tried.predicted_s * _MS, "unit": "ms"},
        ],
        "objectives": ["time"],
    }


def _t4_failed(refused: Refused) -> dict[str, Any]:
    return {
        "configuration": dict(refused.choice),
        "times": {"runtimes": []},
        "invalidity": _INVALIDITY.get(refused.stage, "constraints"),
        "correctness": 0,
        "measurements": [],
        "objectives": ["time"],
    }


def builder_script(result: TuningResult, specification: str) -> str:
    """Return a Python script that builds the fastest variant and prints its code."""
    sizes = ", ".join(f"{name}={value}" for name, value in result.sizes.items())
    values = "".join(f"    {name}={value!r},\n" for name, value in result.winner.choice.items())
    return (
        f'"""Fastest variant of {result.space} on {result.device}: {result.winner.time_s:.4g} s'
        f'{f" at {sizes}" if sizes else ""}."""\n\n'
        "import loopy as lp\n\n"
        "from countperf.workflow.tuning import load_space\n\n"
        f"kernel = load_space({specification!r}).build(\n{values})\n\n"
        'if __name__ == "__main__":\n'
        "    print(lp.generate_code_v2(kernel).device_code())\n"
    )


def tuning_frame(result: TuningResult) -> pd.DataFrame:
    """Return the variants that ran as a data frame, one row each, in the order of the search.

    Columns: one for each parameter; ``time_s``, ``predicted_s``, ``noise``, ``runs``,
    ``cut_short``, ``at_s`` (what was spent when it was done), and ``best_s`` (the best so far).
    """
    import pandas as pd

    frame = pd.DataFrame(
        [
            {
                **tried.choice,
                "time_s": tried.time_s,
                "predicted_s": tried.predicted_s,
                "noise": tried.noise,
                "runs": len(tried.samples_s),
                "cut_short": tried.cut_short,
                "at_s": tried.at_s,
            }
            for tried in result.tried
        ]
    )
    frame["best_s"] = frame["time_s"].cummin()
    return frame
