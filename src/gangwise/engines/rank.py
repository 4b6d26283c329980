"""``gangwise rank -- command``: runs one rank of a gang and measures its speed from inside.

The rank's report is one JSON file, replaced as a whole: units of work done and the seconds of the
monotonic clock that they took. Where the amount of work is not known, it is not reported. Standard
library only: this starts once for every rank of every job.

The report goes into the folder of ``--report`` or ``GANGWISE_REPORTS``, which the service can read.
The engine's own variables (Slurm's, or ``GANGWISE_*``) say which rank this is.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple


class Identity(NamedTuple):
    """Identity of a rank: its number, and its job."""

    job: str
    run: int  # the cluster's own number of this start of the job
    rank: int
    node: str

    @classmethod
    def here(cls) -> Identity:
        """The rank described by the environment variables of the launcher."""
        get = os.environ.get
        return cls(
            get("GANGWISE_JOB") or get("SLURM_JOB_ID") or "0",
            int(get("GANGWISE_RUN") or get("SLURM_RESTART_COUNT") or 0),
            int(get("GANGWISE_RANK") or get("SLURM_PROCID") or get("JOB_COMPLETION_INDEX") or 0),
            get("GANGWISE_NODE") or get("SLURMD_NODENAME") or socket.gethostname(),
        )

    @property
    def file(self) -> str:
        return f"{self.job}.{self.run}.{self.rank}.json"


def write_report(path: Path, content: dict[str, Any]) -> None:
    """Write a report whole or not at all; a full disk must not end the user's job."""
    side = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(side, "w", encoding="utf-8") as file:
            json.dump(content, file)
        os.replace(side, path)
    except OSError as error:
        print(f"gangwise rank: no report: {error}", file=sys.stderr)


class Meter:
    """Measures work done, and the seconds that it took since its first unit.

    A command's start-up is no work: time counts from the first unit on, and so does work.
    """

    def __init__(self) -> None:
        self.began = self.last = time.monotonic()
        self.first: float | None = None
        self.total = 0.0

    def report(self, total: float) -> None:
        at = time.monotonic()
        # The first report is a mark and no work: a command that was restarted begins above 0.
        if self.first is None:
            self.began, self.first = at, total
        # Time goes to the last change, so that no unit is counted in part.
        if total != self.total:
            self.total, self.last = total, at

    def read(self) -> tuple[float, float] | None:
        """Work and seconds; None until two points are known."""
        if self.first is None or not self.last > self.began or not self.total > self.first:
            return None
        return self.total - self.first, self.last - self.began


def sleeper(args: argparse.Namespace, meter: Meter, node: str) -> int:
    """Simulate work: so many seconds of it, at the speed that this node is given."""
    file = os.environ.get("GANGWISE_SPEED_FILE", "").replace("{node}", node)
    speed = float(os.environ.get("GANGWISE_SPEED", "1"))
    work, since = 0.0, time.monotonic()
    meter.report(0.0)
    while work < args.sleep:
        if file:
            with contextlib.suppress(OSError, ValueError):  # while it is replaced: as before
                speed = float(Path(file).read_text())
        # At most a second, so that another speed is noticed.
        pause = min(1.0, (args.sleep - work) / speed)
        time.sleep(max(pause, 0.001))
        at = time.monotonic()
        work, since = work + (at - since) * speed, at
        meter.report(min(work, args.sleep))
    return 0


def last_number(path: Path) -> float | None:
    try:
        words = path.read_text(encoding="utf-8").split()
        return float(words[-1]) if words else None
    except (OSError, ValueError):
        return None


def count_lines(stream: IO[bytes], pattern: re.Pattern[str], meter: Meter) -> None:
    """Pass output through; each matching line is a unit, or its group says how many are done."""
    total = 0.0
    for line in stream:
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
        if match := pattern.search(line.decode(errors="replace")):
            try:
                total = float(match.group(1)) if pattern.groups else total + 1.0
            except (TypeError, ValueError):  # the group is no number, or took no part in the match
                continue
            meter.report(total)


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="gangwise rank",
        description="Run one rank of a gang and report how much work it does per second.",
    )
    p.add_argument("--report", help="folder for the report; default: $GANGWISE_REPORTS")
    p.add_argument("--every", type=float, default=5.0, help="seconds between reports")
    p.add_argument("--file", type=Path, help="the command writes its units done there, last")
    p.add_argument("--match", help="a matching line is a unit, or its group says how many are done")
    p.add_argument("--work", type=float, help="units that the whole command is")
    p.add_argument("--sleep", type=float, help="no command: pretend so many seconds of work")
    p.add_argument("command", nargs=argparse.REMAINDER, help="-- command and its arguments")
    return p


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command, measure and report; exit with the command's code."""
    args = parser().parse_args(arguments)
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command and args.sleep is None:
        parser().error("give a command after --, such as: gangwise rank -- python train.py")
    # Before the command starts, which would run on without this process.
    try:
        pattern = re.compile(args.match or "")
    except re.error as error:
        parser().error(f"--match {args.match!r} is no regular expression: {error}")
    identity, meter = Identity.here(), Meter()
    folder = args.report or os.environ.get("GANGWISE_REPORTS")
    ended = threading.Event()

    def report(code: int | None) -> None:
        if not folder:
            return
        measured = meter.read()
        # Only a command that succeeded has done all of its work.
        if code == 0 and args.work is not None:
            measured = args.work, time.monotonic() - start
        content: dict[str, Any] = {**identity._asdict(), "exit": code, "time": time.time()}
        if measured is not None:
            content["work"], content["seconds"] = measured
        write_report(Path(folder) / identity.file, content)

    def reporting() -> None:
        while not ended.wait(args.every):
            if args.file and (units := last_number(args.file)) is not None:
                meter.report(units)
            report(None)

    start, reporter = time.monotonic(), threading.Thread(target=reporting, daemon=True)
    if args.sleep is not None:
        # 128 + 15, as a shell reports a process that SIGTERM has ended.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        reporter.start()
        code = sleeper(args, meter, identity.node)
    else:
        try:
            child = subprocess.Popen(command, stdout=subprocess.PIPE if args.match else None)
        except OSError as error:
            print(f"gangwise rank: {command[0]}: {error.strerror}", file=sys.stderr)
            return 127
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            # The command decides what a signal means; this process stays to see how it ends.
            signal.signal(number, lambda n, _: child.send_signal(n))
        reporter.start()
        if child.stdout is not None:
            count_lines(child.stdout, pattern, meter)
        code = child.wait()
        code = 128 - code if code < 0 else code
    ended.set()
    reporter.join()  # one that is late would be written over the last
    if args.file and (units := last_number(args.file)) is not None:
        meter.report(units)
    report(code)
    return code


if __name__ == "__main__":
    sys.exit(main())
