"""``gangwise nodes``: which jobs of a log are compared, what is said, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from gangwise.cli import app
from gangwise.core.errors import ScenarioError, TraceError
from gangwise.study.findings import find_slow_nodes
from gangwise.study.replay_scenario import ReplayScenario

COLUMNS = "JobID|User|State|Submit|Start|End|Timelimit|ReqTRES|NNodes|NodeList|JobName"


@pytest.fixture(scope="module")
def sacct(tmp_path_factory):
    """400 jobs on n0 to n7, of which n3 takes 40 % longer; and jobs that tell nothing."""
    rng = np.random.default_rng(4)
    rows = []

    def add(state, seconds, nodes, name, limit="10:00:00"):
        i = len(rows) + 1
        minute = f"2026-01-{1 + i // 600:02d}T{i // 60 % 24:02d}:{i % 60:02d}:00"
        end = np.datetime64(minute) + np.timedelta64(int(seconds), "s")
        tres = f"cpu={len(nodes.split(','))},node={len(nodes.split(','))}"
        times = f"{minute}|{minute}|{end}|{limit}"
        number = len(nodes.split(","))
        rows.append(f"{i}|u{i % 3}|{state}|{times}|{tres}|{number}|{nodes}|{name}")

    for i in range(400):
        on = rng.choice(8, 1 + i % 2, replace=False)
        seconds = 2000 * np.exp(rng.normal(0, 0.05)) * (1.4 if 3 in on else 1.0)
        add("COMPLETED", seconds, ",".join(f"n{n}" for n in on), f"train_{i}")
    add("FAILED", 50, "n1", "train_0")
    add("COMPLETED", 600, "n2", "train_1", "00:10:00")
    add("COMPLETED", 70, "n5", "once")
    file = tmp_path_factory.mktemp("log") / "jobs.txt"
    file.write_text("\n".join([COLUMNS, *rows]) + "\n")
    return file


def test_the_slow_node_is_named_and_what_is_left_out_is_said(sacct):
    found = find_slow_nodes(sacct)
    assert [name for name, slow in zip(found.names, found.effects.slow) if slow] == ["n3"]
    assert found.left_out["did not complete"] == 1
    assert found.left_out["reached their limits"] == 1
    assert found.left_out["ran once"] == 1
    assert found.effects.compared == 400  # train_0, train_1, … are one program
    low, _, high = found.effects.low[3], found.effects.mean[3], found.effects.high[3]
    assert low < np.log(1.4) < high


def test_command(sacct, tmp_path):
    done = CliRunner().invoke(app, ["nodes", str(sacct), "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert "1 of 8 nodes is slow" in " ".join(done.stdout.split())
    stored = json.loads((tmp_path / "out" / "nodes.json").read_text())
    assert stored["jobs"]["read"] == 403
    assert [node["node"] for node in stored["nodes"] if node["slow"]] == ["n3"]
    page = (tmp_path / "out" / "nodes.html").read_text()
    assert "Nodes of jobs.txt" in page
    (longer,) = (node["longer"] for node in stored["nodes"] if node["slow"])
    assert f"1 node is slow: jobs take {100 * longer:.0f} % longer on n3" in page
    told = json.loads(CliRunner().invoke(app, ["nodes", str(sacct), "--json"]).stdout)
    assert told == stored


def test_log_without_node_lists_names_formats_that_have_them(tmp_path):
    file = tmp_path / "log.swf"
    file.write_text("; MaxProcs: 8\n1 0 5 60 4 -1 -1 4 120 -1 1 3 1 2 -1 -1 -1 -1\n")
    with pytest.raises(TraceError, match="slurm"):
        find_slow_nodes(file)


def test_estimated_world_gives_back_the_log_on_its_own_nodes(sacct):
    scenario = ReplayScenario(source=str(sacct), world="estimated")
    log, played = scenario.log, scenario.draw(1)
    rates = played.conditions.rates[0]
    assert played.nodes.names == log.nodes.names
    assert rates[list(log.nodes.names).index("n3")] == pytest.approx(1 / 1.4, abs=0.05)
    took = np.array(
        [
            work / rates[log.host[a:b]].min()
            for work, a, b in zip(played.jobs.run, log.host_from[:-1], log.host_from[1:])
        ]
    )
    assert np.allclose(took, log.jobs.run)
    assert (scenario.draw(2).conditions.rates != played.conditions.rates).any()
    assert "nodes as estimated from run times" in scenario.assumed()[0]


def test_estimated_world_is_of_the_nodes_of_a_log(sacct):
    with pytest.raises(ScenarioError, match="drop nodes"):
        ReplayScenario(source=str(sacct), world="estimated", nodes=4)
