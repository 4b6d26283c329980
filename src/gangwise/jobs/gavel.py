"""Whole schedulers: Gavel's allocation in rounds, and least attained service (Tiresias).

Gavel: a linear programme says which share X[c, g] of the time each class c of jobs (job type and
size) should spend on each generation g of nodes; a round-based mechanism then follows the shares
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
submission, n jobs in all: over the time with an n-th of the cluster, as Themis has it (§4.2);
*cost*: maximise Σ_c n[c] Σ_g T[c, g] X[c, g] / Σ_c n[c] d[c] Σ_g p[g] X[c, g], p the price of a
device, subject to Σ_g T[c, g] X[c, g] ≥ w[c] / (time left to the deadline) (§4.2);
*hierarchical*: weighted max-min among accounts, and among the jobs of each (§4.3);
*hierarchical-fifo*: the same, where an account's weight is its first job's, as far as it gains.

A job of groups of unlike tasks is on the generation of the group that holds most devices; its other
groups go wherever they fit.

In every round the pair with the largest X[c, g] over the share of its time that the job has had on
g so far goes first. Jobs that run where the round wants them go on; others are preempted, and a
restart costs. Devices that the shares leave over go to the job that waits longest; with *cost* only
to jobs whose work is cheapest there, since an idle device costs nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from gangwise.core.arrays import Checked, Floats, Ints
from gangwise.core.errors import ScenarioError
from gangwise.jobs.books import (
    Ask,
    Books,
    Explanation,
    Place,
    Preempt,
    Queue,
    Rate,
    Running,
    of_groups,
)
from gangwise.jobs.choice import Tasks, best_fit, main_group
from gangwise.jobs.model import Job, Nodes, Shape
from gangwise.jobs.queues import Waits

Flat = Literal["max-min", "total", "fifo", "throughput", "makespan", "finish-time"]
Objective = Literal[Flat, "cost", "hierarchical", "hierarchical-fifo"]
TIE_BREAK = 1e-3
"""Weight of the total beside the least rate, which breaks ties so that nothing is left idle."""


def allocation(
    rates: Floats,
    count: Ints,
    devices: Floats,
    capacity: Floats,
    objective: str,
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
    # 1e-300 stands for 0 of a class that runs nowhere, so that nothing is divided by zero.
    top = np.maximum(rates.max(axis=1, initial=0.0), 1e-300)
    per_job = rates / top[:, None]  # of the fastest generation
    # T̄: the rate of a class with an equal share of the whole cluster (§4.1).
    alike = np.maximum(rates @ capacity / capacity.sum(), 1e-300)
    fair = devices[:, None] * rates / alike[:, None]
    worth = count.astype(np.float64) if weight is None else np.maximum(weight, TIE_BREAK)
    if objective == "max-min":
        return _shared(per_job, count, devices, capacity, fair)[0]
    if objective in ("total", "fifo", "throughput"):
        of_job = rates if objective == "throughput" else per_job
        worth = worth if objective == "fifo" else count
        return _shared(worth[:, None] * of_job, count, devices, capacity)[0]
    # The last job ends soonest where the least rate per work left is largest.
    floors = rates * (worth.max() / worth)[:, None]
    shares = _shared(per_job, count, devices, capacity, floors)[0]
    if objective == "makespan":
        return shares
    since = np.zeros(len(rates)) if age is None else age
    # An n-th of the cluster is D / n devices: a job of d devices has that part of its time.
    alone = since + worth / alike * np.maximum(1.0, count.sum() * devices / capacity.sum())
    ratio = np.inf
    while True:  # the least rate that a ratio asks for falls with it, as in Dinkelbach's
        former, ratio = ratio, ((since + worth / (rates * shares).sum(axis=1)) / alone).max()
        # Stops where a step gains less than a hundred-thousandth.
        if ratio > former * (1 - 1e-5):
            break
        # rate ≥ work / (ratio × alone − since) for each class, scaled to a floor of 1.
        floors = rates * ((ratio * alone - since) / worth)[:, None]
        shares = _shared(per_job, count, devices, capacity, floors)[0]
    return shares


def cheapest(
    rates: Floats, count: Ints, devices: Floats, capacity: Floats, price: Floats, need: Floats
) -> Floats:
    """Most throughput per cost under deadlines, by Dinkelbach's method: shares of time [C, G].

    Of all within 1e-4 of the best ratio the one with the most throughput, since the ratio alone is
    as good with a thousandth of the shares. ``price`` [G] is that of a device for a second; where a
    best ratio costs nothing, all that is free is used. ``need`` [C] is the rate with which a job
    just meets its deadline, 0 for none; where the cluster cannot give all of them theirs, each has
    at least the same part of it. For the others see :func:`allocation`.
    """
    problem = (count, devices, capacity, rates)
    # Ratio of two linear functions: maximise gain − ratio × cost, then take the ratio reached.
    gain = count[:, None] * rates / (count[:, None] * rates).max()
    cost = np.where(rates > 0, (count * devices)[:, None] * price, 0.0)
    cost /= max(cost.max(), 1e-300)
    # Where deadlines cannot all be met, each has the same part of the rate that it needs.
    floor = np.zeros(len(rates))
    if need.any():
        rate = (rates * _shared(0 * gain, *problem, need)[0]).sum(axis=1)
        # Somewhat less than possible: rounding must not make the next programme infeasible.
        floor = need * min((rate[need > 0] / need[need > 0]).min(), 1.0) * (1 - 1e-7)
    none, ratio = np.zeros(len(rates)), 0.0
    shares = _shared(gain, *problem, none, floor)[0]
    # The gain at the ratio reached is 0 at the optimum: then no other shares are better.
    while (gained := (gain * shares).sum()) > 1e-9 + ratio * (paid := (cost * shares).sum()):
        if paid <= 1e-12:
            return shares
        ratio = gained / paid
        shares = _shared(gain - ratio * cost, *problem, none, floor)[0]
    return _shared(gain - ratio * (1 - 1e-4) * cost, *problem, none, floor)[0]


def water_filling(
    rates: Floats,
    count: Ints,
    devices: Floats,
    capacity: Floats,
    entity: Ints,
    weight: Floats,
    part: Floats,
    fifo: bool = False,
) -> Floats:
    """Hierarchical max-min fairness by water filling (§4.3): shares of time, shape [C, G].

    With t[c] what d[c] Σ_g T[c, g] X[c, g] / T̄[c] is filled to, find the largest z for which it can
    be t[c] + w[c] z; raise t by w z; freeze the classes that can gain no more, so that others of
    their entity get their weight; and again, until all are frozen.

    ``entity`` [C] is that of each class, from 0. Jobs that are not frozen share the ``weight`` [E]
    of their entity in proportion to their ``part`` [C]; with ``fifo`` the first class that is not
    frozen has all of it. For the others see :func:`allocation`.
    """
    alike = np.maximum(rates @ capacity / capacity.sum(), 1e-300)
    fair = rates * (devices / alike)[:, None]
    filled, shares = np.zeros(len(rates)), np.zeros_like(rates)
    frozen = (rates <= 0).all(axis=1) | (weight[entity] * part <= 0)
    while not frozen.all():
        # Those that can still gain share the weight of their entity.
        line = np.flatnonzero(~frozen)
        if fifo:
            line = line[np.unique(entity[line], return_index=True)[1]]
        of_entity = np.bincount(entity[line], (count * part)[line])
        w = np.zeros(len(rates))
        w[line] = weight[entity[line]] * part[line] / of_entity[entity[line]]
        shares, dual = _shared(0 * fair, count, devices, capacity, fair, w, filled)
        # How far all of them can rise together.
        z = (((fair * shares).sum(axis=1) - filled)[line] / w[line]).min()
        filled += w * max(z, 0.0)
        # Where the dual is positive the row is tight in every optimum, so in all that may follow.
        # Over all rows w · dual sums to 1.
        frozen |= w * dual > 1e-7
        # Nobody rose: what is left is to find out whether those not frozen could gain alone.
        if z * w.max() < 1e-7:
            unfrozen = np.where(frozen[:, None], 0.0, fair)
            shares, _ = _shared(unfrozen, count, devices, capacity, fair, 0 * w, filled)
            if (unfrozen * shares).sum() < filled[~frozen].sum() + 1e-6:
                break
    return shares


def _shared(
    gain: Floats,
    count: Ints,
    devices: Floats,
    capacity: Floats,
    least: Floats | None = None,
    w: Floats | None = None,
    floor: Floats | float = 0.0,
) -> tuple[Floats, Floats]:
    """Shares X [C, G] with the largest Σ gain X, and the dual of each class's last row [C].

    With ``least``, subject to Σ_g least X ≥ floor + w z, w being 1 by default: first the largest
    z, then that sum. Where w is 0 everywhere there is no z.
    """
    C, G = gain.shape
    # Variables X[c, g], class by class, and the least rate z.
    # Rows: a class has no more than all of its time, a generation no more than its devices.
    of_class = sparse.kron(sparse.eye_array(C), np.ones((1, G)), format="csr")
    in_use = sparse.kron((count * devices)[None, :], sparse.eye_array(G))
    rows, limits, z = [of_class, in_use], [np.ones(C), capacity], np.zeros(C + G)
    w = np.full(C, float(least is not None)) if w is None else w
    # linprog minimises, so what is to be large is negative.
    cost = np.append(-gain.ravel(), 0.0)
    if w.any():
        # The sum is weighted so little that z is decided first.
        cost[:-1] = -TIE_BREAK * (count[:, None] * gain).ravel() / count.sum()
        cost[-1] = -1.0
    # −Σ least X + w z ≤ −floor, a row for each class.
    if least is not None:
        rows.append(of_class.multiply(-least.ravel()))
        limits.append(np.zeros(C) - floor)
        z = np.append(z, w)
    matrix = sparse.hstack([sparse.vstack(rows), z[:, None]], format="csr")
    bounds = np.zeros((C * G + 1, 2))
    # A class may not have time on a generation where it cannot run.
    bounds[:-1, 1] = ((gain if least is None else least) > 0).ravel()
    bounds[-1, 1] = np.inf if w.any() else 0.0
    best = linprog(cost, A_ub=matrix, b_ub=np.concatenate(limits), bounds=bounds, method="highs")
    if best.status != 0:
        raise ScenarioError(f"gavel: the linear programme has no solution ({best.message})")
    # The solver's tolerance may leave shares a little outside.
    shares = np.clip(best.x[:-1].reshape(C, G), 0.0, 1.0)
    return np.asarray(shares), -np.asarray(best.ineqlin.marginals[-C:])


@dataclass
class Gavel(Checked):
    """Heterogeneity-aware scheduling in rounds.

    Nodes with the same declared rates and labels are a generation; T are the declared rates.

    Parameters
    ----------
    objective : str
        One of those above. With ``cost`` a device costs what its node's label ``price`` says, or 1
        without one. With ``hierarchical`` an account weighs what its ``shares`` in a site file are,
        or 1; jobs without an account are their user's.
    seconds : float
        Length of a round, six minutes in the paper. inf: nothing is ever preempted, and shares
        only order who starts where.
    """

    objective: Objective = "max-min"
    seconds: Annotated[float, "(0, inf]"] = 360.0
    groups: ClassVar[bool] = True
    _had: dict[str, Floats] = field(default_factory=dict, init=False, repr=False)
    _cheapest: dict[str, int] = field(default_factory=dict, init=False, repr=False)
    _keys: list[Any] = field(default_factory=list, init=False, repr=False)
    _next: float = field(default=-np.inf, init=False, repr=False)
    _last: float = field(default=-np.inf, init=False, repr=False)
    _waits: Waits = field(default_factory=Waits, init=False, repr=False)

    def resize(self, nodes: Nodes, job_types: Sequence[str]) -> None:
        """Sort the nodes into generations; the time that jobs have had on each stays known."""
        self._types = {name: l for l, name in enumerate(job_types)}
        # A generation is what nodes declare: rates and labels.
        rates = (tuple(sorted(r.items())) if isinstance(r, Mapping) else r for r in nodes.rates)
        # Labels sorted, so that their order in a mapping makes no generation of its own.
        keys = [(rate, *sorted(labels.items())) for rate, labels in zip(rates, nodes.labels)]
        # Those that have gone keep their place: they may come back.
        generations = list(dict.fromkeys([*self._keys, *keys]))
        self._generation = np.array([generations.index(key) for key in keys], dtype=np.int64)
        self._rates = np.zeros((len(self._types), len(generations)))
        self._rates[:, self._generation] = nodes.declared(job_types)
        added = len(generations) - len(self._keys)
        self._had = {name: np.pad(seconds, (0, added)) for name, seconds in self._had.items()}
        self._keys = generations
        if self.objective == "cost":
            prices = [dict(key[1:]).get("price", "1") for key in generations]
            if not all(text.replace(".", "", 1).isdecimal() for text in prices):
                raise ScenarioError(f"gavel: prices of nodes are {prices}; give numbers from 0")
            self._price = np.array(prices, dtype=np.float64)

    def observe(self, rate: Rate) -> None: ...  # declared rates are believed

    def place(self, queue: Queue, books: Books, now: float) -> list[Place | Preempt | Ask]:
        """At a round's end all jobs are placed anew; between rounds what is free is filled."""
        self._account(books, now)
        runs = [r.job for r in books.running.values()]
        jobs = runs + [job for job in queue if books.opens(job, now) <= now]
        waiting = {job.id for job in jobs[len(runs) :]}
        trial = books.copy()
        actions: list[Place | Preempt | Ask] = []
        pairs: list[tuple[str, int]] = []
        # Where rounds end, shares are computed anew then; otherwise each time.
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
        # First the pairs as the shares rank them.
        order = [(by_id[name], g) for name, g in pairs if name in waiting]
        # What the shares leave over: who came first, wherever it is fastest.
        for job in sorted((by_id[name] for name in waiting), key=lambda job: job.row):
            if self.objective == "cost":
                order += [(job, self._cheapest[job.id])] if job.id in self._cheapest else []
                continue
            fastest = np.argsort(-self._rates[self._types[job.job_type]], kind="stable")
            order += [(job, int(g)) for g in fastest] + [(job, -1)]  # at last across generations
        for job, g in order:
            if job.id in trial.running or tally.holds(job) is not None:
                continue
            tasks = best_fit(job, trial, self._generation == g if g >= 0 else None)
            if tasks is not None:
                tally.take(job)
                actions.append(trial.start(job, tasks, now))
        waiting_jobs = [job for job in [*runs, *queue] if job.id not in trial.running]
        reason = "its share of the time goes to others this round"
        self._waits.look(waiting_jobs, trial, now, reason, self._next)
        unplaced = [job for job in queue if job.id not in trial.running]
        if unplaced and np.isfinite(self._next):
            actions.append(Ask(unplaced[0].id, max(self._next, np.nextafter(now, np.inf))))
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
            seconds = self._had.setdefault(name, np.zeros(self._rates.shape[1]))
            seconds[self._on(running, books)] += max(now - max(running.begun, self._last), 0.0)
        self._last = now

    def _on(self, running: Running, books: Books) -> int:
        """Generation of the nodes that a job runs on; of unlike tasks, those with most devices."""
        parts = [pieces for _, pieces in of_groups(running.job.shape, running.pieces)]
        main = main_group(running.job, books) if len(parts) > 1 else 0
        return int(self._generation[parts[main][0][0]])

    def _shares(
        self, jobs: Sequence[Job], books: Books, now: float
    ) -> tuple[Floats, dict[str, int]]:
        classes: dict[tuple[str, int, Shape, str, str], int] = {}
        first: list[Job] = []  # of each class
        of_class: dict[str, int] = {}
        fifo, nested = self.objective == "hierarchical-fifo", "hierarchical" in self.objective
        urgent = self.objective == "cost" and any(job.deadline < np.inf for job in jobs)
        by_job = fifo or urgent or self.objective in ("makespan", "finish-time")
        for job in sorted(jobs, key=lambda job: job.row) if fifo else jobs:
            entity = (job.account or job.user) * nested
            key = (job.job_type, job.tasks, job.shape, job.id * by_job, entity)
            of_class[job.id] = classes.setdefault(key, len(classes))
            first += [job] * (len(first) < len(classes))
        C, G = len(classes), self._rates.shape[1]
        rates, count, devices = np.zeros((C, G)), np.zeros(C, np.int64), np.zeros(C)
        weight, age, need, capacity = np.zeros(C), np.zeros(C), np.zeros(C), np.zeros(G)
        kind = books.dominant(jobs[0].shape)
        np.add.at(capacity, self._generation, books.capacity[:, kind] * books.up / 1000.0)
        # Where a class can run at all: on nodes that are up, all of them free.
        empty = Books.opened(books.nodes)
        empty.free[~books.up] = 0
        empty.device[~books.up] = 0
        for c, job in enumerate(first):
            tasks, shape = job.groups[main_group(job, books) if job.shape.groups else 0]
            room = np.bincount(self._generation, empty.fits(shape), G)
            fits = (room >= tasks) & (not job.shape.groups or empty.has_room(job))
            rates[c] = np.where(fits, self._rates[self._types[job.job_type]], 0.0)
            devices[c] = job.tasks * job.shape.demand[kind] / 1000.0
        for place, job in enumerate(sorted(jobs, key=lambda job: job.row)):
            count[of_class[job.id]] += 1
            # How many jobs came after it, itself included (fifo, §4.2).
            weight[of_class[job.id]] += len(jobs) - place
            if by_job:
                work = self._had.get(job.id, np.zeros(G)) @ self._rates[self._types[job.job_type]]
                c = of_class[job.id]
                # A limit that is inf or absurd would drown the others: at most 115 days.
                weight[c] = max(min(job.limit, 1e7) - work, 1.0)
                age[c] = now - job.submitted
                if now + weight[c] / max(rates[c].max(), 1e-9) <= job.deadline:  # or it is given up
                    need[c] = weight[c] / (job.deadline - now)
        # Generations without a node that is up take no part.
        used = capacity > 0
        shares = np.zeros((C, G))
        if used.any() and (rates[:, used] > 0).any():
            able = (rates[:, used] > 0).any(axis=1)
            at = np.ix_(able, used)
            problem = rates[at], count[able], np.maximum(devices[able], TIE_BREAK), capacity[used]
            if self.objective == "cost":
                shares[at] = cheapest(*problem, self._price[used], need[able])
            elif nested:
                names, number = np.unique([entity for *_, entity in classes], return_inverse=True)
                rules = books.tenancy.accounts if books.tenancy else ()
                given_shares = {rule.name: rule.shares for rule in rules}
                worth = np.array([given_shares.get(name, 1.0) for name in names.tolist()])
                shares[at] = water_filling(*problem, number[able], worth, np.ones(able.sum()), fifo)
            else:
                shares[at] = allocation(*problem, self.objective, weight[able], age[able])
        if self.objective == "cost":
            paid = np.where(rates > 0, self._price / np.maximum(rates, 1e-300), np.inf)
            cheapest_of = np.where((rates > 0).any(axis=1), paid.argmin(axis=1), -1)
            self._cheapest = {name: int(cheapest_of[c]) for name, c in of_class.items()}
        return shares, of_class

    def _ranked(
        self, jobs: Sequence[Job], shares: Floats, of_class: dict[str, int], now: float
    ) -> list[tuple[str, int]]:
        """Pairs (job, generation) by share over the share of time had so far (§5)."""
        G = shares.shape[1]
        ranked = []
        for job in jobs:
            seconds = self._had.get(job.id, np.zeros(G))
            # At least a round, so that a new job's first seconds do not make its ratio explode.
            age = max(now - job.submitted, self.seconds if np.isfinite(self.seconds) else 1.0)
            for g in range(G):
                share = float(shares[of_class[job.id], g])
                if share > 1e-9:
                    # A share not served at all goes before all that had some.
                    ranked.append((-share / max(seconds[g] / age, 1e-6), job.row, job.id, g))
        return [(name, g) for _, _, name, g in sorted(ranked)]

    def _round(
        self, jobs: Sequence[Job], pairs: list[tuple[str, int]], books: Books, trial: Books
    ) -> set[str]:
        """Running jobs that stay: those whose pair is reached before their generation is full.

        So do those in their closed hours, in which they could not start again. Leaves ``trial``
        with their devices taken and all others free.
        """
        kind = books.dominant(jobs[0].shape)
        capacity = books.capacity[:, kind] * books.up
        # Devices of each generation that the round has still to give.
        room = np.bincount(self._generation, capacity, self._rates.shape[1])
        asks = {job.id: job.tasks * job.shape.demand[kind] for job in jobs}
        on = {name: self._on(running, books) for name, running in books.running.items()}
        stay, leave = set[str](), set[str]()
        for name, running in books.running.items():
            # Preempted, it could not start again before its hours open.
            if books.opens(running.job, self._last) > self._last:
                stay.add(name)
                room[on[name]] -= asks[name]
        # No other job wants what the pairs leave: jobs that run there go on.
        for name, g in [*pairs, *on.items()]:
            if name not in stay and name not in leave and asks[name] <= room[g]:
                room[g] -= asks[name]
                (stay if on.get(name) == g else leave).add(name)
        for name, running in books.running.items():
            if name not in stay:
                trial.take(running.job.shape, running.pieces, sign=1)
                del trial.running[name]
        return stay


