"""Sites as Slurm prints them, and starts as a real Slurm made them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from dataclasses import replace
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from benchmarks.slurm_truth import compared
from scipy.stats import kendalltau

from gangwise.core.errors import ScenarioError
from gangwise.core.settings import Clock
from gangwise.jobs import Conditions, Jobs, Node, Nodes
from gangwise.jobs.audit import audit
from gangwise.jobs.metrics import Outcome
from gangwise.jobs.model import Shape
from gangwise.jobs.queue_kernels import hold, priority_key, tick
from gangwise.jobs.schedule import Options, Tables
from gangwise.jobs.simulation import simulate_jobs
from gangwise.jobs.tenancy import Cap, Tally, standing_of
from gangwise.logs.jobs import open_jobs
from gangwise.sites.site import CapRule, ReservedNodes, Rules, Site
from gangwise.sites.slurm_files import SlurmReading, in_own_words
from gangwise.sites.slurm_passes import SlurmPasses
from gangwise.study.replay import replay

TRUTH = Path(__file__).with_name("slurm_truth")

CONF = r"""
# how jobs are scheduled
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=60,bf_max_job_user=4,bf_continu
SelectTypeParameters=CR_Core
AccountingStorageEnforce=limits,qos
PriorityWeigthAge=100
TopologyPlugin=topology/tree
Include nodes.conf
PartitionName=DEFAULT MaxTime=1-00:00:00 \
    PriorityTier=2
