"""How much slower nodes are than the others, from run times of programs that ran again and again.

    log run time = program, as it was at the time + slowest of the job's nodes + noise

Runs of a program are put in the order of their starts; runs in a row on the same nodes count as
one, with their mean. They are compared in blocks of at most :data:`BLOCK`, each with a centre of
its own, so that a program may change over time. Residuals count no more than :data:`CLIP` standard
deviations of their program (Huber 1964), so that a few wild ones do not matter.

Whether a node is slow is tested with the effects of all other nodes taken off, by the permutations
of nodes within blocks: the sum of the node's residuals, against the variance that it has when the
node stood at any other runs of the block. Names are controlled by Benjamini and Hochberg (1995).

A gang of a slow node is slow whoever else is in it. So a node is named only if its runs without any
one other node, whichever that is, say that it is slow as well: each at a level of :data:`APART` (an
intersection-union test, Berger 1982). Nodes that always run together are not named.

Where nodes are, as files of a site say it, is read here: Slurm's ``topology.conf``, or a table of
racks.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.special import kolmogorov, ndtr, stdtr, stdtrit
from scipy.stats import chi2

from gangwise import notation
from gangwise.core.arrays import Bools, Floats, Ints
from gangwise.core.errors import ScenarioError
from gangwise.sites.slurm_files import continued, switch_labels

BLOCK = 16  # runs of a program that are compared with one another, at most
CLIP = 1.5
SWEEPS, ROUNDS = 20, 12
NEXT = 0.7
"""Nodes join those that are clearly slow if they stand out so much of what the first one does."""
COMPANIONS = 64
"""Other nodes without which a named one must be slow as well: those it shares most runs with."""
APART = 0.05  # chance of a node's runs without another one that would name it beside that one
WIDE = 0.3  # standard deviation of a node's log factor before anything is known of it
PRIOR = 8  # runs that the noise of all programs counts for in that of one
LEAST_FOR_CHANGE = 8  # blocks that a node must have run in for a change over time to be looked for
ROUNDED = 0.3  # seconds of noise that whole seconds add, as a standard deviation


class Runs(NamedTuple):
    """Jobs that can be compared; job j ran on the nodes of place ``place[j]``."""

    log_run: Floats  # [J] log of seconds
    start: Floats  # [J] seconds
    program: Ints  # [J]
    place: Ints  # [J]
    place_from: Ints  # [P + 1] place p is the nodes node[place_from[p]:place_from[p + 1]]
    node: Ints
    nodes: int  # how many there are


class NodeChange(NamedTuple):
    """A node that became slower or faster: when, in seconds, and by how much it was slower."""

    node: int
    at: float
    low: float  # 95 % interval of the time
    high: float
    before: float  # log factors on run times
    after: float


class Effects(NamedTuple):
    """Log factors of nodes on run times, 0 for the median of nodes that can be compared.

    ``mean`` is NaN of nodes of which nothing is known; ``shrunk`` and ``left`` are the mean and
    standard deviation of what is believed given ``spread`` (empirical Bayes).
    """

    mean: Floats  # [N]
    low: Floats  # ends of its 95 % interval
    high: Floats
    p: Floats  # of being no slower than by ``by``
    slow: Bools  # named, with 5 % of the names false in expectation
    runs: Ints  # runs that say something about the node
    spread: tuple[float, float, float]  # standard deviation over nodes, and its 95 % interval
    shrunk: Floats
    left: Floats
    changes: tuple[NodeChange, ...]
    compared: int  # runs that were compared, and the programs they are of
    programs: int
    noise: float  # median over runs of the standard deviation of their program


class _Fit(NamedTuple):
    effect: Floats  # [N]
    share: Floats  # [E] how much of a unit's slowness each of its nodes answers for
    rest: Floats  # [U] residuals


class _Units(NamedTuple):
    """Runs in a row of a program on the same nodes, by program and time; and their nodes."""

    y: Floats  # [U] mean log run time
    start: Floats
    runs: Ints
    program: Ints
    block: Ints
    size: Floats  # [B] units of each block
    unit: Ints  # [E] a unit and a node that it ran on, sorted by unit
    node: Ints
    first: Ints  # [U] where each unit begins in these
    nodes: int


def node_effects(
    runs: Runs, by: float = 0.0, progress: Callable[[int, int], None] = lambda done, of: None
) -> Effects:
    """Effects of nodes; ``by``: name nodes only that are slower by more than this share.

    Node 2 takes twice as long:

    >>> rng = np.random.default_rng(0)
    >>> node = rng.integers(0, 5, 300)
    >>> y = rng.normal(3.0, 0.1, 300) + np.log(2) * (node == 2)
    >>> one = np.arange(6)
    >>> runs = Runs(y, np.arange(300.0), np.zeros(300, int), node, one, one[:5], 5)
    >>> found = node_effects(runs)
    >>> found.slow.tolist(), bool(found.low[2] < np.log(2) < found.high[2])
    ([False, False, True, False, False], True)
    """
    u = _units(runs)
    if not u.y.size:
        raise ScenarioError("no program ran twice on several nodes: there is nothing to compare")
    # Only clear nodes are taken off: the others' effects are mostly noise.
    cells, sigma, effect = _cells(u), _scales(u), np.zeros(runs.nodes)
    clear = np.zeros(runs.nodes, dtype=bool)
    for again in range(ROUNDS):
        # Gangs of a slow node make all their nodes seem slow: the slowest go first.
        progress(again, ROUNDS)
        total, chance, *_ = _tested(u, cells, np.where(clear, effect, 0.0), sigma, 0.0)
        # Standardised scores; names by Benjamini and Hochberg at 5 %.
        z = total / chance
        named = false_discoveries(ndtr(-z), 0.05)
        top = np.nanmax(np.where(clear, np.nan, z), initial=0.0)
        # Once named, a node stays as long as the test does; new ones join from the slowest down.
        slowest = named & (clear | (z >= NEXT * top))
        if again and (slowest == clear).all():
            break
        clear = slowest
        fit = _fit(u, _blame(u, np.where(clear, effect, 0.0)), sigma, effect)
        effect = fit.effect - _medians(u, fit.effect)
    return _judged(u, cells, fit._replace(effect=effect), sigma, by, clear)


def _units(runs: Runs) -> _Units:
    order = np.lexsort((runs.start, runs.program))
    program, place = runs.program[order], runs.place[order]
    # Runs of a program in a row on the same nodes are one unit: their mean.
    head = np.ones(order.size, dtype=bool)
    head[1:] = (np.diff(program) != 0) | (np.diff(place) != 0)
    at = np.cumsum(head) - 1
    count = np.bincount(at)
    # The mean over runs, so that a long row of equal runs counts once.
    y = np.bincount(at, runs.log_run[order]) / np.maximum(count, 1)
    program, place, start = program[head], place[head], runs.start[order][head]
    multi = np.bincount(program)[program] > 1  # there is something to compare with
    y, start, count, program, place = (
        y[multi],
        start[multi],
        count[multi],
        program[multi],
        place[multi],
    )
    _, first_of, program, size_of = np.unique(
        program, return_index=True, return_inverse=True, return_counts=True
    )
    # Programs with many units are cut into blocks of nearly equal size, side by side in time.
    blocks = -(-size_of // BLOCK)
    within = np.arange(y.size) - first_of[program]
    block = (np.cumsum(blocks) - blocks)[program] + within * blocks[program] // size_of[program]
    lengths = np.diff(runs.place_from)[place]
    base = np.cumsum(lengths) - lengths
    unit = np.repeat(np.arange(y.size), lengths)
    node = runs.node[runs.place_from[place][unit] + np.arange(unit.size) - base[unit]]
    size = np.bincount(block).astype(np.float64)
    return _Units(y, start, count, program, block, size, unit, node, base, runs.nodes)


def _scales(u: _Units) -> Floats:
    """Standard deviation of the program of each unit [U], shrunk to that of all on a log scale."""
    apart = np.abs(u.y - _median_of(u.y, u.block)[u.block])
    # The centre was fitted on the same runs: degrees of freedom are put back.
    apart *= np.sqrt(u.size / np.maximum(u.size - 1, 1))[u.block]
    # Median absolute deviation, as the standard deviation of a normal.
    sd = 1.4826 * _median_of(apart, u.program)
    typical = _median_of(u.y, u.program)
    # Below this a deviation is rounding: half a per cent, or whole seconds of a short program.
    floor = np.hypot(0.005, ROUNDED / np.exp(typical))
    logs = np.log(np.maximum(sd, floor))
    # Degrees of freedom of a program: units less blocks.
    free = np.bincount(u.program) - np.bincount(u.program[np.unique(u.block, return_index=True)[1]])
    every = float(np.median(logs[u.program]))
    shrunk: Floats = np.exp((free * logs + PRIOR * every) / (free + PRIOR))
    return np.asarray(np.maximum(shrunk, floor)[u.program])


def _median_of(x: Floats, group: Ints) -> Floats:
    """Median of each group; groups are 0, 1, … without a gap."""
    order = np.lexsort((x, group))
    count = np.bincount(group)
    offset = np.cumsum(count) - count
    return np.asarray((x[order][offset + (count - 1) // 2] + x[order][offset + count // 2]) / 2)


def _blame(u: _Units, effect: Floats) -> Floats:
    """The share of each node in its units [E]: the slowest clearly slow one has all, or all equal.

    Where effects are not clear, whoever seems slowest is so by chance, and to give him all would
    make nodes seem unlike.
    """
    slowness = np.maximum(effect, 0.0)[u.node]
    top = np.maximum.reduceat(slowness, u.first)[u.unit]
    # Ties share the blame.
    share = (slowness == top).astype(np.float64)
    return np.asarray(share / np.add.reduceat(share, u.first)[u.unit])


def _fit(u: _Units, share: Floats, sigma: Floats, effect: Floats) -> _Fit:
    """Iterated weighted means, of blocks and nodes in turn (Jacobi).

    A gang is as slow as the mean of its nodes by their shares. The diagonal is bounded by sums over
    rows, so that no sweep overshoots.
    """
    nodes, prior = u.nodes, 1 / WIDE**2
    effect = effect.copy()
    # Blocks start at their medians, which outliers do not move.
    centre = _median_of(u.y - np.bincount(u.unit, share * effect[u.node]), u.block)
    for _ in range(SWEEPS):
        level = np.bincount(u.unit, share * effect[u.node])
        centre = _centred(u, u.y - level, sigma, centre, 2)
        rest = u.y - centre[u.block] - level
        # Huber's weights: what is beyond CLIP standard deviations counts as if it were there.
        precise = np.minimum(1.0, CLIP * sigma / np.maximum(np.abs(rest), 1e-12)) / sigma**2
        pull = np.bincount(u.node, share * (precise * rest)[u.unit], nodes) - prior * effect
        # A step of Jacobi, with a normal prior of width WIDE.
        effect += pull / (np.bincount(u.node, share * precise[u.unit], nodes) + prior)
    return _Fit(effect, share, rest)


def _centred(u: _Units, y: Floats, sigma: Floats, centre: Floats, times: int) -> Floats:
    """Centres of blocks [B]: steps of Huber's weighted mean from those given."""
    for _ in range(times):
        rest = y - centre[u.block]
        weight = 1 / np.maximum(1.0, np.abs(rest) / (CLIP * sigma))
        centre = centre + np.bincount(u.block, weight * rest) / np.bincount(u.block, weight)
    return centre


