from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import gangwise
from gangwise import (
    Comparison,
    Interrupted,
    ScenarioError,
    StoreError,
    UnknownName,
    compare,
    create_policy,
    create_scenario,
    simulate,
)
from gangwise.papers.gain_overhead.policies import DRF, Fairness
from gangwise.papers.scenarios.drawn import OGASchedScenario
from gangwise.study.runs import NamedSource, named_source
from gangwise.study.sweep import Experiment, sweep

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


def test_numbers_as_files(tmp_path, comparison):
    out = tmp_path / "deep" / "out"
    assert [path.name for path in comparison.write(out)] == ["rewards.parquet", "summary.json"]
    frame = pl.read_parquet(out / "rewards.parquet")
    assert frame.height == 3 * 3 * 60
    one = frame.filter((pl.col("policy") == "drf") & (pl.col("seed") == 5)).sort("slot")
    np.testing.assert_array_equal(one["reward"].to_numpy(), comparison.runs["drf", 5].rewards)
    with pytest.raises(StoreError, match="summary"):
        comparison.write(out / "summary.json")


def test_a_folder_gives_the_comparison_back(tmp_path, comparison):
    comparison.write(tmp_path)
    opened = Comparison.open(tmp_path)
    assert opened.as_dict() == comparison.as_dict()
    assert opened.frame().equals(comparison.frame())
    told = opened.comparators["best_fixed", 5]
    was = comparison.comparators["best_fixed", 5]
    assert (told.gap, told.bounds) == (was.gap, was.bounds)
    np.testing.assert_array_equal(told.rewards, was.rewards)
    run = opened.runs["drf", 5]  # of an instance that is drawn again when it is asked for
    assert run.regret("best_fixed") == pytest.approx(comparison.runs["drf", 5].regret(was))
    (run_file, *_) = (tmp_path / "runs").iterdir()
    run_file.unlink()
    with pytest.raises(StoreError, match="1 runs"):
        Comparison.open(tmp_path)


def test_a_comparison_is_what_simulating_says(comparison):
    """An independent witness: each run by itself, without specifications, store and results."""
    for seed in (3, 8):
        instance = create_scenario(SMALL).instance(seed)
        run = simulate(instance, create_policy("drf"), 60, seed)
        ours = comparison.runs["drf", seed]
        assert run.rewards.tobytes() == ours.rewards.tobytes()
        assert {n: c.tobytes() for n, c in run.metrics.items()} == {
            n: c.tobytes() for n, c in ours.metrics.items()
        }
        best = instance.comparator("best_fixed", 60, seed, 200)
        stored = comparison.comparators["best_fixed", seed]
        assert stored.rewards.tobytes() == best.rewards.tobytes()
        against = comparison.results.against("best_fixed")
        (row,) = against.filter(policy="drf", seed=seed).to_dicts()
        assert row["regret"] == pytest.approx(run.regret(best), rel=1e-12)
        assert row["share"] == pytest.approx(run.share_of(best), rel=1e-12)


@pytest.mark.full
def test_the_same_to_the_bit_whatever_the_number_of_workers(tmp_path, comparison):
    two = compare(SMALL, POLICIES, 60, [3, 5, 8], jobs=2, out=tmp_path)
    assert two.frame().equals(comparison.frame())
    assert without_times(two) == without_times(comparison)
    told = []
    more = compare(
        SMALL,
        [*POLICIES, "greedy"],
        60,
        [3, 5, 8, 9],
        out=tmp_path,
        progress=lambda what, done, of: told.append((done, of)),
    )
    assert told[0] == (15 * 60, 24 * 60)  # 3 policies and 2 comparators of 3 seeds are there
    assert more.policies == (*POLICIES, "greedy")
    assert more.runs["drf", 5].rewards.tobytes() == two.runs["drf", 5].rewards.tobytes()


def without_times(comparison):
    told = comparison.as_dict()
    for policy in told["policies"]:
        del policy["us_per_slot"]
    return told


def test_what_cannot_travel_is_played_here(tmp_path):
    @dataclass
    class Local(Fairness):
        """Cannot be imported."""

        def start(self, problem, rng):
            super().start(problem, rng)
            PLAYED_HERE.append(problem)

    both = {"local": Local(), "drf": DRF()}
    found = compare(SMALL, both, 20, [0, 1], [], jobs=2)
    assert len(PLAYED_HERE) >= 2
    plain = compare(SMALL, {"local": Fairness(), "drf": DRF()}, 20, [0, 1], [])
    assert found.frame().equals(plain.frame())


