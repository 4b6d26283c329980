"""The way into the compiled simulation: arrays in, a schedule out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from gangwise.core.arrays import Floats, Ints
from gangwise.core.errors import ScenarioError
from gangwise.jobs import event_kernels, kernels, rate_kernels
from gangwise.jobs.books import Books
from gangwise.jobs.choice import FGD, BestFit, ByRate, FirstFit, WorstFit
from gangwise.jobs.kernels import CANCELLED, FINISHED, KILLED, RUNNING
from gangwise.jobs.model import Nodes
from gangwise.jobs.queues import (
    WFP3,
    EarliestDeadline,
    FairShare,
    FirstCome,
    Priority,
    ShortestFirst,
)
from gangwise.jobs.schedule import Options, Schedule, Tables, name_of
from gangwise.jobs.scheduler import Composed

NO_INTS = np.zeros(0, dtype=np.int64)

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


def built_in(scheduler: Any, nodes: Nodes, options: Options) -> kernels.Rules | None:
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


def play_compiled(
    t: Tables,
    scheduler: Composed,
    rules: kernels.Rules,
    progress: Callable[[int, int], None] | None,
) -> Schedule:
    """Play in compiled code from the first event to the last."""
    jobs = t.jobs
    J = len(jobs)
    work, shapes, world, pieces_in_all = _inputs(t, rules)
    state = _state(t, rules, pieces_in_all)
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
    # What is told stays where it is; the rest is copied out of the rows, which are given back first
    # where that is possible: fresh memory costs more than the copies.
    cuts, start, end, told = state.cuts[:cut], *state.told[:2], state.told
    start[start == np.inf] = np.nan
    promises = rules.backfilling != kernels.NO_BACKFILLING
    piece_from = work.jobs["piece_from"].copy()
    del work
    runs, phase = state.jobs, state.jobs["phase"].astype(np.int8)
    attempts = runs["attempts"].astype(np.int64)
    on_nodes = np.isin(phase, (RUNNING, FINISHED, KILLED))
    on_nodes |= (phase == CANCELLED) & np.isfinite(end)
    return Schedule(
        jobs,
        t.nodes,
        start,
        end,
        np.where(attempts > 0, runs["begun"], np.nan),
        phase,
        attempts,
        told[kernels.LOST],
        told[kernels.PROMISED] if promises else np.broadcast_to(np.inf, (J,)),
        piece_from,
        np.where(on_nodes, runs["pieces"], 0).astype(np.int64),
        state.out["node"].astype(np.int64),
        state.out["tasks"].astype(np.int64),
        {
            "job": cuts["job"].copy(),
            "begun": cuts["begun"].copy(),
            "end": cuts["end"].copy(),
            "why": cuts["why"].copy(),
            "from": state.cuts["first"][: cut + 1].copy(),
            "node": state.cut_pieces["node"][:pieces].astype(np.int64),
            "tasks": state.cut_pieces["tasks"][:pieces].astype(np.int64),
        },
        {
            "instants": int(at[kernels.INSTANTS]),
            "rounds": int(at[kernels.ROUNDS]),
            "tests": int(at[kernels.TESTS]),
            "kills": int(at[kernels.KILLS]),
            "requeues": int(at[kernels.REQUEUES]),
            "preemptions": int(at[kernels.PREEMPTIONS]),
            "cancellations": int(at[kernels.CANCELLATIONS]),
        },
        seconds,
        t.account,
        t.told(name_of(scheduler), "compiled"),
    )


def _inputs(
    t: Tables, rules: kernels.Rules
) -> tuple[kernels.Work, kernels.Shapes, kernels.World, int]:
    jobs, nodes = t.jobs, t.nodes
    J, N = len(jobs), len(nodes)
    if rules.queue == kernels.SJF:
        by_rank = np.argsort(jobs.limit, kind="stable")
    elif rules.queue == kernels.EDF:
        by_rank = np.argsort(jobs.deadline, kind="stable")
    elif rules.queue == kernels.PRIORITY:
        by_rank = np.argsort(-jobs.priority, kind="stable")
    else:
        by_rank = np.arange(J)
    later, next_from = NO_INTS, NO_INTS
    if jobs.after.size:
        keep = ~t.aside[jobs.after]
        before, later = jobs.after[keep], np.repeat(np.arange(J), np.diff(jobs.after_from))[keep]
        later = later[np.argsort(before, kind="stable")]
        next_from = np.concatenate([[0], np.cumsum(np.bincount(before, minlength=J))])
    rows = np.zeros(J, dtype=kernels.WORK)
    pieces = kernels.fill_work(
        rows,
        (
            np.ascontiguousarray(jobs.submit),
            np.ascontiguousarray(t.work),
            np.ascontiguousarray(jobs.limit),
            _once(jobs.tasks),
            _once(jobs.shape),
            _once(jobs.type),
            _once(jobs.user),
            t.doomed,
            t.aside,
        ),
        np.where(t.fraction > 0, 2**31 - 1, N),
        by_rank,
        2**31 - 1,
    )
    work = kernels.Work(rows, by_rank, later.astype(np.int64), next_from)
    played = _played(t)
    least = t.demand[played].min(axis=0) if played.size else np.zeros(t.demand.shape[1], np.int64)
    total = np.maximum(nodes.capacity.sum(axis=0), 1).astype(np.float64)
    tasks = np.zeros(len(t.demand), dtype=kernels.TASK)
    for name, values in {
        "fraction": t.fraction,
        "whole": t.whole,
        "per_node": t.per_node,
        "constraint": t.constraint,
        "dominant": t.dominant,
        "total": total[t.dominant],
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
    return work, shapes, world, pieces


def _once(column: Ints) -> Ints:
    """A column for the kernels: one value where one stands for all."""
    return np.ascontiguousarray(column[:1] if column.strides == (0,) else column)


def _played(t: Tables) -> Ints:
    """Shapes of jobs that are not set aside."""
    return np.flatnonzero(np.bincount(t.jobs.shape[~t.aside], minlength=len(t.demand)))


def _state(t: Tables, rules: kernels.Rules, pieces: int) -> kernels.State:
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

    def rows(size: int) -> kernels.Rows:
        return np.zeros(size, dtype=kernels.DUE)

    # No more can run at once than the smallest task fits into the cluster.
    played = _played(t)
    least = t.demand[played].min(axis=0) if played.size else np.ones(len(nodes.devices), np.int64)
    asked = least > 0
    most_running = J
    if asked.any():
        at_once = nodes.capacity.sum(axis=0)[asked] // least[asked]
        most_running = min(J, int(at_once.min()))
    words = -(-J // 64) + 1
    gang = int(jobs.tasks[~t.aside].max(initial=1))
    most = max(gang if (t.fraction > 0).any() else min(gang, N), N) + 1
    backfills = rules.backfilling != kernels.NO_BACKFILLING
    conserves = rules.backfilling == kernels.CONSERVATIVE
    learns = rules.choice == kernels.BY_RATE
    changing = rules.queue >= kernels.FAIR_SHARE
    sorts = changing or conserves or t.event_time.size > 0 or rules.look < math.inf
    users = len(jobs.users) if rules.queue == kernels.FAIR_SHARE else 0
    timers = 2 * J + 64 if learns and (rules.rates != kernels.LABELS or rules.waits) else 0
    runs = np.zeros(J, dtype=kernels.RUN)
    told = np.zeros((kernels.SIZE_TOLD, J))
    kernels.fill_runs(runs, told, np.ascontiguousarray(t.work), t.aside)
    if backfills:
        told[kernels.PROMISED] = np.inf
    looks = np.zeros(J if learns or rules.limits_of_work else 0, dtype=kernels.LOOK)
    looks["seen"], looks["timer"] = 1.0, -1.0
    plans = np.zeros(J if conserves else 0, dtype=kernels.PLAN)
    plans["slot"], plans["planned"] = np.inf, -1
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
        told=told,
        wants=t.wants.copy() if jobs.after.size else ints(0),
        looks=looks,
        plans=plans,
        out=np.zeros(pieces, dtype=kernels.PIECE),
        words=ints(words),
        summary=ints(-(-words // 64) + 1),
        finishes=rows(most_running + 64),
        timers=rows(timers),
        running=ints(most_running + 1),
        order=rows(2 * most_running + 64 if backfills else 0),
        fresh=ints(64),
        sequence=rows(J if sorts else 0),
        spare_rows=rows(max(2 * J + 8 if conserves else J if sorts else 0, 2 * most_running + 64)),
        users=np.zeros(users, dtype=kernels.USER),
        tried=np.zeros(most, dtype=kernels.PIECE),
        cands=np.zeros(most, dtype=kernels.CANDIDATE),
        heap=ints(N),
        memo=np.zeros(S, dtype=kernels.MEMO),
        delays=np.zeros(kernels.DELAYS, dtype=kernels.DELAY),
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
        changes=rows(2 * J + 8 if conserves else 0),
        profile=np.zeros((2 * J + 9 if conserves else 0, len(nodes.devices)), dtype=np.int64),
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
