"""What a replay costs the user: whole processes, beside the simulation alone, in one run.

``python -m benchmarks.user_path [JOBS …]``; by default 100,000 and a million. Processor seconds and
peak memory of each command, its children included. The log is drawn: jobs of 1 to 64 processors on
a pool of 512 at a load of 0.8.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

FEW, MANY = 100_000, 1_000_000
POLICIES = ("fcfs+easy+first-fit", "sjf+easy+best-fit")
NEEDED = """
import gangwise.cli, gangwise.study.replay
import gangwise.report.jobs
"""
ALONE = """
import sys, time
from gangwise.jobs import Jobs, Nodes, simulate_jobs
from gangwise.logs.jobs import open_jobs
few = Jobs.of([0.0], [1.0], [1])
simulate_jobs(few, Nodes.pool(2), sys.argv[2], engine="compiled")
log = open_jobs(sys.argv[1], rows=False)
began = time.process_time()
simulate_jobs(log.jobs, log.nodes, sys.argv[2], engine="compiled")
print(time.process_time() - began)
"""


def write_log(path: Path, J: int) -> None:
    """A log in the Standard Workload Format."""
    rng = np.random.default_rng(0)
    run = np.minimum(np.round(rng.lognormal(6.5, 1.5, J)) + 1, 100_000).astype(int)
    size = rng.choice([1, 2, 4, 8, 16, 32, 64], J, p=[0.4, 0.2, 0.15, 0.1, 0.08, 0.05, 0.02])
    span = float((run * size).sum()) / (0.8 * 512)
    submit = np.sort(np.round(rng.uniform(0, span, J))).astype(int)
    limit = np.ceil(run * rng.uniform(1, 5, J)).astype(int)
    user = rng.integers(1, 200, J)
    columns = (range(1, J + 1), submit, run, size, size, limit, user)
    rows = (
        f"{i} {s} -1 {r} {p} -1 -1 {q} {t} -1 1 {u} 1 1 1 -1 -1 -1\n"
        for i, s, r, p, q, t, u in zip(*(list(map(int, column)) for column in columns))
    )
    path.write_text(f"; Version: 2.2\n; MaxProcs: 512\n{''.join(rows)}", encoding="utf-8")


def cost(command: list[str]) -> tuple[float, float]:
    """Processor seconds and MiB at most of a command and its children."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} ended with {status}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def told(what: str, found: tuple[float, float]) -> None:
    """One row of the table."""
    print(f"| {what} | {found[0]:.2f} | {found[1]:,.0f} |", flush=True)


def main(sizes: list[int]) -> None:
    """Print a table; the first command of each kind fills the caches and is not counted."""
    python = [sys.executable]
    replay = [*python, "-m", "gangwise", "replay"]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log.swf")
        write_log(log, 1_000)
        cost([*replay, str(log), "--policies", ",".join(POLICIES)])
        cost([*replay, "--out", str(Path(folder, "first"))])
        print("| | CPU s | MiB |\n|---|---|---|")
        told("imports that `replay` needs", cost([*python, "-c", NEEDED]))
        told("the README's first command", cost([*replay, "--out", str(Path(folder, "again"))]))
        for J in sizes:
            write_log(log, J)
            for name in POLICIES:
                alone = subprocess.run(
                    [*python, "-c", ALONE, str(log), name],
                    check=True,
                    capture_output=True,
                    text=True,
                )
                print(
                    f"| {J:,} jobs, `{name}`, the simulation alone | {float(alone.stdout):.2f} | |"
                )
            for many in (1, 2):
                names = ",".join(POLICIES[:many])
                for workers in ("1", "2")[:many]:
                    command = [*replay, str(log), "--policies", names, "--jobs", workers]
                    kind = (
                        f"{J:,} jobs, {many} polic{'y' if many == 1 else 'ies'}, --jobs {workers}"
                    )
                    told(f"{kind}, --no-bound", cost([*command, "--no-bound"]))
            out = ["--out", str(Path(folder, f"out-{J}"))]
            one = [*replay, str(log), "--policies", POLICIES[0], "--jobs", "1"]
            told(f"{J:,} jobs, 1 policy, --no-bound, with --out", cost([*one, "--no-bound", *out]))
            told(f"{J:,} jobs, 1 policy, with the bound as by default", cost(one))


if __name__ == "__main__":
    main([int(text) for text in sys.argv[1:]] or [FEW, MANY])
