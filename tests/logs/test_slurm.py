"""Slurm accounting, from listings written by the manual of sacct."""

from __future__ import annotations

import gzip
import itertools
import json
import re

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from gangwise import TraceError
from gangwise.cli import app
from gangwise.core.errors import UnknownName
from gangwise.jobs import Node, Nodes, simulate_jobs
from gangwise.logs.formats.slurm import OPEN_XDMOD, SlurmSacct
from gangwise.logs.formats.slurm_submit import request, sizes_of, submitted
from gangwise.logs.inspect import inspect
from gangwise.logs.jobs import jobs_of, open_jobs
from gangwise.notation import clock, expand_nodes, gib
from gangwise.notation import read_tres as tres
from gangwise.papers.scenarios.opening import open_trace
from gangwise.sites.site import Pool, Rules, Site
from gangwise.study.replay_scenario import ReplayScenario

HEADER = "JobID|User|State|Submit|Start|End|ReqTRES|AllocTRES|NNodes|NodeList"
DAY = "2024-01-15T"


def row(job, state, submit, start, end, req="", alloc="", nodes="1", hosts="n1", user="ann"):
    times = [DAY + t if t[0].isdigit() else t for t in (submit, start, end)]
    return "|".join([job, user, state, *times, req, alloc, nodes, hosts])


ROWS = [
    row(
        "100",
        "COMPLETED",
        "10:00:00",
        "10:00:30",
        "10:02:00",
        "billing=8,cpu=8,gres/gpu:a100=4,gres/gpu=4,mem=64G,node=2",
        "billing=48,cpu=48,gres/gpu:a100=4,gres/gpu=4,mem=128G,node=2",
        "2",
        "n[1-2]",
    ),
    row("100.batch", "COMPLETED", "10:00:30", "10:00:30", "10:02:00", alloc="cpu=24,node=1"),
    row("100.0", "COMPLETED", "10:00:30", "10:00:31", "10:02:00", alloc="cpu=24,node=1"),
    row(
        "101_7",
        "CANCELLED by 1000",
        "10:01:00",
        "10:01:00",
        "10:05:00",
        "cpu=1,mem=512M,node=1",
        "cpu=2,mem=512M,node=1",
    ),
    row("102+1", "TIMEOUT", "10:02:00", "10:03:00", "10:04:00", "cpu=4,gres/gpu=1,mem=1T,node=1"),
    row(
        "103",
        "CANCELLED",
        "10:03:00",
        "None",
        "10:06:00",
        "cpu=3,mem=3000M,node=3",
        "",
        "3",
        "None assigned",
    ),
    row("104", "RUNNING", "10:04:00", "10:10:00", "Unknown", "cpu=1,mem=1G,node=1"),
    row("105_[2-9%4]", "PENDING", "10:05:00", "Unknown", "Unknown", "cpu=1,mem=1G,node=1"),
]
COLUMNS = [
    "row",
    "name",
    "cpu",
    "mem",
    "gpu",
    "models",
    "tasks",
    "created",
    "started",
    "deleted",
    "status",
]
TABLE = [
    (2, "100", 24, 64, 2, "a100", 2, 0, 30, 120, "COMPLETED"),
    (5, "101_7", 2, 0.5, 0, "", 1, 60, 60, 300, "CANCELLED"),
    (6, "102+1", 4, 1024, 1, "", 1, 120, 180, 240, "TIMEOUT"),
    (7, "103", 1, 1000 / 1024, 0, "", 3, 180, None, 360, "CANCELLED"),
    (8, "104", 1, 1, 0, "", 1, 240, 600, 600, "RUNNING"),
    *((9, f"105_{i}", 1, 1, 0, "", 1, 300, None, 600, "PENDING") for i in range(2, 10)),
]
NODES = (
    "NodeName=n1 Arch=x86_64 CPUAlloc=0 CPUTot=64 CPULoad=0.01 Gres=gpu:a100:4(S:0-1),lscratch:3200"
    " NodeAddr=n1 OS=Linux 5.4 #1 SMP RealMemory=262144 AllocMem=0 State=IDLE"
    " CfgTRES=cpu=64,mem=256G,billing=64,gres/gpu=4\n"
    "NodeName=n2 CPUTot=32 Gres=(null) RealMemory=131072 State=MIXED\n"
    "NodeName=n3 CPUTot=32 Gres=gpu:a100:2,gpu:v100:2 RealMemory=131072 State=MIXED\n"
)


def write(folder, rows=ROWS, header=HEADER, name="jobs.txt", nodes=""):
    (folder / name).write_text("".join(f"{line}\n" for line in (header, *rows) if line))
    if nodes:
        (folder / "nodes.txt").write_text(nodes)
    return folder


def test_tables_by_hand(tmp_path):
    tables = SlurmSacct(write(tmp_path, nodes=NODES)).scan()
    assert tables.jobs.select(COLUMNS).rows() == TABLE
    assert tables.jobs["user"].to_list() == ["ann"] * 13
    assert set(tables.jobs["terms"][-8:]) == {"array=105%4,mem=1"}
    assert tables.servers.rows() == [(1, "n1", "a100", 64, 256, 4), (2, "n2", "", 32, 128, 0)]
    stages = {stage.name: stage for stage in tables.stages}
    assert dict(stages["nodes.txt"].dropped) == {"the node has GPUs of several models": (1, 3)}
    assert (stages["jobs.txt"].read, stages["jobs.txt"].kept) == (8, 8)
    assert dict(stages["allocations"].dropped) == {"a step, whose job has a row of its own": (2, 3)}
    assert dict(stages["jobs"].dropped) == {}
    notes = "\n".join(tables.notes)
    assert "9 jobs have not ended" in notes
    assert "9 jobs never started" in notes
    assert set(tables.digests) == {"jobs.txt", "nodes.txt"}


