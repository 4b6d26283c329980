"""Gavel's shares against cvxpy, and its rounds in the simulation."""

from __future__ import annotations

from typing import Any, get_args

import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import linprog

from gangwise.core.errors import ScenarioError, UnknownName
from gangwise.jobs.audit import audit
from gangwise.jobs.gavel import Flat, Gavel, Objective, allocation, cheapest, water_filling
from gangwise.jobs.metrics import Outcome
from gangwise.jobs.model import Conditions, Jobs, Node, Nodes
from gangwise.jobs.schedule import Options
from gangwise.jobs.scheduler import create_scheduler
from gangwise.jobs.simulation import simulate_jobs
from gangwise.jobs.tenancy import AccountRule, Tenancy
from gangwise.logs.formats.training import GavelThroughputs
from tests.jobs.middle import MiddleCase


def drawn(seed: int, C: int = 0, G: int = 0) -> tuple[Any, ...]:
    rng = np.random.default_rng(seed)
    C, G = C or rng.integers(2, 6), G or rng.integers(1, 4)
    rates = rng.uniform(0.2, 2.0, (C, G)) * (rng.random((C, G)) < 0.85)
    rates[:, 0] = np.maximum(rates[:, 0], 0.1)
    count = rng.integers(1, 5, C)
    return rates, count, rng.integers(1, 4, C).astype(float), rng.integers(1, 9, G).astype(float)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("objective", get_args(Flat))
def test_shares_are_the_programmes_optimum(seed: int, objective: Any) -> None:
    given = drawn(seed)
    weight, age = np.random.default_rng(seed).uniform(1, 9, (2, given[1].size))
    assert near_optimum(objective, *given, weight, age)


@pytest.mark.parametrize("J", [32, *(pytest.param(J, marks=pytest.mark.full) for J in (64,))])
@pytest.mark.parametrize("objective", get_args(Objective))
def test_shares_on_measured_throughputs(J: int, objective: Any, traces: Any) -> None:
    """Of jobs drawn from Gavel's table; some run on two of its three kinds of GPUs alone."""
    table = GavelThroughputs(traces / "gavel-throughputs")
    rng = np.random.default_rng(J)
    jobs = [table.jobs[i] for i in rng.integers(len(table.jobs), size=J)]
    rates = np.array([[table.throughput.get((m, job), 0.0) for m in table.models] for job in jobs])
    devices, one = np.array([float(job.gpus) for job in jobs]), np.ones(J, np.int64)
    weight = rng.lognormal(9, 1.5, J) * rates.max(axis=1)
    given = rates, one, devices, np.full(3, J / 4)
    if objective == "cost":
        need = 0.3 * rates.max(axis=1) * (rng.random(J) < 0.3)
        assert -2e-4 <= compare_cost(*given, np.array([0.45, 1.46, 2.48]), need) - 1 <= 1e-4
    elif objective in get_args(Flat):
        assert near_optimum(objective, *given, weight, rng.uniform(0, 1e5, J))
    else:
        fifo = objective == "hierarchical-fifo"
        entities = rng.integers(0, 3, J), np.arange(1.0, 4.0)
        ours, theirs = compare_filled(*given, *entities, np.ones(J), fifo)
        assert ours == pytest.approx(theirs, abs=2e-4)


