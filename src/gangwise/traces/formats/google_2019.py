"""Google ClusterData 2019 (version 3): machines, collections and instances of a cell.

Published by Google under CC-BY-4.0; see
https://github.com/google/cluster-data/blob/master/ClusterData2019.md. Each table is exported as
lines of JSON, ``collection_events-000000000000.json.gz`` and so on:

==========================  ================================================================
field                       meaning here
==========================  ================================================================
``time``                    microseconds; the window begins at 600 s. 0: before it; 2^63 - 1: after
``type``                    0 SUBMIT, 1 QUEUE, 2 ENABLE, 3 SCHEDULE, 4 EVICT, 5 FAIL, 6 FINISH,
                            7 KILL, 8 LOST, 9 and 10 UPDATE
``type`` of machines        1 ADD, 2 REMOVE, 3 UPDATE (0: not known)
``collection_type``         0 job, 1 alloc set: a reservation that jobs run in, and no job
``resource_request``        shares of the largest machine's, per instance
``start_after_...``         collections that must end before this one starts
==========================  ================================================================

The codes are **not those of 2011**, and nothing in a file of numbers would tell: what tells is that
the files of 2011 are CSV without names and those of 2019 are JSON with names.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from gangwise.core.errors import TraceError
from gangwise.traces.format import Format, TableFile
from gangwise.traces.formats.google_events import Codes, GoogleReader, Machines, Order, machines_of
from gangwise.traces.io.account import Stage
from gangwise.traces.io.schema import Check, Column, Schema, value

NAME = "google-2019"
ID = 2.0**53
"""Larger numbers are not exact as Float64; those of the trace are far below."""
FIRST = "start_after_collection_ids"


def _maybe(name: str, most: float = ID, least: float = 0.0) -> Column:
    """A number that a record may lack."""
    return Column(name, whole=True, least=least, most=most, empty=True, needed=False)


def _text(name: str) -> Column:
    return Column(name, number=False, empty=True, needed=False)


_TIME = Column("time", whole=True, most=2.0**63)
_ALL = (
    _TIME,
    Column("type", whole=True),
    Column("collection_id", whole=True, most=ID),
    _maybe("scheduling_class", 3),
    _maybe("missing_type"),
    _maybe("collection_type", 1),
    _maybe("priority"),
    _maybe("alloc_collection_id"),
)
_KNOWN = Check("type is not a code from 0 to 10", ("type",), lambda: value("type") > 10)

COLLECTION_EVENTS = Schema(
    f"{NAME} collection events",
    (
        *_ALL,
        Column("user", number=False, empty=True),
        _text("collection_name"),
        _text("collection_logical_name"),
        _maybe("parent_collection_id"),
        _text("start_after_collection_ids"),
        _maybe("max_per_machine"),
        _maybe("max_per_switch"),
        _maybe("vertical_scaling"),
        _maybe("scheduler"),
    ),
    json=True,
    absent=("instance_index",),
    checks=(_KNOWN,),
)
INSTANCE_EVENTS = Schema(
    f"{NAME} instance events",
    (
        *_ALL,
        Column("instance_index", whole=True),
        _maybe("machine_id", least=-1),
        _maybe("alloc_instance_index", least=-1),
        Column("resource_request.cpus", empty=True, needed=False),
        Column("resource_request.memory", empty=True, needed=False),
        _text("constraint"),
    ),
    json=True,
    checks=(_KNOWN,),
)
MACHINE_EVENTS = Schema(
    f"{NAME} machine events",
    (
        _TIME,
        Column("machine_id", whole=True, most=ID),
        Column("type", whole=True),
        _text("switch_id"),
        Column("capacity.cpus", empty=True, needed=False),
        Column("capacity.memory", empty=True, needed=False),
        _text("platform_id"),
        _text("missing_data_reason"),
    ),
    json=True,
    absent=("collection_id",),
    checks=(
        Check("type is not a code from 0 to 3", ("type",), lambda: value("type") > 3),
        Check("type is 0, UNKNOWN", ("type",), lambda: value("type") == 0),
    ),
)

FORMAT = Format(
    NAME,
    "Google ClusterData 2019, version 3",
    "https://github.com/google/cluster-data/blob/master/ClusterData2019.md",
    "CC-BY-4.0",
    (
        TableFile(
            "instance_events",
            INSTANCE_EVENTS,
            r"instance_events(-\d+)?",
            parts=True,
            needed=True,
            gives="what jobs request, and of how many tasks they are",
        ),
        TableFile(
            "collection_events",
            COLLECTION_EVENTS,
            r"collection_events(-\d+)?",
            parts=True,
            gives="when jobs begin and end, without requests, and which wait for which",
        ),
        TableFile(
            "machine_events", MACHINE_EVENTS, r"machine_events(-\d+)?", parts=True, gives="servers"
        ),
    ),
    span="May 2019, 8 cells",
)


ENDS = {4: "EVICT", 5: "FAIL", 6: "FINISH", 7: "KILL", 8: "LOST"}
ALLOC_SET = 1


class Google2019(GoogleReader):
    """Reader of instance events, collection events and machine events of one cell.

    Rows of ``jobs`` are the collections that are jobs, by request; those that run in an alloc set
    are among them. ``after`` names the collections that must end first, and ``job`` is the same for
    all collections that this links (the smallest ID of them). Parameters are those of
    :class:`~gangwise.traces.formats.google_events.GoogleReader`.
    """

    FORMAT = FORMAT
    OTHER = "google-2011"
    CODES = Codes(submit=0, schedule=3, ends=ENDS)
    TASKS, JOBS = "instance_events", "collection_events"

    def __init__(
        self,
        path: Path | str,
        *,
        hours: float | None = None,
        begin: float = 0.0,
        present: str = "drop",
        strict: bool = False,
    ):
        super().__init__(path, hours=hours, begin=begin, present=present, strict=strict)
        self._after: dict[int, set[int]] = {}
        self._bound: set[int] = set()
        self._inside: set[int] = set()
        self._untyped, self._rows = 0, {self.TASKS: 0, self.JOBS: 0}
        self._lost: dict[str, dict[str, tuple[int, int, int]]] = {self.TASKS: {}, self.JOBS: {}}

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
        requests = (
            {
                "task": "instance_index",
                "cpu": "resource_request.cpus",
                "mem": "resource_request.memory",
            }
            if tasks
            else {}
        )
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
        """Leave out rows, to be told with the others of the table."""
        lost = frame.filter(broken)
        if len(lost):
            part, row = lost.select("part", "row").row(0)
            count, *first = self._lost[table].get(reason, (0, part, row))
            self._lost[table][reason] = (count + len(lost), *first)
        return frame.filter(~broken)

    def _lists(self, table: str, frame: pl.DataFrame, column: str) -> pl.DataFrame:
        """Take in a list per row; leave out rows in which there is none."""
        read = {text: _items(text, column) for text in frame[column].unique()}
        bad = pl.col(column).is_in([text for text, items in read.items() if items is None])
        reason = f"{column} is not a list of the right kind"
        if self.source.strict and len(wrong := frame.filter(bad)):
            part, row, text = wrong.select("part", "row", column).row(0)
            raise TraceError(f"{reason} ({column} = {text!r})", self.files[part], row)
        frame = self._without(table, frame, reason, bad)
        said = frame.filter(pl.col(column).is_in([text for text, items in read.items() if items]))
        for number, text in said.select("collection_id", column).unique().rows():
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
        for table, lost in self._lost.items():
            dropped = {
                f"{reason}; the row is of {self.files[part].name}": (count, row)
                for reason, (count, part, row) in lost.items()
            }
            read, left = self._rows[table], sum(count for count, _ in dropped.values())
            if dropped:
                self.stages.append(Stage(f"{table}, of jobs", read, read - left, dropped))

    def _extra(self, jobs: pl.DataFrame) -> pl.DataFrame:
        here = set(jobs["name"].to_list())
        names = {str(job): sorted(map(str, first)) for job, first in self._after.items()}
        wanted = {job: first for job, first in names.items() if job in here}
        absent = sum(any(name not in here for name in first) for first in wanted.values())
        after = {job: [n for n in first if n in here] for job, first in wanted.items()}
        whole = _together(sorted(here, key=int), after)
        for count, text in (
            (absent, "start after a collection that is no job of the window; that is left out"),
            (
                len(here & set(map(str, self._inside))),
                "run in an alloc set, which reserved what they request before",
            ),
            (
                len(here & set(map(str, self._bound))),
                "have constraints on the attributes of machines; they are not used",
            ),
        ):
            if count:
                self.notes.append(f"{count} jobs {text}")
        return jobs.with_columns(
            job=pl.col("name").replace_strict(whole, return_dtype=pl.String),
            after=pl.Series(["|".join(after.get(n, ())) for n in jobs["name"]], dtype=pl.String),
        )

    def _machines(self, end: int) -> Machines:
        events = pl.concat(list(self._batches("machine_events", lambda: False))).rename(
            {
                "machine_id": "machine",
                "type": "event",
                "capacity.cpus": "cpu",
                "capacity.memory": "mem",
                "platform_id": "platform",
            }
        )
        return machines_of(events, 1, 2, self.first, end, [f.name for f in self.files])


def _together(names: list[str], after: dict[str, list[str]]) -> dict[str, str]:
    """For each name the first of those that it is linked to, directly or not."""
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
