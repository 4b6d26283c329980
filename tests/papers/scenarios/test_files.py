"""Scenario files: a cluster of one's own, and what happens when it is wrong."""

from __future__ import annotations

import numpy as np
import pytest

from gangwise import ScenarioError, compare
from gangwise.papers.scenarios.drawn import read_scenario

GOOD = """
name = "two-racks"
slots = 30

[[servers]]
name = "gpu-node"
count = 2
devices = { cpu = 64, gpu = 8 }

[[servers]]
name = "cpu-node"
devices = { cpu = 96 }

[[job_types]]
name = "train"
requests = { cpu = 16, gpu = 4 }
arrival = 0.7

[[job_types]]
name = "etl"
requests = { cpu = 32 }
arrival = 1.0
most = 2
servers = ["cpu-node", "gpu-node-1"]

[overhead]
gpu = 0.4

[utility]
gpu = { kind = "poly", alpha = 1.2 }
"""


def write(tmp_path, text):
    path = tmp_path / "scenario.toml"
    path.write_text(text)
    return path


def test_a_cluster_of_ones_own(tmp_path):
    scenario = read_scenario(write(tmp_path, GOOD))
    problem = scenario.instance(0).base
    assert problem.cluster.servers == ("gpu-node-0", "gpu-node-1", "cpu-node")
    np.testing.assert_array_equal(problem.cluster.capacity, [[64, 8], [64, 8], [96, 0]])
    channels = list(zip(problem.channels.job_type.tolist(), problem.channels.server.tolist()))
    assert channels == [(0, 0), (0, 1), (1, 1), (1, 2)]
    np.testing.assert_array_equal(problem.overhead, [0.0, 0.4])
    assert problem.utilities.kind[0].tolist() == [1, 3]
    assert problem.utilities.alpha[0].tolist() == [1.0, 1.2]
    comparison = compare(scenario, ["ogasched-react", "drf"], seeds=[0, 1])
    assert comparison.slots == 30
    assert (comparison.runs["drf", 0].metrics["jobs"] >= 2).all()  # etl: binomial(2, 1)


def test_a_built_in_scenario_with_other_settings(tmp_path):
    path = write(tmp_path, 'base = "ogasched-default-v1"\n[settings]\nservers = 12\nrho = 0.2\n')
    scenario = read_scenario(path, {"rho": 0.4})
    assert scenario.describe()["servers"] == 12
    assert scenario.describe()["rho"] == 0.4


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("gpu = 8 }", "gpu = -8 }", "server 'gpu-node-0': capacity of device type 'gpu' is -8"),
        ("gpu = 8 }", "gpu = nan }", "capacity of device type 'gpu' is nan"),
        ("gpu = 4 }", "gpu = 9 }", "'train' fits on no server: it requests 9 gpu"),
        ("gpu = 4 }", "tpu = 4 }", "'tpu'"),
        ('"cpu-node", "gpu-node-1"', '"cpu-nod"', "did you mean cpu-node"),
        ("requests = { cpu = 32 }", "requests = { gpu = 1 }", None),
        ('["cpu-node", "gpu-node-1"]', "[]", "'etl' has no channel"),
        ("arrival = 1.0", "arrival = 1.5", "job_types.1.arrival"),
        ("arrival = 1.0", "arival = 1.0", "job_types.1.ar"),
        ("[overhead]\ngpu", "[overhead]\ngpus", "did you mean gpu"),
        ('kind = "poly"', 'kind = "cubic"', "utility.gpu.kind"),
        ('name = "etl"', 'name = "train"', "is used twice"),
        ("[overhead]", "[overhead", "scenario.toml"),
    ],
)
def test_mistakes_are_named(tmp_path, old, new, message):
    assert old in GOOD
    path = write(tmp_path, GOOD.replace(old, new, 1))
    if message is None:
        assert read_scenario(path).instance(0).problem.L == 3
        return
    with pytest.raises(ScenarioError, match=message) as error:
        read_scenario(path)
    assert "scenario.toml" in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("base = 3", "base is 3; it must be a text"),
        ('base = "ogasched-default-v1"\nsettings = 5', "settings is 5; it must be a table"),
        ("trace = 3", "trace is 3; it must be a text"),
        ('trace = "x"\nfamily = 3', "family is 3; it must be a text"),
        ('trace = "x"\nsettings = []', "settings is .*; it must be a table"),
    ],
)
def test_entries_of_another_kind_are_named(tmp_path, text, message):
    with pytest.raises(ScenarioError, match=message):
        read_scenario(write(tmp_path, text))


def test_settings_need_a_base(tmp_path):
    with pytest.raises(ScenarioError, match="base"):
        read_scenario(write(tmp_path, GOOD), {"servers": 3})
    with pytest.raises(ScenarioError, match="'bass'"):
        read_scenario(write(tmp_path, 'base = "ogasched-default-v1"\nbass = 1\n'))
