"""The world: who is active, what is executed, what is told, what is refused."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from gangwise import create_policy
from gangwise.core.errors import InfeasibleDecision, ScenarioError
from gangwise.core.simulation import Simulation, Streams
from gangwise.core.workload import Delivery
from gangwise.papers.approximation_jobs.environment import ApproximationInstance, Outage
from gangwise.papers.approximation_jobs.problem import (
    ApproximationProblem,
    IidRates,
    Job,
    Log,
    PoissonJobs,
    Power,
    ReplayedJobs,
    ReplayedRates,
    Saturating,
)
from tests.papers.approximation_jobs.made import instance, metric, play, started


def test_jobs_are_active_from_arrival_up_to_but_without_the_deadline():
    environment = started(instance([Job("a", 1, 3, 9.0), Job("b", 2, 4, 9.0)]))
    seen = []
    for t in range(5):
        o = environment.observe(t, "react")
        seen.append((o.jobs.rows.tolist(), o.arrived.tolist(), o.departed.tolist()))
        environment.step(t, np.array([-1, -1]))
    assert seen == [([], [], []), ([0], [0], []), ([0, 1], [1], []), ([1], [], [0]), ([], [], [1])]


def test_rows_are_reused_and_kept():
    environment = started(instance([Job("a", 0, 1, 1.0), Job("b", 0, 4, 1.0), Job("c", 1, 4, 1.0)]))
    environment.observe(0, "react")
    o = environment.observe(1, "react")
    assert (o.arrived.tolist(), o.departed.tolist(), o.jobs.rows.tolist()) == ([0], [0], [0, 1])
    assert [job.id for job in o.jobs.jobs[:2]] == ["c", "b"]
    assert o.jobs.cost[0] == 0.0


def test_rewards_add_up_to_the_overall_utility():
    """OPM (1), OPM (2)."""
    utilities = [Power(2.0, 0.5), Log(3.0, 2.0), Saturating(4.0, 5.0), Power(1.5, 0.8)]
    jobs = [Job(n, n % 3, 12 + n, 20.0, u) for n, u in enumerate(utilities)]
    rates = np.random.default_rng(0).random((9, 4))
    made = instance(jobs, prices=[1.0, 0.5, 0.7, 1.2], rates=rates)
    simulation = Simulation(made, create_policy("fair"), 20, 0)
    run = simulation.run()
    results = simulation.environment.results()
    assert len(results["cost"]) == 4
    by_hand = sum(u.value(x) for u, x in zip(utilities, results["work"]))
    assert run.rewards.sum() == pytest.approx(by_hand, rel=1e-12)
    assert results["utility"].sum() == pytest.approx(by_hand, rel=1e-12)
    worked = zip(jobs, results["work"])
    average = sum(j.lifetime * j.utility.value(x / j.lifetime) for j, x in worked)
    assert run.metrics["average_utility"].sum() == pytest.approx(average, rel=1e-12)
    assert run.metrics["work"].sum() == pytest.approx(results["work"].sum(), rel=1e-12)
    assert run.metrics["cost"].sum() == pytest.approx(results["cost"].sum(), rel=1e-12)
    fit = sum(results["cost"] - results["budget"])
    assert run.metrics["fit"].sum() == pytest.approx(fit, rel=1e-9)


def test_budgets_are_enforced_task_by_task():
    # 2.5 pays for two tasks of 1 and, machine 0 having been skipped, for one of 0.5.
    """OPM (4)."""
    environment = started(instance([Job("a", 0, 9, 2.5)], prices=[1.0, 0.5]))
    outcomes = play(environment, [[0, -1], [0, -1], [0, 0], [0, 0]])
    assert metric(environment, outcomes, "cost") == [1.0, 1.0, 0.5, 0.0]
    assert metric(environment, outcomes, "refused") == [0.0, 0.0, 1.0, 2.0]
    assert [outcome.feedback[0].machines.tolist() for outcome in outcomes] == [[0], [0], [1], []]


def test_a_budget_of_three_prices_pays_for_three_tasks():
    environment = started(instance([Job("a", 0, 9, 0.3)], prices=[0.1]))
    outcomes = play(environment, [[0]] * 4)
    assert metric(environment, outcomes, "cost") == [0.1, 0.1, 0.1, 0.0]


def test_a_budget_short_of_a_price_by_a_thousandth_does_not_pay_for_it():
    environment = started(instance([Job("a", 0, 9, 2.9995)], prices=[1.0]))
    outcomes = play(environment, [[0]] * 4)
    assert metric(environment, outcomes, "cost") == [1.0, 1.0, 0.0, 0.0]


def test_without_enforcement_the_excess_is_reported():
    jobs = [Job("a", 0, 2, 1.0), Job("b", 0, 2, 3.0)]
    environment = started(instance(jobs, prices=[1.0, 1.0, 1.0], enforce=False))
    outcomes = play(environment, [[0, 0, -1], [0, 1, -1]])
    assert metric(environment, outcomes, "over") == [1.0, 1.0]
    assert metric(environment, outcomes, "fit") == [0.0, 0.0]  # (8): b's thrift hides a's excess


def test_only_machines_that_ran_tell_their_rate():
    rates = [[0.1, 0.2, 0.3]]
    environment = started(instance([Job("a", 0, 9, 9.0)], prices=[1.0] * 3, rates=rates))
    (feedback,) = play(environment, [[0, -1, 0]])[0].feedback
    assert (feedback.machines.tolist(), feedback.rates.tolist()) == ([0, 2], [0.1, 0.3])
    assert environment.observe(1, "react").jobs.work[0] == pytest.approx(0.4)


def test_late_feedback_tells_work_late_and_not_to_the_next_user_of_a_row():
    jobs = [Job("a", 0, 2, 9.0), Job("b", 2, 9, 9.0)]
    environment = started(instance(jobs, prices=[1.0], delivery=Delivery(2)))
    told, work = [], []
    for t in range(5):
        o = environment.observe(t, "react")
        work.append(float(o.jobs.work[0]))
        told.append([f.slot for f in environment.step(t, np.array([0])).feedback])
    assert told == [[], [], [0], [1], [2]]
    assert work == [0.0] * 5  # row 0 was a's, and in slots 2 and 3 what is told is about a
    assert environment.observe(5, "react").jobs.work[0] == 1.0


def test_lost_feedback_never_comes():
    environment = started(instance([Job("a", 0, 9, 9.0)], delivery=Delivery(loss=1.0)))
    assert [o.feedback for o in play(environment, [[0, 0]] * 3)] == [()] * 3


def test_a_machine_that_is_away_cannot_run():
    environment = started(instance([Job("a", 0, 9, 9.0)], outages=(Outage(1, 1, 2),)))
    assert environment.observe(0, "react").available.tolist() == [True, True]
    environment.step(0, np.array([0, 0]))
    assert environment.observe(1, "react").available.tolist() == [True, False]
    with pytest.raises(InfeasibleDecision, match="'machine-1'"):
        environment.step(1, np.array([0, 0]))


def test_moves_by_hand():
    jobs = [Job("a", 0, 3, 99.0), Job("b", 0, 9, 99.0)]
    environment = started(instance(jobs, prices=[1.0] * 4))
    outcomes = play(environment, [[0, 0, 1, -1], [0, 1, 0, -1], [0, -1, 0, 1], [1, -1, 1, 1]])
    assert metric(environment, outcomes, "displaced") == [0, 2, 1, 0]  # a left before slot 3
    assert metric(environment, outcomes, "swaps") == [0, 2, 0, 0]
    assert metric(environment, outcomes, "net_moves") == [0, 2, 1, 0]


@pytest.mark.parametrize(
    ("decision", "message"),
    [
        ([0], "shape"),
        ([0.0, 0.0], "integers"),
        ([0, 5], "no active job has table row 5"),
        ([0, -2], "table row -2"),
        ([1, 0], "table row 1"),
    ],
)
def test_impossible_decisions_are_refused(decision, message):
    """OPM (3)."""
    environment = started(instance([Job("a", 0, 9, 9.0)]))
    with pytest.raises(InfeasibleDecision, match=message):
        environment.step(0, np.array(decision))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Job("a", 5, 5, 1.0), "job 'a': its deadline, slot 5"),
        (lambda: Job("a", 0, 5, 0.0), "job 'a': budget is 0.0"),
        (lambda: Job("a", 0, 5, math.nan), "budget"),
        (lambda: ApproximationProblem([1.0, -1.0], ("x", "y")), "machine 'y': price is -1.0"),
        (lambda: ApproximationProblem([1.0, math.inf]), "price"),
        (lambda: ApproximationProblem([0.0, 0.0]), "every machine is free"),
        (lambda: ApproximationProblem([1.0, 1.0], ("x", "x")), "different machine names"),
        (lambda: Power(1.0, 1.5), "beta is 1.5"),
        (lambda: Power(-1.0), "v is -1.0"),
        (lambda: IidRates([0.5, 1.5]), "1.5"),
        (lambda: PoissonJobs(-1.0), "rate"),
        (lambda: instance([], outages=(Outage(7, 0),)), "no machine 7"),
    ],
)
def test_bad_input_is_refused(make, message):
    with pytest.raises(ScenarioError, match=message):
        make()


def test_bad_streams_are_refused_where_they_go_wrong():
    late = instance([Job("a", 0, 9, 9.0)], rates=[[0.5, 0.5], [0.5, 1.2]])
    with pytest.raises(ScenarioError, match="'machine-1'"):
        started(late).observe(0, "react")
    table = [[] for _ in range(256)]  # from a stream of one's own: lists are checked when made
    table[0], table[3] = [Job("a", 0, 9, 9.0)], [Job("a", 3, 9, 9.0)]
    twice = SimpleNamespace(stream=lambda rng: SimpleNamespace(draw=lambda slots: table))
    environment = started(replace(instance([]), jobs=twice))
    with pytest.raises(ScenarioError, match="'a'"):
        play(environment, [[-1, -1]] * 5)
    with pytest.raises(ScenarioError, match="2 machines"):
        ApproximationInstance(
            ApproximationProblem([1.0]), ReplayedRates(np.ones((1, 2))), ReplayedJobs([])
        )


def test_ids_may_come_again_once_their_job_is_gone():
    environment = started(instance([Job("a", 0, 2, 9.0), Job("a", 2, 4, 9.0)]))
    play(environment, [[0, 0]] * 4)
    assert environment.results()["cost"].tolist() == [4.0, 4.0]


def test_history_is_what_a_run_met():
    means, jobs = np.linspace(0.1, 0.9, 5), PoissonJobs(0.5)
    made = ApproximationInstance(ApproximationProblem(np.ones(5)), IidRates(means, 3.0), jobs)
    rates, arrived = made.history(300, seed=4)
    environment, streams = made.environment(), Streams.of(4)
    environment.start(streams.workload, streams.noise)
    met, told = [], []
    for t in range(300):
        o = environment.observe(t, "react")
        met += [o.jobs.jobs[j].id for j in o.arrived]
        decision = np.full(5, o.jobs.rows[0] if o.jobs.rows.size else -1)
        told += [
            (f.slot, i, r)
            for f in environment.step(t, decision).feedback
            for i, r in zip(f.machines, f.rates)
        ]
    assert met == [job.id for job in arrived]
    assert len(told) > 100
    assert all(rates[t, i] == r for t, i, r in told)


def test_memory_is_bounded_by_active_jobs():
    made = instance([Job(n, n, n + 3, 9.0) for n in range(400)])
    environment = started(made)
    play(environment, [[-1, -1]] * 400)
    assert len(environment.rows.jobs) == 16
    assert len(environment.results()["cost"]) == 400
    assert environment.results()["cost"].tolist() == [0.0] * 400
