"""Rows written by hand from the schema, and the published machines counted with the csv module."""

from __future__ import annotations

import csv
from collections import Counter
from datetime import datetime, timedelta, timezone

import pytest

from gangwise import TraceError
from gangwise.logs import open_tables
from gangwise.logs.format import TraceFiles
from gangwise.logs.formats.tabular import reader
from gangwise.logs.formats.training import MiniBatchTime
from gangwise.papers.scenarios.opening import open_trace

AlibabaGpuV2020 = reader("alibaba-gpu-v2020")
FORMAT = reader("alibaba-gpu-v2020").FORMAT

MACHINES = ["aa01,T4,96,512,2", "aa02,CPU,96,512,0", "aa03,MISC,96,512,8", "aa04,V100,96,384,8"]
JOBS = [
    "a1,1a,b1,Terminated,1000000.0,1000500.0",
    "a2,2a,b1,Terminated,1000100.0,1000900.0",
    "a3,3a,b2,Failed,1000200.0,1000300.0",
    "a4,4a,b2,Running,1000300.0,",
    "a5,5a,b2,Waiting,1000400.0,",
    "a6,6a,b3,Terminated,,1000900.0",
    "a8,8a,b3,Terminated,1000700.0,1000800.0",
    "a9,9a,b3,Terminated,0.0,1000800.0",
]
TASKS = [
    "a1,ps,1.0,Terminated,1000050.0,1000500.0,600.0,29.296875,0.0,CPU",
    "a1,worker,2.0,Terminated,1000040.0,1000500.0,400.0,10.0,50.0,T4",
    "a2,tensorflow,1.0,Terminated,1000200.0,1000900.0,100.0,1.0,,CPU",
    "a3,worker,1.0,Failed,1000250.0,1000300.0,100.0,1.0,100.0,V100",
    "a4,worker,3.0,Running,1000310.0,,100.0,1.0,100.0,V100",
    "a5,worker,,Waiting,,,,,,",
    "a6,worker,1.0,Terminated,1000300.0,1000900.0,100.0,1.0,100.0,T4",
    "a7,worker,1.0,Terminated,1000300.0,1000900.0,100.0,1.0,100.0,T4",
    "a8,old,1.0,Terminated,0.0,1000800.0,100.0,1.0,25.0,MISC",
    "a9,worker,1.0,Terminated,1000300.0,1000800.0,100.0,1.0,100.0,T4",
    "a8,early,1.0,Terminated,1000600.0,1000650.0,100.0,1.0,100.0,T4",
    "a8,before,1.0,Terminated,1000690.0,1000800.0,100.0,1.0,100.0,V100",
    "a8,endless,1.0,Terminated,1000710.0,,100.0,1.0,100.0,T4",
    "a8,gap,1.0,Terminated,1000710.0,1000800.0,,1.0,100.0,T4",
    "a8,nothing,1.0,Terminated,1000710.0,1000800.0,0.0,0.0,0.0,T4",
    "a8,guest,1.0,Terminated,1000710.0,1000800.0,100.0,1.0,0.0,V100",
    "a8,any,1.0,Terminated,1000710.0,1000800.0,100.0,1.0,200.0,",
]
TAGS = ["1a,b1,V100,fb,nmt", "2a,b1,,fb,", "8a,b3,,,"]
TABLES = {
    "pai_machine_spec": MACHINES,
    "pai_job_table": JOBS,
    "pai_task_table": TASKS,
    "pai_group_tag_table": TAGS,
}
# name, cpu, mem, gpu, tasks, models, created, started, deleted
EXPECTED = [
    ("ps", 6.0, 29.296875, 0.0, 1, "", 0, 50, 500),
    ("worker", 4.0, 10.0, 0.5, 2, "T4", 0, 40, 500),
    ("tensorflow", 1.0, 1.0, 0.0, 1, "", 100, 200, 900),
    ("old", 1.0, 1.0, 0.25, 1, "MISC", 700, None, 800),
    ("before", 1.0, 1.0, 1.0, 1, "V100", 700, 690, 800),
    ("guest", 1.0, 1.0, 0.0, 1, "", 700, 710, 800),
    ("any", 1.0, 1.0, 2.0, 1, "", 700, 710, 800),
]
COLUMNS = ["name", "cpu", "mem", "gpu", "tasks", "models", "created", "started", "deleted"]
SIMULATOR = [
    "job_id,num_inst,submit_time,num_cpu,num_gpu,gpu_type,duration,user",
    "0,1,500,6.0,0.25,T4,100,ae",
    "1,4,400,8.0,,CPU,200,ae",
    "2,,450,,1.0,V100,0,be",
    "3,1,,2.0,1.0,MISC,50.0,be",
    "4,2,600,2.0,1.0,,-5,be",
    "5,2,700,2.0,1.0,MISC,5,be",
]


