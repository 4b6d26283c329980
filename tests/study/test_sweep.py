from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from gangwise import GangwiseError, ScenarioError, StoreError, UnknownName, compare, create_scenario
from gangwise.core.registry import register
from gangwise.papers.gain_overhead.policies import DRF
from gangwise.report.pages import write_report
from gangwise.study.results import Results
from gangwise.study.runs import Rows, Store, checkpoint_slots
from gangwise.study.sweep import Experiment, schema, sweep

SMALL = {
    "name": "small",
    "scenario": "ogasched-default-v1",
    "slots": 40,
    "seeds": [2, 5, 7],
    "settings": {"servers": 16, "job_types": 4},
    "grid": {"contention": [1, 5]},
    "policies": ["drf", {"name": "ogasched-react", "label": "ascent", "grid": {"steps": [1, 4]}}],
    "comparators": ["best_fixed", "per_slot_optimum"],
    "optimum_slots": 8,
    "points": 12,
}


def small(**changes) -> Experiment:
    return Experiment.of({**SMALL, **changes})


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("sweep")
    sweep(small(), path, jobs=1)
    return path


@pytest.fixture(scope="module")
def results(folder) -> Results:
    return Results.open(folder)


@pytest.fixture(scope="module")
def compared():
    """The same runs by the other way through the program: no store, no sweep."""
    policies = {"drf": "drf", "ascent:steps=4": "ogasched-react:steps=4"}
    scenario = create_scenario("ogasched-default-v1:servers=16,job_types=4,contention=5")
    return {
        label: compare(scenario, [name], 40, [2, 5, 7], optimum_slots=8)
        for label, name in policies.items()
    }


def test_rows_are_what_a_comparison_says(results, compared):
    rows = results.rows().filter(pl.col("contention") == 5).collect()
    for label, comparison in compared.items():
        (name,) = comparison.policies
        for seed in (2, 5, 7):
            run = comparison.runs[name, seed]
            ours = rows.filter((pl.col("policy") == label) & (pl.col("seed") == seed))
            numbers = dict(ours.filter(pl.col("at").is_null()).select("metric", "value").rows())
            assert numbers["reward.mean"] == run.rewards.mean()
            for metric, column in run.metrics.items():
                assert numbers[f"{metric}.total"] == pytest.approx(column.sum(), rel=1e-12)
            curve = ours.filter(pl.col("metric") == "reward.cumulative")
            expected = [sum(run.rewards[:n]) for n in curve["at"]]
            np.testing.assert_allclose(curve["value"], expected, rtol=1e-12)
            assert curve["at"].to_list()[-1] == 40


@pytest.mark.parametrize("comparator", ["best_fixed", "per_slot_optimum"])
def test_regret_and_share_are_those_of_a_comparison(results, compared, comparator):
    table = results.against(comparator).filter(pl.col("contention") == 5)
    for label, comparison in compared.items():
        (name,) = comparison.policies
        for seed, share, regret in (
            table.filter(pl.col("policy") == label).select("seed", "share", "regret").rows()
        ):
            run, best = comparison.runs[name, seed], comparison.comparators[comparator, seed]
            assert share == pytest.approx(run.share_of(best))
            assert regret == pytest.approx(run.regret(best), rel=1e-9)


def test_paired_improvement(results, compared):
    a = np.array([r.rewards.mean() for r in compared["ascent:steps=4"].runs.values()])
    b = np.array([r.rewards.mean() for r in compared["drf"].runs.values()])
    change = 100 * (a / b - 1)
    is_it = (pl.col("contention") == 5) & (pl.col("policy") == "ascent:steps=4")
    (row,) = results.improvements("drf").filter(is_it).to_dicts()
    assert row["mean"] == pytest.approx(change.mean())
    assert row["high"] - row["mean"] == pytest.approx(4.302653 * change.std(ddof=1) / 3**0.5)
    assert row["seeds"] == 3
    first, second = results.sentences()
    assert first.startswith("contention = 1: ascent:steps=4")
    assert "ascent:steps=1" in second
    assert "(3 seeds)" in second


