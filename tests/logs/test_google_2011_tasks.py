"""Task and machine events of 2011 by hand, hostile files, the published part by plain Python."""

from __future__ import annotations

import csv
import gzip
from collections import Counter, defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangwise import TraceError
from gangwise.logs.formats.google import Google2011
from gangwise.papers.scenarios.opening import open_trace

SUBMIT, SCHEDULE, EVICT, FAIL, FINISH, KILL, LOST, UPDATE_PENDING, UPDATE_RUNNING = range(9)
ADD, REMOVE, UPDATE = range(3)
END = 2**63 - 1
SECOND = 10**6


def stamp(seconds):
    return seconds if seconds in (0, END) else round((600 + seconds) * SECOND)


def task(seconds, job, index, code, cpu="0.5", mem="0.25", missing="", machine=""):
    """A row; seconds since the start of the trace, 0 and END as they are."""
    return f"{stamp(seconds)},{missing},{job},{index},{machine},{code},u{job},2,9,{cpu},{mem},0.1,0"


def machine(seconds, name, code, cpu="0.5", mem="0.25", platform="p"):
    return f"{stamp(seconds)},{name},{code},{platform},{cpu},{mem}"


def write(folder, table, *parts, end="\n", bom=False):
    (folder / table).mkdir(exist_ok=True)
    for number, rows in enumerate(parts):
        text = "\ufeff" * bom + end.join(rows) + end
        file = folder / table / f"part-{number:05d}-of-00500.csv.gz"
        file.write_bytes(gzip.compress(text.encode()))
    return folder


ROWS = [
    task(0, 1, 0, SUBMIT),
    task(0, 1, 0, SCHEDULE, machine="7"),  # there before
    task(0, 2, 0, SUBMIT, "", "", missing="2"),  # there before, and its request is not known
    task(10, 3, 0, SUBMIT),
    task(10, 3, 1, SUBMIT),
    task(10, 3, 2, SUBMIT, "0.125"),
    task(20, 3, 0, SCHEDULE, machine="7"),
    task(21, 3, 1, SCHEDULE, machine="8"),
    task(50, 3, 0, EVICT, machine="7"),
    task(51, 3, 0, SUBMIT),  # submitted again
    task(60, 3, 1, FINISH, machine="8"),
    task(70, 3, 0, SCHEDULE, machine="9"),
    task(80, 3, 2, KILL, "0.125"),  # never ran
    task(90, 3, 0, FINISH, machine="9"),
    task(100, 4, 0, SUBMIT, "0", "0.01"),
    task(100, 4, 0, FAIL, "0", "0.01"),  # no cpu, no time
    task(110, 5, 0, SUBMIT, "", ""),  # request never given
    task(120, 6, 0, FINISH),  # never submitted
    task(130, 7, 0, SUBMIT, "", ""),
    task(131, 7, 0, SCHEDULE, "0.3", "0.2"),  # given later
    task(140, 7, 0, UPDATE_RUNNING, "0.4", "0.2"),  # changed
    task(150, 8, 0, SUBMIT),
    task(160, 8, 0, LOST),
    task(170, 8, 0, SCHEDULE),  # seen after its end
    task(200, 9, 0, SUBMIT),
    task(210, 9, 0, EVICT),
    task(210, 9, 0, SUBMIT),  # at one microsecond
    task(END, 9, 0, FINISH),
]
# name: [(cpu, mem, tasks, created, started, deleted, status)], the last time in the files is 210
EXPECTED = {
    "3": [(0.125, 0.25, 1, 10, None, 80, "KILL"), (0.5, 0.25, 2, 10, 20, 90, "FINISH")],
    "4": [(0.0, 0.01, 1, 100, None, 100, "FAIL")],
    "7": [(0.3, 0.2, 1, 130, 131, 210, "")],
    "8": [(0.5, 0.25, 1, 150, 170, 210, "")],
    "9": [(0.5, 0.25, 1, 200, None, 210, "")],
}
VALUES = ("cpu", "mem", "tasks", "created", "started", "deleted", "status")


def found(reader):
    jobs = defaultdict(list)
    for row in reader.scan().jobs.iter_rows(named=True):
        assert row["job"] == row["name"]
        jobs[row["name"]].append(tuple(row[value] for value in VALUES))
    return {name: sorted(rows) for name, rows in jobs.items()}


