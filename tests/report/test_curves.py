import numpy as np

from gangwise.report import curves
from tests.report.made import made


def test_thinning_keeps_the_first_and_the_last_point() -> None:
    for length in (1, 2, 499, 500, 501, 12_345):
        at = curves.thin(length)
        assert at[0] == 0
        assert at[-1] == length - 1
        assert at.size <= curves.POINTS
        assert (np.diff(at) > 0).all()


def test_a_thinned_curve_ends_at_the_total_of_all_slots() -> None:
    rng = np.random.default_rng(0)
    rewards = rng.normal(5, 1, (2, 3000))
    comparison = made({"a": rewards.tolist()})
    total = curves.cumulative_reward(comparison.results, (), "a")
    assert total.slots[-1] == 3000
    assert np.isclose(total.mean[-1], rewards.sum(axis=1).mean())
    assert np.isclose(curves.average_reward(comparison.results, (), "a").mean[-1], rewards.mean())


def test_band_is_students_interval() -> None:
    curve = curves.average_reward(made({"a": [[1.0], [2.0], [3.0]]}).results, (), "a")
    assert curve.half is not None
    assert np.isclose(curve.half[0], 4.302652729749464 / np.sqrt(3))


def test_ratio_is_paired_and_unknown_where_nothing_was_earned() -> None:
    comparison = made({"a": [[1.0, 3.0], [2.0, 2.0]], "b": [[0.0, 2.0], [1.0, 1.0]]})
    curve = curves.ratio(comparison.results, (), "b", "a")
    assert np.isnan(curve.mean[0])
    assert np.isclose(curve.mean[1], (4 / 2 + 4 / 2) / 2)


def test_regret_on_a_sample_ends_at_the_regret_of_the_run() -> None:
    rewards = [[1.0, 2.0, 3.0, 4.0, 5.0], [2.0, 2.0, 2.0, 2.0, 2.0]]
    comparison = made({"a": rewards}, {"per_slot_optimum": ([0, 3], [[4.0, 6.0], [5.0, 5.0]])})
    curve = curves.regret(comparison.results, (), "a", "per_slot_optimum")
    expected = [
        comparison.runs["a", s].regret(comparison.comparators["per_slot_optimum", s])
        for s in (0, 1)
    ]
    assert curve.slots[-1] == 5
    assert np.isclose(curve.mean[-1], np.mean(expected))
    # By hand: mean differences (3 + 2)/2 and (3 + 3)/2, over five slots.
    assert np.isclose(curve.mean[-1], (12.5 + 15) / 2)


def test_comparator_on_a_sample_is_drawn_level() -> None:
    comparison = made({"a": [[1.0, 2.0, 3.0]]}, {"best": ([0, 2], [[2.0, 6.0]])})
    assert curves.average_reward(comparison.results, (), "best").mean.tolist() == [4.0] * 3
    comparison = made({"a": [[1.0, 2.0, 3.0]]}, {"best": ([0, 1, 2], [[2.0, 6.0, 1.0]])})
    assert curves.average_reward(comparison.results, (), "best").mean.tolist() == [2.0, 4.0, 3.0]
