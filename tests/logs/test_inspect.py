"""What is at a path is recognised, accounted for, and said plainly where it is not."""

from __future__ import annotations

import csv
import gzip
import io
import json
import shutil
from dataclasses import replace

import pytest

from gangwise import TraceError
from gangwise.logs import inspect as inspecting
from gangwise.logs import text as texts
from gangwise.logs.format import Format, TableFile, likeness, looks_like, nearest
from gangwise.logs.inspect import inspect
from gangwise.logs.reading import Column, Schema

from .csvs import NODE_HEADER, NODES, pod, write

V2017 = "100,160,1,1,2,Terminated,100,0.01\n120,200,1,2,1,Failed,1,0.01\n"
V2018 = "M1,2,j_1,1,Terminated,100,160,50,0.4\nR2_1,1,j_1,1,Terminated,90,80,100,0.2\n"
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 20


def only(found):
    assert len(found.traces) == 1
    return found.traces[0]


def test_a_folder_is_recognised_and_read(tmp_path):
    found = inspect(write(tmp_path, [pod(), pod("q", created=60, deleted=10)]))
    trace = only(found)
    assert trace.name == "alibaba-gpu-v2023"
    files = {file.name: file for file in trace.files}
    assert (files["nodes.csv"].table, files["nodes.csv"].read) == ("nodes", 3)
    pods = files["pods.csv"]
    assert (pods.read, pods.kept, pods.share) == (2, 1, 1.0)
    [(why, (count, row))] = pods.dropped.items()
    assert (count, row) == (1, 3)
    assert "deletion_time" in why
    assert [(t.name, t.needed) for t in trace.missing] == [("pods_without_times", False)]
    assert (trace.fidelity.servers, trace.fidelity.jobs) == (3, 1)
    assert why in str(found)
    assert json.loads(json.dumps(found.to_dict()))["traces"][0]["files"][1]["kept"] == 1


def test_v2017_is_told_from_v2018_and_the_other_way_round(tmp_path):
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    (tmp_path / "old" / "batch_task.csv").write_text(V2017)
    (tmp_path / "new" / "batch_task.csv").write_text(V2018)
    old, new = only(inspect(tmp_path / "old")), only(inspect(tmp_path / "new" / "batch_task.csv"))
    assert (old.name, new.name) == ("alibaba-v2017", "alibaba-v2018")
    assert old.files[0].unlike == (
        r"alibaba-v2018 batch_task: its rows have 9 fields, these have 8; field 3, job_name, is "
        r"'1' here and should be like j_\d+",
    )
    assert "its rows have 8 fields, these have 9" in new.files[0].unlike[0]
    assert new.files[0].dropped["end_time is before start_time"] == (1, 2)
    both = inspect(tmp_path)
    assert [trace.name for trace in both.traces] == ["alibaba-v2017", "alibaba-v2018"]


def test_files_that_are_no_table_are_listed_with_the_nearest(tmp_path):
    write(tmp_path, [pod()])
    (tmp_path / "picture.png").write_bytes(PNG)
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "notes.txt").write_text("Downloaded in May.\n")
    (tmp_path / "more.csv").write_text(NODE_HEADER.replace(",model", "") + "\na,8000,1,0\n")
    (tmp_path / "tasks.csv").write_text("M1,2,17,1,Terminated,100,160,50,0.4\n")
    (tmp_path / "archive.zip").write_bytes(b"PK\x03\x04" + bytes(40))
    found = inspect(tmp_path)
    unknown = {file.name: file for file in found.unknown}
    assert set(unknown) == {
        "picture.png",
        "empty.csv",
        "notes.txt",
        "more.csv",
        "tasks.csv",
        "archive.zip",
    }
    assert unknown["picture.png"].starts == "binary data"
    assert unknown["empty.csv"].starts == "an empty file"
    assert "zip" in unknown["archive.zip"].starts
    assert unknown["notes.txt"].starts == "starts 'Downloaded in May.'"
    assert unknown["notes.txt"].near == ""
    assert unknown["more.csv"].near == "nearest to alibaba-gpu-v2023 nodes: no column model"
    assert unknown["tasks.csv"].near == (
        r"nearest to alibaba-v2018 batch_task: field 3, job_name, is '17' here and should be like "
        r"j_\d+"
    )
    assert "not recognised:" in str(found)


