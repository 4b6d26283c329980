"""What a job of Slurm asks for: what of it is placed here, and why a job is left to Slurm.

A placement only adds to a request: nodes that are required (``reqnodelist``), which are among
those that the job may have. Slurm still checks all that the job asks for. A job that asks for what
is not modelled is left to Slurm's own scheduler, untouched; the table is in docs/how-to/slurm.md.

:class:`Listing` reads the table of jobs at the price of a listing. ``squeue --json`` of 10,000 jobs
takes 1.6 s of a processor, a listing by format 0.08 s. So each look is a listing; the JSON is read
for new jobs and changed requests, for a tenth of the time at most, and every few minutes in any
case. What users write can look like anything, so fields end in a random word; ``squeue`` gets it
through its environment, where users do not see it.

A program of Slurm's has one exit code for all that fails, and says the rest in words. Only an error
of :data:`REFUSALS` is a refusal, which concerns one job; whatever else goes wrong is *no answer*,
after which nothing is given away and nothing has ended. A job that the queue no longer lists is
asked for by its number, and its end is read from the accounting, where there is one.
"""

from __future__ import annotations

import re
import resource
import secrets
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from gangwise import notation
from gangwise.core.errors import EngineError
from gangwise.engines import engine

SQUEUE = notation.WORDS["squeue"]
"""What fields of squeue mean, as ``notation/slurm.toml`` says."""
FLAGS = {"SPREAD_JOB", "USE_MIN_NODES", "GRES_ENFORCE_BIND", "GRES_DISABLE_BIND"}
"""Flags of a job that choose its nodes."""
LATER = "it is not to begin yet"

MARK = re.compile(
    r"(byhand )?gangwise(?: attempt=(\d+) restarts=(\d+) on=(\S*)(?: for=(\S*) nodes=(\d+))?"
    r"( not=\S*)?)?( held| left)?(?: \| (.*))?",
    re.DOTALL,
)


@dataclass(frozen=True)
class Mark:
    """Mark in a job's AdminComment, so that anybody finds it and can undo it."""

    attempt: int = 0  # the latest placement
    restarts: int = 0  # how often the job had been restarted by then
    on: str = ""  # tasks by node
    required: str = ""  # the node list that the user asked for; empty for any
    nodes: int = 0  # and how many nodes; 0 for any
    state: str = ""  # "held" by this engine after a placement, "left" to Slurm's own scheduler
    by_hand: bool = False  # a user or an administrator holds it: ``job_submit.lua`` writes that
    text: str = ""  # the site's own AdminComment
    excluded: str | None = None
    """Of the leader of a heterogeneous job, the nodes that its user excluded: ``scontrol`` changes
    no node list of a leader, but excludes nodes from it, so all but those chosen are excluded."""

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Mark | None:
        """The mark in a row of ``squeue``; None where there is none."""
        match = MARK.fullmatch(str(row.get("admin_comment") or ""))
        if match is None:
            return None
        by_hand, attempt, restarts, on, required, nodes, without, state, text = match.groups("")
        latest = int(attempt or 0), int(restarts or 0), on
        excluded = without.removeprefix(" not=") if without else None
        state = state.strip()
        return cls(*latest, required, int(nodes or 0), state, bool(by_hand), text, excluded)

    def __str__(self) -> str:
        words = ["byhand"] * self.by_hand + ["gangwise"]
        if self.attempt:
            words += [f"attempt={self.attempt}", f"restarts={self.restarts}", f"on={self.on}"]
            words += [f"for={self.required}", f"nodes={self.nodes}"]
            words += [] if self.excluded is None else [f"not={self.excluded}"]
        words += [self.state] * bool(self.state)
        return " ".join(words + ["|", self.text] * bool(self.text))

    @property
    def undone(self) -> list[str]:
        """Arguments of ``scontrol update`` that give a job the node list that its user wrote."""
        if not self.attempt:
            return []
        leader = self.excluded is not None
        return [f"excnodelist={self.excluded}" if leader else f"reqnodelist={self.required}"]


