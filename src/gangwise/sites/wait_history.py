"""Forecasts of starts from tables of pending jobs alone: no rules are known, nothing is simulated.

A table has one row for each job that was pending, at each instant at which one looked. Sites that
keep what ``squeue`` or ``sprio`` said, beside what accounting says of the same jobs later, have
such tables; Compute Canada's are published. Columns are known by their names. Only what was known
at the instant may be used: columns that say what a job asked for, who asked, its priority and
shares, and what stood above it and ran. Of a column that stands there twice, as NAME_x and NAME_y,
the second is that of the instant.

Jobs that waited at earlier instants, and when they started, are a regression of the logarithm of
what is left to wait on what was known then: what a job asks for, how long it has waited, what
stands above it, what runs, and how long the like of it waited of late. A quantile regression forest
(below) gives a distribution for each job, and is grown anew at each instant from
starts that have come by then. What still waits counts as well, as a wait that is censored; trees
split by one that is drawn from those that were longer. Distributions are then recalibrated by
where known starts lay in earlier ones (Kuleshov, Fenner and Ermon 2018), as in :mod:`.forecast`.

The forest (Meinshausen, 2006): trees are grown by the reduction of variance, on features cut into
:data:`BINS` classes by their quantiles. The distribution at a new row is that of the training rows
in its leaves, each tree counting the same; of censored rows by Beran's estimator. It is kept as a
histogram over :data:`CELLS` cells of equal width.
"""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from gangwise.core.arrays import Bools, Floats, Ints
from gangwise.core.errors import ScenarioError, TraceError
from gangwise.core.jit import inlined_kernel, kernel
from gangwise.logs.text import Blocks, first_lines, scan_parquet
from gangwise.sites.forecast import DAY, censored_levels

Bytes = npt.NDArray[np.uint8]
BINS = 64  # classes of a feature; what is missing is a class of its own, the lowest
TREES = 40
SAMPLE = 8000  # training rows of a tree, at most
LEAF = 10  # rows of a leaf, at least
SHARE = 0.6  # of the groups of rows, drawn for each tree
CELLS = 160


@inlined_kernel
def draw(state: np.uint64) -> np.uint64:
    """Next state of a linear congruential generator (Knuth's MMIX); its high bits are random."""
    return state * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)


