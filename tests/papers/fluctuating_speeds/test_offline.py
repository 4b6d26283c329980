"""The omniscient comparators against brute force, and regret against them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from gangwise import create_policy, create_scenario, simulate
from gangwise.papers.fluctuating_speeds.environment import pseudo_regret
from gangwise.papers.fluctuating_speeds.policies import Optimiser
from gangwise.papers.fluctuating_speeds.problem import (
    PiecewiseSpeeds,
    RecordedSpeeds,
    Scale,
    WavingSpeeds,
)
from tests.papers.fluctuating_speeds.cases import random_instance
from tests.reference.fluctuating_speeds import choices, worth


def drifting(seed):
    instance = random_instance(seed, E=7)
    rng = np.random.default_rng(seed)
    mean = rng.uniform(0.1, 1, 7)
    speeds = [
        PiecewiseSpeeds(np.stack([mean, mean[::-1], 1.1 - mean]), np.array([0, 20, 55])),
        WavingSpeeds(mean, rng.random(7), amplitude=0.9, period=16),
    ][seed % 2]
    return replace(instance, speeds=speeds, scale=Scale.of("clip", speeds, instance.problem.cost))


@pytest.mark.parametrize("instance", [random_instance(0, E=7), drifting(0), drifting(1)])
def test_omniscient_is_the_best_of_all_choices_in_every_slot(instance):
    """ESDP (7)."""
    arrivals, utilities = instance.history(80, seed=3)
    mean = instance.comparator("omniscient", 80, 3)
    realised = instance.comparator("omniscient_realised", 80, 3)
    assert mean.gap <= 1e-6
    for t in range(80):
        v = instance.means(t)
        best = max(choices(instance.problem, arrivals[t]), key=lambda c: worth(c, v, v * 0))
        assert mean.rewards[t] == pytest.approx(worth(best, v, v * 0), abs=1e-9)
        assert realised.rewards[t] == pytest.approx(utilities[t][list(best)].sum(), abs=1e-9)


@dataclass
class KnowsTheMeans(Optimiser):
    """Cheats: plays the best choice for means that it was handed."""

    instance: object = None

    def _decide(self, observation, available):
        v = self.instance.means(observation.slot)
        return self._choose(v, np.zeros_like(v), available)


def test_the_clairvoyant_knows_every_slot_and_nobody_earns_more():
    base, rng = random_instance(0, E=7), np.random.default_rng(1)
    level = np.repeat(rng.random((6, 7)), 4, axis=0)  # slots that are alike, four by four
    speeds = RecordedSpeeds(list(level.T), np.zeros(7), np.full(7, 2))
    scale = Scale.of("clip", speeds, base.problem.cost)
    instance = replace(base, speeds=speeds, scale=scale)
    assert instance.comparators == ("omniscient", "omniscient_realised", "clairvoyant")
    arrivals, utilities = instance.history(60, 3)
    found = instance.comparator("clairvoyant", 60, 3)
    for t in range(60):
        z = utilities[t]
        best = max(choices(instance.problem, arrivals[t]), key=lambda c: worth(c, z, z * 0))
        assert found.rewards[t] == pytest.approx(z[list(best)].sum(), abs=1e-9)
    follows = simulate(instance, create_policy("cucb:estimator=decay,tau=1"), 60, 3)
    assert (follows.rewards <= found.rewards + 1e-9).all()


@pytest.mark.parametrize("instance", [random_instance(1, E=7), drifting(2), drifting(3)])
def test_who_knows_the_means_has_no_regret(instance):
    run = simulate(instance, KnowsTheMeans(instance=instance), 200, 8)
    np.testing.assert_allclose(pseudo_regret(run), 0, atol=1e-9)
    assert run.regret("omniscient_realised") == pytest.approx(0, abs=1e-9)
    assert abs(run.regret("omniscient")) > 1e-3  # realised rewards keep their noise


def test_three_regrets_agree_on_average():
    """ESDP (6)."""
    each = []
    for seed in range(30):
        instance = create_scenario("esdp-default-v1:servers=12,job_types=4").instance(seed)
        run = simulate(instance, create_policy("random-channels"), 200, seed)
        each.append(
            [run.regret("omniscient"), run.regret("omniscient_realised"), pseudo_regret(run)[-1]]
        )
    noisy, realised, pseudo = np.array(each).T
    for other in (noisy, realised):
        difference = other - pseudo
        assert abs(difference.mean()) < 4 * difference.std() / np.sqrt(30)
    assert pseudo.min() >= 0


@pytest.mark.full
def test_noise_cancels_for_a_policy_that_has_learned():
    noisy, realised = [], []
    for seed in range(8):
        instance = create_scenario("esdp-default-v1:servers=12,job_types=4").instance(seed)
        run = simulate(instance, create_policy("esdp:kappa=0.25"), 600, seed)
        curve = pseudo_regret(run)[-1]
        noisy.append(run.regret("omniscient") - curve)
        realised.append(run.regret("omniscient_realised") - curve)
    assert np.std(realised) < 0.6 * np.std(noisy)


def test_sampling_is_for_many_programmes_only():
    stationary = create_scenario("esdp-default-v1").instance(0)
    assert stationary.comparator("omniscient", 400, 0, sample=8).slots.size == 400
    waving = create_scenario("esdp-default-v1:speeds=waving").instance(0)
    sampled = waving.comparator("omniscient", 400, 0, sample=4)
    whole = waving.comparator("omniscient", 400, 0)
    assert sampled.slots.size == 200
    np.testing.assert_allclose(sampled.rewards, whole.rewards[sampled.slots])
    run = simulate(waving, create_policy("lcf"), 400, 0)
    assert run.regret(sampled) == pytest.approx(run.regret(whole), rel=0.1)


def test_a_large_instance_has_a_certified_bound():
    instance = create_scenario(
        "esdp-default-v1:servers=150,job_types=20,rho=0.5,fraction=0.25"
    ).instance(0)
    comparator = instance.comparator("omniscient", 20, 0)
    assert comparator.rewards.sum() > 0
    assert 0 <= comparator.gap <= 1e-5 * comparator.rewards.sum()
    mean, p = instance.means(0), instance.problem
    arrivals, _ = instance.history(20, 0)
    for t in range(20):  # the relaxation to fractions is worth more
        able = p.available(arrivals[t])
        value = mean[able]
        price = np.array([0.1] * 3)
        loose = np.maximum(value - p.requests[able] @ price, 0).sum() + price @ p.cluster.capacity
        assert comparator.rewards[t] <= loose + 1e-9
