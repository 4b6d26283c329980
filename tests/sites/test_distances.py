"""What distance costs, from run times alone: planted costs, false names, files of a topology."""

from __future__ import annotations

import numpy as np
import pytest

from gangwise.core.errors import ScenarioError
from gangwise.sites.node_effects import DistanceEffects, Runs, distance_effects, read_topology
from gangwise.study.findings import find_slow_nodes
from gangwise.study.replay_scenario import ReplayScenario


def planted(seed: int, costs: tuple[float, float]) -> DistanceEffects:
    """1,200 runs of 32 programs of 4 kinds; two of them pay for each level that they cross."""
    rng = np.random.default_rng([51, seed])
    J, kinds = 1_200, 4
    program, level = rng.integers(0, 32, J), rng.choice(3, size=J, p=[0.5, 0.3, 0.2])
    pays = program % kinds < 2
    noise = 0.1 * rng.standard_t(3, J)
    y = rng.normal(6, 1, 32)[program] + noise
    y += pays * ((level >= 1) * costs[0] + (level >= 2) * costs[1])
    at = np.arange(4)
    runs = Runs(y, np.arange(J) * 60.0, program, level, at, at[:3], 3)
    return distance_effects(runs, at[:3], program % kinds, 2)


@pytest.mark.parametrize("costs", [(0.1, 0.2), (0.4, 0.7)])
def test_planted_costs_are_named_within_their_intervals(costs):
    inside, named = [], []
    for seed in range(15):
        found = planted(seed, costs)
        truth = np.array([costs, costs, (0.0, 0.0), (0.0, 0.0)])
        inside.append((found.low[1:] <= truth) & (truth <= found.high[1:]))
        named.append(found.slow[1:3])
    assert np.mean(named) > 0.97
    assert 0.88 < np.mean(inside) < 0.99


def test_where_distance_costs_nothing_names_are_few():
    """5 % of logs in expectation; 8 or more of 60 would come once in a hundred times."""
    assert sum(planted(seed, (0.0, 0.0)).slow[1:].any() for seed in range(60)) < 8


def test_nothing_is_said_of_levels_that_runs_do_not_tell_apart():
    at, J = np.arange(3), 40
    runs = Runs(np.zeros(J), np.arange(J) * 1.0, np.zeros(J, int), np.zeros(J, int), at, at[:2], 2)
    found = distance_effects(runs, at[:2], np.zeros(J, int), 1)
    assert np.isnan(found.mean).all()
    assert not found.slow.any()


