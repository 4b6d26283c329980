"""A run of another terminal as it goes on: progress, the table so far, the time that is left.

Nothing is asked of the process that plays: a folder of results says what is wanted (its plan), what
is finished (a file for each run), and who writes into it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gangwise
from gangwise.core.errors import StoreError
from gangwise.core.json_text import finite
from gangwise.experiments.results import Results
from gangwise.experiments.store import PLAN, Store

RECENT = 20
"""Finished runs that the time left is told from: what comes next goes as fast as what was last."""


@dataclass(frozen=True)
class Seen:
    """How far an experiment is.

    Attributes
    ----------
    experiment : str
    done, of : int
        Runs.
    seconds_left : float, optional
        As fast as the last ones went; None where too few are finished, or nobody plays.
    writer : mapping, optional
        Who plays: ``pid``, ``host``, ``command``, ``since``; None where nobody does.
    objective : str
    table : list of mapping
        As :meth:`~gangwise.experiments.results.Results.table`, of what is finished, with ``ahead``,
        ``ahead.low``, ``ahead.high`` over the first policy, paired by the seeds that both have.
    over : str
        That policy.
    percent : bool
        Whether ``ahead`` is in per cent.
    """

    experiment: str
    done: int
    of: int
    seconds_left: float | None
    writer: dict[str, Any] | None
    objective: str
    table: list[dict[str, Any]]
    over: str
    percent: bool

    @property
    def going_on(self) -> bool:
        """Whether somebody plays."""
        return self.writer is not None

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        about = {"format": "gangwise-watch-1", "version": gangwise.__version__}
        found: dict[str, Any] = finite({**about, "going_on": self.going_on, **vars(self)})
        return found


@dataclass
class Watch:
    """A folder of results that is looked at again and again; finished runs are read once.

    Parameters
    ----------
    folder : path
    name : str
        Of the experiment; the one that was begun last by default.

    Raises
    ------
    StoreError
        When there is no such folder, or nothing in it and nobody who writes.
    """

    folder: Path
    name: str = ""
    _whole: dict[str, float] = field(default_factory=dict, init=False)

    def look(self) -> Seen | None:
        """How far it is now; None where it has not begun yet."""
        store = Store(self.folder)
        if not self.folder.is_dir():
            raise StoreError(f"{self.folder} is no folder; give the --out of what is to be watched")
        writer = store.files.writer()
        name = self.name or self._latest()
        if name not in store.plans():
            if writer is None or self.name:
                raise StoreError(
                    f"{self.folder} has no results{f' of {name}' if name else ''}, and nobody "
                    "writes into it; give the --out of what is to be watched"
                )
            return None
        plan = store.read_plan(name)
        for key in {str(run["key"]) for run in plan["runs"]} - self._whole.keys():
            if store.finished(key):
                self._whole[key] = store.path(key).stat().st_mtime
        done = tuple(run for run in plan["runs"] if run["key"] in self._whole)
        missing = tuple(run for run in plan["runs"] if run["key"] not in self._whole)
        results = Results(store, plan["experiment"], done, missing)
        over, percent, table = "", True, []
        if results.policies:
            over = results.policies[0]
            table = results.table().to_dicts()
            where = [*results.cells, "policy"]
            ahead = {
                tuple(row[key] for key in where): row
                for row in results.improvements(over).to_dicts()
            }
            percent = all(row["percent"] for row in ahead.values())
            for row in table:
                found = ahead.get(tuple(row[key] for key in where), {})
                for theirs, mine in (("mean", ""), ("low", ".low"), ("high", ".high")):
                    row[f"ahead{mine}"] = found.get(theirs)
        left = self._seconds_left(len(missing)) if writer is not None else None
        return Seen(
            name,
            len(done),
            len(done) + len(missing),
            left,
            writer,
            results.objective,
            table,
            over,
            percent,
        )

    def _latest(self) -> str:
        plans = sorted(self.folder.glob(f"*{PLAN}"), key=lambda path: path.stat().st_mtime)
        return plans[-1].name.removesuffix(PLAN) if plans else ""

    def _seconds_left(self, missing: int) -> float | None:
        """As many times the usual distance between two runs as there are runs missing."""
        ends = sorted(self._whole.values())[-RECENT:]
        if len(ends) < 2 or not missing:
            return None if missing else 0.0
        each = (ends[-1] - ends[0]) / (len(ends) - 1)
        return max(each * missing - (time.time() - ends[-1]), 0.0)
