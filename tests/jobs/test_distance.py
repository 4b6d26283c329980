"""Distance between the tasks of a gang: against a plain simulation, regression, all placements."""

from __future__ import annotations

import csv
import itertools
import math
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gangwise.core.errors import GangwiseError
from gangwise.jobs.audit import audit
from gangwise.jobs.books import Books, Rate
from gangwise.jobs.bounds import lower_bound
from gangwise.jobs.choice import ByRate, Constants, SharedFactors, fill
from gangwise.jobs.distance import (
    Distance,
    Near,
    TopologyAware,
    domains,
    fit_overheads,
    levels_of,
    nearest,
)
from gangwise.jobs.metrics import Outcome
from gangwise.jobs.model import Conditions, Group, Job, Jobs, Node, Nodes, Shape
from gangwise.jobs.schedule import Options
from gangwise.jobs.scheduler import create_scheduler
from gangwise.jobs.simulation import simulate_jobs
from gangwise.jobs.world import world_of
from gangwise.study.replay_scenario import ReplayInstance, bounded
from tests.reference import topology_aware

TRACES = os.environ.get("GANGWISE_TRACES")


def racks(N: int, per_rack: int = 4, per_block: int = 8, gpus: int = 4) -> Nodes:
    return Nodes.of(
        Node(f"n{n}", {"gpu": gpus}, {"rack": f"r{n // per_rack}", "block": f"b{n // per_block}"})
        for n in range(N)
    )


def drawn(seed: int, J: int = 150, N: int = 12, L: int = 3, groups: bool = False):
    """Jobs whose types mind distance by drawn shares, on nodes in racks and blocks."""
    rng = np.random.default_rng([44, seed])
    tasks, run = rng.choice([1, 2, 4, 8, 12], size=J), rng.integers(20, 2000, J).astype(float)
    some = {}
    if groups:
        for j in np.flatnonzero(rng.random(J) < 0.3).tolist():
            some[j] = [Group(1, {"gpu": 2}), Group(int(rng.integers(1, 6)), {"gpu": 1})]
    jobs = Jobs.of(
        submit=np.sort(rng.integers(0, 12_000, J)),
        run=run,
        tasks=tasks,
        demand={"gpu": 1.0},
        limit=run * rng.uniform(1, 4, J),
        type=[f"t{l}" for l in rng.integers(0, L, J)],
        groups=some or None,
    )
    overhead = np.cumsum(np.column_stack([np.zeros(L), rng.uniform(0, 0.5, (L, 3))]), axis=1)
    growth = np.cumsum(rng.uniform(0, 0.05, (L, 4)), axis=1)
    distance = Distance(("rack", "block"), overhead, growth)
    rates, noise = np.exp(rng.normal(0, 0.1, (L, N))), np.exp(rng.normal(0, 0.1, J))
    return jobs, racks(N), Conditions(rates=rates, noise=noise, distance=distance)


# --------------------------------------------------------------------------------------- the model


def test_levels_are_read_from_the_labels_that_operators_have():
    zone, region = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
    cloud = [Node(f"n{i}", {"gpu": 8}, {zone: f"z{i // 2}", region: "r"}) for i in range(4)]
    assert levels_of(Nodes.of(cloud)) == (zone, region)
    slurm = Nodes.of(
        Node(f"n{i}", {"cpu": 8}, {"switch": f"{i // 2}:top/s{i // 2}"}) for i in (0, 1, 2)
    )
    assert levels_of(slurm) == ("switch.2", "switch.1")
    assert domains(slurm, levels_of(slurm)).tolist() == [[0, 0, 1], [0, 0, 0], [0, 0, 0]]
    assert levels_of(Nodes.alike(3, {"gpu": 1})) == ()


def test_a_node_without_the_label_is_near_to_none_and_racks_of_one_name_may_be_two():
    nodes = Nodes.of(
        [
            Node("a", {"gpu": 1}, {"rack": "1", "block": "x"}),
            Node("b", {"gpu": 1}, {"rack": "1", "block": "y"}),
            Node("c", {"gpu": 1}, {"block": "y"}),
            Node("d", {"gpu": 1}, {"block": "y"}),
        ]
    )
    rack, block, cluster = domains(nodes, ("rack", "block")).tolist()
    assert len(set(rack)) == 4
    assert block == [0, 1, 1, 1]
    assert cluster == [0, 0, 0, 0]


