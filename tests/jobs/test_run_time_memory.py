"""The learned distribution of run times: against a plain twin, planted truths, and the future."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from gangwise.core.arrays import Floats
from gangwise.jobs.model import Jobs, Nodes
from gangwise.jobs.run_times import (
    RunTimes,
    at_most,
    distribution,
    ended,
    expect,
    grown,
    quantile,
    state_of,
)
from gangwise.jobs.scheduler import create_scheduler
from gangwise.jobs.simulation import simulate_jobs
from tests.reference.run_times import PlainMemory

Told = Callable[[RunTimes, int, float], None]


def made(seed: int, J: int, names: int = 4, users: int = 5) -> Jobs:
    """Jobs of users with habits; a fifth without a request."""
    rng = np.random.default_rng(seed)
    user, name = rng.integers(0, users, J), rng.integers(0, names, J)
    run = rng.lognormal(3.0 + user + 0.5 * name, 1.0)
    limit = np.where(rng.random(J) < 0.8, 60.0 * rng.choice([1, 10, 60, 600], J), np.nan)
    return Jobs.of(
        np.sort(rng.uniform(0, 200 * J, J)),
        np.fmin(run, limit),
        tasks=rng.choice([1, 2, 8], J),
        limit=limit,
        type=[f"n{n}" for n in name],
        user=[f"u{u}" for u in user],
    )


def play(jobs: Jobs, told: Told, until: float = math.inf) -> RunTimes:
    """Every job starts when it is submitted; ``told`` is called at each submission."""
    r, running = state_of(jobs, "learned"), list[tuple[float, int]]()
    for j, now in enumerate(jobs.submit.tolist()):
        while running and running[0][0] <= min(now, until):
            at, i = heapq.heappop(running)
            ended(r, i, float(jobs.run[i]), True, at)
        if now > until:
            break
        told(r, j, now)
        heapq.heappush(running, (now + float(jobs.run[j]), j))
    return r


@pytest.mark.parametrize("seed", range(3))
def test_distribution_is_that_of_the_plain_twin(seed: int) -> None:
    jobs, plain, running = made(seed, 250), PlainMemory(), list[tuple[float, int]]()
    r, worst, told = state_of(jobs, "learned"), 0.0, dict[int, tuple[int, list[float]]]()
    for j, now in enumerate(jobs.submit.tolist()):
        while running and running[0][0] <= now:
            at, i = heapq.heappop(running)
            seconds = float(jobs.run[i])
            ended(r, i, seconds, True, at)
            plain.locate(*told[i], float(r.request[i]), seconds)
            row = int(jobs.user[i]), int(jobs.type[i]), float(r.request[i]), float(jobs.tasks[i])
            plain.jobs.append((*row, seconds, at))
        expect(r, j, now)
        row = int(jobs.user[j]), int(jobs.type[j]), float(r.request[j]), float(jobs.tasks[j])
        told[j] = plain.level(row[0]), plain.mass(*row, now)
        worst = max(worst, np.abs(r.memory.mass - told[j][1]).max())
        distribution(r, j, now)
        worst = max(worst, np.abs(r.memory.mass - plain.recalibrated(*told[j])).max())
        heapq.heappush(running, (now + float(jobs.run[j]), j))
    assert len(plain.jobs) > 200
    assert worst < 1e-9


def test_predictions_do_not_depend_on_jobs_that_have_not_ended() -> None:
    """Whatever ends later is changed: nothing that was said before changes."""
    jobs = made(3, 200)
    now = float(jobs.submit[120])
    late = jobs.submit + jobs.run > now
    other = replace(jobs, run=np.where(late, 7.0 * jobs.run + now, jobs.run))
    said: list[list[float]] = [[], []]
    play(jobs, lambda r, j, at: said[0].append(expect(r, j, at)), now)
    play(other, lambda r, j, at: said[1].append(expect(r, j, at)), now)
    assert len(said[0]) == 121
    assert late[:121].any()
    assert said[0] == said[1]


def test_names_of_users_do_not_matter() -> None:
    jobs, one, two = made(4, 200), list[float](), list[float]()
    play(jobs, lambda r, j, now: one.append(quantile(r, j, 0.9, 0.0, now)))
    renamed = replace(jobs, user=4 - jobs.user, type=3 - jobs.type)
    play(renamed, lambda r, j, now: two.append(quantile(r, j, 0.9, 0.0, now)))
    assert one == two


PLANTED: dict[str, Callable[[np.random.Generator, npt.NDArray[np.int64]], Floats]] = {
    "lognormal": lambda rng, user: rng.lognormal(5.0 + user, 0.8),
    "narrow": lambda rng, user: rng.lognormal(5.0 + user, 0.4),
    "fails soon, or runs long": lambda rng, user: (
        np.where(rng.random(user.size) < 0.3, 20.0, 3000.0 * (1 + user))
        * rng.lognormal(0, 0.5, user.size)
    ),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_quantiles_cover_what_they_say(planted: str) -> None:
    """10, 50 and 90 % of planted run times lie below; 3,000 jobs, each of five users' habits."""
    rng = np.random.default_rng(11)
    user = rng.integers(0, 5, 3000)
    run = PLANTED[planted](rng, user)
    jobs = Jobs.of(np.arange(3000) * 5000.0, run, user=[f"u{u}" for u in user])
    below, levels = np.zeros(3), (0.1, 0.5, 0.9)

    def count(r: RunTimes, j: int, now: float) -> None:
        expect(r, j, now)
        if j >= 500:
            below[:] += [jobs.run[j] <= quantile(r, j, p, 0.0, now) for p in levels]

    play(jobs, count)
    assert np.abs(below / 2500 - levels).max() < 0.03, below / 2500


