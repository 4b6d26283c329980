"""Nodes that come and go: a scheduler that is told of those there decides as one that sees flags.

The witness is the same simulation with all nodes in the books, those not there marked as down.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gangwise.jobs import Conditions, Jobs, Node, Nodes, Options, simulate_jobs
from gangwise.jobs.books import Ask, Books, Event, Place, Preempt, Queue, Rate, Running
from gangwise.jobs.check import check_scheduler
from gangwise.jobs.scheduler import create_scheduler


class OfThoseThere:
    """Tells a scheduler only of nodes that are up or still run something, and when they change.

    With ``leave`` false a node that was there once stays in the list: what is learned of nodes
    is kept for those in it.
    """

    def __init__(self, inner: Any, leave: bool = True):
        self.inner, self.leave = inner, leave
        self.learns = getattr(inner, "learns", True)
        self.there: list[int] = []
        self.resized = 0

    def resize(self, nodes: Nodes, job_types: Any) -> None:
        self.nodes, self.types = nodes, tuple(job_types)

    def place(self, queue: Queue, books: Books, now: float) -> list[Any]:
        used = {n for running in books.running.values() for n, _, _ in running.pieces}
        if not self.leave:
            used |= set(self.there)
        there = [n for n in range(len(books.free)) if books.up[n] or n in used]
        if there != self.there:
            self.there, self.resized = there, self.resized + 1
            whole = list(self.nodes)
            self.inner.resize(Nodes.of((whole[n] for n in there), self.nodes.shared), self.types)
        some = list(self.nodes)
        place = {n: i for i, n in enumerate(there)}

        def shown(pieces: Any) -> Any:
            return tuple((place[n], c, mask) for n, c, mask in pieces if n in place)

        seen = Books(
            Nodes.of((some[n] for n in there), self.nodes.shared),
            books.capacity[there],
            books.free[there].copy(),
            books.device[there].copy(),
            books.up[there],
            {
                name: Running(r.job, shown(r.pieces), r.begun, r.overhead)
                for name, r in books.running.items()
            },
            [
                Event(e.kind, e.time, e.job, place.get(e.node, -1), shown(e.pieces))
                for e in books.events
            ],
        )
        actions = []
        for action in self.inner.place(queue, seen, now):
            if isinstance(action, Place):
                tasks = tuple((there[n], c) for n, c in action.tasks)
                pieces = tuple((there[n], c, mask) for n, c, mask in action.pieces)
                actions.append(Place(action.job, tasks, pieces))
            else:
                assert isinstance(action, Preempt | Ask)
                actions.append(action)
        return actions

    def observe(self, rate: Rate) -> None:
        place = {n: i for i, n in enumerate(self.there)}
        nodes = tuple(place[n] for n in rate.nodes)
        self.inner.observe(
            Rate(rate.job, nodes, rate.rates, rate.begun, rate.time, rate.first, rate.ended)
        )

    def explain(self, job: str) -> Any:
        return self.inner.explain(job)


def drawn(seed: int) -> tuple[Jobs, Nodes, Conditions]:
    """Two generations; nodes fail, drain, come back, and one joins late; jobs are withdrawn."""
    rng = np.random.default_rng([21, seed])
    J, N = 60, 6
    run = rng.integers(0, 300, J)
    jobs = Jobs.of(
        np.sort(rng.integers(0, 900, J)),
        run,
        rng.integers(1, 4, J),
        {"gpu": rng.integers(1, 3, J)},
        limit=np.maximum(run * rng.uniform(1, 3, J), 10).round(),
        type=rng.choice(["a", "b"], J),
        user=rng.choice(["u", "v"], J),
    )
    nodes = Nodes.of(
        Node(f"n{i}", {"gpu": 4}, {"model": "new" if i % 2 else "old"}, rate=1.0 if i % 2 else 0.5)
        for i in range(N)
    )
    rates = nodes.declared(jobs.types) * rng.uniform(0.8, 1.2, (len(jobs.types), N))
    downs, ups, drains = [(0.0, 5)], [(400.0, 5)], []
    for n in range(4):
        t = float(rng.integers(50, 800))
        (downs if rng.random() < 0.5 else drains).append((t, n))
        ups.append((t + float(rng.integers(50, 400)), n))
    cancels = [(float(rng.integers(0, 1200)), int(j)) for j in rng.integers(0, J, 6)]
    return jobs, nodes, Conditions(rates, None, downs, ups, (), drains, cancels)


NAMES = [
    "fcfs+easy+best-fit",
    "sjf+easy+worst-fit",
    "wfp3+conservative+first-fit",
    "fcfs+easy+label",
    "fcfs+easy+ucb",
    "fcfs+easy+learned",
    "gavel",
    "las:pause=20",
]


@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
def test_told_of_those_there_or_shown_flags_it_decides_the_same(name: str) -> None:
    for seed in range(2):
        jobs, nodes, conditions = drawn(seed)
        options = Options(restart=5.0, measured_after=20.0)
        learns = name.endswith(("ucb", "learned"))
        told = OfThoseThere(create_scheduler(name), leave=not learns)
        one = simulate_jobs(jobs, nodes, told, conditions, options, engine="plain")
        other = simulate_jobs(
            jobs, nodes, create_scheduler(name), conditions, options, engine="plain"
        )
        assert told.resized >= (2 if learns else 4)
        assert one.counts["cancellations"] > 0
        assert one.end.tolist() == pytest.approx(other.end.tolist(), abs=1e-6, nan_ok=True), seed
        assert [one.placed(j) for j in range(len(jobs))] == [
            other.placed(j) for j in range(len(jobs))
        ]


def test_fair_share_charges_what_it_stops_charging() -> None:
    """What users are charged for is what of theirs runs, however the cluster has changed."""
    jobs, nodes, conditions = drawn(3)
    told = OfThoseThere(create_scheduler("fair-share+easy+best-fit"))
    simulate_jobs(jobs, nodes, told, conditions, Options(measured_after=20.0), engine="plain")
    queue = told.inner.queue
    assert 0 < len(queue._share) < 15  # those of the last round, whose ends nobody told it
    charged = sum(rate for _, rate, _ in queue._use.values())
    assert charged == pytest.approx(sum(queue._share.values()))


@pytest.mark.full
@pytest.mark.parametrize("name", ["las:pause=20", "gavel", "gavel:objective=fifo,seconds=90"])
def test_whole_schedulers_keep_to_the_contract(name: str) -> None:
    check_scheduler(name, cases=3)
