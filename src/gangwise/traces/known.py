"""The traces that are registered, and their tables: those of their formats, and a few more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from gangwise.core.registry import entries
from gangwise.traces.formats import Format
from gangwise.traces.philly import is_job_log
from gangwise.traces.slurm_json import is_sacct_json
from gangwise.traces.slurm_nodes import is_node_list


class KnownTrace(NamedTuple):
    """A registered trace; ``form`` is None for one that has no format of its own."""

    name: str
    summary: str
    reader: Any
    form: Format | None


class OtherTable(NamedTuple):
    """A table that is no rows of columns, of which only the reader knows more."""

    trace: str
    name: str
    fits: Callable[[Path], bool]
    gives: str
    needed: bool


WITHOUT_SCHEMA = (
    OtherTable("philly", "job_log", is_job_log, "jobs", True),
    OtherTable("slurm-sacct", "jobs", is_sacct_json, "jobs, as JSON or as a listing", True),
    OtherTable("slurm-sacct", "nodes", is_node_list, "servers", False),
)


def known_traces() -> list[KnownTrace]:
    """Every registered trace, by name."""
    found = []
    for name, entry in entries("trace").items():
        reader = entry.load()
        found.append(KnownTrace(name, entry.summary, reader, getattr(reader, "FORMAT", None)))
    return found


def described() -> list[dict[str, Any]]:
    """Every registered trace: what its format says of it, ready for JSON.

    >>> [trace["name"] for trace in described() if trace["sha256"]]
    ['alibaba-v2017', 'alibaba-v2018']
    """
    found = []
    for name, summary, _, known in known_traces():
        form = known or Format(name, summary, "nowhere: your own files", "your own", ())
        tables = [
            {
                "name": t.name,
                "gives": t.gives,
                "needed": t.needed,
                "parts": t.parts,
                "columns": [column.name for column in t.schema.columns],
            }
            for t in form.tables
        ] + [
            {"name": t.name, "gives": t.gives, "needed": t.needed, "parts": False, "columns": []}
            for t in WITHOUT_SCHEMA
            if t.trace == name and t.name not in [table.name for table in form.tables]
        ]
        found.append(
            {
                "name": name,
                "title": form.title,
                "summary": summary,
                "published": form.published,
                "licence": form.licence,
                "span": form.span,
                "size": form.size,
                "sha256": dict(form.sha256),
                "checksums": form.checksums,
                "tables": tables,
            }
        )
    return found
