"""How well run times are predicted, offline: in the recorded order, from jobs that have ended.

    python -m benchmarks.run_times LOG ... [--svg docs/jobs/run-times.svg]

A job is predicted when it was submitted and learned when it ended (submission and run time, where
the log knows no waits). Rivals: the request; the user's last two (Tsafrir et al. 2007); log-normal
means shrunk from user to user and request to user, request, size and name; the online regression of
Gaussier et al. (2015), normalised gradient on their asymmetric loss; boosted quantiles of
scikit-learn, refitted every 1,500 jobs on the last 12,000, where it is installed. Errors are of
ln seconds; pinball is the mean over the quantiles 10, 25, 50, 75 and 90 %, and half the absolute
error for whoever says a single number. Nothing here was fitted to KTH-SP2.
"""

from __future__ import annotations

import argparse
import math
import time
from collections import defaultdict
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gangwise.core.arrays import Floats, Ints
from gangwise.core.jit import kernel
from gangwise.jobs.metrics import held_devices
from gangwise.jobs.model import Jobs
from gangwise.jobs.run_times import RunTimes, ended, expect, quantile, state_of
from gangwise.logs.jobs import open_jobs

LEVELS = np.array([0.1, 0.25, 0.5, 0.75, 0.9])
PLOTTED = np.linspace(0.05, 0.95, 19)


class Log(NamedTuple):
    name: str
    jobs: Jobs
    size: Floats  # [J] devices
    request: Floats  # [J] seconds, NaN for none
    length: Floats  # [J] ln seconds
    when: Floats  # [2 J] events in order
    submits: Ints  # [2 J] 1 where a job is submitted, 0 where it ends
    job: Ints  # [2 J]
    seen: Ints  # [J] jobs of the user that had ended by its submission


def read(path: Path) -> Log:
    log = open_jobs(path)
    jobs, J = log.jobs, len(log.jobs)
    start = np.where(np.isfinite(jobs.recorded_start), jobs.recorded_start, jobs.submit)
    when = np.concatenate([start + jobs.run, jobs.submit])
    submits, job = np.repeat([0, 1], J), np.tile(np.arange(J), 2)
    order = np.lexsort((job, submits, when))
    held = held_devices(jobs, log.nodes)
    size = held[:, int((held > 0).sum(axis=0).argmax())]
    request = np.where(jobs.requested, jobs.limit, np.nan)
    seen, of_user = np.zeros(J, np.int64), np.zeros(len(jobs.users), np.int64)
    for e in order:
        if submits[e]:
            seen[job[e]] = of_user[jobs.user[job[e]]]
        else:
            of_user[jobs.user[job[e]]] += 1
    length = np.log(np.maximum(jobs.run, 1.0))
    events = when[order], submits[order], job[order]
    return Log(path.name.split(".")[0], jobs, size, request, length, *events, seen)


def by_events(log: Log, say: Callable[[int], Any], learn: Callable[[int, float], None]) -> Floats:
    """What ``say`` answers at each submission [J, levels or 1]."""
    said = [None] * len(log.jobs)
    for now, submits, j in zip(log.when.tolist(), log.submits, log.job.tolist(), strict=True):
        if submits:
            said[j] = say(j)
        else:
            learn(j, now)
    return np.array(said, dtype=float).reshape(len(log.jobs), -1)


def requests(log: Log) -> Floats:
    return np.log(np.maximum(log.request, 1.0))[:, None]


def last_two(log: Log) -> Floats:
    last: dict[int, list[float]] = defaultdict(list)
    user, run = log.jobs.user, log.jobs.run

    def say(j: int) -> float:
        own, most = last[user[j]][-2:], log.request[j]
        if len(own) < 2:
            return math.log(max(3600.0 if math.isnan(most) else most, 1.0))
        return math.log(max(min(sum(own) / 2, math.inf if math.isnan(most) else most), 1.0))

    return by_events(log, say, lambda j, _: last[user[j]].append(float(run[j])))


