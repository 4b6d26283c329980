"""Jobs out of logs: waiting is not work, nothing is lost silently, and the first line says so."""

from __future__ import annotations

import csv
import gzip
import json
import math
from datetime import datetime
from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from gangwise import TraceError, UnknownName
from gangwise.cli import app
from gangwise.core.errors import GangwiseError
from gangwise.jobs import Jobs, Nodes, simulate_jobs
from gangwise.jobs.metrics import Outcome
from gangwise.logs import open_tables
from gangwise.logs.formats.slurm import OPEN_XDMOD, listing_schema
from gangwise.logs.inspect import report, summary
from gangwise.logs.jobs import _peak_use, jobs_of, open_jobs

from .csvs import pod, write
from .made import tables

SERVER = ("s", "", 8.0, 0.0, 0.0)


def job(name="j", cpu=1.0, created=0.0, deleted=10.0, gpu=0.0):
    return (name, cpu, 0.0, gpu, created, deleted)


def test_work_is_from_start_to_end_and_waiting_is_apart():
    made = tables(
        [job("a", 2, 0, 100), job("b", 2, 10, 50), job("c", 4, 20, 80)],
        [SERVER],
        started=[40.0, 10.0, None],
        elapsed=[None, 30.0, None],
        limit=[120.0, None, None],
        user=["u", "v", "u"],
    )
    log = jobs_of(made)
    assert log.jobs.submit.tolist() == [0, 10]
    assert log.jobs.run.tolist() == [60, 30]  # elapsed, where the log gives it
    assert log.jobs.limit.tolist() == [120, 30]
    assert log.jobs.recorded_start.tolist() == [40, 10]
    assert log.jobs.recorded_end.tolist() == [100, 50]
    assert log.rows["limit"].to_list() == [120, None]
    assert (log.played.hours, log.played.unit) == (pytest.approx(180 / 3600), "core")
    assert log.played.lost == {"without a start": (1, 0.0, 3)}
    assert log.played.line.startswith("made: 66.7 % of 3 jobs and 100 % of 0.05 core-hours are")
    assert "limits unknown: run times used: 1" in log.played.line
    found = summary(log, made)
    assert found["wait"]["mean"] == 20
    assert found["waiting_share"] == pytest.approx(40 / 130)


def test_without_starts_the_line_says_that_waiting_is_counted_as_work():
    made = tables([job("a", 2, 5, 105)], [SERVER])
    log = jobs_of(made)
    assert log.jobs.run.tolist() == [100]
    assert np.isnan(log.jobs.recorded_start).all()
    assert "waits are not known" in log.played.line
    assert summary(log, made)["wait"] is None


BAD = {
    "larger than the cluster": job("large", 9),
    "without a start": job("never", created=3.0, deleted=None),
    "without a submission time": job("when", created=None),
    "submitted at a negative time": job("early", created=-5.0),
    "that ended before they started": job("backwards", created=1.0, deleted=0.5),
    "with a missing or negative number of devices": job("what", cpu=-2.0),
    "that ask for no device": job("nothing", cpu=0.0),
}


@pytest.mark.parametrize("why", BAD)
def test_each_bad_job_is_named_with_its_row(why):
    rows = [job("good", 4, 0, 3600), BAD[why], job("also", 4, 0, 3600)]
    started = [None if row[0] == "never" else float(row[4] or 0) for row in rows]
    log = jobs_of(tables(rows, [SERVER], started=started))
    assert set(log.played.lost) == {why}
    assert log.played.lost[why][0] == 1
    assert log.played.lost[why].row == 2
    assert (log.played.read, log.played.played) == (3, 2)
    assert f"1 {why} (row 2)" in log.played.line
    assert log.jobs.id.tolist() == ["good", "also"]


def test_no_tasks_and_circles():
    made = tables(
        [job(name) for name in "abcdef"],
        [SERVER],
        tasks=[1, 0, 1, 1, 1, 1],
        job=["J"] * 6,
        after=["", "", "d", "c", "a|c", "gone"],
        started=[0.0] * 6,
    )
    log = jobs_of(made)
    assert log.jobs.id.tolist() == ["J/a", "J/e", "J/f"]
    assert {why: lost.jobs for why, lost in log.played.lost.items()} == {
        "with no task": 1,
        "that come after one another in a circle": 2,
    }
    assert log.jobs.after.tolist() == [0]
    assert "dependencies on jobs that are not in the log: dropped: 1" in log.played.line


