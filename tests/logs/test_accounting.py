"""Accounting logs of batch systems: records made by hand from the systems' manuals."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gangwise import TraceError
from gangwise.jobs import Nodes
from gangwise.logs import open_tables
from gangwise.logs.formats import accounting
from gangwise.logs.formats.accounting import JSON, TEXT, Jobs, parse_pbs
from gangwise.logs.formats.tabular import reader
from gangwise.logs.jobs import jobs_of, open_jobs
from gangwise.logs.reading import RowAccount

SYSTEMS = {**TEXT, **JSON}
COLUMNS = ("name", "tasks", "cpu", "gpu", "created", "started", "deleted", "limit")
S = 1_709_539_200

PBS = "\n".join(
    [
        "03/04/2024 08:00:00;Q;7.srv;queue=workq",
        f"03/04/2024 08:00:05;E;7.srv;user=u1 group=g project=p jobname=a queue=workq ctime={S} "
        f"qtime={S} etime={S} start={S + 5} exec_host=n1/0*8+n2/0*8 Resource_List.ncpus=16 "
        "Resource_List.ngpus=4 Resource_List.select=2:ncpus=8:ngpus=2:mem=16gb "
        f"Resource_List.walltime=02:00:00 end={S + 3605} Exit_status=0",
        # Torque's words, and a job that was started again.
        f"03/04/2024 09:00:00;R;8.srv;user=u2 ctime={S + 60}",
        f"03/04/2024 09:30:00;E;8.srv;user=u2 group=g queue=q ctime={S + 60} qtime={S + 60} "
        f"start={S + 4000} exec_host=n3/0-3+n4/0-3 Resource_List.nodes=2:ppn=4 "
        f"Resource_List.walltime=01:00:00 end={S + 5000} Exit_status=271",
        f"03/04/2024 09:31:00;S;9.srv;user=u2 ctime={S + 70} start={S + 5000} exec_host=n3/0*2 "
        "Resource_List.ncpus=2 Resource_List.walltime=00:10:00",
        "03/04/2024 09:32:00;D;10.srv;requestor=u1@n1",
    ]
)
LSF = "\n".join(
    f'"JOB_FINISH" "10.1" {S + 900} 41 1001 33554 4 {S} 0 0 {S + 100} "u1" "normal" "" '
    f'"" "" "login" "d" "" "" "" "f" 0 4 "h1" "h1" "h2" "h2" 64 1.0 "arr[{n}]" "./a.out" 0.5 0.1'
    for n in (1, 2)
)


def sge(job, task=0, pe_task="NONE", slots=4, category="-l h_rt=3600,gpu=2"):
    fields = ["all.q", "h1", "grp", "u1", "app", str(job), "sge", "0", str(S), str(S + 50)]
    fields += [str(S + 650), "0", "0", "600", *["0"] * 17, "proj", "dep", "mpi", str(slots)]
    fields += [str(task), "1", "1", "0", category, "0", pe_task, "0", "0", "0"]
    return ":".join(fields)


SGE = "\n".join(["# Version: 8.1", sge(5), sge(6, task=3), sge(5, pe_task="1.h2")])
CONDOR = [
    {
        "ClusterId": 3,
        "ProcId": 1,
        "Owner": "u1",
        "QDate": S,
        "JobStatus": 4,
        "JobStartDate": S + 10,
        "JobCurrentStartDate": S + 40,
        "CompletionDate": S + 100,
        "RequestCpus": 2,
        "RequestMemory": 2048,
        "RequestGPUs": 1,
        "RemoteWallClockTime": 90.0,
    },
    {"ClusterId": 4, "ProcId": 0, "Owner": "u1", "QDate": S, "JobStatus": 3, "RequestCpus": 1}
    | {"CompletionDate": 0, "EnteredCurrentStatus": S + 30},
]
FLUX = {
    "jobs": [
        {"id": "f1", "username": "u1", "t_submit": S + 0.5, "t_run": S + 2.5, "t_inactive": S + 70}
        | {"runtime": 60.0, "duration": 300.0, "ncores": 8, "nnodes": 2, "nodelist": "c[1-2]"}
        | {"state": "INACTIVE", "status": "COMPLETED", "bank": "b", "queue": "q"}
    ]
}
OAR = {
    "11": {"Job_Id": 11, "owner": "u1", "project": "p", "queue": "default", "state": "Terminated"}
    | {"submissionTime": S, "startTime": S + 5, "stopTime": S + 65, "walltime": 3600}
    | {"assigned_resources": [1, 2, 3, 4], "assigned_network_address": ["n1"]}
}
BACCT = """
Accounting information about jobs that are:
  - submitted by all users.
