"""Waiting for what other processes and threads do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any


def until(
    test: Callable[[], Any], what: str = "so", wait: float = 120.0, broken: Callable[[], str] = str
) -> Any:
    """Wait until a test holds, and return what it found; fail with what was waited for.

    ``broken`` says why it will never hold; an empty text where it still may.
    """
    end = time.monotonic() + wait
    while not (found := test()):
        if broken():
            raise RuntimeError(broken())
        if time.monotonic() > end:
            raise TimeoutError(f"not {what} within {wait:g} s")
        time.sleep(0.02)
    return found


class Stalls:
    """Seconds for which this machine did not let us run while a block ran, as ``seconds``.

    What must happen within a time on an idle machine may take so much longer on a busy one.
    """

    def __enter__(self) -> Stalls:
        self.seconds, self._over = 0.0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.is_set():
            began = time.monotonic()
            time.sleep(0.02)
            self.seconds += max(time.monotonic() - began - 0.03, 0.0)
