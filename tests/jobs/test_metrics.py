"""Metrics of schedules against plain loops over jobs, pieces and seconds."""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import fmean

import numpy as np
import pytest

from gangwise.jobs import Conditions, Jobs, Node, Nodes, Options, simulate_jobs
from gangwise.jobs.kernels import FINISHED, SET_ASIDE
from gangwise.jobs.metrics import ENDINGS, LAST, Outcome, by_group, size_groups
from gangwise.jobs.schedule import Tables
from gangwise.jobs.scheduler import create_scheduler
from gangwise.jobs.simulation import JobSimulation
from tests.jobs.middle import MiddleCase

POLICIES = ("fcfs+easy+best-fit", "sjf+none+first-fit", "fcfs+none+worst-fit")


def played(seed: int) -> tuple[MiddleCase, Outcome]:
    case = MiddleCase(seed, small=True)
    schedule = simulate_jobs(
        case.jobs, case.nodes, POLICIES[seed % 3], case.conditions, case.options
    )
    return case, Outcome.of(schedule, "made")


def holds(outcome: Outcome) -> list[tuple[int, int, float, float, list[float]]]:
    """Job, node, begin, end and devices of every piece, in plain numbers."""
    found = []
    of = outcome.pieces
    for p in range(of.job.size):
        job = int(of.job[p])
        shape = outcome.jobs.shapes[outcome.jobs.shape[job]]
        devices = [0.0] * len(outcome.nodes.devices)
        for name, amount in zip(outcome.jobs.devices, shape.demand):
            devices[outcome.nodes.devices.index(name)] = amount / 1000 * int(of.tasks[p])
        found.append((job, int(of.node[p]), float(of.begin[p]), float(of.end[p]), devices))
    return found


def some(outcome: Outcome) -> bool:
    return bool(np.isfinite(outcome.end).any())


@pytest.mark.parametrize("seed", range(12))
def test_device_seconds_and_bins_are_those_of_a_walk_through_the_seconds(seed: int) -> None:
    _, outcome = played(seed)
    if not some(outcome) or outcome.makespan == 0:
        return
    first, last = (int(x) for x in (outcome.span[0], math.ceil(outcome.span[1])))
    pieces = holds(outcome)
    for k, device in enumerate(outcome.nodes.devices):
        fine = 4  # rates of a half or a third end between seconds: compare the exact sum apart
        exact = sum(devices[k] * (end - begin) for _, _, begin, end, devices in pieces)
        assert outcome.device_seconds[k] == pytest.approx(exact)
        edges = np.linspace(first, last, (last - first) * fine + 1)
        binned = outcome.over_time(device, edges)
        walked = [
            sum(
                devices[k] * max(0.0, min(end, b) - max(begin, a))
                for _, _, begin, end, devices in pieces
            )
            / (b - a)
            for a, b in pairwise(edges)
        ]
        assert binned == pytest.approx(walked, abs=1e-9)
        share = exact / (outcome.nodes.capacity[:, k].sum() / 1000 * outcome.makespan)
        assert outcome.utilisation[device] == pytest.approx(share)


@pytest.mark.parametrize("seed", range(12))
def test_waiting_completion_slowdown_and_users_job_by_job(seed: int) -> None:
    case, outcome = played(seed)
    if not outcome.finished.any():
        return
    waits_of: dict[str, list[float]] = {}
    slowdowns_of: dict[str, list[float]] = {}
    late = 0
    for j in range(len(case.jobs)):
        job = case.jobs.job(j)
        start, last = float(outcome.start[j]), float(outcome.last_start[j])
        end = float(outcome.end[j])
        did = outcome.phase[j] == FINISHED
        if math.isfinite(job.deadline) and not (did and end <= job.deadline):
            late += 1
        if not math.isnan(start):
            waits_of.setdefault(job.user, []).append(start - job.submitted)
        if did:
            slowdown = max(1.0, (end - job.submitted) / max(end - last, 10.0))
            slowdowns_of.setdefault(job.user, []).append(slowdown)
    found = outcome.summary()
    assert found["jobs"] == sum(outcome.phase != SET_ASIDE)
    assert found["finished"] == sum(map(len, slowdowns_of.values()))
    assert found["waiting.mean"] == pytest.approx(
        fmean(w for each in waits_of.values() for w in each)
    )
    assert found["slowdown.mean"] == pytest.approx(
        fmean(s for each in slowdowns_of.values() for s in each)
    )
    assert found["deadlines missed"] == late
    means = [fmean(each) for each in slowdowns_of.values()]
    jain = sum(means) ** 2 / (len(means) * sum(m * m for m in means))
    assert found["unfairness"] == pytest.approx(1 - jain, abs=1e-12)
    worst = max(fmean(each) for each in waits_of.values())
    assert found["worst users"] == pytest.approx(worst)  # fewer than 20 users: the worst one


