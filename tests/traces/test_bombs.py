"""Small files that unpack to very much: refused, or answered by their start, in little memory."""

from __future__ import annotations

import bz2
import gzip
import lzma
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from gangwise import TraceError
from gangwise.core.watching import watched
from gangwise.traces.inspect import inspect
from gangwise.traces.io import blocks
from gangwise.traces.io.blocks import Blocks, _zstd_size

LINE = b"1 0 0 60 1 -1 -1 1 60 -1 1 1 1 1 1 -1 -1 -1\n"
PACK = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limits at a hundredth, so that a test needs a hundredth of the time."""
    for name in ("FREE", "SHOWN"):
        monkeypatch.setattr(blocks, name, 8 << 20)


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
    with pytest.raises(TraceError, match="more than 200 times"):
        Blocks(path).whole()
    monkeypatch.setenv("GANGWISE_MOST_EXPANSION", "100000")
    told = []
    with watched(lambda *of: told.append(of)):
        assert sum(block.rows for block in Blocks(path)) == 250_000
    assert told
    assert all(what == f"reading {path.name}" and done <= of for what, done, of in told)
    monkeypatch.setenv("GANGWISE_MOST_ROWS", "200000")
    with pytest.raises(TraceError, match=r"more than 200,000 rows.*GANGWISE_MOST_ROWS"):
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


@pytest.mark.parametrize(
    "head",
    # Frame heads by RFC 8878: a size of 8, 4 and 2 bytes, of one in a single segment, and none.
    [
        (b"\x28\xb5\x2f\xfd\xc0\x00" + (5 << 30).to_bytes(8, "little"), 5 << 30),
        (b"\x28\xb5\x2f\xfd\xa0" + (70_000).to_bytes(4, "little"), 70_000),
        (b"\x28\xb5\x2f\xfd\x60" + (1000 - 256).to_bytes(2, "little"), 1000),
        (b"\x28\xb5\x2f\xfd\x20\x64", 100),
        (b"\x28\xb5\x2f\xfd\x00\x58", 0),
    ],
)
def test_the_size_of_a_zstd_frame(head):
    assert _zstd_size(head[0].ljust(18, b"\0")) == head[1]


MEASURED = """
import resource, sys
from gangwise.traces.inspect import inspect
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
        monkeypatch.setattr(f"gangwise.traces.inspect.{name}", value)
    found = inspect(path)
    assert not found.everything
    (file,) = found.traces[0].files
    assert file.read is not None
    assert file.read < 400_000
    assert 0 < file.share < 1
    assert "by this sample about" in str(found)
    assert "--all reads all" in str(found)
    whole = inspect(path, everything=True).traces[0].fidelity
    assert whole is not None
    assert whole.stages[0].read == 400_000
