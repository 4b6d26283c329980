"""The contract of a scheduler, and schedulers put together from parts by name.

``fcfs+easy+best-fit`` is an order of the queue, a kind of backfilling and a choice of nodes. What
is left out of a name is ``none`` and ``best-fit``. Parts of your own get a name with
:func:`gangwise.jobs.register_part` and then work like the built-in ones; they decide in Python.
"""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, Protocol

import numpy as np

from gangwise.catalogue import PARTS, parts_named
from gangwise.core.arrays import Checked, NonNegative
from gangwise.core.contracts import configuration
from gangwise.core.errors import ScenarioError, UnknownName
from gangwise.core.registry import create, parse
from gangwise.jobs import choice as choices
from gangwise.jobs import queues, rate_kernels
from gangwise.jobs.books import Ask, Books, Explanation, Place, Preempt, Queue, Rate, Running
from gangwise.jobs.model import Job, Nodes
from gangwise.jobs.run_times import Expectations, RunTimes, expect, nothing, state_of
from gangwise.jobs.tenancy import Tally

Action = Place | Preempt | Ask


class Scheduler(Protocol):
    """Decides who starts where. Its constructor's arguments are its whole configuration.

    It pickles at any moment and never sees work, rates or the future. One that has an attribute
    ``learns`` which is false hears of no rates; measurements open rounds. Jobs of groups of
    unlike tasks are set aside unless it has an attribute ``groups`` which is true.
    """

    def resize(self, nodes: Nodes, job_types: Sequence[str]) -> None:
        """Nodes or job types are (now) these; what was learned stays."""

    def place(self, queue: Queue, books: Books, now: float) -> Sequence[Action]:
        """One round of decisions, after all events of an instant. Gangs are placed whole."""

    def observe(self, rate: Rate) -> None: ...

    def explain(self, job: str) -> Explanation:
        """Why a job of the last round's queue still waits."""


# Checkpoints of a service that were written before keep these under their old names.
_Round, _Head = queues.Round, queues.Head