def near_optimum(objective: Any, *given: Any) -> bool:
    """Whether shares have the optimum that cvxpy finds."""
    rates, count, devices, capacity, weight, age = given
    shares = allocation(rates, count, devices, capacity, objective, weight, age)
    feasible(shares, rates, count, devices, capacity)
    alike = rates @ capacity / capacity.sum()
    x = cp.Variable(rates.shape, nonneg=True)
    allowed = [cp.sum(x, axis=1) <= 1, (count * devices) @ x <= capacity]
    allowed.append(cp.multiply(rates == 0, x) == 0)
    if objective == "max-min":
        normal = cp.multiply(devices / alike, cp.sum(cp.multiply(rates, x), axis=1))
        best = cp.Problem(cp.Maximize(cp.min(normal)), allowed).solve(solver=cp.CLARABEL)
        ours = (devices * (rates * shares).sum(axis=1) / alike).min()
        # The total has a small weight beside the least rate.
        return bool(best - 2e-3 <= ours <= best + 1e-6)
    if objective in ("makespan", "finish-time"):
        rate, speed = (rates * shares).sum(axis=1), cp.sum(cp.multiply(rates, x), axis=1)
        n_th = alike * np.minimum(1, capacity.sum() / (count.sum() * devices))
        before = age if objective == "finish-time" else 0 * age
        alone = before + weight / n_th if objective == "finish-time" else np.ones(count.size)
        ours = ((before + weight / rate) / alone).max()
        longest = cp.max((before + cp.multiply(weight, cp.inv_pos(speed))) / alone)
        best = cp.Problem(cp.Minimize(longest), allowed).solve(solver=cp.CLARABEL)
        return bool(best * (1 - 1e-6) <= ours <= best * (1 + 1e-4))
    worth = weight if objective == "fifo" else count
    own = 1 if objective == "throughput" else rates.max(axis=1, keepdims=True)
    part = rates / own * worth[:, None]
    best = cp.Problem(cp.Maximize(cp.sum(cp.multiply(part, x))), allowed)
    return bool((part * shares).sum() == pytest.approx(best.solve(solver=cp.CLARABEL), rel=1e-6))


def feasible(shares: Any, rates: Any, count: Any, devices: Any, capacity: Any) -> None:
    assert (shares.sum(axis=1) <= 1 + 1e-7).all()
    assert ((count * devices) @ shares <= capacity + 1e-6).all()
    assert (shares[rates == 0] == 0).all()


@pytest.mark.parametrize(("seed", "C", "G"), [(0, 0, 0), (1, 0, 0), (2, 12, 3), (3, 60, 4)])
@pytest.mark.parametrize("urgent", [0.0, 0.2, 5.0])
def test_cost_is_the_linear_fractional_optimum(seed: int, C: int, G: int, urgent: float) -> None:
    """Against Charnes and Cooper's linear programme; with ``urgent`` 5 more than there is."""
    rates, count, devices, capacity = drawn(seed, C, G)
    rng = np.random.default_rng(seed)
    price = rng.uniform(0.1, 3.0, capacity.size)
    need = (
        urgent * rates.max(axis=1) * rng.uniform(0, 1, count.size) * (rng.random(count.size) < 0.5)
    )
    need *= min(1.0, capacity.sum() / (count * devices).sum()) * 0.5
    assert -2e-4 <= compare_cost(rates, count, devices, capacity, price, need) - 1 <= 1e-4


def compare_cost(*given: Any) -> float:
    """Throughput per cost, over the optimum of Charnes and Cooper's linear programme."""
    rates, count, devices, capacity, price, need = given
    shares = cheapest(*given)
    feasible(shares, rates, count, devices, capacity)
    x, s = cp.Variable(rates.shape, nonneg=True), cp.Variable(nonneg=True)
    limits = [cp.sum(x, axis=1) <= s, (count * devices) @ x <= capacity * s]
    limits.append(cp.multiply(rates == 0, x) == 0)
    rate = cp.sum(cp.multiply(rates, x), axis=1)
    if (some := need > 0).any():
        part = cp.Problem(cp.Maximize(cp.min(rate[some] / need[some])), [*limits, s == 1])
        need = need * min(part.solve(solver=cp.CLARABEL), 1.0)
        assert ((rates * shares).sum(axis=1) >= need * (1 - 1e-5)).all()
    paid = np.outer(count * devices, price)
    best = cp.Problem(
        cp.Maximize(count @ rate), [*limits, rate >= need * s, cp.sum(cp.multiply(paid, x)) == 1]
    ).solve(solver=cp.CLARABEL)
    return (count @ (rates * shares).sum(axis=1)) / (paid * shares).sum() / best


