"""Slurm's passes once more, plainly: lists and whole arrays, each question asked anew.

The main loop and backfilling as :mod:`gangwise.sites.slurm_passes` describes them, with preemption
and gang scheduling as :mod:`gangwise.sites.preemption` does; a scheduler of its own, to be played
by `simulate_jobs`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from os.path import commonpath
from typing import Any, ClassVar, NamedTuple

import numpy as np

from gangwise.core.arrays import Bools, Floats, Ints
from gangwise.core.registry import create
from gangwise.jobs.books import Ask, Books, Piece, Place, Preempt, Queue, Running, of_groups
from gangwise.jobs.choice import Tasks, fill
from gangwise.jobs.model import Job, Nodes, Shape, terms_of
from gangwise.jobs.scheduler import Action, Composed
from gangwise.jobs.tenancy import Tally, Tenancy, allowed_on, having


@dataclass
class Consecutive:
    """Of runs of nodes side by side that hold the gang, that with least free, its first nodes.

    A gang that one node of the run holds takes the one with least free. Where no run holds all, all
    of the one with most free is taken, and so on. As select/cons_tres does without a topology.
    Nodes of the smallest weight are taken first, then those of the next.
    """

    leaf_cores: bool = True
    name: ClassVar[str] = "consecutive"

    def place(self, job: Job, books: Books, now: float) -> Tasks | None:
        nodes, fits = books.nodes, books.fits(job.shape)
        for kind, least in re.findall(r"(\w+):([\d.]+)", terms_of(job.terms).get("free", "")):
            if kind in nodes.devices:
                fits = fits * (books.free[:, nodes.devices.index(kind)] >= 1000 * float(least))
        if int(fits.sum()) < job.tasks:
            return None
        cpu = "cpu" in nodes.devices
        free = books.free[:, nodes.devices.index("cpu") if cpu else books.dominant(job.shape)]
        asked = next((k for k, _ in job.shape.constraint if "*" in k or "[" in k), "")
        side_by_side = "contiguous" in terms_of(job.terms)
        switched = any("switch" in labels for labels in nodes.labels) and not side_by_side
        if (any(job.shape.nodes) or switched or side_by_side) and not asked:
            fits = np.minimum(fits, job.tasks)
            while fits.any():  # without the nodes that take fewest, again and again
                if switched:
                    found = _on_switches(job, fits, nodes, self.leaf_cores)
                else:
                    found = _so_many(job, fits, free, nodes)
                if found:
                    return found
                fits = np.where(fits > fits[fits > 0].min(), fits, 0)
            return None
        if "*" not in asked:
            inside = re.fullmatch(r"\[([^\[\]()&]*)\]", asked)  # all of one feature, the first
            for feature in inside[1].split("|") if inside else ():
                if found := _lightest(job.tasks, fits * _have(nodes, feature), free, nodes):
                    return found
            return None if inside else _lightest(job.tasks, fits, free, nodes)
        chosen, fits = Tasks(), fits.copy()
        for feature, count in re.findall(r"([^\[\]&|*]+)(?:\*(\d+))?", asked):
            some = _lightest(int(count or 1), fits * _have(nodes, feature), free, nodes)
            if some is None:
                return None
            chosen += some
            fits[[n for n, _ in some]] = 0
        left = job.tasks - sum(count for _, count in chosen)
        others = _lightest(left, fits, free, nodes) if left > 0 else Tasks()
        return None if others is None else chosen + others


@lru_cache(64)
def _have(nodes: Nodes, feature: str) -> Bools:
    """Nodes with a feature [N]."""
    return np.array([having(feature, has.get("features", "")) for has in nodes.labels])


@lru_cache(8)
def _weights(nodes: Nodes) -> tuple[Bools, ...]:
    """Nodes of each weight [N], the smallest first."""
    weight = np.array([int(has.get("weight", 1)) for has in nodes.labels])
    return tuple(weight == w for w in np.unique(weight))


def _lightest(tasks: int, fits: Ints, free: Ints, nodes: Nodes) -> Tasks | None:
    """Nodes for so many tasks: of the smallest weight first, then of the next."""
    if int(fits.sum()) < tasks:
        return None
    chosen = Tasks()
    for mine in _weights(nodes):
        here = np.where(mine, fits, 0)
        some = min(tasks, int(here.sum()))
        chosen += _consecutive(some, here, free) if some else ()
        tasks -= some
    return chosen


def _consecutive(tasks: int, fits: Ints, free: Ints) -> Tasks:
    """Of runs of nodes that have room, those that hold so many tasks."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], fits > 0, [0]]).astype(np.int8)))
    runs = [(int(free[a:b].sum()), a, b) for a, b in zip(edges[::2], edges[1::2])]
    left, chosen = tasks, Tasks()
    while left > 0:
        enough = [run for run in runs if int(fits[run[1] : run[2]].sum()) >= left]
        run = min(enough, key=lambda r: r[0]) if enough else max(runs, key=lambda r: r[0])
        runs.remove(run)
        among = range(run[1], run[2])
        able = [n for n in among if fits[n] >= left]
        chosen += fill(left, fits, [min(able, key=lambda n: int(free[n]))] if able else among)
        left = tasks - sum(count for _, count in chosen)
    return chosen


