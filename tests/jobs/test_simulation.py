"""Decided in Python, in compiled code, and by the witness: one schedule."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from gangwise.core.errors import InfeasibleDecision
from gangwise.jobs import Conditions, Group, Jobs, Node, Nodes, Options, Place
from gangwise.jobs.audit import Violation, audit
from gangwise.jobs.books import Books, Event, of_groups
from gangwise.jobs.choice import BestFit, FirstFit, WorstFit, placed
from gangwise.jobs.gavel import Gavel, LeastAttained
from gangwise.jobs.metrics import Outcome
from gangwise.jobs.model import Job, Shape
from gangwise.jobs.queues import FairShare
from gangwise.jobs.schedule import Schedule, Tables, refuses_groups
from gangwise.jobs.scheduler import create_scheduler
from gangwise.jobs.simulation import JobSimulation, simulate_jobs
from tests.jobs.middle import COMBINATIONS, MiddleCase, SiteCase
from tests.jobs.played import Careless
from tests.reference.witness import CHOICES


@pytest.mark.full
@pytest.mark.parametrize("part", range(4))
def test_cases_of_hundreds_of_jobs_are_played_as_the_witness_says(part):
    """Shortcuts go wrong where queues are long: benchmarks/jobs_cases.py plays more of these."""
    for seed in range(part, 4 * len(COMBINATIONS), 4):
        case = MiddleCase(seed)
        said = case.differences(case.played())
        assert not said, (seed, case.names, said)


@pytest.mark.full
@pytest.mark.parametrize("part", range(3))
def test_cases_of_sites_are_played_as_the_witness_says(part):
    """Under pools, caps, windows and latency, decided in compiled code and in Python."""
    for seed in range(part, 151, 3):
        case = SiteCase(seed)
        for engine in ("auto", "plain") if seed % 5 == 0 else ("auto",):
            said = case.differences(case.played(engine=engine))
            assert not said, (seed, case.names, engine, case.rules, said)


@pytest.mark.full
@pytest.mark.parametrize("name", ["fcfs+conservative+first-fit", "sjf+conservative+best-fit"])
def test_no_job_waits_beside_an_empty_cluster_for_reservations_in_each_others_way(name):
    """Jobs that outlive their requests leave reservations due at once that exclude one another."""
    for seed in range(6):
        rng = np.random.default_rng(seed)
        run = rng.integers(1, 300, 30).astype(float)
        jobs = Jobs.of(
            np.sort(rng.integers(0, 400, 30)),
            run,
            rng.integers(1, 4, 30),
            {"gpu": rng.integers(1, 3, 30)},
            limit=np.maximum(np.floor(run * rng.uniform(0.2, 2, 30)), 1),
        )
        nodes = Nodes.of(
            Node(f"n{n}", {"gpu": int(c)}) for n, c in enumerate(rng.integers(2, 5, 3))
        )
        able = np.isfinite(simulate_jobs(jobs, nodes, "fcfs+easy+first-fit").start)
        for engine in ("compiled", "plain"):
            start = simulate_jobs(jobs, nodes, name, engine=engine).start
            assert np.array_equal(np.isfinite(start), able), (seed, engine)


def test_small_cases_are_played_as_the_witness_says():
    """By a built-in scheduler, compiled, and by its parts in Python."""
    for seed in range(len(COMBINATIONS)):
        case = MiddleCase(seed, small=True)
        for engine in ("compiled", "plain"):
            said = case.differences(case.played(engine=engine))
            assert not said, (seed, case.names, engine, said)


def test_jobs_of_unlike_tasks_are_played_as_the_witness_says():
    """Every combination once; half of the jobs have groups."""
    played = 0
    for seed in range(len(COMBINATIONS)):
        case = MiddleCase(seed, small=True, unlike=True)
        for engine in ("compiled", "plain"):
            schedule = case.played(engine=engine)
            said = case.differences(schedule)
            assert not said, (seed, case.names, engine, said)
        played += int((case.jobs.grouped & np.isfinite(schedule.start)).sum())
    assert played > 50


@pytest.mark.full
def test_long_queues_of_unlike_tasks_are_played_as_the_witness_says():
    """Also under pools, caps, windows and latency."""
    cases = [MiddleCase(seed, unlike=True) for seed in range(0, 324, 3)]
    for case in cases + [SiteCase(seed, unlike=True) for seed in range(0, 100, 3)]:
        said = case.differences(case.played())
        assert not said, (case.names, case.size, said)


def test_groups_find_room_wherever_there_is_some():
    """Against brute force, in both engines; in order alone they would find it 107 times."""
    rng, able = np.random.default_rng(0), 0
    for _ in range(400):
        capacity = rng.integers(0, 9, (int(rng.integers(2, 5)), 2))
        groups = [
            (int(rng.integers(1, 4)), tuple(rng.integers(0, 5, 2).tolist()))
            for _ in range(int(rng.integers(2, 4)))
        ]
        groups = [group for group in groups if any(group[1])]
        if len({asked for _, asked in groups}) < 2 or not capacity[:, 0].any():
            continue
        nodes = Nodes.of(
            Node(f"n{n}", {"a": a, "b": b}) for n, (a, b) in enumerate(capacity.tolist())
        )
        of_job = [Group(tasks, {"a": a, "b": b}) for tasks, (a, b) in groups]
        jobs = Jobs.of([0], [1], demand={"a": 1, "b": 0}, id=["j"], groups={"j": of_job})
        both = [
            np.isfinite(simulate_jobs(jobs, nodes, "fcfs+none+first-fit", engine=engine).start[0])
            for engine in ("compiled", "plain")
        ]
        fits = somehow_fits(capacity.tolist(), [asked for n, asked in groups for _ in range(n)])
        assert both == [fits, fits]
        able += fits
    assert able == 117


def test_groups_that_share_no_node_find_room_wherever_there_is_some():
    """As components of heterogeneous jobs need it, by every choice; against brute force."""
    rng, able = np.random.default_rng(3), 0
    for _ in range(300):
        capacity = rng.integers(0, 9, (int(rng.integers(2, 6)), 2))
        capacity[:, 0] += 1
        parts = [
            (int(rng.integers(1, 4)), Shape((1000 * int(rng.integers(1, 5)), 1000 * b)))
            for b in rng.choice(5, size=int(rng.integers(2, 4)), replace=False).tolist()
        ]
        books = Books.opened(
            Nodes.of(Node(f"n{n}", {"a": a, "b": b}) for n, (a, b) in enumerate(capacity.tolist()))
        )
        total = np.sum([tasks * np.array(shape.demand) for tasks, shape in parts], axis=0)
        shape = Shape(tuple(total.tolist()), groups=tuple(parts))
        about = (0.0, "t", "u", 1, shape, 9.0, math.inf, math.inf, 0.0)
        job = Job("j", 0, *about, terms="apart=1")
        seats = [books.fits(part) for _, part in parts]
        fits = any(
            all(
                sum(int(seats[g][n]) for n, of in enumerate(whose) if of == g) >= tasks
                for g, (tasks, _) in enumerate(parts)
            )
            for whose in itertools.product(range(len(parts)), repeat=len(capacity))
        )
        assert books.has_room(job) == fits
        for by in (FirstFit(), BestFit(), WorstFit()):
            chosen = placed(by, job, books, 0.0)
            assert (chosen is not None) == fits
            if chosen is None:
                continue
            on = [[n for n, _ in mine] for _, mine in of_groups(shape, chosen[0])]
            assert len(set().union(*on)) == sum(len(set(nodes)) for nodes in on)
            trial = books.copy()
            trial.take(shape, chosen[1])
            assert (trial.free >= 0).all()
            count = [sum(c for _, c in mine) for _, mine in of_groups(shape, chosen[0])]
            assert count == [tasks for tasks, _ in parts]
        able += fits
    assert 50 < able < 250


def somehow_fits(free: list[list[int]], tasks: list[tuple[int, ...]]) -> bool:
    """Whether tasks fit on nodes in any way at all."""
    if not tasks:
        return True
    for n, has in enumerate(free):
        left = [a - b for a, b in zip(has, tasks[0])]
        if min(left) >= 0 and somehow_fits([*free[:n], left, *free[n + 1 :]], tasks[1:]):
            return True
    return False


def test_who_cannot_place_groups_has_them_set_aside_by_name():
    ray = Group(1, {"cpu": 2}), Group(2, {"cpu": 1})
    jobs = Jobs.of([0, 1], [5, 5], id=["ray", "other"], groups={"ray": ray})
    assert refuses_groups(create_scheduler("slurm")) == ""
    schedule = simulate_jobs(jobs, Nodes.pool(8), FirstStarts())
    assert np.isnan(schedule.start[0])
    (line,) = [line for line in schedule.account.lines() if line.startswith("set aside")]
    assert "unlike tasks, which FirstStarts cannot place" in line
    with pytest.raises(InfeasibleDecision, match="of 1"):
        simulate_jobs(jobs, Nodes.alike(2, {"cpu": 8}), PlacesAcross())


class FirstStarts(Careless):
    """Whoever comes starts on node 0, with all tasks there."""

    def place(self, queue, books, now):
        return [Place(job.id, ((0, job.tasks * job.shape.size),)) for job in queue]


class PlacesAcross(FirstStarts):
    groups = True


@pytest.mark.parametrize("engine", ["compiled", "plain"])
def test_jobs_beyond_the_depth_are_tried_at_the_next_instant(engine):
    """Job 2 passes the first in line and is the one that is looked at; job 3 is a second later."""
    jobs = Jobs.of(submit=[0, 1, 1, 1, 2], run=[100, 5, 10, 10, 5], tasks=[2, 4, 1, 1, 4])
    scheduler = create_scheduler("fcfs+easy+best-fit", depth=1)
    schedule = simulate_jobs(jobs, Nodes.pool(4), scheduler, engine=engine)
    assert schedule.start.tolist() == [0, 100, 1, 2, 105]


@pytest.mark.full
@pytest.mark.parametrize("backfilling", ["easy", "conservative"])
@pytest.mark.parametrize("choice", [each for each in CHOICES if each != "oracle"])
def test_nobody_starts_later_than_was_ever_promised(backfilling, choice):
    """Where jobs keep to their requests, nodes stay up and nobody is let in ahead of the queue."""
    kept = 0
    for seed in range(500):
        drawn_for = choice if choice == "fgd" else "first-fit"  # rates of 1, but for nobody else
        case = MiddleCase(seed, small=True, names=("fcfs", backfilling, drawn_for))
        jobs = case.jobs
        given = case.conditions
        if given.rates is not None or given.downs or given.drains or given.cancels:
            continue
        if jobs.after.size:
            continue
        if (jobs.run > jobs.limit).any():
            continue
        schedule = simulate_jobs(
            jobs, case.nodes, f"fcfs+{backfilling}+{choice}", engine="compiled"
        )
        promised = np.isfinite(schedule.reserved)
        assert (schedule.start[promised] <= schedule.reserved[promised]).all(), seed
        kept += int(promised.sum())
    assert kept > 10


def test_every_schedule_keeps_to_what_must_hold():
    """Of built-in parts, and of schedulers that preempt, which no second simulator plays."""
    for seed in range(len(COMBINATIONS)):
        case = MiddleCase(seed, small=True)
        assert broken(case, case.played(engine="compiled")) == []
    preempted = 0
    for seed in range(30):
        case = MiddleCase(seed, small=True)
        for scheduler in preemptive(shares=seed < 3):
            schedule = simulate_jobs(
                case.jobs, case.nodes, scheduler, case.conditions, case.options, engine="plain"
            )
            assert broken(case, schedule) == []
            preempted += schedule.counts["preemptions"]
    assert preempted > 10


def broken(case: MiddleCase, schedule: Schedule) -> list[Violation]:
    """What an auditor says of a schedule, which shares nothing with the simulation."""
    return audit(Outcome.of(schedule, "x"), None, case.conditions, case.options).findings


def preemptive(shares: bool) -> list:
    """Schedulers that take running jobs off their nodes, often; shares take a programme a round."""
    least = LeastAttained((2.0, 6.0), pause=1.0)
    return [least, Gavel("total", seconds=3.0)] if shares else [least]


def test_a_job_that_moves_is_charged_for_once():
    nodes = Nodes.pool(4)
    job = Jobs.of([0], [9], 1).job(0)
    order, books = FairShare(half_life=np.inf), Books.opened(nodes)
    order.started(job, books, 0.0)
    order.started(job, books, 10.0)  # it moves: preempted and started
    books.events += [Event("preempted", 10.0, job), Event("started", 10.0, job)]
    order.take_in(books)
    assert order.keys([job], books, 20.0) == [20 / 4]
    books.events[:] = [Event("finished", 20.0, job)]
    order.take_in(books)
    assert order.keys([job], books, 30.0) == [20 / 4]


def test_ends_that_move_there_and_back_have_room():
    """A job that is killed at its limit whatever its node's rate, which changes 65 times."""
    jobs = Jobs.of(submit=[0, 500], run=[1e6, 10], limit=[1000, 100], demand={"gpu": 1})
    factors = [(float(t), 0, 1.0 - 0.5 * (t % 2)) for t in range(1, 66)]
    tables = Tables.of(
        jobs, Nodes.alike(2, {"gpu": 1}), Conditions(factors=factors), Options(enforced=True)
    )
    playing = JobSimulation(tables, create_scheduler("fcfs+none+first-fit"))
    while playing.step():
        assert playing.state.at.ends <= playing.state.ends.size
    assert playing.schedule().end.tolist() == [1000, 510]


@pytest.mark.parametrize("rate", [4.0, 0.1, 0.75, 1.0, 3.3])
def test_ends_at_one_instant_are_one_instant(rate: float) -> None:
    """Two jobs end at 100 s in exact arithmetic, so that the third goes where first-fit says."""
    jobs = Jobs.of([0, 0, 1], [100, 100 * rate, 50], 1, {"gpu": [4, 8, 4]}, limit=1000)
    nodes = Nodes.of([Node("a", {"gpu": 4}), Node("b", {"gpu": 8})])
    hidden = Conditions(rates=np.array([[1.0, rate]]))
    for engine in "auto", "plain":
        schedule = simulate_jobs(jobs, nodes, "fcfs+none+first-fit", hidden, engine=engine)
        assert schedule.end[:2].tolist() == [100, 100]
        assert schedule.start[2] == 100
        assert schedule.placed(2) == [(0, 1)]