NUMBER = st.sampled_from([None, -1.0, 0.0, 0.5, 1.0, 3.0, 7.0, 9.0, 1e9])


@given(
    rows=st.lists(
        st.tuples(NUMBER, NUMBER, NUMBER, NUMBER, st.sampled_from([None, 0, 1, 2, 9])), min_size=1
    )
)
def test_every_job_is_played_or_accounted_for(rows):
    made = tables(
        [
            (f"j{n}", cpu, 0.0, 0.0, created, deleted)
            for n, (cpu, created, _, deleted, _) in enumerate(rows)
        ],
        [SERVER, ("t", "", 4.0, 0.0, 0.0)],
        started=[row[2] for row in rows],
        tasks=[row[4] for row in rows],
    )
    try:
        log = jobs_of(made)
    except TraceError:  # nothing is left, or nothing is asked for
        assert not any(
            0 < (row[0] or 0) <= 8 and row[1] == row[2] == 0 <= (row[3] or 0) and row[4] == 1
            for row in rows
            if row[3] is not None
        )
        return
    lost = log.played.lost
    assert log.played.read == len(rows) == log.played.played + sum(n for n, _, _ in lost.values())
    assert log.played.hours == pytest.approx(
        log.played.played_hours + sum(hours for _, hours, _ in lost.values()), rel=1e-9, abs=1e-12
    )
    for cpu, count in zip(log.rows["cpu"], log.jobs.tasks):
        room = sum(math.floor(size / cpu + 1e-9) for size in (8, 4))
        assert 0 < count <= room
    assert sorted(set(log.rows["row"]) | {n for _, _, n in lost.values()}) == sorted(
        {*log.rows["row"], *(n for _, _, n in lost.values())}
    )
    json.dumps([log.played.to_dict(), summary(log, made)], allow_nan=False)
    assert report(log, summary(log, made)).startswith(log.played.line)


SPANS = st.lists(
    st.tuples(st.integers(0, 20), st.integers(1, 10), st.integers(1, 4), st.sampled_from("ab")),
    min_size=1,
    max_size=15,
)


@given(spans=SPANS)
def test_the_most_in_use_at_once_against_every_second(spans):
    held = pl.DataFrame(
        [(host, float(a), float(a + n), float(size)) for a, n, size, host in spans],
        schema=["host", "from", "to", "cpu"],
        orient="row",
    )
    most = {
        where: max(
            sum(s for a, n, s, host in spans if host == where and a <= t < a + n) for t in range(31)
        )
        for *_, where in spans
    }
    assert dict(_peak_use(held, ["cpu"], "host").rows()) == most


@given(spans=SPANS, bins=st.integers(1, 6))
def test_the_load_against_every_part_of_a_second(spans, bins):
    made = tables([job(f"j{i}", s, a, a + n) for i, (a, n, s, _) in enumerate(spans)], [SERVER])
    found = summary(jobs_of(made), made, bins)
    edges = found["load_edges_s"]
    first, last = min(a for a, *_ in spans), max(a + n for a, n, *_ in spans)
    assert (edges[0], edges[-1]) == (first, last)
    times = first + (last - first) * (np.arange(60 * bins) + 0.5) / (60 * bins)
    plain = [sum(s for a, n, s, _ in spans if a <= t < a + n) / 8 for t in times]
    by_bin = np.reshape(plain, (bins, 60)).mean(axis=1)
    near = len(spans) * 4 / 8 / 60  # a part that holds an end of a job
    assert found["load"] == pytest.approx(by_bin, abs=near)
    assert found["implied_load"] == pytest.approx(np.mean(found["load"]))


