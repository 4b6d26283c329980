"""Offline comparators of OGASched: the best fixed decision in hindsight, the optimum of every slot.

Both are one concave programme with weights n_l: the number of slots in which job type l arrived for
the best fixed decision, since the rewards of a fixed decision add up, or x_l(t) for one slot.

    maximise  Σ_l n_l [ Σ_{r,k} f_r^k(y) - max_k β_k Σ_r y ]   over OGASched (3) and OGASched (4).

It is solved by a primal-dual interior-point method that knows the structure. The Newton system
couples the channels of a server through its capacity and the channels of a job type through its
overhead; eliminating the capacities in closed form leaves one small matrix per device type, and a
system of L (K + 1) unknowns.

Every answer carries a certificate that does not trust the solver: for weights w_l on the simplex,
max_k ≥ Σ_k w_lk makes the objective at most a smooth concave function, which lies below its tangent
at y; maximising the tangent is a fractional knapsack per server and device type.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gangwise.core.arrays import Floats, Ints, read_only
from gangwise.core.contracts import Comparator, evenly_spaced
from gangwise.core.jit import kernel
from gangwise.papers.gain_overhead.kernels import curvature, gradient
from gangwise.papers.gain_overhead.policies import diameter, gradient_bound, totals
from gangwise.papers.gain_overhead.problem import GainOverheadProblem


@kernel
def schur_complements(
    diagonal: Floats,
    kappa: Floats,
    g: Floats,
    places: tuple[Ints, Ints, Ints, Ints],
    phi: Floats,
    matrix: Floats,
    vector: Floats,
) -> None:
    """Schur complements: per device type, N = B M⁻¹ Bᵀ [K, n, n] and p = B M⁻¹ g [K, n].

    M = diag(``diagonal``) + κ 1 1ᵀ on every server and device type, B sums over the channels of a
    job type, whose row is ``position`` [L]. ``matrix`` and ``vector`` begin with zeros; ``phi`` [R,
    K] receives κ / (1 + κ Σ 1/D).
    """
    used, position, starts, job_type = places
    K = diagonal.shape[1]
    for r in range(starts.shape[0] - 1):
        for k in range(K):
            inverse_sum, g_sum = 0.0, 0.0
            for e in range(starts[r], starts[r + 1]):
                if used[e, k] != 0:
                    # 1ᵀ D⁻¹ 1 and 1ᵀ D⁻¹ g, which is all that Sherman-Morrison needs of a block.
                    inverse_sum += 1.0 / diagonal[e, k]
                    g_sum += g[e, k] / diagonal[e, k]
            # Sherman-Morrison: M⁻¹ = D⁻¹ - f D⁻¹ 1 1ᵀ D⁻¹.
            f = kappa[r, k] / (1.0 + kappa[r, k] * inverse_sum)
            phi[r, k] = f
            for e in range(starts[r], starts[r + 1]):
                if used[e, k] == 0:
                    continue
                i = position[job_type[e]]
                d = 1.0 / diagonal[e, k]
                # N = B M⁻¹ Bᵀ: 1/D on the diagonal here, -f (D⁻¹ 1)(D⁻¹ 1)ᵀ in the loop over
                # rivals.
                matrix[k, i, i] += d
                vector[k, i] += d * (g[e, k] - f * g_sum)
                for rival in range(starts[r], starts[r + 1]):
                    if used[rival, k] != 0:
                        j = position[job_type[rival]]
                        matrix[k, i, j] -= f * d / diagonal[rival, k]


@kernel
def back_substitute(
    diagonal: Floats,
    phi: Floats,
    g: Floats,
    q: Floats,
    places: tuple[Ints, Ints, Ints, Ints],
    dy: Floats,
    block: Floats,
) -> None:
    """Back substitution: Δy = M⁻¹ (g - Bᵀ q) [E, K], and its sums over job types [R, K]."""
    used, position, starts, job_type = places
    K = diagonal.shape[1]
    for r in range(starts.shape[0] - 1):
        for k in range(K):
            whole = 0.0  # 1ᵀ D⁻¹ (g − Bᵀ q), which Sherman-Morrison takes a part of off again
            for e in range(starts[r], starts[r + 1]):
                if used[e, k] != 0:
                    # D⁻¹ (g - Bᵀ q): the prices of job types are known by now.
                    v = (g[e, k] - q[k, position[job_type[e]]]) / diagonal[e, k]
                    dy[e, k] = v
                    whole += v
                else:
                    dy[e, k] = 0.0
            correction = phi[r, k] * whole
            moved = 0.0
            for e in range(starts[r], starts[r + 1]):
                if used[e, k] != 0:
                    dy[e, k] -= correction / diagonal[e, k]
                    moved += dy[e, k]
            block[r, k] = moved


@kernel
def best_response(g: Floats, upper: Floats, capacity: Floats, starts: Ints, order: Ints) -> float:
    """Best response: the largest Σ g y over the decisions of OGASched (3) and OGASched (4).

    A fractional knapsack on every server and device type: highest g first, while positive.
    ``order`` [L] is work space.
    """
    K = g.shape[1]
    best = 0.0
    for r in range(starts.shape[0] - 1):
        for k in range(K):
            n = 0
            for e in range(starts[r], starts[r + 1]):
                if g[e, k] > 0.0 and upper[e, k] > 0.0:
                    i = n  # insertion into descending order
                    while i > 0 and g[order[i - 1], k] < g[e, k]:
                        order[i] = order[i - 1]
                        i -= 1
                    order[i] = e
                    n += 1
            # Greedy is optimal: a device uses one unit of capacity, whichever job holds it.
            remaining = capacity[r, k]
            for i in range(n):
                v = min(remaining, upper[order[i], k])
                best += g[order[i], k] * v
                remaining -= v
    return best


PROXIMAL = 1e-5
"""Added to every curvature, which damps the moves that linear utilities leave undetermined. The
optimum is unchanged, since it only shortens steps; without it rounding ends the path earlier."""


@dataclass(frozen=True, eq=False)
class GainOverheadSolution:
    """A feasible decision [E, K] with its objective, and a bound that no decision's exceeds."""

    decision: Floats
    value: float
    bound: float

    @property
    def gap(self) -> float:
        return max(self.bound - self.value, 0.0)


