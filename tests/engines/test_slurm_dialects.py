"""Both dialects of Slurm's JSON say the same. The newer is made after its documentation."""

from __future__ import annotations

import json
import math
import random
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gangwise.core.errors import EngineError, Rejected
from gangwise.engines.engine import ENDED, Changes, Placed, Quarantine
from gangwise.engines.slurm import SlurmEngine
from gangwise.engines.slurm_requests import STATE, Cost, Listing


def number(value: int | None) -> dict[str, Any]:
    return {"set": value is not None, "infinite": False, "number": value or 0}


def old(job: int, state: str, **more: Any) -> dict[str, Any]:
    """As squeue 22.05 prints it, cut to what is read."""
    return {
        "job_id": job,
        "name": "train",
        "user_name": "ada",
        "partition": "gangwise",
        "job_state": state,
        "state_reason": "None",
        "priority": 0,
        "restart_cnt": 0,
        "admin_comment": "gangwise",
        "comment": "",
        "dependency": "",
        "features": "",
        "tasks": 2,
        "node_count": 2,
        "tasks_per_node": 1,
        "cpus_per_task": None,
        "memory_per_cpu": 10,
        "memory_per_node": None,
        "tres_per_node": "gres:gpu:4",
        "tres_per_task": "",
        "tres_per_job": "",
        "time_limit": 90,
        "deadline": 0,
        "submit_time": 1_000,
        "start_time": 0,
        "end_time": 0,
        "eligible_time": 0,
        "exit_code": 0,
        **more,
    }


def new(row: dict[str, Any]) -> dict[str, Any]:
    """The same row as 23.02 and later print it."""
    found = dict(row)
    for key in ("priority", "tasks", "node_count", "tasks_per_node", "cpus_per_task"):
        found[key] = number(row[key])
    for key in ("memory_per_cpu", "memory_per_node", "time_limit", "deadline"):
        found[key] = number(row[key])
    for key in ("submit_time", "start_time", "end_time", "eligible_time"):
        found[key] = number(row[key])
    found["job_state"] = [row["job_state"]]
    found["tres_per_node"] = row["tres_per_node"].replace("gres:", "gres/")
    found["exit_code"] = {
        "status": ["ERROR" if row["exit_code"] else "SUCCESS"],
        "return_code": number(row["exit_code"] >> 8),
    }
    if "job_resources" in row:
        nodes = [
            {"name": n["nodename"], "cpus": {"count": n["cpus_used"], "used": n["cpus_used"]}}
            for n in row["job_resources"]["allocated_nodes"]
        ]
        found["job_resources"] = {"nodes": {"count": len(nodes), "allocation": nodes}}
    return found


ROWS = [
    old(1, "PENDING", features="a100&fast", comment="work=1200.5"),
    old(2, "PENDING", priority=4_000, admin_comment="gangwise attempt=2 restarts=0 on=n1:1,n2:1"),
    old(
        3,
        "RUNNING",
        priority=4_000,
        admin_comment="gangwise attempt=1 restarts=0 on=n1:1,n2:1",
        start_time=1_100,
        end_time=6_500,
        gres_detail=["gpu:4(IDX:0-3)", "gpu:4(IDX:0-1,4-5)"],
        job_resources={
            "nodes": "n[1-2]",
            "allocated_nodes": [
                {"nodename": "n1", "cpus_used": 1},
                {"nodename": "n2", "cpus_used": 1},
            ],
        },
    ),
    old(
        4,
        "FAILED",
        admin_comment="gangwise attempt=1 restarts=0 on=n1:1,n2:1",
        exit_code=768,
        start_time=1_100,
        end_time=1_200,
    ),
    old(
        5,
        "TIMEOUT",
        admin_comment="gangwise attempt=1 restarts=0 on=n1:1,n2:1",
        start_time=1_100,
        end_time=6_500,
        time_limit=None,
    ),
    old(6, "PENDING", partition="open"),
    old(7, "PENDING", dependency="afterok:3(unfulfilled)"),
]
NODES_OLD = [
    {
        "name": "n1",
        "cpus": 8,
        "real_memory": 1000,
        "gres": "gpu:a100:4(S:0)",
        "features": "a100,fast",
        "active_features": "a100,fast",
        "state": "idle",
        "state_flags": [],
        "reason": "",
    },
    {
        "name": "n2",
        "cpus": 8,
        "real_memory": 1000,
        "gres": "gpu:a100:4",
        "features": "a100",
        "active_features": "a100",
        "state": "down",
        "state_flags": ["NOT_RESPONDING"],
        "reason": "x",
    },
    {
        "name": "n3",
        "cpus": 8,
        "real_memory": 1000,
        "gres": "",
        "features": "",
        "active_features": "",
        "state": "mixed",
        "state_flags": ["DRAIN"],
        "reason": "fan",
    },
]
NODES_NEW = [
    {
        **row,
        "state": [str(row["state"]).upper(), *row["state_flags"]],
        "features": str(row["features"]).split(","),
        "real_memory": row["real_memory"],
        "active_features": [f for f in str(row["active_features"]).split(",") if f],
    }
    for row in NODES_OLD
]