def test_what_is_left_of_a_running_job_follows_from_the_same_distribution() -> None:
    jobs = made(6, 150)
    r = play(jobs, lambda *_: None)
    now = float(jobs.submit[-1])
    for j in range(0, 150, 7):
        request = float(r.request[j])
        for elapsed in (0.0, 30.0, 900.0):
            if elapsed >= request:
                continue
            at = [quantile(r, j, p, elapsed, now) for p in (0.05, 0.25, 0.5, 0.75, 0.95)]
            assert at == sorted(at)
            assert at[0] >= elapsed
            for p, seconds in zip((0.05, 0.25, 0.5, 0.75, 0.95), at, strict=True):
                if 1.0 < seconds < request:
                    above = [1 - at_most(r.memory.mass, t) for t in (seconds, elapsed)]
                    assert above[0] / above[1] == pytest.approx(1 - p, abs=1e-9)


def test_a_job_that_was_withdrawn_teaches_nothing_and_one_killed_at_its_limit_does() -> None:
    jobs = Jobs.of([0.0, 0.0], [50.0, 50.0], limit=[600.0, 600.0])
    r = state_of(jobs, "learned")
    before = expect(r, 0, 0.0)
    ended(r, 0, 1.0, False, 1.0)
    assert expect(r, 1, 2.0) == before
    ended(r, 0, 600.0, False, 600.0)
    assert r.memory.ended[0] == 1
    assert expect(r, 1, 601.0) == pytest.approx(600.0, rel=0.05)


def test_names_that_mean_nothing_cost_little() -> None:
    """Mean error of ln seconds with names drawn at random, beside one name for all."""
    error = []
    for names in (1, 40):
        jobs, said = made(8, 1500, names=names), list[float]()
        run = np.random.default_rng(9).lognormal(4.0 + jobs.user, 0.7)
        jobs = replace(jobs, run=run, requested=np.zeros(1500, dtype=bool))
        play(jobs, lambda r, j, now, said=said: said.append(expect(r, j, now)))
        error.append(np.abs(np.log(said) - np.log(run))[300:].mean())
    assert error[1] < 1.25 * error[0]


def test_a_memory_that_grew_is_as_one_that_was_large() -> None:
    jobs, one, two = made(12, 120), list[float](), list[float]()
    play(jobs, lambda r, j, now: one.append(expect(r, j, now)))
    r, running = grown(state_of(made(12, 1), "learned"), 5, 6), list[tuple[float, int]]()
    large = state_of(jobs, "learned")
    for j, now in enumerate(jobs.submit.tolist()):
        while running and running[0][0] <= now:
            at, i = heapq.heappop(running)
            ended(r, i, float(jobs.run[i]), True, at)
        if j >= r.request.size or j == 5:
            r = grown(r, 2 * j + 5, 9 + j)
        for column in ("request", "user", "name", "size"):
            getattr(r, column)[j] = getattr(large, column)[j]
        r.user[j] += 1  # the one who was there at first had one job to come
        two.append(expect(r, j, now))
        heapq.heappush(running, (now + float(jobs.run[j]), j))
    assert one == two


@pytest.mark.full
def test_schedulers_learn_the_same_in_compiled_code_and_in_python() -> None:
    jobs = made(13, 150)
    jobs = replace(jobs, submit=jobs.submit / 4)
    starts = [
        simulate_jobs(jobs, Nodes.pool(12), create_scheduler(name), engine=engine).start.tolist()
        for name in ("fcfs+easy:ends=learned", "fcfs+easy:ends=learned,times=last-two")
        for engine in ("compiled", "plain")
    ]
    assert starts[0] == starts[1] != starts[2]


def test_a_row_of_a_job_that_is_over_is_given_to_the_next() -> None:
    jobs, scheduler = made(13, 400), create_scheduler("fcfs+easy:ends=learned")
    simulate_jobs(jobs, Nodes.pool(12), scheduler, engine="plain")
    assert len(scheduler._times.row) <= 1  # nothing is decided after the last end
    assert 12 < len(scheduler._times.free) < 200