def test_allocated_or_requested_instead_of_held(tmp_path):
    asked = SlurmSacct(write(tmp_path), tres="requested").scan().jobs
    assert asked.select("cpu", "mem", "gpu").rows()[:2] == [(4, 32, 2), (1, 0.5, 0)]
    tables = SlurmSacct(write(tmp_path), tres="allocated").scan()
    assert tables.jobs.select("cpu", "mem", "gpu").rows()[:2] == [(24, 64, 2), (2, 0.5, 0)]
    assert tables.jobs["cpu"].to_list()[2:5] == [4, 1, 1]  # nothing allocated: as requested
    assert "11 jobs have an empty AllocTRES" in "\n".join(tables.notes)
    with pytest.raises(TraceError, match="requested"):
        SlurmSacct(tmp_path, tres="used")


@pytest.mark.parametrize("form", ["-p", "gzip", "CRLF", "BOM", "shuffled", "seconds since 1970"])
def test_however_it_is_written(tmp_path, form):
    write(tmp_path)
    file = tmp_path / "jobs.txt"
    text = file.read_text()
    if form == "-p":
        file.write_text(text.replace("\n", "|\n"))
    if form == "CRLF":
        file.write_bytes(text.replace("\n", "\r\n").encode())
    if form == "BOM":
        file.write_text("\ufeff" + text)
    if form == "shuffled":
        order = [3, 9, 0, 5, 1, 2, 4, 6, 7, 8]
        lines = [line.split("|") for line in text.splitlines()]
        file.write_text("\n".join("|".join(line[i] for i in order) for line in lines) + "\n")
    if form == "seconds since 1970":  # 2024-01-15T00:00:00 UTC

        def number(match):
            h, m, s = (int(x) for x in match[1].split(":"))
            return str(1_705_276_800 + 3600 * h + 60 * m + s)

        file.write_text(re.sub(r"2024-01-15T(\d\d:\d\d:\d\d)", number, text))
    if form == "gzip":
        (tmp_path / "jobs.txt.gz").write_bytes(gzip.compress(text.encode()))
        file.unlink()
    assert SlurmSacct.recognise(tmp_path)
    assert SlurmSacct(tmp_path).scan().jobs.select(COLUMNS).rows() == TABLE


def test_old_versions_without_tres_for_memory_and_with_elapsed(tmp_path):
    header = "JobID|Submit|Start|Elapsed|ReqTRES|ReqMem|AllocNodes|NodeList"
    rows = [
        f"1|{DAY}10:00:00|{DAY}10:00:00|1-00:00:10|cpu=8|4000Mc|2|n[1-2]",
        f"2|{DAY}10:00:00|{DAY}10:00:00|01:30|cpu=8|16Gn||n[1-2,7,09]",
        f"3|{DAY}10:00:00|{DAY}10:00:00|00:00:00|cpu=8|16G|1|n1",
        f"4|{DAY}10:00:00|{DAY}10:00:00|00:00:00|cpu=8|16G||None assigned",
    ]
    tables = SlurmSacct(write(tmp_path, rows, header)).scan()
    assert tables.jobs.select("name", "cpu", "mem", "tasks", "deleted").rows() == [
        ("1", 4, 4 * 4000 / 1024, 2, 86410),
        ("2", 2, 16, 4, 90),
        ("3", 8, 16, 1, 0),
    ]
    assert dict(tables.stages[-1].dropped) == {"the number of nodes is not known": (1, 5)}


JSON_OLD = {
    "job_id": 100,
    "array": {"job_id": 0, "task_id": None, "task": None},
    "het": {"job_id": 0, "job_offset": None},
    "user": "ann",
    "allocation_nodes": 2,
    "nodes": "n[1-2]",
    "state": {"current": "COMPLETED", "reason": "None"},
    "required": {"CPUs": 8, "memory": 8192},
    "time": {"submission": 1000, "eligible": 1000, "start": 1030, "end": 1120, "limit": 60},
    "steps": [{}, {}],
    "tres": {
        "requested": [
            {"type": "cpu", "name": None, "id": 1, "count": 8},
            {"type": "mem", "name": None, "id": 2, "count": 65536},
            {"type": "node", "name": None, "id": 4, "count": 2},
            {"type": "gres", "name": "gpu", "id": 1001, "count": 4},
            {"type": "gres", "name": "gpu:a100", "id": 1002, "count": 4},
        ],
        "allocated": [{"type": "energy", "name": None, "id": 3, "count": None}],
    },
}
NO = {"set": False, "infinite": False, "number": 0}
JSON_NEW = {
    **JSON_OLD,
    "job_id": 205,
    "state": {"current": ["CANCELLED"], "reason": "None"},
    "array": {"job_id": 200, "task_id": {"set": True, "infinite": False, "number": 5}, "task": ""},
    "het": {"job_id": 0, "job_offset": NO},
    "time": {
        "submission": 1060,
        "eligible": 1060,
        "start": 0,
        "end": 1300,
        "limit": {**NO, "infinite": True},
    },
    "required": {"CPUs": 1, "memory_per_cpu": NO},
    "allocation_nodes": 0,
    "steps": [],
    "tres": {
        "requested": [
            {"type": "cpu", "name": "", "id": 1, "count": 1},
            {"type": "mem", "name": "", "id": 2, "count": 512},
            {"type": "node", "name": "", "id": 4, "count": 1},
        ],
        "allocated": [],
    },
}
JSON_HET = {
    **JSON_OLD,
    "job_id": 301,
    "time": {"submission": 1120, "start": 1180, "end": 0},
    "het": {"job_id": 300, "job_offset": {"set": True, "infinite": False, "number": 1}},
}
JSON_PENDING = {**JSON_NEW, "job_id": 400, "array": {"job_id": 400, "task_id": NO, "task": "2-9%4"}}


