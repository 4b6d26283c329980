"""What a log tells of its site, beside plain code, and with rules planted by plain code."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gangwise.core.errors import ScenarioError
from gangwise.jobs import Jobs, Nodes, simulate_jobs
from gangwise.jobs.calibration import calibrate, spans_of
from gangwise.jobs.contradictions import Limit, Record, Site, sweep
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


def log_of(jobs: Jobs, nodes: Nodes, start: np.ndarray, **more) -> Record:
    pools = [f"p{int(name[1:]) % 3}" for name in np.array(jobs.users)[jobs.user]]
    log = replace(jobs, recorded_start=start, recorded_end=start + jobs.run)
    return Record.of(log, nodes, groups={"pool": pools}, **more)


@pytest.mark.parametrize("seed", range(12))
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
    site = Site(tuple(Limit(g, w, most, float(i == 0)) for i, (g, w, most) in enumerate(caps)))
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


def _planted(jobs: Jobs, nodes: Nodes, group: np.ndarray, most: int) -> Record:
    def may(j: int, running: dict[int, float], now: float) -> bool:
        return group[j] < 0 or sum(group[k] == group[j] for k in running) < most

    total = int(nodes.capacity[0, 0]) // 1000
    return log_of(jobs, nodes, plain.play(jobs.submit, jobs.run, jobs.tasks, total, may))


@pytest.mark.parametrize("seed", [0, 1])
def test_a_planted_cap_of_every_user_is_found_and_nothing_else(seed: int) -> None:
    jobs, nodes = drawn(seed, 1200, total=60)
    (one,) = calibrate(_planted(jobs, nodes, jobs.user, 2)).findings
    assert one.entry == {"scope": "user", "of": "jobs", "most": 2}
    assert one.between == (2, 3)
    assert one.explains[1] > 50


def test_a_planted_cap_of_a_pool_is_found_and_nothing_else() -> None:
    jobs, nodes = drawn(5, 1600, total=60)
    pool = np.array([int(name[1:]) % 3 for name in np.array(jobs.users)[jobs.user]])
    (one,) = calibrate(_planted(jobs, nodes, np.where(pool == 1, 1, -1), 3)).findings
    assert one.entry == {"scope": "pool", "only": ["p1"], "of": "jobs", "most": 3}


def test_planted_closing_hours_are_found_and_nothing_else() -> None:
    jobs, nodes = drawn(7, 4000, total=60)
    long = jobs.limit > 4 * 3600

    def may(j: int, running: dict[int, float], now: float) -> bool:
        hour = int(now // 3600) % 168
        return not (long[j] and hour < 120 and 8 <= hour % 24 < 18)

    start = plain.play(jobs.submit, jobs.run, jobs.tasks, 60, may)
    (one,) = calibrate(log_of(jobs, nodes, start, monday=0.0)).findings
    assert one.kind == "closed"
    hours = np.zeros((7, 24), dtype=bool)
    hours[:5, 8:18] = True
    assert not (one.rule.hours & ~hours.ravel()).any()
    assert (one.rule.hours & hours.ravel()).sum() >= 45
    assert one.between[0] <= 4 * 3600 < one.between[1]


def test_a_planted_outage_is_found_and_nothing_else() -> None:
    jobs, nodes = drawn(9, 2400, total=60)
    begin, end = 40 * DAY, 42 * DAY
    start = plain.play(
        *(jobs.submit, jobs.run, jobs.tasks, 60), lambda j, running, now: not begin <= now < end
    )
    (one,) = calibrate(log_of(jobs, nodes, start)).findings
    assert one.kind == "window"
    assert begin <= one.entry["from"] < end <= one.entry["to"] < end + 6 * 3600
    low, high = one.between
    assert low <= 60 == high


def test_logs_without_waits_are_refused() -> None:
    with pytest.raises(ScenarioError, match="does not say when jobs started"):
        Record.of(Jobs.of([0, 1], [5, 5]), Nodes.pool(2))
    same = Jobs.of([0, 1], [5, 5], recorded_start=[0, 1], recorded_end=[5, 6])
    with pytest.raises(ScenarioError, match="nobody waited"):
        Record.of(same, Nodes.pool(2))


def test_hours_in_words() -> None:
    assert spans_of(np.zeros(168, dtype=bool)) == []
    assert spans_of(np.ones(168, dtype=bool)) == ["Mon-Sun 00:00-24:00"]