def test_the_factor_is_the_formula():
    distance = Distance(("rack",), np.array([[0.0, 0.1, 0.4]]), np.array([[0.0, 0.05, 0.1]]))
    got = distance.factor(np.array([0, 0]), np.array([1, 16]))
    assert got[0].tolist() == [1, 1, 1]
    assert got[1] == pytest.approx(
        [1, 1 / (1.1 + 0.05 * math.log(16)), 1 / (1.4 + 0.1 * math.log(16))]
    )


@pytest.mark.parametrize(
    "bad", [np.zeros((1, 2)), np.zeros(3), np.array([[0.0, 0.1, np.nan]])], ids=["H", "L", "nan"]
)
def test_overheads_that_make_no_sense_are_refused(bad):
    with pytest.raises(GangwiseError, match="overheads"):
        Distance(("rack",), bad, np.zeros(bad.shape))
    with pytest.raises(GangwiseError, match="levels above the node"):
        Near(slowdown=(1.1,)).beliefs(racks(8), ("t",), None)


# ------------------------------------------------------------------------------ what is simulated


def plain_first_come(jobs: Jobs, nodes: Nodes, c: Conditions) -> list[tuple[float, float]]:
    """First come, first served on the first nodes: starts and ends, by the obvious algorithm."""
    free, running, result, now = [4] * len(nodes), [], [], 0.0
    labels = nodes.labels
    for j in range(len(jobs)):
        now = max(now, float(jobs.submit[j]))
        for end, on in sorted(running):
            if end <= now:
                running.remove((end, on))
                free = [f + on.get(n, 0) for n, f in enumerate(free)]
        while sum(free) < jobs.tasks[j]:
            end, on = min(running, key=lambda r: r[0])
            now = max(now, end)
            running.remove((end, on))
            free = [f + on.get(n, 0) for n, f in enumerate(free)]
        left, on = int(jobs.tasks[j]), {}
        for n in range(len(nodes)):
            if take := min(left, free[n]):
                on[n] = take
                free[n] -= take
                left -= take
        level = 0
        if len(on) > 1:
            level = 3
            if len({labels[n]["block"] for n in on}) == 1:
                level = 2
                if len({labels[n]["rack"] for n in on}) == 1:
                    level = 1
        t, m = int(jobs.type[j]), int(jobs.tasks[j])
        d = c.distance
        slow = 1 + d.overhead[t, level] + d.growth[t, level] * math.log(m) if m > 1 else 1.0
        rate = min(c.rates[t, n] for n in on) * c.noise[j] / slow
        end = now + float(jobs.run[j]) / rate
        running.append((end, on))
        result.append((now, end))
    return result


@pytest.mark.parametrize("engine", ["compiled", "plain"])
@pytest.mark.parametrize("seed", range(3))
def test_gangs_run_as_a_plain_simulation_says(seed, engine):
    jobs, nodes, c = drawn(seed)
    played = simulate_jobs(jobs, nodes, "fcfs+first-fit", c, engine=engine)
    expected = np.array(plain_first_come(jobs, nodes, c))
    np.testing.assert_allclose(np.column_stack([played.start, played.end]), expected, rtol=1e-9)


