r"""The fit of a model to a log: how much of what was recorded it explains under the rules.

A counterfactual is worth what the model is worth at the factual. So the recorded schedule is
compared with one simulated from the same jobs, on the jobs that started and ended in both. With
mean waits wᵣ as recorded and wₛ as simulated,

==================  ================================================================================
explained share     1 − \|wₛ − wᵣ\| / wᵣ, not below 0: a model in which jobs wait twice as long as
                    they did explains nothing, as one in which none waits
by group            1 − Σ n \|wₛ − wᵣ\| / Σ n wᵣ over groups of n jobs: never more than the share
                    above, since what is too much in one group does not make up for another;
                    *job by job* is the finest of them
use, queue          the same of devices held, and of jobs waiting, by the hour
busy                that of devices held, over the hours in which a job waited, as recorded
near                share of the jobs that start within 10 minutes, or 10 % of the recorded wait, of
                    when they did
order               Kendall's τ of starts over pairs of jobs that, as recorded, waited at once, at
                    most 64 submissions apart. Over all pairs of a long log it is 1 under any rule
waits               Spearman's rank correlation of the waits
==================  ================================================================================

Where no plain scheduler can have done what was recorded: no job starts, though every waiting job
would fit. Under any order, with or without backfilling, the job that is first in line starts when
it fits. Who is first a log does not say; but while *every* job that waits would fit alone into what
is idle, the first does too. A log in which that goes on for longer than a start takes contradicts
the model of its site, whatever the order was, and a schedule of ours never does: evidence needs no
rule. :func:`sweep` goes through a recorded schedule once, under what is known of the site
(:class:`SiteConstraints`), and gives for each instant whether the record contradicts it. The work
is O((E + T) · A) for E events, T changes of opening hours and A kinds of jobs that wait at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gangwise.core.arrays import Bools, Floats, Ints
from gangwise.core.errors import ScenarioError
from gangwise.core.jit import inlined_kernel, kernel
from gangwise.jobs.metrics import Outcome, held_devices, over_bins, size_groups
from gangwise.jobs.model import Jobs, Nodes, Shape
from gangwise.jobs.tenancy import allowed_on

NEAR = (600.0, 0.1)
"""A start is near its record within so many seconds, or this share of the recorded wait."""

HOUR, WEEK = 3600.0, 7 * 86400.0

APART = 64  # pairs of jobs whose order of starts is compared are at most so many submissions apart
LEAST_WEEKS = 8  # jobs of fewer weeks are grouped by day

JUDGED = {
    "mean wait": "explained",
    "job by job": "by_job",
    "order of starts": "order",
    "busy devices while jobs wait": "busy",
}
"""What a model must explain, each by itself, and the field of it: under a wrong rule the mean may
be right by chance, and then jobs, or their order, are not."""
ENOUGH = 0.8  # of each of these; of less, a model may not be compared with the past

HEAVY = (0.5, 0.9)
"""Heavy users are the fewest that hold half of the device-hours, light ones hold the last tenth."""


@dataclass(frozen=True)
class GroupWaits:
    """Mean waits (seconds) of a group of jobs, as recorded and as simulated."""

    name: str
    jobs: int
    recorded: float
    simulated: float

    @property
    def explained(self) -> float:
        """Explained share of the mean wait; NaN where none waited.

        >>> GroupWaits("fcfs", 3, 4.0, 1.0).explained, GroupWaits("fcfs", 3, 4.0, 9.0).explained
        (0.25, 0.0)
        """
        return share_explained(self.simulated, self.recorded)


@dataclass(frozen=True)
class ModelFit(GroupWaits):
    """The fit of a model to a log; ``name`` is that of the rules.

    Groups are by ``partition`` (where the log has several), ``size``, ``user`` (heavy, medium,
    light) and ``week`` or ``day`` of submission.
    """

    by_job: float  # these seven as above; NaN where they are not defined
    near: float
    order: float
    waits: float
    use: float
    queue: float
    busy: float
    device: str  # of which ``use`` is: the one of which the largest share was held
    groups: Mapping[str, Sequence[GroupWaits]]

    @property
    def weakest(self) -> tuple[str, float]:
        """The part of :data:`JUDGED` that is explained least, and its explained share."""
        shares = {worst: getattr(self, field) for worst, field in JUDGED.items()}
        defined = {worst: share for worst, share in shares.items() if math.isfinite(share)}
        if not defined:  # the model starts nothing, so it explains nothing
            return "mean wait", 0.0
        worst = min(defined, key=lambda each: defined[each])
        return worst, defined[worst]

    @property
    def doubtful(self) -> bool:
        """Whether too little is explained of one thing for a comparison with the past."""
        return self.weakest[1] < ENOUGH

    def by(self, what: str) -> float:
        """Explained share of waiting by one of ``groups``."""
        sums = np.array([(g.jobs * g.simulated, g.jobs * g.recorded) for g in self.groups[what]])
        return share_explained(*sums.T)

    def as_dict(self) -> dict[str, Any]:
        plain = {k: v for k, v in vars(self).items() if k not in ("name", "groups")}
        groups = {
            kind: {
                "explained": self.by(kind),
                "groups": [{**vars(g), "explained": g.explained} for g in members],
            }
            for kind, members in self.groups.items()
        }
        weakest = dict(zip(("what", "explained"), self.weakest))
        summary = {"under": self.name, "explained": self.explained, **plain, "by": groups}
        return {**summary, "weakest": weakest, "doubtful": self.doubtful}


def retell(
    recorded: Outcome,
    simulated: Outcome,
    partition: npt.NDArray[np.str_] | None = None,
    on: Bools | None = None,
) -> ModelFit:
    """The fit of a simulation to the record of the same jobs.

    ``partition`` [J] is that of each job; only jobs that are ``on`` [J] count, by default all.
    Raises ScenarioError where the jobs differ, or none has a start and an end in both.

    >>> from gangwise.jobs import Jobs, Nodes, simulate_jobs
    >>> jobs = Jobs.of(
    ...     [0, 1, 2], [9, 9, 5], [3, 2, 1], recorded_start=[0, 9, 2], recorded_end=[9, 18, 7]
    ... )
    >>> then = Outcome.recorded(jobs, Nodes.pool(4))
    >>> now = {
    ...     name: Outcome.of(simulate_jobs(jobs, Nodes.pool(4), name), name)
    ...     for name in ("fcfs+easy", "fcfs+none")
    ... }
    >>> [round(retell(then, each).explained, 2) for each in now.values()]
    [1.0, 0.12]
    """
    if len(recorded.jobs) != len(simulated.jobs):
        raise ScenarioError(
            f"{len(recorded.jobs)} jobs are recorded and {len(simulated.jobs)} simulated; "
            "retelling compares the same jobs"
        )
    ended = recorded.ended & simulated.ended
    rows = np.flatnonzero(ended if on is None else ended & on)
    if not rows.size:
        raise ScenarioError("no job has a start and an end in the log and in the simulation")
    jobs = recorded.jobs
    log, model = recorded.waiting[rows], simulated.waiting[rows]
    # Of the device types, that of which the jobs held the largest share.
    device_seconds = (recorded.end - recorded.start)[rows] @ recorded.demand[rows]
    k = int(np.argmax(device_seconds / np.maximum(recorded.capacity, 1e-9)))
    part = None if partition is None else partition[rows]
    size = recorded.demand[rows, k]
    ran = (recorded.end - recorded.last_start)[rows] * size
    groups = groups_of(size, ran, jobs.user[rows], part)
    unit, period = periods(jobs.submit)
    groups[unit] = (period[rows], [str(i + 1) for i in range(int(period.max()) + 1)])
    return ModelFit(
        simulated.name,
        rows.size,
        float(log.mean()),
        float(model.mean()),
        share_explained(model, log),
        _near(log, model),
        _order(jobs.submit[rows], recorded.start[rows], simulated.start[rows]),
        rank_correlation(log, model),
        *_by_hour(recorded, simulated, rows, k),
        recorded.nodes.devices[k],
        {kind: _groups(codes, names, log, model) for kind, (codes, names) in groups.items()},
    )


def groups_of(
    size: Floats, ran: Floats, user: Ints, partition: npt.NDArray[np.str_] | None
) -> dict[str, tuple[Ints, list[str]]]:
    """Groups of jobs [J], and their names: by partition, size, class of user.

    ``size`` is in devices, ``ran`` in device-seconds.
    """
    groups = {"size": size_groups(size), "user": _user_classes(user, ran)}
    if partition is not None:
        names, number = np.unique(partition, return_inverse=True)
        if names.size > 1:
            groups = {"partition": (number, names.tolist()), **groups}
    return groups


def share_explained(simulated: npt.ArrayLike, recorded: npt.ArrayLike) -> float:
    """1 − Σ |simulated − recorded| / Σ recorded, not below 0; NaN where nothing is recorded."""
    # Σ over groups lets no surplus of one make up for a lack of another.
    model, log = (np.asarray(values, dtype=np.float64) for values in (simulated, recorded))
    total, off = float(log.sum()), float(np.abs(model - log).sum())
    return max(0.0, 1 - off / total) if total > 0 else math.nan


def explains(recorded: Outcome, simulated: Outcome) -> tuple[float, float]:
    """Sort key of rules by what they explain, the greater the more.

    The explained share by week or day, in whole per cent, and of equals that of starts near their
    record. It is not the mean wait that chooses, for some rule may have it by chance.
    """
    rows = recorded.ended & simulated.ended
    if not rows.any():
        return 0.0, 0.0
    # By week or day, so that too much in one does not make up for too little in another.
    block = periods(recorded.jobs.submit)[1][rows]
    recorded_waits, simulated_waits = recorded.waiting[rows], simulated.waiting[rows]
    share = share_explained(np.bincount(block, simulated_waits), np.bincount(block, recorded_waits))
    # In whole per cent: rules that differ by less are told apart by their starts.
    return round(100 * share) if share > 0 else 0.0, _near(recorded_waits, simulated_waits)


def _near(then: Floats, now: Floats) -> float:
    # The larger of the two tolerances: ten minutes for short waits, a tenth for long ones.
    return float((np.abs(now - then) <= np.maximum(NEAR[0], NEAR[1] * then)).mean())


def periods(submit: Floats) -> tuple[str, Ints]:
    """``week``, or ``day`` where there are few weeks, and that of each submission [J].

    >>> periods(np.array([5.0, 90000.0]))
    ('day', array([0, 1]))
    """
    since = submit - submit.min()
    weeks = float(since.max()) >= (LEAST_WEEKS - 1) * WEEK
    # Of few weeks, days give more groups to judge by.
    return ("week" if weeks else "day"), (since // (WEEK if weeks else 86400.0)).astype(np.int64)


def _user_classes(user: Ints, held: Floats) -> tuple[Ints, list[str]]:
    """Heavy, medium and light users, by what their jobs held.

    >>> _user_classes(np.array([0, 1, 2, 0]), np.array([30.0, 35.0, 5.0, 30.0]))[0]
    array([0, 1, 2, 0])
    """
    by_user = np.bincount(user, held)
    # Users by falling use; what those before one hold says which class he is in.
    order = np.argsort(-by_user, kind="stable")
    # What those before a user hold, itself not counted, so the first is always heavy.
    earlier = np.cumsum(by_user[order]) - by_user[order]
    bounds = np.array(HEAVY) * by_user.sum()
    place = np.empty(by_user.size, dtype=np.int64)
    place[order] = np.searchsorted(bounds, earlier, side="right")
    return place[user], ["heavy", "medium", "light"]


def _groups(of: Ints, names: Sequence[str], then: Floats, now: Floats) -> list[GroupWaits]:
    count = np.bincount(of, minlength=len(names))
    sums = (np.bincount(of, waits, len(names)) for waits in (then, now))
    rows = zip(names, count.tolist(), *(waits.tolist() for waits in sums))
    return [GroupWaits(name, n, a / n, b / n) for name, n, a, b in rows if n]


def _by_hour(
    recorded: Outcome, simulated: Outcome, both: Ints, k: int
) -> tuple[float, float, float]:
    """Explained shares of devices held, of jobs waiting, and of the first while some waited."""
    submit, one_each = recorded.jobs.submit[both], np.ones(both.size)
    begin = float(submit.min())
    end = max(float(run.end[both].max()) for run in (recorded, simulated))
    # Hours from the first submission on; the last edge lies behind the last end.
    edges = begin + HOUR * np.arange(math.ceil((end - begin) / HOUR) + 1.0)
    if edges.size < 2:
        return math.nan, math.nan, math.nan
    use, queue = [], []
    for run in (simulated, recorded):
        use.append(over_bins(edges, run.last_start[both], run.end[both], run.demand[both, k]))
        queue.append(over_bins(edges, submit, run.start[both], one_each))
    # By what was recorded: use says little of a rule in hours in which nobody waited for it.
    waited = queue[1] > 0
    busy = share_explained(use[0][waited], use[1][waited])
    return share_explained(*use), share_explained(*queue), busy


def _order(submit: Floats, then: Floats, now: Floats) -> float:
    """Kendall's τ of starts over pairs that waited at once; NaN without any."""
    agree, pairs = 0.0, 0
    for d in range(1, min(APART + 1, submit.size)):
        # The later one came while the earlier one still waited.
        at_once = (submit[d:] < then[:-d]) & (then[d:] != then[:-d])
        agree += float((np.sign(then[d:] - then[:-d]) * np.sign(now[d:] - now[:-d]))[at_once].sum())
        pairs += int(at_once.sum())
    return agree / pairs if pairs else math.nan