def test_json_of_old_and_new_versions(tmp_path):
    jobs = [JSON_OLD, JSON_NEW, JSON_HET, JSON_PENDING]
    file = tmp_path / "jobs.json"
    file.write_text(json.dumps({"meta": {}, "jobs": jobs}, indent=1))
    assert SlurmSacct.recognise(file)
    tables = SlurmSacct(file).scan()
    assert tables.jobs.select(COLUMNS).rows() == [
        (1, "100", 4, 32, 2, "a100", 2, 0, 30, 120, "COMPLETED"),
        (2, "200_5", 1, 0.5, 0, "", 1, 60, None, 300, "CANCELLED"),
        (3, "300+1", 4, 32, 2, "a100", 2, 120, 180, 300, "COMPLETED"),
        *((4, f"400_{i}", 1, 0.5, 0, "", 1, 60, None, 300, "CANCELLED") for i in range(2, 10)),
    ]
    assert sum(n for stage in tables.stages for n, _ in stage.dropped.values()) == 0
    assert "4 steps are inside" in "\n".join(tables.notes)
    file.write_text(file.read_text()[:-40])
    with pytest.raises(TraceError, match="cut short"):
        SlurmSacct(file).scan()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"time": {}}, "time.submission"),
        ({"time": None}, "fields of a job"),
        ({"job_id": None}, "job_id"),
        ({"tres": {"requested": [{"count": 1}]}}, "fields of a job"),
        ({"allocation_nodes": "two"}, "number where 'two' is"),
    ],
)
def test_bad_json_records(tmp_path, change, reason):
    file = tmp_path / "jobs.json"
    file.write_text(json.dumps({"jobs": [JSON_OLD, {**JSON_OLD, "job_id": 7, **change}]}))
    ((why, found),) = SlurmSacct(file).scan().stages[0].dropped.items()
    assert reason in why
    assert found == (1, 2)
    with pytest.raises(TraceError, match="row 2: .*" + re.escape(why)):
        SlurmSacct(file, strict=True).scan()


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (row("9", "FAILED", "10:00:00", "10:05:00", "10:04:00", "cpu=1,node=1"), "End is before"),
        (row("9", "FAILED", "10:00:00", "09:00:00", "10:04:00", "cpu=1,node=1"), "Start is before"),
        (row("9", "FAILED", "10:00:00", "None", "09:04:00", "cpu=1,node=1"), "End is before Sub"),
        (row("9", "FAILED", "10:61:00", "None", "09:04:00", "cpu=1,node=1"), "Submit is not a d"),
        (row("9", "FAILED", "soon", "None", "11:04:00", "cpu=1,node=1"), "Submit does not look"),
        (row("9", "FAILED", "10:00:00", "None", "11:04:00", "cpu:1"), "ReqTRES does not look"),
        (row("9", "FAILED", "10:00:00", "None", "11:04:00", "mem=1G,node=1"), "names no cpu"),
        (row("9", "FAILED", "10:00:00", "None", "11:04:00", "cpu=1,cpu=2"), "is no TRES"),
        (row("9", "FAILED", "10:00:00", "None", "11:04:00"), "neither ReqTRES nor"),
        (row("train|2", "FAILED", "10:00:00", "None", "11:04:00", "cpu=1,node=1"), "number of fi"),
        (row("job", "FAILED", "10:00:00", "None", "11:04:00", "cpu=1,node=1"), "JobID does not"),
    ],
)
def test_bad_rows_are_counted_and_named(tmp_path, bad, reason):
    tables = SlurmSacct(write(tmp_path, [*ROWS, bad])).scan()
    assert tables.jobs.select(COLUMNS).rows() == TABLE
    hits = [item for stage in tables.stages for item in stage.dropped.items() if reason in item[0]]
    assert [found for _, found in hits] == [(1, 10)]
    with pytest.raises(TraceError, match="row 10: .*" + reason):
        SlurmSacct(tmp_path, strict=True).scan()


def test_missing_columns_say_what_to_ask_for(tmp_path):
    folder = tmp_path / "log"  # of its own, so that the folder above holds no other test's files
    folder.mkdir()
    write(folder, ["1|COMPLETED|4"], "JobID|State|NCPUS")
    assert SlurmSacct.recognise(folder)
    wanted = r"no Submit and no Start and no End; run sacct .*--format=JobID"
    with pytest.raises(TraceError, match=wanted):
        open_trace(folder)
    with pytest.raises(TraceError, match="output"):
        SlurmSacct(folder / "..").scan()


def test_nodes_from_elsewhere_and_in_either_form(tmp_path):
    write(tmp_path)
    (tmp_path / "other").mkdir()
    nodes = tmp_path / "other" / "nodes"
    nodes.write_text(NODES.replace(" Gres", "\n   Gres").replace(" State", "\n   State"))
    assert SlurmSacct(tmp_path).scan().servers.is_empty()
    assert "scontrol show node" in str(SlurmSacct(tmp_path).fidelity())
    with pytest.raises(TraceError, match="servers"):
        open_trace(tmp_path)
    servers = SlurmSacct(tmp_path, nodes=nodes).scan().servers
    assert [line[1:] for line in servers.rows()] == [
        ("n1", "a100", 64, 256, 4),
        ("n2", "", 32, 128, 0),
    ]
    nodes.write_text("NodeName=n1 CPUTot=many RealMemory=1\nNodeName=n8 CPUTot=2 RealMemory=1024\n")
    tables = SlurmSacct(tmp_path, nodes=nodes).scan()
    assert dict(tables.stages[0].dropped) == {"CPUTot or RealMemory is not a number": (1, 1)}
    assert any("2 nodes of NodeList" in note for note in tables.notes)
    with pytest.raises(TraceError, match="row 1: CPUTot"):
        SlurmSacct(tmp_path, nodes=nodes, strict=True).scan()


def test_it_plays(tmp_path):
    scenario = open_trace(write(tmp_path, nodes=NODES), slot="1m", skip=0.0)
    assert scenario.instance(seed=0).problem.cluster.devices == ("cpu", "mem", "gpu:a100")
    sample = open_trace(tmp_path, slot="1m", skip=0.0, servers=1)  # a setting, not the node list
    assert len(sample.instance(seed=0).problem.cluster.servers) == 1


