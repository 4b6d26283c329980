"""Collections, instances and machines of 2019 by hand, as lines of JSON, and hostile files."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangwise import TraceError
from gangwise.logs.formats.alibaba_v2018 import Dag
from gangwise.logs.formats.google import FIRST, Google2011, Google2019, _list_items

SUBMIT, QUEUE, ENABLE, SCHEDULE, EVICT, FAIL, FINISH, KILL, LOST, UPDATE_PENDING = range(10)
ADD, REMOVE, UPDATE = 1, 2, 3
END = 2**63 - 1


def stamp(seconds):
    """As an export writes 64-bit integers: in quotes."""
    return str(seconds if seconds in (0, END) else round((600 + seconds) * 10**6))


def collection(seconds, number, code, kind=0, **more):
    return {
        "time": stamp(seconds),
        "type": code,
        "collection_id": str(number),
        "scheduling_class": 2,
        "collection_type": kind,
        "priority": 200,
        "alloc_collection_id": "0",
        "user": f"u{number}",
        **more,
    }


def instance(seconds, number, index, code, cpus=0.5, memory=0.25, kind=0, **more):
    request = {} if cpus is None else {"resource_request": {"cpus": cpus, "memory": memory}}
    return {
        "time": stamp(seconds),
        "type": code,
        "collection_id": str(number),
        "scheduling_class": 2,
        "collection_type": kind,
        "priority": 200,
        "alloc_collection_id": "0",
        "instance_index": index,
        "machine_id": "0",
        "alloc_instance_index": "-1",
        "constraint": [],
        **request,
        **more,
    }


def machine(seconds, number, code, **capacity):
    return {
        "time": stamp(seconds),
        "machine_id": str(number),
        "type": code,
        "switch_id": "s",
        "platform_id": "p",
        "capacity": capacity,
    }


def write(folder, table, *parts, end="\n", bom=False):
    for number, rows in enumerate(parts):
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        text = "\ufeff" * bom + end.join(lines) + end
        file = folder / f"{table}-{number:012d}.json.gz"
        file.write_bytes(gzip.compress(text.encode()))
    return folder


COLLECTIONS = [
    collection(5, 20, SUBMIT, kind=1),
    collection(10, 3, SUBMIT, start_after_collection_ids=[]),
    collection(11, 4, SUBMIT, start_after_collection_ids=["3"], parent_collection_id="3"),
    collection(12, 5, SUBMIT, start_after_collection_ids=["3", "4", "777"]),
    collection(13, 5, ENABLE, start_after_collection_ids=["3", "4", "777"]),
    collection(90, 3, FINISH),
]
INSTANCES = [
    instance(0, 1, 0, SUBMIT),
    instance(0, 1, 0, SCHEDULE),  # there before
    instance(5, 20, 0, SUBMIT, 0.9, 0.9, kind=1),
    instance(6, 20, 0, SCHEDULE, kind=1),  # reserved
    instance(10, 3, 0, SUBMIT),
    instance(10, 3, 1, SUBMIT),
    instance(10, 3, 2, SUBMIT, 0.125),
    instance(11, 4, 0, SUBMIT, alloc_collection_id="20", alloc_instance_index=0),
    instance(12, 5, 0, SUBMIT, constraint=[{"name": "xy", "value": "1", "relation": "EQUAL"}]),
    instance(20, 3, 0, SCHEDULE, machine_id="7"),
    instance(21, 3, 1, SCHEDULE, machine_id="-1"),
    instance(50, 3, 0, EVICT),
    instance(51, 3, 0, SUBMIT),
    instance(60, 3, 1, FINISH),
    instance(70, 3, 0, SCHEDULE),
    instance(80, 3, 2, KILL, 0.125),
    instance(90, 3, 0, FINISH),
    instance(92, 4, 0, QUEUE),
    instance(93, 4, 0, ENABLE),
    instance(94, 4, 0, SCHEDULE),
    instance(95, 4, 0, FAIL),
    instance(100, 6, 0, SUBMIT, None),
    instance(120, 7, 0, LOST),
    instance(150, 5, 0, SCHEDULE),
    instance(END, 5, 0, FINISH),
]
EXPECTED = {
    "3": [(0.125, 0.25, 1, 10, None, 80, "KILL", ""), (0.5, 0.25, 2, 10, 20, 90, "FINISH", "")],
    "4": [(0.5, 0.25, 1, 11, 94, 95, "FAIL", "3")],
    "5": [(0.5, 0.25, 1, 12, 150, 150, "", "3|4")],
}
VALUES = ("cpu", "mem", "tasks", "created", "started", "deleted", "status", "after")


def found(reader):
    jobs = defaultdict(list)
    for row in reader.scan().jobs.iter_rows(named=True):
        jobs[row["name"]].append(tuple(row[value] for value in VALUES))
    return {name: sorted(rows) for name, rows in jobs.items()}


@pytest.mark.parametrize("cut", [None, 3, 12])
@pytest.mark.parametrize(("end", "bom"), [("\n", False), ("\r\n", True)])
def test_instances_by_hand(tmp_path, cut, end, bom):
    parts = [INSTANCES] if cut is None else [INSTANCES[:cut], INSTANCES[cut:]]
    write(tmp_path, "instance_events", *parts, end=end, bom=bom)
    write(tmp_path, "collection_events", COLLECTIONS, end=end, bom=bom)
    assert Google2019.recognise(tmp_path)
    assert not Google2011.recognise(tmp_path)
    reader = Google2019(tmp_path)
    assert found(reader) == EXPECTED
    tables = reader.scan()
    assert dict(tables.jobs.select("name", "user").rows()) == {"3": "u3", "4": "u4", "5": "u5"}
    assert set(tables.jobs["job"]) == {"3"}  # linked by what starts after what
    rows = tables.jobs["name"].to_list()
    dag = Dag.of_jobs(tables.jobs)
    assert [sorted(rows[p] for p in dag.parent[dag.child == n]) for n in range(4)] == [
        [],
        [],
        ["3", "3"],
        ["3", "3", "4"],
    ]
    stages = {stage.name: stage for stage in tables.stages}
    assert (stages["tasks"].read, stages["tasks"].kept) == (8, 5)
    lost = {why.split(",")[0].split(";")[0]: n for why, (n, _) in stages["tasks"].dropped.items()}
    assert lost == {
        "there before the trace begins": 1,
        "no SUBMIT in the files": 1,
        "its request is empty in every row": 1,
    }
    of_jobs = stages["instance_events, of jobs"]
    assert (of_jobs.read, of_jobs.kept) == (25, 23)
    ((why, (count, row)),) = of_jobs.dropped.items()
    assert why.startswith("of an alloc set, which is no job; the row is of instance_events-0")
    assert (count, row) == (2, 3)
    assert [n for n, _ in stages["collection_events, of jobs"].dropped.values()] == [1]
    report = str(reader.fidelity())
    for text in (
        "1 jobs run in an alloc set",
        "1 jobs have constraints",
        "1 jobs start after a collection that is no job of the window",
        "machine_events is not",
    ):
        assert text in report


def test_instances_without_collections_have_no_precedence(tmp_path):
    reader = Google2019(write(tmp_path, "instance_events", INSTANCES))
    assert reader.scan().jobs["job"].to_list() == reader.scan().jobs["name"].to_list()
    assert {row[-1] for rows in found(reader).values() for row in rows} == {""}
    assert "collection_events is not here" in str(reader.fidelity())


def test_collections_alone_say_when_but_not_what(tmp_path):
    reader = Google2019(write(tmp_path, "collection_events", COLLECTIONS))
    rows = reader.scan().jobs.select("name", "cpu", "created", "deleted", "status", "after").rows()
    assert rows == [
        ("3", None, 10, 90, "FINISH", ""),
        ("4", None, 11, 90, "", "3"),
        ("5", None, 12, 90, "", "3|4"),
    ]
    assert "instance_events is not here" in str(reader.fidelity())


def test_machines_by_hand(tmp_path):
    write(tmp_path, "instance_events", INSTANCES)
    write(
        tmp_path,
        "machine_events",
        [
            machine(0, 7, ADD, cpus=0.5, memory=0.25),
            machine(0, 8, ADD, cpus=1, memory=1),
            machine(30, 7, REMOVE, cpus=0.5, memory=0.25),
            machine(40, 8, UPDATE, cpus=0.9, memory=1),
            machine(60, 7, ADD, cpus=0.5, memory=0.25),
            machine(70, 9, 0),
            machine(80, 10, ADD),
        ],
    )
    tables = Google2019(tmp_path).scan()
    assert tables.servers.select("name", "model", "cpu", "mem").rows() == [
        ("7", "", 0.5, 0.25),
        ("8", "", 1.0, 1.0),
    ]
    assert tables.events.rows() == [
        (0.0, "7", True),
        (0.0, "8", True),
        (30.0, "7", False),
        (60.0, "7", True),
    ]
    report = str(Google2019(tmp_path).fidelity())
    for text in ("type is 0, UNKNOWN", "capacity is empty in every row", "another capacity"):
        assert text in report


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (instance(15, 77, 0, 11), "type is not a code from 0 to 10"),
        (instance(15, 77, 0, "SUBMIT"), "type is not a number"),
        (instance(15, 77, 0.5, SUBMIT), "instance_index is not a whole number"),
        (instance(15, 77, 0, SUBMIT, cpus="much"), "resource_request.cpus is not a number"),
        (instance(15, 77, 0, SUBMIT, cpus=-1), "resource_request.cpus is negative"),
        (instance(15, 77, 0, SUBMIT, machine_id="-2"), "machine_id is less than -1"),
        ({k: v for k, v in instance(15, 77, 0, 0).items() if k != "time"}, "time is empty"),
        ('{"time": 1', "JSON"),
        ("[1, 2]", "JSON"),
        ("615000000,,77,0,,0,u,2,9,0.5,0.25,0.1,0", "JSON"),
    ],
)
def test_bad_rows_are_counted_and_named(tmp_path, row, reason):
    write(tmp_path, "instance_events", [*INSTANCES[:4], row, *INSTANCES[4:]])
    write(tmp_path, "collection_events", COLLECTIONS)
    reader = Google2019(tmp_path)
    assert found(reader) == EXPECTED
    (lost,) = [
        lost
        for stage in reader.scan().stages
        for why, lost in stage.dropped.items()
        if reason in why
    ]
    assert lost == (1, 5)
    with pytest.raises(TraceError, match=reason) as error:
        Google2019(tmp_path, strict=True).scan()
    assert error.value.row == 5


@pytest.mark.parametrize("bad", ["3", {"id": 3}, ["three"], [["3"]]])
def test_a_list_that_is_none_is_named(tmp_path, bad):
    write(tmp_path, "instance_events", INSTANCES)
    row = collection(14, 5, UPDATE_PENDING, start_after_collection_ids=bad)
    write(tmp_path, "collection_events", [*COLLECTIONS, row])
    reader = Google2019(tmp_path)
    assert found(reader) == EXPECTED
    assert "start_after_collection_ids is not a list of the right kind; the row" in str(
        reader.fidelity()
    )
    with pytest.raises(TraceError, match="start_after_collection_ids") as error:
        Google2019(tmp_path, strict=True).scan()
    assert error.value.row == 7


def test_a_missing_part_is_named(tmp_path):
    write(tmp_path, "instance_events", INSTANCES[:5], INSTANCES[5:9], INSTANCES[9:])
    (tmp_path / "instance_events-000000000001.json.gz").unlink()
    with pytest.raises(TraceError, match="00001"):
        Google2019(tmp_path).scan()


def test_a_part_cut_short_in_the_middle_is_refused(tmp_path):
    rows = [
        instance(1 + i, 10**6 + i * 7919 % 10**5, i, SUBMIT, i * 7907 % 99991 / 1e5)
        for i in range(2000)
    ]
    write(tmp_path, "instance_events", rows, [instance(4000, 5, 0, SUBMIT)])
    file = tmp_path / "instance_events-000000000000.json.gz"
    file.write_bytes(file.read_bytes()[:-2000])
    with pytest.raises(TraceError, match="short"):
        Google2019(tmp_path).scan()


def test_one_trace_offered_as_the_other_is_named(tmp_path):
    """Their codes differ, and nothing in the numbers tells."""
    (tmp_path / "old" / "task_events").mkdir(parents=True)
    file = tmp_path / "old" / "task_events" / "part-00000-of-00500.csv"
    file.write_text("700000000,,2,0,,0,u,1,9,0.5,0.25,,0\n710000000,,2,0,7,1,u,1,9,0.5,0.25,,0\n")
    with pytest.raises(TraceError, match="task_events"):
        Google2019(tmp_path / "old").scan()
    (tmp_path / "new").mkdir()
    write(tmp_path / "new", "instance_events", INSTANCES)
    with pytest.raises(TraceError, match="instance_events"):
        Google2011(tmp_path / "new").scan()


HISTORIES = st.lists(
    st.lists(
        st.tuples(st.integers(0, 6), st.sampled_from([0, 1, 3, 4, 6, 7, 9])), min_size=1, max_size=6
    ),
    min_size=1,
    max_size=4,
)


@pytest.mark.full
@settings(max_examples=20)
@given(HISTORIES, st.randoms(use_true_random=False), st.integers(1, 50))
def test_neither_the_order_of_equal_times_nor_the_parts_matter(
    tmp_path_factory, histories, rng, cut
):
    rows = [(10 * s + 1, n, code) for n, one in enumerate(histories) for s, code in one]
    rows += [(1, 100, SUBMIT), (90, 100, FINISH)]  # something can be used, and the end is fixed

    def tables(*parts):
        made = [
            [instance(s, n // 2, n % 2, code, 0.1 + code) for s, n, code in part] for part in parts
        ]
        folder = write(tmp_path_factory.mktemp("trace"), "instance_events", *made)
        return Google2019(folder).scan().jobs.drop("part", "row").rows()

    rows.sort(key=lambda row: row[0])
    expected = tables(rows)
    shuffled = list(rows)
    rng.shuffle(shuffled)
    shuffled.sort(key=lambda row: row[0])
    cut = 1 + cut % (len(rows) - 1)
    assert tables(shuffled[:cut], shuffled[cut:]) == expected


def test_a_list_of_numbers_that_are_no_integers_is_none():
    assert _list_items("[7, 8]", FIRST) == [7, 8]
    assert _list_items("[Infinity]", FIRST) is None