------------------------------------------------------------------------------

Job <77[3]>, Job Name <arr[3]>, User <u1>, Project <p>, Status <DONE>, Queue <no
                     rmal>, Command <#!/bin/sh;#BSUB -W 1:30;#BSUB -n 4;./a.ou
                     t>, Share group charged </u1>
Sun Mar  3 23:59:50: Submitted from host <login>, CWD <$HOME>, 4 Task(s), Reques
                     ted GPU <num=2:mode=shared>;
Mon Mar  4 00:00:30: Dispatched 4 Task(s) on Host(s) <2*h1> <2*h2>, Allocated 4
                     Slot(s) on Host(s) <2*h1> <2*h2>, Effective RES_REQ <select
                     [type == any] >;
Mon Mar  4 01:00:30: Completed <done>.

Accounting information about this job:
     CPU_T     WAIT     TURNAROUND   STATUS     HOG_FACTOR    MEM    SWAP
      0.08       40           3640     done         0.0007     5M    222M
------------------------------------------------------------------------------

Job <78>, User <u2>, Project <p>, Status <EXIT>, Queue <normal>, Command <sleep>
Mon Mar  4 00:00:00: Submitted from host <login>, CWD <$HOME>;
Mon Mar  4 00:01:00: Dispatched to <h3>;
Mon Mar  4 00:02:00: Completed <exit>.
------------------------------------------------------------------------------

SUMMARY:      ( time unit: second )
 Total number of done jobs:       1      Total number of exited jobs:     1
