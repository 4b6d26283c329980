"""A live run, played again: the same inputs to the scheduler, and to others.

The journal holds all that reached the scheduler, in order. Told it again, the same scheduler must
decide the same in every round. Another one is told the same, and shown how often it would have
decided otherwise; what that would have led to only the simulation can say.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gangwise.core.errors import StoreError
from gangwise.jobs.scheduler import create_scheduler
from gangwise.jobs.simulation import simulate_jobs
from gangwise.service.account import changed, drawn
from gangwise.service.ledger import Ledger
from gangwise.service.store import FILE, Store


def is_recording(path: Path | str) -> bool:
    return (Path(path) / FILE).is_file()


def replayed(folder: Path | str, schedulers: Sequence[str] = ()) -> dict[str, Any]:
    """Play a recorded run.

    Parameters
    ----------
    folder : path
        Of the service.
    schedulers : sequence of str
        Others that are told the same; none of them sees what its own decisions would have changed.

    Returns
    -------
    dict
        ``rounds``; ``schedulers``: for each, rounds decided as recorded, and mean wait and
        completion in the simulation of the same submissions, with the rates now believed.

    Raises
    ------
    StoreError
        When nothing is recorded, or the journal no longer begins at its beginning.
    """
    store = Store(Path(folder) / FILE, read_only=True)
    settings = json.loads(store.about("settings") or "{}")
    first = store.first()
    if first != 1 or not settings:
        why = "nothing is recorded yet" if first is None else "its beginning was dropped as too old"
        raise StoreError(f"{store.path}: {why}")
    history = store.rows("SELECT * FROM history WHERE started IS NOT NULL ORDER BY submitted")
    names = list(dict.fromkeys([settings["scheduler"], *schedulers]))
    result: dict[str, Any] = {"jobs": len(history), "schedulers": {}}
    drawing = None
    for name in names:
        ledger = Ledger(
            create_scheduler(name),
            settings["baseline"],
            settings["every"],
            settings["rates"],
            settings["act"],
        )
        for _, record in store.records():
            ledger.apply(record)
        result["rounds"] = ledger.rounds
        row: dict[str, Any] = {"same": ledger.rounds - ledger.diverged}
        drawing = drawing or ledger
        if history and drawing.books is not None:
            jobs, conditions = drawn(drawing, history, changed(drawing, history), None)
            played = simulate_jobs(jobs, drawing.books.nodes, name, conditions)
            row["wait"] = float(np.nanmean(played.start - jobs.submit))
            row["completion"] = float(np.nanmean(played.end - jobs.submit))
        result["schedulers"][name] = row
    store.close()
    if history:
        result["happened"] = {
            "wait": float(np.mean([r["first"] - r["submitted"] for r in history])),
            "completion": float(np.mean([r["ended"] - r["submitted"] for r in history])),
        }
    return result


def lines(result: dict[str, Any]) -> list[str]:
    found = [f"{result['rounds']} rounds and {result['jobs']} jobs that ended are recorded"]
    if "happened" in result:
        h = result["happened"]
        found.append(f"as it happened: wait {h['wait']:.1f} s, completion {h['completion']:.1f} s")
    for name, row in result["schedulers"].items():
        line = f"{name}: decides as recorded in {row['same']} of {result['rounds']} rounds"
        if "wait" in row:
            line += (
                f"; simulated on its own: wait {row['wait']:.1f} s, "
                f"completion {row['completion']:.1f} s"
            )
        found.append(line)
    return found
