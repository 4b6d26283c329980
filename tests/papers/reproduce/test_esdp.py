"""ESDP's artefacts: complete, and their numbers are those of plain simulations."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from gangwise import ScenarioError, check_policy, create_policy, create_scenario, simulate
from gangwise.papers.fluctuating_speeds.environment import (
    FluctuatingSpeedsFamily,
    FluctuatingSpeedsInstance,
    pseudo_regret,
)
from gangwise.papers.reproduce import artefacts, esdp, expected, measures
from gangwise.papers.reproduce.esdp import ESDPByProgramme, numbers_s, smallest_gap
from gangwise.papers.reproduce.expected import reproduce
from gangwise.papers.reproduce.papers import RunScale
from gangwise.report.pages import ClaimResult
from gangwise.study.statistics import Estimate
from gangwise.study.sweep import Experiment, sweep

SEEDS, SLOTS, FRACTIONS = (3, 4), 40, (0.2, 0.4, 0.8)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    experiment = Experiment(
        name="small",
        scenario="esdp-default-v1",
        settings={"servers": 10},
        grid={"fraction": list(FRACTIONS)},
        policies=["esdp", "lwtf", "hauf"],
        seeds=list(SEEDS),
        slots=SLOTS,
        comparators=["omniscient", "omniscient_realised"],
    )
    return sweep(experiment, tmp_path_factory.mktemp("runs"), jobs=1)


def played(policy, fraction, seed):
    instance = create_scenario("esdp-default-v1", servers=10, fraction=fraction).instance(seed)
    return simulate(instance, create_policy(policy), SLOTS, seed)


def test_every_figure_and_both_theorems_in_order():
    names = [artefact.name for artefact in artefacts("esdp") if not artefact.trace]
    assert names == [f"figure-{n}" for n in range(2, 14)] + ["theorem-1", "theorem-2"]


def test_full_scale_has_the_papers_slots_and_ten_seeds_or_more():
    experiments = {
        e.name: e
        for artefact in artefacts("esdp")
        if not artefact.trace
        for e in artefact.experiments(RunScale())
    }
    timed = {name for name in experiments if name.startswith("esdp-overhead")}
    assert all(
        len({run.seed for run in e.runs()}) >= 10 for n, e in experiments.items() if n not in timed
    )
    assert experiments["esdp-verification-quarter"].slots == 8000
    assert experiments["esdp-regret-quarter"].slots == 100_000
    assert {e.slots for n, e in experiments.items() if "-fig-" in n} == {2000}


def test_sums_up_to_a_slot_are_those_of_a_simulation(results):
    for at in (1, 17, SLOTS):
        found = measures.total(results, "hauf", at, cell={"fraction": 0.4})
        plain = [played("hauf", 0.4, seed).rewards[:at].sum() for seed in SEEDS]
        assert found == pytest.approx(plain)


def test_regret_is_that_of_the_offline_module(results):
    found = esdp.regret(results, "esdp", 25, {"fraction": 0.2})
    plain = [pseudo_regret(played("esdp", 0.2, seed))[24] for seed in SEEDS]
    assert found == pytest.approx(plain)


def test_leads_and_changes_are_paired(results):
    total = {
        (p, f): np.array([played(p, f, seed).rewards.sum() for seed in SEEDS])
        for p in ("esdp", "lwtf", "hauf")
        for f in FRACTIONS
    }
    leads = {
        (base, f): 100 * (total["esdp", f] / total[base, f] - 1).mean()
        for base in ("lwtf", "hauf")
        for f in FRACTIONS
    }
    one = measures.lead(results, "esdp", ["lwtf"], cell={"fraction": 0.2})
    assert one.mean == pytest.approx(leads["lwtf", 0.2])
    smallest = measures.lead(results, "esdp", ["lwtf", "hauf"])
    assert smallest.mean == pytest.approx(min(leads.values()))
    steps = [
        100 * (total["hauf", b] / total["hauf", a] - 1).mean()
        for a, b in itertools.pairwise(FRACTIONS)
    ]
    assert measures.change(results, "hauf").mean == pytest.approx(min(steps))


def test_the_interval_of_the_distance_from_the_optimum():
    earned, best = np.array([1.0, 20.0, 300.0]), np.array([2.0, 21.0, 301.0])
    assert measures.from_base(earned, best) == pytest.approx((107.0, 107.0, 107.0))
    assert measures.from_base(best, best) == (108.0, None, None)


def test_numbers_s_by_hand():
    # m = 2, δ(3) = 1 / (ln(ln 4 + 1) + 1) = 0.5348, so ξ = ⌈3.74⌉ = 4, and s = 0 … 8.
    assert numbers_s("default", 4, 3) == 9
    # ξ = ⌈2 (ln 4 + 1)⌉ = ⌈4.77⌉ = 5.
    assert numbers_s("log", 4, 3) == 11


@pytest.mark.parametrize("seed", range(2))
def test_smallest_gap_by_enumeration(seed):
    instance = create_scenario(
        "esdp-default-v1", servers=6, job_types=3, density=0.4, fraction=0.4
    ).instance(seed)
    problem, v = instance.problem, instance.means(0)
    choices = np.array(list(itertools.product([0, 1], repeat=problem.E)))
    worth = choices @ v
    fits = (choices @ problem.requests <= problem.cluster.capacity).all(axis=1)
    best, second = np.sort(worth[fits])[:-3:-1]
    assert smallest_gap(instance) == pytest.approx(best - second, abs=1e-9)


def test_the_programme_chooses_as_well_as_branch_and_bound():
    instance = create_scenario("esdp-default-v1", servers=8, fraction=0.3).instance(1)
    problem, rng = instance.problem, np.random.default_rng(0)
    policies = ESDPByProgramme(), create_policy("esdp-as-printed")
    for policy in policies:
        policy.start(problem, np.random.default_rng(0))
    everyone = np.ones(problem.E, dtype=bool)
    for _ in range(20):
        v = rng.integers(0, 9, problem.E).astype(float)
        s = rng.integers(1, 50, problem.E).astype(float)
        worth = []
        for policy in policies:
            x = policy._choose(v, s, everyone)
            assert (problem.requests[x].sum(axis=0) <= problem.cluster.capacity).all()
            worth.append(v[x].sum() + np.sqrt(s[x].sum()))
        assert worth[0] == pytest.approx(worth[1])


class WholeRequests(FluctuatingSpeedsFamily):
    """Instances of the family whose requests are whole; no two channels ask for the same."""

    def fuzz(self, rng: np.random.Generator) -> FluctuatingSpeedsInstance:
        drawn = super().fuzz(rng)
        requests = np.ceil(2 * drawn.problem.requests)
        requests[:, 0] = 1 + rng.permutation(len(requests))
        capacity = np.ceil(3 * drawn.problem.cluster.capacity)
        cluster = replace(drawn.problem.cluster, capacity=capacity)
        return replace(drawn, problem=replace(drawn.problem, cluster=cluster, requests=requests))


def test_the_programme_keeps_to_the_contract_where_requests_are_whole():
    """Ties among rounded scores too go by what channels ask for, not by what they are called."""
    check_policy(ESDPByProgramme(), problems=9, family=WholeRequests())


def test_the_programme_refuses_other_requests_before_anything_is_played():
    problem = FluctuatingSpeedsFamily().fuzz(np.random.default_rng(0)).problem
    with pytest.raises(ScenarioError, match="whole requests"):
        ESDPByProgramme().start(problem, np.random.default_rng(0))


def test_times_are_committed_and_never_compared(tmp_path, monkeypatch):
    monkeypatch.setattr(expected, "FOLDER", tmp_path)
    time, size = (
        ClaimResult(
            "esdp",
            "figure-5",
            says,
            "v",
            "p",
            Estimate(1.0, None, None),
            "open",
            "",
            timed=says == "time",
        )
        for says in ("time", "size")
    )
    expected.write([time, size], quick=True)
    assert list(expected.read(quick=True)) == ["esdp figure-5: time [v]", "esdp figure-5: size [v]"]
    other = Estimate(2.0, None, None)
    assert expected.differences([replace(time, ours=other)], quick=True) == []
    assert len(expected.differences([replace(size, ours=other)], quick=True)) == 1


@pytest.mark.full
def test_a_figure_end_to_end(tmp_path):
    (figure,) = [a for a in artefacts("esdp") if a.name == "figure-8"]
    done = reproduce([figure], RunScale(quick=True, seeds=(100,)), tmp_path, jobs=1)
    assert {row.version for row in done.rows} >= {"as printed, c = 1/4", "esdp, c = 1 or 2"}
    assert all(row.ours.low is None and np.isfinite(row.ours.mean) for row in done.rows)
    for ending in ("png", "svg", "csv", "parquet"):
        assert (tmp_path / f"esdp-figure-8.{ending}").stat().st_size > 500
    assert "overwhelming" in (tmp_path / "side-by-side.md").read_text()
