"""The live loop: events in, a round of decisions, intents on the disk, and only then the cluster.

One tick: take in what happened; let the scheduler decide; commit the journal and the intents; act
on them. Killed at any line, the service restarts from checkpoint and journal, tells the cluster
again what it had not heard (placing an attempt twice starts it once), and holds its books against
the cluster's table.

What goes wrong is named in ``health``: a cluster that does not answer is asked again and nothing
is decided meanwhile; while the file is locked or the disk full nothing is acted upon, and what
happened is kept in memory; a clock that steps back does not.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import queue
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from gangwise import __version__
from gangwise.core.checkpoints import read_checkpoint, write_checkpoint
from gangwise.core.errors import EngineError, Rejected, StoreError, UnknownName
from gangwise.engines.engine import ENDED, Engine, EngineEvent, EngineNode, Status
from gangwise.service.ledger import Intent, Known, Ledger, Record
from gangwise.service.store import Store

FILE = "service.sqlite"
CHECKPOINT = "ledger.checkpoint"
SHOWN = 200
"""Waiting jobs whose explanation is kept for whoever looks."""
RATES = 20_000
"""Believed rates that are shown."""
EXPLAINING = 0.05
"""Seconds a second spent on explanations, at most."""
FORGET = 7 * 86_400.0
"""Seconds after which a node that is gone is forgotten."""


class Clock:
    """Seconds since 1970 that never go back, whatever the machine's clock does."""

    def __init__(
        self,
        not_before: float = 0.0,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ):
        self._wall, self._monotonic = wall, monotonic
        self._start = max(wall(), not_before)
        self._zero = monotonic()

    def now(self) -> float:
        """The time."""
        return self._start + self._monotonic() - self._zero

    def ahead(self) -> float:
        """Seconds by which it is ahead of the machine's clock."""
        return self.now() - self._wall()


