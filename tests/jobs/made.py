"""Small random cases: a dozen jobs on a few nodes."""

from __future__ import annotations

import numpy as np

from gangwise.jobs.model import Conditions, Jobs, Node, Nodes
from gangwise.jobs.schedule import Options

QUEUES = ("fcfs", "sjf", "edf", "priority", "fair-share", "wfp3")
BACKFILLING = ("none", "easy", "conservative")
CHOICES = ("first-fit", "best-fit", "worst-fit", "label", "fgd")


class Case:
    """Jobs, nodes, what happens to them, and rules."""

    def __init__(self, seed: int, binary: bool = False, shared: bool = False):
        """Draw a case.

        ``binary``: shares of the cluster are binary fractions, so that their sums are exact;
        ``shared``: devices are told apart.
        """
        rng = np.random.default_rng([7, seed])
        self.seed = seed
        J = int(rng.integers(1, 13))
        N = int(rng.integers(1, 6))
        K = int(rng.integers(1, 3))
        self.shared = bool(rng.random() < 0.3) or shared
        capacity = rng.integers(1, 5, size=(N, K)) * 1000
        racks = rng.integers(0, 2, size=N)
        slow = rng.integers(1, 3, size=N) if rng.random() < 0.4 else np.ones(N, dtype=int)
        label = np.round(rng.uniform(0.3, 1.0, size=N), 2)
        span = int(rng.choice([1, 4, 12, 40]))
        submit = rng.integers(0, span, size=J)
        run = rng.integers(0, 12, size=J) * (rng.random(J) < 0.85)
        kind = rng.random()
        limit = run + rng.integers(0, 8, size=J) * (rng.random(J) < 0.6)
        if kind < 0.3:  # some run longer than they said
            limit = np.maximum(limit - rng.integers(0, 6, size=J), 1)
        limit = np.maximum(limit, 1)
        tasks = np.where(rng.random(J) < 0.6, 1, rng.integers(1, 7, size=J))
        demand = rng.integers(0, 3, size=(J, K)) * 1000
        if self.shared:
            demand[:, 0] = rng.choice([0, 200, 300, 500, 1000, 2000], size=J)
        elif rng.random() < 0.3:
            demand[:, 0] = rng.choice([250, 400, 1000], size=J)
        demand[demand.sum(axis=1) == 0, 0] = 1000
        if binary:
            demand = np.where(demand < 1000, demand // 250 * 250, demand)
            demand[demand.sum(axis=1) == 0, 0] = 250
            for k in range(K):
                total = int(capacity[:, k].sum()) // 1000
                capacity[0, k] += 1000 * ((1 << (total - 1).bit_length()) - total)
        per_node = np.where(rng.random(J) < 0.2, rng.integers(1, 3, size=J), 0)
        tied = rng.random(J) < 0.15
        rack = rng.integers(0, 2, size=J)
        user = rng.integers(0, 3, size=J)
        deadline = np.where(rng.random(J) < 0.5, submit + rng.integers(1, 30, size=J), 10**9)
        priority = rng.integers(0, 3, size=J)
        after = {
            j: sorted({int(i) for i in rng.integers(0, J, size=2) if i < j})
            for j in range(J)
            if rng.random() < 0.15
        }
        downs, ups = [], []
        if rng.random() < 0.3:
            for _ in range(int(rng.integers(1, 4))):
                t, n = int(rng.integers(0, 30)), int(rng.integers(0, N))
                downs.append((t, n))
                ups.append((t + int(rng.integers(0, 9)), n))
        more = np.random.default_rng([8, seed])
        drains = []
        if more.random() < 0.2:
            for _ in range(int(more.integers(1, 3))):
                t, n = int(more.integers(0, 30)), int(more.integers(0, N))
                drains.append((t, n))
                ups.append((t + int(more.integers(0, 12)), n))
        if downs and more.random() < 0.3:
            downs.append((0, downs[0][1]))  # joins later
        cancelled = np.flatnonzero(more.random(J) < 0.15 * (more.random() < 0.3))
        cancels = {int(j): int(submit[j] + more.integers(-3, 15)) for j in cancelled}
        cancels = {j: max(t, 0) for j, t in cancels.items()}
        self.options = Options(
            enforced=bool(rng.random() < 0.3),
            checkpoint=[np.inf, 0, 3][int(rng.integers(0, 3))] if slow.max() == 1 else np.inf,
            restart=int(rng.integers(0, 4)),
        )
        self.depth = int(rng.choice([1, 3, 10_000]))

        self.nodes = Nodes.of(
            (
                Node(
                    f"n{i}",
                    {f"d{k}": capacity[i, k] / 1000 for k in range(K)},
                    {"rack": str(racks[i])},
                    float(label[i]),
                )
                for i in range(N)
            ),
            shared="d0" if self.shared else None,
        )
        self.jobs = Jobs.of(
            submit,
            run,
            tasks,
            {f"d{k}": demand[:, k] / 1000 for k in range(K)},
            id=[f"j{j}" for j in range(J)],
            limit=limit,
            per_node=per_node,
            constraint=[{"rack": str(rack[j])} if tied[j] else {} for j in range(J)],
            user=[f"u{u}" for u in user],
            deadline=np.where(deadline == 10**9, np.inf, deadline),
            priority=priority,
            after={f"j{j}": [f"j{i}" for i in earlier] for j, earlier in after.items()},
        )
        order = np.argsort(submit, kind="stable").tolist()
        rows = {j: i for i, j in enumerate(order)}  # row of the log → row of the table
        self.conditions = Conditions(
            rates=1.0 / slow[None, :] if slow.max() > 1 else None,
            downs=downs,
            ups=ups,
            drains=drains,
            cancels=[(t, rows[j]) for j, t in cancels.items()],
        )
