"""The Gymnasium environments: kept contracts, and returns that agree with runs of gangwise."""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest
from numba.core import event

gymnasium = pytest.importorskip("gymnasium", reason="gymnasium is not installed")

from gymnasium.utils.env_checker import check_env  # noqa: E402 - after the check that it is there

import gangwise.gym  # noqa: E402 - registers the ids
from gangwise import create_scenario, simulate  # noqa: E402
from gangwise.core.contracts import PolicyBase  # noqa: E402
from gangwise.core.errors import ScenarioError  # noqa: E402
from gangwise.core.jit import by_reference, entry  # noqa: E402
from gangwise.jobs import (  # noqa: E402
    Books,
    Conditions,
    Jobs,
    Nodes,
    Options,
    create_scheduler,
    queues,
    simulate_jobs,
)
from gangwise.jobs.compiled import opened_at, pinned, row, stacked  # noqa: E402
from gangwise.jobs.schedule import Tables  # noqa: E402

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


@pytest.mark.parametrize("world", ["GainOverhead", "FluctuatingSpeeds"])
def test_an_episode_ends_where_a_trace_ends_that_is_not_repeated(
    world: str, tmp_path: Path
) -> None:
    family = {"GainOverhead": "gain_overhead", "FluctuatingSpeeds": "fluctuating_speeds"}[world]
    file = tmp_path / "day.toml"
    settings = 'days = 1\nservers = 20\nslot = "1h"\njob_types = 4\nrepeat = false\n'
    head = f'trace = "twin:alibaba-gpu-v2023"\nfamily = "{family}"\n[settings]\n'
    file.write_text(head + settings)
    env = gymnasium.make(f"gangwise/{world}-v1", scenario=str(file))
    env.reset(seed=0)
    slots, cut = 0, False
    while not cut:
        observation, _, _, cut, _ = env.step(env.action_space.sample())
        slots += 1
    assert slots == env.unwrapped.instance.workload.counts.shape[0] > 20
    assert env.observation_space.contains(observation)


@pytest.mark.parametrize("wrong", [{"num_envs": 0}, {"episodes": 0}])
def test_a_vector_of_nothing_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ScenarioError, match="give 1 or more"):
        gangwise.gym.JobsVectorEnv(**wrong)


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


@pytest.mark.parametrize(
    "settings",
    [
        {"choice": "worst-fit", "nodes": 5, "load": 3.0, "world": ""},
        {"choice": "learned", "nodes": 4, "load": 3.0, "limits": "work", "enforced": True},
        *(
            pytest.param(settings, marks=pytest.mark.full)
            for settings in (
                {"choice": "best-fit", "nodes": 4, "load": 6.0},
                {"choice": "first-fit", "nodes": 4, "load": 4.0, "source": "twin:google-2011"},
                {"choice": "learned", "nodes": 6, "load": 4.0},
                {"choice": "tas-required", "nodes": 6, "load": 3.0, "world": "apart:rack=2"},
                {"choice": "oracle", "nodes": 5, "load": 3.0, "source": "twin:alibaba-gpu-v2020"},
                {"choice": "labels", "nodes": 6, "load": 2.0, "world": "drifting"},
            )
        ),
    ],
    ids=str,
)
def test_in_compiled_code_it_is_as_in_python(settings: dict[str, Any]) -> None:
    """The same observations, masks, rewards, instants and schedules, step by step."""
    given = {"jobs": 70, "window": 6, **settings}
    compiled, plain = (
        gymnasium.make("gangwise/Jobs-v1", engine=engine, **given).unwrapped
        for engine in ("auto", "plain")
    )
    rng, started = np.random.default_rng(3), 0
    for seed in (1, 2):
        seen, info = compiled.reset(seed=seed)
        expected, told = plain.reset(seed=seed)
        over = False
        while not over:
            np.testing.assert_allclose(seen, expected, rtol=1e-6)
            np.testing.assert_array_equal(info["action_mask"], told["action_mask"])
            choices = np.flatnonzero(info["action_mask"])
            action = int(rng.choice(choices)) if rng.random() < 0.9 else int(rng.integers(7))
            started += action < 6
            seen, reward, over, _, info = compiled.step(action)
            expected, of_plain, ended, _, told = plain.step(action)
            assert (reward, over) == (pytest.approx(of_plain, rel=1e-12, abs=1e-15), ended)
            assert info["now"] == told["now"]
        one, other = compiled.schedule(), plain.schedule()
        np.testing.assert_array_equal(one.start, other.start)
        np.testing.assert_array_equal(one.end, other.end)
        np.testing.assert_array_equal(one.piece_node, other.piece_node)
    assert started > 100