@pytest.mark.parametrize(
    ("name", "limits", "groups"),
    [
        ("fcfs+easy+distance", "wall-clock", False),
        ("fcfs+easy+tas-preferred", "wall-clock", False),
        *(
            pytest.param(*case, marks=pytest.mark.full)  # each compiles a play of its own
            for case in (
                ("sjf+distance", "wall-clock", False),
                ("fcfs+easy+tas-required", "wall-clock", False),
                ("fcfs+easy+tas-unconstrained", "wall-clock", True),
                ("fcfs+easy+distance", "work", False),
                ("fcfs+conservative+distance", "wall-clock", False),
                ("fcfs+conservative+tas-required", "wall-clock", False),
                ("fcfs+conservative+tas-preferred", "wall-clock", True),
                ("fcfs+easy+distance-oracle", "wall-clock", True),
                ("fcfs+easy+distance", "wall-clock", True),
                ("fcfs+easy+best-fit", "wall-clock", True),
            )
        ),
    ],
)
def test_both_engines_play_the_same_and_the_auditor_finds_nothing(name, limits, groups):
    for seed in range(1 if "conservative" in name else 3):  # which takes a minute in Python
        jobs, nodes, c = drawn(seed, groups=groups)
        o = Options(limits=limits)
        a = simulate_jobs(jobs, nodes, name, c, o)
        b = simulate_jobs(jobs, nodes, name, c, o, engine="plain")
        assert np.array_equal(a.start, b.start)
        assert np.array_equal(a.end, b.end)
        # Job by job: what a schedule keeps beyond the pieces of a job is nothing.
        assert [a.placed(j) for j in range(len(jobs))] == [b.placed(j) for j in range(len(jobs))]
        found = audit(Outcome.of(a, name), create_scheduler(name), c, o)
        assert not found.findings, found.findings[:3]


def test_gangs_that_move_are_played_alike_and_go_where_they_are_nearer():
    jobs, nodes, c = drawn(1)
    a, b = (
        simulate_jobs(
            jobs,
            nodes,
            replace(
                create_scheduler("fcfs+easy"),
                choice=ByRate("oracle", waits=True, look=600.0, near=Near()),
            ),
            c,
            engine=engine,
        )
        for engine in ("auto", "plain")
    )
    assert np.array_equal(a.start, b.start)
    assert np.array_equal(a.end, b.end)


def test_the_auditor_sees_a_gang_that_ends_as_if_it_were_near():
    jobs, nodes, c = drawn(0)
    played = simulate_jobs(jobs, nodes, "fcfs+first-fit", c)
    without = replace(c, distance=None)
    assert audit(Outcome.of(played, ""), None, without).counts["overrun"] > 10
    as_if = simulate_jobs(jobs, nodes, "fcfs+first-fit", without)
    assert audit(Outcome.of(as_if, ""), None, c).counts["killed"] > 10


# ------------------------------------------------------------------------------------ the choice


@pytest.mark.parametrize("seed", range(40))
def test_a_gang_goes_where_no_other_placement_is_faster(seed):
    """Against all ways to put its tasks on nodes: worst worth less log slowdown."""
    rng = np.random.default_rng([45, seed])
    N, tasks = 6, int(rng.integers(1, 7))
    nodes = racks(N, per_rack=2, per_block=4)
    domain = domains(nodes, ("rack", "block"))
    fits, worth = rng.integers(0, 4, N), rng.normal(0, 0.2, N).round(2)
    costs = np.concatenate([[0.0], np.cumsum(rng.uniform(0, 0.3, 3))])
    if fits.sum() < tasks:
        return

    def value(on: tuple[int, ...]) -> float:
        level = 0
        if len(on) > 1:
            level = next(h + 1 for h in range(3) if len({domain[h, n] for n in on}) == 1)
        return min(worth[n] for n in on) - costs[level]

    sets = (on for k in range(1, N + 1) for on in itertools.combinations(np.flatnonzero(fits), k))
    best = max(value(on) for on in sets if sum(fits[n] for n in on) >= tasks)
    among = nearest(tasks, fits, worth, costs, domain)
    chosen = fill(tasks, np.where(among, fits, 0), np.argsort(-worth, kind="stable"))
    assert sum(c for _, c in chosen) == tasks
    assert all(c <= fits[n] for n, c in chosen)
    assert value(tuple(n for n, _ in chosen)) == pytest.approx(best)


def learner(nodes: Nodes, c: Constants, near: Near, types: tuple[str, ...]) -> ByRate:
    choice = ByRate(SharedFactors(c), near=near)
    choice.resize(nodes, types)
    return choice


def gang(name: str, l: int, tasks: int) -> Job:
    shape = Shape((1000,))
    return Job(name, 0, 0.0, f"t{l}", "u", tasks, shape, 1e4, math.inf, math.inf, 0.0)


