"""Orders of the queue, backfilling, and explanations of waits.

An order gives every waiting job a key; the smallest is first, ties go to the earlier submission,
then to the earlier row of the log. Backfilling decides who may start past a job that cannot.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np

from gangwise.core.errors import ScenarioError, UnknownName
from gangwise.jobs import kernels, queue_kernels, tenancy
from gangwise.jobs.books import Books, Explanation, Piece, Running, of_groups
from gangwise.jobs.choice import BestFit, placed
from gangwise.jobs.model import ALONE, Job

AGENT = Path(__file__).with_name("agent.npz")
"""Weights of :class:`Agent`, and how they were made."""

Change = tuple[float, int, Job, tuple[Piece, ...]]
"""A change of what is free: when, 0 for given back or 1 for taken, the job and its pieces."""


class Order(Protocol):
    """An order of the queue; one that keeps no account of events inherits the first and last."""

    def take_in(self, books: Books) -> None:
        """Read the events since the last round."""
        return

    def keys(self, jobs: Sequence[Job], books: Books, now: float) -> list[float]:
        """The key of each waiting job; the smallest is first."""
        ...

    def started(self, job: Job, books: Books, now: float) -> None:
        """Note that a job starts now."""
        return


@dataclass
class FirstCome(Order):
    """First come, first served: all keys are alike, and ties go by submission."""

    name: ClassVar[str] = "fcfs"
    order: ClassVar[int] = kernels.FCFS

    def keys(self, jobs: Sequence[Job], books: Books, now: float) -> list[float]:
        return [0.0] * len(jobs)


@dataclass
class EarliestDeadline(Order):
    """Earliest deadline first; jobs without one come last."""

    name: ClassVar[str] = "edf"
    order: ClassVar[int] = kernels.EDF

    def keys(self, jobs: Sequence[Job], books: Books, now: float) -> list[float]:
        return [job.deadline for job in jobs]


@dataclass
class Priority(Order):
    """Jobs of the highest priority first."""

    name: ClassVar[str] = "priority"
    order: ClassVar[int] = kernels.PRIORITY

    def keys(self, jobs: Sequence[Job], books: Books, now: float) -> list[float]:
        return [-job.priority for job in jobs]


@dataclass
class ByFormula(Order):
    """An order by length, size, submission and wait, see ``formula_key`` of ``queue_kernels``.

    ``weight`` is that of ``aged``: a second's wait makes up for so many seconds of length.
    """

    name: str
    order: int
    weight: float = 0.0
    _first: float = field(default=math.inf, init=False, repr=False)

    def take_in(self, books: Books) -> None:
        for event in books.events:
            if event.kind == "submitted" and event.job:
                self._first = min(self._first, event.job.submitted)

    def keys(self, jobs: Sequence[Job], books: Books, now: float) -> list[float]:
        # F1 to F4 count submissions from the first one that was seen.
        # Before any submission is seen, `now` stands for the origin.
        origin = min(self._first, now)
        times = [(j.length, books.size(j), j.submitted - origin, now - j.submitted) for j in jobs]
        return [queue_kernels.formula_key(self.order, *row, self.weight) for row in times]


def by_formula(name: str) -> ByFormula:
    # qssf is saf by learned run times: QSSF of Helios (Hu et al., SC 2021).
    formula = getattr(kernels, {"qssf": "SAF"}.get(name, name.upper()))
    return ByFormula(name, formula, 0.2 if name == "aged" else 0.0)


@dataclass
class Agent(Order):
    """Highest score of a network first, which PPO trained to choose the next job to start.

    It looks at the wait, the request and the size of a job, at what is free and how many wait, in
    the units of :data:`gangwise.gym_kernels.FEATURES`. ``benchmarks/ppo_jobs.py`` made its weights,
    from drawn jobs alone.
    """

    name: ClassVar[str] = "ppo"
    _weights: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    def keys(self, jobs: Sequence[Job], books: Books, now: float) -> list[float]:
        if not self._weights:
            with np.load(AGENT) as file:
                # Read at first use: most schedulers never need the weights.
                self._weights = {name: file[name] for name in file.files if name != "made"}
        w, whole = self._weights, np.maximum(books.capacity.sum(axis=0), 1)
        waited = np.array([now - job.submitted for job in jobs])
        asked = np.array([job.length for job in jobs])
        tasks = np.array([job.tasks for job in jobs]) / len(books.nodes)
        share = [1000.0 * books.size(job) / whole[books.dominant(job.shape)] for job in jobs]
        cluster = (books.free.sum(axis=0) / whole).min(), np.log1p(len(jobs)) / np.log1p(1e5)
        # log1p divided by log1p of a large value maps waits up to 115 days to 0 … 1.
        logs = np.log1p(np.maximum([waited, asked], 0.0)) / np.log1p(1e7)
        rows = np.minimum([*logs, tasks, share, *(np.full(len(jobs), x) for x in cluster)], 1.0).T
        # Three dense layers with tanh between them: layers 0, 2 and 4 of the trained network.
        for layer in "024":
            rows = rows @ w[f"{layer}.weight"].T + w[f"{layer}.bias"]
            rows = rows if layer == "4" else np.tanh(rows)
        keys: list[float] = (-rows[:, 0]).tolist()
        return keys


@dataclass
class FairShare(Order):
    """Users of the smallest past use come first.

    Use is the integral of a user's share of the cluster (of the dominant device type of each of
    his jobs), halved every ``half_life`` seconds: a week, as in Slurm.
    """

    name: ClassVar[str] = "fair-share"
    order: ClassVar[int] = kernels.FAIR_SHARE
    half_life: float = 604_800.0
    # Of each user: use, its rate, and when that was. Of each running job: the share charged.
    _use: dict[str, list[float]] = field(default_factory=dict, init=False, repr=False)
    _share: dict[str, float] = field(default_factory=dict, init=False, repr=False)

    def take_in(self, books: Books) -> None:
        """Stop charging for what has ended; a job that moved goes on being charged."""
        # A job that gives back and starts in the same round has moved.
        started = {e.job.id: i for i, e in enumerate(books.events) if e.job and e.kind == "started"}
        for i, event in enumerate(books.events):
            if event.released and event.job and started.get(event.job.id, -1) < i:
                account = self._charged(event.job.user, event.time)
                account[1] -= self._share.pop(event.job.id, 0.0)

    def keys(self, jobs: Sequence[Job], books: Books, now: float) -> list[float]:
        # Every user's use decays in every round, so that sums do not depend on who waits.
        for user in self._use:  # users without a waiting job, too
            self._charged(user, now)
        return [self._charged(job.user, now)[0] for job in jobs]

    def started(self, job: Job, books: Books, now: float) -> None:
        if job.id in self._share:
            return
        kind = books.dominant(job.shape)
        # Both in thousandths, so the share needs no division by 1,000.
        devices = job.tasks * job.shape.demand[kind]
        self._share[job.id] = devices / float(books.capacity[:, kind].sum())
        self._charged(job.user, now)[1] += self._share[job.id]

    def _charged(self, user: str, now: float) -> list[float]:
        account = self._use.setdefault(user, [0.0, 0.0, now])
        # Use grows at a rate and decays meanwhile: closed form of the integral.
        seconds = now - account[2]
        if seconds > 0.0:
            # ∫ of rate · exp(−λ (t − s)), added to the use that has decayed.
            account[0] = queue_kernels.decayed(
                account[0], account[1], seconds, math.log(2.0) / self.half_life
            )
        account[2] = now
        return account


@dataclass
class Multifactor(Order):
    """Slurm's multifactor priority: tiers of pools, then weighted age, fair share, size, pool, QOS
    and devices.

    Weights, accounts and QOS are those of a site file, see :mod:`gangwise.jobs.tenancy`.
    """

    name: ClassVar[str] = "multifactor"
    order: ClassVar[int] = kernels.MULTIFACTOR
    _standing: kernels.FairShareState | None = field(default=None, init=False, repr=False)

    def bind(self, tables: Any) -> None:
        """Take weights, the account tree and what each job adds from tables of jobs."""
        self._standing = tenancy.standing_of(tables)

    @property
    def standing(self) -> kernels.FairShareState:
        if self._standing is None:
            raise ScenarioError(
                "multifactor goes by the weights and accounts of a site file, which there is none "
                "of here; name another order, such as fcfs"
            )
        return self._standing

    def take_in(self, books: Books) -> None:
        for event in books.events:
            # Priorities are computed in steps of time, as by Slurm, before an event counts.
            queue_kernels.tick(self.standing, event.time)
            if event.job is None:
                continue
            if event.kind == "started":
                queue_kernels.hold(self.standing, event.job.row, 1.0, event.time)
                queue_kernels.leave_ageing(self.standing, event.job.row, event.time)
            elif event.released:
                queue_kernels.hold(self.standing, event.job.row, -1.0, event.time)
            elif event.kind == "submitted":  # also after a failure
                queue_kernels.join_ageing(self.standing, event.job.row, event.time)
            elif event.kind == "cancelled":  # while it waited
                queue_kernels.leave_ageing(self.standing, event.job.row, event.time)

    def keys(self, jobs: Sequence[Job], books: Books, now: float) -> list[float]:
        queue_kernels.tick(self.standing, now)
        return [queue_kernels.priority_key(self.standing, job.row) for job in jobs]


BUILT_IN = FirstCome, EarliestDeadline, Priority, ByFormula, FairShare, Multifactor
"""Orders that kernels have as well, by the number ``order``."""


def reservation(
    job: Job, books: Books, ends: dict[str, float], now: float
) -> tuple[float, Books | None]:
    """EASY's promise: the first instant at which a job fits if running jobs end when expected.

    A job that is closed then starts when its hours open. Gives the instant, inf for none, and the
    books of that instant.
    """
    later, start = books.copy(), books.opens(job, now)
    # Not closed: the caller has found no room, so it is not asked again.
    if start == now or not later.has_room(job):
        start = np.inf
    # What has outlived its limit is expected to end now.
    expected = sorted((max(ends[name], now), name) for name in books.running)
    for i, (instant, name) in enumerate(expected):
        if instant > start:
            break
        running: Running = books.running[name]
        later.take(running.job.shape, running.pieces, sign=1)
        # All that end at an instant give back before it is asked who fits.
        if i + 1 < len(expected) and expected[i + 1][0] == instant:
            continue
        # It fits; where its hours are closed then, more may end before they open.
        if start == np.inf and later.has_room(job):
            start = books.opens(job, instant)
    return start, (later if start < np.inf else None)


@dataclass
class Reservations:
    """Conservative backfilling: a reservation for every waiting job.

    A job keeps its reservation, nodes and all, unless it can start earlier. In the order of the
    queue each is asked, while all others keep theirs, so that none is ever moved back; one
    whose time has come gets the best there is. When nodes come or go, all plan anew.
    """

    slots: dict[str, tuple[float, tuple[Piece, ...]]] = field(default_factory=dict)
    security: float = 0.0  # seconds that a plan adds to each limit

    def move(self, place: dict[int, int]) -> None:
        """Nodes have other places now; a reservation on one that has none is given up."""
        self.slots = {
            name: (time, tuple((place[n], c, mask) for n, c, mask in pieces))
            for name, (time, pieces) in self.slots.items()
            if all(n in place for n, _, _ in pieces)
        }

    def ahead(
        self, jobs: Sequence[Job], books: Books, ends: dict[str, float], now: float
    ) -> list[Change]:
        """Changes of what is free: ends of running jobs, and begins and ends of reservations."""
        changes = [(max(ends[r.job.id], now), 0, r.job, r.pieces) for r in books.running.values()]
        for job in jobs:
            slot, pieces = self.slots.get(job.id, (math.inf, ()))
            # Both the limit and the security are kept free.
            limit = job.limit + self.security
            # A reservation whose time is over has no effect on what comes.
            if slot < math.inf and limit > 0.0 and slot + limit > now:
                changes += [(max(slot, now), 1, job, pieces), (slot + limit, 0, job, pieces)]
        return changes

    def earliest(
        self, job: Job, free: Books, changes: list[Change], choice: Any, now: float, before: float
    ) -> tuple[float, Any, Any]:
        """First instant from which the gang fits for its whole limit; its tasks and pieces.

        inf and None where there is none before ``before``.
        """
        # At one time, given back (0) before taken (1): what leaves makes room.
        changes = sorted((c for c in changes if c[2].id != job.id), key=lambda c: c[:2])
        later_books, place, time = free.copy(), 0, now
        while True:
            # Closed hours move the time on; changes up to it are entered below.
            time = free.opens(job, time)
            if time >= before:
                return math.inf, None, ()
            # What is free at this time: all changes up to it.
            while place < len(changes) and changes[place][0] <= time:
                _, takes, changed, pieces = changes[place]
                later_books.take(changed.shape, pieces, -1 if takes else 1)
                place += 1
            if later_books.has_room(job):
                # A start needs the same devices for its whole limit: the least of what is free
                # until then.
                least, later = later_books.copy(), later_books.copy()
                for at, takes, changed, pieces in changes[place:]:
                    if at >= time + job.limit + self.security:
                        break
                    later.take(changed.shape, pieces, -1 if takes else 1)
                    np.minimum(least.free, later.free, out=least.free)
                    np.minimum(least.device, later.device, out=least.device)
                if (placement := placed(choice, job, least, now)) is not None:
                    return time, *placement
            if place == len(changes):
                return math.inf, None, ()
            time = changes[place][0]


def kamelot_ends(books: Books, ends: Mapping[str, float], now: float) -> dict[str, float]:
    """Ends of running jobs in the plan of Kamelot, OAR's scheduler.

    Kamelot keeps the time ahead as slots, and enters running jobs into them in the order of their
    starts. Where it looks for the slots of a job, it goes on from the last slot of the job that was
    entered before. So a job which ends sooner than one that began before it is entered into the
    first slot alone, which lasts until the soonest end so far: its devices count as free from then
    on, though it runs. Real runs start jobs accordingly, see ``docs/jobs/oar.md``. Jobs past their
    requests are expected to end now and change no slot.
    """
    planned = dict(ends)
    soonest, latest, moved = now, now, False
    # In the order of their starts, of equal ones by submission.
    by_start = sorted(books.running.values(), key=lambda r: (r.begun, r.job.submitted))
    for running in by_start:
        end = ends[running.job.id]
        # Past its request: it changes no slot.
        if end <= now:
            continue
        # The first one splits the time ahead into what is before its end and what is after.
        if soonest <= now:
            soonest = latest = end
        elif end >= latest:
            latest, moved = end, True
        else:
            planned[running.job.id] = soonest = min(end, soonest)
            if not moved:  # the last slot is still the first one, which was made shorter
                latest = soonest
    return planned


# ------------------------------------------------------------------------------- explanations


class Forecast:
    """Expected starts of waiting jobs, if all take as long as requested and no job comes.

    Each job in its order gets the earliest start that those before it leave, as in a conservative
    plan made anew. The plan goes only as far as it is asked for.
    """

    DEPTH: ClassVar[int] = 200  # jobs that are planned for; those behind them get no expected start

    def __init__(self, order: Sequence[Job], books: Books, ends: dict[str, float], now: float):
        self._order = list(order[: self.DEPTH])
        self._free, self._now = books.copy(), now
        self._changes = [
            (max(ends[r.job.id], now), 0, r.job, r.pieces) for r in books.running.values()
        ]
        self._starts: dict[str, tuple[float, tuple[str, ...]]] = {}

    def start(self, job: str) -> tuple[float, tuple[str, ...]]:
        """Expected start of a job, and the jobs that end then; inf and none if unknown."""
        while job not in self._starts and self._order:
            # Each job takes its place in the plan before the next one looks for one.
            next_job = self._order.pop(0)
            time, _, pieces = Reservations().earliest(
                next_job, self._free, self._changes, BestFit(), self._now, math.inf
            )
            ending = [ended.id for at, takes, ended, _ in self._changes if at == time and not takes]
            self._starts[next_job.id] = time, tuple(ending)
            if time < math.inf and next_job.limit > 0.0:
                self._changes += [
                    (time, 1, next_job, pieces),
                    (time + next_job.limit, 0, next_job, pieces),
                ]
        return self._starts.get(job, (math.inf, ()))


def no_room(job: Job, books: Books, ends: dict[str, float], now: float) -> tuple[str, float] | None:
    """Reason why a job does not fit on what is free, and until when; None if it fits."""
    if books.has_room(job):
        return None
    labels = ", ".join(f"{k}={v}" for k, v in job.shape.constraint)
    pool = f" in pool {job.shape.pool}" if job.shape.pool else ""
    # No node with the labels is up: no end of a job would help.
    if labels and not (tenancy.allowed_on(books.nodes, job.shape) & books.up).any():
        return f"no node that is up has {labels}", math.inf
    groups = " beside ".join(
        f"{tasks} tasks of " * (tasks > 1)
        + " + ".join(f"{d / 1000:g} {k}" for k, d in zip(books.nodes.devices, shape.demand) if d)
        for tasks, shape in job.groups
    )
    # EASY's promise is when enough will have ended.
    until, _ = reservation(job, books, ends, now)
    return f"{groups} do not fit on what is free{pool}", until


@dataclass
class Head:
    """The first job of a pool that cannot start, its promised start, and the books of that time.

    ``kept`` and ``later`` are the same if requests are true.
    """

    job: Job
    promised: float = np.inf
    then: Books | None = None
    kept: float = np.inf
    later: Books | None = None

    def overstayed(self, job: Job, end: float, now: float) -> list[tuple[Head, Books]]:
        """The promises that a job which ends then is past: itself, and the books of each."""
        # A job that ends by a promised instant is gone by then and takes nothing of what is
        # promised.
        requested_end = now + request_of(job)
        promises = (self.promised, self.then, end), (self.kept, self.later, requested_end)
        # A job that ends exactly at the promised time does not delay it.
        return [(self, at) for time, at, until in promises if at is not None and until > time]


def request_of(job: Job) -> float:
    """Requested limit of a job in seconds, inf for none."""
    return job.limit if job.requested else np.inf


@dataclass
class Round:
    """The state that a round left, to explain why a job waits.

    That is its books, when running jobs are expected to end, the queue in its order, the first job
    in line of each pool, and by whose promise others were kept from passing.
    """

    books: Books
    now: float
    ends: dict[str, float]
    order: list[Job]
    heads: dict[tuple[str, bool], Head] = field(default_factory=dict)  # by pool, and if closed
    delays: dict[str, Head] = field(default_factory=dict)
    _waiting: dict[str, Job] | None = field(default=None, init=False, repr=False)
    _forecast: Forecast | None = field(default=None, init=False, repr=False)

    def waiting(self, name: str) -> Job:
        """A job that still waits after the round; raises UnknownName for any other."""
        if self._waiting is None:
            self._waiting = {j.id: j for j in self.order if j.id not in self.books.running}
        if name not in self._waiting:
            raise UnknownName("waiting job", name, list(self._waiting))
        return self._waiting[name]

    def in_front(self, job: Job) -> list[Head]:
        """The first jobs in line whose pools share a node with that of a job."""
        if not self.heads or not self.books.nodes.pools:
            return list(self.heads.values())
        # Pools that share no node do not stand in one another's way.
        nodes, mine = self.books.nodes, self.books.nodes.of_pool(job.shape.pool)
        return [h for (pool, _), h in self.heads.items() if (nodes.of_pool(pool) & mine).any()]

    def line(self, job: Job) -> tuple[str, bool]:
        """The line that a job stands in: its pool, and whether its hours are closed."""
        return job.shape.pool, self.books.opens(job, self.now) > self.now

    def in_turn(self, shortest: bool) -> Iterator[Job]:
        """Jobs in their order; with ``shortest``, those behind the first of their pool at the end.

        These come by expected length then.
        """
        # The first of each pool keeps its turn; those behind it come last, the shortest first.
        aside = []
        for job in self.order:
            if shortest and self.line(job) in self.heads and not self.line(job)[1]:
                aside.append(job)
            else:
                yield job
        yield from sorted(aside, key=lambda job: (job.length, job.row))

    def capped(self, job: Job) -> tuple[str, float] | None:
        """The cap that a job has reached, and when running jobs make room in it; None for none."""
        tally = self.books.tally()
        if (cap := tally.holds(job)) is None:
            return None
        # Tally and text speak of the same counter: the cap's place and the name in it.
        i, name = self.books.caps.index(cap), str(cap.name(job))
        used = tally.used.get((i, name), 0) / 1000
        text, until = f"{cap.describe(name)}, {used:g} in use", math.inf
        # Those who count in the same cap end one after another, until there is room in it.
        mine = [r.job for r in self.books.running.values() if cap.name(r.job) == name]
        for n, running in enumerate(sorted(mine, key=lambda running: self.ends[running.id]), 1):
            tally.take(running, -1)
            if tally.used[i, name] + tally.amount(cap, job) <= round(1000 * cap.most):
                until = max(self.ends[running.id], self.now)
                text += f"; {n} of the jobs in it end{'s' * (n == 1)} first"
                break
        return text, until

    def closed(self, job: Job) -> tuple[str, float] | None:
        """The closed hours in which a job waits, and when they are over; None for none."""
        hours, until = self.books.hours, self.books.opens(job, self.now)
        if hours is None or until == self.now:
            return None
        return hours.why(job.row, self.now), until

    def cause(self, job: Job) -> tuple[str, tuple[str, ...]]:
        """Cause of a job's wait, and the users it is due to, see :class:`.Explanation`."""
        books, nodes, shape, asks = self.books, self.books.nodes, job.shape, job.shape.demand
        if self.closed(job):
            return "closed", ()
        if self.capped(job):
            return "cap", ()
        if books.has_room(job):
            # Room and no delay on record: it stands behind those who are first in line.
            promise = self.delays.get(job.id)
            front = [promise] if promise else self.in_front(job)
            return "kept", tuple(dict.fromkeys(head.job.user for head in front))
        allowed, total = tenancy.allowed_on(nodes, shape), nodes.capacity.sum(axis=0)
        types = [k for k, amount in enumerate(asks) if amount and nodes.devices[k] != ALONE]
        # The scarcest type that it asks for explains the wait; ALONE is no device.
        k = min(types, key=lambda k: total[k])
        on, free, ask = allowed & books.up, books.free[:, k], job.tasks * asks[k]
        if not shape.groups:
            # It would fit if nodes that are down were up: the wait is charged to them.
            if books.if_up(~books.up).has_room(job):
                return "away", ()
            if books.fits(shape._replace(pool="")).sum() >= job.tasks:
                return "partition", ()
        if free[on].sum() >= ask:
            alone = ALONE in nodes.devices and asks[nodes.devices.index(ALONE)] > 0
            # Enough in sum, but not in pieces of a task: fragmentation.
            tasks = np.minimum(free[on] // asks[k], shape.per_node or job.tasks).sum()
            beside = tasks >= job.tasks and not alone and not shape.groups
            return "beside" if beside else "pieces", ()
        later, by_user = 0, Counter[str]()
        for running in books.running.values():
            for part, pieces in of_groups(running.job.shape, running.pieces):
                amount = sum(c * part.demand[k] for n, c, _ in pieces if on[n])
                # What jobs submitted later hold: with it there would have been enough.
                later += amount * (running.job.row > job.row)
                by_user[running.job.user] += amount
        users = tuple(user for user, amount in by_user.most_common() if amount)
        return "overtaken" if free[on].sum() + later >= ask else "busy", users

    def explanation(self, job: Job, constraint: str, since: float, until: float) -> Explanation:
        """Why a waiting job waits, with the nodes that have room and its expected start."""
        if self._forecast is None:
            still = [j for j in self.order if j.id not in self.books.running]
            self._forecast = Forecast(still, self.books, self.ends, self.now)
        start, frees = self._forecast.start(job.id)
        fits = np.sum([self.books.fits(shape) for _, shape in job.groups], axis=0)
        nodes = [self.books.nodes.names[n] for n in np.flatnonzero(fits)]
        return Explanation(
            job.id, constraint, tuple(nodes), since, until, frees, start, *self.cause(job)
        )


@dataclass
class Waits:
    """Waiting jobs after a round, and their reasons: for schedulers of all jobs at once."""

    since: dict[str, tuple[str, float]] = field(default_factory=dict)
    _last: Round | None = field(default=None, init=False)
    _otherwise: tuple[str, float] = field(default=("", math.inf), init=False)

    def look(
        self, jobs: Iterable[Job], books: Books, now: float, otherwise: str, until: float
    ) -> None:
        """Take over the jobs that still wait, and the books, after a round.

        ``otherwise`` is why one waits that would have room, and ``until`` when that ends.
        """
        order = sorted(jobs, key=lambda job: job.row)
        names = {job.id for job in order}
        self.since = {name: reason for name, reason in self.since.items() if name in names}
        # Requests are true here: these schedulers have no predictions.
        ends = {r.job.id: r.begun + r.job.limit for r in books.running.values()}
        self._last, self._otherwise = Round(books, now, ends, order), (otherwise, until)

    def explain(self, name: str) -> Explanation:
        """Why a job waits; raises UnknownName for one that did not after the last round."""
        state = self._last
        if state is None:
            raise UnknownName("waiting job", name, [])
        job, time = state.waiting(name), state.now
        constraint, until = (
            state.capped(job)
            or state.closed(job)
            or no_room(job, state.books, state.ends, time)
            or self._otherwise
        )
        if self.since.get(name, ("", 0.0))[0] != constraint:
            self.since[name] = constraint, time
        return state.explanation(job, constraint, self.since[name][1], max(until, time))