@pytest.mark.parametrize("cut", [None, 1, 9, 25])
@pytest.mark.parametrize(("end", "bom"), [("\n", False), ("\r\n", True)])
def test_tasks_by_hand(tmp_path, cut, end, bom):
    parts = [ROWS] if cut is None else [ROWS[:cut], ROWS[cut:]]
    reader = Google2011(write(tmp_path, "task_events", *parts, end=end, bom=bom))
    assert Google2011.recognise(tmp_path)
    assert found(reader) == EXPECTED
    stage = reader.scan().stages[-1]
    assert (stage.name, stage.read, stage.kept) == ("tasks", 11, 7)
    lost = {why.split(",")[0].split(";")[0]: count for why, (count, _) in stage.dropped.items()}
    assert lost == {
        "there before the trace begins": 2,
        "its request is empty in every row": 1,
        "no SUBMIT in the files": 1,
    }
    tables = reader.scan()
    assert len(tables.servers) == 0
    assert tables.events is None
    assert set(tables.jobs["user"]) == {"u3", "u4", "u7", "u8", "u9"}
    report = str(reader.fidelity())
    for text in (
        "machine_events is not here",
        "1 rows were filled in by Google",
        "2 tasks were submitted more than once",
        "1 tasks gave another request later",
        "3 tasks are still there at the end",
    ):
        assert text in report
    assert tables.units["cpu"] == "NCU"


def test_a_row_is_named_by_its_part_and_line(tmp_path):
    reader = Google2011(write(tmp_path, "task_events", ROWS[:14], ROWS[14:]))
    (first,) = reader.scan().jobs.filter(name="4").select("part", "row").rows()
    assert first == (1, 1)
    dropped = reader.scan().stages[-1].dropped
    (why,) = [why for why in dropped if why.startswith("its request is empty")]
    assert why.endswith("the row is of part-00001-of-00500.csv.gz")
    assert dropped[why] == (1, 3)


def test_tasks_that_were_there_may_be_let_in(tmp_path):
    reader = Google2011(write(tmp_path, "task_events", ROWS), present="start")
    assert found(reader) == {"1": [(0.5, 0.25, 1, 0, 0, 210, "")], **EXPECTED}
    assert "1 tasks were there before" in str(reader.fidelity())


def test_a_window(tmp_path):
    """From second 36 to second 108: what ended before, began before, outlasts it, comes after."""
    write(tmp_path, "task_events", [task(1, 99, 0, SUBMIT), task(9, 99, 0, FINISH), *ROWS])
    reader = Google2011(tmp_path, begin=0.01, hours=0.02, present="start")
    rows = found(reader)
    assert rows["3"] == [(0.125, 0.25, 1, 0, None, 44, "KILL"), (0.5, 0.25, 2, 0, 0, 54, "FINISH")]
    assert rows["1"] == [(0.5, 0.25, 1, 0, 0, 72, "")]
    assert rows["4"] == [(0.0, 0.01, 1, 64, None, 64, "FAIL")]
    assert set(rows) == {"1", "3", "4"}
    reasons = {why.split(";")[0] for why in reader.scan().stages[-1].dropped}
    assert {"ended before the window", "submitted after the window"} < reasons
    inside = Google2011(tmp_path, begin=0.01, hours=0.02)
    assert set(found(inside)) == {"4"}


def test_a_window_reads_no_more_parts_than_it_needs(tmp_path):
    write(tmp_path, "task_events", ROWS[:15], ROWS[15:])
    assert len(Google2011(tmp_path, hours=0.02).scan().digests) == 1
    assert len(Google2011(tmp_path, hours=0.03).scan().digests) == 2
    with pytest.raises(TraceError, match="task_events"):
        Google2011(tmp_path, hours=1).scan()


def test_job_events_alone_say_when_but_not_what(tmp_path):
    events = (0, 1, SUBMIT), (10, 2, SUBMIT), (12, 2, SCHEDULE), (50, 2, KILL), (60, 3, SUBMIT)
    rows = [f"{stamp(s)},,{job},{code},u,2,n,l" for s, job, code in events]
    reader = Google2011(write(tmp_path, "job_events", rows))
    jobs = reader.scan().jobs
    assert "tasks" not in jobs.columns
    columns = ("name", "cpu", "mem", "created", "started", "deleted", "status")
    assert jobs.select(columns).rows() == [
        ("2", None, None, 10, 12, 50, "KILL"),
        ("3", None, None, 60, None, 60, ""),
    ]
    assert "task_events is not here" in str(reader.fidelity())


