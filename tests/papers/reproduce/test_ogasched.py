"""OGASched's artefacts: complete, and their numbers are those of plain simulations."""

from __future__ import annotations

import numpy as np
import pytest

from gangwise import create_policy, create_scenario, simulate
from gangwise.papers.gain_overhead.offline import best_fixed, regret_bound
from gangwise.papers.reproduce import artefacts, measures, ogasched
from gangwise.papers.reproduce.expected import reproduce
from gangwise.papers.reproduce.ogasched import BEST_FIXED, BOUND, OPTIMUM
from gangwise.papers.reproduce.papers import Paper, RunScale
from gangwise.study.sweep import Experiment, PolicyTable, sweep

SEEDS, SLOTS, SERVERS = (3, 4), 40, (8, 16)
SCENARIO = "ogasched-default-v1"
EXACT, ONE_STEP = "Algorithm 1, exact projection", "one step after the arrivals"
RATE = {"eta": 5.0, "decay": 0.9}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    experiment = Experiment(
        name="small",
        scenario=SCENARIO,
        settings={"job_types": 4},
        grid={"servers": list(SERVERS)},
        policies=[
            "ogasched-react",
            "fairness",
            PolicyTable(name="ogasched-reserve", label=EXACT, arguments={"rule": "decay", **RATE}),
        ],
        seeds=list(SEEDS),
        slots=SLOTS,
        comparators=[OPTIMUM, BEST_FIXED],
        optimum_slots=SLOTS,
    )
    return sweep(experiment, tmp_path_factory.mktemp("runs"), jobs=1)


def instance(servers, seed):
    return create_scenario(SCENARIO, job_types=4, servers=servers).instance(seed)


def earned(policy, servers, seed):
    return simulate(instance(servers, seed), create_policy(policy), SLOTS, seed).rewards.sum()


def test_every_figure_the_table_and_the_theorem():
    names = [a.name for a in artefacts("ogasched") if not a.trace]
    assert names == [f"figure-{n}" for n in range(2, 8)] + ["table-2", "theorem-1"]


def test_full_scale_has_the_papers_slots_and_ten_seeds_but_for_the_large_cluster():
    drawn = [a for a in artefacts("ogasched") if not a.trace]
    found = {e.name: e for a in drawn for e in a.experiments(RunScale())}
    assert found["ogasched-verification"].slots == 8000
    assert found["ogasched-horizon"].slots == 10_000
    assert found["ogasched-rho"].slots == found["ogasched-contention"].slots == 2000
    few = {name for name, e in found.items() if len(e.seeds) < 10}
    assert few == {"ogasched-large"}
    large = found["ogasched-large"].settings
    assert (large["job_types"], large["servers"], large["contention"]) == (100, 1024, 5)


def test_versions_have_the_papers_rate_and_differ_as_said():
    (experiment,) = Paper("ogasched").experiments("horizon", RunScale())
    played = experiment.labelled()
    chosen = [played[who] for who in ("ogasched-as-printed", EXACT, ONE_STEP)]
    assert all((p.eta, p.decay) == (25.0, 0.9999) for p in chosen)
    assert [p.timing for p in chosen] == ["reserve", "reserve", "react"]
    assert chosen[-1].steps == 1


def test_the_optimum_on_all_slots_is_the_sum_of_the_best_of_each(results):
    for servers in SERVERS:
        plain = [
            instance(servers, seed).comparator(OPTIMUM, SLOTS, seed).rewards.sum() for seed in SEEDS
        ]
        assert ogasched.optimum(results, {"servers": servers}) == pytest.approx(plain, rel=1e-9)


def test_regret_and_bound_are_those_of_the_offline_module(results):
    policy = "ogasched-reserve:rule=decay,eta=5,decay=0.9"
    for servers in SERVERS:
        made = [instance(servers, seed) for seed in SEEDS]
        best = [
            best_fixed(i.problem, i.arrivals(SLOTS, seed)).rewards.sum()
            for i, seed in zip(made, SEEDS)
        ]
        plain = np.array(best) - [earned(policy, servers, seed) for seed in SEEDS]
        found = ogasched.regret(results, EXACT, {"servers": servers})
        assert found == pytest.approx(plain, rel=1e-9)
        bounds = [regret_bound(i.problem, SLOTS) for i in made]
        found = ogasched.regret(results, BOUND, {"servers": servers})
        assert found == pytest.approx(bounds)


def test_a_lead_that_moves_is_paired(results):
    ratio = {
        n: np.array([earned("ogasched-react", n, s) / earned("fairness", n, s) for s in SEEDS])
        for n in SERVERS
    }
    found = measures.ratio_change(results, "ogasched-react", "fairness", among=SERVERS)
    assert found.mean == pytest.approx(100 * (ratio[16] - ratio[8]).mean())


def test_the_papers_default_setting_has_three_different_rewards_in_its_table():
    (table,) = (a for a in artefacts("ogasched") if a.name == "table-2")
    places = "1/5 of the horizon (T = 2000)", "rho = 0.7", "density = 2.5"
    leads = {claim.says: claim.paper for claim in table.claims}
    assert [leads[f"OGASched over FAIRNESS at {p}, %"] for p in places] == [11.75, 18.62, 1.64]


@pytest.mark.full
def test_a_theorem_from_one_seed_end_to_end(tmp_path):
    chosen = [a for a in artefacts("ogasched") if a.name == "theorem-1"]
    done = reproduce(chosen, RunScale(quick=True, seeds=(5,)), tmp_path, jobs=1)
    assert {p.name for p in done.written} >= {"ogasched-theorem-1.png", "side-by-side.md"}
    exponents = {
        r.version: r.ours.mean for r in done.rows if r.says == "exponent of the regret in T"
    }
    assert set(exponents) == set(Paper("ogasched").lines("reserves"))
    assert not any("|" in row.says for row in done.rows)
    below = [r for r in done.rows if r.says.startswith("regret over (14)")]
    assert all(0 < r.ours.mean < 1 for r in below)
