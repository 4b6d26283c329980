"""Commands on folders that came from elsewhere: what lies outside them stays, byte for byte."""

from __future__ import annotations

import os
import random
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gangwise.cli import app
from gangwise.core.errors import GangwiseError, StoreError
from gangwise.engines.engine import Placed
from gangwise.engines.local import LocalEngine
from gangwise.service.loop import Service
from tests.hostile_folders import PLACES, STATES, spoilt, state_of, victim

SMALL = "ogasched-default-v1:servers=6,job_types=3"
COMPARE = ["compare", SMALL, "--policies", "drf,fairness", "--slots", "5", "--seeds", "1"]
COMPARE += ["--comparators", "none", "--jobs", "1", "--out"]
RESULTS = [["verify"], ["clean"], ["clean", "--all"], ["report"], ["clean", "--json"]]
MORE = [
    COMPARE,
    ["report", "--format", "csv", "--out", "OUT"],
    ["replay"],
    ["explain", "--job", "1"],
]
MORE += [["trace", "inspect"], ["jobs"], ["forecast"], ["new", "policy", "Mine", "--folder"]]
MORE += [["tune", SMALL, "ogasched-react", "--range", "steps=1:2:int", "--trials", "1", "--out"]]
SERVICES = [["top", "--state"], ["verify"], ["verify", "--repair"], ["explain", "1", "--state"]]
SERVICES += [["account", "--state"], ["forecast"], ["replay"]]
SERVE = ["serve", "--engine", "local", "--act", "--seconds", "0.3", "--account-every", "0"]
SERVE += ["--forecast-every", "0", "--state"]


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    base = tmp_path_factory.mktemp("templates")
    results, state = base / "results", base / "state"
    found = CliRunner().invoke(app, [*COMPARE, str(results)])
    assert found.exit_code == 0, found.output
    LocalEngine.create(state / "cluster", [{"name": "n0", "devices": {"cpu": 4}}])
    LocalEngine.submit(state / "cluster", ["true"])
    service = Service(LocalEngine(state / "cluster"), state, "fcfs+easy+best-fit", act=True)
    service.tick(0.0)
    service.close()
    return {"results": results, "state": state}


def tried(template: Path, put: Any, command: list[str], base: Path) -> str:
    """What a command says of a spoilt copy; fails where anything outside has changed."""
    path, out = base / "in", victim(base / "out")
    shutil.copytree(template, path, symlinks=True)
    put(path, out)
    before = state_of(out)
    words = [word.replace("OUT", str(base / "exported")) for word in command]
    here = (
        [str(path)] if words[-1].startswith("--") and words[-1] not in ("--all", "--json") else []
    )
    if not here:
        words.insert(1 + (words[0] == "trace"), str(path))

    def late(*_: Any) -> None:
        raise TimeoutError(f"{command} waits for ever")

    was = signal.signal(signal.SIGALRM, late)
    signal.alarm(600)  # by the wall clock: the machine may be busy
    try:
        found = CliRunner().invoke(app, words + here)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, was)
    assert state_of(out) == before, (words, found.output)
    error = found.exception
    if error is not None and not isinstance(error, SystemExit | GangwiseError):
        raise AssertionError(f"{words}: {error!r}") from error
    return found.output + str(error or "")


EXHAUSTIVE = "GANGWISE_EXHAUSTIVE" in os.environ
CASES = {"results": RESULTS, "state": SERVICES}
SLOW = {"results": MORE, "state": [SERVE]}  # of these some are drawn


def cases(templates: dict[str, Path], kind: str, commands: list[list[str]]) -> list[Any]:
    places = PLACES if kind == "results" else STATES
    return [
        (name, put, command)
        for name, put in spoilt(templates[kind], places)
        for command in commands
        if kind == "results" or ":" in name  # the others are of a registry
    ]


def wrong_in(templates: dict[str, Path], kind: str, cases: list[Any], base: Path) -> list[str]:
    wrong = []
    for i, (name, put, command) in enumerate(cases):
        try:
            tried(templates[kind], put, command, base / str(i))
        except (AssertionError, TimeoutError) as error:
            wrong.append(f"{name}, {error}")
        shutil.rmtree(base / str(i))
    return wrong


