"""The live loop: events in, a round of decisions, intents on the disk, and only then the cluster.

One tick: take in what happened; let the scheduler decide; commit the journal and the intents; act
on them. Killed at any line, the service restarts from checkpoint and journal, sends the cluster
again what it had not got (placing an attempt twice starts it once), and holds its books
against the cluster's table.

Unreadable rows, events, records and requests are quarantined and listed; everything else is
processed: nothing that users write ends the loop. ``health`` lists what goes wrong. A cluster that
does not answer is asked again, and nothing is decided meanwhile. What the cluster lists again has
not ended, whatever was written before. While the file is locked or the disk is full, nothing is
acted upon, and what happened is kept in memory. The service's own clock never steps back.
"""

import contextlib
import json
import math
import os
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, InitVar, dataclass
from datetime import datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from gangwise import __version__
from gangwise.core import errors, files, simulation, terminal
from gangwise.engines import engine as engines
from gangwise.engines.background import Backoff, moment
from gangwise.engines.engine import Cause, Engine, EngineEvent, EngineNode, Quarantine, Status
from gangwise.jobs.books import Explanation
from gangwise.service import ledger, store

CHECKPOINT, BEFORE = store.CHECKPOINTS
HEARTBEAT = "heartbeat"  # a file that is as old as the service has been silent
SHOWN = 200  # waiting jobs whose explanation is kept to be shown
RATES = 20_000  # believed rates that are shown
EXPLAINING = 0.05  # seconds a second spent on explanations, at most
ACTS = 1.5  # seconds of the longest back-off, without jitter, before acts that failed are repeated
UNWRITTEN = 10.0  # seconds without a disk after which another service may lead
PAUSE = 60.0  # seconds between two jobs that are offered again to a scheduler that failed
DAY = 86_400.0
FAR = 7 * DAY  # seconds without a record after which the machine's clock may be wrong
FORGET = 7 * DAY  # seconds after which a node that is gone is forgotten


class MonotonicClock:
    """Seconds since 1970 that never go back, whatever the machine's clock does.

    A machine's clock that is ``FAR`` ahead of the last record (``not_before``) is not believed
    until it is corrected, or :meth:`believe` is called.
    """

    def __init__(
        self,
        not_before: float = 0.0,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ):
        self._wall, self._monotonic = wall, monotonic
        self._start, self._zero, self._last = not_before, monotonic(), not_before
        self._in_doubt = True
        # A folder without a record has nothing to compare the clock with, and must believe it.
        if not not_before or not self.doubt():
            self.believe()

    def doubt(self) -> str:
        """Reason for which the machine's clock is not believed; empty where it is."""
        if not self._in_doubt:
            return ""
        # A clock that was corrected meanwhile is believed without a word.
        if self._wall() <= self.now() + FAR:
            self.believe()
            return ""
        times = (datetime.fromtimestamp(at) for at in (self._wall(), self._last))
        wall, late = (f"{at:%Y-%m-%d %H:%M}" for at in times)
        return (
            f"this machine's clock says {wall}, and the last record is of {late}: nothing is taken "
            "in or placed before the clock is corrected; if it is right, start once with "
            "--clock-is-right"
        )

    def believe(self) -> None:
        """Go on from the machine's clock, though not back."""
        if self._in_doubt:
            self._start, self._zero = max(self._wall(), self.now()), self._monotonic()
            self._in_doubt = False

    def now(self) -> float:
        return self._start + self._monotonic() - self._zero

    def ahead(self) -> float:
        """Seconds by which this clock is ahead of the machine's."""
        return self.now() - self._wall()


