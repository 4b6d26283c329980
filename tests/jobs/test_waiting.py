"""Where the waiting went: against counting from scratch, and against taking the cause away."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from gangwise.core.settings import Clock
from gangwise.jobs import Conditions, Jobs, Node, Nodes, Options, simulate_jobs
from gangwise.jobs.metrics import Outcome, Pieces, held_devices
from gangwise.jobs.model import Group
from gangwise.jobs.schedule import placed_shapes
from gangwise.jobs.tenancy import Cap, Closing, Reservation, Tenancy
from gangwise.jobs.waiting import CAUSES, waiting_causes
from gangwise.sites.site import (
    CapRule,
    ClosedHours,
    MaintenanceWindow,
    OwnClock,
    Pool,
    Rules,
    Site,
    Start,
)
from tests.jobs.middle import MiddleCase, SiteCase
from tests.reference.waiting import NAMES, split


def _of(case: MiddleCase, reservations: bool = False):
    """The outcome of a case, and what it was played under."""
    conditions, options = case.conditions, case.options
    if case.rules is not None:
        site = Site(case.rules)
        _, _, conditions = site.placed(case.jobs, case.nodes, case.conditions)
        options = site.options(case.options)
    outcome = Outcome.of(case.played(), "")
    if reservations:  # no scheduler of these cases keeps them: the schedule is as it is
        last = int(case.jobs.submit.max())
        kept = Reservation("r", last * 0.2, last * 0.5 + 5, outcome.nodes.names[:2])
        options = replace(options, tenancy=Tenancy(reservations=(kept,)))
    return outcome, conditions, options


def _cases(count: int):
    for seed in range(count):
        if seed % 3:
            yield seed, *_of(SiteCase(seed), seed % 9 == 1)
        else:
            yield seed, *_of(MiddleCase(seed, small=seed % 2 == 0), seed % 9 == 3)


def _drawn(seed: int, unlike: bool = False):
    """A schedule of no scheduler: jobs start in any order, on any nodes, some long after they may.

    On nodes of two partitions with GPUs, told apart in a third of the cases, cores and memory;
    nodes go and come, hours are closed, caps and reservations are in force.
    """
    rng = np.random.default_rng([77, seed])
    J, N = 40, int(rng.integers(3, 7))
    submit = np.sort(rng.integers(0, 15_000, J)).astype(float)
    run = rng.integers(300, 9000, J).astype(float)
    gpu = rng.choice([0.0, 0.5, 1.0, 2.0, 4.0] if seed % 3 == 0 else [0.0, 1.0, 2.0, 4.0], J)
    groups, names = {}, [f"j{j}" for j in range(J)]
    for j in np.flatnonzero(rng.random(J) < 0.5 * unlike):
        groups[names[j]] = [
            Group(1, {"cpu": 4.0}),
            Group(int(rng.integers(1, 4)), {"gpu": float(rng.choice([1, 2])), "cpu": 1.0}),
        ]
    columns = {
        "tasks": np.where([n in groups for n in names], 1, rng.integers(1, 4, J)),
        "demand": {"gpu": gpu, "cpu": rng.integers(1, 9, J) * 1.0, "mem": rng.integers(1, 40, J)},
        "limit": run * rng.choice([1.0, 1.5, 4.0], J),
        "pool": rng.choice(["a", "b"], J),
        "user": rng.choice(["u", "v", "w"], J),
        "terms": np.where(rng.random(J) < 0.1, "reservation=r", ""),
    }
    after = {names[j]: [names[j - 3]] for j in range(3, J) if rng.random() < 0.1}
    jobs = Jobs.of(submit, run, id=names, groups=groups or None, after=after, **columns)
    nodes = Nodes.of(
        (Node(f"n{i}", {"gpu": 4.0, "cpu": 12.0, "mem": 80.0}) for i in range(N)),
        "gpu" if seed % 3 == 0 else None,
    )
    nodes = replace(nodes, pools={"a": tuple(range(N - 1)), "b": tuple(range(1, N))})
    away = [(float(rng.integers(0, 20_000)), int(n)) for n in rng.integers(0, N, seed % 4)]
    conditions = Conditions(drains=away, ups=[(t + 9000.0, n) for t, n in away])
    kept = Reservation("r", 9_000.0, 20_000.0, nodes.names[:2])
    night = Closing(("Mon-Sun 00:30-05:00",), Clock(0.0, "UTC"), 2000.0, Cap("job", "cpu", 10))
    caps = (Cap("user", "gpu", 5), Cap("all", "jobs", 6), Cap("pool", "cpu", 30, pool="a"))
    options = Options(
        caps=caps[: 1 + seed % 3],
        closed=(night,) * (seed % 2),
        tenancy=Tenancy(reservations=(kept,) * (seed % 4 == 1)),
    )
    shapes, held = placed_shapes(jobs, nodes), []  # (end, node, amounts) of what runs
    start, rows = np.full(J, np.nan), []
    waiting, now = list(range(J)), 0.0
    while waiting and now < 4e5:
        now += float(rng.integers(50, 600))
        held = [row for row in held if row[0] > now]
        gone = {names[j] for j in range(J) if start[j] + run[j] <= now}
        able = [j for j in waiting if submit[j] <= now and gone >= {*after.get(names[j], ())}]
        for j in rng.permutation(able)[:3].tolist():
            shape, free = shapes[jobs.shape[j]], nodes.capacity.copy()
            for _, n, amounts in held:
                free[n] -= amounts
            on, pieces = rng.permutation(np.flatnonzero(nodes.of_pool(shape.pool))).tolist(), []
            for tasks, part in shape.groups or [(int(jobs.tasks[j]), shape)]:
                asks = np.array(part.demand)
                for n in on:
                    most = min([tasks, *(f // d for f, d in zip(free[n].tolist(), asks) if d)])
                    if most:
                        pieces.append((n, most, most * asks))
                        free[n] -= most * asks
                        tasks -= most
                if tasks:
                    break
            else:
                waiting.remove(j)
                start[j], late = now + 20.0 * (j % 2), now  # half of them have a latency
                held += [(start[j] + run[j], n, amounts) for n, _, amounts in pieces]
                rows += [
                    (j, n, tasks, start[j], start[j] + run[j], -1, late) for n, tasks, _ in pieces
                ]
    pieces = Pieces(*(np.array(column) for column in zip(*rows)))
    demand, lost = held_devices(jobs, nodes), np.zeros(J)
    about = (demand, pieces, lost, lost == 0)
    return Outcome("drawn", jobs, nodes, start, start, start + run, *about), conditions, options


def _agrees(cases) -> set[str]:
    """That causes are those counted from scratch; gives those that occurred."""
    occurred = set()
    for seed, outcome, conditions, options in cases:
        if len(outcome.jobs) > 120 or not outcome.queued.any():
            continue
        causes = waiting_causes(outcome, conditions, options)
        expected = split(outcome, conditions, options)
        np.testing.assert_allclose(causes.seconds, expected, atol=1e-6, err_msg=f"seed {seed}")
        waits = outcome.waiting[outcome.queued]
        sums = causes.seconds[outcome.queued].sum(axis=1)
        assert (np.abs(sums - waits) <= np.spacing(waits)).all()
        total = causes.total
        charged = total.get("busy", 0) + total.get("overtaken", 0)
        # Devices that nobody holds, as where no node is up, are charged to nobody.
        assert causes.holders.sum() <= charged * (1 + 1e-9)
        assert causes.kept_for.sum() == pytest.approx(total.get("kept", 0))
        assert sum(causes.caps.values()) == pytest.approx(total.get("cap", 0))
        occurred |= total.keys()
    return occurred


def test_causes_of_drawn_schedules_are_those_counted_from_scratch() -> None:
    assert NAMES == CAUSES
    rare = {"overtaken", "closed", "partition"}  # named in planted sites, and by the exhaustive run
    assert _agrees((seed, *_drawn(seed)) for seed in range(8)) >= {*CAUSES} - rare


def test_causes_of_jobs_of_unlike_tasks_are_those_counted_from_scratch() -> None:
    assert _agrees((seed, *_drawn(seed, unlike=True)) for seed in range(3)) >= {"kept"}


@pytest.mark.full
def test_causes_are_those_counted_from_scratch() -> None:
    assert _agrees(_cases(24)) >= {*CAUSES} - {"reservation"}
    cases = ((seed, *_of(MiddleCase(seed, unlike=True))) for seed in range(8))
    assert _agrees(cases) >= {"pieces", "busy", "kept"}


# A site of 8 nodes at moderate load, in which one thing holds jobs back, and the same without it.

DAY = 86400.0


def _site(kind: str, seed: int, planted: bool):
    """A drawn site: an outcome, its conditions and options."""
    rng = np.random.default_rng([31, seed])
    J = 240
    submit = np.sort(rng.uniform(0, 4 * DAY, J))
    run = rng.uniform(1800, 5 * 3600, J)
    columns = {
        "tasks": 1,
        "demand": {"gpu": rng.choice([1.0, 2.0, 4.0], J, p=[0.6, 0.3, 0.1]), "mem": 8.0},
        "limit": run * rng.uniform(1.0, 1.5, J),
        "user": rng.choice(["ann", "bob", "cid", "dan"], J),
        "pool": np.full(J, "main"),
    }
    nodes, name = [{"gpu": 4.0, "mem": 256.0}] * 8, "fcfs+easy+best-fit"
    rules = {"clock": OwnClock(start=datetime(2026, 1, 5, tzinfo=UTC))}
    conditions = Conditions()
    few = rng.random(J) < 0.12
    if kind == "closed" and planted:
        rules["closed"] = (ClosedHours(hours=("Mon-Sun 08:00-20:00",)),)
    elif kind == "cap" and planted:
        rules["cap"] = (CapRule(scope="user", of="gpu", most=4),)
    elif kind == "away" and planted:
        rules["window"] = (MaintenanceWindow(since=DAY, to=2.5 * DAY, nodes="n0,n1,n2,n3,n4,n5"),)
    elif kind == "partition" and planted:
        columns["pool"] = np.where(rng.random(J) < 0.6, "small", "main")
        rules["pool"] = (
            Pool(name="small", nodes="n0,n1"),
            Pool(name="main", nodes="n2,n3,n4,n5,n6,n7"),
        )
    elif kind == "beside" and planted:
        nodes = [{"gpu": 4.0, "mem": 8.0}] * 8
    elif kind == "pieces":  # gangs of whole nodes, among many that take one GPU
        columns["demand"] = {"gpu": np.where(few, 4.0, 1.0), "mem": 1.0}
        columns["tasks"] = np.where(few, 2, 1)
        if planted:
            name = "fcfs+easy+worst-fit"
        else:
            nodes = [{"gpu": 32.0, "mem": 2048.0}]
    elif kind in ("kept", "unseen"):  # a few that need all nodes
        columns["demand"] = {"gpu": np.where(few, 4.0, 1.0), "mem": 1.0}
        columns["tasks"] = np.where(few, 7, 1)
        name = "fcfs+none+best-fit" if planted else "fcfs+easy+best-fit"
        if kind == "unseen":
            run = np.where(few, 9 * 3600.0, 600.0)
            columns["limit"] = run
    elif kind == "latency" and planted:
        rules["start"] = Start(latency=3600.0)
    elif kind == "overtaken":  # everything is too much, and some always come first
        run = run * 3
        columns["limit"] = run
        columns["priority"] = (columns["user"] == "ann") * 10.0 if planted else 0.0
        columns["user"] = np.where(rng.random(J) < 0.6, "ann", columns["user"])
        columns["priority"] = np.where(columns["user"] == "ann", 10.0 * planted, 0.0)
        name = "priority+easy+best-fit"
    elif kind == "after" and planted:
        columns["after"] = {j: [j - 1] for j in range(1, J) if j % 6}
    jobs = Jobs.of(submit, run, **columns)
    cluster = Nodes.of(Node(f"n{i}", devices) for i, devices in enumerate(nodes))
    site = Site(Rules(**rules))
    _, _, conditions = site.placed(jobs, cluster, conditions)
    schedule = simulate_jobs(jobs, cluster, name, site=site)
    return Outcome.of(schedule, name), conditions, site.options(Options())


PLANTS = ("closed", "cap", "away", "partition", "beside", "pieces", "kept", "unseen", "latency")
PLANTS += ("overtaken", "after")


@pytest.mark.parametrize("kind", PLANTS)
def test_a_planted_cause_is_named_and_its_hours_go_with_it(kind: str) -> None:
    for seed in (0, 1):  # 22 drawn sites
        outcome, *under = _site(kind, seed, True)
        causes = waiting_causes(outcome, *under)
        hours = causes.total
        others = {cause: s for cause, s in hours.items() if cause not in ("busy", kind)}
        assert hours[kind] > max([s for c, s in others.items()], default=0.0), (seed, hours)
        assert hours[kind] > 0.2 * sum(hours.values()), (seed, hours)
        without, *under = _site(kind, seed, False)
        left = waiting_causes(without, *under).total.get(kind, 0.0)
        assert left < 0.5 * hours[kind], (seed, hours, left)
        if kind == "overtaken":  # the order moves waiting from some to others
            waits = [
                o.waiting[np.array(o.jobs.users)[o.jobs.user] != "ann"].mean()
                for o in (outcome, without)
            ]
            assert waits[1] < waits[0]
            assert next(iter(causes.charged(causes.holders))) == "ann"
        else:
            assert without.waiting[without.queued].mean() < outcome.waiting[outcome.queued].mean()


def test_a_cap_is_named_with_whose_it_is() -> None:
    outcome, *under = _site("cap", 3, True)
    causes = waiting_causes(outcome, *under)
    assert set(causes.caps) == {
        f"cap on user {u}: 4 gpu at once" for u in ("ann", "bob", "cid", "dan")
    }
    by_user = causes.by(outcome.jobs.user, 4)[:, CAUSES.index("cap")]
    for name, seconds in zip(outcome.jobs.users, by_user):
        assert causes.caps[f"cap on user {name}: 4 gpu at once"] == pytest.approx(seconds)


def test_backfilling_without_bound_leaves_nothing_unseen() -> None:
    """EASY starts whatever ends, as requested, before the first in line; requests hold here."""
    for seed in range(4):
        outcome, *under = _site("kept", seed, False)
        assert waiting_causes(outcome, *under).total.get("unseen", 0.0) == 0.0
