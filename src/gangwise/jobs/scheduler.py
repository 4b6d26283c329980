"""The contract of a scheduler, and schedulers put together from parts by name.

``fcfs+easy+best-fit`` is an order of the queue, a kind of backfilling and a choice of nodes. What
is left out of a name is ``none`` and ``best-fit``. Parts of your own get a name with
:func:`register_part` and then work like the built-in ones, in plain Python.
"""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np

from gangwise.core.contracts import configuration
from gangwise.core.errors import ScenarioError, UnknownName
from gangwise.core.registry import ANY, create, entries, parse
from gangwise.jobs import rate_kernels
from gangwise.jobs.books import Ask, Books, Explanation, Place, Preempt, Queue, Rate, Running
from gangwise.jobs.choice import FGD, BestFit, ByRate, FirstFit, WorstFit
from gangwise.jobs.explanations import Forecast, no_room
from gangwise.jobs.model import Job, Nodes
from gangwise.jobs.queues import (
    WFP3,
    EarliestDeadline,
    FairShare,
    FirstCome,
    Plan,
    Priority,
    ShortestFirst,
    reservation,
)
from gangwise.jobs.rates import UNLABELLED, Labels, MeanRates, SharedFactors

Action = Place | Preempt | Ask
Part = Literal["queue", "backfilling", "choice"]


class Scheduler(Protocol):
    """Decides who starts where. Its constructor's arguments are its whole configuration.

    It pickles at any moment and never sees work, rates or the future. One that has an attribute
    ``learns`` which is false is told of no rates; measurements open rounds.
    """

    def resize(self, nodes: Nodes, job_types: Sequence[str]) -> None:
        """Nodes or job types are (now) these; what was learned stays."""

    def place(self, queue: Queue, books: Books, now: float) -> Sequence[Action]:
        """One round of decisions, after all events of an instant. Gangs are placed whole."""

    def observe(self, rate: Rate) -> None:
        """Hear a measurement of anyone's placement: late, doubled, out of order, or never."""

    def explain(self, job: str) -> Explanation:
        """Why a job of the last round's queue still waits."""


def _jointly() -> Any:
    """Solvers of integer programmes take a while to load: only for who asks for them."""
    from gangwise.jobs.joint import Joint

    return Joint(SharedFactors(), waits=True)


_parts: dict[Part, dict[str, Callable[[], Any]]] = {
    "queue": {
        "fcfs": FirstCome,
        "sjf": ShortestFirst,
        "edf": EarliestDeadline,
        "priority": Priority,
        "fair-share": FairShare,
        "wfp3": WFP3,
    },
    "backfilling": {
        "none": lambda: "none",
        "easy": lambda: "easy",
        "conservative": lambda: "conservative",
    },
    "choice": {
        "first-fit": FirstFit,
        "best-fit": BestFit,
        "worst-fit": WorstFit,
        "fgd": FGD,
        "label": lambda: ByRate("labels"),
        "oracle": lambda: ByRate("oracle", waits=True),
        "labels": lambda: ByRate(Labels()),
        "ucb": lambda: ByRate(MeanRates()),
        "learned": lambda: ByRate(SharedFactors(), waits=True),
        "learned-moving": lambda: ByRate(SharedFactors(), waits=True, look=600.0),
        "learned-jointly": _jointly,
        "learned-unlabelled": lambda: ByRate(SharedFactors(UNLABELLED), waits=True),
        "oracle-moving": lambda: ByRate("oracle", waits=True, look=600.0),
        "labels-moving": lambda: ByRate(Labels(), waits=True, look=600.0),
    },
}


def parts(part: Part) -> list[str]:
    """Names of a part."""
    return list(_parts[part])


def register_part(part: Part, name: str, make: Callable[[], Any]) -> None:
    """Give a part of your own a name.

    Parameters
    ----------
    part : {"queue", "backfilling", "choice"}
        See :class:`gangwise.jobs.queues.Order` and :class:`gangwise.jobs.choice.Choice`.
    make : callable
        Gives a new one; a class will do.

    Raises
    ------
    ScenarioError
        When any part has the name already.
    """
    for known in _parts.values():
        if name in known and known[name] is not make:
            raise ScenarioError(f"{name!r} is the name of another part; choose one of its own")
    _parts[part][name] = make


@dataclass
class _Round:
    """What the last round left, for explanations."""

    books: Books
    now: float
    ends: dict[str, float]
    waiting: dict[str, Job]
    order: list[Job]
    head: str | None = None
    promised: float = np.inf
    delays: set[str] = field(default_factory=set)
    forecast: Forecast | None = None

    def expected(self, job: str) -> tuple[float, tuple[str, ...]]:
        """When a waiting job is expected to start, and whose end lets it."""
        if self.forecast is None:
            still = [other for other in self.order if other.id not in self.books.running]
            self.forecast = Forecast(still, self.books, self.ends, self.now)
        return self.forecast.start(job)