@pytest.mark.parametrize("seed", range(20))
def test_idle_while_waiting_is_that_of_a_walk_from_event_to_event(seed: int) -> None:
    case, outcome = played(seed)
    if not some(outcome):
        return
    pieces = holds(outcome)
    for k, device in enumerate(outcome.nodes.devices):
        asks = outcome.demand[:, k]
        moments = sorted(
            {float(t) for t in (*outcome.jobs.submit, *outcome.start, *outcome.end) if t == t}
            | {t for _, _, begin, end, _ in pieces for t in (begin, end)}
        )
        total = 0.0
        capacity = case.nodes.capacity[:, k].sum() / 1000
        for a, b in pairwise(moments):
            idle = capacity - sum(d[k] for _, _, begin, end, d in pieces if begin <= a < end)
            waits = [
                asks[j]
                for j in range(len(case.jobs))
                if asks[j] > 0
                and math.isfinite(outcome.end[j])
                and case.jobs.submit[j] <= a < outcome.start[j]
            ]
            if waits and min(waits) <= idle + 1e-9:
                total += idle * (b - a)
        assert outcome.idle_while_waiting(device) == pytest.approx(total, abs=1e-6)


def test_a_gang_on_a_slow_node_loses_what_all_its_devices_held_for_nothing() -> None:
    nodes = Nodes.of([Node("fast", {"gpu": 4}), Node("slow", {"gpu": 4})])
    jobs = Jobs.of(submit=[0, 0], run=[100, 100], tasks=[2, 1], demand={"gpu": [4, 1]})
    schedule = simulate_jobs(
        jobs, nodes, "fcfs+none+first-fit", Conditions(rates=np.array([[1.0, 0.5]]))
    )
    outcome = Outcome.of(schedule, "x")
    # The gang holds 8 GPUs for 200 s and needed 100 s; the other job then runs on the fast node.
    assert outcome.rates.tolist() == [0.5, 1.0]
    assert outcome.stragglers().tolist() == [800.0]
    assert outcome.summary()["stragglers.gpu"] == pytest.approx(800 / 3600)
    held = 8 * 200 + 100
    assert outcome.utilisation["gpu"] == pytest.approx(held / (8 * 300))
    assert outcome.goodput["gpu"] == pytest.approx((held - 800) / (8 * 300))


def test_work_lost_to_a_failed_node_counts_as_restarts_and_not_as_goodput() -> None:
    nodes = Nodes.alike(1, {"gpu": 2})
    jobs = Jobs.of(submit=[0], run=[100], tasks=[2], demand={"gpu": 1})
    schedule = simulate_jobs(
        jobs, nodes, "fcfs", Conditions(downs=[(60, 0)], ups=[(70, 0)]), Options(restart=5.0)
    )
    outcome = Outcome.of(schedule, "x")
    assert outcome.waiting.tolist() == [0.0]
    assert outcome.end.tolist() == [175.0]
    assert outcome.device_seconds.tolist() == [2 * 60 + 2 * 105]
    assert outcome.restarts()[0] == schedule.lost[0] > 0
    assert np.isnan(outcome.rates).all()  # two attempts: not to be read off


def test_what_a_restart_lost_is_of_every_device_type_for_as_long() -> None:
    """A job whose most numerous devices are not those of which it holds the largest share."""
    nodes = Nodes.alike(1, {"gpu": 4, "cpu": 64})
    jobs = Jobs.of(submit=[0], run=[100], tasks=[1], demand={"gpu": 2, "cpu": 8})
    schedule = simulate_jobs(
        jobs, nodes, "fcfs", Conditions(downs=[(60, 0)], ups=[(70, 0)]), Options(restart=5.0)
    )
    outcome = Outcome.of(schedule, "x", restart=5.0)
    lost = dict(zip(outcome.nodes.devices, outcome.restarts(), strict=True))
    assert lost == pytest.approx({"gpu": 2 * 65, "cpu": 8 * 65})


def test_worst_users_are_a_tenth_of_them() -> None:
    """Thirty users one after the other on one device: the last three wait 270, 280 and 290 s."""
    jobs = Jobs.of(submit=[0] * 30, run=[10] * 30, user=[f"u{i}" for i in range(30)])
    outcome = Outcome.of(simulate_jobs(jobs, Nodes.pool(1), "fcfs"), "x")
    assert outcome.worst_users == pytest.approx(280.0)