def components(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Ids of all components of the heterogeneous job of a row, its leader first; else none."""
    # They are written as ``12-14``, as within the brackets of a node list.
    ids = expand(f"[{row.get('het_job_id_set') or ''}]") if number(row.get("het_job_id"), 0) else ()
    return tuple(sorted(ids or (), key=int))


def target(job: str, parts: Sequence[str]) -> str:
    """A job as ``scontrol`` has to be told of it: the leader's id alone means all components."""
    return f"{job}+0" if parts and parts[0] == job else job


def is_unset(value: Any) -> bool:
    """Whether a field is unset, in either dialect of the JSON."""
    if isinstance(value, Mapping):
        return not number(value, 0)
    return value in (None, "", 0, False, "0", [], {})


@dataclass(frozen=True)
class SlurmRequest:
    """Tasks of a job, as they are placed: ranks, or shares of nodes."""

    tasks: int
    ranks: int  # of each task: 1, or those of a share
    cpus: int  # of a rank
    demand: Mapping[str, int]  # whole devices of a task; memory in MiB
    per_node: int  # most tasks on a node, 0 for as many as fit
    nodes: int  # how many nodes it must get; 0 where any number will do
    required: str  # list of nodes, as ``excluded``
    excluded: str
    why: str  # what of the request is not modelled; empty where all of it is

    @classmethod
    def of(cls, row: Mapping[str, Any], mark: Mark | None) -> SlurmRequest:
        """The request in a row of ``squeue``.

        A job with a fixed number of nodes, or with devices or memory by node, is placed in shares:
        as many tasks as nodes, one to a node. Other jobs are placed rank by rank.
        """
        unmodelled = [
            text for key, text in SQUEUE["not_modelled"].items() if not is_unset(row.get(key))
        ]
        unmodelled += [
            f"its flag {f}" for f in notation.json_words(row.get("flags")) if f.upper() in FLAGS
        ]
        # Tasks of squeue are ranks, and its cpus are those of the whole job.
        ranks = max(number(row.get("tasks"), 1), 1)
        least, most = number(row.get("node_count"), 1), number(row.get("max_nodes"), 0)
        per_node = number(row.get("tasks_per_node"), 0)
        fixed = most if most == least else 0
        if mark is not None and mark.attempt:  # Slurm forgets it when it requeues a job
            fixed = mark.nodes
        elif most not in (0, least):
            unmodelled.append(f"it asks for {least} to {most} nodes")
        elif least > 1 and not (most or per_node):
            fixed = least
        by_node, by_task, by_job = (
            str(row.get(f"tres_per_{unit}") or "") for unit in ("node", "task", "job")
        )
        if sum(map(bool, (by_node, by_task, by_job))) > 1:
            unmodelled.append("it asks for devices in two ways")
        cpus = number(row.get("cpus_per_task"), 0) or number(row.get("cpus"), 0) // ranks or 1
        if number(row.get("minimum_cpus_per_node"), 0) > cpus * max(per_node, 1):
            unmodelled.append("it asks for cpus by node (--mincpus)")
        memory = row.get("memory_per_node")
        if memory is not None and row.get("memory_per_cpu") is None and number(memory, 1) == 0:
            unmodelled.append("it asks for all memory of its nodes")
        # A share is what one node gets. A fixed number of nodes, or devices by node, makes shares
        # the unit that is placed.
        shares = fixed or (1 if by_node else 0)
        # With so many ranks to a node, what a node gets of devices or memory is for a share.
        if not fixed and per_node and (by_node or number(memory, 0)) and ranks > 1:
            shares = -(-ranks // per_node)
        if shares and ranks % shares:
            unmodelled.append(f"{ranks} tasks do not divide evenly among {shares} nodes")
        size = -(-ranks // shares) if shares else 1
        demand = {k: v * size for k, v in gres(by_task).items()} or dict(gres(by_node))
        # Devices of the whole job divide among its ranks; a remainder would make ranks unlike.
        for kind, amount in gres(by_job).items():
            demand[kind] = -(-amount * size // ranks)
            if amount * size % ranks:
                unmodelled.append("its devices do not divide evenly among its tasks")
        demand["cpu"] = cpus * size
        if by_cpu := number(row.get("memory_per_cpu"), 0):
            demand["memory"] = by_cpu * cpus * size
        elif by_memory := number(memory, 0):
            demand["memory"] = by_memory  # of a share; of a rank, were it alone on its node
        required, excluded = (str(row.get(f"{w}_nodes") or "") for w in ("required", "excluded"))
        if mark is not None and mark.attempt:  # where it was placed stands there now
            required = mark.required if mark.excluded is None else required
            excluded = excluded if mark.excluded is None else mark.excluded
        wanted = expand(required)
        if wanted is None or expand(excluded) is None:
            unmodelled.append("it has a node list that cannot be read")
        # To nodes that are named Slurm would add others of its own choice.
        elif len(wanted) > 1 and len(wanted) != fixed:
            unmodelled.append(f"it asks for {len(wanted)} nodes by name, and for others perhaps")
        features = str(row.get("features") or "")
        if not re.fullmatch(r"[\w.:/=-]*(&[\w.:/=-]+)*", features):
            unmodelled.append(f"it asks for features in a way that is not modelled: {features}")
        most, reasons = 1 if shares else per_node, "; ".join(unmodelled)
        return cls(shares or ranks, size, cpus, demand, most, fixed, required, excluded, reasons)


def waits_for(row: Mapping[str, Any], now: float) -> str:
    """Event that a job waits for and no scheduler can give: another job, or its time; else empty.

    The start of a held job is what ``--begin`` said; of another it is Slurm's forecast. Slurm gives
    a requeued job a time of its own, for which no user has asked.
    """
    if not is_unset(dependency := row.get("dependency")):
        return f"{engine.AFTER}, {dependency}"
    begin = number(row.get("eligible_time"), 0)
    if number(row.get("priority"), 1) == 0:
        begin = max(begin, number(row.get("start_time"), 0))
    # A second more: times of slurmctld are whole seconds.
    if begin > now + 1 and not number(row.get("restart_cnt"), 0):
        return LATER
    return ""


def types_of(text: str) -> dict[str, set[str]]:
    """Device type → kinds of it that are named; an empty one where none is.

    >>> types_of("gpu:a100:4(S:0-1),gpu:2") == {"gpu": {"a100", ""}}
    True
    """
    types = defaultdict[str, set[str]](set)
    for device, kind, _ in notation.gres_words(text):
        types[device].add(kind)
    return types


def gres(text: str) -> dict[str, int]:
    """Device type → how many.

    >>> gres("gpu:a100:4(S:0-1),craynetwork:2")
    {'gpu': 4, 'craynetwork': 2}
    """
    amounts = Counter[str]()
    for device, _, amount in notation.gres_words(text):
        amounts[device] += amount
    return dict(amounts)


def expand(text: str) -> frozenset[str] | None:
    """Nodes of a list; None where it cannot be read.

    >>> sorted(expand("n[1-2,08]-ib,gpu-3"))
    ['gpu-3', 'n08-ib', 'n1-ib', 'n2-ib']
    >>> expand("n[1-") is None
    True
    """
    try:
        names = frozenset(notation.expand_nodes(text))
    except ValueError:
        return None
    return names if all(re.fullmatch(r"[\w.-]+", name, re.ASCII) for name in names) else None


def number(value: Any, missing: int) -> int:
    """A number in either dialect; ``missing`` where there is none, or no limit."""
    try:
        return int(notation.json_value(value))
    except (TypeError, ValueError, OverflowError):
        return missing


# The listing

STATE: Mapping[str, str] = SQUEUE["state"]
"""Fields that tell what a job is at, as ``--Format`` → as ``--json``; from the fourth, numbers."""
WHOLE = 300.0  # seconds after which the JSON is read although the listing shows no change
SHARE = 10.0  # seconds between two readings of the JSON, for each processor second that one takes
PACE = 20.0  # the same between two listings: slurmctld is as busy with one as ``squeue``
ON_NODES = set(notation.WORDS["states"]["on_nodes"].split())
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
        """Key of what the JSON says of the job; it changes where the JSON has something new."""
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
        names = ("jobid", *STATE, *SQUEUE["request"]["names"])
        # A size of 0 neither pads nor cuts; the text after it ends the field.
        form = ",".join(f"{name}:0{self._field}" for name in names)
        self._variables = {"SQUEUE_FORMAT2": f"{form[: -len(self._field)]}{self._end}"}
        self._variables["SLURM_TIME_FORMAT"] = "%s"

    def read(self) -> tuple[set[str], set[str]] | None:
        """Jobs that are new or not as before, and jobs that are gone; None where none is listed."""
        text = self._run("squeue", "--noheader", "--all", "--states=all", more=self._variables)
        *parts, tail = text.split(f"{self._end}\n")
        # The last row has no end: the output was cut off, or has another format.
        if tail:
            return None
        rows = {name: row for name, _, row in (part.partition(self._field) for part in parts)}
        removed = self._rows.keys() - rows.keys()
        changed = set()
        for name, row in rows.items():
            if row != self._rows.get(name):
                if (cell := self._listed(row)) is None or not name.isdigit():
                    return None
                if cell != self.jobs.get(name):
                    self.jobs[name] = cell
                    changed.add(name)
        for name in removed:
            del self.jobs[name]
        # Only now: after a row that cannot be read all are compared again.
        self._rows = rows
        return changed, removed

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
        # A program counts when it has ended and was waited for.
        ran = resource.getrusage(resource.RUSAGE_CHILDREN)
        return time.thread_time() + ran.ru_utime + ran.ru_stime


# Answers of Slurm's programs


REFUSALS: dict[int, str] = {int(code): words for code, words in notation.WORDS["refusals"].items()}
"""Error codes by which Slurm refuses a request, and its words for them (slurm/slurm_errno.h)."""
UNKNOWN_JOB, DENIED = 2017, 2002
BAD_FORMAT = "Invalid job format specification"  # by squeue itself: it does not know a field
COMMAND = 10.0  # seconds that a listing may take, as the programs' own wait for slurmctld
CHANGE = 6.0  # the same of a change, and of a look at the lead, which cost slurmctld little
ASKED_AGAIN = 8  # of so many jobs that the queue no longer lists, slurmctld is asked by number

PHASES: Mapping[str, engine.Phase] = notation.WORDS["phases"]
"""States of a job that has ended."""


class Refused(EngineError):  # noqa: N818 - what Slurm did
    """A refusal by Slurm; ``code`` is its own, 0 for one of a program itself."""

    def __init__(self, message: str, code: int):
        super().__init__(message)
        self.code = code


def run(
    command: Sequence[str], environment: Mapping[str, str] | None, seconds: float = COMMAND
) -> str:
    """Run a program of Slurm's, and return what it prints.

    Raises Refused for a refusal that is known, and EngineError for all else that fails.
    """
    try:
        process = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",  # Slurm hands on whatever bytes a user gave
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        busy = f"{command[0]} timed out after {seconds:g} s: is slurmctld busy?"
        raise EngineError(busy) from None
    except OSError as error:
        raise EngineError(f"{command[0]}: {error.strerror}") from error
    if not process.returncode:
        return process.stdout
    text = process.stderr.strip()
    about = (
        text
        or process.stdout.partition("\n")[0].strip()
        or (
            f"exit code {process.returncode}"
            if process.returncode > 0
            else f"ended by signal {-process.returncode}"
        )
    )
    message = f"{' '.join(command[:3])}: {about}"
    # A program that a signal has ended was refused nothing.
    code = refusal(text) if process.returncode > 0 else None
    raise EngineError(message) if code is None else Refused(message, code)


def refusal(said: str) -> int | None:
    """Code of the refusal that a program printed; None for an error that is no known refusal.

    Its last line counts: those before it may tell of a connection that broke down.

    >>> refusal("slurm_update error: Invalid job id specified")
    2017
    >>> refusal("slurm_load_jobs error: Zero Bytes were transmitted or received") is None
    True
    """
    line = said.strip().rpartition("\n")[2]
    if BAD_FORMAT in line:
        return 0
    return next((code for code, words in REFUSALS.items() if words in line), None)


class End(NamedTuple):
    """End of a job, as far as Slurm remembers; ``time`` is NaN where it does not."""

    phase: engine.Phase
    time: float


def ends_of(lost: Iterable[str], listed: int, ask: Callable[..., str]) -> dict[str, End]:
    """Ends of jobs that the queue no longer lists, by their numbers.

    ``ask`` runs a program of Slurm's. Raises EngineError where slurmctld still shows one of them as
    waiting or running: then the list was wrong, and none has ended.
    """
    names = list(lost)
    ends: dict[str, End] = {}
    for name in names[:ASKED_AGAIN]:
        state = _state_of(name, ask)
        if state in PHASES:
            ends[name] = End(PHASES[state], float("nan"))
        elif state:
            raise EngineError(
                f"squeue lists {listed} jobs without job {name}, which scontrol shows as {state}"
            )
    try:
        # One question for all of them: each is a query of the accounting's database.
        form = ("--format=JobIDRaw,State,End", f"--jobs={','.join(names)}")
        env = {"SLURM_TIME_FORMAT": "%s"}
        rows = ask("sacct", "--noheader", "--parsable2", "--allocations", *form, more=env)
    except EngineError:  # there is no accounting, or it does not answer
        return ends
    for row in rows.splitlines():
        name, _, about = row.partition("|")
        state, _, end = about.partition("|")
        state = state.partition(" ")[0]  # "CANCELLED by 0"
        if name in names and state in PHASES and end.isascii() and end.isdigit():
            ends[name] = End(PHASES[state], float(end))
    return ends


def _state_of(name: str, ask: Callable[..., str]) -> str:
    """State of a job by slurmctld; empty where it does not know the job."""
    try:
        shown = ask("scontrol", "-o", "show", "job", name)
    except Refused as error:
        if error.code == UNKNOWN_JOB:
            return ""
        raise
    fields = dict(word.partition("=")[::2] for word in shown.split() if "=" in word)
    if fields.get("JobId") != name or not fields.get("JobState"):
        raise EngineError(f"scontrol says of job {name} {engine.quoted(shown)}")
    return fields["JobState"]
