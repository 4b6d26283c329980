"""Reports of tables by hand: whole ones, and ones without servers, jobs, times or requests."""

from __future__ import annotations

import json

import polars as pl
import pytest

from gangwise.logs.reading import leave_out
from gangwise.logs.tables import Tables, implied_load, of_tables

SERVERS = pl.DataFrame(
    {
        "row": [1, 2],
        "name": ["a", "b"],
        "model": ["T4", ""],
        "cpu": [8.0, None],
        "mem": [16.0, 16.0],
        "gpu": [4.0, 0.0],
    },
    schema_overrides={"cpu": pl.Float64},
)
JOBS = pl.DataFrame(
    {
        "row": [1, 2, 3, 4],
        "name": ["p", "q", "r", "s"],
        "cpu": [4.0, None, 2.0, 1.0],
        "mem": [8.0, 8.0, 8.0, 8.0],
        "gpu": [1.0, 2.0, 0.0, 4.0],
        "models": ["T4", "", "", "T4"],
        "tasks": [2.0, 1.0, None, 1.0],
        "created": [0.0, 50.0, 100.0, None],
        "deleted": [100.0, 100.0, 200.0, 200.0],
    }
)


def test_what_is_not_known_counts_as_none_and_is_told():
    """Over 200 s: p 2 x 4 cores for 100 s, q unknown, r 2 cores for 100 s; s at no known time."""
    report = of_tables(Tables("t", SERVERS, JOBS, ()))
    assert (report.first, report.last, report.servers, report.jobs) == (0, 200, 2, 4)
    assert report.capacity == {"cpu": 8, "mem": 32, "gpu:T4": 4, "gpu": 4}
    assert report.load == {
        "cpu": pytest.approx((8 * 100 + 2 * 100) / 200 / 8),
        "mem": pytest.approx((16 * 100 + 8 * 50 + 8 * 100) / 200 / 32),
        "gpu:T4": pytest.approx((2 * 100 + 2 * 50) / 200 / 4),
        "gpu": pytest.approx((2 * 100 + 2 * 50) / 200 / 4),
    }
    notes = "\n".join(report.notes)
    assert "1 jobs are deleted" in notes
    assert "1 jobs have no time" in notes
    assert "1 jobs do not say how much cpu" in notes
    assert "how much mem" not in notes


@pytest.mark.parametrize("bare", [False, True])
def test_no_servers(bare):
    servers = pl.DataFrame() if bare else SERVERS.clear()
    report = of_tables(Tables("t", servers, JOBS, ()))
    assert (report.servers, report.capacity, report.load) == (0, {}, {})
    assert (report.first, report.last) == (0, 200)
    assert "do not say which servers" in report.notes[0]
    assert str(report).splitlines()[0] == "t: no servers, 4 jobs, 0 s to 200 s (3.3 min)"
    assert "device type" not in str(report)


@pytest.mark.parametrize("bare", [False, True])
def test_no_jobs(bare):
    jobs = pl.DataFrame() if bare else JOBS.clear()
    report = of_tables(Tables("t", SERVERS, jobs, ()))
    assert (report.first, report.last, report.jobs, report.load) == (0, 0, 0, {})
    assert report.capacity["gpu:T4"] == 4
    first, *table, note = str(report).splitlines()
    assert first == "t: 2 servers, no jobs"
    assert all(line.endswith("-") for line in table[1:])
    assert "there are no jobs" in note
    assert implied_load(Tables("t", SERVERS, jobs, ()), 0, 1) == {}


def test_nothing_at_all_and_no_known_time():
    report = of_tables(Tables("t", pl.DataFrame(), pl.DataFrame(), ()))
    assert str(report).splitlines()[0] == "t: no servers, no jobs"
    assert json.loads(json.dumps(report.to_dict()))["period"] == "0 s"
    timeless = JOBS.with_columns(created=pl.lit(None, pl.Float64))
    report = of_tables(Tables("t", SERVERS, timeless, ()))
    assert (report.first, report.last, report.load["cpu"]) == (0, 0, 0)
    assert "4 jobs have no time" in str(report)


def test_rows_are_left_out_for_the_first_rule_they_break():
    frame = pl.DataFrame({"row": [3, 5, 8, 9], "x": [1.0, -1.0, None, -2.0]})
    rules = [
        ("x is not known", pl.col("x").is_null()),
        ("x is negative", pl.col("x") < 0),
        ("x is small", pl.col("x") < 1),
    ]
    kept, stage = leave_out("xs", frame, rules)
    assert kept.rows() == [(3, 1.0)]
    assert stage == ("xs", 4, 1, {"x is negative": (2, 5), "x is not known": (1, 8)})
    kept, stage = leave_out("xs", frame.clear(), rules)
    assert (len(kept), stage) == (0, ("xs", 0, 0, {}))
