"""Loops in threads of their own that go on whatever they raise; back-off; ages by a steady clock.

A failure of a loop is counted and named, never the end of its thread. The service asks each loop
at every tick whether it comes round (:meth:`BackgroundLoop.trouble_now`), and is not well while one
does not.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from gangwise.core.errors import EngineError

LOOK = 0.5  # seconds between two looks, during a back-off, at whether the fault is over
STEADY = 120.0  # seconds without a failure after which a back-off begins anew
TOLERATED = 8.0  # seconds for which a loop may fail before it counts as trouble
JOIN = 2.0  # seconds for which threads that are to end are waited for


def clock() -> float:
    """Seconds that go on while the machine sleeps, where the system counts them."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@cache
def boot() -> str:
    """Identity of this start of the machine, whose seconds :func:`clock` counts."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def moment(latest: float = float("inf")) -> tuple[str, float]:
    """Stamp of this moment, or an earlier one: the machine's start and its clock."""
    return boot(), min(clock(), latest)


def age(stamp: Sequence[object]) -> float:
    """Seconds since a moment, whatever the wall clock does; inf where the machine was restarted.

    >>> age(moment()) < 1.0, age(("another start", 1.0)), age(("", "x"))
    (True, inf, inf)
    """
    if len(stamp) == 2 and stamp[0] == boot() and isinstance(stamp[1], int | float):
        return max(clock() - stamp[1], 0.0)
    return float("inf")


class TryLater(EngineError):  # noqa: N818 - what to do
    """The cluster asks for a pause of so many ``seconds``."""

    def __init__(self, message: str, seconds: float):
        super().__init__(message)
        self.seconds = seconds


class Backoff:
    """Exponential back-off with jitter, by the figures of Kubernetes' own clients.

    The first wait is ``first`` seconds long, each further one twice as long, up to ``longest``; to
    each comes a random part of up to its own length. A pause that the cluster asks for is kept.
    """

    def __init__(self, first: float = 0.8, longest: float = 30.0):
        self.first, self.longest = first, longest
        self._next, self._failed = first, -float("inf")

    def wait(self, error: BaseException | None = None) -> float:
        """Seconds to wait after a failure."""
        at = clock()
        # A fault after a long calm is another one, and begins with a short wait.
        if at > self._failed + STEADY:
            self._next = self.first
        # The random part keeps clients that failed together from coming back together.
        base = self._next
        self._next, self._failed = min(2.0 * base, self.longest), at
        pause = error.seconds if isinstance(error, TryLater) else 0.0
        return max(base * (1.0 + random.random()), pause)

    def reset(self) -> None:
        self._next = self.first


class BackgroundLoop:
    """A function that is called again and again in a daemon thread.

    ``step`` returns after how many seconds it is to be called again. Where it raises, the loop
    waits by ``backoff``, or until the ``asker``, another loop, that failed has come round again.
    ``patience`` is how many seconds a call may take.
    """

    def __init__(
        self,
        name: str,
        step: Callable[[], float],
        patience: float,
        backoff: Backoff | None = None,
        asker: BackgroundLoop | None = None,
    ):
        self.name, self.patience = name, patience
        self.failures = 0  # calls that raised
        self.recoveries = 0  # how often it came round after one that raised
        self.trouble = ""  # what the last call raised; empty where it did not
        self._step, self._asker = step, asker
        self._backoff = backoff or Backoff()
        self._over = threading.Event()
        self._beat, self._failing_since = clock(), float("inf")
        self._thread: threading.Thread | None = None

    def start(self, after: float = 0.0) -> None:
        """Start its thread, with the first call after some seconds."""
        self._beat = clock() + after
        self._thread = threading.Thread(
            target=self._run, args=(after,), name=self.name, daemon=True
        )
        self._thread.start()

    def once(self) -> float:
        """One call of the step; returns seconds until the next one."""
        try:
            wait = self._step()
        except BaseException as error:  # whatever it is, the thread goes on
            self.failures += 1
            self.trouble = str(error) if isinstance(error, EngineError) else short(error)
            # The first failure of a row says how long it has lasted.
            self._failing_since = min(self._failing_since, clock())
            wait = self._backoff.wait(error)
        else:
            self.came_round()
            self._backoff.reset()
        self._beat = clock()
        return wait

    def came_round(self) -> None:
        """Mark that the loop has come round; a step that goes on for long says so itself."""
        failed, self.trouble = bool(self.trouble), ""
        self._failing_since, self._beat = float("inf"), clock()
        self.recoveries += failed

    def beat(self) -> None:
        """A call that takes long goes on."""
        self._beat = clock()

    def failing(self) -> float:
        """Seconds for which it has been failing; 0 where it is not."""
        return max(clock() - self._failing_since, 0.0)

    def trouble_now(self) -> str:
        """Trouble of the loop; empty where it comes round. A dead thread is replaced."""
        if self._over.is_set() or self._thread is None:
            return ""
        # A thread can end without a word, as where memory was short when it began.
        if not self._thread.is_alive():
            self.failures += 1
            # Its work is needed; that a thread ended by itself is told, and counted as a failure.
            self.start()
            return "its thread had ended, and was started again"
        if (silent := clock() - self._beat) > self.patience:
            return f"it has not come round for {silent:.0f} s"
        return self.trouble if self.failing() > TOLERATED else ""

    def end(self) -> None:
        """Ask it to end, without waiting."""
        self._over.set()

    def join(self) -> None:
        """Wait until its thread has ended: one that is alive when Python ends can abort it."""
        self._over.set()
        # A thread that waited for itself would never end.
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(JOIN)

    def _run(self, after: float) -> None:
        self._over.wait(after)
        asker = self._asker
        while not self._over.is_set():
            # An outage may end while a call hangs in it: the count before the call is compared.
            recoveries, until = asker.recoveries if asker else 0, self.once() + clock()
            while (rest := until - clock()) > 0 and not self._over.wait(min(rest, LOOK)):
                # It waits, and does not hang.
                self._beat = clock()
                if self.trouble and asker and asker.recoveries != recoveries:
                    self._backoff.reset()
                    break


def short(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:300]
