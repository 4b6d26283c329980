"""What a real Slurm does with a site's rules: configurations × mixes, much faster than life.

    python -m benchmarks.slurm_truth fifo tier --speed 40 --out tests/sites/slurm_truth
    python -m benchmarks.slurm_truth --compare --out tests/sites/slurm_truth

The second plays the same jobs with the model, from the same files alone, and prints a table: real
and modelled mean wait, Kendall's τ of the order of starts, and both between Slurm's own runs. When
backfilling's clock began is chance: the model is played ``PHASES`` times, submissions shifted by up
to three seconds each. Modelled jobs hold their nodes for ``FREES`` seconds after their end, as
Slurm's do on this clock.

As root, with Debian's ``slurmctld slurmd slurm-client slurm-wlm-basic-plugins slurmdbd
slurm-wlm-mysql-plugin mariadb-server munge faketime`` (22.05). For each case: a private Slurm with
a database on loopback, all of it — daemons, commands, the ``sleep`` of jobs — on one faked clock;
the mix drawn from the seed is submitted by its users, and ``NAME-RUN.tar.xz`` holds what a site can
print (``site/``: slurm.conf, scontrol, sacctmgr) and what happened (``sacct.txt``). Users
``gwuser1`` … ``gwuser6`` are made where the machine does not have them.
"""

from __future__ import annotations

import argparse
import io
import math
import os
import pwd
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import kendalltau

from gangwise.core.arrays import Floats
from gangwise.jobs import simulate_jobs
from gangwise.jobs.scheduler import create_scheduler
from gangwise.logs.jobs import open_jobs
from gangwise.notation import expand_nodes
from gangwise.sites.site import Site

