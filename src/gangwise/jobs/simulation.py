"""What would have happened: jobs on nodes under a scheduler, event by event.

All events of an instant are taken in first — ends, then nodes, then submissions, then
measurements — and one round of decisions follows. A job of run time 0 ends at its instant and
opens another round there. Combinations of built-in parts run whole inside compiled code; a
scheduler of your own runs in a plain loop under the same rules, and both give the same schedule.
"""

from __future__ import annotations

import heapq
import math
import time
from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from gangwise.core.arrays import Floats, Ints
from gangwise.core.errors import InfeasibleDecision, ScenarioError
from gangwise.core.jit import is_compiled
from gangwise.jobs import event_kernels, kernels, rate_kernels
from gangwise.jobs.choice import FGD, BestFit, ByRate, FirstFit, WorstFit
from gangwise.jobs.kernels import FINISHED, KILLED, RUNNING, SET_ASIDE, WAITING
from gangwise.jobs.model import (
    Account,
    Ask,
    Books,
    Conditions,
    Event,
    Job,
    Jobs,
    Nodes,
    Piece,
    Place,
    Preempt,
    Queue,
    Rate,
    Running,
)
from gangwise.jobs.queues import (
    WFP3,
    EarliestDeadline,
    FairShare,
    FirstCome,
    Priority,
    ShortestFirst,
)
from gangwise.jobs.scheduler import Composed, create_scheduler

__all__ = ["Options", "Schedule", "simulate_jobs"]

NONE = np.zeros(0)


@dataclass(frozen=True)
class Options:
    """Rules of a simulation that are no scheduler's to choose.

    Attributes
    ----------
    enforced : bool
        Whether jobs are killed at their requested limit.
    limits : {"wall-clock", "work"}
        What a limit is: seconds of the clock, as in Slurm, or seconds at rate 1.
    checkpoint : float
        Seconds of work between checkpoints; a failure loses what was done since the last one.
        inf: everything, 0: nothing.
    restart : float
        Seconds that a job cut short needs at its next start before it works on.
    measured_after : float
        Seconds after its start at which a job's rates are measured; once more at its end.
    """

    enforced: bool = False
    limits: Literal["wall-clock", "work"] = "wall-clock"
    checkpoint: float = math.inf
    restart: float = 0.0
    measured_after: float = 60.0


@dataclass(frozen=True, eq=False)
class Schedule:
    """What happened.

    Attributes
    ----------
    start, end : ndarray [J]
        Seconds: first start, and end; NaN for what never came to it.
    last_start : ndarray [J]
        Start of the last attempt, the only one of most jobs.
    phase : ndarray [J]
        As in :mod:`gangwise.jobs.kernels`: finished, killed, waiting, set aside, …
    attempts : ndarray [J]
    lost : ndarray [J]
        Device-seconds (of the dominant device type) lost to failures and restarts.
    reserved : ndarray [J]
        EASY: the earliest start promised to the job while it was first in line; inf for none.
    piece_from, piece_count, piece_node, piece_tasks : ndarray
        Last attempt of job j: pieces ``piece_from[j] … + piece_count[j]``.
    cuts : dict of ndarray
        Attempts cut short: ``job``, ``begun``, ``end``, ``why`` (0 node failed, 1 preempted) and
        their pieces ``from``, ``node``, ``tasks``.
    counts : dict
        instants, rounds, tests, kills, requeues, preemptions.
    seconds : float
        Wall-clock spent: in the scheduler alone (plain), or in all (compiled).
    account : Account
        Jobs that could not be played on these nodes.
    told : str
        What was played, in a line.
    """

    jobs: Jobs
    nodes: Nodes
    start: Floats
    end: Floats
    last_start: Floats
    phase: npt.NDArray[np.int8]
    attempts: Ints
    lost: Floats
    reserved: Floats
    piece_from: Ints
    piece_count: Ints
    piece_node: Ints
    piece_tasks: Ints
    cuts: dict[str, npt.NDArray[Any]]
    counts: dict[str, int]
    seconds: float
    account: Account
    told: str

    def placed(self, j: int) -> list[tuple[int, int]]:
        """Nodes of job j's last attempt, and tasks on each."""
        p, c = self.piece_from[j], self.piece_count[j]
        return list(zip(self.piece_node[p : p + c].tolist(), self.piece_tasks[p : p + c].tolist()))


FEW = 2_500
"""Jobs that are played in plain Python rather than waiting for a compiler."""


def simulate_jobs(
    jobs: Jobs,
    nodes: Nodes,
    scheduler: Any = "fcfs+easy+best-fit",
    conditions: Conditions | None = None,
    options: Options | None = None,
    *,
    engine: Literal["auto", "compiled", "plain"] = "auto",
    progress: Callable[[int, int], None] | None = None,
) -> Schedule:
    """Play jobs on nodes under a scheduler.

    Parameters
    ----------
    scheduler : str or Scheduler
        A name such as ``"fcfs+easy+best-fit"``, or an object.
    conditions : Conditions, optional
        Hidden rates, noise and failures; by default every rate is 1 and nothing fails.
    options : Options, optional
    engine : {"auto", "compiled", "plain"}
        ``auto`` is compiled wherever the scheduler has only built-in parts; for up to
        :data:`FEW` jobs only if the code is there already, for compiling takes longer than
        playing them. Both give the same schedule.
    progress : callable, optional
        Called now and then with jobs ended and jobs in all.

    Raises
    ------
    InfeasibleDecision
        When a scheduler starts what does not fit; names time, job, node and device.

    Examples
    --------
    >>> jobs = Jobs.of(submit=[0, 1, 2], run=[10, 10, 5], tasks=[3, 2, 1], limit=[10, 10, 5])
    >>> schedule = simulate_jobs(jobs, Nodes.pool(4), "fcfs+easy+first-fit")
    >>> schedule.start
    array([ 0., 10.,  2.])
    """
    conditions = conditions or Conditions()
    options = options or Options()
    scheduler = create_scheduler(scheduler)
    if isinstance(scheduler, Composed):
        scheduler.limits = options.limits
        scheduler.restart = options.restart
    tables = Tables.of(jobs, nodes, conditions, options)
    rules = _built_in(scheduler, nodes, options)
    if engine == "compiled" and rules is None:
        raise ScenarioError("only combinations of built-in parts run compiled; use engine='plain'")
    if engine == "auto" and len(jobs) <= FEW and not is_compiled(event_kernels.play):
        engine = "plain"
    if engine != "plain" and rules is not None:
        return _compiled(tables, scheduler, rules, progress)
    return PlainSimulation(tables, scheduler).run(progress)


