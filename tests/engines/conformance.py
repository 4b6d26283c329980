"""What every engine must keep to, tried on a real cluster of four nodes.

A ``Lab`` starts and stops the cluster, and does to it what users and fate do. The suite is a class
that ``test_conformance.py`` runs for each engine named in ``GANGWISE_ENGINES``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import pytest

from gangwise.core.errors import Rejected
from gangwise.engines.engine import ENDED, Engine, EngineEvent, Placed, Status

NODES = ("a1", "a2", "b1", "b2")
"""Each has 4 cpu and 4 gpu; a1, a2 the label model=a, b1, b2 model=b."""


class Lab(Protocol):
    """A cluster under test."""

    patience: float
    """Seconds after which something that should have happened has not."""
    quiet: float
    """Seconds within which somebody else would have started a job."""

    def engine(self) -> Engine:
        """A new client of the cluster; older ones are closed or dead."""

    def submit(
        self,
        seconds: float,
        tasks: int = 1,
        gpus: int = 1,
        *,
        fails: bool = False,
        model: str = "",
        per_node: int = 0,
        wrapped: bool = False,
        limit: float = 600.0,
        head: int = 0,
    ) -> str:
        """As a user: every rank notes where it runs and its devices, sleeps, and ends.

        ``wrapped`` ranks run under ``gangwise rank`` and report one unit of work per second. With a
        ``head`` there is one task more, which asks for so many cpu and no gpu.
        """

    def ran(self, job: str) -> list[tuple[str, tuple[int, ...]]]:
        """Node and devices that each rank of a job noted, over all attempts; in any order."""

    def node_down(self, node: str) -> None:
        """The machine dies with everything on it."""

    def node_up(self, node: str) -> None:
        """It comes back."""

    def pause(self) -> None:
        """The cluster's control does not answer any more."""

    def resume(self) -> None:
        """It does again."""

    def stop(self) -> None:
        """End everything that was started."""


class Watch:
    """An engine, and all events that it has told."""

    def __init__(self, lab: Lab):
        self.lab = lab
        self.engine = lab.engine()
        self.events: list[EngineEvent] = []

    def until(self, what: Callable[[], Any], why: str) -> Any:
        """Take in events until something is so."""
        end = time.monotonic() + self.lab.patience
        while True:
            self.events += self.engine.events(0.1)
            if found := what():
                return found
            assert time.monotonic() < end, f"{why}; events: {self.events}"

    def told(self, kind: str, job: str = "", node: str = "") -> EngineEvent:
        def found() -> EngineEvent | None:
            fitting = (e.kind == kind and e.job == job and e.node == node for e in self.events)
            return next((e for e, fits in zip(self.events, fitting) if fits), None)

        return self.until(found, f"no event {kind} of {job or node}")

    def status(self, job: str) -> Status:
        return next(row for row in self.engine.jobs() if row.job.id == job)

    def phase(self, job: str, *phases: str) -> Status:
        def found() -> Status | None:
            row = next((r for r in self.engine.jobs() if r.job.id == job), None)
            return row if row is not None and row.phase in phases else None

        return self.until(found, f"job {job} is not {phases}")

    def reopened(self) -> Watch:
        """As after ``kill -9`` of whoever held the engine: a new client, and no memory."""
        return Watch(self.lab)


def sizes(placed: Sequence[Placed]) -> dict[str, int]:
    count: dict[str, int] = {}
    for p in placed:
        count[p.node] = count.get(p.node, 0) + p.tasks
    return count


