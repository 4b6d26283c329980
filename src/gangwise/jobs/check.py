"""``check_scheduler``: the contract of schedulers, tested on random clusters and jobs."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np

from gangwise.core import errors, registry
from gangwise.jobs import books, model, tenancy
from gangwise.jobs.schedule import Options, Tables
from gangwise.jobs.scheduler import copy_of, create_scheduler
from gangwise.jobs.simulation import JobSimulation
from gangwise.sites.site import CapRule, Pool, Rules, Site


class SchedulerCheckFailed(errors.GangwiseError, AssertionError):  # noqa: N818 - the name says what it is
    """A broken contract of a scheduler: which part of it, and on which case."""


def check_scheduler(scheduler: Any, cases: int = 10, seed: int = 0) -> None:
    """Try a scheduler on random clusters.

    It must start only what fits and gangs whole, keep its hands off what it is shown, decide the
    same under any hidden truth until that shows, give the same schedule again, from pickles taken
    at every instant, and under other names of jobs, nodes, users and job types; bear rates that
    come late, twice or never; explain every job that it leaves waiting; and let none wait for
    ever. Meanwhile a node fails, one drains, and jobs are withdrawn; every other cluster has pools
    and caps (``books.held``).

    Parameters
    ----------
    scheduler : str or Scheduler
        A name, or one that has not been used yet; copies of it are tried.
    cases, seed : int
        How much to try.

    Raises
    ------
    SchedulerCheckFailed

    Examples
    --------
    >>> check_scheduler("fcfs+easy+best-fit", cases=2)
    """
    name = registry.label_of(scheduler) if isinstance(scheduler, str) else type(scheduler).__name__
    try:
        original = create_scheduler(scheduler)
        parts = ("resize", "place", "observe", "explain")
        missing = [part for part in parts if not hasattr(original, part)]
        if missing:
            raise SchedulerCheckFailed(
                f"{name} has no {missing[0]}; a scheduler has resize, place, observe, explain"
            )
        # Copied through a pickle: a scheduler that does not pickle fails here, not in a case.
        copy_of(original)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise SchedulerCheckFailed(f"{name} does not pickle: {error}") from error
    for case in range(cases):
        label = f"{name} on case {case} (seed {seed})"
        # The case is part of the seed, so that a failing case can be tried alone.
        world = _World(np.random.default_rng([seed, case]))
        reference = _played(_Watched, world, original, label)
        for kind, fault in (
            (_Watched, f"a second run differs: {CHANCE}"),
            (_Pickled, "it does not survive pickling: a run resumed from its pickle differs"),
        ):
            # The log has rows and places instead of names, so names may differ.
            if _played(kind, world, original, label).log != reference.log:
                raise SchedulerCheckFailed(f"{label}: {fault}")
        if _played(_Watched, world.renamed(), original, label).log != reference.log:
            raise SchedulerCheckFailed(
                f"{label}: decisions depend on what jobs, nodes, users or job types are called"
            )
        _check_peeking(world, original, reference, label)
        for kind in (_Doubled, _Late, _Unheard):
            _played(kind, world, original, f"{label}, {kind.__doc__}")


CHANCE = (
    "it is not deterministic; draw from a generator of its own with a fixed seed, not from random, "
    "numpy.random or a clock, and keep nothing outside of the scheduler"
)


class _World:
    def __init__(self, rng: np.random.Generator):
        N, J = int(rng.integers(2, 6)), 25
        self.capacity = rng.integers(2, 9, size=N)
        self.speed = rng.choice([0.5, 1.0], size=N)
        self.racks = [str(rack) for rack in rng.integers(0, 2, size=N)]
        run = rng.integers(0, 300, size=J) * 1.0
        self.columns: dict[str, Any] = {
            "submit": np.sort(rng.integers(0, 400, size=J)).astype(float),
            "run": run,
            "limit": np.maximum(run * rng.uniform(1, 3, size=J), 10.0),
            "tasks": rng.integers(1, 4, size=J),
            "demand": {"gpu": rng.integers(1, 3, size=J).astype(float)},
            "constraint": [
                {"rack": str(rng.integers(0, 2))} if rng.random() < 0.1 else {} for _ in range(J)
            ],
            "deadline": rng.integers(100, 2000, size=J).astype(float),
            "priority": rng.integers(0, 3, size=J).astype(float),
        }
        self.types, self.users = rng.integers(0, 3, size=J), rng.integers(0, 3, size=J)
        self.rates = rng.uniform(0.3, 1.2, size=(3, N))
        self.fails = [(float(rng.integers(50, 500)), int(rng.integers(0, N)))]
        self.drains = [(float(rng.integers(50, 500)), int(rng.integers(0, N)))]
        self.cancels = [(float(rng.integers(0, 600)), int(rng.integers(0, J))) for _ in range(3)]
        # Half of them are sites: two pools, caps that every job alone keeps to, and weights.
        self.site = bool(rng.random() < 0.5)
        self.on = [sorted(rng.permutation(N)[: rng.integers(1, N + 1)].tolist()) for _ in "ab"]
        self.pool = rng.choice(["a", "b", ""], size=J)
        self.caps = [
            CapRule(scope=scope, of=kind, most=most)
            for scope, kind, most in (("user", "gpu", 10), ("pool", "jobs", 3), ("all", "gpu", 14))
            if rng.random() < 0.5
        ]
        self.names: tuple[Callable[[int], str], ...] = (
            lambda j: f"job{j}",
            lambda n: f"node{n}",
            lambda u: f"user{u}",
        )

    def renamed(self) -> _World:
        """The same under other names, whose order is another."""
        world = copy(self)
        # The names sort in the reverse order of places: a decision that sorts by name shows.
        world.names = (lambda j: f"{97 - j}-x", lambda n: f"{50 - n}-y", lambda u: f"{9 - u}-z")
        return world

    def hidden(self) -> _World:
        """The same with another hidden truth: twice the work, other rates, nothing happens."""
        world = copy(self)
        world.columns = {**self.columns, "run": self.columns["run"] * 2 + 1}
        # Reversed nodes: what was a good place to start under the first truth is a bad one now.
        world.rates = self.rates[:, ::-1] * 0.7
        world.fails, world.drains, world.cancels = [], [], []
        return world

    def tables(self) -> Tables:
        job, node, user = self.names
        nodes = model.Nodes.of(
            model.Node(node(n), {"gpu": float(c)}, {"rack": self.racks[n]}, float(self.speed[n]))
            for n, c in enumerate(self.capacity)
        )
        J = len(self.columns["submit"])
        jobs = model.Jobs.of(
            **self.columns,
            id=[job(j) for j in range(J)],
            type=[user(l) for l in self.types],
            user=[user(u) for u in self.users],
            pool=self.pool if self.site else None,
            terms=["fewest=1" if j % 3 else "" for j in range(J)],
        )
        rates = np.array([self.rates[[user(l) for l in range(3)].index(t)] for t in jobs.types])
        ups = [(t + 100.0, n) for t, n in self.fails + self.drains]
        happens = model.Conditions(rates, None, self.fails, ups, (), self.drains, self.cancels)
        options = Options(restart=5)
        if not self.site:
            return Tables.of(jobs, nodes, happens, options)
        on = {name: ",".join(node(n) for n in on) for name, on in zip("ab", self.on, strict=True)}
        pools = tuple(Pool(name=name, nodes=on[name], tier=1 + (name == "b")) for name in "ab")
        weights = tenancy.PriorityWeights(
            age=100, fair_share=1000, job_size=10, half_life=math.inf, period=60
        )
        # Six GPUs are enough for each job, and too few for two: Kueue starts some with fewer tasks.
        flavor = {"name": "any", "quotas": {"gpu": {"nominal": 6.0}}}
        groups = [{"resources": ["gpu"], "flavors": [flavor]}]
        kueue = {"queues": [{"name": name, "cohort": "", "groups": groups} for name in "ab"]}
        site = Site(Rules(kueue=kueue, pool=pools, cap=tuple(self.caps), priority=weights))
        return Tables.of(*site.placed(jobs, nodes, happens), site.options(options))


class _Watched(JobSimulation):
    """rates reported at once"""

    def __init__(self, tables: Tables, scheduler: Any):
        super().__init__(tables, scheduler)
        self.log: list[tuple[float, tuple[Any, ...]]] = []
        self.where = ""
        self.first_rate = np.inf  # when the scheduler first heard a rate

    def _observe(self, rate: books.Rate) -> None:
        self.first_rate = min(self.first_rate, rate.time)
        super()._observe(rate)

    def _decisions(self, now: float) -> list[Any]:
        b = self.books
        # Pickled bytes instead of copies: they compare all arrays and the queue at once.
        shown = pickle.dumps((b.free, b.device, b.up, self.waiting))
        actions = super()._decisions(now)
        if pickle.dumps((b.free, b.device, b.up, self.waiting)) != shown:
            raise SchedulerCheckFailed(f"{self.where}: at {now:g} s place() changed the books")
        rows = [
            self.rows.get(getattr(a, "job", ""), -1) for a in actions
        ]  # whatever jobs are called
        details = [getattr(a, "tasks", getattr(a, "at", None)) for a in actions]
        self.log.append((now, tuple(zip((type(a).__name__ for a in actions), rows, details))))
        return actions

    def step(self) -> bool:
        """One instant, and an explanation of every job that waits after it."""
        # An instant without a round decides nothing, so there is nothing new to explain.
        rounds = int(self.state.at.rounds)
        goes_on = super().step()
        if goes_on and self.state.at.rounds > rounds:
            for job in self.waiting:
                answer = self.scheduler.explain(job.id)
                if not (
                    isinstance(answer, books.Explanation)
                    and answer.job == job.id
                    and answer.constraint
                    and answer.since <= self.now <= min(answer.until, answer.start)
                ):
                    raise SchedulerCheckFailed(
                        f"{self.where}: at {self.now:g} s job {job.id} waits and explain() says "
                        f"{answer!r}; it must name the constraint, since when, and until when, and "
                        "expect no start in the past"
                    )
        return goes_on


class _Pickled(_Watched):
    """its state pickled at every instant"""

    def step(self) -> bool:
        # Only state that survives a pickle is left, such as a restart of the service would leave.
        self.scheduler = copy_of(self.scheduler)
        return super().step()


class _Doubled(_Watched):
    """rates reported twice"""

    def _observe(self, rate: books.Rate) -> None:
        super()._observe(rate)
        super()._observe(rate)


class _Late(_Watched):
    """rates reported late and out of order"""

    def _observe(self, rate: books.Rate) -> None:
        delayed = vars(self).setdefault("held", [])
        delayed.append(replace(rate))
        if len(delayed) == 3:
            for late in reversed(delayed):
                super()._observe(late)
            delayed.clear()


class _Unheard(_Watched):
    """rates never reported"""

    def _observe(self, rate: books.Rate) -> None:
        return


def _played(kind: type[_Watched], world: _World, original: Any, where: str) -> _Watched:
    try:
        simulation = kind(world.tables(), copy_of(original))
        simulation.where = where
        schedule = simulation.run()
    except SchedulerCheckFailed:
        raise
    except errors.InfeasibleDecision as error:
        raise SchedulerCheckFailed(f"{where}: {error}") from error
    except Exception as error:
        raise SchedulerCheckFailed(f"{where}: {type(error).__name__}: {error}") from error
    if simulation.waiting:
        job = simulation.waiting[0]
        raise SchedulerCheckFailed(
            f"{where}: job {job.id} waits for ever, though {np.isnan(schedule.end).sum()} jobs "
            "are all that is left and the cluster is empty"
        )
    return simulation


def _check_peeking(world: _World, original: Any, first: _Watched, where: str) -> None:
    """Decisions are the same under another truth until the two differ visibly."""
    second = _played(_Watched, world.hidden(), original, where)
    # The first end of either play, the first event, and the first rate each reveal something.
    shows = min(float(np.nanmin(s.state.end)) for s in (first, second))
    happens = [*world.fails, *world.drains, *world.cancels]
    shows = min([shows, *(t for t, _ in happens), first.first_rate, second.first_rate])
    # From the first instant at which anything shows, the plays may differ.
    for row, two in zip(first.log, second.log):
        if min(row[0], two[0]) >= shows:
            return
        if row != two:
            raise SchedulerCheckFailed(
                f"{where}: at {row[0]:g} s it decides otherwise when work and rates are others, "
                "which nothing has shown it yet: it sees what is hidden"
            )
