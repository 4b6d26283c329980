"""Real ``gangwise sweep`` processes whose workers, or who themselves, are killed in mid-sweep.

The watcher counts files of finished runs; everything listens on the loopback only and is ended by
the test that started it, at the latest when its time is up.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from gangwise.study.results import Results
from gangwise.study.sweep import sweep
from gangwise.study.workers import parallel
from tests.study.test_what_if import log_of

RUNS = 24
FILE = """
name = "killed"
scenario = "ogasched-default-v1"
slots = 480
seeds = 4
policies = ["drf", "fairness", "ogasched-react:steps=8"]
settings = { servers = 16, job_types = 4 }
grid = { contention = [1, 5] }
"""
SCRIPTS = Path(sys.executable).parent
TIME = 150

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="looks into /proc"),
]


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("killed") / "killed.toml"
    path.write_text(FILE)
    return path


@pytest.fixture(scope="module")
def expected(file) -> pl.DataFrame:
    """An uninterrupted sweep in this process."""
    return sweep(file, file.parent / "whole", jobs=1).rows(timings=False).collect()


@contextmanager
def started(*command: Any, **env: str) -> Iterator[subprocess.Popen[str]]:
    """A process with a group of its own, which is gone afterwards."""
    process = subprocess.Popen(
        [str(part) for part in command],
        start_new_session=True,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, **env},
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=TIME)


@contextmanager
def sweeping(file: Path, out: Path, *options: str, **env: str) -> Iterator[subprocess.Popen[str]]:
    with started(SCRIPTS / "gangwise", "sweep", file, "--out", out, *options, **env) as process:
        yield process


def finished(out: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in (out / "runs").glob("*.parquet")}


def wait(until: Callable[[], Any], process: subprocess.Popen[str]) -> Any:
    end = time.monotonic() + TIME
    while time.monotonic() < end:
        found = until()
        if found:
            return found
        if process.poll() is not None:
            pytest.fail(f"ended with {process.returncode}: {process.communicate()[0]}")
        time.sleep(0.02)
    pytest.fail("took too long")


def family(pid: int) -> Iterator[tuple[int, str]]:
    """Process ids and command lines of all descendants."""
    for task in Path(f"/proc/{pid}/task").glob("*"):
        try:
            children = (task / "children").read_text().split()
        except OSError:
            continue
        for child in map(int, children):
            try:
                line = Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            yield child, line
            yield from family(child)


def rows_at_the_end(process: subprocess.Popen[str], out: Path) -> pl.DataFrame:
    """All rows, once the sweep has ended well."""
    said = process.communicate(timeout=TIME)[0]
    if process.returncode != 0:
        pytest.fail(f"ended with {process.returncode}: {said}")
    return Results.open(out).rows(timings=False).collect()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_sweep_that_was_stopped_does_only_the_rest(file, expected, tmp_path, how):
    with sweeping(file, tmp_path, "--jobs", "2") as process:
        wait(lambda: len(finished(tmp_path)) >= 4, process)
        os.killpg(process.pid, how)
        said = process.communicate(timeout=TIME)[0]
    if how == signal.SIGINT:
        assert process.returncode == 130
        assert "to go on: gangwise sweep" in said
        assert "Traceback" not in said
    before = finished(tmp_path)
    assert 4 <= len(before) < RUNS
    with sweeping(file, tmp_path, "--jobs", "2") as process:
        rows = rows_at_the_end(process, tmp_path)
    assert rows.equals(expected)
    assert len(finished(tmp_path)) == RUNS
    assert finished(tmp_path).items() >= before.items()


def test_a_dead_process_of_this_machine(file, expected, tmp_path):
    with sweeping(file, tmp_path, "--jobs", "2") as process:
        wait(lambda: len(finished(tmp_path)) >= 4, process)
        workers = [pid for pid, line in family(process.pid) if "popen_loky_posix" in line]
        assert len(workers) == 2
        os.kill(workers[0], signal.SIGKILL)
        rows = rows_at_the_end(process, tmp_path)
    assert rows.equals(expected)
    assert len(finished(tmp_path)) == RUNS


DASK = pytest.mark.skipif(not find_spec("distributed"), reason="not installed: gangwise[dask]")
RAY = pytest.mark.skipif(not find_spec("ray"), reason="not installed: gangwise[ray]")


def test_workers_that_live_on_work_in_the_folder_of_their_caller(tmp_path, monkeypatch):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        folders: list[str] = []
        parallel(os.getcwd, [(), ()], folders.append, 2, "loky", None)
        assert folders == [str(tmp_path / name)] * 2


@contextmanager
def dask_cluster(folder: Path) -> Iterator[tuple[str, list[subprocess.Popen[str]]]]:
    """The address of a scheduler, and its two workers."""
    where, quiet = folder / "scheduler.json", ("--no-dashboard", "--scheduler-file")
    here = "--host", "127.0.0.1"
    alone = "--nthreads", "1", "--no-nanny", "--death-timeout", "60"
    worker = SCRIPTS / "dask", "worker", *here, *alone, *quiet, where
    start = SCRIPTS / "dask", "scheduler", *here, "--port", "0", "--idle-timeout", f"{TIME}s"
    with started(*start, *quiet, where) as scheduler:
        wait(where.exists, scheduler)
        with started(*worker) as first, started(*worker) as second:
            address = wait(lambda: json.loads(where.read_text() or "{}"), scheduler)["address"]
            yield address, [first, second]


@DASK
def test_a_dead_dask_worker(file, expected, tmp_path):
    with dask_cluster(tmp_path) as (address, (first, second)):
        with sweeping(file, tmp_path, "--backend", "dask", "--address", address) as process:
            wait(lambda: len(finished(tmp_path)) >= 4, process)
            first.kill()
            rows = rows_at_the_end(process, tmp_path)
        assert second.poll() is None
    assert rows.equals(expected)
    assert len(finished(tmp_path)) == RUNS


LOOPBACK = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # keep 127.0.0.1, look for no address of the machine
    "RAY_AUTH_MODE": "disabled",  # also where an earlier Ray of this user has left a token
    "RAY_USAGE_STATS_ENABLED": "0",
}


@contextmanager
def ray_cluster() -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The address of a head with two processors, and its process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with (
        tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as short,
        started(
            SCRIPTS / "ray",
            "start",
            "--head",
            "--block",
            "--node-ip-address",
            "127.0.0.1",
            "--port",
            address.partition(":")[2],
            "--num-cpus",
            "2",
            "--include-dashboard=false",
            "--disable-usage-stats",
            "--temp-dir",
            short,
            **LOOPBACK,
        ) as head,
    ):
        try:
            answers = [SCRIPTS / "ray", "status", "--address", address]
            wait(
                lambda: (
                    not subprocess.run(
                        answers,
                        env={**os.environ, **LOOPBACK},
                        timeout=TIME,
                        capture_output=True,
                        check=False,
                    ).returncode
                ),
                head,
            )
            yield address, head
        finally:
            left = [pid for pid, _ in family(head.pid)]
            head.terminate()  # Ray ends what it started; below, whatever did not end in time
            try:
                head.wait(20)
            except subprocess.TimeoutExpired:
                for pid in left:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)


@RAY
def test_a_dead_ray_worker(file, expected, tmp_path):
    with ray_cluster() as (address, head):
        options = ("--backend", "ray", "--address", address)
        with sweeping(file, tmp_path, *options, **LOOPBACK) as process:
            wait(lambda: len(finished(tmp_path)) >= 4, process)
            busy = wait(
                lambda: [pid for pid, line in family(head.pid) if "ray::_call" in line], process
            )
            os.kill(busy[0], signal.SIGKILL)
            rows = rows_at_the_end(process, tmp_path)
    assert rows.equals(expected)
    assert len(finished(tmp_path)) == RUNS


CHANGES = [f"cap.1.most={most},nodes.all+={n}" for n in range(5) for most in (8, 20, 24)]


@contextmanager
def what_if(log: Path, out: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Fifteen changes on four parts of a log."""
    given = [part for change in CHANGES for part in ("--change", change)]
    weeks = ("--site", log.parent, "--set", "parts=4", "--seeds", "4")
    command = (SCRIPTS / "gangwise", "what-if", log, *weeks, *given)
    with started(*command, "--out", out, *options) as process:
        yield process