def test_files_of_a_topology_are_read(tmp_path):
    table = tmp_path / "racks.csv"
    table.write_text("node,rack,block\nn1,r1,b\nn2, r2,b\n\n")
    assert read_topology(table)["n2"] == {"rack": "r2", "block": "b"}
    conf = tmp_path / "topology.conf"
    conf.write_text(
        "# ours\nSwitchName=top Switches=s[1-2]\n"
        "SwitchName=s1 Nodes=n[1-2]\nSwitchName=s2 Nodes=n3\n"
    )
    assert read_topology(conf) == {
        "n1": {"switch": "0:top/s1"},
        "n2": {"switch": "0:top/s1"},
        "n3": {"switch": "1:top/s2"},
    }


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "no header"),
        ("id,user\n1,2\n", "line 1 is no header"),
        ("node,rack\nn1\n", "line 2 has 1 values"),
        ("SwitchName=s Nodes=n[1-\n", "line 1: brackets"),
    ],
)
def test_other_files_are_refused_by_their_line(tmp_path, text, fault):
    file = tmp_path / "file"
    file.write_text(text)
    with pytest.raises(ScenarioError, match=fault):
        read_topology(file)
    with pytest.raises(ScenarioError, match="cannot be read"):
        read_topology(tmp_path / "none")


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """1,500 runs on pairs of 16 nodes in 4 racks; of one type those apart take e^.3 as long."""
    tmp_path = tmp_path_factory.mktemp("log")
    rng = np.random.default_rng(52)
    names = [f"n{i}" for i in range(16)]
    rows, clock = [], 0.0
    for j in range(1_500):
        kind, clock = ("train", "render")[j % 5 < 3], clock + float(rng.exponential(60))
        if rng.random() < 0.5:
            first = int(rng.integers(8)) * 2
            on = names[first : first + 2]
        else:
            on = sorted(rng.choice(names, 2, replace=False).tolist())
        apart = len({4 if n == "n15" else int(n[1:]) // 4 for n in on}) > 1
        run = 300 * np.exp(0.3 * apart * (kind == "train") + rng.normal(0, 0.1))
        rows.append(f"{j},u{j % 3},{kind},{clock},{clock + 5},{clock + 5 + run},4,2,{'|'.join(on)}")
    (tmp_path / "log.csv").write_text(
        "id,user,app,submit,start,end,cpus,ranks,hosts\n" + "\n".join(rows)
    )
    (tmp_path / "map.toml").write_text(
        'trace = "csv"\n[jobs]\nfile = "log.csv"\n[jobs.columns]\nname = "id"\n'
        'created = "submit"\nstarted = "start"\ndeleted = "end"\ncpu = "cpus"\n'
        'tasks = "ranks"\nuser = "user"\n'
        'type = "app"\nhosts = "hosts"\n'
    )
    racks = "\n".join(f"{n},r{i // 4}" for i, n in enumerate(names[:-1]))
    (tmp_path / "racks.csv").write_text(f"node,rack\n{racks}\n")
    return tmp_path


def test_a_log_and_its_racks_say_which_jobs_pay(log):
    found = find_slow_nodes(log / "map.toml", topology=log / "racks.csv").distance
    assert found is not None
    assert found.kinds == ("render", "train")
    # Two nodes each: all left one node, so that only racks are told apart.
    assert np.isnan(found.effects.mean[:, 0]).all()
    assert found.effects.slow[:, 1].tolist() == [True, False, True]
    assert found.effects.low[2, 1] < 0.3 < found.effects.high[2, 1]
    assert "1 of 2 job types" in found.answer
    assert "1 node not in it" in found.answer
    assert {row["named"] for row in found.as_dict()["effects"]} == {True, False}


def test_the_estimated_world_plays_what_distance_costs_and_gives_back_the_log(log):
    world = f"estimated:{log / 'racks.csv'}"
    scenario = ReplayScenario(source=str(log / "map.toml"), world=world, job_type="type")
    recorded, costs = scenario.log, []
    for seed in range(8):
        jobs, nodes, hidden = scenario.draw(seed)
        assert [nodes.labels[nodes.names.index(n)].get("rack") for n in ("n5", "n15")] == [
            "r1",
            None,
        ]
        costs.append(np.log1p(hidden.distance.overhead[:, 2]))
        for j in range(0, len(jobs), 37):
            on = recorded.host[recorded.host_from[j] : recorded.host_from[j + 1]].tolist()
            in_one = {nodes.labels[n].get("rack", nodes.names[n]) for n in on}
            level = 0 if len(on) == 1 else 1 if len(in_one) == 1 else 2
            slower = 1.0 + hidden.distance.overhead[jobs.type[j], level]
            took = jobs.run[j] * slower / hidden.rates[jobs.type[j], on].min()
            assert took == pytest.approx(recorded.jobs.run[j])
    by_type = dict(zip(scenario.jobs.types, np.mean(costs, axis=0).tolist()))
    assert by_type["train"] == pytest.approx(0.3, abs=0.04)
    assert by_type["render"] == pytest.approx(0.0, abs=0.04)
    assert "out of one rack" in scenario.assumed()[0]
    described = scenario.describe()
    assert described["world"] == "estimated:racks.csv"
    assert list(described["world_files"]) == ["racks.csv"]


def test_an_estimated_world_without_its_topology_is_refused(log):
    scenario = ReplayScenario(source=str(log / "map.toml"), world="estimated:nowhere.csv")
    with pytest.raises(ScenarioError, match=r"nowhere.csv cannot be read"):
        scenario.draw(0)
