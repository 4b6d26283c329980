"""What a service shows to whoever looks, and what operators may ask of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from gangwise.core.errors import UnknownName
from gangwise.service.loop import FILE
from gangwise.service.store import Store

Ask = Callable[[str, Any], None]


class State(Protocol):
    """Read by pages and programs; everything is plain values."""

    def view(self, name: str) -> Any:
        """One of those that the service publishes; None for one that is not there."""

    def age(self) -> float:
        """Seconds since the service last said anything."""

    def decisions(self, limit: int) -> list[dict[str, Any]]:
        """The latest, newest first."""

    def history(self, since: float, limit: int) -> list[dict[str, Any]]:
        """Jobs that ended since a time, latest first."""

    def job(self, name: str) -> dict[str, Any]:
        """One job, waiting, running or ended."""

    @property
    def ask(self) -> Ask | None:
        """How operators ask for something: ``cancel``, ``pause``, ``every``; None for nobody."""


class StoredState:
    """The file of a service, in this process or another.

    Parameters
    ----------
    folder : path
    ask : callable, optional
        ``Service.ask`` of the service, where it is in this process.

    Raises
    ------
    StoreError
        When no service has run in this folder.
    """

    def __init__(self, folder: Path | str, ask: Ask | None = None):
        self.ask = ask
        self._store = Store(Path(folder) / FILE, read_only=True)
        self._lock = threading.Lock()

    def view(self, name: str) -> Any:
        """One of the views."""
        with self._lock:
            found = self._store.view(name)
        return None if found is None else found[1]

    def age(self) -> float:
        """Since the health was written, which is every second or so."""
        with self._lock:
            found = self._store.view("health")
        return float("inf") if found is None else max(time.time() - found[0], 0.0)

    def decisions(self, limit: int) -> list[dict[str, Any]]:
        """Intents and what they came to."""
        return self._rows("SELECT * FROM intents ORDER BY seq DESC LIMIT ?", limit)

    def history(self, since: float, limit: int) -> list[dict[str, Any]]:
        """Rows of the history."""
        query = "SELECT * FROM history WHERE ended >= ? ORDER BY ended DESC LIMIT ?"
        return self._rows(query, since, limit)

    def job(self, name: str) -> dict[str, Any]:
        """One job.

        Raises
        ------
        UnknownName
            For one that is not known.
        """
        rows = [*(self.view("queue") or ()), *(self.view("running") or ())]
        for row in rows:
            if row["job"] == name:
                return dict(row)
        for row in self.view("held") or ():
            if row["job"] == name:
                return {**row, "phase": "held"}
        ended = self._rows("SELECT * FROM history WHERE job = ?", name)
        if not ended:
            raise UnknownName("job", name, [row["job"] for row in rows[:50]])
        return {**ended[0], "phase": ended[0]["outcome"]}

    def close(self) -> None:
        """Let go of the file."""
        self._store.close()

    def _rows(self, query: str, *values: Any) -> list[dict[str, Any]]:
        with self._lock:
            return self._store.rows(query, *values)