def _so_many(job: Job, fits: Ints, free: Ints, nodes: Nodes) -> Tasks | None:
    """As many nodes as a job wants, each with all that it holds but a task for each to come."""
    fewest, most = job.shape.nodes
    wanted = min(max(job.shape.nodes), int((fits > 0).sum()))
    left, chosen = job.tasks, dict[int, int]()
    any_weight = (np.ones(len(nodes), dtype=bool),)
    for mine in any_weight if "contiguous" in terms_of(job.terms) else _weights(nodes):
        runs: list[list[int]] = []
        for n in range(len(nodes)):
            if mine[n] and fits[n] > 0:
                if n > 0 and mine[n - 1] and fits[n - 1] > 0:
                    runs[-1].append(n)
                else:
                    runs.append([n])
        while runs and left > 0 and len(chosen) != (most or -1):
            need = max(fewest - len(chosen), 1)
            # In order: the first; the first that suffices, or a smaller one; or a larger one that
            # does not, but if one suffices only where it lacks nodes and no room.
            best, tight = runs[0], False
            for run in runs:
                size, than = int(free[run].sum()), int(free[best].sum())
                room = int(fits[run].sum()) >= left
                holds = room and len(run) >= need
                if (size < than or not tight) if holds else size > than and (room or not tight):
                    best, tight = run, holds
            if "contiguous" in terms_of(job.terms):  # on one run, which is to hold it all
                if not tight:
                    return None
                wanted = min(wanted, len(best))
            runs.remove(best)
            able = [n for n in best if fits[n] >= left and wanted - len(chosen) <= 1]
            for n in [min(able, key=lambda n: int(free[n]))] if able else best:
                if left > 0 and len(chosen) != (most or -1):
                    keep = max(wanted - len(chosen) - 1, 0)
                    chosen[n] = min(int(fits[n]), max(left - keep, 1))
                    left -= chosen[n]
    return Tasks(chosen.items()) if left == 0 and len(chosen) >= fewest else None


