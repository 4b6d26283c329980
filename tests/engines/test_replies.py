"""Replies of both engines that are no answers: nothing ends, nothing is given away."""

from __future__ import annotations

import ctypes
import glob
import json
import os
import random
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from gangwise.core.errors import EngineError, StandingBy
from gangwise.engines import kubernetes_api, slurm_requests
from gangwise.engines.background import LOOK, TOLERATED, BackgroundLoop, Backoff, TryLater
from gangwise.engines.engine import ENDED, Placed
from gangwise.engines.kubernetes import KubernetesEngine, KubernetesLeader
from gangwise.engines.kubernetes_api import Connection
from gangwise.engines.kubernetes_gangs import ClusterCache
from gangwise.engines.leader import Leader, Lease
from gangwise.engines.slurm_requests import REFUSALS, Refused, refusal
from gangwise.service.api import _health
from gangwise.service.loop import ACTS, Service
from gangwise.service.state import STALE, ServiceState
from tests.engines.garbled import DRIPS, FAULTS, LOST, GarblingServer, InMemory
from tests.engines.hostile import NASTY, node, places, pod
from tests.engines.test_slurm_dialects import NODES_OLD, Listed, old
from tests.waiting import Stalls, until

# Kubernetes: an API server in memory, over real sockets.


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[GarblingServer]:
    monkeypatch.setattr(kubernetes_api, "PATIENCE", (0.5, 1.0))
    monkeypatch.setattr(kubernetes_api, "LINE", 0.3)
    monkeypatch.setattr(kubernetes_api, "REPLY", 0.5)
    monkeypatch.setattr(kubernetes_api, "LONG", {"_request_timeout": (0.5, 0.5)})
    monkeypatch.setattr(kubernetes_api, "PROBE", {"_request_timeout": (0.5, 0.5)})
    monkeypatch.setattr(kubernetes_api, "ASK", 0.2)
    monkeypatch.setattr(kubernetes_api, "SILENT", 0.4)
    plain = Backoff.__init__
    monkeypatch.setattr(Backoff, "__init__", lambda self, *_, **__: plain(self, 0.05, 0.4))
    server = GarblingServer(InMemory(nodes=4, pods=8, running=5))
    yield server
    server.close()


def phases(engine: KubernetesEngine) -> dict[str, str]:
    return {row.job.id: row.phase for row in engine.jobs()}


