"""The Philly job log, from records written by the publisher's description."""

from __future__ import annotations

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangwise import TraceError
from gangwise.logs.formats.training import Philly
from gangwise.papers.scenarios.opening import open_trace

MACHINES = "machineId, number of GPUs, single GPU mem\nm1,2, 12GB\nm2,8, 24GB\nm3,8, 24GB\n"


def at(text):
    return f"2017-10-07 {text}"


def attempt(start, end, **servers):
    detail = [{"ip": ip, "gpus": [f"gpu{i}" for i in range(n)]} for ip, n in servers.items()]
    return {"start_time": start, "end_time": end, "detail": detail}


def job(jobid, submitted, *attempts, status="Pass"):
    return {
        "status": status,
        "vc": "v",
        "jobid": jobid,
        "attempts": list(attempts),
        "submitted_time": submitted,
        "user": "u",
    }


JOBS = [
    job("one", at("01:00:00"), attempt(at("01:00:30"), at("01:02:00"), m1=2)),
    # restarted: what it holds is what its first attempt held, until the last one ends
    job(
        "again",
        at("01:01:00"),
        attempt(at("01:01:10"), at("01:02:00"), m2=8),
        attempt(at("01:03:00"), at("01:10:00"), m3=4),
        status="Failed",
    ),
    job("uneven", at("01:02:00"), attempt(at("01:02:00"), at("01:04:00"), m1=2, m2=8, m3=8)),
    job("running", at("01:03:00"), attempt(at("01:05:00"), "None", m2=1)),
    job("never", at("01:04:00"), status="Killed"),
    job("no detail", at("01:04:00"), attempt(at("01:04:10"), at("01:04:20"))),
    job("no start", at("01:04:00"), attempt(None, at("01:30:00"), m3=1), status="Killed"),
    job("no submission", "None", attempt(at("01:04:10"), at("01:04:20"), m1=1)),
]
# row, name, gpu, tasks, created, started, deleted; the last time of the log is 01:30:00
TABLE = [
    (1, "one", 2, 1, 0, 30, 120),
    (2, "again", 8, 1, 60, 70, 600),
    (3, "uneven", 8, 2, 120, 120, 240),
    (3, "uneven", 2, 1, 120, 120, 240),
    (4, "running", 1, 1, 180, 300, 1800),
    (7, "no start", 1, 1, 240, None, 1800),
]
COLUMNS = ["row", "name", "gpu", "tasks", "created", "started", "deleted"]


def write(folder, jobs=JOBS, machines=MACHINES):
    (folder / "cluster_job_log").write_text(json.dumps(jobs, indent=4))
    if machines:
        (folder / "cluster_machine_list").write_text(machines)
    return folder


def test_tables_by_hand(tmp_path):
    tables = Philly(write(tmp_path)).scan()
    assert tables.jobs.select(COLUMNS).rows() == TABLE
    assert tables.jobs["job"].to_list() == tables.jobs["name"].to_list()
    assert tables.jobs["status"].to_list() == ["Pass", "Failed", *["Pass"] * 3, "Killed"]
    assert set(tables.jobs["models"]) == {""}
    assert tables.jobs.select("cpu", "mem").sum().row(0) == (0, 0)
    assert tables.servers.rows() == [
        (2, "m1", "12GB", 0, 0, 2),
        (3, "m2", "24GB", 0, 0, 8),
        (4, "m3", "24GB", 0, 0, 8),
    ]
    machines, log = tables.stages
    assert (machines.read, machines.kept, dict(machines.dropped)) == (3, 3, {})
    assert (log.read, log.kept) == (8, 5)
    assert dict(log.dropped) == {
        "no attempt is recorded, so its GPUs are not known": (1, 5),
        "its first attempt records no GPUs": (1, 6),
        "no submitted_time is recorded": (1, 8),
    }
    report = str(Philly(tmp_path).fidelity())
    assert "1 jobs have different numbers of GPUs" in report
    assert "1 jobs have no end_time" in report
    assert "GPUs only" in report


@pytest.mark.parametrize("form", ["folder above", "the log itself", "one line", "gzip", "BOM"])
def test_wherever_and_however_the_log_is_written(tmp_path, form):
    folder = tmp_path / "trace-data"
    folder.mkdir()
    log = write(folder) / "cluster_job_log"
    if form == "one line":
        log.write_text(json.dumps([*JOBS, job("x" * 70_000, None)]))
    if form == "gzip":
        (folder / "cluster_job_log.gz").write_bytes(gzip.compress(log.read_bytes()))
        log.unlink()
    if form == "BOM":
        log.write_text("\ufeff" + log.read_text().replace("\n", "\r\n"))
    path = log if form == "the log itself" else tmp_path
    assert Philly.recognise(path)
    tables = Philly(path).scan()
    assert tables.jobs.select(COLUMNS).rows() == TABLE
    assert len(tables.servers) == 3