class Recorded(SlurmEngine):
    """Slurm's commands answer from a table; what would change anything is written down."""

    def __init__(self, jobs: list[dict[str, Any]], nodes: list[dict[str, Any]], **more: Any):
        self.answers = {"squeue": {"jobs": jobs}, "sinfo": {"nodes": nodes}}
        self.said: list[str] = []
        self.partition, self.reports = "gangwise", None
        self.job_type, self.watch, self.poll = "name", more.get("watch", False), 0.0
        self._values = {"a100": "model"}
        self._changes, self._details, self._where = Changes(self._ranks), {}, {}
        self._nodes, self._table = [], {}
        self._lists, self._left_alone, self._unstarted, self._reserved = {}, {}, {}, {}
        self._doubts: dict[str, tuple[str, float]] = {}
        self.quarantine = Quarantine()
        self._looked = self._seen = self._nodes_looked = self._nodes_read = -math.inf
        self._rows, self._read_as, self._outdated, self._to_recheck = {}, {}, set(), set()
        self._listing, self._nodes_listed, self._leader = Listing(self._run), None, None
        self._listing_cost, self._whole_cost, self._nodes_cost = Cost(), Cost(), Cost()

    def _is_certain(self, job: str, why: str, patience: float) -> bool:
        return True  # not waited for here

    def _run(self, *command: str, more: Any = None) -> str:
        if command[0] in self.answers:
            return json.dumps(self.answers[command[0]])
        if not {"show", "ping"} & set(command):
            self.said.append(" ".join(command))
        return ""


@pytest.fixture(params=["22.05", "23.02"])
def engine(request: pytest.FixtureRequest) -> Recorded:
    if request.param == "22.05":
        return Recorded(ROWS, NODES_OLD)
    return Recorded([new(row) for row in ROWS], NODES_NEW)


def test_jobs(engine: Recorded):
    table = {row.job.id: row for row in engine.jobs()}
    assert table["7"].foreign, "it waits for another job"
    first = table["1"].job
    assert (first.tasks, first.per_node, first.limit) == (2, 1, 5400.0)
    assert first.demand == {"gpu": 4000, "cpu": 1000, "memory": 10_000}
    assert first.constraint == {"model": "a100", "fast": "yes"}
    assert (first.work, first.submitted, first.user) == (1200.5, 1000.0, "ada")
    phases = [table[job].phase for job in "123456"]
    assert phases == ["pending", "placed", "running", "failed", "killed", "pending"]
    assert [table[job].attempt for job in "123456"] == [0, 2, 1, 1, 1, 0]
    assert table["2"].placed == (Placed("n1", 1), Placed("n2", 1))
    assert [(p.node, p.tasks, p.devices) for p in table["3"].placed] == [
        ("n1", 1, (0, 1, 2, 3)),
        ("n2", 1, (0, 1, 4, 5)),
    ]
    assert (table["3"].started, table["4"].ended) == (1100.0, 1200.0)
    assert table["4"].detail == "exit code 3"
    assert table["5"].job.limit == math.inf
    assert [row.foreign for row in table.values()] == [False] * 5 + [True] * 2


def test_nodes(engine: Recorded):
    nodes = {node.name: node for node in engine.nodes()}
    assert nodes["n1"].devices == {"cpu": 8000, "memory": 1_000_000, "gpu": 4000}
    assert nodes["n1"].labels == {"model": "a100", "fast": "yes", "type of gpu": "a100"}
    assert [nodes[n].up for n in ("n1", "n2", "n3")] == [True, False, False]
    assert "drain" in nodes["n3"].reason
    assert "fan" in nodes["n3"].reason


def test_what_slurm_started_again_by_itself_is_held(engine: Recorded):
    row = dict(engine.answers["squeue"]["jobs"][1])
    row["restart_cnt"] = 1
    engine.answers["squeue"]["jobs"] = [row]
    (status,) = engine.jobs()
    assert (status.phase, status.attempt) == ("pending", 2)
    assert status.cause == "node_failed"
    assert engine.said == [
        "scontrol -- update jobid=2 priority=0 admincomment=gangwise attempt=2 restarts=0 "
        "on=n1:1,n2:1 for= nodes=0 held reqnodelist="
    ]