@dataclass
class Composed(Checked):
    """A scheduler of three parts.

    Parameters
    ----------
    queue : Order
    backfilling : {"none", "easy", "conservative", "kamelot"}
        ``kamelot`` plans for every waiting job, as conservative backfilling does, but plans anew in
        each round, and reads the ends of running jobs as OAR does (:func:`.queues.kamelot_ends`).
    choice : Choice
    depth : int
        How many jobs behind the first that cannot start backfilling looks at.
    limits : {"wall-clock", "work"}
        What requested limits are: seconds of the clock, or seconds at rate 1.
    restart : float
        Seconds that a job which moves is known to lose.
    ends : {"requested", "learned", "true"}, optional
        What running jobs and those that may pass are expected to take, and what orders by length
        look at. Not given: learned where rates are learned, too, and limits are of the clock.
        ``true`` is an oracle.
    passing : {"queue", "shortest"}, optional
        In which order EASY tries those who may pass. Not given: shortest where ends are learned.
    times : str
        Predictor of run times, see :data:`gangwise.jobs.run_times.KINDS`.
    correction : {"request", "steps"}
        What is expected of a job that outlives its prediction: all that it asked for, or Tsafrir's
        steps.
    slack : float
        Seconds, with ends that are not requested. Who is first in line keeps the start that it can
        have if all others take what they asked for, and so much more, but no more than as long
        again as it will have waited then. Those who pass may not move it back further. inf:
        nothing is kept.
    security : float
        Seconds that ``kamelot`` adds to each limit, of running and of waiting jobs: OAR's
        SCHEDULER_JOB_SECURITY_TIME.
    """

    queue: Any = field(default_factory=queues.FirstCome)
    backfilling: str = "none"
    choice: Any = field(default_factory=choices.BestFit)
    depth: int = 10_000
    limits: str = "wall-clock"
    restart: float = 0.0
    ends: Literal["requested", "learned", "true"] | bool | None = None
    passing: Literal["queue", "shortest"] | None = None
    times: str = "ratio"
    correction: Literal["request", "steps"] = "request"
    slack: Annotated[float, "[0, inf]"] = 21_600.0
    security: NonNegative = 60.0
    groups: ClassVar[bool] = True  # of unlike tasks are placed
    # Whether jobs are killed at their limits: the simulation says so.
    enforced: bool = field(default=False, init=False, repr=False)
    _seen: dict[str, float] = field(default_factory=dict, init=False, repr=False)
    _measured: set[str] = field(default_factory=set, init=False, repr=False)
    _before: dict[str, float] = field(default_factory=dict, init=False, repr=False)
    _asked: dict[str, float] = field(default_factory=dict, init=False, repr=False)
    _names: tuple[str, ...] = field(default=(), init=False, repr=False)
    _plan: queues.Reservations = field(default_factory=queues.Reservations, init=False, repr=False)
    _why: dict[str, tuple[str, float]] = field(default_factory=dict, init=False, repr=False)
    _last: queues.Round | None = field(default=None, init=False, repr=False)
    _times: Expectations = field(default_factory=Expectations, init=False, repr=False)
    _begun: dict[str, float] = field(default_factory=dict, init=False, repr=False)
    _kept: dict[str, float] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        self.ends = "true" if self.ends is True else self.ends  # as `ends=true` in a name is read
        self.slack, self.security = float(self.slack), float(self.security)
        super().__post_init__()
        if self.backfilling == "kamelot" and not isinstance(self.queue, queues.FirstCome):
            raise ScenarioError("kamelot plans in the order of submission: take fcfs with it")
        if self.ends in ("learned", "true") and self.plans_all:
            raise ScenarioError(
                "conservative backfilling promises a start to everybody, which ends that are not "
                "requested cannot keep: take easy, or ends=requested"
            )
        self._times = Expectations.of(self.times, self.correction == "steps")

    @property
    def plans_all(self) -> bool:
        """Whether every waiting job has a planned start."""
        return self.backfilling in ("conservative", "kamelot")

    @property
    def expects(self) -> tuple[str, str]:
        """The values of ``ends`` and ``passing``, chosen where they were not given."""
        learns = (
            isinstance(self.choice, choices.ByRate)
            and type(self.choice.rates) is choices.SharedFactors
        )
        # Run times are learned in seconds of the clock, and reservations bind for what was
        # requested.
        able = self.limits == "wall-clock" and not self.plans_all
        ends = str(self.ends or ("learned" if learns and able else "requested"))
        # qssf is smallest area first by learned run times, so it never goes by requests.
        if getattr(self.queue, "name", "") == "qssf" and ends == "requested" and able:
            ends = "learned"
        if ends != "requested" and not able:
            raise ScenarioError(f"ends={ends} needs limits that are seconds of the clock")
        return ends, self.passing or ("shortest" if ends != "requested" else "queue")

    def run_times(self, tables: Any) -> RunTimes:
        """The run-time predictor that a compiled play begins with, from its Tables."""
        ends, _ = self.expects
        if ends == "requested":
            return nothing()
        t, kind = tables, self.times if ends == "learned" else "true"
        demand, dominant = t.cluster.demand, t.cluster.shapes["dominant"]
        devices = demand[np.arange(len(demand)), dominant] / 1000.0
        # Where limits kill, an oracle knows that a job ends there at the latest.
        most = np.where(t.options.enforced & t.jobs.requested, t.jobs.limit, np.inf)
        truth, size = np.minimum(t.work, most), t.jobs.tasks * devices[t.jobs.shape]
        return state_of(t.jobs, kind, size, truth, self.correction == "steps")

    def reveal(self, tables: Any) -> None:
        """The oracle alone is shown true run times: by the simulation, nowhere else."""
        jobs = tables.jobs
        self._times = Expectations(self.run_times(tables))
        for j in range(len(jobs)):
            self._times.row[str(jobs.id[j])] = j
            self._times.r.expected[j] = expect(self._times.r, j, 0.0)

    @classmethod
    def named(cls, name: str, **options: Any) -> Composed:
        """A scheduler by the names of its parts, such as ``fcfs+easy+best-fit:depth=100``."""
        words, arguments = parse(name)
        chosen = parts_named(words)
        accepted = [f.name for f in dataclasses.fields(cls) if f.init and f.name not in PARTS]
        for argument in arguments | options:
            if argument not in accepted:
                raise UnknownName(f"argument of scheduler {words!r}", argument, accepted)
        made = {part: PARTS[part][word]() for part, word in chosen.items()}
        return cls(**made, **{**arguments, **options})

    def resize(self, nodes: Nodes, job_types: Sequence[str]) -> None:
        """Bind the choice to nodes and job types; reservations on nodes still there are kept."""
        # Reservations name nodes by their places, which may be others now.
        number = {name: n for n, name in enumerate(nodes.names)}
        self._plan.move({n: number[name] for n, name in enumerate(self._names) if name in number})
        self._names = nodes.names
        if isinstance(self.choice, choices.ByRate):
            self.choice.walled = self.enforced and self.limits == "wall-clock"
        if isinstance(self.queue, queues.Multifactor):
            _ = self.queue.standing  # it must be bound
        if hasattr(self.choice, "resize"):
            self.choice.resize(nodes, tuple(job_types))

    @property
    def learns(self) -> bool:
        """Whether any part learns from rates."""
        if isinstance(self.choice, choices.ByRate):
            return bool(self.choice.rates != "labels")
        return hasattr(self.choice, "observe")

    @property
    def look(self) -> float:
        """Seconds between looks at running jobs, of which some may move; inf for none."""
        return float(getattr(self.choice, "look", np.inf))

    def observe(self, rate: Rate) -> None:
        if rate.ended:
            self._measured.discard(rate.job.id)
            self._before.pop(rate.job.id, None)
        else:
            self._measured.add(rate.job.id)
        self._seen[rate.job.id] = min(rate.rates)
        if hasattr(self.choice, "observe"):
            self.choice.observe(rate)

    def place(self, queue: Queue, books: Books, now: float) -> list[Action]:
        """One round: jobs start in order until one cannot, then backfilling."""
        # What happened since the last round is taken in before anything is decided.
        self._take_in(books)
        self._learn(books)
        self.queue.take_in(books)
        if hasattr(self.choice, "take_in"):
            self.choice.take_in(books)
        trial = books.copy()
        actions: list[Action] = []
        wanted, passing = self.expects
        if wanted != "requested":
            queue = Queue([self._times.expected(job) for job in queue])
        # Waiting jobs come by submission and row, and ties of keys stay so.
        keys = np.argsort(self.queue.keys(queue, books, now), kind="stable")
        order = [queue[i] for i in keys.tolist()]
        ends = self._expected_ends(trial, now)
        # All that follows is tried on a copy: the books are the caller's.
        tested, waiting = 0, len(order)
        self._last = state = queues.Round(trial, now, ends, order)
        tally = trial.tally()
        if self.plans_all:
            return self._conservative(order, trial, ends, now, tally)
        for job in state.in_turn(passing == "shortest" and self.backfilling == "easy"):
            if tally.holds(job) is not None:
                # Its cap is full: it neither starts nor becomes the first in line.
                continue
            line = state.line(job)
            # In its closed hours a job cannot start. Under EASY the first such one is promised a
            # start, too.
            if line[1]:
                if self.backfilling == "easy" and line not in state.heads:
                    state.heads[line] = self._first(job, trial, ends, now)
                continue
            # Somebody is first in line and cannot start: from here on, jobs pass it or wait.
            front = state.in_front(job)
            if state.heads:
                if front and self.backfilling == "none":
                    if not trial.nodes.pools:
                        break
                    continue
                # As Slurm's bf_max_job_test: jobs behind so many are not looked at.
                if tested >= self.depth:
                    break
                tested += 1
            placement = choices.placed(self.choice, job, trial, now)
            if placement is None:
                if line not in state.heads:
                    state.heads[line] = self._first(job, trial, ends, now)
                continue
            chosen, pieces = placement
            # A job may pass if what each promise needs is still free at its instant with this job
            # there.
            end = now + job.length / self._rate(job, chosen, now)
            past = [pair for head in front for pair in head.overstayed(job, end, now)]
            for _, room in past:
                room.take(job.shape, pieces)
            delayed = [h for h, room in past if not room.has_room(h.job)]
            if delayed:
                state.delays[job.id] = delayed[0]
            elif not self._holds_off(job, chosen, trial, waiting, now, actions):
                past = []
                trial.take(job.shape, pieces)
                tally.take(job)
                ends[job.id] = end
                self._asked.pop(job.id, None)
                waiting -= 1
                actions.append(self._started(job, chosen, pieces, trial, now))
            # It did not start: what was tried in the books of promises is given back.
            for _, room in past:
                room.take(job.shape, pieces, sign=1)
        return actions

    def _first(self, job: Job, books: Books, ends: dict[str, float], now: float) -> queues.Head:
        """The first job in line, with its promised start under EASY."""
        head = queues.Head(job)
        if self.backfilling == "easy":
            if self.limits == "work":  # of those just started, too
                ends.update(self._expected_ends(books, now))
            head.promised, head.then = queues.reservation(job, books, ends, now)
            if self.expects[0] != "requested" and self.slack < np.inf:
                head.kept, head.later = self._keep(job, books, now)
        return head

    def _keep(self, head: Job, books: Books, now: float) -> tuple[float, Books | None]:
        """The latest start kept for the first in line if requests are true, and the books then.

        It is set when the job is first in line for the first time.
        """
        # By requests, which jobs cannot outlive where limits are enforced: the start that is
        # certain.
        ends = {name: r.begun + queues.request_of(r.job) for name, r in books.running.items()}
        instant, later = queues.reservation(head, books, ends, now)
        if later is None or instant == np.inf:
            return np.inf, None
        # Late by no more than the slack, and by no more than doubles the wait.
        latest = instant + min(self.slack, instant - head.submitted)
        latest = self._kept.setdefault(head.id, books.opens(head, latest))
        # At the later instant more jobs have given their devices back.
        if latest > instant:
            later = books.copy()
            for name, running in books.running.items():
                if ends[name] <= latest:
                    later.take(running.job.shape, running.pieces, sign=1)
        return max(latest, instant), later

    def _learn(self, books: Books) -> None:
        """Predict run times of submitted jobs, and learn from those that ended."""
        if self.expects[0] != "learned":
            return
        for event in books.events:
            if (job := event.job) is None:
                continue
            if event.kind == "submitted":
                devices = job.shape.demand[books.dominant(job.shape)] / 1000.0
                self._times.submitted(job, job.tasks * devices, event.time)
            elif event.kind == "started":
                self._begun[job.id] = event.time
            elif event.released:
                begun = self._begun.pop(job.id, None)
                # Only of an attempt whose start was seen is the length known.
                if begun is not None and event.over:
                    finished = event.kind == "finished"
                    self._times.ended(job, event.time - begun, finished, event.time)
            if event.over:
                self._times.forget(job)

    def _started(
        self, job: Job, chosen: Any, pieces: Any, books: Books, now: float, overhead: float = 0.0
    ) -> Place:
        """Enter a start or a move in the books of this round, and give its action."""
        books.running[job.id] = Running(job, pieces, now, overhead)
        self._seen[job.id] = self._rate(job, chosen, now, seen=True)
        self.queue.started(job, books, now)
        return Place(job.id, tuple(chosen), pieces)

    def _take_in(self, books: Books) -> None:
        """Forget jobs that are gone, and all reservations when nodes come or go."""
        for event in books.events:
            # Reservations name nodes that may be gone, or miss some that came.
            if event.kind.startswith("node"):
                self._plan.slots.clear()
            elif event.job is not None and (event.over or event.released):
                self._measured.discard(event.job.id)
                if event.over:
                    for notes in (self._seen, self._before, self._asked, self._why, self._kept):
                        notes.pop(event.job.id, None)

    def migrations(self, books: Books, now: float) -> list[Action]:
        """Moves of running jobs that save more than they cost; asked for while no job waits."""
        choice = self.choice
        if not isinstance(choice, choices.ByRate):
            return []
        self._learn(books)
        self.queue.take_in(books)
        choice.take_in(books)
        trial = books.copy()
        actions: list[Action] = []
        # By row, so that the order of a dictionary decides nothing.
        for name, running in sorted(trial.running.items(), key=lambda item: item[1].job.row):
            job = running.job
            # Of a job that has not worked since it was measured nothing is known that could make it
            # move.
            if name not in self._measured or now <= running.begun + running.overhead:
                continue
            rate = self._seen[name]
            work = self._done(running, now)
            # It ends before a restart would be over.
            if rate_kernels.remaining(choice.state, job.limit, work) <= rate * self.restart:
                continue
            # Placed while it still holds its own devices: a move does not count on them.
            placement = choices.placed(choice, job, trial, now)
            if placement is None or not choice.moves(
                job, running.pieces, placement[0], rate, work, self.restart, now
            ):
                continue
            chosen, pieces = placement
            trial.take(job.shape, running.pieces, sign=1)
            trial.take(job.shape, pieces)
            if choice.rates != "labels":
                rate_kernels.age(choice.state, now)  # as giving devices back does
            # From now on it is a new attempt, which has yet to be measured.
            self._before[name] = work
            self._measured.discard(name)
            place = self._started(job, chosen, pieces, trial, now, self.restart)
            actions += [Preempt(name), place]
        return actions

    def _done(self, running: Running, now: float) -> float:
        """Work done by a running job: seconds × the measured rate."""
        # Seconds of this attempt, without those that its restart cost.
        seconds = max(now - running.begun - running.overhead, 0.0)
        earlier = self._before.get(running.job.id, 0.0)
        return earlier + seconds * self._seen.get(running.job.id, 1.0)

    def _conservative(
        self, order: list[Job], books: Books, ends: dict[str, float], now: float, tally: Tally
    ) -> list[Action]:
        """A round of conservative backfilling: a reservation for each job, and the starts due now.

        Some that are due may stand in each other's way, where jobs outlived their requests. If
        nothing runs then and nothing starts, no end would bring another round: all are void.
        """
        actions: list[Action] = []
        stuck = False
        planned_ends = ends
        if self.backfilling == "kamelot":
            self._plan.slots.clear()
            self._plan.security = self.security
            # Security of OAR also applies to running jobs.
            later = {name: end + self.security for name, end in ends.items()}
            planned_ends = queues.kamelot_ends(books, later, now)
        changes = self._plan.ahead(order, books, planned_ends, now)
        self._plan.slots = {j.id: self._plan.slots[j.id] for j in order if j.id in self._plan.slots}
        # Each job looks for the earliest time among all changes but its own, so no reservation
        # moves back.
        # Trials take from `books`, so the state at the beginning is kept apart.
        opened = books.copy()  # what was free as the round began; the changes hold the rest
        for job in order[: self.depth]:
            if tally.holds(job) is not None:  # it holds no reservation
                if self._plan.slots.pop(job.id, None) is not None:
                    changes = [c for c in changes if c[2].id != job.id]
                continue
            slot, _ = self._plan.slots.get(job.id, (np.inf, ()))
            due = slot <= now
            stuck = stuck or due
            # A due job may take any time; one that is not due only an earlier one than it has.
            time, chosen, pieces = self._plan.earliest(
                job, opened, changes, self.choice, now, np.inf if due else slot
            )
            # No earlier time than its reservation: it keeps that.
            if chosen is None and not due:
                continue
            changes = [c for c in changes if c[2].id != job.id]
            self._plan.slots.pop(job.id, None)
            if chosen is None:
                continue
            books.take(job.shape, pieces)
            on = [n for n, _, _ in pieces]
            # Due jobs may stand in each other's way: only what is free in the books of now can
            # start.
            able = bool((books.free[on] >= 0).all() and (books.device[on] >= 0).all())
            limit = job.limit + self._plan.security
            end = time + limit
            if time <= now and able:
                ends[job.id] = time + job.limit
                tally.take(job)
                actions.append(self._started(job, chosen, pieces, books, now))
                changes += [(now, 1, job, pieces), (max(end, now), 0, job, pieces)]
                continue
            books.take(job.shape, pieces, sign=1)
            self._plan.slots[job.id] = time, pieces
            # A job of limit 0 would take and give back at the same time: no change at all.
            if limit > 0.0:
                changes += [(time, 1, job, pieces), (end, 0, job, pieces)]
        # No end would open another round, so the plan is made anew from nothing.
        if stuck and not books.running:
            self._plan.slots.clear()
            return self._conservative(order, books, ends, now, tally)
        return actions

    def explain(self, job: str) -> Explanation:
        """Why a job waits, from the books as the last round left them.

        Raises UnknownName for a job that did not wait in the last round.
        """
        state = self._last
        if state is None:
            raise UnknownName("waiting job", job, [])
        # Since when: as long as the same reason has held.
        waiting = state.waiting(job)
        constraint, until = self._held_back(waiting, state)
        earlier, since = self._why.get(job, (constraint, waiting.submitted))
        self._why[job] = constraint, (since if earlier == constraint else state.now)
        reason = state.explanation(waiting, constraint, self._why[job][1], until)
        if job in self._plan.slots:
            reason = dataclasses.replace(reason, start=max(self._plan.slots[job][0], state.now))
        return reason

    def _held_back(self, job: Job, last: queues.Round) -> tuple[str, float]:
        """The reason why a job waits, and when that is expected to end."""
        time = last.now
        if (outside := last.capped(job) or last.closed(job)) is not None:
            return outside
        if job.id in self._plan.slots:
            return "its reservation is for later", max(self._plan.slots[job.id][0], time)
        if (lacks := queues.no_room(job, last.books, last.ends, time)) is not None:
            return lacks
        if job.id in self._asked:
            return "better nodes are expected soon", self._asked[job.id]
        if (head := last.delays.get(job.id)) is not None:
            return f"it would delay job {head.job.id}, which is first in line", head.promised
        if front := last.in_front(job):
            return f"job {front[0].job.id} is first in line", max(front[0].promised, time)
        return "not looked at in this round", np.inf

    def _expected_ends(self, books: Books, now: float) -> dict[str, float]:
        """Expected ends of running jobs, as requested or as learned."""
        if self.expects[0] != "requested":
            return {name: self._times.end(r.job, r.begun, now) for name, r in books.running.items()}
        if self.limits == "wall-clock":
            return {name: r.begun + r.job.limit for name, r in books.running.items()}
        # Limits of work: a job ends when what is left is done at the rate seen.
        ends, state = {}, getattr(self.choice, "state", None)
        for name, running in books.running.items():
            limit, work = running.job.limit, self._done(running, now)
            work_left = max(limit - work, 0.0)
            if state is not None:
                work_left = rate_kernels.remaining(state, limit, work)
            ends[name] = now + work_left / self._seen.get(name, 1.0)
        return ends

    def _rate(self, job: Job, chosen: Any, now: float, seen: bool = False) -> float:
        """Believed rate of a candidate; 1 where limits are wall-clock or nothing is believed."""
        if (self.limits == "wall-clock" and not seen) or not isinstance(
            self.choice, choices.ByRate
        ):
            return 1.0
        return self.choice.rate(job, chosen, now)

    def _holds_off(
        self, job: Job, chosen: Any, trial: Books, waiting: int, now: float, actions: list[Action]
    ) -> bool:
        """Whether a job waits for better nodes; it then asks for a round when that ends."""
        if not isinstance(self.choice, choices.ByRate):
            return False
        seconds = self.choice.holds_off(job, chosen, trial, waiting, now)
        if seconds <= 0.0:
            return False
        # It has not asked for a round within that time yet.
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


