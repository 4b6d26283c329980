"""Draws are as stated, and the means that regret is measured against are exact."""

from __future__ import annotations

import numpy as np
import pytest

from gangwise import ScenarioError
from gangwise.papers.fluctuating_speeds.problem import (
    BernoulliSpeeds,
    BetaSpeeds,
    NormalSpeeds,
    PermutedSpeeds,
    PiecewiseSpeeds,
    RecordedSpeeds,
    ReplayedSpeeds,
    WavingSpeeds,
)
from tests.reference.fluctuating_speeds import mean_by_integration

MEAN = np.array([0.15, 0.5, 0.9])
SERIES = [np.array([0.1, 0.2, 0.9, 1.0]), np.array([0.5, 0.5, 0.5]), np.linspace(0, 1, 11)]
ALL = {
    "normal": NormalSpeeds(MEAN),
    "still": NormalSpeeds(MEAN, spread=0.0),
    "bernoulli": BernoulliSpeeds(MEAN),
    "beta": BetaSpeeds(MEAN, 3.0),
    "jumping": PiecewiseSpeeds(np.stack([MEAN, MEAN[::-1]]), np.array([0, 7])),
    "waving": WavingSpeeds(MEAN, np.array([0.0, 0.3, 0.7]), period=20),
    "replayed": ReplayedSpeeds(SERIES),
    "walked": ReplayedSpeeds(SERIES, blocks=3, slots=30),
    "recorded": RecordedSpeeds.anywhere(SERIES, np.array([0, 1, 0]), np.random.default_rng(5)),
    "reordered": PermutedSpeeds(BetaSpeeds(MEAN), np.array([2, 0, 1])),
}


@pytest.mark.parametrize("speeds", ALL.values(), ids=ALL)
def test_drawing_in_parts_changes_nothing(speeds):
    whole = speeds.draw(0, 40, np.random.default_rng(3))
    rng = np.random.default_rng(3)
    np.testing.assert_array_equal(
        np.vstack([speeds.draw(0, 13, rng), speeds.draw(13, 27, rng)]), whole
    )
    assert whole.shape == (40, speeds.size) == (40, 3)


DRAWN = {name: speeds for name, speeds in ALL.items() if name != "recorded"}


@pytest.mark.parametrize("speeds", DRAWN.values(), ids=DRAWN)
def test_clipped_means_are_those_of_the_draws(speeds):
    low, high = np.array([0.05, 0.1, 0.2]), np.array([0.6, 0.4, 1.1])
    rng = np.random.default_rng(0)
    for slot in (0, 6, 7, 12, 29):
        drawn = np.vstack([speeds.draw(slot, 1, rng) for _ in range(4000)])
        clipped = np.clip(drawn, low, high)
        error = 5 * clipped.std(axis=0) / np.sqrt(4000) + 1e-12
        assert (np.abs(clipped.mean(axis=0) - speeds.clipped_mean(slot, low, high)) < error).all()


def test_clipped_means_against_the_density():
    low, high = np.array([0.3]), np.array([0.7])
    normal = NormalSpeeds(np.array([0.6]), 0.5).clipped_mean(0, low, high)[0]
    assert normal == pytest.approx(
        mean_by_integration(lambda z: np.exp(-((z - 0.6) ** 2) / 0.18), 0.3, 0.7, (-4, 5)), abs=1e-6
    )
    beta = BetaSpeeds(np.array([0.6]), 5.0).clipped_mean(0, low, high)[0]
    assert beta == pytest.approx(
        mean_by_integration(lambda z: z**2 * (1 - z), 0.3, 0.7, (0, 1)), abs=1e-6
    )


@pytest.mark.parametrize("speeds", ALL.values(), ids=ALL)
def test_slots_of_one_regime_have_one_mean(speeds):
    low, high = np.zeros(3), np.ones(3)
    seen: dict[int, np.ndarray] = {}
    for slot in range(60):
        mean = speeds.clipped_mean(slot, low, high)
        np.testing.assert_array_equal(seen.setdefault(speeds.regime(slot), mean), mean)