"""
CONDOR_LOG = """000 (12.000.000) 2024-03-04 08:00:00 Job submitted from host: <10.0.0.1:9618>
...
001 (12.000.000) 2024-03-04 08:01:00 Job executing on host: <10.0.0.2:9618>
...
004 (12.000.000) 2024-03-04 08:03:00 Job was evicted.
\t(0) CPU times
\tPartitionable Resources :    Usage  Request Allocated
\t   Cpus                 :                 4         4
\t   Memory (MB)          :      156     2048      2304
...
001 (12.000.000) 2024-03-04 08:10:00 Job executing on host: <10.0.0.3:9618>
...
005 (12.000.000) 2024-03-04 08:20:00 Job terminated.
\t(1) Normal termination (return value 0)
...
"""
MOAB = (
    f"08:00:00 {S}:1 sched Moab SCHEDSTART -\n"
    f"08:00:00 {S}:2 job 5 JOBSUBMIT 2 16 u1 g 7200 Idle [batch:1] {S} 0 0 0 [NONE]\n"
    f"09:00:00 {S}:9 job 5 JOBEND 2 16 u1 g 7200 Completed [batch:1] {S} {S + 9} {S + 10} "
    f"{S + 910} [NONE] [NONE] [NONE] >= 0 >= 0 [NONE] 1 16 8 0 0 acct [NONE] [NONE] 0 0.0 p 1 0\n"
)
BATSIM = {
    "nb_res": 8,
    "jobs": [
        {"id": "a", "subtime": 0, "walltime": 300, "res": 4, "profile": "d"},
        {"id": "b", "subtime": 20.5, "walltime": 60, "res": 2, "profile": "d"},
        {"id": "c", "subtime": 30, "res": 2, "profile": "msg"},
    ],
    "profiles": {"d": {"type": "delay", "delay": 100}, "msg": {"type": "parallel", "cpu": [1]}},
}
LOGS = {
    "moab": MOAB,
    "pbs": PBS,
    "lsf": LSF,
    "sge": SGE,
    "htcondor": json.dumps(CONDOR),
    "flux": json.dumps(FLUX),
    "oar": json.dumps(OAR),
    "batsim": json.dumps(BATSIM),
}
RIGHT = {
    "moab": [("5", 16, 1, 0, 0, 10, 910, 7200)],
    "pbs": [
        ("7.srv", 2, 8, 2, 0, 5, 3605, 7200),
        ("8.srv", 2, 4, 0, 60, 4000, 5000, 3600),
        ("9.srv", 1, 2, 0, 70, 5000, 5000, 600),
    ],
    "lsf": [(f"41[{n}]", 4, 1, 0, 0, 100, 900, None) for n in (1, 2)],
    # gpu=2 is of each slot
    "sge": [("5", 4, 1, 2, 0, 50, 650, 3600), ("6.3", 4, 1, 2, 0, 50, 650, 3600)],
    "htcondor": [("3.1", 1, 2, 1, 0, 10, 100, None), ("4.0", 1, 1, 0, 0, None, 30, None)],
    "flux": [("f1", 2, 4, 0, 0, 2, 62, 300)],
    "oar": [("11", 4, 1, 0, 0, 5, 65, 3600)],
    "batsim": [("a", 4, 1, 0, 0, None, 100, 300), ("b", 2, 1, 0, 20.5, None, 80.5, 60)],
}


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_log_is_recognised_and_read(tmp_path, name):
    file = tmp_path / "20240304"
    file.write_text(LOGS[name])
    tables = open_tables(file)
    assert tables.trace == name
    assert tables.jobs.select(COLUMNS).rows() == RIGHT[name]


def test_the_table_of_batch_systems_names_what_readers_read():
    """Every system has a row; the fields in it are in the reader, or in a record that it reads."""
    page = (Path(__file__).parents[2] / "docs/traces/forms.md").read_text()
    section = page.partition("## Batch systems")[2].partition("\n## ")[0]
    rows = [line.split("|")[1:-1] for line in section.splitlines() if line.startswith("| ")][1:]
    of_name = {re.search("`([a-z-]+)`", cells[0])[1]: cells[1:] for cells in rows}
    assert set(of_name) == {"slurm-sacct", "kubernetes", "swf", *SYSTEMS}
    formats = Path(accounting.__file__).parent
    for name in {*SYSTEMS} - {"sge"}:  # whose fields have places, and no names
        _, times, limit, *_ = of_name[name]
        fields = {part for text in re.findall("`([^`]+)`", times + limit) for part in text.split()}
        code = "".join(
            file.read_text() for file in (formats / f"{name}.toml", formats / "accounting.py")
        )
        missing = {field for field in fields if field not in code + LOGS[name]}
        assert not missing, f"{name}: {missing}"


def test_what_bacct_prints_is_read(tmp_path):
    """Two GPUs on each of two hosts, four tasks; 1:30 h is the limit. 2024 has such a Monday."""
    (tmp_path / "bacct.txt").write_text(BACCT)
    tables = open_tables(tmp_path)
    right = [("77[3]", 4, 1, 1, 0, 40, 3640, 5400), ("78", 1, 1, 0, 10, 70, 130, None)]
    assert tables.trace == "lsf"
    assert tables.jobs.select(COLUMNS).rows() == right
    assert tables.jobs["hosts"].to_list() == ["h1|h2", "h3"]
    assert any("have no year" in note for note in tables.notes)
    dated = re.sub(r"^(\w{3} Mar +\d+ [\d:]{8})", r"\1 2019", BACCT, flags=re.M)
    (tmp_path / "bacct.txt").write_text(dated)
    assert open_tables(tmp_path).jobs.select(COLUMNS).rows() == right
    assert open_tables(tmp_path).clock.epoch == 1_551_657_590


def test_a_log_of_condor_is_read(tmp_path):
    """It runs for two minutes in vain and for ten; with years and without."""
    for text in (CONDOR_LOG, CONDOR_LOG.replace("2024-03-04", "03/04")):
        (tmp_path / "job.log").write_text(text)
        tables = open_tables(tmp_path)
        columns = ("name", "cpu", "mem", "started", "deleted", "elapsed", "lost")
        assert tables.trace == "htcondor"
        assert tables.jobs.select(columns).rows() == [("12.0", 4, 2, 60, 1200, 720, 120)]


def test_forms_of_records_that_sites_have(tmp_path):
    """Cores that Torque writes thrice, LSF's limit and hosts with counts, OAR's GPUs."""
    torque = (
        f"03/04/2024 09:00:00;E;1.s;user=u ctime={S} start={S} end={S + 60} Resource_List.ncpus=1 "
        "exec_host=n4/2+n4/3+n4/4+n4/5 Resource_List.nodes=1:ppn=4:avx Resource_List.nodect=1"
    )
    fields = '"" "default" 0 8 "" "" 0 2 0 "" "" "" "" 0 "" 0 "" -1 "/u" "" "" "" -1 "" "" 6160 '
    lsf = (
        f'"JOB_FINISH" "9.11" {S + 900} 41 22 33 8 {S} 0 0 {S + 100} "u1" "normal" "span[ptile=4]" '
        '"" "" "l" "/s" "" "%J.out" "%J.err" "1.41" 0 2 "4*h1" "4*h2" 64 60.0 "a" "#B;""x y"";d" '
        f'5.2 6.0 9 0 -1 0 0 3 0 0 0 0 -1 0 0 0 1 6 -1 {fields}"" {S} "" "" 0 2 h1 13 0 12 24 0 h2 '
        '12 0 64 66 0 43200 0 8688640 "select[type == any] rusage[ngpus_physical=2.00] " "" -1'
    )
    oar = {"job_id": 3, "submission_time": S, "start_time": S, "stop_time": S + 9, "queue": "q"}
    oar |= {"assigned_resources": [1, 2, 3, 4], "state": "Terminated"}
    oar |= {"wanted_resources": "-l \"{type = 'default'}/host=2/gpu=1,walltime=2:0:0\" "}
    right = {torque: (1, 4, 0, None), lsf: (8, 1, 0.5, 43200), json.dumps([oar]): (4, 1, 0.5, 7200)}
    for text, job in right.items():
        (tmp_path / "log").write_text(text)
        tables = open_tables(tmp_path / "log")
        assert tables.jobs.select("tasks", "cpu", "gpu", "limit").rows() == [job]
        assert "100 % of 1 jobs" in jobs_of(tables).played.line


def test_chunks_of_several_sizes_are_groups_of_one_job(tmp_path):
    """A head without GPUs and three workers, twice under one number; cores are those of chunks."""
    record = (
        "03/04/2024 09:00:00;E;5.s;user=u ctime={at} start={at} end={to} Resource_List.ncpus=26 "
        "Resource_List.select=1:ncpus=2:mem=4gb+3:ncpus=8:ngpus=2:mem=16gb"
    )
    days = [record.format(at=S + 10**7 * k, to=S + 10**7 * k + 60) for k in range(2)]
    (tmp_path / "log").write_text("\n".join(days))
    log = jobs_of(open_tables(tmp_path / "log"))
    assert "of 2 jobs and 100 %" in log.played.line
    assert log.jobs.sizes.tolist() == [4, 4]
    of = log.jobs.devices.index
    parts = {
        (tasks, *(shape.demand[of(kind)] / 1000 for kind in ("cpu", "gpu", "mem")))
        for tasks, shape in log.jobs.job(0).groups
    }
    assert parts == {(1, 2, 0, 4), (3, 8, 2, 16)}


def test_what_is_not_a_job_is_counted(tmp_path):
    file = tmp_path / "20240304"
    file.write_text(PBS)
    notes = "\n".join(open_tables(file).notes)
    assert "1 jobs were deleted before they started" in notes
    assert "1 jobs had started and not ended" in notes
    (tmp_path / "w.json").write_text(LOGS["batsim"])
    tables = open_tables(tmp_path / "w.json")
    assert tables.servers["cpu"].to_list() == [8]
    (reason,) = tables.stages[0].dropped
    assert "no delay" in reason
    (tmp_path / "sge").write_text(SGE)
    assert sum(n for n, _ in open_tables(tmp_path / "sge").stages[0].dropped.values()) == 1


AGAIN = {  # three systems' words for a run of 100 s that was lost, and one of 300 s that was not
    "pbs": f"03/04/2024 08:00:00;S;1;ctime={S} start={S} Resource_List.ncpus=2\n"
    f"03/04/2024 08:01:40;R;1;\n"
    f"03/04/2024 08:08:20;E;1;ctime={S} start={S + 200} end={S + 500} Resource_List.ncpus=2",
    "PBS Professional": f"03/04/2024 08:01:40;R;1;ctime={S} start={S} end={S + 100} "
    f"Resource_List.ncpus=2\n03/04/2024 08:08:20;E;1;ctime={S} start={S + 200} end={S + 500} "
    "Resource_List.ncpus=2",
    "sge": sge(1, slots=2)
    .replace(f":{S + 50}:{S + 650}:", f":{S}:{S + 100}:")
    .replace(":600:", ":100:")
    + "\n"
    + sge(1, slots=2).replace(f":{S + 50}:{S + 650}:", f":{S + 200}:{S + 500}:"),
    "htcondor": json.dumps(
        [CONDOR[0] | {"JobStartDate": S, "JobCurrentStartDate": S + 200, "CompletionDate": S + 500}]
    ).replace("90.0", "400"),
}


@pytest.mark.parametrize("name", AGAIN)
def test_a_job_that_ran_again_is_one_job_with_the_work_of_both_runs(tmp_path, name):
    """It starts with the first run, at 0; 100 s of 400 s are lost."""
    (tmp_path / "log").write_text(AGAIN[name])
    tables = open_tables(tmp_path / "log")
    (job,) = tables.jobs.select("started", "deleted", "elapsed", "lost").rows()
    assert job == (0, 500, 400, 100)
    assert not tables.stages[0].dropped
    assert "of 1 jobs and 100 %" in (line := jobs_of(tables).played.line)
    assert "hours of it lost" in line


def test_days_of_a_log_are_one_log(tmp_path):
    first, second = PBS.split("03/04/2024 09:00:00")
    (tmp_path / "20240304").write_text(first)
    (tmp_path / "20240305").write_text("03/04/2024 09:00:00" + second)
    assert reader("pbs").FORMAT.name == "pbs"
    assert open_tables(tmp_path).jobs["name"].to_list() == ["7.srv", "8.srv", "9.srv"]


@pytest.mark.parametrize("name", SYSTEMS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
@given(data=st.data())
def test_damaged_records_are_left_out_or_refused(tmp_path, name, data):
    """A piece of the log is lost or replaced: no other error, and no time that is none."""
    text = LOGS[name]
    at, length = data.draw(st.integers(0, len(text) - 1)), data.draw(st.integers(1, 40))
    text = text[:at] + data.draw(st.text(max_size=5)) + text[at + length :]
    (tmp_path / "log").write_text(text, encoding="utf-8", errors="replace")
    try:
        tables = open_tables(tmp_path / "log", trace=name)
    except TraceError:
        return
    assert tables.jobs["created"].is_finite().all()


def test_a_strict_reading_names_the_row(tmp_path):
    account = RowAccount(tmp_path / "x", strict=True)
    with pytest.raises(TraceError) as error:
        parse_pbs("03/04/2024 08:00:00;E;1.srv;user=a\n", Jobs(account))
    assert error.value.row == 1


def test_forms_of_public_test_suites(tmp_path):
    """Colons in what Grid Engine was asked for; OAR's limit in its message; sequences of delays."""
    colon = sge(7, category="-l cpu=24:00:00,h_rt=60").replace(":0:NONE:", ":0.000000:NONE:")
    running = {"job_id": 3, "submission_time": S, "start_time": S, "queue": "q", "state": "Running"}
    running |= {"assigned_resources": [1, 2], "message": "R=2,W=12:0:0,J=B (Karma=0.087)"}
    work = {"nb_res": 4, "profiles": {"3s": {"type": "DelayProfile", "delay": 3}}}
    work["profiles"]["two"] = {"type": "SequentialCompositionProfile", "seq": ["3s", "3s"]}
    work["profiles"]["all"] = {"type": "composed", "repeat": 5, "seq": ["two", "3s"]}
    work["profiles"]["endless"] = {"seq": ["endless"]}
    jobs = [{"id": k, "subtime": 0, "res": 1, "profile": p} for k, p in enumerate(work["profiles"])]
    work["jobs"] = [job | {"walltime": -1} for job in jobs]
    right = {colon: [(600, 60)], json.dumps([running]): [(0, 43200)]}
    right[json.dumps(work)] = [(3, None), (6, None), (45, None)]
    for text, times in right.items():
        (tmp_path / "log").write_text(text)
        found = open_tables(tmp_path / "log").jobs
        seconds = found["deleted"] - found["started"].fill_null(found["created"])
        assert list(zip(seconds, found["limit"])) == times


