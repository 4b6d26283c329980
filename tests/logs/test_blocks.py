"""Blocks: the same lines however a file is packed and cut; damage is noticed."""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import io
import os
import sys
import tarfile
import zlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gangwise import TraceError
from gangwise.logs import text as text_module
from gangwise.logs.reading import Column, Schema, read_table
from gangwise.logs.text import Blocks, first_lines, read_records


@pytest.fixture(autouse=True, params=["isal.isal_zlib", "zlib"])
def library(request, monkeypatch):
    """Files are unpacked alike by isal, and by zlib where there is no isal."""
    monkeypatch.setattr(text_module, "inflate", pytest.importorskip(request.param))


def test_without_isal_files_are_unpacked_by_zlib(monkeypatch):
    for name in ("isal", "isal.isal_zlib"):
        monkeypatch.setitem(sys.modules, name, None)
    spec = importlib.util.spec_from_file_location("text_again", text_module.__file__)
    again = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "text_again", again)  # where its dataclasses look
    spec.loader.exec_module(again)
    assert again.inflate is zlib


def test_the_first_line_is_there_whatever_many_blank_ones_follow(tmp_path):
    file = tmp_path / "x.csv"
    for text, expected in (
        ("a,b\n" + "\n" * 200_000 + "1,2\n", ["a,b"]),
        ("a,b\r" + "1,2\r" * 50_000, ["a,b"] + ["1,2"] * 19),
        ("a" * 100_000 + "\n", []),
    ):
        file.write_text(text, newline="")
        assert first_lines(file) == expected


def tar(*members, packed=True) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz" if packed else "w") as archive:
        folder = tarfile.TarInfo("data")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        for number, content in enumerate(members):
            info = tarfile.TarInfo(f"data/{number}.csv")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


LINES = st.lists(st.sampled_from(["", " ", "a,b", "1,2", "é" * 9, "x" * 40]), max_size=12)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lines=LINES,
    ending=st.sampled_from(["\n", "\r\n", "\r"]),
    close=st.booleans(),
    bom=st.booleans(),
    size=st.integers(1, 60),
    pack=st.sampled_from(["", "gz", "gzs", "tar", "tgz"]),
)
def test_all_lines_come_out_whole_in_order(tmp_path, lines, ending, close, bom, size, pack):
    text = ending.join(["start", *lines]) + ending * close
    plain = b"\xef\xbb\xbf" * bom + text.encode()
    half = len(plain) // 2
    stored = {
        "": plain,
        "gz": gzip.compress(plain),
        "tar": tar(plain, packed=False),
        "tgz": tar(plain),
        "gzs": gzip.compress(plain[:half]) + gzip.compress(plain[half:]) + b"\0" * 9,
    }[pack]
    file = tmp_path / "x"
    file.write_bytes(stored)
    blocks = Blocks(file, size)
    found = list(blocks)
    expected = ["start", *lines]
    while not expected[-1].strip():
        expected.pop()
    assert b"".join(block.data for block in found).decode() == "\n".join(expected) + "\n"
    line = 1
    for block in found:
        assert (block.line, block.data[-1:]) == (line, b"\n")
        assert block.rows == block.data.count(b"\n") > 0
        line += block.rows
    assert [block.opens for block in found] == [True] + [False] * (len(found) - 1)
    assert blocks.digest() == hashlib.sha256(stored).hexdigest()
    assert (blocks.stored, blocks.damage) == (len(stored), "")
    assert blocks.unpacked == len("\n".join(expected).encode()) + 1


def test_members_of_an_archive_follow_one_another(tmp_path):
    file = tmp_path / "x.tar.gz"
    file.write_bytes(tar(b"a,b\n1,2", b"a,b\r\n3,4\r\n\r\n"))
    assert [(b.data, b.line, b.opens) for b in Blocks(file)] == [
        (b"a,b\n1,2\n", 1, True),
        (b"a,b\n3,4\n", 3, True),
    ]
    assert first_lines(file) == ["a,b", "1,2"]


def test_blank_lines_wait_in_blocks_and_not_for_ever(tmp_path, monkeypatch):
    file = tmp_path / "x"
    file.write_bytes(b"a\n" + b"\n" * 700 + b"b\n" + b" \n" * 400)
    found = list(Blocks(file, 100))
    assert b"".join(block.data for block in found) == b"a\n" + b"\n" * 700 + b"b\n"
    monkeypatch.setattr("gangwise.logs.text.LONGEST_LINE", 500)
    with pytest.raises(TraceError, match="than 0"):
        list(Blocks(file, 100))