class Helper:
    """Another gangwise command, run in a process of its own every so many seconds (0: never)."""

    def __init__(self, every: float, *words: str):
        self._every, self._command = every, [sys.executable, "-m", "gangwise", *words]
        self.began = -math.inf
        self._process: subprocess.Popen[bytes] | None = None

    def due(self, now: float) -> bool:
        return self._process is None and 0 < self._every <= now - self.began

    def start(self, now: float) -> None:
        self.began = now
        # A file and no pipe: nobody reads before it has ended, and a full pipe would stop it.
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed when it is read
        pipes: dict[str, Any] = {"stdout": self._output, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(self._command, **pipes)

    def found(self) -> Any:
        """JSON that it has printed, once after its end; None before, and where it printed none."""
        if self._process is None or self._process.poll() is None:
            return None
        self._process = None
        with self._output, contextlib.suppress(ValueError):
            self._output.seek(0)
            return json.load(self._output)
        return None

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._output.close()


@dataclass(eq=False, repr=False)
class Service:
    """Runs a scheduler for a cluster: takes in events, decides, writes down, and acts."""

    engine: Engine
    folder: Path  # where it keeps what it knows; one service at a time
    scheduler: Any = "fcfs+easy+learned:depth=100"
    _: KW_ONLY
    act: InitVar[bool] = False  # place jobs; otherwise only watch
    baseline: InitVar[Any] = "fcfs+easy+best-fit"
    every: InitVar[int] = 0  # of so many jobs, one goes where the baseline wants it; 0: none
    rates: InitVar[Mapping[str, float] | None] = None  # declared rate of nodes by label=value
    reconcile: float = 3.0  # seconds between comparisons with the cluster's table
    start_timeout: float = 60.0
    """Seconds after which a placement that was accepted and has not started is taken back."""
    grace: float = 5.0  # seconds for which books and table differ before the table is believed
    checkpoint: float = 60.0  # seconds between checkpoints
    account: float = 0.0
    """Seconds between accounts of what would have been saved (0: none), each by a process of its
    own; and between forecasts of when waiting jobs start, made in the same way."""
    forecast: float = 0.0
    keep: float = 30 * 86_400.0  # seconds for which the journal and the history are kept
    clock: Any = MonotonicClock
    clock_is_right: InitVar[bool] = False
    """Believe a clock of the machine that is far ahead of the last record."""

    def __post_init__(
        self,
        act: bool,
        baseline: Any,
        every: int,
        rates: Mapping[str, float] | None,
        clock_is_right: bool,
    ) -> None:
        scheduler = self.scheduler
        if not isinstance(scheduler, str):
            self.scheduler = type(scheduler).__name__
        # First, as it raises where a scheduler is unknown: then neither lock nor file stays open.
        self.ledger = ledger.Ledger(scheduler, baseline, every, dict(rates or {}), act)
        self._forgot = -math.inf
        folder = str(self.folder)
        self._accountant = Helper(self.account, "account", "--json", "--state", folder)
        self._forecaster = Helper(self.forecast, "forecast", folder, "--json")
        self._verifier = Helper(DAY, "verify", folder, "--json")
        self._starts: dict[str, Any] = {}
        mended = store.own_folder(self.folder)
        # Before anything is read: two services that mend one folder would spoil it.
        self._lock = locked(self.folder / "lock")
        try:
            self.notes = mended + store.mend(self.folder)
            self.store = store.ServiceStore(self.folder / store.FILE)
            self._require_same_engine()
        except BaseException:
            os.close(self._lock)
            raise
        self.quarantine = Quarantine()
        self._refused: set[str] = set()  # jobs that the books would not take
        self._sure: set[str] = set()  # waiting jobs that a round has come through with
        self.run = {
            "scheduler": repr(self.ledger.scheduler),
            "baseline": repr(self.ledger.baseline),
            "every": every,
            "rates": dict(rates or {}),
            "act": act,
        }
        self.troubles: dict[str, tuple[float, str]] = {}
        self.counts = {"rounds": 0, "placed": 0, "rejected": 0, "undone": 0, "events": 0}
        self.round_seconds = 0.0
        self.views: dict[str, Any] = {}
        self._reasons: dict[str, dict[str, Any]] = {}
        self._new = defaultdict[str, list[Any]](list)  # what the next commit is to have, by kind
        self._todo: dict[tuple[str, str, int], ledger.Intent] = {}
        at_once = self.engine.capabilities.at_once
        self._placers = ThreadPoolExecutor(at_once) if at_once > 1 else None
        self._accepted: dict[tuple[str, int], float] = {}
        self._late: set[tuple[str, int]] = set()
        self._differences: dict[tuple[str, str, int], float] = {}
        self._gone: dict[str, tuple[float, EngineNode]] = {}
        self._backoff, self._acts_again = Backoff(longest=ACTS), -math.inf
        self._failed: Exception | None = None  # what an act of this tick came to
        self._compared = self._shown = self._saved = self._rated = -math.inf
        settings = {**self.run, "scheduler": self.scheduler, "baseline": str(baseline)}
        settings["engine"] = self.engine.name
        settings["start_latency"] = self.engine.capabilities.start_latency
        self.store.commit(about=[("settings", json.dumps(settings))])
        self._recover()
        self.clock = self.clock(self.ledger.now)
        if clock_is_right:
            self.clock.believe()
        self._verifier.began = self.clock.now()  # all was verified just now
        if act and hasattr(self.engine, "lead"):
            status = os.fstat(self._lock)  # this folder, and no copy of it
            self.engine.lead(f"{socket.gethostname()}:{self.folder.absolute()}:{status.st_ino}")

    def _require_same_engine(self) -> None:
        earlier = json.loads(self.store.about("settings") or "{}").get("engine", self.engine.name)
        if earlier != self.engine.name:
            self.store.close()
            raise errors.StoreError(
                f"{self.folder} is of a service beside {earlier}, and this one is beside "
                f"{self.engine.name}; give it a folder of its own with --state"
            )

    # Living

    def tick(self, timeout: float = 0.5) -> None:
        """Once round: take in events, decide, write intents to the disk, and only then act."""
        if doubt := self.clock.doubt():
            self._trouble("clock", errors.StoreError(doubt))
            # Where events are not waited for, nothing else paces the loop.
            time.sleep(min(timeout, 1.0))
            return self._publish()
        self._recovered("clock")
        # First what happened, then what operators ask for: a request is judged by the present
        # state.
        reachable = self._take_in(timeout)
        instant = self.clock.now()
        may_act, self._failed = reachable and instant >= self._acts_again, None
        self._fulfil_requests(instant, may_act)
        due = self.ledger.changed or self.ledger.due() <= instant
        if reachable and due and self._is_there() and "database" not in self.troubles:
            self._decide(instant)
        # Nothing is sent to the cluster before it is on the disk.
        if self._save(instant) and may_act:
            self._act()
        if may_act:
            self._judge_acts(instant)
        self._watch_loops()
        self._leave_lead(instant)
        return self._publish()

    def serve(self, stop: Callable[[], bool], timeout: float = 0.5) -> None:
        while not stop():
            self.tick(timeout)

    def _judge_acts(self, now: float) -> None:
        """After an act that got no answer, wait longer each time before the next ones."""
        if self._failed is None:
            self._recovered("acting")
            self._backoff.reset()
        else:
            self._trouble("acting", self._failed)
            self._acts_again = now + self._backoff.wait(self._failed)

    def _watch_loops(self) -> None:
        """See that each loop in the background comes round."""
        loops = getattr(self.engine, "loops", ())
        troubles = [f"{loop.name}: {trouble}" for loop in loops if (trouble := loop.trouble_now())]
        if troubles:
            self._trouble("background", errors.EngineError("; ".join(troubles)))
        else:
            self._recovered("background")

    def _leave_lead(self, now: float) -> None:
        """Leave the lead to a service that waits for it, while nothing can be written here."""
        if (leader := getattr(self.engine, "leader", None)) is not None:
            since = (self.troubles.get(name, (now,))[0] for name in ("database", "folder"))
            leader.wanted = now < min(since) + UNWRITTEN

    def _fulfil_requests(self, now: float, may_act: bool) -> None:
        """Do what operators ask for; most requests are records, so that a restart keeps them."""
        try:
            # A request that is done and whose answer could not be written must not be done again.
            answered = {number for number, *_ in self._new["answers"]}
            accepted = self.store.requests("state = 'accepted'")
            open_now = [request for request in accepted if request.id not in answered]
        except errors.StoreError as error:
            return self._trouble("database", error)
        for request in open_now:
            # A cancellation goes to the cluster at once; all else is a record,
            # and need not wait for it.
            if request.what == "cancel" and not may_act and self.ledger.act:
                continue
            try:
                self._fulfil(request, now)
                answer = (request.id, "done", "")
            except (errors.Rejected, errors.UnknownName) as error:
                answer = (request.id, "refused", str(error))
            except errors.EngineError as error:
                self._failed = error  # it stays to be done
                continue
            except Exception as error:
                answer = (request.id, "refused", _named(error))
            # Saved with the effect: an answer may not be on the disk before what it promises.
            self._new["answers"].append(answer)
            outcome = " ".join(filter(None, answer[1:]))
            self._note(f"an operator: {request.what} {request.value}: {outcome}")
        return None

    def _fulfil(self, request: store.OperatorRequest, now: float) -> None:
        if not self.ledger.act:
            raise errors.Rejected("the service only watches (--shadow)")
        if request.what == "cancel":
            if request.value not in self.ledger.jobs:
                raise errors.UnknownName("job", str(request.value), [])
            self.engine.cancel(request.value)
        elif not self._apply(request.what, now, request.value):
            raise errors.Rejected(f"there is no {request.what} {request.value}")

    def close(self) -> None:
        try:
            if self._save(self.clock.now()):
                self._keep()
        finally:
            for helper in (self._accountant, self._forecaster, self._verifier):
                helper.kill()
            if self._placers is not None:
                self._placers.shutdown(cancel_futures=True)
            self.store.close()
            self.engine.close()
            os.close(self._lock)

    # Recovery

    def _recover(self) -> None:
        """Read the checkpoint and the journal since; find intents that were perhaps not done."""
        applied = 0
        for path in (self.folder / CHECKPOINT, self.folder / BEFORE):
            if path.exists():
                try:
                    (self.ledger, applied), _ = simulation.read_checkpoint(path, self.run)
                    break
                except errors.StoreError as error:
                    self.notes.append(f"the journal is used in place of the checkpoint: {error}")
        if applied > self.store.last():
            self.notes.append("the journal is older than the checkpoint: the cluster's table holds")

        def skip(seq: int, why: str) -> None:
            self.quarantine.put("row of the journal", str(seq), why)
            self._note(f"row {seq} of the journal is skipped: {why}")

        for seq, record in self.store.records(applied, skip):
            try:
                self.ledger.apply(record)
            except Exception as error:
                skip(seq, engines.clean_text(f"{record[0]}: {_named(error)}"))
                self.ledger.mend()
        # SQLite's names follow the books, from which a damaged record may be missing.
        self.store.commit(know=self.ledger.jobs)
        self.seq = max(applied, self.store.last())
        # Intents and ends that were played again are on the disk already.
        self.ledger.taken()
        instant = self.ledger.now
        for row in self.store.open_intents():
            active = self.ledger.jobs.get(row["job"])
            key = row["job"], int(row["attempt"])
            # The books are what the journal says: an intent that they do not show was never acted
            # upon, or is over.
            if active is None or active.attempt != key[1] or active.phase == "waiting":
                state = ("undone", instant, row["kind"], *key, "found undone at a restart")
                self._new["states"].append(state)
            elif row["state"] == "intended":
                placed = active.placed
                self._todo[row["kind"], *key] = ledger.Intent(row["kind"], *key, placed, row["by"])
            elif row["kind"] == "place":
                self._accepted[key] = float(row["accepted"] or instant)

    def _keep(self) -> None:
        """Write a checkpoint, so that a restart need not read the whole journal."""
        try:
            # Killed between the two, the service still has the one before.
            with contextlib.suppress(FileNotFoundError):
                os.replace(self.folder / CHECKPOINT, self.folder / BEFORE)
            # The one before stays: a checkpoint that turns out damaged costs a longer restart, and
            # nothing else.
            simulation.write_checkpoint(self.folder / CHECKPOINT, (self.ledger, self.seq), self.run)
            self._saved = instant = self.clock.now()
            self._recovered("checkpoint")
            if instant >= self._forgot + DAY:
                self._forgot = instant
                # Only after the checkpoint is on the disk, which stands for the records that go.
                self.store.forget(self.seq, instant - self.keep)
        except Exception as error:  # also where a scheduler of the user's own has no pickle
            self._trouble("checkpoint", error)

    # Taking in

    def _take_in(self, timeout: float) -> bool:
        """Take in events, and now and then the whole table; False when the cluster is silent."""
        try:
            events = self.engine.events(timeout)
            instant = self.clock.now()
            fresh = any(e.kind == "submitted" and not self._is_known(e.job) for e in events)
            nodes = any(e.node for e in events)
            compare = instant >= self._compared + self.reconcile
            # After an outage events may be lost: the whole table is read at once.
            compare = compare or not self.troubles.keys().isdisjoint(("engine", "leader"))
            if nodes or compare:
                self._take_in_nodes(self.engine.nodes(), instant)
            # Without a node there are no books, and jobs could not even be taken in.
            if self.ledger.books is None:
                raise errors.EngineError("the cluster lists no nodes")
            # The table costs a query of the whole cluster: for new jobs, and
            # when it is time to compare.
            table = {row.job.id: row for row in self.engine.jobs()} if fresh or compare else {}
            for row in table.values():
                if not self._is_known(row.job.id) or self._is_back(row):
                    self._take_in_one("job", row.job.id, self._take_in_new, row, instant)
            for event in events:
                self._take_in_one("event of job", event.job, self._take_in_event, event, instant)
                if event.kind == "started" and not self.engine.capabilities.exact_split:
                    self._compared = -math.inf  # the table shows how tasks are divided
            if compare:
                self._compare(table, instant)
                self._compared = instant
            self._recovered("engine")
            self._recovered("leader")
            return True
        except Exception as error:  # also where the engine does not understand its cluster
            self._trouble("leader" if isinstance(error, errors.StandingBy) else "engine", error)
            # A leader that stands by has answered: the cluster is well.
            if isinstance(error, errors.StandingBy):
                self._recovered("engine")
            time.sleep(min(timeout, 1.0))
            return False

    def _take_in_one(self, kind: str, name: str, do: Callable[..., None], *given: Any) -> None:
        """Take in what concerns one job; where that fails, it concerns no other."""
        self.quarantine.read(
            kind, name, partial(do, *given), (errors.EngineError, errors.StoreError)
        )

    def _is_known(self, job: str) -> bool:
        return job in self.ledger.jobs or job in self.ledger.outcomes or job in self._refused

    def _is_back(self, row: Status) -> bool:
        """Whether a job is there that counts as ended."""
        ours = not (self.ledger.act and row.foreign)
        return row.job.id in self.ledger.outcomes and row.phase not in engines.ENDED and ours

    def _apply(self, *record: Any) -> bool:
        """Apply a record to the ledger, to be saved; False where the books refuse it."""
        try:
            self.ledger.apply(record)
        except Exception as error:
            kind, _, *args = record
            is_job = kind in ("job", "again")
            name = args[0]["id"] if is_job else str(args[0])[:100] if kind != "nodes" else ""
            # Without this the job would be taken in and refused again at every tick.
            if is_job:
                self.ledger.jobs.pop(name, None)
                self._refused.add(name)
            self.quarantine.put(kind, name, error)
            # A record that failed half-way may have taken devices that nobody holds.
            self.ledger.mend()
            return False
        self.seq += 1
        self._new["records"].append((self.seq, record))
        return True

    def _take_in_nodes(self, nodes: Iterable[EngineNode], now: float) -> None:
        listed = {node.name: node for node in nodes}
        for name, host in self.ledger.hosts.items():
            if name not in listed:
                since = self._gone.setdefault(name, (now, host))[0]
                # A node that is no longer listed stays, as down, while a job holds it, and for a
                # while after.
                used = any(p.node == name for k in self.ledger.jobs.values() for p in k.placed)
                if used or now - since < FORGET:
                    listed[name] = EngineNode(name, host.devices, host.labels, False, "gone")
            else:
                self._gone.pop(name, None)
        if listed != self.ledger.hosts:
            rows = [(n.name, n.devices, n.labels, n.up, n.reason) for n in listed.values()]
            self._apply("nodes", now, _plain(rows))

    def _take_in_new(self, row: Status, now: float) -> None:
        """A job that was not known: it waits, or others placed it, or it came and went."""
        name = row.job.id
        ours = self.ledger.act and not row.foreign
        # Another scheduler's job, which holds nothing yet.
        if self.ledger.act and row.foreign and row.phase == "pending":
            return
        # What came and went unseen matters only to an account, which a watching service keeps.
        if row.phase in engines.ENDED and (self.ledger.act or math.isnan(row.started)):
            return
        if (outcome := self.ledger.outcomes.get(name)) is not None:
            self._note(f"job {name} is there again: that it has {outcome} is taken back")
            if not self._apply("again", now, _plain(vars(row.job)), row.attempt):
                return
        elif not self._apply("job", now, _plain(vars(row.job))):
            return
        # The ledger takes no steps at once: a job is found, started, and over.
        if row.phase != "pending":
            self._apply("found", now, name, row.attempt, _plain(row.placed))
            if ours:
                self._accepted[name, row.attempt] = now
        if row.phase not in ("pending", "placed"):
            self._apply("started", now, name, row.attempt)
        if row.phase in engines.ENDED:
            times = (row.started, row.ended)
            self._apply("ended", now, name, row.phase, row.attempt, [], *times)

    def _take_in_event(self, event: EngineEvent, now: float) -> None:
        active = self.ledger.jobs.get(event.job)
        if active is None:
            return
        self.counts["events"] += 1
        name, attempt = event.job, event.attempt
        if event.kind == "started":
            if active.phase == "waiting":
                return  # the table says where it runs
            self._apply("started", now, name, attempt)
            self._state("started", name, attempt)
        elif event.kind == "measured":
            self._apply("measured", now, name, attempt, _plain(event.ranks))
        elif event.kind == "preempted":
            # Of a placement that got no answer, a part may show: it is made again, not taken off.
            unanswered = ("place", name, attempt) in self._todo
            if active.phase != "waiting" and attempt >= active.attempt and not unanswered:
                self._taken_off(active, attempt, event.detail, event.cause, now)
        elif event.kind in engines.ENDED:
            self._apply("ended", now, name, event.kind, attempt, _plain(event.ranks))
            self._state("ended", name, attempt, f"{event.kind} {event.detail}".strip())

    def _taken_off(
        self, known: ledger.ActiveJob, attempt: int, why: str, cause: Cause, now: float
    ) -> None:
        name = known.asked.id
        # The service itself took it off: it counts as refused, and waits longer
        # before it is offered again.
        if (name, attempt) in self._late:
            why = f"accepted, and not started within {self.start_timeout:g} s"
            self._apply("rejected", now, name, attempt, why)
            self.counts["undone"] += 1
        else:
            self._apply("back", now, name, attempt, why, cause)
        self._state("undone", name, attempt, why)
        self._late.discard((name, attempt))
        for kind in ("place", "preempt"):
            # What was to be done for this attempt is void; the next attempt has a number of its
            # own.
            self._todo.pop((kind, name, attempt), None)

    def _compare(self, table: Mapping[str, Status], now: float) -> None:
        """Compare the cluster's table with the books; where they differ for long, it counts."""
        odd: dict[tuple[str, str, int], float] = {}

        def persists(name: str, what: str, attempt: int) -> bool:
            key = name, what, attempt
            odd[key] = self._differences.get(key, now)
            # Between two looks both sides change: only what stays apart for long is a difference.
            return now - odd[key] >= self.grace

        def one(active: ledger.ActiveJob, row: Status | None) -> None:
            name, attempt = active.asked.id, active.attempt
            if row is None:
                if persists(name, "missing", attempt):
                    outcome = "cancelled" if active.phase == "waiting" else "failed"
                    self._apply("ended", now, name, outcome, attempt, [])
                    self._state("ended", name, attempt, "the cluster no longer knows it")
            elif row.phase in engines.ENDED:
                if persists(name, row.phase, row.attempt):
                    at = max(attempt, row.attempt)
                    self._apply("ended", now, name, row.phase, at, [])
                    self._state("ended", name, at, row.phase)
            elif row.phase == "pending":
                if self.ledger.act and active.phase == "waiting":
                    alone = active.until == math.inf  # held by hand, say, or left to the cluster
                    if row.foreign != alone:
                        until = math.inf if row.foreign else now
                        self._apply("aside", now, name, until, row.detail)
                waits = active.phase == "waiting" or ("place", name, attempt) in self._todo
                if not waits and persists(name, "not placed", row.attempt):
                    reason = row.detail or "the cluster let it go"
                    self._taken_off(active, attempt, reason, row.cause, now)
            elif active.phase == "waiting":
                # A placement of ours may be on its way; only where the
                # difference lasts was it another's.
                if persists(name, "placed", row.attempt) or not self.ledger.act or row.foreign:
                    self._apply("found", now, name, row.attempt, _plain(row.placed))
                    if self.ledger.act and not row.foreign:  # another leader's: may never start
                        self._accepted[name, row.attempt] = now
                    if row.phase == "running":
                        self._apply("started", now, name, row.attempt)
            elif row.attempt == attempt:
                if active.phase == "placed" and row.phase == "running":
                    self._apply("started", now, name, attempt)
                    self._state("started", name, attempt)
                # Some engines divide tasks among nodes themselves; the books follow them.
                split = engines.tasks_by_node(row.placed)
                if (
                    split
                    and row.phase == "running"
                    and split != engines.tasks_by_node(active.placed)
                ):
                    self._apply("moved", now, name, attempt, _plain(row.placed))

        for active in list(self.ledger.jobs.values()):
            name = active.asked.id
            self._take_in_one("row of job", name, one, active, table.get(name))
        self._differences = odd

    # Deciding

    def _decide(self, now: float) -> None:
        # Time of the processor: a busy machine is no slow scheduler.
        began = time.process_time()
        offered = {
            n for n, k in self.ledger.jobs.items() if k.phase == "waiting" and k.until <= now
        }
        try:
            # The round itself is a record: a restart decides again, and compares with what was
            # recorded.
            self.ledger.apply(("round", now))
        except Exception as error:
            # Jobs that are new to a scheduler that failed are set aside, and come back one by one.
            self.ledger.mend()
            self._trouble("scheduler", error)
            reason = engines.clean_text(
                f"the scheduler failed when it was offered: {_named(error)}"
            )
            # Which of them makes the scheduler fail is not known, so that they come back one at a
            # time.
            # Jobs that a round has come through with are not suspects.
            for turn, name in enumerate(sorted(offered - self._sure), 1):
                self._apply("aside", now, name, now + min(PAUSE * turn, 60 * PAUSE), reason)
            return
        self.seq += 1
        self._sure = offered
        self._recovered("scheduler")
        self.round_seconds = time.process_time() - began
        self.counts["rounds"] += 1
        intents, ended = self.ledger.taken()
        self._new["ended"] += ended
        self._new["intents"] += [(now, intent) for intent in intents]
        decided = [[i.kind, i.job, i.attempt, _plain(i.placed), i.by] for i in intents]
        self._new["records"].append((self.seq, ("round", now, decided)))
        for intent in intents:
            self._todo[intent.kind, intent.job, intent.attempt] = intent

    def _state(self, state: str, job: str, attempt: int, detail: str = "", kind: str = "") -> None:
        """Note for the next commit that an intent came to a state."""
        kinds = [kind] if kind else ["place"] if state == "started" else ["place", "preempt"]
        rows = [(state, self.ledger.now, each, job, attempt, detail) for each in kinds]
        self._new["states"] += rows

    # Saving, then acting

    def _save(self, now: float) -> bool:
        """Commit all that is new; False when it cannot be."""
        _, ended = self.ledger.taken()
        self._new["ended"] += ended
        if not self._is_there():
            return False
        if not any(self._new.values()):
            return "database" not in self.troubles
        try:
            self.store.commit(**self._new)
        except errors.StoreError as error:
            self._trouble("database", error)
            return False
        self._recovered("database")
        # Only now: what could not be written is written with the next commit.
        self._new.clear()
        # A checkpoint only after its records, or a restart would know less than the checkpoint.
        if now >= self._saved + self.checkpoint:
            self._keep()
        return True

    def _act(self) -> None:
        """Send the cluster what is intended, all of which is on the disk."""
        due = []
        for key, intent in list(self._todo.items()):
            active = self.ledger.jobs.get(intent.job)
            # Void since: another attempt, or the job is over.
            if active is None or active.attempt != intent.attempt or active.phase == "waiting":
                del self._todo[key]
            else:
                due.append(intent)
        # Placements of an engine that can take several at once are made in parallel.
        apply = map if self._placers is None else self._placers.map
        for intent, refusal in zip(due, apply(self._carry_out, due), strict=True):
            if isinstance(refusal, errors.Rejected) and intent.kind == "preempt":  # it runs on
                self._state("rejected", intent.job, intent.attempt, str(refusal), "preempt")
            elif isinstance(refusal, errors.Rejected):
                self.counts["rejected"] += 1
                self._apply("rejected", self.clock.now(), intent.job, intent.attempt, str(refusal))
                self._state("rejected", intent.job, intent.attempt, str(refusal), "place")
            elif refusal is not None:  # stays to be done
                if not isinstance(refusal, errors.StandingBy):
                    self._failed = refusal
                # The next one would meet the same silence.
                if self._placers is None:
                    return
                continue
            else:
                at = self.clock.now()
                if intent.kind == "place":
                    self._accepted[intent.job, intent.attempt] = at
                    self.counts["placed"] += 1
                state = ("accepted", at, intent.kind, intent.job, intent.attempt, "")
                self._new["states"].append(state)
            del self._todo[intent.kind, intent.job, intent.attempt]
        if self._failed is None:
            self._take_back_late()

    def _carry_out(self, intent: ledger.Intent) -> errors.EngineError | None:
        """Send it to the cluster; returns why it refused or failed."""
        try:
            if intent.kind == "place":
                self.engine.place(intent.job, intent.attempt, intent.placed)
            else:
                self.engine.preempt(intent.job)
            return None
        except errors.EngineError as error:
            return error
        # Whatever an engine raises is that job's trouble and not the end of the service.
        except Exception as error:
            return errors.Rejected(_named(error))

    def _take_back_late(self) -> None:
        """Take back placements that were accepted and did not start in time."""
        instant = self.clock.now()
        for (job, attempt), since in list(self._accepted.items()):
            active = self.ledger.jobs.get(job)
            if active is None or active.attempt != attempt or active.phase != "placed":
                del self._accepted[job, attempt]
            elif instant - since > self.start_timeout:
                try:
                    # Marked first: the event that it is off its nodes may come before the call
                    # returns.
                    self._late.add((job, attempt))
                    self.engine.preempt(job)
                    self._accepted[job, attempt] = instant
                except errors.EngineError as error:
                    self._failed = error
                    return

    # Showing

    def _trouble(self, what: str, error: Exception) -> None:
        since, _ = self.troubles.get(what, (self.clock.now(), ""))
        message = str(error)
        if not isinstance(error, errors.GangwiseError):
            message = _named(error)
            if what not in self.troubles:
                with contextlib.suppress(OSError):  # the reader of the log may be gone
                    traceback.print_exception(error)  # perhaps a fault of our own
        self.troubles[what] = since, engines.clean_text(message)

    def _recovered(self, what: str) -> None:
        if what in self.troubles:
            since, message = self.troubles.pop(what)
            elapsed = self.clock.now() - since
            self._note(f"{what}: {message}; recovered after {elapsed:.0f} s")

    def _note(self, what: str) -> None:
        self.notes = [*self.notes[-20:], engines.clean_text(what)]

    def _is_there(self) -> bool:
        """Whether the folder and its file are still where they were; they are never made anew."""
        message = ""
        try:
            # The lock is held by its inode; another file of this name is another folder's, whatever
            # is in it.
            if not os.path.samestat(os.stat(self.folder / "lock"), os.fstat(self._lock)):
                raise FileNotFoundError
            if not self.store.in_place():
                message = f"{self.store.path} was deleted, emptied or replaced"
        except OSError:
            message = f"{self.folder} is not the folder that it was: moved, deleted or unmounted"
        if message:
            message += "; nothing is placed until it is back"
            self._trouble("folder", errors.StoreError(message))
            return False
        self._recovered("folder")
        return True

    def _poll_helpers(self, now: float) -> None:
        """Take in what processes of their own have counted or verified, and start them anew."""
        if (answer := self._accountant.found()) is not None:
            self._put_view("account", answer)
        elif self._accountant.due(now) and self.ledger.outcomes:
            # The other process reads the checkpoint, which is to be as new as the question.
            self._keep()
            self._accountant.start(now)
        if (answer := self._forecaster.found()) is not None:
            self._put_view("forecast", answer)
            self._starts = {
                row["job"]: {name: answer["now"] + row[name] for name in ("p50", "p90")}
                for row in answer["jobs"]
                if row["p90"] is not None  # a job that starts in too few of the futures has none
            }
        elif self._forecaster.due(now) and any(
            active.phase == "waiting" for active in self.ledger.jobs.values()
        ):
            self._keep()
            self._forecaster.start(now)
        if (answer := self._verifier.found()) is not None:
            if damaged := answer["damaged"]:
                how = "; stop the service, and see gangwise verify"
                self._trouble("state", errors.StoreError(", ".join(damaged[:5]) + how))
        elif self._verifier.due(now):
            self._verifier.start(now)

    def _put_view(self, name: str, view: Any) -> None:
        with contextlib.suppress(errors.StoreError):  # the next one comes
            self.store.commit(views=[(name, view)])

    def _publish(self) -> None:
        instant = self.clock.now()
        # A view costs a commit, so that they are made once a second.
        if instant < self._shown + 1.0 or not self._is_there():
            return
        self._poll_helpers(instant)
        self._shown = instant
        with contextlib.suppress(OSError):
            heartbeat = files.Tree(self.folder).open(
                HEARTBEAT, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600
            )
            with open(heartbeat, "w", encoding="ascii") as file:
                file.write(json.dumps(moment()))
        shown: dict[str, Callable[[], Any]] = {
            "nodes": self.nodes_now,
            "queue": self.queue_now,
            "running": self.running_now,
            "slow": lambda: [s._asdict() for s in self.ledger.slow_nodes()],
            "held": self.held_now,
            "unreadable": self.unreadable_now,
        }
        if instant >= self._rated + 10.0:
            self._rated = instant
            shown["rates"] = self.rates_now
        views: dict[str, Any] = {}
        for name, view in shown.items():
            try:
                views[name] = view()
                self._recovered(f"view of {name}")
            except Exception as error:
                self._trouble(f"view of {name}", error)
        views["health"] = self.health()
        # Only views that changed are written: most of them stay as they are for minutes.
        changed = [(n, _plain(v)) for n, v in views.items() if self.views.get(n) != v]
        try:
            self.store.commit(views=changed)
            self.views = views
            if not any(self._new.values()):
                self._recovered("database")
        except errors.StoreError as error:
            self._trouble("database", error)

    def health(self) -> dict[str, Any]:
        instant = self.clock.now()
        phases = [active.phase for active in self.ledger.jobs.values()]
        loops = getattr(self.engine, "loops", ())
        return {
            "version": __version__,
            "mode": "act" if self.ledger.act else "shadow",
            "engine": self.engine.name,
            "scheduler": self.scheduler,
            "well": self.troubles.keys() <= {"leader"},  # another acts, and that is well
            "troubles": {
                k: {"since": since, "what": text} for k, (since, text) in self.troubles.items()
            },
            "notes": list(self.notes),
            "paused": self.ledger.paused,
            "baseline_every": self.ledger.every,
            **{phase: phases.count(phase) for phase in ("waiting", "placed", "running")},
            "counts": {**self.counts, "loop_failures": sum(loop.failures for loop in loops)},
            "heard": list(moment()),
            # An act may hang for longer than health may be wrong: its reader counts from here.
            "answered": list(moment(getattr(self.engine, "answered", math.inf))),
            "now": instant,
            "round_ms": round(1000 * self.round_seconds, 1),
            "left_out": self.ledger.implausible,
            "unreadable": self.engine.quarantine.total + self.quarantine.total,
            "clock_ahead": round(ahead, 1) if abs(ahead := self.clock.ahead()) > 2 else 0.0,
            "records": self.seq,
            "since": round(instant - self.ledger.now, 0),
        }

    def nodes_now(self) -> list[dict[str, Any]]:
        """Nodes, what is free on them, and how fast they are believed to be."""
        books = self.ledger.books
        if books is None:
            return []
        rates, factors = self.ledger.learned, dict[str, dict[str, float]]()
        if hasattr(rates, "node_factors") and rates.state is not None:
            means, sds = (column.tolist() for column in rates.node_factors())
            for name, m, s in zip(rates.nodes, means, sds, strict=True):
                # Factors are learned as logarithms; intervals there are symmetric, and shown as
                # ratios.
                bounds = {"factor": m, "low": m - 1.96 * s, "high": m + 1.96 * s}
                factors[name] = {k: math.exp(v) for k, v in bounds.items()}
        rows = []
        for n, name in enumerate(books.nodes.names):
            host = self.ledger.hosts[name]
            free = dict(zip(books.nodes.devices, (books.free[n] / 1000).tolist(), strict=True))
            rows.append(
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
        return rows

    def held_now(self) -> list[dict[str, str]]:
        """Jobs that the cluster has and does not offer yet, such as gangs that are not whole."""
        alone = dict(getattr(self.engine, "held", dict)())
        alone |= {row["name"]: row["why"] for row in self.unreadable_now() if row["kind"] == "job"}
        rows = [
            (job, engines.clean_text(text), "after" * (engines.AFTER in text))
            for job, text in alone.items()
        ]
        return [{"job": j, "why": text, "cause": cause} for j, text, cause in rows[:SHOWN]]

    def unreadable_now(self) -> list[dict[str, str]]:
        """Rows of the cluster, of users and of the journal that are left alone, and why."""
        return self.engine.quarantine.rows() + self.quarantine.rows()

    def rates_now(self) -> dict[str, Any]:
        """Believed rates by job type and node, with 95 % bounds; empty where none are learned."""
        rates = self.ledger.learned
        if getattr(rates, "state", None) is None or not hasattr(rates, "estimate"):
            return {}
        shown: dict[str, Any] = {"nodes": list(rates.nodes), "types": []}
        for job_type in rates.types[: max(1, RATES // max(len(rates.nodes), 1))]:
            mean, sd = rates.estimate(job_type, self.ledger.now)
            bounds = {"rate": mean, "low": mean - 1.96 * sd, "high": mean + 1.96 * sd}
            values = {k: np.exp(v).round(4).tolist() for k, v in bounds.items()}
            shown["types"].append({"job_type": job_type, **values})
        return shown

    def explanation(self, job: str, reasons: bool = True) -> dict[str, Any]:
        """Sentence on why a job waits, or where it runs; without ``reasons``, by those found last.

        Raises UnknownName for a job that is not there.
        """
        active = self.ledger.jobs.get(job)
        if active is None:
            if job in self.ledger.outcomes:
                return {"job": job, "phase": self.ledger.outcomes[job]}
            raise errors.UnknownName("job", job, list(self.ledger.jobs))
        a = active.asked
        about: dict[str, Any] = {"job": job, "phase": active.phase, "attempt": active.attempt}
        fields = ("job_type", "user", "tasks", "submitted", "limit", "priority")
        about |= {name: getattr(a, name) for name in fields}
        about["groups"] = [
            {"tasks": g.tasks, "demand": {k: v / 1000 for k, v in g.demand.items()}}
            for g in a.parts
        ]
        about["demand"] = {k: v / 1000 for k, v in a.demand.items()}
        if active.phase != "waiting":
            rate = self.ledger.latest_rates.get(job)
            nodes = [[p.node, p.tasks] for p in active.placed]
            about |= {"nodes": nodes, "since": active.begun, "by": active.by, "rate": rate}
            return about
        about |= self._starts.get(job, {"p50": None, "p90": None})
        if not reasons:
            late = Explanation(job, "not looked into lately", (), a.submitted, math.inf)
            return about | self._reasons.get(job, _as_row(late))
        try:
            explained = self.ledger.explain(job)
        except errors.UnknownName:  # its scheduler says nothing of it
            reason = "submitted since the last round" if self.ledger.act else "the cluster decides"
            explained = Explanation(job, reason, (), a.submitted, math.inf)
        self._reasons[job] = _as_row(explained)
        return about | self._reasons[job]

    def queue_now(self) -> list[dict[str, Any]]:
        names = [name for name, active in self.ledger.jobs.items() if active.phase == "waiting"]
        would = {} if self.ledger.act else self.ledger.would()
        rows = []
        until = time.perf_counter() + EXPLAINING
        for name in names[:SHOWN]:
            about = self.explanation(name, reasons=time.perf_counter() < until)
            if name in would:
                about["would"] = [[p.node, p.tasks] for p in would[name]]
            rows.append(about)
        self._reasons = {n: reason for n, reason in self._reasons.items() if n in self.ledger.jobs}
        return rows

    def running_now(self) -> list[dict[str, Any]]:
        names = (name for name, active in self.ledger.jobs.items() if active.phase != "waiting")
        return [self.explanation(name) for name in islice(names, 10 * SHOWN)]


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _as_row(found: Explanation) -> dict[str, Any]:
    row = {"why": found.constraint, "since": found.since, "until": found.until}
    row |= {"cause": found.cause, "users": list(found.users[:20])}
    if found.cause:
        row["why"] = f"{terminal.cause_words(found.cause)}: {found.constraint}"
    return row | {"where": list(found.nodes[:20]), "frees": list(found.frees[:20])}


def _plain(value: Any) -> Any:
    """As JSON gives it back: lists, dictionaries with text for keys, numbers of Python."""
    return json.loads(json.dumps(value, default=lambda number: number.item()))


def locked(path: Path) -> int:
    """Hold a file for this process alone; the kernel lets go of it when the process dies."""
    with store.as_store_error(path):
        handle = files.lock_file(path, 0o600)
    if handle is None:
        raise errors.StoreError(
            f"another service works in {path.parent}; stop it, or name another folder with --state"
        )
    return handle
