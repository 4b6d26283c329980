"""A private Slurm on this machine: several nodes, loopback only, no root, no systemd, no cgroups.

Daemons are children that die with whoever started them (``setpriv --pdeathsig``), so that nothing
is left behind by a test that was killed. Needs Debian's packages (22.05)::

    apt-get install --no-install-recommends slurmctld slurmd slurm-client munge \
        slurm-wlm-basic-plugins
"""

from __future__ import annotations

import getpass
import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "scancel", "setpriv")

CONF = """
ClusterName=gangwise
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={root}/socket/munge
CredType=cred/munge
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmctldPidFile={root}/run/slurmctld.pid
SlurmdPidFile={root}/run/slurmd.%n.pid
SlurmctldLogFile={root}/log/slurmctld.log
SlurmdLogFile={root}/log/slurmd.%n.log
SlurmdSpoolDir={root}/run/spool.%n
StateSaveLocation={root}/state
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
MailProg=/bin/true
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobSubmitPlugins=lua
SchedulerType=sched/backfill
SchedulerParameters={parameters}
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
PriorityType=priority/basic
GresTypes=gpu
SlurmdParameters=config_overrides
ReturnToService=1
SlurmctldTimeout=60
SlurmdTimeout={timeout}
MinJobAge=300
KillWait=1
InactiveLimit=0
Waittime=0
MaxJobCount=20000
DefMemPerCPU=10
Licenses=solver:2
TmpFS=/tmp
"""
PARAMETERS = (
    "sched_interval=1,bf_interval=1,batch_sched_delay=0,sched_min_interval=0,"
    "default_queue_depth=500,bf_max_job_test=500"
)
HELD = """
function slurm_job_submit(job, partitions, uid)
   -- submitted held, unless its user holds it: then it is not marked, and stays his
   if job.partition == "gangwise" and job.priority ~= 0 and job.array_inx == nil then
      local site = job.admin_comment
      job.admin_comment = "gangwise" .. (site and " | " .. site or "")
      job.priority = 0
   end
   return slurm.SUCCESS
end
function slurm_job_modify(job, record, partitions, uid)
   if record.partition ~= "gangwise" or job.admin_comment ~= nil then return slurm.SUCCESS end
   local mark = record.admin_comment or ""
   if job.priority == 0 and string.find(mark, "^gangwise") then
      job.admin_comment = "byhand " .. mark  -- scontrol hold, by whoever it was
   elseif job.priority == 4294967295 and string.find(mark, "^byhand ") then
      job.admin_comment = string.sub(mark, 8)  -- scontrol release: as it was before that
      local head = string.match(job.admin_comment, "^[^|]*")
      if string.find(head, "^gangwise ?$") or string.find(head, " held") then job.priority = 0 end
   end
   return slurm.SUCCESS
end
return slurm.SUCCESS
"""


