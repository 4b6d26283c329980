"""Runs that are played whole, in threads, are the stepped ones to the bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gangwise import create_policy, simulate
from gangwise.experiments import runs
from gangwise.experiments.runs import measure
from gangwise.experiments.specification import Experiment
from gangwise.experiments.sweep import sweep
from gangwise.gain_overhead.environment import GainOverheadFamily
from gangwise.gain_overhead.whole_runs import COLUMNS, play_whole

CHEAP = ["fairness", "drf", "drf:bundles=true", "drf-as-printed", "binpacking", "spreading"]
CHEAP += ["fairness:share=all", "random"]


@pytest.mark.parametrize("name", CHEAP)
def test_whole_runs_are_the_stepped_ones(name: str) -> None:
    """On problems with several arrivals of a type, late feedback, and servers without devices."""
    for case in range(12):
        instance = GainOverheadFamily().fuzz(np.random.default_rng([17, case]))
        stepped = simulate(instance, create_policy(name), 70, seed=case)
        whole = play_whole(instance, create_policy(name), 70, case)
        assert whole is not None
        columns = {"reward": stepped.rewards, **stepped.metrics}
        for i, column in enumerate(COLUMNS):
            assert np.array_equal(whole[:, i], columns[column]), (case, column)


class Mine(type(create_policy("fairness"))):  # type: ignore[misc]  # the class of a built-in one
    """Somebody's own, which inherits and may decide anything."""


def test_what_has_to_be_stepped_is() -> None:
    instance = GainOverheadFamily().fuzz(np.random.default_rng(1))
    for policy in (create_policy("greedy"), create_policy("ogasched-react"), Mine()):
        assert play_whole(instance, policy, 10, 0) is None


def experiment(seeds: int) -> Experiment:
    return Experiment(
        name="many",
        scenario="ogasched-default-v1:servers=8,job_types=4",
        slots=600,
        seeds=seeds,
        policies=[*CHEAP[:2], "binpacking", "greedy"],
        comparators=["per_slot_optimum"],
        optimum_slots=5,
    )


def test_one_process_threads_and_steps_give_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = sweep(experiment(3), tmp_path / "here", jobs=1)
    threads = sweep(experiment(3), tmp_path / "threads", jobs=2)
    monkeypatch.setattr(runs, "WORTH_IT", 10**9)
    stepped = sweep(experiment(3), tmp_path / "stepped", jobs=1)
    assert whole.digest == threads.digest == stepped.digest
    spec = next(spec for spec in experiment(1).runs() if spec.label == "drf")
    assert not spec.whole
    monkeypatch.undo()
    assert spec.whole
    columns = measure(spec).columns()
    assert columns["us_per_slot"][1][0] > 0


def test_a_difference_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*given: object) -> object:
        found = play_whole(*given)  # type: ignore[arg-type]  # what it is given it passes on
        assert found is not None
        return found + 1e-9

    monkeypatch.setattr(runs, "play_whole", wrong)
    spec = next(spec for spec in experiment(1).runs() if spec.label == "drf")
    with pytest.raises(OSError, match="differs from a stepped one"):
        measure(spec)
