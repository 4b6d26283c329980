"""Slurm's lines of several partitions, and limits of minutes, against their rules by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gangwise.jobs import Jobs
from gangwise.jobs.model import Conditions
from gangwise.jobs.scheduler import create_scheduler
from gangwise.jobs.simulation import simulate_jobs
from gangwise.sites.site import Site

TWO = "NodeName=n[1-4] CPUs=1\nPartitionName=a Nodes=n[1-2]\nPartitionName=b Nodes=n[3-4]\n"


def site_of(folder, conf: str, **files: str) -> Site:
    for name, text in {"slurm.conf": conf, **files}.items():
        (folder / name.replace("_", ".")).write_text(text)
    return Site.read(f"slurm:{folder}")


def played(site: Site, jobs: Jobs):
    conditions = Conditions()
    return simulate_jobs(
        jobs, site.nodes, create_scheduler(site.scheduler), conditions=conditions, site=site
    )


def in_pools(submit, run, pool, terms, tasks=1, limit=None, **more) -> Jobs:
    limits = run if limit is None else limit
    return Jobs.of(submit, run, tasks, {"cpu": 1}, limit=limits, pool=pool, terms=terms, **more)


def test_a_job_waits_in_the_line_of_each_of_its_partitions_and_starts_once(tmp_path):
    site = site_of(tmp_path, TWO)
    pools, terms = ["a", "a", "a", "b"], ["", "", "pools=a|b", ""]
    jobs = in_pools([0, 0, 1, 2], [100, 100, 50, 10], pools, terms, after={3: [2]})
    schedule = played(site, jobs)
    assert schedule.start.tolist() == [0, 0, 1, 51]  # who comes after it waits for it
    assert [schedule.jobs.pools[p] for p in schedule.jobs.pool] == ["a", "a", "b", "b"]
    assert schedule.end.tolist() == [100, 100, 51, 61]
    assert schedule.nodes.names[schedule.placed(2)[0][0]] == "n3"
    alone = in_pools([0, 0, 1, 2], [100, 100, 50, 10], pools, [""] * 4)
    assert played(site, alone).start[2] == 100


def test_each_entry_has_the_tier_and_priority_of_its_partition(tmp_path):
    """Of two jobs for the one node that becomes free, who also asks for the higher tier has it."""
    conf = "NodeName=n1 CPUs=1\nPartitionName=low Nodes=n1\nPartitionName=high Nodes=n1 {}\n"
    pools, run = ["low"] * 3, [100, 10, 10]
    for more, first in (("PriorityTier=5", 2), ("", 1)):
        site = site_of(tmp_path, conf.format(more))
        jobs = in_pools([0, 1, 2], run, pools, ["", "", "pools=low|high"])
        start = played(site, jobs).start
        assert np.argsort(start).tolist() == [0, first, 3 - first]
    weighed = "PriorityType=priority/multifactor\nPriorityWeightPartition=100\n"
    site = site_of(tmp_path, weighed + conf.format("PriorityJobFactor=5"))
    jobs = in_pools([0, 1, 2], run, pools, ["", "", "pools=low|high"])
    assert np.argsort(played(site, jobs).start).tolist() == [0, 2, 1]


def test_a_partition_that_refuses_the_job_has_no_entry_for_it(tmp_path):
    site = site_of(tmp_path, TWO.replace("n[3-4]\n", "n[3-4] MaxTime=1\n"))
    jobs = in_pools([0, 0, 1], [100, 100, 50], "a", ["", "", "pools=a|b"], limit=120)
    assert played(site, jobs).start.tolist() == [0, 0, 100]
    # Refused in the first of them alone.
    jobs = in_pools([0, 0, 1], [100, 100, 50], ["a", "a", "a"], ["", "", "pools=b|a"], limit=120)
    assert played(site, jobs).start.tolist() == [0, 0, 100]


@pytest.mark.parametrize(("one", "starts"), [("", 500), ("bf_one_resv_per_job", 30)])
def test_a_job_has_a_reservation_in_each_partition_or_one_in_all(one, starts, tmp_path):
    """The last job would be in the way of the second reservation, of n[3-4] from 500 s on."""
    site = site_of(tmp_path, f"SchedulerParameters={one}\n" + TWO)
    jobs = in_pools(
        [0, 0, 1, 2],
        [1000, 500, 100, 100],
        ["a", "b", "a", "b"],
        ["", "", "pools=a|b", ""],
        tasks=[1, 1, 2, 1],
        limit=[1020, 540, 120, 780],
        per_node=1,
    )
    start = played(site, jobs).start
    assert start[2] == 500
    assert start[3] == pytest.approx(600 if starts == 500 else 30, abs=31)


def test_who_lost_its_nodes_waits_in_each_of_its_partitions_again(tmp_path):
    conf = "PreemptType=preempt/partition_prio\nPreemptMode=REQUEUE\nNodeName=n[1-2] CPUs=1\n"
    conf += "PartitionName=a Nodes=n1\nPartitionName=b Nodes=n2\n"
    conf += "PartitionName=top Nodes=n1 PriorityTier=9 PreemptMode=OFF\n"
    site = site_of(tmp_path, conf)
    jobs = in_pools([0, 50], [400, 1000], ["a", "top"], ["pools=a|b", ""], limit=[600, 1200])
    schedule = played(site, jobs)
    assert schedule.start.tolist() == [0, 50]
    assert schedule.last_start[0] == pytest.approx(171, abs=31)  # 121 s later, on n2
    assert schedule.jobs.pools[schedule.jobs.pool[0]] == "b"
    assert schedule.cuts["job"].tolist() == [0]


# ------------------------------------------------------------------------------ limits of minutes

MINUTES = (
    "AccountingStorageEnforce={}\nPriorityType=priority/multifactor\nPriorityCalcPeriod=1\n"
    "PriorityDecayHalfLife={}\nNodeName=n[1-99] CPUs=8\nPartitionName=p Nodes=ALL\n"
)
USERS = "Cluster|Account|User|ParentName|{0}\nlab|top|||\nlab|x||top|{1}\nlab|x|ann||\n"


def used_by(time, start, end, cores, half_life, period=60.0):
    """Core-seconds used by then, as Slurm adds them up: every period, and as a job ends."""
    due, total = math.floor(time / period) * period, 0.0
    kept = 0.5 ** (period / half_life) if half_life else 1.0
    for begin, over, n in zip(start, end, cores):
        use, tick = 0.0, 0.0
        while tick < due:
            use = (use + n * max(min(over, tick + period) - max(begin, tick), 0.0)) * kept
            tick += period
        if over <= time:
            use += n * max(over - max(begin, due), 0.0)
        total += use
    return total


def ahead_of(time, start, limit, end, cores, period=60.0):
    """Core-seconds that running jobs may still use, of those that Slurm knows."""
    due = math.floor(time / period) * period
    runs = (start <= time) & (end > time)
    return float((cores * (start + limit - np.maximum(start, due)))[runs].sum())


@pytest.mark.parametrize(
    ("enforce", "setting", "most", "half_life"),
    [
        ("limits", "GrpTRESMins", 300, 1200),
        ("safe", "GrpTRESMins", 700, 1200),
        ("limits", "GrpTRESRunMins", 250, 0),
        ("limits", "GrpWall", 60, 1200),
        ("safe", "GrpWall", 90, 1200),
    ],
)
def test_limits_of_minutes_hold_a_job_exactly_while_they_are_reached(
    enforce, setting, most, half_life, tmp_path
):
    """There are nodes for all: nobody starts above the limit, and nobody waits below it."""
    rng, J = np.random.default_rng(3), 60
    value = f"cpu={most}" if setting != "GrpWall" else f"{most}:00"
    conf = MINUTES.format(enforce, half_life / 60)
    site = site_of(tmp_path, conf, assoc_txt=USERS.format(setting, value))
    submit = np.cumsum(rng.integers(5, 90, J)).astype(float)
    run, cores = rng.integers(60, 900, J).astype(float), rng.integers(1, 9, J)
    limit = np.ceil(run / 60) * 60 + 60 * rng.integers(0, 5, J)
    jobs = Jobs.of(submit, run, 1, {"cpu": cores}, limit=limit, user="ann", charged="x", pool="p")
    schedule = played(site, jobs)
    start, end = schedule.start, schedule.end
    assert np.isfinite(start).all()
    assert (start - submit).mean() > 60.0
    n = np.ones(J) if setting == "GrpWall" else cores

    def over(j: int, time: float, among) -> bool:
        """Whether the limit holds job j then, with these others."""
        mine = start[among], end[among], n[among]
        wanted = n[j] * limit[j] / 60
        ahead = ahead_of(time, mine[0], limit[among], mine[1], mine[2]) // 60
        if setting == "GrpTRESRunMins":
            return wanted + ahead > most
        used = used_by(time, *mine, half_life) // 60
        also = wanted + (ahead if setting == "GrpTRESMins" else 0)
        return used >= most or (enforce == "safe" and used + also > most)

    rows = np.arange(J)
    for j in range(J):
        # Of one instant those before it in line are among the others.
        begun = rows[(start < start[j]) | ((start == start[j]) & (rows < j))]
        assert not over(j, start[j], begun)
        if start[j] > submit[j] + 60:  # a round and a backfill pass ago it was held
            earlier = start[j] - 31.0
            assert any(over(j, t, rows[start <= t]) for t in np.arange(earlier, start[j], 1.0))


def test_what_a_qos_without_decay_used_stays_used(tmp_path):
    qos = "Name|GrpTRESMins|Flags\nnormal|cpu=20|{}\n"
    for flag, started in (("NoDecay", 1), ("", 2)):
        site = site_of(tmp_path, MINUTES.format("limits", 1), qos_txt=qos.format(flag))
        jobs = Jobs.of([0, 700], 600, 1, {"cpu": 4}, limit=600, qos="normal", pool="p")
        assert np.isfinite(played(site, jobs).start).sum() == started


def test_a_job_alone_above_its_minutes_is_set_aside_and_said_so(tmp_path):
    qos = "Name|MaxTRESMins\nnormal|cpu=40\n"
    site = site_of(tmp_path, MINUTES.format("limits", 1), qos_txt=qos)
    jobs = Jobs.of([0, 0], 60, 1, {"cpu": 4}, limit=[600, 660], qos="normal", pool="p")
    schedule = played(site, jobs)
    assert np.isfinite(schedule.start).tolist() == [True, False]
    assert [rows.tolist() for rows in schedule.account.set_aside.values()] == [[1]]
    # A limit of an association's time is one of minutes of a job; that of a QOS stands before it.
    for of_qos, ran in (("", 1), ("Name|MaxWall\nnormal|00:20:00\n", 2)):
        files = {"assoc_txt": USERS.format("MaxWall", "00:10:00")}
        site = site_of(tmp_path, MINUTES.format("limits", 1), qos_txt=of_qos, **files)
        jobs = Jobs.of([0, 0], 60, limit=[600, 660], user="ann", charged="x", qos="normal")
        assert np.isfinite(played(site, jobs).start).sum() == ran


def test_minutes_need_multifactor_and_are_told(tmp_path):
    conf, files = MINUTES.format("limits", 1), {"assoc_txt": USERS.format("GrpTRESMins", "cpu=1")}
    site = site_of(tmp_path, conf, **files)
    assert len(site.rules.cap) == 1
    assert any("before the log begins" in note for note in site.notes)
    basic = site_of(tmp_path, conf.replace("multifactor", "basic"), **files)
    assert not basic.rules.cap
    assert any("without priority/multifactor" in note for note in basic.notes)


# ------------------------------------------------------------------------------------ look-ahead


@pytest.mark.parametrize(("limit", "early"), [(310, True), (400, False)])
def test_an_end_elsewhere_joins_the_next_end_here_to_its_group(limit, early, tmp_path):
    """As a real Slurm planned job 31 of `several` for the end of the job after the one it needed.

    Two nodes are free for the third job at 300 s; where a job on other nodes ends within the same
    half minute, Slurm plans it for 3000 s, and a fourth job of 1000 s may go first.
    """
    conf = "NodeName=n[1-4] CPUs=1\nPartitionName=a Nodes=n[1-3]\nPartitionName=b Nodes=n4\n"
    limits = [300, 3000, limit, 600, 1000]
    jobs = in_pools(
        [0, 0, 0, 1, 2], limits, ["a", "a", "b", "a", "a"], "", [1, 1, 1, 2, 1], per_node=1
    )
    start = played(site_of(tmp_path, conf), jobs).start
    assert start[:3].tolist() == [0, 0, 0]
    assert (start[4] < 100) == early
