"""Live against simulation, and against Slurm's own backfill: the same gangs, submitted again.

    python -m benchmarks.live_slurm --seeds 1 --jobs 200

A private Slurm of 16 nodes with 4 GPUs each and three generations. Ranks sleep until they have done
their work at the hidden rate of their node: label × affinity of (type, generation) × the node's own
factor; two nodes are stragglers from the start, one becomes one half-way. Each seed's submissions
are played live by

- slurm: its own backfill, nodes weighted fast first, as an administrator would,
- best-fit: gangwise, EASY, the fullest nodes that have room,
- label: gangwise, EASY, nodes by their labels, packed,
- learned: gangwise, EASY, learned rates,
- oracle: the same rules, shown the true rates,

and each gangwise scheduler once more by the simulation with the true rates. ``--who shadow`` is
``slurm`` once more, with a service of learned rates that watches: what its account says it would
have made of these jobs is held against what ``learned`` made of them. ``predicted`` leaves
out what Slurm needs to show, start and end a job; ``with latency`` draws all three for each job
from what was measured, eight times, for their scatter alone makes other schedules: ``sd`` says how
other. One task of a gang a node, as ``-N tasks --gres=gpu:n`` asks. Limits are whole minutes,
as Slurm's. Time is scaled: half a minute stands for ten, and so do the seconds among the learner's
constants. Ranks sleep, so a cluster takes a tenth of a core: several runs go side by side, ahead of
whatever else the machine does, under ``nice -n -20``.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tests.engines.slurm_cluster import SlurmCluster

from gangwise.engines import rank
from gangwise.engines.slurm import SlurmEngine
from gangwise.jobs import Composed, Conditions, Jobs, Node, Nodes, Options
from gangwise.jobs.choice import BestFit, ByRate, Constants, Labels, SharedFactors
from gangwise.jobs.model import Job
from gangwise.jobs.schedule import Tables
from gangwise.jobs.simulation import JobSimulation
from gangwise.service.account import account
from gangwise.service.loop import Service

GENERATIONS = {"new": 2.0, "mid": 1.0, "old": 0.5}
TYPES = ("train", "tune")
COUNTS = {"mid": 6, "new": 5, "old": 5}  # by name, the order in which Slurm lists its nodes
NODES = [f"{g}{i}" for g, count in COUNTS.items() for i in range(count)]
SCALE = 20.0
REPORTED = 5.0
"""Seconds between reports of a rank."""
OURS = "learned", "label", "best-fit", "oracle"


@dataclass
class World:
    """Submissions and hidden rates of a seed."""

    submit: np.ndarray
    work: np.ndarray
    tasks: np.ndarray
    gpus: np.ndarray
    type: np.ndarray
    limit: np.ndarray
    rates: np.ndarray  # [L, N]
    drift: tuple[float, int, float]

    @classmethod
    def drawn(cls, seed: int, jobs: int, load: float, mean: float) -> World:
        rng = np.random.default_rng(seed)
        work = np.clip(rng.lognormal(math.log(mean) - 0.32, 0.8, jobs), 4.0, 8 * mean)
        tasks = rng.choice([2, 2, 2, 3, 4], jobs)
        gpus = rng.choice([1, 1, 2, 4], jobs)
        kind = rng.integers(0, 2, jobs)
        labels = np.array([GENERATIONS[n[:3]] for n in NODES])
        affinity = {g: rng.normal(0, 0.2, 2).clip(-0.3, 0.3) for g in GENERATIONS}
        own = rng.normal(0, 0.05, len(NODES))
        own[rng.choice(11, 2, replace=False)] = math.log(0.5)  # new and mid: none past its limit
        log = np.array([[affinity[n[:3]][l] + own[i] for i, n in enumerate(NODES)] for l in (0, 1)])
        rates = labels * np.exp(log)
        total = float((work * tasks * gpus).sum())
        span = total / (4 * rates.mean(axis=0).sum()) / load
        submit = np.sort(rng.uniform(0, span, jobs))
        limit = 60.0 * np.ceil(work / 0.3 * rng.uniform(1.2, 1.8, jobs) / 60.0)
        drift = (span / 2, NODES.index(f"new{rng.integers(0, 5)}"), 0.45)
        return cls(submit, work, tasks, gpus, kind, limit, rates, drift)

    def write(self, folder: Path, factors: dict[int, float]) -> None:
        """Hidden rates, where ranks look them up."""
        for l, name in enumerate(TYPES):
            (folder / name).mkdir(parents=True, exist_ok=True)
            for n, node in enumerate(NODES):
                side = folder / name / f".{node}"
                side.write_text(repr(float(self.rates[l, n] * factors.get(n, 1.0))))
                os.replace(side, folder / name / node)


def scaled() -> Constants:
    """The learner's constants, with its seconds shortened as everything else is."""
    c = Constants()
    seconds = ("short", "patience", "memory", "saving", "toll")
    return c._replace(**{k: getattr(c, k) / SCALE for k in seconds})