def _medians(u: _Units, effect: Floats) -> Floats:
    """Median effect of the nodes that are compared with each node, directly or over others."""
    nodes = effect.size
    ends = u.node, nodes + u.block[u.unit]
    # Nodes and blocks are the two sides of a graph; parts of it cannot be compared with one
    # another.
    size = nodes + u.size.size
    links = coo_array((np.ones(u.unit.size, np.int8), ends), shape=(size, size))
    _, part = connected_components(links, directed=False)
    part = np.unique(part[:nodes], return_inverse=True)[1]
    return np.asarray(_median_of(effect, part)[part])


def _judged(u: _Units, cells: _Cells, fit: _Fit, sigma: Floats, by: float, clear: Bools) -> Effects:
    nodes, share = fit.effect.size, fit.share
    psi = np.clip(fit.rest / sigma, -CLIP, CLIP)
    # What a node's own effect takes out of a residual is put back (HC2).
    precision = share**2 / sigma[u.unit] ** 2
    precision_of_node = np.bincount(u.node, precision, nodes) + 1 / WIDE**2
    lost = np.bincount(u.unit, precision / precision_of_node[u.node]) + 1 / u.size[u.block]
    # At least .2: a residual that its node explains almost alone would be blown up.
    variance, alike = _variance(u, cells, psi, np.clip(1 - lost, 0.2, 1.0))
    blamed, square = np.bincount(cells.of, share), np.bincount(cells.of, share**2)
    alone = np.maximum(square - blamed**2 / cells.size, 0.0) / sigma[cells.unit] ** 2
    # Runs of a node in a block that are alike carry less than their number.
    swell = 1 + (cells.here - 1) * alike
    inside = np.bincount(u.program, np.abs(psi) < CLIP) / np.bincount(u.program)
    informed = np.bincount(cells.node, alone * inside[u.program[cells.unit]], nodes)
    scatter = np.bincount(cells.node, alone * swell * variance[cells.unit], nodes)
    informative = informed * WIDE**2 > 0.1  # else the prior says all
    mean, sd, half = (np.full(nodes, np.nan) for _ in range(3))
    # The prior of width WIDE pulled the estimate to 0: undone here, as `shrunk` does it again.
    mean[informative] = fit.effect[informative] * (1 + 1 / (informed[informative] * WIDE**2))
    sd[informative] = np.sqrt(scatter[informative]) / informed[informative]
    # Degrees of freedom of Student's t: units that the node answers for, less one.
    free = np.maximum(np.bincount(u.node, share, nodes) - 1, 1)
    half[informative] = (stdtrit(free, 0.975) * sd)[informative]
    bare = np.where(clear, fit.effect, 0.0)
    total, chance, *_ = _tested(u, cells, bare, sigma, by)
    residuals = _residuals(u, cells, bare, sigma, by)
    p = ndtr(-total / chance)
    named = false_discoveries(p, 0.05)
    for n in np.flatnonzero(named).tolist():  # rather than one of its companions
        named[n] = _without_another(u, cells, residuals, sigma, n) < APART
    # Scores are those of nodes put anywhere: unlike the fit, they cannot follow the noise.
    total, chance, score, spread = _tested(u, cells, bare, sigma, 0.0)
    alone = cells.here * (1 - cells.here / cells.size) * inside[u.program[cells.unit]]
    pull = np.bincount(cells.node, alone / sigma[cells.unit] ** 2, nodes)
    scorable = np.asarray(np.isfinite(chance) & (pull > 0))
    scored, error = total[scorable] / pull[scorable], chance[scorable] / pull[scorable]
    # Clipped scores make those too small that are beyond the noise.
    large = (clear & informative & (fit.effect > CLIP * np.median(sigma)))[scorable]
    scored[large], error[large] = mean[scorable][large], sd[scorable][large]
    tau = spread_of(scored, error, u.y.size - u.size.size)
    keep = np.zeros(nodes)
    if tau[0] > 0:
        keep[informative] = tau[0] ** 2 / (tau[0] ** 2 + sd[informative] ** 2)
    return Effects(
        mean,
        mean - half,
        mean + half,
        p,
        named & (mean - half > np.log1p(by)),  # of gangs, the one to blame
        np.bincount(u.node, u.runs[u.unit], nodes).astype(np.int64),
        tau,
        np.nan_to_num(mean) * keep,
        np.nan_to_num(tau[0]) * np.sqrt(1 - keep),
        _changes(u, cells, score, spread, fit, sigma),
        int(u.runs.sum()),
        int(u.program[-1] + 1),
        float(np.median(np.repeat(sigma, u.runs))),
    )