def _mean_ranks(values: npt.ArrayLike) -> Floats:
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    # Equal values: the mean of their places from cumsum − count + 1 to cumsum.
    ranks: Floats = (np.cumsum(count) - (count - 1) / 2)[place]
    return ranks


def rank_correlation(values: npt.ArrayLike, others: npt.ArrayLike) -> float:
    """Spearman's rank correlation; equal values share their mean rank, NaN where all are equal.

    >>> rank_correlation([1, 2, 3, 4], [1, 3, 2, 4]), rank_correlation([1, 1], [1, 2])
    (0.8, nan)
    """
    a, b = (rank - rank.mean() for rank in map(_mean_ranks, (values, others)))
    # Rounded, since exact ties would differ in their last digit between machines.
    size = math.sqrt(float(a @ a) * float(b @ b))
    return round(float(a @ b) / size, 12) if size > 0 else math.nan


# --------------------------------------------------------------------------------- contradictions

HOURS = 168  # hours of a week


@dataclass(frozen=True, eq=False)
class Record:
    """A schedule as it was recorded: of jobs that started, and of those withdrawn before.

    What still ran when the log ended ends with it here; who was withdrawn leaves the line at
    ``start``, which is ``end`` as well, and did not start.
    """

    jobs: Jobs
    nodes: Nodes
    submit: Floats  # [J] seconds, as the next three
    start: Floats
    end: Floats
    started: Bools  # [J]; others were withdrawn
    limit: Floats
    size: Floats  # [J] devices of the counted type that all tasks hold
    device: str  # the counted type
    # ``user``, ``account`` and ``pool``, where the log has several: that of each job [J], and names
    groups: Mapping[str, tuple[Ints, tuple[str, ...]]]
    total: float  # devices of the counted type that all nodes have
    monday: float  # seconds from Monday 0:00 local time to the log's time 0; 0 if not known
    host_from: Ints  # job j ran on host[host_from[j]:host_from[j + 1]]; empty if not known
    host: Ints

    @classmethod
    def of(
        cls,
        jobs: Jobs,
        nodes: Nodes,
        device: str = "",
        groups: Mapping[str, npt.ArrayLike] | None = None,
        monday: float = 0.0,
        hosts: tuple[Ints, Ints] | None = None,
    ) -> Record:
        """The record of jobs with starts and ends; raises ScenarioError where there are none.

        >>> jobs = Jobs.of([0, 0], [9, 9], recorded_start=[0, 9], recorded_end=[9, 18])
        >>> Record.of(jobs, Nodes.pool(2)).size
        array([1., 1.])
        """
        # A job still running when the log ended has an end for the sweep: start + what is known.
        end = np.where(jobs.censored, jobs.recorded_start + jobs.run, jobs.recorded_end)
        started = np.isfinite(jobs.recorded_start) & np.isfinite(end)
        listed = started | np.isfinite(jobs.withdrawn)
        if not started.any():
            raise ScenarioError(
                "the log does not say when jobs started: without recorded waits there is nothing "
                "to calibrate; give a log with submission, start and end of each job"
            )
        device = device or jobs.devices[0]
        k = nodes.devices.index(device)
        of_groups = {"user": np.array(jobs.users)[jobs.user], **(groups or {})}
        named: dict[str, tuple[Ints, tuple[str, ...]]] = {}
        for scope, values in of_groups.items():
            names, codes = np.unique(np.asarray(values)[listed], return_inverse=True)
            # With one value for all a scope says nothing; users are kept as units of evidence.
            if len(names) > 1 or scope == "user":
                named[scope] = codes.astype(np.int64), tuple(map(str, names))
        unknown_hosts = np.zeros(len(jobs) + 1, np.int64), np.zeros(0, np.int64)
        host_from, host = hosts if hosts is not None and hosts[1].size else unknown_hosts
        count = np.diff(host_from)
        began, ended = (
            np.where(started, at, jobs.withdrawn)[listed] for at in (jobs.recorded_start, end)
        )
        return cls(
            # The columns that a sweep reads.
            replace(jobs, tasks=jobs.tasks[listed], shape=np.asarray(jobs.shape)[listed]),
            nodes,
            jobs.submit[listed],
            began,
            ended,
            started[listed],
            jobs.limit[listed],
            held_devices(jobs, nodes)[listed, k],
            device,
            named,
            float(nodes.capacity[:, k].sum()) / 1000,
            monday,
            np.concatenate([[0], np.cumsum(count[listed])]),
            host[np.repeat(listed, count)],
        )

    def __len__(self) -> int:
        return self.submit.size


