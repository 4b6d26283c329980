"""What a log tells of its site, beside plain code, and with rules planted by plain code."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gangwise.core.errors import ScenarioError
from gangwise.jobs import Jobs, Nodes, simulate_jobs
from gangwise.notation import expand_nodes
from gangwise.sites.calibration import _asked, calibrate
from gangwise.sites.retelling import GroupLimit, Record, SiteConstraints, sweep
from gangwise.sites.site import Rules
from gangwise.sites.site import Site as HiddenSite
from tests.reference import contradictions as plain

DAY = 86400.0
WEEKS = 16


def drawn(seed: int, count: int = 800, total: int = 40) -> tuple[Jobs, Nodes]:
    """Sixteen weeks of a cluster that is busy now and then; twelve users of three pools."""
    rng = np.random.default_rng(seed)
    submit = np.sort(rng.uniform(0, WEEKS * 7 * DAY, count // 4)).repeat(4)
    submit += rng.integers(0, 900, count)
    run = np.ceil(rng.lognormal(9.3, 1.0, count))
    user = rng.integers(0, 12, count // 4).repeat(4)
    jobs = Jobs.of(
        submit.astype(float),
        run,
        rng.choice([1, 2, 4, 8], count),
        limit=3600.0 * np.ceil(run * rng.uniform(1, 4, count) / 3600),
        user=[f"u{n:02d}" for n in user],
    )
    return jobs, Nodes.pool(total)


def log_of(jobs: Jobs, nodes: Nodes, start: np.ndarray) -> Record:
    pools = [f"p{int(name[1:]) % 3}" for name in np.array(jobs.users)[jobs.user]]
    log = replace(jobs, recorded_start=start, recorded_end=start + jobs.run)
    return Record.of(log, nodes, groups={"pool": pools})


@pytest.mark.parametrize("seed", range(5))
def test_contradictions_are_those_of_plain_code(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count, total = int(rng.integers(30, 200)), int(rng.integers(4, 30))
    submit = np.sort(rng.integers(0, 3000, count)).astype(float)
    start = submit + rng.choice([0, 0, 5, 50, 300], count)
    run = rng.integers(0, 200, count).astype(float)
    jobs = Jobs.of(
        *(submit, run, rng.integers(1, total, count)),
        user=rng.integers(0, 5, count).astype(str),
        recorded_start=start,
        recorded_end=start + run,
    )
    record = Record.of(jobs, Nodes.pool(total))
    group = np.where(rng.random(count) < 0.7, jobs.user, -1)
    caps = [(group, np.ones(count), 2.0), (jobs.user, record.size, total / 2)][: seed % 3]
    site = SiteConstraints(tuple(GroupLimit(*cap) for cap in caps))
    found = sweep(record, site)
    times, refused = plain.refused(submit, start, start + run, record.size, total, caps)
    assert found.time.tolist() == times.tolist()
    on = found.lasts > 0
    assert found.refused[on].tolist() == refused[on].tolist()


@pytest.mark.parametrize("rules", ["fcfs", "fcfs+easy", "sjf+easy", "fair-share+easy"])
def test_nothing_is_invented_where_nothing_is_planted(rules: str) -> None:
    jobs, nodes = drawn(3, total=16)
    schedule = simulate_jobs(jobs, nodes, rules)
    assert (schedule.start - jobs.submit > 0).mean() > 0.2  # some of them wait
    record = log_of(jobs, nodes, schedule.start)
    assert not sweep(record).refused.any()
    assert calibrate(record).findings == ()


def planted(jobs: Jobs, nodes: Nodes, may) -> Record:
    """The log of jobs that start only while ``may(job, running, now)``."""
    total = int(nodes.capacity[0, 0]) // 1000
    return log_of(jobs, nodes, plain.play(jobs.submit, jobs.run, jobs.tasks, total, may))


def capped(group: np.ndarray, most: int):
    """Whether a job's group is below a cap on its jobs; -1 is of no group."""
    return lambda j, running, now: group[j] < 0 or sum(group[k] == group[j] for k in running) < most


@pytest.mark.parametrize("seed", [0, 1])
def test_a_planted_cap_of_every_user_is_found_and_nothing_else(seed: int) -> None:
    jobs, nodes = drawn(seed, 1200, total=60)
    (one,) = calibrate(planted(jobs, nodes, capped(jobs.user, 2))).findings
    assert one.entry == {"scope": "user", "of": "jobs", "most": 2}
    assert one.between == (2, 3)
    assert one.explains[1] > 50


def test_a_planted_cap_of_a_pool_is_found_and_nothing_else() -> None:
    jobs, nodes = drawn(5, 1600, total=60)
    pool = np.array([int(name[1:]) % 3 for name in np.array(jobs.users)[jobs.user]])
    may = capped(np.where(pool == 1, 1, -1), 3)
    (one,) = calibrate(planted(jobs, nodes, may)).findings
    assert one.entry == {"scope": "pool", "only": ["p1"], "of": "jobs", "most": 3}