PHASES = 3
FREES = 1.5
"""Seconds of the faked clock from a job's recorded end to the start of who waited for its nodes.

Measured, not fitted: the median of 1,807 such starts is 1 s, their mean 1.8 s (below 10 s).
"""
WORKS = (
    "perl -e '$left = %d; $at = time; while ($left > 0) { select undef, undef, undef, "
    "$left < 5 ? $left : 5; $now = time; $left -= $now - $at < 9 ? $now - $at : 5; $at = $now }'"
)
"""A job that does not get on while it is stopped: ``sleep`` does, it ends as if it had run."""
NODES = 12
HELD = 900.0
"""Seconds after which a job that was submitted held is released."""
CORES = 8
USERS = {f"gwuser{i + 1}": ("red", "green", "blue")[i // 2] for i in range(6)}
COLUMNS = (
    "JobID,JobName,User,Account,QOS,Partition,State,Submit,Eligible,Start,End,Timelimit,Priority,"
    "ReqTRES,AllocTRES,NNodes,NodeList,Constraints,SubmitLine"
)
PRINTED = {
    "config.txt": "scontrol show config",
    "partitions.txt": "scontrol show partition -o",
    "nodes.txt": "scontrol show node -o",
    "qos.txt": "sacctmgr -P show qos",
    "assoc.txt": "sacctmgr -P show assoc",
    "events.txt": "sacctmgr -P show event start=now-7days",
}

SITE = """\
# Nodes, partitions and how jobs are scheduled
SchedulerType=sched/backfill
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
AccountingStorageEnforce=associations,limits,qos
Include nodes.conf
"""
ONE = "PartitionName=batch Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"
WEIGHED = (
    "PriorityType=priority/multifactor\nPriorityCalcPeriod=00:01:00\nPriorityMaxAge=02:00:00\n"
)


@dataclass(frozen=True)
class Case:
    """A configuration: lines of slurm.conf, of sacctmgr; what the mix may ask for."""

    conf: str = ONE
    accounts: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ("batch",)
    qos: tuple[str, ...] = ("normal",)
    load: float = 1.1
    most: int = 48  # cores of a job: more than a cap would wait for ever
    features: tuple[tuple[str, str], ...] = ()  # nodes, and what slurm.conf says of them
    options: tuple[str, ...] = ("",)  # of sbatch, drawn; {job} is one of the ten before
    files: Mapping[str, str] = field(default_factory=dict)  # beside slurm.conf


CASES = {
    "fifo": Case(),
    "parameters": Case(
        "SchedulerParameters=bf_interval=120,bf_resolution=300,default_queue_depth=10,"
        "bf_max_job_test=8\n" + ONE
    ),
    "partitions": Case(
        "PartitionName=DEFAULT State=UP DefaultTime=01:00:00\n"
        "PartitionName=batch Nodes=c[01-10] Default=YES MaxTime=1-00:00:00\n"
        "PartitionName=short Nodes=c[09-12] MaxTime=00:30:00 MaxNodes=2\n",
        partitions=("batch", "batch", "short"),
    ),
    "tier": Case(
        "PartitionName=DEFAULT Nodes=c[01-12] State=UP\n"
        "PartitionName=low Default=YES PriorityTier=1\n"
        "PartitionName=high PriorityTier=10\n",
        partitions=("low", "low", "high"),
    ),
    "qos-user": Case(accounts=("modify qos normal set MaxTRESPerUser=cpu=24",), most=24),
    "qos-jobs": Case(
        accounts=(
            "modify qos normal set MaxJobsPerUser=3",
            "add qos long MaxTRESPerJob=cpu=32 GrpTRES=cpu=40",
            "modify user gwuser1,gwuser2,gwuser3,gwuser4,gwuser5,gwuser6 set qos+=long",
        ),
        qos=("normal", "normal", "long"),
        most=32,
    ),
    "account": Case(
        accounts=("modify account blue set GrpTRES=cpu=24", "modify account red set GrpJobs=3"),
        most=24,
    ),
    "age-size": Case(WEIGHED + "PriorityWeightAge=1000\nPriorityWeightJobSize=4000\n" + ONE),
    "qos-priority": Case(
        WEIGHED + "PriorityWeightQOS=10000\nPriorityWeightAge=1000\n" + ONE,
        accounts=(
            "modify qos normal set Priority=10",
            "add qos urgent Priority=100 MaxJobsPerUser=2",
            "modify user gwuser1,gwuser2,gwuser3,gwuser4,gwuser5,gwuser6 set qos+=urgent",
        ),
        qos=("normal", "normal", "normal", "urgent"),
    ),
    "fair-share": Case(
        WEIGHED + "PriorityWeightFairshare=100000\nPriorityDecayHalfLife=02:00:00\n" + ONE,
        accounts=(
            "modify account red set fairshare=60",
            "modify account green set fairshare=30",
            "modify account blue set fairshare=10",
        ),
    ),
    "site": Case(
        WEIGHED + "PriorityWeightFairshare=20000\nPriorityWeightAge=4000\nPriorityWeightQOS=8000\n"
        "PriorityDecayHalfLife=02:00:00\nSchedulerParameters=bf_interval=60\n"
        "PartitionName=DEFAULT State=UP DefaultTime=01:00:00\n"
        "PartitionName=batch Nodes=c[01-10] Default=YES MaxTime=1-00:00:00\n"
        "PartitionName=short Nodes=c[07-12] MaxTime=00:30:00 PriorityTier=5\n",
        accounts=(
            "modify qos normal set Priority=10 MaxTRESPerUser=cpu=40",
            "add qos urgent Priority=100 MaxJobsPerUser=2",
            "modify user gwuser1,gwuser2,gwuser3,gwuser4,gwuser5,gwuser6 set qos+=urgent",
            "modify account blue set GrpTRES=cpu=32",
            "modify account red set fairshare=60",
            "modify account green set fairshare=30",
            "modify account blue set fairshare=10",
        ),
        partitions=("batch", "batch", "short"),
        qos=("normal", "normal", "normal", "urgent"),
        most=32,
    ),
    "preempt": Case(
        "PreemptType=preempt/partition_prio\nPreemptMode=REQUEUE\n"
        "PartitionName=DEFAULT Nodes=c[01-12] State=UP\n"
        "PartitionName=low Default=YES PriorityTier=1 PreemptMode=REQUEUE\n"
        "PartitionName=high PriorityTier=10 PreemptMode=OFF\n",
        partitions=("low", "low", "low", "high"),
        load=0.9,
    ),
    "preempt-qos": Case(
        WEIGHED + "PriorityWeightQOS=10000\nPriorityWeightAge=1000\n"
        "PreemptType=preempt/qos\nPreemptMode=REQUEUE\nPreemptExemptTime=00:03:00\n" + ONE,
        accounts=(
            "modify qos normal set Priority=50",
            "add qos low Priority=1",
            "add qos spare Priority=10 PreemptMode=cancel",
            "add qos urgent Priority=100 Preempt=low,spare",
            "modify user gwuser1,gwuser2,gwuser3,gwuser4,gwuser5,gwuser6 set qos+=low,spare,urgent",
        ),
        qos=("normal", "low", "low", "spare", "urgent", "urgent"),
        load=0.9,
    ),
    "suspend": Case(
        "PreemptType=preempt/partition_prio\nPreemptMode=SUSPEND,GANG\n"
        "PartitionName=DEFAULT Nodes=c[01-12] State=UP\n"
        "PartitionName=low Default=YES PriorityTier=1 PreemptMode=SUSPEND\n"
        "PartitionName=high PriorityTier=10 PreemptMode=OFF\n",
        partitions=("low", "low", "low", "high"),
        load=0.8,
    ),
    "dependencies": Case(
        options=(
            *[""] * 7,
            "--dependency=afterok:{job}",
            "--dependency=afterany:{job}:{other}",
            "--dependency=afternotok:{job}",
            "--dependency=after:{job}+10",
            "--dependency=singleton -J same",
            "--dependency=afterok:{job},afterany:{other}",
            "--dependency=afterok:{job}?afternotok:{other}",
            "--begin=now+30minutes",
            "--hold",
        )
    ),
    "arrays": Case(
        options=("", "", "--array=1-6%2", "--array=0-3%1", "--array=1-5", "--array=2-9%3"), most=16
    ),
    "licences": Case(
        "Licenses=ansys:4,matlab:2\n" + ONE,
        options=("", "", "-L ansys", "-L ansys:2", "-L matlab:1", "-L ansys:1,matlab:1"),
    ),
    "features": Case(
        features=(
            ("c[01-04]", "Feature=rack1,fast Weight=5"),
            ("c[05-06]", "Feature=rack1 Weight=5"),
            ("c[07-12]", "Feature=rack2"),
        ),
        options=(
            *[""] * 4,
            "-C rack1",
            "-C rack1&fast",
            "-C fast|rack2",
            "-C [rack1|rack2]",
            "-C [rack1*1&rack2*1]",
        ),
        most=32,
    ),
    "topology": Case(
        "TopologyPlugin=topology/tree\n" + ONE,
        files={
            "topology.conf": "SwitchName=s1 Nodes=c[01-04]\nSwitchName=s2 Nodes=c[05-07]\n"
            "SwitchName=s3 Nodes=c[08-12]\nSwitchName=m1 Switches=s[1-2]\n"
            "SwitchName=top Switches=m1,s3\n"
        },
    ),
    "hetjobs": Case(
        options=(
            "",
            "",
            ": -N 1 --ntasks-per-node=1 -c 2 {own}",
            ": -N 2 --ntasks-per-node=1 -c 8 {own}",
            ": -N 3 --ntasks-per-node=1 -c 4 {own} : -N 1 --ntasks-per-node=1 -c 8 {own}",
        ),
        load=0.9,
        most=32,
    ),
    "several": Case(
        WEIGHED + "PriorityWeightPartition=2000\nPriorityWeightAge=1000\n"
        "PartitionName=DEFAULT State=UP DefaultTime=01:00:00\n"
        "PartitionName=batch Nodes=c[01-08] Default=YES PriorityJobFactor=10\n"
        "PartitionName=spare Nodes=c[05-12] PriorityJobFactor=1\n"
        "PartitionName=first Nodes=c[10-12] PriorityTier=5\n",
        partitions=("batch", "spare", "batch,spare", "spare,batch", "first,batch", "spare,first"),
        most=24,
    ),
    "minutes": Case(
        "AccountingStorageEnforce=associations,limits,qos,safe\n"
        + WEIGHED
        + "PriorityWeightAge=1000\nPriorityDecayHalfLife=00:20:00\n"
        "PartitionName=short Nodes=ALL Default=YES MaxTime=00:30:00 State=UP\n",
        accounts=(
            "modify account red set GrpTRESMins=cpu=700",
            "modify account green set GrpTRESRunMins=cpu=600",
            "modify account blue set GrpWall=60",
        ),
        partitions=("short",),
        most=16,
    ),
}


@dataclass(frozen=True)
class Asked:
    """A job of a mix; seconds, and nodes of so many cores."""

    at: float
    run: int
    limit: int  # minutes
    nodes: int
    cores: int
    user: str
    partition: str
    qos: str
    option: str = ""
    fails: bool = False


def mix(case: Case, seed: int, jobs: int) -> list[Asked]:
    """Jobs that ask, together, for ``load`` times what the nodes can do until the last comes."""
    rng, more = np.random.default_rng(seed), np.random.default_rng(1000 + seed)
    users = rng.choice(list(USERS), jobs, p=np.array([6, 1, 4, 2, 3, 2]) / 18)
    found, work = [], 0.0
    for i in range(jobs):
        run = int(np.clip(rng.lognormal(5.6, 0.9), 40, 3600))
        nodes = int(rng.choice([1, 1, 1, 2, 3, 4, 6]))
        cores = int(rng.choice([CORES, CORES, CORES // 2, CORES // 4]))
        partition, qos = rng.choice(case.partitions), rng.choice(case.qos)
        if partition == "short":
            run, nodes = min(run, 1500), min(nodes, 2)
        nodes = min(nodes, case.most // cores)
        limit = -(-run * int(rng.choice([1, 2, 3, 6])) // 60) + 1
        limit = min(limit, 30) if partition == "short" else limit
        option, fails = str(more.choice(case.options)), bool(more.random() < 0.3)
        option = option if i else ""
        nodes = 2 if "*" in option else min(nodes, 4) if "-C" in option else nodes
        earlier = [f"{{{max(i - k, 0)}}}" for k in more.choice(np.arange(1, 11), 2, replace=False)]
        option = option.replace("{job}", earlier[0]).replace("{other}", earlier[1])
        asked = (run, limit, nodes, cores, str(users[i]), str(partition), str(qos), option)
        found.append((*asked, fails and "dependency" in "".join(case.options)))
        first, last = re.search(r"array=(\d+)-(\d+)", option + "array=1-1").groups()
        for part in option.split(":")[1:] if "{own}" in option else ():  # of a heterogeneous job
            many, each = re.search(r"-N (\d+).*-c (\d+)", part).groups()
            work += run * int(many) * int(each)
        work += run * nodes * cores * (int(last) - int(first) + 1)
    span = work / (NODES * CORES) / case.load
    gaps = rng.exponential(1.0, jobs)
    at = np.maximum.accumulate(np.cumsum(gaps) / gaps.sum() * span + 4.0 * np.arange(jobs))
    return [Asked(float(when), *rest) for when, rest in zip(at, found)]


# ---------------------------------------------------------------------------- against the model


@dataclass(frozen=True)
class Compared:
    """Starts of one run, real [J] and modelled [phase, J], in seconds since submission began."""

    submit: Floats
    real: Floats
    model: Floats

    @property
    def error(self) -> Floats:
        """Of the mean wait, as a share, by phase."""
        real, model = self.real - self.submit, self.model - self.submit
        return np.asarray(model.mean(axis=1) / real.mean() - 1.0)

    @property
    def tau(self) -> Floats:
        """Kendall's τ of the order of starts, by phase."""
        return np.array([kendalltau(self.real, each).statistic for each in self.model])


def merged(file: Path, case: str) -> dict[str, float]:
    """Make one row of all attempts of a job, its first start in it; what each asked to run, then.

    Nothing where nobody could be preempted: then the log says how long each ran.
    """
    if "Preempt" not in CASES[case].conf:
        return {}
    heading, *lines = file.read_text().splitlines()
    mark = "^" if "^" in heading else "|"
    at = heading.split(mark).index
    first: dict[str, list[str]] = {}
    for line in lines:
        fields = line.split(mark)
        mine = first.setdefault(fields[at("JobID")], fields)
        for name in ("State", "End"):
            mine[at(name)] = fields[at(name)]
    file.write_text("\n".join([heading, *map(mark.join, first.values())]) + "\n")
    drawn = mix(CASES[case], list(CASES).index(case), len(first))
    return {job: float(drawn[int(row[at("JobName")][1:])].run) for job, row in first.items()}


def compared(file: Path, phases: int = PHASES, scheduler: str = "") -> Compared:
    """A run of real Slurm, and the same jobs under the model of what Slurm printed of itself.

    ``scheduler``: who decides, in place of the one that the files describe.
    """
    with tempfile.TemporaryDirectory() as folder, tarfile.open(file) as tar:
        tar.extractall(folder, filter="data")
        asked = merged(Path(folder, "sacct.txt"), file.name.rpartition("-")[0])
        jobs = open_jobs(Path(folder, "sacct.txt"), rows=False).jobs
        site = Site.read(f"slurm:{folder}/site")
    if asked:
        jobs = replace(jobs, run=np.array([asked[str(name)] for name in jobs.id]))
    jobs = replace(jobs, run=jobs.run + FREES)
    assert site.nodes is not None
    rng, found = np.random.default_rng(0), []
    for phase in range(phases):
        late = rng.uniform(0.0, 3.0, len(jobs)) * (phase > 0)
        moved = replace(jobs, submit=np.maximum.accumulate(jobs.submit + late))
        played = simulate_jobs(
            moved, site.nodes, create_scheduler(scheduler or site.scheduler), site=site
        )
        found.append(played.start - moved.submit + jobs.submit)
    ran = np.isfinite(jobs.recorded_start)  # who waited until it was cancelled has no start
    return Compared(jobs.submit[ran], jobs.recorded_start[ran], np.array(found)[:, ran])


def table(folder: Path) -> None:
    """Print what all runs in a folder come to."""
    print("| case | real mean wait, s | Slurm and itself: wait, τ | Slurm and the model: wait, τ |")
    print("|---|---|---|---|")
    for name in CASES:
        runs = [compared(file) for file in sorted(folder.glob(f"{name}-*.tar.xz"))]
        waits = [float((run.real - run.submit).mean()) for run in runs]
        pairs = list(combinations(runs, 2))
        own = [kendalltau(a.real, b.real).statistic for a, b in pairs]
        apart = [100 * abs(a / b - 1) for a, b in combinations(waits, 2)]
        error = [100 * run.error for run in runs]
        tau = [run.tau.mean() for run in runs]
        if runs:
            print(
                f"| {name} | {', '.join(f'{wait:.0f}' for wait in waits)} "
                f"| {np.mean(apart):.0f} %, {np.mean(own):.3f} "
                f"| {np.mean(error):+.1f} % ({np.min(error):+.0f} to {np.max(error):+.0f}), "
                f"{np.mean(tau):.3f} |",
                flush=True,
            )


# --------------------------------------------------------------------------- a Slurm of its own


@dataclass(frozen=True)
class Cluster:
    """What a private Slurm is started with."""

    conf: str  # slurm.conf, without nodes
    nodes: tuple[tuple[str, str], ...]  # names, and what slurm.conf says of them
    accounts: tuple[str, ...] = ()  # commands of sacctmgr
    files: Mapping[str, str] = field(default_factory=dict)  # further ones, by name
    begin: tuple[str, ...] = ()  # commands before the first submission


@dataclass(frozen=True)
class Action:
    """A command at a time, in seconds; ``{3}`` is the number that the fourth sbatch was given."""

    at: float
    words: tuple[str, ...]
    user: str = "root"


class Truth:
    """A private Slurm within a faked clock."""

    def __init__(self, root: Path, cluster: Cluster, port: int):
        self.root, self.cluster, self.port = root, cluster, port
        self.names = [(n, more) for names, more in cluster.nodes for n in expand_nodes(names)]
        self.refused: list[str] = []
        for name in ("site", "log", "run", "state", "db", "munge", "socket", "devices"):
            (root / name).mkdir(parents=True)
        root.chmod(0o755)
        (root / "munge").chmod(0o700)
        self.environment = {
            **os.environ,
            "SLURM_CONF": str(root / "run.conf"),
            "TZ": "UTC",
            "PATH": os.environ["PATH"] + ":/usr/sbin",
        }
        self.daemons: list[subprocess.Popen[bytes]] = []
        self._write()

    def _write(self) -> None:
        root, host = self.root, socket.gethostname().split(".")[0]
        nodes = "".join(f"NodeName={names} {more}\n" for names, more in self.cluster.nodes)
        (root / "site/slurm.conf").write_text(self.cluster.conf)
        (root / "site/nodes.conf").write_text(nodes)
        here = "".join(
            f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 "
            f"Port={self.port + 1 + i} {more}\n"
            for i, (name, more) in enumerate(self.names)
        )
        for name, text in self.cluster.files.items():
            (root / "site" / name).write_text(text)
            (root / name).write_text(text)
        self._devices()
        (root / "run.conf").write_text(
            f"ClusterName=lab\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={self.port}\n"
            "SlurmUser=root\nSlurmdUser=root\nAuthType=auth/munge\n"
            f"AuthInfo=socket={root}/socket/m\nCredType=cred/munge\n"
            "CommunicationParameters=NoInAddrAny,NoCtldInAddrAny\n"
            f"SlurmctldPidFile={root}/run/slurmctld.pid\nSlurmdPidFile={root}/run/slurmd.%n.pid\n"
            f"SlurmctldLogFile={root}/log/slurmctld.log\nSlurmdLogFile={root}/log/slurmd.%n.log\n"
            f"SlurmdSpoolDir={root}/run/spool.%n\nStateSaveLocation={root}/state\n"
            "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nSwitchType=switch/none\n"
            "MpiDefault=none\nMailProg=/bin/true\nJobAcctGatherType=jobacct_gather/none\n"
            "AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=127.0.0.1\n"
            f"AccountingStoragePort={self.port + 80}\nAccountingStoragePass={root}/socket/m\n"
            "SlurmdParameters=config_overrides\nReturnToService=1\nSlurmctldTimeout=300\n"
            "SlurmdTimeout=3000\nMinJobAge=86400\nKillWait=2\nInactiveLimit=0\nWaittime=0\n"
            "TmpFS=/tmp\n" + self.cluster.conf.replace("Include nodes.conf\n", here)
        )
        (root / "slurmdbd.conf").write_text(
            f"AuthType=auth/munge\nAuthInfo=socket={root}/socket/m\nDbdHost=localhost\n"
            f"DbdAddr=127.0.0.1\nDbdPort={self.port + 80}\nSlurmUser=root\n"
            "StorageType=accounting_storage/mysql\nStorageHost=127.0.0.1\n"
            f"StoragePort={self.port + 81}\nStorageUser=slurm\nStoragePass=slurm\n"
            f"StorageLoc=slurm_acct_db\nLogFile={root}/log/slurmdbd.log\n"
            f"PidFile={root}/run/slurmdbd.pid\n"
        )
        (root / "slurmdbd.conf").chmod(0o600)
        key = root / "munge/key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o400)

    def _devices(self) -> None:
        """GPUs: a file of a device each, whose trailing number is its index."""
        lines = []
        for name, more in self.names:
            for model, count in re.findall(r"gpu:(\w+):(\d+)", more):
                for k in range(int(count)):
                    (self.root / "devices" / f"{name}-{model}{k}").symlink_to("/dev/null")
                last = f"[0-{int(count) - 1}]" if int(count) > 1 else "0"
                file = f"{self.root}/devices/{name}-{model}{last}"
                lines.append(f"NodeName={name} Name=gpu Type={model} File={file}\n")
        if lines:
            (self.root / "gres.conf").write_text("".join(lines))

    def call(self, *words: str, check: bool = True, user: str | None = None) -> str:
        """The output of a command."""
        who: dict[str, Any] = {}
        if user not in (None, "root"):
            one = pwd.getpwnam(str(user))
            who = {"user": one.pw_uid, "group": one.pw_gid, "extra_groups": [], "cwd": "/"}
        for _ in range(4):
            done = subprocess.run(
                words, env=self.environment, capture_output=True, text=True, **who
            )
            said = done.stdout or done.stderr
            lost = not said or said.startswith("libfaketime") or words[0] == "squeue"
            if not done.returncode or not lost:
                break  # else the faked clock cost it its connection: nothing was said, or done
        if check and done.returncode:
            raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def daemon(self, *words: str) -> None:
        """Start one that dies with this process."""
        name = f"{len(self.daemons)}-{words[0]}.out"
        with open(self.root / "log" / name, "wb") as output:
            one = subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM", *words],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.daemons.append(one)

    def until(self, *words: str, says: int = 0) -> None:
        """Try a command until it succeeds, and prints so many different words."""
        for _ in range(600):
            done = subprocess.run(words, env=self.environment, capture_output=True, text=True)
            if not done.returncode and len({*done.stdout.split()}) >= says:
                return
            self.call("env", "-u", "LD_PRELOAD", "sleep", "0.1")
        raise RuntimeError(f"{' '.join(words)}: {done.stdout} {done.stderr}")

    def start(self) -> None:
        """Munge, database, accounting, controller, nodes."""
        root = self.root
        db, run = str(root / "db"), str(root / "run")
        self.daemon(
            *f"munged --foreground --force --key-file={root}/munge/key --socket={root}/socket/m "
            f"--pid-file={root}/munge/pid --log-file={root}/munge/log "
            f"--seed-file={root}/munge/seed --num-threads=2".split()
        )
        (root / "socket").chmod(0o755)
        self.call(
            *f"mariadb-install-db --no-defaults --datadir={db} --tmpdir={run} --user=root "
            "--skip-test-db --auth-root-authentication-method=normal".split()
        )
        self.daemon(
            *f"mariadbd --no-defaults --user=root --datadir={db} --tmpdir={run} "
            f"--socket={run}/db.sock "
            f"--pid-file={run}/mariadbd.pid --bind-address=127.0.0.1 --port={self.port + 81} "
            "--innodb-buffer-pool-size=64M --innodb-log-file-size=16M "
            "--innodb-lock-wait-timeout=900 --innodb-flush-log-at-trx-commit=0".split()
        )
        sql = ["mariadb", "--no-defaults", f"--socket={run}/db.sock", "-u", "root", "-e"]
        self.until(*sql, "select 1")
        self.call(
            *sql,
            "create database slurm_acct_db; create user slurm@'127.0.0.1' identified by 'slurm'; "
            "create user slurm@localhost identified by 'slurm'; "
            "grant all on slurm_acct_db.* to slurm@'127.0.0.1'; "
            "grant all on slurm_acct_db.* to slurm@localhost",
        )
        self.daemon("env", f"SLURM_CONF={root}/slurm.conf", "slurmdbd", "-D")
        self.until("sacctmgr", "-n", "show", "cluster")
        self.call("sacctmgr", "-i", "add", "cluster", "lab")
        for account in dict.fromkeys(USERS.values()):
            self.call("sacctmgr", "-i", "add", "account", account)
        for user, account in USERS.items():
            self.call("sacctmgr", "-i", "add", "user", user, f"account={account}")
        for line in self.cluster.accounts:
            self.call("sacctmgr", "-i", *line.split())
        self.daemon("slurmctld", "-D")
        for name, _ in self.names:
            self.daemon("slurmd", "-D", "-N", name)
        self.until("sinfo", "-h", "-N", "-t", "idle", "-o", "%N", says=len(self.names))
        for line in self.cluster.begin:
            self.call(*line.split())
        standing = self.call("scontrol", "show", "res", "-o")
        (root / "site/reservations.txt").write_text(standing)

    def play(self, actions: Sequence[Action], patience: float = math.inf) -> None:
        """Submit as asked, and wait until nobody is left; who waits for longer is cancelled."""
        begun, number, at = time.time(), list[str](), 0.0
        for action in sorted(actions, key=lambda action: action.at):
            at = action.at
            time.sleep(max(0.0, begun + at - time.time()))
            words = [re.sub(r"\{(\d+)\}", lambda m: number[int(m[1])], w) for w in action.words]
            try:
                said = self.call(*words, user=action.user).strip()
            except RuntimeError as error:
                self.refused.append(str(error))
                said = "0"
            if words[0] == "sbatch":
                number.append(said.partition(";")[0])
        still = 0
        while left := self.call("squeue", "-h", "-o", "%t %i").splitlines():
            time.sleep(20)
            still = 0 if any(line[:2] in ("R ", "CG") for line in left) else still + 1
            stuck = [line.split()[1].partition("_")[0] for line in left if line[:2] != "R "]
            if stuck and (time.time() - begun > at + patience or still > 15):  # 5 min: none runs
                self.call("scancel", *stuck, check=False)
        time.sleep(60)

    def write(self, file: Path) -> None:
        """What a site can print, and what happened."""
        site = self.root / "site"
        for name, words in PRINTED.items():
            (site / name).write_text(self.call(*words.split(), check=False))
        told = self.call(
            *f"sacct -a -X -P --duplicates --delimiter=^ -S now-7days --format={COLUMNS}".split()
        )
        (self.root / "sacct.txt").write_text(told)
        with tarfile.open(file, "w:xz", preset=9) as tar:
            for part in [*sorted(site.iterdir()), self.root / "sacct.txt"]:
                text = part.read_text().replace(str(self.root), "/slurm").encode()
                info = tarfile.TarInfo(str(part.relative_to(self.root)))
                info.size = len(text)
                tar.addfile(info, io.BytesIO(text))

    def stop(self) -> None:
        """End the daemons, the last first."""
        for one in reversed(self.daemons):
            one.send_signal(signal.SIGTERM)
        for one in reversed(self.daemons):
            try:
                one.wait(600)  # of the faked clock
            except subprocess.TimeoutExpired:
                one.kill()


def cluster_of(case: Case) -> Cluster:
    """Twelve alike nodes of 8 cores under a case."""
    sort = (
        f"CPUs={CORES} Boards=1 SocketsPerBoard=1 CoresPerSocket={CORES} ThreadsPerCore=1 "
        "RealMemory=32000 State=UNKNOWN"
    )
    features = case.features or ((f"c[01-{NODES}]", ""),)
    nodes = tuple((names, f"{sort} {more}") for names, more in features)
    return Cluster(SITE + case.conf, nodes, case.accounts, case.files)


def actions_of(case: Case, jobs: Sequence[Asked]) -> list[Action]:
    """The submissions of a mix, and releases of what was submitted held."""
    found = []
    for i, job in enumerate(jobs):
        work = WORKS % job.run if "SUSPEND" in case.conf else f"sleep {job.run}"
        own = f"-t {job.limit} -p {job.partition} -A {USERS[job.user]} -q {job.qos}"
        words = (
            f"sbatch --parsable -o /dev/null --chdir=/ --uid={job.user} -J j{i} "
            f"-N {job.nodes} --ntasks-per-node=1 -c {job.cores} {own} "
            f"{job.option.replace('{own}', own)} --kill-on-invalid-dep=yes --wrap"
        ).split()
        what = f"{work}; false" if job.fails else f"exec {work}"
        found.append(Action(job.at, (*words, what)))
        if job.option == "--hold":
            found.append(Action(job.at + HELD, ("scontrol", "release", f"{{{i}}}")))
    return found


def play_one(name: str, run: int, jobs: int, out: Path) -> None:
    """Play a case, within the faked clock."""
    root = Path(tempfile.mkdtemp(prefix=f"truth-{name}-"))
    order = list(CASES).index(name)
    truth = Truth(root, cluster_of(CASES[name]), 21_000 + 400 * order + 100 * (run % 4))
    try:
        truth.start()
        truth.play(actions_of(CASES[name], mix(CASES[name], order, jobs)))
        truth.write(out / f"{name}-{run}.tar.xz")
        shutil.copy(root / "log/slurmctld.log", out / f"{name}-{run}.log")
    finally:
        truth.stop()
        shutil.rmtree(root, ignore_errors=True)


def main() -> None:
    """Play what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=list(CASES), help=", ".join(CASES))
    parser.add_argument("--run", type=int, default=0, help="to tell repetitions apart")
    parser.add_argument("--jobs", type=int, default=120)
    parser.add_argument("--speed", type=float, default=40.0)
    parser.add_argument("--out", type=Path, default=Path("truth"))
    parser.add_argument("--compare", action="store_true", help="play what is there with the model")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    if asked.compare:
        table(asked.out)
        return
    for user in USERS:
        try:
            pwd.getpwnam(user)
        except KeyError:
            subprocess.run(["useradd", "-M", user], check=True)
    for name in asked.cases:
        if asked.inside:
            play_one(name, asked.run, asked.jobs, asked.out)
            continue
        began = time.monotonic()
        words = ["faketime", "-m", "-f", f"+0 x{asked.speed:g}", sys.executable, "-m"]
        again = ["benchmarks.slurm_truth", name, "--inside", "--run", str(asked.run)]
        more = ["--jobs", str(asked.jobs), "--out", str(asked.out)]
        done = subprocess.run([*words, *again, *more])
        took = time.monotonic() - began
        print(f"{name}, run {asked.run}: {'failed' if done.returncode else 'done'}, {took:.0f} s")


if __name__ == "__main__":
    main()
