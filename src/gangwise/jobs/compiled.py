"""Entry of the compiled simulation: its state from tables, and a schedule from its state.

States of several simulations may be rows of one memory, which kernels open one by one.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from gangwise.core.arrays import Floats, Ints, read_only
from gangwise.core.jit import Pinned, Reference, inlined_kernel
from gangwise.jobs import kernels, model, queues, rate_kernels, round_kernels, run_times, tenancy
from gangwise.jobs.books import Books, Piece
from gangwise.jobs.choice import FGD, BestFit, ByRate, FirstFit, WorstFit
from gangwise.jobs.distance import Apart, NearBeliefs, TopologyAware
from gangwise.jobs.kernels import CUT, PIECE, State
from gangwise.jobs.queue_kernels import copy_of
from gangwise.jobs.schedule import Options, Schedule, Tables, no_ways, placed_shapes
from gangwise.jobs.scheduler import Composed, name_of

LINE = 8
"""Words of eight bytes in a line of the cache, at which arrays begin."""


def joined(join: Callable[[Sequence[Any]], Any], each: Sequence[Any]) -> Any:
    """Nested named tuples with their arrays joined; other fields are those of the first."""
    example = each[0]
    if isinstance(example, tuple):
        return type(example)(*(joined(join, fields) for fields in zip(*each)))
    return join(each) if isinstance(example, np.ndarray | np.record) else example


def stacked(each: Sequence[Any]) -> tuple[Any, Ints]:
    """Nested named tuples as one whose arrays have an axis more, and their memory [E, words].

    A row of memory holds all arrays of one. Shorter ones end with zeros, which nothing points at.
    """
    shapes: list[tuple[int, ...]] = []

    def longest(arrays: Sequence[Any]) -> None:
        shapes.append(tuple(np.max([np.shape(array) for array in arrays], axis=0).astype(int)))
        # Rounded up to whole cache lines, so that no array shares one with the next.
        sizes.append(-(-int(np.prod(shapes[-1])) * arrays[0].dtype.itemsize // (8 * LINE)) * LINE)

    sizes: list[int] = []
    joined(longest, each)
    # Zeroed: the padding behind shorter arrays is read by nobody, but copied with the row.
    memory = np.zeros((len(each), sum(sizes)), np.int64)
    places = iter(zip(shapes, np.cumsum([0, *sizes]).tolist()))

    def filled(arrays: Sequence[Any]) -> Any:
        shape, word = next(places)
        # Views into `memory`: copying a row of it copies all arrays of a state at once.
        stack = np.ndarray(
            (len(arrays), *shape),
            arrays[0].dtype,
            memory,
            8 * word,
            (memory.strides[0], *np.empty(shape, arrays[0].dtype).strides),
        )
        for i, array in enumerate(arrays):
            place: Any = (i, *map(slice, np.shape(array)))
            stack[place] = array
        return stack

    return joined(filled, each), memory


def row(stack: Any, i: int) -> Any:
    """Row i of every array in nested named tuples; what is no array is of all rows."""
    if isinstance(stack, tuple):
        return type(stack)(*(row(part, i) for part in stack))
    return stack[i] if isinstance(stack, np.ndarray) else stack


def pinned(rows: Sequence[Any]) -> tuple[Sequence[Pinned], Ints]:
    """Named tuples of the same types, each pinned, and their addresses for :data:`opened_at`."""
    tuples = [Pinned(row) for row in rows]
    return tuples, np.array([pin.address for pin in tuples], dtype=np.int64)


def _opened_at(typing_context: Any, pinned: Any, address: Any) -> Any:
    def pointer(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        # An address and a pointer are the same bits; the field types come from the first reference.
        return builder.inttoptr(values[1], values[0].type)

    return Reference(pinned.fields)(pinned, types.int64), pointer


opened_at: Any = intrinsic(_opened_at)
"""The reference to one of several that are :func:`pinned`: ``opened_at(the first, address)``."""


@inlined_kernel
def copy_words(of: Ints, to: Ints) -> None:
    """Copy a row of memory to another."""
    for w in range(of.size):
        to[w] = of[w]


def never_cut(state: State) -> State:
    """The state of a play in which no node fails, so that no attempt is cut short."""
    room: dict[str, Any] = {
        "cuts": np.zeros(state.jobs.size + 2, CUT),
        "cut_pieces": np.zeros(state.out.size + 1, PIECE),
    }
    return state._replace(**room)


NO_INTS = np.zeros(0, dtype=np.int64)
COUNTED = "instants", "rounds", "tests", "kills", "requeues", "preemptions", "cancellations"

_BACKFILLING = {"none": kernels.NO_BACKFILLING, "easy": kernels.EASY}
_BACKFILLING |= dict.fromkeys(("conservative", "kamelot"), kernels.CONSERVATIVE)
_CHOICES: dict[type, int] = {FirstFit: kernels.FIRST_FIT, BestFit: kernels.BEST_FIT}
_CHOICES |= {WorstFit: kernels.WORST_FIT, ByRate: kernels.BY_RATE, FGD: kernels.FGD}
_CHOICES |= {TopologyAware: kernels.BY_TOPOLOGY}


def built_in(scheduler: Any, nodes: model.Nodes, options: Options) -> kernels.PlayRules | None:
    """Rules for the compiled engine, None for what only Python can decide."""
    if type(scheduler) is not Composed:
        return None
    queue = scheduler.queue.order if type(scheduler.queue) in queues.BUILT_IN else None
    choice = _CHOICES.get(type(scheduler.choice))
    backfilling = _BACKFILLING.get(scheduler.backfilling)
    if queue is None or choice is None or backfilling is None:
        return None
    if getattr(scheduler.choice, "classes", ()):  # kernels count what was submitted
        return None
    rates = getattr(scheduler.choice, "rates", "labels")
    rates = {"labels": kernels.LABELS, "oracle": kernels.ORACLE}.get(
        rates if isinstance(rates, str) else "", kernels.LEARNED
    )
    waits, look = bool(getattr(scheduler.choice, "waits", False)), scheduler.look
    if choice == kernels.BY_RATE and len(nodes) == 1 and options.limits == "wall-clock":
        # Nothing to choose from: no beliefs are made, so no kernel may look at any.
        choice, rates, waits, look = kernels.BEST_FIT, kernels.LABELS, False, math.inf
    half_life, depth = float(getattr(scheduler.queue, "half_life", math.inf)), int(scheduler.depth)
    ends, passing = scheduler.expects
    shortest = passing == "shortest" and backfilling == kernels.EASY
    # Keys of these orders change during the play, so the kernel computes them.
    keyed = queue >= kernels.FAIR_SHARE or (queue == kernels.SJF and ends != "requested")
    weight, slack = float(getattr(scheduler.queue, "weight", 0.0)), float(scheduler.slack)
    # Without predictions, requests are the promise and there is no slack to give.
    slack = slack if backfilling == kernels.EASY and ends != "requested" else math.inf
    anew = scheduler.backfilling == "kamelot"
    security = float(scheduler.security) * anew
    order = queue, weight, keyed, shortest, slack, backfilling, anew, security
    return kernels.PlayRules(
        *order, choice, rates, waits, depth, half_life, look, **_of_options(options)
    )


def outside(options: Options, learns: bool, look: float) -> kernels.PlayRules:
    """Rules of a simulation whose scheduler decides in Python."""
    rates = kernels.LEARNED if learns else kernels.LABELS
    order = kernels.FCFS, 0.0, False, False, math.inf, kernels.NO_BACKFILLING, False, 0.0
    parts = *order, kernels.BY_RATE, rates
    return kernels.PlayRules(*parts, True, 1, math.inf, look, **_of_options(options))


def _of_options(options: Options) -> dict[str, Any]:
    """Fields of :class:`kernels.PlayRules` that are no scheduler's."""
    named = "checkpoint", "restart", "measured_after", "latency"
    seconds = {name: float(getattr(options, name)) for name in named}
    return {"enforced": options.enforced, "limits_of_work": options.limits == "work", **seconds}