@pytest.fixture(scope="module")
def log(tmp_path_factory) -> Path:
    """A log, and beside it in ``whole`` a what-if that nobody stops."""
    path = log_of(tmp_path_factory.mktemp("log"), 500)
    with what_if(path, path.parent / "whole", "--jobs", "1") as process:
        rows_at_the_end(process, path.parent / "whole")
    return path


@pytest.mark.parametrize("where", ["here", pytest.param("dask", marks=DASK)])
def test_a_what_if_that_was_killed_does_only_the_rest_and_says_the_same(log, where, tmp_path):
    with ExitStack() as cluster:
        options: tuple[str, ...] = ("--jobs", "2")
        if where == "dask":
            options = ("--backend", "dask", "--address")
            options += (cluster.enter_context(dask_cluster(tmp_path))[0],)
        with what_if(log, tmp_path, *options) as process:
            wait(lambda: len(finished(tmp_path)) >= 6, process)
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate(timeout=TIME)
        before = finished(tmp_path)
        assert 6 <= len(before) < 4 * (1 + len(CHANGES))
        with what_if(log, tmp_path, *options) as process:
            rows_at_the_end(process, tmp_path)
    assert finished(tmp_path).items() >= before.items()  # nothing is played twice
    folders = tmp_path, log.parent / "whole"
    assert len({Results.open(folder).digest for folder in folders}) == 1
    answers = (json.loads((folder / "summary.json").read_text()) for folder in folders)
    ours, theirs = ({key: answer[key] for key in ("answer", "what_if")} for answer in answers)
    assert ours == theirs
    assert "Shown are the 12" in (tmp_path / "report.html").read_text()


STOPPED_AT_THE_START = """
import os, signal, time
from pathlib import Path
from gangwise.study.workers import parallel

def tasks():
    os.kill(os.getpid(), signal.SIGINT)  # waits until the workers have been started
    yield from ((number,) for number in range(20))

try:
    parallel(abs, tasks(), print, 2, "loky", None)
except KeyboardInterrupt as error:
    kept = error  # as a command does that says how to go on
    for _ in range(100):  # one that is killed may be there for an instant; idle ones for minutes
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        files = [Path(f"/proc/{child}/cmdline") for child in children]
        left = sum(b"LokyProcess" in file.read_bytes() for file in files if file.exists())
        if not left:
            break
        time.sleep(0.1)
    print(left)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="asks the kernel for children")
def test_a_ctrl_c_while_workers_are_started_ends_them_at_once():
    command = [sys.executable, "-c", STOPPED_AT_THE_START]
    # On a busy machine loky may start a worker just after it was stopped, which then lives until
    # the interpreter ends: in three runs of twelve, six of them at once.
    for _ in range(4):
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIME)
        if (done.returncode, done.stdout.splitlines()[:1], done.stderr) == (0, ["0"], ""):
            return
    pytest.fail(done.stdout + done.stderr)