class _Cells(NamedTuple):
    """A cell is a node in a block."""

    of: Ints  # [E] cell of each unit and node
    node: Ints  # [C]
    unit: Ints  # [C] one of its units
    here: Ints  # [C] units of the node in the block
    size: Floats  # [C] units of the block


def _cells(u: _Units) -> _Cells:
    # One number for each pair of node and block.
    place = u.node * u.size.size + u.block[u.unit]
    key, first_entry, cell, units = np.unique(
        place, return_index=True, return_inverse=True, return_counts=True
    )
    node, block = np.divmod(key, u.size.size)
    return _Cells(cell, node, u.unit[first_entry], units, u.size[block])


def _variance(u: _Units, cells: _Cells, psi: Floats, free: Floats) -> tuple[Floats, float]:
    """Variance of clipped residuals by unit, and the correlation of two of a cell."""
    count = np.bincount(u.program)
    var = (np.bincount(u.program, psi**2 / free) / count)[u.program]
    several = cells.here > 1
    sums = np.bincount(cells.of, psi[u.unit])[several]
    pair = (cells.here * (1 - cells.here / cells.size) * var[cells.unit])[several]
    pairs = float((pair * (cells.here[several] - 1)).sum())
    # Moments: the excess of squared sums over independence, as a share of its most.
    return var, float(np.clip((sums**2 - pair).sum() / pairs, 0.0, 1.0)) if pairs > 0 else 0.0


