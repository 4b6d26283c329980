"""Heterogeneity-aware allocation in rounds, as Gavel does it.

A linear programme says which share X[c, g] of the time each class c of jobs (job type and size)
should spend on each generation g of nodes; a round-based mechanism then follows the shares
(Narayanan, Santhanam, Kazhamiaka, Phanishayee, Zaharia: Heterogeneity-Aware Cluster Scheduling
Policies for Deep Learning Workloads, OSDI 2020, §4 and §5).

With T[c, g] the rate of a class on a generation, n[c] jobs of the class that each hold d[c]
devices, and D[g] devices:

    Σ_g X[c, g] ≤ 1,   Σ_c n[c] d[c] X[c, g] ≤ D[g],   0 ≤ X ≤ 1.

*max-min*: maximise the least d[c] Σ_g T[c, g] X[c, g] / T̄[c], T̄[c] = Σ_g T[c, g] D[g] / Σ D (§4.1);
*total*: maximise Σ_c n[c] Σ_g T[c, g] X[c, g] / max_g T[c, g];
*fifo*: the same, each job weighted by how many came after it (§4.2);
*throughput*: maximise Σ_c n[c] Σ_g T[c, g] X[c, g] (§4.2);
*makespan*: minimise the most w[c] / Σ_g T[c, g] X[c, g], w the work that a job's limit leaves;
*finish-time*: minimise the most (a + w / Σ_g T X) / (a + w / T̄ · max(1, n d / D)), a the time since
submission, n jobs in all: over the time with an n-th of the cluster, as Themis has it (§4.2).

In every round the pair with the largest X[c, g] over the share of its time that the job has had on
g so far goes first. Jobs that run where the round wants them go on; others are preempted, and a
restart costs. Devices that the shares leave over go to whoever waits longest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from gangwise.core.arrays import Floats, Ints
from gangwise.core.errors import ScenarioError
from gangwise.jobs.books import Ask, Books, Explanation, Place, Preempt, Queue, Rate, Running
from gangwise.jobs.choice import best_fit
from gangwise.jobs.explanations import Waits
from gangwise.jobs.model import Job, Nodes, Shape

Objective = Literal["max-min", "total", "fifo", "throughput", "makespan", "finish-time"]
SMALL = 1e-3
"""Weight of the total beside the least rate, which breaks ties so that nothing is left idle."""


def allocation(
    rates: Floats,
    count: Ints,
    devices: Floats,
    capacity: Floats,
    objective: Objective,
    weight: Floats | None = None,
    age: Floats | None = None,
) -> Floats:
    """Shares of time, shape [C, G].

    Parameters
    ----------
    rates : ndarray, shape [C, G]
        0 where a class cannot run on a generation.
    count, devices : ndarray, shape [C]
        Jobs of each class, and devices that each holds.
    capacity : ndarray, shape [G]
        Devices of each generation.
    weight : ndarray, shape [C], optional
        With ``fifo``: summed over a class, how many jobs came after each; with ``makespan`` and
        ``finish-time`` the work left of each of its jobs, in seconds at rate 1.
    age : ndarray, shape [C], optional
        With ``finish-time``: seconds since submission.

    Examples
    --------
    Two jobs, two generations with one device each; the first job gains more from the fast one.

    >>> rates = np.array([[4.0, 1.0], [2.0, 1.0]])
    >>> one = np.ones(2, dtype=np.int64)
    >>> allocation(rates, one, np.ones(2), np.ones(2), "total").round(3) + 0.0
    array([[1., 0.],
           [0., 1.]])
    """
    top = np.maximum(rates.max(axis=1, initial=0.0), 1e-300)
    per_job = rates / top[:, None]  # of the fastest generation
    alike = np.maximum(rates @ capacity / capacity.sum(), 1e-300)
    fair = devices[:, None] * rates / alike[:, None]
    worth = count.astype(np.float64) if weight is None else np.maximum(weight, SMALL)
    if objective == "max-min":
        return _shared(per_job, count, devices, capacity, fair)
    if objective in ("total", "fifo", "throughput"):
        of_job = rates if objective == "throughput" else per_job
        worth = worth if objective == "fifo" else count
        return _shared(worth[:, None] * of_job, count, devices, capacity)
    shares = _shared(per_job, count, devices, capacity, rates * (worth.max() / worth)[:, None])
    if objective == "makespan":
        return shares
    since = np.zeros(len(rates)) if age is None else age
    alone = since + worth / alike * np.maximum(1.0, count.sum() * devices / capacity.sum())
    ratio = np.inf
    while True:  # the least rate that a ratio asks for falls with it, as in Dinkelbach's
        before, ratio = ratio, ((since + worth / (rates * shares).sum(axis=1)) / alone).max()
        if ratio > before * (1 - 1e-5):
            break
        asked = rates * ((ratio * alone - since) / worth)[:, None]
        shares = _shared(per_job, count, devices, capacity, asked)
    return shares


def _shared(
    gain: Floats, count: Ints, devices: Floats, capacity: Floats, least: Floats | None = None
) -> Floats:
    """Shares X [C, G] with the largest Σ gain X, or first the largest of the least Σ_g least X."""
    C, G = gain.shape
    # Variables X[c, g], class by class, and the least rate z.
    of_class = sparse.kron(sparse.eye_array(C), np.ones((1, G)), format="csr")
    held = sparse.kron((count * devices)[None, :], sparse.eye_array(G))
    rows, limits, z = [of_class, held], [np.ones(C), capacity], np.zeros(C + G)
    cost = np.append(-gain.ravel(), 0.0)
    if least is not None:
        cost[:-1] = -SMALL * (count[:, None] * gain).ravel() / count.sum()
        cost[-1] = -1.0
        rows.append(of_class.multiply(-least.ravel()))
        limits.append(np.zeros(C))
        z = np.append(z, np.ones(C))
    matrix = sparse.hstack([sparse.vstack(rows), z[:, None]], format="csr")
    bounds = np.zeros((C * G + 1, 2))
    bounds[:-1, 1] = (gain > 0).ravel()
    bounds[-1, 1] = 0.0 if least is None else np.inf
    found = linprog(cost, A_ub=matrix, b_ub=np.concatenate(limits), bounds=bounds, method="highs")
    if found.status != 0:
        raise ScenarioError(f"gavel: the linear programme has no solution ({found.message})")
    return np.asarray(np.clip(found.x[:-1].reshape(C, G), 0.0, 1.0))


@dataclass
class Gavel:
    """Heterogeneity-aware scheduling in rounds.

    Nodes with the same declared rates and labels are a generation; T are the declared rates.

    Parameters
    ----------
    objective : {"max-min", "total", "fifo", "throughput", "makespan", "finish-time"}
    seconds : float
        Length of a round, six minutes in the paper. inf: nothing is ever preempted, and shares
        only order who starts where.
    """

    objective: Objective = "max-min"
    seconds: float = 360.0
    _had: dict[str, Floats] = field(default_factory=dict, init=False, repr=False)
    _keys: list[Any] = field(default_factory=list, init=False, repr=False)
    _next: float = field(default=-np.inf, init=False, repr=False)
    _last: float = field(default=-np.inf, init=False, repr=False)
    _waits: Waits = field(default_factory=Waits, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.objective not in (known := get_args(Objective)):
            raise ScenarioError(
                f"gavel: there is no objective {self.objective!r}; there are {', '.join(known)}"
            )
        if not self.seconds > 0:
            raise ScenarioError(f"gavel: a round of {self.seconds} s; give a positive length")

    def resize(self, nodes: Nodes, job_types: Sequence[str]) -> None:
        """Sort the nodes into generations; the time that jobs have had on each stays known."""
        self._types = {name: l for l, name in enumerate(job_types)}
        rates = (tuple(sorted(r.items())) if isinstance(r, Mapping) else r for r in nodes.rates)
        keys = [(rate, *sorted(has.items())) for rate, has in zip(rates, nodes.labels)]
        # Those that have gone keep their place: they may come back.
        known = list(dict.fromkeys([*self._keys, *keys]))
        self._generation = np.array([known.index(key) for key in keys], dtype=np.int64)
        self._rates = np.zeros((len(self._types), len(known)))
        self._rates[:, self._generation] = nodes.declared(job_types)
        new = len(known) - len(self._keys)
        self._had = {name: np.pad(had, (0, new)) for name, had in self._had.items()}
        self._keys = known

    def observe(self, rate: Rate) -> None:
        """Declared rates are believed."""

    def place(self, queue: Queue, books: Books, now: float) -> list[Place | Preempt | Ask]:
        """At a round's end all jobs are placed anew; between rounds what is free is filled."""
        self._account(books, now)
        runs = [r.job for r in books.running.values()]
        jobs = runs + [job for job in queue if books.opens(job, now) <= now]
        waiting = {job.id for job in jobs[len(runs) :]}
        trial = books.copy()
        actions: list[Place | Preempt | Ask] = []
        placed: set[str] = set()
        pairs: list[tuple[str, int]] = []
        rounds = np.isfinite(self.seconds)
        if now >= self._next or not rounds:
            self._next = now + self.seconds
            pairs = self._ranked(jobs, *self._shares(jobs, books, now), now) if jobs else []
        if pairs and rounds:
            chosen = self._round(jobs, pairs, books, trial)
            actions += [Preempt(name) for name in books.running if name not in chosen]
            waiting |= {name for name in books.running if name not in chosen}
        tally = trial.tally()
        by_id = {job.id: job for job in jobs}
        order = [(by_id[name], g) for name, g in pairs if name in waiting]
        # What the shares leave over: who came first, wherever it is fastest.
        for job in sorted((by_id[name] for name in waiting), key=lambda job: job.row):
            of = np.argsort(-self._rates[self._types[job.job_type]], kind="stable")
            order += [(job, int(g)) for g in of] + [(job, -1)]  # at last across generations
        for job, g in order:
            if job.id in placed or tally.holds(job) is not None:
                continue
            tasks = best_fit(job, trial, self._generation == g if g >= 0 else None)
            if tasks is not None:
                pieces = trial.tell_apart(job.shape, tasks)
                trial.take(job.shape, pieces)
                tally.take(job)
                trial.running[job.id] = Running(job, pieces, now, 0.0)
                actions.append(Place(job.id, tuple(tasks), pieces))
                placed.add(job.id)
        self._waits.look(
            [job for job in [*runs, *queue] if job.id not in trial.running],
            trial,
            now,
            "its share of the time goes to others this round",
            self._next,
        )
        left = [job for job in queue if job.id not in placed]
        if left and np.isfinite(self._next):
            actions.append(Ask(left[0].id, max(self._next, np.nextafter(now, np.inf))))
        return actions

    def explain(self, job: str) -> Explanation:
        """Why a job waits: others have larger shares that are still due to them."""
        return self._waits.explain(job)

    def _account(self, books: Books, now: float) -> None:
        """Time that every job has had on each generation since the last call."""
        for event in books.events:
            if event.job is not None and event.over:
                self._had.pop(event.job.id, None)
        for name, running in books.running.items():
            had = self._had.setdefault(name, np.zeros(self._rates.shape[1]))
            had[self._on(running)] += max(now - max(running.begun, self._last), 0.0)
        self._last = now

    def _on(self, running: Running) -> int:
        """Generation of the nodes that a job runs on."""
        return int(self._generation[running.pieces[0][0]])

    def _shares(
        self, jobs: Sequence[Job], books: Books, now: float
    ) -> tuple[Floats, dict[str, int]]:
        classes: dict[tuple[str, int, Shape, str], int] = {}
        of_class: dict[str, int] = {}
        by_job = self.objective in ("makespan", "finish-time")
        for job in jobs:
            key = (job.job_type, job.tasks, job.shape, job.id * by_job)
            of_class[job.id] = classes.setdefault(key, len(classes))
        C, G = len(classes), self._rates.shape[1]
        rates, count, devices = np.zeros((C, G)), np.zeros(C, np.int64), np.zeros(C)
        weight, age, capacity = np.zeros(C), np.zeros(C), np.zeros(G)
        kind = books.dominant(jobs[0].shape)
        np.add.at(capacity, self._generation, books.capacity[:, kind] * books.up / 1000.0)
        empty = Books.opened(books.nodes)
        empty.free[~books.up] = 0
        empty.device[~books.up] = 0
        for (job_type, tasks, shape, _), c in classes.items():
            fits = empty.fits(shape)
            room = np.bincount(self._generation, fits, G)
            rates[c] = np.where(room >= tasks, self._rates[self._types[job_type]], 0.0)
            devices[c] = tasks * shape.demand[kind] / 1000.0
        for place, job in enumerate(sorted(jobs, key=lambda job: job.row)):
            count[of_class[job.id]] += 1
            weight[of_class[job.id]] += len(jobs) - place
            if by_job:
                done = self._had.get(job.id, np.zeros(G)) @ self._rates[self._types[job.job_type]]
                weight[of_class[job.id]] = max(min(job.limit, 1e7) - done, 1.0)
                age[of_class[job.id]] = now - job.submitted
        used = capacity > 0
        shares = np.zeros((C, G))
        if used.any() and (rates[:, used] > 0).any():
            able = (rates[:, used] > 0).any(axis=1)
            shares[np.ix_(able, used)] = allocation(
                rates[np.ix_(able, used)],
                count[able],
                np.maximum(devices[able], SMALL),
                capacity[used],
                self.objective,
                weight[able],
                age[able],
            )
        return shares, of_class

    def _ranked(
        self, jobs: Sequence[Job], shares: Floats, of_class: dict[str, int], now: float
    ) -> list[tuple[str, int]]:
        """Pairs (job, generation) by share over the share of time had so far (§5)."""
        G = shares.shape[1]
        ranked = []
        for job in jobs:
            had = self._had.get(job.id, np.zeros(G))
            age = max(now - job.submitted, self.seconds if np.isfinite(self.seconds) else 1.0)
            for g in range(G):
                share = float(shares[of_class[job.id], g])
                if share > 1e-9:
                    # A share not served at all goes before all that had some.
                    ranked.append((-share / max(had[g] / age, 1e-6), job.row, job.id, g))
        return [(name, g) for _, _, name, g in sorted(ranked)]

    def _round(
        self, jobs: Sequence[Job], pairs: list[tuple[str, int]], books: Books, trial: Books
    ) -> set[str]:
        """Running jobs that stay: those whose pair is reached before their generation is full.

        So do those in their closed hours, in which they could not start again. Leaves ``trial``
        with their devices taken and all others free.
        """
        by_id, kind = {job.id: job for job in jobs}, books.dominant(jobs[0].shape)
        held = books.capacity[:, kind] * books.up
        room = np.bincount(self._generation, held, self._rates.shape[1])
        stay: set[str] = set()
        gone: set[str] = set()
        for name, r in books.running.items():
            if books.opens(r.job, self._last) > self._last:
                stay.add(name)
                room[self._on(r)] -= r.job.tasks * r.job.shape.demand[kind]
        for name, g in pairs:
            if name in stay or name in gone:
                continue
            job = by_id[name]
            need = job.tasks * job.shape.demand[kind]
            if need > room[g]:
                continue
            room[g] -= need
            running = books.running.get(name)
            on = None if running is None else self._on(running)
            (stay if on == g else gone).add(name)
        # No one else wants the rest: whoever runs there goes on.
        for name, running in books.running.items():
            g = self._on(running)
            need = running.job.tasks * running.job.shape.demand[kind]
            if name not in stay and name not in gone and need <= room[g]:
                room[g] -= need
                stay.add(name)
        for name, running in books.running.items():
            if name not in stay:
                trial.take(running.job.shape, running.pieces, sign=1)
                del trial.running[name]
        return stay
