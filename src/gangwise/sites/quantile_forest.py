"""Quantile regression forest: the distribution of a number, given others (Meinshausen, 2006).

Trees are grown by the reduction of variance, on features cut into :data:`BINS` classes by their
quantiles. The distribution at a new row is that of the training rows in its leaves, each tree
counting the same; of censored rows by Beran's estimator. It is kept as a histogram over
:data:`CELLS` cells of equal width.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gangwise.core.arrays import Floats, Ints
from gangwise.core.jit import inlined_kernel, kernel

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
    tree = np.full((2 * (n // LEAF) + 3, 6), -1)
    tree[0, 4], tree[0, 5] = 0, n
    rows, right_rows, order = np.arange(n), np.empty(n, np.int64), np.arange(features)
    of_class = np.zeros((BINS + 2, 3))  # weight, weighted sum of y, rows
    nodes = 1
    node = 0
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
                if left < LEAF or of_class[k, 2] == 0.0:
                    continue
                if high - low - left < LEAF:
                    break
                # How much the sum of squared errors falls.
                gain = s * s / w + (sums - s) ** 2 / (weights - w) - sums * sums / weights
                if gain > best:
                    best, feature, cut = gain, f, k
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
    _, group = np.unique(group, return_inverse=True)
    histogram = np.zeros((len(new), 2 * cells))
    for _ in range(TREES):
        rows = np.flatnonzero((rng.random(group.max() + 1) < SHARE)[group])
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
    at_risk = np.cumsum(both[:, ::-1], axis=1)[:, ::-1] - censored / 2
    hazard = np.divide(came, at_risk, out=np.zeros_like(came), where=at_risk > 1e-12)
    rate = -np.log(np.maximum(1.0 - hazard, 1e-12))
    last = came.shape[1] - 1 - np.argmax(came[:, ::-1] > 0, axis=1)
    total = np.cumsum(came, axis=1)
    middle = (total < total[:, -1:] / 2).sum(axis=1)
    cell = np.arange(came.shape[1])
    upper = (cell >= middle[:, None]) & (cell <= last[:, None])
    tail = (rate * upper).sum(axis=1) / np.maximum(upper.sum(axis=1), 1)
    rate = np.where(cell > last[:, None], tail[:, None], rate)
    below = np.zeros((len(came), came.shape[1] + 1))
    below[:, 1:] = 1.0 - np.exp(-np.cumsum(rate, axis=1))
    return below