def test_a_truncated_file_and_one_without_a_good_row_are_said_to_be_so(tmp_path):
    text = "".join(f"M{i % 7},2,j_{i},1,Terminated,{i},{i + 9},50,0.4\n" for i in range(1, 9000))
    packed = gzip.compress(text.encode())
    (tmp_path / "batch_task.csv.gz").write_bytes(packed[: len(packed) // 2])
    trace = only(inspect(tmp_path))
    assert any(why.startswith("CUT SHORT after row") for why in trace.files[0].dropped)
    assert 0 < trace.files[0].kept < 8999
    with pytest.raises(TraceError, match="cut short"):
        inspect(tmp_path, strict=True)


def test_nothing_to_inspect(tmp_path):
    with pytest.raises(TraceError, match="directory"):
        inspect(tmp_path / "none")
    with pytest.raises(TraceError, match="files"):
        inspect(tmp_path)


def test_strict_names_the_first_bad_row(tmp_path):
    (tmp_path / "batch_task.csv").write_text(V2018)
    with pytest.raises(TraceError, match="start_time"):
        inspect(tmp_path, strict=True)


def test_what_is_missing_and_what_that_prevents(tmp_path):
    (tmp_path / "pai_machine_spec.csv").write_text("82e5,T4,96,512,2\n")
    trace = only(inspect(tmp_path))
    missing = {table.name: table for table in trace.missing}
    assert missing["pai_task_table"].needed
    assert missing["pai_task_table"].gives == "what jobs request"
    (tmp_path / "pai_machine_spec.csv").unlink()
    (tmp_path / "server_event.csv").write_text("0,1,add,,64,0.9,0.8\n")
    trace = only(inspect(tmp_path))
    assert trace.fidelity is None
    assert "no file of the table batch_task" in trace.problem
    assert "batch_task: not here, and needed (gives batch jobs)" in str(trace)


def test_tables_that_no_schema_describes(tmp_path):
    (tmp_path / "cluster_job_log").write_text(
        '[{"jobid": "a", "user": "u", "status": "Pass", "vc": "v",'
        '"submitted_time": "2017-10-07 01:00:00", "attempts": ['
        '{"start_time": "2017-10-07 01:00:30", "end_time": "2017-10-07 01:02:00",'
        '"detail": [{"ip": "m1", "gpus": ["gpu0"]}]}]}]'
    )
    trace = only(inspect(tmp_path))
    assert (trace.name, trace.files[0].table, trace.files[0].read) == ("philly", "job_log", None)
    assert [(table.name, table.gives) for table in trace.missing] == [("machines", "servers")]
    assert trace.fidelity.jobs == 1


def test_a_mapping_of_ones_own(tmp_path):
    (tmp_path / "jobs.csv").write_text("id,cores,submit,run_s\na,4,100,60\n")
    (tmp_path / "mapping.toml").write_text(
        'trace = "csv"\n[jobs]\nfile = "jobs.csv"\n[jobs.columns]\n'
        'name = "id"\ncpu = "cores"\ncreated = "submit"\nduration = "run_s"\n'
    )
    for path in (tmp_path, tmp_path / "mapping.toml"):
        trace = only(inspect(path))
        assert (trace.name, trace.files[0].table, trace.fidelity.jobs) == ("csv", "mapping", 1)


def test_much_is_sampled_unless_all_is_asked_for(tmp_path, monkeypatch):
    rows = 4000
    text = "".join(f"M1,2,j_{i},1,Terminated,{i},{i + 9},50,0.4\n" for i in range(1, rows + 1))
    (tmp_path / "batch_task.csv").write_text(text)
    monkeypatch.setattr(texts, "BLOCK", 10_000)
    monkeypatch.setattr(inspecting, "SAMPLE", 30_000)
    monkeypatch.setattr(inspecting, "LARGE", 1000)
    told = []
    found = inspect(tmp_path, progress=lambda *at: told.append(at))
    trace = only(found)
    assert not found.everything
    assert 0 < trace.files[0].read < rows / 2
    assert 0 < trace.files[0].share < 1
    assert trace.files[0].sha256 == ""
    assert trace.fidelity is None
    assert "--all reads all" in str(found)
    assert told
    whole = only(inspect(tmp_path, everything=True))
    assert (whole.files[0].read, whole.files[0].share) == (rows, 1.0)
    assert whole.fidelity.jobs == rows


def test_a_published_digest_is_compared(tmp_path, monkeypatch):
    import hashlib

    from gangwise.logs.formats.alibaba_v2018 import AlibabaV2018

    (tmp_path / "batch_task.csv").write_text(V2018)
    assert only(inspect(tmp_path)).files[0].as_published is None
    digest = hashlib.sha256(V2018.encode()).hexdigest()
    for given, right in ((digest, True), ("0" * 64, False)):
        made = replace(AlibabaV2018.FORMAT, sha256={"batch_task.csv": given})
        monkeypatch.setattr(AlibabaV2018, "FORMAT", made)
        found = inspect(tmp_path)
        assert only(found).files[0].as_published is right
        assert ("NOT the published" in str(found)) is not right


def test_likeness_of_json_and_headers():
    lines = Schema("lines", (Column("time"), Column("a.b"), Column("c", needed=False)), json=True)
    assert likeness(lines, ['{"time": 1}']) == (0.5, "no column a.b")
    assert likeness(lines, ["time,b"]).share == 0
    short = Schema("short", (Column("x"), Column("y")), absent=("z",))
    assert likeness(short, ["x,y,z"]) == (1.0, "it has no column z, and these have")
    assert likeness(short, []).share == 0
    form = Format("f", "", "", "", (TableFile("short", short),))
    assert nearest(["a,b"], [form]) is None
    assert nearest(["x,b"], [form])[1].name == "short"
    assert nearest(["x,b"], []) is None
    assert looks_like(["\x00\x01"]) == "binary data"
    assert looks_like(["été,1"]) == ""


def rows_of(file):
    data = file.read_bytes()
    text = gzip.decompress(data) if file.suffix == ".gz" else data
    return list(csv.reader(io.StringIO(text.decode())))


@pytest.mark.full
def test_the_real_samples(traces, tmp_path):
    headers = {"nodes", "pods", "pods_without_times", "mini_batch_times"}
    seen = {}
    for name in ("alibaba-v2018", "alibaba-gpu-v2020", "alibaba-gpu-v2023", "google-2011"):
        found = inspect(traces / name)
        trace = only(found)
        assert trace.name == name
        assert found.everything
        for file in trace.files:
            if file.table == "task_events":
                continue  # its many rows are counted by the tests of its reader
            first = file.table in headers or "selected_DAGs" in file.name
            rows = rows_of(traces / name / file.name)
            assert file.read == len(rows) - first, file.name
        seen[name] = trace
    assert seen["alibaba-gpu-v2023"].fidelity.servers == 1523
    assert seen["alibaba-gpu-v2020"].fidelity.capacity["gpu"] == 6742
    assert {f.table for f in seen["alibaba-gpu-v2020"].files} >= {"pai_machine_spec"}
    [gavel] = inspect(traces / "gavel-throughputs").unknown
    assert "Gavel" in gavel.near
    shutil.copy(traces / "alibaba-v2018" / "machine_meta.csv.gz", tmp_path / "anything.gz")
    assert only(inspect(tmp_path)).files[0].table == "machine_meta"


def test_nodes_alone(tmp_path):
    (tmp_path / "nodes.csv").write_text("\n".join([NODE_HEADER, *NODES]) + "\n")
    trace = only(inspect(tmp_path))
    assert trace.fidelity is None
    assert "table pods" in trace.problem


def test_a_damaged_file_hides_no_other(tmp_path):
    rows = "".join(f"{n} {n} 5 60 4 -1 -1 4 120 -1 1 3 1 2 -1 -1 -1 -1\n" for n in range(40_000))
    data = bytearray(gzip.compress(rows.encode(), mtime=0))
    data[len(data) // 2] ^= 255
    (tmp_path / "log.swf.gz").write_bytes(data)
    (tmp_path / "nodes.csv").write_text("\n".join([NODE_HEADER, *NODES]) + "\n")
    found = inspect(tmp_path)
    names = {file.name for trace in found.traces for file in trace.files}
    assert names == {"log.swf.gz", "nodes.csv"}
    assert "the gzip file is damaged" in str(found)