def test_jobs_and_inspect_say_one_load(tmp_path):
    """Also where jobs last longer than they come, wait, and cannot all be played."""
    lines = ["; MaxProcs: 8", "1 0 50 600 4 -1 -1 4 900 -1 1 3 1 2 -1 -1 -1 -1"]
    lines += ["2 10 -1 30 9 -1 -1 16 60 -1 1 3 1 2 -1 -1 -1 -1"]
    (tmp_path / "log.swf").write_text("\n".join(lines))
    inspected = json.loads(command("trace", "inspect", tmp_path / "log.swf", "--json").stdout)
    told = inspected["traces"][0]["fidelity"]["load"]["cpu"]
    assert told == pytest.approx((600 * 4 + 30 * 16) / 8 / 650)
    found = json.loads(command("jobs", tmp_path / "log.swf", "--json").stdout)
    assert found["implied_load"] == told
    shown = f"{100 * told:.3g} %"
    assert f"load: {shown} of cpu" in command("jobs", tmp_path / "log.swf").stdout
    assert f" {shown}" in command("trace", "inspect", tmp_path / "log.swf").stdout


def test_what_a_job_type_is():
    made = tables(
        [job("a", gpu=1.0), job("b", 2), job("c", 2)],
        [("s", "T4", 8.0, 0.0, 2.0)],
        models=["T4", "", ""],
        started=[0.0] * 3,
        user=["u", "v", "u"],
        partition=["p", "", "q"],
    )
    assert jobs_of(made).jobs.types == ("u", "v")
    assert jobs_of(made, job_type="partition").jobs.types == ("p", "q", "unknown")
    assert jobs_of(made, job_type="request").jobs.types == ("1.0gpu-T4", "2.0cpu")
    with pytest.raises(UnknownName, match="partition"):
        jobs_of(made, job_type="partitoin")


def test_models_are_labels_and_parts_of_gpus_are_shared():
    made = tables(
        [job("a", 0, gpu=0.5), job("b", 0, gpu=2.0), job("c", 0, gpu=1.0), job("d", 0, gpu=3.0)],
        [("n1", "A", 0.0, 0.0, 2.0), ("n2", "B", 0.0, 0.0, 4.0)],
        models=["", "A|B", "C", "A"],
        started=[0.0] * 4,
    )
    log = jobs_of(made)
    assert log.nodes.shared == "gpu"
    assert log.jobs.id.tolist() == ["a", "b"]  # no C, and only 2 of A
    assert log.jobs.shapes[log.jobs.shape[1]].constraint == (("A|B", "yes"),)
    assert log.nodes.labels == ({"model": "A", "A|B": "yes"}, {"model": "B", "A|B": "yes"})
    assert log.played.unit == "GPU"
    assert log.played.lost["larger than the cluster"].jobs == 2


def test_nodes_of_ones_own():
    log = jobs_of(tables([job("a", 4), job("b", 40)], [SERVER]), nodes=Nodes.alike(10, {"cpu": 4}))
    assert log.jobs.id.tolist() == ["a"]
    assert len(log.nodes) == 10


def test_what_came_before_the_jobs_is_in_the_line(tmp_path):
    log = open_jobs(
        write(tmp_path, [pod("a", created=0, deleted=9), pod("b", created=9, deleted=1)])
    )
    assert log.played.read == 2
    assert "1 because deletion_time is before creation_time (row 3)" in log.played.line


# ------------------------------------------------------------------------------------------ Slurm


def xdmod(job, submit=0, start=5, end=65, hosts="n[01-02]", **others):
    """A row as Open XDMoD stores it; times in seconds of a day."""
    held = {
        "JobID": job,
        "JobIDRaw": job,
        "User": "ann",
        "Partition": "black",
        "Submit": stamp(submit),
        "Start": stamp(start),
        "End": stamp(end),
        "State": "COMPLETED",
        "NNodes": 2,
        "ReqMem": "1000Mn",
        "ReqTRES": "cpu=8,node=2",
        "Timelimit": "1-00:02:00",
        "NodeList": hosts,
        "JobName": 'sim "a"',
        **others,
    }
    return "|".join(str(held.get(name, "")) for name in OPEN_XDMOD.split("|"))


def stamp(second):
    return (
        second if isinstance(second, str) else f"2024-01-15T10:{second // 60:02d}:{second % 60:02d}"
    )


