"""A guard beside the process of a stranger's class: memory and CPU time of all that it starts.

The process splits in two. One half runs the class. The other, the guard, is the parent to which
all orphans below it fall, so that neither a fork nor a new session leaves its sight. It kills them
all once a limit is passed, it is told to (SIGTERM), or the process that asks is gone. It needs
Linux; elsewhere only memory is limited, of each process. Standard library only.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

PASSED = {201: "GANGWISE_MEMORY_SHARE", 202: "GANGWISE_CPU_SECONDS"}  # exit codes
TICK = 0.2  # seconds between two looks
PATIENCE = 5.0  # seconds for which killed processes are waited for

_WAKES = {signal.SIGTERM, signal.SIGCHLD} if sys.platform == "linux" else set()
_DEATH_SIGNAL, _SUBREAPER = 1, 36  # of prctl


def confine(parent: int, memory: int, cpu: float) -> None:
    """Put this process under a guard; returns in the half that is to run the class.

    ``parent`` is the number of the process that asks; all that descends from this one may take
    ``memory`` bytes and ``cpu`` seconds together.
    """
    if sys.platform == "win32":
        return
    import resource

    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    most = memory if hard == resource.RLIM_INFINITY else min(memory, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    if sys.platform != "linux":
        return
    prctl = ctypes.CDLL(None).prctl
    prctl(_SUBREAPER, 1)
    signal.pthread_sigmask(signal.SIG_BLOCK, _WAKES)
    guard, child = os.getpid(), os.fork()
    if child:
        os.close(0)  # else the other ends of the pipes would seem to be open
        os.close(1)
        code = _watched(child, parent, memory, cpu)
        _end_all()
        os._exit(code)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _WAKES)
    prctl(_DEATH_SIGNAL, int(signal.SIGKILL))
    if os.getppid() != guard:
        os._exit(1)


def _watched(child: int, parent: int, memory: int, cpu: float) -> int:
    """Wait until the child ends or has to; returns the exit code."""
    while os.getppid() == parent:
        woken = signal.sigtimedwait(_WAKES, TICK)
        if woken is not None and woken.si_signo == signal.SIGTERM:
            break
        if (ended := _reaped().get(child)) is not None:
            return ended if ended >= 0 else 128 - ended
        done = os.times()
        seconds, held = done.children_user + done.children_system, 0
        for pid in _below(os.getpid()):
            with suppress(OSError):  # it has just ended
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                seconds += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
                held += int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
        if held > memory or seconds > cpu:
            return 201 if held > memory else 202
    return 1


def _below(pid: int) -> list[int]:
    found = []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            for child in Path(f"/proc/{pid}/task/{thread}/children").read_text().split():
                found += [int(child), *_below(int(child))]
    return found


def _reaped() -> dict[int, int]:
    found = {}
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            found[ended[0]] = os.waitstatus_to_exitcode(ended[1])
    return found


def _end_all() -> None:
    until = time.monotonic() + PATIENCE
    while (tree := _below(os.getpid())) and time.monotonic() < until:
        for number in (signal.SIGSTOP, signal.SIGKILL):  # who is stopped starts no others
            for pid in tree:
                with suppress(OSError):
                    os.kill(pid, number)
        _reaped()
        time.sleep(0.01)
