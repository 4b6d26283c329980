"""cluster-trace-v2018: rows written from its schema, hostile ones, and the real sample."""

from __future__ import annotations

import csv
import gzip
import re
from collections import defaultdict

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gangwise import TraceError
from gangwise.logs.format import recognise
from gangwise.logs.formats import alibaba_v2018
from gangwise.logs.formats.alibaba_v2018 import AlibabaV2018, Dag
from gangwise.logs.formats.tabular import reader
from gangwise.papers.scenarios.opening import open_trace

MACHINES = """m_1,0,1,a,96,100,USING
m_2,0,1,b,96,100,USING
m_1,50,1,a,64,80,USING
m_2,60,1,b,96,100,IMPORT_INSTALLING
m_2,90,1,b,96,90,USING
m_3,70,2,a,96,100,USING
m_4,80,2,a,96,100,IMPORT_INSTALLING
"""
CONTAINERS = """c_1,m_1,0,app_1,started,400,800,1.5
c_2,m_1,0,app_1,started,100,100,0.5
c_1,m_1,40,app_1,started,600,800,1.5
c_2,m_1,70,app_1,stopped,100,100,0.5
c_3,m_2,90,app_2,allocated,0,100,0
c_4,m_2,200,app_2,started,800,800,3
"""
CUT = "J9_1_2_3_4_5_6_7_8_10_11_12_13_14_15_16_17_18_19_2"
OPEN = "J9_1_2_3_4_5_6_7_8_10_11_12_13_14_15_16_17_18_100_"
assert len(CUT) == len(OPEN) == 50


def task(
    name="M1",
    count="1",
    job="j_1",
    status="Terminated",
    start="100",
    end="160",
    cpu="50",
    mem="0.5",
) -> str:
    return f"{name},{count},{job},1,{status},{start},{end},{cpu},{mem}"


def tasks_in(folder, *rows, **knobs) -> AlibabaV2018:
    (folder / "batch_task.csv").write_text("\n".join(rows) + "\n")
    return AlibabaV2018(folder, **knobs)


def after(reader) -> dict[str, str]:
    return dict(reader.scan().jobs.select("name", "after").rows())


def dropped(reader) -> dict[str, tuple[int, int]]:
    return {why: tuple(count) for s in reader.scan().stages for why, count in s.dropped.items()}


def test_machines_are_what_their_last_using_row_says(tmp_path):
    (tmp_path / "machine_meta.csv").write_text(MACHINES)
    tables = tasks_in(tmp_path, task()).scan()
    assert tables.servers.select("row", "name", "cpu", "mem", "gpu").rows() == [
        (3, "m_1", 64, 80, 0),
        (5, "m_2", 96, 90, 0),
        (6, "m_3", 96, 100, 0),
    ]
    assert tables.events.rows() == [(60, "m_2", False), (70, "m_3", True), (90, "m_2", True)]
    assert tables.stages[1][1:] == (4, 3, {"never USING": (1, 7)})
    assert tables.units["mem"] == "% of max"


def test_tasks_by_hand(tmp_path):
    reader = tasks_in(
        tmp_path,
        task("J3_1_2", "4", start="150", end="150", cpu="200", mem="1.25"),
        task("M1"),
        task("R2_1", end="150"),
        task("task_Nzg3", job="j_2"),
        task("MergeTask", job="j_2"),
    )
    tables = reader.scan()
    assert tables.servers.is_empty()
    assert tables.jobs.select(
        "row", "name", "job", "tasks", "cpu", "mem", "created", "deleted", "after", "status"
    ).rows() == [
        (1, "J3_1_2", "j_1", 4, 2, 1.25, 150, 150, "M1|R2_1", "Terminated"),
        (2, "M1", "j_1", 1, 0.5, 0.5, 100, 160, "", "Terminated"),
        (3, "R2_1", "j_1", 1, 0.5, 0.5, 100, 150, "M1", "Terminated"),
        (4, "task_Nzg3", "j_2", 1, 0.5, 0.5, 100, 160, "", "Terminated"),
        (5, "MergeTask", "j_2", 1, 0.5, 0.5, 100, 160, "", "Terminated"),
    ]
    said = " / ".join(tables.notes)
    assert "2 jobs with 5 tasks, 3 of them with precedence in their names; 3 edges" in said
    assert "at most 3 tasks one after the other" in said
    assert "in 2 of 3 edges the child starts before the parent ends" in said  # both wait for M1
    assert "1 tasks start and end in the same second" in said
    assert "critical path takes 110 s" in said  # M1 60, R2_1 50, J3_1_2 0
    assert "1 names tell no precedence" in said
    assert "cut" not in said


