from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from gangwise import ScenarioError, StoreError, UnknownName, compare, create_scenario
from gangwise.cli import app
from gangwise.report.pages import write_report
from gangwise.study.runs import Store
from gangwise.study.tune import STUDY, ParameterRange, Tuning, read_tuning, tune

pytest.importorskip("optuna", reason="tuning needs Optuna: pip install '.[tune]'")

SCENARIO = "ogasched-default-v1:servers=8,job_types=3"
POLICY = "ogasched-react:shrink=0.5,steps=1,fraction=0.03"  # a poor default
RANGES = ["fraction=0.02:0.8:log", "steps=1:6:int"]
GIVEN = {"trials": 4, "seeds": (10, 11), "validation": (20, 21, 22), "slots": 12, "jobs": 1}


def tuned(out: Path, **changes) -> Tuning:
    return tune(SCENARIO, POLICY, RANGES, out, **{**GIVEN, **changes})


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("tune")


@pytest.fixture(scope="module")
def tuning(folder) -> Tuning:
    return tuned(folder)


def means(arguments: dict, seeds: tuple[int, ...], metric: str = "reward") -> np.ndarray:
    """The same numbers by the other way through the program: no store, no sweep, no study."""
    text = ",".join(f"{k}={v!r}" for k, v in {"shrink": 0.5, **arguments}.items())
    runs = compare(create_scenario(SCENARIO), [f"ogasched-react:{text}"], 12, list(seeds), []).runs
    found = [
        (run.rewards if metric == "reward" else run.metrics[metric]).mean() for run in runs.values()
    ]
    return np.array(found)


def test_values_are_what_a_comparison_says(tuning):
    assert len(tuning.trials) == 4
    for trial in tuning.trials:
        assert trial.value == pytest.approx(means(trial.arguments, (10, 11)).mean(), rel=1e-12)
    values = [trial.value for trial in tuning.trials]
    assert values == sorted(values, reverse=True)


def test_trials_are_told_with_intervals_and_paired_with_the_default(tuning):
    default = means(tuning.default.arguments, (10, 11))
    told = tuning.as_dict()
    assert told["default"]["over"] is None
    assert any(each["over"] for each in told["trials"])
    for each in told["trials"]:
        own = means(each["arguments"], (10, 11))
        assert each["values"] == pytest.approx(own, rel=1e-12)
        half = stats.t.ppf(0.975, 1) * stats.sem(own)
        assert each["high"] - each["value"] == pytest.approx(half)
        if each["over"]:
            change = 100 * (own / default - 1)
            assert each["over"]["mean"] == pytest.approx(change.mean())
            half = stats.t.ppf(0.975, 1) * stats.sem(change)
            assert each["over"]["mean"] - each["over"]["low"] == pytest.approx(half)


def test_the_default_comes_first(tuning):
    first = next(trial for trial in tuning.trials if trial.number == 0)
    assert first == tuning.default
    assert first.arguments == {"fraction": 0.03, "steps": 1}


def test_the_best_is_judged_on_other_seeds(tuning, folder):
    best = means(tuning.best.arguments, (20, 21, 22))
    ratio = 100 * (best / means(tuning.default.arguments, (20, 21, 22)) - 1)
    assert tuning.row["mean"] == pytest.approx(ratio.mean(), rel=1e-9)
    assert tuning.row["seeds"] == 3
    assert tuning.sentence.startswith("tuned on seeds 10, 11: fraction = ")
    assert "on seeds 20 to 22: " in tuning.sentence
    plans = {n: Store(folder).read_plan(n)["runs"] for n in ("tuning", "validation")}
    assert {run["seed"] for run in plans["tuning"]} == {10, 11}
    assert {run["seed"] for run in plans["validation"]} == {20, 21, 22}
    page = write_report(folder).read_text(encoding="utf-8")
    assert "Tuned on seeds 10, 11" in page


def test_started_again_nothing_is_played_again(tuning, folder):
    runs = {path: path.stat().st_mtime_ns for path in (folder / "runs").iterdir()}
    assert tuned(folder) == tuning
    assert read_tuning(folder) == tuning
    assert {path: path.stat().st_mtime_ns for path in (folder / "runs").iterdir()} == runs


def test_without_its_study_file_a_tuning_is_found_again_from_its_runs(tuning, folder, tmp_path):
    """As in a folder of a version that kept the study in a database."""
    copy = shutil.copytree(folder, tmp_path / "copy")
    (copy / STUDY).unlink()
    (copy / "tuning.json").unlink()
    runs = {path: path.stat().st_mtime_ns for path in (copy / "runs").iterdir()}
    assert tuned(copy) == tuning
    assert {path: path.stat().st_mtime_ns for path in (copy / "runs").iterdir()} == runs


KILLED = """
import os, signal, sys
import gangwise.study.tune as module
sweep, calls = module.sweep, []
def dies(*given):
    calls.append(given)
    if len(calls) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return sweep(*given)
module.sweep = dies
from tests.study.test_tune import tuned
from pathlib import Path
tuned(Path(sys.argv[1]))
"""


