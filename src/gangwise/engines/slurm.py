"""Slurm as an engine: a held queue, released job by job onto the nodes that were chosen.

A ``job_submit.lua`` gives jobs of one partition priority 0, so that users submit as ever and
nothing starts; a placement is ``scontrol update reqnodelist=…`` and ``scontrol release``. What was
placed, and the node list that the user asked for, are written into the job's AdminComment, so that
any client finds and can undo it (:func:`detach`). A job that a user or an administrator holds stays
held; one that asks for what is not modelled is released untouched, for Slurm's own scheduler.

Tasks are ranks (``-n``), or shares of nodes where a job has a number of nodes or asks for devices
by node (``-N 2 --gres=gpu:4``: two tasks of 4 GPUs on different nodes). Slurm starts a gang on
exactly the nodes asked for; how it divides ranks among them is its own affair unless the job says
``--ntasks-per-node``, so the table tells what it did.

Components of a heterogeneous job are groups of one gang, under the id of its leader. Slurm starts
all of them at once or none, and never two of them on one node.

Run against Slurm 22.05. The JSON of 23.02 and later is read as its documentation has it, from made
answers; it was not run.
"""

import contextlib
import json
import math
import os
import pwd
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gangwise.core.errors import EngineError, Rejected, ScenarioError
from gangwise.engines import background, engine, leader
from gangwise.engines.slurm_requests import (
    CHANGE,
    COMMAND,
    DENIED,
    LATER,
    ON_NODES,
    PACE,
    PHASES,
    SHARE,
    WHOLE,
    Cost,
    Listing,
    Mark,
    Refused,
    SlurmRequest,
    components,
    ends_of,
    expand,
    gres,
    number,
    run,
    target,
    types_of,
    waits_for,
)
from gangwise.notation import WORDS, fold_nodes, json_words

NOT_UP, TAKES_TASKS = (set(WORDS["states"][key].split()) for key in ("not_up", "takes_tasks"))
BRIEF = ("scontrol", "scancel")  # programs that change, or show, little
LAUNCHES = 5  # starts that fail on the nodes, before a job that Slurm then holds is left alone
UNSTARTED = 3  # placements that Slurm refuses, or does not start, before it is left the job
CERTAIN = 5.0  # seconds for which a job must ask for what is not modelled, before it is left alone
UNFIT = 300.0  # seconds for which all nodes must be too small for it
LISTS = 1000  # node lists of waiting jobs that are kept apart
LISTED = ("among:", "not among:")
"""Nodes carry labels of these kinds: which lists they are in, that jobs ask for or exclude."""
HELD_BY_HAND = "a user or an administrator holds it"


