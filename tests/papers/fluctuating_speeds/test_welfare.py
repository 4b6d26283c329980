"""The preprint's payments cancel."""

from __future__ import annotations

import numpy as np
import pytest

from gangwise import create_policy, create_scenario
from tests.papers.fluctuating_speeds.cases import problem, random_instance
from tests.reference.fluctuating_speeds import choices, welfare


def test_hand_case_h8():
    p = problem([1, 1, 1], 3, job_type=[0, 0, 1], cost=[0.1, 0.1, 0.3])
    z = np.array([0.7, 0.2, 0.9])
    jobs, cluster = welfare(p, [1, 0, 1], z, np.array([5.0, 7.0]))
    np.testing.assert_allclose(jobs, [0.7 - 5, 0.9 - 7])
    assert jobs.sum() == pytest.approx(-10.4)
    assert cluster == pytest.approx(11.6)


@pytest.mark.parametrize("seed", range(5))
def test_no_payment_rule_changes_the_schedule(seed):
    """The x that maximises social welfare is the same whatever is paid, tried one by one."""
    p = random_instance(seed, E=7).problem
    rng = np.random.default_rng(seed)
    z = rng.uniform(0, 1, 7)

    def best(payments):
        def social(chosen):
            x = np.zeros(7)
            x[list(chosen)] = 1
            jobs, cluster = welfare(p, x, z, payments)
            return round(jobs.sum() + cluster, 9)

        return max(choices(p, [1, 1, 1]), key=social)

    schedule = best(np.zeros(3))
    assert len(schedule) > 1
    for _ in range(3):
        assert best(rng.normal(0, 10, 3)) == schedule
    net = max(choices(p, [1, 1, 1]), key=lambda c: round(sum(z[e] - p.cost[e] for e in c), 9))
    assert net == schedule


def test_a_run_reports_both_sides_and_payments_move_neither_choice_nor_welfare():
    def played(payment):
        instance = create_scenario(
            "esdp-default-v1", servers=12, payment=payment, fraction=0.3
        ).instance(3)
        env, policy, found = instance.environment(), create_policy("esdp"), []
        env.start(*np.random.default_rng(1).spawn(2))
        policy.start(env.problem, np.random.default_rng(0))
        for t in range(40):
            x = policy.decide(env.observe(t, "react")).copy()
            outcome = env.step(t, x)
            policy.learn(outcome.feedback)
            jobs, cluster = welfare(env.problem, x, env._utilities[t], np.full(8, instance.payment))
            sides = dict(zip(env.metrics, outcome.metrics))
            assert sides["jobs_utility"] == pytest.approx(jobs.sum())
            assert sides["cluster_utility"] == pytest.approx(cluster)
            found.append((x.tobytes(), round(jobs.sum() + cluster, 9), cluster))
        return found

    free, paid = played(0.0), played(0.7)
    assert [f[:2] for f in free] == [p[:2] for p in paid]
    assert sum(p[2] for p in paid) > 0 > sum(f[2] for f in free)