def test_vectors_in_threads_and_without_copies_are_the_same() -> None:
    given = {"num_envs": 130, "jobs": 30, "nodes": 4, "load": 4.0, "episodes": 5, "window": 4}
    many = [
        gymnasium.make_vec("gangwise/JobsVector-v1", **given, **how)
        for how in ({"threads": 1}, {"threads": 2, "copy": False})
    ]
    assert [envs.unwrapped.threads for envs in many] == [1, 2]
    (seen, info), (other, told) = (envs.reset(seed=4) for envs in many)
    rng, ends = np.random.default_rng(0), 0
    for _ in range(150):
        np.testing.assert_array_equal(seen, other)
        np.testing.assert_array_equal(info["action_mask"], told["action_mask"])
        actions = (rng.random(info["action_mask"].shape) * info["action_mask"]).argmax(1)
        seen, reward, over, _, info = many[0].step(actions)
        other, twin, ended, _, told = many[1].step(actions)
        ends += over.sum()
        np.testing.assert_array_equal(reward, twin)
        np.testing.assert_array_equal(over, ended)
        if over.any():
            np.testing.assert_array_equal(info["final_obs"], told["final_obs"])
    assert ends > 130
    for envs in many:
        envs.close()


class Inner(NamedTuple):
    grid: Any
    line: Any


@by_reference
class Outer(NamedTuple):
    inner: Inner
    number: int


def test_rows_of_one_memory_are_those_that_were_given() -> None:
    grid = np.arange(6.0).reshape(2, 3)
    given = [Outer(Inner(grid, np.arange(4)), 7), Outer(Inner(grid[:, :2] + 9, np.arange(5)), 7)]
    stack, memory = stacked(given)
    of = row(stack, 1)
    assert isinstance(of.inner, Inner)
    assert of.inner.grid.tolist() == [[9.0, 10.0, 0.0], [12.0, 13.0, 0.0]]
    assert (row(stack, 0).inner.line.tolist(), of.number) == ([0, 1, 2, 3, 0], 7)
    each, at = pinned([row(stack, i) for i in range(2)])
    total = entry(numba.njit(lambda first, at: opened_at(first, at).inner.grid.sum()), each[0], 0)
    assert [total(each[0], address) for address in at] == [15.0, 44.0]
    memory[0] = memory[1]
    assert row(stack, 0).inner.grid.tolist() == of.inner.grid.tolist()
    assert total(each[0], at[0]) == 44.0


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
        single = gymnasium.make(
            "gangwise/Jobs-v1", choice="best-fit", engine="plain", **given
        ).unwrapped
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
            more = single._play.play.books.running or single._play.play.state.at.next_job < 60
            assert masks[i, 5] == bool(more)  # or those who wait would wait for ever
            rows = seen[i, : 5 * len(FEATURES)].reshape(5, -1)
            for of, job in zip(rows, single._play.play.waiting):
                assert of[0] == 1
                waited = np.log1p(single._play.now - job.submitted) / LOG_SECONDS
                np.testing.assert_allclose(
                    of[1:3], [waited, np.log1p(job.limit) / LOG_SECONDS], 1e-5
                )
                assert of[3] == min(job.tasks / 4, 1)
            assert rows[:, 0].sum() == min(len(single._play.play.waiting), 5)
            assert seen[i, 5 * len(FEATURES)] == pytest.approx(
                single._play.play.books.free.sum() / single._play.play.books.capacity.sum()
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


def test_the_example_in_one_file_trains_saves_and_is_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the form of CleanRL; what it saves is what the order ``ppo`` reads."""
    pytest.importorskip("torch", reason="the extra agents is not installed")
    from benchmarks import ppo_jobs

    line = f"ppo_jobs --steps 16384 --episodes 3 --save {tmp_path / 'agent.npz'}"
    monkeypatch.setattr(sys, "argv", line.split())
    ppo_jobs.main()
    assert "the agent itself" in capsys.readouterr().out
    with np.load(tmp_path / "agent.npz") as made, np.load(queues.AGENT) as shipped:
        assert {k: made[k].shape for k in made} == {k: shipped[k].shape for k in shipped}


def test_the_order_that_ppo_learned_scores_as_its_layers_do() -> None:
    """Job by job, layer by layer, with sums written out."""
    jobs = Jobs.of([0, 5, 9], 10, [1, 2, 4], {"gpu": 1}, limit=[100, 50, 20])
    nodes = Nodes.alike(4, {"gpu": 2})
    tables = Tables.of(jobs, nodes, Conditions(), Options())
    books, waiting = Books.opened(nodes), [tables.job(j) for j in range(3)]
    with np.load(queues.AGENT) as file:
        w = {name: file[name].astype(float) for name in file.files if name != "made"}
    expected = []
    for job in waiting:
        row = [np.log1p(60 - job.submitted), np.log1p(job.limit)]
        row = [x / np.log1p(1e7) for x in row] + [job.tasks / 4, job.tasks / 8, 1.0]
        row.append(np.log1p(3) / np.log1p(1e5))
        for layer in "024":
            out = []
            for weights, bias in zip(w[f"{layer}.weight"], w[f"{layer}.bias"]):
                total = bias + sum(a * b for a, b in zip(weights, row))
                out.append(total if layer == "4" else np.tanh(total))
            row = out
        expected.append(-row[0])
    found = queues.Agent().keys(waiting, books, 60.0)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert len(set(found)) == 3


def test_a_compilation_is_announced_once(caplog: pytest.LogCaptureFixture) -> None:
    gangwise.gym._Announced.said = False
    with event.install_listener("numba:compile", gangwise.gym._Announced()):
        for add in (1, 2):
            numba.njit(lambda x, add=add: x + add)(1.5)
    assert [record.getMessage()[:24] for record in caplog.records] == ["compiling the simulation"]