@dataclass(eq=False, repr=False)
class SlurmEngine(leader.Led):
    """A Slurm cluster, by its commands; raises EngineError when these are not there."""

    name = "slurm"
    capabilities = engine.Capabilities(start_latency=1.0, exact_split=False)
    _silent_since = math.inf

    partition: str = "gangwise"
    """Whose jobs are held and placed here. Those of other partitions are only seen."""
    reports: Path | str | None = None
    """Folder where ranks under ``gangwise rank`` report, seen from here and from the nodes."""
    _: KW_ONLY
    labels: Mapping[str, Sequence[str]] | str | None = None
    """Label → features that are its values, such as ``{"model": ("a100", "v100")}``, or in words
    ``model=a100/v100;rack=r1/r2``. Other features are labels whose value is ``yes``."""
    job_type: str = "name"  # what of a job is its type: name, user, account or comment
    watch: bool = False
    """Take jobs of all partitions as given, as for shadow mode: nothing is held or changed."""
    poll: float = 0.5  # seconds between looks at the queue
    environment: InitVar[Mapping[str, str] | None] = None
    """For Slurm's commands; ``SLURM_CONF`` for example."""

    def __post_init__(self, environment: Mapping[str, str] | None) -> None:
        self._values = {v: label for label, vs in labels_of(self.labels).items() for v in vs}
        self._environment = {**os.environ, **(environment or {})}
        self._nodes_listed: Any = None
        self._changes = engine.Changes(self._ranks)
        self._details: dict[str, JobDetails] = {}
        self._where: dict[str, tuple[engine.Placed, ...]] = {}
        self._table: dict[str, engine.Status] = {}
        self._rows: dict[str, Mapping[str, Any]] = {}  # of the JSON
        self._read_as: dict[str, tuple[str, str]] = {}  # how they were listed then
        self._outdated = set[str]()  # jobs of which the JSON says something new
        self._to_recheck = set[str]()  # to be looked at again, though they are listed as before
        self._listing = Listing(self._run)
        self._listing_cost, self._whole_cost, self._nodes_cost = Cost(), Cost(), Cost()
        self._looked = self._seen = self._nodes_looked = self._nodes_read = -math.inf
        self._nodes: list[engine.EngineNode] = []
        self._lists: dict[str, frozenset[str]] = {}
        self._reserved: dict[str, str] = {}
        self._left_alone: dict[str, str] = {}
        self._unstarted: dict[str, int] = {}
        self._doubts: dict[str, tuple[str, float]] = {}  # why a job may have to be given away
        self.quarantine = engine.Quarantine()
        for program in ("squeue", "sinfo", "scontrol", "scancel"):
            if shutil.which(program, path=self._environment.get("PATH")) is None:
                raise EngineError(f"no {program} here: install Slurm's client commands")

    def lead(self, identity: str) -> None:
        """Change jobs only while this is the one leader of the cluster.

        This needs an administrator's rights, as AdminComment does. Slurm itself never starts a job
        twice: a leader that was stopped between looking at its clock and its command can at most
        choose other nodes for a job that waits.
        """
        self._leader = leader.ReservationLeader(self._run)

    # The engine

    def nodes(self) -> list[engine.EngineNode]:
        """Nodes by ``sinfo``: its JSON is read where a listing, of nodes that are alike, is new."""
        at = time.monotonic()
        if at < self._nodes_looked + max(self.poll, PACE * self._nodes_cost.seconds):
            return list(self._nodes)
        if self._nodes_read == -math.inf:  # sinfo takes ten seconds to say that slurmctld is down
            self._run("scontrol", "ping")
        with self._nodes_cost:
            listed: dict[Any, set[str]] = {}
            text = self._run("sinfo", "--noheader", "--format=%T %P %G %f %c %m %N")
            for line in text.splitlines():
                if line.count(" ") < 2:
                    raise EngineError(f"sinfo prints {engine.quoted(line)}, which is no row")
                state, *about, names = line.split(" ")
                # Idle or allocated, a node takes tasks: no change.
                like = "up" if state in TAKES_TASKS else state, *about
                listed.setdefault(like, set()).update(expand(names) or (names,))
            self._reserved = {} if self.watch else self._reservations()
        self._nodes_looked = at
        # The short listing is cheap; the JSON is read only where it shows a change, or after a
        # while.
        if (listed, self._reserved) == self._nodes_listed and at < self._nodes_read + WHOLE:
            return list(self._nodes)
        rows = self._json("sinfo", "nodes")
        if not self.watch:  # those outside the partition are not aimed at
            rows = [row for row in rows if self._ours(row)]
        nodes = self.quarantine.read_all("node", rows, self._node, lambda row: row["name"])
        nodes = engine.distinct(nodes, lambda node: node.name, self.quarantine, "node")
        # Which nodes would fit a job does not depend on whether they are up.
        old, now_are = ([replace(n, up=True, reason="") for n in ns] for ns in (self._nodes, nodes))
        if old != now_are:
            self._to_recheck.update(self._table)  # others fit now, perhaps
        self._nodes, self._nodes_listed, self._nodes_read = nodes, (listed, self._reserved), at
        return list(nodes)

    def _reservations(self) -> dict[str, str]:
        """Node → reservation that holds now; ``sinfo`` says so only some seconds later."""
        by_node: dict[str, str] = {}
        with contextlib.suppress(Refused):
            for line in self._run("scontrol", "-o", "show", "reservation").splitlines():
                fields = dict(word.partition("=")[::2] for word in line.split())
                if fields.get("State") == "ACTIVE":
                    names = expand(fields.get("Nodes", "")) or frozenset()
                    by_node.update((n, fields.get("ReservationName", "")) for n in names)
        return by_node

    def _ours(self, row: Any) -> bool:
        partitions = row.get("partitions") if isinstance(row, Mapping) else None
        return not isinstance(partitions, list | str) or self.partition in json_words(partitions)

    def _node(self, row: Mapping[str, Any]) -> engine.EngineNode:
        # The name goes into commands and node lists.
        if not re.fullmatch(r"[\w.-]+", str(row["name"]), re.ASCII):
            raise engine.Malformed(f"{engine.quoted(row['name'])} is not the name of a node")
        devices = {"cpu": 1000 * number(row.get("cpus"), 0)}
        devices["memory"] = 1000 * number(row.get("real_memory"), 0)
        for kind, amount in gres(str(row.get("gres") or "")).items():
            devices[kind] = 1000 * amount
        features = json_words(row.get("active_features") or row.get("features"))
        state = {*json_words(row.get("state")), *json_words(row.get("state_flags"))}
        # An asterisk marks a node that does not respond.
        state = {word.upper().rstrip("*") for word in state}
        down = sorted(state & NOT_UP)
        reason = f"{', '.join(down).lower()} {row.get('reason') or ''}".strip() if down else ""
        labels = {self._values.get(f, f): f if f in self._values else "yes" for f in features}
        if not down and (name := self._reserved.get(str(row["name"]))):
            down, reason = ["RESERVED"], engine.RESERVED + name
        for kind, named in types_of(str(row.get("gres") or "")).items():
            # Where a node has several models Slurm chooses: none can be asked for.
            if len(named) == 1:
                labels[f"type of {kind}"] = next(iter(named))
        return self._listed(engine.EngineNode(str(row["name"]), devices, labels, not down, reason))

    def _listed(self, node: engine.EngineNode) -> engine.EngineNode:
        """A node with labels for the node lists that contain it, and for those that do not."""
        labels = {k: v for k, v in node.labels.items() if not k.startswith(LISTED)}
        for text, names in self._lists.items():
            labels[LISTED[node.name not in names] + text] = "yes"
        return replace(node, labels=labels)

    def _add_node_list(self, text: str) -> None:
        """Add a node list, for which nodes carry a label from now on."""
        if text in self._lists:
            return
        if len(self._lists) >= LISTS:
            waiting = [r.job.constraint for r in self._table.values() if r.phase == "pending"]
            used = {k.partition(":")[2] for c in waiting for k in c if k.startswith(LISTED)}
            self._lists = {k: v for k, v in self._lists.items() if k in used}
        if len(self._lists) < LISTS and (names := expand(text)) is not None:
            self._lists[text] = names
            self._nodes = [self._listed(node) for node in self._nodes]

    def jobs(self) -> list[engine.Status]:
        if time.monotonic() >= self._seen + self._pace:
            self._read_table()
        return list(self._gangs().values())

    def held(self) -> dict[str, str]:
        """Jobs that are left alone, and why."""
        return {self._components(name)[0]: text for name, text in self._left_alone.items()}

    def place(self, job: str, attempt: int, placed: Sequence[engine.Placed]) -> None:
        """Require the nodes, then release the job."""
        row = self._recent(job)
        parts = self._components(job)
        if row is None or not all(self._is_free(part, attempt) for part in parts):
            text = self._left_alone.get(job, f"there is no such job in partition {self.partition}")
            raise Rejected(f"job {job} cannot be placed: {text}")
        # Sent again after a crash: the same nodes are accepted, others are not.
        if row.attempt == attempt and row.phase in ("placed", "running"):
            if {(p.node, p.group) for p in row.placed} == {(p.node, p.group) for p in placed}:
                return
            raise Rejected(f"attempt {attempt} of job {job} is on other nodes")
        try:
            engine.check_placement(row, placed, self._nodes, self._table.values())
            if attempt < row.attempt:
                text = f"job {job} was placed {row.attempt} times; {attempt} is no new attempt"
                raise Rejected(text)
            mine = {part: [p for p in placed if p.group == g] for g, part in enumerate(parts)}
            changes = {part: self._change_to(part, attempt, mine[part]) for part in parts}
            self._mark_and_release(job, changes)
        except Rejected:
            self._wait_again(parts, attempt)
            raise
        # At once, so that the next placement counts these devices as taken.
        for part in parts:
            where = tuple(p._replace(group=0) for p in mine[part])
            ours: dict[str, Any] = {"attempt": attempt, "placed": where, "foreign": False}
            self._table[part] = replace(self._table[part], phase="placed", **ours)

    def _mark_and_release(self, job: str, changes: Mapping[str, Sequence[Any]]) -> None:
        """First the marks and the nodes: killed before the release, the mark tells of it."""
        try:
            for part, (mark, *change) in changes.items():
                self._change("update", f"jobid={self._target(part)}", *change)
                self._details[part] = self._details[part]._replace(mark=mark)
            self._change("release", job)
        except Rejected:
            self._unstarted[job] = self._unstarted.get(job, 0) + 1
            raise

    def _wait_again(self, parts: Sequence[str], attempt: int) -> None:
        """Hold what an attempt that was refused has marked: as it is, it looks held by hand."""
        for part in parts:
            mark = self._details[part].mark
            if mark.attempt == attempt and not (mark.state or mark.by_hand):
                with contextlib.suppress(EngineError):
                    self._hold(part)

    def _change_to(self, part: str, attempt: int, placed: Sequence[engine.Placed]) -> list[Any]:
        """The mark of a placement, and what ``scontrol update`` is to set."""
        run, wanted = self._details[part], sorted({p.node for p in placed})
        request = run.request
        if request.nodes not in (0, len(wanted)):
            raise Rejected(f"job {part} gets {len(wanted)} nodes, and asks for {request.nodes}")
        on, nodes = (
            ",".join(f"{p.node}:{p.tasks}" for p in placed),
            f"reqnodelist={','.join(wanted)}",
        )
        excluded = None
        if run.components[:1] == (part,):
            excluded = request.excluded
            # Of a leader, Slurm changes the excluded nodes only: all but those chosen are excluded.
            others = {node.name for node in self._nodes} - set(wanted)
            nodes = f"excnodelist={fold_nodes(others)}"
        request_nodes = request.required, request.nodes
        text = run.mark.text
        mark = Mark(attempt, run.restarts, on, *request_nodes, text=text, excluded=excluded)
        # One that was restarted was given a time two minutes ahead.
        return [mark, f"admincomment={mark}", nodes, *["starttime=now"] * bool(run.restarts)]

    def _components(self, job: str) -> tuple[str, ...]:
        """Ids of the components of a job, its leader first; its own where it has no others."""
        return (self._details[job].components if job in self._details else ()) or (job,)

    def _gangs(self) -> dict[str, engine.Status]:
        """The table, in which a heterogeneous job is one row once all its components are there."""
        leaders = (name for name in self._table if self._components(name)[0] == name)
        return {name: row for name in leaders if (row := self._gang(name)) is not None}

    def _gang(self, job: str) -> engine.Status | None:
        parts = self._components(job)
        if len(parts) == 1:
            return self._table.get(job)
        rows = [self._table[part] for part in parts if part in self._table]
        return together(rows) if len(rows) == len(parts) else None

    def _is_free(self, part: str, attempt: int) -> bool:
        return not self._table[part].foreign or self._is_half_placed(part, attempt)

    def _is_half_placed(self, job: str, attempt: int) -> bool:
        """Whether this attempt was written into a job that was then not released.

        It looks as if it were held by hand, but a hold by hand has a mark of its own.
        """
        mark = self._details[job].mark if job in self._details else NO_MARK
        by_hand = self._left_alone.get(job, "").endswith(HELD_BY_HAND)
        return by_hand and mark.attempt == attempt and not (mark.state or mark.by_hand)

    def preempt(self, job: str) -> None:
        self._read_table()
        row = self._gang(job)
        if row is not None and not row.foreign:
            if row.phase == "running":
                # The leader last: requeueing it takes the others along, with their marks written by
                # then.
                for part in reversed(self._components(job)):
                    self._requeue(part)
            elif row.phase == "placed":
                self._unstarted[job] = self._unstarted.get(job, 0) + 1
                for part in self._components(job):
                    self._hold(part)

    def cancel(self, job: str) -> None:
        row = self._recent(job)
        if row is not None and row.phase in engine.ENDED:
            return
        if row is None or row.foreign or self.watch:
            raise Rejected(f"there is no job {job} to cancel in partition {self.partition}")
        try:
            self._run("scancel", "--", job)
        except Refused as error:
            raise Rejected(str(error)) from None

    def detach(self) -> dict[str, str]:
        """Give the pending jobs back to Slurm, each as its user wrote it.

        Needs nothing but Slurm: what was asked for stands in the jobs' AdminComment. Killed at any
        line, it is completed by the next call. Who runs, runs on. Returns what became of each job.
        """
        outcomes: dict[str, str] = {}
        for row in self._json("squeue", "jobs", "--states=all"):
            mark = self.quarantine.read("job", str(row.get("job_id")), partial(Mark.of, row))
            states = set(_states(row))
            if mark is None or states.isdisjoint(("PENDING", "REQUEUED")) or states & ON_NODES:
                continue
            job, is_held = _id(row), number(row.get("priority"), 1) == 0
            # Held since it was placed, and not by us.
            by_hand = mark.by_hand or (is_held and mark.attempt > 0 and mark.state != "held")
            try:
                name = target(job, components(row))
                if is_held and not by_hand:
                    self._release_untouched(name, mark)
                # The mark goes last: killed before, the next call still knows what is to be undone.
                self._change("update", f"jobid={name}", f"admincomment={mark.text}", *mark.undone)
                outcomes[job] = "held, as it was by hand" if by_hand else "released"
            except Rejected as error:
                outcomes[job] = f"not released: {error}"
        return outcomes

    def survey(self) -> tuple[list[str], dict[str, str]]:
        """Remarks on the configuration, and why jobs would be left alone; changes nothing."""
        remarks, alone = [], {}
        printed = self._run("scontrol", "show", "config")
        config = dict(re.findall(r"(?m)^(\w+)\s*= (.*?)\s*$", printed))
        if "lua" not in json_words(config.get("JobSubmitPlugins")):
            remarks.append("JobSubmitPlugins has no lua: Slurm starts jobs, for nothing holds them")
        if config.get("PreemptType", "preempt/none") != "preempt/none":
            remarks.append(f"PreemptType={config['PreemptType']}: Slurm takes jobs off by itself")
        uid = os.getuid()
        if uid and f"({uid})" not in config.get("SlurmUser", ""):
            with contextlib.suppress(EngineError, KeyError):  # without accounts there are no levels
                about = ("show", "user", pwd.getpwuid(uid).pw_name, "format=adminlevel")
                if "Administrator" not in self._run("sacctmgr", "-nP", *about):
                    remarks.append(
                        "you are not a Slurm administrator: Slurm will refuse each placement"
                    )
        # Of one partition that it does not have, scontrol says so with exit code 1 and no error.
        partitions = self._run("scontrol", "-o", "show", "partition")
        if self.partition not in re.findall(r"^PartitionName=(\S+)", partitions, re.MULTILINE):
            remarks.append(f"there is no partition {self.partition}: give --set partition=NAME")
        for node, name in sorted(self._reservations().items()):
            remarks.append(f"no job is placed on node {node} while the reservation {name} holds")
        for row in self._json("squeue", "jobs"):
            if "PENDING" in _states(row) and self.partition in json_words(row.get("partition")):
                try:
                    reason = self._would_leave(row)
                except Exception as error:
                    reason = f"unreadable, because {type(error).__name__}: {error}"
                if reason:
                    alone[str(row.get("job_id"))] = engine.clean_text(reason)
        return remarks, alone

    def _would_leave(self, row: Mapping[str, Any]) -> str:
        """Reason to leave a pending job alone; empty where it would be placed."""
        mark = Mark.of(row)
        if len(json_words(row.get("partition"))) > 1:
            return "it names several partitions"
        if number(row.get("priority"), 1) == 0 and (mark is None or mark.by_hand):
            return HELD_BY_HAND
        return SlurmRequest.of(row, mark).why or waits_for(row, time.time())

    def events(self, timeout: float) -> list[engine.EngineEvent]:
        self._wait_for_lead(min(timeout, self.poll))
        until = time.monotonic() + timeout
        while True:
            due = self._looked + self._pace - time.monotonic()
            wait = until - time.monotonic()
            if due > wait:
                time.sleep(max(wait, 0.0))
                return []
            time.sleep(max(due, 0.0))
            events = self._look()
            if events or time.monotonic() >= until:
                return events

    # Inside

    @property
    def _pace(self) -> float:
        """Seconds between two looks at the queue."""
        return max(self.poll, PACE * self._listing_cost.seconds)

    def _recent(self, job: str) -> engine.Status | None:
        """A job's row of a table no older than a look, so that many placements share one."""
        if time.monotonic() >= self._seen + self._pace or job not in self._table:
            self.nodes()
            self._read_table(whole=False)  # a decision does not wait for what is new
        if job in self._outdated:
            self._read_table(whole=True)
        return self._gang(job)

    def _read_table(self, whole: bool | None = None) -> None:
        """The table as it is listed; by the JSON where that is asked for, or due."""
        listing = None
        with self._listing_cost, contextlib.suppress(Refused):  # an unknown field
            listing = self._listing.read()
        self._seen = time.monotonic()
        if listing is None:
            return self._read_whole()
        changed, removed = listing
        self._take_out(self._listing.jobs)
        for name in removed:
            self.quarantine.clear("job", name)
            for store in (self._rows, self._read_as):
                store.pop(name, None)
        self._outdated = {name for name in self._outdated | changed if self._is_outdated(name)}
        # Reading the JSON costs slurmctld what it costs here, so it is read for a share of the
        # time.
        wait = SHARE * self._whole_cost.seconds if self._outdated else WHOLE
        if self._seen >= self._whole_cost.began + wait if whole is None else whole:
            return self._read_whole()
        changed |= self._to_recheck | self._outdated
        self._to_recheck = set()
        for name in changed & self._rows.keys() & self._listing.jobs.keys():
            self.quarantine.read("job", name, partial(self._take_listed, name), (EngineError,))
        return None

    def _take_out(self, there: Mapping[str, Any]) -> None:
        """Take jobs out of the table that are no longer listed; first it says how they ended."""
        lost = [
            n for n, row in self._table.items() if n not in there and row.phase not in engine.ENDED
        ]
        ends = ends_of(lost, len(there), self._run) if lost else {}
        for name in self._table.keys() - there.keys():
            row = self._table.pop(name)
            if name in ends:
                phase, end = ends[name]
                self._table[name] = replace(row, phase=phase, ended=end, detail="")

    def _is_outdated(self, name: str) -> bool:
        row = self._listing.jobs.get(name)
        if row is None or (row.what[0] in PHASES and name in self._rows):
            return False
        return row.what != self._read_as.get(name)

    def _take_listed(self, name: str) -> None:
        """Status by the JSON as it was, and by what is listed now.

        On which nodes a job runs only the JSON tells, unless it was placed here.
        """
        listed = self._listing.jobs[name]
        row = {**self._rows[name], **listed.at}
        if listed.runs and self._read_as.get(name, ("",))[0] != "runs":
            # Placed here and not started again since: the mark tells where it runs.
            mark = Mark.of(row) or NO_MARK
            if self.watch or not mark.attempt or mark.restarts != row["restart_cnt"]:
                return
            self._where[name], row["job_resources"] = _where(mark), None
        if (status := self._status(row)) is None:
            self._table.pop(name, None)
        else:
            self._table[name] = status

    def _read_whole(self) -> None:
        """The table by the JSON; rows that are as they were are not looked at again."""
        recheck, self._to_recheck = self._to_recheck, set()
        rows: dict[str, Mapping[str, Any]] = {}

        def read(row: Mapping[str, Any]) -> engine.Status | None:
            name = _id(row)
            if (listed := self._listing.jobs.get(name)) is not None:  # what a job is at, twice read
                row = {**row, **listed.at}
            rows[name] = row
            if name in self._table and name not in recheck and row == self._rows.get(name):
                return self._table[name]
            return self._status(row)

        with self._whole_cost:
            listing = self._json("squeue", "jobs", "--states=all")
            self.quarantine.read_all("comment of job", listing, _work, _id)
            statuses = self.quarantine.read_all("job", listing, read, _id, self._table)
            # Rows of one job that differ cannot both be true: neither is believed.
            once = engine.distinct(statuses, lambda row: row.job.id, self.quarantine, "job")
            table = {row.job.id: row for row in once}
            self._take_out(rows)
            twice = {row.job.id for row in statuses} - table.keys()
            # What could not be read stays as it was; only a job that no list has is over.
            unread = {n: r for n, r in self._table.items() if n not in rows or n in twice}
            self._table, self._rows = unread | table, rows
        self._read_as = {name: listed.what for name, listed in self._listing.jobs.items()}
        self._outdated = set()

    def _look(self) -> list[engine.EngineEvent]:
        self.nodes()
        self._read_table()
        self._looked = self._seen
        up = {node.name: node.up for node in self._nodes}
        events, table = self._changes.look(self._gangs(), up), self._table
        for name in list(self._details):
            if name not in table:
                for store in (self._details, self._where, self._unstarted, self._doubts):
                    store.pop(name, None)
        self._left_alone = {name: text for name, text in self._left_alone.items() if name in table}
        return events

    def _ranks(self, row: engine.Status) -> tuple[engine.RankReport, ...]:
        if self.reports is None:
            return ()
        parts = [part for part in self._components(row.job.id) if part in self._details]
        runs = {part: self._details[part] for part in parts}
        ranks = sum(run.ranks for run in runs.values())  # they are numbered across components
        reports = (
            engine.read_reports(self.reports, part, run.restarts, ranks, run.owner)
            for part, run in runs.items()
        )
        return tuple(report for of_part in reports for report in of_part)

    def _status(self, row: Mapping[str, Any]) -> engine.Status | None:
        """Status from a row of ``squeue``; None for a job that is not to be placed yet."""
        name = _id(row)
        foreign = str(row.get("partition")) != self.partition and not self.watch
        states = _states(row)
        is_held = number(row.get("priority"), 1) == 0
        restarts = number(row.get("restart_cnt"), 0)
        mark = Mark.of(row) or NO_MARK
        attempt = mark.attempt
        try:
            request = SlurmRequest.of(row, mark)
            job = self.job(name, row, request)
        except Exception:
            if (earlier := self._table.get(name)) is None:
                raise
            job, request = earlier.job, self._details[name].request  # as it was submitted
        ranks = request.ranks * request.tasks
        owner, parts = _owner(row), components(row)
        self._details[name] = JobDetails(restarts, ranks, owner, request, mark, parts)
        # Slurm writes 0 for none.
        started = float(number(row.get("start_time"), 0)) or math.nan
        ended = float(number(row.get("end_time"), 0)) or math.nan
        detail = " ".join(json_words(row.get("state_reason")))
        detail = "" if detail == "None" else detail
        if "PENDING" not in states:
            self._left_alone.pop(name, None)
        if any(state in ON_NODES for state in states):
            placed = allocation(row, job) or self._where.get(name, ())
            self._where[name] = placed
            if not self.watch and not attempt:
                foreign = True  # Slurm's own scheduler, or an administrator, has placed it
            elif restarts > mark.restarts and not foreign and "RUNNING" in states:
                with contextlib.suppress(Rejected):
                    self._requeue(name)  # Slurm started it again by itself
            # It runs, so that it was placed at least once.
            attempt = max(attempt, 1)
            return engine.Status(job, "running", attempt, placed, started, foreign=foreign)
        if "PENDING" in states or "REQUEUED" in states:
            if self.watch:
                unknown = name not in self._table
                by_hand = is_held and unknown and (mark is NO_MARK or mark.by_hand)
                waits = by_hand or self._waits_for(row)  # for what no scheduler can give
                return None if waits else engine.Status(job, "pending", attempt, detail=detail)
            if foreign:
                return engine.Status(job, "pending", attempt, detail=detail, foreign=True)
            # A job that slurmctld holds after a failed launch keeps our mark, but counts one
            # restart more.
            placed_here = is_held and attempt and not (mark.state or mark.by_hand)
            if placed_here and restarts > mark.restarts and _was_not_launched(row):
                with contextlib.suppress(Rejected):
                    self._hold(name)
                reason = "Slurm could not launch it"
                return engine.Status(job, "pending", attempt, detail=reason, cause="node_failed")
            if (reason := self._why_alone(row, job, mark, is_held)) and (is_held or not attempt):
                self._left_alone[name] = f"left alone: {reason}"
                return engine.Status(job, "pending", attempt, detail=reason, foreign=True)
            self._left_alone.pop(name, None)
            if is_held:
                return engine.Status(job, "pending", attempt, detail=detail)
            # As many restarts as when it was placed: it has not started since, so it is still
            # placed.
            if restarts == mark.restarts:
                return engine.Status(job, "placed", attempt, _where(mark), detail=detail)
            with contextlib.suppress(Rejected):
                self._hold(name)  # Slurm requeued it after a node died, on its old nodes
            return engine.Status(job, "pending", attempt, detail="a node died", cause="node_failed")
        phase: engine.Phase | None = next(
            (PHASES[state] for state in states if state in PHASES), None
        )
        if phase is None:
            raise engine.Malformed(f"its state is {engine.quoted(row.get('job_state'))}")
        # The start of a job that never ran is a forecast, later than its end.
        began = attempt > 0 and started <= ended
        placed = self._where.get(name, ())
        code = _exit_code(row.get("exit_code"))
        reason = f"exit code {code}" if phase == "failed" and code else detail
        times = (started if began else math.nan, ended)
        foreign = foreign or not (attempt or self.watch)
        attempt = attempt or (1 if foreign or self.watch else 0)
        return engine.Status(job, phase, attempt, placed, *times, reason, foreign)

    def _why_alone(
        self, row: Mapping[str, Any], job: engine.EngineJob, mark: Mark, held: bool
    ) -> str:
        """Reason why a pending job is left alone; empty where it is placed here, or is to be.

        One that only this engine or ``job_submit.lua`` holds is then released, untouched.
        """
        earlier = self._left_alone.get(job.id, "").removeprefix("left alone: ")
        earlier = earlier or "Slurm's own scheduler has it"
        if not held:
            return "" if mark.attempt else earlier
        if mark is NO_MARK or mark.by_hand or (mark.attempt and mark.state != "held"):
            return HELD_BY_HAND
        if mark.state == "left":  # the service that left it was killed before the release
            with contextlib.suppress(Rejected):
                self._release_untouched(self._target(job.id), mark)
            return earlier
        if reason := self._waits_for(row):
            return reason
        # Slurm starts components together: one that is left to it takes the others along.
        siblings = [part for part in self._components(job.id) if part in self._left_alone]
        reason, patience = self._details[job.id].request.why, CERTAIN
        if not reason and self._unstarted.get(job.id, 0) >= UNSTARTED:
            reason, patience = f"Slurm did not start it where it was placed, {UNSTARTED} times", 0.0
        if not reason and self._nodes and not self._could_fit(job):
            reason = "no nodes of the partition are large enough for it, as it is modelled"
            patience = UNFIT
        if not reason and any(self._details[part].mark.state == "left" for part in siblings):
            reason, patience = "another component of it is left alone", 0.0
        if not reason:
            self._doubts.pop(job.id, None)
        elif self._is_certain(job.id, reason, patience):
            with contextlib.suppress(Rejected):
                self._release_untouched(self._target(job.id), mark)
            return f"{reason}: Slurm's own scheduler has it"
        return reason

    def _is_certain(self, job: str, why: str, patience: float) -> bool:
        """Whether a reason to give a job away has been read again, after so many seconds.

        Once released, the job is Slurm's: one reply that is wrong must not do it.
        """
        at = time.monotonic()
        reason, since = self._doubts.get(job, ("", at))
        since = since if reason == why else at
        self._doubts[job] = why, since
        if at >= since + patience:
            return True
        self._to_recheck.add(job)
        self._read_as.pop(job, None)  # so that the JSON is read again
        return False

    def _waits_for(self, row: Mapping[str, Any]) -> str:
        if (reason := waits_for(row, time.time())) == LATER:
            self._to_recheck.add(_id(row))
        return reason

    def _could_fit(self, job: engine.EngineJob) -> bool:
        """Whether the job fits on its nodes if they were empty and up."""
        seats = 0
        for node in self._nodes:
            if all(node.labels.get(k) == v for k, v in job.constraint.items()):
                room = (node.devices.get(k, 0) // v for k, v in job.demand.items() if v)
                seats += min(min(room), job.per_node or job.tasks)
            if seats >= job.tasks:
                return True
        return False

    def job(self, name: str, row: Mapping[str, Any], request: SlurmRequest) -> engine.EngineJob:
        minutes, work = number(row.get("time_limit"), 0), math.nan
        with contextlib.suppress(engine.Malformed):
            work = _work(row)
        fields = {"name": "name", "user": "user_name", "account": "account", "comment": "comment"}
        kind = row.get(fields[self.job_type])
        deadline = number(row.get("deadline"), 0)
        submitted, eligible = (number(row.get(f"{w}_time"), 0) for w in ("submit", "eligible"))
        # Time in which it was held, or was not to begin, is no waiting.
        if submitted < eligible <= time.time():
            submitted = eligible
        constraint: dict[str, str] = {}
        for word in filter(None, str(row.get("features") or "").split("&")):
            label, value = self._values.get(word, word), word if word in self._values else "yes"
            present = constraint.setdefault(label, value)
            if present != value:
                constraint[label] = f"{present}&{value}"  # which no node has
        tres = ",".join(str(row.get(f"tres_per_{unit}") or "") for unit in ("node", "task", "job"))
        for device, named in types_of(tres).items():
            if named - {""}:
                constraint[f"type of {device}"] = ",".join(sorted(named))
        if not self.watch:
            for label, text in zip(LISTED, (request.required, request.excluded), strict=True):
                if text:
                    self._add_node_list(text)
                    constraint[label + text] = "yes"
        user = str(row.get("user_name") or row.get("user_id") or "")
        demand = {k: 1000 * v for k, v in request.demand.items()}
        gang = (request.tasks, demand, request.per_node, constraint)
        ends = (60.0 * minutes or math.inf, float(deadline) or math.inf)
        return engine.EngineJob(
            name, str(kind or "job"), user, float(submitted), *gang, *ends, work=work
        )

    def _json(self, program: str, key: str, *options: str) -> list[Mapping[str, Any]]:
        text = self._run(program, "--json", *options)
        try:
            # Users can give a job control characters, which Slurm's JSON has as they are.
            rows = json.loads(text, strict=False)[key]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise EngineError(f"{program} --json does not print Slurm's JSON: {error}") from None
        if not isinstance(rows, list):
            raise EngineError(f"{program} --json has no list of {key}")
        return rows

    def _change(self, *words: str) -> None:
        """Run ``scontrol``; a job that is not there any more, or refused, is a rejection.

        Where this user may change no jobs, that is an EngineError.
        """
        if self.watch:
            raise Rejected(f"scontrol {words[0]} changes the cluster, which is only watched")
        self._check_lead()
        name = words[1].removeprefix("jobid=").partition("+")[0]
        # Read again, whatever comes of the change: it may fail half-way.
        self._to_recheck.update(self._components(name))
        try:
            self._run("scontrol", "--", *words)
        except Refused as error:
            if error.code == DENIED:  # whatever the job is
                raise
            raise Rejected(str(error)) from None

    def _hold(self, job: str) -> None:
        """Hold a job that was placed; its request is as the user wrote it."""
        mark, name = replace(self._details[job].mark, state="held"), self._target(job)
        self._change("update", f"jobid={name}", "priority=0", f"admincomment={mark}", *mark.undone)

    def _requeue(self, job: str) -> None:
        """Take a running job off its nodes, and hold it; components go with their leader."""
        mark = replace(self._details[job].mark, state="held")
        self._change("update", f"jobid={self._target(job)}", f"admincomment={mark}")
        if self._components(job)[0] == job:
            self._change("requeuehold", job)

    def _target(self, job: str) -> str:
        return target(job, self._details[job].components)

    def _release_untouched(self, job: str, mark: Mark) -> None:
        """Leave a job, as ``scontrol`` is told of it, to Slurm, as its user wrote it."""
        new_mark = Mark(state="left", text=mark.text)
        # The mark before the release: a service that finds it completes the rest.
        self._change("update", f"jobid={job}", f"admincomment={new_mark}", *mark.undone)
        self._change("release", job)
        if (run := self._details.get(job.partition("+")[0])) is not None:
            self._details[job.partition("+")[0]] = run._replace(mark=new_mark)

    @property
    def answered(self) -> float:
        """Moment up to which all commands were answered, by :func:`.clock`; inf where all are."""
        return self._silent_since

    def _run(self, *command: str, more: Mapping[str, str] | None = None) -> str:
        environment = {**self._environment, **more} if more else self._environment
        # From the first command that is not answered.
        self._silent_since = min(self._silent_since, background.clock())
        try:
            text = run(command, environment, CHANGE if command[0] in BRIEF else COMMAND)
        except Refused:
            self._silent_since = math.inf
            raise
        self._silent_since = math.inf
        return text


class JobDetails(NamedTuple):
    """Details last read of a job, beside its row of the table."""

    restarts: int  # how often it was restarted
    ranks: int
    owner: int | None  # uid of its user
    request: SlurmRequest
    mark: Mark
    components: tuple[str, ...]  # of the heterogeneous job that it is a part of; else none


NO_MARK = Mark()


def together(rows: Sequence[engine.Status]) -> engine.Status:
    """The row of a heterogeneous job, from those of its components, its leader first."""
    lead, phases = rows[0], [row.phase for row in rows]
    limit = max(row.job.limit for row in rows)
    about = {"id": lead.job.id, "job_type": lead.job.job_type, "user": lead.job.user}
    job = engine.EngineJob.of_groups(
        (group for row in rows for group in row.job.parts),
        **about,
        submitted=max(row.job.submitted for row in rows),
        limit=limit,
        deadline=min(row.job.deadline for row in rows),
        priority=lead.job.priority,
        work=lead.job.work,
        apart=True,
    )
    # Between two looks some have started, or ended: it runs once all do, and until all have ended.
    if all(phase in engine.ENDED for phase in phases):
        # The worst end of a component is that of the gang.
        order: tuple[engine.Phase, ...] = ("killed", "failed", "cancelled", "finished")
        phase = min(phases, key=order.index)
    elif "pending" in phases:
        phase = "pending" if set(phases) == {"pending"} else "placed"
    else:
        phase = "placed" if "placed" in phases else "running"
    return engine.Status(
        job,
        phase,
        max(row.attempt for row in rows),
        tuple(p._replace(group=g) for g, row in enumerate(rows) for p in row.placed),
        float(np.max([row.started for row in rows])),  # NaN where one has not started
        float(np.max([row.ended for row in rows])),
        "; ".join(dict.fromkeys(row.detail for row in rows if row.detail)),
        any(row.foreign for row in rows),
        next((row.cause for row in rows if row.cause != "released"), "released"),
    )


def labels_of(labels: Mapping[str, Sequence[str]] | str | None) -> Mapping[str, Sequence[str]]:
    """Label → its values.

    >>> labels_of("model=a100/v100;rack=r1")
    {'model': ['a100', 'v100'], 'rack': ['r1']}
    """
    if not isinstance(labels, str):
        return labels or {}
    values_of = {}
    for word in labels.split(";"):
        label, _, values = word.partition("=")
        if not label or not values:
            raise ScenarioError(f"labels: {word!r}; write label=value/value, joined by ;")
        values_of[label] = values.split("/")
    return values_of


def _was_not_launched(row: Mapping[str, Any]) -> bool:
    """Whether Slurm took a job off its nodes and holds it, for they could not begin it.

    After a few such failures it is left to its user, as Slurm's own scheduler leaves it.
    """
    text = str(row.get("state_description") or "").replace("_", " ")
    return text.startswith("launch failed") and int(number(row.get("restart_cnt"), 0)) <= LAUNCHES


def _where(mark: Mark) -> tuple[engine.Placed, ...]:
    pieces = (word.rpartition(":") for word in mark.on.split(","))
    return tuple(engine.Placed(node, int(tasks)) for node, _, tasks in pieces)


def allocation(row: Mapping[str, Any], job: engine.EngineJob) -> tuple[engine.Placed, ...]:
    """Allocation of a job: tasks and GPUs on each node, from ``job_resources``."""
    resources = row.get("job_resources") or {}
    listed = resources.get("allocated_nodes")
    if listed is None and isinstance(resources.get("nodes"), Mapping):
        listed = resources["nodes"].get("allocation")
    details = [str(word) for word in row.get("gres_detail") or ()]
    pieces = []
    for i, node in enumerate(listed or ()):
        cpus = node.get("cpus_used")
        if cpus is None:
            cpus = node.get("cpus") or {}
            cpus = cpus.get("used") or cpus.get("count") if isinstance(cpus, Mapping) else cpus
        # Slurm lists CPUs by node, and no tasks.
        tasks = max(number(cpus, 1) * 1000 // max(job.demand.get("cpu", 1000), 1), 1)
        numbers: tuple[int, ...] = ()
        if i < len(details) and (index := re.search(r"IDX:([0-9,-]+)", details[i])):
            numbers = tuple(sorted(map(int, expand(f"[{index[1]}]") or ())))
            if gpus := job.demand.get("gpu", 0) // 1000:
                tasks = max(len(numbers) // gpus, 1)
        name = str(node.get("nodename") or node.get("name"))
        pieces.append(engine.Placed(name, min(tasks, job.tasks), numbers))
    return tuple(pieces)


def _id(row: Mapping[str, Any]) -> str:
    return str(engine.whole(number(row.get("job_id"), 0), "its id", 1, 2**32))


def _states(row: Mapping[str, Any]) -> list[str]:
    return [word.upper() for word in json_words(row.get("job_state"))]


def _owner(row: Mapping[str, Any]) -> int | None:
    uid = number(row.get("user_id"), -1)
    if uid < 0:
        with contextlib.suppress(KeyError, ValueError, TypeError):
            return pwd.getpwnam(row["user_name"]).pw_uid
    return uid if uid >= 0 else None


def _work(row: Mapping[str, Any]) -> float:
    """The work that a job's comment declares, in seconds; NaN for none."""
    comment = row.get("comment")
    match = re.search(r"\bwork=([^\s,;]+)", comment) if isinstance(comment, str) else None
    if match is None:
        return math.nan
    if not re.fullmatch(r"\d{1,15}(\.\d{0,15})?", match[1], re.ASCII):
        raise engine.Malformed(f"work={engine.quoted(match[1])} is not a number of seconds")
    return float(match[1])


def _exit_code(value: Any) -> int:
    """The exit code: from 23.02 on in ``return_code``, before that in the upper byte."""
    if isinstance(value, Mapping) and "return_code" in value:
        return number(value["return_code"], 0)
    code = number(value, 0)
    return code >> 8 if code > 255 else code
