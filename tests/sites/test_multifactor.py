"""The order multifactor: held against Slurm's rules said plainly, and compiled against Python."""

from __future__ import annotations

import itertools
import math
from datetime import UTC, datetime

import numpy as np
import pytest

from gangwise.core.errors import ScenarioError, UnknownName
from gangwise.core.settings import DAY
from gangwise.jobs import Conditions, Jobs, Nodes, simulate_jobs
from gangwise.jobs.queue_kernels import hold, priority_key, tick
from gangwise.jobs.schedule import Options, Tables
from gangwise.jobs.scheduler import create_scheduler
from gangwise.jobs.tenancy import AccountRule, PriorityWeights, Qos, standing_of
from gangwise.sites.site import CapRule, Pool, Rules, Site
from gangwise.study.replay_scenario import ReplayScenario
from tests.jobs.middle import SiteCase
from tests.reference.multifactor import Account, Asked, Cluster

WAYS = list(itertools.product(("tree", "classic"), ("easy", "none"), (3600.0, math.inf)))


class Crowd:
    """Jobs of users in accounts of three levels, some of them never used, on 32 processors."""

    def __init__(self, seed: int, size: int):
        rng = np.random.default_rng([31, seed])
        self.fair, self.backfilling, self.half_life = WAYS[seed % len(WAYS)]
        several = self.backfilling == "none"  # all pools are on all nodes
        self.accounts = [
            AccountRule(name="a", shares=3),
            AccountRule(name="b", parent="a", shares=float(rng.integers(1, 4)), users={"u0": 5}),
            AccountRule(name="c", parent="a", users={"idle": 2}),
            AccountRule(name="d", users={"u1": 2, "u2": 3}),
            AccountRule(name="e", users={"never": 1}),
            AccountRule(name="f", users={"never": 1}),
        ]
        submit = np.cumsum(rng.exponential(60.0, size))
        run = np.exp(rng.normal(6, 1.2, size))
        self.jobs = [
            Asked(
                float(submit[j]),
                float(run[j]),
                float(run[j] * rng.uniform(1, 3)),
                int(2 ** rng.integers(0, 6)) if rng.random() < 0.3 else 2,
                f"u{rng.integers(0, 5)}",
                "bcdef"[int(rng.choice(5, p=[0.3, 0.3, 0.3, 0.05, 0.05]))],
                f"p{rng.integers(0, 3)}" if several else "p0",
                f"q{rng.integers(0, 2)}",
            )
            for j in range(size)
        ]
        names = [f"p{i}" for i in range(3 if several else 1)]
        self.pools = [
            Pool(name=n, tier=[1, 4, 4][i], priority=i + 1, billing={"cpu": [1, 2, 0.5][i]})
            for i, n in enumerate(names)
        ]
        self.qos = [Qos(name="q0", priority=2, usage_factor=0.5), Qos(name="q1", priority=5)]
        self.weights = PriorityWeights(
            age=float(rng.choice([0, 1000])),
            fair_share=10_000,
            job_size=float(rng.choice([0, 500])),
            pool=200,
            qos=float(rng.choice([0, 1000])),
            max_age=20_000,
            half_life=self.half_life,
            period=300,
            fair=self.fair,
        )
        self.ageing: list[tuple[tuple[str, ...], bool, int]] = []
        if seed % 3 == 2:  # those below a; those of d; each user of b, and of d
            self.weights = self.weights.model_copy(update={"age": 90_000.0, "max_age": 9_000.0})
            self.ageing = [(("a", "b", "c"), False, 4), (("d",), False, 2)]
            self.ageing += [(("b",), True, 1), (("d",), True, 1)]

    def starts(self, engine: str) -> list[float]:
        columns = zip(*((j.submit, j.run, j.size) for j in self.jobs))
        jobs = Jobs.of(
            *columns,
            limit=[j.limit for j in self.jobs],
            user=[j.user for j in self.jobs],
            charged=[j.account for j in self.jobs],
            pool=[j.pool for j in self.jobs],
            qos=[j.qos for j in self.jobs],
        )
        site = Site(
            Rules(
                pool=tuple(self.pools),
                qos=tuple(self.qos),
                account=tuple(self.accounts),
                priority=self.weights,
                cap=tuple(
                    CapRule(
                        scope="user" if each else "all",
                        of="ageing",
                        most=most,
                        account=accounts[0],
                        alone=each,
                    )
                    for whose, each, most in self.ageing
                    for accounts in ([(name,) for name in whose] if each else [whose])
                ),
            )
        )
        name = f"multifactor+{self.backfilling}+first-fit"
        return simulate_jobs(jobs, Nodes.pool(32), name, site=site, engine=engine).start.tolist()

    def plainly(self) -> list[float]:
        below = {a.name: Account(a.name, a.shares) for a in self.accounts}
        root = Account("", 1.0)
        for a in self.accounts:
            (below[a.parent] if a.parent else root).inner.append(below[a.name])
            users = {**{j.user: 1.0 for j in self.jobs if j.account == a.name}, **a.users}
            below[a.name].inner += [Account(u, shares, user=True) for u, shares in users.items()]
        w = self.weights
        return Cluster(
            32,
            w.model_dump(include={"age", "fair_share", "job_size", "pool", "qos"}),
            w.max_age,
            w.half_life,
            w.period,
            self.fair == "classic",
            self.backfilling == "easy",
            root,
            {
                p.name: {"tier": p.tier, "priority": p.priority, "billing": p.billing["cpu"]}
                for p in self.pools
            },
            {q.name: {"priority": q.priority, "factor": q.usage_factor} for q in self.qos},
            self.jobs,
            self.ageing,
        ).play()


