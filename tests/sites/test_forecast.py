"""When waiting jobs start: futures against the schedule, distributions against chance."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gangwise.core.errors import ScenarioError
from gangwise.jobs import Conditions, Jobs, Nodes, Options, kernels
from gangwise.jobs.simulation import simulate_jobs
from gangwise.sites.forecast import (
    DAY,
    Forecaster,
    History,
    StartCalibration,
    censored_levels,
    coming,
    draw,
    moment_of,
)
from gangwise.sites.site import Rules, Site
from gangwise.study.explain import forecast_log


def drawn(rng: np.random.Generator, jobs: int, nodes: int) -> tuple[Jobs, Nodes]:
    run = rng.exponential(40.0 * nodes, jobs) + 1
    return (
        Jobs.of(
            np.sort(rng.uniform(0, 3000, jobs)),
            run,
            rng.integers(1, 4, jobs),
            {"cpu": rng.integers(1, 5, jobs), "gpu": rng.choice([0, 1, 2], jobs)},
            limit=run * rng.uniform(0.8, 3, jobs),
            user=rng.integers(0, 5, jobs).astype(str),
        ),
        Nodes.alike(nodes, {"cpu": 8, "gpu": 4}),
    )


SITE = {
    "closed": [{"hours": ["Mon-Sun 00:20-00:40"], "longer_than": 100}],
    "cap": [{"scope": "user", "of": "jobs", "most": 3}],
    "clock": {"start": "2026-01-05T00:00:00"},
}


@pytest.mark.parametrize("site", [{}, SITE], ids=["plain", "site"])
@pytest.mark.parametrize("enforced", [False, True])
@pytest.mark.parametrize(
    "rules",
    ["fcfs+easy+best-fit", "sjf+easy+first-fit", "fcfs+none+worst-fit", "wfp3+easy", "f3+easy"],
)
def test_with_the_true_times_a_future_is_the_schedule(
    rules: str, enforced: bool, site: dict
) -> None:
    """From the state of any moment, the same jobs under the same rules start when they started."""
    of_site = Site(Rules.model_validate(site))
    options = of_site.options(Options(enforced=enforced))
    rng, waited = np.random.default_rng(1), 0
    for _ in range(4):
        case = drawn(rng, int(rng.integers(50, 300)), int(rng.integers(2, 12)))
        jobs, nodes, _ = of_site.placed(*case, Conditions())
        schedule = simulate_jobs(jobs, nodes, rules, None, options)
        forecaster = Forecaster(jobs, nodes, rules, options)
        can = ~forecaster.tables.aside
        now = float(rng.uniform(1000, 3000))
        moment = moment_of(jobs, nodes, now, schedule.start, schedule.end, can, schedule)
        later = np.flatnonzero((jobs.submit > now) & can)
        here = np.concatenate([moment.running, moment.waiting, later])
        found = forecaster._play(moment, later, jobs.submit[later], jobs.run[here])
        np.testing.assert_allclose(found, schedule.start[moment.waiting], atol=1e-6)
        waited += moment.waiting.size
    assert waited > 50


def test_a_promise_is_by_requests() -> None:
    """a holds both devices until 100 by its request; b takes one of them, c both after b."""
    jobs = Jobs.of([0, 1, 2], [40, 10, 10], [2, 1, 2], limit=[100, 30, 20])
    forecaster = Forecaster(jobs, Nodes.pool(2))
    times = np.array([0.0, np.nan, np.nan]), np.full(3, np.inf)
    moment = moment_of(jobs, Nodes.pool(2), 5.0, *times, np.ones(3, bool))
    assert forecaster.promised(moment).tolist() == [100.0, 130.0]


def test_a_promise_keeps_to_the_topology() -> None:
    """A core is free on either node; both pods of c have to be on one, which is free at 50."""
    jobs = Jobs.of([0, 1, 2], [40, 10, 10], [1, 1, 2], {"cpu": [2, 2, 1]}, limit=[100, 49, 20])
    nodes, times = Nodes.alike(2, {"cpu": 3}), np.array([0.0, 1.0, np.nan])
    moment = moment_of(jobs, nodes, 5.0, times, np.full(3, np.inf), np.ones(3, bool))
    starts = {
        name: Forecaster(jobs, nodes, f"fcfs+easy+{name}").promised(moment).tolist()
        for name in ("best-fit", "tas-required")
    }
    assert starts == {"best-fit": [5.0], "tas-required": [50.0]}


@pytest.mark.parametrize("order", ["fair-share", "multifactor"])
def test_an_order_by_use_of_the_past_is_not_assumed(order: str) -> None:
    jobs = Jobs.of([0, 1], [40, 10], [2, 1])
    assert Forecaster(jobs, Nodes.pool(2), f"{order}+easy").rules.queue == kernels.FCFS


def test_a_promise_keeps_to_the_limit_of_an_array() -> None:
    """One job of the array runs at once, though a core is free."""
    jobs = Jobs.of([0, 1, 2], [40, 10, 10], 1, limit=[50, 20, 20], terms=["array=7%1"] * 3)
    forecaster, times = Forecaster(jobs, Nodes.pool(2)), np.array([0.0, np.nan, np.nan])
    moment = moment_of(jobs, Nodes.pool(2), 5.0, times, np.full(3, np.inf), np.ones(3, bool))
    assert forecaster.promised(moment).tolist() == [50.0, 70.0]


def test_run_times_are_those_of_the_like_that_ran_longer() -> None:
    """u's jobs ran 10 or 60 s; one that has run for 30 s will take 60. v's say nothing of them."""
    run = np.array([10.0, 60.0] * 20 + [500.0] * 40 + [0.0])
    jobs = Jobs.of(100 * np.arange(81.0), run, limit=1000, user=["u"] * 40 + ["v"] * 40 + ["u"])
    history = History(jobs, run, np.append(jobs.submit[:-1] + run[:-1], np.inf))
    levels, drawn = np.random.default_rng(0).random((400, 1)), np.empty((400, 1))
    draw(history.by(1e4), np.array([80]), np.array([30.0]), 1e4, levels, drawn)
    assert (drawn > 30).all()
    assert (np.abs(np.log(drawn / 60)) < 0.5).mean() > 0.8
    draw(history.by(1e4), np.array([80]), np.zeros(1), 1e4, levels, drawn)
    shares = (drawn < 25).mean(), ((drawn > 25) & (drawn < 150)).mean()
    assert min(shares) > 0.2  # newer ones weigh more, and the newest took 60 s
    assert sum(shares) > 0.95
    early = history.by(2000.0)  # earlier than before: begins anew
    assert early.memory.ended.tolist() == [20, 0]


def test_who_comes_came_before_at_the_same_time_of_day() -> None:
    submit = np.arange(0.0, 40 * 86_400.0, 86_400.0) + 3600.0
    rows, when = coming(submit, submit[-1] + 60.0, 12, np.random.default_rng(0))
    assert rows.size == 12
    assert (np.diff(when, prepend=submit[-1] + 60.0) > 0).all()
    assert np.allclose(when % 86_400.0, 3600.0)
    assert coming(submit, 100.0, 12, np.random.default_rng(0))[0].size == 0


def test_who_still_waits_counts_in_a_calibration() -> None:
    """Starts a third later than told, of which by now only the earlier half is known.

    Beside them the estimate by its definition: at each start the product over those at risk.
    """
    rng, drawn = np.random.default_rng(0), np.linspace(0.0, 1000.0, 1001)
    true = 1000.0 * rng.beta(2.0, 1.0, 2000)  # median .707, where .5 was told
    both, started = StartCalibration(), StartCalibration()
    for start, now in zip(true, rng.uniform(0.0, 1500.0, true.size)):
        both.learn(drawn, 0.0, start, now, rng)
        if start <= now:
            started.learn(drawn, 0.0, start, now, rng)
    median = both.quantiles(drawn, 0.0, [0.5])[0]
    assert median == pytest.approx(707, abs=20)
    assert started.known == both.known
    assert started.quantiles(drawn, 0.0, [0.5])[0] < median - 50
    place, came = rng.random(300), rng.random(300) < 0.6
    left = [
        np.prod([1 - 1 / (place >= p).sum() for p in place[came & (place <= q)]])
        for q in (0.2, 0.5)
    ]
    shares = [1 - left[0], 1 - left[1]]
    assert censored_levels(place, 1.0 * came, np.ones(300), shares) == pytest.approx(
        [0.2, 0.5], abs=0.02
    )


@pytest.mark.full
def test_quantiles_hold_what_they_say() -> None:
    """On a single server with run times from one distribution, nothing learned and nothing fitted.

    Counted over moments far apart; a tenth of the draws as chance has it.
    """
    rng = np.random.default_rng(3)
    J = 1500
    run = rng.choice([20.0, 100.0, 300.0], J)
    jobs = Jobs.of(np.cumsum(rng.exponential(150.0, J)), run, limit=1000, user="u")
    nodes = Nodes.pool(1)
    schedule = simulate_jobs(jobs, nodes)
    forecaster, inside, calibration = Forecaster(jobs, nodes), [], StartCalibration()
    for now in np.linspace(jobs.submit[500], jobs.submit[-300], 90):
        moment = moment_of(jobs, nodes, now, schedule.start, schedule.end, np.ones(J, bool))
        if moment.waiting.size:
            starts = forecaster.starts(moment, History(jobs, run, schedule.end), 25, rng)[:, -1]
            true = schedule.start[moment.waiting[-1]]
            inside.append(true <= calibration.quantiles(starts, now, (0.5, 0.9)))
            calibration.learn(starts, now, true, np.inf, rng)
    share = np.mean(inside, axis=0)
    sd = np.sqrt(np.array([0.25, 0.09]) / len(inside))
    assert len(inside) > 40
    assert (np.abs(share - (0.5, 0.9)) < 3 * sd + 0.03).all(), share


def test_a_calibration_moves_quantiles_to_where_starts_were() -> None:
    """Starts that all lay in the upper half told: the median becomes the third quarter."""
    rng, calibration = np.random.default_rng(0), StartCalibration()
    drawn = np.linspace(0.0, 1000.0, 1001)
    for start in rng.uniform(500.0, 1000.0, 2000):
        calibration.learn(drawn, 0.0, start, np.inf, rng)
    assert calibration.quantiles(drawn, 0.0, [0.5])[0] == pytest.approx(750, abs=15)
    later = 70.0 * DAY  # by then those count a thousandth
    for start in later + rng.uniform(0.0, 500.0, 500):
        calibration.learn(later + drawn, later, start, np.inf, rng)
    assert calibration.quantiles(later + drawn, later, [0.5])[0] - later == pytest.approx(
        250, abs=25
    )
    assert StartCalibration().quantiles(drawn, 0.0, [0.5, 0.9]) == pytest.approx([500, 900], abs=30)


def test_forecasts_with_like_medians_count_most() -> None:
    """A third of the time told where that is minutes; as told, or a little later, at hours."""
    rng, calibration = np.random.default_rng(0), StartCalibration()
    soon, late = np.linspace(1.0, 100.0, 100), np.linspace(1.0, 40_000.0, 100)
    for _ in range(1000):
        calibration.learn(soon, 0.0, rng.uniform(1.0, 33.0), np.inf, rng)
        calibration.learn(late, 0.0, rng.uniform(1.0, 40_000.0), np.inf, rng)
    assert calibration.quantiles(soon, 0.0, [0.5])[0] == pytest.approx(17, abs=2)
    assert calibration.quantiles(late, 0.0, [0.5])[0] == pytest.approx(20_000, abs=2_000)
    never = np.full(100, np.inf)  # in no future
    assert np.isinf(calibration.quantiles(never, 0.0, [0.5, 0.9])).all()


def test_starts_outside_of_all_futures_are_learned() -> None:
    """All futures start at once, and a rule that nobody knows delays: its quantiles are told."""
    rng, calibration, at_once = np.random.default_rng(0), StartCalibration(), np.full(50, 10.0)
    delays = rng.exponential(600.0, 4000)
    for delay in delays:
        calibration.learn(at_once, 9.0, 10.0 + delay, np.inf, rng)
    told = calibration.quantiles(at_once + 90.0, 99.0, [0.5, 0.9])
    assert told == pytest.approx([100 + 600 * np.log(2), 100 + 600 * np.log(10)], rel=0.07)
    early, drawn = StartCalibration(), np.linspace(500.0, 1000.0, 51)
    for start in rng.uniform(0.0, 500.0, 4000):  # before the first of all futures
        early.learn(drawn, 0.0, start, np.inf, rng)
    assert early.quantiles(drawn, 0.0, [0.5, 0.9]) == pytest.approx([250, 450], abs=25)


DUMP = """JobID|User|State|Submit|Start|End|Elapsed|Timelimit|ReqTRES|NodeList
1|ana|COMPLETED|DT08:00:00|DT08:00:00|DT09:00:00|01:00:00|02:00:00|cpu=4,node=1|n1
2|ben|CANCELLED|DT08:10:00|Unknown|DT08:20:00|00:00:00|01:00:00|cpu=4,node=1|None assigned
3|ben|RUNNING|DT08:30:00|DT09:00:00|Unknown|01:30:00|04:00:00|cpu=4,node=1|n1
4|cyd|PENDING|DT09:30:00|Unknown|Unknown|00:00:00|02:00:00|cpu=4,node=1|None assigned
5|ana|PENDING|DT10:00:00|Unknown|Unknown|00:00:00|01:00:00|cpu=4,node=1|None assigned
""".replace("DT", "2024-03-01T")


def test_a_print_of_sacct_says_when_jobs_that_wait_will_start(tmp_path) -> None:
    """Now is 10:30, to which job 3 has run; by requests it ends at 13:00, and job 4 at 15:00."""
    (tmp_path / "jobs.txt").write_text(DUMP)
    found = forecast_log(str(tmp_path / "jobs.txt"), None, draws=10)
    assert found.now == 2.5 * 3600
    assert [(row["job"], row["waited"], row["promised"]) for row in found.rows] == [
        ("4", 3600, 2.5 * 3600),
        ("5", 1800, 4.5 * 3600),
    ]
    assert all(0 < row["p50"] <= row["p90"] and row["started"] is None for row in found.rows)
    with pytest.raises(ScenarioError, match="to 2024-03-01 10:30"):
        forecast_log(str(tmp_path / "jobs.txt"), 9001.0)


def test_head_and_workers_wait_as_one_job_and_without_limits_nothing_is_promised(tmp_path) -> None:
    """Two clusters of a head and two workers of four GPUs each, on two nodes of four."""
    items = [{"kind": "Node", "metadata": {"name": f"n{i}"}, "spec": {}} for i in range(2)]
    for node in items:
        node["status"] = {"allocatable": {"cpu": "16", "nvidia.com/gpu": "4"}}
    for hour, cluster in ((8, "a"), (9, "b")):
        for part, gpus in (("head", 0), ("w0", 4), ("w1", 4)):
            at = f"2025-03-03T0{hour}:00:00Z"
            meta = {"name": f"{cluster}-{part}", "namespace": "t", "creationTimestamp": at}
            meta["labels"] = {"ray.io/cluster": cluster}
            asked = {"cpu": "2", "nvidia.com/gpu": str(gpus)}
            spec = {"containers": [{"resources": {"requests": asked}}]}
            status = {"phase": "Pending"}
            if cluster == "a":
                status = {"phase": "Running", "startTime": at}
                spec["nodeName"] = f"n{int(part == 'w1')}"
            items.append({"kind": "Pod", "metadata": meta, "spec": spec, "status": status})
    (tmp_path / "dump.json").write_text(json.dumps({"kind": "List", "items": items}))
    (row,) = forecast_log(str(tmp_path / "dump.json"), None, draws=10).rows
    assert (row["job"], row["tasks"], row["limit"], row["promised"]) == ("t/b", 3, None, None)
    assert row["p50"] > 0
