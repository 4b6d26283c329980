from __future__ import annotations

import json
from dataclasses import dataclass, field

import numpy as np
import polars as pl
import pytest

import gangwise
from gangwise import Interrupted, ScenarioError, StoreError, UnknownName, compare, create_scenario
from gangwise.gain_overhead import DRF, Fairness
from gangwise.report.pages import write_comparison

SMALL = "ogasched-default-v1:servers=16,job_types=4"
POLICIES = ["ogasched-react", "drf", "fairness"]


@pytest.fixture(scope="module")
def comparison():
    return compare(SMALL, POLICIES, slots=60, seeds=[3, 5, 8])


def test_table_is_what_the_runs_say(comparison):
    table = {row.policy: row for row in comparison.table()}
    rewards = {
        p: np.array([comparison.runs[p, s].rewards.mean() for s in (3, 5, 8)]) for p in POLICIES
    }
    assert [r.policy for r in comparison.table()] == sorted(
        POLICIES, key=lambda p: -rewards[p].mean()
    )
    for p in POLICIES:
        assert table[p].reward.mean == pytest.approx(rewards[p].mean())
    paired = 100 * (rewards["ogasched-react"] / rewards["drf"] - 1)
    over = table["ogasched-react"].over["drf"]
    assert over.mean == pytest.approx(paired.mean())
    assert over.half == pytest.approx(4.302653 * paired.std(ddof=1) / np.sqrt(3), rel=1e-5)
    regrets = [
        comparison.comparators["best_fixed", s].rewards.sum()
        - comparison.runs["drf", s].rewards.sum()
        for s in (3, 5, 8)
    ]
    assert table["drf"].regret["best_fixed"].mean == pytest.approx(np.mean(regrets))


def test_json_keeps_to_the_contract(comparison):
    printed = json.loads(json.dumps(comparison.as_dict(), allow_nan=False))
    assert printed["scenario"] == "ogasched-default-v1"
    assert (printed["slots"], printed["seeds"]) == (60, [3, 5, 8])
    for policy in printed["policies"]:
        assert {"name", "mean_reward", "ci95", "share_of_optimum", "regret", "us_per_slot"} <= set(
            policy
        )
        low, high = policy["ci95"]
        assert low < policy["mean_reward"] < high
        assert set(policy["regret"]) == {"best_fixed", "per_slot_optimum"}
        assert 0 < policy["share_of_optimum"] <= 1.000001
        assert policy["us_per_slot"] > 0


def test_one_seed_has_no_interval():
    printed = compare(SMALL, ["drf"], slots=5, seeds=[1]).as_dict()
    assert printed["policies"][0]["ci95"] == [None, None]


def test_a_percentage_over_a_loss_is_not_given():
    worse = compare(
        "ogasched-authors-v1:servers=16,job_types=4,utility=log", ["ogasched-react", "drf"], 20, [0]
    )
    rows = {row.policy: row for row in worse.table()}
    assert rows["drf"].reward.mean < 0
    assert "drf" not in rows["ogasched-react"].over


def test_files(tmp_path, comparison):
    written = write_comparison(comparison, tmp_path / "deep" / "out", "gangwise compare …")
    names = {path.name for path in written}
    assert {"rewards.parquet", "summary.json", "report.html"} <= names
    assert any(n.endswith(".png") for n in names)
    assert any(n.endswith(".svg") for n in names)
    frame = pl.read_parquet(tmp_path / "deep" / "out" / "rewards.parquet")
    assert frame.height == 3 * 3 * 60
    one = frame.filter((pl.col("policy") == "drf") & (pl.col("seed") == 5)).sort("slot")
    np.testing.assert_array_equal(one["reward"].to_numpy(), comparison.runs["drf", 5].rewards)
    with pytest.raises(StoreError, match="Not a directory"):
        write_comparison(comparison, tmp_path / "deep" / "out" / "summary.json")


@dataclass
class Stops(Fairness):
    """Interrupts the comparison when told to."""

    at: int = -1
    armed: list[bool] = field(init=False, default_factory=lambda: [True])

    def decide(self, observation):
        if observation.slot == self.at and ARMED:
            import os
            import signal

            ARMED.clear()
            os.kill(os.getpid(), signal.SIGINT)
        return super().decide(observation)


ARMED: list[bool] = []


def test_a_stopped_comparison_goes_on_where_it_was(tmp_path):
    def policies():
        return {"drf": DRF(), "stops": Stops(at=20)}

    whole = compare(SMALL, policies(), 40, [0, 1])
    ARMED.append(True)
    with pytest.raises(Interrupted) as stop:
        compare(SMALL, policies(), 40, [0, 1], checkpoints=tmp_path)
    assert stop.value.checkpoint.parent == tmp_path
    assert len(list(tmp_path.glob("*.run"))) == 1  # drf, seed 0
    resumed = compare(SMALL, policies(), 40, [0, 1], checkpoints=tmp_path)
    for key, run in whole.runs.items():
        assert run.rewards.tobytes() == resumed.runs[key].rewards.tobytes()
    assert len(list(tmp_path.glob("*.run"))) == 4
    assert not list(tmp_path.glob("*.checkpoint"))


def test_finished_runs_are_not_mistaken_for_others(tmp_path):
    compare(SMALL, ["drf"], 10, [0], checkpoints=tmp_path)
    other = compare(SMALL, {"drf": Fairness()}, 10, [0], checkpoints=tmp_path)
    assert len(list(tmp_path.glob("*.run"))) == 2
    direct = compare(SMALL, {"drf": Fairness()}, 10, [0])
    assert other.runs["drf", 0].rewards.tobytes() == direct.runs["drf", 0].rewards.tobytes()
    for path in tmp_path.glob("*.run"):
        path.write_bytes(b"torn")
    with pytest.raises(StoreError, match="delete it"):
        compare(SMALL, ["drf"], 10, [0], checkpoints=tmp_path)


@dataclass
class Weighted(Fairness):
    """Has a long argument."""

    weights: np.ndarray = field(default_factory=lambda: np.zeros(3000))


def test_every_element_of_an_argument_counts(tmp_path):
    for place in (1500, 1501):
        weights = np.zeros(3000)
        weights[place] = 1.0
        compare(SMALL, {"weighted": Weighted(weights=weights)}, 5, [0], [], checkpoints=tmp_path)
    assert len(list(tmp_path.glob("*.run"))) == 2


def test_nonsense_is_refused():
    with pytest.raises(UnknownName, match="scenario"):
        compare("nothing", ["drf"])
    with pytest.raises(ScenarioError, match="no policies"):
        compare(SMALL, [])
    with pytest.raises(ScenarioError, match="named twice"):
        compare(SMALL, ["drf", "drf"], 5, [0])
    with pytest.raises(ScenarioError, match="nothing to run"):
        compare(SMALL, ["drf"], 0)
    with pytest.raises(UnknownName, match="comparator"):
        compare(SMALL, ["drf"], 5, [0], comparators=["best"])

    class Foreign(DRF):
        family = "something_else"

    with pytest.raises(ScenarioError, match="family something_else"):
        compare(SMALL, {"x": Foreign()}, 5, [0])


def test_the_same_comparison_is_the_same_bytes():
    first, again = (compare(SMALL, POLICIES, 30, [1, 2]) for _ in range(2))
    assert first.frame().equals(again.frame())
    assert create_scenario(SMALL).describe() == first.scenario.describe()
    assert first.as_dict()["version"] == gangwise.__version__