def _tested(
    u: _Units, cells: _Cells, effect: Floats, sigma: Floats, by: float
) -> tuple[Floats, Floats, Floats, Floats]:
    """Scores of nodes [N] and their standard deviations; scores of cells [C] and their variances.

    ``effect`` is taken off where it is of other nodes. It has clear ones only: those of all would
    take noise off with them, and residuals would be too small for what is left.
    """
    nodes = effect.size
    psi, null, variance, alike = _residuals(u, cells, effect, sigma, by)
    spread = cells.here * (1 - cells.here / cells.size) * variance[cells.unit]
    # Runs of a node within a block that are alike count as fewer: variance grows with their number.
    spread *= (1 + (cells.here - 1) * alike) / sigma[cells.unit] ** 2
    with_it, without = np.bincount(cells.of, null), np.bincount(cells.of, psi[u.unit])
    score = with_it - cells.here * (with_it - without) / cells.size
    total = np.asarray(np.bincount(cells.node, score / sigma[cells.unit], nodes), np.float64)
    sd = np.sqrt(np.bincount(cells.node, spread, nodes))
    # Nothing to compare with: the node has run all of its blocks alone.
    sd[sd < 1e-9] = np.nan
    return total, sd, score / sigma[cells.unit], spread


def _residuals(
    u: _Units, cells: _Cells, effect: Floats, sigma: Floats, by: float
) -> tuple[Floats, Floats, Floats, float]:
    """Clipped residuals of units [U]; those of units and nodes if the node had no effect [E].

    Then their variance [U], and the correlation of two of a cell.
    """
    level, slowest_other = _levels(u, effect)
    centre = _centred(u, u.y - level, sigma, _median_of(u.y - level, u.block), 10)
    centred = u.y - centre[u.block]
    psi = np.clip((centred - level) / sigma, -CLIP, CLIP)
    # Under the null a node is as slow as the others make it, or by the share asked about.
    bare = np.maximum(slowest_other, np.log1p(by))
    null = np.clip((centred[u.unit] - bare) / sigma[u.unit], -CLIP, CLIP)
    return psi, null, *_variance(u, cells, psi, 1 - 1 / u.size[u.block])


