"""Job events by hand, and the published files against counts made with the csv module alone."""

from __future__ import annotations

import csv
import gzip
from collections import defaultdict

import numpy as np
import pytest

from gangwise import ScenarioError, TraceError, UnknownName, create_policy, simulate
from gangwise.logs.formats.google import Google2011
from gangwise.papers.scenarios.approximation_jobs import GoogleScenario
from gangwise.papers.scenarios.opening import open_trace

SUBMIT, SCHEDULE, EVICT, FAIL, FINISH, KILL, LOST = range(7)
END = 2**63 - 1


def event(seconds, job, code, missing=""):
    """A row; seconds since the start of the trace, 0 and END as they are."""
    time = seconds if seconds in (0, END) else int((600 + seconds) * 1e6)
    return f"{time},{missing},{job},{code},user=,2,name=,logical="


# Window of an hour. What each job is for is beside it.
ROWS = [
    event(0, 1, SUBMIT),
    event(0, 1, SCHEDULE),  # there before
    event(10, 2, SUBMIT),
    event(11, 2, SCHEDULE),
    event(20, 3, SUBMIT),
    event(110, 2, FINISH),  # lasts 100 s
    event(120, 3, FAIL),
    event(121, 3, SUBMIT),
    event(320, 3, KILL),  # submitted again: 300 s
    event(400, 4, SUBMIT),
    event(400, 4, LOST),  # no time at all
    event(500, 5, FINISH),  # never submitted
    event(600, 6, SUBMIT, missing="2"),
    event(700, 6, EVICT),
    event(800, 6, SUBMIT),  # goes on
    event(900, 7, SUBMIT),
    event(3599, 8, SUBMIT),
    event(3601, 9, SUBMIT),  # after the window
    event(3700, 8, FINISH),  # outlasts it
    event(END, 7, FINISH),  # after the trace
]


def write(folder, *parts, first=0, pack=False):
    for number, rows in enumerate(parts, first):
        name = f"part-{number:05d}-of-00500.csv"
        text = "\n".join(rows) + "\n"
        if pack:
            (folder / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
        else:
            (folder / name).write_text(text)
    return folder


def played(folder, **settings):
    return GoogleScenario(folder=str(folder), **settings)


def spans(scenario):
    found = scenario.workload
    ends = zip(found.names, found.arrival.tolist(), found.end.tolist())
    return {job: (round(a, 6), round(end, 6)) for job, a, end in ends}


EXPECTED = {
    2: (10, 110),
    3: (20, 320),
    4: (400, 400),
    6: (600, 3600),
    7: (900, 3600),
    8: (3599, 3600),
}


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("cut", [None, 5])
def test_lifetimes_by_hand(tmp_path, cut, pack):
    parts = [ROWS] if cut is None else [ROWS[:cut], ROWS[cut:]]
    trace = played(write(tmp_path, *parts, pack=pack), hours=1)
    assert spans(trace) == EXPECTED
    jobs = trace.fidelity().stages[-1]
    assert (jobs.name, jobs.read, jobs.kept) == ("jobs", 9, 6)
    by_reason = {why.split(",")[0]: count for why, (count, _) in jobs.dropped.items()}
    assert by_reason == {
        "there before the trace begins": 1,
        "no SUBMIT in the files": 1,
        "submitted after the window; the row is of "
        + f"part-0000{0 if cut is None else 1}-of-00500.csv{'.gz' if pack else ''}": 1,
    }
    report = str(trace.fidelity())
    assert "3 jobs are still there" in report
    assert "1 rows were filled in by Google" in report


def test_jobs_that_were_there_may_be_let_in(tmp_path):
    trace = played(write(tmp_path, ROWS), hours=1, present="start")
    assert spans(trace) == {1: (0, 3600), **EXPECTED}


def test_rows_out_of_order_are_put_in_order_and_told(tmp_path):
    # Job 4 begins and ends in one microsecond: which comes first, only the order of rows can tell.
    rows = [row for row in ROWS if ",4,0,user" not in row and ",4,6,user" not in row]
    shuffled = [rows[i] for i in np.random.default_rng(0).permutation(len(rows))]
    trace = played(write(tmp_path, shuffled), hours=1)
    assert spans(trace) == {job: span for job, span in EXPECTED.items() if job != 4}
    assert "earlier than the row before them" in str(trace.fidelity())
    (tmp_path / "sorted").mkdir()
    inside = played(write(tmp_path / "sorted", ROWS), hours=1)
    assert "earlier than the row" not in str(inside.fidelity())


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("700000000,,77,0,u,1,n", "number of fields"),
        ("soon,,77,0,u,1,n,l", "time is not a number"),
        ("-5,,77,0,u,1,n,l", "time is negative"),
        ("700000000,,77,9,u,1,n,l", "event is not a code"),
        ("700000000,3,77,0,u,1,n,l", "missing_info"),
        ("700000000,,,0,u,1,n,l", "job is empty"),
        ("5000,,77,0,u,1,n,l", "before the trace begins"),
        ("", "the line is empty"),
    ],
)
def test_bad_rows_are_counted_and_named(tmp_path, row, reason):
    write(tmp_path, [*ROWS[:4], row, *ROWS[4:]])
    trace = played(tmp_path, hours=1)
    assert spans(trace) == EXPECTED
    ((why, (count, line)),) = trace.fidelity().stages[0].dropped.items()
    assert reason in why
    assert (count, line) == (1, 5)
    with pytest.raises(TraceError, match=r"row 5: .*" + reason) as error:
        played(tmp_path, hours=1, strict=True)
    assert error.value.row == 5
    assert error.value.file == tmp_path / "part-00000-of-00500.csv"


