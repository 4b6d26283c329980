"""Long queues under caps that bind: compiled code puts aside those whom Python passes over."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangwise.jobs import Jobs, Nodes
from gangwise.jobs.scheduler import Composed
from gangwise.jobs.tenancy import PriorityWeights, Qos
from gangwise.sites.site import CapRule, Rules, Site
from tests.jobs.middle import SiteCase
from tests.jobs.played import starts

ORDERS = "multifactor", "fcfs", "sjf", "multifactor", "priority", "fair-share", "wfp3"
ALIKE = "phase", "start", "last_start", "end", "lost"


class HeldCase(SiteCase):
    """A site of which every user, account or pool is at some cap while most of the jobs wait."""

    def __init__(self, seed: int):
        super().__init__(seed)
        rng = np.random.default_rng([33, seed])
        self.names = ORDERS[seed % 7], ("easy", "none")[seed // 7 % 2], "best-fit"
        self.shortest = self.names[1] == "easy" and seed % 5 == 0
        submit = self.jobs.submit // int(rng.integers(2, 20))
        self.jobs = replace(self.jobs, submit=submit)
        kinds = [("user", "jobs"), ("user", "d0"), ("account", "d0"), ("qos", "nodes")]
        kinds += [("pool", "jobs"), ("all", "jobs"), ("account", "jobs")]
        chosen = [kinds[i] for i in rng.choice(len(kinds), rng.integers(1, 4), replace=False)]
        caps = tuple(
            CapRule(scope=scope, of=of, most=float(rng.integers(1, 9))) for scope, of in chosen
        )
        weights = PriorityWeights(age=50, fair_share=1000, job_size=20, qos=9, max_age=60, period=7)
        ranked = tuple(p.model_copy(update={"tier": i % 2}) for i, p in enumerate(self.rules.pool))
        more = {"cap": caps, "priority": weights, "pool": ranked, "qos": (Qos(name="q1"),)}
        self.rules = self.rules.model_copy(update=more)

    def scheduler(self) -> Composed:
        scheduler = super().scheduler()
        if self.shortest:
            scheduler.passing = "shortest"
        return scheduler


def differing(seed: int) -> list[str]:
    case = HeldCase(seed)
    one, two = (case.played(engine=engine) for engine in ("compiled", "plain"))
    return [
        name
        for name in ALIKE
        if not np.array_equal(getattr(one, name), getattr(two, name), equal_nan=True)
    ]


def test_those_aside_are_those_whom_python_passes_over():
    for seed in range(14):  # each order with and without backfilling
        assert differing(seed) == [], seed


@pytest.mark.full
def test_those_aside_are_those_whom_python_passes_over_in_many_cases():
    for seed in range(14, 42):  # each with and without the shortest first
        assert differing(seed) == [], seed


@pytest.mark.full
@given(
    tasks=st.lists(st.integers(1, 4), min_size=30, max_size=90),
    users=st.integers(1, 4),
    caps=st.tuples(st.integers(4, 8), st.integers(4, 12)),
    order=st.sampled_from(["multifactor", "fcfs", "sjf"]),
    seed=st.integers(0, 2**16),
)
def test_bursts_of_jobs_at_two_caps_start_as_in_python(tasks, users, caps, order, seed):
    """A user's and an account's cap take turns in holding the same jobs; ticks reorder them."""
    rng, J = np.random.default_rng(seed), len(tasks)
    user, run = rng.integers(0, users, J), rng.integers(1, 30, J)
    jobs = Jobs.of(
        np.sort(rng.integers(0, 40, J)),
        run,
        tasks,
        limit=run + rng.integers(0, 9, J),
        user=[f"u{i}" for i in user],
        charged=[f"a{i % 2}" for i in user],
        priority=rng.integers(0, 3, J),
    )
    rules = Rules(
        cap=[
            CapRule(scope=scope, of="cpu", most=most)
            for scope, most in zip(["user", "account"], caps)
        ],
        priority=PriorityWeights(age=30, fair_share=100, max_age=50, period=5, half_life=20),
    )
    begun = starts(Site(rules), jobs, Nodes.pool(12), f"{order}+easy")  # alike in both engines
    assert (np.array(begun) >= jobs.submit).all()
