"""Commands that are asked to stop: no traceback, one line, their own code, the same results."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import polars as pl
import pytest

pytestmark = pytest.mark.full

SMALL = "ogasched-default-v1:servers=64"


def begin(*arguments):
    """A command in a session of its own, as a terminal has it."""
    return subprocess.Popen(
        [sys.executable, "-m", "gangwise", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def stopped(child, number, group):
    (os.killpg if group else os.kill)(child.pid, number)
    out, errors = child.communicate(timeout=120)
    assert "Traceback" not in out + errors, errors
    assert "KeyboardInterrupt" not in out + errors, errors
    return errors


def done(*arguments):
    child = begin(*arguments)
    _, errors = child.communicate(timeout=300)
    assert "Traceback" not in errors
    return child.returncode


def until(there, child):
    deadline = time.monotonic() + 120
    while not there() and child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)


@pytest.fixture
def experiment(tmp_path):
    file = tmp_path / "long.toml"
    file.write_text(
        f'name = "long"\nscenario = "{SMALL}"\nslots = 3000\nseeds = 8\n'
        'policies = ["drf", "fairness"]\n'
    )
    return file


@pytest.mark.parametrize(
    ("number", "code", "finished"), [(signal.SIGINT, 130, 0), (signal.SIGTERM, 143, 3)]
)
def test_a_sweep_with_workers_ends_quietly(number, code, finished, experiment, tmp_path):
    """A terminal tells all processes of the command, workers that are just starting too."""
    out = tmp_path / "out"
    child = begin("sweep", experiment, "--jobs", "2", "--out", out)
    until(lambda: (out / "long.plan.json").exists(), child)
    until(lambda: len(list(out.glob("runs/*.parquet"))) >= finished, child)
    time.sleep(0.0 if finished else 0.5)
    errors = stopped(child, number, group=True)
    if child.returncode:  # it may have been done before it was told
        assert child.returncode == code, errors
        assert "to go on: gangwise sweep" in errors
    assert done("sweep", experiment, "--jobs", "2", "--out", out) == 0


def test_sigterm_saves_a_run_which_goes_on_to_the_same_bits(tmp_path):
    assert done("run", SMALL, "ogasched-react", "--slots", "2") == 0  # its kernels are compiled
    arguments = ["run", SMALL, "ogasched-react", "--slots", "8000", "--out"]
    child = begin(*arguments, tmp_path / "rows.parquet")
    until(lambda: list(tmp_path.glob(".gangwise/locks/*.json")), child)
    time.sleep(0.7)
    errors = stopped(child, signal.SIGTERM, group=False)
    assert child.returncode == 143, errors
    assert "saved to" in errors
    other = begin(
        "run", SMALL, "drf", "--slots", "8000", "--resume", "--out", tmp_path / "rows.parquet"
    )
    _, told = other.communicate(timeout=60)
    assert other.returncode == 2
    assert "policy was ogasched-react r1 and is now drf r3" in told
    assert done(*arguments, tmp_path / "rows.parquet", "--resume") == 0
    assert done(*arguments, tmp_path / "whole.parquet") == 0
    both = [pl.read_parquet(tmp_path / f"{name}.parquet") for name in ("rows", "whole")]
    assert both[0].equals(both[1])


DROPPED = """
import ctypes, os, signal
import gangwise.cli as cli
import {module} as module

def drops(*arguments, **more):
    ctypes.PYFUNCTYPE(None)(lambda: os.kill(os.getpid(), signal.{name}))()
    raise TypeError("compiled code printed and dropped what its callback raised")

module.{function} = drops
cli.main()
"""


@pytest.mark.parametrize(
    ("name", "code", "module", "function", "command", "said"),
    [
        ("SIGINT", 130, "gangwise.logs.jobs", "jobs_of", "jobs log.swf", ""),
        (
            *("SIGTERM", 143, "gangwise.study.compare", "compare"),
            *(f"compare {SMALL}", "nothing was saved"),
        ),
    ],
)
def test_a_stop_that_compiled_code_drops_is_still_a_stop(
    name, code, module, function, command, said, tmp_path
):
    (tmp_path / "log.swf").write_text("1 0 0 10 1 -1 -1 1 10 -1 1 1 1 -1 1 -1 -1 -1\n")
    text = DROPPED.format(name=name, module=module, function=function)
    found = subprocess.run(
        [sys.executable, "-c", text, *command.split()], capture_output=True, text=True, cwd=tmp_path
    )
    assert found.returncode == code, found.stderr
    assert found.stderr.count("gangwise: interrupted") == 1
    assert said in found.stderr
    assert "internal error" not in found.stderr
