"""Choices of nodes by enumeration, and a cluster that is filled with them."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from gangwise.core.errors import ScenarioError, UnknownName
from gangwise.jobs import Jobs, Node, Nodes
from gangwise.jobs.books import Books, Piece
from gangwise.jobs.choice import FGD, BestFit, FirstFit, WorstFit, pieces_of
from gangwise.jobs.model import Job, Shape
from gangwise.papers.reproduce.field import POLICIES, Filling, Fills, Unallocated


def job_of(shape: Shape, tasks: int = 1):
    names = tuple(f"d{k}" for k in range(len(shape.demand)))
    asked = {name: d / 1000 for name, d in zip(names, shape.demand)}
    return Jobs.of([0], [1], tasks, asked, per_node=shape.per_node).job(0)


def small(rng, K: int, shared: bool = False) -> Books:
    """Nodes of K device types, partly in use; the first is shared on request."""
    N = int(rng.integers(1, 5))
    capacity = rng.integers(0, 4, size=(N, K)) * 1000
    capacity[0] = np.maximum(capacity[0], 1000)
    rows = [{f"d{k}": c / 1000 for k, c in enumerate(row)} for row in capacity]
    nodes = Nodes.of(
        (Node(f"n{n}", row) for n, row in enumerate(rows)), shared="d0" if shared else None
    )
    books = Books.opened(nodes)
    books.free -= np.where(rng.random((N, K)) < 0.6, rng.integers(0, 11, (N, K)) * 100, 0)
    np.maximum(books.free, 0, out=books.free)
    if shared:
        books.device -= np.minimum(rng.integers(0, 6, books.device.shape) * 200, books.device)
        books.free[:, 0] = books.device.sum(axis=1)
    return books


@pytest.mark.parametrize(("choice", "sign"), [(BestFit(), -1), (WorstFit(), 1)])
def test_best_and_worst_fit_by_enumeration(choice, sign):
    rng, tried = np.random.default_rng(1), 0
    while tried < 300:
        K = int(rng.integers(1, 4))
        books = small(rng, K)
        demand = rng.integers(0, 3, K) * 500
        if not demand.any():
            continue
        job = job_of(Shape(tuple(demand.tolist())))
        able = [n for n in range(len(books.free)) if (demand <= books.free[n]).all()]
        most = np.maximum(books.capacity.max(axis=0), 1)

        def left(n, books=books, demand=demand, most=most, K=K):
            """Kept devices first, then Σ of what is left as shares of the largest node, exact."""
            kept = sum(
                int(books.capacity[n, k] > 0) + int(books.free[n, k] > 0)
                for k in range(K)
                if demand[k] == 0
            )
            share = sum(Fraction(int(books.free[n, k]), int(most[k])) for k in range(K))
            return kept, -sign * share

        found = choice.place(job, books, 0.0)
        if not able:
            assert found is None
            continue
        tried += 1
        best = min(left(n) for n in able)
        assert found == [(next(n for n in able if left(n) == best), 1)]
        if K == 1:  # as the free amount alone would have it
            assert found[0][0] == min(able, key=lambda n: (-sign * books.free[n, 0], n))


def test_jobs_without_gpus_are_kept_from_nodes_with_them():
    nodes = Nodes.of(
        [
            Node("gpus", {"cpu": 8, "gpu": 2}),
            Node("busy", {"cpu": 8, "gpu": 2}),
            Node("plain", {"cpu": 16}),
        ]
    )
    books = Books.opened(nodes)
    books.free[1, 1] = 0
    order = []
    for _ in range(3):
        ((n, _),) = BestFit().place(job_of(Shape((8000, 0))), books, 0.0)
        order.append(n)
        books.free[n] = 0
    assert order == [2, 1, 0]  # no GPUs; none free; at last the node with free ones


def brute_fragments(books: Books, classes) -> list[int]:
    """F_n: every class is tried on every set of devices."""
    k, found = books.nodes.devices.index(books.nodes.shared), []
    for n, labels in enumerate(books.nodes.labels):
        parts = books.device[n].tolist()
        total = 0
        for shape, tasks in classes:
            asked = shape.demand[k]
            of_one, many = min(asked, 1000), max(asked // 1000, 1)
            usable = set()
            fits = all(d <= f for d, f in zip(shape.demand, books.free[n]))
            if asked and fits and set(shape.constraint) <= set(labels.items()):
                for chosen in itertools.combinations(range(len(parts)), many):
                    if all(parts[g] >= of_one for g in chosen):
                        usable |= set(chosen)
            total += tasks * sum(p for g, p in enumerate(parts) if g not in usable)
        found.append(total)
    return found


def test_the_choice_of_fgd_by_enumeration():
    rng = np.random.default_rng(2)
    amounts = (0, 200, 400, 600, 1000, 2000)
    for _ in range(150):
        books = small(rng, 2, shared=True)
        classes = tuple(
            (Shape((int(a), int(c) * 500)), int(w))
            for a, c, w in zip(
                rng.choice(amounts, 4, replace=False), rng.integers(1, 3, 4), rng.integers(1, 9, 4)
            )
        )
        fgd = FGD(classes)
        shape = classes[0][0]
        was, ways = brute_fragments(books, classes), []
        step = 40 * sum(tasks for _, tasks in classes)
        for n in range(len(books.free)):
            if any(d > f for d, f in zip(shape.demand, books.free[n])):
                continue
            unused = [g for g, p in enumerate(books.device[n]) if p == 1000]
            sets = [(g,) for g, p in enumerate(books.device[n]) if 0 < shape.demand[0] <= p]
            if shape.demand[0] >= 1000 or shape.demand[0] == 0:
                sets = [tuple(unused[: shape.demand[0] // 1000])]
                if len(unused) < shape.demand[0] // 1000:
                    continue
            for used in sets:
                after = books.copy()
                after.take(shape, [(n, 1, sum(1 << g for g in used))])
                grows = brute_fragments(after, classes)[n] - was[n]
                level = math.ceil(Fraction(grows, step))
                ways.append((level, n, [int(books.device[n, g]) for g in used], used))
        found = fgd.place(job_of(shape), books, 0.0)
        if not ways:
            assert found is None
            continue
        _, n, _, used = min(ways)
        assert found == [(n, 1)]
        assert fgd.tell_apart(shape, found, books) == ((n, 1, sum(1 << g for g in used)),)


def test_fgd_takes_the_device_that_leaves_most_of_use():
    """Half a GPU goes where the class that counts most loses no place."""
    nodes = Nodes.of([Node("n", {"d0": 2})], shared="d0")
    books = Books.opened(nodes)
    books.device[0], books.free[0, 0] = [500, 700], 1200
    halves = FGD(((Shape((500,)), 1), (Shape((700,)), 9)))
    assert halves.tell_apart(Shape((500,)), [(0, 1)], books) == ((0, 1, 1),)
    books.device[0] = [700, 600]
    books.free[0, 0] = 1300
    # 600 − 500 leaves 100 for nobody, 700 − 500 takes the only place of a class that counts most.
    assert halves.tell_apart(Shape((500,)), [(0, 1)], books) == ((0, 1, 2),)


def drawn(seed: int) -> tuple[Jobs, Nodes]:
    rng = np.random.default_rng([3, seed])
    N, J = int(rng.integers(2, 6)), int(rng.integers(5, 25))
    nodes = Nodes.of(
        Node(
            f"n{i}",
            {"cpu": int(rng.integers(2, 9)), "gpu": int(rng.integers(0 if i else 1, 5))},
            {"model": str(rng.integers(2))},
        )
        for i in range(N)
    )
    gpu = rng.choice([0, 0.2, 0.3, 0.5, 1, 2], size=J)
    gpu[0] = 0.5
    demand = {"cpu": rng.integers(1, 4, J), "gpu": gpu}
    models = [{"model": str(rng.integers(2))} if rng.random() < 0.2 else {} for _ in range(J)]
    tasks = np.where(rng.random(J) < 0.7, 1, rng.integers(1, 4, J))
    return Jobs.of(np.zeros(J), np.ones(J), tasks, demand, constraint=models), nodes


def score(policy: str, ask: list, row: list, parts: list, most: list, kinds: set) -> Fraction:
    """Of a node as the authors of the paper have it; amounts of CPU and GPU in thousandths."""
    unused = parts.count(1000)
    if policy in ("gpu-packing", "gpu-clustering") and not ask[1]:
        return Fraction(0)
    if policy == "gpu-packing":
        if unused == len(parts):
            return Fraction(max(33 - unused, unused))
        tight = min(p for p in parts if p >= min(ask[1], 1000))
        if tight == 1000:
            return Fraction(max(50 - max(ask[1] // 1000, 1), 33))
        return Fraction(100 - tight // 100)
    if policy == "gpu-clustering":
        fuller = 25 * (most[1] - row[1]) // most[1]
        kind = ask[1] // 1000
        if kind in kinds:
            return Fraction(fuller + (75 if len(kinds) == 1 else 50))
        return Fraction(fuller + (0 if kinds else 25))
    share = [Fraction(f, m) for f, m in zip(row, most)]
    if policy == "dot-product":
        share = [x * Fraction(d, m) for x, d, m in zip(share, ask, most)]
    return Fraction(math.floor(100 * (1 - sum(share) / 2)))


def one_by_one(policy: str, job: Job, books: Books, kinds: list[set]) -> list[Piece]:
    """Pieces of a gang whose tasks go, one after another, where the score is best; fewer if full.

    ``kinds`` are the numbers of whole GPUs of the tasks on each node, 0 of those that share one.
    """
    most = np.maximum(books.capacity.max(axis=0), 1).tolist()
    after, kinds = books.copy(), [set(of) for of in kinds]
    pieces: list[Piece] = []
    for _ in range(job.tasks):
        able = {}
        for n in np.flatnonzero(after.fits(job.shape)).tolist():
            parts = after.device[n, : after.capacity[n, 1] // 1000].tolist()
            able[n] = score(policy, job.shape.demand, after.free[n].tolist(), parts, most, kinds[n])
        if not able:
            break
        n = max(able, key=lambda n: (able[n], -n))
        pieces += after.tell_apart(job.shape, [(n, 1)])
        after.take(job.shape, pieces[-1:])
        kinds[n] |= {job.shape.demand[1] // 1000} if job.shape.demand[1] else set()
    return pieces


@pytest.mark.parametrize("policy", POLICIES[1:])
def test_filling_equals_a_plain_one(policy):
    """On books in Python: the choices tried above, and the rivals' scores in fractions."""
    away = 0
    for seed in range(12):
        jobs, nodes = drawn(seed)
        filling = Filling(jobs, nodes, seed, until=1.5)
        books = Books.opened(filling.nodes)
        aside = {int(j) for rows in filling.account.set_aside.values() for j in rows}
        seen: Counter[Shape] = Counter()
        for j in range(len(jobs)):
            if int(jobs.row[j]) not in aside:
                seen[jobs.job(j).shape] += jobs.job(j).tasks
        fgd = FGD(tuple(seen.items()))
        own = {"first-fit": FirstFit(), "best-fit": BestFit(), "fgd": fgd}.get(policy)
        placed, kinds = 0, [set() for _ in nodes]
        for j in filling.come.tolist():
            job = jobs.job(j)
            if own is None:
                pieces = one_by_one(policy, job, books, kinds)
            else:
                chosen = own.place(job, books, 0.0)
                pieces = pieces_of(own, job, chosen, books) if chosen else []
            if sum(count for _, count, _ in pieces) < job.tasks:
                continue
            placed += 1
            books.take(job.shape, pieces)
            for n, _, _ in pieces:
                kinds[n] |= {job.shape.demand[1] // 1000} if job.shape.demand[1] else set()
        found = filling.play(policy)
        assert found.placed == placed, seed
        total = books.capacity[:, 1].sum()
        assert found.allocated[-1] == pytest.approx(100 * (1 - books.device.sum() / total))
        lost = sum(brute_fragments(books, seen.items()))
        assert found.fragmented[-1] == pytest.approx(100 * lost / seen.total() / total)
        away += found.turned_away
    assert away > 25


def test_random_differs_from_seed_to_seed_and_keeps_to_what_there_is():
    jobs, nodes = drawn(5)
    ends = {Filling(jobs, nodes, seed).play("random").allocated[-1] for seed in range(8)}
    assert len(ends) > 1
    assert max(ends) <= 100
    same = [Filling(jobs, nodes, 3).play("random") for _ in range(2)]
    assert (same[0].allocated == same[1].allocated).all()
    with pytest.raises(UnknownName, match="policy of filling"):
        Filling(jobs, nodes, 0).play("tetris")
    with pytest.raises(ScenarioError, match="measures GPUs"):
        Filling(jobs, Nodes.pool(4), 0)


NODES = "sn,cpu_milli,memory_mib,gpu,model\na,8000,16384,2,T4\nb,8000,16384,0,\nc,8000,16384,4,G2\n"
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,1000,1024,1,500\nq,1000,1024,1,1000\n"


def test_a_pod_list_without_times_fills_its_cluster(tmp_path):
    (tmp_path / "openb_node_list_all_node.csv").write_text(NODES)
    pods = tmp_path / "openb_pod_list_multigpu50.csv"
    pods.write_text(PODS + "r,1000,1024,0,0\ns,1000,1024,2,1000\n")
    left = Unallocated(str(pods)).replay(Fills("fgd"), 3, 1, "fgd")["unallocated at 130 %"]
    assert 0 <= left[1].item() < 20