class Conformance:
    """One cluster serves all tests, which leave it empty."""

    @pytest.fixture
    def watch(self, lab: Lab) -> Watch:
        watch = Watch(lab)
        yield watch
        for row in watch.engine.jobs():
            if row.phase not in ENDED:
                watch.engine.cancel(row.job.id)
        watch.until(lambda: all(r.phase in ENDED for r in watch.engine.jobs()), "not emptied")
        watch.engine.close()

    def test_nodes_are_as_they_are(self, watch: Watch) -> None:
        nodes = {node.name: node for node in watch.engine.nodes()}
        assert sorted(nodes) == sorted(NODES)
        for name, node in nodes.items():
            assert node.up
            assert node.devices["gpu"] == 4000
            assert node.labels["model"] == name[0]

    def test_a_job_is_read_as_submitted(self, watch: Watch) -> None:
        before = time.time()
        job = watch.lab.submit(5, tasks=2, gpus=2, model="b", per_node=1, limit=120)
        row = watch.phase(job, "pending")
        assert (row.job.tasks, row.job.demand["gpu"], row.job.per_node) == (2, 2000, 1)
        assert dict(row.job.constraint) == {"model": "b"}
        assert row.job.limit == 120
        assert before - 2 <= row.job.submitted <= time.time() + 2
        assert watch.told("submitted", job)

    def test_held_until_placed_and_then_exactly_there(self, watch: Watch) -> None:
        job = watch.lab.submit(1, tasks=3, gpus=2)
        watch.phase(job, "pending")
        time.sleep(watch.lab.quiet)
        assert watch.status(job).phase == "pending", "started by somebody else"
        watch.engine.place(job, 1, [Placed("b2", 2), Placed("a1", 1)])
        started = watch.told("started", job)
        assert started.attempt == 1
        there = sizes(watch.status(job).placed)
        assert set(there) == {"b2", "a1"}
        assert sum(there.values()) == 3
        if watch.engine.capabilities.exact_split:
            assert there == {"b2": 2, "a1": 1}
        ended = watch.told("finished", job)
        assert ended.attempt == 1
        row = watch.status(job)
        assert (row.phase, row.attempt) == ("finished", 1)
        assert 0.9 < row.ended - row.started < 0.9 + watch.lab.patience
        where = [node for node, _ in watch.lab.ran(job)]
        assert {node: where.count(node) for node in where} == there, "the table told another split"

    def test_a_head_and_its_workers_start_together(self, watch: Watch) -> None:
        job = watch.lab.submit(2, tasks=3, gpus=2, head=3)
        row = watch.phase(job, "pending")
        assert row.job.tasks == 4
        groups = {part.demand.get("gpu", 0): g for g, part in enumerate(row.job.groups)}
        assert [row.job.groups[groups[gpus]].tasks for gpus in (0, 2000)] == [1, 3]
        assert row.job.groups[groups[0]].demand["cpu"] == 3000
        head = Placed("a2", 1, group=groups[0])
        some = [Placed("b1", 2, group=groups[2000]), Placed("a1", 1, group=groups[2000])]
        time.sleep(watch.lab.quiet)
        # Never a part of it, never a group on what only another may use.
        for wrong in ([head], some, [head, *some[:1]], [Placed("b1", 4)]):
            with pytest.raises(Rejected, match="all or none"):
                watch.engine.place(job, 1, wrong)
        blocks = watch.lab.submit(300, tasks=3, gpus=1)
        watch.phase(blocks, "pending")
        watch.engine.place(blocks, 1, [Placed("b1", 3)])
        watch.told("started", blocks)
        with pytest.raises(Rejected, match="b1"):
            watch.engine.place(job, 1, [head, *some])
        assert watch.status(job).phase == "pending"
        assert watch.lab.ran(job) == []
        watch.engine.cancel(blocks)
        watch.told("cancelled", blocks)
        watch.engine.place(job, 1, [head, *some])
        watch.told("started", job)
        placed, asked = (
            {(p.node, p.group): p.tasks for p in on}
            for on in (watch.status(job).placed, (head, *some))
        )
        assert placed.keys() == asked.keys()
        assert sum(placed.values()) == 4
        assert placed == asked or not watch.engine.capabilities.exact_split
        again = watch.reopened()  # which finds the groups where they run
        assert {(p.node, p.group): p.tasks for p in again.status(job).placed} == placed
        again.engine.close()
        watch.told("finished", job)
        where = [node for node, _ in watch.lab.ran(job)]
        assert {(node, g): where.count(node) for node, g in placed} == placed
        assert len(where) == 4

    def test_a_head_and_its_workers_are_taken_off_together(self, watch: Watch) -> None:
        job = watch.lab.submit(300, tasks=2, gpus=4, head=1)
        groups = watch.phase(job, "pending").job.groups
        gpu = next(g for g, part in enumerate(groups) if part.demand.get("gpu"))
        both = [Placed("a1", 1, group=gpu), Placed("b1", 1, group=gpu)]
        watch.engine.place(job, 1, [Placed("b2", 1, group=1 - gpu), *both])
        watch.told("started", job)
        watch.engine.preempt(job)
        assert watch.told("preempted", job).cause == "released"
        row = watch.phase(job, "pending")
        assert row.job.groups == groups
        both = [Placed("a2", 1, group=gpu), Placed("b2", 1, group=gpu)]
        watch.engine.place(job, 2, [Placed("a1", 1, group=1 - gpu), *both])
        assert watch.phase(job, "running").attempt == 2
        watch.engine.cancel(job)
        watch.told("cancelled", job)

    def test_no_device_is_shared(self, watch: Watch) -> None:
        jobs = [watch.lab.submit(300, tasks=2, gpus=1) for _ in range(2)]
        for job in jobs:
            watch.phase(job, "pending")
            watch.engine.place(job, 1, [Placed("a1", 2)])
        for job in jobs:
            watch.told("started", job)
        watch.until(lambda: sum(len(watch.lab.ran(job)) for job in jobs) == 4, "not all ran")
        if watch.engine.name == "local":  # which gives the ranks devices of their own
            used = [device for job in jobs for _, held in watch.lab.ran(job) for device in held]
            assert sorted(used) == [0, 1, 2, 3]
        third = watch.lab.submit(1, tasks=1, gpus=1)
        watch.phase(third, "pending")
        with pytest.raises(Rejected, match="a1"):
            watch.engine.place(third, 1, [Placed("a1", 1)])
        assert watch.status(third).phase == "pending"
        for job in (*jobs, third):
            watch.engine.cancel(job)

    @pytest.mark.parametrize(
        ("placed", "says"),
        [
            ([Placed("a1", 1)], "all or none"),
            ([Placed("a1", 2)], "a1"),
            ([Placed("a1", 1), Placed("zz", 1)], "zz"),
            ([Placed("b1", 1), Placed("b2", 1)], "model=a"),
        ],
    )
    def test_the_impossible_is_rejected(
        self, watch: Watch, placed: list[Placed], says: str
    ) -> None:
        job = watch.lab.submit(1, tasks=2, gpus=3, model="a")
        watch.phase(job, "pending")
        with pytest.raises(Rejected, match=says):
            watch.engine.place(job, 1, placed)
        assert watch.status(job).phase == "pending"
        assert watch.lab.ran(job) == []

    def test_an_unknown_job_is_rejected(self, watch: Watch) -> None:
        with pytest.raises(Rejected, match="99999"):
            watch.engine.place("99999", 1, [Placed("a1", 1)])

    def test_placing_an_attempt_again_starts_nothing_twice(self, watch: Watch) -> None:
        job = watch.lab.submit(300, tasks=2, gpus=1)
        watch.phase(job, "pending")
        for _ in range(2):
            watch.engine.place(job, 1, [Placed("a1", 1), Placed("a2", 1)])
        watch.told("started", job)
        watch.engine.place(job, 1, [Placed("a1", 1), Placed("a2", 1)])
        with pytest.raises(Rejected):
            watch.engine.place(job, 2, [Placed("b1", 1), Placed("b2", 1)])
        watch.until(lambda: len(watch.lab.ran(job)) == 2, "its ranks did not run")
        watch.engine.cancel(job)
        watch.told("cancelled", job)
        assert len(watch.lab.ran(job)) == 2

    def test_failure_is_told(self, watch: Watch) -> None:
        job = watch.lab.submit(0.2, fails=True)
        watch.phase(job, "pending")
        watch.engine.place(job, 1, [Placed("a1", 1)])
        assert watch.told("failed", job).attempt == 1
        assert watch.status(job).phase == "failed"

    def test_cancel_while_waiting_and_while_running(self, watch: Watch) -> None:
        waits, runs = watch.lab.submit(60), watch.lab.submit(60)
        watch.phase(waits, "pending")
        watch.phase(runs, "pending")
        watch.engine.cancel(waits)
        watch.told("cancelled", waits)
        watch.engine.place(runs, 1, [Placed("a2", 1)])
        watch.told("started", runs)
        watch.engine.cancel(runs)
        watch.told("cancelled", runs)
        assert watch.phase(runs, "cancelled")
        watch.engine.cancel(runs)

    def test_preempt_and_place_elsewhere(self, watch: Watch) -> None:
        job = watch.lab.submit(2, tasks=2, gpus=1)
        watch.phase(job, "pending")
        watch.engine.place(job, 1, [Placed("a1", 2)])
        watch.told("started", job)
        watch.engine.preempt(job)
        off = watch.told("preempted", job)
        assert (off.attempt, off.cause) == (1, "released")
        watch.phase(job, "pending")
        watch.engine.place(job, 2, [Placed("b1", 1), Placed("b2", 1)])
        row = watch.phase(job, "running")
        assert row.attempt == 2
        assert sizes(row.placed) == {"b1": 1, "b2": 1}
        assert watch.told("finished", job).attempt == 2

    def test_a_node_dies_with_half_a_gang(self, watch: Watch) -> None:
        job = watch.lab.submit(20, tasks=2, gpus=1)
        watch.phase(job, "pending")
        watch.engine.place(job, 1, [Placed("a1", 1), Placed("b1", 1)])
        watch.told("started", job)
        watch.lab.node_down("b1")
        try:
            watch.told("node_down", node="b1")
            assert not {n.name: n for n in watch.engine.nodes()}["b1"].up
            off = watch.told("preempted", job)
            assert (off.attempt, off.cause) == (1, "node_failed")
            watch.phase(job, "pending")
            with pytest.raises(Rejected, match="b1"):
                watch.engine.place(job, 2, [Placed("a1", 1), Placed("b1", 1)])
            time.sleep(watch.lab.quiet)
            assert watch.status(job).phase == "pending", "it is not ours to have it start by itself"
            watch.engine.place(job, 2, [Placed("a1", 1), Placed("a2", 1)])
            assert watch.phase(job, "running").attempt == 2
        finally:
            watch.lab.node_up("b1")
        watch.told("node_up", node="b1")

    def test_ranks_report_their_own_rates(self, watch: Watch) -> None:
        job = watch.lab.submit(1.5, tasks=2, gpus=1, wrapped=True)
        watch.phase(job, "pending")
        watch.engine.place(job, 1, [Placed("a1", 1), Placed("a2", 1)])
        ranks = watch.told("finished", job).ranks
        assert sorted(report.node for report in ranks) == ["a1", "a2"]
        for report in ranks:
            assert 1.4 < report.work < 1.6
            assert (
                0.1 < report.work / report.seconds <= 1.0
            )  # starting up, on a busy machine, is time as well

    def test_without_the_wrapper_there_is_no_measurement(self, watch: Watch) -> None:
        job = watch.lab.submit(0.5, tasks=1)
        watch.phase(job, "pending")
        watch.engine.place(job, 1, [Placed("a1", 1)])
        assert watch.told("finished", job).ranks == ()

    def test_another_client_finds_what_runs(self, watch: Watch) -> None:
        runs, waits = watch.lab.submit(3, tasks=2, gpus=2), watch.lab.submit(1)
        watch.phase(runs, "pending")
        watch.phase(waits, "pending")
        watch.engine.place(runs, 4, [Placed("a1", 1), Placed("b2", 1)])
        watch.told("started", runs)
        again = watch.reopened()  # the first is not closed: it died
        row = again.status(runs)
        assert (row.phase, row.attempt, sizes(row.placed)) == ("running", 4, {"a1": 1, "b2": 1})
        assert again.status(waits).phase == "pending"
        assert again.told("finished", runs).attempt == 4
        assert len(again.lab.ran(runs)) == 2
        again.engine.close()
