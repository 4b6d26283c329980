"""A cluster in memory that does what a test tells it, at a time that a test tells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gangwise.core.errors import EngineError
from gangwise.engines.engine import (
    ENDED,
    Capabilities,
    Cause,
    EngineEvent,
    EngineJob,
    EngineNode,
    Phase,
    Placed,
    Quarantine,
    RankReport,
    Status,
    TaskGroup,
    check_placement,
)


class Pretend:
    name = "pretend"
    capabilities = Capabilities(0.0)

    def __init__(self, nodes: Sequence[EngineNode]):
        self.machines = {node.name: node for node in nodes}
        self.table: dict[str, Status] = {}
        self.queue: list[EngineEvent] = []
        self.calls: list[tuple[str, str, int]] = []
        self.down = False
        self.starts = True
        self.careful = True
        self.time = 1_000_000.0
        self.quarantine = Quarantine()

    def _ask(self) -> None:
        if self.down:
            raise EngineError("connection refused")

    def nodes(self) -> list[EngineNode]:
        self._ask()
        return list(self.machines.values())

    def jobs(self) -> list[Status]:
        self._ask()
        return list(self.table.values())

    def place(self, job: str, attempt: int, placed: Sequence[Placed]) -> None:
        self._ask()
        row = self.table[job]
        if row.attempt == attempt and row.phase in ("placed", "running"):
            return
        if self.careful:
            check_placement(row, placed, self.machines.values(), self.table.values())
        self.calls.append(("place", job, attempt))
        self._set(job, "placed", attempt, tuple(placed))
        if self.starts:
            self.start(job)

    def preempt(self, job: str) -> None:
        self._ask()
        if self.table[job].phase in ("placed", "running"):
            self.calls.append(("preempt", job, self.table[job].attempt))
            self.back(job, "preempted", "released")

    def cancel(self, job: str) -> None:
        self._ask()
        if self.table[job].phase not in ENDED:
            self.end(job, "cancelled")

    def events(self, timeout: float) -> list[EngineEvent]:
        self._ask()
        found, self.queue = self.queue, []
        return found

    def close(self) -> None:
        return

    # ------------------------------------------------------------------------------------- fate

    def _set(self, job: str, phase: Phase, attempt: int, placed: tuple[Placed, ...]) -> None:
        self.table[job] = replace(self.table[job], phase=phase, attempt=attempt, placed=placed)

    def tell(self, kind: str, job: str, **more: object) -> None:
        attempt = self.table[job].attempt
        self.queue.append(EngineEvent(kind, self.time, job, attempt, **more))

    def submit(
        self, job: str, tasks: int = 1, gpus: int = 1, head: int = 0, **more: object
    ) -> None:
        """With a ``head`` there is one task more, which asks for so many GPUs."""
        rest = more.pop("per_node", 0), more.pop("constraint", {})
        groups = [TaskGroup(1, {"gpu": 1000 * head}, *rest)] * bool(head)
        groups.append(TaskGroup(tasks, {"gpu": 1000 * gpus}, *rest))
        about = {"id": job, "job_type": "train", "user": "ada", "submitted": self.time}
        asked = EngineJob.of_groups(groups, **about, limit=600.0, **more)
        self.table[job] = Status(asked, "pending")
        self.tell("submitted", job)

    def start(self, job: str) -> None:
        row = self.table[job]
        self._set(job, "running", row.attempt, row.placed)
        self.tell("started", job)

    def end(self, job: str, how: Phase = "finished", ranks: tuple[RankReport, ...] = ()) -> None:
        row = self.table[job]
        self._set(job, how, row.attempt, row.placed)
        self.tell(how, job, ranks=ranks)

    def back(self, job: str, why: str, cause: Cause) -> None:
        self.tell("preempted", job, detail=why, cause=cause)
        self._set(job, "pending", self.table[job].attempt, ())

    def set_up(self, node: str, up: bool) -> None:
        self.machines[node] = replace(self.machines[node], up=up)
        kind = "node_up" if up else "node_down"
        self.queue.append(EngineEvent(kind, self.time, node=node))
        for job, row in list(self.table.items()):
            if not up and row.phase == "running" and any(p.node == node for p in row.placed):
                self.back(job, f"node {node} died", "node_failed")
