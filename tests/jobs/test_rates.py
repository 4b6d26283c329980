"""Learned rates: against dense Bayesian regression, formulas, planted stragglers, plain runs."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace

import numpy as np
import pytest

from gangwise.core.errors import GangwiseError
from gangwise.jobs import rate_kernels
from gangwise.jobs.choice import ByRate, Constants, Labels, MeanRates, SharedFactors
from gangwise.jobs.model import Conditions, Jobs, Node, Nodes
from gangwise.jobs.rate_kernels import JobRequest
from gangwise.jobs.schedule import Options
from gangwise.jobs.scheduler import Composed
from gangwise.jobs.simulation import simulate_jobs

PLAIN = Constants(e=0.0, surprise=1e9)  # the linear model alone
BLIND = Constants(wall=0.0, loss=0.0)  # sees no wall


def cluster(N: int, G: int) -> Nodes:
    return Nodes.of(
        Node(f"n{n}", {"gpu": 8}, {"kind": f"g{n % G}"}, 1.0 / (1 + n % G)) for n in range(N)
    )


def dense(
    L: int, N: int, G: int, gangs: list[tuple[int, list[int], list[float]]], c: Constants
) -> tuple[np.ndarray, np.ndarray]:
    """Posterior mean and covariance of (a [G L], f [N]): one least-squares problem, solved once."""
    rows, y, blocks = [], [], []
    for l, nodes, logs in gangs:
        for n, log in zip(nodes, logs):
            x = np.zeros(G * L + N)
            x[(n % G) * L + l] = 1
            x[G * L + n] = 1
            rows.append(x)
            y.append(log - math.log(1.0 / (1 + n % G)))
        k = len(nodes)
        blocks.append(np.eye(k) * c.epsilon**2 + c.u**2)
    prior = np.diag([c.a**2] * (G * L) + [c.f**2] * N)
    if not rows:
        return np.zeros(len(prior)), prior
    X = np.array(rows)
    R = np.zeros((len(y), len(y)))
    at = 0
    for block in blocks:
        R[at : at + len(block), at : at + len(block)] = block
        at += len(block)
    gain = prior @ X.T @ np.linalg.inv(X @ prior @ X.T + R)
    return gain @ np.array(y), prior - gain @ X @ prior


def witnessed(rates: SharedFactors, gangs: list, L: int, N: int, G: int):
    mean, cov = dense(L, N, G, gangs, rates.constants)
    for l in range(L):
        got, sd = rates.estimate(f"t{l}")
        for n in range(N):
            x = np.zeros(G * L + N)
            x[(n % G) * L + l] = x[G * L + n] = 1
            yield got[n] + math.log(1 + n % G), sd[n], mean @ x, math.sqrt(x @ cov @ x)


@pytest.mark.parametrize("seed", range(5))
def test_shared_factors_of_single_tasks_are_exact_bayesian_regression(seed):
    rng = np.random.default_rng(seed)
    L, N, G = 3, 7, 2
    rates = SharedFactors(PLAIN)
    rates.beliefs(cluster(N, G), [f"t{l}" for l in range(L)])
    gangs = []
    for _ in range(60):
        l, n = int(rng.integers(L)), int(rng.integers(N))
        log = float(rng.normal(0, 0.4))
        gangs.append((l, [n], [log]))
        rates.observe(f"t{l}", [f"n{n}"], [math.exp(log)])
        if len(gangs) in (1, 5, 60):
            for mean, sd, m, s in witnessed(rates, gangs, L, N, G):
                assert mean == pytest.approx(m, abs=1e-9)
                assert sd == pytest.approx(s, abs=1e-9)
    mean, cov = dense(L, N, G, gangs, PLAIN)
    f, f_sd = rates.node_factors()
    known = rates._bound()
    a, a_sd = known.a_mean, np.sqrt(np.einsum("gll->gl", known.a_cov))
    np.testing.assert_allclose(f, mean[G * L :], atol=1e-9)
    np.testing.assert_allclose(f_sd, np.sqrt(np.diag(cov)[G * L :]), atol=1e-9)
    np.testing.assert_allclose(a.ravel(), mean[: G * L], atol=1e-9)
    np.testing.assert_allclose(a_sd.ravel(), np.sqrt(np.diag(cov)[: G * L]), atol=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_gangs_are_exact_at_first_and_their_differences_stay_so(seed):
    """After a gang, nodes depend on one another through its u, which is not kept.

    What it costs is the common level of a generation, not which of its nodes is the faster.
    """
    rng = np.random.default_rng(seed)
    L, N, G = 2, 8, 2
    rates = SharedFactors(PLAIN)
    rates.beliefs(cluster(N, G), ["t0", "t1"])
    a, f = rng.normal(0, 0.2, (G, L)), rng.normal(0, 0.05, N)
    gangs = []
    for i in range(80):
        l = int(rng.integers(L))
        size = int(rng.integers(2, 5))
        pool = np.arange(0, N, G) if i == 0 else np.arange(N)
        nodes = sorted(rng.choice(pool, size=size, replace=False).tolist())
        u = rng.normal(0, 0.1)
        logs = [
            math.log(1 / (1 + n % G)) + a[n % G, l] + f[n] + u + rng.normal(0, 0.03) for n in nodes
        ]
        gangs.append((l, nodes, logs))
        rates.observe(f"t{l}", [f"n{n}" for n in nodes], np.exp(logs).tolist())
        if i == 0:
            for mean, sd, m, s in witnessed(rates, gangs, L, N, G):
                assert mean == pytest.approx(m, abs=1e-9)
                assert sd == pytest.approx(s, abs=1e-9)
    got = np.array(list(witnessed(rates, gangs, L, N, G))).reshape(L, N, 4)
    for g in range(G):
        ours, exact = got[:, g::G, 0], got[:, g::G, 2]
        level = (ours - exact).mean(axis=1)
        np.testing.assert_allclose(ours - exact, level[:, None] + 0 * ours, atol=0.005)
        assert np.abs(level).max() < 0.1


def test_residuals_of_a_type_on_a_node_are_learned_shrunk():
    rng = np.random.default_rng(3)
    rates = SharedFactors()
    rates.beliefs(Nodes.alike(6, {"gpu": 8}), ["a", "b"])
    e = {("a", 2): 0.15, ("b", 2): -0.15}
    for _ in range(200):
        for name in ("a", "b"):
            for n in range(6):
                log = e.get((name, n), 0.0) + rng.normal(0, 0.05)
                rates.observe(name, [f"n{n}"], [math.exp(log)])
    for name, sign in (("a", 1), ("b", -1)):
        mean, _ = rates.estimate(name)
        assert mean[2] - np.delete(mean, 2).mean() == pytest.approx(sign * 0.15, abs=0.03)


def test_planted_stragglers_are_named_and_healing_is_noticed():
    rng = np.random.default_rng(0)
    rates = SharedFactors()
    rates.beliefs(Nodes.alike(20, {"gpu": 8}), ["train"])

    def play(rounds: int, slow: dict[int, float]) -> None:
        for _ in range(rounds):
            for n in range(20):
                log = math.log(slow.get(n, 1.0)) + rng.normal(0, 0.1)
                rates.observe("train", [f"n{n}"], [math.exp(log)])

    play(20, {})
    assert rates.slow_nodes() == []
    play(3, {4: 0.5, 11: 0.6})  # three jobs are enough
    named = {s.node: s for s in rates.slow_nodes(by=0.2)}
    assert set(named) == {"n4", "n11"}
    assert named["n4"].low < 0.5 < named["n4"].high
    assert named["n11"].low < 0.4 < named["n11"].high
    play(3, {11: 0.6})
    assert {s.node for s in rates.slow_nodes(by=0.2)} == {"n11"}


def test_a_node_that_leaves_is_known_when_it_is_back():
    rng = np.random.default_rng(5)
    twice = {"gpu": 4}
    nodes = [Node(f"n{n}", twice, {"model": "AB"[n % 2]}, 1.0) for n in range(6)]
    there, left = Nodes.of(nodes), Nodes.of(n for n in nodes if n.name != "n3")
    rates, stayed = SharedFactors(generation="model"), SharedFactors(generation="model")
    for each in (rates, stayed):
        each.beliefs(there, ["a", "b"])
    logs = {(l, n): rng.normal(-0.7 if n == 3 else 0, 0.1) for l in "ab" for n in range(6)}
    for (l, n), log in logs.items():
        for each in (rates, stayed):
            each.observe(l, [f"n{n}"], [math.exp(log)])
    rates.beliefs(left, ["a", "b"])
    for each in (rates, stayed):  # meanwhile others tell about types and generations
        each.observe("b", ["n1"], [1.3])
    rates.beliefs(there, ["c", "b", "a"])
    for l in "ab":
        for ours, whole in zip(rates.estimate(l), stayed.estimate(l)):
            np.testing.assert_allclose(ours, whole, rtol=1e-9)
    assert [s.node for s in rates.slow_nodes()] == ["n3"]
    changed = [replace(n, labels={"model": "A"}) if n.name == "n3" else n for n in nodes]
    rates.beliefs(left, ["a", "b"])
    rates.beliefs(Nodes.of(changed), ["a", "b"])  # another machine by this name
    assert rates.slow_nodes() == []


def test_without_surprise_a_straggler_takes_long_to_find():
    rates = SharedFactors(Constants(surprise=1e9))
    rates.beliefs(Nodes.alike(4, {"gpu": 8}), ["train"])
    quick = SharedFactors()
    quick.beliefs(Nodes.alike(4, {"gpu": 8}), ["train"])
    for each in (rates, quick):
        for i in range(43):
            for n in range(4):
                each.observe("train", [f"n{n}"], [0.5 if n == 1 and i >= 40 else 1.0])
    assert quick.estimate("train")[0][1] < math.log(0.6) < rates.estimate("train")[0][1]


def test_what_was_measured_before_is_left_alone_unless_it_changed():
    rates = SharedFactors()
    state = rates.beliefs(Nodes.alike(2, {"gpu": 8}), ["train"])
    node = np.array([0])
    rate_kernels.observe(state, 0, node, np.array([0.05]), 1, True, 0.0, 1)
    before = rates.estimate("train")[0].copy()
    rate_kernels.observe(state, 0, node, np.array([0.05]), 1, False, 600.0, 1)
    np.testing.assert_array_equal(rates.estimate("train")[0], before)
    rate_kernels.observe(state, 0, node, np.array([math.log(0.5)]), 1, False, 1200.0, 1)
    assert rates.estimate("train")[0][0] < before[0] - 0.3


def test_only_the_slowest_rank_of_a_gang_may_be_seen():
    every, slowest = SharedFactors(), SharedFactors(Constants(slowest_only=True))
    for each in (every, slowest):
        each.beliefs(Nodes.alike(3, {"gpu": 8}), ["train"])
        each.observe("train", ["n0", "n1", "n2"], [1.0, 0.7, 1.0])
    alone = SharedFactors()
    alone.beliefs(Nodes.alike(3, {"gpu": 8}), ["train"])
    alone.observe("train", ["n1"], [0.7])
    np.testing.assert_array_equal(slowest.estimate("train")[0], alone.estimate("train")[0])
    assert every.estimate("train")[0][0] != slowest.estimate("train")[0][0]


@pytest.mark.parametrize("learner", [SharedFactors, MeanRates])
def test_pieces_of_a_gang_on_one_node_are_seen_as_one(learner) -> None:
    pieces, nodes = learner(), learner()
    for each in (pieces, nodes):
        each.beliefs(cluster(4, 1), ["train"])
    for rate in (0.8, 0.9, 0.7):
        # Parts of devices make pieces of their own, which share what is particular to their node.
        pieces.observe("train", ["n1", "n2", "n1", "n1"], [rate, 1.0, rate, rate])
        nodes.observe("train", ["n1", "n2"], [rate, 1.0])
    for seen, wanted in zip(pieces.estimate("train"), nodes.estimate("train")):
        np.testing.assert_array_equal(seen, wanted)


def test_esdp_index_is_the_formula():
    rates = MeanRates(Constants(pack=0.0))
    state = rates.beliefs(cluster(3, 1), ["t"])
    seen = {0: [0.5, 0.7], 1: [0.4]}
    for n, values in seen.items():
        for v in values:
            rates.observe("t", [f"n{n}"], [v])
    mean, sd = rates.estimate("t")
    out = np.empty(3)
    rate_kernels.score(state, JobRequest(0, 1.0, 100.0), mean, sd, np.zeros(3), out)
    t = 3  # gangs so far, so this is slot t + 1 with g = ln(t + 2)
    for n, values in seen.items():
        index = np.mean(values) + math.sqrt(math.log(t + 2) / (2 * len(values)))
        assert math.exp(out[n]) == pytest.approx(index, rel=1e-12)
    assert out[2] == math.inf  # never used: first


def test_remaining_work_follows_the_jobs_that_ended():
    rng = np.random.default_rng(2)
    rates = Labels()
    state = rates.beliefs(Nodes.alike(1, {"gpu": 1}), ["t"])
    work = rng.lognormal(6, 1, 20_000)
    limit = work * rng.uniform(1, 5, work.size)
    for w, x in zip(work, limit):
        rate_kernels.finished(state, x, w, 0.0)
    for x in (0.0, 0.1, 0.25, 0.5, 0.8):
        ratio = work / limit
        left = (ratio[ratio > x] - x).mean()
        assert rate_kernels.remaining(state, 1000.0, 1000.0 * x) == pytest.approx(
            1000 * left, rel=0.02
        )
    assert rate_kernels.remaining(state, 1000.0, 1200.0) == 1.0  # past its limit: any moment


def test_what_was_learned_stays_when_nodes_and_types_come_and_go():
    rates = SharedFactors()
    rates.beliefs(Nodes.alike(4, {"gpu": 8}), ["a", "b"])
    for n in range(4):
        for _ in range(30):
            rates.observe("b", [f"n{n}"], [0.5 if n == 2 else 1.2])
    before = dict(zip(rates.nodes, rates.estimate("b")[0]))
    fewer = Nodes.of([Node("n2", {"gpu": 8}), Node("new", {"gpu": 8}), Node("n0", {"gpu": 8})])
    rates.beliefs(fewer, ["c", "b"])
    mean, sd = rates.estimate("b")
    assert mean[0] == pytest.approx(before["n2"])
    assert mean[2] == pytest.approx(before["n0"])
    assert sd[1] > sd[2]
    assert pickle.loads(pickle.dumps(rates)).estimate("b")[0] == pytest.approx(mean)


def test_bad_input_is_named():
    rates = SharedFactors()
    with pytest.raises(GangwiseError, match="call beliefs"):
        rates.estimate("t")
    rates.beliefs(Nodes.alike(2, {"gpu": 8}), ["t"])
    for job_type, nodes, values, says in (
        ("u", ["n0"], [1.0], "job type"),
        ("t", ["n9"], [1.0], "node"),
        ("t", ["n0"], [0.0], "above 0"),
        ("t", ["n0", "n1"], [1.0], "one each"),
    ):
        with pytest.raises(GangwiseError, match=says):
            rates.observe(job_type, nodes, values)
    with pytest.raises(GangwiseError, match="pack"):
        SharedFactors(Constants(pack=-1.0))


def priced(toll: float) -> tuple[SharedFactors, rate_kernels.Beliefs, np.ndarray]:
    """Two nodes of 4 GPUs, each a generation; type a is 1.25, type b 4 times as fast on n0."""
    rates = SharedFactors(Constants(toll=toll, slack=2.0))
    nodes = Nodes.of(
        [Node("n0", {"gpu": 4}, rate=1.0), Node("n1", {"gpu": 4}, rate={"a": 0.8, "b": 0.25})]
    )
    return rates, rates.beliefs(nodes, ["a", "b"]), np.log([[1.0, 0.8], [1.0, 0.25]])


def test_prices_are_the_dual_of_the_fluid_problem():
    """Jobs of a and b in turn, more than n0 can do: b goes to n0, and a takes what is left."""
    _, state, mean = priced(toll=3000.0)
    size, routed = 1.2, np.zeros((2, 2))
    prices = []
    for k in range(6000):
        l, now = k % 2, 10.0 * k
        rate_kernels.finished(state, 100.0, 50.0, now)  # half of their limit, as jobs show
        before = state.backlog - 10.0
        rate_kernels.submitted(state, JobRequest(l, size, 100.0), mean[l], now)
        if k >= 3000:
            routed[l, np.argmax(state.backlog - before)] += 1
            prices.append(state.backlog / 3000.0)
    # By hand: b takes 51 · 1.2 / 4 = 15 of each 20 s of n0, a the other 5 and most of n1. So a is
    # indifferent, 1 + 1.2 λ0 = (1 + 1.2 λ1) / 0.8, and n1, which is not full, costs nothing.
    assert routed[1, 1] == 0
    assert routed[0].min() > 0
    assert np.mean(prices, axis=0) == pytest.approx([0.25 / size, 0.0], abs=0.02)


def test_a_backlog_is_work_less_capacity():
    _, state, mean = priced(toll=1000.0)
    expected = rate_kernels.remaining(state, 100.0, 0.0)
    rate_kernels.submitted(state, JobRequest(1, 2.0, 100.0), mean[1], 5.0)
    assert state.backlog.tolist() == [2 * expected / 4, 0.0]
    free = np.array([1.0, 4.0])
    out = np.empty(2)
    rate_kernels.score(state, JobRequest(1, 2.0, 1e5), mean[1], np.zeros(2), free, out)
    price = (1 - 2 * 1 / 4) * (2 * expected / 4) / 1000
    assert state.price.tolist() == pytest.approx([price, 0.0])
    pack = state.constants.pack
    assert out.tolist() == pytest.approx([-pack - math.log(1 + 2 * price), mean[1, 1] - 4 * pack])
    rate_kernels.submitted(state, JobRequest(1, 2.0, 100.0), mean[1], 5.0 + expected)
    assert state.backlog[0] == pytest.approx(2 * expected / 4)  # drained, and as much again


def test_who_gains_little_leaves_fast_nodes_to_others():
    _, state, mean = priced(toll=1000.0)
    state.backlog[:] = [2000.0, 0.0]
    out = np.empty(2)
    best = []
    for l in (0, 1):
        asked, free = JobRequest(l, 1.0, 1e5), np.array([0.1, 0.1])
        rate_kernels.score(state, asked, mean[l], np.zeros(2), free, out)
        best.append(int(np.argmax(out)))
    assert best == [1, 0]
    rate_kernels.score(
        state, JobRequest(0, 1.0, 1e5), mean[0], np.zeros(2), np.array([3.0, 0.0]), out
    )
    assert np.argmax(out) == 0  # idle devices cost nothing


def test_what_killed_jobs_needed_is_shared_out_as_kaplan_and_meier_have_it() -> None:
    """Efron 1967: sharing one censored job out to the right gives the product-limit estimate."""
    rng = np.random.default_rng(4)
    B = rate_kernels.BINS
    learner = SharedFactors(Constants(wall=1.0))
    state = learner.beliefs(cluster(B, 1), ["a", "b"])._replace(walled=True)
    died, censored = np.full(B, rate_kernels.PRIOR_JOBS / B), np.zeros(B)
    seen = [(int(i), bool(k)) for i, k in zip(rng.integers(0, B, 300), rng.random(300) < 0.4)]
    # From the right, where what is shared out is shared out once and for all.
    for i, killed in sorted(seen, key=lambda each: (-each[0], each[1])):
        rate_kernels.needed(state, 1, 200.0, 200.0 * (i + 0.5) / B, killed)
        (censored if killed else died)[i] += 1
    # Those killed in a bin leave before the others of that bin.
    left, survives = died.sum() + censored.sum(), 1.0
    mean, none, out = np.log(np.maximum(np.arange(B), 1e-9) / B), np.zeros(B), np.empty(B)
    # wall · probability is taken off
    rate_kernels.score(state, JobRequest(1, 1.0, 1e5), mean, none, none, out)
    for i in range(B):
        assert mean[i] - out[i] == pytest.approx(survives, abs=1e-9)
        left -= censored[i]
        survives *= 1 - died[i] / left
        left -= died[i]
    assert state.needs[0].tolist() == [rate_kernels.PRIOR_JOBS / B] * B  # another type
    rate_kernels.score(state, JobRequest(1, 1.0, 1e5), none, none, none, out)
    assert (out == 0.0).all()  # at rate 1 nobody is killed


def test_nodes_where_jobs_are_killed_come_last_where_limits_are_enforced() -> None:
    nodes = cluster(4, 1)
    mean, sd, free = np.log([0.3, 0.5, 0.9, 0.7]), np.zeros(4), np.array([0.1, 9.0, 8.0, 0.1])
    orders = []
    for walled in (False, True):
        learner = SharedFactors(Constants(pack=0.2))  # so that rates alone do not decide
        state = learner.beliefs(nodes, ["a"])._replace(walled=walled)
        for _ in range(200):
            rate_kernels.needed(state, 0, 100.0, 55.0, False)  # all need .55 of their limit
        out = np.zeros(4)
        rate_kernels.score(state, JobRequest(0, 1.0, 1e5), mean, sd, free, out)
        orders.append(np.argsort(-out).tolist())
    assert orders == [[3, 0, 2, 1], [3, 2, 0, 1]]  # 0 and 1 are too slow


def test_jobs_wait_for_a_node_that_saves_them_where_limits_are_enforced_and_only_there() -> None:
    """The slow node takes 6,000 s for what has a limit of 4,500 s: only the fast one saves."""
    J = 150
    nodes = Nodes.of([Node("fast", {"gpu": 8}), Node("slow", {"gpu": 8}, rate=0.5)])
    tasks = np.random.default_rng(1).choice([1, 2, 4], J)
    submit = np.arange(J) * 1000.0
    jobs = Jobs.of(submit=submit, run=3000.0, limit=4500.0, tasks=tasks, demand={"gpu": 1})
    conditions = Conditions(rates=np.array([[1.0, 0.5]]))
    played = {
        (enforced, wall): simulate_jobs(
            jobs,
            nodes,
            Composed(
                backfilling="easy",
                choice=ByRate(SharedFactors(Constants() if wall else BLIND), waits=True),
            ),
            conditions,
            Options(enforced),
        )
        for enforced in (False, True)
        for wall in (False, True)
    }
    assert 0 < played[True, True].counts["kills"] < played[True, False].counts["kills"] / 2
    for column in ("start", "end"):
        one, other = (getattr(played[False, wall], column) for wall in (False, True))
        assert (one == other).all()


@pytest.mark.parametrize("walled", [False, True])
def test_a_gang_waits_only_for_nodes_that_it_may_use(walled: bool) -> None:
    state = MeanRates().beliefs(cluster(4, 2), ["a"])._replace(walled=walled)
    mean = np.log([1.0, 0.2, 1.0, 0.2])  # generations take turns
    state.release[:], state.price[:] = 1.0, 0.0
    asked, every = JobRequest(0, 1.0, 1e5), np.ones(4, dtype=bool)
    slow = every & (state.generation == state.generation[1])
    seconds = [
        rate_kernels.wait(state, asked, 1, mean, allowed, 1, 0.0, 0.0) for allowed in (every, slow)
    ]
    assert seconds[0] > 0.0 == seconds[1]


@pytest.mark.parametrize("name", ["labels", "ucb", "learned", "learned-moving", "oracle-moving"])
@pytest.mark.parametrize("seed", range(2))
def test_compiled_and_plain_learn_and_decide_alike(name, seed):
    rng = np.random.default_rng([seed, 5])
    J, N, L = 150, 6, 3
    run = rng.lognormal(6, 1.5, J)
    jobs = Jobs.of(
        submit=np.sort(rng.uniform(0, 12_000, J)),
        run=run,
        limit=run * rng.uniform(1, 5, J),
        tasks=rng.choice([1, 1, 2, 4, 9], J),
        demand={"gpu": rng.choice([1, 2], J)},
        type=rng.integers(0, L, J).astype(str),
    )
    nodes = cluster(N, 2)
    declared = nodes.declared(jobs.types)
    conditions = Conditions(
        rates=declared * np.exp(rng.normal(0, 0.2, (L, N))),
        noise=np.exp(rng.normal(0, 0.1, J)),
        factors=[(0.0, 1, 0.5), (5000.0, 1, 1.0), (7000.0, 2, 0.5)],
    )
    killed = bool(seed % 2)  # at limits of the clock
    options = Options(killed, "wall-clock" if killed else "work", restart=30.0)
    schedules = [
        simulate_jobs(jobs, nodes, f"fcfs+easy+{name}", conditions, options, engine=engine)
        for engine in ("compiled", "plain")
    ]
    for column in ("start", "end"):
        np.testing.assert_array_equal(*(getattr(s, column) for s in schedules))
    one, other = schedules
    assert all(one.placed(j) == other.placed(j) for j in range(J))
    assert (one.start > jobs.submit).any()
    assert one.counts["preemptions"] == other.counts["preemptions"]
    assert (one.counts["kills"] > 0) == killed
    if name.endswith("moving"):
        assert one.counts["preemptions"] > 0
