"""Google ClusterData 2019, version 3 (``google-2019.toml``): collections, instances and machines.

The event codes are **not those of 2011**, and nothing in a file of numbers would tell: what tells
is that the files of 2011 are CSV without names and those of 2019 are JSON with names.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import polars as pl

from gangwise.core.errors import TraceError
from gangwise.traces.format import declared
from gangwise.traces.formats.google_events import (
    ROWS,
    Codes,
    GoogleReader,
    Machines,
    Order,
    in_files,
    machines_of,
)
from gangwise.traces.io.account import Account

NAME = "google-2019"
FIRST = "start_after_collection_ids"
ENDS = {4: "EVICT", 5: "FAIL", 6: "FINISH", 7: "KILL", 8: "LOST"}
ALLOC_SET = 1
REQUESTS = {"task": "instance_index"}
REQUESTS |= {"cpu": "resource_request.cpus", "mem": "resource_request.memory"}
MACHINES = {"machine_id": "machine", "type": "event", "platform_id": "platform"}
MACHINES |= {"capacity.cpus": "cpu", "capacity.memory": "mem"}


class Google2019(GoogleReader):
    """Reader of instance events, collection events and machine events of one cell.

    Rows of ``jobs`` are the collections that are jobs, by request; those that run in an alloc set
    are among them. ``after`` names the collections that must end first, and ``job`` is the same for
    all collections that this links (the smallest ID of them). Parameters are those of
    :class:`~gangwise.traces.formats.google_events.GoogleReader`.
    """

    FORMAT = declared(NAME)
    CODES = Codes(submit=0, schedule=3, ends=ENDS)
    TASKS, JOBS = "instance_events", "collection_events"

    def _begin(self) -> None:
        self._after: dict[int, set[int]] = {}
        self._bound: set[int] = set()
        self._inside: set[int] = set()
        self._untyped, self._rows = 0, {self.TASKS: 0, self.JOBS: 0}
        self._lost = {table: Account(self.source.path) for table in self._rows}

    def _events(self, frame: pl.DataFrame, table: str) -> pl.DataFrame:
        tasks, kind = table == self.TASKS, pl.col("collection_type")
        self._rows[table] += len(frame)
        self._untyped += int(frame["collection_type"].null_count())
        frame = self._lists(table, frame, "constraint" if tasks else FIRST)
        frame = self._without(
            table, frame, "of an alloc set, which is no job", kind.fill_null(0) == ALLOC_SET
        )
        inside = frame.filter(pl.col("alloc_collection_id") > 0)
        self._inside.update(int(job) for job in inside["collection_id"].unique())
        requests = REQUESTS if tasks else {}
        return frame.select(
            "part",
            "row",
            "time",
            event="type",
            job="collection_id",
            user=pl.lit("") if tasks else pl.col("user"),
            filled=pl.col("missing_type").fill_null(0) > 0,
            **requests,
        )

    def _without(
        self, table: str, frame: pl.DataFrame, reason: str, broken: pl.Expr
    ) -> pl.DataFrame:
        lost = frame.filter(broken)
        if len(lost):
            part, row = lost.select("part", "row").row(0)
            self._lost[table].leave_out(part * ROWS + row, reason, len(lost))
        return frame.filter(~broken)

    def _lists(self, table: str, frame: pl.DataFrame, column: str) -> pl.DataFrame:
        read = {text: _items(text, column) for text in frame[column].unique()}
        bad = pl.col(column).is_in([text for text, items in read.items() if items is None])
        reason = f"{column} is not a list of the right kind"
        if self.source.strict and len(wrong := frame.filter(bad)):
            part, row, text = wrong.select("part", "row", column).row(0)
            raise TraceError(f"{reason} ({column} = {text!r})", self.files[part], row)
        frame = self._without(table, frame, reason, bad)
        matching = frame.filter(
            pl.col(column).is_in([text for text, items in read.items() if items])
        )
        for number, text in matching.select("collection_id", column).unique().rows():
            if column == FIRST:
                self._after.setdefault(int(number), set()).update(read[text] or ())
            else:
                self._bound.add(int(number))
        return frame

    def _beside(self, end: int, tasks: bool) -> None:
        if tasks and self.source.has(self.JOBS):
            order = Order()
            for frame in self._batches(self.JOBS, lambda: order.latest > end):
                order.add(frame)
                self.users.add(self._events(frame, self.JOBS))
        elif tasks:
            self.notes.append(
                "collection_events is not here: users, and what jobs must start "
                "after, are not known"
            )
        if self._untyped:
            self.notes.append(
                f"{self._untyped} rows have no collection_type; they are taken as of jobs"
            )
        names = [file.name for file in self.files]
        for table, account in self._lost.items():
            if account.dropped:
                stage = account.stage(f"{table}, of jobs", self._rows[table])
                self.stages.append(in_files(stage, names))

    def _extra(self, jobs: pl.DataFrame) -> pl.DataFrame:
        here = set(jobs["name"].to_list())
        names = {str(job): sorted(map(str, first)) for job, first in self._after.items()}
        wanted = {job: first for job, first in names.items() if job in here}
        absent = sum(any(name not in here for name in first) for first in wanted.values())
        after = {job: [n for n in first if n in here] for job, first in wanted.items()}
        whole = _together(sorted(here, key=int), after)
        inside, bound = (len(here & {*map(str, jobs)}) for jobs in (self._inside, self._bound))
        counts = {
            "start after a collection that is no job of the window; that is left out": absent,
            "run in an alloc set, which reserved what they request before": inside,
            "have constraints on the attributes of machines; they are not used": bound,
        }
        self.notes += [f"{count} jobs {text}" for text, count in counts.items() if count]
        return jobs.with_columns(
            job=pl.col("name").replace_strict(whole, return_dtype=pl.String),
            after=pl.Series(["|".join(after.get(n, ())) for n in jobs["name"]], dtype=pl.String),
        )

    def _machines(self, end: int) -> Machines:
        events = pl.concat(list(self._batches("machine_events", lambda: False))).rename(MACHINES)
        return machines_of(events, 1, 2, self.first, end, [f.name for f in self.files])


def _together(names: list[str], after: dict[str, list[str]]) -> dict[str, str]:
    """For each name the first of those that it is linked to, directly or not."""
    from scipy.sparse import coo_array  # here: whoever recognises a trace imports every format
    from scipy.sparse.csgraph import connected_components

    place = {name: n for n, name in enumerate(names)}
    links = [(place[job], place[first]) for job in after for first in after[job]]
    a, b = np.array(links, dtype=np.int64).reshape(-1, 2).T
    graph = coo_array((np.ones(a.size), (a, b)), shape=(len(names), len(names)))
    group = connected_components(graph, directed=False)[1]
    first = np.unique(group, return_index=True)[1]
    return {name: names[first[group[n]]] for name, n in place.items()}


def _items(text: str, column: str) -> list[Any] | None:
    """What a list holds; None when it is not a list of what the column asks for."""
    try:
        found = json.loads(text or "[]")
        if not isinstance(found, list):
            return None
        if column == FIRST:
            return [int(item) for item in found]
    except (TypeError, ValueError):
        return None
    return found if all(isinstance(item, dict) for item in found) else None
