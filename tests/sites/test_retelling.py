"""Retelling, against plain loops and on logs that a known rule has made."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from benchmarks.intervals import draw

from gangwise.core.errors import ScenarioError
from gangwise.jobs import Group, Jobs, Nodes, simulate_jobs
from gangwise.jobs.metrics import Outcome
from gangwise.sites.retelling import Record, WeeklyClosing, retell, sweep

DAY = 86400.0
RULES = ("fcfs+easy+best-fit", "fcfs+none+best-fit", "sjf+easy+best-fit", "wfp3+easy+best-fit")


def made(seed: int, jobs: int = 240) -> tuple[Jobs, Nodes]:
    """Twelve busy days on four nodes, limits up to four times the run time, seven users."""
    rng = np.random.default_rng(seed)
    run = rng.lognormal(8.5, 1.2, jobs)
    drawn = Jobs.of(
        np.sort(rng.uniform(0, 12 * DAY, jobs)),
        run,
        rng.integers(1, 9, jobs),
        {"cpu": 1.0, "gpu": 0.0},
        limit=run * rng.uniform(1, 4, jobs),
        user=[f"u{u}" for u in rng.integers(0, 7, jobs)],
    )
    return drawn, Nodes.alike(2, {"cpu": 4, "gpu": 1})


def recorded_under(rule: str, seed: int) -> tuple[Outcome, dict[str, Outcome]]:
    jobs, nodes = made(seed)
    played = {name: Outcome.of(simulate_jobs(jobs, nodes, name), name) for name in RULES}
    jobs = replace(jobs, recorded_start=played[rule].start, recorded_end=played[rule].end)
    then = Outcome.recorded(jobs, nodes)
    assert then is not None
    return then, played


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_retells_its_own_log_whole_and_others_less(rule: str) -> None:
    then, played = recorded_under(rule, 1)
    assert then.waiting.mean() > 3600
    for name, now in played.items():
        told = retell(then, now, np.array(["a", "b"])[np.arange(240) % 2])
        shares = [told.explained, told.by_job, told.near, told.order, told.waits]
        shares += [told.use, told.queue, *(told.by(what) for what in told.groups)]
        if name == rule:
            assert shares == pytest.approx([1] * len(shares), abs=1e-9)
        else:
            # What is too much in one group makes up for nothing in another.
            assert max(shares[:5]) < 1 or told.by_job < 0.99
            for what in told.groups:
                assert told.by_job - 1e-9 <= told.by(what) <= told.explained + 1e-9


def plainly(then: Outcome, now: Outcome, partition: list[str], on: list[bool]) -> dict[str, object]:
    """The definitions again, job by job."""
    each = [j for j in range(len(on)) if on[j] and np.isfinite(then.end[j] + now.end[j])]
    submit = then.jobs.submit
    was, is_ = ({j: o.start[j] - submit[j] for j in each} for o in (then, now))

    def explained(groups: dict[object, list[int]]) -> float:
        off = sum(abs(sum(is_[j] - was[j] for j in of)) for of in groups.values())
        return max(0.0, 1 - off / sum(was.values()))

    def grouped(key: object) -> float:
        found: dict[object, list[int]] = {}
        for j in each:
            found.setdefault(key(j), []).append(j)
        return explained(found)

    held = dict.fromkeys(range(7), 0.0)
    for j in each:
        held[then.jobs.user[j]] += (then.end[j] - then.start[j]) * then.jobs.tasks[j]
    rank, before = {}, 0.0
    for u in sorted(held, key=lambda u: -held[u]):
        share = before / sum(held.values())
        rank[u] = 0 if share < 0.5 else 1 if share < 0.9 else 2
        before += held[u]

    def by_hour(lines: list[list[tuple[float, float, float]]]) -> float:
        first, last = min(submit[j] for j in each), max(max(then.end[each]), max(now.end[each]))
        sums = [[0.0] * (int((last - first) / 3600) + 1) for _ in lines]
        for line, of in zip(sums, lines):
            for begin, end, amount in of:
                for h in range(int((begin - first) / 3600), int((end - first) / 3600) + 1):
                    low, high = first + 3600 * h, first + 3600 * (h + 1)
                    line[h] += amount * max(0.0, min(end, high) - max(begin, low))
        return max(0.0, 1 - sum(abs(a - b) for a, b in zip(*sums)) / sum(sums[0]))

    agree = pairs = 0
    for i in each:
        for j in each:
            apart = then.start[i] != then.start[j]
            if 0 < each.index(j) - each.index(i) <= 64 and submit[j] < then.start[i] and apart:
                pairs += 1
                sides = [o.start[j] - o.start[i] for o in (then, now)]
                agree += 0 if sides[1] == 0 else 1 if sides[0] * sides[1] > 0 else -1
    tasks = then.jobs.tasks
    return {
        "explained": grouped(lambda j: 0),
        "by_job": grouped(lambda j: j),
        "partition": grouped(lambda j: partition[j]),
        "size": grouped(lambda j: np.ceil(np.log2(tasks[j]))),
        "user": grouped(lambda j: rank[then.jobs.user[j]]),
        "day": grouped(lambda j: (submit[j] - submit[0]) // DAY),
        "near": np.mean([abs(is_[j] - was[j]) <= max(600, 0.1 * was[j]) for j in each]),
        "order": agree / pairs,
        "use": by_hour([[(o.start[j], o.end[j], tasks[j]) for j in each] for o in (then, now)]),
        "queue": by_hour([[(submit[j], o.start[j], 1.0) for j in each] for o in (then, now)]),
    }


@pytest.mark.parametrize("seed", [2, 3, 4])
def test_against_plain_loops(seed: int) -> None:
    then, played = recorded_under("fcfs+easy+best-fit", seed)
    rng = np.random.default_rng(seed)
    noisy = then.start + rng.exponential(7200, 240)  # a world that differs from every rule
    noisy[rng.random(240) < 0.1] = np.nan  # the log does not say
    then = replace(then, start=noisy, last_start=noisy, end=noisy + then.jobs.run)
    partition, on = rng.choice(["short", "long", "gpu"], 240), rng.random(240) < 0.8
    for now in played.values():
        told = retell(then, now, partition, on)
        for key, value in plainly(then, now, partition.tolist(), on.tolist()).items():
            found = told.by(key) if key in told.groups else getattr(told, key)
            assert found == pytest.approx(value, abs=1e-9), key
        for what, groups in told.groups.items():
            assert sum(g.jobs for g in groups) == told.jobs, what
            total = sum(g.jobs * g.recorded for g in groups) / told.jobs
            assert total == pytest.approx(told.recorded), what


def test_a_job_that_is_withdrawn_stands_in_line_until_then() -> None:
    """Of four devices two are idle: the first in line asks for all four, and then gives up."""
    jobs = Jobs.of(
        [0, 10, 20],
        [100, 1, 60],
        [2, 4, 2],
        recorded_start=[0, np.nan, 50],
        recorded_end=[100, np.nan, 110],
        withdrawn=[np.inf, 50, np.inf],
    )
    swept = sweep(Record.of(jobs, Nodes.pool(4)))
    assert not swept.refused.any()
    alone = replace(jobs, withdrawn=np.full(3, np.inf))
    swept = sweep(Record.of(alone, Nodes.pool(4)))
    assert swept.time[swept.refused].tolist() == [20]


@pytest.mark.parametrize(("busy", "refused"), [(1, True), (3, False)])
def test_a_job_of_groups_fits_where_each_finds_room_beside_the_others(busy, refused) -> None:
    """Two groups of six cores on nodes of eight: no node holds both, and two empty nodes do.

    A job has ``busy`` cores of the second node until the other starts.
    """
    groups = {"het": [Group(1, {"cpu": 6.0}), Group(1, {"cpu": 6.0}, 1)]}
    jobs = Jobs.of(
        *([0.0, 10.0], [90.0, 50.0], 1, {"cpu": [busy, 0.0]}),
        id=["first", "het"],
        groups=groups,
        recorded_start=[0.0, 90.0],
        recorded_end=[90.0, 140.0],
    )
    hosts = np.array([0, 1, 3]), np.array([1, 0, 1])
    swept = sweep(Record.of(jobs, Nodes.alike(2, {"cpu": 8.0}), hosts=hosts))
    assert swept.lasts[swept.refused].tolist() == [80.0] * refused


def test_what_cannot_be_compared_is_said() -> None:
    then, played = recorded_under("fcfs+easy+best-fit", 1)
    with pytest.raises(ScenarioError, match="start"):
        retell(then, played["fcfs+easy+best-fit"], on=np.zeros(240, dtype=bool))
    jobs, nodes = made(1, 30)
    with pytest.raises(ScenarioError, match="and 30"):
        retell(then, Outcome.of(simulate_jobs(jobs, nodes, "fcfs"), "fcfs"))
    atonce = replace(then.jobs, recorded_start=then.jobs.submit, recorded_end=then.jobs.submit + 1)
    told = retell(Outcome.recorded(atonce, nodes), then)
    assert np.isnan([told.explained, told.order]).all()
    assert "partition" not in told.groups


PAIRED = (
    "fcfs+none",
    "fcfs+easy",
    "sjf+easy",
    "saf+easy",
    "wfp3+easy",
    "fcfs+conservative:depth=50",
)


def test_wrong_rules_are_doubted_and_the_true_ones_are_not() -> None:
    """30 pairs of a rule in force and another that is assumed, on logs that set no limit."""
    for kind, seed in (("terms", 931), ("gangs", 932)):
        jobs, nodes = draw(kind, 4, seed)
        played = {rule: simulate_jobs(jobs, nodes, rule) for rule in PAIRED}
        doubted = by_the_mean = 0
        for true, schedule in played.items():
            log = replace(jobs, recorded_start=schedule.start, recorded_end=schedule.end)
            then = Outcome.recorded(log, nodes)
            for assumed in PAIRED:
                found = retell(then, Outcome.of(played[assumed], assumed))
                if assumed == true:
                    assert found.explained == found.by_job == found.order == found.busy == 1
                    assert not found.doubtful
                else:
                    doubted += found.doubtful
                    by_the_mean += found.explained < 0.8
        assert doubted >= 27
        assert doubted > by_the_mean


def test_an_instant_at_the_edge_of_an_hour_belongs_to_the_hour_that_begins() -> None:
    """Also where rounding of its seconds puts it a hair before."""
    closed = np.isin(np.arange(168), [9])
    rule = WeeklyClosing(np.ones(4), 0, closed, -np.inf, np.inf)
    nine = 3600.0 * (9 + 168 * 2700)
    at = np.array([np.nextafter(nine, 0), nine, np.nextafter(nine + 3600, 0), nine + 3600]) - 1800
    assert at[0] < nine - 1800
    assert rule.holds(at, 1800).tolist() == [True, True, False, False]
