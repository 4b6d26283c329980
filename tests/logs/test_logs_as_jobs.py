"""What each format says of waits, and what is said where it says nothing."""

from __future__ import annotations

import pytest

from gangwise.logs import open_tables
from gangwise.logs.jobs import open_jobs

from . import test_alibaba_v2018 as v2018
from . import test_google_2019 as g2019
from . import test_swf as swf

UNKNOWN = "waits are not known: all the time from submission to end is work"


def test_v2018_says_when_tasks_started_and_not_since_when_they_waited(tmp_path):
    (tmp_path / "batch_task.csv").write_text(f"{v2018.task()}\n{v2018.task('R2_1', end='150')}\n")
    log = open_jobs(tmp_path)
    assert log.played.assumed[UNKNOWN] == 2
    assert UNKNOWN in log.played.line
    assert log.rows["start"].null_count() == 2
    assert sorted(log.jobs.run.tolist()) == [50, 60]


def test_v2017_says_when_tasks_were_created_and_ended(tmp_path):
    rows = ["100,160,1,1,2,Terminated,100,0.01", "130,200,1,2,1,Terminated,200,0.02"]
    (tmp_path / "batch_task.csv").write_text("\n".join(rows) + "\n")
    log = open_jobs(tmp_path, trace="alibaba-v2017")
    assert log.played.assumed[UNKNOWN] == 2
    assert log.rows.select("tasks", "cpu", "run").rows() == [(2, 1, 60), (1, 2, 70)]
    assert log.played.hours == pytest.approx((2 * 60 + 2 * 70) / 3600)


def test_google_2019_waits_until_the_first_schedule(tmp_path):
    events = [
        g2019.instance(10, 7, 0, g2019.SUBMIT),
        g2019.instance(10, 7, 1, g2019.SUBMIT),
        g2019.instance(25, 7, 0, g2019.SCHEDULE),
        g2019.instance(30, 7, 1, g2019.SCHEDULE),
        g2019.instance(85, 7, 0, g2019.FINISH),
        g2019.instance(85, 7, 1, g2019.FINISH),
        g2019.instance(40, 8, 0, g2019.SUBMIT),
        g2019.instance(50, 8, 0, g2019.KILL),
    ]
    g2019.write(tmp_path, "instance_events", events)
    log = open_jobs(tmp_path)
    assert log.rows.select("tasks", "cpu", "submit", "start", "end", "run").rows() == [
        (2, 0.5, 10, 25, 85, 60)
    ]
    assert log.played.lost["without a start"].jobs == 1
    assert UNKNOWN not in log.played.line


def test_think_times_of_swf_are_not_played_and_that_is_said(tmp_path):
    file = swf.write(
        tmp_path, swf.line(1), swf.line(2, 100, preceding=1, think=40), swf.line(3, 110)
    )
    said = "\n".join(open_tables(file).notes)
    assert "1 jobs were submitted a think time" in said
    assert "think times are not played" in said
    log = open_jobs(file)
    assert log.jobs.submit.tolist() == [0, 100, 110]
    assert log.jobs.after.size == 1  # that it comes after the other is kept
