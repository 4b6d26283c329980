"""Drafted mappings: what they read, against what the files are known to hold."""

from __future__ import annotations

import csv
import gzip
import json
import tomllib
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from gangwise import TraceError
from gangwise.cli import app
from gangwise.logs import open_tables
from gangwise.logs.formats.own_csv import OwnCsv
from gangwise.logs.formats.slurm import OPEN_XDMOD
from gangwise.logs.formats.tabular import reader
from gangwise.logs.guess import guess
from gangwise.logs.inspect import inspect
from gangwise.logs.jobs import doubts_of
from gangwise.logs.tables import device_hours

from .test_helios_acme import HELIOS, ROWS

JOBS = [("a", 4, 0, 30, 90), ("b", 2, 10, 10, 70), ("c", 8, 20, 40, 45)]
"""Name, cores, and seconds of submission, start and end."""


def drafted(tmp_path, text, name="jobs.csv"):
    """The draft, and what comes out when it is read."""
    (tmp_path / name).write_text(text)
    found = guess(tmp_path / name)
    (tmp_path / "mapping.toml").write_text(found.toml(name))
    return found, OwnCsv(tmp_path / "mapping.toml").scan()


@pytest.mark.parametrize("separator", [",", ";", "\t", "|", "   "])
@pytest.mark.parametrize("times", ["seconds", "ms", "written"])
def test_layouts_and_times(tmp_path, separator, times):
    def shown(second):
        if times == "seconds":
            return 1_700_000_000 + second
        if times == "ms":
            return 1000 * (1_700_000_000 + second)
        return f"2024-01-15T10:{second // 60:02d}:{second % 60:02d}Z"

    rows = [("Job ID" if separator != "   " else "JobID", "NCPUS", "Submit_Time", "start", "End")]
    rows += [(n, c, *map(shown, at)) for n, c, *at in JOBS]
    text = "# a log\n" + "".join(separator.join(map(str, row)) + "\n" for row in rows)
    found, tables = drafted(tmp_path, text)
    columns = ["name", "cpu", "created", "started", "deleted"]
    assert tables.jobs.select(columns).rows() == JOBS
    assert found.readings[0].hours["cpu"] == pytest.approx((4 * 60 + 2 * 60 + 8 * 5) / 3600)
    assert found.readings[0].mean_in_use["cpu"] == pytest.approx((4 * 60 + 2 * 60 + 8 * 5) / 90)


def test_german_dates_and_decimal_commas(tmp_path):
    text = "\ufeffAuftrag;Kerne;Speicher (GB);Eingereicht;Laufzeit (h);Hosts\r\n"
    text += (
        'a;4;1,5;15.01.2024 10:00:00;0,25;"n1,n2"\r\n\r\nb;2;"12,0";15.01.2024 10:30:00;2;7,8\r\n'
    )
    found, tables = drafted(tmp_path, text + "c;2;1.234,5;15.01.2024 10:31:00;1,5;\r\n")
    assert 'decimal = ","' in found.toml("jobs.csv")
    columns = ["name", "cpu", "mem", "created", "deleted"]
    rows = [("a", 4, 1.5, 0, 900), ("b", 2, 12, 1800, 9000)]
    assert tables.jobs.select(columns).rows() == rows
    (reason,) = tables.stages[-1].dropped  # 1.234,5 is not guessed at
    assert "is not a number" in reason


def test_totals_memory_and_open_ends_are_read_every_way(tmp_path):
    text = (
        "id,submit,runtime,nodes,gpus,memory\n"
        "a,0,100,2,16,64000\nb,50,,1,8,32000\nc,60,40,1,,16000\n"
    )
    found, tables = drafted(tmp_path, text)
    assert tables.jobs.select("gpu", "tasks", "mem").rows() == [(8, 2, 31.25), (0, 1, 15.625)]
    said = {reading.change: reading for reading in found.readings}
    assert said[""].jobs == 2
    assert said['per = "task"'].largest_job["gpu"] == 32
    assert said['open_end = "last"'].jobs == 3
    assert said['mem = { column = "memory", unit = "GiB" }'].largest_job["mem"] == 64000
    assert "memory is read as MiB, by its size" in found.notes
    assert "empty cells of gpus count as 0" in found.notes


def test_what_is_not_found_is_said_and_the_draft_is_still_toml(tmp_path):
    found = guess_of(tmp_path, "1 2 x\n3 4 y\n")
    assert not found.readings
    assert any("add created =" in note for note in found.notes)
    assert found.mapping["jobs"]["header"] == ["field_1", "field_2", "field_3"]
    for text, why in (
        ("", "an empty file"),
        ("\x00\x01\x02", "binary data"),
        ("# a\n", "comments"),
    ):
        with pytest.raises(TraceError, match=why):
            guess_of(tmp_path, text)
    with pytest.raises(TraceError, match="no such file"):
        guess(tmp_path / "nothing")