class GroupLimit(NamedTuple):
    """Running jobs of a group have at most so many devices, or are at most so many."""

    group: Ints  # [J] of each job, −1 for none
    weight: Floats  # [J]: devices, or 1 where jobs are counted; alike for jobs that are alike
    most: float


class WeeklyClosing(NamedTuple):
    """Jobs that ask for more than ``over`` do not start in these hours of the week."""

    asks: Floats  # [J]: seconds, devices, or 1 and 0
    over: float
    hours: Bools  # [168]
    begin: float
    end: float

    def holds(self, at: Floats, monday: float, jobs: Any = slice(None)) -> Bools:
        """Whether these jobs may not start at these times."""
        # Hours of the local week: the log's time 0 lies `monday` seconds after Monday 0:00. An
        # instant at an hour's edge belongs to the hour that begins, as in the sweep.
        hour = np.floor((at + monday) / HOUR + 1e-9).astype(np.int64) % HOURS
        inside = (at >= self.begin) & (at < self.end) & self.hours[hour]
        return np.asarray(inside & (self.asks[jobs] > self.over))


class Missing(NamedTuple):
    begin: float
    end: float
    devices: float
    node: int = -1  # all of it is missing; -1 for devices of any node


@dataclass(frozen=True)
class SiteConstraints:
    limits: tuple[GroupLimit, ...] = ()
    closed: tuple[WeeklyClosing, ...] = ()
    missing: tuple[Missing, ...] = ()
    allowed: tuple[Ints, Bools] | None = None  # pool of each job [J]; nodes of each pool [P, N]