class Steady(ByRate):
    """Running jobs are measured again, by the simulation as often as ranks report; none moves."""

    def moves(self, *args: Any) -> bool:
        """Never."""
        return False


class Oracle(ByRate):
    """Rates are known: shown by the simulation, or live by the world, which drifts."""

    world: World | None = None
    drifted: bool = False
    names: tuple[str, ...] = ()

    def resize(self, nodes: Nodes, job_types: tuple[str, ...]) -> None:
        """Bind to nodes and job types."""
        super().resize(nodes, job_types)
        self.state = Labels(scaled()).beliefs(nodes, job_types)
        self.names = nodes.names

    def believed(self, job: Job, now: float) -> tuple[np.ndarray, np.ndarray]:
        """True log rates [N], surely."""
        if self.world is None:
            return super().believed(job, now)
        log = np.log(self.world.rates[TYPES.index(job.job_type)])
        if self.drifted:
            log[self.world.drift[1]] += math.log(self.world.drift[2])
        return log[[NODES.index(name) for name in self.names]], np.zeros(len(self.names))


def scheduler(who: str, shown: World | None = None) -> Composed:
    """EASY over the fullest nodes, or nodes by label, by learned rates, or by true ones."""
    choice: Any
    if who == "best-fit":
        choice = BestFit()
    elif who == "label":
        choice = ByRate("labels")
    elif who == "learned":
        choice = Steady(SharedFactors(scaled()), waits=True, look=math.inf if shown else REPORTED)
    else:
        choice = Oracle(Labels(scaled()) if shown else "oracle", waits=True)
        choice.world = shown
    return Composed(backfilling="easy", choice=choice)


def live(world: World, who: str, folder: Path) -> dict[str, Any]:
    """Submit to a fresh cluster and wait for the end; completion times by the ranks' clocks."""
    reports, speeds = folder / "reports", folder / "speeds"
    reports.mkdir(parents=True)
    world.write(speeds, {})
    cluster = SlurmCluster(
        folder / "slurm",
        {n: (8, 4, (n[:3],)) for n in NODES},
        timeout=120,  # a busy machine is no dead node
        weights={n: {"new": 1, "mid": 2, "old": 3}[n[:3]] for n in NODES},
    )
    service = None
    try:
        if who != "slurm":
            shadow = who == "shadow"
            engine = SlurmEngine(
                "open" if shadow else "gangwise",
                reports=reports,
                labels={"model": tuple(GENERATIONS)},
                watch=shadow,
                poll=0.5,
                environment=cluster.environment,
            )
            service = Service(
                engine,
                folder / "state",
                scheduler("learned" if shadow else who, world),
                baseline=scheduler("label"),  # what the weights of the nodes tell Slurm
                act=not shadow,
                rates={f"model={g}": r for g, r in GENERATIONS.items()},
            )
        ids: list[str] = []
        at: list[float] = []
        start = time.time() + 1.0

        def users() -> None:
            drifted = False
            for j, offset in enumerate(world.submit):
                if not drifted and offset > world.drift[0]:
                    time.sleep(max(start + world.drift[0] - time.time(), 0.0))
                    world.write(speeds, {world.drift[1]: world.drift[2]})
                    if service is not None and who == "oracle":
                        service.ledger.scheduler.choice.drifted = True
                    drifted = True
                time.sleep(max(start + offset - time.time(), 0.0))
                at.append(time.time())
                ids.append(submit(cluster, world, j, who, reports, speeds))

        thread = threading.Thread(target=users)
        thread.start()
        ended: dict[str, float] = {}
        while thread.is_alive() or len(ended) < len(world.submit):
            if service is not None:
                service.tick(0.25)
            else:
                time.sleep(0.5)
            if time.time() - start > world.submit[-1] + max(1200.0, world.limit.max()):
                raise SystemExit(f"{who}: only {len(ended)} jobs have ended")
            ended |= ends(reports, {job: j for j, job in enumerate(ids)}, world, ended)
        submitted = dict(zip(ids, at))
        if who == "shadow":
            watcher, service = service, None
            return watched(watcher, folder / "state", ids, submitted, ended, start)
        begun = {job: begin(reports, job) for job in ids}
        return measured(service, ids, submitted, begun, ended, start)
    finally:
        if service is not None:
            service.close()
        cluster.stop()