def solve(
    problem: GainOverheadProblem,
    weight: npt.ArrayLike,
    tolerance: float = 1e-6,
    iterations: int = 100,
) -> GainOverheadSolution:
    """Concave programme: maximise Σ_l n_l q_l(y) of OGASched (5) over the feasible decisions.

    Parameters
    ----------
    weight : array of shape [L]
        n_l, zero or larger.
    tolerance : float
        Stop when the certified gap is at most this, relative to the value.
    iterations : int
        Give up after so many; the certificate then says how far off the answer may be.

    Examples
    --------
    One job type with log utility, α = 1, β = 1/4: the optimum is where 1 / (y + 1) = β.

    >>> from gangwise import Channels, Cluster
    >>> from gangwise.papers.gain_overhead.problem import GainOverheadProblem, Utilities
    >>> problem = GainOverheadProblem(
    ...     Cluster(np.array([[10.0]]), ("gpu",)),
    ...     np.array([[10.0]]),
    ...     Channels.of_mask(np.ones((1, 1), dtype=bool)),
    ...     Utilities.of("log", [[1.0]]),
    ...     np.array([0.25]),
    ... )
    >>> solution = solve(problem, [1])
    >>> round(float(solution.decision[0, 0]), 3), round(solution.value, 6)
    (3.0, 0.636294)
    """
    n = np.asarray(weight, dtype=np.float64)
    largest = float(n.max(initial=0.0))
    if not ((n > 0)[problem.channels.job_type, None] & (problem.upper > 0)).any():
        return GainOverheadSolution(np.zeros(problem.shape), 0.0, 0.0)
    # Weights of a long run are in the thousands; scaled, one tolerance serves all.
    programme = _Programme(problem, n / largest)
    best, bound = programme.certificate()
    decision, worse, count = programme.y.copy(), 0, 0
    while bound - best > tolerance * abs(best) and worse < 4 and count < iterations:
        count += 1
        if not programme.newton():
            break
        if programme.surrogate > 0.01 * (1.0 + abs(best)):  # too early for a certificate to be good
            continue
        value, above = programme.certificate()
        # Near the end rounding moves both numbers to and fro; four steps without gain are the end.
        worse = 0 if value > best or above < bound else worse + 1
        bound = min(bound, above)
        if value > best:
            best, decision = value, programme.y.copy()
    return GainOverheadSolution(decision, largest * best, largest * bound)