def guess_of(tmp_path, text, name="x.txt"):
    (tmp_path / name).write_text(text)
    return guess(tmp_path / name, doubts_of)


@pytest.mark.parametrize("form", ["lines", "list", "object"])
def test_json(tmp_path, form):
    rows = [
        {
            "uid": n,
            "spec": {"cpu": f"{c}000m", "memory": "2Gi"},
            "times": {"submitted": s, "started": b, "ended": e},
        }
        for n, c, s, b, e in JOBS
    ]
    text = {
        "lines": "\n".join(map(json.dumps, rows)) + "\n",
        "list": json.dumps(rows),
        "object": json.dumps({"version": 1, "data": rows}),
    }[form]
    _, tables = drafted(tmp_path, text, "log.json")
    columns = ["cpu", "mem", "created", "started", "deleted"]
    assert tables.jobs.select(columns).rows() == [(c, 2, s, b, e) for _, c, s, b, e in JOBS]


def test_the_draft_of_a_known_log_counts_the_same_hours(tmp_path):
    file = tmp_path / "cluster_log.csv"
    file.write_text("\n".join([HELIOS, *ROWS]) + "\n")
    known = float(device_hours(reader("helios")(file).scan().jobs, "gpu").sum())
    said = {reading.change: reading for reading in guess(file).readings}
    running = 8 * 36848 / 3600
    assert said['open_end = "last"'].hours["gpu"] == pytest.approx(known)
    assert said[""].hours["gpu"] == pytest.approx(known - running)


def test_a_real_slurm_log_as_an_unknown_file(tmp_path, traces):
    """From submission to end it would be 180,250 core-hours; the draft counts what ran."""
    real = traces / "slurm-open-xdmod" / "phillips.log.gz"
    if not real.exists():
        pytest.skip("slurm-open-xdmod is not among the traces here")
    file = tmp_path / "log.psv"
    file.write_text(OPEN_XDMOD + "\n" + gzip.decompress(real.read_bytes()).decode())
    found = guess(file)
    with file.open() as lines:
        rows = list(csv.DictReader(lines, delimiter="|"))
    assert found.readings[0].rows == len(rows) == 4285
    assert found.readings[0].hours["cpu"] == pytest.approx(11_768, rel=0.01)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(alphabet="ab1,;|\t \n\"'{}[]:#.-é", max_size=60))
def test_no_text_gives_a_traceback(tmp_path, text):
    (tmp_path / "any.txt").write_text(text)
    try:
        found = guess(tmp_path / "any.txt")
    except TraceError:
        return
    assert found.toml().startswith("# A draft")


def test_the_command_and_who_points_to_it(tmp_path):
    file = tmp_path / "mine.csv"
    file.write_text("id,submit,runtime,cores\na,0,100,2\n")
    run = CliRunner().invoke(app, ["trace", "guess", str(file), "--out", str(tmp_path / "m.toml")])
    assert run.exit_code == 0
    assert open_tables(tmp_path / "m.toml").jobs["cpu"].to_list() == [2]
    plain = json.loads(CliRunner().invoke(app, ["trace", "guess", str(file), "--json"]).stdout)
    assert plain["readings"][0]["hours"]["cpu"] == pytest.approx(200 / 3600)
    assert open_tables(file).jobs["cpu"].to_list() == [2]  # its headings say everything
    file = tmp_path / "other.csv"
    file.write_text("id,x,y,cores\na,0,100,2\n")
    with pytest.raises(TraceError, match=f"gangwise trace guess {file}"):
        open_tables(file)
    assert f"gangwise trace guess {file}" in str(inspect(file))
    for command in (["compare", "--trace"], ["replay"], ["jobs"]):
        failed = CliRunner().invoke(app, [*command, str(file)])
        assert f"gangwise trace guess {file}" in str(failed.exception) + failed.output


def test_cells_that_say_nothing_are_in_the_draft(tmp_path):
    text = (
        "job_id,submit,start,end,gpus,owner\n"
        "a,0,60,3660,NULL,unknown\nb,100,None,None,8,bob\nc,100,200,3800,4,bob\n"
    )
    found, tables = drafted(tmp_path, text)
    assert found.mapping["jobs"]["missing"] == ["NULL", "None"]
    assert tables.jobs.select("name", "gpu").rows() == [("a", 0), ("c", 4)]
    assert tables.jobs["user"].to_list() == ["unknown", "bob"]
    (last,) = [reading for reading in found.readings if "open_end" in reading.change]
    assert (last.jobs, last.hours) == (3, {"gpu": 4.0})  # b never started


