"""Jobs whose tasks change: hand cases, what must balance, and the gains against cvxpy."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest

from gangwise.core.errors import InfeasibleDecision, ScenarioError
from gangwise.jobs.books import Place
from gangwise.jobs.malleable import (
    DIVISIBLE,
    ELASTIC,
    RIGID,
    SCHEDULERS,
    ElasticOGASched,
    Resize,
    Terms,
    climb_gains,
    simulate_malleable,
    speedup,
    whole_tasks,
)
from gangwise.jobs.model import Conditions, Jobs, Node, Nodes
from gangwise.jobs.schedule import Options
from gangwise.jobs.simulation import simulate_jobs


def drawn(seed: int, J: int = 25, **more: Any) -> tuple[Jobs, Nodes]:
    rng = np.random.default_rng(seed)
    submit = rng.integers(0, 300, J).astype(float)
    run = rng.integers(0, 200, J).astype(float)
    columns: dict[str, Any] = {
        "tasks": rng.integers(1, 4, J),
        "demand": {"gpu": 1},
        "type": rng.choice(["a", "b"], J),
        "limit": run * rng.uniform(1, 3, J) + 1,
        "deadline": submit + rng.integers(1, 400, J),
    } | more
    return Jobs.of(submit, run, **columns), Nodes.alike(3, {"gpu": 4}, shared="gpu")


def test_tasks_grow_when_another_job_ends() -> None:
    """Four devices: 2 + 2 until the short one ends at 20 s, then 4: 60 - 20 = 40 more in 10 s."""
    jobs = Jobs.of(submit=[0, 0], run=[80, 40], tasks=1)
    found = simulate_malleable(
        jobs, Nodes.pool(4), "equal-shares", Terms.of(jobs, Nodes.pool(4), ELASTIC)
    )
    assert found.schedule.end.tolist() == [30.0, 20.0]
    assert found.resizes == 1
    assert found.device_seconds.tolist() == [80.0, 40.0]


def test_the_overhead_slows_down_and_the_work_is_that_of_the_tasks_asked_for() -> None:
    """κ = .5: s(2) = 4/3, s(4) = 1.6. Asked for 2 tasks and 60 s: work 80, on 4 tasks 50 s."""
    jobs = Jobs.of(submit=[0], run=[60], tasks=2)
    terms = Terms.of(jobs, Nodes.pool(4), ELASTIC, most=2.0)
    found = simulate_malleable(jobs, Nodes.pool(4), "equal-shares", terms, 0.5)
    assert found.schedule.end.tolist() == [pytest.approx(50.0)]
    rigid = simulate_malleable(jobs, Nodes.pool(4), "fcfs", terms, 0.5)
    assert rigid.schedule.end.tolist() == [pytest.approx(60.0)]


def test_a_divisible_job_leaves_at_its_deadline_or_when_its_money_is_spent() -> None:
    jobs = Jobs.of([0, 0, 0], [100, 100, 100], 1, deadline=[25, 1000, 1000], budget=[1e9, 60, 1e9])
    nodes = Nodes.pool(3)
    terms = Terms.of(jobs, nodes, DIVISIBLE, most=1.0, price=2.0)
    found = simulate_malleable(jobs, nodes, "fcfs", terms)
    assert found.schedule.end.tolist() == [25.0, 30.0, 100.0]
    assert found.done.tolist() == [pytest.approx(0.25), pytest.approx(0.3), 1.0]
    assert found.utility.tolist() == [pytest.approx(0.5), pytest.approx(0.3**0.5), 1.0]
    assert found.spent.tolist() == [pytest.approx(50.0), pytest.approx(60.0), pytest.approx(200.0)]


def test_a_divisible_job_that_never_starts_leaves_too() -> None:
    jobs = Jobs.of([0, 1], [100, 5], 1, deadline=[500, 20])
    nodes = Nodes.pool(1)
    found = simulate_malleable(jobs, nodes, "fcfs", Terms.of(jobs, nodes, DIVISIBLE, most=1.0))
    assert found.schedule.end.tolist() == [100.0, 20.0]
    assert found.done.tolist() == [1.0, 0.0]


@pytest.mark.parametrize("scheduler", [*SCHEDULERS, "fcfs+easy+best-fit", "edf+easy+first-fit"])
@pytest.mark.parametrize("kind", [ELASTIC, DIVISIBLE])
@pytest.mark.parametrize("seed", range(6))
def test_work_and_devices_balance(scheduler: str, kind: int, seed: int) -> None:
    """Without overhead or restarts, at rate 1: device-seconds held are the work that was done."""
    jobs, nodes = drawn(seed)
    found = simulate_malleable(jobs, nodes, scheduler, Terms.of(jobs, nodes, kind))
    work = jobs.run * jobs.tasks
    assert np.isfinite(found.schedule.end).all()
    assert found.device_seconds == pytest.approx(work * np.where(work > 0, found.done, 0), abs=1e-6)
    if kind == ELASTIC:
        assert found.done == pytest.approx(np.ones(len(jobs)))
    else:
        assert (found.schedule.end <= jobs.deadline + 1e-9).all()
    again = simulate_malleable(jobs, nodes, scheduler, Terms.of(jobs, nodes, kind))
    assert (again.schedule.end == found.schedule.end).all()


@pytest.mark.parametrize("scheduler", [*SCHEDULERS])
def test_unlike_rates_failures_and_restarts_lose_no_job(scheduler: str) -> None:
    for seed in range(4):
        jobs, _ = drawn(seed)
        nodes = Nodes.of(
            [Node("fast", {"gpu": 4}, rate=2.0), Node("slow", {"gpu": 4}), Node("more", {"gpu": 2})]
        )
        conditions = Conditions(
            rates=nodes.declared(jobs.types), downs=[(60.0, 0)], ups=[(200.0, 0)]
        )
        found = simulate_malleable(
            jobs,
            nodes,
            scheduler,
            Terms.of(jobs, nodes, ELASTIC),
            0.1,
            conditions,
            Options(restart=5.0, checkpoint=10.0),
        )
        assert np.isfinite(found.schedule.end).all()
        assert found.done == pytest.approx(np.ones(len(jobs)))


def test_rigid_jobs_are_played_as_ever() -> None:
    for seed in range(5):
        jobs, nodes = drawn(seed)
        terms = Terms.of(jobs, nodes, RIGID)
        found = simulate_malleable(jobs, nodes, "fcfs+easy+best-fit", terms)
        plain = simulate_jobs(jobs, nodes, "fcfs+easy+best-fit")
        assert (found.schedule.start == plain.start).all()
        assert (found.schedule.end == plain.end).all()


@pytest.mark.parametrize("seed", range(5))
def test_the_ascent_finds_the_largest_gain(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = rng.integers(2, 7)
    weight, kappa = rng.uniform(0.1, 1, n), rng.uniform(0.02, 0.5, n)
    high, supply = rng.integers(1, 12, n).astype(float), float(rng.integers(3, 20))
    y = climb_gains(np.ones(n), weight, kappa, high, supply, 3000, 0.5)
    x = cp.Variable(n, nonneg=True)
    # s(x) = (1 - (1 - κ) / (1 + κ (x - 1))) / κ
    gain = cp.sum(
        cp.multiply(
            weight / kappa,
            1 - cp.multiply(1 - kappa, cp.inv_pos(1 - kappa + cp.multiply(kappa, x))),
        )
    )
    best = cp.Problem(cp.Maximize(gain), [x <= high, cp.sum(x) <= supply]).solve(cp.CLARABEL)
    ours = float((weight * speedup(y, kappa)).sum())
    assert y.sum() <= supply + 1e-9
    assert (y <= high + 1e-9).all()
    assert best * 0.999 <= ours <= best + 1e-6


def test_overheads_are_learned() -> None:
    rng = np.random.default_rng(1)
    J = 200
    jobs = Jobs.of(
        np.cumsum(rng.exponential(40, J)),
        rng.uniform(100, 900, J),
        rng.integers(1, 5, J),
        type=rng.choice(["cheap", "dear"], J),
    )
    nodes = Nodes.pool(16)
    scheduler = ElasticOGASched()
    noise = Conditions(noise=np.exp(0.1 * rng.standard_normal(J)))
    simulate_malleable(
        jobs, nodes, scheduler, Terms.of(jobs, nodes, ELASTIC), np.array([0.02, 0.3]), noise
    )
    assert scheduler.overhead("cheap") == pytest.approx(0.02, abs=0.02)
    assert scheduler.overhead("dear") == pytest.approx(0.3, abs=0.04)


def test_whole_tasks_keep_to_what_there_is() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        n = rng.integers(1, 8)
        low = rng.integers(1, 4, n)
        high = low + rng.integers(0, 5, n)
        supply = float(rng.integers(0, 20))
        wanted = np.minimum(rng.uniform(0, 6, n), high)
        wanted *= min(1.0, supply / max(wanted.sum(), 1e-9))
        got = whole_tasks(wanted, low, high, supply)
        assert got.sum() <= supply
        assert ((got == 0) | ((got >= low) & (got <= high))).all()


class TooMany:
    """Gives every job more tasks than it may have, or resizes what does not run."""

    def __init__(self, action: Any):
        self.action = action

    def resize(self, nodes: Any, job_types: Any) -> None: ...

    def observe(self, rate: Any) -> None: ...

    def place(self, queue: Any, books: Any, now: float) -> list[Any]:
        return [self.action]


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (Place("0", ((0, 3),)), "gets 3 tasks; it may have 1 to 2"),
        (Resize("0", ((0, 1),)), "is resized but not running"),
    ],
)
def test_wrong_actions_are_named(action: Any, words: str) -> None:
    jobs = Jobs.of([0], [10], 1)
    terms = Terms.of(jobs, Nodes.pool(9), ELASTIC, most=2.0)
    with pytest.raises(InfeasibleDecision, match=words):
        simulate_malleable(jobs, Nodes.pool(9), TooMany(action), terms)


def test_terms_that_make_no_sense_are_named() -> None:
    jobs = Jobs.of([0, 0], [10, 10], 2)
    nodes = Nodes.pool(4)
    with pytest.raises(ScenarioError, match=r"terms of job 0: .* divisible"):
        simulate_malleable(jobs, nodes, "plan", Terms.of(jobs, nodes, DIVISIBLE))
    with pytest.raises(ScenarioError, match="from 0 to 1"):
        simulate_malleable(jobs, nodes, "ogasched", Terms.of(jobs, nodes, ELASTIC), 2.0)
    with pytest.raises(ScenarioError, match="use simulate_malleable"):
        simulate_jobs(jobs, nodes, ElasticOGASched())
