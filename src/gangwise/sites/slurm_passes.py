"""Slurm's scheduling passes: the main loop, and backfilling with its period.

After every event the main loop starts jobs in their order; where one cannot start, the nodes of its
partition take no other in this pass. Backfilling comes at most every ``interval`` seconds: for each
job in order, all anew, the first time at which it fits among running jobs and the reservations made
before it in this pass. A reservation holds whole nodes, whatever part of them the job asks for.
Where the site has preemption, a job that does not fit may take the place of others at once, see
:mod:`gangwise.sites.preemption`. Who is suspended waits for its own nodes, and holds nothing there;
under gang scheduling it holds its cores. Compiled code decides, see
:mod:`gangwise.sites.slurm_kernels`: a whole simulation, or one round for a call of `place`.
https://slurm.schedmd.com/sched_config.html
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from gangwise.core.arrays import Ints, numbered
from gangwise.core.errors import ScenarioError
from gangwise.core.registry import create
from gangwise.jobs import kernels
from gangwise.jobs.books import Ask, Books, Piece, Preempt, Queue
from gangwise.jobs.compiled import initial_state, inputs, only_used, outside, resume, to_the_end
from gangwise.jobs.kernels import RUNNING, WAITING, Inputs, State
from gangwise.jobs.model import Conditions, Job, Jobs, Shape, terms_of
from gangwise.jobs.queue_kernels import copy_of
from gangwise.jobs.queues import BUILT_IN, Round
from gangwise.jobs.schedule import Options, Schedule, Tables
from gangwise.jobs.scheduler import Action, Composed
from gangwise.jobs.tenancy import Tenancy
from gangwise.sites import slurm_kernels, slurm_places
from gangwise.sites.preemption import CANCELLED, STARTED, SUSPENDED, classes_of, gangs
from gangwise.sites.slurm_limits import minutes_of
from gangwise.sites.slurm_places import FutureWindows, Gangs, PassSettings, PassState, Places


class HeldCores(NamedTuple):
    """What a job that runs or is suspended holds under gang scheduling."""

    cores: list[list[int]]  # of each piece, as masks
    end: float  # when it was expected to end, as it was suspended
    ran: float  # seconds, before it was suspended


@dataclass
class SlurmPasses(Composed):
    """A scheduler that passes over its queue as Slurm does.

    Parameters
    ----------
    order : str
        Of the queue, by name.
    interval, resolution, window : float
        ``bf_interval``, ``bf_resolution``, ``bf_window``, in seconds.
    tested : int
        Jobs that backfilling looks at (``bf_max_job_test``); 0: there is none.
    depth : int
        Jobs that the main loop looks at behind the first (``default_queue_depth``); once a minute
        it looks at all.
    per_user, per_pool, per_user_pool, per_account : int
        Of them, those of a user, a partition, both, or an association that backfilling looks at
        (``bf_max_job_user``, ``_part``, ``_user_part``, ``_assoc``); 0 for any number.
    starts, main_starts : int
        Most jobs that a pass of backfilling, or of the main loop, starts (``bf_max_job_start``,
        ``sched_max_job_start``); 0 for any number.
    part_depth : int
        Jobs of a partition that the main loop looks at (``partition_job_depth``).
    least_wait, least_priority : float
        Seconds that a job must have waited, and the priority that it must have, to hold nodes for
        later (``bf_min_age_reserve``, ``bf_min_prio_reserve``).
    leaf_cores : bool
        Under ``topology/tree``, a leaf switch suits a job only if it has the cores, too, and not
        just the nodes; up to Slurm 23.02 nodes alone counted.
    one_each : bool
        A job that asks for several partitions has one reservation (``bf_one_resv_per_job``).
    safe : bool
        A job starts only if it can reach its limit within limits of minutes
        (``AccountingStorageEnforce=safe``).
    """

    groups: ClassVar[bool] = True
    name: ClassVar[str] = "slurm"
    choice: Any = field(default=None, init=False)  # compiled code has its own
    depth: int = 100
    order: str = "fcfs"
    interval: float = 30.0
    resolution: float = 60.0
    window: float = 86_400.0
    tested: int = 500
    per_user: int = 0
    per_pool: int = 0
    per_user_pool: int = 0
    per_account: int = 0
    starts: int = 0
    main_starts: int = 0
    part_depth: int = 0
    least_wait: float = 0.0
    least_priority: float = 0.0
    leaf_cores: bool = True
    one_each: bool = False
    safe: bool = False
    _passed: float = field(default=-math.inf, init=False, repr=False)
    _whole: float = field(default=-math.inf, init=False, repr=False)
    _due: bool = field(default=False, init=False, repr=False)
    _changed: bool = field(default=True, init=False, repr=False)
    _line: list[Job] = field(default_factory=list, init=False, repr=False)
    # Who was preempted: by whom, until when it may not start, and where it was suspended.
    _gave_way: dict[str, tuple[str, float, tuple[Piece, ...]]] = field(
        default_factory=dict, init=False, repr=False
    )
    _held: dict[str, HeldCores] = field(default_factory=dict, init=False, repr=False)
    _came: set[int] = field(default_factory=set, init=False, repr=False)

    def __post_init__(self) -> None:
        if not (self.interval > 0 and self.resolution > 0):
            raise ScenarioError("the interval and the resolution of backfilling must be positive")
        self.queue = create("scheduler", self.order).queue
        super().__post_init__()

    def place(self, queue: Queue, books: Books, now: float) -> list[Action]:
        """The main loop; then backfilling, where it is due."""
        self._take_in(books)
        self.queue.take_in(books)
        self._age(books)
        keys = self.queue.keys(queue, books, now)
        if self.order == "fcfs":  # without priorities, who was not eligible at first kept its place
            keys = [float(terms_of(j.terms).get("queued", j.submitted)) for j in queue]
        order = [queue[i] for i in np.argsort(keys, kind="stable").tolist()]
        names = {job.id for job in order}
        # Suspended jobs are among those that wait, and hold their nodes all the same.
        asleep = {name for name, (_, _, pieces) in self._gave_way.items() if pieces}
        holding = (asleep & names) | (books.running.keys() - asleep)
        self._held = {name: held for name, held in self._held.items() if name in holding}
        # Who is no longer in line has started or left: nothing is remembered of it.
        self._gave_way = {name: of for name, of in self._gave_way.items() if name in names}
        # Backfilling comes only if something changed since it came last.
        self._changed |= bool(books.events) or order != self._line
        jobs = [*order, *(running.job for running in books.running.values())]
        t, g, x = self._opened(jobs, books, now)
        # Events between two calls count for its clock when they happened.
        earlier = np.array([event.time for event in books.events if event.time < now])
        p = passing_of(t, self, g, x, 4 * len(jobs))._replace(earlier=earlier)
        self._enter(g, p, jobs)
        slurm_kernels.play(*only_used(g, x)[:2], p, 1)
        actions = self._decided(jobs, replace(books, running=dict(books.running)), now, (g, x, p))
        if p.clock.passed == now:
            self._line = order
        if p.clock.asked >= 0:
            idle = bool(p.clock.steady)
            actions.append(Ask(jobs[p.clock.asked].id, float(p.clock.at), idle))
        return actions

    def _age(self, books: Books) -> None:
        """With ACCRUE_ALWAYS jobs age from their submission on, also before they are eligible."""
        always = books.tenancy is not None and "accrue_always" in books.tenancy.priority.flags
        for event in books.events if always and self.order == "multifactor" else ():
            if event.job and event.kind == "submitted" and event.job.row not in self._came:
                self._came.add(event.job.row)
                queued = float(terms_of(event.job.terms).get("queued", "inf"))
                # Age counts from the submission, or from when the log says that it was queued.
                at: Any = self.queue
                at.standing.eligible[event.job.row] = min(queued, event.job.submitted)

    def _opened(
        self, jobs: Sequence[Job], books: Books, now: float
    ) -> tuple[Tables, Inputs, State]:
        """The state of a simulation with these books: those who wait in order, then who runs."""
        limits: Any = self.limits
        options = Options(limits=limits, caps=books.caps, tenancy=books.tenancy or Tenancy())
        t = Tables.of(Jobs.seen(jobs, books.nodes.devices), books.nodes, Conditions(), options)
        # Caps and sizes were judged when the jobs were submitted: all are played here.
        t = replace(t, aside=np.zeros(len(jobs), dtype=bool))
        # The order was decided above, so the kernel takes rows as they come.
        rules = rules_of(t, self)._replace(queue=kernels.FCFS, keyed=False)
        g, pieces = inputs(t, rules)
        x = _state(t, rules, pieces)
        runs = list(books.running.values())
        held = [self._gave_way.get(job.id, ("", 0.0, ()))[2] for job in jobs]
        held[len(jobs) - len(runs) :] = [running.pieces for running in runs]
        sizes = [job.tasks * job.shape.size for job in jobs]
        # Room for the pieces of as many tasks as are tried at once.
        most = [max(len(h), min(size, x.tried.size)) for h, size in zip(held, sizes)]
        g.jobs["piece_from"] = np.cumsum([0, *most])[:-1]
        x = x._replace(out=np.zeros(sum(most) + 1, dtype=kernels.PIECE))
        cuts, cut = np.zeros(len(jobs) + 2, dtype=kernels.CUT), np.zeros_like(x.out)
        x = x._replace(cuts=cuts, cut_pieces=cut)
        if books.hours is not None:
            hours = books.hours
            g = g._replace(hours=kernels.Hours(hours.starts, hours.since, hours.to))
            # Rows of these jobs stand for rows of the log, of which the calendars are.
            rows = [job.row for job in jobs]
            calendars = np.broadcast_to(hours.of_job, max(hours.of_job.size, 1 + max(rows)))
            g.jobs["hours"] = calendars[rows]
        running = np.arange(len(jobs) - len(runs), len(jobs))
        begun = np.array([run.begun for run in runs])
        x.jobs["overhead"][running] = [run.overhead for run in runs]
        waiting = np.arange(len(jobs) - len(runs))
        resume(g, x, books, now, running, begun, waiting, dict(enumerate(held)))
        return t, g, x

    def _enter(self, inputs: Inputs, passes: PassState, jobs: Sequence[Job]) -> None:
        """Enter what is known from the last round."""
        place = {job.id: j for j, job in enumerate(jobs)}
        passes.clock.passed, passes.clock.due, passes.clock.changed = (
            self._passed,
            self._due,
            self._changed,
        )
        passes.clock.whole = self._whole
        passes.clock.gave, passes.clock.started = len(self._gave_way), len(jobs)
        # In the order in which jobs gave way.
        for i, (name, (other, until, pieces)) in enumerate(self._gave_way.items()):
            j = passes.gave[i] = place[name]
            known = passes.known[j]
            known["until"], known["asleep"], known["by"] = until, bool(pieces), place.get(other, -1)
        passes.known["turn"] = np.arange(len(jobs))
        for turn, (name, (cores, end, ran)) in enumerate(self._held.items(), -len(self._held)):
            known, q = passes.known[place[name]], int(inputs.jobs["piece_from"][place[name]])
            known["held"], known["turn"], known["end"], known["ran"] = 1, turn, end, ran
            passes.gangs.masks[q : q + len(cores)] = cores

    def _decided(
        self, jobs: Sequence[Job], books: Books, now: float, parts: tuple[Inputs, State, PassState]
    ) -> list[Action]:
        """The actions of a round, and what is kept of it."""
        g, x, p = parts
        books = replace(books, free=p.room.free, device=p.room.device, events=[])
        limits = self._expected_ends(books, now)
        # Who has outlived its limit is expected to end now.
        ends = {name: max(end, now) for name, end in limits.items()}
        order = jobs[: len(jobs) - len(books.running)]
        self._last = last = Round(books, now, ends, [*order])
        actions: list[Action] = []
        for what, j in p.acts[: p.clock.acts].tolist():
            job, pieces = jobs[j], pieces_of(g, x, j)
            if what == STARTED:
                on: dict[int, int] = {}
                for n, count, _ in pieces:  # groups share no nodes
                    on[n] = on.get(n, 0) + count
                ends[job.id] = now + job.limit
                if p.gangs is not None and job.id in self._gave_way:
                    self._gave_way[job.id] = *self._gave_way[job.id][:2], ()
                actions.append(self._started(job, list(on.items()), pieces, books, now))
            else:
                del books.running[job.id], ends[job.id]
                how: Any = {CANCELLED: "cancel", SUSPENDED: "keep"}.get(int(what), "requeue")
                actions.append(Preempt(job.id, how))
                last.order.append(job)
                other = jobs[p.known["by"][j]].id
                asleep = pieces if what == SUSPENDED else ()
                self._gave_way[job.id] = other, float(p.known["until"][j]), asleep
        clock = p.clock
        self._passed, self._due, self._changed = clock.passed, bool(clock.due), bool(clock.changed)
        self._whole = clock.whole
        if p.gangs is not None:
            self._remember_cores(jobs, parts)
            for name in last.ends:
                # Seconds that a job ran before it was suspended count towards its limit.
                last.ends[name] -= self._held[name].ran
        return actions

    def _remember_cores(self, jobs: Sequence[Job], parts: tuple[Inputs, State, PassState]) -> None:
        """Who holds which cores after a round, in the order in which they got them."""
        g, x, p = parts
        known, self._held = p.known, {}
        asleep = (known["asleep"] > 0) & (x.jobs["phase"] == WAITING)
        holds = np.flatnonzero((known["held"] > 0) & (asleep | (x.jobs["phase"] == RUNNING)))
        for j in holds[np.argsort(known["turn"][holds], kind="stable")].tolist():
            q, count = int(g.jobs["piece_from"][j]), int(x.jobs["pieces"][j])
            cores = p.gangs.masks[q : q + count].tolist()
            end, ran = float(known["end"][j]), float(known["ran"][j])
            self._held[jobs[j].id] = HeldCores(cores, end, ran)

    def _held_back(self, job: Job, last: Round) -> tuple[str, float]:
        other, until, pieces = self._gave_way.get(job.id, ("", -math.inf, ()))
        # Suspended: its own nodes are busy until those who run there end.
        if pieces:
            mine, every = {n for n, _, _ in pieces}, last.books.running.values()
            ends = [last.ends[r.job.id] for r in every if mine & {n for n, _, _ in r.pieces}]
            why = f"it is suspended for job {other}, and goes on where it was"
            return why, max([last.now, *ends])
        if until > last.now:
            return f"it was preempted for job {other}, and may start again then", until
        return super()._held_back(job, last)


def pieces_of(given: Inputs, state: State, j: int) -> tuple[Piece, ...]:
    """Node, tasks and devices of each piece that job j holds."""
    p = int(given.jobs["piece_from"][j])
    rows = state.out[p : p + int(state.jobs["pieces"][j])]
    return tuple(zip(*(rows[name].tolist() for name in ("node", "tasks", "mask"))))


def compiles(scheduler: Any) -> bool:
    """Whether :func:`play` plays it: orders that are built in."""
    return type(scheduler) is SlurmPasses and type(scheduler.queue) in BUILT_IN


def rules_of(t: Tables, scheduler: SlurmPasses) -> kernels.PlayRules:
    """The rules of a simulation under these passes."""
    queue = scheduler.queue
    order = int(getattr(queue, "order", kernels.FCFS))
    return outside(t.options, False, math.inf)._replace(
        queue=order,
        weight=float(getattr(queue, "weight", 0.0)),
        keyed=order >= kernels.FAIR_SHARE,
        half_life=float(getattr(queue, "half_life", math.inf)),
        backfilling=kernels.SLURM,
    )


def ranked(t: Tables, given: Inputs) -> Inputs:
    """Without priorities, who was not eligible at first kept its place in line.

    Each job has one point less than the one before it, and those that ``--nice`` takes.
    """
    queued = [float(terms_of(text).get("queued", "nan")) for text in t.jobs.terms]
    place = np.array(queued)[t.jobs.term]
    # Stable: of one time in the order of submission.
    by_rank = np.argsort(np.where(np.isnan(place), t.jobs.submit, place), kind="stable")
    if t.jobs.priority.any():
        points = np.arange(by_rank.size) - t.jobs.priority[by_rank]
        by_rank = by_rank[np.argsort(points, kind="stable")]
    given.jobs["rank"][by_rank] = np.arange(by_rank.size)
    return given._replace(by_rank=by_rank)


def _state(t: Tables, rules: kernels.PlayRules, pieces: int) -> State:
    """State before the first event; all jobs may be sorted at once."""
    x = initial_state(t, rules, pieces)
    # Sorting all waiting jobs needs space for each of them.
    return x._replace(spare_rows=np.zeros(max(x.spare_rows.size, len(t.jobs)), dtype=kernels.DUE))


def play(
    t: Tables, scheduler: SlurmPasses, progress: Callable[[int, int], None] | None
) -> Schedule:
    every, rows = slurm_places.in_each_pool(t)
    if every is t:
        return to_the_end(t, scheduler, slurm_kernels.play, _prepared(t, scheduler, rows), progress)
    parts = _prepared(every, scheduler, rows)
    played = to_the_end(every, scheduler, slurm_kernels.play, parts, progress)
    return slurm_places.of_jobs(t, played, rows, np.asarray(parts[0].jobs["shape"]))


def _prepared(t: Tables, scheduler: SlurmPasses, rows: Ints) -> tuple[Inputs, State, PassState]:
    """Inputs and state before the first event, and that of the passes; ``rows``: whose each is."""
    rules = rules_of(t, scheduler)
    given, pieces = inputs(t, rules)
    if rules.queue == kernels.FCFS:
        given = ranked(t, given)
    state = _state(t, rules, pieces)
    if rules.queue == kernels.MULTIFACTOR:
        scheduler.queue.bind(t)
        state = state._replace(standing=copy_of(scheduler.queue.standing))
    p = passing_of(t, scheduler, given, state)
    _, first, count = np.unique(rows, return_index=True, return_counts=True)
    p.known["rows"], p.known["job"] = count[rows], (first + count - 1)[rows]
    if (p.classes["way"] == CANCELLED).any():  # room for events in front of those that are known
        spare = np.zeros(state.running.size, dtype=kernels.EVENT)
        given = given._replace(events=np.concatenate([spare, given.events]))
        state.at.next_event = spare.size
    return *only_used(given, state)[:2], p


def _settings(scheduler: SlurmPasses, tenancy: Tenancy, by_user: bool) -> PassSettings:
    """Settings of the scheduler, as whole numbers or not as they are declared, and of the site."""
    rules, own = tenancy.preemption, dict[str, Any]()
    for name, kind in PassSettings.__annotations__.items():
        if hasattr(scheduler, name):
            own[name] = (float if kind == "float" else int)(getattr(scheduler, name))
    return PassSettings(
        **own,
        again=rules.again,
        youngest_first=rules.youngest_first,
        strict=rules.strict,
        reorder=rules.reorder,
        by_user=by_user,
        accrues=scheduler.order == "multifactor" and "accrue_always" in tenancy.priority.flags,
        epoch=tenancy.epoch,
    )


def every_shape(t: Tables) -> list[Shape]:
    """The shapes of jobs, then those that only groups of them have, as the kernels number them."""
    parts = dict.fromkeys(part for shape in t.shapes for _, part in shape.groups)
    return [*t.shapes, *parts]


def _places(t: Tables, state: State, leaf_cores: bool) -> Places:
    # Weights become ranks 0, 1, …: only their order matters.
    weight = np.array([int(has.get("weight", 1)) for has in t.nodes.labels])
    devices = t.nodes.devices
    switches = slurm_places.switches_of(t.nodes)
    by_load = {pool.name for pool in t.options.tenancy.pools if pool.least_loaded}
    W = switches[1].size
    return Places(
        state.up,
        devices.index("cpu") if "cpu" in devices else -1,
        state.tried,
        np.unique(weight, return_inverse=True)[1].astype(np.int64),
        *slurm_places.asked_of_nodes(every_shape(t), t.nodes, by_load),
        np.zeros(weight.size, dtype=np.int64),
        switches[0],
        switches[1] if W else None,
        switches[2],
        bool(leaf_cores),
        np.zeros(weight.size, dtype=np.int64),
        np.zeros(weight.size, dtype=slurm_places.RUN_OF_NODES),
        *(np.zeros(W, dtype=np.int64) for _ in range(3)),
    )


def _ahead(t: Tables, state: State, edges: int, ends: int) -> FutureWindows:
    """As many windows as the ends of running jobs may need, two of them for now and for never."""
    longest = float(t.jobs.limit[np.isfinite(t.jobs.limit)].max(initial=0.0))
    # Windows double behind the first FINE, so their number grows with the logarithm of the longest.
    W = 4 + int(math.log2(longest / slurm_kernels.FIRST_WINDOW + 1.0))
    W += min(len(t.jobs), slurm_kernels.FINE)
    if gangs(t.options.tenancy):  # who was suspended again and again may be past its limit
        W += 8 + int(math.log2(float(t.work.max(initial=0.0)) + 1.0))
    N, S, B = len(t.nodes), len(t.cluster.demand), words(t)
    free, device = (np.zeros((W, *of.shape), dtype=np.int64) for of in state.room[:2])
    # A slot for each shape, of a large cluster for as many as 64 MiB hold.
    slots = min(S, max(2**24 // (N * W), 1))
    sizes: dict[str, Any] = {"levels": N, "window": (N, W), "counted": slots, "free": (N, 1)}
    sizes |= {"opens": (slots, W, B), "barred": (slots, B), "rest": (edges, B)}
    sizes |= dict.fromkeys(("owned", "cover", "recent"), B)
    sizes |= {"nearest": N, "latest": N, "marked": -(-ends // 64)}
    sizes |= dict.fromkeys(("following", "place"), len(state.out))
    arrays: dict[str, Any] = {name: np.zeros(of, dtype=np.int64) for name, of in sizes.items()}
    return FutureWindows(
        times=np.zeros(W),
        room=kernels.FreeDevices(free, device, state.ahead.top),
        fits=np.zeros((slots, N, W), dtype=np.int32),
        ends=np.zeros(ends, dtype=kernels.DUE),
        **arrays,
    )


def _room(state: State) -> kernels.FreeDevices:
    return kernels.FreeDevices(state.room.free.copy(), state.room.device.copy(), state.ahead.top)


def _gangs(t: Tables, pieces: int) -> Gangs:
    """Cores that no job holds, for so many pieces."""
    N, kinds = len(t.nodes), t.nodes.devices
    kind = kinds.index("cpu") if "cpu" in kinds else 0
    C = int(t.nodes.capacity[:, kind].max()) // 1000
    # Cores of a node as bits of words of 64.
    W = -(-C // 64)
    return Gangs(
        kind,
        np.zeros((2, N, C), dtype=np.int64),
        np.zeros((2, N), dtype=np.int64),
        np.zeros((pieces, W), dtype=np.int64),
        np.zeros((N, W), dtype=np.int64),
    )


PER = ("per_user", "per_pool", "per_user_pool", "per_account")
"""Limits of how many jobs of each backfilling looks at."""


def _groups(jobs: Jobs) -> Ints:
    """Whose each job is, by :data:`PER`, [4, J]."""
    both = numbered(jobs.user * len(jobs.pools) + jobs.pool)[1]
    association = numbered(jobs.user * len(jobs.accounts) + jobs.charged)[1]
    return np.stack([jobs.user, jobs.pool, both, association]).astype(np.int64)


def _reserved(t: Tables) -> tuple[Ints, Any, Ints]:
    """The site's reservation that each job names, −1 for none [J]; all of them; nodes, as bits."""
    kept, place = t.options.tenancy.reservations, {n: i for i, n in enumerate(t.nodes.names)}
    number = {each.name: r for r, each in enumerate(kept)}
    asked = [terms_of(text).get("reservation", "") for text in t.jobs.terms]
    # Of several reservations that a job names, one counts: the last in the site's order.
    own = [max((number.get(name, -1) for name in text.split("|")), default=-1) for text in asked]
    rows = np.array([(each.begin, each.end) for each in kept], dtype=slurm_places.HELD)
    booked = np.zeros((len(kept), words(t)), dtype=np.int64)
    for r, each in enumerate(kept):
        on = np.array([place[name] for name in each.on if name in place], dtype=np.int64)
        np.bitwise_or.at(booked[r], on >> 6, np.int64(1) << (on & 63))
    return np.array(own, dtype=np.int64)[t.jobs.term], rows, booked


