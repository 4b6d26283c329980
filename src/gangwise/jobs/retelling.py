r"""Retelling: how much of what a log recorded the model explains under the rules in force.

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
near                share of the jobs that start within 10 minutes, or 10 % of the recorded wait, of
                    when they did
order               Kendall's τ of starts over pairs of jobs that, as recorded, waited at once, at
                    most 64 submissions apart. Over all pairs of a long log it is 1 under any rule
waits               Spearman's rank correlation of the waits
==================  ================================================================================
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gangwise.core.arrays import Bools, Floats, Ints
from gangwise.core.errors import ScenarioError
from gangwise.jobs.metrics import Outcome, over_bins, size_groups

NEAR = (600.0, 0.1)
"""A start is near its record within so many seconds, or this share of the recorded wait."""

HOUR, WEEK = 3600.0, 7 * 86400.0

APART = 64  # pairs of jobs whose order of starts is compared are at most so many submissions apart
LEAST_WEEKS = 8  # jobs of fewer weeks are grouped by day

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
class Retelling(GroupWaits):
    """What the model explains of a log; ``name`` is that of the rules.

    Groups are by ``partition`` (where the log has several), ``size``, ``user`` (heavy, medium,
    light) and ``week`` or ``day`` of submission.
    """

    by_job: float  # these six as above; NaN where they are not defined
    near: float
    order: float
    waits: float
    use: float
    queue: float
    device: str  # of which ``use`` is: the one of which the largest share was held
    groups: Mapping[str, Sequence[GroupWaits]]

    def by(self, what: str) -> float:
        """Explained share of waiting by one of ``groups``."""
        of = np.array([(g.jobs * g.simulated, g.jobs * g.recorded) for g in self.groups[what]])
        return share_explained(*of.T)

    def as_dict(self) -> dict[str, Any]:
        plain = {k: v for k, v in vars(self).items() if k not in ("name", "groups")}
        groups = {
            what: {
                "explained": self.by(what),
                "groups": [{**vars(g), "explained": g.explained} for g in each],
            }
            for what, each in self.groups.items()
        }
        return {"under": self.name, "explained": self.explained, **plain, "by": groups}


def retell(
    recorded: Outcome,
    simulated: Outcome,
    partition: npt.NDArray[np.str_] | None = None,
    on: Bools | None = None,
) -> Retelling:
    """How much of what was recorded a simulation of the same jobs explains.

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
    both = np.flatnonzero(ended if on is None else ended & on)
    if not both.size:
        raise ScenarioError("no job has a start and an end in the log and in the simulation")
    jobs = recorded.jobs
    then, now = recorded.waiting[both], simulated.waiting[both]
    # Of the device types, that of which the jobs held the largest share.
    held = (recorded.end - recorded.start)[both] @ recorded.demand[both]
    k = int(np.argmax(held / np.maximum(recorded.capacity, 1e-9)))
    part = None if partition is None else partition[both]
    size = recorded.demand[both, k]
    ran = (recorded.end - recorded.last_start)[both] * size
    found = groups_of(size, ran, jobs.user[both], part)
    unit, period = periods(jobs.submit)
    found[unit] = (period[both], [str(i + 1) for i in range(int(period.max()) + 1)])
    return Retelling(
        simulated.name,
        both.size,
        float(then.mean()),
        float(now.mean()),
        share_explained(now, then),
        _near(then, now),
        _order(jobs.submit[both], recorded.start[both], simulated.start[both]),
        rank_correlation(then, now),
        *_by_hour(recorded, simulated, both, k),
        recorded.nodes.devices[k],
        {what: _groups(of, names, then, now) for what, (of, names) in found.items()},
    )


def groups_of(
    size: Floats, ran: Floats, user: Ints, partition: npt.NDArray[np.str_] | None
) -> dict[str, tuple[Ints, list[str]]]:
    """Groups of jobs [J], and their names: by partition, size, class of user.

    ``size`` is in devices, ``ran`` in device-seconds.
    """
    found = {"size": size_groups(size), "user": _user_classes(user, ran)}
    if partition is not None:
        names, of = np.unique(partition, return_inverse=True)
        if names.size > 1:
            found = {"partition": (of, names.tolist()), **found}
    return found


def share_explained(simulated: npt.ArrayLike, recorded: npt.ArrayLike) -> float:
    """1 − Σ |simulated − recorded| / Σ recorded, not below 0; NaN where nothing is recorded."""
    now, then = (np.asarray(each, dtype=np.float64) for each in (simulated, recorded))
    total, off = float(then.sum()), float(np.abs(now - then).sum())
    return max(0.0, 1 - off / total) if total > 0 else math.nan