class _Programme:
    """Primal-dual interior-point state.

    Stationarity     n f'(y) - ω β - ρ + λ - μ = 0,   Σ_k ω_lk = n_l
    Complementarity  λ y = μ (a - y) = ρ (c - Σ_l y) = ω (u_l - β Σ_r y) = τ

    The primal point is feasible from the start and stays so.
    """

    def __init__(self, problem: GainOverheadProblem, weight: Floats):
        self.problem, self.weight = problem, weight
        self.rows = np.flatnonzero(weight > 0)
        self.position = np.full(problem.L, -1)
        self.position[self.rows] = np.arange(self.rows.size)
        job_type, server = problem.channels.job_type, problem.channels.server
        used = (weight[job_type, None] > 0) & (problem.upper > 0)
        channels = problem.channels
        self.used = used
        self._places = used.astype(np.int64), self.position, channels.starts, channels.job_type
        self.beta = problem.overhead
        R, K = problem.cluster.capacity.shape
        crowd = np.zeros((R, K))
        np.add.at(crowd, server, used.astype(np.float64))
        fair = problem.cluster.capacity[server] / np.maximum(crowd[server], 1.0)
        # Half of a fair share: strictly inside, as an interior point must be.
        self.y = np.where(used, 0.5 * np.minimum(problem.upper, fair), 0.0)
        self.crowded = crowd > 0
        # u_l bounds the overhead from above, with some room.
        u = 1.1 * (self.beta * self._by_job_type(self.y)).max(axis=1) + 1e-3
        self._zero_price = np.zeros((problem.L, K))
        self._g, self._h, self._dy = (np.zeros(problem.shape) for _ in range(3))
        self._phi, self._block = np.zeros((R, K)), np.zeros((R, K))
        self._order = np.zeros(problem.L, dtype=np.int64)
        # Distances to the constraints, 1 where there is none. They are carried along rather than
        # recomputed, because a difference of large numbers cannot tell a small distance from none.
        self.y_slack = np.where(used, self.y, 1.0)
        self.a_slack = np.where(used, problem.upper - self.y, 1.0)
        booked = np.zeros((R, K))
        np.add.at(booked, server, self.y)
        self.c_slack = np.where(self.crowded, problem.cluster.capacity - booked, 1.0)
        self.t = u[:, None] - self.beta * self._by_job_type(self.y)
        # The first barrier is a tenth of what the point earns: as far from the bounds as the fair
        # shares are, so that the first steps are long.
        tau = 0.1 * float((self._slope() * self.y)[used].mean()) + 1e-9
        self.lam = np.where(used, tau / self.y_slack, 0.0)
        self.mu = np.where(used, tau / self.a_slack, 0.0)
        self.rho = np.where(self.crowded, tau / self.c_slack, 0.0)
        # Σ_k ω_lk = n_l holds from the start, and every step keeps it.
        self.omega = np.repeat(weight[self.rows, None] / K, K, axis=1)
        self.constraints = 2 * int(used.sum()) + int(self.crowded.sum()) + self.t.size
        self.surrogate = np.inf

    def _by_job_type(self, y: Floats) -> Floats:
        """Σ_r y of the job types with weight, shape [n, K]."""
        return totals(self.problem.channels.job_type, y, self.problem.L)[self.rows]

    def _slope(self) -> Floats:
        """Slopes n f'(y), shape [E, K]."""
        p = self.problem
        terms, job_type = read_only(p.slope_terms), read_only(p.channels.job_type)
        slopes = terms, job_type, p.own_index, p.own("slope", self.y)
        y, weight = self.y.ravel(), read_only(self.weight)
        gradient(y, weight, self._zero_price, *slopes, self._g.ravel())
        return self._g

    def _curvature(self) -> Floats:
        """Curvatures n f''(y), shape [E, K]; central differences for utilities of your own."""
        p = self.problem
        curvature(self.y.ravel(), p.slope_terms, self._h.ravel())
        if p.own_index.size:
            # The cube root of the precision of a float, near enough, where such a difference errs
            # least.
            width = 1e-5 * (1.0 + self.y)
            low = np.maximum(self.y - width, 0.0)
            rise = p.own("slope", self.y + width) - p.own("slope", low)
            run = (self.y + width - low).ravel()[p.own_index]
            self._h.ravel()[p.own_index] = np.minimum(rise / run, 0.0)
        return self._h * self.weight[p.channels.job_type, None]

    def newton(self) -> bool:
        """One step towards the point of the central path with a tenth of the current gap.

        Returns whether there was any room to move; rounding ends the path somewhere.
        """
        channels = self.problem.channels
        y_slack, a_slack, c_slack, t = self.y_slack, self.a_slack, self.c_slack, self.t
        gap = (
            (self.lam * y_slack).sum()
            + (self.mu * a_slack).sum()
            + (self.rho * c_slack).sum()
            + (self.omega * t).sum()
        )
        tau = 0.1 * float(gap) / self.constraints  # centring: a tenth of the complementarity
        # Slacks and multipliers of the bounds are eliminated first; they only add to diagonals.
        diagonal = PROXIMAL - self._curvature() + self.lam / y_slack + self.mu / a_slack
        price = np.zeros((self.problem.L, self.beta.size))
        # ω t = τ gives ω = τ / t, and stationarity charges Σ_k β_k ω_lk.
        price[self.rows] = self.beta * tau / t
        g = (
            self._slope()
            + tau / y_slack
            - tau / a_slack
            - (tau / c_slack)[channels.server]
            - price[channels.job_type]
        )
        kappa = np.where(self.crowded, self.rho / c_slack, 0.0)
        du, q = self._solve_reduced(diagonal, kappa, g, tau)
        dy, block = self._dy, self._block
        back_substitute(diagonal, self._phi, g, q, self._places, dy, block)
        dt = du[:, None] - self.beta * self._by_job_type(dy)
        # Recover the moves of slacks and multipliers from those of y and u.
        slacks = (
            (y_slack, dy),
            (a_slack, -dy),
            (c_slack, np.where(self.crowded, -block, 0.0)),
            (t, dt),
        )
        dlam = np.where(self.used, (tau - self.lam * dy) / y_slack - self.lam, 0.0)
        dmu = np.where(self.used, (tau + self.mu * dy) / a_slack - self.mu, 0.0)
        drho = np.where(self.crowded, (tau + self.rho * block) / c_slack - self.rho, 0.0)
        domega = (tau - self.omega * dt) / t - self.omega
        duals = ((self.lam, dlam), (self.mu, dmu), (self.rho, drho), (self.omega, domega))
        # Step to the boundary, less 1 %, with lengths of their own for primal and dual.
        # One length for both would let the side that is blocked hold up the other.
        primal, dual = _longest(slacks), _longest(duals)
        self.y += primal * dy
        for slack, change in slacks:
            slack += primal * change
        for multiplier, change in duals:
            multiplier += dual * change
        self.surrogate = float(gap)
        return primal > 1e-6 and dual > 1e-6

    def _solve_reduced(
        self, diagonal: Floats, kappa: Floats, g: Floats, tau: float
    ) -> tuple[Floats, Floats]:
        """Δu [n] and the prices q [K, n] of job types, once the capacities are eliminated."""
        n, K, t = self.rows.size, self.beta.size, self.t
        matrix, vector = np.zeros((K, n, n)), np.zeros((K, n))
        schur_complements(diagonal, kappa, g, self._places, self._phi, matrix, vector)
        W = self.omega / t  # from linearising ω t = τ
        # x_k = q_k / β_k solves (β² N_k + diag(1/W_k)) x_k + Δu = β p_k with Σ_k x_k = -h. One
        # pivoted factorisation keeps the second equation exact where the first is ill-conditioned
        # (linear utilities on full servers); eliminating Δu by inverses does not.
        system = np.zeros((n * (K + 1), n * (K + 1)))
        constants = np.empty(n * (K + 1))
        diagonal_of_n = np.arange(n)
        for k in range(K):
            rows = slice(n * k, n * k + n)
            system[rows, rows] = self.beta[k] ** 2 * matrix[k]
            system[n * k + diagonal_of_n, n * k + diagonal_of_n] += 1.0 / W[:, k]
            system[n * k + diagonal_of_n, n * K + diagonal_of_n] = 1.0
            system[n * K + diagonal_of_n, n * k + diagonal_of_n] = 1.0
            constants[rows] = self.beta[k] * vector[k]
        constants[n * K :] = self.weight[self.rows] - tau * (1.0 / t).sum(axis=1)
        x: Floats = np.asarray(np.linalg.solve(system, constants), dtype=np.float64)
        return x[n * K :], self.beta[:, None] * x[: n * K].reshape(K, n)

    def value(self) -> float:
        return float(self.weight @ self.problem.by_job_type(self.y))

    def certificate(self) -> tuple[float, float]:
        """Certificate: the objective of y, and an upper bound on every decision's objective."""
        p = self.problem
        job_type = p.channels.job_type
        slope = self._slope()
        n = self.weight[self.rows]
        weighted = self.beta * self._by_job_type(self.y)
        # Dual weights on the simplex: max_k ≥ Σ_k share_k makes the overhead smooth and smaller.
        share = self.omega / self.omega.sum(axis=1, keepdims=True)
        value = self.value()
        smooth = value + float((n * (weighted.max(axis=1) - (share * weighted).sum(axis=1))).sum())
        # The tangent of that concave function at y bounds it everywhere.
        price = np.zeros((p.L, self.beta.size))
        price[self.rows] = n[:, None] * share * self.beta
        tangent = np.where(self.used, slope - price[job_type], 0.0)
        most = best_response(tangent, p.upper, p.cluster.capacity, p.channels.starts, self._order)
        return value, smooth + most - float((tangent * self.y).sum())