@dataclass(frozen=True)
class Swept:
    """A recorded schedule under a site: a row for each instant at which something changed [T].

    While the record is *refused*, no job starts for longer than a start takes, though every job
    fits that waits and may start. What was there is then less than ``use + first``.
    """

    time: Floats
    lasts: Floats  # seconds to the next instant
    refused: Bools
    use: Floats  # devices in use
    first: Floats  # the most devices that any of these jobs asks for
    clear: Bools  # [J] every job that might have started when j came fitted, j among them

    def refused_at(self, times: Floats) -> Bools:
        """Whether the record is refused at these times, none before the first submission."""
        # Before the first instant −1 means the last one, in which nothing waits: not refused.
        return np.asarray(self.refused[np.searchsorted(self.time, times, "right") - 1])

    def seconds(self, begin: Floats, end: Floats) -> Floats:
        """For how long the record is refused between these times."""
        # Seconds refused up to each instant, read between instants on a straight line.
        at = np.append(self.time, self.time[-1])
        earlier = np.concatenate([[0.0], np.cumsum(self.lasts * self.refused)])
        return np.asarray(np.interp(end, at, earlier) - np.interp(begin, at, earlier))


ENDS, TICK, COMES, STARTS = range(4)
"""Events in the order in which those of an instant happen; a tick changes capacity or hours."""


