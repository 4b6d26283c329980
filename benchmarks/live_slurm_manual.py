"""The page about Slurm, followed to the letter in a fresh cluster, and backed out of.

    python -m benchmarks.live_slurm_manual

As root, beside Debian's Slurm with ``slurmdbd``, ``slurm-wlm-mysql-plugin``, ``mariadb-server``:
a private cluster of four nodes with accounts, its users ``ada`` and ``ben`` and the user
``gangwise``, made here where they are missing and removed at the end. Each line of the page's
shell blocks is run in the page's order as whom the page says, with folders of its own for
``/var/lib/gangwise`` and ``/shared/gangwise``; a line that the script does not know is an error, so
that page and script stay alike. ``job_submit.lua`` is the page's, to the letter. Between, users
submit jobs of the kinds that the page's table lists. What ``scontrol show job`` says of each job
that still waits is compared before anybody acted and after ``gangwise detach``, byte for byte, but
for ``VOLATILE``.
"""

from __future__ import annotations

import argparse
import os
import pwd
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.engines.slurm_cluster import SlurmCluster

PAGE = Path(__file__).parents[1] / "docs/how-to/slurm.md"
USERS = ("gangwise", "ada", "ben")
NODES = {
    "n1": (8, 4, ("a100",)),
    "n2": (8, 4, ("a100",)),
    "n3": (8, 4, ("v100",)),
    "n4": (8, 4, ("v100",)),
}
VOLATILE = {
    "Priority": "0 while held; then Slurm's",
    "Reason": "why Slurm does not start it now",
    "AdminComment": "the mark: gangwise",
    **{
        f"{what}Time": "Slurm's forecast, or when it might first have started"
        for what in ("Eligible", "Accrue", "Start", "End")
    },
    "LastSchedEval": "when Slurm looked at it last",
    "Scheduler": "which of Slurm's schedulers did",
    "SchedNodeList": "Slurm's forecast",
}
"""Fields that Slurm changes by itself, or that tell who has the job."""
TRAIN = """
import time
for step in range(40):
    print("step", step, flush=True)
    time.sleep(0.1)
"""
KINDS = (
    *("-n 3", "-n 2 -c 2", "-N 2", "-N 4", "-n 4 --ntasks-per-node=2", "--gres=gpu:4", "-N 2-4"),
    *("--gpus=2 -n 2", "-n 2 --gpus-per-task=1", "-w n2", "-x n1,n2", "-C a100", "-C 'a100|v100'"),
    *("--mem=50", "--mem-per-cpu=10 -n 3", "-H", "--begin=now+1hour", "--exclusive", "--nice=5"),
    *("--licenses=solver:1", "--switches=1", "--contiguous -N 2", "--tmp=1", "--time-min=1"),
    *("--deadline=now+2hours", "--comment=work=60", "--signal=USR1@10", "--spread-job", "-N 3"),
)


class WithAccounts(SlurmCluster):
    """Its slurmdbd and database come up before slurmctld; nothing of gangwise is in it yet."""

    def _configure(self) -> None:
        super()._configure()
        conf = self.root / "etc/slurm.conf"
        kept = [line for line in conf.read_text().splitlines() if "JobSubmitPlugins" not in line]
        kept = [line for line in kept if "AccountingStorageType" not in line]
        self.dbd = self.port + len(self.nodes) + 1
        kept += [
            "AccountingStorageType=accounting_storage/slurmdbd",
            *("AccountingStorageHost=127.0.0.1", f"AccountingStoragePort={self.dbd}"),
            f"AccountingStoragePass={self.root}/socket/munge",
        ]
        conf.write_text("\n".join(kept) + "\n")
        (self.root / "etc/job_submit.lua").unlink()

    def daemon(self, name: str, *command: str) -> None:
        if name == "slurmctld" and "slurmdbd" not in self.daemons:
            self._accounts()
        super().daemon(name, *command)

    def _accounts(self) -> None:
        root, socket = self.root, self.root / "run/db.sock"
        (root / "db").mkdir(mode=0o700)
        plain = ("--auth-root-authentication-method=normal", "--skip-test-db")
        made = ("mariadb-install-db", "--no-defaults", f"--datadir={root}/db", "--user=root")
        self.call(*made, *plain)
        self.daemon(
            *("mariadbd", "mariadbd", "--no-defaults", "--user=root", f"--datadir={root}/db"),
            *(f"--socket={socket}", "--bind-address=127.0.0.1", f"--port={self.dbd + 1}"),
            *("--innodb-lock-wait-timeout=900", "--innodb-buffer-pool-size=64M"),
        )
        ask = ("mariadb", "--no-defaults", f"--socket={socket}", "-u", "root", "-e")
        self._until(lambda: self.run(*ask, "select 1").returncode == 0, "the database")
        who = "slurm@'127.0.0.1'"
        self.call(*ask, f"create user {who} identified by 'slurm'; grant all on *.* to {who}")
        conf = root / "etc/slurmdbd.conf"
        conf.write_text(
            f"AuthType=auth/munge\nAuthInfo=socket={root}/socket/munge\nDbdHost=localhost\n"
            f"DbdAddr=127.0.0.1\nDbdPort={self.dbd}\nSlurmUser=root\nStorageUser=slurm\n"
            f"StorageType=accounting_storage/mysql\nStorageHost=127.0.0.1\nStoragePass=slurm\n"
            f"StoragePort={self.dbd + 1}\nPidFile={root}/run/slurmdbd.pid\n"
            f"LogFile={root}/log/slurmdbd.log\n"
        )
        conf.chmod(0o600)
        self.daemon("slurmdbd", "slurmdbd", "-D")
        listed = ("sacctmgr", "-n", "show", "cluster")
        self._until(lambda: self.run(*listed).returncode == 0, "slurmdbd")
        self.call("sacctmgr", "-i", "-Q", "add", "cluster", "gangwise")