@dataclass
class Composed:
    """A scheduler of three parts.

    Parameters
    ----------
    queue : Order
    backfilling : {"none", "easy", "conservative"}
    choice : Choice
    depth : int
        How many jobs behind the first that cannot start backfilling looks at.
    limits : {"wall-clock", "work"}
        What requested limits are: seconds of the clock, or seconds at rate 1.
    restart : float
        Seconds that a job which moves is known to lose.
    """

    queue: Any = field(default_factory=FirstCome)
    backfilling: str = "none"
    choice: Any = field(default_factory=BestFit)
    depth: int = 10_000
    limits: str = "wall-clock"
    restart: float = 0.0
    _seen: dict[str, float] = field(default_factory=dict, init=False, repr=False)
    _measured: set[str] = field(default_factory=set, init=False, repr=False)
    _before: dict[str, float] = field(default_factory=dict, init=False, repr=False)
    _asked: dict[str, float] = field(default_factory=dict, init=False, repr=False)
    _names: tuple[str, ...] = field(default=(), init=False, repr=False)
    _plan: Plan = field(default_factory=Plan, init=False, repr=False)
    _why: dict[str, tuple[str, float]] = field(default_factory=dict, init=False, repr=False)
    _last: _Round | None = field(default=None, init=False, repr=False)

    def resize(self, nodes: Nodes, job_types: Sequence[str]) -> None:
        """Bind the choice to nodes and job types; reservations on nodes still there are kept."""
        here = {name: n for n, name in enumerate(nodes.names)}
        self._plan.move({n: here[name] for n, name in enumerate(self._names) if name in here})
        self._names = nodes.names
        if hasattr(self.choice, "resize"):
            self.choice.resize(nodes, tuple(job_types))

    @property
    def learns(self) -> bool:
        """Whether anything here listens to rates."""
        if isinstance(self.choice, ByRate):
            return bool(self.choice.rates != "labels")
        return hasattr(self.choice, "observe")

    @property
    def look(self) -> float:
        """Seconds between looks at running jobs, of which some may move; inf for none."""
        return float(getattr(self.choice, "look", np.inf))

    def observe(self, rate: Rate) -> None:
        """Learn a rate."""
        if rate.ended:
            self._measured.discard(rate.job.id)
            self._before.pop(rate.job.id, None)
        else:
            self._measured.add(rate.job.id)
        self._seen[rate.job.id] = min(rate.rates)
        if hasattr(self.choice, "observe"):
            self.choice.observe(rate)

    def place(self, queue: Queue, books: Books, now: float) -> list[Action]:
        """Start in order until one cannot; then backfill."""
        self._take_in(books)
        self.queue.take_in(books)
        if hasattr(self.choice, "take_in"):
            self.choice.take_in(books)
        trial = books.copy()
        actions: list[Action] = []
        keys = self.queue.keys(queue, books, now)
        jobs = list(queue)  # by submission and row already: ties stay so
        order = [jobs[i] for i in np.argsort(keys, kind="stable").tolist()]
        ends = self._expected_ends(trial, now)
        head: Job | None = None
        promised, then = np.inf, None
        tested = 0
        waiting = len(order)
        self._last = _Round(trial, now, ends, {job.id: job for job in order}, order)
        if self.backfilling == "conservative":
            return self._conservative(order, trial, ends, now)
        if hasattr(self.choice, "prepare"):
            self.choice.prepare(order, trial, now)
        for job in order:
            if head is not None:
                if tested >= self.depth:
                    break
                tested += 1
            chosen = self.choice.place(job, trial, now)
            if chosen is None:
                if head is None:
                    head = job
                    self._last.head = job.id
                    if self.backfilling == "none":
                        break
                    if self.limits == "work":  # of those just started, too
                        ends.update(self._expected_ends(trial, now))
                    promised, then = reservation(job, trial, ends, now)
                    self._last.promised = promised
                continue
            pieces = trial.tell_apart(job.shape, chosen)
            end = now + job.limit / self._rate(job, chosen, now)
            past = then if end > promised else None
            if past is not None and head is not None:
                past.take(job.shape, pieces)
                if int(past.fits(head.shape).sum()) < head.tasks:
                    past.take(job.shape, pieces, sign=1)
                    self._last.delays.add(job.id)
                    continue
            if self._holds_off(job, chosen, trial, waiting, now, actions):
                if past is not None:
                    past.take(job.shape, pieces, sign=1)
                continue
            trial.take(job.shape, pieces)
            trial.running[job.id] = Running(job, pieces, now, 0.0)
            ends[job.id] = end
            self._seen[job.id] = self._rate(job, chosen, now, seen=True)
            self._asked.pop(job.id, None)
            self.queue.started(job, books, now)
            waiting -= 1
            actions.append(Place(job.id, tuple(chosen), pieces))
        return actions

    def _take_in(self, books: Books) -> None:
        """Forget who is gone; what was planned on nodes that came or went is void."""
        for event in books.events:
            if event.kind.startswith("node"):
                self._plan.slots.clear()
            elif event.job is not None and (event.over or event.released):
                self._measured.discard(event.job.id)
                if event.over:
                    for kept in (self._seen, self._before, self._asked, self._why):
                        kept.pop(event.job.id, None)

    def migrations(self, books: Books, now: float) -> list[Action]:
        """Moves of running jobs that save more than they cost; asked for while nobody waits."""
        choice = self.choice
        if not isinstance(choice, ByRate):
            return []
        self.queue.take_in(books)
        choice.take_in(books)
        trial = books.copy()
        actions: list[Action] = []
        for name, running in sorted(trial.running.items(), key=lambda item: item[1].job.row):
            job = running.job
            if name not in self._measured or now <= running.begun + running.overhead:
                continue
            seen = self._seen[name]
            done = self._done(running, now)
            if rate_kernels.remaining(choice.state, job.limit, done) <= seen * self.restart:
                continue
            chosen = choice.place(job, trial, now)
            if chosen is None or not choice.moves(
                job, running.pieces, chosen, seen, done, self.restart, now
            ):
                continue
            pieces = trial.tell_apart(job.shape, chosen)
            trial.take(job.shape, running.pieces, sign=1)
            trial.take(job.shape, pieces)
            if choice.rates != "labels":
                rate_kernels.age(choice.state, now)  # as giving devices back does
            trial.running[name] = Running(job, pieces, now, self.restart)
            self._seen[name] = self._rate(job, chosen, now, seen=True)
            self._before[name] = done
            self._measured.discard(name)
            self.queue.started(job, books, now)
            actions += [Preempt(name), Place(name, tuple(chosen), pieces)]
        return actions

    def _done(self, running: Running, now: float) -> float:
        """Work that a running job has done: seconds × the rate seen."""
        gone = max(now - running.begun - running.overhead, 0.0)
        before = self._before.get(running.job.id, 0.0)
        return before + gone * self._seen.get(running.job.id, 1.0)

    def _conservative(
        self, order: list[Job], books: Books, ends: dict[str, float], now: float
    ) -> list[Action]:
        """A reservation for every job; those that are due and find their nodes free start."""
        actions: list[Action] = []
        changes = self._plan.ahead(order, books, ends, now)
        self._plan.slots = {j.id: self._plan.slots[j.id] for j in order if j.id in self._plan.slots}
        opened = books.copy()  # what was free as the round began; the changes hold the rest
        for job in order[: self.depth]:
            slot, _ = self._plan.slots.get(job.id, (np.inf, ()))
            due = slot <= now
            time, chosen, pieces = self._plan.earliest(
                job, opened, changes, self.choice, now, np.inf if due else slot
            )
            if chosen is None and not due:
                continue
            changes = [c for c in changes if c[2].id != job.id]
            self._plan.slots.pop(job.id, None)
            if chosen is None:
                continue
            books.take(job.shape, pieces)
            on = [n for n, _, _ in pieces]
            able = bool((books.free[on] >= 0).all() and (books.device[on] >= 0).all())
            end = time + job.limit
            if time <= now and able:
                self.queue.started(job, books, now)
                books.running[job.id] = Running(job, pieces, now, 0.0)
                ends[job.id] = end
                actions.append(Place(job.id, tuple(chosen), pieces))
                changes += [(now, 1, job, pieces), (max(end, now), 0, job, pieces)]
                continue
            books.take(job.shape, pieces, sign=1)
            self._plan.slots[job.id] = time, pieces
            if job.limit > 0.0:
                changes += [(time, 1, job, pieces), (end, 0, job, pieces)]
        return actions

    def explain(self, job: str) -> Explanation:
        """Why a job waits, from the books as the last round left them.

        Raises
        ------
        UnknownName
            For a job that did not wait in the last round.
        """
        last = self._last
        if last is None or job not in last.waiting or job in last.books.running:
            known = [] if last is None else [j for j in last.waiting if j not in last.books.running]
            raise UnknownName("waiting job", job, known)
        asked = last.waiting[job]
        constraint, until, nodes = self._held_back(asked, last)
        before, since = self._why.get(job, (constraint, asked.submitted))
        self._why[job] = constraint, (since if before == constraint else last.now)
        names = tuple(last.books.nodes.names[n] for n in nodes)
        start, frees = last.expected(job)
        if job in self._plan.slots:
            start = max(self._plan.slots[job][0], last.now)
        return Explanation(job, constraint, names, self._why[job][1], until, frees, start)

    def _held_back(self, job: Job, last: _Round) -> tuple[str, float, list[int]]:
        """The constraint, when it is expected to end, and nodes with room for a task."""
        books, now = last.books, last.now
        fits = books.fits(job.shape)
        nodes = np.flatnonzero(fits).tolist()
        if job.id in self._plan.slots:
            return "its reservation is for later", max(self._plan.slots[job.id][0], now), nodes
        if (lacks := no_room(job, books, last.ends, now)) is not None:
            return *lacks, nodes
        if job.id in self._asked:
            return "better nodes are expected soon", self._asked[job.id], nodes
        if job.id in last.delays:
            return f"it would delay job {last.head}, which is first in line", last.promised, nodes
        if last.head is not None:
            return f"job {last.head} is first in line", max(last.promised, now), nodes
        return "not looked at in this round", np.inf, nodes

    def _expected_ends(self, books: Books, now: float) -> dict[str, float]:
        """Of running jobs, by their requested limits."""
        if self.limits == "wall-clock":
            return {name: r.begun + r.job.limit for name, r in books.running.items()}
        ends = {}
        state = getattr(self.choice, "state", None)
        for name, running in books.running.items():
            seen = self._seen.get(name, 1.0)
            done = self._done(running, now)
            left = (
                max(running.job.limit - done, 0.0)
                if state is None
                else rate_kernels.remaining(state, running.job.limit, done)
            )
            ends[name] = now + left / seen
        return ends

    def _rate(self, job: Job, chosen: Any, now: float, seen: bool = False) -> float:
        """Believed rate of a candidate; 1 where limits are wall-clock or nothing is believed."""
        if (self.limits == "wall-clock" and not seen) or not isinstance(self.choice, ByRate):
            return 1.0
        return self.choice.rate(job, chosen, now)

    def _holds_off(
        self, job: Job, chosen: Any, trial: Books, waiting: int, now: float, actions: list[Action]
    ) -> bool:
        if not isinstance(self.choice, ByRate):
            return False
        seconds = self.choice.holds_off(job, chosen, trial, waiting, now)
        if seconds <= 0.0:
            return False
        if not now < self._asked.get(job.id, -np.inf) <= now + seconds:
            self._asked[job.id] = now + seconds
            actions.append(Ask(job.id, now + seconds))
        return True


