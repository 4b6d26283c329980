"""Preemption by QOS and by tiers of pools: cases by hand, a plain implementation, an auditor."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gangwise.jobs import Conditions, Jobs, Node, Nodes, Options
from gangwise.jobs.audit import audit
from gangwise.jobs.books import Books, Place, Preempt, Queue, Running
from gangwise.jobs.check import check_scheduler
from gangwise.jobs.choice import FirstFit
from gangwise.jobs.metrics import Outcome
from gangwise.jobs.schedule import Tables
from gangwise.jobs.scheduler import copy_of
from gangwise.jobs.simulation import JobSimulation, simulate_jobs
from gangwise.jobs.tenancy import Preemption, Qos, Tenancy
from gangwise.sites.site import Pool, Rules, Site
from gangwise.sites.slurm_passes import SlurmPasses
from tests.reference import gang
from tests.reference.preemption import Held, consecutive, who_gives_way
from tests.reference.slurm_passes import PlainPasses

TIERS = (Pool(name="low"), Pool(name="high", tier=2))


def site(how: str = "requeue", **more: float) -> Site:
    return Site(Rules(pool=TIERS, preemption=Preemption(by="tier", how=how, **more)))


def two(run: float = 100.0) -> Jobs:
    """A job of pool low on both nodes from 0 on, and at 30 one of pool high for 50 s on one."""
    return Jobs.of([0, 30], [run, 50], [2, 1], {"cpu": 2.0}, limit=300, pool=["low", "high"])


@pytest.mark.parametrize(
    ("how", "more", "start", "end", "phase"),
    [
        ("off", {}, [0, 100], [100, 150], "finished"),
        ("requeue", {}, [0, 30], [180, 80], "finished"),  # from the beginning, at 80
        ("requeue", {"again": 121.0}, [0, 30], [251, 80], "finished"),
        ("suspend", {}, [0, 30], [150, 80], "finished"),  # 30 s are done
        ("cancel", {}, [0, 30], [np.nan, 80], "cancelled"),
        ("requeue", {"exempt": 31.0}, [0, 60], [210, 110], "finished"),  # with backfilling
    ],
)
def test_a_job_of_a_higher_tier_takes_the_place_of_one_below(how, more, start, end, phase):
    nodes = Nodes.alike(2, {"cpu": 2})
    scheduler = SlurmPasses(order="multifactor")
    played = simulate_jobs(two(), nodes, scheduler, site=site(how, **more))
    assert played.start.tolist() == start
    assert np.array_equal(played.end, end, equal_nan=True)
    outcome = Outcome.of(played, "slurm")
    assert outcome.endings["cancelled"][0] == (phase == "cancelled")
    cut = how != "off"
    assert outcome.endings["preempted"][0] == cut
    lost = start[1] * 4.0 if how in ("requeue", "cancel") else 0.0
    assert played.lost[0] == lost  # seconds times cores
    found = audit(outcome, None, Conditions(), site(how, **more).options(Options()))
    assert not found.counts, found.findings


def test_who_is_suspended_holds_its_cores_and_who_comes_takes_the_first_that_it_sees():
    """As a real Slurm 22.05 with PreemptMode=SUSPEND,GANG played these six jobs, within 15 s.

    The job at 43 finds one node with idle cores, and is placed as if the tier below were not
    there: on the first cores of c01, where others are idle, and of c02. Both jobs below are
    suspended. That at 74 gets idle cores of c01; that at 84 none of c03 to c12, held by one that is
    suspended; that at 104, of the tier above, does.
    """
    pool = ["low", "low", "high", "low", "low", "high"]
    cores = {"cpu": np.array([2.0, 8, 2, 4, 8, 8])}
    run, limit = [900, 900, 300, 100, 100, 100], [960, 960, 360, 180, 180, 180]
    jobs = Jobs.of(
        [0, 8, 43, 74, 84, 104], run, [1, 11, 2, 1, 1, 1], cores, limit=limit, per_node=1, pool=pool
    )
    nodes, slurm = Nodes.alike(12, {"cpu": 8}), SlurmPasses(order="multifactor")
    played = simulate_jobs(jobs, nodes, slurm, site=site("suspend"))
    assert played.start.tolist() == [0, 8, 43, 74, 1200, 104]  # Slurm: 0, 8, 43, 73, 1215, 103
    assert played.end.tolist() == [1200, 1208, 343, 174, 1300, 204]
    assert played.attempts.tolist() == [2, 2, 1, 1, 1, 1]
    on = played.piece_node[played.piece_from[[0, 3, 4, 5]]]
    assert on.tolist() == [0, 0, 0, 2]


def test_the_gang_scheduler_has_no_exempt_time_and_tells_cores_apart():
    """Cores of a node: the second job has the other half, and goes on beside the third."""
    pool = ["low", "low", "high", "high"]
    jobs = Jobs.of([0, 1, 2, 3], 100, 1, {"cpu": 2.0}, limit=100, pool=pool)
    played = simulate_jobs(
        jobs,
        Nodes.alike(1, {"cpu": 4}),
        SlurmPasses(order="multifactor"),
        site=site("suspend", exempt=60),
    )
    assert played.start.tolist() == [0, 1, 2, 3]
    assert played.end.tolist() == [200, 201, 102, 103]  # each suspended for one, resumed after it


def test_suspending_of_the_plain_passes_is_that_of_sets_of_cores():
    """Three tiers, the highest of which gives way to nobody, without backfilling."""
    tiers = (Pool(name="low"), Pool(name="mid", tier=2), Pool(name="high", tier=3, preempted="off"))
    rules = Site(Rules(pool=tiers, preemption=Preemption(by="tier", how="suspend")))
    suspended = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        at, run = np.sort(rng.integers(0, 300, 25)), rng.integers(5, 100, 25)
        tasks, cores, rank = (rng.integers(1, k, 25) for k in (4, 5, 4))
        pool = [tiers[k - 1].name for k in rank]
        asked = {"cpu": cores.astype(float)}
        jobs = Jobs.of(at, run, tasks, asked, limit=200, per_node=1, pool=pool)
        slurm = PlainPasses(order="multifactor", tested=0, choice=FirstFit())
        played = simulate_jobs(jobs, Nodes.alike(4, {"cpu": 4}), slurm, site=rules)
        plain = [gang.Job(*map(int, each)) for each in zip(at, run, tasks, cores, rank)]
        start, end = zip(*gang.play(plain, 4, 4))
        assert played.start.tolist() == list(start), seed
        assert np.allclose(played.end, end), seed
        suspended += played.counts["preemptions"]
    assert suspended > 50


def test_by_qos_only_those_named_give_way_and_a_qos_has_its_own_way():
    qos = (
        Qos(name="low", priority=1),
        Qos(name="spare", priority=5, preempted="cancel"),
        Qos(name="calm", priority=0, preempted="off"),
        Qos(name="new", priority=0, exempt=1000),
        Qos(name="urgent", priority=9, preempts=("low", "spare", "calm", "new")),
    )
    names = ["calm", "new", "low", "spare", "urgent", "urgent", "urgent"]
    jobs = Jobs.of([0, 0, 0, 0, 10, 20, 30], 100, 1, {"cpu": 1.0}, limit=100, qos=names)
    rules = Rules(qos=qos, preemption=Preemption(by="qos", how="requeue", again=121))
    played = simulate_jobs(jobs, Nodes.alike(4, {"cpu": 1}), SlurmPasses(), site=Site(rules))
    assert played.start[4:].tolist() == [10, 20, 100]  # for low, for spare, and for nobody
    assert np.array_equal(played.end[:4], [100, 100, 231, np.nan], equal_nan=True)
    assert [played.attempts[j] for j in range(4)] == [1, 1, 2, 1]


def test_few_give_way_those_of_low_rank_first():
    """Small jobs go first until it fits; then the last of them alone is seen to be enough."""
    pool, cores = ["low", "low", "low", "high"], {"cpu": 2.0}
    jobs = Jobs.of([0, 0, 0, 5], 100, [1, 1, 3, 3], cores, limit=100, per_node=1, pool=pool)
    played = simulate_jobs(jobs, Nodes.alike(5, {"cpu": 2}), SlurmPasses(), site=site())
    assert played.start[3] == 5
    assert played.attempts.tolist() == [1, 1, 2, 1]


def test_who_gives_way_is_as_the_plain_implementation_has_it():
    rng = np.random.default_rng(0)
    several = 0
    for _ in range(400):
        nodes = Nodes.of(Node(f"n{i}", {"cpu": float(rng.integers(2, 9))}) for i in range(7))
        free = dict(enumerate((nodes.capacity[:, 0] // 1000).tolist()))
        held: list[Held] = []
        for name in range(8):
            cores, tasks = int(rng.integers(1, 5)), int(rng.integers(1, 4))
            on = [n for n in rng.permutation(7).tolist() if free[n] >= cores][:tasks]
            if len(on) == tasks:
                free |= {n: free[n] - cores for n in on}
                since = float(rng.integers(0, 9))
                held.append(Held(name, int(rng.integers(1, 4)), since, dict.fromkeys(on, cores)))
        tasks, cores = int(rng.integers(1, 5)), int(rng.integers(2, 8))
        every = [*(next(iter(h.cores.values())) for h in held), cores]
        jobs = Jobs.of(
            submit=np.zeros(len(every)),
            run=9.0,
            tasks=[*(len(h.cores) for h in held), tasks],
            demand={"cpu": list(map(float, every))},
            per_node=1,
            pool=[*(f"t{h.rank}" for h in held), "t3"],
        )
        tiers = tuple(Pool(name=f"t{r}", tier=r) for r in (1, 2, 3))
        rules = Preemption(by="tier", how="requeue", reorder=int(rng.integers(0, 3)))
        books = Books.opened(nodes)
        for j, h in enumerate(held):
            pieces = tuple((n, 1, 0) for n in h.cores)
            books.running[str(j)] = Running(jobs.job(j), pieces, h.since, 0.0)
            books.take(jobs.job(j).shape, pieces)
        asked = jobs.job(len(held))
        books.tenancy = Tenancy(pools=tiers, preemption=rules)
        able = [h for h in held if h.rank < 3]
        wanted = who_gives_way(free, able, tasks, cores, rules.reorder)
        if consecutive(free, tasks, cores) is not None:
            continue
        actions = SlurmPasses().place(Queue([asked]), books, 10.0)
        ids = {action.job for action in actions if isinstance(action, Preempt)}
        placed = [action for action in actions if isinstance(action, Place)]
        if not placed or wanted is None:
            assert not placed
            assert not ids
            assert wanted is None
            continue
        assert {n for n, _ in placed[0].tasks} == wanted[0]
        assert {held[int(name)].name for name in ids} == wanted[1]
        several += len(ids) > 1
        for name in ids:  # and there it fits, once they are gone
            running = books.running[name]
            books.take(running.job.shape, running.pieces, sign=1)
        assert all(books.free[n, 0] >= 1000 * cores for n in wanted[0])
    assert several > 40


@pytest.mark.full
def test_random_sites_keep_to_the_rules_and_say_why_who_waits():
    """Whole schedules against the auditor, decided again from pickles, with answers for all."""
    seen = {"requeue": 0, "suspend": 0, "cancel": 0}
    for seed, how in enumerate(seen):
        rng = np.random.default_rng(seed)
        rules = site(how, exempt=float(rng.integers(0, 60)), again=float(rng.choice([0, 121])))
        jobs = Jobs.of(
            np.sort(rng.integers(0, 400, 40)),
            rng.integers(1, 200, 40),
            rng.integers(1, 5, 40),
            {"cpu": rng.integers(1, 4, 40).astype(float)},
            limit=rng.integers(200, 400, 40),
            per_node=1,
            pool=rng.choice(["low", "low", "high"], 40),
        )
        nodes, plain = Nodes.alike(6, {"cpu": 4}), Conditions()
        tables = Tables.of(*rules.placed(jobs, nodes, plain), rules.options(Options()))
        played = JobSimulation(tables, SlurmPasses(order="multifactor"))
        while played.step():
            for job in played.waiting:
                said = played.scheduler.explain(job.id)
                assert said.since <= played.now <= said.until
                seen[how] += "preempted for" in said.constraint or "suspended" in said.constraint
            played.scheduler = copy_of(played.scheduler)
        assert not played.waiting
        schedule = played.schedule()
        again = simulate_jobs(jobs, nodes, SlurmPasses(order="multifactor"), site=rules)
        assert np.array_equal(schedule.end, again.end, equal_nan=True)
        found = audit(Outcome.of(again, ""), None, plain, tables.options)
        assert not found.counts, (seed, how, found.findings[:3])
        level = (Pool(name="low", tier=2), Pool(name="high", tier=2))
        wrong = replace(tables.options.tenancy, pools=level)
        if again.counts["preemptions"]:
            bad = audit(Outcome.of(again, ""), None, plain, replace(tables.options, tenancy=wrong))
            assert bad.counts["preemption"] == again.counts["preemptions"]
    assert seen["requeue"] > 2
    assert seen["suspend"] > 2
    check_scheduler("slurm", cases=1)


def test_slurm_conf_says_who_may_preempt_whom(tmp_path):
    (tmp_path / "slurm.conf").write_text(
        "PreemptType=preempt/qos\nPreemptMode=REQUEUE\nPreemptExemptTime=00:05:00\n"
        "PreemptParameters=reorder_count=3,strict_order,reclaim_licenses\n"
        "NodeName=c[1-4] CPUs=8\nPartitionName=a Nodes=ALL PreemptMode=OFF GraceTime=60\n"
    )
    (tmp_path / "qos.txt").write_text(
        "Name|Priority|Preempt|PreemptMode|PreemptExemptTime\n"
        "low|1||cancel|00:01:00\nhigh|9|low,mid|cluster|\nmid|3||within|\n"
    )
    found = Site.read(f"slurm:{tmp_path}")
    assert found.rules.preemption == Preemption(
        by="qos", how="requeue", exempt=300, again=121, strict=True, reorder=3
    )
    assert [(q.preempts, q.preempted, q.exempt) for q in found.rules.qos] == [
        ((), "cancel", 60),
        (("low", "mid"), "", None),
        ((), "", None),
    ]
    said = "\n".join(found.notes)
    for part in (
        "not modelled: PreemptParameters=reclaim_licenses, slurm.conf",
        "not modelled: GraceTime=60 (who is preempted leaves at once), slurm.conf, line 6",
        "qos.txt, line 4: PreemptMode=within makes no sense; '' is taken",
    ):
        assert part in said, said
    (tmp_path / "slurm.conf").write_text(
        "PreemptType=preempt/partition_prio\nPreemptMode=SUSPEND,GANG\nNodeName=c[1-4] CPUs=8\n"
        "PartitionName=a Nodes=ALL PriorityTier=9\n"
    )
    found = Site.read(f"slurm:{tmp_path}")
    assert (found.rules.preemption.by, found.rules.preemption.how) == ("tier", "suspend")
    assert "jobs of one tier do not take turns" in "\n".join(found.notes)
