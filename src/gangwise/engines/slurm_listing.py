"""Slurm's table of jobs at the price of a listing.

``squeue --json`` of 10,000 jobs takes 1.6 s of a processor, a listing by format .08 s. So each look
is a listing; the JSON is read for new jobs and changed requests, a tenth of the time at most, and
now and then. What users write can look like anything, so fields end in a random word; ``squeue``
gets it through its environment, where users do not see it.
"""

from __future__ import annotations

import resource
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

STATE = {
    "state": "job_state",
    "reason": "state_reason",
    "admin_comment": "admin_comment",
    "prioritylong": "priority",
    "restartcnt": "restart_cnt",
    "exit_code": "exit_code",
    "eligibletime": "eligible_time",
    "endtime": "end_time",
    "starttime": "start_time",
}
"""Fields that tell what a job is at, as ``--Format`` → as ``--json``; from the fourth, numbers."""
REQUEST = (
    *("username", "partition", "account", "name", "comment", "timelimit", "deadline", "mintime"),
    *("numtasks", "numnodes", "maxnodes", "cpus-per-task", "ntpernode", "mincpus", "minmemory"),
    *("mintmpdisk", "tres-per-job", "tres-per-node", "tres-per-task", "tres-per-socket"),
    *("cpus-per-tres", "mem-per-tres", "sct", "corespec", "contiguous", "oversubscribe", "prefer"),
    *("feature", "clusterfeature", "licenses", "burstbuffer", "reservation", "reboot", "reqnodes"),
    "dependency",
)
WHOLE = 300.0  # seconds after which the JSON is read although the listing shows no change
SHARE = 10.0  # seconds between two readings of the JSON, for each processor second that one takes
PACE = 20.0  # the same between two listings: slurmctld is as busy with one as ``squeue``
ON_NODES = {
    *("COMPLETING", "RUNNING", "CONFIGURING", "SUSPENDED", "STAGE_OUT", "SIGNALING", "STOPPED")
}
"""States of a job that has nodes."""


class Listed(NamedTuple):
    """A job as it was listed: its state, by the names of the JSON, and its request as text."""

    at: Mapping[str, Any]
    request: str

    @property
    def runs(self) -> bool:
        return self.at["job_state"] in ON_NODES

    @property
    def what(self) -> tuple[str, str]:
        """Another one where the JSON says something new of the job."""
        return "runs" if self.runs else str(self.at["job_state"]), self.request


class Listing:
    """The listing of all jobs, by :meth:`read`; ``jobs`` has how each was listed last.

    ``run`` runs a program of Slurm's, with ``more`` of an environment, and gives its output.
    """

    def __init__(self, run: Callable[..., str]):
        self._run, self._rows = run, dict[str, str]()
        self.jobs: dict[str, Listed] = {}
        word = f"x{secrets.token_hex(8)}"
        self._field, self._end = f"{word}f", f"{word}e"
        names = ("jobid", *STATE, *REQUEST)
        form = ",".join(f"{name}:0{self._field}" for name in names)
        self._variables = {"SQUEUE_FORMAT2": f"{form[: -len(self._field)]}{self._end}"}
        self._variables["SLURM_TIME_FORMAT"] = "%s"

    def read(self) -> tuple[set[str], set[str]] | None:
        """Jobs that are new or not as before, and jobs that are gone; None where none is listed."""
        text = self._run("squeue", "--noheader", "--all", "--states=all", more=self._variables)
        rows: dict[str, str] = {}
        *parts, rest = text.split(f"{self._end}\n")
        if rest:
            return None
        for part in parts:
            name, _, row = part.partition(self._field)
            rows[name] = row
        gone = self._rows.keys() - rows.keys()
        changed = set()
        for name, row in rows.items():
            if row != self._rows.get(name):
                if (one := self._listed(row)) is None or not name.isdigit():
                    return None
                if one != self.jobs.get(name):
                    self.jobs[name] = one
                    changed.add(name)
        for name in gone:
            del self.jobs[name]
        self._rows = rows
        return changed, gone

    def _listed(self, row: str) -> Listed | None:
        words = row.split(self._field, len(STATE))
        if len(words) <= len(STATE):
            return None
        at: dict[str, Any] = dict(zip(STATE.values(), words))
        at["admin_comment"] = "" if words[2] == "(null)" else words[2]
        for key in list(at)[3:]:
            at[key] = int(at[key]) if at[key].isascii() and at[key].isdigit() else 0
        if at["job_state"] == "PENDING" and at["priority"]:
            at["priority"], at["start_time"] = 1, 0  # Slurm's forecast is no change of the job
        return Listed(at, words[-1])


class Cost:
    """Measures the processor time of a block: of this thread and the programs that it ran."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.began = -float("inf")

    def __enter__(self) -> None:
        self.began, self._before = time.monotonic(), self._now()

    def __exit__(self, *_: object) -> None:
        self.seconds = self._now() - self._before

    @staticmethod
    def _now() -> float:
        ran = resource.getrusage(resource.RUSAGE_CHILDREN)
        return time.thread_time() + ran.ru_utime + ran.ru_stime
