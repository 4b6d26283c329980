"""The file layer on a disk that fails at every call, under two writers, and with flipped bits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from gangwise.core import files
from gangwise.core.errors import StoreError
from gangwise.core.files import STATE, Folder, find_folders, write_whole
from tests.faults import FAULTS, calls_of, failing

OLD = {"summary.json": "old numbers", "page.html": "page of old numbers", "gone.svg": "old"}
NEW = {"summary.json": "new numbers", "page.html": "page of new numbers", "figure.svg": "new"}


def publish(path, content):
    with Folder(path).publish("results") as new:
        for file, text in content.items():
            new.write(file, text)


def seen(path):
    return {p.name: p.read_text() for p in path.iterdir() if p.is_file()}


def side_files(path):
    return list(path.rglob("*.part"))


@pytest.fixture(autouse=True)
def no_real_flushing(monkeypatch):
    """It takes long, and no power is cut here but by tests.faults."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def _gone(pid, signal):
    raise ProcessLookupError


@pytest.fixture
def all_processes_are_dead(monkeypatch):
    monkeypatch.setattr(files.os, "kill", _gone)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_file_is_the_old_or_the_new_one_at_every_fault(fault, tmp_path, all_processes_are_dead):
    for at in range(len(calls_of(lambda: write_whole(tmp_path / "count", "new")))):
        path = tmp_path / f"{at}" / "file"
        write_whole(path, "old")
        with failing(fault, at), suppress(StoreError):
            write_whole(path, "new" * 100)
        if fault != "lost flush":  # which no order of calls can help against
            assert path.read_text() in ("old", "new" * 100)
        if fault in ("no space", "I/O error"):
            assert not side_files(tmp_path / f"{at}")


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_published_together_is_never_mixed(fault, tmp_path, all_processes_are_dead):
    publish(tmp_path / "count", OLD)
    calls = calls_of(lambda: publish(tmp_path / "count", NEW))
    assert len(calls) > 20
    for at in range(len(calls)):
        path = tmp_path / f"{at}"
        with failing():
            publish(path, OLD)
        (path / "mine.txt").write_text("mine")
        with failing(fault, at), suppress(StoreError):
            publish(path, NEW)
        found = seen(path)
        assert found.pop("mine.txt") == "mine"
        if fault != "lost flush":
            assert found.items() <= OLD.items() or found.items() <= NEW.items(), (at, calls[at])
        else:  # what the disk lost is not read as if it were whole
            for name in found:
                with suppress(StoreError):
                    assert Folder(path).read(name).decode() in (OLD.get(name), NEW.get(name))
        with Folder(path).lock():  # the next one to come completes or gives up
            pass
        if fault != "lost flush":
            assert Folder(path).verify().sound
            assert {k: v for k, v in seen(path).items() if k != "mine.txt"} in (OLD, NEW)
        publish(path, NEW)
        assert seen(path) == NEW | {"mine.txt": "mine"}
        assert Folder(path).verify().sound
        assert not side_files(path)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_single_file_of_a_folder_survives_every_fault(fault, tmp_path, all_processes_are_dead):
    Folder(tmp_path / "count").write("a", "old")
    calls = calls_of(lambda: Folder(tmp_path / "count").write("a", "new"))
    for at in range(len(calls)):
        folder = Folder(tmp_path / f"{at}")
        folder.write("a", "old")
        for _ in range(2):  # twice over: two seals that came to nothing must not hide a good file
            with failing(fault, at), suppress(StoreError):
                Folder(folder.path).write("a", "new")
        with suppress(StoreError):
            assert Folder(folder.path).read("a") in (b"old", b"new")
        if fault not in ("lost flush", "power cut"):
            assert Folder(folder.path).whole("a")
        Folder(folder.path).write("a", "newer")
        assert Folder(folder.path).read("a") == b"newer"


def test_a_flipped_bit_anywhere_is_told(tmp_path):
    publish(tmp_path, NEW)
    told = 0
    for path in [p for p in tmp_path.rglob("*") if p.is_file() and p.stat().st_size]:
        whole = path.read_bytes()
        for byte in range(len(whole)):
            damaged = bytearray(whole)
            damaged[byte] ^= 1 << byte % 8
            path.write_bytes(damaged)
            for name in NEW:
                with suppress(StoreError):
                    assert Folder(tmp_path).read(name).decode() == NEW[name], (path, byte)
            found = Folder(tmp_path).verify()
            told += found.damaged != [] or found.unknown != []
        path.write_bytes(whole)
    assert told > sum(map(len, NEW.values()))
    assert Folder(tmp_path).verify().whole == sorted(NEW)


WRITER = """
import sys, time
from gangwise.core.errors import StoreError
from gangwise.core.files import Folder
done = refused = 0
while done < 30:
    try:
        with Folder(sys.argv[1]).publish("results") as new:
            for name in "abc":
                new.write(name, f"{sys.argv[2]} {done}")
        done += 1
    except StoreError as error:
        assert "is in use by" in str(error), error
        refused += 1
        time.sleep(0.001)
print(refused)
"""


def test_two_writers_do_not_mix(tmp_path):
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), who], stdout=subprocess.PIPE, text=True
        )
        for who in "xy"
    ]
    refused = [int(writer.communicate(timeout=120)[0]) for writer in writers]
    assert max(refused) > 0
    assert len(set(seen(tmp_path).values())) == 1
    assert Folder(tmp_path).verify().sound


def test_two_processes_enter_files_into_one_registry_at_once(tmp_path):
    code = (
        "import sys; from gangwise.core.files import Folder\n"
        "for i in range(100): Folder(sys.argv[1]).write(f'{sys.argv[2]}{i}', str(i))"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path), who]) for who in "xy"]
    assert [writer.wait(120) for writer in writers] == [0, 0]
    assert len(Folder(tmp_path).verify().whole) == 200


