"""Built-in schedulers keep to the contract; wrong ones are told what is wrong with them."""

from __future__ import annotations

import itertools
import sys
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from gangwise.jobs import Composed, Explanation, Place, create_scheduler
from gangwise.jobs.check import SchedulerCheckFailed, check_scheduler
from tests.reference.witness import BACKFILLING, QUEUES

NAMES = [f"{queue}+easy+best-fit" for queue in QUEUES]
NAMES += [f"sjf+{backfilling}+best-fit" for backfilling in BACKFILLING if backfilling != "easy"]
NAMES += [f"fcfs+easy+{choice}" for choice in ("first-fit", "worst-fit", "label")]


@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
def test_built_in_schedulers_pass(name):
    check_scheduler(name, cases=2)


@dataclass
class Simple(Composed):
    """A base for schedulers with a fault."""

    def place(self, queue, books, now):
        return [self.wrong(action, queue, books) for action in super().place(queue, books, now)]

    def wrong(self, action, queue, books):
        return action


class Greedy(Simple):
    """Takes what is not free."""

    def wrong(self, action, queue, books):
        job = next(job for job in queue if job.id == action.job)
        return Place(job.id, ((0, job.tasks),))


class Torn(Simple):
    """Starts a part of a gang."""

    def wrong(self, action, queue, books):
        return Place(action.job, action.tasks[:1])


class Handy(Simple):
    """Changes the books itself."""

    def wrong(self, action, queue, books):
        books.free[0] -= 1
        return action


class Selective(Simple):
    """A base for schedulers that look at some jobs only."""

    def place(self, queue, books, now):
        return super().place(self.selected(queue, now), books, now)

    def selected(self, queue, now):
        return queue

    def explain(self, job):
        return Explanation(job, "not selected", (), 0.0, np.inf)


class Named(Selective):
    """Goes by names."""

    def selected(self, queue, now):
        return sorted(queue, key=lambda job: job.id)[:1]


_calls = itertools.count()


class Moody(Selective):
    """Goes by something that is no part of its state."""

    def selected(self, queue, now):
        return [] if next(_calls) % 3 == 0 and now < 300 else queue


@dataclass
class Unpicklable(Composed):
    """Keeps what cannot be kept."""

    handle: Any = field(default_factory=lambda: lambda: None)


@dataclass
class Forgetful(Selective):
    """Loses a part of its state in a pickle."""

    count: int = 0

    def selected(self, queue, now):
        self.count += 1
        return [] if self.count == 3 else queue

    def __getstate__(self):
        return {**vars(self), "count": 0}


class Silent(Simple):
    """Explains nothing."""

    def explain(self, job):
        return Explanation(job, "", (), 0.0, np.inf)


class Credulous(Simple):
    """Cannot bear a rate that is told twice."""

    learns = True

    def observe(self, rate):
        told = vars(self).setdefault("told", set())
        key = (rate.job.id, rate.time)
        assert key not in told, "this I know"
        told.add(key)


class Idle(Simple):
    """Starts nobody."""

    def place(self, queue, books, now):
        super().place(queue, books, now)
        return []

    def explain(self, job):
        return Explanation(job, "no mood for work", (), 0.0, np.inf)


class Peeking(Selective):
    """Sees the work of the jobs, through a back door."""

    def selected(self, queue, now):
        simulation = sys._getframe(2).f_locals["self"]
        run = simulation.tables.jobs.run
        return [job for job in queue if run[job.row] < 300 or now > 900]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (Greedy(), "are free"),
        (Torn(), "all or none"),
        (Handy(), "changed the books"),
        (Named(), "what jobs, nodes, users or job types are called"),
        (Moody(), "not deterministic"),
        (Unpicklable(), "does not pickle"),
        (Forgetful(), "does not survive pickling"),
        (Silent(), "must name the constraint"),
        (Credulous(), "reported twice"),
        (Idle(), "waits for ever"),
        (Peeking(), "sees what is hidden"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_wrong_schedulers_are_named(wrong, said):
    with pytest.raises(SchedulerCheckFailed, match=said):
        check_scheduler(wrong, cases=6)


def test_a_name_is_checked_like_an_object():
    check_scheduler(create_scheduler("sjf+easy+first-fit"), cases=1)
