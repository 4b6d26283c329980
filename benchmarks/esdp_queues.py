"""Learners of ESDP beside rivals made for queues: regret, and jobs waiting where jobs wait.

    python -m benchmarks.esdp_queues --out FILE [--seeds 10] [--first 100] [--slots 5000]
        [--policies esdp,maxweight] [--loads 0.7,0.9]

*Regret* is pseudo-regret (6) in ESDP's own world, ``esdp-default-v1``: a job that is not served in
its slot is gone. *Waiting* is the same instances with a queue of work for each job type: a job
that comes brings w units of utility to be earned, a channel that is on takes Z̃ off its type's
queue, and channels of types whose queue is empty may not be on. w is such that ``load`` of what
the capacities can serve at most is asked for: load · max { w : Σ_e∈l ṽ_e x_e ≥ w ρ_l for all l,
A x ≤ c, 0 ≤ x ≤ 1 }, a linear programme. Policies are told how many jobs of each type wait where
they are else told how many came. Shown are jobs waiting on average over the second half of the
slots, and in the last slot, with 95 % intervals over seeds; ``known`` is MaxWeight with the means.

Lines are written as they are found; what the file has already is not done again.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from scipy.optimize import linprog

from gangwise import create_policy, create_scenario, simulate
from gangwise.papers.estimators import Oracle
from gangwise.papers.fluctuating_speeds.environment import Feedback, Observation, pseudo_regret
from gangwise.papers.fluctuating_speeds.policies import MaxWeight
from gangwise.study.statistics import mean_and_interval

POLICIES = (
    "maxweight",
    "maxweight:T=1024,coefficient=0.25",
    "maxweight:estimator=ucb1,coefficient=0.1",
    "maxweight:estimator=thompson",
    "esdp",
    "esdp:kappa=0.25",
    "cucb:coefficient=0.1",
    "thompson-beta",
    "hauf-channel",
    "hauf",
    "lwtf",
    "lcf",
)


def largest_work(problem, means, rho):
    """The most utility that every job may ask for, if all are to be served in the long run."""
    E, L = means.size, problem.L
    serve = np.zeros((L, E + 1))
    serve[problem.channels.job_type, np.arange(E)] = -means
    serve[:, E] = rho
    use = np.column_stack([problem.requests.T, np.zeros(problem.requests.shape[1])])
    found = linprog(
        np.append(np.zeros(E), -1.0),
        np.vstack([serve, use]),
        np.concatenate([np.zeros(L), problem.cluster.capacity]),
        bounds=[(0, 1)] * E + [(0, None)],
    )
    return -found.fun


def policy_of(name, instance):
    """A policy by name; ``known`` knows the means."""
    if name != "known":
        return create_policy(name)
    return MaxWeight(estimator=Oracle(instance.means(0)))


def waiting(instance, name, slots, seed, load):
    """Jobs waiting in every slot."""
    problem, policy = instance.problem, policy_of(name, instance)
    arrivals, utilities = instance.history(slots, seed)
    w = load * largest_work(problem, instance.means(0), instance.workload.probability)
    policy.start(problem, np.random.default_rng(seed))
    queue, found = np.zeros(problem.L), np.empty(slots)
    for t in range(slots):
        queue += w * arrivals[t]
        jobs = np.ceil(queue / w - 1e-9).astype(np.int64)
        found[t] = jobs.sum()
        on = np.flatnonzero(problem.check(jobs, policy.decide(Observation(t, jobs))))
        policy.learn((Feedback(t, on, utilities[t, on]),))
        served = np.bincount(problem.channels.job_type[on], utilities[t, on], problem.L)
        queue = np.maximum(queue - served, 0.0)
    return found


def one(name, slots, seed, loads, fraction):
    """What a policy does with a seed, in both worlds."""
    instance = create_scenario("esdp-default-v1", fraction=fraction).instance(seed)
    found = {"policy": name, "seed": seed, "slots": slots, "fraction": fraction}
    if name != "known":
        found["regret"] = float(
            pseudo_regret(simulate(instance, create_policy(name), slots, seed))[-1]
        )
    for load in loads:
        jobs = waiting(instance, name, slots, seed, load)
        found[f"mean {load:g}"] = float(jobs[slots // 2 :].mean())
        found[f"last {load:g}"] = float(jobs[-1])
    return found


def table(lines, loads):
    """A row for each policy."""
    print("| policy | regret | " + " | ".join(f"waiting at {x:g}, last slot" for x in loads) + " |")
    print("|---" * (2 + len(loads)) + "|")
    for name in dict.fromkeys(line["policy"] for line in lines):
        of = [line for line in lines if line["policy"] == name]
        cells = []
        for keys in [("regret",), *((f"mean {x:g}", f"last {x:g}") for x in loads)]:
            each = [mean_and_interval([x[k] for x in of]) for k in keys if all(k in x for x in of)]
            cells.append(
                ", ".join(
                    f"{e.mean:.1f}" + ("" if e.half is None or i else f" ± {e.half:.1f}")
                    for i, e in enumerate(each)
                )
            )
        print(f"| `{name}` | " + " | ".join(cells) + " |")


def main():
    """Find what is missing, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=100)
    parser.add_argument("--slots", type=int, default=5000)
    parser.add_argument("--fraction", type=float, default=0.5)
    parser.add_argument("--loads", default="0.7,0.9")
    parser.add_argument("--policies", help="names, with ; between them")
    given = parser.parse_args()
    loads = [float(x) for x in given.loads.split(",")]
    names = given.policies.split(";") if given.policies else ["known", *POLICIES]
    lines = []
    if given.out.exists():
        lines = [json.loads(line) for line in given.out.read_text().splitlines()]
    known = {(x["policy"], x["seed"]) for x in lines}
    for seed in range(given.first, given.first + given.seeds):
        for name in names:
            if (name, seed) not in known:
                lines.append(one(name, given.slots, seed, loads, given.fraction))
                with given.out.open("a") as file:
                    file.write(json.dumps(lines[-1]) + "\n")
    table(lines, loads)


if __name__ == "__main__":
    main()
