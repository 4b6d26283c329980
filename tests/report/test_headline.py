"""The headline of a replay and its tiles, from outcomes that are made by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gangwise.jobs import Jobs, Nodes, simulate_jobs
from gangwise.jobs.kernels import SET_ASIDE
from gangwise.jobs.metrics import Outcome
from gangwise.report.jobs import JobResults, headline, tiles
from gangwise.report.page import short_name
from gangwise.study.answer import CONFIGURED

WEEK = 7 * 86400.0
NAMES = ("fcfs+easy", "sjf+easy")


def played(jobs: Jobs, names: tuple[str, ...] = NAMES) -> JobResults:
    outcomes = {n: [Outcome.of(simulate_jobs(jobs, Nodes.pool(4), n), n)] for n in names}
    return JobResults("a log", outcomes, rules=names[0])


def weeks_of_jobs(recorded: bool) -> Jobs:
    """Each hour of 20 weeks a long job of the whole pool and three short ones come at once."""
    submit = np.repeat(np.arange(0, 20 * WEEK, 4 * 3600.0), 4)
    run = np.tile([3600.0, 60.0, 60.0, 60.0], submit.size // 4)
    columns = {"submit": submit, "run": run, "tasks": 4, "limit": run}
    if recorded:
        schedule = simulate_jobs(Jobs.of(**columns), Nodes.pool(4), NAMES[0])
        columns |= {"recorded_start": schedule.start, "recorded_end": schedule.end}
    return Jobs.of(**columns)


def test_a_clear_saving_in_a_model_that_retells_the_log_is_said_with_its_size():
    found = played(weeks_of_jobs(recorded=True))
    ours, base = (found.estimate(name, "completion.mean").mean for name in (NAMES[1], NAMES[0]))
    text = headline(found)
    assert f"{100 * (1 - ours / base):.0f} % sooner" in text
    assert "100 %" in text
    assert "not with the past" not in text
    by_label = {tile.label: tile for tile in tiles(found)}
    assert by_label["Mean wait explained by the model"].tone == "good"
    assert by_label["Best change of completion"].tone == "good"


def test_a_record_that_the_model_does_not_retell_is_not_to_be_compared_with():
    jobs = weeks_of_jobs(recorded=True)
    late = Jobs.of(
        submit=jobs.submit,
        run=jobs.run,
        tasks=4,
        limit=jobs.limit,
        recorded_start=jobs.recorded_start + 40 * 3600,
        recorded_end=jobs.recorded_end + 40 * 3600,
    )
    found = played(late)
    assert "not with the past" in headline(found)
    assert {tile.tone for tile in tiles(found) if tile.label.startswith("Mean wait expl")} == {
        "bad"
    }


def test_without_a_better_scheduler_none_is_called_better():
    found = played(weeks_of_jobs(recorded=False), ("sjf+easy", "fcfs+easy"))
    assert "sooner than" in headline(found)
    assert headline(found).startswith("No scheduler")
    assert "not known" in headline(found)


def test_a_scheduler_that_never_starts_a_job_is_no_best_change():
    """It would look fast by the jobs that are left."""
    found = played(weeks_of_jobs(recorded=False))
    spared = found.outcomes["sjf+easy"][0]
    spared.phase[0] = SET_ASIDE
    spared.start[0] = spared.end[0] = np.nan
    spares = JobResults("a log", {"fcfs+easy": found.outcomes["fcfs+easy"], "sjf+easy": [spared]})
    assert spares.refused("sjf+easy")[0] == 1
    assert "never starts some" in headline(spares)
    assert "Best change of completion" not in {tile.label for tile in tiles(spares)}


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("fcfs+easy+best-fit", "EASY, best fit"),
        ("sjf+easy+learned", "shortest first with EASY, learned rates"),
        ("aged+easy:ends=learned", "aged shortest first with EASY, learned run times"),
        ("my_file.py:Mine", "my_file.py:Mine"),
    ],
)
def test_short_names(name, short):
    assert short_name(name) == short


def test_units_in_doubt_come_before_any_verdict():
    found = played(weeks_of_jobs(recorded=False))
    assert headline(replace(found, units=("in hours?",))).endswith("in hours?")


def test_a_change_for_the_worse_is_said_with_its_size():
    """A change of the rules is no scheduler, and what it costs is known."""
    found = played(weeks_of_jobs(recorded=False))
    rows = {CONFIGURED: found.outcomes["sjf+easy"], "nodes.all-=1": found.outcomes["fcfs+easy"]}
    worse = JobResults("a log", rows, rules=CONFIGURED)
    size = 100 * (
        worse.estimate("nodes.all-=1", "completion.mean").mean
        / worse.estimate(CONFIGURED, "completion.mean").mean
        - 1
    )
    assert f"{size:,.0f} % later" in headline(worse)
