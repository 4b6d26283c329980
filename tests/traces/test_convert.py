"""A converted trace reads as the published one, however often the conversion was interrupted."""

from __future__ import annotations

import errno
import gzip
import json
import os
import signal
import subprocess
import sys
import time

import polars as pl
import pytest

from gangwise import StoreError, TraceError
from gangwise.traces.convert import convert
from gangwise.traces.format import MANIFEST, Format, TableFile, declared, recognise
from gangwise.traces.io import blocks
from gangwise.traces.io.schema import Column, Schema
from gangwise.traces.source import Source

NODES = Schema("node list", (Column("sn", number=False), Column("gpu", whole=True)), unique="sn")
EVENTS = Schema(
    "events",
    (
        Column("time", whole=True, most=2.0**63),
        Column("user", number=False, empty=True, pattern=r"u\d+"),
        Column("cpu", empty=True),
    ),
    header=False,
)
FORM = Format(
    "made-up",
    "A made-up trace",
    "",
    "",
    (
        TableFile("nodes", NODES, "nodes"),
        TableFile("events", EVENTS, "part.*", parts=True),
        TableFile("absent", Schema("absent", (Column("x"), Column("y")))),
    ),
)
LAST = 2**63 - 1


def write(folder, rows=3000):
    """Two parts of events, some of them bad, and a list of nodes in which names come again."""
    folder.mkdir(exist_ok=True)
    nodes = [f"n{n % (rows - 9)},{n % 8}" for n in range(rows)]
    (folder / "nodes.csv").write_text("sn,gpu\n" + "\n".join(nodes) + "\n")
    for part in range(2):
        lines = [f"{600 + n},u{n % 97},{n % 13 / 4}" for n in range(rows)]
        lines[rows // 2] = "1,u1,many"
        lines[rows // 3] = f"{LAST},,"
        lines[rows // 3 + 1] = "2.0,u1,"
        packed = gzip.compress("\n".join(lines).encode())
        (folder / f"part-0000{part}-of-00002.csv.gz").write_bytes(packed)
    return folder


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK", 4000)


def contents(folder):
    """Bytes of every file of a folder."""
    return {
        str(f.relative_to(folder)): f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file()
    }


def test_a_converted_trace_reads_as_the_published_one(tmp_path, small_blocks):
    raw = write(tmp_path / "raw")
    done = []
    made = convert(raw, tmp_path / "out", FORM, rows=500, progress=lambda *at: done.append(at))
    before, after = Source(raw, FORM), Source(tmp_path / "out", FORM)
    assert len(list((tmp_path / "out" / "events").iterdir())) > 6
    for table in ("nodes", "events"):
        first, second = before.read(table), after.read(table)
        assert first.frame.equals(second.frame)
        assert first.frame.schema == second.frame.schema
        assert (first.stages, first.digests) == (second.stages, second.digests)
        assert made.stages[table] == first.stages
        some = first.frame.columns[1:3]
        assert after.read(table, some).frame.equals(first.frame.select("row", *some, "part"))
        assert before.read(table, some).frame.equals(first.frame.select("row", *some, "part"))
        assert pl.concat(after.batches(table)).equals(first.frame)
        assert [f.name for f in before.files(table)] == [f.name for f in after.files(table)]
        for file, same in zip(before.files(table), after.files(table)):
            assert Source(file, FORM).read(table).frame.equals(Source(same, FORM).read(table).frame)
    assert dict(made.stages["nodes"][0].dropped) == {"sn was used before": (9, 2993)}
    assert not after.has("absent")
    with pytest.raises(TraceError, match="no file of the table absent"):
        after.read("absent")
    chosen = after.read("events", columns=["cpu"])
    assert chosen.frame.columns == ["row", "cpu", "part"]
    total = sum(file.stat().st_size for file in raw.iterdir())
    assert done[-1] == (total, total)
    assert done == sorted(done)
    assert [(f.name, t.name) for f, t in recognise(tmp_path / "out" / MANIFEST, [FORM])] == [
        ("made-up", "nodes"),
        ("made-up", "events"),
    ]


def test_whole_numbers_are_exact(tmp_path, small_blocks):
    convert(write(tmp_path / "raw"), tmp_path / "out", FORM, rows=500)
    parts = sorted((tmp_path / "out" / "events").iterdir())
    frame = pl.concat([pl.read_parquet(part) for part in parts])
    assert frame.schema == {"row": pl.Int64, "time": pl.Int64, "user": pl.String, "cpu": pl.Float64}
    assert frame["time"].max() == LAST
    assert frame.filter(pl.col("row") == 1002)["time"].to_list() == [2, 2]


def test_a_bad_row_in_a_converted_trace_is_still_named(tmp_path):
    raw = write(tmp_path / "raw")
    (raw / "nodes.csv").unlink()
    with pytest.raises(TraceError, match="row 1501: cpu is not a number"):
        convert(raw, tmp_path / "strict", FORM, strict=True)
    with pytest.raises(TraceError, match="not complete"):
        Source(tmp_path / "strict", FORM)
    convert(raw, tmp_path / "out", FORM)
    with pytest.raises(TraceError, match="row 1501: cpu is not a number"):
        Source(tmp_path / "out", FORM, strict=True).read("events")


CHILD = """
import sys
from pathlib import Path
from gangwise.traces.io import blocks
from gangwise.traces.convert import convert
from tests.traces.test_convert import FORM
blocks.BLOCK = 4000
print("begun", flush=True)
convert(Path(sys.argv[1]), Path(sys.argv[2]), FORM, rows=500)
"""


@pytest.mark.full
def test_killed_and_run_again_the_result_is_the_same(tmp_path, small_blocks):
    raw = write(tmp_path / "raw", rows=20_000)
    convert(raw, tmp_path / "whole", FORM, rows=500)
    out, killed = tmp_path / "out", 0
    for chunks in (1, 20, 60):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(raw), str(out)], stdout=subprocess.PIPE
        )
        child.stdout.readline()
        while len(list(out.glob("*/*.parquet"))) < chunks and child.poll() is None:
            time.sleep(0.001)
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        begun = json.loads((out / MANIFEST).read_text())
        killed += not begun["complete"]
    assert killed == 3
    made = convert(raw, out, FORM, rows=500)
    assert made.resumed
    assert contents(out) == contents(tmp_path / "whole")
    convert(raw, out, FORM)  # nothing is left to do
    assert contents(out) == contents(tmp_path / "whole")


def stopping(after):
    """A progress that fails after so many blocks."""
    calls = []

    def progress(done, total):
        calls.append(done)
        if len(calls) == after:
            raise KeyboardInterrupt

    return progress


@pytest.mark.parametrize("name", ["nodes.csv", "part-00000-of-00002.csv.gz"])
def test_a_file_that_changed_is_not_gone_on_with(tmp_path, small_blocks, name):
    raw, out = write(tmp_path / "raw"), tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        convert(raw, out, FORM, rows=500, progress=stopping(16))
    file = raw / name
    content = file.read_bytes()
    os.utime(file, (1, 1))
    file.write_bytes(content.replace(b"n1,1", b"n1,2") if name == "nodes.csv" else content[:-1])
    with pytest.raises((StoreError, TraceError), match="changed since"):
        convert(raw, out, FORM, rows=500)
    file.write_bytes(content)
    convert(raw, out, FORM, rows=500)
    convert(raw, tmp_path / "whole", FORM, rows=500)
    for table in ("nodes", "events"):
        one, two = Source(out, FORM).read(table), Source(tmp_path / "whole", FORM).read(table)
        assert one.frame.equals(two.frame)
        assert one.stages == two.stages


def test_a_full_disk_says_what_to_do(tmp_path, small_blocks, monkeypatch):
    raw, out = write(tmp_path / "raw"), tmp_path / "out"
    replace = os.replace

    def full(side, path):
        if "part-00003" in str(path):
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(side, path)

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(StoreError, match=r"part-00003.parquet: No space left .* make room, and"):
        convert(raw, out, FORM, rows=500)
    monkeypatch.undo()
    monkeypatch.setattr(blocks, "BLOCK", 4000)
    assert convert(raw, out, FORM, rows=500).resumed
    convert(raw, tmp_path / "whole", FORM, rows=500)
    assert contents(out) == contents(tmp_path / "whole")


def test_a_folder_that_is_not_ours_is_left_alone(tmp_path):
    raw, out = write(tmp_path / "raw"), tmp_path / "out"
    out.mkdir()
    (out / "thesis.txt").write_text("x")
    with pytest.raises(StoreError, match="holds something else"):
        convert(raw, out, FORM)
    (out / "thesis.txt").unlink()
    (out / MANIFEST).write_text('{"gangwise_trace": 1}')
    with pytest.raises(TraceError, match="not the manifest"):
        convert(raw, out, FORM)
    (out / MANIFEST).unlink()
    made = convert(raw, out, FORM)
    with pytest.raises(TraceError, match="of made-up, not other"):
        Source(out, Format("other", "", "", "", FORM.tables))
    next((made.folder / "events").iterdir()).unlink()
    with pytest.raises(TraceError, match="missing"):
        Source(out, FORM).read("events")


def test_a_large_table_must_be_converted_first(tmp_path):
    raw = write(tmp_path / "raw")
    for limit in ({"most_rows": 2000}, {"most_bytes": 20_000}):
        with pytest.raises(TraceError, match=r"larger than 20000?.*gangwise trace convert"):
            Source(raw, FORM, **limit).read("events")
        assert sum(len(batch) for batch in Source(raw, FORM, **limit).batches("events")) == 5998


def test_a_cut_file_is_converted_and_said_to_be_cut(tmp_path):
    raw = write(tmp_path / "raw")
    part = raw / "part-00001-of-00002.csv.gz"
    part.write_bytes(part.read_bytes()[:-2000])
    made = convert(raw, tmp_path / "out", FORM)
    (why,) = [why for why in made.stages["events"][1].dropped if why.startswith("CUT SHORT")]
    assert "the gzip file is cut short" in why
    assert made.stages["events"] == Source(raw, FORM).read("events").stages
    part.write_bytes(gzip.compress(b"".join(b"%d,u1,%d\n" % (n, n**3) for n in range(9000)))[:-99])
    with pytest.raises(TraceError, match=r"row \d+: the gzip file is cut short, after row \d+"):
        Source(part, FORM, strict=True).read("events")


def test_real_samples_convert(tmp_path, traces):
    raw = traces / "alibaba-gpu-v2023"
    form = declared("alibaba-gpu-v2023")
    convert(raw / "openb_pod_list_default.csv", tmp_path / "out", form)
    before = Source(raw / "openb_pod_list_default.csv", form).read("pods")
    after = Source(tmp_path / "out", form).read("pods")
    assert len(after.frame) == 8152
    assert before.frame.equals(after.frame)
    assert before.stages == after.stages
