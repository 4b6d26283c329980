"""Schedulers that expect ends, and orders by length: compiled, in Python, and said plainly."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from gangwise.core.errors import ScenarioError, UnknownName
from gangwise.jobs.model import Jobs, Nodes
from gangwise.jobs.schedule import Options
from gangwise.jobs.scheduler import create_scheduler
from gangwise.jobs.simulation import simulate_jobs
from tests.jobs.middle import MiddleCase
from tests.reference.expected_ends import Pool

ORDERS = ["fcfs", "sjf", "saf", "f1", "f2", "f3", "f4", "unicep", "aged"]
RULES = [
    {"ends": ends, "passing": passing, "correction": correction, "slack": slack}
    for ends, correction, slack in [
        ("requested", "request", 600.0),
        ("true", "request", math.inf),
        ("true", "request", 0.0),
        ("learned", "request", math.inf),
        ("learned", "steps", math.inf),
        ("learned", "request", 600.0),
        ("learned", "steps", 0.0),
    ]
    for passing in ("queue", "shortest")
]


def crowd(seed: int, J: int) -> list[tuple[float, float, int, float, str]]:
    """Jobs that crowd a pool of 16, of users with habits; a tenth ask for no limit."""
    rng = np.random.default_rng(seed)
    user = rng.integers(0, 6, J)
    run = np.ceil(np.exp(rng.normal(4 + user, 1.0)))
    limit = np.where(rng.random(J) < 0.9, run + np.ceil(run * rng.exponential(3, J)), math.inf)
    submit = np.cumsum(np.floor(rng.exponential(run.mean() * 3.2 / 16, J)))
    size = np.minimum(2 ** rng.integers(0, 5, J), 16)
    columns = zip(submit.tolist(), run.tolist(), size.tolist(), limit.tolist(), strict=True)
    return [(*job, f"u{u}") for job, u in zip(columns, user.tolist(), strict=True)]


def table(jobs: list[tuple[float, float, int, float, str]]) -> Jobs:
    submit, run, size, limit, user = zip(*jobs, strict=True)
    asked = [math.nan if math.isinf(seconds) else seconds for seconds in limit]
    return Jobs.of(submit, run, size, limit=asked, user=user)


def otherwise_on_pools(J: int) -> list[tuple[str, dict[str, Any], str]]:
    """Order, rules and engine of cases that the plain simulator plays otherwise."""
    found = []
    for seed, (queue, rules) in enumerate(itertools.product(ORDERS, RULES)):
        jobs = crowd(seed, J)
        wanted = Pool(jobs, 16, queue, **rules).play()
        for engine in ("compiled", "plain"):
            scheduler = create_scheduler(f"{queue}+easy", times="last-two", **rules)
            played = simulate_jobs(table(jobs), Nodes.pool(16), scheduler, engine=engine)
            if played.start.tolist() != wanted:
                found.append((queue, rules, engine))
        waited = sum(start > job[0] for start, job in zip(wanted, jobs, strict=True))
        assert waited > J // 6
    return found


def otherwise_on_nodes(cases: Iterable[Any]) -> list[tuple[int, str, str]]:
    """Number, order and choice of cases that compiled code and Python decide differently."""
    choices, found = ("best-fit", "first-fit", "worst-fit", "label", "learned"), []
    for i, case in enumerate(cases):
        queue, choice = ORDERS[i % len(ORDERS)], choices[i % len(choices)]
        options = {**RULES[i % len(RULES)], "depth": case.depth}
        if case.options.limits == "work":
            continue
        one, other = (
            simulate_jobs(
                case.jobs,
                case.nodes,
                create_scheduler(f"{queue}+easy+{choice}", **options),
                case.conditions,
                case.options,
                engine=engine,
            )
            for engine in ("compiled", "plain")
        )
        starts = np.array_equal(one.start, other.start, equal_nan=True)
        if not (starts and np.array_equal(one.end, other.end, equal_nan=True)):
            found.append((i, queue, choice))
    return found


@pytest.mark.full
def test_pools_are_played_as_a_plain_simulator_plays_them() -> None:
    assert otherwise_on_pools(60) == []


def test_nodes_shapes_failures_and_cancellations_are_decided_alike() -> None:
    """Small cases with everything in them: compiled and in Python."""
    assert otherwise_on_nodes(MiddleCase(i, small=True) for i in range(60)) == []


@pytest.mark.full
def test_cases_of_hundreds_of_jobs_are_decided_alike() -> None:
    assert otherwise_on_nodes(MiddleCase(i) for i in range(30)) == []


def test_the_first_in_line_keeps_its_start_if_requests_are_true() -> None:
    """Whatever is predicted: of 300 jobs none that kept to its request broke what was kept."""
    for seed in range(6):
        jobs = [(s, r, n, r * 2, u) for s, r, n, _, u in crowd(seed, 300)]
        for slack, times in itertools.product((0.0, 600.0), ("ratio", "noise")):
            rules = {"ends": "learned", "slack": slack, "times": times}
            scheduler = create_scheduler("fcfs+easy", **rules)
            played = simulate_jobs(table(jobs), Nodes.pool(16), scheduler)
            kept = np.isfinite(played.reserved)
            assert (played.start[kept] <= played.reserved[kept]).all()
            assert kept.sum() > 30


@pytest.mark.parametrize("times", ["ratio", "learned", "last-two", "noise"])
def test_predictors_expect_the_same_in_both_engines(times: str) -> None:
    jobs, nodes = table(crowd(5, 120)), Nodes.pool(16)
    name = f"fcfs+easy:ends=learned,times={times}"
    one, other = (simulate_jobs(jobs, nodes, name, engine=e) for e in ("compiled", "plain"))
    assert np.array_equal(one.start, other.start)


def test_learned_means_run_times_too_and_requests_where_limits_are_of_work() -> None:
    jobs, nodes = table(crowd(3, 120)), Nodes.pool(16)
    both = simulate_jobs(jobs, nodes, "fcfs+easy+learned")
    times = simulate_jobs(jobs, nodes, "fcfs+easy:ends=learned")
    assert np.array_equal(both.start, times.start)
    work = Options(limits="work")
    learned = create_scheduler("fcfs+easy+learned")
    simulate_jobs(jobs, nodes, learned, options=work)
    assert learned.expects == ("requested", "queue")
    with pytest.raises(ScenarioError, match="clock"):
        simulate_jobs(jobs, nodes, "fcfs+easy:ends=learned", options=work)


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("fcfs+easy:ends=lerned", "did you mean learned"),
        ("fcfs+easy:passing=short", "shortest"),
        ("fcfs+easy:times=last", "last-two"),
        ("fcfs+easy:correction=none", "steps"),
    ],
)
def test_what_is_wrong_is_named(name: str, fault: str) -> None:
    with pytest.raises(UnknownName, match=fault):
        create_scheduler(name)


def test_conservative_backfilling_keeps_to_requests() -> None:
    with pytest.raises(ScenarioError, match="conservative"):
        create_scheduler("fcfs+conservative:ends=learned")
    with pytest.raises(ScenarioError, match="slack"):
        create_scheduler("fcfs+easy:slack=-1")
    assert create_scheduler("fcfs+conservative+learned").expects == ("requested", "queue")
