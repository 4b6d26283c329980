"""Arrivals, deadlines and outages out of tables, by hand and by looking at every second."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangwise import ScenarioError, TraceError, create_policy, create_scenario, simulate
from gangwise.papers.approximation_jobs.environment import ApproximationInstance, Outage
from gangwise.papers.approximation_jobs.problem import ApproximationProblem, IidRates, PoissonJobs
from gangwise.papers.scenarios.approximation_jobs import JobsTraceScenario
from gangwise.papers.scenarios.opening import open_trace

from . import test_google_2011_tasks as google
from .made import tables

JOBS = [
    ("a", 1, 1, 0, 0, 30),
    ("b", 1, 1, 0, 30, 60),
    ("c", 1, 1, 0, 70, 400),
    ("d", 1, 1, 0, 130, 190),
]
SERVERS = [(f"m{n}", "", 1, 1, 0) for n in range(1, 6)]
EVENTS = [
    (25.0, "m1", False),
    (41.0, "m1", True),
    (45.0, "m1", True),
    (50.0, "m2", True),
    (100.0, "m3", False),
    (200.0, "m5", False),
    (5.0, "gone", False),
]
KNOBS = {"skip": 0, "slots": 13}


def scenario(trace, **knobs):
    return JobsTraceScenario(trace, **{**KNOBS, **knobs})


def spans(s):
    a, d = s.workload.span
    return dict(zip(s.workload.names, zip(a.tolist(), d.tolist())))


def noted(s, text):
    return any(text in note for note in s.fidelity().notes)


def test_spans_by_hand():
    s = scenario(tables(JOBS, SERVERS))  # 130 s in slots of 10 s
    assert spans(s) == {"a": (0, 3), "b": (3, 6), "c": (7, 13), "d": (12, 13)}
    assert noted(s, "2 jobs are still there at the end of the window; they end with it")
    assert noted(s, "the trace does not tell when machines come and go")
    assert (s.slots, s.instance(0).problem.M) == (13, 5)
    jobs = s.workload.jobs(np.random.default_rng(3))
    assert [(j.id, j.arrival, j.deadline) for j in jobs] == [
        ("a", 0, 3),
        ("b", 3, 6),
        ("c", 7, 13),
        ("d", 12, 13),
    ]
    assert all(2 * 5 / 1000 <= j.budget / (j.deadline - j.arrival) <= 100 * 5 / 1000 for j in jobs)
    assert simulate(s.instance(0), create_policy("fair"), slots=13, seed=0).slots == 13


def test_the_window_and_its_slots_are_knobs():
    given = tables(JOBS, SERVERS)
    s = scenario(given, skip=0.25, hours=40 / 3600, slots=4)  # 30 s to 70 s
    assert spans(s) == {"b": (0, 3), "c": (3, 4)}
    why = {"created before the window, 30 s": (1, 1), "created after the window, 70 s": (1, 4)}
    assert s.fidelity().stages[-1].dropped == why
    s = scenario(given, slot="30s")  # 0 s to 150 s
    assert (s.slots, spans(s)) == (5, {"a": (0, 1), "b": (1, 2), "c": (2, 5), "d": (4, 5)})
    with pytest.raises(TraceError, match="longer"):
        scenario(given, hours=10_000, slot=1)


def test_rows_of_a_job_are_one_job():
    s = scenario(tables(JOBS, SERVERS, job=["x", "x", "y", "y"]), slots=7)  # 70 s, 10 s each
    assert spans(s) == {"x": (0, 6), "y": (6, 7)}
    assert noted(s, "4 rows are of 2 jobs, each there from its first creation on")


def test_equal_names_are_numbered():
    s = scenario(tables([("a", *JOBS[0][1:]), ("a", *JOBS[2][1:])], SERVERS), slots=7)
    assert spans(s) == {0: (0, 3), 1: (6, 7)}
    assert noted(s, "jobs are numbered by arrival")


def test_unknown_times_are_left_out_and_requests_need_not_be_known():
    jobs = [*JOBS, ("e", None, None, None, 0, None), ("f", None, None, None, 10, 20)]
    s = scenario(tables(jobs, SERVERS))
    assert spans(s)["f"] == (1, 2)
    assert s.fidelity().stages[-2].dropped == {"one of its times is not known": (1, 5)}
    with pytest.raises(TraceError, match="times"):
        scenario(tables(jobs[4:5], SERVERS))
    with pytest.raises(TraceError, match="no jobs"):
        scenario(tables([], SERVERS))


def test_machines_must_be_known_or_stated():
    with pytest.raises(TraceError, match="set machines"):
        scenario(tables(JOBS))
    assert scenario(tables(JOBS), machines=7).instance(0).problem.M == 7
    assert noted(scenario(tables(JOBS, SERVERS), machines=2), "2 machines, and not the 5 servers")
    with pytest.raises(ScenarioError, match=r"q is \(3"):
        scenario(tables(JOBS, SERVERS), q=(3, 2))


def test_machines_that_come_and_go_by_hand():
    s = scenario(tables(JOBS, SERVERS, events=EVENTS))
    assert s.outages == (Outage(0, 2, 5), Outage(1, 0, 5), Outage(2, 10, 13))
    assert noted(s, "3 machines are away at times, 3 times in all, 16.9 % of all machine slots")
    assert s.describe() != scenario(tables(JOBS, SERVERS)).describe()
    there = [s.instance(0).available(t).tolist() for t in (0, 2, 5, 12)]
    assert there == [
        [True, False, True, True, True],
        [False, False, True, True, True],
        [True] * 5,
        [True, True, False, True, True],
    ]


@given(
    st.lists(st.tuples(st.integers(0, 160), st.booleans()), max_size=8), st.sampled_from([0, 0.25])
)
def test_a_machine_is_away_in_slots_in_which_it_is_down_for_a_second(log, skip):
    log = sorted(dict(log).items())
    events = [(float(time), "m1", up) for time, up in log] or [(0.0, "m2", True)]
    s = scenario(tables(JOBS, SERVERS, events=events), skip=skip, hours=100 / 3600, slots=10)
    start = 0 if skip == 0 else 30
    up, state = [], not log or not log[0][1]  # before its first event: the contrary of it
    for second in range(200):
        state = dict(log).get(second, state)
        up.append(state)
    instance = s.instance(0)
    for t in range(10):
        seconds = range(start + 10 * t, start + 10 * t + 10)
        assert instance.available(t)[0] == all(up[second] for second in seconds)


def test_availability_over_many_outages_is_that_of_each():
    rng = np.random.default_rng(2)
    outages = tuple(
        Outage(int(m), int(f), int(f + n))
        for m, f, n in zip(rng.integers(0, 9, 40), rng.integers(0, 50, 40), rng.integers(1, 9, 40))
    )
    problem = ApproximationProblem(np.ones(9))
    instance = ApproximationInstance(
        problem, IidRates(np.full(9, 0.5)), PoissonJobs(0.1), outages=outages
    )
    for t in range(60):
        away = {o.machine for o in outages if o.first <= t < o.back}
        assert set(np.flatnonzero(~instance.available(t)).tolist()) == away


def test_task_events_of_google_become_jobs_with_machines_that_go(tmp_path):
    rows = [
        google.task(10, 3, 0, google.SUBMIT),
        google.task(20, 3, 1, google.SUBMIT),
        google.task(20, 3, 0, google.SCHEDULE),
        google.task(30, 3, 1, google.SCHEDULE),
        google.task(60, 3, 0, google.FINISH),
        google.task(90, 3, 1, google.KILL),
        google.task(110, 4, 0, google.SUBMIT),
        google.task(112, 4, 0, google.SCHEDULE),
        google.task(115, 4, 0, google.FAIL),
    ]
    google.write(tmp_path, "task_events", rows)
    google.write(
        tmp_path,
        "machine_events",
        [
            google.machine(0, 7, google.ADD),
            google.machine(0, 8, google.ADD),
            google.machine(30, 8, google.REMOVE),
            google.machine(70, 8, google.ADD),
        ],
    )
    s = open_trace(tmp_path, skip=0, slots=10)  # 10 s to 110 s
    assert (s.family, s.name) == ("approximation_jobs", "trace-google-2011-jobs-v2")
    assert spans(s) == {"3": (0, 7), "4": (9, 10)}  # without the 10 s that it waited
    assert s.outages == (Outage(1, 2, 6),)


def test_the_google_scenario_is_what_it_was_and_its_description_has_no_path(traces):
    folder = traces / "google-2011"
    s = create_scenario(
        "opm-google-v1",
        folder=str(folder),
        hours=2,
        machines=50,
        slots=3000,
        present="start",
        pricing="realised",
    )
    assert str(folder) not in json.dumps(s.describe())
    assert len(s.describe()["files"]) > 1
    jobs = s.workload.jobs(np.random.default_rng(0))
    assert len(jobs) == 5366  # counted before other traces could be played like this
    other = open_trace(
        folder, hours=2, present="start", machines=50, slots=3000, pricing="realised"
    )
    assert other.describe() == s.describe()
