"""``gangwise trace``, run as a user runs it."""

from __future__ import annotations

import gzip
import json

import pytest
from typer.testing import CliRunner

from gangwise.cli import app
from gangwise.core.errors import GangwiseError
from gangwise.logs.twins import twin

from .logs.csvs import pod, write

V2017 = "100,160,1,1,2,Terminated,1,0.01\n120,200,1,2,1,Failed,1,0.01\n"


def gangwise(*arguments):
    """Standard output; a known error is raised as it would be printed."""
    done = CliRunner().invoke(app, ["trace", *map(str, arguments)])
    if isinstance(done.exception, GangwiseError):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture
def pods(tmp_path):
    return write(
        tmp_path,
        [pod(f"p{i}", gpus=1, milli=500, created=i * 900, deleted=i * 900 + 60) for i in range(400)]
        + [pod("bad", created=9, deleted=1)],
    )


def test_list_has_every_registered_trace():
    from gangwise.core.registry import entries

    found = json.loads(gangwise("list", "--json"))["traces"]
    assert [trace["name"] for trace in found] == list(entries("trace"))
    by_name = {trace["name"]: trace for trace in found}
    assert by_name["google-2011"]["licence"] == "CC-BY-4.0"
    assert len(by_name["alibaba-v2018"]["sha256"]["batch_task.tar.gz"]) == 64
    assert [table["name"] for table in by_name["philly"]["tables"]] == ["machines", "job_log"]
    text = gangwise("list")
    assert "checksums  not published" in text
    assert "batch_task: batch jobs; needed" in text


def test_inspect(pods):
    text = gangwise("inspect", pods)
    assert "pods.csv: pods" in text
    assert "401 rows read, 400 kept" in text
    assert "deletion_time is before creation_time (first in row 402)" in text
    found = json.loads(gangwise("inspect", pods / "pods.csv", "--json"))
    assert [file["name"] for file in found["traces"][0]["files"]] == ["pods.csv"]


def test_convert_and_inspect_what_came_of_it(pods, tmp_path):
    out = tmp_path / "converted"
    made = json.loads(gangwise("convert", pods, out, "--json"))
    assert made["trace"] == "alibaba-gpu-v2023"
    assert [stage["kept"] for stage in made["stages"] if stage["name"] == "pods.csv"] == [400]
    assert "tables that were saved" in gangwise("inspect", out)
    assert "pods.csv: 401 read, 400 kept" in gangwise("convert", pods, out)


@pytest.mark.full
def test_plot(pods, tmp_path):
    out = tmp_path / "pictures"
    text = gangwise("plot", pods, "--out", out)
    assert "400 requests" in text
    assert len(list(out.glob("*.png"))) == len(list(out.glob("*.svg"))) == 4


@pytest.mark.full
def test_twins_and_saved_tables_need_no_files_of_a_trace(tmp_path):
    saved = tmp_path / "saved"
    gangwise("workload", "twin:alibaba-gpu-v2023", "--set", "days=2,servers=20", "--out", saved)
    jobs = twin("alibaba-gpu-v2023", days=2, servers=20).jobs
    for target in (["twin:alibaba-gpu-v2023", "--set", "days=2,servers=20"], [saved]):
        [trace] = json.loads(gangwise("inspect", *target, "--json"))["traces"]
        assert (trace["name"], trace["files"]) == ("twin-alibaba-gpu-v2023", [])
        assert (trace["fidelity"]["servers"], trace["fidelity"]["jobs"]) == (20, len(jobs))
        with pytest.raises(GangwiseError, match="named 'hours'"):
            gangwise("plot", *target, "--set", "hours=1")
    text = gangwise("plot", saved, "--out", tmp_path / "pictures")
    assert f"arrivals: {len(jobs)} requests" in text
    assert "twin:alibaba-gpu-v2023: a synthetic twin" in gangwise(
        "inspect", "twin:alibaba-gpu-v2023", "--set", "days=1", "--strict"
    )
    with pytest.raises(GangwiseError, match="'dais'"):
        gangwise("inspect", "twin:alibaba-gpu-v2023", "--set", "dais=2")