def _without_another(
    u: _Units, cells: _Cells, residuals: tuple[Floats, Floats, Floats, float], sigma: Floats, n: int
) -> float:
    """The largest p of a node over its runs without one other node, whichever that is."""
    psi, null, variance, alike = residuals
    mine = np.flatnonzero(u.node == n)
    units = u.unit[mine]
    ends = np.append(u.first[1:], u.unit.size)
    lengths = ends[units] - u.first[units]
    row = np.repeat(np.arange(mine.size), lengths)
    entry = u.first[units][row] + np.arange(row.size) - (np.cumsum(lengths) - lengths)[row]
    companion, shared = np.unique(u.node[entry], return_counts=True)
    # Only companions that share many runs with node n can hide behind it, or it behind them.
    most = companion[np.argsort(-shared, kind="stable")][: COMPANIONS + 1]
    most = most[most != n]
    if not most.size:
        # Without companions nothing can hide behind another node.
        return 0.0
    # alone[i, m] is 0 where companion m is in run i of node n: column m leaves its runs out.
    alone = np.ones((mine.size, most.size))
    place = np.full(u.nodes, -1)
    place[most] = np.arange(most.size)
    at = place[u.node[entry]]
    alone[row[at >= 0], at[at >= 0]] = 0.0
    # Within a cell, which of its runs fell to node n is chance under the null: the sum over
    # its draws without replacement has this mean and, below, this variance.
    begins = np.flatnonzero(np.diff(cells.of[mine], prepend=-1))
    cell = cells.of[mine][begins]
    count = np.add.reduceat(alone, begins)
    with_it = np.add.reduceat(alone * null[mine, None], begins)
    without = np.add.reduceat(alone * psi[units, None], begins)
    size, scale = cells.size[cell, None], sigma[cells.unit[cell], None]
    score = (with_it - count * (with_it - without) / size) / scale
    spread = count * (1 - count / size) * variance[cells.unit[cell], None] / scale**2
    # Runs of a cell correlate by ``alike``, which widens a sum of several.
    spread *= 1 + np.maximum(count - 1, 0) * alike
    chance = np.sqrt(spread.sum(axis=0))
    return float(ndtr(-np.min(score.sum(axis=0) / np.maximum(chance, 1e-9))))