MACHINES = [
    machine(0, 1, ADD),
    machine(0, 2, ADD, "", ""),
    machine(0, 3, ADD, "1", "1"),
    machine(30, 1, REMOVE),
    machine(40, 2, UPDATE, "0.25", "0.5"),  # capacity given later
    machine(60, 1, ADD),
    machine(70, 3, UPDATE, "0.9", "1"),
    machine(80, 4, REMOVE),  # never added
    machine(90, 5, ADD, "", ""),  # capacity never given
    machine(100, 3, REMOVE),
    machine(100, 3, ADD),  # at one microsecond
    machine(205, 6, ADD, platform="q"),
    machine(9000, 7, ADD),  # after the tasks
]


def test_machines_by_hand(tmp_path):
    write(tmp_path, "task_events", ROWS)
    write(tmp_path, "machine_events", MACHINES)
    tables = Google2011(tmp_path).scan()
    assert tables.servers.select("row", "name", "model", "cpu", "mem", "gpu").rows() == [
        (1, "1", "", 0.5, 0.25, 0.0),
        (2, "2", "", 0.25, 0.5, 0.0),
        (3, "3", "", 1.0, 1.0, 0.0),
        (12, "6", "", 0.5, 0.25, 0.0),
    ]
    assert tables.events.select("time", "server", "up").rows() == [
        (0.0, "1", True),
        (0.0, "2", True),
        (0.0, "3", True),
        (30.0, "1", False),
        (60.0, "1", True),
        (205.0, "6", True),
    ]
    stage = tables.stages[-1]
    assert (stage.name, stage.read, stage.kept) == ("machines", 7, 4)
    assert {why.split(";")[0]: lost for why, lost in stage.dropped.items()} == {
        "never there during the window": (2, 8),
        "its capacity is empty in every row": (1, 9),
    }
    report = str(Google2011(tmp_path).fidelity())
    assert "2 platforms" in report
    assert "1 machines were given another" in report
    assert "4 servers" in report


def test_machines_in_a_window(tmp_path):
    write(tmp_path, "task_events", ROWS)
    write(tmp_path, "machine_events", MACHINES)
    tables = Google2011(tmp_path, begin=0.01, hours=0.02).scan()  # 36 s to 108 s
    assert tables.events.rows() == [(0.0, "2", True), (0.0, "3", True), (24.0, "1", True)]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (task(15, 77, 0, 9), "event is not a code from 0 to 8"),
        (task(15, 77, 0, SUBMIT, missing="3"), "missing_info does not look like one"),
        (task(15, 77, 0, SUBMIT) + ",1", "number of fields"),
        (task(15, 77, 0, SUBMIT, cpu="-0.1"), "cpu is negative"),
        (task(15, 77, 0, SUBMIT, mem="lots"), "mem is not a number"),
        (task(15, 77, "0.5", SUBMIT), "task is not a whole number"),
        (task(15, 77, "first", SUBMIT), "task is not a number"),
        ("5000,,77,0,,0,u,2,9,0.5,0.25,0.1,0", "before the trace begins"),
        (",,77,0,,0,u,2,9,0.5,0.25,0.1,0", "time is empty"),
        (
            "time,missing,job,task,machine,event,user,class,priority,cpu,mem,disk,differ",
            "time is not a number",
        ),
    ],
)
def test_bad_rows_are_counted_and_named(tmp_path, row, reason):
    write(tmp_path, "task_events", [*ROWS[:4], row, *ROWS[4:]])
    reader = Google2011(tmp_path)
    assert found(reader) == EXPECTED
    ((why, lost),) = reader.scan().stages[0].dropped.items()
    assert reason in why
    assert lost == (1, 5)
    with pytest.raises(TraceError, match=reason) as error:
        Google2011(tmp_path, strict=True).scan()
    assert (error.value.row, error.value.file.name) == (5, "part-00000-of-00500.csv.gz")