def fold(numbers, width):
    """``[1, 2, 3, 7]`` to ``1-3,7``, each ``width`` wide."""
    runs = []
    for _, run in itertools.groupby(enumerate(sorted(numbers)), lambda pair: pair[1] - pair[0]):
        held = [n for _, n in run]
        last = f"-{held[-1]:0{width}d}" if len(held) > 1 else ""
        runs.append(f"{held[0]:0{width}d}{last}")
    return ",".join(runs)


NUMBERS = st.sets(st.integers(0, 999), min_size=1, max_size=30)
PREFIX = st.from_regex(r"[a-z][a-z0-9-]{0,6}[a-z-]", fullmatch=True)


@given(st.lists(st.tuples(PREFIX, NUMBERS, st.integers(3, 5)), min_size=1, max_size=4))
def test_expanding_undoes_folding(parts):
    text = ",".join(f"{prefix}[{fold(numbers, width)}]" for prefix, numbers, width in parts)
    names = [f"{prefix}{n:0{width}d}" for prefix, numbers, width in parts for n in sorted(numbers)]
    assert expand_nodes(text) == names


@pytest.mark.parametrize(
    "text", ["n[1", "n1]", "n[]", "n[3-1]", "n[a]", "n[1-99999999]", "n[[1]]", "[1-9999][1-9999]"]
)
def test_node_lists_that_make_no_sense(text):
    with pytest.raises(ValueError, match=r"brackets|no list|backwards|more than"):
        expand_nodes(text)


@given(st.integers(0, 10**8))
def test_a_duration_reads_back(total):
    days, rest = divmod(total, 86400)
    written = f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    text = f"{days}-{written}" if days else written
    assert pl.DataFrame({"t": [text]}).select(clock(pl.col("t"))).item() == total


AMOUNTS = st.integers(0, 10**6)


@given(
    st.permutations(["cpu", "mem", "node", "gres/gpu", "gres/gpu:h100", "billing"]),
    AMOUNTS,
    st.integers(1, 64),
    AMOUNTS,
    st.sampled_from("MGT"),
)
def test_a_request_is_in_any_order_and_adds_up(order, cores, nodes, memory, unit):
    held = {
        "cpu": f"{cores}",
        "mem": f"{memory}{unit}",
        "node": f"{nodes}",
        "gres/gpu": "3",
        "gres/gpu:h100": "3",
        "billing": "1",
    }
    text = ",".join(f"{name}={held[name]}" for name in order)
    assert tres(text) == held
    found = request(text)
    size = {"M": 1, "G": 1024, "T": 1024**2}[unit]
    assert found.tasks == nodes
    assert found.cpu * nodes == pytest.approx(cores)
    assert found.mem * nodes * 1024 == pytest.approx(memory * size)
    assert (found.gpu * nodes, found.models) == (pytest.approx(3), "h100")


@pytest.mark.parametrize("text", ["", "G", "-1G", "1X", "1 G", "nan"])
def test_amounts_that_are_none(text):
    with pytest.raises(ValueError, match="no amount"):
        gib(text)


def test_files_by_month_are_one_log(tmp_path):
    """A job that runs over the end of a month is in both; the later record has its end."""
    first = row("104", "RUNNING", "10:04:00", "10:10:00", "Unknown", "cpu=1,mem=1G,node=1")
    last = row("104", "COMPLETED", "10:04:00", "10:10:00", "10:30:00", "cpu=1,mem=1G,node=1")
    write(tmp_path, [*ROWS[:1], first], name="jobs-2024-01.txt")
    again = row("100", "COMPLETED", "11:00:00", "11:00:00", "11:01:00", "cpu=1,mem=1G,node=1")
    write(tmp_path, [last, again], name="jobs-2024-02.txt")
    tables = SlurmSacct(tmp_path).scan()
    assert tables.jobs.select("row", "name", "created", "started", "deleted").rows() == [
        (2, "100", 0, 30, 120),
        (5, "104", 240, 600, 1800),
        (6, "100#2", 3600, 3600, 3660),  # ids may begin again
    ]
    stages = {stage.name: stage for stage in tables.stages}
    assert dict(stages["records"].dropped) == {"a record of a job, which has a later one": (1, 3)}
    notes = "\n".join(tables.notes)
    assert "jobs-2024-01.txt from 1, jobs-2024-02.txt from 4" in notes
    assert set(tables.digests) == {"jobs-2024-01.txt", "jobs-2024-02.txt"}
    assert open_jobs(tmp_path).played.read == 3


@pytest.mark.parametrize("header", [True, False])
def test_files_by_month_with_bad_rows_are_one_log(tmp_path, header):
    """As a listing, and as Open XDMoD keeps it; folders beside them are of another log."""
    site, columns = tmp_path / "site", OPEN_XDMOD.split("|")
    (site / "old").mkdir(parents=True)
    (site / "nodes.txt").write_text(NODES)
    for month, job in (("01", "7"), ("02", "8"), ("03", "7")):
        known = {
            "JobID": job,
            "State": "COMPLETED",
            "Submit": f"2024-{month}-15T10:00:00",
            "Start": f"2024-{month}-15T10:00:30",
            "End": f"2024-{month}-15T10:01:30",
            "NNodes": "1",
            "ReqTRES": "cpu=4,mem=8G,node=1",
            "NodeList": "n1",
        }
        rows = known, {**known, "JobID": f"{job}.batch"}
        lines = ["|".join(of.get(name, "") for name in columns) for of in rows]
        lines = [OPEN_XDMOD, *lines] if header else lines
        (site / f"{month}.log").write_text("\n".join([*lines, "8|cut short"]) + "\n")
    (site / "old" / "00.log").write_text((site / "01.log").read_text())
    tables = SlurmSacct(site).scan()
    read = [stage[:3] for stage in tables.stages if stage.name.endswith(".log")]
    assert read == [(f"{month}.log", 3, 2) for month in ("01", "02", "03")]
    assert tables.jobs["name"].to_list() == ["7", "8", "7#2"]
    (trace,) = inspect(site).traces
    assert [file.read for file in trace.files if file.table == "jobs"] == [3] * 4