@pytest.mark.parametrize("whose", ["long", "large", "pool", "everybody", "others"])
def test_planted_closing_hours_are_found_and_nothing_else(whose: str) -> None:
    jobs, nodes = drawn(7, 4000, total=60)
    user = jobs.user == 3
    about = {
        "long": jobs.limit > 4 * 3600,
        "large": jobs.tasks > 2,
        "pool": np.array([int(name[1:]) % 3 == 1 for name in np.array(jobs.users)[jobs.user]]),
        "everybody": np.ones(len(jobs), bool),
        "others": ~user,
    }[whose]

    def may(j: int, running: dict[int, float], now: float) -> bool:
        hour = int(now // 3600) % 168
        return not (about[j] and hour < 120 and 8 <= hour % 24 < 18)

    (one,) = calibrate(planted(jobs, nodes, may)).findings
    assert one.kind == "closed"
    hours = np.zeros((7, 24), dtype=bool)
    hours[:5, 8:18] = True
    assert not (one.rule.hours & ~hours.ravel()).any()
    assert (one.rule.hours & hours.ravel()).sum() >= 45
    assert ((one.rule.asks > one.rule.over) == about).all()
    named = {"long": "longer_than", "large": "more_than", "pool": "pool", "others": "except"}
    assert {*named.values()} & one.entry.keys() == {*[named.get(whose)]} - {None}


@pytest.mark.parametrize("seed", [5, 7])
def test_a_closing_whose_bound_is_not_among_the_common_requests_is_found(seed: int) -> None:
    """Most ask for one of twenty round limits; the longest, for seconds of their own."""
    jobs, nodes = drawn(20 + seed, 4000, total=60)
    rng = np.random.default_rng(seed)
    own = np.maximum(jobs.run * rng.uniform(1.05, 3, len(jobs)), 60).round()
    usual = 1800.0 * np.ceil(own / 1800)
    jobs = replace(
        jobs, limit=np.where((usual <= 36_000) | (rng.random(len(jobs)) < 0.2), usual, own)
    )
    over = float(np.quantile(jobs.limit, {5: 0.94, 7: 0.95}[seed])) + 0.5
    about = jobs.limit > over

    def may(j: int, running: dict[int, float], now: float) -> bool:
        hour = int(now // 3600) % 168
        return not (about[j] and hour < 120 and 8 <= hour % 24 < 18)

    (one,) = calibrate(planted(jobs, nodes, may)).findings
    assert one.between[0] <= over <= one.between[1]
    assert ((one.rule.asks > one.rule.over) != about).sum() <= 10


def test_days_that_one_user_has_for_himself_are_found_and_nothing_else() -> None:
    jobs, nodes = drawn(9, 3000, total=60)
    begin, end = 40 * DAY, 42 * DAY
    user = jobs.user[np.searchsorted(jobs.submit, begin) + 1]
    mine = np.flatnonzero(jobs.user == user)[:24]
    submit = jobs.submit.copy()
    submit[mine] = np.linspace(begin, end - 3600, mine.size)
    jobs = replace(jobs, submit=submit)
    record = planted(jobs, nodes, lambda j, _, now: not begin <= now < end or jobs.user[j] == user)
    (one,) = calibrate(record).findings
    assert one.kind == "closed"
    assert one.entry["except"] == [jobs.users[user]]
    assert begin <= one.entry["from"] < begin + 12 * 3600
    assert end - 3600 <= one.entry["to"] < end + 3600


@pytest.mark.parametrize("rules", ["fcfs+easy+first-fit", "fcfs+easy+best-fit"])
def test_nodes_of_pools_are_found_where_the_log_has_them_and_nothing_else(rules: str) -> None:
    jobs, _ = drawn(4, 3000)
    jobs = replace(jobs, pools=("a", "b", "c"), pool=jobs.user % 3)
    nodes = Nodes.alike(12, {"cpu": 3})
    on = {"a": range(6), "b": range(4, 9), "c": range(12)}
    names = [nodes.names[i] for i in range(12)]
    pools = [{"name": name, "nodes": ",".join(names[i] for i in on[name])} for name in "ab"]
    for site in (None, Rules.model_validate({"pool": pools})):
        played = simulate_jobs(jobs, nodes, rules, site=site and HiddenSite(site))
        assert (played.start - jobs.submit > 60).mean() > 0.02
        log = replace(jobs, recorded_start=played.start, recorded_end=played.end)
        on_nodes = [sorted({n for n, _ in played.placed(j)}) for j in range(len(jobs))]
        hosts = np.cumsum([0, *map(len, on_nodes)]), np.concatenate(on_nodes)
        record = Record.of(
            log, nodes, groups={"pool": np.array(jobs.pools)[jobs.pool]}, hosts=hosts
        )
        found = [one for one in calibrate(record).findings if one.kind != "start"]
        named = {one.entry["name"]: expand_nodes(one.entry["nodes"]) for one in found}
        planted = {name: [names[i] for i in on[name]] for name in "ab"} if site else {}
        assert named == planted


def test_a_planted_outage_is_found_and_nothing_else() -> None:
    jobs, nodes = drawn(9, 2400, total=60)
    begin, end = 40 * DAY, 42 * DAY
    record = planted(jobs, nodes, lambda j, running, now: not begin <= now < end)
    (one,) = calibrate(record).findings
    assert one.kind == "window"
    assert begin <= one.entry["from"] < end <= one.entry["to"] < end + 6 * 3600
    low, high = one.between
    assert low <= 60 == high


def test_logs_without_waits_are_refused() -> None:
    with pytest.raises(ScenarioError, match="started"):
        Record.of(Jobs.of([0, 1], [5, 5]), Nodes.pool(2))


def test_bounds_that_are_asked_for_equally_often_are_all_tried() -> None:
    """Which of them a sort takes first differs between processors."""
    often, rest = 60.0 * np.arange(1, 30), 60.0 * np.arange(100, 140)
    limit = np.concatenate([np.repeat(often, 9), np.repeat(rest, 2)])
    jobs = Jobs.of(np.arange(limit.size), np.ones(limit.size), limit=limit, user="u1")
    start = jobs.submit.copy()
    _, _, _, bounds = next(_asked(log_of(jobs, Nodes.pool(4), start)))
    assert set(bounds) == {-1.0, *often, *rest}