def test_a_line_without_an_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("gangwise.logs.text.LONGEST_LINE", 1000)
    file = tmp_path / "x"
    file.write_bytes(b"a,b\n" + b"x" * 5000)
    with pytest.raises(TraceError, match="row 2"):
        list(Blocks(file, 100))


@pytest.mark.parametrize("pack", [gzip.compress, tar])
def test_damage_gives_the_lines_before_it(tmp_path, pack):
    lines = [f"{hashlib.sha256(bytes([n % 251, n // 251])).hexdigest()}\n" for n in range(9000)]
    stored, file = pack("".join(lines).encode()), tmp_path / "x"
    for size in (len(stored) // 2, len(stored) - 9):
        file.write_bytes(stored[:size])
        blocks = Blocks(file, 1000)
        found = b"".join(block.data for block in blocks).decode()
        assert "cut short" in blocks.damage
        assert "".join(lines).startswith(found)
        assert len(found) > 0.4 * len("".join(lines))
        assert blocks.torn in (0, found.count("\n") + 1)
    broken = bytearray(stored)
    broken[len(stored) // 2] ^= 255
    file.write_bytes(broken)
    with pytest.raises(TraceError, match="damaged"):
        list(Blocks(file, 1000))


@pytest.mark.parametrize("size", [1, 100, 30_000])
def test_a_wrong_check_sum_gives_no_row(tmp_path, size):
    rows = b"".join(b"%d,%d\n" % (n, n * n) for n in range(size))
    packed = gzip.compress(rows)
    file = tmp_path / "x.csv.gz"
    schema = Schema("x", (Column("n"), Column("square")), header=False)
    for place in (-8, -1):
        wrong = bytearray(packed)
        wrong[place] ^= 1
        for after in (b"", packed):
            file.write_bytes(bytes(wrong) + after)
            with pytest.raises(TraceError, match="damaged"):
                read_table(file, schema)
    file.write_bytes(packed + b"\0" * 9 + packed)
    whole = Blocks(file)
    assert b"".join(block.data for block in whole) == rows * 2
    assert not whole.damage
    file.write_bytes(packed + b"no gzip")  # its check sum was right before
    table = read_table(file, schema)
    assert len(table.frame) == size
    ((why, _),) = table.stage.dropped.items()
    assert "bytes behind its check sum" in why


@pytest.mark.parametrize("change", ["grows", "shrinks", "is written to"])
def test_a_file_that_changes_while_it_is_read(tmp_path, change):
    file = tmp_path / "x.csv"
    row = b"1,2,3,4,5,6,7\n"
    file.write_bytes(row * 100_000)
    blocks = Blocks(file, 1 << 16)
    reading = iter(blocks)
    next(reading)
    with file.open("r+b") as open_file:
        if change == "shrinks":
            open_file.truncate(len(row) * 50_000)
        else:
            open_file.seek(0, 2 if change == "grows" else 0)
            open_file.write(row)
    os.utime(file, ns=(1, 1))
    with pytest.raises(TraceError, match="changed"):
        list(reading)


@pytest.mark.parametrize("pack", [bytes, gzip.compress, tar])
def test_a_whole_text_may_be_one_long_line(tmp_path, monkeypatch, pack):
    monkeypatch.setattr(text_module, "LONGEST_LINE", 1000)
    text = b'{"items": [' + b",".join(b'{"n": %d}' % n for n in range(2000)) + b"]}"
    file = tmp_path / "x.json"
    file.write_bytes(pack(b"\xef\xbb\xbf" + text))
    blocks = Blocks(file, 100)
    assert blocks.whole() == text
    assert blocks.digest() == hashlib.sha256(file.read_bytes()).hexdigest()
    assert len(read_records(file, "items").records) == 2000
    with pytest.raises(TraceError, match="longer"):
        list(Blocks(file, 100))
    if pack is not bytes:
        file.write_bytes(pack(text)[:-30])
        with pytest.raises(TraceError, match=r"cut short|damaged"):
            read_records(file, "items")