def play_compiled(
    t: Tables,
    scheduler: Composed,
    rules: kernels.PlayRules,
    progress: Callable[[int, int], None] | None,
) -> Schedule:
    """Play in compiled code from the first event to the last."""

    def parts() -> tuple[Any, ...]:
        given, state, beliefs = prepared(t, scheduler, rules)
        return only_used(given, state._replace(times=scheduler.run_times(t)), beliefs)

    return to_the_end(t, scheduler, round_kernels.play, parts(), progress)


def prepared(
    t: Tables, scheduler: Composed, rules: kernels.PlayRules
) -> tuple[kernels.Inputs, kernels.State, rate_kernels.Beliefs]:
    """Inputs, state and beliefs before the first event; requests are what jobs are to take."""
    fixed, pieces = inputs(t, rules)
    state = initial_state(t, rules, pieces)
    if rules.queue == kernels.MULTIFACTOR:
        scheduler.queue.bind(t)
        state = state._replace(standing=copy_of(scheduler.queue.standing))
    if rules.choice == kernels.BY_RATE:
        scheduler.resize(t.nodes, t.jobs.types)
        beliefs: Any = scheduler.choice.state
        fixed = fixed._replace(labels=beliefs.labels)
        # A scheduler that believes in distance needs a truth about it, if only of no cost.
        if scheduler.choice.near is not None and t.distance is None:
            fixed = fixed._replace(distance=nothing_apart(beliefs.near, len(t.jobs)))
    else:
        beliefs = nothing_believed()
    if rules.choice == kernels.BY_TOPOLOGY:
        scheduler.resize(t.nodes, t.jobs.types)
        fixed = fixed._replace(topology=scheduler.choice.topology, cluster=uncapped(t))
    return fixed, state, beliefs