@pytest.mark.parametrize("usual", ["~/config", "/not/there{0}~/config", "~/config{0}/not/there"])
def test_the_usual_kubeconfig_is_found_in_the_home_folder(
    server: GarblingServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, usual: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    usual = usual.format(os.pathsep)
    for module in (kubernetes_api.config, kubernetes_api.config.kube_config):
        monkeypatch.setattr(module, "KUBE_CONFIG_DEFAULT_LOCATION", usual)
    server.kubeconfig(tmp_path / "config")
    api = Connection(None, None, 1)
    assert api.server == server.url
    api.close()
    (tmp_path / "config").unlink()
    with pytest.raises(EngineError, match="no kubeconfig"):
        Connection(None, None, 1)


def test_no_reply_of_the_api_server_ends_a_job_or_a_thread(
    server: GarblingServer, tmp_path: Path
) -> None:
    engine = KubernetesEngine(server.kubeconfig(tmp_path / "k"), lease="a/b", threads=2)
    until(lambda: engine._api.lease.held, "the lease is held")
    before, modes = phases(engine), list(FAULTS)
    assert sorted(before.values()) == 3 * ["pending"] + 5 * ["running"]
    random.Random(3).shuffle(modes)
    for mode in modes:
        server.mode = mode
        time.sleep(0.3)

    def well() -> bool:
        try:
            return phases(engine) == before
        except EngineError:
            return False

    server.mode = ""
    until(well, "as before", 30.0)
    kinds = {event.kind for event in engine.events(0.0)}
    assert not kinds & ENDED
    assert "preempted" not in kinds
    assert sum(loop.failures for loop in engine.loops) > 10
    assert all(loop._thread.is_alive() for loop in engine.loops)
    names = {loop.name for loop in engine.loops}
    engine.close()
    assert not names & {thread.name for thread in threading.enumerate()}, "none is left at the end"


@pytest.mark.parametrize("mode", ["error", "at once", "503"])
def test_a_watch_that_fails_is_not_followed_by_a_storm(
    server: GarblingServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.undo()  # the figures of Kubernetes' own clients
    engine = KubernetesEngine(server.kubeconfig(tmp_path / "k"), threads=2)
    server.mode = mode
    before = server.requests.total()
    time.sleep(3.0)
    # In 3 s two watches fail at once, after .8 to 1.6 s, and after 1.6 to 3.2 s more.
    assert server.requests.total() - before <= 2 * 3 * 2 + 2
    engine.close()


@pytest.mark.parametrize("mode", DRIPS)
def test_a_reply_that_drips_is_given_up_in_time(
    server: GarblingServer, tmp_path: Path, mode: str
) -> None:
    """Each byte comes in time."""
    engine = KubernetesEngine(server.kubeconfig(tmp_path / "k"), threads=2)
    server.mode, began = mode, time.monotonic()
    with pytest.raises(EngineError, match="does not answer"):
        engine._api.call(engine._api.core.list_node)
    assert 0.4 < time.monotonic() - began < 5.0
    engine.close()


def test_a_pause_that_the_server_asks_for_is_kept(server: GarblingServer, tmp_path: Path) -> None:
    engine = KubernetesEngine(server.kubeconfig(tmp_path / "k"), threads=2)
    server.mode = "429"
    api = engine._api
    with pytest.raises(Exception, match="429"):
        api.call(api.core.list_node, limit=1)
    before = server.requests.total()
    for _ in range(20):
        with pytest.raises(TryLater, match="pause"):
            api.call(api.core.list_node, limit=1)
    assert server.requests.total() <= before + 2
    engine.close()


def test_a_binding_counts_only_where_the_server_says_so(
    server: GarblingServer, tmp_path: Path
) -> None:
    engine = KubernetesEngine(server.kubeconfig(tmp_path / "k"), threads=2)
    job = next(row.job.id for row in engine.jobs() if row.phase == "pending")
    server.mode = "10 MB"  # an object, and no answer to a Binding; watches go on
    with pytest.raises(EngineError, match=r"Binding|answer"):
        engine.place(job, 1, [Placed("n3", 1)])
    server.mode = ""
    assert server.upstream.log == []
    engine.close()


def test_a_list_without_a_rank_that_has_ended_is_asked_about_too() -> None:
    """The other rank of its gang runs: without the first, the gang would have failed."""
    pods = [pod(f"w-{rank}", "a") for rank in range(2)]
    for one, phase in zip(pods, ("Succeeded", "Running"), strict=True):
        one["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] = "w"
        notes = {"tasks": "2", "attempt": "1", "placement": '{"n1": 2}'}
        one["metadata"]["annotations"] |= {f"gangwise.io/{k}": v for k, v in notes.items()}
        one["spec"]["nodeName"], one["status"]["phase"] = "n1", phase
    cache = ClusterCache("gangwise", 30.0, None)
    cache.all_nodes([node("n1", "a")])
    cache.all_pods(pods)
    assert [gang.phase for gang in cache.gangs.values()] == ["running"]
    cache.exists = lambda kind, item: item["metadata"]["name"] == "w-0"
    with pytest.raises(EngineError, match="w-0"):
        cache.all_pods(pods[1:])
    assert [gang.phase for gang in cache.gangs.values()] == ["running"]


def test_back_off_is_that_of_kubernetes_clients() -> None:
    backoff = Backoff()
    waits = [backoff.wait() for _ in range(9)]
    for wait, base in zip(waits, (0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0, 30.0), strict=True):
        assert base <= wait <= 2 * base
    assert backoff.wait(TryLater("", 70.0)) == 70.0


def test_a_loop_goes_on_whatever_it_raises() -> None:
    turns: list[int] = []

    def step() -> float:
        turns.append(1)
        if len(turns) < 4:
            raise (SystemExit, MemoryError, AttributeError)[len(turns) - 1]
        return 0.01

    loop = BackgroundLoop("a loop", step, 5.0, Backoff(0.01, 0.02))
    loop.start()
    until(lambda: len(turns) > 6, "it goes on")
    assert loop.failures == 3
    assert not loop.trouble_now()
    loop.join()
    assert not loop._thread.is_alive()


@pytest.mark.parametrize("recovers", [True, False])
def test_an_outage_that_ended_during_a_call_ends_the_back_off_once(recovers: bool) -> None:
    """Where the calls go on failing all the same, the back-off is kept."""
    turns: list[float] = []
    asker = BackgroundLoop("another loop", float, 5.0)

    def step() -> float:
        turns.append(time.monotonic())
        asker.trouble = "no answer"
        if len(turns) == 1:
            asker.came_round()  # while the first call hangs
        if len(turns) == 1 or not recovers:
            raise EngineError("no answer")
        return 100.0

    loop = BackgroundLoop("a loop", step, 5.0, Backoff(1.0, 1.0), asker)
    loop.start()
    until(lambda: len(turns) > 1, "a second call")
    assert turns[1] - turns[0] < 0.9
    time.sleep(0.8)
    assert len(turns) == 2
    loop.join()


@pytest.mark.parametrize("doubted", [True, False])
def test_a_version_that_was_spoilt_is_given_up(
    server: GarblingServer, tmp_path: Path, doubted: bool
) -> None:
    """As after an event whose version alone was wrong: each question by it is answered by 500."""
    engine = KubernetesEngine(server.kubeconfig(tmp_path / "k"), threads=2)
    follower = engine._api.followers[1]
    until(lambda: len(engine._api._streams) == 2, "both watches are open")
    follower._version, follower._doubts = "zzz", 2 * doubted
    for stream in list(engine._api._streams):
        stream.shutdown()

    def followed() -> bool:
        with suppress(EngineError):
            return follower._version.isdigit() and len(engine.jobs()) == 8
        return False

    until(followed, "it is followed")
    assert follower._version.isdigit()
    engine.close()


def test_a_renewal_whose_answer_was_spoilt_is_made_again(
    server: GarblingServer, tmp_path: Path
) -> None:
    """The next renewal is made of the last one's answer: whatever that was, the lease is kept."""
    engine = KubernetesEngine(server.kubeconfig(tmp_path / "k"), lease="a/b", threads=2)
    leader, plain = engine._api.lease, server.upstream
    until(lambda: leader.held, "the lease is held")
    leader.loop.join()
    whole = leader.read().state
    for place, value in product(filter(None, places(whole)), (*NASTY, "x", 10**9)):

        def upstream(method: str, *given: Any, place: Any = place, value: Any = value) -> Any:
            status, lines = plain(method, *given)
            if method == "GET":
                return status, lines
            reply = where = json.loads(b"".join(lines))
            for key in place[:-1]:
                where = where[key]
            where[place[-1]] = value
            return status, iter([json.dumps(reply).encode()])

        server.upstream = upstream
        leader.loop.once()
        server.upstream, leader._until = plain, -float("inf")
        leader.loop.once()
        leader.loop.once()
        assert (leader.loop.trouble, leader.held) == ("", True), (place, value)
    engine.close()


class Told(Leader):
    """A leader that reads what a test gives it."""

    reply: Any = None

    def read(self) -> Lease | None:
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply

    def take(self, found: Lease | None) -> None:
        return

    def give_up(self) -> None:
        return


def test_another_leads_is_no_fault_and_cannot_ask_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BackgroundLoop, "start", lambda self, after: None)
    monkeypatch.setattr(Told, "reply", Lease("another", False, 1, 10.0))
    leader = Told()
    with pytest.raises(StandingBy):
        leader.check()
    for fault in (EngineError("refused"), AttributeError("no get"), TypeError("null")):
        leader.reply = fault
        leader.loop.once()
        with pytest.raises(EngineError, match="asked") as caught:
            leader.check()
        assert not isinstance(caught.value, StandingBy)


# How late health may be: 15 s, of which a second is left for what no time-out bounds.


def test_time_outs_add_up_to_less_than_health_may_be_wrong() -> None:
    shown = 2.0  # a tick, and a second between two looks at health
    api, slurm, lease = kubernetes_api, slurm_requests, KubernetesLeader.duration / 6
    probe, jitter = sum(api.PROBE["_request_timeout"]), 2.0
    noticed = {
        "whatever hangs": STALE,
        "calls": api.ASK + api.SILENT + shown,
        "watches": TOLERATED + shown,
        "a command, since the lead was renewed": Leader.duration / 4 + STALE,
    }
    # A call hangs for all its time after the fault is over, and the pause after it is the longest.
    over = {
        "the lease": probe + jitter * lease + shown,
        "a question": probe + jitter * api.ASK / 2 + shown,
        "a watch": api.PROBE["_request_timeout"][0] + api.PATIENCE[1] + LOOK + shown,
        "a watch that is answered by errors": api.BRIEF + jitter * api.LITTLE[1] + shown,
        "a Binding": sum(api.PATIENCE) + jitter * ACTS + shown,
        "Slurm's list": slurm.COMMAND + shown,
        "Slurm's change": slurm.CHANGE + jitter * ACTS + shown,
        "the lead of Slurm": slurm.CHANGE + jitter * Leader.duration / 6 + shown,
    }
    assert max((seconds, name) for name, seconds in (noticed | over).items())[0] <= 14.0


@pytest.mark.full
@pytest.mark.parametrize(("mode", "lease"), [(LOST, "a/b"), (LOST, ""), ("10 MB", "")])
def test_health_is_right_in_time(tmp_path: Path, mode: str, lease: str) -> None:
    server = GarblingServer(InMemory(nodes=4, pods=8, running=5))
    engine = KubernetesEngine(server.kubeconfig(tmp_path / "k"), lease=lease, threads=2)
    service = Service(engine, tmp_path / "state", "fcfs+easy+best-fit", act=True)
    over = threading.Event()
    loop = threading.Thread(target=service.serve, args=(over.is_set,))
    loop.start()
    state = ServiceState(tmp_path / "state")

    def well() -> bool:
        return bool(_health(state)["well"])

    until(well, "it is well at first", 60.0)
    with Stalls() as stalls:
        began, server.mode = time.monotonic(), mode
        until(lambda: not well(), "it is ill", 30.0)
        assert time.monotonic() - began < 15.0 + stalls.seconds
        time.sleep(max(began + 14.0 - time.monotonic(), 0.0))
        began, server.mode = time.monotonic(), ""
        until(well, "it is well again", 30.0)
        assert time.monotonic() - began < 15.0 + stalls.seconds
    over.set()
    loop.join()
    service.close()
    state.close()
    server.close()


# Slurm: its programs' own words and rows


def test_refusals_are_worded_as_slurm_words_them() -> None:
    libraries = glob.glob("/usr/lib/*/slurm*/libslurmfull.so")
    if not libraries:
        pytest.skip("Slurm is not installed here")
    strerror = ctypes.CDLL(libraries[0]).slurm_strerror
    strerror.restype = ctypes.c_char_p
    for code, words in REFUSALS.items():
        assert words in strerror(code).decode(), code
    faults = (*range(1000, 1014), *range(1800, 1804), 2020, 2027, 2131, *range(5000, 5006), 6000)
    for code in (*faults, 7000):
        assert refusal(f"slurm_update error: {strerror(code).decode()}") is None, code


@pytest.mark.parametrize(
    ("code", "said", "refused"),
    [
        (1, "slurm_update error: Requested node configuration is not available", True),
        (1, "error: Zero Bytes were transmitted or received", False),
        (1, "Unspecified error", False),
        (1, "", False),
        (-11, "slurm_update error: Invalid job id specified", False),
        (1, "Invalid job id specified\nerror: Unable to contact slurm controller", False),
    ],
)
def test_only_a_known_refusal_is_one(
    monkeypatch: pytest.MonkeyPatch, code: int, said: str, refused: bool
) -> None:
    done = subprocess.CompletedProcess([], code, "", said)
    monkeypatch.setattr(slurm_requests.subprocess, "run", lambda *_, **__: done)
    with pytest.raises(EngineError) as caught:
        slurm_requests.run(["scontrol", "release", "7"], None)
    assert isinstance(caught.value, Refused) == refused


class Lying(Listed):
    """Slurm whose replies a test replaces; ``scontrol show job`` says what is there."""

    fault, accounting = "", ""

    def __init__(self, rows: list[dict[str, Any]], rng: random.Random):
        self.rng = rng
        super().__init__(rows, [{**n, "state": "idle", "state_flags": []} for n in NODES_OLD])

    def _is_certain(self, job: str, why: str, patience: float) -> bool:
        return False  # a fault lasts for less than that

    def _run(self, *command: str, more: Any = None) -> str:
        if command[:4] == ("scontrol", "-o", "show", "job"):
            rows = {str(row["job_id"]): row for row in self.answers["squeue"]["jobs"]}
            if self.fault == "gone" or command[4] not in rows:
                raise Refused("Invalid job id specified", 2017)
            return f"JobId={command[4]} JobState={rows[command[4]]['job_state']} Reason=None\n"
        if command[0] == "sacct":
            return self.accounting
        text = super()._run(*command, more=more)
        if command[0] != "squeue" or not self.fault:
            return text
        if self.fault == "error":
            raise EngineError("Zero Bytes were transmitted or received")
        replies = {"empty": "", "gone": "", "html": "<html>", "cut": text[: len(text) // 2]}
        replies |= {"null": "null", "10 MB": 10 * 2**20 * "x"}
        if more is None and self.fault in ("empty", "gone"):
            return '{"jobs": []}'
        if self.fault == "nulls":
            words = json.loads(text) if more is None else text.split(self._listing._field)
            row = self.rng.choice(words["jobs"]) if more is None else words
            key = self.rng.choice(list(row)) if more is None else self.rng.randrange(len(row))
            row[key] = None if more is None else ""
            return json.dumps(words) if more is None else self._listing._field.join(words)
        return replies[self.fault]


def rows() -> list[dict[str, Any]]:
    mark = "gangwise attempt=1 restarts=0 on=n1:1,n2:1 for= nodes=2"
    where = {"allocated_nodes": [{"nodename": n, "cpus_used": 1} for n in ("n1", "n2")]}
    runs = {"admin_comment": mark, "priority": 9, "start_time": 2000, "job_resources": where}
    return [old(1, "RUNNING", **runs), old(2, "PENDING"), old(3, "RUNNING", **runs)]


@pytest.mark.parametrize("fault", ["error", "empty", "html", "cut", "null", "nulls", "10 MB"])
def test_no_reply_of_slurm_ends_a_job_or_gives_it_away(fault: str) -> None:
    engine = Lying(rows(), random.Random(5))
    engine._look()
    before = {row.job.id: row.phase for row in engine.jobs()}
    assert before == {"1": "running", "2": "pending", "3": "running"}
    engine.fault = fault
    for turn in range(40):
        engine._whole_cost.seconds = 0.0 if turn % 2 else 1e6
        try:
            events = engine._look()
        except EngineError:
            continue
        assert not {event.kind for event in events} & (ENDED | {"preempted"})
    engine.fault = ""
    events = engine._look()
    assert not {event.kind for event in events} & (ENDED | {"preempted"})
    assert {row.job.id: row.phase for row in engine.jobs()} == before
    assert engine.said == [], "nothing was changed on the cluster"


def test_the_accounting_says_how_a_job_ended_that_slurm_has_forgotten() -> None:
    engine = Lying(rows(), random.Random(5))
    engine._look()
    engine.fault, engine.accounting = "gone", "1|COMPLETED|2100\n3|CANCELLED by 0|2200\n"
    ended = {event.job: (event.kind, event.time) for event in engine._look()}
    assert ended["1"] == ("finished", 2100.0)
    assert ended["3"] == ("cancelled", 2200.0)
    assert ended["2"][0] == "failed", "it is in no table and not in the accounting"