def test_whole_numbers_may_be_written_with_a_point(tmp_path):
    rows = [
        ",".join(f"{f}.0" if i in (0, 2, 3) else f for i, f in enumerate(row.split(",")))
        for row in ROWS[:-1]
    ]
    assert found(Google2011(write(tmp_path, "task_events", rows))) == EXPECTED


def test_a_missing_part_is_named(tmp_path):
    write(tmp_path, "task_events", ROWS[:5], ROWS[5:9], ROWS[9:])
    parts = sorted((tmp_path / "task_events").iterdir())
    middle = parts[1].read_bytes()
    parts[1].unlink()
    with pytest.raises(TraceError, match="part-00002"):
        Google2011(tmp_path).scan()
    parts[1].write_bytes(middle)
    parts[0].unlink()
    with pytest.raises(TraceError, match="part-00001"):
        Google2011(tmp_path).scan()


def test_a_part_cut_short_in_the_middle_is_refused_and_at_the_end_is_told(tmp_path):
    # Noise, so that the packed file is long enough to lose its end and keep most of its rows.
    rows = [
        task(1 + i, 10**6 + i * 7919 % 10**5, i, SUBMIT, f"0.{i * 7907 % 99991}")
        for i in range(3000)
    ]
    write(tmp_path, "task_events", rows, [task(4000, 5, 0, SUBMIT)])
    file, last = sorted((tmp_path / "task_events").iterdir())
    file.write_bytes(file.read_bytes()[:-2000])
    with pytest.raises(TraceError, match="short"):
        Google2011(tmp_path).scan()
    last.unlink()
    reader = Google2011(tmp_path)
    assert 0 < reader.scan().jobs["tasks"].sum() < 3000
    assert "CUT SHORT" in str(reader.fidelity())
    with pytest.raises(TraceError, match="cut short"):
        Google2011(tmp_path, strict=True).scan()


def test_rows_out_of_order_are_told(tmp_path):
    reader = Google2011(write(tmp_path, "task_events", ROWS[20:], ROWS[:20]))
    assert found(reader) == EXPECTED
    assert "rows are earlier than the row before them, the first is row" in str(reader.fidelity())
    inside = Google2011(write(tmp_path, "task_events", ROWS[:20], ROWS[20:]))
    assert "earlier than the row" not in str(inside.fidelity())


def test_what_cannot_be_used_is_said(tmp_path):
    with pytest.raises(TraceError, match="task_events"):
        Google2011(tmp_path).scan()
    with pytest.raises(TraceError, match="the 1"):
        Google2011(write(tmp_path, "task_events", ROWS[:1])).scan()
    for knobs in ({"hours": 0}, {"begin": -1}, {"present": "maybe"}, {"hours": float("nan")}):
        with pytest.raises(TraceError, match=next(iter(knobs))):
            Google2011(tmp_path, **knobs)
    write(tmp_path, "job_events", ["0,,1,0,u,3,n,l", "700000000,,2,0,u,1,n,l"])
    with pytest.raises(TraceError, match="begins"):
        open_trace(tmp_path, begin=1)


HISTORIES = st.lists(
    st.lists(
        st.tuples(st.integers(0, 6), st.sampled_from([0, 1, 2, 4, 5, 8])), min_size=1, max_size=6
    ),
    min_size=1,
    max_size=4,
)
SAME = ("name", "cpu", "mem", "tasks", "created", "started", "deleted", "status", "user")