def create_scheduler(name: str | Any, **options: Any) -> Any:
    """Build a scheduler by name; one that is a scheduler already is given back.

    Examples
    --------
    >>> create_scheduler("fcfs+easy+best-fit").backfilling
    'easy'
    >>> create_scheduler("gavel:objective=total,seconds=1800").objective
    'total'
    >>> create_scheduler("fcfs+esay")
    Traceback (most recent call last):
    gangwise.core.errors.UnknownName: there is no scheduler or part of one named 'esay'; did...
    """
    return create("scheduler", name, **options) if isinstance(name, str) else name


def composed(name: str, **options: Any) -> Composed:
    """A scheduler of named parts: ``fcfs+easy+best-fit:depth=100``."""
    words, given = parse(name)
    chosen: dict[Part, Any] = {}
    for word in words.split("+"):
        word = word.strip()
        for part, known in _parts.items():
            if word in known:
                if part in chosen:
                    raise ScenarioError(f"{name!r} names two parts of one kind ({part})")
                chosen[part] = known[word]()
                break
        else:
            whole = [entry for entry in entries("scheduler") if entry != ANY]
            parts_known = [w for known in _parts.values() for w in known]
            raise UnknownName("scheduler or part of one", word, parts_known + whole)
    accepted = [f.name for f in dataclasses.fields(Composed) if f.init and f.name not in _parts]
    for argument in given | options:
        if argument not in accepted:
            raise UnknownName(f"argument of scheduler {words!r}", argument, accepted)
    return Composed(**chosen, **{**given, **options})


def fresh(value: Any) -> Any:
    """A scheduler, or a part of one, with the same configuration and no memory."""
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    return type(value)(**{name: fresh(each) for name, each in configuration(value).items()})


def copy_of(scheduler: Any) -> Any:
    """Another with the same configuration and state."""
    return pickle.loads(pickle.dumps(scheduler))