class Service:
    """A scheduler beside a cluster.

    Parameters
    ----------
    engine : Engine
    folder : path
        Where it keeps what it knows; one service at a time.
    scheduler : str or Scheduler
    act : bool
        Place jobs; otherwise only watch.
    baseline, every
        Every ``every``-th job goes where the baseline wants it (0: none).
    rates : mapping, optional
        Declared rate of nodes by ``label=value``.
    reconcile : float
        Seconds between comparisons with the cluster's table.
    start_timeout : float
        Seconds after which a placement that was accepted and has not started is taken back.
    grace : float
        Seconds for which books and table may differ before the table is believed.
    checkpoint : float
        Seconds between checkpoints.
    account : float
        Seconds between accounts of what would have been saved (0: none), each made by a process of
        its own.
    keep : float
        Seconds for which the journal and the history are kept.
    """

    def __init__(
        self,
        engine: Engine,
        folder: Path | str,
        scheduler: Any = "fcfs+easy+learned:depth=100",
        *,
        act: bool = False,
        baseline: Any = "fcfs+easy+best-fit",
        every: int = 0,
        rates: Mapping[str, float] | None = None,
        reconcile: float = 3.0,
        start_timeout: float = 60.0,
        grace: float = 5.0,
        checkpoint: float = 60.0,
        account: float = 0.0,
        keep: float = 30 * 86_400.0,
        clock: Callable[[float], Clock] = Clock,
    ):
        self.engine = engine
        self.scheduler = scheduler if isinstance(scheduler, str) else type(scheduler).__name__
        self.folder = Path(folder)
        self.reconcile, self.start_timeout, self.grace = reconcile, start_timeout, grace
        self.checkpoint, self.account, self.keep = checkpoint, account, keep
        self._forgot = -math.inf
        self._accountant: subprocess.Popen[str] | None = None
        self._accounted = -math.inf
        self.folder.mkdir(parents=True, exist_ok=True)
        self._asked: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._lock = _locked(self.folder / "lock")
        self.store = Store(self.folder / FILE)
        self.ledger = Ledger(scheduler, baseline, every, dict(rates or {}), act)
        self.run = {
            "scheduler": repr(self.ledger.scheduler),
            "baseline": repr(self.ledger.baseline),
            "every": every,
            "rates": dict(rates or {}),
            "act": act,
        }
        self.troubles: dict[str, tuple[float, str]] = {}
        self.notes: list[str] = []
        self.counts = {"rounds": 0, "placed": 0, "rejected": 0, "undone": 0, "events": 0}
        self.round_seconds = 0.0
        self.views: dict[str, Any] = {}
        self._reasons: dict[str, dict[str, Any]] = {}
        self._unsaved: list[tuple[int, Record]] = []
        self._intents: list[tuple[float, Intent]] = []
        self._states: list[tuple[str, float, str, str, int, str]] = []
        self._history: list[Any] = []
        self._todo: dict[tuple[str, str, int], Intent] = {}
        at_once = engine.capabilities.at_once
        self._placers = ThreadPoolExecutor(at_once) if at_once > 1 else None
        self._accepted: dict[tuple[str, int], float] = {}
        self._late: set[tuple[str, int]] = set()
        self._odd: dict[tuple[str, str, int], float] = {}
        self._gone: dict[str, tuple[float, EngineNode]] = {}
        self._compared = self._shown = self._saved = self._rated = -math.inf
        self._open_at = -math.inf
        settings = {**self.run, "scheduler": self.scheduler, "baseline": str(baseline)}
        self.store.commit(about=[("settings", json.dumps(settings))])
        self._recover()
        self.clock = clock(self.ledger.now)

    # -------------------------------------------------------------------------------- living

    def tick(self, timeout: float = 0.5) -> None:
        """Once round: events, decisions, intents on the disk, the cluster told."""
        reachable = self._take_in(timeout)
        now = self.clock.now()
        self._obey(now)
        due = self.ledger.changed or self.ledger.due() <= now
        if reachable and due and "database" not in self.troubles:
            self._decide(now)
        if self._save(now) and reachable:
            self._act()
        self._publish()

    def serve(self, stop: Callable[[], bool], timeout: float = 0.5) -> None:
        """Tick until told to stop."""
        while not stop():
            self.tick(timeout)

    def ask(self, what: str, value: Any) -> None:
        """An operator's wish, from any thread: ``cancel``, ``pause``, or baseline ``every``."""
        self._asked.put((what, value))

    def _obey(self, now: float) -> None:
        """What operators asked for; a wish is a record, so that it is there after a restart."""
        while not self._asked.empty():
            what, value = self._asked.get()
            if what != "cancel":
                self._tell(what, now, value)
                continue
            try:
                self.engine.cancel(value)
                self.notes = [*self.notes[-20:], f"job {value}: cancelled by an operator"]
            except EngineError as error:
                self.notes = [*self.notes[-20:], f"job {value}: not cancelled: {error}"]

    def close(self) -> None:
        """Save and let go; jobs run on."""
        try:
            if self._save(self.clock.now()):
                self._keep()
        finally:
            if self._accountant is not None:
                self._accountant.kill()
                self._accountant.communicate()
            if self._placers is not None:
                self._placers.shutdown(cancel_futures=True)
            self.store.close()
            self.engine.close()
            os.close(self._lock)

    # ------------------------------------------------------------------------------- recovery

    def _recover(self) -> None:
        """Checkpoint, then the journal since; then what was intended and perhaps not done."""
        after = 0
        path = self.folder / CHECKPOINT
        if path.exists():
            try:
                (self.ledger, after), _ = read_checkpoint(path, self.run)
            except StoreError as error:
                self.notes.append(f"the checkpoint is not used, the journal is: {error}")
        if after > self.store.last():
            self.notes.append("the journal is older than the checkpoint: the cluster's table holds")
        for _, record in self.store.records(after):
            self.ledger.apply(record)
        self.seq = max(after, self.store.last())
        self.ledger.taken()
        now = self.ledger.now
        for row in self.store.open_intents():
            known = self.ledger.jobs.get(row["job"])
            key = row["job"], int(row["attempt"])
            if known is None or known.attempt != key[1] or known.phase == "waiting":
                state = ("undone", now, row["kind"], *key, "found undone at a restart")
                self._states.append(state)
            elif row["state"] == "intended":
                placed = known.placed
                self._todo[row["kind"], *key] = Intent(row["kind"], *key, placed, row["by"])
            elif row["kind"] == "place":
                self._accepted[key] = float(row["accepted"] or now)

    def _keep(self) -> None:
        """A checkpoint, so that a restart need not read the whole journal."""
        try:
            write_checkpoint(self.folder / CHECKPOINT, (self.ledger, self.seq), self.run)
            self._saved = now = self.clock.now()
            self._well("checkpoint")
            if now >= self._forgot + 86_400.0:
                self._forgot = now
                self.store.forget(self.seq, now - self.keep)
        except StoreError as error:
            self._ill("checkpoint", error)

    # ------------------------------------------------------------------------------- taking in

    def _take_in(self, timeout: float) -> bool:
        """Events, and now and then the whole table. False when the cluster does not answer."""
        try:
            events = self.engine.events(timeout)
            now = self.clock.now()
            new = any(e.kind == "submitted" and not self._is_known(e.job) for e in events)
            nodes = any(e.node for e in events)
            compare = now >= self._compared + self.reconcile or "engine" in self.troubles
            if nodes or compare:
                self._take_in_nodes(self.engine.nodes(), now)
            table = {row.job.id: row for row in self.engine.jobs()} if new or compare else {}
            for row in table.values():
                if not self._is_known(row.job.id):
                    self._take_in_new(row, now)
            for event in events:
                self._take_in_event(event, now)
                if event.kind == "started" and not self.engine.capabilities.exact_split:
                    self._compared = -math.inf  # the table tells how tasks are divided
            if compare:
                self._compare(table, now)
                self._compared = now
            self._well("engine")
            return True
        except EngineError as error:
            self._ill("engine", error)
            time.sleep(min(timeout, 1.0))
            return False

    def _is_known(self, job: str) -> bool:
        return job in self.ledger.jobs or job in self.ledger.over

    def _tell(self, *record: Any) -> None:
        """A record reaches the ledger, and will be saved."""
        self.seq += 1
        self.ledger.apply(record)
        self._unsaved.append((self.seq, record))

    def _take_in_nodes(self, nodes: Iterable[EngineNode], now: float) -> None:
        there = {node.name: node for node in nodes}
        for name, host in self.ledger.hosts.items():
            if name not in there:
                since = self._gone.setdefault(name, (now, host))[0]
                used = any(p.node == name for k in self.ledger.jobs.values() for p in k.placed)
                if used or now - since < FORGET:
                    there[name] = EngineNode(name, host.devices, host.labels, False, "gone")
            else:
                self._gone.pop(name, None)
        if there != self.ledger.hosts:
            rows = [(n.name, n.devices, n.labels, n.up, n.reason) for n in there.values()]
            self._tell("nodes", now, [list(_plain(row)) for row in rows])

    def _take_in_new(self, row: Status, now: float) -> None:
        """A job that was not known: it waits, or others placed it, or it came and went."""
        name = row.job.id
        ours = self.ledger.act and not row.foreign
        if self.ledger.act and row.foreign and row.phase == "pending":
            return
        if row.phase in ENDED and (self.ledger.act or math.isnan(row.started)):
            return
        self._tell("job", now, _plain(vars(row.job)))
        if row.phase != "pending":
            self._tell("found", now, name, row.attempt, _plain(row.placed))
            if ours:
                self._accepted[name, row.attempt] = now
        if row.phase not in ("pending", "placed"):
            self._tell("started", now, name, row.attempt)
        if row.phase in ENDED:
            times = (row.started, row.ended)
            self._tell("ended", now, name, row.phase, row.attempt, [], *times)

    def _take_in_event(self, event: EngineEvent, now: float) -> None:
        known = self.ledger.jobs.get(event.job)
        if known is None:
            return
        self.counts["events"] += 1
        name, attempt = event.job, event.attempt
        if event.kind == "started":
            if known.phase == "waiting":
                return  # the table says where it runs
            self._tell("started", now, name, attempt)
            self._state("started", name, attempt)
        elif event.kind == "measured":
            self._tell("measured", now, name, attempt, _plain(event.ranks))
        elif event.kind == "preempted":
            if known.phase != "waiting" and attempt >= known.attempt:
                self._taken_off(known, attempt, event.detail, now)
        elif event.kind in ENDED:
            self._tell("ended", now, name, event.kind, attempt, _plain(event.ranks))
            self._state("ended", name, attempt, f"{event.kind} {event.detail}".strip())

    def _taken_off(self, known: Known, attempt: int, why: str, now: float) -> None:
        name = known.asked.id
        if (name, attempt) in self._late:
            why = f"accepted, and not started within {self.start_timeout:g} s"
            self._tell("rejected", now, name, attempt, why)
            self.counts["undone"] += 1
        else:
            self._tell("back", now, name, attempt, why)
        self._state("undone", name, attempt, why)
        self._late.discard((name, attempt))
        for kind in ("place", "preempt"):
            self._todo.pop((kind, name, attempt), None)

    def _compare(self, table: Mapping[str, Status], now: float) -> None:
        """The cluster's table against the books. What it says counts, if it says so for long."""
        odd: dict[tuple[str, str, int], float] = {}

        def lasting(name: str, what: str, attempt: int) -> bool:
            key = name, what, attempt
            odd[key] = self._odd.get(key, now)
            return now - odd[key] >= self.grace

        for known in list(self.ledger.jobs.values()):
            name, attempt = known.asked.id, known.attempt
            row = table.get(name)
            if row is None:
                if lasting(name, "missing", attempt):
                    outcome = "cancelled" if known.phase == "waiting" else "failed"
                    self._tell("ended", now, name, outcome, attempt, [])
                    self._state("ended", name, attempt, "the cluster no longer knows it")
            elif row.phase in ENDED:
                if lasting(name, row.phase, row.attempt):
                    at = max(attempt, row.attempt)
                    self._tell("ended", now, name, row.phase, at, [])
                    self._state("ended", name, at, row.phase)
            elif row.phase == "pending":
                waits = known.phase == "waiting" or ("place", name, attempt) in self._todo
                if not waits and lasting(name, "not placed", row.attempt):
                    self._taken_off(known, attempt, row.detail or "the cluster let it go", now)
            elif known.phase == "waiting":
                if lasting(name, "placed", row.attempt) or not self.ledger.act or row.foreign:
                    self._tell("found", now, name, row.attempt, _plain(row.placed))
                    if row.phase == "running":
                        self._tell("started", now, name, row.attempt)
            elif row.attempt == attempt:
                if known.phase == "placed" and row.phase == "running":
                    self._tell("started", now, name, attempt)
                    self._state("started", name, attempt)
                if row.placed and row.phase == "running" and _split(row) != _split(known):
                    self._tell("moved", now, name, attempt, _plain(row.placed))
        self._odd = odd

    # ------------------------------------------------------------------------------- deciding

    def _decide(self, now: float) -> None:
        began = time.process_time()
        self.seq += 1
        self.ledger.apply(("round", now))
        self.round_seconds = time.process_time() - began
        self.counts["rounds"] += 1
        intents, ended = self.ledger.taken()
        self._history += ended
        self._intents += [(now, intent) for intent in intents]
        decided = [[i.kind, i.job, i.attempt, _plain(i.placed), i.by] for i in intents]
        self._unsaved.append((self.seq, ("round", now, decided)))
        for intent in intents:
            self._todo[intent.kind, intent.job, intent.attempt] = intent

    def _state(self, state: str, job: str, attempt: int, detail: str = "", kind: str = "") -> None:
        for each in (kind,) if kind else ("place", "preempt") if state != "started" else ("place",):
            self._states.append((state, self.ledger.now, each, job, attempt, detail))

    # --------------------------------------------------------------------- saving, then acting

    def _save(self, now: float) -> bool:
        """Commit all that is new; False when it cannot be."""
        _, ended = self.ledger.taken()
        self._history += ended
        if not (self._unsaved or self._intents or self._states or self._history):
            return "database" not in self.troubles
        try:
            self.store.commit(self._unsaved, self._intents, self._states, self._history)
        except StoreError as error:
            self._ill("database", error)
            return False
        self._well("database")
        self._unsaved, self._intents, self._states, self._history = [], [], [], []
        if now >= self._saved + self.checkpoint:
            self._keep()
        return True

    def _act(self) -> None:
        """Tell the cluster what is intended, all of which is on the disk."""
        due = []
        for key, intent in list(self._todo.items()):
            known = self.ledger.jobs.get(intent.job)
            if known is None or known.attempt != intent.attempt or known.phase == "waiting":
                del self._todo[key]
            else:
                due.append(intent)
        each = map if self._placers is None else self._placers.map
        for intent, refusal in zip(due, each(self._carry_out, due), strict=True):
            if isinstance(refusal, Rejected):
                self.counts["rejected"] += 1
                self._tell("rejected", self.clock.now(), intent.job, intent.attempt, str(refusal))
                self._state("rejected", intent.job, intent.attempt, str(refusal), "place")
            elif refusal is not None:  # stays to be done
                self._ill("engine", refusal)
                if self._placers is None:
                    return
                continue
            else:
                if intent.kind == "place":
                    self._accepted[intent.job, intent.attempt] = self.clock.now()
                    self.counts["placed"] += 1
                self._state("accepted", intent.job, intent.attempt, kind=intent.kind)
            del self._todo[intent.kind, intent.job, intent.attempt]
        if "engine" not in self.troubles:
            self._un_place_late()

    def _carry_out(self, intent: Intent) -> EngineError | None:
        """Why the cluster refused, or what is wrong with it."""
        try:
            if intent.kind == "place":
                self.engine.place(intent.job, intent.attempt, intent.placed)
            else:
                self.engine.preempt(intent.job)
            return None
        except EngineError as error:
            return error

    def _un_place_late(self) -> None:
        """Accepted is not started: some never do."""
        now = self.clock.now()
        for (job, attempt), since in list(self._accepted.items()):
            known = self.ledger.jobs.get(job)
            if known is None or known.attempt != attempt or known.phase != "placed":
                del self._accepted[job, attempt]
            elif now - since > self.start_timeout:
                try:
                    self._late.add((job, attempt))
                    self.engine.preempt(job)
                    self._accepted[job, attempt] = now
                except EngineError as error:
                    self._ill("engine", error)
                    return

    # -------------------------------------------------------------------------------- showing

    def _ill(self, what: str, error: Exception) -> None:
        since, _ = self.troubles.get(what, (self.clock.now(), ""))
        self.troubles[what] = since, str(error)

    def _well(self, what: str) -> None:
        if what in self.troubles:
            since, message = self.troubles.pop(what)
            gone = self.clock.now() - since
            self.notes = [*self.notes[-20:], f"{what}: {message}; well again after {gone:.0f} s"]

    def _account_due(self, now: float) -> None:
        """Start the accountant, or publish what it found."""
        if self._accountant is not None:
            if self._accountant.poll() is None:
                return
            text, _ = self._accountant.communicate()
            if self._accountant.returncode == 0:
                with contextlib.suppress(StoreError, ValueError):
                    self.store.commit(views=[("account", now, json.loads(text))])
            self._accountant = None
        if self.account and now >= self._accounted + self.account and self.ledger.over:
            self._accounted = now
            self._keep()
            command = [sys.executable, "-m", "gangwise", "account", "--json", "--state"]
            self._accountant = subprocess.Popen(
                [*command, str(self.folder)],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )

    def _publish(self) -> None:
        """Views for whoever looks, at most once a second."""
        now = self.clock.now()
        self._account_due(now)
        if now < self._shown + 1.0:
            return
        self._shown = now
        views = {
            "health": self.health(),
            "nodes": self.nodes_now(),
            "queue": self.queue_now(),
            "running": self.running_now(),
            "slow": [s._asdict() for s in self.ledger.slow_nodes()],
            "held": self.held_now(),
        }
        if now >= self._rated + 10.0:
            self._rated = now
            views["rates"] = self.rates_now()
        changed = [(n, now, _plain(v)) for n, v in views.items() if self.views.get(n) != v]
        self.views = views
        try:
            self.store.commit(views=changed)
        except StoreError as error:
            self._ill("database", error)

    def health(self) -> dict[str, Any]:
        """How the service and its cluster are."""
        now = self.clock.now()
        phases = [known.phase for known in self.ledger.jobs.values()]
        return {
            "version": __version__,
            "mode": "act" if self.ledger.act else "shadow",
            "engine": self.engine.name,
            "scheduler": self.scheduler,
            "well": not self.troubles,
            "troubles": {
                k: {"since": since, "what": what} for k, (since, what) in self.troubles.items()
            },
            "notes": list(self.notes),
            "paused": self.ledger.paused,
            "baseline_every": self.ledger.every,
            "waiting": phases.count("waiting"),
            "placed": phases.count("placed"),
            "running": phases.count("running"),
            "counts": dict(self.counts),
            "round_ms": round(1000 * self.round_seconds, 1),
            "left_out": self.ledger.nonsense,
            "clock_ahead": round(ahead, 1) if abs(ahead := self.clock.ahead()) > 2 else 0.0,
            "records": self.seq,
            "since": round(now - self.ledger.now, 0),
        }

    def nodes_now(self) -> list[dict[str, Any]]:
        """Nodes, what is free on them, and how fast they are believed to be."""
        books = self.ledger.books
        if books is None:
            return []
        rates: Any = getattr(getattr(self.ledger.scheduler, "choice", None), "rates", None)
        factors = {}
        if hasattr(rates, "node_factors") and rates.state is not None:
            means, sds = rates.node_factors()
            factors = {
                n: {
                    "factor": math.exp(m),
                    "low": math.exp(m - 1.96 * s),
                    "high": math.exp(m + 1.96 * s),
                }
                for n, m, s in zip(rates.nodes, means.tolist(), sds.tolist(), strict=True)
            }
        found = []
        for n, name in enumerate(books.nodes.names):
            host = self.ledger.hosts[name]
            free = dict(zip(books.nodes.devices, (books.free[n] / 1000).tolist(), strict=True))
            found.append(
                {
                    "name": name,
                    "up": host.up,
                    "reason": host.reason,
                    "devices": {k: v / 1000 for k, v in host.devices.items()},
                    "free": {k: v for k, v in free.items() if k in host.devices},
                    "labels": dict(host.labels),
                    "declared": books.nodes.rates[n],
                    **factors.get(name, {}),
                }
            )
        return found

    def held_now(self) -> list[dict[str, str]]:
        """Jobs that the cluster has and does not offer yet, such as gangs that are not whole."""
        held: Mapping[str, str] = getattr(self.engine, "held", dict)()
        return [{"job": job, "why": why} for job, why in list(held.items())[:SHOWN]]

    def rates_now(self) -> dict[str, Any]:
        """Believed rates by job type and node, with 95 % bounds; empty where none are learned."""
        rates: Any = getattr(getattr(self.ledger.scheduler, "choice", None), "rates", None)
        if getattr(rates, "state", None) is None or not hasattr(rates, "estimate"):
            return {}
        found: dict[str, Any] = {"nodes": list(rates.nodes), "types": []}
        for job_type in rates.types[: max(1, RATES // max(len(rates.nodes), 1))]:
            mean, sd = rates.estimate(job_type, self.ledger.now)
            bounds = {"rate": mean, "low": mean - 1.96 * sd, "high": mean + 1.96 * sd}
            values = {k: np.exp(v).round(4).tolist() for k, v in bounds.items()}
            found["types"].append({"job_type": job_type, **values})
        return found

    def explanation(self, job: str, reasons: bool = True) -> dict[str, Any]:
        """Why a job waits, or where it runs; without ``reasons``, those found last time.

        Raises
        ------
        UnknownName
            For a job that is not there.
        """
        known = self.ledger.jobs.get(job)
        if known is None:
            if job in self.ledger.over:
                return {"job": job, "phase": self.ledger.over[job]}
            raise UnknownName("job", job, list(self.ledger.jobs))
        a = known.asked
        about: dict[str, Any] = {
            "job": job,
            "phase": known.phase,
            "job_type": a.job_type,
            "user": a.user,
            "tasks": a.tasks,
            "demand": {k: v / 1000 for k, v in a.demand.items()},
            "submitted": a.submitted,
            "limit": a.limit,
            "attempt": known.attempt,
            "priority": a.priority,
        }
        if known.phase != "waiting":
            rate = self.ledger.seen.get(job)
            where = [[p.node, p.tasks] for p in known.placed]
            about |= {"nodes": where, "since": known.begun, "by": known.by, "rate": rate}
            return about
        if not reasons:
            late = "not looked into lately"
            return about | self._reasons.get(job, _no_reason(late, a.submitted))
        try:
            said = self.ledger.explain(job)
            why: dict[str, Any] = {
                "why": said.constraint,
                "where": list(said.nodes[:20]),
                "since": said.since,
                "until": said.until,
                "frees": list(said.frees[:20]),
                "start": said.start,
            }
        except UnknownName:
            word = "submitted since the last round" if self.ledger.act else "the cluster decides"
            why = _no_reason(word, a.submitted)
        self._reasons[job] = why
        return about | why

    def queue_now(self) -> list[dict[str, Any]]:
        """Waiting jobs, the first of them with reasons."""
        names = [name for name, known in self.ledger.jobs.items() if known.phase == "waiting"]
        would = {} if self.ledger.act else self.ledger.would()
        found = []
        until = time.perf_counter() + EXPLAINING
        for name in names[:SHOWN]:
            about = self.explanation(name, reasons=time.perf_counter() < until)
            if name in would:
                about["would"] = [[p.node, p.tasks] for p in would[name]]
            found.append(about)
        self._reasons = {n: why for n, why in self._reasons.items() if n in self.ledger.jobs}
        return found

    def running_now(self) -> list[dict[str, Any]]:
        """Jobs that are placed or run."""
        names = [name for name, known in self.ledger.jobs.items() if known.phase != "waiting"]
        return [self.explanation(name) for name in names[: 10 * SHOWN]]


def _no_reason(word: str, since: float) -> dict[str, Any]:
    """What is said of a waiting job where its scheduler says nothing."""
    nothing = {"where": [], "since": since, "until": math.inf, "frees": [], "start": math.inf}
    return {"why": word, **nothing}


def _split(of: Status | Known) -> dict[str, int]:
    """Tasks on each node."""
    count: dict[str, int] = {}
    for p in of.placed:
        count[p.node] = count.get(p.node, 0) + p.tasks
    return count


def _plain(value: Any) -> Any:
    """As JSON gives it back: lists and dictionaries, and None for what is no number."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if hasattr(value, "item"):
        value = value.item()
    return value


def _locked(path: Path) -> int:
    """Hold a file for this process alone; the kernel lets go of it when the process dies."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise StoreError(
            f"another service works in {path.parent}; stop it, or name another folder with --state"
        ) from None
    return handle
