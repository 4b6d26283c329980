"""The leaderboard of two made logs: its numbers, who is tuned on what, and what is played again."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from gangwise.core.errors import ScenarioError
from gangwise.core.settings import read_toml
from gangwise.jobs.simulation import simulate_jobs
from gangwise.report.answers import board_text
from gangwise.study import replay
from gangwise.study.replay import RULES, TUNED, leaderboard, seeds_of
from gangwise.study.replay_scenario import ReplayScenario
from gangwise.study.sweep import Workers

TUNABLE = ["fcfs+easy", "sjf+easy", "f4+easy"]


def swf(path, seed):
    """Three weeks of jobs on 16 processors that have to wait."""
    rng = np.random.default_rng(seed)
    come, run = np.sort(rng.integers(0, 21 * 86400, 240)), rng.integers(60, 60_000, 240)
    rows = zip(come, run, rng.integers(1, 13, 240), strict=True)
    lines = [
        f"{i} {s} -1 {r} {n} -1 -1 {n} {2 * r} -1 1 {i % 7} -1 -1 -1 -1 -1 -1"
        for i, (s, r, n) in enumerate(rows, 1)
    ]
    path.write_text("; MaxProcs: 16\n; MaxNodes: 16\n" + "\n".join(lines) + "\n")


@pytest.mark.full
def test_numbers_are_those_of_the_runs_and_tuning_looks_at_other_logs(tmp_path, monkeypatch):
    monkeypatch.setattr(replay, "STEPS", 5)  # of the bounds
    rules = {
        "parts": 2,
        "base": "fcfs+easy",
        "schedulers": ["fcfs", "fcfs+easy"],
        "oracles": ["sjf+easy:ends=true,slack=inf"],
        "tuned": TUNABLE,
        "logs": [],
    }
    for seed, name in enumerate("ab"):
        swf(tmp_path / f"{name}.swf", seed)
        log = {"name": name, "about": "made", "settings": {"source": f"{name}.swf"}}
        rules["logs"].append(log)
    played = []

    def tell(what, done, of):
        played.append((what, done))

    def board():
        return leaderboard(tmp_path, tmp_path / "out", ["saf+easy"], Workers(1), tell, rules)

    found = board()
    for name in "ab":
        scenario = ReplayScenario(source=str(tmp_path / f"{name}.swf"), parts=2)
        for entry in ("fcfs", "saf+easy"):
            for part in range(2):
                jobs, nodes, hidden = scenario.draw(part)
                plain = simulate_jobs(jobs, nodes, entry, hidden, scenario.options)
                took = (plain.end - jobs.submit).mean()
                of = found.numbers[name][entry]
                assert of["completion.mean"][part] == pytest.approx(took)
                bound = took / (1 + of["gap"][part])
                assert scenario.bound(part, steps=0).mean_completion * 0.999 < bound < took
        other = found.numbers["b" if name == "a" else "a"]
        mean = {e: np.log1p(other[e]["gap"]).mean() for e in TUNABLE}
        assert found.chosen[name] == min(mean, key=mean.get)
        best = found.numbers[name][found.chosen[name]]["gap"]
        assert np.array_equal(found.numbers[name][TUNED]["gap"], best)
    ratio = [found.ratio(entry).mean() for entry in found.ranked]
    assert ratio[0] < ratio[-1]
    assert {"fcfs", "saf+easy", TUNED} < {*found.ranked}
    assert "f4+easy" not in found.ranked  # only a candidate
    assert np.allclose(found.ratio("fcfs+easy", "fcfs+easy"), 1)

    plan = json.loads((tmp_path / "out/a/replay.plan.json").read_text())
    assert plan["experiment"]["policies"][0] == "fcfs+easy"  # a page of a log compares with it

    begun = len(played)
    again = board()
    assert board_text(again) == board_text(found)
    assert min(done for what, done in played[begun:] if what == "replay") > 0  # nothing again
    _, table, line, *_ = board_text(found).split("\n\n")
    assert "2 logs, each cut into 2 parts of whole weeks" in line
    table = table.splitlines()
    assert len(table) == 2 + len(found.ranked)
    assert len({row.count("|") for row in table}) == 1
    places = [row.split("|")[2].strip() for row in table[2:]]
    assert sorted(filter(None, places), key=int) == [str(i) for i in range(1, len(places))]


def test_a_log_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ScenarioError, match=r"KTH-SP2\.swf\.gz; --traces|no .*KTH-SP2"):
        leaderboard(tmp_path, tmp_path / "out")


def test_the_page_has_every_entry_of_the_rules_on_every_log():
    rules, page = read_toml(RULES), Path("docs/leaderboard.md").read_text(encoding="utf-8")
    played = page.partition("<!-- leaderboard -->")[2]
    tables = [part for part in played.split("\n\n") if part.startswith("|")]
    assert len(tables) == 2
    for table in tables:
        heads, _, *rows = table.splitlines()
        assert all(f"on {log['name']}, " in heads for log in rules["logs"])
        named = [name for row in rows for name in re.findall(r"^\| `([^`]+)`", row)]
        assert sorted(named) == sorted([*rules["schedulers"], *rules["oracles"], TUNED])
    assert re.findall(r"^\*\*(\S+)\.\*\* ", played, re.M) == [log["name"] for log in rules["logs"]]


def test_by_default_as_many_parts_are_played_as_there_are(tmp_path):
    swf(tmp_path / "a.swf", 0)
    scenario = ReplayScenario(source=str(tmp_path / "a.swf"), parts=2)
    assert seeds_of(scenario, ()) == [0, 1]
    with pytest.raises(ScenarioError, match="seed 2 is no part; 2 parts are 0 to 1"):
        scenario.draw(2)