PartitionName=batch Nodes=c[1-4] Default=YES
PartitionName=debug Nodes=g[01-02] MaxTime=30 MaxNodes=1 QoS=small State=DRAIN
PartitionName=odd Nodes=ALL MaxNodes=2 MinNodes=3 MaxTime=tomorrow
"""
NODES = """
NodeName=DEFAULT CPUs=8 RealMemory=16384
NodeName=c[1-4] Weight=5
NodeName=g[01-02] Gres=gpu:a100:4 Sockets=2 CoresPerSocket=16 CPUs=32
"""
QOS = """Name|Priority|GrpTRES|MaxTRESPU|MaxJobsPU|MaxWall|Flags|Colour
normal|0||cpu=16|||NoReserve|
small|10|gres/gpu=4,node=2|||02:00:00|DenyOnLimit|
"""
ASSOC = """Cluster|Account|User|Partition|ParentName|Share|GrpTRES|GrpJobs|MaxJobs
lab|root||||1|||
lab|science|||root|3|||5
lab|physics|||science|2|cpu=40||
lab|physics|ann|||4|||
lab|physics|bob|||parent||2|1
other|physics|||root|1|cpu=1||
"""


@pytest.fixture
def folder(tmp_path):
    files = {"slurm.conf": CONF + "ClusterName=lab\n", "nodes.conf": NODES, "qos.txt": QOS}
    for name, text in (files | {"assoc.txt": ASSOC, "notes.txt": "hello\n"}).items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_what_the_files_say_becomes_rules(folder):
    site = Site.read(f"slurm:{folder}")
    pools = {pool.name: pool for pool in site.rules.pool}
    assert (pools["batch"].nodes, pools["batch"].most_time, pools["batch"].tier) == (
        *("c1,c2,c3,c4", 86_400),
        2,
    )
    assert (pools["debug"].most_time, pools["debug"].most_nodes) == (1800, 1)
    assert pools["odd"].nodes == "c1,c2,c3,c4,g01,g02"  # by name, whatever their weights
    assert site.nodes.names == ("c1", "c2", "c3", "c4", "g01", "g02")
    assert site.nodes.capacity[-1].tolist() == [32_000, 16_000, 4_000]
    assert site.nodes.labels[-1] == {"model": "a100", "weight": "1"}
    assert site.ignored == ("mem",)
    assert {q.name: (q.priority, q.most_time) for q in site.rules.qos} == {
        "normal": (0, np.inf),
        "small": (10, 7200),
    }
    found = {
        (c.scope, c.of, c.most, c.only, c.qos, c.account, c.alone, c.or_pools)
        for c in site.rules.cap
    }
    assert found == {
        ("user", "cpu", 16, (), "normal", "", False, ()),
        ("all", "gpu", 4, (), "small", "", False, ("debug",)),  # also its partition's QOS
        ("all", "nodes", 2, (), "small", "", False, ("debug",)),
        ("all", "cpu", 40, (), "", "physics", False, ()),
        ("user", "jobs", 5, ("ann",), "", "physics", True, ()),  # from the account above
        ("user", "jobs", 2, ("bob",), "", "physics", True, ()),
        ("user", "jobs", 1, ("bob",), "", "physics", True, ()),
    }
    tree = {a.name: (a.parent, a.shares, dict(a.users)) for a in site.rules.account}
    users = {"ann": 4, "bob": 1}  # who has no job counts in the rank of the fair tree, too
    assert tree == {"science": ("", 3, {}), "physics": ("science", 2, users)}
    assert "interval=60" in site.scheduler


def test_what_is_not_modelled_unknown_or_wrong_is_named_with_file_and_line(folder):
    said = "\n".join(Site.read(f"slurm:{folder}").notes)
    for part in (
        "unknown: bf_continu (did you mean bf_continue?)",
        "unknown: PriorityWeigthAge=100 (did you mean PriorityWeightAge?), slurm.conf, line 7",
        "slurm.conf, line 8: TopologyPlugin=topology/tree, and no topology.conf: taken as if flat",
        "not modelled: State=DRAIN (it is played as if it were up), slurm.conf, line 13",
        "slurm.conf, line 14: MaxTime=tomorrow makes no sense; inf is taken",
        "slurm.conf, line 14: partition odd has MinNodes=3 above MaxNodes=2: no job may run there",
        "not modelled: Flags=NoReserve (it is left out), qos.txt, line 2",
        "notes.txt is not what scontrol or sacctmgr prints: left out",
        "assoc.txt, line 6: not modelled: Share=parent (1 is taken)",
    ):
        assert part in said, said
    for harmless in ("DenyOnLimit", "SelectType", "Default=YES", "bf_interval"):
        assert harmless not in said


def test_what_the_controller_prints_counts_before_slurm_conf(folder):
    (folder / "config.txt").write_text(
        "Configuration data as of 2026-11-23\n"
        "SelectTypeParameters    = CR_CORE_MEMORY\nSchedulerParameters     = bf_interval=60\n"
        "PriorityMaxAge          = 7-00:00:00\n"
    )
    (folder / "slurm.conf").write_text((folder / "slurm.conf").read_text() + "PriorityMaxAge=7-0\n")
    site = Site.read(f"slurm:{folder}")
    assert site.ignored == ()
    assert "PriorityMaxAge" not in str(site.notes)  # the same, written otherwise
    assert "config.txt, line 2: SelectTypeParameters=CR_CORE_MEMORY is taken, not CR_Core" in (
        "\n".join(site.notes)
    )


def test_settings_change_in_slurms_own_words_where_they_stand(folder):
    changes = [
        (["SchedulerParameters", "bf_interval"], "*=", "2"),
        (["qos", "small", "GrpTRES", "gres/gpu"], "+=", "4"),
        (["partition", "debug", "MaxTime"], "=", "01:00:00"),
        (["PriorityWeightAge"], "=", "7"),
    ]
    assert all(in_own_words(path) for path, _, _ in changes)
    assert not any(
        in_own_words(p) for p in (["pool", "debug", "most_time"], ["load"], ["nodes", "all"])
    )
    site = Site.read(f"slurm:{folder}", changes)
    assert "interval=120" in site.scheduler
    assert ("all", "gpu", 8, "small") in {(c.scope, c.of, c.most, c.qos) for c in site.rules.cap}
    assert {p.name: p.most_time for p in site.rules.pool}["debug"] == 3600
    assert site.edits == (
        "  slurm.conf, line 4",
        "- SchedulerParameters=bf_interval=60,bf_max_job_user=4,bf_continu",
        "+ SchedulerParameters=bf_interval=120,bf_max_job_user=4,bf_continu",
        "  qos.txt, line 3, Name=small",
        "- GrpTRES=gres/gpu=4,node=2",
        "+ GrpTRES=gres/gpu=8,node=2",
        "  slurm.conf, line 13, PartitionName=debug",
        "- MaxTime=30",
        "+ MaxTime=01:00:00",
        "  slurm.conf",
        "+ PriorityWeightAge=7",
    )
    before = Site.read(f"slurm:{folder}")
    for path, how, given, said in (
        (["partition", "gpu", "MaxTime"], "=", "1", "the files have no partition gpu"),
        (["partition", "debug", "MaxTime"], "=", "soon", "debug.MaxTime=soon: soon makes no sense"),
        (["partition", "odd", "MaxTime"], "+=", "1", "'tomorrow' is no number; write ="),
    ):
        with pytest.raises(ScenarioError, match=said):
            Site.read(f"slurm:{folder}", [(path, how, given)])
    assert Site.read(f"slurm:{folder}").digest == before.digest != site.digest


def site_of(folder, conf: str, **files: str) -> Site:
    for name, text in {"slurm.conf": conf, **files}.items():
        (folder / name.replace("_", ".")).write_text(text)
    return Site.read(f"slurm:{folder}")


def test_a_site_has_one_digest_whatever_the_process(tmp_path):
    qos = ["Name|MaxJobsPU|Flags", *(f"{name}|2|OverPartQOS" for name in "abcdef")]
    users = ["Cluster|Account|User|ParentName|MaxJobs", "lab|root|||", "lab|x||root|3"]
    booked = "ReservationName=r StartTime=2026-01-01T00:00 EndTime=2026-01-02T00:00 Nodes=ALL\n"
    conf = "ClusterName=lab\nAccountingStorageEnforce=limits\nNodeName=n[1-9] CPUs=8\n"
    files = {"qos_txt": "\n".join(qos), "assoc_txt": "\n".join(users), "res_txt": booked}
    here = site_of(tmp_path, conf + "PartitionName=p Nodes=ALL QoS=a\n", **files)
    script = f"from gangwise.sites.site import Site; print(Site.read('slurm:{tmp_path}').digest)"
    for seed in "12":
        command, environment = [sys.executable, "-c", script], os.environ | {"PYTHONHASHSEED": seed}
        elsewhere = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert elsewhere.stdout.strip() == here.digest


def test_a_continued_line_is_joined_as_it_is_written(tmp_path):
    conf = "NodeName=a[1-4] CPUs=4\nPartitionName=p Nodes=a1,\\  \na2,a3 MaxTime=60\n"
    site = site_of(tmp_path, conf + "PartitionName=q Nodes=a1,\\\n   a2\n")
    assert [(pool.nodes, pool.most_time) for pool in site.rules.pool] == [
        ("a1,a2,a3", 3600),
        ("a1", np.inf),  # a blank ends a list, to Slurm as well
    ]
    assert site.notes == ("slurm.conf, line 5: 'a2' is no setting, and is left out",)


def test_included_files_are_found_by_pattern_and_cluster(tmp_path):
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "lab_nodes.conf").write_text("NodeName=a[1-2] CPUs=4\n")
    (tmp_path / "conf.d" / "lab_parts.conf").write_text("PartitionName=p Nodes=ALL\n")
    conf = "ClusterName=lab\nInclude /etc/slurm/conf.d/%c_*.conf\ninclude lost.conf\n"
    site = site_of(tmp_path, conf, cgroup_conf="ConstrainCores=yes\n")
    assert [pool.nodes for pool in site.rules.pool] == ["a1,a2"]
    assert site.notes == ("slurm.conf, line 3: lost.conf is not in the folder, and is left out",)


def test_a_comment_of_another_encoding_is_no_reason_to_refuse_a_site(tmp_path):
    lines = b"# K\xf6ln\nNodeName=n1 CPUs=4\nPartitionName=p Nodes=n1\n"
    (tmp_path / "slurm.conf").write_bytes(lines)
    assert Site.read(f"slurm:{tmp_path}").nodes.names == ("n1",)
    (tmp_path / "core").write_bytes(b"\x7fELF\0\0")
    with pytest.raises(ScenarioError, match="core is no text; give a folder"):
        Site.read(f"slurm:{tmp_path}")


def test_nodes_are_those_that_slurm_would_have(tmp_path):
    site = site_of(
        tmp_path,
        "NodeName=DEFAULT RealMemory=4096\n"
        "NodeName=r[0-1]n[1-2] Procs=8 Feature=cpu NodeHostName=h[0-1]x[1-2]\n"
        "nodename=k1 cpus=16 threadspercore=2 corespeccount=1 memspeclimit=1024 feature=big\n"
        "NodeName=k2 CPUs=16 CpuSpecList=0-2\nNodeName=new[1-9] CPUs=4 State=FUTURE\n"
        "NodeSet=some Feature=big Nodes=r0n1\n"
        "PartitionName=DEFAULT Priority=7\n"
        "PartitionName=p,q Nodes=some,k2,new3\nPartitionName=r Nodes=ALL PriorityTier=2\n",
    )
    assert site.nodes.names == ("k1", "k2", "r0n1", "r0n2", "r1n1", "r1n2")
    assert (site.nodes.capacity[:, 0] / 1000).tolist() == [14, 13, 8, 8, 8, 8]
    assert (site.nodes.capacity[:, 1] / 1000).tolist() == [3, 4, 4, 4, 4, 4]
    pools = [(p.name, p.nodes, p.tier, p.priority) for p in site.rules.pool]
    assert pools == [
        ("p", "r0n1,k1,k2", 7, 7),
        ("q", "r0n1,k1,k2", 7, 7),
        ("r", "k1,k2,r0n1,r0n2,r1n1,r1n2", 2, 7),
    ]
    assert "partition p has nodes that no file describes, and that are left out: new3" in str(
        site.notes
    )
    printed = "NodeName=a1 CPUTot=8\n   CPUEfctv=6 CoreSpecCount=2 State=IDLE\n\n"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "nodes.txt").write_text(printed)
    assert Site.read(f"slurm:{tmp_path}/other").nodes.capacity[0, 0] == 6000


def test_files_mean_what_slurm_prints_of_them(tmp_path):
    """Lines that scontrol 22.05 printed for these settings."""
    nodes = "NodeName=n[1-2] CPUs=4 Feature=x\nNodeSet=s Feature=x\n"
    flags = "PriorityType=priority/multifactor\nPriorityFlags=NO_NORMAL_PART\n"
    written = "PartitionName=p Nodes=s MaxTime=2-03:04:05\nPartitionName=q Nodes=n1 MaxTime=17:30\n"
    site = site_of(tmp_path, nodes + flags + written)
    printed = "PartitionName=p MaxTime=2-03:05:00 Nodes=n1,n2 NodeSets=s\n"
    printed += "PartitionName=q MaxTime=00:18:00 Nodes=n1 NodeSets=(null)\n"
    config = "Configuration data as of 2026\nPriorityFlags           = NO_NORMAL_ALL\n"
    both = site_of(tmp_path, nodes + flags, config_txt=config, partitions_txt=printed)
    assert both.document() == site.document()
    assert both.notes == site.notes == ()


def test_cores_kept_for_the_system_are_as_many_as_slurm_keeps(tmp_path):
    """CPUEfctv as slurmctld 22.05 prints it for these lines."""
    whole = "Sockets=2 CoresPerSocket=8 ThreadsPerCore=2"
    nodes = {
        f"CPUs=16 {whole} CoreSpecCount=1": 15,  # CPUs= counts cores
        f"CPUs=32 {whole} CoreSpecCount=1": 30,
        f"{whole} CoreSpecCount=1": 30,
        "CPUs=16 ThreadsPerCore=2 CoreSpecCount=1": 14,
        f"CPUs=16 {whole} CpuSpecList=0-1": 14,
        f"CPUs=32 {whole} CpuSpecList=0-2": 28,  # two cores, one of them named by half
    }
    lines = [f"NodeName=a{i} {text}\n" for i, text in enumerate(nodes)]
    site = site_of(tmp_path, "".join(lines) + "PartitionName=p Nodes=ALL\n")
    assert (site.nodes.capacity[:, 0] / 1000).tolist() == [*nodes.values()]


def test_a_list_goes_on_and_only_slips_are_guessed(tmp_path):
    site = site_of(
        tmp_path,
        "SchedulerParameters=bf_interval=60\nSchedulerParameters+=max_job_bf=77\nFastSchedul=1\n"
        "Fast=1\nNodeName=a CPUs=1\nPartitionName=p Nodes=a Shared=FORCE:2\n",
    )
    assert (site.scheduler, len(site.notes)) == ("slurm:interval=60,tested=77", 3)
    for part in (
        "unknown: FastSchedul=1 (did you mean FastSchedule?), slurm.conf, line 3",
        "unknown: Fast=1, slurm.conf, line 4",
        "not modelled: OverSubscribe=FORCE:2 (",
    ):
        assert part in str(site.notes)


LIMITED = """Name|Priority|Flags|MaxJobsPU|GrpTRES|MaxTRESPU
normal|0||||gres/gpu:a100=2
wide|0|OverPartQOS|2||
part|0||1|cpu=4|
"""
USERS = """Cluster|Account|User|Partition|ParentName|Share|GrpTRES|GrpJobs|MaxJobs|MaxTRES
lab|root||||1||||
lab|top|||root|1|cpu=6||3|cpu=3
lab|low|||top|1||||
lab|low|ann|||1||||cpu=2
lab|low|bob|p||1|||1|
"""


def test_the_first_limit_that_is_set_counts(tmp_path):
    """Who may start beside whom: what each pair of jobs may do is counted by hand."""
    conf = (
        "AccountingStorageEnforce=limits\nNodeName=n1 CPUs=9 Gres=gpu:a100:4\n"
        "PartitionName=p Nodes=n1 QOS=part\nPartitionName=r Nodes=n1\n"
    )
    site = site_of(tmp_path, conf, qos_txt=LIMITED, assoc_txt=USERS)
    caps = site.options(Options()).caps

    def started(*jobs: tuple[str, str, str, str], cpu: float = 1.0, gpu: float = 0.0) -> list[int]:
        """Those of jobs (user, account, pool, QOS) that may start, one after another."""
        user, account, pool, qos = (list(of) for of in zip(*jobs))
        given = Jobs.of(
            [0] * len(jobs),
            9,
            1,
            {"cpu": cpu, "mem": 0.0, "gpu": gpu},
            user=user,
            charged=account,
            pool=pool,
            qos=qos,
            constraint=[{"model": "a100"} if gpu else {} for _ in jobs],
        )
        placed = site.placed(given, site.nodes, Conditions())
        tables = Tables.of(*placed, site.options(Options()))
        tally, able = Tally(caps, site.nodes), list[int]()
        flat, used = tables.claims.caps, np.zeros(tables.claims.counters + 1, dtype=np.int64)
        for j, job in enumerate(tables.jobs.job(j) for j in range(len(jobs))):
            c = tables.claims.of_job[j if tables.claims.of_job.size > 1 else 0]
            mine = slice(flat.starts[c], flat.starts[c + 1])
            fits = (used[flat.counter[mine]] + flat.amount[mine] <= flat.most[mine]).all()
            assert fits == (tally.holds(job) is None)
            if fits and not tables.aside[j]:
                able.append(j)
                tally.take(job)
                np.add.at(used, flat.counter[mine], flat.amount[mine])
        return able

    ann, bob, cid = ("ann", "low"), ("bob", "low"), ("cid", "top")
    # The partition's QOS says one job a user; elsewhere nothing does but the account: three.
    assert started(*[(*ann, "p", "normal")] * 2) == [0]
    assert started(*[(*ann, "r", "normal")] * 4) == [0, 1, 2]
    # OverPartQOS: its own two jobs count, though the partition's QOS counts them, too.
    assert started(*[(*ann, "p", "wide")] * 3) == [0, 1]
    assert started((*ann, "p", "wide"), (*ann, "p", "normal")) == [0]
    # GrpTRES of the partition's QOS stands before that of the account above; else that counts.
    assert started(*[(f"u{i}", "low", "p", "normal") for i in range(6)]) == [0, 1, 2, 3]
    assert started(*[(f"u{i}", "low", "r", "normal") for i in range(8)]) == [*range(6)]
    # MaxTRES of the user before that of the account; MaxJobs of bob is for one partition.
    assert started((*ann, "r", "normal"), cpu=3) == []
    assert started((*cid, "r", "normal"), cpu=3) == [0]
    # A limit of a GPU's model counts jobs that ask for it.
    assert started(*[(*bob, "r", "normal")] * 3, gpu=1) == [0, 1]


def test_nodes_are_side_by_side_by_their_names_wherever_they_stand(tmp_path):
    # As a real Slurm took them, five times of five: b[01-02], c[01-03], f[01-03].
    site = site_of(
        tmp_path,
        "NodeName=c[01-03],f[01-03],g01 CPUs=4\nNodeName=b[01-02] CPUs=8\nNodeName=m01 CPUs=2\n"
        "PartitionName=batch Nodes=ALL\n",
    )
    demands = [((1000,), 0), ((4000,), 1), ((2000,), 1)]
    shapes = tuple(Shape(demand, per_node) for demand, per_node in demands)
    jobs = replace(
        Jobs.of(submit=[0.0, 1.0, 2.0], run=[99.0] * 3, tasks=[16, 3, 3]),
        devices=("cpu",),
        shapes=shapes,
        shape=np.arange(3),
    )
    played = simulate_jobs(jobs, site.nodes, SlurmPasses(), site=site)
    names = [[site.nodes.names[n] for n, _ in played.placed(j)] for j in range(3)]
    assert names == [["b01", "b02"], ["c01", "c02", "c03"], ["f01", "f02", "f03"]]


@pytest.mark.parametrize(
    ("lln", "term", "taken"),
    [
        # As a real Slurm took them in a partition with LLN=YES: f01 while all are idle, and f02
        # once 14 of its 16 threads are in use.
        ("LLN=YES", "", ["f01", "f02"]),
        ("", "", ["f01", "f01"]),
        # With --spread-job it took b01, the first node, and not c01, which was as full as may be.
        ("", "spread=yes", ["b01", "b01"]),
    ],
)
def test_nodes_one_by_one_are_the_least_loaded_or_the_first(lln, term, taken, tmp_path):
    site = site_of(
        tmp_path,
        "NodeName=f[01-03] CPUs=16\nNodeName=b01 CPUs=32\n"
        f"PartitionName=short Nodes={'b01,' * bool(term)}f[01-03] {lln}\n",
    )
    jobs = replace(
        Jobs.of(submit=[0.0, 1.0], run=[99.0] * 2, tasks=[14, 2]),
        devices=("cpu",),
        shapes=(Shape((1000,), 0),),
        pools=("short",),
        terms=(term,),
    )
    played = simulate_jobs(jobs, site.nodes, SlurmPasses(), site=site)
    assert [site.nodes.names[played.placed(j)[0][0]] for j in range(2)] == taken


def test_nodes_that_were_down_take_no_jobs(tmp_path):
    events = (
        "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User\n"
        "lab||2026-01-01T00:00:00|Unknown||Cluster Registered TRES|\n"
        "lab|n[1-2]|2026-01-02T10:00:00|2026-01-02T11:00:00|DOWN|power|root(0)\n"
        "lab|n3|2026-01-02T10:30:00|Unknown|DRAIN|disk|root(0)\n"
        "lab|n1|2025-12-01T10:30:00|2025-12-02T10:30:00|DOWN*|old|root(0)\n"
    )
    conf = "NodeName=n[1-3] CPUs=1\nPartitionName=p Nodes=ALL\n"
    site = site_of(tmp_path, conf, events_txt=events)
    (tmp_path / "log").mkdir()
    log = tmp_path / "log" / "jobs.txt"
    columns = "JobID|State|Submit|Eligible|Start|End|Timelimit|ReqTRES|AllocTRES|NNodes|NodeList"
    row = "{0}|COMPLETED|{1}|{1}|{1}|2026-01-02T12:00:00|01:00:00|cpu=1,node=1|cpu=1,node=1|1|n1"
    times = ["2026-01-02T09:00:00", "2026-01-02T10:15:00", "2026-01-02T10:45:00"]
    log.write_text("\n".join([columns, *(row.format(i, t) for i, t in enumerate(times))]))
    read = open_jobs(log, rows=False)
    assert read.clock.date(0.0).isoformat() == "2026-01-02T09:00:00+00:00"
    site = site.with_hosts(read.jobs, read.nodes, read.host_from, read.host, read.clock)
    assert "2 of 3 times in which nodes were down or drained are played" in str(site.notes)
    _, _, conditions = site.placed(read.jobs, site.nodes, Conditions())
    assert sorted(conditions.drains) == [(3600.0, 0), (3600.0, 1), (5400.0, 2)]
    assert sorted(conditions.ups) == [(7200.0, 0), (7200.0, 1)]
    # A node told to drain is printed as drained from the end of its last job: here of two on n1,
    # the last of which began at 10:45. Nobody knows when it was told between these times.
    ended = events.replace("lab|n3|2026-01-02T10:30:00", "lab|n1|2026-01-02T12:00:00")
    ended = site_of(tmp_path, conf, events_txt=ended).with_hosts(
        *(read.jobs, read.nodes, read.host_from, read.host, read.clock)
    )
    assert [w.since for w in ended.rules.window if "DRAIN" in w.why] == [6301.0]
    assert "no more jobs from the last start there on" in str(ended.notes)
    swf = site_of(tmp_path, conf, events_txt=events).with_hosts(
        read.jobs, read.nodes, read.host_from, read.host, None
    )
    assert swf.rules.window == ()
    assert "does not say at which date" in str(swf.notes)


def test_reservations_and_what_backfilling_looks_at_are_read(tmp_path):
    reservations = (
        "ReservationName=fix StartTime=2026-01-02T10:00:00 EndTime=2026-01-02T11:00:00 "
        "Duration=01:00:00 Nodes=n[1-2] NodeCnt=2 Flags=MAINT,SPEC_NODES Users=root\n"
        "ReservationName=week StartTime=2026-01-03T10:00:00 EndTime=2026-01-03T11:00:00 "
        "Nodes=n3 Flags=WEEKLY Users=root\n"
    )
    given = "bf_max_job_user=4,bf_max_job_part=5,bf_max_job_assoc=6,bf_max_job_user_part=7"
    given += ",bf_max_job_start=8,sched_max_job_start=9,partition_job_depth=10"
    conf = f"SchedulerParameters={given},bf_min_age_reserve=60\n"
    conf += "NodeName=n[1-3] CPUs=1\nPartitionName=p Nodes=ALL\n"
    site = site_of(tmp_path, conf, reservations_txt=reservations)
    assert [(r.name, r.nodes, r.since.hour, r.to.hour) for r in site.rules.reservation] == [
        ("fix", "n1,n2", 10, 11),
        ("week", "n3", 10, 11),
    ]
    assert site.scheduler == (
        "slurm:per_pool=5,per_user_pool=7,per_account=6,starts=8,main_starts=9,"
        "part_depth=10,least_wait=60"
    )
    assert "not modelled: Flags=WEEKLY of reservation week" in str(site.notes)
    assert "bf_max_job_user does not count beside bf_max_job_assoc" in str(site.notes)  # as it logs
    jobs = Jobs.of([0, 9 * 3600], 1)
    at = Clock(datetime(2026, 1, 2, 8, tzinfo=UTC).timestamp())
    placed = site.with_hosts(jobs, site.nodes, np.zeros(3, int), np.zeros(0, int), at)
    [kept] = placed.options(Options()).tenancy.reservations
    assert (kept.begin, kept.end, kept.on) == (7200, 10_800, ("n1", "n2"))
    assert "1 of 2 reservations are played: the others are not while" in str(placed.notes)


def test_what_newer_versions_print_as_json_is_read_as_the_text(tmp_path):
    def number(n=None, infinite=False):
        return {"set": n is not None and not infinite, "infinite": infinite, "number": n or 0}

    meta = {"meta": {"plugin": {"data_parser": "data_parser/v0.0.41"}}, "errors": []}
    partition = {
        "name": "gpu",
        "nodes": {"configured": "g[1-2]", "total": 2},
        "maximums": {"time": number(90), "nodes": number(infinite=True), "shares": 0},
        "minimums": {"nodes": 0},
        "priority": {"tier": 3, "job_factor": 2},
        "qos": {"assigned": "part"},
        "tres": {"billing_weights": "CPU=1,GRES/gpu=8", "configured": "cpu=16,mem=2G"},
        "partition": {"state": ["UP"]},
        "suspend_time": number(infinite=True),
    }
    node = {"cpus": 8, "effective_cpus": 7, "sockets": 2, "cores": 4, "threads": 1, "weight": 5}
    node |= {"real_memory": 4096, "specialized_memory": 1024, "gres": "gpu:a100:4(S:0-1)"}
    node |= {"features": ["ib", "amd"], "state": ["DOWN", "DRAIN"], "res_cores_per_gpu": 2}
    qos = {
        "name": "part",
        "priority": number(10),
        "flags": ["OVERRIDE_PARTITION_QOS"],
        "preempt": {"list": ["low"], "mode": ["REQUEUE"], "exempt_time": number(60)},
        "limits": {
            "max": {
                "active_jobs": {"count": number(20)},
                "jobs": {"active_jobs": {"per": {"user": number(4), "account": number()}}},
                "tres": {"per": {"user": [{"type": "gres", "name": "gpu", "count": 2}]}},
                "wall_clock": {"per": {"job": number(120)}},
            }
        },
    }
    mine = {"cluster": "lab", "account": "bio", "user": "ann", "shares_raw": 3}
    mine |= {"max": {"jobs": {"active": number(5)}}, "parent_account": "", "partition": ""}
    printed = {
        "partitions": [partition],
        "nodes": [{"name": "g1", **node}, {"name": "g2", **node, "state": ["IDLE"]}],
        "reservations": [
            {"name": "fix", "start_time": number(1767348000), "end_time": number(1767351600)}
            | {"node_list": "g2", "flags": ["MAINT"]}
        ],
        "QOS": [qos, {"name": "low", "flags": ["NOT_SET"], "priority": number()}],
        "associations": [
            {"cluster": "lab", "account": "bio", "user": "", "parent_account": "root"},
            mine,
        ],
    }
    for name, entries in printed.items():
        (tmp_path / f"{name.lower()}.json").write_text(json.dumps({name: entries, **meta}))
    site = site_of(tmp_path, "ClusterName=lab\nAccountingStorageEnforce=limits\n")
    [pool] = site.rules.pool
    assert (pool.nodes, pool.most_time, pool.most_nodes, pool.tier) == ("g1,g2", 5400, 0, 3)
    assert pool.whole
    assert pool.billing == {"cpu": 1, "gpu": 8}
    assert dict(zip(site.nodes.devices, site.nodes.capacity[0] / 1000)) == {
        "cpu": 7,
        "mem": 3,
        "gpu": 4,
    }
    assert site.nodes.labels[0]["features"] == "ib,amd"
    part, low = site.rules.qos
    assert (part.priority, part.preempts, part.preempted, part.exempt) == (
        10,
        ("low",),
        "requeue",
        60,
    )
    assert (part.most_time, low.most_time) == (7200, np.inf)
    caps = {(cap.scope, cap.of, cap.most, cap.qos, cap.account) for cap in site.rules.cap}
    assert {("all", "jobs", 20, "part", ""), ("user", "jobs", 4, "part", "")} <= caps
    assert {("user", "gpu", 2, "part", ""), ("user", "jobs", 5, "", "bio")} <= caps
    [kept] = site.rules.reservation
    assert (kept.since.isoformat(), kept.nodes) == ("2026-01-02T10:00:00+00:00", "g2")
    said = "\n".join(site.notes)
    assert "State=DOWN+DRAIN (it is played as if it were up), nodes.json, nodes g1" in said
    assert "RestrictedCoresPerGPU=2" in said
    assert "unknown" not in said


def test_rules_of_a_site_file_hold_beside_what_slurm_prints(tmp_path):
    conf = "NodeName=n[1-3] CPUs=4\nPartitionName=p Nodes=ALL MaxTime=60\n"
    lab = tmp_path / "lab"
    lab.mkdir()
    (lab / "slurm.conf").write_text(conf)
    file = tmp_path / "site.toml"
    file.write_text(
        """
        [start]
        latency = 5
        [[pool]]
        name = "p"
        nodes = "n[1-3]"
        fewest_nodes = 2
        [[cap]]
        scope = "user"
        of = "cpu"
        most = 4
        [[window]]
        from = 2026-01-02T10:00:00
        to = 2026-01-02T11:00:00
        nodes = "n1"
        [[window]]
        from = 60
        to = 120
        nodes = "n2"
        """
    )
    site = Site.read(f"slurm:{lab},{file}")
    [pool] = site.rules.pool
    assert (pool.most_time, pool.fewest_nodes, site.rules.start.latency) == (3600, 2, 5)
    assert site.scheduler == "slurm"
    assert (len(site.rules.window), len(site.rules.cap)) == (2, 1)
    jobs = Jobs.of([0, 9 * 3600], 1)
    at = Clock(datetime(2026, 1, 2, 8, tzinfo=UTC).timestamp())
    hosts = site.nodes, np.zeros(3, int), np.zeros(0, int)
    dated, undated = (site.with_hosts(jobs, *hosts, clock) for clock in (at, None))
    assert (len(dated.rules.window), len(undated.rules.window)) == (2, 1)
    file.write_text('[[pool]]\nname = "p"\nmost_time = 60\n')
    with pytest.raises(ScenarioError, match=r"most_time.*3600.*60"):
        Site.read(f"slurm:{lab},{file}")


def test_weights_and_flags_of_priority_by_hand(tmp_path):
    """One job of 2 of 8 cores and 4000 of 16,000 MiB on one of two nodes, for ten minutes."""
    conf = "PriorityType=priority/multifactor\nSelectTypeParameters=CR_Core_Memory\n"
    conf += "NodeName=a[1-2] CPUs=4 RealMemory=8000\n"
    conf += "PartitionName=p Nodes=ALL PriorityJobFactor=5 TRESBillingWeights=CPU=1,Mem=1G\n"
    conf += "PartitionName=q Nodes=ALL PriorityJobFactor=10\n"
    jobs = Jobs.of(0, 60, 1, {"cpu": 2.0, "mem": 4000 / 1024}, limit=600, pool=["p"])
    for lines, score, rate in (
        ("PriorityWeightTRES=CPU=0,Mem=1000", 250, 2 + 4000 / 1024),
        ("PriorityWeightTRES=CPU=100,Mem=1\nPriorityFlags=NO_NORMAL_TRES", 4200, 2 + 4000 / 1024),
        ("PriorityWeightPartition=100", 50, 2 + 4000 / 1024),
        ("PriorityWeightPartition=100\nPriorityFlags=NO_NORMAL_ALL", 500, 2 + 4000 / 1024),
        ("PriorityWeightJobSize=1000", 375, 2 + 4000 / 1024),  # (1/2 + 2/8) / 2
        # One node is half of all cores; a tenth of that for ten minutes.
        ("PriorityWeightJobSize=1000\nPriorityFlags=SMALL_RELATIVE_TO_TIME", 50, 2 + 4000 / 1024),
        ("PriorityFlags=MAX_TRES", 0, 4000 / 1024),
    ):
        site = site_of(tmp_path, f"{lines}\n{conf}")
        placed = site.placed(jobs, site.nodes, Conditions())
        standing = standing_of(Tables.of(*placed, site.options(Options())))
        assert standing.score[0] == pytest.approx(score, rel=1e-3), lines
        assert standing.bill[0] == pytest.approx(rate, rel=1e-3), lines


def test_use_is_of_the_cores_that_a_job_was_given_with_its_nodes(tmp_path):
    conf = "NodeName=a[1-2] CPUs=4\nNodeName=b1 CPUs=16\nPartitionName=p Nodes=ALL\n"
    site = site_of(tmp_path, f"PriorityType=priority/multifactor\n{conf}")
    terms = ["whole=1,size=1x1,held=16", "whole=1,size=1x1", ""]
    jobs = Jobs.of([0, 0, 0], 60, 1, {"cpu": [16.0, 1.0, 1.0]}, pool=["p"] * 3, terms=terms)
    placed = site.placed(jobs, site.nodes, Conditions())
    standing = standing_of(Tables.of(*placed, site.options(Options())))
    assert standing.bill.tolist() == [16.0, 1.0, 1.0]


def test_limits_count_where_they_are_enforced(tmp_path):
    conf = "NodeName=n1 CPUs=9 Gres=gpu:a100:4\nPartitionName=p Nodes=n1 QOS=part\n"
    for given, caps in (("", 0), ("none", 0), ("associations,qos", 0), ("safe", 9), ("3", 9)):
        line = f"AccountingStorageEnforce={given}\n" if given else ""
        site = site_of(tmp_path, line + conf, qos_txt=LIMITED, assoc_txt=USERS)
        assert len(site.rules.cap) == caps, given
        assert ("not in force" in str(site.notes)) == (not caps)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "names no partition and no node; add slurm.conf, or what"),
        ({"slurm.conf": "Include slurm.conf\n"}, "slurm.conf includes itself"),
        ({"qos.txt": "Name|Priority\nnormal|0\n"}, "names no partition and no node"),
    ],
)
def test_a_folder_without_a_site_is_refused(tmp_path, files, said):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(ScenarioError, match="slurm") as error:
        Site.read(f"slurm:{tmp_path}")
    assert said in str(error.value)


def unpacked(name: str, folder: Path) -> Path:
    with tarfile.open(TRUTH / f"{name}.tar.xz") as tar:
        tar.extractall(folder, filter="data")
    return folder


def test_no_setting_that_a_real_slurm_prints_is_unknown(tmp_path):
    read = SlurmReading(unpacked("fifo-0", tmp_path) / "site")
    assert {row.kind for row in read.rows} == {"config", "node", "partition", "qos", "assoc"}
    assert not [line for line in read.lines() if "unknown" in line]


# ------------------------------------------------------------------------------ passes, by hand


def test_who_may_pass_waits_for_the_next_tick():
    # Job 1 takes three nodes at 0, when there is a pass, too; job 2 waits for four.
    # Job 3 fits beside, and ends before: not at 10, when it comes, but with the pass at 30.
    limit = [300, 60, 60]
    jobs = Jobs.of([0, 5, 10], [300, 50, 60], [3, 4, 1], {"cpu": 2.0}, limit=limit, per_node=1)
    played = simulate_jobs(jobs, Nodes.alike(4, {"cpu": 2}), SlurmPasses())
    assert played.start.tolist() == [0, 300, 30]


def test_the_clock_of_backfilling_runs_on_while_nobody_waits():
    # Passes at 0 and, as job 2 came since, at 30; job 3 waits from 50 on, job 4 passes it at 60.
    limit = [300, 300, 60, 60]
    tasks = {"cpu": 2.0}
    jobs = Jobs.of(
        [0, 10, 50, 51], [300, 300, 60, 60], [1, 1, 4, 1], tasks, limit=limit, per_node=1
    )
    played = simulate_jobs(jobs, Nodes.alike(4, {"cpu": 2}), SlurmPasses())
    assert played.start.tolist() == [0, 10, 310, 60]


def test_a_single_task_takes_the_fullest_node_of_the_run_with_least_free():
    # Cores free: 4, 2, none, 4, 4; the runs have 6 and 8. Then a gang: the first nodes of a run.
    jobs = Jobs.of(
        [0, 0, 0, 1, 2],
        600,
        [1, 1, 1, 1, 2],
        {"cpu": [4, 2, 4, 2, 4]},
        constraint=[{"at": "c"}, {"at": "b"}, {}, {}, {}],
        limit=600,
        per_node=1,
    )
    nodes = Nodes.of(Node(name, {"cpu": 4}, {"at": name}) for name in "abcdef")
    played = simulate_jobs(jobs, nodes, SlurmPasses())
    assert [[n for n, _ in played.placed(j)] for j in range(5)] == [[2], [1], [0], [1], [3, 4]]


def test_a_reservation_holds_whole_nodes():
    # Job 2 (one core on each node) waits for job 1, which holds all of node 1 until 600.
    # Job 3 wants one core of another node for long: cores are free, but its nodes are reserved.
    jobs = Jobs.of(
        [0, 1, 2], [600, 60, 900], [1, 4, 1], {"cpu": [2, 1, 1]}, limit=[600, 60, 900], per_node=1
    )
    played = simulate_jobs(jobs, Nodes.alike(4, {"cpu": 2}), SlurmPasses())
    assert played.start.tolist() == [0, 600, 600]
    assert simulate_jobs(jobs, Nodes.alike(4, {"cpu": 2}), "fcfs+easy").start.tolist() == [
        0,
        600,
        2,
    ]


def test_nobody_starts_on_reserved_nodes_whose_limit_reaches_into_the_reservation():
    # Node n1 is kept from 100 to 400. Job 1 would run until 201: it waits for n0. Job 2 names the
    # reservation, and has the node with the first round after its beginning; job 3 waits behind 1.
    kept = ReservedNodes(name="k", since=100.0, to=400.0, nodes="n1")
    jobs = Jobs.of(
        [0, 1, 2, 3],
        [50, 200, 50, 50],
        limit=[60, 200, 60, 90],
        terms=["", "", "reservation=k", ""],
    )
    site = Site(Rules(reservation=(kept,)))
    played = simulate_jobs(jobs, Nodes.alike(2, {"cpu": 1}), SlurmPasses(), site=site)
    assert played.start.tolist() == [0, 50, 120, 250]
    assert [played.placed(j)[0][0] for j in range(4)] == [0, 0, 1, 0]


def test_backfilling_looks_at_so_many_jobs_of_a_user():
    # One node of two cores: job 0 has one until 300, job 1 waits for both; the others would pass,
    # where backfilling looks at one job of a user: at 30 job 3 of the other user, then job 2.
    jobs = Jobs.of(
        [0, 1, 2, 3],
        [300, 60, 60, 60],
        demand={"cpu": [1.0, 2.0, 1.0, 1.0]},
        limit=[300, 60, 60, 60],
        user=["a", "a", "a", "b"],
    )
    nodes = Nodes.alike(1, {"cpu": 2})
    for most, starts in ((0, [0, 300, 30, 90]), (1, [0, 300, 360, 30])):
        played = simulate_jobs(jobs, nodes, SlurmPasses(per_user=most))
        assert played.start.tolist() == starts


# ------------------------------------------------------- arrays, licences, features, dependencies


def test_arrays_and_licences_hold_in_both_engines():
    terms = ["array=7%2"] * 4 + ["license/ansys=2", "license/ansys=1", "license/ansys=1", ""]
    jobs = Jobs.of([0] * 8, 10, terms=terms, limit=10)
    site = Site(Rules(cap=(CapRule(scope="all", of="license/ansys", most=3),)))
    played = simulate_jobs(jobs, Nodes.pool(9), site=site)
    assert played.start.tolist() == [0, 0, 10, 10, 0, 0, 10, 0]
    options = site.options(Options())
    assert not audit(Outcome.of(played, "fcfs+easy"), options=options).findings
    fewer = replace(jobs, terms=tuple(text.replace("%2", "%1") for text in jobs.terms))
    for wrong, rules in (
        (replace(played, jobs=fewer), options),
        (played, replace(options, caps=(Cap("all", "license/ansys", 2),))),
    ):
        assert audit(Outcome.of(wrong, "fcfs+easy"), options=rules).counts.keys() == {"cap"}
    rng = np.random.default_rng(3)
    terms = [f"array={i // 8}%{1 + i // 8 % 3},license/ansys={i % 3}" for i in range(160)]
    submit, run = np.sort(rng.uniform(0, 900, 160)), rng.uniform(5, 90, 160)
    jobs = Jobs.of(submit, run, rng.integers(1, 5, 160), terms=terms, limit=run * 2)
    fast, plain = (
        simulate_jobs(jobs, Nodes.pool(9), "fcfs+easy", site=site, engine=engine)
        for engine in ("compiled", "plain")
    )
    assert (fast.start == plain.start).all()
    assert not audit(Outcome.of(fast, "fcfs+easy"), options=options).findings


def test_nodes_are_chosen_by_features_and_weight(tmp_path):
    (tmp_path / "slurm.conf").write_text(
        "Licenses=ansys:2,matlab\nNodeName=a[1-3] CPUs=1 Feature=rack1,fast Weight=9\n"
        "NodeName=b[1-2] CPUs=1 Feature=rack2\nPartitionName=all Nodes=ALL\n"
    )
    site = Site.read(f"slurm:{tmp_path}")
    assert {(c.of, c.most) for c in site.rules.cap} == {("license/ansys", 2), ("license/matlab", 1)}
    asked = ["", "[rack1|rack2]", "fast|rack2", "[rack1*2&rack2*1]", "rack1&slow", ""]
    jobs = Jobs.of(
        [0, 100, 200, 300, 400, 500],
        50,
        [1, 3, 1, 3, 1, 4],
        limit=50,
        per_node=1,
        terms=[f"features={e}" if e else "" for e in asked],
    )
    played = simulate_jobs(jobs, site.nodes, site.scheduler, site=site)
    names = [[played.nodes.names[n] for n, _ in played.placed(j)] for j in (0, 1, 2, 3, 5)]
    assert names == [
        ["b1"],
        ["a1", "a2", "a3"],  # all of one rack, the first that has so many
        ["b1"],  # a small weight first
        ["a1", "a2", "b1"],
        ["b1", "b2", "a1", "a2"],
    ]
    assert np.isnan(played.start[4])
    assert "2 jobs ask for nodes" in "\n".join(site.lines(jobs))


def placed_of_each(tmp_path, nodes, *jobs):
    """The nodes that each job has on an empty cluster of these nodes: tasks, terms."""
    (tmp_path / "slurm.conf").write_text(f"{nodes}\nPartitionName=all Nodes=ALL\n")
    site, found = Site.read(f"slurm:{tmp_path}"), []
    for tasks, terms in jobs:
        job = Jobs.of([0], 50, [tasks], limit=50, per_node=0, terms=[terms])
        played = simulate_jobs(job, site.nodes, site.scheduler, site=site)
        found.append(" ".join(played.nodes.names[n] for n, _ in played.placed(0)))
    return found


def test_a_node_of_another_weight_parts_those_beside_it(tmp_path):
    """b1 and d1 are not side by side, as c1 stands between them; if they must be, with any node."""
    nodes = "NodeName=b1,d[1-2] CPUs=2\nNodeName=c1 CPUs=2 Weight=9"
    jobs = (3, ""), (5, ""), (3, "nodes=2-2,contiguous=yes"), (6, "nodes=3-3,contiguous=yes")
    found = placed_of_each(tmp_path, nodes, *jobs)
    assert found == ["d1 d2", "d1 d2 b1", "b1 c1", "b1 c1 d1"]


def test_a_run_with_room_and_too_few_nodes_comes_before_a_smaller_one_that_suffices(tmp_path):
    nodes = "NodeName=a[1-2] CPUs=2\nNodeName=b1 CPUs=9 Weight=9\nNodeName=c1 CPUs=8"
    assert placed_of_each(tmp_path, nodes, (4, "nodes=2-2")) == ["c1 a1"]


def test_what_a_job_waits_for_is_read_from_its_submit_line(tmp_path):
    columns = "JobID^User^JobName^State^Submit^Eligible^Start^End^ReqTRES^Constraints^SubmitLine"
    at = "2026-11-23T10:{:02d}:00".format
    rows = [
        ("1", 0, 0, 0, 9, "", "sbatch a.sh --hold"),
        ("2_1", 1, 9, 9, 12, "a|b", "sbatch --array=1-2%1 -L ansys:2 -d afterok:1 a.sh"),
        ("2_2", 1, 12, 12, 15, "a|b", "sbatch --array=1-2%1 -L ansys:2 -d afterok:1 a.sh"),
        ("3", 2, 7, 7, 8, "", "sbatch --begin=now+5minutes a.sh"),
        ("4", 3, 8, 8, 9, "", "sbatch -H a.sh"),
        ("5", 4, 12, 12, 13, "", "sbatch --dependency=after:2_1+1 a.sh"),
        ("6", 5, 5, 16, 17, "", "sbatch -d singleton -J alike a.sh"),
        ("7", 6, 8, 8, 9, "", "sbatch -d afterok:99 a.sh"),
    ]
    file = tmp_path / "jobs.txt"
    file.write_text(
        "\n".join(
            [columns]
            + [
                f"{job}^ann^job^COMPLETED^{at(s)}^{at(e)}^{at(b)}^{at(n)}^cpu=1,node=1^{c}^{line}"
                for job, s, e, b, n, c, line in rows
            ]
        )
    )
    log = open_jobs(file)
    jobs = log.jobs
    place = {name: i for i, name in enumerate(jobs.id)}
    after = {
        name: [str(jobs.id[k]) for k in jobs.after[jobs.after_from[i] : jobs.after_from[i + 1]]]
        for name, i in place.items()
    }
    assert {name: found for name, found in after.items() if found} == {
        "2_1": ["1"],
        "2_2": ["1"],
        "6": ["1", "2_1", "2_2", "3", "4", "5"],
    }
    minutes = {name: jobs.submit[i] / 60 for name, i in place.items()}
    assert minutes == {"1": 0, "2_1": 1, "2_2": 1, "3": 7, "4": 8, "5": 12, "6": 5, "7": 8}
    terms = {name: jobs.terms[jobs.term[i]] for name, i in place.items()}
    assert terms["2_1"] == terms["2_2"] == "license/ansys=2,array=2%1,features=a|b"
    assert (terms["3"], terms["4"], terms["7"]) == ("queued=120", "", "queued=360")
    assert "submitted when they became eligible: 4" in log.played.line


# ------------------------------------------------------------------------- against a real Slurm


@pytest.mark.full
def test_jobs_start_as_a_real_slurm_started_them():
    """Runs of 60 to 176 jobs under 21 configurations, compared with the model of their files.

    Which run of Slurm it is makes as much of a difference as whether it is Slurm or the model.
    """
    again = {f"{case}-1.tar.xz" for case in ("arrays", "dependencies", "features", "licences")}
    files = [file for file in sorted(TRUTH.iterdir()) if file.name not in again]
    runs = {file.name.partition(".")[0]: compared(file, 1) for file in files}
    assert len(runs) == 46
    assert min(len(run.real) for run in runs.values()) == 60
    pairs = [(a, b) for a, b in combinations(runs, 2) if a[:-1] == b[:-1]]
    own = [kendalltau(runs[a].real, runs[b].real).statistic for a, b in pairs]
    tau = [run.tau.mean() for run in runs.values()]
    assert min(tau) > 0.8
    assert np.mean(tau) > np.mean(own) - 0.01
    assert np.mean(tau) > 0.93
    assert abs(np.mean([run.error.mean() for run in runs.values()])) < 0.05
    # EASY on best-fit nodes, without Slurm's period, whole nodes and choice, is further off.
    easy = [compared(file, 1, "fcfs+easy+best-fit") for file in TRUTH.glob("fifo-*")]
    mine = [run for name, run in runs.items() if name.startswith("fifo")]
    assert np.mean([r.tau.mean() for r in easy]) < np.mean([r.tau.mean() for r in mine]) - 0.02


@pytest.mark.parametrize(("run", "clock"), list(enumerate([40, 51, 45, 42, 39])))
def test_priorities_by_fair_share_are_those_that_slurm_recorded(run, clock, tmp_path):
    """All but the first three, before anyone had used anything, from recorded starts and ends.

    ``clock``: seconds past a full minute at which Slurm computes priorities; 3 to 6 differ at 0.
    """
    heading, *lines = (
        (unpacked(f"fair-share-{run}", tmp_path) / "sacct.txt").read_text().splitlines()
    )
    mark = "^" if "^" in heading else "|"
    rows = [line.split(mark) for line in lines]
    given = [int(row[heading.split(mark).index("Priority")]) for row in rows]
    jobs = open_jobs(tmp_path / "sacct.txt", rows=False).jobs
    site = Site.read(f"slurm:{tmp_path}/site")
    placed = site.placed(jobs, site.nodes, Conditions())
    standing = standing_of(Tables.of(*placed, site.options(Options())))
    times, found = (jobs.recorded_start + jobs.run, jobs.submit, jobs.recorded_start), list[int]()
    events = [(t, what, j) for what, of in enumerate(times) for j, t in enumerate(of)]
    for time, what, j in sorted(events):
        tick(standing, time - clock)
        if what == 1:
            found.append(int(-priority_key(standing, j)))
        else:
            hold(standing, j, what - 1.0, time - clock)
    assert found[3:] == given[3:]


@pytest.mark.full
@pytest.mark.parametrize("case", ["account-0", "site-0"])
def test_a_site_told_with_its_configuration_explains_what_easy_alone_does_not(case, tmp_path):
    plain, log = "fcfs+easy+best-fit", str(unpacked(case, tmp_path) / "sacct.txt")
    told, without = (
        replay(log, [plain], rules=rules).compared().retold
        for rules in (f"slurm:{tmp_path}/site", plain)
    )
    assert told.recorded == without.recorded
    assert told.explained > 0.9 > without.explained
    assert told.by_job > 0.5 > without.by_job
