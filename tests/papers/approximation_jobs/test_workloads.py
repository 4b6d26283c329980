"""The synthetic jobs against the distributions they state."""

from __future__ import annotations

import pickle
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from gangwise import GangwiseError, ScenarioError
from gangwise.papers.approximation_jobs.problem import (
    GammaPeriods,
    SyntheticJobs,
    bounded_pareto,
    load_of,
    paper_jobs,
    price_machines,
)

PRICE = 1.3940363757380785


def jobs_of(seed=0, **settings):
    given = {"machines": 100, "slots": 4000, "price": PRICE, "load": 1.5, **settings}
    return SyntheticJobs(**given).jobs(np.random.default_rng(seed))


def test_bounded_pareto_has_its_distribution():
    drawn = bounded_pareto(np.random.default_rng(0), 1.1, 50, 1500, 20_000)
    law = stats.truncpareto(1.1, 1500 / 50, scale=50)
    assert stats.kstest(drawn, law.cdf).pvalue > 1e-3


@pytest.mark.parametrize("arrivals", ["poisson", "bursty"])
def test_jobs_are_added_until_the_load_is_reached(arrivals):
    jobs = jobs_of(arrivals=arrivals)
    load = load_of(jobs, np.full(100, PRICE), 4000)
    assert load >= 1.5
    assert load - max(job.budget for job in jobs) / (100 * PRICE * 4000) < 1.5
    assert [job.id for job in jobs] == list(range(len(jobs)))
    assert all(a.arrival <= b.arrival for a, b in pairwise(jobs))
    assert max(job.deadline for job in jobs) <= 4000
    assert max(job.arrival for job in jobs) < 0.95 * 4000


def test_budgets_and_values_are_uniform():
    jobs = [job for seed in range(3) for job in jobs_of(seed)]
    q = np.array([job.budget / job.lifetime / 0.1 for job in jobs])  # M / 1000 = 0.1
    v = np.array([job.utility.v for job in jobs])
    assert stats.kstest(q, "uniform", (2, 98)).pvalue > 1e-3
    assert stats.kstest(v, "uniform", (1, 4)).pvalue > 1e-3
    assert abs(np.corrcoef(q, v)[0, 1]) < 0.1
    whole = np.array([job.lifetime for job in jobs if job.deadline < 4000])
    assert whole.min() >= 50
    assert whole.max() <= 1500


def test_poisson_arrivals_are_uniform_and_bursts_are_not():
    spread = []
    for arrivals in ("poisson", "bursty"):
        at = np.concatenate([[j.arrival for j in jobs_of(s, arrivals=arrivals)] for s in range(4)])
        counts = np.bincount(at // 50, minlength=76)[:76]
        spread.append(counts.var() / counts.mean())
        if arrivals == "poisson":
            assert stats.kstest(at, "uniform", (0, 3800)).pvalue > 1e-3
    one = [
        np.bincount([j.arrival // 50 for j in jobs_of(s, arrivals="bursty")], minlength=76)
        for s in range(4)
    ]
    assert np.mean([c.var() / c.mean() for c in one]) > 3 * spread[0]
    assert np.mean([(c == 0).mean() for c in one]) > 0.3  # off-periods; 70 % of the time


def test_the_stream_hands_out_the_same_jobs_however_it_is_asked():
    workload = SyntheticJobs(50, 600, PRICE, 1.0)
    expected = workload.jobs(np.random.default_rng(5))
    stream = workload.stream(np.random.default_rng(5))
    drawn = list(stream.draw(100))
    stream = pickle.loads(pickle.dumps(stream))
    drawn += [*stream.draw(1), *stream.draw(700)]
    assert [job for slot in drawn for job in slot] == expected
    for slot, jobs in enumerate(drawn):
        assert all(job.arrival == slot for job in jobs)


def test_leaving_out_the_last_jobs_changes_no_other():
    a, d = np.arange(9), np.arange(9) + 5
    some = paper_jobs(np.random.default_rng(1), a[:6], d[:6], 1000)
    assert paper_jobs(np.random.default_rng(1), a, d, 1000)[:6] == some


def test_prices():
    rates = GammaPeriods(6)
    same = price_machines(rates, "population", 0, np.random.default_rng(0))
    assert same == pytest.approx(np.full(6, PRICE), abs=1e-12)
    realised = price_machines(rates, "realised", 5000, np.random.default_rng(4))
    drawn = rates.stream(np.random.default_rng(4)).draw(5000)
    assert realised == pytest.approx(2 * drawn.mean(axis=0))
    assert np.ptp(realised) > 0.01


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"load": 0.0}, "load"),
        ({"machines": 0}, "machine"),
        ({"lifetime": (1.1, 80, 50)}, "lifetime"),
        ({"arrivals": "weekly"}, "weekly"),
        ({"duty": 0.0}, "duty"),
        ({"q": (0.0, 1.0)}, "q is"),
    ],
)
def test_mistakes_are_named(settings, message):
    with pytest.raises(GangwiseError, match=message):
        jobs_of(**settings)


def test_realised_prices_need_slots():
    with pytest.raises(ScenarioError, match="slots"):
        price_machines(GammaPeriods(2), "realised", 0, np.random.default_rng(0))
    with pytest.raises(ScenarioError, match="guess"):
        price_machines(GammaPeriods(2), "guess", 1, np.random.default_rng(0))