def measured(
    service: Service | None,
    ids: list[str],
    at: dict[str, float],
    begun: dict[str, float],
    ended: dict[str, float],
    start: float,
) -> dict[str, Any]:
    """Completion times, and what the cluster needed to show, start and end a job."""
    found: dict[str, Any] = {
        "completion": np.array([ended[job] - at[job] for job in ids]),
        "submitted": np.array([at[job] - start for job in ids]),
    }
    if service is not None:
        rows = service.store.rows("SELECT job, decided FROM intents WHERE kind = 'place'")
        decided = {row["job"]: row["decided"] for row in rows}
        told = {r["job"]: r["ended"] for r in service.store.rows("SELECT * FROM history")}
        shown = np.array([decided[job] - at[job] for job in ids])
        found["seen"] = shown[shown < 1.0]  # of jobs that did not wait
        found["begin"] = np.array([begun[j] - decided[j] for j in ids])
        found["end"] = np.array([told[j] - ended[j] for j in ids if j in told])
        found["placements"] = len(rows)
        found["slow"] = [s._asdict() for s in service.ledger.slow_nodes()]
        found["health"] = service.health()["counts"]
    return found


def watched(
    service: Service,
    state: Path,
    ids: list[str],
    at: dict[str, float],
    ended: dict[str, float],
    start: float,
) -> dict[str, Any]:
    """Completion times, and the account of a service that watched."""
    patience = time.time() + 60
    while len(service.store.rows("SELECT job FROM history")) < len(ids) and time.time() < patience:
        service.tick(0.25)
    found = measured(None, ids, at, {}, ended, start)
    found["slow"] = [s._asdict() for s in service.ledger.slow_nodes()]
    service.close()
    return found | {"account": account(state, since=start)}