def write(folder, only=tuple(TABLES), **changed):
    for name in only:
        rows = changed.get(name, TABLES[name])
        (folder / f"{name}.csv").write_text("\n".join(rows) + "\n")
    return folder


def simulator(folder, rows=SIMULATOR, name="pai_job_no_estimate_100K.csv"):
    (folder / name).write_text("\n".join(rows) + "\n")
    return folder / name


def reasons(stage):
    return {why: count for why, (count, _) in stage.dropped.items()}


def test_tasks_become_requests(tmp_path):
    tables = AlibabaGpuV2020(write(tmp_path), strict=True).scan()
    assert tables.jobs.select(COLUMNS).rows() == EXPECTED
    assert tables.jobs["job"].to_list() == ["a1", "a1", "a2", "a8", "a8", "a8", "a8"]
    assert tables.jobs["row"].to_list() == [1, 2, 3, 9, 12, 16, 17]
    assert tables.jobs["user"].to_list() == ["b1"] * 3 + ["b3"] * 4
    assert tables.jobs["workload"].to_list() == ["nmt", "nmt", "", "", "", "", ""]
    assert tables.servers.select("name", "model", "cpu", "mem", "gpu").rows() == [
        ("aa01", "T4", 96, 512, 2),
        ("aa02", "", 96, 512, 0),
        ("aa03", "MISC", 96, 512, 8),
        ("aa04", "V100", 96, 384, 8),
    ]


def test_what_is_left_out_is_counted_with_its_first_row(tmp_path):
    report = AlibabaGpuV2020(write(tmp_path)).fidelity()
    assert [stage.name for stage in report.stages] == [
        "pai_machine_spec.csv",
        "pai_job_table.csv",
        "pai_task_table.csv",
        "pai_group_tag_table.csv",
        "tasks",
    ]
    assert report.stages[-1] == (
        "tasks",
        17,
        7,
        {
            "status is Failed, not one of those asked for": (1, 4),
            "status is Running, not one of those asked for": (1, 5),
            "status is Waiting, not one of those asked for": (1, 6),
            "its job has no time of submission": (2, 7),
            "its job has no row in pai_job_table": (1, 8),
            "it ended before its job was submitted": (1, 11),
            "it has no end_time": (1, 13),
            "plan_cpu is empty": (1, 14),
            "it requests no devices at all": (1, 15),
        },
    )
    notes = "\n".join(report.notes)
    for said in (
        "times are the trace's own less 1000000 s",
        "1 servers with GPUs of type MISC",
        "1 tasks with GPUs of type MISC",
        "1 tasks of gpu_type CPU have no plan_gpu",
        "1 tasks use GPUs and have no gpu_type",
        "1 tasks have no start_time",
        "1 tasks started before their job was submitted",
        "1 tasks ran on servers with GPUs and requested none",
        "GPU models are those that tasks ran on",
    ):
        assert said in notes
    assert "empty fields" not in notes


def test_the_implied_load_counts_every_task_of_a_request(tmp_path):
    report = AlibabaGpuV2020(write(tmp_path)).fidelity()
    assert (report.first, report.last, report.servers, report.jobs) == (0, 900, 4, 7)
    seconds = [
        (gpu * tasks * (end - start), models)  # waiting is not work
        for _, _, _, gpu, tasks, models, _, start, end in EXPECTED
        if start is not None
    ]
    assert report.load["gpu"] == pytest.approx(sum(s for s, _ in seconds) / 900 / 18)
    spread = 180 * 8 / 18  # of "any", 180 GPU-seconds, over all 18 GPUs
    assert report.load["gpu:V100"] == pytest.approx((110 + spread) / 900 / 8)
    ran = [(cpu * tasks, start, end) for _, cpu, _, _, tasks, _, _, start, end in EXPECTED]
    cores = sum(asked * (end - start) for asked, start, end in ran if start is not None)
    assert report.load["cpu"] == pytest.approx(cores / 900 / 384)


