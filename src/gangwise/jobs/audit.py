"""Auditor: whether a schedule keeps the rules, by arithmetic of its own.

A schedule is an :class:`~gangwise.jobs.metrics.Outcome`, simulated, live or recorded. All of it is
held against what always holds: gangs whole, tasks per node, labels, nodes that are up, no device
twice, submissions, dependencies, one attempt at a time, limits, work done. At a sample of instants
the queue and the free devices are counted anew from the schedule alone, and it is asked whether
each start is one that the order and the backfilling allow: no job overtakes without backfilling;
no device idles for a first in line that fits; a job that passes it leaves it what it was promised.
Closed hours are read off the calendar; which jobs count in a cap is read as elsewhere
(:func:`gangwise.jobs.tenancy.claims`).

Shared devices are counted, not followed. Where a job that asks for parts of one is first in line,
or nodes do not say all (``skipped``), an instant is left out.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from gangwise.core.arrays import Bools, Floats, Ints
from gangwise.core.settings import DAY
from gangwise.jobs.distance import place_at
from gangwise.jobs.kernels import SET_ASIDE
from gangwise.jobs.metrics import PREEMPTED, Outcome
from gangwise.jobs.model import Conditions, Shape, terms_of
from gangwise.jobs.schedule import Options, placed_shapes
from gangwise.jobs.tenancy import claims, of_arrays

LISTED = 20  # findings of each rule that are listed; the others are only counted
# Smaller differences, in seconds or as a share of a key of the queue, do not count.
TOLERANCE = 1e-6


class Violation(NamedTuple):
    rule: str
    job: str
    node: str
    time: float
    text: str

    def __str__(self) -> str:
        place = f" on {self.node}" if self.node else ""
        return f"{self.rule}: job {self.job}{place} at {self.time:,.6g} s {self.text}"


@dataclass
class Audit:
    """The findings of an auditor, and how much it looked at."""

    starts: int = 0
    instants: int = 0  # at which the rules of the queue were checked …
    of_instants: int = 0  # … of so many
    skipped: dict[str, int] = field(default_factory=dict)  # why a check was left out → how often
    counts: dict[str, int] = field(default_factory=dict)  # rule → how often it was broken
    findings: list[Violation] = field(default_factory=list)  # the first LISTED of each rule

    @property
    def line(self) -> str:
        findings = sum(self.counts.values())
        coverage = f" (the queue at {self.instants:,} of {self.of_instants:,} instants)"
        return f"audited: {self.starts:,} starts{coverage}, {findings:,} findings"

    def skip(self, why: str) -> None:
        self.skipped[why] = self.skipped.get(why, 0) + 1


class _Auditor:
    """The schedule as arrays: attempts A of jobs, by (job, begin), and their pieces P."""

    def __init__(self, outcome: Outcome, conditions: Conditions | None, options: Options):
        self.outcome, self.report = outcome, Audit()
        self.truth, self.conditions = conditions is not None, conditions or Conditions()
        jobs, nodes, pieces = outcome.jobs, outcome.nodes, outcome.pieces
        self.options = replace(options, caps=(*options.caps, *of_arrays(jobs)))
        self.jobs, self.names = jobs, nodes.names
        self.capacity, labels = nodes.capacity, nodes.labels
        if pieces is None:  # it is known when, not where: all nodes are one
            self.capacity, self.names = nodes.capacity.sum(axis=0, keepdims=True), ("the cluster",)
            ran = np.flatnonzero(outcome.ended)
            rows = ran, np.zeros(ran.size, np.int64), jobs.tasks[ran]
            columns: list[Any] = [*rows, outcome.last_start[ran], outcome.end[ran]]
        else:
            columns = [pieces.job, pieces.node, pieces.tasks, pieces.begin, pieces.end]
        # Pieces of an attempt come together: by job, begin, end. A job that is preempted in the
        # instant in which it starts may start once more in it.
        order = np.lexsort((columns[4], columns[3], columns[0]))
        # All later checks read these arrays, and nothing of what made the schedule.
        self.job, self.node, self.tasks = (c[order].astype(np.int64) for c in columns[:3])
        self.begin, self.end = (c[order].astype(np.float64) for c in columns[3:])
        begins = np.ones(self.job.size, dtype=bool)
        begins[1:] = (np.diff([self.job, self.begin, self.end]) != 0).any(axis=0)
        self.attempt, self.first = np.cumsum(begins) - 1, np.flatnonzero(begins)
        self.of, self.from_, self.until = self.job[begins], self.begin[begins], self.end[begins]
        # Tasks of an attempt, the fewest it may have, by how much it takes longer than with all.
        self.had = np.bincount(self.attempt, self.tasks, minlength=self.first.size)
        fewest = np.array([int(terms_of(text).get("fewest", 2**62)) for text in jobs.terms])
        self.fewest = np.minimum(fewest[jobs.term[self.of]], jobs.tasks[self.of])
        self.total = np.maximum(nodes.capacity.sum(axis=0), 1)
        demand = jobs.demand(nodes.devices)
        self.demand = demand[jobs.shape]
        self.parts_of = self.name_parts(placed_shapes(jobs, nodes))
        self.dominant = (self.demand / self.total).argmax(axis=1)
        self.per_node = np.array([s.per_node for s in jobs.shapes], dtype=np.int64)[jobs.shape]
        every = range(len(nodes))
        self.of_pool = {name: set(on) for name, on in nodes.pools.items()} | {"": set(every)}
        self.pool = np.array([s.pool for s in jobs.shapes])[jobs.shape]
        self.caps = self.in_caps()
        self.allowed = np.ones((len(self.shapes), len(self.names)), dtype=bool)
        for s, shape in enumerate(self.shapes if pieces is not None else ()):
            for n in every:
                fits = all(labels[n].get(k) == v for k, v in shape.constraint)
                self.allowed[s, n] = fits and n in self.of_pool[shape.pool]
        self.parts = np.zeros(len(jobs), dtype=bool)  # whose fit depends on single devices
        if nodes.shared is not None:
            k = nodes.devices.index(nodes.shared)
            part = np.concatenate([self.demand[:, k], self.asked[len(jobs.shapes) :, k]])
            self.parts = (self.demand[:, k] > 0) & bool(((part > 0) & (part < 1000)).any())
        hidden = self.conditions
        kinds = ((0, hidden.downs), (1, hidden.drains), (2, hidden.ups))
        events = sorted((t, kind, n) for kind, of_kind in kinds for t, n in of_kind)
        self.closed = [(c, c.about(jobs, nodes, demand)) for c in options.closed]
        self.nodes_events = [(float(t), kind, int(n)) for t, kind, n in events]
        self.withdrawn = np.array(jobs.withdrawn)
        for t, j in hidden.cancels:
            self.withdrawn[j] = min(self.withdrawn[j], t)
        # Since when those after a job need not wait for it.
        self.gone = np.minimum(np.where(np.isnan(outcome.end), np.inf, outcome.end), self.withdrawn)

    def name_parts(self, shapes: tuple[Shape, ...]) -> dict[int, list[tuple[int, int]]]:
        """Tasks by shape of each job shape that has groups.

        Gives all shapes a row of ``shapes`` and ``asked``, those of jobs first, and all pieces
        theirs, ``piece_shape`` [P]. An attempt whose groups are whole had its one task.
        """
        self.shapes, parts = list(shapes), dict[int, list[tuple[int, int]]]()
        self.piece_shape = np.array(self.jobs.shape[self.job])
        for s, shape in enumerate(shapes if self.outcome.pieces is not None else ()):
            for tasks, part in shape.groups:
                parts.setdefault(s, []).append((tasks, len(self.shapes)))
                self.shapes.append(part)
        rows = [shape.demand for shape in self.shapes]
        self.asked = np.array(rows, dtype=np.int64).reshape(len(rows), len(self.total))
        edges = [*self.first.tolist(), self.job.size]
        for a in np.flatnonzero(np.isin(self.jobs.shape[self.of], list(parts))).tolist():
            groups = parts[int(self.jobs.shape[self.of[a]])]
            # Tasks come group by group: each piece is matched with the tasks that are due next.
            wanted = [s for tasks, s in groups for _ in range(tasks)]
            complete, at = self.had[a] == len(wanted), 0
            for row in range(edges[a], edges[a + 1]):
                tasks = int(self.tasks[row])
                self.piece_shape[row] = wanted[min(at, len(wanted) - 1)]
                complete &= len(set(wanted[at : at + tasks])) == 1
                at += tasks
            self.had[a] = float(complete)
        self.longer = self.jobs.tasks[self.of] / np.maximum(self.had, 1)
        return parts

    def found(self, rule: str, bad: Any, job: Any, node: Any, time: Any, text: str) -> None:
        """Note where a rule was broken: ``bad`` is a mask of the other arrays, or indices."""
        bad = np.atleast_1d(bad)
        bad = np.flatnonzero(bad) if bad.dtype == bool else bad
        if not bad.size:
            return
        listed = self.report.counts.get(rule, 0)
        self.report.counts[rule] = listed + bad.size
        # All are counted, the first few are named: one mistake may break a rule a million times.
        for i in bad[: max(LISTED - listed, 0)].tolist():
            name = "" if node is None else str(self.names[int(node[i])])
            self.report.findings.append(
                Violation(rule, str(self.jobs.id[job[i]]), name, float(time[i]), text)
            )

    def bad_attempts(self, rule: str, bad: Any, text: str) -> None:
        self.found(rule, bad, self.of, None, self.from_, text)

    def bad_pieces(self, rule: str, bad: Any, text: str) -> None:
        self.found(rule, bad, self.job, self.node, self.begin, text)

    # ---------------------------------------------------------------------- what always holds

    def pieces_hold(self) -> None:
        """Check gangs, tasks per node, labels, and that nodes are up."""
        bad = (self.had < self.fewest) | (self.had > self.jobs.tasks[self.of])
        self.bad_attempts("gang", bad, "has not all its tasks, or too many")
        # Pieces of one attempt on one node count together, of each shape by itself.
        cell = (self.attempt * len(self.shapes) + self.piece_shape) * len(self.names) + self.node
        _, at, inverse = np.unique(cell, return_index=True, return_inverse=True)
        on = np.bincount(inverse, self.tasks)
        limit = np.array([shape.per_node for shape in self.shapes])[self.piece_shape[at]]
        if self.outcome.pieces is not None:
            bad = at[(limit > 0) & (on > limit)]
            self.bad_pieces("per node", bad, "has more tasks than one node may have")
        bad = ~self.allowed[self.piece_shape, self.node]
        self.bad_pieces("label", bad, "asks for other labels, or is of another pool")
        closed: dict[int, tuple[float, bool]] = {}
        spans = []
        # From events to spans in which a node takes no start; at the end all are closed.
        for t, kind, n in [*self.nodes_events, *((math.inf, 2, n) for n in range(len(self.names)))]:
            if kind < 2 and n not in closed:
                closed[n] = t, kind == 0
            elif kind == 0 and not closed[n][1]:  # it drained, and fails now
                spans.append((n, *closed.pop(n), t))
                closed[n] = t, True
            elif kind == 2 and n in closed:
                spans.append((n, *closed.pop(n), t))
        for n, since, down, back in spans:
            mine = self.node == n
            decided = self.begin - self.options.latency
            begun = mine & (decided >= since) & (decided < back)
            cut = mine & down & (self.begin < since) & (self.end > since)
            self.bad_pieces("node", begun | cut, "runs where nothing may")

    def devices_hold(self) -> None:
        """No device twice: what is taken of each node never exceeds what it has."""
        lasts = self.end > self.begin
        job, node = self.job[lasts], self.node[lasts]
        amount = self.asked[self.piece_shape[lasts]] * self.tasks[lasts, None]
        time = np.concatenate([self.end[lasts], self.begin[lasts]])
        takes = np.repeat([0, 1], job.size)
        # At an instant ends come before starts: who leaves makes room for who comes.
        order = np.lexsort((takes, time, np.tile(node, 2)))
        used = np.cumsum(np.concatenate([-amount, amount])[order], axis=0)
        at = np.tile(node, 2)[order]  # each node's sum begins and ends at nothing
        # Only a start can break the rule: an end takes nothing.
        over = (used > self.capacity[at]).any(axis=1) & (takes[order] == 1)
        text = "takes devices that others have"
        self.found("devices", over, np.tile(job, 2)[order], at, time[order], text)

    def in_caps(self) -> list[tuple[float, Ints, Ints, Bools]]:
        """Of each cap: the most at once, whose use each job counts in, how much, who is held.

        Which nodes a job could do with is not asked here, so caps of nodes are left out.
        """
        jobs, nodes, caps = self.jobs, self.outcome.nodes, []
        counted = [cap for cap in self.options.caps if cap.of != "nodes"]
        demand = jobs.demand(nodes.devices)
        for cap, (counter, amount, holds) in zip(counted, claims(counted, jobs, nodes, demand)):
            if cap.scope == "job":  # each by itself
                counter = np.where(amount > 0, np.arange(len(jobs)), -1)
            caps.append((1000 * cap.most, counter, amount, holds))
        return caps

    def caps_hold(self) -> None:
        """What counts in a cap never exceeds it."""
        lasting = self.until > self.from_
        for most, counter, amount, holds in self.caps:
            mine = np.flatnonzero(lasting & (counter[self.of] >= 0)).tolist()
            # Ends sort before starts of the same instant: what one gives back the other may take.
            moves = [(self.until[a], 0, a) for a in mine] + [(self.from_[a], 1, a) for a in mine]
            used = np.zeros(counter.max(initial=-1) + 1, dtype=np.int64)
            over = []
            for _, begins, a in sorted(moves):
                j = self.of[a]
                used[counter[j]] += amount[j] if begins else -amount[j]
                if begins and amount[j] and holds[j] and used[counter[j]] > most:
                    over.append(a)
            self.bad_attempts("cap", np.array(over, dtype=np.int64), "is more than a cap allows")

    def opens(self, j: int, at: float) -> float:
        """When a job may start from a time on: from one end of closed hours to the next."""
        for _ in range(1000 * bool(self.closed)):
            # Hours of several rules may follow one another.
            mine = [rule.times(at - DAY, at) for rule, about in self.closed if about[j]]
            ends = [high for hours in mine for low, high in hours if low <= at < high]
            if not ends:
                return at
            at = max(ends)
        return math.inf if self.closed else at

    def hours_hold(self) -> None:
        """No job starts in closed hours, except one that moves at that instant."""
        if not self.closed:
            return
        moves = np.zeros(self.of.size, dtype=bool)
        # A move begins where the attempt before it ended.
        moves[1:] = (np.diff(self.of) == 0) & (self.from_[1:] == self.until[:-1])
        at = self.from_ - self.options.latency
        bad = [not m and self.opens(j, t) > t for m, j, t in zip(moves, self.of.tolist(), at)]
        self.bad_attempts("hours", np.array(bad, dtype=bool), "starts in closed hours")

    def held(self, j: int, running: Ints) -> bool:
        """Whether a cap keeps a job from starting with others that run."""
        for most, counter, amount, holds in self.caps:
            if counter[j] >= 0 and amount[j] and holds[j]:
                used = amount[running[counter[running] == counter[j]]].sum()
                if used + amount[j] > most:
                    return True
        return False

    def preemption_holds(self) -> None:
        """A preempted job gave way to one that began there then, and came back as the rules say."""
        rules, jobs, pieces = self.options.tenancy.preemption, self.jobs, self.outcome.pieces
        if not rules.by or pieces is None:
            return
        cut_off = pieces.why == PREEMPTED
        cut = set(zip(pieces.job[cut_off], pieces.end[cut_off]))
        table: Any = self.options.tenancy.qos if rules.by == "qos" else self.options.tenancy.pools
        rule_of = {rule.name: rule for rule in table}
        names = [jobs.qoses[q] for q in jobs.qos] if rules.by == "qos" else list(self.pool)
        nodes = [set(on.tolist()) for on in np.split(self.node, self.first[1:])]
        comes: dict[float, list[int]] = {}
        for a, t in enumerate(self.from_.tolist()):
            comes.setdefault(t, []).append(a)
        bad = []
        for a, (j, t) in enumerate(zip(self.of.tolist(), self.until.tolist())):
            mine = rule_of.get(names[j])
            if (j, t) not in cut or mine is None:
                continue
            # Those that began at that instant on one of its nodes.
            rivals = [rule_of[names[self.of[b]]] for b in comes.get(t, ()) if nodes[a] & nodes[b]]
            above = any(
                mine.name in rule.preempts if rules.by == "qos" else rule.tier > mine.tier
                for rule in rivals
            )
            how, back = mine.preempted or rules.how, a + 1 < self.of.size and self.of[a + 1] == j
            own = getattr(mine, "exempt", None)
            exempt = rules.exempt if own is None else own
            rested = t - self.from_[a] >= exempt * (how != "suspend") - TOLERANCE
            if back and how == "suspend":
                rested &= nodes[a] == nodes[a + 1]
            elif back:
                rested &= how == "requeue" and self.from_[a + 1] >= t + rules.again - TOLERANCE
            if not (above and rested and how != "off"):
                bad.append(a)
        at = np.array(bad, dtype=np.int64)
        text = "is preempted for no job that may, too early, or does not come back as it should"
        self.found("preemption", at, self.of, None, self.until, text)

    def jobs_hold(self) -> None:
        """Submission, dependencies, one attempt at a time, limits, work."""
        jobs, o = self.jobs, self.options
        early = self.from_ < jobs.submit[self.of] - TOLERANCE
        self.bad_attempts("submission", early, "starts before it was submitted")
        overlaps = np.flatnonzero(
            (np.diff(self.of) == 0) & (self.from_[1:] < self.until[:-1] - TOLERANCE)
        )
        self.bad_attempts("attempts", overlaps + 1, "runs twice at once")
        late = self.from_ > self.withdrawn[self.of] + TOLERANCE
        self.bad_attempts("withdrawn", late, "starts after it was withdrawn")
        # A job is ready once it is submitted and all that it comes after are gone.
        start = np.full(len(jobs), np.inf)
        np.minimum.at(start, self.of, self.from_)
        behind = np.repeat(np.arange(len(jobs)), np.diff(jobs.after_from))
        waits = self.gone[jobs.after]
        # A job that can never run is set aside, and those after it do not wait for it.
        waits = np.where(self.can_run()[jobs.after], waits, -np.inf)
        self.ready = jobs.submit.astype(float)
        np.maximum.at(self.ready, behind, waits)
        bad = (start < self.ready - TOLERANCE) & (start >= jobs.submit - TOLERANCE)
        every = np.arange(len(jobs))
        self.found("dependency", bad, every, None, start, "starts before another ended")
        ran = self.until - self.from_
        requested = jobs.requested[self.of]  # the others' limits are their run times
        limit: Floats = jobs.limit[self.of] * np.where(requested, 1.0, self.longer)
        if o.enforced and o.limits == "wall-clock":
            self.bad_attempts("limit", ran > limit + TOLERANCE, "runs past its limit")
        if self.truth and not self.conditions.factors and self.outcome.pieces is not None:
            self.work_holds(ran, limit)

    def work_holds(self, ran: Floats, limit: Floats) -> None:
        """A job of one attempt ends when its work is done or its limit reached, and then alone."""
        jobs, hidden, o = self.jobs, self.conditions, self.options
        rate = np.ones(self.first.size)
        if hidden.rates is not None:
            piece_rates = np.asarray(hidden.rates)[jobs.type[self.job], self.node]
            rate = np.minimum.reduceat(piece_rates, self.first) if self.first.size else rate
        if hidden.noise is not None:
            rate = rate * np.asarray(hidden.noise)[self.of]
        if hidden.distance is not None:
            kinds = jobs.type[self.of], jobs.sizes[self.of]
            shares = hidden.distance.factor(*kinds)
            rate = rate * shares[np.arange(self.of.size), self.levels(hidden.distance.levels)]
        work = jobs.run[self.of] * self.longer
        if o.enforced and o.limits == "work":
            work = np.minimum(work, limit)
        # A gang works at the rate of its slowest piece until its work is done, or until its limit.
        takes = work / rate
        if o.enforced and o.limits == "wall-clock":
            takes = np.minimum(takes, limit)
        # Only of a job that began once is it known how much work was left.
        once = np.bincount(self.of, minlength=len(jobs))[self.of] == 1
        once &= self.outcome.clean[self.of] | o.enforced  # a job that was cut once may go on later
        once &= self.outcome.last_start[self.of] == self.from_
        # One that its node cut may have been withdrawn later.
        once &= self.outcome.end[self.of] == self.until
        once &= self.until < self.withdrawn[self.of]
        near = TOLERANCE * (1.0 + np.abs(self.until))
        for rule, bad, text in (
            ("killed", ran < takes - near, "ends before its work or its limit"),
            ("overrun", ran > takes + near, "runs on when it should have ended"),
        ):
            self.found(rule, once & bad, self.of, None, self.until, text)

    def levels(self, labels: tuple[str, ...]) -> Ints:
        """Level of distance of each attempt: what labels all its nodes have in common."""
        every, levels = self.outcome.nodes.labels, []
        for nodes in np.split(self.node, self.first[1:]):
            on = {int(n) for n in nodes}
            shared = [len({place_at(every[n], k) or (n,) for n in on}) == 1 for k in labels]
            # The nearest label from which on all are shared; the cluster is shared by all.
            nearest = next(i for i in range(len(labels) + 1) if all(shared[i:]))
            levels.append(0 if len(on) == 1 else 1 + nearest)
        return np.array(levels, dtype=np.int64)

    def can_run(self) -> Bools:
        """Jobs that fit on the empty cluster; the others are set aside."""
        # Jobs of one shape and size fit alike: one of them is tried.
        kinds = np.stack([self.jobs.shape, self.jobs.tasks])
        _, at, inverse = np.unique(kinds, axis=1, return_index=True, return_inverse=True)
        every = np.ones(len(self.names), dtype=bool)
        fits = np.array([self.fits(int(j), self.capacity, every) for j in at], dtype=bool)
        able = np.asarray(fits[inverse.ravel()])
        if self.options.caps or self.options.bounds:  # which jobs a site refuses is taken over
            able = able & (np.asarray(self.outcome.phase) != SET_ASIDE)
        return able

    # ---------------------------------------------------------------------- who may start

    def fits(self, j: int, free: Ints, up: Bools) -> bool:
        """Whether all tasks of job j fit; groups as they come, each on the first nodes."""
        if (s := int(self.jobs.shape[j])) in self.parts_of:
            remaining = free.copy()
            for tasks, part in self.parts_of[s]:
                limit = self.shapes[part].per_node or tasks
                for n in np.flatnonzero(up & self.allowed[part]).tolist():
                    on_node = 0
                    while tasks and on_node < limit and (remaining[n] >= self.asked[part]).all():
                        remaining[n] -= self.asked[part]
                        tasks, on_node = tasks - 1, on_node + 1
                if tasks:
                    return False
            return True
        requested = self.demand[j] > 0
        if not requested.any():
            return False
        # Nodes that are over-committed, as parts of a log may be, have no room and do not lend any.
        room = np.maximum((free[:, requested] // self.demand[j, requested]).min(axis=1), 0)
        if self.per_node[j] and self.outcome.pieces is not None:
            room = np.minimum(room, self.per_node[j])
        able = up & self.allowed[self.jobs.shape[j]]
        return bool(room[able].sum() >= self.jobs.tasks[j])

    def keys(self, queue: Any, jobs: Ints, now: float) -> tuple[Floats, bool] | None:
        """Keys of the queue, and whether they are exact; None for an order that is not known."""
        table, name = self.jobs, getattr(queue, "name", "")
        if name == "fcfs":
            return np.zeros(jobs.size), True
        if name in ("sjf", "edf"):
            return (table.limit if name == "sjf" else table.deadline)[jobs], True
        if name == "priority":
            return np.asarray(-table.priority[jobs], dtype=np.float64), True
        k = self.dominant
        devices = table.tasks * self.demand[np.arange(len(table)), k]
        if name == "wfp3":
            stretch = (now - table.submit[jobs]) / np.maximum(table.limit[jobs], 1.0)
            return np.asarray(-(stretch**3) * devices[jobs] / 1000.0, dtype=np.float64), False
        if name == "fair-share":
            a, b = np.minimum(self.from_, now), np.minimum(self.until, now)
            # The integral of exp(−λ (now − t)) over the time that each attempt ran.
            # λ of the half-life; use is integrated in closed form, not summed event by event.
            decay = math.log(2.0) / queue.half_life
            time = b - a if decay == 0 else (np.exp(decay * (b - now)) - np.exp(decay * (a - now)))
            time = time / (decay or 1.0) * (devices / self.total[k])[self.of]
            use: Floats = np.bincount(table.user[self.of], time, len(table.users)).astype(float)
            return use[table.user[jobs]], False
        return None

    def queue_holds(self, scheduler: Any, most: int, seed: int) -> None:
        """At a sample of instants: each start is one that the rule allows."""
        # Nothing happens when a job comes that never can run or is withdrawn already.
        comes = self.can_run() & np.isfinite(self.ready) & (self.withdrawn > self.ready)
        moments = [self.from_, self.until, self.ready[comes]]
        moments.append(np.array([t for t, _, _ in self.nodes_events]))
        every = np.unique(np.concatenate(moments))
        self.report.of_instants = every.size
        if self.outcome.pieces is None and len(self.outcome.nodes) > 1:
            self.report.skip("where jobs ran is not known")
            return
        if self.options.latency or any(cap.of == "nodes" for cap in self.options.caps):
            self.report.skip("starts come some time after they are decided, or a cap is of nodes")
            return
        choice = scheduler.choice
        if getattr(choice, "waits", False) or getattr(choice, "mode", "") == "required":
            self.report.skip("gangs may wait for better nodes")
            return
        if scheduler.backfilling not in ("none", "easy"):
            self.report.skip(f"{scheduler.backfilling} reservations are not in the schedule")
            return
        if every.size > most:
            every = np.sort(np.random.default_rng(seed).choice(every, most, replace=False))
        # When each attempt began to wait: once it could first start, and when it was cut.
        ready = self.ready[self.of]
        cut = np.flatnonzero(np.diff(self.of) == 0)
        ready[cut + 1] = self.until[cut]
        never = np.setdiff1d(np.flatnonzero(self.can_run()), self.of)
        # Whose last attempt was cut waits again, until it is withdrawn if ever.
        final = np.flatnonzero(np.diff(self.of, append=-1) != 0)
        final = final[self.outcome.end[self.of[final]] != self.until[final]]
        unstarted = np.concatenate([never, self.of[final]])
        # Who waits when: job, since when, until when, and the attempt that ends the wait.
        waits = (
            np.concatenate([self.of, unstarted]),
            np.concatenate([ready, self.ready[never], self.until[final]]),
            np.concatenate([self.from_, self.withdrawn[unstarted]]),
            np.concatenate([np.arange(self.of.size), np.full(unstarted.size, -1)]),
        )
        in_time = bool((self.until - self.from_ <= self.jobs.limit[self.of] + TOLERANCE).all())
        # A promise is firm where nothing may come in between: no job outlives its limit, nodes
        # stay, and first come is first served.
        self.firm = in_time and not self.nodes_events and not self.jobs.after.size
        self.firm &= getattr(scheduler.queue, "name", "") == "fcfs"
        # Disjoint pools: the sum of their sizes is the size of their union.
        several = [on for name, on in self.of_pool.items() if name in set(self.pool.tolist())]
        alone = sum(map(len, several)) == len(set().union(*several))
        self.firm &= alone and not self.options.caps
        self.firm &= not self.parts_of  # with more free, groups may find no room
        at_once = np.unique(self.from_[self.until == self.from_])
        for instant in every.tolist():
            if np.isin(instant, at_once):
                self.report.skip("a job of run time 0 opened a second round")
            elif self.instant_holds(scheduler, instant, *waits):
                self.report.instants += 1

    def instant_holds(
        self, scheduler: Any, now: float, of: Ints, ready: Floats, start: Floats, attempt: Ints
    ) -> bool:
        """Judge one instant; False where it cannot be judged."""
        # In the queue before the round: ready by now, and not started earlier.
        queue = np.flatnonzero((ready <= now) & (start >= now))
        queue = queue[(start[queue] > now) | (attempt[queue] >= 0)]
        believed = getattr(scheduler, "expects", ("requested",))[0] == "requested"
        by_length = getattr(scheduler.queue, "name", "") in ("sjf", "wfp3")
        keyed = self.keys(scheduler.queue, of[queue], now) if believed or not by_length else None
        if keyed is None:
            self.report.skip("the order of the queue is not known")
            return False
        # Where two keys are too near to each other, rounding may have decided.
        key, exact = keyed
        # Ties as everywhere: by row.
        order = np.lexsort((of[queue], key))
        queue, key = queue[order], key[order]
        starts = start[queue] == now
        waits = np.flatnonzero(~starts)
        if not waits.size:
            return True
        # Those that began earlier; starts of this instant are judged one after another.
        running = np.flatnonzero((self.from_ < now) & (self.until > now))
        pools, judged, heads = self.pool[of[queue]], True, set[tuple[str, bool]]()
        for h in waits.tolist():
            pool = str(pools[h])
            stands = {p for p, _ in heads if self.of_pool[p] & self.of_pool[pool]}
            line = pool, self.opens(int(of[queue[h]]), now) > now
            if line[1] and scheduler.backfilling == "none":
                continue
            # One of its pool is in front, or without backfilling one whose pool shares a node.
            if not (stands if scheduler.backfilling == "none" else line in heads):
                holding = np.concatenate([running, attempt[queue[:h][starts[:h]]]])
                if self.held(int(of[queue[h]]), self.of[holding]):
                    continue
                heads.add(line)
                if not exact and (np.abs(key - key[h]) <= TOLERANCE * np.abs(key[h])).sum() > 1:
                    self.report.skip("two keys of the queue are too near")
                    return False
                meets = [bool(self.of_pool[q] & self.of_pool[pool]) for q in pools[h + 1 :]]
                behind = attempt[queue[h + 1 :][starts[h + 1 :] & np.array(meets, dtype=bool)]]
                judged &= self.head_holds(scheduler, now, int(of[queue[h]]), holding, behind)
        return judged

    def head_holds(
        self, scheduler: Any, now: float, head: int, holding: Ints, behind: Ints
    ) -> bool:
        """Judge an instant by one job that is first in line; False where it cannot be judged.

        ``behind`` are the attempts that begin behind it and may use nodes of its pool.
        """
        if scheduler.backfilling == "none":
            self.bad_attempts("order", behind, f"overtakes job {self.jobs.id[head]}")
        # How much of a shared device is free on one device is not in the schedule.
        if self.parts[head]:
            self.report.skip("the first in line asks for parts of devices")
            return False
        up = self.up_at(now)
        shut = self.opens(head, now) > now
        # It is first, has room and may start: then nothing explains that it does not.
        if not shut and self.fits(head, self.free_of(holding), up):
            at, only = np.array([now]), np.array([head])
            self.found("idle", 0, only, None, at, "is first in line, fits, and does not start")
        elif getattr(scheduler, "expects", ("requested",))[0] != "requested":
            self.report.skip("what jobs were expected to take is not in the schedule")
        elif scheduler.backfilling == "easy" and self.options.limits == "wall-clock":
            self.promise_holds(head, now, up, holding, behind)
        return True

    def promise_holds(self, head: int, now: float, up: Bools, holding: Ints, behind: Ints) -> None:
        """EASY: jobs that start behind the first in line leave it what it is promised."""
        # The promise: the first instant at which the job fits if all run for their limits.
        ends = np.maximum(self.from_[holding] + self.jobs.limit[self.of[holding]], now)
        promise = math.inf
        for t in np.unique(np.append(ends, now)).tolist():
            if self.fits(head, self.free_of(holding[ends > t]), up):
                promise = self.opens(head, t)
                break
        # Who ends before the promise takes nothing of it; the others are added one by one.
        # EASY's only condition for who passes: gone by the promise, or beside what it needs.
        past = now + self.jobs.limit[self.of[behind]] > promise
        lasting = holding[ends > promise]
        for a in behind[past].tolist():
            lasting = np.append(lasting, a)
            if not self.fits(head, self.free_of(lasting), up):
                text = f"takes what job {self.jobs.id[head]} is promised for {promise:,.6g} s"
                self.bad_attempts("easy", a, text)
                return
        start = self.outcome.start
        if self.firm and start[head] > promise + TOLERANCE:
            text = f"was promised {promise:,.6g} s"
            self.found("promise", head, np.arange(len(start)), None, start, text)

    def free_of(self, attempts: Ints) -> Ints:
        """Free devices of each node beside these attempts [N, K], in thousandths."""
        free = self.capacity.copy()
        chosen = np.zeros(self.first.size, dtype=bool)
        chosen[attempts] = True
        rows = np.flatnonzero(chosen[self.attempt])
        amount = self.asked[self.piece_shape[rows]] * self.tasks[rows, None]
        np.subtract.at(free, self.node[rows], amount)
        return free

    def up_at(self, now: float) -> Bools:
        """Nodes on which a job may start at this instant."""
        up = np.ones(len(self.names), dtype=bool)
        for t, kind, n in self.nodes_events:
            if t <= now:
                up[n] = kind == 2
        return up


def audit(
    outcome: Outcome,
    scheduler: Any = None,
    conditions: Conditions | None = None,
    options: Options | None = None,
    promised: Floats | None = None,
    instants: int = 2_000,
    seed: int = 0,
) -> Audit:
    """Hold a schedule against the rules.

    It is to keep to the order and the backfilling of a ``scheduler``; without one, what always
    holds is looked at alone. ``conditions`` are what was hidden, None where they are unknown, and
    ``promised`` [J] the earliest start that was promised to each job, as ``Schedule.reserved`` has
    it. The queue is counted anew at so many ``instants`` at most, drawn at random with ``seed``.
    """
    a = _Auditor(outcome, conditions, options or Options())
    a.report.starts = a.first.size
    # What pieces add up to comes first: the other checks count devices by them.
    a.pieces_hold()
    a.devices_hold()
    a.jobs_hold()
    a.caps_hold()
    a.preemption_holds()
    a.hours_hold()
    if scheduler is not None and hasattr(scheduler, "backfilling"):
        a.queue_holds(scheduler, instants, seed)
        # A promise binds only where its ends were sure: limits that kill, and no node lost.
        if promised is not None and getattr(a, "firm", False):
            bad = np.isfinite(promised) & (outcome.start > promised + TOLERANCE)
            every = np.arange(promised.size)
            a.found("promise", bad, every, None, outcome.start, "starts after it was promised to")
    return a.report