def test_a_parent_may_have_the_higher_number_and_letters_mean_nothing(tmp_path):
    assert after(tasks_in(tmp_path, task("X1_7"), task("M7_30"), task("abc30"))) == {
        "X1_7": "M7_30",
        "M7_30": "abc30",
        "abc30": "",
    }


def test_cut_names_lose_the_doubtful_last_parent_only(tmp_path):
    rows = [task(f"M{n}") for n in (*range(1, 9), *range(10, 20), 2000, 100)]
    reader = tasks_in(tmp_path, *rows, task(CUT), task(OPEN.replace("J9", "J5")), task("R300_100_"))
    found, notes = after(reader), " / ".join(reader.scan().notes)
    complete = [*range(1, 9), *range(10, 20)]
    assert found[CUT].split("|") == [f"M{n}" for n in complete]  # the last, 2, is in doubt
    # J5 waits for task 5, whose number it has itself too, so for itself: it is on a circle.
    assert OPEN.replace("J9", "J5") not in found
    assert found["R300_100_"] == "M100"
    assert "1 last parents of cut names may be parts of numbers" in notes
    assert "2 names may be cut at 50 characters" in notes
    ended = tasks_in(tmp_path, *rows, task(OPEN))
    assert after(ended)[OPEN].split("|") == [f"M{n}" for n in (*complete[:-1], 100)]
    assert not any("last parents" in note for note in ended.scan().notes)


def test_parents_that_are_missing_or_left_out_are_told_apart(tmp_path):
    reader = tasks_in(
        tmp_path, task("M1", status="Failed"), task("R2_1"), task("R3_2_8"), task("M8", job="j_2")
    )
    assert after(reader) == {"R2_1": "", "R3_2_8": "R2_1", "M8": ""}
    notes = reader.scan().notes
    assert "1 parents are not among the tasks of their job" in notes
    assert "1 parents were left out as above, so that nothing waits for them" in notes
    assert dropped(reader) == {"status is Failed": (1, 1)}


def test_tasks_on_a_circle_are_left_out_with_job_and_row(tmp_path):
    rows = [
        task("M9"),
        task("M1_2", job="j_7"),
        task("M2_1", job="j_7"),
        task("R3_2", job="j_7"),
        task("M4_4", job="j_8"),
    ]
    reader = tasks_in(tmp_path, *rows)
    assert after(reader) == {"M9": "", "R3_2": ""}
    assert dropped(reader) == {"it waits for itself": (3, 2)}
    message = "task M1_2 of job j_7, row 2, waits for itself"
    assert any(message in note for note in reader.scan().notes)
    with pytest.raises(TraceError, match=message) as caught:
        tasks_in(tmp_path, *rows, strict=True).scan()
    assert caught.value.row == 2


LEFT_OUT = [
    (
        task("R2", status="Waiting", count="", start="0", end="0", cpu="", mem=""),
        "status is Waiting",
    ),
    (task("R2", status="Running", end="0"), "status is Running"),
    (task("R2", count=""), "instance_num is empty"),
    (task("R2", cpu=""), "plan_cpu is empty"),
    (task("R2", mem=""), "plan_mem is empty"),
    (task("R2", start="0"), "start_time is 0 or empty: outside the trace"),
    (task("R2", start=""), "start_time is 0 or empty: outside the trace"),
    (task("R2", end="0"), "end_time is 0 or empty: outside the trace"),
    (task("R2", count="0"), "instance_num is 0"),
    (task("R2", cpu="0", mem="0"), "it requests nothing at all"),
    (task("M1"), "its job has a task of this name already"),
]
BAD = [
    (task("R2", end="99"), "end_time is before start_time"),
    (task("R2", count="1.5"), "instance_num is not a whole number"),
    (task("R2", count="x"), "instance_num is not a number"),
    (task("R2", mem="101"), "plan_mem is larger than 100"),
    (task("R2", cpu="-1"), "plan_cpu is negative"),
    (task(""), "task_name is empty"),
    (task("R2", job="7"), "job_name does not look like one"),
    (task("R2") + ",", "the number of fields is not that of the columns"),
]