def check(seeds, size: int) -> None:
    for seed in seeds:
        crowd = Crowd(seed, size)
        plainly = crowd.plainly()
        for engine in ("compiled", "plain") if seed % 4 == 0 else ("compiled",):
            assert crowd.starts(engine) == plainly, (seed, engine)


def test_starts_are_those_of_slurms_rules_said_plainly():
    check(range(8), 60)


@pytest.mark.full
@pytest.mark.parametrize("part", range(2))
def test_many_starts_are_those_of_slurms_rules_said_plainly(part):
    check(range(8 + part, 48, 2), 60)
    check(range(part, 8, 2), 250)


def test_use_of_the_past_moves_a_user_back_and_is_forgotten():
    """ann has used much; bob comes later and goes first, until her use has decayed."""
    for wait, first in ((100.0, "bob"), (40 * 3600.0, "ann")):
        jobs = Jobs.of(
            [0, 1, wait + 1000, wait + 1001, wait + 1002],
            [900, 10, 1200, 100, 100],
            4,
            user=["ann", "bob", "eve", "ann", "bob"],
        )
        weights = PriorityWeights(fair_share=1000, age=1e-3, half_life=3600, fair="classic")
        site = Site(Rules(priority=weights))
        start = simulate_jobs(jobs, Nodes.pool(4), "multifactor+easy", site=site).start
        assert ("ann" if start[3] < start[4] else "bob") == first


def test_a_priority_never_falls_where_it_may_only_grow_and_use_is_forgotten_when_due():
    """incr_only, and reset at the next midnight: of one user whose other job runs."""
    jobs = Jobs.of([0, 0, 0], 9, user=["ann", "ann", "bob"], charged="x")

    def keys(**more) -> list[int]:
        weights = PriorityWeights(fair_share=1000, period=60, half_life=math.inf, **more)
        options = Site(Rules(priority=weights)).options(Options())
        standing = standing_of(Tables.of(jobs, Nodes.pool(4), Conditions(), options))
        found = []
        for time in (0.0, 3600.0, DAY - 1.0, DAY):
            tick(standing, time)
            found.append(int(-priority_key(standing, 1)))
            if time == 0.0:
                hold(standing, 0, 1.0, 60.0)
            if time == 3600.0:
                hold(standing, 0, -1.0, 7200.0)
        return found

    assert keys() == [1000, 500, 500, 500]
    assert keys(flags=("incr_only",)) == [1000] * 4
    assert keys(reset="daily") == [1000, 500, 500, 1000]
    assert keys(reset="monthly") == keys()


def test_use_is_forgotten_at_midnight_of_the_days_that_slurm_says():
    """From Friday, 30 October 2026, 6 in the morning; Sundays, months, quarters and years."""
    epoch = datetime(2026, 10, 30, 6, tzinfo=UTC).timestamp()

    def first(word: str) -> str:
        times = PriorityWeights(reset=word).resets(epoch, 400 * DAY)
        return datetime.fromtimestamp(epoch + times[0], UTC).isoformat()[:16]

    assert first("daily") == "2026-10-31T00:00"
    assert first("weekly") == first("monthly") == "2026-11-01T00:00"  # a Sunday
    assert (first("quarterly"), first("yearly")) == ("2027-01-01T00:00",) * 2
    assert PriorityWeights().resets(epoch, 400 * DAY).size == 0