def to_the_end(
    t: Tables,
    scheduler: Any,
    play: Callable[..., int],
    parts: tuple[Any, ...],
    progress: Callable[[int, int], None] | None,
) -> Schedule:
    """Play in compiled code from the first event to the last: ``parts`` are inputs, state, others.

    Nothing else may hold these, so that they are given back before the schedule is made.
    """
    given, state, *others = parts
    del parts
    # 0 instants: compilation does not count as time of the scheduler.
    play(given, state, *others, 0)  # compiles, or loads
    began, status = time.perf_counter(), -1
    # In portions, so that progress can be reported and more room be made.
    while status != round_kernels.DONE:
        status = play(given, state, *others, 200_000)
        if progress is not None:
            progress(int(state.at.ended), len(t.jobs))
        if status == round_kernels.MORE_ROOM:
            state = more_room(state)
    seconds = time.perf_counter() - began
    described = t.describe(name_of(scheduler), "decided in compiled code")
    piece_from = given.jobs["piece_from"].copy()
    del given, others  # fresh memory costs more than the copies made below
    return outcome(t, piece_from, state, described, seconds)


def uncapped(t: Tables) -> kernels.ClusterArrays:
    """The cluster where a node is said to take all tasks that it has room for, and not a gang's."""
    cluster, shapes = t.cluster, placed_shapes(t.jobs, t.nodes)
    every = [*shapes, *dict.fromkeys(part for shape in shapes for _, part in shape.groups)]
    holds = cluster.capacity.max(axis=0) // np.maximum(cluster.demand, 1)
    fitting = np.where(cluster.demand > 0, holds, 2**62).min(axis=1)
    table = cluster.shapes.copy()
    table["per_node"] = [shape.per_node or count for shape, count in zip(every, fitting.tolist())]
    return cluster._replace(shapes=table)


def only_used(
    given: kernels.Inputs, state: kernels.State, beliefs: rate_kernels.Beliefs | None = None
) -> tuple[kernels.Inputs, kernels.State, rate_kernels.Beliefs | None]:
    """The same, but None for what this play does not use, so that it need not be compiled.

    Two groups of parts are there whole or not at all, so that at most four plays are compiled: what
    learns (beliefs about rates, expected run times), and what few logs have (a plan, priorities by
    use, caps, closed hours, parts of a device, groups of unlike tasks).
    """
    rules, cluster = given.rules, given.cluster
    learns = rules.choice == kernels.BY_RATE or rules.limits_of_work or state.times.expected.size
    if beliefs is None or not learns:
        beliefs, state = None, state._replace(times=None, kept=None)
    ordered = rules.queue in (kernels.FAIR_SHARE, kernels.MULTIFACTOR)
    sized = given.caps.most, given.hours.since, cluster.groups, state.plans
    if not (ordered or any(rows.size for rows in sized) or cluster.shared >= 0):
        given = given._replace(
            caps=None, hours=None, cluster=cluster._replace(groups=None, devices=None)
        )
        state = state._replace(standing=None, users=None, plans=None)
    return given, state, beliefs


