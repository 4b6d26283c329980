"""What is damaged in a service's folder is noticed and named; nothing after it is trusted."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gangwise.cli import app
from gangwise.core.errors import StoreError
from gangwise.engines.engine import EngineNode
from gangwise.service import store as stores
from gangwise.service.loop import Service
from gangwise.service.state import ServiceState
from gangwise.service.store import FILE, HEAD, ServiceStore, examine, mend, repair
from tests.service.pretend import Pretend
from tests.service.test_faults import Time, ticks

FLIPS = int(os.environ.get("GANGWISE_FLIPS", "200"))
TABLES = ("commits", "intents", "history", "known", "requests", "about")


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def engine() -> Pretend:
    return Pretend([EngineNode(f"n{i}", {"gpu": 4000}) for i in range(3)])


def opened(engine: Pretend, time: Time, folder: Path, **more: Any) -> Service:
    return Service(engine, folder, act=True, clock=time.clock, **more)


def killed(service: Service) -> None:
    """As with SIGKILL: nothing is saved or put in order."""
    os.close(service._lock)


def busy(engine: Pretend, time: Time, folder: Path) -> Service:
    """A service that has lived: jobs ended and wait, old commits are dropped, requests answered."""
    service = opened(engine, time, folder, keep=30.0)
    rng = random.Random(1)
    for i in range(40):
        engine.submit(str(i), tasks=rng.choice([1, 2]), gpus=rng.choice([1, 2]))
        ticks(service, time, 2)
        for job in [job for job, row in engine.table.items() if row.phase == "running"][2:]:
            engine.end(job)
        if i in (20, 30):
            service.store.ask("every", 0)
            service._forgot = -1e9
            service._keep()
    ticks(service, time, 3)
    service.store.ask("pause", True)
    return service


@pytest.fixture
def state(engine: Pretend, time: Time, tmp_path: Path) -> Path:
    """A folder whose service was killed, as it lies on the disk."""
    service = busy(engine, time, tmp_path / "live")
    shutil.copytree(tmp_path / "live", tmp_path / "state")
    service.close()
    return tmp_path / "state"


def content(folder: Path) -> dict[str, Any]:
    """All that a folder says, read with nothing of the service's own."""
    found: dict[str, Any] = {}
    with closing(sqlite3.connect(folder / FILE)) as file:
        for table in TABLES:
            found[table] = sorted(file.execute(f"SELECT * FROM {table}").fetchall())
    return found


def flipped(path: Path, rng: random.Random) -> tuple[int, int]:
    data = bytearray(path.read_bytes())
    at, bit = rng.randrange(len(data)), rng.randrange(8)
    data[at] ^= 1 << bit
    path.write_bytes(data)
    return at, bit


def views(folder: Path) -> dict[str, Any]:
    found = {}
    with closing(ServiceStore(folder / FILE, read_only=True)) as store:
        for (name,) in store._db.execute("SELECT name FROM views").fetchall():
            found[name] = store.view(name)
    return found


@pytest.mark.parametrize(
    ("seed", "flips"), [(0, 40), pytest.param(1, FLIPS, marks=pytest.mark.full)]
)
def test_no_flipped_bit_goes_unnoticed(state: Path, tmp_path: Path, seed: int, flips: int):
    """Each is without effect, or is named; what is left are the commits before it."""
    shutil.copytree(state, tmp_path / "before")
    before, shown = content(tmp_path / "before"), views(tmp_path / "before")
    files = [p.name for p in state.iterdir() if p.stat().st_size and not p.name.endswith("-shm")]
    assert {FILE, f"{FILE}-wal", HEAD, "ledger.checkpoint", "ledger.checkpoint.1"} <= set(files)
    rng = random.Random(seed)
    seen = {"nothing": 0, "restored": 0, "lost": 0}
    for turn in range(flips):
        name = files[turn % len(files)]
        copy = tmp_path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(state, copy)
        where = name, *flipped(copy / name, rng)
        report = examine(copy)
        if report.lost:
            seen["lost"] += 1
            assert name.startswith(FILE), where
            with pytest.raises(StoreError):
                mend(copy)
            spoilt = (copy / FILE).read_bytes()
            repair(report)
            assert (copy / f"{FILE}.damaged").read_bytes() == spoilt, where
            kept = content(copy)["commits"]
            # Of a log that ends earlier, older commits are not dropped yet.
            written = {row[0]: row for row in before["commits"] if "anchor" not in row[3]}
            assert all(row == written.get(row[0], row) for row in kept), where
            (told,) = report.lost
            last = before["commits"][-1][0]
            first = kept[-1][0] + 1 if kept else 1
            assert told == f"commits {first} to {last}", where
        else:
            seen["restored" if report.damaged else "nothing"] += 1
            mend(copy)
            assert content(copy) == before, where
            assert all(shown[k] == v for k, v in views(copy).items()), where
        assert examine(copy).sound, where
    assert seen["restored"] + seen["lost"] > flips / 2 - 5, seen


