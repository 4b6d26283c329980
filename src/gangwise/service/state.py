"""What a service shows to whoever looks, and what operators may ask of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gangwise.core.errors import UnknownName
from gangwise.service.store import FILE, Store
from gangwise.service.wishes import What, Wish, Wishes


class State:
    """What a service shows, by its files, whichever process it runs in; plain values.

    Raises StoreError when no service has run in this folder.
    """

    def __init__(self, folder: Path | str):
        self._store = Store(Path(folder) / FILE, read_only=True)
        self._wishes = Wishes(folder)
        self._lock = threading.Lock()

    def view(self, name: str) -> Any:
        with self._lock:
            found = self._store.view(name)
        return None if found is None else found[1]

    def age(self) -> float:
        """Seconds since the service last said anything; inf where it never did."""
        with self._lock:
            found = self._store.view("health")
        return float("inf") if found is None else max(time.time() - found[0], 0.0)

    def decisions(self, limit: int) -> list[dict[str, Any]]:
        """The latest decisions, newest first."""
        return self._rows("SELECT * FROM intents ORDER BY seq DESC LIMIT ?", limit)

    def latencies(self, until: str, bounds: Sequence[float]) -> tuple[list[float], float]:
        """Placements that were accepted or started within each bound, all of them; summed time."""
        within = ", ".join(f"TOTAL(x <= {bound}) AS w{i}" for i, bound in enumerate(bounds))
        column = {"accepted": "accepted", "started": "started"}[until]
        (row,) = self._rows(
            f"SELECT {within}, COUNT(*) AS n, TOTAL(x) AS total FROM "
            f"(SELECT {column} - decided AS x FROM intents WHERE kind = 'place' AND x IS NOT NULL)"
        )
        return [*(row[f"w{i}"] for i in range(len(bounds))), float(row["n"])], row["total"]

    def history(self, since: float, limit: int) -> list[dict[str, Any]]:
        """Jobs that ended since a time, latest first."""
        query = "SELECT * FROM history WHERE ended >= ? ORDER BY ended DESC LIMIT ?"
        return self._rows(query, since, limit)

    def job(self, name: str) -> dict[str, Any]:
        """One job, waiting, running or ended; raises UnknownName for one that is not known."""
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

    def knows(self, job: str) -> bool:
        with self._lock:
            return self._store.knows(job)

    def wish(self, what: What, value: Any) -> int:
        with self._lock:
            return self._wishes.add(what, value)

    def wished(self, number: int) -> Wish | None:
        with self._lock:
            return self._wishes.get(number)

    def close(self) -> None:
        self._store.close()
        self._wishes.close()

    def _rows(self, query: str, *values: Any) -> list[dict[str, Any]]:
        with self._lock:
            return self._store.rows(query, *values)
