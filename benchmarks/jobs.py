"""Speed and memory of the simulation of jobs, each figure beside the others of the same run.

``python -m benchmarks.jobs [SCALE]``; SCALE 1 is a million jobs. CPU time of this process is
counted, so that a busy machine does not change the figures much. AccaSim is run, as a whole
process, where it is installed; CQSim is on no package index.
"""

from __future__ import annotations

import importlib.util
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from gangwise.jobs import Composed, Jobs, Nodes, Place, simulate_jobs
from gangwise.jobs.tenancy import AccountRule, PriorityWeights
from gangwise.sites.site import CapRule, Pool, Rules, Site


def made(J: int, load: float, gpus: int, seed: int = 0, tasks: bool = True) -> Jobs:
    """Jobs of 1 to 8 GPUs, a tenth of them gangs of 2 to 8 tasks, arriving evenly."""
    rng = np.random.default_rng(seed)
    run = np.minimum(np.round(rng.lognormal(6.5, 1.5, J)) + 1, 100_000)
    gpu = rng.choice([1, 2, 4, 8], J, p=[0.6, 0.2, 0.1, 0.1])
    gang = np.where(rng.random(J) < 0.1, rng.choice([2, 4, 8], J), 1) if tasks else 1
    span = float((run * gpu * gang).sum()) / (load * gpus)
    limit = np.ceil(run * rng.uniform(1, 5, J))
    return Jobs.of(np.sort(np.round(rng.uniform(0, span, J))), run, gang, {"gpu": gpu}, limit=limit)


def spent(work) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def combinations(J: int) -> None:
    print(f"\n{J:,} jobs on 64 nodes × 8 GPUs at load 0.8")
    jobs, nodes = made(J, 0.8, 512), Nodes.alike(64, {"gpu": 8})
    pool = made(J, 0.8, 512, tasks=False)
    few = made(10, 0.8, 512)
    for name in (
        "fcfs+none+first-fit",
        "fcfs+none+best-fit",
        "sjf+none+best-fit",
        "fcfs+easy+first-fit",
        "fcfs+easy+best-fit",
        "fcfs+easy+label",
        "sjf+easy+best-fit",
        "fcfs+none+learned",
        "fcfs+easy+learned",
    ):
        simulate_jobs(few, nodes, name)  # compiled before it is timed
        print(f"  {name:24}{J / spent(lambda n=name: simulate_jobs(jobs, nodes, n)):12,.0f} jobs/s")
    for name in ("fcfs+none+first-fit", "fcfs+easy+first-fit"):
        seconds = spent(lambda n=name: simulate_jobs(pool, Nodes.pool(512, "gpu"), n))
        print(f"  {name + ', a pool':32}{J / seconds:12,.0f} jobs/s")


def a_decision() -> None:
    """1,000 nodes, 10,000 waiting: the cluster is full, then things end one by one."""
    J = 20_000
    rng = np.random.default_rng(1)
    run = np.round(rng.lognormal(8, 1, J)) + 1
    jobs = Jobs.of(
        np.zeros(J),
        run,
        np.where(rng.random(J) < 0.1, 8, 1),
        {"gpu": rng.choice([1, 2, 4, 8], J)},
        limit=np.ceil(run * rng.uniform(1, 5, J)),
    )
    nodes = Nodes.alike(1_000, {"gpu": 8})
    print(f"\n1,000 nodes, {J:,} jobs at once, half of them waiting on average")
    for name in (
        "fcfs+easy+first-fit",
        "fcfs+easy+best-fit",
        "fcfs+easy+label",
        "wfp3+easy+best-fit",
    ):
        schedule = None

        def work(name=name):
            nonlocal schedule
            schedule = simulate_jobs(jobs, nodes, name)

        each = spent(work) / max(1, (schedule := schedule).counts["rounds"]) * 1e3
        print(f"  {name:24}{each:8.3f} ms a round")


