r"""The offline programme: P1 with everything known and tasks that may be split.

    maximise  Σ_j f_j(X_j)   over   Σ_j x_ji^t ≤ 1,   Σ_{i,t} p_i x_ji^t ≤ B_j,   x ≥ 0.

In money: machine i offers p_i money in slot t, worth ρ = θ_i^t / p_i work each. Offers of the same
ρ in an *epoch*, slots in which the same jobs are active, are interchangeable, so that one number
stands for all of them. Where there are too many different ρ they are sorted into cells:

- every offer of a cell split between the cell's two ends, keeping its money and its work, is a
  mean-preserving spread, so the optimum can only grow: an upper bound;
- a plan for the split offers is a real plan for the cells that they were split from: it pays the
  same, and gets their mean ρ for it.

The difference is of second order in the width of the cells, and none where cells are points.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gangwise.approximation_jobs.conjugates import Worth
from gangwise.approximation_jobs.problem import Job
from gangwise.core.errors import ScenarioError
from gangwise.kernels.offline import collect, hull, soft_hull

__all__ = ["Offers", "Programme"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

CELLS = (16, 200)
"""Fewest and most cells of ρ, when there are more different ρ than :data:`POINTS`; in between, as
many as make :data:`WORK` pairs of a cell and a job active in its epoch."""
WORK = 1_000_000
POINTS = 400
ENOUGH = 200_000
"""How many rates are looked at to place cells."""


@dataclass(frozen=True, eq=False)
class Offers:
    """Money on offer by epoch and end of a cell, arrays of shape [E, G].

    ``money``, the ρ that it is put at, and ``real``, the mean ρ of the cells that it is from.
    """

    money: Floats
    rho: Floats
    real: Floats


class Programme:
    """The programme of some jobs and rates.

    Parameters
    ----------
    jobs : sequence of Job
        Those active in at least one slot.
    prices : ndarray of shape [M]
        Positive.
    blocks : iterable of ndarray of shape [slots, M]
        Rates, slot after slot.
    slots : int
        How many slots there are; jobs are cut there.
    average : bool
        The objective of (6) rather than the overall utility.
    ends : sequence of int, optional
        The slot that each job ends before, where it is not the deadline.

    Attributes
    ----------
    offers : Offers
        Every cell split between its ends.
    exact : bool
        Whether cells are points, so that ``rho`` and ``real`` are the same.

    Raises
    ------
    ScenarioError
        For a free machine: its offers have no ρ.
    """

    def __init__(
        self, jobs: Sequence[Job], prices: Floats, blocks: Iterable[Floats], slots: int,
        average: bool = False, ends: Sequence[int] | None = None,
    ):  # fmt: skip
        if not (prices > 0).all():
            raise ScenarioError(
                f"machine {int(np.argmin(prices))} is free; offline comparators need prices above 0"
            )
        self.jobs, self.prices = tuple(jobs), np.ascontiguousarray(prices, dtype=np.float64)
        self.worth = Worth(self.jobs, average)
        self.budget = np.array([job.budget for job in jobs])
        self._epochs(slots, [job.deadline for job in jobs] if ends is None else ends)
        self._offers(blocks)
        reach = np.zeros(len(jobs))
        most = (self.offers.money * self.offers.rho).sum(axis=1)
        np.add.at(reach, self.member, np.repeat(most, np.diff(self.start)))
        self.cap = np.maximum(np.minimum(reach, self.budget * self.offers.rho.max()), 1e-300)

    def _epochs(self, slots: int, ends: Sequence[int]) -> None:
        arrival = np.array([job.arrival for job in self.jobs], dtype=np.int64)
        deadline = np.minimum(np.array(ends, dtype=np.int64), slots)
        if not len(self.jobs) or (arrival >= deadline).any():
            raise ScenarioError("the offline programme needs jobs that are active in some slot")
        begins = np.unique(np.concatenate((arrival, deadline)))
        first, last = np.searchsorted(begins, arrival), np.searchsorted(begins, deadline)
        E = begins.size - 1
        counts = np.zeros(E + 1, dtype=np.int64)
        np.add.at(counts, first, 1)
        np.add.at(counts, last, -1)
        self.start = np.concatenate(([0], np.cumsum(np.cumsum(counts)[:E])))
        self.member = np.empty(self.start[-1], dtype=np.int64)
        free = self.start[:-1].copy()
        for j in range(len(self.jobs)):
            places = free[first[j] : last[j]]
            self.member[places] = j
            places += 1
        busy = np.diff(self.start) > 0
        of_slot = np.searchsorted(begins, np.arange(slots), side="right") - 1
        inside = (of_slot >= 0) & (of_slot < E)
        self.epoch = np.where(inside & busy[np.clip(of_slot, 0, E - 1)], of_slot, -1)

    def _offers(self, blocks: Iterable[Floats]) -> None:
        E, at = self.start.size - 1, 0
        if self.epoch.size * self.prices.size <= ENOUGH:
            blocks = [np.concatenate(list(blocks))]
        nodes = np.zeros(0)
        for block in blocks:
            rates = np.ascontiguousarray(block, dtype=np.float64)
            if not nodes.size:
                whole = len(rates) >= self.epoch.size
                cells = int(np.clip(WORK // max(self.member.size, 1), *CELLS))
                nodes = _nodes(rates, self.prices, whole, cells)
                money, work = (np.zeros((E, nodes.size - 1)) for _ in range(2))
            epoch = self.epoch[at : at + len(rates)]
            collect(rates[: epoch.size], self.prices, epoch, nodes, money, work)
            at += len(rates)
        mean = np.divide(work, money, out=np.zeros_like(work), where=money > 0)
        mean = np.clip(mean, nodes[:-1], nodes[1:])
        close = mean - nodes[:-1] <= 1e-13 * nodes[1:]  # as far as the rounding of sums moves it
        mean = np.where(close, nodes[:-1], mean)
        share = (mean - nodes[:-1]) / np.diff(nodes)
        ends, work = np.zeros((2, E, nodes.size))
        for first, part in ((0, 1.0 - share), (1, share)):
            ends[:, first : first + mean.shape[1]] += money * part
            work[:, first : first + mean.shape[1]] += money * part * mean
        self.exact = not (money * share * (1.0 - share)).any()
        used = (ends > 0).any(axis=0)
        ends, spread = ends[:, used], np.tile(nodes[used], (E, 1))
        real = np.divide(work[:, used], ends, out=spread.copy(), where=ends > 0)
        self.offers = Offers(ends, spread, real)

    def bound(self, w: Floats, lam: Floats) -> float:
        """No plan is worth more, whatever the slopes ``w`` > 0 and multipliers ``lam`` ≥ 0 [N]."""
        offers = hull(w, lam, self.start, self.member, self.offers.money, self.offers.rho)
        return float(self.worth.conjugate(w, self.cap).sum() + lam @ self.budget + offers)

    def soft(
        self, w: Floats, lam: Floats, tau: float, real: bool = False
    ) -> tuple[float, Floats, Floats]:
        """The last sum at temperature τ, and the money and work it gives each job, shape [N].

        The work is that at the ends of the cells, or the ``real`` one.
        """
        N, offers = len(self.jobs), self.offers
        G, most = offers.money.shape[1], int(np.diff(self.start).max())
        spent, done = np.zeros((2, N))
        space, part, kept = np.zeros((2, G)), np.zeros((most, G)), np.zeros(most, np.int64)
        total = soft_hull(
            w, lam, tau, self.start, self.member, offers.money, offers.rho,
            offers.real if real else offers.rho, spent, done, space, part, kept,
        )  # fmt: skip
        return total, spent, done

    def attained(self, spent: Floats, done: Floats) -> tuple[float, Floats, Floats]:
        """What a plan is worth after jobs that overspend are cut to their budgets: value, X, C."""
        share = np.minimum(1.0, self.budget / np.maximum(spent, 1e-300))
        work = share * done
        return float(self.worth.value(work).sum()), work, share * spent


def _nodes(rates: Floats, prices: Floats, whole: bool, cells: int) -> Floats:
    """Ends of the cells: all different ρ if they are few, else quantiles."""
    step = 1 if whole else max(1, rates.size // ENOUGH)
    rho = np.sort((rates / prices).ravel()[::step])
    top = 1.0 / float(prices.min())
    points = np.unique(rho)
    if not ((whole and points.size <= POINTS) or points.size <= cells):
        points = rho[np.linspace(0, rho.size - 1, cells).astype(np.int64)]
    # The last cell is for offers of the largest ρ alone.
    return np.unique(np.concatenate(([0.0], points, [top, top * (1.0 + 1e-6)])))