def nothing_believed() -> rate_kernels.Beliefs:
    """Beliefs of a scheduler that asks for no rates."""
    labels, generation, none = np.zeros((1, 1)), np.zeros(1, dtype=np.int64), np.zeros(1)
    arguments = rate_kernels.LABELS, labels, generation, 1, rate_kernels.Constants(), none
    return rate_kernels.no_beliefs(*arguments)._replace(ratio=np.zeros(0))


def nothing_apart(near: NearBeliefs, J: int) -> Apart:
    """Distance that costs nothing, so that one play is compiled for all that reckon with it."""
    return Apart(near.domain, np.zeros(J, dtype=np.int64), np.ones((1, near.cost.size)))


def outcome(
    t: Tables, piece_from: Ints, state: kernels.State, text: str, seconds: float
) -> Schedule:
    """Schedule of a simulation; ``state.start`` and its like become those of the schedule."""
    at, runs = state.at, state.jobs
    # Expected ends are no promise; what is kept if requests are true is one.
    promises = state.promised.size and not (state.times and state.times.expected.size)
    promised = state.promised if promises else np.broadcast_to(np.inf, (len(t.jobs),))
    if (
        state.kept is not None and state.kept.size and t.cluster.meets.sum() == len(t.cluster.meets)
    ):  # no pools share nodes
        promised = state.kept
    cuts, cut_pieces = state.cuts[: at.cuts], state.cut_pieces[: at.cut_pieces]
    # What was kept by itself stays where it is; the rest is copied out of the rows.
    state.start[state.start == np.inf] = np.nan
    phase = runs["phase"].astype(np.int8)
    attempts = runs["attempts"].astype(np.int64)
    # A job keeps its decision time; with latency it begins later, unless it is gone by then.
    since = begun = np.where(attempts > 0, runs["begun"], np.nan)
    if late := t.options.latency:  # what is kept are decisions; a job may be gone before it starts
        begun = np.fmin(begun + late, np.where(attempts > 0, state.end, np.nan))
        # Only a first attempt has its first start and its last one at the same time.
        state.start[:] = np.where(attempts == 1, begun, state.start + late)
    on_nodes = (phase >= kernels.RUNNING) & (phase <= kernels.KILLED)
    on_nodes |= (phase == kernels.CANCELLED) & np.isfinite(state.end)
    return Schedule(
        t.jobs,
        t.nodes,
        state.start,
        state.end,
        begun,
        phase,
        attempts,
        state.lost,
        promised,
        piece_from,
        np.where(on_nodes, runs["pieces"], 0).astype(np.int64),
        state.out["node"].astype(np.int64),
        state.out["tasks"].astype(np.int64),
        {name: cuts[name].copy() for name in ("job", "end", "why")}
        | {"begun": np.minimum(cuts["begun"] + late, cuts["end"]), "held": cuts["begun"].copy()}
        | {"from": state.cuts["first"][: at.cuts + 1].copy()}
        | {name: cut_pieces[name].astype(np.int64) for name in ("node", "tasks")},
        {name: int(at[name]) for name in COUNTED},
        seconds,
        t.account,
        text,
        since,
    )


def inputs(t: Tables, rules: kernels.PlayRules) -> tuple[kernels.Inputs, int]:
    """Inputs of the kernels, and the most pieces that all jobs together may have."""
    jobs, J, N = t.jobs, len(t.jobs), len(t.nodes)
    by_rank = np.arange(J)
    # These keys never change, so jobs are ranked once and for all.
    if rules.queue in (kernels.SJF, kernels.EDF, kernels.PRIORITY):
        key = {kernels.SJF: jobs.limit, kernels.EDF: jobs.deadline}.get(rules.queue)
        by_rank = np.argsort(-jobs.priority if key is None else key, kind="stable")
    rows = np.zeros(J, dtype=kernels.WORK)
    once = map(model.one_for_all, (jobs.tasks, jobs.shape, jobs.type, jobs.user))
    columns = tuple(map(read_only, (jobs.submit, t.work, jobs.limit, *once, t.doomed, t.aside)))
    rows["claim"], rows["hours"] = t.claims.of_job, t.hours.of_job
    # A fraction of a device makes a piece of its own; whole tasks on a node share one piece.
    bounded, sizes = np.where(t.cluster.shapes["fraction"] > 0, 2**31 - 1, N), t.sizes
    for s in np.flatnonzero(t.cluster.shapes["groups"]):
        bounded[s] = _pieces_of_groups(t, int(s))
    pieces = kernels.fill_work(rows, columns, bounded, sizes, by_rank, 2**31 - 1)
    fixed = kernels.Inputs(
        rules,
        t.cluster,
        t.least,
        t.claims.caps,
        kernels.Hours(t.hours.starts, t.hours.since, t.hours.to),
        rows,
        by_rank,
        *_dependents(t),
        t.events,
        np.zeros((0, 0)),
        t.rates,
        t.log_rates,
        t.noise,
        t.distance,
    )
    return fixed, pieces