def repaired(folder: Path) -> str:
    """What the command says, which ends with 1 because something is lost."""
    done = CliRunner().invoke(app, ["verify", str(folder), "--repair"])
    assert done.exit_code == 1, done.output
    assert CliRunner().invoke(app, ["verify", str(folder)]).exit_code == 0
    return done.output


@pytest.mark.parametrize("how", ["deleted", "emptied", "halved"])
def test_a_file_that_is_lost_is_told_and_the_clusters_table_fills_it_in(
    engine, time, tmp_path: Path, how: str
):
    folder = tmp_path / "state"
    service = busy(engine, time, folder)
    running = {job for job, row in engine.table.items() if row.phase == "running"}
    waiting = {job for job, row in engine.table.items() if row.phase == "pending"}
    service.close()
    path, data = folder / FILE, (folder / FILE).read_bytes()
    path.write_bytes(data[: len(data) // 2] if how == "halved" else b"")
    if how == "deleted":
        path.unlink()
    with pytest.raises(StoreError, match="commits"):
        opened(engine, time, folder)
    for checkpoint in folder.glob("ledger.checkpoint*"):
        checkpoint.unlink()
    assert "lost: commits" in repaired(folder)
    calls = list(engine.calls)
    again = opened(engine, time, folder)
    ticks(again, time, 8)
    assert {job for job, k in again.ledger.jobs.items() if k.phase == "running"} >= running
    assert set(again.ledger.jobs) == running | waiting
    assert not {call for call in engine.calls[len(calls) :] if call[1] in running}
    again.close()


@pytest.mark.parametrize("how", ["deleted", "emptied", "halved"])
def test_a_checkpoint_may_be_lost(engine, time, tmp_path: Path, how: str):
    service = busy(engine, time, tmp_path / "state")
    phases = {job: known.phase for job, known in service.ledger.jobs.items()}
    service.close()
    path, before = tmp_path / "state" / "ledger.checkpoint", content(tmp_path / "state")
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2] if how == "halved" else b"")
    if how == "deleted":
        path.unlink()
    again = opened(engine, time, tmp_path / "state")
    assert {job: known.phase for job, known in again.ledger.jobs.items()} == phases
    again.close()
    assert content(tmp_path / "state")["commits"][: len(before["commits"])] == before["commits"]


@pytest.mark.parametrize("how", ["changed", "deleted", "an older file"])
def test_a_row_that_was_changed_is_named_and_the_clusters_table_fills_in_the_rest(
    engine, time, tmp_path: Path, how: str
):
    folder = tmp_path / "state"
    service = opened(engine, time, folder)
    for i in range(6):
        engine.submit(str(i))
        ticks(service, time, 2)
        if i == 2:
            service.store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            shutil.copy(folder / FILE, tmp_path / "older")
    service.close()
    for path in folder.glob("ledger.checkpoint*"):
        path.unlink()
    rows = content(folder)["commits"]
    if how == "an older file":
        shutil.copy(tmp_path / "older", folder / FILE)
        with closing(sqlite3.connect(folder / FILE)) as file:
            row = file.execute("SELECT MAX(number) FROM commits").fetchone()[0] + 1
    else:
        row = next(number for number, *_, line in rows if '"id": "3"' in line)
        change = (
            "DELETE FROM commits" if how == "deleted" else "UPDATE commits SET time = time, line"
        )
        change += ' = replace(line, \'"id": "3"\', \'"id": "33"\')' * (how == "changed")
        with closing(sqlite3.connect(folder / FILE)) as file, file:
            file.execute(f"{change} WHERE number = ?", [row])
    lost = f"commits {row} to {rows[-1][0]}"
    with pytest.raises(StoreError, match=lost):
        opened(engine, time, folder)
    looked = CliRunner().invoke(app, ["verify", str(folder)])
    assert (looked.exit_code, f"lost: {lost}" in looked.output) == (1, True), looked.output
    assert how == "an older file" or f"commit {row} is" in looked.output
    repaired(folder)
    assert content(folder)["commits"] == rows[: row - 1]
    calls = list(engine.calls)
    again = opened(engine, time, folder)
    ticks(again, time, 15)
    assert {known.phase for known in again.ledger.jobs.values()} == {"running"}
    assert engine.calls == calls, "nothing is placed twice"
    again.close()


