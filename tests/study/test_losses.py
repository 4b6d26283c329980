"""Schedulers that differ in what they kill: times on the jobs done under both, by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from gangwise.core.errors import StoreError
from gangwise.jobs import Conditions, Jobs, Node, Nodes, Options, simulate_jobs
from gangwise.jobs.metrics import Outcome
from gangwise.report.jobs import JobResults
from gangwise.report.pages import write_report
from gangwise.study.answer import Compared, best_of, kills_more, paired_times
from gangwise.study.replay import Replayed, replay
from gangwise.study.replay_scenario import ReplayScenario, stored_outcome
from gangwise.study.runs import Rows
from gangwise.study.sweep import Experiment, sweep

KILLS, SAVES = "fcfs+easy+first-fit", "fcfs+easy+label"


def outcome(name: str, long: float = 7200.0) -> Outcome:
    """Two nodes, slow and fast: first-fit takes the slow one, label the one that is said fast.

    One job of an hour and a limit of 90 minutes, killed on the slow node, which runs at half the
    rate; then a short one, which is done on whichever node is left; then a long one that has no
    need of its limit.
    """
    nodes = Nodes.of([Node("slow", {"gpu": 1}, rate=0.5), Node("fast", {"gpu": 1})])
    jobs = Jobs.of(
        submit=[0, 0, 8000], run=[3600, 1200, long], limit=[5400, 7200, 3 * long], demand={"gpu": 1}
    )
    rates = np.array([[0.5, 1.0]])
    schedule = simulate_jobs(jobs, nodes, name, Conditions(rates=rates), Options(enforced=True))
    return Outcome.of(schedule, name)


def test_times_are_compared_on_the_jobs_done_under_both() -> None:
    kills, saves = [outcome(KILLS), outcome(KILLS, 3600)], [outcome(SAVES), outcome(SAVES, 3600)]
    assert [o.finished.tolist() for o in kills] == [[False, True, True]] * 2
    assert [o.finished.tolist() for o in saves] == [[True] * 3] * 2
    pairs, jobs = paired_times(kills, saves)
    ours, theirs = pairs["completion.mean"]
    # Done under both: the second job, 1,200 s on the fast node and 2,400 s on the slow one; the
    # third, slow under first-fit and fast under label.
    assert jobs == 2
    assert ours.tolist() == [(1200 + 14400) / 2, (1200 + 7200) / 2]
    assert theirs.tolist() == [(2400 + 7200) / 2, (2400 + 3600) / 2]
    assert paired_times(saves, saves)[1] == 3


def test_no_scheduler_is_best_for_killing_more_and_a_sentence_says_who_kills() -> None:
    outcomes = {KILLS: [outcome(KILLS, 1200)], SAVES: [outcome(SAVES, 1200)]}
    ours, theirs = paired_times(outcomes[KILLS], outcomes[SAVES])[0]["completion.mean"]
    assert (ours == theirs).all()  # and all that each did itself would speak for the killer:
    own = {name: each[0].summary()["completion.mean"] for name, each in outcomes.items()}
    assert own[KILLS] < own[SAVES]
    assert kills_more(outcomes[KILLS], outcomes[SAVES])
    assert best_of(outcomes, list(outcomes), SAVES) == SAVES
    assert best_of(outcomes, list(outcomes), KILLS) == KILLS  # a tie: nobody kills more than it
    answer = Compared("made", outcomes, SAVES).text
    assert (
        f"Jobs killed at their limits: 0 under the base (0.0 GPU-hours thrown away) and 1 under "
        f"{KILLS} (1.5). Times are compared on the jobs that did their work under both, 2 of them."
    ) in answer
    assert "killed" not in Compared("made", {SAVES: outcomes[SAVES]}, SAVES).text


def test_the_report_shows_kills_where_there_are_any() -> None:
    outcomes = {SAVES: [outcome(SAVES)], KILLS: [outcome(KILLS)]}
    found = JobResults("made", outcomes, SAVES)
    sheets = {sheet.title: sheet for sheet in found.sheets}
    lost = sheets["Work that was not done"]
    assert lost.columns == ("killed", "killed\ngpu-hours", "thrown away\ngpu-hours")
    cells = {name: [float(cell.text) for cell in row] for name, row in lost.rows}
    assert cells == {SAVES: [0, 0, 0], KILLS: [1, 1.5, 1.5]}  # 1 GPU for its limit of 90 minutes
    over = sheets[f"More or less than {SAVES}, %"]
    assert over.columns[-1] == "jobs done\nunder both"
    assert dict(over.rows)[KILLS][-1].text == "2"
    assert "Jobs killed at their limits: 0 under the base" in found.text
    alone = JobResults("made", {SAVES: outcomes[SAVES]}, SAVES)
    assert "Work that was not done" not in {sheet.title for sheet in alone.sheets}


def test_stored_replays_know_how_jobs_ended(tmp_path: Path) -> None:
    settings = {"world": "unlike", "nodes": 4, "first": 60, "load": 1.2, "enforced": True}
    names = ["fcfs+easy+label", "fcfs+easy+first-fit"]
    made = replay("twin:alibaba-gpu-v2023", names, [0, 1], tmp_path, **settings)
    opened = Replayed.open(tmp_path)
    told = json.loads(json.dumps(opened.as_dict(), allow_nan=False))
    for one in told["schedulers"]:
        each = made.outcomes[one["name"]]
        kills = [o.endings["killed"] for o in each]
        assert one["metrics"]["killed"] == np.mean([count for count, _ in kills]) > 0
        hours = np.mean([seconds[0] for _, seconds in kills]) / 3600
        assert one["metrics"]["killed.gpu"] == pytest.approx(hours)
    both = [
        int((a.finished & b.finished).sum()) for a, b in zip(*(made.outcomes[n] for n in names))
    ]
    assert told["schedulers"][1]["over"]["jobs"] == np.mean(both)
    assert {"killed", "killed.gpu"} <= set(opened.to_polars().columns)


def test_schedulers_without_a_job_done_under_both_cannot_be_compared() -> None:
    nodes = Nodes.of([Node("slow", {"gpu": 1}, rate=0.5), Node("fast", {"gpu": 1})])
    jobs = Jobs.of(submit=[0.0], run=[3600.0], limit=[5400.0], demand={"gpu": 1})
    conditions, options = Conditions(rates=np.array([[0.5, 1.0]])), Options(enforced=True)
    outcomes = {
        name: [Outcome.of(simulate_jobs(jobs, nodes, name, conditions, options), name)]
        for name in (KILLS, SAVES)
    }
    assert np.isnan(outcomes[KILLS][0].summary()["completion.mean"])
    found = JobResults("made", outcomes, KILLS)
    assert f"{SAVES} cannot be compared with the base" in found.text
    assert "Work that was not done" in found.page()


def test_a_run_that_does_not_say_how_jobs_ended_is_named() -> None:
    rows = Rows()
    rows.add("job.start", np.zeros(3), np.arange(3))
    with pytest.raises(StoreError, match="killed"):
        stored_outcome(rows, SAVES, ReplayScenario(first=3).draw(0))


def test_a_sweep_of_replays_shows_kills(tmp_path: Path) -> None:
    policies = ["fcfs+easy+label", "fcfs+easy+first-fit"]
    settings = {"world": "unlike", "nodes": 4, "first": 60, "load": 1.2}
    content = {"name": "made", "scenario": "replay", "policies": policies, "seeds": 2}
    content |= {"settings": settings, "grid": {"enforced": [False, True]}}
    found = sweep(Experiment.of(content), tmp_path, jobs=1)
    assert found.losses == ["killed", "killed.gpu"]
    assert "cancelled" in found.endings
    free, enforced = found.sentences()
    assert "kills" not in free
    table = found.table("killed").filter(enforced=True)
    one, other = (f"{round(x):,}" for x in table["killed"])
    assert enforced.endswith(f", and kills {one} jobs instead of {other}")
    write_report(tmp_path)
    assert "killed" in (tmp_path / "report.html").read_text()