def test_the_two_files_disagree(tmp_path):
    """As in the published files: more GPUs in use on a server than it is listed with."""
    jobs = [job("a", at("01:00:00"), attempt(at("01:00:00"), at("01:01:00"), m1=8, gone=1))]
    listed = Philly(write(tmp_path, jobs)).scan()
    assert listed.servers["gpu"].to_list() == [2, 8, 8]
    assert any("more GPUs on 1 servers" in note and "listed" in note for note in listed.notes)
    assert any("1 servers of the job log are not in" in note for note in listed.notes)
    seen = Philly(tmp_path, capacity="seen").scan()
    assert seen.servers["gpu"].to_list() == [8, 8, 8]
    with pytest.raises(TraceError, match="listed"):
        Philly(tmp_path, capacity="guessed")


def test_without_a_machine_list_there_are_no_servers(tmp_path):
    report = Philly(write(tmp_path, machines="")).fidelity()
    assert report.servers == 0
    assert report.capacity == {}
    assert "no machine list" in str(report)


BAD = {
    "the record is not an object": 7,
    "jobid is missing": {**JOBS[0], "jobid": None},
    "jobid was used before": JOBS[0],
    "status is not": {**JOBS[0], "jobid": "x", "status": "Done"},
    "attempts is not a list": {**JOBS[0], "jobid": "x", "attempts": "none"},
    "submitted_time is not a time": {**JOBS[0], "jobid": "x", "submitted_time": "yesterday"},
    "submitted_time is not a time such": {**JOBS[0], "jobid": "x", "submitted_time": 5},
    "end_time is not a time": job("x", at("01:00:00"), attempt(at("01:00:00"), "?", m1=1)),
    "ends before it starts": job("x", at("01:00:00"), attempt(at("01:09:00"), at("01:08:00"))),
    "before submitted_time": job("x", at("01:09:00"), attempt(at("01:08:00"), at("01:10:00"))),
    "detail is not a list": {
        **JOBS[0],
        "jobid": "x",
        "attempts": [{"start_time": None, "end_time": None, "detail": [{"ip": "m1"}]}],
    },
}


@pytest.mark.parametrize("reason", BAD)
def test_bad_records_are_counted_and_named(tmp_path, reason):
    write(tmp_path, [*JOBS, BAD[reason]])
    tables = Philly(tmp_path).scan()
    assert tables.jobs.select(COLUMNS).rows() == TABLE
    ((why, found),) = [item for item in tables.stages[-1].dropped.items() if reason in item[0]]
    assert found == (1, 9)
    with pytest.raises(TraceError, match=reason) as error:
        Philly(tmp_path, strict=True).scan()
    assert (error.value.row, error.value.file) == (9, tmp_path / "cluster_job_log")
    assert why in str(error.value)


def test_published_gaps_do_not_stop_a_strict_reading(tmp_path):
    assert Philly(write(tmp_path), strict=True).scan().jobs.select(COLUMNS).rows() == TABLE


def test_documents_that_cannot_be_used(tmp_path):
    log = write(tmp_path) / "cluster_job_log"
    whole = log.read_text()
    for cut in (len(whole) // 2, len(whole) - 2, whole.index("gpu1") + 2):
        log.write_text(whole[:cut])
        with pytest.raises(TraceError, match="cut short") as error:
            Philly(tmp_path).scan()
        assert 0 <= whole[:cut].count("\n") + 1 - error.value.row <= 1
    log.write_text(whole.replace('"vc"', "vc", 1))
    with pytest.raises(TraceError, match="row 4"):
        Philly(tmp_path).scan()
    packed = tmp_path / "cluster_job_log.gz"
    packed.write_bytes(gzip.compress(whole.encode())[:-30])
    log.unlink()
    with pytest.raises(TraceError, match="cut short"):
        Philly(tmp_path).scan()
    packed.unlink()
    with pytest.raises(TraceError, match="philly"):
        Philly(tmp_path).scan()
    with pytest.raises(TraceError, match="unpacked"):
        Philly(tmp_path).scan()
    write(tmp_path, [JOBS[4]])
    with pytest.raises(TraceError, match="attempt"):
        Philly(tmp_path).scan()
    write(tmp_path)
    (tmp_path / "copy.json").write_text(whole)
    with pytest.raises(TraceError, match="2 files"):
        Philly(tmp_path).scan()


def test_it_plays(tmp_path):
    """The cluster has GPUs of two kinds, and no cores and no memory."""
    scenario = open_trace(write(tmp_path), slot="10m")
    problem = scenario.instance(seed=0).problem
    assert problem.cluster.devices == ("gpu:12GB", "gpu:24GB")


def texts():
    return st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.just("None")


JUNK = st.recursive(
    texts(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "jobid",
                    "status",
                    "attempts",
                    "detail",
                    "ip",
                    "gpus",
                    "submitted_time",
                    "start_time",
                    "end_time",
                ]
            ),
            inner,
            max_size=6,
        )
    ),
    max_leaves=12,
)


@given(st.lists(JUNK, max_size=4))
def test_every_record_is_kept_or_counted(tmp_path_factory, junk):
    folder = write(tmp_path_factory.mktemp("junk"), [*JOBS, *junk])
    log = Philly(folder).scan().stages[-1]
    assert log.read == len(JOBS) + len(junk)
    assert log.kept + sum(n for n, _ in log.dropped.values()) == log.read
    assert log.kept == 5  # no junk has a time of submission, GPUs and a status
