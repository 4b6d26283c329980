"""What is said of a finished run is what happened in it, counted by other means."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from gangwise import Comparison, Replayed, StoreError, UnknownName, compare, create_scenario, replay
from gangwise.cli import app
from gangwise.core.errors import ScenarioError
from gangwise.core.simulation import Streams
from gangwise.experiments.explain import explain_job, explain_slot
from gangwise.gain_overhead import Fairness

SMALL = "ogasched-default-v1:servers=8,job_types=4"


def test_shares_add_up_to_the_stored_reward(tmp_path: Path) -> None:
    compare(SMALL, "drf,greedy,ogasched-reserve", 12, [4], out=tmp_path)
    runs = Comparison.open(tmp_path).runs
    arrivals = create_scenario(SMALL).instance(4).arrivals(12, 4)
    for policy in ("drf", "greedy", "ogasched-reserve"):
        told = explain_slot(tmp_path, 9, policy)
        assert told.about["reward"] == runs[policy, 4].rewards[9]
        assert sum(row["reward"] for row in told.rows) == pytest.approx(told.about["reward"])
        assert len(told.rows) == arrivals[9].sum()
        assert "The best decision for these arrivals earns" in told.sentences[-1]
    best = explain_slot(tmp_path, 9)
    assert best.about["policy"] == Comparison.open(tmp_path).table()[0].policy


def test_the_runner_up_is_who_gains_most_from_one_more(tmp_path: Path) -> None:
    """Two jobs on one server: the marginal rewards are those of a difference quotient."""
    scenario = "ogasched-default-v1:servers=1,job_types=2,density=2,contention=10"
    compare(scenario, "fairness", 30, [1], [], out=tmp_path)
    arrivals = create_scenario(scenario).instance(1).arrivals(30, 1)
    slot = int(np.flatnonzero(arrivals.sum(axis=1) == 2)[0])
    told = explain_slot(tmp_path, slot)
    problem = create_scenario(scenario).instance(1).problem
    policy = Fairness()
    policy.start(problem, Streams.of(1).policy)
    from gangwise.gain_overhead.environment import Observation

    y = policy.decide(Observation(slot, arrivals[slot])).copy()
    said = [s for s in told.sentences if "runner-up" in s]
    assert said
    for sentence in said:
        device = sentence.split(" are taken")[0].split()[-1]
        k = problem.cluster.devices.index(device)
        second = problem.job_types.index(sentence.split("the runner-up, ")[1].split(",")[0])
        e = int(np.flatnonzero(problem.channels.job_type == second)[0])
        more = y.copy()
        more[e, k] += 1e-6
        base, up = (problem_reward(problem, arrivals[slot], each) for each in (y, more))
        claimed = float(sentence.split("would gain ")[1].split(" ")[0])
        assert (up - base) / 1e-6 == pytest.approx(claimed, rel=0.01, abs=2e-3)


def problem_reward(problem: Any, arrivals: Any, y: Any) -> float:
    """OGASched (5), written down again; capacities are not checked."""
    gain = 0.0
    for l in np.flatnonzero(arrivals):
        mine = np.flatnonzero(problem.channels.job_type == l)
        for e in mine:
            r = problem.channels.server[e]
            kinds, alpha = problem.utilities.kind[r], problem.utilities.alpha[r]
            gain += float(
                problem.utilities.each("value", y[e][None], kinds[None], alpha[None]).sum()
            )
        gain -= float((problem.overhead * y[mine].sum(axis=0)).max())
    return gain


@pytest.mark.parametrize(
    ("scenario", "policy"),
    [
        ("esdp-default-v1", "esdp"),
        ("opm-default-v1:machines=5", "fair"),
        ("esdp-gang-small-v1", "gang-first-fit"),
        ("ogasched-gang-v1:servers=8,job_types=4", "gang-greedy"),
    ],
)
def test_every_family_is_explained(scenario: str, policy: str, tmp_path: Path) -> None:
    compare(scenario, policy, 8, [0], [], out=tmp_path)
    told = explain_slot(tmp_path, 7)
    json.dumps(told.as_dict(), allow_nan=False)
    metrics = told.about["metrics"]
    if "channels" in metrics:
        assert sum(row["channels"] for row in told.rows) == metrics["channels"]
    elif "busy" in metrics:
        assert sum(row["machines"] for row in told.rows) == metrics["busy"]
        assert sum(row["cost"] for row in told.rows) == pytest.approx(metrics["cost"])
    else:
        placed = [int(row["tasks"].split()[0]) for row in told.rows]
        assert sum(n > 0 for n in placed) == metrics["launched"]
        if "gain" in told.rows[0]:
            gained = sum(row["gain"] - row["overhead"] for row in told.rows)
            assert gained == pytest.approx(told.about["reward"])
        else:
            assert sum(placed) == metrics["tasks"]


class Talks(Fairness):
    """A user's own, with words of its own."""

    def explain(self, observation: Any) -> str:
        return f"slot {observation.slot} was as any other"


def test_a_users_policy_speaks_for_itself(tmp_path: Path) -> None:
    compare(SMALL, f"{__name__}:Talks", 6, [0], [], out=tmp_path)
    told = explain_slot(tmp_path, 5)
    assert told.sentences[-1] == "In its own words: slot 5 was as any other"
    assert sum(row["reward"] for row in told.rows) == pytest.approx(told.about["reward"])


def test_what_was_given_as_an_object_cannot_be_played_again(tmp_path: Path) -> None:
    compare(SMALL, {"mine": Fairness(share="all")}, 6, [0], [], out=tmp_path)
    with pytest.raises(StoreError, match="was given as an object in Python"):
        explain_slot(tmp_path, 5)


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


def test_wrong_input_is_named(tmp_path: Path) -> None:
    compare(SMALL, "drf", 6, [0], [], out=tmp_path / "slots")
    replay("twin:alibaba-gpu-v2023", ["fcfs"], 1, tmp_path / "jobs", first=20)
    with pytest.raises(ScenarioError, match="the slots are 0 to 5"):
        explain_slot(tmp_path / "slots", 6)
    with pytest.raises(UnknownName, match="did you mean drf"):
        explain_slot(tmp_path / "slots", 1, "drff")
    with pytest.raises(UnknownName, match="there is no job named"):
        explain_job(tmp_path / "jobs", "nobody")
    with pytest.raises(StoreError, match="give --job"):
        explain_slot(tmp_path / "jobs", 1)
    run = CliRunner()
    found = run.invoke(app, ["explain", str(tmp_path / "slots")])
    assert "say --slot T of a comparison" in str(found.exception)
    found = run.invoke(app, ["explain", str(tmp_path / "slots"), "--slot", "3"])
    assert "as it is stored" in found.output