def differing(seed: int) -> list[str]:
    """What compiled code and Python decide otherwise among pools, caps, failures, dependencies."""
    backfilling = ("easy", "none", "conservative")[seed % 3]
    choice = ("best-fit", "first-fit", "label")[seed // 3 % 3]
    case = SiteCase(seed)
    case.names = "multifactor", backfilling, choice
    weights = PriorityWeights(
        age=50,
        fair_share=1000,
        job_size=20,
        qos=100,
        max_age=60,
        period=7,
        half_life=30,
        fair=("tree", "classic")[seed % 2],
    )
    ranked = tuple(p.model_copy(update={"tier": i % 2}) for i, p in enumerate(case.rules.pool))
    more = {"priority": weights, "pool": ranked, "qos": (Qos(name="q1", priority=1),)}
    case.rules = case.rules.model_copy(update=more)
    one, two = (case.played(engine=engine) for engine in ("compiled", "plain"))
    return [
        name
        for name in ("phase", "start", "last_start", "end", "lost")
        if not np.array_equal(getattr(one, name), getattr(two, name), equal_nan=True)
    ]


def test_compiled_code_and_python_decide_alike():
    assert differing(8) == []


@pytest.mark.full
def test_compiled_code_and_python_decide_alike_in_many_cases():
    for seed in range(13, 31):  # each backfilling, choice and fair share
        assert differing(seed) == [], seed


def test_multifactor_without_weights_to_read_is_refused():
    scheduler = create_scheduler("multifactor+easy")
    with pytest.raises(ScenarioError, match="accounts"):
        scheduler.resize(Nodes.pool(4), ["job"])
    site = Site(Rules(priority=PriorityWeights(tres={"gpus": 1})))
    with pytest.raises(UnknownName, match="'gpus'"):
        simulate_jobs(Jobs.of([0], 1), Nodes.pool(4), "multifactor", site=site)


AGEING_CONF = """
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,default_queue_depth=500
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
PriorityType=priority/multifactor
PriorityWeightAge=100000
PriorityMaxAge=00:20:00
PriorityCalcPeriod=1
AccountingStorageEnforce=associations,limits
NodeName=a1 CPUs=2 RealMemory=8000
PartitionName=p Default=YES MaxTime=60 Nodes=ALL
"""
AGEING_ASSOC = """
Cluster|Account|User|Partition|ParentName|Share|GrpTRES|GrpJobs|GrpJobsAccrue|MaxJobs|MaxJobsAccrue
lab|root||||1|||||
lab|acc|||root|1|||||
lab|acc|tu1|||1|||||1
lab|acc|tu2|||1|||||
lab|bcc|||root|1|||2||
lab|bcc|tu3|||1|||||
"""
AGED = """
1|tu2|acc|19:13|19:14|22:34
2|tu1|acc|19:18|22:35|24:36
3|tu1|acc|19:18|28:38|30:40
4|tu1|acc|19:18|34:43|36:44
5|tu3|bcc|19:19|24:36|26:37
6|tu3|bcc|19:19|26:37|28:38
7|tu3|bcc|19:19|30:40|32:41
8|tu3|bcc|19:19|32:42|34:43
"""
"""Job, user, account, submission, start and end as a real Slurm 22.05 had them on one node."""


@pytest.mark.parametrize("limited", [True, False])
def test_limits_of_jobs_that_age_order_the_line_as_slurm_did(limited, tmp_path):
    """In the order of submission 3 and 4 go before 5; but of tu1 one job ages at once."""
    at = [[f"2026-01-05T10:{t}" for t in row.split("|")[3:]] for row in AGED.split()]
    who = [row.split("|")[:3] for row in AGED.split()]
    head = "JobID|User|Account|State|Submit|Start|End|Timelimit|ReqTRES|AllocTRES|NNodes|NodeList"
    rows = [
        f"{job}|{user}|{account}|COMPLETED|{'|'.join(t)}|00:30:00|cpu=2,node=1|cpu=2,node=1|1|a1"
        for (job, user, account), t in zip(who, at)
    ]
    (tmp_path / "sacct.txt").write_text("\n".join([f"{head}|Partition", *(f"{r}|p" for r in rows)]))
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "slurm.conf").write_text(AGEING_CONF)
    columns = slice(None) if limited else slice(8)
    assoc = ["|".join(row.split("|")[columns]) for row in AGEING_ASSOC.split()]
    (tmp_path / "site" / "assoc.txt").write_text("\n".join(assoc) + "\n")
    scenario = ReplayScenario(source=str(tmp_path / "sacct.txt"), site=f"slurm:{tmp_path / 'site'}")
    jobs, nodes, conditions = scenario.draw(0)
    schedule = simulate_jobs(jobs, nodes, scenario.site.scheduler, conditions, scenario.options)
    order = "".join(jobs.id[np.argsort(schedule.start)])
    assert order == ("12563784" if limited else "12345678")
    assert "age" not in " ".join(scenario.site.notes)