def test_what_is_learned_is_bayesian_regression():
    rng = np.random.default_rng(46)
    nodes, L = racks(16), 3
    sure = Constants(a=1e-6, f=0.0, e=0.0, surprise=1e9)  # nodes are known
    near = Near(slowdown=(1.1, 1.2, 1.3), of_tasks=0.1)
    choice = learner(nodes, sure, near, tuple(f"t{l}" for l in range(L)))
    rows = {h: [] for h in range(1, 4)}
    for i in range(80):
        l, size, tasks = int(rng.integers(L)), int(rng.integers(2, 5)), int(rng.integers(2, 40))
        on = sorted(rng.choice(16, size=size, replace=False).tolist())
        level = 3 - (len({n // 8 for n in on}) == 1) - (len({n // 4 for n in on}) == 1)
        log = rng.normal(-0.3, 0.2)
        rates = np.exp(log + rng.normal(0, 0.03, size))
        choice.observe(
            Rate(gang(str(i), l, tasks), tuple(on), tuple(rates), 0.0, 60.0, True, False)
        )
        x = np.zeros(L + 1)
        x[l], x[L] = 1.0, math.log(tasks / 8)
        rows[level].append((x, -np.log(rates).mean(), sure.u**2 + sure.epsilon**2 / size))
    for h, seen in rows.items():
        assert seen
        prior = np.zeros((L + 1, L + 1))
        prior[:L, :L] = near.of_all**2 + near.of_type**2 * np.eye(L)
        prior[L, L] = near.of_tasks**2
        start = np.append(np.full(L, math.log(near.slowdown[h - 1])), 0.0)
        X, y, v = (np.array(part) for part in zip(*seen))
        gain = prior @ X.T @ np.linalg.inv(X @ prior @ X.T + np.diag(v))
        np.testing.assert_allclose(
            choice.state.near.mean[h - 1], start + gain @ (y - X @ start), atol=1e-6
        )
        np.testing.assert_allclose(
            choice.state.near.cov[h - 1], prior - gain @ X @ prior, atol=1e-6
        )


def test_planted_slowdowns_are_learned_beside_slow_nodes():
    rng = np.random.default_rng(47)
    nodes = racks(16)
    choice = learner(nodes, Constants(), Near(), ("t0", "t1"))
    truth = {0: (0.0, 0.0, 0.05, 0.1), 1: (0.0, 0.3, 0.6, 0.9)}
    slow = np.where(np.arange(16) == 5, -0.5, 0.0)
    for i in range(1500):
        l = int(rng.integers(2))
        near = rng.random() < 0.6
        first = int(rng.integers(4)) * 4
        pool = np.arange(first, first + 4) if near else np.arange(16)
        on = sorted(rng.choice(pool, size=int(rng.integers(1, 4)), replace=False).tolist())
        level = 0
        if len(on) > 1:
            level = 3 - (len({n // 8 for n in on}) == 1) - (len({n // 4 for n in on}) == 1)
        u = rng.normal(0, 0.1)
        rates = np.exp(slow[on] - truth[l][level] + u + rng.normal(0, 0.03, len(on)))
        choice.observe(Rate(gang(str(i), l, 8), tuple(on), tuple(rates), 0.0, 60.0, True, False))
    for l, expected in truth.items():
        np.testing.assert_allclose(choice.costs(gang("x", l, 8)), expected, atol=0.06)
    assert [s.node for s in choice.rates.slow_nodes()] == ["n5"]


def test_what_was_learned_stays_when_nodes_or_types_come_and_go():
    choice = learner(racks(16), Constants(), Near(), ("a", "t0"))
    for i in range(50):
        choice.observe(Rate(gang(str(i), 0, 8), (0, 15), (0.5, 0.5), 0.0, 60.0, True, False))
    learned = choice.costs(gang("x", 0, 8))
    choice.resize(racks(24), ("t0", "z"))
    np.testing.assert_allclose(choice.costs(gang("x", 0, 8)), learned)
    # Of log 2 = .69 part may be the two nodes' own: they were seen together alone.
    assert 0.4 < learned[3] < 0.69


def test_a_gang_waits_for_its_rack_if_that_is_sooner_done():
    """One rack is to be free soon; a long job that minds distance waits for it, a short one not."""
    nodes = racks(8, per_rack=4, per_block=8)
    distance = Distance(("rack", "block"), np.array([[0.0, 0.0, 2.0, 2.0]]), np.zeros((1, 4)))
    # At 200 two nodes of either rack are free, at 300 all of the first rack.
    filler = [(0.0, r, 4) for r in (100.0, 100.0, 300.0, 300.0, 100.0, 100.0, 9e4, 9e4)]
    for run, waits in ((40_000.0, True), (5.0, False)):
        rows = [*filler, (200.0, run, 16)]
        submit, runs, tasks = (np.array(column) for column in zip(*rows))
        jobs = Jobs.of(submit=submit, run=runs, tasks=tasks, demand={"gpu": 1.0}, limit=runs)
        rivals = {}
        for choice in ("best-fit", "distance-oracle"):
            played = simulate_jobs(
                jobs, nodes, f"fcfs+easy+{choice}", Conditions(distance=distance)
            )
            rivals[choice] = played
        gained = rivals["best-fit"].end[-1] - rivals["distance-oracle"].end[-1]
        assert bool(rivals["distance-oracle"].start[-1] > 200.0) == waits
        assert gained >= 0


# ------------------------------------------------------------------------------ what was measured


@pytest.mark.skipif(TRACES is None, reason="needs the measured placements")
@pytest.mark.parametrize("cluster", ["aws", "dgx", "rtx"])
@pytest.mark.parametrize("application", ["bert", "cifar10", "imagenet"])
def test_overheads_fitted_to_half_of_the_placements_tell_the_other_half(application, cluster):
    file = Path(TRACES or "") / "placements" / f"{application}-{cluster}.csv"
    rows = list(csv.DictReader(file.read_text().splitlines()))
    place = np.array([row["placement"] for row in rows])
    seconds, sync = (np.array([float(r[k]) for r in rows]) for k in ("step_time", "sync_time"))
    _, batch = np.unique([float(row["local_bsz"]) for row in rows], return_inverse=True)
    tasks = np.array([sum(map(int, p)) for p in place])
    level = np.minimum(np.array([len(p) for p in place]) - 1, 2)
    several, errors = np.unique(place), []
    for seed in range(20):
        half = np.random.default_rng(seed).permutation(several)[: several.size // 2]
        known = np.isin(place, half)
        of = [values[known] for values in (seconds, batch, level, tasks)]
        fit = fit_overheads(*of, 3, sync[known])
        errors.append(np.abs(fit.seconds(batch, level, tasks) / seconds - 1)[~known].mean())
    assert np.mean(errors) < 0.08
    assert np.max(errors) < 0.1


def test_without_labels_one_node_is_near_and_all_others_are_apart():
    nodes = Nodes.alike(4, {"gpu": 4})
    choice = learner(nodes, Constants(), Near(), ("t0",))
    books = Books.opened(nodes)
    books.free[0] = 3000
    books.free[1] = 1000
    assert choice.place(gang("x", 0, 4), books, 0.0) == [(2, 4)]


# -------------------------------------------------------------------------------- rivals, the bound


def by_kueue(mode: str, nodes: Nodes, free: list[int], tasks: int) -> list[tuple[int, int]] | None:
    choice = TopologyAware(mode)
    choice.resize(nodes, ("t0",))
    books = Books.opened(nodes)
    books.free[:, 0] = 1000 * np.array(free)
    return choice.place(gang("x", 0, tasks), books, 0.0)


def test_kueues_rule_takes_the_tightest_rack_and_goes_up_where_none_holds_the_gang():
    """Worked out by hand from Kueue's description of its algorithm (KEP 2724)."""
    nodes, free = racks(16), [4, 1, 2, 0, 4, 4, 0, 0, 3, 3, 3, 3, 1, 1, 0, 0]
    assert by_kueue("required", nodes, free, 2) == [(12, 1), (13, 1)]
    assert by_kueue("preferred", nodes, free, 7) == [(0, 4), (1, 1), (2, 2)]
    assert by_kueue("required", nodes, free, 13) is None
    # Block 1 holds 14 and block 0 15: the tighter one; its racks with most first.
    assert by_kueue("preferred", nodes, free, 13) == [(8, 3), (9, 3), (10, 3), (11, 3), (12, 1)]
    # No block holds 20: the larger one whole, then what is left on as few as may be.
    assert sum(c for _, c in by_kueue("preferred", nodes, free, 20) or ()) == 20
    assert by_kueue("unconstrained", nodes, free, 4) == [(1, 1), (2, 1), (12, 1), (13, 1)]


@pytest.mark.parametrize("mode", ["required", "preferred", "unconstrained"])
def test_kueues_rule_is_that_of_sorted_lists(mode):
    rng, nodes = np.random.default_rng(5), racks(16)
    levels = np.concatenate([np.arange(16)[None], domains(nodes, levels_of(nodes))[:-1]])
    drawn = []
    for _ in range(300):
        free = rng.integers(0, 5, 16) * rng.integers(0, 2, 16)
        tasks = int(rng.integers(1, 25))
        expected = topology_aware.placed(levels, 1, mode, free, tasks)
        drawn.append(by_kueue(mode, nodes, free.tolist(), tasks))
        assert drawn[-1] == expected
    assert drawn.count(None) < 250


@pytest.mark.parametrize("seed", range(4))
def test_no_schedule_beats_the_bound_and_alone_a_job_reaches_it(seed):
    jobs, nodes, c = drawn(seed, J=40)
    bound = lower_bound(bounded(ReplayInstance(jobs, nodes, c), Options()), steps=20)
    played = simulate_jobs(jobs, nodes, "fcfs+first-fit", c)
    assert bound.mean_completion <= (played.end - jobs.submit).mean()
    # One job, which is nearest on the first nodes: the bound is what it takes.
    like = replace(c, rates=None, noise=None)
    for tasks in (4, 12, 20):
        one = Jobs.of([0.0], [100.0], [tasks], {"gpu": 1.0}, type=["t0"])
        distance = replace(
            c.distance, overhead=c.distance.overhead[:1], growth=c.distance.growth[:1]
        )
        alone = replace(like, distance=distance)
        took = simulate_jobs(one, nodes, "fcfs+first-fit", alone).end[0]
        got = lower_bound(bounded(ReplayInstance(one, nodes, alone), Options()), steps=0)
        assert got.alone == pytest.approx(took)


def test_worlds_draw_what_distance_costs_and_say_so():
    world = world_of("apart:apart=0.5,rack=2")
    jobs = drawn(0)[0]
    one, other = (world.draw(jobs, 16, {"gpu": 8}, seed) for seed in (1, 1))
    assert "50 % longer across the cluster" in world.describe()
    assert one.nodes.labels[3]["rack"] == "r1"
    assert np.array_equal(one.conditions.distance.overhead, other.conditions.distance.overhead)
    shares = one.conditions.distance.factor(np.arange(3), np.full(3, 8))
    assert (np.diff(shares, axis=1) < 0).all()
    plain = world_of("apart:apart=0").draw(jobs, 16, {"gpu": 8}, 1)
    assert plain.conditions.distance is None
    assert np.array_equal(plain.conditions.noise, one.conditions.noise)
    with pytest.raises(GangwiseError, match="apart is -1"):
        world_of("apart:apart=-1")


@pytest.mark.skipif(TRACES is None, reason="needs Gavel's throughputs")
def test_measured_throughputs_of_workers_apart_are_played():
    file = Path(TRACES or "") / "gavel-throughputs" / "simulation_throughputs.json.gz"
    jobs = drawn(0)[0]
    hidden = world_of(f"measured:{file},apart=true").draw(jobs, 16, {"gpu": 8}, 0)
    assert hidden.conditions.distance is not None
    overhead = hidden.conditions.distance.overhead
    assert (overhead[:, 0] == 0).all()
    assert (overhead[:, 1] > 0.02).any()