def explains(recorded: Outcome, simulated: Outcome) -> tuple[float, float]:
    """By which of several rules explain most: the greater the more.

    The explained share by week or day, in whole per cent, and of equals that of starts near their
    record. It is not the mean wait that chooses, for some rule may have it by chance.
    """
    both = recorded.ended & simulated.ended
    if not both.any():
        return 0.0, 0.0
    block = periods(recorded.jobs.submit)[1][both]
    then, now = recorded.waiting[both], simulated.waiting[both]
    share = share_explained(np.bincount(block, now), np.bincount(block, then))
    return round(100 * share) if share > 0 else 0.0, _near(then, now)


def _near(then: Floats, now: Floats) -> float:
    return float((np.abs(now - then) <= np.maximum(NEAR[0], NEAR[1] * then)).mean())


def periods(submit: Floats) -> tuple[str, Ints]:
    """``week``, or ``day`` where there are few weeks, and that of each submission [J].

    >>> periods(np.array([5.0, 90000.0]))
    ('day', array([0, 1]))
    """
    since = submit - submit.min()
    weeks = float(since.max()) >= (LEAST_WEEKS - 1) * WEEK
    return ("week" if weeks else "day"), (since // (WEEK if weeks else 86400.0)).astype(np.int64)


def _user_classes(user: Ints, held: Floats) -> tuple[Ints, list[str]]:
    """Heavy, medium and light users, by what their jobs held.

    >>> _user_classes(np.array([0, 1, 2, 0]), np.array([30.0, 35.0, 5.0, 30.0]))[0]
    array([0, 1, 2, 0])
    """
    by_user = np.bincount(user, held)
    order = np.argsort(-by_user, kind="stable")
    before = np.cumsum(by_user[order]) - by_user[order]
    bounds = np.array(HEAVY) * by_user.sum()
    place = np.empty(by_user.size, dtype=np.int64)
    place[order] = np.searchsorted(bounds, before, side="right")
    return place[user], ["heavy", "medium", "light"]


def _groups(of: Ints, names: Sequence[str], then: Floats, now: Floats) -> list[GroupWaits]:
    count = np.bincount(of, minlength=len(names))
    sums = (np.bincount(of, each, len(names)) for each in (then, now))
    rows = zip(names, count.tolist(), *(each.tolist() for each in sums))
    return [GroupWaits(name, n, a / n, b / n) for name, n, a, b in rows if n]


def _by_hour(recorded: Outcome, simulated: Outcome, both: Ints, k: int) -> tuple[float, float]:
    """Explained shares of devices held, and of jobs waiting, by the hour."""
    submit, ones = recorded.jobs.submit[both], np.ones(both.size)
    first = float(submit.min())
    last = max(float(each.end[both].max()) for each in (recorded, simulated))
    edges = first + HOUR * np.arange(math.ceil((last - first) / HOUR) + 1.0)
    if edges.size < 2:
        return math.nan, math.nan
    use, queue = [], []
    for each in (simulated, recorded):
        use.append(over_bins(edges, each.last_start[both], each.end[both], each.demand[both, k]))
        queue.append(over_bins(edges, submit, each.start[both], ones))
    return share_explained(*use), share_explained(*queue)


def _order(submit: Floats, then: Floats, now: Floats) -> float:
    """Kendall's τ of starts over pairs that waited at once; NaN without any."""
    agree, pairs = 0.0, 0
    for d in range(1, min(APART + 1, submit.size)):
        at_once = (submit[d:] < then[:-d]) & (then[d:] != then[:-d])
        agree += float((np.sign(then[d:] - then[:-d]) * np.sign(now[d:] - now[:-d]))[at_once].sum())
        pairs += int(at_once.sum())
    return agree / pairs if pairs else math.nan


def rank_correlation(values: npt.ArrayLike, others: npt.ArrayLike) -> float:
    """Spearman's rank correlation; equal values share their mean rank, NaN where all are equal.

    >>> rank_correlation([1, 2, 3, 4], [1, 3, 2, 4]), rank_correlation([1, 1], [1, 2])
    (0.8, nan)
    """
    from scipy.stats import rankdata

    a, b = (rank - rank.mean() for rank in (rankdata(values), rankdata(others)))
    size = math.sqrt(float(a @ a) * float(b @ b))
    return round(float(a @ b) / size, 12) if size > 0 else math.nan