def sweep(record: Record, site: SiteConstraints | None = None, patience: float = 0.0) -> Swept:
    """Where the record contradicts any work-conserving scheduler of the site.

    ``patience`` is the seconds that a start may take. Of two jobs and two idle devices the
    second waits for the first to end:

    >>> jobs = Jobs.of([0, 0], [9, 9], recorded_start=[0, 9], recorded_end=[9, 18])
    >>> found = sweep(Record.of(jobs, Nodes.pool(2)))
    >>> found.time[found.refused], found.lasts[found.refused]
    (array([0.]), array([9.]))
    """
    site = site or SiteConstraints()
    events = _events(record, site)
    times = np.unique(events[0])
    refused, started = np.zeros(times.size, bool), np.zeros(times.size, bool)
    use, largest = np.zeros(times.size), np.zeros(times.size)
    clear, total = np.zeros(len(record), bool), record.nodes.capacity.sum(axis=0)
    _sweep(events, *_tables(record, site), total, (refused, use, largest, started), clear)
    lasts = np.diff(times, append=times[-1])
    # Refused instants in a row are one wait, as long as no job starts in it.
    run = np.cumsum(started | ~refused)  # a start begins another wait: the scheduler is at work
    # A wait counts as a whole: its refused instants together, until a job starts.
    long = np.bincount(run, lasts * refused, minlength=run[-1] + 1)[run] > patience
    return Swept(times, lasts, refused & long, use, largest, clear)


def _events(record: Record, site: SiteConstraints) -> tuple[Floats, Ints, Ints, Floats]:
    """Time, what, job or node; thousandths that go missing and of what.

    Of a start: whether it runs for a time, and whether it was withdrawn instead.
    """
    J, job, nodes = len(record), np.arange(len(record)), record.nodes
    k = nodes.devices.index(record.device)
    ran = record.end > record.start
    ticks = []
    for m in site.missing:
        # A node that is missing takes all its devices of all types along.
        amounts = {k: 1000.0 * m.devices} if m.node < 0 else dict(enumerate(nodes.capacity[m.node]))
        place = max(m.node, 0) if record.host.size else 0
        for d, n in amounts.items():
            ticks += [(m.begin, n, d, place), (m.end, -n, d, place)]
    if site.closed:
        begin = np.floor((record.submit.min() + record.monday) / HOUR) * HOUR - record.monday
        edges = [edge for rule in site.closed for edge in (rule.begin, rule.end)]
        # Each hour is a tick: closed hours begin and end there, and what may start changes.
        hours = (*np.arange(begin, record.end.max() + HOUR, HOUR), *edges)
        ticks += [(t, 0.0, 0, 0) for t in hours if np.isfinite(t)]
    tick = np.array(ticks).reshape(-1, 4)
    counts = [int(ran.sum()), len(tick), J, J]
    # Jobs that ran for no time never hold anything, so they have no end event.
    time = np.concatenate([record.end[ran], tick[:, 0], record.submit, record.start])
    item = np.concatenate([job[ran], tick[:, 3].astype(np.int64), job, job])
    amount = np.zeros((time.size, 2))
    amount[counts[0] : counts[0] + len(tick)] = tick[:, 1:3]
    amount[-J:] = np.stack([ran, ~record.started], axis=1)
    kind = np.repeat([ENDS, TICK, COMES, STARTS], counts)
    # Of an instant: ends, ticks, submissions, starts.
    order = np.lexsort((kind, time))
    return time[order], kind[order], item[order], amount[order]