WRITER = """
import os, sys
from pathlib import Path
from gangwise.service.store import ServiceStore
store = ServiceStore(Path(sys.argv[1]) / "service.sqlite")
number = int(store.about("number") or 0)
while True:
    number += 1
    store.commit(about=[("number", str(number))], views=[("health", number)])
    os.write(1, b"%d\\n" % number)
"""


def test_what_was_committed_is_there_after_a_kill_at_any_point(tmp_path: Path):
    acknowledged, rng = 0, random.Random(2)
    for _ in range(6):
        command = [sys.executable, "-c", WRITER, str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            for _ in range(rng.randrange(1, 60)):
                acknowledged = int(writer.stdout.readline())
            writer.send_signal(signal.SIGKILL)
            acknowledged = int((writer.stdout.read().split() or [acknowledged])[-1])
        assert examine(tmp_path).sound
        with closing(ServiceStore(tmp_path / FILE, read_only=True)) as store:
            assert int(store.about("number") or 0) in (acknowledged, acknowledged + 1)


def test_commits_that_sqlite_drops_without_a_word_are_told(state: Path):
    """A flipped bit in its write-ahead log: it goes on from the commit before."""
    with closing(ServiceStore(state / FILE, read_only=True)) as store:
        last = store._end[0]
    log = bytearray((state / f"{FILE}-wal").read_bytes())
    log[-100] ^= 1
    (state / f"{FILE}-wal").write_bytes(log)
    assert examine(state).lost == [f"commits {last} to {last}"]


def test_a_whole_file_of_another_service_is_not_taken_for_ones_own(tmp_path: Path):
    for name, count in (("own", 3), ("other", 5)):
        (tmp_path / name).mkdir()
        with closing(ServiceStore(tmp_path / name / FILE)) as store:
            for i in range(count):
                store.commit(about=[(name, str(i))])
    shutil.copy(tmp_path / "other" / FILE, tmp_path / "own" / FILE)
    assert examine(tmp_path / "own").lost == ["commits 3 to 5"]
    assert examine(tmp_path / "other").sound


def test_two_processes_write_one_chain(engine, time, tmp_path: Path):
    service = opened(engine, time, tmp_path)
    operator = ServiceState(tmp_path)
    for i in range(4):
        engine.submit(str(i))
        assert operator.add_request("every", i) == i + 1
        ticks(service, time, 2)
        found = operator.get_request(i + 1)
        assert found is not None
        assert (found.value, found.state) == (i, "done")
    operator.close()
    killed(service)
    service.store.close()
    assert examine(tmp_path).sound


def test_commits_wait_for_the_disk_and_views_do_not(tmp_path: Path):
    with closing(ServiceStore(tmp_path / FILE)) as store:
        for new, waits in (
            ({"know": ["1"]}, 2),
            ({"views": [("health", {})]}, 1),
            ({"know": []}, 2),
        ):
            store.commit(**new)
            (row,) = store.rows("PRAGMA synchronous")
            assert row["synchronous"] == waits


def test_the_answer_to_a_request_is_in_the_commit_of_its_effect(engine, time, tmp_path: Path):
    service = opened(engine, time, tmp_path)
    ticks(service, time)
    service.store.ask("every", 3)
    ticks(service, time)
    rows = service.store.rows("SELECT line FROM commits")
    (line,) = [row["line"] for row in rows if '"answers"' in row["line"]]
    assert '"every", [3]' in line
    service.close()


@pytest.mark.parametrize("how", ["emptied", "replaced", "deleted"])
def test_a_file_that_is_lost_while_the_service_runs_stops_it_until_it_is_back(
    engine, time, tmp_path: Path, how: str
):
    folder = tmp_path / "state"
    service = opened(engine, time, folder)
    engine.submit("1")
    ticks(service, time, 2)
    operator = ServiceState(folder)
    service.store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = (folder / FILE).read_bytes()
    os.link(folder / FILE, tmp_path / "kept")
    if how == "emptied":
        os.truncate(folder / FILE, 0)
    elif how == "replaced":
        (tmp_path / "new").touch()
        (tmp_path / "new").replace(folder / FILE)
    else:
        (folder / FILE).unlink()
    engine.submit("2")
    ticks(service, time, 3)
    assert [call[1] for call in engine.calls if call[0] == "place"] == ["1"]
    assert FILE in service.troubles["folder"][1]
    with pytest.raises(StoreError):
        operator.add_request("pause", True)
    (tmp_path / "kept").replace(folder / FILE) if how != "emptied" else None
    (folder / FILE).write_bytes(data)
    (tmp_path / "kept").unlink(missing_ok=True)
    ticks(service, time, 3)
    assert [call[1] for call in engine.calls if call[0] == "place"] == ["1", "2"]
    assert service.health()["well"], service.troubles
    operator.close()
    service.close()
    assert examine(folder).sound


@pytest.mark.parametrize("how", ["moved", "deleted", "another in its place"])
def test_a_folder_that_is_gone_is_noticed_and_not_made_anew(engine, time, tmp_path: Path, how):
    folder = tmp_path / "state"
    service = opened(engine, time, folder, checkpoint=0.0)
    ticks(service, time, 2)
    folder.rename(tmp_path / "away")
    if how == "another in its place":
        folder.mkdir()
    if how == "deleted":
        shutil.copytree(tmp_path / "away", tmp_path / "kept")
        shutil.rmtree(tmp_path / "away")
    engine.submit("1")
    ticks(service, time, 5)
    assert engine.calls == []
    assert not service.health()["well"]
    assert "moved, deleted or unmounted" in service.troubles["folder"][1]
    assert not folder.exists() or not list(folder.iterdir())
    if how == "moved":
        (tmp_path / "away").rename(folder)
        ticks(service, time, 3)
        assert service.health()["well"]
        assert engine.calls == [("place", "1", 1)]
    service.close()


def test_nobody_else_may_read_it(engine, time, tmp_path: Path):
    was = os.umask(0)
    try:
        service = busy(engine, time, tmp_path / "state")
    finally:
        os.umask(was)
    modes = {p: stat.S_IMODE(p.stat().st_mode) for p in (tmp_path / "state").rglob("*")}
    service.close()
    assert len(modes) == 8
    assert {p.name: oct(m) for p, m in modes.items() if m != 0o600} == {}
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700


@contextmanager
def room(size: int) -> Iterator[None]:
    """No file may grow beyond so many bytes: writes fail as on a full disk."""
    was = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, was[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, was)


def test_no_room_at_any_write_and_then_there_is(engine, time, tmp_path: Path):
    """Each file in turn is full a little later: nothing is done unwritten, all is done after."""
    for turn in range(8):
        folder = tmp_path / str(turn)
        engine.table.clear()
        engine.queue.clear()
        engine.calls.clear()
        service = opened(engine, time, folder, checkpoint=0.0)
        ticks(service, time, 2)
        jobs = [str(i) for i in range(6)]
        with room(4500 * turn):
            for job in jobs:
                engine.submit(job)
                ticks(service, time)
            written = {row["job"] for row in service.store.rows("SELECT job FROM intents")}
            assert {job for _, job, _ in engine.calls} <= written
            if engine.calls != [("place", job, 1) for job in jobs]:
                assert not service.health()["well"]
        ticks(service, time, 3)
        assert service.health()["well"], service.troubles
        assert engine.calls == [("place", job, 1) for job in jobs]
        service.close()
        assert examine(folder).sound


def test_known_jobs_are_forgotten_once_none_is_there(tmp_path: Path):
    with closing(ServiceStore(tmp_path / FILE)) as store:
        store.commit(know=["1", "2"])
        assert store.knows("1")
        store.commit(know={})
        assert not store.knows("1")
    assert examine(tmp_path).sound


def test_a_service_of_the_first_version_is_told_apart(tmp_path: Path):
    with closing(sqlite3.connect(tmp_path / FILE)) as file, file:
        file.execute("PRAGMA journal_mode=WAL")
        file.execute("CREATE TABLE about(name TEXT PRIMARY KEY, value TEXT NOT NULL)")
        file.execute("INSERT INTO about VALUES('version', '1')")
    with pytest.raises(StoreError, match="move it away"):
        mend(tmp_path)


def test_repair_waits_for_the_service_to_end(engine, time, tmp_path: Path):
    service = opened(engine, time, tmp_path / "state")
    ticks(service, time)
    assert CliRunner().invoke(app, ["verify", str(tmp_path / "state")]).exit_code == 0
    with pytest.raises(StoreError, match="another service works"):
        CliRunner().invoke(
            app, ["verify", str(tmp_path / "state"), "--repair"], catch_exceptions=False
        )
    service.close()


def test_requests_that_were_answered_go_with_their_commits(tmp_path: Path):
    """Those that are open, or were answered later, stay; and no number is given twice."""
    with closing(ServiceStore(tmp_path / FILE)) as store:
        for value in (1, 2, 3):
            store.ask("every", value)
        store.commit(answers=[(1, "done", "")])
        store.commit([(1, ("every", 5.0, 1))])
        store.commit([(2, ("every", 50.0, 3))], answers=[(3, "done", "")])
        store.forget(1, 10.0)
        assert [(w.id, w.value, w.state) for w in store.requests("1")] == [
            (2, 2, "accepted"),
            (3, 3, "done"),
        ]
        store.commit([(3, ("every", 60.0, 3))], answers=[(2, "refused", "late")])
        store.commit([(4, ("every", 99.0, 3))])
        store.forget(3, 90.0)
        assert [w.id for w in store.requests("1")] == [3]
        assert store.ask("pause", True) == 4
    assert examine(tmp_path).sound


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("steps", range(7))
def test_a_repair_that_is_killed_loses_nothing_more(
    state: Path, monkeypatch: pytest.MonkeyPatch, steps: int, when: str
) -> None:
    rows = content(state)["commits"]
    broken = len(rows) // 2
    with closing(sqlite3.connect(state / FILE)) as file, file:
        file.execute("UPDATE commits SET line = 'x' WHERE number = ?", [rows[broken][0]])

    class Killed(BaseException):
        pass

    alive = iter([True] * steps)

    def dying(do: Any) -> Any:
        def step(*given: Any, **more: Any) -> Any:
            lives = next(alive, False)
            done = do(*given, **more) if lives or when == "after" else None
            if not lives:
                raise Killed
            return done

        return step

    with monkeypatch.context() as patch, suppress(Killed):
        patch.setattr(ServiceStore, "copy", dying(ServiceStore.copy))
        patch.setattr(stores, "_make", dying(stores._make))
        patch.setattr(stores.os, "replace", dying(os.replace))
        repair(examine(state))
    report = examine(state)
    assert report.commits == broken
    repair(report)
    assert examine(state).sound
    assert content(state)["commits"] == rows[:broken]
    assert (state / f"{FILE}.damaged").exists()


# A folder of version 2, which had each commit in journal.log and in SQLite, and requests in a file
# of their own. SQLite lacks the last commits, as after a loss of power.

WAS = {"0": "running", "1": "running", "a": "running", "b": "running", "c": "running"}


@pytest.fixture
def older(tmp_path: Path) -> Path:
    with tarfile.open(Path(__file__).with_name("state_with_journal.tar.xz")) as tar:
        tar.extractall(tmp_path / "older")
    return tmp_path / "older"


@pytest.mark.parametrize("damage", ["", FILE, "journal.log", f"no {FILE}"])
def test_a_folder_of_version_2_is_taken_over(engine, time, older: Path, damage: str):
    lines = (older / "journal.log").read_text().splitlines()
    if damage == f"no {FILE}":
        (older / FILE).unlink()
    elif damage:
        data = bytearray((older / damage).read_bytes())
        data[len(data) // 2 : len(data) // 2 + 4000] = b"x" * 4000
        (older / damage).write_bytes(data)
    was = {path.name: path.read_bytes() for path in older.iterdir()}
    service = opened(engine, time, older)
    assert examine(older).sound
    kept = [row[3] for row in content(older)["commits"]]
    assert {w.id: (w.what, w.state) for w in service.store.requests("1")} == {
        1: ("every", "done"),
        2: ("pause", "accepted"),
    }
    if damage != "journal.log":  # what SQLite had not heard of, the journal has
        assert kept[: len(lines)] == lines
        assert {job: known.phase for job, known in service.ledger.jobs.items()} == WAS
        assert set(service.ledger.outcomes) == {str(i) for i in range(2, 12)}
    else:
        assert kept[: len(lines) - 6] == lines[:-6]
    service.close()
    assert {name: (older / f"{name}.old").read_bytes() for name in was} == was
    again = opened(engine, time, older)
    assert not [note for note in again.notes if "taken over" in note]
    again.close()


@pytest.mark.parametrize("steps", range(5))
def test_taking_over_may_be_killed(
    engine, time, older: Path, monkeypatch: pytest.MonkeyPatch, steps: int
):
    class Killed(BaseException):
        pass

    alive, rename = iter([True] * steps), os.replace

    def replace(*given: Any) -> None:
        if not next(alive, False):
            raise Killed
        rename(*given)

    with monkeypatch.context() as patch, suppress(Killed):
        patch.setattr(stores.os, "replace", replace)
        mend(older)
    service = opened(engine, time, older)
    assert {job: known.phase for job, known in service.ledger.jobs.items()} == WAS
    assert [w.id for w in service.store.requests("1")] == [1, 2]
    service.close()
    assert examine(older).sound


def test_verify_names_a_folder_of_version_2(older: Path):
    with pytest.raises(StoreError, match="version 2"):
        examine(older)
    assert CliRunner().invoke(app, ["verify", str(older), "--repair"]).exit_code == 0
    assert examine(older).sound
