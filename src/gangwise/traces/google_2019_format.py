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

from gangwise.traces.formats import Format, TableFile
from gangwise.traces.schema import Check, Column, Schema, value

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
