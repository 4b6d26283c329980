"""Waiting is not work: run times, loads and the fidelity line of workloads of slots, by hand."""

from __future__ import annotations

import csv
import gzip
import json
import re

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from gangwise.cli import app
from gangwise.core.workload import Cluster
from gangwise.logs.formats.slurm import SlurmSacct
from gangwise.logs.tables import device_hours, implied_load, save_tables, work
from gangwise.papers.scenarios.demand import contested_share
from gangwise.papers.scenarios.opening import FAMILIES, open_trace
from gangwise.report.pages import write_report
from gangwise.study.compare import Comparison, compare

from .made import tables

# name, cpu, mem, gpu, created, deleted
JOBS = [("a", 4, 0, 0, 0, 7200), ("b", 2, 0, 0, 0, 3600), ("c", 2, 0, 0, 3600, 7200)]
STARTED = [3600.0, 0.0, None]
NODES = [("m", "", 8, 0, 0), ("n", "", 8, 0, 0)]


def test_a_job_that_waits_holds_nothing():
    log = tables(JOBS, NODES, started=STARTED)
    assert work(log.jobs).rows() == [(3600.0, 3600.0), (0.0, 3600.0), (None, None)]
    assert device_hours(log.jobs, "cpu").tolist() == [4.0, 2.0, 0.0]
    assert implied_load(log, 0, 7200) == {"cpu": pytest.approx(6 / 32)}
    without = tables(JOBS, NODES)
    assert implied_load(without, 0, 7200) == {"cpu": pytest.approx((8 + 2 + 2) / 32)}


def test_the_line_of_a_slot_workload_by_hand():
    log = tables(JOBS, NODES, started=STARTED)
    s = open_scenario(log, slot="30m")
    kept = s.fidelity().kept
    assert (kept.read, kept.played, kept.hours, kept.played_hours) == (3, 2, 6.0, 6.0)
    assert kept.given == pytest.approx(4 * 0.5 + 2 * 0.5)  # cores times half an hour
    assert (kept.wait, kept.waiting) == (1800.0, pytest.approx(3600 / (3600 + 7200)))
    assert kept.line.startswith(
        "made: 66.7 % of 3 jobs and 100 % of 6 core-hours are played; given ÷ requested 0.5; mean "
        "wait 30 min, 33.3 % of the time in the system; jobs compete in 0 % of the slots"
    )
    assert "up to 2 servers" in kept.line
    assert "utilities and overhead are drawn" in kept.line
    assert [line[:27] for line in kept.lines[1:]] == ["warning: jobs never compete"]
    assert str(s.fidelity()).startswith(kept.line)
    half = open_scenario(log, slot="30m", keep=0.2).fidelity().kept
    assert (half.played, half.played_hours) == (pytest.approx(0.4), pytest.approx(1.2))
    assert "only 13.3 % of the jobs" in half.lines[1]


@pytest.mark.parametrize("family", ["gain_overhead", "fluctuating_speeds", "approximation_jobs"])
def test_of_fewer_slots_only_what_comes_in_them_is_played(family):
    """Twenty jobs of one core, one every ten minutes, each for five; the first 7 slots of 15."""
    jobs = [(f"j{n}", 1, 0, 0, 600 * n, 600 * n + 300) for n in range(20)]
    s = FAMILIES[family](tables(jobs, NODES), slot="15m")
    kept = s.fidelity().kept
    assert kept.played == (13 if family == "fluctuating_speeds" else 20)  # one of a type in a slot
    come = [600 * n // 900 for n in range(20) if 600 * n < 7 * 900]
    first = kept.in_first(7)
    expected = len(set(come)) if family == "fluctuating_speeds" else len(come)
    assert (first.played, first.played_hours) == pytest.approx((expected, expected / 12))
    assert f"of 20 jobs and {100 * expected / 20:.3g} % of 1.67 core-hours" in first.line
    assert "the first 7 of 13 slots" in first.line
    assert kept.in_first(s.slots).line == kept.line


def test_a_sweep_says_how_much_of_the_log_each_cell_plays(tmp_path):
    save_tables(tables(JOBS, NODES, started=STARTED), tmp_path / "log")
    file = tmp_path / "sweep.toml"
    file.write_text(
        f'name = "s"\ntrace = "{tmp_path / "log"}"\nslots = 4\nseeds = 2\n'
        'policies = ["drf", "fairness"]\n[settings]\nslot = "30m"\n[grid]\nkeep = [1.0, 0.2]\n'
    )
    command = ["sweep", str(file), "--out", str(tmp_path / "out"), "--jobs", "1"]
    shown = CliRunner().invoke(app, command)
    assert shown.exit_code == 0, shown.output
    # the cell of which less is played comes first
    assert shown.stdout.startswith("keep = 0.2: made: 13.3 % of 3 jobs and 20 % of 6 core-hours")
    assert "\nkeep = 1.0: made: 66.7 % of 3 jobs and 100 % of 6 core-hours" in shown.stdout
    told = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)["fidelity"]
    assert [(each["cell"], each["jobs"]["played"]) for each in told] == [
        ({"keep": 1.0}, 2),
        ({"keep": 0.2}, pytest.approx(0.4)),
    ]
    page = re.sub(r"[\u00a0\u202f]|&nbsp;", " ", write_report(tmp_path / "out").read_text())
    above = page.split("<h2>Results")[0]
    assert "keep = 0.2: made: 13.3 % of 3 jobs" in above
    assert "warning: only 13.3 % of the jobs" in above


