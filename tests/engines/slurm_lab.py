"""A private Slurm, under test."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from pathlib import Path

from gangwise.engines import rank
from gangwise.engines.slurm import SlurmEngine
from tests.engines.conformance import NODES
from tests.engines.slurm_cluster import SlurmCluster

RANK = """
import json, os, sys, time
seconds, fails, folder = float(sys.argv[1]), sys.argv[2] == "True", sys.argv[3]
e = os.environ
held = [int(d) for d in e.get("CUDA_VISIBLE_DEVICES", "").split(",") if d]
with open(f"{folder}/{e['SLURM_JOB_ID']}.{os.getpid()}.ran", "w") as file:
    json.dump([e["SLURMD_NODENAME"], held], file)
time.sleep(seconds)
sys.exit(3 if fails else 0)
"""


class SlurmLab:
    patience = 90.0
    quiet = 1.5

    def __init__(self, folder: Path):
        self.notes, self.reports = folder / "notes", folder / "reports"
        self.notes.mkdir()
        self.reports.mkdir()
        self.frozen: list[int] = []
        self.with_heads: set[str] = set()
        self.program = folder / "rank.py"
        self.program.write_text(RANK)
        self.cluster = SlurmCluster(
            folder / "slurm", {n: (4, 4, (n[0], f"r{n[0]}")) for n in NODES}
        )

    def engine(self) -> SlurmEngine:
        return SlurmEngine(
            reports=self.reports,
            labels={"model": ("a", "b"), "rack": ("ra", "rb")},
            poll=0.25,
            environment=self.cluster.environment,
        )

    def submit(
        self,
        seconds: float,
        tasks: int = 1,
        gpus: int = 1,
        *,
        fails: bool = False,
        model: str = "",
        per_node: int = 0,
        wrapped: bool = False,
        limit: float = 600.0,
        head: int = 0,
    ) -> str:
        command = [sys.executable, "-S", str(self.program), str(seconds), str(fails)]
        command.append(str(self.notes))
        if wrapped:
            command = [sys.executable, rank.__file__, "--work", str(seconds), "--", *command]
        asks = [f"--gpus-per-task={gpus}", f"--ntasks={tasks}"]
        if per_node:
            asks = [f"--nodes={tasks // per_node}", f"--ntasks-per-node={per_node}"]
            asks.append(f"--gres=gpu:{gpus * per_node}")
        if model:
            asks.append(f"--constraint={model}")
        script = f"#!/bin/sh\nexec srun {shlex.join(command)}\n"
        if head:  # a heterogeneous job, whose components sbatch takes apart by a colon
            first = ["--ntasks=1", f"--cpus-per-task={head}", "--partition=gangwise"]
            asks = [*first, ":", *asks, "--partition=gangwise", f"--time={int(limit // 60)}"]
            script = f"#!/bin/sh\nexec srun --het-group=0,1 {shlex.join(command)}\n"
        options = [f"--time={int(limit // 60)}", "--output=/dev/null", "--requeue"]
        options.append(f"--export=ALL,GANGWISE_REPORTS={self.reports}")
        job = self.cluster.call(
            "sbatch", "--parsable", *options, "--partition=gangwise", *asks, text=script
        ).strip()
        self.with_heads |= {job} if head else set()
        return job

    def ran(self, job: str) -> list[tuple[str, tuple[int, ...]]]:
        ids = job, *[str(int(job) + 1)] * (job in self.with_heads)
        files = [p for name in ids for p in self.notes.glob(f"{name}.*.ran")]
        notes = [json.loads(p.read_text() or "null") for p in files]
        return [(note[0], tuple(note[1])) for note in notes if note]

    def node_down(self, node: str) -> None:
        """A power cut that its operator notices at once: what ran there stands still.

        Left to itself Slurm takes half a minute, and the job's own srun may give up before.
        """
        self.cluster.end(node)
        for process in Path("/proc").glob("[0-9]*"):
            if self._of(process, node):
                self.frozen.append(int(process.name))
                _signal(int(process.name), signal.SIGSTOP)
        self.cluster.call(
            "scontrol", "update", f"nodename={node}", "state=down", "reason=power cut"
        )

    def _of(self, process: Path, node: str) -> bool:
        """Whether it is a rank on a node of this cluster."""
        try:
            told = (process / "environ").read_bytes().split(b"\0")
        except OSError:
            return False
        ours = f"SLURM_CONF={self.cluster.environment['SLURM_CONF']}".encode() in told
        return ours and f"SLURMD_NODENAME={node}".encode() in told

    def node_up(self, node: str) -> None:
        for one in self.frozen:
            _signal(one, signal.SIGKILL)
        self.frozen.clear()
        self.cluster.daemon(node, "slurmd", "-D", "-N", node)
        self.cluster.call("scontrol", "update", f"nodename={node}", "state=resume")

    def pause(self) -> None:
        self.cluster.daemons["slurmctld"].send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.cluster.daemons["slurmctld"].send_signal(signal.SIGCONT)

    def stop(self) -> None:
        self.cluster.stop()


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
