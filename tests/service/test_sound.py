"""What is damaged in a service's folder is noticed, named, and restored from its second copy."""

from __future__ import annotations

import os
import random
import resource
import shutil
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gangwise.cli import app
from gangwise.core.errors import StoreError
from gangwise.engines.engine import EngineNode
from gangwise.service import sound
from gangwise.service.api import _health
from gangwise.service.loop import Service
from gangwise.service.sound import examine, mend, repair
from gangwise.service.state import OperatorRequests, ServiceState
from gangwise.service.store import FILE, LINES, ServiceStore
from tests.service.pretend import Pretend
from tests.service.test_faults import Time, ticks

FLIPS = int(os.environ.get("GANGWISE_FLIPS", "200"))
TABLES = ("commits", "intents", "history", "known", "about")


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
            service.requests.add("every", 0)
            service._forgot = -1e9
            service._keep()
    ticks(service, time, 3)
    service.requests.add("pause", True)
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
            found[table] = sorted(file.execute(f"SELECT * FROM {table}").fetchall(), key=repr)
    with closing(sqlite3.connect(folder / "wishes.sqlite")) as file:
        found["wishes"] = file.execute(
            "SELECT id, state, sealed FROM wishes ORDER BY id"
        ).fetchall()
    found["lines"] = [row[3] for row in sorted(found["commits"])]
    assert (folder / LINES).read_text().splitlines() == found["lines"]
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
    """Each is without effect, or is named and restored; what is lost is named and never made up."""
    before, shown = content(state), views(state)
    files = [p.name for p in state.iterdir() if p.stat().st_size and not p.name.endswith("-shm")]
    assert {FILE, LINES, "wishes.sqlite", "ledger.checkpoint", "ledger.checkpoint.1"} <= set(files)
    rng = random.Random(seed)
    seen = {"nothing": 0, "restored": 0, "lost": 0}
    for turn in range(flips):
        name = files[turn % len(files)]
        copy = tmp_path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(state, copy)
        where = name, *flipped(copy / name, rng)
        report = examine(copy)
        if report.lost:  # of what has no second copy
            seen["lost"] += 1
            assert name.startswith("wishes.sqlite"), where
            with pytest.raises(StoreError, match="--repair"):
                mend(copy)
            repair(report)
            kept = content(copy)
            left = set(kept.pop("wishes"))
            assert left <= set(before["wishes"]), where
            numbers = {f"request {n}" for n, _, _ in set(before["wishes"]) - left}
            assert numbers <= set(report.lost) or "perhaps" in report.lost[0], where
            assert kept == {k: v for k, v in before.items() if k != "wishes"}, where
            continue
        seen["restored" if report.damaged or report.behind else "nothing"] += 1
        mend(copy)
        assert content(copy) == before, where
        assert all(shown[k] == v for k, v in views(copy).items()), where
        assert examine(copy).sound, where
    assert seen["restored"] > flips / 2 - 5, seen