@pytest.mark.full
def test_killed_in_a_trial_it_goes_on_to_the_same_study(tuning, tmp_path):
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path)],
        cwd=root,
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(root / "src")])},
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not (tmp_path / "tuning.json").exists()
    assert tuned(tmp_path) == tuning


def test_more_trials_begin_with_the_same_ones(tuning, tmp_path):
    assert tuned(tmp_path, trials=2).default == tuning.default
    assert tuned(tmp_path) == tuning


def test_less_may_be_better(tmp_path):
    found = tuned(tmp_path, metric="overhead.mean", minimise=True)
    values = [trial.value for trial in found.trials]
    assert values == sorted(values)
    least = means(found.best.arguments, (10, 11), "overhead")
    assert found.best.value == pytest.approx(least.mean())
    default = means(found.default.arguments, (10, 11), "overhead")
    gain = found.over_default(found.best)["mean"]  # less is better, and better is positive
    assert gain == pytest.approx(100 * (1 - least / default).mean())
    assert gain > 0
    best, default = (
        means(trial.arguments, (20, 21, 22), "overhead") for trial in (found.best, found.default)
    )
    assert found.row["mean"] == pytest.approx(100 * (1 - best / default).mean())


def test_a_default_out_of_range_is_no_trial(tmp_path):
    found = tune(SCENARIO, "ogasched-react", ["fraction=0.01:0.02"], tmp_path, **GIVEN)
    assert found.default.number == -1
    assert found.default.arguments == {"fraction": 0.4}
    assert all(0.01 <= trial.arguments["fraction"] <= 0.02 for trial in found.trials)
    assert found.row is None  # such short steps earn less than the default on these seeds
    assert "keep it" in found.sentence


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("steps", "write NAME=LOW:HIGH"),
        ("steps=5", "write NAME"),
        ("=1:2", "write NAME"),
        ("steps=1:2:lin", "write NAME"),
        ("steps=1.5:2:int", "write NAME"),
        ("steps=3:3", "below the upper"),
        ("fraction=0:1:log", "above 0"),
        ("rule=a|a", "must differ"),
        ("fraction=nan:1", "below the upper"),
    ],
)
def test_ranges_that_make_no_sense(text, says):
    with pytest.raises(ScenarioError, match=says):
        ParameterRange.parse(text)


@pytest.mark.parametrize("text", ["a=1:20:int", "a=0.05:0.8:log", "a=x|y", "a=True|None|2"])
def test_ranges_are_written_as_they_are_read(text):
    assert ParameterRange.parse(str(ParameterRange.parse(text))) == ParameterRange.parse(text)


def test_choices(tmp_path):
    found = tune(SCENARIO, "ogasched-react", ["rule=capacity|adagrad-norm"], tmp_path, **GIVEN)
    assert {t.arguments["rule"] for t in found.trials} <= {"capacity", "adagrad-norm"}
    assert found.default.number == 0


def test_mistakes_are_told_before_anything_is_played(tmp_path):
    with pytest.raises(UnknownName, match="fraction"):
        tune(SCENARIO, "ogasched-react", ["fracton=0.1:0.5"], tmp_path, **GIVEN)
    with pytest.raises(ScenarioError, match="steps=1:3:int"):
        tune(SCENARIO, "ogasched-react", ["steps=1:3"], tmp_path, **GIVEN)
    with pytest.raises(UnknownName, match="'foo'"):
        tune(SCENARIO, "ogasched-react", ["rule=capacity|foo|decay"], tmp_path, **GIVEN)
    with pytest.raises(UnknownName, match="no scenario named"):
        tune("ogasched", "ogasched-react", ["steps=1:3:int"], tmp_path, **GIVEN)
    with pytest.raises(ScenarioError, match="than 0"):
        tuned(tmp_path, slots=0)
    with pytest.raises(ScenarioError, match="validation"):
        tuned(tmp_path, validation=(11, 12))
    with pytest.raises(ScenarioError, match="twice"):
        tune(SCENARIO, "ogasched-react", ["steps=1:2:int"] * 2, tmp_path, **GIVEN)
    assert not list(tmp_path.iterdir())


def test_a_study_of_something_else_is_not_mixed_up(tuning, folder):
    with pytest.raises(StoreError, match=r"slots .*12.* 13"):
        tuned(folder, slots=13)


def test_a_mistaken_metric_can_be_mended(tmp_path):
    with pytest.raises(UnknownName, match="metric"):
        tuned(tmp_path, trials=1, metric="rewards.mean")
    assert len(tuned(tmp_path, trials=1).trials) == 1


def test_without_optuna(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ScenarioError, match="Optuna"):
        tuned(tmp_path)


def test_command(tmp_path):
    from typer.testing import CliRunner

    done = CliRunner().invoke(
        app,
        [
            "tune",
            "ogasched-default-v1",
            "ogasched-react",
            "--range",
            "steps=1:3:int",
            "--set",
            "servers=8",
            "--set",
            "job_types=3",
            "--slots",
            "8",
            "--trials",
            "2",
            "--seeds",
            "5,6",
            "--validation",
            "7,8",
            "--out",
            str(tmp_path),
            "--jobs",
            "1",
            "--json",
        ],
    )
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["seeds"] == [5, 6]
    assert len(told["trials"]) == 2
    assert (tmp_path / "tuning.command.json").exists()
