"""Local processes as a cluster: simulated nodes, real ranks; a demonstration with users.

A cluster is a folder, so that it outlives its clients::

    nodes.json                  name, devices, labels, speed of each node
    down/NODE                   there while the node is down
    last-id                     the last id that was given to a job: none is given twice
    leader.N/beat               of leader number N: the folder is renamed by the next leader
    jobs/ID/job.json            what was submitted
    jobs/ID/cancelled
    jobs/ID/K/placed.json       attempt K: node, devices and speed of each rank
    jobs/ID/K/launched          process of the launcher: an attempt is launched once, ever
    jobs/ID/K/unplaced.json     taken off its nodes, and why
    jobs/ID/K/result.json       how it ended
    jobs/ID/K/ID.K.RANK.json    what a rank reports of itself
    ended/ID                    jobs that ended some time ago

Every file is written as a whole and never changed; so what a job is at can be read off at any
moment, whichever process was killed at which line.
"""

import atexit
import contextlib
import fcntl
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from gangwise.core.errors import EngineError, GangwiseError, Rejected
from gangwise.core.files import Tree
from gangwise.engines import engine as engines
from gangwise.engines import launch, rank
from gangwise.engines.leader import FolderLeader, Led

_NUMBER = re.compile("[0-9]{1,18}").fullmatch

_launchers: list[subprocess.Popen[bytes]] = []
"""Started by this process, whichever client it was: they must be waited for when they end."""


@atexit.register
def _let_go() -> None:
    """Launchers outlive this process, as they should; Python would warn of each."""
    for launcher in _launchers:
        if launcher.poll() is None:
            launcher.returncode = 0


POLL = 0.05  # seconds between looks at the folder
RACY = 2.0  # seconds for which a change may leave the time of a file as it was
FILE_BYTES = 1 << 20  # largest file that describes a job