def test_a_missing_part_is_an_error_where_it_matters(tmp_path):
    write(tmp_path, ROWS[:6])
    write(tmp_path, ROWS[6:], first=2)
    with pytest.raises(TraceError, match="00001"):
        played(tmp_path, hours=1)
    (tmp_path / "part-00002-of-00500.csv").unlink()
    assert set(spans(played(tmp_path, hours=0.03))) == {2, 3}
    with pytest.raises(TraceError, match=r"0\.03"):
        played(tmp_path, hours=1)
    (tmp_path / "late").mkdir()
    write(tmp_path / "late", ROWS, first=1)
    with pytest.raises(TraceError, match="00000"):
        played(tmp_path / "late", hours=1)


def test_files_that_cannot_be_used(tmp_path):
    with pytest.raises(TraceError, match="such"):
        played(tmp_path / "nowhere")
    with pytest.raises(TraceError, match="job_events"):
        played(tmp_path)
    write(tmp_path, ROWS)
    with pytest.raises(TraceError, match="of 10"):
        played(tmp_path)
    packed = write(tmp_path, ROWS, pack=True) / "part-00000-of-00500.csv.gz"
    with pytest.raises(TraceError, match="twice"):
        played(tmp_path, hours=1)
    (tmp_path / "part-00000-of-00500.csv").unlink()
    packed.write_bytes(packed.read_bytes()[:-40])
    with pytest.raises(TraceError, match="cut short"):
        played(tmp_path, hours=1, strict=True)
    packed.unlink()
    tasks = [row + ",1,2,3,4,5" for row in ROWS]
    with pytest.raises(TraceError, match="job_events"):
        played(write(tmp_path, tasks), hours=1)
    assert not Google2011.recognise(tmp_path)
    for hours in (0, "ten", float("inf")):
        with pytest.raises(TraceError, match="hours"):
            Google2011(tmp_path, hours=hours)
    with pytest.raises(TraceError, match="present"):
        Google2011(tmp_path, present="maybe")


def test_the_scenario_plays_it(tmp_path):
    """Slots of 36 s: a job of 10 s to 110 s arrives in slot 0; its deadline is slot 4."""
    (tmp_path / "job_events").mkdir()
    write(tmp_path / "job_events", ROWS)
    scenario = open_trace(tmp_path, hours=1, machines=5, slots=100)
    assert scenario.name == "opm-google-v1"
    jobs = scenario.workload.jobs(np.random.default_rng(0))
    assert {job.id: (job.arrival, job.deadline) for job in jobs} == {
        2: (0, 4),
        3: (0, 9),
        4: (11, 12),
        6: (16, 100),
        7: (25, 100),
        8: (99, 100),
    }
    for job in jobs:
        assert 2 * 0.005 <= job.pace <= 100 * 0.005
        assert 1 <= job.utility.v <= 5
    run = simulate(scenario.instance(0), create_policy("fair"), 100, 0)
    expected = [sum(j.arrival <= t < j.deadline for j in jobs) for t in range(100)]
    assert run.metrics["jobs"].tolist() == expected
    half = open_trace(tmp_path, hours=1, machines=5, slots=100, keep=0.5)
    kept = half.workload.jobs(np.random.default_rng(0))
    assert 0 < len(kept) < len(jobs)
    assert set(kept) <= set(jobs)
    assert "thinned" in str(half.fidelity())
    assert scenario.describe()["files"].keys() == {"part-00000-of-00500.csv"}


def test_settings_of_the_scenario_are_checked(tmp_path):
    with pytest.raises(ScenarioError, match="folder"):
        GoogleScenario()
    with pytest.raises(UnknownName, match="machines"):
        open_trace(write(tmp_path, ROWS), hours=1, machine=5)
    with pytest.raises(ScenarioError, match="q is"):
        open_trace(tmp_path, hours=1, q=(5, 2))


def test_the_published_files(traces):
    folder = traces / "google-2011"
    if not (folder / "job_events").is_dir():
        pytest.skip("the real traces here do not include google-2011")
    events, rows = defaultdict(list), 0
    for file in sorted((folder / "job_events").glob("part-*.csv.gz")):
        with gzip.open(file, "rt", newline="") as text:
            for row in csv.reader(text):
                events[row[2]].append((int(row[0]), int(row[3])))
                rows += 1
    end = 36_600 * 10**6
    expected, before = {}, 0
    for job, what in events.items():
        submitted = [time for time, code in what if code == SUBMIT]
        if not submitted or submitted[0] > end:
            continue
        if submitted[0] == 0:
            before += 1
            continue
        seen = [(time, code) for time, code in what if time <= end and code not in (1, 7, 8)]
        last = end if seen[-1][1] == SUBMIT else seen[-1][0]
        expected[int(job)] = (submitted[0] / 1e6 - 600, last / 1e6 - 600)
    assert rows == 39_435
    trace = played(folder)
    assert Google2011.recognise(folder)
    found = trace.workload
    assert len(found.names) == len(expected) == 7787
    assert before == 3986
    for job, a, last in zip(found.names, found.arrival.tolist(), found.end.tolist()):
        assert (a, last) == pytest.approx(expected[job], abs=1e-6)
    assert (np.diff(found.arrival) >= 0).all()
    a, d = open_trace(folder).workload.span
    assert (d > a).all()
    assert d.max() == 50_000
    assert np.median(d - a) == pytest.approx(210, abs=2)