@pytest.mark.parametrize("name", [FILE, LINES, "ledger.checkpoint"])
@pytest.mark.parametrize("how", ["deleted", "emptied", "halved"])
def test_one_file_may_be_lost(engine, time, tmp_path: Path, name: str, how: str):
    service = busy(engine, time, tmp_path / "state")
    phases = {job: known.phase for job, known in service.ledger.jobs.items()}
    service.close()
    path = tmp_path / "state" / name
    before, data = content(tmp_path / "state"), path.read_bytes()
    path.write_bytes(data[: len(data) // 2] if how == "halved" else b"")
    if how == "deleted":
        path.unlink()
    again = opened(engine, time, tmp_path / "state")
    assert {job: known.phase for job, known in again.ledger.jobs.items()} == phases
    again.close()
    assert content(tmp_path / "state")["commits"][: len(before["commits"])] == before["commits"]


def test_what_both_copies_lost_is_named_and_the_clusters_table_fills_it_in(
    engine, time, tmp_path: Path
):
    folder = tmp_path / "state"
    service = opened(engine, time, folder)
    for i in range(6):
        engine.submit(str(i))
        ticks(service, time, 2)
    service.close()
    for path in folder.glob("ledger.checkpoint*"):
        path.unlink()
    lines = (folder / LINES).read_bytes().splitlines(keepends=True)
    lost = [n for n, line in enumerate(lines) if b'"id": "3"' in line]
    (folder / LINES).write_bytes(b"".join(x for n, x in enumerate(lines) if n not in lost))
    with closing(sqlite3.connect(folder / FILE)) as file, file:
        file.execute("DELETE FROM commits WHERE number = ?", (lost[0] + 1,))
    number = f"commits {lost[0] + 1} to {lost[0] + 1}"
    with pytest.raises(StoreError, match=number):
        opened(engine, time, folder)
    looked = CliRunner().invoke(app, ["verify", str(folder)])
    assert (looked.exit_code, f"lost: {number}" in looked.output) == (1, True), looked.output
    done = CliRunner().invoke(app, ["verify", str(folder), "--repair"])
    assert (done.exit_code, "restored: service.sqlite" in done.output) == (1, True), done.output
    assert CliRunner().invoke(app, ["verify", str(folder)]).exit_code == 0
    calls = list(engine.calls)
    again = opened(engine, time, folder)
    ticks(again, time, 15)
    assert {known.phase for known in again.ledger.jobs.values()} == {"running"}
    assert engine.calls == calls, "nothing is placed twice"
    again.close()


def test_killed_between_the_two_copies(engine, time, tmp_path: Path, monkeypatch):
    """The line is on the disk, SQLite's commit is not: the next service goes on from the line."""
    service = opened(engine, time, tmp_path / "state")
    ticks(service, time)
    engine.submit("1")
    real = service.store._lines.append

    class Killed(BaseException):
        pass

    def append(line):
        real(line)
        shutil.copytree(tmp_path / "state", tmp_path / "copy")
        raise Killed

    monkeypatch.setattr(service.store._lines, "append", append)
    with pytest.raises(Killed):
        ticks(service, time)
    monkeypatch.undo()
    assert engine.calls == []
    assert examine(tmp_path / "copy").behind == 1
    again = opened(engine, time, tmp_path / "copy")
    assert again.ledger.jobs["1"].phase == "placed"
    ticks(again, time)
    assert engine.calls == [("place", "1", 1)]
    again.close()
    killed(service)


@pytest.mark.parametrize("name", [FILE, LINES])
@pytest.mark.parametrize("how", ["emptied", "replaced", "deleted"])
def test_a_file_that_is_lost_while_the_service_runs_is_made_again(
    engine, time, tmp_path: Path, name: str, how: str
):
    folder = tmp_path / "state"
    service = opened(engine, time, folder)
    engine.submit("1")
    ticks(service, time, 2)
    if how == "emptied":
        os.truncate(folder / name, 0)
    elif how == "replaced":
        (tmp_path / "new").touch()
        (tmp_path / "new").replace(folder / name)
    else:
        (folder / name).unlink()
    engine.submit("2")
    ticks(service, time, 3)
    assert [call[1] for call in engine.calls if call[0] == "place"] == ["1", "2"]
    assert service.health()["well"], service.troubles
    assert _health(ServiceState(folder))["well"]
    # What SQLite still has in its write-ahead log, it puts back by itself.
    assert any(name in note for note in service.notes) or (name, how) == (FILE, "emptied")
    service.close()
    assert examine(folder).damaged == []
    records = [record for _, record in ServiceStore(folder / FILE, read_only=True).records()]
    assert [r[2]["id"] for r in records if r[0] == "job"] == ["1", "2"]


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
    assert len(modes) > 8
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


def test_wishes_keep_their_numbers_without_gaps(tmp_path: Path, monkeypatch):
    with closing(OperatorRequests(tmp_path)) as wishes:
        for i in range(5):
            wishes.add("cancel", str(i))
        wishes.answer([(1, "done", ""), (2, "done", ""), (4, "done", "")])
        monkeypatch.setattr("gangwise.service.state.KEPT", -1.0)
        assert wishes.add("cancel", "5") == 6
        assert [wish.id for wish in wishes.whole()] == [3, 4, 5, 6]
        assert not wishes.damaged()


@pytest.mark.parametrize("steps", range(6))
def test_a_repair_that_is_killed_loses_and_doubles_nothing(
    state: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    """A commit in the middle is lost in both copies, and each copy alone has one of the others."""
    lines = (state / LINES).read_text().splitlines(keepends=True)
    lost, of_tables = len(lines) // 2, len(lines) // 2 + 3
    with closing(sqlite3.connect(state / FILE, isolation_level=None)) as file:
        numbers = sorted(row[0] for row in file.execute("SELECT * FROM commits").fetchall())
        key = file.execute("SELECT name FROM pragma_table_info('commits')").fetchone()[0]
        for i in (lost, lost - 3):  # of the second the journal has the line
            file.execute(f"DELETE FROM commits WHERE {key} = ?", [numbers[i]])
    left = [line for i, line in enumerate(lines) if i not in (lost, of_tables)]
    (state / LINES).write_text("".join(left))
    found = examine(state)
    bodies = sorted(line.body for line in found._chain)
    assert len(bodies) == len(lines) - 1

    class Killed(BaseException):
        pass

    alive = iter([True] * steps)

    def dying(do: Any) -> Any:
        def step(*given: Any, **more: Any) -> Any:
            if not next(alive, False):
                raise Killed
            return do(*given, **more)

        return step

    with monkeypatch.context() as patch:
        patch.setattr(sound.stores, "write_file", dying(sound.stores.write_file))
        patch.setattr(sound, "_set_aside", dying(sound._set_aside))
        patch.setattr(ServiceStore, "roll_forward", dying(ServiceStore.roll_forward))
        with suppress(Killed):
            repair(found)
    repair(examine(state))
    report = examine(state)
    assert not report.damaged
    assert not report.lost
    assert sorted(line.body for line in report._chain) == bodies