def rows_of(histories):
    """Of tasks (job, index) = (number // 2, number % 2), in order of time."""
    rows = [(10 * s + 1, number, code) for number, one in enumerate(histories) for s, code in one]
    rows += [(1, 100, SUBMIT), (90, 100, FINISH)]  # something can be used, and the end is fixed
    return [
        (s, task(s, n // 2, n % 2, code, cpu=f"0.{1 + code}"))
        for s, n, code in sorted(rows, key=lambda row: row[0])
    ]


def by_columns(folder, *parts):
    return Google2011(write(folder, "task_events", *parts)).scan().jobs.select(SAME).rows()


@pytest.mark.full
@given(HISTORIES, st.randoms(use_true_random=False), st.integers(1, 50))
def test_neither_the_order_of_equal_times_nor_the_parts_matter(
    tmp_path_factory, histories, rng, cut
):
    rows = rows_of(histories)
    folder = tmp_path_factory.mktemp("a")
    expected = by_columns(folder, [row for _, row in rows])
    rng.shuffle(rows)
    rows.sort(key=lambda row: row[0])
    cut = 1 + cut % (len(rows) - 1)
    other = tmp_path_factory.mktemp("b")
    shuffled = by_columns(other, [row for _, row in rows[:cut]], [row for _, row in rows[cut:]])
    assert shuffled == expected


@pytest.mark.full
@given(HISTORIES, st.integers(0, 3), st.integers(1, 80), st.integers(0, 30))
def test_a_task_that_is_evicted_and_comes_again_is_never_lost(
    tmp_path_factory, histories, which, after, wait
):
    which %= len(histories)
    histories[which].insert(0, (0, SUBMIT))
    rows = rows_of(histories)
    before = by_columns(tmp_path_factory.mktemp("a"), [row for _, row in rows])
    more = [
        (1 + after, task(1 + after, which // 2, which % 2, EVICT)),
        (1 + after + wait, task(1 + after + wait, which // 2, which % 2, SUBMIT)),
    ]
    rows = sorted(rows + more, key=lambda row: row[0])
    later = by_columns(tmp_path_factory.mktemp("b"), [row for _, row in rows])
    assert [row[:5] for row in later] == [row[:5] for row in before]  # name to created


@pytest.mark.full
def test_the_published_part(traces):
    """Counted with the csv module, task by task, by walking through its events."""
    folder = traces / "google-2011"
    if not (folder / "task_events").is_dir():
        pytest.skip("the real traces here do not include google-2011's task_events")
    codes, missing, there = Counter(), Counter(), {}
    created, started, ended, request, again = {}, {}, {}, {}, Counter()
    rows = zero = late = 0
    previous = 0
    with gzip.open(folder / "task_events" / "part-00000-of-00500.csv.gz", "rt") as text:
        for row in csv.reader(text):
            time, key, code = int(row[0]), (row[2], int(row[3])), int(row[5])
            rows, zero = rows + 1, zero + (bool(row[9]) and float(row[9]) == 0)
            late += time < previous
            previous = time
            codes[code] += 1
            missing[row[1]] += 1
            if row[1]:
                assert row[9:12] == ["", "", ""]
            if row[9]:
                request.setdefault(key, (float(row[9]), float(row[10])))
            if code == SUBMIT:
                again[key] += 1
                created.setdefault(key, time)
                there[key] = True
            elif code == SCHEDULE:
                started.setdefault(key, time)
            elif code in (EVICT, FAIL, FINISH, KILL, LOST):
                there[key], ended[key] = False, time
    assert (rows, zero, late, missing["2"]) == (450_146, 1_533, 0, 291)
    arrived = [key for key, time in created.items() if time > 0]
    groups = defaultdict(list)
    for key in arrived:
        groups[key[0], *request[key]].append(key)
    expected = {}
    for name, keys in groups.items():
        runs = [started[key] for key in keys if key in started]
        expected[name] = (
            len(keys),
            min(created[key] for key in keys),
            min(runs, default=None),
            max(previous if there[key] else ended[key] for key in keys),
        )
    reader = Google2011(folder)
    jobs = reader.scan().jobs
    assert len(jobs) == len(expected) == 956
    for row in jobs.iter_rows(named=True):
        tasks, first, ran, last = expected[row["name"], row["cpu"], row["mem"]]
        assert row["tasks"] == tasks
        assert row["created"] == pytest.approx(first / 1e6 - 600, abs=1e-6)
        assert row["deleted"] == pytest.approx(last / 1e6 - 600, abs=1e-6)
        assert row["started"] == (None if ran is None else pytest.approx(ran / 1e6 - 600))
    stage = reader.scan().stages[-1]
    assert (stage.read, stage.kept) == (len(created), len(arrived)) == (190_926, 46_587)
    report = str(reader.fidelity())
    assert "291 rows were filled in by Google" in report
    assert f"{sum(again[key] > 1 for key in arrived)} tasks were submitted more than" in report
    assert f"{sum(there[key] for key in arrived)} tasks are still there" in report
    assert "earlier than the row" not in report