def _on_switches(job: Job, fits: Ints, nodes: Nodes, leaf_cores: bool) -> Tasks | None:
    """Nodes of as few leaf switches as may be, as select/cons_tres takes them under topology/tree.

    Leaves are paths from the top; of each that holds the rest, that with fewest nodes.
    """
    fewest, most = job.shape.nodes
    told = {
        n: has["switch"].partition(":") for n, has in enumerate(nodes.labels) if "switch" in has
    }
    order = {path: int(i) for i, _, path in told.values()}
    leaf = {n: path for n, (_, _, path) in told.items() if fits[n] > 0}
    weight = {n: int(nodes.labels[n].get("weight", 1)) for n in leaf}
    per_node = job.shape.per_node or job.tasks
    wanted = max(*job.shape.nodes, -(-job.tasks // per_node), 1)
    wanted = min(wanted, int((fits > 0).sum()))

    def below(top: str) -> list[int]:
        return [n for n in leaf if f"{leaf[n]}/".startswith(f"{top}/")]

    def holds(top: str, count: int, tasks: int, gone: set[int], cores: bool = True) -> bool:
        on = below(top)
        enough = sum(int(fits[n]) for n in on) >= tasks
        return len({*on} & {*(some or on)} - gone) >= count and (enough or not cores)

    some = list[int]()  # nodes of all weights that it takes
    tops = {path.split("/")[0] for path in order}
    able = [top for top in tops if holds(top, max(fewest, 1), job.tasks, set())]
    if not able:
        return None
    light = {top: min(weight[n] for n in below(top)) for top in able}
    last = {top: max(order[path] for path in order if path.split("/")[0] == top) for top in able}
    top = min(able, key=lambda top: (light[top], -last[top]))
    leaf = {n: path for n, path in leaf.items() if path.split("/")[0] == top}
    groups = sorted({weight[n] for n in leaf})
    must = list[int]()
    while len(some) < wanted or sum(int(fits[n]) for n in some) < job.tasks:
        if not groups:
            break
        must, heavy = some, groups.pop(0)
        some = [n for n in leaf if weight[n] <= heavy]
    chosen, left, gone = dict[int, int](), job.tasks, set[int]()

    def take(among: list[int]) -> None:
        nonlocal left
        for n in sorted(among):
            if left > 0 and len(chosen) != (most or -1):
                keep = max(wanted - len(chosen) - 1, 0)
                chosen[n] = min(int(fits[n]), max(left - keep, 1))
                left -= chosen[n]

    def better(one: str, other: str) -> bool:
        """Whether a leaf suits the rest better than another."""
        count = wanted - len(chosen)
        while True:
            a, b = (len({*below(path)} & {*some} - gone) for path in (one, other))
            first, second = (holds(path, count, left, gone, leaf_cores) for path in (one, other))
            if first and second and a != b:
                return a < b
            if first != second:
                return first
            above = [path.rpartition("/")[0] or path for path in (one, other)]
            if first or above[0] == above[1]:
                return a > b
            one, other = above

    take(must)
    begun = sorted({leaf[n] for n in chosen}, key=lambda path: order[path])
    free_leaves = [
        path for path in sorted(order, key=lambda path: order[path]) if path not in begun
    ]
    steps = dict.fromkeys(free_leaves, 0)
    while left > 0:
        if begun:
            best = begun.pop(0)
        else:
            best = ""
            for path in free_leaves:
                if {*below(path)} & {*some} - gone:
                    near = best and steps[path] < steps[best] and not better(best, path)
                    tie = best and steps[path] == steps[best] and better(path, best)
                    best = path if not best or near or tie else best
            if not best:
                return None
            free_leaves.remove(best)
        take([n for n in below(best) if n in some and n not in must])
        gone |= {*below(best)}
        for path in free_leaves:
            common = len(commonpath([path, best]).split("/"))
            steps[path] += len(path.split("/")) + len(best.split("/")) - 2 * common
    return Tasks(chosen.items()) if len(chosen) >= fewest else None


def groups(
    books: Books, ends: dict[str, float], now: float, rows: Rows, rank: float, usable: Bools
) -> Iterator[tuple[float, Books]]:
    """Books as they will be if running jobs end when expected: now, and a group of jobs at a time.

    As a job of a rank sees them that may use some nodes [N]: only jobs on these are taken away. The
    first group ends 30 s after the whole half minute behind the first end, the others 60, 120 … s;
    an end on other nodes in it makes the next on these its last.
    """
    yield now, rows.view(books, rank)
    epoch = books.tenancy.epoch if books.tenancy else 0.0
    then, gone = rows.view(books, rank).copy(), list[str]()
    asleep = {n: h.end for n, h in rows.held.items() if h.asleep and h.tier >= rank}
    left = [(ends[name], name) for name in books.running if rows.shows(name, rank)]
    left = sorted([*left, *((end, name) for name, end in asleep.items())])
    holder = {name: books.running.get(name) or rows.held[name] for _, name in left}
    here = {n: usable[[node for node, _, _ in holder[n].pieces]].any() for _, n in left}
    left.sort(key=lambda pair: (pair[0], here[pair[1]]))
    first = next((end for end, name in left if here[name]), 0.0)
    edge, length, i = ((first + epoch) // 30 + 1) * 30 - epoch, 30, 0
    while i < len(left):
        group = list[float]()
        while i < len(left):
            (end, name), i = left[i], i + 1
            if not here[name]:
                continue
            group.append(end)
            then.take(holder[name].job.shape, holder[name].pieces, sign=1)
            gone.append(name)
            # Whoever ends next, on any nodes, says whether the group goes on.
            if i < len(left) and left[i][0] > edge + length:
                break
        length *= 2
        while i < len(left) and left[i][0] > edge + length:
            length *= 2
        if group:
            then = rows.view(then, rank, gone)
            yield max(group[-1], float(np.nextafter(now, np.inf))), then.copy()  # not free yet


class Reserved(NamedTuple):
    """Nodes held for a job that waits [N], from when to when."""

    begin: float
    end: float
    nodes: Bools


@dataclass
class PlainPasses(Composed):
    """The scheduler ``slurm``, with its parameters."""

    groups: ClassVar[bool] = True
    choice: Any = field(default_factory=Consecutive)
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
    _whole: float = field(default=-np.inf, init=False, repr=False)
    _passed: float = field(default=-np.inf, init=False, repr=False)
    _due: bool = field(default=False, init=False, repr=False)
    _changed: bool = field(default=True, init=False, repr=False)
    _line: list[Job] = field(default_factory=list, init=False, repr=False)
    # Who was preempted: by whom, until when it may not start, and where it was suspended.
    _gave_way: dict[str, tuple[str, float, tuple[Piece, ...]]] = field(
        default_factory=dict, init=False, repr=False
    )
    _site: int = field(default=0, init=False, repr=False)
    _came: set[str] = field(default_factory=set, init=False, repr=False)
    _epoch: float = field(default=0.0, init=False, repr=False)
    _rows: Rows = field(default_factory=lambda: Rows(), init=False, repr=False)

    def __post_init__(self) -> None:
        self.queue = create("scheduler", self.order).queue
        self.choice.leaf_cores = self.leaf_cores
        super().__post_init__()

    def place(self, queue: Queue, books: Books, now: float) -> list[Action]:
        """The main loop; then backfilling, where it is due."""
        for event in books.events:
            if event.time < now:
                self._change(event.time)
        self._elapse(now)
        self._take_in(books)
        self.queue.take_in(books)
        flags = books.tenancy.priority.flags if books.tenancy else ()
        for event in (
            books.events if self.order == "multifactor" and "accrue_always" in flags else ()
        ):
            if event.kind == "submitted" and event.job and event.job.id not in self._came:
                queued = terms_of(event.job.terms).get("queued", "inf")
                begin = min(event.job.submitted, float(queued))
                self.queue.standing.eligible[event.job.row] = begin
                self._came |= {event.job.id}
        trial = books.copy()
        keys = np.argsort(self._keys(queue, books, now), kind="stable")
        order = [queue[i] for i in keys.tolist()]
        names = {job.id for job in order}
        self._gave_way = {name: of for name, of in self._gave_way.items() if name in names}
        ends = self._expected_ends(trial, now)
        if gang := gangs(books.tenancy):
            self._rows.take_in(trial, names, ends)
        tally = trial.tally()
        actions = self._resume(order, trial, ends, now, tally)
        actions += self._main_loop(order, trial, ends, now, tally)
        left = [job for job in order if job.id not in trial.running]
        late = any(
            end <= now for end in ends.values()
        )  # past its limit: it may free nodes any time
        # A pass on the same jobs as the last finds nothing that it did not: time only runs out.
        self._changed |= bool(books.events) or late or order != self._line
        ends_of = (t for r in self._of_site(books) for t in (r.begin, r.end))
        self._changed |= any(self._passed < t <= now for t in ends_of) or self.least_wait > 0
        if left and self.tested and now >= self._passed + self.interval:
            self._passed, self._line = now, order
            if self._changed:
                actions += self._backfill(left[: self.tested], trial, ends, now, tally)
            self._changed = False
            left = [job for job in left if job.id not in trial.running]
        if gang:  # who was suspended may have made room for one below it
            actions += self._resume(order, trial, ends, now, tally)
        # While anyone waits backfilling comes again; and when who was preempted may start.
        asks = [(self._passed + self.interval, job.id) for job in left[: bool(self.tested)]]
        asks += [(at, name) for name, (_, at, _) in self._gave_way.items() if now < at < np.inf]
        idle = not self._changed and not any(
            now < at < np.inf for _, at, _ in self._gave_way.values()
        )
        idle = idle and all(r.end < now for r in self._of_site(books))
        actions += [Ask(asks[0][1], min(asks)[0], idle)] if asks else []
        self._due = True
        return actions

    def _keys(self, queue: Queue, books: Books, now: float) -> Floats:
        """Of the order; without priorities, who was not eligible at first kept its place."""
        if self.order != "fcfs":
            return np.asarray(self.queue.keys(queue, books, now))
        return np.array([float(terms_of(j.terms).get("queued", j.submitted)) for j in queue])

    def _change(self, time: float) -> None:
        """Something happened while nobody waited: backfilling has its clock all the same.

        It comes ``interval`` seconds after it last came, or later, as soon as anything has changed.
        """
        self._elapse(time)
        self._due = time < self._passed + self.interval
        if not self._due:
            self._passed = time

    def _elapse(self, now: float) -> None:
        if self._due and self._passed + self.interval < now:
            self._passed, self._due = self._passed + self.interval, False

    def _resume(
        self, order: Sequence[Job], books: Books, ends: dict[str, float], now: float, tally: Tally
    ) -> list[Action]:
        """Those who were suspended go on, the first in line first, once their nodes are free.

        Of gangs: the highest tier first, once nobody of a tier above runs on their cores; those of
        tiers below that run there now are suspended.
        """
        actions: list[Action] = []
        for held in self._rows.asleep():
            if self._rows.may_go_on(held, books) and not tally.holds(held.job):
                below = [books.running[name] for name in self._rows.below(held)]
                actions += self._give_way(held.job, below, books, ends, now, tally)
                tasks = [(n, c) for n, c, _ in held.pieces]
                actions.append(self._start(held.job, tasks, books, ends, now, tally, held.pieces))
        if gangs(books.tenancy):
            return actions
        for job in order if self._gave_way else ():
            _, _, pieces = self._gave_way.get(job.id, ("", 0.0, ()))
            if pieces and books.up[[n for n, _, _ in pieces]].all() and not tally.holds(job):
                books.take(job.shape, pieces)
                on = [n for n, _, _ in pieces]
                free = (books.free[on] >= 0).all() and (books.device[on] >= 0).all()
                books.take(job.shape, pieces, sign=1)
                if free:
                    tasks = [(n, c) for n, c, _ in pieces]
                    actions.append(self._start(job, tasks, books, ends, now, tally, pieces))
        return actions

    def _may_start(self, job: Job, books: Books, now: float, tally: Tally) -> bool:
        _, until, pieces = self._gave_way.get(job.id, ("", now, ()))
        if (own := self._own(job, books)) and not own.begin <= now < own.end:
            return False
        return until <= now and not pieces and tally.holds(job) is None

    def _of_site(self, books: Books) -> list[Reserved]:
        names = np.array(books.nodes.names)
        kept = books.tenancy.reservations if books.tenancy else ()
        return [Reserved(r.begin, r.end, np.isin(names, r.on)) for r in kept]

    def _own(self, job: Job, books: Books) -> Reserved | None:
        """The reservation that a job names."""
        names = terms_of(job.terms).get("reservation", "").split("|")
        kept = books.tenancy.reservations if books.tenancy else ()
        mine = [i for i, r in enumerate(kept) if r.name in names]
        return self._of_site(books)[mine[-1]] if mine else None

    def _kept_off(self, job: Job, books: Books, now: float) -> Bools:
        """Nodes that the site keeps from a job that starts now [N]."""
        own, busy = self._own(job, books), np.zeros(len(books.free), dtype=bool)
        for r in self._of_site(books):
            mine = own is not None and (r.nodes == own.nodes).all() and r[:2] == own[:2]
            if not mine and r.begin < now + job.limit and r.end > now:
                busy |= r.nodes
        return busy | ~own.nodes if own is not None else busy

    def _main_loop(
        self, order: Sequence[Job], books: Books, ends: dict[str, float], now: float, tally: Tally
    ) -> list[Action]:
        actions: list[Action] = []
        closed = np.zeros(len(books.free), dtype=bool)
        looked, started = Counter[str](), 0
        whole = now >= self._whole + 60
        self._whole = now if whole else self._whole
        first = order if whole else order[: self.depth + 1]
        for job in sorted(first, key=lambda job: self._own(job, books) is None):
            mine = books.nodes.of_pool(job.shape.pool)
            looked[job.shape.pool] += 1
            if 0 < self.part_depth < looked[job.shape.pool]:
                continue
            if job.shape.groups:  # left to backfilling, and nobody passes it here
                waits = self._may_start(job, books, now, tally) and self._own(job, books) is None
                for part in components(job) if waits else ():
                    pool = books.nodes.of_pool(part.shape.pool)
                    if not (closed | ~pool).all() and not self._holds_no_nodes(job, books, now):
                        named = "on" in terms_of(job.terms)
                        closed |= allowed_on(books.nodes, part.shape) if named else pool
                continue
            able = not (closed | ~mine).all() and self._may_start(job, books, now, tally)
            if not able or job.id in books.running:
                continue
            off = self._kept_off(job, books, now)
            open_ = replace(books, up=books.up & ~closed & ~off & ~_owned(job, books))
            few = 1 < fewest(job) > int((books.up & ~closed & mine).sum())
            chosen = None if few else self.choice.place(job, open_, now)
            if chosen is None and not few:
                room = self._make_room(job, open_, now)
                chosen, others = room or (None, [])
                actions += self._give_way(job, others, books, ends, now, tally)
            if chosen is not None:
                actions.append(self._start(job, chosen, books, ends, now, tally))
                started += 1
                if started == self.main_starts:
                    break
            elif not few and not_available(job, open_):
                continue  # it keeps nobody off
            elif self._own(job, books) is not None:
                continue
            elif few or not self._holds_no_nodes(job, books, now):
                names_nodes = "on" in terms_of(job.terms)
                closed |= allowed_on(books.nodes, job.shape) if names_nodes else mine
        return actions

    def _holds_no_nodes(self, job: Job, books: Books, now: float) -> bool:
        least = self.least_priority if self.order == "multifactor" else 0
        points = least and -float(np.asarray(self.queue.keys([job], books, now))[0]) % 2**33
        return now - job.submitted < self.least_wait or points < least

    def _make_room(self, job: Job, books: Books, now: float) -> tuple[Any, list[Running]] | None:
        tenancy = books.tenancy
        if tenancy is None or not tenancy.preemption.by:
            return None
        if gangs(tenancy):
            return self._rows.make_room(job, books, tenancy, self.choice, now)
        return make_room(job, books, tenancy, self.choice, now)

    def _give_way(
        self,
        job: Job,
        others: Sequence[Running],
        books: Books,
        ends: dict[str, float],
        now: float,
        tally: Tally,
    ) -> list[Action]:
        """Take others off their nodes for a job."""
        actions: list[Action] = []
        for running in others:
            name = running.job.id
            if name in self._rows.held:
                self._rows.suspend(name, now - running.begun)
            else:
                books.take(running.job.shape, running.pieces, sign=1)
            tally.take(running.job, -1)
            del books.running[name], ends[name]
            how = way_of(books.tenancy or Tenancy(), running.job)
            again = now + books.tenancy.preemption.again if books.tenancy else now
            asleep = running.pieces if how == "suspend" else ()
            self._gave_way[name] = job.id, np.inf if how == "cancel" else again, asleep
            lost: Any = "keep" if asleep else how
            actions.append(Preempt(name, lost))
        return actions

    def _start(
        self,
        job: Job,
        chosen: Tasks,
        books: Books,
        ends: dict[str, float],
        now: float,
        tally: Tally,
        pieces: tuple[Piece, ...] = (),
    ) -> Place:
        pieces = pieces or books.tell_apart(job.shape, chosen)
        if job.id not in self._rows.held:
            books.take(job.shape, pieces)
        tally.take(job)
        ends[job.id] = now + job.limit
        if gangs(books.tenancy):
            self._rows.start(job, pieces, books, ends)
            if job.id in self._gave_way:
                self._gave_way[job.id] = *self._gave_way[job.id][:2], ()
        return self._started(job, chosen, pieces, books, now)

    def _backfill(
        self, order: Sequence[Job], books: Books, ends: dict[str, float], now: float, tally: Tally
    ) -> list[Action]:
        """One pass: start what fits now beside reservations made before it, reserve for others."""
        actions: list[Action] = []
        self._epoch = books.tenancy.epoch if books.tenancy else 0.0
        reserved = self._of_site(books)
        self._site, looked, started = len(reserved), Counter[Any](), 0
        whole = list[Job]()  # heterogeneous jobs whose components can all start now
        for job in order:
            own = self._own(job, books) is not None
            if own or not self._may_start(job, books, now, tally):
                continue
            of = (job.user, job.pool, (job.user, job.pool), (job.user, job.account))
            most = (self.per_user, self.per_pool, self.per_user_pool, self.per_account)
            if any(0 < n <= looked[i, name] for i, (n, name) in enumerate(zip(most, of))):
                continue
            looked.update(enumerate(of))
            if job.shape.groups:
                able = self._plan_components(job, books, ends, reserved, now)
                whole += [job] * able
                continue
            found = self._first_time(job, books, ends, reserved, now)
            room = None
            if found is None or found[0] > now:
                busy = _busy(reserved, job, now, len(books.free)) | _owned(job, books)
                room = self._make_room(job, replace(books, up=books.up & ~busy), now)
            if room:
                chosen, others = room
                actions += self._give_way(job, others, books, ends, now, tally)
                found = now, chosen
            elif (not found or found[0] > now) and self._rows.held_below(job, books.tenancy):
                rank = rank_of(books.tenancy or Tenancy(), job)
                found = self._first_time(job, books, ends, reserved, now, rank)
            if found is None:
                continue
            time, chosen = found
            if time <= now:
                actions.append(self._start(job, chosen, books, ends, now, tally))
                started += 1
                if started == self.starts:
                    break
            elif self._holds_no_nodes(job, books, now):
                continue
            elif time <= now + self.window:
                nodes = np.isin(np.arange(len(books.free)), [n for n, _ in chosen])
                times = self._rounded(time), self._rounded(time + job.limit)
                reserved.append(Reserved(*times, nodes))
        for job in whole if not 0 < self.starts <= started else ():
            chosen = self._components_now(job, books, now)
            if chosen is not None and self._may_start(job, books, now, tally):
                actions.append(self._start(job, chosen, books, ends, now, tally))
                started += 1
                if started == self.starts:
                    break
        return actions

    def _plan_components(
        self, job: Job, books: Books, ends: dict[str, float], reserved: list[Reserved], now: float
    ) -> bool:
        """Reserve for each component from when all before it have room; whether all have it now."""
        least = -np.inf
        for part in components(job):
            found = self._first_time(part, books, ends, reserved, now, least=least)
            if found is None or max(least, found[0]) > now + self.window:
                return False
            time, chosen = found
            least = max(least, time)
            if time <= now or not self._holds_no_nodes(job, books, now):
                nodes = np.isin(np.arange(len(books.free)), [n for n, _ in chosen])
                times = self._rounded(time), self._rounded(time + job.limit)
                reserved.append(Reserved(*times, nodes))
        return least <= now

    def _components_now(self, job: Job, books: Books, now: float) -> Tasks | None:
        """Nodes of all components, none of which two of them share; None for no room."""
        free = books.up & ~self._kept_off(job, books, now) & ~_owned(job, books)
        tasks_of = dict[Shape, Tasks]()
        for part in components(job):
            some = self.choice.place(part, replace(books, up=free), now)
            if some is None:
                return None
            tasks_of[part.shape] = some
            free = free & ~np.isin(np.arange(len(free)), [n for n, _ in some])
        return Tasks(pair for _, shape in job.shape.groups for pair in tasks_of[shape])

    def _first_time(
        self,
        job: Job,
        books: Books,
        ends: dict[str, float],
        reserved: list[Reserved],
        now: float,
        rank: float = -np.inf,
        least: float = -np.inf,
    ) -> tuple[float, Tasks] | None:
        """When a job fits beside the reservations, and where; None for never. Not before ``least``.

        Tried now, then each time that a reservation begins or ends: without nodes that are reserved
        while it would run.
        """
        after = max(now, least)
        while after < np.inf:
            later = min((t for r in reserved for t in r[:2] if t > after), default=np.inf)
            busy = _busy(reserved, job, after, len(books.free)) | _owned(job, books)
            time, chosen = self._first(job, books, ends, busy, now, rank)
            time = max(time, after)
            if chosen is not None and time <= later:
                on, until = [n for n, _ in chosen], self._rounded(time + job.limit)
                begin = self._rounded(time) if time > now else time
                exact, inner = (time, time + job.limit), (begin, until)  # the site's are exact
                spans = [exact if i < self._site else inner for i in range(len(reserved))]
                if not any(
                    r.nodes[on].any() and r.begin < b and r.end > a
                    for r, (a, b) in zip(reserved, spans)
                ):
                    return time, chosen
                later = time if time > after else later
            after = later
        return None

    def _first(
        self, job: Job, books: Books, ends: dict[str, float], busy: Bools, now: float, rank: float
    ) -> tuple[float, Tasks | None]:
        """When a job fits on nodes that are not busy [N], and where; infinity for never."""
        usable = books.up & ~busy & allowed_on(books.nodes, job.shape)
        for time, then in groups(books, ends, now, self._rows, rank, usable):
            chosen = self.choice.place(job, replace(then, up=then.up & ~busy), now)
            if chosen is not None:
                return time, chosen
        return np.inf, None

    def _rounded(self, time: float) -> float:
        return (time + self._epoch) // self.resolution * self.resolution - self._epoch


def fewest(job: Job) -> int:
    """How many nodes a job wants at least."""
    asked = int(terms_of(job.terms).get("size", "x0").partition("x")[2])
    return asked or (job.tasks if job.shape.per_node == 1 else job.shape.nodes[0])


def not_available(job: Job, books: Books) -> bool:
    """Whether a job would not even fit if nothing ran on the nodes that are up.

    Where a job on them has its nodes alone, those are busy; so are all for one that wants that.
    """
    left = books.up & allowed_on(books.nodes, job.shape)
    pools = (books.tenancy or Tenancy()).pools
    whole = {pool.name for pool in pools if getattr(pool, "whole", False)}

    def alone(one: Job) -> bool:
        return one.pool in whole or terms_of(one.terms).get("whole") == "1"

    every = books.running.values()
    if any(alone(running.job) and left[[*nodes_of(running)]].any() for running in every):
        return False
    fits = np.minimum(Books.opened(books.nodes).fits(job.shape), job.tasks)
    return not left.any() if alone(job) else int(fits[left].sum()) < job.tasks


def components(job: Job) -> list[Job]:
    """Each component of a heterogeneous job, as a job of its own, in the order of submission."""
    parts = [replace(job, tasks=tasks, shape=shape) for tasks, shape in job.shape.groups]
    return sorted(parts, key=lambda part: int(terms_of(part.shape.terms).get("part", 0)))


def _owned(job: Job, books: Books) -> Bools:
    """Nodes with jobs of other users, where either shares nodes with its own user alone [N]."""
    pools = {pool.name for pool in (books.tenancy or Tenancy()).pools if pool.by_user}
    owned = np.zeros(len(books.free), dtype=bool)
    for other in books.running.values():
        both = job, other.job
        alone = any(j.pool in pools or terms_of(j.terms).get("whole") == "user" for j in both)
        if alone and job.user != other.job.user:
            owned[[n for n, _, _ in other.pieces]] = True
    return owned


def _busy(reserved: Sequence[Reserved], job: Job, after: float, count: int) -> Bools:
    """Of so many nodes, those that are reserved while a job would run that starts then [N]."""
    busy = np.zeros(count, dtype=bool)
    for r in reserved:
        if r.begin <= after + job.limit and r.end > after:
            busy |= r.nodes
    return busy


# ---------------------------------------------------------------------------------- who gives way


def way_of(tenancy: Tenancy, job: Job) -> str:
    """How a job gives way: requeue, cancel or suspend; off: it does not."""
    rules = tenancy.preemption
    table: Any = tenancy.qos if rules.by == "qos" else tenancy.pools
    name = job.qos if rules.by == "qos" else job.pool
    own = next((each.preempted for each in table if each.name == name), "")
    return str(own or rules.how) if rules.by else "off"


def rank_of(tenancy: Tenancy, job: Job) -> float:
    """By which those who give way are ordered: priority of the QOS, or tier of the pool."""
    if tenancy.preemption.by == "qos":
        return next((q.priority for q in tenancy.qos if q.name == job.qos), 0.0)
    return next((pool.tier for pool in tenancy.pools if pool.name == job.pool), 1)


def gives_way(tenancy: Tenancy, running: Running, job: Job, now: float) -> bool:
    """Whether a job that runs may be preempted for another now."""
    rules, other = tenancy.preemption, running.job
    mine = next((qos for qos in tenancy.qos if qos.name == other.qos), None)
    if rules.by == "qos":
        theirs = next((qos.preempts for qos in tenancy.qos if qos.name == job.qos), ())
        above = other.qos in theirs
    else:
        above = rank_of(tenancy, job) > rank_of(tenancy, other)
    exempt = rules.exempt if mine is None or mine.exempt is None else mine.exempt
    how = way_of(tenancy, other)
    rested = now > running.begun and now >= running.begun + exempt * (how != "suspend")
    return above and rested and how != "off"


def make_room(
    job: Job, books: Books, tenancy: Tenancy, choice: Any, now: float
) -> tuple[Any, list[Running]] | None:
    """Where a job would run, and who gives way to it; None where nobody can make room."""
    rules, nodes = tenancy.preemption, books.nodes.of_pool(job.shape.pool)
    able = [
        running
        for running in books.running.values()
        if nodes[list(nodes_of(running))].any() and gives_way(tenancy, running, job, now)
    ]
    if rules.youngest_first:
        able.sort(key=lambda running: -running.begun)
    else:
        able.sort(key=lambda r: (rank_of(tenancy, r.job), len(nodes_of(r))))
    order, chosen, on, taken = able, None, set[int](), 0
    for attempt in range(rules.reorder + 2):
        if attempt:
            order = _reordered(order, taken, on, rules.strict)
            if len(able) <= attempt:
                break
        free, taken, found = books.copy(), 0, None
        while found is None and taken < len(order):
            free.take(order[taken].job.shape, order[taken].pieces, sign=1)
            found = choice.place(job, free, now)
            taken += 1
        if found is None:
            break
        chosen, on = found, {n for n, _ in found}
    if chosen is None:
        return None
    return chosen, [running for running in able if on & nodes_of(running)]


def nodes_of(running: Running) -> set[int]:
    return {n for n, _, _ in running.pieces}


def _reordered(order: Sequence[Running], taken: int, on: set[int], strict: bool) -> list[Running]:
    """The last of those taken away first; ``strict``: then as before, else by nodes shared."""
    others = list(order[: taken - 1])
    if not strict:
        others.sort(key=lambda running: -len(nodes_of(running) & on))
    return [order[taken - 1], *others, *order[taken:]]


# --------------------------------------------------------------------------------- gang scheduling


def gangs(tenancy: Tenancy | None) -> bool:
    """Whether jobs of a tier are suspended for those of one above."""
    if tenancy is None or tenancy.preemption.by != "tier":
        return False
    return "suspend" in (tenancy.preemption.how, *(pool.preempted for pool in tenancy.pools))


@dataclass
class Held:
    """A job that runs or is suspended."""

    job: Job
    rank: float
    tier: float  # its rank; inf: it is never suspended
    pieces: tuple[Piece, ...]
    cores: dict[int, int]  # of a node, as a mask
    end: float = np.inf  # as its limit has it
    ran: float = 0.0  # seconds before it was suspended
    asleep: bool = False


@dataclass
class Rows:
    """Who holds which cores of which node; empty at a site without gang scheduling."""

    held: dict[str, Held] = field(default_factory=dict)

    def take_in(self, books: Books, waiting: Collection[str], ends: dict[str, float]) -> None:
        """Forget who is gone, and take off the books what is free to nobody."""
        running = books.running
        for name, h in [*self.held.items()]:
            if name not in (waiting if h.asleep else running):
                del self.held[name]
        for h in self.held.values():
            if h.asleep:
                books.take(h.job.shape, h.pieces)
        for name, each in running.items():
            if name in self.held:
                self.held[name].end = ends[name] = ends[name] - self.held[name].ran
            else:
                self.start(each.job, each.pieces, books, ends)
        books.free = self.view(books, -np.inf).free

    def start(
        self, job: Job, pieces: tuple[Piece, ...], books: Books, ends: dict[str, float]
    ) -> None:
        """A job gets its cores, or goes on with those that it has."""
        if job.id in self.held:
            ends[job.id] -= self.held[job.id].ran
            self.held[job.id].asleep = False
        else:
            self.held[job.id] = self._given(job, pieces, books)
        self.held[job.id].end = ends[job.id]
        books.free = self.view(books, -np.inf).free

    def suspend(self, name: str, ran: float) -> None:
        self.held[name].asleep = True
        self.held[name].ran += ran

    def asleep(self) -> list[Held]:
        """Those who are suspended, the highest tier first."""
        return sorted((h for h in self.held.values() if h.asleep), key=lambda h: -h.rank)

    def may_go_on(self, h: Held, books: Books) -> bool:
        """Whether its nodes are up, and nobody of a tier above runs on its cores."""
        above = [o for o in self.held.values() if not o.asleep and o.rank > h.rank]
        return bool(books.up[list(h.cores)].all()) and not any(
            _meet(o.cores, h.cores) for o in above
        )

    def below(self, h: Held) -> list[str]:
        """Who runs on its cores and may be suspended for it."""
        return [
            name
            for name, o in self.held.items()
            if not o.asleep and o.tier < h.rank and _meet(o.cores, h.cores)
        ]

    def make_room(
        self, job: Job, books: Books, tenancy: Tenancy, choice: Any, now: float
    ) -> tuple[Any, list[Running]] | None:
        """Where a job would run that does not see those below it, and who is suspended then."""
        chosen = choice.place(job, self.view(books, rank_of(tenancy, job)), now)
        if chosen is None:
            return None
        mine = self._given(job, books.tell_apart(job.shape, chosen), books)
        under = [
            n for n, h in self.held.items() if h.tier < mine.rank and _meet(mine.cores, h.cores)
        ]
        return chosen, [books.running[n] for n in under if n in books.running]

    def held_below(self, job: Job, tenancy: Tenancy | None) -> bool:
        """Whether anyone holds cores whom a job does not see."""
        rank = rank_of(tenancy or Tenancy(), job)
        return any(h.tier < rank for h in self.held.values())

    def shows(self, name: str, rank: float) -> bool:
        """Whether a job of a rank sees another."""
        return name not in self.held or self.held[name].tier >= rank

    def view(self, books: Books, rank: float, gone: Collection[str] = ()) -> Books:
        """Books with the cores that are free to a job of a rank."""
        if not self.held:
            return books
        free, kind = books.free.copy(), _kind(books)
        used = self._used(len(free), rank, gone)
        cores = books.capacity[:, kind] - 1000 * np.array([mask.bit_count() for mask in used])
        free[:, kind] = np.where(books.up, np.maximum(cores, 0), 0)
        return replace(books, free=free)

    def _used(self, nodes: int, rank: float, gone: Collection[str] = ()) -> list[int]:
        used = [0] * nodes
        for name, h in self.held.items():
            if h.tier >= rank and name not in gone:
                for n, cores in h.cores.items():
                    used[n] |= cores
        return used

    def _given(self, job: Job, pieces: tuple[Piece, ...], books: Books) -> Held:
        """First cores that nobody has; if these are too few, that nobody has whom it sees."""
        tenancy, kind = books.tenancy or Tenancy(), _kind(books)
        rank = rank_of(tenancy, job)
        tier = rank if way_of(tenancy, job) == "suspend" else np.inf
        total = books.capacity[:, kind] // 1000
        counts = Counter[int]()
        for part, mine in of_groups(job.shape, pieces):
            for n, c, _ in mine:
                counts[n] += c * -(-part.demand[kind] // 1000)
        cores: dict[int, int] = {}
        for seen in (-np.inf, rank):
            used = self._used(len(total), seen)
            cores = {n: _first(int(total[n]), used[n], c) for n, c in counts.items()}
            if all(cores[n].bit_count() == c for n, c in counts.items()):
                break
        return Held(job, rank, tier, pieces, cores)


def _first(total: int, used: int, count: int) -> int:
    """The first cores of a node that are not used, as a mask."""
    free = [core for core in range(total) if not used >> core & 1]
    return sum(1 << core for core in free[:count])


def _kind(books: Books) -> int:
    devices = books.nodes.devices
    return devices.index("cpu") if "cpu" in devices else 0


def _meet(one: dict[int, int], other: dict[int, int]) -> bool:
    return any(cores & other.get(n, 0) for n, cores in one.items())
