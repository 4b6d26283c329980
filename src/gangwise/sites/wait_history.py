"""When waiting jobs start, from accounting data alone: no rules are known and nothing is played.

Jobs that waited at earlier instants, and when they started, are a regression of the logarithm of
what is left to wait on what was known then: what a job asks for, how long it has waited, what
stands above it, what runs, and how long the like of it waited of late. A quantile regression forest
(:mod:`.quantile_forest`) gives a distribution for each job, and is grown anew at each instant from
starts that have come by then. What still waits counts as well, as a wait that is censored; trees
split by one that is drawn from those that were longer. Distributions are then recalibrated by
where known starts lay in earlier ones (Kuleshov, Fenner and Ermon 2018), as in :mod:`.forecast`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gangwise.core.arrays import Bools, Floats, Ints
from gangwise.core.errors import ScenarioError
from gangwise.sites.forecast import DAY, censored_levels
from gangwise.sites.quantile_forest import CELLS, distributions

EDGES = np.linspace(0.0, np.log(4e7), CELLS + 1)  # of log seconds: from 1 s to 15 months
LEAST = 200  # known starts before anything is predicted
FADES = 20 * DAY  # what is older counts half in the forest
RECENT = 7 * DAY  # and in how long the like of a job waited of late
SHRUNK = 5.0  # starts of everybody that count in that
HALF = 10 * DAY  # an earlier forecast counts half in the recalibration
LEVELS = (0.5, 0.9)
CLASSES = 2  # of jobs, by how long they have waited, that are recalibrated each by itself


@dataclass(frozen=True)
class PendingJobs:
    """Jobs that waited, each at an instant; a job may stand here at several instants."""

    id: npt.NDArray[np.str_]
    now: Floats  # [R] seconds: the instant
    start: Floats  # [R] when it started; inf where the data do not say
    gone: Floats  # [R] when it was withdrawn without a start; inf for not
    features: Mapping[str, Floats]  # each [R]: what was known at the instant; NaN where missing
    groups: Mapping[str, Ints]  # each [R]: codes of user, account, pool …

    def __len__(self) -> int:
        return self.now.size

    def at(self, rows: Ints | Bools) -> PendingJobs:
        return PendingJobs(
            self.id[rows],
            self.now[rows],
            self.start[rows],
            self.gone[rows],
            {name: column[rows] for name, column in self.features.items()},
            {name: column[rows] for name, column in self.groups.items()},
        )

    @property
    def left(self) -> Floats:
        """Logarithm of the seconds that are left to wait; of less than one second 0."""
        return np.log(np.maximum(self.start - self.now, 1.0))


class WaitForecasts(NamedTuple):
    """Predictions at an instant, for rows of :class:`PendingJobs`."""

    now: float
    rows: Ints
    quantiles: Floats  # [W, 2] seconds from now: p50 and p90


@dataclass
class _Calibration:
    """Earlier distributions, to see where starts lay in them; each instant counts the same."""

    seen: list[tuple[float, Ints, Floats]] = field(default_factory=list)

    def levels(self, pending: PendingJobs, now: float, present: Ints) -> Floats:
        """The levels at which as many starts lay below as :data:`LEVELS` promise, [present, 2].

        Jobs are in :data:`CLASSES` by how long they have waited. What holds for all jobs counts in
        each class as one instant more.
        """
        waited = pending.features["waited"]
        edges = np.quantile(waited[present], np.arange(1, CLASSES) / CLASSES)
        even, ones = (np.arange(10) + 0.5) / 10, np.ones(10)
        place, started, weight, group = [even], [ones], [ones / 10], [np.full(10, -1)]
        for foretold_at, rows, below in self.seen:
            begun = pending.start[rows] <= now
            # The place of a start in its distribution; of what waits still, that of the present.
            log_wait = np.log(np.maximum(np.minimum(pending.start[rows], now) - foretold_at, 1.0))
            at = (log_wait - EDGES[0]) / (EDGES[1] - EDGES[0])
            # Linear between the edges of a cell.
            cell = np.clip(at.astype(np.int64), 0, CELLS - 1)
            row = np.arange(rows.size)
            low, high = below[row, cell], below[row, cell + 1]
            use = pending.gone[rows] > now
            place.append((low + (at - cell) * (high - low))[use])
            started.append(begun[use].astype(float))
            weight.append(np.full(int(use.sum()), 0.5 ** ((now - foretold_at) / HALF) / rows.size))
            group.append(np.searchsorted(edges, waited[rows[use]], side="right"))
        places, starts, weights, groups = map(np.concatenate, (place, started, weight, group))
        # First the levels of all jobs, which then count in each class.
        of_all = censored_levels(places, starts, weights, even)
        promised = np.empty((CLASSES, len(LEVELS)))
        for c in range(CLASSES):
            on = groups == c
            # A class has a part of the rows of an instant: they count as the instant does.
            of_class = np.concatenate([CLASSES * weights[on], ones / 10])
            promised[c] = censored_levels(
                np.concatenate([places[on], of_all]),
                np.concatenate([starts[on], ones]),
                of_class,
                LEVELS,
            )
        # At level 1 a distribution says nothing: its last cell is that of any wait.
        promised = np.clip(promised, 0.005, 0.995)
        return np.asarray(promised[np.searchsorted(edges, waited[present], side="right")])


def forecast_in_order(
    pending: PendingJobs, instants: Sequence[float] = ()
) -> Iterator[WaitForecasts]:
    """Foretell at each instant, in order, from what was known by then.

    At ``instants`` where they are given: those before them serve only to recalibrate.
    Nothing is predicted before :data:`LEAST` starts are known.
    """
    pending = _with_recent(pending)
    features = np.column_stack(list(pending.features.values()))
    whose = np.stack([pending.now, *pending.groups.values()][:2])
    group = np.unique(whose, axis=1, return_inverse=True)[1].ravel()
    calibration = _Calibration()
    log_wait = pending.left
    for instant in np.unique(pending.now).tolist():
        rows = np.flatnonzero(pending.now == instant)
        past = np.flatnonzero((pending.now < instant) & (pending.gone > instant))
        started = pending.start[past] <= instant
        if started.sum() < LEAST:
            continue
        y = np.where(started, log_wait[past], np.log(np.maximum(instant - pending.now[past], 1.0)))
        rng = np.random.default_rng(rows.size)
        passed = np.where(started, np.nan, y)
        y[~started] = _longer(np.sort(y[started]), y[~started], rng)
        weight = 0.5 ** ((instant - pending.now[past]) / FADES)
        columns = features[past], y, weight, group[past], features[rows], EDGES
        below = distributions(*columns, passed=passed)
        if not instants or instant in instants:
            levels = calibration.levels(pending, instant, rows)
            # A start that so few of the like came to see has no quantile.
            log_quantiles = np.array(
                [np.interp(at, p, EDGES, right=np.inf) for at, p in zip(levels, below)]
            )
            yield WaitForecasts(instant, rows, np.exp(log_quantiles))
        calibration.seen.append((instant, rows, below.astype(np.float32)))


def _longer(waits: Floats, least: Floats, rng: np.random.Generator) -> Floats:
    """Waits drawn from those known, sorted, that are longer than ``least`` each."""
    shorter = np.searchsorted(waits, least, side="right")
    drawn = shorter + (rng.random(least.size) * (waits.size - shorter)).astype(np.int64)
    return np.where(
        shorter < waits.size, waits[np.minimum(drawn, waits.size - 1)], least + np.log(2.0)
    )


def _with_recent(pending: PendingJobs) -> PendingJobs:
    """With how long the like of each job waited of late, as known at its instant.

    The like are those of the same group, or of the same two.
    """
    features = dict(pending.features)
    codes = dict(pending.groups)
    for group, partner in combinations(pending.groups, 2):
        pairs = np.stack([pending.groups[group], pending.groups[partner]])
        codes[f"{group}, {partner}"] = np.unique(pairs, axis=1, return_inverse=True)[1].ravel()
    log_wait = pending.left
    for name, code in codes.items():
        mean, counts = np.full(len(pending), np.nan), np.zeros(len(pending))
        for instant in np.unique(pending.now).tolist():
            past = np.flatnonzero((pending.now < instant) & (pending.start <= instant))
            present = np.flatnonzero(pending.now == instant)
            if not past.size:
                continue
            weight = 0.5 ** ((instant - pending.now[past]) / RECENT)
            total = np.bincount(code[past], weight, code.max() + 1)
            sums = np.bincount(code[past], weight * log_wait[past], code.max() + 1)
            everybody = sums.sum() / total.sum()
            mean[present] = ((sums + SHRUNK * everybody) / (total + SHRUNK))[code[present]]
            counts[present] = total[code[present]]
        features |= {f"recent wait by {name}": mean, f"recent starts by {name}": counts}
    return replace(pending, features=features)


# ------------------------------------------------------------------------------ from a whole log


def pending_of(
    submit: Floats,
    start: Floats,
    end: Floats,
    size: Floats,
    limit: Floats,
    groups: Mapping[str, Ints],
    ids: npt.NDArray[np.str_],
    instants: Floats,
    most: int = 1000,
) -> PendingJobs:
    """Jobs that waited at instants of a log, with what accounting data hold of these.

    Parameters
    ----------
    submit, start, end, limit : ndarray [J]
        Seconds; start is NaN for what never started, end NaN for what has not ended.
    size : ndarray [J]
        Devices.
    most : int
        Jobs of an instant, at most; which ones is drawn.
    """
    rng = np.random.default_rng(0)
    never = ~np.isfinite(start)
    begun, over = np.where(never, np.inf, start), np.where(np.isfinite(end), end, np.inf)
    parts, rows, times = [], [], []
    for instant in instants.tolist():
        waits = np.flatnonzero((submit <= instant) & (begun > instant) & (over > instant))
        if not waits.size:
            continue
        runs = np.flatnonzero((begun <= instant) & (over > instant))
        lately = np.flatnonzero((begun <= instant) & (begun > instant - DAY))
        table = _features(instant, waits, runs, lately, (submit, begun, size, limit), groups)
        sampled = np.sort(rng.permutation(waits.size)[:most])
        parts.append({name: column[sampled] for name, column in table.items()})
        rows.append(waits[sampled])
        times.append(np.full(sampled.size, instant))
    if not rows:
        raise ScenarioError("no job waited at any of the instants looked at")
    row = np.concatenate(rows)
    return PendingJobs(
        ids[row],
        np.concatenate(times),
        begun[row],
        np.where(never, over, np.inf)[row],
        {name: np.concatenate([column[name] for column in parts]) for name in parts[0]},
        {name: code[row] for name, code in groups.items()},
    )


def _features(
    now: float,
    waits: Ints,
    runs: Ints,
    lately: Ints,
    columns: tuple[Floats, Floats, Floats, Floats],
    groups: Mapping[str, Ints],
) -> dict[str, Floats]:
    """What is known at an instant of each job that waits, in the order of submission."""
    submit, begun, size, limit = columns
    waits = waits[np.argsort(submit[waits], kind="stable")]
    # Device-seconds asked for, and those that running jobs may still take by their limits.
    asks = size[waits] * limit[waits]
    open = size[runs] * np.maximum(limit[runs] - (now - begun[runs]), 0.0)
    table = {
        "waited": now - submit[waits],
        "size": size[waits],
        "limit": limit[waits],
        "work": asks,
        "hour": np.full(waits.size, now % DAY // 3600),
        "weekday": np.full(waits.size, now // DAY % 7),
    }
    for name, code in {"all": np.zeros(submit.size, np.int64), **groups}.items():
        mine, codes = code[waits], int(code.max()) + 1
        # Sorted by group and, within one, by submission: the sum of a group's jobs above a job is
        # a difference of cumulative sums.
        above = np.argsort(mine, kind="stable")
        low = np.searchsorted(mine[above], mine[above], side="left")
        for unit, amount in (("jobs", np.ones(waits.size)), ("size", size[waits]), ("work", asks)):
            before = np.concatenate([[0.0], np.cumsum(amount[above])])
            column = np.empty(waits.size)
            column[above] = before[:-1] - before[low]
            table[f"{unit} above by {name}"] = column
        for unit, amount in (("size", size[runs]), ("work", open)):
            table[f"{unit} running by {name}"] = np.bincount(code[runs], amount, codes)[mine]
        started = np.bincount(code[lately], size[lately], codes)
        table[f"size started by {name}"] = started[mine]
    order = np.argsort(waits, kind="stable")
    return {name: x[order] for name, x in table.items()}