def _fewest(jobs: Jobs, terms: Sequence[dict[str, str]]) -> Ints:
    """How many nodes each job wants at least [J]."""
    nodes_asked = np.array([int(term.get("size", "x0").partition("x")[2]) for term in terms])[
        jobs.term
    ]
    bounds = np.array([shape.nodes[0] for shape in jobs.shapes])[jobs.shape]
    single = np.array([shape.per_node == 1 for shape in jobs.shapes])[jobs.shape]
    return np.where(nodes_asked > 0, nodes_asked, np.where(single, jobs.tasks, bounds))


def words(t: Tables) -> int:
    """Words of 64 bits for a bit of each node."""
    return -(-len(t.nodes) // 64)


def _known(t: Tables, kind: Ints) -> tuple[Any, Any, Ints]:
    """What passes know of each job [J] before the first of them, and what is reserved."""
    jobs, pools = t.jobs, t.options.tenancy.pools
    known = np.zeros(len(jobs), dtype=slurm_places.KNOWN)
    known["until"], known["together"], known["kind"] = -math.inf, math.inf, kind
    known["job"] = np.arange(len(jobs))
    known["reservation"], reserved, booked = _reserved(t)
    terms = [terms_of(text) for text in jobs.terms]
    known["named"] = np.array(["on" in term for term in terms])[jobs.term]
    # Nodes that nobody else may use, and those of one user: so asked, or so the partition has it.
    whole = {pool.name for pool in pools if getattr(pool, "whole", False)}
    by_user = {pool.name for pool in pools if pool.by_user}
    for name, way, so in (("alone", "1", whole), ("own", "user", by_user)):
        known[name] = np.array([term.get("whole") == way for term in terms])[jobs.term]
        known[name] |= np.array([pool in so for pool in jobs.pools])[jobs.pool]
    known["fewest"] = _fewest(jobs, terms)
    queued = np.array([float(term.get("queued", "inf")) for term in terms])[jobs.term]
    known["ages"] = np.minimum(queued, jobs.submit)
    return known, reserved, booked


def passing_of(
    t: Tables, scheduler: SlurmPasses, given: Inputs, x: State, acts: int = 0
) -> PassState:
    """State of the passes before the first of them."""
    jobs, nodes, J, N = t.jobs, t.nodes, len(t.jobs), len(t.nodes)
    preempts, tested = bool(t.options.tenancy.preemption.by), min(int(scheduler.tested), J)
    # With suspension, rows are copied: the books lack what suspended jobs hold.
    suspends = gangs(t.options.tenancy)
    clock: Any = np.zeros(1, dtype=slurm_places.CLOCK).view(np.recarray)[0]
    clock.passed, clock.changed, clock.asked, clock.whole = -math.inf, 1, -1, -math.inf
    pools = [nodes.of_pool(name) for name in dict.fromkeys(s.pool for s in every_shape(t))]
    pairs, kind = numbered(jobs.pool * len(jobs.qoses) + jobs.qos)
    names = [(jobs.pools[a], jobs.qoses[b]) for a, b in zip(*np.divmod(pairs, len(jobs.qoses)))]
    most_groups = max((len(shape.groups) for shape in jobs.shapes), default=0)
    most_reserved = tested * max(most_groups, 1)  # of each group one
    edges = 2 * (most_reserved + len(t.options.tenancy.reservations))
    # Any job may be suspended, so lists of those who give way hold all.
    size = max(x.running.size, J * suspends)
    rows: dict[str, Any] = {
        name: np.zeros(size, dtype=kernels.DUE)
        for name, size in {
            "acts": acts,
            "edges": edges,
            **dict.fromkeys(("able", "turns", "ranked", "others"), size),
        }.items()
    }
    known, reserved, booked = _known(t, kind)
    bounds = np.zeros(most_reserved, dtype=slurm_places.BOUND)
    clock.site = len(reserved)
    groups = _groups(jobs)
    classes, above = classes_of(t.options.tenancy, names)
    ints = {
        **dict.fromkeys(("first", "pieces"), most_groups),
        **dict.fromkeys(("shut", "none"), N),
        "open": len(pools),
        "front": J + 1,
        "gave": J if preempts else 0,
        "before": J if given.rules.keyed else 0,
        "kept": x.tried.size,
    }
    arrays: dict[str, Any] = {name: np.zeros(n, dtype=np.int64) for name, n in ints.items()}
    leaving = np.zeros(J, dtype=kernels.DUE) if suspends else x.order
    return PassState(
        settings=_settings(scheduler, t.options.tenancy, bool(known["own"].any())),
        clock=clock,
        room=_room(x) if suspends else x.room,
        gangs=_gangs(t, len(x.out)) if suspends else None,
        minutes=minutes_of(t, scheduler.safe),
        leaving=leaving,
        places=_places(t, x, scheduler.leaf_cores),
        ahead=_ahead(t, x, edges, len(leaving)),
        pools=np.array(pools, dtype=bool).reshape(len(pools), N),
        known=known,
        classes=classes,
        above=above if preempts else None,
        earlier=np.zeros(0),
        on=np.zeros(N, dtype=bool),
        every=np.ones(N, dtype=bool),
        most=np.array([getattr(scheduler, name) for name in PER], dtype=np.int64),
        group=groups,
        looked=np.zeros((len(PER), int(groups.max(initial=0)) + 1), dtype=np.int64),
        of_pool=np.zeros(len(pools), dtype=np.int64),
        reserved=reserved,
        booked=booked,
        taken=np.zeros((edges, words(t)), dtype=np.int64),
        bounds=bounds,
        failed=np.zeros(len(t.cluster.shapes), dtype=slurm_places.FAILED),
        found=np.zeros(x.tried.size, dtype=kernels.PIECE),
        **rows,
        **arrays,
    )
