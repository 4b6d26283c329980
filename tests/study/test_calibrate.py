"""``gangwise calibrate``: the site file, words, and what it refuses."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from benchmarks import calibration as planted
from typer.testing import CliRunner

from gangwise.cli import app
from gangwise.core.errors import ScenarioError, TraceError
from gangwise.core.settings import Clock
from gangwise.jobs import simulate_jobs
from gangwise.jobs.metrics import Outcome
from gangwise.sites.calibration import calibrate
from gangwise.sites.retelling import Record, retell
from gangwise.sites.site import Site
from gangwise.study.findings import by_local_time, calibrate_log
from tests.sites.test_calibration import drawn, plain


def _log(folder: Path) -> Path:
    """Forty days on each of which a user may run two jobs at once, and submits three."""
    file = folder / "log.swf"
    rows = []
    for day in range(40):
        for i, wait in enumerate((0, 0, 3600)):
            submit = 86400 * day
            job = f"{3 * day + i + 1} {submit} {wait} 3600 1"
            rows.append(f"{job} -1 -1 1 7200 -1 1 {day % 2} 1 -1 -1 -1 -1 -1")
    file.write_text("; MaxProcs: 8\n; UnixStartTime: 345600\n" + "\n".join(rows) + "\n")
    return file


def test_the_site_file_says_what_was_found_and_why(tmp_path: Path) -> None:
    found = calibrate_log(_log(tmp_path))
    written = found.toml()
    (cap,) = tomllib.loads(written)["cap"]
    assert cap["most"] == 2
    assert "waited although all that waited would have fitted" in written.replace("\n# ", " ")
    assert str(found).startswith("swf: 100 % of 120 jobs")
    assert np.isclose(found.found.contradicted, 40.0)
    assert found.record.monday == 0.0  # 5 January 1970 was a Monday


def test_the_command_writes_a_file_and_never_over_one(tmp_path: Path) -> None:
    log, out = _log(tmp_path), tmp_path / "site"
    made = CliRunner().invoke(app, ["calibrate", str(log), "--out", str(out), "--json"])
    assert made.exit_code == 0, made.output
    assert json.loads(made.stdout)["findings"][0]["entry"]["most"] == 2
    assert (out / "site.toml").exists()
    again = CliRunner().invoke(app, ["calibrate", str(log), "--out", str(out)])
    assert "is there already" in str(again.exception)


def test_a_log_without_waits_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "log.swf"
    file.write_text("; MaxProcs: 8\n1 0 -1 60 1 -1 -1 1 60 -1 1 1 1 -1 -1 -1 -1 -1\n")
    with pytest.raises(ScenarioError, match="started"):
        calibrate_log(file)
    file.write_text("; MaxProcs: 8\n1 0 0 60 1 -1 -1 1 60 -1 1 1 1 -1 -1 -1 -1 -1\n")
    with pytest.raises(ScenarioError, match="no job waited"):
        calibrate_log(file)


MAPPING = """trace = "csv"
[jobs]
file = "jobs.csv"
columns = { name = "id", created = "submit", started = "start", deleted = "end", cpu = "cpu" }
[servers]
file = "nodes.csv"
columns = { name = "node", cpu = "cpu" }
"""


def test_windows_are_those_of_node_events_and_are_played(tmp_path: Path) -> None:
    """Node b is away on every third day, and jobs wait beside it: the events explain all."""
    jobs, events = ["id,submit,start,end,cpu"], ["node,time,event"]
    for day in range(60):
        for i in range(6):
            submit = 86400 * day + 600 * i
            late = 7200 * (i >= 4 and day % 3 == 0)  # four fit on node a
            jobs.append(f"j{day}-{i},{submit},{submit + late},{submit + late + 7200},1")
        if day % 3 == 0:
            events += [f"b,{86400 * day},DOWN", f"b,{86400 * day + 9000},up"]
    events += ["c,0,down"]
    for name, rows in {"jobs": jobs, "nodes": ["node,cpu", "a,4", "b,4"], "events": events}.items():
        (tmp_path / f"{name}.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "log.toml").write_text(MAPPING)
    without = calibrate_log(tmp_path / "log.toml")
    assert without.found.refused == 40
    found = calibrate_log(tmp_path / "log.toml", events=tmp_path / "events.csv")
    assert (found.found.refused, found.found.unexplained) == (40, 0)
    assert "20 windows are those of node events, none is guessed: 200 cpu-hours" in str(found)
    assert "1 nodes of the events" in str(found)
    (tmp_path / "site.toml").write_text(found.toml())
    site = Site.read(tmp_path)
    log = found.log
    assert site.rules.window[1].nodes == "b"
    played = simulate_jobs(log.jobs, log.nodes, "fcfs+easy+best-fit", site=site)
    assert np.isclose(played.start, log.jobs.recorded_start, atol=2401).all()
    free = simulate_jobs(log.jobs, log.nodes, "fcfs+easy+best-fit")
    assert (free.start == log.jobs.submit).all()
    for row, wrong in {"b,1,gone": "'gone'", "b,soon,up": "'soon'"}.items():
        (tmp_path / "events.csv").write_text(f"node,time,event\n{row}\n")
        with pytest.raises(TraceError, match=wrong):
            calibrate_log(tmp_path / "log.toml", events=tmp_path / "events.csv")


@pytest.mark.full
def test_rules_planted_in_a_real_log_are_found_as_its_table_says(
    traces: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GANGWISE_TRACES", str(traces))
    planted.main(["NASA"], tune=False)
    sums = capsys.readouterr().out.split("| found | invented |\n")[-1].splitlines()[1:]
    many, found, invented = np.array([row.split("|")[4:7] for row in sums], int).sum(axis=0)
    assert (many, found, invented) == (38, 30, 0)


@pytest.mark.full
def test_the_tutorial_shows_what_the_commands_say_of_a_real_log(
    traces: Path, tmp_path: Path
) -> None:
    page = Path(__file__).parents[2] / "docs" / "tutorials" / "calibrate.md"
    shown = [line[4:] for line in page.read_text().splitlines() if line.startswith("    ")]
    log, site = str(traces / "swf" / "KTH-SP2.swf.gz"), str(tmp_path / "site")
    said = CliRunner().invoke(app, ["calibrate", log, "--out", site])
    assert said.exit_code == 0, said.output
    assert said.stdout.splitlines()[: len(shown)] == shown
    assert len(shown) > 8
    command = ["replay", log, "--policies", "fcfs+easy+best-fit"]
    for given, share, near in ((["--site", site], 51, 48), ([], 45, 40)):
        told = " ".join(CliRunner().invoke(app, [*command, *given]).stdout.split())
        assert f"The base explains {share} % of the mean wait" in told
        assert f"{near} % of the jobs start within 10 minutes" in told
        row = next(r for r in page.read_text().splitlines() if r.startswith("| explained |"))
        assert f"{share} %" in row


def test_closed_hours_are_written_as_a_replay_plays_them(tmp_path: Path) -> None:
    """Of a log of 60 weeks whose long jobs do not start by day; its clock is an hour ahead."""
    jobs, _ = drawn(7, 4000, total=60)
    long = jobs.limit > 4 * 3600
    start = plain.play(
        *(jobs.submit, jobs.run, jobs.tasks, 60),
        lambda j, running, now: (
            not (long[j] and now // 3600 % 168 < 120 and 8 <= now // 3600 % 24 < 18)
        ),
    )
    rows = [
        f"{j + 1} {jobs.submit[j]:.0f} {start[j] - jobs.submit[j]:.0f} {jobs.run[j]:.0f} "
        f"{jobs.tasks[j]} -1 -1 {jobs.tasks[j]} {jobs.limit[j]:.0f} -1 1 {jobs.user[j]} "
        "1 -1 -1 -1 -1 -1"
        for j in range(len(jobs))
    ]
    file = tmp_path / "log.swf"
    header = "; MaxProcs: 60\n; UnixStartTime: 342000\n; TimeZone: 3600\n"
    file.write_text(header + "\n".join(rows) + "\n")
    found = calibrate_log(file)
    (tmp_path / "site.toml").write_text(found.toml())
    site = replace(Site.read(tmp_path), log_clock=found.log.clock)
    assert len(site.rules.closed) == 1, found
    retold = []
    for given in (None, site):
        played = simulate_jobs(found.log.jobs, found.log.nodes, "fcfs+easy+best-fit", site=given)
        then = Outcome.recorded(found.log.jobs, found.log.nodes)
        retold.append(retell(then, Outcome.of(played, "")).by_job)
    assert retold[1] > 0.8 > 0.5 > retold[0], retold


def test_closing_hours_follow_daylight_saving() -> None:
    """Closed from 8 to 18 on a clock that is put back on 27 October: found whole, none beside."""
    jobs, nodes = drawn(7, 4000, total=60)
    clock = Clock(datetime(1996, 8, 26, tzinfo=ZoneInfo("Europe/Stockholm")).timestamp())
    clock = replace(clock, zone="Europe/Stockholm")
    long = jobs.limit > 4 * 3600

    def may(j: int, running: dict[int, float], now: float) -> bool:
        date = clock.date(now)
        return not (long[j] and date.weekday() < 5 and 8 <= date.hour < 18)

    start = plain.play(jobs.submit, jobs.run, jobs.tasks, 60, may)
    log = replace(jobs, recorded_start=start, recorded_end=start + jobs.run)
    record = Record.of(log, nodes, monday=clock.monday)
    (one,) = by_local_time(record, clock).findings
    hours = np.zeros((7, 24), dtype=bool)
    hours[:5, 8:18] = True
    assert not (one.rule.hours & ~hours.ravel()).any()
    assert (one.rule.hours & hours.ravel()).sum() >= 45
    found = calibrate(record).findings  # by the clock of the first day the edges are ragged
    assert not any((each.rule.hours == one.rule.hours).all() for each in found)