def test_a_job_of_its_own_row(tmp_path):
    experiment = small(
        scenario="opm-default-v1",
        settings={"machines": 6, "slots": 60},
        grid={},
        seeds=[1],
        slots=60,
        policies=["fair"],
        comparators=[],
    )
    jobs = sweep(experiment, tmp_path, jobs=1).jobs()
    assert {"arrival", "deadline", "budget", "cost", "work", "utility"} < set(jobs.columns)
    assert jobs.height > 0
    assert (jobs["cost"] <= jobs["budget"] * (1 + 1e-9)).all()
    rows = Results.open(tmp_path).rows().filter(pl.col("metric") == "reward.total").collect()
    assert jobs["utility"].sum() == pytest.approx(rows["value"].item())


@dataclass
class Shortest:
    """Jobs by their lengths, or as they came."""

    family = "made_jobs"
    sort: bool = True

    def start(self, problem, rng):
        pass


@dataclass(frozen=True)
class MadeQueue:
    """One server; all jobs are there from the start. No slots, no reward."""

    jobs: int = 20
    name, family, slots = "made-queue", "made_jobs", 1
    deciders, objective, minimise = "policy", "wait.mean", True

    def describe(self):
        return {"jobs": self.jobs}

    def instance(self, seed):
        raise AssertionError("a replay needs none")

    def replay(self, decider, seed, slots, label):
        lengths = np.random.default_rng(seed).exponential(size=self.jobs)
        lengths = np.sort(lengths) if decider.sort else lengths
        wait, rows = np.cumsum(lengths) - lengths, Rows()
        rows.add("wait.mean", wait.mean())
        rows.add("job.wait", wait, np.arange(self.jobs))
        return rows


def test_what_is_simulated_need_not_be_slots(tmp_path):
    register("scenario", "made-queue", MadeQueue, "one server")
    register("policy", "made-shortest", Shortest, "by length")
    experiment = Experiment(
        name="queue",
        scenario="made-queue",
        grid={"jobs": [5, 50]},
        seeds=4,
        policies=["made-shortest:sort=False", "made-shortest"],
    )
    found = sweep(experiment, tmp_path, jobs=1)
    assert found.table()["policy"].to_list() == ["made-shortest", "made-shortest:sort=False"] * 2
    for row in found.per_seed().iter_rows(named=True):
        lengths = np.random.default_rng(row["seed"]).exponential(size=row["jobs"])
        order = lengths if row["policy"].endswith("False") else np.sort(lengths)
        assert row["value"] == pytest.approx(np.mean(np.cumsum(order) - order))
    assert found.sentences()[1].startswith(
        "jobs = 50: made-shortest beats made-shortest:sort=False"
    )
    page = write_report(tmp_path).read_text(encoding="utf-8")
    assert "made-shortest has the least wait.mean in both cells" in page
    assert "per slot" not in page
    jobs = found.jobs()
    assert jobs.height == 2 * 4 * (5 + 50)
    means = jobs.group_by("jobs", "policy", "seed").agg(pl.col("wait").mean())
    both = means.join(found.per_seed(), on=["jobs", "policy", "seed"])
    np.testing.assert_allclose(both["wait"], both["value"])


def test_the_same_whatever_the_number_of_workers(folder, results, tmp_path):
    two = sweep(small(), tmp_path, jobs=2)
    assert two.rows(timings=False).collect().equals(results.rows(timings=False).collect())
    assert {p.name for p in (tmp_path / "runs").iterdir()} == {
        p.name for p in (folder / "runs").iterdir()
    }