PLAYED_HERE: list[object] = []

MAIN = """
from dataclasses import dataclass
from gangwise import compare
from gangwise.papers.gain_overhead.policies import Fairness

@dataclass
class Mine(Fairness):
    share: str = "all"

found = compare("ogasched-default-v1:servers=16,job_types=4", {"mine": Mine()}, 10, [0, 1], jobs=2)
print(len(found.runs), found.table()[0].policy)
"""


@pytest.mark.full
def test_a_policy_of_a_script_is_played(tmp_path):
    (tmp_path / "script.py").write_text(MAIN)
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=1800
    )
    assert done.stdout == "2 mine\n", done.stderr


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


@pytest.mark.full
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_stopped_comparison_goes_on_where_it_was(tmp_path, jobs):
    def policies():
        return {"drf": DRF(), "stops": Stops(at=20)}

    whole = compare(SMALL, policies(), 40, [0, 1])
    ARMED.append(True)
    with pytest.raises(Interrupted) as stop:
        compare(SMALL, policies(), 40, [0, 1], out=tmp_path)
    assert stop.value.checkpoint.parent == tmp_path / ".gangwise" / "checkpoints"
    assert len(list(tmp_path.glob("runs/*.parquet"))) == 1  # drf, seed 0
    resumed = compare(SMALL, policies(), 40, [0, 1], out=tmp_path, jobs=jobs)
    assert without_times(resumed) == without_times(whole)
    for key, run in whole.runs.items():
        assert run.rewards.tobytes() == resumed.runs[key].rewards.tobytes()
    assert not list((tmp_path / ".gangwise" / "checkpoints").iterdir())


def test_finished_runs_are_not_mistaken_for_others(tmp_path):
    compare(SMALL, ["drf"], 10, [0], [], out=tmp_path)
    other = compare(SMALL, {"drf": Fairness()}, 10, [0], [], out=tmp_path)
    assert len(list(tmp_path.glob("runs/*.parquet"))) == 2
    direct = compare(SMALL, {"drf": Fairness()}, 10, [0], [])
    assert other.runs["drf", 0].rewards.tobytes() == direct.runs["drf", 0].rewards.tobytes()
    for path in tmp_path.glob("runs/*.parquet"):
        path.write_bytes(b"torn")
    again = compare(SMALL, {"drf": Fairness()}, 10, [0], [], out=tmp_path)  # torn is not done
    assert again.runs["drf", 0].rewards.tobytes() == direct.runs["drf", 0].rewards.tobytes()


def test_files_of_the_user_stay(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "model.pt").write_text("mine")
    (tmp_path / "notes.txt").write_text("mine")
    compare(SMALL, ["drf"], 5, [0], [], out=tmp_path).write(tmp_path)
    assert (tmp_path / "checkpoints" / "model.pt").read_text() == "mine"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "summary.json").write_text("mine")
    with pytest.raises(StoreError, match=r"summary\.json"):
        compare(SMALL, ["drf"], 5, [0], []).write(tmp_path / "other")


@dataclass
class Weighted(Fairness):
    """Has a long argument."""

    weights: np.ndarray = field(default_factory=lambda: np.zeros(3000))


def test_every_element_of_an_argument_counts(tmp_path):
    for place in (1500, 1501):
        weights = np.zeros(3000)
        weights[place] = 1.0
        compare(SMALL, {"weighted": Weighted(weights=weights)}, 5, [0], [], out=tmp_path)
    assert len(list(tmp_path.glob("runs/*.parquet"))) == 2


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
    for seeds in ([0.7], "12", [-1], [True], True, ["0"]):
        with pytest.raises(ScenarioError, match="numbers"):
            compare(SMALL, ["drf"], 5, seeds)
    with pytest.raises(ScenarioError, match="100000"):
        compare(SMALL, ["drf"], 5, range(10**9))
    with pytest.raises(ScenarioError, match="no policies"):
        compare(SMALL, {}, 5, [0])
    with pytest.raises(ScenarioError, match="policy"):
        compare(SMALL, [DRF], 5, [0])
    with pytest.raises(ScenarioError, match="OGASchedScenario"):
        compare(OGASchedScenario, ["drf"], 5, [0])
    with pytest.raises(ScenarioError, match="is no policy"):
        compare(SMALL, {"x": 3}, 5, [0])
    with pytest.raises(ScenarioError, match="is no scenario"):
        compare(7, ["drf"], 5, [0])
    with pytest.raises(ScenarioError, match=r"1\.5"):
        compare(SMALL, ["drf"], 1.5, [0])

    class Foreign(DRF):
        family = "something_else"

    with pytest.raises(ScenarioError, match="family something_else"):
        compare(SMALL, {"x": Foreign()}, 5, [0])