@pytest.mark.parametrize(("row", "reason"), LEFT_OUT + BAD)
def test_what_cannot_be_used_is_left_out_and_counted(tmp_path, row, reason):
    reader = tasks_in(tmp_path, task("M1"), row, task("R3_1"))
    assert after(reader) == {"M1": "", "R3_1": "M1"}
    assert dropped(reader) == {reason: (1, 2)}


@pytest.mark.parametrize(("row", "reason"), BAD)
def test_strict_stops_at_a_bad_row(tmp_path, row, reason):
    with pytest.raises(TraceError, match=reason) as caught:
        tasks_in(tmp_path, task("M1"), row, task("R3_1"), strict=True).scan()
    assert caught.value.row == 2


def test_statuses_are_a_knob(tmp_path):
    rows = [task("M1"), task("R2_1", status="Failed"), task("R3_2", status="Running")]
    for statuses in (("Terminated", "Failed"), "Terminated, Failed", "Terminated|Failed"):
        reader = tasks_in(tmp_path, *rows, statuses=statuses)
        assert after(reader) == {"M1": "", "R2_1": "M1"}
        assert dropped(reader) == {"status is Running": (1, 3)}
    with pytest.raises(TraceError, match=r"\(1"):
        tasks_in(tmp_path, *rows, statuses=("Cancelled",)).scan()


def test_containers_are_another_workload(tmp_path):
    (tmp_path / "container_meta.csv").write_text(CONTAINERS)
    reader = tasks_in(tmp_path, task("M1"), workload="containers")
    columns = ("row", "name", "cpu", "mem", "tasks", "created", "deleted", "status")
    assert reader.scan().jobs.select(columns).rows() == [
        (1, "c_1", 4, 1.5, 1, 0, 200, "started"),
        (2, "c_2", 1, 0.5, 1, 0, 70, "stopped"),
        (6, "c_4", 8, 3, 1, 200, 200, "started"),
    ]
    assert dropped(reader) == {"it requests nothing at all": (1, 5)}
    notes = reader.scan().notes
    assert notes[0].startswith("2 of 3 containers are there from time 0 on; 2 do not end")
    assert notes[1] == "1 containers change their request; the first one is used"
    both = AlibabaV2018(tmp_path, workload="both").scan()
    assert both.jobs["name"].to_list() == ["M1", "c_1", "c_2", "c_4"]
    Dag.of_jobs(both.jobs)
    with pytest.raises(TraceError, match="batch, containers, both"):
        AlibabaV2018(tmp_path, workload="all")


ROWS = {
    "machine_meta": MACHINES,
    "container_meta": CONTAINERS,
    "batch_task": task() + "\n",
    "batch_instance": "ins_1,M1,j_1,1,Terminated,100,160,m_1,1,1,30,90,0.02,0.03\n",
}


@pytest.mark.parametrize("table", ROWS)
def test_every_table_is_told_by_its_rows(tmp_path, table):
    file = tmp_path / "x.csv"
    file.write_text(ROWS[table])
    found = recognise(file, [AlibabaV2018.FORMAT, reader("alibaba-v2017").FORMAT])
    assert [(form.name, kind.name) for form, kind in found] == [("alibaba-v2018", table)]


TASKS_2017 = (
    "100,160,1,1,2,Terminated,100,0.01\n120,0,1,2,,Waiting,,\n120,90,1,3,1,Terminated,1,0\n"
)


def test_v2017_is_told_apart_and_read(tmp_path):
    (tmp_path / "batch_task.csv").write_text(TASKS_2017)
    (tmp_path / "server_event.csv").write_text(
        "0,1,add,,64,0.69,1\n0,2,add,,64,0.69,1\n500,2,softerror,agent,,,\n0,3,harderror,disk,,,\n"
    )
    with pytest.raises(TraceError, match="batch_task"):
        AlibabaV2018(tmp_path).scan()
    tables = reader("alibaba-v2017")(tmp_path).scan()
    assert tables.jobs.select("job", "name", "tasks", "cpu", "created", "deleted").rows() == [
        ("1", "1", 2, 1, 100, 160)
    ]
    assert tables.servers.select("name", "cpu", "mem").rows() == [("1", 64, 0.69), ("2", 64, 0.69)]
    assert tables.events.rows() == [(500, "2", False)]
    assert dropped(reader("alibaba-v2017")(tmp_path)) == {
        "never added with its size": (1, 4),
        "end_time is before create_time": (1, 3),
        "status is Waiting": (1, 2),
    }
    named = open_trace(tmp_path, trace="alibaba-v2017", skip=0)
    assert named.fidelity().trace == "alibaba-v2017"
    (tmp_path / "batch_task.csv").write_text("100,160,1,1,2,Failed,1,0.01\n")
    with pytest.raises(TraceError, match=r"\(1"):
        reader("alibaba-v2017")(tmp_path).scan()