def shrunk_means(log: Log) -> Floats:
    """Means of ln seconds, each shrunk to the one above with the weight of 2 jobs; forgets."""
    sums: dict[Any, Floats] = defaultdict(lambda: np.zeros(3))
    spread = np.array([4.0, 1.0])
    z = np.array([-1.2816, -0.6745, 0.0, 0.6745, 1.2816])

    def chain(j: int) -> list[Any]:
        u, name = int(log.jobs.user[j]), int(log.jobs.type[j])
        of = float(log.request[j]) if not math.isnan(log.request[j]) else 0.0
        return [0, ("r", of), u, (u, of), (u, of, float(log.size[j]), name)]

    def belief(j: int) -> tuple[float, float]:
        mean, square = 6.0, 40.0
        for key in chain(j):
            n, total, squares = sums[key]
            mean, square = (total + 2 * mean) / (n + 2), (squares + 2 * square) / (n + 2)
        return mean, max(square - mean * mean, 0.01)

    def say(j: int) -> Floats:
        mean, variance = belief(j)
        at: Floats = mean + z * math.sqrt(variance * spread[0] / spread[1])
        return np.minimum(at, math.inf if math.isnan(log.request[j]) else requests(log)[j, 0])

    def learn(j: int, _: float) -> None:
        y = log.length[j]
        mean, variance = belief(j)
        spread[:] = 0.999 * spread + 0.001 * np.array([(y - mean) ** 2 / variance, 1.0])
        for level, key in enumerate(chain(j)):
            sums[key] = sums[key] * (0.999 if level < 2 else 0.9) + np.array([1.0, y, y * y])

    spread[:] = 1.0
    cut = requests(log)[:, 0]
    return (
        np.fmin(by_events(log, say, learn), cut[:, None])
        if np.isfinite(cut).any()
        else (by_events(log, say, learn))
    )


def regression(log: Log, rate: float = 0.5) -> Floats:
    """Normalised adaptive gradient on squared over-, linear underestimates (E-loss), per job."""
    own: dict[int, list[float]] = defaultdict(list)
    user, d = log.jobs.user, 12
    w, largest, squares = np.zeros(d), np.full(d, 1e-9), np.full(d, 1e-9)
    given = np.zeros((len(log.jobs), d))
    hours = (log.jobs.submit % 86400.0) / 86400.0 * 2 * math.pi

    def say(j: int) -> float:
        last = own[user[j]][-3:][::-1]
        r = log.request[j]
        known = [0.0 if math.isnan(r) else r, *last, *[0.0] * (3 - len(last))]
        mean = float(np.mean(own[user[j]][-20:])) if last else 0.0
        rest = [mean, float(np.mean(last[:2])) if last else 0.0, float(not last), log.size[j]]
        given[j] = [1.0, *known, *rest, math.sin(hours[j]), math.cos(hours[j]), len(last)]
        np.maximum(largest, np.abs(given[j]), out=largest)
        seconds = float(w @ (given[j] / largest)) * 3600.0
        return math.log(max(min(seconds, math.inf if math.isnan(r) else r), 1.0))

    def learn(j: int, _: float) -> None:
        x, run = given[j] / largest, float(log.jobs.run[j])
        error = float(w @ x) - run / 3600.0
        slope = 2 * error if error > 0 else -1.0
        gradient = slope * x * math.log(max(log.size[j], 1.0) * max(run, math.e)) / 10
        squares[:] += gradient**2
        w[:] -= rate * gradient / np.sqrt(squares)
        own[user[j]].append(run)

    return by_events(log, say, learn)


def boosted(log: Log) -> Floats:
    """Boosted quantiles on the last run times of the user, and of what is alike, and the clock."""
    from sklearn.ensemble import HistGradientBoostingRegressor as Boosted

    own: dict[int, list[int]] = defaultdict(list)
    jobs, y, at = log.jobs, log.length, np.zeros(len(log.jobs))
    x = np.full((len(jobs), 18), np.nan)
    said, done, waiting = np.full((len(jobs), 5), 6.0), list[int](), list[int]()
    models: list[Any] = []
    used: list[int] = []
    next_fit = 200

    def answer() -> None:
        for k, model in enumerate(models if waiting else []):
            said[waiting, k] = model.predict(x[waiting][:, used])
        waiting.clear()

    for now, submits, j in zip(log.when.tolist(), log.submits, log.job.tolist(), strict=True):
        if submits:
            mine = own[jobs.user[j]][-200:][::-1]
            named = [i for i in mine if jobs.type[i] == jobs.type[j]]
            same = [i for i in mine if log.size[i] == log.size[j]]
            same = [i for i in same if log.request[i] == log.request[j] or jobs.requested[i] == 0]
            x[j, :4] = math.log(max(log.request[j], 1.0)), math.log(max(log.size[j], 0.01)), 0, 0
            x[j, 2:4] = now % 86400.0, now // 86400.0 % 7
            for first, some in ((4, mine), (9, named), (13, same)):
                if some:
                    seen = y[some[:10]]
                    x[j, first : first + 4] = seen[0], seen.mean(), seen.std(), seen[:2].mean()
            if mine:
                x[j, 8], x[j, 17] = math.log1p(now - at[mine[0]]), y[mine].mean()
            waiting.append(j)
            continue
        own[jobs.user[j]].append(j)
        at[j] = now
        done.append(j)
        if len(done) >= next_fit:
            answer()
            i = np.array(done[-12000:])
            used = [k for k in range(18) if np.unique(x[i, k][~np.isnan(x[i, k])]).size > 1]
            plan = {"max_iter": 80, "learning_rate": 0.08, "max_leaf_nodes": 24}
            models = [
                Boosted(loss="quantile", quantile=q, **plan).fit(x[i][:, used], y[i])
                for q in LEVELS
            ]
            next_fit += max(400, min(len(done), 1500))
    answer()
    return np.sort(said, axis=1)