def lsf_pending():
    """A job that was killed while it waited: no start, no hosts."""
    return (
        f'"JOB_FINISH" "10.108" {S + 400} 42 1001 33554 8 {S + 9} 0 0 0 "u1" "normal" "" "" "" '
        '"login" "d" "" "" "" "f" 0 0 32 1.0 "x" "./a.out" -1 -1'
    )


OTHER_FORMS = {
    "pbs": "\n".join(
        [
            "03/04/2024 08:01:00;z;7.srv;resources_used.walltime=00:00:55",
            "03/04/2024 08:11:00;r;7.srv;",
            f"03/04/2024 09:00:05;E;7.srv;ctime={S} start={S + 5} end={S + 3605} exec_host=n1/0*8 "
            "Resource_List.select=1:ncpus=8 Resource_List.walltime=02:00:00 Exit_status=0",
            f"03/04/2024 09:00:06;E;8[1].srv;ctime={S + 1} start={S + 5} end={S + 65} "
            "exec_host=n1/0 Resource_List.ncpus=1 array_id=8[].srv array_index=1 Exit_status=0",
            f"03/04/2024 09:00:07;E;8[].srv;ctime={S + 1} Resource_List.ncpus=1 end={S + 66}",
        ]
    ),
    "lsf": f"{LSF}\n{lsf_pending()}",
    "sge": sge(5).replace(f":{S + 50}:{S + 650}:0:", ":0:0:1:"),
    "htcondor": "\n".join(
        json.dumps({**ad, "CumulativeSuspensionTime": 20, "RequestCpus": "ifthenelse(x,1,2)"})
        for ad in CONDOR[:1] * 1 + [{**CONDOR[0], "ProcId": 2, "CpusProvisioned": 2}]
    ),
    "flux": json.dumps(
        {
            "jobs": [
                {"id": 7, "userid": 1, "t_submit": S, "t_run": S + 2, "t_cleanup": S + 62}
                | {"t_inactive": S + 63, "duration": 0.0, "ntasks": 4, "nnodes": 1, "state": 64}
            ]
        }
    ),
}
"""Forms that older or newer versions write, and jobs that were suspended or never started."""

