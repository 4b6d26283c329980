"""Steps that other formats than gpu-v2023 need, against numbers worked out by hand."""

from __future__ import annotations

import json

import pytest

from gangwise import ScenarioError, TraceError, UnknownName, create_policy, simulate
from gangwise.papers.scenarios.opening import TraceScenario, open_trace

from .csvs import pod, write
from .made import tables

# name, cpu, mem, gpu, created, deleted; slots of a minute
JOBS = [
    ("a", 0.5, 0.25, 0, 0, 30),
    ("b", 0.5, 0.25, 0, 30, 60),
    ("c", 0.125, 0.5, 0, 70, 400),
    ("d", 0.5, 0.25, 0, 130, 190),
]
TWO = [("m1", "", 1, 1, 0), ("m2", "", 0.5, 0.25, 0)]
NORMALISED = {"cpu": "NCU", "mem": "NMU", "gpu": "GPUs"}
KNOBS = {"slot": "1m", "skip": 0, "keep": 1}


def scenario(given, **knobs):
    return TraceScenario(given, **{**KNOBS, **knobs})


def dropped(s):
    return {why: lost for stage in s.fidelity().stages for why, lost in stage.dropped.items()}


def noted(s, text):
    return any(text in note for note in s.fidelity().notes)


def test_normalised_units_and_no_gpus_at_all():
    s = scenario(tables(JOBS, TWO, units=NORMALISED), units="raw", arrivals="indicator")
    assert s.counts.tolist() == [[1, 0], [0, 1], [1, 0]]
    problem = s.instance(0).base
    assert problem.cluster.devices == ("cpu", "mem")
    assert problem.requests.tolist() == [[0.5, 0.25], [0.125, 0.5]]
    assert s.mask.tolist() == [[True, True], [True, False]]
    assert s.demand.lifetime.tolist() == [30, 330]  # medians of 30, 30, 60 and of 330
    assert simulate(s.instance(0), create_policy("drf"), slots=9, seed=0).slots == 9


def test_a_row_of_several_tasks_is_one_job_or_each_of_its_tasks():
    given = tables(JOBS, TWO, tasks=[3, 1, 2, 1])
    one = scenario(given, tasks="one")
    assert one.counts.tolist() == [[2, 0], [0, 1], [1, 0]]
    why = "of a row with several tasks, which counts as one job (tasks = one)"
    assert dropped(one) == {why: (3, 1)}
    each = scenario(given, most_jobs=3)
    assert each.counts.tolist() == [[3, 0], [0, 2], [1, 0]]
    why = "more than 3 of its job type in the slot (arrivals = multiple)"
    assert dropped(each) == {why: (1, 1)}
    assert noted(each, "2 of 4 rows ask for several equal tasks; each task is a job, 7 in all")
    assert each.fidelity().jobs == 6
    assert scenario(given).counts.tolist() == [[4, 0], [0, 2], [1, 0]]  # as many as come


def test_one_server_is_a_pool_that_holds_rows_whole():
    given = tables(JOBS, TWO[:1], tasks=[2, 1, 2, 1])
    whole = scenario(given)
    assert whole.grouping.requests.tolist() == [[0.5, 0.25, 0], [0.25, 1, 0], [1, 0.5, 0]]
    assert whole.counts.tolist() == [[1, 0, 1], [0, 1, 0], [1, 0, 0]]
    assert noted(whole, "2 of 4 rows ask for several equal tasks; such a row is one job")
    apart = scenario(given, tasks="each")
    assert apart.counts.sum() == 6


def test_tasks_rank_requests():
    jobs = [("a", 1, 1, 0, 0, 9), ("b", 1, 1, 0, 0, 9), ("c", 4, 1, 0, 0, 9)]
    given = tables(jobs, [("m", "", 8, 8, 0)], tasks=[1, 1, 9])
    assert scenario(given, job_types=1).grouping.names == ("1cpu-1mem",)
    assert scenario(given, job_types=1, tasks="each").grouping.names == ("4cpu-1mem",)