def open_scenario(log, **knobs):
    from gangwise.papers.scenarios.opening import TraceScenario

    return TraceScenario(log, **{"skip": 0, **knobs})


def test_a_slot_is_near_the_median_run_time():
    jobs = [(f"j{n}", 1, 0, 0, 100 * n, 100 * n + 50 + n) for n in range(21)]
    assert open_scenario(tables(jobs, NODES)).demand.slot == 60  # the median runs 60 s
    waited = tables(jobs, NODES, started=[100.0 * n + 50 for n in range(21)])
    assert open_scenario(waited).demand.slot == 10  # and 10 s where 50 were waiting
    late = tables([*jobs, ("z", 1, 0, 0, 1e6, 1e6 + 60)], NODES)
    assert open_scenario(late).demand.slot == 300  # a window of at most 5000 slots


@given(
    counts=st.lists(st.lists(st.integers(0, 3), min_size=2, max_size=2), min_size=1, max_size=6),
    sizes=st.lists(st.integers(1, 9), min_size=3, max_size=3),
    on=st.lists(st.booleans(), min_size=6, max_size=6),
)
def test_contested_slots_against_a_plain_count(counts, sizes, on):
    cluster = Cluster(np.array(sizes, dtype=float)[:, None], ("cpu",))
    mask, requests = np.array(on).reshape(2, 3), np.array([[2.0], [3.0]])
    busy = [row for row in counts if any(row)]
    short = [
        any(
            sum(n * r for n, r, m in zip(row, (2, 3), mask[:, server]) if m) > sizes[server]
            for server in range(3)
        )
        for row in busy
    ]
    expected = sum(short) / len(busy) if busy else 0.0
    assert contested_share(cluster, requests, mask, np.array(counts)) == pytest.approx(expected)


def test_a_real_slurm_log_counts_what_ran(traces):
    """4,285 jobs: 180,250 core-hours from submission to end, of which 11,768 were work."""
    file = traces / "slurm-open-xdmod" / "phillips.log.gz"
    if not file.exists():
        pytest.skip("slurm-open-xdmod is not among the traces here")
    with gzip.open(file, "rt") as lines:
        rows = list(csv.reader(lines, delimiter="|"))
    expected = 0.0
    for row in rows:
        days, clock = row[14].rpartition("-")[::2]
        h, m, s = (int(x) for x in clock.split(":"))
        cores = int(re.search(r"cpu=(\d+)", row[21])[1])
        expected += cores * (86400 * int(days or 0) + 3600 * h + 60 * m + s) / 3600
    jobs = SlurmSacct(file).scan().jobs
    assert device_hours(jobs, "cpu").sum() == pytest.approx(expected)
    assert round(expected) == 11_768
    claimed = (pl.col("deleted") - pl.col("created")) * pl.col("cpu") * pl.col("tasks") / 3600
    assert jobs.select(claimed.sum()).item() == pytest.approx(180_249.6, abs=0.1)
    kept = open_trace(file, machines=46, shape=(20, 128, 2)).fidelity().kept
    assert kept.hours == pytest.approx(expected)
    assert (kept.read, kept.played) == (4285, 4046)


def test_the_line_is_above_the_table_on_the_page_and_in_json(tmp_path):
    made = tables(JOBS, NODES, started=STARTED)
    save_tables(made, tmp_path / "log")
    out = tmp_path / "out"
    command = ["compare", "--trace", str(tmp_path / "log"), "--policies", "drf,fairness"]
    command += ["--slots", "4", "--seeds", "2", "--comparators", "none", "--jobs", "1"]
    command += ["--set", "slot=30m", "--out", str(out)]
    line = open_scenario(made, slot="30m").fidelity().kept.in_first(4).line
    wide = {"COLUMNS": "2000"}
    shown = CliRunner().invoke(app, command, env=wide)
    assert shown.exit_code == 0, shown.output
    text = shown.stdout.splitlines()
    assert text[0] == line
    assert text[1].startswith("warning: jobs never compete")
    assert text[2].startswith("no ranking: all 2 policies earned the same")
    plain = json.loads(CliRunner().invoke(app, [*command, "--json"], env=wide).stdout)
    assert plain["fidelity"]["line"] == line
    assert plain["fidelity"]["jobs"] == {"read": 3, "played": 2}
    assert plain["ranked"] is False
    page = re.sub(r"[\u00a0\u202f]|&nbsp;", " ", (out / "report.html").read_text())
    assert "66.7 % of 3 jobs and 100 % of 6 core-hours are played" in page
    assert page.index("no ranking: all 2") < page.index("<h2>Results")
    assert "earned most" not in page.split("<h2>Results")[0]
    again = Comparison.open(out)  # of a folder, without the trace
    assert again.notes == text[:3]


def test_policies_that_differ_are_ranked():
    comparison = compare("ogasched-default-v1:servers=8,job_types=4", ["drf", "greedy"], 30, [0])
    assert comparison.fidelity is None
    assert comparison.notes == []
    assert comparison.as_dict()["ranked"] is True
