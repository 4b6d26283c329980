"""Figures, table and theorems of the OPM paper: definitions, claims by hand, a tiny run."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest

from gangwise.papers.reproduce import artefacts
from gangwise.papers.reproduce.expected import reproduce
from gangwise.papers.reproduce.papers import RunScale
from gangwise.study.results import Results
from gangwise.study.runs import Rows, Store

PAPER = {artefact.name: artefact for artefact in artefacts("opm")}


def made(folder, name, runs, settings=None, scenario="opm-default-v1"):
    """Results with given rows: ``runs`` is of (cell, policy, seed, {metric: value or column})."""
    store, plan = Store(folder), []
    for n, (cell, policy, seed, metrics) in enumerate(runs):
        rows, key = Rows(), f"{name}-{n}"
        for metric, value in metrics.items():
            column = isinstance(value, list)
            rows.add(
                metric,
                np.array(value, dtype=float) if column else float(value),
                np.arange(len(value)) if column else None,
            )
        identity = {"scenario": scenario, "settings": {}, "seed": seed, "slots": 10, "version": "0"}
        store.write(key, identity, rows)
        plan.append(
            {
                "key": key,
                "cell": cell,
                "label": policy,
                "comparator": False,
                "seed": seed,
                "slots": 10,
            }
        )
    experiment = {"settings": settings or {}, "scenario": scenario}
    store.write_plan(name, {"experiment": experiment, "runs": plan})
    return {name: Results.open(folder, name)}


def claim(artefact, says):
    """The claims that begin with these words."""
    found = [c for c in PAPER[artefact].claims if c.says.startswith(says)]
    assert found
    return found


def test_everything_of_section_vi_and_the_theorems_is_there():
    names = ["figure-1", "table-1", "figure-2", "figure-3"]
    assert set(PAPER) == {
        "theorem-2",
        "theorem-3",
        "corollary-1",
        *names,
        *(f"{n}-synthetic" for n in names),
    }
    assert {n: a.trace for n, a in PAPER.items() if a.trace} == dict.fromkeys(names, "google-2011")
    assert all(a.claims and a.panels for a in PAPER.values())


@pytest.mark.parametrize("name", [n for n in PAPER if not PAPER[n].trace])
def test_full_scale_has_ten_seeds_and_the_quick_one_fewer_runs(name):
    full, quick = (
        sum(len(e.runs()) for e in PAPER[name].experiments(RunScale(q))) for q in (False, True)
    )
    assert all(
        len({run.seed for run in e.runs()}) >= 10 for e in PAPER[name].experiments(RunScale())
    )
    assert quick < full / 3


def test_the_trace_is_played_at_the_size_of_the_paper(tmp_path):
    (experiment,) = PAPER["table-1"].experiments(RunScale(traces=tmp_path))
    assert experiment.settings == {"keep": 1.0, "folder": str(tmp_path / "google-2011")}
    assert experiment.slots is None  # the scenario's 50,000, with its 1,000 machines and 10 hours
    (light,) = PAPER["figure-2"].experiments(RunScale(traces=tmp_path))
    assert [case["keep"] for case in light.cells[::5]] == [1.0, 0.5]


def test_numbers_of_the_paper():
    gains = [c.paper for c in claim("table-1", "OPM over")]
    assert gains == [10.4, 21.4, 32.6, 11.5, 21.7, 33.6, 8.3, 9.0, 11.0]
    assert [c.paper for c in claim("figure-2", "OPM over Fair")] == [47.0, 56.0]
    assert [c.paper for c in claim("figure-3", "OPM over Fair")] == [40.0, 17.0]
    curves = [c for c in PAPER["figure-1"].claims if "below a cost" in c.says]
    assert {c.paper for c in curves} == {90.0, 72.0, 65.0}


def test_table_1_pairs_seeds(tmp_path):
    totals = {
        "fair": (100, 200),
        "opm": (110, 240),
        "opm-as-printed": (105, 210),
        "opm-without-estimation": (100, 200),
        "deadline-aware": (50, 100),
        "utility-per-price": (90, 180),
        "plan": (120, 240),
        "opm:estimator=constant": (100, 200),
    }
    runs = [
        ({"beta": b}, policy, seed, {"reward.total": v, "reward.mean": v / 10})
        for b in (0.5, 0.6, 0.7)
        for policy, both in totals.items()
        for seed, v in enumerate(both)
    ]
    found = made(tmp_path, "opm-table-synthetic", runs)
    (over_fair,) = claim("table-1-synthetic", "OPM over Fair, β = 0.6")
    assert over_fair.ours(found)["opm"].mean == pytest.approx(15.0)  # of 10 and 20 %
    assert over_fair.ours(found)["as printed"] == pytest.approx((5.0, 5.0, 5.0))
    (fair,) = claim("table-1-synthetic", "Fair over Deadline-Aware")
    assert {v: e.mean for v, e in fair.ours(found).items()} == pytest.approx(
        {"β = 0.5": 100.0, "β = 0.6": 100.0, "β = 0.7": 100.0}
    )
    numbers = PAPER["table-1-synthetic"].numbers(found)
    printed = numbers.filter((pl.col("line") == "the paper's opm") & (pl.col("x") == "β = 0.7"))
    assert printed["mean"].to_list() == [32.6]


def test_figure_1_counts_jobs(tmp_path):
    def jobs(cost, utility):
        n = len(cost)
        return {
            "job.arrival": [0] * n,
            "job.deadline": [9] * n,
            "job.budget": [10] * n,
            "job.cost": cost,
            "job.work": utility,
            "job.utility": utility,
        }

    # Ratios of fair: 1, 2, 4, infinite (nothing earned); the fifth job costs nothing.
    given = PAPER["figure-1-synthetic"].experiments(RunScale())[0].policies
    policies = [p if isinstance(p, str) else p.label for p in given]
    of = dict.fromkeys(policies, ([1] * 5, [1] * 5)) | {
        "fair": ([8, 8, 8, 10, 0], [8, 4, 2, 0, 0]),
        "opm": ([8, 8, 9.5, 10, 9.5], [8, 8, 8, 1, 1]),
    }
    runs = [({}, policy, 7, {"reward.mean": 1.0, **jobs(*both)}) for policy, both in of.items()]
    found = made(tmp_path, "opm-jobs-synthetic", runs)
    shares = {}
    claims = PAPER["figure-1-synthetic"].claims
    for each in (c for c in claims if "jobs below Fair's 65 % point" in c.says):
        shares |= {version: e.mean for version, e in each.ours(found).items()}
    assert shares["fair"] == 75.0  # three of the four that cost something: up to a ratio of 4
    assert shares["opm"] == 60.0  # 1, 1, 1.2 of five
    spared = {}
    for each in (c for c in claims if "jobs that spend less" in c.says):
        spared |= {version: e.mean for version, e in each.ours(found).items()}
    assert spared["fair"] == 80.0  # 0.8 three times, and 0
    assert spared["opm"] == 40.0  # 0.8 twice; 0.95 and 1 are not


def test_figure_3_counts_machines(tmp_path):
    runs = [({}, "fair", 0, {"reward.total": 100, "reward.mean": 1, "displaced.mean": 1})]
    for policy in ("opm-as-printed", "opm"):
        for alpha, total, moved in ((0.6, 140, 4), (6.0, 117, 1)):
            metrics = {f"{m}.mean": moved for m in ("displaced", "swaps", "net_moves")}
            metrics |= {"reward.total": total, "reward.mean": total / 10}
            runs.append(({}, f"{policy}:alpha={alpha}", 0, metrics))
    found = made(tmp_path, "opm-alpha-google", runs, {"machines": 20}, "opm-google-v1")
    small, large = claim("figure-3", "machines with a migration per slot")
    assert {e.mean for e in small.ours(found).values()} == {20.0}  # 4 of 20
    assert {e.mean for e in large.ours(found).values()} == {5.0}
    (less,) = claim("figure-3", "lead over Fair")
    assert less.ours(found)["opm"].mean == pytest.approx(23.0)


@pytest.mark.full
def test_theorems_are_held_against_their_bounds(tmp_path):
    scale = RunScale(quick=True, seeds=(3,))
    done = reproduce([PAPER["theorem-2"]], scale, tmp_path, jobs=1)
    rows = {(r.artefact, r.says, r.version): r for r in done.rows}
    regret = rows["theorem-2", "Reg over (24) at the largest T", "as printed"].ours.mean
    assert 0.0 < regret < 1.0
    # By hand: M = 20, T = 2000, ρ = 0.3, π = 1, δ = 0.1; the bound of the fit is ln 10 √B.
    budget = 0.3 * 20 * 2000
    results = Results.open(tmp_path / "runs", "opm-theorem-ops")
    fits = results.per_seed("fit.total").filter(
        (pl.col("policy") == "ε = 0") & (pl.col("slots") == 2000)
    )["value"]
    share = rows["theorem-2", "Fit over (23) at the largest T", "ε = 0"].ours.mean
    assert share == pytest.approx(fits.item() / (math.log(10) * math.sqrt(budget)))
    assert {p.suffix for p in done.written} == {".csv", ".parquet", ".png", ".svg", ".md", ".json"}


def test_traces_are_asked_for_by_name(tmp_path):
    done = reproduce([PAPER["table-1"]], RunScale(quick=True), tmp_path)
    assert "google-2011" in done.left_out["opm-table-1"]
    assert not done.rows


@pytest.mark.full
def test_trace_and_synthetic_jobs_run_end_to_end(tmp_path, traces):
    scale = RunScale(quick=True, seeds=(5,), traces=traces)
    done = reproduce([PAPER["figure-3"]], scale, tmp_path, jobs=1)
    verdicts = {(r.says, r.version): r.ours.mean for r in done.rows}
    small = "machines with a migration per slot at α = 0.6, %"
    assert verdicts[small, "opm, displaced"] < verdicts[small, "as printed, displaced"]
