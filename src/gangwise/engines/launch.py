"""Starts the ranks of one attempt of a job of the local engine, and writes down how they ended.

Run as a process of its own, so that ranks outlive the service that placed them. What it does is in
files, each written as a whole: ``launched`` (a lock: an attempt is launched once, ever) and
``result.json``. Standard library only.
"""

import errno
import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, BinaryIO


def birth(pid: int) -> str:
    """Start of a process in clock ticks since boot, as text; empty where it has ended."""
    try:
        # The second field is the program's name in brackets, which may hold spaces and brackets.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return ""
    # A zombie has ended. Field 22 of proc(5), twenty behind the name, is the
    # start in ticks since boot.
    return "" if fields[0] == "Z" else fields[19]


def write_json(path: Path, content: Any) -> None:
    """Write to a temporary file and rename it, so that readers see all or nothing."""
    side = path.with_name(f".{path.name}.{os.getpid()}")
    # Of a process that had this number before, and was killed between the two.
    side.unlink(missing_ok=True)
    with open(side, "x", encoding="utf-8") as file:  # and never through a link
        file.write(json.dumps(content))
    os.replace(side, path)


def open_output(folder: Path) -> BinaryIO:
    """Open the output of an attempt's ranks; OSError where it is no file of this folder alone."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    handle = os.open(folder / "output.txt", flags, 0o666)
    about = os.fstat(handle)
    if not stat.S_ISREG(about.st_mode) or about.st_nlink > 1:
        os.close(handle)
        raise OSError(errno.EMLINK, "it is no file of this folder alone")
    return os.fdopen(handle, "ab")


class TimeLimitReached(Exception):  # noqa: N818 - no error: the job's time is over
    """The job has reached its requested time limit."""


def wait_for(ranks: list[subprocess.Popen[bytes]], limit: float) -> tuple[str, list[Any]]:
    """Wait for a gang's end: when all its ranks ended, or one failed, or at its limit (0: none)."""

    def over(*_: Any) -> None:
        raise TimeLimitReached

    exits: list[Any] = []
    waiting = {rank.pid: rank for rank in ranks}
    signal.signal(signal.SIGALRM, over)
    try:
        signal.setitimer(signal.ITIMER_REAL, limit)
        while waiting and not any(exits):
            # Of all ranks at once: the first that fails ends the gang, whichever it is.
            pid, status = os.wait()
            if pid in waiting:
                code = os.waitstatus_to_exitcode(status)
                waiting.pop(pid).returncode = code
                exits.append(code)
        signal.setitimer(signal.ITIMER_REAL, 0.0)
    except TimeLimitReached:
        return "killed", exits
    return ("failed" if any(exits) else "finished"), exits


def main(folder: Path) -> int:
    try:
        # O_EXCL makes the file a lock: of several launchers one goes on.
        handle = os.open(folder / "launched", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    except FileExistsError:
        return 0
    me = {"pid": os.getpid(), "birth": birth(os.getpid())}
    os.write(handle, json.dumps(me).encode())
    os.close(handle)
    # After the lock: whoever takes the attempt off writes that file, and then looks for the lock,
    # so that one of the two sees the other.
    if (folder / "unplaced.json").exists():
        return 0
    job = json.loads((folder.parent / "job.json").read_text())
    attempt = json.loads((folder / "placed.json").read_text())
    ranks: list[subprocess.Popen[bytes]] = []
    begun = time.time()
    state, exits = "failed", list[Any]()
    with open_output(folder) as output:
        try:
            for rank, (node, devices, speed, *group) in enumerate(attempt["ranks"]):
                variables = {
                    "GANGWISE_JOB": folder.parent.name,
                    "GANGWISE_RUN": folder.name,
                    "GANGWISE_RANK": str(rank),
                    "GANGWISE_GROUP": str(group[0] if group else 0),
                    "GANGWISE_TASKS": str(len(attempt["ranks"])),
                    "GANGWISE_NODE": node,
                    "GANGWISE_REPORTS": str(folder),
                    "GANGWISE_SPEED": str(speed),
                    "CUDA_VISIBLE_DEVICES": ",".join(map(str, devices)),
                }
                process = subprocess.Popen(
                    job["command"],
                    env={**os.environ, **variables, **job.get("environment", {})},
                    cwd=job.get("directory") or str(folder),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                )
                ranks.append(process)
            # Only when all ranks have begun: a gang of which a part runs has not started.
            write_json(folder / "started.json", {"time": begun, "ranks": [r.pid for r in ranks]})
            state, exits = wait_for(ranks, float(job.get("limit") or 0.0))
        except OSError as error:
            exits = [f"{error.filename or job['command'][0]}: {error.strerror}"]
        # This process is in the group that it ends.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.killpg(os.getpid(), signal.SIGTERM)  # ranks that are left, and what they started
        for one in ranks:
            try:
                one.wait(2.0)
            except subprocess.TimeoutExpired:
                one.kill()
    result = {"state": state, "exits": exits, "started": begun, "ended": time.time()}
    write_json(folder / "result.json", result)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
