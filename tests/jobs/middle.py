"""Random cases of 30 to 300 jobs on 2 to 16 nodes, where shortcuts go wrong; and of a dozen."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from gangwise.jobs.model import Conditions, Group, Jobs, Node, Nodes
from gangwise.jobs.schedule import Options, Schedule
from gangwise.jobs.scheduler import Composed, create_scheduler
from gangwise.jobs.simulation import simulate_jobs
from gangwise.jobs.tenancy import AccountRule
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
from tests.reference import witness

COMBINATIONS = list(itertools.product(witness.QUEUES, witness.BACKFILLING, witness.CHOICES))


class MiddleCase:
    """A case and the scheduler that plays it.

    Whole seconds, rates and shares of the cluster that are binary fractions: sums are exact, so
    that both sides must agree to the last bit, and ties are many.
    """

    rules: Rules | None = None  # of a site

    def __init__(
        self,
        seed: int,
        small: bool = False,
        names: tuple[str, str, str] | None = None,
        unlike: bool = False,
    ):
        """Draw a case; a ``small`` one of 1 to 12 jobs on 1 to 5 nodes.

        With ``unlike``, half of the jobs have groups of unlike tasks.
        """
        rng = np.random.default_rng([22, seed])
        self.names = names or COMBINATIONS[seed % len(COMBINATIONS)]
        queue, backfilling, choice = self.names
        # Mostly small, for cost grows with the square; conservative plans with the cube.
        most = 120 if backfilling == "conservative" and rng.random() < 0.85 else 300
        J = 30 + int((most - 29) * rng.random() ** (2.5 if backfilling == "easy" else 4))
        N, K = int(rng.integers(2, 17)), int(rng.integers(1, 4))
        if small:
            J, N = int(rng.integers(1, 13)), int(rng.integers(1, 6))
        self.size = J
        capacity = rng.choice([0, 1, 2, 4, 8], p=[0.05, 0.1, 0.2, 0.35, 0.3], size=(N, K)) * 1000
        capacity[:, 0] = np.maximum(capacity[:, 0], 1000)
        if rng.random() < 0.3:
            capacity[:] = capacity[0]
        if queue == "fair-share":
            for k in range(K):
                total = max(int(capacity[:, k].sum()) // 1000, 1)
                for n in range((1 << (total - 1).bit_length()) - total):
                    capacity[n % N, k] += 1000
        shared = choice == "fgd" or rng.random() < 0.25
        racks = rng.integers(0, 2, size=N)
        label = rng.choice([1.0, 2.0], size=N)
        nodes = Nodes.of(
            (
                Node(
                    f"n{n}",
                    {f"d{k}": capacity[n, k] / 1000 for k in range(K)},
                    {"rack": str(racks[n])},
                    float(label[n]),
                )
                for n in range(N)
            ),
            shared="d0" if shared else None,
        )
        # A few kinds of jobs, as in most logs, and some that are like no other.
        S = int(rng.integers(2, 9)) if choice == "fgd" or rng.random() < 0.8 else J
        amount = rng.choice([0, 1, 2, 3, 4], p=[0.25, 0.4, 0.2, 0.05, 0.1], size=(S, K)) * 1000
        if shared:
            amount[:, 0] = rng.choice([0, 250, 500, 1000, 2000], size=S)
        amount[amount.sum(axis=1) == 0, 0] = 1000
        per_node = np.where(rng.random(S) < 0.2, rng.integers(1, 3, size=S), 0)
        tied = rng.random(S) < 0.15
        kind = rng.integers(0, S, size=J)
        gangs = rng.random() < 0.8
        tasks = np.where(rng.random(J) < (0.6 if gangs else 1), 1, rng.integers(1, 9, size=J))
        run = np.floor(np.exp(rng.uniform(0, np.log(60), size=J))) * (rng.random(J) < 0.95)
        self.options = options = self._options(rng, choice)
        if options.limits == "work" and choice == "label":
            limit = 2.0 ** rng.integers(0, 7, size=J)
        else:
            limit = np.floor(run * (1 + 2 * rng.random(J) * (rng.random(J) < 0.7)))
            if rng.random() < 0.4:  # some run longer than they said
                limit = np.where(rng.random(J) < 0.3, np.floor(limit * rng.random(J)), limit)
            limit = np.where(rng.random(J) < 0.02, np.nan, np.maximum(limit, 1.0))
        load = rng.uniform(0.7, 1.3 if backfilling == "conservative" else 2.5)
        area = (run * tasks) @ amount[kind] / np.maximum(capacity.sum(axis=0), 1)
        span = max(int(area.max() / load), 1)
        submit = rng.integers(0, span, size=J)
        if rng.random() < 0.3:  # in bursts
            submit = submit // 20 * 20
        after = {}
        if rng.random() < 0.25:
            for j in np.flatnonzero(rng.random(J) < 0.2).tolist():
                after[j] = sorted({int(i) for i in rng.integers(0, J, size=2) if i < j})
        groups = {}
        other = np.random.default_rng([28, seed])
        for j in np.flatnonzero(other.random(J) < 0.5).tolist() if unlike else ():
            of = other.integers(0, S, size=other.integers(2, 4))
            groups[j] = [
                Group(
                    int(other.integers(1, 4)),
                    {f"d{k}": amount[s, k] / 1000 for k in range(K)},
                    int(per_node[s]),
                    {"rack": "1"} if tied[s] else {},
                )
                for s in of.tolist()
            ]
        self.jobs = Jobs.of(
            submit,
            run,
            tasks,
            {f"d{k}": amount[kind, k] / 1000 for k in range(K)},
            limit=limit,
            per_node=per_node[kind],
            constraint=[{"rack": "1"} if tied[s] else {} for s in kind],
            type=[f"t{x}" for x in rng.integers(0, 2, size=J)],
            user=[f"u{x}" for x in rng.integers(0, 4, size=J)],
            deadline=np.where(rng.random(J) < 0.5, submit + rng.integers(1, 99, size=J), np.inf),
            priority=rng.integers(0, 4, size=J),
            after=after,
            groups=groups,
        )
        self.nodes = nodes
        self.conditions = self._conditions(rng, nodes, span, choice)
        self.depth = int(rng.choice([1, 5, 10_000], p=[0.1, 0.2, 0.7]))

    def _options(self, rng: np.random.Generator, choice: str) -> Options:
        of_work = choice != "oracle" and rng.random() < 0.25
        return Options(
            enforced=bool(rng.random() < 0.35),
            limits="work" if of_work else "wall-clock",
            checkpoint=float(rng.choice([np.inf, 0.0, 4.0])),
            restart=float(rng.integers(0, 4)),
            measured_after=float(rng.integers(1, 9)),
        )

    def _conditions(
        self, rng: np.random.Generator, nodes: Nodes, span: int, choice: str
    ) -> Conditions:
        """Rates, failures, drains, nodes that come back, jobs that are withdrawn; or none."""
        J, N = len(self.jobs), len(nodes)
        given: dict[str, Any] = {"downs": [], "drains": [], "ups": []}
        if rng.random() < 0.4 or choice in ("label", "oracle"):
            given["rates"] = rng.choice([1.0, 2.0], size=(len(self.jobs.types), N))
            if rng.random() < 0.5:
                given["noise"] = rng.choice([0.5, 1.0], size=J)
            if rng.random() < 0.2:
                given["factors"] = [
                    (int(t), int(rng.integers(0, N)), float(rng.choice([0.5, 1.0])))
                    for t in rng.integers(0, span, size=3)
                ]
        if rng.random() < 0.5:
            return Conditions(**given)
        for kind in ("downs", "drains"):
            if rng.random() < 0.4:
                for t in rng.integers(0, span, size=rng.integers(1, 5)).tolist():
                    n = int(rng.integers(0, N))
                    given[kind].append((t, n))
                    given["ups"].append((t + int(rng.integers(0, 40)), n))
        if given["downs"] and rng.random() < 0.3:
            given["downs"].append((0, given["downs"][0][1]))  # joins later
        if rng.random() < 0.4:
            gone = np.flatnonzero(rng.random(J) < 0.1)
            when = np.maximum(self.jobs.submit[gone] + rng.integers(-5, 60, size=gone.size), 0)
            given["cancels"] = [(float(t), int(j)) for t, j in zip(when, gone)]
        return Conditions(**given)

    def scheduler(self) -> Composed:
        """By the names of its parts, counting whole seconds only and never waiting by choice."""
        scheduler: Composed = create_scheduler("+".join(self.names), depth=self.depth)
        if self.names[0] == "fair-share":
            scheduler.queue.half_life = np.inf
        if self.names[2] == "oracle":
            scheduler.choice.waits = False
        return scheduler

    def played(self, **engine: Any) -> Schedule:
        """By the package."""
        return simulate_jobs(
            self.jobs,
            self.nodes,
            self.scheduler(),
            self.conditions,
            self.options,
            site=None if self.rules is None else Site(self.rules),
            **engine,
        )

    def differences(self, schedule: Schedule) -> list[str]:
        """Where a schedule is not what the witness says, in words."""
        w = witness.witness(
            *(self.jobs, self.nodes, self.names, self.conditions, self.options, self.depth),
            site=self.rules,
        )
        *columns, nodes = witness.told(w)
        found = (schedule.phase, schedule.start, schedule.last_start, schedule.end, schedule.lost)
        said = []
        for name, theirs, ours in zip(
            ("phase", "start", "last start", "end", "lost"), found, columns
        ):
            bad = np.flatnonzero((theirs != ours) & ~((theirs != theirs) & (ours != ours)))
            said += [
                f"job {self.jobs.id[j]}: {name} {theirs[j]:g}, not {ours[j]:g}" for j in bad[:1]
            ]
        first = w.jobs["first"]
        for j in range(len(self.jobs)):
            on = sorted(n for n, count in schedule.placed(j) for _ in range(count))
            mine = [n for n in nodes[first[j] : w.jobs["past"][j]].tolist() if n >= 0]
            if on != mine:
                said.append(f"job {self.jobs.id[j]}: on nodes {on}, not {mine}")
                break
        return said


class SiteCase(MiddleCase):
    """The same under pools, which overlap or not, caps, windows, and starts that take a while."""

    def __init__(self, seed: int, unlike: bool = False):
        super().__init__(seed, unlike=unlike)
        rng, extra = (np.random.default_rng([what, seed]) for what in (26, 27))
        J, N = self.size, len(self.nodes)
        pools = tuple(
            Pool(name=f"p{i}", nodes=",".join(self._some(rng, int(rng.integers(1, N + 1)))))
            for i in range(int(rng.integers(0, 4)))
        )
        if len(pools) > 1 and rng.random() < 0.5:  # they share no node
            cut = [f"n{n}" for n in range(N)]
            pools = tuple(
                Pool(name=pool.name, nodes=",".join(cut[i :: len(pools)]))
                for i, pool in enumerate(pools[: min(len(pools), N)])
            )
        names = tuple(f"p{i}" for i in range(4))
        self.jobs = replace(
            self.jobs,
            pool=rng.integers(0, 4, size=J) // (1 + (rng.random() < 0.3)),
            pools=names,
            charged=rng.integers(0, 3, size=J),
            accounts=("a0", "a1", "a2"),
            qos=extra.integers(0, 2, size=J),
            qoses=("q0", "q1"),
        )
        tree = AccountRule(name="a0"), AccountRule(name="a1", parent="a0"), AccountRule(name="a2")
        known = {pool.name for pool in pools} or set(names)
        caps = []
        for _ in range(int(rng.integers(0, 4))):
            scope = str(rng.choice(["user", "account", "pool", "all"]))
            of = str(rng.choice([*self.nodes.devices, "jobs", "nodes"]))
            only = {"user": ["u0", "u1"], "account": ["a0"], "pool": ["p0"]}.get(scope, [])
            other = bool(extra.random() < 0.3)
            caps.append(
                CapRule(
                    scope=str(extra.choice(["qos", "job"])) if other else scope,
                    of=of,
                    most=float(rng.choice([1, 2, 3.5, 6, 12])),
                    only=only if rng.random() < 0.4 and not other else (),
                    pool=str(rng.choice(sorted(known))) if rng.random() < 0.3 else "",
                    qos=str(extra.choice(["", "", "", "q0", "q1"])),
                    account=str(extra.choice(["", "", "", "a0", "a2"])),
                )
            )
        last = int(self.jobs.submit.max()) + 20
        windows = []
        for _ in range(int(rng.integers(0, 3))):
            since = int(rng.integers(0, last))
            on = self._some(rng, int(rng.integers(1, N + 1)))
            to = since + int(rng.integers(1, 60))
            windows.append(MaintenanceWindow(since=since, to=to, nodes=",".join(on)))
        late = int(rng.integers(1, 4)) * int(rng.random() < 0.3)
        self.rules = Rules(
            pool=pools,
            account=tree,
            cap=tuple(caps),
            window=tuple(windows),
            closed=self._closed(np.random.default_rng([27, seed]), last, sorted(known)),
            clock=OwnClock(start=datetime(2026, 1, 5, tzinfo=UTC)),
            start=Start(latency=late),
        )

    def _closed(
        self, rng: np.random.Generator, last: int, pools: list[str]
    ) -> tuple[ClosedHours, ...]:
        """Some minutes of a Monday in which some do not start."""
        closed = []
        for _ in range(int(rng.integers(0, 3)) * (last < 15_000)):
            hours = []
            for _ in range(int(rng.integers(1, 4))):
                since = int(rng.integers(0, last))
                to = since + int(rng.integers(1, 200))
                low, high = (
                    f"{s // 3600:02d}:{s // 60 % 60:02d}:{s % 60:02d}" for s in (since, to)
                )
                hours.append(f"{rng.choice(['Mon', 'Mon-Fri'])} {low}-{high}")
            closed.append(
                ClosedHours(
                    hours=tuple(hours),
                    longer_than=float(rng.choice([0, 5, 20])),
                    more_than=float(rng.choice([0, 0, 1, 2])),
                    of=str(rng.choice([*self.nodes.devices, "jobs", "nodes"])),
                    pool=str(rng.choice(pools)) if rng.random() < 0.3 else "",
                    to=int(rng.integers(1, last)) if rng.random() < 0.2 else last + 2_000,
                )
            )
        free = tuple(self.jobs.users[: int(rng.random() < 0.3)])
        return tuple(rule.model_copy(update={"exempt": free}) for rule in closed)

    def _some(self, rng: np.random.Generator, count: int) -> list[str]:
        return [f"n{n}" for n in sorted(rng.choice(len(self.nodes), count, replace=False))]
