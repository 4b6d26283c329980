"""A run in another terminal as it goes on: progress, the table so far, the time left.

The process that plays is not asked. A folder of results says what is wanted (the plan), what is
finished (a file for each run), and who writes into it. For a tuning, whose plan grows with its
trials, the study says what is wanted and finished.
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
from gangwise.experiments.tune import STUDY, TUNING, Study

RECENT = 20  # so many of the last finished runs tell the time that is left

ENDS = (("mean", ""), ("low", ".low"), ("high", ".high"))


@dataclass(frozen=True)
class Seen:
    """How far an experiment is; its ``unit`` is runs, or the trials of a tuning.

    Attributes
    ----------
    seconds_left : float, optional
        At the pace of the last runs; None where too few are finished, or nobody plays.
    writer : mapping, optional
        Who plays: ``pid``, ``host``, ``command``, ``since``; None where nobody does.
    table : list of mapping
        As :meth:`~gangwise.experiments.results.Results.table`, of what is finished, with ``ahead``,
        ``ahead.low``, ``ahead.high`` over the first policy, ``over``, paired by the seeds that both
        have. Of a tuning: a row for each trial, best first; ``ahead`` is positive where it is
        better.
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
        return self.writer is not None

    def as_dict(self) -> dict[str, Any]:
        """What ``--json`` prints: see docs/results.schema.json."""
        about = {"format": "gangwise-watch-1", "version": gangwise.__version__}
        found: dict[str, Any] = finite({**about, "going_on": self.going_on, **vars(self)})
        return found


@dataclass
class Watch:
    """A folder of results that is looked at again and again; finished runs are read once.

    ``name`` is the experiment's; by default the one that was begun last. Raises StoreError when
    there is no such folder, or it has no results and nobody writes into it.
    """

    folder: Path
    name: str = ""
    _ends: dict[str, float] = field(default_factory=dict, init=False)  # by key of a run

    def look(self) -> Seen:
        """How far it is now; the experiment has no name before one has begun."""
        store = Store(self.folder)
        if not self.folder.is_dir():
            raise StoreError(f"{self.folder} is no folder; give the --out of what is to be watched")
        writer = store.files.writer()
        plans = sorted(self.folder.glob(f"*{PLAN}"), key=lambda path: path.stat().st_mtime)
        name = self.name or (plans[-1].name.removesuffix(PLAN) if plans else "")
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
        for key in {str(run["key"]) for run in plan["runs"]} - self._ends.keys():
            if store.finished(key):
                self._ends[key] = store.path(key).stat().st_mtime
        done = tuple(run for run in plan["runs"] if run["key"] in self._ends)
        missing = tuple(run for run in plan["runs"] if run["key"] not in self._ends)
        results = Results(store, plan["experiment"], done, missing)
        over, percent, table = next(iter(results.policies), ""), True, []
        if over:
            where = [*results.cells, "policy"]
            table = results.table().to_dicts()
            rows = results.improvements(over).to_dicts()
            percent = all(row["percent"] for row in rows)
            ahead = {tuple(row[key] for key in where): row for row in rows}
            for row in table:
                found = ahead.get(tuple(row[key] for key in where), {})
                row |= {f"ahead{mine}": found.get(theirs) for theirs, mine in ENDS}
        left = None if writer is None else seconds_left(sorted(self._ends.values()), len(missing))
        of = len(done) + len(missing)
        objective = results.objective
        return Seen(name, "runs", len(done), of, left, writer, objective, table, over, percent)

    def _trials(self, writer: dict[str, Any] | None) -> Seen:
        study = Study.read(self.folder)
        tuning, labels, table, percent = study.so_far(), study.labels, [], True
        for trial in tuning.trials:
            row = {"policy": labels[trial.number], "seeds": len(trial.values)}
            over = tuning.over_default(trial) or dict.fromkeys(("mean", "low", "high"))
            for name, of in ((tuning.metric, trial.estimate._asdict()), ("ahead", over)):
                row |= {f"{name}{mine}": of[theirs] for theirs, mine in ENDS}
            percent = percent and bool(over.get("percent", True))
            table.append(row)
        done, wanted = len(tuning.trials), max(study.wanted, len(tuning.trials))
        left = None if writer is None else seconds_left(study.ends, study.wanted - done)
        base = labels[tuning.default.number] if tuning.trials else ""
        return Seen(
            TUNING, "trials", done, wanted, left, writer, tuning.metric, table, base, percent
        )


def seconds_left(ends: Sequence[float], missing: int) -> float | None:
    """The usual time between two ends, times the number of things missing.

    >>> seconds_left([1.0], 5) is None, seconds_left([1.0, 2.0], 0)
    (True, 0.0)
    """
    ends = ends[-RECENT:]
    if len(ends) < 2 or missing <= 0:
        return None if missing > 0 else 0.0
    each = (ends[-1] - ends[0]) / (len(ends) - 1)
    return max(each * missing - (time.time() - ends[-1]), 0.0)
