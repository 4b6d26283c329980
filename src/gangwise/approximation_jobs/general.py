"""The general setting, OPM §V-C: demands r_j, capacities C_i, at most u_j tasks of a job at once.

As :class:`~gangwise.approximation_jobs.opm.OPM`, but the shares of a slot are projected onto
OPM (102) and OPM (103) and rounded together.

*Projection*, OPM (P5):

    minimise ½ Σ (z − y)²   over 0 ≤ z ≤ 1,  Σ_j r_j z_ji ≤ C_i,  Σ_i z_ji ≤ u_j.

The optimum is z_ji = clip(y_ji − r_j η_i − ν_j, 0, 1) with prices η_i ≥ 0 of machines and ν_j ≥ 0
of jobs. Given ν each η_i is the root of a piecewise linear, never increasing function of one
variable, and the other way round: taking them in turns is exact block-coordinate ascent of the
concave dual, which converges.

*Rounding*. The paper asks for integral x̃ with E[x̃] = x that keeps OPM (102), Σ_j r_j x̃_ji ≤ C_i,
and OPM (103), Σ_i x̃_ji ≤ u_j, and refers to a general scheme. There is none: for r = (0.6, 0.6)
and C = 1 the plan x = (5/6, 5/6) keeps (102), but integral points that do have one task at most,
and so do their means (:data:`IMPOSSIBLE`). What can be had is E[x̃] = x, (103), and loads that
exceed the *planned* ones by one task at most. So the plan is made for smaller machines
(:func:`plan_capacity`) and rounded by random cycle cancelling. The plan is a flow: source → job →
(job, machine) → slot of the machine → machine → sink → source. Amounts are integers in units of
2^-FRACTION, so that nothing drifts. An edge whose amount is not whole is *open*. Where a node has
one open edge it has two, since what comes in goes out, so walking along open edges closes a cycle.
Around it the amounts go up or down as far as no edge passes a whole number, up with probability
(room down) / (room up + room down): the expected amount of every edge stays what it was, its floor
and ceiling stay its bounds, and an edge at least becomes whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from gangwise.approximation_jobs.environment import Observation
from gangwise.approximation_jobs.opm import Paced
from gangwise.approximation_jobs.problem import SLACK, ApproximationProblem, relative
from gangwise.core.arrays import Floats, Ints
from gangwise.core.errors import ScenarioError
from gangwise.core.jit import kernel
from gangwise.estimators import Estimator

# Projection, OPM (P5)

TOLERANCE = 1e-10
SWEEPS = 2000


@kernel
def root_price(
    y: Floats, weight: Floats, shift: Floats, scale: float, limit: float, start: float
) -> float:
    """Price of one constraint of OPM (P5): the least p ≥ 0 that keeps it.

    Σ_k w_k clip(y_k - s x_k - w_k p, 0, 1) ≤ limit; s is ``scale``, x ``shift``. Newton's method
    from ``start``, kept inside a bracket.
    """
    left, high, slope = -limit, 0.0, 0.0
    for k in range(y.size):
        z = y[k] - scale * shift[k]
        if z > 0.0:
            left += weight[k] * min(z, 1.0)
            high = max(high, z / weight[k])
    if left <= 0.0:
        return 0.0
    low, p = 0.0, start
    if not 0.0 < p < high:
        p = 0.5 * high
    for _ in range(120):
        left, slope = -limit, 0.0
        for k in range(y.size):
            z = y[k] - scale * shift[k] - weight[k] * p
            if z >= 1.0:
                left += weight[k]
            elif z > 0.0:
                left += weight[k] * z
                slope += weight[k] * weight[k]
        if left > 0.0:
            low = p
        else:
            high = p
        newton = p + left / slope if slope > 0.0 else -1.0
        if abs(left) <= 4e-15 * (1.0 + limit) or high - low <= 1e-16 * (1.0 + high):
            return p
        p = newton if low < newton < high else 0.5 * (low + high)
    return high


@kernel
def alternate_prices(
    y: Floats,
    turned: Floats,
    demand: Floats,
    capacity: Floats,
    limit: Floats,
    ones: Floats,
    eta: Floats,
    nu: Floats,
    sweeps: int,
    tolerance: float,
) -> int:
    """Block-coordinate ascent of OPM (P5): prices in turns; returns the sweeps.

    It ends when no ν moves by more than ``tolerance``. ``y`` [J, M] and ``turned`` [M, J] hold the
    same numbers; ``eta`` [M] and ``nu`` [J] hold the prices to begin with and receive those found;
    ``ones`` [M] is filled with 1.
    """
    J, M = y.shape
    for sweep in range(sweeps):
        for i in range(M):
            eta[i] = root_price(turned[i], demand, nu, 1.0, capacity[i], eta[i])
        moved = 0.0
        for j in range(J):
            before = nu[j]
            nu[j] = root_price(y[j], ones, eta, demand[j], limit[j], before)
            moved = max(moved, abs(nu[j] - before))
        if moved <= tolerance:
            return sweep + 1
    return sweeps + 1


@kernel
def projected_entries(
    y: Floats,
    demand: Floats,
    capacity: Floats,
    limit: Floats,
    eta: Floats,
    nu: Floats,
    load: Floats,
    z: Floats,
) -> float:
    """Fill ``z`` [J, M] from the prices; what is over by rounding is scaled away.

    Returns the largest excess that there was. ``load`` [M] is overwritten.
    """
    J, M = y.shape
    worst = 0.0
    for i in range(M):
        load[i] = 0.0
    for j in range(J):
        total = 0.0
        for i in range(M):
            z[j, i] = min(max(y[j, i] - demand[j] * eta[i] - nu[j], 0.0), 1.0)
            total += z[j, i]
        if total > limit[j]:
            worst = max(worst, total - limit[j])
            for i in range(M):
                z[j, i] *= limit[j] / total
        for i in range(M):
            load[i] += demand[j] * z[j, i]
    for i in range(M):
        if load[i] > capacity[i]:
            worst = max(worst, load[i] - capacity[i])
            for j in range(J):
                z[j, i] *= capacity[i] / load[i]
    return worst


class Projection(NamedTuple):
    """The nearest plan [J, M], the prices η [M] and ν [J] that make it so, and the sweeps taken."""

    plan: Floats
    eta: Floats
    nu: Floats
    sweeps: int


def project_general(
    y: npt.ArrayLike,
    demand: npt.ArrayLike,
    capacity: npt.ArrayLike,
    limit: npt.ArrayLike,
    eta: Floats | None = None,
    nu: Floats | None = None,
) -> Projection:
    """Projection OPM (P5) of y [J, M]: onto 0 ≤ z ≤ 1, OPM (102) and OPM (103).

    y is -inf where a job must have nothing; demands r [J] are positive, capacities C [M] and limits
    u [J] not negative (ScenarioError). ``eta`` and ``nu`` are prices to begin with; those of the
    last slot save most of the work.

    Examples
    --------
    >>> project_general([[0.9], [0.9]], [1.0, 2.0], [1.0], [1.0, 1.0]).plan.ravel().round(12)
    array([0.56, 0.22])
    """
    y = np.ascontiguousarray(np.array(y, dtype=np.float64, ndmin=2))
    J, M = y.shape
    r, C, u = (np.ascontiguousarray(a, dtype=np.float64) for a in (demand, capacity, limit))
    if r.shape != (J,) or C.shape != (M,) or u.shape != (J,):
        raise ScenarioError(
            f"{J} jobs and {M} machines need {J} demands and limits and {M} capacities; got "
            f"{r.shape}, {u.shape} and {C.shape}"
        )
    if not (r > 0).all() or not (C >= 0).all() or not (u >= 0).all():
        raise ScenarioError("demands must be positive; capacities and limits must not be negative")
    eta = np.zeros(M) if eta is None else eta.copy()
    nu = np.zeros(J) if nu is None else nu.copy()
    plan = np.empty((J, M))
    turned = np.ascontiguousarray(y.T)
    sweeps = alternate_prices(y, turned, r, C, u, np.ones(M), eta, nu, SWEEPS, TOLERANCE)
    projected_entries(y, r, C, u, eta, nu, np.empty(M), plan)
    return Projection(plan, eta, nu, int(sweeps))


# Rounding

FRACTION = 40
UNIT = 1 << FRACTION
IMPOSSIBLE = {"demand": (0.6, 0.6), "capacity": 1.0, "plan": (5 / 6, 5 / 6)}
"""A plan that keeps (102) and is no mean of integral points that do."""


@kernel
def build_flow(
    amount: Ints,
    order: Ints,
    tail: Ints,
    head: Ints,
    flow: Ints,
    total: Ints,
    held: Ints,
    pair: Ints,
    sizes: Ints,
) -> None:
    """Flow of the open part of a plan, as edges between nodes.

    ``amount`` [J, M] is the plan in units; ``order`` [J] lists the jobs by falling demand. On each
    machine their amounts are poured into slots of one unit, one after the other (Shmoys, Tardos).
    Nodes: source 0, sink 1, jobs from 2, machines from 2 + J, then pairs and slots as they come.
    Whole entries are left out: their machines' other slots do not need them. ``pair`` receives
    j M + i of each (job, machine) edge, -1 for others; ``sizes`` the number of edges and nodes.
    """
    J, M = amount.shape
    edges, nodes, whole = 0, 2 + J + M, 0
    for j in range(J):
        total[j] = 0
    for i in range(M):
        held[i] = 0
        room, slot, content = 0, -1, 0
        for n in range(J):
            j = order[n]
            x = amount[j, i]
            if x <= 0 or x >= UNIT:
                continue
            total[j] += x
            held[i] += x
            middle = nodes
            nodes += 1
            tail[edges], head[edges], flow[edges], pair[edges] = 2 + j, middle, x, j * M + i
            edges += 1
            while x > 0:
                if room == 0:
                    if slot >= 0:
                        tail[edges], head[edges] = slot, 2 + J + i
                        flow[edges], pair[edges] = content, -1
                        edges += 1
                    slot, room, content = nodes, UNIT, 0
                    nodes += 1
                part = min(x, room)
                tail[edges], head[edges], flow[edges], pair[edges] = middle, slot, part, -1
                edges += 1
                x -= part
                room -= part
                content += part
        if slot >= 0:
            tail[edges], head[edges], flow[edges], pair[edges] = slot, 2 + J + i, content, -1
            edges += 1
    for j in range(J):
        if total[j] > 0:
            tail[edges], head[edges], flow[edges], pair[edges] = 0, 2 + j, total[j], -1
            whole += total[j]
            edges += 1
    for i in range(M):
        if held[i] > 0:
            tail[edges], head[edges], flow[edges], pair[edges] = 2 + J + i, 1, held[i], -1
            edges += 1
    tail[edges], head[edges], flow[edges], pair[edges] = 1, 0, whole, -1
    sizes[0], sizes[1] = edges + 1, nodes


@kernel
def cancel_cycles(
    tail: Ints,
    head: Ints,
    flow: Ints,
    start: Ints,
    size: Ints,
    edge: Ints,
    came: Ints,
    path: Ints,
    uniforms: Floats,
    chances: Floats,
) -> int:
    """Random cycle cancelling until every amount is whole; returns how many cycles there were.

    ``edge`` lists the edges at each node n from ``start[n]`` on, ``size[n]`` of them; both change.
    ``came`` [nodes] is -1 everywhere, and is left so. Cycle c goes up where ``uniforms[c]`` is
    below its chance, which is written to ``chances[c]``.
    """
    cycles = 0
    length = 0
    node = 0
    origin = 0
    while True:
        if length == 0:  # begin somewhere with an open edge
            while origin < size.size:
                while size[origin] > 0 and flow[edge[start[origin] + size[origin] - 1]] % UNIT == 0:
                    size[origin] -= 1
                if size[origin] > 0:
                    break
                origin += 1
            if origin == size.size:
                return cycles
            node = origin
            came[node] = 0
        before = path[length - 1] if length > 0 else -1
        following = -1
        k = start[node] + size[node] - 1
        while k >= start[node]:
            e = edge[k]
            if flow[e] % UNIT == 0:  # no longer open: the last edge of the node takes its place
                size[node] -= 1
                edge[k] = edge[start[node] + size[node]]
            elif e != before:
                following = e
                break
            k -= 1
        path[length] = following
        length += 1
        node = tail[following] + head[following] - node
        if came[node] < 0:
            came[node] = length
            continue
        first = came[node]  # the cycle is path[first:length], beginning and ending at this node
        up, down, at = UNIT, UNIT, node
        for n in range(first, length):
            e = path[n]
            above = flow[e] % UNIT
            if tail[e] == at:
                up, down = min(up, UNIT - above), min(down, above)
            else:
                up, down = min(up, above), min(down, UNIT - above)
            at = tail[e] + head[e] - at
        chances[cycles] = down / (up + down)
        step = up if uniforms[cycles] < chances[cycles] else -down
        cycles += 1
        at = node
        for n in range(first, length):
            e = path[n]
            if tail[e] == at:
                flow[e] += step
            else:
                flow[e] -= step
            at = tail[e] + head[e] - at
            if n < length - 1:
                came[at] = -1
        # What leads to the cycle is still open, and is walked on from.
        length = first
        if length == 0:
            came[node] = -1


def plan_capacity(capacity: npt.ArrayLike, demand: npt.ArrayLike) -> Floats:
    """Capacities to plan with, so that rounded plans keep OPM (102) with the real ones, C [M].

    Of the demands r [J], positive, that fit a machine: if they are equal, r ⌊C / r⌋, and nothing is
    lost; otherwise C less the largest. Jobs that do not fit a machine must not be planned on it.

    Examples
    --------
    >>> plan_capacity([1.7, 1.0], [0.5, 0.5]), plan_capacity([1.7, 1.0], [0.5, 0.3])
    (array([1.5, 1. ]), array([1.2, 0.5]))
    """
    C, r = np.asarray(capacity, dtype=np.float64), np.asarray(demand, dtype=np.float64)
    if not r.size:
        return np.zeros_like(C)
    if not (r > 0).all():
        raise ScenarioError(f"demands must be positive; the smallest is {r.min()}")
    sizes = np.unique(r)
    largest = np.searchsorted(sizes, C * (1 + 1e-12), side="right") - 1
    fitting = sizes[np.maximum(largest, 0)]
    equal = np.floor(C / fitting * (1 + 1e-12)) * fitting
    planned = np.where(largest == 0, np.minimum(equal, C), C - fitting)
    return np.where(largest < 0, 0.0, np.maximum(planned, 0.0))


def round_dependent(
    plan: npt.ArrayLike, demand: npt.ArrayLike, rng: np.random.Generator
) -> npt.NDArray[np.bool_]:
    """Dependent rounding of a fractional plan x [J, M] to tasks, OPM §V-C.

    Guarantees: E[x̃] = x, up to 2⁻⁴⁰; the number of tasks of a job is ⌊Σ_i x_ji⌋ or ⌈Σ_i x_ji⌉, so
    OPM (103) holds for whole u_j; the load of a machine exceeds Σ_j r_j x_ji by at most the largest
    demand on it, and its number of tasks is rounded down or up. ScenarioError for an entry outside
    [0, 1].

    Examples
    --------
    >>> plan = np.full((2, 3), 0.5)
    >>> tasks = round_dependent(plan, [1.0, 1.0], np.random.default_rng(0))
    >>> tasks.sum(axis=0), set(tasks.sum(axis=1).tolist()) <= {1, 2}
    (array([1, 1, 1]), True)
    """
    x = np.asarray(plan, dtype=np.float64)
    if not ((x >= -1e-9) & (x <= 1 + 1e-9)).all():
        worst = x.ravel()[np.argmax(np.abs(x - 0.5))]
        raise ScenarioError(f"a plan to round lies in [0, 1]; found {worst}")
    tasks, _ = rounded(x, np.asarray(demand, dtype=np.float64), rng)
    return tasks


def rounded(
    plan: Floats, demand: Floats, uniforms: np.random.Generator | Floats
) -> tuple[npt.NDArray[np.bool_], Floats]:
    """The tasks, and the chance with which each cycle went up; ``uniforms`` decide for them."""
    unit = 1 << FRACTION
    amount = np.floor(np.clip(plan, 0.0, 1.0) * unit).astype(np.int64)
    tasks: npt.NDArray[np.bool_] = amount >= unit
    J, M = amount.shape
    entries = int(((amount > 0) & (amount < unit)).sum())
    if not entries:
        return tasks, np.zeros(0)
    # A machine has at most one slot more than pairs, and every slot splits one pair at most.
    most = 4 * entries + J + M + 1
    tail, head, flow, pair = (np.empty(most, dtype=np.int64) for _ in range(4))
    total, held, sizes = (np.zeros(n, dtype=np.int64) for n in (J, M, 2))
    order = np.argsort(-demand, kind="stable")
    build_flow(amount, order, tail, head, flow, total, held, pair, sizes)
    edges, nodes = int(sizes[0]), int(sizes[1])
    ends = np.concatenate((tail[:edges], head[:edges]))
    edge = np.argsort(ends, kind="stable") % edges
    size = np.bincount(ends, minlength=nodes)
    start = np.concatenate(([0], np.cumsum(size)[:-1]))
    chances = np.zeros(edges)
    if isinstance(uniforms, np.random.Generator):
        uniforms = uniforms.random(edges)
    cycles = cancel_cycles(
        tail,
        head,
        flow,
        start,
        size,
        edge,
        np.full(nodes, -1),
        np.empty(nodes + 1, np.int64),
        uniforms,
        chances,
    )
    chosen = pair[:edges][(pair[:edges] >= 0) & (flow[:edges] >= unit)]
    tasks.ravel()[chosen] = True
    return tasks, chances[:cycles]


# The policy


@dataclass
class OPMGeneral(Paced):
    """OPM in the general setting, OPM §V-C: shares for machines with capacities, rounded to tasks.

    Runs on problems without capacities too, as machines that hold one task; there
    :class:`~gangwise.approximation_jobs.opm.OPM` does the same faster.

    Parameters
    ----------
    estimator, objective, pacing, alpha, dual, floor, gamma, kappa, window, tau, rate
        As for OPM.
    headroom : {"plan", "none"}
        Plan with :func:`~gangwise.approximation_jobs.general.plan_capacity`, or with all of C_i
        and drop tasks that do not fit after rounding, smallest demand first, which is biased.

    Notes
    -----
    Draws are fresh in every slot: coupling consecutive draws of this rounding is not known.

    Examples
    --------
    >>> from gangwise.approximation_jobs.environment import ApproximationInstance
    >>> from gangwise.approximation_jobs.problem import Job
    >>> from gangwise.approximation_jobs.rates import IidRates
    >>> from gangwise.approximation_jobs.workloads import ReplayedJobs
    >>> from gangwise import simulate
    >>> problem = ApproximationProblem([1.0, 1.0], capacity=[1.0, 0.5])
    >>> jobs = [Job(0, 0, 20, 30.0, demand=0.5, parallelism=2)]
    >>> instance = ApproximationInstance(problem, IidRates([0.9, 0.9]), ReplayedJobs(jobs))
    >>> run = simulate(instance, OPMGeneral(), slots=20, seed=0)
    >>> float(run.metrics["cost"].sum()) <= 30.0
    True
    """

    estimator: str | Estimator = "decay"
    objective: Literal["total", "average"] = "total"
    pacing: Literal["left", "even"] = "left"
    headroom: Literal["plan", "none"] = "plan"
    alpha: float = 0.3
    dual: float = 0.4
    floor: float = 0.03
    gamma: float = 1.0
    kappa: float = 0.5
    window: int = 20
    tau: float = 30.0
    rate: float = 0.7

    def __post_init__(self) -> None:
        self._check(("dual",), headroom=("plan", "none"))

    def start(self, problem: ApproximationProblem, rng: np.random.Generator) -> None:
        self._problem, M = problem, problem.M
        self._rng, for_estimates = rng.spawn(2)
        self._rates = self._estimator(self.gamma)
        self._rates.start(M, for_estimates)
        self._mu = self.dual / (self.alpha * float(problem.prices @ problem.prices))
        self._price = float(problem.prices.mean())
        self._shares, self._eta = np.zeros((0, M)), np.zeros(M)
        self._omega, self._nu = np.zeros(0), np.zeros(0)

    def decide(self, observation: Observation) -> npt.NDArray[np.integer]:
        """Tasks of this slot: 0 or 1, int64 [C, M]; without capacities a table row per machine."""
        problem, jobs = self._problem, observation.jobs
        rows = self._turnover(observation)
        tasks = np.zeros((jobs.size, problem.M), dtype=np.int64)
        if rows.size:
            y = self._ascend(observation, rows)
            tasks[rows] = self._place(observation, rows, y)
        if problem.capacity is not None:
            return tasks
        held = tasks.any(axis=0) if jobs.size else np.zeros(problem.M, dtype=bool)
        first = tasks.argmax(axis=0) if jobs.size else np.zeros(problem.M, dtype=np.int64)
        return np.where(held, first, -1)

    def _turnover(self, observation: Observation) -> Ints:
        """Forget rows that changed hands; the rows of jobs that can still pay for a task."""
        jobs, problem = observation.jobs, self._problem
        more = jobs.size - len(self._shares)
        if more > 0:
            self._shares = np.concatenate((self._shares, np.zeros((more, problem.M))))
            self._omega = np.concatenate((self._omega, np.zeros(more)))
            self._nu = np.concatenate((self._nu, np.zeros(more)))
        for changed in (observation.departed, observation.arrived):
            self._shares[changed] = 0.0
            self._omega[changed] = self._nu[changed] = 0.0
        rows = jobs.rows
        there = problem.prices[observation.available]
        if problem.enforce and there.size:
            poor = jobs.budget[rows] * (1 + SLACK) < jobs.cost[rows] + there.min()
            self._shares[rows[poor]] = 0.0
            rows = rows[~poor]
        return rows

    def _ascend(self, observation: Observation, rows: Ints) -> Floats:
        """Unprojected shares OPM (69), with the multipliers OPM (73), shape [n, M]."""
        jobs, t, prices = observation.jobs, observation.slot, self._problem.prices
        g = self._mu * (self._shares[rows] @ prices - self._target(jobs, rows, t))
        self._omega[rows] = np.maximum(-g, self._omega[rows] + g)
        multipliers = self._omega[rows] + g
        slopes = self._slopes(jobs, rows, t, jobs.work)
        gains = np.outer(relative(slopes), self._rates.estimate(t))
        return self._shares[rows] + self.alpha * (gains - np.outer(multipliers, prices))

    def _place(self, observation: Observation, rows: Ints, y: Floats) -> npt.NDArray[np.bool_]:
        problem, listed = self._problem, [observation.jobs.jobs[j] for j in rows]
        M = problem.M
        demand, limit = np.ones(rows.size), np.full(rows.size, float(M))
        capacity = np.ones(M)
        if problem.capacity is not None:
            capacity = problem.capacity
            demand = np.array([job.demand for job in listed if job is not None])
            most = [M if job is None else job.parallelism or M for job in listed]
            limit = np.array(most, dtype=np.float64)
        y = np.where(demand[:, None] <= capacity * (1 + 1e-12), y, -np.inf)
        y[:, ~observation.available] = -np.inf
        planned = plan_capacity(capacity, demand) if self.headroom == "plan" else capacity
        found = project_general(y, demand, planned, limit, self._eta, self._nu[rows])
        self._eta, self._nu[rows], self._shares[rows] = found.eta, found.nu, found.plan
        tasks = round_dependent(found.plan, demand, self._rng)
        if self.headroom == "none":
            order = np.argsort(-demand, kind="stable")
            load = np.cumsum(tasks[order] * demand[order, None], axis=0)
            tasks[order] &= load <= capacity * (1 + 1e-12)
        return tasks