def _levels(u: _Units, effect: Floats) -> tuple[Floats, Floats]:
    """Effect of the slowest node of each unit [U], and of the slowest other node [E].

    The second is -inf where a job has one node.
    """
    effects = effect[u.node]
    top = np.maximum.reduceat(effects, u.first)
    is_top = effects == top[u.unit]
    second = np.maximum.reduceat(np.where(is_top, -np.inf, effects), u.first)
    ties = np.add.reduceat(is_top.astype(np.int64), u.first)
    # Two nodes equally slow: without either the other is as slow.
    second = np.where(ties > 1, top, second)
    return top, np.where(is_top, second[u.unit], top[u.unit])


def false_discoveries(p: Floats, rate: float) -> Bools:
    """Which hypotheses Benjamini and Hochberg (1995) reject; NaN is none.

    >>> false_discoveries(np.array([0.001, 0.5, np.nan, 0.03]), 0.05).tolist()
    [True, False, False, True]
    """
    ordered = np.sort(p[np.isfinite(p)])
    # The largest p below its own line rejects itself and all smaller ones.
    low = np.flatnonzero(ordered <= rate * np.arange(1, ordered.size + 1) / max(ordered.size, 1))
    return np.asarray(p <= (ordered[low[-1]] if low.size else -1.0))


def spread_of(mean: Floats, sd: Floats, most: int) -> tuple[float, float, float]:
    """Standard deviation of effects, and its 95 % interval.

    Paule and Mandel (1982), with the Q profile of Viechtbauer (2007): Q(τ) = Σ (mean - m)² / (τ² +
    sd²) is χ² with n - 1 degrees of freedom, where m is the weighted mean; with ``most`` of them
    where nodes share so few runs, of which each counts for several nodes.
    """
    sound = np.isfinite(mean) & (sd > 0)
    mean, sd = mean[sound], sd[sound]
    free = min(mean.size - 1, most)
    if free < 1:
        return np.nan, np.nan, np.nan

    def q(tau: float) -> float:
        weight = 1 / (tau**2 + sd**2)
        apart = weight * (mean - (weight @ mean) / weight.sum()) ** 2
        return float(apart.sum()) * free / (mean.size - 1)

    def at(level: float) -> float:
        return 0.0 if q(0.0) <= level else float(brentq(lambda tau: q(tau) - level, 0.0, 100.0))

    # Scatter below that of chance would make the interval too short: it counts as chance.
    high = float(chi2.ppf(0.025, free)) / max(1.0, free / max(q(0.0), 1e-12))
    return at(free), at(float(chi2.ppf(0.975, free))), at(high)


def _changes(
    u: _Units, cells: _Cells, score: Floats, variance: Floats, fit: _Fit, sigma: Floats
) -> tuple[NodeChange, ...]:
    """Nodes whose residuals drift: the largest deviation of their sum from a Brownian bridge.

    The time is where the means before and after differ most; its interval is where they differ so
    much that χ² with one degree of freedom does not tell it from there.
    """
    begun = u.start[cells.unit]  # its first unit
    order = np.lexsort((begun, cells.node))
    order = order[variance[order] > 0]
    node, x, v = cells.node[order], score[order], variance[order]
    if not node.size:
        return ()
    offset = np.flatnonzero(np.diff(node, prepend=-1))
    ends = np.append(offset[1:], node.size)
    p, paths = np.full(offset.size, np.nan), {}
    for i, (a, b) in enumerate(zip(offset.tolist(), ends.tolist())):
        if b - a < LEAST_FOR_CHANGE:
            continue
        # Time of the bridge runs with variance, not with the clock.
        t = np.cumsum(v[a:b]) / v[a:b].sum()
        # The sum of residuals over time, tied to 0 at both ends: a Brownian bridge if nothing
        # changed.
        path = np.cumsum(x[a:b]) - t * x[a:b].sum()
        path /= np.sqrt(v[a:b].sum())
        p[i] = kolmogorov(float(np.abs(path).max()))
        if p[i] < 0.05:
            paths[i] = path, t
    changes = []
    for i in np.flatnonzero(false_discoveries(p, 0.05)).tolist():
        (path, t), n = paths[i], int(node[offset[i]])
        with np.errstate(divide="ignore", invalid="ignore"):
            gain = np.where(t < 1 - 1e-9, path**2 / (t * (1 - t)), 0.0)
        times = begun[order][offset[i] : ends[i]]
        at = int(np.argmax(gain))
        # 95 % of χ² with one degree of freedom is 3.84.
        near = np.flatnonzero(gain >= gain[at] - 3.84)
        change = float(times[at + 1])
        units = u.unit[u.node == n]
        early = u.start[units] < change
        levels = [
            fit.effect[n] + _weighted_median(fit.rest[part], sigma[part] ** -2)
            for part in (units[early], units[~early])
        ]
        low, high = float(times[near[0]]), float(times[min(near[-1] + 1, times.size - 1)])
        changes.append(NodeChange(n, change, low, high, *levels))
    return tuple(changes)


