"""What it is worth that learned schedulers see limits as a wall: jobs killed, with it and without.

    python -m benchmarks.jobs_kills --seeds 30
    python -m benchmarks.jobs_kills --seeds 30 --source two-generations.toml

Jobs are killed at limits of the clock. A kill is avoidable if some node of the cluster, at the rate
that it has at its best, would have let the job end.
"""

from __future__ import annotations

import argparse

import numpy as np

from gangwise.jobs.choice import ByRate, Constants, SharedFactors
from gangwise.jobs.kernels import KILLED
from gangwise.jobs.metrics import Outcome
from gangwise.jobs.schedule import Options, Tables
from gangwise.jobs.scheduler import Composed, create_scheduler
from gangwise.jobs.simulation import simulate_jobs
from gangwise.study.answer import paired_times
from gangwise.study.replay_scenario import TWIN, ReplayInstance, ReplayScenario
from gangwise.study.statistics import estimate_text, mean_and_interval

CASES = [  # world, nodes, load, limits drawn up to so many times the run time (0: the world's own)
    *(("unlike", nodes, load, most) for nodes, load in ((8, 0.9), (16, 0.8)) for most in (0, 2)),
    ("drifting", 16, 0.9, 0),
    ("unlike", 64, 0.95, 0),
    ("like", 64, 0.8, 0),
]
BLIND = Constants(wall=0.0, loss=0.0)


def schedulers() -> dict[str, Composed]:
    """By name, new for each run."""
    found = {"label": create_scheduler("fcfs+easy+label")}
    for name, look in (("learned", np.inf), ("learned-moving", 600.0)):
        for when, constants in (("before", BLIND), ("now", Constants())):
            choice = ByRate(SharedFactors(constants), waits=True, look=look)
            found[f"{name}, {when}"] = Composed(backfilling="easy", choice=choice)
    return found


def doomed(played: ReplayInstance, options: Options) -> np.ndarray:
    """Jobs that reach their limit on every node that they may use [J]."""
    jobs, hidden = played.jobs, played.conditions
    tables = Tables.of(jobs, played.nodes, hidden, options)
    best = np.ones(len(played.nodes))
    for time, node, factor in hidden.factors:
        best[node] = factor if time == 0 else max(factor, best[node])
    may = tables.cluster.allowed[tables.cluster.shapes["constraint"][jobs.shape]]
    rate = np.where(may, (np.asarray(hidden.rates) * best)[jobs.type], 0.0).max(axis=1)
    noise = 1.0 if hidden.noise is None else hidden.noise
    return np.asarray(jobs.run > jobs.limit * (1 + 1e-12) * rate * noise)


def main() -> None:
    """Print a line for each scheduler in each case."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--source", default="", help="a cluster file in place of the cases")
    parser.add_argument("--load", type=float, default=0.0, help="with a cluster file")
    args = parser.parse_args()
    scenarios = [
        {"source": TWIN, "first": 1500, "world": w, "nodes": n, "load": load, "overestimate": most}
        for w, n, load, most in CASES
    ]
    for settings in [{"source": args.source, "load": args.load}] if args.source else scenarios:
        scenario = ReplayScenario(enforced=True, **settings)
        outcomes: dict[str, list[Outcome]] = {}
        avoidable: dict[str, list[int]] = {}
        for seed in range(args.seeds):
            played = scenario.draw(seed)
            saved = ~doomed(played, scenario.options)
            for name, made in schedulers().items():
                schedule = simulate_jobs(
                    played.jobs, played.nodes, made, played.conditions, scenario.options
                )
                outcome = Outcome.of(schedule, name, scenario.options.restart)
                outcomes.setdefault(name, []).append(outcome)
                avoidable.setdefault(name, []).append(
                    int((saved & (outcome.phase == KILLED)).sum())
                )
        print(settings)
        for name, each in outcomes.items():
            kills = np.array([o.endings["killed"][0] for o in each])
            hours = np.array([o.endings["killed"][1][0] / 3600 for o in each])
            line = (
                f"{name:22} {kills.mean():6.1f} killed, {np.mean(avoidable[name]):5.1f} avoidable"
            )
            wait = np.mean([o.summary()["waiting.mean"] for o in each]) / 60
            device = each[0].nodes.devices[0]
            print(f"{line}, {hours.mean():5.0f} {device}-hours, waits {wait:.1f} min", end="")
            others = ["label", name.replace("now", "before")]
            for over in [other for other in others if other != name]:
                ours, its = paired_times(each, outcomes[over])[0]["completion.mean"]
                found = mean_and_interval(100 * (ours / its - 1))
                print(f"; completion {estimate_text(found, 1, sign=True)} % over {over}", end="")
            before = outcomes[name.replace("now", "before")]
            if before is not each:
                less = [o.endings["killed"][0] for o in before]
                away = [o.endings["killed"][1][0] / 3600 for o in before]
                for what, change in (("killed", kills - less), (f"{device}-hours", hours - away)):
                    print(
                        f", {estimate_text(mean_and_interval(change), 0, sign=True)} {what}", end=""
                    )
            print()


if __name__ == "__main__":
    main()