def test_without_servers_they_must_be_stated():
    given = tables(JOBS, units=NORMALISED)
    with pytest.raises(
        TraceError,
        match=r"do not say which .*: set machines .* shape, .* in NCU, "
        r"NMU, GPUs.* any job is \(0.5, 0.5, 0\)",
    ):
        scenario(given)
    for half in ({"machines": 3}, {"shape": (1, 1, 0)}):
        with pytest.raises(TraceError, match="set machines"):
            scenario(given, **half)
    s = scenario(given, machines=11, shape=(1, 1, 0))
    assert s.demand.servers["name"].to_list()[::10] == ["machine-00", "machine-10"]
    assert s.mask.all()
    assert s.mask.shape == (2, 11)
    assert noted(s, "11 equal servers are stated")
    with pytest.raises(ScenarioError, match="positive"):
        scenario(given, machines=3, shape=(0, 0, 0))


def test_stated_servers_replace_those_of_the_trace_and_may_have_a_model():
    jobs = [("a", 1, 1, 1, 0, 9), ("b", 1, 1, 0, 0, 9)]
    given = tables(jobs, TWO, models=["T4|V100", ""])
    with pytest.raises(TraceError, match="servers"):
        scenario(tables(jobs[:1], TWO, models=["T4"]))
    s = scenario(given, machines=2, shape=(8, 8, 2), model="V100")
    assert s.counts.tolist() == [[1, 1]]
    assert noted(s, "2 equal servers are stated (machines, shape); the 2 of the trace are not used")
    assert scenario(given, machines=2, shape=(8, 8, 2)).counts.tolist() == [[1]]  # of no model


def test_what_is_not_known_is_left_out_and_counted():
    jobs = [
        *JOBS,
        ("e", None, 0.5, 0, 0, 9),
        ("f", 0.5, None, 0, 0, 9),
        ("g", 1, 1, 0, None, 9),
        ("h", 0, 0, 0, 0, 9),
    ]
    s = scenario(tables(jobs, TWO))
    assert s.counts.tolist() == scenario(tables(JOBS, TWO)).counts.tolist()
    assert {why: lost for why, lost in dropped(s).items() if "more than" not in why} == {
        "its request of cpu is not known": (1, 5),
        "its request of mem is not known": (1, 6),
        "it is not known when it was created": (1, 7),
        "it requests nothing": (1, 8),
    }
    with pytest.raises(TraceError, match=r"\(1"):
        scenario(tables(jobs[4:5], TWO))


def test_rows_of_one_job_and_servers_that_go_are_told():
    given = tables(JOBS, TWO, events=[(10.0, "m1", False)], job=["x", "x", "y", "y"])
    s = scenario(given)
    assert noted(s, "4 requests are of 2 jobs; in this family each of them is a job of its own")
    assert noted(s, "the trace tells 1 times that a server comes or goes; in this family")


def test_a_description_has_digests_and_no_paths_and_knows_what_the_reader_did(tmp_path):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        write(tmp_path / folder, [pod("a"), pod("b", cpu="x")])
    folders = tmp_path / "one", tmp_path / "two"
    first, second = (open_trace(folder, slot="1m").describe() for folder in folders)
    assert first == second
    assert str(tmp_path) not in json.dumps(first)
    assert set(first["files"]) == {"nodes.csv", "pods.csv"}
    given = tables(JOBS, TWO)
    fewer = tables(JOBS[:3], TWO)  # the same files, read with other arguments
    assert scenario(given).describe() != scenario(fewer).describe()


def test_families_by_name(tmp_path):
    path = write(tmp_path, [pod("a")])
    assert open_trace(path, family="gain_overhead").family == "gain_overhead"
    assert open_trace(path, family="approximation_jobs").family == "approximation_jobs"
    with pytest.raises(UnknownName, match="gain_overhead"):
        open_trace(path, family="gain-overhead")
