"""Gavel's shares against cvxpy, and its rounds in the simulation."""

from __future__ import annotations

from typing import Any, get_args

import cvxpy as cp
import numpy as np
import pytest

from gangwise.core.errors import ScenarioError
from gangwise.jobs.gavel import Gavel, Objective, allocation
from gangwise.jobs.model import Conditions, Jobs, Node, Nodes
from gangwise.jobs.schedule import Options
from gangwise.jobs.scheduler import create_scheduler
from gangwise.jobs.simulation import simulate_jobs


def drawn(seed: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(seed)
    C, G = rng.integers(2, 6), rng.integers(1, 4)
    rates = rng.uniform(0.2, 2.0, (C, G)) * (rng.random((C, G)) < 0.85)
    rates[:, 0] = np.maximum(rates[:, 0], 0.1)
    count = rng.integers(1, 5, C)
    return rates, count, rng.integers(1, 4, C).astype(float), rng.integers(1, 9, G).astype(float)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("objective", get_args(Objective))
def test_shares_are_the_programmes_optimum(seed: int, objective: Any) -> None:
    rates, count, devices, capacity = drawn(seed)
    weight, age = np.random.default_rng(seed).uniform(1, 9, (2, count.size))
    shares = allocation(rates, count, devices, capacity, objective, weight, age)
    assert (shares.sum(axis=1) <= 1 + 1e-7).all()
    assert ((count * devices) @ shares <= capacity + 1e-6).all()
    assert (shares[rates == 0] == 0).all()

    alike = rates @ capacity / capacity.sum()
    x = cp.Variable(rates.shape, nonneg=True)
    allowed = [cp.sum(x, axis=1) <= 1, (count * devices) @ x <= capacity]
    allowed.append(cp.multiply(rates == 0, x) == 0)
    if objective == "max-min":
        normal = cp.multiply(devices / alike, cp.sum(cp.multiply(rates, x), axis=1))
        best = cp.Problem(cp.Maximize(cp.min(normal)), allowed).solve(solver=cp.CLARABEL)
        ours = (devices * (rates * shares).sum(axis=1) / alike).min()
        # The total has a small weight beside the least rate.
        assert best - 2e-3 <= ours <= best + 1e-6
    elif objective in ("makespan", "finish-time"):
        rate, speed = (rates * shares).sum(axis=1), cp.sum(cp.multiply(rates, x), axis=1)
        n_th = alike * np.minimum(1, capacity.sum() / (count.sum() * devices))
        before = age if objective == "finish-time" else 0 * age
        alone = before + weight / n_th if objective == "finish-time" else np.ones(count.size)
        ours = ((before + weight / rate) / alone).max()
        longest = cp.max((before + cp.multiply(weight, cp.inv_pos(speed))) / alone)
        best = cp.Problem(cp.Minimize(longest), allowed).solve(solver=cp.CLARABEL)
        assert best * (1 - 1e-6) <= ours <= best * (1 + 1e-4)
    else:
        worth = weight if objective == "fifo" else count
        own = 1 if objective == "throughput" else rates.max(axis=1, keepdims=True)
        part = rates / own * worth[:, None]
        best = cp.Problem(cp.Maximize(cp.sum(cp.multiply(part, x))), allowed)
        assert (part * shares).sum() == pytest.approx(best.solve(solver=cp.CLARABEL), rel=1e-6)


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
        *((objective, seed) for objective in ("max-min", "total", "fifo") for seed in range(8)),
        *((objective, 0) for objective in ("throughput", "makespan")),
    ],
)
def test_every_job_ends_once_whatever_fails(objective: Any, seed: int) -> None:
    """Gangs, constraints, a node that fails and returns; the simulation checks the books."""
    rng = np.random.default_rng(seed)
    J = 40
    jobs = Jobs.of(
        rng.integers(0, 4000, J),
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


def test_names_and_bad_arguments() -> None:
    assert create_scheduler("gavel:objective=fifo,seconds=900") == Gavel("fifo", 900)
    with pytest.raises(ScenarioError, match="no objective 'fair'"):
        Gavel("fair")  # type: ignore[arg-type]
    with pytest.raises(ScenarioError, match="positive length"):
        Gavel(seconds=0)
