"""The forms in which logs come: packed, as Parquet, with other columns; a small file of each."""

from __future__ import annotations

import bz2
import csv
import gzip
import hashlib
import json
import lzma
import os
import zipfile
from datetime import datetime, timedelta, timezone

import polars as pl
import pytest

from gangwise import TraceError
from gangwise.logs import open_tables
from gangwise.logs import text as texts
from gangwise.logs.format import recognise
from gangwise.logs.formats.tabular import reader
from gangwise.logs.inspect import report, summary
from gangwise.logs.jobs import jobs_of
from gangwise.logs.text import Blocks

LINES = b"id,cores,submit\na,4,1\nb,2,2\n"


def lines_of(file):
    read = Blocks(file)
    text = b"".join(block.data for block in read)
    assert read.digest() == hashlib.sha256(file.read_bytes()).hexdigest()
    return text


@pytest.mark.parametrize(
    "pack",
    [
        gzip.compress,
        bz2.compress,
        lambda text: bz2.compress(text[:9]) + bz2.compress(text[9:]),
        lzma.compress,
        lambda text: text.decode().encode("utf-16"),
        lambda text: b"\xef\xbb\xbf" + text,
    ],
)
def test_packed_text_is_the_text(tmp_path, pack):
    file = tmp_path / "log"
    file.write_bytes(pack(LINES))
    assert lines_of(file) == LINES


def test_members_of_a_zip_archive_follow_one_another(tmp_path):
    file = tmp_path / "log.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/log.csv", LINES)
        archive.writestr("__MACOSX/._log.csv", b"no rows")
        archive.writestr("b/.hidden", b"no rows")
        archive.writestr("b/more.csv", b"c,1,3\n")
    assert lines_of(file) == LINES + b"c,1,3\n"
    file.write_bytes(file.read_bytes()[:90])
    with pytest.raises(TraceError, match="unpacked"):
        lines_of(file)