READ = {  # name, status, seconds on its nodes, and of work
    "pbs": [("7.srv", "completed", 3600, 3000), ("8[1].srv", "completed", 60, None)],
    "lsf": [
        ("41[1]", "completed", 800, None),
        ("41[2]", "completed", 800, None),
        ("42", "cancelled", None, None),
    ],
    "sge": [("5", "failed", None, None)],
    "htcondor": [("3.1", "completed", 90, 70), ("3.2", "completed", 90, 70)],
    "flux": [("7", "", 60, None)],
}


@pytest.mark.parametrize("name", OTHER_FORMS)
def test_suspended_jobs_and_other_versions(tmp_path, name):
    file = tmp_path / "log"
    file.write_text(OTHER_FORMS[name])
    tables = open_tables(file)
    assert tables.trace == name
    jobs = tables.jobs
    got = zip(jobs["name"], jobs["status"], jobs["deleted"] - jobs["started"], jobs["elapsed"])
    assert [tuple(row) for row in got] == READ[name]
    assert not tables.stages[0].dropped
    assert sum("suspended" in note for note in tables.notes) == (name in ("pbs", "htcondor"))
    if name == "htcondor":  # a request that is an expression, with and without what was given
        assert jobs["cpu"].to_list() == [1.0, 2.0]
        assert any("how many cores" in note for note in tables.notes)


