"""A scheduler in a process of its own, which is told queue, books and rates, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gangwise.core.isolation import Isolated
from gangwise.jobs.books import Ask, Books, Explanation, Place, Preempt, Queue, Rate
from gangwise.jobs.model import Nodes


@dataclass
class IsolatedScheduler(Isolated):
    """A scheduler in a process of its own; see :mod:`gangwise.core.isolation`.

    Examples
    --------
    >>> from gangwise.jobs import Jobs, Nodes, simulate_jobs
    >>> jobs = Jobs.of(submit=[0, 1, 2], run=[10, 10, 5], tasks=[3, 2, 1])
    >>> simulate_jobs(jobs, Nodes.pool(4), IsolatedScheduler("fcfs+none+first-fit")).start
    array([ 0., 10., 10.])
    """

    kind = "scheduler"
    types = (Place, Preempt, Ask, Explanation)

    @property
    def learns(self) -> bool:
        """Whether it listens to rates."""
        return bool(self._asked("learns"))

    @property
    def look(self) -> float:
        """Seconds between looks at running jobs."""
        return float(self._asked("look"))

    def resize(self, nodes: Nodes, job_types: Sequence[str]) -> None:
        """Nodes or job types are (now) these."""
        self.call("resize", nodes, tuple(job_types))

    def place(self, queue: Queue, books: Books, now: float) -> Any:
        """One round of decisions."""
        return self.call("place", queue, books, now)

    def migrations(self, books: Books, now: float) -> Any:
        """Moves of running jobs."""
        return self.call("migrations", books, now)

    def observe(self, rate: Rate) -> None:
        """A measurement reaches it."""
        self.call("observe", rate)

    def explain(self, job: str) -> Any:
        """Why a job of the last round's queue still waits."""
        return self.call("explain", job)