TOKEN = st.one_of(st.sampled_from(["", "1", "2", "3", "10", "x", "9" * 30]), st.text(max_size=3))
NAME = st.one_of(
    st.builds("M{}_{}".format, st.integers(1, 4), st.lists(TOKEN, max_size=30).map("_".join)),
    st.builds("R{}_{}".format, st.integers(1, 4), st.integers(1, 4)),
).map(lambda name: name[:50])
HOSTILE = st.builds(
    task,
    name=NAME,
    count=st.sampled_from(["1", "2.0", "", "0", "x"]),
    job=st.sampled_from(["j_1", "j_2"]),
    status=st.sampled_from(["Terminated", "Failed", "?"]),
    end=st.sampled_from(["160", "100", "99", "0", ""]),
)


@pytest.mark.full
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(HOSTILE, max_size=12))
def test_every_row_is_accounted_for_and_no_circle_is_left(tmp_path, rows):
    text = "\n".join([*(task(f"M{n}", job="j_3") for n in range(20)), *rows])
    (tmp_path / "batch_task.csv").write_bytes(text.encode("utf-8", "surrogatepass"))
    tables = AlibabaV2018(tmp_path).scan()
    for before, stage in zip((None, *tables.stages), tables.stages):
        assert stage.read == stage.kept + sum(n for n, _ in stage.dropped.values())
        assert before is None or stage.read == before.kept
    assert tables.stages[-1].kept == len(tables.jobs)
    assert (Dag.of_jobs(tables.jobs).level >= 0).all()


@pytest.fixture
def sample(traces):
    folder = traces / "alibaba-v2018"
    if not (folder / "batch_task_selected_DAGs.csv.gz").exists():
        pytest.skip("the real traces here do not include alibaba-v2018")
    return folder


@pytest.fixture
def rows(sample):
    with gzip.open(sample / "batch_task_selected_DAGs.csv.gz", "rt", newline="") as file:
        return list(csv.DictReader(file))


def plain_edges(rows, doubtful):
    """(child row, parent row) of each number in a name, with or without doubtful last ones."""
    jobs = defaultdict(dict)
    for row in rows:
        jobs[row["job_name"]][int(re.match(r"[A-Z](\d+)", row["task_name"])[1])] = row
    for row in rows:
        numbers = row["task_name"].split("_")[1:]
        if len(row["task_name"]) == 50 and not (doubtful and numbers[-1]):
            numbers = numbers[:-1]
        for number in numbers:
            yield row, jobs[row["job_name"]][int(number)]


def ended(row):
    return row["status"] == "Terminated"


def early(edges):
    return sum(int(child["start_time"]) < int(parent["end_time"]) for child, parent in edges)


@pytest.mark.full
def test_the_published_counts_are_those_of_the_sample(rows):
    edges = list(plain_edges(rows, doubtful=True))
    cut = [row["task_name"] for row in rows if len(row["task_name"]) == 50]
    assert (len(edges), len(cut), sum(name[-1] == "_" for name in cut)) == (63285, 330, 83)
    between = [(c, p) for c, p in edges if ended(c) and ended(p)]
    assert (len(between), early(between)) == (61778, 40891)
    ids = [[int(re.match(r".(\d+)", r["task_name"])[1]) for r in edge] for edge in edges]
    assert sum(parent > child for child, parent in ids) == 12265