@pytest.mark.full
def test_only_what_is_not_whole_is_done_again(results, tmp_path):
    first = sweep(small(), tmp_path, jobs=1)
    before = first.rows(timings=False).collect()
    keys = list(dict.fromkeys(run["key"] for run in first.runs))
    path = Store(tmp_path).path
    path(keys[0]).unlink()
    whole = path(keys[1]).read_bytes()
    path(keys[1]).write_bytes(whole[: len(whole) // 2])  # torn
    zeros = bytearray(path(keys[2]).read_bytes())
    zeros[40:400] = bytes(360)  # of the right length, but a block was never written
    path(keys[2]).write_bytes(zeros)
    path(keys[3]).write_bytes(path(keys[4]).read_bytes())  # whole, but another run
    stray = path(keys[5]).with_name(f"{keys[5]}.parquet.1.part")
    stray.write_bytes(whole[:100])
    untouched = {p: p.stat().st_mtime_ns for k in keys[4:] if (p := path(k))}
    assert {run["key"] for run in Results.open(tmp_path).missing} == set(keys[:4])
    told = []
    again = sweep(small(), tmp_path, jobs=1, progress=lambda what, done, of: told.append(done))
    assert told == list(range(len(keys) - 4, len(keys) + 1))
    assert {p: p.stat().st_mtime_ns for p in untouched} == untouched
    assert again.rows(timings=False).collect().equals(before)


def test_the_data_set_is_one_table(folder, results):
    whole = pl.scan_parquet(folder / "runs" / "*.parquet").collect()
    assert whole["key"].n_unique() == len(results.runs) == 2 * 3 * 5
    assert whole.height == results.rows().collect().height
    assert set(whole["seed"]) == {2, 5, 7}


def test_experiments_share_runs(folder, tmp_path):
    sweep(small(), tmp_path, jobs=1)
    told = []
    other = small(name="other", policies=["drf", "fairness"], comparators=[])
    sweep(other, tmp_path, 1, progress=lambda what, done, of: told.append((done, of)))
    assert told[0] == (6, 12)
    with pytest.raises(StoreError, match="choose"):
        Results.open(tmp_path)
    assert Results.open(tmp_path, "other").policies == ["drf", "fairness"]


KEYS = """
import json, sys
from gangwise.study.sweep import Experiment
print(json.dumps([run.key() for run in Experiment.of(json.loads(sys.argv[1])).runs()]))
"""


@pytest.mark.full
def test_keys_are_the_same_in_every_process():
    here = [run.key() for run in small().runs()]
    env = {**os.environ, "PYTHONHASHSEED": "7"}
    there = subprocess.run(
        [sys.executable, "-c", KEYS, json.dumps(SMALL)],
        env=env,
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    ).stdout
    assert json.loads(there) == here
    assert len(set(here)) == len(here)


@pytest.mark.parametrize(
    "change",
    [
        {"slots": 41},
        {"seeds": [3, 4, 6]},
        {"optimum_slots": 9},
        {"points": 13},
        {"settings": {"servers": 17, "job_types": 4}},
        {"grid": {"contention": [2, 6]}},
        {"scenario": "ogasched-authors-v1"},
        {"policies": ["drf:variant=1", {"name": "ogasched-react", "grid": {"steps": [2, 3]}}]},
    ],
    ids=lambda change: next(iter(change)),
)
def test_anything_that_defines_a_run_changes_its_key(change, monkeypatch):
    if "policies" in change:
        register("policy", "drf-variant", Variant, "another class with drf's configuration")
        change = {"policies": ["drf-variant", *change["policies"][1:]], "comparators": []}
    plain, changed = ({run.key() for run in small(**c).runs()} for c in ({}, change))
    assert not plain & changed
    monkeypatch.setattr("gangwise.__version__", "0.0.0")
    assert not plain & {run.key() for run in small().runs()}


class Variant(DRF):
    """The same configuration as DRF, another class."""


def test_a_label_is_no_part_of_the_key():
    table = {"name": "ogasched-react", "grid": {"steps": [1, 4]}}
    named = small(policies=["drf", {**table, "label": "x"}])
    assert [r.key() for r in named.runs()] == [r.key() for r in small().runs()]
    assert [r.label for r in named.runs()][1] == "x:steps=1"


def test_where_a_trace_is_does_not_matter_but_what_is_in_it(tmp_path):
    nodes = "sn,cpu_milli,memory_mib,gpu,model\na,8000,16384,2,T4\n"
    pods = (
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time\n"
        "p,4000,4096,1,500,,0,60\nq,4000,4096,1,500,,7200,7260\n"
    )
    keys = []
    for place, content in (("here", pods), ("there", pods), ("else", pods.replace("7200", "3601"))):
        (tmp_path / place).mkdir()
        (tmp_path / place / "nodes.csv").write_text(nodes)
        (tmp_path / place / "pods.csv").write_text(content)
        traced = small(scenario="", trace=str(tmp_path / place), settings={}, grid={}, slots=2)
        keys.append([run.key() for run in traced.runs()])
    assert keys[0] == keys[1]
    assert not set(keys[0]) & set(keys[2])


FILE = """
name = "x"
scenario = "ogasched-default-v1:servers=8,job_types=4"
slots = 5
policies = ["drf"]
"""


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (FILE.replace("slots = 5", "slots = 0"), "slots: must be greater than 0"),
        (FILE.replace("slots", "slot"), "slot: there is no such key; known: name, scenario"),
        (FILE + "seeds = [1, 1]", "seeds: 1 is listed twice"),
        (FILE + "seeds = []", "seeds: List should have at least 1"),
        (FILE + "comparators = ['a', 'a']", "comparators: 'a' is listed twice"),
        (FILE + "[grid]\ncontention = [1, 2, 1.0]", "grid.contention: 1.0 is listed twice"),
        (FILE + "[[cases]]\nrho = 1\n[[cases]]\nrho = 1", "cases: {'rho': 1} is listed twice"),
        (
            FILE.replace('["drf"]', '[{name = "ogasched-react", grid = {steps = [2, 2]}}]'),
            "policies.0.grid.steps: 2 is listed twice",
        ),
        (FILE + "[grid]\nseed = [1]", "seed cannot vary: results have a column of that name"),
        (FILE + "seeds = [1, -2]", "seeds.1: must be greater than or equal to 0, not -2"),
        (FILE + "trace = 'x'", "give either scenario or trace"),
        (FILE + "[grid]\ncontention = 5", "grid.contention: must be a valid list, not 5"),
        (FILE + "[grid]\ncontention = []", "grid.contention: List should have at least 1"),
        (FILE.replace('["drf"]', "[]"), "policies: List should have at least 1"),
        (
            FILE.replace('["drf"]', '[{name = "drf", arg = 1}]'),
            "policies.0.arg: there is no such key; known: name, label",
        ),
        (FILE + "[grid]\na = [1]\n[[cases]]\na = 2", "a is both in grid and in cases"),
        (FILE.replace('"x"', '"a/b"'), "name: String should match pattern"),
        (FILE.replace('"x"', '".."'), "name: String should match pattern"),
        (FILE.replace('"x"', f'"{"x" * 5000}"'), "name: String should have at most 100"),
        ("name = ", "this is no TOML file"),
    ],
)
def test_an_error_names_the_key(tmp_path, text, error):
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(ScenarioError) as raised:
        Experiment.read(path)
    assert str(raised.value).startswith(f"{path}: {error}")


