"""Folders of results and of services with links, devices and false entries at every place.

A *template* is a folder as gangwise makes it. :func:`spoilt` gives the ways to spoil one: each puts
something at one place that leads to a folder outside, or cannot be read, or was never written by
gangwise. :func:`state_of` is what a folder outside looks like, byte for byte.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

from gangwise.core.files import ANNOUNCED, CHECKPOINTS, LOCKS, REGISTRY, Seal, sealed_line

Spoil = Callable[[Path, Path], None]  # a copy of the template, and the folder outside

PLACES = [REGISTRY, f"{REGISTRY}.lock", ANNOUNCED, LOCKS, CHECKPOINTS, ".gangwise/study"]
PLACES += [f"{CHECKPOINTS}/letter.txt", f"{LOCKS}/letter.txt"]
STATES = ["service.sqlite-wal", "service.sqlite-shm", "wishes.sqlite", "service.sqlite.new"]
STATES += ["journal.log", "head", "lock", "heartbeat", "ledger.checkpoint", "ledger.checkpoint.1"]
STATES += ["service.sqlite.damaged", "journal.log.old", "cluster"]


def victim(folder: Path) -> Path:
    """A user's own folder: letters, keys, and files by the names that gangwise uses."""
    for name in ("letter.txt", "id_rsa", "files", "summary.json", "deep/thesis.tex", "1/a.parquet"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{name} is nobody else's")
    for kind in ("locks", "checkpoints", "runs", "jobs"):
        shutil.copytree(folder / "deep", folder / kind)
    return folder


def state_of(folder: Path) -> dict[str, tuple[object, ...]]:
    """Every name below a folder with its kind, mode, time of change and content."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(folder.rglob("*")):
        about = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
        found[str(path.relative_to(folder))] = (about.st_mode, about.st_mtime_ns, content)
    return found


def spoilt(template: Path, places: list[str]) -> Iterator[tuple[str, Spoil]]:
    """Every way to spoil a folder at its own files and folders, and at other places."""
    own = [str(path.relative_to(template)) for path in sorted(template.rglob("*"))]
    for place in dict.fromkeys([*own, *places]):
        for kind, put in KINDS.items():
            yield f"{place}: {kind}", lambda path, out, place=place, put=put: put(path / place, out)
    yield from TAMPERED.items()


def _cleared(path: Path) -> Path:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _link(target: str) -> Spoil:
    return lambda path, out: _cleared(path).symlink_to(out / target)


def _socket(path: Path, out: Path) -> None:
    here = os.getcwd()
    os.chdir(_cleared(path).parent)  # names of sockets are short
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(path.name[:100])
    finally:
        os.chdir(here)


def _device(path: Path, out: Path) -> None:
    if os.getuid() == 0:
        os.mknod(_cleared(path), 0o020666, os.makedev(1, 5))  # never ends


def _folder(path: Path, out: Path) -> None:
    _cleared(path).mkdir()
    (path / "letter.txt").write_text("in a folder where a file should be")


KINDS: dict[str, Spoil] = {
    "link to a folder": _link("."),
    "link to a file": _link("letter.txt"),
    "link to nothing": _link("not-there"),
    "relative link": lambda path, out: _cleared(path).symlink_to(os.path.relpath(out, path.parent)),
    "hard link": lambda path, out: os.link(out / "letter.txt", _cleared(path)),
    "FIFO": lambda path, out: os.mkfifo(_cleared(path)),
    "socket": _socket,
    "device": _device,
    "folder": _folder,
}


# What a registry or an announced publication may say


def _registered(*names: object, seal: object = None) -> Spoil:
    def put(path: Path, out: Path) -> None:
        digest = Seal.of((out / "letter.txt").read_bytes())._asdict()
        lines = [sealed_line({"file": name, "seal": seal or digest}) for name in names]
        with (path / REGISTRY).open("ab") as file:
            file.write(b"".join(b"\n" + line for line in lines) + b"\n")

    return put


def _registered_behind_a_link(path: Path, out: Path) -> None:
    _registered("papers/deep/thesis.tex", "papers/letter.txt")(path, out)
    (path / "papers").symlink_to(out)


def _announced(side: object, name: object = "page.html", stale: object = ()) -> Spoil:
    def put(path: Path, out: Path) -> None:
        place = str(side).replace("OUT", os.path.relpath(out, path / ".gangwise"))
        source = out / "id_rsa"
        seal = Seal.of(source.read_bytes(), "report")._asdict()
        files = {name: {"side": place if isinstance(side, str) else side, "seal": seal}}
        (path / ANNOUNCED).write_bytes(sealed_line({"files": files, "stale": stale}))

    return put


def _staged_link(path: Path, out: Path) -> None:
    side = ".gangwise-00000000-1-00000000.part"
    (path / ".gangwise" / side).symlink_to(out / "id_rsa")
    _announced(side)(path, out)


def _odd_names(path: Path, out: Path) -> None:
    for name in (
        "x" * 255,
        "two\nlines",
        "red\x1b[31m",
        "[red]",
        b"\xff\xfe".decode("utf-8", "surrogateescape"),
    ):
        (path / name).write_text("mine")
        (path / CHECKPOINTS).mkdir(parents=True, exist_ok=True)
        (path / CHECKPOINTS / name).write_text("mine")


def write(path: Path, text: str) -> None:
    path.write_text(text)


LONG = "../" * 20 + "etc/passwd"
TAMPERED: dict[str, Spoil] = {
    "registered behind a link": _registered_behind_a_link,
    "registered outside": _registered(
        "../out/letter.txt", LONG, "/etc/hostname", "a/../../out/id_rsa"
    ),
    "registered nonsense": _registered(7, None, "", ".", "a\0b", "\ud800", "x" * 256, ["a"]),
    "a seal that is none": _registered("summary.json", seal={"sha256": 7, "size": "x", "more": 1}),
    "a side file elsewhere": _announced("OUT/id_rsa"),
    "a side file by its path": _announced("/etc/hostname"),
    "a side file that is none": _announced(7),
    "a side file that is a link": _staged_link,
    "a place elsewhere": _announced(".gangwise-00000000-1-00000000.part", "../out/letter.txt"),
    "stale elsewhere": _announced(
        ".gangwise-00000000-1-00000000.part", stale=["../out/letter.txt", LONG, 7]
    ),
    "a publication that is a list": lambda path, out: write(path / ANNOUNCED, "[]"),
    "odd names": _odd_names,
}
