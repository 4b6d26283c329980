"""The slot loop: common random numbers, checkpoints, interruption, and what a run reports."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass

import numpy as np
import pytest

from gangwise import (
    Comparator,
    Interrupted,
    ScenarioError,
    Simulation,
    StoreError,
    Streams,
    UnknownName,
    create_policy,
    create_scenario,
    simulate,
)
from gangwise.papers.gain_overhead.policies import DRF


@dataclass
class Interrupting(DRF):
    """Someone presses Ctrl-C while slot 100 is being decided."""

    def decide(self, observation):
        if observation.slot == 100:
            os.kill(os.getpid(), signal.SIGINT)
        return super().decide(observation)


def instance(seed=0, **settings):
    return create_scenario("ogasched-default-v1", servers=16, job_types=4, **settings).instance(
        seed
    )


def test_every_policy_meets_the_same_arrivals_whatever_it_draws():
    one = instance()
    jobs = [
        simulate(one, create_policy(name), 300, 9).metrics["jobs"]
        for name in ("random", "drf", "ogasched-reserve")
    ]
    np.testing.assert_array_equal(jobs[0], jobs[1])
    np.testing.assert_array_equal(jobs[0], jobs[2])
    np.testing.assert_array_equal(jobs[0], one.arrivals(300, 9).sum(axis=1))


def test_the_same_seed_draws_the_same_instance_and_another_seed_another():
    a, b, c = instance(3), instance(3), instance(4)
    np.testing.assert_array_equal(a.problem.requests, b.problem.requests)
    assert not np.array_equal(a.problem.requests, c.problem.requests)


def test_streams_do_not_overlap():
    streams = Streams.of(1)
    each = (streams.instance, streams.workload, streams.noise, streams.policy)
    draws = [generator.random() for generator in each]
    assert len(set(draws)) == 4


@pytest.mark.parametrize("name", ["ogasched-reserve", "ogasched-react", "random"])
@pytest.mark.parametrize("arrivals", ["bernoulli", "multiple", "bursts"])
def test_a_resumed_run_is_the_same_bytes(tmp_path, name, arrivals):
    one = instance(arrivals=arrivals)
    whole = simulate(one, create_policy(name), 400, 5)
    part = Simulation(one, create_policy(name), 400, 5)
    for _ in range(271):  # beyond the first block of arrivals
        part.step()
    part.save(tmp_path / "half.checkpoint")
    resumed = Simulation.load(tmp_path / "half.checkpoint").run()
    assert whole.rewards.tobytes() == resumed.rewards.tobytes()
    for metric, column in whole.metrics.items():
        assert column.tobytes() == resumed.metrics[metric].tobytes()


def test_a_torn_or_foreign_checkpoint_is_refused(tmp_path):
    path = tmp_path / "x.checkpoint"
    Simulation(instance(), create_policy("drf"), 10, 0).save(path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(StoreError, match="seal"):
        Simulation.load(path)
    path.write_bytes(b"cgangwise.a_module_that_moved\nName\n.")
    with pytest.raises(StoreError, match="checkpoint"):
        Simulation.load(path)
    path.write_text("hello")
    with pytest.raises(StoreError):
        Simulation.load(path)
    with pytest.raises(StoreError, match="cannot read"):
        Simulation.load(tmp_path / "none")
    with pytest.raises(StoreError, match="cannot write"):
        Simulation(instance(), create_policy("drf"), 10, 0).save(path / "below" / "a-file")


def test_ctrl_c_finishes_the_slot_and_saves(tmp_path):
    one, path = instance(), tmp_path / "run.checkpoint"
    simulation = Simulation(one, Interrupting(), 500, 2)
    with pytest.raises(Interrupted) as stop:
        simulation.run(path)
    assert stop.value.checkpoint == path
    assert stop.value.slot == 101  # the slot in hand is finished first
    resumed = Simulation.load(path)
    assert resumed.slot == 101
    whole = simulate(one, create_policy("drf"), 500, 2)
    assert resumed.run().rewards.tobytes() == whole.rewards.tobytes()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_ignored_ctrl_c_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        run = Simulation(instance(), Interrupting(), 150, 2).run()
    finally:
        signal.signal(signal.SIGINT, before)
    assert run.slots == 150


@pytest.mark.full
def test_periodic_checkpoints_survive_a_kill(tmp_path):
    path = tmp_path / "run.checkpoint"
    code = f"""
        from pathlib import Path
        from gangwise import Simulation, create_policy, create_scenario
        one = create_scenario("ogasched-default-v1", servers=16, job_types=4).instance(0)
        Simulation(one, create_policy("drf"), 100_000_000 // 100, 2).run(
            Path({str(path)!r}), every=0.0
        )
    """
    child = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)])
    try:
        deadline = time.monotonic() + 60
        while not path.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(0.2)
    finally:
        child.kill()
        child.wait()
    resumed = Simulation.load(path)
    assert resumed.slot > 0
    reached = resumed.slot
    np.testing.assert_array_equal(
        resumed.rewards[:reached], simulate(instance(), create_policy("drf"), reached, 2).rewards
    )


def test_run_reports_rows_summaries_and_named_regret():
    run = simulate(instance(), create_policy("drf"), 50, 1, name="mine")
    table = run.to_polars()
    row = table.row(7, named=True)
    assert (table.height, row["slot"], row["reward"]) == (50, 7, run.rewards[7])
    assert row["gain"] - row["overhead"] == pytest.approx(row["reward"])
    assert run.summary()["policy"] == "mine"
    assert run.summary()["mean_reward"] == pytest.approx(run.rewards.sum() / 50)
    with pytest.raises(UnknownName, match="best_fixed"):
        run.regret("best_fix")


def test_regret_is_signed_and_scaled_from_a_sample():
    run = simulate(instance(), create_policy("drf"), 50, 1)
    worse = Comparator("zero", np.arange(50), np.zeros(50))
    assert run.regret(worse) == pytest.approx(-run.rewards.sum())
    some = Comparator("some", np.array([3, 4]), run.rewards[[3, 4]] + 2.0)
    assert run.regret(some) == pytest.approx(100.0)
    half = Comparator("half", np.arange(50), run.rewards * 2)
    assert run.share_of(half) == pytest.approx(0.5)


def test_a_run_needs_slots():
    with pytest.raises(ScenarioError, match="slots is 0"):
        simulate(instance(), create_policy("drf"), 0, 0)


def test_progress_tells_the_end():
    told = []
    Simulation(instance(), create_policy("drf"), 40, 0).run(progress=told.append)
    assert told[-1] == 40


@pytest.mark.parametrize("seed", [-1, 1.5, "1"])
def test_a_seed_is_a_whole_number(seed):
    with pytest.raises(ScenarioError, match="seed is"):
        Streams.of(seed)


def test_half_a_slot_cannot_be_played():
    with pytest.raises(ScenarioError, match=r"slots is 2\.5"):
        Simulation(instance(), create_policy("drf"), 2.5, 0)


@pytest.mark.parametrize(
    "name",
    [
        "ogasched-default-v1",
        "ogasched-gang-small-v1",
        "esdp-default-v1",
        "esdp-gang-small-v1",
        "opm-theorem-v1",
    ],
)
def test_an_unknown_comparator_is_named_before_anything_is_computed(name):
    with pytest.raises(UnknownName, match="comparator named 'bst'"):
        create_scenario(name).instance(0).comparator("bst", 10**9, 0)


def test_a_sample_has_a_slot():
    with pytest.raises(ScenarioError, match="of 0"):
        instance().comparator("per_slot_optimum", 5, 0, sample=0)