def made_of_every_ending() -> tuple[Jobs, Nodes, Conditions, Options]:
    """A job for each ending on a node of its own, so that all can be worked out by hand.

    done: 1 GPU for 80 s. killed: 2 GPUs, needs 100 s, has 60. requeued: its node is down from 30 s
    to 40 s, it starts again, pays 5 s and needs its 50 s anew: until 95 s. cancelled at 20 s.
    unfinished: its node fails at 10 s for good. withdrawn while it waits for that node.
    """
    names = ("done", "killed", "requeued", "cancelled", "unfinished", "unfinished")
    nodes = Nodes.of([Node(n, {"gpu": 2}, {"own": n}) for n in dict.fromkeys(names)])
    jobs = Jobs.of(
        submit=[0, 0, 0, 0, 0, 15],
        run=[80, 100, 50, 70, 90, 10],
        tasks=[1, 2, 1, 1, 1, 1],
        demand={"gpu": 1},
        limit=[80, 60, 1000, 1000, 1000, 1000],
        constraint=[{"own": name} for name in names],
        deadline=[100, 100, 100, 100, 100, 100],
    )
    conditions = Conditions(downs=[(30, 2), (10, 4)], ups=[(40, 2)], cancels=[(20, 3), (25, 5)])
    return jobs, nodes, conditions, Options(enforced=True, restart=5.0)


def test_every_ending_is_counted_with_its_device_hours_by_hand() -> None:
    jobs, nodes, conditions, options = made_of_every_ending()
    for engine in ("compiled", "plain"):
        schedule = simulate_jobs(jobs, nodes, "fcfs+easy", conditions, options, engine=engine)
        outcome = Outcome.of(schedule, "x", options.restart)
        found = outcome.summary()
        assert [found[key] for key in ("jobs", "finished", *ENDINGS)] == [6, 2, 1, 2, 2, 0, 1]
        ended = ["finished", "killed", "finished", "cancelled", "unfinished", "cancelled"]
        assert outcome.columns()["ended"].tolist() == ended
        held = {key: found[f"{key}.gpu"] * 3600 for key in ENDINGS}
        assert held == pytest.approx(
            {"killed": 120, "failed": 30 + 10, "cancelled": 20, "preempted": 0, "unfinished": 0}
        )
        # Done: 80 s, and 55 s of which 5 s are the restart; both by their deadline, and no other.
        assert found["restarts.gpu"] * 3600 == pytest.approx(30 + 5 + 10)
        assert found["thrown away.gpu"] * 3600 == pytest.approx(120 + 20 + 10 + 30 + 5)
        assert found["goodput.gpu"] == pytest.approx((80 + 50) / (10 * 95))
        assert found["utilisation.gpu"] == pytest.approx((80 + 120 + 85 + 20 + 10) / (10 * 95))
        assert found["completion.mean"] == pytest.approx((80 + 95) / 2)
        assert found["waiting.mean"] == 0.0  # of the five that started
        assert outcome.started.sum() == 5
        assert outcome.until_left == pytest.approx((80 + 60 + 95 + 20) / 4)
        assert found["deadlines missed"] == 4


def test_what_still_runs_is_unfinished_and_has_held_until_the_last_known_end() -> None:
    jobs = Jobs.of(submit=[0, 0], run=[30, 100], tasks=[1, 3])
    simulation = JobSimulation(
        Tables.of(jobs, Nodes.pool(4), Conditions(), Options()), create_scheduler("fcfs")
    )
    while not (simulation.jobs["phase"] == FINISHED).any():
        simulation.step()
    outcome = Outcome.of(simulation.schedule(), "x")
    count, seconds = outcome.endings["unfinished"]
    assert (count, seconds.tolist(), outcome.finished.tolist()) == (1, [90], [True, False])


@pytest.mark.parametrize("seed", range(12))
def test_every_device_second_held_has_one_ending(seed: int) -> None:
    case = MiddleCase(seed, small=True)
    name = "las" if seed % 4 == 0 else POLICIES[seed % 3]
    schedule = simulate_jobs(case.jobs, case.nodes, name, case.conditions, case.options)
    outcome = Outcome.of(schedule, "made")
    ends = outcome.endings
    of = outcome.pieces
    done = [
        devices
        for p, (j, _, begin, end, each) in enumerate(holds(outcome))
        if outcome.phase[j] == FINISHED and of.why[p] == LAST
        for devices in [[d * (end - begin) for d in each]]
    ]
    held = np.sum(done, axis=0) if done else 0.0
    total = held + sum(seconds for _, seconds in ends.values())
    assert total == pytest.approx(outcome.device_seconds)
    counted = [ends[key][0] for key in ("killed", "failed", "preempted", "cancelled")]
    told = [schedule.counts[key] for key in ("kills", "requeues", "preemptions", "cancellations")]
    assert counted == told
    played = int((outcome.phase != SET_ASIDE).sum())
    others = sum(ends[key][0] for key in ("killed", "cancelled", "unfinished"))
    assert outcome.finished.sum() + others == played
    if case.options.enforced and case.conditions.rates is None:  # by limits and run times alone
        overrun = case.jobs.run > case.jobs.limit
        assert not (overrun & outcome.finished & (schedule.attempts == 1)).any()