def test_the_layout_for_people_is_refused_with_what_to_do(tmp_path):
    file = tmp_path / "jobs.txt"
    file.write_text(
        "JobID           JobName  Partition    Account  AllocCPUS      State ExitCode \n"
        "------------ ---------- ---------- ---------- ---------- ---------- -------- \n"
        "100             train_a        gpu        lab          8  COMPLETED      0:0 \n"
    )
    with pytest.raises(TraceError, match="--parsable2"):
        SlurmSacct(file).scan()
    assert "--parsable2" in str(inspect(file))


def test_declared_columns_play_wherever_a_log_is_named(tmp_path):
    write(tmp_path, [ROWS[0], ROWS[3]], header=None)
    told = {"trace": "slurm-sacct", "columns": HEADER}
    scenario = ReplayScenario(source=str(tmp_path), **told)
    assert scenario.log.jobs.id.tolist() == ["100", "101_7"]
    assert scenario.describe()["columns"] == HEADER
    again = ReplayScenario(**scenario.given)
    assert again.describe() == scenario.describe()
    assert open_trace(tmp_path, machines=2, shape=(48, 128, 4), model="a100", **told).slots
    with pytest.raises(UnknownName, match="'colums'"):
        ReplayScenario(source=str(tmp_path), trace="slurm-sacct", colums=HEADER)


# ------------------------------------------------------------ what was asked for, and was given


@pytest.mark.parametrize(
    ("asked", "given", "line", "expected"),
    [  # tasks, at most so many on a node, cores of each, terms
        ("cpu=12,node=1", "cpu=12,node=2", "-n 12", (12, 0, 1, "given=2,size=12x1")),
        ("cpu=12,node=1", "cpu=12,node=2", "run.sh", (12, 0, 1, "given=2,size=12x1")),
        ("cpu=24,node=1", "cpu=24,node=3", "-n 12 -c2", (12, 0, 2, "given=3,size=24x1")),
        ("cpu=12,node=1", "", "-n 12", (12, 0, 1, "size=12x1")),  # waits still
        # two nodes of five cores, which Slurm gave to three tasks of four
        ("cpu=12,node=1", "cpu=10,node=2", "-n3 -c4", (3, 0, 4, "given=2,size=12x1,held=10")),
        ("cpu=12,node=1", "cpu=12,node=1", "run.sh", (1, 1, 12, "")),
        ("cpu=4,node=2", "cpu=4,node=2", "-N 2 -n 4", (4, 3, 1, "nodes=2-2,size=4x2")),
        ("cpu=6,node=2", "cpu=6,node=4", "-N 2-4 -n 6", (6, 5, 1, "nodes=2-4,size=6x2")),
        ("cpu=15,node=3", "cpu=15,node=3", "-N3 --ntasks-per-node=5", (3, 1, 5, "")),
        (
            "cpu=10,node=1",
            "cpu=12,node=3",
            "-n10 --ntasks-per-node=4",
            (3, 1, 4, "size=10x1,held=12"),
        ),
        ("cpu=3,node=1", "cpu=3,node=3", "-n3 --spread-job", (3, 0, 1, "nodes=0-3,size=3x1")),
        ("cpu=1,node=1", "cpu=8,node=1", "--exclusive -n1", (1, 1, 8, "whole=1,size=1x1,held=8")),
        (
            "cpu=1,node=1",
            "cpu=2,node=1",
            "-N1 -n1",
            (1, 1, 2, "size=1x1,held=2"),
        ),  # threads of a core
        # as much must be free as four tasks would have: memory of each core is what it was given
        ("cpu=1,node=1", "cpu=1,node=1", "-n1 --ntasks-per-node=4", (1, 1, 1, "free=cpu:4")),
        (
            "cpu=1,mem=2G,node=1",
            "cpu=2,mem=4G,node=1",
            "-n1 --ntasks-per-node=4",
            (1, 1, 2, "size=1x1,held=2,mem=2,free=cpu:4|mem:8"),
        ),
        (
            "cpu=1,mem=2G,node=1",
            "cpu=1,mem=2G,node=1",
            "-n1 --ntasks-per-node=4 --mem=2G",
            (1, 1, 1, "free=cpu:4"),
        ),
        ("cpu=21,node=1", "cpu=22,node=3", "-n 21", (22, 0, 1, "given=3,size=21x1,held=22")),
        ("cpu=4,node=2", "cpu=4,node=2", "-N 2 -n 4 --mem=9G", (2, 1, 2, "")),
        (
            "cpu=4,mem=4G,node=1",
            "cpu=4,mem=24G,node=2",
            "-n4",
            (2, 1, 2, "whole=memory,size=4x1,mem=4"),
        ),
        (
            "cpu=4,mem=4G,node=1",
            "cpu=4,mem=8G,node=2",
            "-n4 --mem=4G",
            (4, 0, 1, "given=2,size=4x1,mem=4"),
        ),
        ("cpu=4,mem=4G,node=1", "cpu=8,mem=8G,node=2", "-n4", (2, 1, 4, "size=4x1,held=8,mem=4")),
        # CR_ONE_TASK_PER_CORE: seven nodes of 8 threads, and 8 threads of two larger ones
        (
            "cpu=32,mem=8G,node=1",
            "cpu=64,node=9",
            "-n 32",
            (64, 0, 1, "given=9,size=32x1,held=64,mem=8"),
        ),
    ],
)
def test_tasks_of_what_was_asked_for_and_given(asked, given, line, expected):
    found = request(asked, given, sizes=sizes_of(submitted(f"sbatch {line}")))
    assert (found.tasks, found.per_node, found.cpu, found.terms) == expected


