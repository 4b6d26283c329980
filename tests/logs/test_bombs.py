"""Small files that unpack to very much: refused, or answered by their start, in little memory."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import polars as pl
import pytest

from gangwise import TraceError
from gangwise.core.terminal import watched
from gangwise.logs import text as texts
from gangwise.logs.inspect import inspect
from gangwise.logs.tables import SAVED, VERSION, load_tables
from gangwise.logs.text import Blocks
from gangwise.sites.wait_history import open_pending, pending_files

LINE = b"1 0 0 60 1 -1 -1 1 60 -1 1 1 1 1 1 -1 -1 -1\n"
PACK = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limits at a hundredth, so that a test needs a hundredth of the time."""
    for name in ("FREE", "SHOWN"):
        monkeypatch.setattr(texts, name, 8 << 20)


@pytest.mark.parametrize("kind", [*PACK, "zip"])
def test_a_bomb_is_refused_with_the_setting_that_takes_it(kind, tmp_path, small, monkeypatch):
    path, text = tmp_path / f"jobs.swf.{kind}", LINE * 250_000  # 11 MB
    if kind == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("jobs.swf", text)
    else:
        path.write_bytes(PACK[kind](text))
    with pytest.raises(TraceError, match=r"200 .* GANGWISE_MOST_EXPANSION"):
        list(Blocks(path))
    with pytest.raises(TraceError, match="200"):
        Blocks(path).whole()
    monkeypatch.setenv("GANGWISE_MOST_EXPANSION", "100000")
    told = []
    with watched(lambda *of: told.append(of)):
        assert sum(block.rows for block in Blocks(path)) == 250_000
    assert told
    assert all(what == f"reading {path.name}" and done <= of for what, done, of in told)
    monkeypatch.setenv("GANGWISE_MOST_ROWS", "200000")
    with pytest.raises(TraceError, match="200,000"):
        list(Blocks(path))
    monkeypatch.setenv("GANGWISE_MOST_ROWS", "many")
    with pytest.raises(TraceError, match="whole number"):
        Blocks(path)


def test_logs_as_they_are_packed_are_no_bombs(tmp_path, small):
    """Rows that differ as those of logs do; and what is small may unpack to any multiple."""
    rows = "".join(f"{i} {7 * i} {i % 97} {i % 3600} 1 -1 -1 1\n" for i in range(400_000))
    path = tmp_path / "jobs.swf.gz"
    path.write_bytes(gzip.compress(rows.encode()))
    assert sum(block.rows for block in Blocks(path)) == 400_000
    path.write_bytes(gzip.compress(LINE * 100_000))  # 4 MB in 10 kB
    assert sum(block.rows for block in Blocks(path)) == 100_000


ZSTD = b"\x28\xb5\x2f\xfd"
HEADS = {  # of frames by RFC 8878: a size of 8, 4, 2 and 1 bytes, and none
    b"\xc0\x58": 8,
    b"\x80\x58": 4,
    b"\x60": 2,
    b"\x20": 1,
    b"\x00\x58": 0,
}


def zstd(texts: list[bytes], head: bytes = b"\x00\x58") -> bytes:
    """A frame whose blocks are not packed, but for those that repeat a byte."""
    width, size = HEADS[head], sum(map(len, texts))
    frame = ZSTD + head + (size - 256 * (width == 2)).to_bytes(width or 8, "little")[:width]
    for i, text in enumerate(texts):
        repeats = text == text[:1] * len(text)
        about = len(text) << 3 | 2 * repeats | (i == len(texts) - 1)
        frame += about.to_bytes(3, "little") + (text[:1] if repeats else text)
    return frame


@pytest.mark.parametrize("head", HEADS)
def test_a_zstd_file_is_read_frame_by_frame_as_a_stream(head, tmp_path):
    more = 4 if HEADS[head] == 1 else 10
    path, skipped = tmp_path / "jobs.swf.zst", b"\x50\x2a\x4d\x18\x03\0\0\0abc"
    path.write_bytes(zstd([LINE, LINE * more], head) + skipped + zstd([LINE * 2900, b"7" * 999]))
    with path.open("rb") as file:
        found = list(texts.zstd_blocks(file))
    assert [block.most for block in found] == [44, 44 * more, 127_600, 999]
    given = (44 + 44 * more, 0) if HEADS[head] else (44, 44 * more)
    assert [block.given for block in found] == [*given, 127_600, 999]
    read = Blocks(path)
    assert b"".join(block.data for block in read) == LINE * (2901 + more) + b"7" * 999 + b"\n"
    assert read.stored == path.stat().st_size