def _longest(moves: tuple[tuple[Floats, Floats], ...]) -> float:
    # The largest step that leaves every value positive is 1 / max(-change / value).
    shrink = max(
        float(np.divide(-change, value, out=np.zeros_like(value), where=value > 0).max(initial=0.0))
        for value, change in moves
    )
    return min(1.0, 0.99 / shrink) if shrink > 0 else 1.0


def best_fixed(
    problem: GainOverheadProblem, arrivals: Ints, sample: int | None = None
) -> Comparator:
    """Best fixed decision y* of OGASched (6), held over all slots of arrivals x [T, L].

    One programme answers for all slots, so ``sample`` is not needed. The comparator's ``bounds``
    have the regret bound of OGASched (14).
    """
    # Rewards of a fixed decision add up: Σ_t q(x(t), y) = Σ_l n_l q_l(1, y).
    solution = solve(problem, arrivals.sum(axis=0))
    per_job_type = problem.by_job_type(solution.decision)
    slots = np.arange(len(arrivals))
    bounds = {"theorem-1": regret_bound(problem, len(arrivals))}
    return Comparator("best_fixed", slots, arrivals @ per_job_type, solution.gap, bounds)


def per_slot_optimum(
    problem: GainOverheadProblem, arrivals: Ints, sample: int | None = None
) -> Comparator:
    """Per-slot optimum: the best decision for the arrivals of each slot.

    Jobs last one slot, so the slots do not hang together and no policy of either timing can earn
    more. At most ``sample`` slots, evenly spaced, are evaluated; all of them when not given.
    """
    return optimum_of_each_slot(arrivals, sample, lambda pattern: solve(problem, pattern))