@kernel
def grow_tree(
    classes: Bytes, y: Floats, weight: Floats, many: Ints, tried: int, seed: int
) -> tuple[Ints, Ints]:
    """Grow a tree on rows whose classes [F, n] are given.

    Gives nodes [M, 6] and rows [n] in the order of leaves. Of a node: its feature (−1 in a leaf),
    the highest class of its left child, the two children, and where its rows begin and end.
    """
    state = np.uint64(seed)
    features, n = classes.shape
    # Each leaf has LEAF rows or more, which bounds the number of nodes.
    tree = np.full((2 * (n // LEAF) + 3, 6), -1)
    tree[0, 4], tree[0, 5] = 0, n
    rows, right_rows, order = np.arange(n), np.empty(n, np.int64), np.arange(features)
    of_class = np.zeros((BINS + 2, 3))  # weight, weighted sum of y, rows
    nodes = 1
    node = 0
    # Nodes are numbered breadth-first, so this loop is the whole recursion.
    while node < nodes:
        low, high = tree[node, 4], tree[node, 5]
        weights = sums = 0.0
        for i in range(low, high):
            weights += weight[rows[i]]
            sums += weight[rows[i]] * y[rows[i]]
        best, feature, cut = 1e-9, -1, 0
        for t in range(tried if high - low >= 2 * LEAF else 0):
            # A feature that was not drawn yet, by Fisher and Yates.
            state = draw(state)
            place = t + np.int64(state >> np.uint64(33)) % (features - t)
            order[t], order[place] = order[place], order[t]
            f = order[t]
            of_class[: many[f]] = 0.0
            for i in range(low, high):
                r = rows[i]
                k = classes[f, r]
                of_class[k, 0] += weight[r]
                of_class[k, 1] += weight[r] * y[r]
                of_class[k, 2] += 1.0
            w = s = left = 0.0
            for k in range(many[f] - 1):
                w += of_class[k, 0]
                s += of_class[k, 1]
                left += of_class[k, 2]
                # A cut behind an empty class would be the same as the one before it.
                if left < LEAF or of_class[k, 2] == 0.0:
                    continue
                if high - low - left < LEAF:
                    break
                # How much the sum of squared errors falls.
                gain = s * s / w + (sums - s) ** 2 / (weights - w) - sums * sums / weights
                if gain > best:
                    best, feature, cut = gain, f, k
        # Rows of a node stay together: those of the left child in front, the others behind.
        if feature >= 0:
            middle, others = low, 0
            for i in range(low, high):
                r = rows[i]
                if classes[feature, r] <= cut:
                    rows[middle] = r
                    middle += 1
                else:
                    right_rows[others] = r
                    others += 1
            rows[middle:high] = right_rows[:others]
            tree[node, :4] = feature, cut, nodes, nodes + 1
            tree[nodes, 4], tree[nodes, 5] = low, middle
            tree[nodes + 1, 4], tree[nodes + 1, 5] = middle, high
            nodes += 2
        node += 1
    return tree[:nodes], rows


@kernel
def add_leaves(
    tree: Ints, rows: Ints, weight: Floats, cell: Ints, classes: Bytes, histogram: Floats
) -> None:
    """Add, to the histogram of each row of ``classes`` [F, W], that of its leaf: 1 in all."""
    for i in range(classes.shape[1]):
        node = 0
        while tree[node, 0] >= 0:
            left = classes[tree[node, 0], i] <= tree[node, 1]
            node = tree[node, 2] if left else tree[node, 3]
        total = 0.0
        # Weights within a leaf sum to 1, so that each tree counts the same however large its leaf
        # is.
        for m in range(tree[node, 4], tree[node, 5]):
            total += weight[rows[m]]
        for m in range(tree[node, 4], tree[node, 5]):
            histogram[i, cell[rows[m]]] += weight[rows[m]] / total


def _classes(values: Floats, others: Floats) -> tuple[Bytes, Bytes, int]:
    """Classes of a feature in training rows and in others, and their number."""
    finite = values[np.isfinite(values)]
    edges = np.zeros(0)
    if finite.size:
        # Every so manieth: quantiles of all of a long history would take longer than the trees.
        finite = finite[:: 1 + finite.size // 20_000]
        edges = np.unique(np.quantile(finite, np.linspace(0, 1, BINS)[1:-1], method="nearest"))
    # Class 0 is for what is missing; finite values begin at 1.
    one, other = (
        np.where(np.isfinite(x), 1 + np.searchsorted(edges, x, side="left"), 0).astype(np.uint8)
        for x in (values, others)
    )
    return one, other, edges.size + 2


def distributions(
    features: Floats,
    y: Floats,
    weight: Floats,
    group: Ints,
    new: Floats,
    edges: Floats,
    seed: int = 0,
    passed: Floats | None = None,
) -> Floats:
    """Cumulative distribution of y at new rows, from a forest grown on others.

    Parameters
    ----------
    features, new : ndarray [N, F] and [W, F]
        NaN where missing.
    y, weight : ndarray [N]
    group : ndarray [N]
        Rows of a group are alike: a tree gets all of them or none.
    edges : ndarray [CELLS + 1]
        Of the cells of y.
    passed : ndarray [N], optional
        What y is known to exceed, of rows whose ``y`` is only a guess to split by; NaN for others.

    Returns
    -------
    ndarray [W, CELLS + 1]
        P(y ≤ edge), from 0 to 1.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> x = rng.random((500, 1))
    >>> at = distributions(
    ...     x,
    ...     x[:, 0],
    ...     np.ones(500),
    ...     np.arange(500),
    ...     np.array([[0.3]]),
    ...     np.linspace(0, 1, CELLS + 1),
    ... )
    >>> bool(abs(np.interp(0.5, at[0], np.linspace(0, 1, CELLS + 1)) - 0.3) < 0.05)
    True
    """
    rng = np.random.default_rng(seed)
    columns = [_classes(features[:, f], new[:, f]) for f in range(features.shape[1])]
    here = np.stack([one for one, _, _ in columns])
    there = np.stack([other for _, other, _ in columns])
    many = np.array([number for *_, number in columns])
    cells = edges.size - 1
    censored = np.zeros(y.size, bool) if passed is None else np.isfinite(passed)
    observed = y if passed is None else np.where(censored, passed, y)
    cell = np.clip(np.searchsorted(edges, observed, side="left") - 1, 0, cells - 1)
    cell += cells * censored  # counted apart, behind the others
    tried = max(1, features.shape[1] // 3)
    # Breiman's third of the features is tried at each node.
    _, group = np.unique(group, return_inverse=True)
    histogram = np.zeros((len(new), 2 * cells))
    for _ in range(TREES):
        rows = np.flatnonzero((rng.random(group.max() + 1) < SHARE)[group])
        # A draw of so few groups that no tree can be grown: then all rows.
        if rows.size < 2 * LEAF:
            rows = np.arange(y.size)
        rows = rng.permutation(rows)[:SAMPLE]
        part = np.ascontiguousarray(here[:, rows])
        of_rows = y[rows], weight[rows]
        tree, order = grow_tree(part, *of_rows, many, tried, int(rng.integers(2**31)))
        add_leaves(tree, order, weight[rows], cell[rows], there, histogram)
    return _beran(histogram[:, :cells], histogram[:, cells:])


def _beran(came: Floats, censored: Floats) -> Floats:
    """Distribution at each cell's upper edge, from weights of rows [W, CELLS]: Beran's estimator.

    It is Kaplan-Meier's with the weights that the forest gives to rows; half of the rows that are
    censored in a cell are at risk there. Beyond the last row that is known, where others were still
    waiting, the hazard is that of the upper half: in logarithms a constant one, a Pareto tail.
    """
    both = came + censored
    # From the right: at risk in a cell is who came in it or later, or was censored there.
    at_risk = np.cumsum(both[:, ::-1], axis=1)[:, ::-1] - censored / 2
    hazard = np.divide(came, at_risk, out=np.zeros_like(came), where=at_risk > 1e-12)
    # A rate per cell, as the sum of which survival is a product; 1 would be certain death.
    rate = -np.log(np.maximum(1.0 - hazard, 1e-12))
    # The last cell with a start that is known; what lies beyond is extrapolated.
    last = came.shape[1] - 1 - np.argmax(came[:, ::-1] > 0, axis=1)
    total = np.cumsum(came, axis=1)
    middle = (total < total[:, -1:] / 2).sum(axis=1)
    cell = np.arange(came.shape[1])
    # Between the median and the last start that is known: there the tail has begun and is seen.
    upper = (cell >= middle[:, None]) & (cell <= last[:, None])
    tail = (rate * upper).sum(axis=1) / np.maximum(upper.sum(axis=1), 1)
    rate = np.where(cell > last[:, None], tail[:, None], rate)
    below = np.zeros((len(came), came.shape[1] + 1))
    below[:, 1:] = 1.0 - np.exp(-np.cumsum(rate, axis=1))
    return below


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
    # Rows of one instant and one group (the first, the user) hang together.
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
        # A seed of its own: a repeated forecast is the same.
        rng = np.random.default_rng(rows.size)
        passed = np.where(started, np.nan, y)
        # A censored wait gets a value to split by: one drawn from those that were longer.
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
        # Where none was longer: twice what has passed.
        shorter < waits.size,
        waits[np.minimum(drawn, waits.size - 1)],
        least + np.log(2.0),
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
            # Only starts that had come by then: others are what is to be forecast.
            past = np.flatnonzero((pending.now < instant) & (pending.start <= instant))
            present = np.flatnonzero(pending.now == instant)
            if not past.size:
                continue
            weight = 0.5 ** ((instant - pending.now[past]) / RECENT)
            total = np.bincount(code[past], weight, code.max() + 1)
            sums = np.bincount(code[past], weight * log_wait[past], code.max() + 1)
            # Shrunk towards all jobs, since of many groups few have waited of late.
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
    # Who never started is censored when he is gone, or is still there.
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
        # Drawn, not the first ones: those have waited longest and are like one another.
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


_COLUMNS = Path(__file__).parents[1] / "logs" / "guess.toml"
WORDS = tomllib.loads(_COLUMNS.read_text(encoding="utf-8"))
NOW, SUBMIT, START, ELIGIBLE, ID, GROUPS, KNOWN = map(str.split, WORDS["pending"].values())
FORMATS = ("%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S")


def pending_files(path: Path | str) -> list[Path]:
    """Files of tables of pending jobs at a path; none if there are none."""
    path = Path(path)
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    return [f for f in files if f.suffix in (".parquet", ".csv") and f.is_file() and _is_one(f)]


def _is_one(file: Path) -> bool:
    columns = next(csv.reader(first_lines(file, 1)), [])
    return all(_first(columns, names) for names in (NOW, SUBMIT, START))


def _read(file: Path) -> pl.DataFrame:
    try:
        if file.suffix == ".parquet":
            return scan_parquet(file).collect()
        # Types are inferred from many rows: a column may be empty for thousands.
        return pl.read_csv(Blocks(file).whole(), infer_schema_length=10_000)
    except pl.exceptions.PolarsError as error:
        problem = str(error).split("\n")[0]
        raise TraceError(
            f"the table of pending jobs cannot be read ({problem}); correct it, or leave it out",
            file,
        ) from error


def _first(columns: Sequence[str], names: Sequence[str]) -> str:
    return next((name for name in names if name in columns), "")


def open_pending(files: Sequence[Path]) -> PendingJobs:
    """Jobs that were pending, in the order of instants; TraceError for a time that is none."""
    # Tables of different months may differ in columns and types.
    table = pl.concat([_read(file) for file in files], how="diagonal_relaxed")
    columns = table.columns
    if name := _first(columns, ID):  # a job may stand in two tables of one instant
        table = table.unique([name, _first(columns, NOW)], keep="first", maintain_order=True)
    instant, submit, start = (_seconds(table, _first(columns, n)) for n in (NOW, SUBMIT, START))
    if np.isnan(instant).any() or np.isnan(submit).any():
        raise TraceError(
            f"{int(np.isnan(instant + submit).sum())} rows lack an instant or a submission"
        )
    # Only jobs that were in line at the instant.
    waits = ~(start <= instant) & (submit <= instant)
    features: dict[str, Any] = {
        "waited": instant - submit,
        "weekday": instant // 86400 % 7,
        "hour": instant % 86400 // 3600,
    }
    if eligible := _first(columns, ELIGIBLE):
        # When a job that waits for another, or for a time, will be eligible is not known yet.
        since = instant - _seconds(table, eligible)
        features |= {
            "eligible": (since >= 0) * 1.0,
            # Not yet eligible is unknown rather than a negative time.
            "eligible for": np.where(since >= 0, since, np.nan),
        }
    groups = {}
    for column in columns:
        name = column.removesuffix("_y")
        # The one of the instant is `_y`; `_x` is that of the end, which nobody knew then.
        if column.endswith("_x") and f"{column.removesuffix('_x')}_y" in columns:
            continue
        name = name.removesuffix("_x")
        if name in GROUPS:
            groups[name] = table[column].cast(pl.String).rank("dense").to_numpy().astype(np.int64)
        elif name.startswith((*KNOWN,)) or name.endswith("_poll"):
            if table[column].dtype.is_numeric():
                features[name] = table[column].cast(pl.Float64).fill_null(np.nan).to_numpy()
            elif "tres" in name:
                features |= _tres(table[column])
    for code in groups:
        # How many of the same group wait at the instant: competition within it.
        together = table.select(pl.len().over(_first(columns, NOW), pl.Series(code, groups[code])))
        features[f"waiting by {code}"] = together.to_series().cast(pl.Float64).to_numpy()
    ids = table[_first(columns, ID)] if _first(columns, ID) else pl.Series(np.arange(len(table)))
    never = np.full(len(table), np.inf)
    pending = PendingJobs(
        ids.cast(pl.String).to_numpy(),
        instant,
        np.where(np.isnan(start), np.inf, start),
        never,
        features,
        groups,
    )
    order = np.flatnonzero(waits)
    # Sorted by instant, with ties in the order of rows.
    return pending.at(order[np.argsort(instant[order], kind="stable")])


def _tres(column: pl.Series) -> dict[str, Floats]:
    """Amounts of trackable resources as Slurm writes them: cpu=4,mem=16G,gres/gpu=1,node=1."""
    amounts = {}
    for kind in ("node", "gres/gpu", "billing"):
        amount = column.str.extract(rf"(?:^|,){kind}=(\d+)", 1).cast(pl.Float64)
        amounts[kind] = amount.fill_null(0.0).to_numpy()
    return amounts


def _seconds(table: pl.DataFrame, column: str) -> Floats:
    """Times in seconds; NaN where a row has none."""
    values = table[column]
    if values.dtype == pl.String:
        for form in FORMATS:
            parsed = values.str.to_datetime(form, strict=False)
            # The first form that fits any; the rest become NaN.
            if parsed.null_count() < len(values):
                values = parsed
                break
        else:
            text = values.drop_nulls().head(1).to_list()
            raise TraceError(f"column {column} holds no times that are understood, such as {text}")
    if values.dtype.is_temporal():
        values = values.dt.epoch("ms") / 1000
    return values.cast(pl.Float64).fill_null(np.nan).to_numpy()