class Kinds(NamedTuple):
    """Jobs of a kind differ in their number of tasks alone: [C] kinds, [S] kinds and tasks."""

    kind: Ints  # [J]
    slot: Ints  # [J]
    slot_tasks: Ints  # [S], ascending within a kind
    first: Ints  # [C + 1]: the slots of kind c are first[c] … first[c + 1]
    demand: Ints  # [C, K], thousandths of a task
    per_node: Ints  # [C]
    allowed: Bools  # [C, N]
    single: Floats  # [C]: counted devices of a task
    group: Ints  # [C, M]: who counts against limit m, −1 for none
    over: Bools  # [R, C]: whether closing hours r are for them
    longest: Floats  # [C]: the longest limit, seconds
    part_from: Ints  # [C + 1]: groups of unlike tasks of each kind, if it has any
    part: Ints  # [P, 2 + K]: tasks, most of them on a node, and demand of one
    part_allowed: Bools  # [P, N]


class ConstraintArrays(NamedTuple):
    weight: Floats  # [M, S]
    most: Floats  # [M]
    span: Floats  # [R, 2]
    hours: Bools  # [R, 168]
    opens: Floats  # [R, 168]: seconds from the beginning of that hour until it is over
    offset: float


class JobArrays(NamedTuple):
    size: Floats  # [J]
    tasks: Ints  # [J]
    host_from: Ints
    host: Ints
    short: Floats  # [C, K, N]: what must be in use, at least, for n nodes to lack room; or empty


class Now(NamedTuple):
    free: Ints  # [N, K] thousandths; where it is not known which node, all in row 0
    waiting: Ints  # [S]
    active: Ints  # [C]: kinds with jobs that wait, the first ``number[0]``
    number: Ints  # [1 + C]: how many of these, then how many wait of each kind
    used: Floats  # [M, G]
    opens: Floats  # [1]: when the first of the closing hours is over that a job waits for
    trial: Ints  # [N, K] what groups before one leave


