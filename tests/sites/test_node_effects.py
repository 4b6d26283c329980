"""Effects of nodes against simulated truth, brute force and the literature's numbers."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from scipy.special import ndtri

from gangwise.core.errors import ScenarioError
from gangwise.sites import node_effects as ne
from gangwise.sites.node_effects import Runs, false_discoveries, node_effects


def runs_of(y, start, program, nodes_of_each, n):
    places = {}
    place = [places.setdefault(nodes, len(places)) for nodes in nodes_of_each]
    lengths = [len(nodes) for nodes in places]
    return Runs(
        np.array(y, float),
        np.array(start, float),
        np.array(program),
        np.array(place),
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        np.concatenate([list(nodes) for nodes in places]).astype(np.int64),
        n,
    )


def made(seed, n=40, programs=40, repeats=30, noise=0.1, gang=1, factors=(), change=None):
    """Programs of different lengths that drift and jump, with heavy-tailed noise."""
    rng = np.random.default_rng(seed)
    s = np.zeros(n)
    for node, factor in factors:
        s[node] = np.log(factor)
    y, start, program, nodes = [], [], [], []
    for p in range(programs):
        k = gang if p % 2 else 1
        path = rng.normal(7, 1) + np.cumsum(rng.normal(0, 0.05 * noise, repeats))
        path[rng.integers(repeats) :] += rng.normal(0, 0.5)
        for i in range(repeats):
            on = tuple(sorted(rng.choice(n, k, replace=False).tolist()))
            slow = s.copy()
            if change is not None and i < repeats // 2:
                slow[change] = 0.0
            y.append(path[i] + max(slow[list(on)]) + noise * rng.standard_t(3))
            start.append(i * 1000.0 + p)
            program.append(p)
            nodes.append(on)
    return runs_of(y, start, program, nodes, n), s


def test_p_values_of_nodes_that_are_alike_are_uniform():
    p = np.concatenate([node_effects(made(seed, gang=1 + seed % 4)[0]).p for seed in range(12)])
    assert p.size == 480
    assert abs(np.mean(p < 0.05) - 0.05) < 0.03
    assert abs(np.std(ndtri(p)) - 1) < 0.1


def test_few_names_are_false_and_intervals_cover():
    false, named, covered = 0, 0, []
    for seed in range(12):
        runs, s = made(seed, gang=3, factors=((5, 1.5), (9, 1.2)))
        found = node_effects(runs)
        named += int(found.slow.sum())
        false += int((found.slow & (s <= 0)).sum())
        covered.append(np.mean((found.low <= s) & (s <= found.high)))
        assert found.slow[[5, 9]].all()
    assert false <= 0.2 * named
    assert 0.9 < np.mean(covered) <= 1


def test_a_gang_blames_its_slowest_node():
    """Node 0 is slow; node 1 is in every second gang of it, and in others."""
    rng = np.random.default_rng(2)
    nodes = [
        (0, 1, *rng.choice(range(2, 20), 2, replace=False))
        if rng.random() < 0.2
        else tuple(rng.choice(20, 4, replace=False))
        for _ in range(800)
    ]
    y = [np.log(1.5) * (0 in on) + rng.normal(0, 0.1) for on in nodes]
    runs = runs_of(y, range(800), [i % 20 for i in range(800)], nodes, 20)
    found = node_effects(runs)
    assert np.flatnonzero(found.slow).tolist() == [0]
    assert found.low[0] < np.log(1.5) < found.high[0]


@pytest.mark.full
def test_companions_of_a_slow_node_are_seldom_named():
    """Gangs of four that are nearly always the same four; nodes 0 and 17 are 30 % slower."""
    right = wrong = 0
    for seed in range(40):
        rng, jobs = np.random.default_rng(seed), 600
        fours = np.arange(32).reshape(-1, 4)
        node = np.stack(
            [
                fours[q] if rng.random() < 0.93 else rng.choice(32, 4, replace=False)
                for q in rng.integers(0, 8, jobs)
            ]
        )
        slow = ((node == 0) | (node == 17)).any(axis=1)
        y = rng.normal(3, 0.1, jobs) + np.log(1.3) * slow
        ends = 4 * np.arange(jobs + 1)
        program = rng.integers(0, 12, jobs)
        runs = Runs(y, np.arange(600.0), program, np.arange(jobs), ends, node.ravel(), 32)
        named = node_effects(runs).slow
        right += named[[0, 17]].sum()
        wrong += named.sum() - named[[0, 17]].sum()
    assert right > 55
    assert wrong / (right + wrong) < 0.05


def test_margin_leaves_out_what_is_less_slower():
    runs, _ = made(1, factors=((5, 1.5), (9, 1.2)))
    assert np.flatnonzero(node_effects(runs, by=0.15).slow).tolist() == [5]


def test_spread_is_that_of_the_nodes():
    rng = np.random.default_rng(0)
    factors = [(n, np.exp(v)) for n, v in enumerate(rng.normal(0, 0.08, 40))]
    sd, low, high = node_effects(made(0, noise=0.05, factors=factors)[0]).spread
    truth = np.std(np.log([f for _, f in factors]), ddof=1)
    assert low < truth < high
    assert abs(sd - truth) < 0.015


def test_change_is_found_when_it_happened():
    runs, _ = made(3, repeats=40, factors=((7, 1.4),), change=7)
    (change,) = node_effects(runs).changes
    assert change.node == 7
    assert change.low - 1 <= 20_000 <= change.high + 1000
    assert abs(change.before) < 0.1
    assert abs(change.after - np.log(1.4)) < 0.12


def test_score_has_the_variance_of_all_permutations():
    """One block of five runs on five nodes: every permutation of its nodes, by brute force."""
    y = np.array([0.0, 0.3, -0.4, 0.1, 0.2])
    scores = []
    for order in permutations(range(5)):
        runs = runs_of(y, range(5), [0] * 5, [(n,) for n in order], 5)
        u = ne._units(runs)
        cells, sigma = ne._cells(u), ne._scales(u)
        total, *_, spread = ne._tested(u, cells, np.zeros(5), sigma, 0.0)
        scores.append(total[0])
    assert abs(np.mean(scores)) < 1e-6
    assert np.var(scores) == pytest.approx(spread[0], rel=1e-6)


def test_scales_are_standard_deviations_of_normal_noise():
    rng, sd = np.random.default_rng(0), [0.05, 0.1, 0.2]
    runs = runs_of(
        [7 + sd[i % 3] * rng.normal() for i in range(6000)],
        [1000.0 * i for i in range(6000)],
        [i % 3 for i in range(6000)],
        [(i // 3 % 40,) for i in range(6000)],
        40,
    )
    u = ne._units(runs)
    for program, own in enumerate(sd):
        assert ne._scales(u)[u.program == program] == pytest.approx(own, rel=0.08)


def test_paule_mandel_and_q_profile():
    """Against the defining equations, and zero where scatter is that of noise."""
    mean, sd = np.array([0.1, 0.5, -0.3, 0.2, 0.9, -0.4]), np.array([0.1, 0.2, 0.1, 0.3, 0.2, 0.1])
    tau, low, high = ne.spread_of(mean, sd, 99)
    for value, level in ((tau, 5.0), (low, 12.8325), (high, 0.8312)):  # χ² of 5: 97.5 %, 2.5 %
        w = 1 / (value**2 + sd**2)
        assert (w * (mean - (w * mean).sum() / w.sum()) ** 2).sum() == pytest.approx(level, 1e-3)
    assert ne.spread_of(np.zeros(5), np.ones(5), 99)[0] == 0.0
    twice = np.tile(mean, 2), np.tile(sd, 2)  # the same runs, counted for two nodes each
    assert ne.spread_of(*twice, 5) == pytest.approx(ne.spread_of(mean, sd, 99), rel=0.2)


def test_benjamini_hochberg_of_their_paper():
    """Their example of 15 p-values rejects 4 at 5 %."""
    p = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240]
    p += [0.4262, 0.5719, 0.6528, 0.7590, 1.0]
    assert false_discoveries(np.array(p), 0.05).sum() == 4


def test_nothing_to_compare_is_an_error():
    with pytest.raises(ScenarioError, match="several"):
        node_effects(runs_of([1.0, 2.0], [0, 1], [0, 1], [(0,), (1,)], 2))