def missing() -> list[str]:
    """Programs that are not installed here."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin"
    return [name for name in PROGRAMS if shutil.which(name, path=path) is None]


def free_ports(count: int) -> int:
    """First of so many ports in a row that nobody listens on."""
    for _ in range(200):
        first = 20_000 + secrets.randbelow(20_000)
        held = []
        try:
            for port in range(first, first + count):
                one = socket.socket()
                held.append(one)
                one.bind(("127.0.0.1", port))
            return first
        except OSError:
            continue
        finally:
            for one in held:
                one.close()
    raise RuntimeError("no free ports")


@dataclass
class SlurmCluster:
    """A cluster, started by its constructor.

    Parameters
    ----------
    nodes : mapping
        Name → (cpus, gpus, features). More than the machine has may be told.
    timeout : int
        Seconds after which a node that is silent is down.
    weights : mapping
        Slurm takes nodes of small weight first.
    inside : str
        Nodes of the partitions ``gangwise`` and ``native``; all are in ``open``.
    """

    root: Path
    nodes: Mapping[str, tuple[int, int, Sequence[str]]]
    parameters: str = PARAMETERS
    timeout: int = 5
    weights: Mapping[str, int] = field(default_factory=dict)
    inside: str = "ALL"
    daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if absent := missing():
            raise RuntimeError(f"Slurm is not installed here: no {', '.join(absent)}")
        self.root = self.root.absolute()
        for name in ("etc", "state", "log", "run", "socket", "devices", "munge"):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        os.chmod(self.root / "munge", 0o700)
        os.chmod(self.root / "socket", 0o755)
        self.port = free_ports(len(self.nodes) + 1)
        self._configure()
        self.environment = {
            **os.environ,
            "SLURM_CONF": str(self.root / "etc/slurm.conf"),
            "PATH": os.environ.get("PATH", "") + ":/usr/sbin",
        }
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def _configure(self) -> None:
        root, host = self.root, socket.gethostname().split(".")[0]
        lines = [
            CONF.format(
                host=host,
                port=self.port,
                user=getpass.getuser(),
                root=root,
                timeout=self.timeout,
                parameters=self.parameters,
            )
        ]
        gres = []
        for i, (name, (cpus, gpus, features)) in enumerate(self.nodes.items()):
            lines.append(
                f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={self.port + 1 + i} "
                f"CPUs={cpus} Boards=1 SocketsPerBoard=1 CoresPerSocket={cpus} ThreadsPerCore=1 "
                f"RealMemory={1000 * cpus} State=UNKNOWN"
                + (f" Gres=gpu:{gpus}" if gpus else "")
                + f" Weight={self.weights.get(name, 1)}"
                + (f" Feature={','.join(features)}" if features else "")
            )
            for g in range(gpus):  # a character device; its trailing number is the index
                os.symlink("/dev/null", root / f"devices/{name}-{g}")
                gres.append(f"NodeName={name} Name=gpu File={root}/devices/{name}-{g}")
        for name, default in (("open", "YES"), ("gangwise", "NO"), ("native", "NO")):
            of = "ALL" if name == "open" else self.inside
            lines.append(f"PartitionName={name} Nodes={of} Default={default} MaxTime=INFINITE")
        (root / "etc/slurm.conf").write_text("\n".join(lines) + "\n")
        (root / "etc/gres.conf").write_text("\n".join(gres) + "\n")
        (root / "etc/job_submit.lua").write_text(HELD)
        key = root / "munge/key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o400)

    def _start(self) -> None:
        root = self.root
        self.daemon(
            "munged",
            "munged",
            "--foreground",
            "--force",
            f"--key-file={root}/munge/key",
            f"--socket={root}/socket/munge",
            f"--pid-file={root}/munge/pid",
            f"--log-file={root}/munge/log",
            f"--seed-file={root}/munge/seed",
            "--num-threads=2",
        )
        self._until(lambda: (root / "socket/munge").exists(), "munged")
        self.daemon("slurmctld", "slurmctld", "-D")
        for name in self.nodes:
            self.daemon(name, "slurmd", "-D", "-N", name)
        self._until(self._all_idle, "nodes to be idle")

    def daemon(self, name: str, *command: str) -> None:
        """Start one; it ends when this process does."""
        with open(self.root / "log" / f"{name}.out", "ab") as output:
            self.daemons[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM", *command],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def end(self, name: str, number: int = 9) -> None:
        """Kill a daemon."""
        one = self.daemons.pop(name)
        one.send_signal(number)
        one.wait()

    def _all_idle(self) -> bool:
        idle = self.call("sinfo", "-h", "-N", "-p", "open", "-t", "idle", "-o", "%N", check=False)
        return len(idle.split()) >= len(self.nodes)

    def _until(self, done: object, what: str, seconds: float = 60.0) -> None:
        end = time.monotonic() + seconds
        while not done():
            if time.monotonic() > end:
                log = (self.root / "log/slurmctld.log").read_text()[-2000:]
                raise RuntimeError(f"waited {seconds:g} s for {what}:\n{log}")
            time.sleep(0.1)

    def run(self, *command: str, text: str = "") -> subprocess.CompletedProcess[str]:
        """Run one of Slurm's commands."""
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, input=text, check=False
        )

    def call(self, *command: str, check: bool = True, text: str = "") -> str:
        """Run one of Slurm's commands; its output."""
        done = self.run(*command, text=text)
        if check and done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
        return done.stdout

    def stop(self) -> None:
        """End jobs and daemons."""
        if "slurmctld" in self.daemons and "munged" in self.daemons:
            self.call("scancel", "-u", getpass.getuser(), check=False)
            time.sleep(0.3)
        for name in [*self.nodes, "slurmctld", "munged"]:
            if name in self.daemons:
                self.daemons[name].terminate()
        for name in list(self.daemons):
            try:
                self.daemons[name].wait(5)
            except subprocess.TimeoutExpired:
                self.end(name)
        self.daemons.clear()