def test_as_it_happened_is_measured_like_a_policy() -> None:
    jobs = Jobs.of(
        submit=[0, 10], run=[50, 20], tasks=[1, 2], recorded_start=[5, 60], recorded_end=[55, 80]
    )
    nodes = Nodes.pool(2)
    outcome = Outcome.recorded(jobs, nodes)
    assert outcome is not None
    found = outcome.summary()
    assert (found["waiting.mean"], found["completion.mean"]) == (27.5, 62.5)
    assert outcome.utilisation["cpu"] == pytest.approx((50 + 40) / (2 * 80))
    assert math.isnan(found["microseconds per decision"])
    assert Outcome.recorded(Jobs.of([0], [1]), nodes) is None


def test_groups_and_percentiles() -> None:
    sizes = np.array([1.0, 3, 7, 100, 2, 1, 33, 64, 5])
    group, names = size_groups(sizes)
    for g, name in enumerate(names):
        low, _, high = name.partition(" to ")
        inside = sizes[group == g]
        assert (inside.min(), inside.max()) == (float(low), float(high or low))
    assert [group[i] for i in np.argsort(sizes)] == sorted(group)
    jobs = Jobs.of(submit=[0, 0, 0], run=[1, 2, 3], tasks=[1, 1, 2])
    outcome = Outcome.of(simulate_jobs(jobs, Nodes.pool(4)), "x")
    assert by_group(outcome, np.array([0, 0, 2]), outcome.completion) == {0: 1.5, 2: 3.0}


@pytest.mark.parametrize(
    ("rules", "starts"), [("fcfs+none", 60), ("fcfs+easy", 60), ("sjf+none", 20)]
)
def test_a_job_that_was_withdrawn_waits_in_line_until_then_and_is_in_no_mean(rules, starts):
    # On 4 processors: the second asks for all of them, and leaves the line at 60. The third would
    # run beside the first, but not while the second is before it.
    jobs = Jobs.of(
        submit=[0, 10, 20],
        run=[100, 0, 50],
        tasks=[3, 4, 1],
        limit=[100, 1000, 200],
        withdrawn=[np.inf, 60, np.inf],
        recorded_start=[0, np.nan, 60],
        recorded_end=[100, np.nan, 110],
    )
    played = simulate_jobs(jobs, Nodes.pool(4), rules)
    outcome = Outcome.of(played, rules)
    assert played.start[2] == starts
    assert outcome.started.tolist() == outcome.finished.tolist() == [True, False, True]
    summary = outcome.summary()
    assert (summary["finished"], summary["cancelled"]) == (2, 1)
    assert summary["waiting.mean"] == (starts - 20) / 2
    assert summary["completion.mean"] == (100 + starts + 50 - 20) / 2
    assert Outcome.recorded(jobs, Nodes.pool(4)).started.tolist() == [True, False, True]


def test_where_there_is_room_a_job_that_was_withdrawn_only_leaves_the_line():
    jobs = Jobs.of([0, 1, 2], [9, 0, 9], [1, 4, 1], limit=9, withdrawn=[np.inf, 500, np.inf])
    outcome = Outcome.of(simulate_jobs(jobs, Nodes.pool(4), "fcfs+none"), "fcfs+none")
    assert outcome.start[2] == 9  # after the first, and not at 500
    assert outcome.finished.tolist() == [True, False, True]


def test_a_job_that_ran_when_the_log_ended_holds_devices_and_has_no_completion():
    jobs = Jobs.of([0, 5], [50, 20], [4, 4], censored=[True, False])
    outcome = Outcome.of(simulate_jobs(jobs, Nodes.pool(4), "fcfs+none"), "fcfs+none")
    summary = outcome.summary()
    assert (summary["finished"], summary["unfinished"]) == (1, 1)
    assert summary["completion.mean"] == 65
    assert summary["waiting.mean"] == 22.5  # both started
    assert summary["unfinished.cpu"] == pytest.approx(4 * 50 / 3600)


def test_devices_are_held_while_a_job_is_about_to_start() -> None:
    """Two jobs of 100 s, one after the other, each 100 s in starting: 400 of 400 s are held."""
    jobs = Jobs.of([0, 0], [100, 100], 1, {"gpu": 1}, limit=100)
    played = simulate_jobs(jobs, Nodes.alike(1, {"gpu": 1}), "fcfs", None, Options(latency=100.0))
    outcome = Outcome.of(played, "fcfs")
    assert outcome.end.tolist() == [200, 400]
    assert outcome.utilisation == {"gpu": 1.0}
    assert outcome.goodput == {"gpu": 0.5}
    assert outcome.over_time("gpu", np.array([0.0, 100.0, 400.0])).tolist() == [1, 1]