def test_a_placement_names_nodes_and_then_releases():
    rows = [old(1, "PENDING")]
    nodes = [dict(row, state="idle", state_flags=[], gres="gpu:4") for row in NODES_OLD]
    engine = Recorded(rows, nodes)
    engine.place("1", 3, [Placed("n2", 1), Placed("n1", 1)])
    update, release = engine.said
    assert update.endswith("reqnodelist=n1,n2"), "counts and all else stay as they are"
    assert "admincomment=gangwise attempt=3 restarts=0 on=n2:1,n1:1" in update
    assert release == "scontrol -- release 1"
    engine._seen = -math.inf  # Slurm has not heard of it
    with pytest.raises(Rejected, match="where 4"):
        engine.place("1", 3, [Placed("n2", 2)])


def test_a_placement_that_stopped_before_the_release_is_completed():
    """Killed, or without an answer, between the two commands: the job is held, and not by hand."""
    mark = "gangwise attempt=1 restarts=0 on=n2:1,n1:1 for= nodes=2"
    nodes = [dict(row, state="idle", state_flags=[], gres="gpu:4") for row in NODES_OLD]
    where = [Placed("n2", 1), Placed("n1", 1)]
    engine = Recorded([old(1, "PENDING", admin_comment=mark)], nodes)
    engine.place("1", 1, where)
    assert engine.said[-1] == "scontrol -- release 1"
    by_hand = Recorded([old(1, "PENDING", admin_comment=f"byhand {mark}")], nodes)
    with pytest.raises(Rejected, match="holds it"):
        by_hand.place("1", 1, where)
    with pytest.raises(Rejected, match="holds it"):
        Recorded([old(1, "PENDING", admin_comment=mark)], nodes).place("1", 2, where)


def test_one_that_was_not_released_and_has_no_room_any_more_waits_again():
    """It was marked, and before the release its node went: held as it is, it would look by hand."""
    mark = "gangwise attempt=1 restarts=0 on=n2:1,n1:1 for= nodes=2"
    row = old(1, "PENDING", admin_comment=mark)
    drained = [dict(row, state="drained", state_flags=[], gres="gpu:4") for row in NODES_OLD]
    engine = Recorded([row], drained)
    with pytest.raises(Rejected):
        engine.place("1", 1, [Placed("n2", 1), Placed("n1", 1)])
    assert f"priority=0 admincomment={mark} held" in engine.said[-1]
    (waiting,) = Recorded([old(1, "PENDING", admin_comment=f"{mark} held")], drained).jobs()
    assert (waiting.phase, waiting.foreign) == ("pending", False)


@pytest.mark.parametrize(
    ("said", "restarts", "ours"),
    [
        ("launch failed requeued held", 1, True),
        ("launch failed requeued held", 6, False),  # again and again
        ("job requeued in held state", 1, False),  # scontrol requeuehold
        ("", 1, False),
    ],
)
def test_a_job_that_slurm_could_not_launch_is_placed_again(said: str, restarts: int, ours: bool):
    mark = "gangwise attempt=2 restarts=0 on=n2:1,n1:1 for= nodes=2"
    nodes = [dict(row, state="idle", state_flags=[], gres="gpu:4") for row in NODES_OLD]
    about = {"restart_cnt": restarts, "state_description": said, "state_reason": "JobHeldUser"}
    engine = Recorded([old(1, "PENDING", admin_comment=mark, **about)], nodes)
    (row,) = engine.jobs()
    assert (row.phase, row.foreign) == ("pending", not ours)
    if not ours:
        return
    assert row.cause == "node_failed"
    assert f"admincomment={mark} held" in engine.said[-1]
    again = Recorded([old(1, "PENDING", admin_comment=f"{mark} held", **about)], nodes)
    (row,) = again.jobs()
    assert (row.phase, row.foreign) == ("pending", False)
    again = Recorded([old(1, "PENDING", admin_comment=f"{mark} held", **about)], nodes)
    again.place("1", 3, [Placed("n2", 1), Placed("n1", 1)])
    assert f"attempt=3 restarts={restarts}" in again.said[0]
    assert again.said[1] == "scontrol -- release 1"


@pytest.mark.parametrize(
    ("script", "raised"),
    [
        ("echo 'Invalid job id specified' >&2; exit 1", Rejected),
        ("echo 'scontrol: error: Unable to contact slurm controller' >&2; exit 1", EngineError),
        ("echo 'Socket timed out on send/recv operation' >&2; exit 1", EngineError),
        (None, EngineError),  # the program is not there: nobody has refused anything
    ],
)
def test_silence_is_no_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str | None, raised: type[Exception]
):
    if script is not None:
        program = tmp_path / "scontrol"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    engine = SlurmEngine.__new__(SlurmEngine)
    engine._environment, engine._to_recheck, engine._leader = None, set(), None
    engine._details = {}
    with pytest.raises((EngineError, Rejected)) as caught:
        engine._change("hold", "connect-4")
    assert type(caught.value) is raised