def _weighted_median(x: Floats, weight: Floats) -> float:
    order = np.argsort(x)
    sums = np.cumsum(weight[order])
    return float(x[order][np.searchsorted(sums, sums[-1] / 2)]) if x.size else np.nan


class DistanceEffects(NamedTuple):
    """What it costs runs of C kinds to cross each of H levels; row 0 is of all kinds together.

    Log factors on run times, beside runs that do not cross the level; NaN where nothing is known.
    """

    mean: Floats  # [C + 1, H]
    low: Floats  # ends of its 95 % interval
    high: Floats
    p: Floats  # of costing nothing
    slow: Bools  # named, with 5 % of the names false in expectation
    runs: Ints  # [C + 1, H + 1] runs of programs that ran at several levels, at each level


def distance_effects(runs: Runs, level: Ints, kind: Ints, levels: int) -> DistanceEffects:
    """Effects of distance on run times, ``level`` [P] being that of each place, from 0.

    ::

        log run time = program, as it was at the time + Σ over levels crossed + noise

    ``kind`` [J] is that of each run's program. Least squares within the blocks of
    :func:`node_effects`, with Huber's weights. Names are controlled by Benjamini and
    Hochberg (1995).

    A rack apart costs a fifth:

    >>> rng = np.random.default_rng(2)
    >>> level = rng.integers(0, 2, 300)
    >>> y = rng.normal(3.0, 0.1, 300) + np.log(1.2) * level
    >>> one = np.arange(3)
    >>> runs = Runs(y, np.arange(300.0), np.zeros(300, int), level, one, one[:2], 2)
    >>> found = distance_effects(runs, np.arange(2), np.zeros(300, int), 1)
    >>> found.slow[1].tolist(), bool(found.low[1, 0] < np.log(1.2) < found.high[1, 0])
    ([True], True)
    """
    C, shape = int(kind.max(initial=-1)) + 1, (int(kind.max(initial=-1)) + 2, levels)
    mean, low, high, p = (np.full(shape, np.nan) for _ in range(4))
    count = np.zeros((C + 1, levels + 1), dtype=np.int64)
    at = np.arange(levels + 1)
    # Kind 0 is all runs together, behind it each kind of programs by itself.
    for c in range(C + 1):
        mine = np.flatnonzero((kind == c - 1) | (c == 0))
        columns = runs.log_run[mine], runs.start[mine], runs.program[mine], level[runs.place[mine]]
        u = _units(Runs(*columns, np.append(at, levels + 1), at, levels + 1))
        if not u.y.size:
            continue
        count[c] = np.bincount(u.node, u.runs, levels + 1)
        mean[c], sd, free = _crossing(u, (u.node[:, None] > at[:levels]).astype(np.float64))
        half = stdtrit(np.maximum(free, 1), 0.975) * sd
        low[c], high[c], p[c] = mean[c] - half, mean[c] + half, stdtr(free, -mean[c] / sd)
    # All kinds together is one question more, and is controlled apart from the single ones.
    named = false_discoveries(p[1:].ravel(), 0.05).reshape(C, levels)
    alone = false_discoveries(p[0], 0.05)
    return DistanceEffects(mean, low, high, p, np.concatenate([alone[None], named]), count)