def submit(c: SlurmCluster, w: World, j: int, who: str, reports: Path, speeds: Path) -> str:
    kind = TYPES[w.type[j]]
    script = (
        "#!/bin/sh\n"
        f"export GANGWISE_REPORTS={reports} GANGWISE_SPEED_FILE={speeds}/{kind}/{{node}}\n"
        f"exec srun {sys.executable} -S {rank.__file__} --every {REPORTED:g} "
        f"--sleep {w.work[j]:.3f}\n"
    )
    options = [
        "-p",
        "open" if who in ("slurm", "shadow") else "gangwise",
        "-J",
        kind,
        "-o",
        "/dev/null",
    ]
    options += [f"-N{w.tasks[j]}", "--ntasks-per-node=1", f"--gres=gpu:{w.gpus[j]}"]
    options += ["-t", str(int(w.limit[j] // 60)), f"--comment=work={w.work[j]:.3f}"]
    return c.call("sbatch", "--parsable", *options, text=script).strip()


def ends(
    reports: Path, jobs: dict[str, int], w: World, known: dict[str, float]
) -> dict[str, float]:
    """Jobs all of whose ranks have reported their end."""
    times: dict[str, list[float]] = {}
    for path in reports.glob("[0-9]*.json"):
        job = path.name.split(".")[0]
        if job in known or job not in jobs:
            continue
        report = json.loads(path.read_text())
        if report["exit"] == 0:
            times.setdefault(job, []).append(report["time"])
    return {job: max(t) for job, t in times.items() if len(t) == w.tasks[jobs[job]]}


def begin(reports: Path, job: str) -> float:
    """When the last of its ranks began to work."""
    found = [json.loads(p.read_text()) for p in reports.glob(f"{job}.*.json")]
    return max(float(r["time"] - r["seconds"]) for r in found)


def simulated(world: World, who: str, late: Sequence[np.ndarray] = ()) -> np.ndarray:
    """Completion times of the same submissions in the simulation, with the true rates.

    Three times in ``late`` are added to every job: seconds of the clock until it is seen, from its
    placement until it works, and from the end of its work until its devices are free.
    """
    seen, begin, end = late or np.zeros((3, len(world.work)))
    nodes = Nodes.of(
        Node(n, {"gpu": 4, "cpu": 8}, {"model": n[:3]}, GENERATIONS[n[:3]]) for n in NODES
    )
    order = np.argsort(world.submit + seen, kind="stable")
    jobs = Jobs.of(
        (world.submit + seen)[order],
        world.work[order],
        world.tasks[order],
        {"gpu": world.gpus[order], "cpu": 1},
        limit=world.limit[order],
        per_node=1,
        type=[TYPES[l] for l in world.type[order]],
    )
    rates = world.rates[[TYPES.index(name) for name in jobs.types]]
    conditions = Conditions(rates, None, factors=[world.drift])
    options = Options(measured_after=REPORTED + float(np.median(begin)))
    playing = JobSimulation(Tables.of(jobs, nodes, conditions, options), scheduler(who))
    playing.jobs["overhead"] = (begin + end)[order]
    return playing.run().end - end[order] - world.submit[order]


def compare(live: Callable[..., dict[str, Any]], own: str, about: str | None) -> None:
    """Play seeds live by each contender, the cluster's ``own`` among them, and predict the rest."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--load", type=float, default=0.6)
    parser.add_argument("--mean", type=float, default=30.0, help="seconds of work of a job")
    parser.add_argument("--who", nargs="*", default=[own, *OURS])
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    rows = []
    for seed in range(args.first, args.first + args.seeds):
        world = World.drawn(seed, args.jobs, args.load, args.mean)
        row: dict[str, Any] = {"seed": seed, "jobs": args.jobs, "span": float(world.submit[-1])}
        for who in args.who:
            with tempfile.TemporaryDirectory() as name:
                os.environ["XDG_CONFIG_HOME"] = str(Path(name) / "config")
                found = live(world, who, Path(name) / "run")
            row[who] = {"live": float(found["completion"].mean())}
            row[who] |= {k: found[k].round(3).tolist() for k in ("completion", "submitted")}
            if who not in (own, "shadow"):
                rng = np.random.default_rng(seed)
                late = [found[k] for k in ("seen", "begin", "end")]
                drawn = [[rng.choice(one, args.jobs) for one in late] for _ in range(8)]
                means = [float(simulated(world, who, each).mean()) for each in drawn]
                row[who] |= {
                    "predicted": float(simulated(world, who).mean()),
                    "with latency": float(np.mean(means)),
                    "sd": float(np.std(means, ddof=1)),
                    "latency": [float(np.median(one)) for one in late],
                }
            row[who] |= {k: v for k, v in found.items() if not isinstance(v, np.ndarray)}
            brief = {k: v for k, v in row[who].items() if k not in ("completion", "submitted")}
            print(json.dumps({"seed": seed, who: brief}), flush=True)
            if args.out:
                args.out.write_text(json.dumps([*rows, row], indent=1))
        rows.append(row)


if __name__ == "__main__":
    compare(live, "slurm", __doc__)