def _tables(
    record: Record, site: SiteConstraints
) -> tuple[Kinds, ConstraintArrays, JobArrays, Now]:
    jobs, nodes, J = record.jobs, record.nodes, len(record)
    pool, may = site.allowed or (np.zeros(J, np.int64), np.ones((1, len(nodes)), bool))
    bounds = 900.0 * 2 ** np.arange(8 * bool(site.closed))
    # The limit says which jobs may have to make way for jobs that start when hours open.
    band, M = np.searchsorted(bounds, record.limit), len(site.limits)
    # Jobs that agree in all columns are one kind: the sweep asks for kinds, not for jobs.
    columns = [jobs.shape, pool, band, *(limit.group for limit in site.limits)]
    columns += [(rule.asks > rule.over).astype(np.int64) for rule in site.closed]
    rows, kind = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
    kind, C, most = kind.reshape(-1), len(rows), int(jobs.tasks.max()) + 1
    # Numbers of tasks rise within a kind, so that the largest job is the last slot.
    slots, of_slot, slot = np.unique(
        kind * most + jobs.tasks, return_index=True, return_inverse=True
    )
    demand = jobs.demand(nodes.devices)[rows[:, 0]]
    allowed = np.array([allowed_on(nodes, shape) for shape in jobs.shapes])
    single, longest = np.ones(C), np.zeros(C)
    single[kind] = record.size / jobs.tasks
    np.maximum.at(longest, kind, record.limit)
    part_from, part, part_allowed = _parts(jobs.shapes_on(nodes.devices), rows, nodes, may)
    kinds = Kinds(
        *(kind, slot, slots % most, np.searchsorted(slots // most, np.arange(C + 1)), demand),
        np.array([shape.per_node for shape in jobs.shapes])[rows[:, 0]],
        allowed[rows[:, 0]] & may[rows[:, 1]],
        *(single, np.ascontiguousarray(rows[:, 3 : 3 + M])),
        np.ascontiguousarray(rows[:, 3 + M :].T.astype(bool)),
        longest,
        part_from,
        part,
        part_allowed,
    )
    G = max([int(m.group.max()) + 1 for m in site.limits] + [1])
    rules = ConstraintArrays(
        np.array([limit.weight[of_slot] for limit in site.limits]).reshape(M, slots.size),
        np.array([limit.most for limit in site.limits]),
        np.array([(rule.begin, rule.end) for rule in site.closed]).reshape(-1, 2),
        np.array([rule.hours for rule in site.closed], dtype=bool).reshape(-1, HOURS),
        np.array([_until_open(rule.hours) for rule in site.closed]).reshape(-1, HOURS),
        record.monday,
    )
    free, short = nodes.capacity.copy(), np.zeros((C, len(nodes.devices), 0))
    if len(nodes) > 1 and not record.host.size:
        # So many devices of a node must be in use that no task of the kind fits there.
        # One thousandth more than leaves room for a task: then none fits.
        need = nodes.capacity.T[None] - demand[:, :, None] + 1.0
        need = np.where(kinds.allowed[:, None], np.maximum(need, 0), np.inf)
        # Sorted and added up: the fewest devices in use that leave n nodes without room.
        short = np.cumsum(np.sort(np.where(demand[:, :, None] > 0, need, np.inf)), axis=2)
        free = np.concatenate([free.sum(axis=0)[None], free[1:]])
    job_arrays = JobArrays(record.size, jobs.tasks, record.host_from, record.host, short)
    state = Now(
        free,
        waiting=np.zeros(slots.size, np.int64),
        active=np.zeros(C, np.int64),
        number=np.zeros(1 + C, np.int64),
        used=np.zeros((M, G)),
        opens=np.zeros(1),
        trial=nodes.capacity.copy(),
    )
    return kinds, rules, job_arrays, state


def _parts(
    shapes: Sequence[Shape], rows: Ints, nodes: Nodes, may: Bools
) -> tuple[Ints, Ints, Bools]:
    """`part_from`, `part` and `part_allowed` of kinds that are of these shapes and pools [C, 2]."""
    several = [shapes[s].groups for s in rows[:, 0]]
    every = [(p, many, part) for p, groups in zip(rows[:, 1], several) for many, part in groups]
    numbers = [(many, part.per_node or many, *part.demand) for _, many, part in every]
    on = [allowed_on(nodes, part) & may[p] for p, _, part in every]
    return (
        np.concatenate([[0], np.cumsum([len(groups) for groups in several])]),
        np.array(numbers, dtype=np.int64).reshape(len(every), 2 + len(nodes.devices)),
        np.array(on, dtype=bool).reshape(len(every), len(nodes)),
    )


def _until_open(hours: Bools) -> Floats:
    """Seconds from the beginning of each hour of the week to the next that is not closed."""
    seconds = np.where(np.concatenate([hours, hours]), np.inf, 0.0)
    # Backwards through two weeks, so that closed hours over Sunday night are counted through.
    for hour in range(2 * HOURS - 2, -1, -1):
        if seconds[hour]:
            seconds[hour] = seconds[hour + 1] + HOUR
    return np.asarray(seconds[:HOURS])


@inlined_kernel
def _room(k: Kinds, h: JobArrays, x: Now, total: Ints, c: int) -> int:
    """Tasks of a kind that surely fit now."""
    room = 0
    # Where jobs run is unknown: each node that surely has room counts for one task.
    if h.short.shape[2]:  # so many devices are in use, where is unknown: the worst nodes
        for n in range(k.allowed.shape[1]):
            room += k.allowed[c, n]
        for d in range(k.demand.shape[1]):
            if k.demand[c, d]:
                room -= np.searchsorted(h.short[c, d], total[d] - x.free[0, d] + 0.5)
        return max(room, 0)
    if k.part_from[c + 1] > k.part_from[c]:
        return _groups_fit(k, x, c)
    for n in range(x.free.shape[0]):
        if k.allowed[c, n]:
            fit = 1 << 40
            for d in range(k.demand.shape[1]):
                if k.demand[c, d] > 0:
                    fit = min(fit, max(x.free[n, d], 0) // k.demand[c, d])
            room += fit if k.per_node[c] == 0 else min(fit, k.per_node[c])
    return room


@inlined_kernel
def _groups_fit(k: Kinds, x: Now, c: int) -> int:
    """1 if the groups of a kind fit now, each on the first nodes beside those before it; else 0."""
    for n in range(x.free.shape[0]):
        for d in range(x.free.shape[1]):
            x.trial[n, d] = x.free[n, d]
    for p in range(k.part_from[c], k.part_from[c + 1]):
        left = k.part[p, 0]
        for n in range(x.trial.shape[0]):
            some = min(left, k.part[p, 1]) if k.part_allowed[p, n] else 0
            for d in range(x.trial.shape[1]):
                if k.part[p, 2 + d] > 0:
                    some = min(some, max(x.trial[n, d], 0) // k.part[p, 2 + d])
            for d in range(x.trial.shape[1]):
                x.trial[n, d] -= some * k.part[p, 2 + d]
            left -= some
        if left > 0:
            return 0
    return 1


@inlined_kernel
def _opens(k: Kinds, r: ConstraintArrays, c: int, at: float) -> float:
    """End of the closing hours that are on for a kind; −1 for none."""
    # A little more, as an instant at an hour's edge belongs to the hour that begins.
    week = (at + r.offset) / 3600.0 + 1e-9
    hour = int(np.floor(week)) % 168
    latest = -1.0
    for i in range(r.span.shape[0]):
        inside = r.span[i, 0] <= at and at < r.span[i, 1]
        if inside and k.over[i, c] and r.hours[i, hour]:
            latest = max(latest, np.floor(week) * 3600.0 - r.offset + r.opens[i, hour])
    return latest


@inlined_kernel
def _largest(k: Kinds, r: ConstraintArrays, x: Now, c: int) -> int:
    """Tasks of the largest waiting job of a kind that its caps let start; 0 for none."""
    s = k.first[c + 1] - 1
    # From the largest job of the kind down to the first that its caps allow.
    while s >= k.first[c]:
        if x.waiting[s]:
            ok = True
            for m in range(r.most.size):
                if k.group[c, m] >= 0:
                    ok &= x.used[m, k.group[c, m]] + r.weight[m, s] <= r.most[m] + 1e-9
            if ok:
                return int(k.slot_tasks[s])
        s -= 1
    return 0


@inlined_kernel
def _all_fit(k: Kinds, r: ConstraintArrays, h: JobArrays, x: Now, total: Ints, at: float) -> float:
    """Devices of the largest job that may start, if each of these fits; 0 where none may.

    −1 where one does not fit. Jobs that would run on when closing hours end make way, maybe, for
    one that waits for this, and are not counted.
    """
    # First when the next closed hours end that somebody waits for: longer jobs make way until then.
    largest, opens = 0.0, np.inf
    for i in range(x.number[0]):
        closed_until = _opens(k, r, x.active[i], at)
        opens = opens if closed_until < 0 else min(opens, closed_until)
    x.opens[0] = opens
    # Every kind that may start now must fit.
    for i in range(x.number[0]):
        c = x.active[i]
        # Only jobs that end before those hours are over, and are not closed themselves.
        if at + k.longest[c] <= opens and _opens(k, r, c, at) < 0:
            tasks = _largest(k, r, x, c)
            if tasks:
                if tasks > _room(k, h, x, total, c):
                    return -1.0
                largest = max(largest, tasks * k.single[c])
    return largest


@inlined_kernel
def _move(k: Kinds, r: ConstraintArrays, h: JobArrays, x: Now, j: int, sign: int) -> None:
    """A job takes what it holds (sign −1), or gives it back (1)."""
    c = k.kind[j]
    for m in range(r.most.size):
        if k.group[c, m] >= 0:
            x.used[m, k.group[c, m]] -= sign * r.weight[m, k.slot[j]]
    places = h.host_from[j + 1] - h.host_from[j]
    for d in range(k.demand.shape[1]):
        if places == 0:
            x.free[0, d] += k.demand[c, d] * h.tasks[j] * sign
        # A log says on which nodes a job ran, not how many tasks on each: there, the most.
        most = max(h.tasks[j] - places + 1, 1)
        for p in range(h.host_from[j], h.host_from[j + 1]):
            x.free[h.host[p], d] += k.demand[c, d] * most * sign


@inlined_kernel
def _wait(k: Kinds, x: Now, j: int, sign: int) -> None:
    """A job joins those that wait (sign 1), or leaves them (−1)."""
    c = k.kind[j]
    x.waiting[k.slot[j]] += sign
    x.number[1 + c] += sign
    if sign > 0 and x.number[1 + c] == 1:
        x.active[x.number[0]] = c
        x.number[0] += 1
    elif x.number[1 + c] == 0:
        i = 0
        while x.active[i] != c:
            i += 1
        # The last one takes its place.
        x.number[0] -= 1
        x.active[i] = x.active[x.number[0]]


@kernel
def _sweep(
    events: Any,
    k: Kinds,
    r: ConstraintArrays,
    h: JobArrays,
    x: Now,
    total: Ints,
    per_instant: Any,
    clear: Bools,
) -> None:
    time, kind, item, amount = events
    refused, use, largest, started = per_instant
    i, t, used, counted = 0, 0, 0.0, 0
    while i < time.size:
        at = time[i]
        fresh = i
        while i < time.size and time[i] == at and kind[i] < STARTS:
            j = item[i]
            if kind[i] == ENDS:
                _move(k, r, h, x, j, 1)
                used -= h.size[j]
            elif kind[i] == TICK:
                x.free[j, int(amount[i, 1])] -= int(amount[i, 0])
            else:
                _wait(k, x, j, 1)
                counted += 1
            i += 1
        if counted:
            fit = _all_fit(k, r, h, x, total, at)
            for e in range(fresh, i):
                if kind[e] == COMES:
                    c = k.kind[item[e]]
                    may = at + k.longest[c] <= x.opens[0] and _opens(k, r, c, at) < 0
                    clear[item[e]] = fit > 0 and may and _largest(k, r, x, c) > 0
            counted = 0
        while i < time.size and time[i] == at:
            j = item[i]
            _wait(k, x, j, -1)
            if amount[i, 0] > 0:  # it runs for a time, so that its end will come
                _move(k, r, h, x, j, -1)
                used += h.size[j]
            started[t] |= amount[i, 1] == 0
            i += 1
        fit = _all_fit(k, r, h, x, total, at)
        refused[t], use[t], largest[t] = fit > 0, used, max(fit, 0.0)
        t += 1
