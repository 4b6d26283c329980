"""What --json prints keeps to the published schema, and holds what the tables show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from typer.testing import CliRunner

from gangwise.cli import app

PUBLISHED = Path(__file__).parents[2] / "docs" / "results.schema.json"
SMALL = "ogasched-default-v1:servers=8,job_types=3"

EXPERIMENT = f"""
name = "small"
scenario = "{SMALL}"
slots = 10
seeds = 2
policies = ["drf", "fairness"]
comparators = ["per_slot_optimum"]
[grid]
contention = [1, 10]
"""


def printed(*words: Any) -> dict[str, Any]:
    found = CliRunner().invoke(app, [str(word) for word in words])
    assert found.exit_code == 0, found.output
    told: dict[str, Any] = json.loads(found.stdout)
    return told


def checked(told: dict[str, Any]) -> dict[str, Any]:
    published = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    names = {
        each["properties"]["format"]["const"]: name
        for name, each in published["$defs"].items()
        if "format" in each["properties"]
    }
    one = {**published, "anyOf": [{"$ref": f"#/$defs/{names[told['format']]}"}]}
    jsonschema.validate(told, one, cls=jsonschema.Draft202012Validator)
    return told


def test_the_published_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(json.loads(PUBLISHED.read_text(encoding="utf-8")))


@pytest.mark.full
def test_compare_has_paired_differences_of_all_pairs(tmp_path: Path) -> None:
    command = ["compare", SMALL, "--policies", "drf,fairness,random", "--slots", 10]
    told = checked(printed(*command, "--seeds", 3, "--out", tmp_path, "--json"))
    assert json.loads((tmp_path / "summary.json").read_text()) == told
    policies = {each["name"]: each for each in told["policies"]}
    from gangwise import Comparison

    runs = Comparison.open(tmp_path).runs
    for name, each in policies.items():
        assert set(each["over"]) == policies.keys() - {name}
        assert set(each["share_of"]) == set(each["regret"]) == {"best_fixed", "per_slot_optimum"}
        assert each["reward"]["low"] < each["reward"]["mean"] < each["reward"]["high"]
        for other, over in each["over"].items():
            ours, theirs = (
                np.array([runs[n, s].mean_reward for s in range(3)]) for n in (name, other)
            )
            change = 100 * (ours / theirs - 1) if over["percent"] else ours - theirs
            assert over["mean"] == pytest.approx(change.mean())
            half = 4.302652729 * change.std(ddof=1) / np.sqrt(3)
            assert over["high"] - over["mean"] == pytest.approx(half, rel=1e-6, abs=1e-12)


def test_one_seed_and_no_comparator_keep_to_the_schema() -> None:
    command = ["compare", SMALL, "--policies", "drf", "--slots", 5, "--seeds", 1]
    told = checked(printed(*command, "--comparators", "none", "--json"))
    assert told["policies"][0]["reward"]["low"] is None
    assert (told["comparators"], told["policies"][0]["share_of_optimum"]) == ([], None)


def test_run_versus(tmp_path: Path) -> None:
    command = ["run", SMALL, "drf", "--slots", 45, "--versus", "per_slot_optimum"]
    told = checked(printed(*command, "--json"))
    versus = told["versus"]["per_slot_optimum"]
    assert versus["difference"]["mean"] == pytest.approx(versus["reward"] - versus["comparator"])
    assert versus["regret"] == pytest.approx(-45 * versus["difference"]["mean"])
    assert versus["difference"]["high"] < 0
    table = CliRunner().invoke(app, [str(word) for word in command]).stdout
    assert "difference, paired" in table
    assert "20 batches of 2 slots" in table
    checked(printed("run", "opm-default-v1:machines=5", "fair", "--slots", 5, "--json"))


@pytest.mark.full
def test_sweep_and_tune(tmp_path: Path) -> None:
    file = tmp_path / "small.toml"
    file.write_text(EXPERIMENT)
    told = checked(printed("sweep", file, "--out", tmp_path / "swept", "--jobs", 1, "--json"))
    assert {row["contention"] for row in told["against"]} == {1, 10}
    assert all(0 < row["share"] <= 1.0001 for row in told["against"])
    pytest.importorskip("optuna", reason="Optuna is not installed")
    command = [
        "tune",
        SMALL,
        "greedy",
        "--range",
        "rounds=1:9:int",
        "--trials",
        2,
        "--seeds",
        "7,8",
    ]
    command += ["--validation", "1,2", "--slots", 5, "--jobs", 1, "--out", tmp_path / "tuned"]
    told = checked(printed(*command, "--json"))
    assert json.loads((tmp_path / "tuned" / "tuning.json").read_text()) == told
    assert told["fidelity"] == []


def test_tuning_on_a_log_says_how_much_of_it_is_played(tmp_path: Path) -> None:
    pytest.importorskip("optuna", reason="Optuna is not installed")
    command = ["tune", "replay", "fcfs+easy+ucb", "--range", "depth=1:9:int", "--trials", 2]
    command += ["--seeds", "7,8", "--validation", "1,2", "--jobs", 1, "--out", tmp_path]
    command += ["--set", "first=20", "--set", "world=like", "--set", "nodes=4"]
    told = checked(printed(*command, "--json"))
    assert "(20 were asked for of" in told["fidelity"][0]["line"]
    assert told["minimise"]
    default = told["default"]["value"]
    for trial in told["trials"]:
        if trial["over"] and trial["value"] < default:
            assert trial["over"]["mean"] > 0


def test_replay_has_an_interval_and_a_difference_for_every_metric() -> None:
    command = ["replay", "twin:alibaba-gpu-v2023", "--world", "like", "--seeds", 2, "--no-bound"]
    command += ["--set", "first=30", "--set", "nodes=4", "--policies"]
    command += ["fcfs+easy:depth=9,slack=inf sjf+easy"]  # an argument more is no other scheduler
    told = checked(printed(*command, "--jobs", 1, "--json"))
    first, second = told["schedulers"]
    assert first["over"] is None
    assert set(second["over"]["metrics"]) == set(second["metrics"]) == set(second["intervals"])


def test_replay_of_a_log_tells_what_the_model_explains_under_the_rules(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    rows = [
        f"{i} {600 * i} {w} {r} {p} -1 -1 {p} {2 * r} -1 1 {i % 5} 1 1 -1 {1 + i % 2} -1 -1"
        for i, (w, r, p) in enumerate(zip(*rng.integers(1, 5000, (2, 80)), rng.integers(1, 9, 80)))
    ]
    path = tmp_path / "log.swf"
    path.write_text("; MaxProcs: 8\n" + "\n".join(rows) + "\n")
    command = ["replay", path, "--policies", "fcfs+easy", "--no-bound", "--json", "--jobs", 1]
    told = checked(printed(*command, "--as", "sjf+easy", "--out", tmp_path / "out"))["answer"]
    assert (told["base"], told["retold"]["under"]) == ("sjf+easy", "sjf+easy")
    assert list(told["retold"]["by"]) == ["partition", "size", "user", "day"]
    assert [g["name"] for g in told["retold"]["by"]["partition"]["groups"]] == ["1", "2"]
    assert told["beyond_model_error"].keys() == {"fcfs+easy"}
    error = 100 * (told["retold"]["simulated"] / told["retold"]["recorded"] - 1)
    assert told["model_error_percent"]["waiting.mean"]["mean"] == pytest.approx(error)
    page = (tmp_path / "out" / "report.html").read_text()
    assert "What the model retells under sjf+easy" in page
    assert "Mean waiting by partition" in page
    again = checked(printed(*command))["answer"]
    assert again["base"] == "fcfs+easy"