def test_a_list_inside_of_other_objects(tmp_path):
    jobs = [
        {"id": i, "submitted_at": 60 * i, "started_at": 60 * i, "res": {"gpu": 8}, "run_s": 90}
        for i in range(4)
    ]
    page = {"meta": {"pages": [{"n": 1}]}, "data": {"jobs": jobs}}
    found, tables = drafted(tmp_path, json.dumps(page), "jobs.json")
    assert found.mapping["jobs"]["records"] == "data.jobs"
    assert tables.jobs.select("created", "gpu").rows() == [(60 * i, 8) for i in range(4)]
    with pytest.raises(TraceError, match="objects"):
        drafted(tmp_path, '{"a": [1, 2]}', "jobs.json")


def test_of_another_reading_all_that_differs_is_said(tmp_path):
    """A job that waits adds no hours, and may be the largest."""
    file = tmp_path / "jobs.csv"
    rows = ["id,submit,start,end,gpus", "a,0,0,3600,4", "b,0,,,{}"]
    for gpus, said in ((8, "2 of 2 rows; gpu: 4 hours"), (2, "2 of 2 rows; the same load")):
        file.write_text("\n".join(rows).format(gpus))
        first, *others = guess(file).readings
        (line,) = (r.line(first) for r in others if r.change.startswith("open_end"))
        assert said in line


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ("cores start_ts end_ts", {"cpu": "cores", "created": "start_ts", "deleted": "end_ts"}),
        (
            "n_gpus date_submitted jobStartDate job_end_utc",
            {
                "gpu": "n_gpus",
                "created": "date_submitted",
                "started": "jobStartDate",
                "deleted": "job_end_utc",
            },
        ),
        (
            "alloc_cpus arrival_ts wall_time_s",
            {"cpu": "alloc_cpus", "created": "arrival_ts", "duration": "wall_time_s"},
        ),
        ("cpu_hours submit elapsed_s", {"cpu": 1, "created": "submit", "duration": "elapsed_s"}),
        ("gpus queue_time start end", {"gpu": "gpus", "created": "start", "deleted": "end"}),
    ],
)
def test_words_beside_a_name_do_not_hide_it(tmp_path, header, found):
    """… unless they make something else of it: core-hours are no cores, a queue time no queue."""
    columns = header.split()
    whole = "".join(f"{','.join(str(60 * i + n) for n in range(len(columns)))}\n" for i in range(9))
    (tmp_path / "log.csv").write_text(f"{','.join(columns)}\n{whole}")
    drafted = guess(tmp_path / "log.csv").mapping["jobs"]["columns"]
    assert {role: column for role, column in drafted.items() if role != "name"} == found


def test_what_is_wrong_with_rows_or_file_is_said_of_the_draft(tmp_path):
    text = "id,cores,submit,end\na,1,0,60\nb,x,0,9\nc,2,5,3\n"
    (tmp_path / "log.csv").write_text(text)
    assert "1 of 3 rows (column cores is not a number (1, first in row 3)" in (
        guess(tmp_path / "log.csv").toml()
    )
    packed = bytearray(gzip.compress(text.encode()))
    packed[-8] ^= 1  # the checksum
    (tmp_path / "log.csv.gz").write_bytes(packed)
    with pytest.raises(TraceError, match="damaged"):
        guess(tmp_path / "log.csv.gz")


TABLES = tomllib.loads(Path(__file__).with_name("public_tables.toml").read_text("utf-8"))
FORMS = {"iso": "%Y-%m-%d %H:%M:%S", "zone": "%Y-%m-%d %H:%M:%S+00:00"}
FORMS |= {"t": "%Y-%m-%dT%H:%M:%S", "us": "%m/%d/%Y %I:%M:%S %p"}
IN_SECONDS = {"s": 1, "ms": 1000, "ns": 10**9, "zero": 1, "min": 1 / 60}
EPOCH = 1_700_000_000


