"""A soak: a service beside a real Slurm or Kubernetes, while faults are drawn, for so many minutes.

``python -m tests.engines.soak slurm FOLDER MINUTES [SEED]`` prints a row for each fault and a
summary. Faults are kills and stops of the cluster's daemons and of the service, a wall clock that
jumps by an hour, a full disk, a locked database, and replies that are garbled. Jobs are submitted
all the time; each writes a line for each time that it starts. In the end each job has run once, and
health was wrong for at most 15 s: a while after each fault begins, and after it is over. A Slurm
whose daemons are killed starts jobs anew by itself, and forgets jobs of the last seconds: such jobs
are listed apart, where its log or its own table says so and no run was beside another.

All listens on loopback alone. The processes of a cluster end with this one.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from ssl import create_default_context
from typing import Any

from gangwise.service.api import _health
from gangwise.service.state import ServiceState

ALLOWED = 15.0  # seconds for which health may be wrong
SERVICE = """
import sys, time
real, file = time.time, sys.argv.pop(1)
time.time = lambda: real() + float(open(file).read() or 0)  # a wall clock that a test moves
from gangwise.__main__ import main
sys.argv[0] = "gangwise"
main()
"""
PROGRAM = """#!/bin/sh
# A program of Slurm's whose replies have the fault that stands in a file.
real={real}
fault=$(cat {file} 2>/dev/null)
case "$fault" in
  "") exec $real "$@" ;;
  zero) echo "$(basename $0): error: Zero Bytes were transmitted or received" >&2; exit 1 ;;
  unknown) echo "slurm_load error: Unspecified error" >&2; exit 1 ;;
  killed) kill -SEGV $$ ;;
  empty) exit 0 ;;
  html) echo "<html><body>502 Bad Gateway</body></html>" ;;
  cut) $real "$@" | head -c 700 ;;
  null) echo null ;;
  hang) sleep 40; exit 1 ;;
  drip) for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do printf x; sleep 2; done ;;
  nulls) $real "$@" | sed '5~7s/: .*,$/: null,/' ;;
esac
"""
GARBLED = ("zero", "unknown", "killed", "empty", "html", "cut", "null", "hang", "drip", "nulls")


SCRIPT = """#!/bin/sh
# A job that writes down its runs, and those of its own that run beside it.
echo "start $$ ${{SLURM_RESTART_COUNT:-0}} $(date +%T)" >> {file}
for one in $(sed -n 's/^start \\([0-9]*\\) .*/\\1/p' {file}); do
  if [ $one != $$ ] && kill -0 $one 2>/dev/null; then echo "beside $one" >> {file}; fi
