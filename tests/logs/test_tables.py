"""Hostile files: every bad row is named, and nothing but TraceError comes out."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gangwise import TraceError
from gangwise.logs.formats.tabular import reader
from gangwise.logs.reading import Column, Schema, read_table
from gangwise.papers.scenarios.opening import TraceScenario

from .csvs import NODE_HEADER, POD_HEADER, pod, write

AlibabaGpuV2023 = reader("alibaba-gpu-v2023")
FORMAT = AlibabaGpuV2023.FORMAT
NODES, PODS = (FORMAT.table(name).schema for name in ("nodes", "pods"))

GOOD = [pod("a"), pod("b", gpus=1, milli=500)]


def pods_file(folder: Path, lines: list[str], header: str = POD_HEADER) -> Path:
    file = folder / "pods.csv"
    file.write_text("\n".join([header, *lines]) + "\n")
    return file


BAD_ROWS = [
    (pod("c", cpu="many"), "cpu_milli is not a number", "cpu_milli = 'many'"),
    (pod("c", cpu=""), "cpu_milli is empty", "cpu_milli = ''"),
    (pod("c", cpu=-1), "cpu_milli is negative", "'-1'"),
    (pod("c", mem="NaN"), "memory_mib is not finite", "'NaN'"),
    (pod("c", mem="inf"), "memory_mib is not finite", "'inf'"),
    (pod("c", mem="1e400"), "memory_mib is not finite", "'1e400'"),
    (pod("c", gpus=1.5, milli=1000), "num_gpu is not a whole number", "'1.5'"),
    (pod("c", gpus=1, milli=1001), "gpu_milli is larger than 1000", "'1001'"),
    (pod("c", created="1e13", deleted="1e13"), "creation_time is larger than 1e+12", "'1e13'"),
    (pod("c", deleted=""), "deletion_time is empty", "deletion_time = ''"),
    (
        pod("c", created=61, deleted=60),
        "deletion_time is before creation_time",
        "creation_time = '61', deletion_time = '60'",
    ),
    (pod("c", gpus=1), "num_gpu is positive and gpu_milli is 0", "num_gpu = '1'"),
    (pod("c", milli=5), "gpu_milli is positive and num_gpu is 0", "gpu_milli = '5'"),
    (pod("c", cpu=0, mem=0), "the pod requests no devices at all", "cpu_milli = '0'"),
    (pod(""), "name is empty", "name = ''"),
    (pod("a"), "name was used before", "name = 'a'"),
    (pod("c") + ",1", "the number of fields is not that of the columns", "12 fields"),
    ("c,1,2", "the number of fields is not that of the columns", "3 fields"),
    ("", "the line is empty", "1 fields"),
    ('"c' + pod(""), "quotes do not match", "see the line"),
    (pod("c\x00d", cpu="\x00"), "cpu_milli is not a number", "cpu_milli"),
]


@pytest.mark.parametrize(("row", "reason", "held"), BAD_ROWS)
def test_a_bad_row_is_left_out_and_counted_or_raised(tmp_path, row, reason, held):
    file = pods_file(tmp_path, [*GOOD, row, pod("z")])
    table = read_table(file, PODS)
    assert table.frame["name"].to_list() == ["a", "b", "z"]
    assert table.frame["row"].to_list() == [2, 3, 5]
    assert table.stage.read == 4
    assert table.stage.dropped == {reason: (1, 4)}
    with pytest.raises(TraceError) as caught:
        read_table(file, PODS, strict=True)
    assert caught.value.file == file
    assert caught.value.row == 4
    assert reason in str(caught.value)
    assert held in str(caught.value)


def test_equal_reasons_are_counted_together_and_the_first_row_is_named(tmp_path):
    file = pods_file(tmp_path, [pod("a", cpu=-1), pod("b"), pod("c", cpu=-5), pod("d", mem="x")])
    table = read_table(file, PODS)
    assert table.stage.dropped == {
        "cpu_milli is negative": (2, 2),
        "memory_mib is not a number": (1, 5),
    }
    with pytest.raises(TraceError, match="cpu_milli"):
        read_table(file, PODS, strict=True)


def test_a_name_that_only_a_bad_row_used_is_free(tmp_path):
    file = pods_file(tmp_path, [pod("a", cpu=-1), pod("a"), pod("a", mem=1)])
    table = read_table(file, PODS)
    assert table.frame["row"].to_list() == [3]
    assert table.stage.dropped["name was used before"] == (1, 4)


def test_no_usable_row_is_an_error_that_says_why(tmp_path):
    file = pods_file(tmp_path, [pod("a", cpu=-1), pod("b", cpu=-2)])
    with pytest.raises(TraceError, match=r"none of the 2 rows .*negative \(2, first in row 2\)"):
        read_table(file, PODS)


@pytest.mark.parametrize(
    ("content", "row", "message"),
    [
        (b"", None, "the file is empty"),
        (b"\xef\xbb\xbf\r\n\r\n", None, "the file is empty"),
        (NODE_HEADER.encode(), None, "a header and no rows"),
        (NODE_HEADER.encode() + b"\r\n\r\n", None, "a header and no rows"),
        (
            b"sn,cpu_mili,memory_mib,gpu,model\na,1,1,0,\n",
            1,
            "needs column 'cpu_milli' (did you mean 'cpu_mili'?)",
        ),
        (b"SN,CPU Milli,memory_mib,gpu,model\na,1,1,0,\n", 1, "did you mean 'CPU Milli'?"),
        (b"sn,cpu_milli\na,1\n", 1, "needs columns 'memory_mib', 'gpu', 'model'"),
        (
            b"sn,cpu_milli,cpu_milli,memory_mib,gpu,model\na,1,1,1,0,\n",
            1,
            "names column 'cpu_milli' twice",
        ),
        (POD_HEADER.encode() + b"\n", 1, "needs columns 'sn'"),
        (b"sn;cpu_milli;memory_mib;gpu;model\na;1;1;0;\n", 1, "separated by semicolons"),
        (b"a,8000,1024,0,\n", 1, "the first line holds data where column names should be"),
        (b"PK\x03\x04...", None, "zip archive cannot be unpacked"),
        ("sn,cpu\n".encode("utf-16"), 1, "needs columns 'cpu_milli'"),
        (b"\x1f\x8bnot gzip", None, "gzip file is damaged"),
    ],
)
def test_a_file_of_another_kind_is_named_for_what_it_is(tmp_path, content, row, message):
    file = tmp_path / "nodes.csv"
    file.write_bytes(content)
    with pytest.raises(TraceError) as caught:
        read_table(file, NODES)
    assert (caught.value.file, caught.value.row) == (file, row)
    assert message in str(caught.value)


def test_missing_files_and_directories(tmp_path):
    with pytest.raises(TraceError, match="such"):
        read_table(tmp_path / "absent.csv", NODES)
    with pytest.raises(TraceError, match="cannot be read"):
        read_table(tmp_path, NODES)


def test_encodings_line_ends_gzip_blanks_quotes_and_extra_columns_change_nothing(tmp_path):
    plain = f"{NODE_HEADER}\nb,2000,1024,0,\na,1000,2048,2,X\n"
    variants = {
        "plain": plain.encode(),
        "windows": b"\xef\xbb\xbf" + plain.replace("\n", "\r\n").encode(),
        "old-mac": plain.replace("\n", "\r").encode(),
        "no-end": plain.rstrip().encode(),
        "packed.gz": gzip.compress(plain.encode()),
        "blanks": plain.replace(",", " , ").encode(),
        "quoted": plain.replace("a,", '"a",').encode(),
        "more": b"extra,sn,model,gpu,memory_mib,cpu_milli\n,b,,0,1024,2000\n9,a,X,2,2048,1000\n",
    }
    for name, content in variants.items():
        (tmp_path / name).write_bytes(content)
        table = read_table(tmp_path / name, NODES)
        assert table.stage.dropped == {}, name
        assert table.frame.select("row", "sn", "cpu_milli", "gpu", "model").rows() == [
            (2, "b", 2000.0, 0.0, ""),
            (3, "a", 1000.0, 2.0, "X"),
        ], name


def test_bytes_that_are_not_text_cost_their_row_only(tmp_path):
    file = tmp_path / "nodes.csv"
    file.write_bytes(NODE_HEADER.encode() + b"\na,1000,1024,0,\nb\xff,1000,1024,0,\n")
    assert read_table(file, NODES).stage.dropped == {"the text is not UTF-8": (1, 3)}


def test_every_cut_of_a_gzip_file_is_noticed(tmp_path):
    rows = [f"n{row},1000,1024,0,\n" for row in range(50)]
    packed = gzip.compress((NODE_HEADER + "\n" + "".join(rows)).encode())
    file = tmp_path / "nodes.csv.gz"
    used = set()
    for size in range(2, len(packed)):
        file.write_bytes(packed[:size])
        with pytest.raises(TraceError, match=r"cut short|damaged"):
            read_table(file, NODES, strict=True)
        if size < len(packed) // 2:  # perhaps not even a row
            try:
                read_table(file, NODES)
            except TraceError as error:
                why = str(error)
                assert "cut short" in why
            continue
        table = read_table(file, NODES)
        kept = table.frame["sn"].to_list()
        assert kept == [f"n{row}" for row in range(len(kept))]
        ((why, lost),) = table.stage.dropped.items()
        assert why.startswith(f"CUT SHORT after row {len(kept) + 1}: the gzip file is cut short")
        assert lost[1] == len(kept) + 2
        assert table.stage.read == len(kept) + lost[0]
        used.add(len(kept))
    assert max(used) == 50
    assert len(used) > 5


def test_a_file_without_a_header(tmp_path):
    schema = Schema("machine list", (Column("id", number=False), Column("cpu")), header=False)
    file = tmp_path / "machines.csv"
    file.write_text("m1,96\nm2,-1\n")
    table = read_table(file, schema)
    assert table.frame.rows() == [(1, "m1", 96.0)]
    assert table.stage.dropped == {"cpu is negative": (1, 2)}
    file.write_text("id,cpu\nm1,96\n")
    assert read_table(file, schema).frame.rows() == [(2, "m1", 96.0)]
    file.write_text("m1,96,3\n")
    with pytest.raises(TraceError, match="have 2"):
        read_table(file, schema)


CELL = st.one_of(
    st.sampled_from(
        [
            "",
            "0",
            "1",
            "1000",
            "-1",
            "NaN",
            "1e9",
            "1e300",
            "A",
            "A|B",
            "|",
            '"',
            " ",
            "é",
            "\x00",
            "0x10",
            "1_0",
            "1,5",
            "٣",
        ]
    ),
    st.text(max_size=5),
)
ROW = st.one_of(
    st.lists(CELL, max_size=13).map(",".join),
    st.builds(pod, name=CELL, cpu=CELL, gpus=CELL, milli=CELL, spec=CELL, created=CELL),
    st.builds(pod, name=st.integers(0, 5), created=st.floats(0, 1e12), deleted=st.just("1e12")),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(ROW, max_size=8), cut=st.integers(0, 400), packed=st.booleans())
def test_hostile_files_raise_trace_error_or_are_accounted_for(tmp_path, rows, cut, packed):
    write(tmp_path, [])
    content = "\n".join([POD_HEADER, *rows]).encode("utf-8", "surrogatepass")
    content = gzip.compress(content) if packed else content
    (tmp_path / "pods.csv").write_bytes(content[: len(content) - cut if cut < 200 else None])
    try:
        scenario = TraceScenario(AlibabaGpuV2023(tmp_path), skip=0)
    except TraceError:
        return
    for stage in scenario.fidelity().stages:
        assert stage.read == stage.kept + sum(n for n, _ in stage.dropped.values())
    assert scenario.counts.sum() == scenario.fidelity().jobs > 0
    scenario.instance(0)