@pytest.mark.parametrize("seed", range(3))
def test_jobs_from_before_a_log_hold_their_devices_from_its_beginning(tmp_path, seed):
    """A log that was cut out of a longer one, as sacct -S does, whose rules explain all of it."""
    rng, J = np.random.default_rng(seed), 400
    submit = np.cumsum(rng.exponential(700, J)).round()
    run, size = np.maximum(rng.lognormal(8, 1.8, J), 10).round(), rng.integers(1, 9, J)
    played = simulate_jobs(Jobs.of(submit, run, size), Nodes.pool(32), "fcfs+easy")
    for begins in -1.0, submit[J // 3]:
        on = np.flatnonzero(played.end >= begins)
        columns = zip(on, submit[on], played.start[on] - submit[on], run[on], size[on])
        rows = ["; MaxProcs: 32\n; MaxNodes: 32"]
        rows += [
            f"{j} {at:.0f} {wait:.0f} {r:.0f} {n} -1 -1 {n} {r:.0f} -1 1 {j % 9} 1 -1 0 1 -1 -1"
            for j, at, wait, r, n in columns
        ]
        (tmp_path / "log.swf").write_text("\n".join(rows))
        log = open_jobs(tmp_path / "log.swf")
        ran = played.start[on] < played.end[on].min()
        assert log.jobs.early.sum() == (ran.sum() if begins > 0 else 0)
        then = Outcome.recorded(log.jobs, log.nodes)
        now = Outcome.of(simulate_jobs(log.jobs, log.nodes, "fcfs+easy"), "fcfs+easy")
        assert (now.start == then.start).all()
        assert now.summary()["waiting.mean"] == then.waiting[~log.jobs.early].mean()
    assert "ran when the log begins: submitted when they started, in no mean: " in log.played.line


def test_a_listing_without_a_header(tmp_path):
    rows = [
        xdmod(7),
        xdmod(8, 10, 20, 80, "n01", NNodes=1, ReqTRES="cpu=4,mem=8G,node=1", Timelimit="UNLIMITED"),
        xdmod(9, 10, "Unknown", 90, "None assigned", State="CANCELLED by 3"),
        xdmod(10, 10, 90, 90, "None assigned", State="CANCELLED by 3"),
        xdmod(11, 0, 30, 20),
        xdmod(12, 0, 30, 40, "n[03-"),
        xdmod(13, 0, 30, 40, "n01", ReqTRES="cpu=0,node=0"),
        xdmod(14, 0, 30, 40, "n01", NNodes=1, ReqTRES="cpu=4,node=1", ReqMem=f"{2**31 + 3072}Mn"),
        "broken|row",
        xdmod("7.batch"),
    ]
    (tmp_path / "log").write_text("\n".join(rows) + "\n")
    log = open_jobs(tmp_path / "log")
    assert log.jobs.id.tolist() == ["7", "12", "14", "8", "9", "10"]
    assert log.jobs.run.tolist() == [60, 10, 10, 60, 0, 0]
    assert log.jobs.withdrawn.tolist() == [np.inf] * 4 + [90, 90]  # cancelled before a start
    assert log.rows["limit"].to_list() == [86520, 86520, 86520, 365 * 86400, 86520, 86520]
    assert log.rows["mem"].to_list() == [1000 / 1024, 1000 / 1024, 12.0, 8.0] + [1000 / 1024] * 2
    assert [shape.per_node for shape in log.jobs.shapes] == [1] * len(log.jobs.shapes)
    assert log.nodes.names == ("n01", "n02")
    ran = [log.host[a:b].tolist() for a, b in pairwise(log.host_from)]
    assert ran == [[0, 1], [], [0], [0], [], []]
    assert {why: (n, row) for why, (n, _, row) in log.played.lost.items()} == {
        "because the number of fields is not that of the columns": (1, 9),
        "because End is before Start": (1, 5),
        "because the number of nodes is not known": (1, 7),
    }
    assert log.played.read == 9  # a step is no job
    assert any(
        "NodeList that is no list of nodes ('n[03-', first in row 6)" in n for n in log.played.notes
    )


def test_declared_columns(tmp_path):
    file = tmp_path / "log"
    file.write_text("7|ann|2024-01-15T10:00:00|2024-01-15T10:00:10|00:01:00|cpu=8,node=2\n")
    columns = "JobID,User,Submit,Start,Elapsed,ReqTRES"
    log = open_jobs(file, trace="slurm-sacct", columns=columns)
    assert (log.jobs.run.tolist(), log.jobs.recorded_end.tolist()) == ([60], [70])
    with pytest.raises(TraceError, match="ReqTRES"):
        listing_schema("JobID|Submit|Start|End")
    with pytest.raises(TraceError, match="sacct"):
        open_jobs(file, trace="slurm-sacct")


def test_gpus_that_only_the_allocation_names(tmp_path):
    row = xdmod(7, AllocTRES="billing=8,cpu=8,gres/gpu:a100=4,mem=2000M,node=2")
    (tmp_path / "log").write_text(row + "\n")
    log = open_jobs(tmp_path / "log")
    assert log.rows["gpu"].to_list() == [2.0]
    assert log.played.unit == "GPU"


# ----------------------------------------------------------------------------------- real and CLI


def test_a_real_slurm_log_by_plain_reading(traces):
    names = OPEN_XDMOD.split("|")
    text = gzip.decompress((traces / "slurm-open-xdmod" / "phillips.log.gz").read_bytes()).decode()
    rows = [dict(zip(names, line.split("|"))) for line in text.splitlines()]
    ran = [row for row in rows if row["NodeList"] != "None assigned"]
    read = open_tables(traces / "slurm-open-xdmod")
    log = jobs_of(read)
    # Three jobs ran when the log begins: what they had waited is not known.
    early = [rows[row] for row in log.jobs.row[log.jobs.early]]
    first = min(row["Start"] for row in ran if row not in early)
    assert len(early) == 3
    assert all(row["Start"] <= first for row in early)
    hours, waits = 0.0, []
    for row in ran:
        submit, start, end = (datetime.fromisoformat(row[n]) for n in ("Submit", "Start", "End"))
        hours += int(row["NCPUS"]) * (end - start).total_seconds() / 3600
        waits += [(start - submit).total_seconds()] * (row not in early)
    assert (log.played.read, log.played.played) == (len(rows), len(rows)) == (4285, 4285)
    assert np.isfinite(log.jobs.withdrawn).sum() == len(rows) - len(ran) == 239
    assert log.played.played_hours == pytest.approx(hours)
    found = summary(log, read)
    assert found["wait"]["mean"] == pytest.approx(np.mean(waits))
    assert found["recorded_nodes"] == len(ran)


def test_real_pods_by_plain_reading(traces):
    file = traces / "alibaba-gpu-v2023" / "openb_pod_list_default.csv"
    with file.open() as opened:
        rows = list(csv.DictReader(opened))
    ran = [row for row in rows if row["scheduled_time"]]
    hours = sum(
        int(r["num_gpu"])
        * int(r["gpu_milli"])
        / 1000
        * (int(r["deletion_time"]) - int(r["scheduled_time"]))
        for r in ran
    )
    log = open_jobs(file.parent)
    assert (log.played.read, log.played.played) == (len(rows), len(rows)) == (8152, 8152)
    assert np.isfinite(log.jobs.withdrawn).sum() == len(rows) - len(ran) == 897
    assert log.played.played_hours == pytest.approx(hours / 3600)
    assert log.nodes.shared == "gpu"
    assert len(log.nodes) == 1523


@pytest.mark.parametrize("name", ["google-2011", "alibaba-gpu-v2020", "alibaba-v2018"])
def test_twins_are_jobs_too(name):
    made = open_tables(f"twin:{name}", days=0.1)
    log = jobs_of(made)
    assert log.played.played > 0.9 * log.played.read > 0
    assert report(log, summary(log, made))


def command(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)])