def test_a_line_without_an_end_in_a_zstd_file_is_refused_unread(tmp_path, small):
    path = tmp_path / "jobs.swf.zst"
    path.write_bytes(zstd([LINE, *[b"7" * (128 << 10)] * 100]))
    with pytest.raises(TraceError, match=r"200 .* GANGWISE_MOST_EXPANSION"):
        list(Blocks(path))
    text = [LINE * 2900] * 300  # 38 MB that repeat: nothing is wrong with those
    path.write_bytes(zstd(text))
    read, shares = Blocks(path), list[float]()
    for _ in read:
        shares.append(read.stored / path.stat().st_size - read.unpacked / (len(text[0]) * 300))
    assert len(shares) > 5
    assert max(map(abs, shares)) < 0.15  # stored bytes are counted as their text comes


def test_a_parquet_file_of_one_value_a_billion_times_is_refused_unread(tmp_path, small):
    rows = pl.select(pl.repeat(0, 3_000_000).alias("submit"), run=1)  # 48 MB in memory
    path = tmp_path / "jobs.parquet"
    rows.write_parquet(path, row_group_size=3_000_000)
    tables = {"jobs": tmp_path, "saved": tmp_path / "saved"}
    tables["saved"].mkdir()
    shutil.copy(path, tables["saved"] / "servers.parquet")
    manifest = {"version": VERSION, "trace": "swf", "units": {}, "files": {}, "tables": []}
    manifest |= {"stages": [], "notes": []}
    (tables["saved"] / SAVED).write_text(json.dumps(manifest))
    for read in (lambda: list(Blocks(path)), lambda: load_tables(tables["saved"])):
        with pytest.raises(TraceError, match=r"200 .* GANGWISE_MOST_EXPANSION"):
            read()


def test_a_long_text_in_every_row_of_a_parquet_file_is_refused(tmp_path, small):
    path = tmp_path / "jobs.parquet"
    pl.select(pl.repeat("x" * 200_000, 400).alias("name")).write_parquet(path)
    assert path.stat().st_size < 100_000
    with pytest.raises(TraceError, match=r"200 .* GANGWISE_MOST_EXPANSION"):
        list(Blocks(path))


def test_a_packed_table_of_pending_jobs_is_bounded(tmp_path, small):
    path = tmp_path / "pending.csv"
    path.write_bytes(gzip.compress(b"now,submit,start\n" + b"1,1,2\n" * 2_000_000))
    assert pending_files(tmp_path) == [path]
    with pytest.raises(TraceError, match=r"200 .* GANGWISE_MOST_EXPANSION"):
        open_pending([path])


MEASURED = """
import resource, sys
from gangwise.logs.inspect import inspect
print(inspect(sys.argv[1]))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, file=sys.stderr)
"""


@pytest.mark.full
def test_sixty_million_rows_in_seven_megabytes_are_inspected_by_their_start(tmp_path: Path):
    path = tmp_path / "jobs.swf.gz"
    with gzip.open(path, "wb", compresslevel=6) as file:
        for _ in range(600):
            file.write(LINE * 100_000)
    assert path.stat().st_size < 10 << 20
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(path)], capture_output=True, text=True, check=True
    )
    assert "by this sample about" in done.stdout
    rows = int(done.stdout.partition("by this sample about ")[2].split()[0].replace(",", ""))
    assert 5e6 < rows < 120e6
    assert int(done.stderr.split()[-1]) < 1200, "MiB"


def test_an_inspection_says_that_it_read_a_sample(tmp_path, monkeypatch):
    path = tmp_path / "jobs.swf.gz"
    path.write_bytes(gzip.compress(LINE * 400_000))
    for name, value in (("LONG", 8 << 20), ("SAMPLE", 4 << 20)):
        monkeypatch.setattr(f"gangwise.logs.inspect.{name}", value)
    found = inspect(path)
    assert not found.everything
    (file,) = found.traces[0].files
    assert file.read is not None
    assert file.read < 400_000
    assert 0 < file.share < 1
    assert "by this sample about" in str(found)
    stored = path.stat().st_size
    amounts = re.search(r"the first (\S+) (\S+) was read and the last (\S+) (\S+) was", str(found))
    units = {"KiB": 1024, "bytes": 1}
    begin, rest = (
        float(n) * units[unit] for n, unit in (amounts.groups()[:2], amounts.groups()[2:])
    )
    assert begin / stored == pytest.approx(file.share, rel=0.01)
    assert begin + rest == pytest.approx(stored, rel=0.01)
    assert "--all reads all" in str(found)
    whole = inspect(path, everything=True).traces[0].fidelity
    assert whole is not None
    assert whole.stages[0].read == 400_000