class Reader:
    """Follows the page."""

    def __init__(self, folder: Path, cluster: SlurmCluster, python: str):
        self.folder, self.cluster, self.python = folder, cluster, python
        self.behind: subprocess.Popen[bytes] | None = None
        self.jobs: list[str] = []
        self.before: dict[str, dict[str, str]] = {}
        self.lines = 0
        for name in ("bin", "home", "work", "var"):
            (folder / name).mkdir()
            (folder / name).chmod(0o777)
        self._program("gangwise", f'exec {python} -m gangwise "$@"')
        self._program("python", f'exec {python} "$@"')
        (folder / "work/train.py").write_text(TRAIN)

    def _program(self, name: str, text: str) -> None:
        path = self.folder / "bin" / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def here(self, line: str) -> str:
        line = line.replace("/var/lib/gangwise", str(self.folder / "var/gangwise"))
        return line.replace("/shared/gangwise", str(self.folder / "shared"))

    def start(self, who: str, line: str) -> subprocess.Popen[bytes]:
        uid = pwd.getpwnam(who)
        home = self.folder / "home" / who
        home.mkdir(exist_ok=True)
        os.chown(home, uid.pw_uid, uid.pw_gid)
        environment = {
            **self.cluster.environment,
            "PATH": f"{self.folder}/bin:{self.cluster.environment['PATH']}",
            "HOME": str(home),
            "XDG_CONFIG_HOME": str(home / "config"),
            "COLUMNS": "120",
        }
        ids = (f"--reuid={uid.pw_uid}", f"--regid={uid.pw_gid}", "--clear-groups")
        return subprocess.Popen(
            ["setpriv", *ids, "/bin/sh", "-c", f"exec {self.here(line)}"],
            env=environment,
            cwd=self.folder / "work",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def run(self, who: str, line: str, says: str = "") -> str:
        self.lines += 1
        process = self.start(who, line)
        output = process.communicate(timeout=300)[0].decode()
        well = process.returncode == 0 and re.search(says, output) is not None
        print(f"{'ok ' if well else 'NOT'} {who:8} {line}", flush=True)
        if not well:
            raise SystemExit(f"exit code {process.returncode}, looked for {says!r}:\n{output}")
        return output

    def serve(self, line: str) -> None:
        self.lines += 1
        self.behind = self.start("gangwise", line)
        print(f"... gangwise {line}", flush=True)

    def stop(self) -> None:
        if self.behind is not None:
            self.behind.send_signal(signal.SIGTERM)
            output = self.behind.communicate(timeout=60)[0].decode()
            print(f"ok  gangwise stopped: {output.strip().splitlines()[-1:]}", flush=True)
            self.behind = None

    def until(self, done: Callable[[], bool], what: str, seconds: float = 180.0) -> None:
        end = time.monotonic() + seconds
        while not done():
            if self.behind is not None and self.behind.poll() is not None:
                raise SystemExit(f"serve has ended: {self.behind.communicate()[0].decode()}")
            if time.monotonic() > end:
                raise SystemExit(f"waited {seconds:g} s for {what}")
            time.sleep(0.5)

    def beats(self) -> bool:
        return (self.folder / "var/gangwise/heartbeat").exists()

    def submit(self, who: str, options: str, script: str, partition: str = "gangwise") -> str:
        path = self.folder / "work/job.sh"
        path.write_text(f"#!/bin/sh\n{self.here(script)}\n")
        at = f"-p {partition} -t 5 -o {self.folder}/home/{who}/%j.out"
        process = self.start(who, f"sbatch --parsable {at} {options} {path}")
        output = process.communicate(timeout=60)[0].decode().strip()
        if not output.isdigit():
            print(f"    Slurm takes no {options}: {output}")
            return ""
        self.jobs.append(output)
        return output

    def requests(self) -> dict[str, dict[str, str]]:
        """Job that waits → field of ``scontrol show job`` → value, or values."""
        found = {}
        for job in self.jobs:
            text = self.cluster.call("scontrol", "-d", "show", "job", job, check=False)
            fields: dict[str, str] = {}
            for line in filter(None, map(str.strip, text.splitlines())):
                for word in re.split(r" (?=[A-Z][\w/:]*=)", line):
                    name, _, value = word.partition("=")
                    fields[name] = f"{fields[name]}; {value}" if name in fields else value
            if fields.get("JobState") == "PENDING":
                found[job] = fields
        return found

    def until_ended(self, jobs: list[str]) -> None:
        def ended() -> bool:
            told = self.cluster.call("squeue", "-h", "-t", "PD,R,CG", "-o", "%A").split()
            return not set(jobs) & set(told)

        self.until(ended, f"jobs {jobs} to end")


def shell_lines(text: str) -> list[str]:
    joined = [re.sub(r"\\\n\s*", " ", b) for b in re.findall(r"```sh\n(.*?)```", text, re.S)]
    plain = [re.split(r"\s+#\s", line)[0].strip() for body in joined for line in body.splitlines()]
    return [line for line in plain if line]


WRAPPED = """export GANGWISE_REPORTS=/shared/gangwise
srun gangwise rank --match 'step (\\d+)' -- python train.py"""


def follow(reader: Reader, text: str) -> None:
    """Each line of the page, in its order."""
    for line in shell_lines(text):
        if "--engine local" in line or line == "gangwise top":
            continue  # without a cluster: the demo, which other tests run
        if line.startswith("useradd"):
            reader.run("root", f"sh -c 'id gangwise || {line}'")
        elif line.startswith(("install ", "sacctmgr ")):
            reader.run("root", line)
        elif line.startswith("gangwise serve") and "--shadow" in line:
            reader.serve(line)
            reader.until(reader.beats, "the service to watch")
            job = reader.submit("ada", "-n 2 --gpus-per-task=1", WRAPPED, "open")
            reader.until_ended([job])
        elif line in WRAPPED.splitlines():
            reader.lines += 1  # what the users' scripts here are
        elif line.startswith("gangwise explain"):
            two = [reader.submit("ben", "-N 4 --exclusive", "sleep 600", "open") for _ in "ab"]
            time.sleep(5)
            reader.run("gangwise", line.replace("JOB", two[1]), "waits")
            reader.cluster.call("scancel", *two)
        elif line.startswith("gangwise doctor"):
            born_held(reader, text)
            reader.run("gangwise", line, r"^(?!(.|\n)*no Slurm administrator)(.|\n)*licences")
            reader.run("ada", line, "no Slurm administrator")
        elif line.startswith("gangwise serve") and "--act" in line:
            reader.serve(line)
            act(reader)
        elif line.startswith("gangwise detach"):
            reader.stop()
            plugin(reader, None)
            reader.run("gangwise", line, "given back")
            compare(reader)
        elif line.startswith(("gangwise top", "gangwise account", "gangwise verify")):
            reader.run("gangwise", line)
        else:
            raise SystemExit(f"the page has a line that is not known here: {line}")
    cron = re.search(r"^\*/5 \* \* \* \* (gangwise detach .*)$", text, re.M)
    assert cron is not None
    reader.run("gangwise", cron[1])


def plugin(reader: Reader, lua: str | None) -> None:
    """job_submit.lua comes or goes, and slurmctld is started again."""
    cluster = reader.cluster
    path, conf = cluster.root / "etc/job_submit.lua", cluster.root / "etc/slurm.conf"
    if lua is None:
        path.unlink()
        conf.write_text(conf.read_text().replace("JobSubmitPlugins=lua\n", ""))
    else:
        path.write_text(lua)
        conf.write_text(conf.read_text() + "JobSubmitPlugins=lua\n")
    cluster.end("slurmctld", signal.SIGTERM)
    cluster.daemon("slurmctld", "slurmctld", "-D")
    reader.until(lambda: bool(cluster.call("sinfo", "-h", check=False)), "slurmctld")
    idle = ("sinfo", "-h", "-N", "-p", "open", "-t", "idle,mix,alloc", "-o", "%N")
    reader.until(lambda: len(cluster.call(*idle).split()) == len(NODES), "nodes")


def born_held(reader: Reader, text: str) -> None:
    """The page's Lua; then users submit jobs of each kind, and nobody starts them."""
    lua = re.search(r"```lua\n(.*?)```", text, re.S)
    assert lua is not None
    plugin(reader, re.sub(r"(?m)^    ", "", lua[1]))  # the block is indented, being in a list
    reader.stop()
    reader.jobs.clear()
    for turn, options in enumerate(KINDS):
        who = USERS[1 + turn % 2]
        reader.submit(who, options, WRAPPED)
        reader.submit(who, options, "sleep 600")
    time.sleep(3)
    reader.before = reader.requests()
    assert set(reader.before) == set(reader.jobs), "all wait"


def act(reader: Reader) -> None:
    """Until nothing has started for half a minute: the nodes are full of sleepers."""
    time.sleep(60)
    print(reader.run("gangwise", "gangwise top --state /var/lib/gangwise"))
    reader.until(lambda: len(reader.requests()) < len(reader.jobs), "the first start")
    last, seen = time.monotonic(), -1
    while time.monotonic() < last + 30.0:
        started = len(reader.jobs) - len(reader.requests())
        if started != seen:
            last, seen = time.monotonic(), started
        time.sleep(1)
    marks = [f.get("AdminComment", "") for f in reader.requests().values()]
    placed, left = (sum(word in mark for mark in marks) for word in ("attempt=", "left"))
    print(f"    {seen} of {len(reader.jobs)} jobs have started; of those that wait {placed} were")
    print(f"    placed and {left} left to Slurm")
    assert seen > 5


def compare(reader: Reader) -> None:
    """Each request now and before anybody acted."""
    now, fields, unlike = reader.requests(), 0, []
    for job, after in now.items():
        before = reader.before[job]
        for name in sorted(before.keys() | after.keys()):
            fields += 1
            if name not in VOLATILE and before.get(name) != after.get(name):
                unlike.append(f"job {job}: {name}: {before.get(name)!r} became {after.get(name)!r}")
        held = before["Reason"] == "JobHeldUser" and "-H" in KINDS[reader.jobs.index(job) // 2]
        if (after["Priority"] == "0") != held or "gangwise" in after.get("AdminComment", ""):
            unlike.append(f"job {job}: Priority={after['Priority']}, {after.get('AdminComment')}")
    print(f"    {len(now)} jobs wait, {fields} fields compared, {len(unlike)} differ")
    if unlike:
        raise SystemExit("\n".join(unlike))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--python", default=sys.executable, help="one that any user may run")
    args = parser.parse_args()
    made = [name for name in USERS if not _is_user(name)]
    for name in made[: len(made)]:
        if name != "gangwise":  # whom the page makes
            subprocess.run(["useradd", "--system", name], check=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        cluster = WithAccounts(folder / "slurm", NODES, timeout=120)
        reader = None
        try:
            reader = Reader(folder, cluster, args.python)
            follow(reader, PAGE.read_text())
            print(f"{reader.lines} lines of the page, followed")
        finally:
            if reader is not None and reader.behind is not None:
                reader.stop()
            for name in USERS[1:]:
                cluster.call("scancel", "-u", name, check=False)
            end = time.monotonic() + 60.0
            while cluster.call("squeue", "-h", check=False) and time.monotonic() < end:
                time.sleep(0.5)
            cluster.stop()
            for user in made:
                subprocess.run(["userdel", user], check=False)


def _is_user(name: str) -> bool:
    try:
        return bool(pwd.getpwnam(name))
    except KeyError:
        return False


if __name__ == "__main__":
    main()
