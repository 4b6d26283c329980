"""The fast way, the slow way and a plain reader agree, whatever is in a file."""

from __future__ import annotations

import gzip
import json
from contextlib import suppress

import polars as pl
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gangwise import TraceError
from gangwise.logs import reading as parsing
from gangwise.logs.reading import Check, Column, Schema, TableReader, read_table
from gangwise.logs.text import Blocks, split_line
from tests.reference import traces as reference

COLUMNS = (
    Column("name", number=False, pattern=r"[a-z]\d*"),
    Column("count", whole=True, most=2.0**63),
    Column("share", least=-1.0, most=1e6, empty=True),
    Column("note", number=False, empty=True),
)
CHECK = Check("share is more than count", "share > count", ("share", "count"))


def check(values):
    return CHECK.reason if (values["share"] or -1.0) > values["count"] else None


CELLS = [
    "",
    " ",
    "a",
    "b7",
    "A",
    "0",
    "1",
    "-1",
    "+5",
    "-0",
    "2.0",
    "1.5",
    ".5",
    "1.",
    "1e3",
    "1e400",
    "nan",
    "inf",
    "9007199254740993",
    "9223372036854775807",
    "9223372036854775808",
    "0x1",
    "1_0",
    "1 ",
    " 1",
    "\t1",
    "null",
    "NA",
    "é",
    "\xa01",
    "\x00",
    "\ufffd",
    '"a"',
    '"a""b"',
    '"',
    'a"b',
    '"1,2"',
    "true",
    "٣",
]
GOOD = st.tuples(
    st.sampled_from(["a", "b1", "c22"]),
    st.sampled_from(["0", "1", "2.0", "9223372036854775807"]),
    st.sampled_from(["", "0.5", "-1", "0"]),
    st.sampled_from(["", "x", "é", "x y"]),
)
QUOTED = GOOD.flatmap(
    lambda row: st.tuples(*(st.sampled_from([field, f'"{field}"']) for field in row[:3]))
).map(lambda row: (*row, '"x, ""y"" | ; z"'))
BAD = st.lists(st.sampled_from(CELLS), max_size=6)
ROWS = st.lists(st.one_of(GOOD, GOOD, QUOTED, QUOTED, BAD), max_size=25)


def read(file, schema, size):
    reading = TableReader(file, schema, blocks=Blocks(file, size))
    frames = list(reading)
    return pl.concat(frames), reading.dropped, reading.read


@pytest.mark.full
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=ROWS,
    separator=st.sampled_from([",", "|", "\t", " ", ";"]),
    header=st.booleans(),
    unique=st.booleans(),
    few=st.sampled_from([1, 60, 1 << 16]),
    size=st.sampled_from([30, 100, 1 << 20]),
    pack=st.booleans(),
)
@example([("a", "1", "0.5", "x"), ("b", "1", "0.5")], ",", False, False, 1, 100, False)
@example([("a", "2", "1", "x"), ["a"] * 6, ["b"] * 2], ",", False, False, 1, 1000, False)
def test_both_ways_and_a_plain_reader_agree(
    tmp_path, rows, separator, header, unique, few, size, pack
):
    schema = Schema(
        "list",
        COLUMNS,
        header=header,
        unique="name" if unique else "",
        checks=(CHECK,),
        separator=separator,
    )
    first = [c.name for c in COLUMNS] if header else ["z", "1", "0", ""]
    text = "\n".join(separator.join(row) for row in [first, ["z9", "1", "0", "x"], *rows])
    data = gzip.compress(text.encode()) if pack else text.encode()
    file = tmp_path / "x"
    file.write_bytes(data)
    good, bad, count = reference.read(data, schema, check)
    results = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parsing, "SMALL_PART", few)
        results.append(read(file, schema, size))
        patch.setattr(parsing.RowParser, "_fast", lambda *_: None)
        results.append(read(file, schema, size))
    for frame, dropped, found in results:
        assert frame.rows() == good
        assert {why: list(lost) for why, lost in dropped.items()} == bad
        assert found == count
    assert results[0][0].schema == results[1][0].schema


@given(text=st.text(alphabet='a1,"\n', max_size=30), separator=st.sampled_from([",", "1"]))
def test_quotes_are_plain_only_where_polars_and_csv_read_the_same(text, separator):
    lines = [line for line in text.split("\n") if line]
    data = "".join(f"{line}\n" for line in lines).encode()
    apart = [split_line(line, separator) for line in lines]
    plain = parsing.quotes_are_plain(data, separator.encode())
    if plain and None in apart:  # a line ends inside of a field: seen by the number of rows
        types = {str(n): pl.String for n in range(2 + max(line.count(separator) for line in lines))}
        with suppress(pl.exceptions.PolarsError):
            frame = pl.read_csv(data, has_header=False, schema=types, separator=separator)
            assert len(frame) < len(lines)
    elif plain:
        assert parsing.outside_quotes(data, separator.encode()) == sum(
            len(row) - 1 for row in apart
        )
        width = max(map(len, apart), default=0)
        if width > 1 and all(len(row) == width for row in apart):
            types = {str(n): pl.String for n in range(width)}
            frame = pl.read_csv(data, has_header=False, schema=types, separator=separator)
            assert frame.fill_null("").rows() == [tuple(row) for row in apart]
    elif None not in apart:  # a quote inside a field that none opens: read one by one
        assert any('"' in field for row in apart for field in row)


