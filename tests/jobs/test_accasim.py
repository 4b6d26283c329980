"""First come, first served on one pool: the starts of another simulator, job for job.

AccaSim is a witness for this alone. It opens no second round for a job of run time 0, so run
times here are at least a second, and under EASY it keeps no reservations at all.
"""

from __future__ import annotations

import gzip
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gangwise.jobs import Jobs, Nodes, simulate_jobs
from tests.reference import accasim_fcfs

LOGS = {"NASA-iPSC-1993-3.1-cln.swf.gz": 128, "lublin_256.swf.gz": 256}
JOBS = {
    "NASA-iPSC-1993-3.1-cln.swf.gz": 10_000,
    "lublin_256.swf.gz": 1_500,
}  # its queue makes it slow


def swf(path: Path) -> np.ndarray:
    """Id, submission, run time and processors of the jobs of a log that can be played."""
    with gzip.open(path, "rt") as lines:
        rows = [line.split() for line in lines if line.strip() and not line.startswith(";")]
    log = np.array([[int(float(row[i])) for i in (0, 1, 3, 4)] for row in rows])
    log = log[(log[:, 2] >= 0) & (log[:, 3] >= 1)]
    log[:, 2] = np.maximum(log[:, 2], 1)
    log[:, 1] += 1  # AccaSim takes a submission at 0 for none
    return log


@pytest.mark.parametrize("name", LOGS)
def test_first_come_first_served_starts_as_in_accasim(name, traces, tmp_path):
    if importlib.util.find_spec("accasim") is None:
        pytest.skip("accasim is not installed: pip install accasim")
    log = swf(traces / "swf" / name)[: JOBS[name]]
    text = "".join(f"{i} {s} -1 {r} {p} -1 -1 {p} {r} -1 1 1 1 1 1 1 -1 -1\n" for i, s, r, p in log)
    written = tmp_path / "log.swf"
    written.write_text(text)
    other = subprocess.run(
        [sys.executable, accasim_fcfs.__file__, str(written), str(LOGS[name])],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ,
    )
    rows = np.array([line.split() for line in other.stdout.splitlines()], dtype=np.int64)
    assert len(rows) == len(log)
    started = dict(zip(rows[:, 0].tolist(), rows[:, 1].tolist()))
    jobs = Jobs.of(log[:, 1], log[:, 2], log[:, 3], id=log[:, 0])
    schedule = simulate_jobs(jobs, Nodes.pool(LOGS[name]), "fcfs+none+first-fit")
    assert schedule.start.tolist() == [started[i] for i in jobs.id.tolist()]