def test_cost_of_what_is_free() -> None:
    """All free: the largest throughput; one generation free: all of that, and nothing else."""
    rates, count, devices, capacity = drawn(5, 12, 3)
    none = np.zeros(12)
    for price in (np.zeros(3), np.array([0.0, 1.0, 2.0])):
        shares = cheapest(rates, count, devices, capacity, price, none)
        feasible(shares, rates, count, devices, capacity)
        free = rates * (price == 0)
        most = allocation(free, count, devices, capacity, "throughput")
        assert (count @ (rates * shares)).sum() == pytest.approx((count @ (free * most)).sum())
        assert (shares[:, price > 0] == 0).all()


def filled(
    rates: Any, count: Any, devices: Any, capacity: Any, who: Any, weight: Any, part: Any, fifo: Any
) -> Any:
    """Water filling by brute force: whether a class can gain more is a programme of its own."""
    C, G = rates.shape
    alike = np.maximum(rates @ capacity / capacity.sum(), 1e-300)
    of_class = np.kron(np.eye(C), np.ones((1, G)))
    fair = of_class * (devices[:, None] * rates / alike[:, None]).ravel()
    rows = np.vstack([of_class, np.kron(count * devices, np.eye(G)), -fair])
    most = np.concatenate([np.ones(C), capacity])
    level, done = np.zeros(C), ~rates.any(axis=1)
    while not done.all():
        w = np.zeros(C)
        for e in set(who.tolist()):
            jobs = [c for c in range(C) if who[c] == e and not done[c]][: 1 if fifo else C]
            for c in jobs:
                w[c] = weight[e] * part[c] / sum(count[i] * part[i] for i in jobs)
        with_z = np.hstack([rows, np.append(np.zeros(C + G), w)[:, None]])
        top = np.append(np.zeros(C * G), -1.0)
        level -= w * linprog(top, with_z, np.append(most, -level)).fun
        for c in np.flatnonzero(w):
            alone = linprog(-fair[c], rows, np.append(most, -level))
            done[c] = -alone.fun < level[c] + 1e-4
    return level


@pytest.mark.parametrize(
    ("seed", "C", "G"), [(0, 0, 0), (1, 0, 0), (2, 0, 0), (3, 12, 3), (4, 60, 4)]
)
@pytest.mark.parametrize("fifo", [False, True])
def test_hierarchical_shares_are_water_filled(seed: int, C: int, G: int, fifo: bool) -> None:
    rates, count, devices, capacity = drawn(seed, C, G)
    rng = np.random.default_rng(seed)
    C, count = count.size, np.ones_like(count) if fifo else count
    who, weight = rng.integers(0, 3, C), rng.integers(1, 4, 3).astype(float)
    rates[who == 2] *= seed % 2  # nothing of the last entity fits
    part = np.ones(C) if fifo else rng.integers(1, 3, C).astype(float)
    ours, theirs = compare_filled(rates, count, devices, capacity, who, weight, part, fifo)
    assert ours == pytest.approx(theirs, abs=2e-4)


def compare_filled(*given: Any) -> tuple[Any, Any]:
    """What shares of time fill, and what brute force fills."""
    rates, count, devices, capacity, *_ = given
    shares = water_filling(*given)
    feasible(shares, rates, count, devices, capacity)
    alike = np.maximum(rates @ capacity / capacity.sum(), 1e-300)
    ours = devices * (rates * shares).sum(axis=1) / alike
    return ours, filled(*given)


def two_generations() -> Nodes:
    return Nodes.of(
        [
            Node("fast", {"gpu": 1}, {"model": "new"}, rate={"picky": 4.0, "easy": 1.2}),
            Node("slow", {"gpu": 1}, {"model": "old"}, rate={"picky": 1.0, "easy": 1.0}),
        ]
    )