def test_a_log_of_condor_has_suspension_and_assigned_devices(tmp_path):
    file = tmp_path / "user.log"
    file.write_text(
        "\n...\n".join(
            f"{kind} (012.000.000) 2024-03-01 10:{minute:02d}:00 x{more}"
            for kind, minute, more in (
                ("000", 0, ""),
                ("001", 5, ""),
                ("010", 6, ""),
                ("011", 16, ""),
                (
                    "005",
                    25,
                    '\n\tCpus : 0.5 4 4\n\tGPUs :  1  1 "GPU-1"\n\tMemory (MB) : 1 2048 2048',
                ),
            )
        )
        + "\n...\n"
    )
    (job,) = open_tables(file).jobs.iter_rows(named=True)
    assert (job["name"], job["cpu"], job["gpu"], job["mem"]) == ("12.0", 4, 1, 2)
    assert (job["deleted"] - job["started"], job["elapsed"]) == (1200, 600)


def planted(name, factor):
    """Forty jobs of 4 cores and 10 min, every tenth of so many times as many cores."""
    sizes = [4 * (factor if n % 10 == 9 else 1) for n in range(40)]
    starts = [S + 400 * n for n in range(40)]
    rows = list(enumerate(zip(sizes, starts)))
    if name == "pbs":
        return "\n".join(
            f"03/04/2024 08:00:00;E;{n}.s;ctime={at} start={at} end={at + 600} "
            f"Resource_List.select=1:ncpus={size} Resource_List.walltime=1:0:0 Exit_status=0"
            for n, (size, at) in rows
        )
    if name == "lsf":
        return "\n".join(
            f'"JOB_FINISH" "10.1" {at + 600} {n} 1001 33554 {size} {at} 0 0 {at} "u1" "normal" "" '
            '"" "" "login" "d" "" "" "" "f" 0 0 64 1.0 "x" "./a.out" 0.5 0.1'
            for n, (size, at) in rows
        )
    if name == "sge":
        whole = (sge(n, slots=size).replace(str(S + 650), str(at + 600)) for n, (size, at) in rows)
        return "\n".join(
            row.replace(f"{S}:{S + 50}", f"{at}:{at}") for row, at in zip(whole, starts)
        )
    if name == "moab":
        return "\n".join(
            f"10:00:00 {at + 600}:1 job {n} JOBEND 1 {size} u g 7200 Completed [batch:1] {at} {at} "
            f"{at} {at + 600} [NONE] [NONE]"
            for n, (size, at) in rows
        )
    made = {
        "htcondor": [
            {"ClusterId": n, "ProcId": 0, "QDate": at, "JobStartDate": at, "JobStatus": 4}
            | {"CompletionDate": at + 600, "RemoteWallClockTime": 600, "RequestCpus": size}
            for n, (size, at) in rows
        ],
        "flux": {
            "jobs": [
                {"id": n, "t_submit": at, "t_run": at, "t_cleanup": at + 600, "duration": 900}
                | {"t_inactive": at + 600, "ncores": size, "nnodes": 1, "state": "INACTIVE"}
                for n, (size, at) in rows
            ]
        },
        "oar": {
            str(n): {"Job_Id": n, "queue": "q", "submissionTime": at, "startTime": at}
            | {"stopTime": at + 600, "resource_count": size, "state": "Terminated"}
            for n, (size, at) in rows
        },
        "batsim": {
            "nb_res": 64,
            "jobs": [
                {"id": f"{n}", "subtime": at - S, "res": size, "profile": "d"}
                for n, (size, at) in rows
            ],
            "profiles": {"d": {"type": "delay", "delay": 600}},
        },
    }
    return json.dumps(made[name])