def test_other_statuses_on_request(tmp_path):
    trace = AlibabaGpuV2020(write(tmp_path), statuses="Failed|Running|Waiting", missing="fill")
    assert trace.scan().jobs.select("job", *COLUMNS[1:]).rows() == [
        ("a3", 1.0, 1.0, 1.0, 1, "V100", 200, 250, 300),
        ("a4", 1.0, 1.0, 1.0, 3, "V100", 300, 310, 900),
    ]
    notes = trace.fidelity().notes
    assert "1 tasks that run or wait have no end_time: they end with the trace" in notes
    assert "1 empty fields of inst_num are read as 1" in notes
    assert "2 empty fields of plan_cpu are read as 0" in notes
    assert reasons(trace.fidelity().stages[-1])["it requests no devices at all"] == 1
    with pytest.raises(TraceError, match="'Finished'"):
        AlibabaGpuV2020(tmp_path, statuses=["Finished"])
    with pytest.raises(TraceError, match="statuses is ''"):
        AlibabaGpuV2020(tmp_path, statuses=())


def test_models_that_were_asked_for(tmp_path):
    jobs = AlibabaGpuV2020(write(tmp_path), models="requested").scan().jobs
    assert jobs["models"].to_list() == ["", "V100", "", "", "", "", ""]
    (tmp_path / "pai_group_tag_table.csv").unlink()
    assert "workload" not in AlibabaGpuV2020(tmp_path).scan().jobs.columns
    with pytest.raises(TraceError, match="pai_group_tag_table"):
        AlibabaGpuV2020(tmp_path, models="requested").scan()
    with pytest.raises(TraceError, match="models is 'any'"):
        AlibabaGpuV2020(tmp_path, models="any")


def test_the_shift_gives_back_the_day_of_the_week(tmp_path):
    """4550879 s are 52 days, 16 h, 7 min and 59 s after a Thursday, 1970-01-01, 8 h in UTC+8."""
    task = "a1,t,1.0,Terminated,4550900.0,4551416.0,100.0,1.0,100.0,T4"
    job = "a1,1a,b1,Terminated,4550879.0,4551416.0"
    write(tmp_path, pai_job_table=[job], pai_task_table=[task])
    (note,) = (note for note in AlibabaGpuV2020(tmp_path).fidelity().notes if "less" in note)
    shift = float(note.split("less ")[1].split(" s")[0])
    local = datetime.fromtimestamp(shift, timezone(timedelta(hours=8)))
    assert (local.strftime("%A"), local.hour, local.minute, local.second) == ("Monday", 0, 7, 59)


def test_the_simulators_job_list(tmp_path):
    write(tmp_path, only=["pai_machine_spec"])
    file = simulator(tmp_path)
    shape = ["name", "cpu", "mem", "gpu", "tasks", "models", "created", "deleted"]
    tables = AlibabaGpuV2020(tmp_path).scan()
    assert tables.jobs.select(shape).rows() == [
        ("0", 6.0, 0.0, 0.25, 1, "T4", 0, 100),
        ("5", 2.0, 0.0, 1.0, 2, "MISC", 200, 205),
    ]
    assert tables.stages[-1] == (
        "jobs",
        6,
        2,
        {
            "num_gpu is empty": (1, 3),
            "num_inst is empty": (1, 4),
            "submit_time is empty": (1, 5),
            "duration is negative": (1, 6),
        },
    )
    filled = AlibabaGpuV2020(tmp_path, missing="fill")
    assert filled.scan().jobs.select(shape).rows() == [
        ("0", 6.0, 0.0, 0.25, 1, "T4", 499, 599),
        ("1", 8.0, 0.0, 0.0, 4, "", 399, 599),
        ("2", 0.0, 0.0, 1.0, 1, "V100", 449, 450),
        ("3", 2.0, 0.0, 1.0, 1, "MISC", 0, 50),
        ("4", 2.0, 0.0, 1.0, 2, "", 599, 600),
        ("5", 2.0, 0.0, 1.0, 2, "MISC", 699, 704),
    ]
    assert "2 durations are not positive and read as 1 s" in filled.fidelity().notes
    assert "1 empty fields of submit_time are read as 1" in filled.fidelity().notes
    assert AlibabaGpuV2020(file).scan().jobs.equals(tables.jobs)
    assert open_trace(file, slot="1m", skip=0).counts.sum() > 0