def _pieces_of_groups(t: Tables, s: int) -> int:
    """The most pieces of a job of shape s, which has groups."""
    c, low = t.cluster, int(t.cluster.shapes[s]["groups_from"])
    groups = c.groups[low : low + int(c.shapes[s]["groups"])]
    parts = c.shapes["fraction"][groups["shape"]] > 0
    pieces = np.where(parts, groups["tasks"], np.minimum(groups["tasks"], len(t.nodes)))
    return int(pieces.sum())


def _dependents(t: Tables) -> tuple[Ints, Ints]:
    """Jobs that come after each job, one job's behind another's, and where each one's begin."""
    jobs, J = t.jobs, len(t.jobs)
    if not jobs.after.size:
        return NO_INTS, NO_INTS
    # A job that is set aside never ends: those after it would wait for ever.
    keep = ~t.aside[jobs.after]
    predecessor, later = jobs.after[keep], np.repeat(np.arange(J), np.diff(jobs.after_from))[keep]
    # Stable, so that dependents of a job keep the order of submission.
    later = later[np.argsort(predecessor, kind="stable")].astype(np.int64)
    return later, np.concatenate([[0], np.cumsum(np.bincount(predecessor, minlength=J))])


def _most_running(t: Tables) -> int:
    """Upper bound of jobs that run at once: how often the least demand fits into the cluster."""
    least = t.least
    wanted = least > 0
    if not wanted.any():
        return len(t.jobs)
    return min(len(t.jobs), int((t.nodes.capacity.sum(axis=0)[wanted] // least[wanted]).min()))


def initial_state(
    t: Tables, rules: kernels.PlayRules, pieces: int, feeds: bool = False
) -> kernels.State:
    """State before the first event; with a feed where a scheduler outside decides."""
    J, N = len(t.jobs), len(t.nodes)
    books = Books.opened(t.nodes)
    blocks = range(0, N, kernels.BLOCK)
    # The largest free amount of each block of nodes lets a search skip the block.
    top = np.array([books.free[b : b + kernels.BLOCK].max(axis=0) for b in blocks])
    counters: Any = np.zeros(1, dtype=kernels.COUNTERS).view(np.recarray)[0]
    # −1 and 1 differ from the start, so that everything cached is computed in the first round.
    counters.now = counters.promised = counters.planned = counters.first = -1
    counters.epoch = counters.change = counters.line = 1
    counters.outlived = counters.kept = counters.origin = math.inf
    counters.ended = t.aside.sum()
    conserves = rules.backfilling == kernels.CONSERVATIVE
    backfills = rules.backfilling != kernels.NO_BACKFILLING
    runs = np.zeros(J, dtype=kernels.RUN)
    runs["phase"][t.aside] = kernels.SET_ASIDE
    runs["left"], runs["speed"] = t.work, 1.0
    looked_at = rules.choice == kernels.BY_RATE or rules.limits_of_work
    looks = np.zeros(J if looked_at else 0, dtype=kernels.LOOK)
    looks["seen"], looks["timer"] = 1.0, -1.0
    plans = np.zeros(J if conserves else 0, dtype=kernels.RESERVATION)
    plans["start"], plans["planned"] = np.inf, -1
    # An instant reports of a job no more than that it is measured twice, leaves and comes back
    # twice.
    reports = 6 * J + t.events.size + 8
    return kernels.State(
        at=counters,
        room=kernels.FreeDevices(books.free, books.device, top),
        total=books.free.sum(axis=0),
        up=np.ones(N, dtype=bool),
        factor=np.ones(N),
        log_factor=np.zeros(N),
        jobs=runs,
        start=np.full(J, np.inf),
        end=np.full(J, np.nan),
        lost=np.zeros(J),
        promised=np.full(J if backfills else 0, np.inf),
        kept=np.full(J if rules.slack < math.inf else 0, np.inf),
        times=run_times.nothing(),
        standing=tenancy.NOBODY,
        wants=t.wants.copy() if t.jobs.after.size else NO_INTS,
        looks=looks,
        plans=plans,
        out=np.zeros(pieces, dtype=kernels.PIECE),
        **_order(t, rules),
        **_space(t, books, np.full_like(top, 2**62)),
        profile=np.zeros((2 * J + 9 if conserves else 0, len(t.nodes.devices)), dtype=np.int64),
        # All that run may be cut short; of many jobs room is made when it is needed.
        cuts=np.zeros(min(_most_running(t), 1000) + 2, dtype=kernels.CUT),
        cut_pieces=np.zeros(min(pieces, 1000) + 1, dtype=kernels.PIECE),
        feed=np.zeros(reports if feeds else 0, dtype=kernels.FEED),
        fed_rates=np.zeros(2 * pieces + 64 if feeds else 0),
    )


def resume(
    given: kernels.Inputs,
    state: kernels.State,
    books: Books,
    now: float,
    running: Ints,
    begun: Floats,
    waiting: Ints,
    held: Mapping[int, Sequence[Piece]],
) -> None:
    """Bring a fresh state to the books of a moment, of which the round is still to come.

    These rows run since ``begun`` and those wait, all rows up to the last of them; ``held`` are
    pieces by row.
    """
    at, runs, R = state.at, state.jobs, running.size
    state.room.free[:], state.room.device[:] = books.free, books.device
    state.up[:] = books.up
    for block in range(len(state.room.top)):
        low = block * kernels.BLOCK
        # A node that drains has less than nothing free, which no search may see as a maximum.
        state.room.top[block] = books.free[low : low + kernels.BLOCK].max(axis=0, initial=0)
    state.total[:] = np.maximum(books.free, 0).sum(axis=0)
    for j, pieces in held.items():
        runs["pieces"][j], begin = len(pieces), int(given.jobs["piece_from"][j])
        for i, (node, tasks, mask) in enumerate(pieces):
            state.out[begin + i] = mask, node, tasks
    runs["phase"][running], runs["phase"][waiting] = kernels.RUNNING, kernels.WAITING
    runs["begun"][running], runs["place"][running] = begun, np.arange(R)
    runs["expect"][running] = begun + given.jobs["limit"][running]
    state.running[:R] = running
    if state.order.size:
        state.order["time"][:R], state.order["item"][:R] = runs["expect"][running], running
        at.entered = R
    # Caps of running jobs are in use; several rows may count in one counter.
    for c in given.jobs["claim"][running]:
        mine = slice(given.caps.starts[c], given.caps.starts[c + 1])
        np.add.at(state.used, given.caps.counter[mine], given.caps.amount[mine])
    # Who waits is a bit in the words of the queue, by rank, and a bit for each word that has some.
    rank = given.jobs["rank"][waiting].astype(np.int64)
    np.bitwise_or.at(state.words, rank >> 6, np.left_shift(np.int64(1), rank & 63))
    word = np.flatnonzero(state.words)
    np.bitwise_or.at(state.summary, word >> 6, np.left_shift(np.int64(1), word & 63))
    at.pieces, at.running, at.waiting = runs["pieces"][running].sum(), R, waiting.size
    at.now, at.next_job = now, R + waiting.size
    # 1: everything is tried again, plans are void, and the instant still lacks its round.
    at.again = at.half = at.void = 1


def _order(t: Tables, rules: kernels.PlayRules) -> dict[str, Any]:
    """The fields of :class:`kernels.State` that keep jobs in order."""
    J, running, pools = len(t.jobs), _most_running(t), len(t.cluster.meets)
    words = -(-J // 64) + 1
    backfills = rules.backfilling != kernels.NO_BACKFILLING
    conserves = rules.backfilling == kernels.CONSERVATIVE
    timed = rules.choice == kernels.BY_RATE and (rules.rates != kernels.LABELS or rules.waits)
    keeps_starts = rules.slack < math.inf
    sorts = rules.keyed or rules.shortest or conserves or t.events.size > 0 or rules.look < math.inf
    users = len(t.jobs.users) if rules.queue == kernels.FAIR_SHARE else 0
    due = {
        "ends": running + 64,
        "timers": 2 * J + 64 if timed else 0,
        # Changes of a profile: each job adds a start and an end.
        "order": 3 * running + 64 if backfills else 0,
        "changes": 2 * J + 8 if conserves else running + 1 if keeps_starts else 0,
        "sequence": J if sorts else 0,
        "spare_rows": max(2 * J + 8 if conserves else J if sorts else 0, 3 * running + 64),
    }
    # A bit for each job, and a summary with a bit for each word: the next job in few steps.
    ints = {"words": words, "summary": -(-words // 64) + 1, "running": running + 1, "fresh": 64}
    return {
        **{name: np.zeros(size, dtype=kernels.DUE) for name, size in due.items()},
        **{name: np.zeros(size, dtype=np.int64) for name, size in ints.items()},
        "users": np.zeros(users, dtype=kernels.USER),
        "heads": np.zeros(pools, dtype=np.int64),
        "promises": np.zeros(pools * (1 + keeps_starts), dtype=kernels.PROMISE),
        "used": np.zeros(t.claims.counters, dtype=np.int64),
        "watched": np.zeros(t.claims.counters, dtype=kernels.WATCHED),
        "claims": np.zeros(t.claims.caps.starts.size - 1, dtype=kernels.CLAIM),
        "behind": np.zeros(J if t.claims.caps.most.size else 0, dtype=kernels.BEHIND),
    }


def _space(t: Tables, books: Books, above: Ints) -> dict[str, Any]:
    """The fields of :class:`kernels.State` on which things are tried.

    ``above``: more than any node has, so that no block of nodes is passed over.
    """
    N = len(t.nodes)
    gang = int(t.jobs.tasks[~t.aside].max(initial=1))
    # Trials hold one piece for each task where fractions are used, else one for each node.
    tried = max(gang if t.cluster.shapes["fraction"].any() else min(gang, N), N) + 1
    with_groups = np.flatnonzero(t.cluster.shapes["groups"]).tolist()
    grouped = max((_pieces_of_groups(t, s) for s in with_groups), default=0)
    tried = max(tried, grouped)
    free, device = books.free, books.device

    def room(*several: int) -> kernels.FreeDevices:
        return kernels.FreeDevices(
            np.zeros((*several, *free.shape), dtype=np.int64),
            np.zeros((*several, *device.shape), dtype=np.int64),
            above,
        )

    return {
        "tried": np.zeros(tried, dtype=kernels.PIECE),
        "grouped": np.zeros(grouped, dtype=kernels.PIECE),
        "ways": no_ways(t.cluster),
        "cands": np.zeros(tried, dtype=kernels.CANDIDATE),
        "heap": np.zeros(N, dtype=kernels.DUE),
        "memo": np.zeros(len(t.cluster.shapes), dtype=kernels.MEMO),
        "delays": np.zeros(kernels.DELAYS, dtype=kernels.DELAY),
        **{name: np.zeros(N) for name in ("mean", "sd", "spare", "worth")},
        "shadow": room(2 * len(t.cluster.meets)),
        "ahead": room(),
        "trial": room(),
        "rated": np.zeros(tried, dtype=np.int64),
        "log_rates": np.zeros(tried),
    }


def more_room(state: kernels.State) -> kernels.State:
    """Twice the room for attempts cut short, or what running jobs may need."""
    # Doubled, so that growing costs a constant time for each cut; plus what runs now.
    cuts = np.zeros(2 * state.cuts.size + int(state.at.running), dtype=kernels.CUT)
    cuts[: state.cuts.size] = state.cuts
    pieces = np.zeros(2 * state.cut_pieces.size + int(state.at.pieces), dtype=kernels.PIECE)
    pieces[: state.cut_pieces.size] = state.cut_pieces
    return state._replace(cuts=cuts, cut_pieces=pieces)