def test_names_that_do_not_exist_are_found_before_anything_is_run(tmp_path):
    for changes, error in (
        ({"policies": ["drff"]}, "no policy named 'drff'; did you mean drf"),
        ({"scenario": "ogasched-default"}, "no scenario named"),
        ({"grid": {"contentoin": [1]}}, "did you mean contention"),
        ({"policies": [{"name": "drf", "arguments": {"step": 1}}]}, "argument of policy 'drf'"),
    ):
        with pytest.raises(UnknownName, match=error):
            sweep(small(**changes), tmp_path / "out")
    for changes, error in (
        ({"comparators": ["best_fixd"]}, "no comparator named 'best_fixd'; did you mean best"),
        ({"metrics": ["gian"]}, "no metric named 'gian'; did you mean gain"),
    ):
        with pytest.raises(UnknownName, match=error):
            sweep(small(**changes), tmp_path / "out", jobs=1)
    with pytest.raises(ScenarioError, match="but 40"):
        small(grid={"slots": [30, 40]}).runs()
    with pytest.raises(ScenarioError, match="'drf'"):
        small(policies=["drf", "drf"]).runs()
    with pytest.raises(ScenarioError, match="family approximation_jobs"):
        sweep(small(policies=["fair"]), tmp_path / "out")
    assert not (tmp_path / "out" / "runs").exists()


@pytest.mark.full
@pytest.mark.parametrize(
    ("where", "error"),
    [
        ({"jobs": 0}, "not 0"),
        ({"address": "127.0.0.1:9"}, "is for a cluster: choose the backend dask or ray"),
        ({"backend": "dask"}, "needs the address"),
        ({"backend": "dask", "address": "scheduler"}, "has no port: write HOST:PORT"),
        ({"backend": "ray", "address": "local"}, "has no port: write HOST:PORT"),
        ({"backend": "dask", "address": "tcp://127.0.0.1:{}"}, "nothing answers at tcp://127"),
        ({"backend": "ray", "address": "127.0.0.1:{}"}, "nothing answers at 127"),
    ],
    ids=str,
)
def test_workers_that_are_not_there(tmp_path, where, error):
    if "backend" in where:
        package = {"dask": "distributed", "ray": "ray"}[where["backend"]]
        if not find_spec(package):
            pytest.skip(f"{package} is not installed: gangwise[{where['backend']}]")
    with socket.socket() as deaf:  # bound, but it does not listen
        deaf.bind(("127.0.0.1", 0))
        if "address" in where:
            where = {**where, "address": where["address"].format(deaf.getsockname()[1])}
        with pytest.raises(GangwiseError, match=error):
            sweep(small(comparators=[]), tmp_path, **where)


