"""The Standard Workload Format, against a plain reading of its 18 numbers."""

from __future__ import annotations

import gzip
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gangwise import TraceError
from gangwise.logs import open_tables
from gangwise.logs.formats.tabular import SWF_FIELDS, StandardWorkload, is_swf
from gangwise.logs.inspect import inspect
from gangwise.logs.jobs import open_jobs, save_swf


def line(job, submit=0, wait=0, run=60, processors=4, **others):
    """A row; what is not given is -1."""
    held = {"job": job, "submit": submit, "wait": wait, "run": run, "processors": processors}
    return " ".join(
        str({**dict.fromkeys(SWF_FIELDS, -1), **held, **others}[name]) for name in SWF_FIELDS
    )


def write(folder, *rows, name="log.swf", head="; Version: 2.2\n; MaxProcs: 64\n"):
    file = folder / name
    text = (head + "\n".join(rows) + "\n").encode()
    file.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    return file


def test_by_hand(tmp_path):
    file = write(
        tmp_path,
        line(1, 0, 5, 60, 4, requested_processors=8, requested_time=120, status=1, user=3),
        f"  {line(2, 100, 0, 0, 4, status=0, application=7)}".replace(" ", "\t  "),
        "; a comment between rows",
        line(3, 50, 10, 30, 2, requested_time=20, requested_memory=1048576, preceding=1, think=9),
        "",
        line(4, 70, -1, -1, 2, status=5),
        name="log.swf.gz",
    )
    tables = open_tables(file)
    assert tables.jobs.select(
        "row", "name", "tasks", "created", "started", "deleted", "elapsed", "limit"
    ).rows() == [
        (3, "1", 8, 0.0, 5.0, 65.0, 60.0, 120.0),
        (4, "2", 4, 100.0, 100.0, 100.0, 0.0, None),
        (6, "3", 2, 50.0, 60.0, 90.0, 30.0, 20.0),
        (8, "4", 2, 70.0, None, None, None, None),
    ]
    assert tables.jobs["status"].to_list() == ["completed", "failed", "", "cancelled"]
    assert tables.jobs["user"].to_list() == ["3", "", "", ""]
    assert tables.jobs["mem"].to_list() == [0, 0, 1, 0]
    assert tables.servers.select("name", "cpu").rows() == [("pool", 64.0)]
    assert tables.stages == (("log.swf.gz", 4, 4, {}),)
    said = " ".join(tables.notes)
    assert "1 rows are submitted earlier" in said
    assert "1 jobs ran longer than requested" in said


def test_parts_of_a_job_and_numbers_used_again(tmp_path):
    file = write(
        tmp_path, line(1, status=2), line(1, status=1), line(1, status=3), line(2), line(2, run=9)
    )
    tables = open_tables(file)
    assert tables.jobs["row"].to_list() == [4, 6]
    assert [dict(stage.dropped) for stage in tables.stages[1:]] == [
        {"a part of a job, which has a row for the whole": (2, 3)},
        {"its number was used before": (1, 7)},
    ]
    assert open_jobs(file).played.read == 3  # parts are no jobs


CELLS = ["0", "1", "17", "-1", "-2", "3.5", "x", "1e400", "nan", "", "9" * 20, "+4", "0x1", "é"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(
        st.lists(st.sampled_from(CELLS), min_size=17, max_size=19)
        | st.integers(0, 30).map(lambda job: line(job, run=job).split()),
        max_size=12,
    ),
    blanks=st.sampled_from([" ", "   ", "\t", " \t "]),
    comments=st.lists(st.integers(0, 12), max_size=3),
)
def test_rows_are_read_or_accounted_for(tmp_path, rows, blanks, comments):
    lines = [line(99, submit=5), *(blanks.join(row) for row in rows)]
    for at in comments:
        lines.insert(at, "; said")
    file = tmp_path / "log.swf"
    file.write_text("\n".join(lines) + "\n")
    good, taken, bad = [], set(), 0
    for number, text in enumerate(lines, 1):
        cells = text.split()
        if not cells or cells[0].startswith(";"):
            continue
        values = [plain(cell) for cell in cells]
        whole = [values[i] for i in (0, 4, 7, 10, 11, 12, 13, 14, 15, 16) if i < len(values)]
        if (
            len(values) != 18
            or any(value is None or not -1 <= value <= 1e12 for value in values)
            or values[0] < 0
            or values[1] < 0
            or any(value % 1 for value in whole)
        ):
            bad += 1
        elif not 2 <= values[10] <= 4 and values[0] not in taken:
            taken.add(values[0])
            good.append((number, values[1], values[3] if values[3] >= 0 else None))
        else:
            bad += 1
    tables = StandardWorkload(file).scan()
    assert tables.jobs.select("row", "created", "elapsed").rows() == good
    read = tables.stages[0].read
    lost = sum(count for stage in tables.stages for count, _ in stage.dropped.values())
    assert (read, lost) == (len(good) + bad, bad)


def plain(cell):
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def test_what_is_no_log(tmp_path):
    (tmp_path / "a.swf").write_text("; only\n; comments\n")
    with pytest.raises(TraceError):
        open_tables(tmp_path / "a.swf")
    (tmp_path / "a.swf").write_text("1 2 3\n4 5 6\n")
    assert not is_swf(tmp_path / "a.swf")
    (tmp_path / "a.swf").write_bytes(b"\x00\xff" * 99)
    assert not is_swf(tmp_path / "a.swf")
    file = write(tmp_path, *(line(n) for n in range(500)), name="b.swf.gz")
    file.write_bytes(file.read_bytes()[:-40])
    tables = open_tables(file)
    assert any(why.startswith("CUT SHORT") for why in tables.stages[0].dropped)
    played = open_jobs(file).played
    assert played.warnings[0].startswith("warning: CUT SHORT after row")
    assert " 0 because" not in played.line


