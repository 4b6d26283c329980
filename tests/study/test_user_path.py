"""What a replay loads, and that ways to save time and memory change nothing that is stored."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gangwise.logs.text import Commented
from gangwise.study.runs import NamedSource, Rows, Store

LOADED = """
import sys
import gangwise.cli, gangwise.study.replay
import gangwise.report.jobs
print(*sys.modules)
"""


def test_a_replay_that_prints_tables_loads_no_figures_and_no_solvers() -> None:
    told = subprocess.run(
        [sys.executable, "-c", LOADED], capture_output=True, check=True, text=True
    )
    heavy = {"matplotlib", "joblib", "asyncio", "scipy.special", "scipy.sparse", "scipy.optimize"}
    assert not heavy & set(told.stdout.split())


WITHOUT_SCIPY = """
import sys
sys.modules["scipy"] = None
from gangwise.study.replay_scenario import ReplayScenario
jobs, nodes, _ = ReplayScenario(source=sys.argv[1], site="slurm:" + sys.argv[2]).draw(0)
print(len(jobs), jobs.after.size, len(nodes))
"""


def test_a_slurm_site_and_jobs_that_wait_for_others_are_read_without_scipy(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text(
        "SchedulerType=sched/backfill\nTopologyPlugin=topology/tree\n"
        "NodeName=a[1-2] CPUs=4\nPartitionName=p Nodes=ALL\n"
    )
    (tmp_path / "topology.conf").write_text("SwitchName=s1 Nodes=a[1-2]\n")
    heading = "JobID^Partition^State^Submit^Start^End^Timelimit^ReqTRES^AllocTRES^NNodes^NodeList"
    row = "^p^COMPLETED^2026-01-05T00:00:0{0}^2026-01-05T00:0{0}:10^2026-01-05T00:0{0}:40^00:10:00"
    row += "^cpu=1,node=1^cpu=1,node=1^1^a1^sbatch{1}"
    lines = [heading + "^SubmitLine", "1" + row.format(1, ""), "2" + row.format(2, " -d afterok:1")]
    (log := tmp_path / "sacct.txt").write_text("\n".join(lines) + "\n")
    told = subprocess.run(
        [sys.executable, "-c", WITHOUT_SCIPY, str(log), str(tmp_path)],
        capture_output=True,
        text=True,
    )
    assert told.stdout.split() == ["2", "1", "2"], told.stderr


def test_a_file_whose_fields_blanks_part_gives_words_joined_by_one_blank(tmp_path: Path) -> None:
    rng, file = random.Random(0), tmp_path / "words"
    texts = ["".join(rng.choice("ab1, \t\v\f  ") for _ in range(30)) for _ in range(2_000)]
    file.write_text("\n".join(["; head", *texts, "a ;b", "; between", "c"]))
    rows = [" ".join(text.split()) for text in texts if text.strip()]
    read = b"".join(block.data for block in Commented(file, b";", squeeze=True))
    assert read.decode().splitlines() == [*rows, "a b", "c"]


def test_the_seal_of_rows_is_that_of_the_file_that_holds_them(tmp_path: Path) -> None:
    rows, identity = Rows(), {"scenario": "made", "settings": {"a": 1}, "seed": 3, "slots": 1}
    rows.add("mean", 2.0)
    rows.add("none", np.zeros(0), np.zeros(0))
    rows.add("job.end", np.array([1.0, np.nan, 3.0]), np.arange(3))
    rows.add("seconds", 0.1)
    Store(tmp_path).write("0" * 16, identity, rows)
    other = Store(tmp_path)  # another process: it believes nothing
    assert other.about("0" * 16)["settings"] == {"a": 1}
    assert other.finished("0" * 16)
    found = other.rows("0" * 16)
    assert list(found) == ["mean", "job.end", "seconds"]
    np.testing.assert_array_equal(found["job.end"][1], [1.0, np.nan, 3.0])
    path = other.path("0" * 16)
    path.write_bytes(path.read_bytes()[:-20])
    assert not other.finished("0" * 16)


def test_a_log_that_changed_is_read_again_in_the_same_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = "{} 0 0 {} 2 -1 -1 2 60 -1 1 1 1 1 1 1 -1 -1\n"

    def runs_in(folder: Path, seconds: int) -> list[float]:
        folder.mkdir(exist_ok=True)
        jobs = job.format(1, seconds) + job.format(2, seconds)
        (folder / "jobs.swf").write_text(f"; MaxProcs: 4\n{jobs}")
        monkeypatch.chdir(folder)
        source = NamedSource.of("replay", False, {"source": "jobs.swf"})
        return source.scenario().draw(0).jobs.run.tolist()

    assert runs_in(tmp_path / "a", 30) == [30.0, 30.0]
    assert runs_in(tmp_path / "b", 40) == [40.0, 40.0]  # the same name, in another folder
    assert runs_in(tmp_path / "b", 5) == [5.0, 5.0]