class Odd(Exception):  # noqa: N818 - it is as odd as an exception of a user can be
    """Cannot be sent from one process to another."""

    def __init__(self, one, other):
        super().__init__(f"{one} {other}")


class Fails(DRF):
    """Fails in every run."""

    def decide(self, observation):
        raise Odd("on", "purpose")


@pytest.mark.full
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_run_that_fails_does_not_take_the_others_along(tmp_path, jobs):
    register("policy", "fails", Fails, "fails")  # of no family, so that no other test meets it
    error = r"3 of 6 runs failed.*fails, seed \d: Odd: on purpose"
    with pytest.raises(GangwiseError, match=error) as raised:
        sweep(small(policies=["fails", "drf"], grid={}, comparators=[]), tmp_path, jobs=jobs)
    assert "in decide" in raised.value.__notes__[0]
    assert Results.open(tmp_path).policies == ["drf"]


def test_ctrl_c_still_works_where_all_cores_are_one(tmp_path, monkeypatch):
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")
    before = signal.getsignal(signal.SIGINT)
    sweep(small(grid={}, comparators=[], slots=2), tmp_path, jobs=-1)
    assert signal.getsignal(signal.SIGINT) is before


def test_paths_are_relative_to_the_file(tmp_path, monkeypatch):
    (tmp_path / "own.toml").write_text('base = "ogasched-default-v1"\n[settings]\nservers = 8\n')
    path = tmp_path / "x.toml"
    path.write_text(FILE.replace("ogasched-default-v1:servers=8,job_types=4", "own.toml"))
    experiment = Experiment.read(path, seeds=1, settings={"job_types": 4})
    (run,) = experiment.runs()
    assert run.identity()["settings"]["servers"] == 8


def test_settings_that_only_some_cells_have(tmp_path):
    cases = [{"contention": 1}, {"rho": 0.5}]
    found = sweep(
        small(grid={}, cases=cases, policies=["drf", "fairness"], comparators=[]), tmp_path, jobs=1
    )
    assert found.table()["seeds"].to_list() == [3] * 4
    first, second = found.sentences()
    assert first.startswith("contention = 1")
    assert second.startswith("rho = 0.5: ")


def test_what_cannot_be_read_is_said(results, tmp_path):
    with pytest.raises(UnknownName, match="'gian'"):
        results.curves("gian")
    for text in ("{", "[]", '{"runs": 3}'):
        (tmp_path / "small.plan.json").write_text(text)
        with pytest.raises(StoreError, match="sweep"):
            Results.open(tmp_path)


def test_curves_are_recorded_where_they_bend():
    at = checkpoint_slots(50_000, 150)
    assert (at[0], at[-1]) == (1, 50_000)
    assert 130 < at.size <= 150
    assert np.diff(at).max() < 700
    assert (at <= 100).sum() > 20
    assert checkpoint_slots(3, 150).tolist() == [1, 2, 3]
    assert checkpoint_slots(7, 1).tolist() in ([1, 7], [7])


def test_the_published_schema_is_current():
    path = Path(__file__).parents[2] / "docs" / "experiment.schema.json"
    assert json.loads(path.read_text(encoding="utf-8")) == schema()


def test_a_file_of_which_polars_panics_counts_as_not_played(folder, results, monkeypatch):
    """Of some flipped bits it does, and a panic is no Exception: what is read is stood in for."""
    key = results.runs[0]["key"]

    def panics(*_, **__):
        raise pl.exceptions.PanicException("called `Result::unwrap()` on an `Err` value")

    assert Store(folder).finished(key)
    monkeypatch.setattr(pl, "read_parquet", panics)
    assert not Store(folder).finished(key)