# ---------------------------------------------------------------------------------------- tables


@dataclass(frozen=True, eq=False)
class Tables:
    """Arrays that both engines play from."""

    jobs: Jobs
    nodes: Nodes
    options: Options
    conditions: Conditions
    aside: npt.NDArray[np.bool_]
    account: Account
    work: Floats
    doomed: npt.NDArray[np.bool_]
    demand: Ints  # [S, K] over the nodes' device types
    fraction: Ints
    whole: Ints
    per_node: Ints
    constraint: Ints
    dominant: Ints
    allowed: npt.NDArray[np.bool_]  # [C, N]
    log_rates: Floats
    log_noise: Floats
    event_time: Floats
    event_node: Ints
    event_kind: Ints
    event_value: Floats
    wants: Ints

    @classmethod
    def of(cls, jobs: Jobs, nodes: Nodes, conditions: Conditions, options: Options) -> Tables:
        """Bring jobs onto nodes: what can never run there is set aside, and said."""
        J, N, K, S = len(jobs), len(nodes), len(nodes.devices), len(jobs.shapes)
        missing = {k for k in jobs.devices if k not in nodes.devices}
        demand = np.zeros((S, K), dtype=np.int64)
        unknown = np.zeros(S, dtype=bool)
        for s, shape in enumerate(jobs.shapes):
            for k, amount in zip(jobs.devices, shape.demand):
                if k in missing:
                    unknown[s] |= amount > 0
                else:
                    demand[s, nodes.devices.index(k)] = amount
        most = int(jobs.tasks.max(initial=1))
        if most * int(demand.max(initial=1)) >= 2**62 // max(N, 1):
            raise ScenarioError(
                "amounts of devices are too large to be counted in thousandths; "
                "give memory in a larger unit"
            )
        per_node = np.array([s.per_node or most for s in jobs.shapes], dtype=np.int64)
        fraction = np.zeros(S, dtype=np.int64)
        whole = np.zeros(S, dtype=np.int64)
        odd = np.zeros(S, dtype=bool)
        if nodes.shared is not None:
            of_shared = demand[:, nodes.devices.index(nodes.shared)]
            fraction = np.where(of_shared < 1000, of_shared, 0)
            whole = np.where(of_shared >= 1000, of_shared // 1000, 0)
            odd = (of_shared > 1000) & (of_shared % 1000 != 0)
        asked = list(dict.fromkeys(s.constraint for s in jobs.shapes))
        allowed = np.array(
            [[all(has.get(k) == v for k, v in c) for has in nodes.labels] for c in asked],
            dtype=bool,
        ).reshape(len(asked), N)
        constraint = np.array([asked.index(s.constraint) for s in jobs.shapes], dtype=np.int64)

        # How many tasks of each shape the empty cluster takes.
        books = Books.opened(nodes)
        room = np.zeros(S, dtype=np.int64)
        total = np.maximum(nodes.capacity.sum(axis=0), 1)
        dominant = np.argmax(demand / total, axis=1).astype(np.int64) if S else constraint
        for s, shape in enumerate(jobs.shapes):
            if not unknown[s] and not odd[s] and demand[s].any():
                there = shape._replace(demand=tuple(demand[s].tolist()))
                room[s] = int(np.minimum(books.fits(there), most).sum())
        bad_type = unknown[jobs.shape]
        bad_part = odd[jobs.shape] & ~bad_type
        large = (jobs.tasks > room[jobs.shape]) & ~bad_type & ~bad_part
        set_aside = {}
        for bad, reason in (
            (bad_type, f"that ask for {' or '.join(sorted(missing))}, which no node has"),
            (bad_part, f"that ask for a broken number of {nodes.shared} above 1"),
            (large, "larger than the cluster, or than its nodes with the labels asked for"),
        ):
            if bad.any():
                set_aside[reason] = jobs.row[bad]
        aside = bad_type | bad_part | large
        noted = {}
        keep = ~aside[jobs.after]
        if not keep.all():
            noted["dependencies on jobs that were set aside: dropped"] = int((~keep).sum())
        wants = np.zeros(J, dtype=np.int64)
        np.add.at(wants, np.repeat(np.arange(J), np.diff(jobs.after_from)), keep)

        work, doomed = jobs.run, np.zeros(J, dtype=bool)
        if options.enforced and options.limits == "work":
            doomed = jobs.run > jobs.limit
            work = np.minimum(jobs.run, jobs.limit)
        log_rates, log_noise = np.zeros((0, 0)), NONE
        varied = (
            conditions.rates is not None
            or conditions.noise is not None
            or len(conditions.factors) > 0
        )
        if varied:
            wanted = (len(jobs.types), N)
            rates = np.ones(wanted) if conditions.rates is None else np.asarray(conditions.rates)
            noise = np.ones(J) if conditions.noise is None else np.asarray(conditions.noise)
            if rates.shape != wanted or noise.shape != (J,):
                raise ScenarioError(
                    f"rates are {rates.shape} and noise {noise.shape}; they must be [L, N] = "
                    f"{wanted} and [J] = {(J,)}"
                )
            if not ((rates > 0).all() and (noise > 0).all() and np.isfinite(rates).all()):
                raise ScenarioError("a rate is not positive; a node that stands still is down")
            log_rates, log_noise = np.log(rates), np.log(noise)
        happens = [(float(t), kernels.DOWN, int(n), 0.0) for t, n in conditions.downs]
        happens += [(float(t), kernels.UP, int(n), 0.0) for t, n in conditions.ups]
        for t, n, factor in conditions.factors:
            if factor <= 0:
                raise ScenarioError(f"node {n} has a factor of {factor} at {t} s; it must be > 0")
            happens.append((float(t), kernels.FACTOR, int(n), math.log(factor)))
        happens.sort(key=lambda e: e[0])
        for t, _, n, _ in happens:
            if not (0 <= n < N and math.isfinite(t) and t >= 0):
                raise ScenarioError(f"an event at {t} s of node {n}: there are {N} nodes")
        return cls(
            jobs,
            nodes,
            options,
            conditions,
            aside,
            Account(J, set_aside, noted),
            work,
            doomed,
            demand,
            fraction,
            whole,
            per_node,
            constraint,
            dominant,
            allowed,
            log_rates,
            log_noise,
            np.array([e[0] for e in happens]),
            np.array([e[2] for e in happens], dtype=np.int64),
            np.array([e[1] for e in happens], dtype=np.int64),
            np.array([e[3] for e in happens]),
            wants,
        )

    def told(self, name: str, engine: str) -> str:
        """What is played, in a line."""
        o = self.options
        killed = "killed at" if o.enforced else "not killed at"
        unit = "wall-clock" if o.limits == "wall-clock" else "seconds at rate 1"
        return f"{name}, {engine}; limits are {unit}, jobs are {killed} them"


# -------------------------------------------------------------------------------------- compiled


_QUEUES = {
    FirstCome: kernels.FCFS,
    ShortestFirst: kernels.SJF,
    EarliestDeadline: kernels.EDF,
    Priority: kernels.PRIORITY,
    FairShare: kernels.FAIR_SHARE,
    WFP3: kernels.WFP3,
}
_BACKFILLING = {
    "none": kernels.NO_BACKFILLING,
    "easy": kernels.EASY,
    "conservative": kernels.CONSERVATIVE,
}
_CHOICES = {
    FirstFit: kernels.FIRST_FIT,
    BestFit: kernels.BEST_FIT,
    WorstFit: kernels.WORST_FIT,
    ByRate: kernels.BY_RATE,
    FGD: kernels.FGD,
}


def _built_in(scheduler: Any, nodes: Nodes, options: Options) -> kernels.Rules | None:
    """Rules for the compiled engine, None for what only plain Python can play."""
    if type(scheduler) is not Composed:
        return None
    queue = _QUEUES.get(type(scheduler.queue))
    choice = _CHOICES.get(type(scheduler.choice))
    backfilling = _BACKFILLING.get(scheduler.backfilling)
    if queue is None or choice is None or backfilling is None:
        return None
    if choice == kernels.FGD and nodes.shared is None:
        raise ScenarioError("fgd looks at single devices: build Nodes with shared='gpu'")
    rates = getattr(scheduler.choice, "rates", "labels")
    kind = {"labels": kernels.LABELS, "oracle": kernels.ORACLE}.get(
        rates if isinstance(rates, str) else "", kernels.LEARNED
    )
    return kernels.Rules(
        queue,
        backfilling,
        choice,
        kind,
        bool(getattr(scheduler.choice, "waits", False)),
        int(scheduler.depth),
        options.enforced,
        options.limits == "work",
        float(options.checkpoint),
        float(options.restart),
        float(options.measured_after),
        float(getattr(scheduler.queue, "half_life", math.inf)),
        float(getattr(scheduler, "look", math.inf)),
        np.zeros(0),
    )


def _compiled(
    t: Tables,
    scheduler: Composed,
    rules: kernels.Rules,
    progress: Callable[[int, int], None] | None,
) -> Schedule:
    jobs = t.jobs
    J = len(jobs)
    work, shapes, world, piece_from = _inputs(t, rules)
    state = _state(t, rules, piece_from)
    if rules.choice == kernels.BY_RATE:
        scheduler.resize(t.nodes, jobs.types)
        beliefs = scheduler.choice.state
        world = world._replace(labels=np.log(t.nodes.declared(jobs.types)))
    else:
        beliefs = rate_kernels.no_beliefs(
            rate_kernels.LABELS,
            np.zeros((1, 1)),
            np.zeros(1, dtype=np.int64),
            1,
            rate_kernels.Constants(),
            np.zeros(1),
        )._replace(ratio=np.zeros(0))
    event_kernels.play(work, shapes, world, rules, state, beliefs, 0)  # compiles, or loads
    began = time.perf_counter()
    while True:
        status = event_kernels.play(work, shapes, world, rules, state, beliefs, 200_000)
        if progress is not None:
            progress(int(state.at[kernels.ENDED]), J)
        if status == event_kernels.DONE:
            break
        if status == event_kernels.MORE_ROOM:
            state = _more_room(state)
    seconds = time.perf_counter() - began
    at = state.at
    cut, pieces = int(at[kernels.LOGGED]), int(at[kernels.LOGGED_PIECES])
    runs, cuts = state.jobs, state.cuts[:cut]
    first, attempts = runs["first"], runs["attempts"].copy()
    on_nodes = np.isin(runs["phase"], (RUNNING, FINISHED, KILLED))
    return Schedule(
        jobs,
        t.nodes,
        np.where(np.isfinite(first), first, np.nan),
        runs["end"].copy(),
        np.where(attempts > 0, runs["begun"], np.nan),
        runs["phase"].astype(np.int8),
        attempts,
        runs["lost"].copy(),
        runs["reserved"].copy(),
        piece_from[:-1],
        np.where(on_nodes, runs["pieces"], 0),
        state.out["node"].copy(),
        state.out["tasks"].copy(),
        {
            "job": cuts["job"].copy(),
            "begun": cuts["begun"].copy(),
            "end": cuts["end"].copy(),
            "why": cuts["why"].copy(),
            "from": state.cuts["first"][: cut + 1].copy(),
            "node": state.cut_pieces["node"][:pieces].copy(),
            "tasks": state.cut_pieces["tasks"][:pieces].copy(),
        },
        {
            "instants": int(at[kernels.INSTANTS]),
            "rounds": int(at[kernels.ROUNDS]),
            "tests": int(at[kernels.TESTS]),
            "kills": int(at[kernels.KILLS]),
            "requeues": int(at[kernels.REQUEUES]),
            "preemptions": int(at[kernels.PREEMPTIONS]),
        },
        seconds,
        t.account,
        t.told(_name(scheduler), "compiled"),
    )


def _name(scheduler: Any) -> str:
    if not isinstance(scheduler, Composed):
        return type(scheduler).__name__
    choice = getattr(scheduler.choice, "name", type(scheduler.choice).__name__)
    if isinstance(scheduler.choice, ByRate):
        rates = scheduler.choice.rates
        choice = {"labels": "label"}.get(rates, rates) if isinstance(rates, str) else "learned"
    queue = getattr(scheduler.queue, "name", type(scheduler.queue).__name__)
    return f"{queue}+{scheduler.backfilling}+{choice}"


def _inputs(
    t: Tables, rules: kernels.Rules
) -> tuple[kernels.Work, kernels.Shapes, kernels.World, Ints]:
    jobs, nodes = t.jobs, t.nodes
    J, N = len(jobs), len(nodes)
    kind = t.dominant[jobs.shape]
    amount = t.demand[jobs.shape, kind]
    total = np.maximum(nodes.capacity.sum(axis=0), 1).astype(np.float64)
    size = jobs.tasks * amount / 1000.0
    share = jobs.tasks * amount / total[kind]
    if rules.queue == kernels.SJF:
        by_rank = np.argsort(jobs.limit, kind="stable")
    elif rules.queue == kernels.EDF:
        by_rank = np.argsort(jobs.deadline, kind="stable")
    elif rules.queue == kernels.PRIORITY:
        by_rank = np.argsort(-jobs.priority, kind="stable")
    else:
        by_rank = np.arange(J)
    rank = np.empty(J, dtype=np.int64)
    rank[by_rank] = np.arange(J)
    later = np.repeat(np.arange(J), np.diff(jobs.after_from))
    keep = ~t.aside[jobs.after]
    before, later = jobs.after[keep], later[keep]
    order = np.argsort(before, kind="stable")
    next_from = np.concatenate([[0], np.cumsum(np.bincount(before, minlength=J))])
    parts = np.minimum(jobs.tasks, N)
    parts = np.where(t.fraction[jobs.shape] > 0, jobs.tasks, parts)
    parts[t.aside] = 0
    piece_from = np.concatenate([[0], np.cumsum(parts)])
    rows = np.zeros(J, dtype=kernels.WORK)
    for name, values in {
        "submit": jobs.submit,
        "work": t.work,
        "limit": jobs.limit,
        "tasks": jobs.tasks,
        "shape": jobs.shape,
        "type": jobs.type,
        "user": jobs.user,
        "size": size,
        "share": share,
        "rank": rank,
        "doomed": t.doomed,
        "piece_from": piece_from[:-1],
        "next_from": next_from[:-1],
        "next_to": next_from[1:],
    }.items():
        rows[name] = values
    work = kernels.Work(rows, by_rank.astype(np.int64), later[order].astype(np.int64))
    played = np.unique(jobs.shape[~t.aside])
    least = t.demand[played].min(axis=0) if played.size else np.zeros(t.demand.shape[1], np.int64)
    tasks = np.zeros(len(t.demand), dtype=kernels.TASK)
    for name, values in {
        "fraction": t.fraction,
        "whole": t.whole,
        "per_node": t.per_node,
        "constraint": t.constraint,
        "dominant": t.dominant,
    }.items():
        tasks[name] = values
    shapes = kernels.Shapes(tasks, t.demand, least)
    shared = -1 if nodes.shared is None else nodes.devices.index(nodes.shared)
    devices = nodes.capacity[:, shared] // 1000 if shared >= 0 else np.zeros(N, dtype=np.int64)
    world = kernels.World(
        nodes.capacity,
        shared,
        devices,
        t.allowed,
        np.zeros((0, 0)),
        t.log_rates,
        t.log_noise,
        t.event_time,
        t.event_node,
        t.event_kind,
        t.event_value,
    )
    return work, shapes, world, piece_from.astype(np.int64)


def _state(t: Tables, rules: kernels.Rules, piece_from: Ints) -> kernels.State:
    jobs, nodes = t.jobs, t.nodes
    J, N, S = len(jobs), len(nodes), len(jobs.shapes)
    books = Books.opened(nodes)
    blocks = -(-N // kernels.BLOCK)
    top = np.zeros((blocks, len(nodes.devices)), dtype=np.int64)
    for b in range(blocks):
        top[b] = books.free[b * kernels.BLOCK : (b + 1) * kernels.BLOCK].max(axis=0)
    at = np.zeros(kernels.SIZE_AT, dtype=np.int64)
    at[kernels.HEAD] = -1
    at[kernels.EPOCH] = at[kernels.CHANGE] = 1
    at[kernels.ENDED] = int(t.aside.sum())

    def ints(size: int) -> Ints:
        return np.zeros(size, dtype=np.int64)

    def floats(size: int, value: float = 0.0) -> Floats:
        return np.full(size, value)

    words = -(-J // 64) + 1
    pieces = int(piece_from[-1])
    most = max(int(np.diff(piece_from).max(initial=1)), N) + 1
    backfills = rules.backfilling != kernels.NO_BACKFILLING
    conserves = rules.backfilling == kernels.CONSERVATIVE
    learns = rules.choice == kernels.BY_RATE
    changing = rules.queue >= kernels.FAIR_SHARE
    sorts = J if changing or t.event_time.size or rules.look < math.inf else 0
    users = len(jobs.users) if rules.queue == kernels.FAIR_SHARE else 0
    timers = 2 * J + 64 if learns and (rules.rates != kernels.LABELS or rules.waits) else 0
    runs = np.zeros(J, dtype=kernels.RUN)
    runs["phase"] = np.where(t.aside, SET_ASIDE, 0)
    runs["wants"], runs["left"] = t.wants, t.work
    runs["speed"] = runs["seen"] = 1.0
    runs["first"] = runs["reserved"] = runs["slot"] = np.inf
    runs["end"], runs["timer"] = np.nan, -1.0
    return kernels.State(
        at=at,
        clock=floats(kernels.SIZE_CLOCK, -1.0),
        free=books.free,
        total=books.free.sum(axis=0),
        top=top,
        device=books.device,
        up=np.ones(N, dtype=bool),
        log_factor=floats(N),
        jobs=runs,
        out=np.zeros(pieces, dtype=kernels.PIECE),
        words=ints(words),
        summary=ints(-(-words // 64) + 1),
        finishes=np.zeros(J + 64, dtype=kernels.DUE),
        timers=np.zeros(timers, dtype=kernels.DUE),
        running=ints(J),
        order=ints(J if backfills else 0),
        fresh=ints(64),
        sequence=ints(J),
        key=floats(sorts),
        other_sequence=ints(sorts),
        other_key=floats(sorts),
        users=np.zeros(users, dtype=kernels.USER),
        tried=np.zeros(most, dtype=kernels.PIECE),
        cands=np.zeros(most, dtype=kernels.CANDIDATE),
        heap=ints(N),
        memo=np.zeros(S, dtype=kernels.MEMO),
        mean=floats(N),
        sd=floats(N),
        spare=floats(N),
        worth=floats(N),
        shadow=np.zeros_like(books.free),
        shadow_device=np.zeros_like(books.device),
        shadow_top=np.full_like(top, 2**62),
        now_free=np.zeros_like(books.free),
        now_device=np.zeros_like(books.device),
        ahead=np.zeros_like(books.free),
        ahead_device=np.zeros_like(books.device),
        trial=np.zeros_like(books.free),
        trial_device=np.zeros_like(books.device),
        changes=np.zeros(2 * J + 8 if conserves else 0, dtype=kernels.DUE),
        rated=ints(most),
        log_rates=floats(most),
        cuts=np.zeros(65, dtype=kernels.CUT),
        cut_pieces=np.zeros(64, dtype=kernels.PIECE),
    )


def _more_room(x: kernels.State) -> kernels.State:
    """Twice the room for attempts cut short, or what running jobs may need."""
    cuts = np.zeros(2 * x.cuts.size + int(x.at[kernels.N_RUNNING]), dtype=kernels.CUT)
    cuts[: x.cuts.size] = x.cuts
    size = 2 * x.cut_pieces.size + int(x.at[kernels.PIECES_OUT])
    pieces = np.zeros(size, dtype=kernels.PIECE)
    pieces[: x.cut_pieces.size] = x.cut_pieces
    return x._replace(cuts=cuts, cut_pieces=pieces)


# ----------------------------------------------------------------------------------------- plain


class PlainSimulation:
    """The rules in plain Python, for any scheduler. Pickles between instants."""

    def __init__(self, tables: Tables, scheduler: Any):
        t = tables
        self.tables = t
        self.scheduler = scheduler
        self.learns = getattr(scheduler, "learns", True)
        self.books = Books.opened(t.nodes)
        self.now = -1.0
        self.look = float(getattr(scheduler, "look", math.inf))
        J = len(t.jobs)
        self.phase = np.where(t.aside, SET_ASIDE, 0).astype(np.int8)
        self.left = t.work.astype(float).tolist()
        self.wants = t.wants.tolist()
        self.first = np.full(J, np.nan)
        self.begun = np.full(J, np.nan)
        self.end = np.full(J, np.nan)
        self.attempts = np.zeros(J, dtype=np.int64)
        self.lost = np.zeros(J)
        self.overhead = [0.0] * J
        self.since = [0.0] * J
        self.speed = [1.0] * J
        self.finish = [math.inf] * J
        self.timer: dict[int, float] = {}
        self.pieces: dict[int, tuple[Piece, ...]] = {}
        self.factor = np.zeros(len(t.nodes))
        self.waiting: list[Job] = []
        self.rows: dict[str, int] = {}
        self.next_job = 0
        self.next_event = 0
        self.heap: list[tuple[float, int]] = []
        self.timers: list[tuple[float, int]] = []
        self.cuts: list[tuple[int, float, float, int, tuple[Piece, ...]]] = []
        self.counts = dict.fromkeys(
            ("instants", "rounds", "tests", "kills", "requeues", "preemptions"), 0
        )
        self.seconds = 0.0
        self.after: list[list[int]] = [[] for _ in range(J)] if t.jobs.after.size else []
        for j in range(J if t.jobs.after.size else 0):
            for i in range(t.jobs.after_from[j], t.jobs.after_from[j + 1]):
                self.after[t.jobs.after[i]].append(j)
        self.ended = int(t.aside.sum())
        # The same demands over the nodes' device types, for jobs that know fewer.
        self.shapes = [
            s._replace(demand=tuple(t.demand[i].tolist())) for i, s in enumerate(t.jobs.shapes)
        ]
        scheduler.resize(t.nodes, t.jobs.types)
        choice = getattr(scheduler, "choice", None)
        if isinstance(choice, ByRate) and choice.rates == "oracle":
            choice.reveal(t.log_rates, self.factor)

    def run(self, progress: Callable[[int, int], None] | None = None) -> Schedule:
        """To the end."""
        while self.step():
            if progress is not None and self.counts["instants"] % 10_000 == 0:
                progress(self.ended, len(self.tables.jobs))
        return self.schedule()

    def step(self) -> bool:
        """One instant: its events, then a round. False when nothing is left to happen."""
        now = self._next_instant()
        if now == math.inf or self.ended == len(self.tables.jobs):
            return False
        looks = False
        if self.look < math.inf and self.books.running:
            due = (math.floor(self.now / self.look) + 1) * self.look
            looks = due <= now
            now = min(now, due)
        self.now = now
        self.counts["instants"] += 1
        self._events(now)
        if self.waiting:
            self.counts["rounds"] += 1
            for action in self._decisions(now):
                self._act(action, now)
        if looks:
            self._look_around(now)
        return True

    def _decisions(self, now: float) -> list[Any]:
        """A round: what the scheduler wants."""
        began = time.perf_counter()
        actions = list(self.scheduler.place(Queue(self.waiting), self.books, now))
        self.seconds += time.perf_counter() - began
        self.books.events.clear()
        return actions

    def _tell(self, rate: Rate) -> None:
        """A measurement reaches the scheduler."""
        self.scheduler.observe(rate)

    def _look_around(self, now: float) -> None:
        """Running jobs are measured again; while nobody waits, some may move."""
        after = self.tables.options.measured_after
        for j in sorted(self.rows[name] for name in self.books.running):
            if self.begun[j] + after <= now and self.begun[j] + self.overhead[j] < now:
                self._measure(j, now, first=False, ended=False)
        if self.waiting:
            return
        began = time.perf_counter()
        actions = self.scheduler.migrations(self.books, now)
        self.seconds += time.perf_counter() - began
        for action in actions:
            self._act(action, now)

    def _next_instant(self) -> float:
        t = self.tables
        now = math.inf
        while self.heap and not self._holds(*self.heap[0]):
            heapq.heappop(self.heap)
        if self.heap:
            now = self.heap[0][0]
        while self.timers and self.timer.get(self.timers[0][1]) != self.timers[0][0]:
            heapq.heappop(self.timers)
        if self.timers:
            now = min(now, self.timers[0][0])
        while self.next_job < len(t.jobs) and self.phase[self.next_job] == SET_ASIDE:
            self.next_job += 1
        if self.next_job < len(t.jobs):
            now = min(now, float(t.jobs.submit[self.next_job]))
        if self.next_event < t.event_time.size:
            now = min(now, float(t.event_time[self.next_event]))
        return now

    def _holds(self, time: float, j: int) -> bool:
        return bool(self.phase[j] == RUNNING and self.finish[j] == time)

    def _events(self, now: float) -> None:
        t = self.tables
        while self.heap and self.heap[0][0] <= now:
            at, j = heapq.heappop(self.heap)
            if self._holds(at, j):
                self._finish(j, now)
        while self.next_event < t.event_time.size and t.event_time[self.next_event] <= now:
            e = self.next_event
            self.next_event += 1
            self._node_event(
                int(t.event_kind[e]), int(t.event_node[e]), float(t.event_value[e]), now
            )
        while self.next_job < len(t.jobs) and t.jobs.submit[self.next_job] <= now:
            j = self.next_job
            self.next_job += 1
            if self.phase[j] == SET_ASIDE:
                continue
            if self.wants[j]:
                self.phase[j] = kernels.HELD
            else:
                self._enter(j, now)
        while self.timers and self.timers[0][0] <= now:
            at, j = heapq.heappop(self.timers)
            if self.timer.get(j) == at:
                del self.timer[j]
                if self.phase[j] == RUNNING:
                    self._measure(j, now, first=True, ended=False)

    def _enter(self, j: int, now: float) -> None:
        job = self.tables.jobs.job(j)
        if self.tables.jobs.devices != self.tables.nodes.devices:
            job = _with_shape(job, self.shapes[self.tables.jobs.shape[j]])
        self.phase[j] = WAITING
        self.rows[job.id] = j
        self.timer.pop(j, None)
        if not self.waiting or self.waiting[-1].row < j:
            self.waiting.append(job)
        else:
            insort(self.waiting, job, key=lambda other: other.row)
        self.books.events.append(Event("submitted", now, job))

    def _act(self, action: Any, now: float) -> None:
        name = getattr(action, "job", None)
        j = self.rows.get(name, -1) if isinstance(name, str) else -1
        if isinstance(action, Ask):
            if j >= 0 and self.phase[j] == WAITING:
                if not action.at > now:
                    raise InfeasibleDecision(
                        f"at {now:g} s: asked to be called at {action.at:g} s, which is not later"
                    )
                self.timer[j] = action.at
                heapq.heappush(self.timers, (action.at, j))
            return
        if isinstance(action, Preempt):
            if j < 0 or self.phase[j] != RUNNING:
                raise InfeasibleDecision(f"at {now:g} s: job {name} is preempted but not running")
            self._interrupt(j, now, "preempted")
            return
        if not isinstance(action, Place):
            raise InfeasibleDecision(f"at {now:g} s: {action!r} is no Place, Preempt or Ask")
        if j < 0 or self.phase[j] != WAITING:
            raise InfeasibleDecision(f"at {now:g} s: job {name} is placed but not waiting")
        self._start(j, action, now)

    def _start(self, j: int, action: Place, now: float) -> None:
        t, books = self.tables, self.books
        i = next(i for i, job in enumerate(self.waiting) if job.row == j)
        job = self.waiting[i]
        self._check(job, action, now)
        pieces = action.pieces or books.tell_apart(job.shape, action.tasks)
        books.take(job.shape, pieces)
        del self.waiting[i]
        self.phase[j] = RUNNING
        self.timer.pop(j, None)
        self.attempts[j] += 1
        self.begun[j] = now
        if math.isnan(self.first[j]):
            self.first[j] = now
        self.since[j] = now + self.overhead[j]
        self.pieces[j] = pieces
        books.running[job.id] = Running(job, pieces, now, self.overhead[j])
        self.speed[j] = self._speed(j)
        self._schedule_end(j)
        lasts = t.event_time.size > 0 or now + t.options.measured_after < self.finish[j]
        if self.learns and lasts:
            self.timer[j] = now + t.options.measured_after
            heapq.heappush(self.timers, (self.timer[j], j))
        books.events.append(Event("started", now, job, pieces=pieces))

    def _check(self, job: Job, action: Place, now: float) -> None:
        """Gangs are whole, and nothing is taken that is not free."""
        books = self.books
        where = f"at {now:g} s: job {job.id}"
        counts: dict[int, int] = {}
        for n, c in action.tasks:
            if not 0 <= n < len(books.free) or c < 1:
                raise InfeasibleDecision(f"{where} gets {c} tasks on node {n}")
            counts[n] = counts.get(n, 0) + c
        if sum(counts.values()) != job.tasks:
            raise InfeasibleDecision(
                f"{where} has {job.tasks} tasks, {sum(counts.values())} are placed; all or none"
            )
        if action.pieces:
            told: dict[int, int] = {}
            for n, c, _ in action.pieces:
                told[n] = told.get(n, 0) + c
            if told != counts:
                raise InfeasibleDecision(f"{where}: pieces and tasks say different things")
        for n, c in counts.items():
            name = books.nodes.names[n]
            if not books.up[n]:
                raise InfeasibleDecision(f"{where} is placed on node {name}, which is down")
            if job.shape.per_node and c > job.shape.per_node:
                raise InfeasibleDecision(
                    f"{where} gets {c} tasks on node {name}; at most {job.shape.per_node} may be"
                )
            has = books.nodes.labels[n]
            for label, value in job.shape.constraint:
                if has.get(label) != value:
                    raise InfeasibleDecision(
                        f"{where} asks for {label}={value}; node {name} is not that"
                    )
            for k, d in enumerate(job.shape.demand):
                if c * d > books.free[n, k]:
                    raise InfeasibleDecision(
                        f"{where} takes {c * d / 1000:g} {books.nodes.devices[k]} on node {name}, "
                        f"where {books.free[n, k] / 1000:g} are free"
                    )
        shared = books.nodes.shared
        if shared is not None:
            amount = job.shape.demand[books.nodes.devices.index(shared)]
            left = books.device.copy()
            for n, c, mask in action.pieces or books.tell_apart(job.shape, action.tasks):
                used = [g for g in range(mask.bit_length()) if mask >> g & 1]
                wanted = 0 if amount == 0 else (1 if amount < 1000 else c * (amount // 1000))
                if len(used) != wanted:
                    raise InfeasibleDecision(f"{where}: {len(used)} {shared} for {c} tasks")
                for g in used:
                    left[n, g] -= c * amount if amount < 1000 else 1000
                    if left[n, g] < 0:
                        raise InfeasibleDecision(
                            f"{where} takes more of {shared} {g} of node {books.nodes.names[n]} "
                            "than is free"
                        )

    def _speed(self, j: int) -> float:
        t = self.tables
        if t.log_rates.size == 0:
            return 1.0
        rates = t.log_rates[t.jobs.type[j]]
        slowest = min(float(rates[n] + self.factor[n]) for n, _, _ in self.pieces[j])
        return math.exp(slowest + float(t.log_noise[j]))

    def _schedule_end(self, j: int) -> None:
        end = self.since[j] + self.left[j] / self.speed[j]
        o = self.tables.options
        if o.enforced and o.limits == "wall-clock":
            end = min(end, float(self.begun[j] + self.tables.jobs.limit[j]))
        self.finish[j] = end
        heapq.heappush(self.heap, (end, j))

    def _measure(self, j: int, now: float, first: bool, ended: bool) -> None:
        t = self.tables
        running = self.books.running[str(t.jobs.id[j])]
        rates = []
        for n, _, _ in self.pieces[j]:
            if t.log_rates.size:
                log = t.log_rates[t.jobs.type[j], n] + self.factor[n] + t.log_noise[j]
                rates.append(math.exp(float(log)))
            else:
                rates.append(1.0)
        nodes = tuple(n for n, _, _ in self.pieces[j])
        begun = float(self.since[j])
        self._tell(Rate(running.job, nodes, tuple(rates), begun, now, first, ended))

    def _leave(self, j: int, now: float, kind: Any) -> Job:
        running = self.books.running.pop(str(self.tables.jobs.id[j]))
        self.books.take(running.job.shape, self.pieces[j], sign=1)
        self.books.events.append(Event(kind, now, running.job, pieces=self.pieces[j]))
        return running.job

    def _finish(self, j: int, now: float) -> None:
        t = self.tables
        own = self.since[j] + self.left[j] / self.speed[j]
        if self.learns and now > self.since[j]:
            measured = self.begun[j] + t.options.measured_after
            self._measure(j, now, first=bool(now <= measured), ended=own <= now)
        killed = own > now or bool(t.doomed[j])
        self._leave(j, now, "killed" if killed else "finished")
        self.timer.pop(j, None)
        self.end[j] = now
        self.phase[j] = KILLED if killed else FINISHED
        self.counts["kills"] += killed
        self.ended += 1
        for k in self.after[j] if self.after else ():
            self.wants[k] -= 1
            if self.wants[k] == 0 and self.phase[k] == kernels.HELD:
                self._enter(k, now)

    def _interrupt(self, j: int, now: float, kind: Literal["failed", "preempted"]) -> None:
        t, o = self.tables, self.tables.options
        size = t.jobs.tasks[j] * t.demand[t.jobs.shape[j], t.dominant[t.jobs.shape[j]]] / 1000.0
        left = max(self.left[j] - max(now - self.since[j], 0.0) * self.speed[j], 0.0)
        if kind == "failed":
            done = float(t.work[j]) - left
            kept = done
            if o.checkpoint == math.inf:
                kept = 0.0
            elif o.checkpoint > 0.0:
                kept = math.floor(done / o.checkpoint) * o.checkpoint
            self.lost[j] += (done - kept) * size
            left = float(t.work[j]) - kept
        self.lost[j] += min(now - self.begun[j], self.overhead[j]) * size
        why = 0 if kind == "failed" else 1
        self.cuts.append((j, float(self.begun[j]), now, why, self.pieces[j]))
        self._leave(j, now, kind)
        del self.pieces[j]
        self.left[j] = left
        self.overhead[j] = o.restart
        self.counts["requeues" if kind == "failed" else "preemptions"] += 1
        self._enter(j, now)

    def _node_event(self, kind: int, n: int, value: float, now: float) -> None:
        books = self.books
        if kind == kernels.UP:
            if not books.up[n]:
                books.up[n] = True
                books.free[n] = books.capacity[n]
                books.device[n] = Books.opened(books.nodes).device[n]
                books.events.append(Event("node_up", now, node=n))
            return
        if kind == kernels.DOWN and not books.up[n]:
            return
        if kind == kernels.FACTOR:
            self.factor[n] = value
        there = sorted(
            self.rows[name]
            for name, running in books.running.items()
            if any(m == n for m, _, _ in running.pieces)
        )
        for j in there:
            if kind == kernels.DOWN:
                self._interrupt(j, now, "failed")
                continue
            speed = self._speed(j)
            if speed != self.speed[j]:
                if now > self.since[j]:
                    worked = (now - self.since[j]) * self.speed[j]
                    self.left[j] = max(self.left[j] - worked, 0.0)
                    self.since[j] = now
                self.speed[j] = speed
                self._schedule_end(j)
        if kind == kernels.DOWN:
            books.up[n] = False
            books.free[n] = 0
            books.device[n] = 0
            books.events.append(Event("node_down", now, node=n))

    def schedule(self) -> Schedule:
        """What has happened so far."""
        t = self.tables
        J = len(t.jobs)
        counts = np.array([len(self.pieces.get(j, ())) for j in range(J)], dtype=np.int64)
        flat = [p for j in range(J) for p in self.pieces.get(j, ())]
        cut = [p for c in self.cuts for p in c[4]]
        lengths = [len(c[4]) for c in self.cuts]
        return Schedule(
            t.jobs,
            t.nodes,
            self.first,
            self.end,
            self.begun,
            self.phase,
            self.attempts,
            self.lost,
            np.full(J, np.inf),
            np.cumsum(counts) - counts,
            counts,
            np.array([p[0] for p in flat], dtype=np.int64),
            np.array([p[1] for p in flat], dtype=np.int64),
            {
                "job": np.array([c[0] for c in self.cuts], dtype=np.int64),
                "begun": np.array([c[1] for c in self.cuts]),
                "end": np.array([c[2] for c in self.cuts]),
                "why": np.array([c[3] for c in self.cuts], dtype=np.int64),
                "from": np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
                "node": np.array([p[0] for p in cut], dtype=np.int64),
                "tasks": np.array([p[1] for p in cut], dtype=np.int64),
            },
            self.counts,
            self.seconds,
            t.account,
            t.told(_name(self.scheduler), "plain"),
        )


def _with_shape(job: Job, shape: Any) -> Job:
    return Job(
        job.id,
        job.row,
        job.submitted,
        job.job_type,
        job.user,
        job.tasks,
        shape,
        job.limit,
        job.deadline,
        job.budget,
        job.priority,
    )