def test_the_list_with_estimates_and_the_tables_when_both_are_here(tmp_path):
    rows = [
        SIMULATOR[0] + ",wait_time,user_dur,user_gpu_dur,group_dur,group_gpu_dur",
        SIMULATOR[1] + ",5,1,2,3,4",
    ]
    file = simulator(write(tmp_path), rows, "pai_job_duration_estimate_100K.csv")
    assert AlibabaGpuV2020(tmp_path).scan().jobs["name"].to_list() == [e[0] for e in EXPECTED]
    assert "the simulator's job list here is not read" in str(AlibabaGpuV2020(tmp_path).fidelity())
    assert AlibabaGpuV2020(tmp_path, simulator=file).scan().jobs["name"].to_list() == ["0"]
    other = simulator(tmp_path)
    assert AlibabaGpuV2020(tmp_path, simulator=other).scan().stages[-1].read == 6


@pytest.mark.parametrize(
    ("table", "row", "reason"),
    [
        ("pai_task_table", "a1,t,1.5,Terminated,5.0,6.0,1.0,1.0,1.0,T4", "inst_num is not a whole"),
        ("pai_task_table", "a1,t,0,Terminated,5.0,6.0,1.0,1.0,1.0,T4", "inst_num is less than 1"),
        ("pai_task_table", "a1,t,1.0,Done,5.0,6.0,1.0,1.0,1.0,T4", "status does not look like one"),
        ("pai_task_table", "a1,t,1.0,Failed,6.0,5.0,1.0,1.0,1.0,T4", "end_time is before"),
        ("pai_task_table", "a1,t,1.0,Failed,5.0,6.0,1.0,1.0,1.0,CPU", "gpu_type is CPU"),
        ("pai_task_table", "a1,t,1.0,Failed,5.0,6.0,-1.0,1.0,1.0,T4", "plan_cpu is negative"),
        ("pai_task_table", "a1,t,1.0,Failed,5.0,6.0,1.0,1.0,1.0", "number of fields"),
        ("pai_job_table", "zz,1a,b1,Failed,5.0,6.0", "job_name does not look like one"),
        ("pai_job_table", "a1,1a,b1,Failed,5.0,6.0", "job_name was used before"),
        ("pai_job_table", "c1,1a,b1,Failed,soon,6.0", "start_time is not a number"),
        ("pai_machine_spec", "aa09,CPU,96,512,1", "gpu_type is CPU and cap_gpu is positive"),
        ("pai_machine_spec", "aa09,T4,96,512,0", "cap_gpu is 0"),
        ("pai_group_tag_table", "2a,b1,V100,fb,nmt", "inst_id was used before"),
    ],
)
def test_bad_rows_are_counted_and_named(tmp_path, table, row, reason):
    rows = [*TABLES[table], row]
    trace = AlibabaGpuV2020(write(tmp_path, **{table: rows}))
    assert trace.scan().jobs.select(COLUMNS).rows() == EXPECTED
    (stage,) = (stage for stage in trace.scan().stages if stage.name == f"{table}.csv")
    ((why, found),) = stage.dropped.items()
    assert reason in why
    assert found == (1, len(rows))
    with pytest.raises(TraceError, match=rf"row {len(rows)}: .*{reason}") as error:
        AlibabaGpuV2020(tmp_path, strict=True).scan()
    assert (error.value.file, error.value.row) == (tmp_path / f"{table}.csv", len(rows))


def test_a_header_row_is_tolerated(tmp_path):
    names = "job_name,inst_id,user,status,start_time,end_time"
    write(tmp_path, pai_job_table=[names, *JOBS])
    assert AlibabaGpuV2020(tmp_path).scan().jobs.select(COLUMNS).rows() == EXPECTED


