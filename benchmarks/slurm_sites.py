"""Sites drawn at random, and jobs as people submit them, under a real Slurm and under the model.

    python -m benchmarks.slurm_sites play 0-39 --out sites      # as root; see slurm_truth
    python -m benchmarks.slurm_sites compare 0-39 --out sites

The first draws each site from its number: nodes of up to five kinds, partitions that overlap,
QOS, associations, weights, flags, select types, topology, reservations, nodes that go down. Its
jobs are lines of ``sbatch`` as people write them, most without ``-N``. Each is played twice, since
Slurm does not play the same twice in the same way; what a site can print is kept. The second
replays that as docs/how-to/slurm-rules.md says, and compares.
"""

from __future__ import annotations

import argparse
import math
import pwd
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import kendalltau

from benchmarks.slurm_truth import COLUMNS, FREES, PRINTED, USERS, Action, Cluster, Truth
from gangwise.core.arrays import Floats
from gangwise.sites.site import Site
from gangwise.study.replay import replay

HEAD = "SchedulerType=sched/backfill\nInclude nodes.conf\n"
SPAN = 1800.0
"""Seconds of the faked clock in which jobs are submitted."""
PATIENCE = 1000.0
"""Seconds after the last submission when all that still wait are cancelled."""
PHASES = 3
"""How often the model plays each play of Slurm, submissions later by up to ``LATEST`` seconds."""
LATEST = 3
BEGINS, COME = 20, 11
"""Seconds from the start of slurmctld to that of backfilling, and from there until nodes have come.

Measured in nine plays: 18 to 31, the median 20; and 10 or 11.
"""
FIRST_ADDED = 9_000_000
"""The number of the first job that is added to a listing."""
LONGEST = 900
"""Seconds that a job runs at most."""


@dataclass(frozen=True)
class Kind:
    """Nodes that are alike."""

    prefix: str
    count: int
    sockets: int
    cores: int  # of a socket
    threads: int
    memory: int  # MB
    model: str
    gpus: int
    weight: int
    features: str

    @property
    def cpus(self) -> int:
        return self.sockets * self.cores * self.threads

    @property
    def names(self) -> list[str]:
        return [f"{self.prefix}{i + 1:02d}" for i in range(self.count)]

    @property
    def line(self) -> tuple[str, str]:
        gres = f" Gres=gpu:{self.model}:{self.gpus}" if self.gpus else ""
        weight = f" Weight={self.weight}" if self.weight > 1 else ""
        return listed(self), (
            f"CPUs={self.cpus} Boards=1 SocketsPerBoard={self.sockets} CoresPerSocket={self.cores} "
            f"ThreadsPerCore={self.threads} RealMemory={self.memory}{gres}{weight} "
            f"Feature={self.features} State=UNKNOWN"
        )


def listed(kind: Kind) -> str:
    """The nodes of a kind, as Slurm writes them."""
    return f"{kind.prefix}[01-{kind.count:02d}]" if kind.count > 1 else f"{kind.prefix}01"


