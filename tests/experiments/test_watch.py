"""What is seen of a run from another terminal is what has been stored so far."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

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
        assert seen is not None
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
    assert after is not None
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
        assert Watch(tmp_path).look() is None