@pytest.mark.full
def test_the_sample_is_read_as_a_plain_reading_says(sample, rows):
    tables = AlibabaV2018(sample, strict=True).scan()
    used = [row for row in rows if ended(row)]
    jobs = tables.jobs
    assert jobs["name"].to_list() == [row["task_name"] for row in used]
    assert jobs["job"].n_unique() == len({row["job_name"] for row in used}) == 2112
    assert jobs["tasks"].sum() == sum(float(row["instance_num"]) for row in used) == 3110956
    assert jobs["cpu"].to_list() == [float(row["plan_cpu"]) / 100 for row in used]
    between = {
        ((c["job_name"], c["task_name"]), (p["job_name"], p["task_name"])): (c, p)
        for c, p in plain_edges(rows, doubtful=False)
        if ended(c) and ended(p)
    }
    names = jobs.select("job", "name").rows()
    dag = Dag.of_jobs(jobs)
    assert {(names[c], names[p]) for c, p in zip(dag.child, dag.parent)} == set(between)
    assert (len(dag.child), early(between.values())) == (61548, 40775)
    notes = tables.notes
    assert any(note.startswith("in 40775 of 61548 edges the child starts before") for note in notes)
    assert "230 last parents of cut names may be parts of numbers and were left out" in notes
    assert any(note.startswith("650 tasks start and end in the same second") for note in notes)
    assert dict(tables.stages[3].dropped) == {
        "status is Running": (652, 645),
        "status is Failed": (36, 651),
        "status is Waiting": (192, 3163),
    }


@pytest.mark.full
def test_the_longest_path_of_the_sample_by_recursion(sample, rows):
    waits = defaultdict(set)
    length = {}
    for row in filter(ended, rows):
        length[row["job_name"], row["task_name"]] = int(row["end_time"]) - int(row["start_time"])
    for child, parent in plain_edges(rows, doubtful=False):
        if ended(child) and ended(parent):
            key = child["job_name"], child["task_name"]
            waits[key].add((parent["job_name"], parent["task_name"]))
    done = {}

    def finish(key):
        if key not in done:
            done[key] = length[key] + max((finish(p) for p in waits[key]), default=0)
        return done[key]

    jobs = AlibabaV2018(sample).scan().jobs
    found = Dag.of_jobs(jobs).finish((jobs["deleted"] - jobs["created"]).to_numpy())
    assert found.tolist() == [finish(key) for key in jobs.select("job", "name").rows()]


def test_the_machines_of_the_sample(sample):
    with gzip.open(sample / "machine_meta.csv.gz", "rt", newline="") as file:
        log = list(csv.reader(file))
    first = {}
    for name, time, *_, status in log:
        first.setdefault(name, (int(time), status))
    tables = AlibabaV2018(sample).scan()
    assert sum(time > 0 for time, _ in first.values()) == 147
    using = {row[0] for row in log if row[-1] == "USING"}
    assert (len(first), len(using)) == (4034, 4033)
    assert set(tables.servers["name"]) == using
    assert set(tables.servers["cpu"]) == {96}
    assert set(tables.servers["mem"]) == {100}
    assert sorted(tables.events.rows()) == sorted(
        (time, name, True)
        for name, (time, status) in first.items()
        if time > 0 and status == "USING"
    )
    report = AlibabaV2018(sample).fidelity()
    assert (report.first, report.last) == (86207, 691915)


@pytest.mark.full
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    tasks=st.lists(
        st.tuples(st.integers(1, 9), st.integers(1, 4), st.sets(st.integers(1, 4), max_size=3)),
        min_size=1,
        max_size=40,
    ),
    size=st.integers(1, 9),
)
def test_jobs_may_lie_anywhere_in_the_file(tmp_path, monkeypatch, tasks, size):
    """Looked at in parts of whole jobs, against a plain search of each parent."""
    monkeypatch.setattr(alibaba_v2018, "PART", size)
    names: dict[tuple[int, str], int] = {}
    for job, number, waits in tasks:  # parents have lower numbers: there is no circle
        name = "_".join(["M" + str(number), *(str(x) for x in sorted(waits) if x < number)])
        names.setdefault((job, name), len(names))
    rows = [f"{name},1,j_{job},1,Terminated,5,9,50,1" for job, name in names]
    (tmp_path / "batch_task.csv").write_text("\n".join(rows) + "\n")
    tables = AlibabaV2018(tmp_path).scan()
    found = dict(zip(tables.jobs.select("job", "name").rows(), tables.jobs["after"].to_list()))
    assert list(found) == [(f"j_{job}", name) for job, name in names]
    for (job, name), after in zip(names, found.values()):
        waits = name.split("_")[1:]
        of_job = [other for at, other in names if at == job]
        assert after == "|".join(x for x in of_job if x.split("_")[0][1:] in waits)
    edges = sum(len(after.split("|")) for after in found.values() if after)
    jobs = len({job for job, _ in names})
    assert f"{jobs} jobs with {len(names)} tasks" in tables.notes[0]
    assert f"{edges} edges" in tables.notes[0]