def test_the_same_comparison_is_the_same_bytes():
    first, again = (compare(SMALL, POLICIES, 30, [1, 2]) for _ in range(2))
    assert first.frame().equals(again.frame())
    assert create_scenario(SMALL).describe() == first.scenario.describe()
    assert first.as_dict()["version"] == gangwise.__version__


def test_a_folder_of_results_is_a_source(tmp_path):
    """It stands for the scenario that was played there, with its settings."""
    named = "ogasched-default-v1:servers=8,job_types=3"
    first = gangwise.compare(named, "drf", 10, 2, [], out=tmp_path)
    again = gangwise.compare(tmp_path, "drf,fairness", 10, 2, [])
    assert again.runs["drf", 1].rewards.tolist() == first.runs["drf", 1].rewards.tolist()
    assert gangwise.compare(str(tmp_path), "drf", 10, 2, []).results.digest == first.results.digest
    gangwise.compare("ogasched-default-v1:servers=9", "drf", 10, 1, [], out=tmp_path, name="other")
    with pytest.raises(ScenarioError, match="comparison"):
        gangwise.compare(tmp_path, "drf")
    varied = {"grid": {"contention": [1, 9]}, "cases": [{"rho": 0.5}]}
    experiment = Experiment(name="grid", scenario=named, slots=5, policies=["drf"], **varied)
    swept = sweep(experiment, tmp_path / "swept", jobs=1)
    with pytest.raises(ScenarioError, match="contention"):
        gangwise.compare(tmp_path / "swept", "drf", 5, 1, [])
    one = named_source(str(tmp_path / "swept"), {"contention": 9, "rho": 0.5}).instance(0)
    at = swept.per_seed().filter(contention=9, seed=0)["value"][0]
    assert gangwise.simulate(one, DRF(), 5, seed=0).mean_reward == pytest.approx(at)
    (tmp_path / "swept" / "grid.plan.json").write_text("[]")
    with pytest.raises(StoreError, match=r"cannot read .*grid\.plan\.json"):
        gangwise.compare(tmp_path / "swept", "drf")


def test_a_replay_of_jobs_is_not_compared(tmp_path):
    with pytest.raises(ScenarioError, match="use gangwise replay"):
        gangwise.compare("replay", "drf")


@pytest.mark.parametrize(
    ("target", "trace"),
    [
        ("opm-google-v1:folder=/a/path", False),
        ("esdp-mini-batch-v1:folder=there/times.csv", False),
        ("ogasched-alibaba-v1:folder=/a/mapping.toml", False),
        ("/a/path/opm-google-v1", True),
        ("log.swf", True),
        ("twin:google-2011", True),
    ],
)
def test_arguments_of_a_scenario_may_be_paths(target: str, trace: bool) -> None:
    assert named_source(target, {}) == NamedSource(target, trace)


def test_a_path_among_the_arguments_reaches_the_scenario(tmp_path: Path) -> None:
    with pytest.raises(gangwise.TraceError, match=f"^{tmp_path}/nowhere") as caught:
        compare(f"opm-google-v1:folder={tmp_path}/nowhere", "fair", 5, 1, [])
    assert "opm-google-v1" not in str(caught.value)


def test_a_twin_is_compared() -> None:
    """Its name has a colon, as that of a scenario with arguments."""
    twin = named_source("twin:alibaba-gpu-v2023", {"servers": 20, "days": 1})
    found = compare(twin, ["fairness"], 3, 1, [])
    assert found.table()[0].reward.mean > 0