@pytest.mark.parametrize("name", SYSTEMS)
def test_amounts_that_nodes_cannot_have_are_doubted_in_line_one(tmp_path, name):
    """Four nodes of 16 cores: 4 of 40 jobs are 100 times as large, 91.7 % of the core-hours."""
    nodes = Nodes.alike(4, {"cpu": 16})
    for factor in (1, 100):
        (tmp_path / f"{factor}.log").write_text(planted(name, factor))
        line = open_jobs(tmp_path / f"{factor}.log", nodes=nodes).played.line
        assert line.startswith(name)
        assert bool(re.search(r"missing: 91.7 % of \w+-hours ask for more", line)) == (factor > 1)


SHORT_PBS = (
    "01/05/2025 10:00:00;E;7.srv;user=ann jobname=a{} ctime=1736071200 qtime=1736071200 "
    "start=1736071300 exec_host=n1/0*4 Resource_List.ncpus=4 end=1736072000 Exit_status=0\n"
)
SHORT_CONDOR = (
    "000 (7.000.000) 2025-01-06 10:00:00 Job submitted\n...\n"
    "001 (7.000.000) 2025-01-06 11:00:00 Job executing\n...\n"
    "005 (7.000.000) 2025-01-06 12:00:00 Job terminated.\n...\n"
)
SHORT_FLUX = (
    '{"id": "f1", "t_submit": 1.7e9, "state": "RUN", "t_run": 1.7e9, "nnodes": 1, "ncores": 4}'
)