def test_an_answer_that_is_none():
    engine = Recorded([], [])
    engine.answers["squeue"] = {"errors": []}
    with pytest.raises(EngineError, match="squeue"):
        engine.jobs()


class Listed(Recorded):
    """Answers by format as well, as ``squeue`` does: fields, each with what is to end it."""

    def __init__(self, jobs: list[dict[str, Any]], nodes: list[dict[str, Any]]):
        super().__init__(jobs, nodes)
        self.whole = 0

    def _run(self, *command: str, more: Any = None) -> str:
        if command[0] != "squeue" or more is None:
            self.whole += command[0] == "squeue"
            return super()._run(*command)
        fields = [field.partition(":0") for field in more["SQUEUE_FORMAT2"].split(",")]
        names = {"jobid": "job_id", **STATE, "feature": "features", "reqnodes": "required_nodes"}
        return "".join(
            "".join(f"{row.get(names.get(name, name)) or ''}{end}" for name, _, end in fields)
            + "\n"
            for row in self.answers["squeue"]["jobs"]
        )


def test_what_is_listed_is_what_the_json_says():
    """Jobs come, are placed, start, end, are held and requeued; names look like rows."""
    rng = random.Random(7)
    up = {"state": "idle", "state_flags": [], "gres": "gpu:9", "active_features": "a100,fast"}
    nodes = [{**row, **up} for row in NODES_OLD]
    engine = Listed([], nodes)
    engine.nodes()
    rows: dict[int, dict[str, Any]] = {}
    on = "attempt=1 restarts=0 on=n1:1,n2:1 for= nodes=2"
    where = {"allocated_nodes": [{"nodename": n, "cpus_used": 1} for n in ("n1", "n2")]}
    done, told = 0, []
    for step in range(160):
        if step % 4 == 0:
            name = rng.choice(("a\n8f", "8", "\x1fe\n3", engine._listing._end[:-1], "xe\n9xf\n"))
            rows[step + 1] = old(step + 1, "PENDING", name=name, features="a100&fast")
        row = rows[job := rng.choice(list(rows))]
        moves: list[dict[str, Any]] = [
            {"priority": 9, "admin_comment": f"gangwise {on}"},
            {"job_state": "RUNNING", "start_time": 2_000 + step, "job_resources": where},
            {"job_state": "FAILED", "exit_code": 768, "end_time": 3_000 + step},
        ]
        at = ("PENDING", 0), ("PENDING", 9), ("RUNNING", 9), ("FAILED", 9)
        turn = at.index((row["job_state"], row["priority"]))
        if turn < 3:
            row.update(moves[turn])
        elif rng.random() < 0.5:
            del rows[job]
        engine.answers["squeue"]["jobs"] = [dict(row) for row in rows.values()]
        engine._whole_cost.seconds = 0.0 if step % 4 == 0 else 1e6
        engine._read_table()
        done = max(done, engine.whole)
        fresh = Recorded(engine.answers["squeue"]["jobs"], nodes)
        fresh.nodes()
        for one in (engine, fresh):  # where it ran is no more told of who has ended
            table = {row.job.id: row for row in one.jobs()}
            ended = {n: replace(r, placed=()) for n, r in table.items() if r.phase in ENDED}
            told.append(table | ended)
        assert told[-1] == told[-2], step
    assert 20 < done <= 41, "the JSON is read for new jobs, and not at each step"
    assert engine.said == []


@pytest.mark.parametrize(("level", "may"), [("Administrator", True), ("Operator", False)])
def test_the_doctor_names_a_user_who_may_not_write_marks(
    monkeypatch: pytest.MonkeyPatch, level: str, may: bool
):
    monkeypatch.setattr("os.getuid", lambda: 1)
    engine = Recorded([], [])
    told = {"sacctmgr": level, "scontrol": "SlurmUser = slurm(64030)", "squeue": '{"jobs": []}'}
    monkeypatch.setattr(engine, "_run", lambda *command, **_: told[command[0]])
    assert may != any("administrator" in remark for remark in engine.survey()[0])


@pytest.mark.skipif(shutil.which("scontrol") is None, reason="Slurm's commands are not here")
def test_that_slurmctld_is_down_is_said_at_once(tmp_path: Path) -> None:
    """``sinfo`` tries for ten seconds."""
    conf = tmp_path / "slurm.conf"
    conf.write_text(
        "ClusterName=lab\nSlurmctldHost=localhost\nSlurmctldPort=1\nNodeName=n0 CPUs=1\n"
        "PartitionName=p Nodes=n0\n"
    )
    began = time.monotonic()
    with pytest.raises(EngineError, match="DOWN"):
        SlurmEngine(environment={"SLURM_CONF": str(conf)}).nodes()
    assert time.monotonic() - began < 5