def name_of(scheduler: Any) -> str:
    if not isinstance(scheduler, Composed):
        return type(scheduler).__name__
    choice = getattr(scheduler.choice, "name", type(scheduler.choice).__name__)
    if isinstance(scheduler.choice, choices.ByRate):
        rates = scheduler.choice.rates
        choice = {"labels": "label"}.get(rates, rates) if isinstance(rates, str) else "learned"
        if scheduler.choice.near is not None:
            choice = "distance" if choice == "learned" else f"distance-{choice}"
    queue = getattr(scheduler.queue, "name", type(scheduler.queue).__name__)
    return f"{queue}+{scheduler.backfilling}+{choice}"


def oar(depth: int = 10_000, security: float = 60.0) -> Composed:
    """OAR with Kamelot as on Grid'5000: first come, first served, on the first nodes that fit."""
    first_fit = choices.FirstFit()
    return Composed(queues.FirstCome(), "kamelot", first_fit, depth, security=security)


def fresh(value: Any) -> Any:
    """A scheduler, or a part of one, with the same configuration and no memory."""
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    return type(value)(**{name: fresh(part) for name, part in configuration(value).items()})


def copy_of(scheduler: Any) -> Any:
    """Another scheduler with the same configuration and state."""
    return pickle.loads(pickle.dumps(scheduler))
