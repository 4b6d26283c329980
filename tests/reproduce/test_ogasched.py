"""OGASched's artefacts: complete, and their numbers are those of plain simulations."""

from __future__ import annotations

import numpy as np
import pytest

from gangwise import create_policy, create_scenario, simulate
from gangwise.experiments.specification import Experiment
from gangwise.experiments.sweep import sweep
from gangwise.gain_overhead.offline import best_fixed, regret_bound
from gangwise.reproduce import artefacts
from gangwise.reproduce import ogasched as theorem
from gangwise.reproduce import ogasched_settings as study
from gangwise.reproduce.artefact import Scale
from gangwise.reproduce.ogasched import PAPERS
from gangwise.reproduce.run import reproduce

SEEDS, SLOTS, SERVERS = (3, 4), 40, (8, 16)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    experiment = Experiment(
        name="small",
        scenario=study.SCENARIO,
        settings={"job_types": 4},
        grid={"servers": list(SERVERS)},
        policies=[
            "ogasched-react",
            "fairness",
            *(
                study.gradient(who, who, 5.0, 0.9)
                for who in (study.PRINTED, study.EXACT, study.ONE_STEP)
            ),
        ],
        seeds=list(SEEDS),
        slots=SLOTS,
        comparators=[study.OPTIMUM, study.BEST_FIXED],
        optimum_slots=SLOTS,
    )
    return sweep(experiment, tmp_path_factory.mktemp("runs"), jobs=1)


def instance(servers, seed):
    return create_scenario(study.SCENARIO, job_types=4, servers=servers).instance(seed)


def earned(policy, servers, seed):
    return simulate(instance(servers, seed), create_policy(policy), SLOTS, seed).rewards.sum()


def test_every_figure_the_table_and_the_theorem():
    names = [a.name for a in artefacts("ogasched") if not a.trace]
    assert names == [f"figure-{n}" for n in range(2, 8)] + ["table-2", "theorem-1"]


def test_full_scale_has_the_papers_slots_and_ten_seeds_but_for_the_large_cluster():
    drawn = [a for a in artefacts("ogasched") if not a.trace]
    found = {e.name: e for a in drawn for e in a.experiments(Scale())}
    assert found["ogasched-verification"].slots == 8000
    assert found["ogasched-horizon"].slots == 10_000
    assert found["ogasched-rho"].slots == found["ogasched-contention"].slots == 2000
    few = {name for name, e in found.items() if len(e.chosen_seeds) < 10}
    assert few == {"ogasched-large"}
    large = found["ogasched-large"].settings
    assert (large["job_types"], large["servers"], large["contention"]) == (100, 1024, 5)


def test_versions_have_the_papers_rate_and_differ_as_said():
    arguments = {
        who: study.gradient(who, who, *study.PAPER).labelled()[who]
        for who in (study.PRINTED, study.EXACT, study.ONE_STEP)
    }
    assert all((p.eta, p.decay) == (25.0, 0.9999) for p in arguments.values())
    timings = [p.timing for p in arguments.values()]
    assert timings == ["reserve", "reserve", "react"]
    assert arguments[study.ONE_STEP].steps == 1


def test_the_optimum_on_all_slots_is_the_sum_of_the_best_of_each(results):
    for servers in SERVERS:
        plain = [
            instance(servers, seed).comparator(study.OPTIMUM, SLOTS, seed).rewards.sum()
            for seed in SEEDS
        ]
        assert study.optimum(results, servers=servers) == pytest.approx(plain, rel=1e-9)


def test_regret_and_bound_are_those_of_the_offline_module(results):
    policy = "ogasched-reserve:rule=decay,eta=5,decay=0.9"
    for servers in SERVERS:
        made = [instance(servers, seed) for seed in SEEDS]
        best = [
            best_fixed(i.problem, i.arrivals(SLOTS, seed)).rewards.sum()
            for i, seed in zip(made, SEEDS)
        ]
        plain = np.array(best) - [earned(policy, servers, seed) for seed in SEEDS]
        found = theorem.regret(results, study.EXACT, servers=servers)
        assert found == pytest.approx(plain, rel=1e-9)
        bounds = [regret_bound(i.problem, SLOTS) for i in made]
        assert theorem.regret(results, theorem.BOUND, servers=servers) == pytest.approx(bounds)


def test_a_lead_that_moves_is_paired(results):
    ratio = {
        n: np.array([earned("ogasched-react", n, s) / earned("fairness", n, s) for s in SEEDS])
        for n in SERVERS
    }
    found = study.lead_moves(study.SERVERS, *SERVERS)({study.SERVERS: results})
    assert found[study.OURS].mean == pytest.approx(100 * (ratio[16] - ratio[8]).mean())


def test_the_papers_default_setting_has_three_different_rewards_in_its_table():
    at_default = [PAPERS["horizon"][5], PAPERS["rho"][0.7], PAPERS["density"][2.5]]
    leads = [100 * (ours / fair - 1) for ours, fair, *_ in at_default]
    assert leads == pytest.approx([11.75, 18.62, 1.64], abs=0.01)


def test_a_theorem_from_one_seed_end_to_end(tmp_path):
    chosen = [a for a in artefacts("ogasched") if a.name == "theorem-1"]
    done = reproduce(chosen, Scale(quick=True, seeds=(5,)), tmp_path, jobs=1)
    assert {p.name for p in done.written} >= {"ogasched-theorem-1.png", "side-by-side.md"}
    exponents = {
        r.version: r.ours.mean for r in done.rows if r.says == "exponent of the regret in T"
    }
    assert set(exponents) == set(theorem.RESERVES)
    assert not any("|" in row.says for row in done.rows)
    below = [r for r in done.rows if r.says.startswith("regret over (14)")]
    assert all(0 < r.ours.mean < 1 for r in below)
