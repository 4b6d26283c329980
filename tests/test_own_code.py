"""Policies and schedulers of a user's own: by file, by module, as ``gangwise new`` writes them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

import gangwise
from gangwise.cli import app
from gangwise.core.errors import ScenarioError
from gangwise.core.registry import create

STARTERS = [
    ("policy", "gain_overhead"),
    ("policy", "fluctuating_speeds"),
    ("policy", "approximation_jobs"),
    ("scheduler", ""),
]


@pytest.mark.full
def test_new_code_passes_its_own_test(tmp_path: Path) -> None:
    for i, (kind, family) in enumerate(STARTERS):
        given = ["new", kind, f"mine-{i}", "--folder", str(tmp_path)]
        found = CliRunner().invoke(app, given + (["--family", family] if family else []))
        assert found.exit_code == 0, found.output
    assert len(list(tmp_path.glob("*.py"))) == 2 * len(STARTERS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    played = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert played.returncode == 0, played.stdout
    assert "8 passed" in played.stdout
    again = CliRunner().invoke(app, ["new", "policy", "mine-0", "--folder", str(tmp_path)])
    assert isinstance(again.exception, ScenarioError)
    assert "is there already" in str(again.exception)


POLICY = """
from dataclasses import dataclass
import numpy as np
from gangwise import PolicyBase

@dataclass
class Nothing(PolicyBase):
    share: float = 0.0
    family = "gain_overhead"
    def start(self, problem, rng):
        self.shape = problem.upper.shape
    def decide(self, observation):
        return np.zeros(self.shape)
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", list(sys.path))
    file = tmp_path / "policy_of_a_test.py"
    file.write_text(POLICY)
    yield file
    sys.modules.pop("policy_of_a_test", None)


def test_a_class_in_a_file_is_called_by_where_it_is(own: Path) -> None:
    assert create("policy", f"{own}:Nothing:share=0.5").share == 0.5
    found = gangwise.compare(
        "ogasched-default-v1:servers=16", f"{own}:Nothing:share=0.5,drf", 5, 2, []
    )
    assert found.policies == ("Nothing:share=0.5", "drf")
    frame = found.to_polars()
    assert frame["policy"].to_list() == ["drf", "Nothing:share=0.5"]
    assert frame.filter(pl.col("policy") != "drf")["reward"].item() == 0
    assert len(repr(found).splitlines()) == 4
    assert found._repr_html_().count("<tr>") == 3
    assert type(create("policy", "policy_of_a_test:Nothing")).__name__ == "Nothing"


def test_wrong_places_are_named(own: Path, tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="Nothing"):
        create("policy", f"{own}:Noting")
    with pytest.raises(ScenarioError, match="such"):
        create("policy", f"{tmp_path / 'none.py'}:Nothing")
    (tmp_path / "broken_policy_file.py").write_text("import nothing_of_this_name")
    with pytest.raises(ScenarioError, match="ModuleNotFoundError"):
        create("scheduler", f"{tmp_path / 'broken_policy_file.py'}:Mine")
    (tmp_path / "json.py").write_text("")
    with pytest.raises(ScenarioError, match="already"):
        create("policy", f"{tmp_path / 'json.py'}:Mine")
    (tmp_path / "my-policy.py").write_text("")
    with pytest.raises(ScenarioError, match="import"):
        create("policy", f"{tmp_path / 'my-policy.py'}:Mine")


def test_python_takes_what_the_command_line_takes(tmp_path: Path) -> None:
    every = gangwise.compare("ogasched-default-v1:servers=16", slots=5, seeds=1, comparators=[])
    assert set(every.policies) > {"drf", "fairness", "greedy", "ogasched-react"}
    played = gangwise.replay("twin:alibaba-gpu-v2023", "fcfs+easy+best-fit,fcfs", seeds=1, first=50)
    frame = played.to_polars()
    assert set(frame["scheduler"]) == {"fcfs+easy+best-fit", "fcfs"}
    summary = played.outcomes["fcfs"][0].summary()
    row = frame.filter(pl.col("scheduler") == "fcfs").row(0, named=True)
    assert row["completion"] == pytest.approx(summary["completion.mean"] / 3600)
    assert "50 were asked for" in repr(played)


def test_pandas_needs_nothing_else() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    found = gangwise.compare("ogasched-default-v1:servers=16", "drf", 5, 1, [])
    assert isinstance(found.to_pandas(), pandas.DataFrame)
    assert found.to_pandas()["policy"].tolist() == ["drf"]


def test_results_runs_and_jobs_are_tables() -> None:
    """For polars, for pandas, and for what reads Arrow's C stream, as polars does here."""
    found = gangwise.compare("ogasched-default-v1:servers=16", "drf", 5, 2, [])
    run = found.runs["drf", 1]
    assert run.to_polars()["reward"].to_list() == run.rewards.tolist()
    assert repr(run) == f"Run(drf, seed 1, 5 slots, mean reward {run.mean_reward:.6g})"
    played = gangwise.replay("twin:alibaba-gpu-v2023", "fcfs+easy,sjf", seeds=1, first=50)
    outcome = played.outcomes["sjf"][0]
    jobs = played.jobs().filter(pl.col("scheduler") == "sjf")
    assert jobs["id"].to_list() == [str(name) for name in outcome.jobs.id]
    assert (jobs["submit"] + jobs["waiting"]).to_list() == pytest.approx(outcome.start.tolist())
    assert len(repr(outcome)) < 100
    assert len(repr(outcome.jobs)) < 100
    for table in (found, found.results, run, played, outcome, outcome.jobs):
        assert pl.DataFrame(table).equals(table.to_polars(), null_equal=True)


def test_versions_as_json() -> None:
    found = CliRunner().invoke(app, ["--version", "--json"])
    assert gangwise.__version__ in found.output
    assert '"numpy"' in found.output
