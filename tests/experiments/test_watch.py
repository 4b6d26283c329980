"""What is seen of a run from another terminal is what has been stored so far."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gangwise import Results, StoreError, compare
from gangwise.cli import app
from gangwise.experiments.store import Store
from gangwise.experiments.watch import Watch

SMALL = "ogasched-default-v1:servers=8,job_types=3"


def test_part_of_a_comparison_that_somebody_plays(tmp_path: Path) -> None:
    compare(SMALL, "drf,fairness,greedy", 10, 3, [], out=tmp_path)
    store = Store(tmp_path)
    runs = store.read_plan("comparison")["runs"]
    whole = Results.open(tmp_path).per_seed()
    ends = {}
    for i, run in enumerate(runs):
        path = store.path(run["key"])
        os.utime(path, (1000.0 + 10 * i, time.time() - 90 + 10 * i))
        ends[run["key"]] = path.stat().st_mtime
    for run in runs[-2:]:  # the last seed of fairness and of greedy is not there yet
        store.path(run["key"]).unlink()
    watch = Watch(tmp_path)
    with store.lock():
        seen = watch.look()
        assert (seen.done, seen.of, seen.going_on) == (7, 9, True)
        assert seen.writer is not None
        assert seen.writer["pid"] == os.getpid()
        # Seven ends, ten seconds apart, the last one thirty seconds ago: two more are overdue.
        assert seen.seconds_left == pytest.approx(0.0, abs=10.0)
    rows = {row["policy"]: row for row in seen.table}
    assert {name: row["seeds"] for name, row in rows.items()} == {
        "drf": 3,
        "fairness": 2,
        "greedy": 2,
    }
    value = {(p, s): v for p, s, v in whole.rows()}
    paired = [100 * (value["greedy", s] / value["drf", s] - 1) for s in (0, 1)]
    assert rows["greedy"]["ahead"] == pytest.approx(sum(paired) / 2)
    assert rows["drf"]["ahead"] is None
    after = watch.look()
    assert (after.going_on, after.seconds_left) == (False, None)


def test_who_died_does_not_play(tmp_path: Path) -> None:
    compare(SMALL, "drf", 10, 1, [], out=tmp_path)
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    folder = Store(tmp_path).files
    with folder.lock():
        (holder,) = (folder.state / "locks").glob("*.json")
        about = json.loads(holder.read_text())
        assert folder.writer() == about
        holder.write_text(json.dumps({**about, "pid": dead.pid}))
        assert folder.writer() is None


def test_the_command_ends_with_the_run(tmp_path: Path) -> None:
    compare(SMALL, "drf,fairness", 10, 2, [], out=tmp_path)
    run = CliRunner()
    for options in ((), ("--once",)):
        found = run.invoke(app, ["watch", str(tmp_path), *options])
        assert found.exit_code == 0
        assert "4 of 4 runs" in found.output
        assert "fairness" in found.output
    told = json.loads(run.invoke(app, ["watch", str(tmp_path), "--json"]).stdout)
    assert (told["format"], told["done"], told["going_on"]) == ("gangwise-watch-1", 4, False)


def test_where_there_is_nothing_to_watch(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is no folder"):
        Watch(tmp_path / "none").look()
    with pytest.raises(StoreError, match="has no results, and nobody writes"):
        Watch(tmp_path).look()
    with Store(tmp_path).lock():
        seen = Watch(tmp_path).look()
        assert (seen.experiment, seen.going_on) == ("", True)
        told = CliRunner().invoke(app, ["watch", str(tmp_path), "--once"])
        assert "it has not begun yet" in told.output


def test_a_tuning_is_watched_by_its_trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From inside its third trial, while the folder is locked."""
    pytest.importorskip("optuna", reason="Optuna is not installed")
    from gangwise.experiments import tune as module

    sweep, seen = module.sweep, []

    def looked(*given: Any) -> Any:
        found = sweep(*given)
        seen.append(Watch(tmp_path).look())
        return found

    monkeypatch.setattr(module, "sweep", looked)
    found = module.tune(
        SMALL, "greedy", ["rounds=1:500:int"], tmp_path, None, 4, (1, 2), (3, 4), 10, jobs=1
    )
    tried = sorted(found.trials, key=lambda trial: trial.number)
    third = seen[2]
    assert (third.experiment, third.unit, third.done, third.of) == ("tuning", "trials", 2, 4)
    assert third.going_on
    assert third.seconds_left is not None
    assert {row["reward.mean"] for row in third.table} == {trial.value for trial in tried[:2]}
    assert third.over == "default"
    best, first = third.table[0], {row["policy"]: row for row in third.table}["default"]
    assert best["reward.mean"] >= first["reward.mean"]
    assert first["ahead"] is None
    monkeypatch.undo()
    after = Watch(tmp_path, "tuning").look()
    assert (after.done, after.of, after.going_on) == (4, 4, False)
    (tmp_path / "tuning.json").unlink()
    told = CliRunner().invoke(app, ["watch", str(tmp_path), "--name", "tuning", "--once"])
    assert "4 of 4 trials" in told.output
