"""Stopping: this process when it is asked to, and all that another process has started.

Ctrl-C (SIGINT), and SIGTERM, which Slurm, Kubernetes and systemd send, both mean: finish what is in
hand, save, and end with exit code 130 or 143. A second one interrupts at once. A process that
ignores Ctrl-C, as one that a script starts in the background, still does.

A *guard* stands beside the process of a stranger's class and limits the memory and the CPU time of
all that it starts. The process splits in two. One half runs the class. The other, the guard, is the
parent to which all orphans below it fall, so that neither a fork nor a new session leaves its
sight. It kills them all once a limit is passed, it is told to (SIGTERM), or the process that asks
is gone. It needs Linux; elsewhere only memory is limited, of each process.

Standard library only.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

REQUESTS = (signal.SIGINT, signal.SIGTERM)


class Stopped(KeyboardInterrupt):
    """The process was asked to stop; ``signal`` says how."""

    def __init__(self, message: str = "", number: int = signal.SIGINT):
        self.signal = number
        super().__init__(message)


def exit_code(stop: KeyboardInterrupt) -> int:
    """128 and the number of the signal.

    >>> exit_code(KeyboardInterrupt()), exit_code(Stopped(number=signal.SIGTERM))
    (130, 143)
    """
    return 128 + int(getattr(stop, "signal", signal.SIGINT))


_received: list[Stopped] = []


def stop_at_once() -> None:
    """Let Ctrl-C and SIGTERM raise Stopped in the main thread."""

    def stop(number: int, frame: FrameType | None) -> None:
        _received.append(Stopped(number=number))
        raise _received[-1]

    for number, usual in zip(REQUESTS, (signal.default_int_handler, signal.SIG_DFL)):
        if signal.getsignal(number) == usual:
            signal.signal(number, stop)


@contextmanager
def stops_kept() -> Iterator[None]:
    """Raise the stop, not an error that compiled code makes of it.

    A stop in a callback of compiled code may be printed and dropped; the code then fails for a
    reason of its own.
    """
    try:
        yield
    except Exception as error:
        stop = _received[-1] if _received else None
        behind: BaseException | None = error
        while behind is not None and behind is not stop:
            behind = behind.__context__
        if stop is not None and behind is None:
            raise stop from error
        raise


class StopRequest(threading.Event):
    """Set when the process is asked to stop; ``signal`` says how."""

    signal: int = signal.SIGINT


_requests: list[StopRequest] = []


def asked_to_stop() -> StopRequest | None:
    """The request that was made and is not yet looked at, for whoever waits for somebody else."""
    return next((each for each in _requests if each.is_set()), None)


@contextmanager
def requests_to_stop() -> Iterator[StopRequest]:
    """Turn the first Ctrl-C or SIGTERM into a request, to be looked at when it suits."""
    asked = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return

    def request(number: int, frame: FrameType | None) -> None:
        if asked.is_set():
            raise Stopped(number=number)
        asked.signal = number
        asked.set()

    before = {number: signal.getsignal(number) for number in REQUESTS}
    for number, handler in before.items():
        if handler != signal.SIG_IGN:
            signal.signal(number, request)
    _requests.append(asked)
    try:
        yield asked
    finally:
        _requests.remove(asked)
        for number, handler in before.items():
            if handler is not None:  # None: it was not set from Python
                signal.signal(number, handler)


@contextmanager
def children_left_alone() -> Iterator[None]:
    """Shield processes that are started here from Ctrl-C and SIGTERM: who starts them ends them.

    A terminal sends Ctrl-C to all processes of a command; a worker that gets it while it starts
    prints a traceback. Blocked signals stay blocked in a new process; here they wait for the end.
    """
    if not hasattr(signal, "pthread_sigmask"):  # on Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, REQUESTS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# The guard

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
    import ctypes
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
