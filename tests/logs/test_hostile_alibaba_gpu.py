"""Damaged files: an error that names the file, or true rows and an account that adds up.

Rows that were kept are compared with their own line of the damaged file, taken apart by the csv
module; and a line of the original that no other line disputes must be among them.
"""

from __future__ import annotations

import csv
import gzip
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gangwise import TraceError
from gangwise.logs.formats.tabular import reader
from gangwise.logs.reading import read_table

from .csvs import pod
from .csvs import write as write_2023
from .test_alibaba_gpu_v2020 import TABLES
from .test_alibaba_gpu_v2020 import write as write_2020

AlibabaGpuV2020, AlibabaGpuV2023 = reader("alibaba-gpu-v2020"), reader("alibaba-gpu-v2023")
PODS = [pod("a"), pod("b", gpus=1, milli=500, spec="A|B"), pod("c", created=60), pod("d", cpu=1)]
READERS = {
    **dict.fromkeys(("nodes", "pods"), (AlibabaGpuV2023, lambda folder: write_2023(folder, PODS))),
    **dict.fromkeys(TABLES, (AlibabaGpuV2020, write_2020)),
}
DAMAGE = st.tuples(
    st.sampled_from(["append", "cut", "insert", "replace", "twice"]),
    st.floats(0, 1, exclude_max=True),
    st.one_of(
        st.binary(max_size=8),
        st.sampled_from(
            [
                b"\n",
                b"\r\n",
                b",",
                b'"',
                b"\x00",
                b"\xff",
                b"\xef\xbb\xbf",
                b"-",
                b"9",
                b"e9",
                b"\n\n",
                b"a1,1a,b1,Terminated,1,2\n",
                b"\x1f\x8b",
                "é".encode(),
            ]
        ),
    ),
)


def damaged(content: bytes, damage) -> bytes:
    how, where, junk = damage
    at = int(where * len(content))
    return {
        "append": content + junk,
        "cut": content[:at],
        "insert": content[:at] + junk + content[at:],
        "replace": content[:at] + junk + content[at + len(junk) :],
        "twice": content + content[at:],
    }[how]


def fields_of(line: str) -> list[str]:
    try:
        return [field.strip() for field in next(csv.reader([line])) or [""]]
    except csv.Error:
        return [line]


def lines_of(content: bytes) -> list[str]:
    text = content.decode("utf-8-sig", errors="replace")
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def attempt(folder, action):
    """What it gives; None for an error that names a file of the folder."""
    try:
        return action()
    except TraceError as error:
        if error.file is None or folder not in (error.file, *error.file.parents):
            raise
        return None


def adds_up(read, kept, dropped):
    return read == kept + sum(count for count, _ in dropped.values())


def lay_out(folder, table):
    """The good files, but for the one to be damaged: its place, content and schema."""
    reader, write = READERS[table]
    for file in folder.iterdir():
        file.unlink()
    write(folder)
    content = (folder / f"{table}.csv").read_bytes()
    (folder / f"{table}.csv").unlink()
    return reader, folder / f"{table}.csv", content, reader.FORMAT.table(table).schema


def check_rows(read, schema, lines, original):
    """Every row is its own line; every undamaged line whose name is not used again is a row."""
    columns = [column.name for column in schema.columns]
    names = fields_of(lines[0]) if schema.matches(fields_of(lines[0])) else columns
    kept = set()
    for row in read.frame.iter_rows(named=True):
        line = lines[row["row"] - 1]
        kept.add(line)
        held = dict(zip(names, fields_of(line)))
        for name in (name for name in columns if name in row):
            value = row[name]
            assert (
                held[name] == (value or "")
                if isinstance(value, str | None)
                else (float(held[name]) == value)
            )
    if schema.header and lines[0] != original[0]:
        return
    used = Counter(fields_of(line)[0] for line in lines)
    good = {line for line in original[schema.header :] if line}
    assert kept >= {
        line
        for line in lines
        if line in good and (not schema.unique or used[fields_of(line)[0]] == 1)
    }


@pytest.mark.full
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("table", READERS)
@given(damages=st.lists(DAMAGE, min_size=1, max_size=3), packed=st.booleans(), strict=st.booleans())
def test_an_error_that_names_the_file_or_true_rows(tmp_path, table, damages, packed, strict):
    reader, file, original, schema = lay_out(tmp_path, table)
    content = original
    for damage in damages:
        content = damaged(content, damage)
    if packed:
        file = file.with_suffix(".csv.gz")
    file.write_bytes(gzip.compress(content) if packed else content)
    read = attempt(file, lambda: read_table(file, schema, strict=strict))
    if read is not None:
        assert adds_up(*read.stage[1:])
        assert not (strict and read.stage.dropped)
        check_rows(read, schema, lines_of(content), lines_of(original))
    report = attempt(tmp_path, lambda: reader(tmp_path, strict=strict).fidelity())
    for stage in report.stages if report is not None else ():
        assert adds_up(stage.read, stage.kept, stage.dropped)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(damage=DAMAGE, table=st.sampled_from(list(READERS)))
def test_a_damaged_gzip_file_gives_no_row_that_is_not_in_the_original(tmp_path, damage, table):
    _, plain, original, schema = lay_out(tmp_path, table)
    plain.write_bytes(original)
    rows = set(read_table(plain, schema).frame.drop("row").iter_rows())
    file = plain.with_suffix(".csv.gz")
    packed = gzip.compress(original, mtime=0)
    file.write_bytes(packed[:2] + damaged(packed[2:], damage))  # still says that it is gzip
    read = attempt(file, lambda: read_table(file, schema))
    if read is not None:
        assert adds_up(*read.stage[1:])
        found = set(read.frame.drop("row").iter_rows())
        assert found == rows or read.stage.dropped
        # Damage that lets the stream run past the end of the file cannot be told from a cut: there
        # is no check sum then.
        cut = any("CUT SHORT" in why and "cut short" in why for why in read.stage.dropped)
        assert found <= rows or (cut and damage[0] in ("insert", "replace"))