def in_run(comparator: Callable[..., Comparator]) -> Callable[..., Comparator]:
    """A comparator of a problem and its arrivals, on the slots of a run of an instance."""

    def found(instance: Any, slots: int, seed: int, sample: int | None = None) -> Comparator:
        # Only instances with gangs have a limit: their programmes have whole numbers.
        limit = {"time_limit": instance.time_limit} if hasattr(instance, "time_limit") else {}
        return comparator(instance.problem, instance.arrivals(slots, seed), sample, **limit)

    return found


best_fixed_in_run, per_slot_optimum_in_run = in_run(best_fixed), in_run(per_slot_optimum)


def optimum_of_each_slot(
    arrivals: Ints, sample: int | None, solve: Callable[[Ints], Any]
) -> Comparator:
    """``per_slot_optimum`` of any problem whose slots do not hang together.

    ``solve`` finds ``value`` and ``gap`` for the arrivals of a slot [L]; it is called once for each
    different pattern among the ``sample`` evenly spaced slots of ``arrivals`` [T, L].
    """
    slots = evenly_spaced(len(arrivals), sample)
    # Slots with the same arrivals share one programme.
    patterns, pattern_of = np.unique(arrivals[slots], axis=0, return_inverse=True)
    solutions = [solve(pattern) for pattern in patterns]
    pattern_of = pattern_of.ravel()
    rewards = np.array([solution.value for solution in solutions])[pattern_of]
    gaps = np.array([solution.gap for solution in solutions])[pattern_of]
    return Comparator("per_slot_optimum", slots, rewards, float(gaps.sum()))


def regret_bound(problem: GainOverheadProblem, slots: int) -> float:
    """Regret bound of OGASched (14), Theorem 1: reserve mode, step size of OGASched (26)."""
    return diameter(problem, as_printed=True) * gradient_bound(problem) * float(np.sqrt(slots))
