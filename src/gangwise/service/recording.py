"""A live run, played again: the same inputs to the scheduler, and to others.

The journal holds all that reached the scheduler, in order. Given it again, the same scheduler must
decide the same in every round. For another one the replay counts how often it would have decided
otherwise; what that would save, :mod:`gangwise.service.account` says.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gangwise.core.errors import StoreError
from gangwise.jobs.scheduler import create_scheduler
from gangwise.service.ledger import Ledger
from gangwise.service.store import FILE, Store


def is_recording(path: Path | str) -> bool:
    return (Path(path) / FILE).is_file()


def replayed(folder: Path | str, schedulers: Sequence[str] = ()) -> dict[str, Any]:
    """Play the recorded run of a service's folder: how many rounds each decides as recorded.

    Other ``schedulers`` meet the same; none of them sees what its own decisions would have changed.
    Raises StoreError when nothing is recorded, or the journal no longer begins at its beginning.
    """
    store = Store(Path(folder) / FILE, read_only=True)
    settings = json.loads(store.about("settings") or "{}")
    first = store.first()
    if first != 1 or not settings:
        why = "nothing is recorded yet" if first is None else "its beginning was dropped as too old"
        raise StoreError(f"{store.path}: {why}")
    jobs = store.rows("SELECT COUNT(*) AS jobs FROM history WHERE started IS NOT NULL")[0]["jobs"]
    names = list(dict.fromkeys([settings["scheduler"], *schedulers]))
    result: dict[str, Any] = {"jobs": jobs, "schedulers": {}}
    for name in names:
        given = (settings[of] for of in ("baseline", "every", "rates", "act"))
        ledger = Ledger(create_scheduler(name), *given)
        for _, record in store.records():
            ledger.apply(record)
        result["rounds"] = ledger.rounds
        result["schedulers"][name] = {"same": ledger.rounds - ledger.diverged}
    store.close()
    return result


def lines(result: dict[str, Any]) -> list[str]:
    found = [f"{result['rounds']} rounds and {result['jobs']} jobs that ended are recorded"]
    for name, row in result["schedulers"].items():
        found.append(f"{name}: decides as recorded in {row['same']} of {result['rounds']} rounds")
    return found