def test_command(tmp_path):
    write(tmp_path, [pod(f"p{i}", gpus=1, milli=500, created=i, deleted=i + 60) for i in range(50)])
    done = command("jobs", tmp_path)
    assert done.exit_code == 0
    assert done.stdout.split("\n")[0].startswith("alibaba-gpu-v2023: 100 % of 50 jobs and 100 % of")
    found = json.loads(command("jobs", tmp_path, "--json", "--type", "qos").stdout)
    assert found["played"]["line"] == done.stdout.split("\n")[0]
    assert found["job_type"] == {"column": "qos", "types": 1}
    out = tmp_path / "made.swf.gz"
    assert command("trace", "convert", tmp_path, out).exit_code == 0
    assert open_jobs(out).played.played == 50


HOSTILE = {
    "empty": b"",
    "zeros": b"\x00" * 9999,
    "newlines": b"\n" * 9999,
    "comments": b"; MaxProcs: -3\n" * 99,
    "endless": b"1 " * 99_999,
    "torn gzip": gzip.compress(b"1 0 0 1 1 -1 -1 1 1 -1 1 1 1 1 1 1 -1 -1\n" * 999)[:70],
    "negative": b"1 0 0 -5 1 -1 -1 1 1 -1 1 1 1 1 1 1 -1 -1\n",
    "no tasks": b"1 0 0 5 0 -1 -1 0 1 -1 1 1 1 1 1 1 -1 -1\n",
    "huge": b"1 0 0 5 999999999999 -1 -1 1 1 -1 1 1 1 1 1 1 -1 -1\n; MaxProcs: 1\n" * 2,
    "infinite": b"1 inf nan 5 1 -1 -1 1 1 -1 1 1 1 1 1 1 -1 -1\n",
    "circle": b"1 0 0 5 1 -1 -1 1 1 -1 1 1 1 1 1 1 1 -1\n",
    "header": b"; MaxProcs: 99999999999999999999999\n1 0 0 5 1 -1 -1 1 1 -1 1 1 1 1 1 1 -1 -1\n",
    "brackets": (xdmod(1, hosts="n[[1-") + "\n").encode(),
    "too many nodes": (xdmod(1, hosts="n[1-999999999]") + "\n").encode(),
    "dates": (xdmod(1, "2024-99-99T99:99:99") + "\n").encode(),
    "json": b'{"jobs": [{"job_id": 1, "time": {"submission": -1}}]}',
    "deep": b'{"jobs": ' + b"[" * 99_999 + b'"submission"',
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("form", ["", "swf", "slurm-sacct"])
def test_hostile_files_give_one_line_and_no_traceback(tmp_path, name, form):
    file = tmp_path / "log"
    file.write_bytes(HOSTILE[name])
    done = command("jobs", file, *(["--trace", form] if form else []))
    if done.exception is None or done.exit_code == 0:
        assert "jobs and" in done.stdout.split("\n")[0]
    else:
        assert isinstance(done.exception, GangwiseError), repr(done.exception)
        assert 0 < len(str(done.exception)) < 9999


# --------------------------------------------------------------------------------- other formats


def test_jobs_of_philly(tmp_path):
    from .test_philly import write as philly

    log = open_jobs(philly(tmp_path))
    assert log.rows.select("name", "tasks", "gpu", "submit", "start", "run").rows() == [
        ("one", 1, 2, 0, 30, 90),
        ("again", 1, 8, 60, 70, 530),
        ("uneven", 3, 6, 120, 120, 120),  # 8, 8 and 2 GPUs on three servers
        ("running", 1, 1, 180, 300, 1500),
        ("no start", 1, 1, 240, None, 0),
    ]
    assert log.rows["end"].to_list() == [120, 600, 240, None, None]
    assert log.jobs.censored.tolist() == [False] * 3 + [True, False]
    groups = log.jobs.shapes[log.jobs.shape[2]].groups
    assert [(tasks, shape.demand, shape.per_node) for tasks, shape in groups] == [
        (2, (8000,), 1),
        (1, (2000,), 1),
    ]
    assert [log.host[a:b].tolist() for a, b in pairwise(log.host_from)][:2] == [[0], [1]]
    assert (log.nodes.names, log.nodes.devices) == (("m1", "m2", "m3"), ("gpu",))
    line = log.played.line
    assert (
        "never started: in line until they were withdrawn or the log ended, in no mean: 1" in line
    )
    assert "1 because no submitted_time is recorded (row 8)" in line
    assert "still ran when the log ended: held until then, in no mean of completion: 1" in line
    assert log.played.read == 8


def test_jobs_of_alibaba_gpu_v2020(tmp_path):
    from .test_alibaba_gpu_v2020 import write as pai

    log = open_jobs(pai(tmp_path))
    by_id = {row["name"]: row for row in log.rows.to_dicts()}
    job = by_id["a1"]
    # Two workers of half a GPU start at 40 s, the parameter server at 50 s; all end at 500 s.
    assert (job["tasks"], job["start"], job["run"]) == (3, 50, 450)
    assert job["gpu"] * job["tasks"] == 1
    assert job["type"] == "fb"
    assert log.job_type == "group"
    assert log.played.lost["without a start"].jobs >= 1
    assert log.played.read == log.played.played + sum(n for n, _, _ in log.played.lost.values())


def test_jobs_of_ones_own_files(tmp_path):
    (tmp_path / "jobs.csv").write_text(
        "id;cores;submit;begin;run;asked;kind;where;urgent\n"
        "a;4;0;10;60;100;train;x|y;1\n"
        "b;4;5;;60;;;;\n"
        "c;4;20;80;0;50;;x;0\n"
    )
    (tmp_path / "map.toml").write_text(
        'trace = "csv"\n[jobs]\nfile = "jobs.csv"\nseparator = ";"\n[jobs.columns]\nname = "id"\n'
        'cpu = "cores"\ncreated = "submit"\nstarted = "begin"\nduration = "run"\nlimit = "asked"\n'
        'type = "kind"\nhosts = "where"\npriority = "urgent"\n'
    )
    log = open_jobs(tmp_path / "map.toml")
    assert log.played.lost == {"without a start": (1, 0.0, 3)}
    assert log.jobs.run.tolist() == [60, 0]
    assert log.jobs.types == ("train", "unknown")
    assert log.jobs.priority.tolist() == [1, 0]
    assert log.jobs.limit.tolist() == [100, 50]
    assert log.nodes.names == ("x", "y")


def test_jobs_of_google_events(tmp_path):
    from .test_google_2011_tasks import write as events

    def event(time, job, task, code, cpu=0.25):
        return f"{time},,{job},{task},,{code},u{job},1,9,{cpu},0.5,,0"

    second = 1_000_000
    events(
        tmp_path,
        "task_events",
        [
            event(700 * second, 1, 0, 0),
            event(700 * second, 1, 1, 0),
            event(705 * second, 1, 0, 1),
            event(710 * second, 1, 1, 1),
            event(720 * second, 2, 0, 0, 0.0001),
            event(721 * second, 2, 0, 1, 0.0001),
            event(760 * second, 1, 0, 4),
            event(770 * second, 1, 1, 4),
            event(800 * second, 3, 0, 0),
        ],
    )
    log = open_jobs(tmp_path)
    assert log.rows.select("name", "tasks", "cpu", "submit", "start", "run").rows() == [
        ("1", 2, 0.25, 100, 105, 65),
        ("2", 1, 0.0001, 120, 121, 79),
    ]
    assert log.scale["cpu"] == 1000
    assert log.jobs.shapes[log.jobs.shape[1]].demand[0] == 100  # ten-millionths do not vanish
    assert log.played.lost["without a start"].jobs == 1
    assert log.played.unit == "NCU"


def test_work_that_no_node_can_hold_is_doubted_in_line_one(tmp_path):
    """Of 11 core-hours 10 are of a task of 80 cores, where machines have 64; 64 are none."""
    (tmp_path / "server_event.csv").write_text("0,1,add,,64,1,1\n")
    rows = ["60,510,1,1,1,Terminated,8000,0.1", "60,3660,2,1,1,Terminated,100,0.1"]
    (tmp_path / "batch_task.csv").write_text("\n".join(rows))
    line = open_jobs(tmp_path).played.line
    assert "; misread, or nodes are missing: 90.9 % of core-hours ask for more than the" in line
    (tmp_path / "batch_task.csv").write_text("\n".join(rows).replace("8000", "6400"))
    assert "misread" not in open_jobs(tmp_path).played.line


@pytest.mark.parametrize(("size", "doubted"), [(104, False), (106, True)])
def test_use_above_what_there_is_is_doubted_from_five_percent(tmp_path, size, doubted):
    row = "{} {} 0 {} {} -1 -1 {} 60 -1 1 3 1 2 -1 -1 -1 -1\n"
    text = (
        "; MaxProcs: 100\n" + row.format(1, 0, 60, 90, 90) + row.format(2, 30, 60, *2 * [size - 90])
    )
    (tmp_path / "log.swf").write_text(text)
    played = open_jobs(tmp_path / "log.swf").played
    assert ("misread" in played.line) == doubted
    assert len(played.warnings) == (not doubted)