done
sleep {seconds:.1f}
echo "end $$ $(date +%T)" >> {file}
"""


class Soak:
    """A cluster, a service in a process of its own, and an observer of its health."""

    service: subprocess.Popen[bytes]

    def __init__(self, folder: Path, seed: int):
        self.folder, self.rng = folder, random.Random(seed)
        self.state, self.clock_file = folder / "disk" / "state", folder / "clock"
        (folder / "disk").mkdir(parents=True)
        self.mounted = not subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(folder / "disk")], check=False
        ).returncode
        self.clock_file.write_text("0\n")
        self.jobs: list[str] = []
        self.samples: list[tuple[float, bool]] = []
        self.delays: list[tuple[float, float]] = []  # (time, seconds too late) of a bare thread
        self.named: set[str] = set()  # troubles, as they were seen last
        self.over, self.closed = threading.Event(), threading.Event()  # ... to new jobs

    # What an engine says of itself

    faults: dict[str, Callable[[bool], None]]
    """Fault → call that begins (True) and ends (False) it."""
    silent = frozenset[str]()
    """Faults during which work can be done all the same, or nobody need notice."""
    steady = frozenset({"an hour ahead", "an hour back"})
    """Faults during which work can be done, and health must say so."""

    def submit(self) -> str:
        raise NotImplementedError

    def starts(self, job: str) -> int:
        raise NotImplementedError

    def ended(self, job: str) -> bool:
        """Whether a run of it came to its end."""
        return bool(self.starts(job))

    def by_cluster(self, job: str) -> bool:
        """Whether the cluster itself lost it, or ran it again, by its own account."""
        return False

    def command(self) -> list[str]:
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        return {}

    def stop(self) -> None:
        raise NotImplementedError

    # The service

    def serve(self) -> None:
        words = ["serve", "--act", "--scheduler", "fcfs+easy+best-fit", "--state", str(self.state)]
        words += ["--account-every", "0", "--forecast-every", "0", *self.command()]
        python = [sys.executable, "-c", SERVICE, str(self.clock_file)]
        with open(self.folder / "service.log", "ab") as log:
            self.service = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *python, *words],
                env={**os.environ, **self.environment()},
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )

    def killed(self, begins: bool) -> None:
        if begins:
            self.service.kill()
            self.service.wait()
        else:
            self.serve()

    def stopped(self, begins: bool) -> None:
        self.service.send_signal(signal.SIGSTOP if begins else signal.SIGCONT)

    def clock_by(self, seconds: int) -> Callable[[bool], None]:
        def fault(begins: bool) -> None:
            self.clock_file.write_text(f"{seconds}\n" if begins else "0\n")

        return fault

    def locked(self, begins: bool) -> None:
        if begins:
            self.other = sqlite3.connect(self.state / "service.sqlite", isolation_level=None)
            self.other.execute("PRAGMA busy_timeout=10000")
            self.other.execute("BEGIN IMMEDIATE")
        else:
            self.other.execute("ROLLBACK")
            self.other.close()

    def full(self, begins: bool) -> None:
        filler = self.folder / "disk" / "filler"
        if not begins:
            filler.unlink()
            return
        with suppress(OSError), open(filler, "wb") as file:
            while True:
                file.write(b"x" * 4096)
                file.flush()

    def _of_service(self) -> dict[str, Callable[[bool], None]]:
        found = {"service killed": self.killed, "service stopped": self.stopped}
        found["database locked"] = self.locked
        found |= {"an hour ahead": self.clock_by(3600), "an hour back": self.clock_by(-3600)}
        if self.mounted:
            found["disk full"] = self.full
        return found

    # The run

    def observe(self) -> None:
        state = None
        while not self.over.wait(0.5):
            well = False
            with suppress(Exception):
                state = state or ServiceState(self.state)
                health = _health(state)
                well, self.named = bool(health["well"]), set(health["troubles"])
            self.samples.append((time.monotonic(), well))

    def bare(self) -> None:
        """A thread that only sleeps, by whose delay a starved machine is told from our fault."""
        while not self.over.is_set():
            due = time.monotonic() + 0.1
            time.sleep(0.1)
            self.delays.append((due, time.monotonic() - due))

    def users(self) -> None:
        while not self.closed.wait(self.rng.uniform(2.0, 6.0)):
            with suppress(Exception):  # the cluster takes nothing now
                self.jobs.append(self.submit())

    def wait_well(self, seconds: float) -> float | None:
        """Seconds until it has been well for three; None where it is not."""
        began, since = time.monotonic(), None
        self.troubles: set[str] = set()
        while time.monotonic() < began + seconds:
            at, well = self.samples[-1] if self.samples else (began, False)
            since = (since or at) if well and at > began else None
            if time.monotonic() > began + 8.0:
                self.troubles |= self.named
            if since is not None and time.monotonic() > since + 3.0:
                return since - began
            time.sleep(0.25)
        return None

    def run(self, minutes: float) -> list[dict[str, Any]]:
        self.serve()
        for each in (self.observe, self.users, self.bare):
            threading.Thread(target=each, daemon=True).start()
        assert self.wait_well(120.0) is not None, "the service did not start"
        end, rows = time.monotonic() + 60 * minutes, []
        while time.monotonic() < end:
            time.sleep(self.rng.uniform(3.0, 12.0))
            fault = self.rng.choice(sorted(self.faults))
            began = time.monotonic()
            self.faults[fault](True)
            time.sleep(lasts := self.rng.uniform(8.0, 30.0))
            during = [(at - began, well) for at, well in self.samples if at > began]
            self.faults[fault](False)
            ill = next((at for at, well in during if not well), None)
            wrongly = fault in self.steady  # what health must not say, and says
            late = sum(0.5 for at, well in during if well != wrongly and at > ALLOWED)
            back = self.wait_well(90.0)
            wrong = 0.0 if fault in self.silent else late
            wrong = max(wrong, (90.0 if back is None else back) - ALLOWED, 0.0)
            row = {"fault": fault, "seconds": round(lasts, 1), "ill_after": ill and round(ill, 1)}
            row["still"] = sorted(self.troubles)
            row |= {"well_after": back and round(back, 1), "wrong": round(wrong, 1)}
            row["starved"] = round(max(d for at, d in self.delays if at > began), 2)
            self.delays.clear()
            rows.append(row)
            print(json.dumps(row), flush=True)
        return rows

    def settle(self, minutes: float = 5.0) -> tuple[list[str], list[str]]:
        """Jobs that have not run to their end, and those that ran more than once, in the end."""
        self.closed.set()
        end = time.monotonic() + 60 * minutes
        while time.monotonic() < end and not all(map(self.ended, list(self.jobs))):
            time.sleep(1.0)
        self.over.set()
        time.sleep(8.0)
        lost = [job for job in self.jobs if not self.ended(job)]
        return lost, [job for job in self.jobs if self.starts(job) > 1]

    def wrong_ends(self) -> list[str]:
        """Jobs that the history has with another end than that they have finished."""
        db = sqlite3.connect(f"file:{self.state / 'service.sqlite'}?mode=ro", uri=True)
        rows = db.execute("SELECT job, outcome FROM history WHERE outcome != 'finished'").fetchall()
        db.close()
        numbers = {job.split()[0] for job in self.jobs}
        return [f"{job}: {outcome}" for job, outcome in rows if job in numbers]


class OnSlurm(Soak):
    def __init__(self, folder: Path, seed: int):
        super().__init__(folder, seed)
        from tests.engines.slurm_cluster import SlurmCluster

        self.cluster = SlurmCluster(folder / "slurm", {f"n{i}": (4, 0, ()) for i in range(4)})
        self.notes, self.mode = folder / "notes", folder / "mode"
        self.names: list[str] = []
        self.notes.mkdir()
        self.programs = folder / "bin"
        self.programs.mkdir()
        for name in ("squeue", "sinfo", "scontrol", "scancel", "sacct"):
            if real := shutil.which(name):
                (self.programs / name).write_text(PROGRAM.format(real=real, file=self.mode))
                (self.programs / name).chmod(0o755)
        self.faults = {
            **self._of_service(),
            "slurmctld killed": self.controller,
            "slurmctld stopped": self.controller_stopped,
            **{f"replies {mode}": self._garbled(mode) for mode in GARBLED},
        }
        self.silent = frozenset({"replies nulls"})

    def _garbled(self, mode: str) -> Callable[[bool], None]:
        return lambda begins: (self.mode.write_text(mode if begins else ""), None)[1]

    def controller(self, begins: bool) -> None:
        if begins:
            self.cluster.end("slurmctld")
        else:
            self.cluster.daemon("slurmctld", "slurmctld", "-D")
            threading.Timer(20.0, self.resume).start()

    def resume(self) -> None:
        """What an administrator does where Slurm drains nodes that began a job it forgot."""
        for node in self.cluster.nodes:
            if "uplicate" in self.cluster.call("scontrol", "show", "node", node, check=False):
                about = [f"nodename={node}", "state=resume"]
                self.cluster.call("scontrol", "update", *about, check=False)

    def controller_stopped(self, begins: bool) -> None:
        self.cluster.daemons["slurmctld"].send_signal(signal.SIGSTOP if begins else signal.SIGCONT)

    def command(self) -> list[str]:
        return ["--engine", "slurm"]

    def environment(self) -> dict[str, str]:
        env = self.cluster.environment
        return {"SLURM_CONF": env["SLURM_CONF"], "PATH": f"{self.programs}:{env['PATH']}"}

    def submit(self) -> str:
        nodes, seconds = self.rng.choice((1, 1, 2)), self.rng.uniform(1.0, 8.0)
        self.names.append(name := f"soak-{len(self.names)}")  # Slurm may give a number again
        script = SCRIPT.format(file=self.notes / name, seconds=seconds)
        options = ["--partition=gangwise", f"--nodes={nodes}", "--output=/dev/null", "--time=5"]
        options.append(f"--job-name={name}")
        number = self.cluster.call("sbatch", "--parsable", *options, text=script).strip()
        return f"{number} {name}"

    def _notes(self, job: str) -> list[str]:
        file = self.notes / job.split()[1]
        return file.read_text().splitlines() if file.exists() else []

    def starts(self, job: str) -> int:
        return sum(line.startswith("start") for line in self._notes(job))

    def ended(self, job: str) -> bool:
        return any(line.startswith("end") for line in self._notes(job))

    def by_cluster(self, job: str) -> bool:
        number, name = job.split()
        log = (self.cluster.root / "log/slurmctld.log").read_text()
        own = [line for line in log.splitlines() if re.search(rf"JobId={number}\b", line)]
        print(json.dumps({"job": job, "notes": self._notes(job), "log": own}), flush=True)
        if not self.starts(job):
            return f"JobName={name}\n" not in self.cluster.call("scontrol", "show", "job") + "\n"
        # It requeued the job itself, or was killed and read an older state of it from the disk.
        words = "missing from batch node|due to node failure|Recovered JobId|launch fail"
        again = any(re.search(words, line, re.IGNORECASE) for line in own)
        return again and not any(line.startswith("beside") for line in self._notes(job))

    def stop(self) -> None:
        self.cluster.stop()


class OnKubernetes(Soak):
    def __init__(self, folder: Path, seed: int):
        super().__init__(folder, seed)
        from tests.engines.garbled import FAULTS, GarblingServer, behind
        from tests.engines.kubernetes_lab import KubernetesLab

        self.lab = KubernetesLab(folder)
        user = self.lab.plane.restricted
        context = create_default_context(cafile=str(user.authority))
        self.proxy = GarblingServer(behind(user.server, user.token, context), seed)
        self.kubeconfig = self.proxy.kubeconfig(folder / "proxy.json")
        self.faults = {
            **self._of_service(),
            "API server stopped": self.lab.plane.freeze,
            **{f"replies {mode}": self._garbled(mode) for mode in FAULTS},
        }
        # An open watch goes on where the server refuses, or spoils, new calls alone.
        spoils = ("types", "emptied", "cut", "truncated", "error", "at once")
        self.silent = frozenset(f"replies {mode}" for mode in spoils)

    def _garbled(self, mode: str) -> Callable[[bool], None]:
        return lambda begins: setattr(self.proxy, "mode", mode if begins else "")

    def command(self) -> list[str]:
        about = [f"kubeconfig={self.kubeconfig}", "lease=gangwise/leader"]
        return ["--engine", "kubernetes", *(word for one in about for word in ("--set", one))]

    def submit(self) -> str:
        return self.lab.submit(self.rng.uniform(1.0, 8.0), self.rng.choice((1, 1, 2)))

    def starts(self, job: str) -> int:
        name = job.removeprefix("default/").partition("~")[0]
        output = self.lab.nodes.output.items()
        return max((len(v.splitlines()) for k, v in output if k.startswith(f"{name}-")), default=0)

    def stop(self) -> None:
        self.proxy.close()
        self.lab.stop()


def main(engine: str, folder: str, minutes: str, seed: str = "1") -> int:
    soak = {"slurm": OnSlurm, "kubernetes": OnKubernetes}[engine](Path(folder), int(seed))
    try:
        rows = soak.run(float(minutes))
        lost, twice = soak.settle()
        summary = {"engine": engine, "minutes": float(minutes), "faults": len(rows)}
        own = {job for job in lost + twice if soak.by_cluster(job)}
        lost, twice = ([job for job in jobs if job not in own] for jobs in (lost, twice))
        summary |= {"jobs": len(soak.jobs), "lost": lost, "twice": twice}
        summary["lost or run again by the cluster"] = sorted(own)
        summary["wrong ends"] = soak.wrong_ends()
        summary["health wrong"] = [row for row in rows if row["wrong"]]
        print(json.dumps(summary), flush=True)
        return bool(lost or twice or summary["health wrong"])
    finally:
        soak.over.set()
        with suppress(OSError, AttributeError):
            soak.service.kill()
            soak.service.wait()
        soak.stop()
        if soak.mounted:
            subprocess.run(["umount", "-l", str(soak.folder / "disk")], check=False)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