@pytest.mark.parametrize(
    ("asked", "given", "line", "expected"),
    [  # as Slurm 22.05 printed them on nodes of 16 cores and 4 GPUs, of which it gave 4 and 2
        ("cpu=6,node=1", "cpu=6,node=2", "--ntasks=6 --gpus-per-task=1", (6, 0, 1)),
        ("cpu=6,node=1", "cpu=6,node=2", "--gpus=6 --ntasks=6", (6, 0, 1)),
        ("cpu=6,node=1", "cpu=6,node=2", "run.sh", (6, 0, 1)),
        ("cpu=6,node=2", "cpu=6,node=2", "-N2 -n 6 --gpus=6", (6, 5, 1)),
        ("cpu=1,node=1", "cpu=2,node=2", "--gpus=6", (6, 0, 1)),
        ("cpu=20,node=1", "cpu=20,node=2", "-n 20 -G 6", (6, 0, 1)),
        ("cpu=3,node=1", "cpu=3,node=2", "-n 3 --gpus-per-task=2", (3, 0, 2)),
        ("cpu=2,node=1", "cpu=2,node=2", "-n 2 --gpus=6", (6, 0, 1)),  # on two nodes at most
        ("cpu=1,node=1", "cpu=1,node=1", "-n 1 --gpus=6", (1, 1, 6)),  # a task is on one node
        ("cpu=6,node=2", "cpu=6,node=2", "-n 6 --gpus=6 --gpus-per-node=3 -N 2", (2, 1, 3)),
        ("cpu=6,node=1", "cpu=6,node=1", "--gres=gpu:6 -n 6", (1, 1, 6)),
    ],
)
def test_gpus_of_a_job_stand_on_nodes_as_they_are_free(asked, given, line, expected):
    six = ",gres/gpu=6"
    found = request(asked + six, given + six, sizes=sizes_of(submitted(f"sbatch {line}")))
    assert (found.tasks, found.per_node, found.gpu) == expected
    assert found.tasks * found.cpu == pytest.approx(int(given[4 : given.index(",")]), abs=0.01)
    assert ("nodes=0-2" in found.terms) == (line == "-n 2 --gpus=6")


def test_models_are_those_asked_for():
    def models(asked, given, sizes=""):
        return request(asked, given, sizes=sizes).models

    assert models("cpu=1,gres/gpu=2,node=1", "cpu=1,gres/gpu=2,gres/gpu:a100=2,node=1") == ""
    assert models("cpu=1,gres/gpu:a100=2,node=1", "cpu=1,gres/gpu:a100=2,node=1") == "a100"
    assert models("", "cpu=2,gres/gpu=4,gres/gpu:a100=2,gres/gpu:v100=2,node=2") == ""
    assert models("", "cpu=2,gres/gpu=2,gres/gpu:a100=2,node=2") == "a100"
    # A site that counts no GPUs by model prints none: the line of submission has what was asked.
    plain = "cpu=1,gres/gpu=2,node=1"
    assert models(plain, plain, "gres=gpu:v100:2") == "v100"
    assert models(plain, plain, "gpus=t4:2") == "t4"
    assert models(plain, plain, "gpus=2") == ""


LINES = "JobID|User|State|Submit|Start|End|ElapsedRaw|TimelimitRaw|ReqTRES|AllocTRES|NodeList"


def listing(folder, *rows):
    (folder / "jobs.txt").write_text("\n".join([f"{LINES}|SubmitLine", *rows]) + "\n")
    return SlurmSacct(folder).scan()


def test_options_are_played_or_named_job_by_job(tmp_path):
    times = f"{DAY}10:00:00|{DAY}10:00:00|{DAY}11:00:00|3600|120|cpu=1,node=1|cpu=1,node=1|n1"
    asks = "-p a,b --nice=70 -w n1 -x n[2-3] --reservation=res --switches=1 --deadline=now+2hours"
    tables = listing(tmp_path, *(f"{i}|ann|COMPLETED|{times}|sbatch {asks} r.sh" for i in (1, 2)))
    assert tables.jobs["terms"].to_list() == ["on=n1,not=n2|n3,reservation=res,pools=a|b"] * 2
    assert tables.jobs["priority"].to_list() == [-70, -70]
    notes = "\n".join(tables.notes)
    for named in ("--reservation", "--switches", "--deadline"):
        assert f"2 jobs ask for {named}" in notes


def test_a_job_that_was_requeued_runs_again_after_its_first_run(tmp_path):
    """Its number is again that of another job a year later; the later record of a run counts."""

    def run(user, state, submit, start, end, nodes="n1"):
        return f"5|{user}|{state}|{submit}|{start}|{end}||120|cpu=8,node=1|cpu=8,node=1|{nodes}|"

    tables = listing(
        tmp_path,
        run("ann", "NODE_FAIL", f"{DAY}08:00:00", f"{DAY}08:00:00", f"{DAY}09:00:00"),
        run("ann", "RUNNING", f"{DAY}09:00:00", f"{DAY}09:30:00", "Unknown"),
        run("ann", "COMPLETED", f"{DAY}09:00:00", f"{DAY}09:30:00", f"{DAY}12:30:00"),
        run("bob", "COMPLETED", *(f"2025-02-01T0{h}:00:00" for h in (0, 0, 1))),
    )
    assert tables.jobs["name"].to_list() == ["5", "5#2", "5#3"]
    assert tables.jobs["preceding"].to_list() == ["", "5", ""]
    assert dict(tables.stages[2].dropped) == {"a record of a job, which has a later one": (1, 3)}
    assert tables.jobs["again"].to_list() == ["5", "5", ""]
    log = jobs_of(tables)
    assert log.rows["name"].to_list() == ["5", "5#3"]
    assert log.jobs.run.tolist() == [4 * 3600, 3600]
    assert log.jobs.submit[0] == 0.0
    assert log.jobs.limit[0] == 3600 + 120 * 60  # two runs, each with its own limit
    assert "of 2 jobs and 100 % of 40 core-hours" in log.played.line
    assert "work is that of all 2 runs, 8 core-hours of it lost: 1" in log.played.line
    apart = jobs_of(tables, apart=True)
    assert apart.rows["name"].to_list() == ["5", "5#2", "5#3"]
    assert apart.jobs.run.tolist() == [3600, 3 * 3600, 3600]
    assert apart.jobs.after.tolist() == [0]