@pytest.mark.parametrize(
    ("name", "text", "lost"),
    [
        ("pbs", SHORT_PBS.format("") + "13/45/2025 10:00:00;E;8.srv;user=ann\n", 1),
        (
            "htcondor",
            SHORT_CONDOR + "005 (7.000.000) 2025-13-06 12:00:00 Job terminated.\n...\n",
            1,
        ),
        (
            "flux",
            f"[{SHORT_FLUX}, {SHORT_FLUX.replace('f1', 'f2').replace('1.7e9', '1' + '0' * 400)}]",
            1,
        ),
        ("lsf", LSF.replace("arr[2]", "x" * 140_000), 1),
        ("pbs", SHORT_PBS.format("\f1") + SHORT_PBS.format("\u20281").replace("7.srv", "8.srv"), 0),
    ],
)
def test_a_record_that_cannot_be_read_loses_no_other(tmp_path, name, text, lost):
    file = tmp_path / "log"
    file.write_text(text, encoding="utf-8")
    tables = open_tables(file, trace=name)
    assert sum(count for count, _ in tables.stages[0].dropped.values()) == lost
    assert len(tables.jobs) == tables.stages[0].kept == 2 - lost


def test_a_workload_of_batsim_without_profiles_is_none(tmp_path):
    file = tmp_path / "jobs.json"
    file.write_text('{"jobs": [{"id": 1, "subtime": 0, "res": 1, "profile": "a"}], "profiles": []}')
    with pytest.raises(TraceError, match=r"Batsim.*profiles"):
        open_tables(file, trace="batsim")


def test_suspension_does_not_depend_on_the_clocks_of_the_reader(tmp_path, monkeypatch):
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        jobs = Jobs(RowAccount(tmp_path))
        states = "".join(
            f"03/30/2025 0{hour}:30:00;{kind};7.srv;\n" for hour, kind in ((1, "z"), (3, "r"))
        )
        record = SHORT_PBS.format("").replace("1736072000", "1736092000")
        parse_pbs(states + record, jobs)
    finally:
        monkeypatch.undo()
        time.tzset()
    [job] = jobs.rows.values()
    assert job["elapsed"] == 1736092000 - 1736071300 - 2 * 3600
