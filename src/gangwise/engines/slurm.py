"""Slurm as an engine: a held queue, released job by job onto the nodes that were chosen.

A ``job_submit.lua`` gives jobs of one partition priority 0, so that users submit as ever and
nothing starts; a placement is ``scontrol update reqnodelist=…`` and ``scontrol release``. What was
placed is written into the job's AdminComment, so that any client finds it.

Tasks are ranks (``-n``), or shares of nodes where a job asks for devices by node (``-N 2
--gres=gpu:4``: two tasks of 4 GPUs on different nodes). Slurm starts a gang on exactly the nodes
asked for; how it divides ranks among them is its own affair unless the job says
``--ntasks-per-node``, so the table tells what it did.

Run against Slurm 22.05. The JSON of 23.02 and later is read as its documentation has it, from made
answers; it was not run.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gangwise.core.errors import EngineError, Rejected, ScenarioError
from gangwise.engines.engine import (
    Capabilities,
    EngineEvent,
    EngineJob,
    EngineNode,
    Phase,
    Placed,
    RankReport,
    Status,
    check_placement,
    differences,
)
from gangwise.engines.reports import read_reports

NOT_UP = {
    *("DOWN", "DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING", "NOT_RESPONDING", "MAINT"),
    *("UNKNOWN", "POWERED_DOWN", "POWERING_DOWN", "REBOOT_ISSUED", "FUTURE", "ERROR"),
}
PHASES: dict[str, Phase] = {
    "COMPLETED": "finished",
    "FAILED": "failed",
    "OUT_OF_MEMORY": "failed",
    "BOOT_FAIL": "failed",
    "NODE_FAIL": "failed",
    "PREEMPTED": "failed",
    "TIMEOUT": "killed",
    "DEADLINE": "killed",
    "CANCELLED": "cancelled",
    "REVOKED": "cancelled",
}
MARK = re.compile(r"gangwise attempt=(\d+) restarts=(\d+) on=(\S*)")
ASLEEP = ("COMPLETING", "RUNNING", "CONFIGURING", "SUSPENDED", "STAGE_OUT", "SIGNALING", "STOPPED")


class SlurmEngine:
    """A Slurm cluster, by its commands.

    Parameters
    ----------
    partition : str
        Whose jobs are held and placed here. Those of others are only seen.
    reports : path, optional
        Folder where ranks under ``gangwise rank`` report, seen from here and from the nodes.
    labels : mapping or str, optional
        Label → features that are its values, such as ``{"model": ("a100", "v100")}``, or in words
        ``model=a100/v100;rack=r1/r2``. Other features are labels whose value is ``yes``.
    job_type : {"name", "user", "account", "comment"}
        What of a job is its type.
    watch : bool
        Take jobs of all partitions as given, as for shadow mode: nothing is held or changed.
    poll : float
        Seconds between looks at the queue.
    environment : mapping, optional
        For Slurm's commands; ``SLURM_CONF`` for example.

    Raises
    ------
    EngineError
        When Slurm's commands are not there.
    """

    name = "slurm"
    capabilities = Capabilities(
        gang_native=True,
        moldable=False,
        preempt=True,
        device_ids=False,
        held_queue=True,
        start_latency=1.0,
        exact_split=False,
    )

    def __init__(
        self,
        partition: str = "gangwise",
        reports: Path | str | None = None,
        *,
        labels: Mapping[str, Sequence[str]] | str | None = None,
        job_type: str = "name",
        watch: bool = False,
        poll: float = 0.5,
        environment: Mapping[str, str] | None = None,
    ):
        self.partition = partition
        self.reports = None if reports is None else Path(reports)
        self.job_type, self.watch, self.poll = job_type, watch, poll
        self._values = {v: label for label, vs in labels_of(labels).items() for v in vs}
        self._environment = {**os.environ, **(environment or {})}
        self._told: dict[str, Status] = {}
        self._was_up: dict[str, bool] = {}
        self._runs: dict[str, int] = {}
        self._where: dict[str, tuple[Placed, ...]] = {}
        self._reports: dict[str, tuple[RankReport, ...]] = {}
        self._table: dict[str, Status] = {}
        self._looked = self._seen = self._nodes_looked = -math.inf
        self._nodes: list[EngineNode] = []
        for program in ("squeue", "sinfo", "scontrol", "scancel"):
            if shutil.which(program, path=self._environment.get("PATH")) is None:
                raise EngineError(f"no {program} here: install Slurm's client commands")

    # ------------------------------------------------------------------------------- the engine

    def nodes(self) -> list[EngineNode]:
        """By ``sinfo``; a node is listed once for each partition."""
        found: dict[str, EngineNode] = {}
        for row in self._json("sinfo", "nodes"):
            devices = {"cpu": 1000 * _number(row.get("cpus"), 0)}
            devices["memory"] = 1000 * _number(row.get("real_memory"), 0)
            for kind, amount in gres(str(row.get("gres") or "")).items():
                devices[kind] = 1000 * amount
            features = _words(row.get("active_features") or row.get("features"))
            state = {*_words(row.get("state")), *_words(row.get("state_flags"))}
            state = {word.upper().rstrip("*") for word in state}
            down = sorted(state & NOT_UP)
            reason = f"{', '.join(down).lower()} {row.get('reason') or ''}".strip() if down else ""
            labels = {self._values.get(f, f): f if f in self._values else "yes" for f in features}
            name = str(row.get("name"))
            found[name] = EngineNode(name, devices, labels, not down, reason)
        return list(found.values())

    def jobs(self) -> list[Status]:
        """By ``squeue``."""
        table = []
        for row in self._json("squeue", "jobs", "--states=all"):
            status = self._status(row)
            if status is not None:
                table.append(status)
        return table

    def place(self, job: str, attempt: int, placed: Sequence[Placed]) -> None:
        """Name the nodes, then release."""
        row = self._recent(job)
        if row is None or row.foreign:
            raise Rejected(f"there is no job {job} in partition {self.partition}")
        wanted = {p.node for p in placed}
        if row.attempt == attempt and row.phase in ("placed", "running"):
            if {p.node for p in row.placed} == wanted:
                return
            raise Rejected(f"attempt {attempt} of job {job} is on other nodes")
        check_placement(row, placed, self._nodes, self._table.values())
        if attempt < row.attempt:
            raise Rejected(f"job {job} was placed {row.attempt} times; {attempt} is no new attempt")
        on = ",".join(f"{p.node}:{p.tasks}" for p in placed)
        mark = f"gangwise attempt={attempt} restarts={self._runs.get(job, 0)} on={on}"
        self._change(
            "update",
            f"jobid={job}",
            f"admincomment={mark}",
            f"reqnodelist={','.join(sorted(wanted))}",
            f"numnodes={len(wanted)}-{len(wanted)}",
            "starttime=now",
        )
        self._change("release", job)
        self._table[job] = replace(row, phase="placed", attempt=attempt, placed=tuple(placed))

    def preempt(self, job: str) -> None:
        """Requeue it, held."""
        row = next((r for r in self.jobs() if r.job.id == job), None)
        if row is not None and not row.foreign:
            if row.phase == "running":
                self._change("requeuehold", job)
            elif row.phase == "placed":
                self._change("hold", job)

    def cancel(self, job: str) -> None:
        """As ``scancel`` does."""
        self._run("scancel", job)

    def events(self, timeout: float) -> list[EngineEvent]:
        """Differences between looks at the queue."""
        until = time.monotonic() + timeout
        while True:
            due = self._looked + self.poll - time.monotonic()
            left = until - time.monotonic()
            if due > left:
                time.sleep(max(left, 0.0))
                return []
            time.sleep(max(due, 0.0))
            found = self._look()
            if found or time.monotonic() >= until:
                return found

    def close(self) -> None:
        """Nothing is held."""

    # ------------------------------------------------------------------------------------ inside

    def _recent(self, job: str) -> Status | None:
        """A job's row of a table no older than a poll, so that many placements share a look."""
        if time.monotonic() >= self._seen + self.poll or job not in self._table:
            self._nodes = self.nodes()
            self._nodes_looked = time.monotonic()
            self._read_table()
        return self._table.get(job)

    def _read_table(self) -> None:
        self._table = {row.job.id: row for row in self.jobs()}
        self._seen = time.monotonic()

    def _look(self) -> list[EngineEvent]:
        if time.monotonic() >= self._nodes_looked + 4 * self.poll:
            self._nodes = self.nodes()
            self._nodes_looked = time.monotonic()
        self._read_table()
        self._looked = self._seen
        table = dict(self._table)
        up = {node.name: node.up for node in self._nodes}
        now = time.time()
        found = differences(self._told, table, self._was_up, up, now, self._ranks)
        self._told, self._was_up = table, up
        for name in list(self._runs):
            if name not in table:
                for known in (self._runs, self._where, self._reports):
                    known.pop(name, None)
        if self.reports is None:
            return found
        for row in table.values():
            if row.phase == "running" and not row.foreign:
                ranks = self._ranks(row)
                if ranks and ranks != self._reports.get(row.job.id):
                    self._reports[row.job.id] = ranks
                    found.append(EngineEvent("measured", now, row.job.id, row.attempt, ranks=ranks))
        return found

    def _ranks(self, row: Status) -> tuple[RankReport, ...]:
        if self.reports is None:
            return ()
        return read_reports(self.reports, row.job.id, self._runs.get(row.job.id, 0))

    def _status(self, row: Mapping[str, Any]) -> Status | None:
        """A row of ``squeue``; None for what is not to be placed yet."""
        name = str(_number(row.get("job_id"), 0))
        foreign = str(row.get("partition")) != self.partition and not self.watch
        states = [word.upper() for word in _words(row.get("job_state"))]
        held = _number(row.get("priority"), 1) == 0
        restarts = _number(row.get("restart_cnt"), 0)
        mark = MARK.search(str(row.get("admin_comment") or ""))
        attempt, at, on = (int(mark[1]), int(mark[2]), mark[3]) if mark else (0, 0, "")
        self._runs[name] = restarts
        job = self.job(name, row)
        started = float(_number(row.get("start_time"), 0)) or math.nan
        ended = float(_number(row.get("end_time"), 0)) or math.nan
        detail = " ".join(_words(row.get("state_reason")))
        detail = "" if detail == "None" else detail
        if any(state in ASLEEP for state in states):
            placed = allocation(row, job) or self._where.get(name, ())
            self._where[name] = placed
            if mark and restarts > at and not foreign and not self.watch and "RUNNING" in states:
                self._change("requeuehold", name)  # Slurm started it again by itself
            attempt = max(attempt, 1)
            return Status(job, "running", attempt, placed, started, foreign=foreign)
        if "PENDING" in states or "REQUEUED" in states:
            if str(row.get("dependency") or "") or _waits_for_its_time(row, attempt):
                return None
            if held or foreign or self.watch:
                return Status(job, "pending", attempt, detail=detail, foreign=foreign)
            if mark and restarts == at:
                where = tuple(
                    Placed(node, int(tasks))
                    for node, _, tasks in (word.rpartition(":") for word in on.split(","))
                )
                return Status(job, "placed", attempt, where, detail=detail)
            self._change("hold", name)  # Slurm requeued it after a node died, on its old nodes
            return Status(job, "pending", attempt, detail="a node died")
        phase: Phase = next((PHASES[state] for state in states if state in PHASES), "failed")
        began = attempt > 0 and started <= ended
        placed = self._where.get(name, ())
        code = _exit_code(row.get("exit_code"))
        why = f"exit code {code}" if phase == "failed" and code else detail
        times = (started if began else math.nan, ended)
        attempt = attempt or (1 if foreign or self.watch else 0)
        return Status(job, phase, attempt, placed, *times, why, foreign)

    def job(self, name: str, row: Mapping[str, Any]) -> EngineJob:
        """What a job asks for; see the module on what a task is."""
        ranks = max(_number(row.get("tasks"), 1), 1)
        nodes = max(_number(row.get("node_count"), 1), 1)
        cpus = max(_number(row.get("cpus_per_task"), 0), 1)
        by_node = gres(str(row.get("tres_per_node") or ""))
        by_task = gres(str(row.get("tres_per_task") or ""))
        by_job = gres(str(row.get("tres_per_job") or ""))
        per_node = _number(row.get("tasks_per_node"), 0)
        if by_node:
            tasks, cpus, per_node = nodes, -(-ranks * cpus // nodes), 1
            demand = dict(by_node)
        else:
            tasks = ranks
            demand = dict(by_task) or {k: -(-v // ranks) for k, v in by_job.items()}
        demand["cpu"] = cpus
        if memory := _number(row.get("memory_per_cpu"), 0):
            demand["memory"] = memory * cpus
        elif memory := _number(row.get("memory_per_node"), 0):
            demand["memory"] = memory if by_node else -(-memory // (per_node or tasks))
        minutes = _number(row.get("time_limit"), 0)
        comment = str(row.get("comment") or "")
        work = re.search(r"\bwork=([0-9.]+)", comment)
        kind = {
            "name": row.get("name"),
            "user": row.get("user_name"),
            "account": row.get("account"),
            "comment": comment,
        }[self.job_type]
        deadline = _number(row.get("deadline"), 0)
        constraint = {}
        for word in filter(None, str(row.get("features") or "").split("&")):
            constraint[self._values.get(word, word)] = word if word in self._values else "yes"
        return EngineJob(
            name,
            str(kind or "job"),
            str(row.get("user_name") or row.get("user_id") or ""),
            float(_number(row.get("submit_time"), 0)),
            tasks,
            {k: 1000 * v for k, v in demand.items()},
            per_node,
            constraint,
            60.0 * minutes if minutes else math.inf,
            float(deadline) if deadline else math.inf,
            work=float(work[1]) if work else math.nan,
        )

    def _json(self, program: str, key: str, *options: str) -> list[Mapping[str, Any]]:
        text = self._run(program, "--json", *options)
        try:
            rows = json.loads(text)[key]
        except (ValueError, KeyError, TypeError) as error:
            raise EngineError(
                f"{program} --json says what is no JSON of Slurm's: {error}"
            ) from None
        return list(rows)

    def _change(self, *words: str) -> None:
        """Run ``scontrol``; a job that is not there any more, or refused, is a rejection."""
        try:
            self._run("scontrol", *words)
        except EngineError as error:
            said = str(error).lower()
            if "contact slurm" in said or "timed out" in said or "connect" in said:
                raise
            raise Rejected(str(error)) from None

    def _run(self, *command: str) -> str:
        try:
            done = subprocess.run(
                command,
                env=self._environment,
                capture_output=True,
                text=True,
                timeout=30.0,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise EngineError(f"{command[0]} timed out after 30 s: is slurmctld busy?") from None
        except OSError as error:
            raise EngineError(f"{command[0]}: {error.strerror}") from error
        if done.returncode:
            said = done.stderr.strip() or f"exit code {done.returncode}"
            raise EngineError(f"{' '.join(command[:3])}: {said}")
        return done.stdout


def labels_of(labels: Mapping[str, Sequence[str]] | str | None) -> Mapping[str, Sequence[str]]:
    """Label → its values.

    >>> labels_of("model=a100/v100;rack=r1")
    {'model': ['a100', 'v100'], 'rack': ['r1']}
    """
    if not isinstance(labels, str):
        return labels or {}
    found = {}
    for word in labels.split(";"):
        label, _, values = word.partition("=")
        if not label or not values:
            raise ScenarioError(f"labels: {word!r}; write label=value/value, joined by ;")
        found[label] = values.split("/")
    return found


def gres(text: str) -> dict[str, int]:
    """Device type → how many, of ``gpu:a100:4``, ``gres:gpu:2``, ``gres/gpu=2``, ``gpu:4(S:0)``.

    >>> gres("gpu:a100:4(S:0-1),craynetwork:2")
    {'gpu': 4, 'craynetwork': 2}
    >>> gres("gres/gpu:a100=2")
    {'gpu': 2}
    """
    found: dict[str, int] = {}
    for word in re.sub(r"\([^)]*\)", "", text).split(","):
        word = re.sub(r"^gres[:/]", "", word.strip())
        if not word or word in ("N/A", "null"):
            continue
        parts = re.split(r"[:=]", word)
        amount = parts[-1] if len(parts) > 1 and parts[-1].isdigit() else "1"
        if "/" not in parts[0] and parts[0] not in ("cpu", "mem", "node", "billing"):
            found[parts[0]] = found.get(parts[0], 0) + int(amount)
    return found


def allocation(row: Mapping[str, Any], job: EngineJob) -> tuple[Placed, ...]:
    """Where a job runs, tasks and GPUs on each node, from ``job_resources``."""
    resources = row.get("job_resources") or {}
    listed = resources.get("allocated_nodes")
    if listed is None and isinstance(resources.get("nodes"), Mapping):
        listed = resources["nodes"].get("allocation")
    details = [str(word) for word in row.get("gres_detail") or ()]
    found = []
    for i, node in enumerate(listed or ()):
        cpus = node.get("cpus_used")
        if cpus is None:
            cpus = node.get("cpus") or {}
            cpus = cpus.get("used") or cpus.get("count") if isinstance(cpus, Mapping) else cpus
        tasks = max(_number(cpus, 1) * 1000 // max(job.demand.get("cpu", 1000), 1), 1)
        numbers: tuple[int, ...] = ()
        if i < len(details) and (index := re.search(r"IDX:([0-9,-]+)", details[i])):
            numbers = tuple(_range(index[1]))
            if each := job.demand.get("gpu", 0) // 1000:
                tasks = max(len(numbers) // each, 1)
        name = str(node.get("nodename") or node.get("name"))
        found.append(Placed(name, min(tasks, job.tasks), numbers))
    return tuple(found)


def _range(text: str) -> list[int]:
    found: list[int] = []
    for word in text.split(","):
        first, _, last = word.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def _number(value: Any, missing: int) -> int:
    """A number in either dialect: 22.05's plain one, or 23.02's {set, infinite, number}."""
    if isinstance(value, Mapping):
        if not value.get("set", True) or value.get("infinite"):
            return missing
        value = value.get("number")
    try:
        return missing if value is None else int(value)
    except (TypeError, ValueError):
        return missing


def _words(value: Any) -> list[str]:
    """A word, several with commas, or (from 23.02 on) a list."""
    if isinstance(value, str):
        return [word for word in value.replace("+", ",").split(",") if word]
    return [str(word) for word in value or ()]


def _exit_code(value: Any) -> int:
    if isinstance(value, Mapping) and "return_code" in value:
        return _number(value["return_code"], 0)
    code = _number(value, 0)
    return code >> 8 if code > 255 else code


def _waits_for_its_time(row: Mapping[str, Any], attempt: int) -> bool:
    """``--begin``: not before a time. A requeued job is given one, too, which is no wish."""
    return attempt == 0 and _number(row.get("eligible_time"), 0) > time.time() + 1
