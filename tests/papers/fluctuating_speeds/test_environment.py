"""Arrivals, noise, rewards, and feedback that comes late, overtakes or never comes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gangwise import (
    BinomialArrivals,
    GangwiseError,
    InfeasibleDecision,
    ScenarioError,
    create_policy,
    simulate,
)
from gangwise.core.simulation import Simulation, Streams
from gangwise.core.workload import Delivery
from tests.papers.fluctuating_speeds.cases import POLICIES, random_instance


def play(instance, seed, slots, decide):
    """(arrivals, x, outcome) of every slot."""
    streams = Streams.of(seed)
    environment = instance.environment()
    environment.start(streams.workload, streams.noise)
    rows = []
    for t in range(slots):
        arrivals = environment.observe(t, "react").arrivals
        x = decide(t, arrivals)
        rows.append((arrivals, x, environment.step(t, x)))
    return rows


def greedy(instance, order):
    def decide(t, arrivals):
        p, x = instance.problem, np.zeros(instance.problem.E, dtype=bool)
        for e in order(t):
            x[e] = (
                arrivals[p.channels.job_type[e]]
                and ((x @ p.requests + p.requests[e]) <= p.cluster.capacity).all()
            )
        return x

    return decide


def test_a_slot_is_what_the_formulas_say():
    """ESDP (5)."""
    instance = random_instance(1)
    arrivals, utilities = instance.history(300, seed=4)
    rows = play(instance, 4, 300, greedy(instance, lambda t: range(t % 8, 8)))
    raw = instance.speeds.draw(0, 300, Streams.of(4).noise.spawn(2)[0])
    for t, (arrived, x, outcome) in enumerate(rows):
        np.testing.assert_array_equal(arrived, arrivals[t])
        assert outcome.reward == pytest.approx(utilities[t][x].sum())
        mean, gain, cost, jobs, channels = outcome.metrics[:5]
        assert mean == pytest.approx(instance.means(t)[x].sum())
        assert gain == pytest.approx(raw[t][x].sum())
        assert cost == pytest.approx(instance.problem.cost[x].sum())
        assert (jobs, channels) == (arrivals[t].sum(), x.sum())
        (feedback,) = outcome.feedback
        assert feedback.slot == t
        np.testing.assert_array_equal(feedback.channels, np.flatnonzero(x))
        np.testing.assert_array_equal(feedback.utilities, utilities[t][x])
        assert ((feedback.utilities >= 0) & (feedback.utilities <= 1)).all()
    assert len({tuple(x) for _, x, _ in rows}) > 5


def test_noise_does_not_depend_on_what_is_played():
    instance = random_instance(2)
    felt = []
    for order in (lambda t: range(8), lambda t: range(7, -1, -1)):
        table = np.full((400, 8), np.nan)
        for t, (_, _, outcome) in enumerate(play(instance, 0, 400, greedy(instance, order))):
            table[t, outcome.feedback[0].channels] = outcome.feedback[0].utilities
        felt.append(table)
    both = ~np.isnan(felt[0]) & ~np.isnan(felt[1])
    assert both.sum() > 100
    assert (np.isnan(felt[0]) != np.isnan(felt[1])).sum() > 100
    np.testing.assert_array_equal(felt[0][both], felt[1][both])


def test_policies_meet_the_same_arrivals_and_noise():
    instance = random_instance(3)
    jobs = [simulate(instance, create_policy(p), 300, 5).metrics["jobs"] for p in POLICIES[:6]]
    assert all((j == jobs[0]).all() for j in jobs)


def test_rewards_are_the_mean_utility_plus_noise():
    run = simulate(random_instance(4), create_policy("esdp"), 4000, 1)
    difference = run.rewards - run.metrics["mean_utility"]
    assert abs(difference.mean()) < 4 * difference.std() / np.sqrt(4000)
    assert difference.std() > 0.05


@pytest.mark.parametrize(
    "delivery",
    [Delivery(3), Delivery(2.0, "geometric"), Delivery(4.0, "geometric", loss=0.3)],
    ids=["constant", "geometric", "lossy"],
)
def test_late_feedback_is_the_same_feedback(delivery):
    instance = random_instance(5)
    late = replace(instance, delivery=delivery)
    decide = greedy(instance, lambda t: range(8))
    prompt = {r[2].feedback[0].slot: r[2].feedback[0] for r in play(instance, 6, 500, decide)}
    came = [(t, f) for t, row in enumerate(play(late, 6, 500, decide)) for f in row[2].feedback]
    slots = [f.slot for _, f in came]
    assert len(set(slots)) == len(slots)
    for t, f in came:
        assert f.slot <= t
        np.testing.assert_array_equal(f.utilities, prompt[f.slot].utilities)
    delays = np.array([t - f.slot for t, f in came])
    if delivery.kind == "constant":
        assert set(delays) == {3}
    else:
        assert delays.mean() == pytest.approx(delivery.delay, rel=0.2)
        assert (np.diff(slots) < 0).any()  # some feedback overtakes
    assert len(came) / 500 == pytest.approx(1 - delivery.loss, abs=0.08)


def test_decisions_are_checked():
    instance = random_instance(6)
    with pytest.raises(InfeasibleDecision, match="slot 0"):
        play(instance, 0, 5, lambda t, arrivals: np.ones(8))


def test_the_arrivals_must_be_seen():
    environment = random_instance(0).environment()
    streams = Streams.of(0)
    environment.start(streams.workload, streams.noise)
    with pytest.raises(ScenarioError, match="timing"):
        environment.observe(0, "reserve")


def test_an_instance_must_fit_together():
    instance = random_instance(0)
    with pytest.raises(ScenarioError, match="for 8"):
        replace(instance, problem=random_instance(0, E=9).problem)
    with pytest.raises(ScenarioError, match="brings 2"):
        replace(instance, workload=BinomialArrivals([0.5, 0.5], [1, 1]))
    with pytest.raises(ScenarioError, match="'job-type-1'"):
        replace(instance, workload=BinomialArrivals([0.5] * 3, [1, 2, 1]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1,), "delay is -1"),
        ((1.5,), "whole number"),
        ((1, "sometimes"), "sometimes"),
        ((0, "constant", 1.1), "loss is 1.1"),
    ],
)
def test_bad_deliveries(arguments, message):
    with pytest.raises(GangwiseError, match=message):
        Delivery(*arguments)


def test_a_checkpoint_keeps_the_feedback_on_its_way(tmp_path):
    instance = replace(random_instance(7), delivery=Delivery(5.0, "geometric"))
    whole = simulate(instance, create_policy("esdp"), 300, 2)
    stopped = Simulation(instance, create_policy("esdp"), 300, 2)
    for _ in range(123):
        stopped.step()
    stopped.save(tmp_path / "state")
    np.testing.assert_array_equal(Simulation.load(tmp_path / "state").run().rewards, whole.rewards)
