"""Real runs of OAR on Grid'5000, retold: the table of docs/jobs/oar.md.

python -m benchmarks.oar FOLDER, with the folder that holds the runs as ``.swf``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from gangwise.jobs import Jobs, Node, Nodes, simulate_jobs
from gangwise.jobs.schedule import Options

LATENCY = 1.45  # seconds
DRAWS = 20


def rows_of(file: Path) -> np.ndarray:
    """Job, submission, wait, run time, size and walltime of each row."""
    lines = (line.split() for line in file.read_text().splitlines() if not line.startswith(";"))
    rows = np.array([row[:9] for row in lines], dtype=float)[:, [0, 1, 2, 3, 4, 8]]
    return rows[np.argsort(rows[:, 1], kind="stable")]


def machines(file: Path) -> int:
    return next(int(x.split()[-1]) for x in file.read_text().splitlines() if "MaxProcs" in x)


def run_times(rows: np.ndarray) -> np.ndarray:
    """Seconds for which each job ran, with their fractions.

    What is recorded is the second of the end less that of the start, up to a second off either way.
    Over starts at any fraction of a second it is right on average. So jobs of one size and
    walltime whose records differ by a second at most are taken as runs of one program.
    """
    run, size, limit = rows.T[3:]
    alike = (size == size[:, None]) & (limit == limit[:, None]) & (abs(run - run[:, None]) <= 1)
    mean: np.ndarray = alike @ run / alike.sum(axis=1)
    return mean


def retold(rows: np.ndarray, many: int, scheduler: str) -> np.ndarray:
    """Waits under a scheduler [draws, J], in whole seconds as they are recorded.

    The logs do not say at which fraction of a second a job came, and a plan may turn on which of
    two ends came first: fractions are drawn.
    """
    _, submit, _, _, size, limit = rows.T
    took = run_times(rows)
    nodes = Nodes.of(Node(f"n{n}", {"cpu": 1.0}) for n in range(many))
    waits = np.empty((DRAWS, len(rows)))
    for d in range(DRAWS):
        rng = np.random.default_rng(d)
        came = submit + rng.random(len(rows))
        order = np.argsort(came, kind="stable")
        columns = came[order], took[order], size[order].astype(int)
        jobs = Jobs.of(*columns, limit=limit[order])
        played = simulate_jobs(jobs, nodes, scheduler, options=Options(latency=LATENCY))
        waits[d, order] = np.floor(played.start) - submit[order]
    return waits


def job_by_job(waits: np.ndarray, recorded: np.ndarray) -> float:
    return float(1 - np.abs(waits - recorded).sum() / recorded.sum())


def main(folder: Path) -> None:
    files = sorted(folder.glob("*.swf"))
    runs = {file.stem: (rows_of(file), machines(file)) for file in files}
    for name, (rows, many) in runs.items():
        recorded = rows[:, 2]
        # Other runs of the workload, on as many machines, disturbed where this one was.
        others = [
            job_by_job(other[np.argsort(other[:, 0]), 2], rows[np.argsort(rows[:, 0]), 2])
            for key, (other, as_many) in runs.items()
            if key[:5] == name[:5]
            and key != name
            and as_many == many
            and ("noise" in key) == ("noise" in name)
        ]
        cells = [f"{recorded.mean():.1f}"]
        for scheduler in ("oar", "fcfs+conservative+first-fit"):
            waits = retold(rows, many, scheduler)
            cells += [f"{waits.mean():.1f}"] * (scheduler == "oar")
            cells += [f"{100 * waits.mean() / recorded.mean():.1f}"]
            cells += [f"{np.mean([job_by_job(w, recorded) for w in waits]):.3f}"]
            cells += [f"{np.mean(others):.3f}" if others else "–"] * (scheduler == "oar")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