def test_reach_covers_two_standard_deviations_at_all_times():
    waving = WavingSpeeds(np.array([0.4]), np.array([0.2]), amplitude=0.5, period=9, spread=0.6)
    low, high = waving.reach()
    means = [waving.means(np.array([t]))[0, 0] for t in range(9)]
    assert low[0] <= min(m * (1 - 1.2) for m in means)
    assert high[0] >= max(m * (1 + 1.2) for m in means)


def test_a_walk_through_the_record_keeps_its_order():
    walked = ReplayedSpeeds([np.arange(10.0)], blocks=5, slots=50)
    drawn = walked.draw(0, 50, np.random.default_rng(1))[:, 0]
    for t in range(50):
        assert drawn[t] in (2 * (t // 10), 2 * (t // 10) + 1)


def test_the_record_is_kept_in_order_and_in_step_and_its_mean_is_over_all_beginnings():
    a, b, c = np.arange(5.0), np.arange(7.0) + 10, np.arange(3.0) + 20
    low, high, seen = np.zeros(3), np.array([3.5, 13.5, 99.0]), []
    for seed in range(200):
        speeds = RecordedSpeeds.anywhere([a, b, c], [0, 0, 1], np.random.default_rng(seed))
        drawn = speeds.draw(0, 12, np.random.default_rng(0))
        assert (drawn[:, 1] == drawn[:, 0] + 10).all()  # in step; b's last two values are left out
        assert (np.diff(drawn[:, 0]) % 5 == 1).all()
        assert (np.diff(drawn[:, 2]) % 3 == 1).all()
        seen.append(np.clip(drawn[0], low, high))
        mean = speeds.clipped_mean(0, low, high)
    np.testing.assert_allclose(
        mean, [(0 + 1 + 2 + 3 + 3.5) / 5, 10 + (0 + 1 + 2 + 3 + 3.5) / 5, 21]
    )
    np.testing.assert_allclose(np.mean(seen, axis=0), mean, atol=0.4)
    assert len({(row[0], row[2]) for row in np.array(seen).tolist()}) == 15


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: NormalSpeeds(np.array([0.5, np.nan])), "channel 1 has nan"),
        (lambda: NormalSpeeds(np.array([0.5]), -1), "spread is -1"),
        (lambda: BernoulliSpeeds(np.array([0.5, 1.5])), "channel 1 has 1.5"),
        (lambda: BetaSpeeds(np.array([0.0])), "channel 0 has 0.0"),
        (lambda: BetaSpeeds(np.array([0.5]), 0.0), "concentration is 0"),
        (lambda: PiecewiseSpeeds(np.ones((2, 1)), np.array([0, 0])), "increasing slots"),
        (lambda: PiecewiseSpeeds(np.array([[1.0], [-1.0]]), np.array([0, 5])), "in piece 1"),
        (lambda: PiecewiseSpeeds(np.ones((1, 1)), np.array([0]), spread=np.nan), "spread is nan"),
        (lambda: WavingSpeeds(np.ones(2), np.ones(2), amplitude=2), "amplitude"),
        (lambda: WavingSpeeds(np.array([np.inf]), np.ones(1)), "channel 0 has inf"),
        (lambda: WavingSpeeds(np.ones(2), np.ones(2), spread=-1), "spread is -1"),
        (lambda: ReplayedSpeeds([]), "no measured"),
        (lambda: RecordedSpeeds([np.ones(3)], [0, 0], [0]), "a group and a beginning each"),
        (lambda: RecordedSpeeds([np.ones(3)] * 2, [0, 0], [0, 1]), "measured at the same time"),
        (lambda: ReplayedSpeeds([np.array([0.1, -0.1])]), "channel 0 .* value 1 has -0.1"),
        (lambda: ReplayedSpeeds([np.ones(3)], blocks=4), "shortest series has 3"),
    ],
)
def test_bad_speeds(make, message):
    with pytest.raises(ScenarioError, match=message):
        make()