def test_a_block_in_quotes_is_read_the_fast_way(tmp_path, monkeypatch):
    schema = Schema("list", COLUMNS, header=False)
    file = tmp_path / "x"
    file.write_text('"a","1","0.5","x, ""y"""\n' * 100_000 + '"a",1,"",\n')
    monkeypatch.setattr(
        parsing.RowParser, "_slow", lambda *_: pytest.fail("taken apart one by one")
    )
    table = read_table(file, schema)
    assert table.frame.rows()[-2:] == [
        (100_000, "a", 1.0, 0.5, 'x, "y"'),
        (100_001, "a", 1, None, ""),
    ]


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**63) | st.floats(-2, 2) | st.sampled_from(CELLS),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2)
    ),
    max_leaves=4,
)
OBJECTS = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["a", "b2"]) | JSON_VALUES,
        "count": st.integers(0, 9) | JSON_VALUES,
        "share": JSON_VALUES,
        "size": JSON_VALUES | st.fixed_dictionaries({"cpus": st.floats(0, 1)}),
    },
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lines=st.lists(
        OBJECTS.map(json.dumps)
        | JSON_VALUES.map(json.dumps)
        | st.sampled_from(["", "{", "[1]", "nul"]),
        max_size=9,
    ),
    size=st.sampled_from([50, 1 << 20]),
)
def test_json_lines_agree_with_a_plain_reader(tmp_path, lines, size):
    columns = (*COLUMNS[:3], Column("size.cpus", empty=True))
    schema = Schema("list", columns, header=False, json=True)
    first = '{"name": "z", "count": "1", "size": {"cpus": 1e-3}}'
    data = "\n".join([first, *lines]).encode()
    file = tmp_path / "x"
    file.write_bytes(data)
    good, bad, count = reference.read(data, schema)
    frame, dropped, found = read(file, schema, size)
    assert (frame.rows(), found) == (good, count)
    assert {why: list(lost) for why, lost in dropped.items()} == bad


def test_half_a_character_in_json_is_a_bad_row(tmp_path):
    file = tmp_path / "x"
    file.write_text('{"a": "x"}\n{"a": "\\ud83d"}\n{"a": "\\ud83d\\ude00"}\n')
    table = read_table(file, Schema("l", (Column("a", number=False),), header=False, json=True))
    assert table.frame.rows() == [(1, "x"), (3, "\U0001f600")]
    assert table.stage.dropped == {"the text is not UTF-8": (1, 2)}


def test_a_bad_row_does_not_make_its_whole_block_slow(tmp_path, monkeypatch):
    schema = Schema("list", COLUMNS, header=False)
    lines = ["a,1,0.5,x"] * 200_000
    lines[70_000] = "a,many,0.5,x"
    file = tmp_path / "x"
    file.write_text("\n".join(lines))
    slow = []
    plainly = parsing.RowParser._slow

    def counted(rows, data):
        slow.append(len(data))
        return plainly(rows, data)

    monkeypatch.setattr(parsing.RowParser, "_slow", counted)
    table = read_table(file, schema)
    assert table.stage.dropped == {"count is not a number": (1, 70_001)}
    assert len(table.frame) == 199_999
    assert 0 < sum(slow) <= 1 << 16


def test_a_mark_of_the_byte_order_is_taken_off_once(tmp_path):
    file = tmp_path / "x"
    file.write_bytes(b"\xef\xbb\xbf\xef\xbb\xbfa,1\nb,2\n")
    schema = Schema("list", (Column("name", number=False), Column("count")), header=False)
    assert read_table(file, schema).frame.rows() == [(1, "\ufeffa", 1.0), (2, "b", 2.0)]


def test_members_of_an_archive_must_agree(tmp_path):
    from .test_blocks import tar

    schema = Schema("list", COLUMNS)
    file = tmp_path / "x.tgz"
    file.write_bytes(tar(b"name,count,share,note\na,1,,\n", b"name,count,share,note\nb,1,,\n"))
    assert read_table(file, schema).frame.select("row", "name").rows() == [(2, "a"), (4, "b")]
    file.write_bytes(tar(b"name,count,share,note\na,1,,\n", b"count,name,share,note\n1,b,,\n"))
    with pytest.raises(TraceError, match="row 3"):
        read_table(file, schema)
