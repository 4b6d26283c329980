"""A look at a cluster of local processes costs what has changed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gangwise.engines import engine as engines
from gangwise.engines import launch
from gangwise.engines.engine import Placed
from gangwise.engines.local import LocalEngine
from tests.waiting import until


def test_jobs_that_wait_are_read_once_and_changes_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    LocalEngine.create(tmp_path, [{"name": "n0", "devices": {"cpu": 4}}])
    names = [LocalEngine.submit(tmp_path, ["true"], tasks=i) for i in (1, 2, 3, 4)]
    for name in names[:3]:  # the last is as new as it is
        for path in (tmp_path / "jobs" / name / "job.json", tmp_path / "jobs" / name):
            os.utime(path, (1e9, 1e9))
    engine = LocalEngine(tmp_path)
    read: list[str] = []
    real = engines.read_json

    def counted(path: Path, most: int) -> object:
        read.append(path.parent.name)
        return real(path, most)

    monkeypatch.setattr(engines, "read_json", counted)
    tasks = [row.job.tasks for row in engine.jobs()]
    read.clear()
    assert [row.job.tasks for row in engine.jobs()] == tasks == [1, 2, 3, 4]
    assert set(read) == {names[3]}, "it may have changed within the second"
    engine.cancel(names[0])
    asked = tmp_path / "jobs" / names[1] / "job.json"
    asked.write_text(json.dumps({**json.loads(asked.read_text()), "tasks": 4}))  # in its place
    engine.place(names[2], 1, [Placed("n0", 3)])
    phases = {row.job.id: (row.phase, row.job.tasks) for row in engine.jobs()}
    assert phases[names[0]][0] == "cancelled"
    assert phases[names[1]] == ("pending", 4)
    assert phases[names[2]][0] != "pending"
    engine.cancel(names[2])


def test_ids_never_return(tmp_path: Path) -> None:
    """Not when ended jobs leave the table, nor when their folders are removed; and by two users."""
    LocalEngine.create(tmp_path, [{"name": "n0", "devices": {"cpu": 4}}])
    engine, given = LocalEngine(tmp_path, keep=0.0), []
    for _ in range(3):
        given.append(LocalEngine.submit(tmp_path, ["true"]))
        engine.cancel(given[-1])
        assert engine.jobs() == []
    assert os.listdir(tmp_path / "jobs") == []
    shutil.rmtree(tmp_path / "ended")
    (tmp_path / "jobs" / "7").mkdir()  # by hand
    for lost in (False, True):
        given.append(LocalEngine.submit(tmp_path, ["true"]))
        if lost:
            (tmp_path / "last-id").write_text("\0\0")
    with ThreadPoolExecutor(8) as users:
        both = users.map(lambda _: LocalEngine.submit(tmp_path, ["true"]), range(40))
        given += list(both)
    assert given[:5] == ["1", "2", "3", "8", "9"]
    assert len(set(given)) == len(given)


def test_ranks_of_a_job_that_was_cancelled_half_way_are_ended(tmp_path: Path) -> None:
    """The service was killed between the word that a job is cancelled and the end of its ranks."""
    LocalEngine.create(tmp_path, [{"name": "n0", "devices": {"cpu": 4}}])
    job = LocalEngine.submit(tmp_path, ["sleep", "600"])
    engine = LocalEngine(tmp_path)
    engine.place(job, 1, [Placed("n0", 1)])
    until(lambda: engine.jobs()[0].phase == "running", "running")
    started = json.loads((tmp_path / "jobs" / job / "1" / "started.json").read_text())
    launch.write_json(tmp_path / "jobs" / job / "cancelled", {"time": time.time()})
    assert [row.phase for row in LocalEngine(tmp_path).jobs()] == ["cancelled"]
    # It is killed; until the kernel has ended it, it may still be seen.
    until(lambda: not launch.birth(started["ranks"][0]), "ended")


def test_engines_know_nothing_of_the_service() -> None:
    """The service knows the engines; otherwise neither could be read without the other."""
    code = "import sys, gangwise.engines.local; print([m for m in sys.modules if '.service' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