HOLDER = """
import sys, time
from gangwise.core.files import Folder
with Folder(sys.argv[1]).lock(command="gangwise sweep big.toml"):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_lock_names_its_holder_and_goes_with_it(tmp_path):
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE)
    assert holder.stdout.readline() == b"held\n"
    told = f"process {holder.pid} on .*gangwise sweep big.toml"
    with pytest.raises(StoreError, match=told), Folder(tmp_path).lock():
        pass
    with Folder(tmp_path).lock("rows.parquet"):  # another file of the folder
        pass
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    with Folder(tmp_path).lock(), Folder(tmp_path).lock():
        pass


def test_side_files_of_the_dead_go_and_of_the_living_stay(tmp_path):
    folder = Folder(tmp_path)
    folder.write("a", "1")
    code = "import os; print(os.getpid())"
    dead = int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout)
    theirs = [
        tmp_path / STATE / f".gangwise-{host}-{pid}-01234567.part"
        for host, pid in ((files._host(), dead), (files._host(), os.getpid()), ("ffffffff", dead))
    ]
    for path in theirs:
        path.write_text("half")
    assert folder.verify().unfinished == [f"{STATE}/{theirs[0].name}"]
    with folder.lock():
        pass
    assert [path.exists() for path in theirs] == [False, True, True]


@pytest.mark.parametrize("lost", ["flipped", "torn", "empty"])
def test_a_registry_that_lost_entries_heals_and_nothing_is_lost(tmp_path, lost):
    publish(tmp_path, NEW)
    before = {name: (tmp_path / name).read_bytes() for name in NEW}
    registry = tmp_path / STATE / "files"
    whole = bytearray(registry.read_bytes())
    whole[-20] ^= lost == "flipped"
    registry.write_bytes({"flipped": whole, "torn": whole[:-9] + b"\n", "empty": b""}[lost])
    publish(tmp_path, dict.fromkeys(NEW, "made again"))
    folder = Folder(tmp_path)
    assert folder.verify().sound
    for name, data in before.items():
        assert folder.read(name) == b"made again"
        for aside in tmp_path.glob(f"{name}.set-aside-*"):
            assert aside.read_bytes() == data
    assert list(tmp_path.glob("*.set-aside-*"))


def test_files_of_others_are_never_replaced_or_removed(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    for name in ("summary.json", "checkpoints/model.pt"):
        (tmp_path / name).write_text("mine")
    with pytest.raises(StoreError, match=r"summary\.json"):
        publish(tmp_path, NEW)
    with pytest.raises(StoreError, match=r"summary\.json"):
        Folder(tmp_path).write("summary.json", "ours")
    publish(tmp_path, {"page.html": "ours"})
    cleaned = Folder(tmp_path).clean(everything=True)
    assert cleaned.left == ["checkpoints/model.pt", "summary.json"]
    assert cleaned.removed == ["page.html"]
    assert {p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file()} == {
        "checkpoints/model.pt",
        "summary.json",
    }
    assert not Folder(tmp_path).remove("summary.json")


def test_clean_leaves_a_folder_of_its_own_files_as_if_it_had_never_been(tmp_path):
    publish(tmp_path / "out", {"deep/er/a": "1", **NEW})
    assert Folder(tmp_path / "out").clean(everything=True).left == []
    assert not (tmp_path / "out").exists()


def test_damaged_files_are_named_and_cleaned(tmp_path):
    publish(tmp_path, NEW)
    (tmp_path / "page.html").write_text("page of old numbers!")
    (tmp_path / "figure.svg").unlink()
    found = Folder(tmp_path).verify()
    assert (found.damaged, found.missing, found.sound) == (["page.html"], ["figure.svg"], False)
    with pytest.raises(StoreError, match=r"page\.html is damaged"):
        Folder(tmp_path).read("page.html")
    assert Folder(tmp_path).clean().removed == ["page.html"]
    assert Folder(tmp_path).verify().sound
    assert seen(tmp_path) == {"summary.json": "new numbers"}


def test_folders_in_folders_look_after_themselves(tmp_path):
    publish(tmp_path, NEW)
    publish(tmp_path / "runs", {"a.parquet": "1"})
    (tmp_path / "notes.txt").write_text("mine")
    assert [f.path for f in find_folders(tmp_path)] == [tmp_path, tmp_path / "runs"]
    assert Folder(tmp_path).verify().unknown == ["notes.txt"]
    with pytest.raises(StoreError, match="results"):
        find_folders(tmp_path / "runs" / STATE / "locks")


@pytest.mark.parametrize("name", ["../beside", "/etc/passwd", "", "a/../../b", "a\nb", "x" * 5000])
def test_names_stay_in_the_folder(name, tmp_path):
    with pytest.raises(StoreError, match="name"):
        Folder(tmp_path / "in").write(name, "x")
    assert list(tmp_path.iterdir()) == []


def test_writing_many_files_costs_the_same_for_each(tmp_path):
    """The registry is read as it grows, not from its beginning for every file."""
    folder, read = Folder(tmp_path), []
    plain = json.loads
    try:
        files.json.loads = lambda text: read.append(1) or plain(text)
        for i in range(300):
            folder.write(f"{i}", "x")
            folder.own()
    finally:
        files.json.loads = plain
    assert len(read) == 300


def test_a_lock_waits_for_nobody(tmp_path):
    begin = time.monotonic()
    with Folder(tmp_path).lock():
        code = (
            "import sys; from gangwise.core.files import Folder\n"
            "with Folder(sys.argv[1]).lock(): pass"
        )
        found = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True)
    assert found.returncode == 1
    assert b"is in use by process" in found.stderr
    assert time.monotonic() - begin < 30