@dataclass
class LeastAttained(Checked):
    """Discretised two-dimensional LAS, preemptive.

    Parameters
    ----------
    thresholds : sequence of float
        Device-seconds that part the levels: 1 and 10 device-hours by default.
    pause : float
        Seconds between two rounds in which jobs are preempted.
    """

    thresholds: Sequence[float] = (3600.0, 36000.0)
    pause: Annotated[float, "(0, inf]"] = 60.0
    groups: ClassVar[bool] = True
    _attained: dict[str, float] = field(default_factory=dict, init=False, repr=False)
    _last: float = field(default=-np.inf, init=False, repr=False)
    _preempted: float = field(default=-np.inf, init=False, repr=False)
    _waits: Waits = field(default_factory=Waits, init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        thresholds = self.thresholds
        try:
            self.thresholds = tuple(map(float, thresholds))
            rise = list(self.thresholds) == sorted(self.thresholds)
        except (TypeError, ValueError):
            rise = False
        if not rise or not min(self.thresholds, default=1) > 0:
            how = "a list of rising numbers above 0, such as (3600,36000)"
            raise ScenarioError(f"las: thresholds are {thresholds!r}; give {how}")

    def resize(self, nodes: Nodes, job_types: Sequence[str]) -> None: ...

    def observe(self, rate: Rate) -> None: ...

    def explain(self, job: str) -> Explanation:
        """Why a job waits: jobs that have had less service hold the devices."""
        return self._waits.explain(job)

    def level(self, attained: float) -> int:
        """Level of a job that has had so many device-seconds, 0 first."""
        # A threshold itself belongs to the next level.
        return int(np.searchsorted(self.thresholds, attained, side="right"))

    def place(self, queue: Queue, books: Books, now: float) -> list[Place | Preempt | Ask]:
        """One round: jobs of the least service start, and others make room."""
        self._account(books, now)
        jobs = [*(r.job for r in books.running.values()), *queue]
        levels = {job.id: self.level(self._attained.get(job.id, 0.0)) for job in jobs}
        actions: list[Place | Preempt | Ask] = []
        # Otherwise two jobs of like service would take turns at every event.
        may_preempt = now - self._preempted >= self.pause
        trial = books.copy()
        tally = trial.tally()
        stays, preempted, unplaced = dict(books.running), list[Running](), list[Job]()
        for job in sorted(queue, key=lambda job: (levels[job.id], job.row)):
            if tally.holds(job) is not None or books.opens(job, now) > now:
                unplaced.append(job)
                continue
            tasks = best_fit(job, trial)
            if tasks is None and may_preempt:
                # Who has had more makes room: of the highest level first, the last to come first.
                below = [r for r in stays.values() if levels[r.job.id] > levels[job.id]]
                below.sort(key=lambda r: (-levels[r.job.id], -r.job.row))
                room = with_room(job, below, trial)
                if room is not None:
                    trial, out, tasks = room
                    preempted += out
                    for running in out:
                        del stays[running.job.id]
                        tally.take(running.job, -1)
            if tasks is None:
                unplaced.append(job)
                continue
            tally.take(job)
            actions.append(trial.start(job, tasks, now))
        if preempted:
            self._preempted = now
        waits = [*unplaced, *(r.job for r in preempted)]
        self._waits.look(waits, trial, now, "jobs that have had less come first", np.inf)
        if unplaced:
            earliest = min(unplaced, key=lambda job: job.row)
            actions.append(Ask(earliest.id, self._next_look(stays, levels, books, now)))
        return [*(Preempt(r.job.id) for r in preempted), *actions]

    def _account(self, books: Books, now: float) -> None:
        """Charge running jobs the devices × seconds since the last call."""
        for name, running in books.running.items():
            # From the last call on, or from the start where the job began after it.
            since = max(running.begun, self._last)
            if now > since:
                devices = books.size(running.job)
                self._attained[name] = self._attained.get(name, 0.0) + devices * (now - since)
        for event in books.events:
            if event.job is not None and event.over:
                self._attained.pop(event.job.id, None)
        self._last = now

    def _next_look(
        self, stays: dict[str, Running], levels: dict[str, int], books: Books, now: float
    ) -> float:
        """When the first running job reaches its next level, a pause from now at the earliest."""
        times = []
        for name in stays:
            level = levels[name]
            if level < len(self.thresholds):
                to_go = self.thresholds[level] - self._attained.get(name, 0.0)
                times.append(now + to_go / max(books.size(books.running[name].job), 1e-9))
        # An hour where nobody reaches another level: devices may come free unseen.
        return max(min(times, default=now + 3600.0), now + self.pause)


def with_room(
    job: Job, below: Sequence[Running], books: Books
) -> tuple[Books, Sequence[Running], Tasks] | None:
    """Books after as many of ``below`` left, in order, as a job needs; None if all are too few."""
    trial = books.copy()
    # One more is taken off only where those before it were not enough: no job stops in vain.
    for count, running in enumerate(below, 1):
        trial.take(running.job.shape, running.pieces, sign=1)
        del trial.running[running.job.id]
        tasks = best_fit(job, trial)
        if tasks is not None:
            return trial, below[:count], tasks
    return None