@kernel
def through(
    r: RunTimes, when: Floats, submits: Ints, job: Ints, run: Floats, levels: Floats, said: Floats
) -> None:
    for e in range(when.size):
        j = job[e]
        if submits[e] == 0:
            ended(r, j, run[j], True, when[e])
        else:
            expect(r, j, when[e])
            for k in range(levels.size):
                said[j, k] = math.log(quantile(r, j, levels[k], 0.0, when[e]))


def learned(log: Log, levels: Floats = LEVELS) -> Floats:
    said = np.zeros((len(log.jobs), levels.size))
    r = state_of(log.jobs, "learned", log.size)
    through(r, log.when, log.submits, log.job, log.jobs.run, levels, said)
    return said


RIVALS: dict[str, Callable[[Log], Floats]] = {
    "request": requests,
    "last two": last_two,
    "online regression": regression,
    "shrunk means": shrunk_means,
    "boosted quantiles": boosted,
    "`learned`": learned,
}


def classes(log: Log) -> dict[str, np.ndarray[Any, Any]]:
    """New: fewer than five of the user's jobs had ended. Heavy: the users who make up half."""
    count = np.bincount(log.jobs.user, minlength=len(log.jobs.users))
    order = np.argsort(-count, kind="stable")
    heavy = np.zeros(count.size, bool)
    heavy[order[: int(np.searchsorted(np.cumsum(count[order]), len(log.jobs) / 2)) + 1]] = True
    new, of_heavy = log.seen < 5, heavy[log.jobs.user]
    return {"all": new | True, "heavy": of_heavy & ~new, "light": ~of_heavy & ~new, "new": new}


def table(log: Log) -> None:
    print(f"\n{log.name}: {len(log.jobs):,} jobs, {len(log.jobs.users):,} users\n")
    print("| predictor | error, median | error, mean | pinball | µs a job |\n|---|--:|--:|--:|--:|")
    for name, rival in RIVALS.items():
        if name == "boosted quantiles" and find_spec("sklearn") is None:
            continue
        if name == "request" and not log.jobs.requested.any():
            continue
        if name == "`learned`":
            rival(log)  # compiles
        began = time.process_time()
        said = learned(log, LEVELS[2:3]) if name == "`learned`" else rival(log)
        cost = (time.process_time() - began) / len(log.jobs) * 1e6
        said = rival(log) if name == "`learned`" else said
        off = log.length[:, None] - said
        point = np.abs(off[:, said.shape[1] // 2])
        point = point[np.isfinite(point)]
        loss = np.where(off > 0, LEVELS * off, (LEVELS - 1) * off).mean()
        loss = point.mean() / 2 if said.shape[1] == 1 else loss
        print(f"| {name} | {np.median(point):.3f} | {point.mean():.3f} | {loss:.3f} | {cost:.1f} |")
    said, took = learned(log), np.fmin(log.length, requests(log)[:, 0])
    print("\n| `learned` covers | jobs | 10 % | 50 % | 90 % |\n|---|--:|--:|--:|--:|")
    for name, which in classes(log).items():
        if which.any():
            below = (took[which, None] <= said[which] + 1e-9).mean(axis=0) * 100
            shown = " | ".join(f"{below[k]:.0f}" for k in (0, 2, 4))
            print(f"| {name} | {which.sum():,} | {shown} |")


def plot(logs: list[Log], to: Path) -> None:
    import matplotlib as mpl
    import matplotlib.pyplot as plt

    mpl.rcParams["svg.hashsalt"] = "gangwise"
    figure, axes = plt.subplots(figsize=(4.6, 4.2))
    axes.plot([0, 100], [0, 100], color="0.7", linewidth=1)
    for log in logs:
        took = np.fmin(log.length, requests(log)[:, 0])
        below = (took[:, None] <= learned(log, PLOTTED) + 1e-9).mean(axis=0)
        axes.plot(100 * PLOTTED, 100 * below, marker="o", markersize=3, label=log.name)
    axes.set(xlabel="quantile said (%)", ylabel="jobs that took no longer (%)")
    axes.legend(fontsize=8, frameon=False)
    figure.tight_layout()
    figure.savefig(to, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("logs", nargs="+", type=Path)
    parser.add_argument("--svg", type=Path)
    options = parser.parse_args()
    logs = [read(path) for path in options.logs]
    for log in logs:
        table(log)
    if options.svg:
        plot(logs, options.svg)


if __name__ == "__main__":
    main()