LARGE = """
import resource, sys, time
from benchmarks.jobs import made
from gangwise.jobs import Nodes, simulate_jobs
nodes = Nodes.alike(10_000, {"gpu": 8})
simulate_jobs(made(10, 0.8, 80_000), nodes, "fcfs+none+first-fit")
jobs = made(int(sys.argv[1]), 0.8, 80_000)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
began = time.process_time()
simulate_jobs(jobs, nodes, "fcfs+none+first-fit")
seconds = time.process_time() - began
print(seconds, before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def large(J: int) -> None:
    print("\n10,000 nodes × 8 GPUs at load 0.8, fcfs+none+first-fit, each in a process of its own")
    peaks = []
    for some in (J // 10, J // 2, J):
        said = subprocess.run(
            [sys.executable, "-c", LARGE, str(some)], check=True, capture_output=True, text=True
        )
        seconds, before, peak = map(float, said.stdout.split())
        peaks.append((some, peak))
        print(
            f"  {some:12,} jobs {seconds:8.2f} s, {some / seconds:12,.0f} jobs/s, at most "
            f"{peak / 2**10:6,.0f} MiB, {before / 2**10:6,.0f} MiB when the jobs were made"
        )
    each = (peaks[-1][1] - peaks[0][1]) * 2**10 / (peaks[-1][0] - peaks[0][0])
    print(f"  {each:,.0f} bytes for each job more, making them included")


def seeds() -> None:
    nodes = Nodes.alike(64, {"gpu": 8})
    drawn = [made(7_000, 0.8, 512, seed) for seed in range(20)]
    simulate_jobs(drawn[0], nodes, "fcfs+easy+best-fit")  # compiled before it is timed
    seconds = spent(lambda: [simulate_jobs(j, nodes, "fcfs+easy+best-fit") for j in drawn])
    print(f"\n1,000 seeds of 7,000 jobs, fcfs+easy+best-fit: {50 * seconds:.1f} s on one core")


def at_a_site(J: int, per_user: int, wave: int = 0) -> tuple[dict[str, np.ndarray], Site]:
    """Jobs of 1 to 128 cores of 500 users in 40 accounts and two pools, as columns, and the rules.

    They come at a load of 0.8 of 1,000 nodes of 32 cores; or, of 32 cores at most, in waves, so
    many at once, at half of what all users together may hold.
    """
    rng = np.random.default_rng(0)
    run = np.minimum(np.round(rng.lognormal(6.5, 0.5 if wave else 1.5, J)) + 1, 100_000)
    cores = 2 ** rng.choice(8, J, p=[0.35, 0.15, 0.15, 0.1, 0.1, 0.1, 0.03, 0.02])
    cores = np.minimum(cores, 32 if wave else 128)
    span = float((run * cores).sum()) / (250 * per_user if wave else 25_600)
    submit = np.sort(np.round(rng.uniform(0, span, J)))
    if wave:
        submit = submit[np.arange(J) // wave * wave]
    user = rng.integers(0, 500, J)
    accounts = [
        AccountRule(name=f"a{i}", parent=f"a{i % 8}" if i > 7 else "", shares=1 + i % 3)
        for i in range(40)
    ]
    names = Nodes.alike(1_000, {"cpu": 32}).names
    rules = Rules(
        pool=[
            Pool(name="a", nodes=",".join(names)),
            Pool(name="b", nodes=",".join(names[:500]), tier=2),
        ],
        account=accounts,
        cap=[
            CapRule(scope="user", of="cpu", most=per_user),
            CapRule(scope="account", of="cpu", most=10 * per_user),
        ],
        priority=PriorityWeights(age=1_000, fair_share=10_000, job_size=100, pool=100),
    )
    columns = {
        "submit": submit,
        "run": run,
        "tasks": cores,
        "limit": np.ceil(run * rng.uniform(1, 5, J)),
        "user": np.array([f"u{i}" for i in range(500)])[user],
        "charged": np.array([each.name for each in accounts])[user % 40],
        "pool": np.array(["a", "b"])[rng.choice(2, J, p=[0.8, 0.2])],
    }
    return columns, Site(rules)


def limits(J: int) -> None:
    """Caps and multifactor, from columns to a schedule; then with long queues that caps hold."""
    nodes, name = Nodes.alike(1_000, {"cpu": 32}), "multifactor+easy+best-fit"
    print(f"\n1,000 nodes × 32 cores, 500 users, 40 accounts, two caps, two pools, {name}")
    simulate_jobs(Jobs.of(**at_a_site(9, 2_048)[0]), nodes, name, site=at_a_site(9, 2_048)[1])
    for count, per_user, wave in (
        (J, 2_048, 0),
        *((count, 48, wave) for wave in (J // 100, J // 20) for count in (J // 10, J)),
    ):
        columns, site = at_a_site(count, per_user, wave)
        schedule = None

        def work(columns=columns, site=site):
            nonlocal schedule
            schedule = simulate_jobs(Jobs.of(**columns), nodes, name, site=site)

        seconds = spent(work)
        waited = np.nansum(schedule.start - schedule.jobs.submit) / np.nanmax(schedule.start)
        print(f"  {count:9,} jobs, {waited:8,.0f} wait on average: {count / seconds:10,.0f} jobs/s")


def passes(J: int) -> None:
    """Slurm's main loop and backfilling, with hardly a queue and with long ones."""
    print("\nslurm, on nodes × 8 GPUs: jobs, nodes, waiting on average; how fast")
    simulate_jobs(made(9, 1.0, 96), Nodes.alike(12, {"gpu": 8}), "slurm")
    hardly = (12, 0.6, J), (100, 0.7, J), (500, 0.8, J)
    some = (12, 0.95, J // 10), (100, 0.95, J // 10), (12, 1.5, J // 100), (100, 1.5, J // 25)
    many = (500, 1.5, J // 10), (100, 1.5, J // 5), (500, 1.5, 2 * J // 5)
    for nodes, load, count in (*hardly, *some, *many):
        jobs, schedule = made(count, load, 8 * nodes), None

        def work(jobs=jobs, nodes=nodes):
            nonlocal schedule
            schedule = simulate_jobs(jobs, Nodes.alike(nodes, {"gpu": 8}), "slurm")

        seconds = spent(work)
        life = float(np.nanmax(schedule.end))
        waiting = float(np.nansum(schedule.start - jobs.submit)) / life
        print(
            f"  {count:9,} {nodes:4} {waiting:9,.1f}: {seconds:7.2f} s, {count / seconds:9,.0f} "
            f"jobs/s, {life / seconds:12,.0f} times as fast as life",
            flush=True,
        )


class Own(Composed):
    """A user's scheduler: the first that fits, in Python."""

    learns = False

    def place(self, queue, books, now):
        """Start in order while there is room."""
        free = int(books.free[0, 0])
        actions = []
        for job in queue:
            if job.tasks * job.shape.demand[0] > free:
                break
            free -= job.tasks * job.shape.demand[0]
            actions.append(Place(job.id, ((0, job.tasks),)))
        return actions


def own(J: int) -> None:
    jobs = made(J, 0.8, 512, tasks=False)
    schedule = None

    def work():
        nonlocal schedule
        schedule = simulate_jobs(jobs, Nodes.pool(512, "gpu"), Own())

    seconds = spent(work)
    print(
        f"\na scheduler in Python, one pool: {schedule.counts['rounds'] / seconds:,.0f} rounds/s, "
        f"{J / seconds:,.0f} jobs/s"
    )


WHOLE = """
import sys, numpy as np
from gangwise.jobs import Jobs, Nodes, simulate_jobs
log = np.loadtxt(sys.argv[1], usecols=(0, 1, 3, 4), dtype=np.int64)
jobs = Jobs.of(log[:, 1], log[:, 2], log[:, 3], id=log[:, 0])
print(simulate_jobs(jobs, Nodes.pool(int(sys.argv[2])), "fcfs+none+first-fit").start.sum())
"""


def whole_processes(J: int) -> None:
    """Processor time of whole processes: interpreter, imports, reading, playing, all."""
    if importlib.util.find_spec("accasim") is None:
        print("\nAccaSim is not installed: pip install accasim")
        return
    jobs = made(J, 0.8, 512, tasks=False)
    with tempfile.TemporaryDirectory() as folder:

        def log(count: int) -> str:
            path = Path(folder, f"{count}.swf")
            rows = zip(jobs.submit[:count] + 1, jobs.run[:count], jobs.shape[:count])
            path.write_text(
                "".join(
                    f"{i + 1} {int(s)} -1 {int(r)} {jobs.shapes[c].demand[0] // 1000} "
                    "-1 -1 -1 -1 -1 1 1 1 1 1 1 -1 -1\n"
                    for i, (s, r, c) in enumerate(rows)
                )
            )
            return str(path)

        def rate(count: int, *command: str) -> float:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, *command], check=True, capture_output=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            return count / spent

        path = log(J)
        rate(J, "-c", WHOLE, path, "512")
        ours = rate(J, "-c", WHOLE, path, "512")
        print(f"\nwhole processes, FCFS on a pool of 512: {ours:,.0f} jobs/s of {J:,}")
        program = str(Path(__file__).parents[1] / "tests/reference/accasim_fcfs.py")
        for count in (J // 200, J // 50, J // 20):
            other = rate(count, program, log(count), "512")
            print(
                f"  AccaSim {other:,.0f} jobs/s of the first {count:,}: {ours / other:,.0f} times"
            )


def conservative() -> None:
    """Conservative backfilling on logs of the Parallel Workloads Archive, where they are."""
    folder = Path(os.environ.get("GANGWISE_TRACES", ""), "swf")
    for name, processors in (("NASA-iPSC-1993-3.1-cln", 128), ("lublin_256", 256)):
        if not (path := folder / f"{name}.swf.gz").exists():
            continue
        log = np.loadtxt(path, comments=";", usecols=(0, 1, 3, 4), dtype=np.float64)
        log = log[(log[:, 2] >= 0) & (log[:, 3] >= 1)]
        over = np.random.default_rng(0).uniform(1, 3, len(log))
        print(f"\n{name}, {len(log):,} jobs; processor seconds")
        for label, limit in (("exact limits", log[:, 2]), ("limits up to 3 ×", log[:, 2] * over)):
            jobs = Jobs.of(log[:, 1], log[:, 2], log[:, 3], limit=np.ceil(limit))
            for nodes in (Nodes.pool(processors), Nodes.alike(processors // 4, {"cpu": 4})):
                took = [
                    spent(lambda q=q, j=jobs, n=nodes: simulate_jobs(j, n, f"fcfs+{q}+first-fit"))
                    for q in ("easy", "conservative")
                ]
                print(
                    f"  {label:18}{len(nodes):3} nodes: EASY {took[0]:6.2f}, "
                    f"conservative {took[1]:6.2f}"
                )


if __name__ == "__main__":
    scale = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    million = int(1_000_000 * scale)
    combinations(million)
    a_decision()
    large(million)
    seeds()
    limits(million)
    passes(million // 10)
    own(million // 20)
    conservative()
    whole_processes(million)
