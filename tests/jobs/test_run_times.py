"""Predictors of run times against the same said plainly."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gangwise.core.errors import UnknownName
from gangwise.jobs.model import Jobs
from gangwise.jobs.run_times import KINDS, Expectations, corrected, ended, expect, grown, state_of


def made(seed: int, J: int = 200) -> Jobs:
    rng = np.random.default_rng(seed)
    run = rng.lognormal(6, 2, J)
    limit = np.where(rng.random(J) < 0.8, run * rng.uniform(1, 10, J), np.nan)
    user = [f"u{u}" for u in rng.integers(0, 7, J)]
    return Jobs.of(np.sort(rng.uniform(0, 1e5, J)), run, limit=limit, user=user)


@pytest.mark.parametrize("seed", range(3))
def test_last_two_are_the_users_last_two_and_never_more_than_the_request(seed: int) -> None:
    jobs, history = made(seed), dict[str, list[float]]()
    r = state_of(jobs, "last-two")
    for j in range(len(jobs)):
        job = jobs.job(j)
        before = history.setdefault(job.user, [])
        request = job.limit if job.requested else math.inf
        expected = request
        if len(before) > 1:
            expected = min((before[-1] + before[-2]) / 2, request)
        elif not job.requested:
            every = [x for own in history.values() for x in own]
            expected = sum(every) / len(every) if every else 3600.0
        assert expect(r, j, 0.0) == pytest.approx(max(expected, 1.0))
        before.append(float(jobs.run[j]))
        ended(r, j, float(jobs.run[j]), True, 0.0)


def test_ratio_is_the_users_shrunk_geometric_mean_of_run_time_to_request() -> None:
    jobs, ratios = made(4), list[tuple[str, float]]()

    def mean(values: list[float], prior: float) -> float:
        weights = [0.98**age for age in range(len(values) - 1, -1, -1)]
        return (sum(w * v for w, v in zip(weights, values)) + prior) / (sum(weights) + 1)

    r = state_of(jobs, "ratio")
    for j in range(len(jobs)):
        job = jobs.job(j)
        asked = job.limit if job.requested else 3600.0
        every = mean([ratio for _, ratio in ratios], -1.0)
        own = mean([ratio for user, ratio in ratios if user == job.user], every)
        wanted = min(asked * math.exp(own - 0.3), job.limit if job.requested else math.inf)
        assert expect(r, j, 0.0) == pytest.approx(max(wanted, 1.0))
        ratios.append((job.user, math.log(max(float(jobs.run[j]), 1.0) / asked)))
        ended(r, j, float(jobs.run[j]), True, 0.0)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_keeps_to_the_request_and_knows_no_run_time(kind: str) -> None:
    jobs = made(5)
    r, other = state_of(jobs, kind), state_of(made(5), kind)
    for j in range(len(jobs)):
        seconds = expect(r, j, jobs.submit[j])
        assert 0.0 < seconds <= r.request[j]
        if kind != "true":  # what has not ended yet is not known
            assert other.truth.size == 0
            assert expect(r, j, jobs.submit[j]) == seconds
        r.expected[j] = seconds
        if j % 3:
            ended(r, j, jobs.run[j], bool(j % 7), jobs.submit[j])


def test_an_outlived_prediction_grows_by_tsafrirs_steps_up_to_the_request() -> None:
    jobs = Jobs.of([0.0, 0.0], [9e6, 9e6], limit=[5000.0, np.nan])
    r = state_of(jobs, "last-two", steps=True)
    r.expected[:] = 100.0
    at = [50, 99, 100, 159, 160, 399, 400, 999, 1000, 1899, 1900, 3699, 3700, 7000]
    wanted = [100, 100, 160, 160, 400, 400, 1000, 1000, 1900, 1900, 3700, 3700, 5000, 5000]
    assert [corrected(r, 0, float(t)) for t in at] == wanted
    assert all(corrected(r, 1, t) > t for t in (1e3, 1e5, 3e6))
    at_once = r._replace(steps=False)
    assert [corrected(at_once, 0, t) for t in (99.0, 100.0, 4999.0)] == [100.0, 5000.0, 5000.0]
    assert all(corrected(at_once, 1, t) > t for t in (1e3, 1e5, 3e6))


def test_a_state_grows_and_keeps_what_it_knows() -> None:
    jobs = made(1)
    r = state_of(jobs, "last-two")
    for j in range(50):
        ended(r, j, jobs.run[j], True, 0.0)
    more = grown(r, 300, 20)
    assert more.request.size == 300
    assert more.last.shape == (20, 4)
    assert [expect(more, j, 0.0) for j in range(50, 200)] == [
        expect(r, j, 0.0) for j in range(50, 200)
    ]


def test_an_unknown_kind_is_named() -> None:
    with pytest.raises(UnknownName, match="last-two"):
        Expectations.of("last-too", False)