def test_each_generation_goes_to_whoever_gains_most_from_it() -> None:
    jobs = Jobs.of([0, 0], [1200, 1200], 1, {"gpu": 1}, type=["easy", "picky"])
    nodes = two_generations()
    rates = nodes.declared(jobs.types)
    schedule = simulate_jobs(
        jobs, nodes, Gavel("total"), Conditions(rates=rates), Options(limits="work")
    )
    assert {jobs.types[jobs.type[j]]: schedule.placed(j) for j in range(2)} == {
        "picky": [(0, 1)],
        "easy": [(1, 1)],
    }
    assert schedule.end[jobs.type == jobs.types.index("picky")] == [300.0]


def test_rounds_share_one_device_among_two_jobs() -> None:
    """Max-min: each has it half of the time, in rounds; without rounds one waits for the other."""
    jobs = Jobs.of([0, 0], [3600, 3600], 1, {"gpu": 1})
    one = Nodes.of([Node("only", {"gpu": 1})])
    shared = simulate_jobs(jobs, one, Gavel(seconds=360.0), None, Options(limits="work"))
    assert shared.counts["preemptions"] >= 10
    assert sorted(shared.end) == [pytest.approx(6840.0, abs=360.0), 7200.0]
    alone = simulate_jobs(jobs, one, Gavel(seconds=np.inf), None, Options(limits="work"))
    assert alone.counts["preemptions"] == 0
    assert alone.end.tolist() == [3600.0, 7200.0]


@pytest.mark.full
@pytest.mark.parametrize(
    ("objective", "seed"),
    [
        *((objective, seed) for objective in ("max-min", "total", "fifo") for seed in range(2)),
        *((objective, 0) for objective in get_args(Objective)[3:]),
    ],
)
def test_every_job_ends_once_whatever_fails(objective: Any, seed: int) -> None:
    """Gangs, constraints, a node that fails and returns; the simulation checks the books."""
    rng = np.random.default_rng(seed)
    J = 24
    jobs = Jobs.of(
        rng.integers(0, 2400, J),
        rng.integers(0, 3000, J),
        rng.integers(1, 4, J),
        {"gpu": rng.integers(1, 3, J)},
        type=rng.choice(["a", "b"], J),
        constraint=[{"model": "new"} if rng.random() < 0.2 else {} for _ in range(J)],
    )
    nodes = Nodes.of(
        [
            Node(
                f"n{i}", {"gpu": 4}, {"model": "new" if i < 2 else "old"}, rate=1.0 - 0.5 * (i > 1)
            )
            for i in range(4)
        ]
    )
    conditions = Conditions(rates=nodes.declared(jobs.types), downs=[(500.0, 1)], ups=[(2500.0, 1)])
    options = Options(limits="work", restart=30.0, checkpoint=100.0)
    runs = [
        simulate_jobs(jobs, nodes, Gavel(objective, 200.0), conditions, options) for _ in range(2)
    ]
    assert np.isfinite(runs[0].end).all()
    assert (runs[0].end == runs[1].end).all()
    assert len(runs[0].account.set_aside) == 0


@pytest.mark.parametrize(
    ("objective", "ends"),
    [
        # Half of the device each until the short one ends; together they always end at 1200.
        ("max-min", [600, 1200]),
        # Shares of a quarter and three quarters: both end near 1200.
        ("makespan", [1100, 1200]),
        # Both have half of the time that they would have alone.
        ("finish-time", [600, 1200]),
    ],
)
def test_makespan_gives_the_long_job_the_larger_share(objective: Any, ends: list[float]) -> None:
    jobs = Jobs.of([0, 0], [300, 900], 1, {"gpu": 1})
    one = Nodes.of([Node("only", {"gpu": 1})])
    options = Options(limits="work", restart=0.0)
    played = simulate_jobs(jobs, one, Gavel(objective, 10.0), None, options)
    assert played.end == pytest.approx(ends, abs=100.0)


def priced(*prices: str) -> Nodes:
    """Of a dear node that is twice as fast and cheap ones."""
    labels = [{"price": price} for price in prices]
    return Nodes.of(
        [Node(f"n{n}", {"gpu": 1}, has, 1.0 + (n == 0)) for n, has in enumerate(labels)]
    )


