"""Waiting for what other processes and threads do."""

from __future__ import annotations

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