def test_three_runs_are_one_job_whose_dependency_on_itself_is_none(tmp_path):
    """Also of a heterogeneous job, which keeps its number."""

    def run(name, state, submit, start, end, cpu=8):
        tres = f"cpu={cpu},node=1"
        times = f"{DAY}{submit}:00|{DAY}{start}:00|{DAY}{end}:00"
        return f"{name}|ann|{state}|{times}||120|{tres}|{tres}|n1|"

    rows = [
        run("5", "NODE_FAIL", "08:00", "08:10", "09:10"),
        run("5", "PREEMPTED", "09:10", "09:20", "09:50"),
        run("5", "COMPLETED", "09:50", "10:00", "12:00"),
        *(run(f"7+{i}", "NODE_FAIL", "08:00", "08:30", "09:00", i + 1) for i in range(2)),
        *(run(f"7+{i}", "COMPLETED", "09:00", "09:30", "10:30", i + 1) for i in range(2)),
    ]
    log = jobs_of(listing(tmp_path, *rows))
    assert log.jobs.id.tolist() == ["5", "7"]
    assert log.jobs.run.tolist() == [3.5 * 3600, 1.5 * 3600]
    assert [len(log.jobs.shapes[s].groups) for s in log.jobs.shape] == [0, 2]
    assert "dependencies" not in log.played.line
    assert not log.jobs.after.size


def test_components_ask_for_nodes_and_partitions_of_their_own(tmp_path):
    """Of one row each: what is said of the other component does not hold for it."""
    header = "JobID|User|State|Submit|Start|End|Timelimit|ReqTRES|AllocTRES|NodeList|Partition|"
    header += "Constraints|SubmitLine"
    line = "sbatch -p thin -C fast : -p fat -w g1 run.sh"
    times = "|".join(f"{DAY}08:0{m}:00" for m in (0, 5, 9))
    rows = [
        f"7+0|ann|COMPLETED|{times}|120|cpu=4,node=1|cpu=4,node=1|n1|thin|fast|{line}",
        f"7+1|ann|COMPLETED|{times}|120|cpu=8,node=1|cpu=8,node=1|g1|fat||{line}",
    ]
    jobs = open_jobs(write(tmp_path, rows, header)).jobs
    nodes = Nodes.of(
        Node(name, {"cpu": 8}, {"features": features})
        for name, features in (("n1", "slow"), ("n2", "fast"), ("g0", "fast"), ("g1", ""))
    )
    pools = Pool(name="thin", nodes="n1,n2"), Pool(name="fat", nodes="g0,g1")
    for scheduler in ("slurm", "fcfs+easy+first-fit"):
        site = Site(Rules(pool=pools))
        played = simulate_jobs(jobs, nodes, scheduler, site=site, engine="plain")
        assert sorted(played.placed(0)) == [(1, 1), (3, 1)]


def test_raw_columns_offsets_and_cores_without_tres(tmp_path):
    header = "JobID|Submit|Start|End|State|ElapsedRaw|TimelimitRaw|NNodes|NCPUS|AllocGRES"
    rows = [
        "1|2024-03-01T08:00:00+01:00|2024-03-01T09:00:00+01:00|Unknown|RUNNING|86400|2880|2|32|",
        "2|2024/03/01-07:30:00|2024-03-01T08:00:00Z|2024-03-01T09:00:00Z|COMPLETED|3600|60|2|8|gpu:2",
    ]
    jobs = SlurmSacct(write(tmp_path, rows, header)).scan().jobs
    columns = ["name", "cpu", "gpu", "tasks", "created", "started", "deleted", "elapsed", "limit"]
    assert jobs.select(columns).rows() == [
        ("1", 16, 0, 2, 0, 3600, 3600 + 86400, 86400, 172800),
        ("2", 4, 2, 2, 1800, 3600, 7200, 3600, 3600),
    ]


def test_no_node_grows_by_a_job_that_was_suspended(tmp_path):
    """It was on its node for four hours, and ran for two; others had its cores in between."""
    header = "JobID|State|Submit|Start|End|Elapsed|AllocTRES|NodeList"
    span = f"{DAY}08:00:00|{DAY}08:00:00|{DAY}12:00:00|02:00:00"
    between = f"{DAY}09:00:00|{DAY}09:00:00|{DAY}11:00:00|02:00:00"
    rows = (f"{i}|COMPLETED|{t}|cpu=8,node=1|n1" for i, t in enumerate((span, between), 1))
    log = open_jobs(write(tmp_path, rows, header))
    assert log.nodes.capacity.tolist() == [[8000]]
    assert log.jobs.run.tolist() == [7200, 7200]
    assert any("1 jobs were suspended" in note for note in log.played.notes)
    (tmp_path / "nodes.txt").write_text("NodeName=n1 CPUTot=8 RealMemory=16000\n")
    assert not open_jobs(tmp_path).played.overused


def test_a_job_holds_nothing_while_it_waits_to_run_again(tmp_path):
    header = "JobID|State|Submit|Start|End|AllocTRES|NodeList"
    times = [
        [f"{DAY}{h:02d}:00:00" for h in hours] for hours in ((8, 8, 9), (8, 9, 12), (9, 12, 13))
    ]
    rows = (f"{i}|COMPLETED|{'|'.join(t)}|cpu=8,node=1|n1" for i, t in zip("121", times))
    (tmp_path / "nodes.txt").write_text("NodeName=n1 CPUTot=8 RealMemory=16000\n")
    played = open_jobs(write(tmp_path, rows, header)).played
    assert "misread" not in played.line
    assert "of all 2 runs" in played.line


