"""The Gymnasium environments: kept contracts, and returns that agree with runs of gangwise."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium", reason="gymnasium is not installed")

from gymnasium.utils.env_checker import check_env  # noqa: E402 - after the check that it is there

import gangwise.gym  # noqa: E402, F401 - registers the ids
from gangwise import create_scenario, simulate  # noqa: E402
from gangwise.core.contracts import PolicyBase  # noqa: E402
from gangwise.gym_kernels import row  # noqa: E402
from gangwise.jobs import create_scheduler, simulate_jobs  # noqa: E402

SMALL = {
    "gangwise/GainOverhead-v1": {"scenario": "ogasched-default-v1:servers=8", "slots": 30},
    "gangwise/FluctuatingSpeeds-v1": {"slots": 30},
    "gangwise/ApproximationJobs-v1": {"scenario": "opm-default-v1:machines=20", "slots": 30},
    "gangwise/Jobs-v1": {"jobs": 40},
}


@pytest.mark.parametrize("name", SMALL)
def test_gymnasium_finds_nothing_wrong(name: str) -> None:
    env = gymnasium.make(name, **SMALL[name])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*symmetric and normalized.*")
        warnings.filterwarnings("ignore", message=".*render.*")
        warnings.filterwarnings(
            "ignore", message=".*not within the observation space.*", append=True
        )
        check_env(env.unwrapped, skip_render_check=True)


@pytest.mark.parametrize("name", SMALL)
def test_random_actions_are_always_feasible_and_seeds_repeat(name: str) -> None:
    returns = []
    for _ in range(2):
        env = gymnasium.make(name, **SMALL[name])
        _, info = env.reset(seed=5)
        env.action_space.seed(1)
        total, over = 0.0, False
        while not over:
            action = env.action_space.sample()
            if name == "gangwise/Jobs-v1":
                action = int(
                    np.flatnonzero(info["action_mask"])[action % info["action_mask"].sum()]
                )
            _, reward, done, cut, info = env.step(action)
            total, over = total + reward, done or cut
        returns.append(total)
    assert returns[0] == returns[1]
    assert np.isfinite(returns[0])
    assert returns[0] != 0


def test_vectors_of_environments() -> None:
    envs = gymnasium.make_vec("gangwise/GainOverhead-v1", 3, **SMALL["gangwise/GainOverhead-v1"])
    seen, _ = envs.reset(seed=[1, 2, 3])
    assert seen.shape[0] == 3
    seen, rewards, *_ = envs.step(envs.action_space.sample())
    assert rewards.shape == (3,)
    envs.close()


@dataclass
class AllOn(PolicyBase):
    """Asks for all that a channel may be given, and shrinks it as the environment does."""

    family = "gain_overhead"

    def start(self, problem, rng):
        self.problem = problem

    def decide(self, observation):
        p = self.problem
        wanted = (observation.arrivals[p.channels.job_type] > 0)[:, None] * p.upper
        given = np.zeros_like(p.cluster.capacity)
        for e, r in enumerate(p.channels.server):
            given[r] += wanted[e]
        return (
            wanted
            * np.minimum(1, p.cluster.capacity / np.maximum(given, 1e-300))[p.channels.server]
        )


def test_rewards_are_those_of_a_run() -> None:
    env = gymnasium.make("gangwise/GainOverhead-v1", **SMALL["gangwise/GainOverhead-v1"])
    env.reset(seed=11)
    seed_of_the_run = int(
        np.random.default_rng(np.random.PCG64(np.random.SeedSequence(11))).integers(2**62)
    )
    rewards = []
    for _ in range(30):
        _, reward, *_ = env.step(np.ones(env.action_space.shape, np.float32))
        rewards.append(reward)
    instance = create_scenario("ogasched-default-v1:servers=8").instance(0)
    played = simulate(instance, AllOn(), 30, seed_of_the_run)
    np.testing.assert_allclose(rewards, played.rewards, rtol=1e-6)


def test_first_come_first_served_by_hand_is_the_scheduler() -> None:
    """Always starting the first waiting job if it fits is FCFS; returns are completion times."""
    env = gymnasium.make(
        "gangwise/Jobs-v1", jobs=150, choice="best-fit", load=20, nodes=4
    ).unwrapped
    _, info = env.reset(seed=2)
    total, over = 0.0, False
    while not over:
        action = 0 if info["action_mask"][0] else env.action_space.n - 1
        _, reward, over, _, info = env.step(action)
        total += reward
    played = env.schedule()
    scheduler = create_scheduler("fcfs+none+best-fit")
    tables = env.tables
    again = simulate_jobs(
        tables.jobs, tables.nodes, scheduler, tables.conditions, tables.options, engine="plain"
    )
    np.testing.assert_array_equal(played.start, again.start)
    assert (again.start > tables.jobs.submit).any()
    assert -total == pytest.approx((again.end - tables.jobs.submit).mean() / 3600)


class Inner(NamedTuple):
    grid: Any
    line: Any


class Outer(NamedTuple):
    inner: Inner
    number: int


def test_a_row_in_compiled_code_is_that_of_plain_python() -> None:
    of = Outer(Inner(np.arange(6.0).reshape(2, 3), np.arange(2)), 7)
    one = row(of, 1)
    assert isinstance(one.inner, Inner)
    assert (one.inner.grid.tolist(), one.inner.line, one.number) == ([3.0, 4.0, 5.0], 1, 7)
    assert numba.njit(lambda of: row(of, 1).inner.grid.sum() + row(of, 1).number)(of) == 19.0


def test_many_at_once_are_as_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiled environments against that which decides in Python: masks, rewards, schedules."""
    import gangwise.gym as worlds
    from gangwise.gym_kernels import FEATURES, LOG_SECONDS

    given = {"jobs": 60, "window": 5, "nodes": 4, "load": 6.0}
    many = gymnasium.make_vec("gangwise/JobsVector-v1", 3, episodes=4, **given)
    seen, info = many.reset(options={"episodes": [3, 0, 2]})
    rng, ends = np.random.default_rng(0), np.zeros(3, dtype=bool)
    singles = []
    for episode in (3, 0, 2):
        tables = many.unwrapped.tables[episode]
        monkeypatch.setattr(worlds, "_episode", lambda *_, tables=tables: tables)
        single = gymnasium.make("gangwise/Jobs-v1", choice="best-fit", **given).unwrapped
        single.reset()
        singles.append(single)
    started, hours = 0, np.zeros(3)
    while not ends.all():
        actions = np.array([rng.choice(np.flatnonzero(mask)) for mask in info["action_mask"]])
        masks = info["action_mask"]
        for i, single in enumerate(singles):
            if ends[i]:
                continue
            np.testing.assert_array_equal(masks[i, :5], single.action_masks()[:5])
            more = single._play.books.running or single._play.state.at.next_job < 60
            assert masks[i, 5] == bool(more)  # or those who wait would wait for ever
            rows = seen[i, : 5 * len(FEATURES)].reshape(5, -1)
            for of, job in zip(rows, single._play.waiting):
                assert of[0] == 1
                waited = np.log1p(single._play.now - job.submitted) / LOG_SECONDS
                np.testing.assert_allclose(
                    of[1:3], [waited, np.log1p(job.limit) / LOG_SECONDS], 1e-5
                )
                assert of[3] == min(job.tasks / 4, 1)
            assert rows[:, 0].sum() == min(len(single._play.waiting), 5)
            assert seen[i, 5 * len(FEATURES)] == pytest.approx(
                single._play.books.free.sum() / single._play.books.capacity.sum()
            )
        seen, rewards, over, _, info = many.step(actions)
        assert many.observation_space.contains(seen)
        for i, single in enumerate(singles):
            if not ends[i]:
                _, reward, done, _, _ = single.step(int(actions[i]))
                assert (rewards[i], over[i]) == (pytest.approx(reward), done)
                started += actions[i] < 5
                hours[i] -= rewards[i]
        ends |= over
    assert started == 180
    for i, single in enumerate(singles):
        t, played = single.tables, single.schedule()
        assert hours[i] == pytest.approx((played.end - t.jobs.submit).mean() / 3600)