@pytest.mark.parametrize("kind", CASES)
def test_some_hostile_folders_leave_what_is_outside_alone(kind, templates, tmp_path):
    every = cases(templates, kind, CASES[kind][:3])
    assert wrong_in(templates, kind, random.Random(40).sample(every, 40), tmp_path) == []


@pytest.mark.full
@pytest.mark.parametrize("kind", CASES)
def test_every_hostile_folder_leaves_what_is_outside_alone(kind, templates, tmp_path):
    every, slow = (cases(templates, kind, of[kind]) for of in (CASES, SLOW))
    if not EXHAUSTIVE:
        every, slow = random.Random(7).sample(every, 200), random.Random(8).sample(slow, 10)
    every += slow
    assert wrong_in(templates, kind, every, tmp_path) == []


HARM = {
    "checkpoints that are a link": (".gangwise/checkpoints", ".gangwise/checkpoints is a link"),
    "locks that are a link": (".gangwise/locks", ".gangwise/locks is a link"),
    "a registry that is a link": (".gangwise/files", "files is a link"),
    "a state that is a link": (".gangwise", ".gangwise is a link"),
    "runs that are a link": ("runs", "runs is a link"),
}


@pytest.mark.parametrize("place", HARM)
def test_links_are_refused_by_name(place, templates, tmp_path):
    where, said = HARM[place]
    put = dict(spoilt(templates["results"], PLACES))
    kind = "link to a file" if where.endswith("files") else "link to a folder"
    for command in (["clean"], ["clean", "--all"]):
        told = tried(templates["results"], put[f"{where}: {kind}"], command, tmp_path / command[-1])
        assert said in told.replace("\n", ""), told


def test_a_job_folder_that_is_a_link_concerns_no_other(tmp_path):
    out = victim(tmp_path / "out")
    cluster = tmp_path / "cluster"
    LocalEngine.create(cluster, [{"name": "n0", "devices": {"cpu": 4}}])
    good, bad, behind = (LocalEngine.submit(cluster, ["true"]) for _ in range(3))
    shutil.rmtree(cluster / "jobs" / bad)
    (cluster / "jobs" / bad).symlink_to(out / "deep")
    (cluster / "jobs" / behind / "1").symlink_to(out)
    before = state_of(out)
    engine = LocalEngine(cluster)
    assert {row.job.id for row in engine.jobs()} == {good, behind}
    assert "link" in engine.quarantine.rows()[0]["why"]
    for job in (bad, behind):
        with pytest.raises(GangwiseError, match="link"):
            engine.place(job, 1, [Placed("n0", 1)])
    os.link(out / "letter.txt", _made(cluster / "jobs" / good / "1") / "output.txt")
    with pytest.raises(GangwiseError, match=r"output\.txt"):
        engine.place(good, 1, [Placed("n0", 1)])
    assert state_of(out) == before


@pytest.mark.parametrize("kind", ["FIFO", "link to a file", "device", "folder"])
def test_a_sign_of_life_that_is_no_file_is_none(kind, templates, tmp_path):
    put = dict(spoilt(templates["state"], STATES))[f"cluster/leader.1/beat: {kind}"]
    assert "internal error" not in tried(templates["state"], put, SERVE, tmp_path)


def _made(path: Path) -> Path:
    path.mkdir()
    return path


def test_a_state_folder_that_everybody_can_write_into_is_mended_or_refused(tmp_path):
    cluster = tmp_path / "cluster"
    LocalEngine.create(cluster, [{"name": "n0", "devices": {"cpu": 4}}])
    state = _made(tmp_path / "state")
    state.chmod(0o777)
    service = Service(LocalEngine(cluster), state, "fcfs+easy+best-fit", act=True)
    service.close()
    assert state.stat().st_mode & 0o777 == 0o755
    assert "could be written by everybody" in service.notes[0]
    if os.getuid():
        return
    for name in (".", "head"):
        state.chmod(0o777)
        os.chown(state / name, 4321, 4321)
        with pytest.raises(StoreError, match="another user"):
            Service(LocalEngine(cluster), state, "fcfs+easy+best-fit", act=True)
        os.chown(state / name, 0, 0)
