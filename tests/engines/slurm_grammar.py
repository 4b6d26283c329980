"""Requests as users write them for sbatch, drawn from a seed, and what each of them demands.

The oracle knows what was asked for and looks at what ran: nothing of how it came there.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gangwise.engines.slurm_requests import expand, gres
from tests.engines.slurm_cluster import SlurmCluster

NODES = {f"{model}{i}": (4, 2, (model,)) for model in "ab" for i in (1, 2, 3, 4)}
INSIDE = frozenset(NODES) - {"a4"}
RESERVED = frozenset({"b4"})
"""In the reservation ``kept``."""
BEGIN = 4
"""Seconds that ``--begin`` waits."""

KINDS: dict[str, tuple[str, ...]] = {
    "nodes": ("-N1", "-N2", "-N3", "-N2-3", "-N1-4"),
    "tasks": ("-n1", "-n3", "-n4", "-n6"),
    "cpus": ("-c2", "-c4"),
    "by node": ("--ntasks-per-node=1", "--ntasks-per-node=2"),
    "list": ("-wb2", "-wb1,b2", "-wa[1-2]"),
    "exclude": ("-xa1", "-xa[1-3]", "-xb[1-3]"),
    "features": ("-Ca", "-Cb", "-Ca|b", "-C[a*1&b*1]"),
    "memory": ("--mem=500", "--mem=0", "--mem-per-cpu=100", "--mem=3000"),
    "devices": (
        *("--gres=gpu:1", "--gpus-per-task=1", "--gpus=2", "--gpus-per-node=2"),
        *("--gpus=2 --cpus-per-gpu=2", "--gpus=1 --mem-per-gpu=20", "--gres=gpu:2"),
    ),
    "hold": ("-H",),
    "time": (f"--begin=now+{BEGIN}", "--deadline=now+1hour", "--time-min=1"),
    "sharing": ("--exclusive", "--oversubscribe", "--contiguous", "--spread-job"),
    "choice": ("--use-min-nodes", "--mincpus=2", "--prefer=a", "--switches=1", "-mcyclic"),
    "licences": ("-Lsolver:1",),
    "reservation": ("--reservation=kept",),
    "array": ("--array=1-2%1",),
    "words": ("--nice=100", "--comment=work=3", "--no-kill", "-Jother", "--signal=USR1@9"),
    "sockets": ("--sockets-per-node=1", "--threads-per-core=1", "--ntasks-per-socket=4"),
}
COUNT = sum(map(len, KINDS.values()))
WORK = """#!/bin/sh
to={notes}/$SLURM_JOB_ID
scontrol -d -o show job $SLURM_JOB_ID | grep -o 'Nodes=[^ ]* CPU_IDs=.* GRES=[^ ]*' > $to
env | grep ^SLURM_ >> $to
sleep 0.2
"""


@dataclass
class Asked:
    """A request, and its job."""

    options: tuple[str, ...]
    job: str = ""
    submitted: float = 0.0

    def of(self, start: str) -> str | None:
        """What an option says, by how it begins."""
        said = (o[len(start) :] for word in self.options for o in word.split())
        flat = [o for word in self.options for o in word.split()]
        return next((s for o, s in zip(flat, said, strict=True) if o.startswith(start)), None)

    @property
    def held(self) -> bool:
        return "-H" in self.options


def requests(seed: int, count: int) -> list[Asked]:
    """All kinds first, one by one; then two and three of different kinds at once."""
    rng = random.Random(seed)
    alone = [(option,) for each in KINDS.values() for option in each]
    rng.shuffle(alone)
    found = [Asked(options) for options in alone[:count]]
    while len(found) < count:
        kinds = rng.sample(sorted(KINDS), rng.choice((2, 2, 3)))
        found.append(Asked(tuple(rng.choice(KINDS[kind]) for kind in kinds)))
    return found


def submit(cluster: SlurmCluster, asked: Asked, partition: str, notes: Path, *more: str) -> None:
    """Where sbatch refuses it, the job has no number."""
    words = [o for word in asked.options for o in word.split()]
    asked.submitted = time.time()
    command = ("sbatch", "--parsable", "-p", partition, "-t", "2", "-o", "/dev/null", *more)
    script = WORK.format(notes=notes)
    done = cluster.run(*command, *words, text=script)
    asked.job = "" if done.returncode else done.stdout.strip() or "tried"


def records(cluster: SlurmCluster) -> dict[str, dict[str, str]]:
    """Job → what ``scontrol`` shows of it; tasks of arrays under their own number."""
    found = {}
    for line in cluster.call("scontrol", "-a", "-o", "show", "job", check=False).splitlines():
        row = dict(re.findall(r"(\S+?)=(.*?)(?= \S+?=|$)", line))
        found[row["JobId"]] = row
    return found


def violations(asked: Asked, record: Mapping[str, str], notes: Path) -> list[str]:
    """What of the request was not kept by the run of its job."""
    path = notes / record["JobId"]
    if not path.exists():
        return []
    if asked.held:
        return ["it was held and ran"]
    text = path.read_text()
    said = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    shares = re.findall(r"Nodes=(\S+) CPU_IDs=\S+ Mem=(\d+) GRES=(\S*)", text)
    nodes = expand(said["SLURM_JOB_NODELIST"]) or frozenset()
    bad: list[str] = []

    def must(holds: bool, what: str) -> None:
        if not holds:
            bad.append(f"{what}: ran on {','.join(sorted(nodes))}")

    must(nodes <= INSIDE, "outside the partition")
    least, most = 1, len(NODES)
    wanted = int(asked.of("-n") or len(NODES))  # sbatch itself takes fewer nodes for fewer tasks
    if (span := asked.of("-N")) is not None:
        first, _, last = span.partition("-")
        least, most = int(first), int(last or first)
        must(min(least, wanted) <= len(nodes) <= most, f"-N{span}")
    listed = expand(asked.of("-w") or "") or frozenset()
    # With fewer tasks than nodes in the list, Slurm itself takes only so many of the list.
    must(listed <= nodes if wanted >= len(listed) else nodes <= listed, "-w")
    must(not (expand(asked.of("-x") or "") or frozenset()) & nodes, "-x")
    of_a = sum(node[0] == "a" for node in nodes)
    features = {"a": of_a == len(nodes), "b": of_a == 0, "[a*1&b*1]": 0 < of_a < len(nodes)}
    must(features.get(asked.of("-C") or "", True), f"-C{asked.of('-C')}")
    cpus = sum(
        int(n) * int(times or 1)
        for n, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", said["SLURM_JOB_CPUS_PER_NODE"])
    )
    tasks = int(asked.of("-n") or 0) or least * int(asked.of("--ntasks-per-node=") or 1)
    must(cpus >= tasks * int(asked.of("-c") or 1), f"{tasks} tasks with {cpus} cpus")
    if asked.of("-n"):
        must(said.get("SLURM_NTASKS") == asked.of("-n"), "-n")
    if per_node := int(asked.of("--ntasks-per-node=") or 0):
        must(len(nodes) * per_node >= tasks, "--ntasks-per-node")
    gpus = sum(gres(of).get("gpu", 0) * len(expand(names) or ()) for names, _, of in shares)
    for option, least_gpus in (
        ("--gres=gpu:", len(nodes)),
        ("--gpus-per-node=", len(nodes)),
        ("--gpus-per-task=", tasks),
        ("--gpus=", 1),
    ):
        must(gpus >= least_gpus * int(asked.of(option) or 0), f"{option} got {gpus}")
    memory = sum(int(mib) * len(expand(names) or ()) for names, mib, _ in shares)
    each = int(asked.of("--mem=") or 0) or 4000 * (asked.of("--mem=") == "0")
    must(memory >= len(nodes) * each, f"--mem got {memory}")
    must(memory >= cpus * int(asked.of("--mem-per-cpu=") or 0), f"--mem-per-cpu got {memory}")
    must("--exclusive" not in asked.options or cpus == 4 * len(nodes), "--exclusive")
    started = time.mktime(time.strptime(record["StartTime"], "%Y-%m-%dT%H:%M:%S"))
    must(not asked.of("--begin") or started >= int(asked.submitted) + BEGIN - 1, "--begin")
    kept = "--reservation=kept" in asked.options
    must(nodes <= RESERVED if kept else not nodes & RESERVED, "reservation")
    must(not asked.of("-L") or "solver" in record.get("Licenses", ""), "licences")
    return bad


def over(asked: Asked, table: Mapping[str, Mapping[str, str]]) -> bool:
    """Whether all of its job has ended."""
    mine = [r for r in table.values() if asked.job in (r["JobId"], r.get("ArrayJobId"))]
    return bool(mine) and all(
        r["JobState"] not in ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING") for r in mine
    )


def judged(asked: list[Asked], cluster: SlurmCluster, notes: Path) -> dict[str, Any]:
    """Requests by what became of them: refused, held, ended, waiting; and those narrowed."""
    table = records(cluster)
    found: dict[str, Any] = {"refused": 0, "held": 0, "ended": 0, "waits": [], "narrowed": {}}
    for one in asked:
        mine = [r for r in table.values() if one.job in (r["JobId"], r.get("ArrayJobId"))]
        bad = [v for r in mine for v in violations(one, r, notes)]
        if not one.job:
            found["refused"] += 1
        elif bad:
            found["narrowed"][" ".join(one.options)] = bad
        elif one.held:
            found["held"] += 1
        elif over(one, table):
            found["ended"] += 1
        else:
            found["waits"].append(one)
    return found


def starts_natively(asked: list[Asked], cluster: SlurmCluster, notes: Path) -> list[str]:
    """Those of these requests that Slurm's own scheduler starts within twenty seconds."""
    alone = [Asked(one.options) for one in asked]
    for one in alone:
        submit(cluster, one, "native", notes)
    time.sleep(20.0 if alone else 0.0)
    table = records(cluster)
    found = [" ".join(one.options) for one in alone if over(one, table)]
    for one in (*asked, *alone):
        cluster.call("scancel", one.job, check=False)
    return found