@pytest.mark.parametrize("kind", [0, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_damage_inside_a_zip_archive_is_told_with_the_file(tmp_path, kind):
    file = tmp_path / "log.zip"
    with zipfile.ZipFile(file, "w", kind) as archive:
        archive.writestr("log.csv", b"".join(b"%d,%d\n" % (n, n**3) for n in range(4000)))
    data = bytearray(file.read_bytes())
    data[60:70] = bytes(byte ^ 0x55 for byte in data[60:70])
    file.write_bytes(data)
    with pytest.raises(TraceError, match=r"log\.zip: .*zip archive"):
        lines_of(file)
    assert recognise(file, []) == []


@pytest.mark.parametrize("pack", [bz2.compress, lzma.compress])
def test_a_packed_file_that_is_cut_short_says_so(tmp_path, pack):
    file = tmp_path / "log"
    file.write_bytes(pack(LINES * 50_000)[:-40])
    read = Blocks(file)
    assert all(block.data in LINES * 50_000 for block in read)
    assert "cut short" in read.damage


def test_zstd_by_way_of_polars(tmp_path):
    file = tmp_path / "log.csv.zst"
    frame = pl.DataFrame({"id": ["a", "b"], "cores": [4, 2], "submit": [1, 2]})
    try:
        frame.lazy().sink_csv(file, compression="zstd")
    except TypeError:
        pytest.skip("this polars writes no zstd")
    assert lines_of(file) == LINES


def test_parquet_is_read_as_the_table_that_it_holds(tmp_path, monkeypatch):
    monkeypatch.setattr(texts, "TABLE_ROWS", 1)
    file = tmp_path / "log.parquet"
    zone = timezone(timedelta(hours=1))
    pl.DataFrame(
        {
            "id": ["a", "b\nc,d"],
            "at": [datetime(2024, 1, 1, 12), None],
            "zoned": [datetime(2024, 1, 1, 12, tzinfo=zone)] * 2,
            "took": [timedelta(seconds=90), timedelta(0)],
            "nodes": [["n1", "n2"], []],
            "size": [{"cpu": 4}, {"cpu": 2}],
            "number": [1.5, float("nan")],
            "vector": [[0.5], [0.25]],
        }
    ).write_parquet(file)
    _, *read = csv.reader(lines_of(file).decode().splitlines())
    zoned = "2024-01-01T11:00:00.000000+0000"
    assert [tuple(text or None for text in row) for row in read] == [
        ("a", "2024-01-01T12:00:00.000000", zoned, "90.0", "n1|n2", '{"cpu":4}', "1.5", None),
        ("b c,d", None, zoned, "0.0", None, '{"cpu":2}', None, None),
    ]
    file.write_bytes(file.read_bytes()[:200])
    with pytest.raises(TraceError, match="Parquet"):
        lines_of(file)


def test_a_parquet_file_of_a_known_trace_gives_the_same_jobs(tmp_path):
    rows = pl.DataFrame(
        {
            "job_name": ["a", "b"],
            "organization": ["x", "y"],
            "gpu_model": ["H800", ""],
            "cpu_request": [8.0, 4.0],
            "gpu_request": [2, 0],
            "worker_num": [3, 1],
            "submit_time": [0, 60],
            "duration": [100, 50],
            "job_type": ["HP", "Spot"],
        }
    )
    for name in ("csv", "parquet"):
        (tmp_path / name).mkdir()
    rows.write_csv(tmp_path / "csv" / "job_info_df.csv")
    # As pandas exports a table whose index is no column: one more column, and no types.
    index = pl.Series("__index_level_0__", [0, 1])
    rows.with_columns(pl.all().cast(pl.String), index).write_parquet(
        tmp_path / "parquet" / "job_info_df.parquet"
    )
    plain, packed = (open_tables(tmp_path / name) for name in ("csv", "parquet"))
    assert plain.trace == "alibaba-spot-2026"
    assert packed.jobs.equals(plain.jobs)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes here")
def test_a_pipe_or_a_device_ends_with_a_sentence(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TraceError, match="pipe"):
        open_tables(tmp_path / "pipe")
    with pytest.raises(TraceError, match="socket"):
        open_tables("/dev/zero")


def test_a_document_that_unpacks_to_too_much_ends_with_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(texts, "WHOLE", 1 << 20)
    file = tmp_path / "pods.json"
    file.write_bytes(gzip.compress(b'{"kind": "PodList", "items": [' + b" " * (4 << 20)))
    with pytest.raises(TraceError, match="unpacks"):
        open_tables(file)


# Each of a published schema: a file as described, and its jobs
# (name, tasks, cpu, mem and gpu of a task, created, started, deleted, limit, user).
SCHEMAS = {
    "mit-supercloud": (
        "slurm-log.csv",
        "id_job,id_user,nodes_alloc,nodelist,partition,state,timelimit,time_submit,time_start,"
        "time_end,tres_req,tres_alloc,job_type\n"
        "7,u1,2,\"['r1-n1', 'r1-n2']\",p,3,60,1000,1010,1100,\"1=80,2=4096,4=2,1002=4\",,x\n"
        '8,u2,0,[],p,4,4294967295,1005,0,1020,"1=4,4=1",,x\n',
        [
            ("7", 2, 40.0, 2.0, 2.0, 0.0, 10.0, 100.0, 3600.0, "u1"),
            ("8", 1, 4.0, 0.0, 0.0, 5.0, None, 20.0, None, "u2"),
        ],
    ),
    "pm100": (
        "job_table.csv",
        "job_id,submit_time,start_time,end_time,num_nodes_alloc,num_cores_alloc,num_gpus_alloc,"
        "time_limit,job_state,user_id,partition,qos\n"
        "1,2020-05-01 00:00:00+00:00,2020-05-01 00:01:00+00:00,2020-05-01 01:00:00+00:00,2,256,8,"
        "1440,COMPLETED,5,1,normal\n"
        "2,2020-05-01T00:00:10.500000+0000,,2020-05-01 00:02:00+00:00,1,128,0,INFINITE,FAILED,6,1,"
        "\n",
        [
            ("1", 2, 128.0, 0.0, 4.0, 0.0, 60.0, 3600.0, 86400.0, "5"),
            ("2", 1, 128.0, 0.0, 0.0, 10.0, None, 120.0, None, "6"),
        ],
    ),
    "adastra": (
        "AdastaJobsMI250_15days.csv",
        "job_id,submit_time,start_time,end_time,num_nodes_alloc,node_power_consumption,time_limit,"
        "job_state,user_id,nodes\n"
        "1,2024-11-01 00:00:00,2024-11-01 00:00:30,2024-11-01 00:10:00,4,,3600,COMPLETED,9,n1|n2\n",
        [("1", 4, 1.0, 0.0, 0.0, 0.0, 30.0, 600.0, 3600.0, "9")],
    ),
    "f-data": (
        "21_04.csv",
        "jid,usr,jnam,cnumr,nnumr,adt,sdt,edt,elpl,pri,exit state\n"
        "j1,u1,app,96,2,2021-04-01 00:00:00+09:00,2021-04-01 00:00:20+09:00,"
        "2021-04-01 00:10:00+09:00,3600,127,completed\n",
        [("j1", 2, 48.0, 0.0, 0.0, 0.0, 20.0, 600.0, 3600.0, "u1")],
    ),
    "nrel": (
        "kestrel.csv",
        "id,job_id,account_hash,partition,submit_time,nodes_req,processors_req,memory_req,"
        "wallclock_req,qos,gpus_requested,start_time,end_time,state\n"
        "1,77,a,p,2024-03-04 08:00:00,2,208,1000M,3600,n,8,2024-03-04 08:10:00,"
        "2024-03-04 09:00:00,COMPLETED\n",
        [("77", 2, 104.0, 0.0, 4.0, 0.0, 600.0, 3600.0, 3600.0, "a")],
    ),
    "lassen": (
        "final_csm_allocation_history_hashed.csv",
        "allocation_id,primary_job_id,num_nodes,job_submit_time,begin_time,end_time,time_limit,"
        "exit_status,hashed_user_id\n"
        "5,7,2,2019-03-04 08:00:00.5,2019-03-04 08:10:00.5,2019-03-04 09:00:00.5,7200,0,u\n",
        [("5", 2, 40.0, 0.0, 4.0, 0.0, 600.0, 3600.0, 7200.0, "u")],
    ),
}


OPENDC = [
    "id,submission_time,duration,cpu_count,cpu_capacity,mem_capacity",
    "1,1700000000000,3600000,16,33600.0,102400",
    "2,1700000060000,500,2,1.0,1024",
]


def test_a_workload_of_opendc_is_in_milliseconds(tmp_path):
    (tmp_path / "tasks.csv").write_text("\n".join(OPENDC))
    pl.read_csv(tmp_path / "tasks.csv").write_parquet(tmp_path / "tasks.parquet")
    tables = open_tables(tmp_path / "tasks.parquet")
    rows = tables.jobs.select("name", "cpu", "mem", "created", "deleted").rows()
    assert (tables.trace, rows) == ("opendc", [("1", 16, 100, 0, 3600), ("2", 2, 1, 60, 60.5)])
    later = pl.read_csv(tmp_path / "tasks.csv").with_columns(gpu_count=pl.Series([4, None]))
    later.write_parquet(tmp_path / "tasks.parquet")
    assert open_tables(tmp_path / "tasks.parquet").jobs["gpu"].to_list() == [4, 0]


@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.parametrize("parquet", [False, True])
def test_a_trace_of_a_published_schema(tmp_path, name, parquet):
    file, text, expected = SCHEMAS[name]
    (tmp_path / file).write_text(text)
    if parquet:
        rows = pl.read_csv(tmp_path / file, infer_schema=False)
        (tmp_path / file).unlink()
        rows.write_parquet(tmp_path / file.replace(".csv", ".parquet"))
    assert reader(name).recognise(tmp_path)
    tables = open_tables(tmp_path)
    columns = ["name", "tasks", "cpu", "mem", "gpu", "created", "started", "deleted", "limit"]
    assert tables.trace == name
    assert tables.jobs.select(*columns, "user").rows() == expected


def test_swf_with_semicolons_and_more_columns(tmp_path):
    rows = [
        "1 0 5 60 4 -1 -1 4 120 -1 1 3 1 2 -1 -1 -1 -1",
        "2 10 0 30 2 -1 -1 2 60 -1 1 3 1 2 -1 -1 -1 -1",
    ]
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "log.swf").write_text("\n".join(["; MaxProcs: 8", *rows]) + "\n")
    more = [";".join([*row.split(), "0.5", "gpu", "x86"]) for row in rows]
    (tmp_path / "log.swf").write_text("\n".join(["; MaxProcs: 8", *more]) + "\n")
    plain, wide = open_tables(tmp_path / "plain"), open_tables(tmp_path / "log.swf")
    assert wide.trace == "swf"
    assert wide.jobs.equals(plain.jobs)
    assert wide.servers.equals(plain.servers)
    assert "rows have 21 fields, of which the first 18 are read" in wide.notes


SACCT = ["JobID", "JobName", "User", "State", "Submit", "Start", "End", "ReqTRES", "NNodes"]
SACCT_ROWS = [
    line.split()
    for line in (
        "1 a u COMPLETED 2024-01-01T00:00:00 2024-01-01T00:00:10 2024-01-01T01:00:00 "
        "cpu=8,mem=16G,node=2 2",
        "2 b v FAILED 2024-01-01T00:05:00 2024-01-01T00:05:00 2024-01-01T00:06:00 "
        "cpu=4,mem=8G,node=1 1",
    )
]


def listing(folder, rows, mark="|", names=SACCT):
    folder.mkdir(exist_ok=True)
    (folder / "jobs.txt").write_text("\n".join(mark.join(row) for row in [names, *rows]) + "\n")
    return open_tables(folder / "jobs.txt")


@pytest.mark.parametrize("mark", ["^", ";", "\t", "~", "|"])
def test_sacct_with_any_delimiter(tmp_path, mark):
    plain, other = listing(tmp_path / "a", SACCT_ROWS), listing(tmp_path / "b", SACCT_ROWS, mark)
    assert other.trace == "slurm-sacct"
    assert other.jobs.equals(plain.jobs)


def test_sacct_with_a_bar_in_a_name(tmp_path):
    plain = listing(tmp_path / "a", SACCT_ROWS)
    named = [["1", "a|x=1|b", *SACCT_ROWS[0][2:]], SACCT_ROWS[1]]
    found = listing(tmp_path / "b", named)
    assert found.jobs["application"].to_list() == ["a|x=1|b", "b"]
    assert found.jobs.drop("application").equals(plain.jobs.drop("application"))
    assert any(note.startswith("1 rows have | inside a field") for note in found.notes)
    # Two free columns side by side: nobody can tell which has the bar.
    free = [[*row, "x", "y"] for row in SACCT_ROWS]
    free[0][-1] = "y|z"
    kept = listing(tmp_path / "c", free, names=[*SACCT, "Comment", "WorkDir"])
    assert kept.jobs["name"].to_list() == ["2"]
    assert dict(kept.stages[0].dropped) == {
        "the number of fields is not that of the columns": (1, 2)
    }


def test_sacct_of_107_columns(tmp_path):
    more = [f"Column{n}" for n in range(98)]
    rows = [[*row, *("x" * 98)] for row in SACCT_ROWS]
    wide = listing(tmp_path / "b", rows, names=[*SACCT, *more])
    assert wide.jobs.equals(listing(tmp_path / "a", SACCT_ROWS).jobs)


def test_a_dump_of_fastsim_counts_nodes(tmp_path):
    names = ["User", "Account", "AllocNodes", "JobID", "JobName", "Partition", "QOS", "Start"]
    names += ["State", "End", "Elapsed", "Submit", "Timelimit"]
    row = ["u", "acc", "4", "7", "x", "p", "q", "2025-01-01T00:00:10", "COMPLETED"]
    row += ["2025-01-01T00:10:10", "00:10:00", "2025-01-01T00:00:00", "01:00:00"]
    jobs = listing(tmp_path, [row], names=names).jobs
    columns = ["name", "tasks", "cpu", "started", "deleted", "limit"]
    assert jobs.select(columns).rows() == [("7", 4, 1.0, 10.0, 610.0, 3600.0)]


def test_pods_are_of_the_type_of_their_topmost_owner(tmp_path):
    def record(kind, name, owner=None, **more):
        meta = {"name": name, "namespace": "n", "creationTimestamp": "2024-01-01T00:00:00Z"}
        if owner:
            meta["ownerReferences"] = [{"kind": owner[0], "name": owner[1], "controller": True}]
        return {"kind": kind, "metadata": meta, "spec": {"containers": []}, **more}

    items = [
        record("Pod", "llm-0"),
        record("Pod", "llm-1"),
        record("Pod", "web-7d9f8b6c5-x2x4z", ("ReplicaSet", "web-7d9f8b6c5")),
        record("Pod", "nightly-28391-abcde", ("Job", "nightly-28391")),
        record("Pod", "part-w-0-xyz12", ("Job", "part-w-0")),
        record("Job", "part-w-0", ("JobSet", "whole")),
    ]
    (tmp_path / "pods.json").write_text(json.dumps({"kind": "List", "items": items}))
    jobs = open_tables(tmp_path, gangs=False).jobs
    assert jobs["application"].to_list() == ["llm", "llm", "web", "nightly", "whole"]


@pytest.mark.parametrize(("wait", "said"), [(0, True), (-1, False)])
def test_use_beyond_what_there_is_is_said(tmp_path, wait, said):
    """Where waits are not known, the load is what is asked for, and may be more than there is."""
    row = "{0} 0 {1} 60 {0} -1 -1 {0} 60 -1 1 3 1 2 -1 -1 -1 -1"
    lines = ["; MaxProcs: 3", *(row.format(n, wait) for n in (1, 2, 3))]
    (tmp_path / "log.swf").write_text("\n".join(lines) + "\n")
    tables = open_tables(tmp_path)
    line = report(log := jobs_of(tables), summary(log, tables)).splitlines()[0]
    assert ("misread, or nodes are missing" in line) == said