def test_without_jobs_or_without_machines(tmp_path):
    write(tmp_path, only=["pai_machine_spec"])
    trace = AlibabaGpuV2020(tmp_path)
    with pytest.raises(TraceError, match="pai_task_table"):
        open_tables(tmp_path)
    assert trace.scan().servers["gpu"].to_list() == [2, 0, 8, 8]
    report = trace.fidelity()
    assert (report.servers, report.jobs, report.capacity["gpu"], report.load) == (4, 0, 18, {})
    assert "4 servers, no jobs\n" in str(report)
    assert "there are no jobs" in str(report)
    write(tmp_path, only=["pai_job_table"])
    with pytest.raises(TraceError, match="no pai_task_table here"):
        open_trace(tmp_path)
    (tmp_path / "pai_machine_spec.csv").unlink()
    write(tmp_path, only=["pai_task_table"])
    report = AlibabaGpuV2020(tmp_path).fidelity()
    assert (report.servers, report.jobs, report.capacity, report.load) == (0, 7, {}, {})
    assert (report.first, report.last) == (0, 900)
    assert "no servers, 7 jobs" in str(report)


def test_when_nothing_is_left_the_reasons_are_given(tmp_path):
    write(tmp_path, pai_task_table=TASKS[5:8])
    with pytest.raises(TraceError, match="status"):
        AlibabaGpuV2020(tmp_path).scan()


def test_every_table_is_told_apart_by_its_rows(tmp_path):
    """The example entries of the publisher's description, whatever the files are called."""
    job, inst = "4b3f04b66a525d2df903eb16", "8cb3bec23d14dbde320b6613452e768cbbf35b8bd64ee28fcce"
    rows = {
        "pai_job_table": f"{job},{inst},58540f191766,Terminated,4550879.0,4551416.0",
        "pai_task_table": f"{job},tensorflow,1.0,Terminated,1739162.0,1739200.0,600.0,29.296875,"
        "50.0,MISC",
        "pai_group_tag_table": f"{inst},d2d3b77d342e,V100M32,fbeb14d671c629b6e82bee889fe4bb4c,nmt",
        "pai_machine_spec": "82e5af3cd5c4af3f56c62c54,T4,96,512,2",
        "simulator_jobs": "\n".join(SIMULATOR),
        "mini_batch_times": ",worker,gpu,time,batch_time_norm\n0,0,25,1,476",
    }
    for number, text in enumerate(rows.values()):
        (tmp_path / f"file-{number}.csv").write_text(text + "\n")
    source = TraceFiles(tmp_path, FORMAT)
    for number, table in enumerate(rows):
        assert [f.name for f in source.files(table)] == [f"file-{number}.csv"]
        assert all(not stage.dropped for stage in source.read(table).stages)
    assert AlibabaGpuV2020.recognise(tmp_path)


def test_the_published_machines(traces):
    folder = traces / "alibaba-gpu-v2020"
    if not (folder / "pai_machine_spec.csv").is_file():
        pytest.skip("the real traces here do not include alibaba-gpu-v2020")
    with (folder / "pai_machine_spec.csv").open(newline="") as handle:
        rows = list(csv.reader(handle))
    servers = AlibabaGpuV2020(folder, strict=True).scan().servers
    assert servers["name"].to_list() == [row[0] for row in rows]
    assert servers.select("cpu", "mem", "gpu").rows() == [
        tuple(float(x) for x in row[2:]) for row in rows
    ]
    models = Counter("" if row[1] == "CPU" else row[1] for row in rows)
    assert Counter(servers["model"].to_list()) == models
    assert models == {"P100": 798, "T4": 497, "MISC": 280, "V100M32": 135, "V100": 104, "": 83}
    report = AlibabaGpuV2020(folder).fidelity()
    assert (report.servers, report.jobs, report.capacity["gpu"]) == (1897, 0, 6742)
    assert all(not stage.dropped for stage in report.stages)
    with pytest.raises(TraceError, match="synthetic twin"):
        open_trace(folder)


def test_the_published_mini_batch_times_are_tables_of_the_format(traces):
    folder = traces / "alibaba-gpu-v2020" / "mini-batch-time"
    if not folder.is_dir():
        pytest.skip("the real traces here do not include mini-batch-time")
    read = TraceFiles(folder.parent, FORMAT).read("mini_batch_times")
    assert [stage.kept for stage in read.stages] == [3000, 2402, 2489, 21829]
    trace = MiniBatchTime(folder)
    for part, table in enumerate(trace.tables.values()):
        rows = read.frame.filter(read.frame["part"] == part)
        assert rows["batch_time_norm"].to_list() == table.frame["batch_time_norm"].to_list()
