"""What is said of a finished run is what happened in it, counted by other means."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from gangwise import Replayed, StoreError, UnknownName, replay
from gangwise.cli import app
from gangwise.core.errors import ScenarioError
from gangwise.study.explain import explain_job


@pytest.mark.full
def test_a_job_from_submission_to_end(tmp_path: Path) -> None:
    names = ["fcfs+easy+learned", "fcfs+conservative+best-fit", "gavel", "las"]
    replay("twin:alibaba-gpu-v2023", names, 1, tmp_path, first=60, world="unlike", nodes=4, load=3)
    outcomes = Replayed.open(tmp_path).outcomes
    for name in names:
        outcome = outcomes[name][0]
        waited = outcome.start - outcome.jobs.submit
        j = int(np.argmax(waited))
        job = str(outcome.jobs.id[j])
        told = explain_job(tmp_path, job, name)
        assert told.about["waiting"] == waited[j]
        starts = [row for row in told.rows if row["what"] == "starts"]
        assert starts[0]["at"] == outcome.start[j]
        if waited[j] > 0:
            assert told.rows[0]["what"] in ("waits", "holds off")
            assert told.rows[0]["at"] >= outcome.jobs.submit[j]
        assert outcome.pieces is not None
        nodes = {outcome.nodes.names[n] for n in outcome.pieces.node[outcome.pieces.job == j]}
        assert all(any(node in row["why"] for node in nodes) for row in starts)
        json.dumps(told.as_dict(), allow_nan=False)
        assert not math.isnan(told.about["end"])


@pytest.mark.full
def test_a_job_is_explained_where_limits_kill(tmp_path: Path) -> None:
    """A scheduler that learns rates keeps jobs off nodes on which they would be killed."""
    settings = {"first": 60, "world": "unlike", "nodes": 4, "load": 3, "enforced": True}
    replay("twin:alibaba-gpu-v2023", ["fcfs+easy+learned"], 1, tmp_path, **settings)
    outcome = Replayed.open(tmp_path).outcomes["fcfs+easy+learned"][0]
    for j in np.argsort(outcome.jobs.submit - outcome.start)[:2].tolist():
        told = explain_job(tmp_path, str(outcome.jobs.id[j]))
        assert told.about["start"] == outcome.start[j] > outcome.jobs.submit[j]


def test_wrong_input_is_named(tmp_path: Path) -> None:
    replay("twin:alibaba-gpu-v2023", ["fcfs"], 1, tmp_path, first=20)
    with pytest.raises(UnknownName, match="named"):
        explain_job(tmp_path, "nobody")
    with pytest.raises(UnknownName, match="scheduler"):
        explain_job(tmp_path, "1", "fcsf")
    with pytest.raises(ScenarioError, match="are 0"):
        explain_job(tmp_path, "1", "fcfs", 3)
    with pytest.raises(StoreError, match="results"):
        explain_job(tmp_path / "elsewhere", "1")
    run = CliRunner()
    found = run.invoke(app, ["explain", str(tmp_path)])
    assert "name a job of the replay in it" in str(found.exception)
    job = str(Replayed.open(tmp_path).outcomes["fcfs"][0].jobs.id[0])
    found = run.invoke(app, ["explain", str(tmp_path), "--job", job])
    assert found.exit_code == 0, found.output
    assert f"fcfs, seed 0, job {job}" in found.output