def test_a_folder_with_one_log_and_with_two(tmp_path):
    write(tmp_path, line(1))
    assert len(open_tables(tmp_path).jobs) == 1
    [found] = inspect(tmp_path).traces
    assert (found.name, found.fidelity.jobs) == ("swf", 1)
    write(tmp_path, line(1), name="other.swf")
    with pytest.raises(TraceError, match=r"other\.swf"):
        open_tables(tmp_path)


def test_strict_names_the_row(tmp_path):
    file = write(tmp_path, line(1), line(2, run=-7))
    with pytest.raises(TraceError, match="than -1"):
        open_tables(file, strict=True)


def test_processors_of_a_log_without_a_header_are_those_in_use_at_once(tmp_path):
    file = write(
        tmp_path, line(1, 0, 0, 10, 4), line(2, 5, 0, 10, 3), line(3, 15, 0, 5, 6), head=""
    )
    log = open_jobs(file)
    assert log.nodes.capacity.tolist() == [[7000]]
    assert "one pool" in log.played.nodes_assumed
    assert log.played.nodes_assumed in log.played.line


def test_what_is_written_is_read_again(tmp_path):
    rng = np.random.default_rng(3)
    rows = [
        line(
            n,
            int(rng.integers(1000)) if n > 1 else 0,
            int(rng.integers(50)),
            int(rng.integers(90)),
            int(rng.integers(1, 64)),
            requested_time=int(rng.choice([-1, 50])),
            status=int(rng.choice([0, 1, 5])),
            user=int(rng.integers(4)),
            application=int(rng.integers(3)),
            preceding=n - 1 if n > 1 and n % 7 == 0 else -1,
        )
        for n in range(1, 80)
    ]
    first = open_jobs(write(tmp_path, *rows))
    save_swf(first, tmp_path / "again.swf.gz")
    again = open_jobs(tmp_path / "again.swf.gz")
    for name in ("submit", "run", "limit", "tasks", "type", "user", "after", "recorded_start"):
        assert np.array_equal(getattr(first.jobs, name), getattr(again.jobs, name), equal_nan=True)
    assert again.nodes.capacity.tolist() == first.nodes.capacity.tolist()
    assert again.rows["status"].to_list() == first.rows["status"].to_list()


@pytest.mark.parametrize(
    ("name", "jobs", "processors", "load"),
    [("NASA-iPSC-1993-3.1-cln", 18_239, 128, None), ("lublin_256", 10_000, 256, 1.06)],
)
def test_real_logs(traces, name, jobs, processors, load):
    file = traces / "swf" / f"{name}.swf.gz"
    log = open_jobs(file)
    assert (log.played.read, log.played.played) == (jobs, jobs)
    assert log.nodes.capacity.tolist() == [[1000 * processors]]
    rows = [
        text.split()
        for text in gzip.decompress(file.read_bytes()).decode().split("\n")
        if text.strip() and not text.lstrip().startswith(";")
    ]
    hours = sum(int(row[4]) * int(row[3]) for row in rows) / 3600
    assert log.played.played_hours == pytest.approx(hours, rel=1e-12)
    sizes = Counter(int(row[4]) for row in rows)
    assert Counter(log.jobs.tasks.tolist()) == sizes
    if load is not None:  # as the archive states it
        span = max(int(row[1]) for row in rows) - min(int(row[1]) for row in rows)
        assert 3600 * hours / processors / span == pytest.approx(load, abs=0.005)


def test_a_job_that_was_cancelled_before_its_start_and_the_account_of_each(tmp_path):
    # Status 5 with run time 0: waited 50 s and was cancelled; status 5 with 7 s: cancelled then.
    file = tmp_path / "log.swf"
    file.write_text(
        "; MaxProcs: 4\n"
        "1 0 0 1000 3 -1 -1 3 1000 -1 1 1 11 -1 1 1 -1 -1\n"
        "2 10 50 0 -1 -1 -1 4 1000 -1 5 2 12 -1 1 1 -1 -1\n"
        "3 100 0 7 1 -1 -1 1 1000 -1 5 3 11 -1 1 1 -1 -1\n"
        "4 101 -1 0 -1 -1 -1 1 1000 -1 5 3 11 -1 1 1 -1 -1\n"
    )
    log = open_jobs(file)
    assert log.jobs.withdrawn.tolist() == [np.inf, 60, np.inf]
    assert log.jobs.recorded_start.tolist()[::2] == [0, 100]
    assert np.isnan(log.jobs.recorded_start[1])
    assert [log.jobs.accounts[i] for i in log.jobs.charged] == ["11", "12", "11"]
    # Nobody knows when the fourth left the line.
    assert log.played.lost["without a start"].jobs == 1
    save_swf(log, tmp_path / "again.swf")
    assert open_jobs(tmp_path / "again.swf").jobs.withdrawn.tolist() == [np.inf, 60, np.inf]


def test_parts_after_the_first_have_no_submission_and_are_no_jobs(tmp_path):
    """Field 11 of the definition: of partial executions (2 and 3) only the first has one."""
    whole = line(1, run=3000)
    parts = [line(1, run=1000, status=2), line(1, -1, 500, 2000, status=3)]
    read = open_tables(write(tmp_path, whole, *parts, line(2, 100)))
    assert read.jobs["name"].to_list() == ["1", "2"]
    assert [sum(n for n, _ in stage.dropped.values()) for stage in read.stages] == [0, 2]