class LocalEngine(Led):
    """Ranks are processes of this machine; how fast a node works is simulated.

    ``folder`` is that of the cluster, see :meth:`create`. Jobs that ended stay in the table for
    ``keep`` seconds. Raises EngineError when the folder holds no cluster.
    """

    name = "local"
    capabilities = engines.Capabilities(start_latency=0.1)
    _leader: FolderLeader | None = None

    def __init__(self, folder: Path | str, keep: float = 600.0):
        self.folder = Path(folder).absolute()
        self.keep = keep
        self._changes = engines.Changes(self._ranks)
        self._ended: dict[str, engines.Status] = {}
        self._table: dict[str, engines.Status] = {}
        self._looked, self._pace = -math.inf, POLL
        self._untouched: dict[
            str, tuple[tuple[float, float], engines.Status]
        ] = {}  # by times of files
        self.quarantine = engines.Quarantine()
        for below in ("jobs", "down", "ended"):
            Tree(self.folder).check_folder(below)
        self.nodes()

    def lead(self, identity: str) -> None:
        """Place and take off only while this is the one leader of the cluster."""
        self._leader = FolderLeader(self.folder, identity)

    # Making a cluster, submitting jobs

    @staticmethod
    def create(folder: Path | str, nodes: Sequence[Mapping[str, Any]]) -> None:
        """Make a cluster of nodes: ``name``, ``devices``, and perhaps ``labels`` and ``speed``."""
        folder = Path(folder)
        try:
            for name in ("jobs", "down"):
                (folder / name).mkdir(parents=True, exist_ok=True)
        except OSError as error:  # there is a file of this name
            raise EngineError(f"no cluster can be made in {folder}: {error.strerror}") from error
        launch.write_json(folder / "nodes.json", list(nodes))

    @staticmethod
    def submit(folder: Path | str, command: Sequence[str], tasks: int = 1, **asked: Any) -> str:
        """Queue a job of ``tasks`` ranks that each run ``command``; returns its id.

        ``asked`` are ``demand``, devices of a task; ``job_type``, ``user``, ``limit`` in seconds,
        ``per_node``, ``constraint``, ``priority`` and ``work``. Where tasks are unlike, ``groups``
        has a table of ``tasks``, ``demand``, ``per_node`` and ``constraint`` for each group of
        them; ranks are numbered group by group and find theirs in ``GANGWISE_GROUP``.
        """
        jobs, number = Path(folder) / "jobs", LocalEngine._new_id(Path(folder))
        # Without its job.json the folder is no job yet.
        (jobs / str(number)).mkdir()
        usual: dict[str, Any] = {"demand": {"cpu": 1}, "job_type": "job", "user": str(os.getuid())}
        usual |= {"submitted": time.time(), "limit": None, "per_node": 0, "constraint": {}}
        content = {"command": list(command), "tasks": tasks, **usual, **asked}
        launch.write_json(jobs / str(number) / "job.json", content)
        return str(number)

    @staticmethod
    def _new_id(folder: Path) -> int:
        """An id that no job has had, even if the folders of earlier ones are gone."""
        with open(Tree(folder).open("last-id", os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # until it is closed
            names = [n for below in ("jobs", "ended") for n in Tree(folder).names(below)]
            ids = [n for n in [*names, file.read(32).decode("latin-1").strip()] if _NUMBER(n)]
            number = max(map(int, ids), default=0) + 1
            file.seek(0)
            file.write(b"%d\n" % number)
        return number

    # The engine

    def nodes(self) -> list[engines.EngineNode]:
        try:
            rows = engines.read_json(self.folder / "nodes.json", 64 * FILE_BYTES)
            down = set(os.listdir(self.folder / "down"))
        except (OSError, engines.Malformed) as error:
            raise EngineError(f"{self.folder}: {error}") from error
        if not isinstance(rows, list):
            raise EngineError(
                f"{self.folder} holds no local cluster (no list in nodes.json); make one with "
                "LocalEngine.create, or gangwise serve --engine local"
            )

        def read(row: Any) -> tuple[engines.EngineNode, float]:
            reason = "down" if row["name"] in down else ""
            amounts = engines.table(row["devices"], "devices", engines.thousandths)
            devices = {k: engines.thousandths(v, k) for k, v in amounts.items()}
            node = engines.EngineNode(
                row["name"], devices, row.get("labels", {}), not reason, reason
            )
            return node, engines.number(row.get("speed", 1.0), "its speed", 1e-6, 1e6)

        pairs = self.quarantine.read_all("node", rows, read, lambda row: row["name"])
        pairs = engines.distinct(pairs, lambda one: one[0].name, self.quarantine, "node")
        self._speeds = {node.name: speed for node, speed in pairs}
        return [node for node, _ in pairs]

    def jobs(self) -> list[engines.Status]:
        at, began = time.time(), time.monotonic()
        # Asked for, so that none stays as a zombie.
        _launchers[:] = [p for p in _launchers if p.poll() is None]
        try:
            names = sorted(os.listdir(self.folder / "jobs"), key=lambda n: (len(n), n))
        except OSError as error:
            raise EngineError(f"{self.folder}: {error.strerror}") from error

        def read(name: str) -> engines.Status | None:
            # A job that has ended never changes again.
            row = self._ended.get(name) or self._status(name)
            if row is not None and row.phase in engines.ENDED:
                self._ended[name] = row
                # Out of the folder that each look reads.
                if row.ended < at - self.keep:
                    (self.folder / "ended").mkdir(exist_ok=True)
                    with contextlib.suppress(OSError):
                        os.rename(self.folder / "jobs" / name, self.folder / "ended" / name)
                        self._ended.pop(name, None)
                    return None
            return row

        table = self.quarantine.read_all("job", names, read, str, self._changes.table)
        self._table, self._looked = {row.job.id: row for row in table}, time.monotonic()
        self._pace = max(POLL, self._looked - began)
        return table

    def place(self, job: str, attempt: int, placed: Sequence[engines.Placed]) -> None:
        self._check_lead()
        # Many placements share a look: never an older one than the scheduler has seen, or a
        # job whose end was just reported would still hold its devices.
        if time.monotonic() > self._looked + self._pace:
            self.jobs()
        row = self._table[job] = self._status_of(job)
        table = list(self._table.values())
        folder = self.folder / "jobs" / job / str(attempt)
        repeats = row.attempt == attempt and row.phase in ("placed", "running")
        if repeats and engines.tasks_by_node(row.placed) == engines.tasks_by_node(placed):
            if row.phase == "placed":
                self._launch(folder)
            return
        nodes = self.nodes()
        engines.check_placement(row, placed, nodes, table)
        # An attempt is a folder that is written once: an older number would find one that is there.
        if attempt <= row.attempt:
            raise Rejected(f"job {job} was placed {row.attempt} times; {attempt} is no new attempt")
        placed = sorted(placed, key=lambda p: p.group)
        numbers = self._numbers(row.job, placed, table)
        content: dict[str, Any] = {"ranks": [], "placed": [], "time": time.time()}
        for p, tasks in zip(placed, numbers, strict=True):
            ranks = [(p.node, ids, self._speeds[p.node], p.group) for ids in tasks]
            content["ranks"] += ranks
            content["placed"].append((p.node, p.tasks, sorted(set(chain(*tasks))), p.group))
        # The file is the placement: killed right after it, the next service launches what it says.
        self._write(folder / "placed.json", content, fenced=True)
        self._table[job] = self._status_of(job)
        self._launch(folder)

    def preempt(self, job: str) -> None:
        row = self._status_of(job)
        if row.phase in ("placed", "running"):
            self._unplace(row, "preempted", "released", fenced=True)

    def cancel(self, job: str) -> None:
        row = self._status_of(job)
        if row.phase in engines.ENDED:
            return
        self._write(self.folder / "jobs" / job / "cancelled", {"time": time.time()})
        if row.phase in ("placed", "running"):
            self._end_processes(self.folder / "jobs" / job / str(row.attempt))

    def events(self, timeout: float) -> list[engines.EngineEvent]:
        self._wait_for_lead(min(timeout, POLL))
        until = time.monotonic() + timeout
        while True:
            events = self._look()
            wait = until - time.monotonic()
            if events or wait <= 0:
                return events
            time.sleep(min(POLL, wait))

    # Inside

    def _look(self) -> list[engines.EngineEvent]:
        nodes = self.nodes()
        up = {node.name: node.up for node in nodes}
        table = {row.job.id: row for row in self.jobs()}
        for row in table.values():
            if row.phase in ("placed", "running") and not all(
                up.get(p.node, False) for p in row.placed
            ):
                try:
                    self._unplace(row, "a node died", "node_failed")
                    table[row.job.id] = self._status(row.job.id) or row
                except Rejected as error:  # its folder alone cannot be written
                    self.quarantine.put("job", row.job.id, error)
        return self._changes.look(table, up)

    def _ranks(self, row: engines.Status) -> tuple[engines.RankReport, ...]:
        folder = self.folder / "jobs" / row.job.id / str(row.attempt)
        return engines.read_reports(folder, row.job.id, row.attempt, row.job.tasks, os.getuid())

    def _status_of(self, job: str) -> engines.Status:
        """Status of a job; names that could be paths are refused."""
        row = None if "/" in job or job in ("", ".", "..") else self._status(job)
        if row is None:
            raise Rejected(f"there is no job {job}")
        return row

    def _status(self, name: str) -> engines.Status | None:
        """Status of a job by its files; None while it is being written."""
        folder = self.folder / "jobs" / name
        if os.path.islink(folder):
            raise engines.Malformed("its folder is a link")
        stamp = _changed(f"{folder}"), _changed(f"{folder}/job.json")
        cached = self._untouched.pop(name, None)
        if cached is not None and cached[0] == stamp:
            self._untouched[name] = cached
            return cached[1]
        content = engines.read_json(folder / "job.json", FILE_BYTES)
        if content is None:
            return None
        command = content["command"]
        if not isinstance(command, list) or not command:
            raise engines.Malformed("its command is not a list of words")
        for w in command:
            if not isinstance(w, str) or "\0" in w:
                raise engines.Malformed(f"its command has {engines.quoted(w)}, which is not a word")
        job = engines.EngineJob.of_groups(
            [_group({**content, **group}) for group in content.get("groups") or [{}]],
            id=name,
            limit=math.inf if content["limit"] is None else content["limit"],
            priority=content.get("priority", 0.0),
            work=content.get("work", math.nan),
            **{field: content[field] for field in ("job_type", "user", "submitted")},
        )
        inside = os.listdir(folder)
        attempts = [int(n) for n in inside if re.fullmatch("[0-9]{1,9}", n)]
        attempts = [k for k in attempts if (folder / str(k) / "placed.json").exists()]
        # A folder without placed.json is a placement that was never made.
        latest = max(attempts, default=0)
        cancelled = self._read(folder / "cancelled")
        if not latest and cancelled is None:
            # Nothing but the request is there, and it is older than the clock of the file system
            # can miss: it need not be read again.
            if inside == ["job.json"] and max(stamp) < time.time() - RACY:
                self._untouched[name] = stamp, engines.Status(job, "pending")
            return engines.Status(job, "pending")
        run = folder / str(latest)  # before the first placement none of these files is there
        pieces = (self._read(run / "placed.json") or {"placed": ()})["placed"]
        placed = tuple(
            engines.Placed(n, tasks, tuple(ids), *group) for n, tasks, ids, *group in pieces
        )
        unplaced, result = self._read(run / "unplaced.json"), self._read(run / "result.json")
        launched, started = self._read(run / "launched"), self._read(run / "started.json")
        since = float(started["time"]) if started else math.nan
        lives = launched is not None and launch.birth(launched["pid"]) == launched["birth"]
        # The file comes first, then the end of the processes: a service was killed between the two.
        if lives and (cancelled is not None or unplaced is not None):
            self._end_processes(run)
        if cancelled is not None:
            end = float(cancelled["time"])
            return engines.Status(job, "cancelled", latest, placed, since, end, "cancelled")
        if unplaced is not None:
            cause = unplaced.get("cause", "released")
            return engines.Status(job, "pending", latest, detail=unplaced["why"], cause=cause)
        if result is not None:
            if result["state"] not in engines.ENDED:
                raise engines.Malformed(f"its result is {engines.quoted(result['state'])}")
            detail = ", ".join(str(code) for code in result["exits"] if code)
            times = float(result["started"]), float(result["ended"])
            return engines.Status(job, result["state"], latest, placed, *times, detail)
        if launched is not None and not lives:
            if self._read(run / "result.json") is not None:  # it ended just now
                return self._status(name)
            self._end_processes(run)
            lost = {"state": "failed", "exits": ["its launcher was killed"]}
            at = time.time()
            self._write(run / "result.json", {**lost, "started": at, "ended": at})
            return self._status(name)
        return engines.Status(job, "running" if started else "placed", latest, placed, since)

    def _numbers(
        self,
        job: engines.EngineJob,
        placed: Sequence[engines.Placed],
        table: Sequence[engines.Status],
    ) -> list[list[tuple[int, ...]]]:
        """GPUs of each task of each piece: the first that no job holds, none for a share of one."""
        taken_ids = defaultdict[str, set[int]](set)
        for holder in table:
            if holder.phase in ("placed", "running"):
                for p in holder.placed:
                    taken_ids[p.node].update(p.devices)
        pieces: list[list[tuple[int, ...]]] = []
        for p in placed:
            gpus, share = divmod(job.parts[p.group].demand.get("gpu", 0), 1000)
            if not gpus or share:
                pieces.append([()] * p.tasks)
                continue
            free = [d for d in range(64) if d not in taken_ids[p.node]]
            if len(free) < gpus * p.tasks:
                raise Rejected(f"job {job.id} needs {gpus * p.tasks} GPUs of {p.node}: free {free}")
            mine = [tuple(free[i * gpus : (i + 1) * gpus]) for i in range(p.tasks)]
            taken_ids[p.node].update(chain(*mine))
            pieces.append(mine)
        return pieces

    def _launch(self, here: Path) -> None:
        if (here / "launched").exists():
            return
        # Neither the user's packages nor variables of Python change the
        # launcher, and it starts fast.
        command = [sys.executable, "-I", "-S", launch.__file__, str(here)]
        try:
            output = launch.open_output(here)
        except OSError as error:
            raise Rejected(f"{here}/output.txt: {error.strerror}") from error
        try:
            with output:
                pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": output}
                # A session of its own: it outlives this process, and is ended as one group.
                process = subprocess.Popen(command, start_new_session=True, stderr=output, **pipes)
                _launchers.append(process)
        except OSError as error:
            raise EngineError(f"cannot launch {here}: {error.strerror}") from error

    def _unplace(
        self, row: engines.Status, why: str, cause: engines.Cause, fenced: bool = False
    ) -> None:
        folder = self.folder / "jobs" / row.job.id / str(row.attempt)
        content = {"why": why, "cause": cause, "time": time.time()}
        self._write(folder / "unplaced.json", content, fenced)
        self._end_processes(folder)

    def _end_processes(self, here: Path) -> None:
        """Kill the group of an attempt; a process that is launching it sees that it need not."""
        self._looked = -math.inf  # its devices are free now
        launched = self._read(here / "launched")
        if launched is None:
            return
        started = self._read(here / "started.json") or {"ranks": []}
        leader = launched["pid"]
        # A process number may have been given to another since: the time of its birth tells, or its
        # group.
        if launch.birth(leader) == launched["birth"] or leader in map(_session, started["ranks"]):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(leader, signal.SIGKILL)
        # Its devices count as free from here on, so that they have to be.
        for _ in range(100):
            for launcher in _launchers:
                launcher.poll()
            if not launch.birth(leader):
                break
            time.sleep(0.01)

    def _read(self, path: Path) -> Any:
        return engines.read_json(path, FILE_BYTES)

    def _write(self, path: Path, content: Any, fenced: bool = False) -> None:
        """Into the folder of one job: what is wrong there is wrong with this job alone."""
        try:
            path.parent.mkdir(exist_ok=True)
            if os.path.islink(path.parent):
                raise Rejected(f"{path.parent} is a link; remove it")
            led = self._leader if fenced else None
            (launch.write_json if led is None else led.write)(path, content)
        except OSError as error:
            raise Rejected(f"{path}: {error.strerror}") from error


def _group(content: Mapping[str, Any]) -> engines.TaskGroup:
    demand = engines.table(content["demand"], "what it asks for:", engines.thousandths)
    amounts = {k: engines.thousandths(v, k) for k, v in demand.items()}
    return engines.TaskGroup(content["tasks"], amounts, content["per_node"], content["constraint"])


def _changed(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return math.inf


def _session(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return -1


NODES = 6
SLOW = {"n4": 0.5}  # declared like the others, and slower


class Demo:
    """Six nodes of two generations, one of them half as fast as its label says.

    Users submit gangs of one to four ranks, a few seconds each, forty in a hundred seconds.
    Declared rates: ``model=new:2`` and 1 for the rest. With a class of services, the cluster has a
    scheduler of its own (EASY with best-fit), as one that is only watched needs.
    """

    rates = ("model=new:2",)

    def __init__(
        self, folder: Path, service: Callable[..., Any] | None, jobs: int = 40, seed: int = 0
    ):
        self.folder = folder
        if not (folder / "nodes.json").exists():
            LocalEngine.create(
                folder,
                [
                    {
                        "name": f"n{i}",
                        "devices": {"cpu": 8, "gpu": 4},
                        "labels": {"model": "new" if i < NODES // 2 else "old"},
                        "speed": SLOW.get(f"n{i}", 2.0 if i < NODES // 2 else 1.0),
                    }
                    for i in range(NODES)
                ],
            )
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._users, args=(jobs, seed), daemon=True)]
        if service is not None:
            serve = partial(self._serve, service)
            self._threads.append(threading.Thread(target=serve, daemon=True))
        for thread in self._threads:
            thread.start()

    def _users(self, jobs: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(jobs):
            if self._stop.wait(float(rng.exponential(2.5))):
                return
            work = float(rng.uniform(4.0, 16.0))
            try:
                LocalEngine.submit(
                    self.folder,
                    [sys.executable, "-S", rank.__file__, "--every", "1", "--sleep", f"{work:.2f}"],
                    tasks=int(rng.integers(1, 5)),
                    demand={"gpu": int(rng.choice([1, 2, 4]))},
                    job_type=str(rng.choice(["train", "tune"])),
                    user=str(rng.choice(["astro", "bio", "chem"])),
                    limit=round(2 * work + 10, 1),
                    work=work,
                )
            except (OSError, GangwiseError):  # its folder is gone, or is none of its own any more
                return

    def _serve(self, service: Callable[..., Any]) -> None:
        engine = LocalEngine(self.folder)
        own = service(engine, self.folder / "own", "fcfs+easy+best-fit", act=True)
        try:
            while not self._stop.is_set():
                own.tick(0.2)
            own.close()
        except (OSError, GangwiseError):  # as above
            return

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(5.0)
        engine = LocalEngine(self.folder)
        for row in engine.jobs():
            engine.cancel(row.job.id)
