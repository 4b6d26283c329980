"""Kill commands at random times and go on: the results must be the same bits.

    python benchmarks/kills.py [--kills 500] [--seed 0] [--only compare,run]

Each trial starts a command in an empty folder, kills it and its workers with SIGKILL at a random
time, and starts it again, several times over; then it is left to finish, and what it found is
compared with what an undisturbed command found. Checkpoints are taken every 50 ms instead of every
30 s, so that kills fall into them. Children are forked from this process, which has imported
everything: a kill costs a fraction of a second.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pickle
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

from gangwise import create_policy, create_scenario, simulate
from gangwise.cli import main
from gangwise.core.files import find_folders
from gangwise.core.simulation import Simulation
from gangwise.study.results import Results

SMALL = "ogasched-default-v1:servers=16,job_types=4"
SWEEP = f"""
name = "kills"
scenario = "{SMALL}"
slots = 300
seeds = 3
policies = ["drf", "fairness", "ogasched-react:steps=3"]
comparators = ["best_fixed"]
[grid]
contention = [2, 5]
"""
Found = dict[str, Any]


def rows(frame: pl.DataFrame) -> str:
    """All of a frame, to the bit: floats are written so that they are read back as they were."""
    return repr(frame.rows())


def found_by_compare(out: Path) -> Found:
    summary = json.loads((out / "summary.json").read_text())
    for policy in summary["policies"]:
        del policy["us_per_slot"]
    return {"rewards": rows(pl.read_parquet(out / "rewards.parquet")), "summary": summary}


def found_by_run(out: Path) -> Found:
    return {"rows": rows(pl.read_parquet(out / "rows.parquet"))}


def found_by_sweep(out: Path) -> Found:
    return {"rows": rows(Results.open(out).rows(timings=False).collect())}


def found_by_tune(out: Path) -> Found:
    names = [n for n in ("tuning", "validation") if (out / f"{n}.plan.json").exists()]
    runs = {n: rows(Results.open(out, n).rows(timings=False).collect()) for n in names}
    return {"tuning": json.loads((out / "tuning.json").read_text()), **runs}


def found_by_reproduce(out: Path) -> Found:
    return {path.name: rows(pl.read_parquet(path)) for path in sorted(out.glob("*.parquet"))} | {
        "rows": (out / "side-by-side.json").read_text()
    }


def commands(file: Path) -> dict[str, tuple[list[str], list[str], Callable[[Path], Found]]]:
    """Command, what is added when it goes on, and what it found; OUT is the folder."""
    tune = [
        "tune",
        SMALL,
        "ogasched-react",
        "--knob",
        "fraction=0.05:0.8:log",
        "--knob",
        "steps=1:8:int",
        "--trials",
        "4",
        "--slots",
        "60",
        "--seeds",
        "1000,1001",
        "--validation",
        "2000,2001",
        "--jobs",
        "1",
        "--out",
        "OUT",
    ]
    return {
        "compare": (
            [
                "compare",
                SMALL,
                "--policies",
                "drf,fairness,ogasched-react:steps=3",
                "--slots",
                "400",
                "--seeds",
                "2",
                "--comparators",
                "best_fixed",
                "--jobs",
                "1",
                "--out",
                "OUT",
            ],
            [],
            found_by_compare,
        ),
        "run": (
            [
                "run",
                SMALL,
                "ogasched-react:steps=5",
                "--slots",
                "12000",
                "--out",
                "OUT/rows.parquet",
            ],
            [],
            found_by_run,
        ),
        "sweep": (["sweep", str(file), "--jobs", "1", "--out", "OUT"], [], found_by_sweep),
        "sweep with workers": (
            ["sweep", str(file), "--jobs", "2", "--out", "OUT"],
            [],
            found_by_sweep,
        ),
        "tune": (tune, [], found_by_tune),
        "reproduce": (
            [
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
                "OUT",
            ],
            [],
            found_by_reproduce,
        ),
    }


def looked_at(found: Callable[[Path], Found], out: Path) -> Found:
    """What is in a folder, looked at by a child: the threads of polars do not survive a fork."""
    with tempfile.NamedTemporaryFile() as file:
        child = os.fork()
        if not child:
            try:
                answer: Any = found(out)
            except BaseException as error:
                answer = repr(error)
            Path(file.name).write_bytes(pickle.dumps(answer))
            os._exit(0)
        os.waitpid(child, 0)
        answer = pickle.loads(Path(file.name).read_bytes())
    if isinstance(answer, str):
        raise RuntimeError(answer)
    return answer


def start(arguments: list[str], log: Path) -> int:
    """Fork a child that runs a command; its process."""
    child = os.fork()
    if child:
        return child
    try:
        os.setsid()
        handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        sys.argv = ["gangwise", *arguments]
        Simulation.run.__defaults__ = (None, 0.05, None)
        main()
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException as error:
        print(repr(error), file=sys.stderr)
        code = 99
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def finish(arguments: list[str], log: Path) -> tuple[int, float]:
    begin = time.perf_counter()
    _, status = os.waitpid(start(arguments, log), 0)
    return os.waitstatus_to_exitcode(status), time.perf_counter() - begin


def kill(arguments: list[str], log: Path, after: float) -> bool:
    """Whether the command was killed rather than done."""
    child = start(arguments, log)
    until = time.perf_counter() + after
    while time.perf_counter() < until:
        if os.waitpid(child, os.WNOHANG)[0]:
            return False
        time.sleep(0.002)
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:  # it has not become a group yet
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def trial(
    arguments: list[str],
    more: list[str],
    found: Callable[[Path], Found],
    wanted: Found,
    seconds: float,
    most: int,
    draw: random.Random,
) -> tuple[int, str]:
    """How many kills, and what went wrong, if anything did."""
    base = Path(tempfile.mkdtemp(prefix="gangwise-kills-"))
    out, log = base / "out", base / "log"
    given = [word.replace("OUT", str(out)) for word in arguments]
    kills = 0
    again: list[str] = []
    for _ in range(most):
        kills += kill(given + again, log, draw.uniform(0, 1.05 * seconds))
        again = more
    code, _ = finish(given + again, log)
    try:
        if code:
            return kills, f"exit code {code}: {log.read_text()[-500:]}"
        result = looked_at(found, out)
        differing = [name for name in wanted if wanted[name] != result.get(name)]
        if differing:
            return kills, f"other bits in {', '.join(differing)}"
        for folder in find_folders(out):
            about = folder.verify()
            if not about.sound or about.unfinished or list(folder.path.rglob("*.part")):
                return kills, f"left over in {folder.path}: {about}"
    except Exception as error:
        return kills, repr(error)
    shutil.rmtree(base)
    return kills, ""


def every_command(kills: int, seed: int, only: list[str]) -> int:
    draw, base = random.Random(seed), Path(tempfile.mkdtemp(prefix="gangwise-kills-"))
    file = base / "kills.toml"
    file.write_text(SWEEP)
    for module in ("sweep", "tune", "compare"):
        importlib.import_module(f"gangwise.study.{module}")
    for policy in ("drf", "fairness", "ogasched-react:steps=3"):  # children inherit the kernels
        simulate(create_scenario(SMALL).instance(0), create_policy(policy), 50, 0)
    known = {name: c for name, c in commands(file).items() if not only or name in only}
    tried, failed = 0, 0
    for name, (arguments, more, found) in known.items():
        out = base / name.replace(" ", "-")
        given = [word.replace("OUT", str(out)) for word in arguments]
        code, _ = finish(given, base / "log")
        assert code == 0, (base / "log").read_text()
        wanted = looked_at(found, out)
        again = [word.replace("OUT", str(base / f"{out.name}-2")) for word in arguments]
        seconds = finish(again, base / "log")[1]  # kernels are compiled by now
        share = kills // len(known) if "workers" not in name else kills // 20
        mine, wrong, trials, begin = 0, [], 0, time.perf_counter()
        while mine < share:
            count, why = trial(arguments, more, found, wanted, seconds, 5, draw)
            mine, trials = mine + count, trials + 1
            if why:
                wrong.append(why)
                print(f"  {name}: {why}", flush=True)
        tried, failed = tried + mine, failed + len(wrong)
        print(
            f"{name}: {mine} kills in {trials} trials of {seconds:.1f} s, {len(wrong)} failed, "
            f"{time.perf_counter() - begin:.0f} s",
            flush=True,
        )
    print(f"in all: {tried} kills, {failed} failed trials")
    shutil.rmtree(base)
    return failed


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    chosen = [name for name in options.only.split(",") if name]
    sys.exit(bool(every_command(options.kills, options.seed, chosen)))
