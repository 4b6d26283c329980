"""Commands on a disk that fails at every call of --out: one line, nothing mixed, nothing lost."""

from __future__ import annotations

import json
import os
import shutil
from importlib.util import find_spec

import polars as pl
import pytest
from typer.testing import CliRunner

from gangwise.cli import app
from gangwise.core import files
from gangwise.core.errors import GangwiseError
from gangwise.core.files import find_folders
from gangwise.study.runs import TIMINGS
from tests.faults import FAULTS, failing

pytestmark = pytest.mark.full

SMALL = "ogasched-default-v1:servers=6,job_types=3"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    # The writer of every unfinished file is dead: this process stands for one that was killed.
    monkeypatch.setattr(files, "_orphaned", lambda name: files.ORPHAN.fullmatch(name) is not None)


def experiment(folder):
    file = folder / "small.toml"
    head = f'name = "small"\nscenario = "{SMALL}"\nslots = 5\nseeds = 1\n'
    file.write_text(head + 'policies = ["drf", "fairness"]\n')
    return str(file)


COMMANDS = {
    "compare": lambda base, out: [
        "compare",
        SMALL,
        "--policies",
        "drf,fairness",
        "--slots",
        "5",
        "--seeds",
        "1",
        "--comparators",
        "none",
        "--jobs",
        "1",
        "--out",
        str(out),
    ],
    "run": lambda base, out: ["run", SMALL, "drf", "--slots", "5", "--out", f"{out}/rows.parquet"],
    "sweep": lambda base, out: ["sweep", experiment(base), "--jobs", "1", "--out", str(out)],
    "tune": lambda base, out: [
        "tune",
        SMALL,
        "ogasched-react",
        "--range",
        "steps=1:3:int",
        "--trials",
        "2",
        "--slots",
        "5",
        "--seeds",
        "1000,",
        "--validation",
        "2000,",
        "--jobs",
        "1",
        "--out",
        str(out),
    ],
}

TUNES = pytest.mark.skipif(not find_spec("optuna"), reason="not installed: gangwise[tune]")
NAMES = [pytest.param(name, marks=TUNES) if name == "tune" else name for name in COMMANDS]
STEP = int(os.environ.get("GANGWISE_FAULT_STEP", "53"))
"""Every so many calls one fails: all of them take long; the layer's own tests try them all."""


def results(name, out):
    """Everything that the command found, without times."""
    if name == "run":
        return pl.read_parquet(out / "rows.parquet").to_dicts()
    found = {}
    for path in sorted(out.glob("runs/*.parquet")):
        frame = pl.read_parquet(path).filter(~pl.col("metric").is_in(TIMINGS))
        found[path.name] = frame.to_dicts()
    tuning = out / "tuning.json"
    return found, json.loads(tuning.read_text()) if tuning.exists() else None


def command(arguments):
    done = CliRunner().invoke(app, arguments)
    if done.exception is not None and not isinstance(done.exception, GangwiseError | SystemExit):
        raise done.exception
    return done


@pytest.mark.parametrize("name", NAMES)
def test_every_call_of_out_may_fail(name, tmp_path):
    make = COMMANDS[name]
    with failing() as disk:
        assert command(make(tmp_path, tmp_path / "whole")).exit_code == 0
    wanted = results(name, tmp_path / "whole")
    tried = 0
    for at in range(0, len(disk.calls), STEP):
        for fault in (FAULTS[at % len(FAULTS)], FAULTS[(at + 1) % len(FAULTS)]):
            out = tmp_path / f"{at}-{fault}".replace(" ", "-").replace("/", "-")
            arguments = make(tmp_path, out)
            with failing(fault, at):
                done = command(arguments)
                assert done.exit_code in (0, 1), done.output
            again = command(arguments)
            assert again.exit_code == 0, (fault, at, disk.calls[at], again.output, again.exception)
            assert results(name, out) == wanted, (fault, at, disk.calls[at])
            for folder in find_folders(out):
                found = folder.verify()
                assert found.sound, (fault, at, disk.calls[at], found)
                assert not found.unfinished, (fault, at, disk.calls[at], found)
            tried += 1
    assert tried > len(disk.calls) / STEP
    print(f"{name}: {tried} faults at {len(disk.calls)} calls")


@pytest.mark.parametrize("name", [name for name in NAMES if name != "run"])
def test_flipped_bits_anywhere_do_not_change_results(name, tmp_path):
    """A bit of the first and of the last byte of every file: the command mends it, or says so."""
    arguments = COMMANDS[name](tmp_path, tmp_path / "out")
    assert command(arguments).exit_code == 0
    wanted = results(name, tmp_path / "out")
    for path in sorted(p for p in (tmp_path / "out").rglob("*") if p.is_file()):
        whole = path.read_bytes()
        # The study is SQLite's, and can be played again from the runs; pictures are drawn again.
        if path.suffix in (".db", ".svg", ".png"):
            continue
        for bit, place in enumerate((0, -1) if whole else ()):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << bit
            path.write_bytes(damaged)
            done = command(arguments)
            if done.exit_code == 0:
                assert results(name, tmp_path / "out") == wanted, (path, place)
            else:
                said = str(done.exception)
                assert "damaged" in said or "would be replaced" in said, (path, place, said)
            path.write_bytes(whole)


def test_a_reproduction_is_published_whole_or_not_at_all(tmp_path):
    """Its runs are those of a sweep; what is tried here is what is made of them."""
    first = tmp_path / "first"

    def reproduce(out):
        return [
            "reproduce",
            "opm",
            "--theorem",
            "2",
            "--quick",
            "--seeds",
            "1",
            "--jobs",
            "1",
            "--out",
            str(out),
        ]

    def begun(name):
        shutil.copytree(first / "runs", tmp_path / name / "runs")
        return tmp_path / name

    assert command(reproduce(first)).exit_code == 0
    with failing() as disk:
        assert command(reproduce(begun("count"))).exit_code == 0
    wanted = (first / "side-by-side.json").read_text()
    for at in range(0, len(disk.calls), 2 * STEP):
        fault = FAULTS[at // (2 * STEP) % (len(FAULTS) - 1)]
        out = begun(f"{at}")
        with failing(fault, at):
            assert command(reproduce(out)).exit_code in (0, 1)
        assert command(reproduce(out)).exit_code == 0, (fault, at, disk.calls[at])
        assert (out / "side-by-side.json").read_text() == wanted
        assert all(folder.verify().sound for folder in find_folders(out))
    print(f"reproduce: {len(disk.calls)} calls")


def test_the_checkpoint_of_a_finished_run_is_forgotten(tmp_path):
    """Killed after a run is stored and before its checkpoint is removed."""
    arguments = COMMANDS["sweep"](tmp_path, tmp_path / "out")
    assert command(arguments).exit_code == 0
    (folder,) = find_folders(tmp_path / "out")
    key = next((tmp_path / "out" / "runs").iterdir()).stem
    files.write_whole(folder.checkpoint(key), "state")
    assert folder.verify().unfinished
    assert command(arguments).exit_code == 0
    assert not folder.verify().unfinished