def test_arguments_of_the_reader_are_settings(tmp_path):
    tasks = V2017.replace("1,2,1,Failed", "1,2,1,Terminated") + V2017
    (tmp_path / "batch_task.csv").write_text(tasks)
    for statuses, jobs in (("Terminated", 3), ("Failed", 1), ("Terminated|Failed", 4)):
        settings = ["--set", f"statuses={statuses}"]
        [trace] = json.loads(gangwise("inspect", tmp_path, *settings, "--json"))["traces"]
        assert trace["fidelity"]["jobs"] == jobs
    assert "arrivals: 4 requests" in gangwise(
        "plot", tmp_path, *settings, "--out", tmp_path / "pictures"
    )
    with pytest.raises(GangwiseError, match="'status'"):
        gangwise("inspect", tmp_path, "--set", "status=Failed")


def test_the_format_may_be_named(tmp_path):
    (tmp_path / "batch_task.csv").write_text(V2017)
    made = json.loads(
        gangwise("convert", tmp_path, tmp_path / "out", "--trace", "alibaba-v2017", "--json")
    )
    assert made["trace"] == "alibaba-v2017"
    with pytest.raises(GangwiseError, match="alibaba-v2018"):
        gangwise("convert", tmp_path, tmp_path / "other", "--trace", "alibaba-v2018")


@pytest.mark.parametrize("command", ["inspect", "convert", "plot"])
def test_wrong_paths(command, tmp_path):
    out = [tmp_path / "out"] if command == "convert" else []
    with pytest.raises(GangwiseError, match="directory"):
        gangwise(command, tmp_path / "none", *out)
    (tmp_path / "empty").mkdir()
    with pytest.raises(GangwiseError, match=r"format|files|the folder is empty"):
        gangwise(command, tmp_path / "empty", *out)
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 9)
    if command == "inspect":
        done = CliRunner().invoke(app, ["trace", "inspect", str(tmp_path / "picture.png")])
        assert done.exit_code == 1
        assert "picture.png: binary data" in done.output
    else:
        with pytest.raises(GangwiseError, match=r"format|files|the folder is empty"):
            gangwise(command, tmp_path / "picture.png", *out)


def test_a_v2017_file_is_not_v2018(tmp_path):
    (tmp_path / "batch_task.csv").write_text(V2017)
    text = gangwise("inspect", tmp_path / "batch_task.csv")
    assert "(alibaba-v2017)" in text
    assert "not alibaba-v2018 batch_task: its rows have 9 fields, these have 8" in text


def test_truncated_gzip(tmp_path):
    lines = "".join(f"{i},{i + 9},{i},{i % 7},2,Terminated,1,0.01\n" for i in range(9000))
    packed = gzip.compress(lines.encode())
    (tmp_path / "batch_task.csv.gz").write_bytes(packed[: len(packed) // 2])
    assert "CUT SHORT after row" in gangwise("inspect", tmp_path)
    for command in (["inspect", tmp_path], ["convert", tmp_path, tmp_path / "out"]):
        with pytest.raises(GangwiseError, match="cut short"):
            gangwise(*command, "--strict")


def test_strict_stops_at_the_first_bad_row(pods, tmp_path):
    for command in (["inspect", pods], ["convert", pods, tmp_path / "out"], ["plot", pods]):
        with pytest.raises(GangwiseError, match="deletion_time"):
            gangwise(*command, "--strict")


def test_what_holds_something_else_is_not_converted_into(pods, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("")
    with pytest.raises(GangwiseError, match=r"something else \(thesis.tex\)"):
        gangwise("convert", pods, tmp_path / "out")
    (tmp_path / "file").write_text("")
    with pytest.raises(GangwiseError, match="cannot write"):
        gangwise("convert", pods, tmp_path / "file")
    with pytest.raises(GangwiseError, match="cannot write"):
        gangwise("plot", pods, "--out", tmp_path / "file")


def test_inspect_fails_where_no_row_can_be_used(tmp_path):
    file = tmp_path / "pods.csv"
    file.write_text(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time\n"
        "p,many,1,0,0,,0,1\n"
    )
    done = CliRunner().invoke(app, ["trace", "inspect", str(file)])
    assert done.exit_code == 1
    assert "1 rows read, 0 kept" in done.output
    file.write_text("what,is,this\n1,2,3\n")
    assert CliRunner().invoke(app, ["trace", "inspect", str(file)]).exit_code == 1