class Drawing:
    """A site and its jobs, from one random stream."""

    def __init__(self, number: int):
        self.rng = np.random.default_rng([39, number])
        self.kinds = self._kinds()
        self.conf: list[str] = []
        self.accounts: list[str] = []
        self.begin: list[str] = []
        self.files: dict[str, str] = {}
        self.qos = ["normal"]
        self.enforces = False
        self._selection()
        self.partitions = self._partitions()
        self._order()
        self._loops()
        self._tenants()
        if self.chance(0.2) and len(self.nodes) > 3:
            self._topology()
        self.reserved = self.chance(0.25) and len(self.nodes) > 2
        self.reservation = ""
        if self.reserved:
            self._reservation()

    # ------------------------------------------------------------------------- draws

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def pick(self, *of: Any) -> Any:
        return of[int(self.rng.integers(len(of)))]

    def whole(self, low: float, high: float) -> int:
        """A whole number between two, small ones as often as large ones by factors."""
        return round(float(np.exp(self.rng.uniform(np.log(low), np.log(high)))))

    # ------------------------------------------------------------------------- the site

    @property
    def nodes(self) -> list[str]:
        return [name for kind in self.kinds for name in kind.names]

    @property
    def cores(self) -> int:
        return sum(kind.count * kind.cpus for kind in self.kinds)

    def _kinds(self) -> list[Kind]:
        total, number = self.whole(2, 40), 1 + int(self.rng.integers(5))
        number = min(number, total)
        cuts = np.sort(self.rng.permutation(total - 1)[: number - 1]) + 1
        counts = np.diff([0, *cuts.tolist(), total])
        threads, weighed, found = 2 if self.chance(0.2) else 1, self.chance(0.4), []
        for prefix, count in zip("cfgbm", counts.tolist()):
            sockets, cores = self.pick(1, 1, 2), self.pick(2, 4, 4, 8)
            cpus = sockets * cores * threads
            gpus = self.pick(2, 4) if prefix in "gm" or self.chance(0.15) else 0
            model = self.pick("a100", "v100", "t4")
            features = ",".join(["rack1" if self.chance(0.5) else "rack2", prefix + "node"])
            memory = cpus * self.pick(1000, 2000, 4000)
            weight = self.pick(1, 5, 10) if weighed else 1
            of = prefix, count, sockets, cores, threads, memory, model, gpus, weight, features
            found.append(Kind(*of))
        return found

    def _selection(self) -> None:
        self.linear = self.chance(0.08)
        kind = self.pick("CR_Core", "CR_Core", "CR_Core_Memory", "CR_Core_Memory", "CR_CPU")
        if self.chance(0.15):
            kind = self.pick("CR_CPU_Memory", "CR_Socket", "CR_Socket_Memory", "CR_Core,CR_LLN")
            kind = self.pick(kind, "CR_Core,CR_Pack_Nodes", "CR_Core,CR_ONE_TASK_PER_CORE")
        if self.linear:
            kind = self.pick("CR_Memory", "")
        self.memory = "Memory" in kind
        self.conf.append(f"SelectType=select/{'linear' if self.linear else 'cons_tres'}")
        self.conf += [f"SelectTypeParameters={kind}"] * bool(kind)
        self.gpus = any(kind.gpus for kind in self.kinds) and not self.linear
        self.conf += ["GresTypes=gpu", "AccountingStorageTRES=gres/gpu"] * any(
            kind.gpus for kind in self.kinds
        )
        if self.memory and self.chance(0.8):
            self.conf.append(f"DefMemPerCPU={self.pick(500, 900)}")
        self.licensed = self.chance(0.15)
        if self.licensed:
            self.conf.append("Licenses=ansys:4,matlab:2")

    def _partitions(self) -> dict[str, list[Kind]]:
        found, lines = {"batch": self.kinds}, list[str]()
        if self.chance(0.5):
            lines.append(f"PartitionName=DEFAULT State=UP DefaultTime={self.pick(15, 30)}:00")
        self.short = ""
        time = self.pick("INFINITE", "1-00:00:00", "02:00:00")
        lines.append(f"PartitionName=batch Nodes=ALL Default=YES MaxTime={time}")
        tiers = self.chance(0.35)
        if tiers and self.chance(0.2):
            self.conf += ["PreemptType=preempt/partition_prio", "PreemptMode=REQUEUE"]
        for name in ("short", "gpu", "large")[: int(self.rng.integers(4))]:
            some = [kind for kind in self.kinds if name != "gpu" or kind.gpus]
            some = [kind for kind in some if self.chance(0.7)] or some[:1]
            if not some:
                continue
            line = f"PartitionName={name} Nodes={','.join(listed(kind) for kind in some)}"
            if name == "short":
                line += f" MaxTime=00:{self.pick(10, 20)}:00"
            line += f" {self.pick('PriorityTier', 'PriorityTier', 'Priority')}=5" * tiers
            line += f" PriorityJobFactor={self.pick(2, 10)}" * self.chance(0.3)
            if self.chance(0.15):
                line += " " + self.pick("OverSubscribe=EXCLUSIVE", "Shared=EXCLUSIVE", "LLN=YES")
            elif self.chance(0.1):
                line += " " + self.pick("ExclusiveUser=YES", "MaxNodes=2")
            lines.append(line)
            found[name] = some
        if self.chance(0.1):  # the whole site, by whole nodes
            lines[-1] += " OverSubscribe=EXCLUSIVE" * ("Shared" not in lines[-1])
        self.conf_partitions = lines
        return found

    def _order(self) -> None:
        if self.chance(0.35):
            return
        lines = ["PriorityType=priority/multifactor", "PriorityCalcPeriod=00:01:00"]
        lines.append(f"PriorityMaxAge=0{self.pick(1, 2)}:00:00")
        for name in ("Age", "JobSize", "Fairshare", "QOS", "Partition"):
            if self.chance(0.5):
                lines.append(f"PriorityWeight{name}={self.pick(500, 1000, 5000, 20000)}")
        if self.chance(0.2):
            lines.append(f"PriorityWeightTRES=CPU={self.pick(500, 2000)},Mem=300")
        lines += [f"PriorityFavorSmall={self.pick('YES', 'NO')}"] * self.chance(0.3)
        flags = ("ACCRUE_ALWAYS", "SMALL_RELATIVE_TO_TIME", "MAX_TRES", "NO_FAIR_TREE")
        lines += [f"PriorityFlags={self.pick(*flags)}"] * self.chance(0.3)
        lines.append(f"PriorityDecayHalfLife={self.pick('00:30:00', '02:00:00', '7-0')}")
        self.conf += lines

    def _loops(self) -> None:
        parts = [f"bf_interval={self.pick(15, 30, 60)}"] * self.chance(0.4)
        drawn = (
            f"bf_resolution={self.pick(120, 300)}",
            f"bf_max_job_user={self.pick(2, 4)}",
            f"bf_max_job_part={self.pick(3, 8)}",
            f"bf_max_job_start={self.pick(1, 2)}",
            f"bf_max_job_test={self.pick(5, 15)}",
            f"default_queue_depth={self.pick(3, 10)}",
            f"partition_job_depth={self.pick(3, 5)}",
            "bf_continue",
            f"bf_window={self.pick(60, 600)}",
            f"bf_min_prio_reserve={self.pick(10, 1000)}",
            "defer",
            "pack_serial_at_end",
            "bf_one_resv_per_job",
            "bf_busy_nodes",
        )
        for i in self.rng.permutation(len(drawn))[: self.pick(0, 0, 1, 2)].tolist():
            parts.append(drawn[i])
        self.conf += [f"SchedulerParameters={','.join(parts)}"] * bool(parts)

    def _limit(self, group: bool) -> str:
        """Something at once, of what a job or many take."""
        cores = max(self.cores // self.pick(2, 3, 4), 4)
        if group:
            return str(self.pick(f"GrpTRES=cpu={cores}", f"GrpJobs={self.pick(3, 6)}"))
        return str(
            self.pick(
                f"MaxTRESPerUser=cpu={cores}",
                f"MaxTRESPerUser=node={max(len(self.nodes) // 3, 2)}",
                f"MaxJobsPerUser={self.pick(2, 3)}",
                f"MaxTRESPerJob=cpu={cores}",
                f"MaxTRESPerAccount=cpu={cores}",
                f"MaxJobsPerAccount={self.pick(3, 5)}",
                f"MaxWall=00:{self.pick(20, 40)}:00",
                *["MaxTRESPerUser=gres/gpu=2"] * self.gpus,
            )
        )

    def _tenants(self) -> None:
        """QOS, limits of them and of accounts, and what of it is enforced."""
        self.enforced = self.pick(
            "", "associations", "limits", "associations,limits,qos", "safe,qos"
        )
        if self.enforced:
            self.conf.append(f"AccountingStorageEnforce={self.enforced}")
        everyone = ",".join(USERS)
        if self.chance(0.5):
            for name in ("urgent", "long")[: self.pick(1, 2)]:
                limit = self._limit(self.chance(0.3)) if self.chance(0.6) else ""
                self.accounts.append(f"add qos {name} Priority={self.pick(10, 100)} {limit}")
                if self.chance(0.2):
                    self.accounts.append(f"modify qos {name} set Flags=OverPartQOS")
                self.qos.append(name)
            others = ",".join(self.qos[1:])
            self.accounts.append(f"modify user {everyone} set qos+={others}")
        if self.chance(0.4):
            self.accounts.append(f"modify qos normal set {self._limit(False)}")
        names = [*self.partitions]
        if self.chance(0.25):
            self.accounts.append(f"add qos part {self._limit(self.chance(0.4))}")
            at = next(
                i
                for i, line in enumerate(self.conf_partitions)
                if line.startswith(f"PartitionName={names[-1]} ")
            )
            self.conf_partitions[at] += " QOS=part"
        for account in dict.fromkeys(USERS.values()):
            if self.chance(0.4):
                self.accounts.append(
                    f"modify account {account} set fairshare={self.pick(10, 30, 60)}"
                )
            if self.chance(0.2):
                self.accounts.append(f"modify account {account} set {self._limit(True)}")
            if self.chance(0.15):
                self.accounts.append(f"modify account {account} set MaxJobs={self.pick(2, 3)}")
        if self.chance(0.15):
            self.accounts.append(f"modify user gwuser1 set MaxJobs={self.pick(1, 2)}")

    def _topology(self) -> None:
        self.conf.append("TopologyPlugin=topology/tree")
        names, size = self.nodes, self.pick(2, 3, 4, 6)
        leaves = [names[i : i + size] for i in range(0, len(names), size)]
        lines = [f"SwitchName=s{i} Nodes={','.join(of)}" for i, of in enumerate(leaves)]
        lines.append(f"SwitchName=top Switches=s[0-{len(leaves) - 1}]")
        self.files["topology.conf"] = "\n".join(lines) + "\n"

    def _reservation(self) -> None:
        some = self.nodes[-max(1, len(self.nodes) // 4) :]
        after, length = self.pick(8, 15, 20), self.pick(10, 20)
        self.reservation = "course" if self.chance(0.5) else "repair"
        users = "users=gwuser1,gwuser3" if self.reservation == "course" else "users=root"
        flags = " flags=maint" if self.reservation == "repair" else ""
        self.begin.append(
            f"scontrol create reservation={self.reservation} starttime=now+{after}minutes "
            f"duration={length} nodes={','.join(some)} {users}{flags}"
        )

    @property
    def cluster(self) -> Cluster:
        nodes = tuple(kind.line for kind in self.kinds)
        conf = HEAD + "\n".join([*self.conf, *self.conf_partitions]) + "\n"
        return Cluster(conf, nodes, tuple(self.accounts), self.files, tuple(self.begin))

    # ------------------------------------------------------------------------- its jobs

    def actions(self) -> list[Action]:
        """Submissions, cancellations, releases, and nodes that go down and come back."""
        number = 60 + int(self.rng.integers(50))
        wants = [self._wanted() for _ in range(number)]
        relative = np.clip(self.rng.lognormal(0.0, 0.8, number), 0.1, 6.0)
        work = sum(want[1] * one for want, one in zip(wants, relative.tolist()))
        load = self.rng.uniform(0.9, 1.3)
        runs = np.clip(relative * SPAN * self.cores * load / work, 15, LONGEST).astype(int)
        gaps = self.rng.exponential(1.0, number)
        at = np.cumsum(gaps) / gaps.sum() * (SPAN - 5.0 * number) + 5.0 * np.arange(number)
        families = self._families()
        users = self.rng.choice(list(USERS), number, p=np.array([6, 1, 4, 2, 3, 2]) / 18)
        found: list[Action] = []
        for i, (want, run, when) in enumerate(zip(wants, runs.tolist(), at.tolist())):
            found += self._submission(i, want, run, when, str(users[i]), families)
        if self.chance(0.3) and len(self.nodes) > 1:
            found += self._outages()
        return found

    def _wanted(self) -> tuple[str, float, str]:
        """A partition, cores that a job takes about, and how its user asks for them."""
        partition = self.pick(*self.partitions)
        some = self.partitions[partition]
        cores = sum(kind.count * kind.cpus for kind in some)
        node = min(kind.cpus for kind in some)
        nodes = sum(kind.count for kind in some)
        n = max(1, int(cores / 2 * self.rng.random() ** 3))
        few = 1 + int((nodes - 1) / 2 * self.rng.random() ** 3)
        c = self.pick(2, min(4, node))
        c = min(c, node)
        tasks = int(self.rng.integers(1, node + 1))
        gpus = [kind for kind in some if kind.gpus]
        if gpus and self.gpus and (partition == "gpu" or self.chance(0.1)):
            return partition, *self._with_gpus(gpus)
        ways: list[tuple[float, float, str]] = [
            (4, n, f"-n {n}"),
            (1, n, f"--ntasks={n}"),
            (2, max(n // c, 1) * c, f"-n {max(n // c, 1)} -c {c}"),
            (1, c, f"-c {c}"),
            (1, 1, ""),
            (1, few * tasks, f"-N {few} --ntasks-per-node={tasks}"),
            (0.5, few, f"-N {few}"),
            (0.5, few * node, f"-N {few} --exclusive"),
            (0.5, n, f"-n {n} --ntasks-per-node={tasks}"),
            (0.5, max(n, few), f"-N {few} -n {max(n, few)}"),
            (0.3, n, f"-n {n} -N 1-{nodes}"),
        ]
        share = np.array([way[0] for way in ways])
        _, size, how = ways[int(self.rng.choice(len(ways), p=share / share.sum()))]
        if self.memory and self.chance(0.4):
            each = min(kind.memory // kind.cpus for kind in some)
            how += self.pick(
                f" --mem-per-cpu={each // self.pick(1, 2, 4)}",
                f" --mem={each * self.pick(1, 2, node)}",
            )
        return partition, float(size), how

    def _with_gpus(self, kinds: Sequence[Kind]) -> tuple[float, str]:
        kind = self.pick(*kinds)
        k, each = self.pick(1, 1, 2, kind.gpus), kind.cpus / kind.gpus
        few = 1 + int((kind.count - 1) / 2 * self.rng.random() ** 2)
        how = self.pick(
            f"--gpus={k}",
            f"--gres=gpu:{k}",
            f"--gres=gpu:{kind.model}:{k}",
            f"-N {few} --gpus-per-node={k}",
            f"-n {k} --gpus-per-task=1",
            f"-n {k} -G {k}",
        )
        return (few if "-N" in how else 1) * k * each, how

    def _families(self) -> list[Callable[[int, str], str]]:
        """Four further ways of asking, each of which some jobs of the site use."""
        nodes, names = self.nodes, [*self.partitions]

        def before(i: int) -> str:
            return f"{{{max(i - int(self.rng.integers(1, 8)), 0)}}}"

        features = sorted({f for kind in self.kinds for f in kind.features.split(",")})
        ways: list[Callable[[int, str], str]] = [
            lambda i, p: "--exclusive",
            lambda i, p: f"-w {self.pick(*nodes)}",
            lambda i, p: f"-x {self.pick(*nodes)}",
            lambda i, p: f"-p {','.join(names)}",
            lambda i, p: f"--nice={self.pick(50, 500, 5000)}",
            lambda i, p: "--spread-job",
            lambda i, p: "--hint=nomultithread",
            lambda i, p: f"--begin=now+{self.pick(3, 8)}minutes",
            lambda i, p: "-d singleton -J same",
            lambda i, p: f"-d afterany:{before(i)}",
            lambda i, p: f"--dependency=afterok:{before(i)}",
            lambda i, p: f"--array=1-{self.pick(3, 5)}%{self.pick(1, 2)}",
            lambda i, p: f"--array=0-{self.pick(2, 3)}",
            lambda i, p: f"-C {self.pick(*features)}",
            lambda i, p: f"-C {'|'.join(features[:2])}",
            lambda i, p: "--contiguous",
            lambda i, p: "--hold",
            lambda i, p: "scancel",
            lambda i, p: f"--deadline=now+{self.pick(20, 40)}minutes",
            lambda i, p: f"--mincpus={self.pick(1, 2)}",
            lambda i, p: f"--time-min={self.pick(1, 3)}",
            lambda i, p: "--use-min-nodes",
            lambda i, p: f"--ntasks-per-core={self.pick(1, 2)}",
            lambda i, p: "--no-requeue",
        ]
        if self.licensed:
            ways += [lambda i, p: f"-L {self.pick('ansys', 'ansys:2', 'matlab:1')}"] * 6
        if "topology.conf" in self.files:
            ways += [lambda i, p: f"--switches={self.pick('1', '1@5')}"] * 6
        chosen = self.rng.permutation(len(ways))[:5].tolist()
        found = [ways[i] for i in chosen]
        if self.reservation == "course":
            found.append(lambda i, p: "--reservation=course")
        return found

    def _submission(
        self,
        i: int,
        want: tuple[str, float, str],
        run: int,
        at: float,
        user: str,
        families: Sequence[Callable[[int, str], str]],
    ) -> Iterator[Action]:
        partition, _, how = want
        words = f"sbatch --parsable -o /dev/null -J j{i} {how}".split()
        if partition != "batch" or self.chance(0.2):
            words += ["-p", partition]
        limit = -(-run * self.pick(1, 2, 3, 6) // 60) + 1
        if partition == "short":
            run, limit = min(run, 500), min(limit, 10)
        if self.chance(0.92):
            words += ["-t", str(self.pick(limit, limit, f"{limit // 60:02d}:{limit % 60:02d}:00"))]
        if limit <= 15 and self.chance(0.08):
            run = limit * 60 + 120  # killed at its limit
        if len(self.qos) > 1 and self.chance(0.35):
            words += ["-q", self.pick(*self.qos[1:])]
        more = self.pick(*families)(i, partition) if self.chance(0.4) and i else ""
        cancelled = more == "scancel"
        words += more.split() if not cancelled else []
        ends = "; exit 1" if self.chance(0.1) else ""
        yield Action(at, (*words, "--wrap", f"sleep {run}{ends}"), user)
        if cancelled:
            yield Action(at + self.pick(60, 200), ("scancel", f"{{{i}}}"), user)
        if more == "--hold":
            yield Action(at + self.pick(100, 400), ("scontrol", "release", f"{{{i}}}"))

    def _outages(self) -> Iterator[Action]:
        for name in self.rng.permutation(self.nodes)[: self.pick(1, 1, 2)].tolist():
            at, length = self.rng.uniform(200, 1200), self.rng.uniform(200, 900)
            how = self.pick("down", "drain", "drain")
            change = "scontrol", "update", f"nodename={name}"
            yield Action(at, (*change, f"state={how}", "reason=memory"))
            yield Action(at + length, (*change, "state=resume"))


# ------------------------------------------------------------------------------- playing


def write(truth: Truth, out: Path) -> None:
    """What a site can print, and its accounting, as the how-to says."""
    site = truth.root / "site"
    for name, words in PRINTED.items():
        (site / name).write_text(truth.call(*words.split(), check=False))
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(site, out / "site")
    for file in (out / "site").iterdir():
        file.write_text(file.read_text().replace(str(truth.root), "/slurm"))
    words = f"sacct -a -X -P --duplicates --delimiter=^ -S now-7days --format={COLUMNS}"
    (out / "jobs.txt").write_text(truth.call(*words.split()))
    (out / "refused.txt").write_text("\n".join(truth.refused) + "\n")
    shutil.copy(truth.root / "log/slurmctld.log", out / "slurmctld.log")


def play_one(number: int, run: int, out: Path) -> None:
    """Play a site, within the faked clock."""
    root = Path(tempfile.mkdtemp(prefix=f"site-{number:02d}-"))
    drawing = Drawing(number)
    cluster, actions = drawing.cluster, drawing.actions()
    truth = Truth(root, cluster, 23_000 + 200 * (number % 9) + 100 * (run % 2))
    try:
        truth.start()
        truth.play(actions, PATIENCE)
        write(truth, out / f"{number:02d}" / str(run))
    finally:
        truth.stop()
        shutil.rmtree(root, ignore_errors=True)


def play(numbers: Sequence[int], runs: Sequence[int], speed: float, out: Path) -> None:
    for user in USERS:
        try:
            pwd.getpwnam(user)
        except KeyError:
            subprocess.run(["useradd", "-M", user], check=True)
    for number in numbers:
        for run in runs:
            began = time.monotonic()
            words = ["faketime", "-m", "-f", f"+0 x{speed:g}", sys.executable, "-m"]
            again = ["benchmarks.slurm_sites", "inside", str(number), "--runs", str(run)]
            for _ in range(3):
                done = subprocess.run([*words, *again, "--out", str(out)])
                if not done.returncode or time.monotonic() - began > 20:
                    break  # else faketime found the name of its semaphore taken
            took = time.monotonic() - began
            said = "failed" if done.returncode else "done"
            print(f"site {number}, run {run}: {said}, {took:.0f} s", flush=True)


# ------------------------------------------------------------------------------- comparing


@dataclass(frozen=True)
class Run:
    """A play by Slurm and those by the model, by job: submission, start, the model's (seconds)."""

    row: dict[str, dict[str, str]]
    submit: dict[str, float]
    real: dict[str, float]
    models: tuple[dict[str, float], ...]
    notes: list[str]

    @property
    def model(self) -> dict[str, float]:
        """The play by the model of the log as it is."""
        return self.models[0]

    @property
    def left_out(self) -> list[str]:
        """Jobs that Slurm ran, and the model did not."""
        return [job for job in self.real if job not in self.model]


def time_of(text: str) -> float:
    """Seconds of a time as sacct prints it; NaN for none."""
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return math.nan


def late(job: str, phase: int) -> int:
    """Seconds by which a phase shifts a job: when the passes come beside it is chance."""
    base = int(re.split(r"[_+]", job)[0])
    return int(np.random.default_rng([base, phase]).integers(LATEST + 1)) if phase else 0


def as_replayed(text: str, phase: int, began: Sequence[float] = ()) -> str:
    """The listing of a phase, with ends when nodes are free on the faked clock (``FREES``).

    ``began`` are times of events before the first job, each a job of no length here.
    """
    heading, *lines = text.splitlines()
    names, found = heading.split("^"), [heading]
    for number, when in enumerate(began):
        instant = datetime.fromtimestamp(when, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        alike = next(line for line in lines if "^None assigned^" not in line)
        added = dict(zip(names, alike.split("^"))) | {"JobID": f"{FIRST_ADDED + number}"}
        added |= dict.fromkeys(("Submit", "Eligible", "Start", "End"), instant)
        found.append("^".join(added.values()))
    for row, line in enumerate(lines):
        fields = line.split("^")
        shift = late(fields[0], phase)
        for name in ("Submit", "Eligible", "Start", "End"):
            of = names.index(name)
            if not math.isnan(when := time_of(fields[of])):
                more = int(FREES + 0.5 * (row % 2)) if name == "End" else 0
                later = datetime.fromtimestamp(when + shift + more, UTC)
                fields[of] = later.strftime("%Y-%m-%dT%H:%M:%S")
        found.append("^".join(fields))
    return "\n".join(found) + "\n"


def started_passes(folder: Path) -> list[float]:
    """When the controller of a play began, and when its nodes had come.

    Backfilling counts its intervals from the first, and something has happened at the second.
    """
    told = re.search(r"BOOT_TIME\s*= (\S+)", (folder / "site/config.txt").read_text())
    boot = time_of(told[1]) if told else math.nan
    return [boot + BEGINS, boot + BEGINS + COME] if boot == boot else []


def replayed(folder: Path, phases: int = 1) -> Run:
    """What is kept of a play, replayed as docs/how-to/slurm-rules.md says; first runs of jobs."""
    text = (folder / "jobs.txt").read_text()
    heading, *lines = text.splitlines()
    names = heading.split("^")
    rows = [dict(zip(names, line.split("^"))) for line in lines]
    first = {row["JobID"]: row for row in reversed(rows)}  # of those that were requeued
    name = {job: drawn_as(row) for job, row in first.items()}  # plays number array tasks apart
    real, submit = {}, {}
    for job, row in first.items():
        submit[name[job]] = time_of(row["Submit"])
        if row["NodeList"] not in ("None assigned", ""):
            real[name[job]] = time_of(row["Start"])
    rules = f"slurm:{folder / 'site'}"
    scheduler = Site.read(rules).scheduler
    models, notes = list[dict[str, float]](), list[str]()
    for phase in range(phases):
        with tempfile.TemporaryDirectory() as scratch:
            log = Path(scratch, "jobs.txt")
            log.write_text(as_replayed(text, phase, started_passes(folder)))
            done = replay(log, [scheduler], rules=rules)
            told = done.jobs().select("id", "submit", "start").rows()
            notes = notes or done.scenario.fidelity()
        played = [(str(job), at, start) for job, at, start in told if str(job) in name]
        zero = float(
            np.median([submit[name[job]] + late(job, phase) - at for job, at, _ in played])
        )
        models.append(
            {
                name[job]: start + zero - late(job, phase)
                for job, _, start in played
                if start == start
            }
        )
    return Run({name[job]: row for job, row in first.items()}, submit, real, tuple(models), notes)


def drawn_as(row: Mapping[str, str]) -> str:
    """The submission of a row, with the task of an array or part of a heterogeneous job."""
    drawn = re.search(r"-J j(\d+)", row["SubmitLine"])
    part = re.search(r"[_+].*", row["JobID"])
    return (drawn[1] if drawn else row["JobID"]) + (part[0] if part else "")


@dataclass(frozen=True)
class Compared:
    """Two plays of a site by Slurm, each with the model's of the same jobs."""

    number: int
    runs: tuple[Run, ...]

    @property
    def both(self) -> list[str]:
        """Jobs that started in every play."""
        return [
            job
            for job in self.runs[0].real
            if all(job in one for run in self.runs for one in (run.real, *run.models))
        ]

    def numbers(self) -> dict[str, float]:
        """Mean waits, and how far the model is from Slurm, and each of them from itself."""
        both, runs = self.both, range(len(self.runs))
        submit = np.array([[run.submit[job] for job in both] for run in self.runs])
        real = np.array([[run.real[job] for job in both] for run in self.runs])
        model = np.array([[[m[job] for job in both] for m in run.models] for run in self.runs])
        waits, modelled = real - submit, model - submit[:, None]  # [run, J], [run, phase, J]
        mean = float(waits.mean())
        pairs = list(combinations(runs, 2))
        plays = [(a, m) for a in runs for m in range(model.shape[1])]
        means = modelled.mean(axis=2)
        apart = [abs(one - other) for run in means for one, other in combinations(run, 2)]
        return {
            "jobs": len(self.both),
            "left out": sum(len(run.left_out) for run in self.runs),
            "wait": mean,
            "own": float(np.ptp(waits.mean(axis=1))) / mean,
            "error": float(modelled.mean()) / mean - 1,
            "one play": float(modelled[:, 0].mean()) / mean - 1,
            "scatter": float(np.mean(apart or [0.0])) / mean,
            "own tau": float(np.mean([kendalltau(real[a], real[b]).statistic for a, b in pairs])),
            "tau": float(np.mean([kendalltau(real[a], model[a, b]).statistic for a, b in plays])),
            "own share": float(np.mean([share(waits[a], waits[b]) for a, b in pairs])),
            "share": float(np.mean([share(waits[a], modelled[a, m]) for a, m in plays])),
        }


def share(one: Floats, other: Floats) -> float:
    """How much of the waits, job by job, two schedules agree on; symmetric."""
    return max(0.0, 1 - float(np.abs(one - other).sum() / (0.5 * (one + other)).sum()))


def compared(number: int, out: Path, phases: int = 1) -> Compared:
    """A site that is kept as a folder, or packed."""
    with tempfile.TemporaryDirectory() as scratch:
        folder, packed = out / f"{number:02d}", out / f"{number:02d}.tar.xz"
        if not folder.exists():
            folder = Path(scratch)
            with tarfile.open(packed) as tar:
                tar.extractall(folder, filter="data")
        plays = sorted(f for f in folder.iterdir() if f.is_dir())
        return Compared(number, tuple(replayed(play, phases) for play in plays))


def pack(numbers: Sequence[int], out: Path, to: Path) -> None:
    """Keep what is replayed of each site in one small file."""
    to.mkdir(parents=True, exist_ok=True)
    for number in numbers:
        folder = out / f"{number:02d}"
        with tarfile.open(to / f"{number:02d}.tar.xz", "w:xz", preset=9) as tar:
            for file in sorted([*folder.glob("*/jobs.txt"), *folder.glob("*/site/*")]):
                tar.add(file, str(file.relative_to(folder)), filter=nameless)


def nameless(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = info.mtime = 0
    info.uname = info.gname = ""
    return info


def table(numbers: Sequence[int], out: Path) -> None:
    """Print what all sites come to."""
    print(
        "| site | jobs | left out | wait, s | Slurm from itself | the model | one play of it "
        "| it from itself | τ | job by job |\n" + "|---" * 10 + "|"
    )
    every = []
    for number in numbers:
        try:
            site = compared(number, out, PHASES)
            found = site.numbers()
        except Exception as error:  # of one site, in a long table
            print(f"| {number} | {type(error).__name__}: {error} |", flush=True)
            continue
        every.append(found)
        print(
            f"| {number} | {found['jobs']:.0f} | {found['left out']:.0f} | {found['wait']:.0f} "
            f"| {100 * found['own']:.1f} % "
            f"| {100 * found['error']:+.1f} %{' ' if within(found) else ' **beyond**'} "
            f"| {100 * found['one play']:+.1f} % | {100 * found['scatter']:.1f} % "
            f"| {found['own tau']:.3f}, {found['tau']:.3f} "
            f"| {found['own share']:.2f}, {found['share']:.2f} |",
            flush=True,
        )
    if every:
        mean = {name: float(np.mean([one[name] for one in every])) for name in every[0]}
        near = sum(within(one) for one in every)
        print(
            f"{near} of {len(every)} within; τ {mean['own tau']:.3f}, {mean['tau']:.3f}; "
            f"job by job {mean['own share']:.3f}, {mean['share']:.3f}; "
            f"left out {sum(one['left out'] for one in every):.0f}"
        )


def within(found: Mapping[str, float]) -> bool:
    """The mean wait is as near to Slurm's as Slurm's two are to each other, or within 5 %."""
    return abs(found["error"]) <= max(found["own"], 0.05) and not found["left out"]


def main() -> None:
    """Play, or compare, what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["draw", "play", "compare", "pack", "inside"])
    parser.add_argument("sites", help="5, or 0-39")
    parser.add_argument("--runs", default="0-1")
    parser.add_argument("--speed", type=float, default=30.0)
    parser.add_argument("--out", type=Path, default=Path("sites"))
    parser.add_argument("--to", type=Path, default=Path("packed"), help="folder of packed sites")
    asked = parser.parse_args()

    def numbers(text: str) -> list[int]:
        first, _, last = text.partition("-")
        return [*range(int(first), int(last or first) + 1)]

    if asked.what == "play":
        play(numbers(asked.sites), numbers(asked.runs), asked.speed, asked.out)
    elif asked.what == "inside":
        play_one(int(asked.sites), int(asked.runs), asked.out)
    elif asked.what == "compare":
        table(numbers(asked.sites), asked.out)
    elif asked.what == "pack":
        pack(numbers(asked.sites), asked.out, asked.to)
    elif asked.what == "draw":
        for number in numbers(asked.sites):
            drawing = Drawing(number)
            cluster = drawing.cluster
            print(cluster.conf, *cluster.nodes, *cluster.accounts, *cluster.begin, sep="\n")
            for action in sorted(drawing.actions(), key=lambda a: a.at):
                print(f"{action.at:.0f}", action.user, *action.words)


if __name__ == "__main__":
    main()