LEAST_BLOCKS = 8
"""Blocks with runs on both sides of a level, below which nothing is said of it."""


def _crossing(u: _Units, x: Floats) -> tuple[Floats, Floats, int]:
    """Coefficients of the levels crossed ``x`` [U, H], standard deviations, degrees of freedom."""
    H, sigma = x.shape[1], _scales(u)
    mean, sd = np.full(H, np.nan), np.full(H, np.nan)
    weight, fitted = 1 / sigma**2, np.zeros(H)

    def centred(values: Floats) -> Floats:
        total = np.bincount(u.block, weight)
        return values - (np.bincount(u.block, weight * values) / total)[u.block]

    # Levels that too few blocks tell apart are left out.
    told = [np.bincount(u.block, column) for column in x.T]
    several = np.array([((n > 0) & (n < u.size)).sum() for n in told])
    able = np.flatnonzero(several >= LEAST_BLOCKS)
    for _ in range(SWEEPS if able.size else 0):
        within = np.stack([centred(column) for column in x[:, able].T], axis=1)
        y = centred(u.y)
        bread = np.linalg.pinv((within * weight[:, None]).T @ within)
        fitted = bread @ (within * weight[:, None]).T @ y
        rest = y - within @ fitted
        weight = np.minimum(1.0, CLIP * sigma / np.maximum(np.abs(rest), 1e-12)) / sigma**2
    free = max(u.y.size - u.size.size - able.size, 1)
    if able.size:
        # Covariance of estimates with Huber's weights (Huber 1973): what is clipped does not move.
        psi = np.clip(rest / sigma, -CLIP, CLIP)
        # A residual is smaller than its noise by what its block's centre took of it.
        lost = np.sqrt(1 - 1 / u.size)[u.block]
        within_clip = (np.abs(rest) < CLIP * sigma * lost).astype(np.float64)
        inside, share = within_clip / sigma**2, float(within_clip.mean())
        more = 1 + (u.y.size - free) / u.y.size * (1 - share) / share
        bread = np.linalg.pinv((within * inside[:, None]).T @ within)
        meat = (within / sigma[:, None] ** 2).T @ within * float(psi @ psi) / free
        mean[able], sd[able] = fitted, more * np.sqrt(np.diag(bread @ meat @ bread))
    return mean, sd, free


def read_topology(file: Path) -> dict[str, dict[str, str]]:
    """Labels of nodes that say where they are.

    Of a topology.conf the label ``switch``; else of a CSV file whose first column is ``node`` and
    whose others are levels, the nearest first: ``node,rack,block``.

    Raises
    ------
    ScenarioError
        Where the file cannot be read, or is neither; names the line.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ScenarioError(f"{file} cannot be read: {error}") from error
    # The two formats are told apart by a word that no header of a table has.
    if re.search(r"^\s*SwitchName\s*=", text, re.MULTILINE | re.IGNORECASE):
        return {node: {"switch": path} for node, path in _switches(file, text).items()}
    rows = list(csv.reader(text.splitlines()))
    if not rows or len(rows[0]) < 2 or rows[0][0].strip().lower() not in ("node", "server"):
        raise ScenarioError(
            f"{file}: line 1 is no header such as node,rack,block, and no line begins with "
            "SwitchName="
        )
    levels, places = [name.strip() for name in rows[0][1:]], dict[str, dict[str, str]]()
    for i, row in enumerate(rows[1:], 2):
        if row and len(row) != len(rows[0]):
            raise ScenarioError(f"{file}: line {i} has {len(row)} values, the first {len(rows[0])}")
        if row:
            places[row[0].strip()] = dict(zip(levels, map(str.strip, row[1:])))
    return places


def _switches(file: Path, text: str) -> dict[str, str]:
    below, nodes = dict[str, list[str]](), dict[str, list[str]]()
    for number, line in continued(text):
        values = {k.lower(): v for k, v in re.findall(r"(\w+)\s*=\s*(\S+)", line)}
        if (name := values.get("switchname")) is None:
            continue
        try:
            below[name] = notation.expand_nodes(values.get("switches", ""))
            nodes[name] = notation.expand_nodes(values.get("nodes", ""))
        except notation.NotationError as error:
            raise ScenarioError(f"{file}: line {number}: {error}") from error
    return switch_labels(below, nodes)
