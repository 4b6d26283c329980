"""Job tables whose headings say everything, played without a mapping; and units to ask about."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from gangwise.core.errors import TraceError
from gangwise.logs.jobs import open_jobs

JOBS, SEED = 120, 20261128


def drawn() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(SEED)
    submit = np.round(np.cumsum(rng.exponential(300.0, JOBS)), 1)
    start = np.round(submit + rng.choice([0.0, 45.5, 900.0], JOBS), 1)
    end = np.round(start + rng.lognormal(7.0, 1.0, JOBS), 1)
    return {"submit": submit, "start": start, "end": end, "gpus": rng.choice([1, 2, 4, 8], JOBS)}


def written(path: Path, columns: dict[str, object], separator: str = ",", point: str = ".") -> Path:
    with path.open("w", newline="") as file:
        table = csv.writer(file, delimiter=separator)
        table.writerow(["id", *columns])
        for number, cells in enumerate(zip(*columns.values())):
            table.writerow([number, *(str(cell).replace(".", point) for cell in cells)])
    return path


@pytest.mark.parametrize(("separator", "point"), [(",", "."), (";", ","), ("\t", ".")])
def test_a_table_with_obvious_headings_is_read(tmp_path, separator, point):
    made = drawn()
    log = open_jobs(written(tmp_path / "jobs.csv", made, separator, point))
    assert len(log.jobs) == JOBS
    begin = made["submit"][0]
    np.testing.assert_allclose(log.jobs.submit - log.jobs.submit[0], made["submit"] - begin)
    np.testing.assert_allclose(log.jobs.run, made["end"] - made["start"], atol=1e-6)
    waits = log.jobs.recorded_start - log.jobs.submit
    np.testing.assert_allclose(waits, made["start"] - made["submit"], atol=1e-6)
    assert log.rows["gpu"].to_list() == made["gpus"].tolist()
    [note] = [note for note in log.played.notes if note.startswith("columns are read")]
    for column, role in (("submit", "submission"), ("gpus", "GPUs"), ("end", "end")):
        assert f"{column} as {role}" in note
    assert ("decimal comma" in note) == (point == ",")
    assert not log.played.units


@pytest.mark.parametrize(
    ("drop", "reason"), [("submit", ""), ("gpus", "how many GPUs"), ("end", "when a job ended")]
)
def test_what_a_table_lacks_is_named(tmp_path, drop, reason):
    columns = {name: cells for name, cells in drawn().items() if name != drop}
    path = written(tmp_path / "jobs.csv", columns)
    if not reason:  # submitted when they start, which the log's first line says
        assert "waits are not known" in open_jobs(path).played.line
        return
    with pytest.raises(TraceError, match=reason):
        open_jobs(path)


def test_times_out_of_order_are_not_guessed(tmp_path):
    columns = drawn()
    columns["start"], columns["end"] = columns["end"], columns["start"]
    with pytest.raises(TraceError, match="not in this order"):
        open_jobs(written(tmp_path / "jobs.csv", columns))


def test_units_out_of_this_world_are_asked_about(tmp_path):
    made = drawn()
    run = made["end"] - made["start"]
    hours = {"submit": made["submit"], "run": run / 3600, "gpus": made["gpus"]}
    asked = open_jobs(written(tmp_path / "hours.csv", hours)).played.units
    assert "hours or minutes" in asked[0]
    milliseconds = {"submit": 1000 * made["submit"], "run": run, "gpus": made["gpus"]}
    asked = open_jobs(written(tmp_path / "ms.csv", milliseconds)).played.units
    assert "milliseconds" in asked[0]
    assert "(asked above " in asked[0]
    seconds = {"submit": made["submit"], "run": run, "gpus": made["gpus"]}
    played = open_jobs(written(tmp_path / "s.csv", seconds)).played
    assert not played.units
    assert "run as run time (seconds; if minutes, name it run_minutes)" in str(played.notes)
    minutes = {"submit": made["submit"], "run_minutes": run, "gpus": made["gpus"]}
    longer = open_jobs(written(tmp_path / "min.csv", minutes))
    assert "run_minutes as run time (minutes)" in str(longer.played.notes)
    assert longer.jobs.run.sum() == pytest.approx(60 * sum(run))


def test_dates_with_blanks_do_not_separate_columns_and_what_waits_has_no_start(tmp_path):
    file = tmp_path / "jobs.tsv"
    head = "Unnamed: 0\tjob_id\tsubmit\tstart\tend\tgpus\n"
    day = "2024-01-01 00"
    rows = (f"{k}\ta{k}\t{day}:0{k}:00\t{day}:1{k}:00\t{day}:4{k}:00\t{k}\n" for k in range(1, 5))
    file.write_text(head + "".join(rows))
    assert open_jobs(file).played.hours == pytest.approx(10 / 2)
    file.write_text("job_id,submit,start,end,gpus\na,0,10,70,1\nb,5,-1,-1,1\nc,9,70,90,1\n")
    assert open_jobs(file).jobs.recorded_start.tolist() == [10, 70]


def test_dates_give_the_log_a_clock(tmp_path):
    columns = {name: cells for name, cells in drawn().items() if name == "gpus"}
    midnight = np.datetime64("2026-03-01T00:00:00")
    for name in ("submit", "start", "end"):
        times = midnight + drawn()[name].astype("timedelta64[s]")
        columns[name] = [str(at).replace("T", " ") for at in times]
    log = open_jobs(written(tmp_path / "jobs.csv", columns))
    first = np.datetime64(columns["submit"][0]).astype("datetime64[s]").astype(int)
    assert log.clock is not None
    assert log.clock.epoch + log.jobs.submit[0] == first