@pytest.mark.parametrize(
    ("deadline", "price", "on"),
    [
        (np.inf, "3", [1, 1]),  # work costs 1.5 times as much on the fast node: it stays idle
        (np.inf, "1", [0, 0]),
        (np.inf, "0", [0, 0]),
        (3000.0, "3", [0, 1]),  # the cheap node alone would be in time for one of them
        (1000.0, "3", [1, 1]),  # out of reach: the deadlines are given up
    ],
)
def test_cost_leaves_dear_nodes_idle_but_for_deadlines(
    deadline: float, price: str, on: list[int]
) -> None:
    jobs = Jobs.of([0, 0], [2400, 2400], 1, {"gpu": 1}, deadline=deadline)
    nodes = priced(price, "1")
    rates = Conditions(rates=nodes.declared(jobs.types))
    options = Options(limits="work", restart=0.0)
    played = simulate_jobs(jobs, nodes, Gavel("cost"), rates, options)
    assert sorted(played.placed(j)[-1][0] for j in range(2)) == on
    assert (played.end <= deadline).all() == (deadline != 1000.0)


@pytest.mark.parametrize(
    ("objective", "ends"),
    [
        # A quarter and three quarters of the time until b ends; then a has it all.
        ("hierarchical", [7200, 7200, 3200]),
        ("hierarchical-fifo", [4800, 7200, 3200]),
    ],
)
def test_accounts_share_by_weight(objective: Any, ends: list[float]) -> None:
    jobs = Jobs.of([0] * 3, [2400, 2400, 2400], 2, {"gpu": 1}, charged=["a", "a", "b"])
    tenancy = Tenancy(accounts=(AccountRule(name="a"), AccountRule(name="b", shares=3)))
    options = Options(limits="work", restart=0.0, tenancy=tenancy)
    nodes = Nodes.alike(2, {"gpu": 1})
    played = simulate_jobs(jobs, nodes, Gavel(objective, 120.0), None, options)
    assert played.end == pytest.approx(ends, abs=240.0)


def test_names_and_bad_arguments() -> None:
    assert create_scheduler("gavel:objective=fifo,seconds=900") == Gavel("fifo", 900)
    assert create_scheduler("gavel:seconds=inf") == Gavel(seconds=np.inf)
    for price in ("dear", "-1", "nan"):
        with pytest.raises(ScenarioError, match="prices"):
            simulate_jobs(Jobs.of([0], [9], 1, {"gpu": 1}), priced(price), Gavel("cost"), None)
    with pytest.raises(UnknownName, match="'fair'"):
        Gavel("fair")
    with pytest.raises(ScenarioError, match="seconds"):
        Gavel(seconds=0)


@pytest.mark.parametrize(
    "name",
    [
        "las:thresholds=(20,100),pause=5",
        *(f"gavel:objective={o},seconds=60" for o in ("max-min", "cost")),
    ],
)
def test_gangs_of_unlike_tasks_start_whole_among_others(name):
    """The auditor, which counts devices group by group, finds no fault, and all are played."""
    played = preempted = 0
    for seed in (6, 108, 138, 156, 192, 384):  # in which jobs of unlike tasks can start
        case = MiddleCase(seed, names=("fcfs", "none", "first-fit"), small=True, unlike=True)
        able = np.isfinite(case.played().start) & (case.jobs.after_from[1:] == 0)
        schedule = simulate_jobs(
            case.jobs, case.nodes, name, case.conditions, case.options, engine="plain"
        )
        found = audit(Outcome.of(schedule, ""), None, case.conditions, case.options)
        assert found.findings == [], (seed, [str(f) for f in found.findings[:3]])
        assert np.isfinite(schedule.start[able]).all(), seed
        played += int((case.jobs.grouped & np.isfinite(schedule.start)).sum())
        preempted += int((schedule.last_start > schedule.start)[case.jobs.grouped].sum())
    assert played > 5