def drawn_jobs(number=40, seed=3):
    """Jobs by what a table may say of them, times in seconds."""
    rng = np.random.default_rng(seed)
    submit = EPOCH
    for job in range(number):
        submit += int(rng.exponential(600))
        start = submit + int(rng.exponential(3000))
        run, nodes, gpus = (
            int(rng.exponential(4000)) + 60,
            int(rng.integers(1, 5)),
            int(rng.integers(0, 3)),
        )
        limit = 60 * (run // 60 + int(rng.integers(10, 300)))
        yield {
            "submit": submit,
            "start": start,
            "end": start + run,
            "run": run,
            "wait": start - submit,
            "there": start + run - submit,
            "limit": limit,
            "id": f"j{job}",
            "nodes": nodes,
            "cores": 8 * nodes,
            "gpus": gpus,
            "-": "x",
            "none": -1,
            "used": round(float(rng.uniform(0.3, 0.9)) * 8 * nodes * run, 2),
            "state": "COMPLETED",
            "mem": 32768 * nodes,
            "tres": f'"cpu={8 * nodes},gres/gpu={gpus},mem={32 * nodes}G,node={nodes}"',
        }


def written(job, meaning):
    what, _, form = meaning.partition(".")
    value = job[what]
    if form in FORMS:
        return datetime.fromtimestamp(value, UTC).strftime(FORMS[form])
    if form == "h":
        return round(value / 3600, 7)
    if form == "clock":
        return f"{value // 3600:02d}:{value // 60 % 60:02d}:{value % 60:02d}"
    return (
        round((value - EPOCH * (form == "zero")) * IN_SECONDS[form])
        if form in IN_SECONDS
        else value
    )


@pytest.mark.parametrize("name", TABLES)
def test_public_tables(tmp_path, name):
    """Headers of other people: each column is taken for what it means, in its unit."""
    columns = dict(text.rsplit(":", 1) for text in TABLES[name]["columns"].split())
    rows = list(drawn_jobs())
    text = ",".join(columns) + "\n"
    text += "".join(",".join(str(written(r, m)) for m in columns.values()) + "\n" for r in rows)
    found, tables = drafted(tmp_path, text)
    chosen, jobs = found.mapping["jobs"]["columns"], tables.jobs

    def meaning(role):
        entry = chosen.get(role)
        column = entry.get("column") if isinstance(entry, dict) else entry
        return columns.get(column, "").partition(".")[0]

    there = {what.partition(".")[0] for what in columns.values()}
    for role, what in {
        "created": "submit",
        "started": "start",
        "limit": "limit",
        "tasks": "nodes",
        "cpu": "cores",
        "gpu": "gpus",
        "name": "id",
    }.items():
        if what in there:
            assert meaning(role) == what, (role, found.notes)
        elif role in ("started", "limit") or (role == "gpu" and "tres" not in there):
            assert role not in chosen
    ran = jobs["deleted"] - jobs["started" if "started" in jobs.columns else "created"]
    assert ran.to_list() == pytest.approx([row["run"] for row in rows], abs=1)
    if {"wait", "start"} & there:
        waits = (jobs["started"] - jobs["created"]).to_list()
        assert waits == pytest.approx([row["wait"] for row in rows], abs=1)
    if "limit" in there:
        assert jobs["limit"].to_list() == pytest.approx([row["limit"] for row in rows], abs=1)
    if "tres" in there:
        tasks = jobs["tasks"] if "tasks" in jobs.columns else 1
        assert (jobs["gpu"] * tasks).to_list() == [row["gpus"] for row in rows]


def test_times_that_have_no_role_are_named(tmp_path):
    """A start that no word names is found by its place, if it is the only one that fits."""

    def lines(*offsets):
        return "".join(
            ",".join([f"j{n}", *(str(EPOCH + 900 * n + o) for o in offsets), "4"]) + "\n"
            for n in range(9)
        )

    head = "id,submit,began,end,cores\n"
    found, tables = drafted(tmp_path, head + lines(0, 300, 800))
    assert (tables.jobs["started"] - tables.jobs["created"]).to_list() == [300] * 9
    assert "began is read as the start: it lies between submission and end" in found.notes
    head = "id,submit,prolog,start,epilog,end,updated,cores\n"
    found, _ = drafted(tmp_path, head + lines(0, 200, 300, 700, 800, 9000))
    told = "times that are not used: prolog, epilog; is one the start or the end?"
    assert told in found.notes
    head = "id,submit,start,last_state,cores\n"
    found = guess_of(tmp_path, head + lines(0, 300, 800))
    assert "times that are not used: last_state; is one the end?" in found.notes
    found = guess_of(tmp_path, "id,t_a,t_b,t_c,cores\n" + lines(0, 300, 800))
    assert "times that are not used: t_a, t_b, t_c; is one the submission?" in found.notes


def test_fractions_of_days_and_relative_microseconds_are_read_every_way(tmp_path):
    def table(unit):
        rows = (f"j{n},{3600 * n / unit},{(3600 * n + 1800) / unit},4\n" for n in range(1, 99))
        return "id,start,end,cores\n" + "".join(rows)

    said = {reading.what: reading for reading in drafted(tmp_path, table(86400))[0].readings}
    assert said["times in days"].hours["cpu"] == pytest.approx(98 * 4 / 2)
    said = {reading.what: reading for reading in drafted(tmp_path, table(1e-6))[0].readings}
    assert said["times in us"].hours["cpu"] == pytest.approx(98 * 4 / 2)
    (drafted_so, *_) = guess_of(tmp_path, table(1e-6)).readings
    assert "microseconds" in str(drafted_so.doubts)


def test_an_amount_is_known_by_the_end_of_its_name(tmp_path):
    rows = "".join(f"u{n},{n},{n + 90},8,0.{n}3\n" for n in range(1, 20))
    found, tables = drafted(tmp_path, "workunit,submit,end,vm_num_cpus,price_per_gpu\n" + rows)
    assert tables.jobs.select("name", "cpu", "gpu").rows()[0] == ("u1", 8, 0)
    assert "vm_num_cpus may be cores, by the end of its name" in found.notes


def test_a_length_of_time_that_may_be_a_limit_is_said(tmp_path):
    found, _ = drafted(tmp_path, "id,submit,walltime,cores\na,0,100,2\nb,50,70,1\n")
    assert any("walltime" in note and "limit" in note for note in found.notes)


def test_dates_of_day_or_month_are_read_as_those_that_lie_close_together(tmp_path):
    """The third to the ninth of April, not of March to September; the other way is named."""
    rows = "".join(f"j{n},4/{n}/2024 10:00:00,4/{n}/2024 12:00:00,2\n" for n in range(3, 10))
    found, tables = drafted(tmp_path, "id,submit,end,cores\n" + rows)
    assert tables.jobs["created"].to_list() == [86400.0 * n for n in range(7)]
    assert any("the other way fits" in note for note in found.notes)


def test_times_in_milliseconds_are_doubted(tmp_path):
    rows = "".join(f"j{n},{n * 600_000},{3_600_000 + n},4\n" for n in range(400))
    found = guess_of(tmp_path, "id,submit,runtime,cores\n" + rows, "jobs.csv")
    assert found.readings[0].doubts
    assert {*found.readings[0].doubts} <= {*found.notes}


def test_devices_of_each_node(tmp_path):
    rows = "".join(f"j{n},{n},{n + 90},8,4\n" for n in range(20))
    found, tables = drafted(tmp_path, "id,submit,end,nodes,gpus\n" + rows)
    assert found.mapping["jobs"]["columns"]["gpu"]["per"] == "task"
    assert tables.jobs["gpu"].to_list() == [4] * 20


def test_times_out_of_order_are_said(tmp_path):
    rows = "".join(f"j{n},{100 * n},{100 * n - 50},{100 * n + 70},4\n" for n in range(1, 20))
    found = guess_of(tmp_path, "id,submit,start,end,cores\n" + rows, "jobs.csv")
    assert any("order" in note for note in found.notes)


def test_a_draft_of_a_known_format_says_what_its_reader_gives(tmp_path):
    """Delays of 100 s for 4 and 2 processors, one cut at 60 s; limits would be 1,320 s."""
    jobs = [
        {"id": n, "subtime": 0, "walltime": w, "res": r, "profile": "d"}
        for n, w, r in (("a", 300, 4), ("b", 60, 2))
    ]
    text = json.dumps(
        {"nb_res": 8, "jobs": jobs, "profiles": {"d": {"type": "delay", "delay": 100}}}
    )
    found = guess_of(tmp_path, text, "w.json")
    assert "this is a file of batsim" in found.notes[0]
    assert f"as 2 jobs of {520 / 3600:.3g} cpu-hours" in found.notes[0]


def test_an_id_of_groups_is_no_name_of_jobs(tmp_path):
    rows = [f"{i % 9},{i % 3},{60 * i},{60 * i + 5},{60 * i + 65},2,48" for i in range(40)]
    head = "user_ID,group_ID,submit_time,start_time,end_time,node_count,tasks_requested"
    found, _ = drafted(tmp_path, "\n".join([head, *rows]) + "\n")
    columns = tomllib.loads(found.toml("jobs.csv"))["jobs"]["columns"]
    assert columns["account"] == "group_ID"
    assert columns["name"] == {"value": "job"}
    # The same under a word that nothing knows.
    found, _ = drafted(tmp_path, "\n".join([head.replace("group", "pot"), *rows]) + "\n")
    assert tomllib.loads(found.toml("jobs.csv"))["jobs"]["columns"]["name"] == {"value": "job"}
