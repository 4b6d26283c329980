"""Replays: the same numbers as the simulation, stored and found again, for every command."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from gangwise import compare
from gangwise.core.errors import ScenarioError, StoreError, UnknownName
from gangwise.jobs import Jobs, Nodes, simulate_jobs
from gangwise.jobs.bounds import Certified
from gangwise.jobs.metrics import Outcome
from gangwise.jobs.world import DrawnWorld
from gangwise.report.pages import write_replay, write_report
from gangwise.sites.slurm_passes import SlurmPasses
from gangwise.study.replay import Replayed, replay
from gangwise.study.replay_scenario import ReplayScenario, bounded
from gangwise.study.sweep import Experiment, sweep
from gangwise.study.tune import tune
from tests.reference.bounds import dual_value

SMALL = {"world": "unlike", "nodes": 4, "first": 60, "load": 0.9, "limits": "work"}
LOG = """; MaxProcs: 8
1 0 5 60 4 -1 -1 4 120 -1 1 3 1 2 -1 -1 -1 -1
2 10 60 30 6 -1 -1 6 60 -1 1 4 1 2 -1 -1 -1 -1
3 20 -1 30 9 -1 -1 16 60 -1 1 3 1 2 -1 -1 -1 -1
4 30 10 20 2 -1 -1 2 40 -1 1 3 1 2 -1 -1 -1 -1
"""


@pytest.fixture
def swf(tmp_path: Path) -> Path:
    path = tmp_path / "log.swf"
    path.write_text(LOG)
    return path


def test_a_log_is_replayed_as_the_simulation_has_it(swf: Path) -> None:
    found = replay(str(swf), ["fcfs+easy+first-fit", "fcfs"])
    jobs = Jobs.of([0, 10, 30], [60, 30, 20], [4, 6, 2], limit=[120, 60, 40])
    for name in found.schedulers:
        expected = simulate_jobs(jobs, Nodes.pool(8), name)
        assert found.outcomes[name][0].start.tolist() == expected.start.tolist()
        assert found.outcomes[name][0].end.tolist() == expected.end.tolist()
    assert "75 % of 4 jobs" in found.scenario.fidelity()[0]
    assert found.as_dict()["as_it_happened"]["waiting.mean"] == pytest.approx(25.0)


def test_the_first_line_counts_what_a_site_never_lets_run_and_names_queues(swf: Path) -> None:
    text = swf.read_text().replace(" 1 2 -1", " 1 2 5")  # the second job is of another queue
    swf.write_text(text.replace(" 4 1 2 5", " 4 1 2 7"))
    without = replay(str(swf), ["fcfs"]).scenario.fidelity()[0]
    assert "75 % of 4 jobs" in without
    assert without.endswith(
        "queues are not modelled: every job may run anywhere (--site models them)"
    )
    site = swf.with_name("site.toml")
    site.write_text("[[pool]]\nname = '7'\n[[cap]]\nscope = 'user'\nof = 'cpu'\nmost = 5\n")
    found = replay(str(swf), ["fcfs"], site=str(site))
    line = found.scenario.fidelity()[0]
    # Of 60·4 + 30·6 + 20·2 core-seconds, the job of 6 cores is not played.
    assert "50 % of 4 jobs" in line
    assert "1 that alone ask for more than the cap on each user: 5 cpu at once (row" in line
    assert "not modelled" not in line
    assert np.isnan(found.outcomes["fcfs"][0].start[1])


def test_stored_runs_are_what_was_played_and_are_not_played_again(tmp_path: Path) -> None:
    out = tmp_path / "out"
    names = ["fcfs+easy+best-fit", "fcfs+easy+learned"]
    first = replay("twin:alibaba-gpu-v2023", names, [0, 1], out, **SMALL)
    before = {p: p.stat().st_mtime_ns for p in (out / "runs").iterdir()}
    again = replay("twin:alibaba-gpu-v2023", names, [0, 1], out, **SMALL)
    assert {p: p.stat().st_mtime_ns for p in (out / "runs").iterdir()} == before
    opened = Replayed.open(out)
    for name in names:
        for seed in (0, 1):
            played = first.scenario.draw(seed)
            schedule = simulate_jobs(
                played.jobs, played.nodes, name, played.conditions, first.scenario.options
            )
            plain = Outcome.of(schedule, name)
            for each in (first, again, opened):
                stored = each.outcomes[name][seed]
                assert np.array_equal(stored.end, plain.end)
                assert stored.summary()["waiting.mean"] == plain.summary()["waiting.mean"]
                assert stored.utilisation == plain.utilisation
    assert first.results.digest == opened.results.digest
    learned = opened.learned()["fcfs+easy+learned"]
    assert learned.mean.shape == learned.sd.shape == (len(played.jobs.types), 4)


def test_a_learner_forgets_between_runs() -> None:
    """Seed 1 after seed 0 gives what seed 1 alone gives."""
    both = replay("twin:alibaba-gpu-v2023", ["fcfs+easy+learned"], [0, 1], **SMALL)
    alone = replay("twin:alibaba-gpu-v2023", ["fcfs+easy+learned"], [1], **SMALL)
    assert np.array_equal(
        both.outcomes["fcfs+easy+learned"][1].end, alone.outcomes["fcfs+easy+learned"][0].end
    )


@pytest.mark.full
def test_pages_and_bounds(tmp_path: Path) -> None:
    out, few = tmp_path / "out", {**SMALL, "first": 30}
    found = replay("twin:alibaba-gpu-v2023", ["fcfs+easy+best-fit", "sjf"], [3], out, **few)
    bounds = found.bounds(steps=30)
    least = min(o[0].summary()["completion.mean"] for o in found.outcomes.values())
    assert 0 < bounds[0].mean_completion <= least
    write_replay(found, out, bounds, "gangwise replay <b>")
    page = (out / "report.html").read_text()
    assert "<b>" not in page
    summary = json.loads((out / "summary.json").read_text())
    assert summary["lower_bounds"] == [bounds[0].mean_completion]
    assert summary["preemptive_lower_bounds"] == [bounds[0].preemptive]
    # The prices in the file prove the bound to someone who has nothing else of it.
    jobs = bounded(found.scenario.draw(3), found.scenario.options)
    table = pl.read_parquet(out / "prices-3.parquet")
    prices = np.zeros_like(bounds[0].prices)
    period = bounds[0].period
    at = ((table["begin"] - bounds[0].origin) / period).round().cast(int).to_numpy()
    prices[table["node"].to_numpy(), at] = table["price"].to_numpy()
    proven = dual_value(jobs, prices[:, : at.max(initial=0) + 1], bounds[0].origin, period)
    assert proven == pytest.approx(bounds[0].dual, rel=1e-6)
    (out / "report.html").unlink()
    write_report(out)
    assert "fcfs+easy+best-fit" in (out / "report.html").read_text()


def test_a_bound_holds_for_every_scheduler_and_depends_on_none(tmp_path: Path) -> None:
    """``las`` preempts: it stands below the bound of schedules that do not, and is told so."""
    file = tmp_path / "preempted.swf"
    rows = "1 0 0 1000000 1 -1 -1 1 1000000", "2 200000 800000 1000 1 -1 -1 1 1000"
    file.write_text("; MaxProcs: 1\n" + "".join(f"{row} -1 1 1 1 -1 1 1 -1 -1\n" for row in rows))
    plain, out = replay(str(file), ["fcfs"]), tmp_path / "out"
    with_las = replay(str(file), ["las", "sjf"], out=out, rules="fcfs")
    (bound,) = with_las.bounds()
    assert plain.bounds()[0].mean_completion == bound.mean_completion
    las = with_las.outcomes["las"][0].until_left
    assert bound.preemptive <= las < bound.mean_completion
    texts = [found.compared(Certified.of([bound])).text for found in (plain, with_las)]
    assert all(
        "without preemption or migration could complete jobs more than 4" in t for t in texts
    )
    then = (
        "; under las jobs are interrupted, and no schedule at all could complete them more than 4"
    )
    assert [then in text for text in texts] == [False, True]
    write_replay(with_las, out, [bound])
    write_report(out)  # again, from what is stored
    assert "Jobs are interrupted under las" in (out / "report.html").read_text()


def test_other_nodes_than_those_of_the_log(swf: Path) -> None:
    found = replay(str(swf), "fcfs", nodes=2, devices=3)
    assert found.scenario.assumed()[0] == "2 nodes of 3 cpu, in place of those of the log"
    (played,) = found.outcomes["fcfs"]
    assert played.start.tolist() == [0.0, 60.0, 90.0]
    assert "the log lists no nodes" not in found.scenario.fidelity()[0]


def test_nodes_are_of_what_most_jobs_ask_for(tmp_path: Path) -> None:
    """One job of four has a GPU: given nodes are of cores, and no job is left out."""
    rows = "".join(f"j{n},2,{int(n == 0)},{n},{n + 60}\n" for n in range(4))
    (tmp_path / "jobs.csv").write_text(f"name,cpu,gpu,created,deleted\n{rows}")
    columns = "".join(f'{c} = "{c}"\n' for c in ("name", "cpu", "gpu", "created", "deleted"))
    (tmp_path / "m.toml").write_text(
        f'trace = "csv"\n[jobs]\nfile = "jobs.csv"\n[jobs.columns]\n{columns}'
    )
    assert "taken to be one pool" in replay(tmp_path / "m.toml", "fcfs").scenario.fidelity()[0]
    played = replay(tmp_path / "m.toml", "fcfs", nodes=1, devices=4).outcomes["fcfs"][0]
    assert played.start.tolist() == [0.0, 1.0, 60.0, 61.0]


@pytest.mark.full
def test_sweeps_take_replays_and_rank_by_completion(tmp_path: Path) -> None:
    experiment = Experiment.of(
        {
            "name": "loads",
            "scenario": "replay",
            "settings": {**SMALL, "first": 40},
            "grid": {"load": [0.5, 1.5]},
            "policies": ["fcfs+easy+best-fit", "sjf+easy+label", "gavel:seconds=1800"],
            "seeds": 2,
        }
    )
    results = sweep(experiment, tmp_path, jobs=1)
    table = results.table("waiting.mean")
    assert table.height == 6
    assert results.objective == "completion.mean"
    for _, cell in table.group_by("load", maintain_order=True):
        assert cell["completion.mean"].is_sorted()


def test_workers_give_the_same_bits(tmp_path: Path) -> None:
    names = ["fcfs+easy+best-fit", "fcfs+easy+ucb"]
    one = replay("twin:alibaba-gpu-v2023", names, [0, 1], tmp_path / "a", jobs=1, **SMALL)
    two = replay("twin:alibaba-gpu-v2023", names, [0, 1], tmp_path / "b", jobs=2, **SMALL)
    assert one.results.digest == two.results.digest


def test_the_world_is_that_of_the_seed() -> None:
    scenario = ReplayScenario(**SMALL)
    a, b, c = scenario.draw(0), scenario.draw(0), scenario.draw(1)
    assert np.array_equal(a.conditions.rates, b.conditions.rates)
    assert not np.array_equal(a.conditions.rates, c.conditions.rates)
    assert len(a.jobs) == 60
    assert set(a.nodes.rates) <= set(DrawnWorld().speeds)
    assert scenario.describe()["drawn"].startswith("drawn world: 3 generations")


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"world": "mars"}, UnknownName, "world"),
        ({"lod": 1}, UnknownName, "did you mean load"),
        ({"load": -1}, ScenarioError, "load"),
        ({"world": "like", "longest": 1e-9}, ScenarioError, "no job is left"),
    ],
)
def test_wrong_settings_are_named(
    settings: dict[str, object], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        replay("twin:alibaba-gpu-v2023", ["fcfs"], [0], **settings)


def test_several_seeds_of_what_is_not_drawn_are_refused(swf: Path) -> None:
    """Five runs of the same were once "8.0 % ± 0.0 sooner", and better."""
    with pytest.raises(ScenarioError, match="5 runs"):
        replay(swf, ["fcfs", "sjf"], 5)
    asked = {"name": "a", "scenario": "replay", "policies": ["fcfs"], "seeds": 2}
    with pytest.raises(ScenarioError, match="2 runs"):
        Experiment.of({**asked, "settings": {"source": str(swf)}}).runs()
    assert len(replay(swf, ["fcfs", "sjf"], [3]).seeds) == 1
    pytest.importorskip("optuna", reason="tuning needs Optuna")
    with pytest.raises(ScenarioError, match="2 runs"):
        tune(
            "replay",
            "fcfs+easy",
            ["depth=1:9:int"],
            swf.parent,
            {"source": str(swf)},
            1,
            (0,),
            (1,),
        )


def test_an_empty_folder_holds_no_replay(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no results"):
        Replayed.open(tmp_path)


def test_one_seed_has_no_interval_and_is_json() -> None:
    names = ["fcfs+easy+label", "fcfs"]
    found = replay("twin:alibaba-gpu-v2023", names, [3], first=30, world="like", nodes=4)
    told = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    over = told["schedulers"][1]["over"]
    assert over["than"] == "fcfs+easy+label"
    completion = over["metrics"]["completion.mean"]
    assert (completion["percent"], completion["low"], completion["high"]) == (True, None, None)


@pytest.mark.full
def test_tuning_takes_schedulers_and_their_objective(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    found = tune(
        "replay",
        "gavel",
        ["seconds=600:3600"],
        tmp_path,
        {**SMALL, "first": 30},
        trials=2,
        seeds=(0,),
        validation=(1, 2),
        jobs=1,
    )
    assert (found.metric, found.minimise) == ("completion.mean", True)
    assert found.trials[0].value <= found.trials[1].value


def test_a_sweep_of_replays_is_reported(tmp_path: Path) -> None:
    content = {
        "name": "loads",
        "scenario": "replay",
        "settings": {**SMALL, "first": 30},
        "grid": {"load": [0.5, 1.5]},
        "policies": ["fcfs+easy+best-fit", "sjf+easy+fgd"],
        "seeds": 2,
    }
    sweep(Experiment.of(content), tmp_path, jobs=1)
    write_report(tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert "completion.mean" in page
    assert "reward per slot" not in page


def test_a_folder_is_a_log_or_an_earlier_replay(tmp_path: Path, swf: Path) -> None:
    first = replay(swf, "fcfs", overestimate=1.0, out=tmp_path / "out")
    again = replay(tmp_path / "out", "fcfs,sjf")
    assert again.scenario.settings == first.scenario.settings
    assert again.outcomes["fcfs"][0].end.tolist() == first.outcomes["fcfs"][0].end.tolist()
    assert replay(tmp_path / "out", "fcfs", overestimate=2.0).scenario.settings.overestimate == 2.0
    compare("ogasched-default-v1:servers=8", "drf", 5, 1, [], out=tmp_path / "slots")
    with pytest.raises(ScenarioError, match="gangwise"):
        replay(tmp_path / "slots", "fcfs")
    with pytest.raises(ScenarioError, match="3 is"):
        replay(3)
    with pytest.raises(ScenarioError, match="settings"):
        replay(first.scenario, "fcfs", load=0.5)


def test_prices_are_not_searched_of_many_jobs_unless_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gangwise.study.replay.MOST_PRICED", 10)
    found = replay("twin:alibaba-gpu-v2023", ["fcfs+easy+best-fit"], [3], tmp_path, **SMALL)
    few, many = found.bounds()[0], found.bounds(steps=30)[0]
    assert (few.searched, few.dual, many.searched) == (False, few.alone, True)
    assert few.mean_completion == few.preemptive == many.preemptive <= many.mean_completion
    write_replay(found, tmp_path, [few])
    write_report(tmp_path)  # again, from what is stored
    assert "Prices were not searched" in (tmp_path / "report.html").read_text()
    assert not json.loads((tmp_path / "summary.json").read_text())["prices_searched"]
    assert not (tmp_path / "prices-3.parquet").exists()


HETEROGENEOUS = """\
JobID|User|Submit|Start|End|Timelimit|State|AllocTRES|NNodes|NodeList
100+0|ann|2026-03-01T08:00:00|2026-03-01T08:00:10|2026-03-01T09:00:10|02:00:00|COMPLETED|cpu=4,node=1|1|n1
100+1|ann|2026-03-01T08:00:00|2026-03-01T08:00:10|2026-03-01T09:00:10|02:00:00|COMPLETED|cpu=16,node=2,gres/gpu=8|2|n[2-3]
101|bob|2026-03-01T08:05:00|2026-03-01T09:00:20|2026-03-01T09:30:20|01:00:00|COMPLETED|cpu=8,node=1,gres/gpu=4|1|n2
102|bob|2026-03-01T08:06:00|2026-03-01T08:06:05|2026-03-01T08:16:05|00:20:00|COMPLETED|cpu=2,node=1|1|n1
"""


def test_schedulers_are_compared_on_jobs_that_all_of_them_can_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the three jobs one has unlike tasks, which a scheduler may be unable to place."""
    (tmp_path / "sacct.txt").write_text(HETEROGENEOUS)
    scenario = ReplayScenario(source=str(tmp_path))
    assert scenario.jobs.sizes.tolist() == [3, 1, 1]
    alone = replay(scenario, "fcfs+easy+best-fit")
    assert alone.scenario.fidelity()[0].startswith("slurm-sacct: 100 % of 3 jobs and 100 %")
    (outcome,) = alone.outcomes["fcfs+easy+best-fit"]
    assert outcome.start.tolist() == [0.0, 3600.0, 360.0]
    # Slurm's backfilling starts both components, and comes at once; job 101 waits for n2.
    slurm = replay(scenario, "slurm")
    assert slurm.scenario.fidelity()[0].startswith("slurm-sacct: 100 % of 3 jobs and 100 %")
    assert slurm.outcomes["slurm"][0].start.tolist() == [0.0, 3600.0, 360.0]
    monkeypatch.setattr(SlurmPasses, "groups", False)
    both = replay(scenario, ["fcfs+easy+best-fit", "slurm"])
    line = both.scenario.fidelity()[0]
    assert "66.7 % of 3 jobs and 20 % of 10 GPU-hours are played" in line
    assert "1 of unlike tasks, which slurm cannot place" in line
    for name in ("fcfs+easy+best-fit", "slurm"):
        assert [len(outcome.jobs) for outcome in both.outcomes[name]] == [2]
