"""A run of another terminal as it goes on: progress, the table so far, the time that is left.

Nothing is asked of the process that plays: a folder of results says what is wanted (its plan), what
is finished (a file for each run), and who writes into it. Of a tuning, whose plan grows with its
trials, the study says the first two.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import gangwise
from gangwise.core.errors import StoreError
from gangwise.core.json_text import finite
from gangwise.experiments.results import Results
from gangwise.experiments.runs import PLAN
from gangwise.experiments.store import Store
from gangwise.experiments.tune import STUDY, TUNING, study_so_far

RECENT = 20
"""Finished runs that the time left is told from: what comes next goes as fast as what was last."""


@dataclass(frozen=True)
class Seen:
    """How far an experiment is.

    Attributes
    ----------
    experiment : str
    unit : {"runs", "trials"}
        What is counted: runs, or the trials of a tuning.
    done, of : int
    seconds_left : float, optional
        As fast as the last ones went; None where too few are finished, or nobody plays.
    writer : mapping, optional
        Who plays: ``pid``, ``host``, ``command``, ``since``; None where nobody does.
    objective : str
    table : list of mapping
        As :meth:`~gangwise.experiments.results.Results.table`, of what is finished, with ``ahead``,
        ``ahead.low``, ``ahead.high`` over the first policy, paired by the seeds that both have. Of
        a tuning: a row for each trial, best first, and better than the first is positive.
    over : str
        That policy.
    percent : bool
        Whether ``ahead`` is in per cent.
    """

    experiment: str
    unit: Literal["runs", "trials"]
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

    def look(self) -> Seen:
        """How far it is now; without an experiment's name where none has begun yet."""
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
            return Seen("", "runs", 0, 0, None, writer, "", [], "", True)
        if name == TUNING and (self.folder / STUDY).exists():
            return self._trials(writer)
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
        left = None
        if writer is not None:
            left = seconds_left(sorted(self._whole.values()), len(missing))
        return Seen(
            name,
            "runs",
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

    def _trials(self, writer: dict[str, Any] | None) -> Seen:
        """How far a tuning is, as its study says."""
        so_far = study_so_far(self.folder)
        tuning, table, percent = so_far.tuning, [], True
        for trial in tuning.trials:
            row = {"policy": so_far.labels[trial.number], "seeds": len(trial.values)}
            over = tuning.over_default(trial) or dict.fromkeys(("mean", "low", "high"))
            for name, of in ((tuning.metric, trial.estimate._asdict()), ("ahead", over)):
                row |= {name: of["mean"], f"{name}.low": of["low"], f"{name}.high": of["high"]}
            percent = percent and bool(over.get("percent", True))
            table.append(row)
        done = len(tuning.trials)
        return Seen(
            TUNING,
            "trials",
            done,
            max(so_far.wanted, done),
            None if writer is None else seconds_left(so_far.ends, so_far.wanted - done),
            writer,
            tuning.metric,
            table,
            so_far.labels[tuning.default.number] if tuning.trials else "",
            percent,
        )


def seconds_left(ends: Sequence[float], missing: int) -> float | None:
    """As many times the usual distance between two ends as there are things missing.

    >>> seconds_left([1.0], 5) is None, seconds_left([1.0, 2.0], 0)
    (True, 0.0)
    """
    ends = ends[-RECENT:]
    if len(ends) < 2 or missing <= 0:
        return None if missing > 0 else 0.0
    each = (ends[-1] - ends[0]) / (len(ends) - 1)
    return max(each * missing - (time.time() - ends[-1]), 0.0)