def test_rows_without_a_header_say_how_to_name_their_columns(tmp_path):
    row = "51|51|u1|acc|COMPLETED|2025-01-06T08:10:00|3600|0:0|8|n1|normal|cpu=8,mem=16G,node=1|job"
    (tmp_path / "jobs.txt").write_text(row + "\n")
    with pytest.raises(TraceError, match="slurm-sacct --set columns="):
        SlurmSacct(tmp_path).scan()
    columns = "JobID,x,User,a,State,Submit,ElapsedRaw,b,c,NodeList,d,AllocTRES,e,Start"
    (tmp_path / "jobs.txt").write_text(f"{row}|2025-01-06T08:20:00\n")
    command = ["jobs", str(tmp_path), "--trace", "slurm-sacct", "--json"]
    shown = CliRunner().invoke(app, [*command, "--set", f"columns={columns}"])
    assert json.loads(shown.stdout)["wait"]["mean"] == 600


@pytest.mark.parametrize("new", [False, True])
def test_what_waits_and_runs_by_squeue(tmp_path, new):
    """As of 22.05, and as of 23.02 and later: numbers with ``set``, states in lists."""

    def number(n):
        return {"set": True, "infinite": False, "number": n} if new else n

    def job(i, state, start, **more):
        return {
            "job_id": i,
            "array_job_id": number(0),
            "array_task_id": {"set": False, "infinite": False, "number": 0} if new else None,
            "job_state": [state] if new else state,
            "user_name": "ann",
            "submit_time": number(1000),
            "start_time": number(start),
            "end_time": number(start + 600),
            "time_limit": number(10),
            "node_count": number(3),  # a guess of squeue, of what waits
            "tasks": number(12),
            "cpus_per_task": number(1),
            "tres_req_str": "cpu=12,mem=1200M,node=1,billing=12",
            "tres_alloc_str": "",
            **more,
        }

    ran = {"tres_alloc_str": "cpu=12,mem=1200M,node=2", "nodes": "n[1-2]", "node_count": number(2)}
    jobs = [job(1, "RUNNING", 1100, **ran), job(2, "PENDING", 1700), job(3, "PENDING", 0)]
    jobs[2] |= {"shared": ["none"] if new else "none", "nice": 40, "required_nodes": "n1"}
    file = tmp_path / "queue.json"
    file.write_text(json.dumps({"meta": {}, "last_update": number(1400), "jobs": jobs}))
    tables = SlurmSacct(file).scan()
    columns = ["name", "tasks", "per_node", "cpu", "started", "elapsed", "limit", "terms"]
    assert tables.jobs.select(columns).rows() == [
        ("1", 12, 0, 1, 100, 300, 600, "given=2,size=12x1"),
        ("2", 12, 0, 1, None, None, 600, "size=12x1,mem=1.17188"),
        ("3", 12, 0, 1, None, None, 600, "on=n1,whole=1,size=12x1,mem=1.17188"),
    ]
    assert tables.jobs["priority"].to_list() == [0, 0, -40]


def test_who_never_was_eligible_was_never_in_line(tmp_path):
    """Job 2 was held; jobs 1 and 3 stood in line until they were withdrawn, or the log ended."""
    header = "JobID|State|Submit|Eligible|Start|End|Timelimit|ReqTRES|NodeList|Elapsed"
    rows = [
        f"1|CANCELLED|{DAY}08:00:00|{DAY}08:00:00|Unknown|{DAY}09:00:00|UNLIMITED|cpu=8,node=1||",
        f"2|CANCELLED|{DAY}08:00:00|Unknown|Unknown|{DAY}09:00:00|10:00|cpu=8,node=1||",
        f"3|PENDING|{DAY}08:00:00|{DAY}08:00:00|Unknown|Unknown|10:00|cpu=8,node=1||",
        f"4|RUNNING|{DAY}08:00:00|{DAY}08:00:00|{DAY}09:30:00|Unknown|10:00|cpu=8,node=1|n1|30:00",
    ]
    log = open_jobs(write(tmp_path, rows, header))
    assert log.jobs.id.tolist() == ["1", "3", "4"]
    assert log.jobs.withdrawn.tolist() == [3600, 7200, float("inf")]
    assert log.jobs.limit[0] == 365 * 86400
    assert any("1 jobs never became eligible" in note for note in log.played.notes)


def test_components_of_a_het_job_start_together(tmp_path):
    def part(n, nodes, cpu):
        times = "|".join(f"{DAY}08:0{m}:00" for m in (0, 5, 9))
        tres = f"cpu={cpu},node={nodes}"
        return f"7+{n}|ann|COMPLETED|{times}||120|{tres}|{tres}|n[1-{nodes}]|"

    log = jobs_of(listing(tmp_path, part(0, 1, 16), part(1, 2, 8)))
    assert log.jobs.id.tolist() == ["7"]
    assert log.jobs.recorded_start.tolist() == [300]
    groups = log.jobs.shapes[0].groups
    assert [(tasks, shape.demand) for tasks, shape in groups] == [(1, (16000,)), (2, (4000,))]
    assert "of 1 jobs" in log.played.line


def test_a_configuration_that_begins_with_its_nodes_lists_them(tmp_path):
    (tmp_path / "slurm.conf").write_text(
        "NodeName=DEFAULT RealMemory=64000 State=UNKNOWN\n"
        "NodeName=g[1-2] CPUs=32 RealMemory=128000 Gres=gpu:a100:4\n"
        "NodeName=n1 Sockets=2 CoresPerSocket=8 ThreadsPerCore=2\n"
        "PartitionName=all Nodes=ALL Default=YES MaxTime=60\nClusterName=c\n"
    )
    times = "|".join(f"{DAY}0{h}:00:00" for h in (8, 8, 9))
    tables = listing(tmp_path, f"7|ann|COMPLETED|{times}||120|cpu=8,node=1|cpu=8,node=1|n1|")
    servers = tables.servers.select("name", "model", "cpu", "mem", "gpu").rows()
    assert servers == [
        ("g1", "a100", 32, 125, 4),
        ("g2", "a100", 32, 125, 4),
        ("n1", "", 32, 62.5, 0),
    ]
